// tokenizer_gguf.c — the vocabulary in a GGUF file's metadata: "gpt2" is byte-level BPE with
// merges, "gemma4" BPE over characters, "llama" SentencePiece BPE, "t5" its unigrams, "bert"
// WordPiece.
#include "text/tokenizer_parts.h"

#include "text/gguf_pre.h"

typedef struct gguf_vocab {
    const rn_metadata *tokens, *scores, *types, *merges;
    rn_str model, pre;
    const rn_checkpoint *checkpoint;
} gguf_vocab;

static const rn_metadata *find(const rn_checkpoint *checkpoint, const char *name) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(checkpoint); i++) {
        const rn_metadata *entry = rn_checkpoint_metadata(checkpoint, i);
        rn_str key = entry->key, prefix = RN_STR("tokenizer.ggml.");
        if (!rn_str_starts(key, prefix)) continue;
        key = (rn_str){key.data + prefix.bytes, key.bytes - prefix.bytes};
        if (rn_str_equal(key, rn_str_from(name))) return entry;
    }
    return NULL;
}

static bool find_bool(const rn_checkpoint *checkpoint, const char *name, bool otherwise) {
    const rn_metadata *entry = find(checkpoint, name);
    return entry && entry->kind == RN_METADATA_BOOL ? entry->value.boolean : otherwise;
}

// An id, `otherwise` where the file says nothing.
static rn_status find_id(const gguf_vocab *v, const char *name, uint32_t otherwise, uint32_t *out) {
    const rn_metadata *entry = find(v->checkpoint, name);
    *out = otherwise;
    if (!entry) {
        if (otherwise != RN_NO_TOKEN && otherwise >= v->tokens->count) *out = RN_NO_TOKEN;
        return RN_OK;
    }
    bool number = entry->kind == RN_METADATA_U64 || entry->kind == RN_METADATA_I64;
    if (!number) return rn_fail(RN_CORRUPT, "tokenizer.ggml.%s is no number", name);
    *out = entry->value.u64 < v->tokens->count ? (uint32_t)entry->value.u64 : RN_NO_TOKEN;
    return RN_OK;
}

static rn_str find_text(const rn_checkpoint *checkpoint, const char *name) {
    const rn_metadata *entry = find(checkpoint, name);
    return entry && entry->kind == RN_METADATA_TEXT ? entry->text : (rn_str){0};
}

static const rn_metadata *find_list(const rn_checkpoint *checkpoint, const char *name) {
    const rn_metadata *entry = find(checkpoint, name);
    return entry && entry->kind == RN_METADATA_ARRAY ? entry : NULL;
}

// ---- pieces: text, score and kind side by side ------------------------------------------

typedef struct piece_cursor {
    uint64_t tokens, scores, types;
} piece_cursor;

static double number_of(const rn_metadata *element) {
    if (element->kind == RN_METADATA_F64) return element->value.f64;
    return element->kind == RN_METADATA_I64 ? (double)element->value.i64
                                            : (double)element->value.u64;
}

static rn_status next_piece(const gguf_vocab *v, piece_cursor *at, rn_spm_piece *out) {
    rn_metadata element;
    *out = (rn_spm_piece){.kind = RN_SPM_NORMAL};
    if (!rn_metadata_next(v->tokens, &at->tokens, &element) || element.kind != RN_METADATA_TEXT)
        return rn_fail(RN_CORRUPT, "tokenizer.ggml.tokens is no list of texts");
    out->text = element.text;
    if (v->scores && rn_metadata_next(v->scores, &at->scores, &element))
        out->score = (float)number_of(&element);
    if (v->types && rn_metadata_next(v->types, &at->types, &element)) {
        double kind = number_of(&element);
        if (!(kind >= RN_SPM_NORMAL && kind <= RN_SPM_BYTE))
            return rn_fail(RN_CORRUPT, "a token's type is %g", kind);
        out->kind = (rn_spm_kind)(int)kind;
    }
    return RN_OK;
}

// ---- byte-level BPE ---------------------------------------------------------------------

