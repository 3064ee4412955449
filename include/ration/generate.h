// generate.h — text from a model, within a plan.
//
//     rn_generator *generator;
//     RN_TRY(rn_generator_create(model, &options, &generator));
//     rn_sequence *text;
//     RN_TRY(rn_sequence_create(generator, &sampling, &text));
//     RN_TRY(rn_sequence_feed(text, prompt.ids, prompt.count));
//     while (!done) {
//         RN_TRY(rn_generator_step(generator)); // one step over the weights
//         while (rn_sequence_take(text, &sample)) ... // what it brought: none, one or several
//     }
//
// A generator holds a plan, its session and one pool of KV pages; any number of sequences share
// them. What a sequence says depends neither on the others nor on the budget. One thread at a time.
//
// Where weights do not fit a device with its own memory, the CPU may compute the first layers of
// steps with few rows, if the plan is then faster: it says so. The CPU rounds otherwise than the
// device does, so there the text depends on others and on the budget as far as rounding goes;
// plan.exact forbids it.
#ifndef RATION_GENERATE_H
#define RATION_GENERATE_H

#include <ration/comm.h>
#include <ration/model.h>
#include <ration/sampler.h>

RN_BEGIN_DECLS

typedef struct rn_generator rn_generator;
typedef struct rn_sequence rn_sequence;

typedef enum rn_speculation {
    RN_SPECULATE_AUTO, // where every step streams weights
    RN_SPECULATE_NEVER,
    RN_SPECULATE_ALWAYS
} rn_speculation;

// What of a model several ranks divide among them.
typedef enum rn_split {
    RN_SPLIT_AUTO,   // what is predicted to be faster, of what fits
    RN_SPLIT_LAYERS, // consecutive layers each: a pipeline
    RN_SPLIT_HEADS   // of every layer as many heads, and rows of its weights: tensor parallel
} rn_split;

// What one of several ranks has of a model, by its plan.
typedef struct rn_rank_share {
    uint32_t rank;
    rn_split split;   // HEADS: all blocks, of each its part
    rn_status status; // of its plan: RN_OK, or RN_OVER_BUDGET
    uint32_t first_block, end_block;
    char first_name[32], last_name[32]; // of these blocks: "embedding", "layer 10"
    char device[32];
    uint64_t budget_bytes;          // as given; RN_NO_LIMIT: none
    uint64_t planned_bytes;         // where the plan was refused: the least that one takes
    uint64_t smallest_budget_bytes; // that works
    uint64_t purpose_bytes[RN_PURPOSE_COUNT]; // of planned_bytes; 0 where it was refused
    uint64_t streamed_bytes;                  // of weights, in each run
    uint32_t rows, pages;
    double prefill_seconds, decode_seconds; // of its part: the typical prompt; a token
} rn_rank_share;

