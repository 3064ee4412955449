// vocab_to_gguf.h — a tokenizer as the metadata of a GGUF file, tokenizer.ggml.*: what
// tokenizer_gguf.c and llama.cpp read.
#ifndef RN_TEXT_VOCAB_TO_GGUF_H
#define RN_TEXT_VOCAB_TO_GGUF_H

#include <ration/tokenizer.h>

#include "io/pairs.h"

// `size`: of the model's vocabulary; ids that the tokenizer has not are unused tokens. Byte-level
// BPE becomes "gpt2" with the pre-tokenizer that cuts text the same way, SentencePiece (also as a
// tokenizer.json of merges) "llama", unigrams "t5", WordPiece "bert". RN_UNSUPPORTED: GGUF has no
// name for how this tokenizer cuts text.
RN_MUST_USE rn_status rn_vocab_to_gguf(const rn_tokenizer *tokenizer, uint32_t size, rn_pairs *out);

#endif
