// What the importer of ONNX refuses, and how it says so; constants that are computed; functions and
// branches that become plain nodes.
#include "onnx_write.h"

#include "base/str.h"
#include "exchange/onnx_import.h"
#include "graph/graph_internal.h"
#include "memory/account.h"

static const int64_t open_batch[] = {-1, 3, 8, 8}, image[] = {2, 3, 8, 8}, four[] = {4};

typedef struct writing {
    message graph;
} writing;

static writing begin(const char *input, const int64_t *dims, size_t rank) {
    writing w = {{0}};
    message value = value_message(input, 1, dims, rank);
    put_message(&w.graph, 11, &value);
    return w;
}

static void add(writing *w, const message *node) {
    put_message(&w->graph, 1, node);
}

static void add_node(writing *w, const char *op, const char *a, const char *b, const char *out) {
    message node = node_message(op, a, b, NULL, out);
    add(w, &node);
}

static void add_output(writing *w, const char *name) {
    message value = {0};
    put_text(&value, 1, name);
    put_message(&w->graph, 12, &value);
}

static rn_status import(const message *model, const rn_onnx_options *options, rn_graph **out) {
    rn_onnx_model *parsed = NULL;
    rn_imported imported = {0};
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    *out = NULL;
    rn_status s = rn_onnx_parse((rn_str){(const char *)model->data, model->bytes}, &parsed);
    if (s == RN_OK) s = rn_onnx_import(parsed, NULL, NULL, options, &memory, &imported);
    *out = imported.graph;
    rn_error_info error = *rn_last_error();
    rn_onnx_free(parsed);
    rn_arena_free_all(&memory);
    return s == RN_OK ? RN_OK : rn_error_restore(&error);
}

static rn_status import_graph(const writing *w, rn_graph **out) {
    message model = model_message(&w->graph);
    return import(&model, NULL, out);
}

// The refusal names the op, and `what`.
static void assert_refused(const writing *w, const char *op, const char *what) {
    rn_graph *graph = NULL;
    rn_status s = import_graph(w, &graph);
    assert_null(graph);
    assert_true(s == RN_UNSUPPORTED || s == RN_CORRUPT || s == RN_INVALID);
    if (!strstr(rn_last_error()->message, op) || !strstr(rn_last_error()->message, what))
        fail_msg("'%s' does not say %s and %s", rn_last_error()->message, op, what);
}

static uint32_t count_ops(const rn_graph *graph, rn_op op) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        count += rn_graph_node(graph, n)->op == op;
    return count;
}

static void what_is_not_known_is_named(void **state) {
    (void)state;
    writing w = begin("x", image, 4);
    add_node(&w, "Unique", "x", NULL, "y");
    add_output(&w, "y");
    assert_refused(&w, "Unique", "no op");
    w = begin("x", image, 4);
    add_node(&w, "Loop", "x", NULL, "y");
    add_output(&w, "y");
    assert_refused(&w, "Loop", "body");
    w = begin("x", image, 4);
    add_node(&w, "LinearAttention", "x", NULL, "y");
    add_output(&w, "y");
    assert_refused(&w, "LinearAttention", "");
    w = begin("x", image, 4);
    add_node(&w, "Relu", "later", NULL, "y"); // a cycle
    add_node(&w, "Relu", "y", NULL, "later");
    add_output(&w, "y");
    assert_refused(&w, "Relu", "no node before it");
    w = begin("x", image, 4);
    add_node(&w, "Relu", "x", NULL, "y");
    add_node(&w, "Abs", "x", NULL, "y");
    add_output(&w, "y");
    assert_refused(&w, "y", "");
    w = begin("x", image, 4);
    add_output(&w, "nothing");
    assert_refused(&w, "nothing", "no node");
}

static void shapes_that_do_not_fit_or_overflow_are_refused(void **state) {
    (void)state;
    static const int64_t huge[] = {1ll << 40, 1ll << 40}, five[] = {5};
    writing w = begin("x", huge, 2);
    add_node(&w, "Relu", "x", NULL, "y");
    add_output(&w, "y");
    assert_refused(&w, "x", "memory");
    w = begin("x", four, 1);
    message b = value_message("b", 1, five, 1);
    put_message(&w.graph, 11, &b);
    add_node(&w, "Add", "x", "b", "y");
    add_output(&w, "y");
    assert_refused(&w, "Add", "");
    w = begin("x", image, 4); // Reshape to (7)
    message seven = tensor_message("seven", 7, (int64_t[]){1}, 1, (int64_t[]){7}, 8);
    put_message(&w.graph, 5, &seven);
    add_node(&w, "Reshape", "x", "seven", "y");
    add_output(&w, "y");
    assert_refused(&w, "Reshape", "");
}

