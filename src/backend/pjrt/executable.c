// executable.c — programs of a graph, one a bucket, with the buffers that they share.
//
//     arguments   inputs, scalars │ weights, constants, states
//                 made every run  │ made once; a state is donated and comes back as a result
//
// Programs are compiled before any weight is uploaded (a compiler that measures takes device memory
// for itself), and what the plugin says that they take is held against the budget then, so that no
// allocation is left to fail: a failing one costs ten seconds on CUDA, and every donated state.
//
// Plugins look at the bytes of an argument only. Its dtype and shape are checked here.
#include "backend/pjrt/pjrt.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"
#include "memory/stage.h"

#include <ration/log.h>

#include <stdatomic.h>
#include <stdio.h>

typedef struct bucket {
    uint64_t rows;
    rn_stablehlo_signature signature;
    rn_pjrt_code code;
} bucket;

// An argument that several weights are, on its way: uploaded when the last has come.
typedef struct joined_weight {
    uint8_t *data; // NULL: nothing was put, or all is uploaded
    uint32_t left; // of its parts, those that were not put
    bool staged;   // data is the executable's stage
} joined_weight;

typedef struct pjrt_executable {
    rn_executable base;
    rn_pjrt_device *device;
    const rn_graph *graph;
    rn_arena memory; // all tables
    bucket *buckets; // (bucket_count)
    uint32_t bucket_count;
    rn_pjrt_table arguments; // (arguments of any bucket); those of a run are NULL between runs
    rn_pjrt_table results;   // (results of any bucket)
    // A run of the smallest bucket that was begun before it was asked for, or NULL: its results,
    // its end, and the inputs that it was begun with, one behind the other.
    bool goes_ahead; // there is room for it
    const bucket *ahead;
    rn_pjrt_table ahead_results;
    void *ahead_done[RN_PJRT_MOST_CORES];
    uint8_t *foreseen;
    rn_pjrt_table later; // (1): the counted input of the run behind it, or NULL
    void **read;         // (results of any bucket): events of results that are being read
    int64_t *kept;       // (kept_count): numbers of states' arguments that are not donated
    uint32_t kept_count;
    size_t option_bytes;   // of a run's options, as the plugin wants them
    uint32_t weights_left; // that were not put yet
    joined_weight *joined; // (arguments): of weights that are one argument, what was put of them
    void *stage;           // of the largest of those, for one after the other
    uint64_t stage_bytes;
    uint32_t joined_left; // arguments of several weights that are not uploaded yet
    bool stage_busy;
    bool ran; // once: the stage is told
    uint64_t runs, runs_ahead;
    uint64_t phase_ns[3]; // uploading inputs, submitting, waiting for results; for the log
} pjrt_executable;

static pjrt_executable *cast(rn_executable *executable) {
    return (pjrt_executable *)((char *)executable - offsetof(pjrt_executable, base));
}

// Of the largest bucket; the others differ in rows alone.
static const rn_stablehlo_signature *signature_of(const pjrt_executable *e) {
    return &e->buckets[e->bucket_count - 1].signature;
}

static bool is_of_run(const rn_stablehlo_entry *port) {
    return port->kind == RN_STABLEHLO_INPUT || port->kind == RN_STABLEHLO_SCALAR;
}

static const char *name_of(const pjrt_executable *e, const rn_stablehlo_entry *port) {
    return port->kind == RN_STABLEHLO_SCALAR ? "a scalar"
                                             : rn_graph_value(e->graph, port->value)->name;
}

int rn_pjrt_type(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_F64:
        return RN_PJRT_F64;
    case RN_DTYPE_F32:
        return RN_PJRT_F32;
    case RN_DTYPE_F16:
        return RN_PJRT_F16;
    case RN_DTYPE_BF16:
        return RN_PJRT_BF16;
    case RN_DTYPE_I64:
        return RN_PJRT_S64;
    case RN_DTYPE_I32:
        return RN_PJRT_S32;
    case RN_DTYPE_I16:
        return RN_PJRT_S16;
    case RN_DTYPE_I8:
        return RN_PJRT_S8;
    case RN_DTYPE_U64:
        return RN_PJRT_U64;
    case RN_DTYPE_U32:
        return RN_PJRT_U32;
    case RN_DTYPE_U16:
        return RN_PJRT_U16;
    case RN_DTYPE_U8:
        return RN_PJRT_U8;
    case RN_DTYPE_BOOL:
        return RN_PJRT_PRED;
    default:
        return 0;
    }
}

