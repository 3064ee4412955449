// map.h — text to index: an open-addressing hash map whose keys are borrowed.
//
// The caller keeps the keys' bytes alive (an arena, a header buffer). Hashes are seeded for each
// map, so that a hostile file cannot choose names that collide. Not thread-safe while it is being
// filled.
#ifndef RN_BASE_MAP_H
#define RN_BASE_MAP_H

#include "base/alloc.h"
#include "base/str.h"

typedef struct rn_map_slot rn_map_slot;

typedef struct rn_map {
    const rn_allocator *from;
    rn_map_slot *slots; // (capacity), capacity a power of two or 0
    size_t capacity, count;
    uint64_t seed;
} rn_map;

void rn_map_init(rn_map *map, const rn_allocator *from);
void rn_map_free(rn_map *map);
// Room for `count` keys without growing.
RN_MUST_USE rn_status rn_map_reserve(rn_map *map, size_t count);
// Adds key -> value; *out_existing (may be NULL) says that the key was there already: then nothing
// changes.
RN_MUST_USE rn_status rn_map_add(rn_map *map, rn_str key, uint64_t value, bool *out_existing);
// True and the value, or false.
bool rn_map_find(const rn_map *map, rn_str key, uint64_t *out_value);
// The keys' pointers in no particular order, at most `capacity`; returns how many. For maps whose
// keys are terminated strings.
size_t rn_map_keys(const rn_map *map, const char **out_keys, size_t capacity);
// 64-bit hash of bytes (also for checksums of small things; not cryptographic).
uint64_t rn_hash(const void *data, size_t bytes, uint64_t seed);

#endif
