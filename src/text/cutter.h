// cutter.h — cuts normalised text into the words that the model encodes one by one.
//
// Steps stand one behind the other; each cuts every piece that the one before gives it.
#ifndef RN_TEXT_CUTTER_H
#define RN_TEXT_CUTTER_H

#include "base/buffer.h"
#include "text/pattern.h"

#define RN_CUTTER_STEPS 12

typedef enum rn_cut_kind {
    RN_CUT_SPLIT,     // at what `pattern` matches
    RN_CUT_SPACE,     // puts a blank in front of a piece that does not begin with one
    RN_CUT_LETTERS,   // writes bytes as letters (byte_letters.h) for the steps behind it
    RN_CUT_METASPACE, // blanks become `blank`, and one is put in front as `prefix` says
} rn_cut_kind;

// What becomes of the matches (`inverted`: of the stretches between them).
typedef enum rn_cut_behavior {
    RN_CUT_ISOLATED,
    RN_CUT_REMOVED,
    RN_CUT_WITH_PREVIOUS,
    RN_CUT_WITH_NEXT,
    RN_CUT_CONTIGUOUS
} rn_cut_behavior;

typedef enum rn_prefix { RN_PREFIX_NEVER, RN_PREFIX_FIRST, RN_PREFIX_ALWAYS } rn_prefix;

typedef struct rn_cut_step {
    rn_cut_kind kind;
    rn_pattern *pattern; // owned
    rn_cut_behavior behavior;
    bool inverted;
    rn_str blank; // borrowed
    rn_prefix prefix;
} rn_cut_step;

typedef struct rn_cutter {
    rn_cut_step steps[RN_CUTTER_STEPS];
    size_t count;
    bool letters; // a LETTERS step is among them: words are turned back into bytes
} rn_cutter;

// Takes over the step's pattern, also where it fails.
RN_MUST_USE rn_status rn_cutter_add(rn_cutter *cutter, rn_cut_step step);
void rn_cutter_free(rn_cutter *cutter);

typedef struct rn_cutting {
    const rn_cutter *cutter;
    rn_buffer buffers[RN_CUTTER_STEPS + 1]; // one for each step that changes text
    rn_matching matching[RN_CUTTER_STEPS];
    rn_status (*word)(void *self, rn_str word);
    void *self;
} rn_cutting;
void rn_cutting_init(rn_cutting *cutting, const rn_cutter *cutter, const rn_allocator *from);
void rn_cutting_free(rn_cutting *cutting);

// Calls `word` for each. `text` is UTF-8; `first`: nothing stands before it.
RN_MUST_USE rn_status rn_cut(rn_cutting *cutting, rn_str text, bool first);

#endif
