#!/usr/bin/env python3
"""What answers by a schema cost end to end: the same prompt with and without a schema, in turns, by one server.

    json_cost.py MODEL [--build build/release] [--rounds 5] [--tokens 128]

Time a token as the server counts it (without the prompt), and its processor time a token, which says more where other
programs run beside it; medians and best. The first request with the schema, which makes most of the masks, is not counted.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request

PROMPT = "List forty people with name, age and city as a JSON array of objects."
SCHEMA = {"type": "array", "minItems": 40, "items": {
    "type": "object", "additionalProperties": False, "required": ["name", "age", "city"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "city": {"enum": ["Paris", "Rome", "Oslo"]}}}}


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def ask(url, pid, tokens, schema):
    body = {"prompt": PROMPT, "stream": False, "options": {"num_predict": tokens, "temperature": 0.8, "seed": 7}}
    if schema:
        body["format"] = schema
    before = processor_seconds(pid)
    request = urllib.request.Request(f"{url}/api/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        answer = json.load(reply)
    return answer["eval_duration"] / answer["eval_count"] / 1e6, (processor_seconds(pid) - before) / answer["eval_count"] * 1e3, answer["eval_count"]


def wait_until_ready(url, server):
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health/ready", timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("the server ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([f"{args.build}/bin/ration", "serve", args.model, "--port", str(port), "--threads", "2", "--log-level", "warning"])
    try:
        wait_until_ready(url, server)
        rows = {"without": [], "schema": []}
        for name in rows:  # warm
            ask(url, server.pid, args.tokens, SCHEMA if name == "schema" else None)
        for i in range(args.rounds):
            for name in list(rows)[::1 if i % 2 else -1]:
                rows[name].append(ask(url, server.pid, args.tokens, SCHEMA if name == "schema" else None))
    finally:
        server.terminate()
        server.wait()
    print(f"load {os.getloadavg()[0]:.1f}")
    for name, row in rows.items():
        time_ms, processor_ms, counts = zip(*row)
        print(f"  {name:<8} ms a token: median {statistics.median(time_ms):.2f}, best {min(time_ms):.2f}; "
              f"processor: median {statistics.median(processor_ms):.2f}, best {min(processor_ms):.2f}; tokens {sorted(set(counts))}")


main()
