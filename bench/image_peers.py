#!/usr/bin/env python3
"""Stable Diffusion 1.5's shapes beside PyTorch and stable-diffusion.cpp, with made-up weights.

    image_peers.py make FILE.safetensors      one file with Stability's names, f16: UNet, CLIP-L, autoencoder
    image_peers.py unet PIXELS [compile] [bf16]  a step of diffusers' UNet, batch 2, 2 threads: seconds, and the process's peak

The same step by `ration image FILE --tokenizer ... --size PIXELS --steps 3 --threads 2 --json` (seconds.denoise / denoiser_runs) and by
`sd-cli -m FILE -H PIXELS -W PIXELS --steps 3 -t 2 --cfg-scale 7`, which both draw with guidance: two pictures' rows in a step.
"""
import resource
import sys
import time

import torch


def make_unet():
    from diffusers import UNet2DConditionModel
    return UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8).eval()


# ---- names -------------------------------------------------------------------------------------


RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "norm2": "out_layers.0", "conv2": "out_layers.3",
          "time_emb_proj": "emb_layers.1", "conv_shortcut": "skip_connection"}
OUTSIDE = {"conv_in": "input_blocks.0.0", "time_embedding.linear_1": "time_embed.0", "time_embedding.linear_2": "time_embed.2",
           "conv_norm_out": "out.0", "conv_out": "out.2"}


def unet_name(name):
    parts = name.split(".")
    if parts[0] in ("down_blocks", "up_blocks"):
        level, kind, i, rest = int(parts[1]), parts[2], int(parts[3]), ".".join(parts[4:])
        down = parts[0] == "down_blocks"
        block = (f"input_blocks.{1 + 3 * level + i}" if down else f"output_blocks.{3 * level + i}")
        if kind == "resnets":
            return f"{block}.0.{RESNET[parts[4]]}.{parts[5]}"
        if kind == "attentions":
            return f"{block}.1.{rest}"
        if kind == "downsamplers":
            return f"input_blocks.{3 * (level + 1)}.0.op.{parts[5]}"
        return f"output_blocks.{3 * level + 2}.{1 if level == 0 else 2}.conv.{parts[5]}"
    if parts[0] == "mid_block":
        if parts[1] == "attentions":
            return "middle_block.1." + ".".join(parts[3:])
        return f"middle_block.{2 * int(parts[2])}.{RESNET[parts[3]]}.{parts[4]}"
    for ours, theirs in OUTSIDE.items():
        if name.startswith(ours + "."):
            return theirs + name[len(ours):]
    raise ValueError(name)


def vae_name(name):
    parts = name.split(".")
    if parts[0] not in ("encoder", "decoder"):
        return name
    side, rest = parts[0], parts[1:]
    attention = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out": "proj_out"}
    if rest[0] == "mid_block":
        if rest[1] == "resnets":
            return f"{side}.mid.block_{int(rest[2]) + 1}." + ".".join(rest[3:])
        return f"{side}.mid.attn_1.{attention[rest[3]]}.{rest[-1]}"
    if rest[0] in ("down_blocks", "up_blocks"):
        down, level = rest[0] == "down_blocks", int(rest[1])
        block = f"{side}.{'down' if down else 'up'}.{level if down else 3 - level}"
        if rest[2] == "resnets":
            inner = ".".join(rest[4:]).replace("conv_shortcut", "nin_shortcut")
            return f"{block}.block.{rest[3]}.{inner}"
        return f"{block}.{'downsample' if down else 'upsample'}.conv.{rest[-1]}"
    return f"{side}." + ".".join(rest).replace("conv_norm_out", "norm_out")


def make(path):
    from diffusers import AutoencoderKL
    from safetensors.torch import save_file
    from transformers import CLIPTextConfig, CLIPTextModel
    torch.manual_seed(1)
    blocks = ["DownEncoderBlock2D"] * 4, ["UpDecoderBlock2D"] * 4
    vae = AutoencoderKL(down_block_types=blocks[0], up_block_types=blocks[1], block_out_channels=(128, 256, 512, 512),
                        layers_per_block=2, latent_channels=4)
    clip = CLIPTextModel(CLIPTextConfig(vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
                                        num_attention_heads=12, projection_dim=768))
    tensors = {"model.diffusion_model." + unet_name(n): t for n, t in make_unet().state_dict().items()}
    for name, t in vae.state_dict().items():
        square = "attentions" in name and t.dim() == 2
        tensors["first_stage_model." + vae_name(name)] = t[:, :, None, None] if square else t
    for name, t in clip.state_dict().items():
        name = name if name.startswith("text_model.") else "text_model." + name
        tensors["cond_stage_model.transformer." + name] = t
    save_file({n: t.detach().half().contiguous() for n, t in tensors.items()}, path)
    print(len(tensors), "tensors,", sum(t.numel() for t in tensors.values()), "weights")


# ---- PyTorch -----------------------------------------------------------------------------------


def step(pixels, words):
    torch.set_num_threads(2)
    kind = torch.bfloat16 if "bf16" in words else torch.float32
    model = make_unet().to(kind)
    if "channels_last" in words:
        model = model.to(memory_format=torch.channels_last)
    if "compile" in words:
        model = torch.compile(model)
    x = torch.randn(2, 4, pixels // 8, pixels // 8, dtype=kind)
    context = torch.randn(2, 77, 768, dtype=kind)
    seconds = []
    with torch.inference_mode():
        for _ in range(4):
            begin = time.perf_counter()
            model(x, torch.tensor(500), encoder_hidden_states=context)
            seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("%s: best %.3f s of %s, resident at the peak %.0f MiB" % (
        " ".join(words) or "eager", min(seconds[1:]), ["%.3f" % s for s in seconds], peak), flush=True)


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    step(int(sys.argv[2]), sys.argv[3:])
