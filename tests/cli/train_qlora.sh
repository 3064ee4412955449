#!/usr/bin/env bash
# train_qlora.sh — the base that ration train --method qlora keeps: nf4 whose scales are quantised, too, held and streamed in
# the bytes of the plan; with --no-double-quant in f32. bitsandbytes ($RATION_PYTHON) reads it as what ration computes with.
python=${RATION_PYTHON:-python3}
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do
    echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"
done > data.jsonl
default=$root/models/default
flags=(--method qlora --data data.jsonl --length 32 --batch-size 2 --rate 0.05 --steps 4 --rank 4 --schedule constant -q --threads 2)
as_planned="
for p in j['phases']:
    if 'fact' not in p: continue
    assert p['plan'] == p['fact'], p
    assert p['fact_total_bytes'] <= p['planned_bytes'] + p['beside_bytes'], p"
losses() { sed 's/.*"loss":\([^,]*\),.*/\1/' "$1/log.jsonl"; }

# Twice is what QLoRA means; fewer bytes in the file, and in the plan.
expect 0 "$ration" train "$default" "${flags[@]}" --out twice -j
check_json "$as_planned"
weights_of='print(max(p["plan"].get("weights", 0) for p in j["phases"]))'
twice=$(python3 -c "import json; j = json.load(open('out')); $weights_of")
expect 0 "$ration" train "$default" "${flags[@]}" --no-double-quant --out once -j
check_json "$as_planned"
once=$(python3 -c "import json; j = json.load(open('out')); $weights_of")
[ "$twice" -lt "$once" ] || fail "weights: $twice bytes with double quantisation, $once without"
expect 0 "$ration" inspect twice/base-nf4_dq -j
grep -q 'nested_absmax' out || fail 'the scales are not quantised'
expect 0 "$ration" inspect once/base-nf4 -j
grep -q 'nested_absmax' out && fail 'the scales are quantised'

# Used again; quantised anew where the setting is another.
before=$(stat -c %Y.%i twice/base-nf4_dq/model.safetensors)
expect 0 "$ration" train "$default" "${flags[@]}" --out twice --resume --steps 5
equals 'the base' "$before" "$(stat -c %Y.%i twice/base-nf4_dq/model.safetensors)"
expect 2 "$ration" train "$default" "${flags[@]}" --out twice --resume --steps 6 --no-double-quant

# The smallest budget that works: the base is streamed, and says the same.
expect 0 "$ration" train "$default" "${flags[@]}" --out small
rm small/checkpoint* small/log.jsonl
expect 4 "$ration" train "$default" "${flags[@]}" --out small --budget +1MiB --exact
least=$(sed -n 's/.*smallest budget that works[^(]*(\([0-9]*\) bytes).*/\1/p' err | head -1)
expect 0 "$ration" train "$default" "${flags[@]}" --out small --budget "+$least" --exact -j
check_json "$as_planned"
expect 0 "$ration" train "$default" "${flags[@]}" --out whole --exact
equals 'losses within the smallest budget' "$(losses whole)" "$(losses small)"

# What was quantised is run, too, with and without the adapter.
expect 0 "$ration" run twice/base-nf4_dq -p Zog --greedy -n 8 -q
cp out without
expect 0 "$ration" run twice/base-nf4_dq --lora twice -p Zog --greedy -n 8 -q
cmp -s out without && fail 'the adapter changes nothing'

# Damaged: the file and the tensor are named.
cp -r twice/base-nf4_dq damaged
python3 - damaged/model.safetensors << 'PYTHON'
import re, sys
data = open(sys.argv[1], 'rb').read()
at = data.index(b'"nested_blocksize": 256')
open(sys.argv[1], 'wb').write(data[:at] + b'"nested_blocksize": 128' + data[at + 23:])
PYTHON
expect 3 "$ration" run damaged -p Zog -n 4
says err 'nested_blocksize is 128' 'model.safetensors'

if ! "$python" -c 'import bitsandbytes, torch, safetensors' 2> /dev/null; then
    leave_out 'bitsandbytes is not installed'
    exit 0
fi
expect 0 "$ration" convert "$default" wide.safetensors --to f32
expect 0 "$python" - twice/base-nf4_dq/model.safetensors wide.safetensors << 'PYTHON'
import sys, torch
from bitsandbytes.functional import QuantState, dequantize_blockwise
from safetensors.torch import load_file
base, wide = load_file(sys.argv[1]), load_file(sys.argv[2])
names = [n for n in base if n + '.nested_absmax' in base]
assert names
for name in names:
    parts = {k[len(name) + 1:]: v for k, v in base.items() if k.startswith(name + '.')}
    state = QuantState.from_dict(parts, torch.device('cpu'))
    absmax = dequantize_blockwise(state.absmax, state.state2) + state.offset
    codes = base[name].reshape(-1)
    values = state.code[torch.stack([codes >> 4, codes & 15], 1).reshape(-1).long()].reshape(-1, 64) * absmax[:, None]
    error = (values.reshape(state.shape) - wide[name]).norm() / wide[name].norm()
    assert error < 0.11, (name, error)
PYTHON
