// template_part.c — x.name, x[key] and x[a:b:c]. Jinja looks for x.name as an attribute (here: a
// method) first and as a key second; for x['name'] the other way round.
#include "text/template/template_builtin.h"
#include "text/template/template_text.h"

static rn_status get_method(rn_jinja_run *run, rn_jinja_value of, rn_str name, bool *out_found,
                            rn_jinja_value *out) {
    const rn_jinja_builtin *row = rn_jinja_method_find(of.type, name);
    *out_found = row != NULL;
    if (!row) return RN_OK;
    if (row->forbidden) {
        *out = rn_jinja_undefined(name);
        return RN_OK;
    }
    if (of.is_markup || (!row->call && !row->call_raw))
        return rn_jinja_fail(run, RN_UNSUPPORTED, "'%.*s' of a %s is not supported",
                             RN_STR_ARG(name),
                             of.is_markup ? "markup" : rn_jinja_type_name(of.type));
    void *block;
    RN_TRY(rn_jinja_alloc(run, 1, sizeof(rn_jinja_method), &block));
    rn_jinja_method *method = block;
    *method = (rn_jinja_method){of, row};
    *out = (rn_jinja_value){.type = RN_JINJA_METHOD, .method = method};
    return RN_OK;
}

// Attributes of objects that Python gives many, and templates none.
static bool is_opaque(rn_jinja_type type) {
    return type == RN_JINJA_MACRO || type == RN_JINJA_FUNCTION || type == RN_JINJA_METHOD ||
           type == RN_JINJA_ITERATOR || type == RN_JINJA_KEYS || type == RN_JINJA_VALUES ||
           type == RN_JINJA_ITEMS || type == RN_JINJA_RANGE;
}

// By attribute alone.
static rn_status get_own(rn_jinja_run *run, rn_jinja_value of, rn_str name, bool *out_found,
                         rn_jinja_value *out) {
    *out_found = true;
    if (of.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, of);
    if (rn_str_starts(name, RN_STR("__")) || is_opaque(of.type))
        return rn_jinja_fail(run, RN_UNSUPPORTED, "'%.*s' of a %s is not supported",
                             RN_STR_ARG(name), rn_jinja_type_name(of.type));
    if (of.type == RN_JINJA_LOOP) return rn_jinja_loop_attribute(run, of.loop, name, out);
    if (of.type == RN_JINJA_NAMESPACE)
        return rn_jinja_dict_find(run, of.dict, rn_jinja_text(name), out_found, out);
    return get_method(run, of, name, out_found, out);
}

rn_status rn_jinja_get_attribute(rn_jinja_run *run, rn_jinja_value of, rn_str name,
                                 rn_jinja_value *out) {
    bool found = false;
    RN_TRY(get_own(run, of, name, &found, out));
    if (!found && of.type == RN_JINJA_DICT)
        RN_TRY(rn_jinja_dict_find(run, of.dict, rn_jinja_text(name), &found, out));
    if (!found) *out = rn_jinja_undefined(name);
    return RN_OK;
}

// Item `index` of something with a length, negative ones from its end.
static rn_status get_index(rn_jinja_run *run, rn_jinja_value of, int64_t index,
                           rn_jinja_value *out) {
    size_t length = 0;
    if (of.type == RN_JINJA_TEXT) RN_TRY(rn_jinja_work(run, of.text.bytes));
    rn_jinja_length(of, &length);
    if (index < 0) index += (int64_t)length;
    if (index < 0 || (uint64_t)index >= length) {
        *out = rn_jinja_undefined(RN_STR("item"));
        return RN_OK;
    }
    rn_jinja_iterator walk = {of, (size_t)index};
    bool more;
    if (of.type == RN_JINJA_TEXT) walk.at = rn_jinja_text_offset(of.text, (size_t)index);
    return rn_jinja_next(run, &walk, &more, out);
}

static bool is_indexed(rn_jinja_type type) {
    return type == RN_JINJA_TEXT || type == RN_JINJA_LIST || type == RN_JINJA_TUPLE ||
           type == RN_JINJA_RANGE;
}

static bool can_be_key(rn_jinja_type type) {
    return type != RN_JINJA_LIST && type != RN_JINJA_DICT;
}

rn_status rn_jinja_get_item(rn_jinja_run *run, rn_jinja_value of, rn_jinja_value key,
                            rn_jinja_value *out) {
    bool found = false;
    int64_t index;
    if (of.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, of);
    if (of.is_markup)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "items of markup are not supported");
    if (is_indexed(of.type) && rn_jinja_as_int(key, &index)) return get_index(run, of, index, out);
    if (of.type == RN_JINJA_DICT && can_be_key(key.type))
        RN_TRY(rn_jinja_dict_find(run, of.dict, key, &found, out));
    if (!found && key.type == RN_JINJA_TEXT) RN_TRY(get_own(run, of, key.text, &found, out));
    if (!found) *out = rn_jinja_undefined(key.type == RN_JINJA_TEXT ? key.text : RN_STR("item"));
    return RN_OK;
}

// ---- slices ------------------------------------------------------------------------------

