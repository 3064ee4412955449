// importance.h — importance matrices, as llama.cpp's llama-imatrix measures them: for each weight,
// the mean square of what each of its columns was multiplied with. Quantisers weigh errors by it.
//
// Two formats: GGUF (NAME.in_sum2 and NAME.counts, f32) and the older one, "imatrix.dat":
//
//     entries u32 | per entry: length u32, name, calls i32, count u32, count f32 | what follows is
//     not read
//
// Files are not trusted; all values are held in memory, charged to `io`.
#ifndef RN_IO_IMPORTANCE_H
#define RN_IO_IMPORTANCE_H

#include <ration/checkpoint.h>

#include "base/arena.h"
#include "base/map.h"

typedef struct rn_importance_entry {
    rn_str name;         // of the weight, in GGUF's names
    const float *values; // (count)
    uint64_t count;      // columns, times the experts of a weight that has some
} rn_importance_entry;

typedef struct rn_importances {
    rn_arena arena;
    rn_map by_name;
    rn_importance_entry *entries; // (count)
    size_t count;
} rn_importances;

// RN_CORRUPT with the offset; RN_UNSUPPORTED: a GGUF file without importances. Values that are not
// finite or below zero are RN_CORRUPT.
RN_MUST_USE rn_status rn_importances_read(const char *path, rn_importances *out);
void rn_importances_free(rn_importances *importances); // also one that is zero
// NULL where there is none.
const rn_importance_entry *rn_importances_find(const rn_importances *importances, rn_str name);

#endif
