#!/usr/bin/env python3
"""Writes tests/golden/ops.txt: small cases of the ops of any plain dtype, as ONNX's reference evaluator answers them.

A case is a line "# NAME", then a line an input ("<") and a line an output (">"): dtype, axes, ":", elements.
tests/golden/ops_test.c has the same names and says which op with which attributes each of them is. Needs onnx, numpy and torch.
Images are turned from ONNX's (N, C, spatial...) to (N, spatial..., C) where the case says `last`."""

import os
import sys

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bool": "bool"}
NAMES |= {f"{u}int{b}": f"{'u' if u else 'i'}{b}" for u in ("", "u") for b in (8, 16, 32, 64)}
rng = np.random.default_rng(7)


def line(mark, array, last):
    array = np.asarray(array)
    if last and array.ndim > 2:
        array = np.moveaxis(array, 1, -1)
    name = NAMES[str(array.dtype)]
    digits = "%d" if array.dtype.kind in "iub" else "%.17g" if name == "f64" else "%.9g"
    dims = " ".join(map(str, array.shape))
    return f"{mark} {name} {dims}: " + " ".join(digits % v for v in array.reshape(-1)) + "\n"


def answer(op, inputs, attributes, outputs, version):
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = [(n, x) for n, x in zip(names, inputs) if n]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    kinds = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given]
    results = [helper.make_tensor_value_info(f"y{i}", TensorProto.UNDEFINED, None) for i in range(outputs)]
    graph = helper.make_graph([node], "case", kinds, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    return ReferenceEvaluator(model).run(None, dict(given))


def case(file, name, op, inputs, keep=None, outputs=1, last=False, version=21, turned=(0,), **attributes):
    """`keep`: which inputs the op of the graph has (the others are attributes there); `turned`: of them those that are
    images."""
    inputs = [None if x is None else np.asarray(x) for x in inputs]
    results = op(*inputs) if callable(op) else answer(op, inputs, attributes, outputs, version)
    file.write(f"# {name}\n")
    for i in range(len(inputs)) if keep is None else keep:
        if inputs[i] is not None:
            file.write(line("<", inputs[i], last and i in turned))
    for y in results:
        file.write(line(">", y, last))


def real(*shape, low=-3.0, high=3.0, dtype=np.float32):
    return np.round(rng.uniform(low, high, shape), 4).astype(dtype)


def whole(*shape, low=-9, high=9, dtype=np.int64):
    return rng.integers(low, high, shape).astype(dtype)


def elementwise(f):
    odd = np.array([-3.5, -2.5, -0.5, 0, 0.5, 1.5, 2.5, 7, -0.3, 0.3], np.float32)
    for op in "Abs Sign Reciprocal Ceil Floor Round Sin Cos Tan Sinh Cosh Asinh Atan Erf Softplus Softsign Mish".split():
        case(f, op.lower(), op, [odd if op != "Reciprocal" else real(7, low=0.5)])
    for op in "HardSwish Sigmoid Tanh Relu Exp Neg".split():
        case(f, op.lower(), op, [odd.astype(np.float64) if op not in ("HardSwish",) else odd])
    for op in "Asin Acos Atanh".split():
        case(f, op.lower(), op, [real(6, low=-0.99, high=0.99)])
    case(f, "acosh", "Acosh", [real(6, low=1, high=9)])
    case(f, "sqrt_f16", "Sqrt", [real(5, low=0, high=9, dtype=np.float16)])
    case(f, "log_f64", "Log", [real(5, low=0.1, high=9, dtype=np.float64)])
    case(f, "neg_i8", "Neg", [np.array([-128, 0, 5, 127], np.int8)])
    case(f, "abs_i32", "Abs", [whole(5, dtype=np.int32)])
    case(f, "sign_u8", "Sign", [np.array([0, 3, 255], np.uint8)])
    case(f, "relu_i32", "Relu", [whole(5, dtype=np.int32)])
    case(f, "not", "Not", [np.array([True, False])])
    case(f, "bitwise_not_u16", "BitwiseNot", [np.array([0, 1, 65535], np.uint16)], version=18)
    case(f, "is_nan", "IsNaN", [np.array([np.nan, 1, np.inf], np.float32)], version=20)
    case(f, "is_inf_f16", "IsInf", [np.array([np.nan, -np.inf, np.inf, 2], np.float16)], version=20)
    case(f, "is_inf_negative", "IsInf", [np.array([-np.inf, np.inf], np.float32)], detect_positive=0, version=20)
    case(f, "elu", "Elu", [odd], alpha=1.5)
    case(f, "selu", "Selu", [odd], alpha=2.0, gamma=3.0)
    case(f, "celu", "Celu", [odd], alpha=2.0)
    case(f, "leaky_relu", "LeakyRelu", [odd], alpha=0.1)
    case(f, "thresholded_relu", "ThresholdedRelu", [odd], alpha=1.0)
    case(f, "hard_sigmoid", "HardSigmoid", [odd], alpha=0.5, beta=0.6)
    case(f, "shrink", "Shrink", [odd], lambd=1.5, bias=0.75)


def pairs(f):
    case(f, "add_i64", "Add", [whole(2, 3), whole(3)])
    case(f, "sub_u8", "Sub", [np.array([3, 9], np.uint8), np.array([5, 2], np.uint8)])
    case(f, "mul_f16", "Mul", [real(2, 3, dtype=np.float16), real(2, 1, dtype=np.float16)])
    case(f, "div_f64", "Div", [real(5, dtype=np.float64), real(5, low=1, dtype=np.float64)])
    case(f, "div_u32", "Div", [whole(5, low=1, dtype=np.uint32), whole(5, low=1, dtype=np.uint32)])
    case(f, "pow", "Pow", [real(5, low=0.1), real(5)])
    case(f, "pow_i64", "Pow", [whole(5), whole(5, low=0, high=4)])
    case(f, "mod_i32", "Mod", [whole(9, dtype=np.int32), np.array([3, -3] * 4 + [5], np.int32)])
    case(f, "fmod", "Mod", [real(9), np.array([1.5, -1.5] * 4 + [2], np.float32)], fmod=1)
    case(f, "fmod_i16", "Mod", [whole(9, dtype=np.int16), np.array([3, -3] * 4 + [5], np.int16)], fmod=1)
    case(f, "min", "Min", [real(3, 1), real(1, 4)])
    case(f, "max_i8", "Max", [whole(6, dtype=np.int8), whole(6, dtype=np.int8)])
    case(f, "prelu", "PRelu", [real(2, 3), real(3)])
    case(f, "and", "And", [np.array([[True], [False]]), np.array([True, False])])
    case(f, "or", "Or", [np.array([[True], [False]]), np.array([True, False])])
    case(f, "xor", "Xor", [np.array([[True], [False]]), np.array([True, False])])
    case(f, "bitwise_and_i32", "BitwiseAnd", [whole(6, dtype=np.int32), whole(6, dtype=np.int32)], version=18)
    case(f, "bitwise_xor_u64", "BitwiseXor", [whole(6, low=0, dtype=np.uint64)] * 2, version=18)
    by = np.array([1, 2, 3], np.uint8)
    case(f, "shift_left_u8", "BitShift", [np.array([16, 4, 129], np.uint8), by], direction="LEFT")
    case(f, "shift_right_u32", "BitShift", [np.array([16, 4, 129], np.uint32), by.astype(np.uint32)], direction="RIGHT")
    odd = np.array([1, np.nan, 3, -2], np.float32)
    for op in "Equal Less LessOrEqual Greater GreaterOrEqual".split():
        case(f, op.lower(), op, [odd, np.array([[1], [3]], np.float32)])
        case(f, op.lower() + "_u64", op, [np.array([1, 2**63], np.uint64), np.array([2, 5], np.uint64)])
    mask = np.array([[True, False, True], [False, False, True]])
    case(f, "where", "Where", [mask, real(2, 1), real(3)])
    case(f, "where_i64", "Where", [np.array([True, False]), np.array(5), whole(2, 2)])


def converting(f):
    odd = np.array([-2.7, -0.5, 0, 0.4, 1.5, 2.5, 100.9], np.float32)
    for to, kind in (("i32", TensorProto.INT32), ("u8", TensorProto.UINT8), ("bool", TensorProto.BOOL)):
        case(f, f"to_{to}", "Cast", [odd if to != "u8" else abs(odd)], to=kind)
    case(f, "i64_to_i8", "Cast", [np.array([-129, 128, 300, -1])], to=TensorProto.INT8)
    case(f, "i64_to_f32", "Cast", [np.array([2**24 + 1, -(2**40) - 1])], to=TensorProto.FLOAT)
    case(f, "f64_to_f16", "Cast", [np.array([1.00048828126, 70000, -2.5])], to=TensorProto.FLOAT16)
    small = np.array([0, -0.0, 1, -1.0625, 3e-4, 7e-6, 1e-9, 17, 240, 247, 249, -57344, 61439, 61441, np.nan, np.inf], np.float32)
    for kind in ("float8_e4m3fnuz", "float8_e5m2fnuz"):
        narrow = getattr(ml_dtypes, kind)
        case(f, kind, lambda x, narrow=narrow: [x.astype(narrow).astype(np.float32)], [small])
    case(f, "bool_to_f64", "Cast", [np.array([True, False])], to=TensorProto.DOUBLE)


def reductions(f):
    x = real(2, 3, 4)
    axes = np.array([1])
    for op in "Min Prod L1 L2 LogSumExp SumSquare".split():
        case(f, "reduce_" + op.lower(), "Reduce" + op, [x, axes], keep=[0], keepdims=1)
    case(f, "reduce_logsum", "ReduceLogSum", [abs(x), np.array([0, 2])], keep=[0], keepdims=0)
    case(f, "reduce_sum_i32", "ReduceSum", [whole(2, 3, dtype=np.int32), np.array([0, 1])], keep=[0], keepdims=0)
    case(f, "reduce_mean_f64", "ReduceMean", [x.astype(np.float64), np.array([2])], keep=[0], keepdims=0)
    case(f, "reduce_max_u8", "ReduceMax", [whole(2, 3, low=0, dtype=np.uint8), np.array([1])], keep=[0], keepdims=1)
    case(f, "reduce_min_i8", "ReduceMin", [whole(2, 3, dtype=np.int8), np.array([1])], keep=[0], keepdims=1)
    ties = np.array([[2, 2, 1, 2], [0, 3, 3, 1]], np.float32)
    case(f, "arg_max", "ArgMax", [ties], axis=1, keepdims=1)
    case(f, "arg_max_last", "ArgMax", [ties], axis=1, keepdims=0, select_last_index=1)
    case(f, "arg_min_i32", "ArgMin", [ties.astype(np.int32)], axis=0, keepdims=0)
    case(f, "soft_max", "Softmax", [x * 5], axis=1)
    case(f, "soft_log_max", "LogSoftmax", [x * 5], axis=2)
    case(f, "soft_max_f16", "Softmax", [x.astype(np.float16)], axis=2)
    case(f, "soft_hard_max", "Hardmax", [ties], axis=1)


def moving(f):
    x = real(3, 4, 2)
    case(f, "gather", "Gather", [x, np.array([[0, -1], [2, 1]])], axis=1)
    case(f, "gather_bool", "Gather", [np.array([True, False, True]), np.array(2, np.int32)], axis=0)
    case(f, "gather_elements", "GatherElements", [x, whole(2, 4, 2, low=-3, high=3)], axis=0)
    case(f, "gather_nd", "GatherND", [x, np.array([[0, 1], [-1, 2]])])
    case(f, "gather_nd_batch", "GatherND", [x, np.array([[1], [0], [3]])], batch_dims=1)
    at = np.array([[1, 0, 3], [0, 1, 2]])
    case(f, "scatter", "ScatterElements", [real(3, 4), at, real(2, 3)], axis=1)
    case(f, "scatter_add_i64", "ScatterElements", [whole(3, 4), at[:, :2], whole(2, 2)], axis=0, reduction="add")
    case(f, "scatter_max", "ScatterElements", [real(3, 4), at, real(2, 3)], axis=1, reduction="max")
    place = np.array([[1], [2], [1]])
    case(f, "scatter_nd", "ScatterND", [x, place, real(3, 4, 2)])
    case(f, "scatter_nd_mul", "ScatterND", [x, place, real(3, 4, 2)], reduction="mul")
    ends = [np.array(v) for v in ([2, 0], [-4, 4], [0, 1], [-1, 2])]
    case(f, "slice_back", "Slice", [x] + ends, keep=[0])


def sequences(f):
    x = real(2, 4, 3)
    case(f, "cumulate", "CumSum", [x, np.array(1)], keep=[0])
    case(f, "cumulate_back", "CumSum", [whole(2, 4), np.array(1)], keep=[0], exclusive=1, reverse=1)
    ties = np.array([[2, 5, 1, 5, 3], [0, 0, 4, 1, 0]], np.float32)
    case(f, "top_k", "TopK", [ties, np.array([3])], keep=[0], outputs=2, axis=1)
    case(f, "top_k_small", "TopK", [whole(4, 3), np.array([2])], keep=[0], outputs=2, axis=0, largest=0)
    case(f, "reverse_sequence", "ReverseSequence", [x, np.array([1, 4])], batch_axis=0, time_axis=1)
    case(f, "product_f16", "MatMul", [real(2, 3, dtype=np.float16), real(3, 4, dtype=np.float16)])
    case(f, "product_i32", "MatMul", [whole(2, 1, 2, 3, dtype=np.int32), whole(3, 3, 2, dtype=np.int32)])
    case(f, "product_batches", "MatMul", [real(2, 1, 2, 3), real(3, 3, 2)])
    left, right = whole(2, 3, 5, low=0, high=255, dtype=np.uint8), whole(5, 4, low=-127, high=127, dtype=np.int8)
    zeros = [np.array(100, np.uint8), np.array([3, 0, -7, 9], np.int8)]
    case(f, "product_integer", lambda a, b, p, q: [(a.astype(np.int32) - p) @ (b.astype(np.int32) - q)], [left, right] + zeros)
    for d, way in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
        parts = [real(5, 2, 3), real(d, 16, 3), real(d, 16, 4), real(d, 32)]
        state = [real(d, 2, 4), real(d, 2, 4)]
        lengths = np.array([5, 5], np.int32)
        peep = [real(d, 12)] if d == 1 else []
        if way != "reverse":
            case(f, "lstm_" + way, "LSTM", parts + [lengths] + state + peep, outputs=3, hidden_size=4, direction=way)
        gru = [parts[0], parts[1][:, :12], parts[2][:, :12], parts[3][:, :24]]
        after = dict(linear_before_reset=1) if way == "forward" else {}
        case(f, "gru_" + way, "GRU", gru, outputs=2, hidden_size=4, direction=way, **after)
    plain = [parts[0], parts[1][:1, :4], parts[2][:1, :4], parts[3][:1, :8]]
    case(f, "rnn", "RNN", plain, outputs=2, hidden_size=4)


def grouped(x, w):
    """ONNX's evaluator has no groups here; PyTorch has."""
    y = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), None, (3, 2), 1, 1, 2)
    return [y.numpy()]


