// tokenizer_tiktoken.c — tiktoken's files: a line "base64-of-the-bytes rank" for each token.
//
// They have ranks only: any two tokens join whose bytes together are a token, the one of the lowest
// rank first. So the merges are made here: every way to cut a token into two tokens.
//
// Nor do they have the expression and the special tokens. Those are told by the number of ranks:
//
//     50256   GPT-2        <|endoftext|> behind them
//     100256  cl100k       <|endoftext|>, <|fim_...|>, <|endofprompt|>
//     128000  Llama 3      256 behind them, of Llama 3.1 where tokenizer_config.json does not say
//     151643  Qwen         <|endoftext|>, <|im_start|>, <|im_end|>, then <|extra_0|> ...
//     <|extra_204|> others  as Llama 3's where the file is called something.model (its layout),
//     otherwise refused
#include "text/base64.h"
#include "text/scan.h"
#include "text/tokenizer_parts.h"

#include <stdio.h>

enum {
    LINE_MOST = 4096,
    GPT2_RANKS = 50256,
    CL100K_RANKS = 100256,
    LLAMA3_RANKS = 128000,
    QWEN_RANKS = 151643
};

#define EXPRESSION_CL100K                                                                          \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"                            \
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"

// ---- lines ------------------------------------------------------------------------------

typedef struct ranked {
    char bytes[LINE_MOST];
    size_t count;
    uint64_t rank;
} ranked;

// "IQ== 0" without its line break. False: it is none.
static bool read_line(rn_str line, ranked *out) {
    const char *space = line.bytes ? memchr(line.data, ' ', line.bytes) : NULL;
    size_t at = space ? (size_t)(space - line.data) : 0;
    if (at == 0 || at + 1 == line.bytes || line.bytes > LINE_MOST) return false;
    if (!rn_base64_decode((rn_str){line.data, at}, out->bytes, &out->count)) return false;
    for (out->rank = 0, at++; at < line.bytes; at++) {
        if (line.data[at] < '0' || line.data[at] > '9' || out->rank > RN_VOCAB_MAX) return false;
        out->rank = out->rank * 10 + (uint64_t)(line.data[at] - '0');
    }
    return out->count > 0;
}

static rn_str next_line(rn_str *rest) {
    const char *end = rest->bytes ? memchr(rest->data, '\n', rest->bytes) : NULL;
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes;
    rn_str line = {rest->data, bytes};
    rest->data += bytes + (end != NULL);
    rest->bytes -= bytes + (end != NULL);
    if (line.bytes && line.data[line.bytes - 1] == '\r') line.bytes--;
    return line;
}

bool rn_is_tiktoken(rn_str file) {
    ranked first;
    return read_line(next_line(&file), &first);
}

static rn_status read_ranks(rn_tokenizer *tokenizer, rn_str file) {
    ranked token;
    for (size_t number = 1; file.bytes; number++) {
        rn_str line = next_line(&file);
        if (line.bytes == 0) continue;
        if (!read_line(line, &token))
            return rn_fail(RN_CORRUPT, "line %zu is no token with its rank", number);
        RN_TRY(rn_vocab_put(&tokenizer->vocab, token.rank, (rn_str){token.bytes, token.count}, 0));
    }
    return rn_vocab_seal(&tokenizer->vocab);
}

// ---- merges -----------------------------------------------------------------------------

// Every cut of the token into two.
static rn_status cut_token(const rn_vocab *vocab, uint32_t id, rn_buffer *merges) {
    rn_str text = rn_vocab_text(vocab, id);
    for (size_t at = 1; at < text.bytes; at++) {
        rn_merge merge = {.rank = id, .into = id};
        merge.left = rn_vocab_find(vocab, (rn_str){text.data, at});
        if (merge.left == RN_NO_TOKEN) continue;
        merge.right = rn_vocab_find(vocab, (rn_str){text.data + at, text.bytes - at});
        if (merge.right == RN_NO_TOKEN) continue;
        RN_TRY(rn_buffer_append(merges, &merge, sizeof merge));
    }
    return RN_OK;
}

static rn_status cut_tokens(const rn_tokenizer *tokenizer, rn_buffer *merges) {
    for (uint32_t id = 0; id < tokenizer->vocab.count; id++)
        RN_TRY(cut_token(&tokenizer->vocab, id, merges));
    return RN_OK;
}

static rn_status make_merges(rn_tokenizer *tokenizer) {
    rn_merges *merges = &tokenizer->bpe.merges;
    rn_buffer list;
    rn_buffer_init(&list, tokenizer->from, SIZE_MAX / 2);
    rn_status s = cut_tokens(tokenizer, &list);
    size_t count = list.bytes / sizeof(rn_merge);
    if (s == RN_OK) s = rn_merges_init(merges, tokenizer->from, count, tokenizer->vocab.seed);
    for (size_t i = 0; s == RN_OK && i < count; i++) {
        rn_merge merge;
        memcpy(&merge, list.data + i * sizeof merge, sizeof merge);
        rn_merges_add(merges, merge);
    }
    rn_buffer_free(&list);
    return s;
}

