// bench.c — ration bench: one model over many variants, side by side.
#include "command.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_VARIANTS = 512,
    MOST_BATCHES = 16,
    MOST_ARGUMENTS = 64,
    SWEEP_BUDGETS = 8,
    GATE_PROCESSES = 30, // --compare
    GATE_TURNS = 60      // --against
};

typedef struct bench_run {
    const invocation *in;
    rn_bench_options options;
    rn_bench_name names[MOST_VARIANTS];
    char asked[MOST_VARIANTS][64];
    size_t name_count;
    uint64_t batches[MOST_BATCHES];
    size_t batch_count;
    rn_bench_variant variants[MOST_VARIANTS];
    size_t count;
    const char *arguments[MOST_ARGUMENTS];
    size_t argument_count;
    rn_bench_options other; // --against: its model, program, parameters
    rn_bench_results *before, *results;
    bool terminal;
} bench_run;

// ---- options ------------------------------------------------------------------------------------

static rn_status read_numbers(const char *text, uint64_t *out, size_t room, size_t *out_count) {
    *out_count = 0;
    for (const char *at = text; *at;) {
        char *end;
        unsigned long long value = strtoull(at, &end, 10);
        if (end == at || value == 0 || value > 1u << 20 || (*end && *end != ',') ||
            *out_count == room)
            return rn_fail(RN_INVALID, "--batch %s is no list of numbers from 1 on", text);
        out[(*out_count)++] = value;
        at = end + (*end == ',');
    }
    return *out_count ? RN_OK : rn_fail(RN_INVALID, "--batch is empty");
}

static rn_status read_samples(const char *text, rn_bench_options *out) {
    char *end;
    if (strcmp(text, "auto") == 0) return RN_OK;
    out->document_samples = strcmp(text, "document") == 0;
    if (out->document_samples) return RN_OK;
    out->samples = strtoull(text, &end, 10);
    if (!*end && out->samples && *text != '-') return RN_OK;
    return rn_fail(RN_INVALID, "--samples %s is neither auto, document nor a number", text);
}

static rn_status read_bytes(const invocation *in, const char *option, uint64_t *out) {
    const char *text = rn_settings_text(in->settings, option);
    rn_budget_spec spec;
    if (!text[0]) return RN_OK;
    RN_TRY(rn_budget_parse((rn_str){text, strlen(text)}, &spec));
    if (spec.count != 1 || spec.entries[0].planned_only)
        return rn_fail(RN_INVALID, "--%s %s: one size, of each variant's process or device", option,
                       text);
    *out = spec.entries[0].bytes;
    return RN_OK;
}

static void add_argument(bench_run *b, const char *option, const char *value) {
    if (b->argument_count + 3 > MOST_ARGUMENTS) return;
    b->arguments[b->argument_count++] = option;
    b->arguments[b->argument_count++] = value;
}

// --sweep=batch, or --sweep batch: then the second word is the flag's.
static rn_status read_sweep(const invocation *in, const char **out_model, const char **out_sweep) {
    static const char *const kinds[] = {"budget", "batch"};
    const char *given = rn_settings_text(in->settings, "sweep");
    bool is_set = given[0] && strcmp(given, "false") != 0;
    for (size_t k = 0; k < 2 && is_set; k++) {
        if (strcmp(given, kinds[k]) == 0 && in->word_count == 1) *out_sweep = kinds[k];
        for (size_t i = 0; i < in->word_count && in->word_count == 2; i++) {
            if (strcmp(given, "true") != 0 || strcmp(in->words[i], kinds[k]) != 0) continue;
            *out_model = in->words[1 - i];
            *out_sweep = kinds[k];
        }
    }
    if (*out_sweep || (!is_set && in->word_count == 1)) return RN_OK;
    if (!is_set) return rn_fail(RN_INVALID, "one model, not also %s", in->words[1]);
    return rn_fail(RN_INVALID, "--sweep budget or --sweep batch");
}

