// graph.h — a computation as data: values, the nodes that make them, the blocks they belong to.
//
//     rn_graph *g;
//     RN_TRY(rn_graph_create(&g));
//     rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 64));
//     rn_graph_block(g, "layer 0");
//     rn_value w = rn_graph_weight(g, "layer.0.weight", RN_DTYPE_F32, RN_SHAPE(128, 64));
//     rn_value y = rn_op_relu(g, rn_op_matmul(g, x, w, RN_NO_VALUE));
//     rn_graph_output(g, y, "y");
//     RN_TRY(rn_graph_finish(g)); // the first thing that was wrong, with the node's name and
//     shapes
//
// Building never fails in the middle: the first failure is remembered, its values are RN_NO_VALUE,
// and whatever is built from them is RN_NO_VALUE in silence. rn_graph_finish returns the error.
//
// Shapes are outermost first, as in PyTorch; every value is dense (the last axis is contiguous).
// Images are (N, H, W, C). Axes are constants but for one symbol, RN_ROWS, which may stand for axis
// 0 only; a plan binds it to a maximum R and each run brings its own count n <= R.
//
// A graph belongs to one thread while it is built; finished, it is constant and free for all.
#ifndef RATION_GRAPH_H
#define RATION_GRAPH_H

#include <ration/memory.h>
#include <ration/tensor.h>

RN_BEGIN_DECLS

typedef struct rn_graph rn_graph;
typedef uint32_t rn_value; // a number within its graph
#define RN_NO_VALUE ((rn_value)0)
#define RN_NO_NODE  UINT32_MAX
#define RN_MAX_RANK 8
#define RN_ROWS     UINT64_MAX // the symbolic axis

typedef struct rn_shape {
    uint32_t rank; // 0: a single element
    uint64_t dims[RN_MAX_RANK];
} rn_shape;

// RN_SHAPE(2, 3): a (2, 3) shape. RN_SCALAR: rank 0.
#define RN_SHAPE(...)                                                                              \
    ((rn_shape){(uint32_t)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), {__VA_ARGS__}})
#define RN_SCALAR ((rn_shape){0, {0}})

typedef enum rn_role {
    RN_ROLE_INPUT,        // given anew for every run
    RN_ROLE_WEIGHT,       // read from a file; changed by an optimiser's node only
    RN_ROLE_STATE,        // lives from run to run and is updated in place: KV pages, moments
    RN_ROLE_CONSTANT,     // its bytes are part of the graph
    RN_ROLE_INTERMEDIATE, // made by a node, gone after its last reader
    RN_ROLE_OUTPUT,       // made by a node, kept to the end of the run
    RN_ROLE_COUNT
} rn_role;

typedef struct rn_value_info {
    const char *name;
    rn_dtype dtype;
    rn_role role;
    rn_purpose purpose; // what its bytes are charged to
    rn_shape shape;
    uint32_t block;       // where it was made
    uint32_t producer;    // the node that makes it, or RN_NO_NODE
    uint32_t output;      // which of the producer's outputs
    const void *constant; // CONSTANT: its bytes
    // WEIGHT: where it is rows [first_row, first_row + dims[0]) of a larger tensor of the model's
    // files, that tensor's name and rows; NULL: its own name is the tensor's.
    const char *tensor;
    uint64_t first_row, tensor_rows;
    // WEIGHT: a stack of this many matrices, each of dims[0] / experts rows; 0: one matrix. A '*'
    // in its name stands for the number of the matrix: each is a tensor of its own.
    uint32_t experts;
} rn_value_info;

// One number per op, from <ration/ops.def>.
typedef enum rn_op {
#define RN_OP(NAME, name) RN_OP_##NAME,
#include <ration/ops.def>
#undef RN_OP
    RN_OP_COUNT
} rn_op;

typedef enum rn_phase { RN_PHASE_FORWARD, RN_PHASE_BACKWARD, RN_PHASE_UPDATE } rn_phase;

typedef struct rn_node {
    rn_op op;
    rn_phase phase;
    uint32_t block;
    uint32_t input_count, output_count;
    const rn_value *inputs; // (input_count); RN_NO_VALUE where an optional one is left out
    rn_value *outputs;      // (output_count)
    const void *attrs;      // the op's rn_<op>_attrs, or NULL
    const char *name;       // "layer 0/matmul.3"
    uint32_t recomputes;    // the node that this one repeats in the backward pass, or RN_NO_NODE
} rn_node;

// ---- building -----------------------------------------------------------------------------------

RN_API RN_MUST_USE rn_status rn_graph_create(rn_graph **out);
RN_API void rn_graph_destroy(rn_graph *graph);

RN_API rn_value rn_graph_input(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape);
// `name` is the tensor's name in the model's files. A name may be used once.
RN_API rn_value rn_graph_weight(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape);
// The matrices (rows, cols) of `experts` experts, one after the other, as (experts * rows, cols).
// In files they are one tensor of any rank, or, with one '*' in the name, a tensor an expert, whose
// number stands in its place.
RN_API rn_value rn_graph_weight_stack(rn_graph *graph, const char *name, rn_dtype dtype,
                                      uint32_t experts, uint64_t rows, uint64_t cols);
// Zero when a session begins. `purpose`: kv, optimizer, gradients, other.
RN_API rn_value rn_graph_state(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape,
                               rn_purpose purpose);
// `data` is copied: the bytes of a dense tensor.
RN_API rn_value rn_graph_constant(rn_graph *graph, const char *name, rn_dtype dtype, rn_shape shape,
                                  const void *data);
// A runtime scalar: a number that each run brings along (learning rate, step, seed). Ops name it by
// its index in their attributes. Asking for a name again gives its index again. At most
// RN_MAX_SCALARS.
#define RN_MAX_SCALARS 32
RN_API uint32_t rn_graph_scalar(rn_graph *graph, const char *name);
// Makes a node's result an output under a name. Returns the value; for anything that is not an
// intermediate (an input, say) fails.
RN_API rn_value rn_graph_output(rn_graph *graph, rn_value value, const char *name);
// Nodes and values from here on belong to this block (a layer); a name used before continues that
// block. Before the first call they belong to block 0, "". Blocks are the unit of recomputing.
RN_API void rn_graph_block(rn_graph *graph, const char *name);
// Output number `output` of the node whose first output is `first`: ops with several outputs return
// the first. RN_NO_VALUE where there is none.
RN_API rn_value rn_graph_output_of(const rn_graph *graph, rn_value first, uint32_t output);
// Names a value for printing.
RN_API rn_value rn_graph_name(rn_graph *graph, rn_value value, const char *name);
// RN_OK, or the error of the first failure. Call it once, before planning or running.
RN_API RN_MUST_USE rn_status rn_graph_finish(rn_graph *graph);

// ---- looking ------------------------------------------------------------------------------------

RN_API uint32_t rn_graph_value_count(const rn_graph *graph); // values are 1 .. count
RN_API const rn_value_info *rn_graph_value(const rn_graph *graph, rn_value value);
RN_API uint32_t rn_graph_node_count(const rn_graph *graph); // nodes are 0 .. count - 1
RN_API const rn_node *rn_graph_node(const rn_graph *graph, uint32_t node);
RN_API uint32_t rn_graph_block_count(const rn_graph *graph); // at least 1
RN_API const char *rn_graph_block_name(const rn_graph *graph, uint32_t block);
RN_API uint32_t rn_graph_scalar_count(const rn_graph *graph);
RN_API const char *rn_graph_scalar_name(const rn_graph *graph, uint32_t scalar);
// The value of that name and role, or RN_NO_VALUE.
RN_API rn_value rn_graph_find(const rn_graph *graph, rn_role role, const char *name);
// Whether some value has RN_ROWS.
RN_API bool rn_graph_has_rows(const rn_graph *graph);

