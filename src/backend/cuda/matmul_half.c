// matmul_half.c — products whose x is bf16 or f16: training under a 16-bit policy.
//
//     w of x's type ────────────────────────────▶ cuBLASLt; or conv.h, as a convolution of one tap;
//                                                 or matmul_half
//     any other w ─ to_half, a slice ─▶ workspace ──▶ the same, columns of y slice by slice
//
// w lies as its file has it: the forward product reads it as (N, K), that of the gradient as (K,
// N). A slice is so many columns of y that its weights fit SLICE_BYTES, whichever axis of w that
// is.
#include "backend/cuda/conv.h"
#include "backend/cuda/elements.h"
#include "backend/cuda/lt.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/half_args.h"
#include "base/checked.h"

#include <string.h>

#define SLICE_BYTES ((uint64_t)256 << 20)
enum { PART_ALIGN = 256, SLICE_COLS = 256, GRID_BATCHES = 65535 };

typedef struct half_product {
    uint64_t m, n, k, batch;
    uint64_t w_count; // matrices of w
    bool transpose_x, transpose_w;
    bool is_uniform; // w has one matrix, or one for each batch
    bool converts;   // w is not of x's type
    uint64_t slice;  // columns of y at a time
    // of the workspace, in this order
    uint64_t bias_bytes, slice_bytes, lt_bytes; // the last also for the parts of split sums
} half_product;

bool rn_cuda_is_half(rn_dtype dtype) {
    return dtype == RN_DTYPE_BF16 || dtype == RN_DTYPE_F16;
}

static uint64_t axis(rn_shape shape, uint32_t from_end) {
    return shape.dims[shape.rank - from_end];
}

// ---- as a convolution ---------------------------------------------------------------------------

enum { BOX_ROWS = 64, BOX_COLS = 64 }; // at least; below, cuBLASLt

// x (images, rows, K) is as many images of one line, whose bits do not depend on each other.
static bool describe_boxes(const rn_call *call, rn_conv_product *out) {
    const rn_matmul_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    uint32_t rank = x->shape.rank;
    uint64_t k = axis(x->shape, 1), n = y->shape.dims[y->shape.rank - 1], images = 1;
    if (attrs->transpose_x || attrs->transpose_w || w->shape.rank != 2 || rank < 2 ||
        w->dtype != x->dtype || k % 8 || n % 8 || k < BOX_COLS || n < BOX_COLS)
        return false;
    for (uint32_t i = 0; i + 2 < rank; i++)
        images *= x->shape.dims[i];
    *out = (rn_conv_product){.type = x->dtype,
                             .x = x->data,
                             .w = w->data,
                             .batch = images,
                             .in_h = 1,
                             .in_w = axis(x->shape, 2),
                             .out_h = 1,
                             .out_w = axis(x->shape, 2),
                             .channels = k,
                             .outputs = n,
                             .groups = 1,
                             .stride_h = 1,
                             .stride_w = 1,
                             .taps = 1,
                             .bias = &call->inputs[2],
                             .y_type = y->dtype,
                             .y = y->data,
                             .y_w = n,
                             .y_h = n * axis(x->shape, 2),
                             .y_n = n * axis(x->shape, 2)};
    return images * out->out_w >= BOX_ROWS && images <= INT32_MAX && out->out_w <= INT32_MAX &&
           k <= INT32_MAX && n <= INT32_MAX;
}

static bool runs_boxes(const rn_call *call, const void *addend, rn_conv_product *out) {
    return rn_cuda_traits_of(call)->has_wgmma && describe_boxes(call, out) &&
           rn_cuda_is_aligned(out->x, 16) && rn_cuda_is_aligned(out->w, 16) &&
           rn_cuda_is_aligned(out->y, 16) && rn_cuda_is_aligned(addend, 16);
}

// ---- what is asked ------------------------------------------------------------------------------

static void count_batches(rn_shape x, rn_shape w, half_product *p) {
    p->batch = p->w_count = 1;
    for (uint32_t i = 0; i + 2 < x.rank; i++)
        p->batch *= x.dims[i];
    for (uint32_t i = 0; i + 2 < w.rank; i++)
        p->w_count *= w.dims[i];
    p->is_uniform = p->w_count == 1 || p->w_count == p->batch;
    if (w.rank == 2 && !p->transpose_x) { // all batches are rows of one product
        p->m *= p->batch;
        p->batch = 1;
    }
}

