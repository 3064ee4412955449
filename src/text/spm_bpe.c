// spm_bpe.c — pairs of neighbours that together are a piece are joined, the best score first, the
// leftmost of equals first, until there is none.
//
// Symbols are a linked list in an array; a joined one keeps its left part's place. Candidates wait
// in a heap. One whose parts have changed since is stale: parts only grow or vanish, so the sum of
// their lengths tells. Each symbol knows its node in the trie, from where the lookup of a pair goes
// on.
//
// Unused pieces take part in joining and are taken apart again at the end, as they were last put
// together anywhere in the text.
#include "text/spm_internal.h"

#define FROZEN (UINT32_MAX - 1) // as a node: a user-defined piece, never joined
#define NONE   UINT32_MAX

typedef struct symbol {
    uint32_t start, bytes; // bytes == 0: joined into its left neighbour
    uint32_t prev, next;   // or NONE
    uint32_t node;         // in the trie of normal pieces, or RN_SPM_NOWHERE, or FROZEN
} symbol;

typedef struct candidate {
    uint64_t order; // rank of the score, then the complement of the left symbol: largest first
    uint32_t bytes; // both parts together
    uint32_t node;  // of the joined piece
} candidate;

typedef struct merger {
    rn_spm_work *work;
    const rn_spm *spm;
    rn_str text;
    symbol *symbols;
    size_t symbol_count;
    candidate *heap;
    size_t heap_count;
    uint32_t *splits; // (piece count): bytes of an unused piece's left part; NULL: none are unused
} merger;

// ---- the heap -----------------------------------------------------------------------------------

static rn_status push(merger *m, candidate item) {
    RN_TRY(rn_spm_block_need(&m->work->heap, (m->heap_count + 1) * sizeof item));
    candidate *heap = m->heap = m->work->heap.data;
    size_t at = m->heap_count++;
    for (; at && heap[(at - 1) / 2].order < item.order; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
    return RN_OK;
}

static candidate pop(merger *m) {
    candidate *heap = m->heap, top = heap[0], last = heap[--m->heap_count];
    size_t at = 0, child;
    while ((child = at * 2 + 1) < m->heap_count) {
        if (child + 1 < m->heap_count && heap[child + 1].order > heap[child].order) child++;
        if (heap[child].order <= last.order) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

// ---- joining ------------------------------------------------------------------------------------

static rn_status consider(merger *m, uint32_t left, uint32_t right) {
    if (left == NONE || right == NONE) return RN_OK;
    const symbol *l = &m->symbols[left], *r = &m->symbols[right];
    if (l->node >= FROZEN || r->node == FROZEN) return RN_OK;
    uint32_t node = rn_spm_trie_walk(&m->spm->normal, l->node, m->text.data + r->start, r->bytes);
    if (node == RN_SPM_NOWHERE) return RN_OK;
    const rn_spm_unit *unit = &m->spm->normal.units[node];
    if (unit->id == RN_NO_TOKEN) return RN_OK;
    if (m->splits && m->spm->pieces[unit->id].kind == RN_SPM_UNUSED) m->splits[unit->id] = l->bytes;
    uint64_t order = (uint64_t)unit->rank << 32 | (uint32_t)~left;
    return push(m, (candidate){order, l->bytes + r->bytes, node});
}

static rn_status join(merger *m, candidate top) {
    uint32_t left = ~(uint32_t)top.order;
    symbol *l = &m->symbols[left];
    if (l->bytes == 0 || l->next == NONE) return RN_OK;
    symbol *r = &m->symbols[l->next];
    if (l->bytes + r->bytes != top.bytes) return RN_OK;
    l->bytes = top.bytes;
    l->node = top.node;
    l->next = r->next;
    r->bytes = 0;
    if (l->next != NONE) m->symbols[l->next].prev = left;
    RN_TRY(consider(m, l->prev, left));
    return consider(m, left, l->next);
}

static symbol next_symbol(const merger *m, uint32_t start) {
    const char *text = m->text.data + start;
    size_t left = m->text.bytes - start, bytes = rn_spm_user_bytes(m->spm, text, left);
    uint32_t index = (uint32_t)m->symbol_count;
    symbol made = {start, (uint32_t)bytes, index ? index - 1 : NONE, index + 1, FROZEN};
    if (bytes) return made;
    made.bytes = (uint32_t)rn_spm_width(text, left);
    made.node = rn_spm_trie_walk(&m->spm->normal, RN_SPM_ROOT, text, made.bytes);
    return made;
}

static rn_status split(merger *m) {
    for (uint32_t at = 0; at < m->text.bytes; at += m->symbols[m->symbol_count++].bytes) {
        RN_TRY(rn_spm_block_need(&m->work->parts, (m->symbol_count + 1) * sizeof(symbol)));
        m->symbols = m->work->parts.data;
        m->symbols[m->symbol_count] = next_symbol(m, at);
    }
    m->symbols[m->symbol_count - 1].next = NONE;
    return RN_OK;
}

// ---- output -------------------------------------------------------------------------------------

// Parts of an unused piece that are still to come, the next one last.
static rn_status emit_unused(merger *m, rn_str text) {
    rn_spm_block *stack = &m->work->stack;
    size_t count = 0;
    while (true) {
        uint32_t id = rn_spm_trie_find(&m->spm->normal, text);
        bool unused = id != RN_NO_TOKEN && m->spm->pieces[id].kind == RN_SPM_UNUSED;
        uint32_t split_at = unused ? m->splits[id] : 0;
        if (split_at) {
            RN_TRY(rn_spm_block_need(stack, (count + 1) * sizeof(rn_str)));
            ((rn_str *)stack->data)[count++] =
                (rn_str){text.data + split_at, text.bytes - split_at};
            text.bytes = split_at;
            continue;
        }
        RN_TRY(rn_spm_emit(m->work, text.data, text.bytes, id));
        if (count == 0) return RN_OK;
        text = ((rn_str *)stack->data)[--count];
    }
}

static rn_status emit(merger *m, const symbol *s) {
    const char *text = m->text.data + s->start;
    if (m->splits) return emit_unused(m, (rn_str){text, s->bytes});
    uint32_t id = RN_NO_TOKEN;
    if (s->node < FROZEN)
        id = m->spm->normal.units[s->node].id;
    else if (s->node == FROZEN)
        id = rn_spm_trie_find(&m->spm->normal, (rn_str){text, s->bytes});
    return rn_spm_emit(m->work, text, s->bytes, id);
}

static rn_status clear_splits(merger *m) {
    if (!m->spm->has_unused) return RN_OK;
    size_t bytes = m->spm->count * sizeof *m->splits;
    RN_TRY(rn_spm_block_need(&m->work->splits, bytes));
    m->splits = m->work->splits.data;
    memset(m->splits, 0, bytes);
    return RN_OK;
}

rn_status rn_spm_encode_bpe(rn_spm_work *work, rn_str text) {
    merger m = {.work = work, .spm = work->spm, .text = text};
    if (text.bytes == 0) return RN_OK;
    RN_TRY(clear_splits(&m));
    RN_TRY(split(&m));
    for (uint32_t i = 1; i < m.symbol_count; i++)
        RN_TRY(consider(&m, i - 1, i));
    while (m.heap_count)
        RN_TRY(join(&m, pop(&m)));
    for (uint32_t i = 0; i != NONE; i = m.symbols[i].next)
        RN_TRY(emit(&m, &m.symbols[i]));
    return RN_OK;
}
