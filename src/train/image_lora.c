// image_lora.c — low-rank additions to a denoiser: to which of its weights, and their files.
//
//     pytorch_lora_weights.safetensors   unet.<module>.lora_A.weight (rank, in...), .lora_B.weight:
//                                        diffusers; B has the scale alpha / rank in it
//     lora_kohya.safetensors             lora_unet_<module>.lora_down.weight, .lora_up.weight,
//                                        .alpha, a module's parts joined by "_"
//
// The model's own writer adds them (rn_image_files.addition): "tuned.<weight>.down", at first
// uniform within 1 / sqrt of its inputs, and "tuned.<weight>.up", at first 0.
#include "train/image_trainer.h"

#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"

#include <ration/writer.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const usual[] = {"to_q", "to_k", "to_v", "to_out.0"};

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

static rn_status add_part(rn_image_lora *l, rn_arena *memory, const rn_value_info *weight) {
    char name[RN_IMAGE_NAME + 16];
    void *block = NULL;
    rn_image_lora_part *part = &l->parts[l->count++];
    size_t bytes = strlen(weight->name);
    if (bytes >= RN_IMAGE_NAME) return rn_fail(RN_UNSUPPORTED, "a weight's name is too long");
    RN_TRY(rn_arena_copy(memory, weight->name, bytes, &block));
    part->weight = block;
    RN_TRY(rn_arena_copy(memory, weight->name, bytes - sizeof ".weight" + 1, &block));
    part->module = block;
    snprintf(name, sizeof name, "tuned.%s.down", weight->name);
    RN_TRY(rn_arena_copy(memory, name, strlen(name), &block));
    part->low_rank.down = block;
    snprintf(name, sizeof name, "tuned.%s.up", weight->name);
    RN_TRY(rn_arena_copy(memory, name, strlen(name), &block));
    part->low_rank.up = block;
    part->low_rank.rank = l->rank;
    part->low_rank.scale = l->scale;
    return RN_OK;
}

static rn_status find_parts(rn_image_lora *l, rn_arena *memory, const rn_graph *graph, bool *used) {
    uint32_t values = rn_graph_value_count(graph);
    void *block = NULL;
    RN_TRY(rn_arena_array(memory, values, sizeof *l->parts, &block));
    l->parts = block;
    for (rn_value v = 1; v <= values; v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        char module[RN_IMAGE_NAME];
        if (info->role != RN_ROLE_WEIGHT || info->shape.rank < 2) continue;
        rn_str name = rn_str_from(info->name);
        size_t end = name.bytes;
        const char *rows = memchr(name.data, '[', name.bytes); // of a weight that is read in parts
        if (rows) end = (size_t)(rows - name.data);
        if (end <= 7 || end >= sizeof module || memcmp(name.data + end - 7, ".weight", 7) != 0)
            continue;
        memcpy(module, name.data, end - 7);
        module[end - 7] = 0;
        if (!is_wanted(l, module, used)) continue;
        if (rows)
            return rn_fail(RN_UNSUPPORTED, "'%s' cannot be adapted: its weight is read in parts",
                           module);
        if (info->dtype != RN_DTYPE_F32 && info->dtype != RN_DTYPE_F16 &&
            info->dtype != RN_DTYPE_BF16)
            return rn_fail(RN_UNSUPPORTED,
                           "'%s' is %s: additions to quantised image networks are "
                           "not built",
                           info->name, rn_dtype_get(info->dtype)->name);
        RN_TRY(add_part(l, memory, info));
    }
    return RN_OK;
}

static bool place(const void *self, const char *weight, rn_image_place *out) {
    const rn_image_lora *l = self;
    return l->component.files.place(l->component.files.self, weight, out);
}

static const rn_low_rank *addition(const void *self, const char *weight, uint32_t index) {
    const rn_image_lora *l = self;
    for (uint32_t i = 0; index == 0 && i < l->count; i++)
        if (strcmp(l->parts[i].weight, weight) == 0) return &l->parts[i].low_rank;
    return NULL;
}

