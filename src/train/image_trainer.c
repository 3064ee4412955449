// image_trainer.c — a trainer of one part of a diffusers folder.
//
// Latents and text embeddings are made first and kept on disk, so the encoders are gone before the
// denoiser comes. What a step sees is a function of its number and the seed: pictures, times,
// noise, dropped captions.
#include "train/image_trainer.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/reserved.h"
#include "base/str.h"
#include "graph/philox.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- options ------------------------------------------------------------------------------------

static rn_status check_options(const rn_image_train_options *o, bool *out_diffuses) {
    RN_TRY(rn_check_reserved(o->reserved, "rn_image_train_options"));
    const char *name = o->objective ? o->objective : "diffusion";
    *out_diffuses = strcmp(name, "diffusion") == 0;
    if (!*out_diffuses && strcmp(name, "autoencoder") != 0)
        return rn_hint(rn_fail(RN_INVALID, "image models have no objective '%s'", name),
                       "there are diffusion and autoencoder");
    if (o->lora && !*out_diffuses)
        return rn_fail(RN_UNSUPPORTED, "an autoencoder is trained itself, without additions");
    if (o->text_encoders && !o->lora)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the weights of text encoders themselves are not "
                                               "trained"),
                       "additions to them are: --method lora");
    if (!(o->caption_dropout >= 0 && o->caption_dropout <= 1) ||
        !(o->average >= 0 && o->average < 1) || !(o->min_snr >= 0) || !(o->offset_noise >= 0) ||
        !(o->kl >= 0))
        return rn_fail(RN_INVALID,
                       "min_snr, offset_noise and kl are at least 0, caption_dropout is "
                       "a share, average one below 1");
    return RN_OK;
}

static rn_status prepare(const char *model, const rn_pictures *pictures,
                         const rn_image_train_options *options, rn_image_trainer **out) {
    void *block = NULL;
    bool diffuses;
    *out = NULL;
    RN_TRY(check_options(options, &diffuses));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_image_trainer), &block));
    rn_image_trainer *t = block;
    t->pictures = pictures;
    t->options = *options;
    t->diffuses = diffuses;
    rn_arena_init(&t->memory, RN_HOST_OTHER, 0);
    snprintf(t->folder, sizeof t->folder, "%s", model);
    snprintf(t->cache, sizeof t->cache, "%s", options->cache ? options->cache : "");
    rn_status s = rn_image_model_read(t);
    if (s == RN_OK)
        *out = t;
    else
        rn_image_trainer_destroy(t);
    return s;
}

// ---- averages and names
// --------------------------------------------------------------------------

static rn_status take_averages(rn_image_trainer *t) {
    void *block = NULL;
    for (uint32_t i = 0; i < t->trainer->weight_count; i++)
        t->average_count += t->trainer->tensors[i].count;
    RN_TRY(
        rn_alloc_zeroed(RN_HOST_OTHER, t->average_count + t->trainer->most, sizeof(float), &block));
    t->average = block;
    t->scratch = t->average + t->average_count;
    return RN_OK;
}

// Files of models without use_linear_projection have kernels of 1 x 1 where the graph has matrices.
static void name_kernels(rn_image_trainer *t) {
    for (uint32_t i = 0; i < t->trainer->weight_count; i++) {
        rn_trained *w = &t->trainer->tensors[i];
        rn_str name = rn_str_from(w->name);
        bool projects = rn_str_ends(name, RN_STR(".proj_in.weight")) ||
                        rn_str_ends(name, RN_STR(".proj_out.weight"));
        if (projects && w->shape.rank == 2)
            w->shape = RN_SHAPE(w->shape.dims[0], w->shape.dims[1], 1, 1);
    }
}

// ---- a trainer ----------------------------------------------------------------------------------

rn_status rn_image_train_plan(const char *model, const rn_pictures *pictures,
                              const rn_image_train_options *options, rn_program **out_cache,
                              rn_program **out_train) {
    rn_image_trainer *t = NULL;
    *out_cache = *out_train = NULL;
    RN_TRY(prepare(model, pictures, options, &t));
    rn_status s = t->diffuses ? rn_image_cache_plan(t, out_cache) : RN_OK;
    if (s == RN_OK) s = rn_trainer_plan_job(&t->options.trainer, &t->job, out_train);
    if (s != RN_OK) {
        rn_program_destroy(*out_cache);
        *out_cache = NULL;
    }
    rn_image_trainer_destroy(t);
    return s;
}

