#!/usr/bin/env bash
# labels: release-only gpu
# profile_python_cuda.sh — the Python package and torch on a GPU: tests/python/test_cuda.py.
. "$(dirname "${BASH_SOURCE[0]}")/../python/library.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
export RATION_LIBRARY=$library PYTHONPATH=$root/python:$root/tests/python PYTHONDONTWRITEBYTECODE=1

got=0
"$python" "$root/tests/python/test_cuda.py" > out 2> err || got=$?
[ "$got" = 77 ] && { grep '^skipped: ' out; exit 77; }
[ "$got" = 0 ] || fail "test_cuda.py ended with $got"
