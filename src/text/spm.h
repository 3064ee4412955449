// spm.h — SentencePiece: pieces with scores, joined by merging (BPE) or by the best path (unigram).
//
// Text is normalised (the model's own table of replacements, blanks to U+2581), cut into pieces,
// and what no piece covers is spelled in byte pieces or is the unknown piece.
#ifndef RN_TEXT_SPM_H
#define RN_TEXT_SPM_H

#include <ration/tokenizer.h>

typedef struct rn_spm rn_spm;

typedef enum rn_spm_algorithm {
    RN_SPM_UNIGRAM = 1,
    RN_SPM_BPE = 2,
    RN_SPM_WORD = 3,
    RN_SPM_CHAR = 4
} rn_spm_algorithm;

// As SentencePiece numbers them (GGUF's token types are the same).
typedef enum rn_spm_kind {
    RN_SPM_NORMAL = 1,
    RN_SPM_UNKNOWN = 2,
    RN_SPM_CONTROL = 3,
    RN_SPM_USER_DEFINED = 4,
    RN_SPM_UNUSED = 5,
    RN_SPM_BYTE = 6
} rn_spm_kind;

typedef struct rn_spm_piece {
    rn_str text;
    float score;
    rn_spm_kind kind;
} rn_spm_piece;

typedef struct rn_spm_options {
    rn_spm_algorithm algorithm;
    bool byte_fallback; // needs all 256 byte pieces
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    bool treat_whitespace_as_suffix; // the dummy blank stands at the end
    // Where others differ from SentencePiece; false is SentencePiece.
    bool wide_sums;    // unigram: sums in double, as Hugging Face's tokenizers have them
    bool keep_invalid; // bytes that are not UTF-8 stay, as llama.cpp has it; else they are U+FFFD
    rn_str charsmap;   // precompiled replacements, as SentencePiece stores them; {0}: none
    uint32_t unknown, begin, end, pad; // or RN_NO_TOKEN
} rn_spm_options;

// Copies the pieces and the charsmap. An `unknown` of RN_NO_TOKEN is the first piece of that kind.
// Pieces of the kinds normal, user-defined and unused are what text becomes; the others never come
// from text, whatever it says. BPE joins unused pieces and takes them apart again, unigram passes
// over them; a vocabulary for which they are ordinary (llama.cpp) gives them as normal.
// RN_CORRUPT: no pieces; an empty one (but unused); one twice; a score that is no number; byte
// pieces that are missing or misspelled; nothing for unknown text; a bad charsmap.
// RN_UNSUPPORTED: an algorithm or kind that is not known.
RN_MUST_USE rn_status rn_spm_create(const rn_spm_options *options, const rn_spm_piece *pieces,
                                    size_t count, rn_spm **out);
// A `.model` file's bytes (protobuf). RN_CORRUPT says at which byte; `begin`, `end` and `pad` are
// the control pieces that the model names so.
RN_MUST_USE rn_status rn_spm_load(rn_str file, rn_spm **out);
void rn_spm_destroy(rn_spm *spm);

const rn_spm_options *rn_spm_get_options(const rn_spm *spm);
size_t rn_spm_count(const rn_spm *spm);
// For decoding: a piece's bytes are its text with U+2581 as a blank; a byte piece's is rn_spm_byte;
// unknown and control pieces have none. Ids that do not exist are empty unused pieces.
rn_spm_piece rn_spm_get(const rn_spm *spm, uint32_t id);
// 0..255 for "<0x00>".."<0xFF>", else -1.
int rn_spm_byte(rn_str piece);
uint32_t rn_spm_find(const rn_spm *spm, rn_str piece); // or RN_NO_TOKEN
// Appends; on failure nothing is appended. `first`: the dummy blank is put (SentencePiece: always;
// others: not after a special token). A run of unknown pieces is one.
RN_MUST_USE rn_status rn_spm_encode(const rn_spm *spm, rn_str text, bool first, rn_tokens *out);

#endif
