// generate.h — a generator from the inside, for the files that make it up.
//
//     generate.c        life, facts              generate_plan.c   options, plans, the refusal
//     generate_rows.c   a step: who gets rows    generate_step.c   a step: run, draw, keep
//     sequence.c        what they are asked      generate_model.c  of a model on disk
//     speculate.c       drafts                  kv_sides.c        KV pages on two sides
//     pace.c            prompt rows by time
//     rank_part.c       a part of the model    rank_shares.c     ranks plan together
//     rank_steps.c      their steps
//
// A sequence is tokens and how far the KV cache has got with them:
//
//     0            read           prompt_end    taken        count          context
//     |─ in the KV ─|─ to be read ──────|─ taken ─|─ to take ─|─ (a draft) ... |
//
// The row of the last token gives the logits of the next one, so at rest read == count - 1 at most.
// What lies in `tokens` behind count is scratch: a step that fails leaves no trace there.
//
// Where beginnings are shared, the first `known` pages are in the pool's index and never written
// again. They end before the last token that was taken: whatever is forgotten, short of a rewind,
// lies behind them.
//
// Where the model is recurrent, a sequence has states, in the row of its slot, that are those after
// `read` tokens: they begin as zero at position 0 and go forward only. So whatever would lower
// `read` makes it 0, and the text is read again; pages are not shared, and there are no drafts.
//
// Where windows roll, layers with one hold the last `held` tokens below `reach`. A window and a
// step fit in; a rewind further back than that makes `read` 0, too. Pages are not shared either:
// those of a text's beginning would lack these layers.
#ifndef RN_MODEL_GENERATE_H
#define RN_MODEL_GENERATE_H

#include <ration/generate.h>

#include "base/arena.h"
#include "plan/plan.h"
#include "generate/kv_pages_pool.h"
#include "generate/pace.h"
#include "text/sampler.h"

// What a generator must know of a model: how its recipes are made.
typedef struct rn_text_maker {
    const void *self;
    // All fields of `options` are given, but for dtypes and the typical job.
    rn_status (*make)(const void *self, const rn_text_options *options, rn_recipe *out);
    rn_weight_source weights;
    uint32_t vocab_size;
    uint32_t context;  // what the model was trained for
    uint32_t window;   // of its layers that have one; 0: none
    bool recurrent;    // layers keep states (graph/recurrent.h), which cannot go back
    uint32_t adapters; // that sequences choose from; in the graph as "adapter.1", ...
} rn_text_maker;
RN_MUST_USE rn_status rn_generator_create_from(const rn_text_maker *maker,
                                               const rn_generator_options *options,
                                               rn_generator **out);
// The plan alone.
RN_MUST_USE rn_status rn_generator_plan_from(const rn_text_maker *maker,
                                             const rn_generator_options *options, rn_plan **out);

// A sequence's part of the step under way.
typedef struct rn_turn {
    uint32_t rows;    // from `read` on; drafts come on top
    uint32_t drafted; // rows of a draft behind them
    bool draws;       // the last token is among the rows: there will be a new one
    uint32_t logits;  // of which the first is this one of the step
    uint32_t made;    // tokens, known after the step
} rn_turn;

struct rn_sequence {
    rn_generator *generator;
    rn_sequence *next; // in line, or among the free ones
    uint32_t slot;     // its row of the page table
    uint32_t owner, adapter;
    uint32_t *tokens; // (context)
    uint32_t count, read, taken, prompt_end;
    uint32_t reach; // behind the last position that was written since position 0 was
    rn_page_list pages;
    uint32_t known;     // pages that others may find
    uint32_t shared;    // tokens that were found, not read, since the last feed
    uint64_t fed;       // the number of its last feed, of all
    uint64_t fed_step;  // the number of steps then
    bool is_making;     // since the last feed, until a pause or failure
    bool is_waiting;    // the last step had no page for it
    rn_sample *samples; // (draft_most + 1): of the tokens [count - made, count)
    uint32_t made;
    uint32_t draft_length;
    rn_sampler sampler;
    rn_turn turn;
    rn_error_info failure; // status RN_OK: none
};

// A prompt that waits for rows.
typedef struct rn_prompt {
    rn_sequence *sequence;
    uint64_t rank; // the lowest is served first
} rn_prompt;

// The KV cache of layers that are computed on either side (kv_sides.c).
typedef struct rn_kv_sides {
    uint8_t *owners; // (pages): who has what a page holds in these layers
    int32_t *moved;  // (pages): scratch
} rn_kv_sides;

// One of several ranks (rank_shares.c, rank_steps.c).
typedef struct rn_rank_job {
    rn_comm *comm; // NULL: one process
    uint32_t rank, ranks;
    bool heads;                // dealt out, else blocks
    struct rn_rank_part *part; // what of the model is this rank's ...
    rn_text_maker maker;       // ... and its maker
    rn_rank_share *shares;     // (ranks)
    uint8_t *packet;           // a step's inputs on their way
    uint64_t packet_bytes;     // of the largest
    uint8_t *hidden;           // what comes of the rank before, in a run of `rows` at most
    uint64_t hidden_row_bytes; // 0: nothing does
    float *logits;             // (logit_rows, vocab): what comes of the last rank; NULL: nothing
    bool ended;                // the others know that no step will follow
} rn_rank_job;

