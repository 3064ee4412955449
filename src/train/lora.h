// lora.h — low-rank additions that are trained: to which matrices of a model, under which names.
//
// The model's own recipe writes them (rn_llama_files.addition): behind each product with a matrix
// that is adapted stand two small ones. Their weights are "tuned.<weight>.down" (rank, in), at
// first uniform in +-1 / sqrt(in), and "tuned.<weight>.up" (out, rank), at first 0, as PEFT begins;
// of DoRA also "tuned.<weight>.magnitude" (out), at first the norms of the weight's rows.
#ifndef RN_TRAIN_LORA_H
#define RN_TRAIN_LORA_H

#include "base/arena.h"
#include "base/map.h"
#include "model/bundle.h"
#include "model/model.h"

#include <ration/train.h>

#define RN_LORA_TRAINED "tuned.*" // what a training step trains

typedef struct rn_lora_part {
    rn_low_rank low_rank;
    const char *weight, *module; // as the graph names it, and as Hugging Face does
    uint64_t in, out;
    float alpha;
    // DoRA: the weight in its files, as rn_value_info has it; where its norms begin
    rn_dtype dtype;
    const char *tensor;
    uint64_t first_row, tensor_rows, first_norm;
    bool turned; // q or k: its rows have another order in GGUF files of some architectures
} rn_lora_part;

typedef struct rn_lora {
    const rn_network *network;
    rn_llama_config config; // of the training; its files are `files`
    rn_llama_files files, base;
    rn_arena memory;
    rn_map by_weight;
    rn_lora_part *parts; // (count)
    uint32_t count, rank;
    float alpha;
    bool by_root, by_word, gaussian; // targets are last words of modules
    bool dora;
    float *norms; // (norm_count): first magnitudes, from rn_lora_measure to rn_lora_forget
    uint64_t norm_count;
    rn_lora_pattern *patterns; // (pattern_count)
    size_t pattern_count;
} rn_lora;

// Finds what to adapt. `lora` must lie where it is while recipes of its configuration live. However
// it ends, rn_lora_free.
RN_MUST_USE rn_status rn_lora_init(rn_lora *lora, const rn_model *model, uint32_t tokens,
                                   const rn_lora_options *options);
void rn_lora_free(rn_lora *lora);
// DoRA's first magnitudes, which rn_lora_first then has: reads the matrices that are adapted, one
// after the other. Nothing to do for LoRA.
RN_MUST_USE rn_status rn_lora_measure(rn_lora *lora);
void rn_lora_forget(rn_lora *lora);
// As rn_lora_pattern.module.
bool rn_lora_matches(const char *module, const char *pattern);
// Element `element` of weight number `number`, before training.
float rn_lora_first(const rn_lora *lora, const char *name, uint64_t seed, uint32_t number,
                    uint64_t element);

#endif
