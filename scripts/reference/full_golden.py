#!/usr/bin/env python3
"""Gradients of all weights of a model by PyTorch, for tests/unit/train/full_test.c.

Two sequences of 12 tokens, the first packed of two documents, which the reference runs one by one. Weights are
widened to f32 first. The file holds the batch, its loss and "gradient.<weight>".

    full_golden.py tests/golden/text/llama3 tests/golden/full_llama3_golden.safetensors
    full_golden.py tests/golden/text/qwen2 tests/golden/full_qwen2_golden.safetensors
"""
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

TOKENS = 12
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
torch.manual_seed(21)
tokens = torch.randint(0, model.config.vocab_size, (2, TOKENS))
documents = torch.zeros(2, TOKENS, dtype=torch.int32)
documents[0, 5:] = 5
targets = torch.full((2, TOKENS), -100)
total, counted = 0.0, 0
for row, begin, end in ((0, 0, 5), (0, 5, TOKENS), (1, 0, TOKENS)):
    targets[row, begin:end - 1] = tokens[row, begin + 1:end]
targets[1, :4] = -100
for row, begin, end in ((0, 0, 5), (0, 5, TOKENS), (1, 0, TOKENS)):
    logits = model(input_ids=tokens[row:row + 1, begin:end]).logits[0]
    part = targets[row, begin:end]
    total = total + torch.nn.functional.cross_entropy(logits, part, ignore_index=-100, reduction="sum")
    counted += int((part != -100).sum())
loss = total / counted
loss.backward()

out = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32), "documents": documents,
       "loss": loss.detach().reshape(1)}
for name, parameter in model.named_parameters():  # a tied head is the embedding: once
    out["gradient." + name] = parameter.grad.contiguous()
save_file(out, sys.argv[2])
print("%d weights, loss %.6f" % (len(out) - 4, loss.item()))
