// engine_load.c — from files to a generator that has made its first tokens: the model's own part
// once, the rest for each target that is tried.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "base/workers.h"
#include "device/device.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "plan/plan.h"

#include <ration/calibrate.h>
#include <ration/log.h>

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

enum { SEQUENCES = 8, CONTEXT = 4096, PAGE_TOKENS = 64 };

// ---- the model ----------------------------------------------------------------------------------

// "models/llama-1b" -> "llama-1b": no path of the machine in an answer. The one that is part of the
// library has a name that clients can type.
static void name_model(rn_engine *e) {
    bool builtin = e->options->model_path == NULL;
    const char *name = builtin ? "default" : rn_model_get_info(e->model)->name;
    const char *slash = strrchr(name, '/');
    snprintf(e->name, sizeof e->name, "%s", slash && slash[1] ? slash + 1 : name);
}

static rn_status open_form(rn_engine *e) {
    const char *given = e->options->chat_template;
    rn_str source = given ? rn_str_from(given) : rn_model_chat_template(e->model);
    if (source.bytes == 0) return RN_OK;
    e->tokenizing.tool_form = rn_tool_form_of(source);
    return rn_chat_template_parse("the chat template", source, &e->form);
}

static rn_status open_model(rn_engine *e) {
    const char *path = e->options->model_path;
    if (path && rn_diffusion_is(path)) return rn_engine_open_images(e);
    RN_TRY(rn_model_open(e->options->model_path, &e->options->model, &e->model));
    e->tokenizing.tokenizer = rn_model_tokenizer(e->model);
    if (!e->tokenizing.tokenizer)
        return rn_hint(rn_fail(RN_NOT_FOUND, "the model comes without a tokenizer"),
                       "name one with --tokenizer PATH");
    rn_tokenizing_measure(&e->tokenizing);
    name_model(e);
    if (rn_engine_is_for_embeddings(e)) return rn_engine_embedding_open(e);
    RN_TRY(open_form(e));
    return rn_vocabulary_create(e->tokenizing.tokenizer, rn_model_get_info(e->model)->vocab_size,
                                &e->tokenizing.vocabulary);
}

static void close_model(rn_engine *e) {
    rn_vocabulary_destroy(e->tokenizing.vocabulary);
    e->tokenizing.vocabulary = NULL;
    rn_chat_template_free(e->form);
    rn_engine_embedding_close(e);
    rn_model_close(e->model);
    rn_engine_leave_images(e);
    rn_buffer_free(&e->text);
    e->form = NULL;
    e->model = NULL;
}

// The longest piece: tokens are made without asking for memory.
static rn_status take_text(rn_engine *e) {
    static const rn_request with_stops = {.stop_count = 1};
    size_t bytes = rn_tokenizing_piece_bytes(&e->tokenizing, &with_stops);
    void *block = NULL;
    RN_TRY(rn_alloc(RN_HOST_IO, bytes, &block));
    rn_buffer_init(&e->text, RN_HOST_IO, bytes);
    e->text.data = block;
    e->text.capacity = bytes;
    return RN_OK;
}

// ---- options ------------------------------------------------------------------------------------

static uint32_t either(uint32_t given, uint64_t otherwise) {
    return given ? given : (uint32_t)otherwise;
}

// At least one sequence can have its whole context; where there is room for more, all can.
static void resolve_options(rn_engine *e, const rn_generator_options *given) {
    rn_generator_options *o = &e->generator_options;
    *o = *given;
    o->session.cancel = &e->cut;
    e->reserved_bytes = o->plan.reserved_bytes;
    e->unaccounted_bytes = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    if (e->diffusion) return;
    uint32_t trained = rn_model_get_info(e->model)->context;
    o->text.sequences = either(o->text.sequences, SEQUENCES);
    uint32_t context = either(o->text.context, rn_min_u64(either(trained, CONTEXT), CONTEXT));
    uint64_t whole = rn_div_up(context, either(o->text.page_tokens, PAGE_TOKENS));
    o->least_pages = (uint32_t)rn_min_u64(whole, either(o->text.pages, UINT32_MAX));
    o->text.prompt_tokens = either(o->text.prompt_tokens, RN_SERVER_PROMPT_TOKENS);
    o->prompt_rows = either(o->prompt_rows, RN_SERVER_PROMPT_ROWS);
    o->max_gap_ms = e->options->limits.gap_ms == UINT32_MAX ? 0 : e->options->limits.gap_ms;
    o->prefix_caching = e->options->prefix_cache != RN_PREFIX_CACHE_OFF;
}

