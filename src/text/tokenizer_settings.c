// tokenizer_settings.c — tokenizer_config.json and special_tokens_map.json: which tokens begin and
// end a text, whether they are put there, and tokens that the tokenizer's own file does not have.
#include "text/tokenizer_parts.h"

#include "io/json_read.h"

typedef struct settings_reader {
    rn_json_reader reader;
    rn_tokenizer *tokenizer;
    rn_tokenizer_settings *settings;
    bool with_tokens;
} settings_reader;

static rn_status keep(settings_reader *r, rn_str text, rn_str *out) {
    void *copy;
    RN_TRY(rn_arena_copy(&r->tokenizer->arena, text.data, text.bytes, &copy));
    *out = (rn_str){copy, text.bytes};
    return RN_OK;
}

// An object's keys and plain values; deeper ones are passed over.
typedef rn_status (*field_taker)(settings_reader *r, rn_str key, const rn_json_item *item,
                                 void *to);
static rn_status read_fields(settings_reader *r, field_taker take, void *to) {
    for (;;) {
        rn_json_item key, item;
        char name[24];
        RN_TRY(rn_json_next(&r->reader, &key));
        if (key.kind == RN_JSON_OBJECT_END) return RN_OK;
        size_t bytes = key.text.bytes < sizeof name ? key.text.bytes : sizeof name;
        memcpy(name, key.text.data, bytes); // the reader's text goes with the next one
        int depth = r->reader.depth;
        RN_TRY(rn_json_next(&r->reader, &item));
        RN_TRY(take(r, (rn_str){name, bytes}, &item, to));
        while (r->reader.depth > depth)
            RN_TRY(rn_json_next(&r->reader, &item));
    }
}

static rn_status take_token_field(settings_reader *r, rn_str key, const rn_json_item *item,
                                  void *to) {
    rn_added_token *token = to;
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"special", &token->special},
                 {"lstrip", &token->lstrip},
                 {"rstrip", &token->rstrip},
                 {"single_word", &token->single_word},
                 {"normalized", &token->normalized}};
    if (rn_str_equal(key, RN_STR("content")) && item->kind == RN_JSON_STRING)
        return keep(r, item->text, &token->content);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (rn_str_equal(key, rn_str_from(flags[i].name)))
            *flags[i].flag = item->kind == RN_JSON_TRUE;
    return RN_OK;
}

// {"128000": {"content": "<|begin_of_text|>", ...}, ...}
static rn_status take_added(settings_reader *r, rn_str key, const rn_json_item *item, void *to) {
    (void)to;
    rn_added_token token = {0};
    rn_json_item number = {.kind = RN_JSON_NUMBER, .text = key, .offset = item->offset};
    uint64_t id;
    if (item->kind != RN_JSON_OBJECT) return RN_OK;
    RN_TRY(rn_json_u64_of(&number, &id));
    if (id >= RN_VOCAB_MAX)
        return rn_fail(RN_CORRUPT, "token id %llu is beyond %u", (unsigned long long)id,
                       RN_VOCAB_MAX);
    RN_TRY(read_fields(r, take_token_field, &token));
    token.id = (uint32_t)id;
    return rn_tokenizer_add_token(r->tokenizer, token);
}

// "<s>" or {"content": "<s>", ...} or null.
static rn_status take_name(settings_reader *r, const rn_json_item *item, rn_str *out) {
    rn_added_token token = {0};
    if (item->kind == RN_JSON_STRING) return keep(r, item->text, out);
    if (item->kind != RN_JSON_OBJECT) return RN_OK;
    RN_TRY(read_fields(r, take_token_field, &token));
    *out = token.content;
    return RN_OK;
}

