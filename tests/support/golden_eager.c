// golden_eager.c — runs a recipe node by node, as the baseline for plans.
#include "golden.h"

#include "backend/cpu/cpu.h"
#include "runtime/eager.h"

typedef struct eager_run {
    rn_graph *graph;
    rn_eager *eager;
} eager_run;

// The value of that name, whichever role it has.
static rn_value find(const eager_run *r, const char *name) {
    static const rn_role roles[] = {RN_ROLE_OUTPUT, RN_ROLE_INPUT, RN_ROLE_WEIGHT, RN_ROLE_STATE};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        rn_value value = rn_graph_find(r->graph, roles[i], name);
        if (value != RN_NO_VALUE) return value;
    }
    fail_msg("the graph has no '%s'", name);
    return RN_NO_VALUE;
}

static rn_status set(void *run, const char *name, const void *data, uint64_t bytes) {
    eager_run *r = run;
    return rn_eager_set(r->eager, find(r, name), data, bytes);
}

static rn_status set_weights(eager_run *r, const rn_weight_source *weights) {
    for (rn_value v = 1; v <= rn_graph_value_count(r->graph); v++) {
        const rn_value_info *info = rn_graph_value(r->graph, v);
        uint64_t bytes = 0;
        if (info->role != RN_ROLE_WEIGHT) continue;
        assert_true(rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 1), &bytes));
        uint64_t rows = info->tensor ? info->shape.dims[0] : 1;
        uint64_t whole = bytes / rows * (info->tensor ? info->tensor_rows : 1);
        const char *data = weights->find(weights->self, rn_weight_tensor(info), info->dtype, whole);
        if (!data) return rn_fail(RN_NOT_FOUND, "no weight '%s'", info->name);
        data += bytes / rows * info->first_row;
        RN_TRY(rn_eager_set(r->eager, v, data, bytes));
    }
    return RN_OK;
}

static rn_status begin(const golden_runner *self, const rn_recipe *recipe,
                       const rn_weight_source *weights, uint64_t rows, void **out) {
    (void)self;
    eager_run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    *out = r;
    RN_TRY(recipe->build(recipe->self, &(rn_recipe_options){0}, &r->graph));
    RN_TRY(rn_eager_create(r->graph, rn_cpu_kernels, NULL, rows, &r->eager));
    return set_weights(r, weights);
}

static rn_status set_scalar(void *run, const char *name, double value) {
    const eager_run *r = run;
    for (uint32_t i = 0; i < rn_graph_scalar_count(r->graph); i++)
        if (strcmp(rn_graph_scalar_name(r->graph, i), name) == 0) {
            rn_eager_set_scalar(r->eager, i, (rn_scalar){.f64 = value});
            return RN_OK;
        }
    return rn_fail(RN_NOT_FOUND, "no scalar '%s'", name);
}

static rn_status execute(void *run) {
    return rn_eager_run(((eager_run *)run)->eager);
}

static rn_status get(void *run, const char *name, void *data, uint64_t bytes) {
    const eager_run *r = run;
    return rn_eager_get(r->eager, find(r, name), data, bytes);
}

static uint32_t cut(const void *run) {
    (void)run;
    return 1;
}

static void end(void *run) {
    eager_run *r = run;
    rn_eager_destroy(r->eager);
    rn_graph_destroy(r->graph);
    free(r);
}

const golden_runner golden_eager = {.name = "eager",
                                    .begin = begin,
                                    .set = set,
                                    .set_scalar = set_scalar,
                                    .put = set,
                                    .run = execute,
                                    .get = get,
                                    .cut = cut,
                                    .end = end};
