// labels: threads
// Tables of embeddings whose rows are read on demand: the same bits as with the table held, whoever
// else reads it; and what happens with ids, files and memory that are not as they should be.
#include "chain.h"

#include <ration/memory.h>

#include "backend/sim/sim.h"
#include "base/fault.h"
#include "base/fetcher.h"

#include <unistd.h>

enum { VOCAB = 50, WIDTH = 32, MOST = 9 };

static float table[VOCAB][WIDTH], inner[WIDTH][WIDTH];

static rn_device_caps caps_with(uint64_t row_table_bytes) {
    rn_device_caps caps = *rn_cpu_caps();
    caps.row_table_bytes = row_table_bytes;
    caps.file_layout_bytes = 1;
    return caps;
}

static int open_all(void **state) {
    uint32_t seed = 3;
    (void)state;
    for (int i = 0; i < VOCAB * WIDTH; i++)
        table[i / WIDTH][i % WIDTH] = chain_random(&seed);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        inner[i / WIDTH][i % WIDTH] = chain_random(&seed) * 0.4f;
    return 0;
}

// ---- models -------------------------------------------------------------------------------------

typedef enum shape_of { UNTIED, TIED, TWO_INPUTS, WRAPPED, IDS_SEEN } shape_of;

// logits of: a table that is the head as well; one that two inputs look into; one whose ids are of
// 64 bits, those below zero counted from its end; one whose ids another node reads.
static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    shape_of shape = *(shape_of *)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_dtype dtype = shape == WRAPPED ? RN_DTYPE_I64 : RN_DTYPE_I32;
    rn_value ids = rn_graph_input(g, "ids", dtype, RN_SHAPE(RN_ROWS));
    rn_graph_block(g, "first");
    rn_value t = rn_graph_weight(g, "table", RN_DTYPE_F32, RN_SHAPE(VOCAB, WIDTH));
    rn_value x = shape == WRAPPED ? rn_op_gather(g, t, ids, 0) : rn_op_embedding(g, t, ids);
    if (shape == TWO_INPUTS) {
        rn_value more = rn_graph_input(g, "more", RN_DTYPE_I32, RN_SHAPE(RN_ROWS, 2));
        x = rn_op_add(g, x, rn_op_sum(g, rn_op_embedding(g, t, more), 2, false));
    }
    if (shape == IDS_SEEN)
        x = rn_op_scale(g, x, 1, 0), rn_graph_output(g, rn_op_cast(g, ids, RN_DTYPE_F32), "seen");
    rn_graph_block(g, "middle");
    rn_value w = rn_graph_weight(g, "inner", RN_DTYPE_F32, RN_SHAPE(WIDTH, WIDTH));
    x = rn_op_matmul(g, x, w, RN_NO_VALUE);
    rn_graph_block(g, "last");
    if (shape == TIED) x = rn_op_matmul(g, x, t, RN_NO_VALUE);
    rn_graph_output(g, x, "y");
    return rn_graph_finish(g);
}

static rn_plan *make_plan(shape_of *shape, const rn_device_caps *caps, uint64_t budget) {
    rn_recipe recipe = {.name = "rows", .self = shape, .build = build, .rows = MOST};
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, caps, &(rn_plan_options){.budget_bytes = budget}, &plan));
    assert_true(rn_plan_is_valid(plan));
    return plan;
}

static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self, (void)dtype;
    if (strcmp(name, "table") == 0 && bytes == sizeof table) return table;
    return strcmp(name, "inner") == 0 && bytes == sizeof inner ? inner : NULL;
}

