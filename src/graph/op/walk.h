// walk.h — steps through the elements of a shape, row by row, while places in two tensors follow.
//
//     rn_walk w = rn_walk_begin(shape, strides_of_a, strides_of_b);
//     do {
//         const float *p = a + w.at[0], *q = b + w.at[1];
//         for (uint64_t i = 0; i < w.count; i++)
//             use(p[i * w.step[0]], q[i * w.step[1]]);
//     } while (rn_walk_next(&w));
//
// Elements come in the order of `shape`. Axes that lie evenly in both tensors are merged first, so
// that two tensors of one shape are a single long row.
#ifndef RN_GRAPH_OP_WALK_H
#define RN_GRAPH_OP_WALK_H

#include <ration/graph.h>

// How far the next element of an axis is, in elements; 0: the axis repeats the same one.
typedef struct rn_strides {
    uint64_t by[RN_MAX_RANK];
} rn_strides;

// Of a dense tensor.
rn_strides rn_strides_of(rn_shape shape);
// Of a dense tensor of shape `from` that is stretched to `to` by NumPy's rule.
rn_strides rn_strides_stretched(rn_shape from, rn_shape to);

typedef struct rn_walk {
    uint64_t at[2];   // where the row begins, in elements
    uint64_t step[2]; // between the row's elements
    uint64_t count;   // elements of a row; 0 where the shape has none: there is one empty row
    // The axes outside the row, innermost first.
    uint32_t rank;
    uint64_t dims[RN_MAX_RANK], index[RN_MAX_RANK], strides[2][RN_MAX_RANK];
} rn_walk;

rn_walk rn_walk_begin(rn_shape shape, rn_strides a, rn_strides b);
// The next row; false after the last one.
bool rn_walk_next(rn_walk *walk);

#endif
