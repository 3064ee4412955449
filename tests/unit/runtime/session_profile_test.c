// labels: threads
// What a session tells the profiler, read back from the file: at every step the parts in use are
// the plan's live bytes, no two of them overlap, and every operation ends. A plan that was changed
// afterwards does not pass.
#include "support.h"

#include <ration/device.h>
#include <ration/memory.h>
#include <ration/profile.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "train/train_recipe.h"
#include "profile/export/export.h"
#include "graph/op.h"
#include "plan/planner.h"
#include "runtime/session.h"

#include <stdatomic.h>

#define RUNS 3

// ---- a model of zeros ---------------------------------------------------------------------------

static uint8_t zeros[16 << 20];

static const void *find_zeros(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self;
    (void)name;
    (void)dtype;
    assert_true(bytes <= sizeof zeros);
    return zeros;
}

static const rn_weight_source source = {.find = find_zeros};

// Inputs of zeros, but for rows of a text: those are nobody's, for no two may be at one place.
static rn_status set_input(rn_session *session, const char *name, uint64_t bytes) {
    static uint8_t nobody[1024];
    bool is_sequence = strcmp(name, "sequence") == 0;
    assert_true(!is_sequence || bytes <= sizeof nobody);
    memset(nobody, 0xff, sizeof nobody);
    return rn_session_set(session, name, is_sequence ? nobody : zeros, bytes);
}

static rn_status run_once(rn_session *session) {
    const rn_plan *plan = session->plan;
    uint64_t batch = plan->summary.rows * plan->summary.micro_batches;
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++) {
        const rn_value_info *info = rn_graph_value(plan->graph, v);
        if (info->role != RN_ROLE_INPUT) continue;
        RN_TRY(
            set_input(session, info->name, rn_session_value_bytes(session, v, plan->summary.rows)));
    }
    for (uint32_t i = 0; i < rn_graph_scalar_count(plan->graph); i++)
        RN_TRY(rn_session_set_scalar(session, rn_graph_scalar_name(plan->graph, i), 1));
    return rn_session_run(session, rn_graph_has_rows(plan->graph) ? batch : 0);
}

static rn_plan *make_plan(rn_recipe *recipe, const rn_device_caps *caps, bool tight) {
    rn_plan *plan = NULL;
    rn_plan_options options = {.allow_lossy = true};
    assert_ok(rn_plan_make(recipe, caps, &options, &plan));
    if (tight) {
        options.budget_bytes = rn_plan_get_summary(plan)->smallest_bytes;
        rn_plan_destroy(plan);
        assert_ok(rn_plan_make(recipe, caps, &options, &plan));
    }
    return plan;
}

// ---- recording ----------------------------------------------------------------------------------

static void record(void) {
    rn_profile_options options = {
        .path = test_path("run.rntrace"), .snapshot_seconds = -1, .leave_signals = true};
    assert_ok(rn_profile_start(&options));
}

static rn_timeline *read_back(void) {
    rn_timeline *t = NULL;
    assert_ok(rn_profile_stop());
    assert_ok(rn_timeline_open(test_path("run.rntrace"), &t));
    assert_int_equal(0, t->dropped_count);
    return t;
}

static rn_timeline *record_runs(const rn_plan *plan, rn_device *device) {
    rn_session *session = NULL;
    record();
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = device}, &session));
    for (int i = 0; i < RUNS; i++)
        assert_ok(run_once(session));
    rn_session_destroy(session);
    return read_back();
}

// ---- judging ------------------------------------------------------------------------------------

static bool is_live(const rn_timeline_alloc *alloc, uint64_t time_ns) {
    return alloc->begin_ns <= time_ns && time_ns < alloc->end_ns;
}

static uint64_t parts_at(const rn_timeline *t, uint64_t time_ns) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].inner && is_live(&t->allocs[i], time_ns)) sum += t->allocs[i].bytes;
    return sum;
}

// Live bytes of the step after `*step`, round and round, leaving out those that say nothing new.
static uint64_t next_level(const rn_plan *plan, uint32_t *step, uint64_t last) {
    for (uint32_t i = 0; i < plan->step_count; i++) {
        uint64_t live = plan->steps[*step].live_bytes;
        *step = (*step + 1) % plan->step_count;
        if (live != last) return live;
    }
    return last;
}

