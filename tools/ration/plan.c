// plan.c — ration plan: what a model needs, what lives where and when, before anything is loaded.
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SWEEP_ROWS = 9 };

typedef struct view {
    const invocation *in;
    host_budget budget;
    rn_plan_options options;
    rn_plan_options host_options; // the same, before the device's budget took the host's place
    uint64_t reserved_bytes;      // the plan, with what a generator adds
    rn_text_options text;         // of the model
    constraint_texts constraints;
    rn_model *model; // NULL for a builtin one
    rn_onnx *onnx;   // or this
    rn_recipe recipe;
    rn_ladder *ladder;
    rn_device *device; // of the target in use
    rn_plan *plan;     // NULL: a sweep, or phases
    bool phases;       // the recipe's training step and an evaluation, as a program
    rn_recipe evaluate;
    rn_program *program; // NULL: a sweep, or one plan
    bool measures;       // its rates, where none are kept
    rn_rates_source rates;
    bool sweep;
    uint32_t ranks;               // 0: this machine alone
    uint64_t room_bytes;          // with ranks: what the budget leaves for a rank's plan
    rn_plan_options rank_options; // with ranks: each one's, within the budget
    rn_device_budget rank_device_budget;
    const char *svg, *html; // files to draw; "-": standard output
} view;

// ---- one plan ---------------------------------------------------------------------------

static void print_device_budget(const view *v, uint64_t smallest) {
    const host_budget *b = &v->budget;
    const char *name = rn_device_target(v->device);
    bool no_limit = v->options.budget_bytes == RN_NO_LIMIT; // the device does not know what is free
    if (no_limit)
        printf("no budget on %s: ", name);
    else if (b->device.bytes)
        printf("budget %s on %s: ", rn_size_format(b->device.bytes).text, name);
    else
        printf("budget on %s, nine tenths of what is free: ", name);
    if (b->device.planned_only)
        printf("all of it for the plan\n");
    else
        printf("%s for the driver, %s in reserve, %s for the plan\n",
               rn_size_format(b->device_held_bytes).text,
               rn_size_format(v->options.reserved_bytes - b->device_held_bytes).text,
               no_limit ? "no limit"
                        : rn_size_format(v->options.budget_bytes - v->options.reserved_bytes).text);
    printf("The smallest that works is %s%lluMiB; the host has %s for its part.\n\n",
           b->device.planned_only ? "+" : "", (unsigned long long)((smallest + 0xfffff) >> 20),
           rn_size_format(v->options.host_budget_bytes).text);
}

static void print_budget(const view *v, uint64_t smallest) {
    const host_budget *b = &v->budget;
    if (b->own_memory) {
        print_device_budget(v, smallest);
        return;
    }
    printf("budget %s%s: ", rn_size_format(b->total_bytes).text,
           b->measured ? " (nine tenths of what is free)" : "");
    if (b->planned_only)
        printf("all of it for the plan\nThe smallest that works is +%llu (%s).\n\n",
               (unsigned long long)smallest, rn_size_format(smallest).text);
    else
        printf("%s for the process, %s in reserve, %s for the plan\n"
               "The smallest that works is %s (%llu bytes).\n\n",
               rn_size_format(v->reserved_bytes).text, rn_size_format(b->reserve_bytes).text,
               rn_size_format(b->total_bytes - b->reserve_bytes - v->reserved_bytes).text,
               rn_size_format(smallest).text, (unsigned long long)smallest);
}

static void print_rates(const view *v) {
    static const char *const texts[] = {
        "guessed rates; ration calibrate measures this machine",
        "rates measured for a tenth of a second; ration calibrate measures more exactly",
        "rates that were measured on this machine"};
    printf("\nTimes follow from %s.\n", texts[v->rates]);
}

static void write_rates(const view *v, rn_json *json) {
    rn_json_bool(json, "rates_measured", v->rates != RN_RATES_GUESSED);
    rn_json_string(json, "rates_source", rn_rates_source_name(v->rates));
}

