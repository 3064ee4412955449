// matmul_plain.cu — products that tiles do not serve: f32 weights, transposes, batches, any type as
// files have it.
//
// A tile of X and one of W go to shared memory, k outermost, while the next ones are on their way
// to registers. Every element of y is one chain of fmaf in the order of k, whatever the tile: the
// bits of the reference, for any number of rows. Three tiles: a large one, a middle one for
// matrices that would leave the device idle, and a thin one for up to 8 rows.
#include "begin.cuh"
#include "plain.cuh"

namespace {

// Which of w's matrices serves batch `batch`: an axis of 1 serves all.
__device__ uint64_t find_batch(const rn_matmul_args &a, uint64_t batch) {
    uint64_t at = 0, stride = 1;
    for (uint32_t i = a.leading; i-- > 0; batch /= a.x_dims[i]) {
        if (a.w_dims[i] != 1) at += batch % a.x_dims[i] * stride;
        stride *= a.w_dims[i];
    }
    return at;
}

// Not inlined: the switch over all types once, and not once a load.
__device__ __noinline__ float read_any(const rn_plain_args &w, uint64_t i, uint64_t row) {
    return rn_plain_at(w, i, row);
}

// What a thread loads of a matrix, tile after tile along k: `Count` elements of a tile of `Size` by
// `BK`, so that neighbours in memory go to neighbouring threads.
template <int Size, int BK> struct lane {
    static constexpr int Count = Size * BK / RN_ROWS_THREADS;
    int at, k, next_at, next_k; // in the tile; to the thread's next element
    int most;                   // places of the tile that are there
    uint64_t index, next, along;

    __device__ lane(uint64_t first, uint64_t at_stride, uint64_t k_stride, uint64_t left) {
        bool k_inside = k_stride == 1;
        at = k_inside ? threadIdx.x / BK : threadIdx.x % Size;
        k = k_inside ? threadIdx.x % BK : threadIdx.x / Size;
        next_at = k_inside ? RN_ROWS_THREADS / BK : 0;
        next_k = k_inside ? 0 : RN_ROWS_THREADS / Size;
        most = left < Size ? (int)left : Size;
        index = first + at * at_stride + k * k_stride;
        next = next_at * at_stride + next_k * k_stride;
        along = BK * k_stride;
    }

    // Zeros where there is nothing; then on to the next tile.
    template <class Read>
    __device__ __forceinline__ void load(uint64_t left_k, float *out, Read read) {
        int most_k = left_k < BK ? (int)left_k : BK;
#pragma unroll
        for (int j = 0; j < Count; j++) {
            int place = at + j * next_at, depth = k + j * next_k;
            out[j] = place < most && depth < most_k ? read(index + j * next, place, depth) : 0.0f;
        }
        index += along;
    }

    template <int Stride>
    __device__ __forceinline__ void store(float (*to)[Stride], const float *from) const {
#pragma unroll
        for (int j = 0; j < Count; j++)
            to[k + j * next_k][at + j * next_at] = from[j];
    }
};

// BM by BN outputs a block, TM by TN a thread, BK of k at a time.
template <int BM, int BN, int BK, int TM, int TN, bool F32> struct product {
    static constexpr int Wide = BN / TN, High = BM / TM; // threads along n and m
    static constexpr int Pad = TN % 4 == 0 ? 4 : 1;
    // A thread's columns (and rows) come in groups of four, Wide * 4 apart, so that a warp's reads
    // of shared memory lie together.
    static constexpr int GroupN = TN % 4 == 0 ? 4 : TN, GroupM = TM % 4 == 0 ? 4 : TM;
    static_assert(Wide * High == RN_ROWS_THREADS, "a thread has a tile of TM by TN");

    struct shared {
        float x[BK][BM + Pad], w[BK][BN + Pad];
    };

    static __device__ __forceinline__ int col_of(int thread, int j) {
        return j / GroupN * (Wide * GroupN) + thread % Wide * GroupN + j % GroupN;
    }
    static __device__ __forceinline__ int row_of(int thread, int j) {
        return j / GroupM * (High * GroupM) + thread / Wide * GroupM + j % GroupM;
    }

    static __device__ __forceinline__ void multiply(const shared *s, float (*sum)[TN]) {
#pragma unroll 2
        for (int k = 0; k < BK; k++) {
            float x[TM], w[TN];
#pragma unroll
            for (int i = 0; i < TM; i++)
                x[i] = s->x[k][row_of(threadIdx.x, i)];
#pragma unroll
            for (int j = 0; j < TN; j++)
                w[j] = s->w[k][col_of(threadIdx.x, j)];
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    sum[i][j] = __fmaf_rn(x[i], w[j], sum[i][j]);
        }
    }

    static __device__ __forceinline__ void write(const rn_matmul_args &a, float *y, uint64_t m0,
                                                 uint64_t n0, float (*sum)[TN]) {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                uint64_t m = m0 + row_of(threadIdx.x, i), n = n0 + col_of(threadIdx.x, j);
                if (m >= a.m || n >= a.n) continue;
                float value = a.bias ? __fadd_rn(sum[i][j], a.bias[n]) : sum[i][j];
                y[m * a.n + n] = a.adds ? __fadd_rn(y[m * a.n + n], value) : value;
            }
    }

