// ONNX's own node tests (1.22.0: 1,765 cases) through the importer, the planner and the CPU.
//
// Each case ends in one of four ways: it passes, it is refused by name (an op or a form of it that
// ration does not have), its result is wrong, or the process dies. Cases run in child processes, so
// that one that dies costs one case. Wrong and dead must be none; those that pass must not become
// fewer. RATION_ONNX_CASE=test_abs runs one alone and says what happened;
// RATION_ONNX_DEVICE=xla:cpu runs them on another device, whose refusals count as such.
#include "support.h"

#include <ration/device.h>
#include <ration/onnx.h>
#include <ration/plan.h>
#include <ration/session.h>

#include "base/str.h"
#include "io/onnx.h"
#include "memory/account.h"

#include <dirent.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CASES = 4096, MOST_TENSORS = 64, PASSES = 1616 };

typedef enum verdict { UNKNOWN, PASSED, REFUSED, WRONG, DIED } verdict;

typedef struct result {
    verdict verdict;
    char why[240];
} result;

typedef struct loaded {
    rn_dtype dtype;
    rn_shape shape;
    void *data; // (bytes)
    uint64_t bytes;
} loaded;

static char root[512];
static char names[MOST_CASES][128];
static size_t case_count;
static result *results; // (MOST_CASES), shared with children

// ---- files --------------------------------------------------------------------------------------

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

static void find_cases(void) {
    DIR *folder = opendir(root);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) && case_count < MOST_CASES;)
        if (strncmp(e->d_name, "test_", 5) == 0)
            snprintf(names[case_count++], sizeof names[0], "%.127s", e->d_name);
    closedir(folder);
    qsort(names, case_count, sizeof names[0], compare_names);
}

// Unpacked once into the build folder.
static void unpack(void) {
    const char *archive = test_data_or_skip("onnx/backend_v1.22.0.tar.xz");
    char command[2048], done[600];
    snprintf(root, sizeof root, RN_BIN_DIR "/../onnx-data/node");
    snprintf(done, sizeof done, RN_BIN_DIR "/../onnx-data/done");
    if (access(done, F_OK) == 0) return;
    snprintf(command, sizeof command,
             "mkdir -p '" RN_BIN_DIR "/../onnx-data' && tar -xJf '%s' -C '" RN_BIN_DIR
             "/../onnx-data' --strip-components=%d && touch '%s'",
             archive, 1, done);
    if (system(command) != 0) skip_because("the archive of cases cannot be unpacked");
}

static bool load_tensor(const char *path, rn_arena *memory, loaded *out) {
    struct stat info;
    if (stat(path, &info) != 0) return false;
    size_t bytes = 0;
    void *file = test_read(path, &bytes);
    rn_onnx_tensor t;
    bool good = rn_onnx_parse_tensor((rn_str){file, bytes}, memory, &t) == RN_OK &&
                t.rank <= RN_MAX_RANK && rn_onnx_tensor_bytes(&t, &out->bytes);
    if (good) {
        out->dtype = rn_onnx_dtype(t.data_type);
        out->shape = (rn_shape){.rank = t.rank};
        for (uint32_t i = 0; i < t.rank; i++)
            out->shape.dims[i] = t.dims[i];
        out->data = calloc(1, out->bytes + 1);
        good = rn_onnx_tensor_decode(&t, out->data, out->bytes) == RN_OK;
    }
    free(file);
    return good;
}

// ---- comparing ----------------------------------------------------------------------------------

// As ONNX's own runner compares: rtol 1e-3, atol 1e-7. Where what is expected carries the noise of
// an f32 transform (1.9e-7 instead of 0), atol is 1e-6.
static double tolerance = 1e-7;

static bool is_close(double got, double want) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return want == got;
    return fabs(got - want) <= tolerance + 1e-3 * fabs(want);
}

