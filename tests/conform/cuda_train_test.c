// labels: gpu
// cuda_train_test.c — training steps on the first GPU: gradients beside those of the CPU in f32, in
// f32 and with values of 16 bits; the same bits again, and within a budget that makes the plan
// repeat, stream and offload.
#include "support.h"

#include "gpu.h"

#include "train/train_recipe.h"

#include <ration/session.h>

#include <math.h>

enum { BATCH = 2, TOKENS = 40, VOCAB = 160, MOST_WEIGHTS = 64, STEPS = 6 };

static test_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    return test_gpu_open(&gpu, 0);
}

static int close_gpu(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

// ---- a model ------------------------------------------------------------------------------------

static const rn_llama_config small = {.layers = 3,
                                      .dim = 128,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .ffn = 192,
                                      .vocab = VOCAB,
                                      .weight_dtype = RN_DTYPE_F32,
                                      .tokens = TOKENS};

typedef struct weights {
    void *blocks[MOST_WEIGHTS];
    uint32_t count;
} weights;

// Numbers by the weight's name.
static const void *draw(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    weights *w = self;
    uint64_t element = dtype == RN_DTYPE_BF16 ? 2 : sizeof(float);
    assert_true((dtype == RN_DTYPE_F32 || dtype == RN_DTYPE_BF16) && w->count < MOST_WEIGHTS);
    uint8_t *out = malloc(bytes);
    uint32_t state = 1;
    for (const char *c = name; *c; c++)
        state = state * 31 + (uint32_t)*c;
    for (uint64_t i = 0; i < bytes / element; i++) {
        state = state * 1664525u + 1013904223u;
        float unit = (float)(int32_t)state * 0x1p-31f;
        float value = strstr(name, "norm") ? 1 + unit / 8 : unit / 8;
        assert_ok(rn_dtype_from_f32(dtype, &value, out + i * element, 1));
    }
    return w->blocks[w->count++] = out;
}

typedef struct gradients {
    float *values[MOST_WEIGHTS];
    uint64_t counts[MOST_WEIGHTS];
    char names[MOST_WEIGHTS][128];
    uint32_t count;
    float losses[STEPS];
    uint64_t least_bytes;
} gradients;

static void take_gradients(const rn_plan *plan, rn_session *session, gradients *out) {
    const rn_graph *graph = rn_plan_graph(plan);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        // Of micro-batches, which `exact` makes, the sums are states.
        bool held = info->role == RN_ROLE_OUTPUT || info->role == RN_ROLE_STATE;
        if (!held || !strstr(info->name, ".gradient")) continue;
        uint32_t i = out->count++;
        assert_true(i < MOST_WEIGHTS);
        snprintf(out->names[i], sizeof out->names[i], "%s", info->name);
        out->counts[i] = rn_shape_elements(info->shape, 1);
        out->values[i] = malloc(out->counts[i] * sizeof(float));
        assert_ok(
            rn_session_get(session, info->name, out->values[i], out->counts[i] * sizeof(float)));
    }
}

static rn_dtype dtype_of(const void *self, const char *weight) {
    return strstr(weight, "norm") ? RN_DTYPE_F32 : *(const rn_dtype *)self;
}

static const rn_low_rank *no_addition(const void *self, const char *weight, uint32_t index) {
    (void)self, (void)weight, (void)index;
    return NULL;
}

typedef struct training {
    rn_device *device; // NULL: the CPU
    rn_dtype activations, weights;
    rn_train_options options;
    double rate;
    uint64_t budget;
    bool exact;
} training;

static void run_steps(rn_session *session, const rn_plan *plan, double rate, gradients *out) {
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    for (int i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = (i * 37 + 5) % VOCAB;
        targets[i] = i % 7 ? (i * 53 + 11) % VOCAB : -100;
    }
    for (int step = 0; step < STEPS; step++) {
        assert_ok(rn_session_set(session, "tokens", tokens, sizeof tokens));
        assert_ok(rn_session_set(session, "targets", targets, sizeof targets));
        assert_ok(rn_session_set_scalar(session, "loss_scale", 1.0 / 68));
        assert_ok(rn_session_set_scalar(session, "rate", rate));
        assert_ok(rn_session_set_scalar(session, "step", step + 1));
        assert_ok(rn_session_run(session, 0));
        assert_ok(rn_session_get(session, "loss", &out->losses[step], sizeof(float)));
        if (step == 0) take_gradients(plan, session, out);
    }
}

// The gradients of the first step, where they are watched, and the losses of all.
static void train(const training *t, gradients *out) {
    rn_llama_config config = small;
    rn_plan_options options = {.budget_bytes = t->budget, .exact = t->exact};
    weights drawn = {.count = 0};
    rn_weight_source source = {.self = &drawn, .find = draw};
    rn_session_options session_options = {.device = t->device};
    rn_recipe recipe;
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    *out = (gradients){.count = 0};
    config.activations = t->activations;
    rn_llama_files files = {.self = &t->weights, .dtype = dtype_of, .addition = no_addition};
    config.files = &files;
    assert_ok(rn_train_recipe(rn_llama_forward(&config), BATCH, &t->options, &recipe));
    recipe.weights_in_memory = true;
    const rn_device_caps *caps = t->device ? rn_device_get_caps(t->device) : rn_cpu_caps();
    assert_ok(rn_plan_make(&recipe, caps, &options, &plan));
    out->least_bytes = rn_plan_get_summary(plan)->smallest_bytes;
    assert_ok(rn_session_create(plan, &source, &session_options, &session));
    run_steps(session, plan, t->rate, out);
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    for (uint32_t i = 0; i < drawn.count; i++)
        free(drawn.blocks[i]);
}

