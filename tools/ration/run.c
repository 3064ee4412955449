// run.c — ration run: text from a model, within a budget.
#include "rank_job.h"
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

// ---- settings -----------------------------------------------------------------------------------

static rn_dtype kv_dtype(const char *name) {
    if (strcmp(name, "int8") == 0) return RN_DTYPE_Q8_0;
    return strcmp(name, "f32") == 0 ? RN_DTYPE_F32 : RN_DTYPE_F16;
}

static rn_status read_count(const invocation *in, const char *name, uint32_t *out) {
    uint64_t value = rn_settings_count(in->settings, name);
    *out = (uint32_t)value;
    if (value <= UINT32_MAX / 2) return RN_OK;
    return rn_fail(RN_INVALID, "--%s %llu is too large", name, (unsigned long long)value);
}

rn_status read_text_options(const invocation *in, rn_text_options *out) {
    *out = (rn_text_options){.kv_dtype = kv_dtype(rn_settings_text(in->settings, "kv")),
                             .unquantised_activations =
                                 strcmp(rn_settings_text(in->settings, "activations"), "f32") == 0};
    RN_TRY(read_count(in, "ctx", &out->context));
    RN_TRY(read_count(in, "kv-page", &out->page_tokens));
    RN_TRY(read_count(in, "kv-pages", &out->pages));
    return read_count(in, "chunk", &out->rows);
}

rn_status read_embedding_form(const invocation *in, rn_embedding_form *out) {
    const char *pooling = rn_settings_text(in->settings, "pooling");
    *out = (rn_embedding_form){.refuse_long = rn_settings_bool(in->settings, "refuse-long")};
    while (strcmp(pooling, rn_pooling_name(out->pooling)) != 0)
        out->pooling++;
    return read_count(in, "dimensions", &out->dimensions);
}

// What stands before the first '=' is a name, if it has no slash.
static char *cut_name(char *path) {
    char *equals = strchr(path, '='), *slash = strchr(path, '/');
    if (!equals || equals == path || (slash && slash < equals)) return NULL;
    *equals = 0;
    return equals + 1;
}

// [NAME=]PATH[:SCALE]. The last colon before a number separates the scale; any other belongs to the
// path.
static rn_status read_adapter(const char *text, rn_adapter *out, char path[4096]) {
    char *end;
    if ((size_t)snprintf(path, 4096, "%s", text) >= 4096)
        return rn_fail(RN_INVALID, "--lora: the path is too long");
    char *behind = cut_name(path);
    *out = (rn_adapter){.path = path, .scale = 1};
    if (behind) *out = (rn_adapter){.path = behind, .scale = 1, .name = path};
    path = behind ? behind : path;
    char *colon = strrchr(path, ':');
    if (!colon || !colon[1]) return RN_OK;
    double scale = strtod(colon + 1, &end);
    if (*end) return RN_OK;
    if (!isfinite(scale)) return rn_fail(RN_INVALID, "--lora %s: the scale is no number", text);
    *colon = 0;
    out->scale = (float)scale;
    return RN_OK;
}

rn_status read_adapters(const invocation *in, rn_adapter *adapters, char (*paths)[4096],
                        size_t *out_count) {
    const char *const *items = NULL;
    *out_count = rn_settings_list(in->settings, "lora", &items);
    if (*out_count > MAX_ADAPTERS)
        return rn_fail(RN_INVALID, "--lora: more than %d adapters", MAX_ADAPTERS);
    const char *asked = in->command->name; // one job has nothing to choose: names are for servers
    bool chosen = strcmp(asked, "run") != 0 && strcmp(asked, "embed") != 0;
    for (size_t i = 0; i < *out_count; i++) {
        RN_TRY(read_adapter(items[i], &adapters[i], paths[i]));
        if (!chosen) adapters[i].name = NULL;
    }
    return RN_OK;
}

// "ID=X" or "ID=never".
static rn_status read_bias(const char *text, rn_logit_bias *out) {
    char *end, *last;
    unsigned long id = strtoul(text, &end, 10);
    bool never = *end == '=' && strcmp(end + 1, "never") == 0;
    double bias = *end == '=' && !never ? strtod(end + 1, &last) : -INFINITY;
    bool good = end != text && *end == '=' && end[1] && (never || (!*last && isfinite(bias)));
    if (!good || id > UINT32_MAX)
        return rn_hint(rn_fail(RN_INVALID, "--logit-bias %s: not ID=NUMBER", text),
                       "for example --logit-bias 13=-2.5 or 13=never");
    *out = (rn_logit_bias){(uint32_t)id, (float)bias};
    return RN_OK;
}

