// product_bench.c — how fast products with packed weights are, beside what the machine can do.
//
//     product_bench [THREADS [ROWS COLS [DTYPE]]]
//     product_bench costs
//
// Three limits are measured first: reading 1 GiB, multiply-adds of f32 and of bytes in registers
// only. Then for each dtype: bytes a weight; packing from file bytes in pieces of 512 KiB, one
// core; one row and eight rows of x (weights from memory: enough matrices that no cache holds them)
// in GB/s of weights; and 512 rows in G operations/s (a multiply-add is two). Percentages are of
// the limit that applies. Where a product rounds activations the rates come again with activations
// as they are. The best of several rounds: other programs disturb it less.
//
// `costs` prints the rows of backend/cpu/cost.c for this level: one thread, weights in the cache.
#include "backend/cpu/packed.h"
#include "backend/cpu/row_product.h"
#include "base/cpu.h"
#include "graph/quantized_product.h"
#include "tensor/panels.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 5, PIECE = 512 << 10, FEW_ROWS = 8, MANY_ROWS = 512 };

static rn_workers *workers;
static size_t threads;
static double bandwidth, f32_peak, byte_peak; // G/s, all threads

// With one thread its own time: other programs disturb it less.
static double seconds(void) {
    struct timespec now;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *get(size_t bytes) {
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) exit(1);
    madvise(block, bytes, MADV_HUGEPAGE);
    memset(block, 1, bytes);
    return block;
}

// ---- limits -------------------------------------------------------------------------------------

static atomic_ullong sink;

// A thread's share, as eight streams.
static void read_share(void *arg, size_t index) {
    size_t share = ((size_t)1 << 30) / threads / 8 / 64 * 64;
    const uint64_t *from = (const uint64_t *)arg + index * share;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < share / 8; i += 8)
        for (int stream = 0; stream < 8; stream++)
            for (int j = 0; j < 8; j++)
                sum[j] ^= from[(size_t)stream * (share / 8) + i + (size_t)j];
    for (int j = 0; j < 8; j++)
        sink += sum[j];
}

enum { SPINS = 3000000, CHAINS = 16 };

#if defined(__x86_64__)
// Sixteen independent sums, enough to hide latency.
#define SPIN(instruction)                                                                          \
    __asm__ volatile(".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n" instruction                 \
                     " %%zmm30, %%zmm31, %%zmm\\i\n.endr" ::                                       \
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

static void clear_factors(void) {
    __asm__ volatile("vpxord %zmm30, %zmm30, %zmm30\nvpxord %zmm31, %zmm31, %zmm31");
}

static void spin_f32(void *unused, size_t index) {
    (void)unused, (void)index;
    clear_factors();
    for (int i = 0; i < SPINS; i++)
        SPIN("vfmadd231ps");
}

static void spin_bytes(void *unused, size_t index) {
    (void)unused, (void)index;
    clear_factors();
    for (int i = 0; i < SPINS; i++)
        SPIN("vpdpbusd");
}
#endif

static double best_seconds(rn_task task, void *arg) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        rn_workers_run(workers, threads, task, arg);
        double passed = seconds() - begin;
        best = passed < best ? passed : best;
    }
    return best;
}

static void measure_limits(void) {
    void *memory = get((size_t)1 << 30);
    bandwidth = (double)(1 << 30) / best_seconds(read_share, memory) * 1e-9;
    munmap(memory, (size_t)1 << 30);
#if defined(__x86_64__)
    double spins = (double)SPINS * CHAINS * (double)threads * 1e-9;
    if (rn_cpu_level_get() == RN_CPU_AVX512) f32_peak = spins * 32 / best_seconds(spin_f32, NULL);
    if (rn_cpu_has_vnni()) byte_peak = spins * 128 / best_seconds(spin_bytes, NULL);
#endif
    printf("%s%s, %zu threads: reading %.1f GB/s, f32 %.0f GFLOP/s, bytes %.0f GOP/s\n",
           rn_cpu_level_name(rn_cpu_level_get()), rn_cpu_has_vnni() ? " vnni" : "", threads,
           bandwidth, f32_peak, byte_peak);
}

// ---- a dtype ------------------------------------------------------------------------------------

