// file_type.c — the table of file types, and the rules.
#include "io/file_type.h"

#include <ration/convert.h>

#include "base/str.h"

#include <stdio.h>

// What a type's rules have to be told apart by.
typedef enum mixture {
    PLAIN, // one kind, the head apart
    Q2_K,
    Q2_K_S,
    Q3_K_M,
    Q3_K_L,
    Q4_K_S,
    Q4_K_M,
    Q5_K_M,
    IQ4,
    Q4_0_OR_Q5_0,
    MXFP4_EXPERTS
} mixture;

struct rn_file_type {
    const char *name, *alias;
    uint32_t number; // in general.file_type
    rn_dtype base;
    mixture mixture;
};

static const rn_file_type types[] = {
    {"q4_1", NULL, 3, RN_DTYPE_Q4_1, PLAIN},
    {"q5_0", NULL, 8, RN_DTYPE_Q5_0, Q4_0_OR_Q5_0},
    {"q5_1", NULL, 9, RN_DTYPE_Q5_1, PLAIN},
    {"q2_k", NULL, 10, RN_DTYPE_Q2_K, Q2_K},
    {"q2_k_s", NULL, 21, RN_DTYPE_Q2_K, Q2_K_S},
    {"q3_k_s", NULL, 11, RN_DTYPE_Q3_K, PLAIN},
    {"q3_k_m", "q3_k", 12, RN_DTYPE_Q3_K, Q3_K_M},
    {"q3_k_l", NULL, 13, RN_DTYPE_Q3_K, Q3_K_L},
    {"q4_k_s", NULL, 14, RN_DTYPE_Q4_K, Q4_K_S},
    {"q4_k_m", "q4_k", 15, RN_DTYPE_Q4_K, Q4_K_M},
    {"q5_k_s", NULL, 16, RN_DTYPE_Q5_K, PLAIN},
    {"q5_k_m", "q5_k", 17, RN_DTYPE_Q5_K, Q5_K_M},
    {"q6_k", NULL, 18, RN_DTYPE_Q6_K, PLAIN},
    {"iq4_nl", NULL, 25, RN_DTYPE_IQ4_NL, IQ4},
    {"iq4_xs", NULL, 30, RN_DTYPE_IQ4_XS, IQ4},
    {"mxfp4_moe", NULL, 38, RN_DTYPE_MXFP4, MXFP4_EXPERTS},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

const rn_file_type *rn_file_type_find(rn_str name) {
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (rn_str_equal_ignoring_case(name, rn_str_from(types[i].name)) ||
            (types[i].alias && rn_str_equal_ignoring_case(name, rn_str_from(types[i].alias))))
            return &types[i];
    return NULL;
}

uint32_t rn_file_type_number(const rn_file_type *type) {
    return type->number;
}

uint32_t rn_file_type_number_of(rn_dtype dtype) {
    static const struct {
        rn_dtype dtype;
        uint32_t number;
    } plain[] = {{RN_DTYPE_F32, 0}, {RN_DTYPE_F16, 1}, {RN_DTYPE_Q4_0, 2}, {RN_DTYPE_Q8_0, 7}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].dtype == dtype) return plain[i].number;
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].base == dtype) return types[i].number;
    return 32; // bf16, and what has no number of its own
}

// ---- what a tensor is for -----------------------------------------------------------------------

typedef enum role { HEAD, EMBEDDING, VALUES, QKV, OUTPUT, DOWN, OTHER } role;

static bool contains(rn_str text, const char *part) {
    rn_str wanted = rn_str_from(part);
    for (size_t i = 0; i + wanted.bytes <= text.bytes; i++)
        if (rn_str_starts((rn_str){text.data + i, text.bytes - i}, wanted)) return true;
    return false;
}

