// recurrent_models_test.c — models whose layers keep states, against Hugging Face's transformers
// and against themselves: prompts in any chunks, in any company, at every budget, after a rewind
// and after a failure. The files are made by scripts/reference/recurrent_models.py.
#include "backend/sim/sim.h"
#include "graph/fuse.h"
#include "text_run.h"
#include "tiny_text.h"

#include <ration/memory.h>

enum { COUNT = 40, VOCAB = 128, PROMPT = 19, TOLD = 12, CONTEXT = 64 };

#define TEXT "tests/golden/text/"

static const struct {
    const char *file, *folder;
} models[] = {
    {TEXT "lfm2", TEXT "lfm2"},
    {TEXT "lfm2/model.gguf", TEXT "lfm2"},
    {TEXT "qwen35", TEXT "qwen35"},
    {TEXT "qwen35/model.gguf", TEXT "qwen35"},
    {TEXT "qwen35_seeing", TEXT "qwen35_seeing"},
    {TEXT "qwen3_next", TEXT "qwen3_next"},
    {TEXT "qwen35_moe", TEXT "qwen35_moe"},
    {TEXT "qwen35_moe/model.gguf", TEXT "qwen35_moe"},
    {TEXT "qwen3_next_moe", TEXT "qwen3_next_moe"},
};
enum { MODELS = sizeof models / sizeof *models };

static int32_t tokens[COUNT];
static float expected[COUNT * VOCAB];

static void read_golden(const char *folder) {
    char path[128];
    rn_checkpoint *c;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(path, &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 sizeof tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "logits"), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
}

// ---- logits -------------------------------------------------------------------------------------

// The whole prompt at once, in chunks, and token by token: within 1e-4 of transformers, whose
// largest logits are about 5, and of the same bits.
static void every_chunk_gives_the_logits_of_transformers(void **state) {
    (void)state;
    static float first[COUNT * VOCAB], logits[COUNT * VOCAB];
    static const uint32_t rows[] = {COUNT, 16, 7, 1};
    for (size_t i = 0; i < MODELS; i++) {
        read_golden(models[i].folder);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            rn_text_options text = {.context = CONTEXT, .page_tokens = 8, .rows = rows[r]};
            text_run *run = text_run_open(models[i].file, NULL, &text);
            text_run_logits(run, tokens, COUNT, r ? logits : first);
            text_run_close(run);
            if (r) assert_memory_equal(first, logits, sizeof first);
        }
        double difference = text_run_difference(first, expected, COUNT * VOCAB);
        print_message("%-36s off by %.1e\n", models[i].file, difference);
        if (!(difference <= 1e-4)) fail_msg("%s: off by %g", models[i].file, difference);
    }
}

static void every_budget_gives_the_same_bits(void **state) {
    (void)state;
    static float roomy[COUNT * VOCAB], tight[COUNT * VOCAB];
    rn_text_options text = {.context = CONTEXT, .page_tokens = 8, .rows = 16};
    for (size_t i = 0; i < MODELS; i++) {
        read_golden(models[i].folder);
        text_run *run = text_run_open(models[i].file, NULL, &text);
        uint64_t most = rn_plan_get_summary(run->plan)->planned_bytes;
        uint64_t least = rn_plan_get_summary(run->plan)->smallest_bytes;
        text_run_logits(run, tokens, COUNT, roomy);
        text_run_close(run);
        for (uint64_t b = 0; b < 3; b++) {
            run = text_run_open_within(models[i].file, NULL, &text, least + (most - least) * b / 3);
            assert_true(b || rn_plan_get_summary(run->plan)->streamed_bytes > 0);
            text_run_logits(run, tokens, COUNT, tight);
            text_run_close(run);
            assert_memory_equal(roomy, tight, sizeof roomy);
        }
    }
}

// ---- generators ---------------------------------------------------------------------------------

static rn_model *open_model(const char *file) {
    rn_model *model;
    assert_ok(rn_model_open(file, &(rn_model_options){.without_tokenizer = true}, &model));
    return model;
}

static rn_generator_options options_of(uint32_t rows, uint32_t sequences) {
    return (rn_generator_options){
        .text = {.context = CONTEXT, .page_tokens = 8, .rows = rows, .sequences = sequences},
        .session = {.audit = true},
        .prefix_caching = true};
}

static rn_generator *create(const rn_model *model, uint32_t rows, uint32_t sequences) {
    rn_generator_options options = options_of(rows, sequences);
    rn_generator *g;
    assert_ok(rn_generator_create(model, &options, &g));
    return g;
}

static rn_sequence *begin(rn_generator *g, uint32_t seed, uint32_t count) {
    uint32_t ids[PROMPT];
    rn_sequence *s;
    story_prompt(seed, VOCAB, count, ids);
    assert_ok(rn_sequence_create(g, &(rn_sampling){.logprobs = 4}, &s));
    assert_ok(rn_sequence_feed(s, ids, count));
    return s;
}

