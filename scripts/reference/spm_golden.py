#!/usr/bin/env python3
"""Makes tests/golden/spm_golden.txt: what SentencePiece (pip install sentencepiece==0.2.2) makes of texts.

    scripts/reference/spm_golden.py [DATA] > tests/golden/spm_golden.txt      DATA: ../shared/data

    text HEX                     a text, UTF-8 or not
    model PATH                   under DATA/tokenizers; what follows is its
    ids ID...                    of the texts, in their order
    book COUNT DIGEST            of botchan.txt
    joined COUNT DIGEST          of botchan.txt without its blanks
    random COUNT DIGEST          of the 1000 texts of random_texts(), one after the other

COUNT is the number of ids, DIGEST their FNV-1a (64 bits, each id as four bytes, little-endian).
"""

import pathlib
import sys

import sentencepiece

MODELS = [
    "llama2/tokenizer.model",
    "mistral/tokenizer.model.v1",
    "mistral/mistral_instruct_tokenizer_240323.model.v3",
    "open_llama_3b/tokenizer.model",
    "torchtune/m.model",
    "sentencepiece/test_ja_model.model",
    "sentencepiece/test_model.model",
    "sentencepiece/test_sentencepiece.model",
    "sentencepiece/test_sentencepiece_bpe.model",
    "sentencepiece/test_sentencepiece_bpe_char.model",
    "sentencepiece/test_sentencepiece_no_bos.model",
    "sentencepiece/test_sentencepiece_with_bytefallback.model",
]

TEXTS = [
    "", " ", "   ", "Hello world", " Hello  world ", "\tone\n\ntwo\r\n", "<s>not</s> <unk> special", "<0x0A>",
    "3.14159 + 2,718 = 5.86", "for (int i = 0; i < n; i++) { a[i] += b[i]; }", ".......", "aaaaaaaaaaaaaaaaaaaaaaaaa",
    "na\u00efve caf\u00e9 na\u0131ve cafe\u0301", "\ufb01ne \uff21\uff22\uff23 \u2460 \u00bd \ufdfa \u1e9b\u0323",
    "\u4eca\u65e5\u306f\u826f\u3044\u5929\u6c17\u3067\u3059\u3002", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0627\u0644\u0633\u0644\u0627\u0645", "\U0001f642\U0001f469\u200d\U0001f4bb x \U0001f680",
    "a\u2581b \u2581 c\u2581", "\u3000wide\u00a0blanks\u200b", "\ufffd", "\0nul\0", b"\xff\xfe broken \xe2\x96",
    b"\xed\xa0\x80\xc0\xaf\xf8", "[INST] What? [/INST]",
]


def random_texts():
    """Texts of up to 40 characters from a generator that fits on a line: half ASCII, half from everywhere."""
    state = 1

    def draw(below):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % below

    def character():
        kind = draw(8)
        if kind < 4:
            return 32 + draw(95)
        if kind == 4:
            return 0xA0 + draw(0x760)
        if kind == 5:
            return 0x3000 + draw(0x7000)
        code = draw(0x110000)
        return 0x20 if 0xD800 <= code < 0xE000 else code

    for _ in range(1000):
        yield "".join(chr(character()) for _ in range(draw(41))).encode()


def digest(ids):
    value = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{len(ids)} {value:016x}"


def main():
    data = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data") / "tokenizers"
    book = (data / "sentencepiece/botchan.txt").read_bytes()
    texts = [t if isinstance(t, bytes) else t.encode() for t in TEXTS]
    for text in texts:
        print("text", text.hex())
    for path in MODELS:
        model = sentencepiece.SentencePieceProcessor(model_file=str(data / path))
        print("model", path)
        for text in texts:
            print("ids", *model.encode(text))
        print("book", digest(model.encode(book)))
        print("joined", digest(model.encode(book.replace(b" ", b""))))
        print("random", digest([i for text in random_texts() for i in model.encode(text)]))


main()