RN_API const char *rn_op_name(rn_op op);
RN_API const char *rn_role_name(rn_role role);
// "(rows, 4096)"
typedef struct rn_shape_text {
    char text[96];
} rn_shape_text;
RN_API rn_shape_text rn_shape_format(rn_shape shape);
RN_API bool rn_shape_equal(rn_shape a, rn_shape b);
// Elements with RN_ROWS standing for `rows`; UINT64_MAX where that overflows.
RN_API uint64_t rn_shape_elements(rn_shape shape, uint64_t rows);

// One line a value and a node, by block.
RN_API RN_MUST_USE rn_status rn_graph_print(const rn_graph *graph, rn_sink sink);
// For graphviz.
RN_API RN_MUST_USE rn_status rn_graph_dot(const rn_graph *graph, rn_sink sink);

// ---- gradients ----------------------------------------------------------------------------------

// Adds the backward pass of `loss` (one element, f32) as nodes of phase BACKWARD, each in the block
// of the node it belongs to. out_gradients[i] is d loss / d wanted[i] (weights or inputs; a wanted
// value that the loss does not depend on gives RN_NO_VALUE). What is not wanted gets no gradient,
// and nothing is kept for it. The gradients of a value's readers are added from the last reader to
// the first. Nodes added afterwards are of phase UPDATE. RN_UNSUPPORTED, naming the node, where an
// op on the way has no gradient or changes its input in place.
RN_API RN_MUST_USE rn_status rn_graph_gradient(rn_graph *graph, rn_value loss,
                                               const rn_value *wanted, uint32_t wanted_count,
                                               rn_value *out_gradients);

// A copy in which the forward nodes of the blocks with recompute[block] are repeated in the
// backward pass, just before what needs them, instead of being kept; only what enters a block from
// outside is kept. Values of the original keep their numbers. The same graph where nothing is to be
// repeated.
RN_API RN_MUST_USE rn_status rn_graph_recompute(const rn_graph *graph,
                                                const bool *recompute /* (blocks) */,
                                                rn_graph **out);

// ---- ops ----------------------------------------------------------------------------------------
//
// Elementwise ops broadcast as NumPy does. Floats are f32 unless it says otherwise; indices are
// i32. Other dtypes: "ops of any plain dtype", below.

RN_API rn_value rn_op_add(rn_graph *g, rn_value a, rn_value b);
RN_API rn_value rn_op_sub(rn_graph *g, rn_value a, rn_value b);
RN_API rn_value rn_op_mul(rn_graph *g, rn_value a, rn_value b);
RN_API rn_value rn_op_div(rn_graph *g, rn_value a, rn_value b);

RN_API rn_value rn_op_neg(rn_graph *g, rn_value x);
RN_API rn_value rn_op_exp(rn_graph *g, rn_value x);
RN_API rn_value rn_op_log(rn_graph *g, rn_value x);
RN_API rn_value rn_op_sqrt(rn_graph *g, rn_value x);
RN_API rn_value rn_op_rsqrt(rn_graph *g, rn_value x);
RN_API rn_value rn_op_relu(rn_graph *g, rn_value x);
RN_API rn_value rn_op_sigmoid(rn_graph *g, rn_value x);
RN_API rn_value rn_op_tanh(rn_graph *g, rn_value x);
RN_API rn_value rn_op_silu(rn_graph *g, rn_value x);
RN_API rn_value rn_op_gelu(rn_graph *g, rn_value x);      // with erf
RN_API rn_value rn_op_gelu_tanh(rn_graph *g, rn_value x); // the tanh approximation

typedef struct rn_pow_attrs {
    float exponent;
} rn_pow_attrs;
RN_API rn_value rn_op_pow(rn_graph *g, rn_value x, float exponent);

typedef struct rn_clamp_attrs {
    float low, high;
} rn_clamp_attrs;
RN_API rn_value rn_op_clamp(rn_graph *g, rn_value x, float low, float high);

typedef struct rn_scale_attrs {
    float factor, offset;
} rn_scale_attrs;
RN_API rn_value rn_op_scale(rn_graph *g, rn_value x, float factor, float offset); // x * f + o

typedef enum rn_activation {
    RN_ACTIVATION_SILU,
    RN_ACTIVATION_GELU,
    RN_ACTIVATION_GELU_TANH,
    RN_ACTIVATION_RELU,
    RN_ACTIVATION_SIGMOID,
    RN_ACTIVATION_COUNT
} rn_activation;
typedef struct rn_gated_attrs {
    rn_activation activation;
} rn_gated_attrs;
// activation(gate) * up: swiglu with SILU.
RN_API rn_value rn_op_gated(rn_graph *g, rn_value gate, rn_value up, rn_activation activation);

// x (..., M, K) by w: y = x wᵀ + bias with w (N, K), or, with transposed, y = x w with w (K, N).
// transpose_x: x is (..., K, M). A w of rank 2 serves all batches (a weight may be quantised; then
// N, K, not transposed); a w of higher rank has the same leading axes as x (or 1 there). bias is
// (N) or RN_NO_VALUE.
typedef struct rn_matmul_attrs {
    bool transpose_x;             // x is (..., K, M)
    bool transpose_w;             // w is (..., K, N) instead of (..., N, K)
    bool unquantised_activations; // a quantised w is widened and x is taken as it is, never rounded
} rn_matmul_attrs;
RN_API rn_value rn_op_matmul(rn_graph *g, rn_value x, rn_value w, rn_value bias);
RN_API rn_value rn_op_matmul_as(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                                rn_matmul_attrs attrs);
// addend + the product, addend of its shape: what plans for devices of 16-bit values make of a
// matmul and an add.
RN_API rn_value rn_op_matmul_add(rn_graph *g, rn_value x, rn_value w, rn_value addend,
                                 rn_matmul_attrs attrs);

typedef struct rn_conv2d_attrs {
    uint32_t stride_h, stride_w; // at least 1
    uint32_t pad_top, pad_left, pad_bottom, pad_right;
} rn_conv2d_attrs;
// x (N, H, W, C), w (O, C, KH, KW) as PyTorch stores it, bias (O) or none -> (N, OH, OW, O).
RN_API rn_value rn_op_conv2d(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                             rn_conv2d_attrs attrs);

typedef struct rn_pool2d_attrs {
    uint32_t size_h, size_w, stride_h, stride_w;
    uint32_t pad_top, pad_left, pad_bottom, pad_right;
} rn_pool2d_attrs;
// x (N, H, W, C). The average counts padding as PyTorch's default does (count_include_pad).
RN_API rn_value rn_op_avg_pool(rn_graph *g, rn_value x, rn_pool2d_attrs attrs);
RN_API rn_value rn_op_max_pool(rn_graph *g, rn_value x, rn_pool2d_attrs attrs);

// table (V, C) of any readable dtype, ids i32 of any shape -> ids' shape + (C), f32. Also gathers
// rows.
RN_API rn_value rn_op_embedding(rn_graph *g, rn_value table, rn_value ids);

