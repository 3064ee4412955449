#!/usr/bin/env bash
# labels: release
# run_graph.sh — ration run, plan, inspect and convert of models that take tensors: ONNX files and the builtin ones.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

onnx=$root/tests/golden/onnx
model=$onnx/conv.onnx

# Two outputs, a file each; the numbers of the table are those of the file.
expect 0 "$ration" run "$model" --input "x=$onnx/input.npy" -o y.npy
says out 'y (3, 10) f32: ' 'chances (3, 10) f32: '
says err 'opset 17' 'all weights stay' 'plan' 'a run'
[ -s y.y.npy ] && [ -s y.chances.npy ] || fail 'a file is missing'
equals bytes "$(wc -c < "$onnx/output.npy")" "$(wc -c < y.y.npy)"
expect 0 "$ration" run "$model" --input "x=$onnx/input.npy" -q --output y=one.npy
cmp -s one.npy y.y.npy || fail 'another run, other bytes'

# The smallest budget gives the same bytes; below it there is a refusal with a number.
expect 0 "$ration" run "$model" --input "x=$onnx/input.npy" --json --budget +64MiB
says out '"outputs"' '"name": "y"' '"shape"' '"planned_bytes"' '"seconds"'
smallest=$(sed -n 's/.*"smallest_budget_bytes": *\([0-9]*\).*/\1/p' out | head -1)
expect 0 "$ration" run "$model" --input "x=$onnx/input.npy" -q --output y=least.npy --budget "+$smallest"
cmp -s least.npy y.y.npy || fail 'a small budget gives others'
expect 4 "$ration" run "$model" --input "x=$onnx/input.npy" --budget +1000
says err 'smallest'

# What plan says works, for the whole process: predicted = measured. (With sanitizers a process is counted in granules of 32 MiB, and may
# need one more than the last one.)
expect 0 "$ration" plan "$model" --dim batch=3 --json
least=$(sed -n 's/.*"smallest_budget_bytes": *\([0-9]*\).*/\1/p' out | head -1)
granule=0
is_sanitized && granule=$((32 << 20))
expect 0 "$ration" run "$model" --input "x=$onnx/input.npy" -q --output y=whole.npy --budget "$((least + granule))"
cmp -s whole.npy y.y.npy || fail 'a small budget gives others'

# Inputs that are not given are made up, and it says so.
expect 0 "$ration" run "$model"
says err 'input x (rows, 3, 12, 12) f32 is made up'
expect 0 "$ration" run mlp
says err 'made-up weights' 'is made up'
says out 'logits (1, 10) f32'

# Pictures: cut to the input's shape; the best classes by name.
picture=$root/tests/golden/images/photo.png
seq 10 | sed 's/^/class /' > labels
expect 0 "$ration" run "$model" --input "x=$picture" --mean 0.5,0.5,0.5 --std 0.25 --labels labels --top 3 -q
says out 'y (1, 10) f32' '%  class '
equals classes 6 "$(grep -c class out)" # of both outputs
expect 0 "$ration" run "$model" --input "x=$picture" --resize 20 --bgr --scale 1 --labels labels --json
says out '"label": "class ' '"chance"'
expect 0 "$ration" run "$model" --input "x=$picture" --resize stretch -q
expect 2 "$ration" run "$model" --input "x=$picture" --resize 5
says err 'resize'
expect 2 "$ration" run "$model" --input "x=$picture" --resize none
expect 2 "$ration" run "$model" --input "x=$picture" --std 0
expect 2 "$ration" run "$model" --input "x=$picture" --mean a,b
expect 2 "$ration" run mlp --input "x=$picture"
head -c 500 "$picture" > cut.png
expect 3 "$ration" run "$model" --input x=cut.png
says err 'cut.png' 'PNG'

# Other commands.
expect 0 "$ration" plan "$model" --budget +64MiB
says out 'conv.onnx' 'planned'
expect 0 "$ration" plan "$onnx/external.onnx" --dim tokens=4 --budget +64MiB
expect 0 "$ration" inspect "$onnx/external.onnx"
says out 'onnx' 'i8'
expect 0 "$ration" convert "$model" weights.safetensors --to f16
expect 0 "$ration" inspect weights.safetensors
says out 'w1' 'f16'

# What was converted is what the model runs with.
expect 0 "$ration" run "$model" --weights weights.safetensors --input "x=$onnx/input.npy" -q --output y=f16.npy
expect 0 "$ration" convert "$model" int8.safetensors --to int8
expect 0 "$ration" run "$model" --weights int8.safetensors --input "x=$onnx/input.npy" -q --output y=int8.npy
expect 0 "$ration" convert "$model" q8.gguf --to q8_0
expect 0 "$ration" run "$model" --weights q8.gguf --input "x=$onnx/input.npy" -q --output y=q8.npy
expect 0 "$ration" plan "$model" --weights int8.safetensors --budget +64MiB
python3 - << 'EOF' || fail 'converted weights give other numbers'
import struct
def read(path):
    data = open(path, 'rb').read()
    begin = 10 + struct.unpack('<H', data[8:10])[0]
    return struct.unpack('<%df' % ((len(data) - begin) // 4), data[begin:])
want = read('one.npy')
for path, most in (('f16.npy', 2e-3), ('int8.npy', 4e-2), ('q8.npy', 4e-2)):
    got = read(path)
    error = max(abs(a - b) for a, b in zip(want, got)) / max(map(abs, want))
    assert len(got) == len(want) and error <= most, (path, error)
assert read('f16.npy') != want and read('int8.npy') != want
EOF
expect 3 "$ration" run "$onnx/external.onnx" --dim tokens=4 --weights int8.safetensors
says err 'is not in the file of weights'

# Mistakes are named.
expect 2 "$ration" run "$model" --input x
says err 'NAME=FILE'
expect 2 "$ration" run "$model" --input "z=$onnx/input.npy"
says err "no input 'z'"
head -c 100 "$onnx/input.npy" > cut.npy
expect 3 "$ration" run "$model" --input x=cut.npy
expect 2 "$ration" run "$model" --dim batch=none
expect 2 "$ration" run "$model" --dim batches=2
says err "no input has an axis called 'batches'"
expect 0 "$ration" run "$model" --dim batch=2 -q
says out 'y (2, 10) f32'
head -c 3000 "$model" > cut.onnx
expect 3 "$ration" run cut.onnx
says err 'cut.onnx'
expect 3 "$ration" plan "$onnx/external.onnx" --budget +64MiB
says err Shape rows "--dim"
