#!/usr/bin/env python3
"""contact_sheet.py RATION [FOLDER]: two pictures for docs/, drawn with models/pictures.

six-budgets.png: the same seed within six budgets from the smallest that works; their hashes are printed and must be equal.
tiling.png: exact bands, blended tiles (--vae-tile), and eight times the difference between the two.
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


def draw(name, *more):
    path = f"{TEMPORARY}/{name}.png"
    done = subprocess.run([RATION, "image", "models/pictures", "-p", "a red circle on a blue background", "--seed", "5", "--steps", "30", "--size", "96",
                           "--device", "cpu", "-o", path, *more], capture_output=True, text=True)
    return path, done


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
    pictures.append(read(path))
assert len(hashes) == 1, "the pictures differ"
write(f"{FOLDER}/six-budgets.png", beside(pictures))

exact, blended = read(draw("exact")[0]), read(draw("blended", "--vae-tile", "32,8")[0])
difference = [bytes(min(255, 8 * abs(a - b)) for a, b in zip(x, y)) for x, y in zip(exact, blended)]
print("blended tiles are off by up to", max(max(row) for row in ([abs(a - b) for a, b in zip(x, y)] for x, y in zip(exact, blended))), "of 255")
write(f"{FOLDER}/tiling.png", beside([exact, blended, difference]))
