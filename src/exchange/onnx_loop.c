// onnx_loop.c — Loop and Scan whose number of steps is known while a model is opened: the body's
// nodes are written once a step.
//
//     state ──▶ body ──▶ body ──▶ body ──▶ state       each step's other results, stacked
//
// A Loop goes on as long as its limit and its condition say; both must follow from constants or
// from inputs that are given. A Scan has as many steps as its inputs have slices.
#include "exchange/onnx_importer.h"

#include "base/checked.h"

enum { MOST_STEPS = 4096, MOST_SLOTS = 64 };

typedef struct loop {
    rn_import_call *call;
    const rn_onnx_graph_proto *body;
    uint32_t first;                 // of the body's inputs and outputs, the states'
    uint32_t states, stacked;       // how many
    rn_import_slot in[MOST_SLOTS];  // of the body: state behind `first`
    rn_import_slot out[MOST_SLOTS]; // so; then what is stacked
    rn_value *rows[MOST_SLOTS];     // (room): of the steps so far
    uint64_t steps, room;
} loop;

// `before`: inputs of the body in front of its states, `behind` those behind them.
static bool open_loop(rn_import_call *c, uint32_t first_state, uint32_t before, uint32_t behind,
                      uint32_t outputs_before, loop *l) {
    const rn_onnx_attribute *body = rn_import_attribute(c, "body");
    uint32_t inputs = (uint32_t)rn_min_u64(c->node->input_count, MOST_SLOTS);
    *l = (loop){.call = c, .first = before};
    if (!body || !body->graph || inputs < first_state + behind || inputs > MOST_SLOTS - 2) {
        rn_import_refuse(c, "its body is missing, or has too many inputs");
        return false;
    }
    l->body = body->graph;
    l->states = inputs - first_state - behind;
    uint64_t results = l->body->output_count, least = outputs_before + l->states;
    if (l->body->input_count != before + l->states + behind || results < least ||
        results > MOST_SLOTS) {
        rn_import_refuse(c, "its body has %zu inputs and %zu results", l->body->input_count,
                         l->body->output_count);
        return false;
    }
    l->stacked = (uint32_t)(results - least);
    for (uint32_t i = 0; i < l->states; i++) {
        rn_import_slot *slot = rn_import_slot_of(c, first_state + i);
        bool last = false;
        if (!slot) {
            rn_import_refuse(c, "state %u is missing", i);
            return false;
        }
        // An initializer becomes a value here, so that no step makes it anew.
        if (!rn_import_is_empty(c, first_state + i)) (void)rn_import_any(c, first_state + i, &last);
        l->in[before + i] = *slot;
    }
    return true;
}

static bool is_good(const loop *l) {
    return rn_graph_finish(l->call->graph) == RN_OK;
}

static bool make_room(loop *l) {
    if (l->steps < l->room) return true;
    uint64_t room = l->room ? 2 * l->room : 16;
    for (uint32_t i = 0; i < l->stacked; i++) {
        void *rows = NULL;
        rn_status s = rn_arena_array(&l->call->import->memory, room, sizeof *l->rows[i], &rows);
        if (s != RN_OK) rn_graph_spoil(l->call->graph, s);
        if (s != RN_OK) return false;
        if (l->steps) memcpy(rows, l->rows[i], l->steps * sizeof *l->rows[i]);
        l->rows[i] = rows;
    }
    l->room = room;
    return true;
}

// One step; what comes out as state goes in next time. `results_before`: of the body's results, in
// front of its states.
static bool step(loop *l, uint32_t results_before) {
    if (l->steps == MOST_STEPS) rn_import_refuse(l->call, "it has more than %d steps", MOST_STEPS);
    if (!is_good(l) || !rn_import_spend(l->call, l->body->input_count + l->stacked + 1) ||
        !make_room(l))
        return false;
    rn_import_call_graph(l->call, l->body, l->in, l->body->input_count, l->out,
                         l->body->output_count);
    if (!is_good(l)) return false;
    for (uint32_t i = 0; i < l->states; i++)
        l->in[l->first + i] = l->out[results_before + i];
    for (uint32_t i = 0; i < l->stacked; i++)
        l->rows[i][l->steps] =
            rn_import_slot_value(l->call, &l->out[results_before + l->states + i]);
    l->steps++;
    return is_good(l);
}

static void reverse(rn_value *rows, uint64_t count) {
    for (uint64_t i = 0; i < count / 2; i++) {
        rn_value kept = rows[i];
        rows[i] = rows[count - 1 - i];
        rows[count - 1 - i] = kept;
    }
}

// A result of every step along a new axis.
static rn_value stack(loop *l, uint32_t index, int64_t axis) {
    rn_import *m = l->call->import;
    if (l->steps == 0) {
        rn_import_refuse(l->call, "without a step, result %u has no shape", index);
        return RN_NO_VALUE;
    }
    rn_shape s = rn_import_shape_of(m, l->rows[index][0]), to = {.rank = s.rank + 1};
    if (s.rank == RN_MAX_RANK) {
        rn_import_refuse(l->call, "result %u would have %u axes", index, s.rank + 1);
        return RN_NO_VALUE;
    }
    uint32_t at = rn_import_axis(l->call, axis, to.rank);
    for (uint32_t i = 0; i < to.rank; i++)
        to.dims[i] = i == at ? 1 : s.dims[i < at ? i : i - 1];
    for (uint64_t i = 0; i < l->steps; i++)
        l->rows[index][i] = rn_import_reshape(m, l->rows[index][i], to);
    if (l->steps == 1 || !is_good(l)) return l->rows[index][0];
    return rn_op_concat(l->call->graph, l->rows[index], (uint32_t)l->steps, at);
}

