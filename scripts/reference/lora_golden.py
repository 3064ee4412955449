#!/usr/bin/env python3
"""Gradients of LoRA factors by the real peft, for tests/unit/train/finetune_test.c.

Two sequences of 12 tokens, the first packed of two documents, which the reference runs one by one. The file is a
checkpoint that a trainer resumes from (the factors before the step), with what peft makes of it: "gradient.<factor>";
of DoRA also the magnitudes that it begins with: "first.<magnitude>".

    lora_golden.py tests/golden/text/llama3 tests/golden/lora_golden.safetensors
    lora_golden.py tests/golden/text/qwen2 tests/golden/dora_golden.safetensors --dora
"""
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

TOKENS = 12
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
dora = "--dora" in sys.argv
config = LoraConfig(r=4, lora_alpha=6, use_rslora=True, use_dora=dora, target_modules=["q_proj", "v_proj", "down_proj", "gate_proj"],
                    task_type="CAUSAL_LM")
peft = get_peft_model(model, config).eval()

torch.manual_seed(20)
factors, first = {}, {}
for name, parameter in peft.named_parameters():
    if "lora_" not in name:
        continue
    module = name.split("base_model.model.")[1].split(".lora_")[0]
    what = "down" if ".lora_A." in name else "up" if ".lora_B." in name else "magnitude"
    tuned = "tuned.%s.weight.%s" % (module, what)
    factors[tuned] = parameter
    with torch.no_grad():
        if what == "magnitude":
            first["first." + tuned] = parameter.detach().clone()
            parameter.mul_(1 + torch.randn_like(parameter) * 0.1)
        else:
            parameter.copy_(torch.randn_like(parameter) * 0.1)

vocab = model.config.vocab_size
tokens = torch.randint(0, vocab, (2, TOKENS))
documents = torch.zeros(2, TOKENS, dtype=torch.int32)
documents[0, 5:] = 5
targets = torch.full((2, TOKENS), -100)
total, counted = 0.0, 0
for row, begin, end in ((0, 0, 5), (0, 5, TOKENS), (1, 0, TOKENS)):
    targets[row, begin:end - 1] = tokens[row, begin + 1:end]
targets[1, :4] = -100
for row, begin, end in ((0, 0, 5), (0, 5, TOKENS), (1, 0, TOKENS)):
    logits = peft(input_ids=tokens[row:row + 1, begin:end]).logits[0]
    part = targets[row, begin:end]
    total = total + torch.nn.functional.cross_entropy(logits, part, ignore_index=-100, reduction="sum")
    counted += int((part != -100).sum())
loss = total / counted
loss.backward()

out = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32), "documents": documents,
       "loss": loss.detach().reshape(1), **first}
for name, parameter in factors.items():
    out[name] = parameter.detach().contiguous()
    out["gradient." + name] = parameter.grad.contiguous()
save_file(out, sys.argv[2], metadata={"step": "0", "optimizer": "sgd"})
print("%d factors, loss %.6f" % (len(factors), loss.item()))
