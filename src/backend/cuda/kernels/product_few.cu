// product_few.cu — products of 1 to 16 rows: as fast as the weights can be read.
//
// The meaning is args.h's; the plan of a launch is product_few.h's. A block takes every G-th tile
// of 16 outputs, and its warps take the tiles' segments in turn (a *unit* is one segment of one
// tile); a unit's sums go to shared memory, and when a batch of tiles is complete, their segments
// are added in order and finished (scale, bias, gate, residual). So no bit depends on which warp
// did what, nor on when.
//
//     ask for some weights ─▶ wait for the kernel before ─▶ ask for x ─▶ fill the ring ─▶ x
//     ─▶ units of a batch ─▶ outputs ─▶ next batch
//
// One row: x is normed and rounded here, into shared memory, as B fragments: the 16 bytes that lane
// l needs for two steps lie together, and all lanes of one t read the same. So all eight columns of
// the matrix unit compute the same row, and column 0 is taken. More rows: x was packed before
// (pack.cu); it is copied to shared memory, segment by segment, or, where it is too large, read
// through the L1, by two warps at a time: they take the same segment of two tiles.
#include "args.h"
#include "bulk.cuh"
#include "forms.cuh"
#include "norm.cuh"
#include "product_few.h"
#include "product_finish.cuh"

__device__ __forceinline__ void rn_few_let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void rn_few_wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- the work of a block and of a warp ----------------------------------------------------------

// Tiles of a block are of any of the weights; with a gate, tile 2i is the gate's and 2i + 1 the
// up's.
struct rn_few_work {
    const rn_product_args *args;
    const rn_few_plan *plan;
    uint32_t tiles; // of this block
    bool in_pairs;  // warps 2i and 2i + 1 take the same segment of two tiles

    // Row tile `row` of weight `which`.
    struct place {
        uint32_t which, row;
    };
    __device__ __forceinline__ place find(uint32_t tile) const {
        if (args->gated) return {tile % 2, blockIdx.x + gridDim.x * (tile / 2)};
        uint32_t row = blockIdx.x + gridDim.x * tile;
        if (row < plan->ends[0]) return {0, row};
        if (row < plan->ends[1]) return {1, row - plan->ends[0]};
        return {2, row - plan->ends[1]};
    }
};

__device__ __forceinline__ rn_few_work rn_few_work_of(const rn_few_args &a, bool shares_x) {
    uint32_t mine = a.plan.tiles + (blockIdx.x < a.plan.more_tiles ? 1 : 0);
    uint32_t tiles = a.product.gated ? 2 * mine : mine;
    return {&a.product, &a.plan, tiles, shares_x && tiles % 2 == 0};
}

// A warp's units, one after the other.
struct rn_few_unit {
    uint32_t tile, segment;

    __device__ __forceinline__ void begin(const rn_few_work &work) {
        uint32_t warp = threadIdx.x / 32;
        tile = work.in_pairs ? warp % 2 : 0;
        segment = work.in_pairs ? warp / 2 : warp;
        while (segment >= work.plan->segments)
            carry(work);
    }
    __device__ __forceinline__ void next(const rn_few_work &work) {
        tile += work.plan->turn_tiles[work.in_pairs];
        segment += work.plan->turn_segments[work.in_pairs];
        if (segment >= work.plan->segments) carry(work);
    }
    __device__ __forceinline__ void carry(const rn_few_work &work) {
        segment -= work.plan->segments;
        tile += work.in_pairs ? 2 : 1;
    }
    // Its tiles; 0: there is no such unit.
    __device__ __forceinline__ uint32_t count(const rn_few_work &work) const {
        if (tile >= work.tiles) return 0;
        return segment + 1 == work.plan->segments ? work.plan->last : 4;
    }
    template <class form>
    __device__ __forceinline__ const uint8_t *data(const rn_few_work &work) const {
        rn_few_work::place at = work.find(tile);
        uint64_t number = (uint64_t)at.row * work.plan->tile_cols + 4 * segment;
        return work.args->weights[at.which].tiles + number * form::TILE_BYTES;
    }
};

// ---- activations as B fragments -----------------------------------------------------------------

