// sites.c — a stack is inserted once, from its outermost frame in; each block then adds its bytes
// to the stack's innermost frame and to all frames around it.
#include "profile/timeline/sites.h"

#include "base/checked.h"
#include "profile/timeline/radix.h"
#include "profile/timeline/report.h"

#include <stdio.h>
#include <string.h>

static rn_status make_room(const rn_allocator *from, rn_site_tree *tree) {
    if (tree->count < tree->capacity) return RN_OK;
    uint32_t more = tree->capacity ? tree->capacity * 2 : 64;
    void *block = NULL;
    if (tree->capacity > UINT32_MAX / 4) return rn_fail(RN_NO_MEMORY, "too many frames");
    RN_TRY(rn_alloc(from, more * sizeof *tree->nodes, &block));
    if (tree->count) memcpy(block, tree->nodes, tree->count * sizeof *tree->nodes);
    rn_free(from, tree->nodes, tree->capacity * sizeof *tree->nodes);
    tree->nodes = block;
    tree->capacity = more;
    return RN_OK;
}

static rn_status add_node(const rn_allocator *from, rn_site_tree *tree, uint32_t outer,
                          rn_str frame) {
    RN_TRY(make_room(from, tree));
    tree->nodes[tree->count++] = (rn_site_node){
        .frame = frame, .outer = outer, .child = RN_NO_INDEX, .sibling = RN_NO_INDEX};
    return RN_OK;
}

static rn_status find_node(const rn_allocator *from, rn_site_tree *tree, uint32_t outer,
                           rn_str frame, uint32_t *out) {
    void *key = NULL;
    uint64_t known;
    RN_TRY(rn_arena_alloc(&tree->memory, sizeof outer + frame.bytes, &key));
    memcpy(key, &outer, sizeof outer);
    memcpy((char *)key + sizeof outer, frame.data, frame.bytes);
    rn_str text = {key, sizeof outer + frame.bytes};
    *out = tree->count;
    if (rn_map_find(&tree->ids, text, &known)) {
        *out = (uint32_t)known;
        return RN_OK;
    }
    RN_TRY(add_node(from, tree, outer, frame));
    return rn_map_add(&tree->ids, text, *out, NULL);
}

// The innermost frame of a stack; of one without frames its name is the only one.
static rn_status find_leaf(const rn_timeline *t, rn_site_tree *tree, uint32_t site, uint32_t *out) {
    const char *at = t->names[site].detail[0] ? t->names[site].detail : t->names[site].name;
    *out = 0;
    for (int depth = 0; *at && depth < RN_SITE_DEPTH; depth++) {
        size_t bytes = strcspn(at, "\n");
        RN_TRY(find_node(t->allocator, tree, *out, (rn_str){at, bytes}, out));
        at += bytes + (at[bytes] == '\n');
    }
    return RN_OK;
}

// Lists of children, the largest first: the smallest is put there first.
static rn_status link_children(const rn_timeline *t, rn_site_tree *tree) {
    void *block = NULL;
    RN_TRY(rn_alloc(t->allocator, tree->count * sizeof(rn_sort_item), &block));
    rn_sort_item *items = block;
    for (uint32_t i = 0; i < tree->count; i++)
        items[i] = (rn_sort_item){.key = tree->nodes[i].bytes, .index = i};
    rn_status s = rn_radix_sort(t->allocator, items, tree->count);
    for (uint32_t i = 0; s == RN_OK && i < tree->count; i++) {
        uint32_t index = items[i].index;
        rn_site_node *node = &tree->nodes[index];
        if (node->outer == RN_NO_INDEX) continue;
        node->sibling = tree->nodes[node->outer].child;
        tree->nodes[node->outer].child = index;
    }
    rn_free(t->allocator, block, tree->count * sizeof *items);
    return s;
}

static rn_status fill(const rn_timeline *t, const uint32_t *live, size_t count, uint32_t *leaves,
                      rn_site_tree *tree) {
    for (size_t i = 0; i < count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[live[i]];
        if (!alloc->site) continue;
        uint32_t *leaf = &leaves[alloc->site];
        if (*leaf == RN_NO_INDEX) RN_TRY(find_leaf(t, tree, alloc->site, leaf));
        for (uint32_t n = *leaf; n != RN_NO_INDEX; n = tree->nodes[n].outer) {
            tree->nodes[n].bytes += alloc->bytes;
            tree->nodes[n].count++;
        }
    }
    return link_children(t, tree);
}

rn_status rn_site_tree_make(const rn_timeline *t, const uint32_t *live, size_t count,
                            rn_site_tree *out) {
    void *leaves = NULL;
    *out = (rn_site_tree){0};
    rn_arena_init(&out->memory, t->allocator, 0);
    rn_map_init(&out->ids, t->allocator);
    RN_TRY(add_node(t->allocator, out, RN_NO_INDEX, (rn_str){"", 0}));
    RN_TRY(rn_alloc(t->allocator, t->name_count * sizeof(uint32_t), &leaves));
    memset(leaves, 0xff, t->name_count * sizeof(uint32_t));
    rn_status s = fill(t, live, count, leaves, out);
    rn_free(t->allocator, leaves, t->name_count * sizeof(uint32_t));
    return s;
}

void rn_site_tree_free(const rn_timeline *t, rn_site_tree *tree) {
    rn_free(t->allocator, tree->nodes, tree->capacity * sizeof *tree->nodes);
    rn_map_free(&tree->ids);
    rn_arena_free_all(&tree->memory);
}

// ---- for people ---------------------------------------------------------------------------------

static rn_label frame_text(rn_str frame) {
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)rn_min_u64(frame.bytes, sizeof text - 1), frame.data);
    return rn_label_of(text, "?");
}

// A depth-first walk with its own stack of siblings.
rn_status rn_site_tree_print(const rn_site_tree *tree, uint64_t least, rn_sink sink) {
    uint32_t next[RN_SITE_DEPTH + 1];
    int depth = 0;
    next[0] = tree->nodes[0].child;
    while (depth >= 0) {
        uint32_t at = next[depth];
        if (at == RN_NO_INDEX || tree->nodes[at].bytes < least) {
            depth--;
            continue;
        }
        const rn_site_node *node = &tree->nodes[at];
        next[depth] = node->sibling;
        RN_TRY(rn_sink_print(sink, "%12s %6.1f%% %8llu  %*s%s\n", rn_size_format(node->bytes).text,
                             100.0 * (double)node->bytes / (double)tree->nodes[0].bytes,
                             (unsigned long long)node->count, depth > 30 ? 30 : depth, "",
                             frame_text(node->frame).text));
        if (depth + 1 <= RN_SITE_DEPTH) next[++depth] = node->child;
    }
    return RN_OK;
}
