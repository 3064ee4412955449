#!/usr/bin/env python3
"""Steps of optimisers for tests/unit/train/optimizer_ops_test.c: 8-bit AdamW and Lion, Adafactor, Muon.

The 8-bit steps are a re-implementation, in numpy's f32, of bitsandbytes' kOptimizerStatic8bit2StateBlockwise and
...1StateBlockwise (csrc/kernels.cu), with the search of its quantize_2D. Where bitsandbytes can be imported, its map is
compared bit by bit, and its PyTorch version of the step (which takes the nearest entry instead of the search's) element
by element. Adafactor is transformers' class. Muon is its formula in f64.

    optimizer_golden.py tests/golden/optimizers_golden.safetensors [FOLDER of bitsandbytes]
"""
import sys

import numpy as np
import torch
from safetensors.numpy import save_file

f32 = np.float32
torch.set_num_threads(1)
torch.backends.mkldnn.enabled = False


def dynamic_map(signed):
    data = []
    for i in range(7):
        edges = torch.linspace(0.1, 1, (2 ** i if signed else 2 ** (i + 1)) + 1, dtype=torch.float32)
        means = (edges[:-1] + edges[1:]) / 2.0
        data += (10 ** (i - 6) * means).tolist()
        if signed:
            data += (-(10 ** (i - 6)) * means).tolist()
    return np.array(sorted(data + [0, 1.0]), dtype=f32)


SIGNED, UNSIGNED = dynamic_map(True), dynamic_map(False)


def code_of(table, lowest, x):
    pivot, above, below = 127, 255, 0
    lower, upper, value = f32(lowest), f32(1), table[127]
    step = 64
    while step:
        if x > value:
            below, lower, pivot = pivot, value, pivot + step
        else:
            above, upper, pivot = pivot, value, pivot - step
        value = table[pivot]
        step //= 2
    if x > value:
        return above if x > (upper + value) * f32(0.5) else pivot
    return below if x < (lower + value) * f32(0.5) else pivot


def signed_code(value, scale):
    with np.errstate(invalid="ignore"):
        code = code_of(SIGNED, -1, value / scale)
    if np.signbit(SIGNED[code]) != np.signbit(value):
        code += 1 if value > 0 else -1
    return code


def unsigned_code(value, scale):
    with np.errstate(invalid="ignore"):
        return code_of(UNSIGNED, 0, value / scale)


def adamw8(w, g, m, v, ms, vs, t, rate, betas, eps, decay):
    b1, b2 = f32(betas[0]), f32(betas[1])
    c1, c2 = f32(1 - betas[0] ** t), f32(np.sqrt(1 - betas[1] ** t))
    pace, floor, keep = -f32(rate) * c2 / c1, c2 * f32(eps), f32(1) - f32(rate) * f32(decay)
    for begin in range(0, w.size, 256):
        block, end = begin // 256, min(begin + 256, w.size)
        new_m = (SIGNED[m[begin:end]] * ms[block]) * b1 + (f32(1) - b1) * g[begin:end]
        new_v = (UNSIGNED[v[begin:end]] * vs[block]) * b2 + (f32(1) - b2) * g[begin:end] * g[begin:end]
        w[begin:end] = (w[begin:end] + pace * (new_m / (np.sqrt(new_v) + floor))) * keep
        ms[block], vs[block] = np.abs(new_m).max(), np.abs(new_v).max()
        for i in range(end - begin):
            m[begin + i] = signed_code(new_m[i], ms[block])
            v[begin + i] = unsigned_code(new_v[i], vs[block])


def lion8(w, g, m, ms, rate, betas, decay):
    b1, b2, keep = f32(betas[0]), f32(betas[1]), f32(1) - f32(rate) * f32(decay)
    for begin in range(0, w.size, 256):
        block, end = begin // 256, min(begin + 256, w.size)
        old = SIGNED[m[begin:end]] * ms[block]
        w[begin:end] = w[begin:end] * keep - f32(rate) * np.sign(old * b1 + (f32(1) - b1) * g[begin:end])
        new = old * b2 + (f32(1) - b2) * g[begin:end]
        ms[block] = np.abs(new).max()
        for i in range(end - begin):
            m[begin + i] = signed_code(new[i], ms[block])


