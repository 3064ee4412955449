// product_many.cu — products of more than 16 rows by wgmma: y (T, N), N in tiles of 128 or 192
// rows, T in tiles of 32, 64 or 128 tokens. Families and launches: product_many.h; the meaning:
// args.h.
//
// Weights are wgmma's A and come through registers, since most forms must be widened on the way; a
// warp's share of A is just what tiles hold. Activations are B, read from shared memory. A producer
// warp copies both, in bulk, into a ring of stages (64 columns of 16-bit weights, 128 of others);
// warpgroups of 64 rows each take them:
//
//     multiply two steps (16 columns each) | meanwhile: widen the next two | wait for the ones
//     before
//
// At the end of each segment of 512 columns its sums are added to the total. In families SOME the
// blocks of a ring take segments in turn: the total so far comes from the block before into the
// inbox, a place behind the stages, and goes on to the block behind; who has the last segment ends
// the product. A ring goes round as segments are multiplied, so it waits for its first round only.
// In families NARROW, MANY and WIDE two blocks of neighbouring tokens read weights once: each
// copies half of them for both. (Activations could be shared along rows likewise, by clusters of
// four; but only 120 of an H200's 132 multiprocessors can have such clusters, which costs a second
// round where 128 tiles would have made one: 293 instead of 600 TFLOP/s at 4096 x 14336 and 512
// tokens.)
#include "args.h"
#include "bulk.cuh"
#include "forms.cuh"
#include "product_finish.cuh"
#include "product_many.h"
#include "product_put.cuh"
#include "wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- the shape of a kernel ----------------------------------------------------------------------

template <int FORM, int GROUPS, int TOKENS, int CLUSTER_ROWS, int CLUSTER_TOKENS> struct shape_of {
    using form = rn_form<FORM>;
    enum {
        groups = GROUPS, // warpgroups
        tokens = TOKENS,
        cluster_rows = CLUSTER_ROWS,
        cluster_tokens = CLUSTER_TOKENS,
        has_cluster = CLUSTER_ROWS * CLUSTER_TOKENS > 1,
        mates = CLUSTER_ROWS + CLUSTER_TOKENS - 1, // blocks that fill a block's ring, itself too
        is_big = TOKENS == 128,                    // alone on its multiprocessor
        sums = TOKENS / 2,                         // of a thread
        cols = (int)form::TILE_BYTES == 4096 ? 64 : 128, // of a stage
        chunks = cols / RN_PACK_CHUNK,
        pairs = cols / 32, // of steps
        vectors = form::VECTORS * cols / 128,
        segment_stages = RN_PRODUCT_SEGMENT / cols,
        tile_bytes = form::TILE_BYTES * cols / 128, // of a row tile in a stage
        row_tiles = 4 * GROUPS,
        chunk_bytes = TOKENS * RN_PACK_CHUNK * 2,
        weight_bytes = row_tiles * tile_bytes,
        stage_bytes = weight_bytes + chunks * chunk_bytes,
        head_bytes = 256, // barriers: 8 bytes each, full ones and free ones, those of inboxes
        shared_bytes = is_big ? RN_MANY_SHARED : RN_SOME_SHARED,
        inbox_bytes = has_cluster ? 0 : 128 * GROUPS * sums * 4,
        room = shared_bytes - head_bytes,
        stages = room / stage_bytes < 8 ? room / stage_bytes : 8,
        few_room = room - inbox_bytes, // at least, beside an inbox
    };
    // Registers that a thread keeps, or gets: together just what the block had at its beginning,
    // 384 x 80, 384 x 168 or 512 x 128 by the launch bounds. One more, and consumers wait for ever.
    // One warpgroup has enough as it is.
    static constexpr int producer_registers = is_big && GROUPS == 2 ? 40 : 32;
    static constexpr int consumer_registers = !is_big ? 104 : GROUPS == 2 ? 232 : 160;
    static_assert((int)stages >= 3 && (int)few_room >= 2 * (int)stage_bytes &&
                      (int)weight_bytes % 128 == 0,
                  "the ring of stages");
    static_assert((int)sums * 128 * 2 * 4 <= (int)few_room, "gate and up meet where stages were");
};

