// image_model.c — what is trained of an image model: its parts, their sizes for every bucket, and
// the job that a trainer carries out.
#include "train/image_trainer.h"

#include "base/file.h"
#include "base/str.h"
#include "io/checkpoint.h"

#include <stdio.h>
#include <string.h>

rn_status rn_image_part_path(const char *folder, const char *part, const char *name,
                             char out[RN_IMAGE_PATH]) {
    char inner[RN_IMAGE_PATH];
    RN_TRY(rn_path_join(folder, part, inner, sizeof inner));
    return rn_path_join(inner, name, out, RN_IMAGE_PATH);
}

// ---- an autoencoder -----------------------------------------------------------------------------

static rn_status read_vae_config(const char *folder, rn_vae_config *out) {
    char path[RN_IMAGE_PATH];
    rn_fields fields;
    RN_TRY(rn_image_part_path(folder, "vae", "config.json", path));
    if (!rn_file_exists(path))
        return rn_hint(rn_error_locate(rn_fail(RN_NOT_FOUND, "the model has no vae/config.json"),
                                       folder, RN_NO_OFFSET),
                       "an autoencoder is trained in a folder as diffusers writes it: "
                       "model_index.json, unet, vae, text_encoder, tokenizer, scheduler");
    rn_fields_init(&fields, "vae/config.json");
    rn_status s = rn_fields_read_file(&fields, path);
    if (s == RN_OK) s = rn_vae_config_read(&fields, out);
    rn_fields_free(&fields);
    return s;
}

static rn_status read_vae(rn_image_trainer *t, rn_image_step_config *c) {
    char folder[RN_IMAGE_PATH];
    RN_TRY(read_vae_config(t->folder, &c->vae));
    RN_TRY(rn_path_join(t->folder, "vae", folder, sizeof folder));
    if (rn_diffusion_has_weights(folder)) RN_TRY(rn_checkpoint_open(folder, &t->files));
    t->job.weights.checkpoint = t->files;
    return RN_OK;
}

// ---- a denoiser ---------------------------------------------------------------------------------

static rn_status size_unet(rn_image_trainer *t, rn_unet_config *u) {
    const rn_diffusion *m = t->model;
    u->context_tokens = t->context_tokens = m->text[0].config.clip.tokens;
    t->context_channels = u->context_channels;
    if (u->guidance_channels)
        return rn_fail(RN_UNSUPPORTED, "training of a UNet with distilled guidance is not built");
    if (u->in_channels != t->latent_channels || u->out_channels != t->latent_channels)
        return rn_fail(
            RN_UNSUPPORTED,
            "training of a denoiser of %u to %u channels over latents of %u is not built",
            u->in_channels, u->out_channels, t->latent_channels);
    if (!u->added_channels) return RN_OK;
    t->pooled_channels = t->text[1].pooled;
    if (t->pooled_channels + 6 * u->added_time_dim != u->added_channels)
        return rn_fail(RN_INVALID, "a pooled text of %u channels does not suit this UNet",
                       t->pooled_channels);
    return RN_OK;
}

static rn_status size_flux(rn_image_trainer *t, rn_flux_config *f) {
    t->context_tokens = f->context_tokens;
    t->context_channels = f->context_channels;
    t->pooled_channels = t->text[0].pooled;
    if (t->pooled_channels != f->pooled_channels)
        return rn_fail(RN_INVALID, "the pooled text has %u channels, the transformer reads %u",
                       t->pooled_channels, f->pooled_channels);
    return RN_OK;
}

