#!/usr/bin/env bash
# train.sh — ration train: a fine-tuning of the built-in model that shows, stopped and resumed to the same bytes, read
# again by run; its plan; mistakes are named.
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do
    echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"
done > data.jsonl
flags=(--data data.jsonl --length 32 --batch-size 2 --rate 0.05 --steps 4 --rank 4 --validation 0.2 --evaluate-every 2
    --schedule constant --target v_proj --target down_proj)

expect 0 "$ration" train "${flags[@]}" --out through --threads 2
says err 'samples' 'truncated' 'first step' 'evaluate' 'step 4 of 4' 'norm' 'validation' 'adapter in through: ration run --lora'
equals lines 4 "$(wc -l < through/log.jsonl)"
expect 0 "$ration" run -p 'Zog' --greedy --tokens 12 -q
cp out before
expect 0 "$ration" run -p 'Zog' --greedy --tokens 12 -q --lora through
cmp -s out before && fail 'the adapter changes nothing'

# Its page in a browser, where there is one.
if timeout 300 python3 "$root/tests/page/browser.py" 2> err; then
    expect 0 python3 "$root/tests/page/train_page_test.py" "$(realpath through/run.html)"
else
    leave_out "the page: $(tail -1 err)"
fi

# Stopped after a step, and resumed on another number of threads.
expect 0 "$ration" train "${flags[@]}" --out parts -q --steps 1
expect 2 "$ration" train "${flags[@]}" --out parts -q
says err 'has a training already' '--resume'
expect 0 "$ration" train "${flags[@]}" --out parts -q --resume --threads 1
for file in adapter_model.safetensors checkpoint-4.safetensors adapter_config.json; do
    cmp "through/$file" "parts/$file" || fail "$file differs"
done
equals lines 4 "$(wc -l < parts/log.jsonl)"

# Planned and held bytes agree in every phase, by purpose; tables stay within their bound.
phases_agree() {
    check_json "
for p in j['phases']:
    if 'fact' not in p: continue
    assert p['plan'] == p['fact'], p
    assert p['fact_total_bytes'] <= p['planned_bytes'] + p['beside_bytes'], p
assert {'load', 'step', 'evaluate', 'save'} <= {p['name'] for p in j['phases'] if 'fact' in p}
${1:-}"
}
expect 0 "$ration" train "${flags[@]}" --out counted -q -j --steps 2 --save-every 1
phases_agree
expect 0 "$ration" train "${flags[@]}" --out counted -q -j --resume
phases_agree "assert any(p['name'] == 'resume' and 'fact' in p for p in j['phases'])"

# Another device: the same bytes, planned for its memory and for the host's.
expect 0 "$ration" train "${flags[@]}" --out simulated -q -j --device 'sim:memory=64MiB' --budget sim=48MiB,host=2GiB
phases_agree "
assert j['device'] == 'sim' and j['compute'] == 'f32' and j['budget_bytes'] == 48 << 20, j
for p in j['phases']:
    assert p.get('fact_total_bytes', 0) <= j['budget_bytes'], p
    assert p.get('fact_host_bytes', 0) <= p['host_bytes'], p"
cmp through/adapter_model.safetensors simulated/adapter_model.safetensors || fail 'another device, another adapter'
expect 4 "$ration" train "${flags[@]}" --out simulated4 -q --device 'sim:memory=64MiB' --budget +1MiB
says err 'smallest' 'sim'
expect 5 "$ration" train "${flags[@]}" --out simulated5 -q --device cuda:77
[ ! -e simulated5/log.jsonl ] || fail 'a training without a device'
expect 0 "$ration" train "${flags[@]}" --out fallen -q -j --device cuda:77,cpu
check_json "assert j['device'] == 'cpu', j"
cmp through/adapter_model.safetensors fallen/adapter_model.safetensors || fail 'the fallback differs'
expect 5 "$ration" train "${flags[@]}" --out refused -q --device cuda:77,cpu --no-fallback
# A device that fails while it trains: what was saved is there to go on from, elsewhere.
expect 5 "$ration" train "${flags[@]}" --out broken -q --save-every 1 --device 'sim:memory=64MiB;fail_launch=1500'
ls broken/checkpoint-*.safetensors > /dev/null || fail 'nothing was saved before the device failed'
expect 0 "$ration" train "${flags[@]}" --out broken -q --resume
cmp through/adapter_model.safetensors broken/adapter_model.safetensors || fail 'it does not go on'
# 16 bits between operations; f16 with a factor of the loss that its checkpoints have.
for type in f16 bf16; do
    expect 0 "$ration" train "${flags[@]}" --out "$type" -q -j --compute $type
    check_json "assert j['compute'] == '$type' and 0 < j['loss'] < 12, j"
    cmp -s through/adapter_model.safetensors "$type/adapter_model.safetensors" && fail "--compute $type changes nothing"
    expect 0 "$ration" train "${flags[@]}" --out "$type.parts" -q --compute $type --steps 2
    expect 0 "$ration" train "${flags[@]}" --out "$type.parts" -q --compute $type --resume
    cmp "$type/checkpoint-4.safetensors" "$type.parts/checkpoint-4.safetensors" || fail "$type does not go on"
    expect 2 "$ration" train "${flags[@]}" --out "$type.parts" -q --resume --steps 5
    says err 'another training'