// A block's work: segments first, first + step, ... of its columns, all of the same rows and
// tokens.
struct rn_work {
    uint32_t first, step, segments; // segments: of all columns
    uint32_t count;                 // stages
    uint32_t stages;                // that are held at once
    uint32_t token;                 // its first
    uint32_t eights;                // of tokens that are there
};

// Where the inbox lies, at the end of shared memory: (sums / 4, threads of all groups, 4) f32.
template <class shape> __device__ __forceinline__ uint32_t find_inbox() {
    uint32_t bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes - shape::inbox_bytes;
}

template <class shape> __device__ __forceinline__ rn_work find_work(const rn_product_args &a) {
    uint32_t all = (a.cols + 127) / 128 * (128 / shape::cols);
    rn_work work = {.first = 0, .step = 1, .count = all, .stages = shape::stages};
    work.segments = (all + shape::segment_stages - 1) / shape::segment_stages;
    if (!shape::has_cluster && gridDim.z > 1) {
        work.first = blockIdx.z, work.step = gridDim.z;
        work.stages = min((find_inbox<shape>() - shape::head_bytes) / shape::stage_bytes, 8u);
        uint32_t mine = (work.segments - work.first + work.step - 1) / work.step;
        bool has_last = work.first + (mine - 1) * work.step + 1 == work.segments;
        work.count = mine * shape::segment_stages -
                     (has_last ? work.segments * shape::segment_stages - all : 0);
    }
    work.token = blockIdx.x * shape::tokens;
    uint32_t tokens = work.token < a.rows ? min(a.rows - work.token, shape::tokens) : 0;
    work.eights = (tokens + 7) / 8;
    return work;
}

// Which of all stages is the block's i-th.
template <class shape>
__device__ __forceinline__ uint32_t stage_of(const rn_work &work, uint32_t i) {
    if constexpr (shape::has_cluster) return i;
    return (work.first + i / shape::segment_stages * work.step) * shape::segment_stages +
           i % shape::segment_stages;
}

// The 64 rows of a warpgroup. Gated: the first has gate's rows, the second the same of up.
template <class shape>
__device__ __forceinline__ rn_rows_found find_rows(const rn_product_args &a, uint32_t group) {
    if (a.gated) return {group, blockIdx.y * RN_MANY_GROUP};
    return rn_rows_find(a, blockIdx.y * shape::groups + group, RN_MANY_GROUP);
}

// ---- barriers: stage i's full one at 16 i, its free one at 16 i + 8; then a warp's inbox's
// -------

__device__ __forceinline__ uint32_t full_barrier(uint32_t head, uint32_t stage) {
    return head + 16 * stage;
}
__device__ __forceinline__ uint32_t free_barrier(uint32_t head, uint32_t stage) {
    return head + 16 * stage + 8;
}

__device__ __forceinline__ uint32_t inbox_barrier(uint32_t head, uint32_t warp) {
    return head + 128 + 8 * warp;
}

template <class shape> __device__ __forceinline__ void begin_barriers(uint32_t head) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < 8; i++) {
            rn_barrier_begin(full_barrier(head, i), 1);
            rn_barrier_begin(free_barrier(head, i), shape::row_tiles * 32 * shape::mates);
        }
        for (int i = 0; !shape::has_cluster && i < shape::row_tiles; i++)
            rn_barrier_begin(inbox_barrier(head, i), 1);
        rn_barriers_publish();
    }
    __syncthreads();
    if (shape::has_cluster || gridDim.z > 1) {
        rn_cluster_arrive();
        rn_cluster_wait();
    }
}

// ---- the producer -------------------------------------------------------------------------------

// Ranks of a cluster's blocks: x (tokens) fastest.
template <class shape> __device__ __forceinline__ uint16_t row_mates_mask(uint32_t y) {
    return (uint16_t)((1 << shape::cluster_tokens) - 1) << (y * shape::cluster_tokens);
}
template <class shape> __device__ __forceinline__ uint16_t token_mates_mask(uint32_t x) {
    uint16_t mask = 0;
    for (int y = 0; y < shape::cluster_rows; y++)
        mask |= 1 << (x + y * shape::cluster_tokens);
    return mask;
}

// What a lane of the producer copies in every stage: one row tile's columns, or a chunk of
// activations, or nothing.
struct rn_lane_copy {
    const uint8_t *source; // of stage 0
    uint64_t step;         // bytes from a stage's to the next
    uint32_t target;       // in a stage
    uint32_t bytes;        // 0: nothing
    uint16_t blocks;       // of the cluster
};

