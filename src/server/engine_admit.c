// engine_admit.c — a job begins: everything it can ever need, or nothing; and it ends.
#include "server/engine_parts.h"

#include "base/clock.h"

// ---- beginning ----------------------------------------------------------------------------------

static void wake_engine(void *engine) {
    rn_engine_tell(engine);
}

static void drop_sequences(rn_engine *e, rn_job *job) {
    for (uint32_t i = 0; i < job->choice_count; i++) {
        rn_choice *choice = &job->choices[i];
        if (!choice->sequence) continue;
        rn_sequence_destroy(choice->sequence);
        choice->sequence = NULL;
        e->sequences--;
    }
}

// Answer k of a prompt is drawn with the k-th seed behind the one that was asked for, so each can
// be had again alone. *out_fits: its pages are promised.
static rn_status begin_choice(rn_engine *e, rn_job *job, uint32_t index, bool *out_fits) {
    rn_choice *choice = &job->choices[index];
    const rn_tokens *prompt = &job->prompts[index / job->request.n];
    rn_sampling sampling = job->request.sampling;
    sampling.seed += index % job->request.n;
    sampling.without_logprob = !job->request.logprobs && sampling.logprobs == 0;
    sampling.constraint = choice->constraint;
    RN_TRY(rn_sequence_create(e->generator, &sampling, &choice->sequence));
    e->sequences++;
    rn_sequence_set_owner(choice->sequence, job->owner);
    RN_TRY(rn_sequence_set_adapter(choice->sequence, job->request.adapter));
    RN_TRY(rn_sequence_feed(choice->sequence, prompt->ids, prompt->count));
    *out_fits = rn_sequence_reserve(choice->sequence, prompt->count + job->max_tokens - 1);
    return RN_OK;
}

// A new outbox begins empty, so one that was taken before is kept while the job waits for pages.
static rn_status open_outbox(rn_engine *e, rn_job *job, bool *out_fits) {
    rn_status s = RN_OK;
    *out_fits = job->outbox || rn_job_open_outbox(job, e->answers, job->answer_bytes, &s);
    return s;
}

static rn_status begin(rn_engine *e, rn_job *job, bool *out_fits) {
    *out_fits = e->sequences + job->choice_count <= e->tokenizing.sequences;
    if (*out_fits) RN_TRY(open_outbox(e, job, out_fits));
    for (uint32_t i = 0; *out_fits && i < job->choice_count; i++)
        RN_TRY(begin_choice(e, job, i, out_fits));
    return RN_OK;
}

static void note_start(rn_engine *e, rn_job *job) {
    uint32_t prompt_tokens = 0;
    job->started_ns = rn_clock_ns();
    rn_metrics_time(e->metrics, RN_SPAN_QUEUE, job->started_ns - job->entered_ns);
    for (size_t i = 0; i < job->request.prompt_count; i++)
        prompt_tokens += (uint32_t)job->prompts[i].count;
    rn_metrics_add(e->metrics, RN_COUNT_PROMPT_TOKENS, prompt_tokens);
    pthread_mutex_lock(&job->lock);
    job->usage.prompt_tokens = prompt_tokens;
    job->drained = wake_engine;
    job->drained_self = e;
    pthread_mutex_unlock(&job->lock);
}

static void begin_running(rn_engine *e, rn_job *job) {
    job->next = e->running;
    e->running = job;
    e->running_count++;
}

static rn_admission admit_drawing(rn_engine *e, rn_job *job, rn_problem *out) {
    rn_admission admission = rn_engine_admit_drawing(e, job, out);
    if (admission != RN_ADMITTED) return admission;
    job->started_ns = rn_clock_ns();
    rn_metrics_time(e->metrics, RN_SPAN_QUEUE, job->started_ns - job->entered_ns);
    begin_running(e, job);
    return RN_ADMITTED;
}

rn_admission rn_engine_admit(rn_engine *e, rn_job *job, rn_problem *out) {
    bool fits = false;
    if (e->diffusion) return admit_drawing(e, job, out);
    if (!rn_tokenizing_check(&e->tokenizing, job, out))
        return RN_NEVER; // a target below may have fewer
    rn_status s = begin(e, job, &fits);
    if (s != RN_OK) rn_problem_from_error(out, rn_last_error());
    if (s != RN_OK || !fits) {
        drop_sequences(e, job);
        return s != RN_OK ? RN_NEVER : RN_NOT_NOW;
    }
    note_start(e, job);
    begin_running(e, job);
    return RN_ADMITTED;
}

// ---- ending -------------------------------------------------------------------------------------

static void note_end(rn_engine *e, const rn_job *job, rn_job_state state) {
    uint64_t now = rn_clock_ns();
    double seconds = (double)(now - job->started_ns) * 1e-9;
    static const rn_count counts[] = {[RN_JOB_DONE] = RN_COUNT_DONE,
                                      [RN_JOB_FAILED] = RN_COUNT_FAILED,
                                      [RN_JOB_CANCELLED] = RN_COUNT_CANCELLED};
    rn_metrics_add(e->metrics, counts[state], 1);
    if (state != RN_JOB_DONE) return;
    rn_metrics_time(e->metrics, RN_SPAN_END_TO_END, now - job->entered_ns);
    pthread_mutex_lock(&e->lock);
    e->job_seconds += (seconds - e->job_seconds) / (e->job_seconds > 0 ? 8 : 1);
    pthread_mutex_unlock(&e->lock);
}

static void unlink_running(rn_engine *e, rn_job *job) {
    rn_job **at = &e->running;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->next = NULL;
    e->running_count--;
}

void rn_engine_end(rn_engine *e, rn_job *job, rn_job_state state, const rn_problem *problem) {
    drop_sequences(e, job);
    unlink_running(e, job);
    note_end(e, job, state);
    pthread_mutex_lock(&e->lock);
    job->place = RN_PLACE_NONE;
    pthread_mutex_unlock(&e->lock);
    rn_job_set_state(job, state, problem);
    rn_job_release(job);
}

void rn_engine_end_all(rn_engine *e, const rn_problem *problem) {
    while (e->running)
        rn_engine_end(e, e->running, RN_JOB_FAILED, problem);
}
