#!/usr/bin/env bash
# labels: release
# convert.sh — every pair that goes together, every refusal, and what remains when it is interrupted, killed or out of
# space: nothing.
default=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

make_tensors model.safetensors

# ---- pairs
for pair in f32.safetensors f16.safetensors bf16.safetensors f8_e4m3.safetensors f8_e5m2.safetensors \
    int8.safetensors int4.safetensors nf4.safetensors f32.gguf f16.gguf bf16.gguf q8_0.gguf q4_0.gguf; do
    to=${pair%.*} out=out.${pair#*.}
    expect 0 "$ration" convert model.safetensors $out --to $to
    says out 'tensors converted' 'of a budget of 256 MiB'
    expect 0 "$ration" inspect $out
    says out 'model.layers.10.attn.weight'
    if [ ${pair#*.} = gguf ]; then # and back
        expect 0 "$ration" convert $out back.safetensors --to f32
        expect 0 "$ration" inspect back.safetensors --json
        check_json "assert j['tensor_count'] == 16"
        rm back.safetensors
    fi
    rm $out
done
expect 0 "$ration" convert model.safetensors copy.safetensors # no type: only the container could change
expect 0 "$ration" inspect copy.safetensors --json
mv out copy.json
expect 0 "$ration" inspect model.safetensors --json
python3 -c "
import json
a, b = json.load(open('copy.json')), json.load(open('out'))
key = lambda j: sorted((t['name'], t['dtype'], t['shape']) for t in j['tensors'])
assert key(a) == key(b) and a['metadata'] == b['metadata']" || fail 'a copy differs'
rm copy.safetensors copy.json

# ---- JSON, rows, excludes
expect 0 "$ration" convert model.safetensors out.safetensors --to int4 --json --threads 2 -b 192MiB --exclude '*.2.*' -x ids
check_json "
t = {t['name']: t for t in j['tensors']}
assert len(t) == 16 and j['converted'] == 6 and j['left_alone'] == 10 and j['budget_bytes'] == 192 << 20
w = t['model.layers.0.attn.weight']
assert w['to'] == 'int4' and 0 < w['relative_error'] < 0.2 and w['mean_error'] < w['max_error']
assert t['model.layers.2.mlp.weight']['left_alone'] == 'excluded' and t['model.layers.2.mlp.weight']['to'] == 'f16'
assert t['model.embed_tokens.weight']['left_alone'] == 'embedding or norm'
assert t['ids']['left_alone'] == 'integers'
assert j['bytes_out'] == __import__('os').path.getsize('out.safetensors')
assert j['ledger']"
expect 0 "$ration" convert model.safetensors out.safetensors --to int8 --verbose --no-default-excludes
says out 'relative' 'model.embed_tokens.weight' 'not a matrix' 'largest relative error'
expect 0 "$ration" inspect out.safetensors
says out 'model.embed_tokens.weight._data'

expect 0 "$ration" convert model.safetensors out.safetensors --to f16 -x '*.0.*' --json # plain types heed it, too
check_json "
t = {t['name']: t for t in j['tensors']}
assert t['model.layers.0.attn.weight']['to'] == 'f32' and t['model.layers.0.attn.weight']['left_alone'] == 'excluded'
assert t['model.layers.1.attn.weight']['to'] == 'f16'"
expect 0 "$ration" convert model.safetensors out.gguf --to f16 --json # where llama.cpp wants f32, it is f32
check_json "
t = {t['name']: t for t in j['tensors']}
assert t['model.layers.0.norm.weight']['to'] == 'f32' and t['model.layers.0.attn.weight']['to'] == 'f16'
assert j['tensors_only'] is True"
rm out.gguf

# ---- models: into GGUF with names, keys and vocabulary, into a folder and back; a file that looks like one and is none
# is not made
mkdir hf
cp model.safetensors hf
echo '{"architectures": ["LlamaForCausalLM"]}' > hf/config.json
for in in hf hf/model.safetensors; do
    expect 3 "$ration" convert $in no.gguf --to f16
    says err 'model_type'
    [ ! -e no.gguf ] || fail 'a refusal leaves a file'
done
rm hf/config.json
expect 0 "$ration" convert hf yes.gguf --to f16
says out 'holds tensors only'
rm -r hf yes.gguf
expect 0 "$ration" convert "$default" small.gguf --to q4_k_m --json
check_json "
t = {t['name']: t['to'] for t in j['tensors']}
assert t['output.weight'] == 'q8_0' and t['blk.1.attn_q.weight'] == 'q5_0' and t['output_norm.weight'] == 'f32'
assert j['tensors_only'] is False and j['requantised'] == 0 and 'warning' not in j"
expect 0 "$ration" convert small.gguf again.gguf --to q2_k
says out 'quantised before: losses add up'
expect 0 "$ration" convert small.gguf folder
[ "$(ls folder | tr '\n' ' ')" = 'config.json model.safetensors tokenizer.json tokenizer_config.json ' ] || fail 'the folder'
expect 0 "$ration" convert folder copied/ --to bf16
cmp folder/tokenizer.json copied/tokenizer.json || fail 'files beside the weights do not travel'
for in in small.gguf folder copied; do
    expect 0 "$ration" run $in -p 'Once upon a time' -n 8 --greedy -q
done
expect 3 "$ration" convert small.gguf small2.gguf --to q4_k_m --imatrix missing.dat
expect 2 "$ration" convert small.gguf small2.gguf --to q4_k_xl
[ ! -e small2.gguf ] || fail 'a refusal leaves a file'
rm -r small.gguf again.gguf folder copied
expect 0 "$ration" convert model.safetensors out.safetensors --to int8

# ---- refusals; what was there stays
cp out.safetensors before
expect 3 "$ration" convert model.safetensors out.gguf --to int8
says err 'int8 does not go into a GGUF file' hint
expect 3 "$ration" convert model.safetensors out.safetensors --to q4_0
says err 'q4_0 does not go into a safetensors file'
expect 3 "$ration" convert model.safetensors out.safetensors --to i32
expect 3 "$ration" convert model.safetensors packed.gguf --packed
says err 'is no model' 'mixtures of experts'
[ ! -e packed.gguf ] || fail 'a refusal leaves a file'
expect 3 "$ration" convert out.safetensors again.safetensors --to int8
says err 'quantised already'
expect 3 "$ration" convert missing.safetensors out.safetensors --to f16
expect 3 "$ration" convert model.safetensors no/such/folder.safetensors --to f16
expect 2 "$ration" convert model.safetensors out.bin --to f16
says err 'the ending says no container'
expect 2 "$ration" convert model.safetensors out.safetensors --to int3
says err 'int3' hint
expect 2 "$ration" convert model.safetensors
expect 2 "$ration" convert model.safetensors out.safetensors more
expect 2 "$ration" convert model.safetensors out.safetensors --to f16 --threads some
expect 2 "$ration" convert model.safetensors out.safetensors --to f16 --threads 5000
expect 2 "$ration" convert model.safetensors out.safetensors --to f16 --budget lots
expect 2 "$ration" convert model.safetensors out.safetensors --to f16 --budget 0
expect 2 "$ration" convert model.safetensors out.safetensors --to f16 --budget cuda:0=1GiB
says err 'only the host can be used'
expect 4 "$ration" convert model.safetensors out.safetensors --to f16 --budget 1MiB
says err 'smallest budget that works'
expect 4 "$ration" convert model.safetensors out.safetensors --to f16 --budget 1MiB --json
check_json "assert j['error']['status'] == 'RN_OVER_BUDGET' and j['error']['exit_code'] == 4
open('least', 'w').write(str(j['error']['refusal']['smallest_budget_bytes']))"
cmp out.safetensors before || fail 'a refusal changed the output'
if ! is_sanitized; then # the sanitizers' own memory grows as it likes
    expect 0 "$ration" convert model.safetensors out.safetensors --to f16 --budget "$(cat least)"
fi
rm -f out.safetensors before least
only model.safetensors

# ---- stopped in the middle
"$examples/make_model" big.safetensors 40MiB > out 2> err || fail 'make_model'

# It listens to signals, or has ended already.
wait_for_start() {
    until catches "$1" INT; do kill -0 "$1" 2> /dev/null || break; done
}

# interrupt SIGNAL CODE LEFT_OVERS: sends the signal later and later until the program ends with that code.
interrupt() {
    local delay got seen=0
    for delay in 0.01 0.02 0.03 0.05 0.1 0.15 0.2 0.3 0.4 0.6 0.8 1.2 1.8 2.5; do
        got=0
        "$ration" convert big.safetensors stopped.safetensors --to int4 --threads 1 > out 2> err &
        local pid=$!
        wait_for_start $pid
        sleep $delay
        kill -s "$1" $pid 2> /dev/null
        wait $pid 2> /dev/null || got=$?
        if [ $got = 0 ]; then # it was faster, or too slow to have heard
            rm -f stopped.safetensors
            continue
        fi
        [ ! -e stopped.safetensors ] || fail "$1 after $delay s leaves an output"
        rm -f $3
        only big.safetensors model.safetensors
        [ $got = "$2" ] || continue
        seen=$((seen + 1))
        [ "$1" = KILL ] || says err 'ration: '
        [ $seen -lt 3 ] || break
    done
    [ $seen -gt 0 ] || fail "never exit code $2 after $1, last $got"
}
interrupt INT 6 ''
interrupt TERM 6 ''
interrupt KILL 137 'stopped.safetensors.*.tmp'

# ---- a full disk
if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=8m tmpfs small 2> /dev/null; then
    cleanups+=("umount '$scratch/small'")
    expect 3 "$ration" convert big.safetensors small/out.safetensors --to int4
    says err 'left'
    equals 'files on the full disk' 0 "$(find small -type f | wc -l)"
    expect 0 "$ration" convert model.safetensors small/out.safetensors --to int4
    rm small/out.safetensors
    umount small && cleanups=()
else
    echo 'no mount: the full disk is not tested'
fi
