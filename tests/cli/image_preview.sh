#!/usr/bin/env bash
# image_preview.sh — ration image --preview: the same picture with and without, previews as a file, as kitty's graphics and as sixels, within
# the budget.
root=$(pwd)
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash
model=$root/models/pictures
draw=(image "$model" -p 'a red circle on a blue ground' --seed 5 --steps 9 --size 64 --device cpu)

expect 0 "$ration" "${draw[@]}" -o plain.png
expect 0 "$ration" "${draw[@]}" -o a.png --preview own --preview-every 4 --json
says out '"preview_bytes": '
cmp plain.png a.png || fail 'a preview changes the picture'
[ -s a-preview.png ] || fail 'no preview was written'
[ -e a-preview.png.part ] && fail 'a part of a preview is left'

# The same pixels for a terminal.
expect 0 "$ration" "${draw[@]}" -o b.png --preview own --preview-every 4 --preview-as kitty
cp err kitty
expect 0 "$ration" "${draw[@]}" -o b.png --preview own --preview-every 4 --preview-as sixel
cp err sixel
[ -e b-preview.png ] && fail 'a file, though the terminal shows it'
python3 - << 'PYTHON' || fail 'what a terminal would show'
import base64, re, struct, zlib

def png(path):
    data, at, body = open(path, 'rb').read(), 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IHDR': wide, high = struct.unpack('>II', data[at + 8:at + 16])
        if kind == b'IDAT': body += data[at + 8:at + 8 + size]
        at += 12 + size
    lines, line = zlib.decompress(body), wide * 3 + 1
    return wide, high, b''.join(lines[i * line + 1:(i + 1) * line] for i in range(high))

wide, high, pixels = png('a-preview.png')
kitty = open('kitty', 'rb').read()
pictures = re.split(rb'\x1b_Ga=T,', kitty)[1:]
assert len(pictures) == 2, len(pictures)  # after steps 4 and 8
head = pictures[-1].split(b';')[0]
assert b's=%d,v=%d' % (wide, high) in head and b'f=24' in head, head
data = b''.join(m.group(2) for m in re.finditer(rb'(?:^|\x1b_G)([^;\x1b]*);([^\x1b]*)\x1b\\', pictures[-1]))
assert base64.b64decode(data) == pixels, 'kitty'

sixels = re.findall(rb'\x1bP0;1q(.*?)\x1b\\', open('sixel', 'rb').read(), re.S)
assert len(sixels) == 2
text = sixels[-1].decode()
head = re.match(r'"1;1;(\d+);(\d+)', text)
assert (int(head[1]), int(head[2])) == (wide, high)
palette, canvas, x, top, colour = {}, {}, 0, 0, 0
for m in re.finditer(r'#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)(.)|([?-~])|([$-])', text[head.end():]):
    if m[1]: palette[int(m[1])] = tuple(int(v) * 255 / 100 for v in m.group(2, 3, 4))
    elif m[5]: colour = int(m[5])
    elif m[9] == '$': x = 0
    elif m[9] == '-': x, top = 0, top + 6
    else:
        for _ in range(int(m[6] or 1)):
            bits = ord(m[7] or m[8]) - 63
            for i in range(6):
                if bits >> i & 1:
                    assert (x, top + i) not in canvas, 'a dot of two colours'
                    canvas[x, top + i] = palette[colour]
            x += 1
assert len(canvas) == wide * high, (len(canvas), wide, high)
errors = {}  # a dot is one of the two colours around it; the sixteen of a pattern are the colour itself
for i in range(wide * high):
    for c in range(3):
        error = canvas[i % wide, i // wide][c] - pixels[i * 3 + c]
        assert abs(error) <= 52, error
        cell = i % wide // 4, i // wide // 4, c
        errors[cell] = errors.get(cell, 0) + error / 16
mean = sum(map(abs, errors.values())) / len(errors)
assert mean < 5, mean
PYTHON

# Within a budget: what the preview takes is planned beside the phases, so the smallest budget is larger by it.
smallest() {
    "$ration" "${draw[@]}" -o c.png --budget 1MiB "$@" > out 2> err && fail 'drawn within 1 MiB'
    sed -n 's/.*(\([0-9]*\) bytes).*/\1/p' err | head -1
}
without=$(smallest)
with=$(smallest --preview own)
[ "$with" -gt "$without" ] || fail "a preview that takes nothing: $with and $without"
expect 0 "$ration" "${draw[@]}" -o c.png --preview own --budget "$with"
cmp plain.png c.png || fail 'another picture within the smallest budget'

# TAESD, where it is; what is none is told.
if [ -e "$data/vae/taesd_decoder.safetensors" ]; then
    expect 0 "$ration" "${draw[@]}" -o d.png --preview "$data/vae/taesd_decoder.safetensors"
    cmp plain.png d.png || fail 'a preview by TAESD changes the picture'
    [ -s d-preview.png ] || fail 'no preview by TAESD'
    "$ration" "${draw[@]}" --preview "$data/vae/taesd3_decoder.safetensors" > out 2> err && fail 'TAESD3 for latents of 4 channels'
    says err 'decodes latents of 16 channels, the model'
fi
"$ration" "${draw[@]}" --preview nowhere > out 2> err && fail 'a decoder that is not there'
says err 'there is no decoder for previews at nowhere'
"$ration" "${draw[@]}" --preview own --preview-every 0 > out 2> err && fail 'every 0 steps'
says err 'preview-every'
echo 'ok'