typedef struct weight {
    rn_dtype dtype;
    uint64_t rows, cols;
    rn_plain_components parts;
    uint8_t *plain;
    bool by_rows; // codebook kinds and the like: a product reads them as files have them
    uint64_t packed_bytes;
    uint8_t *packed; // (copies, packed_bytes)
    size_t copies;
} weight;

// One or two f16 scales of a block; mxfp4's and nvfp4's are bytes.
static void put_scales(rn_dtype dtype, uint16_t half, uint8_t *block) {
    uint64_t at = 0;
    bool two = false;
    switch (dtype) {
    case RN_DTYPE_Q4_1:
    case RN_DTYPE_Q5_1:
    case RN_DTYPE_Q4_K:
    case RN_DTYPE_Q5_K:
        two = true;
        break;
    case RN_DTYPE_Q2_K:
        at = 80, two = true;
        break;
    case RN_DTYPE_Q3_K:
        at = 108;
        break;
    case RN_DTYPE_Q6_K:
        at = 208;
        break;
    case RN_DTYPE_TQ1_0:
        at = 52;
        break;
    case RN_DTYPE_TQ2_0:
        at = 64;
        break;
    case RN_DTYPE_MXFP4:
        block[0] = 120;
        return;
    case RN_DTYPE_NVFP4:
        memset(block, 0x30, 4);
        return;
    case RN_DTYPE_IQ1_M: // four bits of its scale in each of four words
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
        return;
    case RN_DTYPE_U4_B32: // f32
    case RN_DTYPE_FP4_B64:
        memcpy(block, &(float){0.01f}, 4);
        return;
    default:
        break;
    }
    memcpy(block + at, &half, 2);
    if (two) memcpy(block + at + 2, &half, 2);
}

// Small numbers everywhere: random nibbles, but f16 scales near 2^-6.
static void fill_plain(weight *w) {
    uint64_t state = 88172645463325252u;
    const rn_dtype_info *info = rn_dtype_get(w->dtype);
    for (uint64_t i = 0; i < w->parts.total_bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        w->plain[i] = (uint8_t)(state >> 56);
    }
    for (int part = RN_COMPONENT_SCALE; part < RN_COMPONENT_COUNT; part++)
        for (uint64_t i = 0; i < w->parts.bytes[part] / 4; i++)
            ((float *)(void *)(w->plain + w->parts.offset[part]))[i] = 0.01f;
    uint16_t half = w->dtype == RN_DTYPE_BF16 ? 0x3c80 : 0x2400;
    bool halves = w->dtype == RN_DTYPE_F16 || w->dtype == RN_DTYPE_BF16;
    if (halves || info->block_elements >= 32)
        for (uint64_t at = 0; at < w->parts.bytes[0]; at += info->block_bytes)
            put_scales(w->dtype, half, w->plain + at);
    if (w->dtype == RN_DTYPE_F32)
        for (uint64_t i = 0; i < w->parts.bytes[0] / 4; i++)
            ((float *)(void *)w->plain)[i] = (float)(i % 17) * 0.01f;
}

static bool find_bytes(weight *w) {
    w->by_rows = rn_row_kind(w->dtype);
    if (!rn_plain_components_of(w->dtype, w->rows, w->cols, &w->parts)) return false;
    w->packed_bytes = w->parts.total_bytes;
    return w->by_rows || rn_panels_bytes(w->dtype, w->rows, w->cols, &w->packed_bytes);
}

static void pack(const weight *w, uint8_t *target) {
    rn_packer packer;
    if (w->by_rows) {
        memcpy(target, w->plain, w->packed_bytes);
        return;
    }
    if (rn_packer_begin(&packer, w->dtype, w->rows, w->cols, target) != RN_OK) exit(1);
    for (int part = 0; part < RN_COMPONENT_COUNT; part++)
        for (uint64_t at = 0, take; at < w->parts.bytes[part]; at += take) {
            take = w->parts.bytes[part] - at < PIECE ? w->parts.bytes[part] - at : PIECE;
            if (rn_packer_take(&packer, (rn_component)part, at,
                               w->plain + w->parts.offset[part] + at, take) != RN_OK)
                exit(1);
        }
}

