"""Which of the names of a benchmark are PyTorch's own variants, and what they need.

torch[+f16|+bf16][+export][+MODE], MODE one of compile, reduce-overhead, max-autotune, eager-fallback,
cudagraphs, onnxrt, tvm, tensorrt, openvino, trace, script, aot. alma's names for the
same are understood, and so are those of its users' documents (COMPILE_INDUCTOR). All other names are the
harness's: ration's own engines, ONNX Runtime, XLA.
"""

import collections

Variant = collections.namedtuple("Variant", "name dtype export mode")

# alma's technique: our mode.
_ALMA_MODES = {
    "EAGER": "", "JIT_TRACE": "trace", "TORCH_SCRIPT": "script", "AOT_INDUCTOR": "aot",
    "COMPILE_INDUCTOR": "compile", "COMPILE_INDUCTOR_DEFAULT": "compile",
    "COMPILE_INDUCTOR_REDUCE_OVERHEAD": "reduce-overhead",
    "COMPILE_INDUCTOR_MAX_AUTOTUNE": "max-autotune",
    "COMPILE_INDUCTOR_EAGER_FALLBACK": "eager-fallback",
    "COMPILE_INDUCTOR_DEFAULT_EAGER_FALLBACK": "eager-fallback",
    "COMPILE_CUDAGRAPHS": "cudagraphs", "COMPILE_ONNXRT": "onnxrt", "COMPILE_TVM": "tvm",
    "COMPILE_TENSORRT": "tensorrt", "COMPILE_OPENVINO": "openvino", "TENSORRT": "tensorrt", "OPENVINO": "openvino",
}
MODES = set(_ALMA_MODES.values())
# Modes by the package without which they cannot be.
PACKAGES = {"onnxrt": "onnxruntime", "tvm": "tvm", "tensorrt": "torch_tensorrt", "openvino": "openvino"}


def _canonical(dtype, export, mode):
    return "+".join(["torch"] + [part for part in (dtype, "export" if export else "", mode) if part])


def torch_variant(name):
    """A Variant, or None where the name is none of PyTorch's."""
    words = name.split("+")
    if words[0] == "torch":
        dtypes, modes = {"f16": "f16", "fp16": "f16", "bf16": "bf16"}, {mode: mode for mode in MODES if mode}
        export_word, words = "export", words[1:]
    else:
        dtypes, modes = {"FP16": "f16", "BF16": "bf16"}, _ALMA_MODES
        export_word = "EXPORT"
    dtype, export, mode = "", False, None
    for word in words:
        if word in dtypes and not dtype:
            dtype = dtypes[word]
        elif word == export_word and not export:
            export = True
        elif word in modes and mode is None:
            mode = modes[word]
        else:
            return None
    mode = mode or ""
    return Variant(_canonical(dtype, export, mode), dtype, export, mode)


# What alma's list is in, by number; refused or given to the harness by its names.
ALMA_NAMES = (
    "EAGER EXPORT+EAGER ONNX_CPU ONNX_GPU ONNX+DYNAMO_EXPORT COMPILE_CUDAGRAPHS COMPILE_INDUCTOR_DEFAULT "
    "COMPILE_INDUCTOR_REDUCE_OVERHEAD COMPILE_INDUCTOR_MAX_AUTOTUNE COMPILE_INDUCTOR_EAGER_FALLBACK COMPILE_ONNXRT "
    "COMPILE_OPENXLA COMPILE_TVM EXPORT+AI8WI8_FLOAT_QUANTIZED EXPORT+AI8WI8_FLOAT_QUANTIZED+RUN_DECOMPOSITION "
    "EXPORT+AI8WI8_STATIC_QUANTIZED EXPORT+AI8WI8_STATIC_QUANTIZED+RUN_DECOMPOSITION EXPORT+AOT_INDUCTOR "
    "EXPORT+COMPILE_CUDAGRAPHS EXPORT+COMPILE_INDUCTOR_DEFAULT EXPORT+COMPILE_INDUCTOR_REDUCE_OVERHEAD "
    "EXPORT+COMPILE_INDUCTOR_MAX_AUTOTUNE EXPORT+COMPILE_INDUCTOR_DEFAULT_EAGER_FALLBACK EXPORT+COMPILE_ONNXRT "
    "EXPORT+COMPILE_OPENXLA EXPORT+COMPILE_TVM NATIVE_CONVERT_AI8WI8_STATIC_QUANTIZED "
    "NATIVE_FAKE_QUANTIZED_AI8WI8_STATIC COMPILE_TENSORRT EXPORT+COMPILE_TENSORRT COMPILE_OPENVINO JIT_TRACE "
    "TORCH_SCRIPT").split()
