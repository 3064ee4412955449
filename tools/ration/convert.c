// convert.c — ration convert: another dtype, a quantised form, another container.
#include "run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct display {
    rn_json json; // with --json: rows go here
    bool as_json, verbose, terminal;
    bool header_printed;
    double start, last_drawn; // seconds
    double worst_error;
    char worst_name[256];
} display;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// ---- progress -------------------------------------------------------------------------

static void draw_progress(void *self, uint64_t done, uint64_t total) {
    display *d = self;
    double now = seconds_now();
    if (!d->terminal || (now - d->last_drawn < 0.1 && done < total)) return;
    d->last_drawn = now;
    double spent = now - d->start, rate = spent > 0 ? (double)done / spent : 0;
    fprintf(stderr, "\r%3.0f%%  %s of %s  %s/s  %.0f s left   ",
            100.0 * (double)done / (double)total, rn_size_format(done).text,
            rn_size_format(total).text, rn_size_format((uint64_t)rate).text,
            rate > 0 ? (double)(total - done) / rate : 0);
    fflush(stderr);
}

static void clear_progress(const display *d) {
    if (d->terminal && d->last_drawn > 0) fprintf(stderr, "\r\033[K");
}

// ---- rows -----------------------------------------------------------------------------

static void write_row(rn_json *json, const rn_convert_row *row) {
    rn_json_object(json, NULL);
    rn_json_text(json, "name", row->name);
    rn_json_string(json, "from", rn_dtype_get(row->from)->name);
    rn_json_string(json, "to", rn_dtype_get(row->to)->name);
    if (row->left_alone && row->left_alone[0]) rn_json_string(json, "left_alone", row->left_alone);
    rn_json_u64(json, "bytes_in", row->bytes_in);
    rn_json_u64(json, "bytes_out", row->bytes_out);
    if (row->measured) {
        rn_json_f64(json, "mean_error", row->mean_error);
        rn_json_f64(json, "max_error", row->max_error);
        rn_json_f64(json, "relative_error", row->relative_error);
    }
    rn_json_end(json);
}

static void print_row(display *d, const rn_convert_row *row) {
    clear_progress(d);
    if (!d->header_printed)
        printf("%-48s %-9s %-9s %11s %11s %11s %9s\n", "tensor", "from", "to", "bytes",
               "mean error", "max error", "relative");
    d->header_printed = true;
    printf("%-48s %-9s %-9s %11s", make_safe(row->name).text, rn_dtype_get(row->from)->name,
           rn_dtype_get(row->to)->name, rn_size_format(row->bytes_out).text);
    if (row->measured)
        printf(" %11.3e %11.3e %9.5f\n", row->mean_error, row->max_error, row->relative_error);
    else
        printf("  %s\n", row->left_alone ? row->left_alone : "exact");
}

static void show_row(void *self, const rn_convert_row *row) {
    display *d = self;
    if (row->measured && row->relative_error > d->worst_error) {
        d->worst_error = row->relative_error;
        snprintf(d->worst_name, sizeof d->worst_name, "%s", make_safe(row->name).text);
    }
    if (d->as_json)
        write_row(&d->json, row);
    else if (d->verbose)
        print_row(d, row);
}

// ---- results --------------------------------------------------------------------------

static void print_result(const display *d, const invocation *in, const rn_convert_result *r,
                         uint64_t budget) {
    rn_process_info process;
    bool known = rn_process_read(&process) == RN_OK;
    double gigabytes = (double)r->bytes_in / 1e9;
    printf("%s: %zu tensors converted, %zu left alone\n", in->words[1], r->converted_count,
           r->left_count);
    printf("  %s in, %s out, %.2f s, %.2f GB/s in (%s)\n", rn_size_format(r->bytes_in).text,
           rn_size_format(r->bytes_out).text, r->seconds,
           r->seconds > 0 ? gigabytes / r->seconds : 0, r->engine);
    if (d->worst_name[0])
        printf("  largest relative error %.5f in %s\n", d->worst_error, d->worst_name);
    if (r->requantised_count)
        printf("  warning: %zu tensors were quantised before: losses add up; convert from the "
               "original weights where there are some\n",
               r->requantised_count);
    if (r->weighed_count) printf("  %zu tensors weighed by importances\n", r->weighed_count);
    if (r->tensors_only)
        printf(
            "  holds tensors only: no architecture and no vocabulary, so llama.cpp does not load "
            "it as a model\n");
    if (known)
        printf("  peak resident %s of a budget of %s (buffers %s)\n",
               rn_size_format(process.resident_peak_bytes).text, rn_size_format(budget).text,
               rn_size_format(r->buffer_bytes).text);
}

