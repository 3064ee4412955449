// chat_text.h — a conversation as text that remembers who wrote it, and as tokens.
//
//     messages ─template─▶ "<|im_start|>user\n" "a<|im_end|>b" "<|im_end|>\n"
//     taint                 ................     ############   ...........
//     tokens                special, text        text           special, text
//
// The text is encoded as one, so a harmless conversation becomes what encoding its rendering with
// RN_ENCODE_SPECIAL gives. But a special token is one only where the template wrote every byte of
// it: not inside a message, not across the border of one, and not where the template's deletions or
// the tokenizer's normaliser made it of something else. See taint.h.
#ifndef RN_TEXT_CHAT_TEXT_H
#define RN_TEXT_CHAT_TEXT_H

#include "base/buffer.h"

#include <ration/chat.h>

typedef struct rn_chat_span {
    size_t begin, end;
} rn_chat_span;

typedef struct rn_chat_text {
    rn_buffer text;
    rn_buffer taint; // bits; see taint.h
    rn_buffer spans; // rn_chat_span, of bytes: what the template marks by {% generation %}
    bool spans_lost; // more of them, in a macro or a value: nobody knows where that came to stand
} rn_chat_text;

// Fails as rn_chat_template_render does; then there is nothing to free.
RN_MUST_USE rn_status rn_chat_text_make(const rn_chat_template *chat_template, const rn_chat *chat,
                                        rn_chat_text *out);
void rn_chat_text_free(rn_chat_text *text);

// rn_chat_encode for texts of at most so many bytes. RN_INVALID and *out_too_long: it is longer.
RN_MUST_USE rn_status rn_chat_encode_within(const rn_chat_template *chat_template,
                                            const rn_tokenizer *tokenizer, const rn_chat *chat,
                                            size_t longest_bytes, rn_tokens *out,
                                            bool *out_too_long);
// rn_chat_encode, and which tokens the template marks as the assistant's: from the token with a
// mark's first byte to that with its last, as transformers has it. *out_spans (to be freed, by
// RN_HOST_OTHER) are rn_chat_span of the tokens appended; empty where the template has no marks.
// RN_UNSUPPORTED: marks in a macro or a value, or tokens that do not spell the text.
RN_MUST_USE rn_status rn_chat_encode_spans(const rn_chat_template *chat_template,
                                           const rn_tokenizer *tokenizer, const rn_chat *chat,
                                           rn_tokens *out, rn_buffer *out_spans);

#endif
