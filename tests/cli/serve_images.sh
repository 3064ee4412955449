#!/usr/bin/env bash
# serve_images.sh — ration serve of an image model: /v1/images/generations by hand, by OpenAI's Python client, from its schema and in the
# page. What needs a Python package or a browser is left out where there is none.
root=$(pwd)
python=$(command -v "${RATION_PYTHON:-python3}") || { echo 'skipped: no Python'; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash
source "$root/tests/cli/serve.bash"
model=$root/models/pictures
draw=/v1/images/generations

pictures() { # writes the pictures of ./out as 0.png, 1.png, ... and prints the seeds
    python3 - << 'PYTHON'
import base64, json
answer = json.load(open('out'))
for i, item in enumerate(answer['data']):
    text = item.get('b64_json') or item['url'].removeprefix('data:image/png;base64,')
    open('%d.png' % i, 'wb').write(base64.b64decode(text))
print(*[item['seed'] for item in answer['data']], answer['size'], answer['output_format'])
PYTHON
}

start_server "$model" --device cpu --connections 64 --budget 400MiB --served-name draws
says log 'draws on cpu, budget 400 MiB, pictures'

# The picture that `ration image` draws, file for file; the k-th of several has the k-th seed.
"$ration" image "$model" -p 'a red circle' --seed 5 --steps 6 --size 64 --quiet -o cli.png > /dev/null 2>&1 || fail 'ration image'
"$ration" image "$model" -p 'a red circle' --seed 6 --steps 6 --size 64 --quiet -o cli2.png > /dev/null 2>&1 || fail 'ration image'
ask 200 $draw '{"prompt": "a red circle", "n": 2, "seed": 5, "steps": 6, "size": "64x64"}'
equals 'seeds and size' '5 6 64x64 png' "$(pictures)"
cmp 0.png cli.png || fail 'another picture than that of ration image'
cmp 1.png cli2.png || fail 'the second picture is not that of the second seed'
ask 200 $draw '{"prompt": "a red circle", "seed": 6, "steps": 6, "size": "64x64", "response_format": "url"}'
says out 'data:image/png;base64,'
pictures > /dev/null
cmp 0.png cli2.png || fail 'another picture as a URL'

# Without a seed there is one by chance, and the answer tells it.
ask 200 $draw '{"prompt": "a blue square", "steps": 2, "model": "anything", "quality": "high", "user": "u"}'
read -r seed _ <<< "$(pictures)"
mv 0.png first.png
ask 200 $draw "{\"prompt\": \"a blue square\", \"steps\": 2, \"seed\": $seed}"
pictures > /dev/null
cmp 0.png first.png || fail 'the seed of an answer draws another picture'

# A stream: every step, then the picture.
ask 200 $draw '{"prompt": "a red circle", "seed": 5, "steps": 6, "size": "64x64", "stream": true}'
says head 'text/event-stream'
python3 - << 'PYTHON' || fail 'the events'
import base64, json
events = [line[6:] for line in open('out').read().split('\n') if line.startswith('data: ')]
assert events.pop() == '[DONE]'
events = [json.loads(e) for e in events]
assert [e['type'] for e in events] == ['image_generation.progress'] * 6 + ['image_generation.completed'], events
assert [(e['step'], e['steps']) for e in events[:6]] == [(i + 1, 6) for i in range(6)]
assert base64.b64decode(events[6]['b64_json']) == open('cli.png', 'rb').read()
assert events[6]['seed'] == 5 and events[6]['size'] == '64x64'
PYTHON

# Refused, each with what is wrong.
refuse() { # CODE BODY WORDS
    ask "$1" $draw "$2"
    says out "$3"
}
refuse 400 '{}' 'prompt is missing'
refuse 400 '{"prompt": 7}' 'prompt is a number: it must be a string'
refuse 400 '{"prompt": "a\u0000b"}' 'prompt has a character of value 0'
refuse 400 '{"prompt": "x", "size": "65x64"}' "sides are multiples of"
refuse 400 '{"prompt": "x", "size": "big"}' "it must be 'auto' or WIDTHxHEIGHT"
refuse 400 '{"prompt": "x", "size": "8192x8192"}' '--request-memory'
refuse 400 '{"prompt": "x", "n": 11}' 'n is 11: it must be from 1 to 10'
refuse 400 '{"prompt": "x", "scheduler": "none"}' 'euler_a'
refuse 400 '{"prompt": "x", "response_format": "jpeg"}' 'one of b64_json|url'
refuse 400 '{"prompt": "x", "partial_images": 2}' 'partial_images is not supported'
refuse 400 '{"prompt": "x", "background": "transparent"}' 'one of auto|opaque'
refuse 400 '{"prompt": "x", "prompt": "y"}' 'prompt is given twice'
ask 400 /v1/completions '{"prompt": "x"}'
says out 'draws pictures: ask /v1/images/generations'
ask 400 /tokenize '{"text": "x"}'
ask 400 /api/tags
ask 200 /v1/models
says out '"id":"draws"' '"size_multiple":' '"kind":"UNet"'
ask 200 /plan
says out '"largest_phase"'
ask 200 /health
says out '"images":true' '"budget_bytes":419430400'
ask 200 /metrics
says out 'ration_steps_total'

# Who hangs up ends the drawing: the next one does not wait for a thousand steps.
python3 - "$url" << 'PYTHON'
import json, socket, sys
host, port = sys.argv[1].removeprefix('http://').split(':')
s = socket.create_connection((host, int(port)))
body = json.dumps({'prompt': 'x', 'steps': 900, 'size': '256x256', 'stream': True}).encode()
s.sendall(b'POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
          b'Content-Length: %d\r\n\r\n' % len(body) + body)
got = s.recv(1000)
assert b'200' in got, got
PYTHON
ask 200 $draw '{"prompt": "a red circle", "steps": 1}'
ask 200 /metrics

grep -q '^ration_requests_cancelled_total 1$' out || fail 'the drawing nobody waits for was not ended'

if "$python" -c 'import openai' 2> /dev/null; then
    expect 0 "$python" "$root/tests/server/openai_images_test.py" "$url" cli.png
else
    leave_out 'no openai package'
fi
if timeout 300 python3 "$root/tests/page/browser.py" 2> err; then
    expect 0 python3 "$root/tests/page/serve_images_page_test.py" "$url"
else
    leave_out 'no chromium that runs here'
fi
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# A budget that has no room for the size: the smallest that works is in the log, the plan refused at the start.
run_fails() { "$ration" serve "$model" --port 0 --device cpu --connections 64 "$@" > out 2> err && fail "serve $*"; }
run_fails --budget 16MiB
says err 'the smallest budget that works is'
# ... and of a request, told to who asks.
smallest=$(sed -n 's/.*(\([0-9]*\) bytes).*/\1/p' err | head -1)
# What the program itself has resident when it begins is part of it, and differs by some pages from start to start
# (under sanitizers by 1 MiB).
start_server "$model" --device cpu --connections 64 --budget $((smallest + (2 << 20)))
ask 200 $draw '{"prompt": "a red circle", "seed": 5, "steps": 6}'
pictures > /dev/null
"$ration" image "$model" -p 'a red circle' --seed 5 --steps 6 --quiet -o cli.png > /dev/null 2>&1 || fail 'ration image'
cmp 0.png cli.png || fail 'another picture within the smallest budget'
refuse 400 '{"prompt": "x", "size": "1024x1024"}' 'does not fit'
ask 200 $draw '{"prompt": "a red circle", "steps": 1}'
stop_server
equals 'exit code after SIGTERM' 0 "$code"

"$ration" plan "$model" --for serve > out 2> err && fail 'a plan of a server of pictures'
says err 'ration plan MODEL --for image'
echo 'ok'
