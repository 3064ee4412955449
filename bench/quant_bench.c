// quant_bench.c — how fast one core converts and quantises, in million elements a second, at every
// instruction level.
//
//     quant_bench [SECONDS for a figure]
//
// As `ration convert` works: pieces that fit the caches. "and back" is quantising, restoring and
// adding up the error, which is what convert does with each piece. "from bf16" does that with a
// source far larger than the caches, after widening each piece. The time is the thread's own, and
// the best of five: other programs disturb it less.
#include "base/cpu.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECE = 32768, GROUP = 128, COLS = 4096, PIECES = 1024 };

typedef struct work {
    float *source;        // (PIECES, PIECE)
    uint16_t *brain;      // the same as bf16
    float widened[PIECE]; // a piece of `brain`
    float restored[PIECE];
    uint8_t q[PIECE * 2], packed[PIECE * 2];
    float scale[PIECE], shift[PIECE];
    rn_quant_error error;
} work;

typedef void step(work *w, const float *values, const uint16_t *brain);

static void must(rn_status status) {
    if (status != RN_OK) exit(1);
}

static void add_error(work *w, const float *values) {
    rn_quant_error_add(&w->error, values, w->restored, PIECE);
}

static void quant_int8(work *w, const float *values, const uint16_t *brain) {
    (void)brain;
    rn_quant_int8_rows(values, PIECE / COLS, COLS, (int8_t *)w->q, w->scale);
}
static void dequant_int8(work *w, const float *values, const uint16_t *brain) {
    (void)values, (void)brain;
    rn_dequant_int8_rows((int8_t *)w->q, w->scale, PIECE / COLS, COLS, w->restored);
}
static void quant_int4(work *w, const float *values, const uint16_t *brain) {
    (void)brain;
    rn_quant_int4_groups(values, PIECE / GROUP, GROUP, w->q, w->scale, w->shift);
    rn_quant_int4_pack(w->q, w->q + PIECE / 2, PIECE / 2, w->packed);
}
static void dequant_int4(work *w, const float *values, const uint16_t *brain) {
    (void)values, (void)brain;
    rn_quant_int4_unpack(w->packed, PIECE / 2, w->q, w->q + PIECE / 2);
    rn_dequant_int4_groups(w->q, w->scale, w->shift, PIECE / GROUP, GROUP, w->restored);
}
static void quant_nf4(work *w, const float *values, const uint16_t *brain) {
    (void)brain;
    rn_quant_nf4_blocks(values, PIECE, w->q, w->scale);
}
static void dequant_nf4(work *w, const float *values, const uint16_t *brain) {
    (void)values, (void)brain;
    rn_dequant_nf4_blocks(w->q, w->scale, PIECE, w->restored);
}
static void measure_error(work *w, const float *values, const uint16_t *brain) {
    (void)brain;
    add_error(w, values);
}

#define NARROW(name, dtype)                                                                        \
    static void narrow_##name(work *w, const float *values, const uint16_t *brain) {               \
        (void)brain;                                                                               \
        must(rn_dtype_from_f32(dtype, values, w->q, PIECE));                                       \
    }                                                                                              \
    static void widen_##name(work *w, const float *values, const uint16_t *brain) {                \
        (void)values, (void)brain;                                                                 \
        must(rn_dtype_to_f32(dtype, w->q, w->restored, PIECE));                                    \
    }
NARROW(f16, RN_DTYPE_F16)
NARROW(bf16, RN_DTYPE_BF16)
NARROW(e4m3, RN_DTYPE_F8_E4M3)
NARROW(e5m2, RN_DTYPE_F8_E5M2)
NARROW(q8_0, RN_DTYPE_Q8_0)
NARROW(q4_0, RN_DTYPE_Q4_0)

#define WIDEN(name, dtype)                                                                         \
    static void widen_##name(work *w, const float *values, const uint16_t *brain) {                \
        (void)values, (void)brain;                                                                 \
        must(rn_dtype_to_f32(dtype, w->packed, w->restored, PIECE));                               \
    }
WIDEN(q4_k, RN_DTYPE_Q4_K)
WIDEN(q6_k, RN_DTYPE_Q6_K)

// There, back and the error; and the same after widening the piece from bf16.
#define PIPELINE(name, there, back)                                                                \
    static void name##_and_back(work *w, const float *values, const uint16_t *brain) {             \
        there(w, values, brain);                                                                   \
        back(w, values, brain);                                                                    \
        add_error(w, values);                                                                      \
    }                                                                                              \
    static void name##_from_bf16(work *w, const float *values, const uint16_t *brain) {            \
        (void)values;                                                                              \
        must(rn_dtype_to_f32(RN_DTYPE_BF16, brain, w->widened, PIECE));                            \
        name##_and_back(w, w->widened, brain);                                                     \
    }
