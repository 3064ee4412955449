// diffusion.h — a diffusion model from the inside: its components and what goes with them.
#ifndef RN_DIFFUSE_DIFFUSION_H
#define RN_DIFFUSE_DIFFUSION_H

#include "diffuse/schedule.h"
#include "model/image/image_adapters.h"

#include <ration/tokenizer.h>

typedef enum rn_diffusion_family {
    RN_FAMILY_SD1,
    RN_FAMILY_SD2,
    RN_FAMILY_SDXL,
    RN_FAMILY_FLUX
} rn_diffusion_family;

enum { RN_DIFFUSION_FILES = 6, RN_TEXT_ENCODERS = 2 };

struct rn_diffusion {
    char name[64];
    rn_diffusion_family family;
    rn_image_component denoiser, vae;
    rn_image_component text[RN_TEXT_ENCODERS];
    uint32_t text_count;
    rn_tokenizer *tokenizers[RN_TEXT_ENCODERS];
    rn_checkpoint *files[RN_DIFFUSION_FILES]; // that components borrow
    uint32_t file_count;
    char paths[RN_DIFFUSION_FILES][256]; // where they lie, for the key of cached prompts
    rn_schedule_config schedule;
    bool zero_negative; // XL: an empty negative prompt is zeros, not encoded
    rn_image_adapters adapters;
    rn_diffusion_info info;
};

// Pixels a latent; channels of latents.
uint32_t rn_diffusion_factor(const rn_diffusion *model);
uint32_t rn_diffusion_channels(const rn_diffusion *model);

#endif
