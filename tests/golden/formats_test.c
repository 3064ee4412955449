// formats_test.c — files that others wrote: each case of the collections gets its verdict, and the
// same weights in three formats agree.
#include "support.h"

#include <ration/checkpoint.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/json_read.h"

#include <math.h>

// ---- collections with verdicts -----------------------------------------------------------------

typedef struct case_entry {
    char file[256];
    char verdict[16]; // "accept", "reject"
} case_entry;

static void copy_text(rn_str text, char *out, size_t capacity) {
    assert_true(text.bytes < capacity);
    memcpy(out, text.data, text.bytes);
    out[text.bytes] = '\0';
}

// One object of the list; `field` is the verdict's name.
static void read_case(rn_json_reader *json, const char *field, case_entry *out) {
    rn_json_item item;
    *out = (case_entry){.file = ""};
    while (true) {
        assert_ok(rn_json_next(json, &item));
        if (item.kind == RN_JSON_OBJECT_END) return;
        bool is_file = rn_str_equal(item.text, RN_STR("file"));
        bool is_verdict = rn_str_equal(item.text, rn_str_from(field));
        if (!is_file && !is_verdict) {
            assert_ok(rn_json_skip(json));
            continue;
        }
        assert_ok(rn_json_expect(json, RN_JSON_STRING, &item));
        if (is_file)
            copy_text(item.text, out->file, sizeof out->file);
        else
            copy_text(item.text, out->verdict, sizeof out->verdict);
    }
}

static void check_case(const char *folder, const case_entry *entry, size_t *accepted,
                       size_t *rejected) {
    char path[512];
    rn_checkpoint *checkpoint;
    snprintf(path, sizeof path, "%s/%s", folder, entry->file);
    rn_status s = rn_checkpoint_open(test_data(path), &checkpoint);
    bool expected = strcmp(entry->verdict, "accept") == 0;
    assert_true(expected || strcmp(entry->verdict, "reject") == 0);
    if ((s == RN_OK) != expected)
        fail_msg("%s: %s is expected: %s, %s", entry->file, entry->verdict, rn_status_name(s),
                 s == RN_OK ? "" : rn_last_error()->message);
    rn_checkpoint_close(checkpoint);
    (*(expected ? accepted : rejected))++;
    if (expected) return;
    assert_true(s == RN_CORRUPT || s == RN_UNSUPPORTED);
    assert_true(rn_last_error()->message[0] != '\0');
    assert_string_equal(rn_last_error()->path, test_data(path));
}

static void check_collection(const char *folder, const char *field) {
    char path[512];
    size_t bytes, accepted = 0, rejected = 0;
    rn_json_reader json;
    rn_json_item item;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    (void)test_data_or_skip(path);
    char *text = test_read(test_data(path), &bytes);
    rn_json_reader_init(&json, (rn_str){text, bytes}, &rn_system_allocator);
    assert_ok(rn_json_expect(&json, RN_JSON_OBJECT, NULL));
    do
        assert_ok(rn_json_expect(&json, RN_JSON_KEY, &item));
    while (!rn_str_equal(item.text, RN_STR("cases")) && rn_json_skip(&json) == RN_OK);
    assert_ok(rn_json_expect(&json, RN_JSON_ARRAY, NULL));
    while (rn_json_next(&json, &item) == RN_OK && item.kind == RN_JSON_OBJECT) {
        case_entry entry;
        read_case(&json, field, &entry);
        check_case(folder, &entry, &accepted, &rejected);
    }
    assert_int_equal(item.kind, RN_JSON_ARRAY_END);
    rn_json_reader_free(&json);
    free(text);
    print_message("%s: %zu accepted, %zu rejected\n", folder, accepted, rejected);
    assert_true(accepted > 0 && rejected > 0);
}

static void every_safetensors_case_gets_its_verdict(void **state) {
    (void)state;
    check_collection("formats/safetensors_cases", "strict");
}

static void every_gguf_case_gets_its_verdict(void **state) {
    (void)state;
    check_collection("formats/gguf_cases", "expect");
}

