#!/usr/bin/env python3
"""Tiny text models with random weights, and the logits that Hugging Face's transformers computes for them.

    scripts/reference/text_models.py [NAME...]     (needs torch, transformers, safetensors, gguf)

Writes, for all models or those that are named, tests/golden/text/NAME/: config.json and model.safetensors as save_pretrained does (weights rounded to f16, so that both
sides have the same), and, where llama.cpp has the architecture, model.gguf with the same weights. golden.safetensors holds
"tokens" i32 (TOKENS) and "logits" f32 (TOKENS, vocab); "logits.gguf" where the GGUF file cannot say all of it (Qwen2's and StarCoder2's windows,
Gemma's scale of scores).
lora/ has adapters in PEFT's form, and golden.safetensors the logits of models whose weights they have been added to: one and
two for `llama3` ("logits.one", "logits.both"), conv for `gpt2` ("logits.conv"), head for `qwen2` without its window ("logits.head"), whose head is tied.
"""

import copy
import json
import math
import pathlib
import shutil
import sys

import gguf
import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden/text"
TOKENS = 40
SMALL = dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager")

FOUR = {**SMALL, "num_hidden_layers": 4, "intermediate_size": 32}
NORMED = {k: v for k, v in SMALL.items() if k != "rms_norm_eps"}

# Rope is stretched from contexts shorter than TOKENS, windows are shorter than TOKENS.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.25, 1.5], "long_factor": [1.5, 3.0, 7.0],
        "partial_rotary_factor": 0.75}
MODELS = {
    "llama3": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA3, head_dim=16),
    "llama_linear": transformers.LlamaConfig(**SMALL, rope_parameters={"rope_type": "linear", "factor": 4.0,
                                                                       "rope_theta": 10000.0},
                                             attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=11, head_dim=12),
    "qwen2": transformers.Qwen2Config(**SMALL, rope_parameters=YARN, tie_word_embeddings=True,
                                      use_sliding_window=True, sliding_window=9, max_window_layers=1),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=False),
    "gpt2": transformers.GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                    attn_implementation="eager"),
    # The third of three layers sees all; the scale of scores is not 1 / sqrt(head_dim).
    "gemma3": transformers.Gemma3TextConfig(**{**SMALL, "num_hidden_layers": 4, "num_key_value_heads": 1}, head_dim=16,
                                            query_pre_attn_scalar=24, sliding_window=9,
                                            layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                                         "sliding_attention"], rope_parameters={
                                                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "ministral3": transformers.Ministral3Config(**SMALL, head_dim=8, rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.5,
                                                                                      "llama_4_scaling_beta": 0.7}),
    # The context of the test is 64: beyond 16 it is long, not so beyond 64.
    "phi3": transformers.Phi3Config(**{**SMALL, "max_position_embeddings": 128}, pad_token_id=0, sliding_window=20,
                                    original_max_position_embeddings=16, rope_parameters=dict(LONG)),
    "phi3_short": transformers.Phi3Config(**{**SMALL, "max_position_embeddings": 128}, pad_token_id=0, tie_word_embeddings=True,
                                          original_max_position_embeddings=64, rope_parameters=dict(LONG)),
    "gemma2": transformers.Gemma2Config(**{**SMALL, "num_key_value_heads": 1, "num_hidden_layers": 3}, head_dim=16, sliding_window=9,
                                        query_pre_attn_scalar=24, attn_logit_softcapping=1.5, final_logit_softcapping=3.0),
    # The form of the 31B: heads of two widths, keys as values in every other layer.
    "gemma4": transformers.Gemma4TextConfig(**FOUR, head_dim=8, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True,
                                            hidden_size_per_layer_input=0, vocab_size_per_layer_input=128, sliding_window=9,
                                            final_logit_softcapping=3.0, layer_types=["sliding_attention", "full_attention"] * 2),
    "smollm3": transformers.SmolLM3Config(**FOUR, pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 2e4}),
    "granite": transformers.GraniteConfig(**SMALL, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.6,
                                          logits_scaling=2.5),
    "olmo2": transformers.Olmo2Config(**SMALL, pad_token_id=0),
    "olmo3": transformers.Olmo3Config(**FOUR, pad_token_id=0, sliding_window=9, rope_parameters={
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "starcoder2": transformers.Starcoder2Config(**NORMED, norm_epsilon=1e-5, sliding_window=9),
    "cohere2": transformers.Cohere2Config(**{**FOUR, "rms_norm_eps": None}, sliding_window=9, logit_scale=0.5, pad_token_id=0),
    "gptneox": transformers.GPTNeoXConfig(**{k: v for k, v in NORMED.items() if k != "num_key_value_heads"}, rotary_pct=0.5),
    # Eight heads of q to two of k and v, two norms; and one head of k and v, one norm.
    "falcon": transformers.FalconConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=8, num_kv_heads=2,
                                        ffn_hidden_size=64, new_decoder_architecture=True, max_position_embeddings=64,
                                        attn_implementation="eager"),
    "falcon_one": transformers.FalconConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                            ffn_hidden_size=64, multi_query=True, max_position_embeddings=64,
                                            attn_implementation="eager"),
}
MODELS["gemma3_seeing"] = MODELS["gemma3"]
MODELS["mistral3_seeing"] = MODELS["ministral3"]
GGUF = {"gemma4": "gemma4", "ministral3": "mistral3", "phi3": "phi3", "phi3_short": "phi3", "gemma2": "gemma2", "llama3": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gpt2": "gpt2", "gemma3": "gemma3", "smollm3": "smollm3",
        "granite": "granite", "olmo2": "olmo2", "olmo3": "olmo2", "starcoder2": "starcoder2", "cohere2": "cohere2", "gptneox": "gptneox",
        "falcon": "falcon", "falcon_one": "falcon"}


