// pickle_value.c — looking at what a pickle held.
#include "profile/foreign/pickle_value.h"

enum { MOST_KEYS = 64 }; // that rn_pickle_get looks at

rn_pickle_node *rn_pickle_node_of(rn_pickle_value value) {
    return rn_pickle_tag(value) == TAG_NODE ? (rn_pickle_node *)(uintptr_t)value.word : NULL;
}

rn_pickle_kind rn_pickle_kind_of(rn_pickle_value value) {
    switch (rn_pickle_tag(value)) {
    case TAG_NODE:
        return rn_pickle_node_of(value)->kind;
    case TAG_FALSE:
    case TAG_TRUE:
        return RN_PICKLE_BOOL;
    case TAG_INT:
        return RN_PICKLE_INT;
    default:
        return RN_PICKLE_NONE;
    }
}

rn_str rn_pickle_text_of(rn_pickle_value value) {
    const rn_pickle_node *node = rn_pickle_node_of(value);
    return node && node->kind == RN_PICKLE_TEXT ? node->text : (rn_str){"", 0};
}

bool rn_pickle_is_true(rn_pickle_value value) {
    return rn_pickle_tag(value) == TAG_TRUE;
}

static bool u64_of_double(double number, uint64_t *out) {
    if (!(number >= 0 && number < 0x1p63)) return false;
    *out = (uint64_t)number;
    return true;
}

bool rn_pickle_u64_of(rn_pickle_value value, uint64_t *out) {
    const rn_pickle_node *node = rn_pickle_node_of(value);
    *out = 0;
    if (node && node->kind == RN_PICKLE_FLOAT) return u64_of_double(node->number, out);
    if (node && node->kind == RN_PICKLE_INT) {
        *out = node->is_negative ? 0 : node->integer;
        return !node->is_negative;
    }
    if (rn_pickle_tag(value) != TAG_INT || (int64_t)value.word < 0) return false;
    *out = value.word >> TAG_BITS;
    return true;
}

rn_pickle_walk rn_pickle_walk_begin(rn_pickle_value value) {
    rn_pickle_kind kind = rn_pickle_kind_of(value);
    bool has_items = kind == RN_PICKLE_LIST || kind == RN_PICKLE_TUPLE || kind == RN_PICKLE_DICT;
    return (rn_pickle_walk){.chunk = has_items ? rn_pickle_node_of(value)->first : NULL};
}

bool rn_pickle_walk_next(rn_pickle_walk *walk, rn_pickle_value *out) {
    while (walk->chunk && walk->at == walk->chunk->count)
        *walk = (rn_pickle_walk){.chunk = walk->chunk->next};
    if (!walk->chunk) return false;
    *out = walk->chunk->items[walk->at++];
    return true;
}

rn_pickle_value rn_pickle_get(rn_pickle_value dict, rn_str key) {
    rn_pickle_value found = {TAG_NONE}, name, value;
    if (rn_pickle_kind_of(dict) != RN_PICKLE_DICT) return found;
    rn_pickle_walk walk = rn_pickle_walk_begin(dict);
    for (int i = 0;
         i < MOST_KEYS && rn_pickle_walk_next(&walk, &name) && rn_pickle_walk_next(&walk, &value);
         i++)
        if (rn_pickle_kind_of(name) == RN_PICKLE_TEXT && rn_str_equal(rn_pickle_text_of(name), key))
            found = value;
    return found;
}
