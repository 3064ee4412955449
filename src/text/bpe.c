// bpe.c — most words of a text are tokens themselves, so that is looked at first: one probe of the
// vocabulary. Whether such a word really encodes as that token (a token need not be reachable by
// merges) is found out once and remembered in a byte beside the token; losing a race there only
// means that it is found out twice.
//
// Before that, words of up to 16 bytes are looked for among those that the same call has met: a
// small table that stays in the core's own cache.
//
// Short words are joined in place by scanning for the lowest rank. Long ones have a heap: n log n,
// whatever the text.
#include "text/bpe.h"

#include "base/checked.h"
#include "text/utf8_step.h"

enum { SHORT_SYMBOLS = 48, WORDS_FROM_BYTES = 4096, NOT_ASKED = 0, IS_WHOLE, IS_NOT_WHOLE };
static const char blank[3] = "\xE2\x96\x81"; // U+2581

// ---- getting ready ----------------------------------------------------------------------

static uint32_t find_byte(const rn_bpe *bpe, int byte, rn_str suffix) {
    char text[16];
    size_t bytes = 0;
    if (bpe->by_bytes)
        text[bytes++] = (char)byte;
    else {
        static const char hex[] = "0123456789ABCDEF";
        memcpy(text, (char[]){'<', '0', 'x', hex[byte >> 4], hex[byte & 15], '>'}, 6);
        bytes = 6;
    }
    if (suffix.bytes) memcpy(text + bytes, suffix.data, suffix.bytes);
    return rn_vocab_find(bpe->vocab, (rn_str){text, bytes + suffix.bytes});
}

// Whether a blank stands behind something else in it.
static bool reaches_over_blank(rn_str text) {
    bool other = false;
    for (size_t at = 0, step; at < text.bytes; at += step) {
        step = rn_utf8_length(text.data[at]);
        bool is_blank = text.bytes - at >= 3 && memcmp(text.data + at, blank, 3) == 0;
        if (is_blank && other) return true;
        other = other || !is_blank;
    }
    return false;
}

static bool can_cut_at_blank(const rn_bpe *bpe) {
    if (bpe->by_bytes || bpe->ignore_merges) return false;
    if (rn_vocab_find(bpe->vocab, (rn_str){blank, 3}) == RN_NO_TOKEN) return false;
    for (size_t i = 0; i < bpe->merges.slot_count; i++) {
        const rn_merge *merge = &bpe->merges.slots[i];
        if (merge->left == RN_NO_MERGE || merge->left == RN_MERGE_GONE) continue;
        if (reaches_over_blank(rn_vocab_text(bpe->vocab, merge->into))) return false;
    }
    return true;
}

// Merges that would make a special token out of text.
static void drop_reserved(rn_bpe *bpe) {
    for (size_t i = 0; i < bpe->merges.slot_count; i++) {
        rn_merge *merge = &bpe->merges.slots[i];
        if (merge->left != RN_NO_MERGE && rn_vocab_is_reserved(bpe->vocab, merge->into))
            *merge = (rn_merge){RN_MERGE_GONE, RN_MERGE_GONE, 0, 0};
    }
}

rn_status rn_bpe_finish(rn_bpe *bpe) {
    void *whole;
    rn_str suffix = {bpe->suffix, bpe->suffix_bytes};
    for (int byte = 0; byte < 256; byte++) {
        bpe->byte_ids[byte] = find_byte(bpe, byte, (rn_str){0});
        bpe->last_ids[byte] = suffix.bytes ? find_byte(bpe, byte, suffix) : bpe->byte_ids[byte];
    }
    drop_reserved(bpe);
    bpe->cut_at_blank = can_cut_at_blank(bpe);
    RN_TRY(rn_alloc_zeroed(bpe->from, bpe->vocab->count, 1, &whole));
    bpe->whole = whole;
    bpe->whole_count = bpe->vocab->count;
    return RN_OK;
}

void rn_bpe_free(rn_bpe *bpe) {
    rn_merges_free(&bpe->merges);
    rn_free(bpe->from, bpe->whole, bpe->whole_count);
    bpe->whole = NULL;
}

