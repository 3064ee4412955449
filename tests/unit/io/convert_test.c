// labels: threads
// convert_test.c — conversions against each tensor quantised whole and at once, so that chunks,
// threads and budgets are shown not to matter; and everything that must be refused or left alone.
#include "model_files.h"

#include <ration/convert.h>
#include <ration/writer.h>

#include "base/checked.h"
#include "base/str.h"
#include "io/double_quant.h"
#include "io/gguf.h"
#include "tensor/quant.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define MiB ((uint64_t)1 << 20)

// ---- the model ---------------------------------------------------------------------------------

typedef struct source {
    const char *name;
    rn_dtype dtype;
    uint32_t rank;
    uint64_t dims[4];
    const char *left8, *left4, *left_nf4, *left_ggml; // why quantising leaves it alone, or NULL
} source;

#define ALL(why) why, why, why, why

// Several chunks and parts of one; odd and even numbers of groups; a group a row, groups of 128, 96
// and 32.
static const source sources[] = {
    {"model.layers.0.big.weight",
     RN_DTYPE_F32,
     2,
     {700, 1000},
     NULL,
     NULL,
     NULL,
     "rows are not multiples of 32"},
    {"model.layers.0.groups.weight", RN_DTYPE_BF16, 2, {701, 640}, ALL(NULL)},
    {"model.layers.0.odd.weight", RN_DTYPE_F16, 2, {333, 288}, ALL(NULL)},
    {"model.layers.0.long.weight", RN_DTYPE_F32, 2, {5, 70016}, ALL(NULL)},
    {"model.layers.1.row.weight", RN_DTYPE_F32, 2, {1, 64}, ALL(NULL)},
    {"model.layers.1.conv.weight",
     RN_DTYPE_F32,
     4,
     {8, 3, 3, 5},
     NULL,
     NULL,
     NULL,
     "rows are not multiples of 32"},
    {"model.layers.1.column.weight",
     RN_DTYPE_F32,
     2,
     {3, 1},
     NULL,
     NULL,
     NULL,
     "rows are not multiples of 32"},
    {"model.layers.1.double.weight", RN_DTYPE_F64, 2, {40, 96}, ALL(NULL)},
    {"plain", RN_DTYPE_F32, 3, {4, 5, 32}, ALL(NULL)},
    {"model.layers.2.wide.weight",
     RN_DTYPE_F8_E4M3,
     2,
     {2, 140001},
     "rows are too long",
     "rows are too long",
     NULL,
     "rows are not multiples of 32"},
    {"model.embed_tokens.weight", RN_DTYPE_BF16, 2, {100, 64}, ALL("embedding or norm")},
    {"model.layers.0.input_layernorm.weight", RN_DTYPE_F32, 1, {64}, ALL("not a matrix")},
    {"model.layers.0.norm.matrix", RN_DTYPE_F32, 2, {4, 64}, ALL("embedding or norm")},
    {"bias", RN_DTYPE_F32, 1, {7}, ALL("not a matrix")},
    {"scalar", RN_DTYPE_F32, 0, {0}, ALL("not a matrix")},
    {"none.weight", RN_DTYPE_F32, 2, {0, 32}, ALL("empty")},
    {"ids", RN_DTYPE_I64, 2, {5, 32}, ALL("integers")},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static uint8_t *source_bytes[SOURCES]; // what the file holds
static float *source_values[SOURCES];  // the same as f32
static uint64_t source_elements[SOURCES];
static char model_path[256], out_folder[256];

static uint64_t size_of(rn_dtype dtype, uint64_t elements) {
    uint64_t size = 0;
    assert_true(rn_dtype_bytes(dtype, elements, &size));
    return size;
}

static void make_tensor(size_t i) {
    const source *s = &sources[i];
    uint64_t n = 1;
    for (uint32_t d = 0; d < s->rank; d++)
        n *= s->dims[d];
    source_elements[i] = n;
    source_bytes[i] = malloc(size_of(s->dtype, n) + 1);
    source_values[i] = malloc(n * sizeof(float) + 4);
    fill_weights(source_values[i], n, i + 1);
    for (uint64_t k = 0; k < n && k < 40; k++) // the first row or group is constant, or nearly
        source_values[i][k] = k < 30 ? 0.25f : 0;
    if (s->dtype == RN_DTYPE_I64)
        for (uint64_t k = 0; k < n; k++)
            source_values[i][k] = (float)k;
    assert_ok(rn_dtype_from_f32(s->dtype, source_values[i], source_bytes[i], n));
    assert_ok(rn_dtype_to_f32(s->dtype, source_bytes[i], source_values[i], n));
}

static int make_model(void **state) {
    rn_write_tensor tensors[SOURCES];
    rn_metadata pair = {.key = RN_STR("format"), .kind = RN_METADATA_TEXT, .text = RN_STR("pt")};
    rn_writer_options options = {.metadata = &pair, .metadata_count = 1};
    rn_writer *writer;
    (void)state;
    snprintf(model_path, sizeof model_path, "%s/in.safetensors", test_folder());
    snprintf(out_folder, sizeof out_folder, "%s/out", test_folder());
    mkdir(out_folder, 0755);
    for (size_t i = 0; i < SOURCES; i++) {
        make_tensor(i);
        tensors[i] = (rn_write_tensor){.name = rn_str_from(sources[i].name),
                                       .dtype = sources[i].dtype,
                                       .rank = sources[i].rank,
                                       .dims = sources[i].dims};
    }
    assert_ok(rn_writer_create(model_path, tensors, SOURCES, &options, &writer));
    for (size_t i = 0; i < SOURCES; i++)
        assert_ok(rn_writer_append(writer, source_bytes[i],
                                   size_of(sources[i].dtype, source_elements[i])));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
    return 0;
}

static int free_model(void **state) {
    (void)state;
    for (size_t i = 0; i < SOURCES; i++) {
        free(source_bytes[i]);
        free(source_values[i]);
    }
    return 0;
}

static const char *out_path(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", out_folder, name);
    return path;
}

static rn_status convert(const char *in, const char *out, rn_convert_options options) {
    rn_convert_result result;
    uint64_t soft_before, hard_before, soft, hard;
    rn_budget_get(RN_DEVICE_HOST, &soft_before, &hard_before);
    uint64_t held = held_bytes();
    rn_status s = rn_convert(in, out, &options, &result);
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_true(soft == soft_before && hard == hard_before);
    assert_int_equal(held_bytes(), held);
    return s;
}

static rn_checkpoint *must_open(const char *path) {
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(path, &c));
    return c;
}

// ---- what each output must hold ----------------------------------------------------------------

// The output's tensor `name`+`suffix` has this type, shape and content; counted in *seen.
static void expect_tensor(const rn_checkpoint *c, const char *name, const char *suffix,
                          rn_dtype dtype, const uint64_t *dims, uint32_t rank, const void *content,
                          size_t *seen) {
    char full[160];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const rn_tensor_info *t = rn_checkpoint_find(c, full);
    if (!t) fail_msg("no %s", full);
    (*seen)++;
    if (t->dtype != dtype || t->rank != rank) fail_msg("%s: type or rank", full);
    for (uint32_t i = 0; i < rank; i++)
        if (t->dims[i] != dims[i]) fail_msg("%s: dimension %u", full, i);
    uint8_t *got = malloc(t->bytes + 1);
    assert_ok(rn_checkpoint_read(c, t, 0, got, t->bytes));
    if (memcmp(got, content, t->bytes) != 0) fail_msg("%s: bytes differ", full);
    free(got);
}

static void expect_ones(const rn_checkpoint *c, const char *name, size_t *seen) {
    size_t length = strlen(name), ending = strlen(".weight");
    char prefix[160];
    if (length < ending || strcmp(name + length - ending, ".weight") != 0) return;
    snprintf(prefix, sizeof prefix, "%.*s", (int)(length - ending), name);
    expect_tensor(c, prefix, ".input_scale", RN_DTYPE_F32, NULL, 0, &(float){1}, seen);
    expect_tensor(c, prefix, ".output_scale", RN_DTYPE_F32, NULL, 0, &(float){1}, seen);
}

