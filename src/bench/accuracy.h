// accuracy.h — outputs against the reference's, compared as they arrive: the reference's are in a
// file, nothing but a piece of them is held.
#ifndef RN_BENCH_ACCURACY_H
#define RN_BENCH_ACCURACY_H

#include <ration/bench.h>

// The reference's outputs. {.fd = -1}: there are none.
typedef struct rn_reference {
    int fd; // a file without a name
    uint64_t values;
    double largest; // of |value|
    bool finite;
    char name[64];
} rn_reference;

// RN_IO: no file can be made.
RN_MUST_USE rn_status rn_reference_create(rn_reference *out);
RN_MUST_USE rn_status rn_reference_add(rn_reference *reference, const float *values, size_t count);
void rn_reference_destroy(rn_reference *reference);

// A comparison under way. {0} is its beginning.
typedef struct rn_comparison {
    uint64_t values;
    double max_abs, dot, own_squares, other_squares;
    bool finite_differs; // one has a number where the other has none
    uint64_t row, rows_equal;
    uint64_t own_top, other_top; // where the row's largest are, in the row
    double own_best, other_best;
} rn_comparison;

// `rows`: items of the batch, whose largest values are compared each.
RN_MUST_USE rn_status rn_comparison_add(rn_comparison *c, const rn_reference *reference,
                                        uint64_t rows, const float *values, size_t count);
// False: there was nothing to compare.
bool rn_comparison_end(const rn_comparison *c, const rn_reference *reference,
                       rn_bench_accuracy *out);
// Whether outputs so far off are another function's: by how coarse the weights and activations
// are. NULL, or why.
const char *rn_accuracy_is_wrong(const rn_bench_accuracy *accuracy, const rn_comparison *c,
                                 const rn_reference *reference, const char *weights,
                                 const char *activations);

#endif
