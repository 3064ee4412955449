// Attention with rope and pages in one op: the bits of rope, kv_append and paged_attention.
#include "fused_check.h"

#include "graph/philox.h"

enum { H = 6, HK = 2, D = 32, PAGES = 7, PAGE_TOKENS = 16, SEQUENCES = 2, MAX_PAGES = 6 };

// Sequence 1 has six pages in disorder, sequence 0 one.
static const int32_t some_table[SEQUENCES * MAX_PAGES] = {6, -1, -1, -1, -1, -1, 5, 0, 1, 2, 4, 3};

typedef struct trial {
    op_check t;
    rn_value q, k, v, sequence, position, table;
    rn_value states[2], after[2], results[2]; // fused, composed
} trial;
static trial now;

// ---- graphs -------------------------------------------------------------------------------------

static rn_value pages(op_check *t, rn_dtype dtype, const char *name) {
    return rn_graph_state(t->graph, name, dtype, RN_SHAPE(PAGES, 2, HK, PAGE_TOKENS, D),
                          RN_PURPOSE_KV);
}

static void build(rn_dtype dtype, rn_attend_attrs a) {
    now = (trial){.t = begin()};
    op_check *t = &now.t;
    rn_graph *g = t->graph;
    now.q = floats(t, RN_SHAPE(RN_ROWS, H, D));
    now.k = floats(t, RN_SHAPE(RN_ROWS, HK, D));
    now.v = floats(t, RN_SHAPE(RN_ROWS, HK, D));
    now.sequence = input(t, RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    now.position = input(t, RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    now.table = input(t, RN_DTYPE_I32, RN_SHAPE(SEQUENCES, MAX_PAGES));
    now.states[0] = pages(t, dtype, "fused");
    now.states[1] = pages(t, dtype, "composed");
    now.after[0] = rn_op_attend(g, now.q, now.k, now.v, now.states[0], now.sequence, now.position,
                                now.table, a);
    now.results[0] = rn_graph_output_of(g, now.after[0], 1);
    rn_value q = rn_op_rope(g, now.q, now.position, a.rope);
    rn_value k = rn_op_rope(g, now.k, now.position, a.rope);
    now.after[1] =
        rn_op_kv_append(g, now.states[1], k, now.v, now.sequence, now.position, now.table);
    now.results[1] = rn_op_paged_attention(g, q, now.after[1], now.sequence, now.position,
                                           now.table, a.attention);
}

static void fill_rows(const test_run *run, int32_t first, uint32_t seed) {
    const rn_value values[] = {now.q, now.k, now.v};
    int32_t *sequence = test_run_data(run, now.sequence);
    int32_t *position = test_run_data(run, now.position);
    for (uint32_t i = 0; i < 3; i++) {
        float *x = test_run_data(run, values[i]);
        for (uint64_t e = 0; e < rn_tensor_elements(&run->values[values[i]]); e++)
            x[e] = rn_philox_normal(seed, i, e);
    }
    for (uint64_t row = 0; row < run->rows; row++) {
        sequence[row] = row == 2 ? -1 : 1;
        position[row] = first + (int32_t)row;
    }
    if (run->rows > 3) sequence[3] = 0, position[3] = first % PAGE_TOKENS;
    memcpy(test_run_data(run, now.table), some_table, sizeof some_table);
}

// ---- the same bits ------------------------------------------------------------------------------

// A text of several tiles of keys, in chunks: what an earlier one wrote is read by the later ones.
static void compare(test_run *run, const rn_kernel *kernels) {
    for (uint32_t i = 0; i < 2; i++)
        memset(test_run_data(run, now.states[i]), 0, rn_tensor_bytes(&run->values[now.states[i]]));
    for (int32_t first = 0; first + (int32_t)run->rows < MAX_PAGES * PAGE_TOKENS;
         first += (int32_t)run->rows) {
        fill_rows(run, first, (uint32_t)first);
        spoil(run, now.results[0]);
        assert_ok(run_by(run, kernels));
        want_same_bits(run, now.results[0], now.results[1]);
        want_same_bits(run, now.states[0], now.states[1]);
        const float *y = test_run_data(run, now.results[0]);
        assert_true(isfinite(y[0]) && y[0] != y[1]);
    }
}

static const rn_attend_attrs halves = {.rope = {.pairing = RN_ROPE_HALVES, .base = 10000}},
                             window = {.rope = {.pairing = RN_ROPE_NEIGHBOURS, .base = 500000},
                                       .attention = {.causal = true, .window = 21}},
                             scaled = {.rope = {.base = 10000,
                                                .dims = 20,
                                                .scaling = RN_ROPE_LLAMA3,
                                                .factor = 8,
                                                .low_frequency = 1,
                                                .high_frequency = 4,
                                                .original_context = 64},
                                       .attention = {.scale = 0.3f}};

static void attend_has_the_bits_of_its_parts(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_Q8_0};
    static const rn_attend_attrs *const attrs[] = {&halves, &window, &scaled};
    for (int d = 0; d < 3; d++)
        for (int a = 0; a < 3; a++)
            for (uint64_t rows = 1; rows <= 14; rows += 13) {
                build(dtypes[d], *attrs[a]);
                ready(&now.t, rows);
                by_all_kernels(&now.t.run, compare);
                end(&now.t);
            }
}

// ---- rules --------------------------------------------------------------------------------------

static void the_first_output_is_the_state(void **state) {
    (void)state;
    uint64_t offset = 0;
    build(RN_DTYPE_F16, halves);
    ready(&now.t, 2);
    rn_alias alias = alias_at(&now.t, now.after[0], 0, 2, &offset);
    assert_true(alias.kind == RN_ALIAS_KIND_MUST && alias.input == 3);
    assert_int_equal(alias_at(&now.t, now.after[0], 1, 2, &offset).kind, RN_ALIAS_KIND_NONE);
    assert_int_equal(rn_graph_value(now.t.graph, now.after[0])->dtype, RN_DTYPE_F16);
    WANT_SHAPE(&now.t, now.results[0], RN_ROWS, H, D);
    end(&now.t);
}

static rn_cost cost_of(rn_value value, uint64_t rows) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    rn_cost cost = {0};
    rn_graph_bind(now.t.graph, rn_graph_value(now.t.graph, value)->producer, rows, tensors, &call);
    rn_op_get(call.op)->cost(&call, &cost);
    return cost;
}