RN_API rn_value rn_op_softmax(rn_graph *g, rn_value x); // over the last axis

typedef struct rn_norm_attrs {
    float eps;
} rn_norm_attrs;
// Over the last axis C; weight and bias are (C) or RN_NO_VALUE.
RN_API rn_value rn_op_layernorm(rn_graph *g, rn_value x, rn_value weight, rn_value bias, float eps);
RN_API rn_value rn_op_rmsnorm(rn_graph *g, rn_value x, rn_value weight, float eps);

typedef struct rn_batchnorm_attrs {
    float eps, momentum;
    bool training; // use the batch's statistics and update the running ones
} rn_batchnorm_attrs;
// x (..., C); weight, bias (C); running mean and variance (C): states in training, anything else
// for inference.
RN_API rn_value rn_op_batchnorm(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                                rn_value running_mean, rn_value running_var,
                                rn_batchnorm_attrs attrs);

typedef struct rn_group_norm_attrs {
    uint32_t groups; // of neighbouring channels; divides C
    float eps;
    bool silu; // SiLU behind it
} rn_group_norm_attrs;
// x (N, ..., C): each group's channels are normalised over all pixels of their image. weight and
// bias (C) or RN_NO_VALUE. Outputs: y, mean and rstd (N, groups); y is not made where nobody reads
// it.
RN_API rn_value rn_op_group_norm(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                                 rn_group_norm_attrs attrs);
// By a mean and rstd (N, groups) that are given: x is a part of the picture that they were measured
// on.
RN_API rn_value rn_op_group_norm_by(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                                    rn_value mean, rn_value rstd, rn_group_norm_attrs attrs);

typedef enum rn_rope_pairing {
    RN_ROPE_HALVES,    // (i, i + dims/2), as Hugging Face's Llama
    RN_ROPE_NEIGHBOURS // (2i, 2i + 1), as the original Llama and GGUF
} rn_rope_pairing;
typedef enum rn_rope_scaling {
    RN_ROPE_UNSCALED,
    RN_ROPE_LINEAR, // positions / factor
    RN_ROPE_NTK,    // base * factor^(dims / (dims - 2))
    RN_ROPE_LLAMA3, // by wavelength: low_frequency, high_frequency, original_context
    RN_ROPE_YARN    // beta_fast, beta_slow, attention_factor
} rn_rope_scaling;
#define RN_ROPE_SECTIONS 4
typedef struct rn_rope_attrs {
    rn_rope_pairing pairing;
    rn_rope_scaling scaling;
    uint32_t dims; // of the head that are rotated; 0: all
    float base;    // 10000
    float factor, low_frequency, high_frequency;
    float beta_fast, beta_slow;
    float attention_factor; // of cos and sin; 0: 1, and with YARN 0.1 ln(factor) + 1
    uint32_t original_context;
    // The rotated dims in sections, each by a position of its own, as of images and videos: dims of
    // each section, even; 0 behind the last. All 0: one section, and positions have no such axis.
    uint32_t sections[RN_ROPE_SECTIONS];
    bool inverse;     // rotate backwards: the gradient
    bool untruncated; // YARN: its ramp begins and ends within pairs
} rn_rope_attrs;
// x (..., T, heads, head_dim), positions i32 (..., T), or (..., T, sections).
RN_API rn_value rn_op_rope(rn_graph *g, rn_value x, rn_value positions, rn_rope_attrs attrs);
// The same with each pair's frequency divided by one of divisors f32 (dims / 2), as LongRoPE does.
RN_API rn_value rn_op_rope_divided(rn_graph *g, rn_value x, rn_value positions, rn_value divisors,
                                   rn_rope_attrs attrs);

typedef struct rn_attention_attrs {
    float scale;         // 0: 1 / sqrt(head_dim)
    bool causal;         // query t sees keys <= t (+ S - T)
    uint32_t window;     // 0: none; else a query sees the last `window` keys up to itself
    float cap;           // 0: none; else scores become cap * tanh(score / cap); of pages only
    uint32_t value_dims; // of pages that hold keys only: a value is so many first elements of its
                         // key; 0: pages hold both
} rn_attention_attrs;
// q (B, T, H, D), k and v (B, S, HK, D) with HK dividing H; mask f32 (T, S) or (B, T, S), added to
// the scores, or RN_NO_VALUE; or i32 (B, T): documents are packed one behind the other, and a query
// sees no key before the one where its document begins. -> (B, T, H, D). Scores are never held as a
// whole.
RN_API rn_value rn_op_attention(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value mask,
                                rn_attention_attrs attrs);

// The KV cache of a layer: a state (pages, 2, HK, page_tokens, D) of f16, f32 or q8_0 (then 32
// divides D). Writes the rows k, v (ROWS, HK, D) at the places that page_table i32 (sequences,
// max_pages) gives to (sequence i32 (ROWS), position i32 (ROWS)); a sequence of -1 writes nothing.
// In one run no two rows may have the same place: a session refuses that. Returns the updated
// state, which is what attention must read. A state (pages, 1, HK, page_tokens, D) has keys only,
// of which values are a part (value_dims): v is RN_NO_VALUE.
RN_API rn_value rn_op_kv_append(rn_graph *g, rn_value kv, rn_value k, rn_value v, rn_value sequence,
                                rn_value position, rn_value page_table);
// q (ROWS, H, D): each row sees the keys of its sequence at positions <= its own (within the
// window). -> (ROWS, H, D), or value_dims instead of D.
RN_API rn_value rn_op_paged_attention(rn_graph *g, rn_value q, rn_value kv, rn_value sequence,
                                      rn_value position, rn_value page_table,
                                      rn_attention_attrs attrs);
// The same with a score more in the sum of each head, f32 (H), that has no value: an attention
// sink. It is neither scaled nor capped.
RN_API rn_value rn_op_paged_attention_sinks(rn_graph *g, rn_value q, rn_value kv, rn_value sequence,
                                            rn_value position, rn_value page_table, rn_value sinks,
                                            rn_attention_attrs attrs);

// Layers that remember a fixed number of bytes a sequence instead of keys and values: `state` is
// (sequences, ...) f32, and a row makes that of its sequence i32 (ROWS) what it is behind its
// position i32 (ROWS). Rows of a sequence stand in the order of their positions, none left out;
// position 0 begins with zeros; a sequence of -1 gives zeros and changes nothing. Output 1 is the
// updated state.
//
// x (ROWS, C), each channel with its own taps, weight (C, K) or (C, 1, K), over the row and the K -
// 1 before it; state (sequences, K - 1, C). -> (ROWS, C).
RN_API rn_value rn_op_short_conv(rn_graph *g, rn_value x, rn_value weight, rn_value state,
                                 rn_value sequence, rn_value position);
typedef struct rn_delta_rule_attrs {
    uint32_t key_heads; // divides the value heads
    bool keys_in_turn;  // value head h has key head h % key_heads, not h / (heads / key_heads)
    float eps;          // of the lengths of q and k
} rn_delta_rule_attrs;
// The gated delta rule: qkv (ROWS, 2 * key_heads * DK + H * DV), a and b (ROWS, H), rate and bias
// (H), state (sequences, H, DK, DV). q and k are made 1 long, q / sqrt(DK); then, in each head,
//     S *= e^(rate softplus(a + bias));  S += k (sigmoid(b) (v - Sᵀ k))ᵀ;  y = Sᵀ q
// -> (ROWS, H * DV).
RN_API rn_value rn_op_delta_rule(rn_graph *g, rn_value qkv, rn_value a, rn_value b, rn_value rate,
                                 rn_value bias, rn_value state, rn_value sequence,
                                 rn_value position, rn_delta_rule_attrs attrs);
