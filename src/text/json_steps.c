// json_steps.c — keys are collected into one struct whatever the type is, because "type" need not
// come first; unknown keys are passed over, unknown types are for the taker to refuse.
#include "text/json_steps.h"

typedef struct steps {
    rn_json_reader reader;
    rn_arena *arena;
    rn_json_step_taker take;
    void *self;
} steps;

static rn_status keep(steps *s, rn_str text, rn_str *out) {
    void *copy;
    RN_TRY(rn_arena_copy(s->arena, text.data, text.bytes, &copy));
    *out = (rn_str){copy, text.bytes};
    return RN_OK;
}

static rn_status read_text(steps *s, rn_str *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(&s->reader, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK;
    if (item.kind != RN_JSON_STRING)
        return rn_fail(RN_CORRUPT, "%s where a string is expected", rn_json_kind_name(item.kind));
    return keep(s, item.text, out);
}

static rn_status read_bool(steps *s, bool *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(&s->reader, &item));
    if (item.kind != RN_JSON_TRUE && item.kind != RN_JSON_FALSE)
        return rn_fail(RN_CORRUPT, "%s where true or false is expected",
                       rn_json_kind_name(item.kind));
    *out = item.kind == RN_JSON_TRUE;
    return RN_OK;
}

// null: *out stays.
static rn_status read_choice(steps *s, int *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(&s->reader, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK;
    if (item.kind != RN_JSON_TRUE && item.kind != RN_JSON_FALSE)
        return rn_fail(RN_CORRUPT, "%s where true, false or null is expected",
                       rn_json_kind_name(item.kind));
    *out = item.kind == RN_JSON_TRUE;
    return RN_OK;
}

static rn_status read_number(steps *s, uint64_t *out) {
    rn_json_item item;
    RN_TRY(rn_json_next(&s->reader, &item));
    return rn_json_u64_of(&item, out);
}

// {"Regex": "..."} or {"String": "..."} or the text itself.
static rn_status read_pattern(steps *s, rn_json_step *step) {
    rn_json_item item;
    RN_TRY(rn_json_next(&s->reader, &item));
    if (item.kind == RN_JSON_STRING) {
        step->pattern_literal = true;
        return keep(s, item.text, &step->pattern);
    }
    if (item.kind != RN_JSON_OBJECT) return rn_fail(RN_CORRUPT, "a pattern is no object");
    RN_TRY(rn_json_expect(&s->reader, RN_JSON_KEY, &item));
    step->pattern_literal = rn_str_equal(item.text, RN_STR("String"));
    if (!step->pattern_literal && !rn_str_equal(item.text, RN_STR("Regex")))
        return rn_fail(RN_UNSUPPORTED, "a pattern of kind \"%.*s\"", RN_STR_ARG(item.text));
    RN_TRY(read_text(s, &step->pattern));
    return rn_json_expect(&s->reader, RN_JSON_OBJECT_END, NULL);
}

// ---- what post-processors put around a text ---------------------------------------------

static rn_status put_name(rn_str name, rn_str *names, size_t *count) {
    if (*count == RN_JSON_AROUND)
        return rn_fail(RN_UNSUPPORTED, "more than %d tokens around a text", RN_JSON_AROUND);
    names[(*count)++] = name;
    return RN_OK;
}

// {"SpecialToken": {"id": "<s>", ...}} or {"Sequence": {"id": "A", ...}}.
static rn_status read_template_item(steps *s, rn_str *out_name, bool *out_is_text) {
    rn_json_item key, item;
    *out_name = (rn_str){0};
    RN_TRY(rn_json_expect(&s->reader, RN_JSON_KEY, &key));
    *out_is_text = rn_str_equal(key.text, RN_STR("Sequence"));
    RN_TRY(rn_json_expect(&s->reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(&s->reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        if (rn_str_equal(item.text, RN_STR("id")))
            RN_TRY(read_text(s, out_name));
        else
            RN_TRY(rn_json_skip(&s->reader));
    }
    return rn_json_expect(&s->reader, RN_JSON_OBJECT_END, NULL);
}

// A token of a template of `most` texts, of which `texts` stand before it. Of one for two texts
// only what is between them counts: the rest is as with one.
static rn_status put_special(rn_json_step *step, rn_str name, uint32_t texts, uint32_t most) {
    if (most == 2) return texts == 1 ? put_name(name, step->between, &step->between_count) : RN_OK;
    return texts ? put_name(name, step->after, &step->after_count)
                 : put_name(name, step->before, &step->before_count);
}

static rn_status read_template(steps *s, rn_json_step *step, uint32_t most) {
    uint32_t texts = 0;
    rn_json_item item;
    rn_str name;
    bool is_text;
    RN_TRY(rn_json_expect(&s->reader, RN_JSON_ARRAY, NULL));
    for (;;) {
        RN_TRY(rn_json_next(&s->reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT) return rn_fail(RN_CORRUPT, "a template is damaged");
        RN_TRY(read_template_item(s, &name, &is_text));
        if (!is_text)
            RN_TRY(put_special(step, name, texts, most));
        else if (++texts > most)
            return rn_fail(RN_UNSUPPORTED, "a template with a text twice");
        else if (most == 2 && !rn_str_equal(name, texts == 1 ? RN_STR("A") : RN_STR("B")))
            return rn_fail(RN_UNSUPPORTED, "a template with the second text before the first");
    }
}

// ["</s>", 2]
static rn_status read_pair(steps *s, rn_str *names, size_t *count) {
    rn_str name = {0};
    uint64_t id;
    RN_TRY(rn_json_expect(&s->reader, RN_JSON_ARRAY, NULL));
    RN_TRY(read_text(s, &name));
    RN_TRY(read_number(s, &id));
    RN_TRY(put_name(name, names, count));
    return rn_json_expect(&s->reader, RN_JSON_ARRAY_END, NULL);
}

// ---- objects ----------------------------------------------------------------------------

static rn_status read_step(steps *s);

static rn_status read_list(steps *s) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&s->reader, RN_JSON_ARRAY, NULL));
    for (;;) {
        RN_TRY(rn_json_next(&s->reader, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_OBJECT)
            return rn_fail(RN_CORRUPT, "%s in a sequence of steps", rn_json_kind_name(item.kind));
        RN_TRY(read_step(s));
    }
}

static bool is_one_of(rn_str key, const char *const *names) {
    for (; *names; names++)
        if (rn_str_equal(key, rn_str_from(*names))) return true;
    return false;
}

static rn_status read_value(steps *s, rn_str key, rn_json_step *step) {
    static const char *const lists[] = {"normalizers", "pretokenizers", "processors", "decoders",
                                        NULL};
    static const char *const contents[] = {"content", "prepend", "replacement", NULL};
    const struct {
        const char *name;
        rn_str *text;
        bool *flag;
        uint64_t *number;
    } fields[] = {
        {.name = "type", .text = &step->type},
        {.name = "behavior", .text = &step->behavior},
        {.name = "prepend_scheme", .text = &step->prepend_scheme},
        {.name = "suffix", .text = &step->suffix},
        {.name = "precompiled_charsmap", .text = &step->charsmap},
        {.name = "invert", .flag = &step->invert},
        {.name = "add_prefix_space", .flag = &step->add_prefix_space},
        {.name = "use_regex", .flag = &step->use_regex},
        {.name = "split", .flag = &step->split},
        {.name = "individual_digits", .flag = &step->individual_digits},
        {.name = "strip_left", .flag = &step->strip_left},
        {.name = "strip_right", .flag = &step->strip_right},
        {.name = "clean_text", .flag = &step->clean_text},
        {.name = "handle_chinese_chars", .flag = &step->handle_chinese_chars},
        {.name = "lowercase", .flag = &step->lowercase},
        {.name = "start", .number = &step->start},
        {.name = "stop", .number = &step->stop},
    };
    if (is_one_of(key, lists)) return read_list(s);
    if (is_one_of(key, contents)) return read_text(s, &step->content);
    if (rn_str_equal(key, RN_STR("pattern"))) return read_pattern(s, step);
    if (rn_str_equal(key, RN_STR("single"))) return read_template(s, step, 1);
    if (rn_str_equal(key, RN_STR("pair"))) return read_template(s, step, 2);
    if (rn_str_equal(key, RN_STR("cls"))) return read_pair(s, step->before, &step->before_count);
    if (rn_str_equal(key, RN_STR("sep"))) return read_pair(s, step->after, &step->after_count);
    if (rn_str_equal(key, RN_STR("strip_accents"))) return read_choice(s, &step->strip_accents);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (rn_str_equal(key, rn_str_from(fields[i].name))) {
            if (fields[i].text) return read_text(s, fields[i].text);
            return fields[i].flag ? read_bool(s, fields[i].flag) : read_number(s, fields[i].number);
        }
    return rn_json_skip(&s->reader);
}

// An object whose brace has been read.
static rn_status read_step(steps *s) {
    rn_json_step step = {.use_regex = true,
                         .split = true,
                         .clean_text = true,
                         .handle_chinese_chars = true,
                         .lowercase = true,
                         .strip_accents = -1};
    for (;;) {
        rn_json_item item;
        char name[32];
        RN_TRY(rn_json_next(&s->reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        size_t bytes = item.text.bytes < sizeof name ? item.text.bytes : sizeof name;
        memcpy(name, item.text.data, bytes); // the reader's text goes with the next one
        RN_TRY(read_value(s, (rn_str){name, bytes}, &step));
    }
    return rn_str_equal(step.type, RN_STR("Sequence")) ? RN_OK : s->take(s->self, &step);
}

rn_status rn_json_steps_read(rn_str json, uint64_t base, rn_arena *arena, rn_json_step_taker take,
                             void *self) {
    steps s = {.arena = arena, .take = take, .self = self};
    rn_json_item item;
    rn_json_reader_init(&s.reader, json, arena->from);
    s.reader.base = base;
    rn_status status = rn_json_next(&s.reader, &item);
    if (status == RN_OK && item.kind == RN_JSON_OBJECT)
        status = read_step(&s);
    else if (status == RN_OK && item.kind != RN_JSON_NULL)
        status = rn_fail(RN_CORRUPT, "%s where steps are expected", rn_json_kind_name(item.kind));
    rn_json_reader_free(&s.reader);
    return status;
}
