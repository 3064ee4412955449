// The sampler against a naive one that sorts everything, against the distributions it stands for,
// and against input that makes no sense.
#include "support.h"

#include <ration/memory.h>
#include <ration/sampler.h>

#include "base/fault.h"
#include "graph/philox.h"
#include "text/sampler_sort.h"

#include <math.h>

enum { VOCAB = 1000 };

static float uniform(uint64_t at) {
    return rn_philox_unit(rn_philox_word(99, 1, at));
}

static void make_logits(float *logits, uint32_t count, uint64_t stream) {
    for (uint32_t i = 0; i < count; i++)
        logits[i] = 4 * rn_philox_normal(7, (uint32_t)stream, i);
}

static uint32_t draw(const rn_sampling *sampling, const float *logits, uint32_t vocab,
                     const uint32_t *history, size_t count, uint64_t position) {
    rn_sampler *sampler;
    rn_sample sample;
    assert_ok(rn_sampler_create(sampling, vocab, &sampler));
    assert_ok(rn_sampler_draw(sampler, logits, history, count, position, &sample));
    rn_sampler_destroy(sampler);
    return sample.token;
}

// ---- a naive sampler ----------------------------------------------------------------------------

typedef struct item {
    uint32_t token;
    double logit, weight;
} item;

static int by_logit(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static void penalize(const rn_sampling *s, const uint32_t *history, size_t count, float *logits,
                     uint32_t vocab) {
    size_t first = s->penalty_window && s->penalty_window < count ? count - s->penalty_window : 0;
    for (size_t i = 0; i < s->bias_count; i++)
        logits[s->bias[i].token] += s->bias[i].bias;
    for (uint32_t token = 0; token < vocab; token++) {
        float times = 0;
        for (size_t i = first; i < count; i++)
            times += history[i] == token;
        if (times == 0) continue;
        float r = s->repetition_penalty != 0 ? s->repetition_penalty : 1;
        logits[token] = logits[token] > 0 ? logits[token] / r : logits[token] * r;
        logits[token] -= times * s->frequency_penalty + s->presence_penalty;
    }
}

static uint32_t cut(const rn_sampling *s, item *items, uint32_t count) {
    double total = 0, sum = 0;
    uint32_t kept = 0;
    if (s->top_k && s->top_k < count) count = s->top_k;
    for (uint32_t i = 0; i < count; i++)
        total += items[i].weight;
    while (s->top_p > 0 && s->top_p < 1 && kept < count && sum < (double)s->top_p * total)
        sum += items[kept++].weight;
    return kept ? kept : count;
}

static uint32_t draw_naively(const rn_sampling *s, const float *raw, uint32_t vocab,
                             const uint32_t *history, size_t count, uint64_t position) {
    float logits[VOCAB];
    item items[VOCAB];
    uint32_t words[4];
    memcpy(logits, raw, vocab * sizeof *logits);
    penalize(s, history, count, logits, vocab);
    for (uint32_t i = 0; i < vocab; i++)
        items[i] = (item){i, (double)logits[i], 0};
    item best = items[0];
    for (uint32_t i = 1; i < vocab; i++)
        if (items[i].logit > best.logit) best = items[i];
    if (s->temperature == 0) return best.token;
    for (uint32_t i = 0; i < vocab; i++)
        items[i].weight = exp((items[i].logit - best.logit) / (double)s->temperature);
    bool sorts = (s->top_k && s->top_k < vocab) || (s->top_p > 0 && s->top_p < 1);
    if (sorts) qsort(items, vocab, sizeof *items, by_logit);
    uint32_t kept = cut(s, items, vocab), last = 0;
    double total = 0, passed = 0;
    for (uint32_t i = 0; i < kept; i++)
        if (items[i].weight >= (double)s->min_p) total += items[i].weight;
    rn_philox_block(s->seed, 0x5a3b, position, words);
    double unit = (double)((uint64_t)words[0] << 21 | words[1] >> 11) * 0x1p-53;
    for (uint32_t i = 0; i < kept; i++) {
        if (items[i].weight < (double)s->min_p || items[i].weight == 0) continue;
        last = items[i].token;
        passed += items[i].weight;
        if (passed > unit * total) break;
    }
    return last;
}

static rn_sampling make_sampling(uint64_t i) {
    rn_sampling s = {.temperature = uniform(10 * i) * 2, .seed = i * 0x123456789abcdef};
    if (i % 7 == 0) s.temperature = 0;
    if (i % 3 == 0) s.top_k = 1 + (uint32_t)(uniform(10 * i + 1) * VOCAB * 1.1f);
    if (i % 2 == 0) s.top_p = uniform(10 * i + 2);
    if (i % 5 == 0) s.min_p = uniform(10 * i + 3) * 0.2f;
    if (i % 4 == 0) s.repetition_penalty = 0.5f + uniform(10 * i + 4);
    if (i % 11 == 0) s.frequency_penalty = uniform(10 * i + 5) - 0.3f;
    if (i % 13 == 0) s.presence_penalty = uniform(10 * i + 6) * 2;
    if (i % 8 == 0) s.penalty_window = 1 + (uint32_t)(uniform(10 * i + 7) * 40);
    return s;
}

static void draws_equal_those_of_a_naive_sampler(void **state) {
    (void)state;
    float logits[VOCAB];
    uint32_t history[64], other = 0;
    for (uint64_t i = 0; i < 600; i++) {
        rn_logit_bias bias[] = {{(uint32_t)(i % VOCAB), 2}, {(uint32_t)(i * 7 % VOCAB), -INFINITY}};
        uint32_t vocab = i % 6 ? VOCAB : 1 + (uint32_t)(i % 41);
        rn_sampling s = make_sampling(i);
        make_logits(logits, vocab, i);
        for (int j = 0; i % 9 == 0 && j < 5; j++)
            logits[(i + 31 * (unsigned)j) % vocab] = 9; // equals
        for (int j = 0; j < 64; j++)
            history[j] = (uint32_t)(uniform(1000 * i + (unsigned)j) * (float)vocab);
        if (i % 10 == 0 && vocab == VOCAB) {
            s.bias = bias;
            s.bias_count = 2;
        }
        uint32_t token = draw(&s, logits, vocab, history, i % 65, i);
        assert_int_equal(token, draw_naively(&s, logits, vocab, history, i % 65, i));
        other += token != rn_logits_find_peak(logits, vocab).token;
    }
    assert_true(other > 100); // not everything was greedy
}

// ---- distributions ------------------------------------------------------------------------------

enum { SMALL = 6, DRAWS = 6000 };

// Chi-square of DRAWS draws against `expected` (SMALL probabilities, 0: never drawn).
static void check_distribution(const rn_sampling *sampling, const double *expected) {
    static const double logits_of[SMALL] = {0.05, 0.4, 0.1, 0.25, 0.15, 0.05};
    float logits[SMALL];
    uint32_t seen[SMALL] = {0}, kinds = 0;
    double square = 0;
    for (int i = 0; i < SMALL; i++)
        logits[i] = (float)log(logits_of[i]) + 3;
    for (uint64_t position = 0; position < DRAWS; position++)
        seen[draw(sampling, logits, SMALL, NULL, 0, position)]++;
    for (int i = 0; i < SMALL; i++) {
        double wanted = expected[i] * DRAWS, off = seen[i] - wanted;
        if (expected[i] == 0) assert_int_equal(seen[i], 0);
        if (expected[i] == 0) continue;
        square += off * off / wanted;
        kinds++;
    }
    // The 99.9 % points of 0 to 5 degrees of freedom; the draws are always the same ones.
    static const double limits[] = {1e-9, 10.8, 13.8, 16.3, 18.5, 20.5};
    assert_true(square < limits[kinds - 1]);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    check_distribution(&(rn_sampling){.temperature = 1, .seed = 1},
                       (double[]){0.05, 0.4, 0.1, 0.25, 0.15, 0.05});
    check_distribution(&(rn_sampling){.temperature = 1, .seed = 2, .top_k = 2},
                       (double[]){0, 0.4 / 0.65, 0, 0.25 / 0.65, 0, 0});
    check_distribution(&(rn_sampling){.temperature = 1, .seed = 3, .top_p = 0.7f},
                       (double[]){0, 0.5, 0, 0.3125, 0.1875, 0});
    check_distribution(&(rn_sampling){.temperature = 1, .seed = 4, .min_p = 0.3f},
                       (double[]){0, 0.5, 0, 0.3125, 0.1875, 0});
    // Half the temperature squares probabilities; top_p is of what top_k leaves.
    double squares = 0.16 + 0.0625;
    check_distribution(&(rn_sampling){.temperature = 0.5f, .seed = 5, .top_k = 2},
                       (double[]){0, 0.16 / squares, 0, 0.0625 / squares, 0, 0});
    check_distribution(&(rn_sampling){.temperature = 1, .seed = 6, .top_k = 2, .top_p = 0.6f},
                       (double[]){0, 1, 0, 0, 0, 0});
}

static void a_draw_depends_on_seed_and_position_alone(void **state) {
    (void)state;
    float logits[VOCAB];
    rn_sampling a = {.temperature = 1, .seed = 1}, b = {.temperature = 1, .seed = 2};
    rn_sampler *sampler;
    rn_sample sample;
    uint32_t seeds_differ = 0, positions_differ = 0;
    make_logits(logits, VOCAB, 3);
    assert_ok(rn_sampler_create(&a, VOCAB, &sampler));
    for (uint64_t position = 100; position-- > 0;) { // in whichever order
        assert_ok(rn_sampler_draw(sampler, logits, NULL, 0, position, &sample));
        assert_int_equal(sample.token, draw(&a, logits, VOCAB, NULL, 0, position));
        seeds_differ += sample.token != draw(&b, logits, VOCAB, NULL, 0, position);
        positions_differ += sample.token != draw(&a, logits, VOCAB, NULL, 0, position + 1);
    }
    rn_sampler_destroy(sampler);
    assert_true(seeds_differ > 50 && positions_differ > 50);
}

// ---- greedy -------------------------------------------------------------------------------------

static void of_equals_the_lowest_token_wins(void **state) {
    (void)state;
    static float logits[5000];
    rn_candidate_token best[3];
    for (uint32_t i = 0; i < 5000; i++)
        logits[i] = -(float)(i % 17);
    logits[4999] = logits[3001] = logits[2047] = 8;
    assert_int_equal(draw(&(rn_sampling){0}, logits, 5000, NULL, 0, 0), 2047);
    assert_int_equal(draw(&(rn_sampling){.temperature = 1, .top_k = 1}, logits, 5000, NULL, 0, 0),
                     2047);
    rn_logits_select(logits, 5000, 3, best);
    assert_int_equal(best[0].token, 2047);
    assert_int_equal(best[1].token, 3001);
    assert_int_equal(best[2].token, 4999);
    for (uint32_t count = 1; count < 40; count++) { // whatever the tail
        float few[40] = {0};
        few[count - 1] = 1;
        assert_int_equal(rn_logits_find_peak(few, count).token, count - 1);
    }
}

static void next_to_no_temperature_is_none(void **state) {
    (void)state;
    static float logits[VOCAB];
    make_logits(logits, VOCAB, 3);
    uint32_t best = draw(&(rn_sampling){0}, logits, VOCAB, NULL, 0, 0);
    for (float temperature = 1e-30f; temperature > 0; temperature /= 10) {
        rn_sampling few = {.temperature = temperature, .top_k = 5, .top_p = 0.9f};
        assert_int_equal(draw(&few, logits, VOCAB, NULL, 0, 1), best);
        few.top_k = 0;
        assert_int_equal(draw(&few, logits, VOCAB, NULL, 0, 1), best);
        few.top_p = 0;
        assert_int_equal(draw(&few, logits, VOCAB, NULL, 0, 1), best);
    }
}

// Flat, steep, of few values, with infinities and both zeros: as selecting all of them would.
static void a_sorted_vocabulary_is_the_selected_one(void **state) {
    (void)state;
    enum { MOST = 5000 };
    static float logits[MOST];
    static rn_candidate_token sorted[MOST], spare[MOST], selected[MOST];
    static const size_t counts[] = {1, 2, 24, 25, 300, MOST};
    for (int kind = 0; kind < 5; kind++) {
        make_logits(logits, MOST, (uint32_t)kind);
        for (size_t i = 0; i < MOST; i++) {
            if (kind == 1) logits[i] *= 1e-3f;
            if (kind == 2) logits[i] = i % 3 ? 0.0f : -0.0f;
            if (kind == 3 && i % 7 == 0) logits[i] = -INFINITY;
            if (kind == 4) logits[i] = roundf(logits[i]);
        }
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            rn_logits_sort(logits, counts[c], sorted, spare);
            rn_logits_select(logits, counts[c], counts[c], selected);
            for (size_t i = 0; i < counts[c]; i++)
                assert_int_equal(sorted[i].token, selected[i].token);
        }
    }
}

