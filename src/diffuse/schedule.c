// schedule.c — see schedule.h. The formulas are those of the papers, in the order of diffusers'
// operations.
#include "diffuse/schedule.h"

#include "base/str.h"
#include "model/text/fields.h"

#include <math.h>
#include <string.h>

#define LEAST_ALPHA 0x1p-24 // of a training whose last step is nothing but noise, as diffusers

static const char *const scheduler_names[RN_SCHEDULERS] = {
    [RN_SCHEDULER_MODEL] = "model",       [RN_SCHEDULER_EULER] = "euler",
    [RN_SCHEDULER_EULER_A] = "euler_a",   [RN_SCHEDULER_DDIM] = "ddim",
    [RN_SCHEDULER_DPMPP_2M] = "dpmpp_2m", [RN_SCHEDULER_DPMPP_2M_KARRAS] = "dpmpp_2m_karras",
    [RN_SCHEDULER_LCM] = "lcm",           [RN_SCHEDULER_FLOW] = "flow"};

const char *rn_scheduler_name(rn_scheduler scheduler) {
    return scheduler < RN_SCHEDULERS ? scheduler_names[scheduler] : "?";
}

rn_status rn_scheduler_parse(rn_str text, rn_scheduler *out) {
    for (rn_scheduler i = RN_SCHEDULER_MODEL; i < RN_SCHEDULERS; i++)
        if (rn_str_equal(text, rn_str_from(scheduler_names[i]))) {
            *out = i;
            return RN_OK;
        }
    return rn_hint(rn_fail(RN_INVALID, "there is no scheduler '%.*s'", RN_STR_ARG(text)),
                   "euler, euler_a, ddim, dpmpp_2m, dpmpp_2m_karras, lcm or flow");
}

// ---- tables -------------------------------------------------------------------------------------

typedef struct training {
    uint32_t count;
    double alphas[RN_SCHEDULE_TRAIN_MOST]; // products of 1 - beta, in f32 as torch has them
    double sigmas[RN_SCHEDULE_TRAIN_MOST];
} training;

static float beta_at(const rn_schedule_config *c, uint32_t i, uint32_t count) {
    float start = (float)(c->beta_start > 0 ? c->beta_start : 0.00085);
    float end = (float)(c->beta_end > 0 ? c->beta_end : 0.012);
    float share = count > 1 ? (float)i / (float)(count - 1) : 0;
    if (c->betas == RN_BETAS_LINEAR) return start + (end - start) * share;
    if (c->betas == RN_BETAS_COSINE) {
        double from = cos(((double)i / count + 0.008) / 1.008 * M_PI / 2);
        double to = cos(((double)(i + 1) / count + 0.008) / 1.008 * M_PI / 2);
        return (float)fmin(1 - to * to / (from * from), 0.999);
    }
    float root = sqrtf(start) + (sqrtf(end) - sqrtf(start)) * share;
    return root * root;
}

void rn_rescale_alphas(double *alphas, uint32_t count, bool to_zero) {
    double first = sqrt(alphas[0]), last = sqrt(alphas[count - 1]);
    for (uint32_t i = 0; i < count; i++) {
        double root = (sqrt(alphas[i]) - last) * first / (first - last);
        alphas[i] = fmax(root * root, to_zero ? 0 : LEAST_ALPHA);
    }
}

static void fill_training(const rn_schedule_config *c, training *t) {
    float product = 1;
    for (uint32_t i = 0; i < t->count; i++) {
        product *= 1 - beta_at(c, i, t->count);
        t->alphas[i] = (double)product;
    }
    if (c->zero_snr) rn_rescale_alphas(t->alphas, t->count, c->prediction == RN_PREDICTS_V);
    for (uint32_t i = 0; i < t->count; i++)
        t->sigmas[i] = sqrt((1 - t->alphas[i]) / fmax(t->alphas[i], LEAST_ALPHA));
}

static double interpolate(const double *table, uint32_t count, double at) {
    if (at <= 0) return table[0];
    if (at >= count - 1) return table[count - 1];
    uint32_t low = (uint32_t)at;
    return table[low] + (table[low + 1] - table[low]) * (at - low);
}

