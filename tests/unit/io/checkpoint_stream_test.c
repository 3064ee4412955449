// labels: threads
// checkpoint_stream_test.c — all tensors in file order, in pieces, as they are or converted, within
// a buffer.
#include "model_files.h"

#include "base/fault.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- a model of two shards ---------------------------------------------------------------------

typedef struct spec {
    const char *name;
    const char *dtype; // safetensors' name
    uint64_t elements;
    int shard;
} spec;

// Large ones, small ones, an empty one, odd sizes: begin and end of most lie inside a page.
static const spec specs[] = {
    {"a.bf16", "BF16", 300001, 0}, {"b.empty", "F32", 0, 0},    {"c.u8", "U8", 7, 0},
    {"d.f32", "F32", 70003, 0},    {"e.i64", "I64", 1, 0},      {"f.f16", "F16", 4096, 1},
    {"g.f8", "F8_E4M3", 33, 1},    {"h.f64", "F64", 100000, 1}, {"i.bool", "BOOL", 1, 1},
    {"j.f32", "F32", 131072, 1},   {"k.f32", "F32", 1, 1},
};
enum { SPECS = sizeof specs / sizeof *specs };

static char folder[256];

static void make_shard(int shard) {
    blob header = {0}, data = {0};
    uint64_t state = 77 + (uint64_t)shard;
    char path[320];
    for (int i = 0; i < SPECS; i++) {
        uint64_t count;
        if (specs[i].shard != shard) continue;
        rn_dtype dtype =
            rn_dtype_from_safetensors((rn_str){specs[i].dtype, strlen(specs[i].dtype)});
        assert_true(rn_dtype_bytes(dtype, specs[i].elements, &count));
        put_format(&header,
                   "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu],\"data_offsets\":[%zu,%zu]}",
                   header.count ? ',' : '{', specs[i].name, specs[i].dtype,
                   (unsigned long long)specs[i].elements, data.count, data.count + count);
        for (uint64_t k = 0; k < count; k++)
            put(&data, &(uint8_t){(uint8_t)draw(&state)}, 1);
    }
    put_text(&header, "}");
    snprintf(path, sizeof path, "%s/s%d.safetensors", folder, shard);
    write_safetensors(path, header.data, header.count, data.data, data.count);
    free(header.data);
    free(data.data);
}

static int make_model(void **state) {
    blob index = {0};
    char path[320];
    (void)state;
    snprintf(folder, sizeof folder, "%s/model", test_folder());
    mkdir(folder, 0755);
    for (int i = 0; i < SPECS; i++)
        put_format(&index, "%s\"%s\":\"s%d.safetensors\"", i ? "," : "{\"weight_map\":{",
                   specs[i].name, specs[i].shard);
    put_text(&index, "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    put_file(path, &index);
    make_shard(0);
    make_shard(1);
    return 0;
}

static rn_checkpoint *open_model(void) {
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(folder, &c));
    return c;
}

// ---- collecting a stream -----------------------------------------------------------------------

typedef struct collector {
    const rn_tensor_info *order[SPECS * 2]; // tensors as they began
    size_t count;
    uint64_t next_offset; // where the current tensor goes on
    blob data;            // everything, one tensor after the other
    size_t pieces, largest;
    size_t fail_at;       // the piece that fails; 0: none
    _Atomic bool *cancel; // set at piece fail_at
    uint64_t most_held;
} collector;

static rn_status collect(void *self, const rn_tensor_info *tensor, uint64_t offset,
                         const void *data, size_t count) {
    collector *to = self;
    to->pieces++;
    if (offset == 0) {
        to->order[to->count++] = tensor;
        to->next_offset = 0;
    }
    assert_ptr_equal(to->order[to->count - 1], tensor);
    assert_int_equal(offset, to->next_offset);
    assert_true(count > 0);
    to->next_offset += count;
    put(&to->data, data, count);
    if (count > to->largest) to->largest = count;
    if (held_bytes() > to->most_held) to->most_held = held_bytes();
    if (to->pieces != to->fail_at) return RN_OK;
    if (!to->cancel) return rn_fail(RN_UNSUPPORTED, "enough");
    atomic_store(to->cancel, true);
    return RN_OK;
}

// What the stream of these tensors must be: each of them, loaded.
static blob load_each(const rn_checkpoint *c, const rn_tensor_info *const *tensors, size_t count,
                      rn_dtype dtype) {
    blob all = {0};
    for (size_t i = 0; i < count; i++) {
        const rn_tensor_info *t = tensors[i];
        rn_dtype to = dtype == RN_DTYPE_NONE ? t->dtype : dtype;
        uint64_t size;
        assert_true(rn_dtype_bytes(to, t->elements, &size));
        void *one = malloc(size + 1);
        assert_ok(rn_checkpoint_load(c, t, to, one, size));
        put(&all, one, size);
        free(one);
    }
    return all;
}

