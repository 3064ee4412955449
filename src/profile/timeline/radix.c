// radix.c — from the lowest digit to the highest, 11 bits at a time. Times and addresses use few of
// their 64 bits, so digits that are the same in all keys are skipped; what is in order already,
// as most of a recording is, is left alone.
#include "profile/timeline/radix.h"
#include "base/checked.h"

#include <string.h>

#define DIGIT_BITS 11
#define DIGITS     6 // 6 * 11 >= 64
#define BUCKETS    ((size_t)1 << DIGIT_BITS)

static size_t digit_of(uint64_t key, int digit) {
    return key >> (digit * DIGIT_BITS) & (BUCKETS - 1);
}

static bool is_sorted(const rn_sort_item *items, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (items[i].key < items[i - 1].key) return false;
    return true;
}

static void count_digits(const rn_sort_item *items, size_t count, uint32_t (*counts)[BUCKETS]) {
    memset(counts, 0, DIGITS * sizeof *counts);
    for (size_t i = 0; i < count; i++)
        for (int d = 0; d < DIGITS; d++)
            counts[d][digit_of(items[i].key, d)]++;
}

// `counts` become the places where each bucket begins.
static void move_by_digit(const rn_sort_item *from, size_t count, int digit, uint32_t *counts,
                          rn_sort_item *to) {
    uint32_t begin = 0;
    for (size_t b = 0; b < BUCKETS; b++) {
        uint32_t here = counts[b];
        counts[b] = begin;
        begin += here;
    }
    for (size_t i = 0; i < count; i++)
        to[counts[digit_of(from[i].key, digit)]++] = from[i];
}

static void sort_with(rn_sort_item *items, rn_sort_item *other, size_t count,
                      uint32_t (*counts)[BUCKETS]) {
    rn_sort_item *from = items, *to = other;
    count_digits(items, count, counts);
    for (int d = 0; d < DIGITS; d++) {
        if (counts[d][digit_of(items[0].key, d)] == count) continue;
        move_by_digit(from, count, d, counts[d], to);
        rn_sort_item *filled = to;
        to = from;
        from = filled;
    }
    if (from != items) memcpy(items, from, count * sizeof *items);
}

rn_status rn_radix_sort(const rn_allocator *from, rn_sort_item *items, size_t count) {
    if (is_sorted(items, count)) return RN_OK;
    size_t bytes = count * sizeof *items, all_bytes = 0;
    if (count > UINT32_MAX || !rn_add_size(bytes, DIGITS * sizeof(uint32_t[BUCKETS]), &all_bytes))
        return rn_fail(RN_UNSUPPORTED, "%zu items are too many to sort", count);
    void *block = NULL;
    RN_TRY(rn_alloc(from, all_bytes, &block));
    sort_with(items, block, count, (uint32_t(*)[BUCKETS])((char *)block + bytes));
    rn_free(from, block, all_bytes);
    return RN_OK;
}
