// chat_text.c — messages to tokens: rendered, then encoded with what is known of who wrote what.
#include "text/chat_text.h"

#include "text/tokenizer_parts.h"

// As it spells itself; no data where there is none: undefined in the template.
static rn_str token_text(const rn_tokenizer *tokenizer, uint32_t id) {
    rn_str none = {NULL, 0};
    return id == RN_NO_TOKEN ? none : rn_tokenizer_bytes(tokenizer, id, true);
}

rn_status rn_chat_encode_within(const rn_chat_template *chat_template,
                                const rn_tokenizer *tokenizer, const rn_chat *chat,
                                size_t longest_bytes, rn_tokens *out, bool *out_too_long) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    rn_chat own = *chat;
    rn_chat_text made;
    rn_status s = RN_OK;
    size_t before = out->count;
    own.bos_token = token_text(tokenizer, info->begin);
    own.eos_token = token_text(tokenizer, info->end);
    *out_too_long = false;
    RN_TRY(rn_chat_text_make(chat_template, &own, &made));
    rn_str text = {made.text.data, made.text.bytes};
    *out_too_long = text.bytes > longest_bytes;
    if (*out_too_long)
        s = rn_fail(RN_INVALID, "the chat template makes %zu bytes of text, more than %zu",
                    text.bytes, longest_bytes);
    if (s == RN_OK) // templates write the begin token themselves, where there is one
        s = rn_tokenizer_encode_tainted(tokenizer, text,
                                        (rn_taint){(const uint8_t *)made.taint.data, 0}, out);
    if (s == RN_OK && out->count == before)
        s = rn_fail(RN_INVALID, "the chat template makes an empty text of these messages");
    rn_chat_text_free(&made);
    return s;
}

rn_status rn_chat_encode(const rn_chat_template *chat_template, const rn_tokenizer *tokenizer,
                         const rn_chat *chat, rn_tokens *out) {
    bool too_long;
    return rn_chat_encode_within(chat_template, tokenizer, chat, SIZE_MAX, out, &too_long);
}
