// product.c — products with weights in tiles: MATMUL, and PROJECT with what stands around it.
//
//     one row          x ───────────────────────▶ product_few     norm and rounding within
//     2 to 16 rows     x ─ pack ─▶ workspace ───▶ product_few
//     more             x ─ pack ─▶ workspace ───▶ product_many
//
// All of them mean the same (kernels/args.h), so a row does not notice which one made it. Weights
// of one x are multiplied in one launch where they have one form.
#include "backend/cuda/cost.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/product_few.h"
#include "backend/cuda/kernels/product_many.h"
#include "base/checked.h"
#include "graph/fused.h"
#include "graph/project.h"
#include "tensor/tiles.h"

enum { PART_ALIGN = 256 };

// One x and its weights, whichever op asks.
typedef struct product {
    const rn_call *call;
    const rn_tensor *x, *norm, *residual;      // norm, residual: NULL: none
    const rn_tensor *weights[RN_PRODUCT_MOST]; // (count), in tiles
    const rn_tensor *biases[RN_PRODUCT_MOST];  // (count); NULL: none
    const rn_tensor *outputs[RN_PRODUCT_MOST]; // (count); gated: the first alone
    uint32_t count, rows, cols;
    bool gated, steady_norm;
    rn_activation activation;
    float eps;
} product;

// ---- what is asked ------------------------------------------------------------------------------

static const rn_tensor *if_given(const rn_tensor *tensor) {
    return rn_tensor_given(tensor) ? tensor : NULL;
}

static void add_weight(product *p, uint32_t input, const rn_tensor *output) {
    const rn_call *call = p->call;
    p->weights[p->count] = &call->inputs[input];
    p->biases[p->count] = input + 1 < call->input_count ? if_given(&call->inputs[input + 1]) : NULL;
    p->outputs[p->count++] = output;
}

// x's axes but the last are rows.
static void set_x(product *p) {
    const rn_shape *shape = &p->call->inputs[0].shape;
    p->x = &p->call->inputs[0];
    p->cols = (uint32_t)shape->dims[shape->rank - 1];
    p->rows = p->cols ? (uint32_t)(rn_tensor_elements(p->x) / p->cols) : 0;
}

static void read_matmul(const rn_call *call, product *out) {
    *out = (product){.call = call};
    set_x(out);
    add_weight(out, 1, &call->outputs[0]);
}

static void read_project(const rn_call *call, product *out) {
    const rn_project_attrs *attrs = call->attrs;
    uint32_t count = call->op == RN_OP_PROJECT_THREE ? 3 : call->op == RN_OP_PROJECT_GATED ? 2 : 1;
    *out = (product){.call = call,
                     .norm = if_given(&call->inputs[1]),
                     .gated = call->op == RN_OP_PROJECT_GATED,
                     .activation = attrs->activation,
                     .steady_norm = attrs->steady_norm,
                     .eps = attrs->eps};
    set_x(out);
    for (uint32_t i = 0; i < count; i++)
        add_weight(out, 2 + 2 * i, &call->outputs[out->gated ? 0 : i]);
    if (call->op == RN_OP_PROJECT) out->residual = if_given(&call->inputs[4]);
}

static bool are_tiles(const product *p) {
    for (uint32_t i = 0; i < p->count; i++)
        if (p->weights[i]->layout != RN_LAYOUT_TILES) return false;
    return true;
}

static rn_tile_form form_of(const product *p, uint32_t weight) {
    return rn_tile_form_of(p->weights[weight]->dtype);
}

// Weights from `first` on that go into one launch with it.
static uint32_t count_alike(const product *p, uint32_t first) {
    uint32_t count = 1;
    while (first + count < p->count && form_of(p, first + count) == form_of(p, first))
        count++;
    return count;
}

// Whether the kernels for tiles serve it; else it is unfolded into single ops.
static bool is_served(const product *p) {
    return are_tiles(p) && (!p->gated || count_alike(p, 0) == 2);
}

// ---- arguments ----------------------------------------------------------------------------------

static rn_product_weight make_weight(const product *p, uint32_t i) {
    const rn_tensor *w = p->weights[i];
    uint64_t rows = w->shape.dims[0], tiles = rn_div_up(rows, RN_TILE_ROWS);
    uint64_t tile_cols = rn_div_up(p->cols, RN_TILE_COLS);
    rn_tile_form form = form_of(p, i);
    rn_product_weight out = {.tiles = w->data,
                             .bias = p->biases[i] ? p->biases[i]->data : NULL,
                             .out = p->outputs[i]->data,
                             .rows = (uint32_t)rows,
                             .form = form};
    if (form == RN_TILE_I8 && w->data)
        out.row_scales =
            (const float *)(const void *)(out.tiles + tiles * tile_cols * rn_tile_bytes(form));
    return out;
}