rn_status rn_bpe_scratch_prepare(const rn_bpe *bpe, rn_bpe_scratch *scratch, size_t text_bytes) {
    void *words;
    size_t count = text_bytes < WORDS_FROM_BYTES        ? 0
                   : text_bytes < 16 * WORDS_FROM_BYTES ? 512
                                                        : 8192;
    if (count == 0) return RN_OK;
    RN_TRY(rn_alloc_zeroed(bpe->from, count, sizeof *scratch->words, &words));
    scratch->words = words;
    scratch->word_count = count;
    return RN_OK;
}

static void free_symbols(const rn_bpe *bpe, rn_bpe_scratch *scratch) {
    rn_free(bpe->from, scratch->symbols, scratch->capacity * sizeof *scratch->symbols);
    rn_free(bpe->from, scratch->heap, 2 * scratch->capacity * sizeof *scratch->heap);
    scratch->symbols = NULL;
    scratch->heap = NULL;
    scratch->capacity = 0;
}

void rn_bpe_scratch_free(const rn_bpe *bpe, rn_bpe_scratch *scratch) {
    free_symbols(bpe, scratch);
    rn_free(bpe->from, scratch->words, scratch->word_count * sizeof *scratch->words);
    *scratch = (rn_bpe_scratch){0};
}

// ---- the word as it begins --------------------------------------------------------------

// The tokens of a character; *unknown says whether the last one before was the unknown token.
static size_t begin_character(const rn_bpe *bpe, rn_str letter, bool *unknown, uint32_t out[4]) {
    uint32_t id = rn_vocab_find(bpe->vocab, letter);
    bool fused = *unknown && bpe->fuse_unknown, spelled = bpe->byte_fallback;
    *unknown = false;
    if (id != RN_NO_TOKEN) {
        out[0] = id;
        return 1;
    }
    for (size_t i = 0; spelled && i < letter.bytes; i++) {
        out[i] = bpe->byte_ids[(uint8_t)letter.data[i]];
        spelled = out[i] != RN_NO_TOKEN;
    }
    if (spelled) return letter.bytes;
    if (bpe->unknown == RN_NO_TOKEN) return 0;
    *unknown = true;
    out[0] = bpe->unknown;
    return fused ? 0 : 1;
}

static size_t begin_bytes(const rn_bpe *bpe, rn_str word, rn_bpe_symbol *out) {
    size_t count = 0;
    for (size_t i = 0; i < word.bytes; i++) {
        bool last = i + 1 == word.bytes;
        uint32_t id = (last ? bpe->last_ids : bpe->byte_ids)[(uint8_t)word.data[i]];
        if (id == RN_NO_TOKEN) id = bpe->unknown;
        if (id != RN_NO_TOKEN) out[count++].id = id;
    }
    return count;
}

// At most word.bytes symbols.
static size_t begin_word(const rn_bpe *bpe, rn_str word, rn_bpe_symbol *out) {
    if (bpe->by_bytes) return begin_bytes(bpe, word, out);
    size_t count = 0;
    bool unknown = false;
    for (size_t at = 0, step; at < word.bytes; at += step) {
        uint32_t ids[4] = {0};
        step = rn_utf8_sequence(word.data + at, word.bytes - at);
        if (step == 0) step = 1; // not UTF-8: byte by byte
        size_t more = begin_character(bpe, (rn_str){word.data + at, step}, &unknown, ids);
        for (size_t i = 0; i < more; i++)
            out[count++].id = ids[i];
    }
    return count;
}

// ---- joining ----------------------------------------------------------------------------

static void look(const rn_bpe *bpe, rn_bpe_symbol *symbol, const rn_bpe_symbol *next) {
    const rn_merge *merge = next ? rn_merges_find(&bpe->merges, symbol->id, next->id) : NULL;
    symbol->rank = merge ? merge->rank : RN_NO_MERGE;
    symbol->into = merge ? merge->into : 0;
}

static size_t join_short(const rn_bpe *bpe, rn_bpe_symbol *symbols, size_t count) {
    for (size_t i = 0; i < count; i++)
        look(bpe, &symbols[i], i + 1 < count ? &symbols[i + 1] : NULL);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (symbols[i].rank < symbols[best].rank) best = i;
        if (symbols[best].rank == RN_NO_MERGE) break;
        symbols[best].id = symbols[best].into;
        count--;
        memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 1) * sizeof *symbols);
        look(bpe, &symbols[best], best + 1 < count ? &symbols[best + 1] : NULL);
        if (best > 0) look(bpe, &symbols[best - 1], &symbols[best]);
    }
    return count;
}

