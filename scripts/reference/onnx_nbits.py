#!/usr/bin/env python3
"""A model with ONNX Runtime's MatMulNBits, and what ONNX Runtime makes of it: tests/golden/onnx/nbits.*

Blocks of 32 with zeros; of 64 without, the last one cut; of 16, which are not kept as they are.
"""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

folder = os.path.join(os.path.dirname(__file__), "../../tests/golden/onnx")
random = np.random.default_rng(5)


def product(number, x, y, n, k, block, with_zeros):
    blocks = -(-k // block)
    codes = random.integers(0, 256, (n, blocks, block // 2), dtype=np.uint8)
    scales = (random.random(n * blocks) * 0.02 + 0.001).astype(np.float32)
    weights = [numpy_helper.from_array(codes, f"b{number}"), numpy_helper.from_array(scales, f"s{number}")]
    inputs = [x, f"b{number}", f"s{number}"]
    if with_zeros:
        zeros = random.integers(0, 256, n * ((blocks + 1) // 2), dtype=np.uint8)
        weights.append(numpy_helper.from_array(zeros, f"z{number}"))
        inputs.append(f"z{number}")
    node = helper.make_node("MatMulNBits", inputs, [y], f"product{number}", domain="com.microsoft", K=k, N=n,
                            bits=4, block_size=block)
    return node, weights


parts = [product(0, "x", "h0", 96, 96, 32, True), product(1, "h0", "h1", 80, 96, 64, False),
         product(2, "h1", "y", 40, 80, 16, True)]
graph = helper.make_graph([node for node, _ in parts], "nbits", [helper.make_tensor_value_info("x", 1, ["batch", 96])],
                          [helper.make_tensor_value_info("y", 1, ["batch", 40])], sum((w for _, w in parts), []))
model = helper.make_model(graph, ir_version=9,
                          opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
path = os.path.join(folder, "nbits.onnx")
onnx.save(model, path)
x = random.standard_normal((5, 96)).astype(np.float32)
y = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
save_file({"x": x, "y": y}, os.path.join(folder, "nbits.safetensors"))
