// cutter.c — a chain of calls: a step hands each piece to the next one, the last to the caller, so
// there is never a list of pieces.
#include "text/cutter.h"

#include "base/checked.h"
#include "text/byte_letters.h"
#include "text/utf8_step.h"

enum { GROWTH_CAP_BYTES = 1 << 30 };

rn_status rn_cutter_add(rn_cutter *cutter, rn_cut_step step) {
    if (cutter->count == RN_CUTTER_STEPS) {
        rn_pattern_destroy(step.pattern);
        return rn_fail(RN_UNSUPPORTED, "a pre-tokenizer of more than %d steps", RN_CUTTER_STEPS);
    }
    cutter->steps[cutter->count++] = step;
    cutter->letters = cutter->letters || step.kind == RN_CUT_LETTERS;
    return RN_OK;
}

void rn_cutter_free(rn_cutter *cutter) {
    for (size_t i = 0; i < cutter->count; i++)
        rn_pattern_destroy(cutter->steps[i].pattern);
    cutter->count = 0;
}

void rn_cutting_init(rn_cutting *cutting, const rn_cutter *cutter, const rn_allocator *from) {
    *cutting = (rn_cutting){.cutter = cutter};
    for (size_t i = 0; i <= RN_CUTTER_STEPS; i++)
        rn_buffer_init(&cutting->buffers[i], from, GROWTH_CAP_BYTES);
}

void rn_cutting_free(rn_cutting *cutting) {
    for (size_t i = 0; i <= RN_CUTTER_STEPS; i++)
        rn_buffer_free(&cutting->buffers[i]);
    for (size_t i = 0; i < RN_CUTTER_STEPS; i++)
        rn_matching_free(&cutting->matching[i]);
}

static rn_status cut_from(rn_cutting *cutting, size_t index, rn_str text, bool first);

// ---- splitting --------------------------------------------------------------------------

// A run of pieces on its way out; `pending` may still grow.
typedef struct splitter {
    rn_cutting *cutting;
    size_t index; // of the step
    rn_str text;
    bool first; // the text is
    size_t start, end;
    bool pending, is_match; // of [start, end)
} splitter;

static rn_status hand_on(splitter *s, size_t start, size_t end) {
    if (start == end) return RN_OK;
    rn_str piece = {s->text.data + start, end - start};
    return cut_from(s->cutting, s->index + 1, piece, s->first && start == 0);
}

static rn_status flush(splitter *s) {
    if (!s->pending) return RN_OK;
    s->pending = false;
    return hand_on(s, s->start, s->end);
}

static rn_status hold(splitter *s, size_t start, size_t end, bool is_match) {
    RN_TRY(flush(s));
    s->start = start;
    s->end = end;
    s->pending = true;
    s->is_match = is_match;
    return RN_OK;
}

// One stretch that is a match or lies between two.
static rn_status take_stretch(splitter *s, size_t start, size_t end, bool is_match) {
    const rn_cut_step *step = &s->cutting->cutter->steps[s->index];
    is_match = is_match != step->inverted;
    bool joins = false;
    switch (step->behavior) {
    case RN_CUT_ISOLATED:
        return hand_on(s, start, end);
    case RN_CUT_REMOVED:
        return is_match ? RN_OK : hand_on(s, start, end);
    case RN_CUT_WITH_PREVIOUS:
        joins = is_match && !s->is_match;
        break;
    case RN_CUT_WITH_NEXT:
        joins = !is_match && s->is_match;
        break;
    case RN_CUT_CONTIGUOUS:
        joins = is_match == s->is_match;
        break;
    }
    if (start == end) return RN_OK;
    if (!s->pending || !joins) return hold(s, start, end, is_match);
    s->end = end;
    s->is_match = is_match;
    return step->behavior == RN_CUT_WITH_NEXT ? flush(s) : RN_OK;
}

static rn_status split_by_pattern(splitter *s, const rn_pattern *pattern) {
    size_t at = 0, done = 0;
    bool not_empty = false;
    while (at <= s->text.bytes) {
        rn_match match;
        rn_matching *matching = &s->cutting->matching[s->index];
        RN_TRY(rn_pattern_next(pattern, matching, s->text, at, not_empty, &match));
        if (!match.found) break;
        if (match.start > done) RN_TRY(take_stretch(s, done, match.start, false));
        if (match.end > match.start) RN_TRY(take_stretch(s, match.start, match.end, true));
        at = done = match.end;
        not_empty = match.start == match.end;
    }
    if (done < s->text.bytes) RN_TRY(take_stretch(s, done, s->text.bytes, false));
    return flush(s);
}

