#!/usr/bin/env bash
# labels: release
# --profile, the configuration, SIGUSR2: what is recorded, how a recording ends, and that nobody notices it otherwise.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

story=(run -p 'Once upon a time' -n 24 --greedy)
# report FILE CODE: Python with the report in `j`.
report() {
    expect 0 "$ration" profile report "$1" --json -n 1000
    check_json "$2"
}

# ---- the same text, and a file beside it
expect 0 "$ration" "${story[@]}" --json
cp out plain.json
# A recording takes some MiB. What a process takes itself is counted in granules, 32 MiB with sanitizers, of which it may need
# one more than the last time.
margin=8
is_sanitized && margin=40
for budget in 75% +8MiB smallest; do
    if [ $budget = smallest ]; then
        budget=$(python3 -c 'import json; print(json.load(open("plain.json"))["plan"]["smallest_budget_bytes"] + ('$margin' << 20))')
    fi
    expect 0 "$ration" "${story[@]}" --json --profile=run.rntrace --budget "$budget"
    says err 'profile: run.rntrace (' 'events' 'ration profile html run.rntrace -o page.html'
    cp out run.json
    python3 - << 'PYTHON' || fail "within $budget the text is another one"
import json
a, b = json.load(open("plain.json")), json.load(open("run.json"))
assert a["text"] == b["text"] and a["tokens"] == b["tokens"]
PYTHON
    report run.rntrace "
run = json.load(open('run.json'))
host = [d for d in j['devices'] if d['device'] == 'host'][0]
slim = {k: v for k, v in host.items() if k not in ('moment', 'at_end')}
assert j['ended'] and j['reason'] == 'stopped' and j['dropped'] == 0, (j['reason'], j['dropped'])
# What was in use was predicted, at every step; and its peak.
assert host['predicted_samples'] > 100, slim
assert host['most_over_predicted_bytes'] == 0 and host['most_under_predicted_bytes'] == 0, slim
assert host['active_peak']['bytes'] == host['predicted_peak_bytes'], slim
assert host['counted_peak']['bytes'] == host['peak']['bytes'], slim
assert host['peak']['bytes'] >= run['plan']['planned_bytes'], slim
assert '$budget'.startswith('+') or host['peak']['bytes'] <= run['plan']['budget_bytes'], slim
names = {o['name'] for o in j['operations']}
assert {'prefill', 'decode', 'sample', 'load weights'} <= names, names
"
    rm run.rntrace run.json
done

# ---- what the recorder takes is part of the budget: the smallest one that a refusal names works
# (With sanitizers the process itself is a MiB larger or smaller from one time to the next.)
if ! is_sanitized; then
    expect 4 "$ration" "${story[@]}" --json --profile=run.rntrace --budget 6MiB
    smallest=$(python3 -c 'import json; print(json.load(open("out"))["error"]["refusal"]["smallest_budget_bytes"])')
    expect 0 "$ration" "${story[@]}" --json --profile=run.rntrace --budget "$smallest"
    check_json "assert j['facts']['resident_peak_bytes'] <= j['plan']['budget_bytes'], j['facts']"
    rm run.rntrace
fi

