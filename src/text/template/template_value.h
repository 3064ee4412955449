// template_value.h — what a chat template computes with: Python's values, as far as templates use
// them.
//
// Values are small and copied freely; what they point to lies in the render's arena (or in the
// template's, or in the conversation) and never changes, but for namespaces, iterators and loops.
// All text is valid UTF-8, and is counted and cut in code points, as Python does.
#ifndef RN_TEXT_TEMPLATE_VALUE_H
#define RN_TEXT_TEMPLATE_VALUE_H

#include <ration/text.h>

typedef struct rn_jinja_run rn_jinja_run;
typedef struct rn_jinja_builtin rn_jinja_builtin;
typedef struct rn_jinja_list rn_jinja_list;
typedef struct rn_jinja_dict rn_jinja_dict;
typedef struct rn_jinja_range rn_jinja_range;
typedef struct rn_jinja_iterator rn_jinja_iterator;
typedef struct rn_jinja_loop rn_jinja_loop;
typedef struct rn_jinja_macro rn_jinja_macro;
typedef struct rn_jinja_method rn_jinja_method;

typedef enum rn_jinja_type {
    RN_JINJA_MISSING,   // an argument that was not given; never seen by a template
    RN_JINJA_UNDEFINED, // `text` is the name that was looked for
    RN_JINJA_NONE,
    RN_JINJA_BOOL,
    RN_JINJA_INT,   // 64 bits; what would not fit is refused
    RN_JINJA_FLOAT, // finite; what would not be is refused
    RN_JINJA_TEXT,
    RN_JINJA_LIST,
    RN_JINJA_TUPLE,
    RN_JINJA_DICT,
    RN_JINJA_RANGE,
    RN_JINJA_KEYS, // d.keys(), d.values(), d.items(): views of a dict
    RN_JINJA_VALUES,
    RN_JINJA_ITEMS,
    RN_JINJA_ITERATOR, // what map, select, ... give: can be walked once
    RN_JINJA_NAMESPACE,
    RN_JINJA_LOOP,
    RN_JINJA_MACRO,
    RN_JINJA_FUNCTION,
    RN_JINJA_METHOD,
    RN_JINJA_TYPE_COUNT
} rn_jinja_type;

typedef struct rn_jinja_value {
    rn_jinja_type type;
    bool is_markup; // TEXT that went through `safe`: Python would escape what is added to it
    union {
        bool truth;
        int64_t whole;
        double real;
        rn_str text;
        const rn_jinja_list *list; // LIST, TUPLE
        rn_jinja_dict *dict;       // DICT, its views, NAMESPACE
        const rn_jinja_range *range;
        rn_jinja_iterator *iterator;
        rn_jinja_loop *loop;
        const rn_jinja_macro *macro;
        const rn_jinja_builtin *function;
        const rn_jinja_method *method;
    };
} rn_jinja_value;

struct rn_jinja_list {
    rn_jinja_value *items; // (capacity)
    size_t count, capacity;
};

// Keys in the order in which they came.
struct rn_jinja_dict {
    rn_jinja_value *keys, *values; // (capacity)
    size_t count, capacity;
};

struct rn_jinja_range {
    int64_t start, stop, step;
    size_t count;
};

// A walk over something: `at` is the next item's index, for text its byte.
struct rn_jinja_iterator {
    rn_jinja_value of;
    size_t at;
};

// A method that was taken from its object, and not called yet.
struct rn_jinja_method {
    rn_jinja_value self;
    const rn_jinja_builtin *row;
};

// ---- making ----------------------------------------------------------------------------

static inline rn_jinja_value rn_jinja_none(void) {
    return (rn_jinja_value){.type = RN_JINJA_NONE};
}
static inline rn_jinja_value rn_jinja_bool(bool truth) {
    return (rn_jinja_value){.type = RN_JINJA_BOOL, .truth = truth};
}
static inline rn_jinja_value rn_jinja_int(int64_t whole) {
    return (rn_jinja_value){.type = RN_JINJA_INT, .whole = whole};
}
static inline rn_jinja_value rn_jinja_float(double real) {
    return (rn_jinja_value){.type = RN_JINJA_FLOAT, .real = real};
}
static inline rn_jinja_value rn_jinja_text(rn_str text) {
    return (rn_jinja_value){.type = RN_JINJA_TEXT, .text = text};
}
static inline rn_jinja_value rn_jinja_undefined(rn_str name) {
    return (rn_jinja_value){.type = RN_JINJA_UNDEFINED, .text = name};
}
// LIST or TUPLE.
static inline rn_jinja_value rn_jinja_sequence(rn_jinja_type type, const rn_jinja_list *list) {
    return (rn_jinja_value){.type = type, .list = list};
}
RN_MUST_USE rn_status rn_jinja_list_new(rn_jinja_run *run, rn_jinja_list **out);
RN_MUST_USE rn_status rn_jinja_list_add(rn_jinja_run *run, rn_jinja_list *list,
                                        rn_jinja_value item);
