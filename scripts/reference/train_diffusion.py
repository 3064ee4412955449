#!/usr/bin/env python3
"""Steps of `ration train --objective diffusion` beside PyTorch's, for every family (packages torch, diffusers, transformers, peft, PIL).

    scripts/reference/train_diffusion.py --ration build/release/bin/ration [--models tests/golden/image] [--only xl]

Tiny models with random weights (tests/golden/image: sd, xl, flux; noise, v and flow prediction) are trained for a step or two by SGD with
momentum, whose state is the gradient, in f32. PyTorch computes the same step with diffusers' networks: ration's noise is a function of
(seed, sample), which is written again here. Printed, and checked against 1e-5: losses, and |difference| / |gradient| over all weights
(full) and over all additions (LoRA, its second step), without text encoders and with them. Then the LoRA files: diffusers loads its own naming and kohya's, and both give the
output that PyTorch computes with the additions. Exits with 77 where a package is missing.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import diffusers
    import numpy
    import torch
    from PIL import Image
    from safetensors.torch import load_file

    from train_images import normals, words
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import train_images

SEED, BATCH, RATE, LIMIT = 3, 2, 0.5, 1e-5
CAPTION = "a red circle"
train_images.SEED = SEED


class Model:
    """A folder's parts, and the inputs of step `number` as ration makes them."""

    def __init__(self, folder, pictures):
        index = json.loads((folder / "model_index.json").read_text())
        self.flux = "transformer" in index
        self.xl = "text_encoder_2" in index and not self.flux
        self.pipe = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32)
        self.net = (self.pipe.transformer if self.flux else self.pipe.unet).train()
        self.net.requires_grad_(True)
        vae = self.pipe.vae
        with torch.no_grad():
            self.moments = vae.encode(pictures).latent_dist
            self.encode()
        self.scale, self.shift = vae.config.scaling_factor, getattr(vae.config, "shift_factor", 0) or 0
        config = json.loads((folder / "scheduler/scheduler_config.json").read_text())
        self.v = config.get("prediction_type") == "v_prediction"
        betas = numpy.linspace(config.get("beta_start", 0.00085) ** 0.5, config.get("beta_end", 0.012) ** 0.5, 1000) ** 2
        self.alphas = torch.tensor(numpy.cumprod(1 - betas))
        self.size = pictures.shape[-2:]

    def encode(self):
        pipe = self.pipe
        if self.flux:
            rows, pooled, _ = pipe.encode_prompt(CAPTION, None, max_sequence_length=512)
            self.pooled = pooled.repeat(BATCH, 1)
        elif self.xl:
            rows, _, pooled, _ = pipe.encode_prompt(CAPTION, do_classifier_free_guidance=False)
            self.pooled = pooled.repeat(BATCH, 1)
        else:
            rows = pipe.encode_prompt(CAPTION, "cpu", 1, False)[0]
        self.context = rows.repeat(BATCH, 1, 1)

    def loss(self, step, encodes=False):
        if encodes:
            self.encode()
        n, c, h, w = BATCH, *self.moments.mean.shape[1:]
        count = n * c * h * w
        shape = lambda v: torch.tensor(v).reshape(n, h, w, c).permute(0, 3, 1, 2)
        z = (self.moments.mean + self.moments.std * shape(normals(22, step * count, count)) - self.shift) * self.scale
        e = shape(normals(12, step * count, count))
        if self.flux:
            s = torch.sigmoid(torch.tensor(normals(11, step * n, n)).double()).reshape(-1, 1, 1, 1)
            x, target = ((1 - s) * z + s * e).float(), (e - z).float()
            pack = lambda t: t.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(n, h * w // 4, 4 * c)
            ids = torch.zeros(h // 2, w // 2, 3)
            ids[..., 1] += torch.arange(h // 2)[:, None]
            ids[..., 2] += torch.arange(w // 2)[None]
            guidance = torch.ones(n) if self.net.config.guidance_embeds else None
            said = self.net(pack(x), self.context, self.pooled, s.reshape(-1).float(), ids.reshape(-1, 3), torch.zeros(self.context.shape[1], 3),
                            guidance).sample
            return ((said - pack(target)) ** 2).mean()
        t = torch.tensor([int(v) * 1000 >> 32 for v in words(11, step * n, n)])
        a = self.alphas[t].reshape(-1, 1, 1, 1)
        x = (a**0.5 * z + (1 - a) ** 0.5 * e).float()
        target = (a**0.5 * e - (1 - a) ** 0.5 * z).float() if self.v else e
        more = {}
        if self.xl:
            high, wide = self.size
            more["added_cond_kwargs"] = {"text_embeds": self.pooled, "time_ids": torch.tensor([[high, wide, 0, 0, high, wide]] * n).float()}
        return ((self.net(x, t, self.context, **more).sample - target) ** 2).mean()


def run(given, model, data, out, size, steps, *more):
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([given.ration, "train", model, "--objective", "diffusion", "--data", data, "--out", out, "--size", str(size), "--batch-size",
                    str(BATCH), "--seed", str(SEED), "--schedule", "constant", "--clip", "0", "--rate", str(RATE), "--optimizer", "momentum",
                    "--caption-dropout", "0", "--steps", str(steps), "--threads", "2", "--warmup", "0", "--quiet", *more], check=True)
    return [json.loads(line)["loss"] for line in open(out / "log.jsonl")], load_file(out / "checkpoint.safetensors")


def apart(ours, theirs):
    """|ours - theirs| / |theirs| over all tensors."""
    off = sum(((ours[k].reshape(v.shape).double() - v.double()) ** 2).sum().item() for k, v in theirs.items())
    return (off / sum((v.double() ** 2).sum().item() for v in theirs.values())) ** 0.5


def check(name, value):
    print(f"  {name:<44} {value:.1e}{'' if value <= LIMIT else '   TOO FAR'}")
    return value <= LIMIT


def full(given, folder, data, work, size, pictures):
    losses, state = run(given, folder, data, work / "full", size, 1, "--method", "full")
    model = Model(folder, pictures)
    loss = model.loss(0)
    loss.backward()
    gradients = {f"{k}.velocity": p.grad for k, p in model.net.named_parameters() if p.grad is not None}
    return [check("full: loss", abs(losses[0] / loss.item() - 1)), check("full: gradients", apart(state, gradients))]


def hook(model, parts):
    """Additions to modules, as PEFT makes them."""
    for name, (down, up) in parts.items():
        def add(module, inputs, output, down=down, up=up):
            return output + inputs[0] @ down.T @ up.T
        part, _, inner = name.partition(".")
        encoder = part.startswith("text_encoder")
        net, name = (getattr(model.pipe, part), inner) if encoder else (model.net, name)
        if encoder and not hasattr(net, "text_model"):
            name = name.removeprefix("text_model.")  # transformers 5
        net.get_submodule(name).register_forward_hook(add)


def lora(given, folder, data, work, size, pictures, encodes=False):
    more = ["--rank", "2"] + ["--train-text-encoders"] * encodes
    losses, state = run(given, folder, data, work / "lora", size, 2, *more)
    first = run(given, folder, data, work / "first", size, 1, *more)[1]
    model = Model(folder, pictures)
    for part in (model.net, getattr(model.pipe, "text_encoder", None), getattr(model.pipe, "text_encoder_2", None)):
        if part is not None:
            part.requires_grad_(False)
    names = [k[len("tuned."):-len(".weight.down")] for k in first if k.endswith(".down")]
    parts = {k: (first[f"tuned.{k}.weight.down"].clone().requires_grad_(True), torch.zeros_like(first[f"tuned.{k}.weight.up"]).requires_grad_(True))
             for k in names}
    hook(model, parts)
    assert encodes == any(name.startswith("text_encoder.") for name in names), names
    loss = model.loss(0, encodes)
    loss.backward()
    results = [check(f"lora ({len(names)} modules): loss", abs(losses[0] / loss.item() - 1)),
               check("lora: gradients, first step", apart(first, {f"tuned.{k}.weight.up.velocity": v[1].grad for k, v in parts.items()}))]
    with torch.no_grad():
        for down, up in parts.values():
            up -= RATE * up.grad
            up.grad, down.grad = None, None
    loss = model.loss(1, encodes)
    loss.backward()
    results += [check("lora: loss, second step", abs(losses[1] / loss.item() - 1)),
                check("lora: gradients, second step", apart(state, {f"tuned.{k}.weight.down.velocity": v[0].grad for k, v in parts.items()}))]
    if not model.flux or encodes:
        # XL's second encoder has the first one's names in kohya's files of diffusers' modules.
        return results + files(folder, work / "lora", pictures, ("pytorch_lora_weights", "lora_kohya")[:1 if model.flux else 2], encodes)
    # diffusers' reader of kohya's files knows single blocks of Flux.1's own size alone.
    results += files(folder, work / "lora", pictures, ("pytorch_lora_weights",))
    pairs = [("--target", f"transformer_blocks.*.{k}") for k in ("to_q", "to_k", "to_v", "to_add_out")]
    run(given, folder, data, work / "double", size, 2, "--rank", "2", *(word for pair in pairs for word in pair))
    return results + files(folder, work / "double", pictures, ("pytorch_lora_weights", "lora_kohya"))


def files(folder, out, pictures, names, encodes=False):
    """What diffusers' own loader makes of the files, beside the additions as they are."""
    state = load_file(out / "checkpoint.safetensors")
    with torch.no_grad():
        by_hand = Model(folder, pictures)
        base = by_hand.loss(5, encodes).item()
        hook(by_hand, {k[len("tuned."):-len(".weight.down")]: (v, state[k[:-4] + "up"]) for k, v in state.items() if k.endswith(".weight.down")})
        must, results = by_hand.loss(5, encodes).item(), []
        for name in names:
            model = Model(folder, pictures)
            model.pipe.load_lora_weights(out, weight_name=f"{name}.safetensors")
            results.append(check(f"diffusers loads {name}", abs(model.loss(5, encodes).item() - must) / abs(must - base)))
    return results


FAMILIES = {"sd": [("epsilon", {}), ("v", {"prediction_type": "v_prediction"})],
            "xl": [("epsilon", {}), ("v", {"prediction_type": "v_prediction"})],
            "flux": [("flow", {})]}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ration", default="build/release/bin/ration")
    options.add_argument("--models", default="tests/golden/image", type=pathlib.Path)
    options.add_argument("--only", default="")
    given = options.parse_args()
    work, results = pathlib.Path(tempfile.mkdtemp(prefix="train-diffusion-")), []
    for family, kinds in FAMILIES.items():
        if given.only and given.only != family:
            continue
        folder = work / family
        shutil.copytree(given.models / family, folder)
        config = json.loads((folder / "vae/config.json").read_text())
        factor = 2 ** (len(config["block_out_channels"]) - 1)
        size = factor * 8
        data = work / f"data-{family}"
        data.mkdir()
        pixels = (numpy.random.default_rng(1).random((size, size, 3)) * 255).astype(numpy.uint8)
        for i in range(BATCH):
            Image.fromarray(pixels).save(data / f"{i}.png")
            (data / f"{i}.txt").write_text(CAPTION)
        pictures = torch.tensor(pixels).permute(2, 0, 1)[None].float() * 2 / 255 - 1
        for name, changes in kinds:
            path = folder / "scheduler/scheduler_config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))
            print(f"{family}, {name} prediction, {size} x {size}", flush=True)
            results += full(given, folder, data, work, size, pictures)
            results += lora(given, folder, data, work, size, pictures)
            print("  with text encoders", flush=True)
            results += lora(given, folder, data, work, size, pictures, True)
    shutil.rmtree(work)
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