// Special and user-defined tokens stand in the file as they are, the others in letters.
static rn_status put_tokens(rn_tokenizer *tokenizer, const gguf_vocab *v) {
    piece_cursor at = {0};
    for (uint64_t id = 0; id < v->tokens->count; id++) {
        rn_spm_piece piece;
        RN_TRY(next_piece(v, &at, &piece));
        if (piece.kind == RN_SPM_NORMAL || piece.kind == RN_SPM_BYTE)
            RN_TRY(rn_tokenizer_put(tokenizer, id, piece.text));
        else
            RN_TRY(rn_vocab_put(&tokenizer->vocab, id, piece.text, RN_TOKEN_APART));
    }
    return RN_OK;
}

static rn_status add_tokens(rn_tokenizer *tokenizer, const gguf_vocab *v) {
    piece_cursor at = {0};
    for (uint32_t id = 0; id < v->tokens->count; id++) {
        rn_spm_piece piece;
        RN_TRY(next_piece(v, &at, &piece));
        bool special = piece.kind == RN_SPM_CONTROL || piece.kind == RN_SPM_UNKNOWN;
        if ((!special && piece.kind != RN_SPM_USER_DEFINED) || piece.text.bytes == 0) continue;
        rn_added_token token = {.content = piece.text, .id = id, .special = special};
        RN_TRY(rn_tokenizer_add_token(tokenizer, token));
    }
    return RN_OK;
}

static rn_status read_merges(rn_tokenizer *tokenizer, const gguf_vocab *v) {
    rn_metadata element;
    uint64_t cursor = 0;
    if (!v->merges) return rn_fail(RN_CORRUPT, "tokenizer.ggml.merges is missing");
    RN_TRY(rn_merges_init(&tokenizer->bpe.merges, tokenizer->from, v->merges->count,
                          tokenizer->vocab.seed));
    for (uint32_t rank = 0; rn_metadata_next(v->merges, &cursor, &element); rank++) {
        if (element.kind != RN_METADATA_TEXT)
            return rn_fail(RN_CORRUPT, "tokenizer.ggml.merges is no list of texts");
        RN_TRY(rn_tokenizer_merge_line(tokenizer, element.text, rank));
    }
    return RN_OK;
}

static rn_status load_bpe(rn_tokenizer *tokenizer, const gguf_vocab *v, bool *out_add_begin) {
    const rn_gguf_pre *pre = rn_gguf_pre_find(v->pre.bytes ? v->pre : RN_STR("default"));
    if (!pre)
        return rn_fail(RN_UNSUPPORTED, "pre-tokenizer \"%.*s\" is not known", RN_STR_ARG(v->pre));
    *out_add_begin = pre->add_begin;
    tokenizer->bpe.by_bytes = true;
    tokenizer->bpe.ignore_merges = pre->ignore_merges;
    for (size_t i = 0; i < 6 && pre->expressions[i]; i++)
        RN_TRY(rn_tokenizer_split(tokenizer, rn_str_from(pre->expressions[i])));
    if (find_bool(v->checkpoint, "add_space_prefix", false))
        return rn_fail(RN_UNSUPPORTED, "add_space_prefix of a byte-level vocabulary");
    RN_TRY(put_tokens(tokenizer, v));
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    RN_TRY(read_merges(tokenizer, v));
    RN_TRY(add_tokens(tokenizer, v));
    RN_TRY(find_id(v, "bos_token_id", RN_NO_TOKEN, &tokenizer->info.begin));
    RN_TRY(find_id(v, "eos_token_id", RN_NO_TOKEN, &tokenizer->info.end));
    RN_TRY(find_id(v, "padding_token_id", RN_NO_TOKEN, &tokenizer->info.pad));
    return find_id(v, "unknown_token_id", RN_NO_TOKEN, &tokenizer->info.unknown);
}

// ---- BPE over characters ----------------------------------------------------------------

