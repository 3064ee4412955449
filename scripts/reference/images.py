#!/usr/bin/env python3
"""Small PNG files of every kind, written with zlib and all five filters, and what Pillow reads in them and makes of one
of them: tests/golden/images/. Needs numpy and Pillow.  scripts/reference/images.py"""
import pathlib, struct, zlib
import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).resolve().parents[2] / 'tests/golden/images'
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def paeth(a, b, c):
    p = a + b - c
    return min(((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c)))[2]


def pack(samples, depth):
    if depth == 16:
        return samples.astype('>u2').tobytes()
    bits = ''.join(f'{v:0{depth}b}' for v in samples)
    bits += '0' * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def filtered(lines, pixel):
    out, above = b'', bytes(len(lines[0]))
    for y, line in enumerate(lines):
        kind = y % 5
        left, corner = bytes(pixel) + line, bytes(pixel) + above
        by = [(0, left[i], above[i], (left[i] + above[i]) // 2, paeth(left[i], above[i], corner[i]))[kind] for i in range(len(line))]
        out += bytes([kind]) + bytes((v - b) % 256 for v, b in zip(line, by))
        above = line
    return out


def write(name, image, kind, depth, interlaced=False, palette=None, clear=None, level=9, cuts=1):
    h, w, c = image.shape
    pixel = max(1, c * depth // 8)
    data = b''
    for x0, y0, dx, dy in (ADAM7 if interlaced else [(0, 0, 1, 1)]):
        part = image[y0::dy, x0::dx]
        if part.size:
            data += filtered([pack(row.reshape(-1), depth) for row in part], pixel)
    data = zlib.compress(data, level)
    step = -(-len(data) // cuts)
    file = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, depth, kind, 0, 0, int(interlaced)))
    file += chunk(b'tEXt', b'Comment\0made by images.py')
    if palette is not None:
        file += chunk(b'PLTE', palette)
    if clear is not None:
        file += chunk(b'tRNS', clear)
    for at in range(0, len(data), step):
        file += chunk(b'IDAT', data[at:at + step])
    (OUT / name).write_bytes(file + chunk(b'IEND', b''))


def main():
    OUT.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    names = []
    def case(name, kind, depth, size=(13, 11), **more):
        c = CHANNELS[kind]
        y, x = np.mgrid[0:size[0], 0:size[1]]
        smooth = np.stack([(x * 7 + y * 5 * (i + 1)) % (1 << depth) for i in range(c)], 2)
        noise = rng.integers(0, 1 << depth, smooth.shape)
        write(name + '.png', np.where(rng.random(smooth.shape) < 0.2, noise, smooth).astype(np.uint16), kind, depth, **more)
        names.append(name)
    for depth in (1, 2, 4, 8, 16):
        case(f'grey{depth}', 0, depth)
    for depth in (1, 2, 4, 8):
        colours = rng.integers(0, 256, 3 << depth).astype(np.uint8).tobytes()
        case(f'palette{depth}', 3, depth, palette=colours)
    case('palette_clear', 3, 4, palette=rng.integers(0, 256, 48).astype(np.uint8).tobytes(), clear=bytes([0, 128, 255]))
    case('rgb8', 2, 8, cuts=5)
    case('rgb16', 2, 16)
    case('grey_alpha8', 4, 8)
    case('rgb_alpha8', 6, 8, level=0)
    case('rgb_alpha16', 6, 16)
    case('rgb_interlaced', 2, 8, interlaced=True)
    case('grey1_interlaced', 0, 1, interlaced=True)
    case('tiny_interlaced', 6, 8, size=(1, 3), interlaced=True)
    case('photo', 2, 8, size=(37, 51))
    table, pixels = [], b''
    for name in names:
        image = Image.open(OUT / f'{name}.png')
        if 'transparency' in image.info and image.mode == 'P':
            image = image.convert('RGBA')
        image = image.convert({'1': 'L', 'P': 'RGB', 'I;16': 'I;16', 'I': 'I'}.get(image.mode, image.mode))
        values = np.asarray(image)
        if values.dtype != np.uint8:
            values = (values >> 8).astype(np.uint8)
        values = values.reshape(values.shape[0], values.shape[1], -1)
        table.append(f'{name} {values.shape[1]} {values.shape[0]} {values.shape[2]}')
        pixels += values.tobytes()
    (OUT / 'pixels.txt').write_text('\n'.join(table) + '\n')
    (OUT / 'pixels.bin').write_bytes(pixels)
    photo = Image.open(OUT / 'photo.png')
    resized = []
    for width, height in ((24, 18), (70, 60), (11, 37)):
        resized.append(np.asarray(photo.resize((width, height), Image.BILINEAR)).astype(np.float32) / 255)
    (OUT / 'resized.bin').write_bytes(b''.join(r.tobytes() for r in resized))


main()
