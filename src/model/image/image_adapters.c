// image_adapters.c — see image_adapters.h. Each weight of a network asks the file for its two
// matrices, under every name that a trainer may have given them.
#include "model/image/image_adapters.h"

#include "memory/account.h"

#include <stdio.h>
#include <string.h>

#define FROM RN_HOST_OTHER
enum { LISTED = 3 }; // names of an error

void rn_image_adapters_init(rn_image_adapters *adapters) {
    *adapters = (rn_image_adapters){0};
    rn_arena_init(&adapters->memory, FROM, 64 << 10);
}

void rn_image_adapters_free(rn_image_adapters *adapters) {
    rn_free(FROM, adapters->list, adapters->capacity * sizeof *adapters->list);
    rn_arena_free_all(&adapters->memory);
}

// ---- names --------------------------------------------------------------------------------------

// Before a module's name, of each component: kohya's and diffusers', and none.
typedef struct prefixes {
    const char *component, *kohya[2], *dotted[3];
} prefixes;
static const prefixes known[] = {
    {"unet", {"lora_unet_", NULL}, {"unet.", "diffusion_model.", ""}},
    {"transformer", {"lora_unet_", "lora_transformer_"}, {"transformer.", "diffusion_model.", ""}},
    {"text_encoder", {"lora_te_", "lora_te1_"}, {"text_encoder.", NULL, NULL}},
    {"text_encoder_2", {"lora_te2_", "lora_te3_"}, {"text_encoder_2.", NULL, NULL}},
};
static const char *const downs[] = {".lora_A.weight", ".lora_down.weight", ".lora.down.weight",
                                    ".lora_A.default.weight", "_lora.down.weight"};
static const char *const ups[] = {".lora_B.weight", ".lora_up.weight", ".lora.up.weight",
                                  ".lora_B.default.weight", "_lora.up.weight"};
enum { FORMS = sizeof downs / sizeof *downs };

typedef struct pair {
    const rn_tensor_info *down, *up, *alpha;
    rn_image_place place; // of the weight in what the pair belongs to
} pair;

static bool find_form(const rn_checkpoint *file, const char *module, pair *out) {
    for (int i = 0; i < FORMS; i++) {
        out->down = rn_checkpoint_find(file, rn_image_named("%s%s", module, downs[i]).text);
        out->up = rn_checkpoint_find(file, rn_image_named("%s%s", module, ups[i]).text);
        out->alpha = rn_checkpoint_find(file, rn_image_named("%s.alpha", module).text);
        if (out->down && out->up) return true;
    }
    return false;
}

static const prefixes *prefixes_of(const char *component) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].component, component) == 0) return &known[i];
    return NULL;
}

// The module's pair under one naming.
static bool find_named(const rn_checkpoint *file, const prefixes *before, const char *module,
                       pair *out) {
    char flat[RN_IMAGE_NAME];
    snprintf(flat, sizeof flat, "%s", module);
    for (char *c = flat; *c; c++)
        if (*c == '.') *c = '_';
    for (int i = 0; i < 2; i++)
        if (before->kohya[i] &&
            find_form(file, rn_image_named("%s%s", before->kohya[i], flat).text, out))
            return true;
    for (int i = 0; i < 3; i++)
        if (before->dotted[i] &&
            find_form(file, rn_image_named("%s%s", before->dotted[i], module).text, out))
            return true;
    return false;
}