static rn_status print_plan(const view *v, const rn_plan *plan) {
    print_budget(v, rn_plan_get_summary(plan)->smallest_budget_bytes);
    RN_TRY(rn_plan_print(plan, rn_sink_file(stdout)));
    print_rates(v);
    return RN_OK;
}

// The plan, or the program.
static rn_status write_plan(const view *v) {
    const host_budget *b = &v->budget;
    uint64_t smallest = v->program ? rn_program_get_summary(v->program)->smallest_budget_bytes
                                   : rn_plan_get_summary(v->plan)->smallest_budget_bytes;
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "device", rn_device_target(v->device));
    rn_json_u64(&json, "budget_bytes", b->own_memory ? b->device.bytes : b->total_bytes);
    rn_json_bool(&json, "planned_only", b->own_memory ? b->device.planned_only : b->planned_only);
    rn_json_u64(&json, "unaccounted_bytes", b->unaccounted_bytes);
    rn_json_u64(&json, "reserve_bytes", b->reserve_bytes);
    rn_json_u64(&json, "smallest_budget_bytes", smallest);
    write_rates(v, &json);
    if (rn_ladder_count(v->ladder) > 1)
        rn_json_check(&json, rn_ladder_json(v->ladder, rn_json_embed(&json, "ladder")));
    if (v->program)
        rn_json_check(&json, rn_program_json(v->program, rn_json_embed(&json, "program")));
    else
        rn_json_check(&json, rn_plan_json(v->plan, rn_json_embed(&json, "plan")));
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static bool is_stdout(const char *path) {
    return strcmp(path, "-") == 0;
}

typedef rn_status (*picture)(const view *v, rn_sink sink);

static rn_status write_svg(const view *v, rn_sink sink) {
    return v->program ? rn_program_svg(v->program, sink) : rn_plan_svg(v->plan, sink);
}

static rn_status write_html(const view *v, rn_sink sink) {
    return v->program ? rn_program_html(v->program, sink) : rn_plan_html(v->plan, sink);
}

static rn_status draw(const view *v, const char *path, picture write) {
    if (!path[0]) return RN_OK;
    if (is_stdout(path)) return write(v, rn_sink_file(stdout));
    FILE *file = fopen(path, "w");
    if (!file) return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    rn_status s = write(v, rn_sink_file(file));
    if (fclose(file) != 0 && s == RN_OK) s = rn_fail(RN_IO, "cannot write: %s", strerror(errno));
    return rn_error_locate(s, path, RN_NO_OFFSET);
}

static rn_status print_program(const view *v) {
    print_budget(v, rn_program_get_summary(v->program)->smallest_budget_bytes);
    RN_TRY(rn_program_print(v->program, rn_sink_file(stdout)));
    print_rates(v);
    return RN_OK;
}

static rn_status show(const view *v) {
    RN_TRY(draw(v, v->svg, write_svg));
    RN_TRY(draw(v, v->html, write_html));
    if (is_stdout(v->svg) || is_stdout(v->html)) return RN_OK;
    if (v->in->json) return write_plan(v);
    return v->program ? print_program(v) : print_plan(v, v->plan);
}

static bool embeds(const view *v) {
    return v->model && rn_model_get_info(v->model)->encoder;
}

static rn_embedding_options embedding_options(const view *v) {
    return (rn_embedding_options){.text_tokens = v->text.context,
                                  .rows = v->text.rows,
                                  .unquantised_activations = v->text.unquantised_activations};
}

static rn_status plan_embedder(const view *v, rn_plan **out) {
    rn_embedder_options options = {.text = embedding_options(v),
                                   .plan = v->host_options,
                                   .device_budget = v->budget.device,
                                   .session = {.device = v->device}};
    return rn_embedder_predict(v->model, &options, out);
}

