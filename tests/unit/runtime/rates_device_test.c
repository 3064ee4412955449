// rates_device_test.c — a device with memory of its own is measured: what it is asked to do, what
// is kept, and what is released whatever fails. How fast it is nobody checks.
#include "support.h"

#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/sim/sim.h"
#include "base/fault.h"
#include "graph/fuse.h"
#include "memory/account.h"
#include "runtime/rates.h"
#include "tensor/tiles.h"

#include <math.h>

// The smallest measurement there is.
static const rn_rates_sizes few = {.prompt_rows = 3,
                                   .narrow = 16,
                                   .wide = 48,
                                   .k = 64,
                                   .weights = 3,
                                   .steps = 2,
                                   .runs = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .keys = 192,
                                   .link_bytes = 4096,
                                   .piece_bytes = 1024,
                                   .seconds = 0};

static rn_rates cpu_rates(void) {
    return (rn_rates){.threads = 1, .cpu_level = "avx2", .cpu = {.disk_bytes_second = 1.9e9}};
}

static rn_device *create_sim(rn_sim_options options) {
    rn_device *device;
    assert_ok(rn_sim_device_create(&options, &device));
    return device;
}

static uint64_t held_by(const rn_device *device) {
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes +
           rn_ledger_total(rn_device_number(device)).now_bytes;
}

static bool is_rate(double rate) {
    return isfinite(rate) && rate > 0;
}

static void assert_measured(const rn_rates_device *d) {
    assert_true(is_rate(d->rates.flops));
    assert_true(is_rate(d->rates.quantized_flops));
    assert_true(is_rate(d->rates.memory_bytes_second));
    assert_true(is_rate(d->rates.link_bytes_second));
    assert_true(is_rate(d->rates.step_seconds));
    assert_true(is_rate(d->rates.run_seconds));
    assert_true(d->rates.disk_bytes_second == 1.9e9); // the host's
}

// ---- what is kept -------------------------------------------------------------------------------

static void a_device_is_measured_and_nothing_stays(void **state) {
    (void)state;
    rn_rates rates = cpu_rates();
    rn_device *device = create_sim((rn_sim_options){0});
    snprintf(device->caps.hardware, sizeof device->caps.hardware, "A card");
    rn_device_caps before = device->caps;
    uint64_t held = held_by(device);
    assert_ok(rn_rates_measure_sized(device, &few, NULL, &rates));
    assert_int_equal(held, held_by(device));
    assert_memory_equal(&before, &device->caps, sizeof before);
    assert_int_equal(1, rates.device_count);
    assert_string_equal("sim", rates.devices[0].name);
    assert_string_equal("A card", rates.devices[0].hardware);
    assert_measured(&rates.devices[0]);
    assert_true(rates.devices[0].rates.own[RN_CUDA_UNPACK_WEIGHTS] == 0); // it has no tiles
    assert_true(rates.devices[0].rates.own[RN_CUDA_UNPACK_BYTES] == 0);
    assert_true(rates.devices[0].rates.own[RN_CUDA_ATTEND_FLOPS] == 0); // nor attention of its own
    assert_true(rates.devices[0].rates.own[RN_CUDA_ATTEND_SECONDS] == 0);
    assert_true(rates.cpu.beside_link >= 0.1 && rates.cpu.beside_link <= 1);
    assert_true(rates.devices[0].rates.link_share >= 0.1);
    assert_true(rates.devices[0].rates.link_share <= 1);
    rn_device_destroy(device);
}

// Copies take at least as long as the link says.
static void a_link_is_not_faster_than_it_is(void **state) {
    (void)state;
    rn_rates rates = cpu_rates();
    rn_device *device = create_sim((rn_sim_options){.link_bytes_second = 4e6});
    rn_rates_sizes sizes = few;
    sizes.piece_bytes = 1500; // the rest is not copied, and does not count
    assert_ok(rn_rates_measure_sized(device, &sizes, NULL, &rates));
    assert_true(rates.devices[0].rates.link_bytes_second <= 4e6 * 1.001);
    rn_device_destroy(device);
}