static void files_in_the_wild_are_read_or_refused_with_a_reason(void **state) {
    static const struct {
        const char *file;
        rn_status status;
        const char *words;
    } files[] = {
        {"formats/gguf_valid/ggml-vocab-llama-spm-be.gguf", RN_UNSUPPORTED, "big-endian"},
        {"formats/third_party/gguf_v1_ggml-vocab-llama.gguf", RN_UNSUPPORTED, "version 1"},
        {"formats/third_party/llamacpp_pr_unknown_kvtype13.gguf", RN_CORRUPT, "value type 13"},
        {"formats/third_party/prehistoric_FUGG_example.gguf", RN_CORRUPT, "GGUF"},
        {"formats/third_party/weight-inspect_tiny.gguf", RN_CORRUPT, "the tensors end"},
        {"formats/third_party/weight-inspect_tiny.safetensors", RN_CORRUPT, "the tensors end"},
        {"formats/third_party/weight-inspect_empty.gguf", RN_OK, ""},
        {"llama/llama-2-tiny-random/llama-2-tiny-random.gguf", RN_OK, ""},
        {"llama/lora/discollama_lora_adapters.safetensors", RN_OK, ""},
    };
    size_t found = 0;
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        rn_checkpoint *checkpoint;
        const char *path = test_data(files[i].file);
        if (!path) continue;
        found++;
        rn_status s = rn_checkpoint_open(path, &checkpoint);
        if (s != files[i].status) fail_msg("%s: %s", files[i].file, rn_status_name(s));
        if (s != RN_OK) assert_non_null(strstr(rn_last_error()->message, files[i].words));
        rn_checkpoint_close(checkpoint);
    }
    size_t missing = sizeof files / sizeof *files - found;
    if (missing > 0) skip_because("no test data: %zu files of formats/ and llama/", missing);
}

// ---- the same weights in three formats ---------------------------------------------------------

enum { MOST_ELEMENTS = 512 * 64, HEAD_ROWS = 8 };

static void load(const rn_checkpoint *c, const char *name, float *out, uint64_t *out_elements) {
    const rn_tensor_info *t = rn_checkpoint_find(c, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_true(t->elements <= MOST_ELEMENTS);
    *out_elements = t->elements;
    assert_ok(rn_checkpoint_load(c, t, RN_DTYPE_F32, out, t->elements * sizeof(float)));
}

// The Hugging Face form has the rows of each head of q and k sorted by halves, the other by pairs.
static void pair_rows(float *values, uint64_t elements) {
    static float sorted[MOST_ELEMENTS];
    const uint64_t width = 64;
    for (uint64_t row = 0; row < elements / width; row++) {
        uint64_t head = row / HEAD_ROWS, within = row % HEAD_ROWS;
        uint64_t to = head * HEAD_ROWS + within % (HEAD_ROWS / 2) * 2 + within / (HEAD_ROWS / 2);
        memcpy(sorted + to * width, values + row * width, width * sizeof *values);
    }
    memcpy(values, sorted, elements * sizeof *values);
}

// The most that rounding to this type moves a value of a block whose largest is `most`: half a step
// (a whole one at q4_0's upper end, where there is one level less), and the scale's own rounding to
// f16.
static double allowed_error(rn_dtype dtype, double value, double most) {
    switch (dtype) {
    case RN_DTYPE_F32:
        return 0;
    case RN_DTYPE_F16:
        return fabs(value) * 0x1p-11 + 0x1p-25;
    case RN_DTYPE_Q8_0:
        return most / 127 * (0.5 + 127 * 0x1p-11) + 0x1p-24;
    default:
        return most / 8 * (1 + 8 * 0x1p-11) + 0x1p-24;
    }
}

static double compare(const char *name, rn_dtype dtype, const float *exact, const float *got,
                      uint64_t elements) {
    double largest = 0;
    for (uint64_t i = 0; i < elements; i++) {
        double most = 0;
        for (uint64_t k = i / 32 * 32; k < i / 32 * 32 + 32 && k < elements; k++)
            most = fmax(most, fabs((double)exact[k]));
        double off = fabs((double)exact[i] - (double)got[i]);
        if (!(off <= allowed_error(dtype, (double)exact[i], most)))
            fail_msg("%s[%llu]: %g instead of %g", name, (unsigned long long)i, (double)got[i],
                     (double)exact[i]);
        largest = fmax(largest, off);
    }
    return largest;
}

static const char *const layer_names[][2] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_down", "mlp.down_proj"},
    {"ffn_up", "mlp.up_proj"},
};