static bool is_given(const invocation *in, const char *name) {
    return strcmp(rn_settings_origin(in->settings, name), "default") != 0;
}

// Models end what they answer themselves, but hardly ever a text that merely goes on. Somebody
// looks on in a chat, and ends what never would; its context bounds it.
static uint64_t most_tokens(const runner *r) {
    enum { QUESTION_TOKENS = 1024 };
    if (is_given(r->in, "tokens") || (!r->chats && !r->asks))
        return rn_settings_count(r->in->settings, "tokens");
    return r->chats ? UINT64_MAX : QUESTION_TOKENS;
}

// What somebody set, else what the model's makers advise, else the usual.
static float advised(const runner *r, const char *name, double advice) {
    bool takes = advice >= 0 && !is_given(r->in, name);
    return (float)(takes ? advice : rn_settings_number(r->in->settings, name));
}

// Another one each time, unless it is given.
static rn_status read_seed(const invocation *in, uint64_t *out) {
    *out = rn_settings_count(in->settings, "seed");
    if (is_given(in, "seed")) return RN_OK;
    uint32_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return rn_fail(RN_IO, "no random seed: %s", strerror(errno));
    *out = drawn;
    return RN_OK;
}

static rn_status read_sampling(runner *r) {
    const rn_settings *s = r->in->settings;
    const char *const *items = NULL;
    size_t count = rn_settings_list(s, "logit-bias", &items);
    rn_sampling *out = &r->sampling;
    bool greedy = rn_settings_bool(s, "greedy");
    rn_sampling_advice advice = rn_model_get_info(r->model)->sampling;
    if (is_given(r->in, "temperature") || greedy) advice = (rn_sampling_advice){-1, -1, -1, -1, -1};
    r->advised = advice.temperature >= 0 || advice.top_p >= 0 || advice.min_p >= 0 ||
                 advice.repetition_penalty >= 0 || advice.top_k >= 0;
    *out = (rn_sampling){
        .temperature = greedy ? 0 : advised(r, "temperature", advice.temperature),
        .top_p = advised(r, "top-p", advice.top_p),
        .min_p = advised(r, "min-p", advice.min_p),
        .repetition_penalty = advised(r, "repetition-penalty", advice.repetition_penalty),
        .presence_penalty = (float)rn_settings_number(s, "presence-penalty"),
        .frequency_penalty = (float)rn_settings_number(s, "frequency-penalty"),
        .bias = r->biases,
        .bias_count = count,
    };
    RN_TRY(read_seed(r->in, &out->seed));
    RN_TRY(read_count(r->in, "top-k", &out->top_k));
    if (advice.top_k >= 0 && !is_given(r->in, "top-k")) out->top_k = (uint32_t)advice.top_k;
    RN_TRY(read_count(r->in, "penalty-window", &out->penalty_window));
    RN_TRY(read_count(r->in, "logprobs", &out->logprobs));
    out->without_logprob = !r->in->json; // nobody sees it
    for (size_t i = 0; i < count; i++)
        RN_TRY(read_bias(items[i], &r->biases[i]));
    return RN_OK;
}

rn_speculation read_speculation(const invocation *in) {
    const char *text = rn_settings_text(in->settings, "speculate");
    return strcmp(text, "never") == 0    ? RN_SPECULATE_NEVER
           : strcmp(text, "always") == 0 ? RN_SPECULATE_ALWAYS
                                         : RN_SPECULATE_AUTO;
}

rn_split read_split(const invocation *in) {
    const char *text = rn_settings_text(in->settings, "split");
    return strcmp(text, "heads") == 0    ? RN_SPLIT_HEADS
           : strcmp(text, "layers") == 0 ? RN_SPLIT_LAYERS
                                         : RN_SPLIT_AUTO;
}

// ---- opening ------------------------------------------------------------------------------------

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