static void a_device_takes_its_own_place_again_or_the_first(void **state) {
    (void)state;
    rn_rates rates = cpu_rates();
    rn_device *device = create_sim((rn_sim_options){0});
    for (uint32_t i = 0; i < RN_RATES_DEVICES - 1; i++)
        snprintf(rates.devices[i].name, sizeof rates.devices[i].name, "cuda:%u", i);
    rates.device_count = RN_RATES_DEVICES - 1;
    assert_ok(rn_rates_measure_sized(device, &few, NULL, &rates));
    assert_ok(rn_rates_measure_sized(device, &few, NULL, &rates));
    assert_int_equal(RN_RATES_DEVICES, rates.device_count);
    assert_string_equal("sim", rates.devices[RN_RATES_DEVICES - 1].name);
    snprintf(rates.devices[RN_RATES_DEVICES - 1].name, 32, "cuda:99");
    assert_ok(rn_rates_measure_sized(device, &few, NULL, &rates));
    assert_int_equal(RN_RATES_DEVICES, rates.device_count);
    assert_string_equal("sim", rates.devices[0].name);
    assert_string_equal("cuda:1", rates.devices[1].name);
    rn_device_destroy(device);
}

// ---- what it is asked to do ---------------------------------------------------------------------

// A device on paper, with tiles and recordings: it looks at what it is given and does nothing.
static struct {
    uint32_t dtypes[RN_DTYPE_COUNT]; // launches with weights of each
    uint32_t ops[RN_OP_COUNT];
    uint64_t keys; // of all launches of attention
    uint32_t recorded, replayed, forgotten;
    bool recording, is_wrong;
} seen;

static void look_at_weights(const rn_tensor *w) {
    double sum = 0;
    if (w->layout != RN_LAYOUT_TILES) seen.is_wrong = true;
    for (uint64_t i = 0; i < rn_tensor_elements(w); i += 7) {
        uint64_t cols = w->shape.dims[1];
        float value = rn_tiles_at(w->data, w->dtype, w->shape.dims[0], cols, i / cols, i % cols);
        if (!(value >= -1.01f && value <= 1.01f)) seen.is_wrong = true;
        sum += fabs(value);
    }
    if (sum < 1) seen.is_wrong = true; // zeros, or nearly
}

static void look_at_x(const rn_tensor *x) {
    for (uint64_t i = 0; i < rn_tensor_elements(x); i++)
        if (!(fabsf(((const float *)x->data)[i]) <= 1)) seen.is_wrong = true;
}

static void write_results(const rn_call *call) {
    for (uint32_t i = 0; i < call->output_count; i++)
        memset(call->outputs[i].data, 0, rn_tensor_bytes(&call->outputs[i]));
    if (call->workspace_bytes != 96) seen.is_wrong = true;
    memset(call->workspace, 0, call->workspace_bytes);
}

// Weights stand behind x, or behind x and a norm.
static rn_status look(const rn_call *call) {
    uint32_t first = call->op == RN_OP_MATMUL ? 1 : 2;
    const rn_tensor *w = &call->inputs[first];
    look_at_x(&call->inputs[0]);
    look_at_weights(w);
    seen.ops[call->op]++;
    seen.dtypes[w->dtype]++;
    if (call->op == RN_OP_PROJECT_GATED) {
        look_at_weights(w + 2);
        look_at_x(&call->inputs[1]);
        if (w->data == w[2].data || !rn_tensor_given(&call->inputs[1])) seen.is_wrong = true;
    }
    if (call->op == RN_OP_PROJECT) {
        if (rn_tensor_given(&call->inputs[1]) || !rn_tensor_given(&call->inputs[4]))
            seen.is_wrong = true;
        look_at_x(&call->inputs[4]);
    }
    write_results(call);
    return RN_OK;
}

// The last rows of sequence 0, whose pages are all there.
static rn_status look_at_attention(const rn_call *call) {
    const rn_tensor *in = call->inputs;
    const int32_t *sequence = in[4].data, *position = in[5].data, *pages = in[6].data;
    uint64_t rows = in[0].shape.dims[0], keys = in[6].shape.dims[1] * in[3].shape.dims[3];
    for (uint64_t i = 0; i < rows; i++)
        if (sequence[i] != 0 || (uint64_t)position[i] != keys - rows + i) seen.is_wrong = true;
    for (uint64_t i = 0; i < in[6].shape.dims[1]; i++)
        if ((uint64_t)pages[i] != i || i >= in[3].shape.dims[0]) seen.is_wrong = true;
    for (uint32_t i = 0; i < 3; i++)
        look_at_x(&in[i]);
    if (in[3].data != call->outputs[0].data || in[3].dtype != RN_DTYPE_F16) seen.is_wrong = true;
    seen.ops[call->op]++;
    seen.keys += keys;
    if (call->workspace_bytes != 96) seen.is_wrong = true;
    memset(call->workspace, 0, call->workspace_bytes);
    memset(call->outputs[1].data, 0, rn_tensor_bytes(&call->outputs[1]));
    return RN_OK;
}

