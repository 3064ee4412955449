#!/usr/bin/env bash
# serve_lora.sh — ration serve with adapters that requests choose by the model's name, several at once.
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for name in Zog Mim; do
    for i in 1 2 3 4; do echo "{\"text\": \"$name the dragon ate cake number $i. $name laughed.\"}"; done > data.jsonl
    expect 0 "$ration" train --data data.jsonl --length 32 --batch-size 2 --rate 0.05 --steps 3 --rank 4 --out $name \
        --schedule constant --target v_proj --target down_proj -q
    expect 0 "$ration" run -p 'Once upon' --greedy --tokens 12 -q --lora $name
    cp out said_$name
done
expect 0 "$ration" run -p 'Once upon' --greedy --tokens 12 -q
cp out said_default
cmp -s said_Zog said_Mim && fail 'both adapters say the same'

start_server --strict-model --lora zog=Zog --lora mim=Mim
ask 200 /v1/models
python3 - << 'PYTHON' || fail 'the list of models'
import json
models = json.load(open('out'))['data']
assert [m['id'] for m in models] == ['default', 'zog', 'mim'], models
assert [m.get('parent') for m in models] == [None, 'default', 'default'], models
PYTHON
ask 200 /v1/models/mim
ask 404 /v1/models/mom

# All at once, each in its own words, under its own name; the second time from the cache of beginnings.
for round in 1 2; do
    python3 - "$url" << 'PYTHON' || fail "round $round"
import json, sys, threading, urllib.request
def ask(model):
    body = {'prompt': 'Once upon', 'max_tokens': 12, 'temperature': 0, 'model': model}
    request = urllib.request.Request(sys.argv[1] + '/v1/completions', json.dumps(body).encode(),
                                     {'Content-Type': 'application/json'})
    answer = json.load(urllib.request.urlopen(request, timeout=600))
    if answer['model'] == model: got[model] = 'Once upon' + answer['choices'][0]['text']
got = {}
threads = [threading.Thread(target=ask, args=(m,)) for m in ('default', 'zog', 'mim')]
[t.start() for t in threads]; [t.join() for t in threads]
for model, file in (('default', 'default'), ('zog', 'Zog'), ('mim', 'Mim')):
    assert got.get(model) == open('said_' + file).read().rstrip('\n'), (model, got)
PYTHON
done
ask 404 /v1/completions '{"prompt": "Once", "model": "zag"}'
says out 'zag'
stop_server
equals 'exit' 0 "$code"

expect 2 "$ration" serve --port 0 --lora a=Zog --lora a=Mim
says err "called 'a'"
expect 3 "$ration" serve --port 0 --lora a=nowhere