// Where what is in use was told, it is what was predicted; and the parts go through the plan's
// levels, all of them, in their order.
static bool follows_plan(const rn_timeline *t, const rn_plan *plan) {
    uint64_t last = 0, peak = 0;
    uint32_t step = 0, told = 0;
    for (uint32_t i = 0; i < t->counter_count; i++) {
        const rn_timeline_counter *c = &t->counters[i];
        if (c->kind != RN_COUNTER_PREDICTED) continue;
        uint64_t parts = parts_at(t, c->time_ns);
        uint64_t active = rn_timeline_level_at(t, c->device, c->time_ns).active_bytes;
        if (active != c->value) return false;
        if (parts != last && parts != next_level(plan, &step, last)) return false;
        last = parts;
        peak = parts > peak ? parts : peak;
        told++;
    }
    return told > 0 && peak == plan->summary.live_peak_bytes;
}

static bool has_overlap(const rn_timeline *t) {
    for (uint32_t i = 0; i < t->alloc_count; i++)
        for (uint32_t k = 0; k < i; k++) {
            const rn_timeline_alloc *a = &t->allocs[i], *b = &t->allocs[k];
            if (a->inner && b->inner && a->begin_ns < b->end_ns && b->begin_ns < a->end_ns &&
                a->address < b->address + b->bytes && b->address < a->address + a->bytes)
                return true;
        }
    return false;
}

static uint32_t count_ops(const rn_timeline *t, const char *name) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->op_count; i++)
        count += strcmp(t->names[t->ops[i].name].name, name) == 0;
    return count;
}

static void expect_all_ends(const rn_timeline *t) {
    for (uint32_t i = 0; i < t->op_count; i++)
        assert_false(t->ops[i].unfinished);
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].inner) assert_true(t->allocs[i].end_ns != RN_STILL_LIVE);
}

static bool is_computed(const rn_plan *plan, uint32_t step) {
    const rn_node *node = rn_graph_node(plan->graph, plan->steps[step].node);
    return strstr(rn_op_name(node->op), "reshape") == NULL &&
           (node->phase != RN_PHASE_UPDATE || plan->summary.micro_batches == 1);
}

// Each node's operation is there once for each time it was computed, with its block and shapes.
static void expect_steps(const rn_timeline *t, const rn_plan *plan) {
    for (uint32_t s = 0; s < plan->step_count; s++) {
        if (plan->steps[s].kind != RN_STEP_COMPUTE || !is_computed(plan, s)) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[s].node);
        uint32_t seen = count_ops(t, node->name);
        if (seen) assert_int_equal(RUNS * plan->summary.micro_batches, seen);
    }
}

static uint32_t find_node(const rn_graph *graph, const char *name) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (strcmp(rn_graph_node(graph, n)->name, name) == 0) return n;
    return RN_NO_NODE;
}

// In use when the operation begins, or from then on.
static bool has_part(const rn_timeline *t, uint32_t op, uint64_t address) {
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].inner && t->allocs[i].address == address &&
            (is_live(&t->allocs[i], t->ops[op].begin_ns) || t->allocs[i].op == op))
            return true;
    return false;
}

// The operand is the node's next value, with the rows of the run, and lies in a part that is in
// use.
static void expect_operand(const rn_timeline *t, uint32_t op, const rn_plan *plan, rn_value value,
                           const rn_export_operand *operand) {
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    assert_memory_equal(info->name, operand->name.data, operand->name.bytes);
    assert_int_equal(strlen(info->name), operand->name.bytes);
    assert_int_equal(info->shape.rank, operand->shape.count);
    bool is_gathered = false; // a table: only the rows that were looked up
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        is_gathered |= plan->row_tables[i].table == value;
    for (uint32_t i = is_gathered ? 1 : 0; i < info->shape.rank; i++)
        assert_int_equal(info->shape.dims[i] == RN_ROWS ? plan->summary.rows : info->shape.dims[i],
                         operand->shape.dims[i]);
    assert_true(operand->shape.count == 0 || operand->shape.dims[0] >= 0);
    assert_true(operand->bytes > 0);
    if (operand->address) assert_true(has_part(t, op, operand->address));
}

