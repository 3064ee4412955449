#!/usr/bin/env bash
# ration run: the text at every budget, its table, its JSON, and everything that can be wrong with a request.
default=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- the model that is part of the program
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy --quiet
cp out story
says story 'Once upon a time'
[ ! -s err ] || fail 'quiet is not quiet'
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy --budget 75%
cmp -s out story || fail 'the text is another one'
says err 'plan' 'fact' 'weights' 'kv' 'budget, peak resident' 'text: 24 tokens'
expect 0 "$ration" run -n 4 --greedy -q # from the beginning-of-text token
expect 0 "$ration" run -p Once -n 12 --seed 7 -q
cp out first
expect 0 "$ration" run -p Once -n 12 --seed 7 -q --speculate always --chunk 1
cmp -s out first || fail 'the same seed gave another text'
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --stop ','
equals 'text before a stop' 'Once upon a time' "$(cat out)"
printf 'Once upon a time' > prompt
expect 0 "$ration" run -f prompt -n 24 --greedy -q
cmp -s out story || fail 'a prompt from a file says something else'

# ---- JSON
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy --json --logprobs 2 --audit --chunk 4
python3 - "$(cat story)" out << 'PYTHON' || fail 'the JSON is wrong'
import json, sys
data = json.load(open(sys.argv[2]))
assert data["prompt"] + data["text"] == sys.argv[1], data["text"]
assert len(data["tokens"]) == 24 and all(len(t["top"]) == 2 for t in data["tokens"])
assert data["tokens"][0]["logprob"] == data["tokens"][0]["top"][0]["logprob"] <= 0
assert data["plan"]["live_peak_bytes"] == data["facts"]["live_peak_bytes"]
assert data["ended_by"] == "token limit" and data["facts"]["new_tokens"] >= 24
PYTHON

# ---- a chat
printf '%s' '{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}assistant:' > form
printf 'Hello\n\nOnce upon a time\n' > lines
expect 0 "$ration" run --chat --template form --system Kind -n 6 --greedy -q < lines
cp out told
[ "$(grep -c 'token limit' err)" = 2 ] || fail 'there are not two answers'
expect 0 "$ration" run --chat --template form --system Kind -p Hello -n 6 --greedy -q < <(tail -n 1 lines)
cmp -s out told || fail 'the first message as a prompt gives another conversation'
yes 'Tell me more' | head -40 > lines # more than the context holds: the oldest turns are left out
expect 0 "$ration" run --chat --template form -n 4 --greedy -q --ctx 64 < lines
[ "$(grep -c 'token limit' err)" = 40 ] || fail 'the conversation ended early'
expect 2 "$ration" run --chat --template form --ctx 16 -q < <(yes word | head -60 | tr '\n' ' ')
says err 'the message has'
# Text that spells a special token stays text, also where the template makes it: ten would fit, their letters do not.
printf '%s' "{% for m in messages %}{{ m.content | replace('-', '') }}{% endfor %}" > plain
for text in '<|endoftext|>' '<|end-oftext|>'; do
    expect 2 "$ration" run --chat --template plain --ctx 32 -n 1 -q < <(yes "$text" | head -10 | tr -d '\n')
    says err 'tokens, the context 32'
done
printf '%s' '{% include "x" %}' > form
expect 3 "$ration" run --chat --template form < lines
says err 'include'

# ---- rounding, only where it is asked for
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --kv int8
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --kv f32

# ---- what is wrong with a request
expect 2 "$ration" run -p "$(printf '\xff\xfe')"
says err 'not UTF-8 at byte 0'
expect 2 "$ration" run -p "$(yes word | head -400 | tr '\n' ' ')" --ctx 64
says err 'tokens, the context 64' '--truncate'
expect 0 "$ration" run -p "$(yes word | head -400 | tr '\n' ' ')" --ctx 64 --truncate -n 1 -q
expect 2 "$ration" run -p x --temperature -1
says err 'temperature'
expect 2 "$ration" run -p x --temperature warm
expect 2 "$ration" run -p x --logit-bias 5
expect 2 "$ration" run -p x --logit-bias 99999999=1
expect 2 "$ration" run -p x -f prompt
expect 2 "$ration" run --system hello
expect 3 "$ration" run -p x --lora missing
expect 3 "$ration" run missing-model -p x
expect 3 "$ration" run --chat < /dev/null
says err 'chat template'
expect 4 "$ration" run -p x --budget +100KiB
says err 'smallest'
mkdir empty
expect 3 "$ration" run empty -p x
cp "$default/model.safetensors" empty
printf '{"architectures": ["MambaForCausalLM"], "model_type": "mamba"}' > empty/config.json
expect 3 "$ration" run empty -p x
says err 'mamba'