// Merges over whole texts whose blanks are U+2581; characters that are no tokens are their bytes.
static rn_status load_characters(rn_tokenizer *tokenizer, const gguf_vocab *v) {
    rn_tokenizer_info *info = &tokenizer->info;
    rn_normalize_step blanks = {.kind = RN_NORMALIZE_REPLACE, .content = RN_STR(RN_BLANK)};
    RN_TRY(rn_pattern_compile(tokenizer->from, RN_STR(" "), true, &blanks.pattern));
    RN_TRY(rn_normalizer_add(&tokenizer->normalizer, blanks));
    tokenizer->bpe.byte_fallback = tokenizer->show_bytes = tokenizer->show_blank = true;
    RN_TRY(put_tokens(tokenizer, v));
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    RN_TRY(read_merges(tokenizer, v));
    RN_TRY(add_tokens(tokenizer, v));
    RN_TRY(find_id(v, "bos_token_id", RN_NO_TOKEN, &info->begin));
    RN_TRY(find_id(v, "eos_token_id", RN_NO_TOKEN, &info->end));
    RN_TRY(find_id(v, "padding_token_id", RN_NO_TOKEN, &info->pad));
    RN_TRY(find_id(v, "unknown_token_id", RN_NO_TOKEN, &info->unknown));
    tokenizer->bpe.unknown = info->unknown;
    return RN_OK;
}

// ---- SentencePiece ----------------------------------------------------------------------

static rn_status spm_options(const gguf_vocab *v, bool unigram, rn_spm_options *out) {
    const rn_checkpoint *checkpoint = v->checkpoint;
    const rn_metadata *charsmap = find_list(checkpoint, "precompiled_charsmap");
    *out = (rn_spm_options){.algorithm = unigram ? RN_SPM_UNIGRAM : RN_SPM_BPE,
                            .byte_fallback = !unigram,
                            .add_dummy_prefix = find_bool(checkpoint, "add_space_prefix", true),
                            .remove_extra_whitespaces =
                                find_bool(checkpoint, "remove_extra_whitespaces", false),
                            .escape_whitespaces = true,
                            .keep_invalid = !unigram};
    if (charsmap) out->charsmap = charsmap->raw;
    RN_TRY(find_id(v, "unknown_token_id", unigram ? 2 : 0, &out->unknown));
    RN_TRY(find_id(v, "bos_token_id", unigram ? RN_NO_TOKEN : 1, &out->begin));
    RN_TRY(find_id(v, "eos_token_id", unigram ? 1 : 2, &out->end));
    return find_id(v, "padding_token_id", unigram ? 0 : RN_NO_TOKEN, &out->pad);
}

static rn_status create_spm(rn_tokenizer *tokenizer, const gguf_vocab *v, bool unigram,
                            rn_spm_piece *pieces) {
    rn_spm_options options;
    piece_cursor at = {0};
    RN_TRY(spm_options(v, unigram, &options));
    for (uint64_t id = 0; id < v->tokens->count; id++)
        RN_TRY(next_piece(v, &at, &pieces[id]));
    RN_TRY(rn_spm_create(&options, pieces, v->tokens->count, &tokenizer->spm));
    return rn_tokenizer_take_spm(tokenizer);
}

static rn_status load_spm(rn_tokenizer *tokenizer, const gguf_vocab *v, bool unigram) {
    void *pieces;
    size_t count = v->tokens->count;
    RN_TRY(rn_alloc_zeroed(tokenizer->from, count, sizeof(rn_spm_piece), &pieces));
    rn_status s = create_spm(tokenizer, v, unigram, pieces);
    rn_free(tokenizer->from, pieces, count * sizeof(rn_spm_piece));
    return s;
}

// ---- WordPiece ---------------------------------------------------------------------------

// As BERT's converters write it: "▁" before what begins a word, nothing before what goes on.
static rn_status load_wordpiece(rn_tokenizer *tokenizer, const gguf_vocab *v) {
    rn_tokenizer_info *info = &tokenizer->info;
    bool lowercase = find_bool(v->checkpoint, "normalizer.lowercase", true);
    bool strip = find_bool(v->checkpoint, "normalizer.strip_accents", lowercase);
    rn_tokenizer_be_wordpiece(tokenizer, RN_STR(RN_BLANK), RN_STR(""));
    tokenizer->wordpiece.most_characters = RN_BERT_WORD_CHARACTERS;
    RN_TRY(put_tokens(tokenizer, v));
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    RN_TRY(add_tokens(tokenizer, v));
    RN_TRY(rn_tokenizer_normalize_bert(tokenizer, (rn_bert_steps){true, true, strip, lowercase}));
    RN_TRY(rn_tokenizer_cut_bert(tokenizer));
    RN_TRY(find_id(v, "cls_token_id", 101, &info->begin));
    RN_TRY(find_id(v, "bos_token_id", info->begin, &info->begin));
    RN_TRY(find_id(v, "seperator_token_id", 102, &info->end)); // as llama.cpp spells it
    RN_TRY(find_id(v, "padding_token_id", 0, &info->pad));
    RN_TRY(find_id(v, "unknown_token_id", 100, &info->unknown));
    tokenizer->wordpiece.unknown = info->unknown;
    return RN_OK;
}

