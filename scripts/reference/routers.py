#!/usr/bin/env python3
"""What transformers' routers choose, at the shapes of published models: the meaning of the op `route`.

    scripts/reference/routers.py     (needs torch, transformers, safetensors)

Writes tests/golden/routers.safetensors, for each family "NAME.logits" (rows, experts), "NAME.bias" and "NAME.scale" (experts) where it has
them, "NAME.ids" and "NAME.weights" (rows, chosen), by rising number of the expert. A router's weights are the identity, so that its logits
are what it is given.
"""

import pathlib

import torch
import transformers
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "routers.safetensors"
ROWS = 8
TINY = dict(num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, vocab_size=8, intermediate_size=8)
# Family: the config's class, its settings, experts, chosen.
ROUTERS = {
    "mixtral": (transformers.MixtralConfig, dict(num_local_experts=8, num_experts_per_tok=2), 8),
    "qwen2_moe": (transformers.Qwen2MoeConfig, dict(num_experts=60, num_experts_per_tok=4), 60),
    "qwen3_moe": (transformers.Qwen3MoeConfig, dict(num_experts=128, num_experts_per_tok=8, norm_topk_prob=True), 128),
    "olmoe": (transformers.OlmoeConfig, dict(num_experts=64, num_experts_per_tok=8), 64),
    "gpt_oss": (transformers.GptOssConfig, dict(num_local_experts=128, num_experts_per_tok=4), 128),
    "deepseek_v2": (transformers.DeepseekV2Config, dict(n_routed_experts=160, num_experts_per_tok=6, n_group=8, topk_group=3, norm_topk_prob=False,
                                                       topk_method="group_limited_greedy", routed_scaling_factor=16.0), 160),
    "deepseek_v2_lite": (transformers.DeepseekV2Config, dict(n_routed_experts=64, num_experts_per_tok=6, topk_method="greedy",
                                                            norm_topk_prob=False, routed_scaling_factor=1.0), 64),
    "deepseek_v3": (transformers.DeepseekV3Config, dict(n_routed_experts=256, num_experts_per_tok=8, n_group=8, topk_group=4,
                                                        routed_scaling_factor=2.5, norm_topk_prob=True), 256),
    "glm4_moe": (transformers.Glm4MoeConfig, dict(n_routed_experts=128, num_experts_per_tok=8, routed_scaling_factor=1.0, norm_topk_prob=True), 128),
    "glm4_moe_lite": (transformers.Glm4MoeLiteConfig, dict(n_routed_experts=64, num_experts_per_tok=4, routed_scaling_factor=1.8,
                                                           norm_topk_prob=True), 64),
    "gemma4": (transformers.Gemma4TextConfig, dict(enable_moe_block=True, num_experts=128, top_k_experts=8), 128),
    "qwen3_next": (transformers.Qwen3NextConfig, dict(num_experts=512, num_experts_per_tok=10, norm_topk_prob=True), 512),
    "qwen35_moe": (transformers.Qwen3_5MoeTextConfig, dict(num_experts=256, num_experts_per_tok=8), 256),
}


def find_router(config):
    """The model's module that chooses, and the function of it that gives what: (weights, ids)."""
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    named = dict(model.named_modules())
    for name, module in named.items():
        if hasattr(module, "route_tokens_to_experts"):
            gate = module.gate
            return gate, lambda x, module=module, gate=gate: module.route_tokens_to_experts(gate(x)[0] if isinstance(gate(x), tuple) else gate(x))
    for name, module in named.items():
        if type(module).__name__.endswith("Router"):
            return module, lambda x, module=module: module(x)
    raise SystemExit(f"{config.model_type}: no router is known")


def pick(outputs, chosen):
    """ids and weights among what a router gives."""
    tensors = [t for t in (outputs if isinstance(outputs, tuple) else (outputs,)) if isinstance(t, torch.Tensor)]
    ids = next(t for t in tensors if not t.is_floating_point() and t.shape[-1] == chosen)
    weights = next(t for t in tensors if t.is_floating_point() and t.shape[-1] == chosen)
    return ids.long(), weights.float()


def main():
    torch.manual_seed(3)
    out = {}
    for name, (kind, settings, experts) in ROUTERS.items():
        moe = dict(moe_intermediate_size=8) if name not in ("mixtral", "olmoe", "gpt_oss") else {}
        if name.startswith(("glm4", "deepseek")):
            moe.update(first_k_dense_replace=0, n_shared_experts=1)
        if name in ("glm4_moe_lite", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3"):
            moe.update(kv_lora_rank=8, q_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8)
        if name == "glm4_moe_lite":
            moe.update(mlp_layer_types=["sparse"])
        if name in ("qwen3_next", "qwen35_moe"):
            moe.update(shared_expert_intermediate_size=8, linear_num_key_heads=1, linear_num_value_heads=1, linear_key_head_dim=8,
                       linear_value_head_dim=8, head_dim=8, layer_types=["full_attention"])
        if name == "gemma4":
            moe.update(head_dim=8, global_head_dim=8, hidden_size_per_layer_input=0, vocab_size_per_layer_input=8, layer_types=["full_attention"])
        if name == "gpt_oss":
            moe.update(head_dim=8)
        config = kind(**{**TINY, "hidden_size": experts, **moe, **settings})
        config._attn_implementation = config._experts_implementation = "eager"
        router, route = find_router(config)
        chosen = settings.get("num_experts_per_tok") or settings["top_k_experts"]
        logits = torch.randn(ROWS, experts) * 2
        with torch.no_grad():
            for part, p in [*router.named_parameters(), *router.named_buffers()]:
                if p.dim() == 2:
                    p.copy_(torch.eye(experts))
                elif part.endswith("e_score_correction_bias"):
                    p.copy_(torch.randn(experts) * 0.2)
                    out[f"{name}.bias"] = p.clone()
                elif part.endswith("per_expert_scale"):
                    p.copy_(1 + 0.3 * torch.randn(experts))
                    out[f"{name}.scale"] = p.clone()
                elif part.endswith("bias"):
                    p.zero_()
                elif part.endswith("scale"):
                    p.copy_(torch.full_like(p, experts ** 0.5))
            x = logits
            if name == "gemma4":  # it norms what it reads
                logits = x * (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
            ids, weights = pick(route(x), chosen)
        order = ids.argsort(-1)
        out[f"{name}.logits"] = logits.contiguous()
        out[f"{name}.ids"] = ids.gather(-1, order).int().contiguous()
        out[f"{name}.weights"] = weights.gather(-1, order).contiguous()
        print(name, tuple(ids.shape), weights.sum(-1)[0].item())
    save_file(out, OUT)


if __name__ == "__main__":
    main()