static void write_result(rn_json *json, const rn_convert_result *r, uint64_t budget) {
    rn_process_info process;
    rn_json_u64(json, "converted", r->converted_count);
    rn_json_u64(json, "left_alone", r->left_count);
    rn_json_u64(json, "bytes_in", r->bytes_in);
    rn_json_u64(json, "bytes_out", r->bytes_out);
    rn_json_f64(json, "seconds", r->seconds);
    rn_json_string(json, "read_engine", r->engine);
    rn_json_u64(json, "budget_bytes", budget);
    rn_json_u64(json, "buffer_bytes", r->buffer_bytes);
    rn_json_bool(json, "tensors_only", r->tensors_only);
    rn_json_u64(json, "requantised", r->requantised_count);
    rn_json_u64(json, "weighed", r->weighed_count);
    if (r->requantised_count)
        rn_json_string(json, "warning", "tensors that were quantised before are quantised again");
    if (rn_process_read(&process) == RN_OK)
        rn_json_u64(json, "resident_peak_bytes", process.resident_peak_bytes);
    rn_json_check(json, rn_ledger_json(rn_json_embed(json, "ledger")));
}

// ---- running --------------------------------------------------------------------------

// What the process costs already is charged to the ledger, so that it counts.
static rn_status read_buffers_budget(const invocation *in, uint64_t *out_bytes) {
    host_budget budget;
    RN_TRY(read_host_budget(in, 256 << 20, &budget));
    *out_bytes = budget.total_bytes;
    return budget.planned_only ? RN_OK : rn_process_charge_unaccounted();
}

static rn_status run_text(const invocation *in, const rn_convert_options *options, display *d,
                          uint64_t budget) {
    rn_convert_result result;
    rn_status s = rn_convert(in->words[0], in->words[1], options, &result);
    clear_progress(d);
    if (s == RN_OK) print_result(d, in, &result, budget);
    return s;
}

// The object is collected in memory: a conversion that fails must not leave half of one on standard
// output.
static rn_status run_json(const invocation *in, const rn_convert_options *options, display *d,
                          uint64_t budget, text_buffer *out) {
    rn_convert_result result;
    rn_json *json = &d->json;
    rn_json_begin(json, (rn_sink){out, append_text}, true);
    rn_json_object(json, NULL);
    rn_json_string(json, "in", in->words[0]);
    rn_json_string(json, "out", in->words[1]);
    rn_json_array(json, "tensors");
    rn_status s = rn_convert(in->words[0], in->words[1], options, &result);
    clear_progress(d);
    RN_TRY(s);
    rn_json_end(json);
    write_result(json, &result, budget);
    rn_json_end(json);
    return rn_json_finish(json);
}

static rn_status run_collected(const invocation *in, const rn_convert_options *options, display *d,
                               uint64_t budget) {
    text_buffer text = {0};
    rn_status s = run_json(in, options, d, budget, &text);
    if (s == RN_OK) s = rn_sink_write(rn_sink_file(stdout), text.data, text.bytes);
    free_text(&text);
    return s;
}

// ---- ONNX -----------------------------------------------------------------------------

// What is written: a model's files, an ONNX file, or a builtin model with --weights.
typedef struct onnx_source {
    rn_model *model;
    rn_onnx *onnx;
    rn_checkpoint *checkpoint;
    rn_recipe recipe;
    rn_weight_source weights;
} onnx_source;