// The time whose sigma it is, between the training's, on a logarithmic scale.
static double time_of(const training *t, double sigma) {
    double log_sigma = log(fmax(sigma, 1e-10));
    uint32_t low = 0;
    while (low + 2 < t->count && log(t->sigmas[low + 1]) <= log_sigma)
        low++;
    double from = log(t->sigmas[low]), to = log(t->sigmas[low + 1]);
    double share = (from - log_sigma) / (from - to);
    return low + fmin(fmax(share, 0), 1);
}

// numpy's and torch's round: half to even.
static double round_even(double x) {
    return nearbyint(x);
}

static void space_times(const rn_schedule_config *c, rn_schedule *s, uint32_t train,
                        bool one_more) {
    uint32_t n = s->steps, count = n + one_more;
    for (uint32_t i = 0; i < n; i++) {
        double back = count - 1 - i; // from the end
        switch (c->spacing) {
        case RN_SPACING_LINSPACE:
            s->times[i] = count > 1 ? (double)(train - 1) * back / (count - 1) : 0;
            if (one_more || s->kind == RN_SCHEDULER_DDIM) s->times[i] = round_even(s->times[i]);
            break;
        case RN_SPACING_TRAILING:
            s->times[i] = round_even(train - i * ((double)train / n)) - 1;
            break;
        case RN_SPACING_LEADING:
            s->times[i] = back * (train / count) + c->offset;
            break;
        }
    }
}

// ---- kinds --------------------------------------------------------------------------------------

static void make_sigmas(const rn_schedule_config *c, const training *t, rn_schedule *s) {
    bool dpm = s->kind == RN_SCHEDULER_DPMPP_2M || s->kind == RN_SCHEDULER_DPMPP_2M_KARRAS;
    space_times(c, s, t->count, dpm && c->spacing != RN_SPACING_TRAILING);
    for (uint32_t i = 0; i < s->steps; i++)
        s->sigmas[i] = (double)(float)interpolate(t->sigmas, t->count, s->times[i]);
    if (s->kind == RN_SCHEDULER_DPMPP_2M_KARRAS) {
        double low = pow(t->sigmas[0], 1.0 / 7), high = pow(t->sigmas[t->count - 1], 1.0 / 7);
        for (uint32_t i = 0; i < s->steps; i++) {
            double share = s->steps > 1 ? (double)i / (s->steps - 1) : 0;
            double sigma = pow(high + share * (low - high), 7);
            s->times[i] = round_even(time_of(t, sigma));
            s->sigmas[i] = (double)(float)sigma;
        }
    }
    s->sigmas[s->steps] = 0;
    if (dpm) return;
    double most = s->sigmas[0];
    s->initial = (float)(c->spacing == RN_SPACING_LEADING ? sqrt(most * most + 1) : most);
}

static void make_alphas(const rn_schedule_config *c, const training *t, rn_schedule *s) {
    space_times(c, s, t->count, false);
    for (uint32_t i = 0; i < s->steps; i++) {
        double before = s->times[i] - t->count / s->steps;
        s->alphas[i] = t->alphas[(uint32_t)fmin(fmax(s->times[i], 0), t->count - 1)];
        // The last step leads to before the first training step.
        double next = c->alpha_to_one ? 1 : t->alphas[0];
        if (i + 1 < s->steps) continue;
        s->alphas[s->steps] = before >= 0 ? t->alphas[(uint32_t)before] : next;
    }
}

static void make_lcm(const rn_schedule_config *c, const training *t, rn_schedule *s) {
    uint32_t origin = c->lcm_steps ? c->lcm_steps : 50, each = t->count / origin;
    for (uint32_t i = 0; i < s->steps; i++) {
        uint32_t index = (uint32_t)floor((double)i * origin / s->steps);
        s->times[i] = (double)(origin - index) * each - 1;
        s->alphas[i] = t->alphas[(uint32_t)s->times[i]];
    }
    s->needs_noise = s->steps > 1;
}