template <class shape>
__device__ __forceinline__ rn_lane_copy weight_copy(const rn_product_args &a, uint32_t lane,
                                                    uint32_t x, uint32_t y, uint32_t *all_bytes) {
    uint32_t tiles = (a.cols + 127) / 128;
    rn_lane_copy copy = {};
    bool alive = false;
    if (lane < shape::row_tiles) {
        rn_rows_found at = find_rows<shape>(a, lane / 4);
        uint32_t row = at.row + lane % 4 * 16;
        alive = row < a.weights[at.which].rows;
        copy.source =
            a.weights[at.which].tiles + (uint64_t)(row / 16) * tiles * shape::form::TILE_BYTES;
    }
    *all_bytes = __popc(__ballot_sync(0xffffffffu, alive)) * shape::tile_bytes;
    copy.step = shape::tile_bytes;
    copy.target = lane * shape::tile_bytes;
    copy.bytes = alive && lane % shape::cluster_tokens == x ? shape::tile_bytes : 0;
    copy.blocks = row_mates_mask<shape>(y);
    return copy;
}

template <class shape>
__device__ __forceinline__ rn_lane_copy token_copy(const rn_product_args &a, const rn_work &work,
                                                   uint32_t lane, uint32_t x, uint32_t y) {
    uint64_t chunk_step = (uint64_t)((a.rows + 7) / 8) * 1024;
    uint32_t begin = work.eights * y / shape::cluster_rows;
    uint32_t end = work.eights * (y + 1) / shape::cluster_rows;
    rn_lane_copy copy = {};
    if (lane >= shape::chunks) return copy;
    copy.source =
        (const uint8_t *)a.packed + lane * chunk_step + (uint64_t)(work.token / 8 + begin) * 1024;
    copy.step = chunk_step * shape::chunks;
    copy.target = shape::weight_bytes + lane * shape::chunk_bytes + begin * 1024;
    copy.bytes = (end - begin) * 1024;
    copy.blocks = token_mates_mask<shape>(x);
    return copy;
}

template <class shape, bool IS_SHARED>
__device__ __forceinline__ void copy_stage(const rn_lane_copy &copy, uint32_t stage, uint32_t slot,
                                           uint32_t head) {
    if (!copy.bytes) return;
    uint32_t target = head + shape::head_bytes + slot * shape::stage_bytes + copy.target;
    const uint8_t *source = copy.source + stage * copy.step;
    if constexpr (IS_SHARED)
        rn_bulk_spread(target, source, copy.bytes, full_barrier(head, slot), copy.blocks);
    else
        rn_bulk_copy(target, source, copy.bytes, full_barrier(head, slot));
}

// One warp. The ring's first weights are asked for before the kernel before has ended: they are
// constant, activations are not.
template <class shape>
__device__ __forceinline__ void produce(const rn_product_args &a, uint32_t head) {
    rn_work work = find_work<shape>(a);
    uint32_t lane = threadIdx.x % 32, bytes;
    uint32_t x = shape::has_cluster ? rn_cluster_x() : 0,
             y = shape::has_cluster ? rn_cluster_y() : 0;
    rn_lane_copy weights = weight_copy<shape>(a, lane, x, y, &bytes);
    rn_lane_copy tokens = token_copy<shape>(a, work, lane, x, y);
    bytes += work.eights * 1024 * shape::chunks;
    uint32_t ahead = min(work.count, work.stages);
    for (uint32_t i = 0; i < ahead; i++) {
        if (lane == 0) rn_barrier_expect(full_barrier(head, i), bytes);
        copy_stage<shape, (shape::cluster_tokens > 1)>(weights, stage_of<shape>(work, i), i, head);
    }
    wait_for_kernel_before();
    rn_bulk_fence();
    for (uint32_t i = 0; i < ahead; i++)
        copy_stage<shape, (shape::cluster_rows > 1)>(tokens, stage_of<shape>(work, i), i, head);
    for (uint32_t i = ahead, slot = 0, parity = 0; i < work.count; i++) {
        uint32_t stage = stage_of<shape>(work, i);
        rn_barrier_wait(free_barrier(head, slot), parity);
        if (lane == 0) rn_barrier_expect(full_barrier(head, slot), bytes);
        copy_stage<shape, (shape::cluster_tokens > 1)>(weights, stage, slot, head);
        copy_stage<shape, (shape::cluster_rows > 1)>(tokens, stage, slot, head);
        if (++slot == work.stages) slot = 0, parity ^= 1;
    }
    __syncwarp();
}

