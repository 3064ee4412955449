// matmul.c — the f32 product of the graph: its shapes laid out as one or many gemms.
//
// A matrix w serves all batches: then the leading axes of x are rows, and it is one product. With
// many products each is made by one thread, where there are enough of them; else all threads make
// one after the other.
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/packed.h"
#include "backend/cpu/share.h"

#include "base/checked.h"
#include "device/reference.h"
#include "graph/quantized_product.h"

// w (K, N), each 16 of whose rows are a panel (tensor/panels.h): a weight that the forward pass
// reads as (N, K) and the backward pass across.
typedef struct across {
    const float *panels;
    size_t n;
} across;

typedef struct product {
    rn_gemm gemm; // of the first batch
    across across;
    const rn_call *call;
    size_t batches;
    uint64_t each_bytes; // workspace of a thread that makes products alone
} product;

static bool is_f32(const rn_call *call) {
    return call->inputs[1].dtype == RN_DTYPE_F32 && call->inputs[0].dtype == RN_DTYPE_F32;
}

static void pack_across(const void *source, size_t panel, size_t k, size_t depth, float *to) {
    const across *w = source;
    size_t lane = panel * RN_PANEL, take;
    uint32_t count = (uint32_t)rn_min_u64(w->n - lane, RN_PANEL);
    for (; depth > 0; k += take, depth -= take, to += take * RN_PANEL) {
        take = rn_min_u64(RN_PANEL - k % RN_PANEL, depth);
        const float *from = w->panels + (k / RN_PANEL * w->n + lane) * RN_PANEL + k % RN_PANEL;
        rn_tile_pack(rn_tile_set_get(), from, RN_PANEL, 1, count, take, to, RN_PANEL);
    }
}

static void read_w(const rn_tensor *w, bool transposed, product *p) {
    rn_gemm *g = &p->gemm;
    g->b = transposed ? (rn_gemm_side){w->data, 1, g->n} : (rn_gemm_side){w->data, g->k, 1};
    if (w->layout != RN_LAYOUT_PANELS) return;
    p->across = (across){w->data, g->n};
    g->b_panels = w->data;
    g->b_is_panels = !transposed;
    if (transposed) g->pack = pack_across;
}

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
    read_w(w, attrs->transpose_w, &p);
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
    g.source = &p->across;
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

// Products with weights that are not f32: in panels as they lie; plain ones whose product is a sum
// in f32 a tile at a time; what is left (rounded activations with plain weights, transposed ones)
// by the reference loop.
static rn_kernel narrow_kernel(const rn_call *call) {
    const rn_matmul_attrs *attrs = call->attrs;
    const rn_tensor *w = &call->inputs[1];
    if (w->layout == RN_LAYOUT_PANELS)
        return (rn_kernel){rn_cpu_packed_matmul, rn_cpu_packed_matmul_workspace};
    if (w->shape.rank == 2 && !attrs->transpose_x && !attrs->transpose_w &&
        !rn_product_is_quantized(w->dtype))
        return (rn_kernel){rn_cpu_generic_matmul, rn_cpu_generic_matmul_workspace};
    return rn_reference_kernel;
}

rn_status rn_cpu_matmul(const rn_call *call) {
    if (!is_f32(call)) return narrow_kernel(call).run(call);
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

uint64_t rn_cpu_matmul_workspace(const rn_call *call) {
    if (!is_f32(call)) return narrow_kernel(call).workspace(call);
    product p = read_call(call);
    // Fewer batches may be made by one thread each where the most are not.
    if (p.batches > 1) return call->threads * rn_gemm_workspace(&p.gemm, 1);
    return rn_gemm_workspace(&p.gemm, call->threads);
}
