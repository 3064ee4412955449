"""One PyTorch model over many variants, each in a process of its own: PyTorch's, and ration's engines.

    from ration.bench import benchmark_model, BenchmarkConfig, display_all_results

    config = BenchmarkConfig(n_samples=256, batch_size=8)
    results = benchmark_model(model, config, ["EAGER", "COMPILE_INDUCTOR_DEFAULT", "ONNX_CPU", "cpu"], data=x)
    display_all_results(results)

The keywords, names and results are alma's, with ours beside them: see docs/bench.md. The harness is the
library's (include/ration/bench.h): time and memory limits, the order asked for, failures as results. The model
is exported to ONNX once where one of ration's variants is asked for.

`python -m ration.bench FILE.py:FACTORY --data 1,3,224,224` measures from the command line.
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from ctypes import (c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p)

from ._bench_variants import ALMA_NAMES, torch_variant

__all__ = ["BenchmarkConfig", "ConversionOption", "LazyLoader", "benchmark_model", "display_all_results",
           "lazyload", "save_dict_to_json", "write_report"]


# ---- what the caller says -------------------------------------------------------------------------------


class BenchmarkConfig:
    """alma's fields, checked; `timeout`, `limit`, `budget`, `threads` and `samples_seconds` are ours.

    n_samples       items that are measured: ceil(n_samples / batch_size) runs; "auto": until the median is
                    certain to 1 %, or samples_seconds are over
    multiprocessing accepted; every variant has a process of its own either way, and cannot hang the caller
    fail_on_error   the first variant that fails ends the benchmark with RuntimeError
    device          obeyed for all of PyTorch's variants; None: cuda, else mps, where they are allowed and here
    """

    _FIELDS = {"n_samples": 128, "batch_size": 128, "multiprocessing": True, "fail_on_error": True,
               "allow_device_override": True, "allow_cuda": True, "allow_mps": True, "device": None,
               "non_blocking": False, "timeout": 300.0, "limit": None, "budget": None, "threads": 0,
               "samples_seconds": 1.0}

    def __init__(self, **fields):
        unknown = sorted(set(fields) - set(self._FIELDS))
        if unknown:
            raise TypeError(f"BenchmarkConfig has no {', '.join(unknown)}; it has {', '.join(self._FIELDS)}")
        for name, usual in self._FIELDS.items():
            setattr(self, name, fields.get(name, usual))
        for name in ("n_samples", "batch_size"):
            value = getattr(self, name)
            if value == "auto" and name == "n_samples":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise ValueError(f"{name} is {value!r}; a number above 0 is wanted")

    def __repr__(self):
        return f"BenchmarkConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in self._FIELDS)})"


class ConversionOption:
    """A variant by its name; for alma's signature."""

    def __init__(self, mode, device_override=None, data_dtype=None):
        self.mode, self.device_override, self.data_dtype = mode, device_override, data_dtype

    def __repr__(self):
        return f"ConversionOption(mode={self.mode!r})"


class LazyLoader:
    """A model that is made by `factory()` in the processes that measure it, and nowhere else."""

    def __init__(self, factory):
        self._factory, self._instance, self._lock = factory, None, threading.Lock()

    def __getstate__(self):
        return {"_factory": self._factory}

    def __setstate__(self, state):
        self.__init__(state["_factory"])

    def is_loaded(self):
        return self._instance is not None

    def load(self):
        with self._lock:
            if self._instance is None:
                self._instance = self._factory()
            return self._instance

    def unload(self):
        with self._lock:
            self._instance = None

    def __call__(self, *args, **kwargs):
        return self.load()(*args, **kwargs)


def lazyload(factory):
    """A LazyLoader of a function without arguments."""
    return LazyLoader(factory)


# ---- the harness (include/ration/bench.h) ---------------------------------------------------------------


class _Variant(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("command", ctypes.POINTER(c_char_p)), ("batch", c_uint64),
                ("budget_bytes", c_uint64), ("reserved", c_uint64 * 4)]


