// image_networks_test.c — networks of image models against diffusers and transformers, with the
// same random weights: scripts/reference/image_networks.py. Each with all the memory it likes, and
// with the least.
#include "golden.h"

#include "model/image/image_networks.h"

#include <math.h>

static void read_config(const char *name, rn_fields *out) {
    static char path[128];
    snprintf(path, sizeof path, "tests/golden/image/%s.json", name);
    rn_fields_init(out, path);
    assert_ok(rn_fields_read_file(out, path));
}

static void check_with(const char *name, const rn_recipe *recipe, uint64_t rows,
                       const golden_runner *runner) {
    char file[64];
    snprintf(file, sizeof file, "image/%s", name);
    golden *g = golden_open(file);
    golden_check_inference(g, recipe, runner, rows, NULL, 0);
    golden_close(g);
}

static void check(const char *name, rn_recipe *recipe, uint64_t rows) {
    check_with(name, recipe, rows, &golden_eager);
    check_with(name, recipe, rows, &golden_roomy);
    check_with(name, recipe, rows, &golden_tight);
    rn_recipe_destroy(recipe);
}

static void autoencoders_decode_and_encode(void **state) {
    (void)state;
    static const char *const names[] = {"vae4", "vae16"};
    for (int i = 0; i < 2; i++) {
        rn_fields fields;
        rn_vae_config c;
        rn_recipe recipe;
        read_config(names[i], &fields);
        assert_ok(rn_vae_config_read(&fields, &c));
        rn_fields_free(&fields);
        c.height = 5, c.width = 6, c.rows = 2;
        assert_int_equal(rn_vae_factor(&c), 4);
        assert_ok(rn_vae_decoder_recipe(&c, &recipe));
        check(names[i], &recipe, 2);
        assert_ok(rn_vae_encoder_recipe(&c, &recipe));
        check(names[i], &recipe, 2);
    }
}

static void check_unet(const char *name) {
    rn_fields fields;
    rn_unet_config c;
    rn_recipe recipe;
    read_config(name, &fields);
    assert_ok(rn_unet_config_read(&fields, &c));
    rn_fields_free(&fields);
    c.height = 8, c.width = 12, c.rows = 2, c.context_tokens = 7;
    assert_ok(rn_unet_recipe(&c, &recipe));
    check(name, &recipe, 2);
}

static void unets_of_stable_diffusion_1(void **state) {
    (void)state;
    check_unet("unet_sd15");
}

static void unets_of_stable_diffusion_2(void **state) {
    (void)state;
    check_unet("unet_sd2");
}

static void unets_of_stable_diffusion_xl(void **state) {
    (void)state;
    check_unet("unet_sdxl");
}

static void unets_for_inpainting_with_guidance_embedded(void **state) {
    (void)state;
    check_unet("unet_inpaint");
}

static void text_encoders_of_clip(void **state) {
    (void)state;
    static const char *const names[] = {"clip_l", "clip_g"};
    for (int i = 0; i < 2; i++) {
        rn_fields fields;
        rn_clip_config c;
        rn_recipe recipe;
        read_config(names[i], &fields);
        assert_ok(rn_clip_config_read(&fields, &c));
        rn_fields_free(&fields);
        c.rows = 2;
        if (i) c.skip = 1, c.final_norm = false; // as SDXL reads it
        assert_int_equal(c.projection, i ? 24 : 0);
        assert_ok(rn_clip_recipe(&c, &recipe));
        check(names[i], &recipe, 2);
    }
}

static void text_encoder_of_t5(void **state) {
    (void)state;
    rn_fields fields;
    rn_t5_config c;
    rn_recipe recipe;
    read_config("t5", &fields);
    assert_ok(rn_t5_config_read(&fields, &c));
    rn_fields_free(&fields);
    c.rows = 37;
    assert_ok(rn_t5_recipe(&c, &recipe));
    check("t5", &recipe, 37);
}

static void transformers_of_flux(void **state) {
    (void)state;
    static const char *const names[] = {"flux_dev", "flux_schnell"};
    for (int i = 0; i < 2; i++) {
        rn_fields fields;
        rn_flux_config c;
        rn_recipe recipe;
        read_config(names[i], &fields);
        assert_ok(rn_flux_config_read(&fields, &c));
        rn_fields_free(&fields);
        assert_int_equal(c.guidance, i == 0);
        c.height = 3, c.width = 4, c.rows = 2, c.context_tokens = 7;
        assert_ok(rn_flux_recipe(&c, &recipe));
        check(names[i], &recipe, 2);
    }
}

static void sinusoids_of_times_are_those_of_diffusers(void **state) {
    (void)state;
    golden *g = golden_open("image/flux_dev");
    const float *theirs = golden_tensor(g, "time", 2 * 256 * sizeof(float));
    float mine[256];
    rn_sinusoid(750, 256, mine);
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(mine[i] - theirs[i]) < 1e-4f);
    golden_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(autoencoders_decode_and_encode),
        cmocka_unit_test(unets_of_stable_diffusion_1),
        cmocka_unit_test(unets_of_stable_diffusion_2),
        cmocka_unit_test(unets_of_stable_diffusion_xl),
        cmocka_unit_test(unets_for_inpainting_with_guidance_embedded),
        cmocka_unit_test(text_encoders_of_clip),
        cmocka_unit_test(text_encoder_of_t5),
        cmocka_unit_test(transformers_of_flux),
        cmocka_unit_test(sinusoids_of_times_are_those_of_diffusers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
