// run_graph.c — ration run of a model that is not text: tensors in, tensors out. ONNX files, and
// the builtin models, whose weights come from a file or are made up.
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GRAPH_INPUTS = 64, SHOWN_VALUES = 8 };

typedef struct made_weight {
    struct made_weight *next;
    uint64_t bytes;
    _Alignas(64) float data[];
} made_weight;

typedef struct graph_run {
    const invocation *in;
    const char *name; // the model
    rn_onnx *onnx;    // or
    rn_graph *built;  // of a builtin model, to look at
    const rn_graph *graph;
    rn_checkpoint *weights; // of a builtin model
    made_weight *made;      // where there is no file
    npy_array files[MAX_GRAPH_INPUTS];
    char file_names[MAX_GRAPH_INPUTS][128];
    const char *pictures[MAX_GRAPH_INPUTS]; // their files, until the inputs' shapes are known
    class_labels labels;
    size_t file_count;
    rn_onnx_dim dims[MAX_GRAPH_INPUTS];
    char dim_names[MAX_GRAPH_INPUTS][128];
    size_t dim_count;
    uint64_t rows; // of this run; 0: the graph has none
    host_budget budget;
    rn_plan_options options;
    constraint_texts constraints;
    rn_recipe recipe;
    rn_ladder *ladder;
    rn_device *device;
    rn_plan *plan;
    rn_session *session;
    double seconds; // of the run
} graph_run;

// ---- arguments ----------------------------------------------------------------------------------

// "NAME=REST": the name into `name`.
static rn_status split_name(const char *option, const char *text, char name[128],
                            const char **out_rest) {
    const char *equals = strchr(text, '=');
    size_t bytes = equals ? (size_t)(equals - text) : 0;
    if (!equals || bytes == 0 || bytes >= 128 || !equals[1])
        return rn_fail(RN_INVALID, "--%s %s is not NAME=%s", option, text,
                       strcmp(option, "dim") == 0 ? "SIZE" : "FILE");
    memcpy(name, text, bytes);
    name[bytes] = 0;
    *out_rest = equals + 1;
    return RN_OK;
}

static rn_status read_inputs(graph_run *r) {
    const char *const *items = NULL, *path = NULL;
    size_t count = rn_settings_list(r->in->settings, "input", &items);
    if (count > MAX_GRAPH_INPUTS)
        return rn_fail(RN_INVALID, "--input: more than %d", MAX_GRAPH_INPUTS);
    for (size_t i = 0; i < count; i++) {
        RN_TRY(split_name("input", items[i], r->file_names[i], &path));
        r->file_count++;
        if (is_picture(path))
            r->pictures[i] = path;
        else
            RN_TRY(read_npy(path, &r->files[i]));
    }
    return RN_OK;
}

rn_status read_dims(const invocation *in, rn_onnx_dim *dims, char (*names)[128], size_t room,
                    size_t *out_count) {
    const char *const *items = NULL, *size = NULL;
    *out_count = rn_settings_list(in->settings, "dim", &items);
    if (*out_count > room) return rn_fail(RN_INVALID, "--dim: more than %zu", room);
    for (size_t i = 0; i < *out_count; i++) {
        char *end;
        RN_TRY(split_name("dim", items[i], names[i], &size));
        unsigned long long value = strtoull(size, &end, 10);
        if (*end || value == 0 || value > UINT32_MAX)
            return rn_fail(RN_INVALID, "--dim %s: not a size", items[i]);
        dims[i] = (rn_onnx_dim){.name = names[i], .size = value};
    }
    return RN_OK;
}

static const npy_array *find_file(const graph_run *r, const char *name) {
    for (size_t i = 0; i < r->file_count; i++)
        if (strcmp(r->file_names[i], name) == 0) return &r->files[i];
    return NULL;
}

// ---- opening ------------------------------------------------------------------------------------