class _Name(ctypes.Structure):
    _fields_ = [("name", c_char * 64), ("engine", c_char * 32), ("target", c_char * 64), ("weights", c_char * 16),
                ("activations", c_char * 16), ("mode", c_char * 32)]


class _Result(ctypes.Structure):
    """The beginning of rn_bench_result, as far as it is looked at while the benchmark runs."""

    _fields_ = [("name", c_char * 64), ("asked", c_char * 64), ("engine", c_char * 32), ("device", c_char * 64),
                ("weights", c_char * 32), ("activations", c_char * 16), ("mode", c_char * 64),
                ("data_dtype", c_char * 16), ("batch", c_uint64), ("budget_bytes", c_uint64), ("threads", c_uint64),
                ("outcome", c_int)]


class _Progress(ctypes.Structure):
    _fields_ = [("index", c_size_t), ("count", c_size_t), ("name", c_char_p), ("stage", c_char_p),
                ("samples", c_uint64), ("p50_s", c_double), ("left_s", c_double), ("ended", c_bool),
                ("result", ctypes.POINTER(_Result))]


_PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(_Progress))


class _Options(ctypes.Structure):
    _fields_ = [("model", c_char_p), ("program", c_char_p), ("arguments", ctypes.POINTER(c_char_p)),
                ("baseline", c_char_p), ("tier", c_char_p), ("sweep", c_char_p),
                ("parameters", c_uint64), ("batch", c_uint64), ("budget_bytes", c_uint64), ("samples", c_uint64),
                ("interval", c_double), ("sample_s", c_double),
                ("timeout_s", c_double), ("limit_bytes", c_uint64), ("threads", c_uint32),
                ("without_binding", c_bool), ("document_samples", c_bool), ("cancel", c_void_p), ("self", c_void_p),
                ("progress", _PROGRESS), ("processes", c_uint64), ("reserved", c_uint64 * 3)]


class _ReportOptions(ctypes.Structure):
    _fields_ = [("width", c_uint32), ("changes", c_void_p), ("reserved", c_uint64 * 4)]


FAILED = ("failed", "crashed", "killed", "no_memory", "timed_out")
WRONG = 1  # RN_BENCH_WRONG: outcomes above it have no figures
FORMS = {"text": 0, "markdown": 1, "csv": 2, "html": 3}


def _library():
    from . import _library as library
    if not getattr(library.slow, "_bench_bound", False):
        pointer = ctypes.POINTER
        for name, result, arguments in (
                ("rn_bench_name_parse", c_int, [library.Str, pointer(_Name)]),
                ("rn_bench_run", c_int, [pointer(_Variant), c_size_t, pointer(_Options), pointer(c_void_p)]),
                ("rn_bench_results_write", c_int, [c_void_p, library.Sink]),
                ("rn_bench_results_read", c_int, [c_char_p, pointer(c_void_p)]),
                ("rn_bench_results_destroy", None, [c_void_p]),
                ("rn_bench_report", c_int, [c_void_p, c_int, pointer(_ReportOptions), library.Sink])):
            function = getattr(library.slow, name)
            function.restype, function.argtypes = result, arguments
        library.slow._bench_bound = True
    return library


def _words(words):
    """A NULL-ended array of C strings."""
    return (c_char_p * (len(words) + 1))(*[os.fsencode(word) for word in words], None)


def _collect(write):
    """What write(sink) writes, as bytes."""
    library, parts = _library(), []

    def take(_self, data, count):
        parts.append(ctypes.string_at(data, count))
        return library.RN_OK
    library.check(write(library.Sink(None, library.WRITE(take))))
    return b"".join(parts)


