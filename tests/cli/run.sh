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
[ "$(grep -c 'token limit' told)" = 2 ] || fail 'there are not two answers'
expect 0 "$ration" run --chat --template form --system Kind -p Hello -n 6 --greedy -q < <(tail -n 1 lines)
cmp -s out told || fail 'the first message as a prompt gives another conversation'
yes 'Tell me more' | head -40 > lines # more than the context holds: the oldest turns are left out
expect 0 "$ration" run --chat --template form -n 4 --greedy -q --ctx 64 < lines
[ "$(grep -c 'token limit' out)" = 40 ] || fail 'the conversation ended early'
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

# ---- real weights
[ -d "$data/llama/stories260K" ] || { echo 'real weights: skipped, no data'; exit 0; }
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
