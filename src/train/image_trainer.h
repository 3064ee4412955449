// image_trainer.h — the parts of an image trainer, for its own files.
#ifndef RN_TRAIN_IMAGE_TRAINER_H
#define RN_TRAIN_IMAGE_TRAINER_H

#include <ration/tokenizer.h>
#include <ration/train_images.h>

#include "model/image/image_component.h"
#include "train/train_noise.h"
#include "train/pictures.h"
#include "train/trainer.h"

enum { RN_IMAGE_PATH = 4096 };

// The forward pass of an objective over batches of one bucket.
typedef struct rn_image_step_config {
    rn_vae_config vae;   // of an autoencoder
    rn_unet_config unet; // of diffusion
    float kl;
} rn_image_step_config;

// Additions to a denoiser (image_lora.c). It stays where it is while recipes live.
typedef struct rn_image_lora_part {
    rn_low_rank low_rank;
    const char *weight, *module; // "mid_block...to_q.weight", without ".weight"
} rn_image_lora_part;
typedef struct rn_image_lora {
    rn_image_component component; // the base
    rn_image_files files;         // its, with the additions
    rn_image_lora_part *parts;    // (count)
    uint32_t count, rank;
    float alpha, scale;
    const char *const *targets; // (target_count), borrowed while it is made
    size_t target_count;
} rn_image_lora;

struct rn_image_trainer {
    const rn_pictures *pictures;
    rn_image_train_options options;
    bool diffuses; // "diffusion", not "autoencoder"
    char folder[RN_IMAGE_PATH], cache[RN_IMAGE_PATH];
    rn_train_noise noise;
    rn_clip_config clip;
    rn_image_step_config steps[RN_PICTURE_BUCKETS];
    uint32_t latent_channels, factor;
    float scaling, shift;
    rn_checkpoint *files; // of the part that is trained; NULL: it is drawn
    rn_image_lora *lora;  // or NULL
    rn_trainer_job job;
    rn_trainer *trainer;
    // diffusion:
    rn_checkpoint *latents; // the cache: "latent.N", "text.N"
    uint64_t *text_of;      // (pictures): which text; behind them the empty one
    uint64_t text_count;
    // A batch.
    void *block;
    size_t block_bytes;
    float *moments, *sample, *target, *weight, *time, *context, *image, *variation;
    uint64_t *numbers; // (batch)
    // Averages of the weights, one behind the other; NULL: none.
    float *average, *scratch;
    uint64_t average_count;
    // autoencoder: of the latents of the last steps.
    double latent_mean, latent_square;
    rn_arena memory;
};

// The objective's forward pass (image_objectives.c).
rn_forward rn_image_step_forward(const rn_image_step_config *config, bool diffuses);
// The first values of a weight (image_objectives.c), as PyTorch begins its layers.
float rn_image_first(void *self, const char *name, rn_shape shape, uint64_t seed, uint32_t number,
                     uint64_t element);

// Latents and embeddings (image_cache.c): which text a picture has; the program; making them.
RN_MUST_USE rn_status rn_image_cache_texts(rn_image_trainer *t);
RN_MUST_USE rn_status rn_image_cache_plan(rn_image_trainer *t, rn_program **out);
RN_MUST_USE rn_status rn_image_cache_open(rn_image_trainer *t);

// RN_INVALID names a target without a weight. Memory is the arena's.
RN_MUST_USE rn_status rn_image_lora_init(rn_image_lora *lora, rn_arena *memory,
                                         const rn_unet_config *config, const rn_checkpoint *files,
                                         const rn_lora_options *options);
// pytorch_lora_weights.safetensors and lora_kohya.safetensors.
RN_MUST_USE rn_status rn_image_lora_export(rn_image_trainer *t, const char *folder);

// "folder/part/name".
RN_MUST_USE rn_status rn_image_part_path(const char *folder, const char *part, const char *name,
                                         char out[RN_IMAGE_PATH]);
// The weights of a part; NULL: its folder has none.
RN_MUST_USE rn_status rn_image_part_weights(const char *folder, const char *part,
                                            rn_checkpoint **out);
// Exchanges the weights with their averages.
RN_MUST_USE rn_status rn_image_swap_averages(rn_image_trainer *t);

#endif
