#!/usr/bin/env bash
# labels: release
# train_diffusion.sh — ration train --objective diffusion of every family: additions and whole denoisers of Stable Diffusion, XL and Flux,
# over frozen weights as they are and quantised, within budgets; LoRA files; what is wrong with models and pictures.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
models=$root/tests/golden/image

mkdir data
python3 - << 'PYTHON'
import struct, zlib
def chunk(kind, body):
    return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
for i in range(4):
    side = 64
    lines = b''.join(b'\0' + bytes((37 * i + x * y) % 256 for x in range(3 * side)) for y in range(side))
    open(f'data/{i}.png', 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)) +
                                      chunk(b'IDAT', zlib.compress(lines)) + chunk(b'IEND', b''))
    open(f'data/{i}.txt', 'w').write(f'a red circle {i}')
PYTHON
# The pixels of two pictures of 32 x 32, behind what the files say: they name the adapters.
same() { cmp <(tail -c 3000 "$1") <(tail -c 3000 "$2") > /dev/null; }
common=(--objective diffusion --data data --size 32 --batch-size 2 --threads 2 --seed 5 --rate 0.01 --warmup 0 --log-every 1 --steps 2)

# Every family: phases of both text encoders, planned = held, LoRA files that `ration image` draws with.
for family in sd xl flux; do
  expect 0 "$ration" train "$models/$family" "${common[@]}" --out "$family" --rank 2 --json
  says err 'encode 32x32: 4 done' 'text: 5 done' 'step 2/2' "adapter in $family"
  [ "$family" = sd ] || says err 'text 2: 5 done'
  python3 - "$family" << 'PYTHON' || fail "$family: planned and held differ, or the files are not what they should be"
import json, struct, sys
r = json.load(open('out'))
assert r['steps'] == 2 and r['planned_bytes'] == r['held_bytes'] > 0, r
def names(path):
    data = open(path, 'rb').read()
    return {k: v['shape'] for k, v in json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]]).items() if k != '__metadata__'}
f = sys.argv[1]
ours, kohya = names(f'{f}/pytorch_lora_weights.safetensors'), names(f'{f}/lora_kohya.safetensors')
prefix = 'transformer.' if f == 'flux' else 'unet.'
assert ours and all(k.startswith(prefix) for k in ours), list(ours)[:3]
assert all(k.startswith('lora_unet_') for k in kohya), list(kohya)[:3]
if f == 'flux':  # q, k and v are one module, of three times the rank
    down, up = (kohya[f'lora_unet_double_blocks_0_img_attn_qkv.lora_{k}.weight'] for k in ('down', 'up'))
    assert down[0] == up[1] == 6, (down, up)
PYTHON
  # Both files change the picture, and alike.
  for lora in '' "$family/pytorch_lora_weights.safetensors" "$family/lora_kohya.safetensors"; do
    expect 0 "$ration" image "$models/$family" -p 'a red circle' --size 32 --steps 1 --seed 3 --threads 2 ${lora:+--lora "$lora:50"} -o "p$(basename "$lora" .safetensors).png"
  done
  same p.png ppytorch_lora_weights.png && fail "$family: the additions change nothing"
  same ppytorch_lora_weights.png plora_kohya.png || fail "$family: the two files draw other pictures"
  mv p.png "p-$family.png"
done

# With CLIP's text encoders: they are no phase of the cache (T5 is), files name their modules, `ration image` draws with both files alike; at a
# smaller budget and after a stop the same bytes.
for family in sd xl flux; do
  with=("${common[@]}" --train-text-encoders --caption-dropout 0.5 --rank 2)
  expect 0 "$ration" train "$models/$family" "${with[@]}" --out "$family-te" --json
  grep -q '^text: ' err && fail "$family: CLIP's answers were kept"
  [ "$family" != flux ] || says err 'text 2: 5 done'
  python3 - "$family" << 'PYTHON' || fail "$family: planned and held differ, or the files are not what they should be"