static void pages_are_read_and_new_rows_are_written(void **state) {
    (void)state;
    build(RN_DTYPE_F16, halves);
    ready(&now.t, 3);
    rn_cost cost = cost_of(now.after[0], 3);
    double q = 3 * H * D, k = 3 * HK * D, kv = PAGES * 2 * HK * PAGE_TOKENS * D;
    assert_true(cost.flops == 3 * (q + k) + 4 * q * (MAX_PAGES * PAGE_TOKENS));
    assert_true(cost.read_bytes == 4 * (q + 2 * k) + 2 * kv + 4 * (3 + 3 + SEQUENCES * MAX_PAGES));
    assert_true(cost.write_bytes == 2 * 2 * k + 4 * q);
    end(&now.t);
}

static void hostile_tables_write_nothing(void **state) {
    (void)state;
    static const struct {
        int32_t sequence, position, page;
    } wrongs[] = {
        {2, 0, 5}, {-2, 0, 5}, {1, MAX_PAGES * PAGE_TOKENS, 5}, {1, -1, 5}, {1, 3, PAGES}};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        static const uint8_t zero[PAGES * 2 * HK * PAGE_TOKENS * D * 2];
        build(RN_DTYPE_F16, halves);
        ready(&now.t, 2);
        fill_rows(&now.t.run, 0, 1);
        ((int32_t *)test_run_data(&now.t.run, now.sequence))[1] = wrongs[i].sequence;
        ((int32_t *)test_run_data(&now.t.run, now.position))[1] = wrongs[i].position;
        ((int32_t *)test_run_data(&now.t.run, now.table))[MAX_PAGES] = wrongs[i].page;
        assert_fails(RN_INVALID, run_by(&now.t.run, rn_reference_kernels));
        assert_non_null(strstr(rn_last_error()->message, "row "));
        assert_memory_equal(test_run_data(&now.t.run, now.states[0]), zero, sizeof zero);
        end(&now.t);
    }
}

