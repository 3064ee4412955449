// labels: threads
// torture_test.c — every allocation, every read and every write fails once, in every operation on a
// tiny model. Each time: a status with a message, nothing leaked (the sanitizers look), nothing
// held, no file left behind. Once the fault no longer fires, the operation succeeds.
#include "model_files.h"

#include <ration/convert.h>
#include <ration/summary.h>
#include <ration/writer.h>

#include "base/fault.h"
#include "base/str.h"
#include "io/gguf.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[256], out_folder[256]; // the models; what is written

static const char *path_in(const char *where, const char *name) {
    static char paths[8][512];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", where, name);
    return path;
}

// ---- models ------------------------------------------------------------------------------------

// Shards, escapes in names (they need memory of their own), metadata, tensors out of order.
static void make_shards(void) {
    static const char first[] =
        "{\"__metadata__\":{\"form\\u0061t\":\"p\\u0074\"},"
        "\"l.1.b.\\u0077eight\":{\"dtype\":\"F32\",\"shape\":[3,64],\"data_offsets\":[256,1024]},"
        "\"l.0.a.weight\":{\"dtype\":\"F16\",\"shape\":[4,32],\"data_offsets\":[0,256]}}";
    static const char second[] =
        "{\"l.2.c.weight\":{\"dtype\":\"BF16\",\"shape\":[2,256],\"data_offsets\":[0,1024]},"
        "\"l.2.n\\u006frm\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1024,1032]}}";
    static const char index[] = "{\"weight_map\":{\"l.0.a.weight\":\"1.safetensors\","
                                "\"l.1.b.weight\":\"1.safetensors\",\"l.2.c.weight\":"
                                "\"2.safetensors\",\"l.2.norm\":\"2.safetensors\"}}";
    uint8_t data[1032];
    uint64_t state = 4;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(draw(&state) & 0x3f);
    write_safetensors(path_in(folder, "1.safetensors"), first, strlen(first), data, 1024);
    write_safetensors(path_in(folder, "2.safetensors"), second, strlen(second), data, 1032);
    test_write(path_in(folder, "model.safetensors.index.json"), index, strlen(index));
}

static void make_gguf(void) {
    blob file = {0};
    put_gguf_start(&file, 3, 2, 2);
    put_string(&file, "name");
    put_u32(&file, RN_GGUF_STRING);
    put_string(&file, "tiny");
    put_string(&file, "words");
    put_u32(&file, RN_GGUF_ARRAY);
    put_u32(&file, RN_GGUF_STRING);
    put_u64(&file, 2);
    put_string(&file, "one");
    put_string(&file, "two");
    put_gguf_tensor(&file, "blk.0.w", 2, (uint64_t[]){64, 2}, 8, 0); // q8_0: 136 bytes
    put_gguf_tensor(&file, "blk.1.w", 1, (uint64_t[]){10}, 0, 160);
    put_padding(&file, 32);
    put_zeros(&file, 160 + 64);
    put_file(path_in(folder, "tiny.gguf"), &file);
}

static int make_models(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/models", test_folder());
    snprintf(out_folder, sizeof out_folder, "%s/out", test_folder());
    if (mkdir(folder, 0755) != 0 || mkdir(out_folder, 0755) != 0) return -1;
    make_shards();
    make_gguf();
    // A thread's first charge makes its tally, and does without where that fails: no fault to be
    // seen.
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_OTHER, NULL};
    rn_ledger_charge(account, NULL, 1);
    rn_ledger_release(account, NULL, 1);
    return 0;
}

// ---- the rack ----------------------------------------------------------------------------------

typedef rn_status (*operation)(const void *arg);

static const char *const fault_names[] = {"allocation", "read", "write"};

// The operation fails at fault number 1, 2, ... until there are no more; returns how many there
// were.
static uint64_t torture(operation run, const void *arg, rn_fault kind, rn_status expected) {
    size_t open_files = count_files("/proc/self/fd");
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(kind, n);
        rn_status s = run(arg);
        bool fired = rn_fault_fired(kind);
        rn_fault_arm(kind, 0);
        assert_int_equal(count_files("/proc/self/fd"), open_files);
        if (held_bytes() != 0)
            fail_msg("%s %llu: %llu bytes held", fault_names[kind], (unsigned long long)n,
                     (unsigned long long)held_bytes());
        if (!fired) {
            assert_ok(s);
            return n - 1;
        }
        if (s != expected || rn_last_error()->status != s || !rn_last_error()->message[0])
            fail_msg("%s %llu: %s, '%s'", fault_names[kind], (unsigned long long)n,
                     rn_status_name(s), rn_last_error()->message);
        assert_int_equal(count_files(out_folder), 0);
    }
}