// ---- consumers ----------------------------------------------------------------------------------

// Word i of a vector (a constant once loops are unrolled) is read.
__device__ __forceinline__ void read_word(uint4 &v, int i, const uint8_t *vector) {
    uint32_t word = *(const uint32_t *)(vector + 4 * i);
    (i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w) = word;
}

// The A fragments of steps 2 pair and 2 pair + 1 of a row tile in shared memory. `v` keeps what
// later pairs of the same stage use, too; of scales a pair needs one word.
template <class shape>
__device__ __forceinline__ void widen_pair(const uint8_t *tile, uint32_t lane, int pair,
                                           uint4 (&v)[shape::form::VECTORS + shape::form::EXTRAS],
                                           uint32_t (&fragments)[2][4]) {
    using form = typename shape::form;
#pragma unroll
    for (int i = 0; i < shape::vectors; i++)
        if (pair == (i < form::LOW ? i * (8 / form::LOW) / 2 : 0))
            v[i] = rn_form_read<form>(tile, i, lane);
#pragma unroll
    for (int i = form::VECTORS; i < form::VECTORS + form::EXTRAS; i++)
        if (rn_form_bytes<form>(i) == 16)
            read_word(v[i], pair, tile + rn_form_offset<form>(i, lane));
        else if (pair == 0)
            v[i] = rn_form_read<form>(tile, i, lane);
    form::widen(v, v + form::VECTORS, 2 * pair, fragments[0]);
    form::widen(v, v + form::VECTORS, 2 * pair + 1, fragments[1]);
}

// Where the i-th block of those that fill this one's ring (itself too) has its barriers.
template <class shape> __device__ __forceinline__ uint32_t find_mate(uint32_t head, uint32_t i) {
    if constexpr (!shape::has_cluster) return head;
    uint32_t x = rn_cluster_x(), y = rn_cluster_y();
    uint32_t other = i - shape::cluster_tokens;
    return rn_cluster_map(head, i < shape::cluster_tokens
                                    ? i + y * shape::cluster_tokens
                                    : x + (other < y ? other : other + 1) * shape::cluster_tokens);
}

// The warp has read a stage. Every lane arrives for itself, not one for all: then the memory model
// alone orders its reads before the copy that refills the stage, whatever the lanes do meanwhile.
// (compute-sanitizer's racecheck follows it so, too: it counts an arrival for the arriving thread
// only. Prompts of 64, 128 and 512 tokens, TinyLlama and a 7B, on an H200: 0.985 to 1.010 times as
// fast as with one arrival a warp, medians of five.)
template <class shape>
__device__ __forceinline__ void release(const uint32_t (&mates)[shape::mates], uint32_t slot) {
#pragma unroll
    for (int i = 0; i < shape::mates; i++) {
        if constexpr (shape::has_cluster)
            rn_barrier_arrive_far(free_barrier(mates[i], slot));
        else
            rn_barrier_arrive(free_barrier(mates[i], slot));
    }
}

// The total of the segments before comes into the inbox, each thread's from the same thread of the
// block before, which may write there again only when this thread has handed on what it found: the
// ring is closed. Message i, the first is 0.
template <class shape>
__device__ __forceinline__ void expect_total(uint32_t head, uint32_t warp, uint32_t lane) {
    if (lane == 0) rn_barrier_expect(inbox_barrier(head, warp), 32 * shape::sums * 4);
}

template <class shape>
__device__ __forceinline__ void take_total(const uint8_t *shared, uint32_t head, uint32_t i,
                                           float (&totals)[shape::sums]) {
    const float4 *inbox = (const float4 *)(shared + find_inbox<shape>()) + threadIdx.x;
    rn_barrier_wait_far(inbox_barrier(head, threadIdx.x / 32), i % 2);
#pragma unroll
    for (int e = 0; e < shape::sums; e += 4) {
        float4 v = inbox[e / 4 * 128 * shape::groups];
        totals[e] = v.x, totals[e + 1] = v.y, totals[e + 2] = v.z, totals[e + 3] = v.w;
    }
}

