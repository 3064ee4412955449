#!/usr/bin/env python3
"""Records a small training step on a CUDA device and dumps torch's memory snapshot of it.

    tests/python/record_cuda_snapshot.py step.pickle
    ration profile report step.pickle

Then it prints what torch itself counted, to compare with the report: active bytes at the peak are
"requested" (traces have the sizes that were asked for), reserved bytes are "reserved".
Without torch or a CUDA device it says so and exits with 77.
"""
import sys

try:
    import torch
except ImportError:
    sys.exit(print("skipped: no torch") or 77)
if not torch.cuda.is_available():
    sys.exit(print("skipped: no CUDA device") or 77)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "step.pickle"
    torch.cuda.memory._record_memory_history(max_entries=1000000)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        x = torch.randn(256, 1024, device="cuda")
        y = torch.randint(0, 10, (256,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(path)
    print("snapshot          ", path)
    print("peak requested    ", stats["requested_bytes.all.peak"])
    print("peak allocated    ", torch.cuda.max_memory_allocated(), "(rounded up to blocks)")
    print("peak reserved     ", torch.cuda.max_memory_reserved())
    print("now requested     ", stats["requested_bytes.all.current"])
    print("now reserved      ", torch.cuda.memory_reserved())


main()
