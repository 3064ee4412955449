// labels: threads
// Segments of runs: the same bits as whole runs, whatever runs in between, with weights that stay
// and with weights that are brought, and refused where something would be missing.
#include "chain.h"

#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "memory/account.h"
#include "plan/planner.h"

#include <stdatomic.h>

enum { LAYERS = 9, WIDTH = 96, ROWS = 3, MIDDLE = 5 };

static chain all = {.layers = LAYERS, .width = WIDTH, .rows = ROWS};
static float expected[2][ROWS * WIDTH];       // y of seeds 0 and 1
static float before[2][LAYERS][ROWS * WIDTH]; // what a layer reads on the way there

static void compute(chain *c, uint32_t seed, float *y) {
    rn_plan *plan = chain_plan(c, rn_cpu_caps(), 0);
    rn_weight_source source = chain_memory(c);
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    assert_ok(chain_run(c, session, ROWS, seed, y));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static int open_all(void **state) {
    (void)state;
    chain_open(&all);
    chain_write(&all, test_path("chain.safetensors"));
    for (uint32_t seed = 0; seed < 2; seed++) {
        compute(&all, seed, expected[seed]);
        for (uint32_t layer = 1; layer < LAYERS; layer++) {
            chain first = all;
            float *x = before[seed][layer];
            first.layers = layer;
            compute(&first, seed, x);
            for (int i = 0; i < ROWS * WIDTH; i++) // the relu that only the whole chain has there
                x[i] = x[i] > 0 ? x[i] : 0;
        }
    }
    return 0;
}

static void free_segments(void);

static int close_all(void **state) {
    (void)state;
    free_segments();
    chain_close(&all);
    return 0;
}

// Block 0 is the graph's own, without a name.
static uint32_t block_of(uint32_t layer) {
    return layer + 1;
}

enum { END = LAYERS + 1 }; // of all blocks

static const rn_residency_rule suffix = {.suffix = true};

// What is streamed is of the first blocks; the i-th of 8 budgets.
static rn_plan *plan_prefix(const rn_device_caps *caps, uint32_t i) {
    rn_recipe recipe = chain_recipe(&all);
    rn_plan *plan;
    rn_plan_options options = {.budget_bytes = chain_budget(&all, caps, i, 8)};
    assert_ok(rn_plan_make_alone(&recipe, caps, &options, &suffix, &plan));
    assert_true(rn_plan_is_valid(plan));
    return plan;
}

// The roomiest plan that streams and leaves layer MIDDLE where it is.
static rn_plan *plan_middle(const rn_device_caps *caps) {
    for (uint32_t i = 0; i < 8; i++) {
        rn_plan *plan = plan_prefix(caps, i);
        if (plan->prefix_blocks && plan->prefix_blocks <= block_of(MIDDLE)) return plan;
        rn_plan_destroy(plan);
    }
    fail();
    return NULL;
}

// ---- plans --------------------------------------------------------------------------------------

static void a_prefix_is_streamed_and_no_more(void **state) {
    (void)state;
    uint32_t last = UINT32_MAX, different = 0;
    for (uint32_t i = 0; i < 8; i++) {
        rn_plan *plan = plan_prefix(rn_cpu_caps(), i);
        uint32_t streamed = plan->prefix_blocks;
        for (uint32_t u = 0; u < plan->group_count; u++) {
            assert_int_equal(plan->groups[u].block, block_of(u));
            assert_int_equal(plan->groups[u].resident, block_of(u) >= streamed);
        }
        assert_true(streamed <= last);
        different += streamed != last;
        last = streamed;
        assert_true(plan->tail_seconds > 0 || streamed == block_of(LAYERS));
        assert_true(plan->tail_seconds <= plan->summary.decode_seconds);
        if (streamed == 0) // then all of it lies behind, to the rounding of sums
            assert_true(fabs(plan->tail_seconds / plan->summary.decode_seconds - 1) < 1e-9);
        rn_plan_destroy(plan);
    }
    assert_int_equal(last, 0);
    assert_true(different > 3);
}

// Slots that speed up whole runs may cost a block its place, for the host to compute.
static void a_host_that_computes_the_prefix_keeps_it_short(void **state) {
    (void)state;
    rn_recipe recipe = chain_recipe(&all);
    uint32_t shorter = 0;
    recipe.decode_steps = 100;
    for (uint32_t i = 0; i < 60; i++) {
        rn_plan_options options = {.budget_bytes = chain_budget(&all, rn_cpu_caps(), i, 60)};
        rn_residency_rule rule = suffix;
        rn_plan *plan, *host;
        assert_ok(rn_plan_make_alone(&recipe, rn_cpu_caps(), &options, &rule, &plan));
        rule.host_bytes_second = 2 * rn_cpu_caps()->disk_bytes_second;
        assert_ok(rn_plan_make_alone(&recipe, rn_cpu_caps(), &options, &rule, &host));
        double prefix = host->prefix_blocks * (double)all.weight_bytes / rule.host_bytes_second;
        if (host->prefix_blocks) // block 0 has no weights
            prefix -= (double)all.weight_bytes / rule.host_bytes_second;
        assert_true(fabs(host->summary.decode_seconds - prefix - host->tail_seconds) < 1e-12);
        assert_true(host->prefix_blocks <= plan->prefix_blocks);
        shorter += host->prefix_blocks < plan->prefix_blocks;
        rn_plan_destroy(plan);
        rn_plan_destroy(host);
    }
    assert_true(shorter > 0);
}

static void where_a_segment_can_begin_and_end_is_found(void **state) {
    (void)state;
    rn_plan *plan = plan_middle(rn_cpu_caps());
    rn_segment part, behind;
    for (uint32_t block = 2; block < END; block++) {
        assert_ok(rn_plan_find_segment(plan, block, END, &part));
        assert_int_equal(plan->steps[part.first_step].kind, RN_STEP_COMPUTE);
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[part.first_step].node);
        assert_int_equal(node->block, block);
        assert_int_equal(node->inputs[0], part.in);
        assert_int_equal(part.end_step, plan->step_count);
        assert_int_equal(part.out, RN_NO_VALUE);
        assert_ok(rn_plan_find_segment(plan, 0, block, &behind));
        assert_int_equal(behind.first_step, 0);
        assert_int_equal(behind.end_step, part.first_step);
        assert_int_equal(behind.in, RN_NO_VALUE);
        assert_int_equal(behind.out, part.in);
    }
    assert_ok(rn_plan_find_segment(plan, 0, END, &part));
    assert_fails(RN_INVALID, rn_plan_find_segment(plan, 3, 3, &part));
    assert_fails(RN_INVALID, rn_plan_find_segment(plan, END, END, &part));
    assert_fails(RN_INVALID, rn_plan_find_segment(plan, 3, END + 1, &part));
    assert_fails(RN_UNSUPPORTED, rn_plan_find_segment(plan, block_of(0), END, &part)); // the first
    rn_plan_destroy(plan);
}