def write_report(source, target, form=None):
    """Writes results (a file of --output, or what benchmark_model returned) as text, markdown, csv or html;
    the form is the target's ending unless it is named. `target` None: returns the text."""
    library = _library()
    form = form or {".md": "markdown", ".csv": "csv", ".html": "html"}.get(os.path.splitext(str(target))[1], "text")
    results = c_void_p()
    with tempfile.TemporaryDirectory(prefix="ration-bench-") as folder:
        if not isinstance(source, (str, os.PathLike)):
            path = os.path.join(folder, "results.json")
            save_dict_to_json(getattr(source, "document", None) or {"results": list(source.values())}, path)
            source = path
        library.check(library.slow.rn_bench_results_read(os.fsencode(source), ctypes.byref(results)))
    try:
        text = _collect(lambda sink: library.slow.rn_bench_report(results, FORMS[form], None, sink))
    finally:
        library.slow.rn_bench_results_destroy(results)
    if target is None:
        return text.decode()
    with open(target, "wb") as file:
        file.write(text)
    return target


def _find_program(library):
    """The program `ration`, whose workers measure ration's engines."""
    given = os.environ.get("RATION_PROGRAM")
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(library.path or ""))), "bin", "ration")
    for path in (given, beside, shutil.which("ration")):
        if path and os.access(path, os.X_OK):
            return path
    return None


# ---- variants -------------------------------------------------------------------------------------------

USUAL = ["EAGER", "COMPILE_INDUCTOR_DEFAULT", "EXPORT+EAGER", "JIT_TRACE", "cpu", "ONNX_CPU"]


def _name_of(conversion):
    if isinstance(conversion, ConversionOption) or hasattr(conversion, "mode"):
        return conversion.mode
    if isinstance(conversion, int) or str(conversion).isdigit():
        number = int(conversion)
        if number >= len(ALMA_NAMES):
            raise ValueError(f"conversion {number}: give its name; numbers are known up to {len(ALMA_NAMES) - 1}")
        return ALMA_NAMES[number]
    return str(conversion)


def _check_names(names):
    """Refuses what nobody knows before anything runs. Per name: PyTorch's Variant or None, and a reason why it
    cannot be or None."""
    library, found = _library(), []
    for name in names:
        variant, reason = torch_variant(name), None
        if variant is None:
            text, parsed = name.encode(), _Name()
            status = library.slow.rn_bench_name_parse(library.Str(text, len(text)), ctypes.byref(parsed))
            if status == 3:  # RN_UNSUPPORTED: a name of alma's without a meaning here
                reason = library.quick.rn_last_error().contents.message.decode("utf-8", "replace")
            elif status != library.RN_OK:
                try:
                    library.check(status)
                except library.Error as error:
                    raise ValueError(str(error)) from None
        found.append((variant, reason))
    return found


# ---- data -----------------------------------------------------------------------------------------------


def _first_tensor(data):
    from ._bench_worker import each_tensor
    return next(each_tensor(data), None)


def _take_data(data, data_loader, config):
    """The data to save, and the ways to take it, likelier ones first. One sample of alma's is repeated to a
    batch; of a batch, at most batch_size rows are kept: memory does not grow with n_samples."""
    from ._bench_worker import map_tensors
    if data is not None and data_loader is not None:
        raise ValueError("data and data_loader: one of them is wanted")
    if data_loader is not None:
        item = next(iter(data_loader), None)
        if item is None:
            raise ValueError("the data loader is empty")
        if isinstance(item, (list, tuple)):
            item = item[0]  # (data, label)
        return map_tensors(lambda t: t.detach().cpu(), item), ["whole"]
    first = _first_tensor(data)
    if first is None:
        raise ValueError("data holds no tensor")
    known = {1, config.batch_size, config.n_samples}
    is_batch = first.dim() >= 2 and first.shape[0] in known
    if is_batch:
        rows, kept = first.shape[0], min(first.shape[0], config.batch_size)
        data = map_tensors(lambda t: t[:kept] if t.dim() and t.shape[0] == rows else t, data)
    kinds = ["batch", "sample"] if is_batch else ["sample", "batch"]
    return map_tensors(lambda t: t.detach().cpu().contiguous().clone(), data), kinds


# ---- running --------------------------------------------------------------------------------------------


class Results(dict):
    """alma's dictionary: a variant's name as it was asked for, and its figures. `document` is all that the
    harness says, as `ration bench --output` writes it."""

    document = None