static double compare_tensors(const rn_checkpoint *hf, const char *hf_name,
                              const rn_checkpoint *gguf, const char *gguf_name, bool paired) {
    static float exact[MOST_ELEMENTS], got[MOST_ELEMENTS];
    uint64_t elements, other;
    load(hf, hf_name, exact, &elements);
    load(gguf, gguf_name, got, &other);
    assert_int_equal(elements, other);
    if (paired) pair_rows(exact, elements);
    return compare(gguf_name, rn_checkpoint_find(gguf, gguf_name)->dtype, exact, got, elements);
}

static size_t compare_models(const rn_checkpoint *hf, const rn_checkpoint *gguf, double *largest) {
    size_t count = 0;
    char hf_name[96], gguf_name[96];
    *largest =
        fmax(compare_tensors(hf, "model.embed_tokens.weight", gguf, "token_embd.weight", false),
             compare_tensors(hf, "model.norm.weight", gguf, "output_norm.weight", false));
    for (int layer = 0; layer < 5; layer++)
        for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++, count++) {
            snprintf(gguf_name, sizeof gguf_name, "blk.%d.%s.weight", layer, layer_names[i][0]);
            snprintf(hf_name, sizeof hf_name, "model.layers.%d.%s.weight", layer,
                     layer_names[i][1]);
            bool paired = i == 1 || i == 2;
            *largest = fmax(*largest, compare_tensors(hf, hf_name, gguf, gguf_name, paired));
        }
    return count + 2;
}

static void gguf_and_safetensors_of_a_model_agree(void **state) {
    static const char *const files[] = {"ctx512", "q8_0", "q4_0"};
    const char *folder = test_data_or_skip("llama/stories260K/hf");
    rn_checkpoint *hf, *gguf;
    (void)state;
    assert_ok(
        rn_checkpoint_open(folder, &hf)); // model.safetensors comes before model.f16.safetensors
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        double largest;
        snprintf(path, sizeof path, "llama/stories260K/stories260K.%s.gguf", files[i]);
        assert_ok(rn_checkpoint_open(test_data(path), &gguf));
        size_t count = compare_models(hf, gguf, &largest);
        print_message("%s: %zu tensors agree, largest difference %g\n", files[i], count, largest);
        rn_checkpoint_close(gguf);
    }
    rn_checkpoint_close(hf);
}

static void halves_and_floats_of_a_model_agree(void **state) {
    static float exact[MOST_ELEMENTS], got[MOST_ELEMENTS];
    const char *full = test_data_or_skip("llama/stories260K/hf/model.safetensors");
    const char *half = test_data_or_skip("llama/stories260K/hf/model.f16.safetensors");
    rn_checkpoint *a, *b;
    (void)state;
    assert_ok(rn_checkpoint_open(full, &a));
    assert_ok(rn_checkpoint_open(half, &b));
    assert_int_equal(rn_checkpoint_count(a), rn_checkpoint_count(b));
    for (size_t i = 0; i < rn_checkpoint_count(a); i++) {
        uint64_t elements, other;
        const char *name = rn_checkpoint_tensor(a, i)->name.data;
        load(a, name, exact, &elements);
        load(b, name, got, &other);
        assert_int_equal(elements, other);
        (void)compare(name, rn_checkpoint_find(b, name)->dtype, exact, got, elements);
    }
    rn_checkpoint_close(a);
    rn_checkpoint_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_safetensors_case_gets_its_verdict),
        cmocka_unit_test(every_gguf_case_gets_its_verdict),
        cmocka_unit_test(files_in_the_wild_are_read_or_refused_with_a_reason),
        cmocka_unit_test(gguf_and_safetensors_of_a_model_agree),
        cmocka_unit_test(halves_and_floats_of_a_model_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
