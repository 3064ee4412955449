#!/usr/bin/env python3
"""Tiny embedding models with random weights, and the embeddings that Hugging Face's transformers computes with them.

    scripts/reference/embedders.py [NAME...]     (needs torch, transformers, tokenizers, safetensors, gguf)

Writes, for all models or those that are named, tests/golden/embed/NAME/: config.json and model.safetensors as save_pretrained does (weights rounded to f16, so that both
sides have the same), modules.json and 1_Pooling/config.json as Sentence Transformers does, and, where llama.cpp has the
architecture, model.gguf with the same weights. golden.safetensors holds "lengths" i32 (texts), "tokens" i32 (all texts' one
behind the other) and, for each kind of pooling, "mean", "cls", "last" f32 (texts, dim), of length 1; "plain" is the mean as it
is, "half" the first half of the mean's dimensions, of length 1. bert/ has a tokenizer, too, gemma/ (EmbeddingGemma) two products
behind pooling, 2_Dense and 3_Dense.
"""

import copy
import json
import pathlib
import shutil
import sys

import gguf
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden/embed"
SMALL = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             attn_implementation="eager")
IDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
LENGTHS = {"mpnet": [3, 150, 1, 40]}  # beyond the last bucket of distances
MODELS = {
    "bert": transformers.BertConfig(**SMALL, max_position_embeddings=48, type_vocab_size=2),
    "mpnet": transformers.MPNetConfig(**SMALL, max_position_embeddings=160, relative_attention_num_buckets=32),
    "xlm_roberta": transformers.XLMRobertaConfig(**SMALL, max_position_embeddings=50, type_vocab_size=1, pad_token_id=1),
    "nomic_bert": transformers.NomicBertConfig(**SMALL, max_position_embeddings=64, pad_token_id=0),
    "modernbert": transformers.ModernBertConfig(**{**SMALL, "num_hidden_layers": 5}, max_position_embeddings=64,
                                                local_attention=12, **IDS),
    "qwen3": transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
                                      tie_word_embeddings=True),
}
MODELS["gemma"] = transformers.Gemma3TextConfig(
    **{**SMALL, "num_hidden_layers": 4}, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, max_position_embeddings=64,
    sliding_window=12, use_bidirectional_attention=True,
    layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                     "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
DENSE = {"2_Dense": (48, 32), "3_Dense": (32, 48)}
POOLING = {"bert": "cls_token", "qwen3": "lasttoken"}  # all others: mean_tokens

BERT_NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
              "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
              "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
              "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
              "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
NOMIC_NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
               "emb_ln": "token_embd_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
               "norm1": "attn_output_norm", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down",
               "norm2": "layer_output_norm"}
MODERN_NAMES = {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
                "attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm",
                "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"}
QWEN_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
              "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
              "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
GEMMA_NAMES = {**QWEN_NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
GGUF = {"gemma": ("gemma-embedding", GEMMA_NAMES), "bert": ("bert", BERT_NAMES), "nomic_bert": ("nomic-bert", NOMIC_NAMES), "modernbert": ("modern-bert", MODERN_NAMES),
        "qwen3": ("qwen3", QWEN_NAMES)}


def make_model(config):
    """Random weights of a size at which all parts matter, rounded to f16."""
    torch.manual_seed(7)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.2) + ("orm" in name and name.endswith("weight"))).half())
    return model


def embeddings(model, texts):
    """The last hidden rows of each text, alone."""
    with torch.no_grad():
        return [model(input_ids=torch.tensor([t]), attention_mask=torch.ones(1, len(t), dtype=torch.long)).last_hidden_state[0]
                for t in texts]


def unit(rows):
    return torch.nn.functional.normalize(torch.stack(rows), dim=1).contiguous()


def make_dense():
    draw = torch.Generator().manual_seed(5)
    return {name: (torch.randn(shape, generator=draw) * 0.2).half() for name, shape in DENSE.items()}


