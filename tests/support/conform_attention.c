// conform_attention.c — rows of rope, attention and the KV cache.
#include "conform.h"

// ---- rope ---------------------------------------------------------------------------------------

static void rope(conform_case *c) {
    rn_shape x = c->row->shapes[0], tokens = x;
    tokens.rank -= 2;
    rn_value positions = conform_whole(c, tokens, 0, 40);
    const rn_rope_attrs *attrs = c->row->attrs;
    conform_result(c, rn_op_rope(c->graph, conform_in(c, x, -2, 2), positions, *attrs));
}

#define BASE .base = 10000
static const rn_rope_attrs halves = {.pairing = RN_ROPE_HALVES, BASE},
                           neighbours = {.pairing = RN_ROPE_NEIGHBOURS, BASE},
                           partial = {.pairing = RN_ROPE_HALVES, BASE, .dims = 6},
                           inverse = {.pairing = RN_ROPE_NEIGHBOURS, BASE, .inverse = true},
                           long_factor = {BASE, .dims = 6, .attention_factor = 1.1f},
                           linear = {.scaling = RN_ROPE_LINEAR, BASE, .factor = 4},
                           ntk = {.scaling = RN_ROPE_NTK, BASE, .factor = 4},
                           llama3 = {.scaling = RN_ROPE_LLAMA3,
                                     BASE,
                                     .factor = 8,
                                     .low_frequency = 1,
                                     .high_frequency = 4,
                                     .original_context = 64},
                           yarn = {.scaling = RN_ROPE_YARN,
                                   BASE,
                                   .factor = 4,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .original_context = 64},
                           yarn_factor = {.scaling = RN_ROPE_YARN,
                                          BASE,
                                          .factor = 4,
                                          .beta_fast = 32,
                                          .beta_slow = 1,
                                          .attention_factor = 1.25f,
                                          .original_context = 64};

static void rope_divided(conform_case *c) {
    rn_shape x = c->row->shapes[0], tokens = x;
    const rn_rope_attrs *attrs = c->row->attrs;
    uint64_t dims = attrs->dims ? attrs->dims : x.dims[x.rank - 1];
    tokens.rank -= 2;
    rn_value positions = conform_whole(c, tokens, 0, 40);
    rn_value divisors = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(dims / 2), 0.5f, 8);
    conform_result(
        c, rn_op_rope_divided(c->graph, conform_in(c, x, -2, 2), positions, divisors, *attrs));
}

#define ROPE(WHAT, X, ATTRS, ROWS)                                                                 \
    {                                                                                              \
        .op = RN_OP_ROPE, .what = WHAT, .build = rope, .shapes = {X}, .attrs = &(ATTRS),           \
        .rows = ROWS                                                                               \
    }

// ---- attention ----------------------------------------------------------------------------------

// shapes: q, k and v, the mask (rank 0: none).
static void attention(conform_case *c) {
    const rn_attention_attrs *attrs = c->row->attrs;
    rn_shape q = c->row->shapes[0], k = c->row->shapes[1], mask = c->row->shapes[2];
    rn_value query = conform_in(c, q, -1, 1), key = conform_in(c, k, -1, 1);
    rn_value value = conform_in(c, k, -1, 1), added = RN_NO_VALUE;
    if (mask.rank) added = conform_fixed(c, RN_DTYPE_F32, mask, -2, 2);
    conform_result(c, rn_op_attention(c->graph, query, key, value, added, *attrs));
}

// shapes: q, k and v. Documents begin at each third of the queries; the last query sees itself
// alone, and one beginning is below 0.
static void attention_packed(conform_case *c) {
    enum { MOST = 160 };
    static int32_t begins[MOST];
    const rn_attention_attrs *attrs = c->row->attrs;
    rn_shape q = c->row->shapes[0], k = c->row->shapes[1];
    uint64_t batch = q.dims[0], queries = q.dims[1], third = queries / 3 + 1;
    for (uint64_t i = 0; i < batch * queries && i < MOST; i++)
        begins[i] = (int32_t)(i % queries / (third - i / queries) * (third - i / queries));
    begins[0] = -7;
    begins[batch * queries - 1] = (int32_t)queries - 1;
    rn_value query = conform_in(c, q, -1, 1), key = conform_in(c, k, -1, 1);
    rn_value value = conform_in(c, k, -1, 1);
    rn_value documents = conform_list(c, RN_SHAPE(batch, queries), begins);
    conform_result(c, rn_op_attention(c->graph, query, key, value, documents, *attrs));
}

