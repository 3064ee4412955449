// blocks8.h — a block of 256 elements through one step of an 8-bit optimiser, as bitsandbytes
// computes it, all in f32:
//
//     AdamW   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g g
//             w += pace m / (sqrt(v) + floor)      w *= keep      the moments before they are coded
//     Lion    w *= keep      w -= rate sign(beta1 m + (1 - beta1) g)      m = beta2 m + (1 - beta2)
//     g
//
// Where a gradient is not finite, the moments become 0 and the weight stays. Included by the ops'
// reference loops and by each instruction level of the CPU's kernels: the bits are the same.
#ifndef RN_GRAPH_BLOCKS8_H
#define RN_GRAPH_BLOCKS8_H

#include "graph/op/update.h"
#include "graph/state_codes.h"

#include <math.h>

typedef struct rn_step8 {
    float beta1, take1, beta2, take2;
    float pace, floor; // AdamW: -rate c2 / c1 and eps c2, with c1 = 1 - beta1^t, c2 = sqrt(1 -
                       // beta2^t); Lion: pace is the rate
    float keep;        // 1 - rate decay
    const rn_state_steps *steps; // codes are looked up there; NULL: searched for
} rn_step8;

// Inputs `codes` and `scales` are a state of the weight; their new values are the outputs before
// them.
static inline rn_status rn_shape_codes(rn_shaping *s, uint32_t codes, uint32_t scales) {
    uint64_t n = rn_shape_elements(s->in[0].shape, 1);
    uint64_t blocks = (n + RN_STATE_BLOCK - 1) / RN_STATE_BLOCK;
    RN_TRY(rn_shape_want(s, codes, RN_DTYPE_U8));
    RN_TRY(rn_shape_want(s, scales, RN_DTYPE_F32));
    if (!rn_shape_equal(s->in[codes].shape, s->in[0].shape))
        return rn_shape_fail(s, "codes have the shape of the weight");
    if (!rn_shape_equal(s->in[scales].shape, RN_SHAPE(blocks)))
        return rn_shape_fail(s, "there is one scale for %d elements", RN_STATE_BLOCK);
    s->out[codes - 1].shape = s->in[codes].shape;
    s->out[codes - 1].dtype = RN_DTYPE_U8;
    s->out[scales - 1].shape = s->in[scales].shape;
    return RN_OK;
}

static inline rn_step8 rn_adamw8_step(const rn_adamw_attrs *a, const rn_scalar *scalars) {
    double rate = scalars[a->rate].f64, step = scalars[a->step].f64;
    float c1 = (float)(1 - pow(a->beta1, step)), c2 = (float)sqrt(1 - pow(a->beta2, step));
    float beta1 = (float)a->beta1, beta2 = (float)a->beta2;
    return (rn_step8){.beta1 = beta1,
                      .take1 = 1 - beta1,
                      .beta2 = beta2,
                      .take2 = 1 - beta2,
                      .pace = -(float)rate * c2 / c1,
                      .floor = c2 * (float)a->eps,
                      .keep = 1 - (float)rate * (float)a->weight_decay};
}

static inline rn_step8 rn_lion8_step(const rn_lion_attrs *a, const rn_scalar *scalars) {
    double rate = scalars[a->rate].f64;
    float beta1 = (float)a->beta1, beta2 = (float)a->beta2;
    return (rn_step8){.beta1 = beta1,
                      .take1 = 1 - beta1,
                      .beta2 = beta2,
                      .take2 = 1 - beta2,
                      .pace = (float)rate,
                      .keep = 1 - (float)rate * (float)a->weight_decay};
}

static inline float rn_largest8(const float *x, uint32_t n) {
    float most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

// |x| / magnitude as bits. Of a NaN, which nobody reads, those of 1.
static inline uint32_t rn_share8(float x, float magnitude) {
    rn_float_bits share = {.value = fabsf(x) / magnitude};
    return share.bits < 0x3F800000u ? share.bits : 0x3F800000u;
}

// The codes of x (n) by the tables, where the magnitude is a normal number.
static inline void rn_encode8(const float *x, float magnitude, uint32_t n, bool has_sign,
                              const rn_state_steps *steps, uint8_t *codes) {
    bool normal = magnitude >= 0x1p-126f && magnitude < INFINITY;
    if (!steps || !normal) {
        for (uint32_t i = 0; i < n; i++)
            codes[i] = has_sign ? rn_state_code_signed(x[i], magnitude)
                                : rn_state_code_unsigned(x[i], magnitude);
    } else if (has_sign) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t code = rn_state_look(steps->with_sign, rn_share8(x[i], magnitude)) >> 16;
            codes[i] = (uint8_t)rn_state_mirror(code, __builtin_signbit(x[i]));
        }
    } else {
        for (uint32_t i = 0; i < n; i++)
            codes[i] = (uint8_t)(rn_state_look(steps->without, rn_share8(x[i], magnitude)) >> 16);
    }
}

// w (n), g (n), codes (n), one scale each; n is at most RN_STATE_BLOCK.
static inline void rn_adamw8_block(float *w, const float *g, uint8_t *m_codes, float *m_scale,
                                   uint8_t *v_codes, float *v_scale, uint32_t n,
                                   const rn_step8 *s) {
    float m[RN_STATE_BLOCK], v[RN_STATE_BLOCK];
    for (uint32_t i = 0; i < n; i++) {
        bool finite = fabsf(g[i]) < INFINITY;
        float old_m = rn_state_signed[m_codes[i]] * *m_scale;
        float old_v = rn_state_unsigned[v_codes[i]] * *v_scale;
        m[i] = finite ? old_m * s->beta1 + s->take1 * g[i] : 0;
        v[i] = finite ? old_v * s->beta2 + s->take2 * g[i] * g[i] : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        float new_w = (w[i] + s->pace * (m[i] / (sqrtf(v[i]) + s->floor))) * s->keep;
        w[i] = fabsf(g[i]) < INFINITY ? new_w : w[i];
    }
    *m_scale = rn_largest8(m, n);
    *v_scale = rn_largest8(v, n);
    rn_encode8(m, *m_scale, n, true, s->steps, m_codes);
    rn_encode8(v, *v_scale, n, false, s->steps, v_codes);
}

static inline void rn_lion8_block(float *w, const float *g, uint8_t *m_codes, float *m_scale,
                                  uint32_t n, const rn_step8 *s) {
    float m[RN_STATE_BLOCK];
    for (uint32_t i = 0; i < n; i++) {
        bool finite = fabsf(g[i]) < INFINITY;
        float old = rn_state_signed[m_codes[i]] * *m_scale;
        float mixed = old * s->beta1 + s->take1 * g[i];
        float sign = mixed > 0 ? s->pace : mixed < 0 ? -s->pace : 0;
        m[i] = finite ? old * s->beta2 + s->take2 * g[i] : 0;
        w[i] = finite ? w[i] * s->keep - sign : w[i];
    }
    *m_scale = rn_largest8(m, n);
    rn_encode8(m, *m_scale, n, true, s->steps, m_codes);
}

#endif
