// spm_vectors_test.c — SentencePiece models of others: every text becomes the ids that others give.
//
// llama.cpp's and llama-tokenizer-js' vectors for Llama 2, mistral-common's conversations, and
// spm_golden.txt (scripts/reference/spm_golden.py): SentencePiece itself on twelve models.
#include "support.h"

#include <ration/checkpoint.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/json_read.h"
#include "text/spm.h"

static rn_str read_text(const char *path) {
    size_t bytes;
    char *data = test_read(path, &bytes);
    return (rn_str){data, bytes};
}

static rn_spm *load(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tokenizers/%s", name);
    const char *found = test_data_or_skip(path);
    rn_str file = read_text(found);
    rn_spm *spm;
    assert_ok(rn_spm_load(file, &spm));
    free((void *)file.data);
    return spm;
}

static void check_ids(const rn_tokens *got, const uint32_t *want, size_t count, rn_str text) {
    if (got->count == count && (count == 0 || memcmp(got->ids, want, count * sizeof *want) == 0))
        return;
    size_t at = 0;
    while (at < count && at < got->count && got->ids[at] == want[at])
        at++;
    fail_msg("\"%.*s\": %zu ids instead of %zu, the first difference at %zu", RN_STR_ARG(text),
             got->count, count, at);
}

static void check_text(const rn_spm *spm, rn_str text, const uint32_t *want, size_t count) {
    rn_tokens got = {0};
    assert_ok(rn_spm_encode(spm, text, true, &got));
    check_ids(&got, want, count, text);
    rn_tokens_free(&got);
}

// ---- lists of ids as text -----------------------------------------------------------------------

// The numbers from *at to the end of the line, which is passed.
static size_t read_ids(const char **at, uint32_t *out, size_t capacity) {
    size_t count = 0;
    while (**at == ' ') {
        char *end;
        assert_true(count < capacity);
        out[count++] = (uint32_t)strtoul(*at, &end, 10);
        *at = end;
    }
    assert_int_equal(**at, '\n');
    ++*at;
    return count;
}

static const char *find_separator(const char *at) {
    const char *found = strstr(at, "\n__ggml_vocab_test__\n");
    return found ? found : at + strlen(at);
}

// The texts of `.inp` stand between separators, the ids of `.out` one line a text. The 47th and
// last text is empty and has no line.
static void check_ggml(const rn_spm *spm, const char *inputs, const char *outputs) {
    rn_str texts = read_text(test_data_or_skip(inputs)),
           lists = read_text(test_data_or_skip(outputs));
    const char *list = lists.data;
    uint32_t ids[512];
    size_t count = 0;
    for (const char *at = texts.data; *at; count++) {
        const char *end = find_separator(at);
        size_t ids_count = read_ids(&list, ids, 512);
        check_text(spm, (rn_str){at, (size_t)(end - at)}, ids, ids_count);
        at = *end ? end + strlen("\n__ggml_vocab_test__\n") : end;
    }
    assert_int_equal(count, 46);
    assert_int_equal(*list, '\0');
    check_text(spm, RN_STR(""), NULL, 0);
    free((void *)texts.data);
    free((void *)lists.data);
}

static void llama_2_gives_llama_cpps_ids(void **state) {
    (void)state;
    rn_spm *spm = load("llama2/tokenizer.model");
    assert_int_equal(rn_spm_get_options(spm)->begin, 1);
    assert_int_equal(rn_spm_get_options(spm)->end, 2);
    assert_int_equal(rn_spm_get_options(spm)->pad, RN_NO_TOKEN);
    check_ggml(spm, "tokenizers/llama2/ggml-vocab-llama-spm.gguf.inp",
               "tokenizers/llama2/ggml-vocab-llama-spm.gguf.out");
    rn_spm_destroy(spm);
}

// ---- pieces of a GGUF file ----------------------------------------------------------------------

static const rn_metadata *find_metadata(const rn_checkpoint *checkpoint, const char *key) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(checkpoint); i++) {
        const rn_metadata *entry = rn_checkpoint_metadata(checkpoint, i);
        if (rn_str_equal(entry->key, rn_str_from(key))) return entry;
    }
    fail_msg("no %s", key);
    return NULL;
}