// Where element k of the one row lies, in 16-bit units: for two steps, lane t's four words. Whole
// 32s stay whole: place(k + 32 i) is place(k) + 32 i.
__device__ __forceinline__ uint32_t rn_few_place(uint32_t k) {
    return k / 32 * 32 + k % 8 / 2 * 8 + k / 16 % 2 * 4 + k / 8 % 2 * 2 + k % 2;
}

struct rn_few_feed_one {
    enum { PLANES = 1 };
    const uint4 *x; // shared
    __device__ __forceinline__ void await(uint32_t) const {}
    // The fragments of steps `step` (even) and the one behind it.
    __device__ __forceinline__ void pair(uint32_t step, uint32_t b[PLANES][4]) const {
        uint4 v = x[step * 2 + threadIdx.x % 4];
        b[0][0] = v.x;
        b[0][1] = v.y;
        b[0][2] = v.z;
        b[0][3] = v.w;
    }
};

template <int TOKENS> struct rn_few_feed_packed {
    enum { PLANES = TOKENS / 8 };
    const uint32_t *packed; // P of args.h, in words
    __device__ __forceinline__ void await(uint32_t) const {}
    __device__ __forceinline__ void pair(uint32_t step, uint32_t b[PLANES][4]) const {
        const uint32_t *at = packed + (step / 4 * PLANES * 256) + step % 4 * 64 + threadIdx.x % 32;
        for (int plane = 0; plane < PLANES; plane++)
            for (int i = 0; i < 4; i++)
                b[plane][i] = at[plane * 256 + i * 32];
    }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Copies that follow see what kernels before have written.
__device__ __forceinline__ void rn_few_fence_copies() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

// The same in shared memory: each segment has a barrier that says when it is there.
template <int TOKENS> struct rn_few_feed_staged : rn_few_feed_packed<TOKENS> {
    uint32_t barriers;

    __device__ __forceinline__ rn_few_feed_staged(uint8_t *shared, const rn_few_plan &plan)
        : rn_few_feed_packed<TOKENS>{(const uint32_t *)(shared + plan.x)},
          barriers(rn_shared_address(shared + plan.x_barriers)) {}

    __device__ __forceinline__ void begin(const rn_few_work &work) const {
        if (threadIdx.x != 0) return;
        for (uint32_t i = 0; i < work.plan->segments; i++)
            rn_barrier_begin(barriers + 8 * i, 1);
        rn_barriers_publish();
    }
    // All threads come here; each warp asks for some of the segments.
    __device__ __forceinline__ void fetch(const rn_few_work &work) const {
        const uint32_t whole = RN_PRODUCT_SEGMENT * 2 * TOKENS; // bytes
        uint32_t all = work.plan->tile_cols * RN_TILE_COLS * 2 * TOKENS;
        __syncthreads(); // barriers have begun
        if (threadIdx.x % 32 != 0) return;
        rn_few_fence_copies();
        for (uint32_t i = threadIdx.x / 32; i < work.plan->segments; i += blockDim.x / 32) {
            uint32_t left = all - i * whole, bytes = left < whole ? left : whole;
            rn_barrier_expect(barriers + 8 * i, bytes);
            rn_bulk_copy(rn_shared_address(this->packed) + i * whole,
                         (const uint8_t *)work.args->packed + i * whole, bytes, barriers + 8 * i);
        }
    }
    __device__ __forceinline__ void await(uint32_t segment) const {
        rn_barrier_wait(barriers + 8 * segment, 0);
    }
};

#endif

// The norm's weights into the L2, but no nearer: a kernel before may have made them, of 16 bits.
__device__ __forceinline__ void rn_few_prefetch_norm(const rn_product_args &a) {
    uint32_t line = 32; // floats
    for (uint32_t k = threadIdx.x * line; k < a.cols; k += blockDim.x * line)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm + k));
}

