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

enum { STREAM_DROP = 21, STREAM_VARIATION = 22 };
#define EVALUATION_SEED 0x6576616c // noise of evaluations

// ---- opening ------------------------------------------------------------------------------------

rn_status rn_image_part_path(const char *folder, const char *part, const char *name,
                             char out[RN_IMAGE_PATH]) {
    char inner[RN_IMAGE_PATH];
    RN_TRY(rn_path_join(folder, part, inner, sizeof inner));
    return rn_path_join(inner, name, out, RN_IMAGE_PATH);
}

rn_status rn_image_part_weights(const char *folder, const char *part, rn_checkpoint **out) {
    static const char *const names[] = {"diffusion_pytorch_model.safetensors", "model.safetensors",
                                        "diffusion_pytorch_model.safetensors.index.json",
                                        "model.safetensors.index.json"};
    char path[RN_IMAGE_PATH];
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        RN_TRY(rn_image_part_path(folder, part, names[i], path));
        if (rn_file_exists(path)) return rn_checkpoint_open(path, out);
    }
    return RN_OK;
}

static rn_status read_part(const char *folder, const char *part, const char *file,
                           rn_fields *fields) {
    char path[RN_IMAGE_PATH];
    RN_TRY(rn_image_part_path(folder, part, file, path));
    if (!rn_file_exists(path))
        return rn_hint(rn_error_locate(rn_fail(RN_NOT_FOUND, "the model has no %s/%s", part, file),
                                       folder, RN_NO_OFFSET),
                       "a folder as diffusers writes it: model_index.json, unet, vae, "
                       "text_encoder, tokenizer, scheduler");
    return rn_fields_read_file(fields, path);
}

static rn_status read_vae(rn_image_trainer *t, rn_vae_config *out) {
    rn_fields fields;
    rn_fields_init(&fields, "vae/config.json");
    rn_status s = read_part(t->folder, "vae", "config.json", &fields);
    if (s == RN_OK) s = rn_vae_config_read(&fields, out);
    rn_fields_free(&fields);
    RN_TRY(s);
    t->latent_channels = out->latent_channels;
    t->factor = rn_vae_factor(out);
    t->scaling = out->scaling;
    t->shift = out->shift;
    return RN_OK;
}

static rn_status read_denoiser(rn_image_trainer *t, rn_unet_config *out) {
    rn_fields fields;
    rn_fields_init(&fields, "unet/config.json");
    rn_status s = read_part(t->folder, "unet", "config.json", &fields);
    if (s == RN_OK) s = rn_unet_config_read(&fields, out);
    rn_fields_free(&fields);
    if (s == RN_OK) {
        rn_fields_init(&fields, "text_encoder/config.json");
        s = read_part(t->folder, "text_encoder", "config.json", &fields);
        if (s == RN_OK) s = rn_clip_config_read(&fields, &t->clip);
        rn_fields_free(&fields);
    }
    if (s == RN_OK) {
        rn_fields_init(&fields, "scheduler/scheduler_config.json");
        s = read_part(t->folder, "scheduler", "scheduler_config.json", &fields);
        if (s == RN_OK) s = rn_train_noise_read(&fields, &t->noise);
        rn_fields_free(&fields);
    }
    RN_TRY(s);
    out->context_tokens = t->clip.tokens;
    t->noise.min_snr = t->options.min_snr;
    t->noise.offset = t->options.offset_noise;
    t->noise.uniform = t->options.uniform_times;
    if (out->added_channels || out->guidance_channels)
        return rn_fail(RN_UNSUPPORTED, "training of denoisers with two text encoders or with "
                                       "distilled guidance is not built");
    if (out->context_channels != t->clip.dim)
        return rn_fail(RN_INVALID, "the denoiser reads texts of %u channels, the encoder has %u",
                       out->context_channels, t->clip.dim);
    if (out->in_channels != t->latent_channels || out->out_channels != t->latent_channels)
        return rn_fail(
            RN_UNSUPPORTED,
            "training of a denoiser of %u to %u channels over latents of %u is not built",
            out->in_channels, out->out_channels, t->latent_channels);
    return RN_OK;
}

static rn_status make_forward(void *self, uint32_t shape, rn_forward *out) {
    const rn_image_trainer *t = self;
    *out = rn_image_step_forward(&t->steps[shape], t->diffuses);
    rn_forward unet = rn_unet_forward(&t->steps[shape].unet);
    return t->diffuses ? unet.check(unet.config, true) : RN_OK;
}

// The denoiser's own weights stay as they are, and additions to them are trained.
static rn_status adapt(rn_image_trainer *t) {
    void *block = NULL;
    RN_TRY(rn_arena_alloc(&t->memory, sizeof *t->lora, &block));
    t->lora = block;
    RN_TRY(rn_image_lora_init(t->lora, &t->memory, &t->steps[0].unet, t->files, t->options.lora));
    for (uint32_t i = 0; i < t->job.shapes; i++)
        t->steps[i].unet.files = &t->lora->files;
    t->job.weights = rn_image_component_weights(&t->lora->component);
    t->job.drawn = t->options.trainer.trained = RN_LORA_TRAINED;
    return RN_OK;
}

