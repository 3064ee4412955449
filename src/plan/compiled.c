// compiled.c — plans for devices that compile graphs as a whole.
//
//     blocks   0 ── 1 ── x ──▶ 2 ── 3 ── ... ── head
//              host, kernels   device, one executable
//
// An executable's memory is its back end's own: what it will hold is estimated, and either fits the
// budget or does not. So there are two moves: fewer rows a run, and, where even a run of one row is
// too much, or where a block has an op that the back end refuses, the first blocks on the CPU by
// kernels, as few as will do (options->host_caps). Rows
// come in *buckets*, shapes for which there are programs. Before either, a back end that keeps
// copies of weights to be faster does without them (rn_backend.has_frugal).
//
// Where the device's memory is the host's (XLA for the CPU, ONNX Runtime), both parts share one
// budget: the CPU's blocks get what the executable leaves, and stream their weights where that is
// less than they want.
#include "plan/planner.h"

#include "base/checked.h"
#include "device/executable.h"
#include "device/registry.h"
#include "graph/cut.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <string.h>

#define FROM RN_HOST_OTHER

typedef struct maker {
    const rn_recipe *recipe;
    const rn_device_caps *caps;
    rn_device_caps host; // the CPU, with as many threads as the device
    rn_plan_options options;
    bool hybrid;          // the CPU may compute the first blocks
    uint32_t least_block; // of the executable in the attempt that takes least
    uint32_t blocks;      // of the recipe's graph
    bool has_rows;
    uint64_t table_bytes;  // of a second plan, for the CPU's blocks
    rn_error_info refusal; // of the whole graph, where the back end does not compute some op of it
} maker;

// One way to do it.
typedef struct attempt {
    uint64_t rows;
    uint32_t first_block; // of the executable; those before are the host's
    bool frugal;          // rn_device_caps.frugal
    rn_graph *graph;      // of the executable
    rn_plan *host;        // of the blocks before, where they share its memory
    uint64_t purpose_bytes[RN_PURPOSE_COUNT];
    uint64_t bytes; // of the device's budget
    uint64_t
        host_bytes; // what a session holds beside it; part of `bytes` where memory is the host's
} attempt;

// ---- attempts -----------------------------------------------------------------------------------

static void drop(attempt *a) {
    rn_graph_destroy(a->graph);
    rn_plan_destroy(a->host);
    a->graph = NULL;
    a->host = NULL;
}

// Blocks [first, end) of the recipe's graph. RN_UNSUPPORTED: it cannot be cut there.
static rn_status build(const rn_recipe *recipe, uint32_t first, uint32_t end, rn_graph **out) {
    rn_graph *whole = NULL;
    rn_arena scratch;
    bool *keep; // (blocks)
    *out = NULL;
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = recipe->build(recipe->self, &(rn_recipe_options){0}, &whole);
    uint32_t blocks = s == RN_OK ? rn_graph_block_count(whole) : 0;
    if (s == RN_OK && first == 0 && end >= blocks) {
        *out = whole;
        return RN_OK;
    }
    if (s == RN_OK) s = rn_arena_array(&scratch, blocks, sizeof *keep, (void **)&keep);
    for (uint32_t b = first; s == RN_OK && b < end && b < blocks; b++)
        keep[b] = true;
    if (s == RN_OK) s = rn_graph_keep_blocks(whole, keep, out);
    if (s == RN_OK && rn_graph_node_count(*out) == 0) {
        s = rn_fail(RN_UNSUPPORTED, "blocks %u to %u of '%s' have no nodes", first, end,
                    recipe->name);
        rn_graph_destroy(*out);
        *out = NULL;
    }
    // What crosses is an output of the graph, or none of its values.
    if (s == RN_INVALID) s = rn_fail(RN_UNSUPPORTED, "%s", rn_last_error()->message);
    rn_arena_free_all(&scratch);
    rn_graph_destroy(whole);
    return s;
}

static bool is_held(const rn_graph *graph, rn_value value) {
    const rn_value_info *info = rn_graph_value(graph, value);
    if (info->role == RN_ROLE_OUTPUT) return true;
    return info->producer == RN_NO_NODE && rn_executable_reads(graph, value);
}