PIPELINE(int8, quant_int8, dequant_int8)
PIPELINE(int4, quant_int4, dequant_int4)
PIPELINE(nf4, quant_nf4, dequant_nf4)
PIPELINE(q8_0, narrow_q8_0, widen_q8_0)
PIPELINE(q4_0, narrow_q4_0, widen_q4_0)
PIPELINE(f16, narrow_f16, widen_f16)
PIPELINE(e4m3, narrow_e4m3, widen_e4m3)

static const struct {
    const char *name;
    step *run;
} steps[] = {
    {"f16: narrow", narrow_f16},
    {"f16: widen", widen_f16},
    {"bf16: narrow", narrow_bf16},
    {"bf16: widen", widen_bf16},
    {"e4m3: narrow", narrow_e4m3},
    {"e4m3: widen", widen_e4m3},
    {"e5m2: narrow", narrow_e5m2},
    {"e5m2: widen", widen_e5m2},
    {"int8: quantise", quant_int8},
    {"int8: restore", dequant_int8},
    {"int4: quantise", quant_int4},
    {"int4: restore", dequant_int4},
    {"nf4: quantise", quant_nf4},
    {"nf4: restore", dequant_nf4},
    {"q8_0: quantise", narrow_q8_0},
    {"q8_0: restore", widen_q8_0},
    {"q4_0: quantise", narrow_q4_0},
    {"q4_0: restore", widen_q4_0},
    {"q4_k: restore", widen_q4_k},
    {"q6_k: restore", widen_q6_k},
    {"error", measure_error},
    {"f16: and back", f16_and_back},
    {"e4m3: and back", e4m3_and_back},
    {"int8: and back", int8_and_back},
    {"int4: and back", int4_and_back},
    {"nf4: and back", nf4_and_back},
    {"q8_0: and back", q8_0_and_back},
    {"q4_0: and back", q4_0_and_back},
    {"f16: from bf16", f16_from_bf16},
    {"e4m3: from bf16", e4m3_from_bf16},
    {"int8: from bf16", int8_from_bf16},
    {"int4: from bf16", int4_from_bf16},
    {"nf4: from bf16", nf4_from_bf16},
    {"q8_0: from bf16", q8_0_from_bf16},
    {"q4_0: from bf16", q4_0_from_bf16},
};

// Weights as models have them: a bell curve of small numbers.
static void fill(work *w) {
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < (size_t)PIECES * PIECE; i++) {
        float sum = 0;
        for (int n = 0; n < 4; n++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(state >> 40) * 0x1p-24f - 0.5f;
        }
        w->source[i] = sum * 0.05f;
    }
    must(rn_dtype_from_f32(RN_DTYPE_BF16, w->source, w->brain, (uint64_t)PIECES * PIECE));
}

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double measure(work *w, step *run, size_t pieces, double seconds) {
    double best = 0;
    for (int round = 0; round < 5; round++) {
        double begin = thread_seconds(), passed = 0;
        size_t piece = 0;
        for (; passed < seconds / 5; passed = thread_seconds() - begin)
            for (int n = 0; n < 16; n++, piece++) {
                size_t at = piece % pieces * PIECE;
                run(w, w->source + at, w->brain + at);
            }
        double rate = (double)piece * PIECE / passed * 1e-6;
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 0.5;
    work *w = calloc(1, sizeof *w);
    w->source = malloc((size_t)PIECES * PIECE * sizeof(float));
    w->brain = malloc((size_t)PIECES * PIECE * sizeof(uint16_t));
    fill(w);
    printf("%-18s", "M elements/s");
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++)
        printf(" %10s", rn_cpu_level_name((rn_cpu_level)level));
    printf("\n");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        size_t pieces = strstr(steps[i].name, "from bf16") ? PIECES : 1;
        printf("%-18s", steps[i].name);
        for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
            rn_cpu_level_force((rn_cpu_level)level);
            if ((int)rn_cpu_level_get() == level)
                printf(" %10.0f", measure(w, steps[i].run, pieces, seconds));
            else
                printf(" %10s", "-");
            fflush(stdout);
        }
        printf("\n");
    }
    free(w->source);
    free(w->brain);
    free(w);
}