static void penalties_are_as_defined(void **state) {
    (void)state;
    float logits[] = {4, 3.5f, -1, 3};
    uint32_t history[] = {1, 0, 0};
    // 0: 4 / 2, 1: 3.5 / 2
    assert_int_equal(draw(&(rn_sampling){.repetition_penalty = 2}, logits, 4, history, 3, 0), 3);
    // Only the last token counts.
    assert_int_equal(draw(&(rn_sampling){.repetition_penalty = 2, .penalty_window = 1}, logits, 4,
                          history, 3, 0),
                     1);
    // 0: 4 - 2 * 0.4, 1: 3.5 - 0.4
    assert_int_equal(draw(&(rn_sampling){.frequency_penalty = 0.4f}, logits, 4, history, 3, 0), 0);
    assert_int_equal(draw(&(rn_sampling){.frequency_penalty = 0.49f}, logits, 4, history, 3, 0), 0);
    assert_int_equal(draw(&(rn_sampling){.frequency_penalty = 0.51f}, logits, 4, history, 3, 0), 3);
    assert_int_equal(draw(&(rn_sampling){.presence_penalty = 0.9f}, logits, 4, history, 3, 0), 0);
    assert_int_equal(draw(&(rn_sampling){.presence_penalty = 1.1f}, logits, 4, history, 3, 0), 3);
    float negative[] = {-1, -1.5f};
    assert_int_equal(
        draw(&(rn_sampling){.repetition_penalty = 2}, negative, 2, (uint32_t[]){0}, 1, 0), 1);
    rn_logit_bias bias[] = {{0, -INFINITY}, {1, -1}, {1, -1}};
    rn_sampling biased = {.bias = bias, .bias_count = 3};
    assert_int_equal(draw(&biased, logits, 4, NULL, 0, 0), 3);
}

