// easy.c — text in one call: each of the explicit API's steps once, in the order in which a program
// takes them.
//
//     split the budget ─ open the model ─ encode ─ for each target: plan, load ─ answer ─ close
//
// The prompt is encoded before the budget is split for the plan: what it holds is then counted.
#include <ration/easy.h>

#include <ration/calibrate.h>
#include <ration/embed.h>
#include <ration/ladder.h>

#include "base/checked.h"
#include "base/reserved.h"
#include "base/str.h"
#include "memory/account.h"

#include <string.h>
#include <time.h>

enum {
    ROOM_BYTES = 512 << 10, // for what is taken behind the plan: decoder, stops, the sampler's
    TEXTS_AT_ONCE = 512     // whose embeddings are held
};

// What a call that embeds has instead of a prompt.
typedef struct embedding_call {
    const rn_embed_options *o;
    const rn_str *texts; // (count)
    size_t count;
    rn_on_embedding on_embedding;
    uint32_t longest;  // tokens of the longest text
    float *embeddings; // (held_bytes)
    size_t held_bytes;
    rn_embedder *embedder;
} embedding_call;

typedef struct call {
    const rn_easy_options *o;
    rn_model *model;
    rn_tokens tokens;
    rn_ladder *ladder;
    uint64_t process_bytes; // of the budget, as the first split found it
    uint64_t opening_bytes; // on the ledger, at most, until the model is open and the prompt read
    rn_generator *generator;
    rn_sequence *sequence;
    bool plan_only;
    rn_plan_summary plan;
    rn_on_text on_text;
    void *user;
    bool enough;               // on_text said so
    embedding_call *embedding; // NULL: text is made
} call;

// ---- the budget ---------------------------------------------------------------------------------

// The process's budget, as far as it is given; 0: it is not.
static uint64_t host_budget(const rn_easy_options *o, bool own_memory) {
    return own_memory ? o->host_budget_bytes : o->budget_bytes;
}

// What a plan for this device may use, beside what the process holds now.
static rn_status split_budget(call *c, rn_device *device, rn_generator_options *out) {
    bool own = rn_device_has_own_memory(device);
    rn_budget_shares shares = {.total_bytes = host_budget(c->o, own),
                               .process_bytes = c->process_bytes};
    if (shares.total_bytes == 0) RN_TRY(rn_budget_measure(&shares.total_bytes));
    RN_TRY(rn_budget_split(&shares));
    out->plan.budget_bytes = shares.total_bytes;
    out->plan.reserved_bytes = shares.process_bytes + shares.held_bytes + ROOM_BYTES;
    out->plan.with_reserve = true;
    out->plan.least_budget_bytes = rn_budget_needed(shares.process_bytes + c->opening_bytes);
    if (own) out->device_budget.bytes = c->o->budget_bytes;
    return RN_OK;
}

// ---- a target -----------------------------------------------------------------------------------

static void see_plan(void *self, const rn_plan *plan) {
    call *c = self;
    c->plan = *rn_plan_get_summary(plan);
    if (c->o->plan) *c->o->plan = c->plan;
}

// An embedder has no generator's options but those of the plan.
static rn_status create_embedder(call *c, const rn_generator_options *from) {
    embedding_call *e = c->embedding;
    rn_embedder_options options = {.text.text_tokens = e->longest,
                                   .form = e->o->form,
                                   .plan = from->plan,
                                   .device_budget = from->device_budget,
                                   .session = from->session,
                                   .measure_rates = from->measure_rates,
                                   .planned = see_plan,
                                   .planned_self = c};
    return rn_embedder_create(c->model, &options, &e->embedder);
}

