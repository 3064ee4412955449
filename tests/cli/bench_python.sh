#!/usr/bin/env bash
# labels: release-only long
# bench_python.sh — ration.bench with PyTorch, where $RATION_PYTHON (or python3) has it.
. "$(dirname "${BASH_SOURCE[0]}")/../python/library.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
export RATION_LIBRARY=$library PYTHONPATH=$root/python:$root/tests/python PYTHONDONTWRITEBYTECODE=1
export RATION_PROGRAM=$ration

"$python" -c 'import torch' 2> /dev/null || {
    echo 'skipped: no torch'
    exit 77
}
expect 0 "$python" "$root/tests/python/test_bench.py"
says err OK