static role role_of(rn_str name) {
    if (rn_str_equal(name, RN_STR("output.weight"))) return HEAD;
    if (rn_str_equal(name, RN_STR("token_embd.weight")) ||
        rn_str_equal(name, RN_STR("per_layer_token_embd.weight")))
        return EMBEDDING;
    if (contains(name, "attn_qkv.weight")) return QKV;
    if (contains(name, "attn_kv_b.weight") || contains(name, "attn_v.weight")) return VALUES;
    if (contains(name, "attn_output.weight")) return OUTPUT;
    return contains(name, "ffn_down") ? DOWN : OTHER;
}

// Weights that are computed with as they are, or so small that nothing is won.
static bool is_quantised(const rn_mixed_tensor *t) {
    static const char *const kept[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "ffn_gate_tid2eid.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "indexer.k_proj.weight",
        "time_mix_",
        "indexer.q_proj.weight",
        "attn_rel_b.weight",
        ".position_embd",
        ".rel_pos",
        ".patch_embd",
        ".patch_merger",
    };
    uint32_t axes = t->rank;
    for (uint32_t i = 0; i < t->rank && t->dims[i] == 1; i++)
        axes--; // as ggml counts them
    if (axes < 2 || !rn_str_ends(t->name, RN_STR("weight"))) return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (contains(t->name, kept[i])) return false;
    return !rn_str_equal(t->name, RN_STR("position_embd.weight")) &&
           !rn_str_equal(t->name, RN_STR("token_types.weight"));
}

// "blk.7.ffn_down.weight": 7; 0 outside of layers. More than any model has are counted as the last.
static size_t layer_of(rn_str name) {
    enum { MOST = 65535 };
    size_t layer = 0, at = strlen("blk.");
    if (!rn_str_starts(name, RN_STR("blk."))) return 0;
    for (; at < name.bytes && name.data[at] >= '0' && name.data[at] <= '9' && layer < MOST; at++)
        layer = layer * 10 + (size_t)(name.data[at] - '0');
    return layer < MOST ? layer : MOST;
}

// ---- the model ----------------------------------------------------------------------------------

static uint64_t find_count(const rn_metadata *metadata, size_t count, rn_str architecture,
                           const char *name, uint64_t otherwise) {
    char key[128];
    int length = snprintf(key, sizeof key, "%.*s.%s", RN_STR_ARG(architecture), name);
    if (length < 0 || (size_t)length >= sizeof key) return otherwise;
    for (size_t i = 0; i < count; i++)
        if (rn_str_equal(metadata[i].key, rn_str_from(key)) &&
            (metadata[i].kind == RN_METADATA_U64 || metadata[i].kind == RN_METADATA_I64))
            return metadata[i].value.u64;
    return otherwise;
}

static void read_keys(rn_mixer *m, const rn_metadata *metadata, size_t count) {
    rn_str architecture = RN_STR("");
    for (size_t i = 0; i < count; i++)
        if (rn_str_equal(metadata[i].key, RN_STR("general.architecture")))
            architecture = metadata[i].text;
    uint64_t heads = find_count(metadata, count, architecture, "attention.head_count", 1);
    uint64_t kv_heads = find_count(metadata, count, architecture, "attention.head_count_kv", heads);
    m->layers = find_count(metadata, count, architecture, "block_count", 0);
    m->experts = find_count(metadata, count, architecture, "expert_count", 0);
    m->heads_a_kv_head = kv_heads ? heads / kv_heads : 0;
    m->falcon = rn_str_equal(architecture, RN_STR("falcon"));
    bool llama = rn_str_equal(architecture, RN_STR("llama")) && heads != kv_heads;
    m->is_70b = m->layers == 80 && (llama || rn_str_equal(architecture, RN_STR("qwen2")));
}

// Rules count a role's tensors layer by layer: how many lie before each layer.
static void count_roles(rn_mixer *m) {
    for (size_t i = 0; i < m->count; i++) {
        role what = role_of(m->tensors[i].name);
        size_t next = layer_of(m->tensors[i].name) + 1;
        m->tied = m->tied && what != HEAD;
        m->value_count += what == VALUES || what == QKV;
        if (!is_quantised(&m->tensors[i])) continue;
        m->values_before[next] += what == VALUES || what == QKV;
        m->downs_before[next] += what == DOWN;
    }
    for (size_t i = 0; i < m->named_layers; i++) {
        m->values_before[i + 1] += m->values_before[i];
        m->downs_before[i + 1] += m->downs_before[i];
    }
}

