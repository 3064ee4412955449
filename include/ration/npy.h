// npy.h — NumPy's .npy files: one array, dense, little endian, behind a header.
//
//     rn_npy array;
//     RN_TRY(rn_npy_read_header(file, "x.npy", &array)); // then array.bytes of values follow
//
// Files are not trusted: what the header says is held against the size of the file, where that is
// known, before anybody takes memory for it.
#ifndef RATION_NPY_H
#define RATION_NPY_H

#include <ration/graph.h>

#include <stdio.h>

RN_BEGIN_DECLS

typedef struct rn_npy {
    rn_dtype dtype;
    rn_shape shape;
    uint64_t bytes; // of the values, in C's order
} rn_npy;

// Reads to where the values begin; `file` may be a pipe. `path` is for errors. RN_CORRUPT: it is no
// such file, or too short for its array; RN_UNSUPPORTED: elements of a type that is not here, or
// Fortran's order; RN_IO.
RN_API RN_MUST_USE rn_status rn_npy_read_header(FILE *file, const char *path, rn_npy *out);
// Writes what stands before the values. RN_UNSUPPORTED: the format has no such type; RN_IO.
RN_API RN_MUST_USE rn_status rn_npy_write_header(FILE *file, const char *path, rn_dtype dtype,
                                                 rn_shape shape);

RN_END_DECLS

#endif
