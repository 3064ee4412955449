// labels: threads
// The ladder: what may stand on it, what becomes of each target, and a ledger that is as before
// whatever fails.
#include "chain.h"
#include "json_check.h"
#include "../../fake_cuda/fake_cuda.h"

#include "backend/cuda/image.h"
#include "base/buffer.h"
#include "base/fault.h"
#include "memory/account.h"

#include <ration/ladder.h>
#include <ration/log.h>

#include <pthread.h>

enum { WIDTH = 32, LAYERS = 3, ROWS = 4 };

static chain model = {.layers = LAYERS, .width = WIDTH, .rows = ROWS};
static uint64_t host_bytes, sim_bytes; // of the ledger, when a test begins

static uint64_t held_on(const char *name) {
    for (size_t d = 0; d < rn_device_count(); d++)
        if (strcmp(rn_device_name((rn_device_id)d), name) == 0)
            return rn_ledger_total((rn_device_id)d).now_bytes;
    return 0;
}

static int begin(void **state) {
    (void)state;
    host_bytes = held_on("host");
    sim_bytes = held_on("sim");
    return 0;
}

static int end(void **state) {
    (void)state;
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    return held_on("host") == host_bytes && held_on("sim") == sim_bytes && rn_ledger_is_valid()
               ? 0
               : -1;
}

static int open_model(void **state) {
    (void)state;
    chain_open(&model);
    return setenv("RATION_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
}

static int close_model(void **state) {
    (void)state;
    chain_close(&model);
    return 0;
}

static rn_ladder *parse(const char *text) {
    rn_ladder *ladder;
    assert_ok(rn_ladder_parse(rn_str_from(text), &ladder));
    return ladder;
}

// ---- the list -----------------------------------------------------------------------------------

static void assert_targets(const char *text, const char *expected) {
    char names[512] = "";
    rn_ladder *ladder = parse(text);
    for (size_t i = 0; i < rn_ladder_count(ladder); i++) {
        strcat(names, rn_ladder_name(ladder, i));
        strcat(names, " ");
    }
    assert_string_equal(expected, names);
    rn_ladder_destroy(ladder);
}

static void lists_are_read_in_order(void **state) {
    (void)state;
    assert_targets("cpu", "cpu ");
    assert_targets("auto", "cuda:0 cpu ");
    assert_targets("cuda, cuda:3 ,cpu", "cuda:0 cuda:3 cpu ");
    assert_targets("xla:/opt/plugins/libneuronpjrt.so,auto", "xla:libneuronpjrt.so cuda:0 cpu ");
    assert_targets("sim,sim:memory=64MiB;fail_launch=3;threads=2;link=1GB,cpu", "sim sim cpu ");
}

static void what_is_wrong_in_a_list_is_named(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"", "device \"\""},
        {"cpu,,sim", "device \"\""},
        {"cpu,tpu", "device \"tpu\": there is no such kind"},
        {"cpu:2", "device \"cpu:2\""},
        {"cuda:", "device \"cuda:\""},
        {"cuda:x", "\"x\" is no number"},
        {"cuda:-1", "\"-1\" is no number"},
        {"cuda:99999", "device \"cuda:99999\""},
        {"cuda:12345678901234567890", "is no number"},
        {"xla", "the plugin's file is missing"},
        {"xla:", "the plugin's file is missing"},
        {"sim:memory=lots", "device \"sim:memory=lots\""},
        {"sim:speed=3", "\"speed\" is none of memory"},
        {"sim:fail_alloc=", "device \"sim:fail_alloc=\""},
        {"cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,sim", "device \"sim\": there are too many"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rn_ladder *ladder;
        assert_fails(RN_INVALID, rn_ladder_parse(rn_str_from(wrong[i][0]), &ladder));
        assert_null(ladder);
        if (!strstr(rn_last_error()->message, wrong[i][1]))
            fail_msg("%s", rn_last_error()->message);
        assert_non_null(strstr(rn_last_error()->hint, "xla:PLUGIN"));
    }
}