// A text model's as a generator would have it, which has structures of its own beside the plan.
static rn_status make_plan(const view *v, rn_plan **out) {
    if (embeds(v)) return plan_embedder(v, out);
    if (!v->model) {
        rn_plan_options own = v->options;
        own.host_caps = rn_cpu_caps(); // as a generator's plan has it
        return rn_plan_make(&v->recipe, rn_device_get_caps(v->device), &own, out);
    }
    rn_generator_options options = {.text = v->text,
                                    .plan = v->host_options,
                                    .device_budget = v->budget.device,
                                    .session = {.device = v->device},
                                    .speculation = read_speculation(v->in)};
    return rn_generator_predict(v->model, &options, out);
}

// What is held beside the plan of a model, with the generator's own: the smallest budget has it.
static uint64_t find_beside(const view *v, const rn_plan *plan) {
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    if (v->budget.own_memory) return v->options.reserved_bytes;
    if (!v->host_options.with_reserve) return 0;
    return rn_budget_usable(s->smallest_budget_bytes) - s->smallest_bytes;
}

enum { PHASES = 2 };

static void list_phases(const view *v, rn_program_phase out[PHASES]) {
    out[0] = (rn_program_phase){.name = "step", .recipe = &v->recipe};
    out[1] = (rn_program_phase){.name = "evaluate", .recipe = &v->evaluate};
}

static rn_status plan_once(view *v) {
    rn_program_phase phases[PHASES];
    if (v->phases) {
        list_phases(v, phases);
        v->reserved_bytes = v->options.reserved_bytes;
        return rn_program_make(phases, PHASES, rn_device_get_caps(v->device), &v->options,
                               &v->program);
    }
    RN_TRY(make_plan(v, &v->plan));
    v->reserved_bytes = find_beside(v, v->plan);
    return RN_OK;
}

// ---- the sweep --------------------------------------------------------------------------

typedef struct cell {
    char text[32];
} cell;

static cell count(uint64_t n) {
    cell out;
    snprintf(out.text, sizeof out.text, "%llu", (unsigned long long)n);
    return out;
}

static cell size(uint64_t bytes) {
    cell out;
    snprintf(out.text, sizeof out.text, "%s", rn_size_format(bytes).text);
    return out;
}

static cell time_cell(const rn_plan_summary *s) {
    cell out;
    snprintf(out.text, sizeof out.text, "%s", rn_time_format(s->seconds).text);
    return out;
}
static cell planned_cell(const rn_plan_summary *s) {
    return size(s->planned_bytes);
}
static cell rows_cell(const rn_plan_summary *s) {
    return s->rows ? count(s->rows) : (cell){"-"};
}
static cell resident_cell(const rn_plan_summary *s) {
    cell out;
    snprintf(out.text, sizeof out.text, "%u/%u", s->resident_blocks, s->block_count);
    return out;
}
static cell read_cell(const rn_plan_summary *s) {
    return s->streamed_bytes ? size(s->streamed_bytes) : (cell){"-"};
}
static cell slots_cell(const rn_plan_summary *s) {
    cell out = {"-"};
    if (s->expert_layers) snprintf(out.text, sizeof out.text, "%u/%u", s->expert_slots, s->experts);
    return out;
}
static cell experts_cell(const rn_plan_summary *s) {
    return s->expert_layers ? size(s->expert_read_bytes) : (cell){"-"};
}
static cell rate_cell(const rn_plan_summary *s) {
    cell out = {"-"};
    if (s->expert_layers && s->decode_seconds > 0)
        snprintf(out.text, sizeof out.text, "%.1f", 1 / s->decode_seconds);
    return out;
}
static cell recomputed_cell(const rn_plan_summary *s) {
    return s->recomputed_blocks ? count(s->recomputed_blocks) : (cell){"-"};
}
static cell micro_cell(const rn_plan_summary *s) {
    return s->micro_batches > 1 ? count(s->micro_batches) : (cell){"-"};
}
static cell states_cell(const rn_plan_summary *s) {
    return s->host_states ? size(s->host_state_bytes) : (cell){"-"};
}
static cell saved_cell(const rn_plan_summary *s) {
    return s->host_saved ? size(s->host_saved_bytes) : (cell){"-"};
}