rn_status rn_mixer_init(rn_mixer *m, const rn_metadata *metadata, size_t count, rn_arena *arena) {
    void *block;
    read_keys(m, metadata, count);
    m->tied = true;
    m->named_layers = 1;
    for (size_t i = 0; i < m->count; i++) {
        size_t layers = layer_of(m->tensors[i].name) + 1;
        m->named_layers = layers > m->named_layers ? layers : m->named_layers;
    }
    RN_TRY(rn_arena_array(arena, 2 * (m->named_layers + 1), sizeof(uint32_t), &block));
    memset(block, 0, 2 * (m->named_layers + 1) * sizeof(uint32_t));
    m->values_before = block;
    m->downs_before = m->values_before + m->named_layers + 1;
    count_roles(m);
    return RN_OK;
}

// ---- the rules ----------------------------------------------------------------------------------

// The first and the last eighth of the layers, and every third between.
static bool wants_more(uint64_t layer, uint64_t layers) {
    uint64_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static rn_dtype choose_values(const rn_mixer *m, size_t index) {
    rn_dtype kind = m->type->base;
    uint64_t order = m->values_before[layer_of(m->tensors[index].name)];
    bool shared = m->heads_a_kv_head >= 4;
    switch (m->type->mixture) {
    case Q2_K:
        kind = shared ? RN_DTYPE_Q4_K : RN_DTYPE_Q3_K;
        break;
    case Q2_K_S:
        kind = shared ? RN_DTYPE_Q4_K : kind;
        break;
    case Q3_K_M:
        kind = order < 2 ? RN_DTYPE_Q5_K : RN_DTYPE_Q4_K;
        break;
    case Q3_K_L:
        kind = RN_DTYPE_Q5_K;
        break;
    case IQ4:
        kind = shared ? RN_DTYPE_Q5_K : kind;
        break;
    case Q4_K_M:
    case Q5_K_M:
        kind = wants_more(order, m->value_count) ? RN_DTYPE_Q6_K : kind;
        break;
    case Q4_K_S:
        kind = order < 4 ? RN_DTYPE_Q5_K : kind;
        break;
    default:
        break;
    }
    // In the 70B eight heads share a tensor of values: it is small, and many need it.
    if (m->is_70b && (kind == RN_DTYPE_Q3_K || kind == RN_DTYPE_Q4_K)) kind = RN_DTYPE_Q5_K;
    return m->experts == 8 ? RN_DTYPE_Q8_0 : kind;
}

static rn_dtype choose_down(const rn_mixer *m, size_t index) {
    rn_dtype kind = m->type->base;
    size_t named = layer_of(m->tensors[index].name);
    uint64_t layers = m->layers, layer = m->experts > 1 ? named : m->downs_before[named];
    bool first = layer < layers / 8, more = wants_more(layer, layers);
    switch (m->type->mixture) {
    case Q2_K:
        return RN_DTYPE_Q3_K;
    case Q2_K_S:
        return first ? RN_DTYPE_Q4_K : kind;
    case Q3_K_M:
        if (layer < layers / 16) return RN_DTYPE_Q5_K;
        return !m->falcon || more ? RN_DTYPE_Q4_K : RN_DTYPE_Q3_K;
    case Q3_K_L:
        return m->falcon ? RN_DTYPE_Q4_K : RN_DTYPE_Q5_K;
    case Q4_K_M:
        if (!m->falcon) return more ? RN_DTYPE_Q6_K : kind;
        return layer < layers / 16 ? RN_DTYPE_Q6_K : more ? RN_DTYPE_Q5_K : RN_DTYPE_Q4_K;
    case IQ4:
        return first && !m->has_importances ? RN_DTYPE_Q5_K : kind;
    case Q5_K_M:
        return more ? RN_DTYPE_Q6_K : kind;
    case Q4_K_S:
        return !m->falcon && first ? RN_DTYPE_Q5_K : kind;
    case Q4_0_OR_Q5_0:
        return m->has_importances && first ? RN_DTYPE_Q5_1 : kind;
    default:
        return kind;
    }
}

static rn_dtype choose_output(const rn_mixer *m) {
    mixture what = m->type->mixture;
    rn_dtype kind = m->type->base;
    if (m->falcon) return what == Q3_K_L ? RN_DTYPE_Q4_K : kind;
    if (m->experts == 8) {
        bool small = what == Q2_K || what == Q3_K_M || what == Q4_K_S || what == Q4_K_M ||
                     what == IQ4 || kind == RN_DTYPE_Q3_K;
        return small && what != Q3_K_L ? RN_DTYPE_Q5_K : kind;
    }
    if (what == Q2_K) return RN_DTYPE_Q3_K;
    if (what == Q3_K_M) return RN_DTYPE_Q4_K;
    return what == Q3_K_L ? RN_DTYPE_Q5_K : kind;
}

// By what the tensor is for; whether its rows are whole blocks is not asked yet.
static rn_dtype choose_kind(const rn_mixer *m, size_t index) {
    const rn_mixed_tensor *t = &m->tensors[index];
    rn_dtype kind = m->type->base;
    role what = role_of(t->name);
    bool experts_only = m->type->mixture == MXFP4_EXPERTS;
    if (what == HEAD || (what == EMBEDDING && m->tied)) {
        bool whole = t->dims[t->rank - 1] % rn_dtype_get(kind)->block_elements == 0;
        return experts_only || m->falcon || !whole ? RN_DTYPE_Q8_0 : RN_DTYPE_Q6_K;
    }
    bool expert = t->is_expert || (t->rank > 2 && t->dims[0] > 1);
    if (experts_only) return expert ? RN_DTYPE_MXFP4 : RN_DTYPE_Q8_0;
    if (what == EMBEDDING) return kind;
    if (what == VALUES || what == QKV) return choose_values(m, index);
    if (m->experts == 8 && contains(t->name, "attn_k.weight")) return RN_DTYPE_Q8_0;
    if (what == DOWN) return choose_down(m, index);
    return what == OUTPUT ? choose_output(m) : kind;
}

// Where rows are no multiples of the kind's block: a kind of 32 with about as many bits, or f16.
static rn_dtype fall_back(rn_dtype kind, uint64_t columns) {
    if (columns % rn_dtype_get(kind)->block_elements == 0) return kind;
    switch (kind) {
    case RN_DTYPE_IQ4_XS:
        kind = RN_DTYPE_IQ4_NL;
        break;
    case RN_DTYPE_Q2_K:
    case RN_DTYPE_Q3_K:
        kind = RN_DTYPE_Q4_0;
        break;
    case RN_DTYPE_Q4_K:
        kind = RN_DTYPE_Q5_0;
        break;
    case RN_DTYPE_Q5_K:
        kind = RN_DTYPE_Q5_1;
        break;
    default:
        kind = RN_DTYPE_Q8_0;
        break;
    }
    return columns % rn_dtype_get(kind)->block_elements ? RN_DTYPE_F16 : kind;
}

rn_dtype rn_mixer_choose(const rn_mixer *m, size_t index) {
    const rn_mixed_tensor *t = &m->tensors[index];
    if (!is_quantised(t)) return RN_DTYPE_NONE;
    return fall_back(choose_kind(m, index), t->dims[t->rank - 1]);
}

// ---- targets ------------------------------------------------------------------------------------

bool rn_convert_parse_target(rn_str name, rn_convert_options *options) {
    const rn_file_type *type = rn_file_type_find(name);
    rn_dtype to = type ? RN_DTYPE_NONE : rn_dtype_parse(name);
    if (!type && to == RN_DTYPE_NONE) return false;
    options->file_type = type ? type->name : NULL;
    options->to = to;
    return true;
}
