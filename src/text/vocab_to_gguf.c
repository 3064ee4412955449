// vocab_to_gguf.c — tokens with their kinds, merges or scores, and which pre-tokenizer it is.
//
// SentencePiece's BPE joins the pair whose result has the highest score; a tokenizer.json has
// merges in their order instead. A token's score is then the first rank that makes it, negative:
// the same order.
#include "text/vocab_to_gguf.h"

#include "memory/account.h"
#include "memory/sort.h"
#include "text/byte_letters.h"
#include "text/gguf_pre.h"
#include "text/tokenizer_parts.h"

#include <stdio.h>

enum { LIST_CAP_BYTES = 512 << 20 };

// A tokenizer being written down.
typedef struct writing {
    const rn_tokenizer *tokenizer;
    uint32_t size;
    const rn_added_token **added; // (size) by id, or NULL
    float *scores;                // (size)
    rn_pairs *out;
} writing;

// ---- which pre-tokenizer ------------------------------------------------------------------------

static bool cuts_alike(const rn_tokenizer *t, const rn_gguf_pre *pre) {
    size_t count = 0;
    while (count < 6 && pre->expressions[count])
        count++;
    if (t->cutter.count != count || pre->ignore_merges != t->bpe.ignore_merges) return false;
    for (size_t i = 0; i < count; i++) {
        const rn_cut_step *step = &t->cutter.steps[i];
        if (step->kind != RN_CUT_SPLIT || step->behavior != RN_CUT_ISOLATED || step->inverted ||
            !rn_pattern_is(step->pattern, rn_str_from(pre->expressions[i])))
            return false;
    }
    return true;
}

static rn_status write_pre(const writing *w) {
    const rn_tokenizer *t = w->tokenizer;
    for (size_t i = 0; i < t->normalizer.count; i++) // composing characters is all that is left out
        if (t->normalizer.steps[i].kind != RN_NORMALIZE_NFC)
            return rn_fail(RN_UNSUPPORTED, "GGUF has no name for this tokenizer's normaliser");
    const rn_gguf_pre *pre = NULL;
    for (size_t i = 0; (pre = rn_gguf_pre_at(i)); i++)
        if (cuts_alike(t, pre)) break;
    if (!pre || t->bpe.suffix_bytes)
        return rn_fail(RN_UNSUPPORTED, "GGUF has no name for how this tokenizer cuts text");
    const char *name = pre->names + 1; // the first of them
    return rn_pairs_text(w->out, "tokenizer.ggml.pre", (rn_str){name, strcspn(name, " ")});
}

// ---- tokens -------------------------------------------------------------------------------------

static rn_spm_kind kind_of(const writing *w, uint32_t id) {
    const rn_tokenizer *t = w->tokenizer;
    if (t->spm && id < rn_spm_count(t->spm) && !w->added[id]) return rn_spm_get(t->spm, id).kind;
    if (!rn_vocab_has(&t->vocab, id)) return RN_SPM_UNUSED;
    if (id == t->info.unknown && !t->bpe.by_bytes) return RN_SPM_UNKNOWN;
    if (w->added[id]) return w->added[id]->special ? RN_SPM_CONTROL : RN_SPM_USER_DEFINED;
    bool byte = t->bpe.byte_fallback && rn_spm_byte(rn_vocab_text(&t->vocab, id)) >= 0;
    return byte ? RN_SPM_BYTE : RN_SPM_NORMAL;
}

static rn_status put_token(const writing *w, uint32_t id, rn_buffer *raw) {
    char letters[2 * 1024], pad[32];
    rn_str text = rn_vocab_text(&w->tokenizer->vocab, id);
    if (!rn_vocab_has(&w->tokenizer->vocab, id)) {
        snprintf(pad, sizeof pad, "[PAD%u]", id);
        return rn_pairs_put_text(raw, rn_str_from(pad));
    }
    if (w->added[id]) return rn_pairs_put_text(raw, w->added[id]->content);
    if (!w->tokenizer->bpe.by_bytes || w->tokenizer->spm) return rn_pairs_put_text(raw, text);
    if (text.bytes > sizeof letters / 2)
        return rn_fail(RN_UNSUPPORTED, "token %u has %zu bytes", id, text.bytes);
    size_t bytes = rn_bytes_to_letters(text, letters);
    return rn_pairs_put_text(raw, (rn_str){letters, bytes});
}

