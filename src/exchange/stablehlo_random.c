// stablehlo_random.c — random numbers by place (graph/philox.h): ten rounds of Philox over all
// elements at once, with the run's seed as the key.
#include "exchange/stablehlo_ops.h"
#include "graph/op/random.h"

#include <math.h>

static rn_hlo_value low_word(rn_hlo *h, rn_hlo_value x /* ui64 */) {
    rn_hlo_value mask = rn_hlo_whole(h, RN_DTYPE_U64, 0xFFFFFFFF, x.shape);
    return rn_hlo_convert(h, rn_hlo_binary(h, "and", x, mask), RN_DTYPE_U32);
}

static rn_hlo_value high_word(rn_hlo *h, rn_hlo_value x /* ui64 */) {
    x = rn_hlo_binary(h, "shift_right_logical", x, rn_hlo_like(h, x, 32));
    return rn_hlo_convert(h, x, RN_DTYPE_U32);
}

static rn_hlo_value multiply_wide(rn_hlo *h, rn_hlo_value x /* ui32 */, uint32_t by) {
    x = rn_hlo_convert(h, x, RN_DTYPE_U64);
    return rn_hlo_binary(h, "multiply", x, rn_hlo_whole(h, RN_DTYPE_U64, by, x.shape));
}

// The four words of each element's block: ui32 (n) each.
static void draw(rn_hlo *h, rn_hlo_value seed, uint32_t stream, rn_hlo_value block,
                 rn_hlo_value c[4]) {
    rn_shape shape = block.shape;
    rn_hlo_value key = rn_hlo_expand(h, rn_hlo_convert(h, seed, RN_DTYPE_U64), shape);
    rn_hlo_value k[2] = {low_word(h, key), high_word(h, key)};
    c[0] = low_word(h, block);
    c[1] = high_word(h, block);
    c[2] = rn_hlo_whole(h, RN_DTYPE_U32, stream, shape);
    c[3] = rn_hlo_whole(h, RN_DTYPE_U32, 0, shape);
    rn_hlo_value step[2] = {rn_hlo_whole(h, RN_DTYPE_U32, 0x9E3779B9, shape),
                            rn_hlo_whole(h, RN_DTYPE_U32, 0xBB67AE85, shape)};
    for (int round = 0; round < 10; round++) {
        rn_hlo_value a = multiply_wide(h, c[0], 0xD2511F53), b = multiply_wide(h, c[2], 0xCD9E8D57);
        rn_hlo_value c0 = rn_hlo_binary(h, "xor", high_word(h, b), c[1]);
        rn_hlo_value c2 = rn_hlo_binary(h, "xor", high_word(h, a), c[3]);
        c[0] = rn_hlo_binary(h, "xor", c0, k[0]);
        c[1] = low_word(h, b);
        c[2] = rn_hlo_binary(h, "xor", c2, k[1]);
        c[3] = low_word(h, a);
        for (int i = 0; i < 2; i++)
            k[i] = rn_hlo_binary(h, "add", k[i], step[i]);
    }
}

static rn_hlo_value equals(rn_hlo *h, rn_hlo_value x, double number) {
    return rn_hlo_compare(h, "EQ", x, rn_hlo_like(h, x, number));
}

// The upper 24 bits of a word over 2^24, exact in either dtype.
static rn_hlo_value find_unit(rn_hlo *h, rn_hlo_value word, rn_dtype dtype) {
    word = rn_hlo_binary(h, "shift_right_logical", word, rn_hlo_like(h, word, 8));
    word = rn_hlo_convert(h, word, dtype);
    return rn_hlo_binary(h, "multiply", word, rn_hlo_like(h, word, 0x1p-24));
}

typedef struct draws {
    rn_hlo_value words[4], place; // place: of the element in its block, ui64
    rn_shape flat;
} draws;

