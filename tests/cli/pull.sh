#!/usr/bin/env bash
# pull.sh — models by name: ration pull against a local server that speaks the hub's API, then run, serve and plan by name; hubs
# that stop, lie about sizes and sums, or name files that are none of their business.
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
python3 -c 'import ctypes; ctypes.CDLL("libcurl.so.4")' 2> /dev/null || { echo 'skipped: no libcurl'; exit 77; }

export HOME=$PWD/home
unset XDG_CACHE_HOME HF_HOME HF_HUB_CACHE HF_TOKEN http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
mkdir -p home
"$ration" convert "$repository/models/default" story.gguf --to q8_0 > /dev/null 2>&1 || fail 'no GGUF file to serve'

cat > hub.py << 'PYTHON'
import hashlib, http.server, json, os, sys
folder, gguf = sys.argv[1], open(sys.argv[2], 'rb').read()
whole = {name: open(f'{folder}/{name}', 'rb').read() for name in os.listdir(folder)}
repositories = {
    'acme/Story-1M': {**whole, 'README.md': b'# hello', 'onnx/model.onnx': b'x', '../escape.json': b'{}', '/etc/x.json': b'{}'},
    'acme/Story-GGUF': {'story-q8_0.gguf': gguf, 'story-Q4_K_M.gguf': gguf, 'README.md': b''},
    'acme/Parts-GGUF': {'Q8_0/parts-Q8_0-00001-of-00001.gguf': gguf, 'IQ4_XS/parts-IQ4_XS-00001-of-00001.gguf': gguf},
    'acme/Several-GGUF': {'a-q8_0.gguf': gguf, 'a-q6_k.gguf': gguf},
    'acme/Liar-GGUF': {'x-q4_k_m.gguf': gguf}, 'acme/Long-GGUF': {'x-q4_k_m.gguf': gguf}, 'acme/Stops-GGUF': {'x-q4_k_m.gguf': gguf}}