// ---- logprobs -----------------------------------------------------------------------------------

static void logprobs_are_those_of_the_raw_logits(void **state) {
    (void)state;
    float logits[VOCAB];
    rn_logit_bias bias = {5, 50};
    rn_sampling s = {.bias = &bias, .bias_count = 1, .logprobs = 20};
    rn_sampler *sampler;
    rn_sample sample;
    double sum = 0;
    make_logits(logits, VOCAB, 12);
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    assert_ok(rn_sampler_create(&s, VOCAB, &sampler));
    assert_ok(rn_sampler_draw(sampler, logits, NULL, 0, 0, &sample));
    assert_int_equal(sample.token, 5);
    assert_true(fabs((double)sample.logprob - ((double)logits[5] - log(sum))) < 1e-5);
    assert_int_equal(sample.top_count, 20);
    assert_int_equal(sample.top[0].token, rn_logits_find_peak(logits, VOCAB).token);
    for (uint32_t i = 0; i < 20; i++) {
        double expected = (double)logits[sample.top[i].token] - log(sum);
        assert_true(fabs((double)sample.top[i].logprob - expected) < 1e-5);
        if (i) assert_true(sample.top[i - 1].logprob >= sample.top[i].logprob);
    }
    rn_sampler_destroy(sampler);
}

