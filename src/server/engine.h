// engine.h — the one thread that owns the generator: jobs in, pieces out.
//
//     enter ─▶ tokenizing (template, tokens, limits) ─▶ queue ─▶ admitted: pages, places and outbox
//     are promised ─▶ steps of the generator, all jobs together ─▶ pieces
//
// Who waits is served client by client in turn, and of one client in order. A job is admitted when
// all it can ever need is promised, so none that has begun can fail for want of memory.
#ifndef RN_SERVER_ENGINE_H
#define RN_SERVER_ENGINE_H

#include "base/json.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/roster.h"

#include <ration/ladder.h>
#include <ration/serve.h>

typedef enum rn_engine_phase {
    RN_ENGINE_LOADING,
    RN_ENGINE_READY,
    RN_ENGINE_DRAINING, // takes nothing new
    RN_ENGINE_FAILED,   // the last target failed
} rn_engine_phase;
// "loading", "ready", "draining", "failed".
const char *rn_phase_name(rn_engine_phase phase);
// The phase is not READY: 503, why, and when to come back. Returns false. `failure` is read where
// it has failed.
bool rn_phase_refuse(rn_engine_phase phase, const rn_error_info *failure, rn_problem *out);

// Borrows options, memory and metrics. No thread yet. Of several models each has an engine: they
// share the roster (else NULL), and with the `first` (else NULL), which must outlive them, what is
// kept for answers.
RN_MUST_USE rn_status rn_engine_create(const rn_server_options *options, rn_request_memory *memory,
                                       rn_metrics *metrics, rn_roster *roster, rn_engine *first,
                                       rn_engine **out);
// Ends the thread; jobs still there end as RN_JOB_FAILED with 503, but connections have let go of
// theirs before. NULL-safe.
void rn_engine_destroy(rn_engine *engine);
// Its first half: the threads end. Of several, before one of them is destroyed. NULL-safe.
void rn_engine_stop(rn_engine *engine);

// As rn_server_load: model, template, ladder, warm-up; then the thread starts and the phase is
// READY. `own_bytes`: what the server holds beside the plan; they count where such bytes do at all.
RN_MUST_USE rn_status rn_engine_load(rn_engine *engine, const rn_generator_options *generator,
                                     uint64_t own_bytes);

// The same of several: all are opened, the room is divided, and each is loaded once, the first one
// last, so that what does not work is known before anybody asks; it gets 503 then, with the reason.
// RN_OK where one of them works.
RN_MUST_USE rn_status rn_engines_load(rn_engine *const *engines, uint32_t count,
                                      const rn_generator_options *generator, uint64_t own_bytes);
// Where it stands among several.
typedef struct rn_engine_presence {
    bool loaded;
    uint64_t share_bytes; // that its plan may take
    uint64_t loads;       // so far
} rn_engine_presence;
rn_engine_presence rn_engine_get_presence(rn_engine *engine);

// From any thread. False: *out_problem says 429 (queue full, request memory full), 400 (never fits,
// with the numbers; a template that refuses), 503 (not ready); the job is the caller's alone then.
// Long prompts are tokenized by another thread: what is wrong with those ends the job as FAILED.
bool rn_engine_enter(rn_engine *engine, rn_job *job, rn_problem *out_problem);
// The client is gone. Any thread, at any time after enter; `wake` may still be called once.
void rn_engine_cancel(rn_engine *engine, rn_job *job);

// Takes nothing new. True: nothing runs or waits any more. False: after `seconds` the rest was
// ended with 503.
bool rn_engine_drain(rn_engine *engine, double seconds);

// Where it stands; any thread.
typedef struct rn_engine_facts {
    rn_engine_phase phase;
    uint32_t target_index;        // of the ladder, in use
    char target[64];              // "cpu", "cuda:0": really in use; "" before one is
    char program[200];            // what it has compiled; "": it does not compile
    rn_generator_facts generator; // as of the last step
    uint32_t running, waiting;    // jobs
    uint32_t sequences, sequences_max;
    uint32_t context, page_tokens;
    bool has_chat;         // there is a template for conversations
    bool embeds;           // makes embeddings and no text; context is of a text then
    bool ranks;            // ... and these are scores: a reranker
    uint32_t dimensions;   // of an embedding
    uint64_t budget_bytes; // of the process; 0: none
    uint64_t
        device_budget_bytes;  // of the device's own memory; 0: it has none, or as much as is free
    uint64_t predicted_bytes; // of the whole process, by the plan
    uint64_t streamed_bytes;  // of weights, read for every step
    uint32_t expert_layers, experts, expert_slots; // experts on demand; layers 0: there are none
    uint64_t expert_slot_bytes;
    rn_error_info failure; // where phase is FAILED
} rn_engine_facts;
void rn_engine_get_facts(rn_engine *engine, rn_engine_facts *out);
// Of the request memory, what requests really have. The engine keeps half of it for answers, so
// that requests that wait can never keep those that run from theirs; the request memory itself
// counts that half as taken.
uint64_t rn_engine_request_bytes(rn_engine *engine);
// For what is read only and does not change while READY. NULL before loading.
const rn_model *rn_engine_model(rn_engine *engine);
// The same of one that draws pictures; an engine has one of the two.
const rn_diffusion *rn_engine_diffusion(rn_engine *engine);
const rn_tokenizer *rn_engine_tokenizer(rn_engine *engine);
// "models/llama-1b" -> what answers call it.
const char *rn_engine_model_name(rn_engine *engine);
// The attempts so far and the target in use, as an object under `key`.
void rn_engine_ladder_json(rn_engine *engine, rn_json *json, const char *key);
// What each of several ranks has of the model (rn_generator_shares); nothing for one process.
void rn_engine_each_share(rn_engine *engine, void (*each)(void *self, const rn_rank_share *share),
                          void *self);
// The plan in use, as the JSON of `ration plan --json`. RN_NOT_FOUND before there is one.
RN_MUST_USE rn_status rn_engine_plan_json(rn_engine *engine, rn_sink sink);

#endif
