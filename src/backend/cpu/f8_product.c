// f8_product.c — the call: 16 rows of w a task.
#include "backend/cpu/f8_product.h"

#include "base/checked.h"
#include "base/cpu.h"

typedef struct product {
    const float *x, *bias; // bias NULL: none
    float *y;
    const uint8_t *weights;
    uint64_t m, n, k, block; // columns of a scale
} product;

static product read_call(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    bool biased = call->input_count > 2 && rn_tensor_given(&call->inputs[2]);
    uint64_t k = w->shape.dims[1];
    return (product){.x = x->data,
                     .bias = biased ? call->inputs[2].data : NULL,
                     .y = call->outputs[0].data,
                     .weights = w->data,
                     .m = k ? rn_tensor_elements(x) / k : 0,
                     .n = w->shape.dims[0],
                     .k = k,
                     .block = rn_dtype_get(w->dtype)->block_elements};
}

bool rn_cpu_f8_takes(const rn_call *call) {
#if defined(__x86_64__)
    const rn_tensor *w = &call->inputs[1];
    bool f8 = w->dtype == RN_DTYPE_F8_B128 || w->dtype == RN_DTYPE_F8_B32;
    return f8 && w->layout == RN_LAYOUT_PLAIN && w->shape.rank == 2 &&
           w->shape.dims[1] % rn_dtype_get(w->dtype)->block_elements == 0 &&
           rn_cpu_level_get() != RN_CPU_PORTABLE && read_call(call).m <= RN_F8_MOST;
#else
    (void)call;
    return false;
#endif
}

#if defined(__x86_64__)
static void multiply_rows(void *arg, size_t group) {
    const product *p = arg;
    float sums[RN_F8_MOST * RN_F8_LANES];
    uint64_t first = group * RN_F8_LANES, rows = rn_min_u64(RN_F8_LANES, p->n - first);
    uint64_t row_bytes = p->k / p->block * (p->block + sizeof(float));
    rn_f8_multiply_avx2(p->x, p->m, p->k, p->block, p->weights + first * row_bytes, row_bytes, rows,
                        sums);
    for (uint64_t m = 0; m < p->m; m++)
        for (uint64_t r = 0; r < rows; r++) {
            float sum = sums[m * RN_F8_LANES + r];
            p->y[m * p->n + first + r] = p->bias ? sum + p->bias[first + r] : sum;
        }
}
#endif

rn_status rn_cpu_f8_matmul(const rn_call *call) {
#if defined(__x86_64__)
    product p = read_call(call);
    rn_call_each(call, rn_div_up(p.n, RN_F8_LANES), multiply_rows, &p);
    return RN_OK;
#else
    (void)call;
    return rn_fail(RN_INTERNAL, "there is no such product on this machine");
#endif
}
