#!/usr/bin/env bash
# serve_tools.sh — tools by the model's own template, and calls parsed back. The small built-in model would never call one of
# itself, so calls are asked for (tool_choice), whose arguments then keep to the tool's parameters.
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

cat > hermes.jinja << 'JINJA'
{%- if tools %}Tools: {% for tool in tools %}{{ tool.function | tojson | length }} {{ tool.function.name }} {% endfor %} call as <tool_call>{"name": ..., "arguments": ...}</tool_call> {% endif %}
{%- for message in messages %}{{ message.role }}: {{ message.content }}{% for call in message.tool_calls or [] %} calls {{ call.function.name }} with {{ call.function.arguments | tojson }}{% endfor %}
{% endfor %}
JINJA
sed 's/<tool_call>.*<.tool_call>/{"name": ..., "parameters": ...}/' hermes.jinja > llama.jinja
sed 's/<tool_call>.*<.tool_call>/[TOOL_CALLS]/' hermes.jinja > mistral.jinja
echo '{% for message in messages %}{{ message.content }} {% endfor %}' > plain.jinja

tools='[{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 12},
  "days": {"type": "integer", "minimum": 1, "maximum": 7}}, "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number", "minimum": 0, "maximum": 9}}, "required": ["a"], "additionalProperties": false}}}]'
chat() { echo "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 300, \"temperature\": 1.2, \"tools\": $tools, $1}"; }

for form in hermes llama mistral; do
    start_server --template $form.jinja
    python3 - "$url" "$tools" << 'PYTHON' || fail "calls of $form"
import json, sys, urllib.request
url, tools = sys.argv[1], json.loads(sys.argv[2])
def post(body):
    request = urllib.request.Request(url + '/v1/chat/completions', json.dumps(body).encode(), {'Content-Type': 'application/json'})
    return urllib.request.urlopen(request, timeout=600)
base = {'messages': [{'role': 'user', 'content': 'Hello'}], 'max_tokens': 300, 'temperature': 1.2, 'tools': tools, 'tool_choice': 'required'}
def check(call):
    name, arguments = call['function']['name'], json.loads(call['function']['arguments'])
    assert call['type'] == 'function' and call['id'].startswith('call_'), call
    if name == 'get_weather': assert set(arguments) == {'city', 'days'} and 1 <= arguments['days'] <= 7 and 1 <= len(arguments['city']) <= 12, call
    else: assert name == 'add' and 0 <= arguments['a'] <= 9, call
names = set()
for seed in range(6):
    choice = json.load(post({**base, 'seed': seed}))['choices'][0]
    if choice['finish_reason'] == 'length': continue
    assert choice['finish_reason'] == 'tool_calls', choice
    assert choice['message']['content'] is None, choice
    [check(call) for call in choice['message']['tool_calls']]
    names |= {call['function']['name'] for call in choice['message']['tool_calls']}
    streamed, finish = [], None
    for line in post({**base, 'seed': seed, 'stream': True}):
        if not line.startswith(b'data: {'): continue
        event = json.loads(line[6:])['choices'][0]
        finish = event['finish_reason'] or finish
        for delta in event['delta'].get('tool_calls', []):
            if 'id' in delta: streamed.append({'id': delta['id'], 'type': delta['type'], 'function': {'name': delta['function']['name'], 'arguments': ''}})
            streamed[delta['index']]['function']['arguments'] += delta['function']['arguments']
    assert finish == 'tool_calls' and [c['function'] for c in streamed] == [c['function'] for c in choice['message']['tool_calls']], (streamed, choice)
assert names, 'no call was whole'
one = {'type': 'function', 'function': {'name': 'add'}}
for seed in range(20):
    choice = json.load(post({**base, 'seed': seed, 'tool_choice': one}))['choices'][0]
    if choice['finish_reason'] == 'tool_calls': break
assert {c['function']['name'] for c in choice['message']['tool_calls']} == {'add'}, choice
# A conversation with a call and its result; the model may answer as it likes.
said = {**choice['message'], 'tool_calls': choice['message']['tool_calls'][:1]}
messages = base['messages'] + [said, {'role': 'tool', 'tool_call_id': choice['message']['tool_calls'][0]['id'], 'content': '7'}]
answer = json.load(post({**base, 'messages': messages, 'tool_choice': 'auto', 'max_tokens': 8, 'seed': 1}))
assert answer['choices'][0]['message']['content'] and 'tool_calls' not in answer['choices'][0]['message'], answer
less = json.load(post({**base, 'messages': messages, 'tool_choice': 'none', 'max_tokens': 8}))
assert less['usage']['prompt_tokens'] < answer['usage']['prompt_tokens'], 'tools are in the prompt though there are none'
PYTHON
    stop_server
done

start_server --template hermes.jinja
ask 400 /v1/chat/completions "$(chat '"tool_choice": {"type": "function", "function": {"name": "nothing"}}')"
says out 'not among the tools'
ask 400 /v1/chat/completions '{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}'
says out 'there are no tools'
ask 400 /v1/chat/completions '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{no json"}}]}]}'
says out 'no JSON'
ask 400 /v1/chat/completions "$(chat '"tool_choice": "required", "response_format": {"type": "json_object"}')"
ask 200 /v1/chat/completions "$(chat '"tool_choice": "auto", "n": 2, "logprobs": true, "stop": "e"')"
stop_server
start_server --template plain.jinja
ask 400 /v1/chat/completions "$(chat '"seed": 1')"
says out "chat template knows no tools"
stop_server
equals 'exit code after SIGTERM' 0 "$code"