static const rn_attention_attrs all = {0}, causal = {.causal = true},
                                scaled = {.scale = 0.7f, .causal = true},
                                window = {.causal = true, .window = 3}, both_sides = {.window = 4},
                                capped = {.scale = 2, .causal = true, .cap = 1.5f},
                                of_keys = {.scale = 0.3f, .causal = true, .value_dims = 32},
                                of_odd_keys = {.causal = true, .value_dims = 5};

#define ATTENTION(WHAT, Q, K, MASK, ATTRS)                                                         \
    {                                                                                              \
        .op = RN_OP_ATTENTION, .what = WHAT, .build = attention, .shapes = {Q, K, MASK},           \
        .attrs = &(ATTRS)                                                                          \
    }

// ---- the KV cache -------------------------------------------------------------------------------

// Three sequences on pages of 4 tokens, in no particular order; 5 pages, of which one is free.
enum { PAGES = 5, PAGE_TOKENS = 4, SEQUENCES = 3, MAX_PAGES = 2, KV_ROWS = 6 };
static const int32_t page_table[SEQUENCES * MAX_PAGES] = {3, 0, 1, -1, 4, -1};
static const int32_t sequences[KV_ROWS] = {0, 2, 0, -1, 1, 0};
static const int32_t positions[KV_ROWS] = {5, 0, 6, 0, 3, 2};

enum { LATENT = 1, SINKS = 2 }; // keys that begin with their values; a sink a head

static rn_shape cache_shape(rn_shape kv, bool latent) { // (rows, HK, D)
    return RN_SHAPE(PAGES, latent ? 1 : 2, kv.dims[1], PAGE_TOKENS, kv.dims[2]);
}

// variant: LATENT: keys alone
static void kv_append(conform_case *c) {
    rn_shape kv = c->row->shapes[0];
    bool latent = c->row->variant & LATENT;
    rn_value state = conform_state(c, c->row->dtype, cache_shape(kv, latent), -1, 1);
    rn_value k = conform_in(c, kv, -2, 2), v = latent ? RN_NO_VALUE : conform_in(c, kv, -2, 2);
    rn_value sequence = conform_list(c, RN_SHAPE(RN_ROWS), sequences);
    rn_value position = conform_list(c, RN_SHAPE(RN_ROWS), positions);
    rn_value table = conform_list(c, RN_SHAPE(SEQUENCES, MAX_PAGES), page_table);
    rn_op_kv_append(c->graph, state, k, v, sequence, position, table);
}

// shapes: q, and (rows, HK, D) that the cache is for.
static void paged_attention(conform_case *c) {
    const rn_attention_attrs *attrs = c->row->attrs;
    rn_shape cache = cache_shape(c->row->shapes[1], c->row->variant & LATENT);
    rn_value state = conform_state(c, c->row->dtype, cache, -1, 1);
    rn_value q = conform_in(c, c->row->shapes[0], -2, 2);
    rn_value sequence = conform_list(c, RN_SHAPE(RN_ROWS), sequences);
    rn_value position = conform_list(c, RN_SHAPE(RN_ROWS), positions);
    rn_value table = conform_list(c, RN_SHAPE(SEQUENCES, MAX_PAGES), page_table);
    if (!(c->row->variant & SINKS)) {
        conform_result(
            c, rn_op_paged_attention(c->graph, q, state, sequence, position, table, *attrs));
        return;
    }
    rn_value sinks = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(c->row->shapes[0].dims[1]), -2, 4);
    conform_result(c, rn_op_paged_attention_sinks(c->graph, q, state, sequence, position, table,
                                                  sinks, *attrs));
}

// ---- packed texts -------------------------------------------------------------------------------

// Texts of rows 0 to 4, 5, and 6 to 75; the last row is of none.
enum { VARLEN_ROWS = 77, VARLEN_REACH = 5 };
static int32_t spans[VARLEN_ROWS * 2];

static void fill_spans(void) {
    static const int32_t ends[] = {5, 6, 76};
    for (int32_t row = 0, text = 0, first = 0; row < VARLEN_ROWS; row++) {
        if (text < 3 && row == ends[text]) first = ends[text++];
        spans[2 * row] = text < 3 ? first : 0;
        spans[2 * row + 1] = text < 3 ? ends[text] : 0;
    }
}