// ---- buffers ------------------------------------------------------------------------------------

static void drop_argument(pjrt_executable *e, uint32_t i) {
    rn_pjrt_drop_value(e->device, &e->arguments, i);
}

static bool is_there(const pjrt_executable *e, uint32_t i) {
    return e->arguments.core[0][i] != NULL;
}

static rn_status upload(pjrt_executable *e, const rn_stablehlo_entry *port, const void *data,
                        uint32_t i) {
    return rn_pjrt_upload(e->device, port, !is_of_run(port), data, &e->arguments, i);
}

// Waits for a run on every core. What failed first is told.
static rn_status await_all(pjrt_executable *e, void **done) {
    rn_error_info error = {0};
    for (uint32_t c = 0; c < e->device->core_count; c++) {
        rn_status s = rn_pjrt_await(e->device->plugin, done[c], "running");
        if (s != RN_OK && error.status == RN_OK) error = *rn_last_error();
        done[c] = NULL;
    }
    return error.status == RN_OK ? RN_OK : rn_error_restore(&error);
}

static void drop_inputs(pjrt_executable *e) {
    const rn_stablehlo_signature *s = signature_of(e);
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (is_of_run(&s->arguments[i])) drop_argument(e, i);
}

// A run that was begun is not wanted.
static void drop_ahead(pjrt_executable *e) {
    if (e->later.core[0]) rn_pjrt_drop_value(e->device, &e->later, 0);
    if (!e->ahead) return;
    for (uint32_t i = 0; i < e->ahead->signature.result_count; i++)
        rn_pjrt_drop_value(e->device, &e->ahead_results, i);
    (void)!await_all(e, e->ahead_done);
    drop_inputs(e);
    e->ahead = NULL;
}

// Where the device's memory is full, the runtime makes a smaller plan (runtime/recover.h).
static rn_status note_full(pjrt_executable *e, rn_status s, uint64_t bytes) {
    if (s == RN_NO_MEMORY) e->device->base.refused_bytes = bytes;
    return s;
}

// ---- weights and states -------------------------------------------------------------------------

static bool has_part(const rn_stablehlo_entry *port, rn_value value) {
    for (uint32_t i = 0; i < port->part_count; i++)
        if (port->parts[i] == value) return true;
    return port->value == value;
}

static uint32_t find_argument(const pjrt_executable *e, rn_value value) {
    const rn_stablehlo_signature *s = signature_of(e);
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (!is_of_run(&s->arguments[i]) && has_part(&s->arguments[i], value)) return i;
    return RN_STABLEHLO_NONE;
}

static rn_status check_bytes(const pjrt_executable *e, rn_value value, uint64_t bytes) {
    if (bytes == rn_executable_value_bytes(e->graph, value, 0)) return RN_OK;
    return rn_fail(RN_INVALID, "%s: '%s' has another number of bytes", e->device->name,
                   rn_graph_value(e->graph, value)->name);
}

static rn_status upload_widened(pjrt_executable *e, const rn_stablehlo_entry *port, rn_dtype from,
                                const void *data, uint32_t i) {
    void *widened = NULL;
    uint64_t elements = rn_shape_elements(port->shape, 1);
    RN_TRY(rn_alloc(RN_HOST_STAGING, port->bytes, &widened));
    rn_status s = rn_dtype_convert(from, data, port->dtype, widened, elements);
    if (s == RN_OK) s = upload(e, port, widened, i);
    rn_free(RN_HOST_STAGING, widened, port->bytes);
    return s;
}

static rn_status upload_turned(pjrt_executable *e, const rn_stablehlo_entry *port, const void *data,
                               uint32_t i) {
    void *turned = NULL;
    RN_TRY(rn_alloc(RN_HOST_STAGING, port->bytes, &turned));
    rn_status s = rn_stablehlo_convert(e->graph, port, data, turned);
    if (s == RN_OK) s = upload(e, port, turned, i);
    rn_free(RN_HOST_STAGING, turned, port->bytes);
    return s;
}

// ---- weights that are one argument --------------------------------------------------------------