// A bound as Python reads it, within [low, high].
static rn_status get_bound(rn_jinja_run *run, rn_jinja_value bound, int64_t length, int64_t low,
                           int64_t high, int64_t missing, int64_t *out) {
    *out = missing;
    if (bound.type == RN_JINJA_NONE) return RN_OK;
    if (!rn_jinja_as_int(bound, out))
        return rn_jinja_fail(run, RN_INVALID, "a %s is no bound of a slice",
                             rn_jinja_type_name(bound.type));
    if (*out < 0) *out += length;
    *out = *out < low ? low : *out > high ? high : *out;
    return RN_OK;
}

typedef struct slice {
    int64_t begin, step;
    size_t count;
} slice;

static rn_status make_slice(rn_jinja_run *run, const rn_jinja_value bounds[3], size_t items,
                            slice *out) {
    int64_t length = (int64_t)items, begin = 0, end = 0, step = 1;
    if (bounds[2].type != RN_JINJA_NONE && !rn_jinja_as_int(bounds[2], &step))
        return rn_jinja_fail(run, RN_INVALID, "a %s is no step of a slice",
                             rn_jinja_type_name(bounds[2].type));
    if (step == 0) return rn_jinja_fail(run, RN_INVALID, "a slice's step cannot be 0");
    if (step < -length) step = -length - 1; // the same items, and no overflow
    if (step > length) step = length + 1;
    bool down = step < 0;
    int64_t low = down ? -1 : 0, high = down ? length - 1 : length;
    RN_TRY(get_bound(run, bounds[0], length, low, high, down ? high : low, &begin));
    RN_TRY(get_bound(run, bounds[1], length, low, high, down ? low : high, &end));
    int64_t span = down ? begin - end : end - begin, stride = down ? -step : step;
    *out = (slice){begin, step, span > 0 ? (size_t)((span - 1) / stride + 1) : 0};
    return RN_OK;
}

// Where each code point begins, and the end; NULL where each is a byte.
static rn_status find_offsets(rn_jinja_run *run, rn_str text, size_t length, uint32_t **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_jinja_work(run, text.bytes));
    if (length == text.bytes) return RN_OK;
    RN_TRY(rn_jinja_alloc(run, length + 1, sizeof(uint32_t), &block));
    *out = block;
    size_t at = 0, bytes;
    for (size_t i = 0; i < length; i++, at += bytes) {
        rn_jinja_decode(text, at, &bytes);
        (*out)[i] = (uint32_t)at;
    }
    (*out)[length] = (uint32_t)text.bytes;
    return RN_OK;
}

static rn_status slice_text(rn_jinja_run *run, rn_str text, size_t length, slice cut, rn_str *out) {
    uint32_t *offsets = NULL;
    rn_jinja_made copy;
    *out = (rn_str){"", 0};
    if (cut.count == 0) return RN_OK;
    RN_TRY(find_offsets(run, text, length, &offsets));
    if (cut.step == 1) {
        size_t begin = (size_t)cut.begin, end = begin + cut.count;
        *out = offsets ? rn_jinja_text_part(text, offsets[begin], offsets[end])
                       : rn_jinja_text_part(text, begin, end);
        return RN_OK;
    }
    RN_TRY(rn_jinja_make_text(run, text.bytes, &copy));
    rn_taint taint = rn_jinja_taint_of(run, text);
    out->data = copy.text;
    for (size_t i = 0; i < cut.count; i++) {
        size_t at = (size_t)(cut.begin + (int64_t)i * cut.step);
        size_t begin = offsets ? offsets[at] : at, end = offsets ? offsets[at + 1] : at + 1;
        memcpy(copy.text + out->bytes, text.data + begin, end - begin);
        rn_jinja_made_of(&copy, out->bytes, rn_taint_from(taint, begin), end - begin);
        out->bytes += end - begin;
    }
    return RN_OK;
}

static rn_status slice_list(rn_jinja_run *run, const rn_jinja_list *list, slice cut,
                            rn_jinja_list **out) {
    RN_TRY(rn_jinja_list_new(run, out));
    for (size_t i = 0; i < cut.count; i++)
        RN_TRY(rn_jinja_list_add(run, *out, list->items[cut.begin + (int64_t)i * cut.step]));
    return RN_OK;
}

rn_status rn_jinja_get_slice(rn_jinja_run *run, rn_jinja_value of, const rn_jinja_value bounds[3],
                             rn_jinja_value *out) {
    size_t length = 0;
    slice cut = {0};
    rn_jinja_list *list = NULL;
    if (of.type == RN_JINJA_UNDEFINED) return rn_jinja_fail_undefined(run, of);
    if (of.is_markup || of.type == RN_JINJA_RANGE)
        return rn_jinja_fail(run, RN_UNSUPPORTED, "slices of a %s are not supported",
                             of.is_markup ? "markup" : "range");
    if (of.type != RN_JINJA_TEXT && of.type != RN_JINJA_LIST && of.type != RN_JINJA_TUPLE)
        return rn_jinja_fail(run, RN_INVALID, "a %s cannot be sliced", rn_jinja_type_name(of.type));
    rn_jinja_length(of, &length);
    RN_TRY(make_slice(run, bounds, length, &cut));
    if (of.type == RN_JINJA_TEXT) {
        *out = rn_jinja_text((rn_str){"", 0});
        return slice_text(run, of.text, length, cut, &out->text);
    }
    RN_TRY(slice_list(run, of.list, cut, &list));
    *out = rn_jinja_sequence(of.type, list);
    return RN_OK;
}