def write_dense(folder, dense):
    for name, w in dense.items():
        (folder / name).mkdir()
        save_file({"linear.weight": w}, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text(json.dumps(dict(
            in_features=w.shape[1], out_features=w.shape[0], bias=False,
            activation_function="torch.nn.modules.linear.Identity")) + "\n")


def write_modules(folder, pooling, dense):
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *((name, "Dense") for name in dense),
               (f"{2 + len(dense)}_Normalize", "Normalize")]
    (folder / "modules.json").write_text(json.dumps(
        [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
         for i, (path, kind) in enumerate(modules)], indent=2) + "\n")
    (folder / "1_Pooling").mkdir()
    flags = {f"pooling_mode_{m}": m == pooling for m in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    (folder / "1_Pooling/config.json").write_text(json.dumps(dict(word_embedding_dimension=32, **flags), indent=2) + "\n")


def write_tokenizer(folder):
    """WordPiece of as many tokens as the models have."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), "the", "quick", "brown", "fox",
             "jump", "##s", "##ed", "##ing", "over", "lazy", "dog", "hello", "world", "cat", "kitten", "car", ".", ",", "!", "?", "'"]
    words = list(dict.fromkeys(words))
    words += [f"[unused{i}]" for i in range(SMALL["vocab_size"] - len(words))]
    t = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.normalizer = tokenizers.normalizers.BertNormalizer()
    t.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    t.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_special_tokens([tokenizers.AddedToken(w, normalized=False) for w in words[:5]])
    t.save(str(folder / "tokenizer.json"))


def write_gguf(folder, name, config, dense):
    architecture, names = GGUF[name]
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_pooling_type({"cls_token": gguf.PoolingType.CLS, "lasttoken": gguf.PoolingType.LAST}.get(
        POOLING.get(name), gguf.PoolingType.MEAN))
    if name in ("qwen3", "gemma"):
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(1e6 if name == "gemma" else config.rope_parameters["rope_theta"])
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    else:
        writer.add_causal_attention(False)
        writer.add_layer_norm_eps(getattr(config, "layer_norm_eps", None) or config.norm_eps)
    if name in ("bert", "nomic_bert"):
        writer.add_token_type_count(2)
    if name == "nomic_bert":
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if name == "modernbert":
        writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
        writer.add_float32("modern-bert.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
        writer.add_sliding_window(config.local_attention)
        writer.add_uint32("modern-bert.attention.sliding_window_pattern", 3)
    if name == "gemma":
        writer.add_sliding_window(2 * (config.sliding_window - 1))
        writer.add_uint32("gemma-embedding.attention.sliding_window_pattern", 3)
        writer.add_uint32("gemma-embedding.dense_2_feat_in", 32)
        writer.add_uint32("gemma-embedding.dense_2_feat_out", 48)
        writer.add_uint32("gemma-embedding.dense_3_feat_in", 48)
        writer.add_uint32("gemma-embedding.dense_3_feat_out", 32)
    for i, w in enumerate(dense.values()):
        writer.add_tensor(f"dense_{i + 2}.weight", w.numpy())
    for tensor, w in load_file(folder / "model.safetensors").items():
        stem, kind = tensor.rsplit(".", 1)
        if name == "gemma" and "norm" in stem:
            w = w.float() + 1
        if stem.startswith("pooler"):
            continue
        parts = stem.split(".")
        digit = next((i for i, p in enumerate(parts) if p.isdigit()), None)
        new = names[stem] if digit is None else f"blk.{parts[digit]}.{names['.'.join(parts[digit + 1:])]}"
        small = w.dim() == 1 or new == "token_types"
        writer.add_tensor(f"{new}.{kind}", (w.float() if small else w).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    for name in sys.argv[1:] or MODELS:
        config = MODELS[name]
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        dense = make_dense() if name == "gemma" else {}
        model = make_model(config)
        lengths = LENGTHS.get(name, [5, 40, 1, 23])
        draw = torch.Generator().manual_seed(11)
        # 0 and 1 are padding to some of them
        texts = [torch.randint(3, SMALL["vocab_size"], (n,), generator=draw).tolist() for n in lengths]
        hidden = embeddings(model, texts)
        mean = [h.mean(0) for h in hidden]
        for w in dense.values():
            hidden = [h @ w.float().T for h in hidden]
            mean = [m @ w.float().T for m in mean]
        folder = FOLDER / name
        copy.deepcopy(model).half().save_pretrained(folder)
        write_modules(folder, POOLING.get(name, "mean_tokens"), dense)
        write_dense(folder, dense)
        if name == "bert":
            write_tokenizer(folder)
        if name in GGUF:
            write_gguf(folder, name, config, dense)
        golden = {"lengths": torch.tensor(lengths, dtype=torch.int32),
                  "tokens": torch.tensor(sum(texts, []), dtype=torch.int32),
                  "mean": unit(mean), "cls": unit([h[0] for h in hidden]), "last": unit([h[-1] for h in hidden]),
                  "plain": torch.stack(mean), "half": unit([m[:16] for m in mean])}
        save_file(golden, folder / "golden.safetensors")
        for file in folder.rglob("*.safetensors"):
            file.chmod(0o644)
        print(name, sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
