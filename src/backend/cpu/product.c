// product.c — products of i8 and u8 with zero points, in the tiles of f32 products.
//
// What is left of a byte when its zero is taken away is at most 255, so sums of 256 products and
// more are exact in f32: k is cut into chunks whose sums are, and those are added up as i32. Rows
// of A are widened once, B panel by panel as it is packed (gemm.h).
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#include "base/checked.h"
#include "graph/op/move.h"
#include "graph/op/number.h"

enum { A, B, A_ZERO, B_ZERO };
enum { ROWS = 128, LEAST_CHUNK = 256, MOST_CHUNK = 1024 };

// One pair of matrices.
typedef struct bytes {
    const rn_call *call;
    uint64_t m, n, k, batch;
    const uint8_t *a, *b; // (M, K), (K, N); by their low bits whatever the dtype
    float *widened;       // (rows of a block, K)
    float *sums;          // (rows of a block, N)
    uint64_t row, chunk;  // where the block and the chunk begin
    int32_t *y;           // (M, N)
} bytes;

static int32_t byte_at(const rn_tensor *of, const uint8_t *at) {
    return of->dtype == RN_DTYPE_I8 ? (int8_t)*at : *at;
}

static int32_t zero_of(const rn_call *call, uint32_t zero, uint64_t at) {
    const rn_tensor *z = &call->inputs[zero];
    if (!rn_tensor_given(z)) return 0;
    return byte_at(z, (const uint8_t *)z->data + (rn_tensor_elements(z) == 1 ? 0 : at));
}

static void widen_row(void *arg, size_t index) {
    const bytes *p = arg;
    uint64_t row = p->row + index;
    int32_t zero = zero_of(p->call, A_ZERO, row);
    const uint8_t *from = p->a + row * p->k;
    float *to = p->widened + index * p->k;
    if (p->call->inputs[A].dtype == RN_DTYPE_I8)
        for (uint64_t i = 0; i < p->k; i++)
            to[i] = (float)((int8_t)from[i] - zero);
    else
        for (uint64_t i = 0; i < p->k; i++)
            to[i] = (float)(from[i] - zero);
}

// Columns of a panel, k's [k, k + depth) of the chunk: to[k][16].
static void pack(const void *source, size_t panel, size_t k, size_t depth, float *to) {
    const bytes *p = source;
    size_t first = panel * RN_PANEL, count = rn_min_u64(RN_PANEL, p->n - first);
    bool is_signed = p->call->inputs[B].dtype == RN_DTYPE_I8;
    int32_t zeros[RN_PANEL] = {0};
    for (size_t j = 0; j < count; j++)
        zeros[j] = zero_of(p->call, B_ZERO, first + j);
    for (size_t i = 0; i < depth; i++, to += RN_PANEL) {
        const uint8_t *from = p->b + (p->chunk + k + i) * p->n + first;
        for (size_t j = 0; j < count; j++)
            to[j] = (float)((is_signed ? (int8_t)from[j] : from[j]) - zeros[j]);
        for (size_t j = count; j < RN_PANEL; j++)
            to[j] = 0;
    }
}

// The sums of a chunk to those before.
static void add_row(void *arg, size_t index) {
    const bytes *p = arg;
    const float *from = p->sums + index * p->n;
    int32_t *to = p->y + (p->row + index) * p->n;
    if (p->chunk == 0)
        for (uint64_t i = 0; i < p->n; i++)
            to[i] = (int32_t)from[i];
    else
        for (uint64_t i = 0; i < p->n; i++)
            to[i] = (int32_t)((uint32_t)to[i] + (uint32_t)(int32_t)from[i]);
}

static rn_gemm gemm_of(const bytes *p, uint64_t rows, uint64_t depth) {
    return (rn_gemm){.m = rows,
                     .n = p->n,
                     .k = depth,
                     .a = {p->widened ? p->widened + p->chunk : NULL, p->k, 1},
                     .pack = pack,
                     .source = p,
                     .c = p->sums,
                     .c_row = p->n};
}

static void run_block(bytes *p, uint64_t rows, uint64_t depth, void *rest) {
    rn_call_each(p->call, rows, widen_row, p);
    for (p->chunk = 0; p->chunk < p->k; p->chunk += depth) {
        rn_gemm gemm = gemm_of(p, rows, rn_min_u64(depth, p->k - p->chunk));
        rn_gemm_run(&gemm, p->call, rest);
        rn_call_each(p->call, rows, add_row, p);
    }
}