static void expect_operands(const rn_timeline *t, const rn_plan *plan) {
    uint32_t seen = 0;
    for (uint32_t i = 0; i < t->op_count; i++) {
        const rn_timeline_op *op = &t->ops[i];
        uint32_t n = find_node(plan->graph, t->names[op->name].name);
        if (n == RN_NO_NODE || !op->operands) continue;
        const rn_node *node = rn_graph_node(plan->graph, n);
        rn_str rest = rn_str_from(t->names[op->operands].detail);
        rn_export_operand operand;
        for (uint32_t k = 0; k < node->input_count + node->output_count; k++) {
            bool made = k >= node->input_count;
            rn_value v = made ? node->outputs[k - node->input_count] : node->inputs[k];
            if (v == RN_NO_VALUE) continue;
            assert_true(rn_export_operand_next(&rest, op->rows, &operand));
            assert_int_equal(made, operand.is_made);
            expect_operand(t, i, plan, v, &operand);
            uint32_t optional = rn_op_get(node->op)->optional_outputs; // that nobody may read
            bool may_be_nowhere = made && optional >> (k - node->input_count) & 1;
            assert_true(operand.address || may_be_nowhere);
            seen++;
        }
        assert_false(rn_export_operand_next(&rest, op->rows, &operand));
    }
    assert_true(seen > 0);
}

static void expect_good(const rn_timeline *t, const rn_plan *plan) {
    expect_operands(t, plan);
    assert_true(follows_plan(t, plan));
    assert_false(has_overlap(t));
    expect_all_ends(t);
    expect_steps(t, plan);
    assert_true(count_ops(t, "load weights") == 1);
}

static void try_recipe(rn_recipe *recipe) {
    for (int tight = 0; tight < 2; tight++) {
        rn_plan *plan = make_plan(recipe, rn_cpu_caps(), tight);
        rn_timeline *t = record_runs(plan, NULL);
        expect_good(t, plan);
        rn_timeline_destroy(t);
        rn_plan_destroy(plan);
    }
    rn_recipe_destroy(recipe);
}

// ---- tests --------------------------------------------------------------------------------------

static rn_llama_config llama(void) {
    return (rn_llama_config){.layers = 2,
                             .dim = 64,
                             .heads = 4,
                             .kv_heads = 2,
                             .ffn = 96,
                             .vocab = 50,
                             .rows = 8,
                             .context = 16,
                             .page_tokens = 8,
                             .sequences = 1,
                             .logit_rows = 1,
                             .kv_dtype = RN_DTYPE_F16,
                             .weight_dtype = RN_DTYPE_F32};
}

static void a_text_model_uses_what_was_planned(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_llama_config config = llama();
    assert_ok(rn_llama_recipe(&config, &recipe));
    try_recipe(&recipe);
}

static void a_convolutional_net_uses_what_was_planned(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_ok(
        rn_simple_recipe(&(rn_simple_config){.size = 8, .channels = 8, .classes = 10}, &recipe));
    try_recipe(&recipe);
}

static void resnet18_uses_what_was_planned(void **state) {
    (void)state;
    rn_recipe recipe;
    assert_ok(rn_resnet_recipe(&(rn_resnet_config){.size = 32, .classes = 10, .rows = 1}, &recipe));
    try_recipe(&recipe);
}

static void training_uses_what_was_planned_and_has_its_phases(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_mlp_config config = {.in = 48, .hidden = 64, .out = 10};
    assert_ok(rn_train_recipe(rn_mlp_forward(&config), 4, NULL, &recipe));
    rn_plan *plan = make_plan(&recipe, rn_cpu_caps(), false);
    rn_timeline *t = record_runs(plan, NULL);
    assert_int_equal(RUNS, count_ops(t, "forward"));
    assert_int_equal(RUNS, count_ops(t, "backward"));
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
    try_recipe(&recipe);
}

// The first layer is frozen: what it holds has no gradient, whatever its purpose.
static void weights_say_themselves_whether_they_are_trained(void **state) {
    (void)state;
    rn_recipe recipe;
    uint32_t trained = 0, kept = 0;
    rn_mlp_config config = {.in = 48, .hidden = 64, .out = 10};
    rn_train_options options = {.frozen = "layers.0.*"};
    assert_ok(rn_train_recipe(rn_mlp_forward(&config), 4, &options, &recipe));
    rn_plan *plan = make_plan(&recipe, rn_cpu_caps(), false);
    rn_timeline *t = record_runs(plan, NULL);
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_name *name = &t->names[t->allocs[i].name];
        if (!t->allocs[i].inner || t->allocs[i].purpose != RN_PURPOSE_WEIGHTS) continue;
        bool flag = strstr(name->detail, RN_REQUIRES_GRAD) != NULL;
        assert_int_equal(strncmp(name->name, "layers.0.", 9) != 0, flag);
        *(flag ? &trained : &kept) += 1;
    }
    assert_true(trained > 0 && kept > 0);
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

