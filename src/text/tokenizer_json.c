// tokenizer_json.c — Hugging Face's tokenizer.json. The first walk notes where its parts stand,
// since their order is free; then they are read in the order in which they need each other.
#include "text/tokenizer_json.h"

#include "base/checked.h"
#include "memory/account.h"

#include <locale.h>
#include <stdlib.h>

// ---- where everything stands ------------------------------------------------------------

static rn_status note_section(rn_json_reader *reader, rn_str text, rn_json_section *out) {
    size_t start = reader->at;
    RN_TRY(rn_json_skip(reader));
    *out = (rn_json_section){{text.data + start, reader->at - start}, start};
    return RN_OK;
}

static rn_status keep(rn_tokenizer_json *json, const rn_json_item *item, rn_str *out) {
    void *copy;
    if (item->kind == RN_JSON_NULL) return RN_OK;
    if (item->kind != RN_JSON_STRING) return rn_fail(RN_CORRUPT, "a string is expected");
    RN_TRY(rn_arena_copy(&json->tokenizer->arena, item->text.data, item->text.bytes, &copy));
    *out = (rn_str){copy, item->text.bytes};
    return RN_OK;
}

static bool is_key(rn_str key, const char *name) {
    return rn_str_equal(key, rn_str_from(name));
}

static rn_status take_type(rn_tokenizer_json *json, rn_str type) {
    json->is_unigram = is_key(type, "Unigram");
    json->is_wordpiece = is_key(type, "WordPiece");
    if (json->is_unigram || json->is_wordpiece || is_key(type, "BPE")) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "a model of type \"%.*s\" is not known", RN_STR_ARG(type));
}

// A value of the model that is not a list.
static rn_status take_switch(rn_tokenizer_json *json, rn_str key, const rn_json_item *item) {
    rn_bpe *bpe = &json->tokenizer->bpe;
    bool yes = item->kind == RN_JSON_TRUE, nothing = item->kind == RN_JSON_NULL;
    uint64_t id;
    if (is_key(key, "type")) return take_type(json, item->text);
    if (is_key(key, "unk_token")) return keep(json, item, &json->unknown_token);
    if (is_key(key, "end_of_word_suffix")) return keep(json, item, &json->suffix);
    if (is_key(key, "fuse_unk")) bpe->fuse_unknown = yes;
    if (is_key(key, "byte_fallback")) bpe->byte_fallback = yes;
    if (is_key(key, "ignore_merges")) bpe->ignore_merges = yes;
    if (is_key(key, "continuing_subword_prefix")) return keep(json, item, &json->next_prefix);
    if (is_key(key, "max_input_chars_per_word")) {
        json->is_wordpiece = true; // older files say no type
        return rn_json_u64_of(item, &json->most_characters);
    }
    if (is_key(key, "dropout") && !nothing && !is_key(item->text, "0.0") &&
        !is_key(item->text, "0"))
        return rn_fail(RN_UNSUPPORTED, "dropout is for training");
    if (is_key(key, "unk_id") && !nothing) {
        json->is_unigram = true; // older files say no type
        RN_TRY(rn_json_u64_of(item, &id));
        json->unknown_id = (uint32_t)rn_min_u64(id, RN_NO_TOKEN);
    }
    return RN_OK;
}

static rn_status read_switch(rn_tokenizer_json *json, rn_json_reader *reader, rn_str key) {
    rn_json_item item;
    int depth = reader->depth;
    RN_TRY(rn_json_next(reader, &item));
    if (item.kind != RN_JSON_OBJECT && item.kind != RN_JSON_ARRAY)
        return take_switch(json, key, &item);
    while (reader->depth > depth)
        RN_TRY(rn_json_next(reader, &item));
    return RN_OK;
}

static rn_status note_model(rn_tokenizer_json *json, rn_json_reader *reader, rn_str text) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        char name[32];
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        size_t bytes = rn_min_u64(item.text.bytes, sizeof name);
        memcpy(name, item.text.data, bytes);
        rn_str key = {name, bytes};
        if (is_key(key, "vocab")) {
            RN_TRY(note_section(reader, text, &json->vocab));
        } else if (is_key(key, "merges")) {
            RN_TRY(note_section(reader, text, &json->merges));
        } else {
            RN_TRY(read_switch(json, reader, key));
        }
    }
}

static rn_status note_sections(rn_tokenizer_json *json, rn_json_reader *reader, rn_str text) {
    const struct {
        const char *name;
        rn_json_section *section;
    } parts[] = {{"added_tokens", &json->added},
                 {"normalizer", &json->normalizer},
                 {"pre_tokenizer", &json->pre_tokenizer},
                 {"decoder", &json->decoder},
                 {"post_processor", &json->post_processor}};
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        rn_json_section ignored, *section = &ignored;
        bool is_model = is_key(item.text, "model");
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (is_key(item.text, parts[i].name)) section = parts[i].section;
        RN_TRY(is_model ? note_model(json, reader, text) : note_section(reader, text, section));
    }
    return rn_json_expect(reader, RN_JSON_END, NULL);
}

