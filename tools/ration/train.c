// train.c — ration train: fine-tunes a model on a file of texts, within a budget.
//
//     read the data ─ plan, load ─ a step, a line ... ─ evaluate, save now and then ─ write the
//     adapter
//
// DIR gets the adapter (a PEFT folder, llama.cpp's file), checkpoints to go on from (train_save.c),
// and log.jsonl with a line a step. What a step sees depends on its number and the seed alone, so a
// training that was stopped and resumed ends with the bytes of one that ran through.
#include "rank_job.h"
#include "training.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

uint64_t train_count(const training *t, const char *name) {
    return rn_settings_count(t->in->settings, name);
}

double train_number(const training *t, const char *name) {
    return rn_settings_number(t->in->settings, name);
}

const char *train_text(const training *t, const char *name) {
    return rn_settings_text(t->in->settings, name);
}

bool train_bool(const training *t, const char *name) {
    return rn_settings_bool(t->in->settings, name);
}

bool is_quiet(const training *t) {
    return t->rank != 0 || train_bool(t, "quiet");
}

bool is_method(const training *t, const char *name) {
    return strcmp(train_text(t, "method"), name) == 0;
}

double train_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// NULL: the one that is built in.
static const char *model_of(const training *t) {
    const char *base = train_text(t, "base");
    if (t->in->word_count) return t->in->words[0];
    return base[0] ? base : NULL;
}

rn_status train_path(const training *t, const char *name, char out[TRAIN_PATH_BYTES]) {
    if ((size_t)snprintf(out, TRAIN_PATH_BYTES, "%s/%s", t->out, name) < TRAIN_PATH_BYTES)
        return RN_OK;
    return rn_fail(RN_INVALID, "--out: the path is too long");
}

// ---- data ---------------------------------------------------------------------------------------

// A plan leaves no file behind: it reads what a training has kept, or keeps nothing. So do ranks
// that have another disk than rank 0.
static rn_status open_data(training *t) {
    static const char *const policies[] = {"refuse", "truncate", "drop", "split"};
    const char *path = train_text(t, "data"), *too_long = train_text(t, "long");
    rn_train_data_options o = {.tokenizer = rn_model_tokenizer(t->model),
                               .chat_template = rn_model_chat_template(t->model),
                               .tokens = t->tokens,
                               .validation = train_number(t, "validation"),
                               .seed = train_count(t, "seed"),
                               .unpacked = train_bool(t, "unpacked"),
                               .cache = t->out};
    struct stat folder;
    bool writes = !t->plans_only && t->rank == 0;
    if (!writes && stat(t->out, &folder) != 0) o.cache = "";
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
    double epochs = train_number(t, "epochs"), warmup = train_number(t, "warmup");
    t->steps = train_count(t, "steps");
    if (t->steps == 0) t->steps = (uint64_t)ceil(epochs * (double)info->sequences / t->batch);
    t->warmup = (uint64_t)(warmup < 1 ? ceil((double)t->steps * warmup) : warmup);
}

// Between operations. GPUs multiply 16 bits several times as fast.
static rn_dtype compute_dtype(const training *t) {
    const char *name = train_text(t, "compute");
    if (strcmp(name, "f16") == 0) return RN_DTYPE_F16;
    if (strcmp(name, "bf16") == 0) return RN_DTYPE_BF16;
    bool gpu = strncmp(rn_device_target(t->device), "cuda", 4) == 0;
    return strcmp(name, "auto") == 0 && gpu ? RN_DTYPE_BF16 : RN_DTYPE_F32;
}