def check(folder, name, w0, gs, out, rate, betas, eps, decay):
    """bitsandbytes' own step in PyTorch: codes may differ by one where the search and the nearest entry do."""
    sys.path.insert(0, folder)
    import types
    torch.compile = lambda f: f
    source = open(folder + "/bitsandbytes/backends/triton/kernels_optim.py").read()
    begin = source.index("@torch.compile\ndef _dequantize_blockwise_pytorch")
    end = source.index("def optimizer_update_8bit_blockwise_triton_quant")
    import math
    from typing import Optional
    space = {"torch": torch, "math": math, "Optional": Optional}
    exec(source[begin:end], space)
    text = open(folder + "/bitsandbytes/functional.py").read()
    begin = text.index("def create_dynamic_map")
    own = {"torch": torch}
    exec(text[begin:text.index("\n\n\n", begin)], own)
    assert (own["create_dynamic_map"](True).numpy() == SIGNED).all()
    assert (own["create_dynamic_map"](False).numpy() == UNSIGNED).all()
    two = name == "adam"
    p, n = torch.tensor(w0), w0.size
    blocks = (n + 255) // 256
    s1, a1 = torch.full((n,), 127, dtype=torch.uint8), torch.zeros(blocks)
    s2, a2 = (torch.zeros(n, dtype=torch.uint8), torch.zeros(blocks)) if two else (None, None)
    for t, g in enumerate(gs, 1):
        space["optimizer_update_8bit_blockwise_pytorch"](
            p, torch.tensor(g), s1, s2, betas[0], betas[1], 0.0, 0.0, eps, t, rate, torch.tensor(SIGNED),
            torch.tensor(UNSIGNED) if two else None, a1, a2, decay, 1.0, False, optimizer_name=name)
    for key, codes in (("m", s1), ("v", s2)):
        if codes is None:
            continue
        apart = np.abs(codes.numpy().astype(int) - out[key].astype(int))
        print("%s: %d of %d codes of %s apart, by at most %d" % (name, (apart > 0).sum(), n, key, apart.max()))
        assert apart.max() <= 1 and (apart > 0).sum() < n / 20
    size = np.abs(p.numpy() - out["w"])
    print("%s: weights apart by %.2g in the mean, %.2g at most" % (name, size.mean(), size.max()))


rng = np.random.default_rng(7)
SIZE, STEPS = 600, 4
golden = {}
w0 = rng.standard_normal(SIZE).astype(f32)
gs = [(rng.standard_normal(SIZE) * 10.0 ** rng.uniform(-4, 0, SIZE)).astype(f32) for _ in range(STEPS)]
gs[0][:3] = 0
golden["w"], golden["gradients"] = w0, np.stack(gs)

w, m, v = w0.copy(), np.zeros(SIZE, np.uint8), np.zeros(SIZE, np.uint8)
ms, vs = np.zeros(3, f32), np.zeros(3, f32)
for t, g in enumerate(gs, 1):
    adamw8(w, g, m, v, ms, vs, t, 1e-2, (0.9, 0.999), 1e-8, 0.1)
adam = {"w": w, "m": m, "v": v, "m_scale": ms, "v_scale": vs}
w, m, ms = w0.copy(), np.zeros(SIZE, np.uint8), np.zeros(3, f32)
for g in gs:
    lion8(w, g, m, ms, 1e-2, (0.9, 0.99), 0.1)
lion = {"w": w, "m": m, "m_scale": ms}
for name, out in (("adamw8", adam), ("lion8", lion)):
    golden.update({name + "." + k: x for k, x in out.items()})
if len(sys.argv) > 2:
    check(sys.argv[2], "adam", w0, gs, adam, 1e-2, (0.9, 0.999), 1e-8, 0.1)
    check(sys.argv[2], "lion", w0, gs, lion, 1e-2, (0.9, 0.99), 0, 0.1)

# Adafactor: a matrix (20, 30) and a vector of the same numbers.
from transformers.optimization import Adafactor  # noqa: E402

for name, shape in (("matrix", (20, 30)), ("vector", (SIZE,))):
    p = torch.nn.Parameter(torch.tensor(w0).reshape(shape).clone())
    optimizer = Adafactor([p], lr=1e-2, scale_parameter=True, relative_step=False, warmup_init=False, weight_decay=0.1)
    for g in gs:
        p.grad = torch.tensor(g).reshape(shape)
        optimizer.step()
    golden["adafactor." + name] = p.detach().numpy().reshape(-1).copy()
    state = optimizer.state[p]
    for key in ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"):
        if key in state:
            golden["adafactor.%s.%s" % (name, key)] = state[key].numpy().copy()

# Muon: (20, 30) and (30, 20).
for name, shape in (("wide", (20, 30)), ("high", (30, 20))):
    p, mean = w0.astype(np.float64).reshape(shape), np.zeros(shape)
    for g in gs:
        g = g.astype(np.float64).reshape(shape)
        mean = 0.95 * mean + 0.05 * g
        x = 0.05 * g + 0.95 * mean
        x = x / (np.linalg.norm(x) + 1e-7)
        x = x.T if shape[0] > shape[1] else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
        x = x.T if shape[0] > shape[1] else x
        p = p * (1 - 1e-2 * 0.1) - 1e-2 * 0.2 * np.sqrt(max(shape)) * x
    golden["muon." + name] = p.astype(f32).reshape(-1)
    q = torch.nn.Parameter(torch.tensor(w0).reshape(shape).clone())
    optimizer = torch.optim.Muon([q], lr=1e-2, weight_decay=0.1, momentum=0.95, nesterov=True,
                                 adjust_lr_fn="match_rms_adamw")
    for g in gs:
        q.grad = torch.tensor(g).reshape(shape)
        optimizer.step()
    apart = np.linalg.norm(q.detach().numpy() - p) / np.linalg.norm(p - w0.reshape(shape))
    print("muon %s: %.3g of the way apart from torch.optim.Muon, whose products are bf16" % (name, apart))
    assert apart < 0.02
save_file(golden, sys.argv[1])