// What sequence `seed` says alone, a prompt at a time.
static story alone(const rn_model *model, uint32_t seed, uint32_t count) {
    rn_generator *g = create(model, PROMPT, 1);
    rn_sequence *s = begin(g, seed, count);
    story told = {0};
    while (told.count < TOLD) {
        assert_ok(rn_generator_step(g));
        story_take(&told, s, TOLD);
    }
    rn_generator_destroy(g);
    return told;
}

// Three sequences that begin and end at different times, in steps of few and of many rows.
static void company_changes_no_word(void **state) {
    (void)state;
    static const uint32_t rows[] = {3, 11, 64};
    for (size_t i = 0; i < MODELS; i += 2) {
        rn_model *model = open_model(models[i].file);
        story wanted[4] = {alone(model, 1, PROMPT), alone(model, 2, 5), alone(model, 3, 9)};
        wanted[3] = wanted[0];
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            rn_generator *g = create(model, rows[r], 3);
            rn_sequence *s[4] = {begin(g, 1, PROMPT), begin(g, 2, 5), NULL, NULL};
            story told[4] = {0};
            for (int step = 0; told[2].count < TOLD || told[3].count < TOLD; step++) {
                if (step == 2) s[2] = begin(g, 3, 9);
                if (s[1] && told[1].count == TOLD) { // its slot goes to a text like the first
                    rn_sequence_destroy(s[1]);
                    s[1] = NULL;
                    s[3] = begin(g, 1, PROMPT);
                }
                assert_ok(rn_generator_step(g));
                for (int k = 0; k < 4; k++)
                    if (s[k]) story_take(&told[k], s[k], TOLD);
            }
            for (int k = 0; k < 4; k++)
                story_expect(&told[k], &wanted[k]);
            assert_int_equal(0, rn_generator_get_facts(g).shared_tokens);
            assert_int_equal(UINT64_MAX, rn_generator_get_facts(g).session.live_mismatch_step);
            rn_generator_destroy(g);
        }
        rn_model_close(model);
    }
}

// Another beginning, a rewind into it, and on: as if it had been fed at once.
static void a_rewound_text_is_read_again(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i += 2) {
        rn_model *model = open_model(models[i].file);
        story wanted = alone(model, 1, PROMPT), told = {0};
        rn_generator *g = create(model, 8, 2);
        rn_sequence *s = begin(g, 1, PROMPT);
        while (told.count < 5) {
            assert_ok(rn_generator_step(g));
            story_take(&told, s, 5);
        }
        uint32_t ids[PROMPT];
        story_prompt(1, VOCAB, PROMPT, ids);
        rn_sequence_rewind(s, 11);
        assert_ok(rn_sequence_feed(s, ids + 11, PROMPT - 11));
        told.count = 0;
        while (told.count < 4) {
            assert_ok(rn_generator_step(g));
            story_take(&told, s, 4);
        }
        rn_sequence_pause(s); // goes on where it was
        assert_ok(rn_sequence_feed(s, NULL, 0));
        while (told.count < TOLD) {
            assert_ok(rn_generator_step(g));
            story_take(&told, s, TOLD);
        }
        story_expect(&told, &wanted);
        rn_generator_destroy(g);
        rn_model_close(model);
    }
}

// A launch in the middle of a step fails: some layers have gone on, others have not.
static void a_failed_step_leaves_nothing_behind(void **state) {
    (void)state;
    rn_model *model = open_model(TEXT "qwen35");
    story wanted = {0};
    for (uint64_t launch = 0; launch < 900; launch += launch < 1 ? 150 : 61) {
        rn_generator_options options = options_of(8, 1);
        rn_device *device;
        rn_generator *g;
        story told = {0};
        int failures = 0;
        assert_ok(rn_sim_device_create(&(rn_sim_options){.fail_launch = launch}, &device));
        options.session = (rn_session_options){.device = device};
        assert_ok(rn_generator_create(model, &options, &g));
        rn_sequence *s = begin(g, 1, PROMPT);
        while (told.count < TOLD) {
            failures += rn_generator_step(g) != RN_OK;
            assert_true(failures <= 1);
            story_take(&told, s, TOLD);
        }
        assert_int_equal(launch > 0, failures);
        if (launch == 0) wanted = told;
        story_expect(&told, &wanted);
        rn_generator_destroy(g);
        rn_device_destroy(device);
    }
    rn_model_close(model);
}

// Tells the story on a device, with another beside it, and returns the plan's summary.
static rn_plan_summary tell_on(rn_device *device, const rn_model *model, uint64_t budget_bytes,
                               const story *wanted) {
    rn_generator_options options = options_of(8, 2);
    rn_generator *g;
    story told = {0};
    options.session = (rn_session_options){.device = device};
    options.device_budget = (rn_device_budget){.bytes = budget_bytes, .planned_only = true};
    assert_ok(rn_generator_create(model, &options, &g));
    rn_sequence *s = begin(g, 1, PROMPT);
    (void)begin(g, 2, 3); // steps of 8, 8, 6 and 2 rows
    while (told.count < TOLD) {
        assert_ok(rn_generator_step(g));
        story_take(&told, s, TOLD);
    }
    story_expect(&told, wanted);
    rn_plan_summary summary = *rn_plan_get_summary(rn_generator_plan(g));
    rn_generator_destroy(g);
    return summary;
}

