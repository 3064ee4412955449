#!/usr/bin/env python3
"""Tiny diffusion models with random weights as diffusers' folders, and what diffusers draws with them.

    scripts/reference/image_pipelines.py     (needs torch, diffusers, transformers)

Writes tests/golden/image/NAME/ (sd, xl, flux) as save_pretrained does, and tests/golden/image/pipelines_golden.safetensors: the
latents that pipelines give on the CPU with a generator of seed 7, and the schedulers' samples step by step. Latents are stored
(N, H, W, C). A second file of the Stable Diffusion model has Stability's names.
"""

import json
import pathlib
import shutil

import diffusers
import torch
import transformers
from safetensors.torch import load_file, save_file

from golden import FOLDER, Golden

HERE = FOLDER / "image"
PROMPT, NEGATIVE, SEED, STEPS = "a red circle, left of 2 blue squares", "noise", 7, 4
torch.manual_seed(1)


def letters():
    """Bytes as CLIP spells them."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in own] + [chr(256 + i) for i in range(256 - len(own))]


def tokenizer(folder):
    merges = ["r e", "c i", "re d</w>", "ci r", "l e", "b l"]
    vocab = letters() + [c + "</w>" for c in letters()] + ["".join(m.split()) for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocab)}, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 16, "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>",
                "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=16), len(vocab)


def t5_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -9.0), ("▁", -3.0)]
    pieces += [(c, -4.0 - i / 50) for i, c in enumerate("abcdefghijklmnopqrstuvwxyz,0123456789")] + [("▁a", -3.5), ("re", -4.0), ("▁b", -3.9)]
    t = Tokenizer(models.Unigram(pieces, unk_id=2))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    folder.mkdir(parents=True)
    t.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"), len(pieces)


def fill(model, gain=1.0):
    """Weights of a likely size: made-up models then draw something between noise and one colour. Rounded to f16."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            u = torch.rand(p.shape, generator=generator) * 2 - 1
            if p.dim() > 1:
                u = u * gain * (3 / p[0].numel()) ** 0.5
            elif name.endswith("weight"):
                u = 1 + u * 0.2
            else:
                u = u * 0.1
            p.copy_(u.half().float())
    return model.eval()


def clip(vocab, dim, projection=None):
    config = transformers.CLIPTextConfig(vocab_size=vocab, hidden_size=dim, intermediate_size=2 * dim, num_hidden_layers=2,
                                         num_attention_heads=2, max_position_embeddings=16, eos_token_id=vocab - 1, bos_token_id=vocab - 2,
                                         pad_token_id=vocab - 1, projection_dim=projection or dim, hidden_act="gelu" if projection else "quick_gelu")
    kind = transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel
    return fill(kind(config))


def vae(channels=4, **more):
    return fill(diffusers.AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1, latent_channels=channels,
                                        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                                        sample_size=32, **more))


SCHEDULER = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, timestep_spacing="leading")


def save(pipeline, name, tokenizers):
    """save_pretrained, weights in f16, tokenizers as vocab.json and merges.txt (or tokenizer.json) alone."""
    folder = HERE / name
    own = {t: {f.name: f.read_bytes() for f in (folder / t).iterdir()} for t in tokenizers}
    shutil.rmtree(folder)
    pipeline.save_pretrained(folder)
    for t, files in own.items():
        shutil.rmtree(folder / t)
        (folder / t).mkdir()
        for f, data in files.items():
            (folder / t / f).write_bytes(data)
    for path in folder.rglob("*.safetensors"):
        save_file({k: v.half().contiguous() for k, v in load_file(path).items()}, path)


