// train.h — training: a step of any graph; a text model trained from nothing, batch by batch.
//
// A graph of one's own becomes a training step by two calls, which add nodes like any others:
//
//     rn_value loss = rn_graph_loss(graph, "mse", y, targets, 1);
//     RN_TRY(rn_graph_train(graph, loss, &(rn_train_options){.optimizer = "momentum"}));
//     RN_TRY(rn_recipe_from_graph(graph, 0, &recipe)); // to plan and run it:
//     examples/train_graph.c
//
// A trainer does that for a Llama decoder, and adds first weights, checkpoints and the export:
//
//     rn_trainer *trainer;
//     RN_TRY(rn_trainer_create(&options, &trainer));
//     for (...)
//         RN_TRY(rn_trainer_step(trainer, tokens, targets, rate, &loss));
//     RN_TRY(rn_trainer_export(trainer, RN_DTYPE_F16, "model.safetensors"));
//     rn_trainer_destroy(trainer);
//
// The same options and batches give the same weights, whatever the number of threads. One thread at
// a time.
//
// Several ranks train together by `comm` (<ration/comm.h>): each makes its trainer with the same
// options and calls the same functions, in the same order and with the same batches, whole ones, of
// which each computes its sequences. All have the same weights and losses after each step, and with
// plan.exact those that one rank would have, to the bit. What fails on one fails on all: with
// RN_DEVICE where a rank is lost. Saving and resuming are for all ranks, and rank 0 alone writes
// and reads the file; exports are each rank's own, for all have all weights.
#ifndef RATION_TRAIN_H
#define RATION_TRAIN_H

#include <ration/comm.h>
#include <ration/device.h>
#include <ration/model.h>
#include <ration/plan.h>
#include <ration/program.h>
#include <ration/session.h>

RN_BEGIN_DECLS

// ---- a training step of any graph ---------------------------------------------------------------

// The names of optimizers ("adamw", the default, and others) and of objectives ("cross_entropy",
// "mse"), from index 0; NULL behind the last. States of a weight of n elements:
//   "adamw"       m and v, f32: 8 n bytes       "adamw_bf16"  the same in bf16, rounded at random
//   "adamw_8bit"  bitsandbytes' states, bit for bit: 2.03 n (below 4096 elements f32)
//   "sgd"         none                          "momentum"    a velocity, f32: 4 n
//   "lion"        m, f32: 4 n                   "lion_8bit"   bitsandbytes': 1.02 n
//   "adafactor"   a number a row and one a column
//   "muon"        m, f32: 4 n (matrices but tables and heads; all else as adamw)
RN_API const char *rn_optimizer_name(size_t index);
RN_API const char *rn_objective_name(size_t index);

// Adds the loss of a model's outputs: one element, which is returned.
//   "cross_entropy"  outputs (N, classes), targets i32 (N), where -100 does not count: the next
//                    token, or a class. Brings the scalar "loss_scale": 1 / the number of targets
//                    that count in the whole batch, so that micro-batches weigh by what they hold.
//   "mse"            outputs and targets f32 of one shape: the mean of the squared differences.
// micro_batches: as rn_recipe_options; 0 or 1: none. Another name makes rn_graph_finish fail and
// list these.
RN_API rn_value rn_graph_loss(rn_graph *graph, const char *objective, rn_value outputs,
                              rn_value targets, uint32_t micro_batches);

typedef enum rn_clip {
    RN_CLIP_NONE,
    RN_CLIP_TENSOR, // each gradient by its own norm
    RN_CLIP_GLOBAL  // all by their common norm: all are held until it is known
} rn_clip;