static void release_joined(pjrt_executable *e, uint32_t at) {
    joined_weight *j = &e->joined[at];
    if (j->staged)
        e->stage_busy = false;
    else if (j->data)
        rn_free(RN_HOST_STAGING, j->data, signature_of(e)->arguments[at].bytes);
    *j = (joined_weight){0};
}

static void release_stage(pjrt_executable *e) {
    rn_device_host_release(&e->device->base, RN_STAGING, e->stage, e->stage_bytes);
    e->stage = NULL;
}

// Parts come one after the other, so one stage serves all; where those of another argument come in
// between, that has memory of its own. One that was uploaded before is read back: what is put is a
// part of it.
static rn_status begin_joined(pjrt_executable *e, uint32_t at) {
    const rn_stablehlo_entry *port = &signature_of(e)->arguments[at];
    joined_weight *j = &e->joined[at];
    if (j->data) return RN_OK;
    if (!e->stage)
        RN_TRY(rn_device_host_take(&e->device->base, RN_STAGING, e->stage_bytes, &e->stage));
    j->left = is_there(e, at) ? 1 : port->part_count;
    j->staged = !e->stage_busy;
    if (j->staged)
        j->data = e->stage;
    else
        RN_TRY(rn_alloc(RN_HOST_STAGING, port->bytes, (void **)&j->data));
    e->stage_busy = true;
    if (!is_there(e, at)) return RN_OK;
    return rn_pjrt_download(e->device, port, &e->arguments, at, j->data);
}

// One processor copies at a fraction of the rate of a link.
enum { COPY_BYTES = 1 << 20 };
typedef struct copying {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
} copying;

static void copy_some(void *arg, size_t index) {
    const copying *c = arg;
    uint64_t at = (uint64_t)index * COPY_BYTES;
    memcpy(c->to + at, c->from + at, rn_min_u64(COPY_BYTES, c->bytes - at));
}

// As the program has it, where that is put together.
static rn_status bring_part(pjrt_executable *e, const rn_stablehlo_entry *part, const void *data,
                            uint8_t *to) {
    copying c = {to, data, part->bytes};
    if (rn_graph_value(e->graph, part->value)->dtype != part->dtype)
        return rn_stablehlo_convert(e->graph, part, data, to);
    rn_workers_run(e->device->base.workers, rn_div_up(c.bytes, COPY_BYTES), copy_some, &c);
    return RN_OK;
}

static rn_status put_part(pjrt_executable *e, uint32_t at, rn_value value, const void *data) {
    const rn_stablehlo_entry *port = &signature_of(e)->arguments[at];
    const rn_value_info *info = rn_graph_value(e->graph, value);
    rn_stablehlo_entry part = {.value = value, .dtype = port->dtype, .shape = info->shape};
    uint64_t row_bytes = port->bytes / port->shape.dims[0], before = 0;
    bool first = !is_there(e, at);
    for (uint32_t i = 0; port->parts[i] != value; i++)
        before += rn_graph_value(e->graph, port->parts[i])->shape.dims[0] * row_bytes;
    part.bytes = info->shape.dims[0] * row_bytes;
    rn_status s = begin_joined(e, at);
    if (s == RN_OK) s = bring_part(e, &part, data, e->joined[at].data + before);
    if (s == RN_OK && --e->joined[at].left > 0) return RN_OK;
    if (s == RN_OK) s = upload(e, port, e->joined[at].data, at);
    release_joined(e, at);
    if (s == RN_OK && first) e->joined_left--;
    if (e->joined_left == 0) release_stage(e);
    return s;
}

static rn_status put(rn_executable *executable, rn_value value, const void *data, uint64_t bytes) {
    pjrt_executable *e = cast(executable);
    uint32_t at = find_argument(e, value);
    RN_TRY(check_bytes(e, value, bytes));
    if (at == RN_STABLEHLO_NONE) return RN_OK; // nobody reads it
    const rn_stablehlo_entry *port = &signature_of(e)->arguments[at];
    rn_dtype from = rn_graph_value(e->graph, value)->dtype;
    bool first = !is_there(e, at) && port->kind == RN_STABLEHLO_WEIGHT;
    rn_status s = RN_OK;
    drop_ahead(e);
    if (port->part_count)
        s = put_part(e, at, value, data);
    else if (port->turned)
        s = upload_turned(e, port, data, at);
    else if (from == port->dtype)
        s = upload(e, port, data, at);
    else
        s = upload_widened(e, port, from, data, at);
    if (s == RN_OK && first && is_there(e, at) && --e->weights_left == 0)
        rn_stage_on(e->device->name, "model_on_xla");
    return note_full(e, s, port->bytes);
}

