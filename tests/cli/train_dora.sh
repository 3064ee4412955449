#!/usr/bin/env bash
# train_dora.sh — ration train --dora: planned as held, stopped and resumed to the same bytes, over quantised weights, too;
# the model with it in its matrices says what the real peft says with the adapter.
python=${RATION_PYTHON:-python3}
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do
    echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"
done > data.jsonl
default=$root/models/default
flags=(--data data.jsonl --length 32 --batch-size 2 --rate 0.05 --steps 4 --rank 4 --validation 0.2 --evaluate-every 2
    --schedule constant --target v_proj --target down_proj --dora -q --threads 2)

expect 0 "$ration" train "$default" "${flags[@]}" --out through --merge -j
as_planned="
for p in j['phases']:
    if 'fact' not in p: continue
    assert p['plan'] == p['fact'], p
    assert p['fact_total_bytes'] <= p['planned_bytes'] + p['beside_bytes'], p"
check_json "$as_planned"
[ ! -e through/adapter.gguf ] || fail 'a GGUF adapter of DoRA'
grep -q '"use_dora": true' through/adapter_config.json || fail 'use_dora is not written'
expect 0 "$ration" train "$default" "${flags[@]}" --out parts --steps 2
expect 0 "$ration" train "$default" "${flags[@]}" --out parts --resume
for file in adapter_model.safetensors checkpoint-4.safetensors; do
    cmp "through/$file" "parts/$file" || fail "$file differs"
done
expect 2 "$ration" train "$default" "${flags[@]/--dora/--no-dora}" --out parts --resume --steps 5
says err 'another training' 'dora'

# What generates wants it merged; every way to merge is the same.
expect 3 "$ration" run "$default" --lora through -p Zog -n 4
says err 'DoRA' 'ration convert MODEL OUT --lora ADAPTER'
expect 0 "$ration" convert "$default" merged --lora through
cmp merged/model.safetensors through/merged/model.safetensors || fail 'train and convert merge differently'
expect 0 "$ration" run merged -p Zog --greedy -n 8 -q
cp out with
expect 0 "$ration" run "$default" -p Zog --greedy -n 8 -q
cmp -s out with && fail 'the adapter changes nothing'

# Over weights of four bits.
expect 0 "$ration" train "$default" "${flags[@]}" --out four --method qlora -j
check_json "$as_planned"

expect 2 "$ration" train "$default" "${flags[@]}" --out full --method full
says err '--dora is for adapters'

if ! "$python" -c 'import peft, transformers, torch' 2> /dev/null; then
    leave_out 'peft is not installed'
    exit 0
fi
expect 0 "$python" - "$default" through merged << 'PYTHON'
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
read = lambda path: AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
tokens = torch.tensor([[1, 20, 300, 45, 500, 7, 80]])
with torch.no_grad():
    base = read(sys.argv[1])
    plain = base(tokens).logits
    adapted = PeftModel.from_pretrained(base, sys.argv[2])(tokens).logits
    merged = read(sys.argv[3])(tokens).logits
apart = ((adapted - merged).norm() / adapted.norm()).item()
moved = ((adapted - plain).norm() / adapted.norm()).item()
assert moved > 0.01 and apart < 1e-3, (apart, moved)
PYTHON
