// model_bench.h — a recipe run by the eager executor or by a plan, timed as a whole and op by op.
// For the benchmarks of models.
#ifndef RN_BENCH_MODEL_BENCH_H
#define RN_BENCH_MODEL_BENCH_H

#include <ration/session.h>

#include "backend/cpu/cpu.h"
#include "device/device.h"
#include "peak.h"
#include "runtime/eager.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1.0 / (1 << 20))

static uint32_t threads = 2;

// With one thread its own time: other programs disturb it less.
static inline double step_seconds(void) {
    struct timespec now;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void must(rn_status status) {
    if (status == RN_OK) return;
    fprintf(stderr, "%s: %s\n", rn_status_name(status), rn_last_error()->message);
    exit(1);
}

// ---- time by op ---------------------------------------------------------------------------------

enum { MAX_KINDS = 128 };

// A row of the table: an op, or a product of one shape.
typedef struct kind {
    char name[64];
    uint32_t calls;
    double seconds, best; // of this run; the least of all runs
    double flops;
} kind;

static kind kinds[MAX_KINDS];
static uint32_t kind_count;
static rn_kernel timed_kernels[RN_OP_COUNT];

static inline void name_kind(const rn_call *call, char *out, size_t bytes) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint32_t rank = y->shape.rank;
    if (call->op == RN_OP_CONV2D ||
        ((call->op == RN_OP_CONV || call->op == RN_OP_CONV_CLAMP) && rank == 4)) {
        const uint64_t *in = x->shape.dims, *w = call->inputs[1].shape.dims;
        snprintf(out, bytes, "%s %llux%llu %llu/%llu>%llu %llu>%llu", rn_op_name(call->op),
                 (unsigned long long)w[2], (unsigned long long)w[3], (unsigned long long)in[3],
                 (unsigned long long)(in[3] / w[1]), (unsigned long long)w[0],
                 (unsigned long long)in[2], (unsigned long long)y->shape.dims[2]);
        return;
    }
    if (call->op != RN_OP_MATMUL || x->shape.rank != 2) {
        snprintf(out, bytes, "%s", rn_op_name(call->op));
        return;
    }
    const rn_matmul_attrs *a = call->attrs;
    snprintf(out, bytes, "matmul %llux%llux%llu %c%c", (unsigned long long)y->shape.dims[rank - 2],
             (unsigned long long)y->shape.dims[rank - 1],
             (unsigned long long)x->shape.dims[a->transpose_x ? 0 : 1], a->transpose_x ? 't' : 'n',
             a->transpose_w ? 'n' : 't');
}

static inline kind *find_kind(const rn_call *call) {
    char name[64];
    name_kind(call, name, sizeof name);
    for (uint32_t i = 0; i < kind_count; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    kind *k = &kinds[kind_count < MAX_KINDS - 1 ? kind_count++ : kind_count];
    memcpy(k->name, name, sizeof name);
    k->best = 1e9;
    return k;
}

static inline rn_status run_timed(const rn_call *call) {
    double begin = step_seconds();
    rn_status status = rn_cpu_kernels[call->op].run(call);
    double passed = step_seconds() - begin;
    kind *k = find_kind(call);
    rn_cost cost = {0};
    rn_op_get(call->op)->cost(call, &cost);
    k->seconds += passed;
    k->flops += cost.flops;
    k->calls++;
    return status;
}

static inline const rn_kernel *time_kernels(void) {
    memcpy(timed_kernels, rn_cpu_kernels, sizeof timed_kernels);
    for (int op = 0; op < RN_OP_COUNT; op++)
        if (timed_kernels[op].run) timed_kernels[op].run = run_timed;
    return timed_kernels;
}

static inline void begin_kinds(void) {
    for (uint32_t i = 0; i < kind_count; i++)
        kinds[i].calls = 0, kinds[i].seconds = 0, kinds[i].flops = 0;
}

static inline void end_kinds(void) {
    for (uint32_t i = 0; i < kind_count; i++)
        if (kinds[i].seconds < kinds[i].best) kinds[i].best = kinds[i].seconds;
}

static inline int slower_first(const void *a, const void *b) {
    double x = ((const kind *)a)->best, y = ((const kind *)b)->best;
    return x < y ? 1 : x > y ? -1 : 0;
}

static inline void print_kinds(void) {
    double all = 0;
    qsort(kinds, kind_count, sizeof *kinds, slower_first);
    for (uint32_t i = 0; i < kind_count; i++)
        all += kinds[i].best;
    printf("  %-28s %6s %9s %6s %8s\n", "op", "calls", "ms", "", "GFLOP/s");
    for (uint32_t i = 0; i < kind_count; i++)
        printf("  %-28s %6u %9.3f %5.1f%% %8.1f\n", kinds[i].name, kinds[i].calls,
               kinds[i].best * 1e3, 100 * kinds[i].best / all,
               kinds[i].flops / kinds[i].best * 1e-9);
    printf("  %-28s %6s %9.3f\n", "sum", "", all * 1e3);
}

// ---- weights ------------------------------------------------------------------------------------

// One block of small numbers is every weight's; scales of norms are 1.
typedef struct numbers {
    float *small, *ones;
    uint64_t bytes; // of each
} numbers;

static inline numbers make_numbers(uint64_t bytes) {
    numbers n = {malloc(bytes), malloc(bytes), bytes};
    if (!n.small || !n.ones) exit(1);
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i < bytes / sizeof(float); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        n.small[i] = ((float)(state >> 40) * 0x1p-24f - 0.5f) * 0.07f;
        n.ones[i] = 1;
    }
    return n;
}

