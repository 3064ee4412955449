// map.c — linear probing at no more than 3/4 full; a slot is empty while its key pointer is NULL.
#include "base/map.h"
#include "base/checked.h"

#include <string.h>
#include <time.h>

struct rn_map_slot {
    rn_str key; // data is never NULL in a used slot: an empty key points at empty_key
    uint64_t hash, value;
};

static const char empty_key[1] = "";

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

uint64_t rn_hash(const void *data, size_t bytes, uint64_t seed) {
    const char *from = data;
    uint64_t hash = seed ^ mix(bytes + 0x9e3779b97f4a7c15u), word;
    for (; bytes >= 8; bytes -= 8, from += 8) {
        memcpy(&word, from, 8);
        hash = mix(hash ^ word) + seed;
    }
    word = 0;
    if (bytes) memcpy(&word, from, bytes);
    return mix(hash ^ word);
}

void rn_map_init(rn_map *map, const rn_allocator *from) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t seed = mix((uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 32) ^ (uintptr_t)map);
    *map = (rn_map){.from = from, .seed = seed};
}

void rn_map_free(rn_map *map) {
    rn_free(map->from, map->slots, map->capacity * sizeof *map->slots);
    map->slots = NULL;
    map->capacity = map->count = 0;
}

// The key's slot, or the empty one where it belongs.
static rn_map_slot *locate(rn_map_slot *slots, size_t capacity, rn_str key, uint64_t hash) {
    for (size_t i = hash & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
        rn_map_slot *slot = &slots[i];
        if (!slot->key.data) return slot;
        if (slot->hash == hash && rn_str_equal(slot->key, key)) return slot;
    }
}

static rn_status resize(rn_map *map, size_t capacity) {
    void *block;
    RN_TRY(rn_alloc_zeroed(map->from, capacity, sizeof *map->slots, &block));
    rn_map_slot *slots = block;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key.data)
            *locate(slots, capacity, map->slots[i].key, map->slots[i].hash) = map->slots[i];
    rn_free(map->from, map->slots, map->capacity * sizeof *map->slots);
    map->slots = slots;
    map->capacity = capacity;
    return RN_OK;
}

rn_status rn_map_reserve(rn_map *map, size_t count) {
    size_t capacity = map->capacity ? map->capacity : 16;
    if (count > SIZE_MAX / 4) return rn_fail(RN_NO_MEMORY, "a map cannot hold %zu keys", count);
    while (capacity / 4 * 3 < count)
        capacity *= 2;
    return capacity == map->capacity ? RN_OK : resize(map, capacity);
}

rn_status rn_map_add(rn_map *map, rn_str key, uint64_t value, bool *out_existing) {
    if (!key.data) key.data = empty_key;
    RN_TRY(rn_map_reserve(map, map->count + 1));
    uint64_t hash = rn_hash(key.data, key.bytes, map->seed);
    rn_map_slot *slot = locate(map->slots, map->capacity, key, hash);
    bool existing = slot->key.data != NULL;
    if (out_existing) *out_existing = existing;
    if (existing) return RN_OK;
    *slot = (rn_map_slot){key, hash, value};
    map->count++;
    return RN_OK;
}

bool rn_map_find(const rn_map *map, rn_str key, uint64_t *out_value) {
    if (map->count == 0) return false;
    if (!key.data) key.data = empty_key;
    uint64_t hash = rn_hash(key.data, key.bytes, map->seed);
    const rn_map_slot *slot = locate(map->slots, map->capacity, key, hash);
    if (!slot->key.data) return false;
    *out_value = slot->value;
    return true;
}

size_t rn_map_keys(const rn_map *map, const char **out_keys, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < map->capacity && count < capacity; i++)
        if (map->slots[i].key.data) out_keys[count++] = map->slots[i].key.data;
    return count;
}
