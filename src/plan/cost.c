// cost.c — seconds: of a node, of a read, of a run in which both go on side by side.
//
//     compute  |--0--|--1--|..wait..|---2---|          a node waits for the READ of its use,
//     read        |----use 2-----|--use 3--|           a READ for the EVICT that frees its slot
//     send                  |--trip--|                 what leaves for the host holds its place
//
// Rates are the device's, as measured; a node is bound by arithmetic or by memory, whichever is
// slower, and has a fixed cost. Products with weights in tiles, and attention where it is a kernel
// of its own, are another matter: below. A device with memory of its own costs the host something
// in each run, too.
#include "plan/planner.h"

#include "base/checked.h"
#include "tensor/tiles.h"

static double max_f64(double a, double b) {
    return a > b ? a : b;
}

static bool is_product(rn_op op) {
    return op == RN_OP_MATMUL || op == RN_OP_PROJECT || op == RN_OP_PROJECT_THREE ||
           op == RN_OP_PROJECT_GATED;
}

// Of the result: all its axes but the last.
static double count_rows(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    uint64_t cols = y.rank ? y.dims[y.rank - 1] : 1;
    return cols ? (double)rn_shape_elements(y, 1) / (double)cols : 0;
}

// ---- products with weights in tiles -------------------------------------------------------------

// The matrix units of a GPU (tensor/tiles.h). For few rows weights are brought to them as memory
// brings them, or as fast as they can be unpacked; what the units then do with the rows is not
// hidden behind that, so both are counted. One row is packed by the product itself, several by a
// launch before it.

static bool is_tiled(const rn_tensor *input) {
    return rn_tensor_given(input) && input->layout == RN_LAYOUT_TILES;
}

// A table of embeddings that is also a head lies in tiles, too.
static bool has_tiles(const rn_call *call) {
    for (uint32_t i = 0; is_product(call->op) && i < call->input_count; i++)
        if (is_tiled(&call->inputs[i])) return true;
    return false;
}

static bool is_packed(const rn_tensor *w) {
    return rn_tile_form_of(w->dtype) > RN_TILE_BF16;
}

// nf4 looks each weight up in a table, where others shift and subtract: an H200 needed so many
// times as long to unpack it as q4_0, and to multiply many rows by it as by q8_0.
static const double nf4_unpacking = 1.9, nf4_products = 1.3;

// Weights a second; 0: as fast as memory.
static double unpacking_rate(const rn_device_caps *caps, const rn_tensor *w) {
    rn_tile_form form = rn_tile_form_of(w->dtype);
    if (!is_packed(w)) return 0;
    if (form == RN_TILE_N4) return caps->unpack_weights_second / nf4_unpacking;
    return form == RN_TILE_Q4 || form == RN_TILE_A4 ? caps->unpack_weights_second
                                                    : caps->unpack_bytes_second;
}

// Of the matrix units, with weights like these.
static double products_rate(const rn_device_caps *caps, const rn_tensor *w) {
    if (!is_packed(w)) return caps->flops;
    return caps->quantized_flops / (rn_tile_form_of(w->dtype) == RN_TILE_N4 ? nf4_products : 1);
}

static double cost_tiled_weight(const rn_device_caps *caps, const rn_tensor *w, double rows) {
    double elements = (double)rn_tensor_elements(w), rate = unpacking_rate(caps, w);
    double bring = (double)rn_tensor_bytes(w) / caps->memory_bytes_second;
    if (rate > 0) bring = max_f64(bring, elements / rate);
    return bring + 2 * rows * elements / products_rate(caps, w);
}

// Weights of one form follow each other in one launch.
static double cost_few_rows(const rn_device_caps *caps, const rn_call *call, rn_cost cost) {
    double rows = count_rows(call), seconds = rows > 1 ? caps->step_seconds : 0;
    double other_bytes = cost.read_bytes + cost.write_bytes;
    rn_tile_form form = RN_TILE_NONE;
    for (uint32_t i = 0; i < call->input_count; i++) {
        const rn_tensor *w = &call->inputs[i];
        if (!is_tiled(w)) continue;
        if (rn_tile_form_of(w->dtype) != form) seconds += caps->step_seconds;
        form = rn_tile_form_of(w->dtype);
        seconds += cost_tiled_weight(caps, w, rows);
        other_bytes -= (double)rn_tensor_bytes(w);
    }
    return seconds + other_bytes / caps->memory_bytes_second;
}