// All three kinds; *out_counts says how many of each were met.
static void torture_all(operation run, const void *arg, uint64_t out_counts[3]) {
    out_counts[0] = torture(run, arg, RN_FAULT_ALLOC, RN_NO_MEMORY);
    out_counts[1] = torture(run, arg, RN_FAULT_READ, RN_IO);
    out_counts[2] = torture(run, arg, RN_FAULT_WRITE, RN_IO);
}

// ---- looking -----------------------------------------------------------------------------------

static rn_status inspect(const void *path) {
    rn_checkpoint *c;
    rn_summary summary = {0};
    RN_TRY(rn_checkpoint_open(path, &c));
    rn_status s = rn_summary_make(c, &summary);
    rn_summary_free(&summary);
    rn_checkpoint_close(c);
    return s;
}

static void inspecting_survives_everything(void **state) {
    uint64_t counts[3];
    (void)state;
    torture_all(inspect, folder, counts);
    assert_true(counts[0] >= 10 && counts[1] >= 5 && counts[2] == 0);
    torture_all(inspect, path_in(folder, "tiny.gguf"), counts);
    assert_true(counts[0] >= 5 && counts[1] >= 2 && counts[2] == 0);
}

// ---- reading -----------------------------------------------------------------------------------

static rn_status load_tensors(const rn_checkpoint *c) {
    float values[1024];
    rn_mapping map;
    for (size_t i = 0; i < rn_checkpoint_count(c); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(c, i);
        RN_TRY(rn_checkpoint_load(c, t, RN_DTYPE_F32, values, t->elements * 4));
        RN_TRY(rn_checkpoint_map(c, t, &map));
        rn_mapping_release(&map);
    }
    return RN_OK;
}

static rn_status load(const void *path) {
    rn_checkpoint *c;
    RN_TRY(rn_checkpoint_open(path, &c));
    rn_status s = load_tensors(c);
    rn_checkpoint_close(c);
    return s;
}

static void loading_survives_everything(void **state) {
    uint64_t counts[3];
    (void)state;
    torture_all(load, folder, counts);
    assert_true(counts[0] >= 10 && counts[1] >= 8);
    torture_all(load, path_in(folder, "tiny.gguf"), counts);
}

static rn_status ignore_piece(void *self, const rn_tensor_info *tensor, uint64_t offset,
                              const void *data, size_t bytes) {
    (void)self, (void)tensor, (void)offset, (void)data, (void)bytes;
    return RN_OK;
}

static rn_status stream(const void *path) {
    static const rn_dtype dtypes[] = {RN_DTYPE_NONE, RN_DTYPE_F32};
    rn_checkpoint *c;
    RN_TRY(rn_checkpoint_open(path, &c));
    rn_status s = RN_OK;
    for (int i = 0; i < 2 && s == RN_OK; i++) {
        rn_stream_options options = {.dtype = dtypes[i], .buffer_bytes = 1};
        s = rn_checkpoint_stream(c, &options, ignore_piece, NULL);
    }
    rn_checkpoint_close(c);
    return s;
}

static void streaming_survives_everything(void **state) {
    uint64_t counts[3];
    (void)state;
    torture_all(stream, folder, counts);
    assert_true(counts[0] >= 20 && counts[1] >= 8);
    torture_all(stream, path_in(folder, "tiny.gguf"), counts);
}

// ---- writing -----------------------------------------------------------------------------------

static rn_status fill_writer(rn_writer *writer) {
    static const char data[20000];
    for (int i = 0; i < 3; i++)
        RN_TRY(rn_writer_append(writer, data, sizeof data));
    RN_TRY(rn_writer_append(writer, data, 10));
    RN_TRY(rn_writer_put(writer, 2, 4, data, 4));
    RN_TRY(rn_writer_put(writer, 2, 0, data, 4));
    return rn_writer_commit(writer);
}

