// Graphs through PJRT plugins: the numbers of kernels, within what was planned; programs that are
// kept; every failure is a class of error with everything released. The plugin is tests/fake_pjrt;
// XLA's own for the CPU where it is installed.
#include "chain.h"

#include "backend/pjrt/pjrt.h"
#include "base/error_class.h"
#include "base/fault.h"

#include <ration/log.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLUGIN RN_BIN_DIR "/../lib/fake_pjrt.so"
enum { LAYERS = 3, WIDTH = 24, ROWS = 10 };

static chain all = {.layers = LAYERS, .width = WIDTH, .rows = ROWS};
static float expected[ROWS * WIDTH];

static int open_all(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", test_folder(), 1);
    chain_open(&all);
    rn_plan *plan = chain_plan(&all, rn_cpu_caps(), 0);
    rn_weight_source source = chain_memory(&all);
    rn_session *session;
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    assert_ok(chain_run(&all, session, ROWS, 1, expected));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    chain_close(&all);
    return 0;
}

// ---- a device, a plan and a session -------------------------------------------------------------

typedef struct opened {
    rn_device *device;
    rn_plan *plan;
    rn_session *session;
} opened;

static rn_status open_on(const char *target, uint64_t budget, opened *out) {
    rn_recipe recipe = chain_recipe(&all);
    rn_weight_source source = chain_memory(&all);
    *out = (opened){0};
    RN_TRY(rn_device_open(target, 1, &out->device));
    rn_status s = rn_plan_make(&recipe, rn_device_get_caps(out->device),
                               &(rn_plan_options){.budget_bytes = budget}, &out->plan);
    if (s == RN_OK) {
        assert_true(rn_plan_is_valid(out->plan));
        s = rn_session_create(out->plan, &source, &(rn_session_options){.device = out->device},
                              &out->session);
    }
    return s;
}

static void close_it(opened *o) {
    rn_session_destroy(o->session);
    rn_plan_destroy(o->plan);
    rn_device_destroy(o->device);
    *o = (opened){0};
}

// Another order of sums.
static void assert_near(const float *y, const float *wanted, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (!(fabsf(y[i] - wanted[i]) <= 1e-5f)) fail_msg("%g is not %g", y[i], wanted[i]);
}

static void assert_runs(opened *o) {
    static const uint64_t rows[] = {1, 3, 8, ROWS, 1};
    float y[ROWS * WIDTH];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ok(chain_run(&all, o->session, rows[i], 1, y));
        assert_near(y, expected, rows[i] * WIDTH);
    }
}

static uint64_t held(const opened *o) {
    return rn_ledger_total(rn_device_number(o->device)).now_bytes;
}

static void empty_programs(void) {
    char path[512];
    DIR *folder = opendir(test_path("ration/programs"));
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s", test_path("ration/programs"), entry->d_name);
        (void)!unlink(path);
    }
    if (folder) closedir(folder);
}

static int behave(void **state) {
    (void)state;
    unsetenv("FAKE_PJRT");
    unsetenv("RATION_PROGRAMS");
    empty_programs();
    return 0;
}

// ---- the same numbers ---------------------------------------------------------------------------

static void a_plugin_gives_the_numbers_of_kernels(void **state) {
    (void)state;
    opened o;
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    assert_true(o.plan->compiled);
    assert_true(held(&o) > 0 && held(&o) <= o.plan->summary.planned_bytes);
    assert_runs(&o);
    rn_device_id id = rn_device_number(o.device);
    close_it(&o);
    assert_int_equal(0, rn_ledger_total(id).now_bytes);
}

// What a plugin takes of this process, as it was seen when it was tried, is in the plan of the
// host.
static void memory_of_the_plugin_itself_is_planned(void **state) {
    (void)state;
    opened o;
    rn_pjrt_facts facts;
    assert_ok(open_on("xla:" PLUGIN, 0, &o)); // it is tried
    close_it(&o);
    assert_true(rn_pjrt_was_tried(PLUGIN, &facts));
    assert_true(facts.host_bytes > 1 << 20);
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    assert_true(o.plan->summary.host_bytes > facts.host_bytes);
    close_it(&o);
}