static void make_flow(const rn_schedule_config *c, uint32_t tokens, rn_schedule *s) {
    double train = c->train_steps ? c->train_steps : 1000, shift = c->shift > 0 ? c->shift : 1;
    if (c->dynamic_shifting) {
        double slope = (c->max_shift - c->base_shift) / ((double)c->max_tokens - c->base_tokens);
        shift = exp(slope * tokens + c->base_shift - slope * c->base_tokens);
    }
    for (uint32_t i = 0; i < s->steps; i++) {
        double sigma = 1 - (1 - 1.0 / s->steps) * (s->steps > 1 ? (double)i / (s->steps - 1) : 0);
        sigma = shift * sigma / (1 + (shift - 1) * sigma);
        s->sigmas[i] = (double)(float)sigma;
        s->times[i] = (double)(float)(s->sigmas[i] * train);
    }
    s->sigmas[s->steps] = 0;
}

rn_status rn_schedule_make(const rn_schedule_config *config, rn_scheduler kind, uint32_t steps,
                           double strength, uint32_t tokens, rn_schedule *out) {
    rn_schedule *s = out;
    training t = {.count = config->train_steps ? config->train_steps : 1000};
    memset(s, 0, sizeof *s);
    if (kind == RN_SCHEDULER_MODEL) kind = config->scheduler;
    bool flow = config->scheduler == RN_SCHEDULER_FLOW;
    if (flow != (kind == RN_SCHEDULER_FLOW))
        return rn_hint(rn_fail(RN_INVALID, "the scheduler %s does not suit this model",
                               rn_scheduler_name(kind)),
                       flow ? "it was trained for flow" : "flow is for models like Flux");
    if (t.count > RN_SCHEDULE_TRAIN_MOST)
        return rn_fail(RN_UNSUPPORTED, "a training of %u steps of noise is too fine", t.count);
    uint32_t most = kind == RN_SCHEDULER_LCM ? (config->lcm_steps ? config->lcm_steps : 50)
                                             : RN_SCHEDULE_STEPS_MOST;
    if (steps == 0 || steps > most || (kind != RN_SCHEDULER_FLOW && steps >= t.count))
        return rn_fail(RN_INVALID, "%u steps are none that %s can take (1 to %u)", steps,
                       rn_scheduler_name(kind), most);
    if (!(strength > 0 && strength <= 1))
        return rn_fail(RN_INVALID, "a strength of %g is not above 0 and at most 1", strength);
    s->kind = kind;
    s->prediction = config->prediction;
    s->spacing = config->spacing;
    s->clip = config->clip;
    s->steps = steps;
    s->initial = 1;
    fill_training(config, &t);
    if (kind == RN_SCHEDULER_FLOW)
        make_flow(config, tokens, s);
    else if (kind == RN_SCHEDULER_DDIM)
        make_alphas(config, &t, s);
    else if (kind == RN_SCHEDULER_LCM)
        make_lcm(config, &t, s);
    else
        make_sigmas(config, &t, s);
    if (kind == RN_SCHEDULER_EULER_A) s->needs_noise = true;
    uint32_t taken = (uint32_t)fmin((double)steps * strength, steps);
    if (taken == 0)
        return rn_hint(rn_fail(RN_INVALID, "%u steps with a strength of %g are no step at all",
                               steps, strength),
                       "take more steps, or more strength");
    s->first = steps - taken;
    return RN_OK;
}

// ---- moving -------------------------------------------------------------------------------------

static bool is_euler(const rn_schedule *s) {
    return s->kind == RN_SCHEDULER_EULER || s->kind == RN_SCHEDULER_EULER_A;
}

void rn_schedule_input(const rn_schedule *s, uint32_t step, const float *x, float *out,
                       uint64_t n) {
    float by = 1;
    if (is_euler(s)) by = (float)sqrt(s->sigmas[step] * s->sigmas[step] + 1);
    for (uint64_t i = 0; i < n; i++)
        out[i] = is_euler(s) ? x[i] / by : x[i];
}

// The signal's and the noise's factors at a step, of samples whose variance stays.
static void factors(const rn_schedule *s, uint32_t step, double *out_alpha, double *out_sigma) {
    if (s->kind == RN_SCHEDULER_DDIM || s->kind == RN_SCHEDULER_LCM) {
        *out_alpha = sqrt(s->alphas[step]);
        *out_sigma = sqrt(1 - s->alphas[step]);
        return;
    }
    *out_alpha = 1 / sqrt(s->sigmas[step] * s->sigmas[step] + 1);
    *out_sigma = s->sigmas[step] * *out_alpha;
}

