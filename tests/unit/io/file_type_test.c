// file_type_test.c — llama.cpp's file types: which tensor gets which kind, importances, and what is
// refused. The choices were compared with llama-quantize's on SmolLM2, and for q4_k_m on
// Qwen2.5-Coder.
#include "support.h"

#include <ration/convert.h>
#include <ration/writer.h>

#include "io/file_type.h"
#include "io/importance.h"
#include "model_files.h"
#include "tensor/ggml_encode.h"

#include <unistd.h>

enum { LAYERS = 8, WIDE = 256, NAMES = 6 * LAYERS + 3 };

static char names[NAMES][48];
static rn_mixed_tensor tensors[NAMES];
static const uint64_t matrix[] = {4, WIDE}, odd[] = {4, 96}, vector[] = {WIDE};

static void add(size_t *count, rn_mixed_tensor tensor, const char *format, int layer) {
    snprintf(names[*count], sizeof names[0], format, layer);
    tensor.name = rn_str_from(names[*count]);
    tensors[(*count)++] = tensor;
}

// A model of 8 layers; `dims` of its matrices.
static size_t make_tensors(const uint64_t *dims, bool tied) {
    static const char *const parts[] = {"blk.%d.attn_q.weight", "blk.%d.attn_v.weight",
                                        "blk.%d.attn_output.weight", "blk.%d.ffn_down.weight",
                                        "blk.%d.ffn_up.weight"};
    size_t count = 0;
    add(&count, (rn_mixed_tensor){.rank = 2, .dims = dims}, "token_embd.weight", 0);
    if (!tied) add(&count, (rn_mixed_tensor){.rank = 2, .dims = dims}, "output.weight", 0);
    for (int layer = 0; layer < LAYERS; layer++) {
        add(&count, (rn_mixed_tensor){.rank = 1, .dims = vector}, "blk.%d.attn_norm.weight", layer);
        for (size_t i = 0; i < 5; i++)
            add(&count, (rn_mixed_tensor){.rank = 2, .dims = dims}, parts[i], layer);
    }
    return count;
}

static rn_metadata number(const char *key, uint64_t value) {
    return (rn_metadata){
        .key = rn_str_from(key), .kind = RN_METADATA_U64, .gguf_type = 4, .value.u64 = value};
}

static rn_metadata keys[4];

static void set_keys(uint64_t layers) {
    keys[0] = (rn_metadata){.key = RN_STR("general.architecture"),
                            .kind = RN_METADATA_TEXT,
                            .gguf_type = 8,
                            .text = RN_STR("llama")};
    keys[1] = number("llama.block_count", layers);
    keys[2] = number("llama.attention.head_count", 8);
    keys[3] = number("llama.attention.head_count_kv", 4);
}

static rn_dtype choose(const char *type, const uint64_t *dims, bool tied, bool weighed,
                       const char *name) {
    rn_mixer mixer = {.type = rn_file_type_find(rn_str_from(type)),
                      .tensors = tensors,
                      .count = make_tensors(dims, tied),
                      .has_importances = weighed};
    rn_arena arena;
    rn_dtype chosen = RN_DTYPE_COUNT;
    assert_non_null(mixer.type);
    set_keys(LAYERS);
    rn_arena_init(&arena, &rn_system_allocator, 0);
    assert_ok(rn_mixer_init(&mixer, keys, 4, &arena));
    for (size_t i = 0; i < mixer.count; i++)
        if (strcmp(names[i], name) == 0) chosen = rn_mixer_choose(&mixer, i);
    rn_arena_free_all(&arena);
    return chosen;
}

