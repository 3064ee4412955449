#!/usr/bin/env bash
# labels: release
# train_images.sh — ration train --objective autoencoder and diffusion, on pictures that examples/train_pictures draws.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

"$examples/train_pictures" draw data 24 3 || fail 'no pictures'
"$examples/train_pictures" begin start || fail 'no model to begin with'
common=(--data data --size 32 --batch-size 2 --threads 2 --seed 5 --rate 0.001 --log-every 1)

# A denoiser needs latents: the VAE comes first.
expect 3 "$ration" train start --objective diffusion "${common[@]}" --out early --steps 1
says err "the model's vae has no weights" '--objective autoencoder'

# An autoencoder from nothing: planned = held, its model has weights and the scale of its latents.
expect 0 "$ration" train start --objective autoencoder "${common[@]}" --out vae --steps 3 --validation 0.2 --evaluate-every 2 --json
says err 'data: 24 pictures' '32 x 32: 24' 'step' 'evaluate' 'validation' 'model in vae/model'
python3 - << 'PYTHON' || fail 'planned and held differ'
import json
r = json.load(open('out'))
assert r['steps'] == 3 and r['planned_bytes'] == r['held_bytes'] > 0, r
c = json.load(open('vae/model/vae/config.json'))
assert c['scaling_factor'] != 1.0 and c['latent_channels'] == 4, c
PYTHON
[ -s vae/model/vae/diffusion_pytorch_model.safetensors ] || fail 'the VAE has no weights'
expect 2 "$ration" train start --objective autoencoder "${common[@]}" --out vae --steps 3
says err 'has a training already'

# The denoiser, from nothing, with all that a step can have; stopped and resumed, the same bytes.
options=(--ema 0.9 --min-snr 5 --offset-noise 0.05 --caption-dropout 0.5)
expect 0 "$ration" train vae/model --objective diffusion "${common[@]}" "${options[@]}" --out whole --steps 4 --schedule constant
says err 'encode 32x32: 24 done' 'text: ' 'step 4/4'
expect 0 "$ration" train vae/model --objective diffusion "${common[@]}" "${options[@]}" --out parts --steps 2 --schedule constant
expect 0 "$ration" train vae/model --objective diffusion "${common[@]}" "${options[@]}" --out parts --steps 4 --schedule constant --resume
grep -q 'encode' err && fail 'latents were made twice'
cmp whole/model/unet/diffusion_pytorch_model.safetensors parts/model/unet/diffusion_pytorch_model.safetensors || fail 'resumed: other bytes'
expect 2 "$ration" train vae/model --objective diffusion "${common[@]}" --out parts --steps 5 --resume
says err 'another training'

# Fine-tuned: the weights of its own model are read. The plan, without loading anything.
expect 0 "$ration" train whole/model --objective diffusion "${common[@]}" --out again --steps 1 --method full
# Additions alone: in diffusers' names and in kohya's; conv kernels, too.
expect 0 "$ration" train whole/model --objective diffusion "${common[@]}" --out adapter --steps 2 --rank 4 --alpha 8 --target to_q --target 'mid_block.*.conv1'
says err 'adapter in adapter'
python3 - << 'PYTHON' || fail 'the additions are not those that were asked for'
import json, struct
def names(path):
    data = open(path, 'rb').read()
    return {k: v['shape'] for k, v in json.loads(data[8:8 + struct.unpack('<Q', data[:8])[0]]).items() if k != '__metadata__'}
ours, kohya = names('adapter/pytorch_lora_weights.safetensors'), names('adapter/lora_kohya.safetensors')
assert len(kohya) == len(ours) // 2 * 3 > 0, (len(ours), len(kohya))
assert ours['unet.mid_block.resnets.0.conv1.lora_A.weight'] == [4, 80, 3, 3], ours
assert kohya['lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_q.lora_up.weight'] == [80, 4]
assert kohya['lora_unet_mid_block_resnets_0_conv1.alpha'] == []
PYTHON
expect 2 "$ration" train whole/model --objective diffusion "${common[@]}" --out wrong --steps 1 --target nothing
says err "the target 'nothing' names no weight"
cat > train.toml << TOML
[train]
base = "whole/model"
objective = "diffusion"
data = "data"
out = "planned"
size = "32"
batch = 2
TOML
expect 0 "$ration" plan train.toml
says out 'encode 32x32' 'text' 'step' 'save'
[ ! -e planned ] || fail 'a plan left files behind'

# Pictures of three shapes: a bucket, and a phase, each; stopped and resumed, the same bytes.
mkdir shapes
python3 - << 'PYTHON'
import struct, zlib
def chunk(kind, body):
    return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
for i in range(9):
    width, height = ((32, 32), (60, 30), (30, 60))[i % 3]
    lines = b''.join(b'\0' + bytes((37 * i + x * y) % 256 for x in range(3 * width)) for y in range(height))
    open(f'shapes/{i}.png', 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) +
                                      chunk(b'IDAT', zlib.compress(lines)) + chunk(b'IEND', b''))
    if i: open(f'shapes/{i}.txt', 'w').write(f'number {i}')
PYTHON
shapes=("${common[@]/#data/shapes}" --schedule constant --validation 0.5 --evaluate-every 2)
expect 0 "$ration" train whole/model --objective diffusion "${shapes[@]}" --out three --steps 4 --method full
says err 'data: 9 pictures' '1 without a caption' '32 x 32: 3' '40 x 24: 3' '24 x 40: 3' 'encode 40x24' 'step 24x40' 'step 40x24' 'evaluate 32x32' 'validation'
expect 0 "$ration" train whole/model --objective diffusion "${shapes[@]}" --out thrice --steps 2 --method full
expect 0 "$ration" train whole/model --objective diffusion "${shapes[@]}" --out thrice --steps 4 --method full --resume
cmp three/model/unet/diffusion_pytorch_model.safetensors thrice/model/unet/diffusion_pytorch_model.safetensors || fail 'resumed: other bytes'
expect 0 "$ration" train whole/model --objective diffusion "${shapes[@]}" --out one --steps 1 --buckets 1
says err '32 x 32: 9'

# Within a smaller budget the same bits; below the smallest one a refusal that names it.
expect 0 "$ration" train start --objective autoencoder "${common[@]}" --out roomy --steps 2 --exact
expect 0 "$ration" train start --objective autoencoder "${common[@]}" --out tight --steps 2 --exact --budget +12MiB
cmp roomy/model/vae/diffusion_pytorch_model.safetensors tight/model/vae/diffusion_pytorch_model.safetensors || fail 'another budget, other bytes'
expect 4 "$ration" train start --objective autoencoder "${common[@]}" --out none --steps 2 --budget +2MiB

# What is wrong is named.
expect 2 "$ration" train start --objective autoencoder --data data --size 70 --out wrong
expect 3 "$ration" train start --objective autoencoder --data nowhere --size 32 --out wrong
mkdir empty
expect 3 "$ration" train start --objective autoencoder --data empty --size 32 --out wrong
says err 'no PNG or JPEG'
mkdir part && cp -r vae/model/model_index.json vae/model/vae part/
expect 3 "$ration" train part --objective diffusion "${common[@]}" --out wrong
says err 'unet/config.json'