void rn_schedule_add_noise(const rn_schedule *s, uint32_t step, const float *x, const float *noise,
                           float *out, uint64_t n) {
    double alpha = 1, sigma = s->sigmas[step];
    if (step >= s->steps)
        sigma = 0;
    else if (s->kind == RN_SCHEDULER_FLOW)
        alpha = 1 - sigma;
    else if (!is_euler(s))
        factors(s, step, &alpha, &sigma);
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)alpha * x[i] + (float)sigma * noise[i];
}

// x0 by Euler's way of counting: x is x0 + sigma noise.
static float clean_euler(const rn_schedule *s, float sigma, float x, float output) {
    float wide = sigma * sigma + 1;
    if (s->prediction == RN_PREDICTS_NOISE) return x - sigma * output;
    if (s->prediction == RN_PREDICTS_V) return output * (-sigma / sqrtf(wide)) + x / wide;
    return output;
}

static void step_euler(const rn_schedule *s, uint32_t step, const float *output, const float *noise,
                       float *x, uint64_t n) {
    double from = s->sigmas[step], to = s->sigmas[step + 1], up = 0;
    if (s->kind == RN_SCHEDULER_EULER_A) {
        up = sqrt(to * to * (from * from - to * to) / (from * from));
        to = sqrt(to * to - up * up);
    }
    float sigma = (float)from, dt = (float)to - sigma;
    for (uint64_t i = 0; i < n; i++) {
        float x0 = clean_euler(s, sigma, x[i], output[i]);
        x[i] += (x[i] - x0) / sigma * dt;
        if (up > 0) x[i] += noise[i] * (float)up;
    }
}

// x0 and the noise that the output speaks of.
static float clean(const rn_schedule *s, float alpha, float sigma, float x, float output,
                   float *out_noise) {
    float x0 = output;
    *out_noise = output;
    if (s->prediction == RN_PREDICTS_NOISE) x0 = (x - sigma * output) / alpha;
    if (s->prediction == RN_PREDICTS_V) {
        x0 = alpha * x - sigma * output;
        *out_noise = alpha * output + sigma * x;
    }
    if (s->prediction == RN_PREDICTS_SAMPLE) *out_noise = (x - alpha * output) / sigma;
    return x0;
}

static void step_ddim(const rn_schedule *s, uint32_t step, const float *output, float *x,
                      uint64_t n) {
    double alpha, sigma;
    factors(s, step, &alpha, &sigma);
    float next = (float)sqrt(s->alphas[step + 1]), left = (float)sqrt(1 - s->alphas[step + 1]);
    for (uint64_t i = 0; i < n; i++) {
        float noise, x0 = clean(s, (float)alpha, (float)sigma, x[i], output[i], &noise);
        if (s->clip) x0 = fminf(fmaxf(x0, -1), 1);
        x[i] = next * x0 + left * noise;
    }
}

static void step_lcm(const rn_schedule *s, uint32_t step, const float *output, const float *noise,
                     float *x, uint64_t n) {
    double alpha, sigma, time = s->times[step] * 10;
    factors(s, step, &alpha, &sigma);
    float skip = (float)(0.25 / (time * time + 0.25)),
          out = (float)(time / sqrt(time * time + 0.25));
    bool last = step + 1 == s->steps;
    float next = last ? 1 : (float)sqrt(s->alphas[step + 1]);
    float left = last ? 0 : (float)sqrt(1 - s->alphas[step + 1]);
    for (uint64_t i = 0; i < n; i++) {
        float unused, x0 = clean(s, (float)alpha, (float)sigma, x[i], output[i], &unused);
        x0 = out * x0 + skip * x[i];
        x[i] = last ? x0 : next * x0 + left * noise[i];
    }
}