// One row's x: rounded to 16 bits in its place; behind the last column zeros. Reads go in batches
// that are all on their way before the first is used, the last batch as well; and past the L1: a
// kernel that runs beside this one may have left old lines there. `fill` asks for weights: behind
// the first reads, which would otherwise wait until all of these have come.
template <bool BF16, int THREADS> struct rn_few_row {
    enum { BATCH = 16, HALF = 8, QUADS = 8 };
    uint16_t *x; // shared, (K in whole tiles)

    __device__ __forceinline__ void put_pair(uint16_t *to, float first, float second) {
        *(uint32_t *)to = rn_round_16<BF16>(first) | (uint32_t)rn_round_16<BF16>(second) << 16;
    }
    __device__ __forceinline__ void put_zeros(uint32_t cols) {
        uint32_t end = (cols + RN_TILE_COLS - 1) / RN_TILE_COLS * RN_TILE_COLS;
        for (uint32_t k = cols + threadIdx.x; k < end; k += blockDim.x)
            x[rn_few_place(k)] = 0;
    }

    __device__ __forceinline__ void read_quads(const float4 *from, uint32_t first, uint32_t quads,
                                               float4 v[QUADS]) {
#pragma unroll
        for (int i = 0; i < QUADS; i++)
            if (first + i * THREADS < quads) v[i] = __ldcg(from + first + i * THREADS);
    }
    __device__ __forceinline__ void put_quads(uint32_t first, uint32_t quads,
                                              const float4 v[QUADS]) {
        uint16_t *to = x + rn_few_place(4 * first); // and the next pair's: 8 further on
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            if (first + i * THREADS >= quads) break;
            put_pair(to + i * 4 * THREADS, v[i].x, v[i].y);
            put_pair(to + i * 4 * THREADS + 8, v[i].z, v[i].w);
        }
    }
    template <class filler>
    __device__ __forceinline__ void take_plain(const float *from, uint32_t cols,
                                               const filler &fill) {
        uint32_t quads = (uintptr_t)from % 16 ? 0 : cols / 4, first = threadIdx.x;
        float4 v[QUADS];
        rn_few_wait_for_previous();
        read_quads((const float4 *)from, first, quads, v);
        fill();
        put_quads(first, quads, v);
        while ((first += QUADS * THREADS) < quads) {
            read_quads((const float4 *)from, first, quads, v);
            put_quads(first, quads, v);
        }
        for (uint32_t k = 4 * quads + threadIdx.x; k < cols; k += THREADS)
            x[rn_few_place(k)] = rn_round_16<BF16>(__ldcg(from + k));
    }

    static __device__ __forceinline__ uint32_t count_left(uint32_t first, uint32_t cols) {
        return first < cols ? cols - first : 0;
    }
    // from[first], from[first + 256], ...; zeros behind the last. By halves, of which most rows
    // have all or nothing.
    __device__ __forceinline__ void read(const float *from, uint32_t first, uint32_t cols,
                                         float v[BATCH]) {
#pragma unroll
        for (int half = 0; half < BATCH; half += HALF) {
            const float *at = from + first + half * RN_NORM_THREADS;
            uint32_t left = count_left(first + half * RN_NORM_THREADS, cols);
#pragma unroll
            for (int i = 0; i < HALF; i++)
                v[half + i] = 0;
            if (left > (HALF - 1) * RN_NORM_THREADS) {
#pragma unroll
                for (int i = 0; i < HALF; i++)
                    v[half + i] = __ldcg(at + i * RN_NORM_THREADS);
            } else if (left) {
#pragma unroll
                for (int i = 0; i < HALF; i++)
                    if (i * RN_NORM_THREADS < left) v[half + i] = __ldcg(at + i * RN_NORM_THREADS);
            }
        }
    }
    __device__ __forceinline__ void put_normed(uint32_t first, uint32_t cols, const float v[BATCH],
                                               const float weight[BATCH], float scale) {
        uint16_t *to = x + rn_few_place(first);
        uint32_t left = count_left(first, cols);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (i * RN_NORM_THREADS >= left) break;
            to[i * RN_NORM_THREADS] = rn_round_16<BF16>(rn_norm_apply(v[i], scale, weight[i]));
        }
    }
    __device__ __forceinline__ float add_squares(const float v[BATCH], float sum) {
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            sum = __fmaf_rn(v[i], v[i], sum);
        return sum;
    }
    // A row of one batch stays in registers; a longer one is read twice.
    template <class filler>
    __device__ __forceinline__ void take_normed(const rn_product_args &a, float *warps,
                                                const filler &fill) {
        const uint32_t jump = BATCH * RN_NORM_THREADS, first = threadIdx.x;
        bool is_one = a.cols <= jump, adds = first < RN_NORM_THREADS; // other warps wait
        float v[BATCH], weight[BATCH], sum = 0;
        if (!a.steady_norm) rn_few_prefetch_norm(a);
        if (adds && a.steady_norm) read(a.norm, first, a.cols, weight);
        rn_few_wait_for_previous();
        if (adds) read(a.x, first, a.cols, v);
        if (adds && !a.steady_norm) read(a.norm, first, a.cols, weight);
        fill();
        if (adds) sum = add_squares(v, 0);
        for (uint32_t k = first + jump; adds && k < a.cols; k += jump) {
            read(a.x, k, a.cols, v);
            sum = add_squares(v, sum);
        }
        float scale = rn_norm_scale(rn_norm_total(sum, warps), a.cols, a.eps);
        if (adds && is_one) put_normed(first, a.cols, v, weight, scale);
        for (uint32_t k = first; adds && !is_one && k < a.cols; k += jump) {
            read(a.x, k, a.cols, v);
            read(a.norm, k, a.cols, weight);
            put_normed(k, a.cols, v, weight, scale);
        }
    }
};

