// engine.c — an engine's life, and what can be seen of it from outside.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"
#include "plan/plan.h"
#include "runtime/ladder.h"

#include <errno.h>
#include <time.h>

#define FROM RN_HOST_OTHER

const char *rn_phase_name(rn_engine_phase phase) {
    static const char *const names[] = {"loading", "ready", "draining", "failed"};
    return names[phase];
}

// ---- life ---------------------------------------------------------------------------------------

static void init_locks(rn_engine *e) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->plan_lock, NULL);
    pthread_cond_init(&e->work, &monotonic);
    pthread_cond_init(&e->intake_work, &monotonic);
    pthread_cond_init(&e->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void free_locks(rn_engine *e) {
    pthread_cond_destroy(&e->idle);
    pthread_cond_destroy(&e->intake_work);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->plan_lock);
    pthread_mutex_destroy(&e->lock);
}

// The largest body fits beside it: the server has checked that.
static void take_answers(rn_engine *e) {
    uint64_t bytes = e->memory->total_bytes / 2;
    rn_request_memory_init(&e->own_answers, rn_request_memory_take(e->memory, bytes) ? bytes : 0);
    e->answers = &e->own_answers;
}

rn_status rn_engine_create(const rn_server_options *options, rn_request_memory *memory,
                           rn_metrics *metrics, rn_roster *roster, rn_engine *first,
                           rn_engine **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_engine), &block));
    rn_engine *e = block;
    e->options = options;
    e->memory = memory;
    e->metrics = metrics;
    init_locks(e);
    e->roster = roster;
    if (roster) e->roster_index = rn_roster_add(roster, e);
    if (first)
        e->answers = first->answers;
    else
        take_answers(e);
    rn_status s = rn_job_queue_init(&e->queue, options->limits.waiting);
    if (s == RN_OK)
        s = rn_ladder_parse(rn_str_from(options->devices ? options->devices : "auto"), &e->ladder);
    if (s == RN_OK)
        *out = e;
    else
        rn_engine_destroy(e);
    return s;
}

static void end_threads(rn_engine *e) {
    atomic_store(&e->cut, true);
    atomic_store(&e->cut_drawing, true);
    pthread_mutex_lock(&e->lock);
    e->ending = e->news = true;
    pthread_cond_broadcast(&e->work);
    pthread_cond_broadcast(&e->intake_work);
    pthread_mutex_unlock(&e->lock);
    if (!e->has_threads) return;
    pthread_join(e->intake_thread, NULL);
    pthread_join(e->thread, NULL);
    e->has_threads = false;
}

void rn_engine_stop(rn_engine *e) {
    if (e) end_threads(e);
}

void rn_engine_destroy(rn_engine *e) {
    if (!e) return;
    end_threads(e);
    if (e->ladder) (void)rn_ladder_leave(e->ladder, NULL); // a leak is in its record
    rn_ladder_destroy(e->ladder);
    rn_vocabulary_destroy(e->tokenizing.vocabulary);
    rn_chat_template_free(e->form);
    rn_model_close(e->model);
    rn_engine_leave_images(e);
    rn_buffer_free(&e->text);
    rn_engine_embedding_close(e);
    rn_job_queue_free(&e->queue);
    rn_engine_lift_limit(e);
    rn_request_memory_release(e->memory, e->own_answers.total_bytes);
    free_locks(e);
    rn_free(FROM, e, sizeof *e);
}

// ---- phases -------------------------------------------------------------------------------------

void rn_engine_tell(rn_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->news = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void rn_engine_set_phase(rn_engine *e, rn_engine_phase phase) {
    pthread_mutex_lock(&e->lock);
    e->phase = phase == RN_ENGINE_READY && e->draining ? RN_ENGINE_DRAINING : phase;
    pthread_mutex_unlock(&e->lock);
}

rn_problem rn_engine_closing(void) {
    rn_problem problem;
    (void)rn_phase_refuse(RN_ENGINE_DRAINING, NULL, &problem);
    return problem;
}

static bool is_idle(const rn_engine *e) {
    return !e->has_threads || e->phase == RN_ENGINE_FAILED ||
           (e->waiting == 0 && e->facts.running == 0);
}

// False after `seconds`. Under the lock.
static bool wait_idle(rn_engine *e, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = seconds < 1e6 ? seconds : 1e6;
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!is_idle(e))
        if (pthread_cond_timedwait(&e->idle, &e->lock, &until) == ETIMEDOUT) break;
    return is_idle(e);
}

bool rn_engine_drain(rn_engine *e, double seconds) {
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    if (e->phase == RN_ENGINE_READY) e->phase = RN_ENGINE_DRAINING;
    bool in_time = wait_idle(e, seconds);
    if (!in_time) {
        atomic_store(&e->cut, true);
        atomic_store(&e->cut_drawing, true);
        e->news = true;
        pthread_cond_broadcast(&e->work);
        (void)wait_idle(e, 1e6);
    }
    pthread_mutex_unlock(&e->lock);
    return in_time;
}