// ---- lists ------------------------------------------------------------------------------

typedef rn_status (*section_reader)(rn_tokenizer_json *json, rn_json_reader *reader);

static rn_status read_section(rn_tokenizer_json *json, rn_json_section section,
                              section_reader read) {
    rn_json_reader reader;
    rn_json_reader_init(&reader, section.text, json->tokenizer->from);
    reader.base = section.base;
    rn_status s = read(json, &reader);
    rn_json_reader_free(&reader);
    return s;
}

static rn_status read_vocab(rn_tokenizer_json *json, rn_json_reader *reader) {
    return rn_tokenizer_read_vocab(json->tokenizer, reader);
}

// How many merges there are, or a few more: two quotes each, or four.
static size_t count_merges(rn_str text) {
    size_t quotes = 0, at = 0;
    for (size_t i = 0; i < text.bytes; i++)
        quotes += text.data[i] == '"';
    while (at < text.bytes && (text.data[at] == ' ' || text.data[at] == '\n'))
        at++;
    for (at++; at < text.bytes && text.data[at] != '"'; at++)
        if (text.data[at] == '[') return quotes / 4;
    return quotes / 2;
}

// ["left", "right"], whose bracket has been read.
static rn_status read_pair(rn_tokenizer_json *json, rn_json_reader *reader, uint32_t rank) {
    rn_json_item item;
    char left[4096];
    RN_TRY(rn_json_expect(reader, RN_JSON_STRING, &item));
    size_t bytes = item.text.bytes;
    if (bytes > sizeof left) return rn_fail(RN_CORRUPT, "merge %u is too long", rank);
    memcpy(left, item.text.data, bytes);
    RN_TRY(rn_json_expect(reader, RN_JSON_STRING, &item));
    RN_TRY(rn_tokenizer_merge(json->tokenizer, (rn_str){left, bytes}, item.text, rank));
    return rn_json_expect(reader, RN_JSON_ARRAY_END, NULL);
}

static rn_status read_merges(rn_tokenizer_json *json, rn_json_reader *reader) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (uint32_t rank = 0;; rank++) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind == RN_JSON_ARRAY)
            RN_TRY(read_pair(json, reader, rank));
        else if (item.kind == RN_JSON_STRING)
            RN_TRY(rn_tokenizer_merge_line(json->tokenizer, item.text, rank));
        else
            return rn_fail(RN_CORRUPT, "merge %u is no pair", rank);
    }
}

static rn_status read_added_token(rn_tokenizer_json *json, rn_json_reader *reader) {
    rn_added_token token = {.id = RN_NO_TOKEN};
    rn_json_item item;
    rn_json_item key;
    uint64_t id = RN_NO_TOKEN;
    bool *const flags[] = {&token.special, &token.lstrip, &token.rstrip, &token.single_word,
                           &token.normalized};
    static const char *const names[] = {"special", "lstrip", "rstrip", "single_word", "normalized"};
    for (;;) {
        RN_TRY(rn_json_next(reader, &key));
        if (key.kind == RN_JSON_OBJECT_END) break;
        int flag = -1;
        for (int i = 0; i < 5; i++)
            if (is_key(key.text, names[i])) flag = i;
        bool is_id = is_key(key.text, "id"), is_content = is_key(key.text, "content");
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT || item.kind == RN_JSON_ARRAY)
            return rn_fail(RN_CORRUPT, "an added token is damaged");
        if (flag >= 0) *flags[flag] = item.kind == RN_JSON_TRUE;
        if (is_id) RN_TRY(rn_json_u64_of(&item, &id));
        if (is_content) RN_TRY(keep(json, &item, &token.content));
    }
    if (id >= RN_VOCAB_MAX) return rn_fail(RN_CORRUPT, "an added token has no id that can be");
    token.id = (uint32_t)id;
    return rn_tokenizer_add_token(json->tokenizer, token);
}

static rn_status read_added(rn_tokenizer_json *json, rn_json_reader *reader) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT) return rn_fail(RN_CORRUPT, "an added token is damaged");
        RN_TRY(read_added_token(json, reader));
    }
}

// ---- BPE --------------------------------------------------------------------------------

static rn_status take_suffix(rn_tokenizer_json *json) {
    rn_tokenizer *tokenizer = json->tokenizer;
    rn_bpe *bpe = &tokenizer->bpe;
    if (json->suffix.bytes == 0) return RN_OK;
    if (!bpe->by_bytes || json->suffix.bytes > sizeof bpe->suffix)
        return rn_fail(RN_UNSUPPORTED, "end_of_word_suffix \"%.*s\" without a ByteLevel step",
                       RN_STR_ARG(json->suffix));
    memcpy(bpe->suffix, json->suffix.data, json->suffix.bytes);
    bpe->suffix_bytes = json->suffix.bytes;
    tokenizer->show_suffix = json->suffix;
    tokenizer->strip_last = true;
    return RN_OK;
}