// ---- a warp's weights ---------------------------------------------------------------------------

// How a form's weights are widened: by itself, or by a table in shared memory.
template <int FORM, bool TABLE> struct rn_few_widener {
    __device__ __forceinline__ rn_few_widener(uint8_t *, const rn_few_plan &) {}
    __device__ __forceinline__ void widen(const uint4 *v, int step, uint32_t a[4]) const {
        rn_form<FORM>::widen(v, v + rn_form<FORM>::VECTORS, step, a);
    }
    __device__ __forceinline__ void fill() const {}
};
template <int FORM> struct rn_few_widener<FORM, true> {
    typedef rn_form<FORM> form;
    uint8_t *table;
    uint32_t column;
    __device__ __forceinline__ rn_few_widener(uint8_t *shared, const rn_few_plan &plan)
        : table(shared + plan.table), column(threadIdx.x % 32 * 4) {}
    __device__ __forceinline__ void widen(const uint4 *v, int step, uint32_t a[4]) const {
        form::look(v, v + form::VECTORS, step, table, column, a);
    }
    // All see it behind the barrier that x has.
    __device__ __forceinline__ void fill() const {
        form::fill((uint32_t *)table, threadIdx.x, blockDim.x);
    }
};

// c += a lane's vectors of a tile, times x from `step` on.
template <class form, class widener, class feed>
__device__ __forceinline__ void rn_few_multiply(const widener &by, const uint4 *v, const feed &x,
                                                uint32_t step, float c[feed::PLANES][4]) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        uint32_t b[feed::PLANES][4], a[4];
        x.pair(step + i, b);
        for (int j = 0; j < 2; j++) {
            by.widen(v, i + j, a);
            for (int plane = 0; plane < feed::PLANES; plane++)
                rn_mma<form::BF16>(c[plane], a, b[plane][2 * j], b[plane][2 * j + 1]);
        }
    }
}

// A warp's weights on their way, unit by unit: TILES of them in each stage of a ring in shared
// memory, or in registers. begin() asks for the first weights and fill() for what else there is
// room for; take_unit() multiplies one unit and asks for more.
template <int FORM, int WARPS, int TILES, bool RING> struct rn_few_stream;

