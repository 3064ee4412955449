// tokenizer_vectors_test.c — ids that other implementations gave for the same files: llama.cpp's
// vectors, those of transformers, swift-transformers, onnxruntime-extensions, llama-tokenizer-js
// and mistral-common. Each test says how many it checked.
#include <ration/tokenizer.h>

#include "base/buffer.h"
#include "io/json_read.h"
#include "support.h"

// ---- tools ------------------------------------------------------------------------------

static rn_tokenizer *open_data(const char *name) {
    const char *path = test_data_or_skip(name);
    rn_tokenizer *tokenizer = NULL;
    assert_ok(rn_tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static rn_str read_data(const char *name) {
    const char *path = test_data_or_skip(name);
    size_t bytes;
    char *text = test_read(path, &bytes);
    return (rn_str){text, bytes};
}

static void free_data(rn_str text) {
    free((void *)(uintptr_t)text.data);
}

static void assert_ids(rn_str text, const rn_tokens *got, const rn_tokens *want) {
    size_t i = 0;
    while (i < got->count && i < want->count && got->ids[i] == want->ids[i])
        i++;
    if (i == got->count && i == want->count) return;
    fail_msg("\"%.*s\": token %zu is %ld, not %ld", RN_STR_ARG(text), i,
             i < got->count ? (long)got->ids[i] : -1, i < want->count ? (long)want->ids[i] : -1);
}

static void check_encode(const rn_tokenizer *tokenizer, rn_str text, uint32_t flags,
                         const rn_tokens *want) {
    rn_tokens got = {0};
    assert_ok(rn_tokenizer_encode(tokenizer, text, flags, &got));
    assert_ids(text, &got, want);
    rn_tokens_free(&got);
}

static void decode(const rn_tokenizer *tokenizer, const rn_tokens *tokens, bool special,
                   rn_buffer *out) {
    rn_decoder decoder;
    rn_decoder_begin(&decoder, tokenizer, special);
    for (size_t i = 0; i < tokens->count; i++)
        assert_ok(rn_decoder_put(&decoder, tokens->ids[i], rn_buffer_sink(out)));
    assert_ok(rn_decoder_end(&decoder, rn_buffer_sink(out)));
}

// ---- llama.cpp: texts in .inp, ids in .out ----------------------------------------------

static bool next_text(rn_str *rest, rn_str *out) {
    static const char mark[] = "\n__ggml_vocab_test__\n";
    const char *end = rest->bytes ? memmem(rest->data, rest->bytes, mark, sizeof mark - 1) : NULL;
    if (!end) return false;
    *out = (rn_str){rest->data, (size_t)(end - rest->data)};
    rest->bytes -= out->bytes + sizeof mark - 1;
    rest->data = end + sizeof mark - 1;
    return true;
}

static void next_ids(rn_str *rest, rn_tokens *out) {
    out->count = 0;
    while (rest->bytes && *rest->data != '\n') {
        char *end;
        unsigned long id = strtoul(rest->data, &end, 10);
        if (end == rest->data || *end == 0) break;
        assert_ok(rn_tokens_push(out, (uint32_t)id));
        while (*end == ' ')
            end++;
        rest->bytes -= (size_t)(end - rest->data);
        rest->data = end;
    }
    if (rest->bytes) {
        rest->data++;
        rest->bytes--;
    }
}

// What a tokenizer keeps of every text, it releases.
static void check_round_trip(const rn_tokenizer *tokenizer, rn_str text, const rn_tokens *ids) {
    rn_buffer decoded;
    rn_buffer_init(&decoded, &rn_system_allocator, 1 << 20);
    decode(tokenizer, ids, false, &decoded);
    assert_int_equal(decoded.bytes, text.bytes);
    if (text.bytes) assert_memory_equal(decoded.data, text.data, text.bytes);
    rn_buffer_free(&decoded);
}

static void check_ggml(const char *name, const char *vectors) {
    char path[256];
    rn_tokenizer *tokenizer = open_data(name);
    rn_tokens want = {0};
    snprintf(path, sizeof path, "%s.inp", vectors);
    rn_str inputs = read_data(path), texts = inputs, text;
    snprintf(path, sizeof path, "%s.out", vectors);
    rn_str outputs = read_data(path), lines = outputs;
    int count = 0;
    for (; next_text(&texts, &text); count++) {
        next_ids(&lines, &want);
        check_encode(tokenizer, text, RN_ENCODE_PLAIN, &want);
        check_round_trip(tokenizer, text, &want);
    }
    print_message("%s: %d vectors of llama.cpp, and back\n", name, count);
    assert_int_equal(count, 46);
    rn_tokens_free(&want);
    free_data(inputs);
    free_data(outputs);
    rn_tokenizer_close(tokenizer);
}

static void gpt2_in_gguf_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("vocab/ggml-vocab-gpt-2.gguf", "vocab/ggml-vocab-gpt-2.gguf");
}
static void starcoder_in_gguf_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("vocab/ggml-vocab-starcoder.gguf", "vocab/ggml-vocab-starcoder.gguf");
}
static void llama2_in_gguf_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-llama-spm.gguf");
}
static void phi3_in_gguf_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("vocab/ggml-vocab-phi-3.gguf", "vocab/ggml-vocab-phi-3.gguf");
}
static void qwen_of_tiktoken_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("vocab/qwen.tiktoken", "vocab/ggml-vocab-qwen2.gguf");
}
static void llama3_of_tiktoken_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("tokenizers/llama3", "tokenizers/llama3/ggml-vocab-llama-bpe.gguf");
}
static void gpt2_of_tiktoken_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("tokenizers/gpt2/gpt2.tiktoken", "tokenizers/gpt2/ggml-vocab-gpt-2.gguf");
}
static void gpt2_of_vocab_and_merges_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("tokenizers/gpt2", "tokenizers/gpt2/ggml-vocab-gpt-2.gguf");
}
static void llama2_of_sentencepiece_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("tokenizers/llama2", "tokenizers/llama2/ggml-vocab-llama-spm.gguf");
}
static void phi3_of_json_equals_llama_cpp(void **state) {
    (void)state;
    check_ggml("tokenizers/phi-3", "vocab/ggml-vocab-phi-3.gguf");
}