// ---- facts --------------------------------------------------------------------------------------

void rn_engine_publish(rn_engine *e) {
    rn_generator_facts generator = {0};
    if (e->generator) generator = rn_generator_get_facts(e->generator);
    pthread_mutex_lock(&e->lock);
    if (e->generator) e->facts.generator = generator;
    e->facts.running = e->running_count;
    e->facts.sequences = e->sequences;
    if (is_idle(e)) pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
}

void rn_engine_get_facts(rn_engine *e, rn_engine_facts *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->facts;
    out->phase = e->phase;
    out->waiting = e->waiting;
    pthread_mutex_unlock(&e->lock);
}

uint64_t rn_engine_request_bytes(rn_engine *e) {
    uint64_t taken = atomic_load(&e->memory->taken_bytes);
    return taken - rn_min_u64(e->answers->total_bytes, taken) +
           atomic_load(&e->answers->taken_bytes);
}

const rn_model *rn_engine_model(rn_engine *e) {
    pthread_mutex_lock(&e->lock);
    const rn_model *model = e->loaded ? e->model : NULL;
    pthread_mutex_unlock(&e->lock);
    return model;
}

const rn_diffusion *rn_engine_diffusion(rn_engine *e) {
    pthread_mutex_lock(&e->lock);
    const rn_diffusion *model = e->loaded ? e->diffusion : NULL;
    pthread_mutex_unlock(&e->lock);
    return model;
}

const rn_tokenizer *rn_engine_tokenizer(rn_engine *e) {
    const rn_model *model = rn_engine_model(e);
    return model ? rn_model_tokenizer(model) : NULL;
}

bool rn_engine_is_loaded(const rn_engine *e) {
    return e->diffusion || e->generator || rn_engine_embedding_plan(e);
}

rn_engine_presence rn_engine_get_presence(rn_engine *e) {
    rn_engine_presence out = {.loads = 1};
    pthread_mutex_lock(&e->lock);
    out.loaded = e->facts.target[0] != 0;
    pthread_mutex_unlock(&e->lock);
    if (!e->roster) return out;
    pthread_mutex_lock(&e->roster->lock);
    out.share_bytes = e->roster->entries[e->roster_index].share_bytes;
    out.loads = e->roster->entries[e->roster_index].loads;
    pthread_mutex_unlock(&e->roster->lock);
    return out;
}

const char *rn_engine_model_name(rn_engine *e) {
    if (e->options->model_name) return e->options->model_name;
    return rn_engine_model(e) || rn_engine_diffusion(e) ? e->name : "";
}

void rn_engine_ladder_json(rn_engine *e, rn_json *json, const char *key) {
    rn_ladder_write_json(e->ladder, json, key);
}

const rn_plan *rn_engine_plan(const rn_engine *e) {
    if (e->generator) return rn_generator_plan(e->generator);
    return rn_engine_embedding_plan(e);
}

static void write_plan(const rn_engine *e, rn_json *json) {
    const rn_plan_options *options = &e->generator_options.plan;
    bool limited = options->budget_bytes && options->budget_bytes != RN_NO_LIMIT;
    rn_json_object(json, NULL);
    rn_json_string(json, "model", e->model ? rn_model_get_info(e->model)->name : e->name);
    if (limited)
        rn_json_u64(json, "budget_bytes", options->budget_bytes);
    else
        rn_json_null(json, "budget_bytes");
    rn_json_u64(json, "reserved_bytes", options->reserved_bytes);
    if (e->painter)
        rn_json_check(json,
                      rn_program_json(rn_painter_program(e->painter), rn_json_embed(json, "plan")));
    else
        rn_plan_write_json(rn_engine_plan(e), json, "plan");
    rn_json_end(json);
}

rn_status rn_engine_plan_json(rn_engine *e, rn_sink sink) {
    rn_json json;
    rn_status s;
    pthread_mutex_lock(&e->plan_lock);
    if (e->painter || rn_engine_plan(e)) {
        rn_json_begin(&json, sink, true);
        write_plan(e, &json);
        s = rn_json_finish(&json);
    } else {
        s = rn_fail(RN_NOT_FOUND, "there is no plan yet");
    }
    pthread_mutex_unlock(&e->plan_lock);
    return s;
}

void rn_engine_each_share(rn_engine *e, void (*each)(void *self, const rn_rank_share *share),
                          void *self) {
    uint32_t count = 0;
    pthread_mutex_lock(&e->plan_lock);
    const rn_rank_share *shares = e->generator ? rn_generator_shares(e->generator, &count) : NULL;
    for (uint32_t r = 0; r < count; r++)
        each(self, &shares[r]);
    pthread_mutex_unlock(&e->plan_lock);
}