static void the_sum_holds_for_large_and_for_small_logits(void **state) {
    (void)state;
    float logits[] = {1e30f, 1e30f, -INFINITY, -3e38f};
    rn_sampler *sampler;
    rn_sample sample;
    assert_ok(rn_sampler_create(&(rn_sampling){.logprobs = 4}, 4, &sampler));
    assert_ok(rn_sampler_draw(sampler, logits, NULL, 0, 0, &sample));
    assert_true(fabs((double)sample.logprob + log(2)) < 1e-6);
    assert_true(sample.top[3].logprob == -INFINITY);
    rn_sampler_destroy(sampler);
}

static void the_exponential_is_as_good_as_floats_are(void **state) {
    (void)state;
    for (int i = 0; i < 20000; i++) {
        float x = -87.0f * uniform((uint64_t)i), y;
        (void)rn_logits_weigh(&x, 1, 0, 1, &y);
        assert_true(fabs((double)y / exp((double)x) - 1) < 3e-7);
    }
}

// ---- bad input ----------------------------------------------------------------------------------

static void logits_that_are_no_numbers_are_refused(void **state) {
    (void)state;
    float logits[VOCAB];
    static const float bad[] = {NAN, INFINITY, -NAN};
    rn_sampling samplings[] = {{0}, {.temperature = 1}, {.temperature = 1, .top_p = 0.5f}};
    rn_sample sample;
    for (size_t i = 0; i < 9; i++)
        for (uint32_t at = 0; at < VOCAB; at += 333) {
            rn_sampler *sampler;
            make_logits(logits, VOCAB, 1);
            logits[at] = bad[i % 3];
            assert_ok(rn_sampler_create(&samplings[i / 3], VOCAB, &sampler));
            assert_fails(RN_CORRUPT, rn_sampler_draw(sampler, logits, NULL, 0, 0, &sample));
            rn_sampler_destroy(sampler);
        }
}

