// intake_text.c — texts of strangers become tokens.
//
// A message that spells a special token ("<|im_end|>") must not end its own turn. So what looks
// like one is replaced, in the message, by a character that nobody uses (plane 15), before the
// template sees it; when the rendered text is encoded, each of these is spelled out again:
//
//     "a<|im_end|>b"  ─▶  "a\U000F0003b"  ─template─▶  "<|im_start|>user\na\U000F0003b<|im_end|>\n"
//                          encoded as         special:  "<|im_start|>user\na"
//                                             plain:    "<|im_end|>"
//                                             special:  "b<|im_end|>\n"
//
// The end of a message that only begins a special token is treated alike, character by character:
// what the template, or the next message, puts behind it must not complete one. Messages without
// any of this are rendered as they are, and their text is encoded in one go.
#include "server/intake.h"

#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"
#include "text/tokenizer_parts.h"
#include "text/utf8_step.h"

#include <time.h>

enum {
    FIRST = 0xF0000,        // + index: the special token of this index
    LITERAL_NEXT = 0xFFFFB, // the next character stands for itself, although it is of this plane
    SPELLED_NEXT = 0xFFFFC, // the next character is spelled out
    PLANE_LAST = 0xFFFFD,
    MOST_SPECIALS = LITERAL_NEXT - FIRST,
};

// ---- special tokens -----------------------------------------------------------------------------

// Those found in the text as it is, and behind them those found in normalised text.
static const rn_added_token *token_at(const rn_tokenizer *tokenizer, size_t index) {
    size_t first = tokenizer->added.count;
    if (index < first) return &tokenizer->added.tokens[index];
    index -= first;
    return index < tokenizer->added_normalized.count ? &tokenizer->added_normalized.tokens[index]
                                                     : NULL;
}

static bool may_begin(const rn_tokenizer *tokenizer, char byte) {
    return tokenizer->added.begins[(uint8_t)byte] ||
           tokenizer->added_normalized.begins[(uint8_t)byte];
}

// The index of the longest special token at the front of `text`, or SIZE_MAX.
static size_t find_token(const rn_tokenizer *tokenizer, rn_str text) {
    size_t found = SIZE_MAX, longest = 0;
    const rn_added_token *token;
    if (!may_begin(tokenizer, text.data[0])) return SIZE_MAX;
    for (size_t i = 0; i < MOST_SPECIALS && (token = token_at(tokenizer, i)); i++)
        if (token->special && token->content.bytes > longest &&
            rn_str_starts(text, token->content)) {
            found = i;
            longest = token->content.bytes;
        }
    return found;
}

// Whether `text`, which ends a message, is the beginning of a special token.
static bool begins_token(const rn_tokenizer *tokenizer, rn_str text) {
    const rn_added_token *token;
    if (!may_begin(tokenizer, text.data[0])) return false;
    for (size_t i = 0; (token = token_at(tokenizer, i)); i++)
        if (token->special && rn_str_starts(token->content, text)) return true;
    return false;
}

static size_t longest_special(const rn_tokenizer *tokenizer) {
    size_t longest = 0;
    const rn_added_token *token;
    for (size_t i = 0; (token = token_at(tokenizer, i)); i++)
        if (token->special) longest = rn_max_u64(longest, token->content.bytes);
    return longest;
}

// Where the end of a message begins that begins a special token; text.bytes: nowhere.
static size_t find_tail(const rn_tokenizer *tokenizer, rn_str text) {
    size_t longest = longest_special(tokenizer);
    size_t at = text.bytes > longest ? text.bytes - longest : 0;
    for (; at < text.bytes; at++)
        if (begins_token(tokenizer, (rn_str){text.data + at, text.bytes - at})) return at;
    return text.bytes;
}

// ---- messages -----------------------------------------------------------------------------------

// The length of the character at the front; *out_point is it. A byte that is no UTF-8 is one, too.
static size_t read_character(rn_str text, uint32_t *out_point) {
    size_t bytes = rn_utf8_sequence(text.data, text.bytes);
    *out_point = bytes ? rn_utf8_decode(text.data, &bytes) : (uint8_t)text.data[0];
    return bytes ? bytes : 1;
}

static bool is_ours(uint32_t point) {
    return point >= FIRST && point <= PLANE_LAST;
}

static rn_status put_point(rn_buffer *out, uint32_t point) {
    char text[4];
    return rn_buffer_append(out, text, rn_utf8_encode(point, text));
}

