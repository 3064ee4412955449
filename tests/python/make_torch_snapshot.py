#!/usr/bin/env python3
"""Writes the small PyTorch memory snapshots that the tests and the fuzzer of the reader begin with.

    tests/python/make_torch_snapshot.py tests/fuzz/corpus/torch_snapshot

The dictionaries have the keys of torch/csrc/cuda/memory_snapshot.cpp, old and new, and are pickled
by CPython itself. What happens in them, and what the tests expect of it:

device 0  held before: a segment of 2 MiB with a block of 300000 bytes, and a block of 512 bytes
          that is freed first; then a segment of 2 MiB with blocks of 1024, 4096 and 2048 bytes,
          and one of 20 MiB with a block of 10 MiB that is freed again, with its segment, after torch
          had no memory for 1 GiB
device 1  an expandable segment: 4 MiB and 2 MiB are mapped, a block of 5 MiB lies across both,
          and the 2 MiB from 3 MiB on are unmapped
"""
import pickle
import sys
from pathlib import Path

MIB = 1 << 20
START_US = 1700000000000000
SEGMENT_0, SEGMENT_1, SEGMENT_2, SEGMENT_3 = 0x7F0000000000, 0x7F0000200000, 0x7F0000400000, 0x7F1000000000


def frame(name, filename, line):
    return {"name": name, "filename": filename, "line": line}


TORCH = frame("forward", "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", 125)
COMPILED = frame("at::empty_cuda(c10::ArrayRef<long>)", "??", 0)
FORWARD = frame("forward", "/home/me/model.py", 12)
MAIN = frame("<module>", "/home/me/train.py", 40)


class Trace:
    """Events in order, one microsecond after another."""

    def __init__(self, times=True):
        self.events, self.time_us, self.times = [], START_US, times

    def add(self, action, addr, size, frames=(), **more):
        event = {"action": action, "oom" == action and "device_free" or "addr": addr, "size": size, "stream": 0}
        if self.times:
            event["time_us"] = self.time_us
        event["frames"] = list(frames)
        event.update(more)
        self.events.append(event)
        self.time_us += 1

    def free(self, addr, size, frames=()):
        self.add("free_requested", addr, size, frames)
        self.add("free_completed", addr, size, frames)


def first_device(times):
    trace = Trace(times)
    stack = [COMPILED, TORCH, FORWARD, MAIN]
    trace.free(SEGMENT_0, 512, [MAIN])
    trace.add("segment_alloc", SEGMENT_1, 2 * MIB, stack, segment_pool_id=(0, 0))
    trace.add("alloc", SEGMENT_1, 1024, stack, category="parameter", compile_context="N/A")
    trace.add("alloc", SEGMENT_1 + 1024, 4096, [FORWARD, MAIN], category="activation", user_metadata="layer 1")
    trace.free(SEGMENT_1 + 1024, 4096, [MAIN])
    trace.add("alloc", SEGMENT_1 + 1024, 2048, [TORCH, FORWARD, MAIN], category="optimizer_state")
    trace.add("segment_alloc", SEGMENT_2, 20 * MIB, stack)
    trace.add("alloc", SEGMENT_2, 10 * MIB, [MAIN], category="unknown")
    trace.add("oom", 12345, 1 << 30, stack)
    trace.add("snapshot", 0, 0)
    trace.free(SEGMENT_2, 10 * MIB, [MAIN])
    trace.add("segment_free", SEGMENT_2, 20 * MIB)
    return trace


def second_device(times):
    trace = Trace(times)
    trace.add("segment_map", SEGMENT_3, 4 * MIB, [MAIN])
    trace.add("segment_map", SEGMENT_3 + 4 * MIB, 2 * MIB, [MAIN])
    trace.add("alloc", SEGMENT_3, 5 * MIB, [MAIN])
    trace.free(SEGMENT_3, 5 * MIB)
    trace.add("segment_unmap", SEGMENT_3 + 3 * MIB, 2 * MIB)
    return trace


def block(address, size, requested, state, frames=()):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": list(frames)}


def segment(device, address, blocks, expandable=False):
    size = sum(b["size"] for b in blocks)
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {
        "device": device, "address": address, "total_size": size, "allocated_size": active, "active_size": active,
        "requested_size": active, "stream": 0, "segment_type": "large" if size > 2 * MIB else "small",
        "segment_pool_id": (0, 0), "is_expandable": expandable, "frames": [], "blocks": blocks,
    }


def segments():
    return [
        segment(0, SEGMENT_0, [block(SEGMENT_0, 1024, 1000, "inactive"),
                               block(SEGMENT_0 + 1024, 300032, 300000, "active_allocated", [FORWARD, MAIN]),
                               block(SEGMENT_0 + 301056, 2 * MIB - 301056, 0, "inactive")]),
        segment(0, SEGMENT_1, [block(SEGMENT_1, 1024, 1024, "active_allocated"),
                               block(SEGMENT_1 + 1024, 2048, 2048, "active_pending_free"),
                               block(SEGMENT_1 + 3072, 2 * MIB - 3072, 0, "inactive")]),
        segment(1, SEGMENT_3, [block(SEGMENT_3, 3 * MIB, 0, "inactive")], True),
        segment(1, SEGMENT_3 + 5 * MIB, [block(SEGMENT_3 + 5 * MIB, MIB, 0, "inactive")], True),
    ]


def annotation(name, stage, after_us):
    return {"name": name, "stage": stage, "device": 0, "time_us": START_US + after_us}


def snapshot(times=True):
    return {
        "segments": segments(),
        "device_traces": [first_device(times).events, second_device(times).events, []],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "32768": 0},
            "trace_alloc_overflowed": True, "trace_alloc_max_entries": 100000,
        },
        "external_annotations": [
            annotation("step", "START", 0), annotation("forward", "START", 2), annotation("other thread", "START", 3),
            annotation("forward", "END", 5), annotation("other thread", "END", 7), annotation("step", "END", 9),
            annotation("cut", "START", 9),
        ],
    }


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for protocol in range(6):
        (folder / f"protocol_{protocol}.pickle").write_bytes(pickle.dumps(snapshot(), protocol))
    (folder / "no_times.pickle").write_bytes(pickle.dumps(snapshot(False), 4))
    (folder / "segments_only.pickle").write_bytes(pickle.dumps(segments(), 4))
    (folder / "no_traces.pickle").write_bytes(pickle.dumps({"segments": segments(), "device_traces": []}, 2))
    (folder / "values.pickle").write_bytes(pickle.dumps(
        [None, True, False, 0, -1, 255, 256, 65536, -65537, 1 << 40, -(1 << 62), (1 << 64) - 1, 1.5, "text", "\u20ac\u00e9",
         b"bytes", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {"key": []}], 4))


main()
