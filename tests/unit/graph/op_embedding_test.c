// Rows of a table, of any dtype, and their gradient.
#include "op_run.h"

#include "graph/op/grads.h"
#include "tensor/layout.h"
#include "tensor/quant.h"

static void rows_are_looked_up(void **state) {
    (void)state;
    float table[4 * 3], y[6 * 3];
    int32_t ids[6] = {3, 0, 0, 2, 1, 3};
    fill(table, 12, 1);
    rn_tensor in[] = {f32_tensor(table, RN_SHAPE(4, 3)), i32_tensor(ids, RN_SHAPE(2, 3))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(2, 3, 3))};
    assert_ok(run_op(RN_OP_EMBEDDING, in, out, NULL, NULL));
    for (int i = 0; i < 6; i++)
        assert_memory_equal(table + ids[i] * 3, y + i * 3, 3 * sizeof(float));
}

// Rows of 7: int4's last packed group is single, and nf4's rows begin within bytes and blocks.
static void rows_may_begin_within_a_byte(void **state) {
    (void)state;
    enum { V = 13, C = 7 };
    _Alignas(64) uint8_t data[512];
    float from[V * C], expected[V * C], y[V * C];
    uint8_t q[(V + 1) * C] = {0};
    int32_t ids[V];
    rn_plain_components parts;
    fill(from, V * C, 1);
    for (int i = 0; i < V; i++)
        ids[i] = i;
    rn_tensor in[] = {{.data = data, .shape = RN_SHAPE(V, C)}, i32_tensor(ids, RN_SHAPE(V))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(V, C))};

    assert_true(rn_plain_components_of(RN_DTYPE_NF4, V, C, &parts));
    float *scale = (float *)(void *)(data + parts.offset[RN_COMPONENT_SCALE]);
    rn_quant_nf4_blocks(from, V * C, data, scale);
    rn_dequant_nf4_blocks(data, scale, V * C, expected);
    in[0].dtype = RN_DTYPE_NF4;
    assert_ok(run_op(RN_OP_EMBEDDING, in, out, NULL, NULL));
    assert_memory_equal(expected, y, sizeof y);

    assert_true(rn_plain_components_of(RN_DTYPE_INT4, V, C, &parts));
    scale = (float *)(void *)(data + parts.offset[RN_COMPONENT_SCALE]);
    float *shift = (float *)(void *)(data + parts.offset[RN_COMPONENT_SHIFT]);
    rn_quant_int4_groups(from, V, C, q, scale, shift);
    rn_dequant_int4_groups(q, scale, shift, V, C, expected);
    rn_quant_int4_pack(q, q + 7 * C, 7 * C, data); // half of 13 groups is 7
    in[0].dtype = RN_DTYPE_INT4;
    assert_ok(run_op(RN_OP_EMBEDDING, in, out, NULL, NULL));
    assert_memory_equal(expected, y, sizeof y);
}

static void an_id_that_is_no_row_is_refused_with_its_place(void **state) {
    (void)state;
    float table[4 * 3] = {0}, y[3 * 3] = {0};
    int32_t ids[3] = {3, 0, 4};
    rn_tensor in[] = {f32_tensor(table, RN_SHAPE(4, 3)), i32_tensor(ids, RN_SHAPE(3))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(3, 3))};
    assert_fails(RN_INVALID, run_op(RN_OP_EMBEDDING, in, out, NULL, NULL));
    assert_non_null(strstr(rn_last_error()->message, "id 4 at place 2"));
    ids[2] = -1;
    assert_fails(RN_INVALID, run_op(RN_OP_EMBEDDING, in, out, NULL, NULL));
    assert_non_null(strstr(rn_last_error()->message, "id -1 at place 2"));
    float dtable[4 * 3] = {0};
    rn_tensor back[] = {i32_tensor(ids, RN_SHAPE(3)), f32_tensor(y, RN_SHAPE(3, 3))};
    rn_tensor out_back[] = {f32_tensor(dtable, RN_SHAPE(4, 3))};
    assert_fails(RN_INVALID,
                 run_op(RN_OP_EMBEDDING_GRAD, back, out_back, NULL, &(rn_embedding_grad_attrs){4}));
}

static void the_gradient_sums_the_places_of_a_row(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value table = rn_graph_weight(g, "table", RN_DTYPE_F32, RN_SHAPE(4, 2)), dtable;
    rn_value ids = rn_graph_input(g, "ids", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value c = rn_graph_input(g, "c", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 2));
    rn_value loss = rn_op_sum(g, rn_op_mul(g, rn_op_embedding(g, table, ids), c), 3, false);
    assert_ok(rn_graph_gradient(g, loss, &table, 1, &dtable));
    test_run run;
    test_run_open(&run, g, 3);
    memcpy(test_run_data(&run, ids), (int32_t[]){2, 0, 2}, 3 * sizeof(int32_t));
    memcpy(test_run_data(&run, c), (float[]){1, 2, 3, 4, 50, 60}, 6 * sizeof(float));
    memset(test_run_data(&run, table), 0, 8 * sizeof(float));
    test_run_all(&run);
    static const float expected[8] = {3, 4, 0, 0, 51, 62, 0, 0};
    assert_memory_equal(expected, test_run_data(&run, dtable), sizeof expected);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_op_embedding(g, rn_graph_weight(g, "t", RN_DTYPE_F32, RN_SHAPE(4)),
                    rn_graph_input(g, "i", RN_DTYPE_I32, RN_SHAPE(2)));
    assert_refused(g, "embedding.0", "a table is (V, C)");
    g = make_graph();
    rn_op_embedding(g, rn_graph_weight(g, "t", RN_DTYPE_F32, RN_SHAPE(4, 2)),
                    rn_graph_input(g, "i", RN_DTYPE_F32, RN_SHAPE(2)));
    assert_refused(g, "input 1 must be i32, it is f32");
    g = make_graph();
    rn_op_embedding(g, rn_graph_weight(g, "t", RN_DTYPE_F6_E2M3, RN_SHAPE(4, 256)),
                    rn_graph_input(g, "i", RN_DTYPE_I32, RN_SHAPE(2)));
    assert_refused(g, "a table of f6_e2m3 cannot be read");
}

// Not the whole table is read: 5 rows of 2 blocks of q8_0.
static void the_cost_counts_the_rows_that_are_read(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_op_embedding(g, rn_graph_weight(g, "t", RN_DTYPE_Q8_0, RN_SHAPE(1000, 64)),
                    rn_graph_input(g, "i", RN_DTYPE_I32, RN_SHAPE(RN_ROWS)));
    assert_ok(rn_graph_finish(g));
    rn_tensor tensors[3];
    rn_call call;
    rn_cost cost = {0};
    rn_graph_bind(g, 0, 5, tensors, &call);
    rn_op_get(RN_OP_EMBEDDING)->cost(&call, &cost);
    assert_true(cost.read_bytes == 5 * (4 + 2 * 34));
    rn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_looked_up),
        cmocka_unit_test(rows_may_begin_within_a_byte),
        cmocka_unit_test(an_id_that_is_no_row_is_refused_with_its_place),
        cmocka_unit_test(the_gradient_sums_the_places_of_a_row),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
        cmocka_unit_test(the_cost_counts_the_rows_that_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