static void nothing_left_to_draw_is_an_error(void **state) {
    (void)state;
    float logits[] = {1, 2};
    rn_logit_bias bias[] = {{0, -INFINITY}, {1, -INFINITY}};
    rn_sampling s = {.temperature = 1, .bias = bias, .bias_count = 2};
    rn_sampler *sampler;
    rn_sample sample;
    assert_ok(rn_sampler_create(&s, 2, &sampler));
    assert_fails(RN_INVALID, rn_sampler_draw(sampler, logits, NULL, 0, 0, &sample));
    rn_sampler_destroy(sampler);
    assert_ok(rn_sampler_create(&(rn_sampling){.presence_penalty = 1}, 2, &sampler));
    assert_fails(RN_INVALID, rn_sampler_draw(sampler, logits, (uint32_t[]){2}, 1, 0, &sample));
    rn_sampler_destroy(sampler);
}

static void each_limit_names_its_field(void **state) {
    (void)state;
    static const rn_logit_bias beyond = {VOCAB, 1}, endless = {1, INFINITY}, none = {1, NAN};
    const struct {
        rn_sampling sampling;
        const char *word;
    } cases[] = {
        {{.temperature = -1}, "temperature"},
        {{.temperature = NAN}, "temperature"},
        {{.temperature = INFINITY}, "temperature"},
        {{.top_p = 1.5f}, "top_p"},
        {{.min_p = -0.1f}, "min_p"},
        {{.repetition_penalty = -1}, "repetition_penalty"},
        {{.repetition_penalty = 1e-9f}, "repetition_penalty"},
        {{.presence_penalty = 1e9f}, "presence_penalty"},
        {{.frequency_penalty = NAN}, "frequency_penalty"},
        {{.logprobs = 21}, "logprobs"},
        {{.bias = &beyond, .bias_count = 1}, "bias"},
        {{.bias = &endless, .bias_count = 1}, "bias"},
        {{.bias = &none, .bias_count = 1}, "bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rn_sampler *sampler;
        assert_fails(RN_INVALID, rn_sampler_create(&cases[i].sampling, VOCAB, &sampler));
        assert_null(sampler);
        assert_non_null(strstr(rn_last_error()->message, cases[i].word));
    }
    assert_fails(RN_INVALID, rn_sampling_check(&(rn_sampling){0}, 0));
}

static void a_refused_allocation_leaves_nothing(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1; n <= 2; n++) {
        rn_sampler *sampler;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        assert_fails(RN_NO_MEMORY,
                     rn_sampler_create(&(rn_sampling){.temperature = 1}, VOCAB, &sampler));
        assert_true(rn_fault_fired(RN_FAULT_ALLOC));
        assert_null(sampler);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_equal_those_of_a_naive_sampler),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(a_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(of_equals_the_lowest_token_wins),
        cmocka_unit_test(next_to_no_temperature_is_none),
        cmocka_unit_test(a_sorted_vocabulary_is_the_selected_one),
        cmocka_unit_test(penalties_are_as_defined),
        cmocka_unit_test(logprobs_are_those_of_the_raw_logits),
        cmocka_unit_test(the_sum_holds_for_large_and_for_small_logits),
        cmocka_unit_test(the_exponential_is_as_good_as_floats_are),
        cmocka_unit_test(logits_that_are_no_numbers_are_refused),
        cmocka_unit_test(nothing_left_to_draw_is_an_error),
        cmocka_unit_test(each_limit_names_its_field),
        cmocka_unit_test(a_refused_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
