// rates_device.c — a device with memory of its own, measured through its interface alone.
//
// A rate is what the planner must count with (device/call_cost.h) to foretell what was measured:
// calls are timed, and the rate is looked for that makes rn_cost_call say the same. So whatever a
// call costs beside what a rate stands for is counted once, and this file does not know how.
// Products of many rows are those of a model's layer, for a gate or a norm before it takes its
// time, too.
#include "runtime/rates.h"

#include "base/checked.h"
#include "base/reserved.h"
#include "graph/fuse.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TINY = 64, ROUNDS = 64, ATTENDS = 8 };
#define MOST       1e18 // of any rate
#define LEAST_STEP 1e-7 // seconds

const rn_rates_sizes rn_rates_usual = {
    .prompt_rows = 512,
    .narrow = 4096, // a model of 7 billion weights has these two, by one to two
    .wide = 14336,
    .k = 4096,
    .weights = 9, // 1 GiB in 16 bits
    .steps = 256,
    .runs = 64,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .keys = 4096,
    .link_bytes = (uint64_t)256 << 20,
    .piece_bytes = (uint64_t)64 << 20,
    .seconds = 0.02,
};

typedef struct meter {
    rn_device *device;
    const rn_rates_sizes *sizes;
    const rn_rates_options *options;
    rn_queue *queue;
    rn_device_caps caps; // the device's, with what is measured by now
    rn_link_rates link;
} meter;

// ---- rates from times ---------------------------------------------------------------------------

double rn_drill_predict(const rn_drill *drill, const rn_device_caps *caps) {
    double seconds = 0;
    for (uint32_t i = 0; i < drill->count; i++)
        seconds += rn_cost_call(caps, &drill->calls[i].call, (rn_workload){0});
    return seconds;
}

// Times fall as a rate grows.
void rn_drill_fit(const rn_drill *drill, double seconds, rn_device_caps *caps, double *rate) {
    double low = 1, high = MOST;
    for (int i = 0; i < ROUNDS; i++) {
        *rate = sqrt(low) * sqrt(high);
        if (rn_drill_predict(drill, caps) > seconds)
            low = *rate;
        else
            high = *rate;
    }
}

// The rate (one of m->caps) at which products of this kind run, each launched once.
static rn_status measure_rate(meter *m, const char *what, rn_drill_kind kind, double *rate) {
    rn_drill drill = {0};
    double seconds = 0;
    RN_TRY(rn_rates_tell(m->options, what));
    rn_status s = rn_drill_begin(&drill, m->device, m->queue, &kind);
    if (s == RN_OK) s = rn_drill_time(&drill, m->options, drill.count, m->sizes->seconds, &seconds);
    if (s == RN_OK) rn_drill_fit(&drill, seconds, &m->caps, rate);
    rn_drill_end(&drill);
    return s;
}

// ---- what is measured ---------------------------------------------------------------------------

// Three times as many steps, less the steps: what a replay costs by itself is no step's.
static rn_status time_steps(meter *m, rn_drill *drill) {
    double some = 0, more = 0;
    uint32_t steps = m->sizes->steps;
    RN_TRY(rn_drill_time(drill, m->options, steps, m->sizes->seconds, &some));
    RN_TRY(rn_drill_time(drill, m->options, 3 * steps, m->sizes->seconds, &more));
    double each = (more - some) / (2.0 * steps);
    m->caps.step_seconds = each > LEAST_STEP ? each : LEAST_STEP;
    return RN_OK;
}

// A run that does nearly nothing, as a session submits it: inputs come from the host, a result goes
// back, and somebody waits for it.
typedef struct running {
    meter *meter;
    rn_drill *drill;
    rn_recording *recording; // NULL: the queue cannot
    uint8_t *port;           // the host's
} running;

static void submit_run(const running *r) {
    enum { INPUTS = 5 }; // tokens, their sequences and positions, a table of pages, wanted rows
    const rn_call *call = &r->drill->calls[0].call;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    for (int i = 0; i < INPUTS; i++)
        rn_queue_copy_in(r->meter->queue, x->data, r->port, rn_tensor_bytes(x));
    rn_drill_launch(r->drill, 1);
    rn_queue_copy_out(r->meter->queue, r->port + rn_tensor_bytes(x), y->data, rn_tensor_bytes(y));
}

static rn_status run_runs(void *self) {
    running *r = self;
    rn_queue *queue = r->meter->queue;
    for (uint32_t i = 0; i < r->meter->sizes->runs; i++) {
        if (r->recording)
            queue->replay(queue, r->recording);
        else
            submit_run(r);
        RN_TRY(rn_queue_finish(queue));
    }
    return RN_OK;
}