// What a session holds on the host: inputs and outputs, a weight or state on its way (a weight of a
// quantised kind once more, widened), the reader's buffers.
static uint64_t count_host(const maker *m, const rn_graph *graph, uint64_t rows) {
    uint64_t io = 0, largest = 0;
    bool weights = false;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (!is_held(graph, v)) continue;
        uint64_t bytes = rn_executable_value_bytes(graph, v, rows);
        if (info->role == RN_ROLE_INPUT || info->role == RN_ROLE_OUTPUT)
            io += rn_round_up(bytes, RN_PLAN_ALIGN);
        if (info->role == RN_ROLE_STATE) largest = rn_max_u64(largest, bytes); // its zeros
        if (info->role != RN_ROLE_WEIGHT) continue;
        weights = true;
        if (rn_dtype_get(info->dtype)->block_elements > 1 ||
            (!m->caps->own_memory && info->dtype != RN_DTYPE_F32))
            bytes += sizeof(float) * rn_shape_elements(info->shape, rows);
        if (m->caps->cores > 1) bytes += bytes / m->caps->cores; // a core's part, on its way
        largest = rn_max_u64(largest, bytes);
    }
    bool staging = weights && !m->recipe->weights_in_memory;
    if (m->caps->backend->host_bytes)
        io += rn_round_up(m->caps->backend->host_bytes(m->caps, graph), RN_PLAN_SLOT_ALIGN);
    return io + rn_round_up(largest, RN_PLAN_SLOT_ALIGN) + (staging ? RN_PLAN_STAGING_BYTES : 0);
}

// `fast`: with what makes it fast, if there is such a thing.
static rn_status try_it(const maker *m, uint64_t rows, uint32_t first_block, bool fast,
                        attempt *out) {
    rn_device_caps caps = *m->caps;
    caps.frugal = caps.frugal || !fast;
    *out = (attempt){.rows = rows, .first_block = first_block, .frugal = caps.frugal};
    RN_TRY(build(m->recipe, first_block, UINT32_MAX, &out->graph));
    RN_TRY(caps.backend->estimate(&caps, out->graph, rows, out->purpose_bytes));
    out->host_bytes = count_host(m, out->graph, rows);
    if (first_block && !m->caps->own_memory) out->purpose_bytes[RN_PURPOSE_OTHER] += m->table_bytes;
    if (!m->caps->own_memory) out->purpose_bytes[RN_PURPOSE_STAGING] += out->host_bytes;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (!rn_add_u64(out->bytes, out->purpose_bytes[p], &out->bytes))
            return rn_fail(RN_INVALID, "'%s' is more than memory can hold", m->recipe->name);
    return RN_OK;
}

// ---- the host's blocks --------------------------------------------------------------------------

typedef struct host_recipe {
    const rn_recipe *recipe;
    uint32_t end; // block
} host_recipe;

static rn_status build_host(void *self, const rn_recipe_options *options, rn_graph **out) {
    const host_recipe *h = self;
    (void)options;
    return build(h->recipe, 0, h->end, out);
}

static rn_status plan_host(const maker *m, const attempt *a, uint64_t budget, rn_plan **out) {
    host_recipe self = {m->recipe, a->first_block};
    rn_recipe recipe = *m->recipe;
    rn_plan_options options = {.effort = m->options.effort,
                               .budget_bytes = rn_max_u64(budget, 1),
                               .experts = RN_EXPERTS_NEVER};
    recipe.self = &self;
    recipe.build = build_host;
    recipe.destroy = NULL;
    recipe.rows = a->rows;
    return rn_plan_make_alone(&recipe, &m->host, &options, NULL, out);
}

// Whether an attempt with blocks on the host fits. In one memory they are planned with what it
// leaves; elsewhere their budget is looked at when the plan is written.
static rn_status fit(const maker *m, uint64_t room, attempt *a, bool *out) {
    *out = a->bytes <= room;
    if (!*out || m->caps->own_memory) return RN_OK;
    uint64_t left = room == RN_NO_LIMIT ? RN_NO_LIMIT : room - a->bytes;
    rn_status s = plan_host(m, a, left, &a->host);
    *out = s == RN_OK;
    return s == RN_OVER_BUDGET || s == RN_UNSUPPORTED ? RN_OK : s;
}