def sd(case):
    folder = HERE / "sd"
    shutil.rmtree(folder, ignore_errors=True)
    token, vocab = tokenizer(folder / "tokenizer")
    unet = fill(diffusers.UNet2DConditionModel(sample_size=16, block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1,
                                               down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                               up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=2,
                                               cross_attention_dim=16))
    pipe = diffusers.StableDiffusionPipeline(vae=vae(), text_encoder=clip(vocab, 16), tokenizer=token, unet=unet,
                                             scheduler=diffusers.EulerDiscreteScheduler(**SCHEDULER), safety_checker=None,
                                             feature_extractor=None, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    common = dict(prompt=PROMPT, num_inference_steps=STEPS, output_type="latent", height=32, width=48)
    schedulers = {"euler": diffusers.EulerDiscreteScheduler, "euler_a": diffusers.EulerAncestralDiscreteScheduler,
                  "ddim": diffusers.DDIMScheduler, "dpmpp_2m": diffusers.DPMSolverMultistepScheduler, "lcm": diffusers.LCMScheduler}
    for name, kind in schedulers.items():
        clipped = {"clip_sample": False} if name == "ddim" else {}
        pipe.scheduler = kind.from_config(pipe.scheduler.config, **clipped)
        out = pipe(**common, negative_prompt=NEGATIVE, guidance_scale=5.0, generator=torch.Generator().manual_seed(SEED),
                   num_images_per_prompt=2).images
        case.tensors[f"output/sd.{name}"] = out.permute(0, 2, 3, 1).contiguous()
    pipe.scheduler = diffusers.EulerDiscreteScheduler(**SCHEDULER)
    picture = torch.rand((1, 3, 32, 48), generator=torch.Generator().manual_seed(2)).mul(255).round() / 255
    case.tensors["output/init"] = picture.permute(0, 2, 3, 1).contiguous()
    again = diffusers.StableDiffusionImg2ImgPipeline(**{k: v for k, v in pipe.components.items() if k != "image_encoder"}, requires_safety_checker=False)
    again.set_progress_bar_config(disable=True)
    out = again(PROMPT, image=picture, strength=0.6, num_inference_steps=5, guidance_scale=1.0, output_type="latent",
                generator=torch.Generator().manual_seed(SEED)).images
    case.tensors["output/sd.init"] = out.permute(0, 2, 3, 1).contiguous()
    latents = case.tensors["output/sd.euler"][:1].permute(0, 3, 1, 2) / pipe.vae.config.scaling_factor
    with torch.no_grad():
        case.tensors["output/sd.picture"] = pipe.vae.decode(latents).sample.permute(0, 2, 3, 1).contiguous()
    save(pipe, "sd", ["tokenizer"])


def xl(case):
    folder = HERE / "xl"
    shutil.rmtree(folder, ignore_errors=True)
    token, vocab = tokenizer(folder / "tokenizer")
    second, _ = tokenizer(folder / "tokenizer_2")
    unet = fill(diffusers.UNet2DConditionModel(sample_size=16, block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1,
                                               down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                               up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=[1, 2],
                                               transformer_layers_per_block=[1, 2], use_linear_projection=True, cross_attention_dim=40,
                                               addition_embed_type="text_time", addition_time_embed_dim=4,
                                               projection_class_embeddings_input_dim=12 + 24))
    pipe = diffusers.StableDiffusionXLPipeline(vae=vae(scaling_factor=0.13025), text_encoder=clip(vocab, 16), text_encoder_2=clip(vocab, 24, 12),
                                               tokenizer=token, tokenizer_2=second, unet=unet,
                                               scheduler=diffusers.EulerDiscreteScheduler(**SCHEDULER), add_watermarker=False)
    pipe.set_progress_bar_config(disable=True)
    for name, negative in (("xl", NEGATIVE), ("xl.zeros", None)):
        out = pipe(PROMPT, negative_prompt=negative, num_inference_steps=STEPS, guidance_scale=5.0, output_type="latent", height=32, width=48,
                   generator=torch.Generator().manual_seed(SEED)).images
        case.tensors[f"output/{name}"] = out.permute(0, 2, 3, 1).contiguous()
    save(pipe, "xl", ["tokenizer", "tokenizer_2"])


def flux(case):
    folder = HERE / "flux"
    shutil.rmtree(folder, ignore_errors=True)
    token, vocab = tokenizer(folder / "tokenizer")
    second, t5_vocab = t5_tokenizer(folder / "tokenizer_2")
    t5 = fill(transformers.T5EncoderModel(transformers.T5Config(vocab_size=t5_vocab, d_model=20, d_kv=6, d_ff=24, num_layers=2, num_heads=3,
                                                                feed_forward_proj="gated-gelu", is_encoder_decoder=False, use_cache=False,
                                                                tie_word_embeddings=False)))
    model = fill(diffusers.FluxTransformer2DModel(in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                                  num_attention_heads=2, joint_attention_dim=20, pooled_projection_dim=16,
                                                  guidance_embeds=True, axes_dims_rope=(4, 6, 6)))
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                                                          base_image_seq_len=256, max_image_seq_len=4096)
    pipe = diffusers.FluxPipeline(scheduler=scheduler, vae=vae(4, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False,
                                                               use_post_quant_conv=False),
                                  text_encoder=clip(vocab, 16), tokenizer=token, text_encoder_2=t5, tokenizer_2=second, transformer=model)
    pipe.set_progress_bar_config(disable=True)
    out = pipe(PROMPT, num_inference_steps=STEPS, guidance_scale=3.5, output_type="latent", height=32, width=48,
               generator=torch.Generator().manual_seed(SEED)).images
    out = pipe._unpack_latents(out, 32, 48, pipe.vae_scale_factor)
    case.tensors["output/flux"] = out.permute(0, 2, 3, 1).contiguous()
    save(pipe, "flux", ["tokenizer", "tokenizer_2"])


