// lora.c — see lora.h.
#include "train/lora.h"

#include "base/reserved.h"
#include "base/str.h"
#include "graph/philox.h"
#include "memory/account.h"
#include "model/text/decoder.h"
#include "model/text/text_network.h"

#include <math.h>
#include <stdio.h>

enum { NAME_BYTES = 128, USUAL_RANK = 16, MOST_RANK = 1 << 12 };

static rn_dtype dtype_of(const void *self, const char *weight) {
    const rn_lora *lora = self;
    return lora->base.dtype(lora->base.self, weight);
}

// Adapters that the model was opened with come first; they stay as they are.
static const rn_low_rank *addition_of(const void *self, const char *weight, uint32_t index) {
    const rn_lora *lora = self;
    uint64_t at = 0;
    uint32_t before = 0;
    for (; lora->base.addition; before++) {
        const rn_low_rank *frozen = lora->base.addition(lora->base.self, weight, before);
        if (!frozen) break;
        if (before == index) return frozen;
    }
    if (index != before || !rn_map_find(&lora->by_weight, rn_str_from(weight), &at)) return NULL;
    return &lora->parts[at].low_rank;
}

bool rn_lora_matches(const char *module, const char *pattern) {
    for (const char *at = module; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
        if (rn_str_matches(rn_str_from(at), rn_str_from(pattern))) return true;
    return false;
}

// ---- what is adapted ----------------------------------------------------------------------------

static bool is_target(const char *module, const rn_lora_options *o, bool *used) {
    const char *dot = strrchr(module, '.');
    rn_str whole = rn_str_from(module), word = rn_str_from(dot ? dot + 1 : module);
    bool found = o->target_count == 0;
    for (size_t i = 0; i < o->target_count; i++) {
        rn_str target = rn_str_from(o->targets[i]);
        if (!rn_str_matches(word, target) && !rn_str_matches(whole, target)) continue;
        used[i] = found = true;
    }
    return found;
}

static rn_status keep_name(rn_lora *lora, const char *format, const char *weight,
                           const char **out) {
    char name[2 * NAME_BYTES];
    void *copy = NULL;
    snprintf(name, sizeof name, format, weight);
    RN_TRY(rn_arena_copy(&lora->memory, name, strlen(name), &copy));
    *out = copy;
    return RN_OK;
}

// Its rank and alpha, and the scale that follows from them.
static void size_part(const rn_lora *lora, const char *module, rn_lora_part *p) {
    uint32_t rank = 0;
    float alpha = 0;
    for (size_t i = 0; i < lora->pattern_count; i++) {
        const rn_lora_pattern *pattern = &lora->patterns[i];
        if (!rn_lora_matches(module, pattern->module)) continue;
        if (rank == 0) rank = pattern->rank;
        if (alpha == 0) alpha = pattern->alpha;
    }
    p->low_rank.rank = rank ? rank : lora->rank;
    p->alpha = alpha != 0 ? alpha : lora->alpha;
    double by = p->low_rank.rank;
    p->low_rank.scale = (float)((double)p->alpha / (lora->by_root ? sqrt(by) : by));
}

// Where its first magnitudes come from.
static rn_status add_magnitude(rn_lora *lora, const char *weight, const rn_value_info *info,
                               rn_lora_part *p) {
    if (!lora->dora) return RN_OK;
    if (lora->base.addition && lora->base.addition(lora->base.self, weight, 0))
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "'%s' has an adapter already: DoRA is not trained "
                               "over it",
                               weight),
                       "merge it into the model first: ration convert MODEL OUT --lora ADAPTER");
    p->dtype = info->dtype;
    p->first_row = info->first_row;
    p->tensor_rows = info->tensor_rows;
    p->first_norm = lora->norm_count;
    lora->norm_count += p->out;
    if (info->tensor) RN_TRY(keep_name(lora, "%s", info->tensor, &p->tensor));
    return keep_name(lora, "tuned.%s.magnitude", weight, &p->low_rank.magnitude);
}

static rn_status add_part(rn_lora *lora, const char *weight, const char *module, rn_shape shape,
                          const rn_value_info *info) {
    rn_lora_part *p = &lora->parts[lora->count];
    *p = (rn_lora_part){.out = shape.dims[0], .in = shape.dims[1]};
    size_part(lora, module, p);
    RN_TRY(keep_name(lora, "%s", weight, &p->weight));
    RN_TRY(keep_name(lora, "%s", module, &p->module));
    RN_TRY(keep_name(lora, "tuned.%s.down", weight, &p->low_rank.down));
    RN_TRY(keep_name(lora, "tuned.%s.up", weight, &p->low_rank.up));
    RN_TRY(add_magnitude(lora, weight, info, p));
    return rn_map_add(&lora->by_weight, rn_str_from(p->weight), lora->count++, NULL);
}