static rn_spm *create_from_gguf(const char *name) {
    const char *path = test_data_or_skip(name);
    rn_checkpoint *checkpoint;
    assert_ok(rn_checkpoint_open(path, &checkpoint));
    const rn_metadata *texts = find_metadata(checkpoint, "tokenizer.ggml.tokens");
    const rn_metadata *scores = find_metadata(checkpoint, "tokenizer.ggml.scores");
    const rn_metadata *kinds = find_metadata(checkpoint, "tokenizer.ggml.token_type");
    rn_spm_piece *pieces = calloc(texts->count, sizeof *pieces);
    uint64_t cursors[3] = {0};
    rn_metadata item;
    size_t count = 0;
    for (; rn_metadata_next(texts, &cursors[0], &item); count++) {
        pieces[count].text = item.text;
        assert_true(rn_metadata_next(scores, &cursors[1], &item));
        pieces[count].score = (float)item.value.f64;
        assert_true(rn_metadata_next(kinds, &cursors[2], &item));
        pieces[count].kind = (rn_spm_kind)item.value.i64;
    }
    rn_spm_options options = {.algorithm = RN_SPM_BPE,
                              .byte_fallback = true,
                              .add_dummy_prefix = true,
                              .escape_whitespaces = true,
                              .keep_invalid = true,
                              .unknown = 0,
                              .begin = 1,
                              .end = 2,
                              .pad = RN_NO_TOKEN};
    rn_spm *spm;
    assert_ok(rn_spm_create(&options, pieces, count, &spm));
    free(pieces);
    rn_checkpoint_close(checkpoint);
    return spm;
}

static void vocabularies_of_gguf_files_give_llama_cpps_ids(void **state) {
    (void)state;
    rn_spm *spm = create_from_gguf("vocab/ggml-vocab-llama-spm.gguf");
    check_ggml(spm, "vocab/ggml-vocab-llama-spm.gguf.inp", "vocab/ggml-vocab-llama-spm.gguf.out");
    rn_spm_destroy(spm);
    spm = create_from_gguf("vocab/ggml-vocab-phi-3.gguf");
    check_ggml(spm, "vocab/ggml-vocab-phi-3.gguf.inp", "vocab/ggml-vocab-phi-3.gguf.out");
    rn_spm_destroy(spm);
}

// ---- JSON ---------------------------------------------------------------------------------------

static size_t read_json_ids(rn_json_reader *json, uint32_t *out, size_t capacity) {
    rn_json_item item;
    uint64_t id = 0;
    size_t count = 0;
    assert_ok(rn_json_expect(json, RN_JSON_ARRAY, NULL));
    while (true) {
        assert_ok(rn_json_next(json, &item));
        if (item.kind == RN_JSON_ARRAY_END) return count;
        assert_true(count < capacity);
        assert_ok(rn_json_u64_of(&item, &id));
        out[count++] = (uint32_t)id;
    }
}

// Goes on to the value of `key` in the object that was begun.
static void find_key(rn_json_reader *json, const char *key) {
    rn_json_item item;
    while (true) {
        assert_ok(rn_json_expect(json, RN_JSON_KEY, &item));
        if (rn_str_equal(item.text, rn_str_from(key))) return;
        assert_ok(rn_json_skip(json));
    }
}

static bool check_js_case(rn_json_reader *json, const rn_spm *spm) {
    rn_json_item item;
    char text[8192];
    uint32_t ids[2048];
    assert_ok(rn_json_next(json, &item));
    if (item.kind == RN_JSON_ARRAY_END) return false;
    find_key(json, "text");
    assert_ok(rn_json_expect(json, RN_JSON_STRING, &item));
    size_t bytes = item.text.bytes;
    assert_true(bytes <= sizeof text);
    if (bytes) memcpy(text, item.text.data, bytes);
    find_key(json, "ids");
    size_t count = read_json_ids(json, ids, 2048);
    assert_int_equal(ids[0], rn_spm_get_options(spm)->begin);
    check_text(spm, (rn_str){text, bytes}, ids + 1, count - 1);
    assert_ok(rn_json_expect(json, RN_JSON_OBJECT_END, NULL));
    return true;
}