static void queues_of_another_device_have_lanes_of_their_own(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_device *sim = NULL;
    rn_llama_config config = llama();
    assert_ok(rn_llama_recipe(&config, &recipe));
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = make_plan(&recipe, rn_device_get_caps(sim), true);
    rn_timeline *t = record_runs(plan, sim);
    expect_good(t, plan);
    bool compute = false, copy = false;
    for (uint32_t i = 0; i < t->lane_count; i++) {
        compute |= strcmp(t->lanes[i].name, "compute queue") == 0;
        copy |= strcmp(t->lanes[i].name, "copy queue") == 0;
    }
    assert_true(compute);
    assert_int_equal(plan->load_count > 0, copy);
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
    rn_recipe_destroy(&recipe);
}

static uint32_t count_moves_between(const rn_timeline *t, uint32_t from, uint32_t to) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->move_count; i++)
        count += t->moves[i].from == from && t->moves[i].to == to;
    return count;
}

static void what_a_step_keeps_on_the_host_is_seen_on_its_way(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_device *sim = NULL;
    rn_llama_config config = llama();
    config.rows = config.context = config.page_tokens = config.sequences = config.logit_rows = 0;
    config.tokens = 16;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), 8, NULL, &recipe));
    recipe.weights_in_memory = true;
    assert_ok(rn_sim_device_create(NULL, &sim));
    sim->caps.link_bytes_second = 1e10;
    rn_plan *plan = make_plan(&recipe, rn_device_get_caps(sim), true);
    assert_true(plan->summary.host_states > 0 && plan->summary.host_saved > 0);
    assert_int_equal(plan->summary.micro_batches, 1);
    rn_timeline *t = record_runs(plan, sim);
    expect_good(t, plan);
    bool send = false;
    for (uint32_t i = 0; i < t->lane_count; i++)
        send |= strcmp(t->lanes[i].name, "send queue") == 0;
    assert_true(send);
    rn_device_id device = rn_device_number(sim);
    assert_int_equal(count_moves_between(t, device, RN_DEVICE_HOST), RUNS * plan->offload_count);
    assert_int_equal(count_moves_between(t, RN_DEVICE_HOST, device), RUNS * plan->offload_count);
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
    rn_recipe_destroy(&recipe);
}

// Some of the first blocks are streamed, all of the last one's weights stay.
static rn_plan *plan_prefix(const rn_device_caps *caps, uint64_t ring_bytes) {
    rn_recipe recipe;
    rn_llama_config config = llama();
    rn_plan *plan = NULL;
    config.layers = 4;
    assert_ok(rn_llama_recipe(&config, &recipe));
    plan = make_plan(&recipe, caps, false);
    rn_plan_options options = {
        .budget_bytes = (plan->summary.smallest_bytes + plan->summary.planned_bytes) / 2};
    rn_residency_rule rule = {.suffix = true, .ring_bytes = ring_bytes};
    rn_plan_destroy(plan);
    assert_ok(rn_plan_make_alone(&recipe, caps, &options, &rule, &plan));
    rn_recipe_destroy(&recipe);
    assert_true(plan->prefix_blocks > 0);
    return plan;
}

static rn_status run_segment(rn_session *session, uint32_t segment) {
    const rn_plan *plan = session->plan;
    uint64_t rows = plan->summary.rows;
    for (uint32_t i = 0; i < session->input_count; i++) {
        rn_value v = session->inputs[i].value;
        RN_TRY(set_input(session, rn_graph_value(plan->graph, v)->name,
                         rn_session_value_bytes(session, v, rows)));
    }
    rn_value in = session->segments->list[segment].in;
    return rn_session_run_segment(session, segment, zeros,
                                  rn_session_value_bytes(session, in, rows), rows);
}

static bool tells_what_is_predicted(const rn_timeline *t) {
    uint32_t told = 0;
    for (uint32_t i = 0; i < t->counter_count; i++) {
        const rn_timeline_counter *c = &t->counters[i];
        if (c->kind != RN_COUNTER_PREDICTED) continue;
        if (rn_timeline_level_at(t, c->device, c->time_ns).active_bytes != c->value) return false;
        told++;
    }
    return told > 0;
}