static void expect_int8(const rn_checkpoint *c, size_t i, size_t *seen) {
    const source *s = &sources[i];
    uint64_t rows = s->dims[0], cols = source_elements[i] / rows, ones[4] = {rows, 1, 1, 1};
    int8_t *q = malloc(source_elements[i]);
    float *scale = malloc(rows * sizeof *scale);
    rn_quant_int8_rows(source_values[i], rows, cols, q, scale);
    expect_tensor(c, s->name, "._data", RN_DTYPE_I8, s->dims, s->rank, q, seen);
    expect_tensor(c, s->name, "._scale", RN_DTYPE_F32, ones, s->rank, scale, seen);
    expect_ones(c, s->name, seen);
    free(q);
    free(scale);
}

static void expect_int4(const rn_checkpoint *c, size_t i, size_t *seen) {
    const source *s = &sources[i];
    uint64_t cols = source_elements[i] / s->dims[0], group = rn_quant_int4_group(cols);
    uint64_t groups = source_elements[i] / group, half = (groups + 1) / 2;
    uint64_t packed[4] = {half, group}, side[4] = {groups, 1, 1, 1};
    uint32_t rank = group == cols ? s->rank : 2;
    for (uint32_t d = 1; group == cols && d < rank; d++)
        packed[d] = s->dims[d];
    uint8_t *q = malloc(groups * group);
    float *scale = malloc(groups * sizeof *scale), *shift = malloc(groups * sizeof *shift);
    rn_quant_int4_groups(source_values[i], groups, group, q, scale, shift);
    for (uint64_t k = 0; k < half * group; k++) // packed by hand: the group's partner, or nothing
        q[k] |= (uint8_t)(k + half * group < groups * group ? q[k + half * group] << 4 : 0);
    expect_tensor(c, s->name, "._data._data", RN_DTYPE_U8, packed, rank, q, seen);
    expect_tensor(c, s->name, "._scale", RN_DTYPE_F32, side, rank, scale, seen);
    expect_tensor(c, s->name, "._shift", RN_DTYPE_F32, side, rank, shift, seen);
    expect_ones(c, s->name, seen);
    free(q);
    free(scale);
    free(shift);
}

static void expect_nf4(const rn_checkpoint *c, size_t i, size_t *seen) {
    const source *s = &sources[i];
    uint64_t n = source_elements[i], blocks = (n + 63) / 64, packed[2] = {(n + 1) / 2, 1};
    uint8_t *q = malloc(packed[0]);
    float *absmax = malloc(blocks * sizeof *absmax);
    const char *dtype = s->dtype == RN_DTYPE_F16    ? "float16"
                        : s->dtype == RN_DTYPE_BF16 ? "bfloat16"
                                                    : "float32";
    char described[256];
    int length = snprintf(
        described, sizeof described,
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"%s\", \"shape\": [", dtype);
    for (uint32_t d = 0; d < s->rank; d++)
        length += snprintf(described + length, sizeof described - (size_t)length, "%s%llu",
                           d ? ", " : "", (unsigned long long)s->dims[d]);
    length += snprintf(described + length, sizeof described - (size_t)length, "]}");
    rn_quant_nf4_blocks(source_values[i], n, q, absmax);
    expect_tensor(c, s->name, "", RN_DTYPE_U8, packed, 2, q, seen);
    expect_tensor(c, s->name, ".absmax", RN_DTYPE_F32, &blocks, 1, absmax, seen);
    expect_tensor(c, s->name, ".quant_map", RN_DTYPE_F32, &(uint64_t){16}, 1, rn_nf4_table, seen);
    expect_tensor(c, s->name, ".quant_state.bitsandbytes__nf4", RN_DTYPE_U8,
                  &(uint64_t){(uint64_t)length}, 1, described, seen);
    free(q);
    free(absmax);
}

// As nf4, but for absmax: codes, their scales and the map, and an offset that is the mean.
static void expect_nf4_dq(const rn_checkpoint *c, size_t i, size_t *seen) {
    const source *s = &sources[i];
    uint64_t n = source_elements[i], blocks = (n + 63) / 64, packed[2] = {(n + 1) / 2, 1};
    uint64_t nested_count = (blocks + 255) / 256;
    uint8_t *q = malloc(packed[0]), *codes = malloc(blocks);
    float *absmax = malloc(blocks * sizeof *absmax), *nested = malloc(nested_count * 4), told;
    char name[128];
    rn_quant_nf4_blocks(source_values[i], n, q, absmax);
    float offset = rn_quant_nf4_offset(absmax, blocks);
    rn_quant_nf4_absmax(absmax, blocks, offset, codes, nested);
    expect_tensor(c, s->name, "", RN_DTYPE_U8, packed, 2, q, seen);
    expect_tensor(c, s->name, ".absmax", RN_DTYPE_U8, &blocks, 1, codes, seen);
    expect_tensor(c, s->name, ".nested_absmax", RN_DTYPE_F32, &nested_count, 1, nested, seen);
    expect_tensor(c, s->name, ".nested_quant_map", RN_DTYPE_F32, &(uint64_t){256}, 1,
                  rn_dynamic_map, seen);
    expect_tensor(c, s->name, ".quant_map", RN_DTYPE_F32, &(uint64_t){16}, 1, rn_nf4_table, seen);
    snprintf(name, sizeof name, "%s.quant_state.bitsandbytes__nf4", s->name);
    assert_non_null(rn_checkpoint_find(c, name));
    *seen += 1;
    assert_ok(rn_double_quant_offset(c, s->name, &told));
    assert_true(told == offset);
    free(q);
    free(codes);
    free(absmax);
    free(nested);
}

static void expect_plain(const rn_checkpoint *c, size_t i, rn_dtype to, size_t *seen) {
    uint8_t *bytes = malloc(size_of(to, source_elements[i]) + 1);
    if (to == sources[i].dtype)
        memcpy(bytes, source_bytes[i], size_of(to, source_elements[i]));
    else
        assert_ok(
            rn_dtype_convert(sources[i].dtype, source_bytes[i], to, bytes, source_elements[i]));
    expect_tensor(c, sources[i].name, "", to, sources[i].dims, sources[i].rank, bytes, seen);
    free(bytes);
}

static bool is_plain(rn_dtype to) {
    return to < RN_DTYPE_F8_E8M0;
}

static const char *why_left(const source *s, rn_dtype to) {
    if (s->dtype == RN_DTYPE_I64) return "integers";
    if (is_plain(to)) return NULL;
    if (to == RN_DTYPE_INT8) return s->left8;
    if (to == RN_DTYPE_INT4) return s->left4;
    return to == RN_DTYPE_NF4 || to == RN_DTYPE_NF4_DQ ? s->left_nf4 : s->left_ggml;
}

// A tensor that is left alone keeps its type, or where GGUF has none, one that holds its values.
static rn_dtype kept_dtype(const source *s, bool gguf) {
    return gguf && s->dtype == RN_DTYPE_F8_E4M3 ? RN_DTYPE_F16 : s->dtype;
}

// Norms and vectors are f32 there.
static rn_dtype gguf_dtype(const source *s, rn_dtype to) {
    return s->rank < 2 && (to == RN_DTYPE_F16 || to == RN_DTYPE_BF16) ? RN_DTYPE_F32 : to;
}

static void check_output(const char *path, rn_dtype to) {
    rn_checkpoint *c = must_open(path);
    bool gguf = rn_checkpoint_container(c) == RN_CONTAINER_GGUF;
    size_t seen = 0;
    for (size_t i = 0; i < SOURCES; i++) {
        if (why_left(&sources[i], to))
            expect_plain(c, i, kept_dtype(&sources[i], gguf), &seen);
        else if (to == RN_DTYPE_INT8)
            expect_int8(c, i, &seen);
        else if (to == RN_DTYPE_INT4)
            expect_int4(c, i, &seen);
        else if (to == RN_DTYPE_NF4)
            expect_nf4(c, i, &seen);
        else if (to == RN_DTYPE_NF4_DQ)
            expect_nf4_dq(c, i, &seen);
        else
            expect_plain(c, i, gguf ? gguf_dtype(&sources[i], to) : to, &seen);
    }
    assert_int_equal(rn_checkpoint_count(c), seen); // and nothing else
    rn_checkpoint_close(c);
}

// ---- values ------------------------------------------------------------------------------------

