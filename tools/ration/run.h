// run.h — what the files of `ration run` share: a model that speaks, and what is said of it.
#ifndef RATION_TOOL_RUN_H
#define RATION_TOOL_RUN_H

#include "command.h"

#include <stdio.h>

enum { MAX_ADAPTERS = 8, MAX_BIASES = 64, MAX_STOPS = 64 };

// A text that grows: {0} is empty; `data` ends with a NUL. Its memory is on the ledger.
typedef struct text_buffer {
    char *data;
    size_t bytes, capacity;
} text_buffer;
enum { TEXT_MAX_BYTES = 64 << 20 };
void free_text(text_buffer *text);
// So many bytes can be appended to an empty text without asking for memory.
rn_status reserve_text(text_buffer *text, size_t bytes);
// As a sink's `write`: self is a text_buffer.
rn_status append_text(void *self, const char *piece, size_t bytes);
// A whole file; "-" is standard input.
rn_status read_text(const char *path, text_buffer *out);
// A line without its end. *out_more is false at the end of the input; then there is none.
rn_status read_line(FILE *file, text_buffer *out, bool *out_more);
// What run, and so plan, sets aside for texts that are not there yet: a prompt, an answer, a chat.
// Of it, `held_bytes` are taken already.
uint64_t text_room(const rn_model *model, const rn_text_options *text, uint64_t held_bytes);

// Patterns of weights' names, with commas between them.
typedef struct constraint_texts {
    char keep[4096], offload[4096];
    rn_expert_hits expert_hits;
} constraint_texts;

typedef struct runner {
    const invocation *in;
    rn_comm *comm;     // of several ranks; NULL: one process
    uint32_t parallel; // compile: texts at once of the server that it is for; 0: as ration run
    rn_model *model;
    const rn_tokenizer *tokenizer;
    rn_adapter adapters[MAX_ADAPTERS];
    char adapter_paths[MAX_ADAPTERS][4096];
    rn_logit_bias biases[MAX_BIASES];
    rn_sampling sampling;
    text_buffer prompt; // and its tokens; empty in a chat
    rn_tokens tokens;
    text_buffer said;  // the answer, where it is told as JSON
    rn_json json;      // where that goes
    bool chats;        // else there is one prompt
    bool asks;         // that is a question, told by the chat template; else a text to go on from
    bool grows;        // its KV cache, page by page
    bool advised;      // the model's files say how to sample
    bool tells_tokens; // each token as an object, while there is an array for them
    host_budget budget;
    rn_ladder *ladder;
    rn_device *device; // of the target in use
    constraint_texts constraints;
    rn_rates_source rates;
    rn_generator_options options;
    rn_generator *generator;
    rn_sequence *sequence;
    uint64_t loaded_bytes;                      // read before the first pass
    double opened_seconds, first_token_seconds; // since the start
} runner;

// What the options say of the text, for run and plan alike.
rn_status read_text_options(const invocation *in, rn_text_options *out);
// The same of embeddings; whether they are normed is the caller's to read.
rn_status read_embedding_form(const invocation *in, rn_embedding_form *out);
rn_speculation read_speculation(const invocation *in);
rn_split read_split(const invocation *in);
// What shall stay on the device; `out` borrows from `texts`.
rn_status read_constraints(const invocation *in, constraint_texts *texts, rn_plan_options *out);
// The same, and moves of a training step that are asked for, whatever the budget.
rn_status read_moves(const invocation *in, constraint_texts *texts, rn_plan_options *out);
// --experts and --route-trace of text models; `out` borrows from `texts`.
rn_status read_experts(const invocation *in, constraint_texts *texts, rn_plan_options *out);
// "path" or "path:scale".
// --vae, --text-encoder, --tokenizer, --lora and so on of an image model.
rn_status read_image_parts(const invocation *in, rn_diffusion_adapter *adapters,
                           char (*paths)[4096], rn_diffusion_options *out);
rn_status read_adapters(const invocation *in, rn_adapter *adapters, char (*paths)[4096],
                        size_t *out_count);

// The prompt behind the model, or --prompt; "": neither.
const char *given_prompt(const invocation *in);
// The model, and a generator on the first target that works.
rn_status open_runner_model(runner *r);
rn_status open_runner_generator(runner *r);
// RN_INTERNAL: not all that the device gave came back.
rn_status close_runner(runner *r);

// How messages are written for the model (run_form.c): its chat template, or --template.
bool has_form(const runner *r);
// RN_NOT_FOUND: there is none.
rn_status open_form(const runner *r, rn_chat_template **out);
// A conversation of one question, behind --system where that is given, as tokens.
rn_status encode_question(const runner *r, rn_str question, rn_tokens *out);

// Feeds the tokens and makes up to --tokens more.
rn_status speak(runner *r, const uint32_t *ids, size_t count, rn_sink sink, rn_answer *out);

rn_status run_chat(runner *r);

// An array of a .npy file; `file` holds its bytes, aligned, and is to be freed.
typedef struct npy_array {
    text_buffer file;
    rn_dtype dtype;
    rn_shape shape;
    uint64_t bytes;
} npy_array;
rn_status read_npy(const char *path, npy_array *out);
// "512", or "768x512": width, then height, 1 to 99999.
rn_status read_sides(const char *text, uint32_t *out_width, uint32_t *out_height);
rn_status write_npy(const char *path, rn_dtype dtype, rn_shape shape, const void *data,
                    uint64_t bytes);

// A .png file as an input of a graph: the --resize, --mean, --std, --scale and --bgr of the
// command.
bool is_picture(const char *path);
// `out` gets the input's dtype, shape (one row) and values.
rn_status read_picture(const invocation *in, const char *path, const rn_value_info *input,
                       npy_array *out);

// --labels: the names of classes, and the best of an output's last axis.
typedef struct class_labels {
    text_buffer file;
    size_t count;
} class_labels;
rn_status read_labels(const invocation *in, class_labels *out);
rn_str label_at(const class_labels *labels, size_t index);
enum { MOST_TOP = 100 };
typedef struct class_score {
    uint64_t index;
    double chance;
} class_score;
// Of `count` values, best first; chances are a softmax of them where they are not such already.
size_t find_top(const double *values, uint64_t count, size_t most, class_score *out);

// Models that are not text: tensors in, tensors out (run_graph.c).
bool is_onnx(const char *path);
bool is_graph_model(const char *model);
rn_status run_graph(const invocation *in);
// What a run holds beside the plan whatever its inputs are: tables, and one output at a time.
uint64_t graph_room(const rn_graph *graph, uint64_t rows);
// --dim NAME=SIZE; the names lie in `names`.
rn_status read_dims(const invocation *in, rn_onnx_dim *dims, char (*names)[128], size_t room,
                    size_t *out_count);

// rn_generator_options.shared of rank 0: the table, where a rank is over its budget. self: a
// runner.
void hear_shares(void *self, const rn_rank_share *shares, uint32_t count);

// Plan against fact.
void print_report(const runner *r);
void write_report(const runner *r, rn_json *json);
// One line before the first token, and why.
void print_opening(const runner *r);

// plan_ranks.c: ration plan --ranks. `model` NULL: the plan is of a training step. room_bytes: what
// a rank's budget leaves for its plan; `each`: with which a rank makes it.
rn_status show_ranks(const invocation *in, const rn_plan *plan, const rn_model *model,
                     const rn_generator_options *each, uint64_t room_bytes);

#endif
