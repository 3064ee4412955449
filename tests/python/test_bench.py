"""test_bench.py — ration.bench with PyTorch: the document's example as written, alma's keywords, and what alma fails at."""
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import torch
from torch import nn

from ration import bench
from ration.bench import BenchmarkConfig, ConversionOption, benchmark_model, display_all_results, lazyload

torch.set_num_threads(1)


class SimpleCNN(nn.Module):  # in __main__: pickled by value
    def __init__(self, width=4):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, width, 3), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class Stubborn(nn.Module):
    """Fails, and prints more than a pipe holds."""

    def forward(self, x):
        if not torch.jit.is_tracing():
            return x
        raise RuntimeError("x" * 300000)


def quick(**more):
    return BenchmarkConfig(**{"n_samples": 4, "batch_size": 1, "device": torch.device("cpu"), "fail_on_error": False,
                              "threads": 1, **more})


class Names(unittest.TestCase):
    def test_almas_and_ours(self):
        for name, ours in (("EAGER", "torch"), ("FP16+EAGER", "torch+fp16"), ("COMPILE_INDUCTOR", "torch+compile"),
                           ("BF16+EXPORT+COMPILE_INDUCTOR_DEFAULT", "torch+bf16+export+compile"),
                           ("EXPORT+AOT_INDUCTOR", "torch+export+aot"), ("torch+jit", "torch+jit")):
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
        names = ["JIT_TRACE", "cpu", "EAGER", "COMPILE_TVM", "FP16+COMPILE_CUDAGRAPHS"]
        results = benchmark_model(SimpleCNN(), quick(), names, data=torch.randn(3, 8, 8))
        self.assertEqual(list(results), names)
        for name in names[:3]:
            item = results[name]
            self.assertEqual(item["status"], "success", item)
            self.assertEqual((item["total_samples"], item["batch_size"]), (4, 1))
            self.assertEqual(item["data_dtype"], torch.float32)
            self.assertGreater(item["resident_peak_bytes"], 1 << 20)
            for key in ("total_elapsed_time", "total_inf_time", "throughput"):
                self.assertGreater(item[key], 0)
        self.assertEqual(results["EAGER"]["device"], torch.device("cpu"))
        self.assertLess(results["cpu"]["accuracy"]["max_rel"], 1e-5)  # the same inputs, the same model
        for name, why in (("COMPILE_TVM", "package tvm is missing"), ("FP16+COMPILE_CUDAGRAPHS", "CUDA GPU")):
            self.assertEqual((results[name]["status"], results[name]["outcome"]), ("error", "refused"))
            self.assertIn(why, results[name]["error"])
        shown = []
        display_all_results(results, shown.append)
        self.assertIn("package tvm is missing", "\n".join(shown))
        with tempfile.TemporaryDirectory() as folder:
            bench.save_dict_to_json(results, os.path.join(folder, "results.json"))
            with open(os.path.join(folder, "results.json")) as file:
                self.assertEqual(json.load(file)["EAGER"]["device"], "cpu")
            page = bench.write_report(results, os.path.join(folder, "page.html"))
            with open(page) as file:
                self.assertIn("SimpleCNN", file.read())

    def test_failures_and_long_tracebacks_are_results(self):
        results = benchmark_model(Stubborn(), quick(), [ConversionOption("JIT_TRACE"), "EAGER"],
                                  data=torch.randn(1, 4))
        self.assertEqual(results["EAGER"]["status"], "success")
        self.assertEqual(results["JIT_TRACE"]["outcome"], "failed")
        self.assertIn("RuntimeError", results["JIT_TRACE"]["error"])
        self.assertTrue(results["JIT_TRACE"]["traceback"])
        with self.assertRaisesRegex(RuntimeError, "JIT_TRACE"):
            benchmark_model(Stubborn(), quick(fail_on_error=True), ["JIT_TRACE"], data=torch.randn(1, 4))

    def test_lazy_loader_and_keywords(self):
        def make():
            with open(marker, "a") as file:
                file.write(f"{os.getpid()}\n")
            return Sum()

        class Sum(nn.Module):
            def forward(self, a, b):
                return {"sum": a + b}

        loader = [({"a": torch.ones(2, 3), "b": torch.ones(2, 3)}, 0)]
        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "made")
            results = benchmark_model(lazyload(make), vars(quick()), ["EAGER"], data_loader=loader)
            self.assertEqual(results["EAGER"]["batch_size"], 2)
            with open(marker) as file:
                self.assertNotIn(str(os.getpid()), file.read().split())


DOCUMENT = """
    import torch
    from ration.bench import benchmark_model, BenchmarkConfig

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    example_input = torch.randn(1, 3, 8, 8)
    model(example_input)
    device = torch.device("cpu")
    conversions = ["EAGER", "JIT_TRACE"]

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
