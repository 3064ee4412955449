// labels: gpu
// cuda_train_test.c — training steps on the first GPU: gradients beside those of the CPU in f32, in
// f32 and with values of 16 bits; the same bits again, and within a budget that makes the plan
// repeat, stream and offload.
#include "support.h"

#include "train/train_recipe.h"

#include <ration/cuda.h>
#include <ration/session.h>

#include <math.h>

enum { BATCH = 2, TOKENS = 40, VOCAB = 160, MOST_WEIGHTS = 64 };

static rn_device *gpu; // NULL: none
static rn_error_info reason;

static int open_gpu(void **state) {
    (void)state;
    rn_status s = rn_cuda_device_create(0, 1, &gpu);
    if (s == RN_OK) return 0;
    gpu = NULL;
    reason = *rn_last_error();
    return s != RN_UNSUPPORTED && s != RN_NOT_FOUND;
}

static int close_gpu(void **state) {
    (void)state;
    rn_device_destroy(gpu);
    return 0;
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
    assert_true(dtype == RN_DTYPE_F32 && w->count < MOST_WEIGHTS);
    float *out = malloc(bytes);
    uint32_t state = 1;
    for (const char *c = name; *c; c++)
        state = state * 31 + (uint32_t)*c;
    for (uint64_t i = 0; i < bytes / sizeof *out; i++) {
        state = state * 1664525u + 1013904223u;
        float unit = (float)(int32_t)state * 0x1p-31f;
        out[i] = strstr(name, "norm") ? 1 + unit / 8 : unit / 8;
    }
    return w->blocks[w->count++] = out;
}

typedef struct gradients {
    float *values[MOST_WEIGHTS];
    uint64_t counts[MOST_WEIGHTS];
    char names[MOST_WEIGHTS][128];
    uint32_t count;
    float losses[3];
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

// The gradients of the first step and the losses of three.
static void train(rn_device *device, rn_dtype activations, uint64_t budget, gradients *out) {
    rn_llama_config config = small;
    rn_train_options watch = {.watch = true};
    rn_plan_options options = {.budget_bytes = budget, .exact = true};
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    weights drawn = {.count = 0};
    rn_weight_source source = {.self = &drawn, .find = draw};
    rn_recipe recipe;
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    *out = (gradients){.count = 0};
    config.activations = activations;
    for (int i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = (i * 37 + 5) % VOCAB;
        targets[i] = i % 7 ? (i * 53 + 11) % VOCAB : -100;
    }
    assert_ok(rn_train_recipe(rn_llama_forward(&config), BATCH, &watch, &recipe));
    recipe.weights_in_memory = true;
    const rn_device_caps *caps = device ? rn_device_get_caps(device) : rn_cpu_caps();
    assert_ok(rn_plan_make(&recipe, caps, &options, &plan));
    out->least_bytes = rn_plan_get_summary(plan)->smallest_bytes;
    assert_ok(rn_session_create(plan, &source, &(rn_session_options){.device = device}, &session));
    for (int step = 0; step < 3; step++) {
        assert_ok(rn_session_set(session, "tokens", tokens, sizeof tokens));
        assert_ok(rn_session_set(session, "targets", targets, sizeof targets));
        assert_ok(rn_session_set_scalar(session, "loss_scale", 1.0 / 68));
        assert_ok(rn_session_set_scalar(session, "rate", 1e-3));
        assert_ok(rn_session_set_scalar(session, "step", step + 1));
        assert_ok(rn_session_run(session, 0));
        assert_ok(rn_session_get(session, "loss", &out->losses[step], sizeof(float)));
        if (step == 0) take_gradients(plan, session, out);
    }
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
    if (!gpu) skip_because("no GPU: %s", reason.message);
    train(NULL, RN_DTYPE_F32, 0, &must);
    for (int i = 0; i < 3; i++) {
        const char *name = "";
        train(gpu, rows[i].dtype, 0, &is);
        train(gpu, rows[i].dtype, 0, &again);
        train(gpu, rows[i].dtype, is.least_bytes, &tight);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_nearly_the_cpus),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
