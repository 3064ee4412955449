// image_lora.c — low-rank additions to a denoiser and its text encoders: to which of their weights.
// Their files are image_lora_file.c's.
//
// The model's own writer adds them (rn_image_files.addition): "tuned.<weight>.down", at first
// uniform within 1 / sqrt of its inputs, and "tuned.<weight>.up", at first 0. Of a text encoder's
// the weight has its prefix: "tuned.text_encoder.text_model...".
#include "train/image_trainer.h"

#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// The attention's; the second four are Flux's, of the text.
static const char *const usual[] = {"to_q",       "to_k",       "to_v",       "to_out.0",
                                    "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"};
static const char *const usual_of_text[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
enum { MOST_TARGETS = 256 };

const char *rn_image_text_prefix(uint32_t encoder) {
    return encoder ? "text_encoder_2." : "text_encoder.";
}

// ---- targets ------------------------------------------------------------------------------------

// By its last words ("to_q", "to_out.0"), or whole, with `*` and `?`.
static bool is_target(const char *module, const char *target) {
    rn_str name = rn_str_from(module), text = rn_str_from(target);
    if (rn_str_matches(name, text)) return true;
    return rn_str_ends(name, text) && name.bytes > text.bytes &&
           name.data[name.bytes - text.bytes - 1] == '.';
}

static bool is_wanted(const rn_image_lora *l, const char *module, bool *used) {
    bool any = false;
    for (size_t i = 0; i < l->target_count; i++) {
        bool match = is_target(module, l->targets[i]);
        used[i] |= match;
        any |= match;
    }
    return any;
}

// Layers of CLIP that nobody reads have no gradients: XL's first encoder answers before its last.
static bool is_read(const rn_image_lora *l, const char *module) {
    const rn_clip_config *c = &l->base->config.clip;
    unsigned number = 0;
    if (l->base->kind != RN_IMAGE_CLIP || l->text->gives_pooled) return true;
    return sscanf(module, "text_model.encoder.layers.%u.", &number) != 1 ||
           number + c->skip < c->layers;
}

static rn_status copy_name(rn_arena *memory, const char *format, const char *prefix,
                           const char *module, const char **out) {
    char name[RN_IMAGE_NAME + 40];
    void *block = NULL;
    snprintf(name, sizeof name, format, prefix, module);
    RN_TRY(rn_arena_copy(memory, name, strlen(name), &block));
    *out = block;
    return RN_OK;
}

static rn_status add_part(rn_image_lora *l, rn_arena *memory, const char *module, uint64_t out) {
    rn_image_lora_part *part = &l->parts[l->count++];
    *part = (rn_image_lora_part){.low_rank = {.rank = l->rank, .scale = l->scale}, .out = out};
    RN_TRY(copy_name(memory, "%s%s", "", module, &part->module));
    RN_TRY(copy_name(memory, "%s%s.weight", "", module, &part->weight));
    RN_TRY(copy_name(memory, "tuned.%s%s.weight.down", l->prefix, module, &part->low_rank.down));
    return copy_name(memory, "tuned.%s%s.weight.up", l->prefix, module, &part->low_rank.up);
}

// "ff.net.0.proj" of "ff.net.0.proj.weight[0:64]", of which layers read rows; false: no matrix or
// kernel.
static bool module_of(const rn_value_info *info, char out[RN_IMAGE_NAME]) {
    static const char ending[] = ".weight";
    const size_t n = sizeof ending - 1;
    if (info->role != RN_ROLE_WEIGHT || info->shape.rank < 2) return false;
    size_t end = strcspn(info->name, "[");
    if (end <= n || end >= RN_IMAGE_NAME || memcmp(info->name + end - n, ending, n) != 0)
        return false;
    memcpy(out, info->name, end - n);
    out[end - n] = 0;
    return true;
}

static bool is_listed(const rn_image_lora *l, const char *module) {
    for (uint32_t i = l->count; i > 0; i--)
        if (strcmp(l->parts[i - 1].module, module) == 0) return true;
    return false;
}

static rn_status find_parts(rn_image_lora *l, rn_arena *memory, const rn_graph *graph, bool *used) {
    uint32_t values = rn_graph_value_count(graph);
    void *block = NULL;
    RN_TRY(rn_arena_array(memory, values, sizeof *l->parts, &block));
    l->parts = block;
    for (rn_value v = 1; v <= values; v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        char module[RN_IMAGE_NAME];
        if (!module_of(info, module) || !is_wanted(l, module, used) || is_listed(l, module) ||
            !is_read(l, module))
            continue;
        bool rows = strchr(info->name, '[') != NULL;
        RN_TRY(add_part(l, memory, module, rows ? info->tensor_rows : info->shape.dims[0]));
    }
    return RN_OK;
}

static bool place(const void *self, const char *weight, rn_image_place *out) {
    const rn_image_lora *l = self;
    return l->base->files.place(l->base->files.self, weight, out);
}

static const rn_low_rank *addition(const void *self, const char *weight, uint32_t index) {
    const rn_image_lora *l = self;
    for (uint32_t i = 0; index == 0 && i < l->count; i++)
        if (strcmp(l->parts[i].weight, weight) == 0) return &l->parts[i].low_rank;
    return NULL;
}

// The weights of `l->base` that match its targets; used[i] is set where one matches the target.
static rn_status match_targets(rn_image_lora *l, rn_arena *memory, bool *used) {
    rn_recipe recipe = {0};
    rn_graph *graph = NULL;
    l->count = 0;
    RN_TRY(rn_image_component_recipe(l->base, RN_IMAGE_FORWARD, &recipe));
    rn_status s = recipe.build(recipe.self, &(rn_recipe_options){0}, &graph);
    if (s == RN_OK) s = find_parts(l, memory, graph, used);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    l->files = (rn_image_files){.self = l, .place = place, .addition = addition};
    return s;
}

static rn_status add_component(rn_image_trainer *t, const rn_image_component *base,
                               const rn_image_embedding *text, const char *prefix, bool *used) {
    const rn_lora_options *o = t->options.lora;
    rn_image_lora *l = &t->lora[t->lora_count++];
    uint32_t rank = o->rank ? o->rank : 16;
    float alpha = o->alpha > 0 ? o->alpha : (float)rank;
    bool unused[MOST_TARGETS] = {false};
    *l = (rn_image_lora){.base = base,
                         .text = text,
                         .prefix = prefix,
                         .rank = rank,
                         .alpha = alpha,
                         .scale = alpha / (o->by_root ? sqrtf((float)rank) : (float)rank),
                         .targets = o->targets,
                         .target_count = o->target_count};
    if (o->target_count) RN_TRY(match_targets(l, &t->memory, used));
    // Targets of a denoiser say nothing of text encoders, which have their usual ones then.
    if (l->count || (o->target_count && !text)) return RN_OK;
    l->targets = text ? usual_of_text : usual;
    l->target_count =
        text ? sizeof usual_of_text / sizeof *usual_of_text : sizeof usual / sizeof *usual;
    return match_targets(l, &t->memory, unused);
}

rn_status rn_image_lora_init(rn_image_trainer *t) {
    const rn_lora_options *o = t->options.lora;
    bool used[MOST_TARGETS] = {false};
    if (!t->model->denoiser.checkpoint)
        return rn_hint(rn_fail(RN_INVALID, "the denoiser has no weights to add to"),
                       "--method full trains it from nothing");
    if (o->dora) return rn_fail(RN_UNSUPPORTED, "DoRA of image networks is not built: LoRA is");
    if (o->target_count > MOST_TARGETS || o->rank > 4096)
        return rn_fail(RN_INVALID, "a rank of %u, or more than %d targets", o->rank, MOST_TARGETS);
    RN_TRY(add_component(t, &t->model->denoiser, NULL, "", used));
    for (uint32_t i = 0; i < t->model->text_count; i++)
        if (t->text[i].trained)
            RN_TRY(add_component(t, &t->encoders[i], &t->text[i], rn_image_text_prefix(i), used));
    for (size_t i = 0; i < o->target_count; i++)
        if (!used[i])
            return rn_hint(rn_fail(RN_INVALID, "the target '%s' names no weight", o->targets[i]),
                           "modules as diffusers names them: to_q, to_out.0, ff.net.2, "
                           "down_blocks.0.*.conv1");
    return RN_OK;
}