// Of several models: what the others may hold at the same time is not for this one. The room is
// known as soon as the first of them has a budget; a device with its own memory is one model's.
static rn_status divide_room(rn_engine *e, const rn_device *device) {
    rn_plan_options *plan = &e->generator_options.plan;
    rn_roster_entry *mine = &e->roster->entries[e->roster_index];
    bool limited = plan->budget_bytes && plan->budget_bytes != RN_NO_LIMIT;
    rn_plan_options held = *plan;
    if (held.reserved_bytes) held.reserved_bytes += e->own_bytes;
    uint64_t room = limited ? rn_plan_room(&held, plan->budget_bytes) : UINT64_MAX / 4;
    mine->alone |= device->caps.own_memory;
    rn_roster_divide(e->roster, room);
    if (!limited) return RN_OK;
    if (!rn_add_u64(plan->reserved_bytes, room - mine->share_bytes, &plan->reserved_bytes))
        return rn_fail(RN_INVALID, "%llu bytes beside the plan",
                       (unsigned long long)plan->reserved_bytes);
    return RN_OK;
}

// The budget for this device. Where the caller counts planned bytes only (nothing is beside the
// plan), so does the server. Otherwise its own bytes count, and what a driver takes of the host's
// memory when its device is opened (CUDA's well over 100 MiB): nobody had measured that before.
static rn_status set_budget(rn_engine *e, rn_device *device) {
    const rn_server_options *s = e->options;
    rn_plan_options *plan = &e->generator_options.plan;
    if (e->has_budget) return RN_OK; // it comes back to the target that it was on
    plan->reserved_bytes = e->reserved_bytes;
    if (s->set_budget) RN_TRY(s->set_budget(s->budget_self, device, &e->generator_options));
    bool counts_all = plan->reserved_bytes != 0;
    if (e->roster) RN_TRY(divide_room(e, device));
    uint64_t given = plan->reserved_bytes, driver = 0;
    if (!counts_all) return RN_OK;
    if (device->caps.own_memory || device->caps.compiles) {
        RN_TRY(rn_process_charge_unaccounted());
        uint64_t now = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
        driver = now > e->unaccounted_bytes ? now - e->unaccounted_bytes : 0;
    }
    if (rn_add_u64(given, e->own_bytes, &plan->reserved_bytes) &&
        rn_add_u64(plan->reserved_bytes, driver, &plan->reserved_bytes))
        return RN_OK;
    return rn_fail(RN_INVALID, "%llu bytes beside the plan", (unsigned long long)given);
}

// ---- a target
// -------------------------------------------------------------------------------------

static void set_generator(rn_engine *e, rn_generator *generator) {
    pthread_mutex_lock(&e->plan_lock);
    e->generator = generator;
    pthread_mutex_unlock(&e->plan_lock);
}

static void adopt_target(rn_engine *e, const rn_ladder_target *target) {
    const rn_generator_options *o = &e->generator_options;
    bool limited = o->plan.budget_bytes && o->plan.budget_bytes != RN_NO_LIMIT;
    rn_engine_facts *f = &e->facts;
    pthread_mutex_lock(&e->lock);
    e->has_own_memory = target->device->caps.own_memory;
    f->target_index = (uint32_t)target->index;
    snprintf(f->target, sizeof f->target, "%s", target->name);
    f->budget_bytes = limited ? o->plan.budget_bytes : 0;
    f->device_budget_bytes = e->has_own_memory ? o->device_budget.bytes : 0;
    pthread_mutex_unlock(&e->lock);
}

