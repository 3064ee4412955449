// diffusion.c — a diffusion model from its files: which components there are, and which family they
// are of.
//
//     folder       model_index.json names the components; each is a folder with a config.json
//     single file  the tensors' names and shapes tell which model it is; sizes are then known
#include "diffuse/diffusion.h"

#include "base/file.h"
#include "base/reserved.h"
#include "base/str.h"
#include "io/weight_forms.h"
#include "memory/account.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#define FROM RN_HOST_OTHER

uint32_t rn_decoder_factor(const rn_image_component *c) {
    return c->kind == RN_IMAGE_TINY_VAE ? 8 : rn_vae_factor(&c->config.vae);
}

static uint32_t channels_of(const rn_image_component *c) {
    return c->kind == RN_IMAGE_TINY_VAE ? c->config.taesd.latent_channels
                                        : c->config.vae.latent_channels;
}

uint32_t rn_diffusion_factor(const rn_diffusion *model) {
    return rn_decoder_factor(&model->vae);
}

uint32_t rn_diffusion_channels(const rn_diffusion *model) {
    return channels_of(&model->vae);
}

// ---- files --------------------------------------------------------------------------------------

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

// Quantised weights that files of image models have without saying so elsewhere.
static rn_status find_quantised(rn_checkpoint *file, const char *path) {
    static const rn_forms_config scaled = {.method = RN_FORMS_SCALED};
    bool has_scales = false;
    for (size_t i = 0; i < rn_checkpoint_count(file); i++) {
        rn_str name = rn_checkpoint_tensor(file, i)->name;
        has_scales = has_scales || rn_str_ends(name, RN_STR(".scale_weight")) ||
                     rn_str_ends(name, RN_STR(".weight_scale"));
        if (rn_str_ends(name, RN_STR(".quant_state.bitsandbytes__fp4")))
            return rn_hint(
                rn_error_locate(rn_fail(RN_UNSUPPORTED, "bitsandbytes' fp4 is not built"), path,
                                RN_NO_OFFSET),
                "nf4 is, and GGUF's kinds, and fp8");
    }
    return has_scales ? rn_checkpoint_find_forms(file, &scaled) : RN_OK;
}

static rn_status open_file(rn_diffusion *m, const char *path, const rn_checkpoint **out) {
    if (m->file_count == RN_DIFFUSION_FILES) return rn_fail(RN_INTERNAL, "too many files");
    rn_checkpoint **file = &m->files[m->file_count];
    RN_TRY(rn_checkpoint_open(path, file));
    m->file_count++;
    *out = *file;
    return find_quantised(*file, path);
}

static rn_status refuse_refiner(void) {
    return rn_hint(rn_fail(RN_UNSUPPORTED, "the refiner of Stable Diffusion XL is not built"),
                   "the base model draws without it");
}

// ---- a diffusers folder -------------------------------------------------------------------------

typedef struct component_class {
    const char *name;
    rn_image_kind kind;
} component_class;
static const component_class classes[] = {
    {"UNet2DConditionModel", RN_IMAGE_UNET}, {"FluxTransformer2DModel", RN_IMAGE_FLUX},
    {"AutoencoderKL", RN_IMAGE_VAE},         {"AutoencoderTiny", RN_IMAGE_TINY_VAE},
    {"CLIPTextModel", RN_IMAGE_CLIP},        {"CLIPTextModelWithProjection", RN_IMAGE_CLIP},
    {"T5EncoderModel", RN_IMAGE_T5},
};

static rn_status find_class(const char *component, rn_str name, rn_image_kind *out) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (rn_str_equal(name, rn_str_from(classes[i].name))) {
            *out = classes[i].kind;
            return RN_OK;
        }
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s: a %.*s is not built", component, RN_STR_ARG(name)),
                   "docs/images.md lists the models that are");
}

bool rn_diffusion_has_weights(const char *folder) {
    DIR *list = opendir(folder);
    bool found = false;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        rn_str name = rn_str_from(entry->d_name);
        found = found || rn_str_ends(name, RN_STR(".safetensors")) ||
                rn_str_ends(name, RN_STR(".bin")) || rn_str_ends(name, RN_STR(".gguf"));
    }
    if (list) closedir(list);
    return found;
}