// x -> tanh "early" -> relu -> relu "late", a block each.
static rn_status build_early(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self, (void)options;
    RN_TRY(rn_graph_create(out));
    rn_value x = rn_graph_input(*out, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, WIDTH));
    rn_graph_block(*out, "first");
    x = rn_op_tanh(*out, x);
    rn_graph_output(*out, x, "early");
    rn_graph_block(*out, "second");
    x = rn_op_relu(*out, x);
    rn_graph_block(*out, "third");
    rn_graph_output(*out, rn_op_relu(*out, x), "late");
    return rn_graph_finish(*out);
}

static void no_run_begins_behind_an_output_but_its_own_input(void **state) {
    (void)state;
    rn_recipe recipe = {.name = "early", .build = build_early, .rows = ROWS};
    rn_segment part;
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, &plan));
    assert_ok(rn_plan_find_segment(plan, 2, 4, &part)); // what it is handed is that output
    assert_fails(RN_UNSUPPORTED, rn_plan_find_segment(plan, 3, 4, &part));
    assert_non_null(strstr(rn_last_error()->message, "an output is made before it"));
    assert_ok(rn_plan_find_segment(plan, 0, 3, &part)); // which has none to show
    rn_plan_destroy(plan);
}

// ---- runs ---------------------------------------------------------------------------------------

