#!/usr/bin/env python3
"""A small mixture of experts that learnt to tell stories, and what PyTorch says of it.

    build/dev/examples/train_tiny --stories 12000 | scripts/reference/trained_moe.py [MINUTES]     (needs torch, transformers, safetensors)

A Qwen3-MoE of two layers with 8 experts, of which 2 are chosen, over single characters (ASCII codes are its tokens), trained with the loss
that balances experts. Writes tests/golden/text/trained_moe/: config.json, model.safetensors in f16 and golden.safetensors: "tokens", a
beginning and the 200 likeliest characters behind it one after the other, "logits" behind each of them, and "experts" (layers, tokens, 2),
who was chosen, by rising number.
"""

import json
import sys
import time

import torch
import transformers
from safetensors.torch import save_file

from text_models import FOLDER

WIDTH, BATCH, BEGINNING = 96, 8, "Once upon a time, a "
CONFIG = transformers.Qwen3MoeConfig(
    vocab_size=128, hidden_size=64, intermediate_size=64, moe_intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True, max_position_embeddings=512,
    tie_word_embeddings=True, output_router_logits=True, router_aux_loss_coef=0.01, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def train(model, text, seconds):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    start, steps = time.monotonic(), 0
    while (spent := time.monotonic() - start) < seconds:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, steps / 50 + 0.02) * (1 - 0.95 * spent / seconds)
        at = torch.randint(len(text) - WIDTH, (BATCH,), generator=generator)
        rows = torch.stack([text[i:i + WIDTH] for i in at.tolist()])
        loss = model(rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if steps % 20 == 0:
            print(steps, round(loss.item(), 3), round(spent), flush=True)
        steps += 1
    return steps


def choices(model, tokens):
    """(layers, tokens, 2): the experts of each token."""
    with torch.no_grad():
        logits = model(tokens[None], output_router_logits=True).router_logits
    return torch.stack([z.view(len(tokens), -1).topk(2).indices.sort(-1).values for z in logits]).int()


def measure(folder):
    """The golden file of the model in the folder."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    model.config._experts_implementation = "eager"
    tokens, cache = list(BEGINNING.encode()), transformers.DynamicCache()
    with torch.no_grad():
        new = tokens
        while len(tokens) < len(BEGINNING) + 200:
            out = model(torch.tensor([new]), past_key_values=cache, use_cache=True)
            new = [out.logits[0, -1].argmax().item()]
            tokens = tokens + new
        logits = model(torch.tensor([tokens])).logits[0]
    best = logits.topk(2).values
    save_file({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.contiguous(),
               "experts": choices(model, torch.tensor(tokens)).contiguous()}, folder / "golden.safetensors")
    print(json.dumps({"smallest margin": (best[:, 0] - best[:, 1])[len(BEGINNING) - 1:-1].min().item(), "text": bytes(tokens).decode()}))


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    text = torch.tensor([b for b in sys.stdin.buffer.read() if b < 128], dtype=torch.long)
    folder = FOLDER / "trained_moe"
    folder.mkdir(exist_ok=True)
    if minutes > 0:  # 0: the model that is there
        torch.manual_seed(1)
        CONFIG._attn_implementation, CONFIG._experts_implementation = "sdpa", "batched_mm"
        model = transformers.AutoModelForCausalLM.from_config(CONFIG).float()
        print("steps", train(model, text, 60 * minutes))
        CONFIG.output_router_logits = False
        CONFIG.architectures = ["Qwen3MoeForCausalLM"]
        model.half().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
    measure(folder)


if __name__ == "__main__":
    main()
