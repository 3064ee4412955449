#!/usr/bin/env bash
# labels: release
# ort.sh — models written as ONNX files; what --device ort runs; what onnx's checker says of the files. The second half
# needs ONNX Runtime, the third the Python package onnx ($RATION_PYTHON).
ort=${RATION_ORT:-$(realpath build/python/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.1* 2> /dev/null)}
python=${RATION_PYTHON:-python3}
default=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# near WHAT LIMIT FILE FILE: the numbers behind the colon of each first line differ by less.
near() {
    paste <(head -1 "$3" | sed 's/.*: //' | tr ' ' '\n') <(head -1 "$4" | sed 's/.*: //' | tr ' ' '\n') |
        awk -v most="$2" '/[0-9]/ { d = $1 - $2; if (d < 0) d = -d; n++; if (d > most) bad = 1 } END { exit bad || n < 4 }' ||
        fail "$1"
}

# ---- files
expect 0 "$ration" convert "$default" model.onnx --budget 64MiB
says out 'model.onnx.data' 'peak resident'
expect 0 "$ration" convert "$default" old.onnx --opset 18
expect 2 "$ration" convert "$default" none.onnx --opset 17
says err 'opset 17'
expect 2 "$ration" convert "$default" none.onnx --to f16
says err '--to int8'
# Weights of 8 bits: a quarter of the bytes for what is multiplied, and nearly the same numbers.
golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../golden/onnx")
expect 0 "$ration" convert "$golden/conv.onnx" conv8.onnx --to int8
expect 0 "$ration" run conv8.onnx --input "x=$golden/input.npy"
mv out eight
expect 0 "$ration" run "$golden/conv.onnx" --input "x=$golden/input.npy"
near 'numbers of 8-bit weights' 0.03 eight out
cmp -s eight out && fail 'weights of 8 bits are those of 32'
expect 2 "$ration" convert resnet18 none.onnx
says err '--weights'
equals 'files of refused conversions' 0 "$(find . -name 'none*' | wc -l)"

# ---- the device
expect 2 "$ration" run mlp --device 'ort?opt=9'
says err 'opt is 0 to 3'
expect 3 env RATION_ORT=/no/such/library.so "$ration" run mlp --device ort
says err 'RATION_ORT'
if [ -e "$ort" ]; then
    export RATION_ORT=$ort
    for target in cpu ort 'ort?pack=0' 'ort?opt=3' 'ort?opt=0&threads=1'; do
        expect 0 "$ration" run "$default" --device "$target" --activations f32 -p 'Once upon a time' -n 40 -g
        if [ -e text ]; then cmp -s text out || fail "another text on $target"; else mv out text; fi
        expect 0 "$ration" run simple --device "$target"
        says out 'logits'
    done
    expect 4 "$ration" run "$default" --device ort -p x --budget +1MiB
    says err 'smallest budget'
    # Copies of weights are the first thing that a small budget has no room for.
    expect 0 "$ration" plan "$default" --device ort
    says out 'packed ahead' 'products are of f32'
    expect 4 "$ration" plan "$default" --device ort --budget 1MiB
    least=$(grep -o '[0-9]* bytes' err out | grep -o '[0-9]* ' | sort -n | tail -1)
    expect 0 "$ration" run "$default" --device ort --activations f32 -p 'Once upon a time' -n 40 -g --budget "$((least))"
    cmp -s text out || fail 'another text within the smallest budget'
    expect 0 "$ration" plan "$default" --device ort --budget "$((least))"
    says out 'there are no copies'
    # Then its own kernels compute the first blocks, in the same budget, unless that is to be exact.
    expect 0 "$ration" run resnet18 --device cpu
    mv out logits
    expect 0 "$ration" plan resnet18 --device ort --budget +60MiB
    says out 'the CPU computes the first'
    expect 0 "$ration" run resnet18 --device ort --budget +60MiB
    near 'logits with blocks on the CPU' 0.001 logits out
    expect 4 "$ration" plan resnet18 --device ort --budget +60MiB --exact
else
    leave_out 'no ONNX Runtime'
fi

# ---- the checker
if "$python" -c 'import onnx' 2> /dev/null; then
    for file in model.onnx old.onnx; do
        "$python" -c "import onnx; onnx.checker.check_model('$file', full_check=True)" || fail "$file"
    done
else
    leave_out 'no Python package onnx'
fi