// ---- a model to load ----------------------------------------------------------------------------

typedef struct loader {
    rn_plan *plan;
    rn_session *session;
    float y[ROWS * WIDTH];
    uint32_t attempts, undone;
    uint64_t leak_bytes; // left behind on the host, as staging
    rn_status fail_with; // instead of loading
} loader;

static const rn_account staging = {RN_DEVICE_HOST, RN_PURPOSE_STAGING, NULL};

static rn_status load_model(void *self, const rn_ladder_target *target) {
    loader *l = self;
    rn_recipe recipe = chain_recipe(&model);
    rn_weight_source weights = chain_memory(&model);
    l->attempts++;
    if (l->leak_bytes) rn_ledger_charge(staging, NULL, l->leak_bytes);
    if (l->fail_with) return rn_fail(l->fail_with, "told to fail");
    RN_TRY(
        rn_plan_make(&recipe, rn_device_get_caps(target->device), &(rn_plan_options){0}, &l->plan));
    rn_stage("plan_made");
    RN_TRY(rn_session_create(l->plan, &weights, &(rn_session_options){.device = target->device},
                             &l->session));
    rn_stage("model_on_device");
    RN_TRY(chain_run(&model, l->session, ROWS, 5, l->y));
    rn_stage("test_forward_pass");
    return RN_OK;
}

static void unload_model(void *self) {
    loader *l = self;
    rn_session_destroy(l->session);
    rn_plan_destroy(l->plan);
    l->session = NULL;
    l->plan = NULL;
    l->undone++;
    (void)rn_fail(RN_INTERNAL, "undoing speaks of something else");
}

static rn_ladder_load load_of(loader *l) {
    return (rn_ladder_load){l, load_model, unload_model};
}

static rn_status start(rn_ladder *ladder, loader *l, rn_ladder_target *out) {
    rn_ladder_load load = load_of(l);
    return rn_ladder_start(ladder, &(rn_ladder_options){.threads = 1}, &load, out);
}

static rn_attempt attempt_at(const rn_ladder *ladder, size_t index) {
    static rn_attempt attempts[RN_LADDER_ATTEMPTS];
    assert_true(index < rn_ladder_attempts(ladder, attempts));
    return attempts[index];
}

// What the model says, on the CPU.
static void ask_cpu(float *y) {
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("cpu");
    assert_ok(start(ladder, &l, &target));
    memcpy(y, l.y, sizeof l.y);
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
}

// ---- trying targets
// -----------------------------------------------------------------------------------

static void first_target_that_works_is_used(void **state) {
    (void)state;
    float y[ROWS * WIDTH];
    loader l = {0};
    rn_ladder_target target;
    ask_cpu(y);
    rn_ladder *ladder = parse("sim,cpu");
    assert_int_equal(-1, rn_ladder_target_index(ladder));
    assert_ok(start(ladder, &l, &target));
    assert_int_equal(0, target.index);
    assert_string_equal("sim", target.name);
    assert_int_equal(0, rn_ladder_target_index(ladder));
    assert_memory_equal(y, l.y, sizeof y);
    rn_attempt attempt = attempt_at(ladder, 0);
    assert_int_equal(RN_ATTEMPT_IN_USE, attempt.state);
    assert_string_equal("test_forward_pass", attempt.stage);
    assert_int_equal(held_on("sim") - sim_bytes, attempt.peak_bytes);
    assert_null(attempt.failure);
    assert_fails(RN_INVALID, start(ladder, &l, &target)); // it is in use
    assert_int_equal(1, rn_ladder_attempt_count(ladder));
    assert_ok(rn_ladder_leave(ladder, NULL));
    attempt = attempt_at(ladder, 0);
    assert_int_equal(RN_ATTEMPT_LEFT, attempt.state);
    assert_true(attempt.returned_bytes > attempt.peak_bytes); // some of the host's, too
    assert_int_equal(-1, rn_ladder_target_index(ladder));
    assert_ok(rn_ladder_leave(ladder, NULL)); // there is nothing to leave
    assert_int_equal(1, l.undone);
    rn_ladder_destroy(ladder);
}