rn_status rn_image_lora_init(rn_image_lora *l, rn_arena *memory, const rn_unet_config *config,
                             const rn_checkpoint *files, const rn_lora_options *o) {
    enum { MOST_TARGETS = 256 };
    bool used[MOST_TARGETS] = {false};
    rn_recipe recipe = {0};
    rn_graph *graph = NULL;
    if (!files)
        return rn_hint(rn_fail(RN_INVALID, "the denoiser has no weights to add to"),
                       "--method full trains it from nothing");
    l->rank = o->rank ? o->rank : 16;
    l->alpha = o->alpha > 0 ? o->alpha : (float)l->rank;
    l->scale = l->alpha / (o->by_root ? sqrtf((float)l->rank) : (float)l->rank);
    l->targets = o->target_count ? o->targets : usual;
    l->target_count = o->target_count ? o->target_count : sizeof usual / sizeof *usual;
    if (l->target_count > MOST_TARGETS || l->rank > 4096)
        return rn_fail(RN_INVALID, "a rank of %u, or more than %d targets", l->rank, MOST_TARGETS);
    l->component.config.unet = *config;
    RN_TRY(rn_image_component_open(&l->component, "unet", RN_IMAGE_UNET, files, "", NULL));
    RN_TRY(rn_image_component_recipe(&l->component, RN_IMAGE_FORWARD, &recipe));
    rn_status s = recipe.build(recipe.self, &(rn_recipe_options){0}, &graph);
    if (s == RN_OK) s = find_parts(l, memory, graph, used);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    for (size_t i = 0; s == RN_OK && i < l->target_count; i++)
        if (!used[i] && o->target_count)
            s = rn_hint(rn_fail(RN_INVALID, "the target '%s' names no weight", l->targets[i]),
                        "modules as diffusers names them: to_q, to_out.0, ff.net.2, "
                        "down_blocks.0.*.conv1");
    l->files = (rn_image_files){l, place, addition};
    return s;
}

// ---- files --------------------------------------------------------------------------------------

typedef struct export_job {
    rn_image_trainer *trainer;
    rn_writer *writer;
    bool kohya;
    rn_arena memory;
    rn_write_tensor *tensors;
    size_t count;
} export_job;

static const rn_trained *find_trained(const rn_image_trainer *t, const char *name) {
    for (uint32_t i = 0; i < t->trainer->weight_count; i++)
        if (strcmp(t->trainer->tensors[i].name, name) == 0) return &t->trainer->tensors[i];
    return NULL;
}

static rn_status declare(export_job *e, const char *module, const char *ending, rn_shape shape) {
    char name[RN_IMAGE_NAME + 32];
    void *text = NULL, *dims = NULL;
    snprintf(name, sizeof name, e->kohya ? "lora_unet_%s" : "unet.%s", module);
    for (char *c = name; e->kohya && *c; c++)
        if (*c == '.') *c = '_';
    size_t bytes = strlen(name);
    snprintf(name + bytes, sizeof name - bytes, ".%s", ending);
    RN_TRY(rn_arena_copy(&e->memory, name, strlen(name), &text));
    RN_TRY(rn_arena_array(&e->memory, shape.rank + 1, sizeof(uint64_t), &dims));
    memcpy(dims, shape.dims, shape.rank * sizeof(uint64_t));
    e->tensors[e->count++] = (rn_write_tensor){
        .name = rn_str_from(text), .dtype = RN_DTYPE_F32, .rank = shape.rank, .dims = dims};
    return RN_OK;
}