static rn_status try_target(void *self, const rn_ladder_target *target) {
    call *c = self;
    const rn_easy_options *o = c->o;
    rn_generator_options options = {.text = {.context = o->context},
                                    .plan.exact = o->exact,
                                    .session = {.device = target->device, .cancel = o->cancel},
                                    .measure_rates = true,
                                    .planned = see_plan,
                                    .planned_self = c};
    (void)rn_rates_apply(target->device);
    RN_TRY(split_budget(c, target->device, &options));
    if (c->embedding) return create_embedder(c, &options);
    if (c->plan_only) {
        rn_plan *plan = NULL;
        RN_TRY(rn_generator_predict(c->model, &options, &plan));
        see_plan(c, plan);
        rn_plan_destroy(plan);
        return RN_OK;
    }
    RN_TRY(rn_generator_create(c->model, &options, &c->generator));
    return rn_sequence_create(c->generator, &o->sampling, &c->sequence);
}

static void leave_target(void *self) {
    call *c = self;
    rn_sequence_destroy(c->sequence);
    rn_generator_destroy(c->generator);
    c->sequence = NULL;
    c->generator = NULL;
    if (!c->embedding) return;
    rn_embedder_destroy(c->embedding->embedder);
    c->embedding->embedder = NULL;
}

// ---- text ---------------------------------------------------------------------------------------

static rn_status put_text(void *self, const char *text, size_t bytes) {
    call *c = self;
    if (bytes == 0 || c->enough) return RN_OK;
    c->enough = !c->on_text(c->user, text, bytes);
    return c->enough ? rn_fail(RN_CANCELLED, "the caller has enough") : RN_OK;
}

static rn_status fit_tokens(const call *c) {
    size_t context = rn_generator_context(c->generator);
    if (c->tokens.count < context) return RN_OK;
    return rn_hint(
        rn_fail(RN_INVALID, "the prompt has %zu tokens, the context %zu", c->tokens.count, context),
        "a larger rn_easy_options.context, or a shorter prompt");
}

// A device that fails before it has said anything is left for the next one.
static rn_status answer(call *c) {
    const rn_easy_options *o = c->o;
    rn_answer_options options = {.new_tokens = o->new_tokens ? o->new_tokens : UINT64_MAX,
                                 .stops = o->stops,
                                 .stop_count = o->stop_count,
                                 .cancel = o->cancel};
    rn_answer out = {0};
    for (;;) {
        rn_ladder_target target;
        RN_TRY(fit_tokens(c));
        rn_status s = rn_sequence_answer(c->sequence, rn_model_tokenizer(c->model), c->tokens.ids,
                                         c->tokens.count, &options, (rn_sink){c, put_text}, &out);
        if (o->answer) *o->answer = out;
        if (s == RN_OK && out.reason == RN_END_CANCELLED && !c->enough)
            return rn_fail(RN_CANCELLED, "cancelled after %llu tokens",
                           (unsigned long long)out.tokens);
        if (s == RN_OK || out.tokens > 0) return s;
        RN_TRY(rn_ladder_advance(c->ladder, rn_last_error(), &target));
    }
}

// An empty prompt is the beginning-of-text token alone.
static rn_status encode_prompt(call *c, const char *prompt) {
    const rn_tokenizer *tokenizer = rn_model_tokenizer(c->model);
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    rn_str text = rn_str_from(prompt);
    for (size_t at = 0, step; at < text.bytes; at += step) {
        step = rn_utf8_sequence(text.data + at, text.bytes - at);
        if (step == 0) return rn_fail(RN_INVALID, "the prompt is not UTF-8 at byte %zu", at);
    }
    RN_TRY(rn_tokenizer_encode(tokenizer, text, RN_ENCODE_BEGIN, &c->tokens));
    if (c->tokens.count) return RN_OK;
    uint32_t begin = info->begin != RN_NO_TOKEN ? info->begin : info->end;
    if (begin == RN_NO_TOKEN)
        return rn_fail(RN_INVALID, "the prompt is empty and the tokenizer has no token for the "
                                   "beginning of a text");
    return rn_tokens_push(&c->tokens, begin);
}