template <class shape>
__device__ __forceinline__ void hand_on(uint32_t next, const float (&totals)[shape::sums]) {
    uint32_t inbox = next + find_inbox<shape>() + 16 * threadIdx.x;
#pragma unroll
    for (int e = 0; e < shape::sums; e += 4)
        rn_hand_over(inbox + e / 4 * 16 * 128 * shape::groups, &totals[e],
                     inbox_barrier(next, threadIdx.x / 32));
}

template <class shape>
__device__ __forceinline__ void consume(const rn_product_args &a, uint8_t *shared, uint32_t head) {
    using form = typename shape::form;
    rn_work work = find_work<shape>(a);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    rn_rows_found at = find_rows<shape>(a, group);
    uint32_t row = at.row + 16 * warp;
    uint32_t mates[shape::mates];
#pragma unroll
    for (int i = 0; i < shape::mates; i++)
        mates[i] = find_mate<shape>(head, i);
    const uint8_t *stages = shared + shape::head_bytes; // (work.stages, stage_bytes)
    const uint8_t *my_tile = stages + (4 * group + warp) * shape::tile_bytes;
    uint64_t my_tokens = rn_wgmma_place(head + shape::head_bytes + shape::weight_bytes);

    float totals[shape::sums];
    uint32_t fragments[2][2][4];
    uint4 v[form::VECTORS + form::EXTRAS];
#pragma unroll
    for (int i = 0; i < shape::sums; i++)
        totals[i] = -0.0f;                     // plus anything is just that
    uint32_t slot = 0, parity = 0, before = 8; // none
    uint32_t segment = work.first, messages = 0, next_block = head;
    bool in_ring = !shape::has_cluster && work.step > 1;
    if (in_ring) {
        next_block = rn_cluster_map(head, (work.first + 1) % work.step);
        expect_total<shape>(head, threadIdx.x / 32, lane);
    }
    rn_barrier_wait(full_barrier(head, 0), 0);
    widen_pair<shape>(my_tile, lane, 0, v, fragments[0]);
    for (uint32_t done = 0; done < work.count;) {
        uint32_t end = min(done + shape::segment_stages, work.count);
        float sums[shape::sums] = {};
        for (; done < end; done++) {
            uint64_t b = my_tokens + (slot * shape::stage_bytes >> 4);
            uint32_t next = slot + 1 == work.stages ? 0 : slot + 1;
#pragma unroll
            for (int pair = 0; pair < shape::pairs; pair++) {
                uint64_t here = b + ((pair / 2 * shape::chunk_bytes + pair % 2 * 512) >> 4);
                rn_wgmma_begin();
                rn_wgmma<form::BF16>(sums, fragments[pair % 2][0], here);
                rn_wgmma<form::BF16>(sums, fragments[pair % 2][1], here + (256 >> 4));
                rn_wgmma_commit();
                rn_wgmma_wait<1>(); // the fragments of the pair before are free
                if (pair == 0 && before < 8) release<shape>(mates, before);
                if (pair + 1 < shape::pairs) {
                    widen_pair<shape>(my_tile + slot * shape::stage_bytes, lane, pair + 1, v,
                                      fragments[(pair + 1) % 2]);
                } else if (done + 1 < work.count) {
                    parity ^= next == 0;
                    rn_barrier_wait(full_barrier(head, next), parity);
                    widen_pair<shape>(my_tile + next * shape::stage_bytes, lane, 0, v,
                                      fragments[0]);
                }
            }
            before = slot;
            slot = next;
        }
        rn_wgmma_wait<0>();
        rn_wgmma_hold(sums);
        if (in_ring && segment > 0) {
            take_total<shape>(shared, head, messages++, totals);
            if (segment + work.step < work.segments)
                expect_total<shape>(head, threadIdx.x / 32, lane);
        }
#pragma unroll
        for (int e = 0; e < shape::sums; e++)
            totals[e] = __fadd_rn(totals[e], sums[e]);
        if (in_ring && segment + 1 < work.segments) hand_on<shape>(next_block, totals);
        segment += work.step;
    }
    if constexpr (shape::has_cluster) rn_cluster_arrive();
    wait_for_kernel_before();                                       // the residual is its work
    if (in_ring && segment - work.step + 1 < work.segments) return; // others end it
    if (shape::groups == 2 && a.gated)
        put_gated(a, group, row, work.token, lane, (float *)(shared + shape::head_bytes), totals);
    else
        put_totals(a, at.which, row, work.token, lane, totals);
}

