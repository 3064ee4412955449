// optimizer.c — the rows: AdamW (states of f32, bf16 or 8 bits), SGD without and with momentum,
// Lion (f32 or 8 bits), Adafactor, Muon.
#include "train/optimizer.h"

#include "base/checked.h"
#include "base/str.h"
#include "graph/op/update.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SMALL = 4096, // elements: 8-bit states are not worth their while below, says bitsandbytes
    NEWTON_SCHULZ_STEPS = 5
};

// ---- states -------------------------------------------------------------------------------------

static uint64_t elements_of(const rn_value_info *weight) {
    return rn_shape_elements(weight->shape, 1);
}

static uint32_t two_of(const rn_value_info *weight, rn_dtype dtype, rn_optimizer_state *out) {
    out[0] = (rn_optimizer_state){"m", dtype, weight->shape};
    out[1] = (rn_optimizer_state){"v", dtype, weight->shape};
    return 2;
}

static uint32_t moments(const rn_value_info *weight, rn_optimizer_state *out) {
    return two_of(weight, RN_DTYPE_F32, out);
}

static uint32_t narrow_moments(const rn_value_info *weight, rn_optimizer_state *out) {
    return two_of(weight, RN_DTYPE_BF16, out);
}

static uint32_t none(const rn_value_info *weight, rn_optimizer_state *out) {
    (void)weight, (void)out;
    return 0;
}

static uint32_t velocity(const rn_value_info *weight, rn_optimizer_state *out) {
    out[0] = (rn_optimizer_state){"velocity", RN_DTYPE_F32, weight->shape};
    return 1;
}

static uint32_t momentum(const rn_value_info *weight, rn_optimizer_state *out) {
    out[0] = (rn_optimizer_state){"m", RN_DTYPE_F32, weight->shape};
    return 1;
}

static rn_shape blocks_of(const rn_value_info *weight) {
    return RN_SHAPE((elements_of(weight) + RN_STATE_BLOCK - 1) / RN_STATE_BLOCK);
}

static uint32_t coded_moments(const rn_value_info *weight, rn_optimizer_state *out) {
    if (elements_of(weight) < SMALL) return moments(weight, out);
    two_of(weight, RN_DTYPE_U8, out);
    out[2] = (rn_optimizer_state){"m_scale", RN_DTYPE_F32, blocks_of(weight)};
    out[3] = (rn_optimizer_state){"v_scale", RN_DTYPE_F32, blocks_of(weight)};
    return 4;
}

static uint32_t coded_momentum(const rn_value_info *weight, rn_optimizer_state *out) {
    if (elements_of(weight) < SMALL) return momentum(weight, out);
    out[0] = (rn_optimizer_state){"m", RN_DTYPE_U8, weight->shape};
    out[1] = (rn_optimizer_state){"m_scale", RN_DTYPE_F32, blocks_of(weight)};
    return 2;
}

static uint32_t factors(const rn_value_info *weight, rn_optimizer_state *out) {
    if (weight->shape.rank != 2) {
        out[0] = (rn_optimizer_state){"v", RN_DTYPE_F32, weight->shape};
        return 1;
    }
    out[0] = (rn_optimizer_state){"v_row", RN_DTYPE_F32, RN_SHAPE(weight->shape.dims[0])};
    out[1] = (rn_optimizer_state){"v_column", RN_DTYPE_F32, RN_SHAPE(weight->shape.dims[1])};
    return 2;
}

// Muon is for matrices between hidden layers; tables and heads are AdamW's, as are vectors.
static bool is_hidden_matrix(const rn_value_info *weight) {
    static const char outer[] = "*embed*,*embd*,*lm_head*,*wte*,*wpe*,output.weight,*word_emb*";
    return weight->shape.rank == 2 &&
           !rn_str_matches_any(rn_str_from(weight->name), rn_str_from(outer));
}

static uint32_t muon_states(const rn_value_info *weight, rn_optimizer_state *out) {
    return is_hidden_matrix(weight) ? momentum(weight, out) : moments(weight, out);
}

// ---- updates ------------------------------------------------------------------------------------

static rn_adamw_attrs adamw_attrs(const rn_update *with) {
    return (rn_adamw_attrs){.beta1 = with->beta1,
                            .beta2 = with->beta2,
                            .eps = with->eps,
                            .weight_decay = with->weight_decay,
                            .rate = with->rate,
                            .step = with->step,
                            .seed = with->seed,
                            .stream = with->stream};
}