static rn_status take_setting(settings_reader *r, rn_str key, const rn_json_item *item, void *to) {
    (void)to;
    rn_tokenizer_settings *settings = r->settings;
    const struct {
        const char *name;
        rn_str *text;
        int *flag;
    } fields[] = {{"tokenizer_class", &settings->class_name, NULL},
                  {"bos_token", &settings->begin, NULL},
                  {"eos_token", &settings->end, NULL},
                  {"unk_token", &settings->unknown, NULL},
                  {"pad_token", &settings->pad, NULL},
                  {"add_bos_token", NULL, &settings->add_begin},
                  {"add_eos_token", NULL, &settings->add_end},
                  {"legacy", NULL, &settings->legacy},
                  {"cls_token", &settings->classify, NULL},
                  {"sep_token", &settings->separate, NULL},
                  {"do_lower_case", NULL, &settings->lowercase},
                  {"strip_accents", NULL, &settings->strip_accents},
                  {"tokenize_chinese_chars", NULL, &settings->split_chinese}};
    bool is_flag = item->kind == RN_JSON_TRUE || item->kind == RN_JSON_FALSE;
    bool is_tokens = rn_str_equal(key, RN_STR("added_tokens_decoder"));
    if (is_tokens && item->kind == RN_JSON_OBJECT && r->with_tokens)
        return read_fields(r, take_added, NULL);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!rn_str_equal(key, rn_str_from(fields[i].name))) continue;
        if (fields[i].text) return take_name(r, item, fields[i].text);
        if (is_flag) *fields[i].flag = item->kind == RN_JSON_TRUE;
    }
    return RN_OK;
}

rn_status rn_read_tokenizer_settings(rn_tokenizer *tokenizer, rn_str json, bool with_tokens,
                                     rn_tokenizer_settings *settings) {
    settings_reader r = {.tokenizer = tokenizer, .settings = settings, .with_tokens = with_tokens};
    rn_json_reader_init(&r.reader, json, tokenizer->from);
    rn_status s = rn_json_expect(&r.reader, RN_JSON_OBJECT, NULL);
    if (s == RN_OK) s = read_fields(&r, take_setting, NULL);
    rn_json_reader_free(&r.reader);
    return s;
}

// ---- applying ---------------------------------------------------------------------------

static uint32_t find_added(const rn_added *added, rn_str name) {
    for (size_t i = 0; i < added->count; i++)
        if (rn_str_equal(added->tokens[i].content, name)) return added->tokens[i].id;
    return RN_NO_TOKEN;
}

// A name that is no token is left alone: configurations of fine-tuned models have such.
static void set_id(const rn_tokenizer *tokenizer, rn_str name, uint32_t *id) {
    if (name.bytes == 0) return;
    uint32_t found = find_added(&tokenizer->added, name);
    if (found == RN_NO_TOKEN) found = find_added(&tokenizer->added_normalized, name);
    if (found == RN_NO_TOKEN) found = rn_vocab_find(&tokenizer->vocab, name);
    if (found != RN_NO_TOKEN) *id = found;
}

static rn_status set_around(uint32_t *ids, size_t *count, int wanted, uint32_t id) {
    if (wanted < 0) return RN_OK;
    *count = 0;
    return wanted && id != RN_NO_TOKEN ? rn_tokenizer_put_around(ids, count, id) : RN_OK;
}

rn_status rn_apply_tokenizer_settings(rn_tokenizer *tokenizer,
                                      const rn_tokenizer_settings *settings) {
    rn_tokenizer_info *info = &tokenizer->info;
    set_id(tokenizer, settings->begin, &info->begin);
    set_id(tokenizer, settings->end, &info->end);
    set_id(tokenizer, settings->unknown, &info->unknown);
    set_id(tokenizer, settings->pad, &info->pad);
    // SentencePiece's own tokenizers put a blank behind special tokens, too, unless they say that
    // they do not want what older versions did.
    if (tokenizer->spm && settings->legacy == 0 && tokenizer->spm_prefix == RN_PREFIX_ALWAYS)
        tokenizer->spm_prefix = RN_PREFIX_FIRST;
    RN_TRY(
        set_around(tokenizer->before, &tokenizer->before_count, settings->add_begin, info->begin));
    return set_around(tokenizer->after, &tokenizer->after_count, settings->add_end, info->end);
}
