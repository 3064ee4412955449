#!/usr/bin/env python3
"""Tiny mixtures of experts with random weights, as scripts/reference/text_models.py makes the dense ones.

    scripts/reference/moe_models.py [NAME...]     (needs torch, transformers, safetensors, gguf)

Writes tests/golden/text/NAME/: config.json, model.safetensors, model.gguf, golden.safetensors ("tokens", "logits"). Weights are rounded to
f16. `qwen3_moe_fused` has the weights of `qwen3_moe` in the form with all experts of a layer in one tensor, in both containers.
"""

import json
import sys

import gguf
import torch
import transformers
from safetensors.torch import load_file

from text_models import FOLDER, SMALL, TOKENS, permute, run, save

MODELS = {
    "mixtral": transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
                                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "qwen2_moe": transformers.Qwen2MoeConfig(**SMALL, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
                                             shared_expert_intermediate_size=48),
    "qwen3_moe": transformers.Qwen3MoeConfig(**SMALL, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48,
                                             norm_topk_prob=True),
    "olmoe": transformers.OlmoeConfig(**{**SMALL, "num_key_value_heads": 4}, num_experts=6, num_experts_per_tok=3, pad_token_id=0,
                                      eos_token_id=1),
    # A dense layer, then two of experts, half a head turned.
    "glm4_moe": transformers.Glm4MoeConfig(**{**SMALL, "num_hidden_layers": 3}, head_dim=16, n_routed_experts=8, num_experts_per_tok=3,
                                           moe_intermediate_size=32, n_shared_experts=2, first_k_dense_replace=1, use_qk_norm=True,
                                           attention_bias=True, routed_scaling_factor=2.5, norm_topk_prob=True, num_nextn_predict_layers=1,
                                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
}
ARCHITECTURES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmoe": "olmoe", "glm4_moe": "glm4moe"}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
         "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
         "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
         "mlp.shared_experts.down_proj": "ffn_down_shexp", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def make_model(config):
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            # A router that is sure of itself: no choice is near a tie.
            scale = 0.6 if name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight")) else 0.2 if p.dim() > 1 else 0.3
            p.copy_(((1.0 if "norm" in name else 0.0) + scale * noise).half().float())
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_((0.3 * torch.randn(b.shape, generator=generator)).half().float())
    return model


def stack_experts(tensors):
    """{(layer, "gate"): (experts, rows, cols)} of files with a tensor an expert, and all else."""
    experts, rest = {}, {}
    for name, w in tensors.items():
        parts = name.split(".")
        if "experts" in parts:
            experts.setdefault((int(parts[2]), EXPERT[parts[-2]]), {})[int(parts[parts.index("experts") + 1])] = w
        else:
            rest[name] = w
    return {key: torch.stack([of[i] for i in range(len(of))]) for key, of in experts.items()}, rest


def write_gguf(path, name, config, tensors, fused):
    architecture = ARCHITECTURES[name]
    writer = gguf.GGUFWriter(path, architecture)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    drafts = getattr(config, "num_mtp_layers", 0)
    writer.add_block_count(config.num_hidden_layers + drafts)
    if drafts:
        writer.add_nextn_predict_layers(drafts)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1)))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_expert_count(getattr(config, "num_experts", None) or config.num_local_experts)
    if name == "glm4_moe":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if hasattr(config, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    stacks, rest = stack_experts(tensors)
    for key, w in rest.items():
        if key in OUTER:
            to = OUTER[key]
        elif key.endswith("e_score_correction_bias"):
            to = f"blk.{key.split('.')[2]}.exp_probs_b.bias"
        elif architecture == "glm4moe" and "post_attention_layernorm" in key:
            to = f"blk.{key.split('.')[2]}.post_attention_norm.weight"
        else:
            _, _, layer, *inner = key.split(".")
            to = f"blk.{layer}.{NAMES['.'.join(inner[:-1])]}.{inner[-1]}"
        if architecture == "llama" and (".q_proj" in key or ".k_proj" in key):
            w = permute(w, config.num_attention_heads if ".q_proj" in key else config.num_key_value_heads)
        if "shexp" in to and "inp" in to:
            w = w.flatten()
        # As llama.cpp's converter: vectors and routers in f32.
        writer.add_tensor(to, (w.float() if w.dim() == 1 or "inp" in to else w.half()).numpy())
    for (layer, part), w in stacks.items():
        if not fused or part == "down":
            writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", w.half().numpy())
        elif part == "gate":
            writer.add_tensor(f"blk.{layer}.ffn_gate_up_exps.weight", torch.cat([w, stacks[layer, "up"]], 1).half().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def fuse(tensors):
    stacks, rest = stack_experts(tensors)
    for (layer, part), w in stacks.items():
        at = f"model.layers.{layer}.mlp.experts"
        if part == "gate":
            rest[f"{at}.gate_up_proj"] = torch.cat([w, stacks[layer, "up"]], 1).contiguous()
        elif part == "down":
            rest[f"{at}.down_proj"] = w
    return rest


def make(name, folder, fused):
    config = MODELS[name]
    config._attn_implementation = "eager"
    model = make_model(config)
    tokens = [(7 * i * i + 3 * i + 1) % 128 for i in range(TOKENS)]
    logits = run(model, tokens)
    folder.mkdir(exist_ok=True)
    model.half().save_pretrained(folder)
    for extra in ("generation_config.json",):
        (folder / extra).unlink(missing_ok=True)
    tensors = load_file(folder / "model.safetensors")
    if name == "glm4_moe":  # a block for drafts, which is not used
        tensors[f"model.layers.{config.num_hidden_layers}.eh_proj.weight"] = torch.zeros(4, 8, dtype=torch.float16)
    if fused:
        save(fuse(tensors), folder / "model.safetensors")
    else:
        save(tensors, folder / "model.safetensors")
    write_gguf(folder / "model.gguf", name, config, {n: w for n, w in tensors.items() if "eh_proj" not in n}, fused)
    save({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits}, folder / "golden.safetensors")
    print(name, json.dumps({"largest": logits.abs().max().item()}))


def main():
    wanted = sys.argv[1:]
    for name in MODELS:
        if not wanted or name in wanted:
            make(name, FOLDER / name, False)
    if not wanted or "qwen3_moe_fused" in wanted:
        make("qwen3_moe", FOLDER / "qwen3_moe_fused", True)


if __name__ == "__main__":
    main()
