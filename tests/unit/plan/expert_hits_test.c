// Hit rates from a routing trace: what a plan is told of a text.
#include "support.h"

#include <ration/plan.h>

enum { TOKENS = 120, EXPERTS = 16, K = 2 };

// The same pair of experts in each half; or a new one for each token.
static void write_trace(const char *path, bool changes) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int t = 0; t < TOKENS; t++) {
        int first = changes ? t * K % EXPERTS : EXPERTS - K;
        fprintf(file, "{\"tok\": %d, \"layers\": [[%d, %d], [%d, %d]]}\n", t, first, first + 1,
                first, first + 1);
    }
    fclose(file);
}

static void rates_rise_with_slots_and_lie_between_their_ends(void **state) {
    (void)state;
    for (int changes = 0; changes < 2; changes++) {
        rn_expert_hits hits;
        write_trace(test_path("hits.jsonl"), changes);
        assert_ok(rn_expert_hits_read(test_path("hits.jsonl"), &hits));
        for (int i = 0; i < RN_EXPERT_POINTS; i++) {
            assert_true(hits.low[i] >= 0 && hits.low[i] <= hits.expected[i]);
            assert_true(hits.expected[i] <= hits.high[i] && hits.high[i] <= 1);
            if (i) assert_true(hits.expected[i] >= hits.expected[i - 1]);
        }
        assert_true(hits.expected[0] == 0); // no slots, no hits
        assert_true(hits.expected[RN_EXPERT_POINTS - 1] == 1);
    }
}

static void a_text_that_stays_with_its_experts_needs_few_slots(void **state) {
    (void)state;
    rn_expert_hits same, other;
    write_trace(test_path("same.jsonl"), false);
    write_trace(test_path("other.jsonl"), true);
    assert_ok(rn_expert_hits_read(test_path("same.jsonl"), &same));
    assert_ok(rn_expert_hits_read(test_path("other.jsonl"), &other));
    int few = (RN_EXPERT_POINTS - 1) / 4; // a quarter of the experts have slots
    assert_true(same.expected[few] == 1);
    assert_true(other.expected[few] < same.expected[few]);
}

static void what_is_no_trace_is_refused(void **state) {
    (void)state;
    rn_expert_hits hits;
    assert_fails(RN_NOT_FOUND, rn_expert_hits_read(test_path("none.jsonl"), &hits));
    FILE *file = fopen(test_path("bad.jsonl"), "w");
    assert_non_null(file);
    fputs("{\"tok\": 0, \"layers\": [[1, 2]]}\n{\"tok\": 1, \"layers\": [[\n", file);
    fclose(file);
    assert_fails(RN_CORRUPT, rn_expert_hits_read(test_path("bad.jsonl"), &hits));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_rise_with_slots_and_lie_between_their_ends),
        cmocka_unit_test(a_text_that_stays_with_its_experts_needs_few_slots),
        cmocka_unit_test(what_is_no_trace_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
