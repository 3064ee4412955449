// labels: threads
// writer_test.c — files written are read back whole, appear only at the commit, and refuse what
// they cannot hold.
#include "model_files.h"

#include <ration/writer.h>

#include "base/str.h"
#include "io/gguf.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const endings[] = {"out.safetensors", "out.gguf"};

// ---- tensors with known bytes ------------------------------------------------------------------

// RN_STR for tables.
#define RN_STR_INIT(literal)                                                                       \
    { (literal), sizeof(literal) - 1 }

#define DIMS(...) ((const uint64_t[]){__VA_ARGS__})

// Types that both containers have; random ones of both widths between streamed ones.
static const rn_write_tensor mixed[] = {
    {RN_STR_INIT("a"), RN_DTYPE_F32, 2, DIMS(300, 1000), false},
    {RN_STR_INIT("scale.a"), RN_DTYPE_F32, 1, DIMS(300), true},
    {RN_STR_INIT("b"), RN_DTYPE_BF16, 3, DIMS(5, 7, 11), false},
    {RN_STR_INIT("flags"), RN_DTYPE_I8, 1, DIMS(13), true},
    {RN_STR_INIT("empty"), RN_DTYPE_F32, 2, DIMS(0, 4), false},
    {RN_STR_INIT("random empty"), RN_DTYPE_F32, 1, DIMS(0), true},
    {RN_STR_INIT("scalar"), RN_DTYPE_F64, 0, NULL, false},
    {RN_STR_INIT("c"), RN_DTYPE_F16, 1, DIMS(1 << 20), false},
    {RN_STR_INIT("d"), RN_DTYPE_I8, 4, DIMS(1, 2, 3, 4), false},
    {RN_STR_INIT("scale.b"), RN_DTYPE_I64, 1, DIMS(3), true},
    {RN_STR_INIT("random scalar"), RN_DTYPE_F32, 0, NULL, true},
};
enum { MIXED = sizeof mixed / sizeof *mixed };

static uint64_t bytes_of(const rn_write_tensor *t) {
    uint64_t elements = 1, size = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        elements *= t->dims[i];
    assert_true(rn_dtype_bytes(t->dtype, elements, &size));
    return size;
}

// The bytes that tensor number `index` is made of.
static uint8_t *content(const rn_write_tensor *t, size_t index) {
    uint64_t size = bytes_of(t), state = index * 31 + 5;
    uint8_t *data = malloc(size + 1);
    for (uint64_t i = 0; i < size; i++)
        data[i] = (uint8_t)draw(&state);
    return data;
}

// In pieces of at most `step` bytes.
static void append_all(rn_writer *writer, const rn_write_tensor *t, size_t index, size_t step) {
    uint8_t *data = content(t, index);
    uint64_t size = bytes_of(t);
    for (uint64_t at = 0; at < size; at += step)
        assert_ok(rn_writer_append(writer, data + at, size - at < step ? size - at : step));
    free(data);
}

// Back to front, so that nothing depends on order.
static void put_all(rn_writer *writer, const rn_write_tensor *t, size_t index, size_t step) {
    uint8_t *data = content(t, index);
    for (uint64_t end = bytes_of(t); end > 0;) {
        uint64_t begin = end > step ? end - step : 0;
        assert_ok(rn_writer_put(writer, index, begin, data + begin, end - begin));
        end = begin;
    }
    free(data);
}

static void write_model(const char *path, const rn_write_tensor *tensors, size_t count,
                        const rn_writer_options *options, size_t step) {
    rn_writer *writer;
    struct stat info;
    assert_ok(rn_writer_create(path, tensors, count, options, &writer));
    for (size_t i = 0; i < count; i++)
        if (!tensors[i].random) append_all(writer, &tensors[i], i, step);
    for (size_t i = count; i > 0; i--)
        if (tensors[i - 1].random) put_all(writer, &tensors[i - 1], i - 1, step);
    assert_int_not_equal(stat(path, &info), 0); // nothing is there before the commit
    assert_ok(rn_writer_commit(writer));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, rn_writer_file_bytes(writer));
    rn_writer_destroy(writer);
    assert_int_equal(held_bytes(), 0);
    assert_int_equal(count_files(test_own_folder), 1);
}