static bool compare(const loaded *want, rn_dtype dtype, rn_shape shape, const void *got, char *why,
                    size_t why_bytes) {
    uint64_t elements = rn_shape_elements(want->shape, 1);
    if (dtype != want->dtype || !rn_shape_equal(shape, want->shape)) {
        snprintf(why, why_bytes, "%s %s instead of %s %s", rn_dtype_get(dtype)->name,
                 rn_shape_format(shape).text, rn_dtype_get(want->dtype)->name,
                 rn_shape_format(want->shape).text);
        return false;
    }
    if (!rn_dtype_get(dtype)->is_float) {
        if (memcmp(got, want->data, want->bytes) == 0) return true;
        uint64_t at = 0;
        while (((const char *)got)[at] == ((const char *)want->data)[at])
            at++;
        snprintf(why, why_bytes, "byte %llu of %s is %d instead of %d", (unsigned long long)at,
                 rn_dtype_get(dtype)->name, ((const unsigned char *)got)[at],
                 ((const unsigned char *)want->data)[at]);
        return false;
    }
    double *a = calloc(elements + 1, sizeof *a), *b = calloc(elements + 1, sizeof *b);
    bool good = rn_dtype_convert(dtype, got, RN_DTYPE_F64, a, elements) == RN_OK &&
                rn_dtype_convert(dtype, want->data, RN_DTYPE_F64, b, elements) == RN_OK;
    for (uint64_t i = 0; good && i < elements; i++)
        if (!is_close(a[i], b[i])) {
            snprintf(why, why_bytes, "element %llu is %.9g instead of %.9g", (unsigned long long)i,
                     a[i], b[i]);
            good = false;
        }
    free(a);
    free(b);
    return good;
}

// ---- one case -----------------------------------------------------------------------------------

typedef struct trial {
    char folder[700];
    rn_arena memory;
    loaded inputs[MOST_TENSORS];
    rn_onnx_input known[MOST_TENSORS];
    size_t known_count;
    rn_onnx *onnx;
    rn_plan *plan;
    rn_session *session;
    result *result;
} trial;

static void conclude(trial *t, verdict v, const char *why) {
    t->result->verdict = v;
    snprintf(t->result->why, sizeof t->result->why, "%s", why);
}

static void load_inputs(trial *t, const rn_onnx_model *model) {
    const rn_onnx_graph_proto *g = model->graph;
    for (size_t i = 0; i < g->input_count && i < MOST_TENSORS; i++) {
        char path[800];
        void *name = NULL;
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%zu.pb", t->folder, i);
        if (!load_tensor(path, &t->memory, &t->inputs[i])) continue;
        assert_ok(
            rn_arena_copy(&t->memory, g->inputs[i].name.data, g->inputs[i].name.bytes, &name));
        t->known[t->known_count++] = (rn_onnx_input){.name = name,
                                                     .dtype = t->inputs[i].dtype,
                                                     .shape = t->inputs[i].shape,
                                                     .data = t->inputs[i].data};
    }
}

// Of this process, which lives for many cases; NULL: the CPU.
static rn_status find_device(rn_device **out) {
    static rn_device *device;
    const char *target = getenv("RATION_ONNX_DEVICE");
    if (target && !device) RN_TRY(rn_device_open(target, 1, &device));
    *out = device;
    return RN_OK;
}

static rn_status start(trial *t) {
    rn_recipe recipe;
    rn_plan_options options = {0};
    rn_session_options session = {0};
    rn_weight_source weights = rn_onnx_weights(t->onnx);
    RN_TRY(find_device(&session.device));
    RN_TRY(rn_onnx_make_recipe(t->onnx, 0, &recipe));
    const rn_device_caps *caps =
        session.device ? rn_device_get_caps(session.device) : rn_cpu_caps();
    rn_status s = rn_plan_make(&recipe, caps, &options, &t->plan);
    rn_recipe_destroy(&recipe);
    RN_TRY(s);
    RN_TRY(rn_session_create(t->plan, &weights, &session, &t->session));
    for (size_t i = 0; i < t->known_count; i++) {
        rn_value v = rn_graph_find(rn_onnx_graph(t->onnx), RN_ROLE_INPUT, t->known[i].name);
        uint64_t bytes = 0;
        if (!v ||
            !rn_dtype_bytes(t->known[i].dtype, rn_shape_elements(t->known[i].shape, 1), &bytes))
            continue;
        RN_TRY(rn_session_set(t->session, t->known[i].name, t->known[i].data, bytes));
    }
    return rn_session_run(t->session, 0);
}

static void check_outputs(trial *t) {
    const char *name;
    for (size_t i = 0; (name = rn_onnx_output_name(t->onnx, i)); i++) {
        char path[800], why[200];
        loaded want = {0};
        rn_value v = rn_graph_find(rn_onnx_graph(t->onnx), RN_ROLE_OUTPUT, name);
        const rn_value_info *info = rn_graph_value(rn_onnx_graph(t->onnx), v);
        snprintf(path, sizeof path, "%s/test_data_set_0/output_%zu.pb", t->folder, i);
        if (!load_tensor(path, &t->memory, &want)) {
            conclude(t, WRONG, "an output cannot be read");
            return;
        }
        void *got = calloc(1, want.bytes + 16);
        bool good = true;
        if (want.dtype == info->dtype && rn_shape_equal(want.shape, info->shape) && want.bytes)
            good = rn_session_get(t->session, name, got, want.bytes) == RN_OK;
        if (!good) snprintf(why, sizeof why, "%.199s", rn_last_error()->message);
        good = good && compare(&want, info->dtype, info->shape, got, why, sizeof why);
        free(got);
        free(want.data);
        if (!good) {
            conclude(t, WRONG, why);
            return;
        }
    }
    conclude(t, PASSED, "");
}

