// schema_levels.c — how deep the flattest text of each rule is nested, and so whether it has one at
// all.
#include "base/checked.h"
#include "text/constraint/json_rules.h"

#include <math.h>

static uint32_t deeper(uint32_t levels) {
    return levels == RN_UNLIMITED ? levels : levels + 1;
}

// A number of at most 15 digits between the limits.
static bool has_number(const rn_json_rule *r) {
    double most = 1e15;
    double low = r->has_low ? r->low : -most, high = r->has_high ? r->high : most;
    if (low >= most || high <= -most) return false;
    if (r->whole) return low <= high;
    bool point = low == high && !r->without_low && !r->without_high;
    // Narrower than this, digits might not get between them.
    return point || high - low >= 1e-9 * fmax(1, fmax(fabs(low), fabs(high)));
}

static uint32_t count_levels(const rn_json_rules *rules, const rn_json_rule *r) {
    uint32_t levels = 0;
    switch (r->form) {
    case RN_FORM_NEVER:
        return RN_UNLIMITED;
    case RN_FORM_ANY_OF:
        levels = RN_UNLIMITED;
        for (uint32_t i = 0; i < r->count; i++)
            levels = (uint32_t)rn_min_u64(levels, rules->rules[rules->list[r->first + i]].levels);
        return levels;
    case RN_FORM_OBJECT:
        for (uint32_t i = 0; i < r->count; i++) {
            const rn_json_property *p = &rules->properties[r->first + i];
            if (p->required) levels = (uint32_t)rn_max_u64(levels, rules->rules[p->rule].levels);
        }
        return deeper(levels);
    case RN_FORM_ARRAY:
        for (uint32_t i = 0; i < r->least && levels != RN_UNLIMITED; i++) {
            uint32_t item = i < r->count ? rules->list[r->first + i] : r->rest;
            levels = (uint32_t)rn_max_u64(levels, item == RN_NO_RULE ? RN_UNLIMITED
                                                                     : rules->rules[item].levels);
            if (i >= r->count) break; // the others are alike
        }
        return r->least > r->most ? RN_UNLIMITED : deeper(levels);
    case RN_FORM_STRING:
        return r->least > r->most ? RN_UNLIMITED : 0;
    case RN_FORM_NUMBER:
        return has_number(r) ? 0 : RN_UNLIMITED;
    default:
        return r->count ? 0 : RN_UNLIMITED;
    }
}

// The fewest levels of each rule: from "none can be written", as far as it changes.
void rn_json_rules_find_levels(rn_json_rules *rules) {
    bool changed = true;
    for (uint32_t i = 0; i < rules->rule_count; i++)
        rules->rules[i].levels = RN_UNLIMITED;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < rules->rule_count; i++) {
            uint32_t levels = count_levels(rules, &rules->rules[i]);
            changed |= levels < rules->rules[i].levels;
            rules->rules[i].levels = levels;
        }
    }
}
