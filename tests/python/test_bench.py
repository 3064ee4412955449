"""test_bench.py — ration.bench with PyTorch: the document's example as written, alma's keywords, what alma fails at."""
import ctypes
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
from torch import nn

from ration import _by_value, bench
from ration.bench import BenchmarkConfig, ConversionOption, benchmark_model, display_all_results, lazyload

torch.set_num_threads(1)


class SimpleCNN(nn.Module):  # in __main__: pickled by value
    def __init__(self, width=4):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, width, 3), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class Stubborn(nn.Module):
    """Cannot be traced, and says so at more length than a pipe holds."""

    def forward(self, a, b):
        if not torch.jit.is_tracing():
            return {"sum": a + b}
        raise RuntimeError("x" * 300000)


def quick(**more):
    return BenchmarkConfig(**{"n_samples": 4, "batch_size": 1, "device": torch.device("cpu"), "fail_on_error": False,
                              "threads": 1, **more})


class ByValue(unittest.TestCase):
    def test_globals_are_those_of_a_module(self):
        """torch.compile looks a function's globals up in the module that they name."""
        pickled = io.BytesIO()
        _by_value.dump(SimpleCNN.forward, pickled)
        pickled.seek(0)
        forward = _by_value.load(pickled)
        module = importlib.import_module(forward.__globals__["__name__"])
        self.assertIs(module.torch, torch)
        self.assertIs(forward.__globals__, module.__dict__)


class Names(unittest.TestCase):
    def test_almas_and_ours(self):
        for name, ours in (("EAGER", "torch"), ("FP16+EAGER", "torch+f16"), ("COMPILE_INDUCTOR", "torch+compile"),
                           ("BF16+EXPORT+COMPILE_INDUCTOR_DEFAULT", "torch+bf16+export+compile"),
                           ("EXPORT+AOT_INDUCTOR", "torch+export+aot"), ("torch+fp16+trace", "torch+f16+trace")):
            self.assertEqual(bench.torch_variant(name).name, ours)
        for name in ("cpu", "ONNX_CPU", "COMPILE_OPENXLA", "OPTIMUM_QUANTO_WI8", "EAGER+EAGER", "torch+what"):
            self.assertIsNone(bench.torch_variant(name))

    def test_an_unknown_name_is_refused_with_the_nearest(self):
        with self.assertRaisesRegex(ValueError, "EAGER|eager"):
            benchmark_model(SimpleCNN(), quick(), ["EAGERR"], data=torch.randn(1, 3, 8, 8))

    def test_config(self):
        with self.assertRaisesRegex(TypeError, "n_sample"):
            BenchmarkConfig(n_sample=3)
        with self.assertRaises(ValueError):
            BenchmarkConfig(batch_size=0)


