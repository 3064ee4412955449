// train.h — trains a text model from nothing: a plan of the training step, fed batch by batch.
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
#ifndef RATION_TRAIN_H
#define RATION_TRAIN_H

#include <ration/device.h>
#include <ration/plan.h>
#include <ration/session.h>

RN_BEGIN_DECLS

typedef struct rn_trainer rn_trainer;

// A Llama decoder with a head of its own.
typedef struct rn_trainer_options {
    uint32_t layers, dim, heads, kv_heads, ffn, vocab_size;
    uint32_t tokens;     // of a sequence
    uint32_t batch;      // sequences of a step
    double beta1, beta2; // of AdamW; 0: 0.9, 0.999
    double weight_decay;
    float max_norm;       // gradients are clipped to this norm, all together; 0: they are not
    float init_deviation; // of the first weights; 0: 0.02
    uint64_t seed;        // of the first weights
    rn_plan_options plan;
    rn_device *device; // NULL: the CPU
} rn_trainer_options;

RN_API RN_MUST_USE rn_status rn_trainer_create(const rn_trainer_options *options, rn_trainer **out);
RN_API void rn_trainer_destroy(rn_trainer *trainer);
RN_API const rn_plan *rn_trainer_plan(const rn_trainer *trainer);
// How many steps were taken, those before a checkpoint included.
RN_API uint64_t rn_trainer_steps(const rn_trainer *trainer);

// tokens, targets: (batch, tokens); a target of -100 does not count, the others are the tokens that
// should follow. *out_loss: the mean of -log p over the targets, before the step.
RN_API RN_MUST_USE rn_status rn_trainer_step(rn_trainer *trainer, const int32_t *tokens,
                                             const int32_t *targets, double rate, float *out_loss);

// A checkpoint to go on from: weights, moments and the step, as f32 safetensors. The file appears
// whole or not at all.
RN_API RN_MUST_USE rn_status rn_trainer_save(rn_trainer *trainer, const char *path);
// RN_NOT_FOUND, RN_INVALID: a tensor is missing or of another size; the trainer is then to be
// destroyed.
RN_API RN_MUST_USE rn_status rn_trainer_resume(rn_trainer *trainer, const char *path);
// The weights alone, by their Hugging Face names.
RN_API RN_MUST_USE rn_status rn_trainer_export(rn_trainer *trainer, rn_dtype dtype,
                                               const char *path);

RN_END_DECLS

#endif
