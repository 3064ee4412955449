// model.h — a text model on disk: its configuration, its weights' names and shapes, its tokenizer.
//
//     rn_model *model;
//     RN_TRY(rn_model_open("models/llama-1b", NULL, &model)); // headers only, nothing is loaded
//     rn_recipe recipe;
//     RN_TRY(rn_model_make_recipe(model, &(rn_text_options){.context = 2048}, &recipe));
//     RN_TRY(rn_plan_make(&recipe, caps, &options, &plan));
//     rn_weight_source weights = rn_model_weights(model);
//     RN_TRY(rn_session_create(plan, &weights, NULL, &session));
//
// An architecture that is not known, and a tensor that is missing, superfluous or of another shape,
// is named in the error. An open model does not change.
#ifndef RATION_MODEL_H
#define RATION_MODEL_H

#include <ration/plan.h>
#include <ration/session.h>
#include <ration/tokenizer.h>

RN_BEGIN_DECLS

typedef struct rn_model rn_model;

typedef struct rn_adapter {
    const char *path; // a PEFT folder or safetensors file
    float scale;      // times alpha / rank of the adapter itself; 1: as it was trained
    const char *name; // only for sequences that choose it (rn_sequence_set_adapter); NULL: for all.
                      // Letters, digits, '-', '_', '.'; copied
} rn_adapter;
#define RN_MODEL_ADAPTERS 64 // with a name, at most

typedef struct rn_model_options {
    const rn_adapter *adapters; // (adapter_count)
    size_t adapter_count;
    const char *tokenizer_path; // NULL: what belongs to the model
    bool without_tokenizer;     // for planning only: it is not read
    uint64_t reserved[4];       // zero
} rn_model_options;

// `path`: a Hugging Face folder, a safetensors file in one, a GGUF file; NULL: the model that is
// part of the library. options may be NULL.
RN_API RN_MUST_USE rn_status rn_model_open(const char *path, const rn_model_options *options,
                                           rn_model **out);
RN_API void rn_model_close(rn_model *model);
// Writes the model's files anew with the adapters that it was opened with in their matrices: a
// folder where it is safetensors, a .gguf file where it is one. Matrices keep the numbers of their
// file (sums are f32, then rounded); of quantised blocks f16 is written. Tensor by tensor: it holds
// rn_model_merge_bytes beside the adapters. The files appear whole or not at all.
// RN_INVALID: there are no adapters, `path` is the model's own folder, or a sum is not finite;
// RN_UNSUPPORTED: files that have a matrix under another name or in another form.
RN_API RN_MUST_USE rn_status rn_model_merge(const rn_model *model, const char *path);
RN_API uint64_t rn_model_merge_bytes(const rn_model *model); // at most
// The adapters with a name, from index 0 in the order of the options; NULL behind the last.
RN_API const char *rn_model_adapter_name(const rn_model *model, size_t index);

// How the rows of a text become its embedding.
typedef enum rn_pooling {
    RN_POOLING_MODEL, // as the model's files say
    RN_POOLING_MEAN,  // of all tokens
    RN_POOLING_CLS,   // the first token's
    RN_POOLING_LAST   // the last token's
} rn_pooling;
RN_API const char *rn_pooling_name(rn_pooling pooling); // "mean"

typedef struct rn_embedding_info {
    rn_pooling pooling;      // never MODEL
    bool normalizes;         // to a length of 1
    uint32_t text_tokens;    // of a text, at most
    uint32_t first_position; // the position of a text's first token
} rn_embedding_info;

// How its makers would have it sampled (generation_config.json, GGUF's general.sampling.*); a
// number below 0: they do not say.
typedef struct rn_sampling_advice {
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
} rn_sampling_advice;