static bool find_pair(const rn_checkpoint *file, const rn_image_component *c, const char *weight,
                      pair *out) {
    static const rn_image_naming all[] = {RN_IMAGE_DIFFUSERS, RN_IMAGE_SGM, RN_IMAGE_BFL,
                                          RN_IMAGE_BARE};
    const prefixes *before = prefixes_of(c->name);
    size_t bytes = strlen(weight);
    if (!before || bytes < 7 || strcmp(weight + bytes - 7, ".weight") != 0) return false;
    rn_image_name module = rn_image_named("%.*s", (int)(bytes - 7), weight);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool fits = all[i] == RN_IMAGE_DIFFUSERS ||
                    (all[i] == RN_IMAGE_SGM && c->kind == RN_IMAGE_UNET) ||
                    (all[i] == RN_IMAGE_BFL && c->kind == RN_IMAGE_FLUX) ||
                    (all[i] == RN_IMAGE_BARE && c->kind == RN_IMAGE_CLIP);
        rn_image_names names = c->names;
        names.naming = all[i];
        if (fits && rn_image_rename(&names, module.text, &out->place) &&
            find_named(file, before, out->place.tensor, out))
            return true;
    }
    return false;
}

// ---- loading ------------------------------------------------------------------------------------

static rn_status grow(rn_image_adapters *a) {
    if (a->count < a->capacity) return RN_OK;
    uint32_t capacity = a->capacity ? 2 * a->capacity : 64;
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, capacity, sizeof *a->list, &block));
    if (a->count) memcpy(block, a->list, a->count * sizeof *a->list);
    rn_free(FROM, a->list, a->capacity * sizeof *a->list);
    a->list = block;
    a->capacity = capacity;
    return RN_OK;
}

static rn_status load(rn_image_adapters *a, const rn_checkpoint *file, const rn_tensor_info *t,
                      float **out) {
    void *data = NULL;
    RN_TRY(rn_arena_array(&a->memory, t->elements, sizeof(float), &data));
    RN_TRY(rn_checkpoint_load(file, t, RN_DTYPE_F32, data, t->elements * sizeof(float)));
    *out = data;
    return RN_OK;
}

static rn_status copy_text(rn_image_adapters *a, const char *text, const char **out) {
    void *copy = NULL;
    RN_TRY(rn_arena_copy(&a->memory, text, strlen(text), &copy));
    *out = copy;
    return RN_OK;
}

// The weight's shape (O, I...) against the pair's: down (r, I...), up (rows of O, r).
static rn_status add_pair(rn_image_adapters *a, const rn_checkpoint *file, const pair *p,
                          float weight, const char *component, const rn_value_info *info,
                          const char *name) {
    uint64_t out =
        info->tensor && strchr(info->name, '[') ? info->tensor_rows : info->shape.dims[0];
    uint64_t in = rn_shape_elements(info->shape, 1) / info->shape.dims[0];
    uint64_t rank = p->down->rank ? p->down->dims[0] : 0;
    uint64_t rows = p->place.tensor_rows ? p->place.tensor_rows : out;
    if (rank == 0 || p->down->elements != rank * in || p->up->elements != rows * rank ||
        rank > UINT32_MAX)
        return rn_hint(rn_fail(RN_CORRUPT, "'%.*s' does not fit %s's '%s'",
                               RN_STR_ARG(p->down->name), component, name),
                       "the adapter is for another version of the model");
    float *down = NULL, *up = NULL, alpha = (float)rank;
    RN_TRY(grow(a));
    RN_TRY(load(a, file, p->down, &down));
    RN_TRY(load(a, file, p->up, &up));
    if (p->alpha && p->alpha->elements == 1)
        RN_TRY(rn_checkpoint_load(file, p->alpha, RN_DTYPE_F32, &alpha, sizeof alpha));
    rn_image_addition *more = &a->list[a->count];
    *more = (rn_image_addition){.down = down,
                                .up = up + p->place.first_row * rank,
                                .down_bytes = rank * in * sizeof(float),
                                .up_bytes = out * rank * sizeof(float)};
    RN_TRY(copy_text(a, component, &more->component));
    RN_TRY(copy_text(a, name, &more->weight));
    rn_image_name text = rn_image_named("lora.%u.%s.%s.down", a->count, component, name);
    RN_TRY(copy_text(a, text.text, &more->low_rank.down));
    text = rn_image_named("lora.%u.%s.%s.up", a->count, component, name);
    RN_TRY(copy_text(a, text.text, &more->low_rank.up));
    more->low_rank.rank = (uint32_t)rank;
    more->low_rank.scale = weight * alpha / (float)rank;
    a->count++;
    return RN_OK;
}