static void check_tensor(const rn_checkpoint *c, const rn_write_tensor *t, size_t index) {
    char name[128];
    snprintf(name, sizeof name, "%.*s", RN_STR_ARG(t->name));
    const rn_tensor_info *info = rn_checkpoint_find(c, name);
    assert_non_null(info);
    assert_int_equal(info->dtype, t->dtype);
    assert_int_equal(info->rank, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        assert_int_equal(info->dims[i], t->dims[i]);
    uint8_t *expected = content(t, index), *got = malloc(info->bytes + 1);
    assert_ok(rn_checkpoint_read(c, info, 0, got, info->bytes));
    if (info->bytes) assert_memory_equal(got, expected, info->bytes);
    free(expected);
    free(got);
}

static void read_model(const char *path, const rn_write_tensor *tensors, size_t count) {
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(path, &c));
    assert_int_equal(rn_checkpoint_count(c), count);
    for (size_t i = 0; i < count; i++)
        check_tensor(c, &tensors[i], i);
    rn_checkpoint_close(c);
}

// ---- round trips -------------------------------------------------------------------------------

static void both_containers_round_trip(void **state) {
    static const size_t steps[] = {1 << 20, 4096, 12345, 1000};
    static const size_t buffers[] = {0, 1, 4096, 1 << 20};
    (void)state;
    for (size_t kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < 4; i++) {
            const char *path = test_own_path(endings[kind]);
            rn_writer_options options = {.buffer_bytes = buffers[i]};
            write_model(path, mixed, MIXED, &options, steps[i]);
            read_model(path, mixed, MIXED);
            unlink(path);
        }
}

static void bytes_are_the_same_whatever_the_buffers(void **state) {
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        char *first = NULL, *next;
        size_t first_bytes = 0, next_bytes;
        for (size_t buffer = 1; buffer <= 16 << 20; buffer *= 64) {
            rn_writer_options options = {.buffer_bytes = buffer};
            write_model(test_own_path(endings[kind]), mixed, MIXED, &options, 99991);
            next = test_read(test_own_path(endings[kind]), &next_bytes);
            unlink(test_own_path(endings[kind]));
            if (first) {
                assert_int_equal(next_bytes, first_bytes);
                assert_memory_equal(next, first, first_bytes);
                free(next);
                continue;
            }
            first = next;
            first_bytes = next_bytes;
        }
        free(first);
    }
}

static void every_type_of_a_container_round_trips(void **state) {
    (void)state;
    for (size_t kind = 0; kind < 2; kind++)
        for (rn_dtype dtype = RN_DTYPE_NONE + 1; dtype < RN_DTYPE_COUNT; dtype++) {
            const rn_dtype_info *info = rn_dtype_get(dtype);
            if (kind == 0 ? !info->safetensors : info->ggml < 0) continue;
            rn_write_tensor t = {RN_STR("t"), dtype, 2, DIMS(3, 512), false};
            write_model(test_own_path(endings[kind]), &t, 1, NULL, 100);
            read_model(test_own_path(endings[kind]), &t, 1);
            unlink(test_own_path(endings[kind]));
        }
}

static void a_model_may_have_no_tensors(void **state) {
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        write_model(test_own_path(endings[kind]), NULL, 0, NULL, 1);
        read_model(test_own_path(endings[kind]), NULL, 0);
        unlink(test_own_path(endings[kind]));
        rn_write_tensor empty = {RN_STR("e"), RN_DTYPE_F32, 1, DIMS(0), false};
        write_model(test_own_path(endings[kind]), &empty, 1, NULL, 1);
        read_model(test_own_path(endings[kind]), &empty, 1);
        unlink(test_own_path(endings[kind]));
        rn_write_tensor random = {RN_STR("r"), RN_DTYPE_I8, 1, DIMS(5), true};
        write_model(test_own_path(endings[kind]), &random, 1, NULL, 2);
        read_model(test_own_path(endings[kind]), &random, 1);
        unlink(test_own_path(endings[kind]));
    }
}

