// Experts on demand: at every budget, from all slots to none, the logits of the resident run to the
// bit, prompts and single rows alike; what was read is what the cache rule must miss, each byte
// once; and what happens when reading fails.
#include "text_run.h"

#include "base/fault.h"
#include "plan/plan.h"
#include "runtime/session.h"

#include <ration/memory.h>

#include <stdatomic.h>
#include <unistd.h>

enum { COUNT = 40, PROMPT = 24, VOCAB = 128, LAYERS = 8, BUDGETS = 5 };

#define TEXT "tests/golden/text/"

static const rn_text_options text = {.context = 64, .page_tokens = 8, .rows = 16};
static int32_t tokens[COUNT];

static int number_tokens(void **state) {
    (void)state;
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * 29 + 3) % VOCAB;
    return 0;
}

// ---- what the rule must miss --------------------------------------------------------------------

// The choices that were really made, replayed by a cache of its own.
typedef struct witness {
    const rn_plan *plan;
    rn_arena memory;
    rn_expert_cache caches[LAYERS];
    uint64_t misses, bytes;
} witness;

static void watch(void *self, uint32_t layer, int32_t *ids, uint64_t count) {
    witness *w = self;
    static rn_expert_miss misses[RN_EXPERTS_MOST];
    uint32_t missed = 0;
    assert_ok(rn_expert_cache_step(&w->caches[layer], ids, count, misses, &missed));
    w->misses += missed;
    w->bytes += missed * w->plan->expert_layers[layer].expert_bytes;
}

static void begin_watching(witness *w, const text_run *run) {
    *w = (witness){.plan = run->plan};
    rn_arena_init(&w->memory, &rn_system_allocator, 0);
    assert_true(run->plan->expert_layer_count <= LAYERS);
    for (uint32_t i = 0; i < run->plan->expert_layer_count; i++)
        assert_ok(rn_expert_cache_init(&w->memory, run->plan->expert_layers[i].experts,
                                       run->plan->expert_layers[i].slots, &w->caches[i]));
    rn_experts_listen(run->session->experts, watch, w);
}

// ---- every budget -------------------------------------------------------------------------------

static void write_logits(text_run *run, float *out) {
    text_run_logits(run, tokens, PROMPT, out);
    for (int i = PROMPT; i < COUNT; i++)
        text_run_logits(run, &tokens[i], 1, out + (size_t)i * VOCAB);
}

// Slots of all layers; *out_read: bytes of experts.
static uint64_t check_budget(const char *path, uint64_t budget, const float *expected,
                             uint64_t *out_read) {
    static float logits[COUNT * VOCAB];
    witness w;
    rn_plan_options options = {.budget_bytes = budget, .experts = RN_EXPERTS_ALWAYS};
    text_run *run =
        text_run_open_planned(path, &text, &options, &(rn_session_options){.audit = true});
    const rn_plan_summary *s = rn_plan_get_summary(run->plan);
    uint64_t slots = 0;
    assert_true(rn_plan_is_valid(run->plan));
    assert_true(s->planned_bytes <= budget);
    assert_true(s->expert_layers > 0);
    for (uint32_t i = 0; i < run->plan->expert_layer_count; i++)
        slots += run->plan->expert_layers[i].slots;
    begin_watching(&w, run);
    write_logits(run, logits);
    rn_session_facts facts = rn_session_get_facts(run->session);
    text_run_close(run);
    rn_arena_free_all(&w.memory);
    assert_memory_equal(logits, expected, sizeof logits);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    assert_true(w.misses > 0 && facts.experts_needed >= w.misses);
    assert_int_equal(facts.experts_missed, w.misses);
    assert_int_equal(facts.expert_read_bytes, w.bytes);
    assert_true(facts.read_bytes >= w.bytes);
    *out_read = facts.expert_read_bytes;
    return slots;
}

