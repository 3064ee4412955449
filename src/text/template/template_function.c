// template_function.c — the functions that a template can call by name.
#include "text/template/template_builtin.h"
#include "text/template/template_strftime.h"

typedef const rn_jinja_value *arguments;

static rn_status make_range(rn_jinja_run *run, int64_t start, int64_t stop, int64_t step,
                            rn_jinja_value *out) {
    void *block;
    if (step == 0) return rn_jinja_fail(run, RN_INVALID, "range's step cannot be 0");
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_range), &block));
    rn_jinja_range *range = block;
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : -(uint64_t)step;
    bool empty = step > 0 ? start >= stop : start <= stop;
    uint64_t count = empty ? 0 : (span - 1) / stride + 1;
    if (count > RN_JINJA_MAX_RANGE)
        return rn_jinja_fail(run, RN_INVALID, "a range may have at most %d items",
                             RN_JINJA_MAX_RANGE);
    *range = (rn_jinja_range){start, stop, step, (size_t)count};
    *out = (rn_jinja_value){.type = RN_JINJA_RANGE, .range = range};
    return RN_OK;
}

static rn_status range(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    int64_t bounds[3] = {0, 0, 1};
    (void)self;
    for (size_t i = 0; i < 3; i++)
        if (args[i].type != RN_JINJA_MISSING)
            RN_TRY(rn_jinja_need_int(run, "range", args[i], &bounds[i]));
    if (args[1].type == RN_JINJA_MISSING) return make_range(run, 0, bounds[0], 1, out);
    return make_range(run, bounds[0], bounds[1], bounds[2], out);
}

// A dict of the one positional argument (a dict) and the named ones.
static rn_status gather(rn_jinja_run *run, const rn_jinja_args *args, rn_jinja_dict **out) {
    RN_TRY(rn_jinja_dict_new(run, out));
    if (args->count > 1 || (args->count == 1 && args->items[0].type != RN_JINJA_DICT))
        return rn_jinja_fail(run, RN_UNSUPPORTED, "only a dict and names make a dict or namespace");
    for (size_t i = 0; args->count == 1 && i < args->items[0].dict->count; i++)
        RN_TRY(rn_jinja_dict_set(run, *out, args->items[0].dict->keys[i],
                                 args->items[0].dict->values[i]));
    for (size_t i = 0; i < args->named_count; i++)
        RN_TRY(rn_jinja_dict_set(run, *out, rn_jinja_text(args->names[i]), args->named[i]));
    return RN_OK;
}

static rn_status dict(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                      rn_jinja_value *out) {
    rn_jinja_dict *made = NULL;
    (void)self;
    RN_TRY(gather(run, args, &made));
    *out = (rn_jinja_value){.type = RN_JINJA_DICT, .dict = made};
    return RN_OK;
}

static rn_status namespace(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                           rn_jinja_value *out) {
    rn_jinja_dict *made = NULL;
    (void)self;
    RN_TRY(gather(run, args, &made));
    for (size_t i = 0; i < made->count; i++)
        if (made->keys[i].type == RN_JINJA_TEXT && rn_str_starts(made->keys[i].text, RN_STR("_")))
            return rn_jinja_fail(run, RN_INVALID, "a namespace keeps no names with '_' in front");
    *out = (rn_jinja_value){.type = RN_JINJA_NAMESPACE, .dict = made};
    return RN_OK;
}

// The template's own words are the message; the place is the hint.
static rn_status raise(rn_jinja_run *run, rn_jinja_value self, arguments args,
                       rn_jinja_value *out) {
    char message[sizeof rn_last_error()->message];
    rn_error_info place;
    rn_str text = {"", 0};
    (void)self;
    *out = rn_jinja_none();
    RN_TRY(rn_jinja_to_text(run, args[0], &text));
    size_t bytes = text.bytes < sizeof message ? text.bytes : sizeof message - 1;
    memcpy(message, text.data, bytes);
    message[bytes] = '\0';
    rn_str_clean(message);
    (void)rn_jinja_fail(run, RN_INVALID, "raised by the chat template");
    place = *rn_last_error();
    return rn_hint(rn_fail(RN_INVALID, "%s", message), "%.400s", place.message);
}

static rn_status strftime_now(rn_jinja_run *run, rn_jinja_value self, arguments args,
                              rn_jinja_value *out) {
    rn_str format = {"", 0};
    (void)self;
    RN_TRY(rn_jinja_need_text(run, "strftime_now", args[0], &format));
    *out = rn_jinja_text((rn_str){"", 0});
    return rn_jinja_strftime(run, format, &out->text);
}

static const rn_jinja_builtin functions[] = {
    {.name = "range",
     .call = range,
     .params = {"start", "stop", "step"},
     .required = 1,
     .no_names = true},
    {.name = "raise_exception", .call = raise, .params = {"message"}, .required = 1},
    {.name = "strftime_now", .call = strftime_now, .params = {"format"}, .required = 1},
    {.name = "dict", .call_raw = dict},
    {.name = "namespace", .call_raw = namespace},
    {.name = "cycler"},
    {.name = "joiner"},
    {.name = "lipsum"},
    {.name = NULL},
};

const rn_jinja_builtin *rn_jinja_function_find(rn_str name) {
    return rn_jinja_row_find(functions, name);
}
