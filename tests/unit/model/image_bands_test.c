// image_bands_test.c — exact tiling: pictures decoded and encoded in bands have the bits of whole
// ones, next to those of one group norm over all, and need less memory.
#include "support.h"

#include "model/image/image_networks.h"

#include <ration/device.h>
#include <ration/session.h>

#include <math.h>

enum { HIGH = 36, WIDE = 16, CHANNELS = 4, MOST = 4 * HIGH * WIDE * 16 * 3 };

static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    static struct {
        char name[96];
        uint64_t bytes;
        float *data;
    } made[1024];
    static size_t count;
    (void)self, (void)dtype;
    for (size_t i = 0; i < count; i++)
        if (made[i].bytes == bytes && strcmp(made[i].name, name) == 0) return made[i].data;
    assert_true(count < 1024);
    rn_value_info info = {.name = name, .shape = RN_SHAPE(bytes / sizeof(float))};
    snprintf(made[count].name, sizeof made[count].name, "%s", name);
    made[count].bytes = bytes;
    made[count].data = malloc(bytes);
    rn_builtin_weight(&info, bytes / sizeof(float), made[count].data);
    return made[count++].data;
}

// The output's elements; out_bytes: what was planned.
static uint64_t run(const rn_vae_config *c, bool encodes, uint64_t budget, float *out,
                    uint64_t *out_bytes) {
    static float x[MOST];
    rn_recipe recipe;
    rn_plan *plan;
    rn_session *session;
    rn_weight_source weights = {.find = find};
    rn_plan_options options = {.budget_bytes = budget};
    uint64_t latents = HIGH * WIDE * CHANNELS, pixels = 16 * HIGH * WIDE * 3;
    uint64_t in = encodes ? pixels : latents, made = encodes ? 2 * latents : pixels;
    rn_builtin_input(3, in, x);
    assert_ok(encodes ? rn_vae_encoder_recipe(c, &recipe) : rn_vae_decoder_recipe(c, &recipe));
    assert_ok(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    assert_ok(rn_session_create(plan, &weights, &(rn_session_options){.audit = true}, &session));
    assert_ok(rn_session_set(session, encodes ? "image" : "latent", x, in * sizeof(float)));
    assert_ok(rn_session_run(session, 1));
    assert_ok(rn_session_get(session, encodes ? "moments" : "image", out, made * sizeof(float)));
    rn_session_facts facts = rn_session_get_facts(session);
    assert_int_equal(facts.live_mismatch_step, UINT64_MAX);
    *out_bytes = rn_plan_get_summary(plan)->live_peak_bytes;
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    return made;
}

static void check(uint32_t channels, bool encodes) {
    static float whole[MOST], measured[MOST], cut[MOST];
    uint64_t bytes[3], count;
    // Of 36 rows of latents two bands, the second one of 20 rows; of 144 rows of pixels nine.
    rn_vae_config c = {.levels = 3,
                       .channels = {channels, 2 * channels, 2 * channels},
                       .layers = 1,
                       .latent_channels = CHANNELS,
                       .image_channels = 3,
                       .groups = 4,
                       .quant_conv = true,
                       .post_quant_conv = true,
                       .mid_attention = true,
                       .height = HIGH,
                       .width = WIDE};
    count = run(&c, encodes, 0, whole, &bytes[0]);
    c.banding = (rn_banding){.rows = 16};
    run(&c, encodes, 0, measured, &bytes[1]);
    c.banding.cut = true;
    run(&c, encodes, 0, cut, &bytes[2]);
    assert_memory_equal(measured, cut, count * sizeof(float));
    if (!encodes) { // once more, with rows computed again where they are read
        static float made[MOST];
        uint64_t least;
        c.banding.again = true;
        run(&c, encodes, 0, made, &least);
        assert_memory_equal(measured, made, count * sizeof(float));
        if (least >= bytes[2])
            fail_msg("%llu bytes computing again, %llu without", (unsigned long long)least,
                     (unsigned long long)bytes[2]);
    }
    double away = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        away = fmax(away, fabs((double)whole[i] - (double)cut[i]));
        size = fmax(size, fabs((double)whole[i]));
    }
    if (!(away <= 2e-6 * size)) fail_msg("bands are off by %g of %g", away, size);
    // Of so small a picture; the larger one is, the less a band is of it.
    if (!(bytes[2] < bytes[1] * 9 / 10))
        fail_msg("%llu bytes in bands, %llu whole", (unsigned long long)bytes[2],
                 (unsigned long long)bytes[1]);
}

static void pictures_in_bands_have_the_bits_of_whole_ones(void **state) {
    (void)state;
    check(8, false);
    check(8, true);
}

// Where 3x3 convolutions go by squares (backend/cpu/winograd.h).
static void so_have_those_of_many_channels(void **state) {
    (void)state;
    check(32, false);
    check(32, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_in_bands_have_the_bits_of_whole_ones),
        cmocka_unit_test(so_have_those_of_many_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