// The most that a plan with experts on demand takes, and the least.
static void find_ends(const char *path, uint64_t *out_least, uint64_t *out_most) {
    rn_plan_options options = {.experts = RN_EXPERTS_ALWAYS};
    text_run *run = text_run_open_planned(path, &text, &options, &(rn_session_options){0});
    *out_least = rn_plan_get_summary(run->plan)->smallest_bytes;
    *out_most = rn_plan_get_summary(run->plan)->planned_bytes;
    text_run_close(run);
}

static void check_model(const char *path) {
    static float expected[COUNT * VOCAB];
    rn_plan_options resident = {.experts = RN_EXPERTS_NEVER};
    text_run *run = text_run_open_planned(path, &text, &resident, &(rn_session_options){0});
    assert_int_equal(rn_plan_get_summary(run->plan)->expert_layers, 0);
    write_logits(run, expected);
    text_run_close(run);
    uint64_t least, most, before = 0, first_read = 0, last_read = 0;
    find_ends(path, &least, &most);
    assert_true(least < most);
    for (uint64_t i = 0; i < BUDGETS; i++) {
        uint64_t budget = least + (most - least) * i / (BUDGETS - 1);
        uint64_t slots = check_budget(path, budget, expected, &last_read);
        assert_true(slots >= before);
        if (i == 0) assert_int_equal(slots, 0);
        if (i == 0) first_read = last_read;
        before = slots;
    }
    assert_true(before > 0 && last_read < first_read);
}

static void stacks_of_one_tensor_an_expert(void **state) {
    (void)state;
    check_model(TEXT "mixtral");
    check_model(TEXT "olmoe");
    check_model(TEXT "glm4_moe");
}

static void stacks_in_one_tensor_gate_and_up_apart_or_not(void **state) {
    (void)state;
    check_model(TEXT "mixtral/model.gguf");
    check_model(TEXT "qwen3_moe_fused");
    check_model(TEXT "gemma4_moe/model.gguf");
    check_model(TEXT "deepseek_v3");
}

static void stacks_that_are_decoded(void **state) {
    (void)state;
    check_model(TEXT "gpt_oss");
    check_model(TEXT "gpt_oss/model.gguf");
}

