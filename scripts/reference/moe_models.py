#!/usr/bin/env python3
"""Tiny mixtures of experts with random weights, as scripts/reference/text_models.py makes the dense ones.

    scripts/reference/moe_models.py [NAME...]     (needs torch, transformers, safetensors, gguf)

Writes tests/golden/text/NAME/: config.json, model.safetensors, model.gguf, golden.safetensors ("tokens", "logits"; "logits.gguf" where the
GGUF file cannot say all of it). Weights are rounded to f16. `qwen3_moe_fused` has the weights of `qwen3_moe` in the form with all experts of a
layer in one tensor, in both containers. The experts of `gpt_oss` are blocks of mxfp4, as its files have them.
"""

import json
import sys

import gguf
import torch
import transformers
from safetensors.torch import load_file

from text_models import FOLDER, NAMES_OF, SMALL, TOKENS, permute, run, save, write_more_settings

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
# Latent attention: queries of the layer's input or of a latent of their own, groups of experts by their best or by their best two, YARN
# with its scale of scores; a dense layer, then one or two of experts.
LATENT = dict(kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_shared_experts=2, moe_intermediate_size=32)
LATENT_SMALL = {**SMALL, "num_key_value_heads": 4, "rms_norm_eps": 1e-6}
LATENT_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0, "mscale": 0.7,
               "mscale_all_dim": 0.7, "beta_fast": 32, "beta_slow": 1}
MODELS["deepseek_v2"] = transformers.DeepseekV2Config(
    **LATENT_SMALL, **LATENT, q_lora_rank=None, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
    topk_method="group_limited_greedy", routed_scaling_factor=4.0, norm_topk_prob=False, first_k_dense_replace=1,
    rope_parameters=LATENT_YARN)
MODELS["deepseek_v3"] = transformers.DeepseekV3Config(
    **{**LATENT_SMALL, "num_hidden_layers": 3}, **LATENT, q_lora_rank=24, n_routed_experts=16, num_experts_per_tok=4, n_group=4, topk_group=2,
    routed_scaling_factor=2.5, first_k_dense_replace=1, num_nextn_predict_layers=1, rope_parameters=LATENT_YARN)
MODELS["glm4_moe_lite"] = transformers.Glm4MoeLiteConfig(
    **{**LATENT_SMALL, "rms_norm_eps": 1e-5}, **{**LATENT, "qk_nope_head_dim": 24, "v_head_dim": 32, "n_shared_experts": 1}, q_lora_rank=24,
    n_routed_experts=8, num_experts_per_tok=4, routed_scaling_factor=1.8, first_k_dense_replace=1,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})

MODELS["gemma4_moe"] = transformers.Gemma4TextConfig(
    **{**SMALL, "num_hidden_layers": 4, "intermediate_size": 32}, head_dim=8, global_head_dim=16, num_global_key_value_heads=1,
    attention_k_eq_v=True, hidden_size_per_layer_input=0, vocab_size_per_layer_input=128, sliding_window=9, final_logit_softcapping=3.0,
    layer_types=["sliding_attention", "full_attention"] * 2, enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=16)

# Windows shorter than the text in layers 0 and 2; the ramp of its rope begins and ends within pairs.
MODELS["gpt_oss"] = transformers.GptOssConfig(
    **{**SMALL, "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 32, "max_position_embeddings": 4096}, head_dim=16,
    num_local_experts=6, num_experts_per_tok=3, sliding_window=9, attention_bias=True, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "rope_theta": 10000.0,
        "original_max_position_embeddings": 1024})