static rn_status open_source(const invocation *in, onnx_source *out) {
    const char *path = in->words[0], *weights = rn_settings_text(in->settings, "weights");
    if (is_onnx(path)) {
        RN_TRY(rn_onnx_open(path, NULL, &out->onnx));
        out->weights = rn_onnx_weights(out->onnx);
        return rn_onnx_make_recipe(out->onnx, 0, &out->recipe);
    }
    if (access(path, F_OK) == 0) {
        rn_model_options options = {.without_tokenizer = true};
        rn_text_options text = {.kv_dtype = RN_DTYPE_F32};
        RN_TRY(rn_model_open(path, &options, &out->model));
        out->weights = rn_model_weights(out->model);
        return rn_model_make_recipe(out->model, &text, &out->recipe);
    }
    RN_TRY(rn_builtin_recipe(path, &out->recipe));
    if (!weights[0])
        return rn_hint(rn_fail(RN_INVALID, "%s is a builtin model, and has no weights", path),
                       "give it some with --weights FILE");
    RN_TRY(rn_checkpoint_open(weights, &out->checkpoint));
    out->weights = (rn_weight_source){.checkpoint = out->checkpoint};
    return RN_OK;
}

static void print_onnx(const invocation *in, uint64_t bytes, double seconds) {
    rn_process_info process;
    printf("%s and %s.data: %s in %.2f s\n", in->words[1], in->words[1], rn_size_format(bytes).text,
           seconds);
    if (rn_process_read(&process) == RN_OK)
        printf("  peak resident %s\n", rn_size_format(process.resident_peak_bytes).text);
}

static rn_status write_onnx(const invocation *in) {
    onnx_source source = {0};
    uint64_t budget = 0, bytes = 0;
    double start = seconds_now();
    rn_onnx_write_options options = {.opset = (uint32_t)rn_settings_count(in->settings, "opset"),
                                     .cancel = &interrupted};
    const char *to = rn_settings_text(in->settings, "to");
    options.int8 = strcmp(to, "int8") == 0;
    if (in->json) return rn_fail(RN_INVALID, "--json does not go with an ONNX file");
    if (to[0] && !options.int8 && strcmp(to, "f32") != 0)
        return rn_hint(rn_fail(RN_INVALID, "ONNX files are written in f32 or int8, not in %s", to),
                       "--to int8 rounds the weights of products, a scale a row");
    RN_TRY(read_buffers_budget(in, &budget));
    rn_status s = open_source(in, &source);
    if (s == RN_OK)
        s = rn_onnx_write(&source.recipe, &source.weights, in->words[1], &options, &bytes);
    if (s == RN_OK) print_onnx(in, bytes, seconds_now() - start);
    rn_recipe_destroy(&source.recipe);
    rn_checkpoint_close(source.checkpoint);
    rn_onnx_close(source.onnx);
    rn_model_close(source.model);
    return s;
}

static rn_io_engine parse_engine(const char *text) {
    if (strcmp(text, "uring") == 0) return RN_IO_URING;
    return strcmp(text, "threads") == 0 ? RN_IO_THREADS : RN_IO_AUTO;
}

static bool ends_with(const char *text, const char *end) {
    size_t bytes = strlen(text), wanted = strlen(end);
    return bytes >= wanted && strcmp(text + bytes - wanted, end) == 0;
}

// ---- adapters -------------------------------------------------------------------------