static const rn_block_range tail = {MIDDLE + 1, END};

// Segments of the session that is open.
static struct {
    rn_arena memory;
    rn_segment_table table;
} cut;

static rn_status cut_segments(const rn_plan *plan, const rn_block_range *ranges, uint32_t count,
                              uint64_t rows) {
    rn_arena_free_all(&cut.memory);
    rn_arena_init(&cut.memory, RN_HOST_OTHER, 0);
    return rn_plan_cut_segments(&cut.memory, plan, ranges, count, rows, 0, &cut.table);
}

static void free_segments(void) {
    rn_arena_free_all(&cut.memory);
}

static rn_session *open_cut(const rn_plan *plan, const rn_block_range *ranges, uint32_t count,
                            const rn_weight_source *source, const rn_session_options *options) {
    rn_session *session;
    assert_ok(cut_segments(plan, ranges, count, ROWS));
    assert_ok(rn_session_create_with(plan, &cut.table, source, options, &session));
    return session;
}

static rn_session *open_session(const rn_plan *plan, const rn_weight_source *source,
                                rn_device *device) {
    rn_session_options options = {.device = device, .audit = true};
    return open_cut(plan, &tail, 1, source, &options);
}

static void expect_whole(rn_session *session, uint32_t seed) {
    float y[ROWS * WIDTH];
    assert_ok(chain_run(&all, session, ROWS, seed, y));
    assert_memory_equal(y, expected[seed], sizeof y);
}

static rn_status run_tail(rn_session *session, uint32_t seed, uint64_t rows, float *y) {
    uint64_t bytes = rows * WIDTH * sizeof(float);
    float nothing[ROWS * WIDTH] = {0}; // all inputs are set; this one nobody reads
    RN_TRY(rn_session_set(session, "x", nothing, bytes));
    RN_TRY(rn_session_run_segment(session, 0, before[seed][MIDDLE], bytes, rows));
    return rn_session_get(session, "y", y, bytes);
}

static void expect_tail(rn_session *session, uint32_t seed, uint64_t rows) {
    float y[ROWS * WIDTH];
    assert_ok(run_tail(session, seed, rows, y));
    assert_memory_equal(y, expected[seed], rows * WIDTH * sizeof(float));
}

// Whole runs and others in any order: the ring goes on where it was.
static void expect_any_order(const rn_plan *plan, const rn_weight_source *source,
                             rn_device *device) {
    rn_session *session = open_session(plan, source, device);
    uint32_t seed = 17;
    for (int i = 0; i < 24; i++) {
        uint32_t word = (uint32_t)((chain_random(&seed) + 1) * 1000);
        if (word % 3 == 0)
            expect_whole(session, word % 2);
        else
            expect_tail(session, word % 2, 1 + word % ROWS);
    }
    rn_session_facts facts = rn_session_get_facts(session);
    assert_int_equal(facts.runs, 24);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    rn_session_destroy(session);
}

static void a_segment_behind_the_prefix_equals_a_whole_run(void **state) {
    (void)state;
    rn_checkpoint *checkpoint;
    rn_device *sim;
    assert_ok(rn_checkpoint_open(test_path("chain.safetensors"), &checkpoint));
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    rn_weight_source source = {.checkpoint = checkpoint}, memory = chain_memory(&all);
    for (int on_sim = 0; on_sim < 2; on_sim++) {
        rn_device *device = on_sim ? sim : NULL;
        rn_plan *plan = plan_middle(on_sim ? rn_device_get_caps(sim) : rn_cpu_caps());
        rn_plan *roomy = chain_plan(&all, &plan->caps, 0);
        expect_any_order(plan, &source, device);
        expect_any_order(plan, &memory, device);
        expect_any_order(roomy, &source, device);
        rn_plan_destroy(plan);
        rn_plan_destroy(roomy);
    }
    rn_device_destroy(sim);
    rn_checkpoint_close(checkpoint);
}

