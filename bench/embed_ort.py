#!/usr/bin/env python3
"""embed_ort.py MODEL EMBED_BENCH [ROUNDS]: a batch of 32 texts of 128 tokens by ONNX Runtime and by embed_bench, in turns.

MODEL is a Hugging Face folder of a BERT. It is exported to ONNX with PyTorch (opset 17, the mean over tokens and the norm
included), optimised by ONNX Runtime with everything it has, and run with 2 threads. Needs torch, transformers, onnx, onnxruntime.
"""
import re, subprocess, sys, tempfile, time, warnings
import numpy as np, onnxruntime, torch, transformers
warnings.filterwarnings('ignore')
folder, bench, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3
TEXTS, TOKENS, THREADS = 32, 128, 2


class Embedder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(folder, attn_implementation='eager').eval()

    def forward(self, ids, mask):
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask[..., None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)


model = Embedder()
vocab = model.model.config.vocab_size
ids = torch.tensor([[(i * TOKENS + k) * 7919 % vocab for k in range(TOKENS)] for i in range(TEXTS)])
mask = torch.ones_like(ids)
path = tempfile.mkdtemp() + '/model.onnx'
with torch.no_grad():
    want = model(ids, mask).numpy()
    torch.onnx.export(model, (ids, mask), path, input_names=['ids', 'mask'], output_names=['y'], opset_version=17, dynamo=False,
                      dynamic_axes={'ids': {0: 'b', 1: 't'}, 'mask': {0: 'b', 1: 't'}})
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.graph_optimization_level = THREADS, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
feed = {'ids': ids.numpy(), 'mask': mask.numpy()}
print('onnxruntime', onnxruntime.__version__, 'off by', abs(session.run(None, feed)[0] - want).max())
bests = [1e9, 1e9]
for _ in range(rounds):
    end = time.time() + 3
    best = 1e9
    while time.time() < end:
        begin = time.perf_counter()
        session.run(None, feed)
        best = min(best, time.perf_counter() - begin)
    out = subprocess.run([bench, folder, str(THREADS), str(TEXTS), str(TOKENS), '3'], capture_output=True, text=True, check=True).stdout
    ours = float(re.search(r'([\d.]+) ms', out)[1]) / 1e3
    bests = [min(bests[0], best), min(bests[1], ours)]
    print(f'ONNX Runtime {best * 1e3:.1f} ms, ration {ours * 1e3:.1f} ms: {best / ours:.2f}')
print(f'best / best: {bests[0] / bests[1]:.2f}')
