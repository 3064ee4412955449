#!/usr/bin/env bash
# HTTP by hand against a real server: every status, every bad input, clients that go away. See tests/server/http_test.py.
root=$(pwd)
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash

python3 "$root/tests/server/http_test.py" "$ration" > out 2> err || fail 'HTTP is not as it should be'
# Sanitizers have a memory of their own.
is_sanitized || expect 0 python3 "$root/tests/server/http_memory.py" "$ration" 400
echo 'ok'