static rn_status read_options(bench_run *b) {
    static const double tier_seconds[] = {1, 2, 5};
    const rn_settings *s = b->in->settings;
    rn_bench_options *o = &b->options;
    const char *const *inputs = NULL, *tier = rn_settings_text(s, "tier");
    const char *seconds = rn_settings_text(s, "sample-time"),
               *base = rn_settings_text(s, "baseline");
    *o = (rn_bench_options){.model = b->in->words[0],
                            .cancel = &interrupt_flag,
                            .threads = (uint32_t)rn_settings_count(s, "threads"),
                            .limit_bytes = rn_settings_size(s, "memory-limit"),
                            .sample_s = tier_seconds[tier[0] - '1']};
    o->tier = rn_settings_list(s, "variants", &inputs) ? NULL : tier;
    if (base[0]) o->baseline = base;
    o->processes = rn_settings_count(s, "processes");
    // A gate has to know how much two processes differ that measure the same: many short ones.
    bool turns = bench_has_other(b->in);
    if (turns || o->processes > 1) o->sample_s /= turns ? 10 : 5;
    if (!o->processes && turns) o->processes = GATE_TURNS;
    if (!o->processes && rn_settings_text(s, "fail-if-slower")[0]) {
        o->processes = GATE_PROCESSES;
        o->sample_s /= 5;
    }
    RN_TRY(read_sweep(b->in, &o->model, &o->sweep));
    RN_TRY(read_numbers(rn_settings_text(s, "batch"), b->batches, MOST_BATCHES, &b->batch_count));
    RN_TRY(read_samples(rn_settings_text(s, "samples"), o));
    RN_TRY(parse_time("timeout", rn_settings_text(s, "timeout"), &o->timeout_s));
    if (seconds[0]) RN_TRY(parse_time("sample-time", seconds, &o->sample_s));
    RN_TRY(read_bytes(b->in, "budget", &o->budget_bytes));
    size_t count = rn_settings_list(s, "input", &inputs);
    for (size_t i = 0; i < count; i++)
        add_argument(b, "--input", inputs[i]);
    if (rn_settings_text(s, "weights")[0])
        add_argument(b, "--weights", rn_settings_text(s, "weights"));
    o->arguments = b->arguments;
    return RN_OK;
}

// ---- variants -----------------------------------------------------------------------------------

static bool is_text_model(const char *name) {
    size_t bytes = strlen(name);
    bool onnx = bytes > 5 && strcmp(name + bytes - 5, ".onnx") == 0;
    return access(name, F_OK) == 0 && !onnx;
}

// A device of the list: "cuda" is "cuda:0".
static bool is_listed(const char *list, const char *target) {
    while (*list) {
        size_t bytes = strcspn(list, ",");
        if (strncmp(list, target, bytes) == 0 &&
            (!target[bytes] || strcmp(target + bytes, ":0") == 0))
            return true;
        list += bytes + (list[bytes] == ',');
    }
    return false;
}

static rn_status add_name(bench_run *b, rn_str text, const char *devices) {
    rn_bench_name *name = &b->names[b->name_count];
    if (b->name_count == MOST_VARIANTS)
        return rn_fail(RN_INVALID, "more than %d variants", MOST_VARIANTS);
    RN_TRY(rn_bench_name_parse(text, name));
    if (devices[0] && !is_listed(devices, name->target))
        return rn_hint(rn_fail(RN_INVALID, "%s runs on %s, and --device says %s", name->name,
                               name->target, devices),
                       "a variant's name has its device: leave one of both out");
    snprintf(b->asked[b->name_count++], sizeof b->asked[0], "%.*s", RN_STR_ARG(text));
    return RN_OK;
}

static uint64_t count_weights(const rn_graph *graph) {
    uint64_t count = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (rn_graph_value(graph, v)->role == RN_ROLE_WEIGHT)
            count += rn_shape_elements(rn_graph_value(graph, v)->shape, 1);
    return count;
}