static void names_of_any_kind_round_trip(void **state) {
    static const rn_str names[] = {RN_STR_INIT(""), RN_STR_INIT("a\0b"),
                                   RN_STR_INIT("\"\\/\n\t\x7f"),
                                   RN_STR_INIT("\xc3\xa9\xf0\x9d\x84\x9e"), RN_STR_INIT("a")};
    static const uint64_t one = 1;
    rn_write_tensor tensors[5];
    (void)state;
    for (size_t i = 0; i < 5; i++)
        tensors[i] = (rn_write_tensor){names[i], RN_DTYPE_I8, 1, &one, false};
    for (size_t kind = 0; kind < 2; kind++) {
        rn_checkpoint *c;
        write_model(test_own_path(endings[kind]), tensors, 5, NULL, 1);
        assert_ok(rn_checkpoint_open(test_own_path(endings[kind]), &c));
        for (size_t i = 0; i < 5; i++)
            assert_true(rn_str_equal(rn_checkpoint_tensor(c, i)->name, names[i]));
        rn_checkpoint_close(c);
        unlink(test_own_path(endings[kind]));
    }
}

static const rn_metadata pairs[] = {
    {.key = RN_STR_INIT("text"),
     .kind = RN_METADATA_TEXT,
     .gguf_type = RN_GGUF_STRING,
     .text = RN_STR_INIT("v\n\"\xc3\xa9\"")},
    {.key = RN_STR_INIT(""), .kind = RN_METADATA_TEXT, .gguf_type = RN_GGUF_STRING},
    {.key = RN_STR_INIT("u8"), .kind = RN_METADATA_U64, .gguf_type = RN_GGUF_U8, .value.u64 = 255},
    {.key = RN_STR_INIT("i8"), .kind = RN_METADATA_I64, .gguf_type = RN_GGUF_I8, .value.i64 = -128},
    {.key = RN_STR_INIT("u16"),
     .kind = RN_METADATA_U64,
     .gguf_type = RN_GGUF_U16,
     .value.u64 = 65535},
    {.key = RN_STR_INIT("i16"), .kind = RN_METADATA_I64, .gguf_type = RN_GGUF_I16, .value.i64 = -2},
    {.key = RN_STR_INIT("u32"),
     .kind = RN_METADATA_U64,
     .gguf_type = RN_GGUF_U32,
     .value.u64 = 1u << 31},
    {.key = RN_STR_INIT("i32"), .kind = RN_METADATA_I64, .gguf_type = RN_GGUF_I32, .value.i64 = -3},
    {.key = RN_STR_INIT("u64"),
     .kind = RN_METADATA_U64,
     .gguf_type = RN_GGUF_U64,
     .value.u64 = UINT64_MAX},
    {.key = RN_STR_INIT("i64"),
     .kind = RN_METADATA_I64,
     .gguf_type = RN_GGUF_I64,
     .value.i64 = INT64_MIN},
    {.key = RN_STR_INIT("f32"),
     .kind = RN_METADATA_F64,
     .gguf_type = RN_GGUF_F32,
     .value.f64 = 0.5},
    {.key = RN_STR_INIT("f64"),
     .kind = RN_METADATA_F64,
     .gguf_type = RN_GGUF_F64,
     .value.f64 = 0.1},
    {.key = RN_STR_INIT("yes"),
     .kind = RN_METADATA_BOOL,
     .gguf_type = RN_GGUF_BOOL,
     .value.boolean = true},
    {.key = RN_STR_INIT("list"),
     .kind = RN_METADATA_ARRAY,
     .gguf_type = RN_GGUF_U16,
     .count = 2,
     .raw = RN_STR_INIT("\1\0\2\0")},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void metadata_round_trips(void **state) {
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        rn_metadata used[PAIRS];
        size_t count = 0; // text alone goes into safetensors, an empty key not into GGUF
        for (size_t i = 0; i < PAIRS; i++)
            if (kind ? pairs[i].key.bytes > 0 : pairs[i].kind == RN_METADATA_TEXT)
                used[count++] = pairs[i];
        assert_int_equal(count, kind ? PAIRS - 1 : 2);
        rn_writer_options options = {.metadata = used, .metadata_count = count};
        rn_checkpoint *c;
        write_model(test_own_path(endings[kind]), mixed, MIXED, &options, 4096);
        assert_ok(rn_checkpoint_open(test_own_path(endings[kind]), &c));
        assert_int_equal(rn_checkpoint_metadata_count(c), count);
        for (size_t i = 0; i < count; i++) {
            const rn_metadata *m = rn_checkpoint_metadata(c, i);
            assert_true(rn_str_equal(m->key, used[i].key));
            assert_int_equal(m->kind, used[i].kind);
            assert_int_equal(m->gguf_type, used[i].gguf_type);
            assert_true(rn_str_equal(m->text, used[i].text));
            assert_true(rn_str_equal(m->raw, used[i].raw) && m->count == used[i].count);
            assert_memory_equal(&m->value, &used[i].value, sizeof m->value);
        }
        rn_checkpoint_close(c);
        unlink(test_own_path(endings[kind]));
    }
}

