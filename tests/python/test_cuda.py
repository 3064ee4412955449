"""CUDA, tried where there is one: the pool as torch's allocator, its limit, and torch's own history.

Prints what it measured. Exit code 77: no torch, or no CUDA device.
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

MIB = 1024 * 1024

POOL = """
import os, sys, torch
import ration.cuda
from ration import profiler
MIB = 1024 * 1024
ration.cuda.use_pool(limit="512MiB")
tracker = profiler.initialize_memory_tracker(sys.argv[1])
with tracker.track_operation("fill"):
    a = torch.ones(64 * MIB // 4, device="cuda")
    b = a[10:20], a.view(-1)
stats = ration.cuda.memory_stats()
print("64 MiB and views of it:", stats)
assert stats["allocated_bytes"] == 64 * MIB, stats
assert stats["limit_bytes"] == 512 * MIB, stats
assert float(a.sum()) == 16 * MIB
c = torch.ones(128 * MIB // 4, device="cuda")
del c
stats = ration.cuda.memory_stats()
print("after 128 MiB more came and went:", stats)
assert stats["allocated_bytes"] == 64 * MIB, stats
assert stats["peak_allocated_bytes"] >= 192 * MIB, stats
try:
    with tracker.track_operation("too much"):
        torch.empty(1024 * MIB, dtype=torch.int8, device="cuda")
    raise SystemExit("1 GiB was allowed within 512 MiB")
except torch.OutOfMemoryError as error:
    print("beyond the limit:", str(error).splitlines()[0])
stats = ration.cuda.memory_stats()
assert stats["oom_count"] >= 1 and stats["reserved_bytes"] <= 512 * MIB, stats
other = torch.cuda.Stream()
with torch.cuda.stream(other):
    d = torch.ones(MIB, device="cuda") * 2
d.record_stream(torch.cuda.current_stream())
torch.cuda.synchronize()
assert float(d.sum()) == 2 * MIB
del a, b, d
torch.cuda.synchronize()
torch.cuda.empty_cache()
print("released:", ration.cuda.memory_stats())
summary = profiler.get_memory_summary()
print("summary:", summary["devices"])
assert summary["devices"]["cuda:0"]["peak_bytes"] >= 192 * MIB, summary
print("profile:", profiler.stop_memory_tracker())
"""

NATIVE = """
import sys, torch
import ration.cuda
from ration import profiler
MIB = 1024 * 1024
tracker = profiler.initialize_memory_tracker(sys.argv[1], interval=0.1)
with ration.cuda.record_history(sys.argv[1] + "/history.pickle"):
    with tracker.track_operation("fill"):
        a = torch.ones(64 * MIB // 4, device="cuda")
    profiler.memory_checkpoint("filled")
    with tracker.track_pytorch_ops():
        a = a.view(4096, 4096)
        b = a @ a
    torch.cuda.synchronize()
summary = profiler.get_memory_summary()
print("torch's own allocator:", summary["devices"])
assert summary["devices"]["cuda:0"]["now_bytes"] >= 128 * MIB, summary
try:
    with tracker.track_operation("too much"):
        torch.empty(1 << 50, dtype=torch.int8, device="cuda")
except torch.OutOfMemoryError as error:
    print("out of memory:", str(error).splitlines()[0])
path = profiler.stop_memory_tracker()
import json
profile = json.load(open(path))
names = {s["checkpoint_name"] for s in profile["snapshots"]}
assert {"filled", "out_of_memory"} <= names, names
product = [op for op in profile["pytorch_operations"] if op["op_name"] == "aten::mm"]
print("aten::mm:", product)
assert product and product[0]["cuda_time_us"] > 0, product
from ration import _library
page = _library.export(sys.argv[1] + "/history.pickle", "html", sys.argv[1] + "/history.html")
import os
print("history:", os.path.getsize(sys.argv[1] + "/history.pickle"), "bytes of pickle,",
      os.path.getsize(page), "bytes of page")
"""


def main():
    try:
        import torch
    except ImportError:
        print("skipped: no torch")
        return 77
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        return 77
    print(torch.__version__, torch.cuda.get_device_name(0))
    failed = 0
    for name, code in (("pool", POOL), ("torch's allocator", NATIVE)):
        with tempfile.TemporaryDirectory() as folder:
            print(f"== {name}", flush=True)
            environment = {**os.environ, "PYTHONPATH": sys.path[0]}
            result = subprocess.run([sys.executable, "-c", code, folder], timeout=300, env=environment)
            failed += result.returncode != 0
    print("FAILED" if failed else "OK")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