static draws draw_all(rn_hlo *h, uint32_t seed, uint32_t stream, rn_shape shape) {
    draws d = {.flat = RN_SHAPE(rn_shape_elements(shape, 0))};
    rn_hlo_value element = rn_hlo_iota(h, RN_DTYPE_U64, d.flat, 0);
    rn_hlo_value four = rn_hlo_like(h, element, 4);
    d.place = rn_hlo_binary(h, "remainder", element, four);
    draw(h, h->scalars[seed], stream, rn_hlo_binary(h, "divide", element, four), d.words);
    return d;
}

// In [0, 1), f32 of the given shape.
static rn_hlo_value draw_units(rn_hlo *h, uint32_t seed, uint32_t stream, rn_shape shape) {
    draws d = draw_all(h, seed, stream, shape);
    rn_hlo_value word = d.words[3];
    for (int i = 2; i >= 0; i--)
        word = rn_hlo_select(h, equals(h, d.place, i), d.words[i], word);
    return rn_hlo_reshape(h, find_unit(h, word, RN_DTYPE_F32), shape);
}

// Box-Muller in f64, as the reference does.
static rn_hlo_value draw_normals(rn_hlo *h, uint32_t seed, uint32_t stream, rn_shape shape) {
    draws d = draw_all(h, seed, stream, shape);
    rn_hlo_value early = rn_hlo_compare(h, "LT", d.place, rn_hlo_like(h, d.place, 2));
    rn_hlo_value a = find_unit(h, rn_hlo_select(h, early, d.words[0], d.words[2]), RN_DTYPE_F64);
    rn_hlo_value b = find_unit(h, rn_hlo_select(h, early, d.words[1], d.words[3]), RN_DTYPE_F64);
    a = rn_hlo_binary(h, "add", a, rn_hlo_like(h, a, 0x1p-24));
    rn_hlo_value radius = rn_hlo_unary(h, "log", a);
    radius = rn_hlo_binary(h, "multiply", radius, rn_hlo_like(h, radius, -2));
    radius = rn_hlo_unary(h, "sqrt", radius);
    rn_hlo_value angle = rn_hlo_binary(h, "multiply", b, rn_hlo_like(h, b, 2 * M_PI));
    rn_hlo_value odd = rn_hlo_binary(h, "or", equals(h, d.place, 1), equals(h, d.place, 3));
    rn_hlo_value turn =
        rn_hlo_select(h, odd, rn_hlo_unary(h, "sine", angle), rn_hlo_unary(h, "cosine", angle));
    rn_hlo_value z = rn_hlo_binary(h, "multiply", radius, turn);
    return rn_hlo_reshape(h, rn_hlo_convert(h, z, RN_DTYPE_F32), shape);
}

RN_HLO_EMITTER(random) {
    const rn_random_attrs *a = &((const rn_random_shape_attrs *)call->attrs)->random;
    rn_shape shape = call->outputs[0].shape;
    bool normal = call->op == RN_OP_RANDOM_NORMAL;
    (void)in;
    rn_hlo_value x = normal ? draw_normals(h, a->seed, a->stream, shape)
                            : draw_units(h, a->seed, a->stream, shape);
    float span = normal ? a->high : a->high - a->low;
    x = rn_hlo_binary(h, "multiply", x, rn_hlo_like(h, x, (double)span));
    x = rn_hlo_binary(h, "add", x, rn_hlo_like(h, x, (double)a->low));
    if (!normal) { // the sum may have been rounded up to what it must stay below
        double below = (double)nextafterf(a->high, a->low);
        x = rn_hlo_binary(h, "minimum", x, rn_hlo_like(h, x, below));
    }
    out[0] = rn_hlo_result(h, call, x);
}

RN_HLO_EMITTER(dropout) {
    const rn_dropout_attrs *a = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    rn_hlo_value unit = draw_units(h, a->seed, a->stream, x.shape);
    rn_hlo_value gone = rn_hlo_compare(h, "LT", unit, rn_hlo_like(h, unit, (double)a->probability));
    float kept = 1 - a->probability;
    rn_hlo_value y = rn_hlo_binary(h, "divide", x, rn_hlo_like(h, x, (double)kept));
    out[0] = rn_hlo_result(h, call, rn_hlo_select(h, gone, rn_hlo_like(h, y, 0), y));
}
