// pipelines_test.c — schedulers and whole drawings against diffusers:
// scripts/reference/image_pipelines.py.
#include "support.h"

#include "diffuse/noise.h"
#include "diffuse/schedule.h"

#include <ration/device.h>
#include <ration/diffuse.h>

#include <math.h>

enum { SEED = 7, STEPS = 4 };
#define PROMPT   "a red circle, left of 2 blue squares"
#define NEGATIVE "noise"

static rn_checkpoint *open_truth(void) {
    rn_checkpoint *file = NULL;
    assert_ok(rn_checkpoint_open("tests/golden/image/pipelines_golden.safetensors", &file));
    return file;
}

static float *load_output(const rn_checkpoint *file, const char *name, uint64_t *out_count) {
    char key[96];
    snprintf(key, sizeof key, "output/%s", name);
    const rn_tensor_info *t = rn_checkpoint_find(file, key);
    if (!t) fail_msg("there is no %s", key);
    float *data = malloc(t->elements * sizeof *data);
    assert_ok(rn_checkpoint_load(file, t, RN_DTYPE_F32, data, t->elements * sizeof *data));
    *out_count = t->elements;
    return data;
}

// By norm, as the golden files of networks are compared.
static void hold_against(const char *name, const float *mine, const float *theirs, uint64_t n,
                         double tolerance) {
    double away = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        away += ((double)mine[i] - (double)theirs[i]) * ((double)mine[i] - (double)theirs[i]);
        size += (double)theirs[i] * (double)theirs[i];
    }
    if (!(sqrt(away) <= tolerance * sqrt(size)))
        fail_msg("%s is off by %.3g of its norm %.3g", name, sqrt(away / size), sqrt(size));
}

// ---- schedulers ---------------------------------------------------------------------------------

typedef struct schedule_case {
    const char *name;
    rn_scheduler kind;
    rn_prediction prediction;
    rn_spacing spacing;
    double shift;
    bool dynamic;
} schedule_case;

static void check_schedule(const rn_checkpoint *file, const schedule_case *c) {
    enum { N = 84, MOST = 7 };
    char key[64];
    uint64_t count, times;
    float x[N], input[N], answer[N], noise[N], last[N];
    bool flow = c->kind == RN_SCHEDULER_FLOW;
    rn_schedule_config config = {.scheduler = flow ? RN_SCHEDULER_FLOW : RN_SCHEDULER_EULER,
                                 .spacing = c->spacing,
                                 .offset = c->spacing == RN_SPACING_LEADING,
                                 .prediction = c->prediction,
                                 .shift = c->shift,
                                 .dynamic_shifting = c->dynamic,
                                 .base_shift = 0.5,
                                 .max_shift = 1.15,
                                 .base_tokens = 256,
                                 .max_tokens = 4096};
    static rn_schedule s;
    rn_torch_generator generator;
    assert_ok(rn_schedule_make(&config, c->kind, MOST, 1, 600, &s));
    s.last = last;
    snprintf(key, sizeof key, "%s.times", c->name);
    float *their_times = load_output(file, key, &times);
    snprintf(key, sizeof key, "%s.samples", c->name);
    float *samples = load_output(file, key, &count);
    assert_int_equal(times, MOST);
    assert_int_equal(count, (MOST + 1) * N);
    rn_torch_generator_seed(&generator, SEED);
    rn_torch_randn(&generator, x, N);
    for (int i = 0; i < N; i++)
        x[i] *= s.initial;
    hold_against(key, x, samples, N, 1e-6);
    for (uint32_t step = 0; step < MOST; step++) {
        if (fabs(s.times[step] - (double)their_times[step]) > 1e-3)
            fail_msg("%s: step %u is at %g, not %g", c->name, step, s.times[step],
                     (double)their_times[step]);
        rn_schedule_input(&s, step, x, input, N);
        for (int i = 0; i < N; i++)
            answer[i] = 0.5f * tanhf(input[i]) + 0.01f * ((float)s.times[step] / 1000);
        // Diffusers draws no noise that it does not use.
        if (s.needs_noise && !(c->kind == RN_SCHEDULER_LCM && step + 1 == MOST))
            rn_torch_randn(&generator, noise, N);
        rn_schedule_step(&s, step, answer, noise, x, N);
        hold_against(key, x, samples + (step + 1) * N, N, 1e-5);
    }
    free(their_times);
    free(samples);
}