// With the sizes of its configuration and no files.
static rn_status draw_denoiser(rn_image_component *c, const char *name, rn_image_kind kind,
                               const rn_fields *fields) {
    c->kind = kind;
    snprintf(c->name, sizeof c->name, "%s", name);
    return kind == RN_IMAGE_FLUX ? rn_flux_config_read(fields, &c->config.flux)
                                 : rn_unet_config_read(fields, &c->config.unet);
}

static rn_status open_weights(rn_diffusion *m, rn_image_component *c, const char *name,
                              const char *folder, rn_image_kind kind, const rn_fields *fields) {
    const rn_checkpoint *checkpoint = NULL;
    bool denoises = kind == RN_IMAGE_UNET || kind == RN_IMAGE_FLUX;
    if (!rn_diffusion_has_weights(folder)) {
        if (m->may_be_drawn && denoises) return draw_denoiser(c, name, kind, fields);
        return rn_hint(rn_error_locate(rn_fail(RN_NOT_FOUND, "the model's %s has no weights", name),
                                       folder, RN_NO_OFFSET),
                       "the folder is incomplete; a VAE is trained by `ration train --objective "
                       "autoencoder`");
    }
    RN_TRY(open_file(m, folder, &checkpoint));
    return rn_image_component_open(c, name, kind, checkpoint, "", fields);
}

// A component's own folder: config.json and its weights. `class_name` empty: config.json says it.
static rn_status open_component(rn_diffusion *m, rn_image_component *c, const char *name,
                                const char *folder, rn_str class_name) {
    char path[PATH_MAX];
    rn_fields fields;
    rn_image_kind kind = RN_IMAGE_UNET;
    snprintf(path, sizeof path, "%s/config.json", folder);
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_file(&fields, path);
    if (s == RN_NOT_FOUND)
        s = rn_hint(rn_fail(RN_NOT_FOUND, "the model's %s is missing: there is no %s", name, path),
                    "the folder is incomplete");
    rn_str own = {0};
    if (s == RN_OK) s = rn_fields_text(&fields, "_class_name", &own);
    if (s == RN_OK && !own.bytes) s = rn_fields_text(&fields, "architectures.0", &own);
    if (s == RN_OK) s = find_class(name, own.bytes ? own : class_name, &kind);
    if (s == RN_OK) s = open_weights(m, c, name, folder, kind, &fields);
    // The class in model_index.json says whether CLIP projects, where config.json does not.
    rn_fields_free(&fields);
    return s;
}

static rn_status read_scheduler(rn_diffusion *m, const char *folder) {
    char path[PATH_MAX];
    rn_fields fields;
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", folder);
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_file(&fields, path);
    if (s == RN_OK) s = rn_schedule_config_read(&fields, &m->schedule);
    if (s == RN_NOT_FOUND) {
        s = RN_OK;
        m->schedule = (rn_schedule_config){.scheduler = RN_SCHEDULER_EULER, .offset = 1};
    }
    rn_fields_free(&fields);
    return s;
}

static rn_status open_tokenizer(rn_diffusion *m, uint32_t index, const char *path) {
    rn_status s = rn_tokenizer_open(path, &m->tokenizers[index]);
    return s == RN_NOT_FOUND ? rn_hint(rn_fail(RN_NOT_FOUND,
                                               "the model's tokenizer%s is missing: "
                                               "there is none in %s",
                                               index ? "_2" : "", path),
                                       "name one with --tokenizer PATH")
                             : s;
}

static const char *const text_names[] = {"text_encoder", "text_encoder_2"};

