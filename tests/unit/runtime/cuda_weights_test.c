// labels: threads
// cuda_weights_test.c — quantised weights on their way from a file to a GPU's memory, and which
// kernels read them there. Over a driver of our own: nothing is computed.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/cuda.h"
#include "graph/plain_matrix.h"
#include "runtime/session.h"
#include "tensor/tiles.h"
#include "text_run.h"
#include "tiny_kinds.h"

#include <ration/cuda.h>

#include <math.h>

enum { ROWS = 40, COLS_MOST = 1024 };

static fake_cuda *fake;
static const rn_cuda_image image = {"test", "an image"};
static const rn_cuda_images with_kernels = {&image, 1};
static rn_device *device;
static char launched[1 << 16]; // names of products, with a space behind each
static tiny_text tiny;

static void on_launch(void *self, const fake_launch *launch) {
    size_t used = strlen(launched);
    (void)self;
    if (strncmp(launch->name, "rn_product", 10) == 0 || strncmp(launch->name, "rn_matmul", 9) == 0)
        snprintf(launched + used, sizeof launched - used, "%s ", launch->name);
}

static int start(void **state) {
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    if (!fake) return -1;
    rn_cuda_images_replace(&with_kernels);
    fake->on_launch = on_launch;
    return rn_cuda_device_create(0, 1, &device) == RN_OK ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    rn_device_destroy(device);
    return 0;
}

// ---- a weight -----------------------------------------------------------------------------------

// As the file has it, in the plain form; the caller frees.
static uint8_t *read_plain(const rn_value_info *info) {
    static const char *const suffixes[][RN_COMPONENT_COUNT] = {
        [RN_DTYPE_INT8] = {"._data", "._scale"},
        [RN_DTYPE_INT4] = {"._data._data", "._scale", "._shift"},
        [RN_DTYPE_NF4] = {"", ".absmax"},
        [RN_DTYPE_COUNT] = {""},
    };
    rn_plain_components parts;
    char name[128];
    assert_true(
        rn_plain_components_of(info->dtype, info->shape.dims[0], info->shape.dims[1], &parts));
    uint8_t *plain = malloc(parts.total_bytes);
    for (int part = 0; part < RN_COMPONENT_COUNT; part++) {
        if (!parts.bytes[part]) continue;
        const char *suffix = suffixes[info->dtype][part];
        snprintf(name, sizeof name, "%s%s", info->name, suffix ? suffix : "");
        const rn_tensor_info *t = rn_checkpoint_find(tiny.checkpoint, name);
        assert_non_null(t);
        assert_int_equal(t->bytes, parts.bytes[part]);
        assert_ok(rn_checkpoint_read(tiny.checkpoint, t, 0, plain + parts.offset[part], t->bytes));
    }
    return plain;
}

static float largest(const float *values, uint64_t count) {
    float most = 0;
    for (uint64_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(values[i]));
    return most;
}

// Scale, offset and what they make are rounded to 11 bits each: 4 * 2^-11 of the largest in all.
static void expect_values(const rn_value_info *info, const uint8_t *tiles) {
    uint64_t rows = info->shape.dims[0], cols = info->shape.dims[1];
    uint8_t *plain = read_plain(info);
    rn_tensor tensor = {plain, info->dtype, RN_LAYOUT_PLAIN, info->shape};
    rn_plain_matrix matrix;
    float scratch[COLS_MOST];
    assert_ok(rn_plain_matrix_of(&tensor, &matrix));
    for (uint64_t r = 0; r < rows; r++) {
        const float *row = rn_plain_row(&matrix, r, scratch);
        float most = info->dtype == RN_DTYPE_INT8 ? 0 : largest(row, cols) * 0x1p-9f;
        for (uint64_t c = 0; c < cols; c++) {
            float is = rn_tiles_at(tiles, info->dtype, rows, cols, r, c);
            if (!(fabsf(is - row[c]) <= most))
                fail_msg("%s (%llu, %llu): %g instead of %g", info->name, (unsigned long long)r,
                         (unsigned long long)c, (double)is, (double)row[c]);
        }
    }
    free(plain);
}

