#!/usr/bin/env bash
# serve.sh — ration serve as somebody meets it: the seed's curl, stages, settings, budgets, refusals, a graceful end.
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- the seed's own request ---------------------------------------------------------------------
start_server --drain 60min
ask 200 /generate '{"prompt": "Once upon a time", "max_tokens": 50}'
check_json "
assert set(j) >= {'text', 'prompt', 'model', 'usage'}, j
assert j['prompt'] == 'Once upon a time' and len(j['text']) > 20
assert 0 < j['usage']['completion_tokens'] <= 50
assert j['usage']['total_tokens'] == j['usage']['prompt_tokens'] + j['usage']['completion_tokens']"
ask 200 /health
check_json "assert j['status'] == 'ready' and j['device'] == 'cpu', j
assert [a['target'] for a in j['ladder']['attempts']][-1] == 'cpu'"
ask 200 /v1/models
ask 200 /models
ask 200 /plan
ask 200 /metrics
ask 200 /openapi.json
ask 200 /health/live
ask 200 /health/ready
# Each stage once, in its order, measured when it ended: nothing holds weights before they are loaded, and what does not
# happen is not told.
told_stages=$(sed -n 's/.* stage \([a-z_]*\).*/\1/p' log | tr '\n' ' ')
equals 'stages' 'start config_loaded tokenizer_loaded device_ready plan_made model_loaded_cpu test_forward_pass warm_up server_ready ' \
    "$told_stages"
says log 'stage device_ready on cpu: ' 'ready: default on cpu, budget ' ', context 288 tokens, 8 requests in parallel, listening on http://'
grep -q fail log && fail 'a healthy start tells of a failure'

# The same text as ration run: a seed is a seed.
ask 200 /v1/completions '{"prompt": "Once upon a time", "max_tokens": 40, "seed": 7, "temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.05}'
python3 -c "import json; print('Once upon a time' + json.load(open('out'))['choices'][0]['text'])" > served
"$ration" run -p 'Once upon a time' -n 40 -s 7 --temperature 0.9 --top-k 40 --top-p 0.95 --min-p 0.05 -q > told 2> /dev/null
equals 'what run says' "$(cat told)" "$(cat served)"

# ---- an end with something running --------------------------------------------------------------
ask_later() {
    ask 200 /generate '{"prompt": "Once upon a time", "max_tokens": 280, "n": 8}' && cp out later
}
is_running() {
    python3 -c "import urllib.request, sys; sys.exit(b'requests_running 1' not in urllib.request.urlopen('$url/metrics').read())"
}
# It may have ended before anybody looks.
until [ -n "${waiting:-}" ] && is_running; do
    [ -n "${waiting:-}" ] && kill -0 "$waiting" 2> /dev/null && continue
    ask_later &
    waiting=$!
done
ask 200 /profile/start '{}'
stop_server
equals 'exit code after SIGTERM' 0 "$code"
wait $waiting || fail 'what ran was cut off'
grep -q 'stage final_cleanup' log || fail 'no final_cleanup'

# Asked to end before it could serve: that is no failure either.
: > log
"$ration" serve --port 0 2> log &
server=$!
until grep -q 'stage tokenizer_loaded' log; do kill -0 $server || fail 'no server'; done
stop_server
equals 'exit code after SIGTERM while loading' 0 "$code"

# ---- settings -----------------------------------------------------------------------------------
MAX_LENGTH=24 BATCH_SIZE=3 SEQUENCE_LENGTH=128 COMPILED_MODEL_PATH=$scratch/saved start_server --json --served-name story
python3 - << 'PYTHON' || fail 'the log is not JSON lines'
import json
lines = [json.loads(line) for line in open('log')]
stages = {line['stage']: line for line in lines if 'stage' in line}
assert 'server_ready' in stages and 'model_saved' in stages, stages
weights = {name: line['ledger']['host'].get('weights', 0) for name, line in stages.items()}
assert weights['plan_made'] == 0 < weights['model_loaded_cpu'] == weights['server_ready'], weights
other = {name: line['ledger']['host'].get('other', 0) for name, line in stages.items()}
assert other['config_loaded'] < other['tokenizer_loaded'], other
assert stages['device_ready']['target'] == 'cpu'
assert all('resident_bytes' in line for line in lines if 'stage' in line)
PYTHON
python3 -m json.tool < saved/plan.json > /dev/null || fail 'no plan was saved'
ask 200 /generate '{"prompt": "Once", "max_tokens": 25}'
check_json "assert j['usage']['completion_tokens'] <= 24"
ask 400 /generate "{\"prompt\": \"$(printf 'word %.0s' $(seq 300))\", \"max_tokens\": 5}"
says out 128
ask 200 /v1/completions '{"model": "another", "prompt": "Once", "no_such_field": 1}'
check_json "assert j['model'] == 'story'"
ask 200 /v1/completions '{"prompt": "Once", "no_such_field": 1}'
equals 'warnings' 1 "$(grep -c no_such_field log)"
ask 200 /v1/completions '{"model": "story", "prompt": "Once", "n": 3, "max_tokens": 4}'
check_json "assert len(j['choices']) == 3"
ask 400 /v1/completions '{"model": "story", "prompt": "Once", "n": 4, "max_tokens": 4}'
stop_server INT
equals 'exit code after Ctrl-C' 0 "$code"

