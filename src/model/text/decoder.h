// decoder.h — what text architectures are made of: named weights, norms, products with adapters,
// attention over pages or over whole sequences.
//
// An architecture is one file with one `const rn_text_architecture`, and a row in
// architectures.c. It names its weights (rn_text_part), says how its files' settings become an
// rn_llama_config, and writes one layer of plain ops from the functions below; embedding, head,
// inputs and the recipe are decoder.c's for all of them.
#ifndef RN_MODEL_TEXT_DECODER_H
#define RN_MODEL_TEXT_DECODER_H

#include "base/json.h"
#include "io/pairs.h"
#include "model/text/text_config.h"

// The sizes that shapes of weights are made of.
typedef enum rn_text_size {
    RN_SIZE_NONE, // of a vector's second axis
    RN_SIZE_DIM,
    RN_SIZE_WIDE,   // all heads of q
    RN_SIZE_NARROW, // all heads of k, or of v
    RN_SIZE_QKV,    // q, k and v one after the other
    RN_SIZE_FFN,
    RN_SIZE_TWO_FFN, // gate and up one after the other
    RN_SIZE_VOCAB,
    RN_SIZE_HEAD_DIM,
    RN_SIZE_POSITIONS, // of a table of learned positions
    RN_SIZE_TYPES,     // kinds of tokens: all are the first but for the second of two texts
    RN_SIZE_BUCKETS,   // of distances
    RN_SIZE_HEADS,
    RN_SIZE_DENSE, // between the products behind pooling
    RN_SIZE_SCORE, // 1
    // Of layers with states:
    RN_SIZE_THREE_DIM,
    RN_SIZE_TWO_WIDE,    // q and a gate of as many
    RN_SIZE_MIXED,       // q, k and v of a gated delta net
    RN_SIZE_VALUES,      // all its value heads
    RN_SIZE_VALUE_HEADS, // their number
    RN_SIZE_VALUE_DIM,   // of one of them
    RN_SIZE_MIXED_GATED, // q, k, v and the gate of a gated delta net
    RN_SIZE_TWO_VALUE_HEADS,
    // Of mixtures of experts:
    RN_SIZE_EXPERTS,
    RN_SIZE_EXPERT_FFN,
    RN_SIZE_TWO_EXPERT_FFN, // gate and up one after the other
    RN_SIZE_SHARED_FFN,
    RN_SIZE_ONE,
    // Of latent attention:
    RN_SIZE_Q_RANK,
    RN_SIZE_KV_RANK,
    RN_SIZE_LATENT,           // and the turned key behind it
    RN_SIZE_STILL,            // of a head, what is not turned
    RN_SIZE_HEAD_KEYS_VALUES, // of all heads, such keys and values
    RN_SIZE_HEAD_VALUES,      // values
    RN_SIZE_HEAD_LATENTS      // latents
} rn_text_size;

