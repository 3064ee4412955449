// packed.c — reads the call and hands it to the kind of product that the dtype has.
//
// Plain weights whose product is a sum in f32 are packed for few rows of x only, and only where
// kernels take them as they are: else they are widened a tile at a time, which is the generic
// product.
#include "backend/cpu/packed.h"

#include "backend/cpu/packed_product.h"
#include "base/checked.h"
#include "graph/quantized_product.h"

static rn_status read_call(const rn_call *call, rn_packed_product *out) {
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    const rn_matmul_attrs *attrs = call->attrs;
    bool biased = call->input_count > 2 && rn_tensor_given(&call->inputs[2]);
    *out = (rn_packed_product){.call = call,
                               .n = w->shape.dims[0],
                               .k = w->shape.dims[1],
                               .x = x->data,
                               .bias = biased ? call->inputs[2].data : NULL,
                               .y = call->outputs[0].data,
                               .weights = w->data,
                               .plain = rn_packed_plain_works(w),
                               .rounded = rn_product_is_quantized(w->dtype) &&
                                          !attrs->unquantised_activations};
    if ((w->layout != RN_LAYOUT_PANELS && !out->plain) || w->shape.rank != 2 ||
        !rn_panels_of(w->dtype, out->n, out->k, &out->panels))
        return rn_fail(RN_UNSUPPORTED, "a weight %s of %s is not in panels",
                       rn_shape_format(w->shape).text, rn_dtype_get(w->dtype)->name);
    out->m = rn_tensor_elements(x) / out->k;
    return RN_OK;
}

static bool is_generic(const rn_packed_product *p) {
    if (!p->plain || p->rounded) return false;
    return rn_product_is_quantized(p->panels.dtype) || p->m > rn_packed_floats_few();
}

// Never less for more rows of x.
uint64_t rn_cpu_packed_matmul_workspace(const rn_call *call) {
    rn_packed_product p;
    if (read_call(call, &p) != RN_OK) return 0;
    if (p.rounded) return rn_packed_ints_workspace(&p);
    bool widened = rn_product_is_quantized(p.panels.dtype);
    if (widened && !p.plain) return rn_packed_widened_workspace(&p);
    uint64_t floats = widened ? 0 : rn_packed_floats_workspace(&p);
    return is_generic(&p) ? rn_max_u64(floats, rn_cpu_generic_matmul_workspace(call)) : floats;
}

rn_status rn_cpu_packed_matmul(const rn_call *call) {
    rn_packed_product p;
    RN_TRY(read_call(call, &p));
    if (p.m == 0 || p.n == 0) return RN_OK;
    if (is_generic(&p)) return rn_cpu_generic_matmul(call);
    if (p.rounded)
        rn_packed_ints_run(&p);
    else if (rn_product_is_quantized(p.panels.dtype))
        rn_packed_widened_run(&p);
    else
        rn_packed_floats_run(&p);
    return RN_OK;
}
