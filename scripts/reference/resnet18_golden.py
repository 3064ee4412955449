#!/usr/bin/env python3
"""Writes tests/golden/resnet18_golden.safetensors: ResNet-18 with random weights on 64x64 images, its gradients and three
AdamW steps in PyTorch (CPU, f32).

Needs torch:  python scripts/reference/resnet18_golden.py
The model is torchvision's resnet18, written out: the same modules under the same names. The file's format is in golden.py;
tests/golden/resnet18_golden_test.c has the same sizes. Images are stored (N, H, W, C).

A deep network's gradient jumps where a relu's input changes sign or another element becomes a pool's maximum; at random
places some of a million elements are so near that rounding decides. Then no f32 result is within 1e-5 of another. So the images
are of a stream for which the nearest such place, in all three steps, is several times farther than rounding reaches, and the
second norm of each block is small, as in practice (torchvision's zero_init_residual), which halves the rounding.
"""

import torch
from torch import nn
from torch.nn import functional as F

from golden import Golden, dtype_of

SIZE, CLASSES, ROWS = 64, 1000, 2
STREAM = 124  # of the images: the farthest from any jump of 40 that were tried
nearest = []  # distances to jumps


def relu(x):
    nearest.append(x.detach().abs().min().item())
    return F.relu(x)


def max_pool(x):
    windows = F.unfold(x.detach().flatten(0, 1)[:, None], 3, padding=1, stride=2)
    first, second = windows.topk(2, 1).values.unbind(1)
    nearest.append((first - second)[first > 0].min().item())
    return F.max_pool2d(x, 3, 2, 1)


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(unaccounted)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(unaccounted)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(unaccounted))

    def forward(self, x):
        y = relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return relu(y + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x):
        x = max_pool(relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def main():
    golden = Golden("resnet18")
    model = ResNet18()
    golden.fill(model, gain=lambda name: 0.25 if name.endswith("bn2.weight") else 1.0)
    golden.streams = STREAM
    x = golden.random("x", (ROWS, SIZE, SIZE, 3), 1.5).permute(0, 3, 1, 2).contiguous()
    targets = torch.arange(ROWS, dtype=torch.int32) * 271 % CLASSES
    golden.tensors["input/targets"] = targets

    def loss_of(model):
        logits = model(x.to(dtype_of(model)))
        return F.cross_entropy(logits, targets.long()), logits

    golden.infer(model, lambda model: model(x))
    nearest.clear()
    # With eps 1e-8 PyTorch's f32 updates are 6 % off its f64 ones.
    golden.train(model, loss_of, rate=1e-3, eps=1e-4)
    print(f"nearest jump: {min(nearest):.1e}")
    golden.save()


if __name__ == "__main__":
    main()