static rn_status write_tokens(const writing *w,
                              rn_status (*put)(const writing *, uint32_t, rn_buffer *)) {
    rn_buffer texts, kinds;
    rn_buffer_init(&texts, RN_HOST_IO, LIST_CAP_BYTES);
    rn_buffer_init(&kinds, RN_HOST_IO, LIST_CAP_BYTES);
    rn_status s = RN_OK;
    for (uint32_t id = 0; s == RN_OK && id < w->size; id++) {
        int32_t kind = (int32_t)kind_of(w, id);
        s = put(w, id, &texts);
        if (s == RN_OK) s = rn_buffer_append(&kinds, &kind, sizeof kind);
    }
    if (s == RN_OK)
        s = rn_pairs_array(w->out, "tokenizer.ggml.tokens", RN_GGUF_STRING, w->size, &texts);
    if (s == RN_OK)
        s = rn_pairs_array(w->out, "tokenizer.ggml.token_type", RN_GGUF_I32, w->size, &kinds);
    rn_buffer_free(&texts);
    rn_buffer_free(&kinds);
    return s;
}

// ---- merges and scores --------------------------------------------------------------------------

static int compare_ranks(const void *left, const void *right) {
    const rn_merge *a = left, *b = right;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static rn_status put_merge(const writing *w, const rn_merge *merge, rn_buffer *raw) {
    char line[4 * 1024 + 1];
    rn_str left = rn_vocab_text(&w->tokenizer->vocab, merge->left);
    rn_str right = rn_vocab_text(&w->tokenizer->vocab, merge->right);
    if (left.bytes > 1024 || right.bytes > 1024)
        return rn_fail(RN_UNSUPPORTED, "a merge has more than 1024 bytes");
    size_t bytes = rn_bytes_to_letters(left, line);
    line[bytes++] = ' ';
    bytes += rn_bytes_to_letters(right, line + bytes);
    return rn_pairs_put_text(raw, (rn_str){line, bytes});
}

static rn_status put_merges(const writing *w, rn_merge *sorted) {
    const rn_merges *merges = &w->tokenizer->bpe.merges;
    rn_buffer raw;
    size_t count = 0;
    for (size_t i = 0; i < merges->slot_count; i++)
        if (merges->slots[i].left != RN_NO_MERGE) sorted[count++] = merges->slots[i];
    RN_TRY(rn_sort(sorted, count, sizeof *sorted, compare_ranks));
    rn_buffer_init(&raw, RN_HOST_IO, LIST_CAP_BYTES);
    rn_status s = RN_OK;
    for (size_t i = 0; s == RN_OK && i < count; i++)
        s = put_merge(w, &sorted[i], &raw);
    if (s == RN_OK)
        s = rn_pairs_array(w->out, "tokenizer.ggml.merges", RN_GGUF_STRING, count, &raw);
    rn_buffer_free(&raw);
    return s;
}

static rn_status write_merges(const writing *w) {
    void *sorted;
    size_t count = w->tokenizer->bpe.merges.count;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, count, sizeof(rn_merge), &sorted));
    rn_status s = put_merges(w, sorted);
    rn_free(RN_HOST_IO, sorted, count * sizeof(rn_merge));
    return s;
}

static void find_scores(const writing *w) {
    const rn_tokenizer *t = w->tokenizer;
    const rn_merges *merges = &t->bpe.merges;
    for (uint32_t id = 0; id < w->size; id++) {
        bool normal = kind_of(w, id) == RN_SPM_NORMAL;
        bool scored = t->spm && id < rn_spm_count(t->spm), filler = t->spm && !scored;
        w->scores[id] = scored ? rn_spm_get(t->spm, id).score : filler ? -1e4f : normal ? -1e6f : 0;
    }
    for (size_t i = 0; !t->spm && i < merges->slot_count; i++) {
        const rn_merge *m = &merges->slots[i];
        if (m->left == RN_NO_MERGE || m->into >= w->size) continue;
        float score = -(float)m->rank;
        if (score > w->scores[m->into]) w->scores[m->into] = score;
    }
}

