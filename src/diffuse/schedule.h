// schedule.h — noise schedulers: at which times a denoiser is asked, and what becomes of a sample
// by its answer. Each gives the numbers of diffusers' scheduler of that name.
//
//     rn_schedule s;
//     RN_TRY(rn_schedule_make(&config, RN_SCHEDULER_EULER, 20, 1, 0, &s));
//     x = noise * s.initial;
//     for (i = s.first; i < s.steps; i++) {
//         rn_schedule_input(&s, i, x, input, n);        // what the denoiser is given
//         ... output = denoiser(input, s.times[i]) ...
//         rn_schedule_step(&s, i, output, noise, x, n); // noise: fresh, where s.needs_noise
//     }
//
// Samples move as f32; tables are double. A schedule keeps what the last step left for the next.
#ifndef RN_DIFFUSE_SCHEDULE_H
#define RN_DIFFUSE_SCHEDULE_H

#include <ration/diffuse.h>

enum { RN_SCHEDULE_TRAIN_MOST = 4096, RN_SCHEDULE_STEPS_MOST = 1000 };

// How noise is added in training.
typedef enum rn_betas { RN_BETAS_SCALED_LINEAR, RN_BETAS_LINEAR, RN_BETAS_COSINE } rn_betas;
// Which times a few steps take of them.
typedef enum rn_spacing { RN_SPACING_LEADING, RN_SPACING_LINSPACE, RN_SPACING_TRAILING } rn_spacing;
// What the denoiser says.
typedef enum rn_prediction {
    RN_PREDICTS_NOISE,
    RN_PREDICTS_V, // sqrt(a) noise - sqrt(1 - a) x0
    RN_PREDICTS_SAMPLE
} rn_prediction;

// Cumulative alphas of a training whose last step is nothing but noise; without `to_zero` that one
// is 2^-24, since noise cannot be divided by 0.
void rn_rescale_alphas(double *alphas /* (count) */, uint32_t count, bool to_zero);

// "epsilon", "v_prediction", "sample".
RN_MUST_USE rn_status rn_prediction_parse(rn_str text, rn_prediction *out);

typedef struct rn_schedule_config {
    rn_scheduler scheduler; // what the model's files advise
    uint32_t train_steps;   // 0: 1000
    rn_betas betas;
    double beta_start, beta_end; // 0: 0.00085, 0.012
    rn_spacing spacing;
    uint32_t offset; // of leading times
    rn_prediction prediction;
    bool alpha_to_one;     // DDIM: behind the last step lies no noise at all
    bool clip;             // DDIM: samples are within -1 and 1
    uint32_t lcm_steps;    // of which an LCM takes some; 0: 50
    bool zero_snr;         // the last training step is nothing but noise
    double shift;          // flow; 0: 1
    bool dynamic_shifting; // flow: the shift grows with the picture
    double base_shift, max_shift;
    uint32_t base_tokens, max_tokens;
} rn_schedule_config;
// From a component's scheduler_config.json; its class decides `scheduler`.
struct rn_fields;
RN_MUST_USE rn_status rn_schedule_config_read(const struct rn_fields *fields,
                                              rn_schedule_config *out);

typedef struct rn_schedule {
    rn_scheduler kind;
    rn_prediction prediction;
    rn_spacing spacing;
    bool clip, needs_noise;
    uint32_t steps, first;                     // first: where a sample that is not all noise begins
    float initial;                             // what the first noise is multiplied by
    double times[RN_SCHEDULE_STEPS_MOST];      // what the denoiser is told
    double sigmas[RN_SCHEDULE_STEPS_MOST + 1]; // noise over signal; flow: the share of noise
    double alphas[RN_SCHEDULE_STEPS_MOST + 1]; // DDIM, LCM: the signal's share of the variance
    float *last;                               // (n) DPM++: x0 of the step before; the caller's
    bool has_last;
} rn_schedule;

// strength: of noise, 0 to 1; below 1 the first steps are left out. tokens: of the picture, for
// flow with dynamic shifting.
RN_MUST_USE rn_status rn_schedule_make(const rn_schedule_config *config, rn_scheduler kind,
                                       uint32_t steps, double strength, uint32_t tokens,
                                       rn_schedule *out);
void rn_schedule_input(const rn_schedule *s, uint32_t step, const float *x, float *out, uint64_t n);
// What x would be at step `step` with this noise: where image-to-image begins, and what inpainting
// keeps.
void rn_schedule_add_noise(const rn_schedule *s, uint32_t step, const float *x, const float *noise,
                           float *out, uint64_t n);
// x is moved to step + 1. DPM++ needs s->last.
void rn_schedule_step(rn_schedule *s, uint32_t step, const float *output, const float *noise,
                      float *x, uint64_t n);
// What the output says that x would be without noise.
void rn_schedule_clean(const rn_schedule *s, uint32_t step, const float *output, const float *x,
                       float *out, uint64_t n);
const char *rn_scheduler_name(rn_scheduler scheduler);

#endif
