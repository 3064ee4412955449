// text_run.c — a text in chunks through a session.
#include "text_run.h"

#include <ration/device.h>

#include <math.h>

static void fill_pages(text_run *run) {
    const rn_graph *graph = rn_plan_graph(run->plan);
    rn_value table = rn_graph_find(graph, RN_ROLE_INPUT, "page_table");
    run->page_count = rn_graph_value(graph, table)->shape.dims[1];
    run->pages = calloc(run->page_count, sizeof *run->pages);
    assert_non_null(run->pages);
    for (size_t i = 0; i < run->page_count; i++) // anywhere but in order
        run->pages[i] = (int32_t)(run->page_count - 1 - i);
}

text_run *text_run_open(const char *path, const rn_model_options *options,
                        const rn_text_options *text) {
    return text_run_open_within(path, options, text, 0);
}

text_run *text_run_open_within(const char *path, const rn_model_options *options,
                               const rn_text_options *text, uint64_t budget_bytes) {
    return text_run_open_on(NULL, path, options, text, budget_bytes);
}

static text_run *begin(void) {
    text_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    return run;
}

static rn_text_options complete(const rn_text_options *text) {
    rn_text_options o = *text;
    o.rows = o.rows ? o.rows : 16;
    o.logit_rows = o.rows;
    o.kv_dtype = o.kv_dtype ? o.kv_dtype : RN_DTYPE_F32;
    return o;
}

// `recipe` is destroyed.
static void start_planned(text_run *run, rn_recipe *recipe, const rn_weight_source *weights,
                          const rn_plan_options *plan, const rn_session_options *session) {
    const rn_device_caps *caps =
        session->device ? rn_device_get_caps(session->device) : rn_cpu_caps();
    assert_ok(rn_plan_make(recipe, caps, plan, &run->plan));
    rn_recipe_destroy(recipe);
    assert_ok(rn_session_create(run->plan, weights, session, &run->session));
    run->logits = malloc((size_t)run->rows * run->vocab * sizeof *run->logits);
    assert_non_null(run->logits);
    fill_pages(run);
}

static void start(text_run *run, rn_device *device, rn_recipe *recipe,
                  const rn_weight_source *weights, uint64_t budget_bytes) {
    start_planned(run, recipe, weights, &(rn_plan_options){.budget_bytes = budget_bytes},
                  &(rn_session_options){.device = device});
}

// The recipe of a model's text, without its tokenizer.
static text_run *open_model(const char *path, const rn_model_options *options,
                            const rn_text_options *text, rn_recipe *recipe,
                            rn_weight_source *weights) {
    rn_model_options quiet = options ? *options : (rn_model_options){0};
    rn_text_options o = complete(text);
    text_run *run = begin();
    quiet.without_tokenizer = true;
    assert_ok(rn_model_open(path, &quiet, &run->model));
    assert_ok(rn_model_make_recipe(run->model, &o, recipe));
    *weights = rn_model_weights(run->model);
    run->vocab = rn_model_get_info(run->model)->vocab_size;
    run->rows = o.rows;
    return run;
}

text_run *text_run_open_planned(const char *path, const rn_text_options *text,
                                const rn_plan_options *plan, const rn_session_options *session) {
    rn_recipe recipe;
    rn_weight_source weights;
    text_run *run = open_model(path, NULL, text, &recipe, &weights);
    start_planned(run, &recipe, &weights, plan, session);
    return run;
}

text_run *text_run_open_on(rn_device *device, const char *path, const rn_model_options *options,
                           const rn_text_options *text, uint64_t budget_bytes) {
    rn_recipe recipe;
    rn_weight_source weights;
    text_run *run = open_model(path, options, text, &recipe, &weights);
    start(run, device, &recipe, &weights, budget_bytes);
    return run;
}

text_run *text_run_open_made(rn_device *device, const rn_text_maker *maker,
                             const rn_text_options *text, uint64_t budget_bytes) {
    rn_text_options o = complete(text);
    rn_recipe recipe;
    text_run *run = begin();
    assert_ok(maker->make(maker->self, &o, &recipe));
    run->vocab = maker->vocab_size;
    run->rows = o.rows;
    start(run, device, &recipe, &maker->weights, budget_bytes);
    return run;
}

