// spm_unigram.c — the cut of a text into pieces whose scores have the largest sum.
//
// best[i] is the best path that ends i bytes into the stretch: its weight, and the piece it ends
// with. Characters are visited from left to right; each piece that begins there offers a path to
// where it ends. A character that is no piece can be the unknown one. Where no path leads past the
// place that is visited, all pass through it: the stretch is over, its pieces go out.
//
// Ties and near ties are decided as SentencePiece decides them: sums are floats, the first of
// equals wins, and when a sum has grown large all that are still in play are shifted back to zero.
// With `wide_sums` they are doubles and stay.
#include "text/spm_internal.h"

#include <math.h>

#define TOO_LARGE 100000.0

typedef struct path {
    double weight;
    uint32_t start; // of its last piece
    uint32_t id;
} path;

typedef struct search {
    const rn_spm *spm;
    const char *text; // of the stretch
    size_t bytes;     // to the text's end
    path *best;
    size_t furthest; // where the longest path ends; all of best[0..furthest] is set
} search;

// The sum of two floats, rounded once, is the same from float and from double arithmetic.
static double add(const rn_spm *spm, double a, double b) {
    return spm->options.wide_sums ? a + b : (float)(a + b);
}

// Places between characters that are passed over get a path that anything is better than.
static void offer(search *s, size_t end, path offered) {
    path *to = &s->best[end];
    while (s->furthest < end)
        s->best[++s->furthest] = (path){-INFINITY, RN_SPM_NOWHERE, RN_NO_TOKEN};
    if (to->start == RN_SPM_NOWHERE || offered.weight > to->weight) *to = offered;
}

// Returns whether the character itself is a piece.
static bool offer_pieces(search *s, uint32_t start, size_t width) {
    const rn_spm_trie *trie = &s->spm->normal;
    uint32_t node = RN_SPM_ROOT;
    double weight = s->best[start].weight;
    bool covered = false;
    for (size_t end = start; end < s->bytes;) {
        node = rn_spm_trie_step(trie, node, s->text[end++]);
        if (node == RN_SPM_NOWHERE) break;
        const rn_spm_unit *unit = &trie->units[node];
        if (unit->id == RN_NO_TOKEN) continue;
        offer(s, end, (path){add(s->spm, weight, unit->weight), start, unit->id});
        covered |= end - start == width;
    }
    return covered;
}

static void shift(search *s, size_t start) {
    double by = s->best[start].weight;
    for (size_t i = start; i <= s->furthest; i++)
        s->best[i].weight = add(s->spm, s->best[i].weight, -by);
}

// Visits the character at `start`; returns its length.
static size_t visit(search *s, uint32_t start) {
    size_t width = rn_spm_width(s->text + start, s->bytes - start);
    if (!s->spm->options.wide_sums && fabs(s->best[start].weight) > TOO_LARGE) shift(s, start);
    if (!offer_pieces(s, start, width)) {
        double weight = add(s->spm, s->best[start].weight, s->spm->unknown_weight);
        offer(s, start + width, (path){weight, start, RN_NO_TOKEN});
    }
    return width;
}

// Turns the links of the best path around: afterwards best[i].start is where its next piece ends.
static void reverse(path *best, uint32_t end) {
    uint32_t next = end;
    for (uint32_t at = end; at > 0;) {
        uint32_t start = best[at].start;
        best[at].start = next;
        next = at;
        at = start;
    }
    best[0].start = next;
}

static rn_status emit(rn_spm_work *work, const search *s, uint32_t end) {
    reverse(s->best, end);
    for (uint32_t at = 0; at < end;) {
        uint32_t next = s->best[at].start;
        RN_TRY(rn_spm_emit(work, s->text + at, next - at, s->best[next].id));
        at = next;
    }
    return RN_OK;
}

// One stretch; s->text and s->bytes go on to the next.
static rn_status take_stretch(rn_spm_work *work, search *s, double *weight) {
    uint32_t at = 0;
    s->furthest = 0;
    do {
        RN_TRY(rn_spm_block_need(&work->parts, (at + s->spm->reach + 1) * sizeof(path)));
        s->best = work->parts.data;
        if (at == 0) s->best[0] = (path){*weight, 0, RN_NO_TOKEN};
        at += (uint32_t)visit(s, at);
    } while (s->furthest > at);
    *weight = s->best[at].weight;
    RN_TRY(emit(work, s, at));
    s->text += at;
    s->bytes -= at;
    return RN_OK;
}

rn_status rn_spm_encode_unigram(rn_spm_work *work, rn_str text) {
    search s = {.spm = work->spm, .text = text.data, .bytes = text.bytes};
    double weight = 0;
    while (s.bytes)
        RN_TRY(take_stretch(work, &s, &weight));
    return RN_OK;
}
