// tokenizer_json.h — what the files that read a tokenizer.json share.
#ifndef RN_TEXT_TOKENIZER_JSON_H
#define RN_TEXT_TOKENIZER_JSON_H

#include "text/json_steps.h"
#include "text/tokenizer_parts.h"

// A value as it stands in the file; empty where it is missing.
typedef struct rn_json_section {
    rn_str text;
    uint64_t base;
} rn_json_section;

typedef struct rn_tokenizer_json {
    rn_tokenizer *tokenizer;
    rn_json_section added, normalizer, pre_tokenizer, post_processor, decoder;
    // the model
    rn_json_section vocab, merges;
    bool is_unigram, is_wordpiece;
    rn_str next_prefix; // of tokens that go on with a word ("##"); in the arena
    uint64_t most_characters;
    rn_str unknown_token, suffix; // in the arena
    uint32_t unknown_id;
    // Unigram: what SentencePiece does itself
    rn_str charsmap; // decoded, in the arena
    bool has_charsmap, squeeze_blanks, has_metaspace;
    // what post-processors put around a text
    rn_json_step around;
} rn_tokenizer_json;

// Reads the four lists of steps into the tokenizer's parts; what is not known is refused by name.
RN_MUST_USE rn_status rn_tokenizer_json_steps(rn_tokenizer_json *json);

#endif