// "ff.net.0.proj.weight[0:32]" is a part of its weight, which stands for all of them.
static bool is_first_part(const rn_value_info *info, rn_image_name *out) {
    const char *bracket = strchr(info->name, '[');
    *out = rn_image_named("%.*s", bracket ? (int)(bracket - info->name) : (int)strlen(info->name),
                          info->name);
    return !bracket || strncmp(bracket, "[0:", 3) == 0;
}

static rn_status load_component(rn_image_adapters *a, const rn_checkpoint *file, float weight,
                                const rn_image_component *c, uint32_t *matched) {
    rn_recipe recipe;
    rn_graph *graph = NULL;
    rn_image_component bare = *c; // without the adapters that are being loaded
    bare.adapters = NULL;
    RN_TRY(rn_image_component_recipe(&bare, RN_IMAGE_FORWARD, &recipe));
    rn_status s = recipe.build(recipe.self, NULL, &graph);
    rn_recipe_destroy(&recipe);
    for (rn_value v = 1; s == RN_OK && v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        rn_image_name name;
        pair p;
        if (info->role != RN_ROLE_WEIGHT || info->shape.rank < 2 || !is_first_part(info, &name) ||
            !find_pair(file, c, name.text, &p))
            continue;
        s = add_pair(a, file, &p, weight, c->name, info, name.text);
        if (s == RN_OK) *matched += p.alpha ? 3 : 2;
    }
    rn_graph_destroy(graph);
    return s;
}

static rn_status refuse_all(const rn_checkpoint *file, const char *path) {
    char names[512] = "";
    size_t at = 0, count = rn_checkpoint_count(file);
    for (size_t i = 0; i < count && i < LISTED && at < sizeof names; i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(file, i);
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%.120s", i ? ", " : "",
                               t->name.data);
    }
    return rn_hint(rn_fail(RN_INVALID, "%s: none of its %zu tensors belongs to the model (%s%s)",
                           path, count, names, count > LISTED ? ", ..." : ""),
                   "the adapter is for another model, or not a LoRA");
}

rn_status rn_image_adapters_load(rn_image_adapters *adapters, const char *path, float weight,
                                 rn_image_component *const *components, uint32_t component_count) {
    rn_checkpoint *file = NULL;
    uint32_t matched = 0;
    RN_TRY(rn_checkpoint_open(path, &file));
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < component_count; i++)
        s = load_component(adapters, file, weight, components[i], &matched);
    if (s == RN_OK && matched == 0) s = refuse_all(file, path);
    size_t count = rn_checkpoint_count(file);
    if (s == RN_OK && count > matched) adapters->unmatched += (uint32_t)(count - matched);
    rn_checkpoint_close(file);
    return s;
}

// ---- finding ------------------------------------------------------------------------------------

const rn_low_rank *rn_image_adapters_find(const rn_image_adapters *adapters, const char *component,
                                          const char *weight, uint32_t index) {
    for (uint32_t i = 0; i < adapters->count; i++) {
        const rn_image_addition *a = &adapters->list[i];
        if (strcmp(a->weight, weight) == 0 && strcmp(a->component, component) == 0 && index-- == 0)
            return &a->low_rank;
    }
    return NULL;
}

const void *rn_image_adapters_weight(const rn_image_adapters *adapters, const char *name,
                                     rn_dtype dtype, uint64_t bytes) {
    for (uint32_t i = 0; i < adapters->count && dtype == RN_DTYPE_F32; i++) {
        const rn_image_addition *a = &adapters->list[i];
        if (bytes == a->down_bytes && strcmp(a->low_rank.down, name) == 0) return a->down;
        if (bytes == a->up_bytes && strcmp(a->low_rank.up, name) == 0) return a->up;
    }
    return NULL;
}
