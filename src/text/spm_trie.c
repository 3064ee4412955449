// spm_trie.c — sorted keys become a double array, one node at a time.
//
//     keys     an  and  ant  be        a node is a range of keys that share `depth` bytes;
//     depth 0  [a a a | b]             its children are the runs of equal next bytes
//
// Free units are a list, threaded through their own fields. A node with one child (most of them)
// takes the oldest free unit and so fills the holes; others look at a few of the newest and then
// open a block. Ranges that wait are disjoint: there are never more of them than keys.
#include "text/spm_trie.h"

#include "base/checked.h"
#include "base/str.h"
#include "memory/sort.h"

#define FREE_UNIT   UINT32_MAX       // as a parent
#define ROOT_PARENT (UINT32_MAX - 1) // no node has this number
#define BLOCK       256
#define TRIES       64
#define MAX_BYTES   ((size_t)1 << 30) // of all keys; keeps node numbers well inside 32 bits

typedef struct key_range {
    uint32_t first, end; // keys
    uint32_t depth;      // bytes that they share
    uint32_t node;
} key_range;

typedef struct builder {
    rn_spm_trie *trie;
    const rn_spm_key *keys;
    key_range *waiting; // (key count)
    size_t waiting_count;
    uint32_t oldest_free, newest_free; // or RN_SPM_NOWHERE
} builder;

// ---- free units ---------------------------------------------------------------------------------

// In a free unit `base` is the next newer one and `id` the next older one.
static void add_free(builder *b, uint32_t unit) {
    rn_spm_unit *units = b->trie->units;
    units[unit] = (rn_spm_unit){RN_SPM_NOWHERE, FREE_UNIT, b->newest_free, {0}};
    if (b->newest_free != RN_SPM_NOWHERE)
        units[b->newest_free].base = unit;
    else
        b->oldest_free = unit;
    b->newest_free = unit;
}

static void occupy(builder *b, uint32_t unit, uint32_t parent) {
    rn_spm_unit *units = b->trie->units;
    uint32_t newer = units[unit].base, older = units[unit].id;
    *(newer == RN_SPM_NOWHERE ? &b->newest_free : &units[newer].id) = older;
    *(older == RN_SPM_NOWHERE ? &b->oldest_free : &units[older].base) = newer;
    units[unit] = (rn_spm_unit){0, parent, RN_NO_TOKEN, {0}};
}

static rn_status resize(rn_spm_trie *trie, size_t capacity) {
    rn_spm_unit *units = NULL;
    RN_TRY(rn_alloc(trie->from, capacity * sizeof *units, (void **)&units));
    if (trie->count) memcpy(units, trie->units, trie->count * sizeof *units);
    rn_free(trie->from, trie->units, trie->capacity * sizeof *units);
    trie->units = units;
    trie->capacity = capacity;
    return RN_OK;
}

