// adapters.h — LoRA: low-rank additions to a model's weights, W x + scale * B (A x); DoRA: that
// times a magnitude by the norm of each row of W + scale * B A.
//
// Reads PEFT's safetensors ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", with
// adapter_config.json beside them) and MLX's ("model.layers.0.self_attn.q_proj.lora_a",
// transposed); for GGUF models also llama.cpp's ("blk.0.attn_q.weight.lora_a"). What is read lies
// in memory as f32, charged to weights.
#ifndef RN_MODEL_ADAPTERS_H
#define RN_MODEL_ADAPTERS_H

#include <ration/model.h>

#include "base/arena.h"
#include "base/map.h"
#include "model/model.h"

typedef struct rn_addition rn_addition;

typedef struct rn_adapters {
    rn_arena memory;                      // additions and names
    rn_map by_weight;                     // the weight -> its first addition
    rn_map by_name;                       // "lora.0.<weight>.up" -> rn_addition_side *
    rn_addition *first;                   // all of them
    uint32_t file_count;                  // adapters so far
    const char *names[RN_MODEL_ADAPTERS]; // (named_count): choice n is names[n - 1]
    uint32_t named_count;
    bool has_magnitudes; // some are DoRA's
} rn_adapters;

void rn_adapters_init(rn_adapters *adapters);
void rn_adapters_free(rn_adapters *adapters);
// Adds one. `graph` is the model's, without adapters; `config` what made it. Errors name the
// tensor.
RN_MUST_USE rn_status rn_adapters_load(rn_adapters *adapters, const rn_adapter *adapter,
                                       const rn_graph *graph, const rn_llama_config *config);
// For rn_llama_files and rn_weight_source.
const rn_low_rank *rn_adapters_addition(const rn_adapters *adapters, const char *weight,
                                        uint32_t index);
const void *rn_adapters_find(const rn_adapters *adapters, const char *name, uint64_t bytes);

// Where row `row` of q or k as Hugging Face has them lies in GGUF files of architectures that keep
// pairs side by side.
uint64_t rn_adapters_gguf_row(uint64_t head_dim, uint64_t row);

#endif