// Whether part `p` of layer `layer` is a matrix that some product reads, and then its names.
static bool find_matrix(const rn_lora *lora, const rn_graph *graph, rn_text_part_id p,
                        uint32_t layer, char weight[NAME_BYTES], char module[NAME_BYTES],
                        rn_shape *out, rn_value *out_value) {
    const rn_text_part *part = &rn_text_architecture_of(&lora->config)->parts[p];
    rn_llama_config named = lora->config;
    if (!part->hugging_face || part->in == RN_SIZE_NONE || part->alone) return false;
    rn_text_weight_name(&named, p, layer, "weight", weight, NAME_BYTES);
    rn_value value = rn_graph_find(graph, RN_ROLE_WEIGHT, weight);
    if (value == RN_NO_VALUE) return false;
    *out_value = value;
    bool transposed = part->transposed && named.naming != RN_NAMES_GGUF;
    named.naming = RN_NAMES_HUGGING_FACE;
    rn_text_weight_name(&named, p, layer, "", module, NAME_BYTES);
    *out = rn_graph_value(graph, value)->shape;
    if (out->rank != 2) return false;
    if (transposed) *out = RN_SHAPE(out->dims[1], out->dims[0]);
    return true;
}

static rn_status find_parts(rn_lora *lora, const rn_graph *graph, const rn_lora_options *o,
                            bool *used) {
    char weight[NAME_BYTES], module[NAME_BYTES];
    void *parts = NULL;
    rn_shape shape;
    rn_value value;
    RN_TRY(rn_arena_array(&lora->memory,
                          (size_t)lora->config.layers * (RN_TEXT_PARTS - RN_TEXT_IN_LAYER),
                          sizeof *lora->parts, &parts));
    lora->parts = parts;
    for (uint32_t layer = 0; layer < lora->config.layers; layer++)
        for (rn_text_part_id p = RN_TEXT_IN_LAYER; p < RN_TEXT_PARTS; p++) {
            if (!find_matrix(lora, graph, p, layer, weight, module, &shape, &value)) continue;
            if (!is_target(module, o, used)) continue;
            const rn_value_info *info = rn_graph_value(graph, value);
            if (lora->dora && !rn_shape_equal(info->shape, shape))
                return rn_hint(rn_fail(RN_UNSUPPORTED,
                                       "'%s' is stored the other way round: DoRA is not trained "
                                       "over it",
                                       weight),
                               "take the GGUF file of the model, or LoRA");
            RN_TRY(add_part(lora, weight, module, shape, info));
            lora->parts[lora->count - 1].turned = p == RN_TEXT_Q || p == RN_TEXT_K;
        }
    for (size_t i = 0; i < o->target_count; i++)
        if (!used[i])
            return rn_hint(
                rn_fail(RN_INVALID, "no matrix of this model is called '%s'", o->targets[i]),
                "modules have names such as %s",
                lora->count ? lora->parts[0].module : "q_proj, v_proj, down_proj");
    return RN_OK;
}

static bool is_sensible(uint32_t rank, float alpha) {
    return rank <= MOST_RANK && isfinite(alpha);
}

static rn_status take_patterns(rn_lora *lora, const rn_lora_options *o) {
    void *block = NULL;
    RN_TRY(rn_arena_array(&lora->memory, o->pattern_count, sizeof *lora->patterns, &block));
    lora->patterns = block;
    lora->pattern_count = o->pattern_count;
    for (size_t i = 0; i < o->pattern_count; i++) {
        lora->patterns[i] = o->patterns[i];
        if (!is_sensible(o->patterns[i].rank, o->patterns[i].alpha))
            return rn_fail(RN_INVALID, "LoRA of rank %u with alpha %g is not possible ('%s')",
                           o->patterns[i].rank, (double)o->patterns[i].alpha,
                           o->patterns[i].module);
        RN_TRY(keep_name(lora, "%s", o->patterns[i].module, &lora->patterns[i].module));
    }
    return RN_OK;
}