// DPM-Solver++ of the second order, by the midpoint; the first and the last step are of the first.
static void step_dpm(rn_schedule *s, uint32_t step, const float *output, float *x, uint64_t n) {
    double alpha, sigma, alpha_t, sigma_t, before_alpha, before_sigma;
    factors(s, step, &alpha, &sigma);
    alpha_t = 1 / sqrt(s->sigmas[step + 1] * s->sigmas[step + 1] + 1);
    sigma_t = s->sigmas[step + 1] * alpha_t;
    bool second = s->has_last && step + 1 < s->steps;
    double log_snr = log(alpha) - log(sigma), decay = -1, ratio = 0; // decay: e^-h - 1
    if (sigma_t > 0) {
        double h = log(alpha_t) - log(sigma_t) - log_snr;
        decay = exp(-h) - 1;
        if (second) {
            factors(s, step - 1, &before_alpha, &before_sigma);
            ratio = (log_snr - (log(before_alpha) - log(before_sigma))) / h;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        float unused, x0 = clean(s, (float)alpha, (float)sigma, x[i], output[i], &unused);
        double y = sigma_t / sigma * (double)x[i] - alpha_t * decay * (double)x0;
        if (second) y -= 0.5 * alpha_t * decay * ((double)x0 - (double)s->last[i]) / ratio;
        x[i] = (float)y;
        s->last[i] = x0;
    }
    s->has_last = true;
}

void rn_schedule_clean(const rn_schedule *s, uint32_t step, const float *output, const float *x,
                       float *out, uint64_t n) {
    double alpha, sigma;
    float unused, from = (float)s->sigmas[step];
    factors(s, step, &alpha, &sigma);
    for (uint64_t i = 0; i < n; i++)
        out[i] = s->kind == RN_SCHEDULER_FLOW ? x[i] - from * output[i]
                 : is_euler(s)                ? clean_euler(s, from, x[i], output[i])
                               : clean(s, (float)alpha, (float)sigma, x[i], output[i], &unused);
}

void rn_schedule_step(rn_schedule *s, uint32_t step, const float *output, const float *noise,
                      float *x, uint64_t n) {
    float dt = (float)s->sigmas[step + 1] - (float)s->sigmas[step];
    switch (s->kind) {
    case RN_SCHEDULER_FLOW:
        for (uint64_t i = 0; i < n; i++)
            x[i] += dt * output[i];
        return;
    case RN_SCHEDULER_DDIM:
        step_ddim(s, step, output, x, n);
        return;
    case RN_SCHEDULER_LCM:
        step_lcm(s, step, output, noise, x, n);
        return;
    case RN_SCHEDULER_DPMPP_2M:
    case RN_SCHEDULER_DPMPP_2M_KARRAS:
        step_dpm(s, step, output, x, n);
        return;
    default:
        step_euler(s, step, output, noise, x, n);
        return;
    }
}

// ---- configuration ------------------------------------------------------------------------------

typedef struct word {
    const char *text;
    int value;
} word;

static rn_status read_word(const rn_fields *f, const char *name, const word *words, size_t count,
                           int *out) {
    rn_str text = {0};
    RN_TRY(rn_fields_text(f, name, &text));
    if (!text.bytes) return RN_OK;
    for (size_t i = 0; i < count; i++)
        if (rn_str_equal(text, rn_str_from(words[i].text))) {
            *out = words[i].value;
            return RN_OK;
        }
    return rn_fail(RN_UNSUPPORTED, "%s: %s \"%.*s\" is not known", f->source, name,
                   RN_STR_ARG(text));
}

static const word predictions[] = {{"epsilon", RN_PREDICTS_NOISE},
                                   {"v_prediction", RN_PREDICTS_V},
                                   {"sample", RN_PREDICTS_SAMPLE}};

rn_status rn_prediction_parse(rn_str text, rn_prediction *out) {
    for (size_t i = 0; i < sizeof predictions / sizeof *predictions; i++)
        if (rn_str_equal(text, rn_str_from(predictions[i].text))) {
            *out = (rn_prediction)predictions[i].value;
            return RN_OK;
        }
    return rn_hint(rn_fail(RN_INVALID, "no denoiser predicts '%.*s'", RN_STR_ARG(text)),
                   "epsilon, v_prediction or sample");
}

#define READ_WORD(f, name, words, out) read_word(f, name, words, sizeof words / sizeof *words, out)

static rn_status read_double(const rn_fields *f, const char *name, double *out) {
    float number = (float)*out;
    RN_TRY(rn_fields_number(f, name, &number));
    if (rn_fields_find(f, name)) *out = rn_fields_find(f, name)->number;
    return RN_OK;
}

rn_status rn_schedule_config_read(const rn_fields *f, rn_schedule_config *out) {
    static const word classes[] = {{"EulerDiscreteScheduler", RN_SCHEDULER_EULER},
                                   {"EulerAncestralDiscreteScheduler", RN_SCHEDULER_EULER_A},
                                   {"DDIMScheduler", RN_SCHEDULER_DDIM},
                                   {"DDPMScheduler", RN_SCHEDULER_DDIM},
                                   {"PNDMScheduler", RN_SCHEDULER_EULER},
                                   {"LMSDiscreteScheduler", RN_SCHEDULER_EULER},
                                   {"UniPCMultistepScheduler", RN_SCHEDULER_DPMPP_2M},
                                   {"DPMSolverMultistepScheduler", RN_SCHEDULER_DPMPP_2M},
                                   {"DPMSolverSinglestepScheduler", RN_SCHEDULER_DPMPP_2M},
                                   {"LCMScheduler", RN_SCHEDULER_LCM},
                                   {"FlowMatchEulerDiscreteScheduler", RN_SCHEDULER_FLOW}};
    static const word betas[] = {{"scaled_linear", RN_BETAS_SCALED_LINEAR},
                                 {"linear", RN_BETAS_LINEAR},
                                 {"squaredcos_cap_v2", RN_BETAS_COSINE}};
    static const word spacings[] = {{"leading", RN_SPACING_LEADING},
                                    {"linspace", RN_SPACING_LINSPACE},
                                    {"trailing", RN_SPACING_TRAILING}};
    rn_schedule_config c = {.alpha_to_one = true,
                            .base_shift = 0.5,
                            .max_shift = 1.15,
                            .base_tokens = 256,
                            .max_tokens = 4096};
    int kind = RN_SCHEDULER_EULER, beta = RN_BETAS_SCALED_LINEAR, spacing = RN_SPACING_LEADING,
        prediction = RN_PREDICTS_NOISE;
    bool karras = false;
    RN_TRY(READ_WORD(f, "_class_name", classes, &kind));
    RN_TRY(READ_WORD(f, "beta_schedule", betas, &beta));
    RN_TRY(READ_WORD(f, "timestep_spacing", spacings, &spacing));
    RN_TRY(READ_WORD(f, "prediction_type", predictions, &prediction));
    RN_TRY(rn_fields_bool(f, "use_karras_sigmas", &karras));
    if (karras && kind == RN_SCHEDULER_DPMPP_2M) kind = RN_SCHEDULER_DPMPP_2M_KARRAS;
    c.scheduler = (rn_scheduler)kind;
    c.betas = (rn_betas)beta;
    c.spacing = (rn_spacing)spacing;
    c.prediction = (rn_prediction)prediction;
    RN_TRY(rn_fields_bool(f, "rescale_betas_zero_snr", &c.zero_snr));
    RN_TRY(rn_fields_u32(f, "num_train_timesteps", &c.train_steps));
    RN_TRY(rn_fields_u32(f, "steps_offset", &c.offset));
    RN_TRY(rn_fields_bool(f, "set_alpha_to_one", &c.alpha_to_one));
    RN_TRY(rn_fields_bool(f, "clip_sample", &c.clip));
    RN_TRY(rn_fields_u32(f, "original_inference_steps", &c.lcm_steps));
    RN_TRY(rn_fields_bool(f, "use_dynamic_shifting", &c.dynamic_shifting));
    RN_TRY(rn_fields_u32(f, "base_image_seq_len", &c.base_tokens));
    RN_TRY(rn_fields_u32(f, "max_image_seq_len", &c.max_tokens));
    RN_TRY(read_double(f, "beta_start", &c.beta_start));
    RN_TRY(read_double(f, "beta_end", &c.beta_end));
    RN_TRY(read_double(f, "shift", &c.shift));
    RN_TRY(read_double(f, "base_shift", &c.base_shift));
    RN_TRY(read_double(f, "max_shift", &c.max_shift));
    if (c.max_tokens <= c.base_tokens || c.offset > 1000)
        return rn_fail(RN_CORRUPT, "%s: the scheduler's numbers cannot be", f->source);
    *out = c;
    return RN_OK;
}