static rn_status open_text(rn_diffusion *m, const rn_fields *index, const char *folder,
                           const rn_diffusion_options *o) {
    const char *const given[] = {o->text_encoder, o->text_encoder_2};
    const char *const tokenizers[] = {o->tokenizer, o->tokenizer_2};
    for (uint32_t i = 0; i < RN_TEXT_ENCODERS; i++) {
        char path[PATH_MAX];
        rn_str class_name = {0};
        RN_TRY(rn_fields_text(index, rn_image_named("%s.1", text_names[i]).text, &class_name));
        if (!class_name.bytes && !given[i]) continue;
        snprintf(path, sizeof path, "%s/%s", folder, text_names[i]);
        RN_TRY(
            open_component(m, &m->text[i], text_names[i], given[i] ? given[i] : path, class_name));
        snprintf(path, sizeof path, "%s/tokenizer%s", folder, i ? "_2" : "");
        RN_TRY(open_tokenizer(m, i, tokenizers[i] ? tokenizers[i] : path));
        m->text_count = i + 1;
    }
    return RN_OK;
}

static rn_status open_denoiser(rn_diffusion *m, const rn_fields *index, const char *folder) {
    static const char *const names[] = {"unet", "transformer"};
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        rn_str class_name = {0};
        RN_TRY(rn_fields_text(index, rn_image_named("%s.1", names[i]).text, &class_name));
        if (!class_name.bytes) continue;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        return open_component(m, &m->denoiser, names[i], m->instead ? m->instead : path,
                              class_name);
    }
    return rn_fail(RN_NOT_FOUND, "%s names neither a unet nor a transformer", index->source);
}

static rn_status open_decoder(rn_diffusion *m, rn_image_component *c, const char *name,
                              const char *path, rn_str class_name) {
    const rn_checkpoint *file = NULL;
    if (is_folder(path)) return open_component(m, c, name, path, class_name);
    // A file of an autoencoder alone: of 4 channels or 16, whichever its tensors fit.
    RN_TRY(open_file(m, path, &file));
    static const uint32_t channels[] = {4, 16};
    rn_status s = RN_NOT_FOUND;
    for (int i = 0; s != RN_OK && i < 2; i++) {
        c->config.taesd =
            (rn_taesd_config){.latent_channels = channels[i], .height = 64, .width = 64};
        s = rn_image_component_open(c, name, RN_IMAGE_TINY_VAE, file, "", NULL);
        if (s == RN_OK) break;
        c->config.vae = (rn_vae_config){.levels = 4,
                                        .channels = {128, 256, 512, 512},
                                        .layers = 2,
                                        .latent_channels = channels[i],
                                        .image_channels = 3,
                                        .groups = 32,
                                        .quant_conv = i == 0,
                                        .post_quant_conv = i == 0,
                                        .mid_attention = true,
                                        .scaling = i ? 0.3611f : 0.18215f,
                                        .shift = i ? 0.1159f : 0,
                                        .height = 64,
                                        .width = 64};
        s = rn_image_component_open(c, name, RN_IMAGE_VAE, file, "", NULL);
    }
    return s;
}

static rn_status open_vae(rn_diffusion *m, const char *path, rn_str class_name) {
    if (access(path, F_OK) != 0)
        return rn_hint(rn_fail(RN_NOT_FOUND, "the model's vae is missing: there is no %s", path),
                       "the folder is incomplete; --vae PATH names another one");
    return open_decoder(m, &m->vae, "vae", path, class_name);
}

static rn_status open_preview(rn_diffusion *m, const char *path) {
    if (strcmp(path, "own") == 0) {
        m->preview = m->vae;
        m->has_preview = true;
        return RN_OK;
    }
    if (access(path, F_OK) != 0)
        return rn_hint(rn_fail(RN_NOT_FOUND, "there is no decoder for previews at %s", path),
                       "TAESD's file or folder, or own: the model's autoencoder");
    RN_TRY(open_decoder(m, &m->preview, "preview", path, (rn_str){0}));
    if (channels_of(&m->preview) != rn_diffusion_channels(m))
        return rn_fail(RN_INVALID, "%s decodes latents of %u channels, the model's have %u", path,
                       channels_of(&m->preview), rn_diffusion_channels(m));
    m->has_preview = true;
    return RN_OK;
}

