// executable.c — a graph as a session of ONNX Runtime, for any number of rows.
//
//     inputs ─▶ ┌─────────┐ ─▶ outputs      bound anew for every run: the caller's memory
//     weights ─▶│ session │                 bound once: blocks of ours
//     states ◀─▶└─────────┘                 a state's input and output are one block
//
// Weights are initializers of the model whose memory is ours. ONNX Runtime computes from them when
// the session is made (products keep them packed, what follows from weights alone is folded), which
// is copies that the plan has; so the session is made when the last weight is there. A frugal one
// has weights as inputs: they are there once, and nothing is made of them.
#include "backend/ort/ort.h"

#include "base/arena.h"
#include "base/checked.h"
#include "exchange/onnx_export.h"
#include "memory/account.h"
#include "memory/stage.h"

#include <ration/log.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct rn_ort_port {
    const char *name;
    void *block;   // of weights, constants, states
    void *value;   // ONNX Runtime's, over it
    bool is_there; // a weight that was put
} rn_ort_port;

typedef struct ort_executable {
    rn_executable base;
    rn_ort_device *device;
    const rn_ort_api *api;
    const rn_graph *graph;
    rn_arena memory; // all tables
    rn_stablehlo_signature signature;
    rn_ort_port *arguments, *results; // as the signature has them
    void *session, *binding, *run_options;
    bool frugal;            // weights are inputs
    uint32_t level;         // of optimisation
    uint32_t weights_left;  // that were not put yet
    uint64_t allowed_bytes; // of its own allocations
} ort_executable;

static ort_executable *cast(rn_executable *executable) {
    return (ort_executable *)((char *)executable - offsetof(ort_executable, base));
}

static void drop_value(ort_executable *e, rn_ort_port *port) {
    if (port->value) e->api->release_value(port->value);
    port->value = NULL;
}

// ---- tensors ------------------------------------------------------------------------------------

// A value over memory of ours; RN_ROWS of the graph's shape is `rows`.
static rn_status wrap(ort_executable *e, const rn_stablehlo_entry *entry, uint64_t rows, void *data,
                      uint64_t bytes, void **out) {
    int64_t dims[RN_MAX_RANK];
    rn_shape shape = entry->kind == RN_STABLEHLO_SCALAR
                         ? RN_SCALAR
                         : rn_graph_value(e->graph, entry->value)->shape;
    for (uint32_t i = 0; i < shape.rank; i++)
        dims[i] = (int64_t)(shape.dims[i] == RN_ROWS ? rows : shape.dims[i]);
    *out = NULL;
    return rn_ort_check(e->api->create_tensor(rn_ort_cpu_memory(), data, bytes, dims, shape.rank,
                                              rn_onnx_data_type(entry->dtype), out),
                        "making a tensor");
}

static rn_status bind(ort_executable *e, const rn_ort_port *port, bool output) {
    rn_ort_status *status = output ? e->api->bind_output(e->binding, port->name, port->value)
                                   : e->api->bind_input(e->binding, port->name, port->value);
    return rn_ort_check(status, "binding a tensor");
}

// Charged to nobody here: a session is charged with purpose_bytes.
static rn_status make_block(ort_executable *e, uint32_t index) {
    const rn_stablehlo_entry *entry = &e->signature.arguments[index];
    rn_ort_port *port = &e->arguments[index];
    RN_TRY(
        rn_alloc_zeroed(&rn_system_allocator, rn_round_up(entry->bytes + 1, 64), 1, &port->block));
    if (entry->kind == RN_STABLEHLO_CONSTANT)
        RN_TRY(rn_stablehlo_convert(e->graph, entry,
                                    rn_graph_value(e->graph, entry->value)->constant, port->block));
    e->weights_left += entry->kind == RN_STABLEHLO_WEIGHT;
    return wrap(e, entry, 0, port->block, entry->bytes, &port->value);
}

// What stays from run to run.
static rn_status bind_block(ort_executable *e, uint32_t index) {
    const rn_stablehlo_entry *entry = &e->signature.arguments[index];
    const rn_ort_port *port = &e->arguments[index];
    RN_TRY(bind(e, port, false));
    if (entry->alias == RN_STABLEHLO_NONE) return RN_OK;
    rn_ort_port next = {.name = e->results[entry->alias].name, .value = port->value};
    return bind(e, &next, true);
}

static bool is_initializer(const ort_executable *e, uint32_t index) {
    rn_stablehlo_kind kind = e->signature.arguments[index].kind;
    return !e->frugal && (kind == RN_STABLEHLO_WEIGHT || kind == RN_STABLEHLO_CONSTANT);
}

// ---- the session --------------------------------------------------------------------------------

