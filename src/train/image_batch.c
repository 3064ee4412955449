// image_batch.c — the batch of a step: pictures, times, noise, captions, as the network takes them.
//
// All of it is a function of the step's number and the seed, so a training that goes on sees what
// one without a stop would have.
#include "train/image_trainer.h"

#include "base/checked.h"
#include "graph/philox.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM_DROP = 21, STREAM_VARIATION = 22, FLUX_TIME = 256 };
#define EVALUATION_SEED 0x6576616c // noise of evaluations

// ---- memory -------------------------------------------------------------------------------------

static uint64_t largest(const rn_image_trainer *t, bool latents) {
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    uint64_t most = 0, area = latents ? (uint64_t)t->factor * t->factor : 1;
    for (uint32_t i = 0; i < info->bucket_count; i++)
        most = rn_max_u64(most, (uint64_t)info->buckets[i].width * info->buckets[i].height / area);
    return most;
}

static uint32_t time_channels(const rn_image_trainer *t) {
    return rn_image_is_flux(t) ? FLUX_TIME : t->steps[0].unet.channels[0];
}

// Of a text whose encoder is in the step.
static uint64_t trained_tokens(const rn_image_trainer *t, uint32_t encoder) {
    return t->text[encoder].trained ? t->text[encoder].length : 0;
}

rn_status rn_image_batch_take(rn_image_trainer *t) {
    bool flux = rn_image_is_flux(t);
    uint64_t batch = t->options.trainer.batch, latent = largest(t, true) * t->latent_channels;
    uint64_t noisy = t->diffuses ? batch : 0, plain = t->diffuses ? 0 : batch;
    uint64_t patches = flux ? largest(t, true) / 4 : 0;
    float *positions = NULL, *tokens[RN_TEXT_ENCODERS];
    struct {
        float **at;
        uint64_t count;
    } parts[] = {{&t->moments, 2 * latent},
                 {&t->sample, noisy * latent},
                 {&t->target, noisy * latent},
                 {&t->weight, batch},
                 {&t->keep, batch},
                 {&t->pool[0], noisy * trained_tokens(t, 0)},
                 {&t->pool[1], noisy * trained_tokens(t, 1)},
                 {&tokens[0], noisy * trained_tokens(t, 0)},
                 {&tokens[1], noisy * trained_tokens(t, 1)},
                 {&t->time, noisy * time_channels(t)},
                 {&t->context, noisy * t->context_tokens * t->context_channels},
                 {&t->scratch_text, t->context_tokens * (uint64_t)t->context_channels},
                 {&t->pooled, noisy * t->pooled_channels},
                 {&t->added, noisy * t->steps[0].unet.added_channels},
                 {&t->guidance, flux ? batch * FLUX_TIME : 0},
                 {&positions, flux ? batch * (t->context_tokens + patches) * 3 : 0},
                 {&t->image, plain * largest(t, false) * 3},
                 {&t->variation, plain * latent}};
    uint64_t at = 2 * batch, floats = at; // numbers first
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        floats += parts[i].count;
    t->block_bytes = floats * sizeof(float);
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, t->block_bytes, &t->block));
    t->numbers = t->block;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].at = (float *)t->block + at;
        at += parts[i].count;
    }
    t->positions = (int32_t *)(void *)positions;
    for (uint32_t i = 0; i < RN_TEXT_ENCODERS; i++)
        t->tokens[i] = (int32_t *)(void *)tokens[i];
    return RN_OK;
}

// ---- texts --------------------------------------------------------------------------------------

static rn_status load_cached(const rn_image_trainer *t, const char *kind, uint64_t number,
                             float *out, uint64_t count) {
    char name[48];
    snprintf(name, sizeof name, "%s.%llu", kind, (unsigned long long)number);
    const rn_tensor_info *info = rn_checkpoint_find(t->latents, name);
    if (!info) return rn_fail(RN_CORRUPT, "the cache has no '%s'", name);
    return rn_checkpoint_load(t->latents, info, RN_DTYPE_F32, out, count * sizeof(float));
}

