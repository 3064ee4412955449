// image_real_test.c — trained networks of images: TAESD's autoencoders and a noise predictor of
// digits, against results that were computed with numpy.
#include "support.h"

#include "diffuse/noise.h"
#include "model/image/image_component.h"

#include <ration/device.h>

#include <math.h>

enum { HIGH = 64, WIDE = 96 };

static float *load_tensor(const rn_checkpoint *file, const char *name, uint64_t elements) {
    const rn_tensor_info *t = rn_checkpoint_find(file, name);
    assert_non_null(t);
    assert_int_equal(t->elements, elements);
    float *data = malloc(elements * sizeof *data);
    assert_ok(rn_checkpoint_load(file, t, RN_DTYPE_F32, data, elements * sizeof *data));
    return data;
}

// (C, H, W) -> (H, W, C).
static float *turn(const float *x, uint64_t channels, uint64_t pixels) {
    float *y = malloc(channels * pixels * sizeof *y);
    for (uint64_t c = 0; c < channels; c++)
        for (uint64_t p = 0; p < pixels; p++)
            y[p * channels + c] = x[c * pixels + p];
    return y;
}

static void run(const rn_image_component *c, rn_image_part part, const char *const *names,
                const float *const *inputs, const uint64_t *bytes, const char *output, float *out,
                uint64_t out_bytes) {
    rn_recipe recipe;
    rn_plan *plan;
    rn_session *session;
    rn_weight_source weights = rn_image_component_weights(c);
    assert_ok(rn_image_component_recipe(c, part, &recipe));
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, &plan));
    assert_ok(rn_session_create(plan, &weights, NULL, &session));
    for (; *names; names++, inputs++, bytes++)
        assert_ok(rn_session_set(session, *names, *inputs, *bytes));
    assert_ok(rn_session_run(session, 1));
    assert_ok(rn_session_get(session, output, out, out_bytes));
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
}

