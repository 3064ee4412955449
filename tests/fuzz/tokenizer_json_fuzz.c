// tokenizer_json_fuzz.c — any bytes as a tokenizer.json, and behind a NUL any text for it: refused,
// or a tokenizer whose tokens exist and whose decoder writes UTF-8; the ledger ends where it began.
#include <ration/memory.h>
#include <ration/tokenizer.h>

#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static rn_status check_written(void *self, const char *text, size_t bytes) {
    (void)self;
    require(rn_utf8_valid((rn_str){text, bytes}));
    return RN_OK;
}

static void check_text(const rn_tokenizer *tokenizer, rn_str text, uint32_t flags) {
    rn_tokens tokens = {0};
    rn_decoder decoder;
    rn_sink sink = {NULL, check_written};
    rn_decoder_begin(&decoder, tokenizer, flags & RN_ENCODE_SPECIAL);
    if (rn_tokenizer_encode(tokenizer, text, flags, &tokens) != RN_OK) {
        require(tokens.count == 0);
    } else {
        for (size_t i = 0; i < tokens.count; i++) {
            require(tokens.ids[i] < rn_tokenizer_get_info(tokenizer)->vocab_size);
            require(rn_decoder_put(&decoder, tokens.ids[i], sink) == RN_OK);
        }
        require(rn_decoder_end(&decoder, sink) == RN_OK);
    }
    rn_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t bytes = end ? (size_t)(end - data) : size;
    rn_str text = end ? (rn_str){(const char *)end + 1, size - bytes - 1} : RN_STR(" Hi\xC3 there");
    rn_tokenizer *tokenizer;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    if (rn_tokenizer_from_json("fuzz", (rn_str){(const char *)data, bytes}, &tokenizer) == RN_OK) {
        for (uint32_t flags = 0; flags < 4; flags++)
            check_text(tokenizer, text, flags);
        rn_tokenizer_find(tokenizer, text);
        rn_tokenizer_close(tokenizer);
    } else {
        require(tokenizer == NULL && rn_last_error()->message[0]);
    }
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
    return 0;
}