# One page is less than what warming up would like to read.
start_server --kv-pages 1 --strict-model
ask 404 /v1/completions '{"model": "another", "prompt": "Once"}'
says out default
ask 200 /generate '{"prompt": "Once", "max_tokens": 3}'
stop_server

# ---- who may ask --------------------------------------------------------------------------------
printf 'first key\n\nsecond\n' > keys
start_server --api-key-file keys --log-format symbols --drain 5s --idle-timeout 2min
ask 401 /v1/models
ask 401 /v1/models '' 'Authorization: Bearer third'
ask 200 /v1/models '' 'Authorization: Bearer second'
ask 200 /health/live
port=${url##*:}
expect 3 "$ration" serve --port "$port"
says err "$port"
stop_server
: > no_keys
expect 2 "$ration" serve --port 0 --api-key-file no_keys
says err 'no key'
RATION_API_KEY=secret expect 0 "$ration" config list
grep -q secret out && fail 'the list shows a key'

# ---- budgets ------------------------------------------------------------------------------------
expect 4 "$ration" serve --port 0 --budget 20MiB
says err 'smallest budget'
equals 'how often a refusal is told' 1 "$(grep -c 'does not fit' err)"
expect 4 "$ration" serve --port 0 --budget 20MiB --json
python3 -c "
import json
lines = [json.loads(line) for line in open('err')]
failed = [line for line in lines if line.get('level') == 'error']
assert len(failed) == 1 and failed[0]['class'] == 'over_budget' and failed[0]['failed_stage'] == 'device_ready', failed" ||
    fail 'a refusal is not one line of a JSON log'
NEURON_CORES=2 WORKERS=4 expect 4 "$ration" serve --port 0 --budget 20MiB
says err 'NEURON_CORES is set and has no effect here: ' 'WORKERS is set and has no effect here: '
RATION_CUDA_DRIVER=/no/such/driver expect 5 "$ration" serve --port 0 --device cuda
says err 'no CUDA driver'
expect 2 "$ration" serve --port 70000
expect 2 "$ration" serve --port 0 --drain soon
expect 2 "$ration" serve --port 0 --idle-timeout 0s
expect 2 "$ration" serve --port 0 --max-gap -1s
expect 2 "$ration" serve --port 0 --max-gap 2h
expect 2 "$ration" serve --port 0 --threads 4294967297
expect 2 "$ration" serve --tls-cert nowhere.pem
expect 2 "$ration" serve --device nothing
expect 3 "$ration" serve --port 0 nowhere.gguf
expect 2 "$ration" serve --max-body 64MiB --request-memory 1MiB
says err request-memory

# ---- the ladder ---------------------------------------------------------------------------------
start_server --device 'sim:fail_alloc=1;fail_allocs=3,cpu'
ask 200 /health
check_json "
assert j['device'] == 'cpu' and j['ladder']['target_index'] == 1, j
first = j['ladder']['attempts'][0]
assert first['target'].startswith('sim') and first['state'] == 'failed' and first['class'] and first['hint'], first"
ask 200 /generate '{"prompt": "Once", "max_tokens": 3}'
stop_server
expect 4 "$ration" serve --port 0 --device 'sim:fail_alloc=1;fail_allocs=3,cpu' --no-fallback
start_server --device 'sim'
ask 200 /health
check_json "assert j['device'].startswith('sim') and 'sim' in [d['device'] for d in j['memory']['devices']], j"
ask 200 /v1/completions '{"prompt": "Once upon a time", "max_tokens": 40, "seed": 7, "temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.05}'
python3 -c "import json; print('Once upon a time' + json.load(open('out'))['choices'][0]['text'])" > served
equals 'what the device says' "$(cat told)" "$(cat served)"
stop_server