static rn_status open_folder(rn_diffusion *m, const char *folder, const rn_diffusion_options *o) {
    char path[PATH_MAX], vae[PATH_MAX];
    rn_fields index;
    rn_str vae_class = {0};
    snprintf(path, sizeof path, "%s/model_index.json", folder);
    snprintf(vae, sizeof vae, "%s/vae", folder);
    rn_fields_init(&index, path);
    rn_status s = rn_fields_read_file(&index, path);
    if (s == RN_NOT_FOUND)
        s = rn_hint(rn_fail(RN_NOT_FOUND, "%s has no model_index.json", folder),
                    "a diffusers folder has one; a single file is named itself");
    bool refines = false;
    if (s == RN_OK) s = rn_fields_bool(&index, "requires_aesthetics_score", &refines);
    if (s == RN_OK && refines) s = refuse_refiner();
    if (s == RN_OK) s = open_denoiser(m, &index, folder);
    if (s == RN_OK) s = rn_fields_text(&index, "vae.1", &vae_class);
    if (s == RN_OK) s = open_vae(m, o->vae ? o->vae : vae, vae_class);
    if (s == RN_OK) s = open_text(m, &index, folder, o);
    if (s == RN_OK) s = read_scheduler(m, folder);
    m->zero_negative = true;
    if (s == RN_OK) s = rn_fields_bool(&index, "force_zeros_for_empty_prompt", &m->zero_negative);
    rn_fields_free(&index);
    return s;
}

// ---- single files -------------------------------------------------------------------------------

#define DENOISER_PREFIX "model.diffusion_model."

static rn_unet_config known_unet(const rn_diffusion *m, uint32_t in_channels) {
    bool xl = m->family == RN_FAMILY_SDXL, two = m->family == RN_FAMILY_SD2;
    rn_unet_config c = {.in_channels = in_channels,
                        .out_channels = 4,
                        .levels = xl ? 3 : 4,
                        .channels = {320, 640, 1280, xl ? 0 : 1280},
                        .layers = 2,
                        .context_channels = xl    ? 2048
                                            : two ? 1024
                                                  : 768,
                        .context_tokens = 77,
                        .linear_projection = xl || two,
                        .groups = 32,
                        .eps = 1e-5f,
                        .added_channels = xl ? 2816 : 0,
                        .added_time_dim = 256,
                        .mid_depth = xl ? 10 : 1,
                        .height = xl ? 128 : 64,
                        .width = xl ? 128 : 64};
    for (uint32_t i = 0; i < c.levels; i++) {
        c.depth[i] = xl ? (i == 0 ? 0 : i == 1 ? 2 : 10) : i < 3;
        c.heads[i] = xl || two ? c.channels[i] / 64 : 8;
    }
    return c;
}

static rn_status open_known_vae(rn_diffusion *m, const rn_checkpoint *file, const char *prefix) {
    bool flux = m->family == RN_FAMILY_FLUX;
    m->vae.config.vae = (rn_vae_config){.levels = 4,
                                        .channels = {128, 256, 512, 512},
                                        .layers = 2,
                                        .latent_channels = flux ? 16 : 4,
                                        .image_channels = 3,
                                        .groups = 32,
                                        .quant_conv = !flux,
                                        .post_quant_conv = !flux,
                                        .mid_attention = true,
                                        .scaling = flux                          ? 0.3611f
                                                   : m->family == RN_FAMILY_SDXL ? 0.13025f
                                                                                 : 0.18215f,
                                        .shift = flux ? 0.1159f : 0,
                                        .height = 64,
                                        .width = 64};
    return rn_image_component_open(&m->vae, "vae", RN_IMAGE_VAE, file, prefix, NULL);
}

