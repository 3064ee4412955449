#!/usr/bin/env bash
# What hostile or careless clients do, against a real server. See tests/server/attack_test.py.
root=$(pwd)
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash

timeout 500 python3 "$root/tests/server/attack_test.py" "$ration" > out 2> err || fail 'the server does not hold'
echo 'ok'
