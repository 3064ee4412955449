// permute.c — the axes in another order: rows that stay whole are copied; where rows become
// columns, blocks of them are turned in registers.
#include "backend/cpu/cpu.h"
#include "backend/cpu/tile.h"
#include "base/checked.h"
#include "graph/op/move.h"

enum { BLOCK = 16, TASK_ELEMENTS = 16384 };

// The walk goes through y; place 0 is in x, place 1 in y.
typedef struct moves {
    const rn_call *call;
    rn_walk w;
    uint32_t across;   // the axis along which x is contiguous, where rows of y are not; else none
    uint64_t blocks;   // of that axis
    uint64_t count;    // rows or blocks of rows in all
    uint64_t together; // of them in a task
    uint64_t size;     // bytes of an element
} moves;

enum { NONE = RN_MAX_RANK };

// Where row or block `index` begins.
static void find(const moves *m, uint64_t index, uint64_t at[2], uint64_t *out_block) {
    *out_block = index % m->blocks;
    index /= m->blocks;
    at[0] = at[1] = 0;
    for (uint32_t axis = 0; axis < m->w.rank; axis++) {
        uint64_t i = axis == m->across ? *out_block * BLOCK : index % m->w.dims[axis];
        if (axis != m->across) index /= m->w.dims[axis];
        for (int t = 0; t < 2; t++)
            at[t] += i * m->w.strides[t][axis];
    }
}

static char *data_at(const rn_tensor *tensor, const moves *m, uint64_t at) {
    return (char *)tensor->data + at * m->size;
}

// `width` neighbours in x of each of w.count rows become columns.
static void turn(const moves *m, const uint64_t at[2], uint64_t width) {
    const rn_tile_set *set = rn_tile_set_get();
    const rn_tensor *x = &m->call->inputs[0], *y = &m->call->outputs[0];
    uint64_t i = 0, x_step = m->w.step[0], y_step = m->w.strides[1][m->across];
    for (; m->size == 4 && i + set->lanes <= m->w.count; i += set->lanes)
        set->pack_rows((const float *)data_at(x, m, at[0] + i * x_step), x_step, set->lanes, width,
                       (float *)data_at(y, m, at[1] + i), y_step);
    for (uint64_t k = 0; i < m->w.count && k < width; k++)
        rn_move_row(data_at(y, m, at[1] + i + k * y_step), 1, data_at(x, m, at[0] + i * x_step + k),
                    x_step, m->w.count - i, m->size);
}

static void move_some(void *arg, size_t task) {
    const moves *m = arg;
    uint64_t end = rn_min_u64((task + 1) * m->together, m->count);
    for (uint64_t index = task * m->together; index < end; index++) {
        uint64_t at[2], block = 0;
        find(m, index, at, &block);
        if (m->across == NONE)
            rn_move_row(data_at(&m->call->outputs[0], m, at[1]), 1,
                        data_at(&m->call->inputs[0], m, at[0]), m->w.step[0], m->w.count, m->size);
        else
            turn(m, at, rn_min_u64(m->w.dims[m->across] - block * BLOCK, BLOCK));
    }
}

rn_status rn_cpu_permute(const rn_call *call) {
    const rn_permute_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_strides strides = rn_strides_of(x->shape), moved = {{0}};
    for (uint32_t i = 0; i < x->shape.rank; i++)
        moved.by[i] = strides.by[attrs->axes[i]];
    moves m = {.call = call, .across = NONE, .blocks = 1, .count = 1, .size = rn_element_bytes(x)};
    m.w = rn_walk_begin(y->shape, moved, rn_strides_of(y->shape));
    for (uint32_t axis = 0; axis < m.w.rank; axis++)
        if (m.w.step[0] != 1 && m.w.strides[0][axis] == 1) m.across = axis;
    for (uint32_t axis = 0; axis < m.w.rank; axis++)
        if (axis != m.across) m.count *= m.w.dims[axis];
    if (m.across != NONE) m.blocks = rn_div_up(m.w.dims[m.across], BLOCK);
    m.count *= m.blocks;
    m.together = TASK_ELEMENTS / (m.w.count * (m.across == NONE ? 1 : BLOCK) + 1) + 1;
    rn_call_each(call, rn_div_up(m.count, m.together), move_some, &m);
    return RN_OK;
}