// Weights by what they are for. An architecture has some of them.
typedef enum rn_text_part_id {
    RN_TEXT_EMBEDDING,
    RN_TEXT_POSITIONS,
    RN_TEXT_TYPES,
    RN_TEXT_EMBEDDING_NORM,
    RN_TEXT_DISTANCES, // a bias by the distance of key and query, for all layers
    RN_TEXT_NORM,
    RN_TEXT_HEAD,
    RN_TEXT_DENSE_IN, // products behind pooling
    RN_TEXT_DENSE_OUT,
    RN_TEXT_RANK_IN, // a reranker's head
    RN_TEXT_RANK_OUT,
    RN_TEXT_IN_LAYER, // from here on: once a layer
    RN_TEXT_ATTENTION_NORM = RN_TEXT_IN_LAYER,
    RN_TEXT_SHARED_NORM, // of both branches
    RN_TEXT_Q,
    RN_TEXT_K,
    RN_TEXT_V,
    RN_TEXT_QKV,
    RN_TEXT_O,
    RN_TEXT_Q_A, // latent attention: what queries are made from, ...
    RN_TEXT_Q_B,
    RN_TEXT_KV_A, // ... the latent and the turned key, ...
    RN_TEXT_KV_B, // ... heads' keys and values from the latent, ...
    RN_TEXT_K_B,  // ... or both apart, the former transposed
    RN_TEXT_V_B,
    RN_TEXT_SINKS, // a score of each head's without a value
    RN_TEXT_Q_NORM,
    RN_TEXT_K_NORM,
    RN_TEXT_POST_ATTENTION_NORM,
    RN_TEXT_FFN_NORM,
    RN_TEXT_GATE,
    RN_TEXT_UP,
    RN_TEXT_DOWN,
    RN_TEXT_POST_FFN_NORM,
    RN_TEXT_DENSE_POST_NORM, // of the dense branch, where experts stand beside it, ...
    RN_TEXT_EXPERTS_NORM,    // ... and of theirs
    RN_TEXT_EXPERTS_POST_NORM,
    RN_TEXT_MIX_IN, // layers with states: what goes into the convolution, ...
    RN_TEXT_CONV,
    RN_TEXT_MIX_OUT, // ... what comes out at the end
    RN_TEXT_Z,       // a gated delta net: the gate of what it says, ...
    RN_TEXT_A,       // ... how fast it forgets, ...
    RN_TEXT_A_BIAS,
    RN_TEXT_A_RATE,
    RN_TEXT_B, // ... how much it takes
    RN_TEXT_STATE_NORM,
    RN_TEXT_MIX_IN_Z, // what goes into the convolution with that gate, ...
    RN_TEXT_BA,       // ... and both of these, key head by key head
    RN_TEXT_LAYER_SCALE,
    RN_TEXT_ROUTER, // mixtures of experts: who is chosen, ...
    RN_TEXT_ROUTER_BIAS,
    RN_TEXT_ROUTER_SCALE, // of what it reads
    RN_TEXT_EXPERT_SCALE, // of each expert's weight
    RN_TEXT_EXPERT_GATE,  // ... the experts' matrices, one or all in a tensor, ...
    RN_TEXT_EXPERT_UP,
    RN_TEXT_EXPERT_DOWN,
    RN_TEXT_EXPERTS_GATE_UP, // ... in files that have both of all experts in one
    RN_TEXT_EXPERTS_GATE_UP_BIAS,
    RN_TEXT_EXPERTS_DOWN,
    RN_TEXT_EXPERTS_DOWN_BIAS,
    RN_TEXT_SHARED_GATE, // ... and what every row goes through
    RN_TEXT_SHARED_UP,
    RN_TEXT_SHARED_DOWN,
    RN_TEXT_SHARED_ROUTER,
    RN_TEXT_PARTS
} rn_text_part_id;

typedef struct rn_text_part {
    const char *hugging_face, *gguf; // behind the layer's prefix, before ".weight" or ".bias"
    rn_text_size out, in;            // (out, in); a vector (out)
    bool transposed;                 // (in, out) in Hugging Face's files
    bool alone;                      // neither ".weight" nor ".bias" follows
} rn_text_part;