// The fewest bytes that an attempt takes with its blocks on the host.
static rn_status count_least(const maker *m, attempt *a, uint64_t *out) {
    *out = a->bytes;
    if (a->first_block == 0 || m->caps->own_memory) return RN_OK;
    RN_TRY(plan_host(m, a, RN_NO_LIMIT, &a->host));
    if (rn_add_u64(a->bytes, a->host->summary.smallest_bytes, out)) return RN_OK;
    return rn_fail(RN_INVALID, "'%s' is more than memory can hold", m->recipe->name);
}

// ---- searching ----------------------------------------------------------------------------------

// What takes least, where a search finds nothing: a graph cannot be cut behind every block.
static rn_status try_least(const maker *m, uint64_t rows, uint64_t room, attempt *out) {
    bool fits = false;
    if (m->least_block == 0) return RN_OK;
    rn_status s = try_it(m, rows, m->least_block, false, out);
    if (s == RN_OK) s = fit(m, room, out, &fits);
    if (!fits) drop(out);
    return s == RN_UNSUPPORTED ? RN_OK : s;
}

// The fewest first blocks on the host with which the rest fits into `room`; *out has no graph where
// there is none. Fewer blocks on the device never take more.
static rn_status try_hybrid(const maker *m, uint64_t rows, uint64_t room, attempt *out) {
    uint32_t low = 1, high = m->blocks; // high fits, or is all of them
    *out = (attempt){0};
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        attempt a;
        bool fits = false;
        rn_status s = try_it(m, rows, middle, false, &a);
        if (s == RN_OK) s = fit(m, room, &a, &fits);
        if (s != RN_OK && s != RN_UNSUPPORTED) {
            drop(&a);
            drop(out);
            return s;
        }
        attempt *worse = fits ? out : &a;
        drop(worse);
        if (fits) *out = a;
        *(fits ? &high : &low) = fits ? middle : middle + 1;
    }
    return out->graph ? RN_OK : try_least(m, rows, room, out);
}

static uint64_t halve(const maker *m, uint64_t rows) {
    return m->has_rows && rows > 1 ? rn_div_up(rows, 2) : 0;
}

// The most rows with which everything fits on the device; else with as few blocks as possible on
// the host. *out has no graph: nothing fits.
static rn_status find_attempt(maker *m, uint64_t room, attempt *out) {
    uint64_t wanted = m->has_rows ? (m->recipe->rows ? m->recipe->rows : 1) : 0;
    if (m->caps->most_rows) wanted = rn_min_u64(wanted, m->caps->most_rows);
    bool more = true;
    for (uint64_t rows = wanted; more; rows = halve(m, rows)) {
        bool two = m->caps->backend->has_frugal && !m->caps->frugal;
        for (int fast = two; fast >= 0; fast--) {
            rn_status s = try_it(m, rows, 0, fast, out);
            if (s == RN_OK && out->bytes <= room) return RN_OK;
            drop(out);
            if (s == RN_UNSUPPORTED && m->hybrid) m->refusal = *rn_last_error();
            if (s != RN_OK && !m->refusal.status) return s;
        }
        more = halve(m, rows) > 0 && !m->refusal.status;
    }
    more = m->hybrid;
    for (uint64_t rows = wanted; more; rows = halve(m, rows)) {
        RN_TRY(try_hybrid(m, rows, room, out));
        if (out->graph) return RN_OK;
        more = halve(m, rows) > 0;
    }
    return RN_OK;
}

// The fewest bytes of any attempt: one row, and as many blocks on the host as can be; in one memory
// that may be more than all on the device.
static rn_status find_smallest(maker *m, uint64_t *out) {
    uint32_t block = m->hybrid ? m->blocks : 1;
    uint64_t whole = UINT64_MAX;
    rn_status s = RN_UNSUPPORTED;
    attempt a;
    while (s == RN_UNSUPPORTED && block-- > 0) { // fewer blocks never take more
        s = try_it(m, m->has_rows, block, false, &a);
        if (s == RN_OK) s = count_least(m, &a, out);
        drop(&a);
    }
    if (s == RN_OK) m->least_block = block;
    if (s != RN_OK || block == 0 || m->caps->own_memory) return s;
    if (try_it(m, m->has_rows, 0, false, &a) == RN_OK) whole = a.bytes;
    drop(&a);
    *out = rn_min_u64(*out, whole);
    return RN_OK;
}