// Of Stable Diffusion's encoder the rows, of XL's the rows of both and the second's pooled one, of
// Flux's CLIP's pooled row and T5's rows.
static void read_texts(rn_image_trainer *t) {
    const rn_diffusion *m = t->model;
    bool flux = m->family == RN_FAMILY_FLUX, xl = m->family == RN_FAMILY_SDXL;
    for (uint32_t i = 0; i < m->text_count; i++) {
        const rn_image_component *c = &m->text[i];
        const rn_clip_config *clip = &c->config.clip;
        rn_image_embedding *text = &t->text[i];
        if (c->kind == RN_IMAGE_T5) {
            *text = (rn_image_embedding){.length = m->denoiser.config.flux.context_tokens,
                                         .dim = c->config.t5.dim,
                                         .gives_context = true};
            continue;
        }
        *text = (rn_image_embedding){.length = clip->tokens,
                                     .dim = clip->dim,
                                     .pooled = clip->projection ? clip->projection : clip->dim,
                                     .gives_context = !flux,
                                     .gives_pooled = flux || (xl && i == 1),
                                     .trained = t->options.text_encoders};
    }
}

// A weight that is trained is f32, whatever the files have.
static bool place_trained(const void *self, const char *weight, rn_image_place *out) {
    const rn_image_component *c = self;
    if (!c->files.place(c->files.self, weight, out)) return false;
    out->dtype = RN_DTYPE_F32;
    return true;
}

// A step reads the weights of all its networks from one checkpoint: of a folder's parts a joined
// one, in which text encoders have their prefix.
static rn_status join_parts(rn_image_trainer *t) {
    const rn_diffusion *m = t->model;
    const rn_checkpoint *parts[RN_IMAGE_LORAS] = {m->denoiser.checkpoint};
    const char *prefixes[RN_IMAGE_LORAS] = {""};
    size_t count = 1;
    for (uint32_t i = 0; i < m->text_count; i++)
        if (t->text[i].trained && m->text[i].checkpoint != m->denoiser.checkpoint) {
            prefixes[count] = rn_image_text_prefix(i);
            parts[count++] = m->text[i].checkpoint;
        }
    if (count > 1) RN_TRY(rn_checkpoint_join(parts, prefixes, count, &t->joined));
    for (uint32_t i = 0; i < m->text_count; i++) {
        bool apart = m->text[i].checkpoint != m->denoiser.checkpoint;
        if (t->text[i].trained)
            rn_image_component_within(&m->text[i], apart ? t->joined : m->denoiser.checkpoint,
                                      apart ? rn_image_text_prefix(i) : "", &t->encoders[i]);
    }
    return RN_OK;
}

// The models' own weights stay as they are, and additions to them are trained.
static rn_status adapt(rn_image_trainer *t, rn_image_step_config *c) {
    if (t->options.text_encoders && t->model->denoiser.checkpoint) RN_TRY(join_parts(t));
    RN_TRY(rn_image_lora_init(t));
    t->job.drawn = t->options.trainer.trained = RN_LORA_TRAINED;
    uint32_t next = 1;
    for (uint32_t i = 0; i < t->model->text_count; i++) {
        if (!t->text[i].trained) continue;
        c->text[i] = (rn_image_step_text){.gives = t->text[i], .clip = t->encoders[i].config.clip};
        c->text[i].clip.files = &t->lora[next++].files;
    }
    c->drops =
        t->options.text_encoders && t->model->family == RN_FAMILY_SDXL && t->model->zero_negative;
    return RN_OK;
}

// Where the step finds its weights: NULL, nowhere, they are drawn.
static rn_status choose_files(rn_image_trainer *t, rn_image_step_config *step,
                              const rn_image_files **out) {
    const rn_image_component *c = &t->model->denoiser;
    *out = NULL;
    if (t->options.lora) {
        RN_TRY(adapt(t, step));
        *out = &t->lora->files;
    } else if (c->checkpoint) {
        if (!rn_file_is_folder(t->folder))
            return rn_hint(rn_fail(RN_UNSUPPORTED, "the weights of a single file are not trained "
                                                   "themselves"),
                           "--method lora, or the model's folder as diffusers has it");
        t->trained = (rn_image_files){.self = c, .place = place_trained, .trained = true};
        *out = &t->trained;
    }
    if (c->checkpoint) t->job.weights = rn_image_component_weights(c);
    if (t->joined) t->job.weights.checkpoint = t->joined;
    return RN_OK;
}

