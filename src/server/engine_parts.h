// engine_parts.h — an engine from the inside, for the files that make it up.
//
//     engine.c        life, phases, facts       engine_enter.c   jobs come in, are cancelled, wait
//     engine_load.c   the model, the ladder     engine_warm.c    a target's first passes
//     engine_run.c    the thread                engine_admit.c   a job begins, and ends
//     engine_take.c   tokens become pieces      engine_embed.c   texts become embeddings
//     engine_draw.c   texts become pictures
//
// The generator, and the jobs that run, are the thread's own. What others see is under `lock`,
// which is never held while a job's `wake` may be called.
#ifndef RN_SERVER_ENGINE_PARTS_H
#define RN_SERVER_ENGINE_PARTS_H

#include "base/buffer.h"
#include "server/engine.h"
#include "server/tokenizing.h"
#include "server/job_choice.h"
#include "server/job_queue.h"

typedef struct rn_engine_embedding rn_engine_embedding; // engine_embed.c

struct rn_engine {
    const rn_server_options *options;
    rn_request_memory *memory;
    rn_metrics *metrics;
    rn_request_memory *answers; // half of the request memory, taken for good: what waits can never
                                // keep what runs from its outbox; all engines' together
    rn_request_memory own_answers; // ... which the first of them has
    rn_roster *roster;             // NULL: the only model, which stays loaded
    uint32_t roster_index;

    // From load to destroy.
    rn_model *model;
    rn_chat_template *form;  // NULL: there is none
    rn_diffusion *diffusion; // instead of `model`: one that draws pictures
    rn_ladder *ladder;
    rn_generator_options generator_options;
    uint64_t reserved_bytes;     // of its plan, as the caller gave it
    uint64_t own_bytes;          // further bytes beside it: the server's, the model's description
    bool has_budget;             // generator_options has that of the target in use
    uint64_t unaccounted_bytes;  // of the process, not on the ledger, before a device was opened
    uint64_t old_soft, old_hard; // the host's limits before
    bool limited;                // ... which were changed

    // The thread's own (before it runs: the loading thread's).
    rn_generator *generator;
    rn_engine_embedding *embedding; // instead, where the model makes embeddings
    rn_painter *painter;            // of pictures, for the drawing that was planned last
    bool has_own_memory;            // the device in use
    rn_flag cut_drawing;            // ends the one under way
    rn_job *running;                // linked through next
    rn_job *in_hand;                // whose turn it is, until it fits
    uint32_t running_count, sequences;
    rn_buffer text; // of the piece being made; as large as one can be
    uint64_t swept_ns;
    rn_flag cut; // ends the step under way

    pthread_t thread, intake_thread;
    bool has_threads;

    pthread_mutex_t lock;
    pthread_cond_t work, intake_work, idle;
    rn_engine_phase phase;
    char name[128]; // of the model
    bool loaded;    // model, form and tokenizer may be looked at
    bool draining;  // also while a target is loaded
    bool ending;    // the threads are to end
    bool news;      // the thread has something to look at
    rn_job_queue queue;
    rn_job *intake_first, *intake_last; // linked through next
    uint32_t waiting;                   // jobs before they are admitted
    double job_seconds;                 // what one takes, lately
    rn_tokenizing tokenizing;
    rn_engine_facts facts;

    pthread_mutex_t plan_lock; // held while somebody looks at the generator's plan
};

// ---- engine.c -----------------------------------------------------------------------------------

// The thread has something to look at.
void rn_engine_tell(rn_engine *engine);
void rn_engine_set_phase(rn_engine *engine, rn_engine_phase phase);
// What the thread knows becomes what others see.
void rn_engine_publish(rn_engine *engine);
// "The server is shutting down."
rn_problem rn_engine_closing(void);

// ---- engine_enter.c -----------------------------------------------------------------------------

void *rn_engine_intake_main(void *engine);
// Ends a job that never ran: FAILED or CANCELLED. Not under the lock.
void rn_engine_turn_away(rn_engine *engine, rn_job *job, const rn_problem *problem);
// All that wait; also those that are being read, where `everything`.
void rn_engine_turn_all_away(rn_engine *engine, const rn_problem *problem, bool everything);