static rn_value update_adamw(const rn_update *with) {
    return rn_op_adamw_guarded(with->graph, with->weight, with->gradient, with->states[0],
                               with->states[1], with->guard, adamw_attrs(with));
}

static rn_value update_adamw8(const rn_update *with) {
    if (with->state_count == 2) return update_adamw(with);
    return rn_op_adamw8(with->graph, with->weight, with->gradient, with->states, with->guard,
                        adamw_attrs(with));
}

// Without a velocity states[0] is RN_NO_VALUE and momentum 0.
static rn_value update_sgd(const rn_update *with) {
    rn_sgd_attrs attrs = {.momentum = (float)with->momentum,
                          .weight_decay = (float)with->weight_decay,
                          .rate = with->rate,
                          .step = with->step,
                          .seed = with->seed,
                          .stream = with->stream};
    return rn_op_sgd_guarded(with->graph, with->weight, with->gradient, with->states[0],
                             with->guard, attrs);
}

static rn_value update_lion(const rn_update *with) {
    rn_lion_attrs attrs = {.beta1 = with->beta1,
                           .beta2 = with->beta2,
                           .weight_decay = with->weight_decay,
                           .rate = with->rate,
                           .step = with->step,
                           .seed = with->seed,
                           .stream = with->stream};
    if (with->state_count == 2)
        return rn_op_lion8(with->graph, with->weight, with->gradient, with->states, with->guard,
                           attrs);
    return rn_op_lion_guarded(with->graph, with->weight, with->gradient, with->states[0],
                              with->guard, attrs);
}

static rn_value update_adafactor(const rn_update *with) {
    rn_adafactor_attrs attrs = {.weight_decay = with->weight_decay,
                                .rate = with->rate,
                                .step = with->step,
                                .seed = with->seed,
                                .stream = with->stream};
    return rn_op_adafactor(with->graph, with->weight, with->gradient, with->states, with->guard,
                           attrs);
}

// X becomes a X + (b A + c A A) X with A = X Xᵀ, five times: singular values near 1. X is wider
// than high.
static rn_value orthogonalize(rn_graph *g, rn_value x) {
    static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    rn_matmul_attrs by_rows = {.transpose_w = true}; // w as (K, N)
    for (int i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
        rn_value square = rn_op_matmul(g, x, x, RN_NO_VALUE); // X Xᵀ
        rn_value fourth = rn_op_matmul(g, square, square, RN_NO_VALUE);
        rn_value mixed = rn_op_add(g, rn_op_scale(g, square, b, 0), rn_op_scale(g, fourth, c, 0));
        rn_value turned = rn_op_matmul_as(g, mixed, x, RN_NO_VALUE, by_rows);
        x = rn_op_add(g, rn_op_scale(g, x, a, 0), turned);
    }
    return x;
}

// Muon (Jordan 2024): the momentum made orthogonal, as large as an AdamW step (0.2 sqrt of the
// longer side), so that one rate serves both. SGD's decay without momentum is the decoupled one.
static rn_value update_muon(const rn_update *with) {
    rn_graph *g = with->graph;
    rn_shape shape = rn_graph_value(g, with->weight)->shape;
    if (with->state_count == 2) return update_adamw(with);
    float mu = (float)with->momentum;
    bool high = shape.dims[0] > shape.dims[1];
    double longer = (double)(high ? shape.dims[0] : shape.dims[1]);
    rn_value mean =
        rn_op_average(g, with->states[0], with->gradient, with->guard, (rn_average_attrs){mu});
    rn_value x = rn_op_add(g, rn_op_scale(g, with->gradient, 1 - mu, 0),
                           rn_op_scale(g, mean, mu, 0)); // Nesterov's
    rn_value norm = rn_op_scale(g, rn_op_sqrt(g, rn_op_sum_squares(g, x)), 1, 1e-7f);
    x = rn_op_div(g, x, norm);
    if (high) x = rn_op_permute(g, x, (const uint8_t[]){1, 0});
    x = orthogonalize(g, x);
    if (high) x = rn_op_permute(g, x, (const uint8_t[]){1, 0});
    rn_update last = *with;
    last.gradient = rn_op_scale(g, x, (float)(0.2 * sqrt(longer)), 0);
    last.states[0] = RN_NO_VALUE;
    last.momentum = 0;
    return update_sgd(&last);
}