static const struct {
    rn_dtype to;
    const char *file;
} targets[] = {
    {RN_DTYPE_F32, "o.safetensors"},
    {RN_DTYPE_F16, "o.safetensors"},
    {RN_DTYPE_BF16, "o.safetensors"},
    {RN_DTYPE_F64, "o.safetensors"},
    {RN_DTYPE_F8_E4M3, "o.safetensors"},
    {RN_DTYPE_F8_E5M2, "o.safetensors"},
    {RN_DTYPE_INT8, "o.safetensors"},
    {RN_DTYPE_INT4, "o.safetensors"},
    {RN_DTYPE_NF4, "o.safetensors"},
    {RN_DTYPE_NF4_DQ, "o.safetensors"},
    {RN_DTYPE_F32, "o.gguf"},
    {RN_DTYPE_F16, "o.gguf"},
    {RN_DTYPE_BF16, "o.gguf"},
    {RN_DTYPE_F64, "o.gguf"},
    {RN_DTYPE_Q8_0, "o.gguf"},
    {RN_DTYPE_Q4_0, "o.gguf"},
};
enum { TARGETS = sizeof targets / sizeof *targets };

// Targets whose chunks go through the threads as another's do, with other arithmetic: nothing that
// ThreadSanitizer would see.
static bool is_left_to_other_builds(size_t i) {
    switch (targets[i].to) {
    case RN_DTYPE_F16: // in both containers
    case RN_DTYPE_INT8:
    case RN_DTYPE_INT4:
    case RN_DTYPE_NF4:
    case RN_DTYPE_NF4_DQ:
    case RN_DTYPE_Q4_0:
        return false;
    default:
        return TEST_THREADS_ONLY;
    }
}

static void every_target_equals_the_tensor_converted_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < TARGETS; i++) {
        if (is_left_to_other_builds(i)) continue;
        rn_convert_options options = {.to = targets[i].to};
        assert_ok(convert(model_path, out_path(targets[i].file), options));
        check_output(out_path(targets[i].file), targets[i].to);
        assert_int_equal(count_files(out_folder), 1);
        unlink(out_path(targets[i].file));
    }
}

static void files_do_not_depend_on_threads_or_budget(void **state) {
    static const struct {
        size_t threads;
        uint64_t budget;
    } runs[] = {{1, 64 * MiB}, {5, 24 * MiB}, {3, 256 * MiB}};
    (void)state;
    for (size_t i = 0; i < TARGETS; i++) {
        if (is_left_to_other_builds(i)) continue;
        char *first = NULL;
        size_t first_bytes = 0, next_bytes;
        for (size_t r = 0; r < 3; r++) {
            rn_convert_options options = {.to = targets[i].to,
                                          .thread_count = runs[r].threads,
                                          .budget_bytes = runs[r].budget};
            assert_ok(convert(model_path, out_path(targets[i].file), options));
            char *next = test_read(out_path(targets[i].file), &next_bytes);
            if (r == 0) first = next, first_bytes = next_bytes;
            assert_int_equal(next_bytes, first_bytes);
            assert_memory_equal(next, first, first_bytes);
            if (r) free(next);
        }
        free(first);
        unlink(out_path(targets[i].file));
    }
}

static void every_tensor_lies_on_a_boundary_of_its_elements(void **state) {
    (void)state;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    for (size_t i = 0; i < TARGETS; i++) {
        rn_convert_options options = {.to = targets[i].to};
        assert_ok(convert(model_path, out_path(targets[i].file), options));
        rn_checkpoint *c = must_open(out_path(targets[i].file));
        for (size_t k = 0; k < rn_checkpoint_count(c); k++) {
            const rn_tensor_info *t = rn_checkpoint_tensor(c, k);
            const rn_dtype_info *info = rn_dtype_get(t->dtype);
            uint64_t width = info->block_elements > 1 ? 1
                             : info->block_bytes > 4  ? 4
                                                      : info->block_bytes;
            if (t->offset % width)
                fail_msg("%s is at %llu", t->name.data, (unsigned long long)t->offset);
        }
        rn_checkpoint_close(c);
        unlink(out_path(targets[i].file));
    }
}

// ---- reports -----------------------------------------------------------------------------------

typedef struct report {
    rn_dtype to;
    size_t rows, left;
    uint64_t bytes_in, progress, total;
} report;

static void restore(size_t i, rn_dtype to, float *out) {
    uint64_t n = source_elements[i], rows = sources[i].rank ? sources[i].dims[0] : 1;
    uint64_t group = rn_quant_int4_group(n / rows);
    uint8_t *q = malloc(n * 8);
    float *scale = malloc(n * sizeof *scale + 64), *shift = malloc(n * sizeof *shift + 64);
    if (to == RN_DTYPE_INT8) {
        rn_quant_int8_rows(source_values[i], rows, n / rows, (int8_t *)q, scale);
        rn_dequant_int8_rows((int8_t *)q, scale, rows, n / rows, out);
    } else if (to == RN_DTYPE_INT4) {
        rn_quant_int4_groups(source_values[i], n / group, group, q, scale, shift);
        rn_dequant_int4_groups(q, scale, shift, n / group, group, out);
    } else if (to == RN_DTYPE_NF4 || to == RN_DTYPE_NF4_DQ) { // before its scales are coded
        rn_quant_nf4_blocks(source_values[i], n, q, scale);
        rn_dequant_nf4_blocks(q, scale, n, out);
    } else {
        assert_ok(rn_dtype_from_f32(to, source_values[i], q, n));
        assert_ok(rn_dtype_to_f32(to, q, out, n));
    }
    free(q);
    free(scale);
    free(shift);
}

// The library takes differences in f32.
static void assert_near(double got, double expected) {
    if (fabs(got - expected) > 1e-6 * fabs(expected)) fail_msg("%g instead of %g", got, expected);
}

static void check_errors(size_t i, const rn_convert_row *row) {
    float *restored = malloc(source_elements[i] * sizeof *restored);
    double sum = 0, most = 0, squares = 0, reference = 0;
    restore(i, row->to, restored);
    for (uint64_t k = 0; k < source_elements[i]; k++) {
        double value = (double)source_values[i][k], off = fabs(value - (double)restored[k]);
        sum += off;
        most = off > most ? off : most;
        squares += off * off;
        reference += value * value;
    }
    free(restored);
    assert_near(row->mean_error, sum / (double)source_elements[i]);
    assert_near(row->max_error, most);
    assert_near(row->relative_error, squares > 0 ? sqrt(squares / reference) : 0);
}

static void check_row(void *self, const rn_convert_row *row) {
    report *r = self;
    size_t i = 0;
    while (i < SOURCES && !rn_str_equal(row->name, rn_str_from(sources[i].name)))
        i++;
    assert_true(i < SOURCES);
    const char *left = why_left(&sources[i], r->to);
    r->rows++;
    r->left += left != NULL;
    r->bytes_in += row->bytes_in;
    assert_int_equal(row->from, sources[i].dtype);
    assert_int_equal(row->bytes_in, size_of(sources[i].dtype, source_elements[i]));
    if (left) {
        assert_string_equal(row->left_alone, left);
        return;
    }
    assert_null(row->left_alone);
    assert_int_equal(row->to, r->to);
    if (source_elements[i] && row->measured) check_errors(i, row);
    bool exact = r->to == row->from || r->to == RN_DTYPE_F64 ||
                 (r->to == RN_DTYPE_F32 && row->from != RN_DTYPE_F64);
    assert_int_equal(row->measured, !exact && source_elements[i] > 0);
}

static void check_progress(void *self, uint64_t done, uint64_t total) {
    report *r = self;
    assert_true(done > r->progress && done <= total);
    r->progress = done;
    r->total = total;
}

static void rows_say_what_became_of_each_tensor(void **state) {
    (void)state;
    for (size_t i = 0; i < TARGETS; i++) {
        if (is_left_to_other_builds(i)) continue;
        if (strcmp(targets[i].file, "o.gguf") == 0 && is_plain(targets[i].to)) continue;
        report r = {.to = targets[i].to};
        rn_convert_options options = {.to = r.to,
                                      .self = &r,
                                      .row = check_row,
                                      .progress = check_progress,
                                      .budget_bytes = 32 * MiB,
                                      .thread_count = 2};
        rn_convert_result result;
        struct stat info;
        assert_ok(rn_convert(model_path, out_path(targets[i].file), &options, &result));
        assert_int_equal(stat(out_path(targets[i].file), &info), 0);
        assert_int_equal(r.rows, SOURCES);
        assert_int_equal(result.converted_count + result.left_count, SOURCES);
        assert_int_equal(result.bytes_in, r.bytes_in);
        assert_int_equal(result.bytes_out, info.st_size);
        assert_int_equal(r.progress, r.total);
        assert_int_equal(r.total, r.bytes_in);
        assert_true(result.buffer_bytes > 0 && result.buffer_bytes <= 32 * MiB);
        assert_true(strcmp(result.engine, "io_uring") == 0 ||
                    strcmp(result.engine, "threads") == 0);
        unlink(out_path(targets[i].file));
    }
}

