// rates_compiled.c — a device that compiles graphs as a whole, measured by executables: it has no
// queues that calls could be submitted to.
//
//     steps      chains of tiny products and norms, of two lengths: a node's own cost, and a run's
//     memory     a chain of large products, one row
//     products   a shorter one, many rows
//
// As in rates_device.c a rate is what the planner must count with to foretell what was measured.
#include "runtime/rates.h"

#include "base/checked.h"
#include "device/executable.h"
#include "memory/account.h"
#include "plan/planner.h"

#include <math.h>
#include <stdio.h>

enum { TINY = 16, ROUNDS = 64 };
#define MOST       1e18 // of any rate
#define LEAST_STEP 1e-7 // seconds

typedef struct chain {
    rn_device *device;
    rn_graph *graph;
    rn_executable *executable;
    uint64_t width, rows;
    bool norms; // one behind every product
    rn_value x, y;
    float *in, *out; // (rows, width) each
    uint64_t bytes;  // of each
} chain;

static rn_status build_chain(chain *c, uint32_t length) {
    char name[32];
    RN_TRY(rn_graph_create(&c->graph));
    c->x = rn_graph_input(c->graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, c->width));
    rn_value at = c->x;
    for (uint32_t i = 0; i < length; i++) {
        snprintf(name, sizeof name, "w%u", i);
        rn_value w = rn_graph_weight(c->graph, name, RN_DTYPE_F32, RN_SHAPE(c->width, c->width));
        at = rn_op_matmul(c->graph, at, w, RN_NO_VALUE);
        if (!c->norms) continue;
        snprintf(name, sizeof name, "n%u", i);
        rn_value n = rn_graph_weight(c->graph, name, RN_DTYPE_F32, RN_SHAPE(c->width));
        at = rn_op_rmsnorm(c->graph, at, n, 1e-5f);
    }
    c->y = at;
    rn_graph_output(c->graph, at, "y");
    return rn_graph_finish(c->graph);
}

// Numbers that neither grow nor fall from product to product.
static rn_status put_weights(chain *c) {
    uint64_t count = c->width * c->width;
    void *block = NULL;
    RN_TRY(rn_alloc(RN_HOST_STAGING, count * sizeof(float), &block));
    float *numbers = block;
    rn_status s = RN_OK;
    rn_drill_fill(numbers, count);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] *= (float)sqrt(3.0 / (double)c->width);
    for (rn_value v = 1; s == RN_OK && v <= rn_graph_value_count(c->graph); v++)
        if (rn_graph_value(c->graph, v)->role == RN_ROLE_WEIGHT)
            s = c->executable->put(c->executable, v, numbers,
                                   rn_executable_value_bytes(c->graph, v, 0));
    rn_free(RN_HOST_STAGING, block, count * sizeof(float));
    return s;
}

static rn_status begin_chain(chain *c, rn_device *device, uint64_t width, uint32_t length,
                             uint64_t rows, bool norms) {
    void *block = NULL;
    *c = (chain){.device = device,
                 .width = width,
                 .rows = rows,
                 .norms = norms,
                 .bytes = rows * width * sizeof(float)};
    RN_TRY(build_chain(c, length));
    RN_TRY(rn_alloc_zeroed(RN_HOST_STAGING, 2, c->bytes, &block));
    c->in = block;
    c->out = c->in + c->bytes / sizeof(float);
    rn_drill_fill(c->in, c->bytes / sizeof(float));
    rn_compile_request request = {
        .graph = c->graph, .buckets = &rows, .bucket_count = 1, .budget_bytes = RN_NO_LIMIT};
    RN_TRY(device->compile(device, &request, &c->executable));
    return put_weights(c);
}

static void end_chain(chain *c) {
    if (c->executable) c->executable->destroy(c->executable);
    if (c->in) rn_free(RN_HOST_STAGING, c->in, 2 * c->bytes);
    rn_graph_destroy(c->graph);
}

static rn_status run_chain(void *self) {
    chain *c = self;
    uint64_t bytes = c->rows * c->width * sizeof(float);
    rn_argument input = {c->x, c->in, bytes}, output = {c->y, c->out, bytes};
    rn_execution run = {
        .rows = c->rows, .inputs = &input, .outputs = &output, .input_count = 1, .output_count = 1};
    return c->executable->run(c->executable, &run);
}

static rn_status time_chain(chain *c, const rn_rates_options *options, double *out_seconds) {
    RN_TRY(run_chain(c)); // what is made once
    return rn_rates_time(options, run_chain, c, out_seconds);
}