static rn_status record_run(running *r) {
    rn_queue *queue = r->meter->queue;
    if (!queue->record) return RN_OK;
    RN_TRY(queue->record(queue));
    submit_run(r);
    return queue->keep(queue, &r->recording);
}

// What its step takes is the step's.
static rn_status time_runs(meter *m, rn_drill *drill) {
    running r = {.meter = m, .drill = drill};
    uint64_t bytes = rn_tensor_bytes(&drill->calls[0].call.inputs[0]) +
                     rn_tensor_bytes(&drill->calls[0].call.outputs[0]);
    void *port = NULL;
    double seconds = 0;
    RN_TRY(rn_device_host_take(m->device, RN_STAGING, bytes, &port));
    rn_drill_fill(port, bytes / sizeof(float));
    r.port = port;
    rn_status s = record_run(&r);
    if (s == RN_OK) s = rn_rates_time(m->options, run_runs, &r, &seconds);
    if (r.recording) m->queue->forget(m->queue, r.recording);
    rn_device_host_release(m->device, RN_STAGING, port, bytes);
    seconds = seconds / m->sizes->runs - m->caps.step_seconds;
    m->caps.run_seconds = seconds > LEAST_STEP ? seconds : LEAST_STEP;
    return s;
}

static rn_status measure_step(meter *m) {
    rn_drill drill = {0};
    rn_drill_kind tiny = {
        .rows = 1, .k = TINY, .dtype = RN_DTYPE_F16, .n = {TINY, TINY}, .count = 1};
    RN_TRY(rn_rates_tell(m->options, "kernels"));
    rn_status s = rn_drill_begin(&drill, m->device, m->queue, &tiny);
    if (s == RN_OK) s = time_steps(m, &drill);
    if (s == RN_OK) s = rn_rates_tell(m->options, "a run");
    if (s == RN_OK) s = time_runs(m, &drill);
    rn_drill_end(&drill);
    return s;
}

// Memory first: products of many rows read weights, too.
static rn_status measure_products(meter *m) {
    const rn_rates_sizes *sizes = m->sizes;
    rn_drill_kind one = {.rows = 1,
                         .k = sizes->k,
                         .dtype = RN_DTYPE_F16,
                         .n = {sizes->wide, sizes->wide},
                         .count = sizes->weights};
    rn_drill_kind many = {.rows = sizes->prompt_rows,
                          .k = sizes->k,
                          .dtype = RN_DTYPE_BF16,
                          .n = {sizes->narrow, sizes->wide},
                          .count = 4,
                          .fused = (m->caps.fusions & RN_FUSE_ALL) != 0};
    rn_device_caps *caps = &m->caps;
    const rn_backend *backend = caps->backend;
    for (uint32_t i = 0; i < backend->rate_count; i++)
        if (backend->rates[i].from == RN_RATE_FROM_ONE_ROW) caps->own[i] = 0;
    caps->flops = caps->quantized_flops = MOST; // the arithmetic of one row is nothing
    RN_TRY(measure_rate(m, "device memory", one, &caps->memory_bytes_second));
    for (uint32_t i = 0; i < backend->rate_count; i++) {
        if (backend->rates[i].from != RN_RATE_FROM_ONE_ROW) continue;
        one.dtype = backend->rates[i].dtype;
        RN_TRY(measure_rate(m, backend->rates[i].what, one, &caps->own[i]));
    }
    RN_TRY(measure_rate(m, "bf16 products", many, &caps->flops));
    many.dtype = RN_DTYPE_Q8_0;
    return measure_rate(m, "products with q8_0 weights", many, &caps->quantized_flops);
}

// ---- attention ----------------------------------------------------------------------------------

// A prompt's rows at the end of so many keys: *out_flops, that the planner counts for it.
static rn_status time_attention(meter *m, uint32_t rate, uint64_t keys, double *out_flops,
                                double *out_seconds) {
    const rn_rates_sizes *sizes = m->sizes;
    rn_drill_attention kind = {.rows = sizes->prompt_rows,
                               .keys = keys,
                               .heads = sizes->heads,
                               .kv_heads = sizes->kv_heads,
                               .head_dim = sizes->head_dim};
    rn_drill drill = {0};
    rn_device_caps one = m->caps;
    rn_status s = rn_drill_begin_attention(&drill, m->device, m->queue, &kind);
    if (s == RN_OK) s = rn_drill_time(&drill, m->options, ATTENDS, m->sizes->seconds, out_seconds);
    *out_seconds /= ATTENDS;
    one.own[rate] = 1; // nothing else takes seconds
    if (s == RN_OK) *out_flops = rn_drill_predict(&drill, &one);
    rn_drill_end(&drill);
    return s;
}