typedef struct all_rows {
    double errors[SOURCES][3];
    size_t count;
} all_rows;

static void keep_errors(void *self, const rn_convert_row *row) {
    all_rows *rows = self;
    double *errors = rows->errors[rows->count++];
    errors[0] = row->mean_error;
    errors[1] = row->max_error;
    errors[2] = row->relative_error;
}

static void errors_do_not_depend_on_threads_or_budget(void **state) {
    (void)state;
    for (size_t i = 0; i < TARGETS; i++) {
        if (is_left_to_other_builds(i)) continue;
        all_rows wide = {.count = 0}, narrow = {.count = 0};
        rn_convert_options options = {.to = targets[i].to, .self = &wide, .row = keep_errors};
        assert_ok(convert(model_path, out_path(targets[i].file), options));
        options.self = &narrow;
        options.thread_count = 3;
        options.budget_bytes = 24 * MiB;
        assert_ok(convert(model_path, out_path(targets[i].file), options));
        assert_memory_equal(&narrow, &wide, sizeof wide); // to the last bit
        unlink(out_path(targets[i].file));
    }
}

typedef struct one_row {
    const char *name;
    rn_convert_row row;
} one_row;

static void keep_row(void *self, const rn_convert_row *row) {
    one_row *wanted = self;
    if (rn_str_equal(row->name, rn_str_from(wanted->name))) wanted->row = *row;
}

// One tensor in a file of its own.
static void write_single(const char *path, const char *name, rn_dtype dtype, uint64_t rows,
                         uint64_t cols, const void *data) {
    uint64_t dims[] = {rows, cols};
    rn_write_tensor t = {.name = rn_str_from(name), .dtype = dtype, .rank = 2, .dims = dims};
    rn_writer *writer;
    assert_ok(rn_writer_create(path, &t, 1, NULL, &writer));
    assert_ok(rn_writer_append(writer, data, size_of(dtype, rows * cols)));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

static void broken_weights_show_in_the_errors(void **state) {
    float values[64 * 2];
    (void)state;
    fill_weights(values, 128, 3);
    values[100] = NAN;
    write_single(test_path("nan.safetensors"), "w", RN_DTYPE_F32, 2, 64, values);
    for (rn_dtype to = RN_DTYPE_INT8; to <= RN_DTYPE_NF4; to++) {
        one_row wanted = {.name = "w"};
        rn_convert_options options = {.to = to, .self = &wanted, .row = keep_row};
        assert_ok(convert(test_path("nan.safetensors"), out_path("o.safetensors"), options));
        assert_true(isnan(wanted.row.mean_error)); // never a plausible number
        assert_true(isnan(wanted.row.relative_error));
    }
    unlink(out_path("o.safetensors"));
}

// ---- what is left alone ------------------------------------------------------------------------

static void names_may_be_excluded_or_included(void **state) {
    static const char *const patterns[] = {"*.groups.*", "pl?in"};
    rn_convert_options options = {.to = RN_DTYPE_INT8, .exclude = patterns, .exclude_count = 2};
    (void)state;
    assert_ok(convert(model_path, out_path("o.safetensors"), options));
    rn_checkpoint *c = must_open(out_path("o.safetensors"));
    assert_int_equal(rn_checkpoint_find(c, "model.layers.0.groups.weight")->dtype, RN_DTYPE_BF16);
    assert_int_equal(rn_checkpoint_find(c, "plain")->dtype, RN_DTYPE_F32);
    assert_non_null(rn_checkpoint_find(c, "model.layers.0.big.weight._data"));
    assert_int_equal(rn_checkpoint_find(c, "model.embed_tokens.weight")->dtype, RN_DTYPE_BF16);
    rn_checkpoint_close(c);
    options = (rn_convert_options){.to = RN_DTYPE_INT8, .no_default_excludes = true};
    assert_ok(convert(model_path, out_path("o.safetensors"), options));
    c = must_open(out_path("o.safetensors"));
    assert_non_null(rn_checkpoint_find(c, "model.embed_tokens.weight._data"));
    assert_non_null(rn_checkpoint_find(c, "model.layers.0.norm.matrix._data"));
    assert_non_null(rn_checkpoint_find(c, "bias")); // still no matrix
    rn_checkpoint_close(c);
    unlink(out_path("o.safetensors"));
}

static void quantising_reaches_no_embedding_or_norm_of_any_family(void **state) {
    static const char *const names[] = {
        "model.embed_tokens.weight", "token_embd.weight",
        "transformer.wte.weight",    "transformer.wpe.weight",
        "blk.0.attn_norm.weight",    "h.0.ln_1.weight",
        "encoder.0.ln.weight",       "model.layers.0.post_attention_layernorm.weight"};
    float values[64] = {1};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        one_row wanted = {.name = names[i]};
        rn_convert_options options = {.to = RN_DTYPE_INT8, .self = &wanted, .row = keep_row};
        write_single(test_path("one.safetensors"), names[i], RN_DTYPE_F32, 2, 32, values);
        assert_ok(convert(test_path("one.safetensors"), out_path("o.safetensors"), options));
        if (wanted.row.to != RN_DTYPE_F32) fail_msg("%s was quantised", names[i]);
        assert_string_equal(wanted.row.left_alone, "embedding or norm");
    }
    unlink(out_path("o.safetensors"));
}

static void names_are_excluded_from_plain_types_as_well(void **state) {
    static const char *const patterns[] = {"*.groups.*", "bias"};
    rn_convert_options options = {.to = RN_DTYPE_F16, .exclude = patterns, .exclude_count = 2};
    (void)state;
    assert_ok(convert(model_path, out_path("o.safetensors"), options));
    rn_checkpoint *c = must_open(out_path("o.safetensors"));
    assert_int_equal(rn_checkpoint_find(c, "model.layers.0.groups.weight")->dtype, RN_DTYPE_BF16);
    assert_int_equal(rn_checkpoint_find(c, "bias")->dtype, RN_DTYPE_F32);
    assert_int_equal(rn_checkpoint_find(c, "plain")->dtype, RN_DTYPE_F16);
    assert_int_equal(rn_checkpoint_find(c, "model.embed_tokens.weight")->dtype, RN_DTYPE_F16);
    rn_checkpoint_close(c);
    unlink(out_path("o.safetensors"));
}

// 16-bit vectors and norms become f32 in GGUF whatever is asked for; matrices stay what they are.
static void norms_and_vectors_are_f32_in_gguf(void **state) {
    static const rn_dtype targets_of_gguf[] = {RN_DTYPE_NONE, RN_DTYPE_F16,  RN_DTYPE_BF16,
                                               RN_DTYPE_F32,  RN_DTYPE_Q8_0, RN_DTYPE_Q4_0};
    const rn_write_tensor tensors[] = {
        {{"blk.0.attn_norm.weight", 22}, RN_DTYPE_BF16, 1, (uint64_t[]){64}, false},
        {{"blk.0.attn_q.bias", 17}, RN_DTYPE_F16, 1, (uint64_t[]){64}, false},
        {{"blk.0.attn_q_norm.weight", 24}, RN_DTYPE_F16, 2, (uint64_t[]){2, 32}, false},
        {{"token_embd.weight", 17}, RN_DTYPE_BF16, 2, (uint64_t[]){2, 32}, false},
    };
    uint16_t data[64] = {0};
    rn_writer *writer;
    (void)state;
    assert_ok(rn_writer_create(test_path("half.safetensors"), tensors, 4, NULL, &writer));
    for (size_t i = 0; i < 4; i++)
        assert_ok(rn_writer_append(writer, data, sizeof data));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
    for (size_t i = 0; i < sizeof targets_of_gguf / sizeof *targets_of_gguf; i++) {
        rn_dtype to = targets_of_gguf[i];
        bool plain = to == RN_DTYPE_F16 || to == RN_DTYPE_F32 || to == RN_DTYPE_BF16;
        assert_ok(convert(test_path("half.safetensors"), out_path("o.gguf"),
                          (rn_convert_options){.to = to}));
        rn_checkpoint *c = must_open(out_path("o.gguf"));
        for (size_t t = 0; t < 3; t++)
            assert_int_equal(rn_checkpoint_find(c, tensors[t].name.data)->dtype, RN_DTYPE_F32);
        assert_int_equal(rn_checkpoint_find(c, "token_embd.weight")->dtype,
                         plain ? to : RN_DTYPE_BF16);
        rn_checkpoint_close(c);
        unlink(out_path("o.gguf"));
    }
    assert_ok(convert(test_path("half.safetensors"), out_path("o.safetensors"),
                      (rn_convert_options){.to = RN_DTYPE_BF16}));
    rn_checkpoint *c = must_open(out_path("o.safetensors"));
    assert_int_equal(rn_checkpoint_find(c, "blk.0.attn_q.bias")->dtype, RN_DTYPE_BF16);
    rn_checkpoint_close(c);
    unlink(out_path("o.safetensors"));
}

