// pairs.c — see pairs.h.
#include "io/pairs.h"

#include "base/str.h"

void rn_pairs_init(rn_pairs *pairs, const rn_allocator *from) {
    *pairs = (rn_pairs){0};
    rn_arena_init(&pairs->arena, from, 0);
}

void rn_pairs_free(rn_pairs *pairs) {
    if (pairs->arena.from) rn_arena_free_all(&pairs->arena);
    *pairs = (rn_pairs){0};
}

static rn_status copy(rn_pairs *pairs, rn_str text, rn_str *out) {
    void *block;
    RN_TRY(rn_arena_copy(&pairs->arena, text.data, text.bytes, &block));
    *out = (rn_str){block, text.bytes};
    return RN_OK;
}

static rn_status add(rn_pairs *pairs, const char *key, rn_metadata pair) {
    if (pairs->count == pairs->capacity) {
        void *block;
        size_t capacity = pairs->capacity ? 2 * pairs->capacity : 64;
        RN_TRY(rn_arena_array(&pairs->arena, capacity, sizeof *pairs->items, &block));
        if (pairs->count) memcpy(block, pairs->items, pairs->count * sizeof *pairs->items);
        pairs->items = block;
        pairs->capacity = capacity;
    }
    RN_TRY(copy(pairs, rn_str_from(key), &pair.key));
    pairs->items[pairs->count++] = pair;
    return RN_OK;
}

rn_status rn_pairs_u32(rn_pairs *pairs, const char *key, uint32_t value) {
    return add(
        pairs, key,
        (rn_metadata){.kind = RN_METADATA_U64, .gguf_type = RN_GGUF_U32, .value.u64 = value});
}

rn_status rn_pairs_f32(rn_pairs *pairs, const char *key, float value) {
    return add(pairs, key,
               (rn_metadata){
                   .kind = RN_METADATA_F64, .gguf_type = RN_GGUF_F32, .value.f64 = (double)value});
}

rn_status rn_pairs_bool(rn_pairs *pairs, const char *key, bool value) {
    return add(
        pairs, key,
        (rn_metadata){.kind = RN_METADATA_BOOL, .gguf_type = RN_GGUF_BOOL, .value.boolean = value});
}

rn_status rn_pairs_text(rn_pairs *pairs, const char *key, rn_str value) {
    rn_metadata pair = {.kind = RN_METADATA_TEXT, .gguf_type = RN_GGUF_STRING};
    RN_TRY(copy(pairs, value, &pair.text));
    return add(pairs, key, pair);
}

rn_status rn_pairs_array(rn_pairs *pairs, const char *key, uint32_t gguf_type, uint64_t count,
                         rn_buffer *raw) {
    rn_metadata pair = {.kind = RN_METADATA_ARRAY, .gguf_type = gguf_type, .count = count};
    rn_status s = copy(pairs, (rn_str){raw->data, raw->bytes}, &pair.raw);
    rn_buffer_free(raw);
    return s == RN_OK ? add(pairs, key, pair) : s;
}

rn_status rn_pairs_put_text(rn_buffer *raw, rn_str text) {
    uint64_t bytes = text.bytes;
    RN_TRY(rn_buffer_append(raw, &bytes, sizeof bytes));
    return rn_buffer_append(raw, text.data, text.bytes);
}
