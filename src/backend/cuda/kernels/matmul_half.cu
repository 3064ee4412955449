// matmul_half.cu — products of 16-bit matrices where cuBLASLt is not there: any transpose, batches;
// and weights of any kind, rounded to 16 bits for either.
//
// A block has 128 by 128 outputs, a warp 64 by 32 of them. Tiles of X and W, 32 of k each, go to
// shared memory while the next ones are on their way to registers; both lie there with k innermost,
// which is how the matrix units take them.
#include "begin.cuh"
#include "half_args.h"
#include "half_io.cuh"
#include "plain.cuh"

// ---- weights in 16 bits -------------------------------------------------------------------------

namespace {

constexpr int Flight = 4; // eights that a thread has on their way

// Codes of nf4 in pairs, as a byte has them: the first in the high nibble.
struct nf4_pairs {
    float2 of[256];
};

__device__ __forceinline__ void make_pairs(nf4_pairs &pairs) {
    for (int i = threadIdx.x; i < 256; i += RN_ROWS_THREADS)
        pairs.of[i] = make_float2(rn_nf4_values[i >> 4], rn_nf4_values[i & 15]);
    __syncthreads();
}

// The rows of a slice lie behind each other, whole eights: no row needs to be found.
__device__ __forceinline__ void round_nf4(const rn_to_half_args &a, const nf4_pairs &pairs) {
    uint64_t eights = a.rows * a.cols / 8, first = a.first_row * a.cols / 8;
    const uint32_t *codes = (const uint32_t *)a.w.data + first; // eight codes each
    for (uint64_t i = rn_thread(); i < eights; i += Flight * rn_threads()) {
        uint32_t bits[Flight];
        float scale[Flight];
#pragma unroll
        for (int f = 0; f < Flight; f++) {
            uint64_t at = i + f * rn_threads();
            if (at >= eights) continue;
            bits[f] = codes[at];
            scale[f] = rn_nf4_absmax(a.w, (first + at) / 8);
        }
#pragma unroll
        for (int f = 0; f < Flight; f++) {
            uint64_t at = i + f * rn_threads();
            if (at >= eights) continue;
            rn_eight x;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 pair = pairs.of[bits[f] >> 8 * j & 0xff];
                x.v[2 * j] = __fmul_rn(pair.x, scale[f]);
                x.v[2 * j + 1] = __fmul_rn(pair.y, scale[f]);
            }
            rn_store_eight(a.type, a.out, at * 8, x);
        }
    }
}

// Whether the slice is whole rows of whole eights, so that eights lie at multiples of 8.
__device__ __forceinline__ bool is_flat(const rn_to_half_args &a) {
    return a.first_col == 0 && a.cols == a.w.cols && a.cols % 8 == 0 &&
           rn_is_aligned(a.w.data, 4);
}

// Eight neighbours of a row are a thread's. Index: of eights, 32 bits where they suffice, for their
// division takes a tenth. Type: RN_PLAIN_NONE: whatever the arguments say.
template <uint32_t Type, class Index>
__device__ __forceinline__ void round_eights(const rn_to_half_args &a) {
    rn_plain_args w = a.w;
    if (Type != RN_PLAIN_NONE) w.type = Type; // a constant: the switch over types is gone
    Index eights = (Index)((a.cols + 7) / 8), all = (Index)a.rows * eights;
    bool whole = a.cols % 8 == 0;
    for (Index i = (Index)rn_thread(); i < all; i += (Index)rn_threads()) {
        Index row = i / eights, col = (i - row * eights) * 8;
        uint64_t from = a.first_row + row, at = from * w.cols + a.first_col + col;
        uint32_t count = a.cols - col < 8 ? (uint32_t)(a.cols - col) : 8;
        rn_eight x;
#pragma unroll
        for (int j = 0; j < 8; j++)
            x.v[j] = j < (int)count ? rn_plain_at(w, at + j, from) : 0.0f;
        rn_store_up_to_eight(a.type, a.out, row * a.cols + col, count, whole, x);
    }
}

