#!/usr/bin/env bash
# serve_rerank.sh — a reranker by `ration embed --rerank` and over HTTP: the same scores, best first; what it is not for is refused.
# The scores themselves are held against transformers' by test_golden rerank.
python=$(command -v "${RATION_PYTHON:-python3}") || { echo 'skipped: no Python'; exit 77; }
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

model=$root/tests/golden/rerank/bert
texts=('the lazy dog jumped over the fox.' 'hello world!' 'a' 'cat, kitten, car? the quick fox')
expect 0 "$ration" embed "$model" --rerank 'the quick brown fox' "${texts[@]}" -q
equals 'the best comes first' 'a' "$(head -1 out | sed 's/^ *[0-9.]*  //')"
expect 0 "$ration" embed "$model" --rerank 'the quick brown fox' "${texts[@]}" --json -q
cp out ranked.json
expect 0 "$ration" embed "$model" --rerank 'the quick brown fox' "${texts[@]}" --raw-scores -q
says out '-1.18687  a'
expect 2 "$ration" embed "$model" --rerank x --similarity a b
says err 'neither'
expect 3 "$ration" embed "$root/tests/golden/embed/bert" --rerank x a
says err 'no reranker'
"$python" - "$model" << 'PYTHON' || fail 'config'
import json, pathlib, shutil, sys
for name, change in (('labels', {'id2label': {'0': 'a', '1': 'b', '2': 'c'}}), ('unsaid', {'id2label': None})):
    shutil.copytree(sys.argv[1], name)
    path = pathlib.Path(name) / 'config.json'
    config = json.loads(path.read_text()) | change
    path.chmod(0o644)
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
PYTHON
for other in labels unsaid; do # classifiers that are no rerankers
    expect 3 "$ration" embed "$other" --rerank x a
    says err 'BertForSequenceClassification' 'one label'
done
# As GGUF and back, with pooler and classifier: the same order, and as scores what f16 leaves of them.
expect 0 "$ration" convert "$model" there.gguf
expect 0 "$ration" convert there.gguf back
for other in there.gguf back; do
    expect 0 "$ration" embed "$other" --rerank 'the quick brown fox' "${texts[@]}" --raw-scores -q
    says out '-1.18687  a'
done

start_server "$model"
says log '/v1/rerank'
"$python" - "$url" "${texts[@]}" << 'PYTHON' || fail 'scores'
import concurrent.futures, json, math, sys, urllib.error, urllib.request
url, *texts = sys.argv[1:]
want = json.load(open('ranked.json'))['results']

def ask(path, code=200, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    try:
        answer = urllib.request.urlopen(request, timeout=600)
    except urllib.error.HTTPError as error:
        answer = error
    said = json.loads(answer.read())
    assert answer.status == code, (path, body, answer.status, said)
    return said

query = 'the quick brown fox'
for path in '/v1/rerank', '/rerank', '/v1/reranking', '/reranking':
    said = ask(path, model='bert', query=query, documents=texts)
    assert [(r['index'], r['relevance_score']) for r in said['results']] == [(w['index'], w['relevance_score']) for w in want], said
assert said['object'] == 'list' and said['model'] == 'bert' and said['usage']['prompt_tokens'] == said['usage']['total_tokens'] > 20, said
# Documents as objects, the best two, with their texts.
two = ask('/v1/rerank', query=query, documents=[{'text': t, 'id': 7} for t in texts], top_n=2, return_documents=True)['results']
assert [r['document']['text'] for r in two] == [texts[w['index']] for w in want[:2]], two
assert len(ask('/v1/rerank', query=query, documents=texts, top_n=100)['results']) == 4
raw = ask('/v1/rerank', query=query, documents=texts, raw_scores=True)['results']
assert all(abs(1 / (1 + math.exp(-r['relevance_score'])) - w['relevance_score']) < 1e-9 for r, w in zip(raw, want))
# In the company of many, and from many at once.
many = ask('/v1/rerank', query=query, documents=texts * 300)['results']
assert len(many) == 1200 and many[0]['index'] == 2 and many[299]['index'] == 2 + 4 * 299 and many[1199]['relevance_score'] == want[3]['relevance_score']
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    answers = list(pool.map(lambda i: ask('/v1/rerank', query=query, documents=texts[i % 4:] + texts[:i % 4]), range(64)))
assert all([r['relevance_score'] for r in a['results']] == [w['relevance_score'] for w in want] for a in answers)
# Long documents lose their ends, with their text told whole; a query that leaves no room is refused.
long = 'fox ' * 3000
assert ask('/v1/rerank', query=query, documents=[long, 'a'], return_documents=True)['results'][1]['document']['text'] in (long, 'a')
assert ask('/v1/rerank', 400, query=query, documents=[long], truncate=False)['error']['code'] == 'context_length_exceeded'
assert ask('/v1/rerank', 400, query=long, documents=['a'])['error']['param'] == 'query'
assert ask('/v1/rerank', 400, query='fox ' * 200000, documents=['a'])['error']['param'] == 'query'
assert len(ask('/v1/rerank', query='', documents=['', 'a'])['results']) == 2
# What is wrong.
assert ask('/v1/rerank', 400, documents=texts)['error']['param'] == 'query'
assert ask('/v1/rerank', 400, query=query)['error']['param'] == 'documents'
assert ask('/v1/rerank', 400, query=query, documents=[])['error']['param'] == 'documents'
assert ask('/v1/rerank', 400, query=query, documents=[{'title': 'x'}])['error']['param'] == 'documents.text'
assert ask('/v1/rerank', 400, query=query, documents=[3])['error']['param'] == 'documents'
assert ask('/v1/rerank', 400, query=query, documents=['a'], top_n=0)['error']['param'] == 'top_n'
assert ask('/v1/rerank', 400, query=query, documents=['a'] * 2049)['error']['param'] == 'documents'
assert ask('/v1/embeddings', 400, input='a')['error']['code'] == 'no_embeddings'
assert 'rerank' in ask('/v1/completions', 400, prompt='a')['error']['message']
health = json.loads(urllib.request.urlopen(url + '/health').read())
assert health['rerank'] and not health['embeddings'], health
PYTHON
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# Beside an embedder in one server each request finds its model, whatever it calls it.
start_server "$root/tests/golden/embed/bert" "$root/tests/golden/rerank/xlm_roberta"
curl -s "$url/v1/rerank" -d '{"query": "fox", "documents": ["a", "dog"], "model": "anything"}' > out
says out relevance_score
curl -s "$url/v1/embeddings" -d '{"input": "fox", "model": "anything"}' > out
says out '"embedding"'
stop_server
equals 'exit code after SIGTERM' 0 "$code"

start_server "$root/tests/golden/embed/bert"
curl -s "$url/v1/rerank" -d '{"query": "fox", "documents": ["a"]}' > out
says out no_reranker
stop_server