void text_run_close(text_run *run) {
    rn_session_destroy(run->session);
    rn_plan_destroy(run->plan);
    rn_model_close(run->model);
    free(run->pages);
    free(run->logits);
    free(run);
}

static void run_chunk(text_run *run, const int32_t *tokens, uint32_t count) {
    enum { MOST = 512 };
    int32_t sequence[MOST] = {0}, position[MOST] = {0}, rows[MOST] = {0};
    size_t bytes = count * sizeof(int32_t);
    assert_true(run->rows <= MOST);
    for (uint32_t i = 0; i < count; i++) {
        position[i] = (int32_t)(run->position + i);
        rows[i] = (int32_t)i;
    }
    rn_session *s = run->session;
    assert_ok(rn_session_set(s, "tokens", tokens, bytes));
    assert_ok(rn_session_set(s, "sequence", sequence, bytes));
    assert_ok(rn_session_set(s, "position", position, bytes));
    assert_ok(rn_session_set(s, "rows", rows, run->rows * sizeof *rows));
    assert_ok(rn_session_set(s, "page_table", run->pages, run->page_count * sizeof *run->pages));
    assert_ok(rn_session_run(s, count));
    assert_ok(rn_session_get(s, "logits", run->logits,
                             (uint64_t)run->rows * run->vocab * sizeof *run->logits));
    run->position += count;
}

void text_run_logits(text_run *run, const int32_t *tokens, size_t count, float *out) {
    uint64_t rows = rn_plan_get_summary(run->plan)->rows;
    for (size_t at = 0; at < count;) {
        uint32_t now = (uint32_t)(count - at < rows ? count - at : rows);
        run_chunk(run, tokens + at, now);
        memcpy(out + at * run->vocab, run->logits, (size_t)now * run->vocab * sizeof *out);
        at += now;
    }
}

double text_run_difference(const float *a, const float *b, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most)) most = difference; // NaN stays
    }
    return most;
}

static double measure(rn_device *device, const char *path, const char *folder, const char *which,
                      const rn_model_options *options) {
    enum { COUNT = 40, VOCAB = 128 };
    static int32_t tokens[COUNT];
    static float expected[COUNT * VOCAB], logits[COUNT * VOCAB];
    char golden[128];
    rn_checkpoint *c;
    snprintf(golden, sizeof golden, "%s/golden.safetensors", folder);
    assert_ok(rn_checkpoint_open(golden, &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 sizeof tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, which), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
    rn_text_options text = {
        .context = 64, .page_tokens = 8, .rows = 16, .unquantised_activations = true};
    text_run *run = text_run_open_on(device, path, options, &text, 0);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    return text_run_difference(logits, expected, COUNT * VOCAB);
}

double text_run_measure(const char *path, const char *folder, const char *which,
                        const rn_model_options *options) {
    return measure(NULL, path, folder, which, options);
}

double text_run_measure_on(rn_device *device, const char *folder) {
    return measure(device, folder, folder, "logits", NULL);
}

// ---- a story ------------------------------------------------------------------------------------

enum { STORY = 200, STORY_VOCAB = 512 };

// logits (STORY, STORY_VOCAB)
static void tell(rn_device *device, const char *path, int32_t *tokens, float *logits) {
    text_run *run =
        text_run_open_on(device, path, NULL, &(rn_text_options){.context = 256, .rows = 8}, 0);
    assert_int_equal(run->vocab, STORY_VOCAB);
    tokens[0] = 1;
    for (int i = 0; i < STORY; i++) {
        float *row = logits + (size_t)i * STORY_VOCAB;
        text_run_logits(run, &tokens[i], 1, row);
        tokens[i + 1] = text_run_best(row, STORY_VOCAB);
    }
    text_run_close(run);
}

double text_run_story(rn_device *device, const char *path) {
    static int32_t there[STORY + 1], here[STORY + 1];
    static float logits[2][STORY * STORY_VOCAB];
    tell(device, path, there, logits[0]);
    tell(NULL, path, here, logits[1]);
    assert_memory_equal(there, here, sizeof here);
    return text_run_difference(logits[0], logits[1], STORY * STORY_VOCAB);
}

int32_t text_run_best(const float *logits, size_t vocab) {
    size_t best = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}
