// tokenizer_spm.c — a SentencePiece model as a tokenizer: its control pieces are special tokens
// that are found in the text, everything else is its own business.
#include "text/tokenizer_parts.h"

// Control pieces are never cut from text by SentencePiece itself.
static rn_status add_piece(rn_tokenizer *tokenizer, uint32_t id, rn_spm_piece piece) {
    bool control = piece.kind == RN_SPM_CONTROL, unknown = piece.kind == RN_SPM_UNKNOWN;
    return rn_vocab_put(&tokenizer->vocab, id, piece.text,
                        control || unknown ? RN_TOKEN_SPECIAL : 0);
}

static rn_status add_controls(rn_tokenizer *tokenizer) {
    for (uint32_t id = 0; id < tokenizer->vocab.count; id++) {
        rn_spm_piece piece = rn_spm_get(tokenizer->spm, id);
        if (piece.kind != RN_SPM_CONTROL || piece.text.bytes == 0) continue;
        rn_added_token token = {.content = piece.text, .id = id, .special = true};
        RN_TRY(rn_tokenizer_add_token(tokenizer, token));
    }
    return RN_OK;
}

// Once tokenizer->spm is there.
rn_status rn_tokenizer_take_spm(rn_tokenizer *tokenizer) {
    const rn_spm_options *options = rn_spm_get_options(tokenizer->spm);
    rn_tokenizer_info *info = &tokenizer->info;
    size_t count = rn_spm_count(tokenizer->spm);
    for (size_t id = 0; id < count; id++)
        RN_TRY(add_piece(tokenizer, (uint32_t)id, rn_spm_get(tokenizer->spm, (uint32_t)id)));
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    RN_TRY(add_controls(tokenizer));
    bool unigram = options->algorithm == RN_SPM_UNIGRAM;
    info->kind = unigram ? "SentencePiece unigram" : "SentencePiece BPE";
    info->begin = options->begin;
    info->end = options->end;
    info->unknown = options->unknown;
    info->pad = options->pad;
    tokenizer->spm_prefix = options->add_dummy_prefix ? RN_PREFIX_ALWAYS : RN_PREFIX_NEVER;
    tokenizer->show_blank = options->escape_whitespaces;
    tokenizer->show_bytes = options->byte_fallback;
    tokenizer->strip_first = options->add_dummy_prefix;
    return RN_OK;
}

// Llama and Mistral begin a text with their begin token; where that is not wanted,
// tokenizer_config.json says so.
rn_status rn_load_sentencepiece(rn_tokenizer *tokenizer, rn_str file) {
    RN_TRY(rn_spm_load(file, &tokenizer->spm));
    RN_TRY(rn_tokenizer_take_spm(tokenizer));
    uint32_t begin = tokenizer->info.begin;
    if (begin == RN_NO_TOKEN) return RN_OK;
    return rn_tokenizer_put_around(tokenizer->before, &tokenizer->before_count, begin);
}
