// ggml_fit.h — the searches behind ggml's quantisers: for a group of values, the scale (and offset)
// whose rounded multiples come closest.
//
// Eight groups are searched side by side, one a lane: a group's sums are made in the order of its
// elements, which is part of the format (the bytes must be ggml's), so nothing within a group may
// be added in another order, but groups do not know of each other. x[i][g] is element i of group g.
//
// Compiled once for each level of base/cpu.h (ggml_encode*.c); plain loops over lanes, which the
// compiler turns into vectors, and every level gives the same bits.
#ifndef RN_TENSOR_GGML_FIT_H
#define RN_TENSOR_GGML_FIT_H

#include "tensor/small_float.h"

#include <math.h>
#include <stdbool.h>

enum { FIT_LANES = 8, FIT_MOST = 32 };
#define FOR_LANES for (int g = 0; g < FIT_LANES; g++)

// Below this the largest value of a group counts as zero.
#define FIT_NOTHING 1e-15f

typedef struct fit_group {
    float x[FIT_MOST][FIT_LANES], w[FIT_MOST][FIT_LANES]; // values, and how much each matters
    int l[FIT_MOST][FIT_LANES];                           // found: the multiple of each
    float scale[FIT_LANES], offset[FIT_LANES];            // found: x is about scale * l - offset
} fit_group;

// To nearest even by the bits of a sum: for what is out of range (infinity, NaN, above 2^22) this
// is ggml's answer, too, and defined.
static inline int fit_nearest(float value) {
    return (int)(rn_float_bits(value + 12582912.f) & 0x007fffff) - 0x00400000;
}
static inline int fit_clamp(int l, int low, int high) {
    l = l < high ? l : high;
    return l > low ? l : low;
}

// ---- scale and offset ---------------------------------------------------------------------------

// The error of multiples `l` with this scale and lowest value, into `error`.
static inline void fit_offset_error(const fit_group *f, int n, const int (*l)[FIT_LANES],
                                    const float *scale, const float *low, bool absolute,
                                    float *error) {
    FOR_LANES error[g] = 0;
    for (int i = 0; i < n; i++)
        FOR_LANES {
            float diff = scale[g] * (float)l[i][g] + low[g] - f->x[i][g];
            diff = absolute ? fabsf(diff) : diff * diff;
            error[g] += f->w[i][g] * diff;
        }
}

typedef struct fit_offset_sums {
    float w[FIT_LANES], x[FIT_LANES], l[FIT_LANES], l2[FIT_LANES], xl[FIT_LANES];
} fit_offset_sums;

static inline void fit_offset_ends(const fit_group *f, int n, float *low, float *high,
                                   fit_offset_sums *s) {
    FOR_LANES {
        low[g] = high[g] = f->x[0][g];
        s->w[g] = f->w[0][g];
        s->x[g] = s->w[g] * f->x[0][g];
    }
    for (int i = 1; i < n; i++)
        FOR_LANES {
            float x = f->x[i][g], w = f->w[i][g];
            low[g] = x < low[g] ? x : low[g];
            high[g] = x > high[g] ? x : high[g];
            s->w[g] += w;
            s->x[g] += w * x;
        }
    FOR_LANES low[g] = low[g] > 0 ? 0 : low[g];
}

// Multiples for one step width, and their sums.
static inline void fit_offset_round(const fit_group *f, int n, int most, const float *inverse,
                                    const float *low, int (*l)[FIT_LANES], fit_offset_sums *s) {
    FOR_LANES s->l[g] = s->l2[g] = s->xl[g] = 0;
    for (int i = 0; i < n; i++)
        FOR_LANES {
            int k = fit_clamp(fit_nearest(inverse[g] * (f->x[i][g] - low[g])), 0, most);
            float w = f->w[i][g], wl = w * (float)k;
            l[i][g] = k;
            s->l[g] += wl;
            s->l2[g] += wl * (float)k;
            s->xl[g] += wl * f->x[i][g];
        }
}

