// vocab_to_json.c — tokens and merges as they stand, what is special as added tokens, and the steps
// around them.
//
// SentencePiece's BPE has no list of merges: any two tokens join whose result is a token, the
// highest score first. A tokenizer.json wants them listed: every way to cut every token into two
// tokens, in the order of scores.
#include "text/vocab_to_json.h"

#include "base/json.h"
#include "base/map.h"
#include "memory/account.h"
#include "memory/sort.h"
#include "text/base64.h"
#include "text/gguf_pre.h"
#include "text/tokenizer_parts.h"

#include <stdio.h>

typedef enum vocab_kind { BPE, SPM, UNIGRAM, WORDPIECE, CHARACTERS, KINDS } vocab_kind;

typedef struct gguf_vocab {
    vocab_kind kind;
    const rn_checkpoint *gguf;
    rn_arena arena;
    rn_spm_piece *pieces; // (count)
    rn_map ids;           // text to id; SentencePiece only
    uint32_t count;
    rn_json json;
} gguf_vocab;

// ---- metadata -----------------------------------------------------------------------------------

static const rn_metadata *find(const rn_checkpoint *gguf, const char *name) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(gguf); i++) {
        const rn_metadata *pair = rn_checkpoint_metadata(gguf, i);
        rn_str prefix = RN_STR("tokenizer.ggml."), key = pair->key;
        if (!rn_str_starts(key, prefix)) continue;
        key = (rn_str){key.data + prefix.bytes, key.bytes - prefix.bytes};
        if (rn_str_equal(key, rn_str_from(name))) return pair;
    }
    return NULL;
}

static const rn_metadata *find_list(const rn_checkpoint *gguf, const char *name) {
    const rn_metadata *pair = find(gguf, name);
    return pair && pair->kind == RN_METADATA_ARRAY ? pair : NULL;
}

static bool find_bool(const rn_checkpoint *gguf, const char *name, bool otherwise) {
    const rn_metadata *pair = find(gguf, name);
    return pair && pair->kind == RN_METADATA_BOOL ? pair->value.boolean : otherwise;
}

static rn_str find_text(const rn_checkpoint *gguf, const char *name) {
    const rn_metadata *pair = find(gguf, name);
    return pair && pair->kind == RN_METADATA_TEXT ? pair->text : (rn_str){0};
}

// A token that a key names.
static uint32_t find_id(const gguf_vocab *v, const char *name, uint32_t otherwise) {
    const rn_metadata *pair = find(v->gguf, name);
    bool number = pair && (pair->kind == RN_METADATA_U64 || pair->kind == RN_METADATA_I64);
    return number && pair->value.u64 < v->count ? (uint32_t)pair->value.u64 : otherwise;
}

// Empty where there is none.
static rn_str text_of(const gguf_vocab *v, uint32_t id) {
    return id < v->count ? v->pieces[id].text : (rn_str){0};
}

static rn_str find_token(const gguf_vocab *v, const char *name) {
    return text_of(v, find_id(v, name, RN_NO_TOKEN));
}

// What is put around a text. BERT's are called otherwise, and known where they are not said.
static uint32_t begin_id(const gguf_vocab *v) {
    uint32_t other = v->kind == WORDPIECE ? find_id(v, "cls_token_id", 101) : RN_NO_TOKEN;
    return find_id(v, "bos_token_id", other);
}

static uint32_t end_id(const gguf_vocab *v) {
    return v->kind == WORDPIECE ? find_id(v, "seperator_token_id", 102)
                                : find_id(v, "eos_token_id", v->kind == UNIGRAM ? 1 : RN_NO_TOKEN);
}

