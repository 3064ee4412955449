"""add_vocabulary.py MODEL.gguf VOCAB.gguf OUT.gguf: MODEL's tensors and shape with VOCAB's tokenizer.

Random weights would also say bytes that are no UTF-8 (llama-server answers those with an error) and end at any time. The rows
of the head that belong to control, unknown and byte tokens become zeros, so greedy decoding never chooses them."""
import sys
import gguf

model, vocab, out = gguf.GGUFReader(sys.argv[1]), gguf.GGUFReader(sys.argv[2]), sys.argv[3]
writer = gguf.GGUFWriter(out, model.fields["general.architecture"].contents())


def copy(reader, keep):
    for name, field in reader.fields.items():
        if keep(name):
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)


copy(model, lambda name: not name.startswith(("tokenizer.", "GGUF.")) and name != "general.architecture")
copy(vocab, lambda name: name.startswith("tokenizer."))
kinds = vocab.fields["tokenizer.ggml.token_type"].contents()
for tensor in model.tensors:
    data = tensor.data
    if tensor.name == "output.weight":
        data = data.copy()
        data[[i for i, kind in enumerate(kinds) if kind != 1]] = 0
    writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