// Numbers that are 0 stand for the optimizer's own: beta1 and beta2 0.9 and 0.999 (lion: 0.99,
// muon: 0.95), eps 1e-8 (adamw), momentum 0.9 (momentum), 0.95 (muon).
// What one of several ranks has of a training step (data parallel). Ranks have different samples of
// a batch and the same weights; gradients and the loss are summed over all ranks before weights are
// updated, and a session runs such a step with rn_session_options.comm.
typedef struct rn_train_share {
    uint32_t rank, ranks; // ranks 0 or 1: alone
    uint64_t samples;     // of the whole batch; rank r has samples r n / ranks to (r + 1) n / ranks
    // Sums over ranks are in one tree over samples: those of one rank, to the bit, where its
    // micro-batches are single samples (rn_plan_options.exact).
    bool exact;
    // Of the optimizer's states each rank has those of a part of every weight, which it updates and
    // hands to the others (ZeRO 1): 8-bit, momentum and Adam's, not "adafactor" and "muon".
    bool divided_states;
} rn_train_share;

typedef struct rn_train_options {
    const char *optimizer; // NULL: "adamw"
    double beta1, beta2, eps, momentum;
    double weight_decay; // 0: none
    rn_clip clip;
    float max_norm;         // of clip
    const char *frozen;     // weights whose names match are not trained: patterns (`*`, `?`) with
                            // commas between them; NULL: none
    uint32_t micro_batches; // as rn_recipe_options: gradients are summed, updates follow the last
    // Micro-batches are single samples, which are summed in a tree over their numbers
    // (rn_plan_options.exact): the scalar RN_MICRO_BATCH is the sample's number, and the states
    // "<weight>.gradient_parts" and "loss.sum_parts" have the partial sums.
    bool exact;
    // For tests: each raw gradient, as "<weight>.gradient", is an output (with micro-batches the
    // gradients are states of that name anyway), and of a model "logits", too.
    bool watch;
    const char *trained; // only weights whose names match are trained, likewise; NULL: all
    // Weights that do not decay, likewise: "*norm*,*.bias", say; NULL: all do.
    const char *undecayed;
    // A step whose gradients are not finite changes no weight and no state. What tells is their
    // common norm, with RN_CLIP_GLOBAL, and then the outputs "<weight>.gradient_square" name the
    // culprit; else the loss.
    bool guarded;
    // Gradients come multiplied by a number, so that small ones are not lost in f16 (the caller has
    // it in "loss_scale", too): the state "unscale" (one f32) is its inverse, and what is clipped,
    // guarded by and updated with are the gradients times that. The norm is an output without
    // RN_CLIP_GLOBAL, too.
    bool scaled;
    // In which numbers gradients of micro-batches are summed: f32 (also RN_DTYPE_NONE), or bf16 in
    // half the bytes, each addition rounded.
    rn_dtype gradients;
    rn_train_share share; // of several ranks; {0}: alone
    uint64_t reserved[4]; // zero
} rn_train_options;

// Adds to a forward pass with a loss (one f32 element) the backward pass and the update of every
// weight, and finishes the graph. Scalars: "rate"; "step" (from 1) where the optimizer needs it;
// "step" and "seed" where weights or states are bf16. Output: "loss".
// States: "<weight>.<state>", as the optimizer has them ("m", "v"; "velocity"); with micro-batches
// also "loss.sum" and "<weight>.gradient". Strings are borrowed for the call. options may be NULL.
// RN_INVALID: an optimizer that is not known (the hint lists them), nothing to train, or a weight
// that the loss does not depend on.
RN_API RN_MUST_USE rn_status rn_graph_train(rn_graph *graph, rn_value loss,
                                            const rn_train_options *options);

// ---- a text model -------------------------------------------------------------------------------

typedef struct rn_trainer rn_trainer;

// What ranks that train together divide among themselves, as ZeRO calls it: nothing, or the
// optimizer's states. AUTO: as little as fits every rank's budget, for what is divided is sent.
typedef enum rn_zero { RN_ZERO_AUTO, RN_ZERO_NONE, RN_ZERO_STATES } rn_zero;