// Texts packed one behind the other, without a KV cache: q (ROWS, H, D), k and v (ROWS, HK, D);
// span i32 (ROWS, 2): the rows [first, end) of a row's own text, which are all it sees (causal: of
// them those up to itself; window: those less than so many away). bias f32 (H, 2 * reach + 1),
// added to the scores by the distance of key and query, or RN_NO_VALUE. -> (ROWS, H, D). What a
// text gives does not depend on the others. A session refuses spans that do not hold their rows; an
// empty one gives zeros.
RN_API rn_value rn_op_varlen_attention(rn_graph *g, rn_value q, rn_value k, rn_value v,
                                       rn_value span, rn_value bias, rn_attention_attrs attrs);

// ---- mixture of experts ----

typedef enum rn_gating {
    RN_GATING_SOFTMAX,        // p = softmax(logits)
    RN_GATING_SIGMOID,        // p = sigmoid(logits)
    RN_GATING_SOFTMAX_CHOSEN, // p = logits; the weights are the softmax of those that are chosen
    RN_GATING_SQRT_SOFTPLUS,  // p = sqrt(log(1 + exp(logits)))
    RN_GATING_COUNT
} rn_gating;
typedef struct rn_route_attrs {
    uint32_t chosen; // experts a row: k
    rn_gating gating;
    uint32_t groups, groups_chosen; // consecutive experts in `groups` groups, of which only so many
                                    // are looked at; 0 or 1: no groups
    bool group_by_max; // a group is as good as its best expert, not as the sum of its best two
    bool norm;         // weights are divided by their sum (by 2^-14, where that is larger)
    float scale;       // of all weights; 0: 1
} rn_route_attrs;
// The router of a mixture of experts: logits (ROWS, E); bias (E), added to p for the choice alone,
// and scale (E), which multiplies an expert's weight, or RN_NO_VALUE. The k experts of the largest
// p + bias, the best first; of equals the lowest number first, NaN last. Output 0 is their numbers,
// i32 (ROWS, k), output 1 their weights, f32 (ROWS, k).
RN_API rn_value rn_op_route(rn_graph *g, rn_value logits, rn_value bias, rn_value scale,
                            rn_route_attrs attrs);
// x (rows, n, ...) -> (rows, ranks * n, ...): the parts of axis 1 that so many ranks have, in the
// order of ranks, on each of them (rn_session_options.comm). One process without others: as if all
// had its part.
typedef struct rn_all_gather_attrs {
    uint32_t ranks;
} rn_all_gather_attrs;
RN_API rn_value rn_op_all_gather(rn_graph *g, rn_value x, uint32_t ranks);

typedef struct rn_expert_product_attrs {
    uint32_t experts;      // matrices in w: E
    uint64_t first, count; // rows of each that are multiplied; count 0: from `first` to the end
    bool unquantised_activations; // as rn_matmul_attrs
} rn_expert_product_attrs;
// x (ROWS, K), or (ROWS, k, K) with a row for each choice; ids i32 (ROWS, k), distinct within a
// row, -1: nobody; w (E * N, K) (rn_graph_weight_stack); bias (E, N) or RN_NO_VALUE. -> (ROWS, k,
// count): row (r, i) is x wᵀ + bias with the matrix of expert ids[r, i], as rn_op_matmul has it;
// zeros for nobody. No two rows of ids are looked at together: a row's result is its own.
RN_API rn_value rn_op_expert_product(rn_graph *g, rn_value x, rn_value ids, rn_value w,
                                     rn_value bias, rn_expert_product_attrs attrs);
// y (ROWS, k, N) by weights (ROWS, k), added in the order of k, by fmaf from 0. -> (ROWS, N).
RN_API rn_value rn_op_expert_sum(rn_graph *g, rn_value y, rn_value weights);

typedef struct rn_head_product_attrs {
    uint64_t first, count; // rows of each matrix that are multiplied; count 0: from `first` on
    bool transposed;       // the rows are x's: y = x w instead of x wᵀ
    bool unquantised_activations; // as rn_matmul_attrs
} rn_head_product_attrs;
// x (ROWS, H, K), each head by its own matrix of w (H * N, K): y (ROWS, H, count); transposed: x
// (ROWS, H, count) -> (ROWS, H, K). As rn_op_matmul has it, with transpose_w in the latter case.
RN_API rn_value rn_op_head_product(rn_graph *g, rn_value x, rn_value w,
                                   rn_head_product_attrs attrs);

// What inference does around products, in one op each, for devices on which a launch costs more
// than a norm (rn_device_caps.fusions). They mean the ops they are made of, in that order; no
// gradient.
typedef struct rn_project_attrs {
    float eps;                    // of the RMS norm
    rn_activation activation;     // project_gated
    bool unquantised_activations; // as rn_matmul_attrs
    bool steady_norm; // set by rn_op_project...: the norm is a weight, not made in the run
} rn_project_attrs;
// x (ROWS, K); norm (K) or RN_NO_VALUE; w (N, K); bias (N) or RN_NO_VALUE; residual (ROWS, N) or
// RN_NO_VALUE, which the result may overwrite: residual + (rmsnorm(x) wᵀ + bias).
RN_API rn_value rn_op_project(rn_graph *g, rn_value x, rn_value norm, rn_value w, rn_value bias,
                              rn_value residual, rn_project_attrs attrs);
// The same x by three weights of any N: three outputs (rn_graph_output_of gives the others).
RN_API rn_value rn_op_project_three(rn_graph *g, rn_value x, rn_value norm, const rn_value w[3],
                                    const rn_value bias[3], rn_project_attrs attrs);
// activation(gate) * up of the two products.
RN_API rn_value rn_op_project_gated(rn_graph *g, rn_value x, rn_value norm, rn_value gate,
                                    rn_value gate_bias, rn_value up, rn_value up_bias,
                                    rn_project_attrs attrs);
typedef struct rn_attend_attrs {
    rn_attention_attrs attention;
    rn_rope_attrs rope;
    bool steady_places; // set by rn_op_attend: no node of the run makes the state, sequence,
                        // position or page_table
} rn_attend_attrs;
// rope of q (ROWS, H, D) and k (ROWS, HK, D), kv_append, paged_attention. Output 0 is the updated
// state, output 1 the result (ROWS, H, D).
RN_API rn_value rn_op_attend(rn_graph *g, rn_value q, rn_value k, rn_value v, rn_value kv,
                             rn_value sequence, rn_value position, rn_value page_table,
                             rn_attend_attrs attrs);

typedef struct rn_reduce_attrs {
    uint32_t axes; // bit i: axis i is summed away
    bool keep;     // as an axis of 1
} rn_reduce_attrs;
RN_API rn_value rn_op_sum(rn_graph *g, rn_value x, uint32_t axes, bool keep);
RN_API rn_value rn_op_mean(rn_graph *g, rn_value x, uint32_t axes, bool keep);
RN_API rn_value rn_op_max(rn_graph *g, rn_value x, uint32_t axes, bool keep);
RN_API rn_value rn_op_sum_squares(rn_graph *g, rn_value x); // of all elements: a scalar
RN_API rn_value rn_op_argmax(rn_graph *g, rn_value x);      // over the last axis: i32

