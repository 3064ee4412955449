// image_prepare_test.c — what of a denoiser is made once and not in every step: the rest with it
// gives what the whole gives, and reads none of the weights that made it.
#include "support.h"

#include "model/image/image_networks.h"

#include <ration/device.h>
#include <ration/session.h>

#include <math.h>

enum { TOKENS = 5, CONTEXT = 24, SIDE = 8, ROWS = 2, MOST = 1 << 16, TIME = 256 };

static const void *find(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    static struct {
        char name[128];
        uint64_t bytes;
        float *data;
    } made[2048];
    static size_t count;
    (void)self, (void)dtype;
    for (size_t i = 0; i < count; i++)
        if (made[i].bytes == bytes && strcmp(made[i].name, name) == 0) return made[i].data;
    assert_true(count < 2048);
    rn_value_info info = {.name = name, .shape = RN_SHAPE(bytes / sizeof(float))};
    snprintf(made[count].name, sizeof made[count].name, "%s", name);
    made[count].bytes = bytes;
    made[count].data = malloc(bytes);
    rn_builtin_weight(&info, bytes / sizeof(float), made[count].data);
    return made[count++].data;
}

typedef struct network {
    rn_recipe recipe;
    rn_plan *plan;
    rn_session *session;
    uint64_t weight_bytes;
} network;

static void open_network(network *n, rn_status made) {
    rn_weight_source weights = {.find = find};
    assert_ok(made);
    assert_ok(rn_plan_make(&n->recipe, rn_cpu_caps(), NULL, &n->plan));
    assert_ok(rn_session_create(n->plan, &weights, NULL, &n->session));
    n->weight_bytes = rn_plan_get_summary(n->plan)->weight_bytes;
}

static void close_network(network *n) {
    rn_session_destroy(n->session);
    rn_plan_destroy(n->plan);
    rn_recipe_destroy(&n->recipe);
}

// Every input that has no numbers yet: made-up ones, the same for all networks.
static void set(network *n, const char *name, uint64_t elements) {
    static float x[MOST];
    assert_true(elements <= MOST);
    rn_builtin_input(strlen(name) + (uint64_t)name[0], elements, x);
    assert_ok(rn_session_set(n->session, name, x, elements * sizeof *x));
}

static void assert_near(const float *a, const float *b, uint64_t count) {
    double away = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        away += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    assert_true(size > 0);
    if (!(sqrt(away / size) <= 1e-5)) fail_msg("off by %g", sqrt(away / size));
}

// ---- UNets --------------------------------------------------------------------------------------

static void set_unet(network *n, const rn_unet_config *c, bool context) {
    set(n, "sample", ROWS * SIDE * SIDE * c->in_channels);
    set(n, "time", (uint64_t)ROWS * c->channels[0]);
    if (context) set(n, "context", ROWS * TOKENS * CONTEXT);
}

static void put_texts(const rn_unet_config *c, network *text, network *rest) {
    static float values[MOST];
    rn_image_name name;
    uint64_t channels;
    uint32_t layers = 0;
    for (; rn_unet_text_layer(c, layers, &name, &channels); layers++)
        for (int i = 0; i < 2; i++) {
            rn_image_name part = rn_image_named("%s.%s", name.text, i ? "v" : "k");
            uint64_t bytes = ROWS * TOKENS * channels * sizeof(float);
            assert_ok(rn_session_get(text->session, part.text, values, bytes));
            assert_ok(rn_session_put(rest->session, part.text, values, bytes));
        }
    assert_int_equal(layers, 2 * 2 + 3 + 3 * 2 + 0); // down, middle (3 deep), up; level 1 has none
}

static void a_unet_is_its_text_and_the_rest(void **state) {
    static float whole[MOST], parts[MOST];
    rn_unet_config c = {.in_channels = 4,
                        .out_channels = 4,
                        .levels = 2,
                        .channels = {16, 32},
                        .layers = 2,
                        .depth = {2, 0},
                        .heads = {2, 4},
                        .mid_depth = 3,
                        .context_channels = CONTEXT,
                        .context_tokens = TOKENS,
                        .groups = 4,
                        .eps = 1e-5f,
                        .height = SIDE,
                        .width = SIDE,
                        .rows = ROWS};
    network all = {0}, text = {0}, rest = {0};
    uint64_t bytes = ROWS * SIDE * SIDE * 4 * sizeof(float);
    (void)state;
    open_network(&all, rn_unet_recipe(&c, &all.recipe));
    set_unet(&all, &c, true);
    assert_ok(rn_session_run(all.session, ROWS));
    assert_ok(rn_session_get(all.session, "noise", whole, bytes));

    c.text_type = RN_DTYPE_F32;
    open_network(&text, rn_unet_text_recipe(&c, &text.recipe));
    open_network(&rest, rn_unet_recipe(&c, &rest.recipe));
    set(&text, "context", ROWS * TOKENS * CONTEXT);
    assert_ok(rn_session_run(text.session, ROWS));
    put_texts(&c, &text, &rest);
    for (int step = 0; step < 2; step++) { // it is there in every step
        set_unet(&rest, &c, false);
        assert_ok(rn_session_run(rest.session, 0));
        assert_ok(rn_session_get(rest.session, "noise", parts, bytes));
        assert_near(parts, whole, bytes / sizeof(float));
    }
    assert_int_equal(text.weight_bytes + rest.weight_bytes, all.weight_bytes);
    close_network(&all);
    close_network(&text);
    close_network(&rest);
}