ARCHITECTURES = {"deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe_lite": "deepseek2", "gemma4_moe": "gemma4", "gpt_oss": "gpt-oss", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmoe": "olmoe", "glm4_moe": "glm4moe"}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
         "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
         "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
         "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
         "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def make_model(config):
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            # A router that is sure of itself: no choice is near a tie.
            sure = name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight", "router.proj.weight"))
            scale = 0.6 if sure else 3.0 if name.endswith("proj_bias") else 0.2 if p.dim() > 1 else 0.3
            p.copy_(((1.0 if "norm" in name or name.endswith("scale") else 0.0) + scale * noise).half().float())
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.fill_(0.75)
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


def write_latent_keys(writer, config):
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.norm_topk_prob:
        writer.add_expert_weights_norm(True)
    sigmoid = config.model_type != "deepseek_v2"
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)
    if config.n_group > 1:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    rope = config.rope_parameters
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


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
    writer.add_head_count_kv(1 if architecture == "deepseek2" else config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_expert_count(getattr(config, "num_experts", None) or config.num_local_experts)
    if architecture == "deepseek2":
        write_latent_keys(writer, config)
    else:
        writer.add_rope_dimension_count(int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1)))
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
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
        elif key.endswith("kv_b_proj.weight"):
            heads = w.view(config.num_attention_heads, -1, w.shape[1])
            k, v = heads.split([config.qk_nope_head_dim, config.v_head_dim], 1)
            writer.add_tensor(f"blk.{key.split('.')[2]}.attn_k_b.weight", k.transpose(1, 2).contiguous().half().numpy())
            writer.add_tensor(f"blk.{key.split('.')[2]}.attn_v_b.weight", v.contiguous().half().numpy())
            continue
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


# ---- Gemma 4 ------------------------------------------------------------------------------------------------------------