def _save_model(model, folder):
    import torch
    from . import _by_value
    path = os.path.join(folder, "model.pt")
    try:
        torch.save(model, path, pickle_module=_by_value, pickle_protocol=4)
    except Exception as error:
        raise TypeError(f"the model cannot be given to another process: {error}. Give a function that makes it: "
                        "benchmark_model(lazyload(make_model), ...)") from error


def _worker_command(folder, *words):
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join([package] + [entry for entry in given if entry and entry != package])
    command = ["env", f"PYTHONPATH={path}"]
    library = _library()
    if library.path:
        command.append(f"RATION_LIBRARY={os.path.abspath(library.path)}")
    return command + [sys.executable, "-m", "ration._bench_worker", folder, *words]


def _prepare(folder, config):
    ended = subprocess.run(_worker_command(folder, "prepare"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           timeout=config.timeout, check=False)
    try:
        with open(os.path.join(folder, "prepared.json")) as file:
            prepared = json.load(file)
    except FileNotFoundError:
        tail = ended.stderr.decode("utf-8", "replace")[-2000:]
        raise RuntimeError(f"looking at the model ended with exit code {ended.returncode}\n{tail}") from None
    if "error" in prepared:
        raise ValueError(prepared["error"])
    return prepared


def _commands(names, found, prepared, folder, has_program):
    """Per variant its worker's command; None: ration's own."""
    for (variant, reason), _name in zip(found, names):
        if variant is not None:
            yield _worker_command(folder, "measure", variant.name)
        elif reason or not has_program or "onnx" not in prepared:
            no_program = "the program ration was not found (RATION_PROGRAM names it)"
            why = reason or prepared.get("no_onnx") or no_program
            yield _worker_command(folder, "refuse", why)
        else:
            yield None


class _Run:
    """One call of the harness; what ctypes refers to lives as long as this."""

    def __init__(self, names, commands, prepared, config, model_name, progress):
        self.library = _library()
        self.fail_on_error, self.user = config.fail_on_error, progress
        self.cancel = c_bool(False)
        self.words = [_words(command) if command else None for command in commands]
        self.variants = (_Variant * len(names))(*[
            _Variant(name=name.encode(), command=words if words else None)
            for name, words in zip(names, self.words)])
        inputs = [word for name, file in prepared.get("inputs", []) for word in ("--input", f"{name}={file}")]
        self.arguments = _words(inputs)
        program = _find_program(self.library)
        runs = 0 if config.n_samples == "auto" else -(-config.n_samples // prepared["batch"])
        self.options = _Options(
            model=os.fsencode(prepared.get("onnx", model_name)), program=os.fsencode(program) if program else None,
            arguments=self.arguments, parameters=prepared["parameters"], batch=prepared["batch"], samples=runs,
            sample_s=config.samples_seconds,
            timeout_s=config.timeout, threads=config.threads, progress=_PROGRESS(self._progress),
            budget_bytes=self.library.size(config.budget) if config.budget else 0,
            limit_bytes=self.library.size(config.limit) if config.limit else 0,
            cancel=ctypes.addressof(self.cancel))
        self.interrupted = False

    def _progress(self, _self, progress):
        try:
            now = progress.contents
            if self.fail_on_error and now.ended and now.result and now.result.contents.outcome > WRONG:
                self.cancel.value = True  # the others are not begun
            if self.user:
                self.user(now)
        except KeyboardInterrupt:
            self.interrupted = True
            self.cancel.value = True

    def __call__(self):
        results = c_void_p()
        self.library.check(self.library.slow.rn_bench_run(self.variants, len(self.variants),
                                                          ctypes.byref(self.options), ctypes.byref(results)))
        try:
            text = _collect(lambda sink: self.library.slow.rn_bench_results_write(results, sink))
        finally:
            self.library.slow.rn_bench_results_destroy(results)
        return json.loads(text)


def _as_alma(item):
    """alma's values are torch's own objects."""
    import torch
    dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
              "i64": torch.int64, "i32": torch.int32}
    item = dict(item)
    item["data_dtype"] = dtypes.get(item.get("data_dtype"), item.get("data_dtype"))
    try:
        item["device"] = torch.device(item["device"])
    except (RuntimeError, TypeError, KeyError):
        pass  # a device of ours: "xla:cpu"
    return item


def benchmark_model(model, config=None, conversions=None, data=None, data_loader=None, progress=None):
    """Measures `model` (an nn.Module, or a LazyLoader that makes one) and returns {name: figures} in the order
    asked for.

    config       a BenchmarkConfig or a dictionary of its fields
    conversions  names, alma's numbers or ConversionOptions; None: those that usually matter (USUAL)
    data         one sample or a batch. It is taken as a batch where its first axis is 1, batch_size or n_samples
                 long, else as one sample; where the model refuses that, the other way. Also a tuple of tensors
                 (positional inputs) or a dictionary (keywords).
    data_loader  its first batch is measured, as it is; of (data, label) the data
    progress     called with the state of the run (name, stage, samples, p50_s, ...) now and then

    A variant's `command` measures it again, alone; what that needs stays in a temporary folder if one failed.

    ValueError: names or data that make no sense, before anything is measured. RuntimeError: fail_on_error, and a
    variant failed; its `results` are those until then.
    """
    config = BenchmarkConfig(**config) if isinstance(config, dict) else config or BenchmarkConfig()
    names = [_name_of(conversion) for conversion in (USUAL if conversions is None else conversions)]
    if not names:
        raise ValueError("no conversions")
    found = _check_names(names)
    has_program = _find_program(_library()) is not None
    kept, kinds = _take_data(data, data_loader, config)
    folder = tempfile.mkdtemp(prefix="ration-bench-")
    keep = False
    try:
        import torch
        _save_model(model, folder)
        torch.save(kept, os.path.join(folder, "data.pt"))
        wants_onnx = has_program and any(variant is None and not reason for variant, reason in found)
        setup = {"path": [os.path.abspath(entry) for entry in sys.path], "batch": config.batch_size, "kinds": kinds,
                 "export": wants_onnx, "device": None if config.device is None else str(config.device),
                 "allow_cuda": config.allow_cuda, "allow_mps": config.allow_mps, "threads": config.threads}
        _write_setup(folder, setup)
        prepared = _prepare(folder, config)
        _write_setup(folder, dict(setup, rows=prepared["batch"]))
        commands = list(_commands(names, found, prepared, folder, has_program))
        run = _Run(names, commands, prepared, config, type(model).__name__, progress)
        document = run()
        keep = any(item["outcome"] in FAILED for item in document["results"])
    finally:
        if not keep:  # else the commands that show a failure again need it
            shutil.rmtree(folder, ignore_errors=True)
    document["model"] = type(model).__name__
    results = Results((name, _as_alma(item)) for name, item in zip(names, document["results"]))
    results.document = document
    if run.interrupted:
        display_all_results(results)
        raise KeyboardInterrupt
    if config.fail_on_error:
        _raise_failure(results)
    return results


def _write_setup(folder, setup):
    with open(os.path.join(folder, "setup.json"), "w") as file:
        json.dump(setup, file)


def _raise_failure(results):
    for name, item in results.items():
        if item["status"] == "error" and item.get("outcome") != "cancelled":
            error = RuntimeError(f"{name}: {item.get('error')}\n{item.get('traceback') or ''}".rstrip())
            error.results = results
            raise error


# ---- showing --------------------------------------------------------------------------------------------


def _show_success(item, show):
    latency = item["latency"] or {}
    show(f"Device: {item['device']}")
    show(f"Total elapsed time: {item['total_elapsed_time']:.4f} seconds")
    show(f"Total inference time (model only): {item['total_inf_time']:.4f} seconds")
    show(f"Total samples: {item['total_samples']} - Batch size: {item['batch_size']}")
    show(f"Data dtype: {item['data_dtype']}")
    show(f"Throughput: {item['throughput']:.2f} samples/second")
    if latency.get("p50_s"):
        show(f"Latency of a run: {1e3 * latency['p50_s']:.3f} ms "
             f"({1e3 * latency['p50_low_s']:.3f} to {1e3 * latency['p50_high_s']:.3f}), "
             f"p99 {1e3 * latency['p99_s']:.3f} ms")
    if item.get("resident_peak_bytes"):
        show(f"Peak memory (resident): {item['resident_peak_bytes'] / 2**20:.1f} MiB")
    accuracy = item.get("accuracy")
    if accuracy and accuracy["reference"] != item["name"]:
        show(f"Error against {accuracy['reference']}: {accuracy['max_rel']:.1e} (largest, relative)")


def display_all_results(all_results, display_function=print, include_errors=True,
                        include_traceback_for_errors=False):
    """A paragraph a variant, as alma prints them, with latency, memory and error."""
    display_function("\n\nAll results:")
    for name, item in all_results.items():
        display_function(f"{name} results:")
        if item["status"] == "success":
            _show_success(item, display_function)
        else:
            display_function(f"Benchmarking failed ({(item.get('outcome') or 'failed').replace('_', ' ')})")
            if include_errors:
                display_function(f"Error: {item.get('error')}")
            if include_traceback_for_errors:
                display_function(item.get("traceback") or "")
        display_function("\n")


def save_dict_to_json(results, path):
    """The results as JSON; torch's objects as their names."""
    with open(path, "w") as file:
        json.dump(results, file, indent=2, default=str)


# ---- python -m ration.bench -----------------------------------------------------------------------------


def _factory(text):
    """A model by module:name or FILE.py:name (a function or class without arguments), or a saved FILE.pt."""
    import importlib
    import runpy
    if text.endswith((".pt", ".pth")):
        import torch
        return lazyload(lambda: torch.load(text, weights_only=False))
    place, _, name = text.partition(":")
    if not name:
        raise SystemExit(f"{text}: module:function, file.py:function or file.pt is wanted")
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        return lazyload(runpy.run_path(place, run_name="__main__bench__")[name])
    sys.path.insert(0, os.getcwd())
    return lazyload(getattr(importlib.import_module(place), name))


def _progress_line(progress):
    name = progress.name.decode("utf-8", "replace")
    if sys.stderr.isatty():
        median = f", median {1e3 * progress.p50_s:.3f} ms" if progress.p50_s == progress.p50_s else ""
        stage = (progress.stage or b"").decode("utf-8", "replace")
        line = f"{progress.index + 1}/{progress.count} {name}: {stage}, {progress.samples} samples{median}"
        sys.stderr.write("\r\x1b[K" + line[:100])
        sys.stderr.flush()


def _arguments():
    parser = argparse.ArgumentParser(prog="python -m ration.bench", description=__doc__.split("\n")[0])
    parser.add_argument("model", help="module:function, file.py:function or file.pt")
    parser.add_argument("--data", required=True, metavar="N,N,...", help="shape of a sample or batch, normal numbers")
    parser.add_argument("--conversions", nargs="+", help="names or numbers, separated by spaces or commas")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--n-samples", default="auto", help="items, or auto")
    parser.add_argument("--device", help="of PyTorch's variants: cpu, cuda:1")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--output", metavar="FILE.json")
    parser.add_argument("--html", metavar="FILE.html")
    return parser.parse_args()


def main():
    given = _arguments()
    import torch
    torch.manual_seed(0)
    data = torch.randn(*[int(n) for n in given.data.split(",")])
    conversions = [name for word in given.conversions for name in word.split(",")] if given.conversions else None
    n_samples = given.n_samples if given.n_samples == "auto" else int(given.n_samples)
    config = BenchmarkConfig(n_samples=n_samples, batch_size=given.batch_size, device=given.device,
                             timeout=given.timeout, threads=given.threads, fail_on_error=False)
    results = benchmark_model(_factory(given.model), config, conversions, data=data, progress=_progress_line)
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    results.document["model"] = given.model
    print(write_report(results, None, "text"), end="")
    if given.output:
        save_dict_to_json(results.document, given.output)
    if given.html:
        write_report(results, given.html, "html")
    return 0


if __name__ == "__main__":
    from ration.bench import main as imported_main  # not __main__'s: other processes find it by this name
    sys.exit(imported_main())
