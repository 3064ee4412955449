// image_lora.c — low-rank additions to a denoiser: to which of its weights. Their files are
// image_lora_file.c's.
//
// The model's own writer adds them (rn_image_files.addition): "tuned.<weight>.down", at first
// uniform within 1 / sqrt of its inputs, and "tuned.<weight>.up", at first 0.
#include "train/image_trainer.h"

#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// The attention's; the second four are Flux's, of the text.
static const char *const usual[] = {"to_q",       "to_k",       "to_v",       "to_out.0",
                                    "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"};

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

static rn_status copy_name(rn_arena *memory, const char *format, const char *module,
                           const char **out) {
    char name[RN_IMAGE_NAME + 24];
    void *block = NULL;
    snprintf(name, sizeof name, format, module);
    RN_TRY(rn_arena_copy(memory, name, strlen(name), &block));
    *out = block;
    return RN_OK;
}

static rn_status add_part(rn_image_lora *l, rn_arena *memory, const char *module, uint64_t out) {
    rn_image_lora_part *part = &l->parts[l->count++];
    *part = (rn_image_lora_part){.low_rank = {.rank = l->rank, .scale = l->scale}, .out = out};
    RN_TRY(copy_name(memory, "%s", module, &part->module));
    RN_TRY(copy_name(memory, "%s.weight", module, &part->weight));
    RN_TRY(copy_name(memory, "tuned.%s.weight.down", module, &part->low_rank.down));
    return copy_name(memory, "tuned.%s.weight.up", module, &part->low_rank.up);
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
        if (!module_of(info, module) || !is_wanted(l, module, used) || is_listed(l, module))
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

rn_status rn_image_lora_init(rn_image_lora *l, rn_arena *memory, const rn_image_component *base,
                             const rn_lora_options *o) {
    enum { MOST_TARGETS = 256 };
    bool used[MOST_TARGETS] = {false};
    rn_recipe recipe = {0};
    rn_graph *graph = NULL;
    if (!base->checkpoint)
        return rn_hint(rn_fail(RN_INVALID, "the denoiser has no weights to add to"),
                       "--method full trains it from nothing");
    if (o->dora) return rn_fail(RN_UNSUPPORTED, "DoRA of image networks is not built: LoRA is");
    l->base = base;
    l->rank = o->rank ? o->rank : 16;
    l->alpha = o->alpha > 0 ? o->alpha : (float)l->rank;
    l->scale = l->alpha / (o->by_root ? sqrtf((float)l->rank) : (float)l->rank);
    l->targets = o->target_count ? o->targets : usual;
    l->target_count = o->target_count ? o->target_count : sizeof usual / sizeof *usual;
    if (l->target_count > MOST_TARGETS || l->rank > 4096)
        return rn_fail(RN_INVALID, "a rank of %u, or more than %d targets", l->rank, MOST_TARGETS);
    RN_TRY(rn_image_component_recipe(base, RN_IMAGE_FORWARD, &recipe));
    rn_status s = recipe.build(recipe.self, &(rn_recipe_options){0}, &graph);
    if (s == RN_OK) s = find_parts(l, memory, graph, used);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    for (size_t i = 0; s == RN_OK && i < l->target_count; i++)
        if (!used[i] && o->target_count)
            s = rn_hint(rn_fail(RN_INVALID, "the target '%s' names no weight", l->targets[i]),
                        "modules as diffusers names them: to_q, to_out.0, ff.net.2, "
                        "down_blocks.0.*.conv1");
    l->files = (rn_image_files){.self = l, .place = place, .addition = addition};
    return s;
}