// ---- time ---------------------------------------------------------------------------------------

static rn_status time_run(const maker *m, const rn_graph *graph, uint64_t rows, double *out) {
    rn_workload workload = {m->recipe->workload_rows, m->recipe->decode_steps};
    rn_arena scratch;
    rn_binder binder;
    *out = 0;
    rn_arena_init(&scratch, FROM, 0);
    rn_status s = rn_binder_init(&scratch, graph, &binder);
    binder.caps = m->caps;
    binder.rows = rows;
    *out = m->caps->run_seconds;
    for (uint32_t n = 0; s == RN_OK && n < rn_graph_node_count(graph); n++) {
        rn_call call = rn_binder_bind(&binder, n);
        if (!rn_binder_is_view(&binder, n)) *out += rn_cost_call(m->caps, &call, workload);
    }
    rn_arena_free_all(&scratch);
    return s;
}

static rn_status predict(const maker *m, rn_plan *plan) {
    rn_plan_summary *s = &plan->summary;
    double run = 0, pass = 0;
    RN_TRY(time_run(m, plan->graph, s->rows, &run));
    plan->steps[0].seconds = run;
    s->seconds = s->prefill_seconds = run + (plan->host ? plan->host->summary.seconds : 0);
    if (!m->has_rows) return RN_OK;
    RN_TRY(time_run(m, plan->graph, 1, &pass));
    s->workload_rows = m->recipe->workload_rows ? m->recipe->workload_rows : s->rows;
    s->decode_steps = m->recipe->decode_steps;
    s->prefill_seconds = run * (double)rn_div_up(s->workload_rows, s->rows);
    s->decode_seconds = pass;
    if (plan->host) {
        s->prefill_seconds += plan->host->summary.prefill_seconds;
        s->decode_seconds += plan->host->summary.decode_seconds;
    }
    s->seconds = s->prefill_seconds + (double)s->decode_steps * s->decode_seconds;
    return RN_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static rn_status allocate(rn_plan *plan) {
    rn_arena *memory = &plan->memory;
    size_t values = rn_graph_value_count(plan->graph) + 1u;
    plan->value_count = rn_graph_value_count(plan->graph);
    RN_TRY(rn_arena_array(memory, 1, sizeof *plan->steps, (void **)&plan->steps));
    RN_TRY(rn_arena_array(memory, values + 1, sizeof *plan->buffers, (void **)&plan->buffers));
    RN_TRY(rn_arena_array(memory, values, sizeof *plan->places, (void **)&plan->places));
    RN_TRY(rn_arena_array(memory, values, sizeof *plan->groups, (void **)&plan->groups));
    RN_TRY(
        rn_arena_array(memory, values, sizeof *plan->group_values, (void **)&plan->group_values));
    return rn_arena_array(memory, 8, sizeof *plan->reasons, (void **)&plan->reasons);
}

static void add_buffer(rn_plan *plan, rn_plan_buffer buffer) {
    buffer.bytes = rn_round_up(buffer.bytes, RN_PLAN_ALIGN);
    buffer.offload = RN_NO_OFFLOAD;
    buffer.offset = plan->summary.live_peak_bytes;
    plan->summary.live_peak_bytes += buffer.bytes;
    plan->buffers[plan->buffer_count++] = buffer;
}

// A weight is a weight group of its own: it is read and handed over alone.
static void add_value(rn_plan *plan, rn_value value) {
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    uint64_t bytes = rn_executable_value_bytes(plan->graph, value, plan->summary.rows);
    bool weight = info->role == RN_ROLE_WEIGHT;
    plan->places[value] = (rn_plan_place){.buffer = plan->buffer_count,
                                          .bytes = bytes,
                                          .layout = RN_LAYOUT_PLAIN,
                                          .group = weight ? plan->group_count : RN_NO_LOAD};
    add_buffer(plan, (rn_plan_buffer){.kind = weight ? RN_BUFFER_GROUP : RN_BUFFER_VALUE,
                                      .purpose = info->purpose,
                                      .value = value,
                                      .group = weight ? plan->group_count : RN_NO_LOAD,
                                      .bytes = bytes,
                                      .always = weight || info->role == RN_ROLE_STATE ||
                                                info->role == RN_ROLE_CONSTANT});
    if (!weight) return;
    plan->group_values[plan->group_count] = value;
    plan->groups[plan->group_count] = (rn_plan_group){.first_value = plan->group_count,
                                                      .value_count = 1,
                                                      .block = info->block,
                                                      .bytes = bytes,
                                                      .file_bytes = bytes,
                                                      .resident = true};
    plan->group_count++;
    plan->resident_bytes += rn_round_up(bytes, RN_PLAN_ALIGN);
    plan->summary.weight_bytes += bytes;
}

// What the back end counts beside values and temporary memory: weights that it widens, its
// compiler.
static void add_rest(rn_plan *plan) {
    const rn_plan_summary *s = &plan->summary;
    if (plan->executable_bytes <= s->live_peak_bytes) return;
    add_buffer(plan, (rn_plan_buffer){.kind = RN_BUFFER_WORKSPACE,
                                      .purpose = RN_PURPOSE_OTHER,
                                      .group = RN_NO_LOAD,
                                      .bytes = plan->executable_bytes - s->live_peak_bytes});
}

static void list_buckets(rn_plan *plan) {
    static const uint64_t sizes[] = {1, 8, 64};
    uint64_t rows = plan->summary.rows;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < rows) plan->buckets[plan->bucket_count++] = sizes[i];
    plan->buckets[plan->bucket_count++] = rows;
}