static void assert_fallen(rn_ladder *ladder, const loader *l, const float *y) {
    rn_attempt failed = attempt_at(ladder, 0), used = attempt_at(ladder, 1);
    assert_int_equal(2, l->attempts);
    assert_int_equal(1, l->undone);
    assert_int_equal(RN_ATTEMPT_FAILED, failed.state);
    assert_string_equal("injected_fault", failed.failure->name);
    assert_non_null(strstr(failed.message, "is to fail"));
    assert_true(failed.hint[0] != '\0');
    assert_true(failed.returned_bytes > failed.peak_bytes); // some of the host's, too
    assert_true(failed.seconds > 0);
    assert_int_equal(RN_ATTEMPT_IN_USE, used.state);
    assert_string_equal("cpu", used.target);
    assert_int_equal(sim_bytes, held_on("sim")); // before the CPU was tried
    assert_memory_equal(y, l->y, sizeof l->y);
}

// Whether the n-th of its kind was there to fail.
static bool fails_at(const char *fault, unsigned n, const float *y, char *out_stage) {
    char text[64];
    loader l = {0};
    rn_ladder_target target;
    snprintf(text, sizeof text, "sim:%s=%u,cpu", fault, n);
    rn_ladder *ladder = parse(text);
    assert_ok(start(ladder, &l, &target));
    bool fell = target.index == 1;
    if (fell) assert_fallen(ladder, &l, y);
    if (fell) strcpy(out_stage, attempt_at(ladder, 0).stage);
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
    assert_int_equal(host_bytes, held_on("host"));
    return fell;
}

static void fault_at_any_place_falls_to_the_next_target(void **state) {
    (void)state;
    static const struct {
        const char *fault, *first_stage, *last_stage;
    } faults[] = {{"fail_alloc", "plan_made", "plan_made"},
                  {"fail_copy", "plan_made", "inputs_on_device"},
                  {"fail_launch", "inputs_on_device", "inputs_on_device"}};
    float y[ROWS * WIDTH];
    ask_cpu(y);
    for (size_t f = 0; f < 3; f++) {
        char stage[48] = "";
        unsigned n = 1;
        while (fails_at(faults[f].fault, n, y, stage)) {
            if (n++ == 1) assert_string_equal(faults[f].first_stage, stage);
        }
        assert_true(n > 1);
        assert_string_equal(faults[f].last_stage, stage);
    }
}

static void device_that_is_too_small_is_over_budget(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("sim:memory=4KiB,cpu");
    assert_ok(start(ladder, &l, &target));
    assert_int_equal(1, target.index);
    rn_attempt failed = attempt_at(ladder, 0);
    assert_int_equal(RN_OVER_BUDGET, failed.status);
    assert_string_equal("over_budget", failed.failure->name);
    assert_non_null(strstr(failed.hint, "smallest"));
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
}

// Every allocation of ours fails once: the next target carries the model, or, where the last one
// failed, there is a story. Nothing stays either way.
static void no_allocation_that_fails_leaves_anything(void **state) {
    (void)state;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        loader l = {0};
        rn_ladder_target target;
        rn_ladder *ladder = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_ladder_parse(RN_STR("sim,cpu"), &ladder);
        if (s == RN_OK) s = start(ladder, &l, &target);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (s != RN_OK) assert_fails(RN_NO_MEMORY, s); // of the list itself
        if (ladder) assert_ok(rn_ladder_leave(ladder, NULL));
        rn_ladder_destroy(ladder);
        assert_int_equal(host_bytes, held_on("host"));
        assert_int_equal(sim_bytes, held_on("sim"));
    }
}