static void check_stream(const rn_checkpoint *c, const rn_stream_options *options,
                         const rn_tensor_info *const *expected_order, size_t expected_count) {
    collector got = {0};
    rn_dtype dtype = options ? options->dtype : RN_DTYPE_NONE;
    assert_ok(rn_checkpoint_stream(c, options, collect, &got));
    blob expected = load_each(c, expected_order, expected_count, dtype);
    assert_int_equal(got.data.count, expected.count);
    if (expected.count) assert_memory_equal(got.data.data, expected.data, expected.count);
    for (size_t i = 0, k = 0; i < expected_count; i++)
        if (expected_order[i]->bytes) assert_ptr_equal(got.order[k++], expected_order[i]);
    free(expected.data);
    free(got.data.data);
}

static void all_tensors(const rn_checkpoint *c, const rn_tensor_info **out) {
    for (size_t i = 0; i < SPECS; i++)
        out[i] = rn_checkpoint_tensor(c, i);
}

// ---- order and bytes ---------------------------------------------------------------------------

static void a_stream_has_every_byte_in_file_order(void **state) {
    static const size_t buffers[] = {0, 1, 4096, 256 << 10, (256 << 10) + 1, 1 << 20, 64 << 20};
    rn_checkpoint *c = open_model();
    const rn_tensor_info *all[SPECS];
    (void)state;
    all_tensors(c, all);
    check_stream(c, NULL, all, SPECS);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        check_stream(c, &(rn_stream_options){.buffer_bytes = buffers[i]}, all, SPECS);
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

static void a_stream_converts_on_the_way(void **state) {
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_BF16, RN_DTYPE_F64, RN_DTYPE_I8};
    rn_checkpoint *c = open_model();
    const rn_tensor_info *all[SPECS];
    (void)state;
    all_tensors(c, all);
    for (size_t i = 0; i < 4; i++)
        for (size_t buffer = 1; buffer <= 16 << 20; buffer *= 64)
            check_stream(c, &(rn_stream_options){.dtype = dtypes[i], .buffer_bytes = buffer}, all,
                         SPECS);
    rn_checkpoint_close(c);
}

static void a_stream_of_some_tensors_is_in_file_order_too(void **state) {
    rn_checkpoint *c = open_model();
    const rn_tensor_info *wanted[] = {rn_checkpoint_find(c, "j.f32"), rn_checkpoint_find(c, "c.u8"),
                                      rn_checkpoint_find(c, "h.f64"),
                                      rn_checkpoint_find(c, "b.empty"),
                                      rn_checkpoint_find(c, "a.bf16")};
    const rn_tensor_info *order[] = {wanted[4], wanted[1], wanted[2], wanted[0]};
    (void)state;
    for (size_t buffer = 1; buffer <= 1 << 20; buffer *= 1024)
        check_stream(
            c, &(rn_stream_options){.tensors = wanted, .tensor_count = 5, .buffer_bytes = buffer},
            order, 4);
    check_stream(c, &(rn_stream_options){.tensors = wanted, .tensor_count = 0}, order, 0);
    check_stream(c, &(rn_stream_options){.tensors = &wanted[3], .tensor_count = 1}, order, 0);
    rn_checkpoint_close(c);
}

static void an_empty_model_streams_nothing(void **state) {
    rn_checkpoint *c;
    collector got = {0};
    (void)state;
    write_safetensors(test_path("empty.safetensors"), "{}", 2, NULL, 0);
    assert_ok(rn_checkpoint_open(test_path("empty.safetensors"), &c));
    assert_ok(rn_checkpoint_stream(c, NULL, collect, &got));
    assert_int_equal(got.pieces, 0);
    rn_checkpoint_close(c);
}

// Blocks of 292 bytes for 256 elements are the largest that there are.
static void ggml_blocks_are_never_cut(void **state) {
    static const rn_dtype dtypes[] = {RN_DTYPE_Q8_K, RN_DTYPE_Q4_0, RN_DTYPE_Q1_0, RN_DTYPE_Q6_K};
    const uint64_t elements = 600 * 256;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        blob file = {0};
        rn_checkpoint *c;
        uint64_t count, seed = i;
        assert_true(rn_dtype_bytes(dtypes[i], elements, &count));
        put_gguf_start(&file, 3, 1, 0);
        put_gguf_tensor(&file, "q", 1, &elements, (uint32_t)rn_dtype_get(dtypes[i])->ggml, 0);
        put_padding(&file, 32);
        for (uint64_t k = 0; k < count; k++)
            put(&file, &(uint8_t){(uint8_t)draw(&seed)}, 1);
        put_padding(&file, 32);
        put_file(test_path("q.gguf"), &file);
        assert_ok(rn_checkpoint_open(test_path("q.gguf"), &c));
        const rn_tensor_info *tensor = rn_checkpoint_tensor(c, 0);
        for (size_t buffer = 1; buffer <= 1 << 20; buffer *= 1024) {
            rn_stream_options options = {.buffer_bytes = buffer};
            check_stream(c, &options, &tensor, 1);
            options.dtype = RN_DTYPE_F32;
            check_stream(c, &options, &tensor, 1);
            options.dtype = RN_DTYPE_Q8_0;
            check_stream(c, &options, &tensor, 1);
        }
        rn_checkpoint_close(c);
    }
}