// A plugin that says nothing about its programs is believed what was estimated.
static void statistics_are_not_needed(void **state) {
    (void)state;
    opened o;
    setenv("FAKE_PJRT", "no_stats", 1);
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    assert_int_equal(held(&o), o.plan->summary.planned_bytes);
    assert_runs(&o);
    close_it(&o);
}

static void options_of_a_target_are_a_target_of_their_own(void **state) {
    (void)state;
    opened o;
    assert_ok(open_on("xla:" PLUGIN "?seq=8&cores=1&opt=0&xla_dump=false", 0, &o));
    assert_int_equal(8, o.plan->summary.rows);
    assert_runs(&o);
    close_it(&o);
    static const char *const wrong[] = {"xla:cpu?seq=x", "xla:cpu?cores=0",    "xla:cpu?cores=65",
                                        "xla:cpu?opt=4", "xla:cpu?colour=red", "neuron:0-1?cores=3",
                                        "neuron:1-0",    "neuron:x",           "neuron:0-64"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(RN_INVALID, rn_device_open(wrong[i], 1, &o.device));
}

// ---- cores --------------------------------------------------------------------------------------

// Every core has its part of the weights, and the numbers are those of one.
static void cores_hold_parts_of_weights_and_compute_together(void **state) {
    (void)state;
    opened one, two;
    setenv("FAKE_PJRT", "devices=3", 1);
    assert_ok(open_on("xla:" PLUGIN, 0, &one));
    assert_ok(open_on("xla:" PLUGIN "?cores=2&device=1", 0, &two));
    assert_true(held(&two) <= two.plan->summary.planned_bytes);
    assert_int_equal(one.plan->summary.purpose_bytes[RN_PURPOSE_WEIGHTS],
                     two.plan->summary.purpose_bytes[RN_PURPOSE_WEIGHTS]);
    assert_non_null(strstr(two.session->executable->about, "2 cores of NC_v2"));
    assert_non_null(strstr(two.session->executable->about, "; each core holds "));
    assert_string_equal("cores", two.plan->reasons[1].move);
    assert_runs(&two);
    close_it(&one);
    close_it(&two);
    assert_fails(RN_DEVICE, open_on("xla:" PLUGIN "?cores=4", 0, &one));
    close_it(&one);
}

// What does not fit into the memory of one core fits into that of two, and that of neither is
// exceeded: the plugin refuses what is more.
static void two_cores_have_room_for_what_is_too_much_for_one(void **state) {
    (void)state;
    chain wide = {.layers = 8, .width = 512, .rows = 1};
    char limit[64];
    opened o;
    chain_open(&wide);
    rn_recipe recipe = chain_recipe(&wide);
    rn_weight_source source = chain_memory(&wide);
    for (uint32_t cores = 1; cores <= 2; cores++) {
        // Eight layers of 1 MiB, and 1 MiB of temporary memory that any program is thought to take.
        snprintf(limit, sizeof limit, "devices=2,limit=%d", 6 << 20);
        setenv("FAKE_PJRT", limit, 1);
        o = (opened){0};
        assert_ok(
            rn_device_open(cores == 1 ? "xla:" PLUGIN : "xla:" PLUGIN "?cores=2", 1, &o.device));
        assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
        rn_status s = rn_session_create(o.plan, &source, &(rn_session_options){.device = o.device},
                                        &o.session);
        assert_int_equal(cores == 1 ? RN_NO_MEMORY : RN_OK, s);
        close_it(&o);
    }
    chain_close(&wide);
}

static void every_quantised_weight_is_widened(void **state) {
    (void)state;
    chain quantised = {.layers = 2, .width = 32, .rows = 4, .dtype = RN_DTYPE_Q8_0};
    chain_open(&quantised);
    rn_recipe recipe = chain_recipe(&quantised);
    rn_weight_source source = chain_memory(&quantised);
    float y[4 * 32], wide[32 * 32], middle[4 * 32] = {0}, wanted[4 * 32] = {0};
    opened o = {0};
    assert_ok(rn_device_open("xla:" PLUGIN "?weights=f32&products=f32", 1, &o.device));
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
    assert_ok(
        rn_session_create(o.plan, &source, &(rn_session_options){.device = o.device}, &o.session));
    assert_ok(chain_run(&quantised, o.session, 4, 1, y));
    float *x = chain_input(&quantised, 4, 1);
    for (uint32_t layer = 0; layer < 2; layer++) {
        float *out = layer ? wanted : middle;
        const float *in = layer ? middle : x;
        assert_ok(rn_dtype_to_f32(RN_DTYPE_Q8_0, quantised.weights[layer], wide, 32 * 32));
        for (int r = 0; r < 4; r++)
            for (int n = 0; n < 32; n++) {
                for (int k = 0; k < 32; k++)
                    out[r * 32 + n] += in[r * 32 + k] * wide[n * 32 + k];
                if (layer == 0) out[r * 32 + n] = fmaxf(out[r * 32 + n], 0);
            }
    }
    assert_near(y, wanted, 4 * 32);
    close_it(&o);
    // Where the device is not the host, products are of bf16 unless the target says otherwise.
    assert_ok(rn_device_open("xla:" PLUGIN, 1, &o.device));
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
    assert_ok(
        rn_session_create(o.plan, &source, &(rn_session_options){.device = o.device}, &o.session));
    assert_ok(chain_run(&quantised, o.session, 4, 1, y));
    for (int i = 0; i < 4 * 32; i++)
        assert_true(fabsf(y[i] - wanted[i]) <= 0.05f);
    assert_true(held(&o) < 4 * quantised.layers * 32 * 32 + (1 << 20));
    free(x);
    close_it(&o);
    chain_close(&quantised);
}

// ---- weights that are one argument --------------------------------------------------------------

enum { FEATURES = 32 };
static const uint32_t joined_rows[] = {4, 6, 2, 5};

// x by three weights, of which two come widened, then their sum by one more.
static rn_status build_joined(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, FEATURES)), y[4];
    rn_value bias = rn_graph_weight(g, "bias", RN_DTYPE_F32, RN_SHAPE(6));
    static const char *const names[] = {"a", "b", "c", "d"};
    for (uint32_t i = 0; i < 4; i++) {
        rn_dtype dtype = i == 1 ? RN_DTYPE_F32 : RN_DTYPE_Q8_0;
        rn_value w = rn_graph_weight(g, names[i], dtype, RN_SHAPE(joined_rows[i], FEATURES));
        y[i] = rn_op_matmul(g, i < 3 ? x : rn_op_relu(g, x), w, i == 1 ? bias : RN_NO_VALUE);
        rn_graph_output(g, y[i], (const char *[]){"ya", "yb", "yc", "yd"}[i]);
    }
    return rn_graph_finish(g);
}

