// image_trainer_test.c — trainers of denoisers: what a budget makes of their plans, and that it
// changes no bit.
#include "support.h"

#include <ration/image.h>
#include <ration/train_images.h>

#include <string.h>
#include <sys/stat.h>

static rn_pictures *pictures;

static int make_pictures(void **state) {
    char folder[4096], path[4200];
    rn_image image;
    (void)state;
    snprintf(folder, sizeof folder, "%s", test_path("pictures"));
    if (mkdir(folder, 0777) != 0) return 1;
    for (int i = 0; i < 2; i++) {
        if (rn_image_create(32, 32, 3, &image) != RN_OK) return 1;
        for (int k = 0; k < 32 * 32 * 3; k++)
            image.pixels[k] = (uint8_t)(k * (7 + i));
        snprintf(path, sizeof path, "%s/%d.png", folder, i);
        rn_status s = rn_image_write(path, &image);
        rn_image_free(&image);
        if (s != RN_OK) return 1;
    }
    rn_picture_options options = {.width = 32, .height = 32, .buckets = 1};
    return rn_pictures_open(folder, &options, &pictures) != RN_OK;
}

static int close_pictures(void **state) {
    (void)state;
    rn_pictures_close(pictures);
    return 0;
}

static rn_image_train_options options_of(const rn_lora_options *lora, const char *cache,
                                         uint64_t budget) {
    return (rn_image_train_options){
        .trainer = {.batch = 1, .max_norm = 1, .plan = {.budget_bytes = budget, .exact = true}},
        .lora = lora,
        .cache = cache};
}

typedef struct outcome {
    float losses[3];
    rn_plan_summary step;
    uint64_t program_bytes, smallest_bytes;
} outcome;

// cache: a folder of its own, for another budget of encoders.
static void train(const char *model, const rn_lora_options *lora, const char *cache,
                  uint64_t budget, outcome *out) {
    rn_image_train_options options = options_of(lora, cache, budget);
    rn_image_trainer *trainer = NULL;
    (void)mkdir(cache, 0777);
    assert_ok(rn_image_trainer_create(model, pictures, &options, &trainer));
    for (int i = 0; i < 3; i++)
        assert_ok(rn_image_trainer_step(trainer, 1e-3, &out->losses[i]));
    rn_trainer *inner = rn_image_trainer_get(trainer);
    out->step = *rn_plan_get_summary(rn_trainer_plan(inner));
    const rn_program_summary *all = rn_program_get_summary(rn_trainer_program(inner));
    out->program_bytes = all->planned_bytes;
    out->smallest_bytes = all->smallest_budget_bytes;
    rn_image_trainer_destroy(trainer);
}

// Flux's memory moves: blocks are computed again and the frozen base is streamed where the budget
// asks for it, with the same losses.
static void a_budget_changes_the_plan_and_no_bit(void **state) {
    static const char *const models[] = {"tests/golden/image/xl", "tests/golden/image/flux"};
    rn_lora_options lora = {.rank = 2};
    (void)state;
    for (int i = 0; i < 2; i++) {
        outcome roomy = {{0}, .program_bytes = 0}, tight = roomy;
        char cache[4096];
        snprintf(cache, sizeof cache, "%s", test_path(i ? "roomy-flux" : "roomy-xl"));
        train(models[i], &lora, cache, 0, &roomy);
        assert_int_equal(roomy.step.streamed_bytes, 0);
        train(models[i], &lora, cache, roomy.smallest_bytes, &tight);
        assert_true(tight.program_bytes < roomy.program_bytes);
        assert_true(tight.step.streamed_bytes > 0 || tight.step.recomputed_blocks > 0);
        assert_memory_equal(roomy.losses, tight.losses, sizeof roomy.losses);
        assert_true(roomy.losses[0] > 0);
    }
}