// ---- the end of a search
// -------------------------------------------------------------------------

static void without_fallback_the_first_failure_is_the_answer(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("sim:fail_launch=1,cpu");
    rn_ladder_load load = load_of(&l);
    rn_ladder_options options = {.no_fallback = true};
    assert_fails(RN_DEVICE, rn_ladder_start(ladder, &options, &load, &target));
    assert_string_equal("sim: this launch is to fail", rn_last_error()->message);
    assert_null(target.device);
    assert_int_equal(1, rn_ladder_attempt_count(ladder));
    assert_int_equal(1, l.undone);
    rn_ladder_destroy(ladder);
}

static void cancelling_is_no_reason_to_try_the_next(void **state) {
    (void)state;
    loader l = {.fail_with = RN_CANCELLED};
    rn_ladder_target target;
    rn_ladder *ladder = parse("sim,cpu");
    assert_fails(RN_CANCELLED, start(ladder, &l, &target));
    assert_string_equal("told to fail", rn_last_error()->message);
    assert_int_equal(1, l.attempts);
    assert_int_equal(1, l.undone);
    rn_ladder_destroy(ladder);
}

static void only_target_tells_its_own_story(void **state) {
    (void)state;
    loader l = {.fail_with = RN_CORRUPT};
    rn_ladder_target target;
    rn_ladder *ladder = parse("cpu");
    assert_fails(RN_CORRUPT, start(ladder, &l, &target));
    assert_string_equal("told to fail", rn_last_error()->message);
    rn_ladder_destroy(ladder);
}

static void where_none_works_all_are_counted_and_the_best_hint_is_kept(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("cuda,sim:memory=4KiB,xla:/nowhere/plugin.so");
    assert_fails(RN_NOT_FOUND, start(ladder, &l, &target));
    assert_non_null(strstr(rn_last_error()->message,
                           "none of 3 targets works: cuda:0 (cuda_no_driver), sim (over_budget), "
                           "xla:plugin.so: no PJRT plugin: /nowhere/plugin.so: "));
    assert_non_null(strstr(rn_last_error()->hint, "sim: the smallest"));
    assert_string_equal("library_missing", rn_error_classify(rn_last_error())->name);
    assert_int_equal(1, l.attempts); // devices that do not open are not tried
    assert_int_equal(1, l.undone);
    rn_ladder_destroy(ladder);
}

static void what_stays_behind_is_named_and_ends_the_search(void **state) {
    (void)state;
    loader l = {.leak_bytes = 4096, .fail_with = RN_DEVICE};
    rn_ladder_target target;
    rn_ladder *ladder = parse("sim,cpu");
    assert_fails(RN_INTERNAL, start(ladder, &l, &target));
    assert_non_null(
        strstr(rn_last_error()->message, "on sim left 4.00 KiB of staging on host behind"));
    assert_non_null(strstr(rn_last_error()->message, "told to fail"));
    assert_int_equal(1, l.attempts);
    assert_string_equal("internal", attempt_at(ladder, 0).failure->name);
    rn_ledger_release(staging, NULL, 4096);
    // What other threads do meanwhile is not the attempt's.
    rn_ladder_load load = load_of(&l);
    rn_ladder_options options = {.others = RN_PURPOSE_BIT(RN_PURPOSE_STAGING)};
    assert_fails(RN_DEVICE, rn_ladder_start(ladder, &options, &load, &target));
    assert_int_equal(3, l.attempts);
    rn_ledger_release(staging, NULL, 2 * 4096);
    rn_ladder_destroy(ladder);
}

static rn_status forget_to_tell(void *self, const rn_ladder_target *target) {
    (void)self, (void)target;
    return RN_IO;
}

static void attempt_without_a_story_is_not_given_another_one(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("cpu");
    (void)rn_fail(RN_CORRUPT, "from yesterday");
    rn_ladder_load load = {&l, forget_to_tell, unload_model};
    assert_fails(RN_IO, rn_ladder_start(ladder, &(rn_ladder_options){0}, &load, &target));
    assert_string_equal("cpu failed without saying why", rn_last_error()->message);
    rn_ladder_destroy(ladder);
}

