#!/usr/bin/env bash
# serve_clients.sh — OpenAI's, Ollama's and LangChain's Python clients as they are, against ration serve. Each part is left out
# where the Python of $RATION_PYTHON (or python3) lacks its package.
python=$(command -v "${RATION_PYTHON:-python3}") || { echo 'skipped: no Python'; exit 77; }
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

cat > template << 'JINJA'
{%- for tool in tools or [] %}<tool_call> {{ tool.function.name }} {% endfor %}{% for message in messages %}{{ message.content }} {% endfor %}
JINJA
start_server --template template --max-tokens 300
"$python" -c 'import openai' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "OpenAI's client"; } || leave_out 'no openai'
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + '/v1', api_key='none', timeout=600)
said = [{'role': 'user', 'content': 'Once upon a time'}]
assert client.models.list().data[0].id == 'default'
whole = client.chat.completions.create(model='gpt-4o', messages=said, max_tokens=8, seed=1, temperature=0)
parts = [chunk.choices[0].delta.content or '' for chunk in client.chat.completions.create(model='gpt-4o', messages=said, max_tokens=8, seed=1, temperature=0, stream=True)]
assert ''.join(parts) == whole.choices[0].message.content and whole.usage.completion_tokens == 8, (parts, whole)
schema = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 10}, 'age': {'type': 'integer', 'minimum': 0, 'maximum': 99}}, 'required': ['name', 'age'], 'additionalProperties': False}
answer = client.chat.completions.create(model='x', messages=said, seed=3, response_format={'type': 'json_schema', 'json_schema': {'name': 'person', 'schema': schema, 'strict': True}})
value = json.loads(answer.choices[0].message.content)
assert set(value) == {'name', 'age'} and 0 <= value['age'] <= 99, value
tools = [{'type': 'function', 'function': {'name': 'add', 'parameters': {'type': 'object', 'properties': {'a': {'type': 'integer', 'minimum': 0, 'maximum': 9}}, 'required': ['a'], 'additionalProperties': False}}}]
call = client.chat.completions.create(model='x', messages=said, tools=tools, tool_choice='required', seed=2).choices[0]
assert call.finish_reason == 'tool_calls' and call.message.tool_calls[0].function.name == 'add', call
assert 0 <= json.loads(call.message.tool_calls[0].function.arguments)['a'] <= 9, call
try:
    from pydantic import BaseModel
    class Person(BaseModel):
        name: str
        age: int
    parsed = client.chat.completions.parse(model='x', messages=said, response_format=Person, seed=7, max_tokens=300)
    if parsed.choices[0].finish_reason == 'stop': assert isinstance(parsed.choices[0].message.parsed, Person), parsed
except Exception as error:
    if 'LengthFinishReason' not in type(error).__name__: raise
