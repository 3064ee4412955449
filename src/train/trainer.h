// trainer.h — a trainer's parts, for its own files.
#ifndef RN_TRAIN_TRAINER_H
#define RN_TRAIN_TRAINER_H

#include <ration/program.h>
#include <ration/train.h>
#include <ration/writer.h>

#include "base/arena.h"
#include "train/full.h"
#include "train/lora.h"

// A weight of the model, or one of its optimiser's states.
typedef struct rn_trained {
    const char *name;
    rn_shape shape;
    rn_dtype dtype;
    uint64_t count, bytes; // elements, and their bytes
} rn_trained;

struct rn_trainer {
    rn_trainer_options options;
    const struct rn_optimizer *optimizer;
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
    int32_t *positions, *documents; // (batch, tokens) of a fine-tuning
};

// Phases of the program; the last only where the options say so.
enum { RN_TRAINER_STEP, RN_TRAINER_SAVE, RN_TRAINER_EVALUATE, RN_TRAINER_PHASES };

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
