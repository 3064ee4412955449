// builtin.c — models by name: "resnet18", "llama:32x4096:q4_0".
#include "model/model.h"

#include "base/checked.h"
#include "base/str.h"

#include <string.h>

static rn_status fill_mlp(rn_str rest, rn_builtin *out) {
    (void)rest;
    out->config.mlp = (rn_mlp_config){.in = 784, .hidden = 512, .out = 10, .rows = 64};
    out->batch = 64;
    out->forward = rn_mlp_forward(&out->config.mlp);
    return RN_OK;
}

static rn_status fill_simple(rn_str rest, rn_builtin *out) {
    (void)rest;
    out->config.simple = (rn_simple_config){.size = 32, .channels = 16, .classes = 10, .rows = 16};
    out->batch = 16;
    out->forward = rn_simple_forward(&out->config.simple);
    return RN_OK;
}

static rn_status fill_resnet18(rn_str rest, rn_builtin *out) {
    (void)rest;
    out->config.resnet = (rn_resnet_config){.size = 224, .classes = 1000, .rows = 8};
    out->batch = 8;
    out->forward = rn_resnet_forward(&out->config.resnet);
    return RN_OK;
}

// ---- llama:LAYERSxDIM[:DTYPE] -------------------------------------------------------------------

// A decimal number in [1, most] at *text, which is moved behind it.
static bool take_number(rn_str *text, uint32_t most, uint32_t *out) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < text->bytes && text->data[digits] >= '0' && text->data[digits] <= '9'; digits++)
        if ((value = value * 10 + (uint64_t)(text->data[digits] - '0')) > most) return false;
    text->data += digits;
    text->bytes -= digits;
    *out = (uint32_t)value;
    return value > 0;
}

static bool take_char(rn_str *text, char c) {
    if (text->bytes == 0 || text->data[0] != c) return false;
    text->data++;
    text->bytes--;
    return true;
}

enum { MOST_LAYERS = 1000, MOST_DIM = 65536 };

static rn_status parse_llama(rn_str text, rn_llama_config *c) {
    rn_str rest = text;
    c->weight_dtype = RN_DTYPE_F32;
    bool good = take_number(&rest, MOST_LAYERS, &c->layers) && take_char(&rest, 'x') &&
                take_number(&rest, MOST_DIM, &c->dim);
    if (good && take_char(&rest, ':')) {
        c->weight_dtype = rn_dtype_parse(rest);
        if (c->weight_dtype == RN_DTYPE_NONE)
            return rn_fail(RN_INVALID, "llama: there is no dtype '%.*s'", RN_STR_ARG(rest));
        rest.bytes = 0;
    }
    if (good && rest.bytes == 0) return RN_OK;
    return rn_hint(
        rn_fail(RN_INVALID, "'llama:%.*s' is not llama:LAYERSxDIM[:DTYPE]", RN_STR_ARG(text)),
        "up to %d layers, up to %d wide: llama:32x4096, llama:32x4096:q4_0", MOST_LAYERS, MOST_DIM);
}

// The proportions of Llama 2, with grouped heads from 4096 on, as its successors have.
static void set_proportions(rn_llama_config *c) {
    c->heads = (uint32_t)rn_max_u64(1, c->dim / (c->dim < 1024 ? 64 : 128));
    c->kv_heads = c->dim >= 4096 && c->heads % 4 == 0 ? c->heads / 4 : c->heads;
    c->ffn = (uint32_t)rn_round_up(rn_div_up(8 * (uint64_t)c->dim, 3), 256);
    c->vocab = c->dim < 256 ? 512 : 32000;
    c->context = 2048;
    c->page_tokens = 64;
    c->sequences = c->logit_rows = 1;
    c->rows = 512;
    c->tokens = 256;
    // Never narrower than the weights.
    c->kv_dtype = c->weight_dtype == RN_DTYPE_F32 ? RN_DTYPE_F32 : RN_DTYPE_F16;
}

static rn_status fill_llama(rn_str rest, rn_builtin *out) {
    rn_llama_config *c = &out->config.llama;
    *c = (rn_llama_config){0};
    RN_TRY(parse_llama(rest, c));
    set_proportions(c);
    out->batch = 4;
    out->forward = rn_llama_forward(c);
    return RN_OK;
}

// ---- by name ------------------------------------------------------------------------------------

static const struct builtin {
    const char *name; // ending in ':' where something must follow
    rn_status (*fill)(rn_str rest, rn_builtin *out);
} builtins[] = {
    {"mlp", fill_mlp},
    {"simple", fill_simple},
    {"resnet18", fill_resnet18},
    {"llama:", fill_llama},
};

static const struct builtin *find(rn_str text) {
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
        rn_str name = rn_str_from(builtins[i].name);
        bool open = rn_str_ends(name, RN_STR(":"));
        if (open ? rn_str_starts(text, name) : rn_str_equal(text, name)) return &builtins[i];
    }
    return NULL;
}

rn_status rn_builtin_find(rn_str name, rn_builtin *out) {
    const struct builtin *b = find(name);
    *out = (rn_builtin){0};
    if (!b)
        return rn_hint(rn_fail(RN_NOT_FOUND, "there is no builtin model '%.*s'", RN_STR_ARG(name)),
                       "builtin are mlp, simple, resnet18 and llama:LAYERSxDIM[:DTYPE]; each also "
                       "with :train at its end");
    size_t known = strlen(b->name);
    return b->fill((rn_str){name.data + known, name.bytes - known}, out);
}
