// Passes of which the CPU computes most of the first layers, while the link brings the others to
// the device: how they are dealt out, and all that hybrid_check.h says.
#define HYBRID_LAYERS  9
#define HYBRID_PERCENT 45
#define BESIDE_LINK    1
#include "hybrid_check.h"

#include "base/buffer.h"
#include "memory/account.h"
#include "plan/interleave.h"

static void expect_kind(const rn_generator *generator) {
    assert_true(generator->plan->summary.interleaved_blocks > 1);
    assert_int_equal(generator->plan->segments.count, generator->plan->summary.interleaved_blocks);
}

static bool has_state(const rn_plan *plan, uint32_t layer) {
    char name[32];
    snprintf(name, sizeof name, "layers.%u.kv", layer);
    return rn_graph_find(plan->graph, RN_ROLE_STATE, name) != RN_NO_VALUE;
}

// Every layer is computed by one side; the CPU has the cache of its own ones alone.
static void layers_are_dealt_out_between_both(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_generator *generator = create_hybrid(&options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    const rn_segment_table *segments = generator->session->segments;
    uint32_t layers = s->host_blocks - 1, on_host = 0; // the embedding is a block
    assert_int_equal(s->interleaved_blocks, generator->plan->summary.interleaved_blocks);
    assert_int_equal(segments->load_count, s->interleaved_blocks);
    assert_int_equal(segments->slot_count, 1);
    for (uint32_t i = 0; i < tiny.layers; i++) {
        bool brought = i < layers && rn_interleave_streams(i, layers, s->interleaved_blocks);
        assert_int_equal(has_state(generator->plan->host, i), i < layers && !brought);
        on_host += i < layers && !brought;
    }
    assert_int_equal(on_host, layers - s->interleaved_blocks);
    rn_generator_destroy(generator);
}

static const char *find_reason(const rn_plan *plan, const char *move) {
    for (uint32_t i = 0; i < plan->reason_count; i++)
        if (strcmp(plan->reasons[i].move, move) == 0) return plan->reasons[i].text;
    return "";
}

static void the_plan_says_how_many_are_brought(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_generator *generator = create_hybrid(&options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    char words[64];
    rn_buffer text;
    rn_json json;
    snprintf(words, sizeof words, "but for %u that the link brings", s->interleaved_blocks);
    assert_non_null(strstr(find_reason(generator->plan, "hybrid"), words));
    rn_buffer_init(&text, RN_HOST_OTHER, 1 << 24);
    rn_json_begin(&json, rn_buffer_sink(&text), false);
    rn_plan_write_json(generator->plan, &json, NULL);
    assert_ok(rn_json_finish(&json));
    assert_ok(rn_buffer_append(&text, "", 1));
    snprintf(words, sizeof words, "\"interleaved_blocks\":%u", s->interleaved_blocks);
    assert_non_null(strstr((const char *)text.data, words));
    rn_buffer_free(&text);
    rn_generator_destroy(generator);
}

// Of the same device, with the CPU slowed down by a link at work: then it would rather work alone.
static void a_busy_memory_is_a_reason_against_it(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_device_rates torpid = cpu_rates;
    rn_generator *generator = create_hybrid(&options);
    double seconds = rn_plan_get_summary(generator->plan)->seconds;
    rn_generator_destroy(generator);
    torpid.beside_link = 0.1;
    rn_cpu_set_rates(&torpid);
    generator = create(&options);
    rn_cpu_set_rates(&cpu_rates);
    assert_non_null(generator->session->host);
    assert_int_equal(generator->plan->summary.interleaved_blocks, 0);
    assert_true(seconds < rn_plan_get_summary(generator->plan)->seconds);
    rn_generator_destroy(generator);
}

static void a_link_that_is_slower_beside_the_cpu_brings_less(void **state) {
    (void)state;
    rn_generator_options options = hybrid_options();
    rn_generator *generator = create_hybrid(&options);
    uint32_t before = generator->plan->summary.interleaved_blocks;
    rn_generator_destroy(generator);
    slow->caps.link_share = 0.3;
    generator = create(&options);
    slow->caps.link_share = 0;
    assert_non_null(generator->session->host);
    assert_true(generator->plan->summary.interleaved_blocks < before);
    rn_generator_destroy(generator);
}

// From the most frugal plan to the roomiest.
static void a_larger_budget_is_never_slower(void **state) {
    (void)state;
    rn_generator_options options = base_options(slow);
    uint32_t kinds = 0; // a bit each: interleaved blocks
    double before = 1e9;
    limit_device(&options, 0);
    uint64_t least = options.device_budget.bytes;
    options.device_budget.bytes = 0;
    limit_device(&options, 100);
    uint64_t most = options.device_budget.bytes;
    for (uint32_t i = 0; i <= 24; i++) {
        rn_plan *plan;
        options.device_budget.bytes = least + (most - least) * i / 24;
        assert_ok(rn_generator_plan_from(&tiny.maker, &options, &plan));
        const rn_plan_summary *s = rn_plan_get_summary(plan);
        assert_true(s->planned_bytes <= options.device_budget.bytes);
        assert_true(s->seconds <= before);
        before = s->seconds;
        kinds |= 1u << s->interleaved_blocks;
        rn_plan_destroy(plan);
    }
    assert_true(__builtin_popcount(kinds) > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_dealt_out_between_both),
        cmocka_unit_test(the_plan_says_how_many_are_brought),
        cmocka_unit_test(a_busy_memory_is_a_reason_against_it),
        cmocka_unit_test(a_link_that_is_slower_beside_the_cpu_brings_less),
        cmocka_unit_test(a_larger_budget_is_never_slower),
        HYBRID_TESTS,
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