done

# Sums of micro-batches in bf16: half the bytes of f32's, nearly the same numbers.
cut=(--out cut.f32 --exact --unpacked --batch-size 4 -q -j)
expect 0 "$ration" train "${flags[@]}" "${cut[@]}"
cp out cut.json
expect 0 "$ration" train "${flags[@]}" "${cut[@]}" --out cut.bf16 --accumulate bf16
phases_agree "
step = lambda d: next(p for p in d['phases'] if p['name'] == 'step')
a, b = json.load(open('cut.json')), j
assert step(a)['plan']['gradients'] == 2 * step(b)['plan']['gradients'], (step(a), step(b))
assert 0 < abs(a['loss'] - b['loss']) < 0.01 * a['loss'], (a['loss'], b['loss'])"

# Ranks and alphas by name, and the model with the adapter in its matrices, by train and by convert.
default=$root/models/default
patterned=(--rank-pattern 'layers.0.*=2' --alpha-pattern down_proj=24 --rslora)
expect 0 "$ration" train "$default" "${flags[@]}" "${patterned[@]}" --out merging --merge -q
expect 0 "$ration" run "$default" --lora merging -p Zog --greedy -n 8 -q
cp out added
expect 0 "$ration" run merging/merged -p Zog --greedy -n 8 -q
cmp out added || fail 'the merged model says something else'
expect 0 "$ration" convert "$default" merged --lora merging
cmp merged/model.safetensors merging/merged/model.safetensors || fail 'train and convert merge differently'
expect 3 "$ration" convert "$default" merged --lora merging --to int8
says err 'merge first'
expect 2 "$ration" convert "$default" "$default" --lora merging
says err 'the folder that the model was opened from'
expect 3 "$ration" train "${flags[@]}" --out x0 --merge
says err 'built-in'
expect 3 "$ration" train "${flags[@]}" --out x0 --adapter-init loftq
says err "'loftq'"
expect 2 "$ration" train "${flags[@]}" --out x0 --rank-pattern q_proj
says err 'no name and number'
expect 2 "$ration" train "${flags[@]}" --out x0 --rank-pattern q_proj=4
says err "'q_proj'" # it is no target
expect 2 "$ration" train "$default" "${flags[@]}" --rslora --out merging --resume
says err 'another training' 'pattern'

# Settings in a file, and their plan.
printf '[train]\ndata = "data.jsonl"\nlength = 32\nbatch = 2\nsteps = 1\nvalidation = 0.2\nout = "filed"\ntarget = ["v_proj"]\n' > config.toml
expect 0 "$ration" plan config.toml
says out 'phase step' 'save ' 'phase evaluate'
[ ! -e filed ] || fail 'a plan trains'
expect 0 "$ration" train config.toml -q --threads 1
[ -s filed/adapter_model.safetensors ] || fail 'no adapter'

# Moves that are asked for are taken, and do not change what is learned but by rounding.
expect 0 "$ration" train "${flags[@]}" --out moved -q -j --micro-batches 2 --recompute all --resident-blocks 1
phases_agree "
step = next(p for p in j['phases'] if p['name'] == 'step')
assert step['plan']['gradients'] > 0, step"
expect 0 "$ration" train "${flags[@]}" --out moved.sim -q -j --device 'sim:memory=64MiB' --host-states all --host-activations all \
    --micro-batches 2 --recompute all
phases_agree
python3 - << 'PYTHON' || fail 'the losses differ'
import json
a, b, c = ([json.loads(l)["loss"] for l in open(n + "/log.jsonl")] for n in ("through", "moved", "moved.sim"))
assert all(abs(x - y) <= 1e-5 * x and abs(x - z) <= 1e-5 * x for x, y, z in zip(a, b, c)), (a, b, c)
PYTHON
expect 2 "$ration" train "${flags[@]}" --out x0 --micro-batches 3
says err 'cannot be cut into 3 micro-batches'
expect 2 "$ration" train "${flags[@]}" --out x0 --host-states all
says err "computes in the host's memory"

# Within a small budget; below the smallest.
expect 4 "$ration" train "${flags[@]}" --out small --budget +1MiB -q
says err 'smallest' 'it takes' 'micro-batch'

# Mistakes.
expect 2 "$ration" train --out x
says err 'no data'
expect 2 "$ration" train --data data.jsonl
says err 'no place'
expect 2 "$ration" train "${flags[@]}" --out x1 --target nobody
says err "'nobody'"
echo '{"text": ' > bad.jsonl
expect 3 "$ration" train "${flags[@]}" --data bad.jsonl --out x2
says err 'line 1' 'bad.jsonl'
expect 2 "$ration" train "${flags[@]}" --out x3 --length 4
says err 'line 1: the sample has' 'truncate, drop or split'