// A Llama decoder with a head of its own.
typedef struct rn_trainer_options {
    uint32_t layers, dim, heads, kv_heads, ffn, vocab_size;
    uint32_t tokens;       // of a sequence
    uint32_t batch;        // sequences of a step
    const char *optimizer; // as rn_train_options, borrowed by rn_trainer_create; NULL: "adamw"
    double beta1, beta2, momentum; // 0: the optimizer's own
    double weight_decay;
    float max_norm;       // gradients are clipped to this norm, all together; 0: they are not
    float init_deviation; // of the first weights; 0: 0.02
    uint64_t seed;        // of the first weights
    // budget_bytes: of the memory that `device` computes in; where that is its own, the process's
    // is host_budget_bytes.
    rn_plan_options plan;
    rn_device *device; // NULL: the CPU
    // How activations that the backward pass reads are held: f32 (also RN_DTYPE_NONE), bf16 or f16.
    // All ops compute and sum in f32; the numbers differ from those of f32.
    rn_dtype activations;
    // rn_trainer_evaluate is called about once in so many steps: it is planned with them, in the
    // same bytes. 0: never.
    uint64_t evaluate_every;
    // Of a model's own weights, lists of patterns (`*`, `?`) with commas between them, borrowed by
    // the call: what is trained (NULL: all), what of it is not after all.
    const char *trained, *frozen;
    const char *undecayed; // as rn_train_options, borrowed by the call
    // In which numbers matrices are trained: f32 (also RN_DTYPE_NONE), or bf16 where the model's
    // files have that; norms and biases are f32 always. In bf16 an update is rounded up or down at
    // random, by what is lost, so that small ones count in the mean.
    rn_dtype weights;
    rn_dtype gradients;   // of micro-batches, as rn_train_options
    rn_comm *comm;        // ranks that train together, on CPUs; borrowed; NULL: one
    rn_zero zero;         // what they divide
    uint64_t reserved[4]; // zero
} rn_trainer_options;

// Another rank or alpha for some modules.
typedef struct rn_lora_pattern {
    const char *module; // `*` and `?` match; of a whole name or of what stands behind one of its
                        // dots: "down_proj", "layers.0.*"
    uint32_t rank;      // 0: as the others
    float alpha;        // 0: as the others
} rn_lora_pattern;

// What is added to the weights of a model that is fine-tuned: W x + scale * B (A x), the scale
// being alpha / rank.
typedef struct rn_lora_options {
    uint32_t rank; // 0: 16
    float alpha;   // 0: the rank
    bool by_root;  // the scale is alpha / sqrt(rank) (rsLoRA)
    // (target_count) modules as Hugging Face names them, by their last word ("q_proj") or whole
    // ("model.layers.0.mlp.*"); none: every matrix of the layers.
    const char *const *targets;
    size_t target_count;
    // (pattern_count) rank_pattern and alpha_pattern of PEFT: the first that matches and says
    // something counts.
    const rn_lora_pattern *patterns;
    size_t pattern_count;
    // First values of A: "default" (also NULL; uniform, as PEFT begins) or "gaussian" (deviation 1
    // / rank). B begins as 0. "loftq", "pissa", "olora", "corda", "eva" and "lora_ga", which look
    // at the base or change it, are RN_UNSUPPORTED.
    const char *init;
    // A magnitude for each row of a matrix is trained, too (DoRA): what is computed is W + scale *
    // B A, its rows stretched to these lengths; their norms count as constants, as PEFT has it.
    bool dora;
    uint64_t reserved[4]; // zero
} rn_lora_options;

// Trains low-rank additions (LoRA) to the matrices of an open model, whose own weights, of any
// type, stay as they are: they have no gradients, and nothing goes back beyond the first addition.
// lora NULL: trains the model's own weights instead, those that options->trained and ->frozen say,
// which must be f16, bf16 or f32 in its files.
// options: the sizes of a Llama (layers to vocab_size) must be 0. The model must outlive the
// trainer; strings and lists are borrowed for the call. RN_UNSUPPORTED: a model without a head,
// with recurrent layers, an op without a gradient, or quantised weights that are to be trained;
// RN_INVALID: a target that names no matrix.
RN_API RN_MUST_USE rn_status rn_trainer_finetune(const rn_model *model,
                                                 const rn_trainer_options *options,
                                                 const rn_lora_options *lora, rn_trainer **out);

