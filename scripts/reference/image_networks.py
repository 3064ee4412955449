#!/usr/bin/env python3
"""Small image networks with random weights, and what diffusers and transformers compute with them.

    scripts/reference/image_networks.py [NAME...]     (needs torch, diffusers, transformers)

Writes tests/golden/image/NAME_golden.safetensors (golden.py has the format) and NAME.json, the component's config.json. Weights
are described, not stored; sizes are small, everything else is as in the models of that kind. Images are stored (N, H, W, C).
"""

import json
import sys

import diffusers
import torch
import transformers

from golden import FOLDER, Golden

TOKENS = 7
SMALL = dict(block_out_channels=(8, 16, 16), norm_num_groups=4)
torch.manual_seed(0)


def first_last(x):
    return x.permute(0, 2, 3, 1).contiguous()


def last_first(x):
    return x.permute(0, 3, 1, 2).contiguous()


class Case(Golden):
    def __init__(self, name, model, config=None):
        super().__init__(f"image/{name}")
        self.model = model.eval()
        self.fill(model)
        # As files on the hub have it: the text model within its whole, and one name for what is tied.
        if "random/encoder.layers.0.layer_norm1.bias" in self.tensors:
            self.tensors = {k.replace("random/", "random/text_model."): t for k, t in self.tensors.items()}
        tied = self.tensors.pop("random/encoder.embed_tokens.weight", None)
        if tied is not None:
            self.tensors["random/shared.weight"] = tied
        config = dict(model.config if config is None else config)
        (FOLDER / "image" / f"{name}.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")

    def out(self, name, tensor):
        self.tensors["output/" + name] = tensor.detach().float().contiguous()


def vae(name, **more):
    model = diffusers.AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
                                    **SMALL, **more)
    channels = model.config.latent_channels
    case = Case(name, model)
    latent = case.random("latent", (2, 5, 6, channels), 1.0)
    image = case.random("image", (2, 20, 24, 3), 1.0)
    with torch.no_grad():
        case.out("image", first_last(model.decode(last_first(latent)).sample))
        case.out("moments", first_last(model.encode(last_first(image)).latent_dist.parameters))
    case.save()


def unet(name, added=0, **more):
    model = diffusers.UNet2DConditionModel(**{**SMALL, "cross_attention_dim": 12, "sample_size": 8, **more})
    case = Case(name, model)
    c = model.config
    sample = case.random("sample", (2, 8, 12, c.in_channels), 1.0)
    context = case.random("context", (2, TOKENS, 12), 1.0)
    times = torch.tensor([981.0, 17.0])
    case.tensors["input/time"] = model.time_proj(times)
    arguments = {}
    if c.addition_embed_type:
        pooled = case.random("pooled", (2, 10), 1.0)
        ids = torch.tensor([[64.0, 96, 0, 3, 64, 96], [512, 640, 10, 0, 64, 96]])
        arguments = {"added_cond_kwargs": {"text_embeds": pooled, "time_ids": ids}}
        sizes = model.add_time_proj(ids.flatten()).reshape(2, -1)
        case.tensors["input/added"] = torch.cat([pooled, sizes], 1)
    if c.time_cond_proj_dim:
        guidance = case.random("guidance", (2, c.time_cond_proj_dim), 1.0)
        arguments["timestep_cond"] = guidance
    with torch.no_grad():
        noise = model(last_first(sample), times, context, **arguments).sample
    case.out("noise", first_last(noise))
    case.save()


def clip(name, projection=None, **more):
    config = transformers.CLIPTextConfig(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                                         num_attention_heads=4, max_position_embeddings=TOKENS, eos_token_id=98, bos_token_id=97,
                                         projection_dim=projection or 16, attn_implementation="eager", **more)
    kind = transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel
    model = kind(config)
    case = Case(name, model, {**config.to_dict(), "architectures": [kind.__name__]})
    tokens = torch.tensor([[97, 3, 50, 98, 98, 98, 98], [97, 1, 2, 3, 4, 5, 98]], dtype=torch.int32)
    case.tensors["input/tokens"] = tokens
    pool = torch.zeros(2, 1, TOKENS)
    pool[0, 0, 3] = pool[1, 0, 6] = 1
    case.tensors["input/pool"] = pool
    with torch.no_grad():
        out = model(tokens.long(), output_hidden_states=True)
    pooled = out.text_embeds if projection else out.pooler_output
    case.out("pooled", pooled[:, None])
    case.out("hidden", out.hidden_states[-2] if projection else out.last_hidden_state)
    case.save()