static rn_product_args make_args(const product *p, uint32_t first, uint32_t count) {
    rn_product_args args = {.count = count,
                            .rows = p->rows,
                            .cols = p->cols,
                            .form = form_of(p, first),
                            .gated = p->gated,
                            .activation = p->activation,
                            .steady_norm = p->steady_norm,
                            .eps = p->eps,
                            .x = p->x->data,
                            .norm = p->norm ? p->norm->data : NULL,
                            .residual = p->residual ? p->residual->data : NULL};
    for (uint32_t i = 0; i < count; i++)
        args.weights[i] = make_weight(p, first + i);
    return args;
}

// ---- workspace ----------------------------------------------------------------------------------

static uint64_t pack_bytes(const product *p) {
    return rn_round_up(rn_pack_bytes(p->rows, p->cols), PART_ALIGN);
}

static uint64_t tiled_workspace(const product *p) {
    if (p->rows == 0 || (p->rows == 1 && p->cols <= RN_FEW_COLS)) return 0;
    return pack_bytes(p);
}

// ---- launching ----------------------------------------------------------------------------------

static rn_status pack(const product *p, bool is_bf16) {
    rn_pack_args args = {.x = p->x->data,
                         .norm = p->norm ? p->norm->data : NULL,
                         .packed = p->call->workspace,
                         .rows = p->rows,
                         .cols = p->cols,
                         .is_bf16 = is_bf16,
                         .eps = p->eps};
    uint32_t blocks = args.norm ? rn_pack_blocks(p->rows) : rn_pack_plain_blocks(p->rows, p->cols);
    rn_cuda_grid grid = {blocks, 1, 1, .threads = RN_NORM_THREADS, .early = true};
    return rn_cuda_launch(p->call, RN_CUDA_PACK, grid, &args);
}

static rn_status launch_few(const product *p, const rn_product_args *args,
                            const rn_cuda_traits *traits) {
    rn_few_launch few = rn_few_launch_of(args, traits->multiprocessors, traits->has_wgmma);
    rn_few_args told = {*args, few.plan};
    rn_cuda_grid grid = {few.blocks, 1, 1, few.threads, few.plan.bytes, .early = true};
    return rn_cuda_launch(p->call, RN_CUDA_PRODUCT_FEW_F16_1 + few.kernel, grid, &told);
}

static rn_status launch_many(const product *p, const rn_product_args *args,
                             const rn_cuda_traits *traits) {
    static const rn_cuda_kernel first_of[RN_FAMILY_COUNT] = {
        [RN_FAMILY_MMA] = RN_CUDA_PRODUCT_MMA_F16,
        [RN_FAMILY_SOME_32] = RN_CUDA_PRODUCT_SOME_32_F16,
        [RN_FAMILY_SOME_64] = RN_CUDA_PRODUCT_SOME_64_F16,
        [RN_FAMILY_SOME_128] = RN_CUDA_PRODUCT_SOME_128_F16,
        [RN_FAMILY_NARROW] = RN_CUDA_PRODUCT_NARROW_F16,
        [RN_FAMILY_MANY] = RN_CUDA_PRODUCT_MANY_F16,
        [RN_FAMILY_WIDE] = RN_CUDA_PRODUCT_WIDE_F16,
    };
    rn_many_launch many = rn_many_pick(args, traits->multiprocessors, traits->has_wgmma);
    rn_cuda_grid grid = {many.x,        many.y,           many.z, many.threads, many.shared_bytes,
                         .early = true, .ring = many.ring};
    return rn_cuda_launch(p->call, first_of[many.family] + args->form - RN_TILE_F16, grid, args);
}

// Weights of one form. *packed: the form that x is packed for so far, 0: not at all.
static rn_status run_alike(const product *p, uint32_t first, uint32_t count, uint32_t *packed) {
    const rn_cuda_traits *traits = rn_cuda_traits_of(p->call);
    rn_product_args args = make_args(p, first, count);
    bool few =
        rn_few_serves(&args, traits->multiprocessors, traits->has_wgmma, traits->shared_most);
    uint32_t kind = args.form == RN_TILE_BF16 ? 2 : 1;
    if (!few || args.rows > 1) {
        if (*packed != kind) RN_TRY(pack(p, kind == 2));
        *packed = kind;
        args.packed = p->call->workspace;
    }
    return few ? launch_few(p, &args, traits) : launch_many(p, &args, traits);
}

static rn_status run_tiled(const product *p) {
    uint32_t packed = 0;
    for (uint32_t first = 0; p->rows && first < p->count; first += count_alike(p, first))
        RN_TRY(run_alike(p, first, count_alike(p, first), &packed));
    return RN_OK;
}

// ---- rows of the table --------------------------------------------------------------------------