import json, struct, sys
r = json.load(open('out'))
assert r['steps'] == 2 and r['planned_bytes'] == r['held_bytes'] > 0, r
def names(path):
    data = open(path, 'rb').read()
    return list(json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]]))
f = sys.argv[1]
ours, kohya = names(f'{f}-te/pytorch_lora_weights.safetensors'), names(f'{f}-te/lora_kohya.safetensors')
prefixes = {'sd': ['lora_te_'], 'xl': ['lora_te1_', 'lora_te2_'], 'flux': ['lora_te1_']}[f]
for k in ('text_encoder.', 'text_encoder_2.')[:len(prefixes)]:
    assert f'{k}text_model.encoder.layers.0.self_attn.q_proj.lora_A.weight' in ours, ours
for k in prefixes:
    assert f'{k}text_model_encoder_layers_0_self_attn_q_proj.lora_up.weight' in kohya, kohya
assert any(k.startswith('lora_unet_') for k in kohya)
PYTHON
  for lora in pytorch_lora_weights lora_kohya; do
    expect 0 "$ration" image "$models/$family" -p 'a red circle' --size 32 --steps 1 --seed 3 --threads 2 --lora "$family-te/$lora.safetensors:50" -o "t$lora.png"
  done
  same tpytorch_lora_weights.png tlora_kohya.png || fail "$family: the two files draw other pictures"
  same "p-$family.png" tlora_kohya.png && fail "$family: the additions change nothing"
  [ "$family" = flux ] || continue
  expect 0 "$ration" train "$models/$family" "${with[@]}" --out "$family-ter" --steps 1 --schedule constant
  expect 0 "$ration" train "$models/$family" "${with[@]}" --out "$family-ter" --schedule constant --resume
  expect 0 "$ration" train "$models/$family" "${with[@]}" --out "$family-tew" --schedule constant
  cmp "$family-ter/lora_kohya.safetensors" "$family-tew/lora_kohya.safetensors" || fail "$family: resumed, other bytes"
done
expect 0 "$ration" train "$models/xl" "${with[@]}" --out te-roomy --exact
expect 0 "$ration" train "$models/xl" "${with[@]}" --out te-tight --exact --budget +7MiB
cmp te-roomy/lora_kohya.safetensors te-tight/lora_kohya.safetensors || fail 'text encoders: another budget, other bytes'
# An encoder alone, by its modules' names; a part that others have cached is made anew; their own weights are refused.
expect 0 "$ration" train "$models/sd" "${common[@]}" --train-text-encoders --target fc1 --target 'text_model.*.q_proj' --rank 2 --out te-alone
python3 - << 'PYTHON' || fail 'targets of the encoder alone'
import json, struct
data = open('te-alone/pytorch_lora_weights.safetensors', 'rb').read()
names = [k for k in json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]]) if k != '__metadata__']
assert names and all(k.startswith('text_encoder.') and ('fc1' in k or 'q_proj' in k) for k in names), names
PYTHON
expect 3 "$ration" train "$models/sd" "${common[@]}" --train-text-encoders --method full --out te-full
says err 'text encoders themselves are not trained' '--method lora'

# The denoiser itself: a folder that is drawn with.
for family in xl flux; do
  expect 0 "$ration" train "$models/$family" "${common[@]}" --out "$family-full" --method full --rate 0.0001
  says err "model in $family-full/model"
  expect 0 "$ration" image "$family-full/model" -p 'a red circle' --size 32 --steps 1 --threads 2 -o full.png
done

# v prediction, Min-SNR, offset noise, dropped captions, an average; stopped and resumed, the same bytes.
cp -r "$models/xl" v && sed -i 's/"epsilon"/"v_prediction"/' v/scheduler/scheduler_config.json && grep -q v_prediction v/scheduler/scheduler_config.json || fail 'no v'
more=(--min-snr 5 --offset-noise 0.05 --caption-dropout 0.5 --ema 0.9 --schedule constant --rank 2 --target 'to_q' --target ff.net.0.proj --target conv1)
expect 0 "$ration" train v "${common[@]}" "${more[@]}" --out whole --steps 4
expect 0 "$ration" train v "${common[@]}" "${more[@]}" --out parts --steps 2
expect 0 "$ration" train v "${common[@]}" "${more[@]}" --out parts --steps 4 --resume
cmp whole/pytorch_lora_weights.safetensors parts/pytorch_lora_weights.safetensors || fail 'resumed: other bytes'

