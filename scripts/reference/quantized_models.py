#!/usr/bin/env python3
"""Tiny Llama models and mixtures of experts whose weights are quantised as Hugging Face checkpoints have them, and their logits.

    scripts/reference/quantized_models.py [NAME...]     (needs torch, transformers, safetensors, compressed-tensors)

Writes, for all forms or those that are named, tests/golden/forms/NAME/: config.json with its quantization_config,
model.safetensors, and golden.safetensors with "tokens" i32 (TOKENS) and "logits" f32 (TOKENS, vocab) of transformers with
the dequantised weights. Tensors of compressed-tensors are made by that library; what it dequantises them to is compared with
what is used here. The layouts of GPTQ, AWQ and FP8 are written from their descriptions.
"""

import json
import pathlib
import sys

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden/forms"
TOKENS = 16
STREAMED = ["gptq_sym_g32", "gptq_g128", "awq_g32", "ct_int8", "ct_nvfp4", "moe_gptq"]  # of two layers, so that one can be elsewhere
E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
torch.set_num_threads(1)


def config_of(hidden, ffn, head_dim, layers):
    return transformers.LlamaConfig(vocab_size=64, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers,
                                    num_attention_heads=2, num_key_value_heads=1, head_dim=head_dim,
                                    max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
                                    attn_implementation="eager")


def experts_of(hidden, layers):
    return transformers.Qwen3MoeConfig(vocab_size=64, hidden_size=hidden, intermediate_size=64, moe_intermediate_size=64,
                                       num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                                       num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, max_position_embeddings=64,
                                       rms_norm_eps=1e-5, tie_word_embeddings=True, attn_implementation="eager")


def latent_of():
    """Whose tiles of 128 rows are those of a head's keys and values."""
    return transformers.DeepseekV3Config(vocab_size=64, hidden_size=128, intermediate_size=128, moe_intermediate_size=128, num_hidden_layers=1,
                                         num_attention_heads=2, num_key_value_heads=2, q_lora_rank=None, kv_lora_rank=128, qk_nope_head_dim=64,
                                         qk_rope_head_dim=32, v_head_dim=64, n_routed_experts=3, num_experts_per_tok=2, n_group=1, topk_group=1,
                                         n_shared_experts=1, first_k_dense_replace=0, num_nextn_predict_layers=0, max_position_embeddings=64,
                                         tie_word_embeddings=True, attn_implementation="eager")


def make_model(config):
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            scale = 0.6 if name.endswith("mlp.gate.weight") else 0.2
            p.copy_(((1.0 if "norm" in name else 0.0) + scale * noise).half().float())
    return model


# ---- forms: weight (o, i) -> tensors by suffix, dequantised weight ------------------------------------------------------


def groups_of(w, group):
    return w.reshape(w.shape[0], -1, group)


def affine(w, group, symmetric, scale_dtype, bits=4):
    """q, zero as unsigned numbers (o, i) and (o, groups), scales (o, groups)."""
    top = 2**bits - 1
    g = groups_of(w, group)
    if symmetric:
        scale = (g.abs().amax(-1) / (top / 2)).to(scale_dtype)
        zero = torch.full(scale.shape, 2**(bits - 1))
    else:
        low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
        scale = ((high - low) / top).to(scale_dtype)
        zero = torch.round(-low / scale.float()).clamp(1, top)  # GPTQ stores one less
    q = torch.round(g / scale.float()[..., None] + zero[..., None]).clamp(0, top)
    restored = (q - zero[..., None]) * scale.float()[..., None]
    return q.reshape(w.shape).int(), zero.int(), scale, restored.reshape(w.shape)


def pack(values, bits, order=None):
    """Along the last axis, into i32."""
    each = 32 // bits
    v = values.reshape(*values.shape[:-1], -1, each).long()
    out = torch.zeros(v.shape[:-1], dtype=torch.int64)
    for position in range(each):
        out |= v[..., order[position] if order else position] << bits * position
    return torch.where(out >= 2**31, out - 2**32, out).int().contiguous()


def gptq(group, symmetric, bits=4, v2=False, act_order=False):
    def make(w, name):
        columns = w.shape[1]
        index = torch.arange(columns) // group
        if act_order:
            index = index[torch.randperm(columns, generator=torch.Generator().manual_seed(3))]
        order = torch.argsort(index, stable=True)
        q, zero, scale, restored = affine(w[:, order], group, symmetric, torch.float16, bits)
        back = torch.argsort(order)
        q, restored = q[:, back], restored[:, back]
        if act_order:
            restored = restored.half().float()  # read as f16
        return {"qweight": pack(q, bits).t().contiguous(), "qzeros": pack(zero.t() - (0 if v2 else 1), bits),
                "scales": scale.t().contiguous(), "g_idx": index.int()}, restored
    settings = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": act_order}
    if v2:
        settings["checkpoint_format"] = "gptq_v2"
    return make, settings