static void llama_2_gives_llama_tokenizer_js_ids(void **state) {
    (void)state;
    rn_spm *spm = load("llama2/tokenizer.model");
    rn_str file = read_text(test_data_or_skip("tokenizers/vectors/llama_spm_js_vectors.json"));
    rn_json_reader json;
    size_t count = 0;
    rn_json_reader_init(&json, file, &rn_system_allocator);
    assert_ok(rn_json_expect(&json, RN_JSON_OBJECT, NULL));
    find_key(&json, "cases");
    assert_ok(rn_json_expect(&json, RN_JSON_ARRAY, NULL));
    while (check_js_case(&json, spm))
        count++;
    assert_int_equal(count, 12);
    rn_json_reader_free(&json);
    free((void *)file.data);
    rn_spm_destroy(spm);
}

// ---- conversations ------------------------------------------------------------------------------

// Length of the control piece at text[0] and its id, or 0. No two of them begin alike.
static size_t control_at(const rn_spm *spm, rn_str text, uint32_t *out_id) {
    for (*out_id = 0; *out_id < 16; ++*out_id) {
        rn_spm_piece piece = rn_spm_get(spm, *out_id);
        if (piece.kind == RN_SPM_CONTROL && rn_str_starts(text, piece.text))
            return piece.text.bytes;
    }
    return 0;
}

// "<0x0A>" stands for a line's end.
static rn_str spell_bytes(rn_str text) {
    char *out = malloc(text.bytes);
    size_t bytes = 0;
    for (size_t i = 0; i < text.bytes; bytes++) {
        rn_str piece = {text.data + i, text.bytes - i < 6 ? text.bytes - i : 6};
        int byte = rn_spm_byte(piece);
        out[bytes] = byte < 0 ? text.data[i] : (char)byte;
        i += byte < 0 ? 1 : 6;
    }
    free((void *)text.data);
    return (rn_str){out, bytes};
}

// The text has control pieces by name and U+2581 where a blank or a dummy blank was.
static void encode_conversation(const rn_spm *spm, rn_str text, rn_tokens *out) {
    size_t plain = 0;
    uint32_t id;
    for (size_t at = 0; at <= text.bytes;) {
        size_t bytes = control_at(spm, (rn_str){text.data + at, text.bytes - at}, &id);
        if (bytes == 0 && at < text.bytes) {
            at++;
            continue;
        }
        if (at > plain)
            assert_ok(rn_spm_encode(spm, (rn_str){text.data + plain, at - plain}, false, out));
        if (bytes == 0) return;
        assert_ok(rn_tokens_push(out, id));
        plain = at += bytes;
    }
}

static void check_conversation(const rn_spm *spm, const char *name) {
    char path[256];
    uint32_t ids[4096];
    rn_json_reader json;
    rn_tokens got = {0};
    snprintf(path, sizeof path, "tokenizers/mistral/samples/%s/text_v3.txt", name);
    rn_str text = spell_bytes(read_text(test_data_or_skip(path)));
    snprintf(path, sizeof path, "tokenizers/mistral/samples/%s/tokens_v3.json", name);
    rn_str file = read_text(test_data_or_skip(path));
    rn_json_reader_init(&json, file, &rn_system_allocator);
    assert_ok(rn_json_expect(&json, RN_JSON_OBJECT, NULL));
    find_key(&json, "tokens");
    size_t count = read_json_ids(&json, ids, 4096);
    encode_conversation(spm, text, &got);
    check_ids(&got, ids, count, rn_str_from(name));
    rn_tokens_free(&got);
    rn_json_reader_free(&json);
    free((void *)text.data);
    free((void *)file.data);
}

static void mistral_gives_mistral_commons_ids(void **state) {
    (void)state;
    rn_spm *spm = load("mistral/mistral_instruct_tokenizer_240323.model.v3");
    check_conversation(spm, "no_tools");
    check_conversation(spm, "get_weather_full");
    check_conversation(spm, "get_weather_no_history");
    rn_spm_destroy(spm);
}

// ---- SentencePiece itself -----------------------------------------------------------------------

#define TEXTS  32
#define RANDOM 1000

typedef struct golden {
    rn_str texts[TEXTS];
    size_t text_count;
    rn_str book, joined;
    rn_spm *spm;
    size_t next_text; // of this model
    size_t model_count;
} golden;

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

// As random_texts() of spm_golden.py has it.
static uint32_t random_character(uint64_t *state) {
    uint64_t kind = draw(state, 8);
    if (kind < 4) return 32 + (uint32_t)draw(state, 95);
    if (kind == 4) return 0xa0 + (uint32_t)draw(state, 0x760);
    if (kind == 5) return 0x3000 + (uint32_t)draw(state, 0x7000);
    uint32_t code = (uint32_t)draw(state, 0x110000);
    return code >= 0xd800 && code < 0xe000 ? 0x20 : code;
}