RN_API RN_MUST_USE rn_status rn_trainer_create(const rn_trainer_options *options, rn_trainer **out);
RN_API void rn_trainer_destroy(rn_trainer *trainer);
// Of a step; of all that a trainer does: the phases "step", "save" and, where it was asked for,
// "evaluate".
RN_API const rn_plan *rn_trainer_plan(const rn_trainer *trainer);
RN_API const rn_program *rn_trainer_program(const rn_trainer *trainer);
// How many steps were taken, those before a checkpoint included.
RN_API uint64_t rn_trainer_steps(const rn_trainer *trainer);
// How many batches it was given: steps, and those that had no effect. Checkpoints have it, too: the
// number of the next batch of a training that goes on.
RN_API uint64_t rn_trainer_batches(const rn_trainer *trainer);

// tokens, targets: (batch, tokens); a target of -100 does not count, the others are the tokens that
// should follow. *out_loss: the mean of -log p over the targets, before the step.
// A step may have no effect (rn_trainer_last_step says so): where no target counts nothing is run,
// and the loss is 0; where the gradients are not finite, weights and states stay as they are. Such
// steps are not counted. How many of them are too many is for the caller to say.
// With activations in f16 gradients are computed 65,536 times as large, so that small ones are not
// lost; where that overflows, the step is computed again with half the factor, and after 2,000
// steps without that with twice it. Checkpoints have it.
RN_API RN_MUST_USE rn_status rn_trainer_step(rn_trainer *trainer, const int32_t *tokens,
                                             const int32_t *targets, double rate, float *out_loss);

typedef enum rn_step_effect {
    RN_STEP_TAKEN,
    RN_STEP_NO_TARGETS, // no target of the batch counts
    RN_STEP_NOT_FINITE  // the loss, or with max_norm any gradient, is infinite or no number
} rn_step_effect;
typedef struct rn_step_info {
    rn_step_effect effect;
    uint64_t targets; // that count
    float loss;
    float gradient_norm; // before clipping; 0 without max_norm
    char weight[128];    // NOT_FINITE: the first whose gradient is not; empty: not known
    double loss_factor;  // that f16's gradients were computed with; 1 otherwise
} rn_step_info;
// Of the last step; zeros before the first.
RN_API const rn_step_info *rn_trainer_last_step(const rn_trainer *trainer);

// What rn_trainer_finetune would hold and when, without loading anything: the phases "step", "save"
// and, with evaluate_every, "evaluate". To be destroyed.
RN_API RN_MUST_USE rn_status rn_finetune_plan(const rn_model *model,
                                              const rn_trainer_options *options,
                                              const rn_lora_options *lora, rn_program **out);

// ---- phases -------------------------------------------------------------------------------------

typedef enum rn_train_phase {
    RN_TRAIN_LOAD,
    RN_TRAIN_RESUME,
    RN_TRAIN_STEP, // the first is like all others: states are there from the start
    RN_TRAIN_EVALUATE,
    RN_TRAIN_SAVE,
    RN_TRAIN_PHASE_COUNT
} rn_train_phase;

// What a phase holds at its peak. `bytes` are of the memory that the device computes in, and what
// the ledger's lines say then, but for what is beside the plan: descriptions (the model's, the
// plan's, tables of sessions and of files), which are RN_PURPOSE_IO and RN_PURPOSE_OTHER.
typedef struct rn_train_phase_info {
    const char *name;
    uint64_t bytes[RN_PURPOSE_COUNT];
    uint64_t planned_bytes; // their sum
    uint64_t host_bytes;    // of a device with its own memory: what the plan holds on the host
    uint64_t tables_bytes;  // at most, of tables that are added to what is held before loading
    uint64_t file_bytes;    // at most, that it writes
    double seconds;         // predicted, of one run; 0: not known
} rn_train_phase_info;