// Loads in registers: tile j of a unit is in slot j % TILES; when it has been used, the tile TILES
// further on takes its place, of this unit or of the next.
template <int FORM, int WARPS, int TILES> struct rn_few_stream<FORM, WARPS, TILES, false> {
    typedef rn_form<FORM> form;
    enum { COUNT = form::VECTORS + form::EXTRAS };
    static_assert(4 % TILES == 0, "the next unit's tiles go to the same slots");
    const rn_few_work &work;
    rn_few_unit unit;
    const uint8_t *data, *next_data; // of this unit and of the next; NULL: none
    uint32_t tiles, next_tiles;
    rn_few_widener<FORM, false> by;
    uint4 v[TILES][COUNT];

    __device__ __forceinline__ rn_few_stream(const rn_few_work &w, uint8_t *shared,
                                             const rn_few_plan &plan)
        : work(w), by(shared, plan) {}

    __device__ __forceinline__ void look_ahead() {
        rn_few_unit after = unit;
        after.next(work);
        next_tiles = after.count(work);
        next_data = next_tiles ? after.template data<form>(work) : nullptr;
        if (next_tiles == 0) rn_few_let_next_begin();
    }
    __device__ __forceinline__ void load(int slot, const uint8_t *from, uint32_t tile,
                                         uint32_t count) {
        if (tile >= count) return;
        from += tile * form::TILE_BYTES;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            v[slot][i] = rn_form_stream<form>(from, i, threadIdx.x % 32);
    }
    __device__ __forceinline__ void begin() {
        unit.begin(work);
        tiles = unit.count(work);
        data = tiles ? unit.template data<form>(work) : nullptr;
        look_ahead();
#pragma unroll
        for (int i = 0; i < TILES; i++)
            load(i, data, i, tiles);
    }
    __device__ __forceinline__ void fill() {}

    template <class feed>
    __device__ __forceinline__ void take_unit(const feed &x, float c[feed::PLANES][4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j < tiles) rn_few_multiply<form>(by, v[j % TILES], x, unit.segment * 32 + j * 8, c);
            if (j + TILES < 4)
                load(j % TILES, data, j + TILES, tiles);
            else
                load(j % TILES, next_data, j + TILES - 4, next_tiles);
        }
    }
    __device__ __forceinline__ void next() {
        unit.next(work);
        data = next_data;
        tiles = next_tiles;
        look_ahead();
    }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// One lane of a warp that is together; known to the compiler as one, unlike a lane by number.
__device__ __forceinline__ bool rn_few_elect() {
    uint32_t is_it;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_it));
    return is_it;
}

// Weights are read once a pass: they shall not drive out of the L2 what is read again.
__device__ __forceinline__ void rn_few_copy(uint32_t target, const uint8_t *source, uint32_t bytes,
                                            uint32_t barrier) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

// The stages that a warp asks for, one after the other through all its units.
template <class form, int TILES> struct rn_few_wanted {
    rn_few_unit unit;
    const uint8_t *from;
    uint32_t left; // tiles of the unit; 0: there are no more

    __device__ __forceinline__ void find(const rn_few_work &work) {
        left = unit.count(work);
        if (left) from = unit.template data<form>(work);
    }
    __device__ __forceinline__ uint32_t tiles() const {
        return TILES == 4 || left < TILES ? left : TILES;
    }
    __device__ __forceinline__ void next(const rn_few_work &work) {
        if constexpr (TILES < 4) {
            from += TILES * form::TILE_BYTES;
            left -= tiles();
            if (left) return;
        }
        unit.next(work);
        find(work);
    }
};

