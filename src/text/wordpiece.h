// wordpiece.h — BERT's tokens: the longest one that begins a word, then the longest that goes on,
// and so on; a word that cannot be made of tokens is the unknown token as a whole.
//
//     "embeddings" -> "em" "##bed" "##ding" "##s"      tokenizer.json, vocab.txt
//                     "▁em" "bed" "ding" "s"           GGUF
#ifndef RN_TEXT_WORDPIECE_H
#define RN_TEXT_WORDPIECE_H

#include "text/vocab.h"

typedef struct rn_wordpiece {
    const rn_vocab *vocab; // borrowed; NULL: the tokenizer is of another kind
    rn_str begin, next;    // how tokens are spelled that begin a word, that go on; borrowed
    uint32_t unknown;
    uint32_t most_characters; // of a word: a longer one is unknown; 0: no limit
    size_t longest;           // token, in bytes; set by rn_wordpiece_finish
} rn_wordpiece;

// Once the vocabulary is sealed and the switches are set. RN_CORRUPT: there is no unknown token.
RN_MUST_USE rn_status rn_wordpiece_finish(rn_wordpiece *wordpiece);
// Appends the word's tokens.
RN_MUST_USE rn_status rn_wordpiece_encode(const rn_wordpiece *wordpiece, rn_str word,
                                          rn_tokens *out);

#endif