// ---- all of it --------------------------------------------------------------------------

static rn_status load_model(rn_tokenizer *tokenizer, const gguf_vocab *v, bool *add_begin,
                            bool *add_end) {
    if (rn_str_equal(v->model, RN_STR("gpt2"))) return load_bpe(tokenizer, v, add_begin);
    if (rn_str_equal(v->model, RN_STR("bert"))) {
        *add_begin = *add_end = true;
        return load_wordpiece(tokenizer, v);
    }
    if (rn_str_equal(v->model, RN_STR("gemma4"))) {
        *add_begin = true;
        return load_characters(tokenizer, v);
    }
    bool unigram = rn_str_equal(v->model, RN_STR("t5"));
    if (!unigram && !rn_str_equal(v->model, RN_STR("llama")))
        return rn_fail(RN_UNSUPPORTED, "tokenizer.ggml.model \"%.*s\" is not known",
                       RN_STR_ARG(v->model));
    *add_begin = !unigram;
    *add_end = unigram;
    return load_spm(tokenizer, v, unigram);
}

static rn_status check_counts(const gguf_vocab *v) {
    uint64_t count = v->tokens->count;
    if (count > RN_VOCAB_MAX)
        return rn_fail(RN_CORRUPT, "%llu tokens are too many", (unsigned long long)count);
    if ((v->scores && v->scores->count < count) || (v->types && v->types->count < count))
        return rn_fail(RN_CORRUPT, "there are more tokens than scores or types");
    return RN_OK;
}

static rn_status mark_end(rn_tokenizer *tokenizer, const gguf_vocab *v, const char *name) {
    uint32_t id;
    RN_TRY(find_id(v, name, RN_NO_TOKEN, &id));
    if (rn_vocab_has(&tokenizer->vocab, id)) tokenizer->vocab.flags[id] |= RN_TOKEN_END;
    return RN_OK;
}

rn_status rn_load_gguf_vocab(rn_tokenizer *tokenizer, const rn_checkpoint *checkpoint) {
    gguf_vocab v = {.tokens = find_list(checkpoint, "tokens"),
                    .scores = find_list(checkpoint, "scores"),
                    .types = find_list(checkpoint, "token_type"),
                    .merges = find_list(checkpoint, "merges"),
                    .model = find_text(checkpoint, "model"),
                    .pre = find_text(checkpoint, "pre"),
                    .checkpoint = checkpoint};
    rn_tokenizer_info *info = &tokenizer->info;
    bool add_begin = false, add_end = false;
    if (!v.model.bytes || !v.tokens) return rn_fail(RN_NOT_FOUND, "the file has no vocabulary");
    RN_TRY(check_counts(&v));
    RN_TRY(load_model(tokenizer, &v, &add_begin, &add_end));
    RN_TRY(mark_end(tokenizer, &v, "eot_token_id"));
    RN_TRY(mark_end(tokenizer, &v, "eom_token_id"));
    add_begin = find_bool(checkpoint, "add_bos_token", add_begin) && info->begin != RN_NO_TOKEN;
    add_end = find_bool(checkpoint, "add_eos_token", add_end) && info->end != RN_NO_TOKEN;
    if (add_begin)
        RN_TRY(rn_tokenizer_put_around(tokenizer->before, &tokenizer->before_count, info->begin));
    if (!add_end) return RN_OK;
    // BERT has one separator between two texts, RoBERTa two.
    for (int i = tokenizer->wordpiece.vocab ? 1 : 0; i < 2; i++)
        RN_TRY(rn_tokenizer_put_around(tokenizer->between, &tokenizer->between_count, info->end));
    return rn_tokenizer_put_around(tokenizer->after, &tokenizer->after_count, info->end);
}