// Many rows are cut into tiles, and multiprocessors take them in turns: a turn that leaves some of
// them idle takes as long as a full one. What a block waits for are its operands, column by column,
// so it takes as long as its tile's sides are, not as its area; the products' rate is that of tiles
// of 128 x 128. Blocks that run at the same time fill their pipelines and empty them, neither of
// which takes less than a kernel's minimum, and a launch waits for the one before it: on an H200
// the products of a layer one after the other took 20 to 40 us more than each by itself.
static double cost_cut(const rn_device_caps *caps, const rn_product_cut *cut, double flops,
                       double weight_bytes) {
    enum { SIDE = 128 };
    double rate = flops / caps->multiprocessors;
    double block = SIDE * (double)cut->columns * (cut->rows + cut->tokens) / rate;
    uint64_t turns = rn_div_up(cut->blocks, caps->multiprocessors);
    double seconds = max_f64((double)turns * block, weight_bytes / caps->memory_bytes_second);
    seconds += (1 + 2 * (double)rn_div_up(turns, cut->together)) * caps->step_seconds;
    if (cut->partial_bytes) // written, and read by the launch that joins them
        seconds += caps->step_seconds + 2 * (double)cut->partial_bytes / caps->memory_bytes_second;
    return seconds;
}

// A launch of its own: x in 32 bits becomes packed rows in 16; for a norm it is read twice.
static double cost_packing(const rn_device_caps *caps, const rn_call *call) {
    bool normed = call->op != RN_OP_MATMUL && rn_tensor_given(&call->inputs[1]);
    double bytes = (double)rn_tensor_bytes(&call->inputs[0]) * (normed ? 2.5 : 1.5);
    return 2 * caps->step_seconds + bytes / caps->memory_bytes_second;
}

// The bytes of the weights of the launch, which begin at *input.
static double take_weights(const rn_device_caps *caps, const rn_call *call, uint32_t count,
                           uint32_t *input, double *flops) {
    double bytes = 0;
    for (; count > 0 && *input < call->input_count; ++*input) {
        const rn_tensor *w = &call->inputs[*input];
        if (!is_tiled(w)) continue;
        bytes += (double)rn_tensor_bytes(w);
        *flops = products_rate(caps, w);
        count--;
    }
    return bytes;
}

static double cost_tiled_product(const rn_device_caps *caps, const rn_call *call, rn_cost cost) {
    rn_product_cut cuts[RN_PRODUCT_CUTS];
    uint32_t count = 0, input = 0;
    if (caps->multiprocessors && caps->cut_product)
        count = caps->cut_product(call, caps->multiprocessors, cuts);
    if (count == 0) return cost_few_rows(caps, call, cost);
    double seconds = cost_packing(caps, call);
    double other_bytes =
        cost.read_bytes + cost.write_bytes - (double)rn_tensor_bytes(&call->inputs[0]);
    for (uint32_t i = 0; i < count; i++) {
        double flops = caps->flops;
        double bytes = take_weights(caps, call, cuts[i].weights, &input, &flops);
        seconds += cost_cut(caps, &cuts[i], flops, bytes);
        other_bytes -= bytes;
    }
    return seconds + other_bytes / caps->memory_bytes_second;
}

// ---- attention ----------------------------------------------------------------------------------

// Where it is a kernel of its own. Inputs of ATTEND: q (rows, H, D), k, v, kv (pages, 2, HK,
// tokens, D), sequence, position, page_table (sequences, pages).
//
// One row or a few: a block for each chunk of keys, whose launch waits for memory twice (for q, and
// then for keys), and one that joins the chunks, if there can be several. Many rows: one launch
// appends keys, in the next each block walks along its rows' keys, which takes some time however
// few they are.

// Keys that a row sees, in the middle of a typical job; where none is known, as if all pages were
// full.
static double count_keys(const rn_call *call, double full, rn_workload workload) {
    const rn_attend_attrs *attrs = call->attrs;
    double sequences = max_f64((double)call->inputs[6].shape.dims[0], 1);
    double rows = max_f64((double)call->inputs[0].shape.dims[0] / sequences, 1);
    double prompt = (double)workload.rows / sequences, keys = full - (rows - 1) / 2;
    if (workload.rows) keys = rows > 1 ? prompt / 2 : prompt + (double)workload.passes / 2;
    if (attrs->attention.window && keys > attrs->attention.window) keys = attrs->attention.window;
    return keys < 1 ? 1 : keys < full ? keys : full;
}