// The CPU's part in the summary: beside the device's memory, or in the same.
static rn_status add_host(const maker *m, attempt *a, rn_plan *plan) {
    rn_plan_summary *s = &plan->summary;
    uint64_t limit = m->options.host_budget_bytes;
    if (limit == 0) limit = RN_NO_LIMIT;
    if (m->caps->own_memory)
        RN_TRY(plan_host(m, a,
                         limit == RN_NO_LIMIT ? limit : limit - rn_min_u64(limit, s->host_bytes),
                         &plan->host));
    else
        plan->host = a->host;
    a->host = NULL;
    const rn_plan_summary *host = &plan->host->summary;
    s->host_blocks = host->block_count;
    s->host_rows = a->rows;
    if (m->caps->own_memory) {
        s->host_bytes += host->planned_bytes;
        s->host_weight_bytes += host->purpose_bytes[RN_PURPOSE_WEIGHTS];
        return RN_OK;
    }
    s->planned_bytes += host->planned_bytes;
    s->arena_bytes += host->planned_bytes;
    s->streamed_bytes += host->streamed_bytes;
    s->weight_bytes += host->weight_bytes;
    s->block_count += host->block_count;
    s->resident_blocks += host->resident_blocks;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        s->purpose_bytes[p] += host->purpose_bytes[p];
    return RN_OK;
}

static void count_blocks(rn_plan *plan) {
    for (uint32_t b = 0; b < rn_graph_block_count(plan->graph); b++)
        for (uint32_t n = 0; n < rn_graph_node_count(plan->graph); n++)
            if (rn_graph_node(plan->graph, n)->block == b) {
                plan->summary.block_count++;
                break;
            }
    plan->summary.resident_blocks = plan->summary.block_count;
}