PYTHON
"$python" -c 'from openai.resources import responses' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "OpenAI's client, responses"; } || leave_out 'no openai with responses'
import json, sys
from openai import BadRequestError, OpenAI
client = OpenAI(base_url=sys.argv[1] + '/v1', api_key='none', timeout=600, max_retries=0)
same = dict(model='x', temperature=0, max_output_tokens=8)
whole = client.responses.create(input='Once upon a time', **same)
assert whole.output_text and whole.status == 'incomplete' and whole.incomplete_details.reason == 'max_output_tokens' and whole.usage.output_tokens == 8, whole
assert whole.output_text == client.chat.completions.create(model='x', messages=[{'role': 'user', 'content': 'Once upon a time'}], temperature=0, max_tokens=8).choices[0].message.content
events = list(client.responses.create(input=[{'role': 'user', 'content': [{'type': 'input_text', 'text': 'Once upon a time'}]}], stream=True, **same))
assert [e.sequence_number for e in events] == list(range(len(events))), events
types = [e.type for e in events]
assert types[:4] == ['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added'], types
assert types[-4:] == ['response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.incomplete'], types
assert ''.join(e.delta for e in events if e.type == 'response.output_text.delta') == whole.output_text == events[-4].text == events[-3].part.text == events[-1].response.output_text
told = client.responses.create(input='a time', instructions='Once "upon"', **same)
assert told.instructions == 'Once "upon"' and told.output_text == client.responses.create(input=[{'role': 'developer', 'content': 'Once "upon"'}, {'role': 'user', 'content': 'a time'}], **same).output_text
tools = [{'type': 'function', 'name': 'add', 'parameters': {'type': 'object', 'properties': {'a': {'type': 'integer', 'minimum': 0, 'maximum': 9}}, 'required': ['a'], 'additionalProperties': False}, 'strict': True}]
called = client.responses.create(model='x', input='Once', tools=tools, tool_choice='required')
call = called.output[0]
assert call.type == 'function_call' and call.name == 'add' and 0 <= json.loads(call.arguments)['a'] <= 9 and called.tools[0].name == 'add', called
events = list(client.responses.create(model='x', input='Once', tools=tools, tool_choice={'type': 'function', 'name': 'add'}, stream=True))
delta = ''.join(e.delta for e in events if e.type == 'response.function_call_arguments.delta')
assert delta and [e.arguments for e in events if e.type == 'response.function_call_arguments.done'] == [delta] == [events[-1].response.output[0].arguments], events
answer = client.responses.create(model='x', input=[{'role': 'user', 'content': 'Once'}, *called.output, {'type': 'function_call_output', 'call_id': call.call_id, 'output': '3'}], tools=tools, max_output_tokens=8)
assert client.responses.create(model='x', input=[{'role': 'user', 'content': 'Once'}, *answer.output, {'role': 'user', 'content': 'more'}], max_output_tokens=4).output_text
schema = {'type': 'object', 'properties': {'ok': {'type': 'boolean'}}, 'required': ['ok'], 'additionalProperties': False}
formed = client.responses.create(model='x', input='Once', text={'format': {'type': 'json_schema', 'name': 't', 'schema': schema, 'strict': True}})
assert isinstance(json.loads(formed.output_text)['ok'], bool), formed
for bad in [dict(previous_response_id='resp_1'), dict(input=[]), dict(input=[{'type': 'item_reference', 'id': 'x'}]), dict(input=[{'role': 'king', 'content': 'a'}]),
            dict(tools=[{'type': 'web_search'}]), dict(text={'format': {'type': 'xml'}}), dict(input=[{'type': 'function_call', 'name': 'a', 'arguments': ''}])]:
    try:
        client.responses.create(**{'model': 'x', 'input': 'a', **bad})
        raise SystemExit(f'accepted: {bad}')
    except BadRequestError:
        pass
PYTHON
"$python" -c 'import ollama' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "Ollama's client"; } || leave_out 'no ollama'
import json, sys
import ollama
client = ollama.Client(host=sys.argv[1])
said = [{'role': 'user', 'content': 'Once upon a time'}]
options = {'num_predict': 8, 'seed': 1, 'temperature': 0}
assert client.list().models[0].model == 'default'
whole = client.chat(model='default:latest', messages=said, options=options)
assert whole.done and whole.eval_count == 8 and whole.done_reason == 'length', whole
assert ''.join(part.message.content for part in client.chat(model='any', messages=said, options=options, stream=True)) == whole.message.content
told = client.generate(model='default', prompt='Once upon a time', raw=True, options=options)
assert ''.join(part.response for part in client.generate(model='default', prompt='Once upon a time', raw=True, options=options, stream=True)) == told.response and told.response
value = json.loads(client.chat(model='x', messages=said, format={'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']}, options={'seed': 1}).message.content)
assert isinstance(value['a'], int), value
assert client.show('default').details.family == 'llama'
PYTHON
"$python" -c 'import langchain_openai' 2> /dev/null && { "$python" - "$url" << 'PYTHON' || fail "LangChain's client"; } || leave_out 'no langchain_openai'
import sys
from langchain_openai import ChatOpenAI
model = ChatOpenAI(base_url=sys.argv[1] + '/v1', api_key='none', model='default', max_tokens=8, temperature=0, seed=1, timeout=600)
whole = model.invoke('Once upon a time').content
assert whole and ''.join(chunk.content for chunk in model.stream('Once upon a time')) == whole
schema = {'title': 'Thing', 'type': 'object', 'properties': {'size': {'type': 'integer', 'minimum': 1, 'maximum': 5}}, 'required': ['size'], 'additionalProperties': False}
large = ChatOpenAI(base_url=sys.argv[1] + '/v1', api_key='none', model='default', max_tokens=100, seed=1, timeout=600)
assert 1 <= large.with_structured_output(schema, method='json_schema').invoke('Once')['size'] <= 5
PYTHON
stop_server
equals 'exit code after SIGTERM' 0 "$code"