# Within a smaller budget the same bits, with the base streamed and blocks computed again; below the smallest a refusal.
expect 0 "$ration" train "$models/xl" "${common[@]}" --out roomy --rank 2 --exact
expect 0 "$ration" train "$models/xl" "${common[@]}" --out tight --rank 2 --exact --budget +7MiB
cmp roomy/pytorch_lora_weights.safetensors tight/pytorch_lora_weights.safetensors || fail 'another budget, other bytes'
expect 4 "$ration" train "$models/xl" "${common[@]}" --out none --rank 2 --budget +2MiB

# A quantised base: kept beside the training, used again; the loss is near that of the weights as they are.
for dtype in nf4 int8; do
  expect 0 "$ration" train "$models/flux" "${common[@]}" --out "q$dtype" --method qlora --base-dtype $dtype --rank 2
  says err "matrices to $dtype"
  expect 0 "$ration" train "$models/flux" "${common[@]}" --out "q$dtype" --method qlora --base-dtype $dtype --rank 2 --steps 3 --resume
  grep -q 'matrices to' err && fail 'quantised twice'
done
expect 0 "$ration" train "$models/xl" "${common[@]}" --out qxl --method qlora --rank 2
python3 - << 'PYTHON' || fail 'the quantised base is another model'
import json
def first(path): return json.loads(open(f'{path}/log.jsonl').readline())['loss']
for a, b, most in (('flux', 'qnf4', 0.2), ('flux', 'qint8', 0.02), ('xl', 'qxl', 0.2)):
    assert abs(first(b) / first(a) - 1) < most and first(b) != first(a), (a, b, first(a), first(b))
PYTHON

# Moves by name are taken (and change no bit with --exact); options that say nothing of pictures are refused.
expect 0 "$ration" train "$models/xl" "${common[@]}" --out moved --rank 2 --exact --recompute all --resident-blocks 3 --offload 'up_blocks.*' --attention-slice 8
cmp roomy/pytorch_lora_weights.safetensors moved/pytorch_lora_weights.safetensors || fail 'moves by name, other bytes'
expect 3 "$ration" train "$models/xl" "${common[@]}" --out wrong --rank-pattern to_q=4
says err '--rank-pattern is not built for image models'

# What is wrong is named.
cp -r "$models/xl" broken && rm -r broken/text_encoder_2
expect 3 "$ration" train broken "${common[@]}" --out wrong
says err "text_encoder_2 is missing"
rm -r broken && cp -r "$models/xl" broken && rm broken/vae/*.safetensors
expect 3 "$ration" train broken "${common[@]}" --out wrong
says err "the model's vae has no weights"
rm -r broken && cp -r "$models/flux" broken && rm -r broken/transformer
expect 3 "$ration" train broken "${common[@]}" --out wrong
says err 'transformer is missing'
mkdir not && cp data/* not/ && echo 'no picture' > not/9.png && echo 'whose?' > not/orphan.txt
expect 3 "$ration" train "$models/xl" "${common[@]/#data/not}" --out wrong
says err '9.png'
rm not/9.png
expect 0 "$ration" train "$models/xl" "${common[@]/#data/not}" --out orphan --rank 2
says err '1 captions without a picture'
expect 2 "$ration" train "$models/xl" "${common[@]}" --out wrong --target nothing
says err "the target 'nothing' names no weight"
expect 2 "$ration" image "$models/sd" -p x --size 32 --lora flux/pytorch_lora_weights.safetensors -o no.png
says err 'transformer.'
