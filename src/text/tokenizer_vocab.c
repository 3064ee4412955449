// tokenizer_vocab.c — vocab.json (or encoder.json) with merges.txt (or vocab.bpe): GPT-2's own
// form.
//
// The expression is not in them. Tokens that end in "</w>" are CLIP's; the class that
// tokenizer_config.json names, or Qwen's number of tokens, tells Qwen 2; all others are GPT-2's.
#include "text/tokenizer_parts.h"

enum { QWEN_TOKENS = 151643 };

#define EXPRESSION_CLIP                                                                            \
    "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|"            \
    "[^\\s\\p{L}\\p{N}]+"

static size_t count_lines(rn_str text) {
    size_t lines = 1;
    for (size_t i = 0; i < text.bytes; i++)
        lines += text.data[i] == '\n';
    return lines;
}

// "left right" a line; a first line "#version: ..." is none of them.
static rn_status read_merges(rn_tokenizer *tokenizer, rn_str text) {
    uint32_t rank = 0;
    if (rn_str_starts(text, RN_STR("#version"))) rank = UINT32_MAX;
    while (text.bytes) {
        const char *end = memchr(text.data, '\n', text.bytes);
        size_t bytes = end ? (size_t)(end - text.data) : text.bytes;
        rn_str line = {text.data, bytes};
        if (line.bytes && line.data[line.bytes - 1] == '\r') line.bytes--;
        if (rank == UINT32_MAX)
            rank = 0;
        else if (line.bytes)
            RN_TRY(rn_tokenizer_merge_line(tokenizer, line, rank++));
        text.data += bytes + (end != NULL);
        text.bytes -= bytes + (end != NULL);
    }
    return RN_OK;
}

// ---- whose it is ------------------------------------------------------------------------

static rn_status add_named(rn_tokenizer *tokenizer, const char *name, uint32_t *out) {
    rn_added_token token = {.content = rn_str_from(name), .special = true};
    token.id = rn_vocab_find(&tokenizer->vocab, token.content);
    *out = token.id;
    return token.id == RN_NO_TOKEN ? RN_OK : rn_tokenizer_add_token(tokenizer, token);
}

// Text is normalised, in small letters, white space is dropped; the last byte of a word has "</w>".
static rn_status be_clip(rn_tokenizer *tokenizer) {
    rn_tokenizer_info *info = &tokenizer->info;
    rn_normalize_step squeeze = {.kind = RN_NORMALIZE_REPLACE, .content = RN_STR(" ")};
    rn_cut_step cut = {.kind = RN_CUT_SPLIT, .behavior = RN_CUT_REMOVED, .inverted = true};
    rn_normalizer *normalizer = &tokenizer->normalizer;
    memcpy(tokenizer->bpe.suffix, "</w>", 4);
    tokenizer->bpe.suffix_bytes = 4;
    tokenizer->show_suffix = RN_STR("</w>");
    tokenizer->strip_last = true;
    RN_TRY(rn_normalizer_add(normalizer, (rn_normalize_step){.kind = RN_NORMALIZE_NFC}));
    RN_TRY(rn_pattern_compile(tokenizer->from, RN_STR("\\s+"), false, &squeeze.pattern));
    RN_TRY(rn_normalizer_add(normalizer, squeeze));
    RN_TRY(rn_normalizer_add(normalizer, (rn_normalize_step){.kind = RN_NORMALIZE_LOWERCASE}));
    RN_TRY(rn_pattern_compile(tokenizer->from, RN_STR(EXPRESSION_CLIP), false, &cut.pattern));
    RN_TRY(rn_cutter_add(&tokenizer->cutter, cut));
    RN_TRY(add_named(tokenizer, "<|startoftext|>", &info->begin));
    RN_TRY(add_named(tokenizer, "<|endoftext|>", &info->end));
    if (info->begin == RN_NO_TOKEN || info->end == RN_NO_TOKEN) return RN_OK;
    tokenizer->bpe.unknown = info->unknown = info->pad = info->end;
    RN_TRY(rn_tokenizer_put_around(tokenizer->before, &tokenizer->before_count, info->begin));
    return rn_tokenizer_put_around(tokenizer->after, &tokenizer->after_count, info->end);
}

static rn_status be_qwen2(rn_tokenizer *tokenizer) {
    rn_normalize_step nfc = {.kind = RN_NORMALIZE_NFC};
    RN_TRY(rn_normalizer_add(&tokenizer->normalizer, nfc));
    return rn_tokenizer_split(tokenizer, RN_STR(RN_EXPRESSION_QWEN2));
}

static rn_status be_gpt2(rn_tokenizer *tokenizer) {
    RN_TRY(add_named(tokenizer, "<|endoftext|>", &tokenizer->info.end));
    tokenizer->info.begin = tokenizer->info.unknown = tokenizer->info.end;
    return rn_tokenizer_split(tokenizer, RN_STR(RN_EXPRESSION_GPT2));
}

rn_status rn_load_vocab(rn_tokenizer *tokenizer, rn_str vocab) {
    rn_json_reader reader;
    tokenizer->bpe.by_bytes = true;
    rn_json_reader_init(&reader, vocab, tokenizer->from);
    rn_status s = rn_tokenizer_read_vocab(tokenizer, &reader);
    if (s == RN_OK) s = rn_json_expect(&reader, RN_JSON_END, NULL);
    rn_json_reader_free(&reader);
    return s == RN_OK ? rn_vocab_seal(&tokenizer->vocab) : s;
}

rn_status rn_load_merges(rn_tokenizer *tokenizer, rn_str merges, rn_str class_name) {
    RN_TRY(rn_merges_init(&tokenizer->bpe.merges, tokenizer->from, count_lines(merges),
                          tokenizer->vocab.seed));
    RN_TRY(read_merges(tokenizer, merges));
    bool is_qwen2 = rn_str_starts(class_name, RN_STR("Qwen2Tokenizer")) ||
                    tokenizer->vocab.count == QWEN_TOKENS;
    if (rn_vocab_find(&tokenizer->vocab, RN_STR("a</w>")) != RN_NO_TOKEN) return be_clip(tokenizer);
    return is_qwen2 ? be_qwen2(tokenizer) : be_gpt2(tokenizer);
}
