#!/usr/bin/env bash
# inspect.sh — the table, its JSON, order and choice, and the exit codes for what cannot be read.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

make_tensors model.safetensors

# ---- the table
expect 0 "$ration" inspect model.safetensors
says out 'model.safetensors: safetensors, 1 file, 16 tensors' 'model.embed_tokens.weight' bf16 '[64, 96]' \
    'by block' 'model.layers.10' 'by dtype' '[0, 3]'
equals 'order of blocks' 'model.layers.0 model.layers.1 model.layers.2 model.layers.10' \
    "$(sed -n '/^by block/,/^by dtype/p' out | grep -o '^model.layers.[0-9]*' | xargs)"
equals 'tensors printed' 16 "$(sed -n '/^tensor/,/^by block/p' out | grep -cE ' (f32|f16|bf16|i64) ')"
[ ! -s err ] || fail 'something on standard error'
if LC_ALL=C grep -q $'\x1b' out || LC_ALL=C grep -q $'\xc2\x9b' out; then fail 'control characters reach the terminal'; fi
says out 'red?[31m?? alert'

# ---- JSON
expect 0 "$ration" inspect model.safetensors --json
check_json "
assert j['format'] == 'safetensors' and j['tensor_count'] == 16 == len(j['tensors'])
t = {t['name']: t for t in j['tensors']}
assert t['model.layers.10.mlp.weight']['shape'] == [33, 256] and t['model.layers.10.mlp.weight']['bytes'] == 33 * 512
assert t['red\x1b[31m\x9b alert']['dtype'] == 'f32' and t['empty']['elements'] == 0
assert j['metadata'] == {'format': 'pt', 'note': 'tab\there'}
assert j['files'][0]['bytes'] == j['files'][0]['data_offset'] + j['bytes']
assert sum(b['bytes'] for b in j['blocks']) == sum(d['bytes'] for d in j['dtypes']) == j['bytes']
assert [t['offset'] for t in j['tensors']] == sorted(t['offset'] for t in j['tensors'])"

# ---- order and choice
names() { expect 0 "$ration" inspect model.safetensors --json "$@" && check_json "print(' '.join(t['name'] for t in j['tensors']), file=open('names', 'w'))" && cat names && rm names; }
equals 'by size' 'model.layers.0.attn.weight model.layers.1.attn.weight model.layers.2.attn.weight model.layers.10.attn.weight model.layers.0.mlp.weight' \
    "$(names --sort size --limit 5)"
equals 'by name' 'empty ids model.embed_tokens.weight model.layers.0.attn.weight' "$(names -s name -n 4)"
equals 'by dtype' 'model.layers.0.mlp.weight model.layers.1.mlp.weight model.layers.2.mlp.weight model.layers.10.mlp.weight' \
    "$(names --sort=dtype --filter '*.mlp.*')"
equals 'in file order' 'model.embed_tokens.weight model.layers.0.attn.weight' "$(names --sort file --limit=2)"
equals 'two filters' 'model.layers.1.norm.weight ids' "$(names --filter '*.1.n*' -f 'i?s')"
equals 'a filter without a match' '' "$(names --filter nothing)"
equals 'limit 0 is none' 16 "$(names --limit 0 --filter '*' | wc -w | xargs -I{} expr {} - 1)"

expect 0 "$ration" inspect model.safetensors --metadata
says out metadata '"pt"' 'note' '"tab?here"'

# ---- folders, indices, GGUF
mkdir folder && cp model.safetensors folder/
expect 0 "$ration" inspect folder
expect 0 "$ration" convert model.safetensors model.gguf
expect 0 "$ration" inspect model.gguf --json
check_json "assert j['format'] == 'gguf v3' and j['tensor_count'] == 16"
rm -r folder model.gguf
python3 - << 'PYTHON'
import struct
s = lambda t: struct.pack("<Q", len(t)) + t
pairs = [(b"u8", 0, b"\xff"), (b"i32", 5, struct.pack("<i", -7)), (b"f32", 6, struct.pack("<f", 0.5)), (b"yes", 7, b"\1"),
         (b"no", 7, b"\0"), (b"text", 8, s(b"a\x1b\xff")), (b"words", 9, struct.pack("<IQ", 8, 5) + s(b"one") * 5),
         (b"nan", 12, struct.pack("<d", float("nan"))), (b"numbers", 9, struct.pack("<IQ", 4, 2) + struct.pack("<II", 1, 2))]
open("kinds.gguf", "wb").write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) +
                               b"".join(s(k) + struct.pack("<I", t) + v for k, t, v in pairs))
PYTHON
expect 0 "$ration" inspect kinds.gguf -m
says out 255 -7 0.5 true false '"a??"' '5 items: ["one", "one", "one", "one", ...]' '2 items: [1, 2]'
expect 0 "$ration" inspect kinds.gguf --json
check_json "m = j['metadata']
assert m['u8'] == 255 and m['i32'] == -7 and m['f32'] == 0.5 and m['yes'] is True and m['no'] is False and m['nan'] is None
assert m['text'] == 'a\x1b\ufffd' and m['words']['count'] == 5 and m['numbers'] == {'count': 2, 'bytes': 8}"
rm kinds.gguf

# ---- what cannot be read: exit code 3, file and place
expect 3 "$ration" inspect missing.safetensors
says err missing.safetensors hint
head -c 1000 model.safetensors > cut.safetensors
expect 3 "$ration" inspect cut.safetensors
says err cut.safetensors
python3 -c "import struct; open('bad.safetensors', 'wb').write(struct.pack('<Q', 9) + b'{\"a\" : 1}')"
expect 3 "$ration" inspect bad.safetensors
says err 'JSON' 'at byte: 15'
expect 3 "$ration" inspect bad.safetensors --json
check_json "e = j['error']
assert e['status'] == 'RN_CORRUPT' and e['exit_code'] == 3 and e['offset'] == 15 and e['path'] == 'bad.safetensors'"
printf 'PK\3\4xxxxxxxx' > model.bin
expect 3 "$ration" inspect model.bin
says err 'zip archive' hint
mkdir empty && expect 3 "$ration" inspect empty
expect 3 "$ration" inspect /dev/null
if [ -w /dev/full ]; then
    "$ration" inspect model.safetensors > /dev/full 2> err && fail 'a full standard output is no success'
    says err 'standard output'
fi

# ---- usage: exit code 2
expect 2 "$ration" inspect
says err 'missing argument' usage
expect 2 "$ration" inspect a b
expect 2 "$ration" inspect model.safetensors --srot name
says err '--srot' 'did you mean --sort?'
expect 2 "$ration" inspect model.safetensors --sort colour
says err colour 'file|name|size|dtype'
expect 2 "$ration" inspect model.safetensors --limit many
says err --limit many
expect 2 "$ration" inspect model.safetensors --limit
says err 'wants a value'
expect 2 "$ration" inspect model.safetensors --budget 1GiB # another command's
expect 2 "$ration" inspect model.safetensors -Z
expect 2 "$ration" inspect a b c d e f g h i j k
expect 3 "$ration" inspect -- --json # a file of that name
only bad.safetensors cut.safetensors empty model.bin model.safetensors
