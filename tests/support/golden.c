// golden.c — golden files, and what is compared with them.
#include "golden.h"

#include <math.h>

#include "graph/philox.h"

// As in scripts/reference/golden.py.
enum { SAMPLES = 4096, PROJECTIONS = 8, STEPS = 3 };
#define SEED  UINT64_C(20240607)
#define SIGNS UINT32_C(0xFFFFFFFF)

typedef struct made {
    struct made *next;
    uint64_t bytes;
    char name[96];
    _Alignas(16) unsigned char data[];
} made;

struct golden {
    rn_checkpoint *file;
    char name[32];
    made *tensors; // what was made or read so far
};

// ---- the file -----------------------------------------------------------------------------------

golden *golden_open(const char *name) {
    char path[128];
    golden *g = calloc(1, sizeof *g);
    assert_non_null(g);
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(path, sizeof path, "tests/golden/%s_golden.safetensors", name);
    assert_ok(rn_checkpoint_open(path, &g->file));
    return g;
}

void golden_close(golden *g) {
    while (g->tensors) {
        made *next = g->tensors->next;
        free(g->tensors);
        g->tensors = next;
    }
    rn_checkpoint_close(g->file);
    free(g);
}

static const rn_tensor_info *look(const golden *g, const char *family, const char *name) {
    char key[160];
    snprintf(key, sizeof key, "%s/%s", family, name);
    return rn_checkpoint_find(g->file, key);
}

static void read_as(const golden *g, const rn_tensor_info *info, rn_dtype dtype, void *out,
                    uint64_t count) {
    uint64_t bytes = 0;
    assert_true(rn_dtype_bytes(dtype, count, &bytes));
    assert_ok(rn_checkpoint_load(g->file, info, dtype, out, bytes));
}

// ---- tensors made from random numbers -----------------------------------------------------------

// offset + scale * (2 u - 1), rounded to f32 after each operation.
static void fill_random(const float description[3], float *out, uint64_t count) {
    uint32_t words[4];
    for (uint64_t i = 0; i < count; i++) {
        if (i % 4 == 0) rn_philox_block(SEED, (uint32_t)description[0], i / 4, words);
        float signed_unit = 2 * rn_philox_unit(words[i % 4]) - 1;
        float scaled = signed_unit * description[1];
        out[i] = scaled + description[2];
    }
}

static made *add_tensor(golden *g, const char *name, uint64_t bytes) {
    made *m = malloc(sizeof *m + bytes);
    assert_non_null(m);
    m->bytes = bytes;
    snprintf(m->name, sizeof m->name, "%s", name);
    m->next = g->tensors;
    return g->tensors = m;
}

const void *golden_tensor(golden *g, const char *name, uint64_t bytes) {
    for (made *m = g->tensors; m; m = m->next)
        if (strcmp(m->name, name) == 0 && m->bytes == bytes) return m->data;
    const rn_tensor_info *random = look(g, "random", name), *input = look(g, "input", name);
    if (!random && !input) return NULL;
    made *m = add_tensor(g, name, bytes);
    if (random) {
        float description[3];
        read_as(g, random, RN_DTYPE_F32, description, 3);
        fill_random(description, (float *)m->data, bytes / sizeof(float));
    } else {
        read_as(g, input, input->dtype, m->data, bytes / sizeof(int32_t)); // i32 or f32
    }
    return m->data;
}

static const void *find_weight(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    return dtype == RN_DTYPE_F32 ? golden_tensor(self, name, bytes) : NULL;
}

rn_weight_source golden_weights(golden *g) {
    return (rn_weight_source){.self = g, .find = find_weight};
}

golden_adamw golden_get_adamw(golden *g) {
    double d[3];
    read_as(g, look(g, "train", "adamw"), RN_DTYPE_F64, d, 3);
    return (golden_adamw){d[0], d[1], d[2]};
}

// ---- comparing ----------------------------------------------------------------------------------