// shapes: q, k and v, the bias (rank 0: none).
static void varlen_attention(conform_case *c) {
    const rn_attention_attrs *attrs = c->row->attrs;
    rn_shape bias = c->row->shapes[2];
    fill_spans();
    rn_value q = conform_in(c, c->row->shapes[0], -2, 2),
             k = conform_in(c, c->row->shapes[1], -2, 2);
    rn_value v = conform_in(c, c->row->shapes[1], -1, 1), added = RN_NO_VALUE;
    rn_value span = conform_list(c, RN_SHAPE(RN_ROWS, 2), spans);
    if (bias.rank) added = conform_fixed(c, RN_DTYPE_F32, bias, -2, 2);
    conform_result(c, rn_op_varlen_attention(c->graph, q, k, v, span, added, *attrs));
}

#define VARLEN(WHAT, Q, K, BIAS, ATTRS, ROWS)                                                      \
    {                                                                                              \
        .op = RN_OP_VARLEN_ATTENTION, .what = WHAT, .build = varlen_attention,                     \
        .shapes = {Q, K, BIAS}, .attrs = &(ATTRS), .rows = ROWS                                    \
    }

#define CACHE(OP, WHAT, BUILD, DTYPE, A, B, ATTRS, ROWS)                                           \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .dtype = DTYPE, .shapes = {A, B},          \
        .attrs = ATTRS, .rows = ROWS                                                               \
    }
// What not every back end's kernel has.
#define RARE(OP, WHAT, BUILD, DTYPE, A, B, ATTRS, ROWS, VARIANT)                                   \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .dtype = DTYPE, .shapes = {A, B},          \
        .attrs = ATTRS, .rows = ROWS, .variant = VARIANT, .partial = true                          \
    }
#define HEADS(H, D) RN_SHAPE(RN_ROWS, H, D)

// ---- recurrent states ---------------------------------------------------------------------------

// Three sequences; one goes on, one begins, one row is of nobody.
enum { STATES = 3, STATE_ROWS = 7 };
static const int32_t state_sequences[STATE_ROWS] = {2, 2, 0, 0, 0, -1, 1};
static const int32_t state_positions[STATE_ROWS] = {5, 6, 0, 1, 2, 9, 1};

// shapes: x, the weight.
static void short_conv(conform_case *c) {
    rn_shape x = c->row->shapes[0], w = c->row->shapes[1];
    rn_value in = conform_in(c, x, -2, 2);
    rn_value weight = conform_weight(c, RN_DTYPE_F32, w, -1, 1);
    rn_value state =
        conform_state(c, RN_DTYPE_F32, RN_SHAPE(STATES, w.dims[w.rank - 1] - 1, x.dims[1]), -1, 1);
    rn_value sequence = conform_list(c, RN_SHAPE(RN_ROWS), state_sequences);
    rn_value position = conform_list(c, RN_SHAPE(RN_ROWS), state_positions);
    conform_result(c, rn_op_short_conv(c->graph, in, weight, state, sequence, position));
}

// shapes: a head's state (H, DK, DV).
static void delta_rule(conform_case *c) {
    const rn_delta_rule_attrs *attrs = c->row->attrs;
    rn_shape s = c->row->shapes[0];
    uint64_t heads = s.dims[0], width = 2 * attrs->key_heads * s.dims[1] + heads * s.dims[2];
    rn_value qkv = conform_in(c, RN_SHAPE(RN_ROWS, width), -2, 2);
    rn_value a = conform_in(c, RN_SHAPE(RN_ROWS, heads), -3, 3);
    rn_value b = conform_in(c, RN_SHAPE(RN_ROWS, heads), -3, 3);
    rn_value rate = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(heads), -4, 0);
    rn_value bias = conform_weight(c, RN_DTYPE_F32, RN_SHAPE(heads), -1, 1);
    rn_value state =
        conform_state(c, RN_DTYPE_F32, RN_SHAPE(STATES, heads, s.dims[1], s.dims[2]), -1, 1);
    rn_value sequence = conform_list(c, RN_SHAPE(RN_ROWS), state_sequences);
    rn_value position = conform_list(c, RN_SHAPE(RN_ROWS), state_positions);
    conform_result(
        c, rn_op_delta_rule(c->graph, qkv, a, b, rate, bias, state, sequence, position, *attrs));
}

static const rn_delta_rule_attrs one_key = {.key_heads = 1, .eps = 1e-6f},
                                 two_keys = {.key_heads = 2, .eps = 1e-6f},
                                 in_turn = {.key_heads = 2, .keys_in_turn = true, .eps = 1e-6f};