// ---- rates --------------------------------------------------------------------------------------

static rn_status predict(const chain *c, const rn_device_caps *caps, double *out_seconds) {
    rn_arena scratch;
    rn_binder binder;
    rn_arena_init(&scratch, RN_HOST_OTHER, 0);
    rn_status s = rn_binder_init(&scratch, c->graph, &binder);
    binder.caps = caps;
    binder.rows = c->rows;
    *out_seconds = caps->run_seconds;
    for (uint32_t n = 0; s == RN_OK && n < rn_graph_node_count(c->graph); n++) {
        rn_call call = rn_binder_bind(&binder, n);
        *out_seconds += rn_cost_call(caps, &call, (rn_workload){0});
    }
    rn_arena_free_all(&scratch);
    return s;
}

// Times fall as a rate grows.
static rn_status fit(const chain *c, double seconds, rn_device_caps *caps, double *rate) {
    double low = 1, high = MOST, told;
    for (int i = 0; i < ROUNDS; i++) {
        *rate = sqrt(low) * sqrt(high);
        RN_TRY(predict(c, caps, &told));
        *(told > seconds ? &low : &high) = *rate;
    }
    return RN_OK;
}

// A product is one node of any engine, a norm several of some: both are in every model, so a step
// is what a node of such a mixture takes, by the engine's own count of them.
static rn_status measure_step(rn_device *device, const rn_rates_sizes *sizes,
                              const rn_rates_options *options, rn_device_caps *caps) {
    double seconds[2] = {0}, steps[2] = {0};
    rn_device_caps one = *caps; // of which a step takes a second, and nothing else does
    one.step_seconds = 1;
    one.run_seconds = 0;
    one.flops = one.quantized_flops = one.memory_bytes_second = MOST;
    for (uint32_t i = 0; i < 2; i++) {
        chain c;
        rn_status s = begin_chain(&c, device, TINY, (i ? 3 : 1) * sizes->steps / 4 + 1, 1, true);
        if (s == RN_OK) s = time_chain(&c, options, &seconds[i]);
        if (s == RN_OK) s = predict(&c, &one, &steps[i]);
        end_chain(&c);
        RN_TRY(s);
    }
    double each = (seconds[1] - seconds[0]) / (steps[1] - steps[0]);
    caps->step_seconds = each > LEAST_STEP ? each : LEAST_STEP;
    double run = seconds[0] - steps[0] * caps->step_seconds;
    caps->run_seconds = run > LEAST_STEP ? run : LEAST_STEP;
    return RN_OK;
}

// The rate, one of *caps, at which chains of products run with so many rows.
static rn_status measure_rate(rn_device *device, const rn_rates_options *options, uint64_t width,
                              uint32_t length, uint64_t rows, rn_device_caps *caps, double *rate) {
    chain c;
    double seconds = 0;
    rn_status s = begin_chain(&c, device, width, length, rows, false);
    if (s == RN_OK) s = time_chain(&c, options, &seconds);
    if (s == RN_OK) s = fit(&c, seconds, caps, rate);
    end_chain(&c);
    return s;
}

// Memory first: products of many rows read weights, too. 600 MB of weights are more than any cache
// holds; of many rows a few do, in runs that are short enough to be repeated.
static rn_status measure_products(rn_device *device, const rn_rates_sizes *sizes,
                                  const rn_rates_options *options, rn_device_caps *caps) {
    enum { LONGER = 4, SHORT = 3, FEWER = 4 };
    uint64_t width = sizes->k / 2, rows = rn_max_u64(sizes->prompt_rows / FEWER, 2);
    caps->flops = caps->quantized_flops = MOST; // the arithmetic of one row is nothing
    RN_TRY(measure_rate(device, options, width, LONGER * sizes->weights, 1, caps,
                        &caps->memory_bytes_second));
    RN_TRY(rn_rates_tell(options, "products of many rows"));
    RN_TRY(measure_rate(device, options, width, SHORT, rows, caps, &caps->flops));
    caps->quantized_flops = caps->flops;
    return RN_OK;
}

rn_status rn_rates_measure_compiled(rn_device *device, const rn_rates_sizes *sizes,
                                    const rn_rates_options *options, rn_device_caps *caps) {
    RN_TRY(rn_rates_tell(options, "nodes and runs"));
    RN_TRY(measure_step(device, sizes, options, caps));
    RN_TRY(rn_rates_tell(options, "memory"));
    return measure_products(device, sizes, options, caps);
}