struct rn_text_architecture {
    const char *name;               // general.architecture in GGUF; what is shown
    const char *model_type;         // in config.json; NULL: the name
    const char *also;               // families and models that are of it, for hints; or NULL
    const char *layers[RN_NAMINGS]; // the layers' prefix: "model.layers", "blk"
    const char *prefix;             // of all of Hugging Face's names, or NULL
    const char *outer;         // a prefix of Hugging Face's names that some files lack, or NULL
    const char *settings;      // the object of config.json with all but model_type, or NULL
    const rn_text_part *parts; // (RN_TEXT_PARTS); without names: it has no such weight
    const char *const *unused; // patterns of tensors that files have for other things; or NULL
    bool layernorm;            // norms are layer norms with biases, not RMS norms ...
    bool no_norm_bias;         // ... without biases
    // Settings, after sizes and what all have in common was read. from_gguf may be NULL.
    rn_status (*from_json)(const rn_fields *fields, rn_text_config *config);
    rn_status (*from_gguf)(const rn_fields *fields, rn_text_config *config);
    // Writes layer d->layer; x (rows, dim).
    rn_value (*layer)(rn_text_builder *d, rn_value x);
    // For the readers of settings that several have in common:
    bool qkv_bias, qk_norm;    // always
    bool qk_norm_if_there;     // qk_norm, where a GGUF file has the tensors
    bool partial_rope;         // rope may turn a part of each head
    bool grouped_qkv;          // Hugging Face's rows of qkv: for each head of k its heads of q,
                               // itself and its v; all of q, of k, of v otherwise
    bool fused_mix;            // RN_TEXT_MIX_IN_Z and RN_TEXT_BA instead of what they are made of
    bool long_rope;            // rope may be LongRoPE
    bool experts;              // it has mixtures of experts
    bool latent;               // attention is latent: GGUF's widths of heads are those of latents
    bool norm_experts;         // weights of experts are divided by their sum where nothing is said
    bool two_heads;            // full_head_dim; GGUF says that as the width of a head
    bool window;               // config.json's sliding_window counts ...
    bool window_switch;        // ... where use_sliding_window says so
    rn_rope_pairing gguf_rope; // how GGUF files lay out q and k
    // For conversions between Hugging Face's files and GGUF (translate.h); names and shapes are
    // those of `parts`.
    const char *model_class;     // in config.json's "architectures"; NULL: it is not converted
    const char *gguf_name;       // general.architecture that files get; NULL: the name
    const char *json_epsilon;    // config.json's word for the norms' epsilon; NULL: "rms_norm_eps"
    const char *json_activation; // and for the activation; NULL: "hidden_act"
    bool json_rope;              // config.json has all of rope in "rope_parameters"
    bool yarn_share;             // GGUF says what YARN multiplies cos and sin by
    bool kv_heads_by_layer;      // GGUF lists a layer's, 0 for those with a state
    bool gguf_cuts_yarn;         // GGUF's YARN is cut to whole pairs, whatever config.json says
    // Of those with experts:
    const char *json_experts; // config.json's word for their number
    bool json_one_ffn;        // config.json has no width of theirs beside the feed-forward's
    bool json_gate_up;    // its folders have gate and up of all experts of a layer in one tensor,
    bool gguf_gate_up;    // and GGUF files of it
    bool experts_in_turn; // in the former, rows of gate and up in turn, of mxfp4
    // Settings beyond rn_text_settings_to_gguf's; in place of rn_text_settings_to_json. Either may
    // be NULL.
    rn_status (*to_gguf)(const rn_text_config *config, rn_pairs *out);
    void (*to_json)(const rn_text_config *config, rn_json *json);
};

// A graph being written.
struct rn_text_builder {
    rn_graph *g;
    const rn_llama_config *c;
    const rn_text_architecture *architecture;
    uint32_t batch;                // 0: inference
    uint64_t rows;                 // RN_ROWS, or batch * tokens
    uint64_t head_dim, kv_heads;   // of the layer
    rn_value positions;            // (ROWS), or (batch, tokens)
    rn_value sequence, page_table; // inference
    rn_value window_table;         // of layers whose window rolls; or RN_NO_VALUE
    rn_value documents;            // training: (batch, tokens), or none
    rn_value span, distances;      // packed; distances: (heads, 2 * reach + 1), or none
    rn_value types;                // of tokens, or none: all are of the first
    rn_value embedding;            // the table
    rn_value divisors;             // of rope, where it has some
    rn_value query_scales;         // (context, 1), where queries grow with positions
    uint32_t layer;
};

// ---- for layers ---------------------------------------------------------------------------------