// A ring of stages in shared memory that the warp has for itself: one lane asks for the weights,
// all wait for the stage's barrier, use it, and one asks for what comes a ring further on.
// Where there are fewer units than warps, those that have one share the whole room.
template <int FORM, int WARPS, int TILES> struct rn_few_stream<FORM, WARPS, TILES, true> {
    typedef rn_form<FORM> form;
    enum { STAGE_BYTES = form::TILE_BYTES * TILES, COUNT = form::VECTORS + form::EXTRAS };
    const rn_few_work &work;
    rn_few_unit unit; // that is computed
    uint32_t tiles;   // of it
    uint8_t *ring;
    uint32_t barriers; // shared address of the first stage's
    uint32_t stages, stage, phase;
    uint32_t asked; // stages of the first round
    rn_few_widener<FORM, rn_few_has_table(FORM)> by;
    rn_few_wanted<form, TILES> wanted;

    __device__ __forceinline__ rn_few_stream(const rn_few_work &w, uint8_t *shared,
                                             const rn_few_plan &plan)
        : work(w), stage(0), phase(0), asked(0), by(shared, plan) {
        uint32_t units = w.tiles * plan.segments, warp = threadIdx.x / 32;
        stages = units < WARPS ? plan.stages * WARPS / units : plan.stages;
        if (warp >= units) stages = 0;
        ring = shared + warp * stages * STAGE_BYTES;
        barriers = rn_shared_address(shared + plan.barriers) + 8 * warp * stages;
    }

    __device__ __forceinline__ void ask(uint32_t slot) {
        if (wanted.left == 0) return;
        if (rn_few_elect()) {
            uint32_t barrier = barriers + 8 * slot, bytes = wanted.tiles() * form::TILE_BYTES;
            rn_barrier_expect(barrier, bytes);
            rn_few_copy(rn_shared_address(ring + slot * STAGE_BYTES), wanted.from, bytes, barrier);
        }
        wanted.next(work);
        if (wanted.left == 0) rn_few_let_next_begin();
    }
    __device__ __forceinline__ void begin() {
        if (threadIdx.x % 32 == 0) {
            for (uint32_t i = 0; i < stages; i++)
                rn_barrier_begin(barriers + 8 * i, 1);
            rn_barriers_publish();
        }
        __syncwarp();
        unit.begin(work);
        tiles = unit.count(work);
        wanted.unit = unit;
        wanted.find(work);
        while (asked < stages && asked < work.plan->ahead)
            ask(asked++);
        if (stages == 0) rn_few_let_next_begin();
        by.fill();
    }
    __device__ __forceinline__ void fill() {
        while (asked < stages)
            ask(asked++);
    }

    __device__ __forceinline__ void load(const uint8_t *tile, uint4 v[COUNT]) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            v[i] = rn_form_read<form>(tile, i, threadIdx.x % 32);
    }
    // A whole stage: the next tile's loads are on their way while one is multiplied.
    template <class feed>
    __device__ __forceinline__ void take_whole(const uint8_t *at, const feed &x, uint32_t step,
                                               float c[feed::PLANES][4]) {
        uint4 v[2][COUNT];
        load(at, v[0]);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            if (i + 1 < TILES) load(at + (i + 1) * form::TILE_BYTES, v[(i + 1) % 2]);
            rn_few_multiply<form>(by, v[i % 2], x, step + 8 * i, c);
        }
    }
    template <class feed>
    __device__ __forceinline__ void take_part(const uint8_t *at, const feed &x, uint32_t step,
                                              uint32_t count, float c[feed::PLANES][4]) {
#pragma unroll 1
        for (uint32_t i = 0; i < count; i++) {
            uint4 v[COUNT];
            load(at + i * form::TILE_BYTES, v);
            rn_few_multiply<form>(by, v, x, step + 8 * i, c);
        }
    }
    template <class feed>
    __device__ __forceinline__ void take_stage(const feed &x, uint32_t step, uint32_t count,
                                               float c[feed::PLANES][4]) {
        const uint8_t *at = ring + stage * STAGE_BYTES;
        rn_barrier_wait(barriers + 8 * stage, phase);
        if (count >= TILES)
            take_whole(at, x, step, c);
        else
            take_part(at, x, step, count, c);
        __syncwarp(); // all lanes have used it
        ask(stage);
        if (++stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
    template <class feed>
    __device__ __forceinline__ void take_unit(const feed &x, float c[feed::PLANES][4]) {
        if constexpr (TILES == 4)
            take_stage(x, unit.segment * 32, tiles, c);
        else
            for (uint32_t done = 0; done < tiles; done += TILES)
                take_stage(x, unit.segment * 32 + done * 8, tiles - done, c);
    }
    __device__ __forceinline__ void next() {
        unit.next(work);
        tiles = unit.count(work);
    }
};

#endif

// ---- outputs ------------------------------------------------------------------------------------

// A unit's sums to shared memory, (tokens, 16 outputs).
template <int TOKENS, int PLANES>
__device__ __forceinline__ void rn_few_put(float *to, const float c[PLANES][4]) {
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if constexpr (TOKENS == 1) {
        if (t != 0) return;
        to[g] = c[0][0];
        to[g + 8] = c[0][2];
    } else {
        for (int plane = 0; plane < PLANES; plane++)
            for (int i = 0; i < 4; i++)
                to[(plane * 8 + 2 * t + i % 2) * RN_TILE_ROWS + g + i / 2 * 8] = c[plane][i];
    }
}

// Segments in order; four reads are on their way at once.
template <int TOKENS>
__device__ __forceinline__ float rn_few_sum(const float *partial, uint32_t segments) {
    float sum = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < segments; first += 4) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (first + i < segments) v[i] = partial[(first + i) * RN_TILE_ROWS * TOKENS];
        sum = first ? __fadd_rn(sum, v[0]) : v[0];
#pragma unroll
        for (int i = 1; i < 4; i++)
            if (first + i < segments) sum = __fadd_rn(sum, v[i]);
    }
    return sum;
}

