#!/usr/bin/env python3
"""Writes tests/golden/wordpiece/: a small WordPiece vocabulary in every form that is read, and what Hugging Face's
tokenizers makes of awkward texts with it.

    python3 scripts/reference/wordpiece_vectors.py        needs: tokenizers, gguf

tokenizer.json (uncased), cased.json, vocab.txt (uncased, as tokenizer.json), model.gguf (the same tokens as converters for
GGUF spell them), vectors.json: [text, [ids uncased], [ids cased], text, ...] with [CLS] and [SEP]."""
import json
import pathlib

import gguf
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors, decoders
from tokenizers.models import WordPiece

OUT = pathlib.Path("tests/golden/wordpiece")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the quick brown fox jump ##s ##ed ##ing over lazy dog em ##bed ##ding un ##aff ##able cafe café naive resume
strasse straße istanbul tokyo 日本 ##本 the##re 100 2024 hello world ' ##'s ß ##ß σ ##ς ελλαδα привет ##вет नम ##स्ते ไทย ᾳ ##ᾳ""".split()
TEXTS = [
    "", " ", "\t\n\r", "The quick brown fox jumps over the lazy dog.", "embedding EMBEDDINGS Embedded",
    "unaffable unaffableness", "Café naïve résumé CAFÉ café", "Straße STRASSE ẞ", "İstanbul ISTANBUL ıstanbul",
    "日本東京tokyo日本語", "中文,字符。混合English文字", "日 本 𠀀 𫠠 𫤠 豈", "한국어 조합 가각", "emoji 😀👍🏽👨‍👩‍👧 🇩🇪 done",
    "zero\u0000width\u200bjoin\u200der\u00adhyphen\ufeffbom", "control \u0001\u0002\u007f\u0085\u009f chars", "bad \ufffd replacement",
    "private \ue000 use", "tabs\tand\nlines\r\nand\u2028separators\u2029and\u00a0nbsp\u3000wide\u2003em",
    "a" * 100, "a" * 101, "x" * 300 + " y", "don't can't it's O'Reilly", "$100.50 + 20% = ? #tag @user ^~`|<>",
    "„quotes“ «guillemets» ‘single’ “double” — dash… •", "¿Qué? ¡Olé!", "¹²³ ½ ℃ ™ ﬁ ﬂ №", "ελλάδα ΣΊΣΥΦΟΣ ᾼ", "Привет, мир! ЁЖИК",
    "नमस्ते दुनिया", "สวัสดี ไทย", "עִבְרִית العربيّة", "a\u0301\u0302\u0303 e\u20dd \u0f39", "[CLS] text [SEP] [MASK] [UNK] [unused]",
    "hello[SEP]world", "##bed ##", "▁the ▁", "underscore_joined snake_case kebab-case", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 ＦＵＬＬＷＩＤＴＨ", "\u1e9b\u0323 \u212b \u2126",
    "mixed日本CaféΣ😀end", "   leading and trailing   ", "http://example.com/a?b=c&d=e#f", "line one\nline two\n\n\nline three",
]


def make(lowercase, vocab):
    t = Tokenizer(WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None,
                                              lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(prefix="##")
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])])
    t.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIAL])
    return t


def vocabulary():
    """The special tokens, the words, and most characters of the texts, as beginnings and as continuations."""
    norm = normalizers.BertNormalizer(lowercase=True)
    letters = sorted({c for t in TEXTS for c in norm.normalize_str(t) + t if not c.isspace()})
    letters = [c for i, c in enumerate(letters) if ord(c) < 128 or i % 5]  # some are unknown
    words = list(dict.fromkeys(SPECIAL + WORDS + letters + ["##" + c for c in letters]))
    return {w: i for i, w in enumerate(words) if all(ord(c) >= 32 for c in w)}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    words = [w for w, _ in sorted(vocabulary().items(), key=lambda x: x[1])]
    vocab = {w: i for i, w in enumerate(words)}
    uncased, cased = make(True, vocab), make(False, vocab)
    uncased.save(str(OUT / "tokenizer.json"))
    cased.save(str(OUT / "cased.json"))
    (OUT / "vocab.txt").write_text("".join(w + "\n" for w in words))
    rows = [[json.dumps(x) for x in (t, uncased.encode(t).ids, cased.encode(t).ids)] for t in TEXTS]
    (OUT / "vectors.json").write_text("[" + ",\n".join(",\n".join(r) for r in rows) + "]\n")
    writer = gguf.GGUFWriter(str(OUT / "model.gguf"), "bert")
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_token_list([w if w in SPECIAL else w[2:] if w.startswith("##") else "\u2581" + w for w in words])
    writer.add_token_types([3 if w in SPECIAL else 1 for w in words])
    for name, token in (("unknown", "[UNK]"), ("seperator", "[SEP]"), ("padding", "[PAD]"), ("cls", "[CLS]"), ("mask", "[MASK]")):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", vocab[token])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(len(words), "tokens,", len(TEXTS), "texts,", sum(f.stat().st_size for f in OUT.iterdir()), "bytes")


main()
