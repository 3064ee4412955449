// tokenizer_bert.c — what BERT does before WordPiece, and its vocab.txt: a token a line, the line's
// number its id.
#include "text/tokenizer_parts.h"

rn_status rn_tokenizer_normalize_bert(rn_tokenizer *tokenizer, rn_bert_steps steps) {
    const struct {
        bool wanted;
        rn_normalize_kind kind;
    } list[] = {{steps.clean, RN_NORMALIZE_CLEAN},
                {steps.split_chinese, RN_NORMALIZE_SPACE_CHINESE},
                {steps.strip_accents, RN_NORMALIZE_NFD},
                {steps.strip_accents, RN_NORMALIZE_STRIP_NONSPACING},
                {steps.lowercase, RN_NORMALIZE_LOWERCASE}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].wanted)
            RN_TRY(rn_normalizer_add(&tokenizer->normalizer,
                                     (rn_normalize_step){.kind = list[i].kind}));
    return RN_OK;
}

rn_status rn_tokenizer_cut_bert(rn_tokenizer *tokenizer) {
    rn_cut_step blanks = {.kind = RN_CUT_SPLIT, .behavior = RN_CUT_REMOVED};
    RN_TRY(rn_pattern_compile(tokenizer->from, RN_STR("\\s+"), false, &blanks.pattern));
    RN_TRY(rn_cutter_add(&tokenizer->cutter, blanks));
    return rn_tokenizer_split(tokenizer, RN_STR(RN_EXPRESSION_PUNCTUATION));
}

void rn_tokenizer_be_wordpiece(rn_tokenizer *tokenizer, rn_str begin, rn_str next) {
    tokenizer->info.kind = "WordPiece";
    tokenizer->wordpiece = (rn_wordpiece){
        .vocab = &tokenizer->vocab, .begin = begin, .next = next, .unknown = RN_NO_TOKEN};
}

// ---- vocab.txt --------------------------------------------------------------------------

static rn_status read_lines(rn_tokenizer *tokenizer, rn_str text) {
    for (uint64_t id = 0; text.bytes; id++) {
        const char *end = memchr(text.data, '\n', text.bytes);
        size_t bytes = end ? (size_t)(end - text.data) : text.bytes;
        rn_str line = {text.data, bytes};
        if (line.bytes && line.data[line.bytes - 1] == '\r') line.bytes--;
        RN_TRY(rn_tokenizer_put(tokenizer, id, line));
        text.data += bytes + (end != NULL);
        text.bytes -= bytes + (end != NULL);
    }
    return rn_vocab_seal(&tokenizer->vocab);
}

// The first of the names that is a token becomes a special one.
static rn_status add_first(rn_tokenizer *tokenizer, const rn_str names[3], uint32_t *out) {
    for (int i = 0; i < 3 && *out == RN_NO_TOKEN; i++) {
        rn_added_token token = {.content = names[i], .special = true};
        token.id = names[i].bytes ? rn_vocab_find(&tokenizer->vocab, names[i]) : RN_NO_TOKEN;
        if (token.id == RN_NO_TOKEN) continue;
        RN_TRY(rn_tokenizer_add_token(tokenizer, token));
        *out = token.id;
    }
    return RN_OK;
}

rn_status rn_load_vocab_txt(rn_tokenizer *tokenizer, rn_str text,
                            const rn_tokenizer_settings *settings) {
    const rn_str names[][3] = {{settings->classify, RN_STR("[CLS]"), RN_STR("<s>")},
                               {settings->separate, RN_STR("[SEP]"), RN_STR("</s>")},
                               {settings->unknown, RN_STR("[UNK]"), RN_STR("<unk>")},
                               {settings->pad, RN_STR("[PAD]"), RN_STR("<pad>")},
                               {RN_STR("[MASK]"), RN_STR("<mask>")}};
    rn_tokenizer_info *info = &tokenizer->info;
    uint32_t mask = RN_NO_TOKEN;
    uint32_t *const ids[] = {&info->begin, &info->end, &info->unknown, &info->pad, &mask};
    bool lowercase = settings->lowercase != 0, chinese = settings->split_chinese != 0;
    bool strip = settings->strip_accents < 0 ? lowercase : settings->strip_accents;
    rn_tokenizer_be_wordpiece(tokenizer, RN_STR(""), RN_STR("##"));
    tokenizer->wordpiece.most_characters = RN_BERT_WORD_CHARACTERS;
    RN_TRY(read_lines(tokenizer, text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        RN_TRY(add_first(tokenizer, names[i], ids[i]));
    tokenizer->wordpiece.unknown = info->unknown;
    if (info->begin == RN_NO_TOKEN || info->end == RN_NO_TOKEN)
        return rn_fail(RN_CORRUPT, "the vocabulary has no [CLS] or no [SEP]");
    RN_TRY(rn_tokenizer_put_around(tokenizer->before, &tokenizer->before_count, info->begin));
    RN_TRY(rn_tokenizer_put_around(tokenizer->after, &tokenizer->after_count, info->end));
    // MPNet's, as RoBERTa's, is twice between two texts.
    bool twice = info->end == rn_vocab_find(&tokenizer->vocab, RN_STR("</s>"));
    for (int i = twice ? 0 : 1; i < 2; i++)
        RN_TRY(rn_tokenizer_put_around(tokenizer->between, &tokenizer->between_count, info->end));
    RN_TRY(
        rn_tokenizer_normalize_bert(tokenizer, (rn_bert_steps){true, chinese, strip, lowercase}));
    return rn_tokenizer_cut_bert(tokenizer);
}