// "NAME=N"
static rn_status read_pattern(const char *option, const char *text, bool rank, rn_lora_pattern *out,
                              char name[TRAIN_NAME_BYTES]) {
    const char *sign = strrchr(text, '=');
    char *end = NULL;
    double number = sign ? strtod(sign + 1, &end) : 0;
    if (!sign || sign == text || !end || end == sign + 1 || *end || !(number > 0) ||
        (rank && (number != floor(number) || number > 1 << 16)) ||
        (size_t)(sign - text) >= TRAIN_NAME_BYTES)
        return rn_hint(rn_fail(RN_INVALID, "--%s %s: it is no name and number", option, text),
                       "for example --%s down_proj=%s", option, rank ? "32" : "16.5");
    snprintf(name, TRAIN_NAME_BYTES, "%.*s", (int)(sign - text), text);
    *out = (rn_lora_pattern){.module = name};
    if (rank)
        out->rank = (uint32_t)number;
    else
        out->alpha = (float)number;
    return RN_OK;
}

static rn_status read_patterns(training *t) {
    static const char *const options[] = {"alpha-pattern", "rank-pattern"};
    t->pattern_count = 0;
    for (int rank = 0; rank < 2; rank++) {
        const char *const *list = NULL;
        size_t count = rn_settings_list(t->in->settings, options[rank], &list);
        for (size_t i = 0; i < count; i++) {
            if (t->pattern_count == TRAIN_MOST_PATTERNS)
                return rn_fail(RN_INVALID, "more than %d patterns", TRAIN_MOST_PATTERNS);
            RN_TRY(read_pattern(options[rank], list[i], rank, &t->patterns[t->pattern_count],
                                t->pattern_names[t->pattern_count]));
            t->pattern_count++;
        }
    }
    return RN_OK;
}

static rn_zero read_zero(const training *t) {
    const char *zero = train_text(t, "zero");
    return strcmp(zero, "0") == 0   ? RN_ZERO_NONE
           : strcmp(zero, "1") == 0 ? RN_ZERO_STATES
                                    : RN_ZERO_AUTO;
}

// Without an evaluation where nothing is set apart.
static rn_status read_options(training *t, rn_trainer_options *o, rn_lora_options *lora) {
    const char *const *targets = NULL;
    bool validates = rn_train_data_get_info(t->data)->validation_samples > 0;
    *lora = (rn_lora_options){.rank = (uint32_t)train_count(t, "rank"),
                              .alpha = (float)train_number(t, "alpha"),
                              .by_root = train_bool(t, "rslora"),
                              .dora = train_bool(t, "dora"),
                              .patterns = t->patterns,
                              .pattern_count = t->pattern_count,
                              .init = train_text(t, "adapter-init")};
    lora->target_count = rn_settings_list(t->in->settings, "target", &targets);
    lora->targets = targets;
    *o = (rn_trainer_options){.tokens = t->tokens,
                              .batch = t->batch,
                              .optimizer = train_text(t, "optimizer"),
                              .weight_decay = train_number(t, "weight-decay"),
                              .max_norm = (float)train_number(t, "clip"),
                              .seed = train_count(t, "seed"),
                              .evaluate_every = validates ? train_count(t, "evaluate-every") : 0};
    if (is_method(t, "full")) o->undecayed = "*norm*,*.bias"; // as transformers
    if (is_method(t, "full") && strcmp(train_text(t, "train-dtype"), "bf16") == 0)
        o->weights = RN_DTYPE_BF16;
    o->device = t->device;
    o->activations = compute_dtype(t);
    if (strcmp(train_text(t, "accumulate"), "bf16") == 0) o->gradients = RN_DTYPE_BF16;
    o->comm = t->comm;
    o->zero = read_zero(t);
    use_budget(&t->budget, &o->plan);
    o->plan.exact = train_bool(t, "exact");
    RN_TRY(read_moves(t->in, &t->constraints, &o->plan));
    return rn_plan_options_for(t->device, &t->budget.device, &o->plan);
}

