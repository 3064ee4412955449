// embed.h — embeddings of texts, within a memory budget.
//
//     static bool keep(void *user, size_t index, const float *embedding, size_t dimensions) {
//         memcpy((float *)user + index * dimensions, embedding, dimensions * sizeof *embedding);
//         return true;
//     }
//     ...
//     RN_TRY(rn_embed_texts("models/minilm", NULL, texts, count, keep, embeddings));
//
// That opens the model, plans, loads, computes and gives everything back. A program that asks often
// keeps a model and an embedder:
//
//     rn_embedder *embedder;
//     RN_TRY(rn_embedder_create(model, &options, &embedder));
//     RN_TRY(rn_embedder_embed(embedder, texts, count, embeddings)); // (count, dimensions)
//
// Encoders (BERT, MPNet, nomic-bert, ModernBERT) and decoders (Qwen3-Embedding, or any text model)
// alike. As many texts as have room in the plan's rows are computed in one run; the bits of a
// text's embedding depend neither on the texts beside it nor on the budget.
#ifndef RATION_EMBED_H
#define RATION_EMBED_H

#include <ration/model.h>

RN_BEGIN_DECLS

typedef struct rn_embedder rn_embedder;

typedef enum rn_embedding_norm {
    RN_EMBEDDING_NORM_MODEL, // as the model's files say; where they say nothing, L2
    RN_EMBEDDING_NORM_L2,    // to a length of 1
    RN_EMBEDDING_NORM_NONE
} rn_embedding_norm;

// What an embedding is made of. {0}: as the model's files say.
typedef struct rn_embedding_form {
    rn_pooling pooling;
    rn_embedding_norm norm;
    uint32_t dimensions; // the first so many, normed behind that (Matryoshka models); 0: all
    bool refuse_long;    // a text of more tokens than text_tokens is RN_INVALID; else its end is
                         // left out (but for the token that the tokenizer puts there)
} rn_embedding_form;

typedef struct rn_embedder_options {
    rn_embedding_options text;
    rn_embedding_form form;
    rn_plan_options plan; // reserved_bytes: what the caller holds; the embedder adds its own, and
                          // where it is not 0 the tables of plan and session, too
    rn_device_budget device_budget; // where the session's device has its own memory; then `plan`
                                    // says what the host has (rn_plan_options_for)
    rn_session_options session;     // device NULL: the CPU
    bool measure_rates; // where plans for the CPU count with guesses (rn_rates_use): once one fits,
                        // rn_rates_measure_quick, and a plan with what that found
    void (*planned)(void *self, const rn_plan *plan); // once there is a plan, before anything is
    void *planned_self;                               // loaded; may be NULL
    uint64_t reserved[4];                             // zero
} rn_embedder_options;

// The model must outlive it. RN_OVER_BUDGET: rn_last_refusal(); text_tokens are never fewer than
// asked for. RN_INVALID: more dimensions, or longer texts, than the model has.
RN_API RN_MUST_USE rn_status rn_embedder_create(const rn_model *model,
                                                const rn_embedder_options *options,
                                                rn_embedder **out);
// The plan that it would have, which the caller destroys; nothing is loaded.
RN_API RN_MUST_USE rn_status rn_embedder_predict(const rn_model *model,
                                                 const rn_embedder_options *options, rn_plan **out);
RN_API void rn_embedder_destroy(rn_embedder *embedder);
RN_API const rn_plan *rn_embedder_plan(const rn_embedder *embedder);
RN_API uint32_t rn_embedder_dimensions(const rn_embedder *embedder);
RN_API uint32_t rn_embedder_text_tokens(const rn_embedder *embedder);

// Any number of texts, in as many runs as they need; one thread at a time. out (count, dimensions).
// Special tokens that a text spells are text. RN_INVALID: a text without tokens; with refuse_long,
// one that is too long; neither computes anything of the run it would have been in. RN_NOT_FOUND:
// the model has no tokenizer. After a failure the next call begins anew.
RN_API RN_MUST_USE rn_status rn_embedder_embed(rn_embedder *embedder, const rn_str *texts,
                                               size_t count, float *out);
// The same of tokens, with those that the tokenizer puts around a text.
RN_API RN_MUST_USE rn_status rn_embedder_embed_tokens(rn_embedder *embedder, const rn_tokens *texts,
                                                      size_t count, float *out);

// ---- rerankers ----------------------------------------------------------------------------------

// Of a model that ranks (rn_model_info.ranks), an embedder whose options.text.scores is set: how
// well each text answers a query, as the model's classifier says it (a logit: larger is better,
// 1 / (1 + e^-x) is between 0 and 1). out (count). Of pairs that are too long the text's end is
// left out. RN_INVALID: the query leaves no room for a text, or the embedder is for embeddings;
// RN_UNSUPPORTED: the tokenizer does not join texts.
RN_API RN_MUST_USE rn_status rn_embedder_score(rn_embedder *embedder, rn_str query,
                                               const rn_str *texts, size_t count, float *out);
// Tokens with RN_ENCODE_FIRST, and behind them others with RN_ENCODE_SECOND.
typedef struct rn_token_pair {
    rn_tokens tokens;
    size_t second_at; // where the second text begins
} rn_token_pair;
RN_API RN_MUST_USE rn_status rn_embedder_score_pairs(rn_embedder *embedder,
                                                     const rn_token_pair *pairs, size_t count,
                                                     float *out);

typedef struct rn_embedder_facts {
    rn_session_facts session;
    uint64_t runs, texts, tokens; // so far; tokens: that were computed
    uint64_t cut_texts;           // whose ends were left out
    double seconds;               // of all runs
} rn_embedder_facts;
RN_API rn_embedder_facts rn_embedder_get_facts(const rn_embedder *embedder);

// The cosine of the angle between two embeddings, in double precision; 0 where one has no length.
RN_API double rn_embedding_cosine(const float *a, const float *b, size_t dimensions);

// ---- in one call --------------------------------------------------------------------------------

// {0}: on the CPU, as the model's files say, within nine tenths of what is free.
typedef struct rn_embed_options {
    uint64_t budget_bytes;      // as rn_easy_options
    uint64_t host_budget_bytes; // as rn_easy_options
    const char *device;         // targets as ladder.h says; NULL: "cpu"
    uint32_t threads;           // of the CPU; 0: all
    uint32_t text_tokens;       // of a text, at most; 0: the longest text has, or the model's own
    rn_embedding_form form;
    const rn_flag *cancel;    // ends the call with RN_CANCELLED; may be NULL
    rn_plan_summary *plan;    // NULL, or what was planned goes here, before anything is loaded
    rn_embedder_facts *facts; // NULL, or what was done goes here
    uint64_t reserved[4];     // zero
} rn_embed_options;

// An embedding (dimensions), valid during the call. False: enough; the call then ends with RN_OK.
typedef bool (*rn_on_embedding)(void *user, size_t index, const float *embedding,
                                size_t dimensions);

// In the order of the texts. `path` as in rn_model_open; options may be NULL. Failures as above.
RN_API RN_MUST_USE rn_status rn_embed_texts(const char *path, const rn_embed_options *options,
                                            const rn_str *texts, size_t count,
                                            rn_on_embedding on_embedding, void *user);

RN_END_DECLS

#endif