static void more_bits_go_where_llama_cpp_puts_them(void **unused) {
    (void)unused;
    static const rn_dtype by_layer[LAYERS] = {RN_DTYPE_Q6_K, RN_DTYPE_Q4_K, RN_DTYPE_Q4_K,
                                              RN_DTYPE_Q6_K, RN_DTYPE_Q4_K, RN_DTYPE_Q4_K,
                                              RN_DTYPE_Q6_K, RN_DTYPE_Q6_K};
    char name[48];
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        assert_int_equal(choose("q4_k_m", matrix, false, false, name), by_layer[i]);
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        assert_int_equal(choose("Q4_K", matrix, false, false, name), by_layer[i]);
    }
    assert_int_equal(choose("q4_k_m", matrix, false, false, "output.weight"), RN_DTYPE_Q6_K);
    assert_int_equal(choose("q4_k_m", matrix, false, false, "token_embd.weight"), RN_DTYPE_Q4_K);
    assert_int_equal(choose("q4_k_m", matrix, true, false, "token_embd.weight"), RN_DTYPE_Q6_K);
    assert_int_equal(choose("q3_k_m", matrix, true, false, "blk.1.attn_v.weight"), RN_DTYPE_Q5_K);
    assert_int_equal(choose("q3_k_m", matrix, true, false, "blk.2.attn_v.weight"), RN_DTYPE_Q4_K);
    assert_int_equal(choose("q2_k", matrix, true, false, "blk.2.attn_output.weight"),
                     RN_DTYPE_Q3_K);
    assert_int_equal(choose("q5_0", matrix, true, true, "blk.0.ffn_down.weight"), RN_DTYPE_Q5_1);
    assert_int_equal(choose("iq4_xs", matrix, true, true, "blk.0.ffn_down.weight"),
                     RN_DTYPE_IQ4_XS);
    assert_int_equal(choose("iq4_xs", matrix, true, false, "blk.0.ffn_down.weight"), RN_DTYPE_Q5_K);
    assert_int_equal(choose("q4_k_m", matrix, true, false, "blk.0.attn_norm.weight"),
                     RN_DTYPE_NONE);
}

static void rows_that_are_no_superblocks_get_smaller_blocks(void **unused) {
    (void)unused;
    static const uint64_t short_rows[] = {4, 20};
    assert_int_equal(choose("q4_k_m", odd, false, false, "blk.1.attn_q.weight"), RN_DTYPE_Q5_0);
    assert_int_equal(choose("q4_k_m", odd, false, false, "blk.0.attn_v.weight"), RN_DTYPE_Q8_0);
    assert_int_equal(choose("q4_k_m", odd, false, false, "output.weight"), RN_DTYPE_Q8_0);
    assert_int_equal(choose("q5_k_m", odd, false, false, "blk.1.attn_q.weight"), RN_DTYPE_Q5_1);
    assert_int_equal(choose("q3_k_s", odd, false, false, "blk.1.attn_q.weight"), RN_DTYPE_Q4_0);
    assert_int_equal(choose("iq4_xs", odd, false, false, "blk.1.attn_q.weight"), RN_DTYPE_IQ4_NL);
    assert_int_equal(choose("q4_k_m", short_rows, false, false, "blk.1.attn_q.weight"),
                     RN_DTYPE_F16);
}

static void names_are_known_or_not(void **unused) {
    (void)unused;
    rn_convert_options o = {0};
    assert_true(rn_convert_parse_target(RN_STR("Q4_K_M"), &o));
    assert_string_equal(o.file_type, "q4_k_m");
    assert_true(rn_convert_parse_target(RN_STR("q8_0"), &o));
    assert_null(o.file_type);
    assert_int_equal(o.to, RN_DTYPE_Q8_0);
    assert_false(rn_convert_parse_target(RN_STR("q4_k_xl"), &o));
}

// ---- a whole conversion -------------------------------------------------------------------------

static float values[4 * WIDE];