// Which moves the smallest budget takes: behind a refusal.
static rn_status name_moves(const training *t, const rn_trainer_options *options,
                            const rn_lora_options *lora) { // NULL: full
    rn_error_info error = *rn_last_error();
    uint64_t smallest = rn_last_refusal()->smallest_budget_bytes;
    rn_trainer_options o = *options;
    rn_program *program = NULL;
    o.plan.budget_bytes = smallest;
    if (smallest && rn_finetune_plan(t->model, &o, lora, &program) == RN_OK) {
        const rn_plan_summary *p = rn_plan_get_summary(rn_program_plan(program, 0));
        char moves[256];
        int at = snprintf(moves, sizeof moves, "%u micro-batch%s, %u of %u blocks computed again",
                          p->micro_batches, p->micro_batches == 1 ? "" : "es", p->recomputed_blocks,
                          p->block_count);
        if (p->streamed_bytes)
            at += snprintf(moves + at, sizeof moves - (size_t)at, ", %s of weights read in a step",
                           rn_size_format(p->streamed_bytes).text);
        snprintf(moves + at, sizeof moves - (size_t)at, ": %s a step",
                 rn_time_format(p->seconds).text);
        (void)rn_error_restore(&error);
        error.status = rn_hint(error.status, "%s; it takes %s", error.hint, moves);
        rn_program_destroy(program);
        return error.status;
    }
    return rn_error_restore(&error);
}

static rn_status adapt_model(training *t, const rn_trainer_options *o,
                             const rn_lora_options *lora) {
    if (t->plans_only) return rn_finetune_plan(t->model, o, lora, &t->program);
    begin_phase(t, RN_TRAIN_LOAD);
    rn_status s = rn_trainer_finetune(t->model, o, lora, &t->trainer);
    end_phase(t);
    return s;
}

// A plan for hours of computing is worth a tenth of a second, within what the budget leaves it.
static void measure_rates(const training *t, const rn_plan_options *plan) {
    uint64_t usable =
        plan->with_reserve ? rn_budget_usable(plan->budget_bytes) : plan->budget_bytes;
    rn_rates_quick_options quick = {.checkpoint = rn_model_weights(t->model).checkpoint,
                                    .room_bytes = 1}; // too little to measure in
    if (usable > plan->reserved_bytes) quick.room_bytes = usable - plan->reserved_bytes;
    (void)rn_rates_measure_quick(t->device, &quick);
}

// On one target of the ladder.
static rn_status try_device(void *self, const rn_ladder_target *target) {
    training *t = self;
    rn_lora_options low_rank = {0};
    rn_trainer_options o;
    const rn_lora_options *lora = is_method(t, "full") ? NULL : &low_rank;
    t->device = target->device;
    (void)rn_rates_apply(t->device);
    RN_TRY(read_budget(t->in, t->device,
                       3 * (uint64_t)t->batch * t->tokens * sizeof(int32_t) + TRAIN_RECORD_BYTES,
                       &t->budget));
    RN_TRY(read_options(t, &o, &low_rank));
    if (t->measures) measure_rates(t, &o.plan);
    t->budget_bytes = o.plan.budget_bytes;
    t->held_bytes = read_tables();
    rn_status s = adapt_model(t, &o, lora);
    if (s != RN_OVER_BUDGET) return s;
    return t->ranks > 1 ? refuse_ranks(t, &o, lora) : name_moves(t, &o, lora);
}

static void leave_device(void *self) {
    training *t = self;
    rn_program_destroy(t->program);
    rn_trainer_destroy(t->trainer);
    t->program = NULL;
    t->trainer = NULL;
    t->device = NULL;
    memset(t->facts, 0, sizeof t->facts);
}

static rn_status make_trainer(training *t) {
    rn_ladder_load load = {.self = t, .attempt = try_device, .undo = leave_device};
    rn_ladder_options options = {.threads = (uint32_t)train_count(t, "threads"),
                                 .no_fallback = t->ranks > 1 || !train_bool(t, "fallback")};
    rn_ladder_target target;
    end_opening();
    t->measures = use_rates(t->in, options.threads);
    RN_TRY(parse_devices(t->in, &t->ladder));
    return rn_ladder_start(t->ladder, &options, &load, &target);
}

// ---- steps --------------------------------------------------------------------------------------