// Rows of both encoders stand side by side: the second's go to their place through `scratch`.
static rn_status load_rows(const rn_image_trainer *t, uint32_t encoder, uint64_t which,
                           float *out) {
    const rn_image_embedding *text = &t->text[encoder];
    const char *kind = encoder ? "text_2" : "text";
    uint64_t wide = t->context_channels, first = encoder ? wide - text->dim : 0;
    uint64_t rows = text->length, dim = text->dim;
    RN_TRY(load_cached(t, kind, which, t->scratch_text, rows * dim));
    for (uint64_t i = 0; i < rows; i++)
        memcpy(out + i * wide + first, t->scratch_text + i * dim, dim * sizeof *out);
    return RN_OK;
}

// Of encoders that are in the step: its tokens.
static rn_status fill_tokens(rn_image_trainer *t, uint32_t i, const char *caption) {
    for (uint32_t k = 0; k < t->model->text_count; k++) {
        uint64_t at = (uint64_t)i * t->text[k].length;
        if (t->text[k].trained)
            RN_TRY(rn_diffusion_tokens(t->model, k, caption, t->text[k].length, t->tokens[k] + at,
                                       t->pool[k] + at));
    }
    return RN_OK;
}

// XL was trained, and draws, with zeros for an empty caption; others with what encoders say of it.
static rn_status fill_text(rn_image_trainer *t, uint32_t i, uint64_t which, bool dropped) {
    float *context = t->context + i * (uint64_t)t->context_tokens * t->context_channels;
    float *pooled = t->pooled + i * (uint64_t)t->pooled_channels;
    if (dropped && t->model->family == RN_FAMILY_SDXL && t->model->zero_negative) {
        memset(context, 0, (uint64_t)t->context_tokens * t->context_channels * sizeof *context);
        memset(pooled, 0, t->pooled_channels * sizeof *pooled);
        return RN_OK;
    }
    for (uint32_t k = 0; k < t->model->text_count; k++) {
        if (t->text[k].trained) continue;
        if (t->text[k].gives_context) RN_TRY(load_rows(t, k, which, context));
        if (t->text[k].gives_pooled)
            RN_TRY(load_cached(t, "pooled", which, pooled, t->pooled_channels));
    }
    return RN_OK;
}

// ---- what goes beside them ----------------------------------------------------------------------

// XL: the pooled text, unless its encoder is in the step; then sinusoids of the file's size, of
// where it was cut and of what it became.
static void fill_added(rn_image_trainer *t, uint32_t bucket, uint32_t i, uint64_t number) {
    const rn_unet_config *u = &t->steps[bucket].unet;
    const rn_picture *p = rn_pictures_get(t->pictures, number);
    const rn_picture_bucket *b = &rn_pictures_get_info(t->pictures)->buckets[bucket];
    double by = fmax((double)b->width / p->width, (double)b->height / p->height);
    double wide = fmax(round(p->width * by), b->width),
           high = fmax(round(p->height * by), b->height);
    const float sizes[RN_IMAGE_SIZES] = {(float)p->height,
                                         (float)p->width,
                                         (float)floor((high - b->height) / 2),
                                         (float)floor((wide - b->width) / 2),
                                         (float)b->height,
                                         (float)b->width};
    uint64_t pooled = t->text[1].trained ? 0 : t->pooled_channels;
    float *to = t->added + i * (pooled + (uint64_t)RN_IMAGE_SIZES * u->added_time_dim);
    memcpy(to, t->pooled + i * (uint64_t)t->pooled_channels, pooled * sizeof *to);
    for (int k = 0; k < RN_IMAGE_SIZES; k++)
        rn_sinusoid(sizes[k], u->added_time_dim, to + pooled + (uint64_t)k * u->added_time_dim);
}