static rn_status explain(const maker *m, rn_plan *plan) {
    rn_plan_summary *s = &plan->summary;
    uint64_t wanted = m->recipe->rows ? m->recipe->rows : 1;
    RN_TRY(rn_plan_add_reason(
        plan, "compile",
        "one executable of %u nodes, for %u number%s of rows; %s of temporary "
        "memory are estimated",
        rn_graph_node_count(plan->graph), plan->bucket_count, plan->bucket_count == 1 ? "" : "s",
        rn_size_format(s->purpose_bytes[RN_PURPOSE_WORKSPACE]).text));
    if (m->caps->cores > 1)
        RN_TRY(rn_plan_add_reason(plan, "cores",
                                  "%u cores of the device hold %s each: weights are divided by "
                                  "their outputs, the KV cache by heads",
                                  m->caps->cores,
                                  rn_size_format(plan->executable_bytes / m->caps->cores).text));
    if (m->has_rows && s->rows < wanted)
        RN_TRY(rn_plan_add_reason(plan, "chunk", "%llu rows a run instead of %llu",
                                  (unsigned long long)s->rows, (unsigned long long)wanted));
    if (plan->caps.backend->has_frugal)
        RN_TRY(rn_plan_add_reason(plan, "pack",
                                  plan->caps.frugal
                                      ? "weights are used as they are: there are no copies of them"
                                      : "weights are copied and packed ahead, which is faster"));
    char numbers[160] = "";
    if (plan->caps.backend->describe_numbers)
        plan->caps.backend->describe_numbers(&plan->caps, plan->graph, numbers, sizeof numbers);
    if (numbers[0]) RN_TRY(rn_plan_add_reason(plan, "numbers", "%s", numbers));
    if (!plan->host) return RN_OK;
    return rn_plan_add_reason(
        plan, "hybrid",
        "the CPU computes the first %u blocks by kernels (%s of weights in memory, %s read in "
        "every run): %s%.120s; sums are rounded as the CPU does",
        s->host_blocks, rn_size_format(plan->host->summary.purpose_bytes[RN_PURPOSE_WEIGHTS]).text,
        rn_size_format(plan->host->summary.streamed_bytes).text,
        m->refusal.status     ? "the device does not, "
        : m->caps->own_memory ? "the device has no room for them"
                              : "the budget has no room for all of them on the device",
        m->refusal.status ? m->refusal.message : "");
}

static rn_status write_plan(const maker *m, attempt *a, rn_plan *plan) {
    rn_plan_summary *s = &plan->summary;
    RN_TRY(allocate(plan));
    s->rows = a->rows;
    s->micro_batches = 1;
    s->step_count = plan->step_count = 1;
    for (rn_value v = 0; v <= plan->value_count; v++)
        plan->places[v] = (rn_plan_place){.buffer = RN_NO_BUFFER, .group = RN_NO_LOAD};
    for (rn_value v = 1; v <= plan->value_count; v++)
        if (is_held(plan->graph, v)) add_value(plan, v);
    add_buffer(plan, (rn_plan_buffer){.kind = RN_BUFFER_WORKSPACE,
                                      .purpose = RN_PURPOSE_WORKSPACE,
                                      .group = RN_NO_LOAD,
                                      .bytes = a->purpose_bytes[RN_PURPOSE_WORKSPACE]});
    memcpy(s->purpose_bytes, a->purpose_bytes, sizeof s->purpose_bytes);
    bool staging = plan->group_count && !m->recipe->weights_in_memory, own = m->caps->own_memory;
    s->planned_bytes = a->bytes;
    s->staging_bytes = staging ? RN_PLAN_STAGING_BYTES : 0;
    s->arena_bytes = a->bytes - (own ? 0 : s->staging_bytes);
    plan->executable_bytes = a->bytes - (own ? 0 : a->host_bytes);
    s->host_bytes = own ? a->host_bytes : 0;
    add_rest(plan);
    plan->steps[0] = (rn_plan_step){.kind = RN_STEP_EXECUTE,
                                    .node = RN_NO_NODE,
                                    .load = RN_NO_LOAD,
                                    .offload = RN_NO_OFFLOAD,
                                    .after = RN_NO_STEP,
                                    .workspace = RN_NO_BUFFER,
                                    .live_bytes = s->live_peak_bytes};
    count_blocks(plan);
    list_buckets(plan);
    if (a->first_block) RN_TRY(add_host(m, a, plan));
    RN_TRY(predict(m, plan));
    return explain(m, plan);
}

// The budget of which so many bytes are the plan's: with those that are held beside it.
static uint64_t budget_of(const maker *m, uint64_t bytes) {
    uint64_t budget = bytes;
    if (!rn_add_u64(bytes, m->options.reserved_bytes, &budget)) return RN_NO_LIMIT;
    if (m->options.with_reserve) budget = rn_budget_needed(budget);
    return rn_max_u64(budget, m->options.least_budget_bytes);
}

