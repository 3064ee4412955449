// train.c — ration train: fine-tunes a model on a file of texts, within a budget.
//
//     read the data ─ plan, load ─ a step, a line ... ─ evaluate, save now and then ─ write the
//     adapter
//
// DIR gets the adapter (a PEFT folder), checkpoint.safetensors to go on from, and log.jsonl with a
// line a step. What a step sees depends on its number and the seed alone, so a training that was
// stopped and resumed ends with the bytes of one that ran through.
#include "command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TARGETS = 64, PATHS = 4096 };

typedef struct training {
    const invocation *in;
    rn_model *model;
    rn_train_data *data;
    rn_device *device;
    rn_trainer *trainer;
    host_budget budget;
    uint32_t batch, tokens;
    uint64_t steps, warmup;
    int32_t *rows;    // (3, batch, tokens): tokens, targets, documents
    uint64_t targets; // of the batch in `rows`
    FILE *log;
    char out[PATHS];
    bool plans_only; // the word is a file of settings
} training;

static uint64_t count_of(const training *t, const char *name) {
    return rn_settings_count(t->in->settings, name);
}

static double number_of(const training *t, const char *name) {
    return rn_settings_number(t->in->settings, name);
}

static const char *text_of(const training *t, const char *name) {
    return rn_settings_text(t->in->settings, name);
}

// NULL: the one that is built in.
static const char *model_of(const training *t) {
    const char *base = text_of(t, "base");
    if (t->in->word_count && !t->plans_only) return t->in->words[0];
    return base[0] ? base : NULL;
}

static rn_status path_in(const training *t, const char *name, char out[PATHS]) {
    if ((size_t)snprintf(out, PATHS, "%s/%s", t->out, name) < PATHS) return RN_OK;
    return rn_fail(RN_INVALID, "--out: the path is too long");
}

// ---- data ---------------------------------------------------------------------------------------

static rn_status open_data(training *t) {
    static const char *const policies[] = {"refuse", "truncate", "drop", "split"};
    const char *path = text_of(t, "data"), *too_long = text_of(t, "long");
    rn_train_data_options o = {.tokenizer = rn_model_tokenizer(t->model),
                               .chat_template = rn_model_chat_template(t->model),
                               .tokens = t->tokens,
                               .validation = number_of(t, "validation"),
                               .seed = count_of(t, "seed"),
                               .unpacked = rn_settings_bool(t->in->settings, "unpacked"),
                               .cache = t->out};
    if (!path[0])
        return rn_hint(rn_fail(RN_INVALID, "there is no data"), "name it: --data FILE.jsonl");
    if (!o.tokenizer) return rn_fail(RN_INVALID, "the model has no tokenizer");
    while (strcmp(too_long, policies[o.too_long]) != 0)
        o.too_long++;
    return rn_train_data_open(path, &o, &t->data);
}

static void print_data(const training *t) {
    const rn_train_data_info *i = rn_train_data_get_info(t->data);
    fprintf(stderr,
            "data: %llu samples, %llu for validation, in %llu + %llu sequences of %u tokens%s\n"
            "      %llu tokens, %llu learned; the longest sample has %llu\n"
            "      %llu truncated, %llu dropped, %llu split, %llu without anything to learn\n",
            (unsigned long long)i->samples, (unsigned long long)i->validation_samples,
            (unsigned long long)i->sequences, (unsigned long long)i->validation_sequences,
            t->tokens, i->reused ? " (tokenised before)" : "", (unsigned long long)i->tokens,
            (unsigned long long)i->targets, (unsigned long long)i->longest,
            (unsigned long long)i->truncated, (unsigned long long)i->dropped,
            (unsigned long long)i->split, (unsigned long long)i->masked);
}