typedef struct rn_model_info {
    const char *name;         // for people
    const char *architecture; // "llama", "mistral", "qwen2", "qwen3"
    uint32_t layers, dim, heads, kv_heads, head_dim, ffn, vocab_size;
    uint32_t context; // what it was trained for
    uint32_t window;  // of attention; 0: none
    bool tied_head;
    bool encoder; // for embeddings only: rn_model_make_recipe refuses it
    bool ranks;   // a reranker: its embedding recipe can give scores of pairs of texts instead
    rn_embedding_info embedding; // of any model
    uint64_t parameters, weight_bytes;
    uint64_t state_bytes; // that a sequence keeps beside keys and values, however long; 0: none.
                          // Such a text cannot go back: what is rewound is read again, and drafts
                          // are refused
    char weights[64];     // "f16", "q4_k + q6_k": the dtypes of its matrices, the most bytes first
    rn_sampling_advice sampling;
} rn_model_info;
RN_API const rn_model_info *rn_model_get_info(const rn_model *model);
// NULL where the model has none.
RN_API const rn_tokenizer *rn_model_tokenizer(const rn_model *model);
// The text of its chat template; {0} where it has none.
RN_API rn_str rn_model_chat_template(const rn_model *model);

// What may be chosen for generating text. 0 stands for the default that is named.
typedef struct rn_text_options {
    uint32_t context;     // tokens of a sequence; the smaller of the model's own and 4096
    uint32_t page_tokens; // of a page of the KV cache; 64
    uint32_t sequences;   // at once; 1
    uint32_t pages;       // of the KV cache; sequences * context / page_tokens
    rn_dtype kv_dtype;    // f16 (default), f32; q8_0 rounds
    uint32_t rows;        // of a prefill chunk, at most; 512
    uint32_t logit_rows;  // of how many rows a pass gives logits; 1
    uint32_t prompt_tokens, new_tokens; // of a typical job, for which time is predicted; 128, 128
    bool unquantised_activations; // products with quantised weights do not round their activations
    bool rolling_windows; // layers with a window keep, of each sequence, its last tokens and those
                          // of a step, where that is less than pages. Rows must go upwards then:
                          // what a sequence wrote further back than that is gone
    bool largest;         // the largest of each row's logits is an output, too
    uint64_t reserved[4]; // zero
} rn_text_options;

// A graph over rows (tokens) of any sequences. Inputs i32: "tokens", "sequence", "position" (ROWS),
// "page_table" (sequences, pages of a context), "rows" (logit_rows): which rows' logits are wanted.
// Output "logits" (logit_rows, vocab_size); with `largest` also "largest" (logit_rows), i32: the
// first token with the largest logit, and "peak" (logit_rows): that logit; a NaN is larger than all
// others. States "layers.N.kv". The model must outlive the recipe.
RN_API RN_MUST_USE rn_status rn_model_make_recipe(const rn_model *model,
                                                  const rn_text_options *options, rn_recipe *out);

// What may be chosen for embeddings. 0 stands for the default that is named.
typedef struct rn_embedding_options {
    uint32_t text_tokens; // of a text, at most; the smaller of the model's own and 512
    uint32_t rows;        // of a run, at most, all of its texts together; the larger of 512 and
                          // text_tokens
    bool unquantised_activations; // products with quantised weights do not round their activations
    bool scores;          // of a reranker: how well the second of two texts answers the first
    uint64_t reserved[4]; // zero
} rn_embedding_options;

// A graph over the tokens of texts that lie one behind the other, each with all of its tokens in
// one run; without a KV cache. Inputs i32: "tokens", "position" (ROWS), "span" (ROWS, 2): the rows
// of a row's own text. Output "hidden" (ROWS, dim). Encoders see a text both ways, decoders from
// its beginning. With `scores`, a text being two with what stands between them: the input "type"
// (ROWS), 1 in the second's rows, and "hidden" (ROWS, 1), of which the first row of a text counts;
// RN_UNSUPPORTED: the model is no reranker. The model must outlive the recipe.
RN_API RN_MUST_USE rn_status rn_model_make_embedding_recipe(const rn_model *model,
                                                            const rn_embedding_options *options,
                                                            rn_recipe *out);
// For sessions; the model must outlive them.
RN_API rn_weight_source rn_model_weights(const rn_model *model);

RN_END_DECLS

#endif