// The back end's own rate that is found in this way; RN_OWN_RATES: it has none.
static uint32_t find_rate(const rn_backend *backend, int from) {
    for (uint32_t i = 0; i < backend->rate_count; i++)
        if ((int)backend->rates[i].from == from) return i;
    return RN_OWN_RATES;
}

// What more keys take is arithmetic; the rest of what few take is there however few they are.
static rn_status measure_attention(meter *m) {
    uint64_t few = rn_round_up(m->sizes->prompt_rows, RN_DRILL_PAGE);
    double flops[2] = {0}, seconds[2] = {0};
    rn_device_caps *caps = &m->caps;
    uint32_t rate = find_rate(caps->backend, RN_RATE_FROM_ATTENTION);
    uint32_t floor = find_rate(caps->backend, RN_RATE_FROM_ATTENTION_FLOOR);
    if (rate == RN_OWN_RATES) return RN_OK;
    RN_TRY(rn_rates_tell(m->options, "attention"));
    RN_TRY(time_attention(m, rate, few, &flops[0], &seconds[0]));
    RN_TRY(time_attention(m, rate, m->sizes->keys, &flops[1], &seconds[1]));
    double more = seconds[1] - seconds[0];
    caps->own[rate] = more > 1e-9 ? (flops[1] - flops[0]) / more : caps->flops;
    double least = seconds[0] - flops[0] / caps->own[rate] - 2 * caps->step_seconds;
    if (floor < RN_OWN_RATES) caps->own[floor] = least > LEAST_STEP ? least : LEAST_STEP;
    return RN_OK;
}

// ---- the device ---------------------------------------------------------------------------------

static rn_status measure_link(meter *m) {
    rn_device *host = NULL;
    RN_TRY(rn_cpu_device_create(m->options->threads, &host));
    rn_status s = rn_rates_measure_link(m->device, host, m->sizes, m->options, &m->link);
    rn_device_destroy(host);
    m->caps.link_bytes_second = m->link.bytes_second;
    return s;
}

static rn_status measure(meter *m) {
    RN_TRY(measure_link(m));
    RN_TRY(m->device->open_queue(m->device, RN_QUEUE_COMPUTE, NULL, &m->queue));
    rn_status s = measure_step(m);
    if (s == RN_OK) s = measure_products(m);
    if (s == RN_OK) s = measure_attention(m);
    rn_queue_destroy(m->queue);
    return s;
}

static rn_rates_device *find_place(rn_rates *rates, const char *name) {
    for (uint32_t i = 0; i < rates->device_count; i++)
        if (strcmp(rates->devices[i].name, name) == 0) return &rates->devices[i];
    return &rates->devices[rates->device_count < RN_RATES_DEVICES ? rates->device_count++ : 0];
}

// What the link costs the CPU is the CPU's.
static void keep(const meter *m, rn_rates *rates) {
    const rn_device_caps *caps = &m->caps;
    rn_rates_device *d = find_place(rates, caps->name);
    rates->cpu.beside_link = m->link.host_share;
    *d = (rn_rates_device){.rates = {.flops = caps->flops,
                                     .quantized_flops = caps->quantized_flops,
                                     .memory_bytes_second = caps->memory_bytes_second,
                                     .disk_bytes_second = rates->cpu.disk_bytes_second,
                                     .link_bytes_second = caps->link_bytes_second,
                                     .step_seconds = caps->step_seconds,
                                     .run_seconds = caps->run_seconds,
                                     .link_share = m->link.link_share}};
    memcpy(d->rates.own, caps->own, caps->backend->rate_count * sizeof *caps->own);
    memcpy(d->name, caps->name, sizeof d->name);
    memcpy(d->hardware, caps->hardware, sizeof d->hardware);
}

rn_status rn_rates_measure_sized(rn_device *device, const rn_rates_sizes *sizes,
                                 const rn_rates_options *options, rn_rates *rates) {
    static const rn_rates_options none = {0};
    meter m = {.device = device,
               .sizes = sizes,
               .options = options ? options : &none,
               .caps = device->caps};
    if (device->caps.compiles) {
        RN_TRY(rn_rates_measure_compiled(device, sizes, m.options, &m.caps));
        m.link.host_share = rates->cpu.beside_link;
        keep(&m, rates);
        return RN_OK;
    }
    if (!device->caps.own_memory)
        return rn_fail(RN_INVALID, "%s has no memory of its own to measure", device->caps.name);
    RN_TRY(measure(&m));
    keep(&m, rates);
    return RN_OK;
}

rn_status rn_rates_measure_device(rn_device *device, const rn_rates_options *options,
                                  rn_rates *rates) {
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_rates_options"));
    return rn_rates_measure_sized(device, &rn_rates_usual, options, rates);
}
