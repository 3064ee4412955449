#!/usr/bin/env bash
# profile_export.sh — a recorded run in every form: JSON with the seed's keys, Chrome's trace against its schema, PyTorch's
# snapshot by pickle and torch's own viewer, the planner's CSV through `ration place`, Prometheus' text.
python=$(command -v "${RATION_PYTHON:-python3}" || true)
checks=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../python")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
command -v python3 > /dev/null || { echo 'skipped: no python3'; exit 77; }

expect 0 "$ration" run -p 'Once upon a time' -n 6 --greedy -q --profile=run.rntrace
for form in json chrome torch csv prometheus pprof html; do
    expect 0 "$ration" profile export run.rntrace --format $form -o run.$form
    [ -s run.$form ] || fail "run.$form is empty"
done

# ---- the seed's and pie's JSON: all keys, sums that agree
cp run.json out
check_json "
assert set(j) >= {'metadata', 'snapshots', 'operation_allocations', 'operation_summary', 'operation_graph', 'tensor_lifecycle',
                  'pytorch_operations', 'operation_log'}
assert j['metadata']['num_snapshots'] == len(j['snapshots']) and j['metadata']['operation_tracking_enabled']
names = [s['checkpoint_name'] for s in j['snapshots']]
assert names[-1] == 'final' and 'peak' in names
peak = [s for s in j['snapshots'] if s['checkpoint_name'] == 'peak'][-1]
assert peak['total_bytes'] == j['metadata']['peak_bytes'] == max(s['total_bytes'] for s in j['snapshots'])
for s in j['snapshots']:
    devices = s['device_breakdown'].values()
    assert s['total_bytes'] == sum(d['total_bytes'] for d in devices) and s['tensor_count'] == sum(d['count'] for d in devices)
    assert all(d['total_bytes'] == sum(t['size_bytes'] for t in d['tensors']) for d in devices)
    assert len(s['top_allocations']) == min(10, s['tensor_count'])
import datetime
times = [datetime.datetime.fromisoformat(s['timestamp']) for s in j['snapshots']]
assert times == sorted(times)
assert {t['purpose'] for t in peak['top_allocations']} & {'weights', 'kv'}
for name, summary in j['operation_summary'].items():
    assert summary['invocation_count'] == len(j['operation_allocations'][name]) == j['operation_graph'][name]['invocations']
assert sum(o['invocation_count'] for o in j['operation_summary'].values()) == len(j['operation_log'])"

# Devices as PyTorch names them; a model that is not trained requires no gradient.
check_json "
assert all(set(s['device_breakdown']) <= {'cpu'} for s in j['snapshots'])
tensors = [t for s in j['snapshots'] for d in s['device_breakdown'].values() for t in d['tensors']]
assert tensors and all(t['device'] == 'cpu' and t['requires_grad'] is False for t in tensors)"

# Every step of the model has its tensors, with the rows of its run: of the prompt, then of each token.
check_json "
steps = [o for o in j['operation_log'] if '/' in o['name'] and o['module_name'].startswith('layer ')] # not reading
assert len(steps) > 100 and j['metadata']['tensor_accesses_recorded']
first = {}
for o in steps:
    shapes = o['input_shapes'] + [o['output_shape']]
    assert all(d >= 0 for shape in shapes for d in shape), o
    assert o['inputs'] and o['outputs'] and o['input_tensor_ids'], o
    assert [t['shape'] for t in o['inputs']] == o['input_shapes'] and len(o['inputs']) == o['num_inputs'], o
    assert all(t['name'] and t['dtype'] for t in o['inputs'] + o['outputs'])
    assert all(t['tensor_id'] in o['input_tensor_ids'] for t in o['inputs']), o
    first.setdefault(o['name'], []).append(o)
lives = j['tensor_lifecycle']
for o in steps:
    for t in o['inputs'] + o['outputs']:
        if t['tensor_id'] is not None and t['dtype'] == 'f32' and str(t['tensor_id']) in lives:
            assert t['bytes'] <= lives[str(t['tensor_id'])]['size_bytes'], (t, lives[str(t['tensor_id'])])
norms = next(of for name, of in first.items() if 'norm' in name)
rows = [o['output_shape'][0] for o in norms]
assert rows[0] > 1 and set(rows[1:]) == {1}, rows
assert norms[0]['outputs'][0]['bytes'] == rows[0] * norms[1]['outputs'][0]['bytes']"

