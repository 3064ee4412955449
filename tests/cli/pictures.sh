#!/usr/bin/env bash
# labels: release
# pictures.sh — models/pictures, the model that this library trained: it draws what a caption says, the same at every budget.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

draw() { # CAPTION FILE [option...]
    expect 0 "$ration" image "$root/models/pictures" -p "$1" --steps 10 --guidance 3 --seed 1 --threads 2 --output "$2" "${@:3}"
}
draw 'a large red circle at the top left on white' red.png
draw 'a large blue square at the bottom right on black' blue.png
draw 'a large red circle at the top left on white' tight.png --budget +6MiB
cmp red.png tight.png || fail 'another budget, another picture'

python3 - << 'PYTHON' || fail 'the pictures are not what was asked for'
import struct, zlib
def pixels(path): # 8 bits, RGB, no filters: as ration writes them
    data, at, body = open(path, 'rb').read(), 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IDAT': body += data[at + 8:at + 8 + size]
        at += 12 + size
    body = zlib.decompress(body)
    return [[body[y * 97 + 1 + 3 * x:y * 97 + 4 + 3 * x] for x in range(32)] for y in range(32)]
red, blue = pixels('red.png'), pixels('blue.png')
r, g, b = red[8][8]
assert r > 150 and g < 100 and b < 100, (r, g, b)
assert all(c > 200 for c in red[28][28]), red[28][28]
r, g, b = blue[24][24]
assert b > 120 and b > r + 40, (r, g, b)
assert all(c < 70 for c in blue[3][3]), blue[3][3]
PYTHON
