// engine_run.c — the thread: look who came and who left, admit, step, hand out; again.
#include "server/engine_parts.h"

#include "base/clock.h"

#include <ration/log.h>
#include <ration/profile.h>

#include <time.h>

#define SECOND ((uint64_t)1000000000)
enum { TRIES = 3, IDLE_NS = 10000000, LOOK_NS = 250000000, SWEEP_NS = 100000000 };

// ---- waiting ------------------------------------------------------------------------------------

static bool has_ranks(const rn_engine *e) {
    return rn_comm_size(e->generator_options.comm) > 1;
}

// Who is next may wait for an outbox that a connection gives back without a word; other ranks may
// be lost while nobody asks for anything.
static void wait_for_news(rn_engine *e, bool somebody_waits) {
    struct timespec until;
    if (!somebody_waits && !has_ranks(e)) {
        pthread_cond_wait(&e->work, &e->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += somebody_waits ? IDLE_NS : LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&e->work, &e->lock, &until);
}

// Whoever runs for embeddings has texts left: else it would have ended.
static bool has_work(const rn_engine *e) {
    if (e->diffusion) return false; // a drawing that runs is looked after now and then
    if (!rn_engine_is_loaded(e)) return false;
    return e->embedding ? e->running != NULL : rn_generator_has_work(e->generator);
}

// Returns at once where there is something to do. False: the engine ends.
static bool wait_for_work(rn_engine *e) {
    bool busy = has_work(e);
    pthread_mutex_lock(&e->lock);
    bool somebody_waits = e->in_hand || e->queue.count || (e->diffusion && e->running);
    if (!busy && !e->news && !e->ending) wait_for_news(e, somebody_waits);
    e->news = false;
    bool goes_on = !e->ending;
    pthread_mutex_unlock(&e->lock);
    return goes_on;
}

// ---- who left -----------------------------------------------------------------------------------

static void end_cancelled(rn_engine *e) {
    for (rn_job *job = e->running, *next; job; job = next) {
        next = job->next;
        if (rn_job_is_cancelled(job)) rn_engine_end(e, job, RN_JOB_CANCELLED, NULL);
    }
}

static rn_problem make_late(const rn_engine *e) {
    rn_problem problem;
    (void)rn_problem_set(&problem, 503, "wait_timeout", "",
                         "the request has waited for %u s, the longest that it may",
                         e->options->limits.wait_seconds);
    problem.retry_seconds = 1;
    return problem;
}

// Out of the line, with or without having been in hand.
static void dismiss(rn_engine *e, rn_job *job, const rn_problem *problem) {
    pthread_mutex_lock(&e->lock);
    job->place = RN_PLACE_NONE;
    e->waiting--;
    pthread_mutex_unlock(&e->lock);
    rn_engine_turn_away(e, job, problem);
}

static void dismiss_in_hand(rn_engine *e, const rn_problem *problem) {
    rn_job *job = e->in_hand;
    e->in_hand = NULL;
    if (job) dismiss(e, job, problem);
}

static rn_job *pop_late(rn_engine *e, uint64_t before_ns) {
    pthread_mutex_lock(&e->lock);
    rn_job *job = rn_job_queue_pop_older(&e->queue, before_ns);
    pthread_mutex_unlock(&e->lock);
    return job;
}

static void end_late(rn_engine *e, uint64_t now) {
    uint64_t longest = e->options->limits.wait_seconds * SECOND;
    if (now < longest) return;
    rn_problem late = make_late(e);
    if (e->in_hand && e->in_hand->entered_ns < now - longest) dismiss_in_hand(e, &late);
    for (rn_job *job; (job = pop_late(e, now - longest));)
        dismiss(e, job, &late);
}

// A few streams that are read drop by drop could keep everybody else out for hours: none may do so
// for longer, in all, than a connection may idle.
static void end_blocking(rn_engine *e) {
    uint64_t longest = e->options->limits.idle_seconds * SECOND;
    rn_problem problem;
    for (rn_job *job = e->running; e->in_hand && job; job = job->next) {
        if (!rn_job_is_stalled(job)) continue;
        job->blocked_ns += SWEEP_NS;
        if (job->blocked_ns <= longest) continue;
        (void)rn_problem_set(&problem, 503, "reader_too_slow", "",
                             "others have waited for %u s because the stream is read too slowly",
                             e->options->limits.idle_seconds);
        rn_engine_end(e, job, RN_JOB_FAILED, &problem);
        return; // its place may be enough
    }
}

void rn_engine_sweep(rn_engine *e) {
    uint64_t now = rn_clock_ns();
    if (now < e->swept_ns + SWEEP_NS) return;
    e->swept_ns = now;
    end_late(e, now);
    end_blocking(e);
}

static void end_rest(rn_engine *e) {
    rn_problem closing = rn_engine_closing();
    rn_engine_end_all(e, &closing);
    dismiss_in_hand(e, &closing);
    rn_engine_turn_all_away(e, &closing, true);
}

// ---- who came -----------------------------------------------------------------------------------

static rn_job *pop_next(rn_engine *e) {
    pthread_mutex_lock(&e->lock);
    rn_job *job = rn_job_queue_pop(&e->queue);
    if (job) job->place = RN_PLACE_RUNNING; // to be called back between steps, as those that run
    pthread_mutex_unlock(&e->lock);
    return job;
}

// The running ones are seen before one of the waiting is not, so that the two never look idle.
static void welcome(rn_engine *e, rn_job *job) {
    e->in_hand = NULL;
    pthread_mutex_lock(&e->lock);
    e->facts.running = e->running_count;
    e->waiting--;
    pthread_mutex_unlock(&e->lock);
    rn_job_set_state(job, RN_JOB_RUNNING, NULL);
}

// ---- among several models -----------------------------------------------------------------------

// When the job came that is next; 0: there is none.
static uint64_t next_ns(rn_engine *e) {
    if (e->in_hand) return e->in_hand->entered_ns;
    pthread_mutex_lock(&e->lock);
    const rn_job *job = rn_job_queue_front(&e->queue);
    uint64_t when = job ? job->entered_ns : 0;
    pthread_mutex_unlock(&e->lock);
    return when;
}

static bool must_leave(rn_engine *e) {
    return e->roster &&
           rn_roster_must_leave(e->roster, e->roster_index, next_ns(e), e->tokenizing.sequences);
}

static bool may_admit(rn_engine *e) {
    return rn_engine_is_loaded(e) && !must_leave(e);
}

// The model cannot be had any more: whoever waits for it is told, and whoever asks.
static void give_up(rn_engine *e) {
    rn_problem problem;
    rn_log(RN_LOG_ERROR, "server", "%s could not be loaded again: %s", rn_engine_model_name(e),
           rn_last_error()->message);
    pthread_mutex_lock(&e->lock);
    e->facts.failure = *rn_last_error();
    pthread_mutex_unlock(&e->lock);
    rn_engine_set_phase(e, RN_ENGINE_FAILED);
    (void)rn_phase_refuse(RN_ENGINE_FAILED, &e->facts.failure, &problem);
    rn_roster_leave(e->roster, e->roster_index);
    dismiss_in_hand(e, &problem);
    rn_engine_turn_all_away(e, &problem, true);
}

// They may sleep.
static void tell_leaving(rn_roster *roster) {
    rn_engine *leaving[RN_ROSTER_MODELS];
    uint32_t count = 0;
    pthread_mutex_lock(&roster->lock);
    for (uint32_t i = 0; i < roster->count; i++)
        if (roster->entries[i].leaves) leaving[count++] = roster->entries[i].engine;
    pthread_mutex_unlock(&roster->lock);
    for (uint32_t i = 0; i < count; i++)
        rn_engine_tell(leaving[i]);
}

static bool is_failed(rn_engine *e) {
    pthread_mutex_lock(&e->lock);
    bool failed = e->phase == RN_ENGINE_FAILED;
    pthread_mutex_unlock(&e->lock);
    return failed;
}

// Comes where somebody waits for it and there is room; goes where it is told to and nothing runs.
static void come_or_go(rn_engine *e) {
    uint64_t since = next_ns(e);
    if (!rn_engine_is_loaded(e)) {
        if (!since)
            rn_roster_withdraw(e->roster, e->roster_index);
        else if (!rn_roster_enter(e->roster, e->roster_index, since, rn_clock_ns()))
            tell_leaving(e->roster);
        else if (rn_engine_come(e) != RN_OK)
            give_up(e);
    } else if (!e->running && must_leave(e)) {
        rn_engine_go(e);
    }
}

// Whose turn it is stays in hand until it fits: nobody overtakes it.
static void admit_all(rn_engine *e) {
    rn_problem problem = {0};
    while (may_admit(e)) {
        if (!e->in_hand) e->in_hand = pop_next(e);
        rn_job *job = e->in_hand;
        if (!job) return;
        rn_admission admission =
            rn_job_is_cancelled(job) ? RN_NEVER : rn_engine_admit(e, job, &problem);
        if (admission == RN_NOT_NOW) return;
        if (admission == RN_ADMITTED) {
            if (e->roster) rn_roster_note(e->roster, e->roster_index, rn_clock_ns());
            welcome(e, job);
        } else
            dismiss_in_hand(e, &problem);
    }
}

// ---- steps --------------------------------------------------------------------------------------

static rn_status step(rn_engine *e) {
    rn_status s = RN_OK;
    if (e->roster) rn_roster_turn_begin(e->roster);
    rn_profile_begin(rn_profile_name("step"));
    for (int i = 0; i < (has_ranks(e) ? 1 : TRIES); i++) {
        s = e->embedding ? rn_engine_embedding_step(e) : rn_generator_step(e->generator);
        if (s == RN_OK || s == RN_CANCELLED) break;
        rn_log(RN_LOG_WARNING, "server", "a step failed: %s", rn_last_error()->message);
    }
    rn_profile_end();
    if (e->roster) rn_roster_turn_end(e->roster);
    if (s == RN_OK) rn_metrics_add(e->metrics, RN_COUNT_STEPS, 1);
    return s;
}

// What runs has lost its sequences; what waits can wait for the next target. False: there is none.
static bool fall(rn_engine *e) {
    rn_error_info error = *rn_last_error();
    rn_problem problem;
    rn_engine_set_phase(e, RN_ENGINE_LOADING);
    rn_problem_from_error(&problem, &error);
    // Whatever it was, the request was not to blame. A rank that is lost is not the server's bug.
    problem.http = has_ranks(e) ? 503 : 500;
    rn_engine_end_all(e, &problem);
    rn_engine_publish(e);
    if (rn_engine_fall(e, &error) == RN_OK) {
        rn_engine_set_phase(e, RN_ENGINE_READY);
        return true;
    }
    pthread_mutex_lock(&e->lock);
    e->facts.failure = *rn_last_error();
    pthread_mutex_unlock(&e->lock);
    rn_engine_set_phase(e, RN_ENGINE_FAILED);
    return false;
}

// False: the engine can do no more.
static bool work(rn_engine *e) {
    end_cancelled(e);
    rn_engine_sweep(e);
    if (atomic_load(&e->cut)) end_rest(e);
    if (e->roster && !is_failed(e)) come_or_go(e);
    admit_all(e);
    if (e->diffusion) return !e->running || rn_engine_draw(e) == RN_OK || fall(e);
    if (!e->embedding) rn_engine_take(e); // from streams that have room again: they may make more
    if (!has_work(e)) return !has_ranks(e) || rn_generator_look(e->generator) == RN_OK || fall(e);
    rn_status s = step(e);
    if (s == RN_OK && !e->embedding) rn_engine_take(e);
    return s == RN_OK || s == RN_CANCELLED || fall(e);
}

void *rn_engine_main(void *self) {
    rn_engine *e = self;
    bool good = true;
    rn_profile_thread_name("engine");
    while (good && wait_for_work(e)) {
        good = work(e);
        rn_engine_publish(e);
    }
    end_rest(e);
    rn_engine_publish(e);
    return NULL;
}
