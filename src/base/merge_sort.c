// merge_sort.c — runs short enough for qsort, merged two by two, and by two again; says how much it
// has done.
#include "base/merge_sort.h"

#include "base/stop.h"

#include <stdlib.h>
#include <string.h>

enum { RUN = 2048, RUN_UNITS = 11 }; // units for an item of a run: its comparisons

// Merges [low, middle) and [middle, high) of `from` into `to`. False where it was ended.
static bool merge(const char *from, char *to, size_t low, size_t middle, size_t high, size_t bytes,
                  int (*compare)(const void *, const void *)) {
    size_t a = low, b = middle;
    for (size_t i = low; i < high; i++) {
        bool first = b == high || (a < middle && compare(from + a * bytes, from + b * bytes) <= 0);
        size_t *source = first ? &a : &b;
        memcpy(to + i * bytes, from + *source * bytes, bytes);
        ++*source;
        if ((i & 1023) == 0 && rn_stop_spend(1024) != RN_STOP_GO_ON) return false;
    }
    return true;
}

bool rn_sort_within(void *items, void *scratch, size_t count, size_t item_bytes,
                    int (*compare)(const void *, const void *)) {
    char *from = items, *to = scratch;
    for (size_t low = 0; low < count; low += RUN) {
        size_t run = count - low < RUN ? count - low : RUN;
        qsort(from + low * item_bytes, run, item_bytes, compare);
        if (rn_stop_spend(run * RUN_UNITS) != RN_STOP_GO_ON) return false;
    }
    for (size_t width = RUN; width < count; width *= 2) {
        for (size_t low = 0; low < count; low += 2 * width) {
            size_t middle = low + width < count ? low + width : count;
            size_t high = low + 2 * width < count ? low + 2 * width : count;
            if (!merge(from, to, low, middle, high, item_bytes, compare)) {
                if (from != items) memcpy(items, from, count * item_bytes);
                return false;
            }
        }
        char *other = from;
        from = to;
        to = other;
    }
    if (from != items) memcpy(items, from, count * item_bytes);
    return true;
}