// ---- engine_load.c, engine_warm.c ---------------------------------------------------------------

// Once room was promised: loads it again; and gives everything back that can be brought again.
RN_MUST_USE rn_status rn_engine_come(rn_engine *engine);
void rn_engine_go(rn_engine *engine);
bool rn_engine_is_loaded(const rn_engine *engine);
// The target in use has failed: goes on. Any other status than RN_OK: there is none left.
RN_MUST_USE rn_status rn_engine_fall(rn_engine *engine, const rn_error_info *error);
// The host's limits are what they were before.
void rn_engine_lift_limit(rn_engine *engine);
// A token; then a chunk of prompt and a batch of all sequences.
RN_MUST_USE rn_status rn_engine_try(rn_engine *engine);
RN_MUST_USE rn_status rn_engine_warm(rn_engine *engine);

// ---- engine_run.c, engine_admit.c, engine_take.c ------------------------------------------------

void *rn_engine_main(void *engine);

typedef enum rn_admission {
    RN_ADMITTED,
    RN_NOT_NOW,
    RN_NEVER // *out_problem
} rn_admission;
// Sequences, pages and outbox for all of its choices, or nothing.
rn_admission rn_engine_admit(rn_engine *engine, rn_job *job, rn_problem *out_problem);
// Takes it off the list of those that run; it has ended as `state` says.
void rn_engine_end(rn_engine *engine, rn_job *job, rn_job_state state, const rn_problem *problem);
void rn_engine_end_all(rn_engine *engine, const rn_problem *problem);

// Ends whoever waits or reads too slowly; looks now and then, however often it is called.
void rn_engine_sweep(rn_engine *engine);

// ---- engine_draw.c ------------------------------------------------------------------------------

RN_MUST_USE rn_status rn_engine_open_images(rn_engine *engine);
// A target is to draw: plans, and takes a step.
RN_MUST_USE rn_status rn_engine_try_drawing(rn_engine *engine);
// The plan of the last drawing, and its memory, are gone; then the model, too.
void rn_engine_leave_painter(rn_engine *engine);
void rn_engine_leave_images(rn_engine *engine);
// As rn_tokenizing_read: what a drawing will need, and whether it can ever have that.
bool rn_engine_read_drawing(rn_engine *engine, rn_job *job, rn_problem *out_problem);
// As rn_engine_admit.
rn_admission rn_engine_admit_drawing(rn_engine *engine, rn_job *job, rn_problem *out_problem);
// The job that runs, to its end. Any other status than RN_OK: the target has failed.
RN_MUST_USE rn_status rn_engine_draw(rn_engine *engine);

// ---- engine_take.c ------------------------------------------------------------------------------

// Tokens of all jobs become pieces; jobs that have their last one end.
void rn_engine_take(rn_engine *engine);

// ---- engine_embed.c -----------------------------------------------------------------------------

// Whether the model is for embeddings: as its files, or the server's options, say.
bool rn_engine_is_for_embeddings(const rn_engine *engine);
// What does not depend on the plan; freed by the engine's end. Safe where there is none.
RN_MUST_USE rn_status rn_engine_embedding_open(rn_engine *engine);
void rn_engine_embedding_close(rn_engine *engine);
// The plan and the weights, by generator_options; and without them again.
RN_MUST_USE rn_status rn_engine_embedding_load(rn_engine *engine);
void rn_engine_embedding_unload(rn_engine *engine);
// The plan that it would have by `options`, to be destroyed.
RN_MUST_USE rn_status rn_engine_embedding_predict(const rn_engine *engine,
                                                  const rn_generator_options *options,
                                                  rn_plan **out);
const rn_plan *rn_engine_embedding_plan(const rn_engine *engine); // NULL: none
uint32_t rn_engine_embedding_tokens(const rn_engine *engine);     // of a text, at most
// One token; `whole`: as many as a text may have.
RN_MUST_USE rn_status rn_engine_embedding_try(rn_engine *engine, bool whole);
// A run with texts of all jobs; jobs that have their last embedding end.
RN_MUST_USE rn_status rn_engine_embedding_step(rn_engine *engine);
// Of whichever there is; NULL: none.
const rn_plan *rn_engine_plan(const rn_engine *engine);

#endif