static rn_status refuse(const maker *m, uint64_t limit, uint64_t smallest) {
    rn_account account = {.device = m->caps->device, .purpose = RN_PURPOSE_WEIGHTS};
    uint64_t budget = budget_of(m, smallest);
    rn_status s = rn_budget_refuse(account, smallest, limit, budget);
    return rn_hint(s,
                   "%s compiles graphs as a whole: all weights of its blocks are held; the "
                   "smallest budget that works is %s (%llu bytes)",
                   m->caps->name, rn_size_format(budget).text, (unsigned long long)budget);
}

static rn_status look_at(maker *m) {
    rn_graph *graph = NULL;
    rn_status s = m->recipe->build(m->recipe->self, &(rn_recipe_options){0}, &graph);
    if (s == RN_OK) {
        m->blocks = rn_graph_block_count(graph);
        m->has_rows = rn_graph_has_rows(graph);
        m->table_bytes = rn_plan_table_bytes(graph);
    }
    rn_graph_destroy(graph);
    return s;
}

// The plan of an attempt, whose graph it takes in any case.
static rn_status make_plan(const maker *m, attempt *a, uint64_t smallest, rn_plan **out) {
    rn_plan *plan = NULL;
    *out = NULL;
    rn_status s = rn_alloc_zeroed(FROM, 1, sizeof *plan, (void **)&plan);
    if (s != RN_OK) {
        drop(a);
        return s;
    }
    rn_arena_init(&plan->memory, FROM, 0);
    plan->graph = a->graph;
    a->graph = NULL;
    plan->caps = *m->caps;
    plan->caps.frugal = a->frugal;
    plan->options = m->options;
    plan->options.host_caps = NULL; // borrowed
    plan->compiled = true;
    memcpy(plan->name, m->recipe->name, sizeof plan->name);
    plan->summary.smallest_bytes = smallest;
    plan->summary.smallest_budget_bytes = budget_of(m, smallest);
    s = write_plan(m, a, plan);
    drop(a);
    if (s == RN_OK)
        *out = plan;
    else
        rn_plan_destroy(plan);
    return s;
}

// The host's planner may take fewer rows a run than the device could: then both have these, and the
// device perhaps more of the blocks.
static rn_status match_rows(const maker *m, uint64_t room, uint64_t smallest, rn_plan **plan) {
    while ((*plan)->host && (*plan)->host->summary.rows < (*plan)->summary.rows) {
        attempt a;
        RN_TRY(try_hybrid(m, (*plan)->host->summary.rows, room, &a));
        if (!a.graph) return rn_fail(RN_INTERNAL, "fewer rows of '%s' take more", (*plan)->name);
        rn_plan_destroy(*plan);
        RN_TRY(make_plan(m, &a, smallest, plan));
    }
    return RN_OK;
}

rn_status rn_plan_make_compiled(const rn_recipe *recipe, const rn_device_caps *caps,
                                const rn_plan_options *options, rn_plan **out) {
    maker m = {.recipe = recipe, .caps = caps};
    attempt a = {0};
    uint64_t smallest = 0;
    *out = NULL;
    if (options) m.options = *options;
    m.hybrid = m.options.host_caps && !m.options.exact;
    if (m.hybrid) m.host = *m.options.host_caps;
    if (m.hybrid && caps->threads) m.host.threads = caps->threads;
    uint64_t limit = rn_plan_limit(caps, m.options.budget_bytes);
    RN_TRY(look_at(&m));
    RN_TRY(find_smallest(&m, &smallest));
    uint64_t room = rn_plan_room(&m.options, limit);
    if (smallest <= room) RN_TRY(find_attempt(&m, room, &a));
    if (!a.graph && m.refusal.status) return rn_error_restore(&m.refusal);
    if (!a.graph) return refuse(&m, limit, smallest);
    RN_TRY(make_plan(&m, &a, smallest, out));
    rn_status s = match_rows(&m, room, smallest, out);
    if (s != RN_OK) rn_plan_destroy(*out);
    if (s != RN_OK) *out = NULL;
    return s;
}