def t5(name):
    config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=6, d_ff=40, num_layers=2, num_heads=5, feed_forward_proj="gated-gelu",
                                   is_encoder_decoder=False, use_cache=False)
    model = transformers.T5EncoderModel(config)
    case = Case(name, model, config.to_dict())
    tokens = torch.arange(3, 3 + 2 * 37, dtype=torch.int32)[::2] % 99
    case.tensors["input/tokens"] = tokens
    case.tensors["input/span"] = torch.tensor([[0, 37]] * 37, dtype=torch.int32)
    with torch.no_grad():
        case.out("hidden", model(tokens[None].long()).last_hidden_state[0])
    case.save()


def flux(name, guidance):
    model = diffusers.FluxTransformer2DModel(in_channels=12, num_layers=2, num_single_layers=2, attention_head_dim=16,
                                             num_attention_heads=2, joint_attention_dim=20, pooled_projection_dim=10,
                                             guidance_embeds=guidance, axes_dims_rope=(4, 6, 6))
    case = Case(name, model)
    high, wide = 3, 4
    sample = case.random("sample", (2, high * wide, 12), 1.0)
    context = case.random("context", (2, TOKENS, 20), 1.0)
    pooled = case.random("pooled", (2, 10), 1.0)
    times, guided = torch.tensor([0.75, 0.75]), torch.tensor([3.5, 3.5])
    ids = torch.zeros(high, wide, 3)
    ids[..., 1] += torch.arange(high)[:, None]
    ids[..., 2] += torch.arange(wide)[None]
    ids = torch.cat([torch.zeros(TOKENS, 3), ids.reshape(-1, 3)])
    case.tensors["input/positions"] = ids.to(torch.int32)[None].repeat(2, 1, 1)
    project = model.time_text_embed.time_proj
    case.tensors["input/time"] = project(times * 1000)
    case.tensors["input/guidance"] = project(guided * 1000)
    with torch.no_grad():
        out = model(sample, context, pooled, times, ids[TOKENS:], ids[:TOKENS], guided if guidance else None).sample
    case.out("velocity", out)
    case.save()


CROSS, DOWN, UP, CROSS_UP = "CrossAttnDownBlock2D", "DownBlock2D", "UpBlock2D", "CrossAttnUpBlock2D"
SD15 = dict(down_block_types=(CROSS, CROSS, DOWN), up_block_types=(UP, CROSS_UP, CROSS_UP), layers_per_block=2)
CASES = {
    "vae4": lambda n: vae(n, layers_per_block=2, latent_channels=4, scaling_factor=0.18215),
    "vae16": lambda n: vae(n, layers_per_block=1, latent_channels=16, use_quant_conv=False, use_post_quant_conv=False,
                           scaling_factor=0.3611, shift_factor=0.1159),
    "unet_sd15": lambda n: unet(n, attention_head_dim=4, **SD15),
    "unet_inpaint": lambda n: unet(n, attention_head_dim=2, in_channels=9, time_cond_proj_dim=6, **{**SD15, "layers_per_block": 1}),
    "unet_sd2": lambda n: unet(n, attention_head_dim=[1, 2, 4], use_linear_projection=True, **SD15),
    "unet_sdxl": lambda n: unet(n, attention_head_dim=[1, 2, 4], use_linear_projection=True, down_block_types=(DOWN, CROSS, CROSS),
                                up_block_types=(CROSS_UP, CROSS_UP, UP), transformer_layers_per_block=[1, 2, 3], layers_per_block=1,
                                addition_embed_type="text_time", addition_time_embed_dim=4,
                                projection_class_embeddings_input_dim=34),
    "clip_l": lambda n: clip(n),
    "clip_g": lambda n: clip(n, 24, hidden_act="gelu"),
    "t5": t5,
    "flux_dev": lambda n: flux(n, True),
    "flux_schnell": lambda n: flux(n, False),
}

if __name__ == "__main__":
    (FOLDER / "image").mkdir(exist_ok=True)
    for case in sys.argv[1:] or CASES:
        CASES[case](case)