// ---- other people's devices ---------------------------------------------------------------------

static rn_attempt only_failure(const char *text, rn_status expected) {
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse(text);
    assert_fails(expected, start(ladder, &l, &target));
    rn_attempt attempt = attempt_at(ladder, 0);
    assert_int_equal(0, l.attempts);
    rn_ladder_destroy(ladder);
    return attempt;
}

static void plugin_that_is_missing_or_is_none_is_told_so(void **state) {
    (void)state;
    test_write(test_path("broken.so"), "no library", 10);
    char text[600];
    snprintf(text, sizeof text, "xla:%s", test_path("broken.so"));
    rn_attempt attempt = only_failure("xla:/nowhere/plugin.so", RN_NOT_FOUND);
    assert_string_equal("library_missing", attempt.failure->name);
    assert_string_equal("/nowhere/plugin.so", rn_last_error()->path);
    assert_string_equal("library_unusable", only_failure(text, RN_UNSUPPORTED).failure->name);
    attempt = only_failure("xla:libm.so.6", RN_UNSUPPORTED);
    assert_non_null(strstr(attempt.message, "no PJRT plugin: the library has no GetPjrtApi"));
    assert_string_equal("unsupported", attempt.failure->name);
}

static void machine_without_a_driver_falls_from_auto_to_the_cpu(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("auto");
    rn_stage("tokenizer_loaded");
    assert_ok(start(ladder, &l, &target));
    assert_string_equal("cpu", target.name);
    rn_attempt attempt = attempt_at(ladder, 0);
    assert_string_equal("cuda:0", attempt.target);
    assert_string_equal("cuda_no_driver", attempt.failure->name);
    assert_string_equal("tokenizer_loaded", attempt.stage);
    assert_int_equal(RN_DEVICE, attempt.status);
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
}

// After those without a driver: once found, it stays.
static void gpu_that_is_there_is_told_from_one_that_is_not(void **state) {
    (void)state;
    static const rn_cuda_images no_kernels;
    fake_cuda *fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    assert_non_null(fake);
    fake->device_count = 1;
    rn_cuda_images_replace(&no_kernels); // also where the library has some
    rn_attempt attempt = only_failure("cuda:0", RN_UNSUPPORTED);
    assert_non_null(strstr(attempt.message, "cuda:0 is there ("));
    assert_string_equal("unsupported", attempt.failure->name);
    attempt = only_failure("cuda:1", RN_DEVICE);
    assert_string_equal("cuda_no_device", attempt.failure->name);
}

// ---- while serving ------------------------------------------------------------------------------

static void target_that_fails_later_makes_way_for_the_next(void **state) {
    (void)state;
    float y[ROWS * WIDTH];
    loader l = {0};
    rn_ladder_target target;
    ask_cpu(y);
    rn_ladder *ladder = parse("sim,cpu");
    assert_ok(start(ladder, &l, &target));
    rn_stage("server_ready");
    (void)rn_fail(RN_DEVICE, "nrt_execute status=101");
    memset(l.y, 0, sizeof l.y);
    assert_ok(rn_ladder_advance(ladder, rn_last_error(), &target));
    assert_int_equal(1, target.index);
    assert_memory_equal(y, l.y, sizeof y);
    rn_attempt failed = attempt_at(ladder, 0);
    assert_int_equal(RN_ATTEMPT_FAILED, failed.state);
    assert_string_equal("server_ready", failed.stage);
    assert_string_equal("nrt_exec_unit_unrecoverable", failed.failure->name);
    assert_int_equal(1, rn_ladder_target_index(ladder));
    (void)rn_fail(RN_IO, "the disk went away");
    assert_fails(RN_IO, rn_ladder_advance(ladder, rn_last_error(), &target)); // there is no third
    assert_string_equal("the disk went away", rn_last_error()->message);
    assert_int_equal(-1, rn_ladder_target_index(ladder));
    assert_int_equal(2, l.undone);
    assert_fails(RN_INVALID, rn_ladder_advance(ladder, rn_last_error(), &target));
    rn_ladder_load load = load_of(&l); // the same again, from where one likes
    assert_fails(RN_INVALID,
                 rn_ladder_start_from(ladder, 2, &(rn_ladder_options){0}, &load, &target));
    assert_ok(rn_ladder_start_from(ladder, 1, &(rn_ladder_options){0}, &load, &target));
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
}