uint64_t rn_build_size(const rn_text_builder *d, rn_text_size size);
// The norm `p` of x, over its last axis.
rn_value rn_build_norm(rn_text_builder *d, rn_value x, rn_text_part_id p);
// A small weight as f32, whatever the file holds; the vector `p`. `what` is "weight",
// "bias" or, for a name without either, "".
rn_value rn_build_f32(rn_text_builder *d, rn_text_part_id p, const char *what, rn_shape shape);
rn_value rn_build_vector(rn_text_builder *d, rn_text_part_id p, const char *what);
// The matrix `p`, for products that are not rn_build_project's.
rn_value rn_build_matrix(rn_text_builder *d, rn_text_part_id p);
// x wᵀ + bias, and what adapters add.
rn_value rn_build_project(rn_text_builder *d, rn_value x, rn_text_part_id p, bool has_bias);
// x (rows, heads * head_dim) as (ROWS, heads, head_dim) or (batch, tokens, heads, head_dim).
rn_value rn_build_split(rn_text_builder *d, rn_value x, uint64_t heads);
// Whether the layer being written sees its window only; heads turned by its rope, where it has one.
bool rn_build_is_local(const rn_text_builder *d);
rn_value rn_build_turn(rn_text_builder *d, rn_value heads);
// x + y, y times the residual scale.
rn_value rn_build_add(rn_text_builder *d, rn_value x, rn_value y);
// Of q, k, v, split into heads and turned: (rows, heads * head_dim). In inference keys and values
// go into the sequences' pages; a row sees those of its own sequence.
rn_value rn_build_attention(rn_text_builder *d, rn_value q, rn_value k, rn_value v);
// Of queries (rows, heads, LATENT) and keys (rows, 1, LATENT), which are kept without values: the
// heads' latents (rows, heads, KV_RANK).
rn_value rn_build_latent_attention(rn_text_builder *d, rn_value q, rn_value k);
// The attention of a Llama: q, k and v from x, [norms of q and k], rope, attention, o. Norms are of
// each head, or of all of them where the part's size says so.
rn_value rn_build_attend(rn_text_builder *d, rn_value x);
// The same with q, k and v from one product.
rn_value rn_build_attend_qkv(rn_text_builder *d, rn_value x);
// The feed-forward of a Llama: down (activation(gate x) * up x).
rn_value rn_build_gated(rn_text_builder *d, rn_value x);
// Without a gate: down (activation(up x)).
rn_value rn_build_ffn(rn_text_builder *d, rn_value x);

// ---- mixtures of experts (moe.c) ----------------------------------------------------------------

// The feed-forward of layer d->layer: its experts and what is shared, or, in the first layers of
// some, that of a Llama.
rn_value rn_build_moe(rn_text_builder *d, rn_value x);
// Its experts alone, of x, chosen by what the router makes of `routed`.
rn_value rn_build_experts(rn_text_builder *d, rn_value x, rn_value routed);
// Settings of either container, where the architecture has experts.
RN_MUST_USE rn_status rn_text_json_moe(const rn_fields *fields, rn_text_config *config);
RN_MUST_USE rn_status rn_text_gguf_moe(const rn_fields *fields, rn_text_config *config);
// The same written down: GGUF's keys; within an open object of config.json.
RN_MUST_USE rn_status rn_text_moe_to_gguf(const rn_text_config *config, rn_pairs *out);
void rn_text_moe_to_json(const rn_text_config *config, rn_json *json);
// rn_text_settings_to_json and rn_text_moe_to_json.
void rn_text_moe_settings_to_json(const rn_text_config *config, rn_json *json);
// The matrices (out, in) of all experts of the layer, by the part's sizes; whether the files have
// it.
rn_value rn_build_stack(rn_text_builder *d, rn_text_part_id p);
bool rn_build_has(const rn_text_builder *d, rn_text_part_id p, const char *what);