static uint8_t joined_bytes[4][6 * FEATURES * 4];
static float joined_bias[6] = {1, 2, 3, 4, 5, 6};

static const void *find_joined(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self;
    (void)dtype;
    if (strcmp(name, "bias") == 0) return joined_bias;
    assert_true(bytes <= sizeof joined_bytes[0]);
    return joined_bytes[name[0] - 'a'];
}

static void fill_joined(uint32_t i, float by) {
    float numbers[6 * FEATURES];
    for (uint32_t k = 0; k < joined_rows[i] * FEATURES; k++)
        numbers[k] = by * (float)(k / FEATURES + 1 + 10 * i);
    assert_ok(rn_dtype_from_f32(i == 1 ? RN_DTYPE_F32 : RN_DTYPE_Q8_0, numbers, joined_bytes[i],
                                joined_rows[i] * FEATURES));
}

// Each row of weight i is one number, so a product is that times the sum of x.
static void assert_joined(rn_session *session, const float by[4]) {
    float x[FEATURES], y[6];
    for (int k = 0; k < FEATURES; k++)
        x[k] = 0.25f;
    assert_ok(rn_session_set(session, "x", x, sizeof x));
    assert_ok(rn_session_run(session, 1));
    for (uint32_t i = 0; i < 4; i++) {
        assert_ok(rn_session_get(session, (const char *[]){"ya", "yb", "yc", "yd"}[i], y,
                                 joined_rows[i] * sizeof *y));
        for (uint32_t r = 0; r < joined_rows[i]; r++) {
            float wanted = 8 * by[i] * (float)(r + 1 + 10 * i) + (i == 1 ? joined_bias[r] : 0);
            if (!(fabsf(y[r] - wanted) <= 0.02f * wanted)) fail_msg("%g is not %g", y[r], wanted);
        }
    }
}