// ---- a model ------------------------------------------------------------------------------------

static bool is_product(const rn_value_info *info) {
    return info->role == RN_ROLE_WEIGHT && info->shape.rank == 2 && !strstr(info->name, "embed");
}

// Every weight of a product is in tiles, as large as they are, with the file's values. Returns how
// many there are.
static uint32_t expect_weights(const text_run *run) {
    const rn_plan *plan = run->plan;
    uint64_t bytes = 0;
    uint32_t count = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++) {
        const rn_value_info *info = rn_graph_value(plan->graph, v);
        const rn_plan_place *place = &plan->places[v];
        if (info->role == RN_ROLE_WEIGHT) bytes += place->bytes;
        if (!is_product(info)) continue;
        uint64_t tiles = 0;
        assert_int_equal(place->layout, RN_LAYOUT_TILES);
        assert_true(rn_tiles_bytes(info->dtype, info->shape.dims[0], info->shape.dims[1], &tiles));
        assert_int_equal(place->bytes, tiles);
        expect_values(info,
                      run->session->base + plan->buffers[place->buffer].offset + place->offset);
        count++;
    }
    uint64_t planned = rn_plan_get_summary(plan)->weight_bytes;
    assert_in_range(planned, bytes, bytes + 64 * 32); // places of 64 bytes
    return count;
}

// The forms of the products that were launched: "i8", "a4 f16", in the order of their first ones.
static const char *forms_of(char *names, char out[64]) {
    out[0] = 0;
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        static const char *const forms[] = {"_f16", "_bf16", "_q8", "_i8", "_q4", "_a4", "_n4",
                                            "_q6",  "_a5",   "_i4", "_f4", "_q3", "_a2"};
        const char *form = strstr(name, "rn_matmul") ? "_plain" : NULL;
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            if (strstr(name, forms[i])) form = forms[i];
        if (form && !strstr(out, form + 1))
            snprintf(out + strlen(out), 64 - strlen(out), "%s%s", out[0] ? " " : "", form + 1);
    }
    return out;
}

static void expect_forms(text_run *run, uint32_t rows, const char *forms) {
    int32_t tokens[ROWS] = {0};
    char got[64];
    float *logits = malloc((size_t)ROWS * run->vocab * sizeof *logits);
    launched[0] = 0;
    text_run_logits(run, tokens, rows, logits);
    assert_string_equal(forms_of(launched, got), forms);
    free(logits);
}

static void check_kind(const tiny_kind *kind, const char *forms) {
    rn_text_options text = tiny_kind_options(ROWS);
    tiny_kind_open(kind, test_path(kind->file), &tiny);
    text_run *run = text_run_open_made(device, &tiny.maker, &text, 0);
    expect_forms(run, ROWS, forms);
    expect_forms(run, 3, forms);
    expect_forms(run, 1, forms);
    assert_int_equal(expect_weights(run), 7 * tiny.layers + 1);
    text_run_close(run);
    tiny_text_close(&tiny);
}

// No weight is widened.
static void each_kind_of_weights_has_tiles_and_kernels_of_its_form(void **state) {
    (void)state;
    static const char *const forms[RN_DTYPE_COUNT] = {
        [RN_DTYPE_INT8] = "i8", [RN_DTYPE_INT4] = "a4", [RN_DTYPE_NF4] = "n4",
        [RN_DTYPE_Q8_0] = "q8", [RN_DTYPE_Q4_0] = "q4", [RN_DTYPE_Q4_K] = "a4 q6",
    };
    for (size_t i = 0; i < TINY_KINDS; i++)
        check_kind(&tiny_kinds[i], forms[tiny_kinds[i].weights_as]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_weights_has_tiles_and_kernels_of_its_form),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
