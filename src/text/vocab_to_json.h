// vocab_to_json.h — the vocabulary of a GGUF file as Hugging Face's files: tokenizer.json and
// tokenizer_config.json.
#ifndef RN_TEXT_VOCAB_TO_JSON_H
#define RN_TEXT_VOCAB_TO_JSON_H

#include <ration/checkpoint.h>

#include "base/buffer.h"

// From tokenizer.ggml.*: "gpt2" is byte-level BPE cut by the named pre-tokenizer's expressions,
// "llama" BPE with byte fallback, whose merges are found from its scores as transformers finds
// them, "gemma4" the same with a list of merges, "t5" unigrams, "bert" WordPiece. RN_NOT_FOUND:
// there is no vocabulary; RN_UNSUPPORTED names a kind that is not built.
RN_MUST_USE rn_status rn_vocab_to_json(const rn_checkpoint *gguf, rn_buffer *out_tokenizer,
                                       rn_buffer *out_config);

#endif
