// stories260K tells its story: 200 greedy tokens and what it thought of them, against a reference
// in numpy; from every file, at budgets from roomy to the floor, with guesses and without.
#include "support.h"

#include <ration/generate.h>
#include <ration/memory.h>

#include <math.h>

enum { TOLD = 200, VOCAB = 512, CONTEXT = 256 };

static int32_t tokens[TOLD + 1]; // the first is the beginning-of-text token
static float logits[TOLD][VOCAB];
static bool missing;

static void read_tensor(const rn_checkpoint *checkpoint, const char *name, void *out,
                        uint64_t bytes) {
    const rn_tensor_info *info = rn_checkpoint_find(checkpoint, name);
    assert_non_null(info);
    assert_int_equal(info->bytes, bytes);
    assert_ok(rn_checkpoint_read(checkpoint, info, 0, out, bytes));
}

#define GOLDEN "llama/stories260K/golden_greedy200.safetensors"

static int read_golden(void **state) {
    (void)state;
    const char *path = test_data(GOLDEN);
    rn_checkpoint *checkpoint;
    missing = path == NULL;
    if (missing) return 0;
    assert_ok(rn_checkpoint_open(path, &checkpoint));
    read_tensor(checkpoint, "tokens", tokens, sizeof tokens);
    read_tensor(checkpoint, "logits", logits, sizeof logits);
    rn_checkpoint_close(checkpoint);
    return 0;
}

static rn_model *open_model(const char *name) {
    const char *path = test_data_or_skip(name);
    rn_model *model = NULL;
    if (missing) skip_because("no test data: " GOLDEN);
    assert_ok(rn_model_open(path, &(rn_model_options){.without_tokenizer = true}, &model));
    return model;
}

static double find_log_sum(uint32_t step) {
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[step][i]);
    return log(sum);
}

// The largest difference of a logprob from the reference's.
static double compare(const rn_sample *sample, uint32_t step) {
    double sum = find_log_sum(step), worst = 0;
    for (uint32_t i = 0; i < sample->top_count; i++) {
        const rn_token_logprob *top = &sample->top[i];
        double off = fabs((double)top->logprob - ((double)logits[step][top->token] - sum));
        if (off > worst) worst = off;
    }
    return worst;
}

// Tells the story and returns the plan's summary.
static rn_plan_summary tell(const rn_model *model, const rn_generator_options *options,
                            double tolerance, rn_generator_facts *out_facts) {
    rn_generator *generator;
    rn_sequence *sequence;
    rn_sample sample;
    uint32_t count = 0;
    assert_ok(rn_generator_create(model, options, &generator));
    assert_ok(rn_sequence_create(generator, &(rn_sampling){.logprobs = 20}, &sequence));
    assert_ok(rn_sequence_feed(sequence, &(uint32_t){(uint32_t)tokens[0]}, 1));
    while (count < TOLD) {
        assert_ok(rn_generator_step(generator));
        while (count < TOLD && rn_sequence_take(sequence, &sample)) {
            assert_int_equal(sample.token, tokens[count + 1]);
            assert_true(compare(&sample, count) <= tolerance);
            count++;
        }
    }
    rn_plan_summary summary = *rn_plan_get_summary(rn_generator_plan(generator));
    *out_facts = rn_generator_get_facts(generator);
    rn_generator_destroy(generator);
    return summary;
}

static rn_generator_options make_options(rn_dtype kv, rn_speculation speculation) {
    return (rn_generator_options){.text = {.context = CONTEXT, .kv_dtype = kv},
                                  .session = {.audit = true},
                                  .speculation = speculation};
}

// Budgets from the floor up; AUTO guesses where weights are streamed.
static void tell_at_budgets(const char *name, uint32_t budgets, double tolerance) {
    rn_model *model = open_model(name);
    rn_generator_options options = make_options(RN_DTYPE_F32, RN_SPECULATE_AUTO);
    rn_generator_facts facts;
    uint64_t beside = 64 << 10; // more than a generator of this size has beside its plan
    rn_plan_summary roomy = tell(model, &options, tolerance, &facts);
    assert_int_equal(roomy.streamed_bytes, 0);
    assert_int_equal(facts.steps, TOLD);
    uint64_t accepted = 0;
    for (uint32_t i = 0; i < budgets; i++) {
        uint64_t more = (roomy.planned_bytes - roomy.smallest_bytes) * i / budgets;
        options.plan.budget_bytes = beside + roomy.smallest_bytes + more;
        rn_plan_summary summary = tell(model, &options, tolerance, &facts);
        assert_true(summary.planned_bytes <= options.plan.budget_bytes);
        assert_int_equal(facts.session.live_mismatch_step, UINT64_MAX);
        accepted += facts.accepted_tokens;
        options.speculation = i % 2 ? RN_SPECULATE_AUTO : RN_SPECULATE_NEVER;
    }
    assert_true(accepted > 0);
    rn_model_close(model);
}

static void the_story_is_the_same_at_every_budget(void **state) {
    (void)state;
    tell_at_budgets("llama/stories260K/hf", 3, 1e-4);
}

static void a_gguf_file_tells_the_same_story(void **state) {
    (void)state;
    tell_at_budgets("llama/stories260K/stories260K.ctx512.gguf", 1, 1e-4);
}

// Keys and values in f16: the same words, thought a little differently.
static void a_cache_of_f16_tells_the_same_story(void **state) {
    (void)state;
    rn_model *model = open_model("llama/stories260K/hf");
    rn_generator_options options = make_options(RN_DTYPE_F16, RN_SPECULATE_NEVER);
    rn_generator_facts facts;
    (void)tell(model, &options, 0.05, &facts);
    rn_model_close(model);
}

static void guesses_save_passes(void **state) {
    (void)state;
    rn_model *model = open_model("llama/stories260K/hf");
    rn_generator_options options = make_options(RN_DTYPE_F32, RN_SPECULATE_ALWAYS);
    rn_generator_facts facts;
    (void)tell(model, &options, 1e-4, &facts);
    print_message("%llu tokens in %llu passes: %llu guesses, %llu of them right\n",
                  (unsigned long long)facts.new_tokens, (unsigned long long)facts.steps,
                  (unsigned long long)facts.speculated_tokens,
                  (unsigned long long)facts.accepted_tokens);
    assert_true(facts.accepted_tokens >= 30);
    assert_int_equal(facts.steps, TOLD - facts.accepted_tokens);
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_story_is_the_same_at_every_budget),
        cmocka_unit_test(a_gguf_file_tells_the_same_story),
        cmocka_unit_test(a_cache_of_f16_tells_the_same_story),
        cmocka_unit_test(guesses_save_passes),
    };
    return cmocka_run_group_tests(tests, read_golden, NULL);
}
