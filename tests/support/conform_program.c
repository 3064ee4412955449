// conform_program.c — a row's graph as StableHLO, compiled by XLA, against the reference loops.
#include "conform_program.h"

#include "base/buffer.h"
#include "conform_compare.h"
#include "device/executable.h"
#include "exchange/stablehlo.h"
#include "support.h"
#include "xla_program.h"

#include <math.h>

enum { MOST = 64 };

// A program never rounds what is multiplied with a quantised weight; so must the reference not.
static void keep_activations(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++) {
        const rn_node *node = rn_graph_node(graph, n);
        void *attrs = (void *)(uintptr_t)node->attrs;
        if (node->op == RN_OP_MATMUL)
            ((rn_matmul_attrs *)attrs)->unquantised_activations = true;
        else if (node->op == RN_OP_EXPERT_PRODUCT)
            ((rn_expert_product_attrs *)attrs)->unquantised_activations = true;
        else if (node->op == RN_OP_HEAD_PRODUCT)
            ((rn_head_product_attrs *)attrs)->unquantised_activations = true;
        else if (rn_op_is(node->op, RN_TRAIT_PRODUCT) && rn_op_get(node->op)->unfold)
            ((rn_project_attrs *)attrs)->unquantised_activations = true;
    }
}

// A row's graph with its results as outputs.
static void open_case(conform_case *c, const conform_row *row) {
    *c = (conform_case){.row = row};
    assert_ok(rn_graph_create(&c->graph));
    row->build(c);
    for (uint32_t i = 0; i < c->output_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", i);
        rn_graph_output(c->graph, c->outputs[i], name);
    }
    assert_ok(rn_graph_finish(c->graph));
    keep_activations(c->graph);
}

typedef struct program {
    rn_arena memory;
    rn_buffer text;
    rn_stablehlo_signature signature;
    void *arguments[MOST], *results[MOST];
} program;

static void fill_arguments(program *p, const test_run *run) {
    assert_true(p->signature.argument_count <= MOST && p->signature.result_count <= MOST);
    for (uint32_t i = 0; i < p->signature.argument_count; i++) {
        const rn_stablehlo_entry *entry = &p->signature.arguments[i];
        assert_ok(rn_arena_alloc(&p->memory, entry->bytes, &p->arguments[i]));
        if (entry->kind == RN_STABLEHLO_SCALAR)
            memcpy(p->arguments[i], &run->scalars[entry->value].f64, sizeof(double));
        else
            assert_ok(rn_stablehlo_convert(run->graph, entry, test_run_data(run, entry->value),
                                           p->arguments[i]));
    }
    for (uint32_t i = 0; i < p->signature.result_count; i++)
        assert_ok(rn_arena_alloc(&p->memory, p->signature.results[i].bytes, &p->results[i]));
}

// How near XLA comes: its own exp, tanh and sums, and operations that it makes one of.
static conform_fact find_fact(const conform_row *row) {
    conform_fact near = conform_facts[row->op];
    if (near.tolerance < 1e-5f) near.tolerance = 1e-5f;
    near.absolute += 1e-6f;
    return near;
}

// As conform_near, but that infinities and NaN must be where they are.
static bool floats_agree(const rn_tensor *must, const void *is, conform_fact near,
                         conform_why *why) {
    uint64_t n = rn_tensor_elements(must), finite = 0,
             size = rn_dtype_get(must->dtype)->block_bytes;
    double *wide = calloc(2 * n + 1, sizeof *wide), mean = 0;
    bool good = true;
    for (uint64_t i = 0; i < 2 * n; i++) {
        const void *from = (const char *)(i < n ? must->data : is) + i % n * size;
        float narrow = 0;
        if (must->dtype == RN_DTYPE_F64)
            memcpy(&wide[i], from, sizeof *wide);
        else
            assert_ok(rn_dtype_to_f32(must->dtype, from, &narrow, 1));
        if (must->dtype != RN_DTYPE_F64) wide[i] = (double)narrow;
        if (i >= n || !isfinite(wide[i])) continue;
        mean += fabs(wide[i]);
        finite++;
    }
    for (uint64_t i = 0; good && i < n; i++) {
        double w = wide[i], y = wide[n + i],
               size_of = fabs(w) + mean / (double)(finite ? finite : 1);
        good = y == w || (isnan(y) && isnan(w)) ||
               fabs(y - w) <= (double)near.tolerance * size_of + (double)near.absolute;
        if (!good)
            snprintf(why->text, sizeof why->text, "element %llu of %llu is %.9g, not %.9g",
                     (unsigned long long)i, (unsigned long long)n, y, w);
    }
    free(wide);
    return good;
}

static bool results_agree(const program *p, const test_run *run, conform_fact near,
                          conform_why *why) {
    for (uint32_t i = 0; i < p->signature.result_count; i++) {
        const rn_stablehlo_entry *entry = &p->signature.results[i];
        conform_why what = {{0}};
        const rn_tensor *must = &run->values[entry->value];
        bool real = rn_dtype_get(must->dtype)->is_float;
        if ((real ? floats_agree : conform_near)(must, p->results[i], near, &what)) continue;
        snprintf(why->text, sizeof why->text, "%s: %.400s",
                 rn_graph_value(run->graph, entry->value)->name, what.text);
        return false;
    }
    return true;
}

