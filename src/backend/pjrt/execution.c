// execution.c — a run of an executable, and the run ahead: the next one, begun before it is asked
// for.
#include "backend/pjrt/executable.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/stage.h"

#include <stdatomic.h>

static const char *name_of(const rn_pjrt_executable *e, const rn_stablehlo_entry *port) {
    return port->kind == RN_STABLEHLO_SCALAR ? "a scalar"
                                             : rn_graph_value(e->graph, port->value)->name;
}

static void drop_inputs(rn_pjrt_executable *e) {
    const rn_stablehlo_signature *s = rn_pjrt_signature(e);
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (rn_stablehlo_is_of_run(&s->arguments[i])) rn_pjrt_drop_argument(e, i);
}

// Waits for a run on every core. What failed first is told.
static rn_status await_cores(rn_pjrt_executable *e, void **done) {
    rn_error_info error = {0};
    for (uint32_t c = 0; c < e->device->core_count; c++) {
        rn_status s = rn_pjrt_await(e->device->plugin, done[c], "running");
        if (s != RN_OK && error.status == RN_OK) error = *rn_last_error();
        done[c] = NULL;
    }
    return error.status == RN_OK ? RN_OK : rn_error_restore(&error);
}

// A run that was begun is not wanted.
void rn_pjrt_drop_ahead(rn_pjrt_executable *e) {
    if (e->later.core[0]) rn_pjrt_drop_value(e->device, &e->later, 0);
    if (!e->ahead) return;
    for (uint32_t i = 0; i < e->ahead->signature.result_count; i++)
        rn_pjrt_drop_value(e->device, &e->ahead_results, i);
    (void)!await_cores(e, e->ahead_done);
    drop_inputs(e);
    e->ahead = NULL;
}

// ---- a run --------------------------------------------------------------------------------------

static const rn_pjrt_bucket *find_bucket(const rn_pjrt_executable *e, uint64_t rows) {
    for (uint32_t i = 0; i < e->bucket_count; i++)
        if (e->buckets[i].rows == rows) return &e->buckets[i];
    return NULL;
}

static rn_status check_given(const rn_pjrt_executable *e, const rn_stablehlo_entry *port,
                             const rn_argument *given) {
    if (!given)
        return rn_fail(RN_INVALID, "%s: '%s' is not given", e->device->name, name_of(e, port));
    if (given->bytes != port->bytes)
        return rn_fail(RN_INVALID, "%s: '%s' has %llu bytes; its program takes %llu",
                       e->device->name, name_of(e, port), (unsigned long long)given->bytes,
                       (unsigned long long)port->bytes);
    return RN_OK;
}

static rn_status bring_inputs(rn_pjrt_executable *e, const rn_pjrt_bucket *b,
                              const rn_execution *run) {
    for (uint32_t i = 0; i < b->signature.argument_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.arguments[i];
        if (port->kind == RN_STABLEHLO_SCALAR) {
            RN_TRY(rn_pjrt_upload_argument(e, port, &run->scalars[port->value].f64, i));
        } else if (port->kind == RN_STABLEHLO_INPUT) {
            const rn_argument *given = rn_argument_find(run->inputs, run->input_count, port->value);
            RN_TRY(check_given(e, port, given));
            RN_TRY(rn_pjrt_upload_argument(e, port, given->data, i));
        } else if (!rn_pjrt_is_there(e, i)) {
            return rn_fail(RN_DEVICE, "%s: '%s' is not on the device", e->device->name,
                           name_of(e, port));
        }
    }
    return RN_OK;
}

// Submits the run; done (cores): its events, or NULL. What fails here leaves states as they were.
static rn_status execute(rn_pjrt_executable *e, const rn_pjrt_bucket *b, rn_pjrt_table *results,
                         void **done) {
    const rn_pjrt_plugin *plugin = e->device->plugin;
    rn_pjrt_padded_options options = {.head = {.bytes = e->option_bytes,
                                               .not_donated = e->kept,
                                               .not_donated_count = e->kept_count}};
    rn_pjrt_execute_args args = {.executable = b->code.loaded,
                                 .options = &options.head,
                                 .arguments = (void *const *const *)e->arguments.core,
                                 .device_count = e->device->core_count,
                                 .argument_count = b->signature.argument_count,
                                 .outputs = results->core,
                                 .done = done};
    memset(done, 0, e->device->core_count * sizeof *done);
    rn_status s = RN_PJRT_CALL(plugin, RN_PJRT_LOADED_EXECUTE, &args, "running");
    size_t wanted =
        s == RN_OK ? 0 : rn_pjrt_wanted_bytes(rn_last_error()->message, e->option_bytes);
    if (wanted) {
        options.head.bytes = e->option_bytes = wanted;
        s = RN_PJRT_CALL(plugin, RN_PJRT_LOADED_EXECUTE, &args, "running");
    }
    return s;
}

// States to their places, though the run may not have ended.
static void take_states(rn_pjrt_executable *e, const rn_pjrt_bucket *b, rn_pjrt_table *results) {
    for (uint32_t i = 0; i < b->signature.result_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.results[i];
        if (port->kind == RN_STABLEHLO_STATE)
            rn_pjrt_move_value(e->device, &e->arguments, port->alias, results, i);
    }
}