static rn_status split(rn_cutting *cutting, size_t index, rn_str text, bool first) {
    const rn_cut_step *step = &cutting->cutter->steps[index];
    splitter s = {.cutting = cutting, .index = index, .text = text, .first = first};
    rn_scan scan = rn_pattern_scan(step->pattern);
    if (scan == RN_SCAN_NONE) return split_by_pattern(&s, step->pattern);
    for (size_t at = 0, end; at < text.bytes; at = end) {
        end = rn_scan_next(scan, text, at);
        RN_TRY(take_stretch(&s, at, end, true));
    }
    return flush(&s);
}

// ---- steps that change text -------------------------------------------------------------

static rn_status put_space(rn_cutting *cutting, size_t index, rn_str text, bool first) {
    if (text.data[0] == ' ') return cut_from(cutting, index + 1, text, first);
    rn_buffer *to = &cutting->buffers[index];
    to->bytes = 0;
    RN_TRY(rn_buffer_append(to, " ", 1));
    RN_TRY(rn_buffer_append(to, text.data, text.bytes));
    return cut_from(cutting, index + 1, (rn_str){to->data, to->bytes}, first);
}

static rn_status write_letters(rn_cutting *cutting, size_t index, rn_str text, bool first) {
    rn_buffer *to = &cutting->buffers[index];
    to->bytes = 0;
    for (size_t at = 0; at < text.bytes;) {
        char letters[512];
        size_t bytes = rn_min_u64(text.bytes - at, sizeof letters / 2);
        size_t written = rn_bytes_to_letters((rn_str){text.data + at, bytes}, letters);
        RN_TRY(rn_buffer_append(to, letters, written));
        at += bytes;
    }
    return cut_from(cutting, index + 1, (rn_str){to->data, to->bytes}, first);
}

static rn_status write_metaspace(rn_cutting *cutting, size_t index, rn_str text, bool first) {
    const rn_cut_step *step = &cutting->cutter->steps[index];
    rn_buffer *to = &cutting->buffers[index];
    to->bytes = 0;
    bool wanted = step->prefix == RN_PREFIX_ALWAYS || (step->prefix == RN_PREFIX_FIRST && first);
    if (wanted && text.data[0] != ' ' && !rn_str_starts(text, step->blank))
        RN_TRY(rn_buffer_append(to, step->blank.data, step->blank.bytes));
    for (size_t at = 0, end; at < text.bytes; at = end + 1) {
        const char *space = memchr(text.data + at, ' ', text.bytes - at);
        end = space ? (size_t)(space - text.data) : text.bytes;
        RN_TRY(rn_buffer_append(to, text.data + at, end - at));
        if (space) RN_TRY(rn_buffer_append(to, step->blank.data, step->blank.bytes));
    }
    return cut_from(cutting, index + 1, (rn_str){to->data, to->bytes}, first);
}

// ---- the chain --------------------------------------------------------------------------

// Letters become bytes again; what is no letter (none can be) stays.
static rn_status hand_out(rn_cutting *cutting, rn_str word) {
    if (!cutting->cutter->letters) return cutting->word(cutting->self, word);
    rn_buffer *to = &cutting->buffers[RN_CUTTER_STEPS];
    to->bytes = 0;
    RN_TRY(rn_buffer_append(to, word.data, word.bytes)); // room; bytes are never more than letters
    size_t bytes = word.bytes;
    if (!rn_letters_to_bytes(word, to->data, &bytes)) return cutting->word(cutting->self, word);
    return cutting->word(cutting->self, (rn_str){to->data, bytes});
}

static rn_status cut_from(rn_cutting *cutting, size_t index, rn_str text, bool first) {
    if (text.bytes == 0) return RN_OK;
    if (index == cutting->cutter->count) return hand_out(cutting, text);
    switch (cutting->cutter->steps[index].kind) {
    case RN_CUT_SPLIT:
        return split(cutting, index, text, first);
    case RN_CUT_SPACE:
        return put_space(cutting, index, text, first);
    case RN_CUT_LETTERS:
        return write_letters(cutting, index, text, first);
    case RN_CUT_METASPACE:
        return write_metaspace(cutting, index, text, first);
    }
    return RN_OK;
}

rn_status rn_cut(rn_cutting *cutting, rn_str text, bool first) {
    return cut_from(cutting, 0, text, first);
}