// At most one axis of `shape` may be 0: it takes what is left. A view: no bytes move.
RN_API rn_value rn_op_reshape(rn_graph *g, rn_value x, rn_shape shape);
typedef struct rn_permute_attrs {
    uint8_t axes[RN_MAX_RANK]; // output axis i is input axis axes[i]
} rn_permute_attrs;
RN_API rn_value rn_op_permute(rn_graph *g, rn_value x, const uint8_t *axes /* (rank) */);
typedef struct rn_slice_attrs {
    uint32_t axis;
    uint64_t start, count;
} rn_slice_attrs;
// A view where the axis is the outermost that is larger than 1, else a copy.
RN_API rn_value rn_op_slice(rn_graph *g, rn_value x, uint32_t axis, uint64_t start, uint64_t count);
typedef struct rn_concat_attrs {
    uint32_t axis;
} rn_concat_attrs;
RN_API rn_value rn_op_concat(rn_graph *g, const rn_value *parts, uint32_t count, uint32_t axis);
typedef struct rn_pad_attrs {
    uint64_t before[RN_MAX_RANK], after[RN_MAX_RANK];
    float fill;
} rn_pad_attrs;
RN_API rn_value rn_op_pad(rn_graph *g, rn_value x, rn_pad_attrs attrs);
RN_API rn_value rn_op_broadcast(rn_graph *g, rn_value x, rn_shape shape);

typedef struct rn_cast_attrs {
    rn_dtype dtype;
} rn_cast_attrs;
RN_API rn_value rn_op_cast(rn_graph *g, rn_value x, rn_dtype dtype); // plain types
// Between f32 and a block type (q8_0, q4_0): the last axis in whole blocks.
RN_API rn_value rn_op_quantize(rn_graph *g, rn_value x, rn_dtype dtype);
RN_API rn_value rn_op_dequantize(rn_graph *g, rn_value x);

typedef struct rn_cross_entropy_attrs {
    int32_t ignore; // rows with this target do not count
    uint32_t
        normalizer; // a runtime scalar that the sum is multiplied by, or RN_NO_SCALAR: the mean
} rn_cross_entropy_attrs;
#define RN_NO_SCALAR UINT32_MAX
// logits (N, V), targets i32 (N) -> a scalar.
RN_API rn_value rn_op_cross_entropy(rn_graph *g, rn_value logits, rn_value targets,
                                    rn_cross_entropy_attrs attrs);
// The same of the logits x wᵀ, x (N, D), w (V, D) of any type, which are never held as a whole:
// chunk by chunk of the rows that count. Gradients of x and w are made with the loss.
RN_API rn_value rn_op_linear_cross_entropy(rn_graph *g, rn_value x, rn_value w, rn_value targets,
                                           rn_cross_entropy_attrs attrs);
RN_API rn_value rn_op_mse(rn_graph *g, rn_value a, rn_value b); // the mean: a scalar

typedef struct rn_adapted_norm_attrs {
    float scale;
} rn_adapted_norm_attrs;
// (N): the norm of each row of w + scale * up down, which is never held. w (N, K) of any type, down
// (R, K), up (N, R). Counts as a constant: no gradient flows through it (DoRA).
RN_API rn_value rn_op_adapted_norm(rn_graph *g, rn_value w, rn_value down, rn_value up,
                                   rn_adapted_norm_attrs attrs);

// Counter-based: the numbers depend on the run's seed, on `stream` and on the element's place only,
// so that a repeated node gives the same numbers.
typedef struct rn_random_attrs {
    uint32_t seed;   // a runtime scalar
    uint32_t stream; // another one for each node
    float low, high; // uniform: [low, high); normal: mean and deviation
} rn_random_attrs;
RN_API rn_value rn_op_random_uniform(rn_graph *g, rn_shape shape, rn_random_attrs attrs);
RN_API rn_value rn_op_random_normal(rn_graph *g, rn_shape shape, rn_random_attrs attrs);
typedef struct rn_dropout_attrs {
    uint32_t seed, stream;
    float probability; // that an element becomes 0; the others are divided by 1 - p
} rn_dropout_attrs;
RN_API rn_value rn_op_dropout(rn_graph *g, rn_value x, rn_dropout_attrs attrs);

// ---- ops of any plain dtype ---------------------------------------------------------------------
//
// f64, f32, f16, bf16, i8 to i64, u8 to u64, bool, and the fp8 types where it makes sense.
// Inputs of one op have one dtype unless it says otherwise, and so has the result. f16, bf16 and
// fp8 are computed in f32 and rounded once; whole numbers wrap. Where f32 has an op of its own
// (add, exp, sum, ...), that op is made; and rn_op_add, rn_op_exp, rn_op_sum and so on make these
// of any other dtype. The CPU runs them; devices without a kernel refuse them by name. No
// gradients but for f32 of conv, conv_transpose and resize.

typedef enum rn_unary_function {
    RN_UNARY_ABS,
    RN_UNARY_NEG,
    RN_UNARY_SIGN,
    RN_UNARY_RECIPROCAL,
    RN_UNARY_CEIL,
    RN_UNARY_FLOOR,
    RN_UNARY_ROUND, // half to even
    RN_UNARY_SQRT,
    RN_UNARY_EXP,
    RN_UNARY_LOG,
    RN_UNARY_SIN,
    RN_UNARY_COS,
    RN_UNARY_TAN,
    RN_UNARY_ASIN,
    RN_UNARY_ACOS,
    RN_UNARY_ATAN,
    RN_UNARY_SINH,
    RN_UNARY_COSH,
    RN_UNARY_ASINH,
    RN_UNARY_ACOSH,
    RN_UNARY_ATANH,
    RN_UNARY_ERF,
    RN_UNARY_TANH,
    RN_UNARY_SIGMOID,
    RN_UNARY_RELU,
    RN_UNARY_GELU,
    RN_UNARY_GELU_TANH,
    RN_UNARY_SOFTPLUS,
    RN_UNARY_SOFTSIGN,
    RN_UNARY_MISH,
    RN_UNARY_SWISH,            // x sigmoid(a x)
    RN_UNARY_HARD_SIGMOID,     // a x + b within 0 and 1
    RN_UNARY_HARD_SWISH,       // x (x / 6 + 1/2 within 0 and 1)
    RN_UNARY_ELU,              // a (e^x - 1) below 0
    RN_UNARY_SELU,             // b (a (e^x - 1) below 0, x above)
    RN_UNARY_CELU,             // a (e^(x / a) - 1) below 0
    RN_UNARY_LEAKY_RELU,       // a x below 0
    RN_UNARY_THRESHOLDED_RELU, // 0 up to a
    RN_UNARY_SHRINK,           // x + b below -a, x - b above a, 0 between
    RN_UNARY_NOT,              // bool
    RN_UNARY_BITWISE_NOT,      // whole numbers
    RN_UNARY_IS_NAN,           // -> bool
    RN_UNARY_IS_INF,           // -> bool; a not 0: +infinity counts, b not 0: -infinity counts
    RN_UNARY_COUNT
} rn_unary_function;
typedef struct rn_unary_attrs {
    rn_unary_function function;
    double a, b; // where the function says so
} rn_unary_attrs;
RN_API rn_value rn_op_unary(rn_graph *g, rn_unary_function function, rn_value x);
RN_API rn_value rn_op_unary_as(rn_graph *g, rn_value x, rn_unary_attrs attrs);