// Outputs to the host, which waits for the run: all of them are on their way before one is waited
// for. Every core has them; the first one's are read.
static rn_status take_outputs(rn_pjrt_executable *e, const rn_pjrt_bucket *b,
                              const rn_execution *run) {
    const rn_pjrt_plugin *plugin = e->device->plugin;
    rn_status s = RN_OK;
    for (uint32_t i = 0; i < b->signature.result_count && s == RN_OK; i++) {
        const rn_stablehlo_entry *port = &b->signature.results[i];
        const rn_argument *given = rn_argument_find(run->outputs, run->output_count, port->value);
        if (port->kind == RN_STABLEHLO_STATE || !given) continue; // it stays there
        rn_pjrt_to_host_args args = {.buffer = e->results.core[0][i]};
        s = check_given(e, port, given);
        if (s != RN_OK) break;
        args.target = given->data;
        args.target_bytes = given->bytes;
        s = RN_PJRT_CALL(plugin, RN_PJRT_BUFFER_TO_HOST, &args, "reading a result");
        if (s == RN_OK) e->read[i] = args.event;
    }
    for (uint32_t i = 0; i < b->signature.result_count; i++) {
        rn_status read = rn_pjrt_await(plugin, e->read[i], "reading a result");
        e->read[i] = NULL;
        if (s == RN_OK) s = read;
    }
    return s;
}

// ---- a run ahead --------------------------------------------------------------------------------

static uint32_t find_entry(const rn_stablehlo_entry *entries, uint32_t count, rn_value value) {
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].value == value && entries[i].kind != RN_STABLEHLO_SCALAR) return i;
    return RN_STABLEHLO_NONE;
}

static bool may_go_ahead(const rn_pjrt_executable *e, const rn_pjrt_bucket *b,
                         const rn_next_run *next) {
    const rn_stablehlo_signature *s = &b->signature;
    if (!next->fed || !e->goes_ahead || b != e->buckets) return false;
    uint32_t fed = find_entry(s->arguments, s->argument_count, next->fed);
    uint32_t from = find_entry(s->results, s->result_count, next->from);
    uint32_t counted = find_entry(s->arguments, s->argument_count, next->counted);
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (s->arguments[i].kind == RN_STABLEHLO_SCALAR) return false;
    return fed != RN_STABLEHLO_NONE && from != RN_STABLEHLO_NONE && counted != RN_STABLEHLO_NONE &&
           s->arguments[fed].dtype == s->results[from].dtype &&
           s->arguments[fed].bytes == s->results[from].bytes &&
           s->arguments[counted].dtype == RN_DTYPE_I32;
}

static void count_on(uint8_t *numbers, uint64_t bytes, uint32_t by) {
    for (uint64_t at = 0; at < bytes; at += sizeof(int32_t)) {
        uint32_t number;
        memcpy(&number, numbers + at, sizeof number);
        number += by;
        memcpy(numbers + at, &number, sizeof number);
    }
}

// Notes the inputs that the next run is to have; that of `fed` is not known yet.
static void foresee(rn_pjrt_executable *e, const rn_pjrt_bucket *b, const rn_execution *run) {
    uint8_t *at = e->foreseen;
    for (uint32_t i = 0; i < b->signature.argument_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.arguments[i];
        if (port->kind != RN_STABLEHLO_INPUT) continue;
        memcpy(at, rn_argument_find(run->inputs, run->input_count, port->value)->data, port->bytes);
        if (port->value == run->next.counted) count_on(at, port->bytes, 1);
        at += rn_round_up(port->bytes, 64);
    }
}

static bool is_foreseen(rn_pjrt_executable *e, const rn_pjrt_bucket *b, const rn_execution *run) {
    const uint8_t *at = e->foreseen;
    if (e->ahead != b) return false;
    for (uint32_t i = 0; i < b->signature.argument_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.arguments[i];
        if (port->kind != RN_STABLEHLO_INPUT) continue;
        const rn_argument *given = rn_argument_find(run->inputs, run->input_count, port->value);
        if (!given || given->bytes != port->bytes || memcmp(at, given->data, port->bytes) != 0)
            return false;
        at += rn_round_up(port->bytes, 64);
    }
    return true;
}

static uint8_t *foreseen_input(const rn_pjrt_executable *e, const rn_pjrt_bucket *b,
                               rn_value value) {
    uint8_t *at = e->foreseen;
    for (uint32_t i = 0; b->signature.arguments[i].value != value; i++)
        if (b->signature.arguments[i].kind == RN_STABLEHLO_INPUT)
            at += rn_round_up(b->signature.arguments[i].bytes, 64);
    return at;
}

