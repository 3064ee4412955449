#!/usr/bin/env python3
"""Tiny text models with random weights, and the logits that Hugging Face's transformers computes for them.

    scripts/reference/text_models.py [NAME...]     (needs torch, transformers, safetensors, gguf)

Writes, for all models or those that are named, tests/golden/text/NAME/: config.json and model.safetensors as save_pretrained does (weights rounded to f16, so that both
sides have the same), and, where llama.cpp has the architecture, model.gguf with the same weights. golden.safetensors holds
"tokens" i32 (TOKENS) and "logits" f32 (TOKENS, vocab); "logits.gguf" where the GGUF file cannot say all of it (Qwen2's windows, Gemma 3's
scale of scores).
lora/ has adapters in PEFT's form, and golden.safetensors the logits of models whose weights they have been added to: one and
two for `llama3` ("logits.one", "logits.both"), conv for `gpt2` ("logits.conv"), head for `qwen2` without its window ("logits.head"), whose head is tied.
"""

import copy
import json
import pathlib
import shutil
import sys

import gguf
import torch
import transformers
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden/text"
TOKENS = 40
SMALL = dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager")

# Rope is stretched from contexts shorter than TOKENS, windows are shorter than TOKENS.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
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
}
GGUF = {"llama3": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gpt2": "gpt2", "gemma3": "gemma3"}


def make_model(config):
    """Weights large enough for the logits to depend on every part, norms that are not 1, biases that are not 0."""
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            scale = 0.2 if p.dim() > 1 else 0.3
            is_norm = "norm" in name or (".ln_" in name and name.endswith("weight"))
            # Gemma's norms multiply by 1 + w.
            p.copy_(((1.0 if is_norm and config.model_type != "gemma3_text" else 0.0) + scale * noise).half().float())
    return model


def copy_without_window(config):
    return type(config)(**{**config.to_dict(), "use_sliding_window": False, "layer_types": None})


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


def gguf_name(name, architecture):
    if architecture == "gpt2":
        if name in GPT2_OUTER:
            return GPT2_OUTER[name]
        _, _, layer, *rest = name.split(".")
        return f"blk.{layer}.{GPT2_NAMES['.'.join(rest[:-1])]}.{rest[-1]}"
    if name in OUTER:
        return OUTER[name]
    _, _, layer, *rest = name.split(".")
    names = GEMMA_NAMES if architecture == "gemma3" else NAMES
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


def write_gguf(path, architecture, config, model):
    writer = gguf.GGUFWriter(path, architecture)
    if architecture == "gpt2":
        write_gpt2_settings(writer, config)
    else:
        write_settings(writer, architecture, config, model)
    for name, p in model.named_parameters():
        w = p.detach()
        if architecture == "gpt2" and w.dim() > 1 and ".h." in name:
            w = w.T  # Conv1D holds (in, out)
        if architecture == "gemma3" and "norm" in name:
            w = w + 1
        if architecture == "llama" and ".q_proj" in name:
            w = permute(w, config.num_attention_heads)
        if architecture == "llama" and ".k_proj" in name:
            w = permute(w, config.num_key_value_heads)
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


def main():
    names = sys.argv[1:] or list(MODELS)
    for name in names if sys.argv[1:] else [""]:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    tokens = torch.randint(0, SMALL["vocab_size"], (TOKENS,), generator=torch.Generator().manual_seed(3)).tolist()
    for name in names:
        config = MODELS[name]
        model = make_model(config)
        golden = {"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": run(model, tokens)}
        folder = FOLDER / name
        copy.deepcopy(model).half().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name in GGUF:
            write_gguf(folder / "model.gguf", GGUF[name], config, model)
        if name == "gemma3":  # GGUF files do not say the scale of scores
            golden["logits.gguf"] = run(make_model(type(config)(**{**config.to_dict(), "query_pre_attn_scalar": 16})), tokens)
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