// x = scale * l - offset with l in [0, most] and offset >= 0: starts from the range of the values,
// then for each of `steps` + 1 other step widths rounds and solves for the best scale and offset of
// these multiples. What improves the error stays.
static inline void fit_offset(fit_group *f, int n, int most, float first, float step, int steps,
                              bool absolute) {
    float low[FIT_LANES], high[FIT_LANES], inverse[FIT_LANES], scale[FIT_LANES], best[FIT_LANES];
    fit_offset_sums s;
    bool flat[FIT_LANES];
    fit_offset_ends(f, n, low, high, &s);
    FOR_LANES {
        flat[g] = high[g] == low[g];
        inverse[g] = (float)most / (high[g] - low[g]);
        scale[g] = 1 / inverse[g];
    }
    fit_offset_round(f, n, most, inverse, low, f->l, &s);
    fit_offset_error(f, n, (const int(*)[FIT_LANES])f->l, scale, low, absolute, best);
    for (int k = 0; k <= steps; k++) {
        int l[FIT_MOST][FIT_LANES], better[FIT_LANES], any = 0;
        float new_scale[FIT_LANES], new_low[FIT_LANES], error[FIT_LANES];
        float width = first + step * (float)k + (float)most;
        FOR_LANES inverse[g] = width / (high[g] - low[g]);
        fit_offset_round(f, n, most, inverse, low, l, &s);
        FOR_LANES {
            float d = s.w[g] * s.l2[g] - s.l[g] * s.l[g];
            new_scale[g] = (s.w[g] * s.xl[g] - s.x[g] * s.l[g]) / d;
            new_low[g] = (s.l2[g] * s.x[g] - s.l[g] * s.xl[g]) / d;
            bool above = new_low[g] > 0;
            new_scale[g] = above ? s.xl[g] / s.l2[g] : new_scale[g];
            new_low[g] = above ? 0 : new_low[g];
            better[g] = d > 0;
        }
        fit_offset_error(f, n, (const int(*)[FIT_LANES])l, new_scale, new_low, absolute, error);
        FOR_LANES {
            better[g] = better[g] && error[g] < best[g];
            any |= better[g];
        }
        if (!any) continue;
        FOR_LANES {
            best[g] = better[g] ? error[g] : best[g];
            scale[g] = better[g] ? new_scale[g] : scale[g];
            low[g] = better[g] ? new_low[g] : low[g];
        }
        for (int i = 0; i < n; i++)
            FOR_LANES f->l[i][g] = better[g] ? l[i][g] : f->l[i][g];
    }
    for (int i = 0; i < n; i++)
        FOR_LANES f->l[i][g] = flat[g] ? 0 : f->l[i][g];
    FOR_LANES {
        f->scale[g] = flat[g] ? 0 : scale[g];
        f->offset[g] = -low[g];
    }
}

// ---- scale alone --------------------------------------------------------------------------------

// The value of the greatest size, with its sign; false where it is too small to count.
static inline void fit_peak(const fit_group *f, int n, float *peak, bool *zero) {
    float size[FIT_LANES];
    FOR_LANES peak[g] = size[g] = 0;
    for (int i = 0; i < n; i++)
        FOR_LANES {
            float x = f->x[i][g], a = fabsf(x);
            peak[g] = a > size[g] ? x : peak[g];
            size[g] = a > size[g] ? a : size[g];
        }
    FOR_LANES zero[g] = size[g] < FIT_NOTHING;
}

static inline void fit_signed_sums(const fit_group *f, int n, int half, const float *inverse,
                                   float *lx, float *l2) {
    FOR_LANES lx[g] = l2[g] = 0;
    for (int i = 0; i < n; i++)
        FOR_LANES {
            float x = f->x[i][g], w = f->w[i][g];
            float l = (float)fit_clamp(fit_nearest(inverse[g] * x), -half, half - 1);
            lx[g] += w * x * l;
            l2[g] += w * l * l;
        }
}

// x = scale * (l - half) with l in [0, 2 half): the value of the greatest size is at the end that
// has no counterpart; then eighteen step widths around that one.
static inline void fit_signed(fit_group *f, int n, int half) {
    float peak[FIT_LANES], inverse[FIT_LANES], kept[FIT_LANES], lx[FIT_LANES], l2[FIT_LANES];
    float scale[FIT_LANES], best[FIT_LANES];
    bool zero[FIT_LANES];
    fit_peak(f, n, peak, zero);
    FOR_LANES kept[g] = (float)-half / peak[g];
    fit_signed_sums(f, n, half, kept, lx, l2);
    FOR_LANES {
        scale[g] = l2[g] != 0 ? lx[g] / l2[g] : 0;
        best[g] = scale[g] * lx[g];
    }
    for (int k = -9; k <= 9; k++) {
        if (k == 0) continue;
        float width = -((float)half + 0.1f * (float)k);
        FOR_LANES inverse[g] = width / peak[g];
        fit_signed_sums(f, n, half, inverse, lx, l2);
        FOR_LANES {
            bool better = l2[g] > 0 && lx[g] * lx[g] > best[g] * l2[g];
            kept[g] = better ? inverse[g] : kept[g];
            scale[g] = better ? lx[g] / l2[g] : scale[g];
            best[g] = better ? scale[g] * lx[g] : best[g];
        }
    }
    for (int i = 0; i < n; i++)
        FOR_LANES {
            int l = fit_clamp(fit_nearest(kept[g] * f->x[i][g]), -half, half - 1) + half;
            f->l[i][g] = zero[g] ? 0 : l;
        }
    FOR_LANES f->scale[g] = zero[g] ? 0 : scale[g];
}