static void schedulers_give_the_samples_of_diffusers(void **state) {
    (void)state;
    static const schedule_case cases[] = {
        {.name = "euler", .kind = RN_SCHEDULER_EULER},
        {.name = "euler.v", .kind = RN_SCHEDULER_EULER, .prediction = RN_PREDICTS_V},
        {.name = "euler.linspace", .kind = RN_SCHEDULER_EULER, .spacing = RN_SPACING_LINSPACE},
        {.name = "euler.trailing", .kind = RN_SCHEDULER_EULER, .spacing = RN_SPACING_TRAILING},
        {.name = "euler_a", .kind = RN_SCHEDULER_EULER_A},
        {.name = "ddim", .kind = RN_SCHEDULER_DDIM},
        {.name = "ddim.v", .kind = RN_SCHEDULER_DDIM, .prediction = RN_PREDICTS_V},
        {.name = "dpmpp_2m", .kind = RN_SCHEDULER_DPMPP_2M},
        {.name = "dpmpp_2m.v", .kind = RN_SCHEDULER_DPMPP_2M, .prediction = RN_PREDICTS_V},
        {.name = "dpmpp_2m_karras", .kind = RN_SCHEDULER_DPMPP_2M_KARRAS},
        {.name = "lcm", .kind = RN_SCHEDULER_LCM},
        {.name = "flow", .kind = RN_SCHEDULER_FLOW, .shift = 3},
        {.name = "flow.dynamic", .kind = RN_SCHEDULER_FLOW, .shift = 3, .dynamic = true}};
    rn_checkpoint *file = open_truth();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_schedule(file, &cases[i]);
    rn_checkpoint_close(file);
}

// ---- drawings -----------------------------------------------------------------------------------

// A training whose last step is nothing but noise (rescale_betas_zero_snr): diffusers 0.42's sigmas
// and cumulative alphas of five trailing steps.
static void noise_alone_comes_last_where_it_was_trained_so(void **state) {
    static const double times[] = {999, 799, 599, 399, 199};
    static const double sigmas[] = {4096.0,           7.410707473754883, 2.604856252670288,
                                    1.24137544631958, 0.59475177526474,  0};
    static const double alphas[] = {0, 0.017883142456412315, 0.12844759225845337,
                                    0.3935438394546509, 0.7386999130249023};
    static rn_schedule s;
    rn_schedule_config config = {.scheduler = RN_SCHEDULER_EULER,
                                 .spacing = RN_SPACING_TRAILING,
                                 .prediction = RN_PREDICTS_V,
                                 .zero_snr = true};
    (void)state;
    for (int k = 0; k < 2; k++) {
        rn_scheduler kind = k ? RN_SCHEDULER_DDIM : RN_SCHEDULER_EULER;
        assert_ok(rn_schedule_make(&config, kind, 5, 1, 0, &s));
        for (int i = 0; i < 5; i++) {
            double got = k ? s.alphas[i] : s.sigmas[i], want = k ? alphas[i] : sigmas[i];
            assert_true(s.times[i] == times[i]);
            if (fabs(got - want) > 1e-5 * want + 1e-9)
                fail_msg("step %d: %.9g instead of %.9g", i, got, want);
        }
    }
    config.prediction = RN_PREDICTS_NOISE; // which is divided by alpha
    assert_ok(rn_schedule_make(&config, RN_SCHEDULER_DDIM, 5, 1, 0, &s));
    assert_true(s.alphas[0] > 0);
}

static void draw(const rn_diffusion *model, const rn_drawing *drawing, uint64_t budget,
                 rn_painter **out, rn_image *images) {
    rn_painter_options options = {.plan.budget_bytes = budget, .session.audit = true};
    assert_ok(rn_painter_create(model, drawing, &options, out));
    assert_ok(rn_painter_draw(*out, images));
}

static void check_drawing_with(const char *model_name, const rn_diffusion_options *options,
                               const rn_drawing *drawing, const char *truth, double tolerance) {
    char path[96];
    uint64_t count;
    rn_diffusion *model;
    rn_painter *painter;
    rn_image images[2] = {0};
    rn_shape shape;
    rn_checkpoint *file = open_truth();
    float *theirs = load_output(file, truth, &count);
    snprintf(path, sizeof path, "tests/golden/image/%s", model_name);
    assert_ok(rn_diffusion_open(path, options, &model));
    draw(model, drawing, 0, &painter, images);
    const float *mine = rn_painter_latents(painter, &shape);
    assert_int_equal(rn_shape_elements(shape, 1), count);
    hold_against(truth, mine, theirs, count, tolerance);
    assert_true(rn_painter_get_facts(painter).as_planned);
    for (int i = 0; i < 2; i++)
        rn_image_free(&images[i]);
    rn_painter_destroy(painter);
    rn_diffusion_close(model);
    rn_checkpoint_close(file);
    free(theirs);
}

