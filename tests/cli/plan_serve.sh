#!/usr/bin/env bash
# plan_serve.sh — ration plan --for serve: the plan that ration serve then has, byte by byte, and its refusal.
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

flags=(--parallel 3 --ctx 256 --budget 300MiB --rates guessed)
expect 0 "$ration" plan "$repository/models/default" --for serve "${flags[@]}" --json
cp out planned
start_server "$repository/models/default" "${flags[@]}"
ask 200 /plan
python3 - << 'PYTHON' || fail 'another plan than the server has'
import json
planned, served = json.load(open('planned')), json.load(open('out'))['plan']
for key in ('planned_bytes', 'arena_bytes', 'staging_bytes', 'live_peak_bytes', 'purposes', 'workload_rows'):
    assert planned[key] == served[key], (key, planned[key], served[key])
PYTHON
stop_server
expect 0 "$ration" plan "$repository/models/default" --for serve "${flags[@]}"
says out 'ration serve: 3 answers at once' kv
expect 4 "$ration" plan "$repository/models/default" --for serve --parallel 3 --budget 20MiB
says err 'smallest budget'
