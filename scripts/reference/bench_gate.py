#!/usr/bin/env python3
"""How often the gate of `ration bench` is right, on the machine it runs on.

    scripts/reference/bench_gate.py --ration build/release/bin/ration --repeats 20

Makes two ONNX models (package onnx), the second with 10 % more work (11 convolutions instead of 10), and repeats the gate:
the same model against itself, where an alarm is false, and the slower one against the first, where silence is a miss.
`--compare` does the same with results of the first model that were made once, at the beginning.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def make_model(path, layers, channels=64, side=28):
    generator = numpy.random.default_rng(1)
    nodes, weights, name = [], [], "x"
    for i in range(layers):
        w = generator.normal(0, (2 / (9 * channels)) ** 0.5, (channels, channels, 3, 3))
        weights.append(numpy_helper.from_array(w.astype(numpy.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        name = f"r{i}"
    shape = [1, channels, side, side]
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ration", default="build/release/bin/ration")
    options.add_argument("--repeats", type=int, default=20)
    options.add_argument("--limit", default="5%")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--compare", action="store_true", help="against a file of the beginning, not in turns")
    options.add_argument("more", nargs="*", help="further options of ration bench, behind --")
    given = options.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-gate-"))
    make_model(folder / "same.onnx", 10)
    make_model(folder / "slower.onnx", 11)
    common = ["--variants", "cpu", "--threads", str(given.threads), *given.more]
    if given.compare:
        old = folder / "old.json"
        subprocess.run([given.ration, "bench", folder / "same.onnx", "--processes", "30", "--output", old, *common], check=True,
                       capture_output=True)
        beside = ["--compare", old]
    else:
        beside = ["--against", folder / "same.onnx"]
    alarms = {"same": 0, "slower": 0}
    begin = time.time()
    for repeat in range(given.repeats):
        for name in alarms:
            done = subprocess.run([given.ration, "bench", folder / f"{name}.onnx", *beside, "--fail-if-slower", given.limit, *common],
                                  capture_output=True, text=True)
            if done.returncode not in (0, 7):
                sys.exit(done.stderr)
            alarms[name] += done.returncode == 7
            line = [text for text in done.stdout.splitlines() if text.startswith("cpu ") and " to " in text]
            print(f"{repeat + 1:3} {name:7} exit {done.returncode}  {line[-1] if line else ''}", flush=True)
    print(f"false alarms {alarms['same']} of {given.repeats}, planted 10 % found {alarms['slower']} of {given.repeats}, "
          f"{(time.time() - begin) / (2 * given.repeats):.1f} s a gate")


if __name__ == "__main__":
    main()