def awq(group):
    def make(w, name):
        q, zero, scale, restored = affine(w, group, False, torch.float16)
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return {"qweight": pack(q.t(), 4, order), "qzeros": pack(zero.t(), 4, order),
                "scales": scale.t().contiguous()}, restored
    return make, {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}


def fp8_block(w, name):
    o, i = w.shape
    rows, cols = -(-o // 128), -(-i // 128)
    padded = torch.zeros(rows * 128, cols * 128)
    padded[:o, :i] = w
    tiles = padded.reshape(rows, 128, cols, 128)
    scale = tiles.abs().amax((1, 3)) / 448
    q = (tiles / scale[:, None, :, None]).reshape(rows * 128, cols * 128)[:o, :i].to(torch.float8_e4m3fn)
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:o, :i]
    return {"weight": q, "weight_scale_inv": scale}, q.float() * spread


def compressed(form, weights, scale_dtype=torch.bfloat16):
    """By compressed-tensors, for scales that are made here."""
    settings = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
                "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    compressor = BaseCompressor.get_value_from_registry(form)

    def make(w, name):
        state = {"weight": w}
        if form == "float-quantized":
            state["weight_scale"] = (w.abs().amax(1, keepdim=True) / 448).to(scale_dtype).float()
        elif form == "nvfp4-pack-quantized":
            state["weight_global_scale"] = torch.tensor([448 * 6 / w.abs().max()])
            scale = groups_of(w, 16).abs().amax(-1) / 6 * state["weight_global_scale"]
            state["weight_scale"] = scale.to(torch.float8_e4m3fn).float()
        elif form == "mxfp4-pack-quantized":
            state["weight_scale"] = 2.0**torch.floor(torch.log2(groups_of(w, 32).abs().amax(-1) / 4))
        else:
            bits = weights["num_bits"]
            group = weights.get("group_size") or w.shape[1]
            q, zero, scale, _ = affine(w, group, weights["symmetric"], scale_dtype, bits)
            state["weight_scale"] = scale.float()
            if not weights["symmetric"]:
                state["weight_zero_point"] = (zero - 2**(bits - 1)).to(torch.int8)
        out = compressor.compress(state, scheme)
        restored = compressor.decompress(out, scheme)["weight"].float()
        if form == "nvfp4-pack-quantized":  # which the library rounds to bf16
            codes = torch.stack([out["weight_packed"] & 15, out["weight_packed"] >> 4], -1).reshape(w.shape).long()
            scale = out["weight_scale"].float().repeat_interleave(16, 1)
            assert torch.allclose(E2M1[codes] * scale / out["weight_global_scale"], restored, rtol=1e-2)
            restored = E2M1[codes] * scale / out["weight_global_scale"]
        if out["weight_scale"].dtype == torch.float32:
            out["weight_scale"] = out["weight_scale"].to(scale_dtype)
        return out, restored
    return make, settings


def modelopt_nvfp4(w, name):
    factor = w.abs().max() / (448 * 6)
    scale = (groups_of(w, 16).abs().amax(-1) / 6 / factor).to(torch.float8_e4m3fn)
    step = scale.float() * factor
    codes = ((groups_of(w, 16) / step[..., None]).unsqueeze(-1) - E2M1).abs().argmin(-1)
    packed = codes.reshape(w.shape)[:, 0::2] | codes.reshape(w.shape)[:, 1::2] << 4
    restored = (E2M1[codes] * scale.float()[..., None] * factor).reshape(w.shape)
    return {"weight": packed.to(torch.uint8), "weight_scale": scale, "weight_scale_2": factor}, restored


def mxfp4_blocks(w, name):
    g = groups_of(w, 32)
    exponent = torch.floor(torch.log2(g.abs().amax(-1) / 4)).clamp(-127, 127)
    codes = ((g / 2.0**exponent[..., None]).unsqueeze(-1) - E2M1).abs().argmin(-1)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    scales = (exponent + 127).to(torch.uint8)
    restored = (E2M1[codes] * 2.0**exponent[..., None]).reshape(w.shape)
    library = convert_moe_packed_tensors(blocks[None], scales[None], dtype=torch.float32)[0]
    assert any(a.shape == w.shape and torch.equal(a, restored) for a in (library, library.t()))
    return {"": (blocks, scales)}, restored


