#!/usr/bin/env python3
"""Losses of `ration train --objective diffusion|autoencoder` beside PyTorch's (packages torch, diffusers, transformers).

    scripts/reference/train_images.py --ration build/release/bin/ration --examples build/release/examples

Both begin with the same weights and see the same batches: the noise of ration's steps is a function of (seed, sample), which is
written again here (Philox4x32-10). The pictures of the batch are one picture, so that their order does not matter. Prints the losses of
both side by side and the largest relative difference.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from PIL import Image
from transformers import CLIPTextModel, CLIPTokenizer

SEED, BATCH, STEPS, RATE = 3, 4, 6, 0.001


def philox(seed, stream, blocks):
    c = [blocks & 0xFFFFFFFF, blocks >> 32, numpy.full_like(blocks, stream), numpy.zeros_like(blocks)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(c, -1)


def words(stream, first, count):
    i = numpy.arange(first, first + count, dtype=object)
    blocks = numpy.array([int(x) // 4 for x in i], dtype=numpy.uint64)
    return philox(SEED, stream, blocks)[numpy.arange(count), [int(x) % 4 for x in i]]


def normals(stream, first, count):
    i = numpy.arange(first, first + count)
    four = philox(SEED, stream, (i // 4).astype(numpy.uint64))
    j = i % 4 // 2 * 2
    rows = numpy.arange(count)
    a = ((four[rows, j] >> 8) + 1).astype(float) * 2.0**-24
    b = (four[rows, j + 1] >> 8).astype(float) * 2.0**-24
    radius = numpy.sqrt(-2 * numpy.log(a))
    angle = 2 * numpy.pi * b
    return (radius * numpy.where(i % 2 == 0, numpy.cos(angle), numpy.sin(angle))).astype(numpy.float32)


def run(ration, model, data, out, *more):
    subprocess.run([ration, "train", model, "--data", data, "--out", out, "--size", "32", "--batch-size", str(BATCH), "--seed", str(SEED),
                    "--schedule", "constant", "--clip", "0", "--quiet", *more], check=True)
    return [json.loads(line)["loss"] for line in open(out / "log.jsonl")]


def autoencoder(model, picture):
    vae = AutoencoderKL.from_pretrained(model / "vae").float().train()
    optimizer = torch.optim.AdamW(vae.parameters(), lr=RATE, weight_decay=0)
    x = picture.repeat(BATCH, 1, 1, 1)
    for step in range(STEPS):
        moments = vae.encode(x).latent_dist
        mean, logvar = moments.mean, moments.logvar
        n, c, h, w = mean.shape
        e = torch.tensor(normals(22, step * n * c * h * w, n * c * h * w)).reshape(n, h, w, c).permute(0, 3, 1, 2)
        z = mean + torch.exp(0.5 * logvar) * e
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
        loss = torch.nn.functional.mse_loss(vae.decode(z).sample, x) + 1e-6 * kl
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def diffusion(model, picture, caption, gamma, offset):
    vae = AutoencoderKL.from_pretrained(model / "vae").float()
    unet = UNet2DConditionModel.from_pretrained(model / "unet").float().train()
    text, tokenizer = CLIPTextModel.from_pretrained(model / "text_encoder"), CLIPTokenizer.from_pretrained(model / "tokenizer")
    ids = tokenizer([caption], padding="max_length", truncation=True, max_length=tokenizer.model_max_length, return_tensors="pt").input_ids
    context = text(ids)[0].detach().repeat(BATCH, 1, 1)
    betas = numpy.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    alphas = torch.tensor(numpy.cumprod(1 - betas))
    with torch.no_grad():
        moments = vae.encode(picture).latent_dist
    optimizer = torch.optim.AdamW(unet.parameters(), lr=RATE, weight_decay=0)
    for step in range(STEPS):
        c, h, w = moments.mean.shape[1:]
        count = BATCH * c * h * w
        shape = lambda v: torch.tensor(v).reshape(BATCH, h, w, c).permute(0, 3, 1, 2)
        z = (moments.mean + moments.std * shape(normals(22, step * count, count))) * vae.config.scaling_factor
        e = shape(normals(12, step * count, count))
        e = e + offset * torch.tensor(normals(13, step * BATCH * c, BATCH * c)).reshape(BATCH, c, 1, 1)
        t = torch.tensor([int(v) * 1000 >> 32 for v in words(11, step * BATCH, BATCH)])
        a = alphas[t].reshape(-1, 1, 1, 1)
        x, target = (a**0.5 * z + (1 - a) ** 0.5 * e).float(), (a**0.5 * e - (1 - a) ** 0.5 * z).float()
        snr = a / (1 - a)
        weight = (torch.clamp(snr, max=gamma) / (snr + 1)).float()
        loss = (weight * (unet(x, t, context).sample - target) ** 2).mean()
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def show(name, ours, theirs):
    print(f"{name}\n  ration  " + " ".join(f"{x:.6f}" for x in ours) + "\n  PyTorch " + " ".join(f"{x:.6f}" for x in theirs))
    print(f"  largest relative difference {max(abs(a / b - 1) for a, b in zip(ours, theirs)):.1e}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ration", default="build/release/bin/ration")
    options.add_argument("--examples", default="build/release/examples")
    given = options.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="train-images-"))
    program = f"{given.examples}/train_pictures"
    subprocess.run([program, "draw", work / "data", "1", "5"], check=True)
    subprocess.run([program, "begin", work / "start"], check=True)
    for i in range(1, BATCH):
        for ending in ("png", "txt"):
            shutil.copy(work / f"data/00000.{ending}", work / f"data/0000{i}.{ending}")
    pixels = numpy.array(Image.open(work / "data/00000.png"))
    picture = torch.tensor(pixels).permute(2, 0, 1)[None].float() * 2 / 255 - 1
    caption = (work / "data/00000.txt").read_text()
    one = ["--rate", "0", "--steps", "1"]
    run(given.ration, work / "start", work / "data", work / "vae", "--objective", "autoencoder", *one)
    run(given.ration, work / "vae/model", work / "data", work / "unet", "--objective", "diffusion", *one)
    base, steps = work / "unet/model", ["--rate", str(RATE), "--steps", str(STEPS), "--method", "full"]
    ours = run(given.ration, base, work / "data", work / "a", "--objective", "autoencoder", *steps)
    show("autoencoder", ours, list(autoencoder(base, picture)))
    ours = run(given.ration, base, work / "data", work / "d", "--objective", "diffusion", "--min-snr", "5", "--offset-noise", "0.1",
               "--caption-dropout", "0", *steps)
    show("diffusion (v, Min-SNR 5, offset 0.1)", ours, list(diffusion(base, picture, caption, 5, 0.1)))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
