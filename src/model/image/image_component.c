// image_component.c — see image_component.h.
#include "model/image/image_component.h"

#include "io/weight_forms.h"
#include "model/image/image_adapters.h"
#include "model/text/text_weights.h"

#include <stdio.h>
#include <string.h>

// ---- names --------------------------------------------------------------------------------------

static const rn_image_naming namings[RN_IMAGE_KINDS][4] = {
    [RN_IMAGE_VAE] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_DIFFUSERS_OLD, RN_IMAGE_SGM, RN_IMAGE_NAMINGS},
    [RN_IMAGE_TINY_VAE] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_TAESD, RN_IMAGE_NAMINGS},
    [RN_IMAGE_UNET] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_SGM, RN_IMAGE_NAMINGS},
    [RN_IMAGE_FLUX] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_BFL, RN_IMAGE_NAMINGS},
    [RN_IMAGE_CLIP] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_BARE, RN_IMAGE_OPEN_CLIP, RN_IMAGE_NAMINGS},
    [RN_IMAGE_T5] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_GGUF, RN_IMAGE_NAMINGS},
    [RN_IMAGE_PIXEL_DDPM] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_NAMINGS},
};

const char *rn_image_kind_name(rn_image_kind kind) {
    static const char *const names[] = {"autoencoder", "tiny autoencoder", "UNet", "Flux", "CLIP",
                                        "T5",          "pixel DDPM"};
    return names[kind];
}

static bool exists(const rn_checkpoint *checkpoint, const char *name) {
    return rn_text_weight_exists(checkpoint, name) || rn_checkpoint_form(checkpoint, name);
}

static bool place(const void *self, const char *weight, rn_image_place *out) {
    const rn_image_component *c = self;
    rn_image_place found;
    if (!rn_image_rename(&c->names, weight, &found)) return false;
    *out = found;
    int length = snprintf(out->tensor, sizeof out->tensor, "%s%s", c->prefix, found.tensor);
    if (length >= (int)sizeof out->tensor || !exists(c->checkpoint, out->tensor)) return false;
    out->dtype = rn_text_weight_dtype(c->checkpoint, out->tensor);
    return true;
}

static const rn_low_rank *addition(const void *self, const char *weight, uint32_t index) {
    const rn_image_component *c = self;
    return c->adapters ? rn_image_adapters_find(c->adapters, c->name, weight, index) : NULL;
}

// ---- configurations -----------------------------------------------------------------------------

static rn_status read_config(rn_image_component *c, const rn_fields *f) {
    switch (c->kind) {
    case RN_IMAGE_VAE:
        return rn_vae_config_read(f, &c->config.vae);
    case RN_IMAGE_TINY_VAE:
        return rn_taesd_config_read(f, &c->config.taesd);
    case RN_IMAGE_UNET:
        return rn_unet_config_read(f, &c->config.unet);
    case RN_IMAGE_FLUX:
        return rn_flux_config_read(f, &c->config.flux);
    case RN_IMAGE_CLIP:
        return rn_clip_config_read(f, &c->config.clip);
    case RN_IMAGE_T5:
        return rn_t5_config_read(f, &c->config.t5);
    default:
        return rn_fail(RN_UNSUPPORTED, "%s: a %s has no config.json", f->source,
                       rn_image_kind_name(c->kind));
    }
}

// Names depend on sizes; the graph's builders find the files through the configuration.
static void connect(rn_image_component *c) {
    c->files = (rn_image_files){.self = c, .place = place, .addition = addition};
    c->names.kind = c->kind;
    switch (c->kind) {
    case RN_IMAGE_VAE:
        c->names.levels = c->config.vae.levels;
        c->names.layers = c->config.vae.layers;
        c->config.vae.files = &c->files;
        break;
    case RN_IMAGE_TINY_VAE:
        c->config.taesd.files = &c->files;
        break;
    case RN_IMAGE_UNET:
        c->names.levels = c->config.unet.levels;
        c->names.layers = c->config.unet.layers;
        memcpy(c->names.depth, c->config.unet.depth, sizeof c->names.depth);
        c->config.unet.files = &c->files;
        break;
    case RN_IMAGE_FLUX:
        c->names.dim = (uint64_t)c->config.flux.heads * c->config.flux.head_dim;
        c->config.flux.files = &c->files;
        break;
    case RN_IMAGE_CLIP:
        c->names.dim = c->config.clip.dim;
        c->config.clip.files = &c->files;
        break;
    case RN_IMAGE_T5:
        c->config.t5.files = &c->files;
        break;
    default:
        c->config.pixel.files = &c->files;
        break;
    }
}

static rn_status make_recipe(const rn_image_component *c, rn_image_part part, rn_recipe *out) {
    switch (c->kind) {
    case RN_IMAGE_VAE:
        return part == RN_IMAGE_ENCODER ? rn_vae_encoder_recipe(&c->config.vae, out)
                                        : rn_vae_decoder_recipe(&c->config.vae, out);
    case RN_IMAGE_TINY_VAE:
        return part == RN_IMAGE_ENCODER ? rn_taesd_encoder_recipe(&c->config.taesd, out)
                                        : rn_taesd_decoder_recipe(&c->config.taesd, out);
    case RN_IMAGE_UNET:
        return part == RN_IMAGE_PREPARE ? rn_unet_text_recipe(&c->config.unet, out)
                                        : rn_unet_recipe(&c->config.unet, out);
    case RN_IMAGE_FLUX:
        return part == RN_IMAGE_PREPARE ? rn_flux_modulation_recipe(&c->config.flux, out)
                                        : rn_flux_recipe(&c->config.flux, out);
    case RN_IMAGE_CLIP:
        return rn_clip_recipe(&c->config.clip, out);
    case RN_IMAGE_T5:
        return rn_t5_recipe(&c->config.t5, out);
    default:
        return rn_pixel_ddpm_recipe(&c->config.pixel, out);
    }
}

