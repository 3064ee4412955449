#!/usr/bin/env bash
# serve_embed.sh — embeddings over HTTP: the same numbers as `ration embed`, in every form; what a model is not for is refused.
# Parts that need Python packages (openai, ollama, langchain_openai, sentence_transformers) are left out where those are missing.
python=$(command -v "${RATION_PYTHON:-python3}") || { echo 'skipped: no Python'; exit 77; }
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

model=$root/tests/golden/embed/bert
printf 'the quick fox\nhello world\nlazy dogs jumping\n' > texts
expect 0 "$ration" embed "$model" -f texts -q
cp out plain
start_server "$model"
says log 'embeddings of 32 dimensions'
"$python" - "$url" << 'PYTHON' || fail 'numbers'
import base64, json, struct, sys, urllib.error, urllib.request
url = sys.argv[1]
texts = open('texts').read().split('\n')[:3]
want = [[float(x) for x in line.split()] for line in open('plain')]

def ask(path, code=200, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    try:
        answer = urllib.request.urlopen(request, timeout=600)
    except urllib.error.HTTPError as error:
        answer = error
    said = json.loads(answer.read())
    assert answer.status == code, (path, body, answer.status, said)
    return said

def near(a, b):
    assert len(a) == len(b) and all(abs(x - y) <= 1e-6 for x, y in zip(a, b)), (a, b)

whole = ask('/v1/embeddings', input=texts)
assert whole['object'] == 'list' and whole['model'] == 'bert' and [d['index'] for d in whole['data']] == [0, 1, 2], whole
numbers = [d['embedding'] for d in whole['data']]
for a, b in zip(numbers, want): near(a, b)
assert whole['usage']['prompt_tokens'] == whole['usage']['total_tokens'] > 6, whole['usage']
coded = ask('/v1/embeddings', input=texts, encoding_format='base64')['data']
assert [list(struct.unpack('<32f', base64.b64decode(d['embedding']))) for d in coded] == [[struct.unpack('<f', struct.pack('<f', x))[0] for x in n] for n in numbers]
# Alone, in the company of many, as tokens.
assert ask('/v1/embeddings', input=texts[1])['data'][0]['embedding'] == numbers[1]
many = ask('/v1/embeddings', input=texts * 200)['data']
assert all(many[i]['embedding'] == numbers[i % 3] and many[i]['index'] == i for i in range(600))
ids = ask('/tokenize', text=texts[0], add_special=True)['tokens']
assert ask('/v1/embeddings', input=ids)['data'][0]['embedding'] == numbers[0]
assert ask('/v1/embeddings', input=[ids, ids])['data'][1]['embedding'] == numbers[0]
# The first dimensions, as long as the whole.
cut = ask('/v1/embeddings', input=texts[0], dimensions=5)['data'][0]['embedding']
length = sum(x * x for x in numbers[0][:5]) ** 0.5
near(cut, [x / length for x in numbers[0][:5]])
# Ollama's.
listed = ask('/api/embed', model='bert:latest', input=texts)
assert listed['embeddings'] == numbers and listed['prompt_eval_count'] == whole['usage']['prompt_tokens'], listed
assert ask('/api/embeddings', model='bert', prompt=texts[2])['embedding'] == numbers[2]
assert 'embedding' in ask('/api/show', model='bert')['capabilities']
# Too long: refused, or its end is left out, as `ration embed` does.
long = 'hello ' * 5000
assert ask('/v1/embeddings', 400, input=long)['error']['code'] == 'context_length_exceeded'
assert ask('/v1/embeddings', 400, input=long, truncate=False)['error']['param'] == 'input'
assert ask('/v1/embeddings', input=long, truncate=True)['data'][0]['embedding'] == ask('/api/embed', input=[long])['embeddings'][0]
assert ask('/api/embed', 400, input=[long], truncate=False)['error']['code'] == 'context_length_exceeded'
for bad in [dict(), dict(input=[]), dict(input=['a', 1]), dict(input=[[]]), dict(input=[99999]), dict(input='a', dimensions=0), dict(input='a', dimensions=33),
            dict(input='a', encoding_format='int8'), dict(input=['a'] * 2049), dict(input={'text': 'a'})]:
    assert ask('/v1/embeddings', 400, **bad)['error']['type'] == 'invalid_request_error', bad
for path, body in [('/v1/completions', dict(prompt='a')), ('/v1/chat/completions', dict(messages=[dict(role='user', content='a')])), ('/generate', dict(prompt='a'))]:
    assert ask(path, 400, **body)['error']['code'] == 'no_text', path
PYTHON
"$python" -c 'import openai' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "OpenAI's client"; } || leave_out 'no openai'
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + '/v1', api_key='none', timeout=600)
want = [[float(x) for x in line.split()] for line in open('plain')]
texts = open('texts').read().split('\n')[:3]
for answer in client.embeddings.create(model='any', input=texts), client.embeddings.create(model='any', input=texts, encoding_format='float'):
    assert all(abs(a - b) <= 1e-6 for d, w in zip(answer.data, want) for a, b in zip(d.embedding, w)) and answer.usage.total_tokens > 0
PYTHON
"$python" -c 'import ollama' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "Ollama's client"; } || leave_out 'no ollama'
import sys, ollama
client = ollama.Client(host=sys.argv[1])
want = [[float(x) for x in line.split()] for line in open('plain')]
texts = open('texts').read().split('\n')[:3]
assert all(abs(a - b) <= 1e-6 for e, w in zip(client.embed(model='bert', input=texts).embeddings, want) for a, b in zip(e, w))
assert all(abs(a - b) <= 1e-6 for a, b in zip(client.embeddings(model='bert', prompt=texts[0]).embedding, want[0]))
PYTHON
"$python" -c 'import langchain_openai' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "LangChain's client"; } || leave_out 'no langchain_openai'
import sys
from langchain_openai import OpenAIEmbeddings
model = OpenAIEmbeddings(base_url=sys.argv[1] + '/v1', api_key='none', model='bert', check_embedding_ctx_length=False)
want = [[float(x) for x in line.split()] for line in open('plain')]
texts = open('texts').read().split('\n')[:3]
assert all(abs(a - b) <= 1e-6 for e, w in zip(model.embed_documents(texts), want) for a, b in zip(e, w))
PYTHON
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# A model for text refuses; with --embeddings it makes them, and no text.
start_server
ask 400 /v1/embeddings '{"input": "a"}'
says out no_embeddings --embeddings
stop_server
expect 0 "$ration" embed "$root/models/default" 'Once upon a time' -q
cp out plain
start_server --embeddings
ask 200 /v1/embeddings '{"input": "Once upon a time"}'
"$python" - << 'PYTHON' || fail 'a decoder gives others'
import json
want = [float(x) for x in open('plain').read().split()]
got = json.load(open('out'))['data'][0]['embedding']
assert len(got) == len(want) and all(abs(a - b) <= 1e-6 for a, b in zip(got, want)), (got, want)
PYTHON
ask 400 /generate '{"prompt": "a"}'
says out no_text
ask 200 /health
says out '"embeddings":true'
stop_server
equals 'exit code after SIGTERM' 0 "$code"