// From headers alone; also what says, before anything runs, that there is no such model.
static rn_status find_parameters(rn_bench_options *options) {
    const char *name = options->model;
    size_t bytes = strlen(name);
    rn_model *model = NULL;
    rn_onnx *onnx = NULL;
    rn_graph *graph = NULL;
    rn_recipe recipe = {.self = NULL};
    rn_status s;
    if (bytes > 5 && strcmp(name + bytes - 5, ".onnx") == 0) {
        s = rn_onnx_open(name, NULL, &onnx);
        if (s == RN_OK) options->parameters = rn_onnx_get_info(onnx)->parameters;
    } else if (is_text_model(name)) {
        s = rn_model_open(name, &(rn_model_options){.without_tokenizer = true}, &model);
        if (s == RN_OK) options->parameters = rn_model_get_info(model)->parameters;
    } else {
        s = rn_builtin_recipe(name, &recipe);
        if (s == RN_OK) s = recipe.build(recipe.self, NULL, &graph);
        if (s == RN_OK) options->parameters = count_weights(graph);
    }
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    rn_onnx_close(onnx);
    rn_model_close(model);
    return s;
}

static rn_status read_variants(bench_run *b) {
    const char *const *items = NULL, *devices = rn_settings_text(b->in->settings, "device");
    size_t count = rn_settings_list(b->in->settings, "variants", &items);
    for (size_t i = 0; i < count; i++)
        for (const char *at = items[i]; *at;) {
            size_t bytes = strcspn(at, ",");
            RN_TRY(add_name(b, (rn_str){at, bytes}, devices));
            at += bytes + (at[bytes] == ',');
        }
    if (count) return RN_OK;
    rn_bench_name tier[64];
    uint32_t number = (uint32_t)(rn_settings_text(b->in->settings, "tier")[0] - '0');
    size_t found = rn_bench_tier(number, NULL, is_text_model(b->options.model), tier, 64);
    for (size_t i = 0; i < found; i++)
        if (!devices[0] || is_listed(devices, tier[i].target))
            RN_TRY(add_name(b, (rn_str){tier[i].name, strlen(tier[i].name)}, ""));
    if (b->name_count) return RN_OK;
    return rn_fail(RN_DEVICE, "none of %s is here", devices);
}

static rn_status add_variant(bench_run *b, size_t name, uint64_t batch, uint64_t budget) {
    if (b->count == MOST_VARIANTS)
        return rn_fail(RN_INVALID, "more than %d variants", MOST_VARIANTS);
    b->variants[b->count++] =
        (rn_bench_variant){.name = b->asked[name], .batch = batch, .budget_bytes = budget};
    return RN_OK;
}

// Each variant at each batch.
static rn_status list_variants(bench_run *b) {
    static const uint64_t batches[] = {1, 2, 4, 8, 16, 32};
    const char *sweep = b->options.sweep;
    if (sweep && strcmp(sweep, "batch") == 0 && b->batch_count == 1) {
        memcpy(b->batches, batches, sizeof batches);
        b->batch_count = 6;
    }
    for (size_t i = 0; i < b->name_count; i++)
        for (size_t k = 0; k < b->batch_count; k++)
            RN_TRY(add_variant(b, i, b->batches[k], 0));
    return RN_OK;
}

// ---- telling ------------------------------------------------------------------------------------

static void show_progress(void *self, const rn_bench_progress *p) {
    bench_run *b = self;
    if (p->ended && !b->terminal)
        fprintf(stderr, "%zu/%zu %s%s: %s\n", p->index + 1, p->count, p->name,
                p->is_before ? " (before)" : "", rn_bench_outcome_name(p->result->outcome));
    if (!b->terminal) return;
    fprintf(stderr, "\r\033[K");
    if (p->ended) return;
    fprintf(stderr, "%zu/%zu %s%s: %s", p->index + 1, p->count, p->name,
            p->is_before ? " (before)" : "", p->stage[0] ? p->stage : "starting");
    if (p->samples)
        fprintf(stderr, ", %llu samples, median %s", (unsigned long long)p->samples,
                rn_time_format(p->p50_s).text);
    if (!isnan(p->left_s)) fprintf(stderr, ", about %.0f s left", p->left_s);
    fflush(stderr);
}