// A column of dashes is not printed.
static const struct column {
    const char *name;
    int width;
    cell (*write)(const rn_plan_summary *s);
} columns[] = {
    {"planned", 10, planned_cell},
    {"time", 10, time_cell},
    {"rows a run", 12, rows_cell},
    {"read a run", 12, read_cell},
    {"resident blocks", 17, resident_cell},
    {"expert slots", 14, slots_cell},
    {"experts a row", 15, experts_cell},
    {"rows a second", 15, rate_cell},
    {"recomputed blocks", 19, recomputed_cell},
    {"micro-batches", 15, micro_cell},
    {"states on host", 16, states_cell},
    {"saved on host", 15, saved_cell},
};
enum { COLUMN_COUNT = sizeof columns / sizeof *columns };

static bool is_used(const struct column *column, const rn_sweep_row *rows) {
    for (int i = 0; i < SWEEP_ROWS; i++)
        if (strcmp(column->write(&rows[i].summary).text, "-") != 0) return true;
    return false;
}

static uint64_t whole_budget(const view *v, uint64_t plan_bytes) {
    uint64_t bytes = plan_bytes + v->reserved_bytes;
    return v->options.with_reserve ? rn_budget_needed(bytes) : bytes;
}

static void print_sweep(const view *v, const rn_sweep_row *rows) {
    printf("%s: from the smallest budget that works to all it can use\n\n%12s", v->recipe.name,
           "budget");
    for (int c = 0; c < COLUMN_COUNT; c++)
        if (is_used(&columns[c], rows)) printf("%*s", columns[c].width, columns[c].name);
    for (int i = 0; i < SWEEP_ROWS; i++) {
        printf("\n%12s", rn_size_format(whole_budget(v, rows[i].budget_bytes)).text);
        for (int c = 0; c < COLUMN_COUNT; c++)
            if (is_used(&columns[c], rows))
                printf("%*s", columns[c].width, columns[c].write(&rows[i].summary).text);
    }
    printf("\n");
    print_rates(v);
}

static void write_row(const view *v, const rn_sweep_row *row, rn_json *json) {
    const rn_plan_summary *s = &row->summary;
    rn_json_object(json, NULL);
    rn_json_u64(json, "budget_bytes", whole_budget(v, row->budget_bytes));
    rn_json_u64(json, "plan_budget_bytes", row->budget_bytes);
    rn_json_u64(json, "planned_bytes", s->planned_bytes);
    rn_json_f64(json, "seconds", s->seconds);
    rn_json_u64(json, "blocks", s->block_count);
    rn_json_u64(json, "resident_blocks", s->resident_blocks);
    rn_json_u64(json, "recomputed_blocks", s->recomputed_blocks);
    rn_json_u64(json, "rows", s->rows);
    rn_json_u64(json, "micro_batches", s->micro_batches);
    rn_json_u64(json, "streamed_bytes", s->streamed_bytes);
    rn_json_f64(json, "decode_seconds", s->decode_seconds);
    if (s->expert_layers) {
        rn_json_u64(json, "expert_slots", s->expert_slots);
        rn_json_u64(json, "expert_slot_bytes", s->expert_slot_bytes);
        rn_json_u64(json, "expert_read_bytes", s->expert_read_bytes);
        rn_json_f64(json, "decode_least_seconds", s->decode_least_seconds);
        rn_json_f64(json, "decode_most_seconds", s->decode_most_seconds);
    }
    rn_json_u64(json, "host_state_bytes", s->host_state_bytes);
    rn_json_u64(json, "host_saved_bytes", s->host_saved_bytes);
    rn_json_end(json);
}