static void write_file(const char *path) {
    static const uint64_t dims[2][2] = {{VOCAB, WIDTH}, {WIDTH, WIDTH}};
    const rn_write_tensor tensors[2] = {
        {.name = RN_STR("table"), .dtype = RN_DTYPE_F32, .rank = 2, .dims = dims[0]},
        {.name = RN_STR("inner"), .dtype = RN_DTYPE_F32, .rank = 2, .dims = dims[1]}};
    rn_writer *writer;
    assert_ok(rn_writer_create(path, tensors, 2, NULL, &writer));
    assert_ok(rn_writer_append(writer, table, sizeof table));
    assert_ok(rn_writer_append(writer, inner, sizeof inner));
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

static rn_checkpoint *open_file(const char *path) {
    rn_checkpoint *checkpoint;
    write_file(path);
    assert_ok(rn_checkpoint_open(path, &checkpoint));
    return checkpoint;
}

// ---- runs ---------------------------------------------------------------------------------------

static const int32_t ids[MOST] = {7, 0, 49, 7, 7, 13, 0, 22, 48};
static const int64_t wrapped[MOST] = {7, -VOCAB, 49, 7, 7 - VOCAB, 13, 0, 22, -2}; // the same rows
static const int32_t more[MOST][2] = {{1, 2}, {49, 0}, {3, 3}, {7, 7}, {0, 0},
                                      {9, 1}, {2, 2},  {5, 6}, {1, 1}};

// In as many runs as the plan's rows make necessary.
static rn_status run(rn_session *session, shape_of shape, uint64_t rows, float *y) {
    uint64_t width = shape == TIED ? VOCAB : WIDTH, most = session->plan->summary.rows, n = 0;
    for (uint64_t at = 0; at < rows; at += n) {
        n = rows - at < most ? rows - at : most;
        const void *own =
            shape == WRAPPED ? (const void *)(wrapped + at) : (const void *)(ids + at);
        uint64_t size = shape == WRAPPED ? sizeof *wrapped : sizeof *ids;
        RN_TRY(rn_session_set(session, "ids", own, n * size));
        if (shape == TWO_INPUTS)
            RN_TRY(rn_session_set(session, "more", more + at, n * sizeof *more));
        RN_TRY(rn_session_run(session, n));
        RN_TRY(rn_session_get(session, "y", y + at * width, n * width * sizeof *y));
    }
    return RN_OK;
}

static void run_shape(shape_of shape, const rn_weight_source *source) {
    rn_device_caps held = caps_with(0), gathered = caps_with(1);
    float want[MOST * VOCAB] = {0}, got[MOST * VOCAB] = {0};
    rn_plan *plan = make_plan(&shape, &held, 0);
    rn_session *session;
    assert_int_equal(plan->row_table_count, 0);
    assert_ok(rn_session_create(plan, source, NULL, &session));
    assert_ok(run(session, shape, MOST, want));
    rn_session_destroy(session);
    uint64_t high = plan->summary.planned_bytes;
    rn_plan_destroy(plan);
    plan = make_plan(&shape, &gathered, 0);
    uint64_t low = plan->summary.smallest_bytes;
    rn_plan_destroy(plan);
    for (uint64_t budget = low;; budget += (high - low) / 5 + 1) {
        plan = make_plan(&shape, &gathered, budget);
        assert_int_equal(plan->row_table_count, shape == TWO_INPUTS ? 2 : 1);
        assert_ok(rn_session_create(plan, source,
                                    &(rn_session_options){.audit = true, .guard = true}, &session));
        for (uint64_t rows = 1; rows <= MOST; rows += 4) {
            assert_ok(run(session, shape, rows, got));
            assert_memory_equal(got, want, rows * (shape == TIED ? VOCAB : WIDTH) * sizeof *got);
        }
        assert_int_equal(rn_session_get_facts(session).live_mismatch_step, UINT64_MAX);
        assert_true(rn_session_get_facts(session).live_peak_bytes <= plan->summary.live_peak_bytes);
        rn_session_destroy(session);
        rn_plan_destroy(plan);
        if (budget > high) break;
    }
}

static void rows_from_memory_give_the_bits_of_the_table(void **state) {
    (void)state;
    rn_weight_source source = {.find = find};
    for (shape_of shape = UNTIED; shape <= WRAPPED; shape++)
        run_shape(shape, &source);
}

static void rows_from_a_file_give_the_bits_of_the_table(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = open_file(test_path("rows.safetensors"));
    for (shape_of shape = UNTIED; shape <= WRAPPED; shape++)
        run_shape(shape, &(rn_weight_source){.checkpoint = checkpoint});
    rn_checkpoint_close(checkpoint);
}

// Rows and rewritten ids reach a device with its own memory through its I/O staging buffers.
static void rows_are_brought_to_a_device_of_its_own_memory(void **state) {
    (void)state;
    rn_checkpoint *checkpoint = open_file(test_path("io.safetensors"));
    rn_weight_source source = {.checkpoint = checkpoint};
    rn_device_caps held = caps_with(0);
    float want[MOST * VOCAB], got[MOST * VOCAB];
    rn_device *sim;
    assert_ok(rn_sim_device_create(NULL, &sim));
    sim->caps.row_table_bytes = 1;
    for (shape_of shape = UNTIED; shape <= WRAPPED; shape++) {
        uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STAGING).now_bytes;
        rn_plan *whole = make_plan(&shape, &held, 0), *plan = make_plan(&shape, &sim->caps, 0);
        rn_session *session;
        assert_int_equal(plan->row_table_count, shape == TWO_INPUTS ? 2 : 1);
        assert_ok(rn_session_create(whole, &source, NULL, &session));
        assert_ok(run(session, shape, MOST, want));
        rn_session_destroy(session);
        assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = sim}, &session));
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STAGING).now_bytes - before,
                         plan->summary.host_bytes);
        for (uint64_t rows = 1; rows <= MOST; rows += 4) {
            assert_ok(run(session, shape, rows, got));
            assert_memory_equal(got, want, rows * (shape == TIED ? VOCAB : WIDTH) * sizeof *got);
        }
        static const int64_t wrong = VOCAB; // and, of its first half, as i32
        assert_ok(rn_session_set(session, "ids", &wrong, shape == WRAPPED ? 8 : 4));
        if (shape == TWO_INPUTS) assert_ok(rn_session_set(session, "more", more, sizeof more[0]));
        assert_fails(RN_INVALID, rn_session_run(session, 1));
        assert_ok(rn_session_reset(session));
        assert_ok(run(session, shape, 1, got));
        assert_memory_equal(got, want, sizeof *got * (shape == TIED ? VOCAB : WIDTH));
        rn_session_destroy(session);
        rn_plan_destroy(whole);
        rn_plan_destroy(plan);
    }
    rn_device_destroy(sim);
    rn_checkpoint_close(checkpoint);
}

