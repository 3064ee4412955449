// schema_exclusive.c — "oneOf": whether what one alternative writes can satisfy another.
//
// A rule is read in two ways: as what is written (of objects only the properties that are named,
// ...), and as what the schema accepts, which may be more. refuses(a, b) is true only where no text
// that is written by rule a is accepted by the schema of rule b; where that is not seen, it is
// false:
//
//     {"kind": {"const": "cat"}, ...}  {"kind": {"const": "dog"}, ...}    kind is required in a,
//     and b
//                                                                         refuses its value
//     {"a": ...}, required a           {"b": ...}, required b             a never writes "b"
#include "text/constraint/schema_parts.h"

#include "base/number.h"
#include "base/str.h"

#include <math.h>
#include <string.h>

enum { MOST_LEVELS = 12, MOST_STEPS = 1 << 20 };

typedef struct comparison {
    const rn_json_rules *rules;
    uint64_t steps; // so far, of the whole schema: references can make a small one a large tree
} comparison;

// False: it would take too long, and nothing is shown.
static bool spend(comparison *c, uint32_t steps) {
    c->steps += steps;
    return c->steps <= MOST_STEPS;
}

static bool refuses(comparison *c, uint32_t a, uint32_t b, uint32_t levels);

static bool refuses_by_each(comparison *c, uint32_t a, uint32_t b, uint32_t levels) {
    const rn_json_rule *x = &c->rules->rules[a], *y = &c->rules->rules[b];
    const rn_json_rule *list = x->form == RN_FORM_ANY_OF ? x : y;
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t one = c->rules->list[list->first + i];
        if (!(list == x ? refuses(c, one, b, levels + 1) : refuses(c, a, one, levels + 1)))
            return false;
    }
    return true;
}

// ---- values -------------------------------------------------------------------------------------

static bool number_of(rn_str text, double *out) {
    return strchr("-0123456789", text.data[0]) && rn_number_read(text, out) == RN_OK;
}

static rn_json_form form_of(rn_str text) {
    double number;
    if (text.data[0] == '{') return RN_FORM_OBJECT;
    if (text.data[0] == '[') return RN_FORM_ARRAY;
    if (text.data[0] == '"') return RN_FORM_STRING;
    return number_of(text, &number) ? RN_FORM_NUMBER : RN_FORM_LITERALS;
}

static bool is_outside(const rn_json_rule *r, double value) {
    if (r->whole && value != floor(value)) return true;
    if (r->has_low && (value < r->low || (r->without_low && value == r->low))) return true;
    return r->has_high && (value > r->high || (r->without_high && value == r->high));
}

// Objects and lists can be equal and be written in different ways.
static bool texts_differ(rn_str a, rn_str b) {
    double x, y;
    rn_json_form form = form_of(a);
    if (form != form_of(b)) return true;
    if (form == RN_FORM_NUMBER && number_of(a, &x) && number_of(b, &y)) return x != y;
    bool plain = form == RN_FORM_STRING || form == RN_FORM_LITERALS;
    return plain && !rn_str_equal(a, b);
}

static bool text_is_refused(comparison *c, rn_str text, const rn_json_rule *b) {
    double value;
    rn_json_form form = form_of(text);
    if (!spend(c, b->form == RN_FORM_LITERALS ? b->count : 1)) return false;
    if (b->form == RN_FORM_LITERALS) {
        for (uint32_t i = 0; i < b->count; i++)
            if (!texts_differ(text, c->rules->texts[b->first + i])) return false;
        return true;
    }
    if (form != b->form) return !b->guessed;
    return form == RN_FORM_NUMBER && number_of(text, &value) && is_outside(b, value);
}

static bool literals_are_refused(comparison *c, const rn_json_rule *a, const rn_json_rule *b) {
    for (uint32_t i = 0; i < a->count; i++)
        if (!text_is_refused(c, c->rules->texts[a->first + i], b)) return false;
    return true;
}

// Anything of a's form may be written.
static bool refused_by_literals(comparison *c, const rn_json_rule *a, const rn_json_rule *b) {
    if (!spend(c, b->count)) return false;
    for (uint32_t i = 0; i < b->count; i++) {
        rn_str text = c->rules->texts[b->first + i];
        double value;
        if (form_of(text) != a->form) continue;
        if (a->form != RN_FORM_NUMBER || !number_of(text, &value) || !is_outside(a, value))
            return false;
    }
    return true;
}