// ---- layout ------------------------------------------------------------------------------------

static void tensors_lie_where_the_contract_says(void **state) {
    // random and wide, streamed in the order given, random and narrow
    static const char *const order[] = {
        "scale.a", "random empty", "scale.b", "random scalar", "a", "b", "empty", "scalar", "c",
        "d",       "flags"};
    rn_checkpoint *c;
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        uint64_t at = 0;
        write_model(test_own_path(endings[kind]), mixed, MIXED, NULL, 4096);
        assert_ok(rn_checkpoint_open(test_own_path(endings[kind]), &c));
        uint64_t data = rn_checkpoint_file(c, 0)->data_offset;
        assert_int_equal(data % (kind ? 32 : 8), 0);
        for (size_t i = 0; i < MIXED; i++) {
            const rn_tensor_info *t = rn_checkpoint_find(c, order[i]);
            assert_int_equal(t->offset - data, at);
            at += kind ? (t->bytes + 31) / 32 * 32 : t->bytes;
        }
        rn_checkpoint_close(c);
        unlink(test_own_path(endings[kind]));
    }
}

static void padding_is_zero(void **state) {
    const rn_write_tensor tensors[] = {
        {RN_STR_INIT("a"), RN_DTYPE_I8, 1, DIMS(1), false},
        {RN_STR_INIT("b"), RN_DTYPE_I8, 1, DIMS(33), false},
        {RN_STR_INIT("r"), RN_DTYPE_I8, 1, DIMS(5), true},
    };
    rn_checkpoint *c;
    size_t size;
    (void)state;
    write_model(test_own_path("out.gguf"), tensors, 3, NULL, 100);
    char *file = test_read(test_own_path("out.gguf"), &size);
    assert_ok(rn_checkpoint_open(test_own_path("out.gguf"), &c));
    assert_int_equal(size % 32, 0);
    for (size_t i = 0; i < 3; i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(c, i);
        for (uint64_t at = t->offset + t->bytes; at % 32; at++)
            assert_int_equal(file[at], 0);
    }
    rn_checkpoint_close(c);
    free(file);
}

static void held_bytes_are_what_is_said(void **state) {
    rn_write_tensor t = {RN_STR("t"), RN_DTYPE_F32, 1, DIMS(1 << 20), false};
    static const size_t buffers[] = {0, 4096, 1 << 20};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        rn_writer *writer;
        rn_writer_options options = {.buffer_bytes = buffers[i]};
        assert_ok(rn_writer_create(test_own_path("out.safetensors"), &t, 1, &options, &writer));
        uint64_t said = rn_writer_held_bytes(&options);
        assert_true(held_bytes() >= said && held_bytes() < said + (128 << 10));
        rn_writer_destroy(writer);
        assert_int_equal(held_bytes(), 0);
    }
}