static rn_status get(rn_executable *executable, rn_value value, void *data, uint64_t bytes) {
    pjrt_executable *e = cast(executable);
    uint32_t at = find_argument(e, value);
    RN_TRY(check_bytes(e, value, bytes));
    const rn_stablehlo_entry *port =
        at == RN_STABLEHLO_NONE ? NULL : &signature_of(e)->arguments[at];
    if (!port || !is_there(e, at) || port->part_count || port->turned ||
        port->dtype != rn_graph_value(e->graph, value)->dtype)
        return rn_fail(RN_UNSUPPORTED, "%s: '%s' cannot be read back", e->device->name,
                       rn_graph_value(e->graph, value)->name);
    return rn_pjrt_download(e->device, port, &e->arguments, at, data);
}

// Constants and states of zeros: what nobody puts.
static rn_status fill(pjrt_executable *e) {
    const rn_stablehlo_signature *s = signature_of(e);
    for (uint32_t i = 0; i < s->argument_count; i++) {
        const rn_stablehlo_entry *port = &s->arguments[i];
        e->weights_left += port->kind == RN_STABLEHLO_WEIGHT;
        if (port->kind == RN_STABLEHLO_CONSTANT)
            RN_TRY(note_full(e, upload(e, port, rn_graph_value(e->graph, port->value)->constant, i),
                             port->bytes));
        if (port->kind == RN_STABLEHLO_STATE)
            RN_TRY(note_full(e, upload(e, port, NULL, i), port->bytes));
    }
    return RN_OK;
}

// A run that failed has eaten the states that it was to update.
static void rebuild_states(pjrt_executable *e) {
    const rn_stablehlo_signature *s = signature_of(e);
    rn_error_info error = *rn_last_error();
    uint32_t count = 0;
    drop_ahead(e);
    for (uint32_t i = 0; i < s->argument_count; i++) {
        if (s->arguments[i].kind != RN_STABLEHLO_STATE ||
            s->arguments[i].alias == RN_STABLEHLO_NONE)
            continue;
        drop_argument(e, i);
        count++;
        if (upload(e, &s->arguments[i], NULL, i) != RN_OK) break;
    }
    if (count)
        rn_log(RN_LOG_WARNING, "xla", "%s: a run failed: its %u states are zeros again",
               e->device->name, count);
    (void)rn_error_restore(&error);
}

// ---- a run --------------------------------------------------------------------------------------

static const bucket *find_bucket(const pjrt_executable *e, uint64_t rows) {
    for (uint32_t i = 0; i < e->bucket_count; i++)
        if (e->buckets[i].rows == rows) return &e->buckets[i];
    return NULL;
}

static const rn_argument *find_given(const rn_argument *given, uint32_t count, rn_value value) {
    for (uint32_t i = 0; i < count; i++)
        if (given[i].value == value) return &given[i];
    return NULL;
}

static rn_status check_given(const pjrt_executable *e, const rn_stablehlo_entry *port,
                             const rn_argument *given) {
    if (!given)
        return rn_fail(RN_INVALID, "%s: '%s' is not given", e->device->name, name_of(e, port));
    if (given->bytes != port->bytes)
        return rn_fail(RN_INVALID, "%s: '%s' has %llu bytes; its program takes %llu",
                       e->device->name, name_of(e, port), (unsigned long long)given->bytes,
                       (unsigned long long)port->bytes);
    return RN_OK;
}

static rn_status bring_inputs(pjrt_executable *e, const bucket *b, const rn_execution *run) {
    for (uint32_t i = 0; i < b->signature.argument_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.arguments[i];
        if (port->kind == RN_STABLEHLO_SCALAR) {
            RN_TRY(upload(e, port, &run->scalars[port->value].f64, i));
        } else if (port->kind == RN_STABLEHLO_INPUT) {
            const rn_argument *given = find_given(run->inputs, run->input_count, port->value);
            RN_TRY(check_given(e, port, given));
            RN_TRY(upload(e, port, given->data, i));
        } else if (!is_there(e, i)) {
            return rn_fail(RN_DEVICE, "%s: '%s' is not on the device", e->device->name,
                           name_of(e, port));
        }
    }
    return RN_OK;
}