static double norm_of(const double *x, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void hold_against(const golden *g, const char *family, const char *name, double difference,
                         double size, double tolerance) {
    if (difference <= tolerance * size) return;
    fail_msg("%s: %s/%s is off by %.3g of its norm %.3g; %.0e is allowed", g->name, family, name,
             difference / size, size, tolerance);
}

static double distance(const double *a, const double *b, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

static void compare_whole(const golden *g, const char *family, const char *name, const double *mine,
                          uint64_t count, double tolerance) {
    const rn_tensor_info *info = look(g, family, name);
    if (!info) fail_msg("%s has no %s/%s", g->name, family, name);
    double *theirs = malloc(count * sizeof *theirs);
    assert_non_null(theirs);
    read_as(g, info, RN_DTYPE_F64, theirs, count);
    hold_against(g, family, name, distance(mine, theirs, count), norm_of(theirs, count), tolerance);
    free(theirs);
}

// For each k, the sum of the elements with the signs of bit k. Elements with the same signs are
// added first: one addition an element.
static void project(const double *x, uint64_t count, double out[PROJECTIONS]) {
    double sums[1 << PROJECTIONS] = {0};
    uint32_t words[4];
    for (uint64_t i = 0; i < count; i++) {
        if (i % 4 == 0) rn_philox_block(SEED, SIGNS, i / 4, words);
        sums[words[i % 4] % (1 << PROJECTIONS)] += x[i];
    }
    for (int k = 0; k < PROJECTIONS; k++) {
        out[k] = 0;
        for (uint32_t signs = 0; signs < 1 << PROJECTIONS; signs++)
            out[k] += signs >> k & 1 ? -sums[signs] : sums[signs];
    }
}

// A large tensor by its marks. The root mean square of the projections' differences estimates the
// norm of the whole difference.
static void compare_marks(const golden *g, const char *family, const char *name, const double *mine,
                          uint64_t count, double tolerance) {
    char key[128];
    double samples[SAMPLES], theirs[SAMPLES], norm = 0, projections[PROJECTIONS];
    snprintf(key, sizeof key, "%s/norm", name);
    read_as(g, look(g, family, key), RN_DTYPE_F64, &norm, 1);
    hold_against(g, family, key, fabs(norm_of(mine, count) - norm), norm, tolerance);
    snprintf(key, sizeof key, "%s/samples", name);
    read_as(g, look(g, family, key), RN_DTYPE_F64, theirs, SAMPLES);
    for (uint64_t i = 0; i < SAMPLES; i++)
        samples[i] = mine[i * (count / SAMPLES)];
    hold_against(g, family, key, distance(samples, theirs, SAMPLES), norm_of(theirs, SAMPLES),
                 tolerance);
    snprintf(key, sizeof key, "%s/projections", name);
    read_as(g, look(g, family, key), RN_DTYPE_F64, theirs, PROJECTIONS);
    project(mine, count, projections);
    hold_against(g, family, key, distance(projections, theirs, PROJECTIONS) / sqrt(PROJECTIONS),
                 norm, tolerance);
}

static void compare(const golden *g, const char *family, const char *name, const double *mine,
                    uint64_t count, double tolerance) {
    char key[128];
    snprintf(key, sizeof key, "%s/norm", name);
    if (look(g, family, key))
        compare_marks(g, family, name, mine, count, tolerance);
    else
        compare_whole(g, family, name, mine, count, tolerance);
}

// ---- a run --------------------------------------------------------------------------------------

typedef struct trial {
    golden *g;
    const golden_runner *runner;
    void *run;
    rn_graph *graph; // of the whole batch, to know names and shapes
    uint64_t rows;
} trial;

static void begin(trial *t, golden *g, const rn_recipe *recipe, const golden_runner *runner,
                  uint64_t rows) {
    rn_weight_source weights = golden_weights(g);
    *t = (trial){.g = g, .runner = runner, .rows = rows};
    assert_ok(recipe->build(recipe->self, &(rn_recipe_options){0}, &t->graph));
    assert_ok(runner->begin(runner, recipe, &weights, rows, &t->run));
}

static void end(trial *t) {
    t->runner->end(t->run);
    rn_graph_destroy(t->graph);
}

static uint64_t elements(const trial *t, rn_value value) {
    return rn_shape_elements(rn_graph_value(t->graph, value)->shape, t->rows);
}

// An f32 tensor of the run, in f64.
static double *fetch(const trial *t, const char *name, uint64_t count) {
    float *values = malloc(count * sizeof *values);
    double *wide = malloc(count * sizeof *wide);
    assert_true(values && wide);
    assert_ok(t->runner->get(t->run, name, values, count * sizeof *values));
    for (uint64_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
    free(values);
    return wide;
}

static void check_output(const trial *t, const char *family, const char *name, double tolerance) {
    rn_value value = rn_graph_find(t->graph, RN_ROLE_OUTPUT, name);
    assert_int_not_equal(value, RN_NO_VALUE);
    uint64_t count = elements(t, value);
    double *mine = fetch(t, name, count);
    compare(t->g, family, name, mine, count, tolerance);
    free(mine);
}

static void set_inputs(const trial *t, const golden_input *more, size_t more_count) {
    for (rn_value v = 1; v <= rn_graph_value_count(t->graph); v++) {
        const rn_value_info *info = rn_graph_value(t->graph, v);
        uint64_t bytes = elements(t, v) * sizeof(float); // f32 and i32 alike
        if (info->role != RN_ROLE_INPUT) continue;
        const void *data = golden_tensor(t->g, info->name, bytes);
        if (data) assert_ok(t->runner->set(t->run, info->name, data, bytes));
    }
    for (size_t i = 0; i < more_count; i++)
        assert_ok(t->runner->set(t->run, more[i].name, more[i].data, more[i].bytes));
}

void golden_check_inference(golden *g, const rn_recipe *recipe, const golden_runner *runner,
                            uint64_t rows, const golden_input *more, size_t more_count) {
    trial t;
    begin(&t, g, recipe, runner, rows);
    set_inputs(&t, more, more_count);
    assert_ok(runner->run(t.run));
    for (rn_value v = 1; v <= rn_graph_value_count(t.graph); v++) {
        const rn_value_info *info = rn_graph_value(t.graph, v);
        if (info->role == RN_ROLE_OUTPUT) check_output(&t, "output", info->name, 1e-5);
    }
    end(&t);
}

// ---- three steps --------------------------------------------------------------------------------

static double count_targets(const trial *t) {
    uint64_t count = elements(t, rn_graph_find(t->graph, RN_ROLE_INPUT, "targets")), counted = 0;
    const int32_t *targets = golden_tensor(t->g, "targets", count * sizeof *targets);
    for (uint64_t i = 0; i < count; i++)
        counted += targets[i] != -100;
    return (double)counted;
}

// Running statistics do not begin as zeros.
static void put_states(const trial *t) {
    for (rn_value v = 1; v <= rn_graph_value_count(t->graph); v++) {
        const rn_value_info *info = rn_graph_value(t->graph, v);
        uint64_t bytes = elements(t, v) * sizeof(float);
        if (info->role != RN_ROLE_STATE) continue;
        const void *data = golden_tensor(t->g, info->name, bytes);
        if (data) assert_ok(t->runner->put(t->run, info->name, data, bytes));
    }
}

static void check_gradient(const trial *t, const char *name, uint64_t count) {
    char key[128];
    snprintf(key, sizeof key, "%s.gradient", name);
    double *mine = fetch(t, key, count), cancelled = 0;
    const rn_tensor_info *zero = look(t->g, "zero", name);
    if (zero) {
        read_as(t->g, zero, RN_DTYPE_F64, &cancelled, 1);
        hold_against(t->g, "zero", name, norm_of(mine, count), cancelled, 1e-5);
    } else {
        compare(t->g, "grad", name, mine, count, 1e-5);
    }
    free(mine);
}

// Where the gradient is rounding, so is the direction of the step; only its size is known.
static void check_update(const trial *t, const char *name, uint64_t count) {
    const float *before = golden_tensor(t->g, name, count * sizeof *before);
    double *mine = fetch(t, name, count), rate = golden_get_adamw(t->g).rate;
    for (uint64_t i = 0; i < count; i++)
        mine[i] -= (double)before[i];
    if (!look(t->g, "zero", name))
        compare(t->g, "update", name, mine, count, 1e-3);
    else
        for (uint64_t i = 0; i < count; i++)
            assert_true(fabs(mine[i]) <= 2 * STEPS * rate);
    free(mine);
}

static void check_each(const trial *t, rn_role role,
                       void (*check)(const trial *t, const char *name, uint64_t count)) {
    for (rn_value v = 1; v <= rn_graph_value_count(t->graph); v++) {
        const rn_value_info *info = rn_graph_value(t->graph, v);
        if (info->role == role) check(t, info->name, elements(t, v));
    }
}

static void check_statistic(const trial *t, const char *name, uint64_t count) {
    if (!look(t->g, "state", name)) return; // a moment
    double *mine = fetch(t, name, count);
    compare(t->g, "state", name, mine, count, 1e-5);
    free(mine);
}

static void check_loss(const trial *t, int step) {
    double theirs[STEPS], *mine = fetch(t, "loss", 1);
    read_as(t->g, look(t->g, "train", "loss"), RN_DTYPE_F64, theirs, STEPS);
    hold_against(t->g, "train", "loss", fabs(*mine - theirs[step]), theirs[step],
                 step == 0 ? 1e-5 : 1e-3);
    free(mine);
}

static void step(const trial *t, int number) {
    set_inputs(t, NULL, 0);
    assert_ok(t->runner->set_scalar(t->run, "step", number + 1));
    assert_ok(t->runner->run(t->run));
    check_loss(t, number);
    if (number > 0) return;
    if (t->runner->cut(t->run) == 1) check_output(t, "train", "logits", 1e-5);
    check_each(t, RN_ROLE_WEIGHT, check_gradient);
    check_each(t, RN_ROLE_STATE, check_statistic);
}

void golden_check_training(golden *g, const rn_recipe *recipe, const golden_runner *runner) {
    trial t;
    begin(&t, g, recipe, runner, 0);
    put_states(&t);
    assert_ok(runner->set_scalar(t.run, "rate", golden_get_adamw(g).rate));
    assert_ok(runner->set_scalar(t.run, "loss_scale", 1 / count_targets(&t)));
    for (int i = 0; i < STEPS; i++)
        step(&t, i);
    check_each(&t, RN_ROLE_WEIGHT, check_update);
    end(&t);
}
