// rates_device.c — a device with memory of its own, measured through its interface alone.
//
// A rate is what the planner must count with (plan/cost.c) to foretell what was measured: products
// are timed, and the rate is looked for that makes rn_cost_call say the same. So whatever a product
// costs beside what a rate stands for is counted once, and this file does not know how.
#include "runtime/rates.h"

#include "memory/account.h"
#include "plan/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TINY = 64, ROUNDS = 64 };
#define MOST       1e18 // of any rate
#define LEAST_STEP 1e-7 // seconds

const rn_rates_sizes rn_rates_usual = {
    .prompt_rows = 512,
    .narrow = 4096, // a model of 7 billion weights has these two, by one to two
    .wide = 14336,
    .k = 4096,
    .weights = 9, // 1 GiB in 16 bits
    .steps = 256,
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
} meter;

// ---- rates from times ---------------------------------------------------------------------------

double rn_drill_predict(const rn_drill *drill, const rn_device_caps *caps) {
    double seconds = 0;
    for (uint32_t i = 0; i < drill->count; i++)
        seconds += rn_cost_call(caps, &drill->products[i].call);
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

static rn_status measure_step(meter *m) {
    rn_drill drill = {0};
    rn_drill_kind tiny = {
        .rows = 1, .k = TINY, .dtype = RN_DTYPE_F16, .n = {TINY, TINY}, .count = 1};
    RN_TRY(rn_rates_tell(m->options, "kernels"));
    rn_status s = rn_drill_begin(&drill, m->device, m->queue, &tiny);
    if (s == RN_OK) s = time_steps(m, &drill);
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
                          .count = 4};
    rn_device_caps *caps = &m->caps;
    caps->unpack_weights_second = 0;
    caps->flops = caps->quantized_flops = MOST; // the arithmetic of one row is nothing
    RN_TRY(measure_rate(m, "device memory", one, &caps->memory_bytes_second));
    one.dtype = RN_DTYPE_Q4_0;
    if (caps->fuses)
        RN_TRY(measure_rate(m, "unpacking of weights", one, &caps->unpack_weights_second));
    RN_TRY(measure_rate(m, "bf16 products", many, &caps->flops));
    many.dtype = RN_DTYPE_Q8_0;
    return measure_rate(m, "products with q8_0 weights", many, &caps->quantized_flops);
}

// ---- the link -----------------------------------------------------------------------------------

typedef struct copying {
    const meter *meter;
    uint8_t *device, *host;
} copying;

static rn_status copy_pieces(void *self) {
    const copying *c = self;
    const rn_rates_sizes *sizes = c->meter->sizes;
    for (uint64_t at = 0; at + sizes->piece_bytes <= sizes->link_bytes; at += sizes->piece_bytes)
        rn_queue_copy_in(c->meter->queue, c->device + at, c->host + at, sizes->piece_bytes);
    return rn_queue_finish(c->meter->queue);
}

static rn_status time_copies(meter *m, uint8_t *host) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = m->sizes->link_bytes};
    rn_device_memory memory;
    double seconds = 0;
    RN_TRY(rn_device_memory_take(m->device, purposes, &memory));
    copying c = {.meter = m, .device = memory.base, .host = host};
    rn_status s = rn_rates_time(m->options, copy_pieces, &c, &seconds);
    rn_device_memory_give_back(&memory);
    uint64_t bytes = m->sizes->link_bytes / m->sizes->piece_bytes * m->sizes->piece_bytes;
    m->caps.link_bytes_second = (double)bytes / (seconds > 1e-9 ? seconds : 1e-9);
    return s;
}

static rn_status measure_link(meter *m) {
    static const rn_account staging = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_STAGING};
    void *host = NULL;
    RN_TRY(rn_rates_tell(m->options, "the link to the device"));
    RN_TRY(rn_device_host_take(m->device, staging, m->sizes->link_bytes, &host));
    rn_drill_fill(host, m->sizes->link_bytes / sizeof(float));
    rn_status s = time_copies(m, host);
    rn_device_host_give_back(m->device, staging, host, m->sizes->link_bytes);
    return s;
}

// ---- the device ---------------------------------------------------------------------------------

static rn_status measure(meter *m) {
    RN_TRY(m->device->open_queue(m->device, RN_QUEUE_COMPUTE, NULL, &m->queue));
    rn_status s = measure_link(m);
    if (s == RN_OK) s = measure_step(m);
    if (s == RN_OK) s = measure_products(m);
    rn_queue_destroy(m->queue);
    return s;
}

static rn_rates_device *find_place(rn_rates *rates, const char *name) {
    for (uint32_t i = 0; i < rates->device_count; i++)
        if (strcmp(rates->devices[i].name, name) == 0) return &rates->devices[i];
    return &rates->devices[rates->device_count < RN_RATES_DEVICES ? rates->device_count++ : 0];
}

static void keep(const rn_device_caps *caps, rn_rates *rates) {
    rn_rates_device *d = find_place(rates, caps->name);
    *d = (rn_rates_device){.rates = {.flops = caps->flops,
                                     .quantized_flops = caps->quantized_flops,
                                     .memory_bytes_second = caps->memory_bytes_second,
                                     .disk_bytes_second = rates->cpu.disk_bytes_second,
                                     .link_bytes_second = caps->link_bytes_second,
                                     .step_seconds = caps->step_seconds,
                                     .unpack_weights_second = caps->unpack_weights_second}};
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
    if (!device->caps.own_memory)
        return rn_fail(RN_INVALID, "%s has no memory of its own to measure", device->caps.name);
    RN_TRY(measure(&m));
    keep(&m.caps, rates);
    return RN_OK;
}

rn_status rn_rates_measure_device(rn_device *device, const rn_rates_options *options,
                                  rn_rates *rates) {
    return rn_rates_measure_sized(device, &rn_rates_usual, options, rates);
}