// The same for q3_k without importances: from the first rounding on, single multiples are changed
// while that helps, at most five times through. A group that has settled stays as it is.
static inline void fit_single(fit_group *f, int n, int half) {
    float peak[FIT_LANES], inverse[FIT_LANES], lx[FIT_LANES], l2[FIT_LANES];
    bool zero[FIT_LANES];
    fit_peak(f, n, peak, zero);
    FOR_LANES {
        inverse[g] = (float)-half / peak[g];
        lx[g] = l2[g] = 0;
    }
    for (int i = 0; i < n; i++)
        FOR_LANES {
            float x = f->x[i][g], w = x * x;
            int l = fit_clamp(fit_nearest(inverse[g] * x), -half, half - 1);
            f->l[i][g] = l;
            lx[g] += w * x * (float)l;
            l2[g] += w * (float)l * (float)l;
        }
    for (int pass = 0, changed = 1; pass < 5 && changed; pass++) {
        changed = 0;
        for (int i = 0; i < n; i++)
            FOR_LANES {
                float x = f->x[i][g], w = x * x, l = (float)f->l[i][g];
                float other_lx = lx[g] - w * x * l, other_l2 = l2[g] - w * l * l;
                int k = fit_clamp(fit_nearest(x * other_l2 / other_lx), -half, half - 1);
                bool possible = other_lx > 0 && k != f->l[i][g];
                other_lx += w * x * (float)k;
                other_l2 += w * (float)k * (float)k;
                bool better = possible && other_l2 > 0 &&
                              other_lx * other_lx * l2[g] > lx[g] * lx[g] * other_l2;
                f->l[i][g] = better ? k : f->l[i][g];
                lx[g] = better ? other_lx : lx[g];
                l2[g] = better ? other_l2 : l2[g];
                changed |= better;
            }
    }
    for (int i = 0; i < n; i++)
        FOR_LANES f->l[i][g] = zero[g] ? 0 : f->l[i][g] + half;
    FOR_LANES f->scale[g] = !zero[g] && l2[g] > 0 ? lx[g] / l2[g] : 0;
}

// ---- scales of scales ---------------------------------------------------------------------------

typedef struct fit_sums {
    float lx, l2;
} fit_sums;

static inline float fit_positive_error(const float *x, const float *w, int n, int most,
                                       float inverse) {
    float scale = 1 / inverse, error = 0;
    for (int i = 0; i < n; i++) {
        int l = fit_nearest(inverse * x[i]);
        float diff = x[i] - scale * (float)(l < most ? l : most);
        error += w[i] * diff * diff;
    }
    return error;
}

// One pass over the multiples; whether any was changed.
static inline bool fit_positive_pass(const float *x, const float *w, int n, int most, uint8_t *l,
                                     fit_sums *s) {
    bool changed = false;
    for (int i = 0; i < n; i++) {
        float lx = s->lx - w[i] * x[i] * (float)l[i];
        float l2 = s->l2 - w[i] * (float)l[i] * (float)l[i];
        if (!(lx > 0 && l2 > 0)) continue;
        int k = fit_nearest(x[i] * l2 / lx);
        k = k < most ? k : most;
        if (k == l[i]) continue;
        lx += w[i] * x[i] * (float)k;
        l2 += w[i] * (float)k * (float)k;
        if (!(lx * lx * s->l2 > s->lx * s->lx * l2)) continue;
        l[i] = (uint8_t)k;
        *s = (fit_sums){lx, l2};
        changed = true;
    }
    return changed;
}

// x = scale * l with l in [0, most], of n values with their importances: one group.
static inline float fit_positive(const float *x, const float *w, int n, int most, uint8_t *l) {
    float high = 0, best = 0;
    fit_sums s = {0};
    for (int i = 0; i < n; i++)
        high = high > x[i] ? high : x[i];
    for (int i = 0; i < n; i++)
        l[i] = 0;
    if (high < FIT_NOTHING) return 0;
    float inverse = (float)most / high, scale = 1 / inverse;
    for (int i = 0; i < n; i++) {
        float diff = x[i] - scale * (float)(uint8_t)fit_nearest(inverse * x[i]);
        best += w[i] * diff * diff;
    }
    for (int k = -4; k <= 4; k++) {
        float other = (0.1f * (float)k + (float)most) / high;
        float error = k ? fit_positive_error(x, w, n, most, other) : best;
        if (!(error < best)) continue;
        best = error;
        inverse = other;
    }
    for (int i = 0; i < n; i++) {
        int k = fit_nearest(inverse * x[i]);
        k = k < most ? k : most;
        l[i] = (uint8_t)k;
        s.lx += w[i] * x[i] * (float)k;
        s.l2 += w[i] * (float)k * (float)k;
    }
    for (int pass = 0; pass < 5; pass++)
        if (!fit_positive_pass(x, w, n, most, l, &s)) break;
    return s.l2 > 0 ? s.lx / s.l2 : 0;
}

#endif