static void check_drawing(const char *model_name, const rn_drawing *drawing, const char *truth,
                          double tolerance) {
    check_drawing_with(model_name, NULL, drawing, truth, tolerance);
}

static const rn_drawing common = {.prompt = PROMPT,
                                  .negative = NEGATIVE,
                                  .width = 48,
                                  .height = 32,
                                  .steps = STEPS,
                                  .guidance = 5,
                                  .seed = SEED,
                                  .torch_noise = true};

static void stable_diffusion_draws_as_diffusers_does(void **state) {
    (void)state;
    static const struct {
        const char *truth;
        rn_scheduler scheduler;
    } cases[] = {{"sd.euler", RN_SCHEDULER_EULER},
                 {"sd.euler_a", RN_SCHEDULER_EULER_A},
                 {"sd.ddim", RN_SCHEDULER_DDIM},
                 {"sd.dpmpp_2m", RN_SCHEDULER_DPMPP_2M},
                 {"sd.lcm", RN_SCHEDULER_LCM}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_drawing drawing = common;
        drawing.batch = 2;
        drawing.scheduler = cases[i].scheduler;
        check_drawing("sd", &drawing, cases[i].truth, 1e-4);
    }
}

static void stable_diffusion_xl_draws_as_diffusers_does(void **state) {
    (void)state;
    rn_drawing drawing = common;
    check_drawing("xl", &drawing, "xl", 1e-4);
    drawing.negative = NULL;
    check_drawing("xl", &drawing, "xl.zeros", 1e-4);
}

static void flux_draws_as_diffusers_does(void **state) {
    (void)state;
    rn_drawing drawing = common;
    drawing.guidance = 3.5;
    check_drawing("flux", &drawing, "flux", 1e-4);
}

static void pictures_begin_with_others(void **state) {
    (void)state;
    uint64_t count;
    rn_image image;
    rn_checkpoint *file = open_truth();
    float *pixels = load_output(file, "init", &count);
    assert_ok(rn_image_create(48, 32, 3, &image));
    for (uint64_t i = 0; i < count; i++)
        image.pixels[i] = (uint8_t)lroundf(pixels[i] * 255);
    rn_drawing drawing = common;
    drawing.init = &image;
    drawing.strength = 0.6;
    drawing.steps = 5;
    drawing.guidance = 1;
    check_drawing("sd", &drawing, "sd.init", 1e-4);
    rn_image_free(&image);
    free(pixels);
    rn_checkpoint_close(file);
}

static void adapters_of_every_naming_draw_the_same(void **state) {
    (void)state;
    static const char *const names[] = {"peft", "kohya", "sgm"};
    rn_diffusion_adapter adapter = {.weight = 0.7f};
    rn_diffusion_options options = {.adapters = &adapter, .adapter_count = 1};
    char path[96];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "tests/golden/image/lora/%s.safetensors", names[i]);
        adapter.path = path;
        check_drawing_with("sd", &options, &common, "sd.lora", 1e-4);
    }
    rn_drawing drawing = common;
    drawing.guidance = 3.5;
    adapter = (rn_diffusion_adapter){"tests/golden/image/lora/bfl.safetensors", 1};
    check_drawing_with("flux", &options, &drawing, "flux.lora", 1e-4);
    // Two of half the weight are one.
    rn_diffusion_adapter two[] = {{"tests/golden/image/lora/peft.safetensors", 0.35f},
                                  {"tests/golden/image/lora/kohya.safetensors", 0.35f}};
    options = (rn_diffusion_options){.adapters = two, .adapter_count = 2};
    check_drawing_with("sd", &options, &common, "sd.lora", 1e-4);
}

static void a_budget_changes_no_pixel(void **state) {
    (void)state;
    static const char *const models[] = {"sd", "xl", "flux"};
    for (int m = 0; m < 3; m++) {
        char path[96];
        rn_diffusion *model;
        rn_painter *painter;
        rn_image roomy = {0}, tight = {0};
        rn_drawing drawing = common;
        drawing.torch_noise = false;
        snprintf(path, sizeof path, "tests/golden/image/%s", models[m]);
        assert_ok(rn_diffusion_open(path, NULL, &model));
        draw(model, &drawing, 0, &painter, &roomy);
        uint64_t most = rn_program_get_summary(rn_painter_program(painter))->planned_bytes;
        rn_painter_destroy(painter);
        // From the smallest budget that works to all that it can use.
        rn_painter_options options = {.plan.budget_bytes = 1};
        assert_int_equal(rn_painter_create(model, &drawing, &options, &painter), RN_OVER_BUDGET);
        uint64_t least = rn_last_refusal()->smallest_budget_bytes;
        for (uint64_t i = 0; i < 6; i++) {
            uint64_t budget = least + most * i / 5;
            draw(model, &drawing, budget, &painter, &tight);
            const rn_program_summary *s = rn_program_get_summary(rn_painter_program(painter));
            assert_true(s->planned_bytes <= budget);
            assert_true(i > 0 || s->planned_bytes < most);
            assert_memory_equal(roomy.pixels, tight.pixels, 48 * 32 * 3);
            assert_true(rn_painter_get_facts(painter).as_planned);
            rn_painter_destroy(painter);
            rn_image_free(&tight);
        }
        options.plan.budget_bytes = least - 1;
        assert_int_equal(rn_painter_create(model, &drawing, &options, &painter), RN_OVER_BUDGET);
        rn_image_free(&roomy);
        rn_diffusion_close(model);
    }
}