// As transformers counts: the first step of a warm-up has a rate of 0.
static double rate_at(const training *t, uint64_t step) {
    const char *schedule = train_text(t, "schedule");
    double rate = train_number(t, "rate"), total = (double)t->steps, warmup = (double)t->warmup;
    if (step < t->warmup) return rate * (double)step / warmup;
    double rest = total - warmup > 1 ? total - warmup : 1, done = ((double)step - warmup) / rest;
    if (strcmp(schedule, "cosine") == 0)
        return rate * 0.5 * (1 + cos(3.14159265358979323846 * done));
    return strcmp(schedule, "linear") == 0 ? rate * (1 - done) : rate;
}

static rn_status evaluate(training *t, float *out) {
    const rn_train_data_info *info = rn_train_data_get_info(t->data);
    double sum = 0, counted = 0;
    rn_batch batch;
    for (uint64_t i = 0; i * t->batch < info->validation_sequences; i++) {
        float loss = 0;
        RN_TRY(take_batch(t, RN_DATA_VALIDATION, i, &batch));
        begin_phase(t, RN_TRAIN_EVALUATE);
        RN_TRY(rn_trainer_evaluate_packed(t->trainer, &batch, &loss));
        end_phase(t);
        sum += (double)loss * (double)t->targets;
        counted += (double)t->targets;
    }
    *out = (float)(sum / counted);
    return RN_OK;
}

typedef struct step_result {
    uint64_t step; // from 1
    float loss, norm, validation;
    bool has_norm, has_validation;
    double rate, seconds;
} step_result;

// Of a device that does not say what it has there is no limit.
static const char *format_budget(const training *t, char out[32]) {
    if (t->budget_bytes == RN_NO_LIMIT) return "no limit";
    snprintf(out, 32, "%s", rn_size_format(t->budget_bytes).text);
    return out;
}

static rn_status report(const training *t, const step_result *r) {
    double speed = (double)t->batch * t->tokens / r->seconds;
    uint64_t left = t->steps - r->step, held = train_held(t);
    if (t->rank != 0) return RN_OK;
    RN_TRY(rn_train_log_add(
        t->log, &(rn_train_point){.step = r->step,
                                  .loss = r->loss,
                                  .gradient_norm = r->has_norm ? r->norm : NAN,
                                  .validation_loss = r->has_validation ? r->validation : NAN,
                                  .rate = r->rate,
                                  .tokens_per_second = speed,
                                  .memory_bytes = held}));
    char budget[32];
    if (is_quiet(t)) return RN_OK;
    fprintf(stderr, "step %llu of %llu: loss %.4f, rate %.3g", (unsigned long long)r->step,
            (unsigned long long)t->steps, (double)r->loss, r->rate);
    if (r->has_norm) fprintf(stderr, ", norm %.3g", (double)r->norm);
    fprintf(stderr, ", %.0f tokens/s, %s of %s, %s left", speed, rn_size_format(held).text,
            format_budget(t, budget), rn_time_format(r->seconds * (double)left).text);
    if (r->has_validation) fprintf(stderr, "; validation %.4f", (double)r->validation);
    fprintf(stderr, "\n");
    return RN_OK;
}

static rn_status refuse_steps(const training *t, uint64_t in_a_row) {
    const rn_step_info *last = rn_trainer_last_step(t->trainer);
    rn_status s =
        rn_fail(RN_INVALID,
                "%llu steps in a row, the last before step %llu, had gradients that are "
                "not finite numbers%s%s",
                (unsigned long long)in_a_row, (unsigned long long)rn_trainer_steps(t->trainer) + 1,
                last->weight[0] ? "; first that of " : "", last->weight);
    return t->saved_step == NO_STEP
               ? rn_hint(s, "nothing is saved yet: begin anew with a lower --rate, or a warm-up")
               : rn_hint(s,
                         "the checkpoint of step %llu is kept: --resume goes on from it, with a "
                         "lower --rate",
                         (unsigned long long)t->saved_step);
}