def low_rank(shape, generator, rank=2):
    """down (rank, in...), up (out, rank...): of a linear layer or a convolution."""
    down = torch.rand((rank, *shape[1:]), generator=generator) - 0.5
    up = torch.rand((shape[0], rank, *([1] * (len(shape) - 2))), generator=generator) - 0.5
    return down, up


def add(weight, down, up, scale):
    with torch.no_grad():
        weight += scale * (up.flatten(1) @ down.flatten(1)).reshape(weight.shape)


def sd_lora(case):
    """One adapter under four namings, and what the model with it in its weights draws. alpha is 1: half of a rank of 2."""
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(HERE / "sd", safety_checker=None)
    pipe.set_progress_bar_config(disable=True)
    generator, folder = torch.Generator().manual_seed(9), HERE / "lora"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    peft, kohya, sgm = {}, {}, {}
    names = {  # a module of ours: its name in Stability's files
        "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q": "input_blocks.1.1.transformer_blocks.0.attn1.to_q",
        "down_blocks.0.attentions.0.transformer_blocks.0.ff.net.0.proj": "input_blocks.1.1.transformer_blocks.0.ff.net.0.proj",
        "mid_block.attentions.0.proj_in": "middle_block.1.proj_in",
        "up_blocks.1.resnets.1.conv1": "output_blocks.3.0.in_layers.2",
        "up_blocks.0.upsamplers.0.conv": "output_blocks.1.1.conv"}
    modules = dict(pipe.unet.named_modules())
    for ours, theirs in names.items():
        down, up = low_rank(tuple(modules[ours].weight.shape), generator)
        add(modules[ours].weight, down, up, 0.7 * 0.5)
        peft[f"unet.{ours}.lora_A.weight"], peft[f"unet.{ours}.lora_B.weight"] = down, up * 0.5
        for out, name in ((kohya, ours), (sgm, theirs)):
            key = "lora_unet_" + name.replace(".", "_")
            out[f"{key}.lora_down.weight"], out[f"{key}.lora_up.weight"] = down, up
            out[f"{key}.alpha"] = torch.tensor(1.0)
    text = dict(pipe.text_encoder.named_modules())
    own = "encoder.layers.1.mlp.fc1"  # transformers 5 has no "text_model." before it
    module = text.get(own) or text["text_model." + own]
    down, up = low_rank(tuple(module.weight.shape), generator)
    add(module.weight, down, up, 0.7 * 0.5)
    peft[f"text_encoder.text_model.{own}.lora_A.weight"], peft[f"text_encoder.text_model.{own}.lora_B.weight"] = down, up * 0.5
    for out in (kohya, sgm):
        key = "lora_te_text_model_" + own.replace(".", "_")
        out[f"{key}.lora_down.weight"], out[f"{key}.lora_up.weight"], out[f"{key}.alpha"] = down, up, torch.tensor(1.0)
    for name, tensors in (("peft", peft), ("kohya", kohya), ("sgm", sgm)):
        save_file({k: t.contiguous() for k, t in tensors.items()}, folder / f"{name}.safetensors")
    out = pipe(PROMPT, negative_prompt=NEGATIVE, num_inference_steps=STEPS, guidance_scale=5.0, output_type="latent", height=32, width=48,
               generator=torch.Generator().manual_seed(SEED)).images
    case.tensors["output/sd.lora"] = out.permute(0, 2, 3, 1).contiguous()


