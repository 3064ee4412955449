#!/usr/bin/env python3
"""Writes tests/golden/mlp_golden.safetensors: a small MLP, its gradients and three AdamW steps in PyTorch (CPU, f32).

Needs torch:  python scripts/reference/mlp_golden.py
The file's format is in golden.py; tests/golden/mlp_golden_test.c has the same sizes.
"""

import torch
from torch import nn
from torch.nn import functional as F

from golden import Golden, dtype_of

IN, HIDDEN, OUT, ROWS = 24, 40, 10, 16


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
        self.head = nn.Linear(HIDDEN, OUT)

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


def main():
    golden = Golden("mlp")
    model = Mlp()
    golden.fill(model)
    x = golden.random("x", (ROWS, IN), 1.5)
    targets = torch.arange(ROWS, dtype=torch.int32) * 7 % OUT
    targets[3] = -100
    golden.tensors["input/targets"] = targets

    def loss_of(model):
        logits = model(x.to(dtype_of(model)))
        return F.cross_entropy(logits, targets.long()), logits

    golden.infer(model, lambda model: model(x))
    golden.train(model, loss_of)
    golden.save()


if __name__ == "__main__":
    main()
