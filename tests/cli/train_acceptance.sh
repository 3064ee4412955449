#!/usr/bin/env bash
# labels: release
# train_acceptance.sh — what people complain about in fine-tuning, each as a test by its name: 01 the longest sample, 02
# saving, 03 evaluating, 04 resuming, 05 fragmentation, 06 estimates, 07 silent truncation, 08 lost checkpoints, 09 numbers
# that are not finite, 10 a resume that is no continuation, 11 accumulation, 12 an adapter that learned nothing.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do
    printf '{"text": "Zog the dragon ate cake number %s%s."}\n' "$i" "$(printf ' and laughed%.0s' $(seq $((i / 2))))"
done > data.jsonl
flags=(--data data.jsonl --length 32 --batch-size 4 --rate 0.05 --rank 4 --schedule constant --target v_proj
    --target down_proj --long truncate -q --threads 2)
train() {
    local code=$1
    shift
    expect "$code" "$ration" train "${flags[@]}" "$@"
}
ran_as_planned="
for p in j['phases']:
    assert p.get('fact', p['plan']) == p['plan'], p
    assert p.get('fact_total_bytes', 0) <= p['planned_bytes'] + p['beside_bytes'], p
    assert p.get('fact_bytes' if j['planned_only'] else 'fact_total_bytes', 0) <= j['budget_bytes'], p"

01_the_longest_sample_is_planned_for() {
    { cat data.jsonl; printf '{"text": "%s"}\n' "$(printf 'cake %.0s' $(seq 200))"; } > long.jsonl
    train 2 --data long.jsonl --long refuse --out long --steps 1
    says err 'line 9' 'the sample has'
    train 0 --data long.jsonl --long split --out long --steps 4 -j
    check_json "$ran_as_planned"
}

# 06 estimates, 03 evaluating, 02 saving: every phase holds what was planned, at a small budget and at a large one.
02_03_06_saving_and_evaluating_hold_what_was_planned() {
    train 0 --out large --steps 2 --validation 0.2 --evaluate-every 1 --save-every 1 -j
    check_json "$ran_as_planned
assert {p['name'] for p in j['phases'] if 'fact' in p} == {'load', 'step', 'evaluate', 'save'}"
    is_sanitized && return # planning at the floor takes long there
    expect 4 "$ration" train "${flags[@]}" --out small --steps 1 --validation 0.2 --budget +1MiB
    local smallest
    smallest=$(sed -n 's/.*smallest budget that works[^(]*(\([0-9]*\) bytes).*/\1/p' err | head -1)
    [ -n "$smallest" ] || fail 'no smallest budget is named'
    train 0 --out small --steps 2 --validation 0.2 --evaluate-every 1 --save-every 1 --budget "+$smallest" -j
    check_json "$ran_as_planned"
    train 4 --out smaller --steps 1 --validation 0.2 --budget "+$((smallest - 4096))"
}

04_10_a_resume_continues_to_the_bit_in_the_same_memory() {
    train 0 --out through --steps 4 -j
    cp out through.json
    train 0 --out parts --steps 2 --keep-checkpoints 9
    train 0 --out parts --steps 4 --resume --keep-checkpoints 9 -j
    for file in adapter_model.safetensors checkpoint-4.safetensors; do
        cmp "through/$file" "parts/$file" || fail "$file differs"
    done
    equals lines 4 "$(wc -l < parts/log.jsonl)"
    check_json "$ran_as_planned
a = {p['name']: p for p in json.load(open('through.json'))['phases']}
b = {p['name']: p for p in j['phases']}
assert a['step']['fact'] == b['step']['fact'] and b['resume']['fact_bytes'] <= a['load']['fact_bytes']"
}

# Ten thousand steps of it: train_long.sh.
05_memory_stays_the_same_to_the_byte() {
    train 0 --out many --steps 12
    equals 'sizes on the ledger' 1 "$(sed 's/.*memory_bytes//' many/log.jsonl | sort -u | wc -l)"
}

07_what_is_cut_or_masked_is_counted() {
    printf '{"prompt": "%s", "completion": "no"}\n' "$(printf 'cake %.0s' $(seq 200))" > masked.jsonl
    cat data.jsonl >> masked.jsonl
    expect 0 "$ration" train "${flags[@]/-q/--no-quiet}" --data masked.jsonl --length 24 --out masked --steps 1
    grep -qE '[1-9][0-9]* truncated' err || fail 'truncated samples are not counted'
    says err '1 without anything to learn'
    head -1 masked.jsonl > nothing.jsonl
    train 2 --data nothing.jsonl --out nothing --steps 1
    says err 'nothing to learn'
}