static void without_fallback_a_later_failure_is_the_end_as_well(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("sim,cpu");
    rn_ladder_load load = load_of(&l);
    assert_ok(rn_ladder_start(ladder, &(rn_ladder_options){.no_fallback = true}, &load, &target));
    (void)rn_fail(RN_DEVICE, "it broke");
    assert_fails(RN_DEVICE, rn_ladder_advance(ladder, rn_last_error(), &target));
    assert_string_equal("it broke", rn_last_error()->message);
    assert_int_equal(1, l.attempts);
    rn_ladder_destroy(ladder);
}

static void leak_shows_when_a_target_is_left(void **state) {
    (void)state;
    loader l = {.leak_bytes = 100};
    rn_ladder_target target;
    rn_ladder *ladder = parse("cpu");
    assert_ok(start(ladder, &l, &target));
    assert_fails(RN_INTERNAL, rn_ladder_leave(ladder, NULL));
    assert_non_null(strstr(rn_last_error()->message, "100 B of staging on host"));
    assert_int_equal(RN_ATTEMPT_FAILED, attempt_at(ladder, 0).state);
    rn_ledger_release(staging, NULL, 100);
    rn_ladder_destroy(ladder);
}

// ---- the record ---------------------------------------------------------------------------------

static void latest_attempts_are_kept(void **state) {
    (void)state;
    loader l = {.fail_with = RN_IO};
    rn_ladder_target target;
    rn_attempt attempts[RN_LADDER_ATTEMPTS];
    rn_ladder *ladder = parse("sim,cpu");
    for (int i = 0; i < 10; i++)
        assert_fails(RN_IO, start(ladder, &l, &target));
    assert_int_equal(20, rn_ladder_attempt_count(ladder));
    assert_int_equal(RN_LADDER_ATTEMPTS, rn_ladder_attempts(ladder, attempts));
    for (size_t i = 0; i < RN_LADDER_ATTEMPTS; i++)
        assert_int_equal(i % 2, attempts[i].target_index);
    rn_ladder_destroy(ladder);
}

static rn_buffer json_of(const rn_ladder *ladder) {
    rn_buffer out;
    rn_json json;
    rn_buffer_init(&out, &rn_system_allocator, 1 << 20);
    rn_json_begin(&json, rn_buffer_sink(&out), false);
    rn_json_object(&json, NULL);
    rn_json_check(&json, rn_ladder_json(ladder, rn_json_embed(&json, "ladder")));
    rn_json_end(&json);
    assert_ok(rn_json_finish(&json));
    assert_true(test_json_valid(out.data, out.bytes));
    return out;
}

static void assert_field(const rn_buffer *json, const char *path, const char *expected) {
    char text[1024];
    if (!test_json_get(json->data, json->bytes, path, text, sizeof text))
        fail_msg("no %s in %.*s", path, (int)json->bytes, json->data);
    assert_string_equal(expected, text);
}

static rn_status blame_files(void *self, const rn_ladder_target *target) {
    (void)self, (void)target;
    return rn_hint(rn_fail(RN_CORRUPT, "/srv/secret/model.gguf: at 5/8 of \"../secret/b.bin\""),
                   "compare (./secret/c), d/e and / with ~/secret/d");
}