static void write_blocks(const char *path, const char *name, rn_dtype dtype) {
    static uint8_t zeros[2 * 64 * 256];
    uint64_t dims[] = {64, 256};
    rn_write_tensor t = {.name = rn_str_from(name), .dtype = dtype, .rank = 2, .dims = dims};
    rn_writer *writer;
    assert_ok(rn_writer_create(path, &t, 1, NULL, &writer));
    assert_ok(rn_writer_append(writer, zeros, size_of(dtype, 64 * 256)));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

// What becomes of a tensor of 64 x 256 that a GGUF file holds in blocks.
static one_row convert_blocks(const char *name, rn_dtype from, rn_dtype to, const char *out) {
    one_row wanted = {.name = name};
    rn_convert_options options = {.to = to, .self = &wanted, .row = keep_row};
    write_blocks(test_path("blocks.gguf"), name, from);
    assert_ok(convert(test_path("blocks.gguf"), out_path(out), options));
    unlink(out_path(out));
    return wanted;
}

static void quantising_makes_no_tensor_larger(void **state) {
    static const rn_dtype blocks[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q6_K, RN_DTYPE_Q4_K};
    static const char *const names[] = {"token_embd.weight", "blk.0.ffn_up.weight"};
    (void)state;
    for (size_t b = 0; b < 3; b++)
        for (size_t n = 0; n < 2; n++) {
            uint64_t before = size_of(blocks[b], 64 * 256);
            // int4 has scales of its own beside: 4.5 bits, as q4_k has; a few names' worth more.
            one_row row = convert_blocks(names[n], blocks[b], RN_DTYPE_INT4, "o.safetensors");
            assert_int_equal(row.row.to, RN_DTYPE_INT4);
            assert_true(row.row.bytes_out <= before + 16);
            row = convert_blocks(names[n], blocks[b], RN_DTYPE_Q8_0, "o.gguf");
            assert_int_equal(row.row.to, blocks[b]);
            assert_string_equal(row.row.left_alone, "as small already");
        }
    one_row row = convert_blocks("blk.0.w.weight", RN_DTYPE_Q8_0, RN_DTYPE_Q4_0, "o.gguf");
    assert_int_equal(row.row.to, RN_DTYPE_Q4_0);
    row = convert_blocks("token_embd.weight", RN_DTYPE_Q8_0, RN_DTYPE_Q4_0, "o.gguf");
    assert_int_equal(row.row.to, RN_DTYPE_Q8_0);
}

static void assert_same_file(const char *a, const char *b) {
    size_t bytes_a, bytes_b;
    char *text_a = test_read(a, &bytes_a), *text_b = test_read(b, &bytes_b);
    assert_int_equal(bytes_a, bytes_b);
    assert_memory_equal(text_a, text_b, bytes_a);
    free(text_a);
    free(text_b);
}

// Several chunks of blocks, some of them larger than a group of int4 or a block of nf4: what comes
// out is what comes out by way of f32.
static void blocks_are_quantised_as_their_values_are(void **state) {
    static const rn_dtype blocks[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q4_K, RN_DTYPE_Q6_K};
    static const rn_dtype to[] = {RN_DTYPE_INT8, RN_DTYPE_INT4, RN_DTYPE_NF4};
    uint64_t dims[] = {1501, 2048}, state_of_draw = 4;
    rn_write_tensor t = {RN_STR("w.weight"), RN_DTYPE_NONE, 2, dims, false};
    char direct[300];
    (void)state;
    snprintf(direct, sizeof direct, "%s", test_path("direct.safetensors"));
    for (size_t b = 0; b < 3; b++) {
        rn_writer *writer;
        uint64_t size = size_of(blocks[b], dims[0] * dims[1]);
        uint8_t *data = malloc(size);
        assert_non_null(data);
        for (uint64_t i = 0; i < size; i++)
            data[i] = (uint8_t)(draw(&state_of_draw) & 0x3b); // scales stay finite
        t.dtype = blocks[b];
        assert_ok(rn_writer_create(test_path("blocks.gguf"), &t, 1, NULL, &writer));
        assert_ok(rn_writer_append(writer, data, size));
        assert_ok(rn_writer_commit(writer));
        rn_writer_destroy(writer);
        free(data);
        assert_ok(convert(test_path("blocks.gguf"), test_path("wide.safetensors"),
                          (rn_convert_options){.to = RN_DTYPE_F32}));
        for (size_t i = 0; i < 3; i++) {
            rn_convert_options options = {.to = to[i]};
            assert_ok(convert(test_path("blocks.gguf"), direct, options));
            assert_ok(convert(test_path("wide.safetensors"), out_path("o.safetensors"), options));
            assert_same_file(direct, out_path("o.safetensors"));
        }
    }
    unlink(out_path("o.safetensors"));
}

// ---- models -------------------------------------------------------------------------------------

// A folder with tensors and a config.json, or NULL.
static const char *model_folder(const char *config) {
    static char folder[300];
    char path[400];
    float values[64] = {0};
    snprintf(folder, sizeof folder, "%s", test_path("model"));
    mkdir(folder, 0755);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    if (config) test_write(path, config, strlen(config));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_single(path, "model.embed_tokens.weight", RN_DTYPE_F32, 2, 32, values);
    return folder;
}

// A config.json that says it is a model's must be one: no file is made that only looks like a
// model.
static void a_model_that_is_none_does_not_become_a_gguf_model(void **state) {
    static const struct {
        const char *config, *words;
        rn_status status;
    } cases[] = {
        {"{\"a\": [1], \"model_type\": \"llama\"}", "num_hidden_layers", RN_CORRUPT},
        {"{\"architectures\": [\"LlamaForCausalLM\"]}", "model_type", RN_CORRUPT},
        {"{\"model_type\": \"lama\"}", "lama", RN_UNSUPPORTED},
    };
    rn_convert_options options = {.to = RN_DTYPE_F16};
    char file[400];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = model_folder(cases[i].config);
        snprintf(file, sizeof file, "%s/model.safetensors", folder);
        const char *inputs[] = {folder, file};
        for (size_t k = 0; k < 2; k++) {
            assert_fails(cases[i].status, convert(inputs[k], out_path("o.gguf"), options));
            assert_said(cases[i].words);
            assert_int_equal(count_files(out_folder), 0);
            assert_ok(convert(inputs[k], out_path("o.safetensors"), options));
            unlink(out_path("o.safetensors"));
        }
    }
    assert_non_null(strstr(rn_last_error()->hint, "llama")); // the nearest
}

static void tensors_without_a_model_go_into_gguf_and_that_is_said(void **state) {
    static const char *const configs[] = {NULL, "{\"_class_name\": \"AutoencoderKL\"}", "no JSON",
                                          "[\"model_type\"]"};
    rn_convert_options options = {0};
    rn_convert_result result;
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        assert_ok(rn_convert(model_folder(configs[i]), out_path("o.gguf"), &options, &result));
        assert_true(result.tensors_only);
        assert_ok(
            rn_convert(model_folder(configs[i]), out_path("o.safetensors"), &options, &result));
        assert_false(result.tensors_only);
        unlink(out_path("o.safetensors"));
        unlink(out_path("o.gguf"));
    }
}

// ---- containers --------------------------------------------------------------------------------

static const rn_metadata *find_metadata(const rn_checkpoint *c, const char *key) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(c); i++)
        if (rn_str_equal(rn_checkpoint_metadata(c, i)->key, rn_str_from(key)))
            return rn_checkpoint_metadata(c, i);
    return NULL;
}

static void assert_text(const rn_checkpoint *c, const char *key, const char *text) {
    const rn_metadata *m = find_metadata(c, key);
    if (!m) fail_msg("no metadata %s", key);
    assert_int_equal(m->kind, RN_METADATA_TEXT);
    if (!rn_str_equal(m->text, rn_str_from(text)))
        fail_msg("%s is '%.*s', not '%s'", key, RN_STR_ARG(m->text), text);
}

