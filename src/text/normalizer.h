// normalizer.h — what a tokenizer does to text before it cuts it.
#ifndef RN_TEXT_NORMALIZER_H
#define RN_TEXT_NORMALIZER_H

#include "base/buffer.h"
#include "text/pattern.h"

#define RN_NORMALIZER_STEPS 16

typedef enum rn_normalize_kind {
    RN_NORMALIZE_NFC,
    RN_NORMALIZE_NFD,
    RN_NORMALIZE_NFKC,
    RN_NORMALIZE_NFKD,
    RN_NORMALIZE_LOWERCASE,
    RN_NORMALIZE_PREPEND,       // `content`, unless the text is empty
    RN_NORMALIZE_REPLACE,       // what `pattern` matches by `content`
    RN_NORMALIZE_STRIP,         // white space at `left`, `right`
    RN_NORMALIZE_STRIP_ACCENTS, // combining marks
    // BERT's own:
    RN_NORMALIZE_STRIP_NONSPACING, // combining marks that take no room (Mn)
    RN_NORMALIZE_CLEAN,            // no control characters; white space becomes blanks
    RN_NORMALIZE_SPACE_CHINESE,    // blanks around Chinese characters
} rn_normalize_kind;

typedef struct rn_normalize_step {
    rn_normalize_kind kind;
    rn_pattern *pattern; // owned
    rn_str content;      // borrowed
    bool left, right;
} rn_normalize_step;

typedef struct rn_normalizer {
    rn_normalize_step steps[RN_NORMALIZER_STEPS];
    size_t count;
} rn_normalizer;

// Takes over the step's pattern, also where it fails.
RN_MUST_USE rn_status rn_normalizer_add(rn_normalizer *normalizer, rn_normalize_step step);
void rn_normalizer_free(rn_normalizer *normalizer);

// What a call needs; the result of rn_normalize lies in one of the buffers or is the text itself.
typedef struct rn_normalizing {
    rn_buffer buffers[2];
    rn_matching matching;
} rn_normalizing;
void rn_normalizing_init(rn_normalizing *normalizing, const rn_allocator *from);
void rn_normalizing_free(rn_normalizing *normalizing);

// `text` is UTF-8. `first`: it begins a text (or stands behind an added token), so PREPEND applies.
RN_MUST_USE rn_status rn_normalize(const rn_normalizer *normalizer, rn_normalizing *normalizing,
                                   rn_str text, bool first, rn_str *out);

#endif
