// added_tokens.c — the tokens are sorted, and a place in the text narrows the range that it can be,
// byte by byte: no table, and the work at a place is bounded by the longest content.
#include "text/added_tokens.h"

#include "base/checked.h"
#include "memory/sort.h"
#include "text/utf8_step.h"

rn_status rn_added_add(rn_added *added, rn_added_token token) {
    if (token.content.bytes == 0) return rn_fail(RN_CORRUPT, "added token %u is empty", token.id);
    if (added->count == added->capacity) {
        size_t capacity = added->capacity ? 2 * added->capacity : 64;
        void *block;
        RN_TRY(rn_alloc(added->from, capacity * sizeof *added->tokens, &block));
        if (added->count) memcpy(block, added->tokens, added->count * sizeof *added->tokens);
        rn_free(added->from, added->tokens, added->capacity * sizeof *added->tokens);
        added->tokens = block;
        added->capacity = capacity;
    }
    added->tokens[added->count++] = token;
    return RN_OK;
}

void rn_added_free(rn_added *added) {
    rn_free(added->from, added->tokens, added->capacity * sizeof *added->tokens);
    added->tokens = NULL;
    added->count = added->capacity = 0;
}

static int compare(const void *a, const void *b) {
    const rn_added_token *left = a, *right = b;
    size_t bytes = rn_min_u64(left->content.bytes, right->content.bytes);
    int order = memcmp(left->content.data, right->content.data, bytes);
    if (order) return order;
    if (left->content.bytes != right->content.bytes)
        return left->content.bytes < right->content.bytes ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

rn_status rn_added_seal(rn_added *added) {
    RN_TRY(rn_sort(added->tokens, added->count, sizeof *added->tokens, compare));
    for (size_t i = 0; i < added->count; i++) {
        added->begins[(uint8_t)added->tokens[i].content.data[0]] = true;
        added->any_ordinary = added->any_ordinary || !added->tokens[i].special;
        added->any_special = added->any_special || added->tokens[i].special;
    }
    return RN_OK;
}

// ---- finding ----------------------------------------------------------------------------

// The first in [low, high) whose byte at `depth` is not below `byte` (texts that end there are).
static size_t bound(const rn_added *added, size_t low, size_t high, size_t depth, int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        rn_str content = added->tokens[middle].content;
        int here = depth < content.bytes ? (uint8_t)content.data[depth] : -1;
        if (here < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// ---- the text around --------------------------------------------------------------------

static size_t previous_character(rn_str text, size_t at) {
    do
        at--;
    while (at > 0 && ((uint8_t)text.data[at] & 0xC0) == 0x80);
    return at;
}

// 0 (neither space nor word) where it is not UTF-8.
static uint32_t character(rn_str text, size_t at, size_t *bytes) {
    *bytes = rn_utf8_sequence(text.data + at, text.bytes - at);
    return *bytes ? rn_utf8_decode(text.data + at, bytes) : 0;
}

// Letters, marks, decimal digits and connectors: what \w is.
static bool is_word(uint32_t letter) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)letter);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) ||
           category == UTF8PROC_CATEGORY_PC;
}

static bool stands_alone(rn_str text, size_t start, size_t end) {
    size_t bytes;
    if (start > 0 && is_word(character(text, previous_character(text, start), &bytes)))
        return false;
    return end == text.bytes || !is_word(character(text, end, &bytes));
}

static rn_added_match widen(const rn_added_token *token, rn_str text, size_t from, size_t start) {
    size_t end = start + token->content.bytes, bytes, before;
    while (token->lstrip && start > from) {
        before = previous_character(text, start);
        if (before < from || !rn_is_space(character(text, before, &bytes))) break;
        start = before;
    }
    while (token->rstrip && end < text.bytes && rn_is_space(character(text, end, &bytes)))
        end += bytes;
    return (rn_added_match){token, start, end};
}

typedef struct search {
    const rn_added *added;
    rn_str text;
    rn_taint taint;
    bool special, ordinary; // what may be found
} search;

static const rn_added_token *longest_at(const search *s, size_t at);

// Whether an ordinary token at [start, end), a part of which is a message's, would take a piece of
// a special one that is the template's.
static bool cuts_special(const search *s, size_t start, size_t end) {
    search other = *s;
    other.ordinary = false;
    if (!s->special || !rn_taint_any(s->taint, start, end)) return false;
    for (size_t at = start + 1; at < end; at++)
        if (s->added->begins[(uint8_t)s->text.data[at]] && longest_at(&other, at)) return true;
    return false;
}

static bool is_allowed(const search *s, const rn_added_token *token, size_t at) {
    size_t end = at + token->content.bytes;
    if (token->single_word && !stands_alone(s->text, at, end)) return false;
    if (token->special) return s->special && !rn_taint_any(s->taint, at, end);
    return s->ordinary && !cuts_special(s, at, end);
}

// The longest token at `at`, or NULL.
static const rn_added_token *longest_at(const search *s, size_t at) {
    const rn_added *added = s->added;
    const rn_added_token *found = NULL;
    size_t low = 0, high = added->count;
    for (size_t depth = 0; low < high; depth++) {
        for (; low < high && added->tokens[low].content.bytes == depth; low++)
            if (is_allowed(s, &added->tokens[low], at)) found = &added->tokens[low];
        if (at + depth >= s->text.bytes) break;
        int byte = (uint8_t)s->text.data[at + depth];
        low = bound(added, low, high, depth, byte);
        high = bound(added, low, high, depth, byte + 1);
    }
    return found;
}

rn_added_match rn_added_find(const rn_added *added, rn_str text, rn_taint taint, size_t from,
                             bool special) {
    search s = {added, text, taint, special, true};
    if (added->count == 0 || (!special && !added->any_ordinary)) return (rn_added_match){0};
    for (size_t at = from; at < text.bytes; at++) {
        if (!added->begins[(uint8_t)text.data[at]]) continue;
        const rn_added_token *token = longest_at(&s, at);
        if (token) return widen(token, text, from, at);
    }
    return (rn_added_match){0};
}

const rn_added_token *rn_added_get(const rn_added *added, rn_str content) {
    size_t low = 0, high = added->count;
    for (size_t depth = 0; depth < content.bytes && low < high; depth++) {
        int byte = (uint8_t)content.data[depth];
        low = bound(added, low, high, depth, byte);
        high = bound(added, low, high, depth, byte + 1);
    }
    bool found = low < high && added->tokens[low].content.bytes == content.bytes;
    return found ? &added->tokens[low] : NULL;
}