static rn_status write_scores(const writing *w) {
    rn_buffer raw;
    find_scores(w);
    rn_buffer_init(&raw, RN_HOST_IO, LIST_CAP_BYTES);
    rn_status s = rn_buffer_append(&raw, w->scores, w->size * sizeof *w->scores);
    if (s == RN_OK) s = rn_pairs_array(w->out, "tokenizer.ggml.scores", RN_GGUF_F32, w->size, &raw);
    rn_buffer_free(&raw);
    return s;
}

// ---- kinds --------------------------------------------------------------------------------------

// Whether a blank is put in front of a text.
static bool puts_blank(const rn_tokenizer *t) {
    if (t->spm) return rn_spm_get_options(t->spm)->add_dummy_prefix;
    for (size_t i = 0; i < t->normalizer.count; i++)
        if (t->normalizer.steps[i].kind == RN_NORMALIZE_PREPEND) return true;
    for (size_t i = 0; i < t->cutter.count; i++)
        if (t->cutter.steps[i].kind == RN_CUT_METASPACE)
            return t->cutter.steps[i].prefix != RN_PREFIX_NEVER;
    return false;
}

static rn_status write_spm(const writing *w) {
    const rn_tokenizer *t = w->tokenizer;
    const rn_spm_options *spm = t->spm ? rn_spm_get_options(t->spm) : NULL;
    bool unigram = spm && spm->algorithm == RN_SPM_UNIGRAM;
    if (!t->spm && !t->bpe.byte_fallback)
        return rn_fail(RN_UNSUPPORTED, "GGUF has no kind for a vocabulary of characters");
    RN_TRY(rn_pairs_text(w->out, "tokenizer.ggml.model", rn_str_from(unigram ? "t5" : "llama")));
    RN_TRY(rn_pairs_text(w->out, "tokenizer.ggml.pre", RN_STR("default")));
    RN_TRY(write_tokens(w, put_token));
    RN_TRY(write_scores(w));
    RN_TRY(rn_pairs_bool(w->out, "tokenizer.ggml.add_space_prefix", puts_blank(t)));
    if (!spm) return RN_OK;
    RN_TRY(rn_pairs_bool(w->out, "tokenizer.ggml.remove_extra_whitespaces",
                         spm->remove_extra_whitespaces));
    if (spm->charsmap.bytes == 0) return RN_OK;
    rn_buffer raw;
    rn_buffer_init(&raw, RN_HOST_IO, LIST_CAP_BYTES);
    RN_TRY(rn_buffer_append(&raw, spm->charsmap.data, spm->charsmap.bytes));
    return rn_pairs_array(w->out, "tokenizer.ggml.precompiled_charsmap", RN_GGUF_U8,
                          spm->charsmap.bytes, &raw);
}

static rn_status write_bpe(const writing *w) {
    RN_TRY(rn_pairs_text(w->out, "tokenizer.ggml.model", RN_STR("gpt2")));
    RN_TRY(write_pre(w));
    RN_TRY(write_tokens(w, put_token));
    return write_merges(w);
}

// ---- WordPiece ----------------------------------------------------------------------------------

static bool has_step(const rn_tokenizer *t, rn_normalize_kind kind) {
    for (size_t i = 0; i < t->normalizer.count; i++)
        if (t->normalizer.steps[i].kind == kind) return true;
    return false;
}

// GGUF's tokens have U+2581 in front where they begin a word, and nothing where they go on.
static rn_status put_word(const writing *w, uint32_t id, rn_buffer *raw) {
    const rn_vocab *vocab = &w->tokenizer->vocab;
    rn_str text = rn_vocab_text(vocab, id), next = w->tokenizer->wordpiece.next;
    char word[1024];
    if (!rn_vocab_has(vocab, id) || w->added[id]) return put_token(w, id, raw);
    if (next.bytes && rn_str_starts(text, next))
        return rn_pairs_put_text(raw, (rn_str){text.data + next.bytes, text.bytes - next.bytes});
    int bytes = snprintf(word, sizeof word, RN_BLANK "%.*s", RN_STR_ARG(text));
    if (bytes < 0 || (size_t)bytes >= sizeof word)
        return rn_fail(RN_UNSUPPORTED, "token %u has %zu bytes", id, text.bytes);
    return rn_pairs_put_text(raw, (rn_str){word, (size_t)bytes});
}