static double largest_difference(const float *a, const float *b, uint64_t n) {
    double most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void check_taesd(const char *family, uint32_t channels) {
    char path[512];
    rn_checkpoint *truth, *weights[2];
    uint64_t latents = HIGH / 8 * WIDE / 8 * channels, pixels = 3 * HIGH * WIDE;
    snprintf(path, sizeof path, "vae/golden/%s_96x64.safetensors", family);
    assert_ok(rn_checkpoint_open(test_data_or_skip(path), &truth));
    float *image = load_tensor(truth, "image", pixels),
          *latent = load_tensor(truth, "latent", latents);
    float *decoded = load_tensor(truth, "decoded", pixels);
    float *x = turn(image, 3, HIGH * WIDE), *z = turn(latent, channels, HIGH * WIDE / 64);
    float *y = turn(decoded, 3, HIGH * WIDE);
    float *made = malloc(pixels * sizeof *made);
    for (int i = 0; i < 2; i++) {
        rn_image_component c = {
            .config.taesd = {.latent_channels = channels, .height = HIGH / 8, .width = WIDE / 8}};
        snprintf(path, sizeof path, "vae/%s_%s.safetensors", family, i ? "encoder" : "decoder");
        assert_ok(rn_checkpoint_open(test_data_or_skip(path), &weights[i]));
        assert_ok(rn_image_component_open(&c, "vae", RN_IMAGE_TINY_VAE, weights[i], "", NULL));
        assert_int_equal(c.names.naming, RN_IMAGE_TAESD);
        const float *in[] = {i ? x : z};
        const uint64_t bytes[] = {(i ? pixels : latents) * sizeof(float)};
        const char *const names[] = {i ? "image" : "latent", NULL};
        uint64_t count = i ? latents : pixels;
        run(&c, i ? RN_IMAGE_ENCODER : RN_IMAGE_FORWARD, names, in, bytes, i ? "latent" : "image",
            made, count * sizeof(float));
        double away = largest_difference(made, i ? z : y, count);
        if (away > 1e-3) fail_msg("%s is off by %g", path, away);
    }
    for (int i = 0; i < 2; i++)
        rn_checkpoint_close(weights[i]);
    rn_checkpoint_close(truth);
    float *all[] = {image, latent, decoded, x, z, y, made};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void taesd_decodes_and_encodes_a_photograph(void **state) {
    (void)state;
    check_taesd("taesd", 4);
    check_taesd("taesd3", 16);
}

enum { PIXELS = 28 * 28, FREQUENCIES = 16 };

static rn_checkpoint *open_digits(rn_image_component *out) {
    rn_checkpoint *weights;
    assert_ok(rn_checkpoint_open(
        test_data_or_skip("diffusion/ddpm_mnist_cnn/ddpm_mnist.safetensors"), &weights));
    *out = (rn_image_component){.config.pixel = {.size = 28,
                                                 .channels = 1,
                                                 .hidden = {16, 32, 32, 16},
                                                 .hidden_count = 4,
                                                 .frequencies = FREQUENCIES,
                                                 .time_hidden = 128}};
    assert_ok(rn_image_component_open(out, "unet", RN_IMAGE_PIXEL_DDPM, weights, "", NULL));
    return weights;
}

static void embed_time(float t, const float *frequencies, float *out) {
    for (int f = 0; f < FREQUENCIES; f++) {
        out[f] = sinf(t * frequencies[f]);
        out[FREQUENCIES + f] = cosf(t * frequencies[f]) - 1;
    }
}

// As scripts/reference/mnist_sampling.py, with the same noise: x after every hundredth of 1000
// steps.
static void a_digit_is_drawn_in_a_thousand_steps(void **state) {
    enum { STEPS = 1000, EACH = 100 };
    (void)state;
    rn_image_component c;
    rn_checkpoint *truth, *weights = open_digits(&c);
    assert_ok(rn_checkpoint_open("tests/golden/image/mnist_sampling.safetensors", &truth));
    float *seen = load_tensor(truth, "x", (STEPS / EACH + 1) * PIXELS);
    float *alpha = load_tensor(weights, "alpha_t", STEPS + 1);
    float *beta = load_tensor(weights, "beta_t", STEPS + 1);
    float *frequencies = load_tensor(weights, "gt.frequencies", FREQUENCIES);
    float x[PIXELS], noise[PIXELS], time[2 * FREQUENCIES];
    rn_torch_generator generator;
    rn_recipe recipe;
    rn_plan *plan;
    rn_session *session;
    rn_weight_source source = rn_image_component_weights(&c);
    assert_ok(rn_image_component_recipe(&c, RN_IMAGE_FORWARD, &recipe));
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), NULL, &plan));
    assert_ok(rn_session_create(plan, &source, NULL, &session));
    rn_torch_generator_seed(&generator, 7);
    rn_torch_randn(&generator, x, PIXELS);
    for (int t = STEPS; t >= 0; t--) {
        if (t % EACH == 0) {
            double away = largest_difference(x, seen + (size_t)(STEPS - t) / EACH * PIXELS, PIXELS);
            if (away > 1e-3) fail_msg("after %d steps the digit is off by %g", STEPS - t, away);
        }
        if (t == 0) break;
        embed_time((float)((double)t / STEPS), frequencies, time);
        assert_ok(rn_session_set(session, "sample", x, sizeof x));
        assert_ok(rn_session_set(session, "time", time, sizeof time));
        assert_ok(rn_session_run(session, 1));
        assert_ok(rn_session_get(session, "noise", noise, sizeof noise));
        for (int i = 0; i < PIXELS; i++) {
            x[i] -= beta[t] / sqrtf(1 - alpha[t]) * noise[i];
            x[i] /= sqrtf(1 - beta[t]);
        }
        if (t == 1) continue;
        rn_torch_randn(&generator, noise, PIXELS);
        for (int i = 0; i < PIXELS; i++)
            x[i] += sqrtf(beta[t]) * noise[i];
    }
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_checkpoint_close(truth);
    rn_checkpoint_close(weights);
    free(seen), free(alpha), free(beta), free(frequencies);
}

static void noise_in_digits_is_found(void **state) {
    (void)state;
    rn_image_component c;
    rn_checkpoint *truth, *weights = open_digits(&c);
    assert_ok(rn_checkpoint_open(
        test_data_or_skip("diffusion/ddpm_mnist_cnn/golden_eps.safetensors"), &truth));
    float *x = load_tensor(truth, "x", PIXELS), *t = load_tensor(truth, "t", 3);
    float *eps = load_tensor(truth, "eps", 3 * PIXELS);
    float *frequencies = load_tensor(weights, "gt.frequencies", FREQUENCIES);
    for (int i = 0; i < 3; i++) {
        float time[2 * FREQUENCIES], made[PIXELS];
        embed_time(t[i], frequencies, time);
        const float *in[] = {x, time};
        const uint64_t bytes[] = {sizeof made, sizeof time};
        const char *const names[] = {"sample", "time", NULL};
        run(&c, RN_IMAGE_FORWARD, names, in, bytes, "noise", made, sizeof made);
        double away = largest_difference(made, eps + i * PIXELS, PIXELS);
        if (away > 1e-3) fail_msg("the noise at %g is off by %g", (double)t[i], away);
    }
    rn_checkpoint_close(truth);
    rn_checkpoint_close(weights);
    free(x), free(t), free(eps), free(frequencies);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taesd_decodes_and_encodes_a_photograph),
        cmocka_unit_test(noise_in_digits_is_found),
        cmocka_unit_test(a_digit_is_drawn_in_a_thousand_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