static void divide_workspace(const rn_call *call, half_product *p) {
    const rn_tensor *bias = &call->inputs[2];
    p->slice = p->n;
    if (rn_tensor_given(bias) && bias->dtype != call->outputs[0].dtype)
        p->bias_bytes = rn_round_up(p->n * sizeof(float), PART_ALIGN);
    if (p->converts) {
        uint64_t most = SLICE_BYTES / rn_max_u64(p->k * p->w_count * sizeof(uint16_t), 1);
        if (p->w_count == 1)
            p->slice = rn_min_u64(p->n, rn_max_u64(most / SLICE_COLS, 1) * SLICE_COLS);
        p->slice_bytes = rn_round_up(p->slice * p->k * p->w_count * sizeof(uint16_t), PART_ALIGN);
    }
    rn_conv_product boxes;
    p->lt_bytes = rn_lt_workspace(p->m, p->slice, p->batch);
    if (describe_boxes(call, &boxes))
        p->lt_bytes = rn_max_u64(p->lt_bytes, rn_conv_product_workspace(&boxes));
}

static void read_call(const rn_call *call, half_product *out) {
    const rn_matmul_attrs *attrs = call->attrs;
    rn_shape x = call->inputs[0].shape, w = call->inputs[1].shape;
    *out = (half_product){.m = axis(x, attrs->transpose_x ? 1 : 2),
                          .k = axis(x, attrs->transpose_x ? 2 : 1),
                          .n = axis(w, attrs->transpose_w ? 1 : 2),
                          .transpose_x = attrs->transpose_x,
                          .transpose_w = attrs->transpose_w,
                          .converts = call->inputs[1].dtype != call->inputs[0].dtype};
    count_batches(x, w, out);
    divide_workspace(call, out);
}

// ---- 16 bits ------------------------------------------------------------------------------------

static rn_cuda_kernel rounding_kernel(uint32_t type) {
    static const uint16_t kernels[] = {
        [RN_PLAIN_F32] = RN_CUDA_TO_HALF_F32,   [RN_PLAIN_F16] = RN_CUDA_TO_HALF_F16,
        [RN_PLAIN_BF16] = RN_CUDA_TO_HALF_BF16, [RN_PLAIN_INT8] = RN_CUDA_TO_HALF_INT8,
        [RN_PLAIN_INT4] = RN_CUDA_TO_HALF_INT4, [RN_PLAIN_NF4] = RN_CUDA_TO_HALF_NF4,
        [RN_PLAIN_Q8_0] = RN_CUDA_TO_HALF_Q8_0, [RN_PLAIN_Q4_0] = RN_CUDA_TO_HALF_Q4_0,
        [RN_PLAIN_Q4_K] = RN_CUDA_TO_HALF_Q4_K, [RN_PLAIN_Q5_K] = RN_CUDA_TO_HALF_Q5_K,
        [RN_PLAIN_Q6_K] = RN_CUDA_TO_HALF_Q6_K};
    bool known = type < sizeof kernels / sizeof *kernels && kernels[type];
    return known ? (rn_cuda_kernel)kernels[type] : RN_CUDA_TO_HALF_ANY;
}

static rn_status round_part(const rn_call *call, rn_to_half_args *args) {
    uint64_t eights = args->rows * rn_div_up(args->cols, 8);
    return rn_cuda_launch(call, rounding_kernel(args->w.type), rn_cuda_spread(call, eights), args);
}

// Weights of the columns `first` .. `first` + `count` of y.
static rn_status round_weight(const rn_call *call, const half_product *p, uint64_t first,
                              uint64_t count, void *out) {
    rn_to_half_args args = {.out = out, .type = rn_cuda_plain_type(call->inputs[0].dtype)};
    RN_TRY(rn_cuda_plain(&call->inputs[1], &args.w));
    args.rows = p->w_count * (p->transpose_w ? p->k : count);
    args.cols = p->transpose_w ? count : p->k;
    args.first_row = p->transpose_w ? 0 : first;
    args.first_col = p->transpose_w ? first : 0;
    return round_part(call, &args);
}

// The bias in y's type.
static rn_status find_bias(const rn_call *call, const half_product *p, uint8_t *workspace,
                           const uint8_t **out) {
    const rn_tensor *bias = &call->inputs[2];
    *out = bias->data;
    if (!rn_tensor_given(bias) || bias->dtype == call->outputs[0].dtype) return RN_OK;
    *out = workspace;
    rn_tensor row = *bias; // (1, N)
    row.shape = RN_SHAPE(1, p->n);
    rn_to_half_args args = {.out = workspace,
                            .rows = 1,
                            .cols = p->n,
                            .type = rn_cuda_plain_type(call->outputs[0].dtype)};
    RN_TRY(rn_cuda_plain(&row, &args.w));
    return round_part(call, &args);
}

// ---- our own kernel -----------------------------------------------------------------------------