class Layout(unittest.TestCase):
    """The structures of include/ration/bench.h, by the list that scripts/check/abi keeps."""

    def test_sizes_and_offsets(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        with open(os.path.join(root, "tests", "abi", "types.txt")) as file:
            known = dict(line.split(" ", 1) for line in file.read().splitlines())
        for name, struct in (("rn_bench_variant", bench._Variant), ("rn_bench_name", bench._Name),
                             ("rn_bench_progress", bench._Progress), ("rn_bench_options", bench._Options),
                             ("rn_bench_report_options", bench._ReportOptions)):
            self.assertEqual(known[name], f"{ctypes.sizeof(struct)} bytes", name)
            for field, *_ in struct._fields_:
                self.assertEqual(known[f"{name}.{field}"], f"at {getattr(struct, field).offset}", f"{name}.{field}")
        self.assertEqual(known["rn_bench_result.outcome"], f"at {bench._Result.outcome.offset}")


class Data(unittest.TestCase):
    def take(self, data, **more):
        return bench._take_data(data, None, quick(**more))

    def test_memory_does_not_grow_with_samples(self):
        x = torch.randn(1, 3, 8, 8)
        kept, kinds = self.take(x.repeat(64, 1, 1, 1), n_samples=64, batch_size=2)
        self.assertEqual((tuple(kept.shape), kinds[0]), ((2, 3, 8, 8), "batch"))
        self.assertEqual(kept.untyped_storage().nbytes(), 2 * 3 * 8 * 8 * 4)  # not the whole batch's

    def test_a_sample_and_a_batch(self):
        self.assertEqual(self.take(torch.randn(3, 8, 8), n_samples=64, batch_size=2)[1][0], "sample")
        self.assertEqual(self.take(torch.randn(64, 8), n_samples=64, batch_size=2)[1][0], "batch")
        with self.assertRaises(ValueError):
            bench._take_data(torch.ones(1), [torch.ones(1)], quick())


class Run(unittest.TestCase):
    def test_order_devices_figures_and_refusals(self):
        def make():
            with open(marker, "a") as file:
                file.write(f"{os.getpid()}\n")
            torch.manual_seed(1)
            return SimpleCNN()

        names = ["cpu", "EAGER", "COMPILE_TVM"]
        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "made")
            results = benchmark_model(lazyload(make), vars(quick()), names, data=torch.randn(3, 8, 8))
            with open(marker) as file:
                self.assertNotIn(str(os.getpid()), file.read().split())
        self.assertEqual(list(results), names)
        for name in names[:2]:
            item = results[name]
            self.assertEqual(item["status"], "success", item)
            self.assertEqual((item["total_samples"], item["batch_size"]), (4, 1))
            self.assertEqual((item["data_dtype"], item["device"]), (torch.float32, torch.device("cpu")))
            for key in ("total_elapsed_time", "total_inf_time", "throughput"):
                self.assertGreater(item[key], 0)
        # The same inputs, the same model; and a worker's memory is not its parent's.
        self.assertLess(results["EAGER"]["accuracy"]["max_rel"], 1e-5)
        self.assertLess(results["cpu"]["resident_peak_bytes"], results["EAGER"]["resident_peak_bytes"] / 2)
        self.assertEqual((results["COMPILE_TVM"]["status"], results["COMPILE_TVM"]["outcome"]), ("error", "refused"))
        shown = []
        display_all_results(results, shown.append)
        self.assertIn("package tvm is missing", "\n".join(shown))
        with tempfile.TemporaryDirectory() as folder:
            bench.save_dict_to_json(results, os.path.join(folder, "results.json"))
            with open(os.path.join(folder, "results.json")) as file:
                self.assertEqual(json.load(file)["EAGER"]["device"], "cpu")
            with open(bench.write_report(results, os.path.join(folder, "page.html"))) as file:
                self.assertIn("package tvm is missing", file.read())

    def test_failures_and_long_messages_are_results(self):
        loader = [({"a": torch.ones(2, 3), "b": torch.ones(2, 3)}, "label")]
        with self.assertRaisesRegex(RuntimeError, "JIT_TRACE") as caught:
            benchmark_model(Stubborn(), quick(fail_on_error=True),
                            [ConversionOption("EAGER"), "JIT_TRACE", "EXPORT+EAGER"],
                            data_loader=loader)
        results = caught.exception.results
        self.assertEqual((results["EAGER"]["status"], results["EAGER"]["batch_size"]), ("success", 2))
        self.assertEqual(results["JIT_TRACE"]["outcome"], "failed")
        self.assertTrue(results["JIT_TRACE"]["traceback"])
        self.assertEqual(results["EXPORT+EAGER"]["outcome"], "cancelled")  # not begun


DOCUMENT = """
    import torch
    from ration.bench import benchmark_model, BenchmarkConfig

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    example_input = torch.randn(1, 3, 8, 8)
    model(example_input)
    device = torch.device("cpu")
    conversions = ["EAGER"]

    config = BenchmarkConfig(
        n_samples=100,   # ← Much smaller
        batch_size=1,
        device=device,
        multiprocessing=False,
    )
    # Pass data directly, not dataloader
    benchmark_data = example_input.repeat(config.n_samples, 1, 1, 1)
    alma_results = benchmark_model(model, config, conversions, data=benchmark_data)

    def get_latency_ms(result_dict):
        '''Extract latency in ms from Alma result dict.'''
        # total_inf_time is total time for all samples
        total_time_s = result_dict.get('total_inf_time', 0)
        n_samples = result_dict.get('total_samples', 1)
        return (total_time_s / n_samples) * 1000  # ms per sample

    # Use everywhere:
    eager_time = get_latency_ms(alma_results['EAGER'])
    best_name = min(alma_results.keys(), key=lambda k: get_latency_ms(alma_results[k]))
    assert eager_time > 0 and best_name in conversions
    assert alma_results['EAGER']['total_samples'] == 100
    print("done")
"""


class Document(unittest.TestCase):
    def test_its_example_runs_as_a_script_without_a_guard(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "example.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(DOCUMENT))
            ended = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
        self.assertEqual(ended.stdout.split(), ["done"], ended.stderr)


if __name__ == "__main__":
    unittest.main()