static void encode_random(const rn_spm *spm, rn_tokens *out) {
    uint64_t state = 1;
    char text[160];
    for (int i = 0; i < RANDOM; i++) {
        size_t bytes = 0;
        for (uint64_t left = draw(&state, 41); left; left--)
            bytes += rn_utf8_encode(random_character(&state), text + bytes);
        assert_ok(rn_spm_encode(spm, (rn_str){text, bytes}, true, out));
    }
}

static uint64_t digest(const rn_tokens *tokens) {
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < tokens->count; i++)
        for (int shift = 0; shift < 32; shift += 8)
            value = (value ^ (tokens->ids[i] >> shift & 0xff)) * 0x100000001b3u;
    return value;
}

static void check_digest(const golden *g, const char *name, const char *line) {
    rn_tokens got = {0};
    size_t count;
    unsigned long long want;
    assert_int_equal(sscanf(line, "%zu %llx", &count, &want), 2);
    if (strcmp(name, "random") == 0)
        encode_random(g->spm, &got);
    else
        assert_ok(rn_spm_encode(g->spm, *name == 'b' ? g->book : g->joined, true, &got));
    if (got.count != count || digest(&got) != want)
        fail_msg("model %zu, %s: %zu ids, not those of SentencePiece (%zu)", g->model_count, name,
                 got.count, count);
    rn_tokens_free(&got);
}

static rn_str parse_hex(const char *line) {
    size_t bytes = strcspn(line, "\n") / 2;
    char *text = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte;
        assert_int_equal(sscanf(line + i * 2, "%2x", &byte), 1);
        text[i] = (char)byte;
    }
    return (rn_str){text, bytes};
}

static void take_model(golden *g, const char *line) {
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\n"), line);
    rn_spm_destroy(g->spm);
    g->spm = load(name);
    g->next_text = 0;
    g->model_count++;
}

static void take_line(golden *g, const char *line) {
    uint32_t ids[256];
    if (strncmp(line, "text ", 5) == 0) {
        assert_true(g->text_count < TEXTS);
        g->texts[g->text_count++] = parse_hex(line + 5);
    } else if (strncmp(line, "model ", 6) == 0) {
        take_model(g, line + 6);
    } else if (strncmp(line, "ids", 3) == 0) {
        const char *at = line + 3;
        size_t count = read_ids(&at, ids, 256);
        assert_true(g->next_text < g->text_count);
        check_text(g->spm, g->texts[g->next_text++], ids, count);
    } else {
        char name[16];
        assert_int_equal(sscanf(line, "%15s", name), 1);
        check_digest(g, name, line + strlen(name) + 1);
    }
}

static rn_str without_blanks(rn_str text) {
    char *out = malloc(text.bytes);
    size_t bytes = 0;
    for (size_t i = 0; i < text.bytes; i++)
        if (text.data[i] != ' ') out[bytes++] = text.data[i];
    return (rn_str){out, bytes};
}

static void twelve_models_give_sentencepieces_ids(void **state) {
    (void)state;
    const char *book = test_data_or_skip("tokenizers/sentencepiece/botchan.txt");
    golden g = {.book = read_text(book)};
    g.joined = without_blanks(g.book);
    rn_str file = read_text("tests/golden/spm_golden.txt");
    for (const char *at = file.data; *at; at = strchr(at, '\n') + 1)
        take_line(&g, at);
    assert_int_equal(g.model_count, 12);
    assert_int_equal(g.next_text, g.text_count);
    rn_spm_destroy(g.spm);
    for (size_t i = 0; i < g.text_count; i++)
        free((void *)g.texts[i].data);
    free((void *)g.book.data);
    free((void *)g.joined.data);
    free((void *)file.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_2_gives_llama_cpps_ids),
        cmocka_unit_test(vocabularies_of_gguf_files_give_llama_cpps_ids),
        cmocka_unit_test(llama_2_gives_llama_tokenizer_js_ids),
        cmocka_unit_test(mistral_gives_mistral_commons_ids),
        cmocka_unit_test(twelve_models_give_sentencepieces_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
