// uploads.c — weights and states of an executable: what is brought once and stays on the device.
//
// Plugins look at the bytes of an argument only. Its dtype and shape are checked here.
#include "backend/pjrt/executable.h"

#include "base/checked.h"
#include "memory/account.h"
#include "memory/stage.h"

#include <ration/log.h>

// ---- buffers ------------------------------------------------------------------------------------

void rn_pjrt_drop_argument(rn_pjrt_executable *e, uint32_t i) {
    rn_pjrt_drop_value(e->device, &e->arguments, i);
}

rn_status rn_pjrt_upload_argument(rn_pjrt_executable *e, const rn_stablehlo_entry *port,
                                  const void *data, uint32_t i) {
    return rn_pjrt_upload(e->device, port, !rn_stablehlo_is_of_run(port), data, &e->arguments, i);
}

// Where the device's memory is full, the runtime makes a smaller plan (runtime/recover.h).
static rn_status note_full(rn_pjrt_executable *e, rn_status s, uint64_t bytes) {
    if (s == RN_NO_MEMORY) e->device->base.refused_bytes = bytes;
    return s;
}

// ---- weights and states -------------------------------------------------------------------------

static bool has_part(const rn_stablehlo_entry *port, rn_value value) {
    for (uint32_t i = 0; i < port->part_count; i++)
        if (port->parts[i] == value) return true;
    return port->value == value;
}

static uint32_t find_argument(const rn_pjrt_executable *e, rn_value value) {
    const rn_stablehlo_signature *s = rn_pjrt_signature(e);
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (!rn_stablehlo_is_of_run(&s->arguments[i]) && has_part(&s->arguments[i], value))
            return i;
    return RN_STABLEHLO_NONE;
}

static rn_status check_bytes(const rn_pjrt_executable *e, rn_value value, uint64_t bytes) {
    if (bytes == rn_executable_value_bytes(e->graph, value, 0)) return RN_OK;
    return rn_fail(RN_INVALID, "%s: '%s' has another number of bytes", e->device->name,
                   rn_graph_value(e->graph, value)->name);
}

static rn_status upload_widened(rn_pjrt_executable *e, const rn_stablehlo_entry *port,
                                rn_dtype from, const void *data, uint32_t i) {
    void *widened = NULL;
    uint64_t elements = rn_shape_elements(port->shape, 1);
    RN_TRY(rn_alloc(RN_HOST_STAGING, port->bytes, &widened));
    rn_status s = rn_dtype_convert(from, data, port->dtype, widened, elements);
    if (s == RN_OK) s = rn_pjrt_upload_argument(e, port, widened, i);
    rn_free(RN_HOST_STAGING, widened, port->bytes);
    return s;
}

static rn_status upload_turned(rn_pjrt_executable *e, const rn_stablehlo_entry *port,
                               const void *data, uint32_t i) {
    void *turned = NULL;
    RN_TRY(rn_alloc(RN_HOST_STAGING, port->bytes, &turned));
    rn_status s = rn_stablehlo_convert(e->graph, port, data, turned);
    if (s == RN_OK) s = rn_pjrt_upload_argument(e, port, turned, i);
    rn_free(RN_HOST_STAGING, turned, port->bytes);
    return s;
}

// ---- weights that are one argument --------------------------------------------------------------

void rn_pjrt_release_joined(rn_pjrt_executable *e, uint32_t at) {
    rn_pjrt_joined *j = &e->joined[at];
    if (j->staged)
        e->stage_busy = false;
    else if (j->data)
        rn_free(RN_HOST_STAGING, j->data, rn_pjrt_signature(e)->arguments[at].bytes);
    *j = (rn_pjrt_joined){0};
}

void rn_pjrt_release_stage(rn_pjrt_executable *e) {
    rn_device_host_release(&e->device->base, RN_STAGING, e->stage, e->stage_bytes);
    e->stage = NULL;
}