// The numbers of the last try, which changed nothing.
static rn_status skip_step(training *t, uint64_t step, uint64_t in_a_row) {
    const rn_step_info *last = rn_trainer_last_step(t->trainer);
    bool empty = last->effect == RN_STEP_NO_TARGETS;
    t->skipped++;
    if (!is_quiet(t) && empty)
        fprintf(stderr, "step %llu: no target of batch %llu counts; it is passed over\n",
                (unsigned long long)step, (unsigned long long)rn_trainer_batches(t->trainer));
    else if (!is_quiet(t))
        fprintf(stderr,
                "step %llu: the gradients of batch %llu are not finite (loss %g, norm %g%s%s); it "
                "is passed over, nothing is changed\n",
                (unsigned long long)step, (unsigned long long)rn_trainer_batches(t->trainer),
                (double)last->loss, (double)last->gradient_norm,
                last->weight[0] ? ", first that of " : "", last->weight);
    return !empty && in_a_row >= train_count(t, "bad-steps") ? refuse_steps(t, in_a_row) : RN_OK;
}

// Takes a step; batches without an effect are passed over.
static rn_status take_step(training *t, step_result *r) {
    uint64_t step = rn_trainer_steps(t->trainer), in_a_row = 0, empty = 0;
    const rn_step_info *last = rn_trainer_last_step(t->trainer);
    rn_batch batch;
    *r = (step_result){.step = step + 1, .rate = rate_at(t, step)};
    double begin = train_clock();
    for (;;) {
        RN_TRY(take_batch(t, RN_DATA_TRAIN, rn_trainer_batches(t->trainer), &batch));
        begin_phase(t, RN_TRAIN_STEP);
        RN_TRY(rn_trainer_step_packed(t->trainer, &batch, r->rate, &r->loss));
        end_phase(t);
        if (last->effect == RN_STEP_TAKEN) break;
        in_a_row += last->effect == RN_STEP_NOT_FINITE;
        empty += last->effect == RN_STEP_NO_TARGETS;
        RN_TRY(skip_step(t, r->step, in_a_row));
        if (empty > rn_train_data_get_info(t->data)->sequences)
            return rn_fail(RN_INVALID, "no batch has anything to learn");
    }
    r->has_norm = train_number(t, "clip") > 0;
    r->norm = last->gradient_norm;
    r->seconds = train_clock() - begin;
    t->loss = r->loss;
    return RN_OK;
}

static rn_status take_steps(training *t) {
    uint64_t save_every = train_count(t, "save-every"),
             check_every = train_count(t, "evaluate-every");
    bool validates = rn_train_data_get_info(t->data)->validation_samples > 0 && check_every > 0;
    while (rn_trainer_steps(t->trainer) < t->steps) {
        step_result r;
        RN_TRY(take_step(t, &r));
        r.has_validation = validates && (r.step % check_every == 0 || r.step == t->steps);
        if (r.has_validation) RN_TRY(evaluate(t, &r.validation));
        RN_TRY(report(t, &r));
        if (save_every && r.step % save_every == 0) RN_TRY(save_training(t));
        bool stops = false;
        RN_TRY(agree_to_stop(t, &stops));
        if (!stops) continue;
        forget_interrupt();
        RN_TRY(save_training(t));
        return rn_hint(rn_fail(RN_CANCELLED, "stopped after step %llu, which is saved",
                               (unsigned long long)r.step),
                       "the same command with --resume goes on from there");
    }
    return save_training(t);
}

// ---- all of it ----------------------------------------------------------------------------------

static void append_setting(char *text, size_t capacity, const char *name, const char *value) {
    size_t end = strlen(text);
    if (value) snprintf(text + end, capacity - end, ";%s=%s", name, value);
}