static void a_container_changes_and_nothing_else(void **state) {
    rn_convert_options options = {.to = RN_DTYPE_NONE};
    size_t seen = 0;
    (void)state;
    assert_ok(convert(model_path, out_path("o.gguf"), options));
    rn_checkpoint *c = must_open(out_path("o.gguf"));
    assert_int_equal(rn_checkpoint_count(c), SOURCES);
    for (size_t i = 0; i < SOURCES; i++)
        expect_plain(c, i, kept_dtype(&sources[i], true), &seen);
    assert_text(c, "format", "pt");
    assert_null(find_metadata(c, "general.file_type"));
    rn_checkpoint_close(c);
    assert_ok(convert(out_path("o.gguf"), out_path("back.safetensors"), options));
    c = must_open(out_path("back.safetensors"));
    assert_int_equal(rn_checkpoint_count(c), SOURCES);
    for (size_t i = 0; i < SOURCES; i++)
        expect_plain(c, i, kept_dtype(&sources[i], true), &seen);
    assert_text(c, "format", "pt");
    rn_checkpoint_close(c);
    unlink(out_path("o.gguf"));
    unlink(out_path("back.safetensors"));
}

#define PAIR(name, the_kind, type, field, the_value)                                               \
    {                                                                                              \
        .key = {name, sizeof name - 1}, .kind = the_kind, .gguf_type = type,                       \
        .value.field = the_value                                                                   \
    }

static const rn_metadata gguf_pairs[] = {
    {.key = {"general.name", 12},
     .kind = RN_METADATA_TEXT,
     .gguf_type = RN_GGUF_STRING,
     .text = {"tiny", 4}},
    PAIR("general.file_type", RN_METADATA_U64, RN_GGUF_U32, u64, 0),
    PAIR("general.alignment", RN_METADATA_U64, RN_GGUF_U32, u64, 32),
    PAIR("a.count", RN_METADATA_U64, RN_GGUF_U64, u64, UINT64_MAX),
    PAIR("a.offset", RN_METADATA_I64, RN_GGUF_I8, i64, -5),
    PAIR("a.epsilon", RN_METADATA_F64, RN_GGUF_F32, f64, (double)1e-5f),
    PAIR("a.precise", RN_METADATA_F64, RN_GGUF_F64, f64, 1.0 / 3),
    PAIR("a.flag", RN_METADATA_BOOL, RN_GGUF_BOOL, boolean, true),
    {.key = {"a.list", 6},
     .kind = RN_METADATA_ARRAY,
     .gguf_type = RN_GGUF_U16,
     .count = 2,
     .raw = {"\1\0\2\0", 4}},
};
enum { PAIRS = sizeof gguf_pairs / sizeof *gguf_pairs };

// q8_0 weights, an f32 vector, metadata of every kind.
static void write_gguf(const char *path, rn_dtype dtype) {
    const rn_write_tensor tensors[] = {
        {{"blk.0.w.weight", 14}, dtype, 2, (uint64_t[]){6, 256}, false},
        {{"blk.0.norm.weight", 17}, RN_DTYPE_F32, 1, (uint64_t[]){256}, false},
    };
    rn_writer_options options = {.metadata = gguf_pairs, .metadata_count = PAIRS};
    uint64_t size = size_of(dtype, 6 * 256), state = 9;
    uint8_t *data = malloc(size);
    rn_writer *writer;
    for (uint64_t i = 0; i < size; i++)
        data[i] = (uint8_t)(draw(&state) & 0x3b); // scales stay finite
    assert_ok(rn_writer_create(path, tensors, 2, &options, &writer));
    assert_ok(rn_writer_append(writer, data, size));
    assert_ok(rn_writer_append(writer, source_values[0], 1024));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
    free(data);
}

static void metadata_of_gguf_becomes_text_in_safetensors(void **state) {
    (void)state;
    write_gguf(test_path("q.gguf"), RN_DTYPE_Q8_0);
    assert_ok(convert(test_path("q.gguf"), out_path("o.safetensors"), (rn_convert_options){0}));
    rn_checkpoint *c = must_open(out_path("o.safetensors"));
    assert_text(c, "general.name", "tiny");
    assert_text(c, "general.file_type", "0");
    assert_text(c, "a.count", "18446744073709551615");
    assert_text(c, "a.offset", "-5");
    assert_text(c, "a.epsilon", "9.99999975e-06");
    assert_text(c, "a.flag", "true");
    assert_null(find_metadata(c, "a.list")); // vocabularies stay behind
    assert_true(strtod(find_metadata(c, "a.precise")->text.data, NULL) == 1.0 / 3);
    rn_checkpoint_close(c);
    unlink(out_path("o.safetensors"));
}

static void metadata_of_gguf_stays_in_gguf(void **state) {
    (void)state;
    write_gguf(test_path("q.gguf"), RN_DTYPE_Q8_0);
    assert_ok(
        convert(test_path("q.gguf"), out_path("o.gguf"), (rn_convert_options){.to = RN_DTYPE_F16}));
    rn_checkpoint *c = must_open(out_path("o.gguf"));
    for (size_t i = 0; i < PAIRS; i++) {
        const rn_metadata *m = rn_checkpoint_metadata(c, i), *old = &gguf_pairs[i];
        m = find_metadata(c, old->key.data);
        if (strcmp(old->key.data, "general.alignment") == 0) continue;
        assert_int_equal(m->gguf_type, old->gguf_type);
        assert_true(rn_str_equal(m->text, old->text) && rn_str_equal(m->raw, old->raw));
        bool is_type = strcmp(old->key.data, "general.file_type") == 0;
        assert_true(m->value.u64 == (is_type ? 1 : old->value.u64)); // mostly f16
    }
    rn_checkpoint_close(c);
    unlink(out_path("o.gguf"));
}

static void another_alignment_does_not_survive(void **state) {
    blob file = {0};
    uint32_t alignment = 64;
    (void)state;
    put_gguf_start(&file, 3, 2, 1);
    put_string(&file, "general.alignment");
    put_u32(&file, RN_GGUF_U32);
    put_u32(&file, alignment);
    put_gguf_tensor(&file, "a", 1, (uint64_t[]){3}, 0, 0);
    put_gguf_tensor(&file, "b", 1, (uint64_t[]){3}, 0, 64);
    put_padding(&file, 64);
    put_zeros(&file, 128);
    put_file(test_path("aligned.gguf"), &file);
    assert_ok(convert(test_path("aligned.gguf"), out_path("o.gguf"), (rn_convert_options){0}));
    rn_checkpoint *c = must_open(out_path("o.gguf"));
    assert_int_equal(rn_checkpoint_count(c), 2);
    assert_null(find_metadata(c, "general.alignment"));
    rn_checkpoint_close(c);
    unlink(out_path("o.gguf"));
}

// Values of blocks have no place in safetensors, so they are widened; in GGUF they are copied.
static void ggml_blocks_are_widened_or_copied(void **state) {
    static const rn_dtype dtypes[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q4_K, RN_DTYPE_IQ4_NL};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        write_gguf(test_path("q.gguf"), dtypes[i]);
        rn_checkpoint *in = must_open(test_path("q.gguf"));
        const rn_tensor_info *w = rn_checkpoint_tensor(in, 0);
        uint8_t *raw = malloc(w->bytes);
        float *values = malloc(w->elements * 4);
        size_t seen = 0;
        assert_ok(rn_checkpoint_read(in, w, 0, raw, w->bytes));
        assert_ok(rn_checkpoint_load(in, w, RN_DTYPE_F32, values, w->elements * 4));
        assert_ok(convert(test_path("q.gguf"), out_path("o.safetensors"), (rn_convert_options){0}));
        rn_checkpoint *out = must_open(out_path("o.safetensors"));
        expect_tensor(out, "blk.0.w.weight", "", RN_DTYPE_F32, w->dims, 2, values, &seen);
        rn_checkpoint_close(out);
        assert_ok(convert(test_path("q.gguf"), out_path("o.gguf"), (rn_convert_options){0}));
        out = must_open(out_path("o.gguf"));
        expect_tensor(out, "blk.0.w.weight", "", dtypes[i], w->dims, 2, raw, &seen);
        rn_checkpoint_close(out);
        rn_checkpoint_close(in);
        free(raw);
        free(values);
        unlink(out_path("o.gguf"));
        unlink(out_path("o.safetensors"));
    }
}