rn_status rn_image_trainer_create(const char *model, const rn_pictures *pictures,
                                  const rn_image_train_options *options, rn_image_trainer **out) {
    rn_image_trainer *t = NULL;
    *out = NULL;
    RN_TRY(prepare(model, pictures, options, &t));
    rn_status s = t->diffuses ? rn_image_cache_open(t) : RN_OK;
    if (s == RN_OK) s = rn_image_batch_take(t);
    if (s == RN_OK) s = rn_trainer_create_job(&t->options.trainer, &t->job, &t->trainer);
    bool kernels = t->diffuses && !rn_image_is_flux(t) && !t->steps[0].unet.linear_projection;
    if (s == RN_OK && kernels && !t->lora_count) name_kernels(t);
    if (s == RN_OK && options->average > 0) s = take_averages(t);
    if (s == RN_OK)
        *out = t;
    else
        rn_image_trainer_destroy(t);
    return s;
}

void rn_image_trainer_destroy(rn_image_trainer *t) {
    if (!t) return;
    if (t->average)
        rn_free(RN_HOST_OTHER, t->average, (t->average_count + t->trainer->most) * sizeof(float));
    rn_trainer_destroy(t->trainer);
    rn_checkpoint_close(t->files);
    rn_checkpoint_close(t->joined);
    rn_diffusion_close(t->model);
    rn_checkpoint_close(t->latents);
    rn_free(RN_HOST_OTHER, t->block, t->block_bytes);
    rn_arena_free_all(&t->memory);
    rn_free(RN_HOST_OTHER, t, sizeof *t);
}

rn_trainer *rn_image_trainer_get(rn_image_trainer *trainer) {
    return trainer->trainer;
}

// ---- steps --------------------------------------------------------------------------------------

// diffusers' rule: 0 at the first step, then (1 + n) / (10 + n) until that is the decay.
static rn_status average_weights(rn_image_trainer *t) {
    double n = (double)t->trainer->steps - 1, decay = n > 0 ? (1 + n) / (10 + n) : 0;
    float keep = (float)(decay < t->options.average ? decay : t->options.average);
    float *average = t->average;
    for (uint32_t i = 0; i < t->trainer->weight_count; i++) {
        const rn_trained *w = &t->trainer->tensors[i];
        RN_TRY(rn_session_get(t->trainer->session, w->name, t->scratch, w->bytes));
        for (uint64_t k = 0; k < w->count; k++)
            average[k] = keep * average[k] + (1 - keep) * t->scratch[k];
        average += w->count;
    }
    return RN_OK;
}

rn_status rn_image_swap_averages(rn_image_trainer *t) {
    float *average = t->average;
    for (uint32_t i = 0; average && i < t->trainer->weight_count; i++) {
        const rn_trained *w = &t->trainer->tensors[i];
        RN_TRY(rn_session_get(t->trainer->session, w->name, t->scratch, w->bytes));
        RN_TRY(rn_session_put(t->trainer->session, w->name, average, w->bytes));
        memcpy(average, t->scratch, w->bytes);
        average += w->count;
    }
    return RN_OK;
}

// Of an autoencoder's latents: the mean of about a hundred steps.
static rn_status look_at_latents(rn_image_trainer *t) {
    float mean = 0, square = 0;
    RN_TRY(rn_session_get(t->trainer->session, "latent_mean", &mean, sizeof mean));
    RN_TRY(rn_session_get(t->trainer->session, "latent_square", &square, sizeof square));
    double keep = t->latent_square > 0 ? 0.99 : 0;
    t->latent_mean = keep * t->latent_mean + (1 - keep) * (double)mean;
    t->latent_square = keep * t->latent_square + (1 - keep) * (double)square;
    return RN_OK;
}

rn_status rn_image_trainer_step(rn_image_trainer *t, double rate, float *out_loss) {
    rn_trainer_input inputs[RN_IMAGE_INPUTS];
    uint32_t count = 0, bucket = 0;
    *out_loss = 0;
    RN_TRY(rn_image_batch_fill(t, false, rn_trainer_batches(t->trainer), &bucket, inputs, &count));
    RN_TRY(rn_trainer_step_job(t->trainer, bucket, inputs, count, rate, out_loss));
    if (!t->diffuses) RN_TRY(look_at_latents(t));
    bool taken = rn_trainer_last_step(t->trainer)->effect == RN_STEP_TAKEN;
    return t->average && taken ? average_weights(t) : RN_OK;
}

rn_status rn_image_trainer_evaluate(rn_image_trainer *t, float *out_loss) {
    uint64_t batches = rn_pictures_batches(t->pictures, true, t->options.trainer.batch);
    double sum = 0;
    *out_loss = 0;
    for (uint64_t i = 0; i < batches; i++) {
        rn_trainer_input inputs[RN_IMAGE_INPUTS];
        uint32_t count = 0, bucket = 0;
        float loss = 0;
        RN_TRY(rn_image_batch_fill(t, true, i, &bucket, inputs, &count));
        RN_TRY(rn_trainer_evaluate_job(t->trainer, bucket, inputs, count, &loss));
        sum += (double)loss;
    }
    if (!batches) return rn_fail(RN_INVALID, "no picture is set apart for validation");
    *out_loss = (float)(sum / (double)batches);
    return RN_OK;
}
