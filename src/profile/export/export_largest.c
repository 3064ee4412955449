// export_largest.c — a bounded heap: what is larger than the smallest kept takes its place.
#include "profile/export/export_largest.h"

static void swap(rn_largest *l, size_t a, size_t b) {
    uint32_t other = l->items[a];
    l->items[a] = l->items[b];
    l->items[b] = other;
}

static bool is_smaller(const rn_largest *l, size_t a, size_t b) {
    return rn_is_larger(l->timeline, l->items[b], l->items[a]);
}

static void sink_down(rn_largest *l, size_t count) {
    for (size_t at = 0;;) {
        size_t least = at, left = 2 * at + 1, right = left + 1;
        if (left < count && is_smaller(l, left, least)) least = left;
        if (right < count && is_smaller(l, right, least)) least = right;
        if (least == at) return;
        swap(l, at, least);
        at = least;
    }
}

static void lift_up(rn_largest *l, size_t at) {
    for (; at && is_smaller(l, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(l, at, (at - 1) / 2);
}

void rn_largest_offer(rn_largest *l, uint32_t alloc) {
    if (l->count < l->capacity) {
        l->items[l->count] = alloc;
        lift_up(l, l->count++);
    } else if (l->capacity && rn_is_larger(l->timeline, alloc, l->items[0])) {
        l->items[0] = alloc;
        sink_down(l, l->count);
    }
}

void rn_largest_sort(rn_largest *l) {
    for (size_t count = l->count; count > 1;) {
        swap(l, 0, --count);
        sink_down(l, count);
    }
}