static void weights_of_one_value_are_one_argument(void **state) {
    (void)state;
    rn_recipe recipe = {.name = "joined", .build = build_joined, .rows = 1};
    rn_weight_source source = {.find = find_joined};
    opened o = {0};
    uint64_t host = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint32_t i = 0; i < 4; i++)
        fill_joined(i, 1);
    assert_ok(rn_device_open("xla:" PLUGIN "?weights=f32&products=f32", 1, &o.device));
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
    assert_ok(
        rn_session_create(o.plan, &source, &(rn_session_options){.device = o.device}, &o.session));
    assert_joined(o.session, (const float[]){1, 1, 1, 1});
    // One of them is put again: the others stay.
    rn_executable *executable = o.session->executable;
    rn_value b = rn_graph_find(o.plan->graph, RN_ROLE_WEIGHT, "b");
    fill_joined(1, 2);
    assert_ok(executable->put(executable, b, joined_bytes[1], 6 * FEATURES * 4));
    assert_joined(o.session, (const float[]){1, 2, 1, 1});
    assert_fails(RN_UNSUPPORTED, executable->get(executable, b, joined_bytes[1], 6 * FEATURES * 4));
    close_it(&o);
    assert_int_equal(host, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
}

// ---- states -------------------------------------------------------------------------------------

enum { PAGES = 3, HEADS = 2, PAGE_TOKENS = 2, DIM = 4 };
enum { KV_FLOATS = PAGES * 2 * HEADS * PAGE_TOKENS * DIM };

// Rows go into a KV cache, which is the output as well.
static rn_status build_cache(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value kv = rn_graph_state(g, "kv", RN_DTYPE_F32, RN_SHAPE(PAGES, 2, HEADS, PAGE_TOKENS, DIM),
                                 RN_PURPOSE_KV);
    rn_value k = rn_graph_input(g, "k", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, HEADS, DIM));
    rn_value sequence = rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value position = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value table = rn_graph_input(g, "table", RN_DTYPE_I32, RN_SHAPE(1, PAGES));
    rn_value after = rn_op_kv_append(g, kv, k, k, sequence, position, table);
    rn_graph_output(g, rn_op_relu(g, after), "y");
    return rn_graph_finish(g);
}

static rn_status append(rn_session *session, int32_t position, float value, float *y) {
    static const int32_t pages[PAGES] = {2, 0, 1};
    float k[HEADS * DIM];
    int32_t sequence = 0;
    for (int i = 0; i < HEADS * DIM; i++)
        k[i] = value + (float)(i / DIM);
    RN_TRY(rn_session_set(session, "k", k, sizeof k));
    RN_TRY(rn_session_set(session, "sequence", &sequence, sizeof sequence));
    RN_TRY(rn_session_set(session, "position", &position, sizeof position));
    RN_TRY(rn_session_set(session, "table", pages, sizeof pages));
    RN_TRY(rn_session_run(session, 1));
    return rn_session_get(session, "y", y, sizeof(float) * KV_FLOATS);
}

// Of the first head; that of the second is one more.
static float key_at(const float *y, int page, int slot) {
    const float *head = y + page * 2 * HEADS * PAGE_TOKENS * DIM + slot * DIM;
    assert_true(head[PAGE_TOKENS * DIM] == (head[0] > 0 ? head[0] + 1 : 0));
    return head[0];
}

static void run_states(const char *target, const char *behaviour) {
    rn_recipe recipe = {.name = "cache", .build = build_cache, .rows = 2};
    rn_weight_source none = {0};
    float y[KV_FLOATS];
    opened o = {0};
    assert_ok(rn_device_open(target, 1, &o.device));
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
    assert_ok(
        rn_session_create(o.plan, &none, &(rn_session_options){.device = o.device}, &o.session));
    setenv("FAKE_PJRT", behaviour, 1);
    assert_ok(append(o.session, 0, 5, y));
    assert_ok(append(o.session, 3, 7, y));
    assert_true(key_at(y, 2, 0) == 5 && key_at(y, 0, 1) == 7);
    setenv("FAKE_PJRT", "oom_run,devices=2", 1);
    assert_fails(RN_NO_MEMORY, append(o.session, 1, 9, y));
    unsetenv("FAKE_PJRT");
    assert_ok(rn_session_reset(o.session));
    assert_ok(append(o.session, 1, 3, y));
    assert_true(key_at(y, 2, 0) == 0 && key_at(y, 0, 1) == 0 && key_at(y, 2, 1) == 3);
    close_it(&o);
}