static rn_status open_onnx(graph_run *r) {
    rn_onnx_input inputs[MAX_GRAPH_INPUTS];
    size_t known = 0;
    for (size_t i = 0; i < r->file_count; i++)
        if (!r->pictures[i])
            inputs[known++] = (rn_onnx_input){.name = r->file_names[i],
                                              .dtype = r->files[i].dtype,
                                              .shape = r->files[i].shape,
                                              .data = r->files[i].file.data};
    RN_TRY(read_dims(r->in, r->dims, r->dim_names, MAX_GRAPH_INPUTS, &r->dim_count));
    const char *weights = rn_settings_text(r->in->settings, "weights");
    rn_onnx_options options = {.inputs = inputs,
                               .input_count = known,
                               .dims = r->dims,
                               .dim_count = r->dim_count,
                               .weights = weights[0] ? weights : NULL};
    RN_TRY(rn_onnx_open(r->name, &options, &r->onnx));
    r->graph = rn_onnx_graph(r->onnx);
    return RN_OK;
}

static rn_status open_builtin(graph_run *r) {
    const char *weights = rn_settings_text(r->in->settings, "weights");
    RN_TRY(rn_builtin_recipe(r->name, &r->recipe));
    RN_TRY(r->recipe.build(r->recipe.self, NULL, &r->built));
    r->graph = r->built;
    if (weights[0]) return rn_checkpoint_open(weights, &r->weights);
    r->recipe.weights_in_memory = true;
    return RN_OK;
}

static rn_status read_pictures(graph_run *r) {
    for (size_t i = 0; i < r->file_count; i++) {
        rn_value v = rn_graph_find(r->graph, RN_ROLE_INPUT, r->file_names[i]);
        if (r->pictures[i] && v)
            RN_TRY(read_picture(r->in, r->pictures[i], rn_graph_value(r->graph, v), &r->files[i]));
    }
    return RN_OK;
}

// The rows that the given inputs have, which must agree; 1 where none is given.
static rn_status find_rows(graph_run *r) {
    r->rows = rn_graph_has_rows(r->graph) ? 1 : 0;
    for (size_t i = 0; i < r->file_count; i++) {
        rn_value v = rn_graph_find(r->graph, RN_ROLE_INPUT, r->file_names[i]);
        if (!v) {
            const char *known = NULL;
            for (size_t k = 0; r->onnx && (known = rn_onnx_input_name(r->onnx, k)); k++)
                if (strcmp(known, r->file_names[i]) == 0) break; // nothing reads it
            if (known) continue;
            return rn_fail(RN_INVALID, "the model has no input '%s'", r->file_names[i]);
        }
        rn_shape want = rn_graph_value(r->graph, v)->shape, have = r->files[i].shape;
        bool rows = want.rank && want.dims[0] == RN_ROWS;
        if (rows && have.rank) r->rows = want.dims[0] = have.dims[0];
        if (rn_shape_equal(want, have) && rn_graph_value(r->graph, v)->dtype == r->files[i].dtype)
            continue;
        return rn_fail(RN_INVALID, "input '%s' is %s %s, the model takes %s %s", r->file_names[i],
                       rn_shape_format(have).text, rn_dtype_get(r->files[i].dtype)->name,
                       rn_shape_format(rn_graph_value(r->graph, v)->shape).text,
                       rn_dtype_get(rn_graph_value(r->graph, v)->dtype)->name);
    }
    return RN_OK;
}

// ---- made-up numbers ----------------------------------------------------------------------------

static const rn_account made_account = {RN_DEVICE_HOST, RN_PURPOSE_OTHER, NULL};

static const void *make_weight(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    graph_run *r = self;
    rn_value v = rn_graph_find(r->graph, RN_ROLE_WEIGHT, name);
    if (!v || dtype != RN_DTYPE_F32) return NULL;
    if (rn_budget_charge(made_account, NULL, bytes) != RN_OK) return NULL;
    made_weight *made = aligned_alloc(64, sizeof *made + (bytes + 63) / 64 * 64);
    if (!made) return NULL;
    *made = (made_weight){.next = r->made, .bytes = bytes};
    r->made = made;
    rn_builtin_weight(rn_graph_value(r->graph, v), bytes / sizeof(float), made->data);
    return made->data;
}

static void free_made(graph_run *r) {
    while (r->made) {
        made_weight *made = r->made;
        r->made = made->next;
        rn_ledger_release(made_account, NULL, made->bytes);
        free(made);
    }
}

// ---- one target ---------------------------------------------------------------------------------

static rn_weight_source weight_source(graph_run *r) {
    if (r->onnx) return rn_onnx_weights(r->onnx);
    if (r->weights) return (rn_weight_source){.checkpoint = r->weights};
    return (rn_weight_source){.self = r, .find = make_weight};
}

