#!/usr/bin/env python3
"""A diffusion model of true shapes and made-up weights, as a diffusers folder: what `ration image` is measured with.

    bench/make_image_model.py sdxl|sd15|flux MANIFESTS FOLDER [--empty]     (needs numpy)

MANIFESTS has NAME.json files: lists of {"name", "shape"} of every tensor. Weights are bf16 and of a likely size, so that no value
overflows; tokenizers know letters. --empty leaves the weights out of the files (holes): enough to plan with.
"""

import json
import os
import pathlib
import sys

import numpy

PATTERN = 1 << 20
UNIFORM = numpy.random.default_rng(1).uniform(-1, 1, PATTERN).astype(numpy.float32)


def bf16(values):
    bits = values.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def numbers(name, shape):
    """One pattern over and over: matrices keep the size of what they multiply."""
    if len(shape) > 1:
        inputs = int(numpy.prod(shape[1:]))
        return UNIFORM * numpy.float32((3 / inputs) ** 0.5 * (0.5 if "embedding" not in name else 1))
    return UNIFORM * numpy.float32(0.1) + numpy.float32(1 if name.endswith("weight") else 0)


def write_weights(path, tensors, empty):
    header, at = {}, 0
    for t in tensors:
        count = int(numpy.prod(t["shape"]))
        header[t["name"]] = {"dtype": "BF16", "shape": t["shape"], "data_offsets": [at, at + 2 * count]}
        at += 2 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4096)
    with open(path, "wb", buffering=0) as f:
        f.write(len(text).to_bytes(8, "little") + text)
        if empty:
            f.truncate(8 + len(text) + at)
            return
        made = {}
        for t in tensors:
            values = numbers(t["name"], t["shape"])
            key = (values[0], values[1])
            if key not in made:
                made[key] = numpy.tile(bf16(values), 16)
            block, left = made[key], int(numpy.prod(t["shape"]))
            while left:
                n = min(left, block.size)
                f.write(memoryview(block[:n]))
                left -= n
        os.fdatasync(f.fileno())


def letters():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in own] + [chr(256 + i) for i in range(256 - len(own))]


def write_clip_tokenizer(folder):
    folder.mkdir(parents=True, exist_ok=True)
    vocab = letters() + [c + "</w>" for c in letters()] + ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocab)}, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}))


def write_t5_tokenizer(folder):
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", -9.0], ["\u2581", -3.0]]
    pieces += [[c, -4.0 - i / 50] for i, c in enumerate("abcdefghijklmnopqrstuvwxyz,0123456789")]
    special = [{"id": i, "content": pieces[i][0], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i in range(3)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                                                   {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                           "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
        "decoder": None, "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}))


def clip(dim, layers, heads, act, projection=None):
    config = {"architectures": ["CLIPTextModelWithProjection" if projection else "CLIPTextModel"], "model_type": "clip_text_model",
              "hidden_act": act, "hidden_size": dim, "intermediate_size": 4 * dim, "layer_norm_eps": 1e-05,
              "max_position_embeddings": 77, "num_attention_heads": heads, "num_hidden_layers": layers, "vocab_size": 49408,
              "bos_token_id": 510, "eos_token_id": 511, "pad_token_id": 511}
    if projection:
        config["projection_dim"] = projection
    return config


def vae(channels, scaling, **more):
    return {"_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [128, 256, 512, 512],
            "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4, "in_channels": 3,
            "out_channels": 3, "latent_channels": channels, "layers_per_block": 2, "norm_num_groups": 32, "sample_size": 1024,
            "scaling_factor": scaling, **more}


CLIP_L = ("clip_l_text", clip(768, 12, 12, "quick_gelu"))
SCHEDULER = {"_class_name": "EulerDiscreteScheduler", "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
             "num_train_timesteps": 1000, "steps_offset": 1, "timestep_spacing": "leading"}
UNET = {"_class_name": "UNet2DConditionModel", "act_fn": "silu", "in_channels": 4, "out_channels": 4, "layers_per_block": 2,
        "norm_num_groups": 32, "mid_block_type": "UNetMidBlock2DCrossAttn"}
MODELS = {
    "sdxl": ("StableDiffusionXLPipeline", SCHEDULER, {
        "text_encoder": CLIP_L,
        "text_encoder_2": ("openclip_bigg_text_proj", clip(1280, 32, 20, "gelu", 1280)),
        "unet": ("sdxl_unet", {
            **UNET, "attention_head_dim": [5, 10, 20], "block_out_channels": [320, 640, 1280], "cross_attention_dim": 2048,
            "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
            "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], "transformer_layers_per_block": [1, 2, 10],
            "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816, "sample_size": 128}),
        "vae": ("sd_vae_4ch", vae(4, 0.13025))}),
    "sd15": ("StableDiffusionPipeline", SCHEDULER, {
        "text_encoder": CLIP_L,
        "unet": ("sd15_unet", {
            **UNET, "attention_head_dim": 8, "block_out_channels": [320, 640, 1280, 1280], "cross_attention_dim": 768,
            "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
            "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3, "sample_size": 64}),
        "vae": ("sd_vae_4ch", vae(4, 0.18215))}),
    "flux": ("FluxPipeline", {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0,
                              "use_dynamic_shifting": True, "base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096,
                              "max_shift": 1.15}, {
        "text_encoder": CLIP_L,
        "text_encoder_2": ("t5xxl_encoder", {
            "architectures": ["T5EncoderModel"], "model_type": "t5", "d_ff": 10240, "d_kv": 64, "d_model": 4096, "num_heads": 64,
            "num_layers": 24, "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new",
            "is_gated_act": True, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
            "layer_norm_epsilon": 1e-06, "eos_token_id": 1, "pad_token_id": 0}),
        "transformer": ("flux1_dev", {
            "_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "guidance_embeds": True, "in_channels": 64,
            "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38, "patch_size": 1,
            "pooled_projection_dim": 768, "axes_dims_rope": [16, 56, 56]}),
        "vae": ("flux_vae_16ch", vae(16, 0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False))}),
}


def main():
    kind, manifests, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    empty = "--empty" in sys.argv[4:]
    pipeline, scheduler, parts = MODELS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    index = {"_class_name": pipeline, "scheduler": ["diffusers", scheduler["_class_name"]]}
    (folder / "scheduler").mkdir(exist_ok=True)
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(scheduler, indent=2))
    for name, (manifest, config) in parts.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config, indent=2))
        tensors = json.loads((manifests / f"{manifest}.json").read_text())
        write_weights(folder / name / "model.safetensors", tensors, empty)
        library = "transformers" if name.startswith("text") else "diffusers"
        index[name] = [library, config.get("_class_name") or config["architectures"][0]]
        if not name.startswith("text"):
            continue
        tokenizer = folder / name.replace("text_encoder", "tokenizer")
        (write_t5_tokenizer if manifest.startswith("t5") else write_clip_tokenizer)(tokenizer)
        index[tokenizer.name] = ["transformers", "CLIPTokenizer"]
    (folder / "model_index.json").write_text(json.dumps(index, indent=2))


main()
