// train_pictures_model.h — configurations of the model that train_pictures begins, as diffusers and
// transformers have them.
#ifndef EXAMPLES_TRAIN_PICTURES_MODEL_H
#define EXAMPLES_TRAIN_PICTURES_MODEL_H

static const char index_json[] =
    "{\n  \"_class_name\": \"StableDiffusionPipeline\",\n  \"_diffusers_version\": \"0.35.0\",\n"
    "  \"feature_extractor\": [null, null],\n  \"requires_safety_checker\": false,\n"
    "  \"safety_checker\": [null, null],\n"
    "  \"scheduler\": [\"diffusers\", \"DDIMScheduler\"],\n"
    "  \"text_encoder\": [\"transformers\", \"CLIPTextModel\"],\n"
    "  \"tokenizer\": [\"transformers\", \"CLIPTokenizer\"],\n"
    "  \"unet\": [\"diffusers\", \"UNet2DConditionModel\"],\n"
    "  \"vae\": [\"diffusers\", \"AutoencoderKL\"]\n}\n";

static const char scheduler_json[] =
    "{\n  \"_class_name\": \"DDIMScheduler\",\n  \"beta_start\": 0.00085,\n  \"beta_end\": 0.012,\n"
    "  \"beta_schedule\": \"scaled_linear\",\n  \"clip_sample\": false,\n"
    "  \"num_train_timesteps\": 1000,\n  \"prediction_type\": \"v_prediction\",\n"
    "  \"set_alpha_to_one\": false,\n  \"steps_offset\": 1\n}\n";

static const char vae_json[] =
    "{\n  \"_class_name\": \"AutoencoderKL\",\n  \"act_fn\": \"silu\",\n"
    "  \"block_out_channels\": [16, 32, 48],\n"
    "  \"down_block_types\": [\"DownEncoderBlock2D\", \"DownEncoderBlock2D\", "
    "\"DownEncoderBlock2D\"],\n"
    "  \"in_channels\": 3,\n  \"latent_channels\": 4,\n  \"layers_per_block\": 1,\n"
    "  \"mid_block_add_attention\": false,\n  \"norm_num_groups\": 8,\n  \"out_channels\": 3,\n"
    "  \"sample_size\": 32,\n  \"scaling_factor\": 1.0,\n"
    "  \"up_block_types\": [\"UpDecoderBlock2D\", \"UpDecoderBlock2D\", \"UpDecoderBlock2D\"]\n}\n";

static const char unet_json[] =
    "{\n  \"_class_name\": \"UNet2DConditionModel\",\n  \"act_fn\": \"silu\",\n"
    "  \"attention_head_dim\": 4,\n  \"block_out_channels\": [40, 80],\n"
    "  \"cross_attention_dim\": 64,\n"
    "  \"down_block_types\": [\"CrossAttnDownBlock2D\", \"CrossAttnDownBlock2D\"],\n"
    "  \"in_channels\": 4,\n  \"layers_per_block\": 1,\n"
    "  \"mid_block_type\": \"UNetMidBlock2DCrossAttn\",\n  \"norm_num_groups\": 8,\n"
    "  \"out_channels\": 4,\n  \"sample_size\": 8,\n"
    "  \"up_block_types\": [\"CrossAttnUpBlock2D\", \"CrossAttnUpBlock2D\"]\n}\n";

static const char tokenizer_json[] =
    "{\n  \"bos_token\": \"<|startoftext|>\",\n  \"eos_token\": \"<|endoftext|>\",\n"
    "  \"unk_token\": \"<|endoftext|>\",\n  \"pad_token\": \"<|endoftext|>\",\n"
    "  \"model_max_length\": 16,\n  \"tokenizer_class\": \"CLIPTokenizer\"\n}\n";

// hidden size, feed-forward size, tokens, vocabulary, begin, end, pad
#define text_encoder_json                                                                          \
    "{\n  \"architectures\": [\"CLIPTextModel\"],\n  \"model_type\": \"clip_text_model\",\n"       \
    "  \"hidden_act\": \"gelu\",\n  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n"          \
    "  \"layer_norm_eps\": 1e-05,\n  \"max_position_embeddings\": %d,\n"                           \
    "  \"num_attention_heads\": 2,\n  \"num_hidden_layers\": 1,\n  \"vocab_size\": %d,\n"          \
    "  \"bos_token_id\": %d,\n  \"eos_token_id\": %d,\n  \"pad_token_id\": %d\n}\n"

#endif
