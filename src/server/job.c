// job.c — the outbox between the engine and a connection: records in one linear buffer.
//
//     0       cursor              written               outbox_bytes
//     | read ... | piece | piece | ... |                     |
//
// A stream's reader sets both back to 0 when it has read everything, so one that keeps up never
// fills it; the writer of a full one waits for that (`drained`). Others keep all pieces, and their
// outbox has room for the longest answer there can be. Pieces lie byte by byte, without padding, so
// the bytes of a set of pieces do not depend on how the text is distributed over them.
#include "server/job_choice.h"

#include "base/str.h"
#include "memory/account.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

// In front of each piece: then top_count rn_token_logprob, then the text.
typedef struct record {
    uint32_t choice, text_bytes, token;
    float logprob;
    uint8_t finish, has_token, top_count, kind;
} record;

const char *rn_finish_name(rn_finish finish) {
    static const char *const names[] = {"", "stop", "length", "tool_calls"};
    return names[finish];
}

// ---- life ---------------------------------------------------------------------------------------

// Nobody can guess another's id. Where the system has no random numbers yet, the clock will do.
static void make_id(rn_job *job) {
    static const char *const kinds[] = {"gen-", "cmpl-", "chatcmpl-", "embd-", "img-"};
    uint64_t number[2] = {0};
    struct timespec now;
    if (getrandom(number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        clock_gettime(CLOCK_REALTIME, &now);
        number[0] = (uint64_t)now.tv_nsec;
        number[1] = (uint64_t)(uintptr_t)job;
    }
    rn_request_dialect dialect = job->request.dialect;
    const char *kind = dialect == RN_DIALECT_RESPONSES ? "resp_"
                       : dialect == RN_DIALECT_RERANK  ? "rank-"
                                                       : kinds[job->request.kind];
    snprintf(job->id, sizeof job->id, "%s%012llx%012llx", kind,
             (unsigned long long)(number[0] >> 16), (unsigned long long)(number[1] >> 16));
}

rn_status rn_job_create(rn_request *request, rn_request_memory *memory, uint64_t memory_bytes,
                        uint64_t client, void (*wake)(void *self), void *self, rn_job **out) {
    void *block = NULL;
    *out = NULL;
    rn_status s = rn_alloc_zeroed(RN_HOST_IO, 1, sizeof(rn_job), &block);
    if (s != RN_OK) {
        rn_request_free(request);
        rn_request_memory_release(memory, memory_bytes);
        return s;
    }
    rn_job *job = block;
    *job = (rn_job){.request = *request,
                    .created = (int64_t)time(NULL),
                    .client = client,
                    .memory = memory,
                    .wake = wake,
                    .self = self,
                    .references = 2,
                    .memory_bytes = memory_bytes};
    *request = (rn_request){0};
    make_id(job);
    pthread_mutex_init(&job->lock, NULL);
    *out = job;
    return RN_OK;
}

static void free_prompts(rn_job *job) {
    for (size_t i = 0; job->prompts && i < job->request.prompt_count; i++)
        rn_free(RN_HOST_IO, job->prompts[i].ids, job->prompts[i].capacity * sizeof(uint32_t));
    rn_free(RN_HOST_IO, job->prompts, job->request.prompt_count * sizeof *job->prompts);
    rn_free(RN_HOST_IO, job->scores, job->request.prompt_count * sizeof *job->scores);
}

static void destroy(rn_job *job) {
    rn_choices_free(job);
    free_prompts(job);
    rn_free(RN_HOST_IO, job->outbox, job->outbox_bytes);
    if (job->answers) rn_request_memory_release(job->answers, job->outbox_bytes);
    rn_request_free(&job->request);
    rn_request_memory_release(job->memory, job->memory_bytes);
    pthread_mutex_destroy(&job->lock);
    rn_free(RN_HOST_IO, job, sizeof *job);
}

void rn_job_release(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    bool last = --job->references == 0;
    pthread_mutex_unlock(&job->lock);
    if (last) destroy(job);
}

// ---- looking ------------------------------------------------------------------------------------

static bool has_ended(const rn_job *job) {
    return job->state >= RN_JOB_DONE;
}

rn_job_state rn_job_get_state(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    rn_job_state state = job->state;
    pthread_mutex_unlock(&job->lock);
    return state;
}

rn_problem rn_job_get_problem(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    rn_problem problem = job->problem;
    pthread_mutex_unlock(&job->lock);
    return problem;
}

rn_usage rn_job_get_usage(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    rn_usage usage = job->usage;
    pthread_mutex_unlock(&job->lock);
    return usage;
}

bool rn_job_is_cancelled(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    bool cancelled = job->cancelled;
    pthread_mutex_unlock(&job->lock);
    return cancelled;
}

bool rn_job_keeps_pieces(const rn_job *job) {
    return !job->request.stream || job->request.keeps_pieces;
}

// ---- reading ------------------------------------------------------------------------------------

static size_t read_record(const char *at, rn_piece *out) {
    record head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    *out = (rn_piece){
        .choice = head.choice,
        .kind = (rn_piece_kind)head.kind,
        .finish = (rn_finish)head.finish,
        .has_token = head.has_token,
        .sample = {.token = head.token, .logprob = head.logprob, .top_count = head.top_count}};
    size_t top_bytes = head.top_count * sizeof *out->sample.top;
    memcpy(out->sample.top, at, top_bytes);
    out->text = (rn_str){at + top_bytes, head.text_bytes};
    return rn_piece_bytes(head.text_bytes, head.top_count);
}

bool rn_job_read(rn_job *job, size_t *cursor, rn_piece *out) {
    bool told = false, found;
    pthread_mutex_lock(&job->lock);
    if (!rn_job_keeps_pieces(job) &&
        *cursor == job->written) { // what was read last is no longer in use
        *cursor = job->written = 0;
        told = job->stalled;
        job->stalled = false;
    }
    found = *cursor < job->written;
    if (found) *cursor += read_record(job->outbox + *cursor, out);
    pthread_mutex_unlock(&job->lock);
    if (told && job->drained) job->drained(job->drained_self);
    return found;
}

bool rn_job_sleep(rn_job *job, size_t cursor, void (*suspend)(void *self), void *self) {
    pthread_mutex_lock(&job->lock);
    bool news = has_ended(job) || (job->request.stream && cursor < job->written);
    if (!news) {
        suspend(self);
        job->sleeping = true;
    }
    pthread_mutex_unlock(&job->lock);
    return !news;
}

// ---- writing ------------------------------------------------------------------------------------

bool rn_job_open_outbox(rn_job *job, rn_request_memory *answers, size_t bytes,
                        rn_status *out_status) {
    void *block = NULL;
    *out_status = RN_OK;
    if (!rn_request_memory_take(answers, bytes)) return false;
    *out_status = rn_alloc(RN_HOST_IO, bytes, &block);
    if (*out_status != RN_OK) {
        rn_request_memory_release(answers, bytes);
        return false;
    }
    pthread_mutex_lock(&job->lock);
    job->outbox = block;
    job->outbox_bytes = bytes;
    job->answers = answers;
    pthread_mutex_unlock(&job->lock);
    return true;
}

size_t rn_piece_bytes(size_t text_bytes, uint32_t top_count) {
    return sizeof(record) + top_count * sizeof(rn_token_logprob) + text_bytes;
}

static void write_record(char *at, const rn_piece *piece, uint32_t top_count) {
    const rn_sample *sample = &piece->sample;
    record head = {.choice = piece->choice,
                   .kind = (uint8_t)piece->kind,
                   .text_bytes = (uint32_t)piece->text.bytes,
                   .finish = (uint8_t)piece->finish,
                   .has_token = piece->has_token,
                   .top_count = (uint8_t)top_count};
    if (piece->has_token) {
        head.token = sample->token;
        head.logprob = sample->logprob;
    }
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, sample->top, top_count * sizeof *sample->top);
    if (piece->text.bytes)
        memcpy(at + top_count * sizeof *sample->top, piece->text.data, piece->text.bytes);
}