static void a_fault_on_the_way_is_told_and_forgotten_by_a_reset(void **state) {
    (void)state;
    rn_device *sim;
    float y[ROWS * WIDTH];
    uint32_t failed = 0;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    rn_plan *plan = plan_middle(rn_device_get_caps(sim));
    rn_weight_source memory = chain_memory(&all);
    rn_session *session = open_session(plan, &memory, sim);
    for (uint32_t n = 1; n < 12; n++) {
        rn_sim_device_arm(sim, 0, n % 2 ? n : 0, n % 2 ? 0 : n / 2);
        rn_status s = run_tail(session, 0, ROWS, y);
        rn_sim_device_arm(sim, 0, 0, 0);
        failed += s == RN_DEVICE;
        if (s != RN_OK) assert_fails(RN_DEVICE, run_tail(session, 0, ROWS, y));
        assert_ok(rn_session_reset(session));
        expect_tail(session, 1, ROWS);
        expect_whole(session, n % 2);
    }
    assert_true(failed > 4);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    static const rn_block_range streamed = {2, 3}, twice[] = {{6, 8}, {7, END}};
    rn_plan *plan = plan_middle(rn_cpu_caps());
    rn_weight_source memory = chain_memory(&all);
    rn_session *session;
    float y[ROWS * WIDTH], *middle = before[0][MIDDLE];
    uint64_t row = WIDTH * sizeof(float);
    assert_fails(RN_UNSUPPORTED, cut_segments(plan, &streamed, 1, 1));
    assert_fails(RN_INVALID, cut_segments(plan, twice, 2, ROWS));
    assert_fails(RN_INVALID, cut_segments(plan, &tail, 1, ROWS + 1));
    assert_ok(rn_session_create(plan, &memory, NULL, &session));
    assert_fails(RN_INVALID, rn_session_run_segment(session, 0, middle, row, 1)); // no segment
    rn_session_destroy(session);
    assert_ok(cut_segments(plan, &tail, 1, 1));
    assert_ok(rn_session_create_with(plan, &cut.table, &memory, NULL, &session));
    assert_fails(RN_INVALID, rn_session_run_segment(session, 0, middle, row, 1)); // no input
    assert_fails(RN_INVALID, run_tail(session, 0, 2, y));                         // too many rows
    assert_ok(rn_session_set(session, "x", y, row));
    assert_fails(RN_INVALID, rn_session_run_segment(session, 0, middle, row - 4, 1));
    assert_fails(RN_INVALID, rn_session_run_segment(session, 1, middle, row, 1));
    expect_tail(session, 0, 1); // no harm done
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void what_it_takes_on_the_host_is_known(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    rn_plan *plan = plan_middle(rn_device_get_caps(sim));
    rn_weight_source memory = chain_memory(&all);
    rn_session_options options = {.device = sim};
    uint64_t held[2];
    for (uint32_t count = 0; count < 2; count++) {
        rn_session *session = open_cut(plan, &tail, count, &memory, &options);
        held[count] = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STAGING).now_bytes;
        rn_session_destroy(session);
    }
    assert_int_equal(held[1] - held[0], rn_plan_segments_bytes(plan, &cut.table));
    assert_int_equal(held[1] - held[0], ROWS * WIDTH * sizeof(float));
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

// ---- recording ----------------------------------------------------------------------------------

enum { MOST_COMMANDS = 64, MOST_RECORDINGS = 8 };

struct rn_recording {
    rn_command commands[MOST_COMMANDS];
    uint32_t count;
};

// A queue that can record, made of one that cannot.
static struct {
    void (*submit)(rn_queue *queue, const rn_command *command);
    rn_recording recordings[MOST_RECORDINGS], *open;
    uint32_t count, replays;
    uint32_t refusals; // of recordings, from the next on
} recorder;

static void record_or_submit(rn_queue *queue, const rn_command *command) {
    rn_recording *open = recorder.open;
    if (!open) {
        recorder.submit(queue, command);
        return;
    }
    assert_true(command->kind <= RN_COMMAND_ZERO); // of this queue alone
    assert_true(open->count < MOST_COMMANDS);
    open->commands[open->count++] = *command;
}

static rn_status begin_recording(rn_queue *queue) {
    (void)queue;
    assert_true(recorder.count < MOST_RECORDINGS);
    recorder.open = &recorder.recordings[recorder.count++];
    return RN_OK;
}

static rn_status keep_recording(rn_queue *queue, rn_recording **out) {
    (void)queue;
    *out = recorder.open;
    recorder.open = NULL;
    if (recorder.refusals == 0) return RN_OK;
    recorder.refusals--;
    *out = NULL;
    return rn_fail(RN_NO_MEMORY, "no room for a recording");
}

static void replay(rn_queue *queue, rn_recording *recording) {
    recorder.replays++;
    for (uint32_t i = 0; i < recording->count; i++)
        recorder.submit(queue, &recording->commands[i]);
}

static void forget(rn_queue *queue, rn_recording *recording) {
    (void)queue;
    recording->count = 0;
}

static void watch(rn_queue *queue) {
    memset(&recorder, 0, sizeof recorder);
    recorder.submit = queue->submit;
    queue->submit = record_or_submit;
    queue->record = begin_recording;
    queue->keep = keep_recording;
    queue->replay = replay;
    queue->forget = forget;
}

static rn_session *open_recorded(rn_device *sim, const rn_plan *plan) {
    rn_weight_source memory = chain_memory(&all);
    rn_session_options options = {.device = sim};
    rn_session *session = open_cut(plan, &tail, 1, &memory, &options);
    watch(session->compute);
    return session;
}

// Nine runs, two of them whole.
static void run_recorded(rn_device *sim, const rn_plan *plan) {
    rn_session *session = open_recorded(sim, plan);
    for (uint32_t i = 0; i < 9; i++) {
        if (i % 4 == 3)
            expect_whole(session, i % 2);
        else
            expect_tail(session, i % 2, ROWS);
    }
    rn_session_destroy(session);
}

// What streams is walked each time; of the others the first only, one kind apart from the other.
static void it_is_recorded_also_where_whole_runs_are_not(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &sim));
    rn_plan *plan = plan_middle(rn_device_get_caps(sim));
    rn_plan *roomy = chain_plan(&all, rn_device_get_caps(sim), 0);
    run_recorded(sim, plan);
    assert_int_equal(recorder.count, 1);
    assert_int_equal(recorder.replays, 7 - 1);
    run_recorded(sim, roomy);
    assert_int_equal(recorder.count, 2);
    assert_int_equal(recorder.replays, 7 - 1 + 2 - 1);
    rn_plan_destroy(plan);
    rn_plan_destroy(roomy);
    rn_device_destroy(sim);
}