def make_model(config):
    """Weights large enough for the logits to depend on every part, norms that are not 1, biases that are not 0."""
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            scale = 0.2 if p.dim() > 1 else 0.3
            is_norm = "norm" in name or (".ln_" in name and name.endswith("weight"))
            # Norms of Gemma 2 and 3 multiply by 1 + w.
            p.copy_(((1.0 if is_norm and config.model_type[:6] not in ("gemma2", "gemma3") else 0.0) + scale * noise).half().float())
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.fill_(0.75)
    return model


def copy_without_window(config):
    return type(config)(**{**config.to_dict(), "use_sliding_window": False, "sliding_window": None, "layer_types": None})


def save(tensors, path):
    save_file(tensors, path)
    path.chmod(0o644)


def run(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].contiguous()


# ---- GGUF ---------------------------------------------------------------------------------------------------------------

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}


GPT2_NAMES = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
              "ln_1": "attn_norm", "ln_2": "ffn_norm"}
GPT2_OUTER = {"transformer.wte.weight": "token_embd.weight", "transformer.wpe.weight": "position_embd.weight",
              "transformer.ln_f.weight": "output_norm.weight", "transformer.ln_f.bias": "output_norm.bias"}
GEMMA_NAMES = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


FUSED_NAMES = {"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
               "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "ln_attn": "attn_norm_2", "ln_mlp": "attn_norm"}
NAMES_OF = {
    "gpt2": (GPT2_NAMES, GPT2_OUTER),
    "gemma3": (GEMMA_NAMES, OUTER),
    "gemma2": (GEMMA_NAMES, OUTER),
    "gemma4": ({**GEMMA_NAMES, "layer_scalar": "layer_output_scale"}, OUTER),
    "phi3": ({**NAMES, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}, OUTER),
    "olmo2": (GEMMA_NAMES, OUTER),
    "starcoder2": ({**NAMES, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}, {**OUTER, "model.norm.bias": "output_norm.bias"}),
    "gptneox": ({**FUSED_NAMES, "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output"},
                {"gpt_neox.embed_in.weight": "token_embd.weight", "embed_out.weight": "output.weight", "lm_head.weight": "output.weight",
                 **{f"gpt_neox.final_layer_norm.{w}": f"output_norm.{w}" for w in ("weight", "bias")}}),
    "falcon": ({**FUSED_NAMES, "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output"},
               {"transformer.word_embeddings.weight": "token_embd.weight", "lm_head.weight": "output.weight",
                **{f"transformer.ln_f.{w}": f"output_norm.{w}" for w in ("weight", "bias")}}),
}


def gguf_name(name, architecture):
    names, outer = NAMES_OF.get(architecture, (NAMES, OUTER))
    if name in outer:
        return outer[name]
    _, _, layer, *rest = name.split(".")
    return f"blk.{layer}.{names['.'.join(rest[:-1])]}.{rest[-1]}"


def permute(w, heads):
    """As llama.cpp's converter does for the llama family: pairs side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gpt2_settings(writer, config):
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def ungroup(w, heads, kv_heads, head_dim):
    """Rows of q, k, v a head of k as all of q, of k, of v."""
    groups = w.reshape(kv_heads, heads // kv_heads + 2, head_dim, *w.shape[1:])
    return torch.cat([groups[:, :-2].flatten(0, 2), groups[:, -2].flatten(0, 1), groups[:, -1].flatten(0, 1)])


def count_kv_heads(config):
    if config.model_type == "falcon":
        return config.num_kv_heads if config.new_decoder_architecture else 1
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def rope_factor(config):
    original = config.rope_parameters["original_max_position_embeddings"]
    return math.sqrt(1 + math.log(config.max_position_embeddings / original) / math.log(original))


def write_more_settings(writer, architecture, config):
    """What the newer architectures have, as llama.cpp's converters name it."""
    mixed = architecture == "gemma4"  # heads differ from layer to layer
    head_dim = not mixed and getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or config.ffn_hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if architecture == "gemma4":
        writer.add_head_count_kv([2 if t == "sliding_attention" else 1 for t in config.layer_types])
    elif architecture != "gptneox":
        writer.add_head_count_kv(count_kv_heads(config))
    if architecture in ("starcoder2", "cohere2", "gptneox", "falcon"):
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if architecture not in ("gptneox", "falcon", "gemma2"):
        writer.add_rope_freq_base(rope["rope_theta"])
    if architecture == "gemma4":
        writer.add_rope_dimension_count(16)
    elif architecture not in ("starcoder2", "falcon", "gemma2"):
        writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1) * head_dim))
    if architecture == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if architecture == "olmo2" and config.model_type == "olmo3":
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if architecture == "mistral3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if architecture == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(rope_factor(config))
        for kind in ("short", "long"):
            writer.add_tensor(f"rope_factors_{kind}.weight", torch.tensor(rope[f"{kind}_factor"]).numpy())
    if architecture == "gemma2":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture == "gemma4":
        slides = [t == "sliding_attention" for t in config.layer_types]
        writer.add_key_length(16)
        writer.add_value_length(16)
        writer.add_uint32("gemma4.attention.key_length_swa", 8)
        writer.add_uint32("gemma4.attention.value_length_swa", 8)
        writer.add_uint32("gemma4.rope.dimension_count_swa", 8)
        writer.add_float32("gemma4.rope.freq_base_swa", 10000.0)
        writer.add_uint32("gemma4.attention.shared_kv_layers", 0)
        writer.add_uint32("gemma4.embedding_length_per_layer_input", 0)
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern(slides)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
        writer.add_tensor("rope_freqs.weight", torch.tensor([1.0] * 2 + [1e30] * 6).numpy())
    if architecture == "cohere2":
        writer.add_logit_scale(config.logit_scale)
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if architecture == "gptneox":
        writer.add_parallel_residual(config.use_parallel_residual)
    if architecture == "falcon":
        writer.add_tensor_data_layout("jploski")


