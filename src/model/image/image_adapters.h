// image_adapters.h — LoRA files of image models: kohya's names, diffusers' (PEFT), BFL's.
//
//     lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight    kohya, with diffusers' names
//     lora_unet_input_blocks_1_1_proj_in.lora_down.weight              kohya, with SGM's
//     unet.down_blocks.0.attentions.0.proj_in.lora_A.weight            diffusers
//     diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight       BFL's
//
// Adapters are applied while the model runs, as two small products beside a weight: so the base may
// be of any type, resident or streamed. They lie in memory as f32.
#ifndef RN_MODEL_IMAGE_ADAPTERS_H
#define RN_MODEL_IMAGE_ADAPTERS_H

#include "base/arena.h"
#include "model/image/image_component.h"

typedef struct rn_image_addition {
    const char *component, *weight; // whose weight, by diffusers' name
    rn_low_rank low_rank;
    const float *down, *up; // (rank, in...), (out, rank): of a fused tensor the weight's own rows
    uint64_t down_bytes, up_bytes;
} rn_image_addition;

struct rn_image_adapters {
    rn_arena memory;
    rn_image_addition *list; // (count), in the order of the files
    uint32_t count, capacity;
    uint32_t unmatched; // tensors of files that no weight was found for
};

void rn_image_adapters_init(rn_image_adapters *adapters);
void rn_image_adapters_free(rn_image_adapters *adapters);
// A file for these components, `weight` times. RN_INVALID: none of its tensors belongs to them, and
// some of their names.
RN_MUST_USE rn_status rn_image_adapters_load(rn_image_adapters *adapters, const char *path,
                                             float weight, rn_image_component *const *components,
                                             uint32_t component_count);
// The addition number `index` to a component's weight; NULL: there are no more.
const rn_low_rank *rn_image_adapters_find(const rn_image_adapters *adapters, const char *component,
                                          const char *weight, uint32_t index);
// The bytes of a weight that an addition names.
const void *rn_image_adapters_weight(const rn_image_adapters *adapters, const char *name,
                                     rn_dtype dtype, uint64_t bytes);

#endif