static rn_status load_bpe(rn_tokenizer_json *json) {
    rn_tokenizer *tokenizer = json->tokenizer;
    rn_bpe *bpe = &tokenizer->bpe;
    if (json->next_prefix.bytes)
        return rn_fail(RN_UNSUPPORTED, "continuing_subword_prefix is not known");
    tokenizer->info.kind = bpe->by_bytes ? "byte-level BPE" : "SentencePiece BPE";
    RN_TRY(take_suffix(json));
    RN_TRY(read_section(json, json->vocab, read_vocab));
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    RN_TRY(rn_merges_init(&bpe->merges, tokenizer->from, count_merges(json->merges.text),
                          tokenizer->vocab.seed));
    if (json->merges.text.bytes) RN_TRY(read_section(json, json->merges, read_merges));
    return json->added.text.bytes ? read_section(json, json->added, read_added) : RN_OK;
}

// ---- WordPiece ---------------------------------------------------------------------------

static rn_status load_wordpiece(rn_tokenizer_json *json) {
    rn_tokenizer *tokenizer = json->tokenizer;
    if (tokenizer->bpe.by_bytes)
        return rn_fail(RN_UNSUPPORTED, "WordPiece behind a ByteLevel step");
    rn_tokenizer_be_wordpiece(tokenizer, RN_STR(""), json->next_prefix);
    tokenizer->wordpiece.most_characters = (uint32_t)rn_min_u64(json->most_characters, UINT32_MAX);
    RN_TRY(read_section(json, json->vocab, read_vocab));
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    return json->added.text.bytes ? read_section(json, json->added, read_added) : RN_OK;
}

// ---- Unigram ----------------------------------------------------------------------------

typedef struct piece_list {
    rn_spm_piece *pieces; // (capacity)
    size_t count, capacity;
} piece_list;

// Whatever the program's locale writes for a decimal point.
static rn_status read_score(const rn_json_item *item, float *out) {
    char digits[64];
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) return rn_fail(RN_NO_MEMORY, "no memory for a locale");
    size_t bytes = rn_min_u64(item->text.bytes, sizeof digits - 1); // more would change nothing
    memcpy(digits, item->text.data, bytes);
    digits[bytes] = 0;
    *out = strtof_l(digits, NULL, plain);
    freelocale(plain);
    return RN_OK;
}

// [["text", score], ...]: texts go to the vocabulary, scores to the arena.
static rn_status read_pieces(rn_tokenizer_json *json, rn_json_reader *reader) {
    rn_json_item item;
    uint64_t id = 0;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (;; id++) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_ARRAY) return rn_fail(RN_CORRUPT, "a piece is no pair");
        RN_TRY(rn_json_expect(reader, RN_JSON_STRING, &item));
        RN_TRY(rn_vocab_put(&json->tokenizer->vocab, id, item.text, 0));
        RN_TRY(rn_json_expect(reader, RN_JSON_NUMBER, NULL));
        RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY_END, NULL));
    }
}

// The same walk once more, now that the number of pieces is known and special ones are marked.
static rn_status fill_pieces(const rn_tokenizer_json *json, rn_json_reader *reader,
                             piece_list *list) {
    const rn_vocab *vocab = &json->tokenizer->vocab;
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
    for (uint32_t id = 0; id < list->capacity; id++) {
        rn_spm_piece *piece = &list->pieces[id];
        RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY, NULL));
        RN_TRY(rn_json_expect(reader, RN_JSON_STRING, NULL));
        RN_TRY(rn_json_expect(reader, RN_JSON_NUMBER, &item));
        RN_TRY(read_score(&item, &piece->score));
        RN_TRY(rn_json_expect(reader, RN_JSON_ARRAY_END, NULL));
        piece->text = rn_vocab_text(vocab, id);
        piece->kind = id == json->unknown_id                ? RN_SPM_UNKNOWN
                      : vocab->flags[id] & RN_TOKEN_SPECIAL ? RN_SPM_CONTROL
                                                            : RN_SPM_NORMAL;
    }
    return RN_OK;
}

