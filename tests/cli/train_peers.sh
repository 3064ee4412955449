#!/usr/bin/env bash
# train_peers.sh — an adapter that ration train writes (rsLoRA, ranks and alphas by module) in the programs that people use:
# llama.cpp ($RATION_LLAMA_CLI: its llama-completion) and the real peft ($RATION_PYTHON) say what ration run says with it.
llama=${RATION_LLAMA_CLI:-} python=${RATION_PYTHON:-python3} # common.bash forgets them
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do
    echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"
done > data.jsonl
default=$root/models/default
expect 0 "$ration" train "$default" --data data.jsonl --length 32 --batch-size 4 --rate 0.02 --steps 20 --rank 4 --rslora \
    --rank-pattern 'layers.0.*=2' --alpha-pattern down_proj=12 --schedule constant --out lora -q --threads 2 \
    --target q_proj --target k_proj --target v_proj --target down_proj
expect 0 "$ration" convert "$default" base.gguf
say() {
    expect 0 "$ration" run "$@" -p 'Zog the' --greedy -n 20 -q --threads 2
    tr -d '\n' < out
}
plain=$(say "$default")
adapted=$(say "$default" --lora lora)
[ "$plain" != "$adapted" ] || fail 'the adapter changes nothing'
equals 'the GGUF adapter over the GGUF file' "$adapted" "$(say base.gguf --lora lora/adapter.gguf)"
equals 'the PEFT folder over the GGUF file' "$adapted" "$(say base.gguf --lora lora)"

if [ -n "$llama" ]; then
    library=$(dirname "$(realpath "$llama")")
    expect 0 env LD_LIBRARY_PATH="$library" timeout 120 "$llama" -m base.gguf --lora lora/adapter.gguf -p 'Zog the' -n 20 \
        --temp 0 --no-warmup -no-cnv -t 2
    equals 'llama.cpp' "$adapted" "$(tr -d '\n' < out)"
    expect 0 env LD_LIBRARY_PATH="$library" timeout 120 "$llama" -m base.gguf -p 'Zog the' -n 20 --temp 0 --no-warmup \
        -no-cnv -t 2
    equals 'llama.cpp without it' "$plain" "$(tr -d '\n' < out)"
else
    leave_out 'no llama.cpp: RATION_LLAMA_CLI names none'
fi

if "$python" -c 'import peft, transformers, torch' 2> /dev/null; then
    # Its greedy text, and its logits beside those of the merged model, whose matrices are rounded to f16.
    expect 0 "$ration" convert "$default" merged --lora lora
    expect 0 "$python" - "$default" lora merged << 'PYTHON'
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
torch.set_num_threads(1)
read = lambda path: AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1] + "/tokenizer.json")
prompt = tokenizer("Zog the", return_tensors="pt").input_ids
with torch.no_grad():
    model = PeftModel.from_pretrained(read(sys.argv[1]), sys.argv[2]).eval()
    ids = prompt
    for _ in range(20):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    print(tokenizer.decode(ids[0], skip_special_tokens=True))
    merged = read(sys.argv[3])(ids).logits
    apart = ((model(ids).logits - merged).norm() / merged.norm()).item()
assert apart < 1e-3, apart
PYTHON
    equals 'peft' "$adapted" "$(tr -d '\n' < out)"
else
    leave_out 'peft is not installed'
fi
