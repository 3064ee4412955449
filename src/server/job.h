// job.h — a request under way: asked, queued, running, done. The engine writes what comes of it,
// piece by piece, the connection reads it.
//
//     connection ──create──▶ job ──rn_engine_enter──▶ queue ──▶ engine: sequences, one a choice
//          ▲                  │                                    │
//          └──── rn_job_read ─┴───────── outbox ◀── rn_job_put ────┘
//
// A job lives until both have released it. Its outbox has a fixed size that was taken from the
// room before the job began; a stream whose reader is slow holds up its own sequences only.
#ifndef RN_SERVER_JOB_H
#define RN_SERVER_JOB_H

#include "server/request.h"
#include "server/request_memory.h"

#include <ration/generate.h>

#include <pthread.h>

typedef enum rn_job_state {
    RN_JOB_WAITING, // in the queue, or being tokenized
    RN_JOB_RUNNING,
    RN_JOB_DONE,     // every choice has its last piece in the outbox
    RN_JOB_FAILED,   // see rn_job_get_problem
    RN_JOB_CANCELLED // nobody reads it any more
} rn_job_state;

typedef enum rn_finish {
    RN_FINISH_NONE,
    RN_FINISH_STOP,
    RN_FINISH_LENGTH,
    RN_FINISH_TOOL_CALLS
} rn_finish;
// "stop", "length".
const char *rn_finish_name(rn_finish finish);

// A token of a choice and the text that became certain with it (it may be empty, or hold that of
// tokens before); or the end of the choice, with the text that was held back and no token.
// What a piece's text is. A call is a piece with its name, and one or more with its arguments.
typedef enum rn_piece_kind {
    RN_PIECE_TEXT,
    RN_PIECE_CALL, // the name of the tool
    RN_PIECE_ARGUMENTS,
    RN_PIECE_EMBEDDING, // f32s, of the text whose number is `choice`
    RN_PIECE_STEP,      // an rn_drawing_step
    RN_PIECE_PICTURE    // bytes of a PNG file; with the finish, none: it is whole
} rn_piece_kind;
// Of picture files in a piece: their base64 can be written one behind the other.
#define RN_PICTURE_PIECE_BYTES 3072u
typedef struct rn_drawing_step {
    uint32_t step, steps;
} rn_drawing_step;
#define RN_TOOL_SLICE_BYTES 512 // of arguments in a piece, at most

typedef struct rn_piece {
    uint32_t choice;
    rn_piece_kind kind;
    rn_finish finish; // not NONE: the last piece of its choice
    bool has_token;
    rn_str text;
    rn_sample sample; // where has_token
} rn_piece;

typedef struct rn_usage {
    uint32_t prompt_tokens, completion_tokens, shared_tokens;
} rn_usage;

typedef struct rn_job rn_job;

struct rn_job {
    // Constant after creation.
    rn_request request;
    char id[40];     // "cmpl-...", "chatcmpl-...", "gen-...", "embd-..."
    int64_t created; // seconds since 1970
    uint64_t client; // for fairness: who asks (key or address), hashed
    uint32_t owner;  // shares pages with those of the same owner; set before it enters
    rn_request_memory *memory;
    void (*wake)(void *self); // there is something to read, or the job has ended; any thread, and
    void *self;               // never while the job's lock is held

    // The engine's (between enter and the end).
    rn_tokens *prompts; // (request.prompt_count); exactly as long as they are, of RN_PURPOSE_IO
    uint32_t max_tokens;
    uint64_t entered_ns, started_ns, first_ns;
    uint64_t blocked_ns; // that others waited while its reader was slow, in all
    struct rn_choice
        *choices; // (choice_count = request.prompt_count * request.n), see job_choice.h
    uint32_t choice_count;
    uint32_t embedded;   // of the texts to embed, those that are
    size_t second_at;    // to be ranked: in each, where the query ends ...
    float *scores;       // ... (request.prompt_count), of RN_PURPOSE_IO
    size_t answer_bytes; // of the outbox it will get
    uint8_t place;       // an rn_job_place; under the engine's lock
    rn_job *next;

    // Shared, under `lock`.
    pthread_mutex_t lock;
    rn_job_state state;
    rn_problem problem;
    rn_usage usage;
    char *outbox; // (outbox_bytes)
    size_t outbox_bytes, written;
    bool sleeping; // the reader waits for wake
    bool stalled;  // the writer waits for `drained`
    bool cancelled;
    uint32_t references;
    uint64_t memory_bytes;      // given back at the end
    rn_request_memory *answers; // that the outbox was taken from, or NULL
    void (*drained)(void *);    // the reader has emptied the outbox of one that stalled; any thread
    void *drained_self;
};

// Takes over `request` (also where it fails) and memory_bytes that the caller took from `memory`
// for body and request. RN_NO_MEMORY, RN_OVER_BUDGET. Two references: the caller's and the
// engine's; a job that never enters is released twice.
RN_MUST_USE rn_status rn_job_create(rn_request *request, rn_request_memory *memory,
                                    uint64_t memory_bytes, uint64_t client,
                                    void (*wake)(void *self), void *self, rn_job **out);
void rn_job_release(rn_job *job);

// ---- the connection's side ----------------------------------------------------------------------

rn_job_state rn_job_get_state(rn_job *job);
// The state is FAILED: what to answer.
rn_problem rn_job_get_problem(rn_job *job);
rn_usage rn_job_get_usage(rn_job *job);
// The piece at *cursor (0 at first), which moves on; false: none there yet, or no more. What it
// points to holds until the next read. A stream's pieces are gone once they are read; others may
// be read again from cursor 0 as soon as the job is done, as may those of a stream that keeps them.
bool rn_job_read(rn_job *job, size_t *cursor, rn_piece *out);
// Where there is nothing behind cursor and the job has not ended: calls suspend(self) while nobody
// can write, and returns true; `wake` follows once there is. A stream is also woken when it begins
// to run; for others only the end counts, whatever lies in the outbox.
bool rn_job_sleep(rn_job *job, size_t cursor, void (*suspend)(void *self), void *self);

// ---- the engine's side --------------------------------------------------------------------------

// Memory for the outbox, with its share of `answers`, which must outlive the job. Once. False:
// there is no room now. *out_status: RN_OK, or that of an allocation that failed.
bool rn_job_open_outbox(rn_job *job, rn_request_memory *answers, size_t bytes,
                        rn_status *out_status);
// False: the outbox has no room now.
bool rn_job_put(rn_job *job, const rn_piece *piece);
// Whether `bytes` can be put. Where not, `drained` is called once the reader has taken everything.
bool rn_job_has_room(rn_job *job, size_t bytes);
// What is free of the outbox now; others than the engine can only make it more.
size_t rn_job_free_bytes(rn_job *job);
// Whether the writer waits for `drained`.
bool rn_job_is_stalled(rn_job *job);
// The bytes that a piece takes in an outbox, exactly.
size_t rn_piece_bytes(size_t text_bytes, uint32_t top_count);
void rn_job_set_state(rn_job *job, rn_job_state state, const rn_problem *problem /* or NULL */);
bool rn_job_is_cancelled(rn_job *job);
// Its outbox has room for the longest answer there can be: the writer never waits for the reader.
bool rn_job_keeps_pieces(const rn_job *job);

#endif