bool conform_graph(test_run *run, conform_fact near, bool *out_refused, conform_why *why) {
    const char *complaint = NULL;
    bool good;
    program p = {0};
    rn_arena_init(&p.memory, &rn_system_allocator, 0);
    rn_buffer_init(&p.text, &rn_system_allocator, SIZE_MAX);
    rn_stablehlo_options options = {.rows = run->rows};
    rn_status s = rn_stablehlo_emit(run->graph, &options, rn_buffer_sink(&p.text));
    *out_refused = s == RN_UNSUPPORTED;
    if (s == RN_OK) {
        assert_ok(rn_stablehlo_signature_make(run->graph, &options, &p.memory, &p.signature));
        fill_arguments(&p, run);
        complaint =
            xla_run((rn_str){p.text.data, p.text.bytes}, &p.signature, p.arguments, p.results);
        test_run_all(run);
        good = !complaint && results_agree(&p, run, near, why);
    } else {
        complaint = rn_last_error()->message;
        good = *out_refused;
    }
    if (complaint) snprintf(why->text, sizeof why->text, "%.500s", complaint);
    rn_buffer_free(&p.text);
    rn_arena_free_all(&p.memory);
    return good;
}

bool conform_program(const conform_row *row, bool *out_refused, conform_why *why) {
    conform_case c;
    test_run run;
    open_case(&c, row);
    conform_run_open(&c, row->rows, &run);
    bool good = conform_graph(&run, find_fact(row), out_refused, why);
    test_run_close(&run);
    conform_close(&c);
    return good;
}

// ---- by a device --------------------------------------------------------------------------------

static rn_status put_arguments(rn_executable *e, const program *p, const test_run *run,
                               rn_argument *inputs, uint32_t *out_count) {
    *out_count = 0;
    for (uint32_t i = 0; i < p->signature.argument_count; i++) {
        const rn_stablehlo_entry *entry = &p->signature.arguments[i];
        if (entry->kind == RN_STABLEHLO_SCALAR || entry->kind == RN_STABLEHLO_CONSTANT) continue;
        void *data = test_run_data(run, entry->value);
        uint64_t bytes = rn_executable_value_bytes(run->graph, entry->value, run->rows);
        if (entry->kind == RN_STABLEHLO_INPUT)
            inputs[(*out_count)++] = (rn_argument){entry->value, data, bytes};
        else
            RN_TRY(e->put(e, entry->value, data, bytes));
    }
    return RN_OK;
}

static rn_status run_executable(rn_executable *e, program *p, const test_run *run) {
    rn_argument inputs[MOST], outputs[MOST];
    rn_execution execution = {
        .rows = run->rows, .inputs = inputs, .outputs = outputs, .scalars = run->scalars};
    assert_true(p->signature.argument_count <= MOST && p->signature.result_count <= MOST);
    RN_TRY(put_arguments(e, p, run, inputs, &execution.input_count));
    for (uint32_t i = 0; i < p->signature.result_count; i++) {
        const rn_stablehlo_entry *entry = &p->signature.results[i];
        assert_ok(rn_arena_alloc(&p->memory, entry->bytes, &p->results[i]));
        if (entry->kind == RN_STABLEHLO_OUTPUT)
            outputs[execution.output_count++] =
                (rn_argument){entry->value, p->results[i], entry->bytes};
    }
    RN_TRY(e->run(e, &execution));
    for (uint32_t i = 0; i < p->signature.result_count; i++)
        if (p->signature.results[i].kind == RN_STABLEHLO_STATE)
            RN_TRY(e->get(e, p->signature.results[i].value, p->results[i],
                          p->signature.results[i].bytes));
    return RN_OK;
}

bool conform_executable(const conform_row *row, rn_device *device, bool *out_refused,
                        conform_why *why) {
    conform_case c;
    test_run run;
    program p = {0};
    rn_executable *e = NULL;
    open_case(&c, row);
    conform_run_open(&c, row->rows, &run);
    rn_arena_init(&p.memory, &rn_system_allocator, 0);
    rn_stablehlo_options options = {.rows = run.rows};
    rn_compile_request request = {
        .graph = run.graph, .buckets = &run.rows, .bucket_count = 1, .budget_bytes = UINT64_MAX};
    rn_status s = rn_stablehlo_signature_make(run.graph, &options, &p.memory, &p.signature);
    if (s == RN_OK) s = device->compile(device, &request, &e);
    *out_refused = s == RN_UNSUPPORTED;
    if (s == RN_OK) s = run_executable(e, &p, &run);
    bool good = *out_refused;
    if (s == RN_OK) {
        test_run_all(&run);
        good = results_agree(&p, &run, find_fact(row), why);
    } else {
        snprintf(why->text, sizeof why->text, "%.500s", rn_last_error()->message);
    }
    if (e) e->destroy(e);
    rn_arena_free_all(&p.memory);
    test_run_close(&run);
    conform_close(&c);
    return good;
}
