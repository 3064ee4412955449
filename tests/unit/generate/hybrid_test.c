// Passes of which the CPU computes all of the first layers: the link would slow it down, so it
// rests meanwhile. When that is worth it, and all that hybrid_check.h says.
#define HYBRID_LAYERS  5
#define HYBRID_PERCENT 70
#define BESIDE_LINK    0.1
#include "hybrid_check.h"

static void expect_kind(const rn_generator *generator) {
    assert_int_equal(generator->plan->summary.interleaved_blocks, 0);
    assert_int_equal(generator->plan->segments.count, 1);
}

static const char *find_reason(const rn_plan *plan, const char *move) {
    for (uint32_t i = 0; i < plan->reason_count; i++)
        if (strcmp(plan->reasons[i].move, move) == 0) return plan->reasons[i].text;
    return "";
}

// ---- when ---------------------------------------------------------------------------------------

static void a_slow_link_is_spared_and_a_fast_one_used(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        rn_generator_options options = base_options(i ? fast : slow);
        limit_device(&options, 70);
        rn_generator *generator = create(&options);
        const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
        const char *reason = find_reason(generator->plan, "hybrid");
        assert_true(s->streamed_bytes > 0);
        assert_int_equal(generator->session->host != NULL, i == 0);
        assert_int_equal(s->host_blocks > 0, i == 0);
        assert_non_null(strstr(reason, i ? "brought to the device" : "the CPU computes the first"));
        if (i == 0) {
            assert_true(s->seconds < s->streaming_seconds);
            assert_int_equal(s->rows, 32);
            assert_true(s->host_rows > 1 && s->host_rows < 16);
            assert_true(s->seconds == s->prefill_seconds + 64 * s->decode_seconds);
            assert_true(generator->plan->suffix);
        } else {
            assert_false(generator->plan->suffix);
        }
        rn_generator_destroy(generator);
    }
}

static void exact_and_room_for_all_are_reasons_against_it(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    options.plan.exact = true;
    rn_generator *generator = create(&options);
    assert_null(generator->session->host);
    assert_non_null(strstr(find_reason(generator->plan, "hybrid"), "exact"));
    rn_generator_destroy(generator);
    options = base_options(slow);
    generator = create(&options);
    assert_null(generator->session->host);
    assert_string_equal(find_reason(generator->plan, "hybrid"), "");
    uint64_t own = generator->memory.held_bytes + sizeof *generator;
    rn_generator_destroy(generator);
    options.session.device = NULL; // the host's memory is the CPU's own
    limit_device(&options, 50);
    options.plan.budget_bytes = options.device_budget.bytes + own;
    generator = create(&options);
    assert_true(rn_plan_get_summary(generator->plan)->streamed_bytes > 0);
    assert_null(generator->session->host);
    rn_generator_destroy(generator);
}

static void tell_of(const rn_model *model, const rn_generator_options *options, bool splits,
                    story *out) {
    rn_generator *generator;
    rn_plan *plan;
    assert_ok(rn_generator_predict(model, options, &plan)); // while the device holds nothing yet
    assert_ok(rn_generator_create(model, options, &generator));
    assert_int_equal(generator->session->host != NULL, splits);
    assert_memory_equal(&plan->summary, &generator->plan->summary, sizeof plan->summary);
    rn_plan_destroy(plan);
    assert_ok(story_tell(generator, &greedy, 5, 40, 20, out));
    rn_generator_destroy(generator);
}

// The library's own, whose weights lie in memory.
static void a_real_model_says_the_same(void **state) {
    (void)state;
    rn_generator_options options = base_options(slow);
    rn_model *model;
    rn_plan *plan;
    story whole, split;
    assert_ok(rn_model_open(NULL, NULL, &model));
    tell_of(model, &options, false, &whole);
    assert_ok(rn_generator_predict(model, &options, &plan));
    options.device_budget.planned_only = true;
    options.device_budget.bytes = (plan->summary.smallest_bytes + plan->summary.planned_bytes) / 2;
    rn_plan_destroy(plan);
    tell_of(model, &options, true, &split);
    story_expect(&split, &whole);
    rn_model_close(model);
}

// Copies for both, for the CPU alone, for neither: with ever less on the host.
static void the_hosts_budget_decides_between_three_ways(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_generator *generator = create_hybrid(&options);
    uint64_t own = generator->memory.held_bytes + sizeof *generator;
    uint64_t roomy = rn_plan_get_summary(generator->plan)->host_bytes;
    rn_generator_destroy(generator);
    uint32_t ways = 0; // a bit each: on the device alone, split, split and no copies for prompts
    for (uint64_t bytes = roomy + 4096; bytes > roomy - (1 << 20); bytes -= 32 << 10) {
        options.plan.budget_bytes = own + bytes;
        generator = create(&options);
        bool split = generator->session->host != NULL;
        bool every = split && generator->plan->every_run;
        uint32_t way = 1u << (split + every);
        assert_true(rn_plan_get_summary(generator->plan)->host_bytes <= bytes);
        if ((ways & way) == 0) expect_stories(generator);
        rn_generator_facts facts = rn_generator_get_facts(generator);
        if ((ways & way) == 0) assert_int_equal(facts.hybrid_steps == facts.steps, every);
        assert_int_equal(every && facts.moved_pages, 0);
        ways |= way;
        rn_generator_destroy(generator);
    }
    assert_int_equal(ways, 7);
}

// Pages go from side to side, so windows roll in plans of one side only. Either way the text is
// that of the full cache.
static void windows_roll_where_the_cpu_does_not_help(void **state) {
    (void)state;
    story whole, got;
    bool rolled = false, split = false;
    tiny.window = tiny.maker.window = 11;
    tiny.period = 2;
    rn_generator_options options = base_options(fast);
    options.prefix_caching = true;
    rn_generator *generator = create(&options);
    assert_ok(story_tell(generator, &greedy, 1, 40, 50, &whole));
    assert_int_equal(generator->held, 0);
    rn_generator_destroy(generator);
    for (uint32_t percent = 20; percent <= 100; percent += 20) {
        options = base_options(slow);
        limit_device(&options, percent);
        generator = create(&options);
        assert_int_equal(generator->held > 0, generator->session->host == NULL);
        rolled |= generator->held > 0;
        split |= generator->held == 0;
        assert_ok(story_tell(generator, &greedy, 1, 40, 50, &got));
        story_expect(&got, &whole);
        rn_generator_destroy(generator);
    }
    assert_true(rolled && split);
    tiny.window = tiny.maker.window = tiny.period = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_link_is_spared_and_a_fast_one_used),
        cmocka_unit_test(exact_and_room_for_all_are_reasons_against_it),
        cmocka_unit_test(a_real_model_says_the_same),
        cmocka_unit_test(the_hosts_budget_decides_between_three_ways),
        cmocka_unit_test(windows_roll_where_the_cpu_does_not_help),
        HYBRID_TESTS,
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
