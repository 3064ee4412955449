// template_builtin.c — from a call's arguments to a row's parameters.
#include "text/template/template_builtin.h"

const rn_jinja_builtin *rn_jinja_row_find(const rn_jinja_builtin *rows, rn_str name) {
    for (; rows->name; rows++)
        if (rn_str_equal(name, rn_str_from(rows->name))) return rows;
    return NULL;
}

static size_t count_params(const rn_jinja_builtin *row) {
    size_t count = 0;
    while (row->params[count])
        count++;
    return count;
}

static rn_status refuse_arguments(rn_jinja_run *run, const rn_jinja_builtin *row) {
    return rn_jinja_fail(run, RN_INVALID, "'%s' does not take these arguments", row->name);
}

// One value a parameter.
static rn_status bind(rn_jinja_run *run, const rn_jinja_builtin *row, const rn_jinja_args *args,
                      rn_jinja_value out[RN_JINJA_MAX_PARAMS]) {
    size_t params = count_params(row);
    if (args->count > params || (args->named_count > 0 && row->no_names))
        return refuse_arguments(run, row);
    for (size_t i = 0; i < args->count; i++)
        out[i] = args->items[i];
    for (size_t i = 0; i < args->named_count; i++) {
        size_t at = 0;
        while (at < params && !rn_str_equal(args->names[i], rn_str_from(row->params[at])))
            at++;
        if (at == params || out[at].type != RN_JINJA_MISSING) return refuse_arguments(run, row);
        out[at] = args->named[i];
    }
    for (size_t i = 0; i < row->required; i++)
        if (out[i].type == RN_JINJA_MISSING) return refuse_arguments(run, row);
    return RN_OK;
}

rn_status rn_jinja_builtin_call(rn_jinja_run *run, const rn_jinja_builtin *row, rn_jinja_value self,
                                const rn_jinja_args *args, rn_jinja_value *out) {
    rn_jinja_value bound[RN_JINJA_MAX_PARAMS] = {{0}};
    RN_TRY(rn_jinja_work(run, self.type == RN_JINJA_TEXT ? self.text.bytes : 0));
    if (row->call_raw) return row->call_raw(run, self, args, out);
    if (!row->call) return rn_jinja_fail(run, RN_UNSUPPORTED, "'%s' is not supported", row->name);
    RN_TRY(bind(run, row, args, bound));
    return row->call(run, self, bound, out);
}

rn_status rn_jinja_test_ask(rn_jinja_run *run, const rn_jinja_builtin *row, rn_jinja_value self,
                            const rn_jinja_args *args, bool *out) {
    rn_jinja_value answer = rn_jinja_none();
    *out = false;
    RN_TRY(rn_jinja_builtin_call(run, row, self, args, &answer));
    *out = rn_jinja_truth(answer);
    return RN_OK;
}

rn_status rn_jinja_need_text(rn_jinja_run *run, const char *what, rn_jinja_value value,
                             rn_str *out) {
    *out = value.text;
    if (value.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, value);
    if (value.type != RN_JINJA_TEXT)
        return rn_jinja_fail(run, RN_INVALID, "%s takes text, not a %s", what,
                             rn_jinja_type_name(value.type));
    if (value.is_markup)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "%s of markup is not supported", what);
    return RN_OK;
}

rn_status rn_jinja_need_int(rn_jinja_run *run, const char *what, rn_jinja_value value,
                            int64_t *out) {
    if (rn_jinja_as_int(value, out)) return RN_OK;
    return rn_jinja_fail(run, RN_INVALID, "%s takes a whole number, not a %s", what,
                         rn_jinja_type_name(value.type));
}

rn_status rn_jinja_need_flag(rn_jinja_run *run, const char *what, rn_jinja_value value, bool *out) {
    int64_t whole = 0;
    if (value.type != RN_JINJA_MISSING) RN_TRY(rn_jinja_need_int(run, what, value, &whole));
    *out = whole != 0;
    return RN_OK;
}