static rn_status declare_all(export_job *e) {
    const rn_image_lora *l = e->trainer->lora;
    void *block = NULL;
    RN_TRY(rn_arena_array(&e->memory, 3 * (size_t)l->count, sizeof *e->tensors, &block));
    e->tensors = block;
    for (uint32_t i = 0; i < l->count; i++) {
        const rn_image_lora_part *p = &l->parts[i];
        const rn_trained *down = find_trained(e->trainer, p->low_rank.down);
        const rn_trained *up = find_trained(e->trainer, p->low_rank.up);
        if (!down || !up) return rn_fail(RN_INTERNAL, "'%s' was not trained", p->module);
        RN_TRY(declare(e, p->module, e->kohya ? "lora_down.weight" : "lora_A.weight", down->shape));
        RN_TRY(declare(e, p->module, e->kohya ? "lora_up.weight" : "lora_B.weight", up->shape));
        if (e->kohya) RN_TRY(declare(e, p->module, "alpha", RN_SCALAR));
    }
    return RN_OK;
}

// kohya's scale is alpha / rank; of rsLoRA the alpha that gives the same one is written.
static rn_status append_all(export_job *e, const rn_trainer_scratch *scratch) {
    rn_image_trainer *t = e->trainer;
    const rn_image_lora *l = t->lora;
    float alpha = l->scale * (float)l->rank;
    for (uint32_t i = 0; i < l->count; i++) {
        const rn_low_rank *r = &l->parts[i].low_rank;
        const rn_trained *down = find_trained(t, r->down), *up = find_trained(t, r->up);
        RN_TRY(rn_trainer_write_tensor(t->trainer, down, RN_DTYPE_F32, e->writer, scratch));
        RN_TRY(rn_session_get(t->trainer->session, up->name, scratch->values, up->bytes));
        for (uint64_t k = 0; !e->kohya && k < up->count; k++)
            scratch->values[k] *= l->scale;
        RN_TRY(rn_writer_append(e->writer, scratch->values, up->bytes));
        if (e->kohya) RN_TRY(rn_writer_append(e->writer, &alpha, sizeof alpha));
    }
    return rn_writer_commit(e->writer);
}

static rn_metadata text_pair(const char *key, const char *text) {
    return (rn_metadata){.key = rn_str_from(key),
                         .kind = RN_METADATA_TEXT,
                         .gguf_type = 8,
                         .text = rn_str_from(text)};
}

static rn_status write_file(rn_image_trainer *t, bool kohya, const char *path) {
    export_job e = {.trainer = t, .kohya = kohya};
    rn_trainer_scratch scratch = {0};
    char rank[16], alpha[32], steps[24];
    snprintf(rank, sizeof rank, "%u", t->lora->rank);
    snprintf(alpha, sizeof alpha, "%g", (double)(t->lora->scale * (float)t->lora->rank));
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)t->trainer->steps);
    rn_metadata metadata[] = {text_pair("format", "pt"), text_pair("ss_network_dim", rank),
                              text_pair("ss_network_alpha", alpha), text_pair("ss_steps", steps),
                              text_pair("ss_network_module", "networks.lora")};
    rn_writer_options options = {.metadata = metadata,
                                 .metadata_count = kohya ? 5 : 1,
                                 .buffer_bytes = rn_trainer_buffer_bytes(t->trainer->most)};
    rn_arena_init(&e.memory, RN_HOST_IO, 0);
    rn_status s = declare_all(&e);
    if (s == RN_OK) s = rn_trainer_scratch_take(t->trainer, &scratch);
    if (s == RN_OK) s = rn_writer_create(path, e.tensors, e.count, &options, &e.writer);
    if (s == RN_OK) s = append_all(&e, &scratch);
    rn_writer_destroy(e.writer);
    rn_trainer_scratch_free(&scratch);
    rn_arena_free_all(&e.memory);
    return s;
}

rn_status rn_image_lora_export(rn_image_trainer *t, const char *folder) {
    char path[RN_IMAGE_PATH];
    RN_TRY(rn_path_join(folder, "pytorch_lora_weights.safetensors", path, sizeof path));
    RN_TRY(write_file(t, false, path));
    RN_TRY(rn_path_join(folder, "lora_kohya.safetensors", path, sizeof path));
    return write_file(t, true, path);
}
