#!/usr/bin/env bash
# labels: release
# plan.sh — plans that fit, plans that do not, sweeps, pictures, and what they say about it.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- within a budget
expect 0 "$ration" plan resnet18
says out 'nine tenths of what is free' 'resnet18 on cpu' 'all weights are resident' 'guessed rates'
expect 0 "$ration" plan resnet18 --budget +60MiB
says out 'budget 60.0 MiB: all of it for the plan' 'The smallest that works is +' 'of 60.0 MiB' \
    'are read in each run' 'at the peak' 'decisions' 'largest at the peak' activations
[ ! -s err ] || fail 'a plan complains'
expect 0 "$ration" plan resnet18 --budget +60MiB --json
check_json "
p = j['plan']
assert j['planned_only'] and j['budget_bytes'] == 60 << 20 == p['budget_bytes'] and not j['rates_measured']
assert j['unaccounted_bytes'] == j['reserve_bytes'] == p['reserved_bytes'] == 0
assert p['planned_bytes'] <= 60 << 20 and p['planned_bytes'] == p['arena_bytes'] + p['staging_bytes']
assert p['planned_bytes'] == sum(p['purposes'].values())
assert 0 < p['streamed_bytes'] < p['weight_bytes'] and p['smallest_bytes'] == j['smallest_budget_bytes']
live = [s['live_bytes'] for s in p['steps']]
assert max(live) == p['live_peak_bytes'] <= p['arena_bytes']
for b in p['buffers']:
    assert b['offset'] + b['bytes'] <= p['arena_bytes'] and b['first_step'] <= b['last_step'] < len(live)
for i, bytes in enumerate(live):
    alive = sorted((b['offset'], b['bytes']) for b in p['buffers'] if b['first_step'] <= i <= b['last_step'])
    assert sum(b for _, b in alive) == bytes
    assert all(a + n <= b for (a, n), (b, _) in zip(alive, alive[1:])), 'buffers overlap'
reads = [s for s in p['steps'] if s['kind'] == 'read']
assert sum(s['file_bytes'] for s in reads) == p['streamed_bytes']"

# An absolute budget holds the process, too.
budget=200MiB
is_sanitized && budget=3GiB
expect 0 "$ration" plan resnet18 -b $budget --json
check_json "
p, beside = j['plan'], j['unaccounted_bytes'] + j['reserve_bytes']
assert not j['planned_only'] and j['unaccounted_bytes'] > 0 and j['reserve_bytes'] > 0
assert p['reserved_bytes'] == j['unaccounted_bytes'] and p['with_reserve']
assert p['planned_bytes'] <= j['budget_bytes'] - beside
assert j['smallest_budget_bytes'] > p['smallest_bytes']"
expect 0 "$ration" plan resnet18 --budget $budget
says out 'for the process' 'in reserve' 'for the plan'

# The same question, the same answer.
expect 0 "$ration" plan llama:4x256 --budget +60MiB --json
mv out first
expect 0 "$ration" plan llama:4x256 --budget +60MiB --json
cmp -s first out || fail 'two plans differ'
rm first

for model in mlp simple llama:2x64 llama:2x256:q4_0 mlp:train simple:train resnet18:train llama:2x64:train; do
    expect 0 "$ration" plan $model --json
    check_json "assert j['plan']['model'] == '$model' and j['plan']['steps'] and j['plan']['decisions']"
done
expect 0 "$ration" plan resnet18 --threads 1
says out '1 thread,'

# ---- it does not fit
least() { check_json "print(j['plan']['smallest_bytes'], file=open('least', 'w'))"; }
expect 0 "$ration" plan resnet18 --json
least
expect 0 "$ration" plan resnet18 --budget "+$(cat least)"
expect 4 "$ration" plan resnet18 --budget "+$(($(cat least) - 1))"
says err "'resnet18' does not fit" "the smallest budget that works is" "($(cat least) bytes)" 'largest holders'
[ ! -s out ] || fail 'a refusal prints a plan'
expect 4 "$ration" plan resnet18 --budget "+$(($(cat least) - 1))" --json
check_json "
e, r = j['error'], j['error']['refusal']
assert e['status'] == 'RN_OVER_BUDGET' and e['exit_code'] == 4 and 'resnet18' in e['message']
assert r['smallest_budget_bytes'] == $(cat least) == r['requested_bytes'] and r['budget_bytes'] == $(cat least) - 1
assert r['holders'] and all(h['bytes'] <= r['requested_bytes'] for h in r['holders'])"

# With the process counted in, table and message name one budget, and it works.
expect 4 "$ration" plan resnet18 --budget 10MiB --json
check_json "
e, r = j['error'], j['error']['refusal']
smallest = r['smallest_budget_bytes']
assert r['requested_bytes'] == $(cat least) < smallest and r['budget_bytes'] == 10 << 20
assert '(%d bytes)' % smallest in e['hint']
assert any(h['purpose'] == 'unaccounted' and h['bytes'] == smallest - $(cat least) for h in r['holders'])
print(smallest, file=open('least', 'w'))"
says err 'beside it' 'the budget is 10.0 MiB' 'unaccounted  beside the plan'
if ! is_sanitized; then # the sanitizers' own memory grows as it likes
    expect 0 "$ration" plan resnet18 --budget "$(cat least)"