static void a_model_may_be_converted_onto_itself(void **state) {
    float values[128];
    uint16_t halves[128];
    size_t seen = 0;
    (void)state;
    fill_weights(values, 128, 5);
    write_single(out_path("o.safetensors"), "w", RN_DTYPE_F32, 2, 64, values);
    assert_ok(convert(out_path("o.safetensors"), out_path("o.safetensors"),
                      (rn_convert_options){.to = RN_DTYPE_F16}));
    assert_ok(rn_dtype_from_f32(RN_DTYPE_F16, values, halves, 128));
    rn_checkpoint *c = must_open(out_path("o.safetensors"));
    expect_tensor(c, "w", "", RN_DTYPE_F16, (uint64_t[]){2, 64}, 2, halves, &seen);
    rn_checkpoint_close(c);
    assert_int_equal(count_files(out_folder), 1);
    unlink(out_path("o.safetensors"));
}

static void shards_become_one_file(void **state) {
    static const char index[] =
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}";
    static const char *const headers[] = {"{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":"
                                          "\"F32\",\"shape\":[2,32],\"data_offsets\":[0,256]}}",
                                          "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":"
                                          "\"F32\",\"shape\":[2,32],\"data_offsets\":[0,256]}}"};
    static const char *const files[] = {"o.safetensors", "o.gguf"};
    char folder[300], path[400];
    (void)state;
    snprintf(folder, sizeof folder, "%s", test_path("shards"));
    mkdir(folder, 0755);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d.safetensors", folder, i + 1);
        write_safetensors(path, headers[i], strlen(headers[i]), source_values[i], 256);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    test_write(path, index, strlen(index));
    for (int i = 0; i < 2; i++) {
        size_t seen = 0;
        assert_ok(convert(folder, out_path(files[i]), (rn_convert_options){0}));
        rn_checkpoint *c = must_open(out_path(files[i]));
        expect_tensor(c, "a", "", RN_DTYPE_F32, (uint64_t[]){2, 32}, 2, source_values[0], &seen);
        expect_tensor(c, "b", "", RN_DTYPE_F32, (uint64_t[]){2, 32}, 2, source_values[1], &seen);
        assert_text(c, "format", "pt");
        assert_int_equal(rn_checkpoint_metadata_count(c), 1);
        rn_checkpoint_close(c);
        unlink(out_path(files[i]));
    }
}

// ---- refusals ----------------------------------------------------------------------------------

static void refuse(const char *in, const char *out, rn_convert_options options, rn_status expected,
                   const char *words) {
    rn_status s = convert(in, out_path(out), options);
    if (s != expected)
        fail_msg("%s (%s) instead of '%s'", rn_status_name(s), rn_last_error()->message, words);
    assert_said(words);
    assert_int_equal(count_files(out_folder), 0);
}

static void pairs_that_do_not_go_together_are_named(void **state) {
    static const rn_dtype not_in_gguf[] = {RN_DTYPE_INT8, RN_DTYPE_INT4, RN_DTYPE_NF4,
                                           RN_DTYPE_F8_E4M3, RN_DTYPE_F8_E5M2};
    static const rn_dtype never[] = {RN_DTYPE_I8,      RN_DTYPE_U8,    RN_DTYPE_I64, RN_DTYPE_BOOL,
                                     RN_DTYPE_IQ3_S,   RN_DTYPE_IQ2_S, RN_DTYPE_F4,  RN_DTYPE_C64,
                                     RN_DTYPE_F8_E8M0, RN_DTYPE_Q8_1};
    char words[64];
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        snprintf(words, sizeof words, "%s does not go into a GGUF file",
                 rn_dtype_get(not_in_gguf[i])->name);
        refuse(model_path, "o.gguf", (rn_convert_options){.to = not_in_gguf[i]}, RN_UNSUPPORTED,
               words);
        assert_true(rn_last_error()->hint[0] != '\0');
    }
    for (rn_dtype to = RN_DTYPE_Q4_0; to <= RN_DTYPE_Q8_0; to += RN_DTYPE_Q8_0 - RN_DTYPE_Q4_0) {
        snprintf(words, sizeof words, "%s does not go into a safetensors file",
                 rn_dtype_get(to)->name);
        refuse(model_path, "o.safetensors", (rn_convert_options){.to = to}, RN_UNSUPPORTED, words);
    }
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        snprintf(words, sizeof words, "does not convert to %s", rn_dtype_get(never[i])->name);
        refuse(model_path, "o.safetensors", (rn_convert_options){.to = never[i]}, RN_UNSUPPORTED,
               words);
        refuse(model_path, "o.gguf", (rn_convert_options){.to = never[i]}, RN_UNSUPPORTED, words);
    }
}

static void paths_that_make_no_sense_are_refused(void **state) {
    rn_convert_options options = {.to = RN_DTYPE_F16};
    (void)state;
    refuse(model_path, "o.bin", options, RN_INVALID, "the ending says no container");
    refuse(model_path, "no/such/", options, RN_NOT_FOUND, "out/no"); // a folder in none
    refuse(model_path, "no/o.gguf", options, RN_NOT_FOUND, "out/no");
    refuse(test_path("missing.safetensors"), "o.gguf", options, RN_NOT_FOUND,
           "missing.safetensors");
    test_write(test_path("bad.safetensors"), "bad", 3);
    refuse(test_path("bad.safetensors"), "o.gguf", options, RN_CORRUPT, "too short");
    options.thread_count = 5000;
    refuse(model_path, "o.gguf", options, RN_INVALID, "threads");
}

static void what_is_quantised_already_is_refused(void **state) {
    static const rn_dtype forms[] = {RN_DTYPE_INT8, RN_DTYPE_INT4, RN_DTYPE_NF4, RN_DTYPE_NF4_DQ};
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s", test_path("quantised.safetensors"));
    for (size_t i = 0; i < 4; i++) {
        assert_ok(convert(model_path, path, (rn_convert_options){.to = forms[i]}));
        refuse(path, "o.safetensors", (rn_convert_options){.to = RN_DTYPE_INT8}, RN_UNSUPPORTED,
               "quantised already");
        refuse(path, "o.safetensors", (rn_convert_options){.to = RN_DTYPE_F32}, RN_UNSUPPORTED,
               "quantised already");
        assert_ok(
            convert(path, out_path("o.safetensors"), (rn_convert_options){0})); // a copy is fine
        unlink(out_path("o.safetensors"));
    }
    refuse(path, "o.gguf", (rn_convert_options){0}, RN_UNSUPPORTED,
           "u8 has no place in a GGUF file");
}

static void codebook_kinds_are_read_and_copied(void **state) {
    (void)state;
    write_gguf(test_path("iq.gguf"), RN_DTYPE_IQ2_XS);
    assert_ok(convert(test_path("iq.gguf"), out_path("o.safetensors"),
                      (rn_convert_options){.to = RN_DTYPE_F16}));
    assert_ok(convert(test_path("iq.gguf"), out_path("o.gguf"), (rn_convert_options){0}));
    unlink(out_path("o.safetensors"));
    unlink(out_path("o.gguf"));
}

// A checkpoint of calibrated fp8 has such scales of its own.
static void names_that_would_collide_are_refused(void **state) {
    const rn_write_tensor tensors[] = {
        {{"x.weight", 8}, RN_DTYPE_F32, 2, (uint64_t[]){2, 32}, false},
        {{"x.input_scale", 13}, RN_DTYPE_F32, 0, NULL, false},
    };
    rn_writer *writer;
    (void)state;
    assert_ok(rn_writer_create(test_path("fp8.safetensors"), tensors, 2, NULL, &writer));
    assert_ok(rn_writer_append(writer, source_values[0], 256));
    assert_ok(rn_writer_append(writer, source_values[0], 4));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
    refuse(test_path("fp8.safetensors"), "o.safetensors", (rn_convert_options){.to = RN_DTYPE_INT8},
           RN_UNSUPPORTED, "x.input_scale");
}

// ---- budget ------------------------------------------------------------------------------------

#define OPENING_BYTES (8 * MiB) // may be taken, however small the budget

// The number in "the smallest budget that works is 12.00 MiB (12582912 bytes)".
static uint64_t named_budget(void) {
    const char *open = strrchr(rn_last_error()->hint, '(');
    assert_non_null(open);
    uint64_t named = strtoull(open + 1, NULL, 10);
    assert_int_equal(named, rn_last_refusal()->smallest_budget_bytes);
    return named;
}

