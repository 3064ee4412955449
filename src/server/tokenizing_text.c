// tokenizing_text.c — texts of strangers become tokens: special tokens that they spell stay text.
#include "server/tokenizing.h"

#include "base/checked.h"
#include "base/str.h"
#include "text/chat_text.h"
#include "text/tokenizer_parts.h"

#include <time.h>

// ---- conversations ------------------------------------------------------------------------------

rn_status rn_tokenizing_encode_chat(const rn_tokenizer *tokenizer, const rn_chat_template *form,
                                    const rn_request *request, size_t longest_bytes, rn_tokens *out,
                                    bool *out_too_long) {
    uint64_t bytes =
        rn_tokenizing_form_bytes(request->message_count) + rn_tokenizing_text_bytes(request);
    rn_chat chat = {.messages = request->messages,
                    .count = request->message_count,
                    .add_generation_prompt = true,
                    .now = (int64_t)time(NULL),
                    .most_bytes = (size_t)rn_tokenizing_work_bytes(bytes, 0)}; // of what was taken
    if (request->tool_choice != RN_TOOL_CHOICE_NONE) chat.tools = request->tools;
    return rn_chat_encode_within(form, tokenizer, &chat, longest_bytes, out, out_too_long);
}

// ---- prompts ------------------------------------------------------------------------------------

// An empty prompt is the beginning-of-text token alone.
rn_status rn_tokenizing_encode(const rn_tokenizer *tokenizer, rn_str text, rn_tokens *out) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    RN_TRY(rn_tokenizer_encode(tokenizer, text, RN_ENCODE_BEGIN, out));
    if (out->count) return RN_OK;
    uint32_t begin = info->begin != RN_NO_TOKEN ? info->begin : info->end;
    if (begin != RN_NO_TOKEN) return rn_tokens_push(out, begin);
    return rn_fail(RN_INVALID,
                   "the prompt is empty and the model has no token for the beginning of a text");
}

// ---- memory -------------------------------------------------------------------------------------

size_t rn_tokenizing_longest_word(const rn_tokenizer *tokenizer, rn_str text) {
    bool cuts = tokenizer->spm || tokenizer->cutter.count || tokenizer->bpe.cut_at_blank;
    size_t longest = cuts ? 0 : text.bytes, begin = 0;
    for (size_t at = 1; at <= text.bytes; at++) {
        if (at < text.bytes && (text.data[at] == ' ') == (text.data[at - 1] == ' ')) continue;
        longest = rn_max_u64(longest, at - begin);
        begin = at;
    }
    return longest;
}

// Measured: words of ordinary text take 2 to 12 bytes for each of theirs (a list of ids that grows
// while it is copied, normalised text). One long word takes 53 more: a symbol and two entries of a
// heap for each byte, half as much again; and blanks that become three bytes each three times that.
uint64_t rn_tokenizing_work_bytes(uint64_t text_bytes, uint64_t word_bytes) {
    enum { SMALL = 4 << 10, TABLES = 512 << 10, FIXED = 64 << 10, EACH = 20, EACH_OF_WORD = 160 };
    return (text_bytes < SMALL ? FIXED : TABLES) + EACH * text_bytes + EACH_OF_WORD * word_bytes;
}
