// token_decoder.c — tokens to text as they come: a sequence that is not complete waits, at most
// three bytes, and so does a blank that is dropped when the text ends there.
#include "text/tokenizer_parts.h"

void rn_decoder_begin(rn_decoder *decoder, const rn_tokenizer *tokenizer, bool special) {
    *decoder = (rn_decoder){.tokenizer = tokenizer, .special = special};
}

// Whether the first bytes of a sequence of up to four may still become valid.
static bool may_become_valid(const char *text, size_t bytes) {
    static const char *const ends[] = {"\x80", "\x80\x80", "\x80\x80\x80",
                                       "\xBF", "\xBF\x80", "\xBF\x80\x80"};
    char whole[8];
    if (bytes == 0 || bytes > 3) return false;
    memcpy(whole, text, bytes);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t more = strlen(ends[i]);
        memcpy(whole + bytes, ends[i], more);
        if (rn_utf8_sequence(whole, bytes + more) == bytes + more) return true;
    }
    return false;
}

// How many bytes one U+FFFD stands for: as much as could have begun a sequence.
static size_t broken_bytes(const char *text, size_t bytes) {
    size_t count = bytes < 3 ? bytes : 3;
    while (count > 1 && !may_become_valid(text, count))
        count--;
    return count;
}

// Writes the valid front of `text`, U+FFFD for what cannot become valid; returns the bytes that
// wait.
static rn_status write_valid(rn_sink sink, rn_str text, size_t *out_waiting) {
    size_t run = 0, at = 0;
    while (at < text.bytes) {
        size_t step = rn_utf8_sequence(text.data + at, text.bytes - at);
        if (step == 0 && may_become_valid(text.data + at, text.bytes - at)) break;
        if (step == 0) {
            if (at > run) RN_TRY(rn_sink_write(sink, text.data + run, at - run));
            RN_TRY(rn_sink_write(sink, "\xEF\xBF\xBD", 3));
            step = broken_bytes(text.data + at, text.bytes - at);
            run = at + step;
        }
        at += step;
    }
    *out_waiting = text.bytes - at;
    return at > run ? rn_sink_write(sink, text.data + run, at - run) : RN_OK;
}

// What is held together with the first bytes of `text`, until nothing is held: then the rest can be
// written from where it lies.
static rn_status finish_held(rn_decoder *decoder, rn_str *text, rn_sink sink) {
    while (decoder->held_count && text->bytes) {
        size_t waiting = 0;
        decoder->held[decoder->held_count++] = *text->data++;
        text->bytes--;
        rn_str held = {decoder->held, decoder->held_count};
        RN_TRY(write_valid(sink, held, &waiting));
        memmove(decoder->held, decoder->held + held.bytes - waiting, waiting);
        decoder->held_count = (uint8_t)waiting;
    }
    return RN_OK;
}

// A blank waits for the next token, which is here now.
static rn_status release_blank(rn_decoder *decoder, rn_sink sink) {
    size_t count = decoder->held_count, waiting;
    if (count == 0 || decoder->held[count - 1] != ' ') return RN_OK;
    decoder->held_count = 0;
    return write_valid(sink, (rn_str){decoder->held, count}, &waiting);
}

static rn_status write_text(rn_decoder *decoder, rn_str text, rn_sink sink) {
    size_t waiting = 0;
    RN_TRY(release_blank(decoder, sink));
    bool hold_blank = decoder->tokenizer->strip_last && rn_str_ends(text, RN_STR(" "));
    if (hold_blank) text.bytes--;
    RN_TRY(finish_held(decoder, &text, sink));
    if (text.bytes) {
        RN_TRY(write_valid(sink, text, &waiting));
        memcpy(decoder->held, text.data + text.bytes - waiting, waiting);
        decoder->held_count = (uint8_t)waiting;
    }
    if (hold_blank) decoder->held[decoder->held_count++] = ' ';
    return RN_OK;
}

rn_status rn_decoder_put(rn_decoder *decoder, uint32_t id, rn_sink sink) {
    const rn_tokenizer *tokenizer = decoder->tokenizer;
    rn_str text = rn_tokenizer_bytes(tokenizer, id, decoder->special);
    bool special = rn_tokenizer_is_special(tokenizer, id);
    if (text.bytes == 0) return RN_OK;
    if (!decoder->started && !special && tokenizer->strip_first && text.data[0] == ' ') {
        text.data++;
        text.bytes--;
    }
    decoder->started = true;
    return write_text(decoder, text, sink);
}

rn_status rn_decoder_end(rn_decoder *decoder, rn_sink sink) {
    size_t count = decoder->held_count;
    decoder->held_count = 0;
    if (count && decoder->held[count - 1] == ' ') count--;
    return count ? rn_sink_write(sink, "\xEF\xBF\xBD", 3) : RN_OK;
}