static void check_smallest_budget(const char *in, const char *out, rn_dtype to, size_t threads) {
    if (TEST_THREADS_ONLY && threads == 1) return;
    rn_convert_options options = {.to = to, .thread_count = threads, .budget_bytes = 1 * MiB};
    assert_fails(RN_OVER_BUDGET, convert(in, out_path(out), options));
    uint64_t named = named_budget();
    options.budget_bytes = 1; // however little there is, the answer is the same
    assert_fails(RN_OVER_BUDGET, convert(in, out_path(out), options));
    assert_int_equal(named_budget(), named);
    // Headers that do not fit are refused while they are read: each time a little further.
    for (bool refused = true; refused && rn_last_refusal()->at_least;) {
        rn_ledger_reset_peaks();
        options.budget_bytes = named;
        refused = convert(in, out_path(out), options) == RN_OVER_BUDGET;
        assert_true(rn_ledger_total(RN_DEVICE_HOST).peak_bytes <= rn_max_u64(named, OPENING_BYTES));
        if (refused) assert_true(named_budget() > named);
        if (refused) named = named_budget();
    }
    unlink(out_path(out));
    options.budget_bytes = named - 3 * MiB / 2; // it is told in whole MiB
    assert_fails(RN_OVER_BUDGET, convert(in, out_path(out), options));
    if (!rn_last_refusal()->at_least) assert_int_equal(named_budget(), named);
    assert_int_equal(count_files(out_folder), 0);
    options.budget_bytes = named;
    rn_ledger_reset_peaks();
    assert_ok(convert(in, out_path(out), options));
    assert_true(rn_ledger_total(RN_DEVICE_HOST).peak_bytes <= named);
    rn_checkpoint_close(must_open(out_path(out)));
    unlink(out_path(out));
}

static void the_smallest_budget_that_is_named_works(void **state) {
    (void)state;
    for (size_t i = 0; i < TARGETS; i++)
        if (!is_left_to_other_builds(i))
            check_smallest_budget(model_path, targets[i].file, targets[i].to, 1 + i % 3);
}

// Here headers, names and lists of chunks are what needs the memory.
static void the_smallest_budget_counts_headers_too(void **state) {
    enum { COUNT = 8000 };
    blob header = {0}, data = {0};
    (void)state;
    put_text(&header, "{");
    for (int i = 0; i < COUNT; i++)
        put_format(&header,
                   "\"model.layers.%d.some.rather.long.name.of.a.projection.weight\":{\"dtype\":"
                   "\"F32\",\"shape\":[2,2],\"data_offsets\":[%d,%d]}%s",
                   i, i * 16, i * 16 + 16, i + 1 < COUNT ? "," : "}");
    put_zeros(&data, COUNT * 16);
    write_safetensors(test_path("many.safetensors"), header.data, header.count, data.data,
                      data.count);
    free(header.data);
    free(data.data);
    check_smallest_budget(test_path("many.safetensors"), "o.safetensors", RN_DTYPE_INT4, 1);
    check_smallest_budget(test_path("many.safetensors"), "o.safetensors", RN_DTYPE_F16, 2);
    unlink(test_path("many.safetensors"));
}

// Here the header's text does: there is much of it, and it is gone by the time of the conversion.
static void the_smallest_budget_counts_opening_too(void **state) {
    static const char entry[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,32],\"data_offsets\":[0,256]}";
    blob header = {0};
    (void)state;
    put_text(&header, entry);
    put_zeros(&header, 24 << 20);
    memset(header.data + strlen(entry), ' ', 24 << 20);
    put_text(&header, "}");
    write_safetensors(test_path("spaces.safetensors"), header.data, header.count, source_values[0],
                      256);
    free(header.data);
    check_smallest_budget(test_path("spaces.safetensors"), "o.safetensors", RN_DTYPE_INT8, 1);
    unlink(test_path("spaces.safetensors"));
}

static void a_budget_of_the_process_counts_as_well(void **state) {
    rn_convert_options options = {.to = RN_DTYPE_F16, .budget_bytes = 256 * MiB};
    rn_convert_result result;
    (void)state;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, 2 * MiB));
    assert_fails(RN_OVER_BUDGET,
                 rn_convert(model_path, out_path("o.safetensors"), &options, &result));
    uint64_t soft, hard;
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(hard, 2 * MiB);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    assert_int_equal(count_files(out_folder), 0);
    assert_int_equal(held_bytes(), 0);
}

// ---- stopping ----------------------------------------------------------------------------------

typedef struct stopper {
    volatile bool cancel;
    int steps, stop_at;
} stopper;

static void count_step(void *self, uint64_t done, uint64_t total) {
    stopper *s = self;
    (void)done, (void)total;
    if (++s->steps == s->stop_at) s->cancel = true;
}

static void cancelling_leaves_nothing(void **state) {
    (void)state;
    for (size_t i = 6; i < 8; i++)
        for (int stop_at = 0; stop_at < 30; stop_at += 3) {
            stopper s = {.cancel = stop_at == 0, .stop_at = stop_at};
            rn_convert_options options = {.to = targets[i].to,
                                          .budget_bytes = 32 * MiB,
                                          .self = &s,
                                          .progress = count_step,
                                          .cancel = &s.cancel};
            rn_status status = convert(model_path, out_path("o.safetensors"), options);
            assert_int_equal(status, s.cancel ? RN_CANCELLED : RN_OK);
            if (status == RN_OK) unlink(out_path("o.safetensors"));
            assert_int_equal(count_files(out_folder), 0);
        }
}

static void an_existing_output_survives_what_fails(void **state) {
    volatile bool cancel = true;
    rn_convert_options options = {.to = RN_DTYPE_F16, .cancel = &cancel};
    size_t size;
    (void)state;
    test_write(out_path("o.safetensors"), "precious", 8);
    assert_fails(RN_CANCELLED, convert(model_path, out_path("o.safetensors"), options));
    char *content = test_read(out_path("o.safetensors"), &size);
    assert_string_equal(content, "precious");
    free(content);
    unlink(out_path("o.safetensors"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_target_equals_the_tensor_converted_whole),
        cmocka_unit_test(files_do_not_depend_on_threads_or_budget),
        cmocka_unit_test(every_tensor_lies_on_a_boundary_of_its_elements),
        cmocka_unit_test(rows_say_what_became_of_each_tensor),
        cmocka_unit_test(errors_do_not_depend_on_threads_or_budget),
        cmocka_unit_test(broken_weights_show_in_the_errors),
        cmocka_unit_test(names_may_be_excluded_or_included),
        cmocka_unit_test(names_are_excluded_from_plain_types_as_well),
        cmocka_unit_test(norms_and_vectors_are_f32_in_gguf),
        cmocka_unit_test(quantising_makes_no_tensor_larger),
        cmocka_unit_test(blocks_are_quantised_as_their_values_are),
        cmocka_unit_test(a_model_that_is_none_does_not_become_a_gguf_model),
        cmocka_unit_test(tensors_without_a_model_go_into_gguf_and_that_is_said),
        cmocka_unit_test(quantising_reaches_no_embedding_or_norm_of_any_family),
        cmocka_unit_test(a_container_changes_and_nothing_else),
        cmocka_unit_test(metadata_of_gguf_becomes_text_in_safetensors),
        cmocka_unit_test(metadata_of_gguf_stays_in_gguf),
        cmocka_unit_test(another_alignment_does_not_survive),
        cmocka_unit_test(ggml_blocks_are_widened_or_copied),
        cmocka_unit_test(a_model_may_be_converted_onto_itself),
        cmocka_unit_test(shards_become_one_file),
        cmocka_unit_test(pairs_that_do_not_go_together_are_named),
        cmocka_unit_test(paths_that_make_no_sense_are_refused),
        cmocka_unit_test(what_is_quantised_already_is_refused),
        cmocka_unit_test(codebook_kinds_are_read_and_copied),
        cmocka_unit_test(names_that_would_collide_are_refused),
        cmocka_unit_test(the_smallest_budget_that_is_named_works),
        cmocka_unit_test(the_smallest_budget_counts_headers_too),
        cmocka_unit_test(the_smallest_budget_counts_opening_too),
        cmocka_unit_test(a_budget_of_the_process_counts_as_well),
        cmocka_unit_test(cancelling_leaves_nothing),
        cmocka_unit_test(an_existing_output_survives_what_fails),
    };
    return cmocka_run_group_tests(tests, make_model, free_model);
}