// Both encoders of XL are phases of their own, and so are pictures; nothing is loaded.
static void plans_show_every_phase(void **state) {
    rn_lora_options lora = {.rank = 2};
    rn_image_train_options options = options_of(&lora, "", 0);
    rn_program *cache = NULL, *step = NULL;
    (void)state;
    assert_ok(rn_image_train_plan("tests/golden/image/xl", pictures, &options, &cache, &step));
    static const char *const names[] = {"encode 32x32", "text", "text 2"};
    assert_int_equal(rn_program_get_summary(cache)->phase_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_string_equal(rn_program_get_phase(cache, i).name, names[i]);
    assert_true(rn_program_get_summary(step)->planned_bytes > 0);
    rn_program_destroy(cache);
    rn_program_destroy(step);
}

// CLIP's encoders are in the step then, and no phases of the cache; Flux's T5 stays one.
static void text_encoders_are_part_of_the_step(void **state) {
    static const char *const models[] = {"tests/golden/image/sd", "tests/golden/image/xl",
                                         "tests/golden/image/flux"};
    static const uint32_t phases[] = {1, 1, 2};
    rn_lora_options lora = {.rank = 2};
    (void)state;
    for (int i = 0; i < 3; i++) {
        rn_image_train_options options = options_of(&lora, "", 0);
        rn_program *cache = NULL, *with = NULL, *without = NULL;
        assert_ok(rn_image_train_plan(models[i], pictures, &options, &cache, &without));
        rn_program_destroy(cache);
        options.text_encoders = true;
        assert_ok(rn_image_train_plan(models[i], pictures, &options, &cache, &with));
        assert_int_equal(rn_program_get_summary(cache)->phase_count, phases[i]);
        assert_true(rn_program_get_summary(with)->planned_bytes >
                    rn_program_get_summary(without)->planned_bytes);
        rn_program_destroy(cache);
        rn_program_destroy(with);
        rn_program_destroy(without);
        options.lora = NULL;
        assert_fails(RN_UNSUPPORTED,
                     rn_image_train_plan(models[i], pictures, &options, &cache, &with));
    }
}

// Moves that are asked for are taken by the denoiser's step, whatever the budget; the encoders,
// whose weights have other names, are planned as ever.
static void moves_are_taken_when_they_are_asked_for(void **state) {
    rn_lora_options lora = {.rank = 2};
    rn_image_train_options options = options_of(&lora, "", 0);
    rn_program *cache = NULL, *step = NULL;
    (void)state;
    options.trainer.plan.recompute = RN_MOVE_ALWAYS;
    options.trainer.plan.offload = "up_blocks.*";
    assert_ok(rn_image_train_plan("tests/golden/image/xl", pictures, &options, &cache, &step));
    const rn_plan_summary *s = rn_plan_get_summary(rn_program_plan(step, 0));
    assert_true(s->recomputed_blocks > 0 && s->streamed_bytes > 0);
    rn_program_destroy(cache);
    rn_program_destroy(step);
    options.trainer.plan.offload = "no_such_weight";
    assert_fails(RN_INVALID,
                 rn_image_train_plan("tests/golden/image/xl", pictures, &options, &cache, &step));
}

static void what_cannot_be_trained_is_named(void **state) {
    static const char *const wrong[] = {"nothing"};
    rn_lora_options lora = {.targets = wrong, .target_count = 1};
    rn_image_train_options options = options_of(&lora, "", 0);
    rn_program *cache = NULL, *step = NULL;
    (void)state;
    assert_fails(RN_INVALID,
                 rn_image_train_plan("tests/golden/image/xl", pictures, &options, &cache, &step));
    assert_fails(RN_NOT_FOUND,
                 rn_image_train_plan(test_path("nowhere"), pictures, &options, &cache, &step));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_changes_the_plan_and_no_bit),
        cmocka_unit_test(plans_show_every_phase),
        cmocka_unit_test(text_encoders_are_part_of_the_step),
        cmocka_unit_test(moves_are_taken_when_they_are_asked_for),
        cmocka_unit_test(what_cannot_be_trained_is_named),
    };
    return cmocka_run_group_tests(tests, make_pictures, close_pictures);
}