static inline const void *find_numbers(void *self, const char *name, rn_dtype dtype,
                                       uint64_t bytes) {
    const numbers *n = self;
    (void)dtype;
    if (bytes > n->bytes) return NULL;
    bool one = (strstr(name, "norm") && strstr(name, "weight")) || strstr(name, "running_var") ||
               strstr(name, "bn1.weight") || strstr(name, "bn2.weight") ||
               strstr(name, "downsample.1.weight");
    return one ? n->ones : n->small;
}

// ---- runs ---------------------------------------------------------------------------------------

static inline rn_eager *open_eager(const rn_graph *graph, const rn_kernel *kernels,
                                   rn_workers *workers, uint64_t rows, numbers *from) {
    rn_eager *eager = NULL;
    must(rn_eager_create(graph, kernels, workers, rows, &eager));
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        uint64_t bytes = rn_shape_elements(info->shape, 1) * sizeof(float);
        if (info->role == RN_ROLE_WEIGHT)
            must(rn_eager_set(eager, v, find_numbers(from, info->name, info->dtype, bytes), bytes));
    }
    return eager;
}

static inline void set_eager_scalar(rn_eager *eager, const rn_graph *graph, const char *name,
                                    double value) {
    for (uint32_t i = 0; i < rn_graph_scalar_count(graph); i++)
        if (strcmp(rn_graph_scalar_name(graph, i), name) == 0)
            rn_eager_set_scalar(eager, i, (rn_scalar){.f64 = value});
}

typedef struct planned {
    rn_device *device;
    rn_plan *plan;
    rn_session *session;
} planned;

// budget_bytes 0: none.
static inline planned open_planned(const rn_recipe *recipe, const rn_kernel *kernels,
                                   uint64_t budget_bytes, numbers *from) {
    planned p = {0};
    rn_weight_source weights = {.self = from, .find = find_numbers};
    must(rn_cpu_device_create(threads, &p.device));
    p.device->caps.kernels = kernels;
    must(rn_plan_make(recipe, &p.device->caps, &(rn_plan_options){.budget_bytes = budget_bytes},
                      &p.plan));
    must(
        rn_session_create(p.plan, &weights, &(rn_session_options){.device = p.device}, &p.session));
    return p;
}

static inline void close_planned(planned *p) {
    rn_session_destroy(p->session);
    rn_plan_destroy(p->plan);
    rn_device_destroy(p->device);
}

// ---- the process --------------------------------------------------------------------------------

static inline double resident_mib(void) {
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2) exit(1);
    fclose(f);
    return (double)resident * 4096 * MIB;
}

static inline double resident_peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

#endif