static double cost_attend(const rn_device_caps *caps, const rn_call *call, rn_cost cost,
                          rn_workload workload) {
    enum { FEW_ROWS = 16, CHUNK = 256 };
    const rn_tensor *q = &call->inputs[0], *kv = &call->inputs[3], *table = &call->inputs[6];
    double full = (double)(table->shape.dims[1] * kv->shape.dims[3]);
    double keys = count_keys(call, full, workload);
    double pages = (double)rn_tensor_bytes(kv) * (full > 0 ? 1 - keys / full : 0); // nobody reads
    double memory = (cost.read_bytes + cost.write_bytes - pages) / caps->memory_bytes_second;
    double flops = 4 * (double)rn_tensor_elements(q) * keys;
    double arithmetic = flops / (caps->attend_flops > 0 ? caps->attend_flops : caps->flops);
    bool few = q->shape.dims[0] <= FEW_ROWS;
    double launches = few && full > CHUNK ? 3 : 2;
    return launches * caps->step_seconds + (few ? 0 : caps->attend_seconds) +
           max_f64(memory, arithmetic);
}

// ---- any other call -----------------------------------------------------------------------------

static bool keeps_activations(const rn_call *call) {
    if (call->op == RN_OP_MATMUL) return ((const rn_matmul_attrs *)call->attrs)->plain_activations;
    return is_product(call->op) && ((const rn_project_attrs *)call->attrs)->plain_activations;
}

// Products with quantised weights run on int8 units, unless activations stay as they are.
static bool is_quantized(const rn_call *call) {
    if (keeps_activations(call)) return false;
    for (uint32_t i = 0; i < call->input_count; i++) {
        rn_dtype dtype = call->inputs[i].dtype;
        if (rn_dtype_get(dtype)->block_elements > 1 || dtype == RN_DTYPE_INT8) return true;
    }
    return false;
}

// A product brings its weights to its rows once, which costs as much as some rows more.
static double product_overhead(const rn_device_caps *caps, const rn_call *call) {
    if (!is_product(call->op)) return 1;
    return 1 + caps->product_rows / max_f64(count_rows(call), 1);
}

double rn_cost_call(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    const rn_op_info *op = rn_op_get(call->op);
    rn_cost cost = {0};
    if (op->cost)
        op->cost(call, &cost);
    else
        rn_cost_bytes(call, &cost);
    if (has_tiles(call)) return cost_tiled_product(caps, call, cost);
    if (caps->fuses && call->op == RN_OP_ATTEND) return cost_attend(caps, call, cost, workload);
    double arithmetic = cost.flops / (is_quantized(call) ? caps->quantized_flops : caps->flops);
    arithmetic *= product_overhead(caps, call);
    double memory = (cost.read_bytes + cost.write_bytes) / caps->memory_bytes_second;
    return max_f64(arithmetic, memory) + caps->step_seconds;
}

// What comes out crosses the link, and one thread looks at every number of it: a sampler for the
// largest one. That was 0.21 ns a number on one CPU, 6.6 us for 32,000 logits.
double rn_cost_outputs(const rn_device_caps *caps, uint64_t bytes) {
    const double look_bytes_second = 19e9;
    if (caps->run_seconds <= 0) return 0;
    return caps->run_seconds +
           (double)bytes * (1 / caps->link_bytes_second + 1 / look_bytes_second);
}

double rn_cost_read(const rn_device_caps *caps, uint64_t file_bytes, uint64_t bytes,
                    bool from_host) {
    double disk = from_host ? 0 : (double)file_bytes / caps->disk_bytes_second;
    return caps->own_memory ? max_f64(disk, (double)bytes / caps->link_bytes_second) : disk;
}

double rn_cost_copy(const rn_device_caps *caps, uint64_t bytes) {
    return (double)bytes / caps->link_bytes_second + caps->step_seconds;
}

// ---- queues -------------------------------------------------------------------------------------

typedef struct queues {
    const rn_device_caps *caps;
    const rn_traffic *traffic;
    const rn_stream *stream;
    double compute, read, send;     // when each is done with what it has
    double *sent, *brought;         // (trips): when that is done
    uint32_t away, gone, due, back; // of the orders of trips, how many have come up
} queues;

