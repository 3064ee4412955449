"""The worker of `ration.bench`: a fresh process that measures one of PyTorch's variants, or prepares.

    python -m ration._bench_worker FOLDER prepare           one look at the model: which inputs it takes, ONNX
    python -m ration._bench_worker FOLDER measure VARIANT   e.g. torch+bf16+compile
    python -m ration._bench_worker FOLDER refuse REASON     a variant that cannot be, as a result

FOLDER (ration.bench writes it) has setup.json, model.pt (pickled by value, or a LazyLoader's factory) and
data.pt; prepare adds prepared.json, inputs.pt, and for ration's engines model.onnx with the inputs as .npy.
The model is loaded in these processes only where it is lazy.
"""

import ctypes
import importlib.util
import json
import os
import sys
import time
import traceback

from . import _by_value
from ._bench_variants import PACKAGES, torch_variant

# rn_status
RN_INVALID, RN_UNSUPPORTED, RN_OVER_BUDGET, RN_NO_MEMORY, RN_DEVICE, RN_INTERNAL = 1, 3, 4, 5, 8, 10


class Refused(Exception):
    """A variant that cannot be here, and why."""

    def __init__(self, message, status=RN_UNSUPPORTED):
        super().__init__(message)
        self.status = status


class Harness:
    """The worker's half of include/ration/bench.h."""

    def __init__(self):
        from . import _library
        self.library, self.story = _library, _library.Story
        c = _library.slow
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in (
                ("open", ctypes.c_int, [ctypes.POINTER(pointer)]),
                ("stage", None, [pointer, text]),
                ("sample", ctypes.c_bool, [pointer, ctypes.c_double]),
                ("output", ctypes.c_int, [pointer, pointer, ctypes.c_size_t]),
                ("figures", ctypes.c_int, [pointer, text]),
                ("fail", None, [pointer, ctypes.POINTER(_library.Story)]),
                ("close", ctypes.c_int, [pointer])):
            function = getattr(c, "rn_bench_worker_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, "_" + name, function)
        self.worker = pointer()
        _library.check(self._open(ctypes.byref(self.worker)))

    def stage(self, name):
        self._stage(self.worker, name.encode())

    def sample(self, ns):
        return self._sample(self.worker, ns)

    def output(self, tensor):
        self.library.check(self._output(self.worker, tensor.data_ptr(), tensor.numel()))

    def figures(self, figures):
        self.library.check(self._figures(self.worker, json.dumps(figures).encode()))

    def fail(self, message, status, hint=""):
        story = self.story(status=status, message=message.encode()[:1023], hint=hint.encode()[:511])
        self._fail(self.worker, ctypes.byref(story))

    def close(self):
        self.library.check(self._close(self.worker))


# ---- the folder -----------------------------------------------------------------------------------------


def read_setup(folder):
    with open(os.path.join(folder, "setup.json")) as file:
        setup = json.load(file)
    sys.path[:] = setup["path"] + [entry for entry in sys.path if entry not in setup["path"]]
    return setup


def _load(folder, name):
    import torch
    return torch.load(os.path.join(folder, name), pickle_module=_by_value, weights_only=False)


def load_model(folder):
    from .bench import LazyLoader
    model = _load(folder, "model.pt")
    if isinstance(model, LazyLoader):
        model = model.load()
    return model.eval() if hasattr(model, "eval") else model


def each_tensor(value):
    """The tensors of an output, however it is nested, in order."""
    import torch
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from each_tensor(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from each_tensor(item)


def map_tensors(function, value):
    import torch
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(map_tensors(function, item) for item in value)
    return value


def call(model, inputs):
    return model(*inputs["args"], **inputs["kwargs"])


# ---- preparing ------------------------------------------------------------------------------------------


def _as_inputs(data):
    if isinstance(data, dict):
        return {"args": (), "kwargs": dict(data)}
    return {"args": tuple(data) if isinstance(data, (list, tuple)) else (data,), "kwargs": {}}


def _batch_of(data, kind, batch):
    """`batch` rows: of a sample the same row, of a batch its rows in turn."""
    import torch

    def rows(tensor):
        if kind == "sample":
            tensor = tensor.unsqueeze(0)
        if tensor.dim() == 0 or tensor.shape[0] == batch:
            return tensor
        return tensor.index_select(0, torch.arange(batch) % tensor.shape[0])
    return _as_inputs(map_tensors(rows, data))


def choose_inputs(model, data, setup):
    """The batch that the model takes. Which way `data` is meant is tried in setup's order."""
    import torch
    failures = []
    for kind in setup["kinds"]:
        inputs = _as_inputs(data) if kind == "whole" else _batch_of(data, kind, setup["batch"])
        try:
            with torch.inference_mode():
                call(model, inputs)
            return kind, inputs
        except Exception as error:  # the model's own, of any kind
            failures.append(f"as {'a' if kind != 'whole' else 'the'} {kind}: {error}")
    raise Refused("the model does not take the data; " + "; ".join(failures), RN_INVALID)


def _export(model, inputs, folder):
    """model.onnx and the inputs as files; {"onnx": path, "inputs": [[name, file]]}."""
    import numpy
    import torch
    path = os.path.join(folder, "model.onnx")
    if importlib.util.find_spec("onnx") is None:
        raise Refused("package onnx is missing")
    modern = importlib.util.find_spec("onnxscript") is not None
    more = {"dynamo": True, "external_data": False, "verbose": False} if modern else {"dynamo": False}
    with torch.inference_mode():
        torch.onnx.export(model, inputs["args"], path, kwargs=inputs["kwargs"] or None, **more)
    import onnx
    graph = onnx.load(path, load_external_data=False).graph
    constants = {item.name for item in graph.initializer}
    names = [item.name for item in graph.input if item.name not in constants]
    tensors = list(each_tensor((inputs["args"], inputs["kwargs"])))
    files = []
    for number, (name, tensor) in enumerate(zip(names, tensors)):
        file = os.path.join(folder, f"input{number}.npy")
        numpy.save(file, tensor.detach().contiguous().numpy())
        files.append([name, file])
    return {"onnx": path, "inputs": files}


def prepare(folder):
    setup = read_setup(folder)
    import torch
    prepared = {}
    try:
        model = load_model(folder)
        kind, inputs = choose_inputs(model, _load(folder, "data.pt"), setup)
        torch.save(inputs, os.path.join(folder, "inputs.pt"))
        first = next(each_tensor((inputs["args"], inputs["kwargs"])), None)
        parameters = model.parameters() if hasattr(model, "parameters") else ()
        prepared = {"kind": kind, "parameters": sum(p.numel() for p in parameters),
                    "batch": first.shape[0] if first is not None and first.dim() else 1}
        if setup["export"]:
            try:
                prepared.update(_export(model, inputs, folder))
            except Exception as error:
                traceback.print_exc()
                while error.__cause__ is not None:
                    error = error.__cause__
                prepared["no_onnx"] = f"the model cannot be exported to ONNX: {error}".split("\n")[0]
    except Exception as error:
        traceback.print_exc()
        prepared["error"] = str(error) or type(error).__name__
        prepared["traceback"] = traceback.format_exc()
    with open(os.path.join(folder, "prepared.json"), "w") as file:
        json.dump(prepared, file)


# ---- building a variant ---------------------------------------------------------------------------------


def choose_device(setup):
    """What the caller named, else the best that is allowed. A device that is not here is refused."""
    import torch
    name = setup["device"]
    if name is None:
        if setup["allow_cuda"] and torch.cuda.is_available():
            name = "cuda"
        elif setup["allow_mps"] and torch.backends.mps.is_available():
            name = "mps"
        else:
            name = "cpu"
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Refused(f"device {name}: torch finds no CUDA GPU", RN_DEVICE)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise Refused(f"device {name}: there are {torch.cuda.device_count()}", RN_DEVICE)
    return device


def _compile(model, mode):
    import torch
    modes = {"compile": {}, "reduce-overhead": {"mode": "reduce-overhead"},
             "max-autotune": {"mode": "max-autotune"}, "eager-fallback": {}}
    if mode in modes:
        if mode == "eager-fallback":
            torch._dynamo.config.suppress_errors = True
        return torch.compile(model, backend="inductor", **modes[mode])
    backend = {"tensorrt": "torch_tensorrt"}.get(mode, mode)
    if mode in PACKAGES:
        importlib.import_module({"openvino": "openvino.torch"}.get(mode, PACKAGES[mode]))
    if backend not in torch._dynamo.list_backends(exclude_tags=()):
        raise Refused(f"torch {torch.__version__} has no back end {backend}")
    return torch.compile(model, backend=backend)


def check_packages(variant):
    """Before torch is imported, which takes seconds."""
    for package in ("torch", PACKAGES.get(variant.mode)):
        if package and importlib.util.find_spec(package) is None:
            raise Refused(f"package {package} is missing")


def build(variant, model, inputs):
    """What is called with the inputs."""
    import torch
    if variant.mode == "cudagraphs" and not torch.cuda.is_available():
        raise Refused("CUDA graphs need a CUDA GPU", RN_DEVICE)
    if variant.export or variant.mode == "aot":
        exported = torch.export.export(model, inputs["args"], inputs["kwargs"] or None)
        if variant.mode == "aot":
            package = torch._inductor.aoti_compile_and_package(exported)
            return torch._inductor.aoti_load_package(package)
        model = exported.module()
    if variant.mode == "trace":
        return torch.jit.trace(model, inputs["args"], example_kwarg_inputs=inputs["kwargs"] or None, strict=False)
    if variant.mode == "script":
        return torch.jit.script(model)
    return _compile(model, variant.mode) if variant.mode else model


def _as_dtype(variant, model, inputs):
    import torch
    if not variant.dtype:
        return model, inputs
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[variant.dtype]
    cast = map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, (inputs["args"], inputs["kwargs"]))
    return model.to(dtype), {"args": cast[0], "kwargs": cast[1]}


SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "int32": "i32",
         "uint8": "u8", "int8": "i8", "bool": "bool"}