static void expect_tails(rn_session *session, uint32_t recordings, uint32_t replays) {
    for (uint32_t i = 0; i < 4; i++)
        expect_tail(session, i % 2, ROWS);
    assert_int_equal(recorder.count, recordings);
    assert_int_equal(recorder.replays, replays);
}

// Runs are walked where there is no room for a recording; after a reset they are recorded anew.
static void without_room_for_a_recording_runs_are_walked(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_middle(&sim->caps);
    rn_session *session = open_recorded(sim, plan);
    recorder.refusals = 1;
    expect_tails(session, 1, 0);
    assert_ok(rn_session_reset(session));
    expect_tails(session, 2, 3);
    assert_ok(rn_session_reset(session));
    expect_tails(session, 3, 6);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

// ---- weights that are brought -------------------------------------------------------------------

// Blocks 1 to 7, or more, are streamed; of them 2, 4 and 5, and the last are brought in segments.
static const rn_block_range interleaved[] = {{2, 3}, {4, 6}, {7, END}};
enum { SEGMENTS = 3 };

static rn_plan *plan_interleaved(const rn_device_caps *caps, uint32_t slots) {
    rn_recipe recipe = chain_recipe(&all);
    rn_plan *plan;
    uint64_t room = (all.weight_bytes + 4095) / 4096 * 4096; // of a block
    rn_plan_options options = {.resident_blocks = 2};
    rn_residency_rule rule = {.suffix = true, .ring_bytes = slots * room};
    assert_ok(rn_plan_make_alone(&recipe, caps, &options, &rule, &plan));
    assert_true(rn_plan_is_valid(plan));
    assert_int_equal(plan->prefix_blocks, END - 2);
    assert_true(plan->ring_bytes >= slots * room);
    plan->ring_bytes = slots * room; // slots may take more
    return plan;
}

static rn_session *open_interleaved(const rn_plan *plan, rn_device *sim, const rn_flag *cancel) {
    rn_weight_source memory = chain_memory(&all);
    rn_session_options options = {.device = sim, .cancel = cancel};
    return open_cut(plan, interleaved, SEGMENTS, &memory, &options);
}

static rn_status run_segment(rn_session *session, uint32_t segment, uint32_t seed, uint64_t rows) {
    uint64_t bytes = rows * WIDTH * sizeof(float), out_bytes = 0;
    uint32_t first = interleaved[segment].first - 1, end = interleaved[segment].end - 1; // layers
    static const float nothing[ROWS * WIDTH];
    float y[ROWS * WIDTH];
    RN_TRY(rn_session_set(session, "x", nothing, bytes));
    RN_TRY(rn_session_run_segment(session, segment, before[seed][first], bytes, rows));
    const void *out = rn_session_segment_output(session, &out_bytes);
    if (end == LAYERS) {
        assert_null(out);
        RN_TRY(rn_session_get(session, "y", y, bytes));
        assert_memory_equal(y, expected[seed], bytes);
        return RN_OK;
    }
    assert_int_equal(out_bytes, bytes);
    assert_memory_equal(out, before[seed][end], bytes);
    assert_fails(RN_INVALID, rn_session_get(session, "y", y, bytes)); // it is not there yet
    return RN_OK;
}

static rn_status run_segments(rn_session *session, uint32_t seed, uint64_t rows) {
    rn_session_prefetch(session);
    for (uint32_t segment = 0; segment < SEGMENTS; segment++)
        RN_TRY(run_segment(session, segment, seed, rows));
    return RN_OK;
}

// In order, as they are meant to be run, and in any other; whole runs in between.
static void segments_have_their_weights_brought_in_any_order(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.link_bytes_second = 1e9}, &sim));
    for (uint32_t slots = 1; slots <= 4; slots++) {
        rn_plan *plan = plan_interleaved(rn_device_get_caps(sim), slots);
        rn_session *session = open_interleaved(plan, sim, NULL);
        assert_int_equal(session->segments->slot_count, slots);
        assert_int_equal(session->segments->load_count, 4);
        uint32_t seed = slots;
        for (int i = 0; i < 60; i++) {
            uint32_t word = (uint32_t)((chain_random(&seed) + 1) * 1000);
            if (word % 5 == 0)
                expect_whole(session, word % 2);
            else if (word % 5 == 1)
                assert_ok(run_segment(session, word % SEGMENTS, word % 2, 1 + word % ROWS));
            else
                assert_ok(run_segments(session, word % 2, 1 + word % ROWS));
        }
        rn_session_destroy(session);
        rn_plan_destroy(plan);
    }
    rn_device_destroy(sim);
}