static uint64_t bytes_of(const graph_run *r, const rn_value_info *info) {
    uint64_t bytes = 0;
    return rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, r->rows), &bytes) ? bytes : 0;
}

uint64_t graph_room(const rn_graph *graph, uint64_t rows) {
    enum { FIXED = 64 << 10 };
    uint64_t most = 0, bytes;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role == RN_ROLE_OUTPUT &&
            rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, rows), &bytes))
            most = bytes > most ? bytes : most;
    }
    return most + rn_plan_table_bytes(graph) + FIXED;
}

// What is made up: weights, all of them, and inputs, one at a time.
static uint64_t tensor_room(const graph_run *r) {
    uint64_t most = 0, made = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(r->graph); v++) {
        const rn_value_info *info = rn_graph_value(r->graph, v);
        if (info->role == RN_ROLE_WEIGHT && !r->onnx && !r->weights) made += bytes_of(r, info);
        if (info->role == RN_ROLE_INPUT && !find_file(r, info->name) && bytes_of(r, info) > most)
            most = bytes_of(r, info);
    }
    return most + made + graph_room(r->graph, r->rows);
}

static rn_status try_device(void *self, const rn_ladder_target *target) {
    graph_run *r = self;
    rn_plan_options options;
    rn_weight_source weights = weight_source(r);
    r->device = target->device;
    (void)rn_rates_apply(r->device);
    RN_TRY(read_budget(r->in, r->device, tensor_room(r), &r->budget));
    use_budget(&r->budget, &r->options);
    RN_TRY(read_constraints(r->in, &r->constraints, &r->options));
    options = r->options;
    RN_TRY(rn_plan_options_for(r->device, &r->budget.device, &options));
    if (r->onnx) RN_TRY(rn_onnx_make_recipe(r->onnx, r->rows, &r->recipe));
    if (!r->onnx) r->recipe.rows = r->recipe.least_rows = r->rows;
    RN_TRY(rn_plan_make(&r->recipe, rn_device_get_caps(r->device), &options, &r->plan));
    rn_session_options session = {.device = r->device,
                                  .cancel = &interrupt_flag,
                                  .audit = rn_settings_bool(r->in->settings, "audit")};
    return rn_session_create(r->plan, &weights, &session, &r->session);
}

static void leave_device(void *self) {
    graph_run *r = self;
    rn_session_destroy(r->session);
    rn_plan_destroy(r->plan);
    if (r->onnx) rn_recipe_destroy(&r->recipe);
    free_made(r);
    r->session = NULL;
    r->plan = NULL;
    r->device = NULL;
}

// ---- running ------------------------------------------------------------------------------------

// An input that was not given: numbers between 0 and 1; zeros where it is not f32.
static rn_status make_input(graph_run *r, const rn_value_info *info) {
    text_buffer data = {0};
    uint64_t bytes = bytes_of(r, info), seed = rn_settings_count(r->in->settings, "seed");
    RN_TRY(reserve_text(&data, bytes));
    memset(data.data, 0, bytes);
    if (info->dtype == RN_DTYPE_F32) rn_builtin_input(seed, bytes / 4, (float *)(void *)data.data);
    rn_status s = rn_session_set(r->session, info->name, data.data, bytes);
    free_text(&data);
    return s;
}

