#!/usr/bin/env python3
"""Two models in one server whose budget has room for one, asked in turn: what a switch takes, and whether the budget held.

    two_models.py ONE.gguf TWO.gguf [--budget 1500MB] [--build build/release] [--rounds 4]

A request to the model that is loaded stands beside each one that makes the server switch. Ends with 1 where the ledger or the resident memory
was ever above the budget.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def ask(url, model):
    body = json.dumps({"model": model, "prompt": "def f(x):", "max_tokens": 4, "temperature": 0}).encode()
    begin = time.monotonic()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"}), timeout=600) as answer:
        if json.load(answer)["model"] != model:
            sys.exit(f"another model than {model} has answered")
    return time.monotonic() - begin


def wait_until_ready(url, server):
    while server.poll() is None:
        try:
            return get(f"{url}/health/ready")
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit("the server ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one")
    parser.add_argument("two")
    parser.add_argument("--budget", default="1500MB")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([f"{args.build}/bin/ration", "serve", args.one, args.two, "--budget", args.budget, "--port", str(port),
                               "--threads", "2", "--log-level", "warning"])
    try:
        wait_until_ready(url, server)
        names = [model["name"] for model in get(f"{url}/health")["models"]]
        switches, others = [], []
        for _ in range(args.rounds):
            for name in names:
                switches.append(ask(url, name))
                others.append(ask(url, name))
        health = get(f"{url}/health")
    finally:
        server.terminate()
        server.wait()
    memory = health["memory"]
    peak, resident, budget = memory["devices"][0]["peak_bytes"], memory["resident_peak_bytes"], memory["budget_bytes"]
    print(f"load {os.getloadavg()[0]:.1f}")
    print("  with a switch, s:   ", " ".join(f"{seconds:.2f}" for seconds in switches))
    print("  without, s:         ", " ".join(f"{seconds:.2f}" for seconds in others))
    print(f"  budget {budget}, peak of the ledger {peak}, resident {resident}; loads", [model["loads"] for model in health["models"]])
    sys.exit(peak > budget or resident > budget)


main()
