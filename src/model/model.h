// model.h — models from the inside: each a configuration, and a recipe that writes its graph.
//
//     rn_recipe recipe;
//     RN_TRY(rn_llama_recipe(&(rn_llama_config){.layers = 2, .dim = 64, ...}, &recipe));
//
// A recipe keeps a copy of its configuration. Fields that say "0: ..." have that default; the
// others must be given. rn_builtin_find fills these structs from a name.
#ifndef RN_MODEL_MODEL_H
#define RN_MODEL_MODEL_H

#include <ration/plan.h>

// ---- a forward pass -----------------------------------------------------------------------------

// What a model's writer leaves for an objective.
typedef struct rn_forward_values {
    rn_value logits;  // (N, classes); in inference already an output of the graph
    rn_value targets; // i32 (N), of the input "targets"; RN_NO_VALUE in inference
    // In training, where logits would be large and are nothing but x wᵀ: x (N, D) and w (classes,
    // D) in the place of logits, which are RN_NO_VALUE.
    rn_value hidden, head;
    // One element, the mean over the samples: of writers that have an objective of their own, in
    // the place of all the others.
    rn_value loss;
} rn_forward_values;

// Writes a model into an empty graph. `batch` samples are the first axis of its inputs, one of
// which is "targets"; 0: inference, over RN_ROWS.
typedef rn_status (*rn_model_writer)(rn_graph *graph, const void *config, uint32_t batch,
                                     rn_forward_values *out);

// A model's forward pass, for a recipe (rn_model_recipe) or a training step (train/train_recipe.h),
// which copy the configuration.
typedef struct rn_forward {
    rn_model_writer write;
    rn_status (*check)(const void *config, bool training); // or NULL
    const void *config;                                    // (config_bytes)
    size_t config_bytes;
    uint64_t rows;         // of an inference run
    bool batch_statistics; // a sample's result depends on the batch in training (batchnorm)
    // How activations that go from block to block, or that a backward pass reads, are held: f32
    // (also 0), bf16 or f16 (graph/activations.h).
    rn_dtype activations;
    // The same of inference on a device whose kernels take 16 bits (graph/halves.h): all of them;
    // 0: as `activations`.
    rn_dtype halves;
} rn_forward;
// A recipe for inference.
RN_MUST_USE rn_status rn_model_recipe(rn_forward forward, rn_recipe *out);

// ---- models -------------------------------------------------------------------------------------

// x (ROWS, in) -> "logits" (ROWS, out): three linear layers, gelu between them.
typedef struct rn_mlp_config {
    uint32_t in, hidden, out;
    uint32_t rows; // of a run
} rn_mlp_config;
rn_forward rn_mlp_forward(const rn_mlp_config *config);
RN_MUST_USE rn_status rn_mlp_recipe(const rn_mlp_config *config, rn_recipe *out);

// x (ROWS, size, size, 3) -> "logits" (ROWS, classes): twice convolution, batchnorm, relu and
// pooling, then a linear head.
typedef struct rn_simple_config {
    uint32_t size;     // of the image, a multiple of 4
    uint32_t channels; // of the first convolution; the second has twice as many
    uint32_t classes;
    uint32_t rows;
} rn_simple_config;
rn_forward rn_simple_forward(const rn_simple_config *config);
RN_MUST_USE rn_status rn_simple_recipe(const rn_simple_config *config, rn_recipe *out);

// x (ROWS, size, size, 3) -> "logits" (ROWS, classes): torchvision's resnet18.
typedef struct rn_resnet_config {
    uint32_t size; // of the image
    uint32_t classes;
    uint32_t rows;
} rn_resnet_config;
rn_forward rn_resnet_forward(const rn_resnet_config *config);
RN_MUST_USE rn_status rn_resnet_recipe(const rn_resnet_config *config, rn_recipe *out);

// A decoder: Llama's, or that of another architecture (text/architectures.c).
//
// Inference: rows of any sequences. Inputs i32: "tokens", "sequence", "position" (ROWS),
// "page_table" (sequences, pages of a context), "rows" (logit_rows): which rows' logits are wanted.
// Output "logits" (logit_rows, vocab). States "layers.N.kv", or "layers.N.conv" and
// "layers.N.delta"; of layers with a rolling window "layers.N" RN_WINDOW_STATE, with pages of their
// own for each sequence, used in turn.
// Packed: rows of texts, each with all of its rows in the run. Inputs i32: "tokens", "position"
// (ROWS), "span" (ROWS, 2): the rows of a row's text. Output "hidden" (ROWS, dim).
// Training: "tokens" and "targets" i32 (batch, tokens); every sequence starts at position 0. With
// `documents` several are packed into a sequence: then there are "position" and "document" i32
// (batch, tokens), too: where a token stands in its document, and at which token that begins.
#define RN_WINDOW_STATE ".window_kv"
typedef enum rn_naming {
    RN_NAMES_HUGGING_FACE,
    RN_NAMES_GGUF,
    RN_NAMES_BARE, // Hugging Face's without the outer module's name, as of a model without its head
    RN_NAMINGS
} rn_naming;
typedef struct rn_text_architecture rn_text_architecture; // text/decoder.h
typedef struct rn_text_builder rn_text_builder;

