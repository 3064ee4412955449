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

enum { RN_DIFFUSION_FILES = 7, RN_TEXT_ENCODERS = 2 };

struct rn_diffusion {
    char name[64];
    rn_diffusion_family family;
    rn_image_component denoiser, vae;
    rn_image_component preview; // a decoder, where has_preview
    bool has_preview;
    rn_image_component text[RN_TEXT_ENCODERS];
    uint32_t text_count;
    rn_tokenizer *tokenizers[RN_TEXT_ENCODERS];
    rn_checkpoint *files[RN_DIFFUSION_FILES]; // that components borrow
    uint32_t file_count;
    rn_schedule_config schedule;
    bool may_be_drawn;   // a denoiser without weights is none to be refused
    const char *instead; // while it is opened: a folder in the place of the denoiser's; or NULL
    bool zero_negative;  // XL: an empty negative prompt is zeros, not encoded
    rn_image_adapters adapters;
    rn_diffusion_info info;
};

// As rn_diffusion_open; a denoiser whose folder has a config.json alone has its sizes and no
// checkpoint: whoever trains it draws its weights. denoiser: a folder in the place of the model's
// own; or NULL.
RN_MUST_USE rn_status rn_diffusion_open_to_train(const char *path,
                                                 const rn_diffusion_options *options,
                                                 const char *denoiser, rn_diffusion **out);

// The tokens of a text for text encoder number `encoder`, and 1 where the pooled row is
// (prompt_tokens.c). RN_INVALID: a tokenizer of another model.
RN_MUST_USE rn_status rn_diffusion_tokens(const rn_diffusion *model, uint32_t encoder,
                                          const char *text, uint32_t length,
                                          int32_t *out_tokens /* (length) */,
                                          float *out_pool /* (length) */);
// Flux's patches: (high, wide, channels) as (high / 2 * wide / 2, channels * 2 * 2), and back.
void rn_flux_pack(const float *x, uint64_t high, uint64_t wide, uint64_t channels, bool unpack,
                  float *out);
// Whether a component's folder has weights (diffusion_pytorch_model, model: .safetensors, .bin).
bool rn_diffusion_has_weights(const char *folder);

// Pixels a latent, of a decoder and of the model's; channels of latents.
uint32_t rn_decoder_factor(const rn_image_component *decoder);
uint32_t rn_diffusion_factor(const rn_diffusion *model);
uint32_t rn_diffusion_channels(const rn_diffusion *model);

#endif