static void runs_that_begin_behind_the_first_blocks_use_what_was_planned(void **state) {
    (void)state;
    static const bool behind[] = {true, false, true, true, false, false, true};
    rn_device *sim = NULL;
    assert_ok(rn_sim_device_create(NULL, &sim));
    for (int on_sim = 0; on_sim < 2; on_sim++) {
        rn_plan *plan = plan_prefix(on_sim ? rn_device_get_caps(sim) : rn_cpu_caps(), 0);
        rn_session *session = NULL;
        rn_block_range behind_all = {plan->prefix_blocks, rn_graph_block_count(plan->graph)};
        rn_session_options options = {.device = on_sim ? sim : NULL};
        rn_segment_table segments;
        assert_ok(rn_plan_cut_segments(&plan->memory, plan, &behind_all, 1, plan->summary.rows, 0,
                                       &segments));
        record();
        assert_ok(rn_session_create_with(plan, &segments, &source, &options, &session));
        for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++)
            assert_ok(behind[i] ? run_segment(session, 0) : run_once(session));
        uint32_t first = plan->steps[0].node, last = plan->steps[plan->step_count - 1].node;
        rn_session_destroy(session);
        rn_timeline *t = read_back();
        assert_true(tells_what_is_predicted(t));
        assert_false(has_overlap(t));
        expect_all_ends(t);
        assert_int_equal(count_ops(t, rn_graph_node(plan->graph, first)->name), 3);
        assert_int_equal(count_ops(t, rn_graph_node(plan->graph, last)->name), 7);
        rn_timeline_destroy(t);
        rn_plan_destroy(plan);
    }
    rn_device_destroy(sim);
}

static uint32_t count_moves(const rn_timeline *t, uint64_t bytes) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->move_count; i++)
        count += t->moves[i].bytes == bytes;
    return count;
}

// What a load of the block's weights takes.
static uint64_t load_bytes(const rn_plan *plan, uint32_t block) {
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < plan->group_count; u++)
        if (plan->groups[u].block == block && !plan->groups[u].resident)
            bytes += rn_plan_group_room(plan, u);
    return bytes;
}

// The first layer, and the third with all behind it; the second is somebody else's.
static void segments_with_brought_weights_use_what_was_planned(void **state) {
    (void)state;
    static const bool whole[] = {false, true, false, false, true, true, false};
    rn_device *sim = NULL;
    rn_session *session = NULL;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_prefix(rn_device_get_caps(sim), 0);
    uint64_t room = load_bytes(plan, 2), group_bytes = 0;
    rn_plan_destroy(plan);
    plan = plan_prefix(rn_device_get_caps(sim), room);
    assert_int_equal(load_bytes(plan, 2), room);
    rn_block_range ranges[] = {{2, 3}, {4, rn_graph_block_count(plan->graph)}};
    rn_session_options options = {.device = sim};
    rn_segment_table segments;
    assert_ok(
        rn_plan_cut_segments(&plan->memory, plan, ranges, 2, plan->summary.rows, 0, &segments));
    record();
    assert_ok(rn_session_create_with(plan, &segments, &source, &options, &session));
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        if (!whole[i]) assert_ok(run_segment(session, 0));
        assert_ok(whole[i] ? run_once(session) : run_segment(session, 1));
    }
    uint32_t last = plan->steps[plan->step_count - 1].node;
    uint32_t brought = session->segments->load_count,
             streamed = 0; // layers, of one weight group each
    for (uint32_t i = 0; i < plan->load_count; i++)
        if (plan->groups[plan->loads[i].group].block == 2)
            group_bytes = plan->groups[plan->loads[i].group].bytes;
    for (uint32_t i = 0; i < plan->load_count; i++)
        streamed += plan->groups[plan->loads[i].group].bytes == group_bytes;
    assert_true(brought > 0 && streamed > brought);
    rn_session_destroy(session);
    rn_timeline *t = read_back();
    assert_true(tells_what_is_predicted(t));
    assert_false(has_overlap(t));
    expect_all_ends(t);
    assert_int_equal(count_ops(t, rn_graph_node(plan->graph, last)->name), 7);
    assert_true(count_moves(t, group_bytes) >= 4 * brought + 3 * streamed);
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

// ---- damage -------------------------------------------------------------------------------------

