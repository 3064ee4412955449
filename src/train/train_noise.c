// train_noise.c — see train_noise.h.
#include "train/train_noise.h"

#include "graph/philox.h"

#include <math.h>

enum { STREAM_TIME = 11, STREAM_NOISE = 12, STREAM_OFFSET = 13 };

static void fill_alphas(rn_betas betas, double first, double last, rn_train_noise *out) {
    double product = 1;
    for (int t = 0; t < RN_NOISE_STEPS; t++) {
        double share = (double)t / (RN_NOISE_STEPS - 1), beta = first + share * (last - first);
        double root = sqrt(first) + share * (sqrt(last) - sqrt(first));
        if (betas == RN_BETAS_SCALED_LINEAR) beta = root * root;
        if (betas == RN_BETAS_COSINE) {
            const double half_pi = 1.5707963267948966;
            double low = cos(((double)t / RN_NOISE_STEPS + 0.008) / 1.008 * half_pi);
            double high = cos(((double)(t + 1) / RN_NOISE_STEPS + 0.008) / 1.008 * half_pi);
            beta = fmin(1 - high * high / (low * low), 0.999);
        }
        out->alphas[t] = product *= 1 - beta;
    }
}

rn_status rn_train_noise_init(const rn_schedule_config *schedule, rn_train_noise *out) {
    double first = schedule->beta_start > 0 ? schedule->beta_start : 0.00085;
    double last = schedule->beta_end > 0 ? schedule->beta_end : 0.012;
    *out = (rn_train_noise){0};
    if (schedule->train_steps && schedule->train_steps != RN_NOISE_STEPS)
        return rn_fail(RN_UNSUPPORTED, "num_train_timesteps %u, and 1000 are built",
                       schedule->train_steps);
    if (schedule->scheduler == RN_SCHEDULER_FLOW) {
        out->prediction = RN_PREDICT_FLOW;
        return RN_OK;
    }
    if (schedule->prediction == RN_PREDICTS_SAMPLE)
        return rn_fail(RN_UNSUPPORTED, "training of a denoiser that predicts samples is not built");
    if (!(last >= first && last < 1))
        return rn_fail(RN_CORRUPT, "the scheduler's betas go from %g to %g", first, last);
    out->prediction = schedule->prediction == RN_PREDICTS_V ? RN_PREDICT_V : RN_PREDICT_EPSILON;
    fill_alphas(schedule->betas, first, last, out);
    if (schedule->zero_snr)
        rn_rescale_alphas(out->alphas, RN_NOISE_STEPS, out->prediction == RN_PREDICT_V);
    return RN_OK;
}

// Min-SNR: samples with little noise, which are easy and many, count less.
static double weight_of(const rn_train_noise *noise, double alpha) {
    double snr = alpha / (1 - alpha), capped = snr < noise->min_snr ? snr : noise->min_snr;
    if (!(noise->min_snr > 0)) return 1;
    return noise->prediction == RN_PREDICT_V ? capped / (snr + 1) : capped / snr;
}

rn_noisy rn_train_noise_add(const rn_train_noise *noise, uint64_t seed, uint64_t number,
                            const float *latent, uint64_t pixels, uint32_t channels,
                            float *out_noisy, float *out_target) {
    double data, spread, weight = 1; // x_t = data x0 + spread e
    rn_noisy out = {0};
    if (noise->prediction == RN_PREDICT_FLOW) {
        double s = rn_philox_unit(rn_philox_word(seed, STREAM_TIME, number));
        if (!noise->uniform)
            s = 1 / (1 + exp(-(double)rn_philox_normal(seed, STREAM_TIME, number)));
        data = 1 - s;
        spread = s;
        out.time = (float)(RN_NOISE_STEPS * s);
    } else {
        uint32_t t =
            (uint32_t)(((uint64_t)rn_philox_word(seed, STREAM_TIME, number) * RN_NOISE_STEPS) >>
                       32);
        data = sqrt(noise->alphas[t]);
        spread = sqrt(1 - noise->alphas[t]);
        weight = weight_of(noise, noise->alphas[t]);
        out.time = (float)t;
    }
    out.weight = (float)sqrt(weight);
    for (uint64_t i = 0; i < pixels * channels; i++) {
        double e = rn_philox_normal(seed, STREAM_NOISE, number * pixels * channels + i),
               x = latent[i];
        if (noise->offset > 0)
            e += noise->offset *
                 rn_philox_normal(seed, STREAM_OFFSET, number * channels + i % channels);
        double target = noise->prediction == RN_PREDICT_EPSILON ? e
                        : noise->prediction == RN_PREDICT_V     ? data * e - spread * x
                                                                : e - x;
        out_noisy[i] = (float)(data * x + spread * e);
        out_target[i] = (float)(target * (double)out.weight);
    }
    return out;
}
