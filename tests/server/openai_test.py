#!/usr/bin/env python3
"""openai_test.py URL KEY — OpenAI's Python client, as it is, against a running server.

The server has a chat template, the key KEY, --parallel 2 and --waiting 1. Exits with 77 where the client is missing.
"""
import concurrent.futures
import inspect
import json
import sys

try:
    import openai
except ImportError:
    print('skipped: this Python has no openai package')
    sys.exit(77)

url, key = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=url + '/v1', api_key=key, max_retries=0, timeout=600)
model = client.models.list().data[0].id
prompt = 'Once upon a time'
talk = [{'role': 'developer', 'content': 'Tell a story.'},
        {'role': 'user', 'content': [{'type': 'text', 'text': prompt}]}]


def complete(**fields):
    return client.completions.create(**{'model': model, 'prompt': prompt, 'max_tokens': 12, **fields})


def chat(**fields):
    return client.chat.completions.create(**{'model': model, 'messages': talk, 'max_completion_tokens': 12, **fields})


def refused(kind, call, param=None, code=None):
    try:
        call()
    except kind as error:
        assert param is None or error.param == param, (error.param, error.message)
        assert code is None or error.code == code, (error.code, error.message)
        assert error.message
        return error
    raise AssertionError(f'{kind.__name__} was expected')


def test_models():
    assert client.models.retrieve(model).id == model
    refused(openai.NotFoundError, lambda: client.models.retrieve('gpt-4'))


def extras(part, where):
    """Where in an answer there are fields that the client's own types do not have."""
    if isinstance(part, openai.BaseModel):
        found = [f'{where}.{name}' for name in part.model_extra or {}]
        return found + [e for name in type(part).model_fields for e in extras(getattr(part, name), f'{where}.{name}')]
    return [e for item in part for e in extras(item, where)] if isinstance(part, list) else []


def test_shapes():
    for n, top in ((1, 0), (2, 2)):
        fields = {'n': n, 'max_tokens': 3}
        talks = {'n': n, 'max_completion_tokens': 3, 'logprobs': True, 'top_logprobs': top}
        for answer in (complete(**fields), complete(**fields, logprobs=top), chat(**talks)):
            assert extras(answer, '') == []
            type(answer).model_validate_json(answer.model_dump_json(), strict=True)
        for chunk in [*complete(**fields, logprobs=top, stream=True), *chat(**talks, stream=True)]:
            assert extras(chunk, '') == []


def test_every_field_is_known():
    """Taken, or refused for its value; never as a field that nobody knows."""
    ours = {'extra_headers', 'extra_query', 'extra_body', 'timeout', 'self'}
    for call, create in ((complete, client.completions.create), (chat, client.chat.completions.create)):
        for name in set(inspect.signature(create).parameters) - ours:
            try:
                call(extra_body={name: {'no': 'sense'}})
            except openai.BadRequestError as error:
                known = error.code != 'unknown_field' or error.param != name
                assert known, f'{name} is not in the table of fields'


def test_completion():
    answer = complete()
    assert answer.object == 'text_completion' and answer.model == model and answer.id.startswith('cmpl-')
    choice = answer.choices[0]
    assert choice.index == 0 and choice.text and choice.finish_reason in ('stop', 'length') and choice.logprobs is None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 12
    assert complete(echo=True).choices[0].text.startswith(prompt)


def test_seed():
    fields = {'seed': 7, 'temperature': 1.5}
    assert complete(**fields).choices[0].text == complete(**fields).choices[0].text
    assert chat(**fields).choices[0].message.content == chat(**fields).choices[0].message.content
    texts = {complete(temperature=1.5).choices[0].text for _ in range(8)}
    assert len(texts) > 1, 'without a seed every answer is the same'


def test_stop():
    text = complete(temperature=0, max_tokens=40).choices[0].text
    word = text.split()[4]
    answer = complete(temperature=0, max_tokens=40, stop=[word, 'never']).choices[0]
    assert answer.finish_reason == 'stop' and answer.text == text[:text.index(word)], (text, answer.text)
    assert complete(temperature=0, max_tokens=40, stop=word).choices[0].text == answer.text


def test_bias():
    plain = complete(temperature=0, max_tokens=1, logprobs=1).choices[0]
    ids = client.post('/../tokenize', body={'text': plain.text}, cast_to=object)['tokens']
    other = complete(temperature=0, max_tokens=1, logit_bias={str(ids[0]): -100}).choices[0]
    assert plain.text != other.text