// ---- memory ------------------------------------------------------------------------------------

// f8 and u8 grow fourfold and eightfold: what is converted counts as well.
static void a_stream_holds_no_more_than_its_buffer(void **state) {
    static const size_t buffers[] = {256 << 10, 1 << 20, 8 << 20};
    const uint64_t bookkeeping = 64 << 10;
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (rn_dtype dtype = RN_DTYPE_NONE; dtype <= RN_DTYPE_F64; dtype++) {
            rn_checkpoint *c = open_model();
            collector got = {0};
            uint64_t before = held_bytes();
            rn_stream_options options = {.dtype = dtype, .buffer_bytes = buffers[i]};
            assert_ok(rn_checkpoint_stream(c, &options, collect, &got));
            if (got.most_held > before + buffers[i] + bookkeeping)
                fail_msg("%llu bytes with a buffer of %zu",
                         (unsigned long long)(got.most_held - before), buffers[i]);
            assert_int_equal(held_bytes(), before);
            free(got.data.data);
            rn_checkpoint_close(c);
        }
}

static void a_stream_is_held_against_the_budget(void **state) {
    rn_checkpoint *c = open_model();
    collector got = {0};
    rn_stream_options options = {.buffer_bytes = 8 << 20};
    (void)state;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held_bytes() + (4 << 20)));
    assert_fails(RN_OVER_BUDGET, rn_checkpoint_stream(c, &options, collect, &got));
    assert_int_equal(got.pieces, 0);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

// ---- ending early ------------------------------------------------------------------------------