static void heap_push(uint64_t *heap, size_t *count, uint64_t key) {
    size_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *count) {
    uint64_t top = heap[0], last = heap[--*count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static void look_linked(const rn_bpe *bpe, rn_bpe_scratch *scratch, uint32_t at, size_t *heaped) {
    rn_bpe_symbol *symbol = &scratch->symbols[at];
    look(bpe, symbol, symbol->next == RN_NO_TOKEN ? NULL : &scratch->symbols[symbol->next]);
    if (symbol->rank != RN_NO_MERGE)
        heap_push(scratch->heap, heaped, (uint64_t)symbol->rank << 32 | at);
}

// Joins the pair at `at` and links around what is gone (whose rank becomes RN_NO_MERGE).
static void join_linked(const rn_bpe *bpe, rn_bpe_scratch *scratch, uint32_t at, size_t *heaped) {
    rn_bpe_symbol *symbols = scratch->symbols, *left = &symbols[at];
    rn_bpe_symbol *right = &symbols[left->next];
    left->id = left->into;
    left->next = right->next;
    right->rank = RN_NO_MERGE;
    right->id = RN_NO_TOKEN;
    if (left->next != RN_NO_TOKEN) symbols[left->next].previous = at;
    look_linked(bpe, scratch, at, heaped);
    if (left->previous != RN_NO_TOKEN) look_linked(bpe, scratch, left->previous, heaped);
}

// Every join takes one entry and adds at most two, so 2 * count entries are enough. An entry is
// stale when its symbol's pair has another rank by now.
static size_t join_long(const rn_bpe *bpe, rn_bpe_scratch *scratch, size_t count) {
    size_t heaped = 0, left = 0;
    rn_bpe_symbol *symbols = scratch->symbols;
    for (size_t i = 0; i < count; i++) {
        symbols[i].previous = i ? (uint32_t)i - 1 : RN_NO_TOKEN;
        symbols[i].next = i + 1 < count ? (uint32_t)i + 1 : RN_NO_TOKEN;
    }
    for (size_t i = 0; i < count; i++)
        look_linked(bpe, scratch, (uint32_t)i, &heaped);
    while (heaped) {
        uint64_t key = heap_pop(scratch->heap, &heaped);
        if (symbols[(uint32_t)key].rank == key >> 32)
            join_linked(bpe, scratch, (uint32_t)key, &heaped);
    }
    for (size_t i = 0; i < count; i++)
        if (symbols[i].id != RN_NO_TOKEN) symbols[left++].id = symbols[i].id;
    return left;
}

// ---- words ------------------------------------------------------------------------------

static rn_status push_all(const rn_bpe_symbol *symbols, size_t count, rn_tokens *out) {
    for (size_t i = 0; i < count; i++)
        RN_TRY(rn_tokens_push(out, symbols[i].id));
    return RN_OK;
}

static rn_status reserve(const rn_bpe *bpe, rn_bpe_scratch *scratch, size_t count) {
    if (count <= scratch->capacity) return RN_OK;
    if (count > UINT32_MAX / 2)
        return rn_fail(RN_INVALID, "a word of %zu bytes is too long", count);
    free_symbols(bpe, scratch);
    size_t capacity = count + count / 2;
    void *symbols = NULL, *heap = NULL;
    RN_TRY(rn_alloc(bpe->from, capacity * sizeof *scratch->symbols, &symbols));
    rn_status s = rn_alloc(bpe->from, 2 * capacity * sizeof *scratch->heap, &heap);
    if (s != RN_OK) {
        rn_free(bpe->from, symbols, capacity * sizeof *scratch->symbols);
        return s;
    }
    scratch->symbols = symbols;
    scratch->heap = heap;
    scratch->capacity = capacity;
    return RN_OK;
}

static rn_status join_word(const rn_bpe *bpe, rn_str word, rn_bpe_scratch *scratch,
                           rn_tokens *out) {
    if (word.bytes <= SHORT_SYMBOLS) {
        rn_bpe_symbol symbols[SHORT_SYMBOLS];
        return push_all(symbols, join_short(bpe, symbols, begin_word(bpe, word, symbols)), out);
    }
    RN_TRY(reserve(bpe, scratch, word.bytes));
    size_t count = begin_word(bpe, word, scratch->symbols);
    return push_all(scratch->symbols, join_long(bpe, scratch, count), out);
}

// The token that is the word (with the suffix), or RN_NO_TOKEN.
static uint32_t find_whole(const rn_bpe *bpe, rn_str word, uint32_t hash) {
    char text[64];
    if (!bpe->suffix_bytes) return rn_vocab_find_hashed(bpe->vocab, word, hash);
    if (word.bytes + bpe->suffix_bytes > sizeof text) return RN_NO_TOKEN;
    memcpy(text, word.data, word.bytes);
    memcpy(text + word.bytes, bpe->suffix, bpe->suffix_bytes);
    return rn_vocab_find(bpe->vocab, (rn_str){text, word.bytes + bpe->suffix_bytes});
}

static rn_status encode_new(const rn_bpe *bpe, rn_str word, uint32_t hash, rn_bpe_scratch *scratch,
                            rn_tokens *out) {
    uint32_t id = find_whole(bpe, word, hash);
    if (id == RN_NO_TOKEN || rn_vocab_is_reserved(bpe->vocab, id))
        return join_word(bpe, word, scratch, out);
    if (bpe->ignore_merges) return rn_tokens_push(out, id);
    uint8_t state = atomic_load_explicit(&bpe->whole[id], memory_order_relaxed);
    if (state == IS_WHOLE) return rn_tokens_push(out, id);
    size_t before = out->count;
    RN_TRY(join_word(bpe, word, scratch, out));
    if (state == NOT_ASKED) {
        state = out->count == before + 1 && out->ids[before] == id ? IS_WHOLE : IS_NOT_WHOLE;
        atomic_store_explicit(&bpe->whole[id], state, memory_order_relaxed);
    }
    return RN_OK;
}

static rn_status encode_piece(const rn_bpe *bpe, rn_str word, rn_bpe_scratch *scratch,
                              rn_tokens *out) {
    rn_vocab_key key = rn_vocab_key_of(bpe->vocab, word);
    if (word.bytes > 16 || !scratch->words) return encode_new(bpe, word, key.hash, scratch, out);
    rn_bpe_word *met = &scratch->words[key.hash & (scratch->word_count - 1)];
    if (met->a == key.a && met->b == key.b && met->bytes == word.bytes) {
        for (size_t i = 0; i < met->count; i++)
            RN_TRY(rn_tokens_push(out, met->ids[i]));
        return RN_OK;
    }
    size_t before = out->count;
    RN_TRY(encode_new(bpe, word, key.hash, scratch, out));
    size_t count = out->count - before;
    if (count > RN_BPE_WORD_TOKENS) return RN_OK;
    *met = (rn_bpe_word){
        .a = key.a, .b = key.b, .bytes = (uint8_t)word.bytes, .count = (uint8_t)count};
    if (count) memcpy(met->ids, out->ids + before, count * sizeof *met->ids);
    return RN_OK;
}

// Up to the first blank that stands behind something else.
static size_t piece_end(rn_str text) {
    bool other = false;
    for (size_t at = 0; at < text.bytes; at++) {
        bool is_blank = text.bytes - at >= 3 && memcmp(text.data + at, blank, 3) == 0;
        if (is_blank && other) return at;
        if (is_blank)
            at += 2;
        else
            other = true;
    }
    return text.bytes;
}

rn_status rn_bpe_encode(const rn_bpe *bpe, rn_str word, rn_bpe_scratch *scratch, rn_tokens *out) {
    if (!bpe->cut_at_blank) return encode_piece(bpe, word, scratch, out);
    for (size_t at = 0, step; at < word.bytes; at += step) {
        rn_str rest = {word.data + at, word.bytes - at};
        step = piece_end(rest);
        RN_TRY(encode_piece(bpe, (rn_str){rest.data, step}, scratch, out));
    }
    return RN_OK;
}