static void states_live_from_run_to_run_and_are_zeros_after_a_failure(void **state) {
    (void)state;
    run_states("xla:" PLUGIN, "");
}

// KV pages are divided by heads.
static void cores_hold_parts_of_states(void **state) {
    (void)state;
    setenv("FAKE_PJRT", "devices=2", 1);
    run_states("xla:" PLUGIN "?cores=2", "devices=2");
}

// Some plugins cannot reuse an argument's memory: then states are held twice.
static void states_need_not_be_donated(void **state) {
    (void)state;
    run_states("xla:" PLUGIN "?donate=0", "no_donation");
}

// ---- programs that are kept ---------------------------------------------------------------------

// Whoever loads a program need not compile it.
static void second_start_does_not_compile(void **state) {
    (void)state;
    opened o;
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    close_it(&o);
    setenv("FAKE_PJRT", "oom_compile", 1);
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    assert_runs(&o);
    close_it(&o);
    // Other options, another program.
    assert_fails(RN_NO_MEMORY, open_on("xla:" PLUGIN "?opt=1", 0, &o));
    close_it(&o);
    setenv("RATION_PROGRAMS", test_path("elsewhere"), 1);
    assert_fails(RN_NO_MEMORY, open_on("xla:" PLUGIN, 0, &o));
    close_it(&o);
    unsetenv("FAKE_PJRT");
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    close_it(&o);
    setenv("FAKE_PJRT", "oom_compile", 1);
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    close_it(&o);
}

static void damage(size_t at, bool cut) {
    char path[512];
    DIR *folder = opendir(test_path("ration/programs"));
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t bytes = 0;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", test_path("ration/programs"), entry->d_name);
        char *file = test_read(path, &bytes);
        file[at % bytes] ^= 0x20;
        test_write(path, file, cut ? at % bytes : bytes);
        free(file);
    }
    closedir(folder);
}

static void damaged_program_is_compiled_again(void **state) {
    (void)state;
    static const size_t places[] = {0, 20, 60, 300};
    opened o;
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        assert_ok(open_on("xla:" PLUGIN, 0, &o));
        close_it(&o);
        damage(places[i / 2], i % 2);
        setenv("FAKE_PJRT", "oom_compile", 1);
        assert_fails(RN_NO_MEMORY, open_on("xla:" PLUGIN, 0, &o));
        close_it(&o);
        unsetenv("FAKE_PJRT");
        assert_ok(open_on("xla:" PLUGIN, 0, &o));
        assert_runs(&o);
        close_it(&o);
    }
}

static void folder_that_takes_nothing_is_no_failure(void **state) {
    (void)state;
    opened o;
    setenv("RATION_PROGRAMS", "/dev/null/programs", 1);
    assert_ok(open_on("xla:" PLUGIN, 0, &o));
    assert_runs(&o);
    close_it(&o);
}

// What is not written whole is not there.
static void full_folder_is_told_and_no_failure(void **state) {
    (void)state;
    rn_buffer log;
    opened o;
    rn_buffer_init(&log, &rn_system_allocator, 1 << 20);
    rn_log_set(rn_buffer_sink(&log), RN_LOG_TEXT, RN_LOG_WARNING);
    rn_fault_arm(RN_FAULT_WRITE, 1);
    assert_ok(open_on("xla:" PLUGIN "?seq=1", 0, &o));
    assert_true(rn_fault_fired(RN_FAULT_WRITE));
    rn_fault_arm(RN_FAULT_WRITE, 0);
    rn_log_set((rn_sink){0}, RN_LOG_TEXT, RN_LOG_WARNING);
    assert_ok(rn_buffer_append(&log, "", 1));
    assert_non_null(strstr(log.data, "the program is not kept"));
    assert_non_null(strstr(log.data, "No space left on device"));
    rn_buffer_free(&log);
    close_it(&o);
    setenv("FAKE_PJRT", "oom_compile", 1);
    assert_fails(RN_NO_MEMORY, open_on("xla:" PLUGIN "?seq=1", 0, &o));
    close_it(&o);
}

