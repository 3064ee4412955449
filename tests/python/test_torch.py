"""Tensors on the CPU: every storage exact, views once, purposes, limits, torch's own profiler."""

import gc
import os
import signal
import threading
import unittest
import warnings

import torch

from support import MIB, ProfileTest, checkpoints

from ration import _library, profiler

torch.set_num_threads(2)


def stats():
    return _library.hooks_stats()


class Tensors(ProfileTest):
    def setUp(self):
        super().setUp()
        gc.collect()

    def start(self, **options):
        self.addCleanup(profiler.stop_memory_tracker)
        return profiler.initialize_memory_tracker(self.folder, **options)

    def test_the_peak_is_the_sum_of_the_known_sizes(self):
        self.start()
        base = stats().now_bytes
        a = torch.empty(1000, 1000)             # 4 000 000
        b = torch.empty(100, dtype=torch.int8)  # 100
        c = torch.empty(3, 5, dtype=torch.float64)  # 120
        self.assertEqual(base + 4000220, stats().now_bytes)
        del a
        d = torch.empty(10, dtype=torch.bfloat16)  # 20
        self.assertEqual(base + 240, stats().now_bytes)
        self.assertEqual(base + 4000220, stats().peak_bytes)
        del b, c, d
        self.assertEqual(base, stats().now_bytes)
        profiler.stop_memory_tracker()
        self.assertEqual(base + 4000220, self.peak(self.only("*.rntrace")))

    def test_views_slices_and_shared_storage_count_once(self):
        self.start()
        base = stats().now_bytes
        a = torch.empty(512, 512)
        shared = [a.view(-1), a[3:7], a.t(), a.detach(), torch.Tensor(a), a.untyped_storage(),
                  a.numpy()]
        self.assertEqual(base + 4 * 512 * 512, stats().now_bytes)
        del a
        self.assertEqual(base + 4 * 512 * 512, stats().now_bytes)
        del shared
        self.assertEqual(base, stats().now_bytes)

    def test_memory_that_is_numpys_is_not_torchs(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy")
        self.start()
        base = stats().now_bytes
        tensor = torch.from_numpy(numpy.zeros(100000))
        self.assertEqual(base, stats().now_bytes)
        del tensor

    def test_a_storage_that_grows(self):
        self.start()
        base = stats().now_bytes
        a = torch.empty(100)
        a.untyped_storage().resize_(1000000)
        self.assertEqual(base + 1000000, stats().now_bytes)
        del a
        self.assertEqual(base, stats().now_bytes)

    def test_a_model_that_was_there_before_is_counted(self):
        model = torch.nn.Linear(256, 256)
        self.start()
        before = stats().now_bytes
        self.assertGreaterEqual(before, 4 * (256 * 256 + 256))
        del model
        gc.collect()
        self.assertEqual(before - 4 * (256 * 256 + 256), stats().now_bytes)

    def test_nested_operations_have_their_deltas(self):
        tracker = self.start()
        with tracker.track_operation("outer"):
            a = torch.empty(3 * MIB, dtype=torch.int8)
            with tracker.track_operation("inner"):
                b = torch.empty(2 * MIB, dtype=torch.int8)
            del b
            with tracker.track_operation("inner"):
                b = torch.empty(4 * MIB, dtype=torch.int8)
        profiler.stop_memory_tracker()
        summary = self.profile()["operation_summary"]
        self.assertEqual(7, summary["outer"]["total_memory_delta_mb"])
        self.assertEqual(2, summary["inner"]["invocation_count"])
        self.assertEqual(6, summary["inner"]["total_memory_delta_mb"])
        self.assertEqual(4, summary["inner"]["max_memory_delta_mb"])
        del a, b

    def test_tensors_freed_by_another_thread(self):
        self.start()
        base = stats().now_bytes
        box = [torch.empty(MIB) for _ in range(8)]
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
        self.assertEqual(base, stats().now_bytes)

    def test_threads_are_counted_to_the_byte(self):
        tracker = self.start()
        base = stats().now_bytes
        kept = []

        def work(count):
            with tracker.track_operation("work"):
                for _ in range(200):
                    torch.empty(1000).add_(1).mul(2)
                kept.append(torch.empty(count, dtype=torch.int8))
        threads = [threading.Thread(target=work, args=(1000 * (i + 1),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(base + 10000, stats().now_bytes)

    def test_training_has_weights_gradients_optimizer_and_activations(self):
        tracker = self.start()
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                    torch.nn.Linear(128, 10))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            with tracker.track_operation("forward"):
                loss = model(torch.randn(32, 64)).square().mean()
            with tracker.track_operation("backward"):
                loss.backward()
            with tracker.track_operation("step"):
                optimizer.step()
        profiler.memory_checkpoint("trained")
        profiler.stop_memory_tracker()
        tensors = checkpoints(self.profile())["trained"]["device_breakdown"]["cpu"]["tensors"]
        of = {}
        for tensor in tensors:
            of[tensor["purpose"]] = of.get(tensor["purpose"], 0) + tensor["size_bytes"]
        parameters = 4 * (64 * 128 + 128 + 128 * 10 + 10)
        self.assertEqual(parameters, of["weights"])
        self.assertEqual(parameters, of["gradients"])
        self.assertEqual(2 * parameters + 4 * 4, of["optimizer"])  # two moments, and four step counts
        first = [t for t in tensors if t.get("name") == "Sequential.0.weight"]
        self.assertEqual([[128, 64]], [t["shape"] for t in first])
        self.assertEqual(["torch.float32"], [t["dtype"] for t in first])

    def test_requires_grad_is_the_tensors_own(self):
        self.start()
        model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 20))
        for parameter in model[0].parameters():  # frozen, beside what is trained
            parameter.requires_grad_(False)
        model.register_buffer("running", torch.zeros(7, 11))
        made = model(torch.ones(13, 40))  # of the graph
        made.sum().backward()
        apart = torch.zeros(17, 19)
        profiler.memory_checkpoint("all")
        late = torch.zeros(23, 29, requires_grad=True)  # after the last checkpoint
        profiler.stop_memory_tracker()
        profile = self.profile()
        tensors = checkpoints(profile)["all"]["device_breakdown"]["cpu"]["tensors"]
        named = {t["name"]: t["requires_grad"] for t in tensors if t.get("name", "tensor") != "tensor"}
        shaped = {tuple(t["shape"]): t["requires_grad"] for t in tensors if t.get("name") == "tensor"}
        expected = {"0.weight": False, "0.bias": False, "1.weight": True, "1.bias": True, "running": False}
        self.assertEqual(expected, {name: named[f"Sequential.{name}"] for name in expected})
        self.assertEqual({(13, 20): True, (17, 19): False},
                         {shape: shaped[shape] for shape in ((13, 20), (17, 19))})
        gradients = [t for t in profile["snapshots"][-1]["device_breakdown"]["cpu"]["tensors"]
                     if t["purpose"] == "gradients"]
        self.assertTrue(gradients)
        self.assertFalse(any(t["requires_grad"] for t in gradients))
        self.assertEqual([True], [t["requires_grad"] for t in
                                  profile["snapshots"][-1]["device_breakdown"]["cpu"]["tensors"]
                                  if t["shape"] == [23, 29]])
        for snapshot in profile["snapshots"]:
            self.assertLessEqual(set(snapshot["device_breakdown"]), {"cpu"})
        del late, apart, made

    def test_a_checkpoint_says_nothing_of_what_it_cannot_describe(self):
        self.start()
        case = self

        class Early(torch.nn.Module):
            def __init__(self):
                profiler.memory_checkpoint("before there is anything in it")
                super().__init__()

        class Odd(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *_args, **_kwargs):
                case.fail("a tensor's own functions were called")
        leaf = torch.randn(4, requires_grad=True)
        inner = torch.nn.Module()
        inner.register_buffer("not_a_leaf", leaf * 2)  # torch warns where its .grad is looked at
        kept = [Early(), torch.nn.LazyLinear(4), inner, torch.empty(4, device="meta"),
                torch.eye(4).to_sparse(), torch.Tensor._make_subclass(Odd, torch.zeros(4)),
                torch.full((77, 3), 1.0)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            profiler.memory_checkpoint("all")
        profiler.stop_memory_tracker()
        tensors = checkpoints(self.profile())["all"]["device_breakdown"]["cpu"]["tensors"]
        self.assertIn([77, 3], [tensor["shape"] for tensor in tensors])
        del kept

    def test_sparse_gradients(self):
        self.start()
        table = torch.nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        table(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
        self.assertTrue(table.weight.grad.is_sparse)

    def test_the_state_of_each_of_many_optimizers(self):
        self.start()
        for size in range(100, 120):  # the next may lie where the last one lay
            model = torch.nn.Linear(size, 1, bias=False)
            optimizer = torch.optim.Adam(model.parameters())
            model(torch.ones(size)).sum().backward()
            optimizer.step()
            del model, optimizer
        profiler.stop_memory_tracker()
        purposes = [entry["purpose"] for entry in self.profile()["tensor_lifecycle"].values()]
        self.assertEqual(20 * 3, purposes.count("optimizer"))  # two moments, and the step's count

    def test_labels_can_be_switched_off(self):
        self.start(label_tensors=False)
        kept = torch.nn.Linear(64, 64)
        profiler.memory_checkpoint("here")
        profiler.stop_memory_tracker()
        tensors = checkpoints(self.profile())["here"]["device_breakdown"]["cpu"]["tensors"]
        self.assertNotIn("weights", {tensor["purpose"] for tensor in tensors})
        del kept

    def test_beyond_the_limit_torch_raises_its_own_error(self):
        tracker = self.start(limit=64 * MIB)
        with self.assertRaisesRegex(RuntimeError, "DefaultCPUAllocator: (can't|not enough)"):
            with tracker.track_operation("greedy"):
                kept = torch.empty(40 * MIB, dtype=torch.int8)
                torch.empty(40 * MIB, dtype=torch.int8)
        del kept
        torch.empty(40 * MIB, dtype=torch.int8)  # and goes on
        self.assertEqual(1, stats().refused_count)
        self.assertLessEqual(stats().peak_bytes, 64 * MIB)
        profiler.stop_memory_tracker()
        self.assertIn("out_of_memory", checkpoints(self.profile()))

    def test_after_stop_the_limit_and_the_hooks_are_gone(self):
        self.start(limit=MIB)
        profiler.stop_memory_tracker()
        count = stats().total_count
        torch.empty(10 * MIB)
        self.assertEqual(count, stats().total_count)

    def test_torchs_operators_are_in_the_profile(self):
        tracker = self.start()
        a = torch.randn(64, 32)
        for _ in range(2):  # sums up
            with tracker.track_pytorch_ops(), tracker.track_pytorch_ops():
                for _ in range(3):
                    a @ a.t()
        profiler.stop_memory_tracker()
        found = [op for op in self.profile()["pytorch_operations"] if op["op_name"] == "aten::mm"]
        self.assertEqual(1, len(found), found)
        self.assertEqual(6, found[0]["count"])
        self.assertEqual([[64, 32], [32, 64]], found[0]["input_shapes"])
        self.assertAlmostEqual(6 * 4 * 64 * 64 / MIB, found[0]["cpu_memory_mb"], places=5)
        self.assertGreater(found[0]["cpu_time_us"], 0)
        self.assertEqual(0, found[0]["cuda_time_us"])


PROLOGUE = """
import os, signal, sys, time
import torch
from ration.profiler import *
tracker = initialize_memory_tracker(".")
"""


class Preloaded(ProfileTest):
    """`ration profile run`: the whole process is recorded, and a tracker in it joins in."""

    def setUp(self):
        super().setUp()
        self.preload = os.path.join(os.path.dirname(os.environ["RATION_LIBRARY"]),
                                    "libration_preload.so")
        if not os.path.exists(self.preload):
            self.skipTest(f"no {self.preload}")

    def test_tensors_and_the_trackers_marks_are_in_one_recording(self):
        self.run_program("""
import torch
big = torch.empty(50 << 20, dtype=torch.int8)
del big
from ration.profiler import *
tracker = initialize_memory_tracker(".", limit=40 << 20)
with tracker.track_operation("small"):
    small = torch.empty(3 << 20, dtype=torch.int8)
memory_checkpoint("here")
try:
    torch.empty(50 << 20, dtype=torch.int8)
    raise SystemExit("the limit was crossed")
except RuntimeError as error:
    assert "DefaultCPUAllocator" in str(error)
stop_memory_tracker()
big = torch.empty(50 << 20, dtype=torch.int8)
""", env={"LD_PRELOAD": self.preload,
          "RATION_PROFILE_FILE": os.path.join(self.folder, "run.rntrace")})
        profile = self.profile()
        self.assertIn("here", checkpoints(profile))
        self.assertEqual(3, profile["operation_summary"]["small"]["total_memory_delta_mb"])
        self.assertGreater(self.peak(self.only("*.rntrace")), 53 << 20)


class Endings(ProfileTest):
    def test_torchs_out_of_memory_error_that_nobody_catches(self):
        _out, err = self.run_program(PROLOGUE.replace('"."', '".", limit=1 << 20') +
                                     "torch.empty(10 << 20)", code_wanted=1)
        self.assertIn("DefaultCPUAllocator", err)
        self.assertIn("out_of_memory", checkpoints(self.profile()))

    def test_kill_in_the_middle_of_training(self):
        self.run_program(PROLOGUE + """
kept = torch.zeros(5 << 20, dtype=torch.int8)
for _ in range(100):
    with tracker.track_operation("step"):
        torch.randn(100, 100) @ torch.randn(100, 100)
    time.sleep(0.002) # what a kill loses is the last 20 ms
os.kill(os.getpid(), signal.SIGKILL)
""", code_wanted=-signal.SIGKILL)
        trace = self.only("*.rntrace")
        self.assertGreater(self.peak(trace), 5 << 20)
        _library.export(trace, "json", os.path.join(self.folder, "memory_profile_read.json"))
        self.assertGreater(self.profile()["operation_summary"]["step"]["invocation_count"], 10)

    def test_a_data_loader_with_workers(self):
        self.run_program(PROLOGUE + """
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((1000,), float(i))
total = sum(batch.sum().item() for batch in torch.utils.data.DataLoader(Numbers(), 8, num_workers=2))
assert total == 1000 * 63 * 32, total
memory_checkpoint("done")
""")
        self.assertIn("done", checkpoints(self.profile()))


if __name__ == "__main__":
    unittest.main()