// The counted input of the next run, and that of the run behind it: a plugin copies behind all that
// was submitted before, so what is copied for the next run only now keeps the device waiting.
static rn_status bring_counted(rn_pjrt_executable *e, const rn_pjrt_bucket *b, uint32_t counted,
                               rn_value value) {
    const rn_stablehlo_entry *port = &b->signature.arguments[counted];
    uint8_t *numbers = foreseen_input(e, b, value);
    if (e->later.core[0][0])
        rn_pjrt_move_value(e->device, &e->arguments, counted, &e->later, 0);
    else
        RN_TRY(rn_pjrt_upload_argument(e, port, numbers, counted));
    count_on(numbers, port->bytes, 1);
    // Where it fails it is tried again.
    (void)!rn_pjrt_upload(e->device, port, false, numbers, &e->later, 0);
    count_on(numbers, port->bytes, UINT32_MAX);
    return RN_OK;
}

// The buffers of this run's inputs serve again, but for two. What fails here fails when the run is
// asked for: nothing has begun.
static void go_ahead(rn_pjrt_executable *e, const rn_pjrt_bucket *b, const rn_execution *run) {
    const rn_stablehlo_signature *s = &b->signature;
    uint32_t fed = find_entry(s->arguments, s->argument_count, run->next.fed);
    uint32_t from = find_entry(s->results, s->result_count, run->next.from);
    uint32_t counted = find_entry(s->arguments, s->argument_count, run->next.counted);
    void *kept[RN_PJRT_MOST_CORES];
    foresee(e, b, run);
    if (bring_counted(e, b, counted, run->next.counted) != RN_OK) return;
    for (uint32_t c = 0; c < e->device->core_count; c++) {
        kept[c] = e->arguments.core[c][fed];
        e->arguments.core[c][fed] = e->results.core[c][from];
    }
    bool began = execute(e, b, &e->ahead_results, e->ahead_done) == RN_OK;
    for (uint32_t c = 0; c < e->device->core_count; c++)
        e->arguments.core[c][fed] = kept[c];
    if (!began) return;
    e->ahead = b;
    take_states(e, b, &e->ahead_results);
}

// What the run that is ahead was begun with is known when this one has ended.
static void note_fed(rn_pjrt_executable *e, const rn_execution *run) {
    const rn_argument *from = rn_argument_find(run->outputs, run->output_count, run->next.from);
    if (!e->ahead) return;
    if (from)
        memcpy(foreseen_input(e, e->ahead, run->next.fed), from->data, from->bytes);
    else
        rn_pjrt_drop_ahead(e);
}

// ---- a run, as asked for ------------------------------------------------------------------------

// Brings inputs and submits, where that was not done before.
static rn_status begin(rn_pjrt_executable *e, const rn_pjrt_bucket *b, const rn_execution *run,
                       void **done) {
    if (is_foreseen(e, b, run)) {
        rn_pjrt_table results = e->results;
        e->results = e->ahead_results;
        e->ahead_results = results;
        memcpy(done, e->ahead_done, sizeof e->ahead_done);
        memset(e->ahead_done, 0, sizeof e->ahead_done);
        e->ahead = NULL;
        e->runs_ahead++;
        return RN_OK;
    }
    rn_pjrt_drop_ahead(e);
    uint64_t begin = rn_clock_ns();
    RN_TRY(bring_inputs(e, b, run));
    e->phase_ns[0] += rn_clock_ns() - begin;
    if (!e->ran) rn_stage_on(e->device->name, "inputs_on_xla");
    e->ran = true;
    RN_TRY(execute(e, b, &e->results, done));
    take_states(e, b, &e->results);
    return RN_OK;
}

// What failed first is told; either way nothing of the run is left.
static rn_status end(rn_pjrt_executable *e, const rn_pjrt_bucket *b, void **done, rn_status s) {
    rn_error_info error = *rn_last_error();
    rn_status ran = await_cores(e, done);
    if (s == RN_OK)
        s = ran;
    else
        (void)rn_error_restore(&error);
    for (uint32_t i = 0; i < b->signature.result_count; i++)
        rn_pjrt_drop_value(e->device, &e->results, i);
    if (!e->ahead) drop_inputs(e);
    return s;
}

rn_status rn_pjrt_run(rn_executable *executable, const rn_execution *run) {
    rn_pjrt_executable *e = rn_pjrt_executable_of(executable);
    const rn_pjrt_bucket *b = find_bucket(e, run->rows);
    void *done[RN_PJRT_MOST_CORES] = {0};
    if (!b)
        return rn_fail(RN_INVALID, "%s: there is no program for %llu rows", e->device->name,
                       (unsigned long long)run->rows);
    if (run->cancel && atomic_load(run->cancel))
        return rn_fail(RN_CANCELLED, "cancelled before the executable ran");
    uint64_t times[3] = {rn_clock_ns()};
    rn_status s = begin(e, b, run, done);
    bool began = s == RN_OK;
    if (began && may_go_ahead(e, b, &run->next)) go_ahead(e, b, run);
    times[1] = rn_clock_ns();
    if (began) s = take_outputs(e, b, run);
    times[2] = rn_clock_ns();
    for (int i = 0; i < 2; i++)
        e->phase_ns[i + 1] += times[i + 1] - times[i];
    e->runs++;
    if (s == RN_OK) note_fed(e, run);
    s = end(e, b, done, s);
    if (s != RN_OK && began) rn_pjrt_rebuild_states(e);
    return s;
}