static void hand_out_states(loop *l) {
    for (uint32_t i = 0; i < l->states && is_good(l); i++)
        rn_import_out_slot(l->call, i, &l->in[l->first + i]);
}

// ---- Loop ---------------------------------------------------------------------------------------

// The body's first result: whether there is another step.
static bool goes_on(loop *l) {
    rn_status s = RN_OK;
    rn_value value = rn_import_slot_value(l->call, &l->out[0]);
    if (!is_good(l)) return false;
    const void *data = rn_import_evaluate(l->call->import, value, true, &s);
    if (s != RN_OK) rn_graph_spoil(l->call->graph, s);
    if (!data && is_good(l))
        rn_import_refuse(l->call, "whether it goes on is computed in every step");
    return data && *(const uint8_t *)data != 0;
}

static void loop_known(rn_import_call *c) {
    enum { LIMIT, CONDITION, STATES, BEFORE = 2 };
    loop l;
    if (!open_loop(c, STATES, BEFORE, 0, 1, &l)) return;
    bool limited = rn_import_has(c, LIMIT);
    double limit = rn_import_number(c, LIMIT, 0);
    bool more = rn_import_number(c, CONDITION, 1) != 0;
    while (is_good(&l) && more && (!limited || (double)l.steps < limit)) {
        int64_t number = (int64_t)l.steps;
        uint8_t yes = 1;
        l.in[0] = (rn_import_slot){
            .value = rn_import_constant(c->import, RN_DTYPE_I64, RN_SCALAR, &number)};
        l.in[1] = (rn_import_slot){
            .value = rn_import_constant(c->import, RN_DTYPE_BOOL, RN_SCALAR, &yes)};
        if (!step(&l, 1)) return;
        more = goes_on(&l);
    }
    hand_out_states(&l);
    for (uint32_t i = 0; i < l.stacked && is_good(&l); i++)
        if (rn_import_wants(c, l.states + i)) rn_import_out(c, l.states + i, stack(&l, i, 0));
}

// ---- Scan ---------------------------------------------------------------------------------------

static int64_t item(rn_import_call *c, const char *name, uint32_t index) {
    const int64_t *items = NULL;
    size_t count = rn_import_int_list(c, name, &items);
    return index < count ? items[index] : 0;
}

// Slice `at` of an input along its axis, without it.
static rn_value take_slice(rn_import_call *c, uint32_t input, uint32_t axis, uint64_t at) {
    rn_value x = rn_import_in(c, input);
    rn_shape s = rn_import_shape_of(c->import, x), to = {.rank = s.rank - 1};
    if (!x) return x;
    for (uint32_t i = 0; i < to.rank; i++)
        to.dims[i] = s.dims[i < axis ? i : i + 1];
    return rn_import_reshape(c->import, rn_op_slice(c->graph, x, axis, at, 1), to);
}

// How many slices all scanned inputs have; 0: it failed.
static uint64_t count_slices(const loop *l, uint32_t scanned, uint32_t *axes) {
    rn_import_call *c = l->call;
    uint64_t count = 0;
    for (uint32_t i = 0; i < scanned; i++) {
        rn_shape s = rn_import_shape(c, l->states + i);
        axes[i] = rn_import_axis(c, item(c, "scan_input_axes", i), s.rank);
        if (!is_good(l)) return 0;
        uint64_t length = s.dims[axes[i]];
        if (length == RN_ROWS || length == 0 || (i && length != count)) {
            rn_import_refuse(c, "its inputs have no common number of slices");
            return 0;
        }
        count = length;
    }
    return count;
}

static void scan(rn_import_call *c) {
    uint32_t axes[MOST_SLOTS];
    int64_t scanned = rn_import_int(c, "num_scan_inputs", 0);
    loop l;
    if (c->version < 9 || scanned < 1 || scanned > MOST_SLOTS) {
        rn_import_refuse(c, "%lld inputs to scan, of opset %lld", (long long)scanned,
                         (long long)c->version);
        return;
    }
    if (!open_loop(c, 0, 0, (uint32_t)scanned, 0, &l)) return;
    uint64_t count = count_slices(&l, (uint32_t)scanned, axes);
    while (is_good(&l) && l.steps < count) {
        for (uint32_t i = 0; i < (uint32_t)scanned; i++) {
            bool backwards = item(c, "scan_input_directions", i) != 0;
            uint64_t at = backwards ? count - 1 - l.steps : l.steps;
            l.in[l.states + i] =
                (rn_import_slot){.value = take_slice(c, l.states + i, axes[i], at)};
        }
        if (!step(&l, 0)) return;
    }
    hand_out_states(&l);
    for (uint32_t i = 0; i < l.stacked && is_good(&l); i++) {
        if (item(c, "scan_output_directions", i) != 0) reverse(l.rows[i], l.steps);
        if (rn_import_wants(c, l.states + i))
            rn_import_out(c, l.states + i, stack(&l, i, item(c, "scan_output_axes", i)));
    }
}

const rn_import_op rn_onnx_loop_ops[] = {
    {"Loop", loop_known, 0},
    {"Scan", scan, 0},
    {NULL, NULL, 0},
};