08_checkpoints_survive() {
    train 0 --out kept --steps 4 --save-every 1 --keep-checkpoints 2
    equals checkpoints 'checkpoint-3.safetensors checkpoint-4.safetensors' "$(cd kept && echo checkpoint-*)"
    printf 'x' | dd of=kept/checkpoint-4.safetensors bs=1 seek=$(($(stat -c %s kept/checkpoint-4.safetensors) - 100)) conv=notrunc 2> /dev/null
    train 0 --out kept --steps 4 --resume
    says err 'checkpoint-4.safetensors' 'damaged' 'passed over'
    cmp kept/checkpoint-4.safetensors through/checkpoint-4.safetensors || fail 'the damaged one is not made anew'
    train 2 --out kept --steps 5 --resume --rank 8
    says err 'another training' 'rank=4' 'rank=8'
    cp data.jsonl other.jsonl
    echo '{"text": "A line more."}' >> other.jsonl
    train 2 --out kept --steps 5 --resume --data other.jsonl
    says err 'another training' 'data='
    ls kept/checkpoint-4.safetensors > /dev/null || fail "another run's checkpoint is gone"
}

# A rate that blows everything up: steps are passed over, the weight is named, and after --bad-steps of them in a row the
# run stops; the checkpoint before is whole.
09_numbers_that_are_not_finite_stop_the_run() {
    train 0 --out finite --steps 1
    cp finite/checkpoint-1.safetensors before
    local loud=("${flags[@]/-q/--no-quiet}")
    expect 2 "$ration" train "${loud[@]}" --rate 1e38 --bad-steps 4 --out finite --steps 40 --resume
    says err 'not finite' 'passed over' 'first that of tuned.' 'layers.' '4 steps in a row' 'checkpoint of step 1 is kept'
    equals 'steps passed over' 4 "$(grep -c 'passed over, nothing' err)"
    cmp finite/checkpoint-1.safetensors before || fail 'the last good checkpoint is not kept'
    expect 2 "$ration" train "${flags[@]}" --clip 0 --rate 1e38 --out finite --steps 40 --resume
    says err '3 steps in a row'
    train 0 --out finite --steps 2 --resume
    cmp finite/checkpoint-2.safetensors parts/checkpoint-2.safetensors || fail 'it does not go on from there'
}

11_micro_batches_do_not_change_the_loss() {
    local budget
    is_sanitized && return
    local slow=(--rate 0.0002 --steps 20 --unpacked) # what rounding does is not multiplied by the rate
    train 0 --out whole "${slow[@]}"
    expect 4 "$ration" train "${flags[@]}" --out cut "${slow[@]}" --budget +1MiB
    budget=$(sed -n 's/.*smallest budget that works[^(]*(\([0-9]*\) bytes).*/\1/p' err | head -1)
    says err 'micro-batches'
    train 0 --out cut "${slow[@]}" --budget "+$budget"
    python3 - << 'PYTHON' || fail 'the losses differ'
import json
a, b = ([json.loads(l)["loss"] for l in open(f"{n}/log.jsonl")] for n in ("whole", "cut"))
assert len(a) == len(b) == 20 and all(abs(x - y) <= 1e-6 * abs(x) for x, y in zip(a, b)), (a, b)
PYTHON
    # Exact: the same bits, however the batch is cut, at the smallest budget, too.
    for cut in 1 2 4; do
        train 0 --out "exact$cut" "${slow[@]}" --exact --micro-batches $cut
        cmp exact1/checkpoint-20.safetensors "exact$cut/checkpoint-20.safetensors" || fail "$cut micro-batches have other bits"
    done
    expect 4 "$ration" train "${flags[@]}" --out tight "${slow[@]}" --exact --budget +1MiB
    budget=$(sed -n 's/.*smallest budget that works[^(]*(\([0-9]*\) bytes).*/\1/p' err | head -1)
    train 0 --out tight "${slow[@]}" --exact --budget "+$budget" -j
    check_json "$ran_as_planned"
    cmp exact1/checkpoint-20.safetensors tight/checkpoint-20.safetensors || fail 'the smallest budget has other bits'
    train 2 --out none "${slow[@]}" --micro-batches 3
    says err '3 micro-batches'
}

12_every_addition_learns() {
    train 0 --out one --steps 1
    python3 - << 'PYTHON' || fail 'an addition is still zero'
import json, struct
raw = open("one/adapter_model.safetensors", "rb").read()
size, = struct.unpack_from("<Q", raw)
header = json.loads(raw[8:8 + size])
ups = [v["data_offsets"] for k, v in header.items() if ".lora_B." in k]
assert ups and all(any(raw[8 + size + a:8 + size + b]) for a, b in ups)
PYTHON
    [ -s one/adapter.gguf ] || fail 'no adapter for llama.cpp'
}

for name in $(declare -F | sed -n 's/^declare -f \([01].*\)/\1/p'); do
    "$name"
done
