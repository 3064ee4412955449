#!/usr/bin/env bash
# serve_model_file.sh — what happens to a model's file while it is served: touched or replaced by name, the server goes on
# with the file that it has open; written to, it stops rather than answer from two models.
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
models=$(pwd)/models
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

body='{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'
tell() {
    ask 200 /v1/completions "$body"
    python3 -c "import json; print(json.load(open('out'))['choices'][0]['text'])"
}

# The built-in model with more words than it knows: a table of embeddings so large that it is not held, but read row by row.
fresh() {
    rm -rf model && cp -rL "$models/default" model && chmod -R u+w model
    python3 - << 'PYTHON'
import json, struct
words, path = 1 << 15, 'model/model.safetensors'
data = open(path, 'rb').read()
size = struct.unpack('<Q', data[:8])[0]
tensors, body, out = json.loads(data[8:8 + size]), data[8 + size:], b''
for name, tensor in tensors.items():
    if name == '__metadata__':
        continue
    begin, end = tensor['data_offsets']
    raw, shape = body[begin:end], tensor['shape']
    if name in ('model.embed_tokens.weight', 'lm_head.weight'):
        raw += bytes(len(raw) // shape[0] * (words - shape[0]))
        shape[0] = words
    tensor['data_offsets'] = [len(out), len(out) + len(raw)]
    out += raw
head = json.dumps(tensors).encode()
head += b' ' * (-len(head) % 8)
open(path, 'wb').write(struct.pack('<Q', len(head)) + head + out)
config = json.load(open('model/config.json'))
config['vocab_size'] = words
json.dump(config, open('model/config.json', 'w'))
PYTHON
}
file=model/model.safetensors

fresh
start_server model
before=$(tell)
touch "$file"
equals 'text after touch' "$before" "$(tell)"
touch -d '2001-02-03' "$file"
equals 'text after another touch' "$before" "$(tell)"
printf 'a model of another kind' > another
mv another "$file"
equals 'text after a rename over it' "$before" "$(tell)"
rm "$file"
equals 'text after its end' "$before" "$(tell)"
stop_server
equals 'exit code' 0 "$code"

# Written in place: the rows of its embeddings are read as they are needed.
fresh
start_server model
before=$(tell)
printf 'x' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 1)) conv=notrunc status=none
code=0
for _ in $(seq 100); do # requests are refused from the first step on, then the server ends
    kill -0 "$server" 2> /dev/null || break
    python3 -c "
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request('$url/v1/completions', data=b'''$body''', headers={'Content-Type': 'application/json'}))
" 2> /dev/null && fail 'it answers from a file that was written to'
    sleep 0.1
done
wait "$server" || code=$?
equals 'exit code of a server whose file was written to' 3 "$code"
says log 'was changed while it was in use' 'by renaming it'
echo 'ok'
