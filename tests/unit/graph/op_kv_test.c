// KV pages: what is appended is what attention reads, page by page; hostile tables are refused.
#include "op_run.h"

enum {
    PAGES = 9,
    HK = 2,
    TOKENS = 16, // of a page
    D = 32,
    SEQUENCES = 3,
    MAX_PAGES = 6,
    H = 4,
    LENGTH = 90, // two tiles; five pages and a bit
    KV = PAGES * 2 * HK * TOKENS * D
};

typedef struct cache {
    rn_tensor kv;
    int32_t table[SEQUENCES * MAX_PAGES];
} cache;

// Sequence 1 has six pages in disorder, sequence 0 one, sequence 2 none.
static const int32_t some_table[SEQUENCES * MAX_PAGES] = {6, -1, -1, -1, -1, -1, 5,  0,  8,
                                                          2, 7,  1,  -1, -1, -1, -1, -1, -1};

static cache make_cache(rn_dtype dtype) {
    static _Alignas(64) float data[KV];
    cache c = {.kv = {.data = data, .dtype = dtype, .shape = RN_SHAPE(PAGES, 2, HK, TOKENS, D)}};
    memset(data, 0xff, sizeof data); // NaN: what is not written must not be read
    memcpy(c.table, some_table, sizeof c.table);
    return c;
}

static rn_status append(cache *c, float *k, float *v, int32_t *sequence, int32_t *position,
                        uint64_t rows) {
    rn_tensor in[] = {c->kv,
                      f32_tensor(k, RN_SHAPE(rows, HK, D)),
                      f32_tensor(v, RN_SHAPE(rows, HK, D)),
                      i32_tensor(sequence, RN_SHAPE(rows)),
                      i32_tensor(position, RN_SHAPE(rows)),
                      i32_tensor(c->table, RN_SHAPE(SEQUENCES, MAX_PAGES))};
    rn_tensor out[] = {c->kv};
    return run_op(RN_OP_KV_APPEND, in, out, NULL, NULL);
}

static rn_status attend(cache *c, float *q, int32_t *sequence, int32_t *position, uint64_t rows,
                        rn_attention_attrs attrs, float *y) {
    rn_tensor in[] = {f32_tensor(q, RN_SHAPE(rows, H, D)), c->kv,
                      i32_tensor(sequence, RN_SHAPE(rows)), i32_tensor(position, RN_SHAPE(rows)),
                      i32_tensor(c->table, RN_SHAPE(SEQUENCES, MAX_PAGES))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(rows, H, D))};
    return run_op(RN_OP_PAGED_ATTENTION, in, out, NULL, &attrs);
}

// To the pages' dtype and back.
static void round_all(rn_dtype dtype, float *x, uint64_t n) {
    static _Alignas(64) float narrow[LENGTH * HK * D];
    assert_ok(rn_dtype_from_f32(dtype, x, narrow, n));
    assert_ok(rn_dtype_to_f32(dtype, narrow, x, n));
}

// k and v of sequence 1, all positions, appended in chunks of 7; then rounded as the pages' are.
static void write_sequence(cache *c, float *k, float *v) {
    fill(k, LENGTH * HK * D, 1);
    fill(v, LENGTH * HK * D, 2);
    for (int32_t first = 0; first < LENGTH; first += 7) {
        int32_t sequence[7], position[7];
        uint64_t rows = LENGTH - first < 7 ? (uint64_t)(LENGTH - first) : 7;
        for (int i = 0; i < 7; i++) {
            sequence[i] = 1;
            position[i] = first + i;
        }
        assert_ok(append(c, k + first * HK * D, v + first * HK * D, sequence, position, rows));
    }
    round_all(c->kv.dtype, k, LENGTH * HK * D);
    round_all(c->kv.dtype, v, LENGTH * HK * D);
}