// One output of a batch: number `index`, by output within its tile, token, tile. What it needs
// beside its sums is read when it is found, to be there when they are.
template <int TOKENS> struct rn_few_output {
    float *out;     // NULL: there is no such output
    float residual; // where there is none: -0, which changes no bit
    rn_row_finish finish[2];

    __device__ __forceinline__ void find(const rn_few_work &work, uint32_t first_tile,
                                         uint32_t end_tile, uint32_t index) {
        const rn_product_args &a = *work.args;
        uint32_t in_tile = index % RN_TILE_ROWS, token = index / RN_TILE_ROWS % TOKENS;
        uint32_t tile = index / (RN_TILE_ROWS * TOKENS) * (a.gated ? 2 : 1);
        out = nullptr;
        if (first_tile + tile >= end_tile || token >= a.rows) return;
        rn_few_work::place at = work.find(first_tile + tile);
        const rn_product_weight &weight = a.weights[at.which];
        uint32_t row = at.row * RN_TILE_ROWS + in_tile;
        if (row >= weight.rows) return;
        uint64_t element = (uint64_t)token * weight.rows + row;
        out = weight.out + element;
        finish[0] = rn_row_finish_of(weight, row);
        if (a.gated) finish[1] = rn_row_finish_of(a.weights[1], row);
        residual = a.residual && at.which == 0 ? __ldcg(a.residual + element) : -0.0f;
    }
    __device__ __forceinline__ void put(const rn_few_work &work, const float *partial,
                                        uint32_t index) const {
        if (!out) return;
        uint32_t gated = work.args->gated, one = RN_TILE_ROWS * TOKENS; // unit's sums
        const float *sums =
            partial + index % one + index / one * work.plan->segments * one * (1 + gated);
        float y = rn_finish_row(finish[0], rn_few_sum<TOKENS>(sums, work.plan->segments));
        if (gated) {
            sums += work.plan->segments * one;
            float up = rn_finish_row(finish[1], rn_few_sum<TOKENS>(sums, work.plan->segments));
            y = rn_finish_gate(*work.args, y, up);
        }
        *out = __fadd_rn(y, residual);
    }
};

// ---- the kernel ---------------------------------------------------------------------------------

template <int TOKENS, class stream, class feed>
__device__ __forceinline__ void rn_few_run(const rn_few_work &work, stream &weights, const feed &x,
                                           float *partial) {
    uint32_t batch = work.plan->batch_tiles, segments = work.plan->segments;
    for (uint32_t first = 0; first < work.tiles; first += batch) {
        uint32_t end = first + batch < work.tiles ? first + batch : work.tiles;
        rn_few_output<TOKENS> output;
        if (TOKENS == 1) output.find(work, first, end, threadIdx.x);
        while (weights.unit.tile < end) {
            float c[feed::PLANES][4] = {};
            x.await(weights.unit.segment);
            weights.take_unit(x, c);
            uint32_t number = (weights.unit.tile - first) * segments + weights.unit.segment;
            rn_few_put<TOKENS, feed::PLANES>(partial + number * RN_TILE_ROWS * TOKENS, c);
            weights.next();
        }
        __syncthreads();
        if (TOKENS == 1) {
            output.put(work, partial, threadIdx.x);
        } else {
            uint32_t count = (end - first) * RN_TILE_ROWS * TOKENS;
            for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
                output.find(work, first, end, i);
                output.put(work, partial, i);
            }
        }
        if (end < work.tiles) __syncthreads(); // before `partial` is written again
    }
}

// Packed x, in shared memory or read by the L1.
template <int TOKENS, class stream>
__device__ __forceinline__ void rn_few_run_packed(const rn_few_work &work, stream &weights,
                                                  uint8_t *shared) {
    float *partial = (float *)(shared + work.plan->partial);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if (work.plan->is_staged) {
        rn_few_feed_staged<TOKENS> x(shared, *work.plan);
        x.begin(work);
        rn_few_wait_for_previous();
        x.fetch(work);
        weights.fill();
        rn_few_run<TOKENS>(work, weights, x, partial);
        return;
    }
#endif
    rn_few_wait_for_previous();
    weights.fill();
    __threadfence(); // drops what the L1 has of an older x
    __syncthreads(); // a table is there
    rn_few_feed_packed<TOKENS> x = {(const uint32_t *)work.args->packed};
    rn_few_run<TOKENS>(work, weights, x, partial);
}