// Submits the run; done (cores): its events, or NULL. What fails here leaves states as they were.
static rn_status execute(pjrt_executable *e, const bucket *b, rn_pjrt_table *results, void **done) {
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
static void take_states(pjrt_executable *e, const bucket *b, rn_pjrt_table *results) {
    for (uint32_t i = 0; i < b->signature.result_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.results[i];
        if (port->kind == RN_STABLEHLO_STATE)
            rn_pjrt_move_value(e->device, &e->arguments, port->alias, results, i);
    }
}

// Outputs to the host, which waits for the run: all of them are on their way before one is waited
// for. Every core has them; the first one's are read.
static rn_status take_outputs(pjrt_executable *e, const bucket *b, const rn_execution *run) {
    const rn_pjrt_plugin *plugin = e->device->plugin;
    rn_status s = RN_OK;
    for (uint32_t i = 0; i < b->signature.result_count && s == RN_OK; i++) {
        const rn_stablehlo_entry *port = &b->signature.results[i];
        const rn_argument *given = find_given(run->outputs, run->output_count, port->value);
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

static bool may_go_ahead(const pjrt_executable *e, const bucket *b, const rn_next_run *next) {
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
static void foresee(pjrt_executable *e, const bucket *b, const rn_execution *run) {
    uint8_t *at = e->foreseen;
    for (uint32_t i = 0; i < b->signature.argument_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.arguments[i];
        if (port->kind != RN_STABLEHLO_INPUT) continue;
        memcpy(at, find_given(run->inputs, run->input_count, port->value)->data, port->bytes);
        if (port->value == run->next.counted) count_on(at, port->bytes, 1);
        at += rn_round_up(port->bytes, 64);
    }
}

static bool is_foreseen(pjrt_executable *e, const bucket *b, const rn_execution *run) {
    const uint8_t *at = e->foreseen;
    if (e->ahead != b) return false;
    for (uint32_t i = 0; i < b->signature.argument_count; i++) {
        const rn_stablehlo_entry *port = &b->signature.arguments[i];
        if (port->kind != RN_STABLEHLO_INPUT) continue;
        const rn_argument *given = find_given(run->inputs, run->input_count, port->value);
        if (!given || given->bytes != port->bytes || memcmp(at, given->data, port->bytes) != 0)
            return false;
        at += rn_round_up(port->bytes, 64);
    }
    return true;
}

static uint8_t *foreseen_input(const pjrt_executable *e, const bucket *b, rn_value value) {
    uint8_t *at = e->foreseen;
    for (uint32_t i = 0; b->signature.arguments[i].value != value; i++)
        if (b->signature.arguments[i].kind == RN_STABLEHLO_INPUT)
            at += rn_round_up(b->signature.arguments[i].bytes, 64);
    return at;
}

// The counted input of the next run, and that of the run behind it: a plugin copies behind all that
// was submitted before, so what is copied for the next run only now keeps the device waiting.
static rn_status bring_counted(pjrt_executable *e, const bucket *b, uint32_t counted,
                               rn_value value) {
    const rn_stablehlo_entry *port = &b->signature.arguments[counted];
    uint8_t *numbers = foreseen_input(e, b, value);
    if (e->later.core[0][0])
        rn_pjrt_move_value(e->device, &e->arguments, counted, &e->later, 0);
    else
        RN_TRY(upload(e, port, numbers, counted));
    count_on(numbers, port->bytes, 1);
    // Where it fails it is tried again.
    (void)!rn_pjrt_upload(e->device, port, false, numbers, &e->later, 0);
    count_on(numbers, port->bytes, UINT32_MAX);
    return RN_OK;
}

// The buffers of this run's inputs serve again, but for two. What fails here fails when the run is
// asked for: nothing has begun.
static void go_ahead(pjrt_executable *e, const bucket *b, const rn_execution *run) {
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
static void note_fed(pjrt_executable *e, const rn_execution *run) {
    const rn_argument *from = find_given(run->outputs, run->output_count, run->next.from);
    if (!e->ahead) return;
    if (from)
        memcpy(foreseen_input(e, e->ahead, run->next.fed), from->data, from->bytes);
    else
        drop_ahead(e);
}

// ---- a run, as asked for ------------------------------------------------------------------------

// Brings inputs and submits, where that was not done before.
static rn_status begin(pjrt_executable *e, const bucket *b, const rn_execution *run, void **done) {
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
    drop_ahead(e);
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
static rn_status end(pjrt_executable *e, const bucket *b, void **done, rn_status s) {
    rn_error_info error = *rn_last_error();
    rn_status ran = await_all(e, done);
    if (s == RN_OK)
        s = ran;
    else
        (void)rn_error_restore(&error);
    for (uint32_t i = 0; i < b->signature.result_count; i++)
        rn_pjrt_drop_value(e->device, &e->results, i);
    if (!e->ahead) drop_inputs(e);
    return s;
}

static rn_status run(rn_executable *executable, const rn_execution *run) {
    pjrt_executable *e = cast(executable);
    const bucket *b = find_bucket(e, run->rows);
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
    if (s != RN_OK && began) rebuild_states(e);
    return s;
}

// ---- compiling ----------------------------------------------------------------------------------

static rn_status compile_bucket(pjrt_executable *e, bucket *b) {
    rn_stablehlo_options options = rn_pjrt_options(&e->device->base.caps, e->graph, b->rows);
    rn_buffer text;
    RN_TRY(rn_stablehlo_signature_make(e->graph, &options, &e->memory, &b->signature));
    // As the compiler's own memory: what that may take is estimated as a whole.
    rn_buffer_init(&text, &rn_system_allocator, (size_t)256 << 20);
    rn_status s = rn_stablehlo_emit(e->graph, &options, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_pjrt_compile_text(e->device, (rn_str){text.data, text.bytes}, &b->code);
    rn_buffer_free(&text);
    return s;
}

static rn_status list_kept(pjrt_executable *e) {
    const rn_stablehlo_signature *s = signature_of(e);
    RN_TRY(rn_arena_array(&e->memory, s->argument_count, sizeof *e->kept, (void **)&e->kept));
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (s->arguments[i].kind == RN_STABLEHLO_STATE) e->kept[e->kept_count++] = i;
    return RN_OK;
}

static uint64_t count_inputs(const bucket *b) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->signature.argument_count; i++)
        if (b->signature.arguments[i].kind == RN_STABLEHLO_INPUT)
            bytes += rn_round_up(b->signature.arguments[i].bytes, 64);
    return bytes;
}

static rn_status compile_all(pjrt_executable *e, const rn_compile_request *request) {
    void *block = NULL;
    RN_TRY(rn_arena_array(&e->memory, request->bucket_count, sizeof *e->buckets, &block));
    e->buckets = block;
    rn_stage_on(e->device->name, "xla_model_created");
    for (uint32_t i = 0; i < request->bucket_count; i++) {
        if (request->cancel && atomic_load(request->cancel))
            return rn_fail(RN_CANCELLED, "cancelled while compiling");
        e->buckets[i].rows = request->buckets[i];
        e->bucket_count = i + 1;
        RN_TRY(compile_bucket(e, &e->buckets[i]));
    }
    const rn_stablehlo_signature *s = signature_of(e);
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, s->result_count, &e->results));
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, s->result_count, &e->ahead_results));
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, 1, &e->later));
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, s->argument_count, &e->arguments));
    RN_TRY(rn_arena_array(&e->memory, s->result_count, sizeof(void *), (void **)&e->read));
    RN_TRY(rn_arena_array(&e->memory, e->bucket_count > 1 ? count_inputs(&e->buckets[0]) : 0, 1,
                          (void **)&e->foreseen));
    RN_TRY(rn_arena_array(&e->memory, s->argument_count, sizeof *e->joined, (void **)&e->joined));
    for (uint32_t i = 0; i < s->argument_count; i++) {
        if (s->arguments[i].part_count == 0) continue;
        e->stage_bytes = rn_max_u64(e->stage_bytes, s->arguments[i].bytes);
        e->joined_left++;
    }
    rn_stage_on(e->device->name, "compilation_complete");
    return e->device->target.keeps_states ? list_kept(e) : RN_OK;
}