// The largest that is left of an operand's bytes.
static uint64_t most_of(const rn_call *call, uint32_t operand) {
    int32_t low = call->inputs[operand].dtype == RN_DTYPE_I8 ? -128 : 0, most = 128;
    const rn_tensor *zero = &call->inputs[operand + A_ZERO];
    uint64_t count = rn_tensor_given(zero) ? rn_tensor_elements(zero) : 1;
    for (uint64_t i = 0; i < count; i++) {
        int32_t z = zero_of(call, operand + A_ZERO, i);
        most = z - low > most ? z - low : most;
        most = low + 255 - z > most ? low + 255 - z : most;
    }
    return (uint64_t)most;
}

static bool takes(const rn_call *call) {
    return call->outputs[0].dtype == RN_DTYPE_I32 && call->inputs[A].dtype != RN_DTYPE_I32;
}

static bytes read_call(const rn_call *call) {
    rn_shape a = call->inputs[A].shape, b = call->inputs[B].shape;
    bytes p = {.call = call, .m = a.dims[a.rank - 2], .n = b.dims[b.rank - 1]};
    p.k = a.dims[a.rank - 1];
    p.a = call->inputs[A].data;
    p.b = call->inputs[B].data;
    p.y = call->outputs[0].data;
    rn_tensor y = call->outputs[0];
    // One matrix for all batches, and zeros that are the same for all rows: all rows are one
    // matrix.
    bool each_row =
        rn_tensor_given(&call->inputs[A_ZERO]) && rn_tensor_elements(&call->inputs[A_ZERO]) != 1;
    if (rn_tensor_elements(&call->inputs[B]) == p.k * p.n && !each_row)
        p.m = rn_tensor_elements(&y) / rn_max_u64(p.n, 1);
    return p;
}

uint64_t rn_cpu_product_workspace(const rn_call *call) {
    if (!takes(call)) return 0;
    bytes p = read_call(call);
    uint64_t rows = rn_min_u64(p.m, ROWS), most = 0;
    for (uint64_t depth = LEAST_CHUNK; depth <= MOST_CHUNK; depth *= 2) {
        rn_gemm gemm = gemm_of(&p, rows, rn_min_u64(depth, p.k));
        most = rn_max_u64(most, rn_gemm_workspace(&gemm, call->threads));
    }
    return rn_round_up(rows * p.k * sizeof(float), 64) +
           rn_round_up(rows * p.n * sizeof(float), 64) + most;
}

rn_status rn_cpu_product(const rn_call *call) {
    if (!takes(call)) return rn_op_get(call->op)->reference(call);
    bytes p = read_call(call);
    rn_shape y = call->outputs[0].shape, batches = y;
    batches.rank -= 2;
    rn_shape a = call->inputs[A].shape, b = call->inputs[B].shape, inner = batches;
    a.rank -= 2, b.rank -= 2;
    rn_strides as = rn_strides_stretched(a, batches), bs = rn_strides_stretched(b, batches);
    inner.dims[inner.rank++] = 1; // a batch is a row of one element
    uint64_t most = most_of(call, A) * most_of(call, B), depth = MOST_CHUNK;
    while (depth > LEAST_CHUNK && depth * most > 1 << 24)
        depth /= 2;
    uint64_t elements = rn_tensor_elements(&call->outputs[0]), pairs = p.m * p.n;
    for (uint64_t i = 0; pairs && i < elements / pairs; i++) {
        bytes pair = p;
        bool all = elements == pairs && inner.rank > 1; // all batches at once
        pair.a += all ? 0 : rn_row_begin(inner, i, &as) * p.m * p.k;
        pair.b += all ? 0 : rn_row_begin(inner, i, &bs) * p.k * p.n;
        pair.y += i * pairs;
        uint64_t rows = rn_min_u64(p.m, ROWS);
        char *workspace = call->workspace;
        pair.widened = (float *)workspace;
        workspace += rn_round_up(rows * p.k * sizeof(float), 64);
        pair.sums = (float *)workspace;
        workspace += rn_round_up(rows * p.n * sizeof(float), 64);
        for (pair.row = 0; pair.row < p.m; pair.row += rows)
            run_block(&pair, rn_min_u64(rows, p.m - pair.row), depth, workspace);
    }
    return RN_OK;
}