static rn_status open_known_clip(rn_diffusion *m, uint32_t index, const rn_checkpoint *file,
                                 const char *prefix, bool large) {
    bool two = m->family == RN_FAMILY_SD2;
    rn_clip_config c = {.layers = 12,
                        .dim = 768,
                        .heads = 12,
                        .ffn = 3072,
                        .vocab = 49408,
                        .tokens = 77,
                        .eps = 1e-5f,
                        .end_token = 49407,
                        .final_norm = true};
    if (two) c.layers = 24, c.dim = 1024, c.heads = 16, c.ffn = 4096, c.skip = 1;
    if (large) c.layers = 32, c.dim = 1280, c.heads = 20, c.ffn = 5120, c.projection = 1280;
    if (two || large) c.activation = RN_CLIP_GELU;
    m->text[index].config.clip = c;
    m->text_count = index + 1;
    return rn_image_component_open(&m->text[index], text_names[index], RN_IMAGE_CLIP, file, prefix,
                                   NULL);
}

static rn_status need_tokenizers(rn_diffusion *m, const rn_diffusion_options *o) {
    const char *const given[] = {o->tokenizer, o->tokenizer_2 ? o->tokenizer_2 : o->tokenizer};
    for (uint32_t i = 0; i < m->text_count; i++) {
        if (!given[i])
            return rn_hint(rn_fail(RN_NOT_FOUND, "a single file holds no tokenizer"),
                           "name CLIP's (a folder with vocab.json and merges.txt) with --tokenizer "
                           "PATH%s",
                           m->family == RN_FAMILY_FLUX ? ", and T5's with --tokenizer-2 PATH" : "");
        RN_TRY(open_tokenizer(m, i, given[i]));
    }
    return RN_OK;
}

static rn_status open_sgm(rn_diffusion *m, const rn_checkpoint *file,
                          const rn_diffusion_options *o) {
    const rn_tensor_info *in = rn_checkpoint_find(file, DENOISER_PREFIX "input_blocks.0.0.weight");
    const rn_tensor_info *xl = rn_checkpoint_find(file, DENOISER_PREFIX "label_emb.0.0.weight");
    const rn_tensor_info *key = rn_checkpoint_find(
        file, DENOISER_PREFIX "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight");
    bool two = key && key->rank == 2 && key->dims[1] == 1024;
    // Of models that were trained on for v: these tensors say so.
    bool v = rn_checkpoint_find(file, "v_pred") != NULL;
    if (xl && in->rank > 1 && in->dims[0] == 384) return refuse_refiner();
    m->family = xl ? RN_FAMILY_SDXL : two ? RN_FAMILY_SD2 : RN_FAMILY_SD1;
    m->denoiser.config.unet = known_unet(m, in->rank > 1 ? (uint32_t)in->dims[1] : 4);
    RN_TRY(
        rn_image_component_open(&m->denoiser, "unet", RN_IMAGE_UNET, file, DENOISER_PREFIX, NULL));
    RN_TRY(o->vae ? open_vae(m, o->vae, (rn_str){0})
                  : open_known_vae(m, file, "first_stage_model."));
    if (m->family == RN_FAMILY_SDXL) {
        RN_TRY(open_known_clip(m, 0, file, "conditioner.embedders.0.transformer.", false));
        RN_TRY(open_known_clip(m, 1, file, "conditioner.embedders.1.model.", true));
    } else {
        RN_TRY(open_known_clip(
            m, 0, file, two ? "cond_stage_model.model." : "cond_stage_model.transformer.", false));
    }
    m->schedule = (rn_schedule_config){.scheduler = RN_SCHEDULER_EULER,
                                       .offset = 1,
                                       .prediction = two || v ? RN_PREDICTS_V : RN_PREDICTS_NOISE,
                                       .zero_snr = rn_checkpoint_find(file, "ztsnr") != NULL};
    m->zero_negative = true;
    return need_tokenizers(m, o);
}