static rn_status read_configs(rn_image_trainer *t) {
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    rn_image_step_config c = {.kl = (float)(t->options.kl > 0 ? t->options.kl : 1e-6)};
    RN_TRY(read_vae(t, &c.vae));
    if (t->diffuses) RN_TRY(read_denoiser(t, &c.unet));
    for (uint32_t i = 0; i < info->bucket_count; i++) {
        const rn_picture_bucket *b = &info->buckets[i];
        if (b->width % t->factor || b->height % t->factor)
            return rn_fail(RN_INVALID, "pictures of %u x %u: sides must be multiples of %u",
                           b->width, b->height, t->factor);
        c.vae.height = c.unet.height = b->height / t->factor;
        c.vae.width = c.unet.width = b->width / t->factor;
        t->steps[i] = c;
    }
    t->job = (rn_trainer_job){
        .self = t, .shapes = info->bucket_count, .forward = make_forward, .first = rn_image_first};
    for (uint32_t i = 0; i < info->bucket_count; i++)
        snprintf(t->job.names[i], sizeof t->job.names[i], "%ux%u", info->buckets[i].width,
                 info->buckets[i].height);
    RN_TRY(rn_image_part_weights(t->folder, t->diffuses ? "unet" : "vae", &t->files));
    t->job.weights.checkpoint = t->files;
    if (t->options.lora) RN_TRY(adapt(t));
    return t->diffuses ? rn_image_cache_texts(t) : RN_OK;
}

static rn_status check_options(const rn_image_train_options *o, bool *out_diffuses) {
    RN_TRY(rn_check_reserved(o->reserved, "rn_image_train_options"));
    const char *name = o->objective ? o->objective : "diffusion";
    *out_diffuses = strcmp(name, "diffusion") == 0;
    if (!*out_diffuses && strcmp(name, "autoencoder") != 0)
        return rn_hint(rn_fail(RN_INVALID, "image models have no objective '%s'", name),
                       "there are diffusion and autoencoder");
    if (o->lora && !*out_diffuses)
        return rn_fail(RN_UNSUPPORTED, "an autoencoder is trained itself, without additions");
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
    rn_status s = read_configs(t);
    if (s == RN_OK)
        *out = t;
    else
        rn_image_trainer_destroy(t);
    return s;
}

// ---- a batch's memory ---------------------------------------------------------------------------

static uint64_t largest(const rn_image_trainer *t, bool latents) {
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    uint64_t most = 0, area = latents ? (uint64_t)t->factor * t->factor : 1;
    for (uint32_t i = 0; i < info->bucket_count; i++)
        most = rn_max_u64(most, (uint64_t)info->buckets[i].width * info->buckets[i].height / area);
    return most;
}

static rn_status take_buffers(rn_image_trainer *t) {
    uint64_t batch = t->options.trainer.batch, latent = largest(t, true) * t->latent_channels;
    uint64_t text = (uint64_t)t->clip.tokens * t->clip.dim, pixels = largest(t, false) * 3;
    struct {
        float **at;
        uint64_t count;
    } parts[] = {{&t->moments, 2 * latent},
                 {&t->sample, t->diffuses ? batch * latent : 0},
                 {&t->target, t->diffuses ? batch * latent : 0},
                 {&t->weight, batch},
                 {&t->time, batch * t->steps[0].unet.channels[0]},
                 {&t->context, t->diffuses ? batch * text : 0},
                 {&t->image, t->diffuses ? 0 : batch * pixels},
                 {&t->variation, t->diffuses ? 0 : batch * latent}};
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
    return RN_OK;
}

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
    if (s == RN_OK) s = take_buffers(t);
    if (s == RN_OK) s = rn_trainer_create_job(&t->options.trainer, &t->job, &t->trainer);
    if (s == RN_OK && t->diffuses && !t->lora && !t->steps[0].unet.linear_projection)
        name_kernels(t);
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
    rn_checkpoint_close(t->latents);
    rn_free(RN_HOST_OTHER, t->block, t->block_bytes);
    rn_arena_free_all(&t->memory);
    rn_free(RN_HOST_OTHER, t, sizeof *t);
}

rn_trainer *rn_image_trainer_get(rn_image_trainer *trainer) {
    return trainer->trainer;
}

// ---- a batch ------------------------------------------------------------------------------------

