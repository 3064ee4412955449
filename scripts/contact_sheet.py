#!/usr/bin/env python3
"""contact_sheet.py RATION [FOLDER]: two pictures for docs/, made with models/pictures.

six-budgets.png: the same words and seed within six budgets from the smallest that works; their hashes are printed and must be equal.
tiling.png: a ring, encoded and decoded: in exact bands, in blended tiles (--vae-tile), and eight times the difference between the two.
"""
import hashlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

RATION, FOLDER = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "docs"
TEMPORARY = tempfile.mkdtemp()


def read(path):
    data, at, body = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            wide, high = struct.unpack(">II", data[at + 8:at + 16])
        if kind == b"IDAT":
            body += data[at + 8:at + 8 + size]
        at += 12 + size
    lines, line = zlib.decompress(body), wide * 3 + 1
    return [lines[i * line + 1:(i + 1) * line] for i in range(high)]


def write(path, rows):
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)), (b"IDAT", body), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def beside(pictures, gap=4):
    return [(b"\xff" * 3 * gap).join(rows) for rows in zip(*pictures)]


def enlarge(rows, by):
    return [b"".join(row[i:i + 3] * by for i in range(0, len(row), 3)) for row in rows for _ in range(by)]


def run(*words):
    done = subprocess.run([RATION, "image", *words], capture_output=True, text=True)
    return done


def draw(name, *more):
    path = f"{TEMPORARY}/{name}.png"
    return path, run("models/pictures", "-p", "a large yellow square at the bottom on black", "--seed", "3", "--device", "cpu", "-o", path, *more)


def ring(side=96):
    """A large one, off the middle."""
    rows = []
    for v in range(side):
        row = b""
        for u in range(side):
            x, y = (u - side * 0.45) / (side * 0.32), (v - side * 0.55) / (side * 0.32)
            row += bytes((31, 119, 200) if 0.3 < x * x + y * y < 1 else (255, 255, 255))
        rows.append(row)
    return rows


_, refused = draw("none", "--budget", "1MiB")
smallest = int(re.search(r"\((\d+) bytes\)", refused.stderr)[1])
roomy = smallest + (5 << 20)
pictures, hashes = [], set()
for i in range(6):
    budget = smallest + (roomy - smallest) * i // 5
    path, done = draw(f"b{i}", "--budget", str(budget))
    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
    planned = re.search(r"(\S+ \S+) planned of", done.stderr)[1]
    print(f"budget {budget / 2**20:6.2f} MiB, {planned} planned, sha256 {digest[:16]}")
    hashes.add(digest)
    pictures.append(enlarge(read(path), 3))
assert len(hashes) == 1, "the pictures differ"
write(f"{FOLDER}/six-budgets.png", beside(pictures))

original, latents = f"{TEMPORARY}/ring.png", f"{TEMPORARY}/ring.npy"
write(original, ring())
done = run("encode", "models/pictures", original, "-o", latents)
assert done.returncode == 0, done.stderr
decoded = []
for more in ((), ("--vae-tile", "32,8")):
    done = run("decode", "models/pictures", latents, "-o", f"{TEMPORARY}/decoded.png", *more)
    assert done.returncode == 0, done.stderr
    decoded.append(read(f"{TEMPORARY}/decoded.png"))
exact, blended = decoded
difference = [bytes(min(255, 8 * abs(a - b)) for a, b in zip(x, y)) for x, y in zip(exact, blended)]
print("blended tiles are off by up to", max(max(row) for row in ([abs(a - b) for a, b in zip(x, y)] for x, y in zip(exact, blended))), "of 255")
write(f"{FOLDER}/tiling.png", beside([enlarge(rows, 2) for rows in (exact, blended, difference)]))
