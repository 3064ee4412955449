#!/usr/bin/env python3
"""Small ONNX models and what ONNX Runtime makes of them: tests/golden/onnx/.

conv.onnx      an image network over a symbolic batch, weights in raw bytes and in typed fields
external.onnx  products with external data, shapes that are computed, quantised weights (QDQ)
golden.safetensors  their inputs and outputs
input.npy, output.npy  of conv.onnx, for the program
"""
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

folder = os.path.join(os.path.dirname(__file__), "../../tests/golden/onnx")
random = np.random.default_rng(4)


def weight(name, *shape, scale=0.2):
    return numpy_helper.from_array((random.standard_normal(shape) * scale).astype(np.float32), name)


def typed(name, values, kind=TensorProto.INT64):
    return helper.make_tensor(name, kind, [len(values)], values)


def save(name, nodes, inputs, outputs, weights, opset):
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def conv():
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c0", "g", "h", "m", "v"], ["n0"], "norm"),
        helper.make_node("Relu", ["n0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "wide", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c1", "w2"], ["c2"], "depthwise", pads=[1, 1, 1, 1], group=24),
        helper.make_node("Add", ["c2", "r0"], ["a0"]),
        helper.make_node("MaxPool", ["a0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Clip", ["p0", "low", "high"], ["p1"]),
        helper.make_node("Conv", ["p1", "w3"], ["c3"], "deep", strides=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("GlobalAveragePool", ["c3"], ["p2"]),
        helper.make_node("Reshape", ["p2", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], "head", transB=1),
        helper.make_node("Softmax", ["y"], ["chances"]),
    ]
    weights = [weight("w0", 24, 3, 3, 3), weight("b0", 24), weight("g", 24), weight("h", 24),
               weight("m", 24), numpy_helper.from_array(random.random(24).astype(np.float32) + 0.5, "v"),
               weight("w1", 24, 24, 3, 3, scale=0.1), weight("w2", 24, 1, 3, 3), weight("w3", 32, 24, 3, 3),
               weight("w4", 10, 32), weight("b4", 10), typed("flat", [0, -1]),
               helper.make_tensor("low", 1, [], [0.0]), helper.make_tensor("high", 1, [], [6.0])]
    x = helper.make_tensor_value_info("x", 1, ["batch", 3, 12, 12])
    outputs = [helper.make_tensor_value_info("y", 1, ["batch", 10]),
               helper.make_tensor_value_info("chances", 1, ["batch", 10])]
    return save("conv", nodes, [x], outputs, weights, 17)


def external():
    q = random.integers(-127, 127, (48, 64)).astype(np.int8)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["m0"], "first"),
        helper.make_node("Gelu", ["m0"], ["g0"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["qd"], "codes", axis=1),
        helper.make_node("MatMul", ["g0", "qd"], ["m1"], "second"),
        helper.make_node("Shape", ["m1"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["n2"]),
        helper.make_node("Concat", ["n2", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["m1", "to"], ["halves"]),
        helper.make_node("Transpose", ["halves"], ["t"], perm=[1, 0]),
        helper.make_node("LayerNormalization", ["t", "lg", "lb"], ["y"], axis=-1),
    ]
    weights = [weight("a", 32, 48), numpy_helper.from_array(q, "q"),
               numpy_helper.from_array((random.random(64) * 0.01).astype(np.float32), "s"),
               numpy_helper.from_array(np.zeros(64, np.int8), "z"),
               typed("zero", [0]), typed("two", [2]), typed("rest", [-1]), weight("lg", 8), weight("lb", 8)]
    x = helper.make_tensor_value_info("x", 1, ["tokens", 32])
    return save("external", nodes, [x], [helper.make_tensor_value_info("y", 1, [32, "n"])], weights, 20)


def main():
    os.makedirs(folder, exist_ok=True)
    golden = {}
    for name, model, shape in (("conv", conv(), (3, 3, 12, 12)), ("external", external(), (4, 32))):
        path = os.path.join(folder, name + ".onnx")
        data = name + ".bin"
        if os.path.exists(os.path.join(folder, data)):
            os.remove(os.path.join(folder, data))
        onnx.save(model, path, save_as_external_data=name == "external", location=data, size_threshold=512)
        x = random.random(shape, dtype=np.float32)
        options = onnxruntime.SessionOptions()  # optimised, it rounds activations of quantised products
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        golden[name + ".x"] = x
        for output, value in zip(session.get_outputs(), session.run(None, {"x": x})):
            golden[f"{name}.{output.name}"] = value
    save_file(golden, os.path.join(folder, "golden.safetensors"))
    np.save(os.path.join(folder, "input.npy"), golden["conv.x"])
    np.save(os.path.join(folder, "output.npy"), golden["conv.y"])


if __name__ == "__main__":
    sys.exit(main())