// Called without the lock: what is woken may look at the job at once.
static void wake(const rn_job *job, bool sleeping) {
    if (sleeping && job->wake) job->wake(job->self);
}

static bool stop_sleeping(rn_job *job) {
    bool sleeping = job->sleeping;
    job->sleeping = false;
    return sleeping;
}

bool rn_job_put(rn_job *job, const rn_piece *piece) {
    uint32_t tops = piece->has_token ? piece->sample.top_count : 0;
    size_t bytes = rn_piece_bytes(piece->text.bytes, tops);
    bool sleeping = false;
    pthread_mutex_lock(&job->lock);
    bool fits = bytes <= job->outbox_bytes - job->written;
    if (fits) {
        write_record(job->outbox + job->written, piece, tops);
        job->written += bytes;
        sleeping = job->request.stream && stop_sleeping(job);
    }
    pthread_mutex_unlock(&job->lock);
    wake(job, sleeping);
    return fits;
}

size_t rn_job_free_bytes(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    size_t bytes = job->outbox_bytes - job->written;
    pthread_mutex_unlock(&job->lock);
    return bytes;
}

bool rn_job_has_room(rn_job *job, size_t bytes) {
    pthread_mutex_lock(&job->lock);
    bool fits = bytes <= job->outbox_bytes - job->written;
    job->stalled = !fits;
    pthread_mutex_unlock(&job->lock);
    return fits;
}

bool rn_job_is_stalled(rn_job *job) {
    pthread_mutex_lock(&job->lock);
    bool stalled = job->stalled;
    pthread_mutex_unlock(&job->lock);
    return stalled;
}

void rn_job_set_state(rn_job *job, rn_job_state state, const rn_problem *problem) {
    bool sleeping = false;
    pthread_mutex_lock(&job->lock);
    if (!has_ended(job)) {
        job->state = state;
        if (problem) job->problem = *problem;
        if (job->request.stream || has_ended(job)) sleeping = stop_sleeping(job);
    }
    pthread_mutex_unlock(&job->lock);
    wake(job, sleeping);
}