// What the largest of the programs takes by the plugin's own count, all code beside it: weights and
// states are the same in all of them.
static uint64_t count_compiled(const pjrt_executable *e) {
    uint64_t most = 0, code = 0;
    for (uint32_t i = 0; i < e->bucket_count; i++) {
        const rn_pjrt_code *c = &e->buckets[i].code;
        if (!c->known) return 0;
        uint64_t bytes = c->argument_bytes + c->output_bytes + c->temporary_bytes;
        uint64_t in_place = e->kept_count ? 0 : c->alias_bytes;
        most = rn_max_u64(most, bytes - rn_min_u64(bytes, in_place));
        code += c->code_bytes;
    }
    return (most + code) * e->device->core_count;
}

// Ours, by purpose; what the plugin counts more is its temporary memory. Its compiler's memory is
// in no count of its own.
static rn_status count_purposes(pjrt_executable *e) {
    const rn_device_caps *caps = &e->device->base.caps;
    uint64_t rows = e->buckets[e->bucket_count - 1].rows, ours = 0, theirs = count_compiled(e);
    uint64_t *purposes = e->base.purpose_bytes;
    RN_TRY(rn_pjrt_count_program(caps, e->graph, rows, purposes));
    if (theirs == 0) return rn_pjrt_count_beside(caps, e->graph, purposes);
    uint64_t estimated = purposes[RN_PURPOSE_WORKSPACE];
    purposes[RN_PURPOSE_WORKSPACE] = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        ours += purposes[p];
    purposes[RN_PURPOSE_WORKSPACE] = theirs - rn_min_u64(theirs, ours);
    rn_log(RN_LOG_DEBUG, "xla", "%s: %llu bytes of temporary memory were estimated, %llu are taken",
           e->device->name, (unsigned long long)estimated,
           (unsigned long long)purposes[RN_PURPOSE_WORKSPACE]);
    return rn_pjrt_count_beside(caps, e->graph, purposes);
}