typedef enum rn_binary_function {
    RN_BINARY_ADD,
    RN_BINARY_SUB,
    RN_BINARY_MUL,
    RN_BINARY_DIV, // whole numbers: towards 0
    RN_BINARY_POW,
    RN_BINARY_MOD,  // the remainder with b's sign
    RN_BINARY_FMOD, // the remainder with a's sign
    RN_BINARY_MIN,
    RN_BINARY_MAX,
    RN_BINARY_PRELU,       // a b where a is below 0
    RN_BINARY_AND,         // bool; whole numbers by bits
    RN_BINARY_OR,          // so
    RN_BINARY_XOR,         // so
    RN_BINARY_SHIFT_LEFT,  // whole numbers
    RN_BINARY_SHIFT_RIGHT, // so
    RN_BINARY_COUNT
} rn_binary_function;
typedef struct rn_binary_attrs {
    rn_binary_function function;
} rn_binary_attrs;
RN_API rn_value rn_op_binary(rn_graph *g, rn_binary_function function, rn_value a, rn_value b);

typedef enum rn_compare_function {
    RN_COMPARE_EQUAL,
    RN_COMPARE_NOT_EQUAL,
    RN_COMPARE_LESS,
    RN_COMPARE_LESS_EQUAL,
    RN_COMPARE_GREATER,
    RN_COMPARE_GREATER_EQUAL,
    RN_COMPARE_COUNT
} rn_compare_function;
typedef struct rn_compare_attrs {
    rn_compare_function function;
} rn_compare_attrs;
// -> bool
RN_API rn_value rn_op_compare(rn_graph *g, rn_compare_function function, rn_value a, rn_value b);
// condition bool; a and b of one plain dtype; all three stretched to each other.
RN_API rn_value rn_op_select(rn_graph *g, rn_value condition, rn_value a, rn_value b);

typedef struct rn_convert_attrs {
    rn_dtype dtype;
    bool saturate; // fp8: too large becomes the largest, not NaN (e4m3) or infinity (e5m2)
} rn_convert_attrs;
// By C's rules: floats towards 0, whole numbers wrap, bool is whether it is not 0. rn_op_cast
// rounds to nearest and saturates instead; between f32, f16 and bf16, and from whole numbers to
// f32, both are one.
RN_API rn_value rn_op_convert(rn_graph *g, rn_value x, rn_convert_attrs attrs);

typedef enum rn_reduce_function {
    RN_REDUCE_SUM,
    RN_REDUCE_MEAN, // whole numbers: towards 0
    RN_REDUCE_MAX,
    RN_REDUCE_MIN,
    RN_REDUCE_PROD,
    RN_REDUCE_L1,
    RN_REDUCE_L2,
    RN_REDUCE_LOG_SUM,
    RN_REDUCE_LOG_SUM_EXP,
    RN_REDUCE_SUM_SQUARE,
    RN_REDUCE_COUNT
} rn_reduce_function;
typedef struct rn_reduce_as_attrs {
    rn_reduce_function function;
    rn_reduce_attrs over;
} rn_reduce_as_attrs;
// `axes`: bit i: axis i.
RN_API rn_value rn_op_reduce(rn_graph *g, rn_reduce_function function, rn_value x, uint32_t axes,
                             bool keep);
typedef struct rn_arg_reduce_attrs {
    uint32_t axis;
    bool keep;     // the axis as an axis of 1
    bool smallest; // where the smallest lies, not the largest
    bool last;     // the last of equals, not the first
} rn_arg_reduce_attrs;
// -> i64. A NaN comes before all.
RN_API rn_value rn_op_arg_reduce(rn_graph *g, rn_value x, rn_arg_reduce_attrs attrs);

typedef enum rn_soft_function {
    RN_SOFT_MAX,     // e^x over the sum of e^x
    RN_SOFT_LOG_MAX, // its logarithm
    RN_SOFT_HARD_MAX // 1 where the first largest lies, 0 elsewhere
} rn_soft_function;
typedef struct rn_soft_attrs {
    rn_soft_function function;
    uint32_t axis;
} rn_soft_attrs;
// Along any axis; floats.
RN_API rn_value rn_op_soft(rn_graph *g, rn_soft_function function, rn_value x, uint32_t axis);

// Indices are i32 or i64; negative ones count from the axis's end; a run fails with RN_INVALID
// where one is outside of it.
typedef enum rn_gather_kind {
    RN_GATHER_AXIS,     // x's shape with `axis` replaced by the shape of the indices
    RN_GATHER_ELEMENTS, // indices of x's rank: y[i][j] = x[indices[i][j]][j] for axis 0
    RN_GATHER_ND        // the last axis of the indices is a place in x behind its `batch` axes
} rn_gather_kind;
typedef struct rn_gather_attrs {
    rn_gather_kind kind;
    uint32_t axis;  // AXIS, ELEMENTS
    uint32_t batch; // ND: leading axes that x and the indices share
} rn_gather_attrs;
RN_API rn_value rn_op_gather(rn_graph *g, rn_value x, rn_value indices, uint32_t axis);
RN_API rn_value rn_op_gather_as(rn_graph *g, rn_value x, rn_value indices, rn_gather_attrs attrs);

typedef enum rn_scatter_function {
    RN_SCATTER_SET, // of two at one place the later one wins
    RN_SCATTER_ADD,
    RN_SCATTER_MUL,
    RN_SCATTER_MAX,
    RN_SCATTER_MIN,
    RN_SCATTER_COUNT
} rn_scatter_function;
typedef struct rn_scatter_attrs {
    rn_scatter_function function;
    bool nd; // as RN_GATHER_ND without batches; else as RN_GATHER_ELEMENTS along `axis`
    uint32_t axis;
} rn_scatter_attrs;
// x with the updates at the places that the indices name.
RN_API rn_value rn_op_scatter(rn_graph *g, rn_value x, rn_value indices, rn_value updates,
                              rn_scatter_attrs attrs);

typedef struct rn_strided_slice_attrs {
    uint64_t start[RN_MAX_RANK]; // of axis i
    int64_t step[RN_MAX_RANK];   // not 0; negative: backwards from start
    uint64_t count[RN_MAX_RANK]; // elements of axis i that are taken
} rn_strided_slice_attrs;
// Of all axes at once; rows are taken whole (start 0, step 1, count RN_ROWS).
RN_API rn_value rn_op_strided_slice(rn_graph *g, rn_value x, rn_strided_slice_attrs attrs);

typedef struct rn_cumulate_attrs {
    uint32_t axis;
    bool product;   // products, not sums
    bool exclusive; // an element is not part of its own sum
    bool reverse;   // from the axis's end
} rn_cumulate_attrs;
RN_API rn_value rn_op_cumulate(rn_graph *g, rn_value x, rn_cumulate_attrs attrs);

typedef struct rn_top_k_attrs {
    uint32_t axis;
    uint64_t count;
    bool smallest; // the smallest, not the largest
} rn_top_k_attrs;
// Two outputs: the elements, the first of them first, and their places (i64). Of equals the one
// that comes first is first; NaN is larger than everything.
RN_API rn_value rn_op_top_k(rn_graph *g, rn_value x, rn_top_k_attrs attrs);

