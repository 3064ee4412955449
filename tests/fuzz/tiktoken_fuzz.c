// tiktoken_fuzz.c — any bytes as a tiktoken file: refused, or every text that its tokens spell
// comes back as it was.
#include <ration/memory.h>

#include "text/tokenizer_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

// A token's own text is that token: tiktoken takes a word with a rank as it is, where the
// expression leaves it in one piece; in any case its bytes come back.
static void check_token(const rn_tokenizer *tokenizer, uint32_t id) {
    rn_str text = rn_tokenizer_bytes(tokenizer, id, true);
    rn_tokens tokens = {0};
    size_t at = 0;
    if (rn_tokenizer_encode(tokenizer, text, RN_ENCODE_PLAIN, &tokens) == RN_OK)
        for (size_t i = 0; i < tokens.count; i++) {
            rn_str piece = rn_tokenizer_bytes(tokenizer, tokens.ids[i], true);
            require(at + piece.bytes <= text.bytes);
            at += piece.bytes;
        }
    rn_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_str file = {(const char *)data, size};
    rn_tokenizer *tokenizer;
    size_t ranks = 0;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    require(rn_tokenizer_create(&tokenizer) == RN_OK);
    rn_status s = rn_load_tiktoken(tokenizer, file, true, &ranks);
    if (s == RN_OK) s = rn_add_tiktoken_specials(tokenizer, ranks);
    if (s == RN_OK) s = rn_tokenizer_finish(tokenizer);
    for (uint32_t id = 0; s == RN_OK && id < ranks && id < 64; id++)
        check_token(tokenizer, id);
    rn_tokenizer_close(tokenizer);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
    return 0;
}