// ---- Flux ---------------------------------------------------------------------------------------

static void set_flux(network *n, bool modulated) {
    static int32_t positions[(TOKENS + SIDE * SIDE) * 3];
    for (int i = 0; i < SIDE * SIDE; i++)
        positions[(TOKENS + i) * 3 + 1] = i / SIDE, positions[(TOKENS + i) * 3 + 2] = i % SIDE;
    set(n, "sample", SIDE * SIDE * 8);
    set(n, "context", TOKENS * CONTEXT);
    assert_ok(rn_session_set(n->session, "positions", positions, sizeof positions));
    if (modulated) return;
    set(n, "time", TIME);
    set(n, "guidance", TIME);
    set(n, "pooled", 12);
}

// Two times at once: the first is the one that the whole is given.
static void make_modulations(network *n, const rn_flux_config *c, float *out /* (chunks, dim) */) {
    static float x[2 * TIME], made[2 * 32];
    static const struct {
        const char *name;
        uint64_t elements;
    } inputs[] = {{"time", TIME}, {"guidance", TIME}, {"pooled", 12}};
    uint64_t dim = (uint64_t)c->heads * c->head_dim;
    for (int i = 0; i < 3; i++) {
        uint64_t elements = inputs[i].elements;
        rn_builtin_input(strlen(inputs[i].name) + (uint64_t)inputs[i].name[0], elements, x);
        rn_builtin_input(99, elements, x + elements);
        assert_ok(rn_session_set(n->session, inputs[i].name, x, 2 * elements * sizeof *x));
    }
    assert_ok(rn_session_run(n->session, 2));
    for (uint32_t i = 0; i < rn_flux_chunks(c); i++) {
        assert_ok(rn_session_get(n->session, rn_image_named("modulation.%u", i).text, made,
                                 2 * dim * sizeof *made));
        memcpy(out + i * dim, made, dim * sizeof *made);
    }
}

static void flux_is_its_modulation_and_the_rest(void **state) {
    static float whole[MOST], parts[MOST], modulations[MOST];
    rn_flux_config c = {.in_channels = 8,
                        .out_channels = 8,
                        .double_blocks = 2,
                        .single_blocks = 3,
                        .heads = 2,
                        .head_dim = 16,
                        .context_channels = CONTEXT,
                        .context_tokens = TOKENS,
                        .pooled_channels = 12,
                        .axes = {4, 6, 6},
                        .guidance = true,
                        .height = SIDE,
                        .width = SIDE,
                        .rows = 1};
    network all = {0}, before = {0}, rest = {0};
    uint64_t bytes = SIDE * SIDE * 8 * sizeof(float);
    (void)state;
    open_network(&all, rn_flux_recipe(&c, &all.recipe));
    set_flux(&all, false);
    assert_ok(rn_session_run(all.session, 1));
    assert_ok(rn_session_get(all.session, "velocity", whole, bytes));

    rn_flux_config steps = c;
    steps.rows = 2;
    c.modulated = true;
    open_network(&before, rn_flux_modulation_recipe(&steps, &before.recipe));
    open_network(&rest, rn_flux_recipe(&c, &rest.recipe));
    make_modulations(&before, &c, modulations);
    set_flux(&rest, true);
    uint64_t count = (uint64_t)rn_flux_chunks(&c) * c.heads * c.head_dim;
    assert_int_equal(rn_flux_chunks(&c), 2 * 12 + 3 * 3 + 2);
    assert_ok(rn_session_set(rest.session, "modulation", modulations, count * sizeof(float)));
    assert_ok(rn_session_run(rest.session, 0));
    assert_ok(rn_session_get(rest.session, "velocity", parts, bytes));
    assert_near(parts, whole, bytes / sizeof(float));
    assert_int_equal(before.weight_bytes + rest.weight_bytes, all.weight_bytes);
    close_network(&all);
    close_network(&before);
    close_network(&rest);
    c.rows = 2; // a run has the modulation of one time
    assert_int_equal(rn_flux_recipe(&c, &all.recipe), RN_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unet_is_its_text_and_the_rest),
        cmocka_unit_test(flux_is_its_modulation_and_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