template <uint32_t Type> __device__ __forceinline__ void round_any(const rn_to_half_args &a) {
    if (a.rows * ((a.cols + 7) / 8) < 0x40000000)
        round_eights<Type, uint32_t>(a);
    else
        round_eights<Type, uint64_t>(a);
}

} // namespace

#define RN_TO_HALF(NAME, TYPE)                                                                       \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_to_half_##NAME(const __grid_constant__ rn_to_half_args a) {                                 \
        rn_begin();                                                                                \
        round_any<TYPE>(a);                                                                            \
    }

RN_TO_HALF(any, RN_PLAIN_NONE)
RN_TO_HALF(f32, RN_PLAIN_F32)
RN_TO_HALF(f16, RN_PLAIN_F16)
RN_TO_HALF(bf16, RN_PLAIN_BF16)
RN_TO_HALF(int8, RN_PLAIN_INT8)
RN_TO_HALF(int4, RN_PLAIN_INT4)
RN_TO_HALF(q8_0, RN_PLAIN_Q8_0)
RN_TO_HALF(q4_0, RN_PLAIN_Q4_0)
RN_TO_HALF(q4_k, RN_PLAIN_Q4_K)
RN_TO_HALF(q5_k, RN_PLAIN_Q5_K)
RN_TO_HALF(q6_k, RN_PLAIN_Q6_K)

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_to_half_nf4(const __grid_constant__ rn_to_half_args a) {
    __shared__ nf4_pairs pairs;
    rn_begin();
    if (!is_flat(a)) return round_any<RN_PLAIN_NF4>(a);
    make_pairs(pairs);
    round_nf4(a, pairs);
}

// ---- products -----------------------------------------------------------------------------------

namespace {

constexpr int Tile = RN_HALF_TILE, Deep = 32, Stride = Deep + 8; // of a row in shared memory
constexpr int Vectors = Tile * Deep / 8 / RN_ROWS_THREADS;       // of eight elements, a thread's

struct __align__(16) shared_tiles {
    uint16_t x[Tile][Stride], w[Tile][Stride];
};

__device__ __forceinline__ uint64_t find_batch(const rn_half_args &a, uint64_t batch) {
    uint64_t at = 0, stride = 1;
    for (uint32_t i = a.leading; i-- > 0; batch /= a.x_dims[i]) {
        if (a.w_dims[i] != 1) at += batch % a.x_dims[i] * stride;
        stride *= a.w_dims[i];
    }
    return at;
}

// One matrix: rows r (of X, or columns of W) from `first` on, along k.
struct operand {
    const uint16_t *data;
    uint64_t row, col, rows, first;

    // Eight elements along whichever axis lies densely; zeros where there are none.
    __device__ __forceinline__ uint4 load(int vector, uint64_t k0, uint64_t k) const {
        int r, d;
        place(vector, &r, &d);
        uint64_t left_r = rows - min(rows, first + r), left_k = k - min(k, k0 + d);
        uint64_t across = col == 1 ? left_r : left_k, along = col == 1 ? left_k : left_r;
        const uint16_t *at = data + (first + r) * row + (k0 + d) * col;
        uint4 out = make_uint4(0, 0, 0, 0);
        if (across == 0 || along == 0) return out;
        if (along >= 8 && rn_is_aligned(at, 16)) return *(const uint4 *)at;
        uint16_t *each = (uint16_t *)&out;
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < (int)min(along, (uint64_t)8)) each[j] = at[j];
        return out;
    }

    __device__ __forceinline__ void store(uint16_t (*to)[Stride], int vector, uint4 v) const {
        int r, d;
        place(vector, &r, &d);
        if (col == 1) {
            *(uint4 *)&to[r][d] = v;
            return;
        }
        const uint16_t *each = (const uint16_t *)&v;
#pragma unroll
        for (int j = 0; j < 8; j++)
            to[r + j][d] = each[j];
    }

    // Neighbouring threads have neighbouring vectors of the dense axis.
    __device__ __forceinline__ void place(int vector, int *r, int *d) const {
        int i = vector * RN_ROWS_THREADS + threadIdx.x;
        *r = col == 1 ? i / (Deep / 8) : i % (Tile / 8) * 8;
        *d = col == 1 ? i % (Deep / 8) * 8 : i / (Tile / 8);
    }
};