// What the plan says becomes limits of requests, and facts.
static void adopt_plan(rn_engine *e, const rn_ladder_target *target, uint64_t own_bytes) {
    const rn_plan_summary *s = rn_plan_get_summary(rn_engine_plan(e));
    const rn_generator_options *o = &e->generator_options;
    rn_generator_facts facts = {0};
    if (e->generator) facts = rn_generator_get_facts(e->generator);
    bool limited = o->plan.budget_bytes && o->plan.budget_bytes != RN_NO_LIMIT;
    adopt_target(e, target);
    pthread_mutex_lock(&e->lock);
    rn_tokenizing *in = &e->tokenizing;
    in->form = e->form;
    in->memory = e->memory;
    in->answers_bytes = e->answers->total_bytes;
    in->vocab_size = rn_model_get_info(e->model)->vocab_size;
    in->context =
        e->embedding ? rn_engine_embedding_tokens(e) : (uint32_t)rn_generator_context(e->generator);
    in->dimensions = rn_model_get_info(e->model)->ranks ? 1 : rn_model_get_info(e->model)->dim;
    in->page_tokens = either(o->text.page_tokens, PAGE_TOKENS);
    in->pages = (uint32_t)facts.kv_pages_total;
    in->sequences = o->text.sequences;
    in->answer_tokens = e->options->limits.answer_tokens;
    rn_engine_facts *f = &e->facts;
    snprintf(f->program, sizeof f->program, "%s",
             e->generator ? rn_generator_program(e->generator) : "");
    f->generator = facts;
    f->sequences_max = in->sequences;
    f->context = in->context;
    f->has_chat = e->form != NULL;
    f->embeds = e->embedding != NULL;
    f->ranks = e->embedding && rn_model_get_info(e->model)->ranks;
    f->dimensions = in->dimensions;
    f->page_tokens = in->page_tokens;
    uint64_t planned = e->has_own_memory ? s->host_bytes : s->planned_bytes;
    f->predicted_bytes = planned + own_bytes + o->plan.reserved_bytes; // of the host
    if (limited && o->plan.with_reserve)
        f->predicted_bytes += o->plan.budget_bytes - rn_budget_usable(o->plan.budget_bytes);
    f->streamed_bytes = s->streamed_bytes;
    f->expert_layers = s->expert_layers;
    f->experts = s->experts;
    f->expert_slots = s->expert_slots;
    f->expert_slot_bytes = s->expert_slot_bytes;
    pthread_mutex_unlock(&e->lock);
}

// The text takes of the answers' half of the request memory: a plan that does not fit is not saved.
static rn_status write_plan(rn_engine *e) {
    char path[4096];
    rn_buffer text;
    uint64_t most = e->answers->total_bytes - atomic_load(&e->answers->taken_bytes);
    (void)!mkdir(e->options->save_folder, 0755); // what matters is whether a file can be written
    RN_TRY(rn_path_join(e->options->save_folder, "plan.json", path, sizeof path));
    if (!rn_request_memory_take(e->answers, most))
        return rn_fail(RN_OVER_BUDGET, "answers have the request memory");
    rn_buffer_init(&text, RN_HOST_IO, (size_t)most / 2); // the old block is there while it grows
    rn_status s = rn_engine_plan_json(e, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_file_replace(path, text.data, text.bytes);
    rn_buffer_free(&text);
    rn_request_memory_release(e->answers, most);
    return s;
}

// A plan that cannot be kept on disk can be served from all the same.
static void save(rn_engine *e) {
    if (!e->options->save_folder) return;
    if (write_plan(e) == RN_OK)
        rn_stage("model_saved");
    else
        rn_log(RN_LOG_WARNING, "server", "the plan is not saved: %s", rn_last_error()->message);
}

// The generator, or the embedder.
static rn_status make_runner(rn_engine *e) {
    rn_generator *generator = NULL;
    if (e->embedding) return rn_engine_embedding_load(e);
    RN_TRY(rn_generator_create(e->model, &e->generator_options, &generator));
    set_generator(e, generator);
    return RN_OK;
}

// Several ranks make text, and one model's.
static rn_status check_ranks(const rn_engine *e) {
    if (rn_comm_size(e->generator_options.comm) == 1) return RN_OK;
    if (!e->diffusion && !e->embedding && !e->roster) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s served by one process, not by several ranks",
                           e->roster      ? "several models are"
                           : e->diffusion ? "a model that draws is"
                                          : "embeddings are"),
                   "start it without ration launch or mpirun");
}