static void shapes_are_computed_while_it_is_read(void **state) {
    (void)state;
    rn_graph *graph = NULL;
    writing w = begin("x", image, 4); // (2, 3, 8, 8) as Shape(x) * Shape(x) / Shape(x)
    add_node(&w, "Shape", "x", NULL, "s");
    add_node(&w, "Mul", "s", "s", "t");
    add_node(&w, "Div", "t", "s", "u");
    add_node(&w, "Reshape", "x", "u", "v");
    add_node(&w, "Relu", "v", NULL, "y");
    add_output(&w, "y");
    assert_ok(import_graph(&w, &graph));
    assert_int_equal(rn_graph_node_count(graph), 1); // what only shapes needed is gone
    rn_value y = rn_graph_find(graph, RN_ROLE_OUTPUT, "y");
    assert_true(rn_shape_equal(rn_graph_value(graph, y)->shape, RN_SHAPE(2, 3, 8, 8)));
    rn_graph_destroy(graph);
}

static void add_transpose(writing *w, const char *x, const int64_t perm[4], const char *y) {
    message node = node_message("Transpose", x, NULL, NULL, y), attribute = {0};
    put_text(&attribute, 1, "perm");
    for (int i = 0; i < 4; i++)
        put_int(&attribute, 8, perm[i]);
    put_int(&attribute, 20, 7); // INTS
    put_message(&node, 5, &attribute);
    add(w, &node);
}

// A norm over channels between convolutions, say: what is moved there and back is not moved at all.
static void channels_are_not_moved_to_and_fro(void **state) {
    (void)state;
    static const int64_t back[] = {0, 2, 3, 1}, front[] = {0, 3, 1, 2}, mixed[] = {0, 2, 1, 3};
    rn_graph *graph = NULL;
    writing w = begin("x", image, 4);
    add_transpose(&w, "x", back, "a");
    add_node(&w, "Relu", "a", NULL, "b");
    add_transpose(&w, "b", front, "c");
    add_node(&w, "Sqrt", "c", NULL, "d");
    add_transpose(&w, "d", back, "e");
    add_node(&w, "Abs", "e", NULL, "y");
    add_transpose(&w, "d", mixed, "z"); // (2, 8, 3, 8) of what lies as (2, 8, 8, 3)
    add_output(&w, "y");
    add_output(&w, "z");
    assert_ok(import_graph(&w, &graph));
    assert_int_equal(count_ops(graph, RN_OP_PERMUTE), 2);
    rn_value y = rn_graph_find(graph, RN_ROLE_OUTPUT, "y");
    rn_value z = rn_graph_find(graph, RN_ROLE_OUTPUT, "z");
    assert_true(rn_shape_equal(rn_graph_value(graph, y)->shape, RN_SHAPE(2, 8, 8, 3)));
    assert_true(rn_shape_equal(rn_graph_value(graph, z)->shape, RN_SHAPE(2, 8, 3, 8)));
    const rn_node *last = rn_graph_node(graph, rn_graph_value(graph, z)->producer);
    const uint8_t *axes = ((const rn_permute_attrs *)last->attrs)->axes;
    assert_memory_equal(axes, ((uint8_t[]){0, 1, 3, 2}), 4);
    rn_graph_destroy(graph);
}

static void an_open_batch_is_rows(void **state) {
    (void)state;
    rn_graph *graph = NULL;
    writing w = begin("x", open_batch, 4);
    add_node(&w, "Relu", "x", NULL, "y");
    add_output(&w, "y");
    assert_ok(import_graph(&w, &graph));
    assert_true(rn_graph_has_rows(graph));
    rn_graph_destroy(graph);
    message model = model_message(&w.graph);
    rn_onnx_dim batch = {.name = "batch", .size = 5};
    rn_onnx_options options = {.dims = &batch, .dim_count = 1};
    assert_ok(import(&model, &options, &graph));
    rn_value x = rn_graph_find(graph, RN_ROLE_INPUT, "x");
    assert_true(rn_shape_equal(rn_graph_value(graph, x)->shape, RN_SHAPE(5, 3, 8, 8)));
    rn_graph_destroy(graph);
}