// Where an allocation was refused, that is the error, whatever else there is.
static rn_status explain(const ort_executable *e, const rn_ort_run *run, rn_status s) {
    if (run->refused_bytes == 0) return s;
    return rn_hint(
        rn_fail(RN_OVER_BUDGET, "ONNX Runtime asks for %s beyond the %s that were planned for it",
                rn_size_format(run->refused_bytes).text, rn_size_format(e->allowed_bytes).text),
        "fewer rows a run (seq=N of the target), or another device");
}

static rn_status set_options(const ort_executable *e, void *options) {
    const rn_ort_api *api = e->api;
    static const int levels[] = {0, 1, 2, 99};
    enum { ERRORS_OFF = 4 };
    RN_ORT_TRY(api->disable_patterns(options), "setting options");
    RN_ORT_TRY(api->disable_arena(options), "setting options");
    RN_ORT_TRY(api->set_log_level(options, ERRORS_OFF), "setting options");
    RN_ORT_TRY(api->set_optimisation(options, levels[e->level]), "setting options");
    RN_ORT_TRY(api->set_threads(options, (int)e->device->base.caps.threads), "setting options");
    RN_ORT_TRY(api->set_outer_threads(options, 1), "setting options");
    RN_ORT_TRY(api->add_config(options, "session.use_env_allocators", "1"), "setting options");
    return rn_ort_check(api->add_config(options, "session.intra_op.allow_spinning", "0"),
                        "setting options");
}

// Weights by name and value; their bytes are read by the session as long as it lives.
static rn_status add_initializers(ort_executable *e, void *options) {
    const rn_stablehlo_signature *s = &e->signature;
    const char **names; // (arguments)
    const void **values;
    rn_arena scratch;
    size_t count = 0;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status status =
        rn_arena_array(&scratch, s->argument_count + 1u, sizeof *names, (void **)&names);
    if (status == RN_OK)
        status = rn_arena_array(&scratch, s->argument_count + 1u, sizeof *values, (void **)&values);
    for (uint32_t i = 0; status == RN_OK && i < s->argument_count; i++)
        if (is_initializer(e, i)) {
            names[count] = e->arguments[i].name;
            values[count++] = e->arguments[i].value;
        }
    if (status == RN_OK && count)
        status =
            rn_ort_check(e->api->add_initializers(options, names, values, count), "adding weights");
    rn_arena_free_all(&scratch);
    return status;
}

static void drop_session(ort_executable *e) {
    if (e->binding) e->api->release_binding(e->binding);
    if (e->run_options) e->api->release_run_options(e->run_options);
    if (e->session) e->api->release_session(e->session);
    e->binding = e->run_options = e->session = NULL;
}

static rn_status bind_blocks(ort_executable *e) {
    RN_ORT_TRY(e->api->create_run_options(&e->run_options), "making a session");
    RN_ORT_TRY(e->api->create_binding(e->session, &e->binding), "making a session");
    for (uint32_t i = 0; i < e->signature.argument_count; i++)
        if (!rn_stablehlo_is_of_run(&e->signature.arguments[i]) && !is_initializer(e, i))
            RN_TRY(bind_block(e, i));
    return RN_OK;
}

static rn_status try_session(ort_executable *e, bool *out_refused) {
    rn_onnx_export_options how = {.weight_file = e->frugal ? NULL : "weights"};
    rn_buffer model;
    void *options = NULL;
    rn_buffer_init(&model, RN_HOST_OTHER, SIZE_MAX);
    rn_status s = rn_onnx_export(e->graph, &how, &model);
    if (s == RN_OK) s = rn_ort_check(e->api->create_options(&options), "setting options");
    if (s == RN_OK) s = set_options(e, options);
    if (s == RN_OK) s = add_initializers(e, options);
    rn_ort_run watched = {.api = e->api};
    rn_ort_watch(&watched);
    if (s == RN_OK)
        s = rn_ort_check(
            e->api->create_session(rn_ort_env(), model.data, model.bytes, options, &e->session),
            "making a session");
    rn_ort_watch(NULL);
    *out_refused = watched.refused_bytes > 0;
    s = explain(e, &watched, s);
    if (options) e->api->release_options(options);
    rn_buffer_free(&model);
    if (s == RN_OK) s = bind_blocks(e);
    if (s != RN_OK) drop_session(e);
    return s;
}

