#!/usr/bin/env python3
"""What recording costs a PyTorch training step on the CPU.

    PYTHONPATH=python python3 bench/profile_torch.py [SECONDS]

Each round runs the same steps untracked, tracked by ration (every allocation, and an operation for
forward, backward and step) and under torch.profiler(profile_memory=True), one after the other; the
tenth percentile of all its steps is compared: the time, and the processor's time of all threads (the
writer's too), which other programs disturb less. What only some steps pay (writing to the file, every
20 ms or more) is in the mean of the processor's time. Starting and stopping are not measured. The
noise is the same ratio of two untracked runs.
"""

import sys
import tempfile
import time

import torch

from ration import profiler


def convolutions():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10))
    return net, torch.randn(16, 3, 32, 32)


def many_small():
    """40 layers of 64 columns: hundreds of operators of a few microseconds each."""
    layers = []
    for _ in range(40):
        layers += [torch.nn.Linear(64, 64), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 10)), torch.randn(32, 64)


def make(model):
    torch.manual_seed(1)
    net, inputs = model()
    optimizer = torch.optim.Adam(net.parameters())
    targets = torch.randint(0, 10, (len(inputs),))

    def step(tracker):
        optimizer.zero_grad()
        with tracker.track_operation("forward"):
            loss = torch.nn.functional.cross_entropy(net(inputs), targets)
        with tracker.track_operation("backward"):
            loss.backward()
        with tracker.track_operation("step"):
            optimizer.step()
    return step


class Nobody:
    """As little as a `with` can cost."""

    def track_operation(self, _name):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def seconds_of(step, tracker, count):
    """[(time, processor's time)] of steps."""
    result = []
    for _ in range(count):
        begin = time.perf_counter(), time.process_time()
        step(tracker)
        result.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return result


def typical(steps):
    """(time, processor's time, its mean)"""
    percentiles = tuple(sorted(column)[len(steps) // 10] for column in zip(*steps))
    return *percentiles, sum(processor for _, processor in steps) / len(steps)


def untracked(step, count):
    return seconds_of(step, Nobody(), count)


def tracked(step, count, label_tensors=False):
    with tempfile.TemporaryDirectory() as folder:
        tracker = profiler.MemoryTracker(folder, label_tensors=label_tensors).start()
        step(tracker)
        seconds = seconds_of(step, tracker, count)
        tracker.stop()
    return seconds


def labelled(step, count):
    """And, after each optimizer step, what its gradients are."""
    return tracked(step, count, label_tensors=True)


def by_torch(step, count):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True):
        return seconds_of(step, Nobody(), count)


def measure(name, model, seconds):
    step = make(model)
    untracked(step, 5)
    count = max(5, int(0.15 / typical(untracked(step, 5))[0]))
    ways = {"untracked": untracked, "tracked": tracked, "again": untracked, "labelled": labelled,
            "torch.profiler": by_torch}
    steps = {way: [] for way in ways}
    rounds, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end or rounds < 3:
        rounds += 1
        for way, run in ways.items():
            steps[way] += run(step, count)
    best = {way: typical(found) for way, found in steps.items()}
    base = best["untracked"]
    print(f"{name}: a step takes {base[0] * 1e3:.3f} ms, {base[1] * 1e3:.3f} ms of the processor's "
          f"({rounds} rounds of {count})")
    for way, title in (("tracked", "events and operations"), ("labelled", "and labels"),
                       ("torch.profiler", "torch.profiler"), ("again", "untracked again (noise)")):
        ratios = [x / y for x, y in zip(best[way], base)]
        print("  {:24} / untracked   time {:.3f}   processor {:.3f}   its mean {:.3f}".format(
            title, *ratios), flush=True)


if __name__ == "__main__":
    each = float(sys.argv[1]) if len(sys.argv) > 1 else 8
    torch.set_num_threads(1)
    measure("convolutions", convolutions, each)
    measure("many small operators", many_small, each)