static rn_status open_flux_text(rn_diffusion *m, const rn_diffusion_options *o) {
    const rn_checkpoint *file = NULL;
    if (!o->vae || !o->text_encoder || !o->text_encoder_2)
        return rn_hint(rn_fail(RN_NOT_FOUND, "the file holds Flux's transformer alone"),
                       "name its other parts with --vae, --text-encoder (CLIP) and "
                       "--text-encoder-2 (T5)");
    if (is_folder(o->vae)) {
        RN_TRY(open_vae(m, o->vae, RN_STR("AutoencoderKL")));
    } else {
        RN_TRY(open_file(m, o->vae, &file));
        RN_TRY(open_known_vae(m, file, ""));
    }
    if (is_folder(o->text_encoder)) {
        RN_TRY(open_component(m, &m->text[0], text_names[0], o->text_encoder, (rn_str){0}));
    } else {
        RN_TRY(open_file(m, o->text_encoder, &file));
        RN_TRY(open_known_clip(m, 0, file, "", false));
    }
    m->text_count = 2;
    if (is_folder(o->text_encoder_2))
        return open_component(m, &m->text[1], text_names[1], o->text_encoder_2, (rn_str){0});
    RN_TRY(open_file(m, o->text_encoder_2, &file));
    m->text[1].config.t5 = (rn_t5_config){.layers = 24,
                                          .dim = 4096,
                                          .heads = 64,
                                          .head_dim = 64,
                                          .ffn = 10240,
                                          .vocab = 32128,
                                          .buckets = 32,
                                          .farthest = 128,
                                          .eps = 1e-6f,
                                          .rows = 512};
    return rn_image_component_open(&m->text[1], text_names[1], RN_IMAGE_T5, file, "", NULL);
}

static rn_status open_bfl(rn_diffusion *m, const rn_checkpoint *file, const char *prefix,
                          const rn_diffusion_options *o) {
    rn_flux_config c = {.in_channels = 64,
                        .out_channels = 64,
                        .double_blocks = 19,
                        .single_blocks = 38,
                        .heads = 24,
                        .head_dim = 128,
                        .context_channels = 4096,
                        .context_tokens = 512,
                        .pooled_channels = 768,
                        .axes = {16, 56, 56},
                        .height = 64,
                        .width = 64};
    rn_image_name guidance = rn_image_named("%sguidance_in.in_layer.weight", prefix);
    c.guidance = rn_checkpoint_find(file, guidance.text) != NULL;
    if (!c.guidance) c.context_tokens = 256;
    m->family = RN_FAMILY_FLUX;
    m->denoiser.config.flux = c;
    RN_TRY(rn_image_component_open(&m->denoiser, "transformer", RN_IMAGE_FLUX, file, prefix, NULL));
    RN_TRY(open_flux_text(m, o));
    m->schedule = (rn_schedule_config){.scheduler = RN_SCHEDULER_FLOW,
                                       .shift = c.guidance ? 3 : 1,
                                       .dynamic_shifting = c.guidance,
                                       .base_shift = 0.5,
                                       .max_shift = 1.15,
                                       .base_tokens = 256,
                                       .max_tokens = 4096};
    return need_tokenizers(m, o);
}

static bool is_sgm(const rn_checkpoint *file) {
    return rn_checkpoint_find(file, DENOISER_PREFIX "input_blocks.0.0.weight") != NULL;
}

// What stands before the names of Black Forest Labs' tensors; NULL: it is no such file.
static const char *find_bfl(const rn_checkpoint *file) {
    static const char *const prefixes[] = {"", DENOISER_PREFIX};
    for (int i = 0; i < 2; i++)
        if (rn_checkpoint_find(
                file, rn_image_named("%sdouble_blocks.0.img_attn.qkv.weight", prefixes[i]).text))
            return prefixes[i];
    return NULL;
}

bool rn_diffusion_is(const char *path) {
    char index[4096];
    rn_checkpoint *file = NULL;
    rn_error_info error = *rn_last_error();
    bool is = false;
    if (is_folder(path)) {
        is = rn_path_join(path, "model_index.json", index, sizeof index) == RN_OK &&
             access(index, R_OK) == 0;
    } else if (rn_checkpoint_open(path, &file) == RN_OK) {
        is = is_sgm(file) || find_bfl(file);
        rn_checkpoint_close(file);
    }
    (void)rn_error_restore(&error);
    return is;
}