// ---- against the files --------------------------------------------------------------------------

typedef struct tally {
    uint32_t missing;
    char first[RN_IMAGE_NAME];        // that is missing, or of another size
    uint64_t file_elements, elements; // of that, where it is there
    uint64_t bytes, parameters;
} tally;

// A weight of the graph against its tensor: quantised forms say their size when they are read.
static void count_weight(const rn_image_component *c, const rn_value_info *info, tally *out) {
    const char *tensor = info->tensor ? info->tensor : info->name;
    const rn_tensor_info *t = rn_checkpoint_find(c->checkpoint, tensor);
    uint64_t elements = rn_shape_elements(info->shape, 1), want = elements;
    if (info->tensor && info->shape.dims[0])
        want = elements / info->shape.dims[0] * info->tensor_rows;
    bool there = exists(c->checkpoint, tensor);
    bool packed = there && (!t || rn_checkpoint_form(c->checkpoint, tensor) ||
                            t->dtype == RN_DTYPE_U8 || t->dtype == RN_DTYPE_I8);
    out->parameters += elements;
    if (t) out->bytes += want ? (uint64_t)((double)t->bytes * (double)elements / (double)want) : 0;
    if (there && (packed || t->elements == want)) return;
    if (out->missing++ == 0) {
        snprintf(out->first, sizeof out->first, "%s", tensor);
        out->file_elements = t ? t->elements : 0;
        out->elements = want;
    }
}

static rn_status count_weights(const rn_image_component *c, rn_image_part part, tally *out) {
    rn_recipe recipe;
    rn_graph *graph = NULL;
    *out = (tally){0};
    RN_TRY(make_recipe(c, part, &recipe));
    rn_status s = recipe.build(recipe.self, NULL, &graph);
    rn_recipe_destroy(&recipe);
    for (rn_value v = 1; s == RN_OK && v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_WEIGHT)
            count_weight(c, rn_graph_value(graph, v), out);
    rn_graph_destroy(graph);
    return s;
}

static rn_status report(const rn_image_component *c, const tally *t) {
    if (t->file_elements)
        return rn_hint(rn_fail(RN_CORRUPT,
                               "%s: the tensor '%s' has %llu elements, its configuration asks for "
                               "%llu",
                               c->name, t->first, (unsigned long long)t->file_elements,
                               (unsigned long long)t->elements),
                       "the parts of the model are of different versions");
    return rn_hint(rn_fail(RN_NOT_FOUND, "%s: the tensor '%s' is missing (and %u more)", c->name,
                           t->first, t->missing - 1),
                   "the files are incomplete, or config.json is of another model");
}

rn_status rn_image_component_open(rn_image_component *component, const char *name,
                                  rn_image_kind kind, const rn_checkpoint *checkpoint,
                                  const char *prefix, const rn_fields *fields) {
    rn_image_component *c = component;
    tally best = {.missing = UINT32_MAX}, now;
    c->kind = kind;
    c->checkpoint = checkpoint;
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->prefix, sizeof c->prefix, "%s", prefix);
    if (fields) RN_TRY(read_config(c, fields));
    connect(c);
    rn_image_part part = RN_IMAGE_FORWARD;
    for (int turn = 0; turn < 2 && best.missing; turn++) {
        for (int i = 0; i < 4 && namings[kind][i] != RN_IMAGE_NAMINGS && best.missing; i++) {
            rn_image_naming before = c->names.naming;
            c->names.naming = namings[kind][i];
            RN_TRY(count_weights(c, part, &now));
            if (now.missing < best.missing)
                best = now;
            else
                c->names.naming = before;
        }
        // A file of an encoder alone is one, too.
        bool autoencoder = kind == RN_IMAGE_VAE || kind == RN_IMAGE_TINY_VAE;
        if (!autoencoder) break;
        part = RN_IMAGE_ENCODER;
    }
    if (best.missing) return report(c, &best);
    c->weight_bytes = best.bytes;
    c->parameters = best.parameters;
    return RN_OK;
}

void rn_image_component_within(const rn_image_component *component, const rn_checkpoint *checkpoint,
                               const char *prefix, rn_image_component *out) {
    *out = *component;
    out->checkpoint = checkpoint;
    out->adapters = NULL;
    snprintf(out->prefix, sizeof out->prefix, "%s%s", prefix, component->prefix);
    connect(out);
}

rn_status rn_image_component_recipe(const rn_image_component *component, rn_image_part part,
                                    rn_recipe *out) {
    tally t;
    RN_TRY(count_weights(component, part, &t));
    // Adapters' weights are not in the files, and are counted as missing.
    if (t.missing && !component->adapters)
        return rn_hint(report(component, &t), part == RN_IMAGE_ENCODER
                                                  ? "the autoencoder has no encoder"
                                                  : "the autoencoder has no decoder");
    RN_TRY(make_recipe(component, part, out));
    out->widens_vectors = true;
    return RN_OK;
}

// ---- weights ------------------------------------------------------------------------------------

static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    const rn_image_component *c = self;
    return c->adapters ? rn_image_adapters_weight(c->adapters, name, dtype, bytes) : NULL;
}

rn_weight_source rn_image_component_weights(const rn_image_component *component) {
    return (rn_weight_source){
        .checkpoint = component->checkpoint, .self = (void *)(uintptr_t)component, .find = find};
}
