// trainer.h — a trainer's parts, for its own files.
#ifndef RN_TRAIN_TRAINER_H
#define RN_TRAIN_TRAINER_H

#include <ration/program.h>
#include <ration/train.h>
#include <ration/writer.h>

#include "base/arena.h"
#include "graph/op/rank_sum.h"
#include "train/full.h"
#include "train/lora.h"

// A weight of the model, or one of its optimiser's states.
typedef struct rn_trained {
    const char *name;
    rn_shape shape;
    rn_dtype dtype;
    uint64_t count, bytes; // elements, and their bytes
    rn_rank_range range;   // those that this rank has: all, but of states that ranks divide
    uint64_t row;          // elements of a rank's row of them; 0: they are not divided
} rn_trained;

enum { RN_TRAINER_SHAPES = 7 }; // steps and evaluations of each, and saving: 15 phases

// What is trained where that is no text model: any forward pass with a loss of its own. Batches of
// several shapes have a phase each; all of them share the weights. It outlives the trainer.
typedef struct rn_trainer_job {
    void *self;
    uint32_t shapes;                   // of batches: 1 to RN_TRAINER_SHAPES
    char names[RN_TRAINER_SHAPES][24]; // of shapes: "768x512"
    // The forward pass over batches of a shape, which sets rn_forward_values.loss.
    rn_status (*forward)(void *self, uint32_t shape, rn_forward *out);
    // Where weights are read from; find and checkpoint NULL: nowhere, they are drawn.
    rn_weight_source weights;
    bool in_memory;    // they are the caller's memory
    const char *drawn; // weights whose names match are drawn though there is a source: additions
    // Element `element` of a weight that is drawn; `number` is the weight's.
    float (*first)(void *self, const char *name, rn_shape shape, uint64_t seed, uint32_t number,
                   uint64_t element);
} rn_trainer_job;

struct rn_trainer {
    const rn_trainer_job *job; // NULL: a text model
    rn_trainer_options options;
    const struct rn_optimizer *optimizer;
    rn_train_share share; // of options.comm
    rn_call_ranks ranks;
    uint32_t first, batch; // of a batch, this rank's sequences
    rn_arena memory;
    rn_program *program;
    rn_program_run *run;
    rn_session *session; // of the step; the run's
    rn_trained *tensors; // (tensor_count): weights, then their states
    uint32_t tensor_count, weight_count;
    uint64_t most; // elements of the largest tensor
    void *zeros;   // (most) f32, while the program is opened
    uint64_t steps, batches;
    bool scaled;          // activations are f16:
    double scale;         // of the loss and all gradients, a power of two
    uint64_t clean_steps; // since the scale was changed
    rn_step_info last;
    rn_lora *lora;                // additions that are trained; or NULL
    rn_full *full;                // a model whose own weights are; or NULL
    const rn_network *network;    // the model of either; NULL: the weights were drawn
    rn_arena kept;                // what lives as long as the trainer
    const char *trained, *frozen; // the names of what is, and of what is not
    rn_llama_config config;
    char identity[1024];            // rn_trainer_set_run; "" where none was given
    int32_t *positions, *documents; // (batch, tokens) of a fine-tuning, of this rank
};

// Phases of the program; the last only where the options say so. Of several shapes of batches the
// other steps stand behind RN_TRAINER_SAVE, and evaluations behind them.
enum { RN_TRAINER_STEP, RN_TRAINER_SAVE, RN_TRAINER_EVALUATE, RN_TRAINER_PHASES };

// A trainer of a job (trainer_job.c). Of the options the sizes of a text model must be 0;
// activations are f32 or bf16.
RN_MUST_USE rn_status rn_trainer_create_job(const rn_trainer_options *options,
                                            const rn_trainer_job *job, rn_trainer **out);
// What it would hold, without loading anything. To be destroyed.
RN_MUST_USE rn_status rn_trainer_plan_job(const rn_trainer_options *options,
                                          const rn_trainer_job *job, rn_program **out);