static rn_status encode_chat(call *c, const rn_chat_message *messages, size_t count) {
    rn_chat_template *form = NULL;
    rn_str source = rn_model_chat_template(c->model);
    rn_chat chat = {
        .messages = messages, .count = count, .add_generation_prompt = true, .now = time(NULL)};
    if (source.bytes == 0) return rn_fail(RN_NOT_FOUND, "the model has no chat template");
    RN_TRY(rn_chat_template_parse("the model's chat template", source, &form));
    rn_status s = rn_chat_encode(form, rn_model_tokenizer(c->model), &chat, &c->tokens);
    rn_chat_template_free(form);
    return s;
}

// ---- embeddings ---------------------------------------------------------------------------------

// Tokens of the longest text, as far as the model goes: what the plan must have room for.
static rn_status measure_texts(call *c) {
    embedding_call *e = c->embedding;
    const rn_model_info *info = rn_model_get_info(c->model);
    uint64_t longest = e->o->text_tokens;
    void *block = NULL;
    for (size_t i = 0; e->o->text_tokens == 0 && i < e->count; i++) {
        c->tokens.count = 0;
        RN_TRY(rn_tokenizer_encode(rn_model_tokenizer(c->model), e->texts[i], RN_ENCODE_BEGIN,
                                   &c->tokens));
        longest = rn_max_u64(longest, c->tokens.count);
    }
    rn_tokens_free(&c->tokens);
    e->longest = (uint32_t)rn_min_u64(rn_max_u64(longest, 1), info->embedding.text_tokens);
    e->held_bytes = rn_min_u64(e->count, TEXTS_AT_ONCE) * info->dim * sizeof *e->embeddings;
    RN_TRY(rn_alloc(RN_HOST_OTHER, e->held_bytes, &block));
    e->embeddings = block;
    return RN_OK;
}

// A device that fails before anything was handed out is left for the next one.
static rn_status embed_some(call *c, size_t first, size_t count) {
    embedding_call *e = c->embedding;
    for (;;) {
        rn_ladder_target target;
        rn_status s = rn_embedder_embed(e->embedder, e->texts + first, count, e->embeddings);
        if (s != RN_DEVICE || first > 0) return s;
        RN_TRY(rn_ladder_advance(c->ladder, rn_last_error(), &target));
    }
}

static rn_status embed(call *c) {
    embedding_call *e = c->embedding;
    for (size_t first = 0, count; first < e->count && !c->enough; first += count) {
        count = rn_min_u64(e->count - first, TEXTS_AT_ONCE);
        RN_TRY(embed_some(c, first, count));
        size_t dimensions = rn_embedder_dimensions(e->embedder);
        for (size_t i = 0; i < count && !c->enough; i++)
            c->enough =
                !e->on_embedding(c->user, first + i, e->embeddings + i * dimensions, dimensions);
    }
    if (e->o->facts) *e->o->facts = rn_embedder_get_facts(e->embedder);
    return RN_OK;
}

// ---- a call -------------------------------------------------------------------------------------

// Where nobody has limited the host's ledger, a budget that is given does while the call lasts: so
// headers, tokenizers and prompts are refused within it, too.
static rn_status limit_host(call *c, bool *out_limited) {
    const char *device = c->o->device;
    bool own = device && strcmp(device, "cpu") != 0;
    rn_budget_shares shares = {.total_bytes = host_budget(c->o, own)};
    uint64_t soft, hard;
    *out_limited = false;
    if (shares.total_bytes == 0) return RN_OK;
    RN_TRY(rn_budget_split(&shares));
    c->process_bytes = shares.process_bytes;
    c->opening_bytes = shares.held_bytes;
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    if (hard != RN_NO_LIMIT || soft != RN_NO_LIMIT) return RN_OK;
    *out_limited = true;
    return rn_budget_set_process(shares.total_bytes);
}

static rn_status open_model(call *c, const char *path) {
    RN_TRY(rn_model_open(path, NULL, &c->model));
    if (rn_model_tokenizer(c->model)) return RN_OK;
    return rn_fail(RN_NOT_FOUND, "the model comes without a tokenizer");
}