RN_MUST_USE rn_status rn_jinja_pair(rn_jinja_run *run, rn_jinja_value first, rn_jinja_value second,
                                    rn_jinja_value *out);
RN_MUST_USE rn_status rn_jinja_dict_new(rn_jinja_run *run, rn_jinja_dict **out);
// Adds the key or replaces its value; a key that Python could not hash is RN_INVALID.
RN_MUST_USE rn_status rn_jinja_dict_set(rn_jinja_run *run, rn_jinja_dict *dict, rn_jinja_value key,
                                        rn_jinja_value value);
// A walk over `items` that a template can make once.
RN_MUST_USE rn_status rn_jinja_iterator_new(rn_jinja_run *run, const rn_jinja_list *items,
                                            rn_jinja_value *out);

// ---- asking ----------------------------------------------------------------------------

// "dict", "text", ...: for messages.
const char *rn_jinja_type_name(rn_jinja_type type);
bool rn_jinja_truth(rn_jinja_value value);
// bool, int or float.
bool rn_jinja_is_number(rn_jinja_value value);
// bool or int, as an int.
bool rn_jinja_as_int(rn_jinja_value value, int64_t *out);
double rn_jinja_as_float(rn_jinja_value number);
// Whether it has a length, and which.
bool rn_jinja_length(rn_jinja_value value, size_t *out);
bool rn_jinja_is_iterable(rn_jinja_value value);
RN_MUST_USE rn_status rn_jinja_equal(rn_jinja_run *run, rn_jinja_value a, rn_jinja_value b,
                                     bool *out);
// a < b.
RN_MUST_USE rn_status rn_jinja_less(rn_jinja_run *run, rn_jinja_value a, rn_jinja_value b,
                                    bool *out);
// item in container.
RN_MUST_USE rn_status rn_jinja_contains(rn_jinja_run *run, rn_jinja_value container,
                                        rn_jinja_value item, bool *out);
// *out stays as it is where the key is not found.
RN_MUST_USE rn_status rn_jinja_dict_find(rn_jinja_run *run, const rn_jinja_dict *dict,
                                         rn_jinja_value key, bool *out_found, rn_jinja_value *out);

// ---- walking ---------------------------------------------------------------------------

RN_MUST_USE rn_status rn_jinja_iterate(rn_jinja_run *run, rn_jinja_value over,
                                       rn_jinja_iterator *out);
RN_MUST_USE rn_status rn_jinja_next(rn_jinja_run *run, rn_jinja_iterator *walk, bool *out_more,
                                    rn_jinja_value *out);
// What is left, as a list.
RN_MUST_USE rn_status rn_jinja_collect(rn_jinja_run *run, rn_jinja_iterator *walk,
                                       rn_jinja_list **out);

// ---- getting parts ---------------------------------------------------------------------

// value.name, value[key], value[begin:end:step]; what is not there is UNDEFINED.
RN_MUST_USE rn_status rn_jinja_get_attribute(rn_jinja_run *run, rn_jinja_value of, rn_str name,
                                             rn_jinja_value *out);
RN_MUST_USE rn_status rn_jinja_get_item(rn_jinja_run *run, rn_jinja_value of, rn_jinja_value key,
                                        rn_jinja_value *out);
RN_MUST_USE rn_status rn_jinja_get_slice(rn_jinja_run *run, rn_jinja_value of,
                                         const rn_jinja_value bounds[3], rn_jinja_value *out);

// ---- writing ---------------------------------------------------------------------------

// str(value) and repr(value), added to the output.
RN_MUST_USE rn_status rn_jinja_print(rn_jinja_run *run, rn_jinja_value value);
RN_MUST_USE rn_status rn_jinja_print_repr(rn_jinja_run *run, rn_jinja_value value);
// str(value).
RN_MUST_USE rn_status rn_jinja_to_text(rn_jinja_run *run, rn_jinja_value value, rn_str *out);

typedef struct rn_jinja_json {
    bool ensure_ascii, sort_keys, has_indent;
    rn_str indent, item_separator, key_separator;
} rn_jinja_json;
// json.dumps(value, ...), added to the output.
RN_MUST_USE rn_status rn_jinja_print_json(rn_jinja_run *run, rn_jinja_value value,
                                          const rn_jinja_json *how);

#define RN_JINJA_FLOAT_TEXT 40
// repr(value) of a finite value: the shortest digits that read back the same. Returns their count.
size_t rn_jinja_format_float(double value, char out[RN_JINJA_FLOAT_TEXT]);
// Python's float("..."), without underscores: false where it is none.
RN_MUST_USE rn_status rn_jinja_parse_float(rn_str text, bool *out_good, double *out);

#endif
