// packed_widened.c — products with quantised panels whose activations stay as they are: pieces of
// panels are widened to f32 as gemm.h asks for them. One chain over k, whatever the rows of x.
#include "backend/cpu/packed_product.h"

#include "backend/cpu/gemm.h"

static void widen(const void *source, size_t panel, size_t k, size_t depth, float *to) {
    const rn_packed_product *p = source;
    const uint8_t *data = p->weights + panel * p->panels.panel_bytes;
    rn_int_kernels_get()->widen(rn_int_form_of(p->panels.dtype), data + p->panels.head_bytes,
                                (const float *)(const void *)data, k, depth, to);
}

static rn_gemm gemm_of(const rn_packed_product *p) {
    return (rn_gemm){.m = p->m,
                     .n = p->n,
                     .k = p->k,
                     .a = {p->x, p->k, 1},
                     .pack = widen,
                     .source = p,
                     .c = p->y,
                     .c_row = p->n,
                     .bias = p->bias};
}

uint64_t rn_packed_widened_workspace(const rn_packed_product *p) {
    rn_gemm gemm = gemm_of(p);
    return rn_gemm_workspace(&gemm, p->call->threads);
}

void rn_packed_widened_run(const rn_packed_product *p) {
    rn_gemm gemm = gemm_of(p);
    rn_gemm_run(&gemm, p->call, p->call->workspace);
}