static void submit_read(queues *q, uint32_t use, double earliest) {
    const rn_plan_unit *unit = &q->traffic->units[q->stream->uses[use].unit];
    q->read = max_f64(q->read, earliest) +
              rn_cost_read(q->caps, unit->file_bytes, unit->bytes, q->stream->from_host);
    q->traffic->ready[use] = q->read;
}

// Before the first run: the READs that a run makes for the next one.
static void fill_slots(queues *q) {
    for (uint32_t i = 0; i < q->stream->use_count; i++) {
        bool next_run = false;
        uint32_t follower = rn_stream_follower(q->stream, q->stream->by_last[i], &next_run);
        if (next_run) submit_read(q, follower, 0);
    }
}

// Whether a trip is made.
static bool is_made(const queues *q, uint32_t trip) {
    return !(q->traffic->no_homes && q->traffic->trips->list[trip].home);
}

// Before the position: what is brought from here on, what must be there.
static void bring(queues *q, uint32_t position) {
    const rn_trips *t = q->traffic->trips;
    for (; q->due < t->count && t->list[t->by_due[q->due]].due == position; q->due++) {
        uint32_t trip = t->by_due[q->due];
        if (!is_made(q, trip)) continue;
        q->read = max_f64(q->read, q->compute) + rn_cost_copy(q->caps, t->list[trip].bytes);
        q->brought[trip] = q->read;
    }
    for (; q->back < t->count && t->list[t->by_back[q->back]].back == position; q->back++)
        if (is_made(q, t->by_back[q->back]))
            q->compute = max_f64(q->compute, q->brought[t->by_back[q->back]]);
}

// Behind it: what is sent from here on, what must have left.
static void send(queues *q, uint32_t position) {
    const rn_trips *t = q->traffic->trips;
    for (; q->away < t->count && t->list[t->by_away[q->away]].away == position; q->away++) {
        uint32_t trip = t->by_away[q->away];
        if (!is_made(q, trip)) continue;
        q->send = max_f64(q->send, q->compute) + rn_cost_copy(q->caps, t->list[trip].bytes);
        q->sent[trip] = q->send;
    }
    for (; q->gone < t->count && t->list[t->by_gone[q->gone]].gone == position; q->gone++)
        if (is_made(q, t->by_gone[q->gone]))
            q->compute = max_f64(q->compute, q->sent[t->by_gone[q->gone]]);
}

static void run_once(queues *q, const double *seconds, uint32_t positions) {
    const rn_stream *s = q->stream;
    bool has_trips = q->traffic->trips && q->traffic->trips->count;
    uint32_t begun = 0, evicted = 0;
    q->away = q->gone = q->due = q->back = 0;
    for (uint32_t p = 0; p < positions; p++) {
        if (has_trips) bring(q, p);
        for (; begun < s->use_count && s->uses[begun].first == p; begun++)
            q->compute = max_f64(q->compute, q->traffic->ready[begun]);
        q->compute += seconds[p];
        if (has_trips) send(q, p);
        for (; evicted < s->use_count && s->uses[s->by_last[evicted]].last == p; evicted++) {
            bool next_run = false;
            submit_read(q, rn_stream_follower(s, s->by_last[evicted], &next_run), q->compute);
        }
    }
}

// The third of three runs: by then reads of one run overlap the end of the one before, as they will
// in all that follow.
double rn_cost_run(const rn_device_caps *caps, const double *seconds, uint32_t positions,
                   const rn_traffic *traffic) {
    const rn_stream *stream = traffic->stream;
    uint32_t trips = traffic->trips ? traffic->trips->count : 0;
    queues q = {.caps = caps,
                .traffic = traffic,
                .stream = stream,
                .sent = traffic->done,
                .brought = trips ? traffic->done + trips : NULL};
    double computing = 0, reading = 0;
    for (uint32_t p = 0; p < positions; p++)
        computing += seconds[p];
    if (stream->slot_count == 0 && trips == 0) return computing;
    for (uint32_t u = 0; stream->slot_count && u < stream->use_count; u++) {
        const rn_plan_unit *unit = &traffic->units[stream->uses[u].unit];
        reading += rn_cost_read(caps, unit->file_bytes, unit->bytes, stream->from_host);
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