static void pages_give_the_bits_of_plain_attention(void **state) {
    (void)state;
    static float k[LENGTH * HK * D], v[LENGTH * HK * D], q[LENGTH * H * D];
    static float y[LENGTH * H * D], expected[LENGTH * H * D];
    int32_t sequence[LENGTH], position[LENGTH];
    fill(q, LENGTH * H * D, 3);
    for (int i = 0; i < LENGTH; i++) {
        sequence[i] = 1;
        position[i] = i;
    }
    for (int form = 0; form < 6; form++) {
        static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_Q8_0};
        cache c = make_cache(dtypes[form / 2]);
        rn_attention_attrs attrs = {.causal = true, .window = form & 1 ? 70 : 0};
        write_sequence(&c, k, v);
        rn_tensor in[] = {f32_tensor(q, RN_SHAPE(1, LENGTH, H, D)),
                          f32_tensor(k, RN_SHAPE(1, LENGTH, HK, D)),
                          f32_tensor(v, RN_SHAPE(1, LENGTH, HK, D)), no_tensor()};
        rn_tensor out[] = {f32_tensor(expected, RN_SHAPE(1, LENGTH, H, D)),
                           f32_tensor(NULL, RN_SHAPE(1, H, LENGTH))};
        assert_ok(run_op(RN_OP_ATTENTION, in, out, NULL, &attrs));
        assert_ok(attend(&c, q, sequence, position, LENGTH, attrs, y));
        assert_memory_equal(expected, y, sizeof y);
        // alone, a row has the same bits
        assert_ok(attend(&c, q + 77 * H * D, sequence + 77, position + 77, 1, attrs, y));
        assert_memory_equal(expected + 77 * H * D, y, H * D * sizeof(float));
    }
}

static void pages_before_the_window_may_be_gone(void **state) {
    (void)state;
    static float k[LENGTH * HK * D], v[LENGTH * HK * D];
    float q[H * D], y[H * D], expected[H * D];
    int32_t sequence = 1, position = 80;
    rn_attention_attrs attrs = {.causal = true, .window = 20};
    cache c = make_cache(RN_DTYPE_F32);
    write_sequence(&c, k, v);
    fill(q, H * D, 3);
    assert_ok(attend(&c, q, &sequence, &position, 1, attrs, expected));
    for (int i = 0; i < 3; i++)
        c.table[MAX_PAGES + i] = -1; // keys 61 .. 80 begin in page 3
    assert_ok(attend(&c, q, &sequence, &position, 1, attrs, y));
    assert_memory_equal(expected, y, sizeof y);
    attrs.window = 40;
    assert_fails(RN_INVALID, attend(&c, q, &sequence, &position, 1, attrs, y));
}

static void rows_of_no_sequence_do_nothing(void **state) {
    (void)state;
    cache c = make_cache(RN_DTYPE_F32);
    float k[HK * D], v[HK * D], q[H * D], y[H * D];
    static float before[KV];
    int32_t sequence = -1, position = -5;
    fill(k, HK * D, 1);
    fill(v, HK * D, 1);
    fill(q, H * D, 1);
    memcpy(before, c.kv.data, sizeof before);
    assert_ok(append(&c, k, v, &sequence, &position, 1));
    assert_memory_equal(before, c.kv.data, sizeof before);
    assert_ok(attend(&c, q, &sequence, &position, 1, (rn_attention_attrs){0}, y));
    for (int i = 0; i < H * D; i++)
        assert_true(y[i] == 0);
}

static void hostile_rows_are_refused_and_nothing_is_written(void **state) {
    (void)state;
    static const struct {
        int32_t sequence, position, page; // page: what the table says of sequence 0
        const char *words;
    } cases[] = {
        {3, 0, 6, "row 1: sequence 3 is not in 0 .. 2"},
        {-2, 0, 6, "row 1: sequence -2 is not in 0 .. 2"},
        {0, -1, 6, "row 1: position -1 is not in 0 .. 95"},
        {0, 96, 6, "row 1: position 96 is not in 0 .. 95"},
        {0, INT32_MAX, 6, "row 1: position 2147483647 is not in"},
        {0, 16, 6, "row 1: page 1 of sequence 0 is -1, not in 0 .. 8"},
        {0, 3, 9, "row 1: page 0 of sequence 0 is 9, not in 0 .. 8"},
        {0, 3, INT32_MIN, "row 1: page 0 of sequence 0 is -2147483648"},
    };
    float k[2 * HK * D], v[2 * HK * D], q[2 * H * D], y[2 * H * D] = {0};
    static float before[KV];
    fill(k, 2 * HK * D, 1);
    fill(v, 2 * HK * D, 1);
    fill(q, 2 * H * D, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cache c = make_cache(RN_DTYPE_F32);
        int32_t sequence[2] = {1, cases[i].sequence}, position[2] = {0, cases[i].position};
        c.table[0] = cases[i].page;
        memcpy(before, c.kv.data, sizeof before);
        assert_fails(RN_INVALID, append(&c, k, v, sequence, position, 2));
        assert_non_null(strstr(rn_last_error()->message, "kv_append: "));
        assert_non_null(strstr(rn_last_error()->message, cases[i].words));
        assert_memory_equal(before, c.kv.data, sizeof before);
        assert_fails(RN_INVALID, attend(&c, q, sequence, position, 2, (rn_attention_attrs){0}, y));
        assert_non_null(strstr(rn_last_error()->message, "paged_attention: "));
        assert_non_null(strstr(rn_last_error()->message, cases[i].words));
    }
}