// An addition to a weight W (out, in): y = W x + up (scale * down x), both f32. A row that did not
// choose it gets up * 0: its bits do not change. With a magnitude (DoRA) it is the first of its
// weight, and y is multiplied by magnitude / the norms of the rows of W + scale * up down.
typedef struct rn_low_rank {
    const char *down, *up; // the names of their weights, (rank, in) and (out, rank)
    const char *magnitude; // (out); NULL: LoRA
    uint32_t rank;
    float scale;     // 0: none, it is in `up`
    uint32_t choice; // 0: for all rows; n: for rows whose input "adapter.n", f32 (ROWS, 1), is 1
                     // and not 0
} rn_low_rank;

// What a graph must know of its weights' files.
typedef struct rn_llama_files {
    const void *self;
    rn_dtype (*dtype)(const void *self, const char *weight);
    // The addition number `index` (0, 1, ...) to a weight; NULL: there are no more.
    const rn_low_rank *(*addition)(const void *self, const char *weight, uint32_t index);
    // Whether there is such a weight: for architectures whose files have one of two forms. NULL:
    // no.
    bool (*exists)(const void *self, const char *weight);
} rn_llama_files;

// Layers whose feed-forward is a mixture of experts.
typedef struct rn_moe_config {
    uint32_t experts;      // of a layer; 0: no layer has any
    uint32_t ffn;          // of an expert
    uint32_t shared_ffn;   // of all that every row goes through, as one; 0: none
    uint32_t dense_layers; // the first, which have none
    rn_route_attrs route;
    bool choice_bias;  // of the router
    bool expert_scale; // each expert's weight has a factor of its own
    bool shared_gate;  // what is shared has a gate of its own
} rn_moe_config;

// Attention that keeps of a token one latent and one turned key for all heads (deepseek.c).
typedef struct rn_latent_config {
    uint32_t q_rank;        // of what queries are made from; 0: of the layer's input
    uint32_t kv_rank;       // of the latent; 0: attention is an ordinary one
    uint32_t still, turned; // of a head: what rope leaves alone, and what it turns
    uint32_t value;         // a head's width behind attention
} rn_latent_config;

#define RN_ROPE_DIVISORS 256 // pairs of a head at most

// Layers that keep a state of a fixed size a sequence instead of keys and values.
enum { RN_RECURRENT_LAYERS = 512 };
typedef struct rn_recurrent_config {
    uint64_t layers[RN_RECURRENT_LAYERS / 64]; // bit i: layer i is one
    uint32_t taps;                             // of their convolution, the row's own included
    // Of a gated delta net:
    uint32_t key_heads, value_heads, key_dim, value_dim;
    bool keys_in_turn; // as rn_delta_rule_attrs
} rn_recurrent_config;

