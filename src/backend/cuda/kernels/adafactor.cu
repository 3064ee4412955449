// adafactor.cu — a step of Adafactor (graph/op/adafactor.c), in place: five launches, of which each
// reads what the one before it made.
//
//     g ─ rows ─▶ R, sums of R    g ─ columns ─▶ partial ─▶ C    R ─▶ root of its mean
//     g, w, R, C ─ measure ─▶ partial ─▶ pace, rest              g, w, R, C, pace, rest ─▶ w
//
// What is no matrix has v for R and no C. Sums are of double, by threads that have every 256th
// element of a row, then by halves; blocks' sums are added in their order.
#include "update.cuh"

enum { THREADS = RN_ROWS_THREADS };

// The same for all threads; all of the block call it.
static __device__ __forceinline__ double sum_block(double value) {
    __shared__ double shared[THREADS];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    value = shared[0];
    __syncthreads();
    return value;
}

static __device__ __forceinline__ double square_of(const rn_adafactor_args &a, uint64_t i) {
    float g = rn_load_one(a.base.g_type, a.base.g, i);
    return (double)__fmul_rn(g, g) + 1e-30;
}

static __device__ __forceinline__ float average(const rn_adafactor_args &a, float old,
                                                double square) {
    return (float)(a.keep * old + (1 - a.keep) * square);
}

// R: a block a row.
extern "C" __global__ void __launch_bounds__(THREADS)
    rn_adafactor_rows(const __grid_constant__ rn_adafactor_args a) {
    rn_begin();
    if (rn_is_skipped(a.base)) return;
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        double sum = 0;
        for (uint64_t c = threadIdx.x; c < a.cols; c += THREADS)
            sum += square_of(a, row * a.cols + c);
        sum = sum_block(sum);
        if (threadIdx.x == 0) a.row[row] = average(a, a.row[row], sum / (double)a.cols);
    }
}

// Sums of the columns of a part of the rows. Blocks (columns, parts).
extern "C" __global__ void __launch_bounds__(THREADS)
    rn_adafactor_columns(const __grid_constant__ rn_adafactor_args a) {
    rn_begin();
    uint64_t c = rn_thread(), first = blockIdx.y * a.part;
    uint64_t end = first + a.part < a.rows ? first + a.part : a.rows;
    double sum = 0;
    if (rn_is_skipped(a.base) || c >= a.cols) return;
    for (uint64_t row = first; row < end; row++)
        sum += square_of(a, row * a.cols + c);
    a.partial[blockIdx.y * a.cols + c] = sum;
}

// C, and by the last block the root of R's mean.
extern "C" __global__ void __launch_bounds__(THREADS)
    rn_adafactor_join(const __grid_constant__ rn_adafactor_args a) {
    rn_begin();
    if (rn_is_skipped(a.base)) return;
    if (blockIdx.x == gridDim.x - 1) {
        double sum = 0;
        for (uint64_t row = threadIdx.x; row < a.rows; row += THREADS)
            sum += a.row[row];
        sum = sum_block(sum);
        if (threadIdx.x == 0) a.totals->root = (float)sqrt(sum / (double)a.rows);
        return;
    }
    uint64_t c = rn_thread();
    double sum = 0;
    for (uint64_t part = 0; c < a.cols && part < a.parts; part++)
        sum += a.partial[part * a.cols + c];
    if (c < a.cols) a.column[c] = average(a, a.column[c], sum / (double)a.rows);
}

// Element i of row `row` as it is to change the weight.
static __device__ __forceinline__ float look(const rn_adafactor_args &a, uint64_t row, uint64_t c,
                                             float g) {
    if (!a.column) return __fdiv_rn(g, __fsqrt_rn(a.row[row * a.cols + c]));
    float scaled = __fmul_rn(g, __fdiv_rn(a.totals->root, __fsqrt_rn(a.row[row])));
    return __fdiv_rn(scaled, __fsqrt_rn(a.column[c]));
}

// The squares of u and of the weight: two sums a block. What is no matrix is averaged on the way.
extern "C" __global__ void __launch_bounds__(THREADS)
    rn_adafactor_measure(const __grid_constant__ rn_adafactor_args a) {
    double squares = 0, sizes = 0;
    rn_begin();
    if (rn_is_skipped(a.base)) return;
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x)
        for (uint64_t c = threadIdx.x; c < a.cols; c += THREADS) {
            uint64_t i = row * a.cols + c;
            if (!a.column) a.row[i] = average(a, a.row[i], square_of(a, i));
            float w = rn_load_one(a.base.w_type, a.base.w, i);
            float u = look(a, row, c, rn_load_one(a.base.g_type, a.base.g, i));
            squares += (double)u * u;
            sizes += (double)w * w;
        }
    squares = sum_block(squares);
    sizes = sum_block(sizes);
    if (threadIdx.x == 0) a.partial[2 * blockIdx.x] = squares, a.partial[2 * blockIdx.x + 1] = sizes;
}

// One block: pace and rest.
extern "C" __global__ void __launch_bounds__(THREADS)
    rn_adafactor_settle(const __grid_constant__ rn_adafactor_args a) {
    double squares = 0, sizes = 0, n = (double)a.base.n;
    rn_begin();
    if (rn_is_skipped(a.base)) return;
    for (uint32_t i = threadIdx.x; i < a.measured; i += THREADS) {
        squares += a.partial[2 * i];
        sizes += a.partial[2 * i + 1];
    }
    squares = sum_block(squares);
    sizes = sum_block(sizes);
    if (threadIdx.x > 0) return;
    double clip = fmax(1.0, sqrt(squares / n)), size = fmax(1e-3, sqrt(sizes / n));
    a.totals->pace = (float)(a.rate * size / clip);
    a.totals->rest = (float)(1 - a.rate * size * a.decay);
}

// An element a thread.
extern "C" __global__ void __launch_bounds__(THREADS)
    rn_adafactor_update(const __grid_constant__ rn_adafactor_args a) {
    const rn_update_args &b = a.base;
    rn_begin();
    if (rn_is_skipped(b)) return;
    float pace = a.totals->pace, rest = a.totals->rest;
    for (uint64_t i = rn_thread(); i < b.n; i += rn_threads()) {
        uint64_t row = i / a.cols;
        float u = look(a, row, i - row * a.cols, rn_load_one(b.g_type, b.g, i));
        float w = rn_load_one(b.w_type, b.w, i);
        uint32_t word = b.w_type == RN_PLAIN_BF16 ? rn_draw_one(b, i) : 0;
        w = __fsub_rn(__fmul_rn(w, rest), __fmul_rn(pace, u));
        rn_put_one(b.w_type, b.w, i, w, word, RN_NOISE_WEIGHT);
    }
}