static void json_says_what_is_in_use_and_hides_folders(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse("sim,xla:/srv/secret/p.so,cpu");
    rn_buffer json = json_of(ladder);
    assert_field(&json, "ladder/target_index", "null");
    assert_field(&json, "ladder/target", "null");
    assert_field(&json, "ladder/targets/1", "xla:p.so");
    rn_buffer_free(&json);
    rn_ladder_load load = {&l, blame_files, unload_model};
    assert_fails(RN_CORRUPT, rn_ladder_start(ladder, &(rn_ladder_options){0}, &load, &target));
    json = json_of(ladder);
    assert_field(&json, "ladder/attempts/0/message", "model.gguf: at 5/8 of \"b.bin\"");
    assert_field(&json, "ladder/attempts/0/hint", "compare (c), d/e and / with d");
    assert_field(&json, "ladder/attempts/0/class", "damaged_file");
    assert_field(&json, "ladder/attempts/0/state", "failed");
    assert_field(&json, "ladder/attempts/0/stage", "device_ready");
    assert_null(memmem(json.data, json.bytes, "secret", 6));
    rn_buffer_free(&json);
    assert_ok(start(ladder, &l, &target));
    json = json_of(ladder);
    assert_field(&json, "ladder/target_index", "0");
    assert_field(&json, "ladder/target", "sim");
    assert_field(&json, "ladder/attempts/3/state", "in_use");
    rn_buffer_free(&json);
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
}

// A stranger asks for the health while the model is being loaded.
typedef struct asker {
    rn_ladder *ladder;
    _Atomic bool stop;
    uint64_t answers;
} asker;

static void *ask(void *self) {
    asker *a = self;
    do {
        rn_buffer json = json_of(a->ladder);
        rn_buffer_free(&json);
        a->answers++;
    } while (!a->stop);
    return NULL;
}

static void record_may_be_read_while_another_thread_starts(void **state) {
    (void)state;
    loader l = {0};
    rn_ladder_target target;
    pthread_t thread;
    asker a = {.ladder = parse("sim:fail_copy=2,cpu")};
    assert_int_equal(0, pthread_create(&thread, NULL, ask, &a));
    for (int i = 0; i < 20; i++) {
        assert_ok(start(a.ladder, &l, &target));
        assert_ok(rn_ladder_leave(a.ladder, NULL));
    }
    a.stop = true;
    pthread_join(thread, NULL);
    assert_true(a.answers > 0);
    rn_ladder_destroy(a.ladder);
}

// ---- the log ------------------------------------------------------------------------------------

static char logged[1 << 16];
static size_t logged_bytes;

static rn_status capture(void *self, const char *text, size_t bytes) {
    (void)self;
    if (bytes > sizeof logged - 1 - logged_bytes) return rn_fail(RN_IO, "the test's log is full");
    memcpy(logged + logged_bytes, text, bytes);
    logged_bytes += bytes;
    logged[logged_bytes] = '\0';
    return RN_OK;
}

static const char *log_of(const char *targets, rn_log_level least) {
    loader l = {0};
    rn_ladder_target target;
    rn_ladder *ladder = parse(targets);
    logged_bytes = 0;
    logged[0] = '\0';
    rn_log_set((rn_sink){NULL, capture}, RN_LOG_TEXT, least);
    (void)!start(ladder, &l, &target);
    rn_log_set((rn_sink){NULL, NULL}, RN_LOG_TEXT, RN_LOG_DEBUG);
    assert_ok(rn_ladder_leave(ladder, NULL));
    rn_ladder_destroy(ladder);
    return logged;
}

