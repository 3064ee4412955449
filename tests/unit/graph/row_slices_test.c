// Products with a weight in slices of rows: the same bits, and nothing cut that must stay whole.
#include "support.h"

#include "base/fault.h"
#include "evaluate.h"
#include "graph/cut.h"
#include "graph/validate.h"

#include <ration/memory.h>

enum { ROWS = 3, DIM = 64, VOCAB = 1000, SMALL = 96 };

typedef struct model {
    rn_graph *g;
    rn_value ids, x, table, head, bias, small, y;
} model;

// A lookup in the head's own table, a product that is small, the head with a bias.
static model make_model(rn_dtype dtype, bool fused) {
    model m = {0};
    assert_ok(rn_graph_create(&m.g));
    m.ids = rn_graph_input(m.g, "ids", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    m.head = rn_graph_weight(m.g, "head", dtype, RN_SHAPE(VOCAB, DIM));
    m.small = rn_graph_weight(m.g, "small", RN_DTYPE_F32, RN_SHAPE(DIM, DIM));
    m.bias = rn_graph_weight(m.g, "bias", RN_DTYPE_F32, RN_SHAPE(VOCAB));
    rn_graph_block(m.g, "layer");
    rn_value h = rn_op_matmul(m.g, rn_op_embedding(m.g, m.head, m.ids), m.small, RN_NO_VALUE);
    rn_graph_block(m.g, "head");
    m.y = fused ? rn_op_project(m.g, h, RN_NO_VALUE, m.head, m.bias, RN_NO_VALUE,
                                (rn_project_attrs){.eps = 1e-5f})
                : rn_op_matmul(m.g, h, m.head, m.bias);
    rn_graph_output(m.g, m.y, "logits");
    assert_ok(rn_graph_finish(m.g));
    return m;
}

static rn_graph *slice(const rn_graph *graph, uint64_t most_bytes) {
    rn_graph *sliced = NULL;
    assert_ok(rn_graph_slice_rows(graph, most_bytes, &sliced));
    if (sliced) assert_true(rn_graph_is_valid(sliced));
    return sliced;
}

static uint64_t row_bytes(rn_dtype dtype) {
    uint64_t bytes = 0;
    assert_true(rn_dtype_bytes(dtype, DIM, &bytes));
    return bytes;
}

// Any bytes will do, but for numbers that are not finite.
static void fill(const test_run *run, rn_value value, uint32_t seed) {
    uint8_t *data = test_run_data(run, value);
    uint64_t bytes = rn_tensor_bytes(&run->values[value]);
    if (run->values[value].dtype == RN_DTYPE_F32) {
        for (uint64_t i = 0; i < bytes / 4; i++)
            ((float *)data)[i] = (float)((seed + i * 2654435761u) % 2001) / 1000 - 1;
        return;
    }
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)((seed + i * 31) % 60); // half floats of such bytes are small
}

static void run_model(test_run *run, const model *m) {
    static const int32_t ids[ROWS] = {7, 999, 0};
    memcpy(test_run_data(run, m->ids), ids, sizeof ids);
    fill(run, m->head, 1);
    fill(run, m->small, 2);
    fill(run, m->bias, 3);
    // A slice has the rows of its tensor.
    for (rn_value v = 1; v <= rn_graph_value_count(run->graph); v++) {
        const rn_value_info *info = rn_graph_value(run->graph, v);
        if (!info->tensor) continue;
        rn_value whole = rn_graph_find(run->graph, RN_ROLE_WEIGHT, info->tensor);
        assert_int_equal(info->tensor_rows, VOCAB);
        uint64_t bytes = rn_tensor_bytes(&run->values[whole]) / info->tensor_rows;
        memcpy(test_run_data(run, v),
               (uint8_t *)test_run_data(run, whole) + info->first_row * bytes,
               info->shape.dims[0] * bytes);
    }
    test_run_all(run);
}