static rn_status create_spm(rn_tokenizer_json *json, piece_list *list) {
    rn_tokenizer *tokenizer = json->tokenizer;
    rn_json_reader reader;
    rn_json_reader_init(&reader, json->vocab.text, tokenizer->from);
    reader.base = json->vocab.base;
    rn_status s = fill_pieces(json, &reader, list);
    rn_json_reader_free(&reader);
    if (s != RN_OK) return s;
    rn_spm_options options = {.algorithm = RN_SPM_UNIGRAM,
                              .byte_fallback = tokenizer->bpe.byte_fallback,
                              .add_dummy_prefix =
                                  json->has_metaspace && tokenizer->spm_prefix != RN_PREFIX_NEVER,
                              .remove_extra_whitespaces = json->squeeze_blanks,
                              .escape_whitespaces = json->has_metaspace,
                              .charsmap = json->charsmap,
                              .unknown = json->unknown_id,
                              .begin = RN_NO_TOKEN,
                              .end = RN_NO_TOKEN,
                              .pad = RN_NO_TOKEN};
    return rn_spm_create(&options, list->pieces, list->capacity, &tokenizer->spm);
}

static rn_status load_unigram(rn_tokenizer_json *json) {
    rn_tokenizer *tokenizer = json->tokenizer;
    void *block;
    tokenizer->info.kind = "SentencePiece unigram";
    RN_TRY(read_section(json, json->vocab, read_pieces));
    piece_list list = {.capacity = tokenizer->vocab.count};
    RN_TRY(rn_vocab_seal(&tokenizer->vocab));
    if (json->added.text.bytes) RN_TRY(read_section(json, json->added, read_added));
    RN_TRY(rn_alloc_zeroed(tokenizer->from, list.capacity, sizeof *list.pieces, &block));
    list.pieces = block;
    rn_status s = create_spm(json, &list);
    rn_free(tokenizer->from, list.pieces, list.capacity * sizeof *list.pieces);
    return s;
}

// ---- all of it --------------------------------------------------------------------------

// Tokens by their names, now that all are there.
static uint32_t find_name(rn_tokenizer *tokenizer, rn_str name) {
    for (size_t i = 0; i < tokenizer->added.count; i++)
        if (rn_str_equal(tokenizer->added.tokens[i].content, name))
            return tokenizer->added.tokens[i].id;
    for (size_t i = 0; i < tokenizer->added_normalized.count; i++)
        if (rn_str_equal(tokenizer->added_normalized.tokens[i].content, name))
            return tokenizer->added_normalized.tokens[i].id;
    return rn_vocab_find(&tokenizer->vocab, name);
}

static rn_status put_names(rn_tokenizer *tokenizer, const rn_str *names, size_t name_count,
                           uint32_t *ids, size_t *count) {
    for (size_t i = 0; i < name_count; i++) {
        uint32_t id = find_name(tokenizer, names[i]);
        if (id == RN_NO_TOKEN)
            return rn_fail(RN_CORRUPT, "the post-processor names \"%.*s\", which is no token",
                           RN_STR_ARG(names[i]));
        RN_TRY(rn_tokenizer_put_around(ids, count, id));
    }
    return RN_OK;
}

static rn_status take_special(rn_tokenizer_json *json) {
    rn_tokenizer *tokenizer = json->tokenizer;
    const rn_json_step *around = &json->around;
    if (json->unknown_token.bytes)
        tokenizer->bpe.unknown = find_name(tokenizer, json->unknown_token);
    else if (json->is_unigram)
        tokenizer->bpe.unknown = json->unknown_id;
    tokenizer->info.unknown = tokenizer->wordpiece.unknown = tokenizer->bpe.unknown;
    RN_TRY(put_names(tokenizer, around->before, around->before_count, tokenizer->before,
                     &tokenizer->before_count));
    RN_TRY(put_names(tokenizer, around->after, around->after_count, tokenizer->after,
                     &tokenizer->after_count));
    RN_TRY(put_names(tokenizer, around->between, around->between_count, tokenizer->between,
                     &tokenizer->between_count));
    if (tokenizer->before_count) tokenizer->info.begin = tokenizer->before[0];
    if (tokenizer->after_count) tokenizer->info.end = tokenizer->after[0];
    return RN_OK;
}

rn_status rn_load_tokenizer_json(rn_tokenizer *tokenizer, rn_str text) {
    rn_tokenizer_json json = {.tokenizer = tokenizer,
                              .unknown_id = RN_NO_TOKEN,
                              .most_characters = RN_BERT_WORD_CHARACTERS};
    rn_json_reader reader;
    rn_json_reader_init(&reader, text, tokenizer->from);
    rn_status s = note_sections(&json, &reader, text);
    rn_json_reader_free(&reader);
    if (s != RN_OK) return s;
    if (json.vocab.text.bytes == 0) return rn_fail(RN_CORRUPT, "there is no vocabulary in it");
    RN_TRY(rn_tokenizer_json_steps(&json));
    if (json.is_wordpiece)
        RN_TRY(load_wordpiece(&json));
    else
        RN_TRY(json.is_unigram ? load_unigram(&json) : load_bpe(&json));
    return take_special(&json);
}