// ---- vectors in JSON --------------------------------------------------------------------

// One case; which fields a file has differs.
typedef struct vector {
    rn_buffer name, text, plain,
        special; // plain, special: as decoded without and with special ones
    rn_tokens ids;
} vector;

static void init_vector(vector *v) {
    *v = (vector){0};
    rn_buffer *buffers[] = {&v->name, &v->text, &v->plain, &v->special};
    for (size_t i = 0; i < 4; i++)
        rn_buffer_init(buffers[i], &rn_system_allocator, 1 << 20);
}

static void free_vector(vector *v) {
    rn_buffer *buffers[] = {&v->name, &v->text, &v->plain, &v->special};
    for (size_t i = 0; i < 4; i++)
        rn_buffer_free(buffers[i]);
    rn_tokens_free(&v->ids);
}

static rn_str text_of(const rn_buffer *buffer) {
    return (rn_str){buffer->data, buffer->bytes};
}

static void read_text(rn_json_reader *reader, rn_buffer *out) {
    rn_json_item item;
    assert_ok(rn_json_expect(reader, RN_JSON_STRING, &item));
    out->bytes = 0;
    assert_ok(rn_buffer_append(out, item.text.data, item.text.bytes));
}

static void read_ids(rn_json_reader *reader, rn_tokens *out) {
    rn_json_item item;
    uint64_t id;
    out->count = 0;
    assert_ok(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (;;) {
        assert_ok(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return;
        assert_ok(rn_json_u64_of(&item, &id));
        assert_ok(rn_tokens_push(out, (uint32_t)id));
    }
}

static bool is_one_of(rn_str key, const char *names) {
    char padded[64];
    snprintf(padded, sizeof padded, " %.*s ", RN_STR_ARG(key));
    return strstr(names, padded) != NULL;
}

// An object whose brace has been read; objects in it count as if their keys stood here.
static void read_vector(rn_json_reader *reader, vector *v) {
    rn_json_item item;
    for (;;) {
        assert_ok(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return;
        if (is_one_of(item.text, " text input "))
            read_text(reader, &v->text);
        else if (is_one_of(item.text, " tokenizer "))
            read_text(reader, &v->name);
        else if (is_one_of(item.text,
                           " decoded_without_special integration_expected_decoded_text "))
            read_text(reader, &v->plain);
        else if (is_one_of(item.text, " decoded_with_special "))
            read_text(reader, &v->special);
        else if (is_one_of(item.text,
                           " ids ids_with_bos input_ids integration_expected_token_ids "))
            read_ids(reader, &v->ids);
        else if (is_one_of(item.text, " encoded ")) {
            assert_ok(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
            read_vector(reader, v);
        } else
            assert_ok(rn_json_skip(reader));
    }
}

// Goes into the value of `key` of the object that has just been entered.
static void enter(rn_json_reader *reader, const char *key, rn_json_kind kind) {
    rn_json_item item;
    for (;;) {
        assert_ok(rn_json_next(reader, &item));
        assert_int_equal(item.kind, RN_JSON_KEY);
        if (rn_str_equal(item.text, rn_str_from(key))) break;
        assert_ok(rn_json_skip(reader));
    }
    assert_ok(rn_json_expect(reader, kind, NULL));
}

typedef int (*vector_checker)(const rn_tokenizer *tokenizer, const vector *v);

// Each case of the list `key`; returns the sum of what `check` returns.
static int check_list(const char *file, const char *key, const rn_tokenizer *tokenizer,
                      vector_checker check) {
    rn_str json = read_data(file);
    rn_json_reader reader;
    rn_json_item item;
    int count = 0;
    rn_json_reader_init(&reader, json, &rn_system_allocator);
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    enter(&reader, key, RN_JSON_ARRAY);
    for (;;) {
        vector v;
        assert_ok(rn_json_next(&reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) break;
        init_vector(&v);
        read_vector(&reader, &v);
        count += check(tokenizer, &v);
        free_vector(&v);
    }
    rn_json_reader_free(&reader);
    free_data(json);
    return count;
}

static int check_with_begin(const rn_tokenizer *tokenizer, const vector *v) {
    check_encode(tokenizer, text_of(&v->text), RN_ENCODE_BEGIN | RN_ENCODE_SPECIAL, &v->ids);
    return 1;
}

static void llama2_equals_llama_tokenizer_js(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_data("tokenizers/llama2");
    int count = check_list("tokenizers/vectors/llama_spm_js_vectors.json", "cases", tokenizer,
                           check_with_begin);
    print_message("llama2: %d vectors of llama-tokenizer-js\n", count);
    assert_int_equal(count, 12);
    rn_tokenizer_close(tokenizer);
}

static void stories_tokenizer_equals_its_vectors(void **state) {
    (void)state;
    static const char *const names[] = {"llama/stories260K/hf",
                                        "llama/stories260K/stories260K.ctx512.gguf"};
    for (size_t i = 0; i < 2; i++) {
        rn_tokenizer *tokenizer = open_data(names[i]);
        int count = check_list("llama/stories260K/tok512_vectors.json", "cases", tokenizer,
                               check_with_begin);
        print_message("%s: %d vectors\n", names[i], count);
        assert_int_equal(count, 8);
        rn_tokenizer_close(tokenizer);
    }
}

static int check_phi3(const rn_tokenizer *tokenizer, const vector *v) {
    if (!rn_str_equal(text_of(&v->name), RN_STR("phi-3"))) return 0; // other files are not there
    return check_with_begin(tokenizer, v);
}

static void phi3_equals_onnxruntime_extensions(void **state) {
    (void)state;
    rn_tokenizer *tokenizer = open_data("tokenizers/phi-3");
    int count = check_list("tokenizers/vectors/ort_extensions_vectors.json", "cases", tokenizer,
                           check_phi3);
    print_message("phi-3: %d vectors of onnxruntime-extensions\n", count);
    assert_int_equal(count, 3);
    rn_tokenizer_close(tokenizer);
}

// ---- swift-transformers: ids, and what they decode to -----------------------------------

// What transformers does to decoded text for some tokenizers, and these vectors have in them.
static void clean_up(rn_buffer *text) {
    static const char *const pairs[][2] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (size_t at = 0; at < text->bytes; at++) {
            size_t from = strlen(pairs[i][0]), to = strlen(pairs[i][1]);
            if (text->bytes - at < from || memcmp(text->data + at, pairs[i][0], from) != 0)
                continue;
            memcpy(text->data + at, pairs[i][1], to);
            memmove(text->data + at + to, text->data + at + from, text->bytes - at - from);
            text->bytes -= from - to;
        }
}

static void check_decode(const rn_tokenizer *tokenizer, const rn_tokens *ids, bool special,
                         rn_str want) {
    rn_buffer decoded;
    rn_buffer_init(&decoded, &rn_system_allocator, 1 << 20);
    decode(tokenizer, ids, special, &decoded);
    if (!rn_str_equal(text_of(&decoded), want)) clean_up(&decoded);
    if (!rn_str_equal(text_of(&decoded), want))
        fail_msg("\"%.*s\", not \"%.*s\"", RN_STR_ARG(text_of(&decoded)), RN_STR_ARG(want));
    rn_buffer_free(&decoded);
}

static int check_swift_case(const rn_tokenizer *tokenizer, const vector *v) {
    check_with_begin(tokenizer, v);
    check_decode(tokenizer, &v->ids, false, text_of(&v->plain));
    check_decode(tokenizer, &v->ids, true, text_of(&v->special));
    return 1;
}

static void check_swift(const char *name, const char *key) {
    rn_tokenizer *tokenizer = open_data(name);
    int count = check_list("tokenizers/vectors/swift_tokenizer_tests.json", key, tokenizer,
                           check_swift_case);
    print_message("%s: %d vectors of swift-transformers (%s), decoded both ways\n", name, count,
                  key);
    assert_int_equal(count, 18);
    rn_tokenizer_close(tokenizer);
}

static void four_tokenizers_equal_swift_transformers(void **state) {
    (void)state;
    check_swift("tokenizers/gpt2", "distilgpt2");
    check_swift("tokenizers/llama2", "coreml-projects/Llama-2-7b-chat-coreml");
    check_swift("tokenizers/t5-small", "t5-base");
    check_swift("tokenizers/llama3", "pcuenq/Llama-3.2-1B-Instruct-tokenizer");
}

// ---- transformers' own ------------------------------------------------------------------

static void read_integration(const char *model, vector *v) {
    rn_str json = read_data("tokenizers/vectors/hf_integration_vectors.json");
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, json, &rn_system_allocator);
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    assert_ok(rn_json_expect(&reader, RN_JSON_KEY, &item));
    assert_true(rn_str_equal(item.text, RN_STR("input")));
    read_text(&reader, &v->text);
    enter(&reader, "models", RN_JSON_OBJECT);
    enter(&reader, model, RN_JSON_OBJECT);
    read_vector(&reader, v);
    rn_json_reader_free(&reader);
    free_data(json);
}

static void check_integration(const rn_tokenizer *tokenizer, const char *model, bool special) {
    vector v;
    init_vector(&v);
    read_integration(model, &v);
    check_encode(tokenizer, text_of(&v.text), RN_ENCODE_SPECIAL, &v.ids);
    check_decode(tokenizer, &v.ids, special, text_of(&v.plain));
    print_message("%s: 1 vector of transformers, %zu tokens, and back\n", model, v.ids.count);
    free_vector(&v);
}

static void gpt2_clip_and_t5_equal_transformers(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"tokenizers/gpt2", "gpt2"}, {"tokenizers/clip", "clip"}, {"tokenizers/t5-small", "t5"}};
    for (size_t i = 0; i < 3; i++) {
        rn_tokenizer *tokenizer = open_data(names[i][0]);
        check_integration(tokenizer, names[i][1], true);
        rn_tokenizer_close(tokenizer);
    }
}

// That vector is of a configuration that says so.
static void llama_without_legacy_equals_transformers(void **state) {
    (void)state;
    rn_str model = read_data("tokenizers/llama2/tokenizer.model");
    static const char config[] = "{\"legacy\": false, \"add_bos_token\": true}";
    test_write(test_own_path("tokenizer.model"), model.data, model.bytes);
    test_write(test_own_path("tokenizer_config.json"), config, sizeof config - 1);
    free_data(model);
    rn_tokenizer *tokenizer;
    assert_ok(rn_tokenizer_open(test_own_folder, &tokenizer));
    check_integration(tokenizer, "llama", true);
    rn_tokenizer_close(tokenizer);
}

// ---- mistral-common: whole conversations ------------------------------------------------

// The samples show blanks as U+2581, the one that SentencePiece puts behind a control token among
// them, and line breaks as <0x0A>.
static void read_shown(rn_str shown, const rn_tokenizer *tokenizer, rn_buffer *out) {
    bool behind_control = false;
    for (size_t at = 0, step; at < shown.bytes; at += step) {
        rn_str rest = {shown.data + at, shown.bytes - at};
        bool blank = rn_str_starts(rest, RN_STR("\xE2\x96\x81"));
        bool line = rn_str_starts(rest, RN_STR("<0x0A>"));
        step = blank ? 3 : line ? 6 : 1;
        if (!blank || !behind_control)
            assert_ok(rn_buffer_append(out, blank ? " " : line ? "\n" : rest.data, 1));
        behind_control = false;
        for (size_t bytes = 3; bytes <= 20 && bytes <= rest.bytes; bytes++) {
            uint32_t id = rn_tokenizer_find(tokenizer, (rn_str){rest.data, bytes});
            if (blank || line || !rn_tokenizer_is_special(tokenizer, id)) continue;
            assert_ok(rn_buffer_append(out, rest.data + 1, bytes - 1));
            step = bytes;
            behind_control = true;
        }
    }
}

static size_t check_mistral(const rn_tokenizer *tokenizer, const char *sample,
                            const char *version) {
    char path[256];
    rn_buffer text;
    vector v;
    rn_json_reader reader;
    init_vector(&v);
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    snprintf(path, sizeof path, "tokenizers/mistral/samples/%s/text_%s.txt", sample, version);
    rn_str shown = read_data(path);
    read_shown(shown, tokenizer, &text);
    snprintf(path, sizeof path, "tokenizers/mistral/samples/%s/tokens_%s.json", sample, version);
    rn_str json = read_data(path);
    rn_json_reader_init(&reader, json, &rn_system_allocator);
    assert_ok(rn_json_expect(&reader, RN_JSON_OBJECT, NULL));
    assert_ok(rn_json_expect(&reader, RN_JSON_KEY, NULL));
    read_ids(&reader, &v.ids);
    check_encode(tokenizer, text_of(&text), RN_ENCODE_SPECIAL, &v.ids);
    size_t count = v.ids.count;
    rn_json_reader_free(&reader);
    rn_buffer_free(&text);
    free_vector(&v);
    free_data(shown);
    free_data(json);
    return count;
}

static void mistral_conversations_equal_mistral_common(void **state) {
    (void)state;
    static const char *const samples[] = {"no_tools", "get_weather_no_history", "get_weather_full"};
    rn_tokenizer *v1 = open_data("tokenizers/mistral/tokenizer.model.v1");
    rn_tokenizer *v3 = open_data("tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3");
    size_t tokens = check_mistral(v1, "no_tools", "v1");
    for (size_t i = 0; i < 3; i++) {
        tokens += check_mistral(v3, samples[i], "v2"); // the same ids as far as the samples go
        tokens += check_mistral(v3, samples[i], "v3");
    }
    print_message("mistral: 7 conversations of mistral-common, %zu tokens\n", tokens);
    rn_tokenizer_close(v1);
    rn_tokenizer_close(v3);
}

// ---- files of torchtune and pytorch/tokenizers ------------------------------------------

// As `tokenizers` 0.23 encodes it.
static void check_small(const char *name, const char *text, const uint32_t *ids, size_t count) {
    rn_tokenizer *tokenizer = open_data(name);
    rn_tokens want = {.ids = (uint32_t *)(uintptr_t)ids, .count = count};
    check_encode(tokenizer, rn_str_from(text), RN_ENCODE_PLAIN, &want);
    rn_tokenizer_close(tokenizer);
}

static void files_of_torchtune_equal_tokenizers(void **state) {
    (void)state;
    static const char text[] =
        "Hello world, it's 2024!\n\tThe quick  brown fox_jumps over <of_turn> café naïve.";
    static const uint32_t ids0[] = {39,  385,  78, 675, 11,  209,  300, 95,  17,   15,
                                    17,  19,   0,  94,  298, 1394, 95,  127, 575,  77,
                                    123, 1461, 62, 73,  253, 79,   82,  510, 1254, 78,
                                    69,  62,   83, 796, 29,  910,  69,  159, 1483, 13};
    check_small("tokenizers/torchtune/tiny_bpe_tokenizer.json", text, ids0, 40);
    static const uint32_t ids1[] = {72,  381,  111, 441,  307, 44,  312, 475, 32,  50,  48,  50,
                                    52,  1492, 9,   705,  578, 709, 32,  688, 418, 275, 111, 120,
                                    95,  106,  485, 1497, 710, 32,  60,  796, 95,  116, 606, 62,
                                    282, 97,   102, 195,  169, 291, 97,  195, 175, 320, 46};
    check_small("tokenizers/torchtune/tokenizer.json", text, ids1, 47);
    static const uint32_t ids2[] = {3,  72, 28, 27, 21, 23, 18, 13, 3,  28, 17, 25, 3,  24, 28, 3,
                                    6,  3,  16, 14, 28, 3,  26, 17, 3,  28, 28, 12, 23, 21, 27, 20,
                                    28, 15, 21, 3,  10, 3,  26, 19, 22, 24, 28, 21, 3,  46, 28, 7,
                                    21, 31, 34, 28, 3,  11, 15, 3,  28, 20, 11, 3,  14, 3};
    check_small("tokenizers/torchtune/tokenizer_gemma_cropped.json", text, ids2, 62);
    print_message("torchtune: 3 files\n");
}

static void a_merge_of_tokens_that_are_not_there_is_refused(void **state) {
    (void)state;
    const char *path = test_data_or_skip("tokenizers/torchtune/test_hf_tokenizer.json");
    rn_tokenizer *tokenizer;
    assert_fails(RN_CORRUPT, rn_tokenizer_open(path, &tokenizer)); // tokenizers refuses it, too
    assert_null(tokenizer);
    assert_non_null(strstr(rn_last_error()->message, "\"H\" \"e\""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_in_gguf_equals_llama_cpp),
        cmocka_unit_test(starcoder_in_gguf_equals_llama_cpp),
        cmocka_unit_test(llama2_in_gguf_equals_llama_cpp),
        cmocka_unit_test(phi3_in_gguf_equals_llama_cpp),
        cmocka_unit_test(qwen_of_tiktoken_equals_llama_cpp),
        cmocka_unit_test(llama3_of_tiktoken_equals_llama_cpp),
        cmocka_unit_test(gpt2_of_tiktoken_equals_llama_cpp),
        cmocka_unit_test(gpt2_of_vocab_and_merges_equals_llama_cpp),
        cmocka_unit_test(llama2_of_sentencepiece_equals_llama_cpp),
        cmocka_unit_test(phi3_of_json_equals_llama_cpp),
        cmocka_unit_test(llama2_equals_llama_tokenizer_js),
        cmocka_unit_test(stories_tokenizer_equals_its_vectors),
        cmocka_unit_test(phi3_equals_onnxruntime_extensions),
        cmocka_unit_test(four_tokenizers_equal_swift_transformers),
        cmocka_unit_test(gpt2_clip_and_t5_equal_transformers),
        cmocka_unit_test_setup(llama_without_legacy_equals_transformers, test_make_folder),
        cmocka_unit_test(mistral_conversations_equal_mistral_common),
        cmocka_unit_test(files_of_torchtune_equal_tokenizers),
        cmocka_unit_test(a_merge_of_tokens_that_are_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