// Text is cleaned, and Chinese characters stand alone, in all of GGUF's.
static rn_status write_wordpiece(const writing *w) {
    const rn_tokenizer *t = w->tokenizer;
    if (!has_step(t, RN_NORMALIZE_CLEAN) || !has_step(t, RN_NORMALIZE_SPACE_CHINESE))
        return rn_fail(RN_UNSUPPORTED, "GGUF has no name for this tokenizer's normaliser");
    RN_TRY(rn_pairs_text(w->out, "tokenizer.ggml.model", RN_STR("bert")));
    RN_TRY(rn_pairs_text(w->out, "tokenizer.ggml.pre", RN_STR("default")));
    RN_TRY(write_tokens(w, put_word));
    RN_TRY(rn_pairs_bool(w->out, "tokenizer.ggml.normalizer.lowercase",
                         has_step(t, RN_NORMALIZE_LOWERCASE)));
    return rn_pairs_bool(w->out, "tokenizer.ggml.normalizer.strip_accents",
                         has_step(t, RN_NORMALIZE_STRIP_NONSPACING));
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status write_id(const writing *w, const char *key, uint32_t id) {
    return id < w->size ? rn_pairs_u32(w->out, key, id) : RN_OK;
}

static rn_status write_all(const writing *w) {
    const rn_tokenizer *t = w->tokenizer;
    const rn_tokenizer_info *info = &t->info;
    bool words = t->wordpiece.vocab != NULL;
    uint32_t begin = info->begin, end = info->end; // or what is around texts, where none is named
    if (begin == RN_NO_TOKEN && t->before_count > 0) begin = t->before[0];
    if (end == RN_NO_TOKEN && t->after_count > 0) end = t->after[0];
    RN_TRY(words ? write_wordpiece(w) : t->bpe.by_bytes && !t->spm ? write_bpe(w) : write_spm(w));
    if (words) {
        RN_TRY(write_id(w, "tokenizer.ggml.cls_token_id", begin));
        RN_TRY(write_id(w, "tokenizer.ggml.seperator_token_id", end)); // llama.cpp's spelling
    }
    RN_TRY(write_id(w, "tokenizer.ggml.bos_token_id", begin));
    RN_TRY(write_id(w, "tokenizer.ggml.eos_token_id", end));
    RN_TRY(write_id(w, "tokenizer.ggml.unknown_token_id", info->unknown));
    RN_TRY(write_id(w, "tokenizer.ggml.padding_token_id", info->pad));
    bool begins = t->before_count > 0 && t->before[0] == begin;
    bool ends = t->after_count > 0 && t->after[0] == end;
    if (words) return RN_OK; // both are around all of BERT's texts
    RN_TRY(rn_pairs_bool(w->out, "tokenizer.ggml.add_bos_token", begins));
    return rn_pairs_bool(w->out, "tokenizer.ggml.add_eos_token", ends);
}

static void note_added(const writing *w, const rn_added *added) {
    for (size_t i = 0; i < added->count; i++)
        if (added->tokens[i].id < w->size) w->added[added->tokens[i].id] = &added->tokens[i];
}

rn_status rn_vocab_to_gguf(const rn_tokenizer *tokenizer, uint32_t size, rn_pairs *out) {
    writing w = {.tokenizer = tokenizer, .size = size, .out = out};
    void *block;
    size_t bytes = (size_t)size * (sizeof *w.added + sizeof *w.scores);
    if (tokenizer->vocab.count > size)
        return rn_fail(RN_CORRUPT, "the tokenizer has %zu tokens, the model knows %u",
                       tokenizer->vocab.count, size);
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, bytes, &block));
    w.added = block;
    w.scores = (float *)(w.added + size);
    note_added(&w, &tokenizer->added);
    note_added(&w, &tokenizer->added_normalized);
    rn_status s = write_all(&w);
    rn_free(RN_HOST_IO, block, bytes);
    return s;
}