// Flux: patches instead of pixels, where they are, and the guidance that the network is told.
static void fill_flux(rn_image_trainer *t, uint32_t bucket, uint32_t i, uint64_t count) {
    const rn_flux_config *f = &t->steps[bucket].flux;
    uint64_t patches = (uint64_t)f->height * f->width, tokens = t->context_tokens + patches;
    float *both[] = {t->sample + i * count, t->target + i * count};
    for (int k = 0; k < 2; k++) {
        memcpy(t->moments, both[k], count * sizeof(float));
        rn_flux_pack(t->moments, 2ull * f->height, 2ull * f->width, t->latent_channels, false,
                     both[k]);
    }
    int32_t *at = t->positions + i * tokens * 3;
    memset(at, 0, tokens * 3 * sizeof *at);
    for (uint64_t k = 0; k < patches; k++) {
        at[(t->context_tokens + k) * 3 + 1] = (int32_t)(k / f->width);
        at[(t->context_tokens + k) * 3 + 2] = (int32_t)(k % f->width);
    }
    double guidance = t->options.guidance > 0 ? t->options.guidance : 1;
    rn_sinusoid((float)(1000 * guidance), FLUX_TIME, t->guidance + i * (uint64_t)FLUX_TIME);
}

// ---- a sample -----------------------------------------------------------------------------------

// A latent drawn from the picture's means and variances, (pixels, channels), in t->moments.
static rn_status draw_latent(rn_image_trainer *t, uint64_t picture, uint64_t pixels,
                             uint64_t number, uint64_t seed) {
    uint32_t channels = t->latent_channels;
    uint64_t count = pixels * channels;
    RN_TRY(load_cached(t, "latent", picture, t->moments, 2 * count));
    for (uint64_t k = 0; k < pixels; k++) // (pixels, 2 * channels) to (pixels, channels), in place
        for (uint32_t c = 0; c < channels; c++) {
            double mean = t->moments[k * 2 * channels + c];
            double logarithm = t->moments[k * 2 * channels + channels + c];
            double deviation = exp(fmin(fmax(logarithm, -30), 20) / 2);
            uint64_t element = number * count + k * channels + c;
            double z = mean + deviation * rn_philox_normal(seed, STREAM_VARIATION, element);
            t->moments[k * channels + c] = (float)((z - t->shift) * t->scaling);
        }
    return RN_OK;
}

// Sample `i` of the batch; `number` counts the samples of the training.
static rn_status fill_diffusion(rn_image_trainer *t, uint32_t bucket, uint32_t i, uint64_t number,
                                uint64_t seed, bool drops) {
    const rn_vae_config *v = &t->steps[bucket].vae;
    uint32_t times = time_channels(t);
    uint64_t pixels = (uint64_t)v->height * v->width, count = pixels * t->latent_channels;
    uint64_t picture = t->numbers[i];
    RN_TRY(draw_latent(t, picture, pixels, number, seed));
    rn_noisy noisy =
        rn_train_noise_add(&t->noise, seed, number, t->moments, pixels, t->latent_channels,
                           t->sample + i * count, t->target + i * count);
    t->weight[i] = noisy.weight;
    rn_sinusoid(noisy.time, times, t->time + (uint64_t)i * times);
    bool dropped = drops && rn_philox_unit(rn_philox_word(seed, STREAM_DROP, number)) <
                                (float)t->options.caption_dropout;
    uint64_t which =
        dropped ? t->text_of[rn_pictures_get_info(t->pictures)->count] : t->text_of[picture];
    RN_TRY(fill_text(t, i, which, dropped));
    RN_TRY(fill_tokens(t, i, dropped ? "" : rn_pictures_get(t->pictures, picture)->caption));
    t->keep[i] = dropped ? 0 : 1;
    if (rn_image_is_flux(t))
        fill_flux(t, bucket, i, count);
    else if (t->steps[bucket].unet.added_channels)
        fill_added(t, bucket, i, picture);
    return RN_OK;
}

