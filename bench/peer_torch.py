#!/usr/bin/env python3
"""What PyTorch takes for what gemm_bench, conv_bench, train_bench and resnet_bench do, under the same names.

    peer_torch.py [THREADS [SECONDS for a figure [gemm|conv|train|resnet [NAME that figures begin with]]]]

A line is "name: milliseconds, GFLOP/s", the best of many runs; convolutions take the better of torch's two layouts.
Exits with 77 where torch is missing.
"""
import resource
import sys
import time

try:
    import torch
except ImportError:
    print("peer_torch: no torch here, skipped")
    sys.exit(77)

GEMMS = [  # name, m, n, k, x transposed, w transposed
    ("gemm 1024x1024x1024", 1024, 1024, 1024, False, False),
    ("gemm 1024x1024x1024 nn", 1024, 1024, 1024, False, True),
    ("gemm 1024x1024x1024 tn", 1024, 1024, 1024, True, True),
    ("llama q 1x4096x4096", 1, 4096, 4096, False, False),
    ("llama q 8x4096x4096", 8, 4096, 4096, False, False),
    ("llama q 512x4096x4096", 512, 4096, 4096, False, False),
    ("llama up 1x14336x4096", 1, 14336, 4096, False, False),
    ("llama up 8x14336x4096", 8, 14336, 4096, False, False),
    ("llama up 512x14336x4096", 512, 14336, 4096, False, False),
    ("llama down 1x4096x14336", 1, 4096, 14336, False, False),
    ("llama down 8x4096x14336", 8, 4096, 14336, False, False),
    ("llama down 512x4096x14336", 512, 4096, 14336, False, False),
    ("llama dw 4096x4096x512", 4096, 4096, 512, True, True),
    ("thin dw 64x64x65536", 64, 64, 65536, True, True),
]

# ResNet-18's convolutions: name, times it occurs, size in, channels in, out, kernel, stride, padding
RESNET18 = [
    ("conv1 7x7/2 3>64", 1, 224, 3, 64, 7, 2, 3),
    ("layer1 3x3 64>64", 4, 56, 64, 64, 3, 1, 1),
    ("layer2 3x3/2 64>128", 1, 56, 64, 128, 3, 2, 1),
    ("layer2 3x3 128>128", 3, 28, 128, 128, 3, 1, 1),
    ("layer2 1x1/2 64>128", 1, 56, 64, 128, 1, 2, 0),
    ("layer3 3x3/2 128>256", 1, 28, 128, 256, 3, 2, 1),
    ("layer3 3x3 256>256", 3, 14, 256, 256, 3, 1, 1),
    ("layer3 1x1/2 128>256", 1, 28, 128, 256, 1, 2, 0),
    ("layer4 3x3/2 256>512", 1, 14, 256, 512, 3, 2, 1),
    ("layer4 3x3 512>512", 3, 7, 512, 512, 3, 1, 1),
    ("layer4 1x1/2 256>512", 1, 14, 256, 512, 1, 2, 0),
]


def best_of(run, seconds):
    # With one thread its own time: other programs disturb it less.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin, best, n = time.perf_counter(), 1e9, 0
    while n < 3 or time.perf_counter() - begin < seconds:
        start = clock()
        run()
        best = min(best, clock() - start)
        n += 1
    return best


def tell(name, flops, best):
    print(f"{name:<28}: {best * 1e3:9.3f} ms {flops / best * 1e-9:8.1f} GFLOP/s", flush=True)


def gemms(seconds, wanted):
    for name, m, n, k, transpose_x, transpose_w in GEMMS:
        if not name.startswith(wanted):
            continue
        x = torch.randn(k, m).t() if transpose_x else torch.randn(m, k)
        w = torch.randn(k, n) if transpose_w else torch.randn(n, k).t()
        out = torch.empty(m, n)
        tell(name, 2 * m * n * k, best_of(lambda: torch.mm(x, w, out=out), seconds))


def conv_best(batch, size, c, o, kernel, stride, pad, seconds):
    best = 1e9
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(batch, c, size, size).contiguous(memory_format=layout)
        w = torch.randn(o, c, kernel, kernel).contiguous(memory_format=layout)
        best = min(best, best_of(lambda: torch.conv2d(x, w, stride=stride, padding=pad), seconds / 2))
    return best


def convs(seconds, wanted):
    for batch in (1, 8):
        total = total_flops = 0
        for name, times, size, c, o, kernel, stride, pad in RESNET18:
            name = f"b{batch} {name}"
            if not name.startswith(wanted):
                continue
            out = (size + 2 * pad - kernel) // stride + 1
            flops = 2 * batch * out * out * o * c * kernel * kernel
            best = conv_best(batch, size, c, o, kernel, stride, pad, seconds)
            tell(name, flops, best)
            total, total_flops = total + times * best, total_flops + times * flops
        if total:
            tell(f"b{batch} all 20 convolutions", total_flops, total)