static double pack_rate(const weight *w) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        pack(w, w->packed);
        double passed = seconds() - begin;
        best = passed < best ? passed : best;
    }
    return (double)w->parts.total_bytes / best * 1e-9;
}

// Seconds a product of m rows; every call takes the next copy of the weight.
static double product_seconds(const weight *w, uint64_t m, size_t calls, bool plain_x) {
    float *x = get(m * w->cols * sizeof(float)), *y = get(m * w->rows * sizeof(float));
    for (uint64_t i = 0; i < m * w->cols; i++)
        x[i] = (float)(i % 101) * 0.02f - 1;
    rn_tensor in[3] = {{x, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(m, w->cols)},
                       {w->packed, w->dtype, w->by_rows ? RN_LAYOUT_PLAIN : RN_LAYOUT_PANELS,
                        RN_SHAPE(w->rows, w->cols)},
                       {0}};
    rn_tensor out = {y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(m, w->rows)};
    rn_matmul_attrs attrs = {.unquantised_activations = plain_x};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1,
                    .workers = workers,
                    .threads = (uint32_t)threads};
    call.workspace_bytes =
        w->by_rows ? rn_cpu_row_matmul_workspace(&call) : rn_cpu_packed_matmul_workspace(&call);
    call.workspace = get(call.workspace_bytes + 64);
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = seconds();
        for (size_t i = 0; i < calls; i++) {
            in[1].data = w->packed + i % w->copies * w->packed_bytes;
            if ((w->by_rows ? rn_cpu_row_matmul : rn_cpu_packed_matmul)(&call) != RN_OK) exit(1);
        }
        double passed = (seconds() - begin) / (double)calls;
        best = passed < best ? passed : best;
    }
    munmap(x, m * w->cols * sizeof(float));
    munmap(y, m * w->rows * sizeof(float));
    munmap(call.workspace, call.workspace_bytes + 64);
    return best;
}

static void print_rates(const weight *w, double peak, bool plain_x) {
    double bytes = (double)w->packed_bytes * 1e-9;
    double one = bytes / product_seconds(w, 1, w->copies, plain_x);
    double few = bytes / product_seconds(w, FEW_ROWS, w->copies, plain_x);
    double operations = 2e-9 * MANY_ROWS * (double)(w->rows * w->cols);
    double many = operations / product_seconds(w, MANY_ROWS, 1, plain_x);
    printf(" %11.1f %6.0f%% %6.1f %6.0f%% %11.0f %6.0f%%", one, 100 * one / bandwidth, few,
           100 * few / bandwidth, many, peak > 0 ? 100 * many / peak : 0);
}

static void measure(rn_dtype dtype, uint64_t rows, uint64_t cols) {
    weight w = {.dtype = dtype, .rows = rows, .cols = cols};
    if (!find_bytes(&w)) return;
    w.plain = get(w.parts.total_bytes);
    fill_plain(&w);
    w.copies = (size_t)(((uint64_t)512 << 20) / w.packed_bytes + 1);
    w.packed = get(w.copies * w.packed_bytes);
    double packing = pack_rate(&w);
    for (size_t i = 1; i < w.copies; i++)
        memcpy(w.packed + i * w.packed_bytes, w.packed, w.packed_bytes);
    printf("%-8s %9.4f %11.1f", rn_dtype_get(dtype)->name,
           (double)w.packed_bytes / (double)(rows * cols), packing);
    bool rounds = rn_product_is_quantized(dtype);
    print_rates(&w, rounds ? byte_peak : f32_peak, false);
    if (rounds && !w.by_rows) print_rates(&w, f32_peak, true);
    puts("");
    fflush(stdout);
    munmap(w.plain, w.parts.total_bytes);
    munmap(w.packed, w.copies * w.packed_bytes);
}

// ---- what plans count with ----------------------------------------------------------------------

// Seconds a weight of a product of m rows, none of it from memory.
static double weight_seconds(rn_dtype dtype, uint64_t m) {
    weight w = {.dtype = dtype, .rows = 512, .cols = 1024, .copies = 1};
    if (!find_bytes(&w)) exit(1);
    w.plain = get(w.parts.total_bytes);
    w.packed = get(w.packed_bytes);
    fill_plain(&w);
    pack(&w, w.packed);
    double best = product_seconds(&w, m, 1 + 256 / m, false);
    munmap(w.plain, w.parts.total_bytes);
    munmap(w.packed, w.packed_bytes);
    return best / (double)(w.rows * w.cols);
}