template <bool BF16>
__device__ __forceinline__ void multiply_tile(float *c, const uint32_t *a, const uint32_t *b) {
    if (BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t pair_at(const uint16_t (*s)[Stride], int r, int k) {
    return *(const uint32_t *)&s[r][k];
}

// A warp's 64 by 32 outputs: four tiles of 16 rows by four of 8 columns.
template <bool BF16>
__device__ __forceinline__ void multiply(const shared_tiles &s, int m0, int n0, int lane,
                                         float (*sum)[4][4]) {
    int g = lane / 4, t = lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < Deep; k += 16) {
        uint32_t b[4][2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            b[j][0] = pair_at(s.w, n0 + j * 8 + g, k + t);
            b[j][1] = pair_at(s.w, n0 + j * 8 + g, k + t + 8);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = m0 + i * 16 + g;
            uint32_t a[4] = {pair_at(s.x, r, k + t), pair_at(s.x, r + 8, k + t),
                             pair_at(s.x, r, k + t + 8), pair_at(s.x, r + 8, k + t + 8)};
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply_tile<BF16>(sum[i][j], a, b[j]);
        }
    }
}

__device__ __forceinline__ void put(const rn_half_args &a, uint64_t batch, uint64_t m, uint64_t n,
                                    float value) {
    if (m >= a.m || n >= a.n) return;
    uint64_t at = batch * a.m * a.n + m * a.y_row + n;
    if (a.bias) value += rn_load_one(a.y_type, a.bias, n);
    if (a.addend) value += rn_load_one(a.y_type, a.addend, at);
    rn_store_one(a.y_type, a.y, at, value);
}

template <bool BF16> __device__ __forceinline__ void run(const rn_half_args &a, shared_tiles &s) {
    uint64_t tiles_n = (a.n + Tile - 1) / Tile;
    uint64_t m0 = blockIdx.x / tiles_n * Tile, n0 = blockIdx.x % tiles_n * Tile;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32;
    for (uint64_t batch = blockIdx.z; batch < a.batch; batch += gridDim.z) {
        operand x = {(const uint16_t *)a.x + batch * a.m * a.k, a.x_row, a.x_col, a.m, m0};
        operand w = {(const uint16_t *)a.w + find_batch(a, batch) * a.n * a.k, a.w_row, a.w_col,
                     a.n, n0};
        float sum[4][4][4] = {};
        uint4 next_x[Vectors], next_w[Vectors];
#pragma unroll
        for (int v = 0; v < Vectors; v++)
            next_x[v] = x.load(v, 0, a.k), next_w[v] = w.load(v, 0, a.k);
        for (uint64_t k0 = 0; k0 < a.k; k0 += Deep) {
#pragma unroll
            for (int v = 0; v < Vectors; v++)
                x.store(s.x, v, next_x[v]), w.store(s.w, v, next_w[v]);
            __syncthreads();
            if (k0 + Deep < a.k) {
#pragma unroll
                for (int v = 0; v < Vectors; v++)
                    next_x[v] = x.load(v, k0 + Deep, a.k), next_w[v] = w.load(v, k0 + Deep, a.k);
            }
            multiply<BF16>(s, warp_m, warp_n, lane, sum);
            __syncthreads();
        }
        int g = lane / 4, t = lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    put(a, batch, m0 + warp_m + i * 16 + g + e / 2 * 8,
                        n0 + warp_n + j * 8 + t + e % 2, sum[i][j][e]);
    }
}

} // namespace

#define RN_MATMUL_HALF(NAME, BF16)                                                                 \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)                                  \
        rn_matmul_half_##NAME(const __grid_constant__ rn_half_args a) {                            \
        __shared__ shared_tiles s;                                                                 \
        rn_begin();                                                                                \
        run<BF16>(a, s);                                                                           \
    }

RN_MATMUL_HALF(bf16, true)
RN_MATMUL_HALF(f16, false)