static rn_status write_file(const void *path) {
    const rn_write_tensor tensors[] = {
        {{"a", 1}, RN_DTYPE_F16, 2, (uint64_t[]){3, 10000}, false},
        {{"b", 1}, RN_DTYPE_I8, 1, (uint64_t[]){10}, false},
        {{"scale", 5}, RN_DTYPE_F32, 1, (uint64_t[]){2}, true},
    };
    rn_metadata pair = {
        .key = {"k", 1}, .kind = RN_METADATA_TEXT, .gguf_type = RN_GGUF_STRING, .text = {"v", 1}};
    rn_writer_options options = {.metadata = &pair, .metadata_count = 1, .buffer_bytes = 4096};
    rn_writer *writer;
    RN_TRY(rn_writer_create(path, tensors, 3, &options, &writer));
    rn_status s = fill_writer(writer);
    rn_writer_destroy(writer);
    if (s == RN_OK) unlink(path);
    return s;
}

static void writing_survives_everything(void **state) {
    uint64_t counts[3];
    (void)state;
    torture_all(write_file, path_in(out_folder, "out.safetensors"), counts);
    assert_true(counts[0] >= 5 && counts[1] == 0 && counts[2] >= 10);
    torture_all(write_file, path_in(out_folder, "out.gguf"), counts);
    assert_true(counts[2] >= 10);
}

// ---- converting --------------------------------------------------------------------------------

typedef struct conversion {
    const char *in, *out;
    rn_dtype to;
    uint64_t budget_bytes;
} conversion;

static rn_status convert(const void *arg) {
    const conversion *c = arg;
    rn_convert_options options = {.to = c->to, .thread_count = 2, .budget_bytes = c->budget_bytes};
    rn_convert_result result;
    uint64_t soft, hard;
    rn_status s = rn_convert(c->in, c->out, &options, &result);
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_true(hard == RN_NO_LIMIT); // whatever happened, the limit is back
    if (s == RN_OK) {
        assert_int_equal(count_files(out_folder), 1);
        unlink(c->out);
    }
    return s;
}

static void converting_survives_everything(void **state) {
    const conversion conversions[] = {
        {folder, path_in(out_folder, "out.safetensors"), RN_DTYPE_INT4, 0},
        {folder, path_in(out_folder, "out.safetensors"), RN_DTYPE_NF4_DQ, 0},
        {folder, path_in(out_folder, "out.gguf"), RN_DTYPE_Q8_0, 0},
        {path_in(folder, "tiny.gguf"), path_in(out_folder, "out.safetensors"), RN_DTYPE_BF16, 0},
    };
    uint64_t counts[3];
    (void)state;
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++) {
        torture_all(convert, &conversions[i], counts);
        print_message("conversion %zu: %llu allocations, %llu reads, %llu writes\n", i,
                      (unsigned long long)counts[0], (unsigned long long)counts[1],
                      (unsigned long long)counts[2]);
        assert_true(counts[0] >= 20 && counts[1] >= 4 && counts[2] >= 3);
    }
}

// A refusal works its numbers out in a second pass, which may fail as well.
static rn_status convert_refused(const void *arg) {
    rn_status s = convert(arg);
    return s == RN_OVER_BUDGET ? RN_OK : s;
}

static void refusing_survives_everything(void **state) {
    const conversion small = {folder, path_in(out_folder, "out.safetensors"), RN_DTYPE_INT8,
                              1 << 20};
    const conversion tiny = {folder, path_in(out_folder, "out.safetensors"), RN_DTYPE_INT8, 1};
    uint64_t counts[3];
    (void)state;
    torture_all(convert_refused, &small, counts);
    torture_all(convert_refused, &tiny, counts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspecting_survives_everything),
        cmocka_unit_test(loading_survives_everything),
        cmocka_unit_test(streaming_survives_everything),
        cmocka_unit_test(writing_survives_everything),
        cmocka_unit_test(converting_survives_everything),
        cmocka_unit_test(refusing_survives_everything),
    };
    return cmocka_run_group_tests(tests, make_models, NULL);
}
