#!/usr/bin/env python3
"""tests/golden/quant_double.safetensors: nf4's scales quantised a second time by bitsandbytes (compress_statistics).

    pip install torch bitsandbytes safetensors
    scripts/reference/quant_double_golden.py

By bitsandbytes' implementation in PyTorch. Its library for CPUs (0.50.2) looks codes up by the number's first bits, and now
and then has the neighbour of the nearest: how many of these is printed. What codes mean is the same in all.
"""
import ctypes
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file


def no_library(*_):
    raise OSError("not this one")


load, ctypes.cdll.LoadLibrary = ctypes.cdll.LoadLibrary, no_library
import bitsandbytes.functional as bnb  # noqa: E402

ctypes.cdll.LoadLibrary = load
TARGET = Path(__file__).resolve().parents[2] / "tests/golden/quant_double.safetensors"


def main():
    torch.manual_seed(5)
    weight = torch.randn(70, 320) * (torch.rand(70, 1) * 0.1 + 0.01)  # 350 scales: a whole block of them and a part
    weight[3, :64] = 0
    weight[9, 64:128] *= 40
    _, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=False)
    _, twice = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
    nearest = (twice.state2.code[:-1] + twice.state2.code[1:]) / 2
    rest = state.absmax - twice.offset
    by = twice.state2.absmax.repeat_interleave(256)[: len(rest)]
    print("codes that are not the nearest:", (torch.bucketize(rest / by, nearest) != twice.absmax).sum().item())
    restored = bnb.dequantize_blockwise(twice.absmax, twice.state2) + twice.offset
    out = {
        "absmax": state.absmax,
        "offset": twice.offset.reshape(1),
        "weight.absmax": twice.absmax,
        "weight.nested_absmax": twice.state2.absmax,
        "weight.nested_quant_map": twice.state2.code,
        "restored_absmax": restored,
    }
    made_by = {p: version(p) for p in ("torch", "bitsandbytes")}
    save_file({k: v.detach().contiguous() for k, v in out.items()}, TARGET, metadata=made_by)
    print(f"{TARGET}: {len(out)} tensors, {TARGET.stat().st_size} bytes")


main()