static rn_status read_pieces(gguf_vocab *v, const rn_metadata *tokens) {
    const rn_metadata *types = find_list(v->gguf, "token_type");
    const rn_metadata *scores = find_list(v->gguf, "scores");
    uint64_t token_at = 0, type_at = 0, score_at = 0;
    rn_metadata element;
    void *block;
    if (tokens->count > RN_VOCAB_MAX) return rn_fail(RN_CORRUPT, "there are too many tokens");
    v->count = (uint32_t)tokens->count;
    RN_TRY(rn_arena_array(&v->arena, v->count, sizeof *v->pieces, &block));
    v->pieces = block;
    for (uint32_t i = 0; i < v->count; i++) {
        rn_spm_piece *piece = &v->pieces[i];
        piece->kind = RN_SPM_NORMAL;
        if (!rn_metadata_next(tokens, &token_at, &element) || element.kind != RN_METADATA_TEXT)
            return rn_fail(RN_CORRUPT, "tokenizer.ggml.tokens is no list of texts");
        piece->text = element.text;
        if (types && rn_metadata_next(types, &type_at, &element))
            piece->kind = (rn_spm_kind)element.value.i64;
        if (scores && rn_metadata_next(scores, &score_at, &element) &&
            element.kind == RN_METADATA_F64)
            piece->score = (float)element.value.f64;
    }
    return RN_OK;
}

// ---- steps --------------------------------------------------------------------------------------

static void write_type(rn_json *json, const char *key, const char *type) {
    rn_json_object(json, key);
    rn_json_string(json, "type", type);
}