static rn_status add_block(builder *b) {
    rn_spm_trie *trie = b->trie;
    if (trie->count == trie->capacity) RN_TRY(resize(trie, trie->capacity * 2 + BLOCK));
    uint32_t first = (uint32_t)trie->count;
    trie->count += BLOCK;
    for (uint32_t i = 0; i < BLOCK; i++)
        add_free(b, first + i);
    return RN_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

static bool all_free(const builder *b, uint32_t base, const uint8_t *labels, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (b->trie->units[base ^ labels[i]].parent != FREE_UNIT) return false;
    return true;
}

// A base whose units for all labels are free.
static rn_status find_base(builder *b, const uint8_t *labels, size_t count, uint32_t *out_base) {
    uint32_t unit = count == 1 ? b->oldest_free : b->newest_free;
    for (int i = 0; i < TRIES && unit != RN_SPM_NOWHERE; i++, unit = b->trie->units[unit].id) {
        *out_base = unit ^ labels[0];
        if (all_free(b, *out_base, labels, count)) return RN_OK;
    }
    *out_base = (uint32_t)b->trie->count;
    return add_block(b);
}

// The runs of equal bytes at `depth`; returns how many.
static size_t split(const rn_spm_key *keys, const key_range *range, uint8_t labels[256],
                    uint32_t firsts[256]) {
    size_t count = 0;
    for (uint32_t i = range->first; i < range->end; i++) {
        uint8_t label = (uint8_t)keys[i].text.data[range->depth];
        if (count && labels[count - 1] == label) continue;
        labels[count] = label;
        firsts[count++] = i;
    }
    return count;
}

static rn_status add_node(builder *b, key_range range) {
    uint8_t labels[256];
    uint32_t firsts[256], base;
    if (b->keys[range.first].text.bytes == range.depth)
        b->trie->units[range.node].id = b->keys[range.first++].id;
    size_t count = split(b->keys, &range, labels, firsts);
    if (count == 0) return RN_OK;
    RN_TRY(find_base(b, labels, count, &base));
    b->trie->units[range.node].base = base;
    for (size_t i = 0; i < count; i++) {
        uint32_t node = base ^ labels[i], end = i + 1 < count ? firsts[i + 1] : range.end;
        occupy(b, node, range.node);
        b->waiting[b->waiting_count++] = (key_range){firsts[i], end, range.depth + 1, node};
    }
    return RN_OK;
}

static rn_status add_all(builder *b, size_t count) {
    RN_TRY(add_block(b));
    occupy(b, RN_SPM_ROOT, ROOT_PARENT);
    if (count) b->waiting[b->waiting_count++] = (key_range){0, (uint32_t)count, 0, RN_SPM_ROOT};
    while (b->waiting_count)
        RN_TRY(add_node(b, b->waiting[--b->waiting_count]));
    return b->trie->count < b->trie->capacity ? resize(b->trie, b->trie->count) : RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

// Most comparisons of a sort are decided by the first eight bytes.
static uint64_t head_of(rn_str text) {
    uint64_t head = 0;
    memcpy(&head, text.data, text.bytes < 8 ? text.bytes : 8);
    return __builtin_bswap64(head);
}

static int compare(const void *a, const void *b) {
    const rn_spm_key *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    rn_str left = x->text, right = y->text;
    int order = memcmp(left.data, right.data, left.bytes < right.bytes ? left.bytes : right.bytes);
    return order ? order : (left.bytes > right.bytes) - (left.bytes < right.bytes);
}

static rn_status sort(rn_spm_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++)
        keys[i].head = head_of(keys[i].text);
    return rn_sort(keys, count, sizeof *keys, compare);
}

static rn_status check_keys(const rn_spm_key *keys, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!rn_add_size(bytes, keys[i].text.bytes, &bytes) || bytes > MAX_BYTES)
            return rn_fail(RN_UNSUPPORTED, "the vocabulary's texts have more than 1 GiB");
        if (i && rn_str_equal(keys[i - 1].text, keys[i].text))
            return rn_fail(RN_CORRUPT, "pieces %u and %u have the same text \"%.*s\"",
                           keys[i - 1].id, keys[i].id, (int)rn_min_u64(keys[i].text.bytes, 64),
                           keys[i].text.data);
    }
    return RN_OK;
}

rn_status rn_spm_trie_build(rn_spm_trie *trie, const rn_allocator *from, rn_spm_key *keys,
                            size_t count) {
    builder b = {
        .trie = trie, .keys = keys, .oldest_free = RN_SPM_NOWHERE, .newest_free = RN_SPM_NOWHERE};
    *trie = (rn_spm_trie){.from = from};
    RN_TRY(sort(keys, count));
    RN_TRY(check_keys(keys, count));
    RN_TRY(rn_alloc_zeroed(from, count, sizeof *b.waiting, (void **)&b.waiting));
    rn_status s = add_all(&b, count);
    rn_free(from, b.waiting, count * sizeof *b.waiting);
    if (s != RN_OK) rn_spm_trie_free(trie);
    return s;
}

void rn_spm_trie_free(rn_spm_trie *trie) {
    rn_free(trie->from, trie->units, trie->capacity * sizeof *trie->units);
    *trie = (rn_spm_trie){.from = trie->from};
}

uint32_t rn_spm_trie_find(const rn_spm_trie *trie, rn_str text) {
    uint32_t node = rn_spm_trie_walk(trie, RN_SPM_ROOT, text.data, text.bytes);
    return node == RN_SPM_NOWHERE ? RN_NO_TOKEN : trie->units[node].id;
}

size_t rn_spm_trie_longest(const rn_spm_trie *trie, const char *text, size_t bytes) {
    uint32_t node = RN_SPM_ROOT;
    size_t longest = 0;
    for (size_t i = 0; i < bytes; i++) {
        node = rn_spm_trie_step(trie, node, text[i]);
        if (node == RN_SPM_NOWHERE) break;
        if (trie->units[node].id != RN_NO_TOKEN) longest = i + 1;
    }
    return longest;
}