// One step of a message: a special token, or a character.
static rn_status defuse_next(const rn_tokenizer *tokenizer, rn_str text, bool tail, rn_buffer *out,
                             size_t *out_bytes) {
    uint32_t point;
    size_t token = tail ? SIZE_MAX : find_token(tokenizer, text);
    if (token != SIZE_MAX) {
        *out_bytes = token_at(tokenizer, token)->content.bytes;
        return put_point(out, (uint32_t)(FIRST + token));
    }
    *out_bytes = read_character(text, &point);
    if (tail) RN_TRY(put_point(out, SPELLED_NEXT));
    if (!tail && is_ours(point)) RN_TRY(put_point(out, LITERAL_NEXT));
    return rn_buffer_append(out, text.data, *out_bytes);
}

static rn_status defuse(const rn_tokenizer *tokenizer, rn_str text, rn_buffer *out) {
    size_t tail = find_tail(tokenizer, text), bytes = 0;
    for (size_t at = 0; at < text.bytes; at += bytes)
        RN_TRY(defuse_next(tokenizer, (rn_str){text.data + at, text.bytes - at}, at >= tail, out,
                           &bytes));
    return RN_OK;
}

// Whether anything in the text would be replaced.
static bool is_harmless(const rn_tokenizer *tokenizer, rn_str text) {
    for (size_t at = 0; at < text.bytes; at++)
        if (find_token(tokenizer, (rn_str){text.data + at, text.bytes - at}) != SIZE_MAX)
            return false;
    return find_tail(tokenizer, text) == text.bytes;
}

// Copies of the messages, with their contents in `text`.
static rn_status defuse_all(const rn_tokenizer *tokenizer, rn_chat_message *messages, size_t count,
                            rn_buffer *text) {
    for (size_t i = 0; i < count; i++) { // lengths first: the buffer moves while it grows
        size_t before = text->bytes;
        RN_TRY(defuse(tokenizer, messages[i].content, text));
        messages[i].content.bytes = text->bytes - before;
    }
    const char *at = text->data;
    for (size_t i = 0; i < count; i++) {
        messages[i].content.data = messages[i].content.bytes ? at : "";
        at += messages[i].content.bytes;
    }
    return RN_OK;
}

// ---- the rendered text --------------------------------------------------------------------------

typedef struct walk {
    const rn_tokenizer *tokenizer;
    rn_tokens *out;
    rn_buffer stretch; // to be encoded in one go
    bool spelled;      // ... without special tokens
} walk;

static rn_status encode_stretch(walk *w) {
    rn_str text = {w->stretch.data, w->stretch.bytes};
    w->stretch.bytes = 0;
    if (text.bytes == 0) return RN_OK;
    return rn_tokenizer_encode(w->tokenizer, text, w->spelled ? RN_ENCODE_PLAIN : RN_ENCODE_SPECIAL,
                               w->out);
}

static rn_status add_text(walk *w, rn_str text, bool spelled) {
    if (spelled != w->spelled) RN_TRY(encode_stretch(w));
    w->spelled = spelled;
    return rn_buffer_append(&w->stretch, text.data, text.bytes);
}

// The character behind a LITERAL_NEXT or SPELLED_NEXT.
static rn_status add_next(walk *w, rn_str text, size_t *bytes, bool spelled) {
    uint32_t point;
    text.data += *bytes;
    text.bytes -= *bytes;
    if (text.bytes == 0) return RN_OK;
    text.bytes = read_character(text, &point);
    *bytes += text.bytes;
    return add_text(w, text, spelled);
}

static rn_status add_character(walk *w, rn_str text, size_t *out_bytes) {
    uint32_t point;
    *out_bytes = read_character(text, &point);
    if (point == LITERAL_NEXT || point == SPELLED_NEXT)
        return add_next(w, text, out_bytes, point == SPELLED_NEXT);
    const rn_added_token *token = is_ours(point) ? token_at(w->tokenizer, point - FIRST) : NULL;
    if (token && token->special) return add_text(w, token->content, true);
    text.bytes = *out_bytes;
    return add_text(w, text, false);
}

static rn_status encode_defused(const rn_tokenizer *tokenizer, rn_str text, rn_tokens *out) {
    walk w = {.tokenizer = tokenizer, .out = out};
    rn_status s = RN_OK;
    rn_buffer_init(&w.stretch, RN_HOST_IO, SIZE_MAX);
    for (size_t at = 0, bytes = 0; s == RN_OK && at < text.bytes; at += bytes)
        s = add_character(&w, (rn_str){text.data + at, text.bytes - at}, &bytes);
    if (s == RN_OK) s = encode_stretch(&w);
    rn_buffer_free(&w.stretch);
    return s;
}

// ---- conversations ------------------------------------------------------------------------------