rn_status open_runner_model(runner *r) {
    rn_model_options options = {.adapters = r->adapters};
    const char *tokenizer = rn_settings_text(r->in->settings, "tokenizer");
    RN_TRY(read_adapters(r->in, r->adapters, r->adapter_paths, &options.adapter_count));
    if (tokenizer[0]) options.tokenizer_path = tokenizer;
    RN_TRY(rn_model_open(r->in->word_count ? r->in->words[0] : NULL, &options, &r->model));
    r->tokenizer = rn_model_tokenizer(r->model);
    if (r->tokenizer) return RN_OK;
    return rn_hint(rn_fail(RN_NOT_FOUND, "the model comes without a tokenizer"),
                   "name one with --tokenizer PATH");
}

static uint64_t held_text(const runner *r) {
    return r->prompt.capacity + r->said.capacity + r->tokens.capacity * sizeof *r->tokens.ids;
}

// ---- the context --------------------------------------------------------------------------------

// As many tokens as a prompt and its answer take, at most what the model was trained for.
static void fit_context(const runner *r, uint64_t answer_tokens, rn_text_options *text) {
    uint64_t needed = r->tokens.count + answer_tokens + 1;
    uint32_t trained = rn_model_get_info(r->model)->context;
    if (trained && needed > trained) needed = trained;
    if (needed <= UINT32_MAX / 2) text->context = (uint32_t)needed;
}

// A chat's may become as long as the model was trained for, where there are pages for it; they are
// taken as it grows. That is the host's: a device takes all of them at once, so there it is the
// usual context. A recording shows the arena whole.
static bool grows(const runner *r) {
    return !r->comm && r->chats && rn_settings_count(r->in->settings, "ctx") == 0 &&
           strncmp(rn_device_target(r->device), "cpu", 3) == 0 && rn_profile_recording() == 0;
}

enum { USUAL_CONTEXT = 4096, LEAST_CONTEXT = 512 };

static uint32_t pages_of(const rn_text_options *text, uint32_t tokens) {
    enum { PAGE = 64 };
    uint32_t page = text->page_tokens ? text->page_tokens : PAGE;
    return (tokens + page - 1) / page;
}

static rn_status create_growing(runner *r) {
    rn_generator_options o = r->options;
    uint32_t trained = rn_model_get_info(r->model)->context;
    o.grow_kv = true;
    o.text.context = trained ? trained : USUAL_CONTEXT;
    o.least_pages = pages_of(&o.text, trained && trained < USUAL_CONTEXT ? trained : USUAL_CONTEXT);
    rn_status s = rn_generator_create(r->model, &o, &r->generator);
    if (s != RN_OVER_BUDGET || trained <= LEAST_CONTEXT) return s;
    // Rather a short memory than none.
    o.least_pages = pages_of(&o.text, LEAST_CONTEXT);
    return rn_generator_create(r->model, &o, &r->generator);
}

static rn_status create_generator(runner *r) {
    r->grows = grows(r);
    if (r->grows) return create_growing(r);
    rn_status s = rn_generator_create(r->model, &r->options, &r->generator);
    uint64_t usual = rn_settings_count(r->in->settings, "tokens");
    if (s != RN_OVER_BUDGET || most_tokens(r) == usual || is_given(r->in, "ctx") || r->comm)
        return s;
    rn_generator_options shorter = r->options; // rather a short answer than none
    fit_context(r, usual, &shorter.text);
    return rn_generator_create(r->model, &shorter, &r->generator);
}

// ---- devices ------------------------------------------------------------------------------------

// On one target of the ladder: what the device has for a plan, and the plan, loaded.
static rn_status try_device(void *self, const rn_ladder_target *target) {
    runner *r = self;
    rn_generator_options *o = &r->options;
    r->device = o->session.device = target->device;
    (void)rn_rates_apply(r->device);
    RN_TRY(read_budget(r->in, r->device, text_room(r->model, &o->text, held_text(r)), &r->budget));
    use_budget(&r->budget, &o->plan);
    o->device_budget = r->budget.device;
    RN_TRY(create_generator(r));
    r->rates = rn_rates_apply(r->device);
    r->loaded_bytes = rn_generator_get_facts(r->generator).session.read_bytes;
    return rn_sequence_create(r->generator, &r->sampling, &r->sequence);
}

