#!/usr/bin/env python3
"""Files with the headers of large mixtures of experts and a hole for their weights: enough for `ration plan` and `ration inspect`.

    bench/make_sparse_moe.py gpt-oss-120b|qwen3.6-35b-a3b|deepseek-v3|glm-4.5-air OUT.gguf [--packed]

Keys and shapes are those of the published models, kinds those that llama-quantize gives them: q4_k_m, and for gpt-oss mxfp4 experts beside
q8_0. --packed lays experts out as `ration convert --packed` does. A file takes some KiB of disk; its weights are zeros.
"""

import os
import struct
import sys

F32, Q5_0, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 6, 8, 12, 14, 39
BLOCKS = {F32: (1, 4), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210), MXFP4: (32, 17)}
FALL_BACK = {Q4_K: Q5_0, Q6_K: Q8_0}  # where rows are no whole superblocks
YARN = {"rope.scaling.type": "yarn"}
MODELS = {
    "gpt-oss-120b": ("gpt-oss", 36, 2880, 64, 8, 64, 201088, 128, 4, 2880, {
        **YARN, "context_length": 131072, "rope.freq_base": 150000.0, "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096, "attention.sliding_window": 128}),
    "qwen3.6-35b-a3b": ("qwen35moe", 40, 2048, 16, 2, 256, 248320, 256, 8, 512, {
        "context_length": 262144, "rope.freq_base": 1e7, "rope.dimension_count": 64, "expert_shared_feed_forward_length": 512,
        "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16, "ssm.time_step_rank": 32,
        "ssm.inner_size": 4096}),
    "deepseek-v3": ("deepseek2", 61, 7168, 128, 1, 192, 129280, 256, 8, 2048, {
        **YARN, "context_length": 163840, "rope.freq_base": 10000.0, "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096, "rope.scaling.yarn_log_multiplier": 0.1, "rope.dimension_count": 64,
        "feed_forward_length": 18432, "leading_dense_block_count": 3, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_group_count": 8, "expert_group_used_count": 4,
        "attention.q_lora_rank": 1536, "attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512,
        "attention.key_length_mla": 192, "attention.value_length_mla": 128}),
    "glm-4.5-air": ("glm4moe", 46, 4096, 96, 8, 128, 151552, 128, 8, 1408, {
        "context_length": 131072, "rope.freq_base": 1e6, "rope.dimension_count": 64, "feed_forward_length": 10944,
        "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 1.0}),
}


class Shapes:
    """Tensors of one model: (name, rows..., columns) with kinds."""

    def __init__(self, name, packed):
        (self.arch, self.layers, self.dim, self.heads, self.kv, self.head, self.vocab, self.experts, self.chosen, self.ffn,
         self.more) = MODELS[name]
        self.packed, self.records, self.tensors = packed, [], []

    def add(self, name, *shape, kind=None):
        kind = F32 if len(shape) == 1 else Q4_K if kind is None else kind
        if shape[-1] % BLOCKS[kind][0]:
            kind = FALL_BACK[kind]
        self.tensors.append((name, shape, kind))

    def matrix(self, name, *shape, better=False):
        """A weight of products: mostly q4_k, some q6_k; of gpt-oss q8_0."""
        self.add(name, *shape, kind=Q8_0 if self.arch == "gpt-oss" else Q6_K if better else Q4_K)

    def wants_more(self, i):
        eighth = self.layers // 8
        return i < eighth or i >= 7 * self.layers // 8 or (i - eighth) % 3 == 2

    def add_experts(self, b, i):
        kinds = [MXFP4] * 3 if self.arch == "gpt-oss" else [Q4_K, Q4_K, Q6_K if self.wants_more(i) else Q4_K]
        shapes = [("gate", self.ffn, self.dim), ("up", self.ffn, self.dim), ("down", self.dim, self.ffn)]
        self.add(b + "ffn_gate_inp.weight", self.experts, self.dim, kind=F32)
        for expert in range(self.experts if self.packed else 1):
            for (part, *shape), kind in zip(shapes, kinds):
                if self.packed:
                    self.add(f"{b}ffn_{part}.{expert}.weight", *shape, kind=kind)
                    self.records.append(self.tensors.pop())
                else:
                    self.add(f"{b}ffn_{part}_exps.weight", self.experts, *shape, kind=kind)

    def add_dense(self, b, ffn, suffix, better):
        self.matrix(f"{b}ffn_gate{suffix}.weight", ffn, self.dim)
        self.matrix(f"{b}ffn_up{suffix}.weight", ffn, self.dim)
        self.matrix(f"{b}ffn_down{suffix}.weight", self.dim, ffn, better=better)

    def add_attention(self, b, better, gated=False, bias=(), output_bias=False):
        wide, narrow = self.heads * self.head, self.kv * self.head
        for part, rows in (("q", wide * (2 if gated else 1)), ("k", narrow), ("v", narrow)):
            self.matrix(f"{b}attn_{part}.weight", rows, self.dim, better=better and part == "v")
            if bias:
                self.add(f"{b}attn_{part}.bias", rows)
        self.matrix(b + "attn_output.weight", self.dim, wide)
        if output_bias:
            self.add(b + "attn_output.bias", self.dim)

    def add_latent(self, b):
        still, turned, rank, value, q_rank = 128, 64, 512, 128, 1536
        self.matrix(b + "attn_q_a.weight", q_rank, self.dim)
        self.add(b + "attn_q_a_norm.weight", q_rank)
        self.matrix(b + "attn_q_b.weight", self.heads * (still + turned), q_rank)
        self.matrix(b + "attn_kv_a_mqa.weight", rank + turned, self.dim)
        self.add(b + "attn_kv_a_norm.weight", rank)
        self.matrix(b + "attn_k_b.weight", self.heads, rank, still)
        self.matrix(b + "attn_v_b.weight", self.heads, value, rank)
        self.matrix(b + "attn_output.weight", self.dim, self.heads * value)

    def add_delta_net(self, b):
        keys, values, heads = 16 * 128, 32 * 128, 32
        self.matrix(b + "attn_qkv.weight", 2 * keys + values, self.dim)
        self.matrix(b + "attn_gate.weight", values, self.dim)
        self.add(b + "ssm_conv1d.weight", 2 * keys + values, 4, kind=F32)
        self.matrix(b + "ssm_alpha.weight", heads, self.dim)
        self.matrix(b + "ssm_beta.weight", heads, self.dim)
        self.add(b + "ssm_a", heads)
        self.add(b + "ssm_dt.bias", heads)
        self.add(b + "ssm_norm.weight", 128)
        self.matrix(b + "ssm_out.weight", self.dim, values)

    def add_layer(self, i):
        b, better = f"blk.{i}.", self.wants_more(i)
        self.add(b + "attn_norm.weight", self.dim)
        self.add(b + ("ffn_norm.weight" if self.arch == "deepseek2" else "post_attention_norm.weight"), self.dim)
        if self.arch == "gpt-oss":
            self.add_attention(b, better, bias="qkv", output_bias=True)
            self.add(b + "attn_sinks.weight", self.heads)
            self.add_experts(b, i)
            self.add(b + "ffn_gate_inp.bias", self.experts)
            for part, rows in (("gate", self.ffn), ("up", self.ffn), ("down", self.dim)):
                self.add(f"{b}ffn_{part}_exps.bias", self.experts, rows, kind=F32)
        elif self.arch == "qwen35moe":
            if (i + 1) % 4:
                self.add_delta_net(b)
            else:
                self.add_attention(b, better, gated=True)
                self.add(b + "attn_q_norm.weight", self.head)
                self.add(b + "attn_k_norm.weight", self.head)
            self.add_experts(b, i)
            self.add(b + "ffn_gate_inp_shexp.weight", self.dim)
            self.add_dense(b, 512, "_shexp", better)
        else:
            if self.arch == "deepseek2":
                self.add_latent(b)
            else:
                self.add_attention(b, better, bias="qkv")
            if i < self.more["leading_dense_block_count"]:
                self.add_dense(b, self.more["feed_forward_length"], "", better)
            else:
                self.add_experts(b, i)
                self.add(b + "exp_probs_b.bias", self.experts)
                self.add_dense(b, self.ffn, "_shexp", better)

    def make(self):
        self.matrix("token_embd.weight", self.vocab, self.dim)
        for i in range(self.layers):
            self.add_layer(i)
        self.add("output_norm.weight", self.dim)
        self.matrix("output.weight", self.vocab, self.dim, better=True)
        return self.tensors + self.records

    def keys(self):
        keys = {"block_count": self.layers, "embedding_length": self.dim, "feed_forward_length": self.ffn,
                "attention.head_count": self.heads, "attention.head_count_kv": self.kv, "attention.key_length": self.head,
                "attention.value_length": self.head, "attention.layer_norm_rms_epsilon": 1e-6, "expert_count": self.experts,
                "expert_used_count": self.chosen, "expert_feed_forward_length": self.ffn, **self.more}
        keys = {"general.architecture": self.arch, **{f"{self.arch}.{k}": v for k, v in keys.items()}}
        return {**keys, "general.alignment": 4096} if self.packed else keys


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def pair(key, value):
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    shapes = Shapes(sys.argv[1], "--packed" in sys.argv[3:])
    tensors, keys, align = shapes.make(), shapes.keys(), 4096 if shapes.packed else 32
    header = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys)), *(pair(k, v) for k, v in keys.items())]
    at = 0
    for name, shape, kind in tensors:
        block, block_bytes = BLOCKS[kind]
        header.append(text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) +
                      struct.pack("<IQ", kind, at))
        count = 1
        for n in shape:
            count *= n
        at += -(-(count // block * block_bytes) // align) * align
    data = b"".join(header)
    with open(sys.argv[2], "wb") as file:
        file.write(data)
        file.truncate(-(-len(data) // align) * align + at)
    print(f"{sys.argv[2]}: {len(tensors)} tensors, {at / 1e9:.1f} GB, {os.stat(sys.argv[2]).st_blocks * 512 >> 10} KiB on disk")


if __name__ == "__main__":
    main()
