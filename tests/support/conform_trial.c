// conform_trial.c — see conform_trial.h.
#include "conform_trial.h"

#include "base/map.h"
#include "conform_compare.h"
#include "support.h"
#include "tensor/layout.h"

// ---- placing ------------------------------------------------------------------------------------

static uint64_t sum_up(const test_guard *guard) {
    return guard->data ? rn_hash(guard->data, guard->bytes, 0) : 0;
}

static bool is_weight(const conform_trial *t, uint32_t input) {
    return rn_graph_value(t->run->graph, t->node->inputs[input])->role == RN_ROLE_WEIGHT;
}

// Whether some output is this input, changed in place.
static bool is_updated(const conform_trial *t, uint32_t input) {
    for (uint32_t i = 0; i < t->node->output_count; i++) {
        bool in_place = t->aliases[i].kind == RN_ALIAS_KIND_MUST || i == t->in_place;
        if (in_place && t->aliases[i].input == input) return true;
    }
    return false;
}

// From the file's bytes, as a session does.
static void pack(const rn_tensor *plain, const rn_tensor *packed) {
    const rn_shape *shape = &plain->shape;
    rn_plain_components parts;
    rn_packer_room room;
    assert_true(rn_plain_components_of(plain->dtype, shape->dims[0],
                                       rn_tensor_elements(plain) / shape->dims[0], &parts));
    assert_ok(
        packed->layout->begin(&room, plain->dtype, shape->dims, shape->rank, NULL, packed->data));
    for (int part = 0; part < RN_COMPONENT_COUNT; part++)
        if (parts.bytes[part])
            assert_ok(packed->layout->take(&room, part, 0,
                                           (const uint8_t *)plain->data + parts.offset[part],
                                           parts.bytes[part]));
}

static void place_input(conform_trial *t, uint32_t i) {
    rn_tensor *tensor = &t->tensors[i];
    if (!rn_tensor_given(tensor)) return;
    rn_tensor plain = *tensor;
    plain.data = t->before[i].data;
    if (t->target->weight_layout && is_weight(t, i) && !is_updated(t, i))
        tensor->layout = t->target->weight_layout(&t->call, i);
    t->guards[i] = test_guard_make(rn_tensor_bytes(tensor));
    tensor->data = t->guards[i].data;
    if (tensor->layout == RN_LAYOUT_PLAIN)
        memcpy(tensor->data, plain.data, t->guards[i].bytes);
    else
        pack(&plain, tensor);
    t->sums[i] = sum_up(&t->guards[i]);
}

static void place_output(conform_trial *t, uint32_t i) {
    uint32_t at = t->node->input_count + i;
    rn_tensor *tensor = &t->tensors[at];
    if (i == t->unread) {
        tensor->data = NULL;
        return;
    }
    rn_alias alias = t->aliases[i];
    if (alias.kind == RN_ALIAS_KIND_MUST || alias.kind == RN_ALIAS_KIND_VIEW || i == t->in_place) {
        tensor->data = t->guards[alias.input].data + t->offsets[i];
        return;
    }
    t->guards[at] = test_guard_make(rn_tensor_bytes(tensor));
    tensor->data = t->guards[at].data;
}

static void open_trial(conform_trial *t) {
    t->node = rn_graph_node(t->run->graph, t->number);
    test_run_bind(t->run, t->number, t->tensors, &t->call);
    for (uint32_t i = 0; i < t->node->output_count; i++)
        t->aliases[i] = rn_call_alias(&t->call, i, &t->offsets[i]);
    for (uint32_t i = 0; i < t->node->input_count; i++)
        place_input(t, i);
    for (uint32_t i = 0; i < t->node->output_count; i++)
        place_output(t, i);
    t->call.workers = t->workers;
    t->call.threads = t->threads;
    t->call.slice_rows = t->slice_rows;
}

// As the planner asks: without data.
static uint64_t ask_workspace(const conform_trial *t) {
    const rn_kernel *kernel = &t->target->kernels[t->node->op];
    uint32_t count = t->node->input_count + t->node->output_count;
    rn_tensor bare[TEST_MAX_TENSORS];
    rn_call call = t->call;
    memcpy(bare, t->tensors, count * sizeof *bare);
    for (uint32_t i = 0; i < count; i++)
        bare[i].data = NULL;
    call.inputs = bare;
    call.outputs = bare + t->node->input_count;
    call.scalars = NULL;
    call.workers = NULL;
    return kernel->workspace ? kernel->workspace(&call) : 0;
}