// ---- refusals ----------------------------------------------------------------------------------

static void refuse(const char *file, const rn_write_tensor *t, rn_status expected,
                   const char *words) {
    rn_writer *writer;
    rn_status s = rn_writer_create(test_own_path(file), t, 1, NULL, &writer);
    if (s != expected) fail_msg("%s instead of '%s'", rn_status_name(s), words);
    assert_null(writer);
    assert_said(words);
    assert_int_equal(held_bytes(), 0);
    assert_int_equal(count_files(test_own_folder), 0);
}

static void what_a_container_cannot_hold_is_refused_by_name(void **state) {
    char name[80];
    memset(name, 'n', sizeof name);
    (void)state;
    for (rn_dtype dtype = RN_DTYPE_NONE + 1; dtype < RN_DTYPE_COUNT; dtype++) {
        rn_write_tensor t = {RN_STR("weight"), dtype, 2, DIMS(2, 512), false};
        if (!rn_dtype_get(dtype)->safetensors)
            refuse("out.safetensors", &t, RN_UNSUPPORTED, "'weight': safetensors has no dtype");
        if (rn_dtype_get(dtype)->ggml < 0)
            refuse("out.gguf", &t, RN_UNSUPPORTED, "'weight': GGUF has no dtype");
    }
    rn_write_tensor t = {RN_STR("weight"), RN_DTYPE_NONE, 1, DIMS(1), false};
    refuse("out.gguf", &t, RN_INVALID, "'weight'");
    t = (rn_write_tensor){{name, 64}, RN_DTYPE_F32, 1, DIMS(1), false};
    refuse("out.gguf", &t, RN_UNSUPPORTED, "at most 63 bytes");
    t = (rn_write_tensor){RN_STR("deep"), RN_DTYPE_F32, 5, DIMS(1, 1, 1, 1, 1), false};
    refuse("out.gguf", &t, RN_UNSUPPORTED, "'deep' has 5 dimensions");
    t = (rn_write_tensor){RN_STR("__metadata__"), RN_DTYPE_F32, 1, DIMS(1), false};
    refuse("out.safetensors", &t, RN_UNSUPPORTED, "__metadata__");
    t = (rn_write_tensor){RN_STR("\xff"), RN_DTYPE_F32, 1, DIMS(1), false};
    refuse("out.safetensors", &t, RN_UNSUPPORTED, "not UTF-8");
    t = (rn_write_tensor){RN_STR("rows"), RN_DTYPE_Q8_0, 2, DIMS(32, 33), false};
    refuse("out.gguf", &t, RN_INVALID, "'rows' cannot be written as q8_0");
    t = (rn_write_tensor){RN_STR("odd"), RN_DTYPE_F4, 1, DIMS(3), false};
    refuse("out.safetensors", &t, RN_INVALID, "'odd' cannot be written as f4");
    t = (rn_write_tensor){RN_STR("huge"), RN_DTYPE_I8, 2,
                          DIMS((uint64_t)1 << 32, (uint64_t)1 << 32), false};
    refuse("out.safetensors", &t, RN_INVALID, "'huge'");
    t = (rn_write_tensor){RN_STR("huge"), RN_DTYPE_I8, 1, DIMS((uint64_t)INT64_MAX), false};
    refuse("out.safetensors", &t, RN_INVALID, "too large");
}

static void names_that_are_there_twice_are_refused(void **state) {
    const rn_write_tensor twice[] = {
        {RN_STR_INIT("w"), RN_DTYPE_F32, 1, DIMS(1), false},
        {RN_STR_INIT("v"), RN_DTYPE_F32, 1, DIMS(1), false},
        {RN_STR_INIT("w"), RN_DTYPE_F32, 1, DIMS(1), true},
    };
    rn_metadata keys[] = {pairs[0], pairs[1], pairs[0]};
    rn_writer_options options = {.metadata = keys, .metadata_count = 3};
    rn_writer *writer;
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        assert_fails(RN_UNSUPPORTED,
                     rn_writer_create(test_own_path(endings[kind]), twice, 3, NULL, &writer));
        assert_said("two tensors would be called 'w'");
        assert_fails(RN_UNSUPPORTED,
                     rn_writer_create(test_own_path(endings[kind]), twice, 2, &options, &writer));
        assert_said("two metadata keys would be called 'text'");
    }
}