static void misfits_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        rn_shape q, k, v;
        rn_attend_attrs attrs;
        const char *words;
    } misfits[] = {
        {RN_SHAPE(2, H, D), RN_SHAPE(2, HK, D), RN_SHAPE(2, HK, D), {.rope = {.base = 0}}, "base"},
        {RN_SHAPE(3, H, D), RN_SHAPE(2, HK, D), RN_SHAPE(2, HK, D), {.rope = {.base = 1}}, "posi"},
        {RN_SHAPE(2, 5, D),
         RN_SHAPE(2, HK, D),
         RN_SHAPE(2, HK, D),
         {.rope = {.base = 1}},
         "evenly"},
        {RN_SHAPE(2, H, D), RN_SHAPE(2, 1, D), RN_SHAPE(2, 1, D), {.rope = {.base = 1}}, "HK"},
        {RN_SHAPE(2, H, D),
         RN_SHAPE(2, HK, D),
         RN_SHAPE(2, 1, D),
         {.rope = {.base = 1}},
         "k and v"},
    };
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        op_check t = begin();
        rn_value q = floats(&t, misfits[i].q), k = floats(&t, misfits[i].k);
        rn_value v = floats(&t, misfits[i].v), kv = pages(&t, RN_DTYPE_F16, "kv");
        rn_value sequence = input(&t, RN_DTYPE_I32, RN_SHAPE(2));
        rn_value position = input(&t, RN_DTYPE_I32, RN_SHAPE(2));
        rn_value table = input(&t, RN_DTYPE_I32, RN_SHAPE(SEQUENCES, MAX_PAGES));
        rn_op_attend(t.graph, q, k, v, kv, sequence, position, table, misfits[i].attrs);
        assert_fails(RN_INVALID, rn_graph_finish(t.graph));
        assert_non_null(strstr(rn_last_error()->message, "attend.0: "));
        refuse(&t, misfits[i].words);
    }
}

// `made`: which of kv, sequence, position and page_table a node makes.
static bool is_steady(int made) {
    op_check t = begin();
    rn_value q = floats(&t, RN_SHAPE(2, H, D)), k = floats(&t, RN_SHAPE(2, HK, D));
    rn_value given[4] = {pages(&t, RN_DTYPE_F16, "kv"), input(&t, RN_DTYPE_I32, RN_SHAPE(2)),
                         input(&t, RN_DTYPE_I32, RN_SHAPE(2)),
                         input(&t, RN_DTYPE_I32, RN_SHAPE(SEQUENCES, MAX_PAGES))};
    if (made == 0)
        given[0] = rn_op_kv_append(t.graph, given[0], k, k, given[1], given[2], given[3]);
    else if (made > 0)
        given[made] =
            rn_op_cast(t.graph, rn_op_cast(t.graph, given[made], RN_DTYPE_F32), RN_DTYPE_I32);
    rn_value y = rn_op_attend(t.graph, q, k, k, given[0], given[1], given[2], given[3], halves);
    assert_int_not_equal(RN_NO_VALUE, y);
    const rn_node *node = rn_graph_node(t.graph, rn_graph_value(t.graph, y)->producer);
    bool steady = ((const rn_attend_attrs *)node->attrs)->steady_places;
    end(&t);
    return steady;
}

// A device may then look at them, and at older keys, before the steps ahead of it are done.
static void places_are_steady_where_no_node_makes_them(void **state) {
    (void)state;
    assert_true(is_steady(-1));
    for (int made = 0; made < 4; made++)
        assert_false(is_steady(made));
}

static void attributes_are_printed(void **state) {
    (void)state;
    char text[96];
    rn_op_get(RN_OP_ATTEND)->print(&window, text, sizeof text);
    assert_string_equal(text, "neighbours, base 500000; causal, window 21");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attend_has_the_bits_of_its_parts),
        cmocka_unit_test(the_first_output_is_the_state),
        cmocka_unit_test(pages_are_read_and_new_rows_are_written),
        cmocka_unit_test(hostile_tables_write_nothing),
        cmocka_unit_test(misfits_are_refused_by_name),
        cmocka_unit_test(places_are_steady_where_no_node_makes_them),
        cmocka_unit_test(attributes_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
