// json_steps.h — normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json are all
// written alike: an object with a type and its switches, or a Sequence of them.
#ifndef RN_TEXT_JSON_STEPS_H
#define RN_TEXT_JSON_STEPS_H

#include "base/arena.h"
#include "io/json_read.h"

#define RN_JSON_AROUND 8

// The union of what all types have; missing ones are the defaults below.
typedef struct rn_json_step {
    rn_str type;
    rn_str pattern;       // Regex or String
    bool pattern_literal; // String
    rn_str content;       // content, prepend, replacement
    rn_str behavior, prepend_scheme, suffix, charsmap;
    bool invert, add_prefix_space, use_regex, split; // use_regex and split: true
    bool individual_digits, strip_left, strip_right;
    bool clean_text, handle_chinese_chars, lowercase; // BertNormalizer's: true
    int strip_accents;                                // -1: null, as lowercase
    uint64_t start, stop;
    // post-processors: names of the tokens before and behind the text, and between two
    rn_str before[RN_JSON_AROUND], after[RN_JSON_AROUND], between[RN_JSON_AROUND];
    size_t before_count, after_count, between_count;
} rn_json_step;

// Called for each step in order, those of Sequences one by one; its texts lie in the arena.
typedef rn_status (*rn_json_step_taker)(void *self, const rn_json_step *step);
// `json` is an object or null.
RN_MUST_USE rn_status rn_json_steps_read(rn_str json, uint64_t base, rn_arena *arena,
                                         rn_json_step_taker take, void *self);

#endif