static rn_graph *with_append(rn_dtype dtype, rn_shape kv, rn_shape k, rn_shape sequence) {
    rn_graph *g = make_graph();
    rn_op_kv_append(g, rn_graph_state(g, "kv", dtype, kv, RN_PURPOSE_KV),
                    rn_graph_input(g, "k", RN_DTYPE_F32, k),
                    rn_graph_input(g, "v", RN_DTYPE_F32, k),
                    rn_graph_input(g, "sequence", RN_DTYPE_I32, sequence),
                    rn_graph_input(g, "position", RN_DTYPE_I32, sequence),
                    rn_graph_input(g, "table", RN_DTYPE_I32, RN_SHAPE(2, 4)));
    return g;
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_shape kv = RN_SHAPE(4, 2, 2, 16, 8), k = RN_SHAPE(RN_ROWS, 2, 8), rows = RN_SHAPE(RN_ROWS);
    rn_graph *g = with_append(RN_DTYPE_F16, kv, k, rows);
    assert_ok(rn_graph_finish(g));
    assert_int_equal(RN_DTYPE_F16, rn_graph_value(g, rn_graph_node(g, 0)->outputs[0])->dtype);
    rn_graph_destroy(g);
    assert_refused(with_append(RN_DTYPE_BF16, kv, k, rows), "kv_append.0",
                   "kv must be f16, f32 or q8_0, it is bf16");
    assert_refused(with_append(RN_DTYPE_Q8_0, kv, k, rows), "whole blocks");
    assert_refused(with_append(RN_DTYPE_F16, RN_SHAPE(4, 3, 2, 16, 8), k, rows),
                   "kv must be (pages, 2, HK, page_tokens, D)");
    assert_refused(with_append(RN_DTYPE_F16, kv, RN_SHAPE(RN_ROWS, 2, 4), rows),
                   "the HK and D of kv");
    assert_refused(with_append(RN_DTYPE_F16, kv, k, RN_SHAPE(7)),
                   "sequence and position must be (rows)");
}

// ---- sinks, and keys alone ----------------------------------------------------------------------

// Rows 0 .. LENGTH - 1 of sequence 1, appended; k and v (LENGTH, HK, D), v NULL: keys alone.
static void append_text(cache *c, float *k, float *v) {
    for (int32_t i = 0; i < LENGTH; i++) {
        int32_t one = 1;
        rn_tensor in[] = {c->kv,
                          f32_tensor(k + i * HK * D, RN_SHAPE(1, HK, D)),
                          v ? f32_tensor(v + i * HK * D, RN_SHAPE(1, HK, D)) : (rn_tensor){0},
                          i32_tensor(&one, RN_SHAPE(1)),
                          i32_tensor(&i, RN_SHAPE(1)),
                          i32_tensor(c->table, RN_SHAPE(SEQUENCES, MAX_PAGES))};
        rn_tensor out[] = {c->kv};
        assert_ok(run_op(RN_OP_KV_APPEND, in, out, NULL, NULL));
    }
}

// The row at position `at`, with sinks (H) or NULL; values of `width`.
static void attend_last(cache *c, float *q, int32_t at, float *sinks, uint32_t value_dims,
                        float *y) {
    int32_t one = 1;
    rn_tensor in[] = {f32_tensor(q, RN_SHAPE(1, H, D)),
                      c->kv,
                      i32_tensor(&one, RN_SHAPE(1)),
                      i32_tensor(&at, RN_SHAPE(1)),
                      i32_tensor(c->table, RN_SHAPE(SEQUENCES, MAX_PAGES)),
                      f32_tensor(sinks, RN_SHAPE(H))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(1, H, value_dims ? value_dims : D))};
    rn_attention_attrs attrs = {.value_dims = value_dims};
    rn_call call = {.op = RN_OP_PAGED_ATTENTION,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = out,
                    .input_count = sinks ? 6 : 5,
                    .output_count = 1,
                    .threads = 1};
    assert_ok(rn_op_get(RN_OP_PAGED_ATTENTION)->reference(&call));
}

static float k_rows[LENGTH * HK * D], v_rows[LENGTH * HK * D];