static uint64_t ask_workspace(const rn_call *call) {
    (void)call;
    return 96;
}

static rn_layout want_tiles(const rn_call *call, uint32_t input) {
    uint64_t rank = call->inputs[input].shape.rank;
    bool is_weight = call->op == RN_OP_MATMUL ? input == 1 : input == 2 || input == 4;
    return is_weight && rank == 2 ? RN_LAYOUT_TILES : RN_LAYOUT_PLAIN;
}

static rn_status record(rn_queue *queue) {
    (void)queue;
    seen.recorded++;
    seen.recording = true;
    return RN_OK;
}

static rn_status keep(rn_queue *queue, rn_recording **out) {
    *out = (rn_recording *)(void *)queue;
    seen.recording = false;
    return RN_OK;
}

static void replay(rn_queue *queue, rn_recording *recording) {
    if ((void *)queue != (void *)recording || seen.recording) seen.is_wrong = true;
    seen.replayed++;
}

static void forget(rn_queue *queue, rn_recording *recording) {
    if ((void *)queue != (void *)recording) seen.is_wrong = true;
    seen.forgotten++;
}

static rn_status open_paper_queue(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                                  rn_queue **out) {
    (void)device, (void)kind;
    RN_TRY(rn_queue_inline_create(rn_host_executor, cancel, out));
    (*out)->record = record;
    (*out)->keep = keep;
    (*out)->replay = replay;
    (*out)->forget = forget;
    return RN_OK;
}

static void weights_are_numbers_in_tiles_and_launches_are_replayed(void **state) {
    (void)state;
    static rn_kernel kernels[RN_OP_COUNT] = {[RN_OP_MATMUL] = {look, ask_workspace},
                                             [RN_OP_PROJECT] = {look, ask_workspace},
                                             [RN_OP_PROJECT_GATED] = {look, ask_workspace},
                                             [RN_OP_ATTEND] = {look_at_attention, ask_workspace}};
    rn_rates rates = cpu_rates();
    rn_device *device = create_sim((rn_sim_options){0});
    device->caps.kernels = kernels;
    device->caps.weight_layout = want_tiles;
    device->caps.fusions = RN_FUSE_ALL;
    device->caps.backend = &rn_cuda_backend;
    device->open_queue = open_paper_queue;
    uint64_t held = held_by(device);
    assert_ok(rn_rates_measure_sized(device, &few, NULL, &rates));
    assert_int_equal(held, held_by(device));
    assert_false(seen.is_wrong);
    assert_measured(&rates.devices[0]);
    assert_true(is_rate(rates.devices[0].rates.own[RN_CUDA_UNPACK_WEIGHTS]));
    assert_true(is_rate(rates.devices[0].rates.own[RN_CUDA_UNPACK_BYTES]));
    assert_true(is_rate(rates.devices[0].rates.own[RN_CUDA_ATTEND_FLOPS]));
    assert_true(is_rate(rates.devices[0].rates.own[RN_CUDA_ATTEND_SECONDS]));
    // Nine timings, of which each was launched once and recorded once, and a run, only recorded.
    assert_int_equal(10, seen.recorded);
    assert_int_equal(10, seen.forgotten);
    assert_true(seen.replayed >= 20);
    assert_int_equal(2 * (few.weights + 4 * few.steps) + 1, seen.dtypes[RN_DTYPE_F16]);
    assert_int_equal(2 * few.weights, seen.dtypes[RN_DTYPE_Q4_0]);
    assert_int_equal(2 * 4, seen.dtypes[RN_DTYPE_BF16]);
    assert_int_equal(2 * 4 + 2 * few.weights, seen.dtypes[RN_DTYPE_Q8_0]);
    // Products of many rows are a layer's, half of them gated; attention is to few keys and to
    // many.
    assert_int_equal(2 * 4, seen.ops[RN_OP_PROJECT]);
    assert_int_equal(2 * 4, seen.ops[RN_OP_PROJECT_GATED]);
    assert_int_equal(2 * 2 * 8, seen.ops[RN_OP_ATTEND]);
    assert_int_equal(2 * 8 * (64 + few.keys), seen.keys);
    rn_device_destroy(device);
}