class Block(torch.nn.Module):
    """A layer of train_bench's Llama."""

    def __init__(self, dim, heads, kv_heads, ffn):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(dim, 1e-5), torch.nn.RMSNorm(dim, 1e-5)
        self.q, self.o = linear(dim, dim), linear(dim, dim)
        self.k, self.v = linear(dim, kv_heads * self.width), linear(dim, kv_heads * self.width)
        self.gate, self.up, self.down = linear(dim, ffn), linear(dim, ffn), linear(ffn, dim)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.width).transpose(1, 2)

    def forward(self, x, cos, sin):
        y = self.norm1(x)
        q, k, v = self.split(self.q(y), self.heads), self.split(self.k(y), self.kv_heads), self.split(self.v(y), self.kv_heads)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Llama(torch.nn.Module):
    def __init__(self, layers=2, dim=512, heads=8, kv_heads=4, ffn=1536, vocab=4096, tokens=256):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, dim)
        self.blocks = torch.nn.ModuleList(Block(dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm, self.head = torch.nn.RMSNorm(dim, 1e-5), torch.nn.Linear(dim, vocab, bias=False)
        width = dim // heads
        angles = torch.outer(torch.arange(tokens).float(), 10000 ** (-torch.arange(0, width, 2).float() / width))
        self.cos, self.sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def train_step(model, optimizer, tokens, targets):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()


def trainer(kind, batch=4, tokens=256, vocab=4096, **sizes):
    model = Llama(vocab=vocab, tokens=tokens, **sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **{kind: True})
    ids = torch.randint(vocab, (batch, tokens + 1))
    return lambda: train_step(model, optimizer, ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def resident_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20


def train(seconds, kinds):
    """The best of the optimiser's two fast forms. The peak is the process's largest resident size less what was resident
    after a step of a tiny model of the same kind, so that torch's own libraries do not count."""
    for kind in kinds:
        trainer(kind, 1, 16, 64, dim=32, heads=2, kv_heads=1, ffn=64)()
    before = resident_mib()
    best = min(best_of(trainer(kind), seconds / len(kinds)) for kind in kinds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    for name in ("eager", "planned"):
        print(f"train step, {name:<16}: {best * 1e3:9.3f} ms", flush=True)
        print(f"train peak, {name:<16}: {peak:9.3f} MiB", flush=True)


def compiled(model, x):
    """torch.compile with weights as constants, so that norms are folded and weights packed; None where there is no compiler."""
    import torch._inductor.config as inductor
    torch._dynamo.reset()
    inductor.freezing = True
    try:
        model = torch.compile(model)
        model(x)
        return model
    except Exception as error:  # of whatever kind the compiler's are
        print(f"peer_torch: torch.compile: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def onnx_runtime(model, x):
    """The model by ONNX Runtime with as many threads; None where it or the exporter is missing."""
    try:
        import io
        import onnxruntime
        file = io.BytesIO()
        torch.onnx.export(model, (x,), file, dynamo=False)
    except Exception as error:
        print(f"peer_torch: ONNX Runtime: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file.getvalue(), options)
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)


def resnet(seconds):
    """Eager and compiled (the better of two layouts), and by ONNX Runtime; "planned", which stands beside ours, is the best of them."""
    import torchvision
    tell_one = lambda batch, name, best: print(f"resnet18 b{batch}, {name:<15}: {best * 1e3:9.3f} ms", flush=True)
    for batch in (1, 8):
        best = {}
        for layout in (torch.contiguous_format, torch.channels_last):
            model = torchvision.models.resnet18().eval().to(memory_format=layout)
            x = torch.randn(batch, 3, 224, 224).contiguous(memory_format=layout)
            runs = {"eager": lambda: model(x)}
            fast = compiled(model, x)
            if fast is not None:
                runs["compile"] = lambda: fast(x)
            if layout == torch.contiguous_format:
                runs["onnxruntime"] = onnx_runtime(model, x)
            for name, run in runs.items():
                if run:
                    best[name] = min(best.get(name, 1e9), best_of(run, seconds / 2))
        best["planned"] = min(best.values())
        for name, figure in best.items():
            tell_one(batch, name, figure)


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 and int(sys.argv[1]) else None
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    kinds = sys.argv[3:4] or ["gemm", "conv"]
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    if threads:
        torch.set_num_threads(threads)
    with torch.inference_mode():
        if "gemm" in kinds:
            gemms(seconds, wanted)
        if "conv" in kinds:
            convs(seconds, wanted)
        if "resnet" in kinds:
            resnet(seconds)
    if "train" in kinds:
        train(seconds, [wanted] if wanted else ["fused", "foreach"])


main()