static void print_costs(void) {
    double f32 = weight_seconds(RN_DTYPE_F32, 512) / 512;
    double byte = weight_seconds(RN_DTYPE_Q8_0, 512) / 512;
    printf("%s: f32 %.2f ps, q8_0 %.2f ps a weight and row\n",
           rn_cpu_level_name(rn_cpu_level_get()), f32 * 1e12, byte * 1e12);
    for (int d = 0; d < RN_DTYPE_COUNT; d++) {
        uint64_t bytes;
        if (!rn_row_kind((rn_dtype)d) && !rn_panels_bytes((rn_dtype)d, 512, 1024, &bytes)) continue;
        double unit = rn_product_is_quantized((rn_dtype)d) ? byte : f32;
        double one = weight_seconds((rn_dtype)d, 1), few = weight_seconds((rn_dtype)d, FEW_ROWS);
        double many = weight_seconds((rn_dtype)d, MANY_ROWS);
        printf("    {%s, %.1f, %.1f, %.2f},\n", rn_dtype_get((rn_dtype)d)->name, one / unit,
               few / unit, (many - few) / (MANY_ROWS - FEW_ROWS) / unit);
    }
}

static void measure_all(uint64_t rows, uint64_t cols, const char *only) {
    static const rn_dtype dtypes[] = {
        RN_DTYPE_F32,    RN_DTYPE_F16,     RN_DTYPE_BF16,   RN_DTYPE_F8_E4M3, RN_DTYPE_INT8,
        RN_DTYPE_Q8_0,   RN_DTYPE_Q6_K,    RN_DTYPE_Q5_K,   RN_DTYPE_Q4_K,    RN_DTYPE_Q3_K,
        RN_DTYPE_Q2_K,   RN_DTYPE_Q5_1,    RN_DTYPE_Q5_0,   RN_DTYPE_Q4_1,    RN_DTYPE_Q4_0,
        RN_DTYPE_IQ4_NL, RN_DTYPE_MXFP4,   RN_DTYPE_NVFP4,  RN_DTYPE_IQ4_XS,  RN_DTYPE_TQ2_0,
        RN_DTYPE_TQ1_0,  RN_DTYPE_Q2_0,    RN_DTYPE_Q1_0,   RN_DTYPE_INT4,    RN_DTYPE_NF4,
        RN_DTYPE_IQ3_S,  RN_DTYPE_IQ3_XXS, RN_DTYPE_IQ2_S,  RN_DTYPE_IQ2_XS,  RN_DTYPE_IQ2_XXS,
        RN_DTYPE_IQ1_M,  RN_DTYPE_IQ1_S,   RN_DTYPE_U4_B32, RN_DTYPE_FP4_B64};
    printf("\n(%llu, %llu)\n%-8s %9s %11s %11s %7s %6s %7s %11s %7s, activations as they are\n",
           (unsigned long long)rows, (unsigned long long)cols, "", "B/weight", "pack GB/s",
           "1 row GB/s", "", "8", "", "512 rows G/s", "");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!only || strcmp(only, rn_dtype_get(dtypes[i])->name) == 0)
            measure(dtypes[i], rows, cols);
}

int main(int argc, char **argv) {
    bool costs = argc > 1 && strcmp(argv[1], "costs") == 0;
    threads = costs ? 1 : argc > 1 ? (size_t)atoi(argv[1]) : 2;
    if (rn_workers_create(threads, &rn_system_allocator, &workers) != RN_OK) return 1;
    if (!costs) measure_limits();
    if (costs) {
        print_costs();
    } else if (argc > 3) {
        measure_all((uint64_t)atoll(argv[2]), (uint64_t)atoll(argv[3]), argc > 4 ? argv[4] : NULL);
    } else {
        measure_all(4096, 4096, NULL);
        measure_all(4096, 11008, NULL);
    }
    rn_workers_destroy(workers);
}