typedef struct rn_trainer_input {
    const char *name;
    const void *data;
    uint64_t bytes;
} rn_trainer_input;
// A step, or an evaluation, of a batch of that shape.
RN_MUST_USE rn_status rn_trainer_step_job(rn_trainer *trainer, uint32_t shape,
                                          const rn_trainer_input *inputs, uint32_t count,
                                          double rate, float *out_loss);
RN_MUST_USE rn_status rn_trainer_evaluate_job(rn_trainer *trainer, uint32_t shape,
                                              const rn_trainer_input *inputs, uint32_t count,
                                              float *out_loss);
// The number of the phase of a shape.
uint32_t rn_trainer_phase_of(const rn_trainer *trainer, uint32_t shape, bool evaluates);
// Parts that both kinds share (trainer.c): the options as a training step takes them; scalars of
// the optimiser; what became of a step that was run in trainer->session.
rn_train_options rn_trainer_step_options(const rn_trainer *trainer);
RN_MUST_USE rn_status rn_trainer_set_scalars(const rn_trainer *trainer, rn_session *session);
RN_MUST_USE rn_status rn_trainer_look_back(rn_trainer *trainer);
RN_MUST_USE rn_status rn_trainer_plan_phases(rn_trainer *trainer, rn_recipe *steps,
                                             rn_recipe *evaluates, uint32_t shapes);
// The plan of a job, as make_plan is a text model's.
RN_MUST_USE rn_status rn_trainer_make_job_plan(rn_trainer *trainer);

// ---- ranks (trainer_ranks.c) --------------------------------------------------------------------

// Takes this rank's share of a batch; {0} without a communicator. RN_INVALID: fewer sequences than
// ranks; RN_UNSUPPORTED: what several ranks do not train.
RN_MUST_USE rn_status rn_trainer_take_share(rn_trainer *trainer);
// Of AUTO: whether states are divided, so that every rank's plan fits. `plan` tries one plan.
RN_MUST_USE rn_status rn_trainer_choose_division(rn_trainer *trainer,
                                                 rn_status (*plan)(rn_trainer *trainer));
// Once a trainer was made, or was not: it was on all ranks, with the same options and collectives,
// or all fail.
RN_MUST_USE rn_status rn_trainer_agree(rn_trainer *trainer, rn_status status);
// All elements of a tensor; of a divided one a collective.
RN_MUST_USE rn_status rn_trainer_get_tensor(rn_trainer *trainer, const rn_trained *tensor,
                                            void *values);
// Sets what this rank has of it.
RN_MUST_USE rn_status rn_trainer_put_tensor(rn_trainer *trainer, const rn_trained *tensor,
                                            const void *values);

// The most that tables of sessions and files take beside the plan of a training step's graph
// (phases.c).
uint64_t rn_train_tables_bytes(const rn_graph *graph, uint64_t tensors);

// What writing and reading files needs (scratch.c): a tensor as f32, a chunk of it in another
// dtype, and the buffers of one writer at a time.
enum { RN_TRAINER_CHUNK = 16 << 10 }; // elements
typedef struct rn_trainer_scratch {
    float *values;     // (most)
    float *chunk;      // (RN_TRAINER_CHUNK, or `most` where that is less)
    rn_allocator from; // for a writer
    uint8_t *buffers;
    size_t buffers_bytes, used;
    void *block; // NULL: it is the arena's
    size_t bytes;
} rn_trainer_scratch;
// For tensors of up to `most` elements.
uint64_t rn_trainer_scratch_bytes(uint64_t most);
size_t rn_trainer_buffer_bytes(uint64_t most); // of a writer's options
// `out` must stay where it is. RN_NO_MEMORY, RN_OVER_BUDGET: of a device whose memory is not the
// host's.
RN_MUST_USE rn_status rn_trainer_scratch_take(rn_trainer *trainer, rn_trainer_scratch *out);
void rn_trainer_scratch_free(rn_trainer_scratch *scratch);
// Appends a tensor, as it is now, to a file, in `dtype`.
RN_MUST_USE rn_status rn_trainer_write_tensor(rn_trainer *trainer, const rn_trained *tensor,
                                              rn_dtype dtype, rn_writer *writer,
                                              const rn_trainer_scratch *scratch);

#endif