static void leave_device(void *self) {
    runner *r = self;
    rn_sequence_destroy(r->sequence);
    rn_generator_destroy(r->generator);
    r->sequence = NULL;
    r->generator = NULL;
    r->device = NULL;
}

static rn_status start(runner *r, uint32_t threads) {
    rn_ladder_load load = {.self = r, .attempt = try_device, .undo = leave_device};
    rn_ladder_options options = {.threads = threads,
                                 .no_fallback = !rn_settings_bool(r->in->settings, "fallback")};
    rn_ladder_target target;
    end_opening();
    RN_TRY(parse_devices(r->in, &r->ladder));
    return rn_ladder_start(r->ladder, &options, &load, &target);
}

// As a server chooses it: several texts, whose beginnings are shared.
static void plan_for_server(uint32_t parallel, rn_generator_options *o) {
    o->text.sequences = parallel;
    o->text.prompt_tokens = RN_SERVER_PROMPT_TOKENS;
    o->prompt_rows = RN_SERVER_PROMPT_ROWS;
    o->prefix_caching = true;
}

static void warn_of_context(const runner *r, uint32_t context) {
    uint32_t trained = rn_model_get_info(r->model)->context;
    if (trained && context > trained && !rn_settings_bool(r->in->settings, "quiet"))
        fprintf(stderr,
                "warning: --ctx %u is more than the %u tokens that the model was trained for; "
                "what it says beyond them may make no sense\n",
                context, trained);
}

rn_status open_runner_generator(runner *r) {
    uint32_t threads = (uint32_t)rn_settings_count(r->in->settings, "threads");
    rn_generator_options *o = &r->options;
    RN_TRY(read_text_options(r->in, &o->text));
    warn_of_context(r, o->text.context);
    if (o->text.context == 0 && r->tokens.count) fit_context(r, most_tokens(r), &o->text);
    if (r->parallel) plan_for_server(r->parallel, o);
    RN_TRY(read_sampling(r));
    RN_TRY(rn_sampling_check(&r->sampling, rn_model_get_info(r->model)->vocab_size));
    o->measure_rates = use_rates(r->in, threads);
    RN_TRY(read_constraints(r->in, &r->constraints, &o->plan));
    RN_TRY(read_experts(r->in, &r->constraints, &o->plan));
    o->plan.exact = rn_settings_bool(r->in->settings, "exact");
    o->session.audit = rn_settings_bool(r->in->settings, "audit");
    o->session.cancel = r->chats ? NULL : &interrupt_flag; // in a chat only between tokens
    o->speculation = read_speculation(r->in);
    o->comm = r->comm;
    o->split = read_split(r->in);
    o->shared = hear_shares;
    o->planned_self = r;
    return start(r, threads);
}

rn_status close_runner(runner *r) {
    rn_status s = r->ladder ? rn_ladder_leave(r->ladder, NULL) : RN_OK;
    rn_ladder_destroy(r->ladder);
    rn_model_close(r->model);
    rn_tokens_free(&r->tokens);
    free_text(&r->prompt);
    free_text(&r->said);
    return s;
}

// ---- speaking -----------------------------------------------------------------------------------