// ---- kernels ------------------------------------------------------------------------------------

template <class shape> __device__ __forceinline__ void multiply_many(const rn_product_args &a) {
    extern __shared__ __align__(128) uint8_t shared[];
    uint32_t head = rn_shared_address(shared);
    begin_barriers<shape>(head);
    asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x >= 128 * shape::groups) {
        if constexpr (shape::groups > 1)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(shape::producer_registers));
        if (threadIdx.x < 128 * shape::groups + 32) produce<shape>(a, head);
        if constexpr (shape::has_cluster) rn_cluster_arrive();
    } else {
        if constexpr (shape::groups > 1)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(shape::consumer_registers));
        consume<shape>(a, shared, head);
    }
    // Nobody leaves while others of the cluster may still speak to its barriers.
    if constexpr (shape::has_cluster) rn_cluster_wait();
}

#define RN_MANY_BODY(...) multiply_many<shape_of<__VA_ARGS__>>(a)
#else
#define RN_MANY_BODY(...)
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define RN_CLUSTER
#else
#define RN_CLUSTER __cluster_dims__(RN_MANY_CLUSTER, 1, 1)
#endif

// Grid: blocks along tokens, along rows, parts along segments: rn_many_pick.
#define RN_PRODUCT_KERNELS(form, FORM)                                                             \
    extern "C" __global__ void __launch_bounds__(384, 2)                                           \
        rn_product_some_32_##form(const __grid_constant__ rn_product_args a) {                     \
        RN_MANY_BODY(RN_TILE_##FORM, 2, 32, 1, 1);                                                 \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(384, 2)                                           \
        rn_product_some_64_##form(const __grid_constant__ rn_product_args a) {                     \
        RN_MANY_BODY(RN_TILE_##FORM, 2, 64, 1, 1);                                                 \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(384, 1)                                           \
        rn_product_some_128_##form(const __grid_constant__ rn_product_args a) {                    \
        RN_MANY_BODY(RN_TILE_##FORM, 2, 128, 1, 1);                                                \
    }                                                                                              \
    extern "C" __global__ void RN_CLUSTER __launch_bounds__(256, 1)                                \
        rn_product_narrow_##form(const __grid_constant__ rn_product_args a) {                      \
        RN_MANY_BODY(RN_TILE_##FORM, 1, 128, 1, RN_MANY_CLUSTER);                                  \
    }                                                                                              \
    extern "C" __global__ void RN_CLUSTER __launch_bounds__(384, 1)                                \
        rn_product_many_##form(const __grid_constant__ rn_product_args a) {                        \
        RN_MANY_BODY(RN_TILE_##FORM, 2, 128, 1, RN_MANY_CLUSTER);                                  \
    }                                                                                              \
    extern "C" __global__ void RN_CLUSTER __launch_bounds__(512, 1)                                \
        rn_product_wide_##form(const __grid_constant__ rn_product_args a) {                        \
        RN_MANY_BODY(RN_TILE_##FORM, 3, 128, 1, RN_MANY_CLUSTER);                                  \
    }

RN_PRODUCT_KERNELS(f16, F16)
RN_PRODUCT_KERNELS(bf16, BF16)
RN_PRODUCT_KERNELS(q8, Q8)
RN_PRODUCT_KERNELS(i8, I8)
RN_PRODUCT_KERNELS(q4, Q4)
RN_PRODUCT_KERNELS(a4, A4)
RN_PRODUCT_KERNELS(n4, N4)
RN_PRODUCT_KERNELS(q6, Q6)
RN_PRODUCT_KERNELS(a5, A5)
RN_PRODUCT_KERNELS(i4, I4)
RN_PRODUCT_KERNELS(f4, F4)
RN_PRODUCT_KERNELS(q3, Q3)
RN_PRODUCT_KERNELS(a2, A2)
RN_PRODUCT_KERNELS(f8, F8)
RN_PRODUCT_KERNELS(v4, V4)
RN_PRODUCT_KERNELS(c2, C2)
RN_PRODUCT_KERNELS(c3, C3)