static void write_added(gguf_vocab *v) {
    rn_json *json = &v->json;
    rn_json_array(json, "added_tokens");
    for (uint32_t i = 0; i < v->count; i++) {
        rn_spm_kind kind = v->pieces[i].kind;
        bool special = kind == RN_SPM_CONTROL || kind == RN_SPM_UNKNOWN;
        if ((!special && kind != RN_SPM_USER_DEFINED) || v->pieces[i].text.bytes == 0) continue;
        rn_json_object(json, NULL);
        rn_json_u64(json, "id", i);
        rn_json_text(json, "content", v->pieces[i].text);
        rn_json_bool(json, "single_word", false);
        rn_json_bool(json, "lstrip", false);
        rn_json_bool(json, "rstrip", false);
        rn_json_bool(json, "normalized", false);
        rn_json_bool(json, "special", special);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void write_sequence(rn_json *json, const char *id, uint32_t type) {
    rn_json_object(json, NULL);
    rn_json_object(json, "Sequence");
    rn_json_string(json, "id", id);
    rn_json_u64(json, "type_id", type);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_special(rn_json *json, rn_str token, uint32_t type) {
    rn_json_object(json, NULL);
    rn_json_object(json, "SpecialToken");
    rn_json_text(json, "id", token);
    rn_json_u64(json, "type_id", type);
    rn_json_end(json);
    rn_json_end(json);
}

// Two texts: BERT has one separator between them and another type for the second, RoBERTa has two
// separators, and decoders begin anew.
static void write_pair(gguf_vocab *v, rn_str begin, rn_str end) {
    rn_json *json = &v->json;
    rn_str model = find_text(v->gguf, "model");
    bool bert = rn_str_equal(model, RN_STR("bert")), roberta = rn_str_equal(model, RN_STR("t5"));
    rn_json_array(json, "pair");
    if (begin.bytes) write_special(json, begin, 0);
    write_sequence(json, "A", 0);
    if (end.bytes) write_special(json, end, 0);
    if (roberta && end.bytes) write_special(json, end, 0);
    if (!bert && !roberta && begin.bytes) write_special(json, begin, 0);
    write_sequence(json, "B", bert);
    if (end.bytes) write_special(json, end, bert);
    rn_json_end(json);
}

// What is put in front of a text, and behind it.
static void write_post_processor(gguf_vocab *v, bool begins, bool ends) {
    rn_json *json = &v->json;
    uint32_t ids[] = {begin_id(v), end_id(v)};
    rn_str begin = text_of(v, ids[0]), end = text_of(v, ids[1]);
    bool with_begin = find_bool(v->gguf, "add_bos_token", begins) && begin.bytes;
    bool with_end = find_bool(v->gguf, "add_eos_token", ends) && end.bytes;
    if (!with_begin && !with_end) {
        rn_json_null(json, "post_processor");
        return;
    }
    write_type(json, "post_processor", "TemplateProcessing");
    rn_json_array(json, "single");
    if (with_begin) write_special(json, begin, 0);
    write_sequence(json, "A", 0);
    if (with_end) write_special(json, end, 0);
    rn_json_end(json);
    write_pair(v, with_begin ? begin : (rn_str){0}, with_end ? end : (rn_str){0});
    rn_json_object(json, "special_tokens");
    for (int i = 0; i < 2; i++) {
        rn_str token = i ? end : begin;
        if (!(i ? with_end : with_begin) || (i && with_begin && rn_str_equal(begin, end))) continue;
        rn_json_key(json, token);
        rn_json_object(json, NULL);
        rn_json_text(json, "id", token);
        rn_json_array(json, "ids");
        rn_json_u64(json, NULL, ids[i]);
        rn_json_end(json);
        rn_json_array(json, "tokens");
        rn_json_text(json, NULL, token);
        rn_json_end(json);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

static void write_pattern(rn_json *json, const char *kind, const char *text) {
    rn_json_object(json, "pattern");
    rn_json_string(json, kind, text);
    rn_json_end(json);
}

static void write_byte_level(rn_json *json, const char *key) {
    write_type(json, key, "ByteLevel");
    rn_json_bool(json, "add_prefix_space", false);
    rn_json_bool(json, "trim_offsets", true);
    rn_json_bool(json, "use_regex", false);
    rn_json_end(json);
}

static void write_replace(rn_json *json, const char *key, const char *kind, const char *what,
                          const char *by) {
    write_type(json, key, "Replace");
    write_pattern(json, kind, what);
    rn_json_string(json, "content", by);
    rn_json_end(json);
}

// Converters fill the vocabulary up to the embedding's rows.
static bool is_filler(const rn_spm_piece *piece) {
    return piece->kind == RN_SPM_UNUSED && rn_str_starts(piece->text, RN_STR("[PAD"));
}

static void write_vocab(gguf_vocab *v) {
    rn_json_object(&v->json, "vocab");
    for (uint32_t i = 0; i < v->count; i++) {
        if (is_filler(&v->pieces[i])) continue;
        rn_json_key(&v->json, v->pieces[i].text);
        rn_json_u64(&v->json, NULL, i);
    }
    rn_json_end(&v->json);
}

static void open_model(gguf_vocab *v, bool byte_fallback, bool ignore_merges) {
    rn_json *json = &v->json;
    rn_str unknown = find_token(v, "unknown_token_id");
    write_type(json, "model", "BPE");
    rn_json_null(json, "dropout");
    if (byte_fallback && unknown.bytes)
        rn_json_text(json, "unk_token", unknown);
    else
        rn_json_null(json, "unk_token");
    rn_json_null(json, "continuing_subword_prefix");
    rn_json_null(json, "end_of_word_suffix");
    rn_json_bool(json, "fuse_unk", byte_fallback);
    rn_json_bool(json, "byte_fallback", byte_fallback);
    rn_json_bool(json, "ignore_merges", ignore_merges);
    write_vocab(v);
}

// The merges as they stand, and the end of the model.
static rn_status write_merges(gguf_vocab *v, const rn_metadata *merges) {
    rn_metadata element;
    uint64_t at = 0;
    rn_json_array(&v->json, "merges");
    while (rn_metadata_next(merges, &at, &element)) {
        if (element.kind != RN_METADATA_TEXT)
            return rn_fail(RN_CORRUPT, "tokenizer.ggml.merges is no list of texts");
        rn_json_text(&v->json, NULL, element.text);
    }
    rn_json_end(&v->json);
    rn_json_end(&v->json);
    return RN_OK;
}

// ---- byte-level BPE -----------------------------------------------------------------------------

static rn_status write_bpe(gguf_vocab *v) {
    rn_json *json = &v->json;
    rn_str name = find_text(v->gguf, "pre");
    const rn_gguf_pre *pre = rn_gguf_pre_find(name.bytes ? name : RN_STR("default"));
    const rn_metadata *merges = find_list(v->gguf, "merges");
    if (!pre)
        return rn_fail(RN_UNSUPPORTED, "pre-tokenizer \"%.*s\" is not known", RN_STR_ARG(name));
    if (!merges) return rn_fail(RN_CORRUPT, "tokenizer.ggml.merges is missing");
    rn_json_null(json, "normalizer");
    write_type(json, "pre_tokenizer", "Sequence");
    rn_json_array(json, "pretokenizers");
    for (size_t i = 0; i < 6 && pre->expressions[i]; i++) {
        write_type(json, NULL, "Split");
        write_pattern(json, "Regex", pre->expressions[i]);
        rn_json_string(json, "behavior", "Isolated");
        rn_json_bool(json, "invert", false);
        rn_json_end(json);
    }
    write_byte_level(json, NULL);
    rn_json_end(json);
    rn_json_end(json);
    write_post_processor(v, pre->add_begin, false);
    write_byte_level(json, "decoder");
    open_model(v, false, pre->ignore_merges);
    return write_merges(v, merges);
}

// ---- SentencePiece ------------------------------------------------------------------------------

typedef struct cut {
    uint32_t left, right, into;
    uint32_t left_bytes;
    float score; // of the whole
} cut;

// The highest score; in files that have lost theirs (all are equal) the lowest id, for ids are in
// the order of scores. Then the longer first half, as in transformers.
static int compare_cuts(const void *left, const void *right) {
    const cut *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->into != b->into) return a->into < b->into ? -1 : 1;
    return a->left_bytes > b->left_bytes ? -1 : a->left_bytes < b->left_bytes;
}

// Every way to cut the token into two.
static rn_status cut_piece(const gguf_vocab *v, uint32_t id, rn_buffer *cuts) {
    rn_str text = v->pieces[id].text;
    if (v->pieces[id].kind != RN_SPM_NORMAL) return RN_OK;
    for (size_t at = 1; at < text.bytes; at++) {
        uint64_t left, right;
        if (((unsigned char)text.data[at] & 0xC0) == 0x80) continue; // within a character
        if (!rn_map_find(&v->ids, (rn_str){text.data, at}, &left) ||
            !rn_map_find(&v->ids, (rn_str){text.data + at, text.bytes - at}, &right))
            continue;
        cut one = {(uint32_t)left, (uint32_t)right, id, (uint32_t)at, v->pieces[id].score};
        RN_TRY(rn_buffer_append(cuts, &one, sizeof one));
    }
    return RN_OK;
}

static rn_status write_cuts(gguf_vocab *v, rn_buffer *cuts) {
    for (uint32_t i = 0; i < v->count; i++)
        RN_TRY(rn_map_add(&v->ids, v->pieces[i].text, i, NULL));
    for (uint32_t i = 0; i < v->count; i++)
        RN_TRY(cut_piece(v, i, cuts));
    size_t count = cuts->bytes / sizeof(cut);
    cut *list = (cut *)(void *)cuts->data;
    RN_TRY(rn_sort(list, count, sizeof *list, compare_cuts));
    rn_json_array(&v->json, "merges");
    for (size_t i = 0; i < count; i++) {
        rn_json_array(&v->json, NULL);
        rn_json_text(&v->json, NULL, v->pieces[list[i].left].text);
        rn_json_text(&v->json, NULL, v->pieces[list[i].right].text);
        rn_json_end(&v->json);
    }
    rn_json_end(&v->json);
    return RN_OK;
}

// Blanks that U+2581 stands for, bytes, and without the blank in front.
static void write_blank_decoder(rn_json *json, bool prefix) {
    write_type(json, "decoder", "Sequence");
    rn_json_array(json, "decoders");
    write_replace(json, NULL, "String", RN_BLANK, " ");
    write_type(json, NULL, "ByteFallback");
    rn_json_end(json);
    write_type(json, NULL, "Fuse");
    rn_json_end(json);
    if (prefix) {
        write_type(json, NULL, "Strip");
        rn_json_string(json, "content", " ");
        rn_json_u64(json, "start", 1);
        rn_json_u64(json, "stop", 0);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

// Blanks at the ends and beside blanks go where the file says so, one is put in front, all are
// written as U+2581.
static void write_normalizers(gguf_vocab *v, bool prefix) {
    static const char *const squeezed[][2] = {{"\\A +", ""}, {" +\\z", ""}, {" {2,}", " "}};
    rn_json *json = &v->json;
    bool squeezes = find_bool(v->gguf, "remove_extra_whitespaces", false);
    write_type(json, "normalizer", "Sequence");
    rn_json_array(json, "normalizers");
    for (size_t i = 0; squeezes && i < 3; i++)
        write_replace(json, NULL, "Regex", squeezed[i][0], squeezed[i][1]);
    if (prefix) {
        write_type(json, NULL, "Prepend");
        rn_json_string(json, "prepend", RN_BLANK);
        rn_json_end(json);
    }
    write_replace(json, NULL, "String", " ", RN_BLANK);
    rn_json_end(json);
    rn_json_end(json);
}

static rn_status write_spm(gguf_vocab *v) {
    enum { CUTS_CAP_BYTES = 256 << 20 };
    rn_json *json = &v->json;
    bool prefix = find_bool(v->gguf, "add_space_prefix", true);
    rn_buffer cuts;
    write_normalizers(v, prefix);
    rn_json_null(json, "pre_tokenizer");
    write_post_processor(v, true, false);
    write_blank_decoder(json, prefix);
    open_model(v, true, false);
    rn_buffer_init(&cuts, RN_HOST_IO, CUTS_CAP_BYTES);
    rn_status s = write_cuts(v, &cuts);
    rn_buffer_free(&cuts);
    rn_json_end(json);
    return s;
}

// ---- BPE over characters ------------------------------------------------------------------------

static rn_status write_characters(gguf_vocab *v) {
    const rn_metadata *merges = find_list(v->gguf, "merges");
    if (!merges) return rn_fail(RN_CORRUPT, "tokenizer.ggml.merges is missing");
    write_replace(&v->json, "normalizer", "String", " ", RN_BLANK);
    rn_json_null(&v->json, "pre_tokenizer");
    write_post_processor(v, true, false);
    write_blank_decoder(&v->json, false);
    open_model(v, true, false);
    return write_merges(v, merges);
}

// ---- unigrams -----------------------------------------------------------------------------------

static rn_status write_charsmap(gguf_vocab *v, rn_str charsmap) {
    void *text;
    size_t bytes = (charsmap.bytes + 2) / 3 * 4;
    RN_TRY(rn_arena_alloc(&v->arena, bytes + 1, &text));
    rn_base64_encode(charsmap, text);
    write_type(&v->json, NULL, "Precompiled");
    rn_json_text(&v->json, "precompiled_charsmap", (rn_str){text, bytes});
    rn_json_end(&v->json);
    return RN_OK;
}

static void write_metaspace(rn_json *json, const char *key, bool prefix) {
    write_type(json, key, "Metaspace");
    rn_json_string(json, "replacement", RN_BLANK);
    rn_json_string(json, "prepend_scheme", prefix ? "always" : "never");
    rn_json_bool(json, "split", true);
    rn_json_end(json);
}

static rn_status write_unigrams(gguf_vocab *v) {
    rn_json *json = &v->json;
    const rn_metadata *charsmap = find_list(v->gguf, "precompiled_charsmap");
    bool squeezes = find_bool(v->gguf, "remove_extra_whitespaces", false);
    bool prefix = find_bool(v->gguf, "add_space_prefix", true);
    write_type(json, "normalizer", "Sequence");
    rn_json_array(json, "normalizers");
    if (charsmap && charsmap->raw.bytes) RN_TRY(write_charsmap(v, charsmap->raw));
    if (squeezes) write_replace(json, NULL, "Regex", " {2,}", " ");
    rn_json_end(json);
    rn_json_end(json);
    write_type(json, "pre_tokenizer", "Sequence");
    rn_json_array(json, "pretokenizers");
    if (squeezes) {
        write_type(json, NULL, "WhitespaceSplit");
        rn_json_end(json);
    }
    write_metaspace(json, NULL, prefix);
    rn_json_end(json);
    rn_json_end(json);
    write_post_processor(v, false, true);
    write_metaspace(json, "decoder", prefix);
    write_type(json, "model", "Unigram");
    rn_json_u64(json, "unk_id", find_id(v, "unknown_token_id", 2));
    rn_json_bool(json, "byte_fallback", false);
    rn_json_array(json, "vocab");
    for (uint32_t i = 0; i < v->count; i++) {
        rn_json_array(json, NULL);
        rn_json_text(json, NULL, v->pieces[i].text);
        rn_json_f64(json, NULL, (double)v->pieces[i].score);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
    return RN_OK;
}

// ---- WordPiece ----------------------------------------------------------------------------------

// "▁word" begins a word, what has no blank in front goes on. Older converters left "[...]" alone.
static void write_word(rn_json *json, const rn_spm_piece *piece, uint32_t id) {
    rn_str text = piece->text, blank = RN_STR(RN_BLANK);
    char word[1024];
    bool named =
        rn_str_starts(text, RN_STR("[")) && rn_str_ends(text, RN_STR("]")) && text.bytes > 2;
    bool whole = piece->kind != RN_SPM_NORMAL || named || text.bytes + 3 > sizeof word;
    if (whole)
        rn_json_key(json, text);
    else if (rn_str_starts(text, blank))
        rn_json_key(json, (rn_str){text.data + blank.bytes, text.bytes - blank.bytes});
    else {
        int bytes = snprintf(word, sizeof word, "##%.*s", RN_STR_ARG(text));
        rn_json_key(json, (rn_str){word, (size_t)bytes});
    }
    rn_json_u64(json, NULL, id);
}

static rn_status write_words(gguf_vocab *v) {
    rn_json *json = &v->json;
    bool lowercase = find_bool(v->gguf, "normalizer.lowercase", true);
    write_type(json, "normalizer", "BertNormalizer");
    rn_json_bool(json, "clean_text", true);
    rn_json_bool(json, "handle_chinese_chars", true);
    rn_json_bool(json, "strip_accents", find_bool(v->gguf, "normalizer.strip_accents", lowercase));
    rn_json_bool(json, "lowercase", lowercase);
    rn_json_end(json);
    write_type(json, "pre_tokenizer", "BertPreTokenizer");
    rn_json_end(json);
    write_post_processor(v, true, true);
    write_type(json, "decoder", "WordPiece");
    rn_json_string(json, "prefix", "##");
    rn_json_bool(json, "cleanup", true);
    rn_json_end(json);
    write_type(json, "model", "WordPiece");
    rn_json_text(json, "unk_token", text_of(v, find_id(v, "unknown_token_id", 100)));
    rn_json_string(json, "continuing_subword_prefix", "##");
    rn_json_u64(json, "max_input_chars_per_word", RN_BERT_WORD_CHARACTERS);
    rn_json_object(json, "vocab");
    for (uint32_t i = 0; i < v->count; i++)
        if (!is_filler(&v->pieces[i])) write_word(json, &v->pieces[i], i);
    rn_json_end(json);
    rn_json_end(json);
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status find_kind(rn_str model, vocab_kind *out) {
    static const char *const names[KINDS] = {"gpt2", "llama", "t5", "bert", "gemma4"};
    for (vocab_kind k = 0; k < KINDS; k++) {
        *out = k;
        if (rn_str_equal(model, rn_str_from(names[k]))) return RN_OK;
    }
    return rn_fail(RN_UNSUPPORTED, "a vocabulary of kind '%.*s' is not written as tokenizer.json",
                   RN_STR_ARG(model));
}

static rn_status write_tokenizer(gguf_vocab *v, rn_buffer *out) {
    static rn_status (*const writers[KINDS])(gguf_vocab *) = {write_bpe, write_spm, write_unigrams,
                                                              write_words, write_characters};
    rn_json_begin(&v->json, rn_buffer_sink(out), false);
    rn_json_object(&v->json, NULL);
    rn_json_string(&v->json, "version", "1.0");
    rn_json_null(&v->json, "truncation");
    rn_json_null(&v->json, "padding");
    write_added(v);
    RN_TRY(writers[v->kind](v));
    rn_json_end(&v->json);
    return rn_json_finish(&v->json);
}

static rn_status write_config(gguf_vocab *v, rn_buffer *out) {
    static const char *const names[][2] = {{"bos_token", "bos_token_id"},
                                           {"eos_token", "eos_token_id"},
                                           {"unk_token", "unknown_token_id"},
                                           {"pad_token", "padding_token_id"},
                                           {"mask_token", "mask_token_id"}};
    bool bpe = v->kind == BPE, words = v->kind == WORDPIECE;
    rn_json *json = &v->json;
    rn_str pre = find_text(v->gguf, "pre");
    const rn_gguf_pre *known = rn_gguf_pre_find(pre.bytes ? pre : RN_STR("default"));
    bool begins = bpe ? known && known->add_begin : v->kind != UNIGRAM;
    rn_json_begin(json, rn_buffer_sink(out), true);
    rn_json_object(json, NULL);
    rn_json_string(json, "tokenizer_class", "PreTrainedTokenizerFast");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rn_str token = find_token(v, names[i][1]);
        bool around = words && i < 2; // these are cls_token and sep_token
        if (token.bytes && !around) rn_json_text(json, names[i][0], token);
    }
    if (words) {
        rn_json_text(json, "cls_token", text_of(v, begin_id(v)));
        rn_json_text(json, "sep_token", text_of(v, end_id(v)));
    } else {
        rn_json_bool(json, "add_bos_token",
                     find_bool(v->gguf, "add_bos_token", begins) &&
                         find_token(v, "bos_token_id").bytes > 0);
        rn_json_bool(json, "add_eos_token",
                     find_bool(v->gguf, "add_eos_token", v->kind == UNIGRAM));
    }
    rn_json_bool(json, "clean_up_tokenization_spaces", false);
    rn_json_end(json);
    return rn_json_finish(json);
}

rn_status rn_vocab_to_json(const rn_checkpoint *gguf, rn_buffer *out_tokenizer,
                           rn_buffer *out_config) {
    const rn_metadata *tokens = find_list(gguf, "tokens");
    rn_str model = find_text(gguf, "model");
    gguf_vocab v = {.gguf = gguf};
    if (!tokens || !model.bytes) return rn_fail(RN_NOT_FOUND, "the file has no vocabulary");
    rn_arena_init(&v.arena, RN_HOST_IO, 0);
    rn_map_init(&v.ids, RN_HOST_IO);
    rn_status s = find_kind(model, &v.kind);
    if (s == RN_OK) s = read_pieces(&v, tokens);
    if (s == RN_OK) s = write_tokenizer(&v, out_tokenizer);
    if (s == RN_OK) s = write_config(&v, out_config);
    rn_map_free(&v.ids);
    rn_arena_free_all(&v.arena);
    return s;
}