// What must be the same for a training to go on.
static void name_run(const training *t) {
    const char *const *targets = NULL;
    char text[1024], names[256] = "";
    size_t count = rn_settings_list(t->in->settings, "target", &targets), at = 0;
    for (size_t i = 0; i < count && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? "," : "", targets[i]);
    snprintf(text, sizeof text,
             "model=%s;method=%s;rank=%llu;alpha=%g;rslora=%d;target=%s;optimizer=%s;data=%s;"
             "length=%u;batch=%u;validation=%g;unpacked=%d;seed=%llu",
             rn_model_get_info(t->model)->name, train_text(t, "method"),
             (unsigned long long)train_count(t, "rank"), train_number(t, "alpha"),
             train_bool(t, "rslora"), names, train_text(t, "optimizer"),
             rn_train_data_get_info(t->data)->key, t->tokens, t->batch,
             train_number(t, "validation"), train_bool(t, "unpacked"),
             (unsigned long long)train_count(t, "seed"));
    for (size_t i = 0; i < t->pattern_count; i++) {
        size_t end = strlen(text);
        snprintf(text + end, sizeof text - end, ";pattern=%s=%u=%g", t->patterns[i].module,
                 t->patterns[i].rank, (double)t->patterns[i].alpha);
    }
    // What is as it usually is is not said: checkpoints from before there was a choice go on.
    rn_dtype base = quantised_base_dtype(t->in), compute = compute_dtype(t);
    bool quantised = strcmp(train_text(t, "method"), "qlora") == 0;
    const char *init = train_text(t, "adapter-init"), *sums = train_text(t, "accumulate");
    append_setting(text, sizeof text, "init", strcmp(init, "default") != 0 ? init : NULL);
    append_setting(text, sizeof text, "dora", train_bool(t, "dora") ? "1" : NULL);
    append_setting(text, sizeof text, "accumulate", strcmp(sums, "f32") != 0 ? sums : NULL);
    append_setting(text, sizeof text, "compute",
                   compute != RN_DTYPE_F32 ? rn_dtype_get(compute)->name : NULL);
    append_setting(text, sizeof text, "base",
                   quantised && base != RN_DTYPE_NF4 ? rn_dtype_get(base)->name : NULL);
    rn_trainer_set_run(t->trainer, text);
}

static rn_status refuse_out(void) {
    return rn_hint(rn_fail(RN_INVALID, "there is no place for what is learned"),
                   "name a folder: --out DIR");
}

static rn_status open_out(training *t) {
    if (!t->out[0]) return refuse_out();
    if (mkdir(t->out, 0777) != 0 && errno != EEXIST)
        return rn_error_locate(rn_fail(RN_IO, "cannot make the folder"), t->out, RN_NO_OFFSET);
    if (has_checkpoint(t) && !train_bool(t, "resume"))
        return rn_hint(rn_fail(RN_INVALID, "'%s' has a training already", t->out),
                       "--resume goes on with it; another --out begins anew");
    return RN_OK;
}

static rn_status open_log(training *t) {
    return rn_train_log_open(t->out, rn_trainer_steps(t->trainer), &t->log);
}

// Of several ranks: who they are, and what each holds.
static rn_status print_ranks(training *t) {
    rank_row own = rank_row_of(t), *rows = NULL;
    if (t->ranks == 1) return RN_OK;
    RN_TRY(gather_rows(t, &own, &rows));
    if (!is_quiet(t)) {
        fprintf(stderr, "%s\n", rn_comm_describe(t->comm));
        print_rank_rows(t, rows, stderr);
    }
    free(rows);
    return RN_OK;
}

static rn_status begin(training *t) {
    RN_TRY(only_first(t, open_out));
    RN_TRY(take_turns(t, open_data));
    if (!is_quiet(t)) print_data(t);
    count_steps(t);
    RN_TRY(compare_ranks(t));
    RN_TRY(make_trainer(t));
    name_run(t);
    bool resumes = t->rank == 0 && has_checkpoint(t);
    RN_TRY(from_first(t, &resumes, sizeof resumes));
    if (resumes) RN_TRY(resume_training(t));
    RN_TRY(only_first(t, check_space));
    if (!is_quiet(t)) print_phases(t, rn_trainer_program(t->trainer), stderr);
    RN_TRY(print_ranks(t));
    if (!is_quiet(t) && resumes)
        fprintf(stderr, "goes on from step %llu\n",
                (unsigned long long)rn_trainer_steps(t->trainer));
    return only_first(t, open_log);
}