typedef struct rn_reverse_sequence_attrs {
    uint32_t batch_axis, time_axis;
} rn_reverse_sequence_attrs;
// The first lengths[b] (i32 or i64) elements of the time axis of batch b, reversed.
RN_API rn_value rn_op_reverse_sequence(rn_graph *g, rn_value x, rn_value lengths,
                                       rn_reverse_sequence_attrs attrs);

// Matrix products of other dtypes than f32, and of any batches: a (..., M, K) by b (..., K, N);
// leading axes are stretched by NumPy's rule. Whole numbers wrap.
RN_API rn_value rn_op_product(rn_graph *g, rn_value a, rn_value b);
// Of i8 and u8, mixed as they come: (a - a_zero) (b - b_zero) summed as i32. Zeros are one for all,
// or a_zero (M) and b_zero (N), of their operand's dtype, or RN_NO_VALUE.
RN_API rn_value rn_op_product_integer(rn_graph *g, rn_value a, rn_value b, rn_value a_zero,
                                      rn_value b_zero);
// The same times scale, f32: one for all, or (N); plus bias (N) or RN_NO_VALUE. -> f32. What plans
// for the CPU make of a product of bytes, cast, mul and add.
RN_API rn_value rn_op_product_scaled(rn_graph *g, rn_value a, rn_value b, rn_value a_zero,
                                     rn_value b_zero, rn_value scale, rn_value bias);

// Images with 1 to 3 spatial axes: (N, S..., C). Axis i of the attributes is spatial axis i; axes
// that x does not have are left 0.
#define RN_MAX_SPATIAL 3
typedef struct rn_conv_attrs {
    uint32_t groups; // channels in so many groups, each with its own outputs; 0: 1
    uint32_t stride[RN_MAX_SPATIAL], dilation[RN_MAX_SPATIAL]; // 0: 1
    uint32_t pad_before[RN_MAX_SPATIAL], pad_after[RN_MAX_SPATIAL];
} rn_conv_attrs;
// x (N, S..., C), w (O, C / groups, K...) as PyTorch and ONNX store it, bias (O) or RN_NO_VALUE.
// -> (N, S'..., O). Whole numbers: i32 only. Where it is one, rn_op_conv2d's op is made.
RN_API rn_value rn_op_conv(rn_graph *g, rn_value x, rn_value w, rn_value bias, rn_conv_attrs attrs);
typedef struct rn_conv_clamp_attrs {
    rn_conv_attrs conv;
    rn_clamp_attrs clamp;
} rn_conv_clamp_attrs;
// rn_op_conv and rn_op_clamp (or rn_op_relu: 0 to infinity) in one, of f32: what plans for the CPU
// make of both.
RN_API rn_value rn_op_conv_clamp(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                                 rn_conv_clamp_attrs attrs);
typedef struct rn_conv_transpose_attrs {
    rn_conv_attrs conv;
    uint64_t size[RN_MAX_SPATIAL]; // of the result; 0: stride (S - 1) + dilation (K - 1) + 1 - pads
} rn_conv_transpose_attrs;
// The gradient of a convolution by its input: w (C, O / groups, K...).
RN_API rn_value rn_op_conv_transpose(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                                     rn_conv_transpose_attrs attrs);

typedef enum rn_pool_function {
    RN_POOL_MAX,
    RN_POOL_AVERAGE,
    RN_POOL_LP // the sum of |x|^p, to the power of 1 / p
} rn_pool_function;
typedef struct rn_pool_attrs {
    rn_pool_function function;
    uint32_t size[RN_MAX_SPATIAL];
    uint32_t stride[RN_MAX_SPATIAL], dilation[RN_MAX_SPATIAL]; // 0: 1
    uint32_t pad_before[RN_MAX_SPATIAL], pad_after[RN_MAX_SPATIAL];
    bool ceil;         // a last window that begins within the image but ends outside counts, too
    bool count_pad;    // AVERAGE: padding counts
    bool column_major; // MAX: places count the first spatial axis fastest
    uint32_t p;        // LP
} rn_pool_attrs;
// x (N, S..., C). MAX has a second output: the place i64 of each largest element in x's elements as
// (N, C, S...), as ONNX counts them.
RN_API rn_value rn_op_pool(rn_graph *g, rn_value x, rn_pool_attrs attrs);
// The first output alone; rn_op_max_pool's or rn_op_avg_pool's op where it is one.
RN_API rn_value rn_op_pool_values(rn_graph *g, rn_value x, rn_pool_attrs attrs);

// One axis to another length. Axes are independent of each other: an image takes one node an axis.
typedef enum rn_resize_function {
    RN_RESIZE_NEAREST,
    RN_RESIZE_LINEAR,
    RN_RESIZE_CUBIC
} rn_resize_function;
typedef enum rn_resize_coordinates { // of place i of the result, in x
    RN_RESIZE_HALF_PIXEL,            // (i + 1/2) / scale - 1/2
    RN_RESIZE_HALF_PIXEL_SYMMETRIC,  // so, about the middle where scale * length is no whole number
    RN_RESIZE_PYTORCH_HALF_PIXEL,    // so, but 0 where the result has one element
    RN_RESIZE_ALIGN_CORNERS,         // i (length - 1) / (length' - 1)
    RN_RESIZE_ASYMMETRIC,            // i / scale
    RN_RESIZE_CROP                   // between from and to: `fill` outside of x
} rn_resize_coordinates;
typedef enum rn_resize_nearest {
    RN_RESIZE_ROUND_PREFER_FLOOR,
    RN_RESIZE_ROUND_PREFER_CEIL,
    RN_RESIZE_FLOOR,
    RN_RESIZE_CEIL
} rn_resize_nearest;
typedef struct rn_resize_attrs {
    uint32_t axis;
    uint64_t length; // of the result
    double scale;    // length' / length, as it was given; 0: just that
    rn_resize_function function;
    rn_resize_coordinates coordinates;
    rn_resize_nearest nearest;
    double from, to;      // CROP: of x, 0 to 1
    double fill;          // CROP
    double cubic;         // CUBIC: its coefficient, -0.75
    bool exclude_outside; // CUBIC: taps outside of x weigh nothing, the others more
    bool antialias;       // LINEAR, CUBIC: taps are spread where it shrinks
} rn_resize_attrs;
RN_API rn_value rn_op_resize(rn_graph *g, rn_value x, rn_resize_attrs attrs);
// x (N, H, W, C) -> (N, factor H, factor W, C), each pixel repeated: nearest. Composed of ops
// above.
RN_API rn_value rn_graph_upsample(rn_graph *g, rn_value x, uint32_t factor);

typedef enum rn_grid_padding { RN_GRID_ZEROS, RN_GRID_BORDER, RN_GRID_REFLECTION } rn_grid_padding;
typedef struct rn_grid_sample_attrs {
    rn_resize_function function;
    rn_grid_padding padding;
    bool align_corners;
} rn_grid_sample_attrs;
// x (N, S..., C) with 2 or 3 spatial axes, grid (N, S'..., 2 or 3): places from -1 to 1, the last
// spatial axis first. -> (N, S'..., C). Floats.
RN_API rn_value rn_op_grid_sample(rn_graph *g, rn_value x, rn_value grid,
                                  rn_grid_sample_attrs attrs);

