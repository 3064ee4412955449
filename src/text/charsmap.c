// charsmap.c — darts-clone's double array, read in place.
//
//     unit   31 leaf | 30..10 offset | 9 offset << 8 | 8 has a leaf | 7..0 label
//     leaf   31 set  | 30..0 value: where its replacement begins
//
// The child of the unit at `i` by a byte is at i ^ offset ^ byte and must carry that byte as its
// label; its leaf is at i ^ offset. The check is one pass over all units, used or not: children
// stay inside the array, leaves inside the replacements. Walking ends because each step takes a
// byte of the text.
#include "text/charsmap.h"

#include "base/str.h"

#include <limits.h>

#define LEAF ((uint32_t)1 << 31)

static uint32_t unit_at(const rn_charsmap *map, size_t index) {
    uint32_t unit;
    memcpy(&unit, map->blob + 4 + index * 4, 4);
    return unit;
}

static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200) >> 6);
}

static const char *replacements(const rn_charsmap *map) {
    return map->blob + 4 + map->unit_count * 4;
}

static size_t replacement_bytes(const rn_charsmap *map) {
    return map->bytes - 4 - map->unit_count * 4;
}

static rn_status check_leaf(const rn_charsmap *map, uint32_t value) {
    if (value >= replacement_bytes(map))
        return rn_fail(RN_CORRUPT, "the replacement table points to byte %u of %zu", value,
                       replacement_bytes(map));
    if (strnlen(replacements(map) + value, RN_CHARSMAP_LONGEST + 1) > RN_CHARSMAP_LONGEST)
        return rn_fail(RN_UNSUPPORTED, "a replacement has more than %d bytes", RN_CHARSMAP_LONGEST);
    return RN_OK;
}

static rn_status check_unit(const rn_charsmap *map, size_t index) {
    uint32_t unit = unit_at(map, index);
    if (unit & LEAF) return RN_OK;
    size_t children = index ^ offset_of(unit);
    if ((children | 0xff) >= map->unit_count)
        return rn_fail(RN_CORRUPT, "the replacement table's unit %zu points outside its %zu units",
                       index, map->unit_count);
    return unit & 0x100 ? check_leaf(map, unit_at(map, children) & ~LEAF) : RN_OK;
}

static rn_status check(rn_charsmap *map) {
    uint32_t trie_bytes = 0;
    if (map->bytes >= 4) memcpy(&trie_bytes, map->blob, 4);
    if (map->bytes < 4 || trie_bytes >= map->bytes - 4)
        return rn_fail(RN_CORRUPT, "the replacement table has %zu bytes, its trie alone %u",
                       map->bytes, trie_bytes);
    if (trie_bytes == 0 || trie_bytes % 1024)
        return rn_fail(RN_CORRUPT,
                       "the replacement table's trie has %u bytes, not a multiple of 1024",
                       trie_bytes);
    map->unit_count = trie_bytes / 4;
    if (unit_at(map, 0) & LEAF)
        return rn_fail(RN_CORRUPT, "the replacement table's trie begins with a leaf");
    for (size_t i = 0; i < map->unit_count; i++)
        RN_TRY(check_unit(map, i));
    return RN_OK;
}

static bool has_child(const rn_charsmap *map, size_t children, uint32_t byte) {
    return (unit_at(map, children ^ byte) & (LEAF | 0xff)) == byte;
}

static void find_starts(rn_charsmap *map) {
    size_t root = offset_of(unit_at(map, 0));
    for (uint32_t byte = 0; byte < 256; byte++) {
        map->starts[byte] = has_child(map, root, byte);
        if (!map->starts[byte]) continue;
        uint32_t unit = unit_at(map, root ^ byte);
        map->starts_ascii[byte] = unit & 0x100;
        for (uint32_t next = 0; next < 128; next++)
            if (has_child(map, root ^ byte ^ offset_of(unit), next)) map->starts_ascii[byte] = true;
    }
}

rn_status rn_charsmap_init(rn_charsmap *map, const rn_allocator *from, rn_str blob) {
    *map = (rn_charsmap){.from = from};
    if (blob.bytes == 0) return RN_OK;
    if (blob.bytes > INT_MAX)
        return rn_fail(RN_CORRUPT, "the replacement table has %zu bytes", blob.bytes);
    RN_TRY(rn_alloc(from, blob.bytes + 1, (void **)&map->blob));
    map->bytes = blob.bytes;
    memcpy(map->blob, blob.data, blob.bytes);
    map->blob[blob.bytes] = '\0';
    rn_status s = check(map);
    if (s != RN_OK)
        rn_charsmap_free(map);
    else
        find_starts(map);
    return s;
}

void rn_charsmap_free(rn_charsmap *map) {
    if (map->blob) rn_free(map->from, map->blob, map->bytes + 1);
    *map = (rn_charsmap){.from = map->from};
}

size_t rn_charsmap_find(const rn_charsmap *map, rn_str text, rn_str *out) {
    size_t longest = 0, node;
    uint32_t value = 0;
    if (map->unit_count == 0) return 0;
    node = offset_of(unit_at(map, 0));
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        uint32_t unit = unit_at(map, node ^ byte);
        if ((unit & (LEAF | 0xff)) != byte) break;
        node ^= byte ^ offset_of(unit);
        if (!(unit & 0x100)) continue;
        longest = i + 1;
        value = unit_at(map, node) & ~LEAF;
    }
    if (longest) *out = rn_str_from(replacements(map) + value);
    return longest;
}