// program: of rn_finetune_plan, or rn_trainer_program.
RN_API rn_train_phase_info rn_train_get_phase(const rn_program *program, rn_train_phase phase);

// Ends the phase that runs: its peak is known then, before that of the next one begins.
RN_API void rn_trainer_rest(rn_trainer *trainer);

// ---- steps --------------------------------------------------------------------------------------

// A batch whose sequences are packed of several documents: a token sees its own document only, and
// positions count from its beginning. Of rn_trainer_finetune only.
typedef struct rn_batch {
    const int32_t *tokens, *targets; // (batch, tokens), as rn_trainer_step
    const int32_t *documents;        // (batch, tokens): the token of the sequence at which its
                                     // document begins; NULL: one document a sequence
} rn_batch;
RN_API RN_MUST_USE rn_status rn_trainer_step_packed(rn_trainer *trainer, const rn_batch *batch,
                                                    double rate, float *out_loss);
RN_API RN_MUST_USE rn_status rn_trainer_evaluate_packed(rn_trainer *trainer, const rn_batch *batch,
                                                        float *out_loss);

// The loss of a batch with the weights as they are: what a step of it would say. Nothing is
// trained. RN_INVALID: the trainer was made without evaluate_every.
RN_API RN_MUST_USE rn_status rn_trainer_evaluate(rn_trainer *trainer, const int32_t *tokens,
                                                 const int32_t *targets, float *out_loss);

// The norm of all gradients of the last step, before clipping. RN_INVALID: they are not clipped, or
// there was no step.
RN_API RN_MUST_USE rn_status rn_trainer_gradient_norm(rn_trainer *trainer, float *out);

// What training this is, as "key=value;key=value": it stands in its checkpoints, and one of another
// training is refused, with the first value that differs. Cut at 1023 bytes.
RN_API void rn_trainer_set_run(rn_trainer *trainer, const char *identity);
// A checkpoint to go on from: weights, moments and the step, as safetensors. The file appears
// whole or not at all, and is verified before the call succeeds. It has whole tensors, whatever the
// number of ranks, and another number may go on from it. RN_INVALID: ranks whose weights or moments
// differ from the others', by name.
RN_API RN_MUST_USE rn_status rn_trainer_save(rn_trainer *trainer, const char *path);
// Whether a file is a whole checkpoint of this training. RN_CORRUPT: it is damaged; RN_INVALID: of
// another one.
RN_API RN_MUST_USE rn_status rn_trainer_verify(rn_trainer *trainer, const char *path);
// Verifies, then goes on from there. RN_NOT_FOUND, RN_CORRUPT, RN_INVALID (another training, a
// tensor that is missing or of another size): the trainer is as it was, unless reading itself fails
// behind the verification: then it is to be destroyed.
RN_API RN_MUST_USE rn_status rn_trainer_resume(rn_trainer *trainer, const char *path);
// The weights that are trained, alone, by the names that they have in the model.
RN_API RN_MUST_USE rn_status rn_trainer_export(rn_trainer *trainer, rn_dtype dtype,
                                               const char *path);

// A model whose own weights were trained, whole, as its files were: the same tensors, names and
// types, the frozen ones unchanged. A model of safetensors becomes a folder with its configuration
// and tokenizer, which `transformers` opens like the first one; one of GGUF a file .gguf with all
// of its keys. RN_UNSUPPORTED: the other of the two, or a built-in model; RN_INVALID: a trainer of
// another kind, or the model's own folder.
RN_API RN_MUST_USE rn_status rn_trainer_export_model(rn_trainer *trainer, const char *path);

// The additions of a trainer that fine-tunes: a folder as PEFT writes and reads it
// (adapter_config.json, adapter_model.safetensors), or, where the path ends in .gguf, llama.cpp's
// file. `base` is what adapter_config.json calls the model; NULL: its name.
RN_API RN_MUST_USE rn_status rn_trainer_export_adapter(rn_trainer *trainer, const char *base,
                                                       const char *path);

RN_END_DECLS

#endif