typedef enum rn_rnn_kind { RN_RNN_PLAIN, RN_RNN_LSTM, RN_RNN_GRU } rn_rnn_kind;
typedef enum rn_rnn_function {
    RN_RNN_DEFAULT, // tanh; of gates sigmoid
    RN_RNN_SIGMOID,
    RN_RNN_TANH,
    RN_RNN_RELU,
    RN_RNN_AFFINE,           // a x + b
    RN_RNN_LEAKY_RELU,       // a
    RN_RNN_THRESHOLDED_RELU, // a
    RN_RNN_SCALED_TANH,      // a tanh(b x)
    RN_RNN_HARD_SIGMOID,     // a x + b within 0 and 1
    RN_RNN_ELU,              // a
    RN_RNN_SOFTSIGN,
    RN_RNN_SOFTPLUS
} rn_rnn_function;
typedef struct rn_rnn_attrs {
    rn_rnn_kind kind;
    uint32_t hidden;
    bool reverse;     // the sequence from its end (one direction)
    bool both;        // two directions: forwards, then backwards
    bool batch_first; // x (B, T, C)
    bool reset_after; // GRU: the reset gate comes behind the product (linear_before_reset)
    bool coupled;     // LSTM: the forget gate is 1 - the input gate
    double clip;      // of what activations get, to +-clip; 0: none
    rn_rnn_function functions[6]; // f, g, h of a direction, then of the other
    double a[6], b[6];
} rn_rnn_attrs;
// A layer over whole sequences, as ONNX has it, f32. D directions, H hidden, G gates (RNN 1, LSTM
// i o f c, GRU z r h): x (T, B, C), w (D, G H, C), r (D, G H, H), bias (D, 2 G H) or none, lengths
// i32 (B) or none, h and c (D, B, H) or none, peepholes i o f (D, 3 H) or none. Outputs: y (T, D,
// B, H), the last h (D, B, H), the last c (LSTM). batch_first: x (B, T, C), y (B, T, D, H), h and c
// (B, D, H).
typedef struct rn_rnn_inputs {
    rn_value x, w, r, bias, lengths, h, c, peepholes;
} rn_rnn_inputs;
RN_API rn_value rn_op_rnn(rn_graph *g, rn_rnn_inputs inputs, rn_rnn_attrs attrs);

typedef struct rn_linear_attrs {
    uint32_t axis;     // of a scale that is not one for all
    uint64_t block;    // 0: a scale an index of the axis; else one for so many
    rn_dtype dtype;    // of the result
    int32_t low, high; // quantize_linear: whole numbers are kept within; 0 and 0: the dtype's range
} rn_linear_attrs;
// ONNX's QuantizeLinear: round(x / scale) to even, + zero, within the dtype's range (i8, u8, i16,
// u16, i32) or as fp8. scale is () or (1), or (length of axis), or x's shape with the axis in
// blocks; zero of its shape in the result's dtype, or RN_NO_VALUE.
RN_API rn_value rn_op_quantize_linear(rn_graph *g, rn_value x, rn_value scale, rn_value zero,
                                      rn_linear_attrs attrs);
// (x - zero) scale; zero of x's dtype or RN_NO_VALUE. `dtype`: f32, f16 or bf16.
RN_API rn_value rn_op_dequantize_linear(rn_graph *g, rn_value x, rn_value scale, rn_value zero,
                                        rn_linear_attrs attrs);

typedef struct rn_dft_attrs {
    uint32_t axis;
    uint64_t length; // of the transform: x is cut or filled with zeros; 0: the axis's
    bool inverse;    // divided by the length
    bool half;       // only the first length / 2 + 1 of the result
    bool from_half;  // inverse: x is such a half, of `length`; the result is real
} rn_dft_attrs;
// x (..., 1) real or (..., 2) complex -> (..., 2), or (..., 1) where it is real. Floats.
RN_API rn_value rn_op_dft(rn_graph *g, rn_value x, rn_dft_attrs attrs);

typedef struct rn_col2im_attrs {
    uint32_t rank; // spatial axes
    uint64_t image[RN_MAX_SPATIAL], block[RN_MAX_SPATIAL];
    uint32_t stride[RN_MAX_SPATIAL], dilation[RN_MAX_SPATIAL]; // 0: 1
    uint32_t pad_before[RN_MAX_SPATIAL], pad_after[RN_MAX_SPATIAL];
} rn_col2im_attrs;
// x (N, C * block, windows), as PyTorch's unfold makes it -> (N, C, image...): windows are added
// up. Floats.
RN_API rn_value rn_op_col2im(rn_graph *g, rn_value x, rn_col2im_attrs attrs);

typedef struct rn_roi_align_attrs {
    uint32_t height, width; // of a region in the result
    uint32_t sampling;      // points a side of each place; 0: as many as the region has elements
    double scale;           // of the regions' places to x's
    bool max;               // the largest of the points, not their mean
    bool half_pixel;        // places are moved by half an element
} rn_roi_align_attrs;
// x (N, C, H, W), regions (R, 4) x1 y1 x2 y2, batch i64 (R) -> (R, C, height, width). f32.
RN_API rn_value rn_op_roi_align(rn_graph *g, rn_value x, rn_value regions, rn_value batch,
                                rn_roi_align_attrs attrs);

// ---- ops of training ----------------------------------------------------------------------------

typedef struct rn_adamw_attrs {
    double beta1, beta2, eps, weight_decay;
    uint32_t rate, step; // runtime scalars; step counts from 1
    uint32_t seed;       // a runtime scalar, where something is bf16
    uint32_t stream;     // of this weight's random numbers, then
} rn_adamw_attrs;
// Updates weight, m and v (states of the weight's shape) in place, as PyTorch's AdamW does. Weight
// and states are f32, or bf16, rounded up or down at random by what is lost: the bits depend on
// (seed, stream, step, element).
RN_API rn_value rn_op_adamw(rn_graph *g, rn_value weight, rn_value gradient, rn_value m, rn_value v,
                            rn_adamw_attrs attrs);
typedef struct rn_sgd_attrs {
    float momentum, weight_decay;
    uint32_t rate;               // a runtime scalar
    uint32_t step, seed, stream; // as rn_adamw_attrs, where the weight is bf16
} rn_sgd_attrs;
// `velocity` is a state (f32), or RN_NO_VALUE without momentum.
RN_API rn_value rn_op_sgd(rn_graph *g, rn_value weight, rn_value gradient, rn_value velocity,
                          rn_sgd_attrs attrs);
typedef struct rn_lion_attrs {
    double beta1, beta2, weight_decay;
    uint32_t rate;               // a runtime scalar
    uint32_t step, seed, stream; // as rn_adamw_attrs, where the weight is bf16
} rn_lion_attrs;
// Updates weight and m (a state of the weight's shape, f32) in place: Lion, by the sign of an
// interpolated momentum.
RN_API rn_value rn_op_lion(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                           rn_lion_attrs attrs);
// sum += gradient, in place; `sum` is a state that is zeroed before the first micro-batch.
RN_API rn_value rn_op_accumulate(rn_graph *g, rn_value sum, rn_value gradient);

// gradient * min(1, max_norm / (norm + 1e-6)), norm its own or the given scalar: as PyTorch's
// clip_grad_norm_. Composed of the ops above.
RN_API rn_value rn_graph_clip(rn_graph *g, rn_value gradient, rn_value norm, float max_norm);
RN_API rn_value rn_graph_global_norm(rn_graph *g, const rn_value *gradients, uint32_t count);

RN_END_DECLS

#endif