// ---- plans --------------------------------------------------------------------------------------

static void a_tied_head_streams_though_its_table_is_looked_into(void **state) {
    (void)state;
    shape_of shape = TIED;
    rn_device_caps held = caps_with(0), gathered = caps_with(1);
    rn_plan *plan = make_plan(&shape, &held, 0);
    rn_value t = rn_graph_find(plan->graph, RN_ROLE_WEIGHT, "table");
    assert_int_equal(plan->places[t].layout, RN_LAYOUT_PLAIN); // for the lookup's sake
    uint64_t least = plan->summary.smallest_bytes;
    rn_plan_destroy(plan);
    plan = make_plan(&shape, &gathered, 0);
    assert_int_equal(plan->places[t].layout, RN_LAYOUT_PANELS);
    assert_true(plan->summary.smallest_bytes < least + rn_fetch_room(0) * 4);
    rn_plan_destroy(plan);
    shape = UNTIED;
    plan = make_plan(&shape, &gathered, 0);
    assert_int_equal(plan->places[t].group, RN_NO_LOAD);
    assert_int_equal(plan->places[t].buffer, RN_NO_BUFFER);
    rn_plan_destroy(plan);
}

// Below zero they mean rows that depend on the table.
static rn_status build_two(void *self, const rn_recipe_options *options, rn_graph **out) {
    uint64_t rows = *(uint64_t *)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value at = rn_graph_input(g, "ids", RN_DTYPE_I64, RN_SHAPE(2, 3));
    rn_value t = rn_graph_weight(g, "table", RN_DTYPE_F32, RN_SHAPE(VOCAB, WIDTH));
    rn_value u = rn_graph_weight(g, "other", RN_DTYPE_F32, RN_SHAPE(rows, WIDTH));
    rn_graph_output(g, rn_op_add(g, rn_op_gather(g, t, at, 0), rn_op_gather(g, u, at, 0)), "y");
    return rn_graph_finish(g);
}

static void ids_below_zero_are_of_tables_of_one_size(void **state) {
    static const uint32_t tables[] = {2, 0, 0}; // other sizes; no fewer rows than ids
    uint64_t sizes[] = {VOCAB, VOCAB + 1, 6};
    rn_device_caps gathered = caps_with(1);
    (void)state;
    for (int i = 0; i < 3; i++) {
        rn_recipe recipe = {.name = "two", .self = &sizes[i], .build = build_two};
        rn_plan *plan;
        assert_ok(rn_plan_make(&recipe, &gathered, NULL, &plan));
        assert_int_equal(plan->row_table_count, tables[i]);
        rn_plan_destroy(plan);
    }
}

static void ids_that_another_node_reads_stay_as_they_are(void **state) {
    (void)state;
    shape_of shape = IDS_SEEN;
    rn_device_caps gathered = caps_with(1);
    rn_plan *plan = make_plan(&shape, &gathered, 0);
    assert_int_equal(plan->row_table_count, 0);
    rn_plan_destroy(plan);
}

static void the_plan_says_so(void **state) {
    (void)state;
    shape_of shape = TIED;
    rn_device_caps gathered = caps_with(1);
    rn_plan *plan = make_plan(&shape, &gathered, 0);
    bool said = false;
    for (uint32_t i = 0; i < plan->reason_count; i++)
        said |= strncmp(plan->reasons[i].text, "rows of table are read on demand", 32) == 0;
    assert_true(said);
    rn_plan_destroy(plan);
}

// ---- failures -----------------------------------------------------------------------------------

