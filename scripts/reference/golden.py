"""What the *_golden.py scripts share: random numbers, three AdamW steps, digests, and the file's format.

A golden file is a safetensors file. What both sides can make themselves is not stored but described:

    random/NAME   f32 (3): stream, scale, offset. Element i of the tensor is offset + scale * (2 u - 1), each operation
                  rounded to f32, where u = (w >> 8) / 2^24 and w is word i % 4 of block i / 4 of that Philox4x32-10
                  stream under SEED (src/graph/philox.h): weights, states before training, inputs
    input/NAME    i32: tokens, targets; f32
    output/NAME   what inference gives
    train/adamw   f64 (3): rate, eps, weight decay
    train/loss    f64 (3): before each of the three steps;  train/logits: before the first
    grad/NAME     before the first step;  update/NAME: the weight after three steps minus the weight before
    state/NAME    running statistics after the first forward pass
    zero/NAME     f64: the true gradient of NAME is 0 (a bias in front of a batchnorm), what is computed is rounding. This
                  is the size of what cancels: over the channels, the norm of the sums of the terms' absolute values

AdamW's first steps move every element by nearly the rate, whatever the size of its gradient: where a gradient is as small as
its rounding errors, the sign of the step is chance. Each script therefore repeats its steps in f64 and prints how far f32 is
from them, and chooses eps so that PyTorch's own f32 is well within what the tests ask of ration.

A tensor of more than WHOLE elements has, instead of itself, three marks, all in f64 arithmetic:

    KEY/samples      f32 (4096): the elements at i * (n // 4096)
    KEY/norm         f64: its 2-norm
    KEY/projections  f64 (8): sum over i of (bit k of w_i ? -1 : 1) * element i, w_i being word i of the stream SIGNS. The
                     mean of the squares of the differences of two tensors' projections is an unbiased estimate of the
                     square of the 2-norm of the tensors' difference
"""

import copy
import json
import math
import pathlib
import struct

import torch

SEED = 20240607
SIGNS = 0xFFFFFFFF  # the stream of the projections' signs
WHOLE = 20000
SAMPLES = 4096
PROJECTIONS = 8
STEPS = 3
DECAY = 0.01
FOLDER = pathlib.Path(__file__).parents[2] / "tests/golden"

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


def philox(stream, count):
    """`count` words of a stream, as int64."""
    mask = 0xFFFFFFFF
    block = torch.arange((count + 3) // 4, dtype=torch.int64)
    c = [block & mask, block >> 32, torch.full_like(block, stream), torch.zeros_like(block)]
    key = [SEED & mask, SEED >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57  # wraps; the bits are those of the unsigned product
        c = [(b >> 32 & mask) ^ c[1] ^ key[0], b & mask, (a >> 32 & mask) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return torch.stack(c, 1).reshape(-1)[:count]


def digest(out, key, tensor):
    """Puts a tensor, or its marks, into the dict `out`."""
    if tensor.numel() <= WHOLE:
        out[key] = tensor.float()
        return
    flat = tensor.detach().double().reshape(-1)
    words = philox(SIGNS, flat.numel())
    out[key + "/samples"] = flat[:: flat.numel() // SAMPLES][:SAMPLES].float()
    out[key + "/norm"] = flat.norm()
    out[key + "/projections"] = torch.stack([(flat * (1 - 2 * (words >> k & 1))).sum() for k in range(PROJECTIONS)])


class Golden:
    def __init__(self, name):
        self.path = FOLDER / f"{name}_golden.safetensors"
        self.tensors = {}
        self.streams = 0

    def random(self, name, shape, scale, offset=0.0):
        """A random f32 tensor in offset ± scale, described in the file."""
        description = torch.tensor([self.streams, scale, offset], dtype=torch.float32)
        self.tensors["random/" + name] = description
        unit = (philox(self.streams, math.prod(shape)) >> 8).float() * 2.0**-24
        self.streams += 1
        return ((2 * unit - 1) * description[1] + description[2]).reshape(shape)

    def fill(self, model, gain=lambda name: 1.0):
        """Gives every weight and running statistic random values of a likely size; norms' weights `gain` times that."""
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                if name.endswith("num_batches_tracked"):
                    continue
                if tensor.dim() > 1:
                    scale, offset = math.sqrt(3 / tensor[0].numel()), 0.0
                elif name.endswith("weight") or name.endswith("running_var"):
                    scale, offset = 0.25 * gain(name), gain(name)
                else:
                    scale, offset = 0.1, 0.0
                tensor.copy_(self.random(name, tuple(tensor.shape), scale, offset))

    def train(self, model, loss_of, zero=(), rate=1e-2, eps=1e-8):
        """Three steps. loss_of(model) -> (loss, logits). `zero`: weights whose gradient is 0, with their modules."""
        self.tensors["train/adamw"] = torch.tensor([rate, eps, DECAY], dtype=torch.float64)
        exact = steps(copy.deepcopy(model).double(), loss_of, rate, eps)
        sizes = {}
        for name, module in zero:
            watch(module, name, sizes)
        run = steps(model, loss_of, rate, eps)
        self.tensors["train/loss"] = torch.tensor(run["loss"], dtype=torch.float64)
        self.tensors["train/logits"] = run["logits"]
        for name, _ in model.named_parameters():
            if name in sizes:
                self.tensors["zero/" + name] = sizes[name]
                continue
            for kind in "grad", "update":
                digest(self.tensors, f"{kind}/{name}", run[kind][name])
        self.tensors |= {"state/" + name: tensor for name, tensor in run["state"].items()}
        for kind in "grad", "update":
            print(f"{self.path.name}: f32 is from f64 at most", worst(run[kind], exact[kind], sizes), f"in any {kind}")

    def infer(self, model, run):
        model.eval()
        with torch.no_grad():
            self.tensors["output/logits"] = run(model)

    def save(self):
        write(self.path, self.tensors)
        print(f"{self.path.name}: {len(self.tensors)} tensors, {self.path.stat().st_size} bytes")


def dtype_of(model):
    return next(model.parameters()).dtype


def steps(model, loss_of, rate, eps):
    """Three steps: the losses, the first logits and gradients, and how far each weight has come."""
    before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, eps=eps, weight_decay=DECAY)
    out = {"loss": []}
    model.train()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, logits = loss_of(model)
        loss.backward()
        out["loss"].append(loss.item())
        if step == 0:
            out["logits"] = logits.detach().clone()
            out["state"] = {n: b.clone() for n, b in model.named_buffers() if not n.endswith("num_batches_tracked")}
            out["grad"] = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    out["update"] = {name: p.detach().double() - before[name] for name, p in model.named_parameters()}
    return out


def worst(a, b, leave_out):
    """The largest ‖a - b‖ / ‖b‖ of any tensor, and which."""
    return max((((a[n].double() - b[n]).norm() / b[n].norm()).item(), n) for n in b if n not in leave_out)


def watch(module, name, sizes):
    """Measures what cancels in the gradient of the module's bias, in the first backward pass."""

    def hook(_module, _inputs, outputs):
        gradient = outputs[0].double().abs().sum((0, 2, 3))
        sizes.setdefault(name, gradient.norm())

    module.register_full_backward_hook(hook)


def write(path, tensors):
    names = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}
    header, blobs, at = {}, [], 0
    for key in sorted(tensors, key=lambda k: (-tensors[k].element_size(), k)):
        t = tensors[key].contiguous()
        blob = bytes(t.reshape(-1).view(torch.uint8).tolist()) if t.numel() else b""
        header[key] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
