#!/usr/bin/env python3
"""Writes tests/golden/quant_reference.safetensors: weights, and what the real libraries make of them.

Needs torch (CPU), optimum-quanto, bitsandbytes, safetensors:
    pip install torch optimum-quanto bitsandbytes safetensors
    python scripts/reference/quant_golden.py

For each case X the file holds X.input, and every tensor of the library's own state dict under X.int8., X.int4.
and X.nf4., plus X.int8.restored and so on: what the library dequantises it to.
"""

import pathlib
import sys

import bitsandbytes
import numpy
import optimum.quanto
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute, _get_4bit_quantize_bounds
from importlib.metadata import version
from safetensors.torch import save_file

TARGET = pathlib.Path(__file__).parents[2] / "tests/golden/quant_reference.safetensors"


def ties():
    """256 values whose int8 quotients are n + 1/2, and whose first 128 int4 quotients are too."""
    low = numpy.tile(numpy.arange(16) + 0.5, 8)[:128]
    low[:2] = 0, 15
    high = numpy.arange(128) - 63.5
    high[0] = 127
    return numpy.concatenate([low, high])


def nf4_edges():
    """Every boundary between two nf4 values, and the floats on both sides of it, under an absmax of 1."""
    bounds = _get_4bit_quantize_bounds("nf4", torch.device("cpu"))[0].numpy()
    edges = []
    for bound in bounds:
        edges += [bound, numpy.nextafter(bound, numpy.float32(-2)), numpy.nextafter(bound, numpy.float32(2))]
    row = numpy.zeros(256, numpy.float32)
    row[: len(edges)] = edges
    row[63::64] = 1, -1, 1, -1
    row[128 : 128 + len(edges)] = edges
    return row


def cases():
    random = numpy.random.RandomState(1)
    normal = lambda *shape: random.standard_normal(shape).astype(numpy.float32)
    a = normal(6, 256)
    a[0] = 0
    a[1] = 0.375
    a[1, 200] = -2
    a[2] = ties()
    a[3] *= 1e-30
    a[4] = nf4_edges()
    b = normal(5, 160)
    b[0] *= 1e-40  # denormal
    b[1] *= 1e30
    b[2, :32] = -7
    c = normal(5, 100) * 0.02
    d = normal(7, 5)
    e = normal(2, 80)
    e[1, 48:] = 0  # the short last block of nf4
    return {"a": a, "b": b, "c": c, "d": d, "e": e}


def quanto(weight, kind):
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = torch.nn.Parameter(torch.from_numpy(weight))
    module = optimum.quanto.QLinear.from_module(linear, weights=kind)
    module.freeze()
    return dict(module.state_dict(), restored=module.weight.dequantize())


def nf4(weight):
    linear = bitsandbytes.nn.Linear4bit(
        weight.shape[1], weight.shape[0], bias=False, quant_type="nf4", compress_statistics=False
    )
    linear.weight = bitsandbytes.nn.Params4bit(
        torch.from_numpy(weight), requires_grad=False, quant_type="nf4", compress_statistics=False
    )
    linear = linear.to("cpu")
    state = linear.weight.quant_state
    # Not dequantize_4bit: its AVX-512 path (0.50.2) takes the wrong absmax where a row is not whole blocks.
    restored = _dequantize_4bit_compute(
        linear.weight.data.reshape(-1), state.absmax, state.code, state.blocksize, state.shape, torch.float32
    )
    return dict(linear.state_dict(), restored=restored)


def main():
    out = {}
    for name, weight in cases().items():
        out[f"{name}.input"] = torch.from_numpy(weight)
        parts = {
            "int8": quanto(weight, optimum.quanto.qint8),
            "int4": quanto(weight, optimum.quanto.qint4),
            "nf4": nf4(weight),
        }
        for form, tensors in parts.items():
            for key, tensor in tensors.items():
                out[f"{name}.{form}.{key}"] = tensor.detach().contiguous()
    made_by = {p: version(p) for p in ("torch", "optimum-quanto", "bitsandbytes")}
    save_file(out, TARGET, metadata=made_by)
    print(f"{TARGET}: {len(out)} tensors, {TARGET.stat().st_size} bytes")


sys.exit(main())