static rn_status set_inputs(graph_run *r) {
    for (rn_value v = 1; v <= rn_graph_value_count(r->graph); v++) {
        const rn_value_info *info = rn_graph_value(r->graph, v);
        if (info->role != RN_ROLE_INPUT) continue;
        const npy_array *file = find_file(r, info->name);
        if (file)
            RN_TRY(rn_session_set(r->session, info->name, file->file.data, file->bytes));
        else
            RN_TRY(make_input(r, info));
    }
    return RN_OK;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// ---- what came out ------------------------------------------------------------------------------

typedef struct result {
    const char *name;
    rn_dtype dtype;
    rn_shape shape;
    uint64_t elements, bytes;
    text_buffer data;
} result;

static rn_status get_result(graph_run *r, const rn_value_info *info, result *out) {
    *out = (result){.name = info->name, .dtype = info->dtype, .shape = info->shape};
    if (out->shape.rank && out->shape.dims[0] == RN_ROWS) out->shape.dims[0] = r->rows;
    out->elements = rn_shape_elements(out->shape, 1);
    out->bytes = bytes_of(r, info);
    RN_TRY(reserve_text(&out->data, out->bytes + 1));
    return rn_session_get(r->session, info->name, out->data.data, out->bytes);
}

static double value_at(const result *out, uint64_t i) {
    double value = 0;
    uint64_t element = 0;
    (void)rn_dtype_bytes(out->dtype, 1, &element);
    rn_status s =
        rn_dtype_convert(out->dtype, out->data.data + i * element, RN_DTYPE_F64, &value, 1);
    return s == RN_OK ? value : NAN;
}

static void print_result(const result *out) {
    printf("%s %s %s:", make_safe((rn_str){out->name, strlen(out->name)}).text,
           rn_shape_format(out->shape).text, rn_dtype_get(out->dtype)->name);
    for (uint64_t i = 0; i < out->elements && i < SHOWN_VALUES; i++)
        printf(" %.6g", value_at(out, i));
    printf(out->elements > SHOWN_VALUES ? " ...\n" : "\n");
}

// Of an output whose last axis is the classes, row by row.
static rn_status show_classes(const graph_run *r, const result *out, rn_json *json) {
    class_score top[MOST_TOP];
    uint64_t classes = out->shape.rank ? out->shape.dims[out->shape.rank - 1] : 0;
    size_t most = rn_settings_count(r->in->settings, "top");
    text_buffer row = {0};
    if (r->labels.count == 0 || classes != r->labels.count) return RN_OK;
    RN_TRY(reserve_text(&row, classes * sizeof(double)));
    double *values = (double *)(void *)row.data;
    if (json) rn_json_array(json, "top");
    for (uint64_t at = 0; at < out->elements; at += classes) {
        for (uint64_t i = 0; i < classes; i++)
            values[i] = value_at(out, at + i);
        size_t found = find_top(values, classes, most < MOST_TOP ? most : MOST_TOP, top);
        for (size_t i = 0; i < found; i++) {
            rn_str label = label_at(&r->labels, top[i].index);
            if (!json) {
                printf("  %5.1f %%  %s\n", top[i].chance * 100, make_safe(label).text);
                continue;
            }
            rn_json_object(json, NULL);
            rn_json_u64(json, "row", at / classes);
            rn_json_u64(json, "index", top[i].index);
            rn_json_text(json, "label", label);
            rn_json_f64(json, "chance", top[i].chance);
            rn_json_end(json);
        }
    }
    if (json) rn_json_end(json);
    free_text(&row);
    return RN_OK;
}

static rn_status write_result(const graph_run *r, const result *out, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "name", out->name);
    rn_json_string(json, "dtype", rn_dtype_get(out->dtype)->name);
    rn_json_array(json, "shape");
    for (uint32_t i = 0; i < out->shape.rank; i++)
        rn_json_u64(json, NULL, out->shape.dims[i]);
    rn_json_end(json);
    rn_json_array(json, "values");
    for (uint64_t i = 0; i < out->elements && i < SHOWN_VALUES; i++)
        rn_json_f64(json, NULL, value_at(out, i));
    rn_json_end(json);
    rn_status s = show_classes(r, out, json);
    rn_json_end(json);
    return s;
}

// --output FILE for the only output, FILE with the output's name in it for each of several, or
// NAME=FILE for one.
static rn_status save_as(const result *out, const char *option, size_t outputs) {
    const char *equals = strchr(option, '=');
    char path[4096];
    size_t name = strlen(out->name);
    if (equals && ((size_t)(equals - option) != name || strncmp(option, out->name, name) != 0))
        return RN_OK;
    const char *file = equals ? equals + 1 : option, *dot = strrchr(file, '.');
    int stem = dot ? (int)(dot - file) : (int)strlen(file);
    if (equals || outputs == 1) {
        snprintf(path, sizeof path, "%s", file);
    } else {
        snprintf(path, sizeof path, "%.*s.%s%s", stem, file, out->name, dot ? dot : "");
        for (char *at = path + stem; *at; at++)
            if (*at == '/') *at = '_'; // a name may hold one
    }
    return write_npy(path, out->dtype, out->shape, out->data.data, out->bytes);
}