// Where packing takes more than was planned for it, there is the frugal kind. Where its rewriting
// makes a graph that it refuses itself, there is less of that.
static rn_status make_session(ort_executable *e) {
    bool refused = false;
    rn_status s = try_session(e, &refused);
    if (s != RN_OK && s != RN_CANCELLED && !refused && e->level > 1) {
        rn_log(RN_LOG_WARNING, "ort", "%s; it rewrites less (opt=1)", rn_last_error()->message);
        e->level = 1;
        s = try_session(e, &refused);
    }
    if (s == RN_OK || !refused || e->frugal) return s;
    rn_log(RN_LOG_WARNING, "ort", "%s; weights are not packed", rn_last_error()->message);
    e->frugal = true;
    return try_session(e, &refused);
}

// ---- weights and states -------------------------------------------------------------------------

static uint32_t find_argument(const ort_executable *e, rn_value value) {
    for (uint32_t i = 0; i < e->signature.argument_count; i++)
        if (!rn_stablehlo_is_of_run(&e->signature.arguments[i]) &&
            e->signature.arguments[i].value == value)
            return i;
    return RN_STABLEHLO_NONE;
}

static rn_status check_bytes(const ort_executable *e, rn_value value, uint64_t bytes) {
    if (bytes == rn_executable_value_bytes(e->graph, value, 0)) return RN_OK;
    return rn_fail(RN_INVALID, "ort: '%s' has another number of bytes",
                   rn_graph_value(e->graph, value)->name);
}

// A weight that is put anew makes the session anew: it has copies of the old one.
static rn_status put(rn_executable *executable, rn_value value, const void *data, uint64_t bytes) {
    ort_executable *e = cast(executable);
    uint32_t at = find_argument(e, value);
    RN_TRY(check_bytes(e, value, bytes));
    if (at == RN_STABLEHLO_NONE) return RN_OK; // nobody reads it
    const rn_stablehlo_entry *entry = &e->signature.arguments[at];
    rn_ort_port *port = &e->arguments[at];
    if (is_initializer(e, at)) drop_session(e);
    RN_TRY(rn_stablehlo_convert(e->graph, entry, data, port->block));
    if (entry->kind != RN_STABLEHLO_WEIGHT || port->is_there) return RN_OK;
    port->is_there = true;
    return --e->weights_left == 0 && !e->session ? make_session(e) : RN_OK;
}

static rn_status get(rn_executable *executable, rn_value value, void *data, uint64_t bytes) {
    ort_executable *e = cast(executable);
    uint32_t at = find_argument(e, value);
    RN_TRY(check_bytes(e, value, bytes));
    if (at == RN_STABLEHLO_NONE ||
        e->signature.arguments[at].dtype != rn_graph_value(e->graph, value)->dtype)
        return rn_fail(RN_UNSUPPORTED, "ort: '%s' cannot be read back",
                       rn_graph_value(e->graph, value)->name);
    memcpy(data, e->arguments[at].block, bytes);
    return RN_OK;
}

// ---- a run --------------------------------------------------------------------------------------

static rn_status bind_given(ort_executable *e, const rn_stablehlo_entry *entry, rn_ort_port *port,
                            const rn_argument *given, uint64_t rows, bool output) {
    uint64_t bytes = rn_executable_value_bytes(e->graph, entry->value, rows);
    if (!given) return rn_fail(RN_INVALID, "ort: '%s' is not given", port->name);
    if (given->bytes != bytes)
        return rn_fail(RN_INVALID, "ort: '%s' has %llu bytes; it should have %llu", port->name,
                       (unsigned long long)given->bytes, (unsigned long long)bytes);
    RN_TRY(wrap(e, entry, rows, given->data, bytes, &port->value));
    return bind(e, port, output);
}

static rn_status bind_run(ort_executable *e, const rn_execution *run) {
    const rn_stablehlo_signature *s = &e->signature;
    for (uint32_t i = 0; i < s->argument_count; i++) {
        const rn_stablehlo_entry *entry = &s->arguments[i];
        rn_ort_port *port = &e->arguments[i];
        if (entry->kind == RN_STABLEHLO_INPUT) {
            RN_TRY(bind_given(e, entry, port,
                              rn_argument_find(run->inputs, run->input_count, entry->value),
                              run->rows, false));
        } else if (entry->kind == RN_STABLEHLO_SCALAR) {
            // Only read.
            void *number = (void *)(uintptr_t)&run->scalars[entry->value].f64;
            RN_TRY(wrap(e, entry, 0, number, sizeof(double), &port->value));
            RN_TRY(bind(e, port, false));
        }
    }
    for (uint32_t i = 0; i < s->result_count; i++)
        if (s->results[i].kind == RN_STABLEHLO_OUTPUT)
            RN_TRY(
                bind_given(e, &s->results[i], &e->results[i],
                           rn_argument_find(run->outputs, run->output_count, s->results[i].value),
                           run->rows, true));
    return RN_OK;
}

