// A head that is larger than all other weights together passes in slices of rows: the smallest
// budget is below the head's own bytes, and the text is the same.
#include "support.h"
#include "tiny_text.h"

#include <ration/memory.h>

enum { PROMPT = 5, TOLD = 6, VOCAB = 36864 + 100, DIM = 64 };

static const rn_sampling greedy = {.logprobs = 20};

static rn_generator_options make_options(uint64_t budget) {
    return (rn_generator_options){.text = {.context = 32, .page_tokens = 16, .rows = 8},
                                  .plan = {.budget_bytes = budget},
                                  .session = {.audit = true},
                                  .speculation = RN_SPECULATE_NEVER};
}

static void tell(const tiny_text *tiny, uint64_t budget, story *out, rn_plan_summary *out_summary) {
    rn_generator_options options = make_options(budget);
    rn_generator *generator = tiny_text_generator(tiny, &options);
    const rn_plan_summary *s = rn_plan_get_summary(generator->plan);
    assert_ok(story_tell(generator, &greedy, 5, PROMPT, TOLD, out));
    rn_generator_facts facts = rn_generator_get_facts(generator);
    assert_int_equal(facts.session.live_mismatch_step, UINT64_MAX);
    assert_int_equal(facts.session.live_peak_bytes, s->live_peak_bytes);
    *out_summary = *s;
    // The budget counts what the generator itself holds.
    out_summary->smallest_bytes += generator->memory.held_bytes + sizeof *generator;
    rn_generator_destroy(generator);
}

static void check_model(rn_dtype weights_as, const char *file, uint64_t head_bytes) {
    tiny_text tiny = {.layers = 2, .dim = DIM, .vocab = VOCAB, .weights_as = weights_as};
    rn_plan_summary roomy, least, between;
    story expected, got;
    tiny_text_open(&tiny, test_path(file));
    tell(&tiny, 0, &expected, &roomy);
    assert_int_equal(roomy.streamed_bytes, 0);
    assert_true(roomy.smallest_bytes < head_bytes + (1 << 20)); // whole, staging is beside it
    tell(&tiny, roomy.smallest_bytes, &got, &least);
    story_expect(&got, &expected);
    assert_true(least.streamed_bytes >= head_bytes);
    tell(&tiny, (roomy.smallest_bytes + roomy.planned_bytes) / 2, &got, &between);
    story_expect(&got, &expected);
    tiny_text_close(&tiny);
}

// 9.0 MiB of head: two slices of 4.5, beside 4 MiB of staging and the generator's own bytes.
static void a_head_in_slices_says_the_same(void **state) {
    (void)state;
    check_model(RN_DTYPE_NONE, "wide.safetensors", (uint64_t)VOCAB * DIM * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_head_in_slices_says_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