static rn_plan *plan_mlp(void) {
    rn_recipe recipe;
    assert_ok(
        rn_mlp_recipe(&(rn_mlp_config){.in = 48, .hidden = 64, .out = 10, .rows = 4}, &recipe));
    rn_plan *plan = make_plan(&recipe, rn_cpu_caps(), false);
    rn_recipe_destroy(&recipe);
    return plan;
}

static rn_plan *plan_llama(void) {
    rn_recipe recipe;
    rn_llama_config config = llama();
    assert_ok(rn_llama_recipe(&config, &recipe));
    rn_plan *plan = make_plan(&recipe, rn_cpu_caps(), false);
    rn_recipe_destroy(&recipe);
    return plan;
}

static rn_plan_buffer *find_buffer(rn_plan *plan) {
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        rn_plan_buffer *b = &plan->buffers[i];
        if (!b->always && b->first_step > 0 && b->last_step + 1 < plan->step_count) return b;
    }
    fail_msg("all buffers live from beginning to end");
    return NULL;
}

static void a_lifetime_that_was_changed_is_seen(void **state) {
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        rn_plan *plan = plan_llama();
        rn_plan_buffer *buffer = find_buffer(plan);
        if (longer)
            buffer->last_step++;
        else
            buffer->first_step++, buffer->last_step++;
        rn_timeline *t = record_runs(plan, NULL);
        assert_false(follows_plan(t, plan));
        rn_timeline_destroy(t);
        rn_plan_destroy(plan);
    }
}

static void live_bytes_that_are_wrong_at_one_step_are_seen(void **state) {
    (void)state;
    rn_plan *plan = plan_llama();
    plan->steps[plan->step_count / 2].live_bytes += 64;
    rn_timeline *t = record_runs(plan, NULL);
    assert_false(follows_plan(t, plan));
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
}

// By one thread: several would write to the same bytes at once. Not those of inputs, which a run
// looks at before it begins.
static void buffers_on_top_of_each_other_are_seen(void **state) {
    (void)state;
    rn_device *cpu = NULL;
    rn_plan *plan = plan_llama();
    assert_ok(rn_cpu_device_create(1, &cpu));
    rn_plan_buffer *buffer = find_buffer(plan);
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        rn_plan_buffer *b = &plan->buffers[i];
        if (b != buffer && b->first_step > 0 && b->bytes <= buffer->bytes &&
            b->first_step <= buffer->last_step && buffer->first_step <= b->last_step)
            b->offset = buffer->offset;
    }
    rn_timeline *t = record_runs(plan, cpu);
    assert_true(has_overlap(t));
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
    rn_device_destroy(cpu);
}

// ---- starting late, failing ---------------------------------------------------------------------

static void a_recording_may_begin_between_two_runs(void **state) {
    (void)state;
    rn_plan *plan = plan_mlp();
    rn_session *session = NULL;
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    assert_ok(run_once(session));
    assert_null(session->profile);
    for (int i = 0; i < 2; i++) {
        record();
        for (int run = 0; run < RUNS; run++)
            assert_ok(run_once(session));
        rn_timeline *t = read_back();
        assert_int_equal(RUNS, count_ops(t, "run 4 rows"));
        assert_true(follows_plan(t, plan));
        assert_false(has_overlap(t));
        rn_timeline_destroy(t);
        assert_ok(run_once(session)); // unseen
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void a_run_that_is_cancelled_ends_what_it_began(void **state) {
    (void)state;
    rn_plan *plan = plan_mlp();
    rn_session *session = NULL;
    rn_flag cancel = false;
    record();
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.cancel = &cancel}, &session));
    assert_ok(run_once(session));
    cancel = true;
    assert_fails(RN_CANCELLED, run_once(session));
    cancel = false;
    assert_ok(rn_session_reset(session));
    assert_ok(run_once(session));
    rn_session_destroy(session);
    rn_timeline *t = read_back();
    expect_all_ends(t);
    assert_false(has_overlap(t));
    rn_timeline_destroy(t);
    rn_plan_destroy(plan);
}

static void a_kernel_that_fails_ends_what_it_began(void **state) {
    (void)state;
    rn_recipe recipe;
    rn_device *sim = NULL;
    rn_llama_config config = llama();
    assert_ok(rn_llama_recipe(&config, &recipe));
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = make_plan(&recipe, rn_device_get_caps(sim), true);
    for (uint32_t at = 1; at < 12; at += 3) {
        rn_session *session = NULL;
        record();
        assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
        assert_ok(run_once(session));
        rn_sim_device_arm(sim, 0, at, 0);
        assert_fails(RN_DEVICE, run_once(session));
        rn_sim_device_arm(sim, 0, 0, 0);
        assert_ok(rn_session_reset(session));
        assert_ok(run_once(session));
        rn_session_destroy(session);
        rn_timeline *t = read_back();
        expect_all_ends(t);
        assert_false(has_overlap(t));
        rn_timeline_destroy(t);
    }
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
    rn_recipe_destroy(&recipe);
}

