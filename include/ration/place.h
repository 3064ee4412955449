// place.h — where buffers that live for a while lie in one block of memory: no two that are alive
// at the same time may overlap, and the block should be as small as possible.
//
//     rn_place_buffer buffers[] = {{.lower = 0, .upper = 3, .size_bytes = 4}, ...};
//     rn_placement placement;
//     RN_TRY(rn_place(buffers, count, &(rn_place_options){.effort = RN_PLACE_BEST}, offsets,
//                     &placement));
//     // placement.height_bytes are needed; buffer i lies at offsets[i]
//
// Pure: the same buffers and options give the same offsets, as long as `check` does not intervene.
// Everything here may be called from any thread.
#ifndef RATION_PLACE_H
#define RATION_PLACE_H

#include <ration/text.h>

RN_BEGIN_DECLS

typedef struct rn_place_buffer {
    uint64_t lower, upper; // alive at times t with lower <= t < upper; lower <= upper
    uint64_t size_bytes;
    uint64_t align; // of the offset: a power of two; 0 means 1
} rn_place_buffer;

typedef enum rn_place_effort {
    RN_PLACE_FIT,    // search only where a capacity is given and the quick orders do not meet it
    RN_PLACE_GREEDY, // never search
    RN_PLACE_BEST    // search for the lowest height that there is
} rn_place_effort;

typedef enum rn_place_answer {
    RN_PLACE_CONTINUE,
    RN_PLACE_STOP,  // end here; the best so far is the result
    RN_PLACE_CANCEL // give up: RN_CANCELLED
} rn_place_answer;

typedef struct rn_place_options {
    uint64_t capacity_bytes; // 0: none. A height above it is a result (`fits`), not an error
    rn_place_effort effort;
    uint64_t node_limit; // of the search in all; 0 means ten million, some seconds
    // Asked some hundred times a second while it works; NULL always continues.
    rn_place_answer (*check)(void *self);
    void *check_self;
    uint64_t reserved[4]; // zero
} rn_place_options;

typedef struct rn_placement {
    uint64_t height_bytes;
    uint64_t greedy_bytes;      // the height before any search
    uint64_t lower_bound_bytes; // the most bytes alive at once: no placement is lower
    uint64_t node_count;        // buffers that the search put down and took up again
    bool optimal;               // height == lower bound, or the search has shown that none is lower
    bool fits;                  // height <= capacity, where one was given
    bool stopped;  // `check` ended it before it was done: a longer time may give a lower one, or a
                   // higher bound
    bool hopeless; // it was shown that no placement fits the capacity
} rn_placement;

// Writes count offsets. RN_INVALID where a lifetime ends before it begins, an alignment is no power
// of two, or the sizes add up to 2^63 or more; RN_NO_MEMORY and RN_OVER_BUDGET; RN_CANCELLED where
// `check` said so.
RN_API RN_MUST_USE rn_status rn_place(const rn_place_buffer *buffers, size_t count,
                                      const rn_place_options *options, uint64_t *out_offsets,
                                      rn_placement *out);

// Whether the offsets are aligned, keep buffers that are alive together apart, and `height_bytes`
// is where the highest one ends. Looks at every pair.
RN_API bool rn_place_is_valid(const rn_place_buffer *buffers, size_t count, const uint64_t *offsets,
                              uint64_t height_bytes);

// ---- files ------------------------------------------------------------------------------------

// Buffers read from a CSV file: a header line that names the columns id, lower, upper, size and, if
// they are there, offset and align, in any order; then one line a buffer.
typedef struct rn_place_table {
    rn_place_buffer *buffers; // (count)
    rn_str *ids;              // (count)
    uint64_t *offsets;        // (count); 0 where the file has no such column
    size_t count;
    void *owner;
} rn_place_table;

// RN_CORRUPT says line and column. Both end with RN_CANCELLED where the thread is stopped
// (ration/stop.h). The caller frees the table.
RN_API RN_MUST_USE rn_status rn_place_table_read(const char *path, rn_place_table *out);
RN_API void rn_place_table_free(rn_place_table *table);
// "id,lower,upper,size,offset" (and align, where a buffer has one); the file appears whole.
RN_API RN_MUST_USE rn_status rn_place_table_write(const rn_place_table *table, const char *path);

RN_END_DECLS

#endif