static void write_end(const training *t, const rank_row *rows) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "out", t->out);
    rn_json_f64(&json, "loss", (double)t->loss);
    rn_json_string(&json, "device", rn_device_target(t->device));
    rn_json_string(&json, "compute", rn_dtype_get(compute_dtype(t))->name);
    rn_json_u64(&json, "skipped_steps", t->skipped);
    rn_json_u64(&json, "budget_bytes",
                t->budget.own_memory ? t->budget_bytes : t->budget.total_bytes);
    rn_json_bool(&json, "planned_only",
                 t->budget.own_memory ? t->budget.device.planned_only : t->budget.planned_only);
    write_phases(t, rn_trainer_program(t->trainer), &json);
    if (rows) write_rank_rows(t, rows, &json);
    rn_json_end(&json);
    (void)!rn_json_finish(&json);
}

static rn_status print_end(training *t) {
    rank_row own = rank_row_of(t), *rows = NULL;
    t->merge_bytes = merge_bytes(t, rn_trainer_program(t->trainer));
    if (!is_quiet(t)) print_facts(t);
    if (t->ranks > 1) RN_TRY(gather_rows(t, &own, &rows));
    if (!is_quiet(t) && rows) print_rank_rows(t, rows, stderr);
    if (!is_quiet(t) && is_method(t, "full"))
        fprintf(stderr, "model in %s/model\n", t->out);
    else if (!is_quiet(t) && train_bool(t, "dora"))
        fprintf(stderr, "adapter in %s: ration convert %s OUT --lora %s\n", t->out,
                t->base[0] ? t->base : "MODEL", t->out);
    else if (!is_quiet(t))
        fprintf(stderr, "adapter in %s: ration run%s%s --lora %s\n", t->out, t->base[0] ? " " : "",
                t->base, t->out);
    if (t->rank == 0 && t->in->json) write_end(t, rows);
    free(rows);
    return RN_OK;
}

static rn_status check_method(const training *t) {
    if (is_method(t, "full") && !model_of(t))
        return rn_hint(rn_fail(RN_UNSUPPORTED, "--method full: the built-in model has no files to "
                                               "write it like"),
                       "name a folder of safetensors, or a GGUF file");
    if (is_method(t, "full") && train_bool(t, "dora"))
        return rn_fail(RN_INVALID, "--dora is for adapters: --method full trains the weights");
    if (!train_bool(t, "merge")) return RN_OK;
    if (is_method(t, "full"))
        return rn_fail(RN_INVALID,
                       "--merge is for adapters: --method full writes the model itself");
    if (!model_of(t))
        return rn_fail(RN_UNSUPPORTED, "--merge: the built-in model has no files to write it like");
    return RN_OK;
}

static rn_status open_model(training *t) {
    t->batch = (uint32_t)train_count(t, "batch-size");
    t->tokens = (uint32_t)train_count(t, "length");
    if (t->batch == 0 || t->batch > 1 << 16 || t->tokens < 2 || t->tokens > 1 << 24)
        return rn_fail(RN_INVALID, "batches of %u sequences of %u tokens are not possible",
                       t->batch, t->tokens);
    t->rows = calloc(3 * (size_t)t->batch * t->tokens, sizeof *t->rows);
    if (!t->rows) return rn_fail(RN_NO_MEMORY, "no memory for a batch");
    snprintf(t->out, sizeof t->out, "%s", train_text(t, "out"));
    RN_TRY(read_patterns(t));
    RN_TRY(check_method(t));
    if (is_method(t, "qlora")) {
        if (!t->out[0]) return refuse_out();
        quantised_base base = {.in = t->in, .model = model_of(t), .out = t->out, .part = ""};
        RN_TRY(make_quantised_base(&base, t->base));
    } else if (model_of(t)) {
        snprintf(t->base, sizeof t->base, "%s", model_of(t));
    }
    RN_TRY(rn_model_open(t->base[0] ? t->base : NULL, NULL, &t->model));
    uint32_t trained = rn_model_get_info(t->model)->context;
    if (trained && t->tokens > trained && !rn_settings_bool(t->in->settings, "quiet"))
        fprintf(stderr,
                "warning: --length %u is more than the %u tokens that the model was trained for\n",
                t->tokens, trained);
    return RN_OK;
}

