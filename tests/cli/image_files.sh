#!/usr/bin/env bash
# image_files.sh — files of image models as people publish them: fp8 with scales beside it (ComfyUI's and others' names), nf4; what the
# denoiser says by --prediction; what is not built by name.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
models=$root/tests/golden/image

cat > make.py << 'PYTHON'
import json, struct, sys
def read(path):
    data = open(path, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    head, body = json.loads(data[8:8 + n]), data[8 + n:]
    wide = {'F32': ('f', 4), 'F16': ('e', 2)}
    return {k: (v['shape'], struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // wide[v['dtype']][1]}{wide[v['dtype']][0]}",
                                           body[slice(*v['data_offsets'])])) for k, v in head.items() if k != '__metadata__'}
def write(path, tensors):
    head, body = {}, b''
    for k, (dtype, shape, data) in tensors.items():
        head[k] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + body)
def floats(shape, values): return ('F32', shape, struct.pack(f'<{len(values)}f', *values))
# All that e4m3 can say: sign, 4 bits of exponent, 3 of mantissa.
codes = sorted((((c & 7) / 8 + (c >> 3 > 0)) * 2.0 ** (max(c >> 3, 1) - 7), c) for c in range(127))
def nearest(x):
    import bisect
    i = bisect.bisect([v for v, _ in codes], abs(x))
    v, c = min(codes[max(i - 1, 0):i + 1], key=lambda p: abs(p[0] - abs(x)))
    return (c | (0x80 if x < 0 else 0)), (-v if x < 0 else v)
how, folder = sys.argv[1:]
path = f'{folder}/transformer/diffusion_pytorch_model.safetensors'
out = {}
for k, (shape, values) in read(path).items():
    matrix = len(shape) == 2 and k.endswith('.weight') and 'transformer_blocks' in k and 'norm' not in k
    if not matrix:
        out[k] = floats(shape, values)
        continue
    scale = struct.unpack('<f', struct.pack('<f', max(map(abs, values)) / 448))[0]
    pairs = [nearest(v / scale) for v in values]
    if how == 'plain':
        out[k] = floats(shape, [v * scale for _, v in pairs])
    else:
        out[k] = ('F8_E4M3', shape, bytes(c for c, _ in pairs))
        out[k[:-6] + ('scale_weight' if how == 'comfy' else 'weight_scale')] = floats([] if how == 'comfy' else [1], [scale])
    if how == 'int8':
        out[k], out[k[:-6] + 'comfy_quant'] = ('I8', shape, bytes(len(values))), ('U8', [2], b'{}')
    if how == 'fp4':
        out[k + '.quant_state.bitsandbytes__fp4'] = ('U8', [2], b'{}')
if how == 'comfy':
    out['scaled_fp8'] = ('F8_E4M3', [2], b'\0\0')
write(path, out)
PYTHON

draw=(-p 'a blue square' --steps 2 --size 32 --threads 2 -q)
for how in plain comfy scale int8 fp4; do
  cp -r "$models/flux" "$how"
  python3 make.py "$how" "$how" || fail "$how could not be made"
done
for how in plain comfy scale; do expect 0 "$ration" image "$how" "${draw[@]}" -o "$how.png"; done
# Before the pixels the file says the model's name.
cmp <(tail -c 3000 comfy.png) <(tail -c 3000 scale.png) || fail 'the two names of a scale draw other pictures'
# The weights are the same numbers; products with fp8 weights round no activations, so that pictures differ by sums' orders alone.
python3 - << 'PYTHON' || fail 'fp8 with scales draws another picture than its numbers in f32'
import struct, zlib
def pixels(path):
    data, at, body = open(path, 'rb').read(), 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IDAT': body += data[at + 8:at + 8 + size]
        at += 12 + size
    return zlib.decompress(body)
a, b = pixels('plain.png'), pixels('comfy.png')
assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= 2, max(abs(x - y) for x, y in zip(a, b))
PYTHON
expect 3 "$ration" image int8 "${draw[@]}" -o no.png
says err "int8 of ComfyUI's (comfy_quant)"
expect 3 "$ration" image fp4 "${draw[@]}" -o no.png
says err "bitsandbytes' fp4 is not built"

# What the denoiser says: a flag in the place of a folder that says it; other words are refused.
cp -r "$models/sd" v && sed -i 's/"prediction_type": "epsilon"/"prediction_type": "v_prediction"/' v/scheduler/scheduler_config.json
grep -q v_prediction v/scheduler/scheduler_config.json || sed -i 's/{/{"prediction_type": "v_prediction",/' v/scheduler/scheduler_config.json
expect 0 "$ration" image v "${draw[@]}" -o v.png
expect 0 "$ration" image "$models/sd" "${draw[@]}" -o epsilon.png
expect 0 "$ration" image "$models/sd" "${draw[@]}" --prediction v_prediction -o flag.png
cmp <(tail -c 3000 v.png) <(tail -c 3000 flag.png) || fail '--prediction is another picture than the folder that says it'
cmp -s <(tail -c 3000 epsilon.png) <(tail -c 3000 flag.png) && fail '--prediction changes nothing'
expect 2 "$ration" image "$models/sd" "${draw[@]}" --prediction w -o no.png

# XL's refiner by name.
cp -r "$models/xl" refiner && sed -i 's/{/{"requires_aesthetics_score": true,/' refiner/model_index.json
expect 3 "$ration" image refiner "${draw[@]}" -o no.png
says err 'the refiner of Stable Diffusion XL is not built'