typedef struct rn_generator_options {
    rn_text_options text;
    rn_plan_options plan; // reserved_bytes: what the caller holds; the generator adds its own,
                          // and where it is not 0 the tables of plan and session, too
    rn_device_budget device_budget; // where the session's device has its own memory; then `plan`
                                    // says what the host has (rn_plan_options_for)
    rn_session_options session;     // device NULL: the CPU
    rn_speculation speculation;     // looks for the last tokens in the text so far and checks what
                                    // followed, several tokens a step; the output does not change
    uint32_t speculated_tokens;     // checked a step, at most, by all sequences; 0: 8, at most 64
    uint32_t least_pages; // where text.pages do not fit, or only by streaming weights that would
                          // else be resident: as many as do, but not fewer. 0: text.pages or none
    uint32_t prompt_rows; // of a step in which others make tokens, at most; 0: no such limit
    uint32_t max_gap_ms;  // that such a step is to take, at most: its prompt rows are as many as
                          // measured times allow, at least 1. 0: no such limit
    bool prefix_caching;  // pages of equal beginnings are held once, and kept while nobody else
                          // needs their room; the output does not change. Windows do not roll then
                          // (rn_text_options). Without effect where the model keeps states
                          // (rn_model_info.state_bytes)
    bool grow_kv; // one sequence on the host: pages of the KV cache are planned, but charged and
                  // resident only once the text reaches them; where least_pages holds it, the
                  // context is as many tokens as have pages. Whole while a profile is recorded
    bool measure_rates; // where plans for the CPU count with drafts (rn_rates_use): once one fits,
                        // rn_rates_measure_quick, and a plan with what that found
    void (*planned)(void *self, const rn_plan *plan); // once there is a plan, before anything is
    void *planned_self; // loaded; again where the device had no room for it. May be NULL
    // Several ranks, which all create a generator of the same model with the same options; borrowed
    // while it lives. Rank 0's `text` counts. NULL, or of one rank: this process alone. See below.
    rn_comm *comm;
    rn_split split; // rank 0's counts
    // With several ranks: what each of them has (`count` is rn_comm_size), before anything is
    // loaded or refused; on all ranks, with planned_self. May be NULL.
    void (*shared)(void *self, const rn_rank_share *shares, uint32_t count);
    uint64_t reserved[4]; // zero
} rn_generator_options;

// RN_OVER_BUDGET: rn_last_refusal(), whose hint names the largest context that would fit.
RN_API RN_MUST_USE rn_status rn_generator_create(const rn_model *model,
                                                 const rn_generator_options *options,
                                                 rn_generator **out);
// The plan that it would have, which the caller destroys; nothing is loaded. RN_OVER_BUDGET: as
// above.
RN_API RN_MUST_USE rn_status rn_generator_predict(const rn_model *model,
                                                  const rn_generator_options *options,
                                                  rn_plan **out);
RN_API void rn_generator_destroy(rn_generator *generator);
// What a device that compiles graphs has compiled, for people: "4 programs for 1, 8, 64, 512 rows
// ..."; "" on any other.
RN_API const char *rn_generator_program(const rn_generator *generator);
RN_API const rn_plan *rn_generator_plan(const rn_generator *generator);
// Tokens that a sequence may have.
RN_API size_t rn_generator_context(const rn_generator *generator);

// The sequences with something to do (prompt not yet read, or a token to be made) share one run of
// the session: a row for each that makes tokens, and prompts in chunks, the shortest first and each
// the sooner the longer it has waited. Where rows are too few for all, they take turns. RN_OK with
// nothing to do does nothing.
//
// A sequence that needs a page of the KV cache when none is left beside those that are promised
// waits (rn_sequence_is_waiting) while the others go on. RN_OVER_BUDGET: all that have something to
// do are waiting; it goes on once a sequence is ended or rewound, or its promise taken back.
//
// Where a step fails (a read error, cancelling), it tells the session's error and the sequences are
// as before; calling it again is trying again. What fails for one sequence only (logits that are no
// numbers, no token left to draw) ends that one: see rn_sequence_failure.
RN_API RN_MUST_USE rn_status rn_generator_step(rn_generator *generator);
RN_API bool rn_generator_has_work(const rn_generator *generator);

typedef struct rn_generator_facts {
    rn_session_facts session;
    uint64_t steps, prefill_steps; // all; of them those with prompt rows
    uint64_t prompt_tokens, new_tokens;
    uint64_t decoded_tokens; // of new_tokens, those that steps without prompt rows brought
    double prefill_seconds, new_seconds; // of steps with prompt rows, and of the others
    uint64_t speculated_tokens, accepted_tokens;
    uint64_t kv_pages, kv_pages_peak, kv_page_bytes; // taken now, at most so far; of each
    uint64_t kv_pages_total, kv_pages_kept; // of the plan; not taken, but kept for equal beginnings
    uint64_t hybrid_steps;  // of which the CPU computed the first layers, a device the others
    uint64_t moved_pages;   // of these layers' KV cache, between host and device
    uint64_t shared_tokens; // of prompts, that were not read because their pages were there
} rn_generator_facts;
RN_API rn_generator_facts rn_generator_get_facts(const rn_generator *generator);