fi
expect 4 "$ration" plan simple:train --budget +6MiB
says err 'with lossy moves allowed, micro-batches bring it down to'
expect 0 "$ration" plan simple:train --budget +6MiB --allow-lossy
says out 'micro-batch'
expect 4 "$ration" plan simple:train --budget +6MiB --allow-lossy --exact
says err 'without exact'
rm least
is_sanitized || exit 0 # what follows says the same of every build

# ---- absurd budgets
expect 2 "$ration" plan resnet18 --budget 0
expect 2 "$ration" plan resnet18 --budget +0
expect 2 "$ration" plan resnet18 --budget lots
expect 2 "$ration" plan resnet18 --budget -5MiB
expect 2 "$ration" plan resnet18 --budget 99999999999999999999
expect 2 "$ration" plan resnet18 --budget cuda:0=1GiB
says err 'only the host'
expect 2 "$ration" plan resnet18 --budget host=1GiB,cuda:0=1GiB
for size in 1 +1; do
    expect 4 "$ration" plan resnet18 --budget $size
    says err 'the budget is 1 B'
done
for size in 1048576T +1048576T 9223372036854775807; do # an EiB and more
    expect 0 "$ration" plan resnet18 --budget $size --json
    check_json "assert j['plan']['streamed_bytes'] == 0"
done
expect 0 "$ration" plan resnet18 --budget 90%

# ---- phases: a training step and its evaluation in one arena
expect 0 "$ration" plan llama:2x128:train --phases --budget +64MiB
says out 'program of 2 phases' 'phase step: ' 'phase evaluate: ' 'persist from phase to phase' 'step needs the most'
expect 0 "$ration" plan llama:2x128:train --phases --budget +64MiB --json --html phases.html
check_json "
p = j['program']
a, b = p['phases']
assert (a['name'], b['name']) == ('step', 'evaluate')
assert p['planned_bytes'] == max(a['planned_bytes'], b['planned_bytes']) <= 64 << 20
for q in (a, b):
    assert q['planned_bytes'] == p['shared_bytes'] + q['own_bytes'] == q['plan']['planned_bytes']
assert p['smallest_budget_bytes'] == j['smallest_budget_bytes']"
equals 'pictures' 2 "$(grep -c '<g transform' phases.html)"
rm phases.html
expect 4 "$ration" plan llama:2x128:train --phases --budget +1MiB
says err "phase 'step' of the program" 'the smallest budget that works'
expect 0 "$ration" plan llama:2x128:train --phases --sweep --json
check_json "
for a, b in zip(j['sweep'], j['sweep'][1:]):
    assert a['budget_bytes'] <= b['budget_bytes'] and a['seconds'] >= b['seconds'], (a, b)"
expect 2 "$ration" plan resnet18 --phases
says err '--phases is for a builtin model'

# ---- sweeps: more memory never costs time
for model in resnet18 llama:4x256 llama:2x128:train simple:train; do
    for size in 1GiB +1GiB; do
        expect 0 "$ration" plan $model --sweep --budget $size --json
        check_json "
rows = j['sweep']
assert j['model'] == '$model' and len(rows) == 9
for a, b in zip(rows, rows[1:]):
    assert a['budget_bytes'] <= b['budget_bytes'] and a['plan_budget_bytes'] <= b['plan_budget_bytes']
    assert a['seconds'] >= b['seconds'], (a, b)
for r in rows:
    assert r['planned_bytes'] <= r['plan_budget_bytes'] <= r['budget_bytes']
assert rows[0]['planned_bytes'] == rows[0]['plan_budget_bytes'] and rows[-1]['streamed_bytes'] == 0"
    done
done
expect 0 "$ration" plan resnet18 --sweep
says out 'from the smallest budget that works' planned time 'rows a run' 'read a run' 'resident blocks'
equals 'lines of a sweep' 14 "$(wc -l < out)"
if grep -q 'recomputed\|micro' out; then fail 'columns that say nothing'; fi
expect 0 "$ration" plan llama:2x128:train --sweep
says out 'recomputed blocks'
expect 0 "$ration" plan llama:2x128:train --device sim --sweep # another memory, and the host's
says out 'states on host' 'saved on host'
expect 0 "$ration" plan llama:2x128:train --device sim --sweep --json
check_json "
rows = j['sweep']
for a, b in zip(rows, rows[1:]):
    assert a['seconds'] >= b['seconds'], (a, b)
