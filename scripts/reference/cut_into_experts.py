#!/usr/bin/env python3
"""A dense GGUF model as a mixture of experts that says the same: its feed-forward cut into groups of columns.

    scripts/reference/cut_into_experts.py DENSE.gguf EXPERTS OUT.gguf     (needs numpy, gguf)

Expert i has rows of gate and up, and columns of down, of group i. Every row goes to all of them with weight 1 (a router of zeros: equal
weights, times EXPERTS), so the result is the dense model's up to the order of one sum. Quantised blocks are moved, not made anew: a group must be
whole blocks of `down`. llama becomes llama with experts (Mixtral), qwen2 becomes qwen2moe, qwen3 qwen3moe.
"""

import sys

import gguf
import numpy as np

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2moe", "qwen3": "qwen3moe"}


def copy_settings(reader, writer, dense, moe):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        name = moe + field.name[len(dense):] if field.name.startswith(dense + ".") else field.name
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)


def main():
    source, experts, target = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    reader = gguf.GGUFReader(source)
    dense = reader.fields["general.architecture"].contents()
    moe = ARCHITECTURES[dense]
    ffn = int(reader.fields[f"{dense}.feed_forward_length"].contents())
    width = int(reader.fields[f"{dense}.embedding_length"].contents())
    if ffn % experts:
        sys.exit(f"{ffn} columns cannot be cut into {experts} groups")
    writer = gguf.GGUFWriter(target, moe)
    copy_settings(reader, writer, dense, moe)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(experts)
    writer.add_expert_feed_forward_length(ffn // experts)
    writer.add_expert_weights_scale(float(experts))
    if moe == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(0)
    for t in reader.tensors:
        data, name = t.data, t.name
        part = name.split(".")[-2]
        if part in ("ffn_gate", "ffn_up"):
            data = data.reshape(experts, ffn // experts, -1)
        elif part == "ffn_down":
            block = gguf.GGML_QUANT_SIZES[t.tensor_type][0]
            if ffn // experts % block:
                sys.exit(f"{name}: {ffn // experts} columns are no whole blocks of {block}")
            data = np.ascontiguousarray(data.reshape(width, experts, -1).swapaxes(0, 1))
        if part in ("ffn_gate", "ffn_up", "ffn_down"):
            name = name.replace(part, f"{part}_exps")
        writer.add_tensor(name, data, raw_dtype=t.tensor_type)
        if part == "ffn_down":
            writer.add_tensor(t.name.replace("ffn_down", "ffn_gate_inp"), np.zeros((experts, width), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