// A session that could be made is made, seen or not; the ledger is where it was.
static void without_memory_a_session_runs_unseen(void **state) {
    (void)state;
    rn_plan *plan = plan_mlp();
    uint64_t held = 0;
    bool fired = true;
    for (uint32_t n = 1; fired; n++) {
        rn_session *session = NULL;
        assert_ok(rn_session_create(plan, &source, NULL, &session));
        record();
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = run_once(session);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(s == RN_OK || s == RN_NO_MEMORY);
        rn_session_destroy(session);
        assert_ok(rn_profile_stop());
        uint64_t now = rn_ledger_total(RN_DEVICE_HOST).now_bytes -
                       rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
        if (n > 1) assert_int_equal(held, now);
        held = now;
    }
    rn_plan_destroy(plan);
}

// ---- programs -----------------------------------------------------------------------------------

static bool is_as_predicted(const rn_timeline *t) {
    uint32_t told = 0;
    for (uint32_t i = 0; i < t->counter_count; i++) {
        const rn_timeline_counter *c = &t->counters[i];
        if (c->kind != RN_COUNTER_PREDICTED) continue;
        if (rn_timeline_level_at(t, c->device, c->time_ns).active_bytes != c->value) return false;
        told++;
    }
    return told > 0;
}

// The arena's parts are those of the phase that runs; what persists is there in all of them.
static void phases_of_a_program_take_turns_in_the_arena(void **state) {
    (void)state;
    rn_recipe step, evaluate;
    assert_ok(rn_builtin_recipe("llama:2x64:train", &step));
    assert_ok(rn_builtin_recipe("llama:2x64:evaluate", &evaluate));
    rn_program_phase phases[] = {{.name = "step", .recipe = &step},
                                 {.name = "evaluate", .recipe = &evaluate}};
    rn_weight_source sources[] = {source, source};
    rn_program *program = NULL;
    rn_program_run *run = NULL;
    assert_ok(rn_program_make(phases, 2, rn_cpu_caps(), NULL, &program));
    record();
    assert_ok(rn_program_open(program, sources, NULL, &run));
    for (uint32_t i = 0; i < 5; i++)
        assert_ok(run_once(rn_program_session(run, i == 1 || i == 3)));
    rn_program_close(run);
    rn_timeline *t = read_back();
    assert_true(is_as_predicted(t));
    assert_false(has_overlap(t));
    expect_all_ends(t);
    assert_int_equal(count_ops(t, "enter phase"), 5); // each time another one than before
    rn_timeline_destroy(t);
    rn_program_destroy(program);
    rn_recipe_destroy(&step);
    rn_recipe_destroy(&evaluate);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_model_uses_what_was_planned),
        cmocka_unit_test(a_convolutional_net_uses_what_was_planned),
        cmocka_unit_test(resnet18_uses_what_was_planned),
        cmocka_unit_test(training_uses_what_was_planned_and_has_its_phases),
        cmocka_unit_test(weights_say_themselves_whether_they_are_trained),
        cmocka_unit_test(queues_of_another_device_have_lanes_of_their_own),
        cmocka_unit_test(what_a_step_keeps_on_the_host_is_seen_on_its_way),
        cmocka_unit_test(runs_that_begin_behind_the_first_blocks_use_what_was_planned),
        cmocka_unit_test(segments_with_brought_weights_use_what_was_planned),
        cmocka_unit_test(phases_of_a_program_take_turns_in_the_arena),
        cmocka_unit_test(a_lifetime_that_was_changed_is_seen),
        cmocka_unit_test(live_bytes_that_are_wrong_at_one_step_are_seen),
        cmocka_unit_test(buffers_on_top_of_each_other_are_seen),
        cmocka_unit_test(a_recording_may_begin_between_two_runs),
        cmocka_unit_test(a_run_that_is_cancelled_ends_what_it_began),
        cmocka_unit_test(a_kernel_that_fails_ends_what_it_began),
        cmocka_unit_test(without_memory_a_session_runs_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