static void slices_make_the_same_numbers(void **state) {
    static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_BF16, RN_DTYPE_Q8_0, RN_DTYPE_Q4_0};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof dtypes / sizeof dtypes[0]; i++) {
        model m = make_model(dtypes[i / 2], i % 2);
        rn_graph *sliced = slice(m.g, 300 * row_bytes(dtypes[i / 2]));
        test_run whole, cut;
        assert_non_null(sliced);
        assert_int_equal(rn_graph_node_count(sliced), rn_graph_node_count(m.g) + 4); // 4 x 256
        test_run_open(&whole, m.g, ROWS);
        test_run_open(&cut, sliced, ROWS);
        run_model(&whole, &m);
        run_model(&cut, &m);
        rn_value y = rn_graph_find(sliced, RN_ROLE_OUTPUT, "logits");
        assert_int_equal(y, m.y);
        assert_memory_equal(test_run_data(&whole, y), test_run_data(&cut, y),
                            sizeof(float) * ROWS * VOCAB);
        test_run_close(&whole);
        test_run_close(&cut);
        rn_graph_destroy(sliced);
        rn_graph_destroy(m.g);
    }
}

static void slices_cover_each_row_once(void **state) {
    (void)state;
    model m = make_model(RN_DTYPE_F32, false);
    static const uint64_t rows[] = {1, 256, 257, 511, 512, 700, 999};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rn_graph *sliced = slice(m.g, rows[i] * row_bytes(RN_DTYPE_F32));
        uint64_t next = 0;
        for (rn_value v = 1; v <= rn_graph_value_count(sliced); v++) {
            const rn_value_info *info = rn_graph_value(sliced, v);
            if (!info->tensor || strcmp(info->tensor, "head") != 0) continue;
            assert_int_equal(info->first_row, next);
            assert_int_equal(info->first_row % 256, 0);
            assert_true(info->shape.dims[0] <= (rows[i] < 256 ? 256 : rows[i]));
            next += info->shape.dims[0];
        }
        assert_int_equal(next, VOCAB);
        rn_graph_destroy(sliced);
    }
    rn_graph_destroy(m.g);
}

static void what_is_small_enough_stays_whole(void **state) {
    (void)state;
    model m = make_model(RN_DTYPE_F32, false);
    uint64_t largest = 0;
    assert_null(slice(m.g, VOCAB * row_bytes(RN_DTYPE_F32)));
    assert_ok(rn_graph_find_sliceable(m.g, &largest));
    assert_int_equal(largest, VOCAB * row_bytes(RN_DTYPE_F32));
    rn_graph_destroy(m.g);
}

// Components beside the data, a residual that the product overwrites, a transposed weight, one that
// is no weight, one that something else reads.
static void what_cannot_be_cut_stays_whole(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        rn_graph *g;
        uint64_t largest = 1;
        assert_ok(rn_graph_create(&g));
        rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, VOCAB));
        rn_value w = i == 3 ? rn_graph_input(g, "w", RN_DTYPE_F32, RN_SHAPE(VOCAB, VOCAB))
                            : rn_graph_weight(g, "w", i == 0 ? RN_DTYPE_INT8 : RN_DTYPE_F32,
                                              RN_SHAPE(VOCAB, VOCAB));
        if (i == 1)
            rn_op_project(g, x, RN_NO_VALUE, w, RN_NO_VALUE, x, (rn_project_attrs){.eps = 1e-5f});
        else
            rn_op_matmul_as(g, x, w, RN_NO_VALUE, (rn_matmul_attrs){.transpose_w = i == 2});
        if (i == 4) rn_op_silu(g, w);
        assert_ok(rn_graph_finish(g));
        assert_ok(rn_graph_find_sliceable(g, &largest));
        assert_int_equal(largest, 0);
        assert_null(slice(g, 1 << 10));
        rn_graph_destroy(g);
    }
}

static void every_failing_allocation_is_a_clean_failure(void **state) {
    (void)state;
    model m = make_model(RN_DTYPE_F32, false);
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_graph *sliced = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_graph_slice_rows(m.g, 1, &sliced);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_graph_destroy(sliced);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, before);
        assert_int_equal(s == RN_OK, !fired);
        if (!fired) break;
    }
    rn_graph_destroy(m.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_make_the_same_numbers),
        cmocka_unit_test(slices_cover_each_row_once),
        cmocka_unit_test(what_is_small_enough_stays_whole),
        cmocka_unit_test(what_cannot_be_cut_stays_whole),
        cmocka_unit_test(every_failing_allocation_is_a_clean_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