    static __device__ __forceinline__ void sum_up(const rn_matmul_args &a, uint64_t batch,
                                                  uint64_t m0, uint64_t n0, shared *s,
                                                  float (*sum)[TN]) {
        const float *x = a.x + batch * a.m * a.k, *w = (const float *)a.w.data;
        uint64_t w_row = find_batch(a, batch) * (a.transposed ? a.k : a.n), k0 = 0;
        uint64_t n_stride = a.transposed ? 1 : a.k, k_stride = a.transposed ? a.n : 1;
        lane<BM, BK> of_x(m0 * a.x_row, a.x_row, a.x_col, a.m - m0);
        lane<BN, BK> of_w(w_row * a.w.cols + n0 * n_stride, n_stride, k_stride, a.n - n0);
        float next_x[of_x.Count], next_w[of_w.Count];
        auto read_x = [&](uint64_t i, int, int) { return x[i]; };
        auto read_w = [&](uint64_t i, int place, int depth) {
            if (F32) return w[i];
            return read_any(a.w, i, w_row + (a.transposed ? k0 + depth : n0 + place));
        };
        of_x.load(a.k, next_x, read_x);
        of_w.load(a.k, next_w, read_w);
        while (k0 < a.k) {
            of_x.store(s->x, next_x);
            of_w.store(s->w, next_w);
            __syncthreads();
            k0 += BK;
            if (k0 < a.k) {
                of_x.load(a.k - k0, next_x, read_x);
                of_w.load(a.k - k0, next_w, read_w);
            }
            multiply(s, sum);
            __syncthreads();
        }
    }

    static __device__ __forceinline__ void run(const rn_matmul_args &a, shared *s) {
        uint64_t tiles_n = (a.n + BN - 1) / BN;
        uint64_t m0 = blockIdx.x / tiles_n * BM, n0 = blockIdx.x % tiles_n * BN;
        for (uint64_t batch = blockIdx.z; batch < a.batch; batch += gridDim.z) {
            float sum[TM][TN] = {};
            sum_up(a, batch, m0, n0, s, sum);
            write(a, a.y + batch * a.m * a.n, m0, n0, sum);
        }
    }
};

} // namespace

#define RN_MATMUL(NAME, BM, BN, BK, TM, TN, F32)                                                   \
    extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, 2)                               \
        rn_matmul_##NAME(const __grid_constant__ rn_matmul_args a) {                               \
        using tile = product<BM, BN, BK, TM, TN, F32>;                                             \
        __shared__ tile::shared s;                                                                 \
        rn_begin();                                                                                \
        tile::run(a, &s);                                                                          \
    }

RN_MATMUL(large, 128, 64, 16, 8, 4, true)
RN_MATMUL(middle, 64, 64, 16, 4, 4, true)
RN_MATMUL(thin, 8, 32, 64, 1, 1, true)
RN_MATMUL(middle_any, 64, 64, 16, 4, 4, false)
RN_MATMUL(thin_any, 8, 32, 32, 1, 1, false)
