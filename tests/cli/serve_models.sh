#!/usr/bin/env bash
# serve_models.sh — several models in one server: all loaded where they fit, one at a time where not, never over the budget,
# and the same text as alone; a model that does not work does not keep the others from working.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

cp -r "$root/models/default" one && cp -r one two && cp -r "$root/tests/golden/embed/bert" bert

cat > talk.py << 'PYTHON'
import json, re, sys, threading, urllib.error, urllib.request
url, wants_switches = sys.argv[1], sys.argv[2] == 'switches'

def ask(path, code=200, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None, {'Content-Type': 'application/json'})
    try:
        answer = urllib.request.urlopen(request, timeout=600)
    except urllib.error.HTTPError as error:
        answer = error
    said = answer.read()
    assert answer.status == code, (path, body, answer.status, said)
    return json.loads(said) if path != '/metrics' else said.decode()

def complete(model):
    answer = ask('/v1/completions', model=model, prompt='Once upon a time', max_tokens=12, temperature=0)
    assert answer['model'] == model, answer
    return answer['choices'][0]['text']

want = complete('one')
for _ in range(3):
    assert complete('two') == want == complete('one')
    data = ask('/v1/embeddings', model='bert', input='hello world')
    assert data['model'] == 'bert' and len(data['data'][0]['embedding']) == 32
# Names that nobody has: whoever makes what is asked for.
assert ask('/v1/embeddings', model='text-embedding-3-small', input='hello')['model'] == 'bert'
assert ask('/v1/completions', model='gpt-4o', prompt='a', max_tokens=1)['model'] == 'one'
assert ask('/v1/embeddings', 400, model='two', input='hello')['error']['code'] == 'no_embeddings'
assert ask('/v1/completions', 400, model='bert', prompt='a')['error']['code'] == 'no_text'
# At once, in turn.
texts = {}
def one(i): texts[i] = complete(['one', 'two'][i % 2])
threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
for t in threads: t.start()
for t in threads: t.join()
assert len(texts) == 16 and set(texts.values()) == {want}, texts
assert [m['id'] for m in ask('/v1/models')['data']] == ['one', 'two', 'bert']
assert ask('/v1/models/two')['id'] == 'two' and ask('/v1/models/three', 404)['error']['code'] == 'model_not_found'
assert ask('/api/show', model='bert')['capabilities'] == ['embedding'] and len(ask('/api/tags')['models']) == 3
health = ask('/health')
models = {m['name']: m for m in health['models']}
loaded = [m for m in health['models'] if m['state'] == 'loaded']
assert sorted(models) == ['bert', 'one', 'two'] and len(ask('/api/ps')['models']) == len(loaded)
assert (max(m['loads'] for m in models.values()) > 1) == wants_switches and (len(loaded) < 3) == wants_switches, models
metrics = ask('/metrics')
planned = ['weights', 'kv', 'activations', 'workspace', 'staging', 'state'] # a budget of "+..." is for these
peaks = [int(value) for purpose, value in re.findall(r'ration_memory_peak_bytes\{device="host",purpose="(\w+)"\} (\d+)', metrics) if purpose in planned]
assert len(peaks) >= 4 and sum(peaks) <= health['memory']['budget_bytes'], (peaks, health['memory'])
assert f'ration_model_loads_total{{model="two"}} {models["two"]["loads"]}' in metrics, metrics
PYTHON

# Room for all: nobody ever leaves.
start_server one two bert --budget +200MiB
python3 talk.py "$url" all || fail 'together'
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# For one only: what a plan alone needs, and what the server holds besides.
expect 0 "$ration" plan one --for serve --budget +200MiB --json
planned=$(sed -n 's/.*"planned_bytes": *\([0-9]*\).*/\1/p' out | head -1)
start_server one two bert --budget "+$((planned * 11 / 10))" --parallel 2
python3 talk.py "$url" switches || fail 'in turn'
says log 'unloading' 'loading two'
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# One that is damaged; two of one name; too many.
cp -r one broken && truncate -s 100000 broken/model.safetensors
expect 3 "$ration" serve one broken --port 0
says err 'model.safetensors'
mkdir other && cp -r one other/one
expect 2 "$ration" serve one other/one --port 0
says err "two models are called 'one'"