static void the_callbacks_failure_ends_the_stream(void **state) {
    rn_checkpoint *c = open_model();
    (void)state;
    for (size_t n = 1; n <= 4; n++)
        for (rn_dtype dtype = RN_DTYPE_NONE; dtype <= RN_DTYPE_F32; dtype += RN_DTYPE_F32) {
            collector got = {.fail_at = n};
            rn_stream_options options = {.dtype = dtype, .buffer_bytes = 1};
            assert_fails(RN_UNSUPPORTED, rn_checkpoint_stream(c, &options, collect, &got));
            assert_string_equal(rn_last_error()->message, "enough");
            assert_int_equal(got.pieces, n);
            free(got.data.data);
        }
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

static void a_stream_stops_when_it_is_cancelled(void **state) {
    rn_checkpoint *c = open_model();
    (void)state;
    for (size_t n = 0; n < 4; n++) {
        _Atomic bool cancel = n == 0; // before it begins, or at piece n
        collector got = {.fail_at = n, .cancel = &cancel};
        rn_stream_options options = {.buffer_bytes = 1, .cancel = (const volatile bool *)&cancel};
        assert_fails(RN_CANCELLED, rn_checkpoint_stream(c, &options, collect, &got));
        assert_int_equal(got.pieces, n);
        free(got.data.data);
    }
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

static void types_that_cannot_be_made_are_refused(void **state) {
    static const rn_dtype dtypes[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q4_K, RN_DTYPE_INT4, RN_DTYPE_F4,
                                      RN_DTYPE_COUNT};
    rn_checkpoint *c = open_model();
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        collector got = {0};
        rn_stream_options options = {.dtype = dtypes[i], .buffer_bytes = 1};
        rn_status s = rn_checkpoint_stream(c, &options, collect, &got);
        assert_true(s == RN_INVALID || s == RN_UNSUPPORTED); // whole blocks are asked for first
        free(got.data.data);
    }
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

// ---- files that change -------------------------------------------------------------------------

typedef struct cutter {
    size_t pieces;
    off_t keep;
} cutter;

static rn_status cut_file(void *self, const rn_tensor_info *tensor, uint64_t offset,
                          const void *data, size_t count) {
    cutter *c = self;
    (void)tensor, (void)offset, (void)data, (void)count;
    if (c->pieces++ == 0) assert_int_equal(truncate(test_path("cut.safetensors"), c->keep), 0);
    return RN_OK;
}

static void write_cut_sample(size_t count) {
    char header[128];
    int length = snprintf(header, sizeof header,
                          "{\"t\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                          count, count);
    write_safetensors(test_path("cut.safetensors"), header, (size_t)length, NULL, count);
}

static void a_file_cut_short_meanwhile_fails_the_stream(void **state) {
    static const off_t keeps[] = {0, 100, 4096, 1000000, (4 << 20) - 1};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        rn_checkpoint *c;
        cutter cut = {.keep = keeps[i]};
        rn_stream_options options = {.buffer_bytes = 256 << 10};
        write_cut_sample(4 << 20);
        assert_ok(rn_checkpoint_open(test_path("cut.safetensors"), &c));
        assert_fails(RN_IO, rn_checkpoint_stream(c, &options, cut_file, &cut));
        assert_string_equal(rn_last_error()->path, test_path("cut.safetensors"));
        rn_checkpoint_close(c);
    }
    assert_int_equal(held_bytes(), 0);
}

static void a_file_cut_short_since_it_was_opened_is_refused(void **state) {
    rn_checkpoint *c;
    collector got = {0};
    (void)state;
    write_cut_sample(100000);
    assert_ok(rn_checkpoint_open(test_path("cut.safetensors"), &c));
    assert_int_equal(truncate(test_path("cut.safetensors"), 50000), 0);
    rn_status s = rn_checkpoint_stream(c, NULL, collect, &got);
    assert_true(s == RN_CORRUPT || s == RN_IO);
    assert_int_equal(got.pieces, 0);
    rn_checkpoint_close(c);
}

static void a_file_replaced_since_it_was_opened_is_read_as_it_was(void **state) {
    rn_checkpoint *c;
    collector got = {0};
    (void)state;
    write_cut_sample(100000);
    assert_ok(rn_checkpoint_open(test_path("cut.safetensors"), &c));
    assert_int_equal(rename(test_path("cut.safetensors"), test_path("old")), 0);
    write_cut_sample(50000); // what has the name by now is too short for the tensor
    assert_ok(rn_checkpoint_stream(c, NULL, collect, &got));
    assert_int_equal(got.data.count, 100000);
    free(got.data.data);
    rn_checkpoint_close(c);
}

static void a_file_changed_since_it_was_opened_is_refused(void **state) {
    rn_checkpoint *c;
    collector got = {0};
    (void)state;
    write_cut_sample(100000);
    assert_ok(rn_checkpoint_open(test_path("cut.safetensors"), &c));
    int fd = open(test_path("cut.safetensors"), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 90000), 1); // the same size
    close(fd);
    assert_fails(RN_IO, rn_checkpoint_stream(c, NULL, collect, &got));
    assert_said("was changed");
    assert_int_equal(got.pieces, 0);
    rn_checkpoint_close(c);
}

static void a_failing_read_fails_the_stream(void **state) {
    rn_checkpoint *c = open_model();
    bool fired = true;
    (void)state;
    for (uint64_t n = 1; fired; n++) {
        collector got = {0};
        rn_stream_options options = {.buffer_bytes = 1};
        rn_fault_arm(RN_FAULT_READ, n);
        rn_status s = rn_checkpoint_stream(c, &options, collect, &got);
        fired = rn_fault_fired(RN_FAULT_READ);
        assert_int_equal(s, fired ? RN_IO : RN_OK);
        if (fired) assert_non_null(strstr(rn_last_error()->path, ".safetensors"));
        free(got.data.data);
    }
    rn_fault_arm(RN_FAULT_READ, 0);
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_every_byte_in_file_order),
        cmocka_unit_test(a_stream_converts_on_the_way),
        cmocka_unit_test(a_stream_of_some_tensors_is_in_file_order_too),
        cmocka_unit_test(an_empty_model_streams_nothing),
        cmocka_unit_test(ggml_blocks_are_never_cut),
        cmocka_unit_test(a_stream_holds_no_more_than_its_buffer),
        cmocka_unit_test(a_stream_is_held_against_the_budget),
        cmocka_unit_test(the_callbacks_failure_ends_the_stream),
        cmocka_unit_test(a_stream_stops_when_it_is_cancelled),
        cmocka_unit_test(types_that_cannot_be_made_are_refused),
        cmocka_unit_test(a_file_cut_short_meanwhile_fails_the_stream),
        cmocka_unit_test(a_file_cut_short_since_it_was_opened_is_refused),
        cmocka_unit_test(a_file_replaced_since_it_was_opened_is_read_as_it_was),
        cmocka_unit_test(a_file_changed_since_it_was_opened_is_refused),
        cmocka_unit_test(a_failing_read_fails_the_stream),
    };
    return cmocka_run_group_tests(tests, make_model, NULL);
}