// Parts come one after the other, so one stage serves all; where those of another argument come in
// between, that has memory of its own. One that was uploaded before is read back: what is put is a
// part of it.
static rn_status begin_joined(rn_pjrt_executable *e, uint32_t at) {
    const rn_stablehlo_entry *port = &rn_pjrt_signature(e)->arguments[at];
    rn_pjrt_joined *j = &e->joined[at];
    if (j->data) return RN_OK;
    if (!e->stage)
        RN_TRY(rn_device_host_take(&e->device->base, RN_STAGING, e->stage_bytes, &e->stage));
    j->left = rn_pjrt_is_there(e, at) ? 1 : port->part_count;
    j->staged = !e->stage_busy;
    if (j->staged)
        j->data = e->stage;
    else
        RN_TRY(rn_alloc(RN_HOST_STAGING, port->bytes, (void **)&j->data));
    e->stage_busy = true;
    if (!rn_pjrt_is_there(e, at)) return RN_OK;
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
static rn_status bring_part(rn_pjrt_executable *e, const rn_stablehlo_entry *part, const void *data,
                            uint8_t *to) {
    copying c = {to, data, part->bytes};
    if (rn_graph_value(e->graph, part->value)->dtype != part->dtype)
        return rn_stablehlo_convert(e->graph, part, data, to);
    rn_workers_run(e->device->base.workers, rn_div_up(c.bytes, COPY_BYTES), copy_some, &c);
    return RN_OK;
}

static rn_status put_part(rn_pjrt_executable *e, uint32_t at, rn_value value, const void *data) {
    const rn_stablehlo_entry *port = &rn_pjrt_signature(e)->arguments[at];
    const rn_value_info *info = rn_graph_value(e->graph, value);
    rn_stablehlo_entry part = {.value = value, .dtype = port->dtype, .shape = info->shape};
    uint64_t row_bytes = port->bytes / port->shape.dims[0], before = 0;
    bool first = !rn_pjrt_is_there(e, at);
    for (uint32_t i = 0; port->parts[i] != value; i++)
        before += rn_graph_value(e->graph, port->parts[i])->shape.dims[0] * row_bytes;
    part.bytes = info->shape.dims[0] * row_bytes;
    rn_status s = begin_joined(e, at);
    if (s == RN_OK) s = bring_part(e, &part, data, e->joined[at].data + before);
    if (s == RN_OK && --e->joined[at].left > 0) return RN_OK;
    if (s == RN_OK) s = rn_pjrt_upload_argument(e, port, e->joined[at].data, at);
    rn_pjrt_release_joined(e, at);
    if (s == RN_OK && first) e->joined_left--;
    if (e->joined_left == 0) rn_pjrt_release_stage(e);
    return s;
}

rn_status rn_pjrt_put(rn_executable *executable, rn_value value, const void *data, uint64_t bytes) {
    rn_pjrt_executable *e = rn_pjrt_executable_of(executable);
    uint32_t at = find_argument(e, value);
    RN_TRY(check_bytes(e, value, bytes));
    if (at == RN_STABLEHLO_NONE) return RN_OK; // nobody reads it
    const rn_stablehlo_entry *port = &rn_pjrt_signature(e)->arguments[at];
    rn_dtype from = rn_graph_value(e->graph, value)->dtype;
    bool first = !rn_pjrt_is_there(e, at) && port->kind == RN_STABLEHLO_WEIGHT;
    rn_status s = RN_OK;
    rn_pjrt_drop_ahead(e);
    if (port->part_count)
        s = put_part(e, at, value, data);
    else if (port->turned)
        s = upload_turned(e, port, data, at);
    else if (from == port->dtype)
        s = rn_pjrt_upload_argument(e, port, data, at);
    else
        s = upload_widened(e, port, from, data, at);
    if (s == RN_OK && first && rn_pjrt_is_there(e, at) && --e->weights_left == 0)
        rn_stage_on(e->device->name, "model_on_xla");
    return note_full(e, s, port->bytes);
}

rn_status rn_pjrt_get(rn_executable *executable, rn_value value, void *data, uint64_t bytes) {
    rn_pjrt_executable *e = rn_pjrt_executable_of(executable);
    uint32_t at = find_argument(e, value);
    RN_TRY(check_bytes(e, value, bytes));
    const rn_stablehlo_entry *port =
        at == RN_STABLEHLO_NONE ? NULL : &rn_pjrt_signature(e)->arguments[at];
    if (!port || !rn_pjrt_is_there(e, at) || port->part_count || port->turned ||
        port->dtype != rn_graph_value(e->graph, value)->dtype)
        return rn_fail(RN_UNSUPPORTED, "%s: '%s' cannot be read back", e->device->name,
                       rn_graph_value(e->graph, value)->name);
    return rn_pjrt_download(e->device, port, &e->arguments, at, data);
}

// Constants and states of zeros: what nobody puts.
rn_status rn_pjrt_fill(rn_pjrt_executable *e) {
    const rn_stablehlo_signature *s = rn_pjrt_signature(e);
    for (uint32_t i = 0; i < s->argument_count; i++) {
        const rn_stablehlo_entry *port = &s->arguments[i];
        e->weights_left += port->kind == RN_STABLEHLO_WEIGHT;
        if (port->kind == RN_STABLEHLO_CONSTANT)
            RN_TRY(note_full(e,
                             rn_pjrt_upload_argument(
                                 e, port, rn_graph_value(e->graph, port->value)->constant, i),
                             port->bytes));
        if (port->kind == RN_STABLEHLO_STATE)
            RN_TRY(note_full(e, rn_pjrt_upload_argument(e, port, NULL, i), port->bytes));
    }
    return RN_OK;
}

// A run that failed has eaten the states that it was to update.
void rn_pjrt_rebuild_states(rn_pjrt_executable *e) {
    const rn_stablehlo_signature *s = rn_pjrt_signature(e);
    rn_error_info error = *rn_last_error();
    uint32_t count = 0;
    rn_pjrt_drop_ahead(e);
    for (uint32_t i = 0; i < s->argument_count; i++) {
        if (s->arguments[i].kind != RN_STABLEHLO_STATE ||
            s->arguments[i].alias == RN_STABLEHLO_NONE)
            continue;
        rn_pjrt_drop_argument(e, i);
        count++;
        if (rn_pjrt_upload_argument(e, &s->arguments[i], NULL, i) != RN_OK) break;
    }
    if (count)
        rn_log(RN_LOG_WARNING, "xla", "%s: a run failed: its %u states are zeros again",
               e->device->name, count);
    (void)rn_error_restore(&error);
}