static void an_id_that_is_no_row_is_an_error(void **state) {
    (void)state;
    static const int32_t wrong[] = {VOCAB, -1};
    shape_of shape = UNTIED;
    rn_device_caps gathered = caps_with(1);
    rn_plan *plan = make_plan(&shape, &gathered, 0);
    rn_session *session;
    float y[WIDTH], again[WIDTH];
    assert_ok(rn_session_create(plan, &(rn_weight_source){.find = find}, NULL, &session));
    assert_ok(run(session, shape, 1, y));
    for (int i = 0; i < 2; i++) {
        assert_ok(rn_session_set(session, "ids", &wrong[i], sizeof wrong[i]));
        assert_fails(RN_INVALID, rn_session_run(session, 1));
        assert_non_null(strstr(rn_last_error()->message, "id "));
        assert_ok(rn_session_reset(session));
        assert_ok(run(session, shape, 1, again));
        assert_memory_equal(y, again, sizeof y);
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
}

static void a_table_that_was_cut_short_is_named(void **state) {
    (void)state;
    const char *path = test_path("short.safetensors");
    shape_of shape = UNTIED;
    rn_device_caps gathered = caps_with(1);
    rn_checkpoint *checkpoint = open_file(path);
    rn_plan *plan = make_plan(&shape, &gathered, 0);
    rn_session *session;
    float y[MOST * WIDTH];
    assert_ok(
        rn_session_create(plan, &(rn_weight_source){.checkpoint = checkpoint}, NULL, &session));
    assert_int_equal(rn_session_get_facts(session).read_bytes, sizeof inner);
    assert_ok(run(session, shape, MOST, y));
    assert_int_equal(rn_session_get_facts(session).read_bytes,
                     sizeof inner + 6 * sizeof table[0]); // six different ids
    assert_int_equal(truncate(path, 256), 0);
    assert_fails(RN_IO, run(session, shape, MOST, y));
    assert_string_equal(rn_last_error()->path, path);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

static void every_failure_is_survived(void **state) {
    (void)state;
    static const rn_fault faults[] = {RN_FAULT_READ, RN_FAULT_ALLOC};
    static const rn_status codes[] = {RN_IO, RN_NO_MEMORY};
    shape_of shape = TIED;
    rn_device_caps gathered = caps_with(1);
    rn_checkpoint *checkpoint = open_file(test_path("faults.safetensors"));
    rn_weight_source source = {.checkpoint = checkpoint};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    float y[MOST * VOCAB];
    for (int i = 0; i < 2; i++)
        for (uint64_t n = 1, fired = 1; fired; n++) {
            rn_plan *plan = make_plan(&shape, &gathered, 0);
            rn_session *session;
            rn_fault_arm(faults[i], n);
            rn_status s = rn_session_create(plan, &source, NULL, &session);
            if (s == RN_OK) s = run(session, shape, MOST, y);
            fired = rn_fault_fired(faults[i]);
            rn_fault_arm(faults[i], 0);
            assert_int_equal(s, fired ? codes[i] : RN_OK);
            rn_session_destroy(session);
            rn_plan_destroy(plan);
            assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        }
    rn_checkpoint_close(checkpoint);
}

// ---- sources ------------------------------------------------------------------------------------

static const void *find_inner(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    return strcmp(name, "inner") == 0 ? find(self, name, dtype, bytes) : NULL;
}

static void memory_comes_before_the_file(void **state) {
    (void)state;
    shape_of shape = UNTIED;
    rn_device_caps gathered = caps_with(1);
    rn_checkpoint *checkpoint = open_file(test_path("both.safetensors"));
    rn_weight_source source = {.checkpoint = checkpoint, .find = find_inner};
    rn_plan *plan = make_plan(&shape, &gathered, 0);
    rn_session *session;
    float before[MOST * WIDTH], y[MOST * WIDTH];
    inner[0][0] += 1; // what the file does not have
    assert_ok(rn_session_create(plan, &(rn_weight_source){.find = find}, NULL, &session));
    assert_ok(run(session, shape, MOST, before));
    rn_session_destroy(session);
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    assert_ok(run(session, shape, MOST, y));
    assert_memory_equal(y, before, sizeof y);
    assert_int_equal(rn_session_get_facts(session).read_bytes, 6 * sizeof table[0]);
    rn_session_destroy(session);
    inner[0][0] -= 1;
    rn_plan_destroy(plan);
    rn_checkpoint_close(checkpoint);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_from_memory_give_the_bits_of_the_table),
        cmocka_unit_test(rows_from_a_file_give_the_bits_of_the_table),
        cmocka_unit_test(rows_are_brought_to_a_device_of_its_own_memory),
        cmocka_unit_test(a_tied_head_streams_though_its_table_is_looked_into),
        cmocka_unit_test(ids_below_zero_are_of_tables_of_one_size),
        cmocka_unit_test(ids_that_another_node_reads_stay_as_they_are),
        cmocka_unit_test(the_plan_says_so),
        cmocka_unit_test(an_id_that_is_no_row_is_an_error),
        cmocka_unit_test(a_table_that_was_cut_short_is_named),
        cmocka_unit_test(every_failure_is_survived),
        cmocka_unit_test(memory_comes_before_the_file),
    };
    return cmocka_run_group_tests(tests, open_all, NULL);
}
