// tokenizer_json_steps.c — the steps of a tokenizer.json as steps of the normalizer and the cutter.
// Nearly all pre-tokenizers are an expression and a behaviour.
#include "text/base64.h"
#include "text/tokenizer_json.h"

static bool is_type(const rn_json_step *step, const char *type) {
    return rn_str_equal(step->type, rn_str_from(type));
}

static rn_status refuse(const char *part, rn_str what) {
    return rn_fail(RN_UNSUPPORTED, "%s \"%.*s\" is not known", part, RN_STR_ARG(what));
}

// ---- normalizers ------------------------------------------------------------------------

// SentencePiece squeezes blanks itself, behind its table of replacements.
static rn_status take_behind_charsmap(rn_tokenizer_json *json, const rn_json_step *step) {
    bool squeezes =
        is_type(step, "Replace") && rn_str_equal(step->pattern, RN_STR(" {2,}")) &&
        (rn_str_equal(step->content, RN_STR(" ")) || rn_str_equal(step->content, RN_STR(RN_BLANK)));
    if (!squeezes && !is_type(step, "Strip"))
        return refuse("a step behind the normalizer Precompiled,", step->type);
    json->squeeze_blanks = true;
    return RN_OK;
}

static rn_status take_charsmap(rn_tokenizer_json *json, const rn_json_step *step) {
    if (!json->is_unigram) return refuse("for this model, normalizer", step->type);
    if (step->charsmap.bytes == 0) return RN_OK;
    void *bytes;
    RN_TRY(rn_arena_alloc(&json->tokenizer->arena, step->charsmap.bytes / 4 * 3 + 3, &bytes));
    if (!rn_base64_decode(step->charsmap, bytes, &json->charsmap.bytes))
        return rn_fail(RN_CORRUPT, "precompiled_charsmap is no base64");
    json->charsmap.data = bytes;
    json->has_charsmap = true;
    return RN_OK;
}

static rn_status take_normalizer(void *self, const rn_json_step *step) {
    static const char *const plain[] = {[RN_NORMALIZE_NFC] = "NFC",
                                        [RN_NORMALIZE_NFD] = "NFD",
                                        [RN_NORMALIZE_NFKC] = "NFKC",
                                        [RN_NORMALIZE_NFKD] = "NFKD",
                                        [RN_NORMALIZE_LOWERCASE] = "Lowercase",
                                        [RN_NORMALIZE_PREPEND] = "Prepend",
                                        [RN_NORMALIZE_REPLACE] = "Replace",
                                        [RN_NORMALIZE_STRIP] = "Strip",
                                        [RN_NORMALIZE_STRIP_ACCENTS] = "StripAccents"};
    rn_tokenizer_json *json = self;
    if (is_type(step, "BertNormalizer") && !json->has_charsmap)
        return rn_tokenizer_normalize_bert(
            json->tokenizer,
            (rn_bert_steps){.clean = step->clean_text,
                            .split_chinese = step->handle_chinese_chars,
                            .strip_accents =
                                step->strip_accents < 0 ? step->lowercase : step->strip_accents,
                            .lowercase = step->lowercase});
    if (is_type(step, "Precompiled")) return take_charsmap(json, step);
    if (json->has_charsmap) return take_behind_charsmap(json, step);
    size_t kind = 0, count = sizeof plain / sizeof *plain;
    while (kind < count && !is_type(step, plain[kind]))
        kind++;
    if (kind == count) return refuse("normalizer", step->type);
    rn_normalize_step taken = {.kind = (rn_normalize_kind)kind,
                               .content = step->content,
                               .left = step->strip_left,
                               .right = step->strip_right};
    if (taken.kind == RN_NORMALIZE_REPLACE)
        RN_TRY(rn_pattern_compile(json->tokenizer->from, step->pattern, step->pattern_literal,
                                  &taken.pattern));
    return rn_normalizer_add(&json->tokenizer->normalizer, taken);
}

// ---- pre-tokenizers ---------------------------------------------------------------------