// A pattern that matches nothing is a mistake.
static rn_status check_patterns(const rn_lora *lora) {
    for (size_t n = 0; n < lora->pattern_count; n++) {
        uint32_t i = 0;
        while (i < lora->count && !rn_lora_matches(lora->parts[i].module, lora->patterns[n].module))
            i++;
        if (i == lora->count)
            return rn_hint(rn_fail(RN_INVALID, "no matrix that is adapted is called '%s'",
                                   lora->patterns[n].module),
                           "modules have names such as %s",
                           lora->count ? lora->parts[0].module : "q_proj");
    }
    return RN_OK;
}

static rn_status take_init(rn_lora *lora, const char *init) {
    static const char *const others[] = {"loftq", "pissa", "olora", "corda", "eva", "lora_ga"};
    if (!init || strcmp(init, "default") == 0) return RN_OK;
    lora->gaussian = strcmp(init, "gaussian") == 0;
    if (lora->gaussian) return RN_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (rn_str_starts(rn_str_from(init), rn_str_from(others[i])))
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "first values by '%s' are not built: they come from the base's "
                                   "own matrices, or change them",
                                   init),
                           "take default, or gaussian");
    return rn_fail(RN_INVALID, "'%s' is no way to begin: default, gaussian", init);
}

static rn_status take_options(rn_lora *lora, const rn_lora_options *o) {
    RN_TRY(rn_check_reserved(o->reserved, "rn_lora_options"));
    lora->rank = o->rank ? o->rank : USUAL_RANK;
    lora->alpha = o->alpha != 0 ? o->alpha : (float)lora->rank;
    lora->by_root = o->by_root;
    lora->dora = o->dora;
    lora->by_word = true;
    for (size_t i = 0; i < o->target_count; i++)
        if (strpbrk(o->targets[i], ".*?")) lora->by_word = false;
    if (!is_sensible(lora->rank, lora->alpha))
        return rn_fail(RN_INVALID, "LoRA of rank %u with alpha %g is not possible", lora->rank,
                       (double)lora->alpha);
    RN_TRY(take_init(lora, o->init));
    return take_patterns(lora, o);
}

rn_status rn_lora_init(rn_lora *lora, const rn_model *model, uint32_t tokens,
                       const rn_lora_options *options) {
    static const rn_lora_options usual = {0};
    const rn_lora_options *o = options ? options : &usual;
    rn_graph *graph = NULL;
    rn_forward_values values = {0};
    void *used = NULL;
    *lora = (rn_lora){.network = &model->networks[0]};
    rn_arena_init(&lora->memory, RN_HOST_OTHER, 0);
    rn_map_init(&lora->by_weight, RN_HOST_OTHER);
    RN_TRY(take_options(lora, o));
    RN_TRY(rn_text_network_training(lora->network, tokens, &lora->config));
    lora->base = *lora->config.files;
    lora->files = (rn_llama_files){.self = lora, .dtype = dtype_of, .addition = addition_of};
    lora->config.files = &lora->files;
    rn_forward forward = rn_llama_forward(&lora->config);
    RN_TRY(forward.check(forward.config, true));
    RN_TRY(rn_arena_array(&lora->memory, o->target_count, sizeof(bool), &used));
    RN_TRY(rn_graph_create(&graph));
    rn_status s = forward.write(graph, forward.config, 1, &values);
    if (s == RN_OK) s = rn_graph_finish(graph);
    if (s == RN_OK) s = find_parts(lora, graph, o, used);
    if (s == RN_OK) s = check_patterns(lora);
    rn_graph_destroy(graph);
    return s;
}

void rn_lora_free(rn_lora *lora) {
    rn_lora_forget(lora);
    rn_map_free(&lora->by_weight);
    rn_arena_free_all(&lora->memory);
}

float rn_lora_first(const rn_lora *lora, const char *name, uint64_t seed, uint32_t number,
                    uint64_t element) {
    rn_str text = rn_str_from(name);
    uint64_t at = 0;
    bool magnitude = rn_str_ends(text, RN_STR(".magnitude"));
    if (rn_str_ends(text, RN_STR(".up"))) return 0;
    size_t behind = magnitude ? strlen(".magnitude") : strlen(".down");
    rn_str weight = {text.data + 6, text.bytes - 6 - behind}; // behind "tuned."
    if (!rn_map_find(&lora->by_weight, weight, &at)) return 0;
    if (magnitude) return lora->norms ? lora->norms[lora->parts[at].first_norm + element] : 0;
    if (lora->gaussian)
        return rn_philox_normal(seed, number, element) / (float)lora->parts[at].low_rank.rank;
    float unit = rn_philox_unit(rn_philox_word(seed, number, element));
    return (2 * unit - 1) / sqrtf((float)lora->parts[at].in);
}
