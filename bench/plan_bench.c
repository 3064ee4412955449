// plan_bench.c — how long planning takes: graph, candidates, placement, for models from toy to 32
// layers of 4096; roomy, tight, and refused. Best of several.
#include <ration/ration.h>

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 7 };

static void check(rn_status s) {
    if (s == RN_OK) return;
    fprintf(stderr, "plan_bench: %s\n", rn_last_error()->message);
    exit(1);
}

// Milliseconds of one plan; *out_summary where there is one.
static double plan_once(const rn_recipe *recipe, uint64_t budget, rn_plan_summary *out_summary) {
    rn_plan *plan = NULL;
    rn_plan_options options = {.budget_bytes = budget};
    uint64_t start = rn_clock_ns();
    rn_status s = rn_plan_make(recipe, rn_cpu_caps(), &options, &plan);
    double milliseconds = (double)(rn_clock_ns() - start) / 1e6;
    if (s != RN_OVER_BUDGET) check(s);
    if (plan) *out_summary = *rn_plan_get_summary(plan);
    rn_plan_destroy(plan);
    return milliseconds;
}

static double plan_best(const rn_recipe *recipe, uint64_t budget, rn_plan_summary *out_summary) {
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double t = plan_once(recipe, budget, out_summary);
        if (t < best) best = t;
    }
    return best;
}

static void plan_model(const char *name) {
    rn_recipe recipe;
    rn_plan_summary roomy = {0}, tight = {0};
    check(rn_builtin_recipe(name, &recipe));
    double free_ms = plan_best(&recipe, 0, &roomy);
    uint64_t middle = roomy.smallest_bytes + (roomy.planned_bytes - roomy.smallest_bytes) / 3;
    double tight_ms = plan_best(&recipe, middle, &tight);
    double refused_ms = plan_best(&recipe, roomy.smallest_bytes - 1, &tight);
    printf("  %-22s %6u steps %9.1f %9.1f %9.1f\n", name, roomy.step_count, free_ms, tight_ms,
           refused_ms);
    rn_recipe_destroy(&recipe);
}

int main(void) {
    static const char *const models[] = {"mlp",
                                         "resnet18",
                                         "resnet18:train",
                                         "llama:2x256",
                                         "llama:2x256:train",
                                         "llama:32x4096",
                                         "llama:32x4096:q4_0",
                                         "llama:32x4096:train"};
    printf("planning, ms               (target: llama:32x4096 below 50)\n");
    printf("  %-22s %12s %9s %9s %9s\n", "", "", "no limit", "a third", "refused");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        plan_model(models[i]);
    return 0;
}
