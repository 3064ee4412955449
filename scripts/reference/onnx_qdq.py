#!/usr/bin/env python3
"""A model with 8-bit weights behind DequantizeLinear, and what ONNX Runtime makes of it: tests/golden/onnx/qdq.*

One scale with a zero (u8), a scale and a zero a column (u8), a scale a row without zeros (i8), a scale along an axis in
the middle (not read as one weight, and too large to be folded), and a Scan of three steps over the result.
"""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

folder = os.path.join(os.path.dirname(__file__), "../../tests/golden/onnx")
random = np.random.default_rng(6)
nodes, weights = [], []


def weight(number, shape, dtype, scales, axis, zeros):
    low, high = (0, 256) if dtype == np.uint8 else (-128, 128)
    items = {"q": random.integers(low, high, shape).astype(dtype),
             "s": (random.random(scales) * 0.01 + 0.001).astype(np.float32)}
    if zeros:
        items["z"] = random.integers(low, high, scales).astype(dtype)
    weights.extend(numpy_helper.from_array(v, f"{k}{number}") for k, v in items.items())
    nodes.append(helper.make_node("DequantizeLinear", [f"{k}{number}" for k in items], [f"w{number}"], f"dequantise{number}",
                                  axis=axis))


weight(0, (48, 40), np.uint8, (), 1, True)
weight(1, (40, 36), np.uint8, (36,), 1, True)
weight(2, (32, 9, 2, 2), np.int8, (32,), 0, False)
weight(3, (4, 32, 150), np.int8, (32,), 1, False)
weights += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in
            {"image": [-1, 9, 2, 2], "flat": [-1, 1, 32], "steps": [-1, 4, 150]}.items()]
nodes += [helper.make_node("MatMul", ["x", "w0"], ["h0"]), helper.make_node("MatMul", ["h0", "w1"], ["h1"]),
          helper.make_node("Reshape", ["h1", "image"], ["h2"]), helper.make_node("Conv", ["h2", "w2"], ["h3"]),
          helper.make_node("Reshape", ["h3", "flat"], ["h4"]), helper.make_node("Unsqueeze", ["h4", "one"], ["h5"]),
          helper.make_node("MatMul", ["h5", "w3"], ["h6"]), helper.make_node("Reshape", ["h6", "steps"], ["h7"])]
weights.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
tensor = helper.make_tensor_value_info
body = helper.make_graph([helper.make_node("Mul", ["state", "half"], ["faded"]), helper.make_node("Add", ["faded", "row"], ["next"]),
                          helper.make_node("Relu", ["next"], ["shown"])], "body", [tensor("state", 1, [5, 150]), tensor("row", 1, [5, 150])],
                         [tensor("next", 1, [5, 150]), tensor("shown", 1, [5, 150])],
                         [numpy_helper.from_array(np.float32(0.5), "half")])
nodes += [helper.make_node("Scan", ["start", "h7"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1],
                           scan_output_axes=[1])]
weights.append(numpy_helper.from_array(np.zeros((5, 150), np.float32), "start"))
graph = helper.make_graph(nodes, "qdq", [tensor("x", 1, [5, 48])], [tensor("y", 1, [5, 4, 150])], weights)
path = os.path.join(folder, "qdq.onnx")
model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
onnx.checker.check_model(model, full_check=True)
onnx.save(model, path)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
x = random.standard_normal((5, 48)).astype(np.float32)
y = onnxruntime.InferenceSession(path, options).run(None, {"x": x})[0]
save_file({"x": x, "y": y}, os.path.join(folder, "qdq.safetensors"))
print(np.abs(y).max())