def flux_lora(case):
    """Black Forest Labs' names: q, k and v in one, as kohya's scripts train them."""
    pipe = diffusers.FluxPipeline.from_pretrained(HERE / "flux")
    pipe.set_progress_bar_config(disable=True)
    generator, tensors = torch.Generator().manual_seed(9), {}
    modules = dict(pipe.transformer.named_modules())
    fused = {"double_blocks_0_img_attn_qkv": [f"transformer_blocks.0.attn.{n}" for n in ("to_q", "to_k", "to_v")],
             "single_blocks_0_linear1": [f"single_transformer_blocks.0.{n}" for n in ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp")],
             "double_blocks_0_txt_mlp_2": ["transformer_blocks.0.ff_context.net.2"]}
    for name, parts in fused.items():
        weights = [modules[p].weight for p in parts]
        down, up = low_rank((sum(len(w) for w in weights), weights[0].shape[1]), generator)
        for w, rows in zip(weights, up.split([len(w) for w in weights])):
            add(w, down, rows, 0.5)
        key = f"lora_unet_{name}"
        tensors[f"{key}.lora_down.weight"], tensors[f"{key}.lora_up.weight"], tensors[f"{key}.alpha"] = down, up, torch.tensor(1.0)
    save_file({k: t.contiguous() for k, t in tensors.items()}, HERE / "lora/bfl.safetensors")
    out = pipe(PROMPT, num_inference_steps=STEPS, guidance_scale=3.5, output_type="latent", height=32, width=48,
               generator=torch.Generator().manual_seed(SEED)).images
    out = pipe._unpack_latents(out, 32, 48, pipe.vae_scale_factor)
    case.tensors["output/flux.lora"] = out.permute(0, 2, 3, 1).contiguous()


def schedules(case):
    """Each scheduler on a denoiser that is a formula: samples behind every step, and the times."""
    betas = {k: SCHEDULER[k] for k in ("beta_start", "beta_end", "beta_schedule")}
    leading, steps = dict(timestep_spacing="leading", steps_offset=1), 7
    kinds = {
        "euler": diffusers.EulerDiscreteScheduler(**betas, **leading),
        "euler.v": diffusers.EulerDiscreteScheduler(**betas, **leading, prediction_type="v_prediction"),
        "euler.linspace": diffusers.EulerDiscreteScheduler(**betas, timestep_spacing="linspace"),
        "euler.trailing": diffusers.EulerDiscreteScheduler(**betas, timestep_spacing="trailing"),
        "euler_a": diffusers.EulerAncestralDiscreteScheduler(**betas, **leading),
        "ddim": diffusers.DDIMScheduler(**betas, **leading, clip_sample=False, set_alpha_to_one=False),
        "ddim.v": diffusers.DDIMScheduler(**betas, **leading, clip_sample=False, set_alpha_to_one=False, prediction_type="v_prediction"),
        "dpmpp_2m": diffusers.DPMSolverMultistepScheduler(**betas, **leading),
        "dpmpp_2m.v": diffusers.DPMSolverMultistepScheduler(**betas, **leading, prediction_type="v_prediction"),
        "dpmpp_2m_karras": diffusers.DPMSolverMultistepScheduler(**betas, **leading, use_karras_sigmas=True),
        "lcm": diffusers.LCMScheduler(**betas, clip_sample=False),
        "flow": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        "flow.dynamic": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
    }
    for name, s in kinds.items():
        if name.startswith("flow"):
            sigmas = [1 - (1 - 1 / steps) * i / (steps - 1) for i in range(steps)]
            mu = 600 * (1.15 - 0.5) / (4096 - 256) + 0.5 - 256 * (1.15 - 0.5) / (4096 - 256)
            s.set_timesteps(sigmas=sigmas, **({"mu": mu} if "dynamic" in name else {}))
        else:
            s.set_timesteps(steps)
        generator = torch.Generator().manual_seed(SEED)
        first = torch.randn((1, 4, 3, 7), generator=generator)
        x = first * getattr(s, "init_noise_sigma", 1.0)
        made = [x.clone()]
        for t in s.timesteps:
            given = s.scale_model_input(x, t) if hasattr(s, "scale_model_input") else x
            answer = 0.5 * torch.tanh(given) + 0.01 * (t / 1000)
            kwargs = {"generator": generator} if name in ("euler_a", "lcm") else {}
            x = s.step(answer, t, x, **kwargs).prev_sample
            made.append(x.clone())
        case.tensors[f"output/{name}.samples"] = torch.cat(made).float()
        case.tensors[f"output/{name}.times"] = torch.as_tensor(s.timesteps).float()


if __name__ == "__main__":
    case = Golden("image/pipelines")
    schedules(case)
    sd(case)
    xl(case)
    flux(case)
    sd_lora(case)
    flux_lora(case)
    case.save()
    print(sum(f.stat().st_size for f in HERE.rglob("*") if f.is_file()), "bytes in all")
