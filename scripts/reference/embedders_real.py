#!/usr/bin/env python3
"""Embeddings of a few texts by real models, as transformers computes them.

    scripts/reference/embedders_real.py FOLDER     (needs torch, transformers, safetensors, gguf)

FOLDER has minilm/ and mpnet/ (all-MiniLM-L6-v2 and all-mpnet-base-v2 as Sentence Transformers' folders) and
nomic-embed-f16.gguf (nomic-embed-text-v1.5). Writes tests/golden/embed_real.safetensors: "minilm", "mpnet" and "nomic" f32
(texts, dim), of length 1. The texts are those of tests/golden/embed_real_test.c."""

import pathlib
import sys

import gguf
import numpy
import torch
import transformers
from safetensors.torch import save_file

TEXTS = ["The quick brown fox jumps over the lazy dog.", "", "Café naïve 日本東京 😀", "hello world " * 60,
         "What is the capital of France?", "Paris."]


def embed(tokenizer, model, most):
    rows = []
    for text in TEXTS:
        inputs = tokenizer([text], return_tensors="pt", truncation=True, max_length=most)
        with torch.no_grad():
            rows.append(model(**inputs).last_hidden_state[0].mean(0))
    return torch.nn.functional.normalize(torch.stack(rows), dim=1).contiguous()


def nomic(path):
    """transformers' model with the file's weights."""
    tensors = {t.name: torch.tensor(numpy.array(t.data).astype(numpy.float32)) for t in gguf.GGUFReader(path).tensors}
    weights = {"embeddings.word_embeddings.weight": tensors["token_embd.weight"],
               "embeddings.token_type_embeddings.weight": tensors["token_types.weight"].reshape(2, -1)}
    for kind in ("weight", "bias"):
        weights[f"embeddings.LayerNorm.{kind}"] = tensors[f"token_embd_norm.{kind}"]
    for i in range(12):
        ours, theirs = f"blk.{i}.", f"layers.{i}."
        for name, part in zip("qkv", tensors[ours + "attn_qkv.weight"].chunk(3)):
            weights[theirs + f"self_attn.{name}_proj.weight"] = part
        for a, b in (("attn_output", "self_attn.o_proj"), ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"),
                     ("ffn_down", "mlp.down_proj")):
            weights[f"{theirs}{b}.weight"] = tensors[f"{ours}{a}.weight"]
        for a, b in (("attn_output_norm", "post_attention_layernorm"), ("layer_output_norm", "post_mlp_layernorm")):
            for kind in ("weight", "bias"):
                weights[f"{theirs}{b}.{kind}"] = tensors[f"{ours}{a}.{kind}"]
    config = transformers.NomicBertConfig(vocab_size=len(tensors["token_embd.weight"]), pad_token_id=0)
    model = transformers.NomicBertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(weights)
    return model


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    golden = {}
    for name, most in (("minilm", 256), ("mpnet", 384)):
        golden[name] = embed(transformers.AutoTokenizer.from_pretrained(folder / name),
                             transformers.AutoModel.from_pretrained(folder / name).eval(), most)
    golden["nomic"] = embed(transformers.AutoTokenizer.from_pretrained(folder / "minilm"), nomic(folder / "nomic-embed-f16.gguf"), 2048)
    path = pathlib.Path(__file__).parents[2] / "tests/golden/embed_real.safetensors"
    save_file(golden, path)
    path.chmod(0o644)


main()