static void failures_are_logged_by_how_much_they_matter(void **state) {
    (void)state;
    assert_string_equal("", log_of("cpu", RN_LOG_WARNING));
    assert_string_equal("", log_of("auto", RN_LOG_WARNING)); // nobody asked for a GPU
    assert_non_null(strstr(log_of("auto", RN_LOG_INFO),
                           " info ladder: cuda:0 is not used: NVIDIA's driver is not installed, or "
                           "not visible in this container; trying cpu\n"));
    assert_null(strstr(logged, "fail"));
    assert_non_null(strstr(log_of("cuda,cpu", RN_LOG_WARNING), " warning failed at stage "));
    assert_non_null(strstr(log_of("sim:fail_launch=1,cpu", RN_LOG_WARNING),
                           " warning failed at stage inputs_on_device on sim: injected_fault ("));
    assert_string_equal("", log_of("sim:fail_launch=1,cpu", RN_LOG_ERROR));
}

static void failure_that_is_the_end_is_told_by_who_gets_it(void **state) {
    (void)state;
    assert_null(strstr(log_of("sim:fail_launch=1", RN_LOG_INFO), "fail"));
    const char *first =
        strstr(log_of("sim:fail_launch=1,sim:fail_launch=1", RN_LOG_INFO), "failed at");
    assert_non_null(first);
    assert_null(strstr(first + 1, "failed at")); // the second is in the story
}

static void device_in_use_is_named(void **state) {
    (void)state;
    assert_non_null(strstr(log_of("cpu", RN_LOG_INFO), " stage device_ready on cpu: "));
    assert_null(strstr(logged, "last resort")); // there was no other
    assert_non_null(strstr(log_of("sim,cpu", RN_LOG_INFO), " stage device_ready on sim: "));
    assert_null(strstr(logged, "cpu"));
    assert_null(strstr(log_of("auto", RN_LOG_INFO), "last resort")); // nobody asked for a GPU
    assert_non_null(strstr(log_of("cuda,cpu", RN_LOG_WARNING),
                           " warning ladder: cpu is in use, as the last resort\n"));
}

static void stages_are_told_where_they_end(void **state) {
    (void)state;
    const char *text = log_of("sim", RN_LOG_INFO), *last = text;
    static const char *const stages[] = {"device_ready", "plan_made", "model_on_device",
                                         "inputs_on_device", "test_forward_pass"};
    for (int i = 0; i < 5; i++) {
        const char *found = strstr(text, stages[i]);
        assert_non_null(found);
        assert_true(found >= last);
        assert_null(strstr(found + 1, stages[i])); // once
        last = found;
    }
    assert_null(strstr(log_of("cpu", RN_LOG_INFO), "inputs_on_device")); // they are there already
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lists_are_read_in_order),
        TEST(what_is_wrong_in_a_list_is_named),
        TEST(first_target_that_works_is_used),
        TEST(fault_at_any_place_falls_to_the_next_target),
        TEST(device_that_is_too_small_is_over_budget),
        TEST(no_allocation_that_fails_leaves_anything),
        TEST(without_fallback_the_first_failure_is_the_answer),
        TEST(cancelling_is_no_reason_to_try_the_next),
        TEST(only_target_tells_its_own_story),
        TEST(where_none_works_all_are_counted_and_the_best_hint_is_kept),
        TEST(what_stays_behind_is_named_and_ends_the_search),
        TEST(attempt_without_a_story_is_not_given_another_one),
        TEST(plugin_that_is_missing_or_is_none_is_told_so),
        TEST(machine_without_a_driver_falls_from_auto_to_the_cpu),
        TEST(target_that_fails_later_makes_way_for_the_next),
        TEST(without_fallback_a_later_failure_is_the_end_as_well),
        TEST(leak_shows_when_a_target_is_left),
        TEST(latest_attempts_are_kept),
        TEST(json_says_what_is_in_use_and_hides_folders),
        TEST(record_may_be_read_while_another_thread_starts),
        TEST(failures_are_logged_by_how_much_they_matter),
        TEST(failure_that_is_the_end_is_told_by_who_gets_it),
        TEST(device_in_use_is_named),
        TEST(stages_are_told_where_they_end),
        TEST(gpu_that_is_there_is_told_from_one_that_is_not),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