static rn_status start(call *c) {
    const char *targets = c->o->device ? c->o->device : "cpu";
    rn_ladder_load load = {.self = c, .attempt = try_target, .undo = leave_target};
    rn_ladder_options options = {.threads = c->o->threads};
    rn_ladder_target target;
    RN_TRY(rn_sampling_check(&c->o->sampling, rn_model_get_info(c->model)->vocab_size));
    (void)rn_rates_use(c->o->threads);
    RN_TRY(rn_ladder_parse(rn_str_from(targets), &c->ladder));
    return rn_ladder_start(c->ladder, &options, &load, &target);
}

// Everything goes back, the failure's error stays.
static rn_status close_call(call *c, bool limited, rn_status s) {
    rn_error_info error = *rn_last_error();
    rn_status left = c->ladder ? rn_ladder_leave(c->ladder, NULL) : RN_OK;
    rn_ladder_destroy(c->ladder);
    rn_tokens_free(&c->tokens);
    if (c->embedding) rn_free(RN_HOST_OTHER, c->embedding->embeddings, c->embedding->held_bytes);
    rn_model_close(c->model);
    if (limited) (void)!rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT);
    return s == RN_OK ? left : rn_error_restore(&error);
}

// `prompt`, or `messages` where that is NULL.
static rn_status run(call *c, const char *path, const char *prompt, const rn_chat_message *messages,
                     size_t count) {
    static const rn_easy_options usual = {0};
    rn_scope opening;
    bool limited = false;
    if (!c->o) c->o = &usual;
    RN_TRY(rn_check_reserved(c->o->reserved, "rn_easy_options"));
    rn_status s = limit_host(c, &limited);
    rn_scope_begin(&opening, "opening", RN_DEVICE_HOST);
    if (s == RN_OK) s = open_model(c, path);
    if (s == RN_OK && c->embedding)
        s = measure_texts(c);
    else if (s == RN_OK && !c->plan_only)
        s = prompt ? encode_prompt(c, prompt) : encode_chat(c, messages, count);
    c->opening_bytes += rn_scope_end(&opening).peak_allocated;
    if (s == RN_OK) s = start(c);
    if (s == RN_OK && !c->plan_only) s = c->embedding ? embed(c) : answer(c);
    return close_call(c, limited, s);
}

rn_status rn_generate_text(const char *path, const rn_easy_options *options, const char *prompt,
                           rn_on_text on_text, void *user) {
    call c = {.o = options, .on_text = on_text, .user = user};
    return run(&c, path, prompt ? prompt : "", NULL, 0);
}

rn_status rn_generate_chat(const char *path, const rn_easy_options *options,
                           const rn_chat_message *messages, size_t count, rn_on_text on_text,
                           void *user) {
    call c = {.o = options, .on_text = on_text, .user = user};
    return run(&c, path, NULL, messages, count);
}

rn_status rn_plan_text(const char *path, const rn_easy_options *options, rn_plan_summary *out) {
    call c = {.o = options, .plan_only = true};
    rn_status s = run(&c, path, NULL, NULL, 0);
    *out = c.plan;
    return s;
}

rn_status rn_embed_texts(const char *path, const rn_embed_options *options, const rn_str *texts,
                         size_t count, rn_on_embedding on_embedding, void *user) {
    static const rn_embed_options usual = {0};
    if (!options) options = &usual;
    rn_easy_options easy = {.budget_bytes = options->budget_bytes,
                            .host_budget_bytes = options->host_budget_bytes,
                            .device = options->device,
                            .threads = options->threads,
                            .cancel = options->cancel,
                            .plan = options->plan};
    embedding_call e = {.o = options, .texts = texts, .count = count, .on_embedding = on_embedding};
    call c = {.o = &easy, .user = user, .embedding = &e};
    RN_TRY(rn_check_reserved(options->reserved, "rn_embed_options"));
    return run(&c, path, NULL, NULL, 0);
}