// Blocks behind the layers that are for drafts, as the field says: they are not used. GGUF counts
// them among the layers.
RN_MUST_USE rn_status rn_text_leave_drafts(const rn_fields *fields, const char *field,
                                           rn_text_config *config);
// Parts of most: a router, experts, what is shared.
#define RN_TEXT_EXPERT_PARTS                                                                       \
    [RN_TEXT_ROUTER] = {"mlp.gate", "ffn_gate_inp", RN_SIZE_EXPERTS, RN_SIZE_DIM},                 \
    [RN_TEXT_EXPERT_GATE] = {"mlp.experts.*.gate_proj", "ffn_gate_exps", RN_SIZE_EXPERT_FFN,       \
                             RN_SIZE_DIM},                                                         \
    [RN_TEXT_EXPERT_UP] = {"mlp.experts.*.up_proj", "ffn_up_exps", RN_SIZE_EXPERT_FFN,             \
                           RN_SIZE_DIM},                                                           \
    [RN_TEXT_EXPERT_DOWN] = {"mlp.experts.*.down_proj", "ffn_down_exps", RN_SIZE_DIM,              \
                             RN_SIZE_EXPERT_FFN},                                                  \
    [RN_TEXT_EXPERTS_GATE_UP] = {"mlp.experts.gate_up_proj", "ffn_gate_up_exps",                   \
                                 RN_SIZE_TWO_EXPERT_FFN, RN_SIZE_DIM, .alone = true},              \
    [RN_TEXT_EXPERTS_DOWN] = {"mlp.experts.down_proj", "ffn_down_exps", RN_SIZE_DIM,               \
                              RN_SIZE_EXPERT_FFN, .alone = true}
#define RN_TEXT_SHARED_PARTS(module)                                                               \
    [RN_TEXT_SHARED_GATE] = {module ".gate_proj", "ffn_gate_shexp", RN_SIZE_SHARED_FFN,            \
                             RN_SIZE_DIM},                                                         \
    [RN_TEXT_SHARED_UP] = {module ".up_proj", "ffn_up_shexp", RN_SIZE_SHARED_FFN, RN_SIZE_DIM},    \
    [RN_TEXT_SHARED_DOWN] = {module ".down_proj", "ffn_down_shexp", RN_SIZE_DIM,                   \
                             RN_SIZE_SHARED_FFN}

// ---- layers with states (recurrent_layer.c) -----------------------------------------------------

// Whether a layer of the model, and the one being written, is one.
bool rn_text_is_recurrent(const rn_llama_config *config, uint32_t layer);
bool rn_build_is_recurrent(const rn_text_builder *d);
// x (rows, channels) through the taps of RN_TEXT_CONV, with the state "layers.N.conv".
rn_value rn_build_conv(rn_text_builder *d, rn_value x, uint64_t channels);
// qkv (rows, MIXED), a and b (rows, VALUE_HEADS) through the gated delta rule, with the state
// "layers.N.delta"; rate and bias (VALUE_HEADS). -> (rows, VALUES).
rn_value rn_build_delta(rn_text_builder *d, rn_value qkv, rn_value a, rn_value b, rn_value rate,
                        rn_value bias);
// Which layers are: those whose "layer_types" are `type`, the others being "full_attention".
RN_MUST_USE rn_status rn_text_json_recurrent(const rn_fields *fields, const char *type,
                                             rn_text_config *config);
// Those whose flag in GGUF's list `key` says so.
RN_MUST_USE rn_status rn_text_gguf_recurrent(const rn_fields *fields, const char *key,
                                             rn_text_config *config);
// A layer more that is; RN_UNSUPPORTED where there are too many.
RN_MUST_USE rn_status rn_text_add_recurrent(rn_recurrent_config *recurrent, uint32_t layer);

// ---- of the Llama family, for its relatives (llama.c) -------------------------------------------

