#!/usr/bin/env python3
"""openai_images_test.py URL PICTURE — OpenAI's Python client, as it is, against a server of models/pictures.

PICTURE is what `ration image` draws of 'a red circle' with seed 5 in 6 steps, 64x64.
"""
import base64
import sys

import openai

url, expected = sys.argv[1], open(sys.argv[2], 'rb').read()
client = openai.OpenAI(base_url=url + '/v1', api_key='none', max_retries=0, timeout=600)
model = client.models.list().data[0].id
fields = {'model': model, 'prompt': 'a red circle', 'size': '64x64', 'extra_body': {'seed': 5, 'steps': 6}}

answer = client.images.generate(**fields)
assert len(answer.data) == 1 and base64.b64decode(answer.data[0].b64_json) == expected
assert answer.output_format == 'png' and answer.size == '64x64' and answer.created > 1e9

answer = client.images.generate(**fields, response_format='url', n=2)
head, text = answer.data[0].url.split(',')
assert head == 'data:image/png;base64' and base64.b64decode(text) == expected
assert answer.data[1].url != answer.data[0].url and answer.data[1].seed == 6

steps, pictures = 0, []
for event in client.images.generate(**fields, stream=True):
    if event.type == 'image_generation.progress':
        steps += 1
    elif event.type == 'image_generation.completed':
        pictures.append(base64.b64decode(event.b64_json))
assert steps == 6 and pictures == [expected], (steps, len(pictures))

try:
    client.images.generate(model=model, prompt='x', size='65x64')
    raise AssertionError('a size that cannot be was taken')
except openai.BadRequestError as error:
    assert error.param == 'size' and 'multiples' in error.message, error
print('ok')