// sampling NULL: greedy; what it borrows is borrowed while the sequence lives. RN_INVALID: there
// are as many sequences as the options said. Destroying the generator destroys its sequences.
RN_API RN_MUST_USE rn_status rn_sequence_create(rn_generator *generator,
                                                const rn_sampling *sampling, rn_sequence **out);
RN_API void rn_sequence_destroy(rn_sequence *sequence);
// Whose it is: with prefix_caching, pages are shared by sequences of the same owner only. 0 unless
// set; below 2^24. Before anything is fed.
RN_API void rn_sequence_set_owner(rn_sequence *sequence, uint32_t owner);
// Which of the model's named adapters it speaks with: 0 none, n the one that rn_model_adapter_name
// calls number n - 1. Sequences of one step may differ. Pages are shared by those that chose alike.
// Before anything is fed. RN_INVALID: there is no such adapter.
RN_API RN_MUST_USE rn_status rn_sequence_set_adapter(rn_sequence *sequence, uint32_t adapter);
// Appends to the text so far: what was fed and what was taken; tokens that were made but not taken
// are forgotten. The next token is made once all of it has been read. A count of 0 goes on from
// where a pause or rewind left it. RN_INVALID with both numbers: it would be longer than the
// context, or a token is not in the vocabulary.
RN_API RN_MUST_USE rn_status rn_sequence_feed(rn_sequence *sequence, const uint32_t *ids,
                                              size_t count);
// The next token that was made, in order; false: none yet. Making goes on, once all that was made
// is taken, until rn_sequence_pause or the context is full (rn_sequence_is_full).
RN_API bool rn_sequence_take(rn_sequence *sequence, rn_sample *out);
// Makes no more tokens until the next feed; tokens that were made but not taken are forgotten, as
// if they had never been.
RN_API void rn_sequence_pause(rn_sequence *sequence);
RN_API bool rn_sequence_is_full(const rn_sequence *sequence);
// The last step had no page for it.
RN_API bool rn_sequence_is_waiting(const rn_sequence *sequence);
// Promises it the pages for so many tokens in all, those fed included: while it is not longer, it
// never waits for one. Called after a feed, and again to change the promise (0 takes it back).
// False, and nothing changes: there are not enough now. Pages that it shares are promised once. A
// rewind takes the promise back.
RN_API bool rn_sequence_reserve(rn_sequence *sequence, size_t tokens);
// Tokens that it did not have to read since the last feed, because their pages were there.
RN_API size_t rn_sequence_shared(const rn_sequence *sequence);
// Why it makes no more tokens: NULL, or the error of its failure, valid until the next feed.
RN_API const rn_error_info *rn_sequence_failure(const rn_sequence *sequence);
// All tokens so far: those fed and those taken. Valid until the next call for this sequence.
RN_API const uint32_t *rn_sequence_tokens(const rn_sequence *sequence, size_t *out_count);
// Pauses, and forgets all tokens from `count` on; their pages are released.
RN_API void rn_sequence_rewind(rn_sequence *sequence, size_t count);

// ---- several ranks ------------------------------------------------------------------------------
//
// A model is cut into consecutive blocks, one part a rank, by bytes and by what each rank's budget
// has room for; or each rank has a part of the heads and of the weights' rows of every layer, and
// parts of what they make are gathered by all (RN_SPLIT_HEADS: on CPUs). Each rank plans its part
// within its own budget, reads its own weights and holds its own KV pages. The text is the same,
// bit for bit, as that of one process, on CPUs: no sum is over ranks. Rank 0 has the sequences:
//
//     RN_TRY(rn_generator_create(model, &options, &generator)); // all ranks
//     if (rn_comm_rank(comm) > 0) s = rn_generator_follow(generator);
//     else ... // sequences and steps, as ever
//     rn_generator_destroy(generator);
//
// Where one rank's plan does not fit its budget, all of them return RN_OVER_BUDGET before anything
// is loaded. A step that fails on one rank ends the job: the error names the rank, and nothing can
// be tried again. No drafts, no hybrid execution; the cache does not grow; one step at a time can
// not be cancelled, only what is between them.

