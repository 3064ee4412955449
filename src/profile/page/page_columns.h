// page_columns.h — numbers in a page: a column is a script element that holds base64.
//
//     <script type="text/plain" data-column="op.begin" data-form="u2" data-count="1000"
//             data-rule="difference" data-packed="2000">AAAA...</script>
//
// Whoever writes a column fills `values`, and says how they go on from row to row; what is left is
// written in the form that takes the fewest bytes, all little-endian:
//     "0"             nothing at all: every value is zero
//     "u1" "u2" "u4"  unsigned
//     "v"             7 bits a byte, the lowest first; the highest bit says that there is more
//     "f8"            IEEE double: numbers from 2^53 are rounded
// Where that repeats itself, it is packed (page_lz.h), and data-packed has the bytes that it was.
//
// Most times are those of operations: what an operation allocates begins just behind its begin,
// what it releases ends just before its end. So times that rise may be written as where they lie
// between the edges: time 0, all begins and ends of operations, the recording's end, in order.
#ifndef RN_PROFILE_PAGE_COLUMNS_H
#define RN_PROFILE_PAGE_COLUMNS_H

#include <ration/text.h>

#include "base/alloc.h"

typedef struct rn_page_columns {
    rn_sink sink;
    const rn_allocator *allocator;
    uint64_t *values; // (capacity), for the caller to fill; a write destroys them
    size_t capacity;
    const uint64_t *edges; // (edge_count), rising; the caller's. None: RN_PAGE_DIFFERENCE is used
    size_t edge_count;
    struct rn_page_base64 *base64;
    uint32_t *slots; // of rn_page_lz_pack
} rn_page_columns;

RN_MUST_USE rn_status rn_page_columns_open(rn_page_columns *c, const rn_allocator *allocator,
                                           size_t capacity, rn_sink sink);
void rn_page_columns_close(rn_page_columns *c);
typedef enum rn_page_rule {
    RN_PAGE_PLAIN,       // the values
    RN_PAGE_DIFFERENCE,  // each minus the one before; they rise
    RN_PAGE_NEAR_LAST,   // the same, with a sign: 0, -1, 1, -2, ... are written as 0, 1, 2, 3, ...
    RN_PAGE_NEAR_ROW,    // each minus the number of its row, with a sign
    RN_PAGE_SIGNED,      // the values (as int64_t), with a sign
    RN_PAGE_BEHIND_EDGE, // they rise: how many edges on from the one before the last edge that is
                         // not above lies, for all; then how far behind it each is. Twice `count`
                         // numbers
    RN_PAGE_BEFORE_EDGE, // the same with the first edge that is not below, and how far before it
} rn_page_rule;

// The first `count` values, as `name` (letters and points); capacity is twice that at least for the
// last two rules, which give way to RN_PAGE_DIFFERENCE where that is shorter.
RN_MUST_USE rn_status rn_page_columns_write(rn_page_columns *c, const char *name, size_t count,
                                            rn_page_rule rule);

#endif