static rn_status save_result(const graph_run *r, const result *out, size_t outputs) {
    const char *const *items = NULL;
    size_t count = rn_settings_list(r->in->settings, "output", &items);
    for (size_t i = 0; i < count; i++)
        RN_TRY(save_as(out, items[i], outputs));
    return RN_OK;
}

static rn_status show_results(graph_run *r, rn_json *json) {
    size_t outputs = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(r->graph); v++)
        outputs += rn_graph_value(r->graph, v)->role == RN_ROLE_OUTPUT;
    for (rn_value v = 1; v <= rn_graph_value_count(r->graph); v++) {
        const rn_value_info *info = rn_graph_value(r->graph, v);
        result out;
        if (info->role != RN_ROLE_OUTPUT) continue;
        rn_status s = get_result(r, info, &out);
        if (s == RN_OK && json) s = write_result(r, &out, json);
        if (s == RN_OK && !json) {
            print_result(&out);
            s = show_classes(r, &out, NULL);
        }
        if (s == RN_OK) s = save_result(r, &out, outputs);
        free_text(&out.data);
        RN_TRY(s);
    }
    return RN_OK;
}

// ---- what was planned ---------------------------------------------------------------------------

static void print_opening_of(const graph_run *r) {
    const rn_plan_summary *p = rn_plan_get_summary(r->plan);
    if (r->onnx) {
        const rn_onnx_info *i = rn_onnx_get_info(r->onnx);
        fprintf(stderr, "%s: ONNX, opset %lld, %llu nodes, %s parameters (%s)\n", r->name,
                (long long)i->opset, (unsigned long long)i->nodes,
                rn_count_format(i->parameters).text, rn_size_format(i->weight_bytes).text);
    } else {
        fprintf(stderr, "%s: builtin, %s\n", r->name,
                r->weights ? "weights from the file"
                           : "made-up weights (--weights FILE has real "
                             "ones)");
    }
    for (rn_value v = 1; v <= rn_graph_value_count(r->graph); v++) {
        const rn_value_info *info = rn_graph_value(r->graph, v);
        if (info->role == RN_ROLE_INPUT && !find_file(r, info->name))
            fprintf(stderr, "input %s %s %s is made up: %s\n", info->name,
                    rn_shape_format(info->shape).text, rn_dtype_get(info->dtype)->name,
                    info->dtype == RN_DTYPE_F32 ? "numbers between 0 and 1" : "zeros");
    }
    fprintf(stderr, "%s, %s planned", rn_device_target(r->device),
            rn_size_format(p->planned_bytes).text);
    if (p->streamed_bytes)
        fprintf(stderr, "; %u of %u blocks stay, %s are read for every run\n\n", p->resident_blocks,
                p->block_count, rn_size_format(p->streamed_bytes).text);
    else
        fprintf(stderr, "; all weights stay\n\n");
}

static uint64_t planned_peak(const graph_run *r) {
    uint8_t device = r->budget.own_memory ? r->budget.device_number : RN_DEVICE_HOST;
    const rn_plan_summary *p = rn_plan_get_summary(r->plan);
    uint64_t sum = 0;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (p->purpose_bytes[i] && i != RN_PURPOSE_OTHER)
            sum += rn_ledger_read(device, (rn_purpose)i).peak_bytes;
    return sum;
}

static void print_line(const char *what, const char *planned, const char *found) {
    fprintf(stderr, "  %-26s %14s %14s\n", what, planned, found);
}

static void print_facts(const graph_run *r) {
    const rn_plan_summary *p = rn_plan_get_summary(r->plan);
    rn_session_facts f = rn_session_get_facts(r->session);
    rn_process_info process;
    char a[40];
    fprintf(stderr, "\n");
    print_line("", "plan", "fact");
    for (int i = 0; i < RN_PURPOSE_COUNT; i++) {
        if (!p->purpose_bytes[i] || i == RN_PURPOSE_OTHER) continue;
        uint8_t device = r->budget.own_memory ? r->budget.device_number : RN_DEVICE_HOST;
        snprintf(a, sizeof a, "%s", rn_size_format(p->purpose_bytes[i]).text);
        print_line(rn_purpose_name((rn_purpose)i), a,
                   rn_size_format(rn_ledger_read(device, (rn_purpose)i).peak_bytes).text);
    }
    if (f.live_peak_bytes) {
        snprintf(a, sizeof a, "%s", rn_size_format(p->live_peak_bytes).text);
        print_line("in use at the peak", a, rn_size_format(f.live_peak_bytes).text);
    }
    if (!r->budget.planned_only && rn_process_read(&process) == RN_OK) {
        snprintf(a, sizeof a, "%s", rn_size_format(r->budget.total_bytes).text);
        print_line("budget, peak resident", a,
                   rn_size_format(process.resident_peak_bytes + process.page_table_bytes).text);
    }
    snprintf(a, sizeof a, "%s", rn_time_format(p->seconds).text);
    print_line("a run", a, rn_time_format(r->seconds).text);
}