static void forget(gradients *g) {
    for (uint32_t i = 0; i < g->count; i++)
        free(g->values[i]);
}

// ---- what is asked ------------------------------------------------------------------------------

// The largest |is - must| / |must| of a tensor.
static double farthest(const gradients *is, const gradients *must, const char **out_name) {
    double most = 0;
    assert_true(must->count > 0);
    assert_int_equal(is->count, must->count);
    for (uint32_t i = 0; i < must->count; i++) {
        uint32_t k = 0;
        double apart = 0, size = 0;
        while (k < is->count && strcmp(is->names[k], must->names[i]) != 0)
            k++;
        assert_true(k < is->count && is->counts[k] == must->counts[i]);
        for (uint64_t e = 0; e < must->counts[i]; e++) {
            double d = (double)is->values[k][e] - (double)must->values[i][e];
            apart += d * d;
            size += (double)must->values[i][e] * (double)must->values[i][e];
        }
        if (!(sqrt(apart / size) <= most)) {
            most = sqrt(apart / size);
            *out_name = must->names[i];
        }
    }
    return most;
}

static bool same_bits(const gradients *a, const gradients *b) {
    bool same = a->count == b->count && memcmp(a->losses, b->losses, sizeof a->losses) == 0;
    for (uint32_t i = 0; same && i < a->count; i++)
        same = strcmp(a->names[i], b->names[i]) == 0 &&
               memcmp(a->values[i], b->values[i], a->counts[i] * sizeof(float)) == 0;
    return same;
}

static void gradients_are_nearly_the_cpus(void **state) {
    static const struct {
        rn_dtype dtype;
        double most;
    } rows[] = {{RN_DTYPE_F32, 1e-5}, {RN_DTYPE_BF16, 2e-2}, {RN_DTYPE_F16, 5e-3}};
    gradients must, is, again, tight;
    uint32_t wrong = 0;
    (void)state;
    test_gpu_want(&gpu);
    training watched = {NULL, RN_DTYPE_F32, RN_DTYPE_F32, {.watch = true}, 1e-3, .exact = true};
    train(&watched, &must);
    watched.device = gpu.device;
    for (int i = 0; i < 3; i++) {
        const char *name = "";
        watched.activations = rows[i].dtype;
        watched.budget = 0;
        train(&watched, &is);
        train(&watched, &again);
        watched.budget = is.least_bytes;
        train(&watched, &tight);
        double error = farthest(&is, &must, &name);
        print_message("%s: off by %.2g (%s), losses %g %g %g\n", rn_dtype_get(rows[i].dtype)->name,
                      error, name, (double)is.losses[0], (double)is.losses[1],
                      (double)is.losses[2]);
        if (!same_bits(&is, &again)) print_error("the same run again has other bits\n");
        if (!same_bits(&is, &tight))
            print_error("within the smallest budget the bits are others\n");
        wrong += !(error <= rows[i].most) || !same_bits(&is, &again) || !same_bits(&is, &tight);
        forget(&is);
        forget(&again);
        forget(&tight);
    }
    forget(&must);
    assert_int_equal(wrong, 0);
}

// With weights of bf16, whose gradients are bf16, too: the losses of several steps are nearly the
// CPU's, whose gradients are f32; and the same bits again.
static void every_optimizer_learns_as_on_the_cpu(void **state) {
    static const struct {
        const char *optimizer;
        rn_clip clip;
        double rate;
    } rows[] = {{"adamw", RN_CLIP_NONE, 1e-3},      {"adamw_bf16", RN_CLIP_NONE, 1e-3},
                {"adamw_8bit", RN_CLIP_NONE, 1e-3}, {"adamw_8bit", RN_CLIP_GLOBAL, 1e-3},
                {"lion_8bit", RN_CLIP_NONE, 1e-3},  {"sgd", RN_CLIP_GLOBAL, 0.3},
                {"adafactor", RN_CLIP_NONE, 1e-3},  {"muon", RN_CLIP_NONE, 1e-3}};
    gradients must, is, again;
    uint32_t wrong = 0;
    (void)state;
    test_gpu_want(&gpu);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        training t = {
            NULL, RN_DTYPE_F32, RN_DTYPE_BF16, {.optimizer = rows[i].optimizer}, rows[i].rate};
        t.options.clip = rows[i].clip;
        t.options.max_norm = rows[i].clip ? 0.5f : 0;
        train(&t, &must);
        t.device = gpu.device;
        t.activations = RN_DTYPE_BF16;
        train(&t, &is);
        train(&t, &again);
        double way = (double)must.losses[0] - (double)must.losses[STEPS - 1];
        double apart = fabs((double)is.losses[STEPS - 1] - (double)must.losses[STEPS - 1]);
        print_message("%s%s: loss %g to %g, on the CPU to %g\n", rows[i].optimizer,
                      rows[i].clip ? ", clipped" : "", (double)is.losses[0],
                      (double)is.losses[STEPS - 1], (double)must.losses[STEPS - 1]);
        if (!same_bits(&is, &again)) print_error("the same run again has other bits\n");
        wrong += !(way > 0 && apart <= 0.02 * way) || !same_bits(&is, &again);
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_nearly_the_cpus),
        cmocka_unit_test(every_optimizer_learns_as_on_the_cpu),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