static rn_status write_file(const rn_bench_results *all, const char *path) {
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!file)
        return rn_error_locate(rn_fail(RN_IO, "%s cannot be written", path), path, RN_NO_OFFSET);
    rn_status s = rn_bench_results_write(all, rn_sink_file(file));
    if (file != stdout && fclose(file) != 0 && s == RN_OK)
        s = rn_error_locate(rn_fail(RN_IO, "%s cannot be written", path), path, RN_NO_OFFSET);
    return s;
}

// ---- running ------------------------------------------------------------------------------------

// Budgets between what the variant takes and a tenth of its plan, above what its process takes
// without one: refusals below the smallest are results, too.
static rn_status list_budgets(bench_run *b) {
    static const double shares[SWEEP_BUDGETS] = {1.1, 0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1};
    rn_bench_results *roomy = b->results;
    b->count = 0;
    for (size_t i = 0; i < b->name_count; i++) {
        const rn_bench_result *r = &roomy->items[i];
        bool own = r->device_memory.planned_bytes != RN_BENCH_UNKNOWN;
        uint64_t planned = own ? r->device_memory.planned_bytes : r->host.planned_bytes;
        if (planned == RN_BENCH_UNKNOWN || r->latency.samples == 0) continue;
        uint64_t held = own ? r->device_memory.peak_bytes : r->resident_peak_bytes;
        uint64_t beside = held > planned ? held - planned : 0;
        beside += (beside >> 4) + (8 << 20);
        for (size_t k = 0; k < SWEEP_BUDGETS; k++)
            RN_TRY(
                add_variant(b, i, b->batches[0], beside + (uint64_t)(shares[k] * (double)planned)));
    }
    if (b->count) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "none of the variants has a plan that a budget could change");
}

static rn_status measure(bench_run *b) {
    RN_TRY(list_variants(b));
    if (bench_has_other(b->in))
        return rn_bench_run_in_turns(b->variants, b->count, &b->other, &b->options, &b->before,
                                     &b->results);
    RN_TRY(rn_bench_run(b->variants, b->count, &b->options, &b->results));
    bool budgets = b->options.sweep && strcmp(b->options.sweep, "budget") == 0;
    if (!budgets || b->results->cancelled) return RN_OK;
    rn_status s = list_budgets(b);
    rn_bench_results_destroy(b->results);
    b->results = NULL;
    return s == RN_OK ? rn_bench_run(b->variants, b->count, &b->options, &b->results) : s;
}

static rn_status report(bench_run *b) {
    const char *const *files = NULL;
    size_t count = rn_settings_list(b->in->settings, "output", &files);
    for (size_t i = 0; i < count; i++)
        RN_TRY(write_file(b->results, files[i]));
    const char *other = rn_settings_text(b->in->settings, "against-output");
    if (other[0] && b->before) RN_TRY(write_file(b->before, other));
    RN_TRY(report_bench(b->in, b->before, b->results));
    return b->results->cancelled ? rn_fail(RN_CANCELLED, "interrupted: the rest was not measured")
                                 : RN_OK;
}

// --against: what stands on the other side of the turns.
static rn_status read_other(bench_run *b) {
    const char *model = rn_settings_text(b->in->settings, "against"),
               *program = rn_settings_text(b->in->settings, "against-program");
    b->other = b->options;
    if (b->options.sweep) return rn_fail(RN_INVALID, "--against with --sweep: one of them");
    if (b->options.processes < RN_BENCH_TURNS)
        return rn_fail(RN_INVALID,
                       "--processes %llu: in turns there are at least %d, fewer pairs have no "
                       "interval of 99.95 %%",
                       (unsigned long long)b->options.processes, RN_BENCH_TURNS);
    if (program[0] && access(program, X_OK) != 0)
        return rn_error_locate(rn_fail(RN_NOT_FOUND, "%s is no program", program), program,
                               RN_NO_OFFSET);
    if (program[0]) b->other.program = program;
    if (model[0]) b->other.model = model;
    return find_parameters(&b->other);
}

static rn_status measure_all(bench_run *b) {
    rn_bench_limits limits;
    RN_TRY(check_bench_limits(b->in, &limits)); // not after minutes
    RN_TRY(read_options(b));
    b->options.self = b;
    b->options.progress = show_progress;
    RN_TRY(read_variants(b));
    RN_TRY(find_parameters(&b->options));
    if (bench_has_other(b->in)) RN_TRY(read_other(b));
    return measure(b);
}