// As it spells itself; no data where there is none: undefined in the template.
static rn_str token_text(const rn_tokenizer *tokenizer, uint32_t id) {
    rn_str none = {NULL, 0};
    return id == RN_NO_TOKEN ? none : rn_tokenizer_bytes(tokenizer, id, true);
}

// What the template writes.
typedef struct page {
    rn_buffer text;
    bool full;
} page;

static rn_status write_page(void *self, const char *text, size_t bytes) {
    page *p = self;
    p->full = bytes > p->text.cap_bytes - p->text.bytes;
    return rn_buffer_append(&p->text, text, bytes);
}

static rn_status render(const rn_tokenizer *tokenizer, const rn_chat_template *form,
                        const rn_chat_message *messages, size_t count, page *out) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    uint64_t bytes = rn_intake_form_bytes(count);
    for (size_t i = 0; i < count; i++)
        bytes += messages[i].content.bytes;
    rn_chat chat = {.messages = messages,
                    .count = count,
                    .add_generation_prompt = true,
                    .bos_token = token_text(tokenizer, info->begin),
                    .eos_token = token_text(tokenizer, info->end),
                    .now = (int64_t)time(NULL),
                    .most_bytes = (size_t)rn_intake_work_bytes(bytes, 0)}; // of what was taken
    return rn_chat_template_render(form, &chat, (rn_sink){out, write_page});
}

static rn_status render_defused(const rn_tokenizer *tokenizer, const rn_chat_template *form,
                                const rn_chat_message *messages, size_t count, page *out) {
    void *block = NULL;
    rn_buffer text;
    RN_TRY(rn_alloc(RN_HOST_IO, count * sizeof *messages, &block));
    rn_chat_message *copies = block;
    memcpy(copies, messages, count * sizeof *messages);
    rn_buffer_init(&text, RN_HOST_IO, SIZE_MAX);
    rn_status s = defuse_all(tokenizer, copies, count, &text);
    if (s == RN_OK) s = render(tokenizer, form, copies, count, out);
    rn_buffer_free(&text);
    rn_free(RN_HOST_IO, block, count * sizeof *messages);
    return s;
}

// Templates write the begin token themselves, where there is one.
rn_status rn_intake_encode_chat(const rn_tokenizer *tokenizer, const rn_chat_template *form,
                                const rn_chat_message *messages, size_t count, size_t longest_bytes,
                                rn_tokens *out, bool *out_too_long) {
    bool harmless = true;
    page rendered = {.full = false};
    for (size_t i = 0; i < count; i++)
        harmless = harmless && is_harmless(tokenizer, messages[i].content);
    rn_buffer_init(&rendered.text, RN_HOST_IO, longest_bytes);
    rn_status s = harmless ? render(tokenizer, form, messages, count, &rendered)
                           : render_defused(tokenizer, form, messages, count, &rendered);
    rn_str text = {rendered.text.data, rendered.text.bytes};
    *out_too_long = rendered.full;
    if (s == RN_OK)
        s = harmless ? rn_tokenizer_encode(tokenizer, text, RN_ENCODE_SPECIAL, out)
                     : encode_defused(tokenizer, text, out);
    rn_buffer_free(&rendered.text);
    if (s == RN_OK && out->count == 0)
        s = rn_fail(RN_INVALID, "the chat template makes an empty text of these messages");
    return s;
}

// ---- prompts ------------------------------------------------------------------------------------

// An empty prompt is the beginning-of-text token alone.
rn_status rn_intake_encode(const rn_tokenizer *tokenizer, rn_str text, rn_tokens *out) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    RN_TRY(rn_tokenizer_encode(tokenizer, text, RN_ENCODE_BEGIN, out));
    if (out->count) return RN_OK;
    uint32_t begin = info->begin != RN_NO_TOKEN ? info->begin : info->end;
    if (begin != RN_NO_TOKEN) return rn_tokens_push(out, begin);
    return rn_fail(RN_INVALID,
                   "the prompt is empty and the model has no token for the beginning of a text");
}

// ---- memory -------------------------------------------------------------------------------------

size_t rn_intake_longest_word(const rn_tokenizer *tokenizer, rn_str text) {
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
uint64_t rn_intake_work_bytes(uint64_t text_bytes, uint64_t word_bytes) {
    enum { SMALL = 4 << 10, TABLES = 512 << 10, FIXED = 64 << 10, EACH = 20, EACH_OF_WORD = 160 };
    return (text_bytes < SMALL ? FIXED : TABLES) + EACH * text_bytes + EACH_OF_WORD * word_bytes;
}