typedef struct rn_llama_config {
    const rn_text_architecture *architecture; // NULL: llama
    uint32_t layers, dim, heads, kv_heads, ffn, vocab;
    uint32_t head_dim;           // 0: dim / heads
    rn_dtype weight_dtype;       // of matrices; all else is f32
    const rn_llama_files *files; // instead of weight_dtype; outlives the recipe; or NULL
    rn_naming naming;            // of weights
    float norm_eps, rope_base;   // 0: 1e-5, 10000
    rn_rope_attrs rope;          // with a base: instead of rope_base, for other kinds
    uint32_t window;             // of attention, in layers from window_from on; 0: none
    uint32_t window_from;        // the first layer that has it
    uint32_t window_period;      // every so many layers one sees all, the last; 0: none
    bool window_behind;          // ... the first, not the last
    uint32_t full_head_dim;      // of layers that see all, where they have other heads; 0: they
    uint32_t full_kv_heads;      // have the same
    bool full_k_is_v;            // and their v is k before its norm
    uint32_t unturned_period;    // every so many layers one has no rope, the last; 0: none
    rn_rope_attrs local_rope;    // with a base: of layers that have a window
    bool rope_divided;           // each pair's frequency by rope_divisors, but for local_rope's
    float rope_divisors[RN_ROPE_DIVISORS];
    rn_activation activation;   // of the feed-forward
    float embedding_scale;      // what embeddings are multiplied by; 0: nothing
    float attention_scale;      // of scores; 0: 1 / sqrt(head_dim)
    float residual_scale;       // of what a branch adds to its layer; 0: nothing
    float logit_scale;          // what logits are multiplied by; 0: nothing
    float score_cap, logit_cap; // s becomes cap * tanh(s / cap); 0: no cap
    float query_growth; // with every query_step positions scores grow: the row at p has its query
                        // times 1 + query_growth * ln(1 + floor(p / query_step)); 0: they do not
    uint32_t query_step;
    bool sinks;                           // each head's softmax has a score without a value
    float glu_slope, glu_limit;           // of a clamped SwiGLU (gpt_oss.c)
    float norm_offset;                    // added to the weights of norms
    uint32_t positions;                   // learned ones: rows of their table; 0: none
    bool qkv_bias, output_bias, ffn_bias; // of q, k, v; of o; of gate, up, down
    bool qk_norm;                         // q and k are normed before they are turned
    bool two_norms;                       // of a layer with parallel branches: one for each
    bool parallel;                        // attention and feed-forward both read the layer's input
    bool tied;                            // the head is the embedding
    rn_recurrent_config recurrent;        // no layers: none
    rn_moe_config moe;
    rn_latent_config latent;
    bool largest;                 // of each row of logits, as outputs
    bool unquantised_activations; // products with quantised weights do not round
    rn_dtype activations;         // as rn_forward's
    // Inference:
    rn_dtype kv_dtype; // f32, f16 or q8_0
    uint32_t context, page_tokens, sequences, logit_rows;
    uint32_t pages;       // of the KV cache; 0: enough for all sequences
    bool rolling_windows; // as rn_text_options
    uint32_t rows;        // of a prefill chunk
    // Embeddings, and what encoders have:
    bool packed;               // rows of texts one behind the other, without a KV cache
    bool both_ways;            // a row sees what comes later, too
    uint32_t token_types;      // rows of their table, of which the first counts; 0: none
    uint32_t first_position;   // of a text, in the table of learned positions
    uint32_t distance_buckets; // of a bias by the distance of key and query; 0: none
    uint32_t dense;            // between the two products behind pooling; 0: there are none
    bool ranks;                // the files have the head of a reranker ...
    bool scores;               // ... and its scores are wanted instead of the rows
    // Training:
    uint32_t tokens; // of each sequence
    bool documents;  // packed into it
} rn_llama_config;
rn_forward rn_llama_forward(const rn_llama_config *config);
RN_MUST_USE rn_status rn_llama_recipe(const rn_llama_config *config, rn_recipe *out);
// The weight "<module>.weight", a module being named as Hugging Face does
// ("model.layers.0.self_attn.q_proj"), under the configuration's naming; transposed: the file has
// it as (in, out). False: the architecture has no such weight.
bool rn_llama_weight_name(const rn_llama_config *config, rn_str module, char *out, size_t capacity,
                          bool *out_transposed);

// ---- models by name -----------------------------------------------------------------------------

// A model that rn_builtin_recipe knows. `forward` points into the struct: it is not to be copied.
typedef struct rn_builtin {
    union {
        rn_mlp_config mlp;
        rn_simple_config simple;
        rn_resnet_config resnet;
        rn_llama_config llama;
    } config;
    uint32_t batch; // of a training step
    rn_forward forward;
} rn_builtin;
// "mlp", "llama:2x64:q4_0". RN_NOT_FOUND lists them.
RN_MUST_USE rn_status rn_builtin_find(rn_str name, rn_builtin *out);

// ---- for the models' own files ------------------------------------------------------------------

// The end of a classifier: the input "targets" i32 (batch), or, with batch 0, the output "logits".
void rn_model_classify(rn_graph *graph, rn_value logits, uint32_t batch, rn_forward_values *out);
// An f32 weight "<prefix>.<part>".
rn_value rn_model_weight(rn_graph *graph, const char *prefix, const char *part, rn_shape shape);
// x wᵀ + b with "<prefix>.weight" (out, in) and "<prefix>.bias".
rn_value rn_model_linear(rn_graph *graph, rn_value x, const char *prefix, uint64_t in,
                         uint64_t out);
// Over the channels of x (N, H, W, channels), PyTorch's defaults and names; in training the running
// statistics are states.
rn_value rn_model_batchnorm(rn_graph *graph, rn_value x, const char *prefix, uint64_t channels,
                            bool training);

#endif
