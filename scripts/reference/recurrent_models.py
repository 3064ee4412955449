#!/usr/bin/env python3
"""Tiny text models whose layers keep states (LFM2, Qwen3.5, Qwen3-Next), as scripts/reference/text_models.py makes the others.

    scripts/reference/recurrent_models.py [NAME...]     (needs torch, transformers, safetensors, gguf)

Writes tests/golden/text/NAME/: config.json, model.safetensors, model.gguf, golden.safetensors. "logits" are those of one prompt;
transformers computes it in one piece, and, as a check of its own, token by token with a cache.
`qwen35_seeing` is the form of the published files: settings in "text_config", names one module further in, parts for images and drafts.
"""

import copy
import json
import sys

import gguf
import torch
import transformers
from safetensors.torch import load_file

from text_models import FOLDER, SMALL, TOKENS, run, save

WITHOUT_EPS = {k: v for k, v in SMALL.items() if k != "rms_norm_eps"}
QWEN = dict(**{**SMALL, "num_hidden_layers": 4, "intermediate_size": 32, "rms_norm_eps": 1e-6}, head_dim=16,
            linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, pad_token_id=0)
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
        "mrope_interleaved": True}
MODELS = {
    "lfm2": transformers.Lfm2Config(**{**WITHOUT_EPS, "num_hidden_layers": 3, "intermediate_size": 90}, norm_eps=1e-5,
                                    block_multiple_of=16, layer_types=["conv", "full_attention", "conv"]),
    # Four value heads share two key heads.
    "qwen35": transformers.Qwen3_5TextConfig(**QWEN, linear_num_key_heads=2, linear_num_value_heads=4, rope_parameters=ROPE,
                                             tie_word_embeddings=True),
    "qwen35_seeing": transformers.Qwen3_5TextConfig(**{**QWEN, "num_hidden_layers": 2}, linear_num_key_heads=2,
                                                    linear_num_value_heads=2, full_attention_interval=2, rope_parameters=ROPE),
    # Dense: without experts. GGUF has no such form.
    "qwen3_next": transformers.Qwen3NextConfig(**{**QWEN, "num_hidden_layers": 2}, linear_num_key_heads=2, linear_num_value_heads=4,
                                               layer_types=["linear_attention", "full_attention"], num_experts=0,
                                               rope_parameters={k: v for k, v in ROPE.items() if "mrope" not in k}),
    # The form of the published files, with experts: fused in both containers.
    "qwen35_moe": transformers.Qwen3_5MoeTextConfig(**{k: v for k, v in QWEN.items() if k != "intermediate_size"}, linear_num_key_heads=2,
                                                    linear_num_value_heads=4, rope_parameters=ROPE, num_experts=6, num_experts_per_tok=3,
                                                    moe_intermediate_size=16, shared_expert_intermediate_size=24),
    "qwen3_next_moe": transformers.Qwen3NextConfig(**{**QWEN, "num_hidden_layers": 2}, linear_num_key_heads=2, linear_num_value_heads=4,
                                                   layer_types=["linear_attention", "full_attention"], num_experts=6,
                                                   num_experts_per_tok=3, moe_intermediate_size=16, shared_expert_intermediate_size=24,
                                                   rope_parameters={k: v for k, v in ROPE.items() if "mrope" not in k}),
}


