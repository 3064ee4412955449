// golden_session.c — runs a recipe by a plan, at some budget.
//
// A plan may take fewer rows at once than a test brings: then the rows go through in pieces, and
// outputs that have rows are gathered here.
#include "golden.h"

#include <ration/device.h>

enum { MOST = 8 }; // inputs or outputs with rows

typedef struct strip {
    const char *name;
    const uint8_t *in;
    uint8_t *out;
    uint64_t row_bytes;
} strip;

typedef struct session_run {
    rn_plan *plan;
    rn_session *session;
    uint64_t rows;
    strip inputs[MOST], outputs[MOST];
    size_t input_count, output_count;
} session_run;

// ---- life ---------------------------------------------------------------------------------------

static rn_status make_plan(const golden_runner *self, const rn_recipe *recipe, rn_plan **out) {
    rn_plan_options options = {.exact = self->exact, .allow_lossy = !self->exact};
    rn_plan *roomy = NULL;
    RN_TRY(rn_plan_make(recipe, rn_cpu_caps(), &options, &roomy));
    const rn_plan_summary *s = rn_plan_get_summary(roomy);
    double spare = (double)(s->planned_bytes - s->smallest_bytes);
    options.budget_bytes = s->planned_bytes - (uint64_t)(self->tightness * spare);
    rn_plan_destroy(roomy);
    return rn_plan_make(recipe, rn_cpu_caps(), &options, out);
}

static bool has_rows(rn_shape shape) {
    return shape.rank && shape.dims[0] == RN_ROWS;
}

// Room for the outputs that have rows.
static void list_outputs(session_run *r) {
    const rn_graph *graph = rn_plan_graph(r->plan);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_OUTPUT || !has_rows(info->shape)) continue;
        assert_true(r->output_count < MOST);
        strip *o = &r->outputs[r->output_count++];
        o->name = info->name;
        o->row_bytes = rn_shape_elements(info->shape, 1) * sizeof(float);
        o->out = malloc(r->rows * o->row_bytes);
        assert_non_null(o->out);
    }
}

static rn_status begin(const golden_runner *self, const rn_recipe *recipe,
                       const rn_weight_source *weights, uint64_t rows, void **out) {
    session_run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    *out = r;
    r->rows = rows;
    RN_TRY(make_plan(self, recipe, &r->plan));
    // `exact` cuts a batch into single samples, whatever the budget; else only a tight one does.
    if (!self->exact) assert_true(rn_plan_get_summary(r->plan)->micro_batches > 1);
    list_outputs(r);
    rn_session_options options = {.audit = true};
    return rn_session_create(r->plan, weights, &options, &r->session);
}

static void end(void *run) {
    session_run *r = run;
    for (size_t i = 0; i < r->output_count; i++)
        free(r->outputs[i].out);
    rn_session_destroy(r->session);
    rn_plan_destroy(r->plan);
    free(r);
}

// ---- running ------------------------------------------------------------------------------------

static rn_status set(void *run, const char *name, const void *data, uint64_t bytes) {
    session_run *r = run;
    const rn_graph *graph = rn_plan_graph(r->plan);
    rn_value value = rn_graph_find(graph, RN_ROLE_INPUT, name);
    if (value == RN_NO_VALUE || !has_rows(rn_graph_value(graph, value)->shape))
        return rn_session_set(r->session, name, data, bytes);
    size_t i = 0;
    while (i < r->input_count && strcmp(r->inputs[i].name, name) != 0)
        i++;
    assert_true(i < MOST);
    r->inputs[i] = (strip){.name = name, .in = data, .row_bytes = bytes / r->rows};
    if (i == r->input_count) r->input_count++;
    return RN_OK;
}

static rn_status run_rows(session_run *r, uint64_t first, uint64_t count) {
    for (size_t i = 0; i < r->input_count; i++) {
        const strip *s = &r->inputs[i];
        RN_TRY(rn_session_set(r->session, s->name, s->in + first * s->row_bytes,
                              count * s->row_bytes));
    }
    RN_TRY(rn_session_run(r->session, count));
    for (size_t i = 0; i < r->output_count; i++) {
        const strip *s = &r->outputs[i];
        RN_TRY(rn_session_get(r->session, s->name, s->out + first * s->row_bytes,
                              count * s->row_bytes));
    }
    return RN_OK;
}

static rn_status execute(void *run) {
    session_run *r = run;
    uint64_t most = rn_plan_get_summary(r->plan)->rows;
    if (r->rows == 0) return rn_session_run(r->session, 0);
    for (uint64_t first = 0; first < r->rows; first += most)
        RN_TRY(run_rows(r, first, r->rows - first < most ? r->rows - first : most));
    return RN_OK;
}

static rn_status set_scalar(void *run, const char *name, double value) {
    return rn_session_set_scalar(((session_run *)run)->session, name, value);
}

static rn_status put(void *run, const char *name, const void *data, uint64_t bytes) {
    return rn_session_put(((session_run *)run)->session, name, data, bytes);
}

static rn_status get(void *run, const char *name, void *data, uint64_t bytes) {
    session_run *r = run;
    for (size_t i = 0; i < r->output_count; i++)
        if (strcmp(r->outputs[i].name, name) == 0) {
            assert_int_equal(bytes, r->rows * r->outputs[i].row_bytes);
            memcpy(data, r->outputs[i].out, bytes);
            return RN_OK;
        }
    return rn_session_get(r->session, name, data, bytes);
}

static uint32_t cut(const void *run) {
    return rn_plan_get_summary(((const session_run *)run)->plan)->micro_batches;
}

#define FUNCTIONS                                                                                  \
    .begin = begin, .set = set, .set_scalar = set_scalar, .put = put, .run = execute, .get = get,  \
    .cut = cut, .end = end

const golden_runner golden_roomy = {.name = "roomy", .exact = true, FUNCTIONS};
const golden_runner golden_tight = {.name = "tight", .exact = true, .tightness = 1, FUNCTIONS};
const golden_runner golden_cut = {.name = "cut", .tightness = 1, FUNCTIONS};
