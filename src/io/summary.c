// summary.c — counting tensors by block and dtype.
#include <ration/summary.h>

#include "base/map.h"
#include "memory/account.h"
#include "memory/sort.h"

#include <stdlib.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_number(const char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (!is_digit(from[i])) return false;
    return bytes > 0;
}

rn_str rn_block_of(rn_str name) {
    size_t last_dot = 0;
    for (size_t start = 0; start <= name.bytes;) {
        const char *dot =
            start < name.bytes ? memchr(name.data + start, '.', name.bytes - start) : NULL;
        size_t end = dot ? (size_t)(dot - name.data) : name.bytes;
        if (start > 0 && dot && is_number(name.data + start, end - start))
            return (rn_str){name.data, end};
        if (!dot) break;
        last_dot = end;
        start = end + 1;
    }
    return last_dot ? (rn_str){name.data, last_dot} : name;
}

// The number of digits at `at` without leading zeros; *out_start is where they begin.
static size_t digits_at(rn_str s, size_t at, size_t *out_start) {
    while (at < s.bytes && s.data[at] == '0' && at + 1 < s.bytes && is_digit(s.data[at + 1]))
        at++;
    *out_start = at;
    size_t end = at;
    while (end < s.bytes && is_digit(s.data[end]))
        end++;
    return end - at;
}

int rn_natural_compare(rn_str a, rn_str b) {
    size_t i = 0, j = 0;
    while (i < a.bytes && j < b.bytes) {
        if (!is_digit(a.data[i]) || !is_digit(b.data[j])) {
            unsigned char x = (unsigned char)a.data[i++], y = (unsigned char)b.data[j++];
            if (x != y) return x < y ? -1 : 1;
            continue;
        }
        size_t m = digits_at(a, i, &i), n = digits_at(b, j, &j);
        if (m != n) return m < n ? -1 : 1;
        int order = memcmp(a.data + i, b.data + j, m);
        if (order) return order;
        i += m;
        j += n;
    }
    if (i == a.bytes && j == b.bytes) return 0;
    return i == a.bytes ? -1 : 1;
}

static int compare_blocks(const void *left, const void *right) {
    const rn_summary_line *a = left, *b = right;
    return rn_natural_compare(a->name, b->name);
}

static int compare_bytes(const void *left, const void *right) {
    const rn_summary_line *a = left, *b = right;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return rn_natural_compare(a->name, b->name);
}

static void count(rn_summary_line *line, const rn_tensor_info *tensor) {
    line->tensors++;
    line->elements += tensor->elements;
    line->bytes += tensor->bytes;
}

static void count_dtypes(const rn_checkpoint *checkpoint, rn_summary *out) {
    rn_summary_line lines[RN_DTYPE_COUNT] = {0};
    for (size_t i = 0; i < rn_checkpoint_count(checkpoint); i++) {
        const rn_tensor_info *tensor = rn_checkpoint_tensor(checkpoint, i);
        count(&lines[tensor->dtype], tensor);
        out->elements += tensor->elements;
        out->bytes += tensor->bytes;
    }
    for (int d = 0; d < RN_DTYPE_COUNT; d++) {
        if (lines[d].tensors == 0) continue;
        lines[d].name = rn_str_from(rn_dtype_get((rn_dtype)d)->name);
        out->dtypes[out->dtype_count++] = lines[d];
    }
    qsort(out->dtypes, out->dtype_count, sizeof *out->dtypes, compare_bytes);
}

// First the names, to know how many there are; then the array and the counts.
static rn_status count_blocks(const rn_checkpoint *checkpoint, rn_map *blocks, rn_summary *out) {
    void *array;
    for (size_t i = 0; i < rn_checkpoint_count(checkpoint); i++) {
        rn_str name = rn_block_of(rn_checkpoint_tensor(checkpoint, i)->name);
        RN_TRY(rn_map_add(blocks, name, blocks->count, NULL));
    }
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, blocks->count, sizeof *out->blocks, &array));
    out->blocks = array;
    out->block_count = out->block_capacity = blocks->count;
    for (size_t i = 0; i < rn_checkpoint_count(checkpoint); i++) {
        const rn_tensor_info *tensor = rn_checkpoint_tensor(checkpoint, i);
        rn_str name = rn_block_of(tensor->name);
        uint64_t index = 0;
        (void)rn_map_find(blocks, name, &index); // it was added above
        out->blocks[index].name = name;
        count(&out->blocks[index], tensor);
    }
    return rn_sort(out->blocks, out->block_count, sizeof *out->blocks, compare_blocks);
}

rn_status rn_summary_make(const rn_checkpoint *checkpoint, rn_summary *out) {
    rn_map blocks;
    *out = (rn_summary){.block_count = 0};
    rn_map_init(&blocks, RN_HOST_IO);
    count_dtypes(checkpoint, out);
    rn_status s = count_blocks(checkpoint, &blocks, out);
    rn_map_free(&blocks);
    return s;
}

void rn_summary_free(rn_summary *summary) {
    rn_free(RN_HOST_IO, summary->blocks, summary->block_capacity * sizeof *summary->blocks);
    summary->blocks = NULL;
    summary->block_count = summary->block_capacity = 0;
}