extern const rn_text_part rn_text_llama_parts[RN_TEXT_PARTS];
rn_value rn_text_llama_layer(rn_text_builder *d, rn_value x);
RN_MUST_USE rn_status rn_text_llama_json(const rn_fields *fields, rn_text_config *config);

// ---- for settings -------------------------------------------------------------------------------

// config.json: sizes and flags of Llama's spelling; rope from an object ("rope_parameters",
// "rope_scaling"); whether hidden_act is one of two spellings.
// Sizes that are already there need not be in the file.
RN_MUST_USE rn_status rn_text_json_sizes(const rn_fields *fields, rn_text_config *config);
RN_MUST_USE rn_status rn_text_json_flags(const rn_fields *fields, rn_text_config *config);
RN_MUST_USE rn_status rn_text_json_rope(const rn_fields *fields, const char *object,
                                        rn_text_config *config);
RN_MUST_USE rn_status rn_text_json_activation(const rn_fields *fields, const char *name,
                                              const char *wanted, const char *or_wanted);
// "hidden_act" and the like as a feed-forward's activation: silu, gelu, gelu_tanh in any spelling.
RN_MUST_USE rn_status rn_text_json_act(const rn_fields *fields, const char *name,
                                       rn_text_config *config);
// Windows in all layers but every `period`-th, where the file does not say another: by
// "sliding_window", "sliding_window_pattern", "layer_types".
RN_MUST_USE rn_status rn_text_json_windows(const rn_fields *fields, uint32_t period,
                                           rn_text_config *config);
// Ropes of the two kinds of layers: transformers 5 has an object for each of them; before that the
// full layers' rope has the usual fields, and the others are not scaled.
RN_MUST_USE rn_status rn_text_json_ropes(const rn_fields *fields, rn_text_config *config);
// GGUF's "<architecture>.attention.sliding_window_pattern": a period, or a list of flags.
RN_MUST_USE rn_status rn_text_gguf_period(const rn_fields *fields, rn_text_config *config);
// RN_UNSUPPORTED where a flag is there and not what is built.
RN_MUST_USE rn_status rn_text_refuse_flag(const rn_fields *fields, const char *name, bool built);

// config.json as Llama's relatives have it, within an open object; its rope alone; a float in its
// fewest digits.
void rn_text_settings_to_json(const rn_text_config *config, rn_json *json);
void rn_text_rope_to_json(const rn_text_config *config, rn_json *json);
// One rope as an object `key`, which is left open.
void rn_text_json_rope_object(const rn_rope_attrs *rope, const char *key, rn_json *json);
void rn_text_json_float(rn_json *json, const char *key, float value);
// "layer_types": those of windows, those of states ("conv"), and "full_attention".
void rn_text_json_layer_types(const rn_llama_config *config, const char *of_states, rn_json *json);
// The ropes of both kinds of layers, as transformers 5 has them.
void rn_text_json_ropes_object(const rn_llama_config *config, rn_json *json);

// ---- for names ----------------------------------------------------------------------------------

// "model.layers.7.mlp.up_proj.weight": `what` is "weight" or "bias"; `layer` counts in layers only.
void rn_text_weight_name(const rn_llama_config *config, rn_text_part_id part, uint32_t layer,
                         const char *what, char *out, size_t capacity);
// "blk.7.ffn_up_exps.weight" as files have it with an expert a record (`ration convert --packed`):
// "blk.7.ffn_up.*.weight". False: it is no stack's name, or too long.
bool rn_text_packed_name(const char *stack, char *out, size_t capacity);
// What the architecture of a configuration is: Llama's where it names none.
const rn_text_architecture *rn_text_architecture_of(const rn_llama_config *config);
// The row whose config.json can say the configuration's window: Mistral's GGUF files are llama's.
// Its own where it can, or none can.
const rn_text_architecture *rn_text_architecture_with_window(const rn_llama_config *config);

#endif
