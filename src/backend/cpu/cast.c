// cast.c — elements as another plain type, by all threads: each takes runs of elements.
#include "backend/cpu/cpu.h"

#include "base/checked.h"

enum { RUN = 1 << 16 }; // elements: what a thread takes at once

typedef struct cast {
    const rn_tensor *x, *y;
    uint64_t elements;
} cast;

// Both types are plain: an element has whole bytes.
static uint64_t width_of(const rn_tensor *tensor) {
    return rn_dtype_get(tensor->dtype)->block_bytes;
}

static rn_status cast_from(const cast *c, uint64_t first, uint64_t count) {
    const uint8_t *from = (const uint8_t *)c->x->data + first * width_of(c->x);
    uint8_t *to = (uint8_t *)c->y->data + first * width_of(c->y);
    return rn_dtype_convert(c->x->dtype, from, c->y->dtype, to, count);
}

// It cannot fail: plain types are whole in any number, which the op's shape rule has seen to.
static void cast_run(void *arg, size_t index) {
    const cast *c = arg;
    uint64_t first = (uint64_t)index * RUN;
    (void)cast_from(c, first, rn_min_u64(RUN, c->elements - first));
}

rn_status rn_cpu_cast(const rn_call *call) {
    cast c = {&call->inputs[0], &call->outputs[0], rn_tensor_elements(&call->inputs[0])};
    if (c.elements <= RUN) return cast_from(&c, 0, c.elements);
    rn_call_each(call, (size_t)rn_div_up(c.elements, RUN), cast_run, &c);
    return RN_OK;
}