def images(f):
    x1, x2, x3 = real(2, 4, 7), real(1, 4, 6, 5), real(1, 2, 4, 5, 3)
    case(f, "conv_1d", "Conv", [x1, real(6, 4, 3), real(6)], last=True, pads=[1, 1], strides=[2])
    case(f, "conv_1d_groups", "Conv", [x1, real(6, 2, 3)], last=True, group=2, dilations=[2])
    case(f, "conv_2d", "Conv", [x2, real(3, 4, 3, 2)], last=True, pads=[1, 0, 0, 1])
    case(f, "conv_depthwise", "Conv", [x2, real(8, 1, 3, 3), real(8)], last=True, group=4, pads=[1, 1, 1, 1], strides=[2, 1])
    case(f, "conv_3d", "Conv", [x3, real(2, 2, 2, 3, 1)], last=True, dilations=[1, 2, 1])
    case(f, "conv_f16", "Conv", [x2.astype(np.float16), real(3, 4, 1, 1, dtype=np.float16)], last=True)
    case(f, "transpose_1d", "ConvTranspose", [x1, real(4, 3, 3)], last=True, strides=[2], pads=[1, 0])
    case(f, "transpose_2d", "ConvTranspose", [x2, real(4, 3, 3, 2), real(3)], last=True, dilations=[2, 1])
    case(f, "transpose_groups", grouped, [x2, real(4, 3, 3, 3)], last=True)
    case(f, "pool_max", "MaxPool", [x2], last=True, outputs=2, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
    slide = np.lib.stride_tricks.sliding_window_view
    case(f, "pool_max_i8", lambda x: [slide(x, (2, 2), (2, 3)).max((4, 5))], [whole(1, 2, 4, 4, dtype=np.int8)], last=True)
    case(f, "pool_max_ceil", "MaxPool", [x2], last=True, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, dilations=[1, 1])
    case(f, "pool_average", "AveragePool", [x2], last=True, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    case(f, "pool_average_pad", "AveragePool", [x3], last=True, kernel_shape=[3, 2, 2], pads=[1, 1, 1, 1, 1, 1], count_include_pad=1)
    case(f, "pool_average_1d", "AveragePool", [x1], last=True, kernel_shape=[3], strides=[2], ceil_mode=1)
    case(f, "pool_lp", "LpPool", [x2], last=True, kernel_shape=[2, 2], p=3)
    columns = real(1, 2 * 4, 12)
    case(f, "col2im", "Col2Im", [columns, np.array([4, 5]), np.array([2, 2])], keep=[0])
    rois = np.array([[0, 0, 3, 4], [1.5, 1, 4.4, 4]], np.float32)
    for mode in ("avg", "max"):
        case(f, "roi_align_" + mode, "RoiAlign", [x2, rois, np.array([0, 0])], mode=mode, output_height=2, output_width=3,
             sampling_ratio=2, spatial_scale=1.0, coordinate_transformation_mode="half_pixel")


def resizing(f):
    x = real(2, 5)

    def one(name, sizes=None, scales=None, roi=None, **attributes):
        scales = np.array([1, scales], np.float32) if scales else None
        sizes = np.array([2, sizes]) if sizes else None
        roi = np.array([0, roi[0], 1, roi[1]], np.float32) if roi else None
        case(f, "resize_" + name, "Resize", [x, roi, scales, sizes], keep=[0], **attributes)

    one("nearest", sizes=8, mode="nearest")
    one("nearest_ceil", scales=0.7, mode="nearest", nearest_mode="ceil", coordinate_transformation_mode="asymmetric")
    one("linear", scales=1.7, mode="linear")
    one("linear_corners", sizes=9, mode="linear", coordinate_transformation_mode="align_corners")
    one("linear_symmetric", scales=0.55, mode="linear", coordinate_transformation_mode="half_pixel_symmetric")
    one("linear_antialias", sizes=2, mode="linear", antialias=1)
    one("linear_crop", sizes=6, mode="linear", coordinate_transformation_mode="tf_crop_and_resize", roi=(0.25, 1.3), extrapolation_value=7.0)
    one("cubic", scales=0.8, mode="cubic")
    one("cubic_exclude", sizes=8, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    one("cubic_antialias", scales=0.6, mode="cubic", antialias=1)
    image, grid = real(1, 2, 3, 4), real(1, 2, 3, 2, low=-1.4, high=1.4)
    for mode, padding, corners in (("linear", "zeros", 0), ("nearest", "border", 0), ("cubic", "reflection", 1)):
        case(f, "grid_" + mode, "GridSample", [image, grid], last=True, version=20, mode=mode, padding_mode=padding, align_corners=corners)
    deep = [real(1, 1, 2, 3, 4), real(1, 1, 2, 2, 3, low=-1.4, high=1.4)]
    case(f, "grid_deep", "GridSample", deep, last=True, version=20, mode="linear", padding_mode="zeros", align_corners=0)


def signals(f):
    x = real(2, 6)
    scale, zero = np.array(0.05, np.float32), np.array(7, np.uint8)
    case(f, "quantize", "QuantizeLinear", [x, scale, zero])
    case(f, "quantize_axis", "QuantizeLinear", [x, np.array([0.02, 0.4], np.float32), np.array([3, -4], np.int8)], axis=0)
    blocks = abs(real(2, 3)) + np.float32(0.01)
    case(f, "quantize_blocks", "QuantizeLinear", [x, blocks, whole(2, 3, dtype=np.int16)], axis=1, block_size=2)
    case(f, "dequantize", "DequantizeLinear", [whole(2, 6, low=0, dtype=np.uint8), scale, zero])
    case(f, "dequantize_axis", "DequantizeLinear", [whole(2, 6, dtype=np.int8), abs(real(6)), whole(6, dtype=np.int8)], axis=1)
    case(f, "dequantize_blocks", "DequantizeLinear", [whole(2, 6, dtype=np.int8), blocks], axis=1, block_size=2)
    wave, turn = real(2, 6, 1), real(1, 5, 2)
    case(f, "dft", "DFT", [wave, None, np.array(1)], keep=[0], onesided=1, version=20)
    case(f, "dft_longer", "DFT", [turn, np.array(8), np.array(1)], keep=[0], version=20)
    case(f, "dft_inverse", "DFT", [turn, None, np.array(1)], keep=[0], inverse=1, version=20)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops.txt"
    np.seterr(all="ignore")
    with open(path, "w", encoding="ascii") as f:
        for part in PARTS:
            part(f)
    print(f"{path}: {os.path.getsize(path)} bytes")


PARTS = [elementwise, pairs, converting, reductions, moving, sequences, images, resizing, signals]
if __name__ == "__main__":
    main()