// Each load is brought once a run, and the first of the next run before that begins.
static void the_ring_goes_round_over_the_loads_alone(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_interleaved(rn_device_get_caps(sim), 1);
    rn_session *session = open_interleaved(plan, sim, NULL);
    const rn_session_slots *p = &session->slots;
    assert_int_equal(p->holds[0], RN_NO_LOAD);
    rn_session_prefetch(session);
    for (int run = 0; run < 3; run++) {
        static const uint32_t next[SEGMENTS] = {1, 3, 0};
        for (uint32_t segment = 0; segment < SEGMENTS; segment++) {
            assert_ok(run_segment(session, segment, 0, ROWS));
            assert_int_equal(p->holds[0], next[segment]);
        }
        assert_false(session->primed);
    }
    expect_whole(session, 1);
    assert_true(session->primed);
    assert_int_equal(p->holds[0], RN_NO_LOAD);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

static void segments_with_brought_weights_are_recorded_chunk_by_chunk(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_interleaved(rn_device_get_caps(sim), 1);
    rn_session *session = open_interleaved(plan, sim, NULL);
    watch(session->compute);
    assert_int_equal(session->segments->chunk_count,
                     5); // two in the middle, and what stays at the end
    for (uint32_t i = 0; i < 6; i++) {
        assert_ok(run_segments(session, i % 2, ROWS));
        if (i == 3) expect_whole(session, 1);
    }
    assert_int_equal(recorder.count, 5);
    assert_int_equal(recorder.replays, 5 * 5);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

static void faults_among_brought_weights_are_forgotten_by_a_reset(void **state) {
    (void)state;
    rn_device *sim;
    uint32_t failed = 0;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_interleaved(rn_device_get_caps(sim), 1);
    rn_session *session = open_interleaved(plan, sim, NULL);
    for (uint32_t n = 1; n < 40; n++) {
        rn_session_settle(session);
        rn_sim_device_arm(sim, 0, n % 2 ? n / 2 : 0, n % 2 ? 0 : n / 2);
        rn_status s = run_segments(session, 0, ROWS);
        if (s == RN_OK) s = run_segments(session, 1, ROWS);
        rn_session_settle(session);
        rn_sim_device_arm(sim, 0, 0, 0);
        failed += s == RN_DEVICE;
        if (s != RN_OK) assert_fails(RN_DEVICE, run_segments(session, 0, ROWS));
        assert_ok(rn_session_reset(session));
        if (n % 3) assert_ok(run_segments(session, 1, 1 + n % ROWS));
        if (n % 5 == 0) expect_whole(session, n % 2);
    }
    assert_true(failed > 25);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

static void a_cancelled_segment_can_be_run_again(void **state) {
    (void)state;
    static rn_flag cancel;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_interleaved(rn_device_get_caps(sim), 2);
    rn_session *session = open_interleaved(plan, sim, &cancel);
    for (uint32_t n = 0; n < 6; n++) {
        rn_session_prefetch(session);
        atomic_store(&cancel, true);
        assert_fails(RN_CANCELLED, run_segment(session, n % SEGMENTS, 0, ROWS));
        atomic_store(&cancel, false);
        assert_ok(rn_session_reset(session));
        assert_ok(run_segments(session, n % 2, ROWS));
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

// Room for less than a block, and weights that come from disk.
static void what_cannot_be_brought_is_refused(void **state) {
    (void)state;
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    rn_plan *plan = plan_interleaved(rn_device_get_caps(sim), 1);
    uint64_t ring = plan->ring_bytes;
    plan->ring_bytes = 4096;
    assert_fails(RN_UNSUPPORTED, cut_segments(plan, interleaved, SEGMENTS, ROWS));
    assert_non_null(strstr(rn_last_error()->message, "ring"));
    plan->ring_bytes = ring;
    plan->from_host = false;
    assert_fails(RN_UNSUPPORTED, cut_segments(plan, interleaved, SEGMENTS, ROWS));
    assert_non_null(strstr(rn_last_error()->message, "disk"));
    rn_plan_destroy(plan);
    rn_device_destroy(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_streamed_and_no_more),
        cmocka_unit_test(a_host_that_computes_the_prefix_keeps_it_short),
        cmocka_unit_test(where_a_segment_can_begin_and_end_is_found),
        cmocka_unit_test(no_run_begins_behind_an_output_but_its_own_input),
        cmocka_unit_test(a_segment_behind_the_prefix_equals_a_whole_run),
        cmocka_unit_test(a_fault_on_the_way_is_told_and_forgotten_by_a_reset),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(what_it_takes_on_the_host_is_known),
        cmocka_unit_test(it_is_recorded_also_where_whole_runs_are_not),
        cmocka_unit_test(without_room_for_a_recording_runs_are_walked),
        cmocka_unit_test(segments_have_their_weights_brought_in_any_order),
        cmocka_unit_test(the_ring_goes_round_over_the_loads_alone),
        cmocka_unit_test(segments_with_brought_weights_are_recorded_chunk_by_chunk),
        cmocka_unit_test(faults_among_brought_weights_are_forgotten_by_a_reset),
        cmocka_unit_test(a_cancelled_segment_can_be_run_again),
        cmocka_unit_test(what_cannot_be_brought_is_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
