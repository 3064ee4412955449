#!/usr/bin/env python3
"""hostile.py — model files and texts that are small on disk and large in memory.

    hostile.py KIND FILE COUNT

KIND        FILE becomes                                                    COUNT
tensors     safetensors whose header names COUNT empty tensors              tensors
scattered   the same, in an order that has to be sorted                     tensors
pairs       GGUF with COUNT metadata pairs of one byte each                 pairs
gguf        GGUF with COUNT empty tensors                                   tensors
template    a chat template that makes COUNT copies of 256 KiB              copies
replace     tokenizer.json whose normaliser writes COUNT bytes for each 'a' bytes
vocabulary  tokenizer.json with COUNT tokens                                tokens
added       tokenizer.json with COUNT added tokens                          tokens
word        a text of one word                                              bytes
text        a text of short words                                           bytes
"""
import json
import struct
import sys


def write_tensors(out, count, scattered=False):
    header = bytearray(b"{")
    for i in range(count):
        header += b'%s"%07d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % (b"," if i else b"", i)
    if scattered:  # the last in the file stands first
        first = b'{"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        header[:1] = first
    header += b"}"
    header += b" " * (-len(header) % 8)
    out.write(struct.pack("<Q", len(header)) + header)
    if scattered:
        out.write(b"\0\0\0\0")


def gguf_head(out, tensors, pairs):
    out.write(b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs))


def write_pairs(out, count):
    gguf_head(out, 0, count)
    for i in range(count):
        key = b"%x" % i
        out.write(struct.pack("<Q", len(key)) + key + struct.pack("<IB", 0, 1))


def write_gguf(out, count):
    gguf_head(out, count, 0)
    for i in range(count):
        name = b"%x" % i
        out.write(struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 0, 0, 0))


def write_template(out, count):
    out.write(b"{%- set ns = namespace(a='xxxxxxxxxxxxxxxx') -%}"
              b"{%- for i in range(14) -%}{%- set ns.a = ns.a ~ ns.a -%}{%- endfor -%}")  # 256 KiB
    out.write(b"{%%- for i in range(%d) -%%}{%%- set b = ns.a ~ i -%%}{%%- endfor -%%}" % count)
    out.write(b"{{- messages[0]['content'] -}}")


def byte_letters():
    """GPT-2's letters for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain}
    letters.update({b: chr(256 + i) for i, b in enumerate(others)})
    return [letters[b] for b in range(256)]


def write_tokenizer(out, tokens=256, normalizer=None, added=0):
    vocabulary = {letter: i for i, letter in enumerate(byte_letters())}
    for i in range(256, tokens):
        vocabulary["%x" % (i << 8)] = i
    out.write(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 256 + i, "content": "<%x>" % (i * 7919 % (1 << 20)), "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True} for i in range(added)],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocabulary, "merges": []},
    }).encode())


def write_replace(out, count):
    write_tokenizer(out, normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "b" * count})


def write_word(out, count):
    out.write(b"a" * count)


def write_text(out, count):
    out.write(b"a b " * (count // 4))


kinds = {
    "tensors": write_tensors,
    "scattered": lambda out, count: write_tensors(out, count, True),
    "pairs": write_pairs,
    "gguf": write_gguf,
    "template": write_template,
    "replace": write_replace,
    "vocabulary": write_tokenizer,
    "added": lambda out, count: write_tokenizer(out, added=count),
    "word": write_word,
    "text": write_text,
}

if len(sys.argv) != 4 or sys.argv[1] not in kinds:
    sys.exit(__doc__)
with open(sys.argv[2], "wb") as file:
    kinds[sys.argv[1]](file, int(sys.argv[3]))