// Written below b's lowest, or above its highest.
static bool numbers_are_apart(const rn_json_rule *a, const rn_json_rule *b) {
    bool below = a->has_high && b->has_low &&
                 (a->high < b->low || (a->high == b->low && (a->without_high || b->without_low)));
    bool above = a->has_low && b->has_high &&
                 (a->low > b->high || (a->low == b->high && (a->without_low || b->without_high)));
    return below || above;
}

// ---- arrays and objects -------------------------------------------------------------------------

static uint32_t item_rule(const rn_json_rules *rules, const rn_json_rule *r, uint32_t i) {
    return i < r->count ? rules->list[r->first + i] : r->rest;
}

static bool arrays_are_apart(comparison *c, const rn_json_rule *a, const rn_json_rule *b,
                             uint32_t levels) {
    uint32_t most = a->rest == RN_NO_RULE && a->count < a->most ? a->count : a->most;
    uint32_t longest = b->rest == RN_NO_RULE && b->count < b->most ? b->count : b->most;
    if (most < b->least || a->least > longest) return true;
    uint32_t seen = a->count > b->count ? a->count : b->count;
    for (uint32_t i = 0; i < a->least && i <= seen; i++) {
        uint32_t x = item_rule(c->rules, a, i), y = item_rule(c->rules, b, i);
        if (x != RN_NO_RULE && y != RN_NO_RULE && refuses(c, x, y, levels + 1)) return true;
    }
    return false;
}

static const rn_json_property *find_property(const rn_json_rules *rules, const rn_json_rule *r,
                                             rn_str name) {
    for (uint32_t i = 0; i < r->count; i++)
        if (rn_str_equal(rules->properties[r->first + i].name, name))
            return &rules->properties[r->first + i];
    return NULL;
}

static bool objects_are_apart(comparison *c, const rn_json_rule *a, const rn_json_rule *b,
                              uint32_t levels) {
    for (uint32_t i = 0; i < a->count; i++) { // that a always writes
        const rn_json_property *p = &c->rules->properties[a->first + i];
        if (!spend(c, b->count)) return false;
        if (!p->required) continue;
        const rn_json_property *q = find_property(c->rules, b, p->name);
        if (!q && b->closed) return true;
        if (q && refuses(c, p->rule, q->rule, levels + 1)) return true;
    }
    for (uint32_t i = 0; i < b->count && a->rest == RN_NO_RULE; i++) { // that a never writes
        const rn_json_property *q = &c->rules->properties[b->first + i];
        if (!spend(c, a->count)) return false;
        if (q->required && !find_property(c->rules, a, q->name)) return true;
    }
    return false;
}

// ---- all of it ----------------------------------------------------------------------------------

static bool refuses(comparison *c, uint32_t a, uint32_t b, uint32_t levels) {
    const rn_json_rule *x = &c->rules->rules[a], *y = &c->rules->rules[b];
    if (levels > MOST_LEVELS || !spend(c, 1)) return false;
    if (x->form == RN_FORM_NEVER || y->form == RN_FORM_NEVER) return true;
    if (x->form == RN_FORM_ANY_OF || y->form == RN_FORM_ANY_OF)
        return refuses_by_each(c, a, b, levels);
    if (x->form == RN_FORM_LITERALS) return literals_are_refused(c, x, y);
    if (y->form == RN_FORM_LITERALS) return refused_by_literals(c, x, y);
    if (x->form != y->form) return !y->guessed;
    switch (x->form) {
    case RN_FORM_OBJECT:
        return objects_are_apart(c, x, y, levels);
    case RN_FORM_ARRAY:
        return arrays_are_apart(c, x, y, levels);
    case RN_FORM_STRING:
        return x->least > y->most || x->most < y->least;
    default:
        return numbers_are_apart(x, y);
    }
}

static rn_status check_rule(comparison *c, const rn_json_rule *r) {
    for (uint32_t i = 0; i < r->count; i++)
        for (uint32_t k = 0; k < r->count; k++) {
            uint32_t a = c->rules->list[r->first + i], b = c->rules->list[r->first + k];
            if (i == k || refuses(c, a, b, 0)) continue;
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "the schema, at byte %u: a text of alternative %u of \"oneOf\" "
                                   "may satisfy alternative %u, too",
                                   r->source, i, k),
                           "write \"anyOf\", or give both a required property with another "
                           "\"const\" each");
        }
    return RN_OK;
}

rn_status rn_schema_check_exclusive(const rn_json_rules *rules) {
    comparison c = {.rules = rules};
    for (uint32_t i = 0; i < rules->rule_count; i++)
        if (rules->rules[i].exclusive) RN_TRY(check_rule(&c, &rules->rules[i]));
    return RN_OK;
}