// ---- rates from times ---------------------------------------------------------------------------

// `rate` is one of *caps, and binds what the drill takes.
static void assert_found(const rn_drill *drill, rn_device_caps *caps, double *rate) {
    double right = *rate, seconds = rn_drill_predict(drill, caps);
    *rate = 1;
    rn_drill_fit(drill, seconds, caps, rate);
    if (fabs(*rate / right - 1) > 1e-6) fail_msg("%g, not %g", *rate, right);
    *rate = right;
}

static void assert_rates_found(rn_device *device, rn_dtype dtype, bool unpacks) {
    rn_device_caps caps = device->caps;
    rn_queue *queue;
    rn_drill drill;
    rn_drill_kind kind = {.rows = 8, .k = 64, .dtype = dtype, .n = {16, 48}, .count = 5};
    caps.flops = caps.quantized_flops = 1e9; // slower than anything else
    caps.memory_bytes_second = 7e12;
    caps.own[RN_CUDA_UNPACK_WEIGHTS] = unpacks ? 3e9 : 0;
    caps.step_seconds = 1e-7;
    assert_ok(device->open_queue(device, RN_QUEUE_COMPUTE, NULL, &queue));
    assert_ok(rn_drill_begin(&drill, device, queue, &kind));
    assert_found(&drill, &caps, dtype == RN_DTYPE_Q4_0 ? &caps.quantized_flops : &caps.flops);
    if (unpacks) assert_found(&drill, &caps, &caps.own[RN_CUDA_UNPACK_WEIGHTS]);
    caps.flops = caps.quantized_flops = 1e18;
    caps.memory_bytes_second = 1e9;
    caps.own[RN_CUDA_UNPACK_WEIGHTS] = 0;
    assert_found(&drill, &caps, &caps.memory_bytes_second);
    rn_drill_end(&drill);
    rn_queue_destroy(queue);
}

static void the_rate_that_foretells_a_time_is_found(void **state) {
    (void)state;
    rn_device *device = create_sim((rn_sim_options){0});
    assert_rates_found(device, RN_DTYPE_F16, false);
    assert_rates_found(device, RN_DTYPE_Q4_0, false);
    device->caps.weight_layout = want_tiles;
    device->caps.fusions = RN_FUSE_ALL;
    device->caps.backend = &rn_cuda_backend;
    assert_rates_found(device, RN_DTYPE_BF16, false);
    assert_rates_found(device, RN_DTYPE_Q4_0, true);
    rn_device_destroy(device);
}

// A time that no rate explains: the rest alone takes longer.
static void a_rate_has_an_end(void **state) {
    (void)state;
    rn_device *device = create_sim((rn_sim_options){0});
    rn_device_caps caps = device->caps;
    rn_drill drill = {.count = 0};
    rn_drill_fit(&drill, -1, &caps, &caps.flops);
    assert_true(caps.flops > 0.99e18 && caps.flops <= 1e18);
    rn_device_destroy(device);
}

// ---- failures -----------------------------------------------------------------------------------

static void the_hosts_memory_is_no_devices(void **state) {
    (void)state;
    rn_rates rates = cpu_rates();
    rn_device *device;
    assert_ok(rn_cpu_device_create(1, &device));
    assert_fails(RN_INVALID, rn_rates_measure_device(device, NULL, &rates));
    assert_int_equal(0, rates.device_count);
    rn_device_destroy(device);
}

static void a_device_that_is_too_small_says_so(void **state) {
    (void)state;
    rn_rates rates = cpu_rates();
    rn_device *device = create_sim((rn_sim_options){.memory_bytes = 8192});
    uint64_t held = held_by(device);
    assert_fails(RN_OVER_BUDGET, rn_rates_measure_sized(device, &few, NULL, &rates));
    assert_int_equal(0, rates.device_count);
    assert_int_equal(held, held_by(device));
    rn_device_destroy(device);
}