static void try_model(trial *t, rn_str file, const char *path) {
    rn_onnx_model *model = NULL;
    if (rn_onnx_parse(file, &model) != RN_OK) {
        conclude(t, WRONG, rn_last_error()->message);
        return;
    }
    load_inputs(t, model);
    rn_onnx_free(model);
    rn_onnx_options options = {.inputs = t->known, .input_count = t->known_count};
    rn_status s = rn_onnx_open(path, &options, &t->onnx);
    if (s != RN_OK) {
        conclude(t, s == RN_UNSUPPORTED ? REFUSED : WRONG, rn_last_error()->message);
        return;
    }
    s = start(t);
    bool refused = s == RN_UNSUPPORTED && getenv("RATION_ONNX_DEVICE");
    if (s == RN_OK)
        check_outputs(t);
    else
        conclude(t, refused ? REFUSED : WRONG, rn_last_error()->message);
}

static void try_case(const char *name, result *out) {
    trial t = {.result = out};
    char path[800];
    size_t bytes = 0;
    tolerance = strncmp(name, "test_dft_inverse", 16) == 0 ? 1e-6 : 1e-7;
    rn_arena_init(&t.memory, RN_HOST_OTHER, 0);
    snprintf(t.folder, sizeof t.folder, "%s/%s", root, name);
    snprintf(path, sizeof path, "%s/model.onnx", t.folder);
    void *file = test_read(path, &bytes);
    try_model(&t, (rn_str){file, bytes}, path);
    rn_session_destroy(t.session);
    rn_plan_destroy(t.plan);
    rn_onnx_close(t.onnx);
    for (size_t i = 0; i < MOST_TENSORS; i++)
        free(t.inputs[i].data);
    rn_arena_free_all(&t.memory);
    free(file);
}

// ---- all cases ----------------------------------------------------------------------------------

// A child goes on from `at` until it is through or dies.
static size_t run_child(size_t at) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (size_t i = at; i < case_count; i++)
            try_case(names[i], &results[i]);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    while (at < case_count && results[at].verdict != UNKNOWN)
        at++;
    if (at < case_count) {
        results[at].verdict = DIED;
        snprintf(results[at].why, sizeof results[at].why, "status %d", status);
    }
    return at + 1;
}

static void print_results(size_t counts[5]) {
    FILE *file = fopen(RN_BIN_DIR "/../onnx-nodes.tsv", "w");
    static const char *const words[] = {"unknown", "passed", "refused", "wrong", "died"};
    for (size_t i = 0; i < case_count; i++) {
        counts[results[i].verdict]++;
        if (file)
            fprintf(file, "%s\t%s\t%s\n", words[results[i].verdict], names[i], results[i].why);
        if (results[i].verdict >= WRONG)
            printf("%s %s: %s\n", words[results[i].verdict], names[i], results[i].why);
    }
    if (file) fclose(file);
    printf("ONNX node tests: %zu pass, %zu refused, %zu wrong, %zu died\n", counts[PASSED],
           counts[REFUSED], counts[WRONG], counts[DIED]);
}

static void all_cases_pass_or_are_refused(void **state) {
    (void)state;
    size_t counts[5] = {0};
    const char *only = getenv("RATION_ONNX_CASE");
    unpack();
    find_cases();
    results = mmap(NULL, MOST_CASES * sizeof *results, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(results != MAP_FAILED);
    if (only) {
        try_case(only, &results[0]);
        printf("%d %s\n", (int)results[0].verdict, results[0].why);
        return;
    }
    for (size_t at = 0; at < case_count;)
        at = run_child(at);
    print_results(counts);
    munmap(results, MOST_CASES * sizeof *results);
    assert_int_equal(counts[WRONG], 0);
    assert_int_equal(counts[DIED], 0);
    assert_true(counts[PASSED] >= PASSES || getenv("RATION_ONNX_DEVICE"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_cases_pass_or_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