// The same with what others do, which reads more or as much.
static void another_rule_gives_the_same_bits(void **state) {
    (void)state;
    static float logits[2][COUNT * VOCAB];
    uint64_t least, most;
    find_ends(TEXT "olmoe", &least, &most);
    for (int lru = 0; lru < 2; lru++) {
        rn_plan_options options = {.budget_bytes = (least + most) / 2,
                                   .experts = RN_EXPERTS_ALWAYS};
        text_run *run =
            text_run_open_planned(TEXT "olmoe", &text, &options, &(rn_session_options){0});
        if (lru) rn_experts_use_rule(run->session->experts, RN_EXPERT_RULE_LRU);
        write_logits(run, logits[lru]);
        text_run_close(run);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

static void below_the_floor_there_is_a_refusal(void **state) {
    (void)state;
    uint64_t least, most;
    rn_model *model;
    rn_recipe recipe;
    rn_plan *plan;
    rn_text_options with_logits = text;
    with_logits.logit_rows = text.rows;
    with_logits.kv_dtype = RN_DTYPE_F32;
    find_ends(TEXT "olmoe", &least, &most);
    assert_ok(rn_model_open(TEXT "olmoe", &(rn_model_options){.without_tokenizer = true}, &model));
    assert_ok(rn_model_make_recipe(model, &with_logits, &recipe));
    rn_plan_options options = {.budget_bytes = least - 1, .experts = RN_EXPERTS_ALWAYS};
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    const rn_refusal *refusal = rn_last_refusal();
    assert_int_equal(refusal->smallest_budget_bytes, least);
    bool named = false;
    for (size_t i = 0; i < refusal->holder_count; i++)
        named |= strcmp(refusal->holders[i].name, "transit of experts") == 0;
    assert_true(named);
    options.budget_bytes = least;
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_model_close(model);
}

// ---- faults -------------------------------------------------------------------------------------

// One row; the run's own checks of success are left out.
static rn_status run_row(text_run *run, uint32_t position) {
    int32_t token = tokens[position], zero = 0, at = (int32_t)position;
    rn_session *s = run->session;
    int32_t rows[16] = {0};
    RN_TRY(rn_session_set(s, "tokens", &token, sizeof token));
    RN_TRY(rn_session_set(s, "sequence", &zero, sizeof zero));
    RN_TRY(rn_session_set(s, "position", &at, sizeof at));
    RN_TRY(rn_session_set(s, "rows", rows, run->rows * sizeof *rows));
    RN_TRY(rn_session_set(s, "page_table", run->pages, run->page_count * sizeof *run->pages));
    return rn_session_run(s, 1);
}

static text_run *open_half(const char *path) {
    uint64_t least, most;
    find_ends(path, &least, &most);
    rn_plan_options options = {.budget_bytes = (least + most) / 2, .experts = RN_EXPERTS_ALWAYS};
    return text_run_open_planned(path, &text, &options, &(rn_session_options){0});
}

// Rows one by one, each tried again where it failed.
static void write_rows(text_run *run, uint32_t count, float *out) {
    for (uint32_t i = 0; i < count; i++) {
        if (run_row(run, i) != RN_OK) {
            assert_ok(rn_session_reset(run->session));
            assert_ok(run_row(run, i));
        }
        uint64_t bytes = 0;
        const float *logits = rn_session_output(run->session, "logits", &bytes);
        memcpy(out + (size_t)i * VOCAB, logits, VOCAB * sizeof *out);
    }
}

// Whichever read fails: a status, nothing of it in a slot, and the same logits when it is tried
// again.
static void a_read_that_fails_leaves_its_slot_empty(void **state) {
    (void)state;
    enum { ROWS = 6 };
    static float expected[ROWS * VOCAB], got[ROWS * VOCAB];
    text_run *run = open_half(TEXT "olmoe");
    write_rows(run, ROWS, expected);
    text_run_close(run);
    uint32_t fired = 0;
    for (uint64_t n = 1; n < 10000; n++) {
        run = open_half(TEXT "olmoe");
        rn_fault_arm(RN_FAULT_READ, n);
        write_rows(run, ROWS, got);
        bool hit = rn_fault_fired(RN_FAULT_READ);
        rn_fault_arm(RN_FAULT_READ, 0);
        text_run_close(run);
        assert_memory_equal(got, expected, sizeof got);
        fired += hit;
        if (!hit) break;
    }
    assert_true(fired > ROWS); // some of every row, at least
}

static void allocations_that_fail_leave_nothing(void **state) {
    (void)state;
    rn_model *model;
    rn_recipe recipe;
    rn_plan *plan;
    assert_ok(rn_model_open(TEXT "olmoe", &(rn_model_options){.without_tokenizer = true}, &model));
    assert_ok(rn_model_make_recipe(model, &text, &recipe));
    rn_plan_options options = {.experts = RN_EXPERTS_ALWAYS};
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    rn_weight_source weights = rn_model_weights(model);
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_session *session;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_session_create(plan, &weights, NULL, &session);
        bool hit = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (s == RN_OK) rn_session_destroy(session);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
        if (!hit) break;
        assert_int_equal(s, RN_NO_MEMORY);
    }
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_model_close(model);
}

static void copy_file(const char *from, const char *to) {
    char command[512];
    snprintf(command, sizeof command, "cp -r %s %s", from, to);
    assert_int_equal(system(command), 0);
}

// A file that is cut short while it is in use is refused, and stays refused.
static void a_file_that_is_cut_short_is_no_expert(void **state) {
    (void)state;
    char path[512], file[560];
    snprintf(path, sizeof path, "%s", test_path("cut_olmoe"));
    copy_file(TEXT "olmoe", path);
    text_run *run = open_half(path);
    assert_ok(run_row(run, 0));
    int length = snprintf(file, sizeof file, "%s/model.safetensors", path);
    assert_true(length > 0 && length < (int)sizeof file);
    assert_int_equal(truncate(file, 60000), 0);
    rn_status s = RN_OK;
    for (uint32_t i = 1; i < 12 && s == RN_OK; i++)
        s = run_row(run, i);
    assert_int_equal(s, RN_IO);
    assert_int_equal(run_row(run, 13), RN_IO); // until it is reset
    text_run_close(run);
}

static _Atomic bool cancel;
static uint32_t choices_until_cancel;

static void cancel_at(void *self, uint32_t layer, int32_t *ids, uint64_t count) {
    (void)self;
    (void)layer;
    (void)ids;
    (void)count;
    if (choices_until_cancel && --choices_until_cancel == 0) atomic_store(&cancel, true);
}

static void cancelling_ends_the_reads_and_the_next_try_is_whole(void **state) {
    (void)state;
    static float expected[VOCAB], got[VOCAB];
    uint64_t least, most;
    find_ends(TEXT "olmoe", &least, &most);
    rn_plan_options options = {.budget_bytes = least, .experts = RN_EXPERTS_ALWAYS};
    text_run *run = text_run_open_planned(TEXT "olmoe", &text, &options,
                                          &(rn_session_options){.cancel = &cancel});
    rn_experts_listen(run->session->experts, cancel_at, NULL);
    write_rows(run, 1, expected);
    for (uint32_t n = 1; n <= 2; n++) { // its layers
        choices_until_cancel = n;
        assert_int_equal(run_row(run, 0), RN_CANCELLED);
        atomic_store(&cancel, false);
        assert_ok(rn_session_reset(run->session));
        write_rows(run, 1, got);
        assert_memory_equal(got, expected, sizeof got);
    }
    text_run_close(run);
}

// ---- plans --------------------------------------------------------------------------------------

static void more_bytes_are_more_slots_and_never_slower(void **state) {
    (void)state;
    rn_model *model;
    rn_recipe recipe;
    double before = 1e9;
    uint32_t slots = 0;
    assert_ok(rn_model_open(TEXT "olmoe", &(rn_model_options){.without_tokenizer = true}, &model));
    assert_ok(rn_model_make_recipe(model, &text, &recipe));
    rn_plan_options options = {.experts = RN_EXPERTS_ALWAYS};
    rn_sweep_row rows[9];
    assert_ok(rn_plan_sweep(&recipe, rn_cpu_caps(), &options, rows, 9));
    for (int i = 0; i < 9; i++) {
        const rn_plan_summary *s = &rows[i].summary;
        assert_true(s->seconds <= before);
        assert_true(s->expert_slots >= slots);
        assert_true(s->expert_read_least_bytes <= s->expert_read_bytes &&
                    s->expert_read_bytes <= s->expert_read_most_bytes &&
                    s->expert_read_most_bytes <= s->expert_token_bytes);
        assert_true(s->decode_least_seconds <= s->decode_most_seconds);
        before = s->seconds;
        slots = s->expert_slots;
    }
    assert_int_equal(rows[0].summary.expert_slots, 0);
    assert_int_equal(slots, rows[8].summary.experts);
    rn_recipe_destroy(&recipe);
    rn_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_of_one_tensor_an_expert),
        cmocka_unit_test(stacks_in_one_tensor_gate_and_up_apart_or_not),
        cmocka_unit_test(stacks_that_are_decoded),
        cmocka_unit_test(another_rule_gives_the_same_bits),
        cmocka_unit_test(below_the_floor_there_is_a_refusal),
        cmocka_unit_test(a_read_that_fails_leaves_its_slot_empty),
        cmocka_unit_test(allocations_that_fail_leave_nothing),
        cmocka_unit_test(a_file_that_is_cut_short_is_no_expert),
        cmocka_unit_test(cancelling_ends_the_reads_and_the_next_try_is_whole),
        cmocka_unit_test(more_bytes_are_more_slots_and_never_slower),
    };
    return cmocka_run_group_tests(tests, number_tokens, NULL);
}