static rn_status run(const invocation *in) {
    bench_run *b = calloc(1, sizeof *b); // names of hundreds of variants: too large for the stack
    if (!b) return rn_fail(RN_NO_MEMORY, "no memory");
    b->in = in;
    b->terminal = isatty(2);
    const char *ending = strrchr(in->words[0], '.');
    bool measured = ending && strcmp(ending, ".json") == 0;
    rn_status s = measured ? rn_bench_results_read(in->words[0], &b->results) : measure_all(b);
    if (s == RN_OK) s = report(b);
    rn_bench_results_destroy(b->before);
    rn_bench_results_destroy(b->results);
    free(b);
    return s;
}

const command bench_command = {
    .takes_model = true,
    .name = "bench",
    .usage = "bench MODEL [--tier 1|2|3 | --variants LIST] [options]",
    .summary = "one model over every engine, side by side, each in its own process",
    .about =
        "MODEL is what `ration run` takes: mlp, simple or resnet18, an ONNX file, a Hugging\n"
        "Face folder or a GGUF file (then also tokens a second at several depths). A variant is\n"
        "ENGINE[:DEVICE][+WEIGHTS][+aDTYPE][+MODE]: cpu, cpu+int8, cpu+bf16+avx2, cpu+stream,\n"
        "eager, ort+O3, xla:cpu, cuda+f16, reference, empty; alma's names are understood. Each is\n"
        "measured in a process of its own; one that hangs, crashes, runs out of memory or is\n"
        "wrong is a row that says so, with the command that shows it again. Beside times stand\n"
        "bytes, planned and measured, and the distance from the baseline's outputs. MODEL may "
        "also\n"
        "be a file that --output wrote: nothing is measured, and its results are shown again.",
    .example = "ration bench resnet18 --tier 2 --batch 1,8 --output resnet18.json",
    .min_words = 1,
    .max_words = 2, // one is --sweep's
    .run = run,
};

// ---- a worker -----------------------------------------------------------------------------------

static rn_status print_alone(rn_bench_worker *worker) {
    rn_bench_results all = {.items = NULL};
    rn_bench_result result = *rn_bench_worker_result(worker);
    all.items = &result;
    all.count = 1;
    return rn_bench_results_write(&all, rn_sink_file(stdout));
}

static rn_status run_worker(const invocation *in) {
    const rn_settings *s = in->settings;
    const char *const *variants = NULL, *const *inputs = NULL;
    uint64_t batch[1];
    size_t count = 0;
    rn_bench_worker *worker;
    if (rn_settings_list(s, "variants", &variants) != 1)
        return rn_fail(RN_INVALID, "a worker measures one variant");
    RN_TRY(read_numbers(rn_settings_text(s, "batch"), batch, 1, &count));
    rn_bench_work work = {.model = in->words[0],
                          .variant = variants[0],
                          .batch = batch[0],
                          .weights = rn_settings_text(s, "weights"),
                          .threads = (uint32_t)rn_settings_count(s, "threads"),
                          .cancel = &interrupt_flag};
    work.input_count = rn_settings_list(s, "input", &inputs);
    work.inputs = inputs;
    RN_TRY(read_bytes(in, "budget", &work.budget_bytes));
    RN_TRY(rn_bench_worker_open(&worker));
    rn_status status = rn_bench_worker_run(worker, &work);
    if (status == RN_OK && !getenv("RATION_BENCH")) status = print_alone(worker);
    rn_status closed = rn_bench_worker_close(worker);
    return status == RN_OK ? closed : status;
}

const command bench_worker_command = {
    .name = "bench-worker",
    .usage = "bench-worker MODEL --variants NAME [options]",
    .about = "What `ration bench` starts for a variant; by hand it prints the variant's figures.",
    .example = "ration bench-worker resnet18 --variants cpu+bf16",
    .min_words = 1,
    .max_words = 1,
    .run = run_worker,
};
