// train_noise_test.c — diffusion's training side: schedules as diffusers has them, targets,
// weights.
#include "support.h"

#include "base/str.h"
#include "model/text/fields.h"
#include "train/train_noise.h"

#include <math.h>

static rn_train_noise read(const char *json) {
    rn_fields fields;
    rn_schedule_config schedule;
    rn_train_noise noise;
    rn_fields_init(&fields, "scheduler_config.json");
    assert_ok(rn_fields_read_json(&fields, rn_str_from(json)));
    assert_ok(rn_schedule_config_read(&fields, &schedule));
    assert_ok(rn_train_noise_init(&schedule, &noise));
    rn_fields_free(&fields);
    return noise;
}

static const char stable_diffusion[] =
    "{\"_class_name\": \"PNDMScheduler\", \"beta_start\": 0.00085, \"beta_end\": 0.012, "
    "\"beta_schedule\": \"scaled_linear\", \"prediction_type\": \"%s\"}";

static rn_train_noise of_prediction(const char *type) {
    char json[256];
    snprintf(json, sizeof json, stable_diffusion, type);
    return read(json);
}

// diffusers' DDPMScheduler: alphas_cumprod[0], [500], [999].
static void schedules_are_those_of_diffusers(void **state) {
    (void)state;
    static const struct {
        const char *json;
        double at[3];
    } cases[] = {{"{\"beta_start\": 0.00085, \"beta_end\": 0.012, \"beta_schedule\": "
                  "\"scaled_linear\"}",
                  {0.99915, 0.2763327, 0.0046601}},
                 {"{\"beta_start\": 0.0001, \"beta_end\": 0.02, \"beta_schedule\": \"linear\"}",
                  {0.9999, 0.0777966, 0.0000404}},
                 {"{\"beta_schedule\": \"squaredcos_cap_v2\"}", {0.9999587, 0.4922852, 0.0}}};
    for (size_t i = 0; i < 3; i++) {
        rn_train_noise n = read(cases[i].json);
        for (int k = 0; k < 3; k++)
            assert_true(fabs(n.alphas[k == 2 ? 999 : 500 * k] - cases[i].at[k]) < 1e-6);
    }
}

// From what the network is told and what it should say, the picture comes back.
static void targets_give_the_picture_back(void **state) {
    (void)state;
    static const char *const types[] = {"epsilon", "v_prediction", "flow"};
    for (int p = 0; p < 3; p++) {
        rn_train_noise n = p == 2 ? read("{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\"}")
                                  : of_prediction(types[p]);
        for (uint64_t number = 0; number < 50; number++) {
            float latent[12], noisy[12], target[12];
            for (int i = 0; i < 12; i++)
                latent[i] = (float)(i - 6) * 0.3f;
            rn_noisy told = rn_train_noise_add(&n, 3, number, latent, 4, 3, noisy, target);
            assert_true(told.time >= 0 && told.time <= 1000 && told.weight == 1);
            double s = (double)told.time / 1000;
            double a = p == 2 ? 1 - s : sqrt(n.alphas[(int)told.time]);
            double b = p == 2 ? s : sqrt(1 - n.alphas[(int)told.time]);
            for (int i = 0; i < 12; i++) {
                double x = p == 0   ? (noisy[i] - b * target[i]) / a
                           : p == 1 ? a * noisy[i] - b * target[i]
                                    : noisy[i] - b * target[i];
                assert_true(fabs(x - (double)latent[i]) < 1e-4 / (p == 0 ? a : 1));
            }
        }
    }
}

static void samples_with_little_noise_count_less(void **state) {
    (void)state;
    for (int p = 0; p < 2; p++) {
        rn_train_noise n = of_prediction(p ? "v_prediction" : "epsilon");
        n.min_snr = 5;
        for (uint64_t number = 0; number < 100; number++) {
            float latent[3] = {1, 2, 3}, noisy[3], target[3], plain[3];
            rn_noisy told = rn_train_noise_add(&n, 1, number, latent, 1, 3, noisy, target);
            double alpha = n.alphas[(int)told.time], snr = alpha / (1 - alpha);
            double weight = fmin(snr, 5) / (p ? snr + 1 : snr);
            assert_true(fabs((double)told.weight - sqrt(weight)) < 1e-6);
            rn_train_noise even = of_prediction(p ? "v_prediction" : "epsilon");
            rn_train_noise_add(&even, 1, number, latent, 1, 3, noisy, plain);
            for (int i = 0; i < 3; i++)
                assert_true(fabs((double)(target[i] - told.weight * plain[i])) < 1e-5);
        }
    }
}

// Times and noise: by number, not by order; spread as they should be; an offset is a channel's.
static void noise_is_drawn_by_the_samples_number(void **state) {
    (void)state;
    rn_train_noise n = of_prediction("epsilon");
    double sum = 0, squares = 0, times = 0;
    for (uint64_t number = 0; number < 400; number++) {
        float latent[16] = {0}, noisy[16], target[16], again[16];
        rn_noisy told = rn_train_noise_add(&n, 9, number, latent, 4, 4, noisy, target);
        rn_train_noise_add(&n, 9, number, latent, 4, 4, noisy, again);
        assert_memory_equal(target, again, sizeof again);
        times += (double)told.time;
        for (int i = 0; i < 16; i++) {
            sum += (double)target[i];
            squares += (double)target[i] * (double)target[i];
        }
    }
    assert_true(fabs(sum / 6400) < 0.05 && fabs(squares / 6400 - 1) < 0.06);
    assert_true(fabs(times / 400 - 500) < 60);
    rn_train_noise shifted = n;
    shifted.offset = 0.5;
    float latent[8] = {0}, noisy[8], plain[8], moved[8];
    rn_train_noise_add(&n, 9, 7, latent, 4, 2, noisy, plain);
    rn_train_noise_add(&shifted, 9, 7, latent, 4, 2, noisy, moved);
    for (int i = 2; i < 8; i++) // the same difference at every pixel of a channel
        assert_true(fabs((double)((moved[i] - plain[i]) - (moved[i % 2] - plain[i % 2]))) < 1e-6);
    assert_true(fabs((double)(moved[0] - plain[0])) > 1e-3);
}

static void what_is_not_built_is_named(void **state) {
    (void)state;
    static const char *const wrong[] = {"{\"prediction_type\": \"sample\"}",
                                        "{\"beta_schedule\": \"sigmoid\"}",
                                        "{\"num_train_timesteps\": 100}"};
    for (int i = 0; i < 3; i++) {
        rn_fields fields;
        rn_schedule_config schedule = {0};
        rn_train_noise noise;
        rn_fields_init(&fields, "scheduler_config.json");
        assert_ok(rn_fields_read_json(&fields, rn_str_from(wrong[i])));
        rn_status s = rn_schedule_config_read(&fields, &schedule);
        assert_int_equal(s == RN_OK ? rn_train_noise_init(&schedule, &noise) : s, RN_UNSUPPORTED);
        rn_fields_free(&fields);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_are_those_of_diffusers),
        cmocka_unit_test(targets_give_the_picture_back),
        cmocka_unit_test(samples_with_little_noise_count_less),
        cmocka_unit_test(noise_is_drawn_by_the_samples_number),
        cmocka_unit_test(what_is_not_built_is_named),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
