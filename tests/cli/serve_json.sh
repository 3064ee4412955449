#!/usr/bin/env bash
# serve_json.sh — answers that must be JSON: whatever the model would rather say, each is a value of its schema, or was cut
# off by max_tokens. The texts are checked with jsonschema where Python has it. $RATION_ANSWERS: how many of each.
python=$(command -v "${RATION_PYTHON:-python3}") || python=python3
answers=${RATION_ANSWERS:-6}
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

start_server --max-tokens 400 --parallel 4
"$python" - "$url" "$answers" << 'PYTHON' || fail 'answers by a schema'
import json, sys, threading, urllib.error, urllib.request
try:
    import jsonschema
except ImportError:
    jsonschema = None
url, count = sys.argv[1], int(sys.argv[2])
address = {'type': 'object', 'properties': {'street': {'type': 'string', 'minLength': 3, 'maxLength': 30}, 'number': {'type': 'integer', 'minimum': 1, 'maximum': 250},
           'flat': {'type': ['string', 'null'], 'maxLength': 4}}, 'required': ['street', 'number'], 'additionalProperties': False}
schemas = [
    {'type': 'object', 'properties': {'who': {'type': 'string', 'maxLength': 20}, 'home': address, 'moods': {'type': 'array', 'items': {'enum': ['glad', 'sad', 'mad']},
     'minItems': 1, 'maxItems': 4}}, 'required': ['who', 'home', 'moods'], 'additionalProperties': False},
    {'type': 'array', 'items': {'type': 'number', 'minimum': -1.5, 'exclusiveMaximum': 4}, 'minItems': 2, 'maxItems': 5},
    {'anyOf': [{'type': 'object', 'properties': {'kind': {'const': 'a'}, 'value': {'type': 'boolean'}}, 'required': ['kind', 'value'], 'additionalProperties': False},
               {'type': 'object', 'properties': {'kind': {'const': 'b'}, 'value': {'type': 'integer'}}, 'required': ['kind', 'value'], 'additionalProperties': False}]},
    {'$ref': '#/$defs/tree', '$defs': {'tree': {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 6}, 'left': {'anyOf': [{'type': 'null'}, {'$ref': '#/$defs/tree'}]}},
     'required': ['name', 'left'], 'additionalProperties': False}}},
    None]
def ask(body):
    request = urllib.request.Request(url + '/v1/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=600) as answer: return json.load(answer)
whole, cut, wrong = [0] * len(schemas), 0, []
def run(worker):
    global cut
    for i in range(worker, count, 4):
        for k, schema in enumerate(schemas):
            form = {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': schema}} if schema else {'type': 'json_object'}
            choice = ask({'prompt': 'Once upon a time', 'max_tokens': 400, 'temperature': 1.5, 'seed': i, 'response_format': form})['choices'][0]
            if choice['finish_reason'] == 'length': cut += 1; continue
            try:
                value = json.loads(choice['text'])
                if schema and jsonschema: jsonschema.validate(value, schema)
                if not schema: assert isinstance(value, dict)
                whole[k] += 1
            except Exception as error: wrong.append((k, choice['text'], error))
threads = [threading.Thread(target=run, args=(w,)) for w in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(f'{sum(whole)} whole {whole}, {cut} cut off, {len(wrong)} wrong', file=sys.stderr)
assert not wrong, wrong[:3]
assert all(whole[:4]), 'no whole answer of some schema'
# The same text at the same seed, streamed or not, alone or beside others.
body = {'prompt': 'Once', 'max_tokens': 200, 'temperature': 1, 'seed': 5, 'response_format': {'type': 'json_schema', 'json_schema': {'schema': schemas[0]}}}
alone = ask(body)['choices'][0]['text']
request = urllib.request.Request(url + '/v1/completions', json.dumps({**body, 'stream': True}).encode(), {'Content-Type': 'application/json'})
streamed = ''
for line in urllib.request.urlopen(request, timeout=600):
    if line.startswith(b'data: {'): streamed += json.loads(line[6:])['choices'][0]['text']
assert streamed == alone, (streamed, alone)
several = ask({**body, 'n': 3})['choices']
assert several[0]['text'] == alone and len({c['text'] for c in several}) > 1, several
PYTHON
form() { echo "{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": $1}}}"; }
ask 400 /v1/completions "$(form '{"enum": []}')"
says out 'no JSON text satisfies the schema' invalid_schema '"param":"response_format"'
ask 400 /v1/completions "$(form '{"type": "string", "pattern": "a"}')"
says out 'pattern' 'is not supported; leave it out' unsupported_schema
ask 400 /v1/completions "$(form '{"type": 3}')"
deep=$(python3 -c 'print("{\"items\":" * 70 + "{}" + "}" * 70)')
ask 400 /v1/completions "$(form "$deep")"
for none in '{"type": "integer", "minimum": 5, "maximum": 3}' '{"type": "string", "minLength": 5, "maxLength": 2}' '{"type": "array", "minItems": 3, "maxItems": 1}' false; do
    ask 400 /v1/completions "$(form "$none")"
    says out 'no JSON text satisfies the schema' invalid_schema
done
# A megabyte of nothing but depth.
python3 -c 'print("{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": " + "{\"items\":" * 100000 + "{}" + "}" * 100000 + "}}}")' > body
equals 'a schema 100,000 deep' 400 "$(curl -s -o out -w '%{http_code}' -H 'Content-Type: application/json' -d @body "$url/v1/completions")"
says out 'nesting too deep'
python3 -c 'import json; print(json.dumps({"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 70000]}}}}))' > body
equals 'a schema of 70 kB' 400 "$(curl -s -o out -w '%{http_code}' -H 'Content-Type: application/json' -d @body "$url/v1/completions")"
says out 'at most 65536'
ask 400 /v1/completions '{"prompt": "x", "response_format": {"type": "json_schema"}}'
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# ---- a template that has no user role, and a limit that is given twice
echo '{% for m in messages %}{% if m.role == "user" %}{{ raise_exception("only tools may speak") }}{% endif %}{{ m.content }}{% endfor %}' > form.jinja
start_server --template form.jinja
ask 400 /v1/chat/completions '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}'
says out 'only tools may speak' '"param":"messages"'
ask 400 /v1/chat/completions '{"messages": [{"role": "tool", "content": "hi"}], "max_tokens": 4, "max_completion_tokens": 5}'
says out 'max_tokens and max_completion_tokens are 4 and 5' 'give one of them'
stop_server
echo hi > said
expect 2 "$ration" run --chat --template form.jinja -n 4 -q < said
says err 'only tools may speak' 'form.jinja:1' 'raised by the chat template'