// Sequences of the last batch that were in an earlier one count for nothing.
static rn_status take_batch(training *t, rn_data_part part, uint64_t step, rn_batch *out) {
    uint64_t size = (uint64_t)t->batch * t->tokens;
    const rn_train_data_info *info = rn_train_data_get_info(t->data);
    int32_t *targets = t->rows + size;
    RN_TRY(
        rn_train_data_batch(t->data, part, step, t->batch, t->rows, targets, t->rows + 2 * size));
    t->targets = 0;
    for (uint64_t i = 0; i < size; i++) {
        bool again = part == RN_DATA_VALIDATION &&
                     step * t->batch + i / t->tokens >= info->validation_sequences;
        if (again) targets[i] = -100;
        t->targets += targets[i] != -100;
    }
    *out = (rn_batch){t->rows, targets, t->rows + 2 * size};
    return RN_OK;
}

// ---- planning -----------------------------------------------------------------------------------

static void count_steps(training *t) {
    const rn_train_data_info *info = rn_train_data_get_info(t->data);
    double epochs = number_of(t, "epochs"), warmup = number_of(t, "warmup");
    t->steps = count_of(t, "steps");
    if (t->steps == 0) t->steps = (uint64_t)ceil(epochs * (double)info->sequences / t->batch);
    t->warmup = (uint64_t)(warmup < 1 ? ceil((double)t->steps * warmup) : warmup);
}

// Without an evaluation where nothing is set apart.
static rn_status make_trainer(training *t, bool plans_only, rn_program **out) {
    const char *const *targets = NULL;
    bool validates = number_of(t, "validation") > 0;
    rn_lora_options lora = {.rank = (uint32_t)count_of(t, "rank"),
                            .alpha = (float)number_of(t, "alpha"),
                            .by_root = rn_settings_bool(t->in->settings, "rslora")};
    lora.target_count = rn_settings_list(t->in->settings, "target", &targets);
    lora.targets = targets;
    rn_trainer_options o = {.tokens = t->tokens,
                            .batch = t->batch,
                            .optimizer = text_of(t, "optimizer"),
                            .weight_decay = number_of(t, "weight-decay"),
                            .max_norm = (float)number_of(t, "clip"),
                            .seed = count_of(t, "seed"),
                            .evaluate_every = validates ? count_of(t, "evaluate-every") : 0};
    if (strcmp(text_of(t, "method"), "lora") != 0)
        return rn_fail(RN_UNSUPPORTED, "--method %s is not built", text_of(t, "method"));
    uint64_t room = 3 * (uint64_t)t->batch * t->tokens * sizeof(int32_t) + (1 << 20);
    end_opening();
    RN_TRY(read_budget(t->in, NULL, room, &t->budget));
    use_budget(&t->budget, &o.plan);
    o.plan.exact = rn_settings_bool(t->in->settings, "exact");
    if (plans_only) return rn_finetune_plan(t->model, &o, &lora, out);
    RN_TRY(rn_cpu_device_create((uint32_t)count_of(t, "threads"), &t->device));
    o.device = t->device;
    return rn_trainer_finetune(t->model, &o, &lora, &t->trainer);
}

// ---- steps --------------------------------------------------------------------------------------

