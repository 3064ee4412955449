// image_objectives.c — what image networks are trained by.
//
//     diffusion    mse(weight * denoiser(sample, time, context), target): the target comes times
//                  the weight, the root of what the sample counts
//     autoencoder  mse(decode(mean + exp(logvar / 2) * variation), image) + kl * KL
#include "train/image_trainer.h"

#include "base/str.h"
#include "graph/philox.h"

#include <math.h>

static rn_forward denoiser_of(const rn_image_step_config *c) {
    return c->kind == RN_IMAGE_FLUX ? rn_flux_forward(&c->flux) : rn_unet_forward(&c->unet);
}

// XL was trained, and draws, with zeros for an empty caption.
static rn_value keep_told(rn_graph *g, rn_value x, rn_value keep) {
    return keep == RN_NO_VALUE || x == RN_NO_VALUE ? x : rn_op_mul(g, x, keep);
}

// The answers of text encoders that are trained, as `to` reads them in the place of inputs:
//
//     tokens ─ CLIP ─ hidden ┬─ * keep ─ context        pooled ─ * keep ┬─ added (XL), pooled
//     (Flux) tokens ─ CLIP ─ hidden ┘                          sizes ──────────┘
static void write_texts(rn_graph *g, uint32_t batch, rn_image_step_config *to) {
    rn_value hidden[RN_TEXT_ENCODERS], pooled = RN_NO_VALUE, keep = RN_NO_VALUE;
    uint32_t count = 0;
    if (to->drops) keep = rn_graph_input(g, "keep", RN_DTYPE_F32, RN_SHAPE(batch, 1, 1));
    for (uint32_t i = 0; i < RN_TEXT_ENCODERS; i++) {
        const rn_image_embedding *e = &to->text[i].gives;
        if (!e->trained) continue;
        rn_clip_answer said = rn_clip_within(g, &to->text[i].clip, batch, rn_image_text_prefix(i),
                                             e->gives_context, e->gives_pooled);
        if (e->gives_context) hidden[count++] = keep_told(g, said.hidden, keep);
        if (e->gives_pooled)
            pooled = rn_op_reshape(g, keep_told(g, said.pooled, keep), RN_SHAPE(batch, e->pooled));
    }
    to->flux.pooled = pooled;
    if (count) to->unet.context = count > 1 ? rn_op_concat(g, hidden, count, 2) : hidden[0];
    if (pooled == RN_NO_VALUE || to->kind == RN_IMAGE_FLUX) return;
    rn_value sizes = rn_graph_input(g, "sizes", RN_DTYPE_F32,
                                    RN_SHAPE(batch, RN_IMAGE_SIZES * to->unet.added_time_dim));
    to->unet.added = rn_op_concat(g, (rn_value[]){pooled, sizes}, 2, 1);
}

static rn_status write_diffusion(rn_graph *g, const void *config, uint32_t batch,
                                 rn_forward_values *out) {
    rn_image_step_config c = *(const rn_image_step_config *)config;
    write_texts(g, batch, &c);
    rn_forward denoiser = denoiser_of(&c);
    rn_forward_values values = {0};
    RN_TRY(denoiser.write(g, denoiser.config, batch, &values));
    if (values.logits == RN_NO_VALUE) return rn_graph_finish(g);
    rn_shape shape = rn_graph_value(g, values.logits)->shape, one = shape;
    for (uint32_t i = 1; i < one.rank; i++)
        one.dims[i] = 1;
    rn_value weight = rn_graph_input(g, "weight", RN_DTYPE_F32, one);
    rn_value target = rn_graph_input(g, "target", RN_DTYPE_F32, shape);
    out->loss = rn_op_mse(g, rn_op_mul(g, values.logits, weight), target);
    return RN_OK;
}

static rn_status check_diffusion(const void *config, bool training) {
    rn_forward denoiser = denoiser_of(config);
    return denoiser.check(denoiser.config, training);
}

// 1/2 (mean² + variance - 1 - log variance), the mean over all latents: the divergence from a
// standard normal distribution.
static rn_value divergence(rn_graph *g, rn_value mean, rn_value logarithm, rn_value variance) {
    rn_value sum = rn_op_add(g, rn_op_mul(g, mean, mean), rn_op_sub(g, variance, logarithm));
    return rn_op_scale(g, rn_op_mean(g, sum, 15, false), 0.5f, -0.5f);
}

static rn_status write_autoencoder(rn_graph *g, const void *config, uint32_t batch,
                                   rn_forward_values *out) {
    const rn_image_step_config *c = config;
    const rn_vae_config *v = &c->vae;
    uint64_t factor = rn_vae_factor(v), channels = v->latent_channels;
    rn_value image =
        rn_graph_input(g, "image", RN_DTYPE_F32,
                       RN_SHAPE(batch, v->height * factor, v->width * factor, v->image_channels));
    rn_value variation = rn_graph_input(g, "variation", RN_DTYPE_F32,
                                        RN_SHAPE(batch, v->height, v->width, channels));
    rn_value moments = rn_vae_encode(g, v, image);
    rn_graph_block(g, "latent");
    rn_value mean = rn_op_slice(g, moments, 3, 0, channels);
    rn_value logarithm = rn_op_clamp(g, rn_op_slice(g, moments, 3, channels, channels), -30, 20);
    rn_value deviation = rn_op_exp(g, rn_op_scale(g, logarithm, 0.5f, 0));
    rn_value latent = rn_op_add(g, mean, rn_op_mul(g, deviation, variation));
    rn_graph_output(g, rn_op_mean(g, latent, 15, false), "latent_mean");
    rn_graph_output(g, rn_op_mean(g, rn_op_mul(g, latent, latent), 15, false), "latent_square");
    rn_value kl = divergence(g, mean, logarithm, rn_op_mul(g, deviation, deviation));
    rn_value error = rn_op_mse(g, rn_vae_decode(g, v, latent), image);
    out->loss = rn_op_add(g, error, rn_op_scale(g, kl, c->kl, 0));
    return RN_OK;
}

rn_forward rn_image_step_forward(const rn_image_step_config *config, bool diffuses) {
    return (rn_forward){.write = diffuses ? write_diffusion : write_autoencoder,
                        .check = diffuses ? check_diffusion : NULL,
                        .config = config,
                        .config_bytes = sizeof *config};
}

// Norms begin with 1 and 0; kernels and matrices, as PyTorch's layers do, uniform within 1 / sqrt
// of their inputs; tables of embeddings normal with a deviation of 0.02.
float rn_image_first(void *self, const char *name, rn_shape shape, uint64_t seed, uint32_t number,
                     uint64_t element) {
    (void)self;
    rn_str text = rn_str_from(name);
    if (rn_str_ends(text, RN_STR(".up"))) return 0; // of an addition
    if (shape.rank == 1) return rn_str_ends(text, RN_STR(".weight")) ? 1 : 0;
    if (rn_str_ends(text, RN_STR("_embedding.weight")))
        return 0.02f * rn_philox_normal(seed, number, element);
    uint64_t inputs = 1;
    for (uint32_t i = 1; i < shape.rank; i++)
        inputs *= shape.dims[i];
    float within = 1 / sqrtf((float)inputs);
    return within * (2 * rn_philox_unit(rn_philox_word(seed, number, element)) - 1);
}
