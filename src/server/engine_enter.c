// engine_enter.c — jobs come in, wait, and may be called back. Connections' threads, and one that
// reads long prompts, so that none of the former stands still for long.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "base/clock.h"

#include <ration/profile.h>

enum { MOST_RETRY_SECONDS = 60 };

// ---- refusals -----------------------------------------------------------------------------------

// What those who wait will take, by what jobs took lately.
static uint32_t estimate_wait(const rn_engine *e) {
    double seconds =
        e->job_seconds * (double)(e->waiting + 1) / (double)rn_max_u64(e->tokenizing.sequences, 1);
    return seconds < 1 ? 1 : seconds > MOST_RETRY_SECONDS ? MOST_RETRY_SECONDS : (uint32_t)seconds;
}

static bool refuse_full(const rn_engine *e, rn_problem *out) {
    (void)rn_problem_set(out, 429, "queue_full", "",
                         "%u requests are waiting already, the most "
                         "that may",
                         e->waiting);
    out->retry_seconds = estimate_wait(e);
    return false;
}

// ---- places -------------------------------------------------------------------------------------

// Somebody who waited does no longer. Under the lock.
static void leave_line(rn_engine *e, rn_job *job, rn_job_place place) {
    job->place = (uint8_t)place;
    e->waiting--;
    if (e->waiting == 0) pthread_cond_broadcast(&e->idle);
}

void rn_engine_turn_away(rn_engine *e, rn_job *job, const rn_problem *problem) {
    bool cancelled = rn_job_is_cancelled(job);
    rn_metrics_add(e->metrics, cancelled ? RN_COUNT_CANCELLED : RN_COUNT_FAILED, 1);
    rn_job_set_state(job, cancelled ? RN_JOB_CANCELLED : RN_JOB_FAILED, problem);
    rn_job_release(job);
}

// A place in line, before the prompt is read.
static bool take_place(rn_engine *e, rn_job *job, rn_tokenizing *out_intake, rn_problem *out) {
    pthread_mutex_lock(&e->lock);
    bool ready = e->phase == RN_ENGINE_READY, fits = e->waiting < e->options->limits.waiting;
    if (!ready)
        (void)rn_phase_refuse(e->phase, &e->facts.failure, out);
    else if (!fits)
        (void)refuse_full(e, out);
    else {
        e->waiting++;
        job->place = RN_PLACE_INTAKE;
        *out_intake = e->tokenizing;
    }
    pthread_mutex_unlock(&e->lock);
    return ready && fits;
}

// From being read to the queue. False: it is out of the line; the server is closing, or it was
// called back.
static bool stand_in_line(rn_engine *e, rn_job *job, rn_problem *out) {
    pthread_mutex_lock(&e->lock);
    bool open = !e->ending && e->phase != RN_ENGINE_FAILED;
    bool stays = open && !rn_job_is_cancelled(job) && rn_job_queue_push(&e->queue, job);
    if (stays) {
        job->place = RN_PLACE_QUEUE;
        e->news = true;
        pthread_cond_signal(&e->work);
    } else {
        *out = rn_engine_closing();
        leave_line(e, job, RN_PLACE_NONE);
    }
    pthread_mutex_unlock(&e->lock);
    return stays;
}

static bool give_up_place(rn_engine *e, rn_job *job) {
    pthread_mutex_lock(&e->lock);
    leave_line(e, job, RN_PLACE_NONE);
    pthread_mutex_unlock(&e->lock);
    return false;
}

// ---- long prompts -------------------------------------------------------------------------------

static void hand_over(rn_engine *e, rn_job *job) {
    pthread_mutex_lock(&e->lock);
    job->next = NULL;
    *(e->intake_last ? &e->intake_last->next : &e->intake_first) = job;
    e->intake_last = job;
    pthread_cond_signal(&e->intake_work);
    pthread_mutex_unlock(&e->lock);
}

// The next to be read; NULL: the engine ends.
static rn_job *wait_for_text(rn_engine *e, rn_tokenizing *out_intake) {
    pthread_mutex_lock(&e->lock);
    while (!e->ending && !e->intake_first)
        pthread_cond_wait(&e->intake_work, &e->lock);
    rn_job *job = e->ending ? NULL : e->intake_first;
    if (job) {
        e->intake_first = job->next;
        if (!e->intake_first) e->intake_last = NULL;
        job->next = NULL;
    }
    *out_intake = e->tokenizing;
    pthread_mutex_unlock(&e->lock);
    return job;
}

static void read_long(rn_engine *e, rn_job *job, const rn_tokenizing *tokenizing) {
    rn_problem problem = {0};
    rn_profile_begin(rn_profile_name("tokenize"));
    bool good = !rn_job_is_cancelled(job) && rn_tokenizing_read(tokenizing, job, &problem);
    rn_profile_end();
    good = good ? stand_in_line(e, job, &problem) : give_up_place(e, job);
    if (!good) rn_engine_turn_away(e, job, &problem);
}

void *rn_engine_intake_main(void *self) {
    rn_engine *e = self;
    rn_tokenizing tokenizing;
    rn_job *job;
    rn_profile_thread_name("tokenizing");
    while ((job = wait_for_text(e, &tokenizing)))
        read_long(e, job, &tokenizing);
    return NULL;
}

// ---- in and out ---------------------------------------------------------------------------------

bool rn_engine_enter(rn_engine *e, rn_job *job, rn_problem *out) {
    rn_tokenizing tokenizing;
    if (!take_place(e, job, &tokenizing, out)) return false;
    job->entered_ns = rn_clock_ns();
    bool draws = job->request.kind == RN_REQUEST_IMAGE;
    if (!draws && rn_tokenizing_text_bytes(&job->request) > RN_TOKENIZING_SHORT_BYTES) {
        rn_metrics_add(e->metrics, RN_COUNT_REQUESTS, 1);
        hand_over(e, job);
        return true;
    }
    if (!(draws ? rn_engine_read_drawing(e, job, out) : rn_tokenizing_read(&tokenizing, job, out)))
        return give_up_place(e, job);
    if (!stand_in_line(e, job, out)) return false;
    rn_metrics_add(e->metrics, RN_COUNT_REQUESTS, 1);
    return true;
}

void rn_engine_cancel(rn_engine *e, rn_job *job) {
    pthread_mutex_lock(&job->lock);
    job->cancelled = true;
    pthread_mutex_unlock(&job->lock);
    pthread_mutex_lock(&e->lock);
    bool queued = job->place == RN_PLACE_QUEUE && rn_job_queue_remove(&e->queue, job);
    if (queued) leave_line(e, job, RN_PLACE_NONE);
    if (job->place == RN_PLACE_RUNNING) atomic_store(&e->cut_drawing, true);
    e->news = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (queued) rn_engine_turn_away(e, job, NULL);
}

// One of those that wait, taken out; NULL: none is left.
static rn_job *pop_waiting(rn_engine *e, bool everything) {
    pthread_mutex_lock(&e->lock);
    rn_job *job = rn_job_queue_pop(&e->queue);
    if (!job && everything && (job = e->intake_first)) {
        e->intake_first = job->next;
        if (!e->intake_first) e->intake_last = NULL;
    }
    if (job) leave_line(e, job, RN_PLACE_NONE);
    pthread_mutex_unlock(&e->lock);
    return job;
}

void rn_engine_turn_all_away(rn_engine *e, const rn_problem *problem, bool everything) {
    for (rn_job *job; (job = pop_waiting(e, everything));)
        rn_engine_turn_away(e, job, problem);
}