rn_status rn_cuda_matmul(const rn_call *call) {
    product p;
    if (rn_cuda_is_half(call->inputs[0].dtype)) return rn_cuda_matmul_half(call);
    if (call->inputs[1].layout != RN_LAYOUT_TILES) return rn_cuda_matmul_plain(call);
    read_matmul(call, &p);
    return run_tiled(&p);
}

uint64_t rn_cuda_matmul_workspace(const rn_call *call) {
    product p;
    if (rn_cuda_is_half(call->inputs[0].dtype)) return rn_cuda_matmul_half_workspace(call);
    if (call->inputs[1].layout != RN_LAYOUT_TILES) return 0;
    read_matmul(call, &p);
    return tiled_workspace(&p);
}

// Of what is unfolded.
static rn_status run_part(const rn_call *part) {
    return rn_cuda_kernels[part->op].run(part);
}

static uint64_t part_workspace(const rn_call *part) {
    const rn_kernel *kernel = &rn_cuda_kernels[part->op];
    return kernel->workspace ? kernel->workspace(part) : 0;
}

// The product alone, as a call of MATMUL's; false where the addend is of another type than y: then
// both are done one after the other.
static bool is_sum_served(const rn_call *call, rn_tensor tensors[4], rn_call *out) {
    const rn_tensor *in = call->inputs;
    tensors[0] = in[0];
    tensors[1] = in[1];
    tensors[2] = call->input_count > 3 ? in[3] : (rn_tensor){.dtype = RN_DTYPE_NONE};
    tensors[3] = call->outputs[0];
    *out = *call;
    out->op = RN_OP_MATMUL;
    out->inputs = tensors;
    out->input_count = 3;
    out->outputs = tensors + 3;
    return rn_cuda_is_half(in[0].dtype) && in[2].dtype == call->outputs[0].dtype;
}

rn_status rn_cuda_matmul_add(const rn_call *call) {
    rn_tensor tensors[4];
    rn_call alone;
    if (!is_sum_served(call, tensors, &alone)) return rn_fused_run(call, run_part);
    return rn_cuda_matmul_half_add(&alone, call->inputs[2].data);
}

uint64_t rn_cuda_matmul_add_workspace(const rn_call *call) {
    rn_tensor tensors[4];
    rn_call alone;
    if (!is_sum_served(call, tensors, &alone)) return rn_fused_workspace(call, part_workspace);
    return rn_cuda_matmul_half_workspace(&alone);
}

rn_status rn_cuda_project(const rn_call *call) {
    product p;
    read_project(call, &p);
    return is_served(&p) ? run_tiled(&p) : rn_fused_run(call, run_part);
}

uint64_t rn_cuda_project_workspace(const rn_call *call) {
    product p;
    read_project(call, &p);
    return is_served(&p) ? tiled_workspace(&p) : rn_fused_workspace(call, part_workspace);
}

// ---- what the planner is told -------------------------------------------------------------------

static rn_product_cut cut_launch(const rn_product_args *args, uint32_t multiprocessors) {
    rn_many_launch many = rn_many_pick(args, multiprocessors, true);
    static const uint32_t groups[RN_FAMILY_COUNT] = {
        [RN_FAMILY_SOME_32] = 2, [RN_FAMILY_SOME_64] = 2, [RN_FAMILY_SOME_128] = 2,
        [RN_FAMILY_NARROW] = 1,  [RN_FAMILY_MANY] = 2,    [RN_FAMILY_WIDE] = 3,
    };
    bool narrow = many.family == RN_FAMILY_SOME_32 || many.family == RN_FAMILY_SOME_64;
    return (rn_product_cut){.blocks = (uint64_t)many.x * many.y * many.z,
                            .columns = rn_div_up(args->cols, many.z),
                            .rows = groups[many.family] * RN_MANY_GROUP,
                            .tokens = !narrow           ? RN_MANY_TOKENS
                                      : args->rows > 32 ? 64
                                                        : 32,
                            .together = many.shared_bytes == RN_SOME_SHARED ? 2 : 1,
                            .weights = args->count,
                            .handed =
                                many.ring > 1 ? rn_many_ceil(args->cols, RN_PRODUCT_SEGMENT) : 0};
}

uint32_t rn_cuda_cut_product(const rn_call *call, uint32_t multiprocessors, rn_product_cut *out) {
    product p;
    uint32_t count = 0;
    if (call->op == RN_OP_MATMUL)
        read_matmul(call, &p);
    else
        read_project(call, &p);
    if (p.rows <= RN_FEW_ROWS || !is_served(&p)) return 0;
    for (uint32_t first = 0; first < p.count; first += count_alike(&p, first)) {
        rn_product_args args = make_args(&p, first, count_alike(&p, first));
        out[count++] = cut_launch(&args, multiprocessors);
    }
    return count;
}