static rn_status write_merged(const invocation *in) {
    rn_adapter adapters[MAX_ADAPTERS];
    char paths[MAX_ADAPTERS][4096];
    rn_model_options options = {.adapters = adapters, .without_tokenizer = true};
    rn_model *model = NULL;
    uint64_t budget = 0;
    double begin = seconds_now();
    if (rn_settings_text(in->settings, "to")[0])
        return rn_hint(rn_fail(RN_UNSUPPORTED, "--lora and --to are two conversions"),
                       "merge first, then convert what came of it");
    RN_TRY(read_adapters(in, adapters, paths, &options.adapter_count));
    RN_TRY(read_buffers_budget(in, &budget));
    RN_TRY(rn_budget_set_process(budget));
    RN_TRY(rn_model_open(in->words[0], &options, &model));
    rn_status s = rn_model_merge(model, in->words[1]);
    rn_model_close(model);
    RN_TRY(s);
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).peak_bytes;
    if (!in->json) {
        printf("%s: merged in %.2f s, at most %s on the ledger\n", in->words[1],
               seconds_now() - begin, rn_size_format(held).text);
        return RN_OK;
    }
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "in", in->words[0]);
    rn_json_string(&json, "out", in->words[1]);
    rn_json_u64(&json, "adapters", options.adapter_count);
    rn_json_u64(&json, "peak_bytes", held);
    rn_json_u64(&json, "budget_bytes", budget);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status run(const invocation *in) {
    uint64_t budget = 0;
    const char *const *adapters = NULL;
    if (rn_settings_list(in->settings, "lora", &adapters) > 0) return write_merged(in);
    if (ends_with(in->words[1], ".onnx")) return write_onnx(in);
    display d = {.as_json = in->json,
                 .verbose = rn_settings_bool(in->settings, "verbose"),
                 .terminal = isatty(STDERR_FILENO),
                 .start = seconds_now()};
    rn_convert_options options = {
        .packed = rn_settings_bool(in->settings, "packed"),
        .no_default_excludes = !rn_settings_bool(in->settings, "default-excludes"),
        .thread_count = (size_t)rn_settings_count(in->settings, "threads"),
        .io_engine = parse_engine(rn_settings_text(in->settings, "io-engine")),
        .cancel = &interrupted,
        .self = &d,
        .progress = draw_progress,
        .row = show_row,
    };
    options.exclude_count = rn_settings_list(in->settings, "exclude", &options.exclude);
    const char *to = rn_settings_text(in->settings, "to");
    const char *importances = rn_settings_text(in->settings, "imatrix");
    if (*importances) options.importances = importances;
    if (*to && !rn_convert_parse_target((rn_str){to, strlen(to)}, &options))
        return rn_fail(RN_INVALID, "there is no type '%s'", to);
    RN_TRY(read_buffers_budget(in, &budget));
    options.budget_bytes = budget;
    rn_profile_counter(RN_COUNTER_BUDGET, RN_DEVICE_HOST, 0, budget); // a line in the picture
    return in->json ? run_collected(in, &options, &d, budget) : run_text(in, &options, &d, budget);
}

const command convert_command = {
    .takes_model = true,
    .name = "convert",
    .usage = "convert IN OUT [--to TYPE] [options]",
    .summary = "change dtype, quantise, or change the container",
    .about =
        "Streams the model IN (file, shards or folder) into OUT; its ending, .safetensors or\n"
        ".gguf, says the container, and a name without an ending is a folder. Memory stays\n"
        "within the budget whatever the model's size. OUT appears when it is complete, or not\n"
        "at all. A Hugging Face model becomes a GGUF model (names, keys, vocabulary, template,\n"
        "rows of q and k) that llama.cpp runs, too, and a GGUF model becomes a folder that\n"
        "transformers loads; from folder to folder the files beside the weights are copied.\n"
        "--to q4_k_m and its like are llama.cpp's file types and give its bytes. int8, int4,\n"
        "nf4, q8_0, q4_0 and mxfp4 leave embeddings, norms and vectors alone. Each tensor's\n"
        "error is reported (--verbose); quantising again what was quantised is said.\n"
        "With --lora OUT is the model with the adapter in its matrices, a folder or a GGUF file\n"
        "as IN is; quantised matrices that it touches become f16.\n"
        "OUT.onnx is the model as an ONNX graph, with weights of f32 in OUT.onnx.data; with\n"
        "--to int8 those of products have 8 bits, a scale a row (DequantizeLinear).",
    .example = "ration convert models/llama-1b llama-1b.gguf --to q4_k_m --budget 256MiB",
    .min_words = 2,
    .max_words = 2,
    .run = run,
};