// ---- the expression ---------------------------------------------------------------------

static rn_status add_expression(rn_tokenizer *tokenizer, size_t ranks, bool is_model) {
    if (ranks == GPT2_RANKS) return rn_tokenizer_split(tokenizer, RN_STR(RN_EXPRESSION_GPT2));
    if (ranks == CL100K_RANKS) return rn_tokenizer_split(tokenizer, RN_STR(EXPRESSION_CL100K));
    if (ranks == QWEN_RANKS) return rn_tokenizer_split(tokenizer, RN_STR(RN_EXPRESSION_QWEN2));
    if (ranks == LLAMA3_RANKS || is_model)
        return rn_tokenizer_split(tokenizer, RN_STR(RN_EXPRESSION_LLAMA3));
    return rn_hint(rn_fail(RN_UNSUPPORTED, "a tiktoken file of %zu ranks is not known", ranks),
                   "its expression is not in it; a tokenizer.json has one");
}

rn_status rn_load_tiktoken(rn_tokenizer *tokenizer, rn_str file, bool is_model, size_t *out_ranks) {
    tokenizer->bpe.by_bytes = true;
    tokenizer->bpe.ignore_merges = true; // a word that has a rank is that token
    RN_TRY(read_ranks(tokenizer, file));
    *out_ranks = tokenizer->vocab.count;
    RN_TRY(make_merges(tokenizer));
    return add_expression(tokenizer, *out_ranks, is_model);
}

// ---- special tokens ---------------------------------------------------------------------

// A place that is taken (tokenizer_config.json knew) stays as it is.
static rn_status add_special(rn_tokenizer *tokenizer, size_t id, const char *name) {
    rn_added_token token = {.content = rn_str_from(name), .id = (uint32_t)id, .special = true};
    return rn_vocab_has(&tokenizer->vocab, id) ? RN_OK : rn_tokenizer_add_token(tokenizer, token);
}

static rn_status add_numbered(rn_tokenizer *tokenizer, size_t id, const char *before, int number) {
    char name[64];
    snprintf(name, sizeof name, "<|%s%d|>", before, number);
    return add_special(tokenizer, id, name);
}

static rn_status add_names(rn_tokenizer *tokenizer, size_t id, const char *const *names) {
    for (; *names; names++, id++)
        RN_TRY(add_special(tokenizer, id, *names));
    return RN_OK;
}

static rn_status add_llama3(rn_tokenizer *tokenizer) {
    static const char *const names[] = {
        [0] = "<|begin_of_text|>",   [1] = "<|end_of_text|>",   [4] = "<|finetune_right_pad_id|>",
        [6] = "<|start_header_id|>", [7] = "<|end_header_id|>", [8] = "<|eom_id|>",
        [9] = "<|eot_id|>",          [10] = "<|python_tag|>"};
    rn_tokenizer_info *info = &tokenizer->info;
    for (int i = 0, reserved = 0; i < 256; i++) {
        size_t id = LLAMA3_RANKS + (size_t)i;
        if (i < (int)(sizeof names / sizeof *names) && names[i])
            RN_TRY(add_special(tokenizer, id, names[i]));
        else
            RN_TRY(add_numbered(tokenizer, id, "reserved_special_token_", reserved++));
    }
    info->begin = LLAMA3_RANKS;
    info->end = LLAMA3_RANKS + 1;
    return rn_tokenizer_put_around(tokenizer->before, &tokenizer->before_count, info->begin);
}

static rn_status add_qwen(rn_tokenizer *tokenizer) {
    static const char *const names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};
    RN_TRY(add_names(tokenizer, QWEN_RANKS, names));
    for (int i = 0; i < 205; i++)
        RN_TRY(add_numbered(tokenizer, QWEN_RANKS + 3 + (size_t)i, "extra_", i));
    tokenizer->info.end = tokenizer->info.pad = QWEN_RANKS;
    return RN_OK;
}

static rn_status add_cl100k(rn_tokenizer *tokenizer) {
    static const char *const names[] = {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>",
                                        "<|fim_suffix|>", NULL};
    RN_TRY(add_names(tokenizer, CL100K_RANKS + 1, names));
    tokenizer->info.end = CL100K_RANKS + 1;
    return add_special(tokenizer, CL100K_RANKS + 20, "<|endofprompt|>");
}

rn_status rn_add_tiktoken_specials(rn_tokenizer *tokenizer, size_t ranks) {
    if (ranks == LLAMA3_RANKS) return add_llama3(tokenizer);
    if (ranks == QWEN_RANKS) return add_qwen(tokenizer);
    if (ranks == CL100K_RANKS) return add_cl100k(tokenizer);
    if (ranks != GPT2_RANKS) return RN_OK;
    tokenizer->info.begin = tokenizer->info.end = GPT2_RANKS;
    return add_special(tokenizer, GPT2_RANKS, "<|endoftext|>");
}