asked = open('asked', 'a')
class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *args): pass
    def answer(self, status, body, headers={}, cut=None):
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        for key, value in headers.items(): self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body if cut is None else body[:cut])
        if cut is not None: self.close_connection = True
    def do_GET(self):
        asked.write(f"{self.path} {self.headers.get('Range', '')} {self.headers.get('Authorization', '')}\n"); asked.flush()
        parts = self.path.split('?')[0].split('/')
        if parts[1] == 'api':
            name = '/'.join(parts[3:5])
            if name == 'acme/Gated': return self.answer(401, b'{}')
            if name not in repositories: return self.answer(404, b'{"error": "Repository not found"}')
            files = []
            for file, data in repositories[name].items():
                entry = {'rfilename': file, 'size': len(data)}
                if len(data) > 1000: entry['lfs'] = {'sha256': hashlib.sha256(data).hexdigest(), 'size': len(data), 'pointerSize': 134}
                if 'Liar' in name: entry['lfs']['sha256'] = '0' * 64
                if 'Long' in name: entry['size'] = entry['lfs']['size'] = len(data) - 10
                files.append(entry)
            return self.answer(200, json.dumps({'id': name, 'siblings': files}).encode())
        name, file = '/'.join(parts[1:3]), '/'.join(parts[5:])
        if name.startswith('cdn'): name = 'acme/' + parts[2]
        elif file.endswith('.gguf'): return self.answer(302, b'', {'Location': f'http://127.0.0.1:{port}/cdn/{parts[2]}/resolve/main/{file}'})
        data = repositories[name][file]
        begin = self.headers.get('Range')
        if begin:
            at = int(begin[6:-1])
            return self.answer(206, data[at:], {'Content-Range': f'bytes {at}-{len(data) - 1}/{len(data)}'})
        self.answer(200, data, cut=len(data) // 3 if 'Stops' in name else None)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Hub)
port = server.server_address[1]
open('port.new', 'w').write(str(port)); os.rename('port.new', 'port')
server.serve_forever()
PYTHON
python3 hub.py "$repository/models/default" story.gguf & hub=$!
cleanups+=("kill $hub 2> /dev/null")
for _ in $(seq 600); do [ -e port ] && break; sleep 0.1; done
export HF_ENDPOINT=http://127.0.0.1:$(cat port)
models=home/.cache/ration/models

# ---- nothing is there ---------------------------------------------------------------------------
expect 0 "$ration" models
says out 'no models' 'ration pull'
expect 3 "$ration" run acme/Story-1M -p Once
says err "there is no file and no model 'acme/Story-1M'" 'ration pull acme/Story-1M'

# ---- a folder, a file ---------------------------------------------------------------------------
expect 0 "$ration" pull acme/Story-1M --json
python3 -c "import json; j = json.load(open('out')); assert j['files'] == 4 and j['files_there'] == 0, j" || fail 'what was pulled'
for file in "$repository"/models/default/*; do cmp "$file" "$models/acme/Story-1M/$(basename "$file")" || fail "$file"; done
[ ! -e home/.cache/ration/escape.json ] && [ ! -e "$models/acme/escape.json" ] || fail 'a file outside of its folder'
expect 0 "$ration" pull acme/Story-1M
says out '4 were there'
expect 0 "$ration" run -p Once --seed 2 -n 8 --greedy -q
cp out told
expect 0 "$ration" run acme/Story-1M -p Once --seed 2 -n 8 --greedy -q
cmp -s out told || fail 'another text by name'
expect 0 "$ration" run story-1m -p Once --seed 2 -n 8 --greedy -q
cmp -s out told || fail 'another text by the short name'
expect 0 "$ration" pull acme/Story-GGUF
expect 0 "$ration" pull acme/Story-GGUF:q8_0
expect 0 "$ration" inspect story:q8_0
says out q8_0
expect 0 "$ration" plan acme/Story-GGUF --rates guessed
expect 0 "$ration" models --json
python3 -c "
import json; names = [m['name'] for m in json.load(open('out'))['models']]
assert sorted(names) == ['story-1m', 'story:q4_k_m', 'story:q8_0'], names" || fail 'the list of models'
expect 0 "$ration" pull acme/Parts-GGUF:q8_0
expect 0 "$ration" run parts:q8_0 -p Once --seed 2 -n 2 -q
only_parts=$(ls "$models"/acme/Parts-GGUF)
equals 'the kind that was asked for' Q8_0 "$only_parts"
expect 2 "$ration" pull acme/Several-GGUF
says err 'several files' 'a-q8_0.gguf'
expect 3 "$ration" pull acme/Several-GGUF:q2_k
says err "has no file 'q2_k'" 'a-q6_k.gguf'

# ---- the Hugging Face cache, $RATION_MODELS -----------------------------------------------------
snapshot=home/.cache/huggingface/hub/models--zed--Tale/snapshots/abc
mkdir -p $snapshot home/.cache/huggingface/hub/models--zed--Tale/refs others
printf abc > home/.cache/huggingface/hub/models--zed--Tale/refs/main
for file in "$repository"/models/default/*; do ln -s "$file" $snapshot; done
expect 0 "$ration" run zed/Tale -p Once --seed 2 -n 8 --greedy -q
cmp -s out told || fail 'another text from the cache of the hub'
cp story.gguf others/Mine.gguf
RATION_MODELS=$PWD/others expect 0 "$ration" run mine -p Once -n 2 -q
RATION_MODELS=$PWD/others expect 0 "$ration" models
says out mine RATION_MODELS 'Hugging Face (zed/Tale)'
# Files that lie about are called as repositories are; what models for talk are called may be left out.
cp story.gguf others/Tale-1B-Instruct-Q4_0.gguf
ln others/Tale-1B-Instruct-Q4_0.gguf others/tale-1b-instruct.Q8_0.gguf
mkdir -p others/drawer/unet
cp "$repository"/models/default/* others/drawer/unet
echo '{}' > others/drawer/model_index.json # of an image model
export RATION_MODELS=$PWD/others
expect 0 "$ration" models --json
check_json "names = [m['name'] for m in j['models'] if m['place'] == 'RATION_MODELS']; assert names == ['mine', 'tale-1b-instruct:q4_0', 'tale-1b-instruct:q8_0'], names"
expect 0 "$ration" run tale-1b:q4_0 -p Once -n 2 -q
expect 2 "$ration" run tale-1b -p Once -n 2 -q
says err 'several files: tale-1b-instruct:q4_0, tale-1b-instruct:q8_0'
expect 3 "$ration" run tale:q4_0 -p Once -n 2 -q
says err "no model 'tale:q4_0' on this machine" 'ration models'
MODEL_NAME=tale-1b:q8_0 start_server --parallel 1
ask 200 /v1/models
says out '"id":"tale-1b-instruct:q8_0"'
stop_server
unset RATION_MODELS

# ---- bad hubs, bad names ------------------------------------------------------------------------
expect 3 "$ration" pull acme/Liar-GGUF
says err 'SHA-256' 'was announced' 'thrown away'
[ -z "$(ls "$models"/acme/Liar-GGUF)" ] || fail 'a file with a wrong sum is kept'
expect 3 "$ration" pull acme/Long-GGUF
says err 'longer than'
[ -z "$(ls "$models"/acme/Long-GGUF)" ] || fail 'a file of a wrong size is kept'
expect 3 "$ration" pull acme/Stops-GGUF
[ -s "$models"/acme/Stops-GGUF/x-q4_k_m.gguf.part ] || fail 'what came before the end is lost'
: > asked
expect 0 "$ration" pull acme/Stops-GGUF
grep -q 'bytes=[1-9]' asked || fail 'a download does not go on where it ended'
cmp story.gguf "$models"/acme/Stops-GGUF/x-q4_k_m.gguf || fail 'a download in two parts'
: > asked
HF_TOKEN=secret expect 0 "$ration" pull acme/Story-GGUF:q8_0
grep -q 'api.*Bearer secret' asked || fail 'no token'
expect 3 "$ration" pull acme/Nothing
says err 'the hub has no acme/Nothing'
expect 3 "$ration" pull acme/Gated
says err HF_TOKEN
for name in ../x a/../b acme/.. acme/x:../../y 'acme/x;y' /etc/passwd story; do expect 2 "$ration" pull "$name"; done
expect 2 "$ration" run acme/../x -p Once
HF_ENDPOINT=http://127.0.0.1:1 expect 3 "$ration" pull acme/Other
says err 'is there a network'
HF_ENDPOINT=ftp://x expect 2 "$ration" pull acme/Other
