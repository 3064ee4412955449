#!/usr/bin/env python3
"""Writes tests/golden/simple_golden.safetensors: the small CNN, its gradients and three AdamW steps in PyTorch (CPU, f32).

Needs torch:  python scripts/reference/simple_golden.py
The file's format is in golden.py; tests/golden/simple_golden_test.c has the same sizes. Images are stored (N, H, W, C).
"""

import torch
from torch import nn
from torch.nn import functional as F

from golden import Golden, dtype_of

SIZE, CHANNELS, CLASSES, ROWS = 16, 8, 10, 6


class Simple(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(CHANNELS)
        self.conv2 = nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * CHANNELS)
        self.fc = nn.Linear(2 * CHANNELS * (SIZE // 4) ** 2, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.permute(0, 2, 3, 1).flatten(1))  # the head sees (H, W, C)


def main():
    golden = Golden("simple")
    model = Simple()
    golden.fill(model)
    x = golden.random("x", (ROWS, SIZE, SIZE, 3), 1.5).permute(0, 3, 1, 2).contiguous()
    targets = torch.arange(ROWS, dtype=torch.int32) * 3 % CLASSES
    golden.tensors["input/targets"] = targets

    def loss_of(model):
        logits = model(x.to(dtype_of(model)))
        return F.cross_entropy(logits, targets.long()), logits

    golden.infer(model, lambda model: model(x))
    golden.train(model, loss_of, zero=[("conv1.bias", model.conv1), ("conv2.bias", model.conv2)])
    golden.save()


if __name__ == "__main__":
    main()