static rn_status run_own(const rn_call *call, const half_product *p, const rn_lt_product *lt) {
    const rn_shape *x = &call->inputs[0].shape, *w = &call->inputs[1].shape;
    rn_half_args args = {.x = lt->x,
                         .w = lt->w,
                         .bias = lt->bias,
                         .addend = lt->addend,
                         .y = lt->y,
                         .batch = lt->batch,
                         .m = lt->m,
                         .n = lt->n,
                         .k = lt->k,
                         .x_row = lt->transpose_x ? 1 : lt->k,
                         .x_col = lt->transpose_x ? lt->m : 1,
                         .w_row = lt->transpose_w ? 1 : lt->k,
                         .w_col = lt->transpose_w ? lt->n : 1,
                         .y_row = lt->y_stride,
                         .y_type = rn_cuda_plain_type(lt->out_type)};
    if (p->w_count > 1) {
        args.leading = x->rank - 2;
        memcpy(args.x_dims, x->dims, args.leading * sizeof *x->dims);
        memcpy(args.w_dims, w->dims, args.leading * sizeof *w->dims);
    }
    uint64_t tiles = rn_div_up(lt->m, RN_HALF_TILE) * rn_div_up(lt->n, RN_HALF_TILE);
    if (tiles > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a product of (%llu, %llu) is too large",
                       (unsigned long long)lt->m, (unsigned long long)lt->n);
    rn_cuda_grid grid = {(uint32_t)tiles, 1, (uint32_t)rn_min_u64(lt->batch, GRID_BATCHES),
                         .threads = RN_ROWS_THREADS, .early = true};
    return rn_cuda_launch(
        call, lt->type == RN_DTYPE_BF16 ? RN_CUDA_MATMUL_HALF_BF16 : RN_CUDA_MATMUL_HALF_F16, grid,
        &args);
}

// ---- the row ------------------------------------------------------------------------------------

static rn_status run_slice(const rn_call *call, const half_product *p, const rn_lt_product *lt,
                           void *lt_workspace) {
    bool done = false, small = lt->m <= INT32_MAX && lt->n <= INT32_MAX && lt->k <= INT32_MAX &&
                               lt->batch <= INT32_MAX && lt->k > 0;
    if (p->is_uniform && small) RN_TRY(rn_lt_run(call, lt, lt_workspace, p->lt_bytes, &done));
    rn_conv_product boxes;
    if (done) return RN_OK;
    if (lt->n != p->n || !runs_boxes(call, lt->addend, &boxes)) return run_own(call, p, lt);
    boxes.addend = lt->addend;
    boxes.partial = lt_workspace;
    return rn_conv_product_run(call, &boxes);
}

// cuBLASLt has other bits out of place than in place: there is in place alone.
static rn_status copy_addend(const rn_call *call, const void *addend) {
    const rn_tensor *y = &call->outputs[0];
    rn_cuda_stream *stream = call->stream;
    const rn_cuda_driver *driver = stream->gpu->cuda.driver;
    stream->after_launch = false;
    return rn_cuda_check(driver,
                         driver->memcpy_dtod_async((uintptr_t)y->data, (uintptr_t)addend,
                                                   rn_tensor_bytes(y), stream->handle),
                         "copying what is added to");
}

rn_status rn_cuda_matmul_half_add(const rn_call *call, const void *addend) {
    const rn_tensor *y = &call->outputs[0];
    uint8_t *workspace = call->workspace;
    const uint8_t *bias = NULL;
    half_product p;
    read_call(call, &p);
    if (rn_tensor_elements(y) == 0) return RN_OK;
    RN_TRY(find_bias(call, &p, workspace, &bias));
    if (addend && addend != y->data && p.is_uniform) {
        RN_TRY(copy_addend(call, addend));
        addend = y->data;
    }
    uint8_t *slice = workspace + p.bias_bytes;
    uint64_t width = rn_dtype_get(y->dtype)->block_bytes;
    rn_lt_product lt = {.m = p.m,
                        .k = p.k,
                        .batch = p.batch,
                        .y_stride = p.n,
                        .w_batch = p.w_count > 1 ? p.n * p.k : 0,
                        .type = call->inputs[0].dtype,
                        .out_type = y->dtype,
                        .transpose_x = p.transpose_x,
                        .transpose_w = p.transpose_w,
                        .x = call->inputs[0].data,
                        .w = p.converts ? slice : call->inputs[1].data};
    for (uint64_t first = 0; first < p.n; first += p.slice) {
        lt.n = rn_min_u64(p.slice, p.n - first);
        lt.bias = bias ? bias + first * width : NULL;
        lt.addend = addend ? (const uint8_t *)addend + first * width : NULL;
        lt.y = (uint8_t *)y->data + first * width;
        if (p.converts) RN_TRY(round_weight(call, &p, first, lt.n, slice));
        RN_TRY(run_slice(call, &p, &lt, slice + p.slice_bytes));
    }
    return RN_OK;
}

rn_status rn_cuda_matmul_half(const rn_call *call) {
    return rn_cuda_matmul_half_add(call, NULL);
}

uint64_t rn_cuda_matmul_half_workspace(const rn_call *call) {
    half_product p;
    read_call(call, &p);
    return p.bias_bytes + p.slice_bytes + p.lt_bytes;
}