// Against the plan, and against what the device has free now.
static rn_status check_budget(const pjrt_executable *e, const rn_compile_request *request) {
    rn_device *device = &e->device->base;
    uint64_t held = 0, room = device->free_bytes ? device->free_bytes(device) : 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        held += e->base.purpose_bytes[p];
    const rn_pjrt_code *code = &e->buckets[e->bucket_count - 1].code;
    if (held > request->budget_bytes)
        return rn_hint(
            rn_fail(RN_OVER_BUDGET,
                    "%s: %s were planned, and the compiled program takes %s (%s of temporary "
                    "memory)",
                    e->device->name, rn_size_format(request->budget_bytes).text,
                    rn_size_format(held).text, rn_size_format(code->temporary_bytes).text),
            "fewer rows a run (seq=N of the target), or another device");
    uint64_t context = (uint64_t)device->caps.own[RN_PJRT_CONTEXT]; // which is not the pool's
    context *= e->device->core_count;
    if (room == 0 || held - rn_min_u64(held, context) <= room) return RN_OK;
    device->refused_bytes = held;
    return rn_fail(RN_NO_MEMORY,
                   "%s: RESOURCE_EXHAUSTED: the program takes %s, and %s of the device's memory "
                   "are free",
                   e->device->name, rn_size_format(held).text, rn_size_format(room).text);
}

// What a run of it holds beside its arguments.
static uint64_t own_bytes(const bucket *b) {
    const rn_pjrt_code *c = &b->code;
    uint64_t bytes = c->output_bytes + c->temporary_bytes;
    return bytes - rn_min_u64(bytes, c->alias_bytes);
}

// Two runs of the smallest program at a time take what one of the largest takes, or what the plan
// has left.
static void plan_ahead(pjrt_executable *e, const rn_compile_request *request) {
    const bucket *first = e->buckets, *last = &e->buckets[e->bucket_count - 1];
    uint64_t held = 0, twice = 2 * own_bytes(first);
    uint64_t more = (twice - rn_min_u64(twice, own_bytes(last))) * e->device->core_count;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        held += e->base.purpose_bytes[p];
    e->goes_ahead = first != last && first->code.known && last->code.known &&
                    more <= request->budget_bytes - rn_min_u64(request->budget_bytes, held);
    if (e->goes_ahead) e->base.purpose_bytes[RN_PURPOSE_WORKSPACE] += more;
}

