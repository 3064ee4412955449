// toml_tree.c — adding values to a document and finding them by name.
//
// Entries are a list in file order. A table with few entries is searched along that list; a larger
// one gets a hash map, so that a hostile file with a million keys costs no more than its size.
#include "io/toml_tree.h"

enum { LIST_SEARCH_COUNT = 16 }; // tables with more entries than this have an index

static rn_status add_to_index(rn_toml_index *index, const rn_toml_value *entry) {
    return rn_map_add(&index->map, entry->key, (uint64_t)(uintptr_t)entry, NULL);
}

static rn_status make_index(rn_toml *doc, rn_toml_value *table) {
    void *block;
    RN_TRY(rn_arena_alloc(&doc->arena, sizeof(rn_toml_index), &block));
    rn_toml_index *index = block;
    rn_map_init(&index->map, doc->from);
    index->next = doc->indexes;
    doc->indexes = index;
    table->items.index = index;
    for (const rn_toml_value *entry = table->items.first; entry; entry = entry->next)
        RN_TRY(add_to_index(index, entry));
    return RN_OK;
}

static rn_status link_item(rn_toml *doc, rn_toml_value *parent, rn_toml_value *value) {
    if (parent->items.last)
        parent->items.last->next = value;
    else
        parent->items.first = value;
    parent->items.last = value;
    parent->items.count++;
    if (parent->type != RN_TOML_TABLE || parent->items.count <= LIST_SEARCH_COUNT) return RN_OK;
    return parent->items.index ? add_to_index(parent->items.index, value) : make_index(doc, parent);
}

rn_status rn_toml_add(rn_toml *doc, rn_toml_value *parent, rn_str key, rn_toml_type type,
                      rn_toml_form form, rn_toml_value **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_arena_alloc(&doc->arena, sizeof(rn_toml_value), &block));
    rn_toml_value *value = block;
    value->type = (uint8_t)type;
    value->form = (uint8_t)form;
    value->depth = parent ? (uint8_t)(parent->depth + 1) : 0;
    value->key = key;
    value->parent = parent;
    if (parent) RN_TRY(link_item(doc, parent, value));
    *out = value;
    return RN_OK;
}

const rn_toml_value *rn_toml_find(const rn_toml_value *table, rn_str key) {
    if (table->type != RN_TOML_TABLE) return NULL;
    if (table->items.index) {
        uint64_t address;
        if (!rn_map_find(&table->items.index->map, key, &address)) return NULL;
        return (const rn_toml_value *)(uintptr_t)address;
    }
    const rn_toml_value *entry = table->items.first;
    while (entry && !rn_str_equal(entry->key, key))
        entry = entry->next;
    return entry;
}
