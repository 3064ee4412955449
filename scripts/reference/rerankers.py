#!/usr/bin/env python3
"""Tiny rerankers with random weights, and the scores that Hugging Face's transformers computes with them.

    scripts/reference/rerankers.py     (needs torch, transformers, tokenizers, safetensors, gguf)

Writes tests/golden/rerank/{bert,xlm_roberta}/: config.json and model.safetensors as save_pretrained does (weights rounded to f16, so
that both sides have the same), a tokenizer, and golden.safetensors: of QUERY with each of TEXTS, "lengths" i32 (texts), "tokens" i32
(all pairs' one behind the other), "second_at" i32 (texts): where the text begins, "scores" f32 (texts). xlm_roberta/ has a GGUF file
as llama.cpp's converter writes it, too.
"""

import copy
import json
import shutil

import gguf
import tokenizers
import torch
import transformers
from embedders import BERT_NAMES, FOLDER, SMALL, write_tokenizer
from safetensors.torch import load_file, save_file

QUERY = "the quick brown fox"
TEXTS = ["the lazy dog jumped over the fox.", "hello world!", "a", "cat, kitten, car? the quick fox jumps over the lazy dog"]
MODELS = {
    "bert": transformers.BertConfig(**SMALL, max_position_embeddings=48, type_vocab_size=2, num_labels=1),
    "xlm_roberta": transformers.XLMRobertaConfig(**SMALL, max_position_embeddings=50, type_vocab_size=1, pad_token_id=1,
                                                 num_labels=1),
}


def make_model(config):
    torch.manual_seed(7)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.2) + ("orm" in name and name.endswith("weight"))).half())
    return model


def write_pairs(folder, name):
    """What stands between two texts: one separator, or RoBERTa's two."""
    write_tokenizer(folder)
    t = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1" if name == "bert" else "[CLS] $A [SEP] [SEP] $B [SEP]"
    t.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair,
                                                                special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.save(str(folder / "tokenizer.json"))
    return t


def write_gguf(folder, config):
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), "bert")
    first = config.pad_token_id + 1
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings - first)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_causal_attention(False)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_token_type_count(1)
    names = {**BERT_NAMES, "classifier.dense": "cls", "classifier.out_proj": "cls.output"}
    for tensor, w in load_file(folder / "model.safetensors").items():
        stem, kind = tensor.removeprefix("roberta.").rsplit(".", 1)
        parts = stem.split(".")
        digit = next((i for i, p in enumerate(parts) if p.isdigit()), None)
        new = names[stem] if digit is None else f"blk.{parts[digit]}.{names['.'.join(parts[digit + 1:])]}"
        if new == "position_embd":
            w = w[first:]
        small = w.dim() == 1 or new == "token_types"
        writer.add_tensor(f"{new}.{kind}", (w.float() if small else w).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    for name, config in MODELS.items():
        folder = FOLDER.parent / "rerank" / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make_model(config)
        copy.deepcopy(model).half().save_pretrained(folder)
        tokenizer = write_pairs(folder, name)
        tokens, second_at, scores = [], [], []
        for text in TEXTS:
            pair = tokenizer.encode(QUERY, text)
            with torch.no_grad():
                types = {"token_type_ids": torch.tensor([pair.type_ids])} if name == "bert" else {}
                logits = model(input_ids=torch.tensor([pair.ids]), attention_mask=torch.ones(1, len(pair.ids), dtype=torch.long),
                               **types).logits
            tokens.append(pair.ids)
            second_at.append(pair.sequence_ids.index(1))
            scores.append(logits.item())
        save_file({"lengths": torch.tensor([len(t) for t in tokens], dtype=torch.int32),
                   "tokens": torch.tensor(sum(tokens, []), dtype=torch.int32),
                   "second_at": torch.tensor(second_at, dtype=torch.int32), "scores": torch.tensor(scores)},
                  folder / "golden.safetensors")
        if name == "xlm_roberta":
            write_gguf(folder, config)
        for file in folder.rglob("*.safetensors"):
            file.chmod(0o644)
        print(name, json.dumps(scores), sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