// ---- failures -----------------------------------------------------------------------------------

static void a_plan_that_does_not_fit_is_refused_before_the_plugin_is_loaded(void **state) {
    (void)state;
    opened o;
    setenv("NEURON_LIBRARY_PATH", "/nowhere/libneuronpjrt.so", 1);
    assert_fails(RN_OVER_BUDGET, open_on("neuron:0-1", 4096, &o));
    assert_non_null(strstr(rn_last_error()->hint, "the smallest budget that works"));
    close_it(&o);
    // With a budget that would do, the file is missed.
    assert_fails(RN_NOT_FOUND, open_on("neuron:0-1", (uint64_t)1 << 30, &o));
    close_it(&o);
    unsetenv("NEURON_LIBRARY_PATH");
    unsetenv("NEURON_RT_VISIBLE_CORES"); // which the target has set
}

static void what_fails_is_classified_and_gives_everything_back(void **state) {
    (void)state;
    static const struct {
        const char *behaviour, *class;
        rn_status status;
    } cases[] = {
        {"oom_compile", "compile_over_memory", RN_NO_MEMORY},
        {"oom_upload", "device_memory_full", RN_NO_MEMORY},
        {"limit=2000", "resource_exhausted", RN_NO_MEMORY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opened o;
        empty_programs();
        setenv("FAKE_PJRT", cases[i].behaviour, 1);
        assert_fails(cases[i].status, open_on("xla:" PLUGIN, 0, &o));
        assert_string_equal(cases[i].class, rn_error_classify(rn_last_error())->name);
        assert_int_equal(0, held(&o));
        close_it(&o);
    }
}

// A node that the compiler does not take is named, not only its line.
static rn_status build_refused(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_graph_block(g, "tower");
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 4, 4, 1));
    rn_pool2d_attrs attrs = {.size_h = 2, .size_w = 2, .stride_h = 2, .stride_w = 2};
    rn_graph_output(g, rn_op_max_pool(g, x, attrs), "y");
    return rn_graph_finish(g);
}

static void a_refused_program_names_its_node(void **state) {
    (void)state;
    rn_recipe recipe = {.name = "refused", .build = build_refused};
    rn_weight_source none = {0};
    opened o = {0};
    assert_ok(rn_device_open("xla:" PLUGIN, 1, &o.device));
    assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
    assert_fails(
        RN_UNSUPPORTED,
        rn_session_create(o.plan, &none, &(rn_session_options){.device = o.device}, &o.session));
    if (!strstr(rn_last_error()->message, "(max_pool)")) fail_msg("%s", rn_last_error()->message);
    assert_non_null(strstr(rn_last_error()->message, "unregistered operation"));
    assert_non_null(strstr(rn_last_error()->message, " (line "));
    close_it(&o);
}