static rn_status fill_autoencoder(rn_image_trainer *t, uint32_t bucket, uint32_t i, uint64_t number,
                                  uint64_t seed) {
    const rn_vae_config *v = &t->steps[bucket].vae;
    uint64_t pixels = (uint64_t)v->height * v->width, count = pixels * t->latent_channels;
    float *image = t->image + i * pixels * t->factor * t->factor * 3;
    for (uint64_t k = 0; k < count; k++)
        t->variation[i * count + k] = rn_philox_normal(seed, STREAM_VARIATION, number * count + k);
    return rn_pictures_values(t->pictures, t->numbers[i], image);
}

// ---- inputs -------------------------------------------------------------------------------------

static uint32_t list_inputs(const rn_image_trainer *t, uint32_t bucket,
                            rn_trainer_input out[RN_IMAGE_INPUTS]) {
    const rn_image_step_config *c = &t->steps[bucket];
    bool flux = rn_image_is_flux(t);
    uint64_t batch = t->options.trainer.batch, pixels = (uint64_t)c->vae.height * c->vae.width;
    uint64_t latent = pixels * t->latent_channels, noisy = t->diffuses;
    // Whether texts come from the cache, and whether the pooled row does not.
    bool reads = t->diffuses && (flux || !t->text[0].trained), told = false;
    for (uint32_t i = 0; i < RN_TEXT_ENCODERS; i++)
        told |= t->text[i].trained && t->text[i].gives_pooled;
    const struct {
        const char *name;
        const void *data;
        uint64_t count; // of a sample; 0: the network has no such input
    } all[] = {
        {"image", t->image, t->diffuses ? 0 : pixels * t->factor * t->factor * 3},
        {"variation", t->variation, t->diffuses ? 0 : latent},
        {"sample", t->sample, noisy * latent},
        {"target", t->target, noisy * latent},
        {"weight", t->weight, noisy},
        {"time", t->time, noisy * time_channels(t)},
        {"context", t->context, reads ? t->context_tokens * t->context_channels : 0},
        {"added", t->added, flux || told ? 0 : noisy * c->unet.added_channels},
        {"sizes", t->added, told && !flux ? RN_IMAGE_SIZES * c->unet.added_time_dim : 0},
        {"pooled", t->pooled, flux && !told ? t->pooled_channels : 0},
        {"text_encoder.tokens", t->tokens[0], trained_tokens(t, 0)},
        {"text_encoder.pool", t->pool[0], t->text[0].gives_pooled ? trained_tokens(t, 0) : 0},
        {"text_encoder_2.tokens", t->tokens[1], trained_tokens(t, 1)},
        {"text_encoder_2.pool", t->pool[1], t->text[1].gives_pooled ? trained_tokens(t, 1) : 0},
        {"keep", t->keep, c->drops},
        {"positions", t->positions, flux ? (t->context_tokens + pixels / 4) * 3 : 0},
        {"guidance", t->guidance, flux && c->flux.guidance ? FLUX_TIME : 0},
    };
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].count)
            out[count++] =
                (rn_trainer_input){all[i].name, all[i].data, batch * all[i].count * sizeof(float)};
    return count;
}

rn_status rn_image_batch_fill(rn_image_trainer *t, bool validation, uint64_t step,
                              uint32_t *out_bucket, rn_trainer_input inputs[RN_IMAGE_INPUTS],
                              uint32_t *out_count) {
    uint64_t batch = t->options.trainer.batch;
    uint64_t seed = validation ? EVALUATION_SEED : t->options.trainer.seed;
    RN_TRY(
        rn_pictures_batch(t->pictures, validation, step, (uint32_t)batch, t->numbers, out_bucket));
    for (uint32_t i = 0; i < batch; i++)
        RN_TRY(t->diffuses ? fill_diffusion(t, *out_bucket, i, step * batch + i, seed, !validation)
                           : fill_autoencoder(t, *out_bucket, i, step * batch + i, seed));
    *out_count = list_inputs(t, *out_bucket, inputs);
    return RN_OK;
}