// Of ranks above 0: takes part in all steps, until rank 0 destroys its generator.
RN_API RN_MUST_USE rn_status rn_generator_follow(rn_generator *generator);
// Of rank 0, while there is nothing to do: whether the others are there. RN_OK for one process.
RN_API RN_MUST_USE rn_status rn_generator_look(rn_generator *generator);
// (count), as rn_generator_options.shared had them; NULL, and 0, for one process.
RN_API const rn_rank_share *rn_generator_shares(const rn_generator *generator, uint32_t *out_count);
// On paper: what each of so many ranks like this process would have. Not refused where one of them
// does not fit: its share says so. RN_INVALID: more ranks than layers.
RN_API RN_MUST_USE rn_status rn_generator_predict_shares(const rn_model *model,
                                                         const rn_generator_options *options,
                                                         uint32_t ranks,
                                                         rn_rank_share *out /* (ranks) */);

// ---- stop strings -------------------------------------------------------------------------------

// Text goes through as it comes, but for what may be the beginning of a stop string.
typedef struct rn_stopper rn_stopper;
// Each of 1 to 256 bytes; they are copied. The first to be complete counts.
RN_API RN_MUST_USE rn_status rn_stopper_create(const rn_str *stops, size_t count, rn_stopper **out);
RN_API void rn_stopper_destroy(rn_stopper *stopper);
// Writes what is certain not to belong to a stop string; *out_stopped: one was found, and nothing
// from it on is ever written.
RN_API RN_MUST_USE rn_status rn_stopper_put(rn_stopper *stopper, rn_str text, rn_sink sink,
                                            bool *out_stopped);
// What was held back, at the end of a text without a stop.
RN_API RN_MUST_USE rn_status rn_stopper_flush(rn_stopper *stopper, rn_sink sink);

// ---- one answer ---------------------------------------------------------------------------------

typedef enum rn_end_reason {
    RN_END_TOKEN,    // the model ended its text
    RN_END_STOP,     // a stop string
    RN_END_LIMIT,    // new_tokens
    RN_END_CONTEXT,  // the context is full
    RN_END_CANCELLED // by `cancel`, or the session's
} rn_end_reason;
RN_API const char *rn_end_reason_name(rn_end_reason reason); // "end token", "stop string", ...

typedef struct rn_answer_options {
    uint64_t new_tokens; // at most; 0 makes none
    const rn_str *stops; // (stop_count), borrowed for the call
    size_t stop_count;
    const rn_flag *cancel; // seen between steps; may be NULL
    // Each token of the text as it comes, before its text; may be NULL.
    void (*on_token)(void *self, const rn_sample *sample);
    void *self;
    uint64_t reserved[4]; // zero
} rn_answer_options;

typedef struct rn_answer {
    rn_end_reason reason;
    uint64_t tokens; // in the text; the end token is not among them
} rn_answer;

// Feeds the tokens, makes more until one of the reasons, and writes their text to the sink as it
// becomes certain: whole UTF-8, without what belongs to a stop string. The sequence is paused then.
// *out is set where it fails, too. RN_CANCELLED from the sink ends the answer as `cancel` does.
// Other sequences of the generator go on meanwhile.
RN_API RN_MUST_USE rn_status rn_sequence_answer(rn_sequence *sequence,
                                                const rn_tokenizer *tokenizer, const uint32_t *ids,
                                                size_t count, const rn_answer_options *options,
                                                rn_sink sink, rn_answer *out);

RN_END_DECLS

#endif