// Runs of one row and of many, padded to those that were compiled; all blocks on the device, or
// the first ones on the host: at last only those without keys are left there.
static void a_device_that_compiles_says_the_same(void **state) {
    (void)state;
    rn_device *device;
    assert_ok(rn_sim_device_create(&(rn_sim_options){.compiles = 1}, &device));
    for (size_t i = 0; i < MODELS; i += 2) {
        rn_model *model = open_model(models[i].file);
        story wanted = alone(model, 1, PROMPT);
        rn_plan_summary all = tell_on(device, model, 0, &wanted), some = {0};
        for (uint64_t part = 0; part < 6; part++)
            some = tell_on(device, model,
                           all.planned_bytes - (all.planned_bytes - all.smallest_bytes) * part / 5,
                           &wanted);
        assert_true(some.host_blocks > 0);
        rn_model_close(model);
    }
    rn_device_destroy(device);
}

// Kernels on a device, some of them fused; weights that stay, and such as come in each step. The
// CPU never helps: states do not move.
static void a_device_of_its_own_memory_says_the_same(void **state) {
    (void)state;
    rn_device *device;
    assert_ok(rn_sim_device_create(&(rn_sim_options){0}, &device));
    device->caps.fusions = RN_FUSE_ALL;
    for (size_t i = 0; i < MODELS; i += 2) {
        rn_model *model = open_model(models[i].file);
        story wanted = alone(model, 1, PROMPT);
        rn_plan_summary all = tell_on(device, model, 0, &wanted);
        rn_plan_summary some = tell_on(device, model, all.smallest_bytes, &wanted);
        assert_int_equal(0, all.streamed_bytes);
        assert_true(some.streamed_bytes > 0 && some.host_blocks == 0);
        rn_model_close(model);
    }
    rn_device_destroy(device);
}

// ---- plans --------------------------------------------------------------------------------------

static void a_plan_has_the_states_of_all_sequences(void **state) {
    (void)state;
    static const uint64_t bytes[] = {2 * 2 * 32 * 4,
                                     2 * 2 * 32 * 4,
                                     3 * (3 * 64 + 4 * 8 * 8) * 4,
                                     3 * (3 * 64 + 4 * 8 * 8) * 4,
                                     (3 * 48 + 2 * 8 * 8) * 4,
                                     (3 * 64 + 4 * 8 * 8) * 4,
                                     3 * (3 * 64 + 4 * 8 * 8) * 4,
                                     3 * (3 * 64 + 4 * 8 * 8) * 4,
                                     (3 * 64 + 4 * 8 * 8) * 4};
    _Static_assert(sizeof bytes / sizeof *bytes == MODELS, "a size for each model");
    for (size_t i = 0; i < MODELS; i++) {
        rn_model *model = open_model(models[i].file);
        rn_generator_options options = options_of(8, 5);
        rn_plan *plan;
        assert_int_equal(bytes[i], rn_model_get_info(model)->state_bytes);
        assert_ok(rn_generator_predict(model, &options, &plan));
        assert_int_equal(5 * bytes[i], rn_plan_get_summary(plan)->purpose_bytes[RN_PURPOSE_STATE]);
        uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STATE).now_bytes;
        rn_generator *g = create(model, 8, 5);
        assert_int_equal(before + 5 * bytes[i],
                         rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STATE).now_bytes);
        rn_generator_destroy(g);
        rn_plan_destroy(plan);
        rn_model_close(model);
    }
}

static void what_cannot_go_back_is_not_drafted(void **state) {
    (void)state;
    rn_model *model = open_model(TEXT "lfm2");
    rn_generator_options options = options_of(8, 1);
    rn_generator *g;
    options.speculation = RN_SPECULATE_ALWAYS;
    assert_fails(RN_UNSUPPORTED, rn_generator_create(model, &options, &g));
    assert_non_null(strstr(rn_last_error()->message, "states that cannot go back"));
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_gives_the_logits_of_transformers),
        cmocka_unit_test(every_budget_gives_the_same_bits),
        cmocka_unit_test(company_changes_no_word),
        cmocka_unit_test(a_rewound_text_is_read_again),
        cmocka_unit_test(a_failed_step_leaves_nothing_behind),
        cmocka_unit_test(a_device_that_compiles_says_the_same),
        cmocka_unit_test(a_device_of_its_own_memory_says_the_same),
        cmocka_unit_test(a_plan_has_the_states_of_all_sequences),
        cmocka_unit_test(what_cannot_go_back_is_not_drafted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
