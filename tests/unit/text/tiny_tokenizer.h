// tiny_tokenizer.h — a small byte-level tokenizer.json, written by the test: the 256 bytes, a few
// merges, two added tokens.
#ifndef RN_TEST_TINY_TOKENIZER_H
#define RN_TEST_TINY_TOKENIZER_H

#include <ration/memory.h>
#include <ration/tokenizer.h>

#include "base/buffer.h"
#include "base/str.h"
#include "support.h"
#include "text/byte_letters.h"

enum { TINY_HE = 256, TINY_LL, TINY_HELL, TINY_HELLO, TINY_END, TINY_TOOL, TINY_COUNT };

static inline void tiny_put(rn_buffer *json, const char *text) {
    assert_ok(rn_buffer_append(json, text, strlen(text)));
}

static inline void tiny_put_letters(rn_buffer *json) {
    for (int byte = 0; byte < 256; byte++) {
        char letters[4], entry[32];
        size_t bytes = rn_bytes_to_letters((rn_str){(char[]){(char)byte}, 1}, letters);
        bool escaped = byte == '"' || byte == '\\';
        snprintf(entry, sizeof entry, "\"%s%.*s\": %d, ", escaped ? "\\" : "", (int)bytes, letters,
                 byte);
        tiny_put(json, entry);
    }
}

// `steps`: normalizer, pre_tokenizer, decoder and so on, each with a comma behind it; `model`:
// switches of the model, likewise.
static inline void tiny_json(rn_buffer *json, const char *steps, const char *model) {
    tiny_put(json, "{\"version\": \"1.0\", \"added_tokens\": ["
                   "{\"id\": 260, \"content\": \"<|end|>\", \"special\": true},"
                   "{\"id\": 261, \"content\": \"<tool>\", \"special\": false}], ");
    tiny_put(json, steps);
    tiny_put(json, "\"model\": {\"type\": \"BPE\", ");
    tiny_put(json, model);
    tiny_put(json, "\"vocab\": {");
    tiny_put_letters(json);
    tiny_put(json, "\"he\": 256, \"ll\": 257, \"hell\": 258, \"hello\": 259}, "
                   "\"merges\": [\"h e\", [\"l\", \"l\"], \"he ll\", \"hell o\"]}}");
}

#define TINY_STEPS                                                                                 \
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "    \
    "true}, \"decoder\": {\"type\": \"ByteLevel\"}, "

static inline rn_status tiny_open(const char *steps, const char *model, rn_tokenizer **out) {
    rn_buffer json;
    rn_buffer_init(&json, &rn_system_allocator, 1 << 20);
    tiny_json(&json, steps, model);
    rn_status s = rn_tokenizer_from_json("tiny", (rn_str){json.data, json.bytes}, out);
    rn_buffer_free(&json);
    return s;
}

static inline uint64_t tiny_held(void) {
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
}

// Encodes and compares with a list that ends with -1.
static inline void tiny_expect(const rn_tokenizer *tokenizer, rn_str text, uint32_t flags,
                               const int *want) {
    rn_tokens got = {0};
    assert_ok(rn_tokenizer_encode(tokenizer, text, flags, &got));
    for (size_t i = 0; i < got.count || want[i] >= 0; i++) {
        assert_true(i < got.count);
        assert_int_equal((int)got.ids[i], want[i]);
    }
    rn_tokens_free(&got);
}

#endif