static rn_status write_json(graph_run *r) {
    const rn_plan_summary *p = rn_plan_get_summary(r->plan);
    rn_session_facts f = rn_session_get_facts(r->session);
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "model", r->name);
    rn_json_string(&json, "device", rn_device_target(r->device));
    rn_json_array(&json, "outputs");
    rn_status s = show_results(r, &json);
    rn_json_end(&json);
    rn_json_u64(&json, "planned_bytes", p->planned_bytes);
    rn_json_u64(&json, "peak_bytes", planned_peak(r));
    rn_json_u64(&json, "streamed_bytes", p->streamed_bytes);
    rn_json_u64(&json, "read_bytes", f.read_bytes);
    rn_json_u64(&json, "smallest_budget_bytes", p->smallest_budget_bytes);
    rn_json_f64(&json, "predicted_seconds", p->seconds);
    rn_json_f64(&json, "seconds", r->seconds);
    rn_json_end(&json);
    RN_TRY(s);
    return rn_json_finish(&json);
}

static rn_status compute(graph_run *r) {
    bool quiet = rn_settings_bool(r->in->settings, "quiet") || r->in->json;
    if (!quiet) print_opening_of(r);
    RN_TRY(set_inputs(r));
    double start = seconds_now();
    RN_TRY(rn_session_run(r->session, r->rows));
    r->seconds = seconds_now() - start;
    if (r->in->json) return write_json(r);
    RN_TRY(show_results(r, NULL));
    if (!quiet) print_facts(r);
    return RN_OK;
}

static rn_status go(graph_run *r) {
    uint32_t threads = (uint32_t)rn_settings_count(r->in->settings, "threads");
    rn_ladder_load load = {.self = r, .attempt = try_device, .undo = leave_device};
    rn_ladder_options options = {.threads = threads,
                                 .no_fallback = !rn_settings_bool(r->in->settings, "fallback")};
    rn_ladder_target target;
    RN_TRY(read_labels(r->in, &r->labels));
    RN_TRY(read_inputs(r));
    RN_TRY(is_onnx(r->name) ? open_onnx(r) : open_builtin(r));
    RN_TRY(read_pictures(r));
    RN_TRY(find_rows(r));
    (void)use_rates(r->in, threads);
    end_opening();
    RN_TRY(parse_devices(r->in, &r->ladder));
    RN_TRY(rn_ladder_start(r->ladder, &options, &load, &target));
    return compute(r);
}

bool is_onnx(const char *path) {
    size_t bytes = strlen(path);
    return bytes > 5 && strcmp(path + bytes - 5, ".onnx") == 0;
}

// A name of a builtin model that is no text model; a file of that name comes first.
bool is_graph_model(const char *model) {
    static const char *const names[] = {"mlp", "simple", "resnet18"};
    if (is_onnx(model)) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(model, names[i]) == 0) return access(model, F_OK) != 0;
    return false;
}

rn_status run_graph(const invocation *in) {
    graph_run *r = calloc(1, sizeof *r);
    if (!r) return rn_fail(RN_NO_MEMORY, "no memory");
    r->in = in;
    r->name = in->words[0];
    rn_status s = go(r);
    rn_error_info error = *rn_last_error();
    rn_status left = r->ladder ? rn_ladder_leave(r->ladder, NULL) : RN_OK;
    rn_ladder_destroy(r->ladder);
    if (!r->onnx) rn_recipe_destroy(&r->recipe);
    rn_graph_destroy(r->built);
    rn_checkpoint_close(r->weights);
    rn_onnx_close(r->onnx);
    for (size_t i = 0; i < r->file_count; i++)
        free_text(&r->files[i].file);
    free_text(&r->labels.file);
    free(r);
    return s == RN_OK ? left : rn_error_restore(&error);
}