# Read again, it has the same numbers: calls and changes of each operation, each of the listed invocations.
expect 0 "$ration" profile export run.json --format json -o again.json
mv again.json out
check_json "
first = json.load(open('run.json'))
assert j['operation_summary'] == first['operation_summary']
def changes(of):
    keys = ('memory_delta_mb', 'tensors_allocated', 'tensors_deallocated', 'pre_total_mb')
    return {name: [[i[key] for key in keys] for i in calls] for name, calls in of['operation_allocations'].items()}
assert changes(j) == changes(first)"
expect 0 "$ration" profile report run.json --json
check_json "
told = {o['name']: o for o in j['operations']}
summary = json.load(open('run.json'))['operation_summary']
assert {n: o['count'] for n, o in told.items()} == {n: s['invocation_count'] for n, s in summary.items()}
assert any(o['delta_bytes'] for o in told.values())
assert all(abs(told[n]['delta_bytes'] - s['total_memory_delta_mb'] * 2**20) <= 1 for n, s in summary.items())"

# ---- Chrome's trace
expect 0 python3 "$checks/chrome_trace_check.py" run.chrome
says out ' X, ' ' C, '

# ---- PyTorch's snapshot: by Python alone, and by torch where it is
expect 0 "$python" "$checks/torch_snapshot_export.py" run.torch
says out ' segments'
grep -q 'skipped: no torch' out && leave_out 'no torch'

# ---- the planner takes the CSV, and its lower bound is the most that was alive at once
python3 - << 'PYTHON' > bound || fail 'the CSV is not what it should be'
import csv
rows = list(csv.DictReader(open('run.csv')))
changes = sorted(c for r in rows for c in ((int(r['lower']), 1, int(r['size'])), (int(r['upper']), 0, -int(r['size']))))
level = most = 0
for _, _, bytes in changes:
    level += bytes
    most = max(most, level)
assert rows and level == 0 and len({r['id'] for r in rows}) == len(rows)
print(most)
PYTHON
expect 0 "$ration" place run.csv --time 0 --json
check_json "assert j['lower_bound'] == $(cat bound) and j['buffers'] == $(($(wc -l < run.csv) - 1))"

# ---- pprof's own program, where it is: the sum is what was in use at most
if command -v go > /dev/null && go tool pprof -h 2>&1 | grep -q -- -traces; then
    expect 0 env HOME="$scratch/home" go tool pprof -sample_index=inuse_space -unit=B -top -nodecount=1 run.pprof
    says out 'Type: inuse_space' 'flat%'
    most=$(python3 -c "import json; print(json.load(open('run.json'))['metadata']['peak_bytes'])")
    total=$(sed -n 's/.* of \([0-9]*\)B total.*/\1/p' out)
    # The JSON leaves out what the profiler holds itself.
    [ "$total" -ge "$most" ] && [ "$total" -le $((most + (8 << 20))) ] || fail "pprof sums up $total bytes, most in use were $most"
    expect 0 env HOME="$scratch/home" go tool pprof -tags run.pprof
    says out 'purpose:' weights 'device:'
fi

# ---- Prometheus: every line is a comment or a value of a metric that was announced
python3 - << 'PYTHON' || fail 'the metrics are not what they should be'
import re
types, values = {}, {}
for line in open('run.prometheus'):
    if line.startswith('# TYPE '):
        _, _, name, kind = line.split()
        assert name not in types and kind in ('gauge', 'counter') and (kind == 'counter') == name.endswith('_total')
        types[name] = kind
    elif not line.startswith('# HELP '):
        found = re.fullmatch(r'([a-z_]+)(\{([a-z]+="[^"\\\n]*",?)+\})? (\d+)\n', line)
        assert found and found[1] in types and line.split(' ')[0] not in values, line
        values[line.rsplit(' ', 1)[0]] = int(found[4])
peak = values['ration_memory_peak_bytes{device="host"}']
assert peak >= sum(v for k, v in values.items() if k.startswith('ration_memory_bytes{device="host"') and 'state="peak"' in k) > 0
assert values['ration_memory_bytes{device="host",category="weights",state="peak"}'] > 0
PYTHON

# ---- a JSON profile and a PyTorch snapshot are recordings, too: out again in another form
for file in run.json run.torch; do
    expect 0 "$ration" profile export $file --format chrome -o again.chrome
    expect 0 python3 "$checks/chrome_trace_check.py" again.chrome
done

# ---- what cannot be done
expect 2 "$ration" profile export run.rntrace --format word -o no
expect 3 "$ration" profile export missing.rntrace --format json -o no
expect 3 "$ration" profile export run.rntrace --format json -o missing/no
only again.chrome bound run.chrome run.csv run.html run.json run.pprof run.prometheus run.rntrace run.torch