// The ladder leaves its target first: trainer and program go with it.
static void close_all(training *t) {
    rn_error_info error = *rn_last_error();
    rn_train_log_close(t->log);
    if (t->ladder && rn_ladder_leave(t->ladder, NULL) != RN_OK)
        fprintf(stderr, "ration: %s\n", rn_last_error()->message);
    rn_ladder_destroy(t->ladder);
    (void)rn_error_restore(&error);
    rn_train_data_close(t->data);
    rn_model_close(t->model);
    free(t->rows);
}

static rn_status print_plan(const training *t) {
    if (!t->in->json) {
        print_phases(t, t->program, stdout);
        printf("\n");
        fflush(stdout);
        return rn_program_print(t->program, rn_sink_file(stdout));
    }
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    write_phases(t, t->program, &json);
    rn_json_check(&json, rn_program_json(t->program, rn_json_embed(&json, "program")));
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// For `ration plan FILE.toml`: the phases. Of the model only headers are read; the data is
// tokenised, for its length is what hours follow from.
rn_status plan_training(const invocation *in) {
    if (is_image_training(in)) return plan_image_training(in);
    training t = {.in = in, .saved_step = NO_STEP, .plans_only = true, .ranks = 1};
    rn_status s = open_model(&t);
    if (s == RN_OK) s = open_data(&t);
    if (s == RN_OK) count_steps(&t);
    if (s == RN_OK) s = make_trainer(&t);
    if (s == RN_OK) s = print_plan(&t);
    close_all(&t);
    return s;
}

static rn_status run(const invocation *in) {
    training t = {.in = in, .saved_step = NO_STEP, .ranks = 1};
    if (is_image_training(in) && has_ranks())
        return rn_hint(rn_fail(RN_UNSUPPORTED, "image models are trained by one rank"),
                       "start it without a launcher");
    if (is_image_training(in)) return train_images(in);
    RN_TRY(open_train_ranks(&t));
    rn_status s = take_turns(&t, open_model);
    if (s == RN_OK) s = begin(&t);
    if (s == RN_OK) s = take_steps(&t);
    if (s == RN_OK) s = print_end(&t);
    s = close_train_ranks(&t, s);
    close_all(&t);
    if (s == RN_OK && t.rank == 0 && train_bool(&t, "merge")) s = merge_model(&t, model_of(&t));
    return s;
}

const command train_command = {
    .name = "train",
    .usage = "train [MODEL|CONFIG.toml] --data FILE.jsonl --out DIR [options]",
    .summary = "fine-tune a model on texts, within a budget",
    .about =
        "Trains a LoRA adapter of MODEL (a Hugging Face folder, a GGUF file; without one the\n"
        "model that is built in), whose own weights stay as they are, whatever their type; with\n"
        "--method qlora they are quantised to nf4 first, with full they are trained. The\n"
        "data is JSON, an object a line: messages, conversations, prompt and completion,\n"
        "instruction and output, or text; what the assistant says is learned. Samples are packed\n"
        "into sequences and do not see each other. Prints the plan of every phase, a line a step,\n"
        "and at the end plan and fact; DIR gets the adapter as PEFT and llama.cpp have it, a log,\n"
        "and checkpoints that --resume goes on from, to the same bytes. Ctrl-C saves. With\n"
        "--device cuda the budget is the GPU's: --budget cuda:0=20GB,host=64GiB names both; what\n"
        "does not fit is streamed, computed again or kept on the host. Options may\n"
        "stand in a file, CONFIG.toml, under [train]; ration plan CONFIG.toml prints its plan.",
    .example = "ration train models/smollm2 --data chats.jsonl --out adapter --epochs 2",
    .max_words = 1,
    .limits_memory = true,
    .takes_config = true,
    .run = run,
};
