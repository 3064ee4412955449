#!/usr/bin/env bash
# labels: release
# bench.sh — ration bench: names, order, outcomes, figures; the defects that other harnesses have, each by name.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

quick=(--samples 3 --sample-time 0.05s)
onnx=$root/tests/golden/onnx/conv.onnx

# order_is_that_of_the_request: also where the baseline, which runs first, is not the first.
expect 0 "$ration" bench mlp --variants eager,cpu+int8,cpu,EAGER --baseline cpu "${quick[@]}" --output order.json
equals order 'eager cpu+int8 cpu eager ' "$(sed -n 's/^      "name": "\(.*\)",/\1/p' order.json | tr '\n' ' ')"
says order.json '"asked": "EAGER"' '"baseline": "cpu"' '"total_inf_time"' '"outcome": "success"' '"reference": "cpu"'
says out 'against cpu' 'planned' 'measured' 'resident'

# unknown_names_are_refused: those of the document that were dropped silently, with what is near to them.
for name in COMPILE_INDUCTOR OPENVINO TENSORRT FP16; do
    expect 3 "$ration" bench mlp --variants "cpu,$name" "${quick[@]}"
    says err "there is no variant '$name'" 'the nearest are'
done
says err 'FP16+EAGER'
expect 3 "$ration" bench mlp --variants COMPILE_TENSORRT
says err 'has no meaning here' 'TensorRT is no engine here'

# the_device_is_the_one_that_was_asked_for, or there is an error; never another.
expect 2 "$ration" bench mlp --variants cuda --device cpu
says err 'runs on cuda, and --device says cpu'
expect 0 "$ration" bench mlp --tier 1 --device cpu "${quick[@]}" --output device.json
[ "$(grep -c '"device": "cpu"' device.json)" -ge 4 ] || fail 'fewer than four variants of the CPU'
grep '"device": "' device.json | grep -qv '"cpu"' && fail 'another device'

# number_42_can_be_reached, in both spellings: without a GPU it is refused as that.
for name in OPTIMIM_QUANTO OPTIMUM_QUANTO; do
    expect 0 "$ration" bench mlp --variants "cpu,${name}_Wf8E5M2+COMPILE_CUDAGRAPHS" "${quick[@]}"
    says out 'cuda+f8_e5m2+graph'
done

# a_missing_engine_breaks_nothing_else: each is looked for by its own variant, in its own process.
RATION_ORT=/no/such/library expect 0 "$ration" bench mlp --variants ort,cpu,xla:/no/such/plugin.so "${quick[@]}" \
    --baseline cpu --output missing.json
equals outcomes 'refused success refused ' \
    "$(sed -n 's/^      "outcome": "\(.*\)",/\1/p' missing.json | tr '\n' ' ')"
says out 'again: ' 'hint: '

# input_is_one_batch_whatever_the_samples: memory does not grow with them. (Samples themselves: unit/bench/harness.)
expect 0 "$ration" bench mlp --variants cpu,eager --samples 6 --processes 3 --output several.json
python3 - << 'PYTHON' || fail 'three processes are not told'
import json
for r in json.load(open('several.json'))['results']:
    t = r['latency']
    assert t['processes'] == 3 and t['between'] >= 0 and t['p50_low_s'] <= t['p50_s'] <= t['p50_high_s'], t