static rn_status behavior_of(rn_str name, rn_cut_behavior *out) {
    static const char *const names[] = {[RN_CUT_ISOLATED] = "Isolated",
                                        [RN_CUT_REMOVED] = "Removed",
                                        [RN_CUT_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [RN_CUT_WITH_NEXT] = "MergedWithNext",
                                        [RN_CUT_CONTIGUOUS] = "Contiguous"};
    *out = RN_CUT_ISOLATED;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (rn_str_equal(name, rn_str_from(names[i]))) {
            *out = (rn_cut_behavior)i;
            return RN_OK;
        }
    return name.bytes == 0 ? RN_OK : refuse("behavior", name);
}

static rn_status add_split(rn_tokenizer_json *json, rn_str pattern, bool literal,
                           rn_cut_behavior behavior, bool inverted) {
    rn_cut_step cut = {.kind = RN_CUT_SPLIT, .behavior = behavior, .inverted = inverted};
    RN_TRY(rn_pattern_compile(json->tokenizer->from, pattern, literal, &cut.pattern));
    return rn_cutter_add(&json->tokenizer->cutter, cut);
}

static rn_status take_byte_level(rn_tokenizer_json *json, const rn_json_step *step) {
    rn_cutter *cutter = &json->tokenizer->cutter;
    if (step->add_prefix_space) RN_TRY(rn_cutter_add(cutter, (rn_cut_step){.kind = RN_CUT_SPACE}));
    if (step->use_regex)
        RN_TRY(add_split(json, RN_STR(RN_EXPRESSION_GPT2), false, RN_CUT_ISOLATED, false));
    json->tokenizer->bpe.by_bytes = true;
    return rn_cutter_add(cutter, (rn_cut_step){.kind = RN_CUT_LETTERS});
}

static rn_status prefix_of(const rn_json_step *step, bool said, rn_prefix *out) {
    rn_str scheme = step->prepend_scheme;
    *out = RN_PREFIX_ALWAYS;
    if (rn_str_equal(scheme, RN_STR("never")) || (!scheme.bytes && said && !step->add_prefix_space))
        *out = RN_PREFIX_NEVER;
    else if (rn_str_equal(scheme, RN_STR("first")))
        *out = RN_PREFIX_FIRST;
    else if (scheme.bytes && !rn_str_equal(scheme, RN_STR("always")))
        return refuse("prepend_scheme", scheme);
    return RN_OK;
}

static rn_status take_metaspace(rn_tokenizer_json *json, const rn_json_step *step) {
    rn_cut_step cut = {.kind = RN_CUT_METASPACE, .blank = step->content};
    if (!rn_str_equal(step->content, RN_STR(RN_BLANK)))
        return refuse("Metaspace's replacement", step->content);
    RN_TRY(prefix_of(step, true, &cut.prefix));
    json->has_metaspace = true;
    if (json->is_unigram) {
        json->tokenizer->spm_prefix = cut.prefix;
        return RN_OK;
    }
    RN_TRY(rn_cutter_add(&json->tokenizer->cutter, cut));
    if (!step->split) return RN_OK;
    return add_split(json, RN_STR(RN_BLANK), true, RN_CUT_WITH_NEXT, false);
}

static rn_status take_split(rn_tokenizer_json *json, const rn_json_step *step) {
    rn_cut_behavior behavior;
    RN_TRY(behavior_of(step->behavior, &behavior));
    if (is_type(step, "Split"))
        return add_split(json, step->pattern, step->pattern_literal, behavior, step->invert);
    if (is_type(step, "Digits"))
        return add_split(json, step->individual_digits ? RN_STR("\\p{N}") : RN_STR("\\p{N}+"),
                         false, RN_CUT_ISOLATED, false);
    if (is_type(step, "Punctuation"))
        return add_split(json, RN_STR(RN_EXPRESSION_PUNCTUATION), false, behavior, false);
    if (is_type(step, "Whitespace"))
        return add_split(json, RN_STR("\\w+|[^\\w\\s]+"), false, RN_CUT_REMOVED, true);
    if (is_type(step, "WhitespaceSplit"))
        return add_split(json, RN_STR("\\s+"), false, RN_CUT_REMOVED, false);
    if (is_type(step, "BertPreTokenizer")) return rn_tokenizer_cut_bert(json->tokenizer);
    return refuse("pre-tokenizer", step->type);
}

static rn_status take_pre_tokenizer(void *self, const rn_json_step *step) {
    rn_tokenizer_json *json = self;
    if (is_type(step, "Metaspace")) return take_metaspace(json, step);
    bool splits = is_type(step, "WhitespaceSplit");
    if (splits && json->is_unigram) json->squeeze_blanks = true; // those that replacements make
    if (!splits && json->is_unigram)
        return refuse("before a Unigram model, pre-tokenizer", step->type);
    return is_type(step, "ByteLevel") ? take_byte_level(json, step) : take_split(json, step);
}

// Letters that no step looks at need not be written.
static void drop_last_letters(rn_cutter *cutter) {
    if (cutter->count == 0 || cutter->steps[cutter->count - 1].kind != RN_CUT_LETTERS) return;
    cutter->letters = false;
    cutter->count--;
    for (size_t i = 0; i < cutter->count; i++)
        cutter->letters = cutter->letters || cutter->steps[i].kind == RN_CUT_LETTERS;
}

// ---- post-processors and decoders -------------------------------------------------------

static rn_status take_post_processor(void *self, const rn_json_step *step) {
    rn_tokenizer_json *json = self;
    if (is_type(step, "ByteLevel")) return RN_OK; // offsets only
    if (!is_type(step, "TemplateProcessing") && !is_type(step, "RobertaProcessing") &&
        !is_type(step, "BertProcessing"))
        return refuse("post-processor", step->type);
    json->around = *step;
    if (is_type(step, "TemplateProcessing")) return RN_OK;
    // RoBERTa has its separator twice.
    for (int i = is_type(step, "RobertaProcessing") ? 0 : 1; i < 2 && step->after_count; i++)
        json->around.between[json->around.between_count++] = step->after[0];
    return RN_OK;
}

static rn_status take_strip(rn_tokenizer_json *json, const rn_json_step *step) {
    bool known = rn_str_equal(step->content, RN_STR(" ")) && step->start <= 1 && step->stop == 0;
    if (!known) return refuse("a decoder's Strip of", step->content);
    json->tokenizer->strip_first = step->start == 1;
    return RN_OK;
}

static rn_status take_decoder(void *self, const rn_json_step *step) {
    rn_tokenizer_json *json = self;
    rn_tokenizer *tokenizer = json->tokenizer;
    bool pieces = is_type(step, "WordPiece"); // as its tokens are shown anyway
    if (pieces || is_type(step, "ByteLevel") || is_type(step, "Fuse")) return RN_OK;
    if (is_type(step, "Strip")) return take_strip(json, step);
    if (is_type(step, "ByteFallback")) {
        tokenizer->show_bytes = true;
        return RN_OK;
    }
    if (is_type(step, "BPEDecoder")) {
        tokenizer->show_suffix = step->suffix;
        tokenizer->strip_last = true;
        return RN_OK;
    }
    bool blanks =
        rn_str_equal(step->pattern, RN_STR(RN_BLANK)) && rn_str_equal(step->content, RN_STR(" "));
    if (is_type(step, "Replace") && blanks) {
        tokenizer->show_blank = true;
        return RN_OK;
    }
    if (!is_type(step, "Metaspace")) return refuse("decoder", step->type);
    rn_prefix prefix;
    RN_TRY(prefix_of(step, true, &prefix));
    tokenizer->show_blank = true;
    tokenizer->strip_first = prefix != RN_PREFIX_NEVER;
    return RN_OK;
}

static rn_status read_section(rn_tokenizer_json *json, rn_json_section section,
                              rn_json_step_taker take) {
    if (section.text.bytes == 0) return RN_OK;
    return rn_json_steps_read(section.text, section.base, &json->tokenizer->arena, take, json);
}

rn_status rn_tokenizer_json_steps(rn_tokenizer_json *json) {
    RN_TRY(read_section(json, json->normalizer, take_normalizer));
    RN_TRY(read_section(json, json->pre_tokenizer, take_pre_tokenizer));
    drop_last_letters(&json->tokenizer->cutter);
    RN_TRY(read_section(json, json->post_processor, take_post_processor));
    return read_section(json, json->decoder, take_decoder);
}
