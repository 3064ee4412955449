// image_trainer.h — the parts of an image trainer, for its own files.
#ifndef RN_TRAIN_IMAGE_TRAINER_H
#define RN_TRAIN_IMAGE_TRAINER_H

#include <ration/train_images.h>

#include "diffuse/diffusion.h"
#include "train/train_noise.h"
#include "train/pictures.h"
#include "train/trainer.h"

enum { RN_IMAGE_PATH = 4096 };

// What of a text encoder's answer the denoiser reads. One that is trained answers in every step,
// the others once.
typedef struct rn_image_embedding {
    uint32_t length, dim, pooled; // tokens, channels of each, of the pooled row
    bool gives_context, gives_pooled, trained;
} rn_image_embedding;

// A text encoder that is a part of the step.
typedef struct rn_image_step_text {
    rn_image_embedding gives; // what it is there for
    rn_clip_config clip;
} rn_image_step_text;

// The forward pass of an objective over batches of one bucket.
typedef struct rn_image_step_config {
    rn_vae_config vae;  // of an autoencoder
    rn_image_kind kind; // of the denoiser: RN_IMAGE_UNET, RN_IMAGE_FLUX
    rn_unet_config unet;
    rn_flux_config flux;
    rn_image_step_text text[RN_TEXT_ENCODERS];
    bool drops; // XL: an empty caption is zeros, by the input "keep"
    float kl;
} rn_image_step_config;

// Additions to a denoiser or a text encoder (image_lora.c). It stays where it is while recipes
// live.
typedef struct rn_image_lora_part {
    rn_low_rank low_rank;
    const char *weight, *module; // "mid_block...to_q.weight", without ".weight"
    uint64_t out;                // rows of the weight
} rn_image_lora_part;
typedef struct rn_image_lora {
    const rn_image_component *base;
    const rn_image_embedding *text; // of a text encoder; NULL: the denoiser
    const char *prefix;             // of a text encoder's names in the graph; ""
    rn_image_files files;           // the base's, with the additions
    rn_image_lora_part *parts;      // (count)
    uint32_t count, rank;
    float alpha, scale;
    const char *const *targets; // (target_count), borrowed while it is made
    size_t target_count;
} rn_image_lora;

enum {
    RN_IMAGE_INPUTS = 16, // of a step, at most
    RN_IMAGE_LORAS = 1 + RN_TEXT_ENCODERS,
    RN_IMAGE_SIZES = 6 // that XL is told
};

struct rn_image_trainer {
    const rn_pictures *pictures;
    rn_image_train_options options;
    bool diffuses; // "diffusion", not "autoencoder"
    char folder[RN_IMAGE_PATH], cache[RN_IMAGE_PATH];
    rn_diffusion *model; // of diffusion
    rn_train_noise noise;
    rn_image_embedding text[RN_TEXT_ENCODERS];
    uint32_t context_tokens, context_channels, pooled_channels;
    rn_image_step_config steps[RN_PICTURE_BUCKETS];
    uint32_t latent_channels, factor;
    float scaling, shift;
    rn_checkpoint *files;               // of a VAE that is trained; NULL: it is drawn
    rn_image_files trained;             // of a denoiser whose own weights are
    rn_image_lora lora[RN_IMAGE_LORAS]; // of the denoiser, then of text encoders; or none
    uint32_t lora_count;
    // Of a step with text encoders: those, over a checkpoint of all parts (NULL: one file has all).
    rn_image_component encoders[RN_TEXT_ENCODERS];
    rn_checkpoint *joined;
    rn_trainer_job job;
    rn_trainer *trainer;
    // diffusion:
    rn_checkpoint *latents; // the cache: "latent.N", "text.N", "text_2.N", "pooled.N"
    uint64_t *text_of;      // (pictures): which text; behind them the empty one
    uint64_t text_count;
    // A batch (image_batch.c).
    void *block;
    size_t block_bytes;
    float *moments, *sample, *target, *weight, *time, *context, *scratch_text, *pooled, *added,
        *guidance, *image, *variation;
    float *pool[RN_TEXT_ENCODERS], *keep; // of encoders that are trained; (batch)
    int32_t *tokens[RN_TEXT_ENCODERS], *positions;
    uint64_t *numbers; // (batch)
    // Averages of the weights, one behind the other; NULL: none.
    float *average, *scratch;
    uint64_t average_count;
    // autoencoder: of the latents of the last steps.
    double latent_mean, latent_square;
    rn_arena memory;
};

// What the options and the files say (image_model.c): model, sizes of every bucket, the job.
RN_MUST_USE rn_status rn_image_model_read(rn_image_trainer *t);
static inline bool rn_image_is_flux(const rn_image_trainer *t) {
    return t->diffuses && t->model->family == RN_FAMILY_FLUX;
}

// Batches (image_batch.c): their memory; the inputs of batch `step`, of one bucket.
RN_MUST_USE rn_status rn_image_batch_take(rn_image_trainer *t);
RN_MUST_USE rn_status rn_image_batch_fill(rn_image_trainer *t, bool validation, uint64_t step,
                                          uint32_t *out_bucket,
                                          rn_trainer_input inputs[RN_IMAGE_INPUTS],
                                          uint32_t *out_count);

// The objective's forward pass (image_objectives.c).
rn_forward rn_image_step_forward(const rn_image_step_config *config, bool diffuses);
// The first values of a weight (image_objectives.c), as PyTorch begins its layers.
float rn_image_first(void *self, const char *name, rn_shape shape, uint64_t seed, uint32_t number,
                     uint64_t element);

// Latents and embeddings (image_cache.c): which text a picture has; the program; making them.
RN_MUST_USE rn_status rn_image_cache_texts(rn_image_trainer *t);
RN_MUST_USE rn_status rn_image_cache_plan(rn_image_trainer *t, rn_program **out);
RN_MUST_USE rn_status rn_image_cache_open(rn_image_trainer *t);

// The names of text encoder number `encoder` in a step's graph begin with it: "text_encoder.".
const char *rn_image_text_prefix(uint32_t encoder);
// t->lora. RN_INVALID names a target without a weight.
RN_MUST_USE rn_status rn_image_lora_init(rn_image_trainer *t);
// pytorch_lora_weights.safetensors and lora_kohya.safetensors.
RN_MUST_USE rn_status rn_image_lora_export(rn_image_trainer *t, const char *folder);

// "folder/part/name".
RN_MUST_USE rn_status rn_image_part_path(const char *folder, const char *part, const char *name,
                                         char out[RN_IMAGE_PATH]);
// Exchanges the weights with their averages.
RN_MUST_USE rn_status rn_image_swap_averages(rn_image_trainer *t);

#endif