# ---- names
expect 0 "$ration" run --profile -p Once -n 2 -q
[ "$(find . -name 'ration_*_*.rntrace' | wc -l)" = 1 ] || fail 'the recording has no name of its own'
[ ! -s err ] || fail 'quiet is not quiet'
rm ./*.rntrace
make_tensors tensors.safetensors
expect 0 "$ration" inspect --profile tensors.safetensors # it does not eat the word
says out 'attn.weight'
rm ration_*.rntrace
RATION_PROFILE=here.rntrace expect 0 "$ration" inspect tensors.safetensors
[ -s here.rntrace ] || fail 'RATION_PROFILE is not heard'
RATION_PROFILE=here.rntrace expect 0 "$ration" profile report here.rntrace # and does not overwrite what is read
says out 'peak'
rm here.rntrace
RATION_PROFILE=here.rntrace expect 0 "$ration" inspect --no-profile tensors.safetensors
[ ! -e here.rntrace ] || fail '--no-profile is not heard'
expect 3 "$ration" inspect --profile=missing/x.rntrace tensors.safetensors
says err 'missing/x.rntrace'
expect 2 "$ration" inspect --profile-interval soon tensors.safetensors
expect 0 "$ration" convert tensors.safetensors q.safetensors --to int8 --profile=convert.rntrace
report convert.rntrace "
names = {o['name'] for o in j['operations']}
assert {'read', 'quantise', 'write', 'commit'} <= names, names
"
rm q.safetensors convert.rntrace

# ---- limits
expect 0 "$ration" "${story[@]}" -q --profile=small.rntrace --profile-limit 256KiB
[ "$(stat -c %s small.rntrace)" -le 262144 ] || fail 'the file is larger than its limit'
report small.rntrace "assert 'limit' in j['reason'], j['reason']"
expect 0 "$ration" "${story[@]}" -q --profile=small.rntrace --profile-limit 256KiB --profile-ring
[ "$(stat -c %s small.rntrace)" -le 262144 ] || fail 'the ring is larger than its limit'
report small.rntrace "assert j['mode'] == 'ring', j['mode']"
rm small.rntrace

# ---- what ends early
expect 4 "$ration" run -p x --ctx 288 --budget +100KiB --profile=refused.rntrace
# What it tries to find out the largest context is no refusal.
report refused.rntrace "assert j['ended'] and [m['kind'] for m in j['marks']].count('refusal') == 1, j['marks']"
expect 3 "$ration" run missing-model -p x --profile=failed.rntrace
report failed.rntrace "assert j['ended']"
rm refused.rntrace failed.rntrace

# has FILE EXPRESSION: true of the report `j` of a file, which may be growing.
has() {
    "$ration" profile report "$1" --json -n 1000 2> /dev/null | python3 -c "import json, sys
j = json.load(sys.stdin)
sys.exit(not ($2))" 2> /dev/null
}
recordings() { find . -name 'ration_*.rntrace' | sort; }
# begin COMMAND...: in the background, until it has said something.
begin() {
    rm -f out
    "$@" > out 2> err &
    pid=$!
    wait_for $pid test -s out
}
long=(run -p 'Once upon a time' -n 100000 --ctx 30000 --seed 3 -q --logit-bias 0=never) # without an end token
begin "$ration" "${long[@]}" --profile=stopped.rntrace
kill -INT $pid
wait $pid && fail 'it was not interrupted'
report stopped.rntrace "assert j['ended']"
begin "$ration" "${long[@]}" --profile=killed.rntrace
wait_for $pid has killed.rntrace "j['events'] > 100"
kill -KILL $pid
wait $pid 2> /dev/null
report killed.rntrace "assert not j['ended'] and j['events'] > 100, (j['ended'], j['events'])"
rm stopped.rntrace killed.rntrace

# ---- SIGUSR2 begins and ends a recording, again and again
begin "$ration" "${long[@]}"
for _ in 1 2; do
    before=$(recordings | wc -l)
    kill -USR2 $pid
    wait_for $pid eval '[ "$(recordings | wc -l)" -gt $before ]'
    wait_for $pid has "$(recordings | tail -n 1)" "any(o['name'] == 'decode' for o in j['operations'])"
    kill -USR2 $pid
    wait_for $pid has "$(recordings | tail -n 1)" "j['ended']"
    sleep 1 # their names have seconds
done
kill -INT $pid
wait $pid
[ "$(find . -name 'ration_*.rntrace' | wc -l)" = 2 ] || fail "$(ls) are not two recordings"
for file in ration_*.rntrace; do
    report "$file" "
assert j['ended'], j['reason']
assert any(o['name'] == 'decode' for o in j['operations'])
"
done
rm ration_*.rntrace

# ---- a full disk: a warning, and the same text
expect 0 "$ration" "${story[@]}" -q
cp out text
(ulimit -f 16 && trap '' XFSZ && exec "$ration" "${story[@]}" -q --profile=full.rntrace) > out 2> err || fail 'a full disk ended the program'
cmp -s out text || fail 'a full disk changed the text'
says err 'warning'
expect 0 "$ration" profile report full.rntrace
rm full.rntrace

# ---- the configuration's own switch leaves a JSON file as well
expect 0 "$ration" config update --config ration.toml --backend-enable-memory-profiling true
expect 0 "$ration" "${story[@]}" -q
cmp -s out text || fail 'recording changed the text'
json=$(find . -name 'memory_profile_*.json')
[ "$(wc -l <<< "$json")" = 1 ] && [ -n "$json" ] || fail "no JSON profile: $(ls)"
cp "$json" out
check_json "assert j, j"
rm ration.toml
only tensors.safetensors text plain.json "$(basename "$json")" "$(basename "$(find . -name 'ration_*.rntrace')")"
echo done