static void a_sink_takes_its_share_and_has_no_value(void **state) {
    (void)state;
    cache c = make_cache(RN_DTYPE_F32);
    float q[H * D], plain[H * D], y[H * D], sinks[H];
    fill(k_rows, LENGTH * HK * D, 1);
    fill(v_rows, LENGTH * HK * D, 1);
    fill(q, H * D, 1);
    append_text(&c, k_rows, v_rows);
    attend_last(&c, q, LENGTH - 1, NULL, 0, plain);
    for (int h = 0; h < H; h++)
        sinks[h] = -INFINITY; // none
    attend_last(&c, q, LENGTH - 1, sinks, 0, y);
    assert_memory_equal(plain, y, sizeof y);
    // Of the one key that the first row sees: v / (1 + e^(sink - score)).
    for (int h = 0; h < H; h++)
        sinks[h] = (float)h - 1;
    attend_last(&c, q, 0, sinks, 0, y);
    for (int h = 0; h < H; h++) {
        double score = 0;
        for (int d = 0; d < D; d++)
            score += (double)q[h * D + d] * (double)k_rows[h / (H / HK) * D + d];
        double share = 1 / (1 + exp((double)sinks[h] - score / sqrt(D)));
        for (int d = 0; d < D; d++)
            assert_float_equal(y[h * D + d], v_rows[h / (H / HK) * D + d] * (float)share, 1e-6f);
    }
}

static void pages_of_keys_have_values_in_them(void **state) {
    (void)state;
    float q[H * D], both[H * D], y[H * D];
    cache c = make_cache(RN_DTYPE_F32);
    fill(k_rows, LENGTH * HK * D, 1);
    fill(q, H * D, 1);
    append_text(&c, k_rows, k_rows);
    attend_last(&c, q, LENGTH - 1, NULL, 0, both);
    c = make_cache(RN_DTYPE_F32);
    c.kv.shape.dims[1] = 1;
    append_text(&c, k_rows, NULL);
    attend_last(&c, q, LENGTH - 1, NULL, D, y);
    assert_memory_equal(both, y, sizeof y);
    attend_last(&c, q, LENGTH - 1, NULL, 12, y);
    for (int h = 0; h < H; h++)
        assert_memory_equal(y + h * 12, both + h * D, 12 * sizeof *y);
}

static rn_graph *with_attention(rn_shape kv, uint64_t sinks, uint32_t value_dims) {
    rn_graph *g = make_graph();
    rn_value rows = rn_graph_input(g, "rows", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_op_paged_attention_sinks(g, rn_graph_input(g, "q", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4, 8)),
                                rn_graph_state(g, "kv", RN_DTYPE_F16, kv, RN_PURPOSE_KV), rows,
                                rows, rn_graph_input(g, "table", RN_DTYPE_I32, RN_SHAPE(2, 4)),
                                rn_graph_input(g, "sinks", RN_DTYPE_F32, RN_SHAPE(sinks)),
                                (rn_attention_attrs){.value_dims = value_dims});
    return g;
}

static void sinks_and_widths_of_values_are_checked(void **state) {
    (void)state;
    rn_shape both = RN_SHAPE(4, 2, 2, 16, 8), keys = RN_SHAPE(4, 1, 2, 16, 8);
    rn_graph *g = with_attention(keys, 4, 6);
    assert_ok(rn_graph_finish(g));
    rn_shape y = rn_graph_value(g, rn_graph_node(g, 0)->outputs[0])->shape;
    assert_true(rn_shape_equal(y, RN_SHAPE(RN_ROWS, 4, 6)));
    rn_graph_destroy(g);
    assert_refused(with_attention(both, 3, 0), "sinks must be one a head");
    assert_refused(with_attention(both, 4, 6), "pages with values have no value_dims");
    assert_refused(with_attention(keys, 4, 0), "pages without values need value_dims");
    assert_refused(with_attention(keys, 4, 9), "values of 9 cannot begin keys of 8");
    assert_refused(with_append(RN_DTYPE_F16, keys, RN_SHAPE(RN_ROWS, 2, 8), RN_SHAPE(RN_ROWS)),
                   "kv has no place for v");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sink_takes_its_share_and_has_no_value),
        cmocka_unit_test(pages_of_keys_have_values_in_them),
        cmocka_unit_test(sinks_and_widths_of_values_are_checked),
        cmocka_unit_test(pages_give_the_bits_of_plain_attention),
        cmocka_unit_test(pages_before_the_window_may_be_gone),
        cmocka_unit_test(rows_of_no_sequence_do_nothing),
        cmocka_unit_test(hostile_rows_are_refused_and_nothing_is_written),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