// As transformers counts: the first step of a warm-up has a rate of 0.
static double rate_at(const training *t, uint64_t step) {
    const char *schedule = text_of(t, "schedule");
    double rate = number_of(t, "rate"), total = (double)t->steps, warmup = (double)t->warmup;
    if (step < t->warmup) return rate * (double)step / warmup;
    double rest = total - warmup > 1 ? total - warmup : 1, done = ((double)step - warmup) / rest;
    if (strcmp(schedule, "cosine") == 0)
        return rate * 0.5 * (1 + cos(3.14159265358979323846 * done));
    return strcmp(schedule, "linear") == 0 ? rate * (1 - done) : rate;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static rn_status evaluate(training *t, float *out) {
    const rn_train_data_info *info = rn_train_data_get_info(t->data);
    double sum = 0, counted = 0;
    rn_batch batch;
    for (uint64_t i = 0; i * t->batch < info->validation_sequences; i++) {
        float loss = 0;
        RN_TRY(take_batch(t, RN_DATA_VALIDATION, i, &batch));
        RN_TRY(rn_trainer_evaluate_packed(t->trainer, &batch, &loss));
        sum += (double)loss * (double)t->targets;
        counted += (double)t->targets;
    }
    *out = (float)(sum / counted);
    return RN_OK;
}

static rn_status save(const training *t) {
    char path[PATHS];
    RN_TRY(path_in(t, "checkpoint.safetensors", path));
    RN_TRY(rn_trainer_save(t->trainer, path));
    RN_TRY(rn_trainer_export_adapter(t->trainer, model_of(t), t->out));
    RN_TRY(path_in(t, "adapter.gguf", path));
    rn_status s = rn_trainer_export_adapter(t->trainer, NULL, path);
    return s == RN_UNSUPPORTED ? RN_OK : s; // modules that GGUF files have no names for
}

static void report(const training *t, uint64_t step, float loss, double rate, double seconds,
                   const float *validation) {
    double speed = (double)t->batch * t->tokens / seconds;
    uint64_t left = t->steps - step;
    fprintf(t->log, "{\"step\": %llu, \"loss\": %.7g, \"rate\": %.6g, \"tokens_per_second\": %.1f",
            (unsigned long long)step, (double)loss, rate, speed);
    if (validation) fprintf(t->log, ", \"validation_loss\": %.7g", (double)*validation);
    fprintf(t->log, "}\n");
    fflush(t->log);
    if (rn_settings_bool(t->in->settings, "quiet")) return;
    fprintf(stderr, "step %llu of %llu: loss %.4f, rate %.3g, %.0f tokens/s, %s left",
            (unsigned long long)step, (unsigned long long)t->steps, (double)loss, rate, speed,
            rn_time_format(seconds * (double)left).text);
    if (validation) fprintf(stderr, "; validation %.4f", (double)*validation);
    fprintf(stderr, "\n");
}

static rn_status take_steps(training *t) {
    uint64_t save_every = count_of(t, "save-every"), check_every = count_of(t, "evaluate-every");
    bool validates = rn_train_data_get_info(t->data)->validation_samples > 0 && check_every > 0;
    while (rn_trainer_steps(t->trainer) < t->steps) {
        uint64_t step = rn_trainer_steps(t->trainer);
        double begin = now(), rate = rate_at(t, step);
        float loss = 0, validation = 0;
        rn_batch batch;
        RN_TRY(take_batch(t, RN_DATA_TRAIN, step++, &batch));
        RN_TRY(rn_trainer_step_packed(t->trainer, &batch, rate, &loss));
        double seconds = now() - begin;
        if (!isfinite(loss))
            return rn_hint(rn_fail(RN_INVALID, "the loss of step %llu is not a finite number",
                                   (unsigned long long)step),
                           "the last checkpoint is kept: go on from it with a lower --rate");
        bool checks = validates && (step % check_every == 0 || step == t->steps);
        if (checks) RN_TRY(evaluate(t, &validation));
        report(t, step, loss, rate, seconds, checks ? &validation : NULL);
        if (save_every && step % save_every == 0) RN_TRY(save(t));
        if (!interrupted) continue;
        forget_interrupt();
        RN_TRY(save(t));
        return rn_hint(rn_fail(RN_CANCELLED, "stopped after step %llu, which is saved",
                               (unsigned long long)step),
                       "--resume goes on from there");
    }
    return save(t);
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status begin(training *t) {
    char path[PATHS];
    snprintf(t->out, sizeof t->out, "%s", text_of(t, "out"));
    if (!t->out[0])
        return rn_hint(rn_fail(RN_INVALID, "there is no place for what is learned"),
                       "name a folder: --out DIR");
    if (mkdir(t->out, 0777) != 0 && errno != EEXIST)
        return rn_error_locate(rn_fail(RN_IO, "cannot make the folder"), t->out, RN_NO_OFFSET);
    bool resumes = rn_settings_bool(t->in->settings, "resume");
    RN_TRY(path_in(t, "checkpoint.safetensors", path));
    bool there = access(path, F_OK) == 0;
    if (there && !resumes)
        return rn_hint(rn_fail(RN_INVALID, "'%s' has a training already", t->out),
                       "--resume goes on with it; another --out begins anew");
    RN_TRY(open_data(t));
    if (!rn_settings_bool(t->in->settings, "quiet")) print_data(t);
    count_steps(t);
    RN_TRY(make_trainer(t, false, NULL));
    if (there) RN_TRY(rn_trainer_resume(t->trainer, path));
    if (!rn_settings_bool(t->in->settings, "quiet"))
        RN_TRY(rn_program_print(rn_trainer_program(t->trainer), rn_sink_file(stderr)));
    RN_TRY(path_in(t, "log.jsonl", path));
    t->log = fopen(path, there ? "a" : "w");
    if (!t->log) return rn_error_locate(rn_fail(RN_IO, "cannot write the log"), path, RN_NO_OFFSET);
    t->rows = calloc(3 * (size_t)t->batch * t->tokens, sizeof *t->rows);
    return t->rows ? RN_OK : rn_fail(RN_NO_MEMORY, "no memory for a batch");
}

static void print_end(const training *t) {
    const rn_program_summary *s = rn_program_get_summary(rn_trainer_program(t->trainer));
    fprintf(stderr, "planned %s of a budget of %s; the ledger's peak %s\n",
            rn_size_format(s->planned_bytes).text, rn_size_format(t->budget.total_bytes).text,
            rn_size_format(rn_ledger_total(RN_DEVICE_HOST).peak_bytes).text);
    fprintf(stderr, "adapter in %s: ration run %s --lora %s\n", t->out,
            model_of(t) ? model_of(t) : "", t->out);
}

static rn_status open_model(training *t) {
    t->batch = (uint32_t)count_of(t, "batch-size");
    t->tokens = (uint32_t)count_of(t, "length");
    if (t->batch == 0 || t->batch > 1 << 16 || t->tokens < 2 || t->tokens > 1 << 24)
        return rn_fail(RN_INVALID, "batches of %u sequences of %u tokens are not possible",
                       t->batch, t->tokens);
    return rn_model_open(model_of(t), NULL, &t->model);
}

// For `ration plan FILE.toml`: the phases, with nothing but headers read.
rn_status plan_training(const invocation *in) {
    training t = {.in = in, .plans_only = true};
    rn_program *program = NULL;
    RN_TRY(rn_settings_load_files(in->settings, in->words[0]));
    rn_status s = open_model(&t);
    if (s == RN_OK) s = make_trainer(&t, true, &program);
    if (s == RN_OK)
        s = in->json ? rn_program_json(program, rn_sink_file(stdout))
                     : rn_program_print(program, rn_sink_file(stdout));
    rn_program_destroy(program);
    rn_model_close(t.model);
    return s;
}

static rn_status run(const invocation *in) {
    training t = {.in = in};
    RN_TRY(open_model(&t));
    rn_status s = begin(&t);
    if (s == RN_OK) s = take_steps(&t);
    if (s == RN_OK && !rn_settings_bool(in->settings, "quiet")) print_end(&t);
    if (t.log) fclose(t.log);
    free(t.rows);
    rn_trainer_destroy(t.trainer);
    rn_device_destroy(t.device);
    rn_train_data_close(t.data);
    rn_model_close(t.model);
    return s;
}

const command train_command = {
    .name = "train",
    .usage = "train [MODEL] --data FILE.jsonl --out DIR [options]",
    .summary = "fine-tune a model on texts, within a budget",
    .about =
        "Trains a LoRA adapter of MODEL (a Hugging Face folder, a GGUF file; without one the\n"
        "model that is built in), whose own weights stay as they are, whatever their type. The\n"
        "data is JSON, an object a line: messages, conversations, prompt and completion,\n"
        "instruction and output, or text; what the assistant says is learned. Samples are packed\n"
        "into sequences and do not see each other. Prints the plan of every phase (step, save,\n"
        "evaluate), then a line a step; DIR gets the adapter as PEFT has it, log.jsonl, and a\n"
        "checkpoint that --resume goes on from, to the same bytes. Ctrl-C saves. Options may "
        "stand\n"
        "in a file: --config FILE.toml, under [train]; ration plan FILE.toml prints its plan.",
    .example = "ration train models/smollm2 --data chats.jsonl --out adapter --epochs 2",
    .max_words = 1,
    .limits_memory = true,
    .run = run,
};