def write_gemma4_gguf(path, config, tensors):
    writer = gguf.GGUFWriter(path, "gemma4")
    write_more_settings(writer, "gemma4", config)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.top_k_experts)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    names, outer = NAMES_OF["gemma4"]
    names = {**names, "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2",
             "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "router.proj": "ffn_gate_inp"}
    alone = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
             "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
             "layer_scalar": "layer_output_scale.weight"}
    for key, w in tensors.items():
        if key in outer:
            to = outer[key]
        else:
            _, _, layer, *inner = key.split(".")
            inner = ".".join(inner)
            to = f"blk.{layer}.{alone[inner]}" if inner in alone else f"blk.{layer}.{names[inner.rpartition('.')[0]]}.weight"
        writer.add_tensor(to, (w.float() if w.dim() == 1 or "inp" in to else w.half()).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- gpt-oss ------------------------------------------------------------------------------------------------------------

E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def draw_blocks(shape, generator):
    """Codes (..., n) and exponents (..., n / 32) of random numbers, and those: as files have them, rows by columns."""
    codes = torch.randint(0, 16, shape, generator=generator)
    exponents = torch.randint(120, 124, (*shape[:-1], shape[-1] // 32), generator=generator)
    return codes, exponents, E2M1[codes] * torch.exp2(exponents.float() - 127).repeat_interleave(32, -1)


def hf_blocks(codes):
    """(..., n) as (..., n / 32, 16): neighbours in a byte, the first in its low nibble."""
    pairs = codes.reshape(*codes.shape[:-1], -1, 16, 2)
    return (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8).contiguous()


def gguf_blocks(codes, exponents):
    """(..., n) as (..., n / 32 * 17): an exponent, then 16 bytes with element j low and element j + 16 high."""
    halves = codes.reshape(*codes.shape[:-1], -1, 2, 16)
    both = (halves[..., 0, :] | halves[..., 1, :] << 4).to(torch.uint8)
    return torch.cat([exponents.to(torch.uint8)[..., None], both], -1).flatten(-2).contiguous()


def write_gpt_oss_gguf(path, config, tensors, blocks):
    writer = gguf.GGUFWriter(path, "gpt-oss")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    names = {**NAMES, "mlp.router": "ffn_gate_inp", "post_attention_layernorm": "post_attention_norm"}
    for key, w in tensors.items():
        _, _, layer, *inner = key.split(".") if key not in OUTER else ("", "", "", key)
        if key in OUTER:
            to = OUTER[key]
        elif key.endswith("sinks"):
            to = f"blk.{layer}.attn_sinks.weight"
        elif key.endswith("down_proj_bias"):
            to = f"blk.{layer}.ffn_down_exps.bias"
        elif key.endswith("gate_up_proj_bias"):
            for i, part in enumerate(("gate", "up")):
                writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.bias", w[:, i::2].float().contiguous().numpy())
            continue
        else:
            to = f"blk.{layer}.{names['.'.join(inner[:-1])]}.{inner[-1]}"
        writer.add_tensor(to, (w.float() if w.dim() == 1 or "inp" in to or to.endswith("bias") else w.half()).numpy())
    for (layer, part), (codes, exponents) in blocks.items():
        # Rows of the first tensor are gate and up in turn.
        of = {"gate": slice(0, None, 2), "up": slice(1, None, 2)} if part == "gate_up_proj" else {"down": slice(None)}
        for name, rows in of.items():
            data = gguf_blocks(codes[:, rows], exponents[:, rows]).numpy()
            writer.add_tensor(f"blk.{layer}.ffn_{name}_exps.weight", data, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_gpt_oss(folder):
    config = MODELS["gpt_oss"]
    config._attn_implementation = config._experts_implementation = "eager"
    model = make_model(config)
    generator = torch.Generator().manual_seed(5)
    blocks = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")) and "experts" in name:
                codes, exponents, numbers = draw_blocks(p.transpose(1, 2).shape, generator)
                p.copy_(numbers.transpose(1, 2))
                blocks[int(name.split(".")[2]), name.split(".")[-1]] = codes, exponents
    tokens = [(7 * i * i + 3 * i + 1) % 128 for i in range(TOKENS)]
    # ggml's ramp begins and ends with whole pairs.
    whole = transformers.AutoModelForCausalLM.from_config(
        type(config)(**{**config.to_dict(), "rope_parameters": {**config.rope_parameters, "truncate": True}})).float().eval()
    whole.config._attn_implementation = whole.config._experts_implementation = "eager"
    whole.load_state_dict(model.state_dict())
    # In f64: what its experts add up is large.
    logits, whole_logits = run(model.double(), tokens).float(), run(whole.double(), tokens).float()
    folder.mkdir(exist_ok=True)
    tensors = {n: p.detach().half().contiguous() for n, p in model.state_dict().items() if not n.endswith(("gate_up_proj", "experts.down_proj"))}
    files = dict(tensors)
    for (layer, part), (codes, exponents) in blocks.items():
        files[f"model.layers.{layer}.mlp.experts.{part}_blocks"] = hf_blocks(codes)
        files[f"model.layers.{layer}.mlp.experts.{part}_scales"] = exponents.to(torch.uint8)
    save(files, folder / "model.safetensors")
    config.architectures = ["GptOssForCausalLM"]
    settings = {**config.to_dict(), "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    write_gpt_oss_gguf(folder / "model.gguf", config, tensors, blocks)
    save({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits, "logits.gguf": whole_logits}, folder / "golden.safetensors")
    print("gpt_oss", json.dumps({"largest": logits.abs().max().item(), "whole pairs": (whole_logits - logits).abs().max().item()}))


# ---- all ----------------------------------------------------------------------------------------------------------------


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
    config._attn_implementation = config._experts_implementation = "eager"
    model = make_model(config)
    tokens = [(7 * i * i + 3 * i + 1) % 128 for i in range(TOKENS)]
    logits = run(model, tokens)
    folder.mkdir(exist_ok=True)
    model.half().save_pretrained(folder)
    for extra in ("generation_config.json",):
        (folder / extra).unlink(missing_ok=True)
    tensors = load_file(folder / "model.safetensors")
    if name in ("glm4_moe", "deepseek_v3"):  # a block for drafts, which is not used
        tensors[f"model.layers.{config.num_hidden_layers}.eh_proj.weight"] = torch.zeros(4, 8, dtype=torch.float16)
    if fused:
        save(fuse(tensors), folder / "model.safetensors")
    else:
        save(tensors, folder / "model.safetensors")
    if name == "gemma4_moe":
        write_gemma4_gguf(folder / "model.gguf", config, tensors)
    else:
        write_gguf(folder / "model.gguf", name, config, {n: w for n, w in tensors.items() if "eh_proj" not in n}, fused)
    save({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits}, folder / "golden.safetensors")
    print(name, json.dumps({"largest": logits.abs().max().item()}))


def main():
    wanted = sys.argv[1:]
    for name in MODELS:
        if name != "gpt_oss" and (not wanted or name in wanted):
            make(name, FOLDER / name, False)
    if not wanted or "gpt_oss" in wanted:
        make_gpt_oss(FOLDER / "gpt_oss")
    if not wanted or "qwen3_moe_fused" in wanted:
        make("qwen3_moe", FOLDER / "qwen3_moe_fused", True)


if __name__ == "__main__":
    main()
