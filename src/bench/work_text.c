// work_text.c — a text model: tokens a second of prompts and of answers, at several depths, as
// llama-bench names them; a sample is the making of one token.
#include "bench/work.h"

#include "base/clock.h"
#include "memory/account.h"

#include <ration/convert.h>
#include <ration/generate.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROMPT = 512, TOKENS = 128, DEEP = 4096, ROUNDS = 5, CHECKED = 32 };

typedef struct text_work {
    rn_work *w;
    rn_model *model;
    rn_generator *generator;
    rn_sequence *sequence;
    uint32_t *ids; // (id_count): a prompt of any tokens
    size_t id_count;
    char converted[512]; // a temporary file; "": none
} text_work;

// ---- opening ------------------------------------------------------------------------------------

// Weights of another kind: a file beside the temporary ones, removed in the end.
static rn_status convert_weights(text_work *t) {
    rn_work *w = t->w;
    rn_convert_options options = {.thread_count = w->options->threads};
    const char *folder = getenv("TMPDIR"), *model = w->options->model;
    size_t bytes = strlen(model);
    bool gguf = bytes > 5 && strcmp(model + bytes - 5, ".gguf") == 0;
    rn_convert_result result;
    if (!rn_convert_parse_target(rn_str_from(w->variant.weights), &options))
        return rn_fail(RN_UNSUPPORTED, "no model can be converted to %s", w->variant.weights);
    if (!gguf)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a folder is not converted while it is measured"),
                       "ration convert %s OUT --to %s, then ration bench OUT", model,
                       w->variant.weights);
    rn_bench_worker_stage(w->worker, "converting");
    snprintf(t->converted, sizeof t->converted, "%s/ration-bench-%d.gguf",
             folder && *folder ? folder : "/tmp", (int)getpid());
    RN_TRY(rn_convert(model, t->converted, &options, &result));
    if (result.converted_count) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "no weight of %s becomes %s", model, w->variant.weights);
}

static rn_status open_model(text_work *t) {
    rn_work *w = t->w;
    const char *path = w->options->model;
    if (w->variant.weights[0]) {
        RN_TRY(convert_weights(t));
        path = t->converted;
    }
    rn_ledger_reset_peaks();
    RN_TRY(rn_model_open(path, &(rn_model_options){.without_tokenizer = true}, &t->model));
    const rn_model_info *info = rn_model_get_info(t->model);
    if (info->encoder)
        return rn_fail(RN_UNSUPPORTED, "%s makes embeddings and no text", w->options->model);
    snprintf(w->figures.weights, sizeof w->figures.weights, "%.31s", info->weights);
    snprintf(w->figures.data_dtype, sizeof w->figures.data_dtype, "i32");
    return RN_OK;
}

static void note_plan(void *self, const rn_plan *plan) {
    rn_work_note_plan(self, rn_plan_get_summary(plan));
}

static rn_status open_generator(text_work *t) {
    rn_work *w = t->w;
    const rn_model_info *info = rn_model_get_info(t->model);
    uint32_t wanted = DEEP + PROMPT + TOKENS + 64;
    uint32_t context = info->context && info->context < wanted ? info->context : wanted;
    if (strcmp(w->variant.engine, "ration") && strcmp(w->variant.engine, "cuda"))
        context = context < 1024 ? context : 1024; // compiled for a fixed size
    rn_generator_options options = {
        .text = {.context = context,
                 .prompt_tokens = PROMPT,
                 .new_tokens = TOKENS,
                 .unquantised_activations = strcmp(w->variant.activations, "f32") == 0},
        .speculation = RN_SPECULATE_NEVER,
        .session = {.device = w->device, .cancel = w->options->cancel},
        .planned = note_plan,
        .planned_self = w};
    RN_TRY(rn_work_plan_options(w, 1 << 20, &options.plan));
    rn_bench_worker_stage(w->worker, "loading");
    RN_TRY(rn_generator_create(t->model, &options, &t->generator));
    RN_TRY(rn_sequence_create(t->generator, &(rn_sampling){.without_logprob = true}, &t->sequence));
    t->id_count = rn_generator_context(t->generator);
    RN_TRY(rn_alloc(RN_HOST_OTHER, t->id_count * sizeof *t->ids, (void **)&t->ids));
    for (size_t i = 0; i < t->id_count; i++)
        t->ids[i] = (uint32_t)(i * 2654435761u) % info->vocab_size;
    return RN_OK;
}

