// cost.c — seconds: of a node, of a read, of a run in which both go on side by side.
//
//     compute  |--0--|--1--|..wait..|---2---|          a node waits for the READ of its use,
//     read        |----use 2-----|--use 3--|           a READ for the EVICT that frees its slot
//
// Rates are the device's, as measured; a node is bound by arithmetic or by memory, whichever is
// slower, and has a fixed cost.
#include "plan/planner.h"

static double max_f64(double a, double b) {
    return a > b ? a : b;
}

// Products with quantised weights run on int8 units, unless activations stay as they are.
static bool is_quantized(const rn_call *call) {
    const rn_matmul_attrs *a = call->attrs;
    if (call->op == RN_OP_MATMUL && a->plain_activations) return false;
    for (uint32_t i = 0; i < call->input_count; i++) {
        rn_dtype dtype = call->inputs[i].dtype;
        if (rn_dtype_get(dtype)->block_elements > 1 || dtype == RN_DTYPE_INT8) return true;
    }
    return false;
}

// A product brings each panel of weights to its rows once, which costs as much as eight rows more:
// measured on q4_0, 1.1 billion weights: 129, 183, 224, 242, 267 tokens/s with 8, 16, 32, 64, 512.
enum { PANEL_ROWS = 8 };

static double product_overhead(const rn_call *call) {
    const rn_tensor *y = &call->outputs[0];
    uint32_t last = y->shape.rank - 1;
    if (call->op != RN_OP_MATMUL || y->shape.dims[last] == 0) return 1;
    double rows = (double)rn_shape_elements(y->shape, 1) / (double)y->shape.dims[last];
    return 1 + PANEL_ROWS / max_f64(rows, 1);
}

double rn_cost_call(const rn_device_caps *caps, const rn_call *call) {
    const rn_op_info *op = rn_op_get(call->op);
    rn_cost cost = {0};
    if (op->cost)
        op->cost(call, &cost);
    else
        rn_cost_bytes(call, &cost);
    double arithmetic = cost.flops / (is_quantized(call) ? caps->quantized_flops : caps->flops);
    arithmetic *= product_overhead(call);
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return max_f64(arithmetic, memory) + caps->step_seconds;
}

double rn_cost_read(const rn_device_caps *caps, uint64_t file_bytes, uint64_t bytes) {
    double disk = (double)file_bytes / caps->disk_bytes_second;
    return caps->own_memory ? max_f64(disk, (double)bytes / caps->link_bytes_second) : disk;
}

// ---- two queues ---------------------------------------------------------------------------------

typedef struct queues {
    const rn_device_caps *caps;
    const rn_plan_unit *units;
    const rn_stream *stream;
    double compute, read; // when each is done with what it has
    double *ready;        // (uses): when its weights are there
} queues;

static void submit_read(queues *q, uint32_t use, double earliest) {
    const rn_plan_unit *unit = &q->units[q->stream->uses[use].unit];
    q->read = max_f64(q->read, earliest) + rn_cost_read(q->caps, unit->file_bytes, unit->bytes);
    q->ready[use] = q->read;
}

// Before the first run: the READs that a run makes for the next one.
static void fill_slots(queues *q) {
    for (uint32_t i = 0; i < q->stream->use_count; i++) {
        bool next_run = false;
        uint32_t follower = rn_stream_follower(q->stream, q->stream->by_last[i], &next_run);
        if (next_run) submit_read(q, follower, 0);
    }
}

static void run_once(queues *q, const double *seconds, uint32_t positions) {
    const rn_stream *s = q->stream;
    uint32_t begun = 0, evicted = 0;
    for (uint32_t p = 0; p < positions; p++) {
        for (; begun < s->use_count && s->uses[begun].first == p; begun++)
            q->compute = max_f64(q->compute, q->ready[begun]);
        q->compute += seconds[p];
        for (; evicted < s->use_count && s->uses[s->by_last[evicted]].last == p; evicted++) {
            bool next_run = false;
            submit_read(q, rn_stream_follower(s, s->by_last[evicted], &next_run), q->compute);
        }
    }
}

// The third of three runs: by then reads of one run overlap the end of the one before, as they will
// in all that follow.
double rn_cost_run(const rn_device_caps *caps, const double *seconds, uint32_t positions,
                   const rn_plan_unit *units, const rn_stream *stream, double *ready) {
    queues q = {.caps = caps, .units = units, .stream = stream, .ready = ready};
    double computing = 0, reading = 0;
    for (uint32_t p = 0; p < positions; p++)
        computing += seconds[p];
    if (stream->slot_count == 0) return computing;
    for (uint32_t u = 0; u < stream->use_count; u++) {
        const rn_plan_unit *unit = &units[stream->uses[u].unit];
        reading += rn_cost_read(caps, unit->file_bytes, unit->bytes);
    }
    fill_slots(&q);
    run_once(&q, seconds, positions);
    run_once(&q, seconds, positions);
    double begin = q.compute;
    run_once(&q, seconds, positions);
    // A run that waits for nothing takes just as long as its steps: sums of other orders differ in
    // their last bits, and would make equal plans look unequal.
    double run = max_f64(q.compute - begin, max_f64(computing, reading));
    return run < computing * (1 + 1e-9) ? computing : run;
}