static rn_status open_single(rn_diffusion *m, const char *path, const rn_diffusion_options *o) {
    const rn_checkpoint *file = NULL;
    RN_TRY(open_file(m, path, &file));
    if (is_sgm(file)) return open_sgm(m, file, o);
    const char *prefix = find_bfl(file);
    if (prefix) return open_bfl(m, file, prefix, o);
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is no diffusion model that is known", path),
                   "single files of Stable Diffusion 1.x, 2.x, XL and of Flux.1, and diffusers "
                   "folders are");
}

// ---- what it is ---------------------------------------------------------------------------------

static void settle_family(rn_diffusion *m) {
    if (m->denoiser.kind == RN_IMAGE_FLUX) {
        m->family = RN_FAMILY_FLUX;
    } else {
        const rn_unet_config *u = &m->denoiser.config.unet;
        m->family = u->added_channels             ? RN_FAMILY_SDXL
                    : u->context_channels == 1024 ? RN_FAMILY_SD2
                                                  : RN_FAMILY_SD1;
    }
    // XL reads what its encoders have before their last layer, without its norm.
    for (uint32_t i = 0; m->family == RN_FAMILY_SDXL && i < m->text_count; i++)
        if (m->text[i].kind == RN_IMAGE_CLIP)
            m->text[i].config.clip.skip = 1, m->text[i].config.clip.final_norm = false;
}

static uint32_t context_channels(const rn_diffusion *m) {
    uint32_t sum = 0;
    if (m->family == RN_FAMILY_FLUX) return m->text[1].config.t5.dim;
    for (uint32_t i = 0; i < m->text_count; i++)
        sum += m->text[i].config.clip.dim;
    return sum;
}

// Whether the parts are of one model.
static rn_status check_parts(const rn_diffusion *m) {
    bool flux = m->family == RN_FAMILY_FLUX;
    const rn_unet_config *u = &m->denoiser.config.unet;
    const rn_flux_config *f = &m->denoiser.config.flux;
    uint32_t wanted = flux ? 2 : m->family == RN_FAMILY_SDXL ? 2 : 1;
    if (m->text_count < wanted)
        return rn_fail(RN_NOT_FOUND, "the model's %s is missing", text_names[m->text_count]);
    for (uint32_t i = 0; i < m->text_count; i++) {
        rn_image_kind kind = flux && i == 1 ? RN_IMAGE_T5 : RN_IMAGE_CLIP;
        if (m->text[i].kind != kind)
            return rn_fail(RN_INVALID, "%s is a %s, the model needs a %s", text_names[i],
                           rn_image_kind_name(m->text[i].kind), rn_image_kind_name(kind));
    }
    uint32_t needs = flux ? f->context_channels : u->context_channels, has = context_channels(m);
    if (needs != has)
        return rn_hint(rn_fail(RN_INVALID, "the text encoders give %u channels, the %s reads %u",
                               has, rn_image_kind_name(m->denoiser.kind), needs),
                       "the parts are of different models");
    uint32_t latents = rn_diffusion_channels(m),
             reads = flux ? f->in_channels / 4 : u->out_channels;
    if (latents != reads)
        return rn_hint(rn_fail(RN_INVALID,
                               "the autoencoder's latents have %u channels, the %s's %u", latents,
                               rn_image_kind_name(m->denoiser.kind), reads),
                       "the parts are of different models");
    return RN_OK;
}

static void add_part(rn_diffusion_info *info, const rn_image_component *c) {
    info->parts[info->part_count++] =
        (rn_diffusion_part){c->name, rn_image_kind_name(c->kind), c->parameters, c->weight_bytes};
    info->parameters += c->parameters;
    info->weight_bytes += c->weight_bytes;
}