PYTHON
expect 2 "$ration" bench mlp --variants cpu --processes 65
says err 'at most 64'
expect 0 "$ration" bench mlp --variants cpu --samples 20 --output few.json
expect 0 "$ration" bench mlp --variants cpu --samples 2000 --output many.json
held() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1" | head -1; }
difference=$(($(held many.json) - $(held few.json)))
# (A sanitizer's own memory is in that figure.)
is_sanitized || [ ${difference#-} -le 1048576 ] || fail "more samples took $difference bytes more"
says many.json '"samples": 2000' '"total_samples": 2000'

# several_inputs_and_any_batch: an ONNX model, with a file for its input; no batch has to divide the samples.
expect 0 "$ration" bench "$onnx" --variants eager,cpu,cpu+bf16,cpu+least --batch 3 --samples 5 \
    --input "x=$root/tests/golden/onnx/input.npy" --output onnx.json
says onnx.json '"batch_size": 3' '"total_samples": 15'
# kinds_of_four_bits: by every level and by the reference loops, near to f32's outputs; the head says the threads asked for.
expect 0 "$ration" bench mlp --variants reference,cpu+int4,cpu+int4+portable,eager+int4,cpu+nf4,cpu+nf4+portable,eager+nf4 "${quick[@]}" \
    --threads 1 --output four.json
equals four 7 "$(grep -c '"outcome": "success"' four.json)"
says four.json '"threads": 1' '"weights": "int4"' '"weights": "nf4"'
expect 0 "$ration" bench mlp --variants cpu,cpu+q8_0 --batch 1,2,7 "${quick[@]}" --output batches.json
equals batches '1 2 7 1 2 7 ' "$(sed -n 's/.*"batch_size": \([0-9]*\).*/\1/p' batches.json | tr '\n' ' ')"
grep -q '"outcome": "wrong"' batches.json && fail 'a batch was compared with another one'
# A file of other numbers of the same size is not taken for it.
python3 - "$root/tests/golden/onnx/input.npy" << 'PYTHON'
import sys
data = open(sys.argv[1], 'rb').read()
assert b"'<f4'" in data
open('other.npy', 'wb').write(data.replace(b"'<f4'", b"'<i4'"))
PYTHON
expect 0 "$ration" bench "$onnx" --variants cpu --batch 3 --samples 5 --input x=other.npy
says out 'of i32, the input' 'of f32'


# What is planned is what is measured, and nothing is left behind.
sed -n '/"host_memory"/,/"peak_bytes"/p' onnx.json | grep -E 'planned|measured' | head -4 > pairs
planned=$(sed -n 's/.*"planned_bytes": \([0-9]*\).*/\1/p' onnx.json | head -1)
grep -q "\"measured_bytes\": $planned" onnx.json || fail "planned $planned bytes, and measured others"
grep '"left_bytes"' onnx.json | grep -qv '"left_bytes": 0,' && fail 'bytes were left behind'

# a_child_that_dies_is_told: over its budget, and out of time, with stage and command.
expect 0 "$ration" bench resnet18 --variants cpu --budget 20MiB "${quick[@]}" --json
says out '"outcome": "refused"' '"status": "RN_OVER_BUDGET"' 'smallest budget' 'bench-worker resnet18'
expect 0 "$ration" bench mlp --variants cpu --samples 1000000000 --timeout 0.3s --json
says out '"outcome": "timed_out"' '"signal": 9'

# The document's rule: so many samples by parameters; no such model is an error before anything runs.
expect 0 "$ration" bench mlp --variants cpu --samples document --json
says out '"samples": 500' '"parameters": 669706'
expect 3 "$ration" bench no_such_model --variants cpu
says err 'no_such_model'

# The worker by hand says the same; a variant of PyTorch is Python's.
expect 0 "$ration" bench-worker mlp --variants cpu+int8
says out '"name": "cpu+int8"' '"p50_s"' '"weights": "int8'
expect 0 "$ration" bench mlp --variants torch+compile "${quick[@]}"
says out 'python -m ration.bench'

# Ctrl-C: what is done is printed, and the exit code is that of cancelling.
"$ration" bench resnet18 --variants empty,reference --samples 1 > out 2> err &
pid=$!
for ((i = 0; i < 600; i++)); do
    grep -q '1/2 empty: success' err && break
    sleep 0.05
done
kill -INT $pid
wait $pid
equals 'exit code' 6 $?
says out 'empty ' 'reference ' 'cancelled'

# A text model: tokens a second, as llama-bench names them.
expect 0 "$ration" bench "$root/models/default" --variants cpu,eager "${quick[@]}" --output text.json
says text.json '"test": "pp' '"test": "tg' '"tokens_per_s"' 'is for models of tensors'
says out 'tokens/s'

# In turns with another model, or another program: both sides are measured as often, and the verdict is of pairs.
cat > older << SCRIPT
#!/bin/sh
echo "\$@" >> older.log
exec "$ration" "\$@"
SCRIPT
chmod +x older
turns=(--variants cpu --samples 6 --processes 12)
expect 7 "$ration" bench resnet18 --against mlp "${turns[@]}" --fail-if-slower 5% --output turns.json --against-output other.json
says out 'too slow' 'measured in turns'
says turns.json '"processes": 12' '"model": "resnet18"'
says other.json '"processes": 12' '"model": "mlp"'
expect 0 "$ration" bench mlp --against resnet18 "${turns[@]}" --fail-if-slower 5%
says out 'faster'
expect 0 "$ration" bench mlp --against-program ./older "${turns[@]}"
says out 'measured in turns'
equals turns 12 "$(grep -c '^bench-worker mlp' older.log)"
expect 2 "$ration" bench mlp --against mlp --compare turns.json
says err 'both say what to compare with'
expect 2 "$ration" bench mlp --against mlp --variants cpu --processes 5
says err 'at least 12'
expect 3 "$ration" bench mlp --against no_such_model --variants cpu
expect 3 "$ration" bench mlp --against-program ./no_such_program --variants cpu
expect 2 "$ration" bench mlp --fail-if-slower 5%
says err '--against OTHER'

# Wrong options.
for wrong in '--batch 0' '--batch 1,x' '--samples -1' '--samples few' '--tier 4' '--timeout soon' '--sweep all' \
    '--baseline ort'; do
    # shellcheck disable=SC2086
    "$ration" bench mlp --variants cpu $wrong > out 2> err
    code=$?
    [ $code = 2 ] || [ $code = 3 ] || fail "exit code $code of $wrong"
done