def fp8_stack(w, name):
    """All experts of a layer (E, o, i), in tiles of 32."""
    e, o, i = w.shape
    tiles = w.reshape(e, o // 32, 32, i // 32, 32)
    scale = tiles.abs().amax((2, 4)) / 448
    q = (tiles / scale[:, :, None, :, None]).reshape(w.shape).to(torch.float8_e4m3fn)
    spread = scale.repeat_interleave(32, 1).repeat_interleave(32, 2)
    return {"": (q, scale)}, q.float() * spread


def fp8_small(w, name):
    """A matrix in tiles of 32."""
    parts, restored = fp8_stack(w[None], name)
    q, scale = parts[""]
    return {"weight": q[0], "weight_scale_inv": scale[0]}, restored[0]


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
FORMS = {  # name: hidden, ffn, form
    "gptq_sym_g32": (64, 96, *gptq(32, True)),
    "gptq_g128": (128, 128, *gptq(128, False)),
    "gptq_v2_g32": (64, 96, *gptq(32, False, v2=True)),
    "gptq_act_order": (64, 96, *gptq(32, False, act_order=True)),
    "gptq_8bit": (64, 96, *gptq(32, True, bits=8)),
    "awq_g128": (128, 128, *awq(128)),
    "awq_g32": (64, 96, *awq(32)),
    "fp8_block": (128, 160, fp8_block, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                        "weight_block_size": [128, 128]}),
    "ct_fp8": (128, 64, *compressed("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"})),
    "ct_int8": (64, 96, *compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel",
                                                      "symmetric": True})),
    "ct_int4": (64, 96, *compressed("pack-quantized", {**INT4, "symmetric": True})),
    "ct_int4_asym": (64, 96, *compressed("pack-quantized", {**INT4, "symmetric": False})),
    "ct_nvfp4": (64, 128, *compressed("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "symmetric": True,
                                                               "strategy": "tensor_group", "group_size": 16})),
    "ct_mxfp4": (64, 96, *compressed("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "symmetric": True,
                                                              "strategy": "group", "group_size": 32})),
    "modelopt_nvfp4": (64, 96, modelopt_nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    "mxfp4": (64, 96, mxfp4_blocks, {"quant_method": "mxfp4"}),
    # Mixtures of experts: a tensor an expert, and (the fourth) all of a layer in one.
    "moe_fp8_block": (128, 0, fp8_block, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                          "weight_block_size": [128, 128]}),
    "moe_gptq": (64, 0, *gptq(32, True)),
    "moe_awq": (64, 0, *awq(64)),
    "moe_fp8_stack": (64, 0, fp8_small, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                         "weight_block_size": [32, 32]}),
    "moe_ct_int4": (64, 0, *compressed("pack-quantized", {**INT4, "symmetric": True})),
}


def choose_config(name, hidden, ffn):
    layers = 2 if name in STREAMED else 1
    if name == "moe_fp8_block":
        return latent_of()
    return experts_of(hidden, layers) if name.startswith("moe_") else config_of(hidden, ffn, 32 if "fp8" in name else hidden // 2, layers)


def write_experts(key, p, make, tensors):
    """gate_up_proj (E, 2 ff, d) or down_proj (E, d, ff), as a tensor an expert."""
    at, _, what = key.rpartition(".")
    for e in range(p.shape[0]):
        rows = p.shape[1] // 2
        for name, of in {"gate_proj": slice(0, rows), "up_proj": slice(rows, None)}.items() if what == "gate_up_proj" else [(what, slice(None))]:
            base = f"{at}.{e}.{name}"
            parts, restored = make(p[e, of].detach().clone(), base)
            tensors.update({f"{base}.{suffix}": t.contiguous() for suffix, t in parts.items()})
            p[e, of].copy_(restored)


def write(name):
    hidden, ffn, make, settings = FORMS[name]
    config = choose_config(name, hidden, ffn)
    config._experts_implementation = "eager"
    model = make_model(config)
    tensors = {}
    with torch.no_grad():
        for key, b in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                tensors[key] = b.float()
        for key, p in model.named_parameters():
            if ".experts." in key and name == "moe_fp8_stack":
                parts, restored = fp8_stack(p.detach().clone(), key)
                tensors[key], tensors[key + "_scale_inv"] = parts[""]
                p.copy_(restored)
                continue
            if ".experts." in key:
                write_experts(key, p, make, tensors)
                continue
            if not key.endswith(("_proj.weight", "_with_mqa.weight")):
                tensors[key] = p.half()
                continue
            base = key.removesuffix(".weight")
            parts, restored = make(p.detach().clone(), base)
            if "" in parts:
                tensors[key + "_blocks"], tensors[key + "_scales"] = parts[""]
            else:
                tensors.update({f"{base}.{suffix}": t.contiguous() for suffix, t in parts.items()})
            if name == "gptq_act_order":  # as AutoGPTQ writes them, whether the model has them or not
                tensors[f"{base}.bias"] = torch.zeros(p.shape[0], dtype=torch.float16)
            p.copy_(restored)
        tokens = [(i * 29 + 3) % 64 for i in range(TOKENS)]
        logits = model(torch.tensor([tokens])).logits[0].contiguous()
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**model.config.to_dict(), "quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
    save_file(tensors, folder / "model.safetensors")
    save_file({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits}, folder / "golden.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)
    print(name, sum(path.stat().st_size for path in folder.iterdir()))


if __name__ == "__main__":
    for form in sys.argv[1:] or FORMS:
        write(form)