def test_choices_and_lists():
    answer = complete(n=2, seed=1, temperature=1.5)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text != answer.choices[1].text
    answer = complete(prompt=[prompt, 'The cat'], echo=True)
    assert answer.choices[0].text.startswith(prompt) and answer.choices[1].text.startswith('The cat')
    ids = client.post('/../tokenize', body={'text': prompt, 'add_special': True}, cast_to=object)['tokens']
    assert complete(prompt=ids, temperature=0).choices[0].text == complete(temperature=0).choices[0].text
    assert len(complete(prompt=[ids, ids[:2]]).choices) == 2


def test_logprobs():
    choice = complete(logprobs=3, temperature=0).choices[0]
    logprobs = choice.logprobs
    assert ''.join(logprobs.tokens) == choice.text, (logprobs.tokens, choice.text)
    assert len(logprobs.token_logprobs) == len(logprobs.tokens) == len(logprobs.top_logprobs)
    assert all(choice.text[at:].startswith(token) for at, token in zip(logprobs.text_offset, logprobs.tokens))
    assert all(max(tops.values()) == logprob <= 0
               for tops, logprob in zip(logprobs.top_logprobs, logprobs.token_logprobs))
    content = chat(logprobs=True, top_logprobs=2, temperature=0).choices[0]
    assert ''.join(entry.token for entry in content.logprobs.content) == content.message.content
    assert all(bytes(entry.bytes).decode() == entry.token and len(entry.top_logprobs) == 2
               for entry in content.logprobs.content)


def test_chat():
    answer = chat()
    message = answer.choices[0].message
    assert answer.object == 'chat.completion' and message.role == 'assistant' and message.content
    talk_on = talk + [message.model_dump(), {'role': 'user', 'content': 'And then?', 'name': 'me'}]
    assert chat(messages=talk_on).choices[0].message.content
    assert len(chat(n=2).choices) == 2


def test_streams():
    whole = complete(seed=3)
    chunks = list(complete(seed=3, stream=True, stream_options={'include_usage': True}))
    assert ''.join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == whole.choices[0].finish_reason

    whole = chat(seed=3)
    chunks = list(chat(seed=3, stream=True, logprobs=True))
    assert chunks[0].choices[0].delta.role == 'assistant' and len({chunk.id for chunk in chunks}) == 1
    assert ''.join(chunk.choices[0].delta.content or '' for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert any(chunk.choices[0].logprobs for chunk in chunks)

    said = ['', '']
    for chunk in chat(n=2, seed=3, stream=True):
        said[chunk.choices[0].index] += chunk.choices[0].delta.content or ''
    assert said[0] == whole.choices[0].message.content and said[1]


def test_stream_helper():
    with client.chat.completions.stream(model=model, messages=talk, max_completion_tokens=12, seed=3) as stream:
        for _ in stream:
            pass
        said = stream.current_completion_snapshot
    assert said.choices[0].message.content == chat(seed=3).choices[0].message.content


def test_raw_answers():
    answer = client.completions.with_raw_response.create(model=model, prompt=prompt, max_tokens=3)
    assert answer.headers['content-type'] == 'application/json' and json.loads(answer.text)['choices']


def test_refusals():
    bad = openai.BadRequestError
    refused(bad, lambda: complete(temperature=3), 'temperature', 'out_of_range')
    refused(bad, lambda: complete(max_tokens=0), 'max_tokens', 'out_of_range')
    refused(bad, lambda: complete(best_of=5), 'best_of', 'unsupported_value')
    assert complete(extra_body={'temprature': 1}).choices
    refused(bad, lambda: complete(prompt='word ' * 5000))
    refused(bad, lambda: chat(messages=[]), 'messages', 'missing')
    refused(bad, lambda: chat(response_format={'type': 'yaml'}), 'response_format.type', 'unsupported_value')
    image = [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'data:,'}}]}]
    assert 'image_url' in refused(bad, lambda: chat(messages=image), code='unsupported_value').message
    assert complete(model='gpt-4').model != 'gpt-4'
    stranger = client.with_options(api_key='wrong')
    refused(openai.AuthenticationError, lambda: stranger.models.list(), code='invalid_api_key')
    refused(openai.AuthenticationError,
            lambda: stranger.completions.create(model=model, prompt=prompt), code='invalid_api_key')


def test_back_pressure():
    def attempt(_):
        try:
            return complete(max_tokens=200, temperature=1.2).choices[0].finish_reason
        except openai.RateLimitError as error:
            assert int(error.response.headers['retry-after']) >= 1
            return 'refused'
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        ends = list(pool.map(attempt, range(48)))
    assert 'refused' in ends, 'two at once and one that waits: of 24 some are refused'
    assert any(end != 'refused' for end in ends)
    assert complete().choices[0].text


for name, test in list(globals().items()):
    if name.startswith('test_'):
        test()
        print('ok', name[5:].replace('_', ' '))
