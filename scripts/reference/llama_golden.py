#!/usr/bin/env python3
"""Writes tests/golden/llama_golden.safetensors: a 2-layer Llama with grouped heads, its gradients and three AdamW steps in
PyTorch (CPU, f32).

Needs torch:  python scripts/reference/llama_golden.py
The model is Hugging Face's LlamaForCausalLM, written out: the same weights under the same names, rotary halves, f32
throughout. The file's format is in golden.py; tests/golden/llama_golden_test.c has the same sizes.
"""

import torch
from torch import nn
from torch.nn import functional as F

from golden import Golden

LAYERS, DIM, HEADS, KV_HEADS, FFN, VOCAB = 2, 48, 6, 2, 96, 80
BATCH, TOKENS = 3, 20
HEAD_DIM = DIM // HEADS


def linear(inside, outside):
    return nn.Linear(inside, outside, bias=False)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotate(x):
    """x (batch, heads, tokens, head_dim), each sequence from position 0."""
    frequency = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequency
    cos, sin = (f(angle).repeat(1, 2).to(x.dtype) for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = linear(DIM, HEADS * HEAD_DIM)
        self.k_proj = linear(DIM, KV_HEADS * HEAD_DIM)
        self.v_proj = linear(DIM, KV_HEADS * HEAD_DIM)
        self.o_proj = linear(HEADS * HEAD_DIM, DIM)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) * HEAD_DIM**-0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        y = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(DIM, FFN), linear(DIM, FFN), linear(FFN, DIM)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), Mlp()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Decoder()
        self.lm_head = linear(DIM, VOCAB)

    def forward(self, tokens):
        return self.lm_head(self.model(tokens)).flatten(0, 1)


def main():
    golden = Golden("llama")
    model = Llama()
    golden.fill(model)
    tokens = (torch.arange(BATCH * TOKENS, dtype=torch.int32) ** 2 * 11 % VOCAB).reshape(BATCH, TOKENS)
    targets = tokens.roll(-1, 1).contiguous()
    targets[:, -1] = -100
    targets[1, 12:] = -100  # a sequence that ends early: the others weigh more
    golden.tensors |= {"input/tokens": tokens, "input/targets": targets}

    def loss_of(model):
        logits = model(tokens)
        return F.cross_entropy(logits, targets.flatten().long()), logits

    golden.infer(model, lambda model: model(tokens))
    golden.train(model, loss_of)
    golden.save()


if __name__ == "__main__":
    main()