static void fill_info(rn_diffusion *m) {
    static const char *const families[] = {"Stable Diffusion 1", "Stable Diffusion 2",
                                           "Stable Diffusion XL", "Flux.1"};
    bool flux = m->family == RN_FAMILY_FLUX;
    uint32_t factor = rn_diffusion_factor(m);
    const rn_unet_config *u = &m->denoiser.config.unet;
    rn_diffusion_info *info = &m->info;
    *info = (rn_diffusion_info){.name = m->name,
                                .family = families[m->family],
                                .size = flux ? 1024 : u->height * factor,
                                .multiple = flux ? 2 * factor : factor << (u->levels - 1),
                                .factor = factor,
                                .channels = rn_diffusion_channels(m),
                                .scheduler = m->schedule.scheduler,
                                .steps = flux ? (m->denoiser.config.flux.guidance ? 28 : 4) : 30,
                                .guidance = flux                          ? 3.5
                                            : m->family == RN_FAMILY_SDXL ? 5
                                                                          : 7.5,
                                .inpaints = !flux && u->in_channels > u->out_channels,
                                .adapters = m->adapters.count,
                                .adapter_leftover = m->adapters.unmatched};
    if (m->schedule.scheduler == RN_SCHEDULER_LCM) info->steps = 4, info->guidance = 1;
    for (uint32_t i = 0; i < m->text_count; i++)
        add_part(info, &m->text[i]);
    add_part(info, &m->denoiser);
    add_part(info, &m->vae);
}

static void name_after(rn_diffusion *m, const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t first = end;
    while (first > 0 && path[first - 1] != '/')
        first--;
    snprintf(m->name, sizeof m->name, "%.*s", (int)(end - first), path + first);
    rn_str_clean(m->name);
}

static rn_status load_adapters(rn_diffusion *m, const rn_diffusion_options *o) {
    rn_image_component *all[] = {&m->denoiser, &m->text[0], &m->text[1]};
    for (size_t i = 0; i < o->adapter_count; i++)
        RN_TRY(rn_image_adapters_load(&m->adapters, o->adapters[i].path, o->adapters[i].weight, all,
                                      1 + m->text_count));
    for (uint32_t i = 0; o->adapter_count && i < 1 + m->text_count; i++)
        all[i]->adapters = &m->adapters;
    return RN_OK;
}

static rn_status open_model(const char *path, const rn_diffusion_options *options,
                            bool may_be_drawn, const char *denoiser, rn_diffusion **out) {
    rn_diffusion_options none = {0};
    const rn_diffusion_options *o = options ? options : &none;
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_check_reserved(o->reserved, "rn_diffusion_options"));
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_diffusion), &block));
    rn_diffusion *m = block;
    m->may_be_drawn = may_be_drawn;
    m->instead = denoiser;
    rn_image_adapters_init(&m->adapters);
    name_after(m, path);
    rn_status s = is_folder(path) ? open_folder(m, path, o) : open_single(m, path, o);
    if (s == RN_OK) {
        settle_family(m);
        s = check_parts(m);
    }
    if (s == RN_OK && o->prediction)
        s = rn_prediction_parse(rn_str_from(o->prediction), &m->schedule.prediction);
    if (s == RN_OK) s = load_adapters(m, o);
    if (s == RN_OK && o->preview) s = open_preview(m, o->preview);
    if (s == RN_OK) {
        fill_info(m);
        *out = m;
    } else {
        rn_diffusion_close(m);
    }
    return s;
}

rn_status rn_diffusion_open(const char *path, const rn_diffusion_options *options,
                            rn_diffusion **out) {
    return open_model(path, options, false, NULL, out);
}

rn_status rn_diffusion_open_to_train(const char *path, const rn_diffusion_options *options,
                                     const char *denoiser, rn_diffusion **out) {
    return open_model(path, options, true, denoiser, out);
}

void rn_diffusion_close(rn_diffusion *model) {
    if (!model) return;
    for (uint32_t i = 0; i < RN_TEXT_ENCODERS; i++)
        rn_tokenizer_close(model->tokenizers[i]);
    for (uint32_t i = 0; i < model->file_count; i++)
        rn_checkpoint_close(model->files[i]);
    rn_image_adapters_free(&model->adapters);
    rn_free(FROM, model, sizeof *model);
}

const rn_diffusion_info *rn_diffusion_get_info(const rn_diffusion *model) {
    return &model->info;
}
