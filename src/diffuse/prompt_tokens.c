// prompt_tokens.c — a prompt as the tokens that a text encoder takes.
#include "diffuse/diffusion.h"

#include <string.h>

// What is too long is cut, and the end token stays.
static rn_status encode(const rn_tokenizer *tokenizer, const char *text, uint32_t end, uint32_t pad,
                        uint32_t length, uint32_t vocab, int32_t *out) {
    rn_tokens tokens = {0};
    rn_status s =
        rn_tokenizer_encode(tokenizer, (rn_str){text, strlen(text)}, RN_ENCODE_BEGIN, &tokens);
    for (uint32_t i = 0; s == RN_OK && i < length; i++) {
        uint32_t id = i < tokens.count ? tokens.ids[i] : pad;
        if (i + 1 == length && tokens.count > length) id = end;
        if (id >= vocab)
            s = rn_hint(rn_fail(RN_INVALID,
                                "the tokenizer has an id %u, the text encoder %u "
                                "tokens",
                                id, vocab),
                        "the parts are of different models");
        out[i] = (int32_t)id;
    }
    rn_tokens_free(&tokens);
    return s;
}

rn_status rn_diffusion_count_tokens(const rn_diffusion *model, const char *prompt,
                                    uint32_t *out_tokens, uint32_t *out_room) {
    uint32_t last = model->text_count - 1;
    bool clip = model->text[last].kind == RN_IMAGE_CLIP;
    rn_tokens tokens = {0};
    *out_tokens = 0;
    *out_room =
        clip ? model->text[last].config.clip.tokens : model->denoiser.config.flux.context_tokens;
    RN_TRY(rn_tokenizer_encode(model->tokenizers[last], (rn_str){prompt, strlen(prompt)},
                               RN_ENCODE_BEGIN, &tokens));
    *out_tokens = (uint32_t)tokens.count;
    rn_tokens_free(&tokens);
    return RN_OK;
}

rn_status rn_diffusion_tokens(const rn_diffusion *model, uint32_t encoder, const char *text,
                              uint32_t length, int32_t *out_tokens, float *out_pool) {
    const rn_tokenizer *tokenizer = model->tokenizers[encoder];
    const rn_tokenizer_info *info = rn_tokenizer_get_info(tokenizer);
    const rn_image_component *c = &model->text[encoder];
    bool clip = c->kind == RN_IMAGE_CLIP;
    uint32_t vocab = clip ? c->config.clip.vocab : c->config.t5.vocab;
    uint32_t end = info->end != RN_NO_TOKEN ? info->end : clip ? c->config.clip.end_token : 1;
    uint32_t pad = info->pad != RN_NO_TOKEN ? info->pad : clip ? end : 0;
    RN_TRY(encode(tokenizer, text, end, pad, length, vocab, out_tokens));
    uint32_t at = 0;
    while (at + 1 < length && out_tokens[at] != (int32_t)end)
        at++;
    memset(out_pool, 0, length * sizeof *out_pool);
    out_pool[at] = 1;
    return RN_OK;
}
