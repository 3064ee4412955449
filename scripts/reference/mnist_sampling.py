#!/usr/bin/env python3
"""A digit drawn by the MNIST predictor of ../shared/data/diffusion in all of its 1000 steps, with PyTorch: writes
tests/golden/image/mnist_sampling.safetensors with x before the first step and after each hundredth.

    python scripts/reference/mnist_sampling.py ../shared/data/diffusion/ddpm_mnist_cnn/ddpm_mnist.safetensors

The noise is torch.Generator's (seed 7): one draw for the beginning, then one for each step but the last, as the model's own
sampling draws it.
"""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

w = load_file(sys.argv[1])
alpha, beta = w["alpha_t"], w["beta_t"]
steps = len(beta) - 1


def noise_in(x, t):
    args = t * w["gt.frequencies"]
    time = torch.cat([torch.sin(args), torch.cos(args) - 1])
    for i in (0, 2, 4, 6):
        time = F.linear(time, w[f"gt.time_embed.{i}.weight"], w[f"gt.time_embed.{i}.bias"])
        if i < 6:
            time = F.gelu(time)
    for i in range(4):
        conv, norm = f"gt.blocks.{i}.net.0", f"gt.blocks.{i}.net.1"
        x = F.conv2d(x, w[conv + ".weight"], w[conv + ".bias"], padding=3)
        x = F.gelu(F.layer_norm(x, x.shape[1:], w[norm + ".weight"], w[norm + ".bias"]))
        if i == 0:
            x = x + time[None, :, None, None]
    return F.conv2d(x, w["gt.blocks.4.weight"], w["gt.blocks.4.bias"], padding=1)


generator = torch.Generator("cpu").manual_seed(7)
x = torch.randn(1, 1, 28, 28, generator=generator)
seen = [x.clone()]
with torch.no_grad():
    for t in range(steps, 0, -1):
        x = x - beta[t] / torch.sqrt(1 - alpha[t]) * noise_in(x, t / steps)
        x = x / torch.sqrt(1 - beta[t])
        if t > 1:
            x = x + torch.sqrt(beta[t]) * torch.randn(1, 1, 28, 28, generator=generator)
        if (t - 1) % 100 == 0:
            seen.append(x.clone())
save_file({"x": torch.cat(seen)[:, 0].contiguous()}, "tests/golden/image/mnist_sampling.safetensors")
print("from %.3f to %.3f, mean %.3f" % (x.min(), x.max(), x.mean()))
for row in x[0, 0]:
    print("".join(" .:-=+*#%@"[max(0, min(9, int((v + 0.5) * 10)))] for v in row.tolist()))