static void drop_run(ort_executable *e) {
    for (uint32_t i = 0; i < e->signature.argument_count; i++)
        if (rn_stablehlo_is_of_run(&e->signature.arguments[i])) drop_value(e, &e->arguments[i]);
    for (uint32_t i = 0; i < e->signature.result_count; i++)
        drop_value(e, &e->results[i]);
}

static rn_status run(rn_executable *executable, const rn_execution *run) {
    ort_executable *e = cast(executable);
    if (run->cancel && atomic_load(run->cancel))
        return rn_fail(RN_CANCELLED, "cancelled before the executable ran");
    rn_ort_run watched = {.api = e->api, .run_options = e->run_options, .cancel = run->cancel};
    rn_status s = e->session ? RN_OK : make_session(e);
    if (s == RN_OK) s = bind_run(e, run);
    rn_ort_watch(&watched);
    if (s == RN_OK)
        s = rn_ort_check(e->api->run_bound(e->session, e->run_options, e->binding), "running");
    rn_ort_watch(NULL);
    drop_run(e);
    if (watched.ended) RN_ORT_TRY(e->api->unset_terminate(e->run_options), "running");
    return explain(e, &watched, s);
}

// ---- making it ----------------------------------------------------------------------------------

static rn_status list_ports(ort_executable *e) {
    rn_stablehlo_signature *s = &e->signature;
    RN_TRY(rn_onnx_export_signature(e->graph, &e->memory, s));
    RN_TRY(rn_arena_array(&e->memory, s->argument_count + 1u, sizeof *e->arguments,
                          (void **)&e->arguments));
    RN_TRY(
        rn_arena_array(&e->memory, s->result_count + 1u, sizeof *e->results, (void **)&e->results));
    for (uint32_t i = 0; i < s->argument_count; i++)
        RN_TRY(rn_onnx_export_name(e->graph, s, i, false, &e->memory, &e->arguments[i].name));
    for (uint32_t i = 0; i < s->result_count; i++)
        RN_TRY(rn_onnx_export_name(e->graph, s, i, true, &e->memory, &e->results[i].name));
    return RN_OK;
}

static rn_status build(ort_executable *e, const rn_compile_request *request) {
    uint64_t rows = request->buckets[request->bucket_count - 1];
    rn_device_caps caps = e->device->base.caps;
    e->frugal = caps.frugal = request->frugal || caps.frugal;
    RN_TRY(rn_ort_estimate(&caps, e->graph, rows, e->base.purpose_bytes));
    RN_TRY(list_ports(e));
    e->allowed_bytes = e->base.purpose_bytes[RN_PURPOSE_WORKSPACE];
    if (!e->frugal) e->allowed_bytes += rn_ort_packed_bytes(&e->signature);
    rn_ort_allow(e->allowed_bytes);
    for (uint32_t i = 0; i < e->signature.argument_count; i++)
        if (!rn_stablehlo_is_of_run(&e->signature.arguments[i])) RN_TRY(make_block(e, i));
    if (e->frugal || e->weights_left == 0) RN_TRY(make_session(e));
    snprintf(e->base.about, sizeof e->base.about,
             "one session for any number of rows by ONNX Runtime %s, weights %s", rn_ort_version(),
             e->frugal ? "as they are" : "packed");
    return RN_OK;
}

static void destroy(rn_executable *executable) {
    ort_executable *e = cast(executable);
    if (e->session)
        rn_log(RN_LOG_DEBUG, "ort", "%s for tensors at the most, of %s that were planned",
               rn_size_format(rn_ort_take_peak()).text, rn_size_format(e->allowed_bytes).text);
    uint32_t count = e->arguments ? e->signature.argument_count : 0;
    drop_session(e);
    for (uint32_t i = 0; i < count; i++) {
        drop_value(e, &e->arguments[i]);
        rn_free(&rn_system_allocator, e->arguments[i].block,
                rn_round_up(e->signature.arguments[i].bytes + 1, 64));
    }
    rn_ort_disallow(e->allowed_bytes);
    rn_arena_free_all(&e->memory);
    rn_free(RN_HOST_OTHER, e, sizeof *e);
}

rn_status rn_ort_compile(rn_device *device, const rn_compile_request *request,
                         rn_executable **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(ort_executable), &block));
    ort_executable *e = block;
    e->base = (rn_executable){.put = put, .get = get, .run = run, .destroy = destroy};
    e->device = (rn_ort_device *)((char *)device - offsetof(rn_ort_device, base));
    e->api = e->device->api;
    e->graph = request->graph;
    e->level = e->device->target.level;
    rn_arena_init(&e->memory, RN_HOST_OTHER, 0);
    rn_status s = build(e, request);
    if (s == RN_OK)
        *out = &e->base;
    else
        destroy(&e->base);
    return s;
}