static rn_status read_denoiser(rn_image_trainer *t, rn_image_step_config *c) {
    rn_diffusion_options parts = {.vae = t->options.vae,
                                  .text_encoder = t->options.text_encoder,
                                  .text_encoder_2 = t->options.text_encoder_2,
                                  .tokenizer = t->options.tokenizer,
                                  .tokenizer_2 = t->options.tokenizer_2,
                                  .prediction = t->options.prediction};
    RN_TRY(rn_diffusion_open_to_train(t->folder, &parts, t->options.denoiser, &t->model));
    const rn_diffusion *m = t->model;
    if (m->vae.kind != RN_IMAGE_VAE)
        return rn_fail(RN_UNSUPPORTED,
                       "latents of a %s are not trained on; the model's own "
                       "autoencoder makes them",
                       rn_image_kind_name(m->vae.kind));
    c->vae = m->vae.config.vae;
    c->vae.files = NULL;
    c->kind = m->denoiser.kind;
    t->latent_channels = rn_diffusion_channels(m);
    RN_TRY(rn_train_noise_init(&m->schedule, &t->noise));
    t->noise.min_snr = t->options.min_snr;
    t->noise.offset = t->options.offset_noise;
    t->noise.uniform = t->options.uniform_times;
    read_texts(t);
    const rn_image_files *files = NULL;
    RN_TRY(choose_files(t, c, &files));
    c->unet.files = NULL;
    if (c->kind == RN_IMAGE_FLUX) {
        c->flux = m->denoiser.config.flux;
        c->flux.files = files;
        return size_flux(t, &c->flux);
    }
    c->unet = m->denoiser.config.unet;
    c->unet.files = files;
    return size_unet(t, &c->unet);
}

// ---- the job ------------------------------------------------------------------------------------

static rn_status make_forward(void *self, uint32_t shape, rn_forward *out) {
    const rn_image_trainer *t = self;
    *out = rn_image_step_forward(&t->steps[shape], t->diffuses);
    return RN_OK;
}

static rn_status size_bucket(rn_image_trainer *t, uint32_t i, rn_image_step_config c) {
    const rn_picture_bucket *b = &rn_pictures_get_info(t->pictures)->buckets[i];
    uint32_t multiple = t->factor * (rn_image_is_flux(t) ? 2 : 1);
    if (b->width % multiple || b->height % multiple)
        return rn_fail(RN_INVALID, "pictures of %u x %u: sides must be multiples of %u", b->width,
                       b->height, multiple);
    c.vae.height = c.unet.height = b->height / t->factor;
    c.vae.width = c.unet.width = b->width / t->factor;
    c.flux.height = c.unet.height / 2;
    c.flux.width = c.unet.width / 2;
    t->steps[i] = c;
    snprintf(t->job.names[i], sizeof t->job.names[i], "%ux%u", b->width, b->height);
    return RN_OK;
}

rn_status rn_image_model_read(rn_image_trainer *t) {
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    rn_image_step_config c = {.kl = (float)(t->options.kl > 0 ? t->options.kl : 1e-6),
                              .kind = RN_IMAGE_UNET};
    t->job = (rn_trainer_job){
        .self = t, .shapes = info->bucket_count, .forward = make_forward, .first = rn_image_first};
    RN_TRY(t->diffuses ? read_denoiser(t, &c) : read_vae(t, &c));
    t->latent_channels = c.vae.latent_channels;
    t->factor = rn_vae_factor(&c.vae);
    t->scaling = c.vae.scaling;
    t->shift = c.vae.shift;
    for (uint32_t i = 0; i < info->bucket_count; i++)
        RN_TRY(size_bucket(t, i, c));
    return t->diffuses ? rn_image_cache_texts(t) : RN_OK;
}