assert rows[0]['host_state_bytes'] and rows[-1]['host_state_bytes'] == rows[-1]['host_saved_bytes'] == 0"
expect 0 "$ration" plan llama:2x128:train --device sim --budget +13MiB --exact --json
check_json "
p = j['plan']
steps = {k: [s for s in p['steps'] if s['kind'] == k] for k in ('offload', 'prefetch', 'wait')}
offloads = p['host_states'] + p['host_saved']
assert offloads and len(steps['offload']) == len(steps['prefetch']) == offloads and len(steps['wait']) == 2 * offloads
assert {s['queue'] for s in steps['offload']} == {3} and {s['queue'] for s in steps['prefetch']} == {2}
assert all(s['after'] < i for i, s in enumerate(p['steps']) if s['kind'] in steps)"
expect 4 "$ration" plan llama:2x128:train --device sim --budget +1MiB
says err 'of the host'
expect 2 "$ration" plan resnet18 --sweep --svg plan.svg
says err 'a sweep makes no picture'

# ---- pictures
expect 0 "$ration" plan resnet18 --budget +60MiB --svg plan.svg --html plan.html
says out 'resnet18 on cpu'
python3 - << 'PYTHON' || fail 'the picture is not as it should be'
import xml.etree.ElementTree as tree
root = tree.parse('plan.svg').getroot()
ns = '{http://www.w3.org/2000/svg}'
left, top, width, height = map(float, root.get('viewBox').split())
groups = {g.get('class'): g for g in root.iter(ns + 'g')}
assert len(groups['buffers']) > 50 and len(groups['blocks'].findall(ns + 'rect')) == 10
for box in groups['buffers']:
    x, y, w, h = (float(box.get(k)) for k in ('x', 'y', 'width', 'height'))
    assert w > 0 and 0 <= x and x + w <= width and 0 <= y and y + h <= height and box.find(ns + 'title').text
texts = [t.text for t in root.iter(ns + 'text')]
assert 'step 1' in texts and '0 B' in texts and 'weights' in texts and 'weights read in each run' in texts
page = open('plan.html').read()
assert open('plan.svg').read() in page and page.count('http') == 1 and ' src=' not in page
PYTHON
for picture in svg html; do
    expect 0 "$ration" plan resnet18 --budget +60MiB --$picture -
    cmp -s out plan.$picture || fail "--$picture - is another picture"
done
expect 2 "$ration" plan resnet18 --svg - --html -
says err 'standard output takes one of'
expect 2 "$ration" plan resnet18 --svg - --json
expect 0 "$ration" plan resnet18 --svg again.svg --json
check_json "assert j['plan']['model'] == 'resnet18'"
expect 3 "$ration" plan resnet18 --svg no/such/folder.svg
says err 'cannot write no/such/folder.svg: No such file'
if [ -w /dev/full ]; then
    expect 3 "$ration" plan resnet18 --html /dev/full
    says err /dev/full
fi
expect 0 "$ration" plan llama:32x4096 --budget +6GiB --html large.html # some 1000 steps, some 2000 buffers
[ "$(stat -c %s large.html)" -lt $((2 << 20)) ] || fail 'the picture of a large model is large'
only again.svg large.html plan.html plan.svg

# ---- models that there are not
expect 3 "$ration" plan resnet19
says err "no builtin model 'resnet19'" mlp simple resnet18 llama:LAYERSxDIM :train
expect 3 "$ration" plan resnet19 --json
check_json "assert j['error']['status'] == 'RN_NOT_FOUND'"
expect 3 "$ration" plan ''
expect 2 "$ration" plan llama:0x64
expect 2 "$ration" plan llama:4x64:int3
expect 2 "$ration" plan
expect 2 "$ration" plan resnet18 mlp
expect 2 "$ration" plan resnet18 --threads some

# ---- a cache folder that is none of ours
mkdir -p cache/ration
echo '{"threads": "two"}' > cache/ration/rates.json
XDG_CACHE_HOME=$PWD/cache expect 0 "$ration" plan resnet18 --rates measured
says err 'ration calibrate makes the file anew' rates.json
XDG_CACHE_HOME=$PWD/cache expect 0 "$ration" plan resnet18 --rates guessed
[ ! -s err ] || fail 'guesses read no file'

# ---- devices: the ladder, and its record
RATION_CUDA_DRIVER=/no/such/driver expect 5 "$ration" plan mlp --device cuda
RATION_CUDA_DRIVER=/no/such/driver expect 0 "$ration" plan mlp --device cuda,cpu --json
says err 'warning failed at stage ' 'cpu is in use, as the last resort'
check_json "
assert j['device'] == j['ladder']['target'] == 'cpu', j['ladder']
assert j['ladder']['attempts'][0]['class'] == 'cuda_no_driver', j['ladder']"
expect 0 "$ration" plan llama:2x128:train --device 'sim:memory=1MiB,cpu' --json
check_json "assert j['ladder']['attempts'][0]['class'] == 'over_budget' and j['device'] == 'cpu', j['ladder']"
expect 4 "$ration" plan llama:2x128:train --device 'sim:memory=1MiB,cpu' --no-fallback