static rn_status measure_armed(uint32_t alloc, uint32_t launch, uint32_t copy) {
    rn_rates rates = cpu_rates();
    rn_device *device = create_sim((rn_sim_options){0});
    uint64_t held = held_by(device);
    rn_sim_device_arm(device, alloc, launch, copy);
    rn_status s = rn_rates_measure_sized(device, &few, NULL, &rates);
    assert_int_equal(held, held_by(device));
    assert_int_equal(s == RN_OK, rates.device_count);
    assert_int_equal(s == RN_OK, rates.cpu.beside_link > 0);
    rn_device_destroy(device);
    return s;
}

static void whatever_fails_on_the_device_is_told_and_given_back(void **state) {
    (void)state;
    // The link, the steps (and runs of them), and three kinds of products have a block each.
    for (uint32_t n = 1; n <= 5; n++)
        assert_int_equal(RN_NO_MEMORY, measure_armed(n, 0, 0));
    assert_ok(measure_armed(6, 0, 0));
    for (uint32_t n = 1; n <= 64; n *= 2)
        assert_int_equal(RN_DEVICE, measure_armed(0, n, 0));
    for (uint32_t n = 1; n <= 32; n *= 2)
        assert_int_equal(RN_DEVICE, measure_armed(0, 0, n));
    // How many there are depends on the time that the CPU takes beside them: not so many.
    assert_ok(measure_armed(0, 0, UINT32_MAX));
}

static void every_failing_allocation_is_a_clean_failure(void **state) {
    (void)state;
    rn_device *device = create_sim((rn_sim_options){0});
    uint64_t held = held_by(device), n = 1;
    for (;; n++) {
        rn_rates rates = cpu_rates();
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_rates_measure_sized(device, &few, NULL, &rates);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(held, held_by(device));
        assert_int_equal(fired, s != RN_OK);
        assert_int_equal(!fired, rates.device_count);
        if (!fired) break;
    }
    assert_true(n > 1);
    rn_device_destroy(device);
}

// By executables, since it has no queues; and whatever fails, nothing stays.
static void a_device_that_compiles_is_measured(void **state) {
    (void)state;
    rn_device *device = create_sim((rn_sim_options){.compiles = 1});
    uint64_t held = held_by(device), n = 1;
    for (;; n++) {
        rn_rates rates = cpu_rates();
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_rates_measure_sized(device, &few, NULL, &rates);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(held, held_by(device));
        assert_int_equal(fired, s != RN_OK);
        if (fired) continue;
        assert_int_equal(rates.device_count, 1);
        assert_measured(&rates.devices[0]);
        break;
    }
    assert_true(n > 1);
    rn_device_destroy(device);
}

typedef struct stopper {
    volatile bool stop;
    int left; // measurements before it
} stopper;

static void stop_later(void *self, const char *what) {
    stopper *s = self;
    assert_true(strlen(what) > 0);
    if (s->left-- == 0) s->stop = true;
}

static void a_measurement_can_be_stopped_at_any_time(void **state) {
    (void)state;
    for (int left = 0; left < 8; left++) {
        rn_rates rates = cpu_rates();
        rn_device *device = create_sim((rn_sim_options){0});
        uint64_t held = held_by(device);
        stopper stop = {.left = left};
        rn_rates_options options = {.cancel = &stop.stop, .progress = stop_later, .self = &stop};
        rn_status s = rn_rates_measure_sized(device, &few, &options, &rates);
        assert_int_equal(left < 7 ? RN_CANCELLED : RN_OK, s); // there are seven
        assert_int_equal(left < 7 ? 0 : 1, rates.device_count);
        assert_int_equal(held, held_by(device));
        rn_device_destroy(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_measured_and_nothing_stays),
        cmocka_unit_test(a_device_that_compiles_is_measured),
        cmocka_unit_test(a_link_is_not_faster_than_it_is),
        cmocka_unit_test(a_device_takes_its_own_place_again_or_the_first),
        cmocka_unit_test(weights_are_numbers_in_tiles_and_launches_are_replayed),
        cmocka_unit_test(the_rate_that_foretells_a_time_is_found),
        cmocka_unit_test(a_rate_has_an_end),
        cmocka_unit_test(the_hosts_memory_is_no_devices),
        cmocka_unit_test(a_device_that_is_too_small_says_so),
        cmocka_unit_test(whatever_fails_on_the_device_is_told_and_given_back),
        cmocka_unit_test(every_failing_allocation_is_a_clean_failure),
        cmocka_unit_test(a_measurement_can_be_stopped_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
