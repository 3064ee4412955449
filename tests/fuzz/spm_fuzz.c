// spm_fuzz.c — the bytes as a `.model` file, and as a vocabulary with a text.
//
// A file is refused, or encodes any text into ids that exist. A vocabulary made from the bytes
// loses nothing (its pieces, byte pieces spelled, are the text again), and cutting the text into
// stretches changes nothing (a piece that is unused and occurs nowhere turns it off).
#include "base/str.h"
#include "text/spm.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_file(rn_str file) {
    rn_spm *spm;
    rn_status s = rn_spm_load(file, &spm);
    if (s != RN_OK) {
        require(s == RN_CORRUPT || s == RN_UNSUPPORTED);
        return;
    }
    rn_tokens tokens = {0};
    require(rn_spm_encode(spm, file, true, &tokens) == RN_OK);
    require(rn_spm_encode(spm, RN_STR("Some text,  more\ttext \xff"), false, &tokens) == RN_OK);
    for (size_t i = 0; i < tokens.count; i++)
        require(tokens.ids[i] < rn_spm_count(spm));
    rn_tokens_free(&tokens);
    rn_spm_destroy(spm);
}

// ---- a vocabulary -------------------------------------------------------------------------------

#define MAX_PIECES 64
#define MAX_TEXT   512
#define REPEATS    16

typedef struct vocabulary {
    rn_spm_options options;
    rn_spm_piece pieces[MAX_PIECES + 257];
    size_t count;
    char bytes[256][8];
} vocabulary;

// The first byte is the algorithm (upper two bits) and how many pieces there are at most. Each
// piece is a header (length 1..8, kind, score) and its bytes.
static rn_str take_pieces(vocabulary *v, rn_str data) {
    size_t pieces = data.bytes ? (uint8_t)data.data[0] % MAX_PIECES : 0;
    size_t at = data.bytes ? 1 : 0;
    while (v->count < pieces && at + 9 < data.bytes) {
        uint8_t head = (uint8_t)data.data[at];
        size_t bytes = 1 + (head & 7);
        v->pieces[v->count++] =
            (rn_spm_piece){{data.data + at + 1, bytes},
                           -(float)(head >> 4),
                           head & 8 && head & 0x80 ? RN_SPM_USER_DEFINED : RN_SPM_NORMAL};
        at += 1 + bytes;
    }
    return (rn_str){data.data + at, data.bytes - at};
}

static void add_bytes(vocabulary *v) {
    for (unsigned i = 0; i < 256; i++) {
        snprintf(v->bytes[i], sizeof v->bytes[i], "<0x%02X>", i);
        v->pieces[v->count++] = (rn_spm_piece){rn_str_from(v->bytes[i]), 0, RN_SPM_BYTE};
    }
}

// Without escaping and with bytes as they are, the pieces are the text.
static void check_spelling(const rn_spm *spm, rn_str text, const rn_tokens *tokens) {
    size_t at = 0;
    for (size_t i = 0; i < tokens->count; i++) {
        rn_spm_piece piece = rn_spm_get(spm, tokens->ids[i]);
        int byte = piece.kind == RN_SPM_BYTE ? rn_spm_byte(piece.text) : -1;
        char one = (char)byte;
        if (byte >= 0) piece.text = (rn_str){&one, 1};
        require(at + piece.text.bytes <= text.bytes);
        require(memcmp(text.data + at, piece.text.data, piece.text.bytes) == 0);
        at += piece.text.bytes;
    }
    require(at == text.bytes);
}

static void check_vocabulary(vocabulary *v, rn_str text) {
    rn_spm *cut, *whole;
    rn_tokens a = {0}, b = {0};
    if (rn_spm_create(&v->options, v->pieces, v->count, &cut) != RN_OK) return;
    v->pieces[v->count] =
        (rn_spm_piece){RN_STR("\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe"), 0, RN_SPM_UNUSED};
    require(rn_spm_create(&v->options, v->pieces, v->count + 1, &whole) == RN_OK);
    require(rn_spm_encode(cut, text, true, &a) == RN_OK);
    require(rn_spm_encode(whole, text, true, &b) == RN_OK);
    check_spelling(cut, text, &a);
    require(a.count == b.count &&
            (a.count == 0 || memcmp(a.ids, b.ids, a.count * sizeof *a.ids) == 0));
    rn_tokens_free(&a);
    rn_tokens_free(&b);
    rn_spm_destroy(cut);
    rn_spm_destroy(whole);
}

// Long enough that what comes again is remembered.
static void check_pieces(rn_str data) {
    static vocabulary v;
    static char text[MAX_TEXT * REPEATS];
    v.count = 0;
    rn_str rest = take_pieces(&v, data);
    add_bytes(&v);
    if (rest.bytes > MAX_TEXT) rest.bytes = MAX_TEXT;
    for (size_t i = 0; i < REPEATS && rest.bytes; i++)
        memcpy(text + i * rest.bytes, rest.data, rest.bytes);
    unsigned algorithm = RN_SPM_UNIGRAM + (data.bytes ? (uint8_t)data.data[0] / MAX_PIECES : 0);
    v.options = (rn_spm_options){.algorithm = (rn_spm_algorithm)algorithm,
                                 .byte_fallback = true,
                                 .keep_invalid = true,
                                 .unknown = RN_NO_TOKEN,
                                 .begin = RN_NO_TOKEN,
                                 .end = RN_NO_TOKEN,
                                 .pad = RN_NO_TOKEN};
    check_vocabulary(&v, (rn_str){text, rest.bytes * REPEATS});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_str bytes = {(const char *)data, size};
    check_file(bytes);
    check_pieces(bytes);
    return 0;
}