static void values_that_decide_shapes_are_asked_for(void **state) {
    (void)state;
    rn_graph *graph = NULL;
    static const int64_t two[] = {2};
    int64_t to[] = {-1, 4};
    writing w = begin("x", image, 4);
    message s = value_message("s", 7, two, 1);
    put_message(&w.graph, 11, &s);
    add_node(&w, "Reshape", "x", "s", "v");
    add_node(&w, "Relu", "v", NULL, "y");
    add_output(&w, "y");
    assert_refused(&w, "Reshape", "'s'");
    message model = model_message(&w.graph);
    rn_onnx_input known = {.name = "s", .dtype = RN_DTYPE_I64, .shape = RN_SHAPE(2), .data = to};
    rn_onnx_options options = {.inputs = &known, .input_count = 1};
    assert_ok(import(&model, &options, &graph));
    rn_value y = rn_graph_find(graph, RN_ROLE_OUTPUT, "y");
    assert_true(rn_shape_equal(rn_graph_value(graph, y)->shape, RN_SHAPE(96, 4)));
    rn_graph_destroy(graph);
}

// FunctionProto "own.Twice" of one node, of this op and domain.
static message model_with_function(const char *inner_op, const char *inner_domain) {
    writing w = begin("x", image, 4);
    message node = node_message("Twice", "x", NULL, NULL, "y");
    message model, function = {0}, inner = {0}, opset = {0};
    put_text(&node, 7, "own");
    add(&w, &node);
    add_output(&w, "y");
    model = model_message(&w.graph);
    put_text(&function, 1, "Twice");
    put_text(&function, 10, "own");
    put_text(&function, 4, "a");
    put_text(&function, 5, "b");
    put_text(&inner, 1, "a");
    if (strcmp(inner_op, "Add") == 0) put_text(&inner, 1, "a");
    put_text(&inner, 2, "b");
    put_text(&inner, 4, inner_op);
    put_text(&inner, 7, inner_domain);
    put_message(&function, 7, &inner);
    put_int(&opset, 2, 17);
    put_message(&function, 9, &opset);
    put_message(&model, 25, &function);
    return model;
}

static void functions_are_expanded_but_not_forever(void **state) {
    (void)state;
    rn_graph *graph = NULL;
    message model = model_with_function("Add", "");
    assert_ok(import(&model, NULL, &graph));
    assert_int_equal(count_ops(graph, RN_OP_ADD), 1);
    rn_graph_destroy(graph);
    model = model_with_function("Twice", "own"); // itself
    assert_fails(RN_UNSUPPORTED, import(&model, NULL, &graph));
    assert_non_null(strstr(rn_last_error()->message, "deep"));
}

static void a_known_condition_chooses_its_branch(void **state) {
    (void)state;
    for (int chosen = 0; chosen < 2; chosen++) {
        rn_graph *graph = NULL;
        writing w = begin("x", image, 4);
        message condition = tensor_message("c", 9, NULL, 0, chosen ? "\1" : "\0", 1);
        message node = node_message("If", "c", NULL, NULL, "y");
        put_message(&w.graph, 5, &condition);
        const char *const branches[] = {"then_branch", "else_branch"}, *const ops[] = {"Neg",
                                                                                       "Exp"};
        for (int i = 0; i < 2; i++) {
            writing branch = {{0}};
            message attribute = {0};
            add_node(&branch, ops[i], "x", NULL, "z");
            add_output(&branch, "z");
            put_text(&attribute, 1, branches[i]);
            put_message(&attribute, 6, &branch.graph);
            put_int(&attribute, 20, 5);
            put_message(&node, 5, &attribute);
        }
        add(&w, &node);
        add_output(&w, "y");
        assert_ok(import_graph(&w, &graph));
        assert_int_equal(count_ops(graph, RN_OP_NEG), chosen);
        assert_int_equal(count_ops(graph, RN_OP_EXP), !chosen);
        rn_graph_destroy(graph);
    }
}

static void add_number(writing *w, const char *name, float number) {
    message tensor = tensor_message(name, 1, NULL, 0, &number, sizeof number);
    put_message(&w->graph, 5, &tensor);
}

