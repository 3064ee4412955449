// chat_text.c — messages to tokens: rendered, then encoded with what is known of who wrote what.
#include "text/chat_text.h"

#include "base/str.h"
#include "memory/account.h"
#include "text/tokenizer_parts.h"

#include <string.h>

// As it spells itself; no data where there is none: undefined in the template.
static rn_str token_text(const rn_tokenizer *tokenizer, uint32_t id) {
    rn_str none = {NULL, 0};
    return id == RN_NO_TOKEN ? none : rn_tokenizer_bytes(tokenizer, id, true);
}

// With the tokenizer's own begin and end.
static rn_status make_text(const rn_chat_template *chat_template, const rn_tokenizer *tokenizer,
                           const rn_chat *chat, rn_chat_text *out) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    rn_chat own = *chat;
    own.bos_token = token_text(tokenizer, info->begin);
    own.eos_token = token_text(tokenizer, info->end);
    return rn_chat_text_make(chat_template, &own, out);
}

// More than blanks, which templates may trim.
static bool says(const rn_chat_message *message) {
    const rn_str *content = &message->content;
    for (size_t i = 0; i < content->bytes; i++)
        if (!strchr(" \t\r\n", content->data[i]) || !content->data[i]) return true;
    return message->tools != NULL;
}

// A form for other roles than these, say: nothing of what is said would reach the model.
static rn_status check_said(const rn_chat *chat, const rn_chat_text *made) {
    rn_taint taint = {(const uint8_t *)made->taint.data, 0};
    bool said = false;
    for (size_t i = 0; i < chat->count && !said; i++)
        said = says(&chat->messages[i]);
    if (!said || made->text.bytes == 0 || rn_taint_any(taint, 0, made->text.bytes)) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "the chat template leaves out what the messages say"),
                   "it may be for other roles; --template FILE gives another");
}

static rn_status encode_text(const rn_tokenizer *tokenizer, const rn_chat_text *made,
                             rn_tokens *out) {
    size_t before = out->count;
    // Templates write the begin token themselves, where there is one.
    RN_TRY(rn_tokenizer_encode_tainted(tokenizer, (rn_str){made->text.data, made->text.bytes},
                                       (rn_taint){(const uint8_t *)made->taint.data, 0}, out));
    if (out->count > before) return RN_OK;
    return rn_fail(RN_INVALID, "the chat template makes an empty text of these messages");
}

rn_status rn_chat_encode_within(const rn_chat_template *chat_template,
                                const rn_tokenizer *tokenizer, const rn_chat *chat,
                                size_t longest_bytes, rn_tokens *out, bool *out_too_long) {
    rn_chat_text made;
    *out_too_long = false;
    RN_TRY(make_text(chat_template, tokenizer, chat, &made));
    *out_too_long = made.text.bytes > longest_bytes;
    rn_status s = RN_OK;
    if (*out_too_long)
        s = rn_fail(RN_INVALID, "the chat template makes %zu bytes of text, more than %zu",
                    made.text.bytes, longest_bytes);
    if (s == RN_OK) s = check_said(chat, &made);
    if (s == RN_OK) s = encode_text(tokenizer, &made, out);
    rn_chat_text_free(&made);
    return s;
}

rn_status rn_chat_encode(const rn_chat_template *chat_template, const rn_tokenizer *tokenizer,
                         const rn_chat *chat, rn_tokens *out) {
    bool too_long;
    return rn_chat_encode_within(chat_template, tokenizer, chat, SIZE_MAX, out, &too_long);
}

// ---- marks --------------------------------------------------------------------------------------

// Some tokenizers put a space before a text's first word.
static size_t match(rn_str bytes, rn_str rest) {
    for (size_t skipped = 0; skipped < 2 && skipped <= bytes.bytes; skipped++) {
        rn_str spelled = {bytes.data + skipped, bytes.bytes - skipped};
        if (rn_str_starts(rest, spelled)) return spelled.bytes;
        if (bytes.bytes == 0 || bytes.data[0] != ' ') break;
    }
    return SIZE_MAX;
}

// Where each of the tokens ends in the text.
static rn_status find_ends(const rn_tokenizer *tokenizer, rn_str text, const uint32_t *ids,
                           size_t count, size_t *ends) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        rn_str bytes = rn_tokenizer_bytes(tokenizer, ids[i], true);
        size_t spelled = match(bytes, (rn_str){text.data + at, text.bytes - at});
        if (spelled == SIZE_MAX)
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "the tokenizer rewrites the text at byte %zu, so that what the "
                                   "chat template marks cannot be found",
                                   at),
                           "take {%% generation %%} out of the template");
        ends[i] = at += spelled;
    }
    return RN_OK;
}

static rn_status find_tokens(const rn_chat_text *made, const size_t *ends, size_t count,
                             rn_buffer *out) {
    const rn_chat_span *spans = (const void *)made->spans.data;
    size_t token = 0;
    for (size_t i = 0; i < made->spans.bytes / sizeof *spans; i++) {
        rn_chat_span found;
        while (token < count && ends[token] <= spans[i].begin)
            token++;
        found.begin = token;
        while (token < count && ends[token] < spans[i].end)
            token++;
        found.end = token < count ? token + 1 : count;
        RN_TRY(rn_buffer_append(out, &found, sizeof found));
    }
    return RN_OK;
}

static rn_status find_spans(const rn_chat_text *made, const rn_tokenizer *tokenizer,
                            const uint32_t *ids, size_t count, rn_buffer *out) {
    void *ends = NULL;
    if (made->spans_lost)
        return rn_fail(RN_UNSUPPORTED,
                       "the chat template has {%% generation %%} in a macro or a value");
    if (made->spans.bytes == 0) return RN_OK;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof(size_t), &ends));
    rn_str text = {made->text.data, made->text.bytes};
    rn_status s = find_ends(tokenizer, text, ids, count, ends);
    if (s == RN_OK) s = find_tokens(made, ends, count, out);
    rn_free(RN_HOST_OTHER, ends, count * sizeof(size_t));
    return s;
}

rn_status rn_chat_encode_spans(const rn_chat_template *chat_template, const rn_tokenizer *tokenizer,
                               const rn_chat *chat, rn_tokens *out, rn_buffer *out_spans) {
    rn_chat_text made;
    size_t before = out->count;
    rn_buffer_init(out_spans, RN_HOST_OTHER, SIZE_MAX);
    RN_TRY(make_text(chat_template, tokenizer, chat, &made));
    rn_status s = encode_text(tokenizer, &made, out);
    if (s == RN_OK)
        s = find_spans(&made, tokenizer, out->ids + before, out->count - before, out_spans);
    rn_chat_text_free(&made);
    if (s != RN_OK) rn_buffer_free(out_spans);
    return s;
}