// The same by XLA's own parser, of a text that was changed.
static void xla_on_the_cpu_refuses_a_program_by_its_node(void **state) {
    (void)state;
    char path[512], where[64];
    rn_recipe recipe = chain_recipe(&all);
    rn_buffer text;
    rn_graph *graph;
    rn_pjrt_code code;
    opened o = {0};
    if (rn_pjrt_find("cpu", path, sizeof path) != RN_OK)
        skip_because("no PJRT plugin for the CPU (scripts/python-env installs it)");
    rn_buffer_init(&text, &rn_system_allocator, 1 << 20);
    assert_ok(recipe.build(recipe.self, &(rn_recipe_options){0}, &graph));
    assert_ok(rn_stablehlo_emit(graph, &(rn_stablehlo_options){.rows = 1}, rn_buffer_sink(&text)));
    assert_ok(rn_buffer_append(&text, "", 1));
    char *operation = strstr(text.data, "stablehlo.maximum");
    assert_non_null(operation);
    memcpy(operation, "stablehlo.minimax", 17);
    int line = 1, column = 1;
    for (const char *c = text.data; c < operation - 1; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    assert_ok(rn_device_open("xla:cpu", 1, &o.device));
    assert_fails(RN_UNSUPPORTED, rn_pjrt_compile_text(rn_pjrt_device_of(o.device),
                                                      (rn_str){text.data, text.bytes - 1}, &code));
    snprintf(where, sizeof where, "(relu)' (line %d, column ", line);
    const char *message = rn_last_error()->message, *at = strstr(message, where);
    if (!at) fail_msg("there is no \"%s\" in %s", where, message);
    assert_in_range(atoi(at + strlen(where)), 5, column); // of the operation, or of its result
    assert_non_null(strstr(message, "stablehlo.minimax"));
    rn_graph_destroy(graph);
    rn_buffer_free(&text);
    close_it(&o);
}

static rn_status live(void) {
    opened o;
    rn_status s = open_on("xla:" PLUGIN, 0, &o);
    float y[WIDTH];
    if (s == RN_OK) s = chain_run(&all, o.session, 1, 1, y);
    close_it(&o);
    return s;
}

// One that is for what is kept fails nothing: then the plugin is tried, or the program compiled,
// again.
static void every_refused_allocation_leaves_nothing_behind(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    uint32_t refused = 0, tolerated = 0;
    bool fired = true;
    assert_ok(live()); // the plugin is loaded
    for (uint64_t n = 1; fired; n += 1 + n / 24) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = live();
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(s == RN_OK || (fired && s == RN_NO_MEMORY));
        assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
        *(s == RN_OK ? &tolerated : &refused) += fired;
    }
    assert_true(refused > 10 && tolerated > 0);
}

// ---- XLA itself ---------------------------------------------------------------------------------

// Its memory is the host's, and so is its place on the ledger.
static void xla_on_the_cpu_gives_the_numbers_of_kernels(void **state) {
    (void)state;
    opened o;
    char path[512];
    if (rn_pjrt_find("cpu", path, sizeof path) != RN_OK)
        skip_because("no PJRT plugin for the CPU (scripts/python-env installs it)");
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_ok(open_on("xla:cpu", 0, &o));
    assert_int_equal(RN_DEVICE_HOST, rn_device_number(o.device));
    assert_false(rn_device_has_own_memory(o.device));
    uint64_t taken = rn_ledger_total(RN_DEVICE_HOST).now_bytes - before;
    assert_true(taken > o.plan->summary.purpose_bytes[RN_PURPOSE_WEIGHTS]);
    assert_runs(&o);
    close_it(&o);
    assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
}

// Kernels of convolutions are turned here, once, and are within what is planned.
static rn_status build_convolution(void *self, const rn_recipe_options *options, rn_graph **out) {
    (void)self;
    (void)options;
    RN_TRY(rn_graph_create(out));
    rn_graph *g = *out;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 3, 3, 2));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(4, 2, 2, 2));
    rn_conv2d_attrs attrs = {.stride_h = 1, .stride_w = 1};
    rn_graph_output(g, rn_op_conv2d(g, x, w, RN_NO_VALUE, attrs), "y");
    return rn_graph_finish(g);
}

static const void *find_kernel(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)name;
    (void)dtype;
    assert_int_equal(4 * 2 * 2 * 2 * sizeof(float), bytes);
    return self;
}

static void xla_on_the_cpu_convolves_like_the_cpu(void **state) {
    (void)state;
    rn_recipe recipe = {.name = "convolution", .build = build_convolution};
    float w[32], x[18], y[2][16];
    char path[512];
    if (rn_pjrt_find("cpu", path, sizeof path) != RN_OK)
        skip_because("no PJRT plugin for the CPU (scripts/python-env installs it)");
    for (int i = 0; i < 32; i++)
        w[i] = (float)((i * 7) % 5) - 2;
    for (int i = 0; i < 18; i++)
        x[i] = (float)((i * 5) % 7);
    rn_weight_source source = {.self = w, .find = find_kernel};
    for (int i = 0; i < 2; i++) {
        opened o = {0};
        assert_ok(rn_device_open(i ? "xla:cpu?opt=0" : "cpu", 1, &o.device));
        assert_ok(rn_plan_make(&recipe, rn_device_get_caps(o.device), NULL, &o.plan));
        assert_ok(rn_session_create(o.plan, &source, &(rn_session_options){.device = o.device},
                                    &o.session));
        assert_ok(rn_session_set(o.session, "x", x, sizeof x));
        assert_ok(rn_session_run(o.session, 0));
        assert_ok(rn_session_get(o.session, "y", y[i], sizeof y[i]));
        close_it(&o);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]); // whole numbers
}

