// image_component.h — one network of an image model, from its files: which kind it is, how its
// files name tensors, what sizes it has, and what adapters add to it.
//
//     files ─▶ configuration ─▶ graph ─▶ under which naming is every tensor there?
//
// A component does not move while a recipe of it lives.
#ifndef RN_MODEL_IMAGE_COMPONENT_H
#define RN_MODEL_IMAGE_COMPONENT_H

#include "model/image/image_naming.h"

#include <ration/session.h>

typedef struct rn_image_adapters rn_image_adapters; // image_adapters.h

typedef struct rn_image_component {
    char name[32]; // in its model: "unet", "text_encoder_2"
    rn_image_kind kind;
    const rn_checkpoint *checkpoint; // borrowed
    char prefix[64];                 // of its tensors' names
    rn_image_names names;
    rn_image_files files; // what the configurations point to
    union {
        rn_vae_config vae;
        rn_taesd_config taesd;
        rn_unet_config unet;
        rn_flux_config flux;
        rn_clip_config clip;
        rn_t5_config t5;
        rn_pixel_ddpm_config pixel;
    } config;
    const rn_image_adapters *adapters; // or NULL
    uint64_t weight_bytes, parameters;
} rn_image_component;

// What a component's graph is for.
typedef enum rn_image_part {
    RN_IMAGE_FORWARD, // of an autoencoder: the decoder
    RN_IMAGE_ENCODER, // of an autoencoder
    RN_IMAGE_PREPARE  // of a denoiser: what is the same in all steps, or known before them
} rn_image_part;

// From a checkpoint and a configuration (config.json's fields), or, where `fields` is NULL, with
// the sizes that are in component->config already. RN_NOT_FOUND names the first tensor that is not
// there under any naming; of an autoencoder's, those of the decoder.
RN_MUST_USE rn_status rn_image_component_open(rn_image_component *component, const char *name,
                                              rn_image_kind kind, const rn_checkpoint *checkpoint,
                                              const char *prefix, const rn_fields *fields);
// The same network, whose tensors are in another checkpoint with `prefix` before their names
// (rn_checkpoint_join). Without adapters.
void rn_image_component_within(const rn_image_component *component, const rn_checkpoint *checkpoint,
                               const char *prefix, rn_image_component *out);
// With the sizes in its configuration. RN_NOT_FOUND: an autoencoder without an encoder.
RN_MUST_USE rn_status rn_image_component_recipe(const rn_image_component *component,
                                                rn_image_part part, rn_recipe *out);
rn_weight_source rn_image_component_weights(const rn_image_component *component);
const char *rn_image_kind_name(rn_image_kind kind); // "UNet"

#endif
