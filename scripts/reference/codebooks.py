#!/usr/bin/env python3
"""Writes src/tensor/ggml_codebook_tables.c, the codebooks of ggml's iq1, iq2 and iq3 kinds, and
tests/golden/codebooks.txt, what gguf-py makes of random blocks of each.

Needs gguf:
    pip install gguf
    python scripts/reference/codebooks.py

A line of the golden file is a kind, a number of blocks and the FNV-1a hash of their values' bytes (f32, little endian);
the blocks are the bytes of splitmix64 seeded with the kind's number, with scales below 2. They touch every entry.
"""

import pathlib
import re

import numpy
from gguf import GGMLQuantizationType, quants

ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = 512
TABLES = [("iq2_xxs", quants.IQ2_XXS), ("iq2_xs", quants.IQ2_XS), ("iq2_s", quants.IQ2_S), ("iq1", quants.IQ1_S),
          ("iq3_xxs", quants.IQ3_XXS), ("iq3_s", quants.IQ3_S)]
HEAD = """// ggml_codebook_tables.c — the codebooks of ggml's iq1, iq2 and iq3 kinds, which are part of those
// formats. Written by scripts/reference/codebooks.py.
//
// An entry is 8 numbers (iq3: 4). Here it is 16 bits: 2 (iq3: 4) for each number, the first lowest; four
// entries are a literal, the first lowest. The macros spread them to a byte each and make them the
// numbers that files mean, when this file is compiled.
//
// RN_CODEBOOK declares a table: kernels of devices define it before they include this file.
#ifndef RN_CODEBOOK
#include "tensor/ggml_codebooks.h"
#define RN_CODEBOOK(type, name, size) const type rn_codebook_##name[size]
#endif

// clang-format off
#define EACH_BYTE 0x0101010101010101u
#define SPREAD_4(c) (((c) | (c) << 24) & 0x000000ff000000ffu)
#define SPREAD_2(c) ((SPREAD_4(c) | SPREAD_4(c) << 12) & 0x000f000f000f000fu)
#define SPREAD(c) ((SPREAD_2(c) | SPREAD_2(c) << 6) & 3 * EACH_BYTE)
// 0, 1, 2: 8, 25, 43
#define IQ2(c) (8 * EACH_BYTE + 17 * SPREAD(c) + (SPREAD(c) >> 1 & EACH_BYTE))
// 0, 1, 2: 0, 8, 16
#define IQ1(c) (8 * SPREAD(c))

#define EACH_BYTE_OF_4 0x01010101u
#define NIBBLES_2(c) (((c) | (c) << 8) & 0x00ff00ffu)
#define NIBBLES(c) (uint32_t)((NIBBLES_2(c) | NIBBLES_2(c) << 4) & 0x0f0f0f0fu)
// 0, 1, ... 7: 4, 12, ... 52, but 62 instead of 60
#define IQ3_XXS(c) (4 * EACH_BYTE_OF_4 + 8 * NIBBLES(c) + 2 * ((NIBBLES(c) + EACH_BYTE_OF_4) >> 3 & EACH_BYTE_OF_4))
// 0, 1, ... 7: 1, 3, ... 15
#define IQ3_S(c) (EACH_BYTE_OF_4 + 2 * NIBBLES(c))

#define FOUR(ENTRY, c) ENTRY((c) & 0xffff), ENTRY((c) >> 16 & 0xffff), ENTRY((c) >> 32 & 0xffff), ENTRY((c) >> 48)
"""


def literals(kind):
    codes = numpy.frombuffer(bytes.fromhex(kind.grid_hex.decode()), dtype="<u8")
    assert len(codes) * 4 == kind.grid_shape[0]
    return [f"0x{code:016x}u" for code in codes.tolist()]


def write_table(out, name, kind):
    size, numbers = kind.grid_shape
    macro = "IQ2" if name.startswith("iq2") else name.upper()
    out.append(f"\n#define Q(c) FOUR({macro}, c)")
    out.append(f"RN_CODEBOOK(uint{8 * numbers}_t, {name}, {size}) = {{")
    items = literals(kind)
    for i in range(0, len(items), 4):
        out.append("    " + " ".join(f"Q({item})," for item in items[i:i + 4]))
    out.append("};\n#undef Q")


def splitmix(state):
    mask = 2**64 - 1
    while True:
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def random_blocks(kind, number):
    source = splitmix(number)
    words = [next(source) for _ in range(BLOCKS * kind.type_size // 8)]
    blocks = numpy.array(words, dtype="<u8").view(numpy.uint8).reshape(BLOCKS, kind.type_size).copy()
    blocks[:, 55 if kind is quants.IQ1_M else 1] &= 0xBF  # the scale's upper exponent bit
    return blocks


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 2**64 - 1
    return value


def main():
    out = [HEAD.rstrip("\n")]
    for name, kind in TABLES:
        write_table(out, name, kind)
    out += [f"#undef {word}" for word in reversed(re.findall(r"^#define (\w+)", HEAD.split("#endif")[1], re.M))]
    (ROOT / "src/tensor/ggml_codebook_tables.c").write_text("\n".join(out) + "\n// clang-format on\n")
    lines = []
    for name in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]:
        kind = getattr(quants, name)
        values = kind.dequantize(random_blocks(kind, GGMLQuantizationType[name].value).reshape(1, -1))
        lines.append(f"{name.lower()} {BLOCKS} {fnv1a(values.astype('<f4').tobytes()):016x}\n")
    (ROOT / "tests/golden/codebooks.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
