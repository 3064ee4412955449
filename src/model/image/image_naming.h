// image_naming.h — what files call the weights of image networks.
//
// Graphs name weights as diffusers (and transformers) do. Other files have other names for the same
// tensors, and some have several weights in one tensor:
//
//     diffusers                                        SGM (Stability's single files)
//     down_blocks.1.attentions.0.proj_in.weight        input_blocks.4.1.proj_in.weight
//     diffusers                                        BFL (Black Forest Labs)
//     transformer_blocks.3.attn.to_k.weight            double_blocks.3.img_attn.qkv.weight, rows D
//     to 2 D
//
// Adapters use the same names, with "." or "_" between their parts: the same table serves both.
#ifndef RN_MODEL_IMAGE_NAMING_H
#define RN_MODEL_IMAGE_NAMING_H

#include "model/image/image_networks.h"

typedef enum rn_image_naming {
    RN_IMAGE_DIFFUSERS,
    RN_IMAGE_DIFFUSERS_OLD, // VAEs: query, key, value, proj_attn
    RN_IMAGE_BARE,          // CLIP without "text_model."
    RN_IMAGE_SGM,
    RN_IMAGE_OPEN_CLIP, // text encoders within SGM files
    RN_IMAGE_BFL,
    RN_IMAGE_TAESD, // of the original: layers by number
    RN_IMAGE_GGUF,  // T5, as llama.cpp names it
    RN_IMAGE_NAMINGS
} rn_image_naming;

typedef enum rn_image_kind {
    RN_IMAGE_VAE,
    RN_IMAGE_TINY_VAE,
    RN_IMAGE_UNET,
    RN_IMAGE_FLUX,
    RN_IMAGE_CLIP,
    RN_IMAGE_T5,
    RN_IMAGE_PIXEL_DDPM,
    RN_IMAGE_KINDS
} rn_image_kind;

// What the names of a network depend on.
typedef struct rn_image_names {
    rn_image_kind kind;
    rn_image_naming naming;
    uint32_t levels, layers;         // of a UNet or VAE
    uint32_t depth[RN_IMAGE_LEVELS]; // of a UNet: of each level, where 0 there is no attention
    uint64_t dim;                    // of a transformer: fused tensors have rows in its multiples
} rn_image_names;

// A module ("down_blocks.0.resnets.1.conv1") or one of its weights ("....weight"), under the
// naming: `tensor` is its name there, first_row and tensor_rows which rows of it (tensor_rows 0:
// all). `turned` and `swapped` as rn_image_place. False: that naming does not know it.
bool rn_image_rename(const rn_image_names *names, const char *weight, rn_image_place *out);

#endif