// SDXLMemoryConfig's fields as options of the plan: fewer weights stay, by number and by name (of
// one phase's network), attention in slices; the same pixels.
static void options_of_memory_change_no_pixel(void **state) {
    static const rn_plan_options options[] = {{.resident_blocks = RN_NO_BLOCKS},
                                              {.resident_blocks = 2},
                                              {.offload = "up_blocks.*", .keep = "conv_in.*"},
                                              {.slice_rows = 8},
                                              {.slice_rows = 1}};
    rn_diffusion *model;
    rn_painter *painter;
    rn_image all = {0}, some = {0};
    rn_drawing drawing = common;
    (void)state;
    drawing.torch_noise = false;
    assert_ok(rn_diffusion_open("tests/golden/image/xl", NULL, &model));
    draw(model, &drawing, 0, &painter, &all);
    uint64_t roomy = rn_program_get_summary(rn_painter_program(painter))->planned_bytes;
    rn_painter_destroy(painter);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        rn_painter_options with = {.plan = options[i]};
        assert_ok(rn_painter_create(model, &drawing, &with, &painter));
        uint64_t planned = rn_program_get_summary(rn_painter_program(painter))->planned_bytes;
        assert_true(i < 3 ? planned < roomy : planned <= roomy);
        assert_ok(rn_painter_draw(painter, &some));
        assert_memory_equal(all.pixels, some.pixels, 48 * 32 * 3);
        rn_image_free(&some);
        rn_painter_destroy(painter);
    }
    rn_painter_options wrong = {.plan = {.offload = "no_such_weight.*"}};
    assert_fails(RN_INVALID, rn_painter_create(model, &drawing, &wrong, &painter));
    rn_image_free(&all);
    rn_diffusion_close(model);
}

// A picture of several bands: whole, in bands where that needs less, and streamed.
static void large_pictures_are_the_same_in_bands(void **state) {
    (void)state;
    rn_diffusion *model;
    rn_painter *painter;
    rn_image roomy = {0}, tight = {0};
    rn_drawing drawing = common;
    drawing.width = 64;
    drawing.height = 256;
    drawing.steps = 1;
    assert_ok(rn_diffusion_open("tests/golden/image/sd", NULL, &model));
    draw(model, &drawing, 0, &painter, &roomy);
    uint64_t most = rn_program_get_summary(rn_painter_program(painter))->planned_bytes;
    rn_painter_destroy(painter);
    rn_painter_options options = {.plan.budget_bytes = 1};
    assert_int_equal(rn_painter_create(model, &drawing, &options, &painter), RN_OVER_BUDGET);
    uint64_t least = rn_last_refusal()->smallest_budget_bytes;
    draw(model, &drawing, least, &painter, &tight);
    assert_true(rn_program_get_summary(rn_painter_program(painter))->planned_bytes < most);
    assert_memory_equal(roomy.pixels, tight.pixels, 64 * 256 * 3);
    rn_painter_destroy(painter);
    rn_image_free(&roomy);
    rn_image_free(&tight);
    rn_diffusion_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedulers_give_the_samples_of_diffusers),
        cmocka_unit_test(noise_alone_comes_last_where_it_was_trained_so),
        cmocka_unit_test(stable_diffusion_draws_as_diffusers_does),
        cmocka_unit_test(stable_diffusion_xl_draws_as_diffusers_does),
        cmocka_unit_test(flux_draws_as_diffusers_does),
        cmocka_unit_test(pictures_begin_with_others),
        cmocka_unit_test(adapters_of_every_naming_draw_the_same),
        cmocka_unit_test(a_budget_changes_no_pixel),
        cmocka_unit_test(options_of_memory_change_no_pixel),
        cmocka_unit_test(large_pictures_are_the_same_in_bands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