struct rn_generator {
    rn_text_options text; // nothing left to default
    rn_generator_options options;
    rn_plan *plan;
    rn_session *session;
    rn_arena
        memory; // all that follows, taken before the plan is made and part of its reserved_bytes
    uint32_t vocab_size;
    uint32_t rows;        // of a step, at most
    uint32_t table_pages; // of a context
    uint32_t draft_most;  // 0: no drafting
    rn_pace pace;         // of prompts beside answers
    uint32_t adapters;    // that sequences choose from
    bool recurrent;       // the model has states beside the KV cache
    uint32_t window;      // of layers whose window rolls ...
    uint32_t held;        // ... and how many tokens of a sequence they hold; 0: none rolls

    int32_t *tokens, *sequence, *position; // (rows) each: the step's inputs
    int32_t *wanted;                       // (logit_rows)
    float *chosen;                         // (adapters, rows)
    int32_t *page_table;                   // (sequences, table_pages)
    rn_page_pool pool;
    rn_sampler_scratch *scratch; // (drawers): of samplers that draw at the same time
    uint32_t drawers;

    rn_prompt *prompts;          // (sequences): a heap, in a step
    const rn_sequence **readers; // (reader_count): who reads the page with this hash in this step
    uint32_t reader_count;       // a power of two; 0: beginnings are not shared

    rn_kv_sides sides;
    rn_rank_job job;

    rn_sequence *line; // those in use; who is in front is served first
    rn_sequence *free;
    uint64_t feeds;
    bool failed; // the session must be reset
    rn_generator_facts facts;
};

// Fills in defaults and checks what is given.
RN_MUST_USE rn_status rn_generator_resolve(const rn_text_maker *maker, rn_generator *generator);
// The plan, and whether to draft; with the generator's own memory beside it.
RN_MUST_USE rn_status rn_generator_make_plan(const rn_text_maker *maker, rn_generator *generator);

// What the plan is made for.
const rn_device_caps *rn_generator_caps(const rn_generator *generator);
// Of a page of the KV cache, in all layers that do not roll.
uint64_t rn_generator_page_bytes(const rn_graph *graph);
// Tokens of a sequence that layers with a rolling window hold, in the plan; 0: none rolls.
uint32_t rn_generator_held(const rn_generator *generator);

// Fills in all turns of the next step, with pages for them, and returns its rows. 0: no page is
// left for any. *out_has_prompt: some of the rows are of prompts.
uint32_t rn_generator_share_rows(rn_generator *generator, bool *out_has_prompt);

// ---- hybrid execution (kv_sides.c) --------------------------------------------------------------

// Whether the CPU may compute layers of short steps for a device of its own memory.
bool rn_generator_may_be_hybrid(const rn_generator *generator);
// Its part of the generator's own memory.
RN_MUST_USE rn_status rn_kv_sides_take_memory(rn_generator *generator);
// Before a step that begins on this side: brings what it reads of the other's pages.
RN_MUST_USE rn_status rn_kv_sides_sync(rn_generator *generator, bool on_host);
// After it.
void rn_kv_sides_wrote(rn_generator *generator, bool on_host);

// ---- several ranks (rank_shares.c, rank_steps.c) ------------------------------------------------

// Whether the options are of one of several ranks.
bool rn_generator_has_ranks(const rn_generator_options *options);
// A generator with its memory, without a plan.
RN_MUST_USE rn_status rn_generator_prepare(const rn_text_maker *maker,
                                           const rn_generator_options *options, rn_generator **out);
// As rn_generator_predict_shares.
RN_MUST_USE rn_status rn_ranks_predict(const rn_text_maker *maker,
                                       const rn_generator_options *options, uint32_t ranks,
                                       rn_rank_share *out /* (ranks) */);
// What all ranks have in common: rank 0's text options; RN_INVALID names a rank with another model.
RN_MUST_USE rn_status rn_ranks_agree_options(const rn_text_maker *maker,
                                             rn_generator_options *options);
// This rank's part of the model, once the options are resolved, and memory for its steps.
RN_MUST_USE rn_status rn_ranks_open(const rn_text_maker *maker, rn_generator *generator);
void rn_ranks_close(rn_generator *generator);
// All ranks hear what each has, and RN_OVER_BUDGET where one was refused; `planned` is this rank's
// plan, or its refusal with the thread's error.
RN_MUST_USE rn_status rn_ranks_agree_plans(rn_generator *generator, rn_status planned);

// Rank 0: a run of all ranks with the inputs that the generator has. Of the first `logits` wanted
// rows *out_logits are there; 0: nobody waits for them.
RN_MUST_USE rn_status rn_ranks_run(rn_generator *generator, uint32_t rows, uint32_t logits,
                                   const float **out_logits);
// The inputs that the graph of this process has.
RN_MUST_USE rn_status rn_generator_set_inputs(rn_generator *generator, uint32_t rows);

// ---- sequences ----------------------------------------------------------------------------------

// Whether a step has something to do for it.
bool rn_sequence_is_busy(const rn_sequence *sequence);
// As if no more than `read` tokens had been read.
void rn_sequence_go_back(rn_sequence *sequence, uint32_t read);
// Gives back the pages that hold nothing of [0, read).
void rn_sequence_trim(rn_sequence *sequence);
// Makes the pages that are full of tokens below `end`, all read, known to the others.
void rn_sequence_publish(rn_sequence *sequence, uint32_t end);
// Goes on behind the known pages that begin with what it would read next.
void rn_sequence_adopt(rn_sequence *sequence);
// Puts it behind all others.
void rn_sequence_queue(rn_sequence *sequence);

#endif