# ---- devices: the ladder of a server
missing=/no/such/driver
RATION_CUDA_DRIVER=$missing expect 5 "$ration" run -p Once -n 2 --greedy -q --device cuda
says err 'no CUDA driver'
for first in cuda 'sim:memory=1MiB' 'sim:fail_launch=1'; do
    RATION_CUDA_DRIVER=$missing expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --device "$first,cpu"
    cmp -s out story || fail "after $first the CPU says something else"
    says err 'warning failed at stage ' 'cpu is in use, as the last resort'
    RATION_CUDA_DRIVER=$missing expect 0 "$ration" run -p Once -n 2 --greedy --json --device "$first,cpu" --log-level off
    check_json "
ladder = j['ladder']
assert ladder['target'] == j['plan']['device'] == 'cpu' and ladder['target_index'] == 1 and len(ladder['attempts']) == 2, ladder
assert ladder['attempts'][0]['state'] == 'failed' and ladder['attempts'][0]['class'] and ladder['attempts'][0]['stage'], ladder
assert ladder['attempts'][1]['state'] == 'in_use', ladder"
done
RATION_CUDA_DRIVER=$missing expect 0 "$ration" run -p Once -n 2 --greedy -q --device auto
[ ! -s err ] || fail 'nobody asked for a GPU, but its absence is told'
expect 4 "$ration" run -p Once -n 2 --greedy -q --device 'sim:memory=1MiB,cpu' --no-fallback
expect 5 "$ration" run -p Once -n 2 --greedy -q --device 'sim:fail_launch=1'
says err 'this launch is to fail' 'stage: inputs_on_device'
# A budget may name each of them; the CPU's memory is the host's.
expect 0 "$ration" run -p Once -n 2 --greedy -q --device 'sim:fail_launch=1,cpu' --budget sim=1GiB,host=2GiB
expect 2 "$ration" run -p Once -n 2 --greedy -q --device cpu --budget cpu=1GiB
expect 2 "$ration" run -p Once -n 2 --greedy -q --device sim,cpu --budget cuda:0=1GiB

# ---- stages, measured when they end
expect 0 "$ration" run -p Once -n 2 --greedy -q --log-level info --device cpu
equals 'stages' 'start config_loaded tokenizer_loaded device_ready plan_made model_loaded_cpu final_cleanup ' \
    "$(sed -n 's/.* stage \([a-z_]*\).*/\1/p' err | tr '\n' ' ')"
says err 'stage device_ready on cpu: '
expect 0 "$ration" run -p Once -n 2 --greedy -q --log-level info --device sim
equals 'stages' \
    'start config_loaded tokenizer_loaded device_ready plan_made model_on_device inputs_on_device final_cleanup ' \
    "$(sed -n 's/.* stage \([a-z_]*\).*/\1/p' err | tr '\n' ' ')"
grep 'stage plan_made' err | grep -q 'sim 0 B' || fail 'the device holds something before it is loaded'
grep 'stage model_on_device' err | grep -q 'sim 0 B' && fail 'the loaded device holds nothing'

# ---- real weights
[ -d "$data/llama/stories260K" ] || { leave_out 'no test data: llama/stories260K'; exit 0; }
stories=$data/llama/stories260K
expect 0 "$ration" run "$stories/hf" -p 'Once upon a time' --greedy -n 200 -q
cp out real
for budget in +8MiB +5MiB; do
    expect 0 "$ration" run "$stories/hf" -p 'Once upon a time' --greedy -n 200 -q --budget $budget
    cmp -s out real || fail "another text within $budget"
done
expect 0 "$ration" run "$stories/stories260K.ctx512.gguf" -p 'Once upon a time' --greedy -n 200 -q
cmp -s out real || fail 'the GGUF file says something else'
expect 0 "$ration" run "$stories/stories260K.q8_0.gguf" -p 'Once upon a time' --greedy -n 20 -q --activations f32
expect 0 "$ration" plan "$stories/hf" --budget 75%
head -c 500000 "$stories/hf/model.safetensors" > empty/model.safetensors
cp "$stories/hf/config.json" "$stories/hf/tokenizer.model" empty
expect 3 "$ration" run empty -p x
says err 'model.safetensors'
echo 'real weights: done'