def short_dtype(tensor):
    return SHORT.get(str(tensor.dtype).replace("torch.", ""), str(tensor.dtype))


def measure(folder, name, harness):
    harness.stage("loading")
    setup, variant = read_setup(folder), torch_variant(name)
    check_packages(variant)
    begin = time.perf_counter()
    import torch
    if setup["threads"]:
        torch.set_num_threads(setup["threads"])
    device = choose_device(setup)
    model, inputs = load_model(folder), _load(folder, "inputs.pt")
    if hasattr(model, "to"):
        model = model.to(device)
    moved = map_tensors(lambda t: t.to(device), (inputs["args"], inputs["kwargs"]))
    model, inputs = _as_dtype(variant, model, {"args": moved[0], "kwargs": moved[1]})
    loaded = time.perf_counter()
    is_cuda = device.type == "cuda"
    synchronize = torch.cuda.synchronize if is_cuda else lambda: None
    with torch.inference_mode(mode=variant.mode not in ("onnxrt", "openvino")), torch.no_grad():
        harness.stage("compiling" if variant.mode or variant.export else "warm_up")
        run = build(variant, model, inputs)
        built = time.perf_counter()
        result = call(run, inputs)  # torch.compile compiles here
        synchronize()
        first = time.perf_counter()
        args, kwargs = inputs["args"], inputs["kwargs"]
        harness.stage("warm_up")
        more = True
        while more:
            start = time.perf_counter_ns()
            result = run(*args, **kwargs)
            synchronize()
            more = harness.sample(time.perf_counter_ns() - start)
    tensors = list(each_tensor(result))
    for tensor in tensors:
        harness.output(tensor.detach().to("cpu", torch.float32).contiguous())
    parameter = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    data = next(each_tensor((args, kwargs)), None)
    # What torch.compile returns compiles in its first run.
    compiled = first if variant.mode and variant.mode not in ("trace", "script", "aot") else built
    mode = "+".join(["export"] * variant.export + [variant.mode] * bool(variant.mode))
    figures = {"engine": "torch", "device": str(device), "mode": mode or None, "batch_size": setup["rows"],
               "threads": torch.get_num_threads(), "load_s": loaded - begin, "first_s": first - built,
               "compile_s": compiled - loaded if mode else None}
    if parameter is not None:
        figures["weights"] = figures["activations"] = short_dtype(parameter)
    if data is not None:
        figures["data_dtype"] = short_dtype(data)
    if is_cuda:
        figures["device_memory"] = {"peak_bytes": torch.cuda.max_memory_reserved(device)}
    harness.figures(figures)


def main(arguments):
    folder, what, *rest = arguments
    if what == "prepare":
        prepare(folder)
        return 0
    harness = Harness()
    try:
        if what == "refuse":
            raise Refused(rest[0])
        measure(folder, rest[0], harness)
    except Refused as error:
        harness.fail(str(error), error.status)
    except MemoryError as error:
        harness.fail(f"no memory: {error}", RN_NO_MEMORY)
    except Exception as error:
        traceback.print_exc()
        no_memory = type(error).__name__ == "OutOfMemoryError"
        first = (str(error) or type(error).__name__).split("\n")[0]
        harness.fail(f"{type(error).__name__}: {first}", RN_NO_MEMORY if no_memory else RN_INTERNAL)
    sys.stderr.flush()
    harness.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
