// matmul.c — the graph's product: which kernel makes it; and that of f32 operands, its shapes laid
// out as one or many gemms.
//
// A matrix w serves all batches: then the leading axes of x are rows, and it is one product. With
// many products each is made by one thread, where there are enough of them; else all threads make
// one after the other.
#include "backend/cpu/cpu.h"
#include "backend/cpu/f8_product.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/matmul_widened.h"
#include "backend/cpu/packed.h"
#include "backend/cpu/row_product.h"
#include "backend/cpu/share.h"

#include "base/checked.h"
#include "device/reference.h"
#include "graph/quantized_product.h"

typedef struct product {
    rn_gemm gemm; // of the first batch
    const rn_call *call;
    size_t batches;
    uint64_t each_bytes; // workspace of a thread that makes products alone
} product;

static product read_call(const rn_call *call) {
    const rn_matmul_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    const uint32_t rank = x->shape.rank, w_rank = w->shape.rank;
    product p = {.call = call, .batches = 1};
    rn_gemm *g = &p.gemm;
    g->n = y->shape.dims[rank - 1];
    g->m = y->shape.dims[rank - 2];
    g->k = x->shape.dims[attrs->transpose_x ? rank - 2 : rank - 1];
    for (uint32_t i = 0; i + 2 < rank; i++)
        p.batches *= x->shape.dims[i];
    if (w_rank == 2 && !attrs->transpose_x) {
        g->m *= p.batches;
        p.batches = 1;
    }
    g->a = attrs->transpose_x ? (rn_gemm_side){x->data, 1, g->m} : (rn_gemm_side){x->data, g->k, 1};
    g->b = attrs->transpose_w ? (rn_gemm_side){w->data, 1, g->n} : (rn_gemm_side){w->data, g->k, 1};
    g->b_is_panels = w->layout != RN_LAYOUT_PLAIN;
    g->b_panels = w->data;
    g->c = y->data;
    g->c_row = g->n;
    if (call->input_count > 2) g->bias = call->inputs[2].data;
    return p;
}

// Where matrix `batch` of w begins: an axis of 1 serves every index of x's.
static size_t w_offset(const product *p, size_t batch) {
    const rn_shape *x = &p->call->inputs[0].shape, *w = &p->call->inputs[1].shape;
    size_t step = p->gemm.n * p->gemm.k, at = 0;
    if (w->rank == 2) return 0;
    for (uint32_t i = x->rank - 2; i-- > 0; batch /= x->dims[i])
        if (w->dims[i] != 1) {
            at += batch % x->dims[i] * step;
            step *= w->dims[i];
        }
    return at;
}

static rn_gemm batch_of(const product *p, size_t batch) {
    rn_gemm g = p->gemm;
    g.a.data += batch * g.m * g.k;
    g.b.data += w_offset(p, batch);
    g.c += batch * g.m * g.n;
    return g;
}

static void run_alone(void *arg, uint32_t slot, size_t batch) {
    const product *p = arg;
    rn_gemm g = batch_of(p, batch);
    rn_call alone = {.threads = 1};
    rn_gemm_run(&g, &alone, (char *)p->call->workspace + slot * p->each_bytes);
}

// One thread a product, rather than all threads on each: where every thread has its share.
static bool is_many(const product *p) {
    uint32_t threads = p->call->threads;
    if (p->batches < 2 || threads < 2) return false;
    return p->batches >= 4 * (size_t)threads || p->batches % threads == 0;
}

static rn_status run_f32(const rn_call *call) {
    product p = read_call(call);
    if (is_many(&p)) {
        p.each_bytes = rn_gemm_workspace(&p.gemm, 1);
        rn_share(call, p.batches, run_alone, &p);
        return RN_OK;
    }
    for (size_t batch = 0; batch < p.batches; batch++) {
        rn_gemm g = batch_of(&p, batch);
        rn_gemm_run(&g, call, call->workspace);
    }
    return RN_OK;
}

static uint64_t f32_workspace(const rn_call *call) {
    product p = read_call(call);
    // Fewer batches may be made by one thread each where the most are not.
    if (p.batches > 1) return call->threads * rn_gemm_workspace(&p.gemm, 1);
    return rn_gemm_workspace(&p.gemm, call->threads);
}

static uint64_t no_workspace(const rn_call *call) {
    (void)call;
    return 0;
}

// A weight that is not f32 is multiplied as it lies in panels, or packed as it is multiplied; any
// other plain one row by row (tensor/row_kinds.h) or, if its product is a sum in f32, a tile at a
// time. Panels that are read across, and anything else that is read across, are widened. What is
// left goes to the reference loop: rounded activations with plain weights in several parts.
static rn_kernel choose(const rn_call *call) {
    const rn_matmul_attrs *attrs = call->attrs;
    const rn_tensor *w = &call->inputs[1];
    bool across = attrs->transpose_x || attrs->transpose_w;
    bool panels = w->layout == RN_LAYOUT_PANELS;
    if (w->dtype == RN_DTYPE_F32 && !(panels && across)) return (rn_kernel){run_f32, f32_workspace};
    if (w->shape.rank != 2) return rn_reference_kernel;
    if (across) return (rn_kernel){rn_cpu_widened_matmul, rn_cpu_widened_matmul_workspace};
    if (panels || rn_packed_plain_works(w))
        return (rn_kernel){rn_cpu_packed_matmul, rn_cpu_packed_matmul_workspace};
    bool rounds = rn_product_is_quantized(w->dtype) && !attrs->unquantised_activations;
    if (rounds && rn_row_kind(w->dtype))
        return (rn_kernel){rn_cpu_row_matmul, rn_cpu_row_matmul_workspace};
    if (rounds) return rn_reference_kernel;
    if (rn_cpu_f8_takes(call)) return (rn_kernel){rn_cpu_f8_matmul, no_workspace};
    return (rn_kernel){rn_cpu_generic_matmul, rn_cpu_generic_matmul_workspace};
}

rn_status rn_cpu_matmul(const rn_call *call) {
    return choose(call).run(call);
}

uint64_t rn_cpu_matmul_workspace(const rn_call *call) {
    return choose(call).workspace(call);
}