// As PyTorch writes it, and with its factors in another order; another number is no GELU.
static void gelu_is_found_in_what_exporters_write(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        rn_graph *graph = NULL;
        writing w = begin("x", image, 4);
        add_number(&w, "root", form == 2 ? 1.5f : 1.41421356f);
        add_number(&w, "one", 1);
        add_number(&w, "half", 0.5f);
        add_node(&w, "Div", "x", "root", "d");
        add_node(&w, "Erf", "d", NULL, "e");
        add_node(&w, "Add", "e", "one", "a");
        add_node(&w, "Mul", form == 1 ? "half" : "x", form == 1 ? "x" : "a", "m");
        add_node(&w, "Mul", form == 1 ? "a" : "m", form == 1 ? "m" : "half", "y");
        add_output(&w, "y");
        assert_ok(import_graph(&w, &graph));
        assert_int_equal(count_ops(graph, RN_OP_GELU), form < 2);
        assert_int_equal(rn_graph_node_count(graph), form < 2 ? 1 : 5);
        rn_graph_destroy(graph);
    }
}

// softmax(q kT / 2 + mask) v of the heads of x (1, 6, 2, 4), as exporters write it.
static writing write_attention(const int64_t mask[4], bool twice) {
    static const int64_t heads[] = {0, 2, 1, 3}, keys[] = {0, 2, 3, 1}, x[] = {1, 6, 2, 4};
    static const float two = 2;
    writing w = begin("x", x, 4);
    message number = tensor_message("two", 1, NULL, 0, &two, sizeof two);
    message added = value_message("mask", 1, mask, 4);
    put_message(&w.graph, 5, &number);
    put_message(&w.graph, 11, &added);
    add_transpose(&w, "x", heads, "q");
    add_transpose(&w, "x", keys, "k");
    add_transpose(&w, "x", heads, "v");
    add_node(&w, "MatMul", "q", "k", "scores");
    add_node(&w, "Div", "scores", "two", "scaled");
    add_node(&w, "Add", "scaled", "mask", "once");
    if (twice) add_node(&w, "Add", "once", "mask", "masked");
    add_node(&w, "Softmax", twice ? "masked" : "once", NULL, "chances");
    add_node(&w, "MatMul", "chances", "v", "seen");
    add_transpose(&w, "seen", heads, "y");
    add_output(&w, "y");
    return w;
}

static void attention_is_found_in_what_exporters_write(void **state) {
    (void)state;
    static const int64_t of_keys[] = {1, 1, 1, 6}, of_queries[] = {1, 1, 6, 6},
                         of_heads[] = {1, 2, 6, 6}, *masks[] = {of_keys, of_queries, of_heads};
    for (int form = 0; form < 4; form++) {
        rn_graph *graph = NULL;
        writing w = write_attention(masks[form % 3], form == 3);
        assert_ok(import_graph(&w, &graph));
        assert_int_equal(count_ops(graph, RN_OP_ATTENTION), form < 3);
        assert_int_equal(count_ops(graph, RN_OP_SOFTMAX), form == 3);
        assert_int_equal(count_ops(graph, RN_OP_MATMUL), form < 3 ? 0 : 2);
        if (form < 2) assert_int_equal(count_ops(graph, RN_OP_PERMUTE), 0); // nothing is moved
        rn_value y = rn_graph_find(graph, RN_ROLE_OUTPUT, "y");
        assert_true(rn_shape_equal(rn_graph_value(graph, y)->shape, RN_SHAPE(1, 6, 2, 4)));
        rn_graph_destroy(graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_known_is_named),
        cmocka_unit_test(shapes_that_do_not_fit_or_overflow_are_refused),
        cmocka_unit_test(shapes_are_computed_while_it_is_read),
        cmocka_unit_test(channels_are_not_moved_to_and_fro),
        cmocka_unit_test(an_open_batch_is_rows),
        cmocka_unit_test(values_that_decide_shapes_are_asked_for),
        cmocka_unit_test(functions_are_expanded_but_not_forever),
        cmocka_unit_test(a_known_condition_chooses_its_branch),
        cmocka_unit_test(gelu_is_found_in_what_exporters_write),
        cmocka_unit_test(attention_is_found_in_what_exporters_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
