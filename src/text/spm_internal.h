// spm_internal.h — what the files of the SentencePiece encoder share.
//
//     text ─▶ spm_normalize ─▶ spm_encode ─▶ spm_bpe, spm_unigram
//                               ids ◀─ rn_spm_emit ◀──┘
#ifndef RN_TEXT_SPM_INTERNAL_H
#define RN_TEXT_SPM_INTERNAL_H

#include "base/str.h"
#include "memory/account.h"
#include "text/charsmap.h"
#include "text/spm.h"
#include "text/spm_trie.h"

#define RN_SPM_BLANK "\xe2\x96\x81" // U+2581, stands for ' '

struct rn_spm {
    rn_spm_options options; // the charsmap's bytes are ours
    rn_spm_piece *pieces;   // (count)
    size_t count;
    char *texts; // (text_bytes): of all pieces
    size_t text_bytes;
    // What text is cut into: normal and user-defined pieces and, but for unigram, unused ones. BPE:
    // `rank` orders as the scores do; unigram: `weight` is what a piece adds to a path.
    rn_spm_trie normal;
    rn_spm_trie reserved; // the others
    rn_spm_trie user;     // user-defined pieces; no units where there are none
    rn_charsmap charsmap;
    uint32_t bytes[256]; // ids of the byte pieces, or RN_NO_TOKEN
    bool has_unused;
    double unknown_weight;
    size_t reach; // bytes of the longest piece, and at least of a character
    // Bytes that the normaliser copies as they are: always, or if ASCII (or nothing) follows.
    bool plain[256], plain_before_ascii[256];
    // joins[a][b]: a piece has byte a before a character that begins with b. The blank counts as
    // JOIN_BLANK, which begins no character.
    uint32_t joins[256][8];
};
#define RN_SPM_JOIN_BLANK 0xff

static inline bool rn_spm_is_blank(const char *text, size_t bytes) {
    return bytes >= 3 && memcmp(text, RN_SPM_BLANK, 3) == 0;
}
// Length of the character at text[0] as its first byte has it, also where it is not valid.
static inline size_t rn_spm_width(const char *text, size_t bytes) {
    size_t width = (size_t) "\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4"[(uint8_t)*text >> 4];
    return width < bytes ? width : bytes;
}
// Length of the user-defined piece at text[0], or 0.
static inline size_t rn_spm_user_bytes(const rn_spm *spm, const char *text, size_t bytes) {
    return spm->user.units ? rn_spm_trie_longest(&spm->user, text, bytes) : 0;
}
// Length of what the text begins with before anything is joined: a user-defined piece, or a
// character, which where it is not valid may reach over the beginning of such a piece.
static inline size_t rn_spm_symbol_bytes(const rn_spm *spm, const char *text, size_t bytes) {
    size_t piece = rn_spm_user_bytes(spm, text, bytes);
    return piece ? piece : rn_spm_width(text, bytes);
}

// ---- one call of rn_spm_encode ------------------------------------------------------------------

// A block that grows; contents are kept. It may begin on the stack: short texts need no memory.
typedef struct rn_spm_block {
    void *data;
    size_t bytes;
    bool owned; // from RN_HOST_OTHER
} rn_spm_block;
RN_MUST_USE rn_status rn_spm_block_grow(rn_spm_block *block, size_t bytes);
void rn_spm_block_free(rn_spm_block *block);
static inline rn_status rn_spm_block_need(rn_spm_block *block, size_t bytes) {
    return bytes <= block->bytes ? RN_OK : rn_spm_block_grow(block, bytes);
}

typedef struct rn_spm_work {
    const rn_spm *spm;
    rn_tokens *out;
    bool after_unknown;         // the last piece was the unknown one
    bool met_unknown;           // there was one in this stretch
    rn_spm_block text;          // normalised
    rn_spm_block parts;         // of one stretch: BPE's symbols, unigram's paths
    rn_spm_block heap;          // BPE: candidates
    rn_spm_block splits, stack; // BPE with unused pieces
} rn_spm_work;

// Into work->text. `first`: the dummy blank is added.
RN_MUST_USE rn_status rn_spm_normalize(rn_spm_work *work, rn_str text, bool first, rn_str *out);
RN_MUST_USE rn_status rn_spm_encode_bpe(rn_spm_work *work, rn_str text);
RN_MUST_USE rn_status rn_spm_encode_unigram(rn_spm_work *work, rn_str text);
// One piece, or text without one (RN_NO_TOKEN): its bytes, or unknown.
RN_MUST_USE rn_status rn_spm_emit(rn_spm_work *work, const char *text, size_t bytes, uint32_t id);

#endif