static void write_top(rn_json *json, const rn_tokenizer *tokenizer, const rn_sample *sample) {
    rn_json_array(json, "top");
    for (uint32_t i = 0; i < sample->top_count; i++) {
        rn_json_object(json, NULL);
        rn_json_u64(json, "id", sample->top[i].token);
        rn_json_text(json, "text", rn_tokenizer_bytes(tokenizer, sample->top[i].token, true));
        rn_json_f64(json, "logprob", sample->top[i].logprob);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void hear_token(void *self, const rn_sample *sample) {
    runner *r = self;
    rn_json *json = &r->json;
    if (r->first_token_seconds == 0) r->first_token_seconds = seconds_now();
    if (!r->tells_tokens) return;
    rn_json_object(json, NULL);
    rn_json_u64(json, "id", sample->token);
    rn_json_text(json, "text", rn_tokenizer_bytes(r->tokenizer, sample->token, true));
    rn_json_f64(json, "logprob", sample->logprob);
    if (r->sampling.logprobs) write_top(json, r->tokenizer, sample);
    rn_json_end(json);
}

rn_status speak(runner *r, const uint32_t *ids, size_t count, rn_sink sink, rn_answer *out) {
    const char *const *items = NULL;
    rn_str stops[MAX_STOPS];
    rn_answer_options options = {.new_tokens = most_tokens(r),
                                 .stops = stops,
                                 .stop_count = rn_settings_list(r->in->settings, "stop", &items),
                                 .cancel = &interrupt_flag,
                                 .on_token = hear_token,
                                 .self = r};
    for (size_t i = 0; i < options.stop_count; i++)
        stops[i] = (rn_str){items[i], strlen(items[i])};
    rn_status s = rn_sequence_answer(r->sequence, r->tokenizer, ids, count, &options, sink, out);
    if (s == RN_OK && out->reason == RN_END_TOKEN && r->first_token_seconds == 0)
        r->first_token_seconds = seconds_now(); // the first was the last
    return s;
}

// ---- a prompt -----------------------------------------------------------------------------------

// What stands behind MODEL, or --prompt; "": neither.
const char *given_prompt(const invocation *in) {
    return in->word_count > 1 ? in->words[1] : rn_settings_text(in->settings, "prompt");
}

// Without a prompt: what is piped in.
static rn_status read_prompt(const invocation *in, text_buffer *out) {
    const char *text = given_prompt(in), *path = rn_settings_text(in->settings, "prompt-file");
    if (text[0] && path[0])
        return rn_fail(RN_INVALID, "a prompt and --prompt-file: one of them is enough");
    if (in->word_count > 1 && rn_settings_text(in->settings, "prompt")[0])
        return rn_fail(RN_INVALID, "two prompts: behind the model and with --prompt");
    if (path[0]) return read_text(path, out);
    if (text[0] || isatty(STDIN_FILENO)) return append_text(out, text, strlen(text));
    RN_TRY(read_text("-", out));
    while (out->bytes && out->data[out->bytes - 1] == '\n') // the shell's, not the text's
        out->bytes--;
    return RN_OK;
}

static rn_status check_utf8(const text_buffer *text) {
    for (size_t at = 0, step; at < text->bytes; at += step) {
        step = rn_utf8_sequence(text->data + at, text->bytes - at);
        if (step == 0)
            return rn_hint(rn_fail(RN_INVALID, "the prompt is not UTF-8 at byte %zu", at),
                           "convert it, for example with iconv");
    }
    return RN_OK;
}

// A question as the model wants it; of a text to go on from, an empty one is the beginning-of-text
// token alone.
static rn_status encode_prompt(const runner *r, const text_buffer *text, rn_tokens *out) {
    const rn_tokenizer_info *info = rn_tokenizer_get_info(r->tokenizer);
    RN_TRY(check_utf8(text));
    if (r->asks && text->bytes) return encode_question(r, (rn_str){text->data, text->bytes}, out);
    RN_TRY(
        rn_tokenizer_encode(r->tokenizer, (rn_str){text->data, text->bytes}, RN_ENCODE_BEGIN, out));
    if (out->count) return RN_OK;
    uint32_t begin = info->begin != RN_NO_TOKEN ? info->begin : info->end;
    if (begin == RN_NO_TOKEN)
        return rn_hint(rn_fail(RN_INVALID, "the prompt is empty and the tokenizer has no token for "
                                           "the beginning of a text"),
                       "give a prompt with -p TEXT");
    return rn_tokens_push(out, begin);
}

// At least one token must fit behind it.
static rn_status fit_prompt(const runner *r, rn_tokens *tokens) {
    size_t room = rn_generator_context(r->generator) - 1;
    if (tokens->count <= room) return RN_OK;
    if (!rn_settings_bool(r->in->settings, "truncate"))
        return rn_hint(rn_fail(RN_INVALID, "the prompt has %zu tokens, the context %zu",
                               tokens->count, room + 1),
                       "a larger --ctx, or --truncate to cut its beginning");
    bool keep_begin = rn_tokenizer_get_info(r->tokenizer)->adds_begin && room > 1;
    memmove(tokens->ids + keep_begin, tokens->ids + tokens->count - (room - keep_begin),
            (room - keep_begin) * sizeof *tokens->ids);
    tokens->count = room;
    return RN_OK;
}

static rn_status write_stdout(void *self, const char *text, size_t bytes) {
    (void)self;
    if (fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0) return RN_OK;
    return rn_fail(RN_IO, "cannot write to standard output: %s", strerror(errno));
}

static rn_status check_interrupt(const rn_answer *a) {
    return a->reason == RN_END_CANCELLED ? rn_fail(RN_CANCELLED, "interrupted") : RN_OK;
}

// A device that fails before it has said anything is left for the next one.
static rn_status answer_prompt(runner *r, rn_sink sink, rn_answer *a) {
    for (;;) {
        rn_ladder_target target;
        rn_status s = speak(r, r->tokens.ids, r->tokens.count, sink, a);
        if (s == RN_OK || a->tokens > 0) return s;
        RN_TRY(rn_ladder_advance(r->ladder, rn_last_error(), &target));
        RN_TRY(fit_prompt(r, &r->tokens)); // another device, maybe another context
        if (!r->tells_tokens && !rn_settings_bool(r->in->settings, "quiet")) print_opening(r);
    }
}

static rn_status tell(runner *r) {
    const text_buffer *prompt = &r->prompt;
    rn_answer a;
    bool quiet = rn_settings_bool(r->in->settings, "quiet");
    if (!quiet) print_opening(r);
    if (!r->asks) RN_TRY(write_stdout(NULL, prompt->data ? prompt->data : "", prompt->bytes));
    RN_TRY(answer_prompt(r, (rn_sink){NULL, write_stdout}, &a));
    RN_TRY(write_stdout(NULL, "\n", 1));
    if (!quiet) print_report(r);
    return check_interrupt(&a);
}

static rn_status tell_json(runner *r) {
    const text_buffer *prompt = &r->prompt;
    const rn_tokens *tokens = &r->tokens;
    const text_buffer *text = &r->said;
    rn_json *json = &r->json;
    rn_answer a;
    rn_json_begin(json, rn_sink_file(stdout), true);
    rn_json_object(json, NULL);
    rn_json_text(json, "prompt", (rn_str){prompt->data, prompt->bytes});
    rn_json_u64(json, "prompt_tokens", tokens->count);
    rn_json_array(json, "tokens");
    r->tells_tokens = true;
    rn_status s = answer_prompt(r, (rn_sink){&r->said, append_text}, &a);
    r->tells_tokens = false;
    rn_json_end(json);
    rn_json_text(json, "text", (rn_str){text->data, text->bytes});
    rn_json_string(json, "ended_by", rn_end_reason_name(a.reason));
    if (s == RN_OK) write_report(r, json);
    rn_json_end(json);
    RN_TRY(s);
    RN_TRY(rn_json_finish(json));
    return check_interrupt(&a);
}

// Before the budget is divided: a long prompt is part of what the process holds then, and so is the
// answer of an ordinary length.
static rn_status prepare_prompt(runner *r) {
    enum { MOST_TOKENS = 4096, TOKEN_BYTES = 8 };
    uint64_t tokens = most_tokens(r);
    if (tokens > MOST_TOKENS) tokens = MOST_TOKENS;
    if (r->in->json) RN_TRY(reserve_text(&r->said, (size_t)tokens * TOKEN_BYTES));
    RN_TRY(read_prompt(r->in, &r->prompt));
    return encode_prompt(r, &r->prompt, &r->tokens);
}

static rn_status run_prompt(runner *r) {
    RN_TRY(fit_prompt(r, &r->tokens));
    return r->in->json ? tell_json(r) : tell(r);
}

// On a terminal a model that has a chat template is for a chat, unless there is a prompt.
static bool wants_chat(const runner *r) {
    const invocation *in = r->in;
    if (rn_settings_bool(in->settings, "chat")) return true;
    if (in->json || given_prompt(in)[0] || rn_settings_text(in->settings, "prompt-file")[0])
        return false;
    return has_form(r) && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

// What stands behind MODEL, or is piped in, is said to a model that has a form for it. -p and -f
// give a text to go on from.
static bool asks(const runner *r) {
    const rn_settings *s = r->in->settings;
    bool to_go_on = rn_settings_text(s, "prompt")[0] || rn_settings_text(s, "prompt-file")[0];
    return has_form(r) && !r->chats && !to_go_on &&
           (r->in->word_count > 1 || !isatty(STDIN_FILENO));
}

static rn_status check_options(runner *r) {
    const invocation *in = r->in;
    r->chats = wants_chat(r);
    r->asks = asks(r);
    if (r->chats && in->json) return rn_fail(RN_INVALID, "--chat and --json do not go together");
    if (!r->chats && !r->asks && rn_settings_text(in->settings, "system")[0])
        return rn_hint(rn_fail(RN_INVALID, "--system is for a chat, or a question behind MODEL"),
                       "add --chat");
    return RN_OK;
}

// An operation of its own in a recording.
static rn_status in_scope(const char *name, rn_status (*fn)(runner *r), runner *r) {
    rn_profile_begin(rn_profile_name(name));
    rn_status s = fn(r);
    rn_profile_end();
    return s;
}

// Ranks above 0 have no prompt, and say nothing.
static rn_status run_all(runner *r) {
    bool follows = rn_comm_rank(r->comm) > 0;
    double start = seconds_now();
    RN_TRY(in_scope("open model", open_runner_model, r));
    if (!follows) RN_TRY(check_options(r));
    if (!follows && !r->chats) RN_TRY(in_scope("tokenize", prepare_prompt, r));
    RN_TRY(in_scope("open generator", open_runner_generator, r));
    r->opened_seconds = seconds_now() - start;
    if (follows) return rn_generator_follow(r->generator);
    return r->chats ? run_chat(r) : run_prompt(r);
}

static rn_status run_as(const invocation *in, rn_comm *comm) {
    runner *r = calloc(1, sizeof *r); // a few paths: too large for the stack
    if (!r) return rn_fail(RN_NO_MEMORY, "no memory");
    r->in = in;
    r->comm = comm;
    rn_status s = run_all(r);
    rn_error_info error = *rn_last_error();
    rn_status closed = close_runner(r);
    free(r);
    return s == RN_OK ? closed : rn_error_restore(&error);
}

rn_status follow_model(const invocation *in, rn_comm *comm) {
    return run_as(in, comm);
}

static rn_status run(const invocation *in) {
    rn_comm *comm = NULL;
    if (in->word_count && is_graph_model(in->words[0])) return run_graph(in);
    RN_TRY(open_model_ranks(in, &comm));
    rn_status s = run_as(in, comm);
    return comm ? close_ranks(comm, s) : s;
}

const command run_command = {
    .takes_model = true,
    .name = "run",
    .usage = "run [MODEL [TEXT]] [options]",
    .summary = "text from a model, or tensors, within a memory budget",
    .about =
        "MODEL is a Hugging Face folder (config.json and safetensors) or a GGUF file; without\n"
        "one, the small story teller that is part of ration. TEXT, or what is piped in, is a\n"
        "question to a model that has a chat template; -p TEXT and -f FILE are a text to go on\n"
        "from, as is TEXT for other models. On a terminal without any it is a chat (/help there).\n"
        "The text comes to standard output\n"
        "as it is made; before and behind it, to standard error, the plan and how it was kept:\n"
        "bytes by purpose, times, bytes read from disk. A model larger than the budget runs,\n"
        "too: what does not fit is read from disk for every token. The text is the same at\n"
        "every budget (on a GPU whose work the CPU shares, but for rounding; --exact forbids\n"
        "that). With --device cuda the budget is the GPU's: --budget cuda:0=4GiB,host=16GiB\n"
        "names both. Started by ration launch or mpirun the ranks divide the model's layers among\n"
        "them, each within its own budget; the text is the same. Where nothing fits the exit code\n"
        "is 4, and the smallest budget and the largest context that would do are named.\n"
        "--budget +SIZE counts planned bytes only.\n"
        "\n"
        "An ONNX file, or one of the builtin models mlp, simple and resnet18, takes tensors:\n"
        "--input NAME=FILE.npy or .png for each input (what is not given is made up, and said "
        "so),\n"
        "--output FILE.npy for what comes out; sizes that a file leaves open are those of its\n"
        "inputs, or --dim NAME=SIZE.",
    .example = "ration run models/llama-1b \"Once upon a time\" --budget 2GiB -n 100",
    .min_words = 0,
    .max_words = 2,
    .limits_memory = true,
    .run = run,
};