static void metadata_that_cannot_be_held_is_refused(void **state) {
    rn_metadata bad = pairs[2];
    rn_writer_options options = {.metadata = &bad, .metadata_count = 1};
    rn_writer *writer;
    (void)state;
    assert_fails(RN_UNSUPPORTED,
                 rn_writer_create(test_own_path("out.safetensors"), NULL, 0, &options, &writer));
    assert_said("metadata 'u8' is not text");
    bad = pairs[0];
    bad.key = RN_STR("\xff");
    assert_fails(RN_UNSUPPORTED,
                 rn_writer_create(test_own_path("out.safetensors"), NULL, 0, &options, &writer));
    bad = (rn_metadata){.key = RN_STR("general.alignment"),
                        .kind = RN_METADATA_U64,
                        .gguf_type = RN_GGUF_U32,
                        .value.u64 = 64};
    assert_fails(RN_UNSUPPORTED,
                 rn_writer_create(test_own_path("out.gguf"), NULL, 0, &options, &writer));
    bad.value.u64 = 32;
    assert_ok(rn_writer_create(test_own_path("out.gguf"), NULL, 0, &options, &writer));
    rn_writer_destroy(writer);
    rn_metadata nameless = {.kind = RN_METADATA_TEXT, .gguf_type = RN_GGUF_STRING};
    options.metadata = &nameless;
    assert_fails(RN_UNSUPPORTED,
                 rn_writer_create(test_own_path("out.gguf"), NULL, 0, &options, &writer));
    assert_said("empty metadata keys");
}

static void paths_that_cannot_be_written_are_refused(void **state) {
    rn_writer *writer;
    char path[5000];
    (void)state;
    assert_fails(RN_NOT_FOUND,
                 rn_writer_create(test_own_path("no/such/folder.gguf"), NULL, 0, NULL, &writer));
    assert_fails(RN_NOT_FOUND, rn_writer_create("/proc/nothing/x.gguf", NULL, 0, NULL, &writer));
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_fails(RN_INVALID, rn_writer_create(path, NULL, 0, NULL, &writer));
    mkdir(test_own_path("folder.gguf"), 0755);
    assert_ok(rn_writer_create(test_own_path("folder.gguf"), NULL, 0, NULL, &writer));
    assert_fails(RN_IO, rn_writer_commit(writer)); // a folder has that name
    rn_writer_destroy(writer);
    rmdir(test_own_path("folder.gguf"));
    assert_int_equal(count_files(test_own_folder), 0);
}

// ---- wrong use ---------------------------------------------------------------------------------

static void calls_that_do_not_fit_the_declaration_are_refused(void **state) {
    const rn_write_tensor tensors[] = {
        {RN_STR_INIT("a"), RN_DTYPE_I8, 1, DIMS(10), false},
        {RN_STR_INIT("b"), RN_DTYPE_I8, 1, DIMS(10), false},
        {RN_STR_INIT("r"), RN_DTYPE_F32, 1, DIMS(3), true},
    };
    char data[64] = {0};
    (void)state;
    for (size_t kind = 0; kind < 2; kind++) {
        rn_writer *writer;
        assert_ok(rn_writer_create(test_own_path(endings[kind]), tensors, 3, NULL, &writer));
        assert_fails(RN_INVALID, rn_writer_append(writer, data, 11)); // into the next tensor
        assert_ok(rn_writer_append(writer, data, 4));
        assert_ok(rn_writer_append(writer, data, 0));
        assert_fails(RN_INVALID, rn_writer_append(writer, data, 7));
        assert_fails(RN_INVALID, rn_writer_put(writer, 0, 0, data, 4)); // a streamed one
        assert_said("not a random one");
        assert_fails(RN_INVALID, rn_writer_put(writer, 3, 0, data, 1)); // there is none
        assert_fails(RN_INVALID, rn_writer_put(writer, 2, 0, data, 13));
        assert_fails(RN_INVALID, rn_writer_put(writer, 2, 12, data, 1));
        assert_fails(RN_INVALID, rn_writer_put(writer, 2, UINT64_MAX, data, 2));
        assert_fails(RN_INVALID, rn_writer_commit(writer));
        assert_said("tensor 0 is not complete");
        assert_ok(rn_writer_append(writer, data, 6));
        assert_ok(rn_writer_append(writer, data, 10));
        assert_fails(RN_INVALID, rn_writer_append(writer, data, 1)); // everything is there
        assert_ok(rn_writer_put(writer, 2, 4, data, 8));
        assert_fails(RN_INVALID, rn_writer_commit(writer));
        assert_said("tensor 2 is not complete");
        assert_ok(rn_writer_put(writer, 2, 0, data, 4));
        assert_ok(rn_writer_commit(writer));
        rn_writer_destroy(writer);
        assert_int_equal(count_files(test_own_folder), 1);
        unlink(test_own_path(endings[kind]));
    }
    rn_writer_destroy(NULL);
}