def write_settings(writer, architecture, config, model):
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(1e6 if architecture == "gemma3" else 10000.0)
    writer.add_rope_dimension_count(head_dim)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.rope_parameters
    if architecture == "gemma3":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["full_attention"]["factor"])
        writer.add_sliding_window(config.sliding_window)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 3)
        return
    if rope["rope_type"] == "llama3":
        plain = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq.double()).float().numpy())
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if getattr(config, "sliding_window", None) and architecture == "llama":
        writer.add_sliding_window(config.sliding_window)


PERMUTED = ("llama", "mistral3", "granite", "smollm3")


def write_gguf(path, architecture, config, model):
    writer = gguf.GGUFWriter(path, architecture)
    if architecture == "gpt2":
        write_gpt2_settings(writer, config)
    elif architecture not in ("llama", "qwen2", "qwen3", "gemma3"):
        write_more_settings(writer, architecture, config)
    else:
        write_settings(writer, architecture, config, model)
    scalars = [(f"{name}.weight", b) for name, b in model.named_buffers() if name.endswith("layer_scalar")]
    for name, p in [*model.named_parameters(), *scalars]:
        w = p.detach()
        if architecture == "gpt2" and w.dim() > 1 and ".h." in name:
            w = w.T  # Conv1D holds (in, out)
        if architecture in ("gemma2", "gemma3") and "norm" in name:
            w = w + 1
        if architecture in PERMUTED and ".q_proj" in name:
            w = permute(w, config.num_attention_heads)
        if architecture in PERMUTED and ".k_proj" in name:
            w = permute(w, config.num_key_value_heads)
        if ".query_key_value." in name:
            w = ungroup(w, config.num_attention_heads, count_kv_heads(config), config.hidden_size // config.num_attention_heads)
        writer.add_tensor(gguf_name(name, architecture), (w.half() if w.dim() > 1 else w).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- LoRA ---------------------------------------------------------------------------------------------------------------

ADAPTERS = {
    "one": dict(r=4, lora_alpha=8.0, use_rslora=False, modules=["self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"]),
    "two": dict(r=2, lora_alpha=3.0, use_rslora=True, modules=["self_attn.q_proj", "self_attn.o_proj"]),
    "conv": dict(r=3, lora_alpha=6.0, use_rslora=False, modules=["attn.c_attn", "mlp.c_proj"]),
    "head": dict(r=3, lora_alpha=6.0, use_rslora=False,
                 modules=["self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj", "lm_head"]),
}


def write_adapter(name, of, model):
    """Writes the adapter and adds it to the model's weights."""
    folder = FOLDER / "lora" / name
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(len(of["modules"]))
    tensors = {}
    scale = of["lora_alpha"] / (of["r"] ** 0.5 if of["use_rslora"] else of["r"])
    for module_name, module in list(model.named_modules()):
        if not module_name.endswith(tuple(of["modules"])):
            continue
        transposed = isinstance(module, transformers.pytorch_utils.Conv1D)
        out, into = module.weight.shape[::-1] if transposed else module.weight.shape
        a = (0.2 * torch.randn(of["r"], into, generator=generator)).half()
        b = (0.2 * torch.randn(out, of["r"], generator=generator)).half()
        tensors[f"base_model.model.{module_name}.lora_A.weight"] = a
        tensors[f"base_model.model.{module_name}.lora_B.weight"] = b
        with torch.no_grad():
            delta = scale * (b.float() @ a.float())
            module.weight += delta.T if transposed else delta
    save(tensors, folder / "adapter_model.safetensors")
    config = dict(peft_type="LORA", r=of["r"], lora_alpha=of["lora_alpha"], use_rslora=of["use_rslora"], bias="none",
                  target_modules=[m.split(".")[-1] for m in of["modules"]], alpha_pattern={}, rank_pattern={})
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


# ---- models of images and text ------------------------------------------------------------------------------------------

SEEING = {"gemma3_seeing": "gemma3", "mistral3_seeing": "mistral3"}


def nest(folder, model_type):
    """A text model's folder as that of one that has images, too; those are a tensor that nobody reads."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "text_config": config}, indent=2) + "\n")
    tensors = {f"language_model.{name}": w for name, w in load_file(folder / "model.safetensors").items()}
    save({**tensors, "vision_tower.patch.weight": torch.zeros(2, 3), "multi_modal_projector.norm.weight": torch.zeros(3)},
         folder / "model.safetensors")


def main():
    names = sys.argv[1:] or list(MODELS)
    for name in names:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    tokens = torch.randint(0, SMALL["vocab_size"], (TOKENS,), generator=torch.Generator().manual_seed(3)).tolist()
    for name in names:
        config = MODELS[name]
        model = make_model(config)
        golden = {"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": run(model, tokens)}
        folder = FOLDER / name
        copy.deepcopy(model).half().save_pretrained(folder)
        if name in SEEING:
            nest(folder, SEEING[name])
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name in GGUF:
            write_gguf(folder / "model.gguf", GGUF[name], config, model)
        if name in ("gemma2", "gemma3"):  # GGUF files do not say the scale of scores
            golden["logits.gguf"] = run(make_model(type(config)(**{**config.to_dict(), "query_pre_attn_scalar": 16})), tokens)
        if name == "starcoder2":  # nor this one's window
            golden["logits.gguf"] = run(make_model(copy_without_window(config)), tokens)
        if name == "gpt2":
            write_adapter("conv", ADAPTERS["conv"], model)
            golden["logits.conv"] = run(model, tokens)
        if name == "qwen2":
            plain = make_model(copy_without_window(config))
            golden["logits.gguf"] = run(plain, tokens)
            plain.lm_head.weight = torch.nn.Parameter(plain.lm_head.weight.clone())  # the embedding stays as it is
            write_adapter("head", ADAPTERS["head"], plain)
            golden["logits.head"] = run(plain, tokens)
        if name == "llama3":
            write_adapter("one", ADAPTERS["one"], model)
            golden["logits.one"] = run(model, tokens)
            write_adapter("two", ADAPTERS["two"], model)
            golden["logits.both"] = run(model, tokens)
        save(golden, folder / "golden.safetensors")
        (folder / "model.safetensors").chmod(0o644)
        print(name, "largest logit", float(golden["logits"].abs().max()),
              sum(f.stat().st_size for f in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