// "4 programs for 1, 8, 64, 512 rows on cpu by PJRT 0.81: 3 compiled, 1 loaded in 2.1 s"; "... on 2
// cores of NC_v2 ...".
static void describe(pjrt_executable *e, uint64_t begin_ns) {
    char cores[32] = "";
    if (e->device->core_count > 1)
        snprintf(cores, sizeof cores, "%u cores of ", e->device->core_count);
    char *text = e->base.about;
    size_t used = 0, room = sizeof e->base.about;
    uint32_t loaded = 0;
    used += (size_t)snprintf(text, room, "%u program%s for ", e->bucket_count,
                             e->bucket_count == 1 ? "" : "s");
    for (uint32_t i = 0; i < e->bucket_count && used < room; i++) {
        loaded += e->buckets[i].code.from_file;
        used += (size_t)snprintf(text + used, room - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)e->buckets[i].rows);
    }
    if (used < room)
        snprintf(text + used, room - used,
                 " rows on %s%s by PJRT 0.%d: %u compiled, %u loaded in %.1f s", cores,
                 e->device->kind, e->device->plugin->api->version.minor, e->bucket_count - loaded,
                 loaded, (double)(rn_clock_ns() - begin_ns) * 1e-9);
}

static void describe_cores(pjrt_executable *e) {
    uint64_t held = 0, used = strlen(e->base.about);
    uint32_t cores = e->device->core_count;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        held += e->base.purpose_bytes[p];
    if (cores > 1)
        snprintf(e->base.about + used, sizeof e->base.about - used, "; each core holds %s",
                 rn_size_format(held / cores).text);
}

// ---- life ---------------------------------------------------------------------------------------

static void destroy(rn_executable *executable) {
    pjrt_executable *e = cast(executable);
    bool made = e->arguments.core[e->device->core_count - 1] != NULL;
    uint32_t count = made ? signature_of(e)->argument_count : 0;
    drop_ahead(e);
    if (e->ran) {
        rn_pjrt_tell_memory(e->device);
        rn_log(
            RN_LOG_DEBUG, "xla",
            "%s: %llu runs, %llu of them begun ahead; of each, %.0f us for inputs, %.0f to submit "
            "it, %.0f for results",
            e->device->name, (unsigned long long)e->runs, (unsigned long long)e->runs_ahead,
            (double)e->phase_ns[0] * 1e-3 / (double)e->runs,
            (double)e->phase_ns[1] * 1e-3 / (double)e->runs,
            (double)e->phase_ns[2] * 1e-3 / (double)e->runs);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (e->joined) release_joined(e, i);
        drop_argument(e, i);
    }
    release_stage(e);
    for (uint32_t i = 0; i < e->bucket_count; i++)
        rn_pjrt_code_free(e->device, &e->buckets[i].code);
    rn_arena_free_all(&e->memory);
    rn_free(RN_HOST_OTHER, e, sizeof *e);
}

static rn_status build(pjrt_executable *e, const rn_compile_request *request) {
    RN_TRY(rn_pjrt_start(e->device, request->budget_bytes));
    e->option_bytes = rn_pjrt_args_bytes(RN_PJRT_EXECUTE_OPTIONS, e->device->plugin->minor);
    uint64_t begin = rn_clock_ns();
    RN_TRY(compile_all(e, request));
    describe(e, begin);
    RN_TRY(count_purposes(e));
    RN_TRY(check_budget(e, request));
    plan_ahead(e, request);
    describe_cores(e);
    return fill(e);
}

rn_status rn_pjrt_compile(rn_device *device, const rn_compile_request *request,
                          rn_executable **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(pjrt_executable), &block));
    pjrt_executable *e = block;
    e->base = (rn_executable){.put = put, .get = get, .run = run, .destroy = destroy};
    e->device = rn_pjrt_device_of(device);
    e->graph = request->graph;
    rn_arena_init(&e->memory, RN_HOST_OTHER, 0);
    rn_status s = build(e, request);
    if (s == RN_OK)
        *out = &e->base;
    else
        destroy(&e->base);
    return s;
}