static void nothing_remains_without_a_commit(void **state) {
    rn_write_tensor t = {RN_STR("t"), RN_DTYPE_F32, 1, DIMS(3 << 20), false};
    uint8_t *data = content(&t, 0);
    (void)state;
    for (uint64_t part = 0; part <= 3; part++) {
        rn_writer *writer;
        assert_ok(rn_writer_create(test_own_path("out.gguf"), &t, 1, NULL, &writer));
        if (part) assert_ok(rn_writer_append(writer, data, part * (4 << 20)));
        rn_writer_destroy(writer);
        assert_int_equal(count_files(test_own_folder), 0);
    }
    free(data);
    assert_int_equal(held_bytes(), 0);
}

static void an_existing_file_stays_until_the_commit(void **state) {
    rn_write_tensor t = {RN_STR("t"), RN_DTYPE_I8, 1, DIMS(3), false};
    rn_writer *writer;
    size_t size;
    (void)state;
    test_write(test_own_path("out.gguf"), "before", 6);
    for (int commit = 0; commit < 2; commit++) {
        assert_ok(rn_writer_create(test_own_path("out.gguf"), &t, 1, NULL, &writer));
        assert_ok(rn_writer_append(writer, "abc", 3));
        char *old = test_read(test_own_path("out.gguf"), &size);
        assert_string_equal(old, "before");
        free(old);
        if (commit) assert_ok(rn_writer_commit(writer));
        rn_writer_destroy(writer);
    }
    char *new = test_read(test_own_path("out.gguf"), &size);
    assert_memory_equal(new, "GGUF", 4);
    free(new);
    assert_int_equal(count_files(test_own_folder), 1);
}

int main(void) {
#define FOLDER_TEST(name) cmocka_unit_test_setup(name, test_make_folder)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(both_containers_round_trip),
        FOLDER_TEST(bytes_are_the_same_whatever_the_buffers),
        FOLDER_TEST(every_type_of_a_container_round_trips),
        FOLDER_TEST(a_model_may_have_no_tensors),
        FOLDER_TEST(names_of_any_kind_round_trip),
        FOLDER_TEST(metadata_round_trips),
        FOLDER_TEST(tensors_lie_where_the_contract_says),
        FOLDER_TEST(padding_is_zero),
        FOLDER_TEST(held_bytes_are_what_is_said),
        FOLDER_TEST(what_a_container_cannot_hold_is_refused_by_name),
        FOLDER_TEST(names_that_are_there_twice_are_refused),
        FOLDER_TEST(metadata_that_cannot_be_held_is_refused),
        FOLDER_TEST(paths_that_cannot_be_written_are_refused),
        FOLDER_TEST(calls_that_do_not_fit_the_declaration_are_refused),
        FOLDER_TEST(nothing_remains_without_a_commit),
        FOLDER_TEST(an_existing_file_stays_until_the_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