static rn_status write_sweep(const view *v, const rn_sweep_row *rows) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "model", v->recipe.name);
    write_rates(v, &json);
    rn_json_array(&json, "sweep");
    for (int i = 0; i < SWEEP_ROWS; i++)
        write_row(v, &rows[i], &json);
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// With no limit, only to learn what is held beside it.
static rn_status measure_beside(view *v) {
    rn_plan *plan = NULL;
    v->reserved_bytes = v->options.reserved_bytes;
    if (!v->model || v->budget.own_memory) return RN_OK;
    v->host_options.budget_bytes = RN_NO_LIMIT;
    RN_TRY(make_plan(v, &plan));
    v->reserved_bytes = find_beside(v, plan);
    rn_plan_destroy(plan);
    return RN_OK;
}

static void print_phases_sweep(const view *v, const rn_program_sweep_row *rows) {
    printf("%s and its evaluation: from the smallest budget that works to all they can use\n\n"
           "%12s%12s%12s%12s",
           v->recipe.name, "budget", "planned", "shared", "time");
    for (int i = 0; i < SWEEP_ROWS; i++)
        printf("\n%12s%12s%12s%12s", rn_size_format(whole_budget(v, rows[i].budget_bytes)).text,
               rn_size_format(rows[i].summary.planned_bytes).text,
               rn_size_format(rows[i].summary.shared_bytes).text,
               rn_time_format(rows[i].summary.seconds).text);
    printf("\n");
    print_rates(v);
}