static rn_status load_cached(const rn_image_trainer *t, const char *kind, uint64_t number,
                             float *out, uint64_t count) {
    char name[48];
    snprintf(name, sizeof name, "%s.%llu", kind, (unsigned long long)number);
    const rn_tensor_info *info = rn_checkpoint_find(t->latents, name);
    if (!info) return rn_fail(RN_CORRUPT, "the cache has no '%s'", name);
    return rn_checkpoint_load(t->latents, info, RN_DTYPE_F32, out, count * sizeof(float));
}

// Sample `i` of the batch; `number` counts the samples of the training.
static rn_status fill_diffusion(rn_image_trainer *t, uint32_t bucket, uint32_t i, uint64_t number,
                                uint64_t seed, bool drops) {
    const rn_unet_config *u = &t->steps[bucket].unet;
    uint32_t channels = t->latent_channels;
    uint64_t pixels = (uint64_t)u->height * u->width, count = pixels * channels;
    uint64_t text = (uint64_t)t->clip.tokens * t->clip.dim, picture = t->numbers[i];
    float *latent = t->moments;
    RN_TRY(load_cached(t, "latent", picture, t->moments, 2 * count));
    for (uint64_t k = 0; k < pixels; k++) // (pixels, 2 * channels) to (pixels, channels), in place
        for (uint32_t c = 0; c < channels; c++) {
            double mean = t->moments[k * 2 * channels + c];
            double logarithm = t->moments[k * 2 * channels + channels + c];
            double deviation = exp(fmin(fmax(logarithm, -30), 20) / 2);
            uint64_t element = number * count + k * channels + c;
            double z = mean + deviation * rn_philox_normal(seed, STREAM_VARIATION, element);
            latent[k * channels + c] = (float)((z - t->shift) * t->scaling);
        }
    rn_noisy noisy = rn_train_noise_add(&t->noise, seed, number, latent, pixels, channels,
                                        t->sample + i * count, t->target + i * count);
    t->weight[i] = noisy.weight;
    rn_sinusoid(noisy.time, u->channels[0], t->time + (uint64_t)i * u->channels[0]);
    bool dropped = drops && rn_philox_unit(rn_philox_word(seed, STREAM_DROP, number)) <
                                (float)t->options.caption_dropout;
    uint64_t which =
        dropped ? t->text_of[rn_pictures_get_info(t->pictures)->count] : t->text_of[picture];
    return load_cached(t, "text", which, t->context + i * text, text);
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

// *out_count inputs, of the bucket's shape.
static rn_status fill_batch(rn_image_trainer *t, bool validation, uint64_t step,
                            uint32_t *out_bucket, rn_trainer_input inputs[5], uint32_t *out_count) {
    uint64_t batch = t->options.trainer.batch;
    uint64_t seed = validation ? EVALUATION_SEED : t->options.trainer.seed;
    RN_TRY(
        rn_pictures_batch(t->pictures, validation, step, (uint32_t)batch, t->numbers, out_bucket));
    for (uint32_t i = 0; i < batch; i++)
        RN_TRY(t->diffuses ? fill_diffusion(t, *out_bucket, i, step * batch + i, seed, !validation)
                           : fill_autoencoder(t, *out_bucket, i, step * batch + i, seed));
    const rn_image_step_config *c = &t->steps[*out_bucket];
    uint64_t latent = batch * c->vae.height * c->vae.width * t->latent_channels * sizeof(float);
    if (!t->diffuses) {
        uint64_t image = latent / t->latent_channels * t->factor * t->factor * 3;
        inputs[0] = (rn_trainer_input){"image", t->image, image};
        inputs[1] = (rn_trainer_input){"variation", t->variation, latent};
        *out_count = 2;
        return RN_OK;
    }
    inputs[0] = (rn_trainer_input){"sample", t->sample, latent};
    inputs[1] = (rn_trainer_input){"target", t->target, latent};
    inputs[2] = (rn_trainer_input){"weight", t->weight, batch * sizeof(float)};
    inputs[3] = (rn_trainer_input){"time", t->time, batch * c->unet.channels[0] * sizeof(float)};
    inputs[4] = (rn_trainer_input){"context", t->context,
                                   batch * t->clip.tokens * t->clip.dim * sizeof(float)};
    *out_count = 5;
    return RN_OK;
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
    rn_trainer_input inputs[5];
    uint32_t count = 0, bucket = 0;
    *out_loss = 0;
    RN_TRY(fill_batch(t, false, rn_trainer_batches(t->trainer), &bucket, inputs, &count));
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
        rn_trainer_input inputs[5];
        uint32_t count = 0, bucket = 0;
        float loss = 0;
        RN_TRY(fill_batch(t, true, i, &bucket, inputs, &count));
        RN_TRY(rn_trainer_evaluate_job(t->trainer, bucket, inputs, count, &loss));
        sum += (double)loss;
    }
    if (!batches) return rn_fail(RN_INVALID, "no picture is set apart for validation");
    *out_loss = (float)(sum / (double)batches);
    return RN_OK;
}