static void close_work(text_work *t) {
    rn_sequence_destroy(t->sequence);
    rn_generator_destroy(t->generator);
    rn_model_close(t->model);
    rn_free(RN_HOST_OTHER, t->ids, t->id_count * sizeof *t->ids);
    if (t->converted[0]) unlink(t->converted);
}

// ---- measuring ----------------------------------------------------------------------------------

// Reads `count` tokens of the prompt behind `first`, and makes one.
static rn_status read_prompt(text_work *t, size_t first, size_t count) {
    rn_sample sample;
    RN_TRY(rn_sequence_feed(t->sequence, t->ids + first, count));
    while (!rn_sequence_take(t->sequence, &sample))
        RN_TRY(rn_generator_step(t->generator));
    rn_sequence_pause(t->sequence);
    return RN_OK;
}

static rn_status make_tokens(text_work *t, size_t count) {
    rn_sample sample;
    RN_TRY(rn_sequence_feed(t->sequence, NULL, 0));
    for (size_t made = 0; made < count;) {
        if (rn_work_is_cancelled(t->w)) return rn_fail(RN_CANCELLED, "interrupted");
        RN_TRY(rn_generator_step(t->generator));
        while (made < count && rn_sequence_take(t->sequence, &sample))
            made++;
    }
    rn_sequence_pause(t->sequence);
    return RN_OK;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median of the rounds, smallest and largest: five of them are too few for an interval of 95 %.
static void add_line(text_work *t, const char *test, uint64_t tokens, uint64_t depth,
                     double *seconds, size_t rounds) {
    rn_bench_result *f = &t->w->figures;
    if (rounds == 0 || f->text_count == RN_BENCH_TEXTS) return;
    qsort(seconds, rounds, sizeof *seconds, compare);
    rn_bench_text *line = &f->texts[f->text_count++];
    *line = (rn_bench_text){.tokens = tokens,
                            .depth = depth,
                            .tokens_per_s = (double)tokens / seconds[rounds / 2],
                            .tokens_per_s_low = (double)tokens / seconds[rounds - 1],
                            .tokens_per_s_high = (double)tokens / seconds[0]};
    if (depth)
        snprintf(line->test, sizeof line->test, "%s%llu @ d%llu", test, (unsigned long long)tokens,
                 (unsigned long long)depth);
    else
        snprintf(line->test, sizeof line->test, "%s%llu", test, (unsigned long long)tokens);
}

// Prompts and answers behind `depth` tokens, for some seconds or five rounds.
static rn_status measure_depth(text_work *t, size_t depth, double most_seconds) {
    double prompt[ROUNDS], answer[ROUNDS], spent = 0;
    size_t rounds = 0, context = t->id_count;
    size_t prompt_tokens = depth ? 0 : context > PROMPT + 2 ? PROMPT : context / 2;
    size_t tokens =
        context - depth - prompt_tokens - 2 < TOKENS ? context - depth - prompt_tokens - 2 : TOKENS;
    while (rounds < ROUNDS && (rounds == 0 || spent < most_seconds)) {
        rn_sequence_rewind(t->sequence, 0);
        if (depth) RN_TRY(read_prompt(t, 0, depth));
        uint64_t begin = rn_clock_ns();
        if (prompt_tokens) RN_TRY(read_prompt(t, depth, prompt_tokens));
        uint64_t middle = rn_clock_ns();
        prompt[rounds] = (double)(middle - begin) * 1e-9;
        rn_sequence_rewind(t->sequence, depth ? depth : 1);
        RN_TRY(read_prompt(t, depth, 1));
        uint64_t start = rn_clock_ns();
        RN_TRY(make_tokens(t, tokens));
        answer[rounds] = (double)(rn_clock_ns() - start) * 1e-9;
        spent += prompt[rounds] + answer[rounds];
        rounds++;
    }
    if (prompt_tokens) add_line(t, "pp", prompt_tokens, depth, prompt, rounds);
    add_line(t, "tg", tokens, depth, answer, rounds);
    return RN_OK;
}

// One token a sample, the text begun anew where the context is full.
static rn_status measure_tokens(text_work *t) {
    rn_work *w = t->w;
    uint64_t begin, runs = 0;
    rn_bench_worker_stage(w->worker, "warm_up");
    rn_sequence_rewind(t->sequence, 0);
    RN_TRY(read_prompt(t, 0, 1));
    w->energy = rn_energy_read(rn_device_has_own_memory(w->device));
    do {
        size_t count = 0;
        (void)rn_sequence_tokens(t->sequence, &count);
        if (count + 2 >= t->id_count || count > TOKENS) {
            rn_sequence_rewind(t->sequence, 0);
            RN_TRY(read_prompt(t, 0, 1));
        }
        begin = rn_clock_ns();
        RN_TRY(make_tokens(t, 1));
        runs++;
    } while (rn_bench_worker_sample(w->worker, (double)(rn_clock_ns() - begin)));
    rn_work_note_energy(w, runs);
    return RN_OK;
}

// Tokens that a variant makes by itself part from the others' at the first close call, and from
// there on say nothing. So what is compared is how likely each token of a given text is to it: a
// bias makes it choose that one, and its logarithm is of the model's own probabilities.
static rn_status send_logprobs(text_work *t) {
    rn_logit_bias next = {.token = 0, .bias = 1e6f};
    rn_sampling sampling = {.bias = &next, .bias_count = 1};
    rn_sample sample;
    float logprobs[CHECKED];
    size_t given = t->id_count > 80 ? 32 : 4, checked = t->id_count > 80 ? CHECKED : 4;
    rn_sequence_destroy(t->sequence);
    t->sequence = NULL;
    RN_TRY(rn_sequence_create(t->generator, &sampling, &t->sequence));
    rn_status s = rn_sequence_feed(t->sequence, t->ids, given);
    for (size_t i = 0; i < checked && s == RN_OK; i++) {
        next.token = t->ids[given + i];
        while (s == RN_OK && !rn_sequence_take(t->sequence, &sample))
            s = rn_generator_step(t->generator);
        if (s == RN_OK) logprobs[i] = sample.logprob;
    }
    rn_sequence_destroy(t->sequence); // it borrows the bias
    t->sequence = NULL;
    return s == RN_OK ? rn_bench_worker_output(t->w->worker, logprobs, checked) : s;
}

static rn_status measure(text_work *t) {
    rn_work *w = t->w;
    uint64_t begin = rn_clock_ns();
    RN_TRY(read_prompt(t, 0, 1));
    w->figures.first_s = (double)(rn_clock_ns() - begin) * 1e-9;
    RN_TRY(measure_tokens(t));
    rn_bench_worker_stage(w->worker, "depth 0");
    RN_TRY(measure_depth(t, 0, 4));
    double rate = w->figures.text_count ? w->figures.texts[0].tokens_per_s : 0;
    if (t->id_count > DEEP + 64 && DEEP / rate < 30) {
        rn_bench_worker_stage(w->worker, "depth 4096");
        RN_TRY(measure_depth(t, DEEP, 1));
    }
    rn_bench_worker_stage(w->worker, "outputs");
    return send_logprobs(t);
}

rn_status rn_work_text(rn_work *w) {
    text_work t = {.w = w};
    uint64_t begin = rn_clock_ns();
    bool eager =
        strcmp(w->variant.engine, "eager") == 0 || strcmp(w->variant.engine, "reference") == 0;
    if (eager) return rn_fail(RN_UNSUPPORTED, "%s is for models of tensors", w->variant.engine);
    rn_bench_worker_stage(w->worker, "opening");
    rn_status s = rn_work_open_device(w);
    if (s == RN_OK) s = open_model(&t);
    if (s == RN_OK) s = open_generator(&t);
    w->figures.load_s = (double)(rn_clock_ns() - begin) * 1e-9;
    if (s == RN_OK) s = measure(&t);
    if (t.generator) w->figures.read_bytes = rn_generator_get_facts(t.generator).session.read_bytes;
    rn_work_note_ledger(w);
    rn_error_info error = *rn_last_error();
    if (s == RN_OK) rn_bench_worker_stage(w->worker, "clean_up"); // else where it failed is told
    close_work(&t);
    return s == RN_OK ? RN_OK : rn_error_restore(&error);
}