template <bool BF16, int WARPS, class stream>
__device__ __forceinline__ void rn_few_run_one(const rn_few_work &work, stream &weights,
                                               uint8_t *shared) {
    const rn_product_args &a = *work.args;
    rn_few_row<BF16, 32 *WARPS> row = {(uint16_t *)(shared + work.plan->x)};
    auto fill = [&] { weights.fill(); };
    row.put_zeros(a.cols);
    if (a.norm)
        row.take_normed(a, (float *)(shared + work.plan->norm), fill);
    else
        row.take_plain(a.x, a.cols, fill);
    __syncthreads();
    rn_few_feed_one x = {(const uint4 *)(shared + work.plan->x)};
    rn_few_run<1>(work, weights, x, (float *)(shared + work.plan->partial));
}

// CONFIG: a function that gives the rn_few_config, the one that the host launches by.
template <int FORM, int TOKENS, class CONFIG>
__device__ __forceinline__ void rn_few_product(const rn_few_args &a) {
    extern __shared__ __align__(128) uint8_t shared[];
    typedef rn_form<FORM> form;
    constexpr rn_few_config config = CONFIG::of();
    static_assert(rn_few_tile_bytes(FORM) == form::TILE_BYTES, "two opinions on a tile");
    static_assert(config.tiles <= 4, "a stage is not larger than a unit");
    rn_few_work work = rn_few_work_of(a, TOKENS > 1 && !a.plan.is_staged);
    rn_few_stream<FORM, config.warps, config.tiles, config.stages != 0> weights(work, shared,
                                                                                a.plan);
    weights.begin();
    if constexpr (TOKENS == 1)
        rn_few_run_one<form::BF16, config.warps>(work, weights, shared);
    else
        rn_few_run_packed<TOKENS>(work, weights, shared);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RN_FEW_HAS_RING true
#else
#define RN_FEW_HAS_RING false
#endif

template <int FORM, int TOKENS> struct rn_few_shipped {
    static __host__ __device__ constexpr rn_few_config of() {
        return rn_few_config_of(FORM, TOKENS, RN_FEW_HAS_RING);
    }
};

#define RN_FEW_KERNEL(FORM, name, tokens)                                                          \
    extern "C" __global__ void __launch_bounds__(32 * rn_few_shipped<FORM, tokens>::of().warps,    \
                                                 rn_few_shipped<FORM, tokens>::of().blocks)        \
        rn_product_few_##name##_##tokens(const __grid_constant__ rn_few_args a) {                  \
        rn_few_product<FORM, tokens, rn_few_shipped<FORM, tokens>>(a);                             \
    }
#define RN_FEW_KERNELS(FORM, name)                                                                 \
    RN_FEW_KERNEL(FORM, name, 1)                                                                   \
    RN_FEW_KERNEL(FORM, name, 8)                                                                   \
    RN_FEW_KERNEL(FORM, name, 16)

RN_FEW_KERNELS(RN_TILE_F16, f16)
RN_FEW_KERNELS(RN_TILE_BF16, bf16)
RN_FEW_KERNELS(RN_TILE_Q8, q8)
RN_FEW_KERNELS(RN_TILE_I8, i8)
RN_FEW_KERNELS(RN_TILE_Q4, q4)
RN_FEW_KERNELS(RN_TILE_A4, a4)
RN_FEW_KERNELS(RN_TILE_N4, n4)
RN_FEW_KERNELS(RN_TILE_Q6, q6)
RN_FEW_KERNELS(RN_TILE_A5, a5)
RN_FEW_KERNELS(RN_TILE_I4, i4)
RN_FEW_KERNELS(RN_TILE_F4, f4)
RN_FEW_KERNELS(RN_TILE_Q3, q3)
RN_FEW_KERNELS(RN_TILE_A2, a2)
RN_FEW_KERNELS(RN_TILE_F8, f8)
RN_FEW_KERNELS(RN_TILE_V4, v4)
RN_FEW_KERNELS(RN_TILE_C2, c2)
RN_FEW_KERNELS(RN_TILE_C3, c3)
