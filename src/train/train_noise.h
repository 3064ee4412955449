// train_noise.h — the training side of diffusion: how noisy a sample is made, what the network
// should say about it, and how much its error counts.
//
//     epsilon, v   x_t = sqrt(a) x0 + sqrt(1 - a) e, a = alphas[t]; target e, or sqrt(a) e -
//                  sqrt(1 - a) x0
//     flow         x_t = (1 - s) x0 + s e; target e - x0; t = 1000 s
//
// All random numbers are functions of (seed, sample's number in the training): a run that goes on
// draws what one without a stop would have.
#ifndef RN_TRAIN_TRAIN_NOISE_H
#define RN_TRAIN_TRAIN_NOISE_H

#include "diffuse/schedule.h"

enum { RN_NOISE_STEPS = 1000 };

typedef enum rn_train_prediction {
    RN_PREDICT_EPSILON,
    RN_PREDICT_V,
    RN_PREDICT_FLOW
} rn_train_prediction;

typedef struct rn_train_noise {
    rn_train_prediction prediction;
    double alphas[RN_NOISE_STEPS]; // cumulative; not of flow
    double min_snr;                // gamma; 0: all samples count alike
    double offset;                 // of noise that a whole channel shares
    bool uniform;                  // flow: s is uniform, not logit-normal
} rn_train_noise;

// As the model's scheduler says: its betas and what the denoiser predicts. RN_UNSUPPORTED names
// what is not built.
RN_MUST_USE rn_status rn_train_noise_init(const rn_schedule_config *schedule, rn_train_noise *out);

typedef struct rn_noisy {
    float time;   // as the network is told it: 0 to 1000
    float weight; // the square root of what its squared error counts
} rn_noisy;
// One sample: latent (pixels, channels) becomes `out_noisy` and `out_target`, the target already
// times the weight. `number` counts the samples of the training.
rn_noisy rn_train_noise_add(const rn_train_noise *noise, uint64_t seed, uint64_t number,
                            const float *latent, uint64_t pixels, uint32_t channels,
                            float *out_noisy, float *out_target);

#endif