#define CONV(WHAT, X, W)                                                                           \
    {                                                                                              \
        .op = RN_OP_SHORT_CONV, .what = WHAT, .build = short_conv, .shapes = {X, W},               \
        .rows = STATE_ROWS                                                                         \
    }
#define DELTA(WHAT, STATE, ATTRS)                                                                  \
    {                                                                                              \
        .op = RN_OP_DELTA_RULE, .what = WHAT, .build = delta_rule, .shapes = {STATE},              \
        .attrs = &(ATTRS), .rows = STATE_ROWS                                                      \
    }

static const conform_row rows[] = {
    ROPE("halves", RN_SHAPE(2, 3, 4, 8), halves, 0),
    ROPE("halves, rows", HEADS(3, 16), halves, 6),
    ROPE("neighbours, rows", HEADS(2, 10), neighbours, 5),
    ROPE("a part of the head", HEADS(2, 10), partial, 5),
    ROPE("inverse", HEADS(2, 10), inverse, 5),
    ROPE("one pair", RN_SHAPE(1, 1, 2), halves, 0),
    ROPE("linear", HEADS(2, 8), linear, 4),
    ROPE("ntk", HEADS(2, 8), ntk, 4),
    ROPE("llama3", HEADS(2, 16), llama3, 4),
    ROPE("yarn", HEADS(2, 16), yarn, 4),
    ROPE("yarn with a factor", HEADS(2, 16), yarn_factor, 4),

    {.op = RN_OP_ROPE,
     .what = "divided, a part of the head",
     .build = rope_divided,
     .shapes = {HEADS(2, 10)},
     .attrs = &long_factor,
     .rows = 5},

    ATTENTION("one of all", RN_SHAPE(1, 1, 1, 1), RN_SHAPE(1, 1, 1, 1), {0}, all),
    ATTENTION("all see all", RN_SHAPE(2, 5, 2, 7), RN_SHAPE(2, 6, 2, 7), {0}, all),
    ATTENTION("causal", RN_SHAPE(1, 9, 2, 16), RN_SHAPE(1, 9, 2, 16), {0}, causal),
    ATTENTION("causal, keys before", RN_SHAPE(1, 3, 2, 5), RN_SHAPE(1, 8, 2, 5), {0}, causal),
    ATTENTION("grouped heads, scaled", RN_SHAPE(2, 5, 6, 4), RN_SHAPE(2, 5, 2, 4), {0}, scaled),
    ATTENTION("one query", RN_SHAPE(1, 1, 4, 8), RN_SHAPE(1, 70, 2, 8), {0}, causal),
    ATTENTION("a window", RN_SHAPE(1, 8, 2, 4), RN_SHAPE(1, 8, 2, 4), {0}, window),
    ATTENTION("several tiles of keys", RN_SHAPE(1, 5, 1, 4), RN_SHAPE(1, 131, 1, 4), {0}, all),
    ATTENTION("a mask", RN_SHAPE(2, 4, 2, 6), RN_SHAPE(2, 5, 2, 6), RN_SHAPE(4, 5), all),
    ATTENTION("a mask a batch", RN_SHAPE(2, 4, 2, 6), RN_SHAPE(2, 5, 1, 6), RN_SHAPE(2, 4, 5),
              causal),

    {.op = RN_OP_ATTENTION,
     .what = "packed documents",
     .build = attention_packed,
     .shapes = {RN_SHAPE(2, 11, 4, 6), RN_SHAPE(2, 11, 2, 6)},
     .attrs = &causal},
    {.op = RN_OP_ATTENTION,
     .what = "packed documents of several tiles, a window",
     .build = attention_packed,
     .shapes = {RN_SHAPE(1, 150, 2, 4), RN_SHAPE(1, 150, 1, 4)},
     .attrs = &window},

    CACHE(KV_APPEND, "f32", kv_append, RN_DTYPE_F32, HEADS(2, 5), {0}, NULL, KV_ROWS),
    CACHE(KV_APPEND, "f16", kv_append, RN_DTYPE_F16, HEADS(2, 16), {0}, NULL, KV_ROWS),
    CACHE(KV_APPEND, "q8_0", kv_append, RN_DTYPE_Q8_0, HEADS(2, 64), {0}, NULL, KV_ROWS),
    CACHE(KV_APPEND, "one row", kv_append, RN_DTYPE_F16, HEADS(1, 7), {0}, NULL, 1),
    CACHE(PAGED_ATTENTION, "f32", paged_attention, RN_DTYPE_F32, HEADS(2, 5), HEADS(2, 5), &causal,
          KV_ROWS),
    CACHE(PAGED_ATTENTION, "f16, grouped heads", paged_attention, RN_DTYPE_F16, HEADS(6, 16),
          HEADS(2, 16), &causal, KV_ROWS),
    CACHE(PAGED_ATTENTION, "q8_0, grouped heads", paged_attention, RN_DTYPE_Q8_0, HEADS(6, 32),
          HEADS(2, 32), &causal, KV_ROWS),
    CACHE(PAGED_ATTENTION, "a window", paged_attention, RN_DTYPE_F16, HEADS(2, 8), HEADS(1, 8),
          &window, KV_ROWS),
    CACHE(PAGED_ATTENTION, "capped scores", paged_attention, RN_DTYPE_F16, HEADS(4, 16),
          HEADS(2, 16), &capped, KV_ROWS),
    CACHE(PAGED_ATTENTION, "one row", paged_attention, RN_DTYPE_F16, HEADS(2, 8), HEADS(2, 8),
          &scaled, 1),
    RARE(KV_APPEND, "keys alone", kv_append, RN_DTYPE_F16, HEADS(1, 48), {0}, NULL, KV_ROWS,
         LATENT),
    RARE(PAGED_ATTENTION, "sinks", paged_attention, RN_DTYPE_F16, HEADS(6, 16), HEADS(2, 16),
         &causal, KV_ROWS, SINKS),
    RARE(PAGED_ATTENTION, "sinks, a window, one row", paged_attention, RN_DTYPE_F32, HEADS(4, 5),
         HEADS(2, 5), &window, 1, SINKS),
    RARE(PAGED_ATTENTION, "latent, f16", paged_attention, RN_DTYPE_F16, HEADS(5, 48), HEADS(1, 48),
         &of_keys, KV_ROWS, LATENT),
    RARE(PAGED_ATTENTION, "latent, q8_0, one row", paged_attention, RN_DTYPE_Q8_0, HEADS(40, 64),
         HEADS(1, 64), &of_keys, 1, LATENT),
    RARE(PAGED_ATTENTION, "latent, odd widths", paged_attention, RN_DTYPE_F32, HEADS(35, 7),
         HEADS(1, 7), &of_odd_keys, KV_ROWS, LATENT),
    RARE(PAGED_ATTENTION, "latent, sinks", paged_attention, RN_DTYPE_F16, HEADS(3, 48),
         HEADS(1, 48), &of_keys, KV_ROWS, LATENT | SINKS),

    CONV("three taps", RN_SHAPE(RN_ROWS, 70), RN_SHAPE(70, 3)),
    CONV("four taps, a file's shape", RN_SHAPE(RN_ROWS, 37), RN_SHAPE(37, 1, 4)),
    CONV("two taps", RN_SHAPE(RN_ROWS, 3), RN_SHAPE(3, 2)),
    CONV("many taps", RN_SHAPE(RN_ROWS, 5), RN_SHAPE(5, 11)),
    DELTA("one head", RN_SHAPE(1, 8, 5), one_key),
    DELTA("heads share keys", RN_SHAPE(4, 16, 72), two_keys),
    DELTA("heads share keys in turn", RN_SHAPE(6, 12, 20), in_turn),
    VARLEN("one text", HEADS(2, 8), HEADS(2, 8), {0}, all, 5),
    VARLEN("several texts", HEADS(2, 8), HEADS(2, 8), {0}, all, VARLEN_ROWS),
    VARLEN("grouped heads, causal", HEADS(6, 16), HEADS(2, 16), {0}, scaled, VARLEN_ROWS),
    VARLEN("a window on both sides", HEADS(2, 7), HEADS(1, 7), {0}, both_sides, VARLEN_ROWS),
    VARLEN("capped scores", HEADS(2, 8), HEADS(2, 8), {0}, capped, VARLEN_ROWS),
    VARLEN("a causal window", HEADS(2, 7), HEADS(1, 7), {0}, window, VARLEN_ROWS),
    VARLEN("a bias by distance", HEADS(3, 4), HEADS(3, 4), RN_SHAPE(3, 2 * VARLEN_REACH + 1), all,
           VARLEN_ROWS),
};

const conform_table conform_attention = {rows, sizeof rows / sizeof *rows};