static rn_status attempt_drawing(rn_engine *e, const rn_ladder_target *target) {
    adopt_target(e, target);
    pthread_mutex_lock(&e->lock);
    e->facts.sequences_max = 1;
    pthread_mutex_unlock(&e->lock);
    RN_TRY(rn_engine_try_drawing(e));
    rn_stage("test_forward_pass");
    save(e);
    return RN_OK;
}

static rn_status attempt(void *self, const rn_ladder_target *target) {
    rn_engine *e = self;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    e->generator_options.session.device = target->device;
    (void)rn_rates_apply(target->device);
    RN_TRY(check_ranks(e));
    RN_TRY(set_budget(e, target->device));
    if (e->diffusion) return attempt_drawing(e, target);
    RN_TRY(make_runner(e));
    uint64_t after = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    adopt_plan(e, target, after > before ? after - before : 0);
    if (e->has_budget) return RN_OK; // it has worked here before: nothing is tried again
    RN_TRY(e->embedding ? rn_engine_embedding_try(e, false) : rn_engine_try(e));
    rn_stage("test_forward_pass");
    RN_TRY(e->embedding ? rn_engine_embedding_try(e, true) : rn_engine_warm(e));
    rn_stage("warm_up");
    e->has_budget = true;
    e->generator_options.measure_rates = false; // once
    save(e);
    return RN_OK;
}

static void undo(void *self) {
    rn_engine *e = self;
    rn_generator *generator = e->generator;
    set_generator(e, NULL);
    rn_generator_destroy(generator);
    rn_engine_embedding_unload(e);
    rn_engine_leave_painter(e);
    pthread_mutex_lock(&e->lock);
    e->facts.target[0] = 0;
    pthread_mutex_unlock(&e->lock);
}

// Connections take and give back memory for requests meanwhile, and read prompts.
static rn_status start(rn_engine *e) {
    rn_ladder_options options = {.no_fallback = e->options->no_fallback,
                                 .threads = e->options->threads,
                                 .others = RN_PURPOSE_BIT(RN_PURPOSE_IO) |
                                           RN_PURPOSE_BIT(RN_PURPOSE_OTHER)};
    if (e->roster) options.others = UINT32_MAX; // other models come and go
    rn_ladder_load load = {.self = e, .attempt = attempt, .undo = undo};
    rn_ladder_target target;
    size_t first = e->has_budget ? e->facts.target_index : 0; // where it was
    return rn_ladder_start_from(e->ladder, first, &options, &load, &target);
}