// As many of its devices as the target says.
static void xla_on_the_cpu_computes_on_several_devices(void **state) {
    (void)state;
    opened o;
    char path[512];
    if (rn_pjrt_find("cpu", path, sizeof path) != RN_OK)
        skip_because("no PJRT plugin for the CPU (scripts/python-env installs it)");
    assert_ok(open_on("xla:cpu?cores=3&device=1&seq=1", 0, &o));
    assert_non_null(strstr(o.session->executable->about, "3 cores of cpu"));
    float y[WIDTH];
    assert_ok(chain_run(&all, o.session, 1, 1, y));
    assert_near(y, expected, WIDTH);
    close_it(&o);
}

// Of this process, while a device of so many threads is open.
static int count_threads(uint32_t threads) {
    rn_device *device;
    int count = 0;
    assert_ok(rn_device_open("xla:cpu", threads, &device));
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    rn_device_destroy(device);
    return count;
}

// The device's workers are as many, and so are the plugin's.
static void xla_on_the_cpu_has_as_many_threads_as_are_asked_for(void **state) {
    (void)state;
    char path[512];
    if (rn_pjrt_find("cpu", path, sizeof path) != RN_OK)
        skip_because("no PJRT plugin for the CPU (scripts/python-env installs it)");
    int few = count_threads(1);
    assert_in_range(count_threads(9) - few, 2 * 8, 4 * 8);
    assert_int_equal(few, count_threads(1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_plugin_gives_the_numbers_of_kernels, behave),
        cmocka_unit_test_setup(memory_of_the_plugin_itself_is_planned, behave),
        cmocka_unit_test_setup(statistics_are_not_needed, behave),
        cmocka_unit_test_setup(options_of_a_target_are_a_target_of_their_own, behave),
        cmocka_unit_test_setup(cores_hold_parts_of_weights_and_compute_together, behave),
        cmocka_unit_test_setup(two_cores_have_room_for_what_is_too_much_for_one, behave),
        cmocka_unit_test_setup(cores_hold_parts_of_states, behave),
        cmocka_unit_test_setup(every_quantised_weight_is_widened, behave),
        cmocka_unit_test_setup(weights_of_one_value_are_one_argument, behave),
        cmocka_unit_test_setup(states_live_from_run_to_run_and_are_zeros_after_a_failure, behave),
        cmocka_unit_test_setup(states_need_not_be_donated, behave),
        cmocka_unit_test_setup(second_start_does_not_compile, behave),
        cmocka_unit_test_setup(damaged_program_is_compiled_again, behave),
        cmocka_unit_test_setup(folder_that_takes_nothing_is_no_failure, behave),
        cmocka_unit_test_setup(full_folder_is_told_and_no_failure, behave),
        cmocka_unit_test_setup(a_plan_that_does_not_fit_is_refused_before_the_plugin_is_loaded,
                               behave),
        cmocka_unit_test_setup(what_fails_is_classified_and_gives_everything_back, behave),
        cmocka_unit_test_setup(a_refused_program_names_its_node, behave),
        cmocka_unit_test_setup(xla_on_the_cpu_refuses_a_program_by_its_node, behave),
        cmocka_unit_test_setup(every_refused_allocation_leaves_nothing_behind, behave),
        cmocka_unit_test_setup(xla_on_the_cpu_gives_the_numbers_of_kernels, behave),
        cmocka_unit_test_setup(xla_on_the_cpu_convolves_like_the_cpu, behave),
        cmocka_unit_test_setup(xla_on_the_cpu_computes_on_several_devices, behave),
        cmocka_unit_test_setup(xla_on_the_cpu_has_as_many_threads_as_are_asked_for, behave),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