static rn_status run_trial(conform_trial *t) {
    t->call.workspace_bytes = ask_workspace(t);
    t->workspace = test_guard_make(t->call.workspace_bytes);
    t->call.workspace = t->workspace.data;
    return t->target->kernels[t->node->op].run(&t->call);
}

void conform_trial_close(conform_trial *t) {
    for (uint32_t i = 0; i < TEST_MAX_TENSORS; i++)
        test_guard_free(&t->guards[i]);
    test_guard_free(&t->workspace);
}

// ---- what a trial must leave behind -------------------------------------------------------------

static bool complain(conform_why *why, const char *format, uint32_t which) {
    snprintf(why->text, sizeof why->text, format, which);
    return false;
}

static bool fences_stand(const conform_trial *t, conform_why *why) {
    for (uint32_t i = 0; i < t->node->input_count + t->node->output_count; i++)
        if (t->guards[i].data && !test_guard_intact(&t->guards[i]))
            return complain(why, "it writes around its tensor %u", i);
    return test_guard_intact(&t->workspace) || complain(why, "it writes around its workspace", 0);
}

static bool inputs_stand(const conform_trial *t, conform_why *why) {
    for (uint32_t i = 0; i < t->node->input_count; i++)
        if (!is_updated(t, i) && sum_up(&t->guards[i]) != t->sums[i])
            return complain(why, "it changes its input %u", i);
    return true;
}

// Whether this call has no such result: the reference has left it alone, as it may.
static bool is_nothing(const conform_trial *t, uint32_t output, const rn_tensor *must) {
    return (rn_op_get(t->node->op)->optional_outputs >> output & 1) &&
           test_guard_fresh(must->data, rn_tensor_bytes(must));
}

// The outputs against the tensors of `must` (inputs and outputs, as in a call).
static bool outputs_agree(const conform_trial *t, const rn_tensor *must, conform_fact near,
                          conform_why *why) {
    for (uint32_t i = 0; i < t->node->output_count; i++) {
        uint32_t at = t->node->input_count + i;
        conform_why what = {{0}};
        if (!t->tensors[at].data || !must[at].data || is_nothing(t, i, &must[at])) continue;
        if (conform_near(&must[at], t->tensors[at].data, near, &what)) continue;
        snprintf(why->text, sizeof why->text, "output %u: %.400s", i, what.text);
        return false;
    }
    return true;
}

bool conform_try(conform_trial *t, const rn_tensor *must, conform_fact near, conform_why *why) {
    open_trial(t);
    if (run_trial(t) != RN_OK) {
        snprintf(why->text, sizeof why->text, "it fails: %.400s", rn_last_error()->message);
        return false;
    }
    return fences_stand(t, why) && inputs_stand(t, why) && outputs_agree(t, must, near, why);
}

bool conform_refuses(conform_trial *t) {
    open_trial(t);
    return run_trial(t) == RN_UNSUPPORTED;
}

// ---- around it ----------------------------------------------------------------------------------

conform_trial conform_trial_make(const test_run *run, uint32_t number, const test_guard *before,
                                 const conform_target *target) {
    return (conform_trial){.run = run,
                           .target = target,
                           .number = number,
                           .before = before,
                           .threads = 1,
                           .in_place = CONFORM_NO_OUTPUT,
                           .unread = CONFORM_NO_OUTPUT};
}

void conform_snapshot(const test_run *run, uint32_t number, test_guard *out) {
    const rn_node *node = rn_graph_node(run->graph, number);
    for (uint32_t i = 0; i < TEST_MAX_TENSORS; i++)
        out[i] = (test_guard){0};
    for (uint32_t i = 0; i < node->input_count; i++) {
        const rn_tensor *tensor = &run->values[node->inputs[i]];
        if (!tensor->data) continue; // left out
        out[i] = test_guard_make(rn_tensor_bytes(tensor));
        memcpy(out[i].data, tensor->data, out[i].bytes);
    }
}

void conform_snapshot_free(test_guard *snapshot) {
    for (uint32_t i = 0; i < TEST_MAX_TENSORS; i++)
        test_guard_free(&snapshot[i]);
}

bool conform_is_view(const test_run *run, uint32_t number) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    uint64_t offset = 0;
    test_run_bind(run, number, tensors, &call);
    return rn_call_alias(&call, 0, &offset).kind == RN_ALIAS_KIND_VIEW;
}