static rn_status write_phases_sweep(const view *v, const rn_program_sweep_row *rows) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "model", v->recipe.name);
    write_rates(v, &json);
    rn_json_array(&json, "sweep");
    for (int i = 0; i < SWEEP_ROWS; i++) {
        rn_json_object(&json, NULL);
        rn_json_u64(&json, "budget_bytes", whole_budget(v, rows[i].budget_bytes));
        rn_json_u64(&json, "plan_budget_bytes", rows[i].budget_bytes);
        rn_json_u64(&json, "planned_bytes", rows[i].summary.planned_bytes);
        rn_json_u64(&json, "shared_bytes", rows[i].summary.shared_bytes);
        rn_json_f64(&json, "seconds", rows[i].summary.seconds);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status sweep_phases(const view *v, const rn_plan_options *options) {
    rn_program_phase phases[PHASES];
    rn_program_sweep_row rows[SWEEP_ROWS];
    list_phases(v, phases);
    RN_TRY(
        rn_program_sweep(phases, PHASES, rn_device_get_caps(v->device), options, rows, SWEEP_ROWS));
    if (v->in->json) return write_phases_sweep(v, rows);
    print_phases_sweep(v, rows);
    return RN_OK;
}

static rn_status sweep(view *v) {
    rn_sweep_row rows[SWEEP_ROWS];
    RN_TRY(measure_beside(v));
    rn_plan_options options = v->options;
    options.budget_bytes = options.reserved_bytes = options.least_budget_bytes = 0;
    options.with_reserve = false;
    if (v->phases) return sweep_phases(v, &options);
    RN_TRY(rn_plan_sweep(&v->recipe, rn_device_get_caps(v->device), &options, rows, SWEEP_ROWS));
    if (v->in->json) return write_sweep(v, rows);
    print_sweep(v, rows);
    return RN_OK;
}

// ---- running ----------------------------------------------------------------------------

// What a run holds beside the plan: files of all inputs, which it reads before it opens the model.
static uint64_t onnx_room(const view *v) {
    enum { FILE_BYTES = 4096 }; // the most that is held of a file beside its values
    const rn_graph *graph = rn_onnx_graph(v->onnx);
    uint64_t files = 0, bytes;
    for (rn_value i = 1; i <= rn_graph_value_count(graph); i++) {
        const rn_value_info *info = rn_graph_value(graph, i);
        uint64_t elements = rn_shape_elements(info->shape, v->recipe.rows);
        if (info->role == RN_ROLE_INPUT && rn_dtype_bytes(info->dtype, elements, &bytes))
            files += bytes + FILE_BYTES;
    }
    raise_opening(files);
    return files + graph_room(graph, v->recipe.rows);
}

static uint64_t plan_room(const view *v) {
    const rn_plan_options *o = &v->options;
    uint64_t usable = o->with_reserve ? rn_budget_usable(o->budget_bytes) : o->budget_bytes;
    return usable > o->reserved_bytes ? usable - o->reserved_bytes : 0;
}

static rn_status read_options(view *v) {
    const rn_settings *settings = v->in->settings;
    uint64_t room = v->model ? text_room(v->model, &v->text, 0) : 0;
    if (v->onnx) room = onnx_room(v);
    RN_TRY(read_budget(v->in, v->device, room, &v->budget));
    use_budget(&v->budget, &v->options);
    RN_TRY(read_constraints(v->in, &v->constraints, &v->options));
    RN_TRY(read_experts(v->in, &v->constraints, &v->options));
    v->options.exact = rn_settings_bool(settings, "exact");
    v->options.allow_lossy = rn_settings_bool(settings, "allow-lossy");
    v->host_options = v->options;
    RN_TRY(rn_plan_options_for(v->device, &v->budget.device, &v->options));
    if (!v->ranks) return RN_OK;
    // What ranks divide is all of the model: the budget says afterwards what fits.
    v->rank_options = v->host_options;
    v->rank_device_budget = v->budget.device;
    v->room_bytes = plan_room(v);
    v->options.budget_bytes = v->host_options.budget_bytes = RN_NO_LIMIT;
    v->budget.device.bytes = 0;
    return RN_OK;
}

// A run holds a tokenizer, too. One that cannot be read is none of a plan's business.
static rn_status open_model(view *v, rn_model_options *options) {
    const char *path = v->in->words[0];
    rn_status s = rn_model_open(path, options, &v->model);
    if (s == RN_OK || s == RN_OVER_BUDGET || s == RN_NO_MEMORY || options->tokenizer_path) return s;
    rn_error_info error = *rn_last_error();
    options->without_tokenizer = true;
    if (rn_model_open(path, options, &v->model) != RN_OK) return rn_error_restore(&error);
    fprintf(stderr, "planned without a tokenizer: %s\n", error.message);
    return RN_OK;
}

static rn_status open_onnx(view *v) {
    enum { MOST_DIMS = 64 };
    rn_onnx_dim dims[MOST_DIMS];
    char names[MOST_DIMS][128];
    const char *weights = rn_settings_text(v->in->settings, "weights");
    rn_onnx_options options = {.dims = dims, .weights = weights[0] ? weights : NULL};
    RN_TRY(read_dims(v->in, dims, names, MOST_DIMS, &options.dim_count));
    return rn_onnx_open(v->in->words[0], &options, &v->onnx);
}

// A path that exists is a model's files; anything else must be the name of a builtin one.
static rn_status open_files(view *v) {
    if (is_onnx(v->in->words[0])) return open_onnx(v);
    rn_adapter adapters[MAX_ADAPTERS];
    char paths[MAX_ADAPTERS][4096];
    const char *tokenizer = rn_settings_text(v->in->settings, "tokenizer");
    rn_model_options options = {.adapters = adapters,
                                .tokenizer_path = tokenizer[0] ? tokenizer : NULL};
    RN_TRY(read_adapters(v->in, adapters, paths, &options.adapter_count));
    RN_TRY(read_text_options(v->in, &v->text));
    return open_model(v, &options);
}

// Of "NAME:train", or "NAME:train=OPTIMIZER", the evaluation.
static rn_status make_evaluation(view *v) {
    char name[64];
    const char *model = v->in->words[0], *train = strstr(model, ":train");
    if (v->model || !train)
        return rn_hint(rn_fail(RN_INVALID, "--phases is for a builtin model's training step"),
                       "give it a name such as llama:2x64:train");
    snprintf(name, sizeof name, "%.*s:evaluate", (int)(train - model), model);
    return rn_builtin_recipe(name, &v->evaluate);
}

static rn_status make_recipe(view *v) {
    if (v->phases) RN_TRY(make_evaluation(v));
    if (v->onnx) return rn_onnx_make_recipe(v->onnx, 0, &v->recipe);
    if (!v->model) return rn_builtin_recipe(v->in->words[0], &v->recipe);
    if (embeds(v)) {
        rn_embedding_options options = embedding_options(v);
        return rn_model_make_embedding_recipe(v->model, &options, &v->recipe);
    }
    return rn_model_make_recipe(v->model, &v->text, &v->recipe);
}

// On one target of the ladder.
static rn_status try_device(void *self, const rn_ladder_target *target) {
    view *v = self;
    v->device = target->device;
    v->rates = rn_rates_apply(v->device);
    if (!v->model)
        RN_TRY(make_recipe(v)); // an unknown name comes before what is wrong with options
    RN_TRY(read_options(v));
    if (v->model) RN_TRY(make_recipe(v)); // a run has none yet when it counts what it holds
    return v->sweep ? RN_OK : plan_once(v);
}

// Only for a plan that fits, within what the budget leaves it.
static rn_status measure_rates(view *v) {
    rn_rates_quick_options quick = {0};
    rn_rates_source before = v->rates;
    if (!v->measures) return RN_OK;
    if (v->options.reserved_bytes) quick.room_bytes = plan_room(v);
    if (v->model) quick.checkpoint = rn_model_weights(v->model).checkpoint;
    v->rates = rn_rates_measure_quick(v->device, &quick);
    if (v->sweep || v->rates == before) return RN_OK;
    rn_plan_destroy(v->plan);
    rn_program_destroy(v->program);
    v->plan = NULL;
    v->program = NULL;
    return plan_once(v);
}

static void leave_device(void *self) {
    view *v = self;
    rn_plan_destroy(v->plan);
    rn_program_destroy(v->program);
    rn_recipe_destroy(&v->recipe);
    rn_recipe_destroy(&v->evaluate);
    v->plan = NULL;
    v->program = NULL;
    v->recipe = v->evaluate = (rn_recipe){0};
}

static rn_status start(view *v, uint32_t threads) {
    rn_ladder_load load = {.self = v, .attempt = try_device, .undo = leave_device};
    rn_ladder_options options = {.threads = threads,
                                 .no_fallback = !rn_settings_bool(v->in->settings, "fallback")};
    rn_ladder_target target;
    end_opening();
    RN_TRY(parse_devices(v->in, &v->ladder));
    RN_TRY(rn_ladder_start(v->ladder, &options, &load, &target));
    RN_TRY(measure_rates(v));
    if (v->ranks) {
        rn_generator_options each = {.text = v->text,
                                     .plan = v->rank_options,
                                     .device_budget = v->rank_device_budget,
                                     .session = {.device = v->device},
                                     .split = read_split(v->in)};
        return show_ranks(v->in, v->plan, v->model, &each, v->room_bytes);
    }
    return v->sweep ? sweep(v) : show(v);
}

// Where --ranks has an answer: a text model's tokens, a builtin training step.
static rn_status check_ranks(const view *v) {
    if (!v->ranks) return RN_OK;
    const char *use = rn_settings_text(v->in->settings, "for");
    bool other = v->sweep || v->phases || v->svg[0] || v->html[0] || v->in->config_word ||
                 strcmp(use, "image") == 0 || strcmp(use, "serve") == 0;
    bool known = v->model ? !embeds(v) : !v->onnx && strstr(v->in->words[0], ":train");
    if (known && !other) return RN_OK;
    return rn_hint(
        rn_fail(RN_INVALID, "--ranks is for one plan of a text model or of a training "
                            "step"),
        "ration plan models/llama --ranks 4, or ration plan llama:32x4096:train --ranks 64");
}

static rn_status check_outputs(const view *v) {
    if (v->sweep && (v->svg[0] || v->html[0]))
        return rn_hint(rn_fail(RN_INVALID, "a sweep makes no picture"),
                       "draw one plan, with --budget");
    if (is_stdout(v->svg) + is_stdout(v->html) + v->in->json > 1)
        return rn_hint(rn_fail(RN_INVALID, "standard output takes one of --svg, --html and --json"),
                       "give the others a file");
    return RN_OK;
}

// A flag that bench gives a value.
static bool is_set(const rn_settings *settings, const char *name) {
    const char *text = rn_settings_text(settings, name);
    return text[0] && strcmp(text, "false") != 0;
}

static rn_status run(const invocation *in) {
    const rn_settings *settings = in->settings;
    view v = {.in = in,
              .sweep = is_set(settings, "sweep"),
              .phases = rn_settings_bool(settings, "phases"),
              .ranks = (uint32_t)rn_settings_count(settings, "ranks"),
              .svg = rn_settings_text(settings, "svg"),
              .html = rn_settings_text(settings, "html")};
    RN_TRY(check_outputs(&v));
    if (in->config_word) return v.ranks ? check_ranks(&v) : plan_training(in);
    if (strcmp(rn_settings_text(settings, "for"), "image") == 0) return plan_image(in);
    if (strcmp(rn_settings_text(settings, "for"), "serve") == 0) return plan_server(in);
    uint32_t threads = (uint32_t)rn_settings_count(settings, "threads");
    v.measures = use_rates(in, threads);
    rn_status s = access(in->words[0], F_OK) == 0 ? open_files(&v) : RN_OK;
    if (s == RN_OK) s = check_ranks(&v);
    if (s == RN_OK) s = start(&v, threads);
    rn_error_info error = *rn_last_error();
    rn_status left = v.ladder ? rn_ladder_leave(v.ladder, NULL) : RN_OK;
    rn_ladder_destroy(v.ladder);
    rn_model_close(v.model);
    rn_onnx_close(v.onnx);
    return s == RN_OK ? left : rn_error_restore(&error);
}

const command plan_command = {
    .takes_model = true,
    .name = "plan",
    .usage = "plan MODEL|CONFIG.toml [options]",
    .summary = "what a model needs and what would lie where, within a budget",
    .about =
        "MODEL is a Hugging Face folder, a GGUF or an ONNX file, or one of mlp, simple, resnet18 "
        "and\n"
        "llama:LAYERSxDIM[:DTYPE] (llama:32x4096, llama:32x4096:q4_0), each with :train at its\n"
        "end for a training step (:train=OPTIMIZER for another than adamw), llama and mlp also\n"
        "with :evaluate for its batch's loss alone. Only headers are read; nothing is loaded.\n"
        "Prints what is held at the peak by purpose, the moves that make it fit (weights that are\n"
        "read from disk in every run, fewer rows at once, recomputing, micro-batches) with their\n"
        "reasons, the largest buffers and the predicted time. A row is what a model takes many of\n"
        "at once: an image, a token. Where nothing fits, the exit code is 4, and the smallest\n"
        "budget that would do is named. --budget +SIZE counts planned bytes only, without the\n"
        "program itself. CONFIG.toml: the phases of the training that its [train] describes.\n"
        "--ranks N --link 5us,12.5GB: the same on N machines, on paper: bytes, traffic and time "
        "of\n"
        "a pipeline and of tensor parallelism, or of data parallelism and ZeRO, and what is "
        "assumed.",
    .example = "ration plan resnet18 --budget 60MiB --html plan.html",
    .min_words = 1,
    .max_words = 1,
    .limits_memory = true,
    .takes_config = true,
    .run = run,
};