def make_model(config):
    """Rates and biases of the delta rule that keep some of a state for a while; all else as for the others. Of mixtures a seed whose
    logits in f32 are within 3e-5 of those in f64."""
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(9 if getattr(config, "num_experts", 0) else 7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            is_norm = "norm" in name and (config.model_type == "lfm2" or name.endswith("linear_attn.norm.weight"))
            scale = 0.5 if "conv" in name and p.dim() == 3 else 0.6 if name.endswith("mlp.gate.weight") else 0.2 if p.dim() > 1 else 0.3
            p.copy_(((1.0 if is_norm else -1.0 if "A_log" in name else 0.0) + scale * noise).half().float())
    return model


def run_stepwise(model, tokens):
    """A prompt of a few tokens, then one at a time."""
    rows, cache = [], None
    with torch.no_grad():
        for piece in [tokens[:7]] + [[t] for t in tokens[7:]]:
            out = model(torch.tensor([piece]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.logits[0])
    return torch.cat(rows).contiguous()


# ---- GGUF ---------------------------------------------------------------------------------------------------------------

LFM2 = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm", "conv.conv": "shortconv.conv", "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down",
        "feed_forward.w3": "ffn_up"}
QWEN35 = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q",
          "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
          "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "linear_attn.in_proj_qkv": "attn_qkv",
          "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta",
          "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
          "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
          "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
          "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "model.embedding_norm.weight": "token_embd_norm.weight", "lm_head.weight": "output.weight"}


def gguf_name(name, names):
    if name in OUTER:
        return OUTER[name]
    _, _, layer, *rest = name.split(".")
    if "experts" in rest:  # all of a layer in a tensor
        return f"blk.{layer}.ffn_{rest[-1].removesuffix('_proj')}_exps.weight"
    if rest[-1] == "A_log":
        return f"blk.{layer}.ssm_a"
    if rest[-1] == "dt_bias":
        return f"blk.{layer}.ssm_dt.bias"
    return f"blk.{layer}.{names['.'.join(rest[:-1])]}.{rest[-1]}"


def deal(w, axis, config, head_dim):
    """Value heads in the order of their key heads, dealt out to key heads in turn."""
    keys = config.linear_num_key_heads
    shape = list(w.shape)
    w = w.reshape(shape[:axis] + [keys, config.linear_num_value_heads // keys, head_dim] + shape[axis + 1:])
    return w.transpose(axis, axis + 1).reshape(shape)


def convert_qwen(name, w, config):
    dim = config.linear_value_head_dim
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return w + 1
    if name.endswith("A_log"):
        return deal(-torch.exp(w), 0, config, 1)
    if name.endswith(("dt_bias", "in_proj_a.weight", "in_proj_b.weight")):
        return deal(w, 0, config, 1)
    if name.endswith("in_proj_z.weight"):
        return deal(w, 0, config, dim)
    if name.endswith("out_proj.weight"):
        return deal(w, 1, config, dim)
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        keys = 2 * config.linear_num_key_heads * config.linear_key_head_dim
        w = w.squeeze(1) if w.dim() == 3 else w
        return torch.cat([w[:keys], deal(w[keys:], 0, config, dim)])
    return w


def write_settings(writer, config):
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "lfm2":
        writer.add_head_count_kv([0 if t == "conv" else config.num_key_value_heads for t in config.layer_types])
        writer.add_shortconv_l_cache(config.conv_L_cache)
        writer.add_layer_norm_rms_eps(config.norm_eps)
        writer.add_feed_forward_length(64)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_vocab_size(config.vocab_size)
        return
    if config.model_type == "qwen3_5_moe_text":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(4)


def write_gguf(path, config, model):
    lfm2 = config.model_type == "lfm2"
    writer = gguf.GGUFWriter(path, "lfm2" if lfm2 else "qwen35moe" if "moe" in config.model_type else "qwen35")
    write_settings(writer, config)
    for name, p in model.named_parameters():
        w = p.detach()
        w = w.squeeze(1) if lfm2 and w.dim() == 3 else w if lfm2 else convert_qwen(name, w, config)
        w = w.flatten() if "shared_expert_gate" in name else w
        half = w.dim() > 1 and not name.endswith("mlp.gate.weight") and "conv" not in name.replace("conv.in_proj", "").replace("conv.out_proj", "")
        writer.add_tensor(gguf_name(name, LFM2 if lfm2 else QWEN35), (w.half() if half else w).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- the whole ----------------------------------------------------------------------------------------------------------

def make_seeing(folder):
    """Settings and names as the published files have them, with tensors of images and drafts."""
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"].removesuffix("_text")
    outer = {"architectures": ["Qwen3_5MoeForConditionalGeneration" if "moe" in kind else "Qwen3_5ForConditionalGeneration"],
             "model_type": kind, "text_config": config, "vision_config": {"model_type": kind, "hidden_size": 8}}
    (folder / "config.json").write_text(json.dumps(outer, indent=2) + "\n")
    tensors = load_file(folder / "model.safetensors")
    tensors = {("model.language_model." + n[6:] if n.startswith("model.") else n): t for n, t in tensors.items()}
    tensors["model.visual.pos_embed.weight"] = torch.zeros(2, 8, dtype=torch.float16)
    tensors["mtp.fc.weight"] = torch.zeros(4, 4, dtype=torch.float16)
    save(tensors, folder / "model.safetensors")


def main():
    tokens = torch.randint(0, SMALL["vocab_size"], (TOKENS,), generator=torch.Generator().manual_seed(3)).tolist()
    for name in sys.argv[1:] or list(MODELS):
        config, folder = MODELS[name], FOLDER / name
        model = make_model(config)
        logits = run(model, tokens)
        print(name, "largest logit", logits.abs().max().item(), "stepwise off by",
              (run_stepwise(model, tokens) - logits).abs().max().item())
        folder.mkdir(parents=True, exist_ok=True)
        copy.deepcopy(model).half().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name in ("qwen35_seeing", "qwen35_moe"):
            make_seeing(folder)
        if name in ("lfm2", "qwen35", "qwen35_moe"):
            write_gguf(folder / "model.gguf", config, model)
        save({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits}, folder / "golden.safetensors")
        (folder / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