rn_status rn_engine_fall(rn_engine *e, const rn_error_info *error) {
    rn_ladder_target target;
    e->has_budget = false;
    RN_TRY(rn_ladder_advance(e->ladder, error, &target));
    rn_metrics_add(e->metrics, RN_COUNT_FALLBACKS, 1);
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

// While it loads, the caller's flag ends it; afterwards that flag says that the server is to stop,
// which takes its time.
typedef struct relay {
    rn_engine *engine;
    const rn_flag *from;
    rn_flag done;
    pthread_t thread;
} relay;

static void *pass_on(void *self) {
    relay *r = self;
    while (!atomic_load(&r->done)) {
        if (atomic_load(r->from)) {
            atomic_store(&r->engine->cut, true);
            atomic_store(&r->engine->cut_drawing, true);
        }
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return NULL;
}

// The model's description, its tokenizer and template are counted: tens of MiB where the vocabulary
// is large.
static rn_status open_all(rn_engine *e, const rn_generator_options *generator, uint64_t own_bytes) {
    rn_scope scope;
    rn_scope_begin(&scope, "open", RN_DEVICE_HOST);
    rn_status s = open_model(e);
    if (s == RN_OK && e->model) s = take_text(e);
    int64_t held = rn_scope_end(&scope).delta;
    RN_TRY(s);
    resolve_options(e, generator);
    e->own_bytes = own_bytes + (held > 0 ? (uint64_t)held : 0);
    return RN_OK;
}

static rn_status load(rn_engine *e, const rn_generator_options *generator, uint64_t own_bytes) {
    RN_TRY(open_all(e, generator, own_bytes));
    return start(e);
}

static rn_status load_until(rn_engine *e, const rn_generator_options *generator,
                            uint64_t own_bytes) {
    relay r = {.engine = e, .from = generator->session.cancel};
    bool relayed = r.from && pthread_create(&r.thread, NULL, pass_on, &r) == 0;
    rn_status s = load(e, generator, own_bytes);
    atomic_store(&r.done, true);
    if (relayed) pthread_join(r.thread, NULL);
    return s;
}

// A last line of defence: from here on a request is refused what is not there, and the process is
// not killed for it. Bytes outside of the ledger count where they were measured.
static rn_status set_limit(rn_engine *e) {
    const rn_plan_options *plan = &e->generator_options.plan;
    if (e->facts.budget_bytes == 0 || plan->reserved_bytes == 0) return RN_OK;
    rn_budget_get(RN_DEVICE_HOST, &e->old_soft, &e->old_hard);
    if (plan->budget_bytes >= e->old_hard) return RN_OK;
    RN_TRY(rn_budget_set(RN_DEVICE_HOST, 0, plan->budget_bytes));
    e->limited = true;
    return RN_OK;
}

void rn_engine_lift_limit(rn_engine *e) {
    rn_status s = e->limited ? rn_budget_set(RN_DEVICE_HOST, e->old_soft, e->old_hard) : RN_OK;
    (void)s; // they were good before
    e->limited = false;
}

static rn_status start_threads(rn_engine *e) {
    int error = pthread_create(&e->intake_thread, NULL, rn_engine_intake_main, e);
    if (error) return rn_thread_refuse(error, "reading prompts");
    error = pthread_create(&e->thread, NULL, rn_engine_main, e);
    if (!error) {
        e->has_threads = true;
        return RN_OK;
    }
    pthread_mutex_lock(&e->lock);
    e->ending = true;
    pthread_cond_broadcast(&e->intake_work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->intake_thread, NULL);
    e->ending = false;
    return rn_thread_refuse(error, "the engine");
}

static rn_status open_for_all(rn_engine *e) {
    if (!e->roster) RN_TRY(set_limit(e));
    RN_TRY(start_threads(e));
    pthread_mutex_lock(&e->lock);
    e->loaded = true;
    e->phase = e->draining ? RN_ENGINE_DRAINING : RN_ENGINE_READY;
    pthread_mutex_unlock(&e->lock);
    return RN_OK;
}

rn_status rn_engine_load(rn_engine *e, const rn_generator_options *generator, uint64_t own_bytes) {
    if (e->has_threads) return rn_fail(RN_INVALID, "the engine has a model already");
    atomic_store(&e->cut, false);
    rn_status s = load_until(e, generator, own_bytes);
    if (s == RN_OK) s = open_for_all(e);
    if (s == RN_OK) return RN_OK;
    rn_error_info error = *rn_last_error();
    rn_refusal refusal = *rn_last_refusal();
    (void)rn_ladder_leave(e->ladder, NULL);
    rn_engine_lift_limit(e);
    close_model(e);
    rn_refusal_restore(&refusal);
    return rn_error_restore(&error);
}

// ---- several ------------------------------------------------------------------------------------

rn_status rn_engine_come(rn_engine *e) {
    rn_log(RN_LOG_INFO, "server", "loading %s", rn_engine_model_name(e));
    return start(e);
}

void rn_engine_go(rn_engine *e) {
    rn_log(RN_LOG_INFO, "server", "unloading %s: another model is asked for",
           rn_engine_model_name(e));
    (void)rn_ladder_leave(e->ladder, NULL);
    rn_roster_leave(e->roster, e->roster_index);
}

// With all weights resident and the fewest pages, beside what the caller holds.
static rn_status find_need(rn_engine *e, uint64_t *out) {
    rn_generator_options options = e->generator_options;
    rn_plan *plan = NULL;
    options.plan = (rn_plan_options){.exact = options.plan.exact, .reserved_bytes = 1};
    options.text.pages = options.least_pages;
    options.measure_rates = false;
    options.planned = NULL;
    if (e->embedding)
        RN_TRY(rn_engine_embedding_predict(e, &options, &plan));
    else
        RN_TRY(rn_generator_predict(e->model, &options, &plan));
    *out = rn_plan_get_summary(plan)->planned_bytes + plan->options.reserved_bytes;
    rn_plan_destroy(plan);
    return RN_OK;
}

// What one could not do: those that ask for it are told.
static void set_failed(rn_engine *e) {
    rn_log(RN_LOG_WARNING, "server", "%s cannot be served: %s",
           e->options->model_name ? e->options->model_name : e->name, rn_last_error()->message);
    pthread_mutex_lock(&e->lock);
    e->facts.failure = *rn_last_error();
    e->loaded = e->model != NULL;
    e->phase = RN_ENGINE_FAILED;
    pthread_mutex_unlock(&e->lock);
}

// Nobody runs yet: the ones before make room at once.
static rn_status load_in_turn(rn_engine *const *engines, uint32_t count, uint32_t index) {
    rn_engine *e = engines[index];
    while (!rn_roster_enter(e->roster, index, 1, rn_clock_ns())) {
        bool went = false;
        for (uint32_t i = 0; i < count; i++)
            if (e->roster->entries[i].leaves) {
                rn_engine_go(engines[i]);
                went = true;
            }
        if (!went) return rn_fail(RN_INTERNAL, "no room for a model that should fit");
    }
    rn_status s = start(e);
    if (s != RN_OK) rn_roster_leave(e->roster, index);
    return s;
}

static rn_status open_each(rn_engine *const *engines, uint32_t count,
                           const rn_generator_options *generator, uint64_t own_bytes) {
    uint64_t all = own_bytes;
    for (uint32_t i = 0; i < count; i++) {
        rn_engine *e = engines[i];
        RN_TRY(open_all(e, generator, 0));
        if (e->diffusion)
            return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is an image model", e->name),
                           "an image model is served alone");
        all += e->own_bytes;
        RN_TRY(find_need(e, &e->roster->entries[i].need_bytes));
        e->roster->entries[i].share_bytes = e->roster->entries[i].need_bytes;
    }
    for (uint32_t i = 0; i < count; i++)
        engines[i]->own_bytes = all;
    return RN_OK;
}

// Names are how requests choose.
static rn_status check_names(rn_engine *const *engines, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        pthread_mutex_lock(&engines[i]->lock);
        engines[i]->loaded = true;
        pthread_mutex_unlock(&engines[i]->lock);
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(rn_engine_model_name(engines[i]), rn_engine_model_name(engines[j])) == 0)
                return rn_hint(rn_fail(RN_INVALID, "two models are called '%s'",
                                       rn_engine_model_name(engines[i])),
                               "requests choose a model by its name: rename a folder or a file");
    return RN_OK;
}

rn_status rn_engines_load(rn_engine *const *engines, uint32_t count,
                          const rn_generator_options *generator, uint64_t own_bytes) {
    rn_roster *roster = engines[0]->roster;
    uint32_t good = 0;
    RN_TRY(open_each(engines, count, generator, own_bytes));
    RN_TRY(check_names(engines, count));
    roster->room_bytes = UINT64_MAX / 4; // until the first has a budget
    for (uint32_t i = count; i-- > 0;) {
        if (atomic_load(&engines[i]->cut)) return rn_fail(RN_CANCELLED, "asked to end");
        rn_status s = load_in_turn(engines, count, i);
        if (s == RN_CANCELLED) return s;
        if (s == RN_OK)
            good++;
        else
            set_failed(engines[i]);
    }
    if (good == 0) return rn_last_error()->status;
    bool limited = false;
    for (uint32_t i = 0; i < count; i++) {
        if (engines[i]->phase == RN_ENGINE_FAILED) continue;
        if (!limited) RN_TRY(set_limit(engines[i]));
        limited = true;
        RN_TRY(open_for_all(engines[i]));
    }
    return RN_OK;
}