// ---- the table ----------------------------------------------------------------------------------

// The defaults are PyTorch's (Lion's, Adafactor's and Muon's: their authors'), but for weight
// decay, which is 0 for all.
static const rn_optimizer optimizers[] = {
    {.name = "adamw",
     .states = moments,
     .by_element = true,
     .needs_step = true,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8,
     .update = update_adamw},
    {.name = "sgd", .states = none, .by_element = true, .update = update_sgd},
    {.name = "momentum",
     .states = velocity,
     .by_element = true,
     .momentum = 0.9,
     .update = update_sgd},
    {.name = "lion",
     .states = momentum,
     .by_element = true,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .update = update_lion},
    {.name = "adamw_bf16",
     .states = narrow_moments,
     .needs_step = true,
     .rounds = true,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8,
     .update = update_adamw},
    {.name = "adamw_8bit",
     .states = coded_moments,
     .by_element = true,
     .needs_step = true,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8,
     .update = update_adamw8},
    {.name = "lion_8bit",
     .states = coded_momentum,
     .by_element = true,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .update = update_lion},
    {.name = "adafactor", .states = factors, .needs_step = true, .update = update_adafactor},
    {.name = "muon",
     .states = muon_states,
     .needs_step = true,
     .beta1 = 0.9,
     .beta2 = 0.95,
     .eps = 1e-8,
     .momentum = 0.95,
     .update = update_muon},
};
enum { COUNT = sizeof optimizers / sizeof *optimizers };

const char *rn_optimizer_name(size_t index) {
    return index < COUNT ? optimizers[index].name : NULL;
}

static void list_names(char *out, size_t bytes) {
    size_t used = 0;
    for (size_t i = 0; i < COUNT && used < bytes; i++)
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : "", optimizers[i].name);
}

rn_status rn_optimizer_find(const char *name, const rn_optimizer **out) {
    char names[256] = "";
    *out = &optimizers[0];
    if (!name) return RN_OK;
    for (size_t i = 0; i < COUNT; i++) {
        *out = &optimizers[i];
        if (strcmp(name, optimizers[i].name) == 0) return RN_OK;
    }
    *out = NULL;
    list_names(names, sizeof names);
    return rn_hint(rn_fail(RN_INVALID, "there is no optimizer '%s'", name), "there are %s", names);
}

// ---- states of ranks ----------------------------------------------------------------------------

// The noise of bf16 belongs to a weight's element by its number: a row alone would have another.
bool rn_optimizer_divides(const rn_optimizer *row, const rn_value_info *weight,
                          const rn_train_share *share, rn_rank_range *out) {
    uint64_t count = elements_of(weight), each;
    rn_optimizer_state states[RN_OPTIMIZER_STATES];
    *out = (rn_rank_range){0, count};
    if (!share->divided_states || share->ranks < 2 || !row->by_element) return false;
    if (row->rounds || weight->dtype == RN_DTYPE_BF16 || row->states(weight, states) == 0)
        return false;
    each = rn_rank_row(count, share->ranks);
    if ((share->ranks - 1) * each >= count) return false; // some would have nothing
    *out = rn_rank_range_of(count, each, share->rank);
    return true;
}

// Rows are whole blocks, so those of blocks are a part of their scales, too.
uint32_t rn_optimizer_states(const rn_optimizer *row, const rn_value_info *weight,
                             const rn_train_share *share,
                             rn_optimizer_state out[RN_OPTIMIZER_STATES]) {
    uint32_t count = row->states(weight, out);
    rn_rank_range range;
    if (!rn_optimizer_divides(row, weight, share, &range)) return count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t elements = range.end - range.begin;
        bool whole = rn_shape_elements(out[i].shape, 1) == elements_of(weight);
        out[i].shape = RN_SHAPE(whole ? elements : rn_div_up(elements, RN_STATE_BLOCK));
    }
    return count;
}

rn_status rn_optimizer_state_name(const char *weight, const char *suffix, char *out, size_t bytes) {
    int length = snprintf(out, bytes, "%s.%s", weight, suffix);
    if (length >= 0 && (size_t)length < bytes) return RN_OK;
    return rn_fail(RN_INVALID, "the weight's name '%.40s...' is too long to train", weight);
}
