#!/usr/bin/env bash
# labels: release-only
# profile_python.sh — the Python package: without torch, and with it where $RATION_PYTHON (or python3) has it.
. "$(dirname "${BASH_SOURCE[0]}")/../python/library.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
export RATION_LIBRARY=$library PYTHONPATH=$root/python:$root/tests/python PYTHONDONTWRITEBYTECODE=1

expect 0 python3 "$root/tests/python/test_plain.py" # each of its programs would load torch
says err OK
if ! "$python" -c 'import torch' 2> /dev/null; then
    echo 'skipped: no torch (what needs none has passed)'
    exit 77
fi
for name in torch compat; do
    expect 0 "$python" "$root/tests/python/test_$name.py"
    says err OK
done