static void write_model(const char *path, const char *name, rn_dtype dtype) {
    rn_write_tensor out[] = {
        {.name = rn_str_from(name), .dtype = dtype, .rank = 2, .dims = matrix},
        {.name = RN_STR("output_norm.weight"), .dtype = RN_DTYPE_F32, .rank = 1, .dims = vector}};
    rn_writer_options options = {.metadata = keys, .metadata_count = 2};
    rn_writer *writer;
    uint8_t bytes[sizeof values];
    uint64_t size;
    set_keys(1);
    for (int i = 0; i < 4 * WIDE; i++)
        values[i] = (float)((i * 7919 % 1009) - 504) * 1e-3f;
    assert_ok(rn_dtype_from_f32(dtype, values, bytes, 4 * WIDE));
    assert_true(rn_dtype_bytes(dtype, 4 * WIDE, &size));
    assert_ok(rn_writer_create(path, out, 2, &options, &writer));
    assert_ok(rn_writer_append(writer, bytes, size));
    assert_ok(rn_writer_append(writer, values, sizeof(float) * WIDE));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

// The older format, of one entry.
static void write_importances(const char *path, const char *name, int32_t count, int32_t entries) {
    uint8_t file[2048];
    int32_t length = (int32_t)strlen(name), calls = 4, head[] = {entries, length};
    size_t at = 0;
    memcpy(file, head, sizeof head), at += sizeof head;
    memcpy(file + at, name, (size_t)length), at += (size_t)length;
    memcpy(file + at, &calls, 4), at += 4;
    memcpy(file + at, &count, 4), at += 4;
    for (int32_t i = 0; i < count; i++, at += 4) {
        float value = (float)(i % 13) * 0.5f;
        memcpy(file + at, &value, 4);
    }
    test_write(path, (const char *)file, at);
}

static void a_file_type_makes_a_file_of_its_kinds(void **unused) {
    (void)unused;
    rn_convert_result result;
    rn_checkpoint *c;
    uint8_t expected[4 * 144], got[4 * 144];
    float importance[WIDE];
    char in[300], out[300], matrix_file[300];
    snprintf(in, sizeof in, "%s", test_path("in.gguf"));
    snprintf(out, sizeof out, "%s", test_path("mixed.gguf"));
    snprintf(matrix_file, sizeof matrix_file, "%s", test_path("imatrix.dat"));
    write_model(in, "blk.0.attn_q.weight", RN_DTYPE_F32);
    write_importances(matrix_file, "blk.0.attn_q.weight", WIDE, 1);
    for (int weighed = 0; weighed < 2; weighed++) {
        rn_convert_options options = {.file_type = "q4_k_m",
                                      .importances = weighed ? matrix_file : NULL};
        for (int i = 0; i < WIDE; i++)
            importance[i] = (float)(i % 13) * 0.5f / 4;
        assert_ok(rn_convert(in, out, &options, &result));
        assert_int_equal(result.weighed_count, weighed);
        assert_int_equal(result.requantised_count, 0);
        assert_ok(rn_checkpoint_open(out, &c));
        const rn_tensor_info *t = rn_checkpoint_find(c, "blk.0.attn_q.weight");
        assert_int_equal(t->dtype, RN_DTYPE_Q4_K);
        assert_int_equal(rn_checkpoint_find(c, "output_norm.weight")->dtype, RN_DTYPE_F32);
        assert_ok(rn_checkpoint_read(c, t, 0, got, sizeof got));
        assert_ok(rn_ggml_encode_rows(RN_DTYPE_Q4_K, values, 4, WIDE, weighed ? importance : NULL,
                                      expected));
        assert_memory_equal(got, expected, sizeof got);
        rn_checkpoint_close(c);
    }
    rn_convert_options again = {.file_type = "q2_k"};
    assert_ok(rn_convert(out, test_path("again.gguf"), &again, &result));
    assert_int_equal(result.requantised_count, 1); // said: losses add up
    const char *excluded[] = {"blk.0.*"};
    again.exclude = excluded, again.exclude_count = 1;
    assert_ok(rn_convert(out, test_path("again.gguf"), &again, &result));
    assert_int_equal(result.converted_count, 0);
}

static void importances_of_another_model_are_refused(void **unused) {
    (void)unused;
    rn_convert_result result;
    char in[300], file[300];
    rn_convert_options options = {.file_type = "q4_k_m", .importances = file};
    snprintf(in, sizeof in, "%s", test_path("in.gguf"));
    snprintf(file, sizeof file, "%s", test_path("other.dat"));
    write_model(in, "blk.0.attn_q.weight", RN_DTYPE_F32);
    write_importances(file, "blk.0.attn_q.weight", WIDE - 1, 1);
    assert_fails(RN_INVALID, rn_convert(in, test_path("no.gguf"), &options, &result));
    assert_said("another width");
    write_importances(file, "blk.9.attn_q.weight", WIDE, 1);
    assert_fails(RN_INVALID, rn_convert(in, test_path("no.gguf"), &options, &result));
    assert_said("is no tensor here");
    write_importances(file, "blk.0.attn_q.weight", WIDE, 2); // says two, has one
    assert_fails(RN_CORRUPT, rn_convert(in, test_path("no.gguf"), &options, &result));
    write_importances(file, "blk.0.attn_q.weight", WIDE, 1 << 30);
    assert_fails(RN_CORRUPT, rn_convert(in, test_path("no.gguf"), &options, &result));
    write_importances(file, "blk.0.attn_q.weight", -5, 1);
    assert_fails(RN_CORRUPT, rn_convert(in, test_path("no.gguf"), &options, &result));
    options.importances = in; // a GGUF file without any
    assert_fails(RN_UNSUPPORTED, rn_convert(in, test_path("no.gguf"), &options, &result));
    options = (rn_convert_options){.to = RN_DTYPE_F16, .importances = file};
    assert_fails(RN_INVALID, rn_convert(in, test_path("no.gguf"), &options, &result));
    assert_int_not_equal(access(test_path("no.gguf"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_bits_go_where_llama_cpp_puts_them),
        cmocka_unit_test(rows_that_are_no_superblocks_get_smaller_blocks),
        cmocka_unit_test(names_are_known_or_not),
        cmocka_unit_test(a_file_type_makes_a_file_of_its_kinds),
        cmocka_unit_test(importances_of_another_model_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
