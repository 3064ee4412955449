#!/usr/bin/env python3
"""Token ids and assistant masks of chats by transformers' apply_chat_template, for tests/unit/train/data_test.c.

    data_golden.py models/default tests/golden/train_chats.jsonl

Each line is a chat ("messages") with what transformers makes of it by TEMPLATE: "ids" and "mask". A reader of training
data skips the two.
"""
import json
import sys

from transformers import PreTrainedTokenizerFast

# The reader is tested with this template, and without its marks.
TEMPLATE = ("{% for m in messages %}[{{ m['role'] }}]{% if m['role'] == 'assistant' %}{% generation %}"
            " {{ m['content'] }}{% endgeneration %}{% else %} {{ m['content'] }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}")
CHATS = [
    [("user", "Tell me a story."), ("assistant", "Once upon a time, there was a little bear.")],
    [("system", "You are kind."), ("user", "Hello?"), ("assistant", "Hi!"), ("user", "More, please."),
     ("assistant", "The bear sang. \"Help!\" it called.")],
    [("user", "é ü 漢字"), ("assistant", "😀 yes\n\nand no  \t!")],
]
tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1] + "/tokenizer.json")
with open(sys.argv[2], "w") as out:
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        made = tokenizer.apply_chat_template(messages, chat_template=TEMPLATE, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        out.write(json.dumps({"messages": messages, "ids": made["input_ids"], "mask": made["assistant_masks"]}) + "\n")
