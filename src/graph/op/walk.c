// walk.c — an odometer over the axes outside a row.
#include "graph/op/walk.h"

rn_strides rn_strides_of(rn_shape shape) {
    rn_strides strides = {{0}};
    uint64_t stride = 1;
    for (uint32_t axis = shape.rank; axis-- > 0;) {
        strides.by[axis] = stride;
        stride *= shape.dims[axis];
    }
    return strides;
}

rn_strides rn_strides_stretched(rn_shape from, rn_shape to) {
    rn_strides dense = rn_strides_of(from), strides = {{0}};
    uint32_t added = to.rank - from.rank;
    for (uint32_t axis = added; axis < to.rank; axis++)
        if (from.dims[axis - added] != 1) strides.by[axis] = dense.by[axis - added];
    return strides;
}

// Whether an axis with these strides goes on where the walk's outermost axis ends.
static bool continues(const rn_walk *w, uint64_t a, uint64_t b) {
    uint32_t last = w->rank - 1;
    return w->rank > 0 && a == w->strides[0][last] * w->dims[last] &&
           b == w->strides[1][last] * w->dims[last];
}

static void add_axis(rn_walk *w, uint64_t dim, uint64_t a, uint64_t b) {
    if (continues(w, a, b)) {
        w->dims[w->rank - 1] *= dim;
        return;
    }
    w->dims[w->rank] = dim;
    w->strides[0][w->rank] = a;
    w->strides[1][w->rank++] = b;
}

// The innermost axis becomes the row, the others move up.
static void take_row(rn_walk *w) {
    w->count = w->dims[0];
    for (int t = 0; t < 2; t++)
        w->step[t] = w->strides[t][0];
    w->rank--;
    for (uint32_t i = 0; i < w->rank; i++) {
        w->dims[i] = w->dims[i + 1];
        for (int t = 0; t < 2; t++)
            w->strides[t][i] = w->strides[t][i + 1];
    }
}

rn_walk rn_walk_begin(rn_shape shape, rn_strides a, rn_strides b) {
    rn_walk w = {.count = 1, .step = {1, 1}};
    if (rn_shape_elements(shape, 0) == 0) return (rn_walk){.step = {1, 1}};
    for (uint32_t axis = shape.rank; axis-- > 0;)
        if (shape.dims[axis] != 1) add_axis(&w, shape.dims[axis], a.by[axis], b.by[axis]);
    if (w.rank > 0) take_row(&w);
    return w;
}

bool rn_walk_next(rn_walk *w) {
    for (uint32_t axis = 0; axis < w->rank; axis++) {
        for (int t = 0; t < 2; t++)
            w->at[t] += w->strides[t][axis];
        if (++w->index[axis] < w->dims[axis]) return true;
        w->index[axis] = 0;
        for (int t = 0; t < 2; t++)
            w->at[t] -= w->strides[t][axis] * w->dims[axis];
    }
    return false;
}
