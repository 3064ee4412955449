// json_machine.c — see json_machine.h.
//
// Phases of a frame; what is in brackets is behind it:
//
//     START            white space, then any value of the rule
//     OBJECT   OPEN [{]  KEY ["na]  OTHER_KEY ["x]  COLON ["name"]  NEXT [value]  COMMA [,]
//     ARRAY    OPEN [[]  NEXT [value]                (behind a comma: START of the next item)
//     STRING   TEXT ["ab]
//     NUMBER   MINUS [-]  ZERO [0]  WHOLE [12]  POINT [1.]  FRACTION [1.5]  EXPONENT [1e]  SIGN
//     [1e-]
//              POWER [1e-7]
//     LITERALS LITERAL [tr]
//     DONE             the outermost value is complete
//
// Numbers and literals have no last byte of their own: the byte behind them ends them.
#include "text/constraint/json_machine.h"

#include "base/checked.h"
#include "base/str.h"

#include <math.h>
#include <string.h>

enum phase {
    START,
    OPEN,
    KEY,
    OTHER_KEY,
    COLON,
    NEXT,
    COMMA,
    TEXT,
    MINUS,
    ZERO,
    WHOLE,
    POINT,
    FRACTION,
    EXPONENT,
    SIGN,
    POWER,
    LITERAL,
    DONE
};
enum { NOTHING = RN_JSON_POOL, MOST_INDENT = 64, MOST_DIGITS = 15, MOST_POWER = 2, STARTS = 256 };

// What is left to do for one byte.
typedef struct stepping {
    rn_json_machine *m;
    rn_json_state *out;
    uint8_t byte;
    uint32_t starts; // rules that were begun: alternatives within alternatives have a limit
} stepping;

static const rn_json_rule *rule_of(const rn_json_machine *m, const rn_json_frame *f) {
    return &m->rules->rules[f->rule];
}

// ---- threads and the pool -----------------------------------------------------------------------

static bool same_frame(const rn_json_frame *a, const rn_json_frame *b) {
    return a->rule == b->rule && a->phase == b->phase && a->space == b->space && a->at == b->at &&
           a->value == b->value;
}

// More ways than there is room for are left out: what remains is still allowed.
static void add(stepping *s, rn_json_frame top, uint16_t below) {
    rn_json_state *out = s->out;
    for (uint32_t i = 0; i < out->count; i++)
        if (out->threads[i].below == below && same_frame(&out->threads[i].top, &top)) return;
    if (out->count == RN_JSON_THREADS) return;
    out->threads[out->count++] = (rn_json_thread){.top = top, .below = below};
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_frame(uint64_t hash, const rn_json_frame *f) {
    hash = mix(hash, f->rule);
    hash = mix(hash, (uint64_t)f->phase << 32 | (uint64_t)f->space << 16 | f->at);
    return mix(hash, f->value);
}

static uint16_t levels_below(const rn_json_machine *m, uint16_t below) {
    return below == NOTHING ? 0 : m->pool[below].levels;
}

// The equal frame of the pool, or a new one; NOTHING: the pool is full.
static uint16_t push(rn_json_machine *m, const rn_json_frame *frame, uint16_t below) {
    uint64_t hash = hash_frame(below == NOTHING ? m->rules->key : m->pool[below].hash, frame);
    uint32_t at = (uint32_t)hash % (2 * RN_JSON_POOL);
    for (; m->table[at]; at = (at + 1) % (2 * RN_JSON_POOL)) {
        const rn_json_pool_frame *f = &m->pool[m->table[at] - 1];
        if (f->hash == hash && f->below == below && same_frame(&f->frame, frame))
            return (uint16_t)(m->table[at] - 1);
    }
    if (m->pool_count == RN_JSON_POOL) return NOTHING;
    m->pool[m->pool_count] = (rn_json_pool_frame){.frame = *frame,
                                                  .hash = hash,
                                                  .below = below,
                                                  .levels = (uint16_t)(levels_below(m, below) + 1)};
    m->table[at] = (uint16_t)(m->pool_count + 1);
    return (uint16_t)m->pool_count++;
}

// ---- white space --------------------------------------------------------------------------------

// A blank; or a line break and its indentation. 0: none yet, 1: a blank, 2 + n: a line break and n
// more. False: not white space, or too much of it.
static bool space_step(uint8_t byte, uint8_t *space) {
    bool in_line = *space >= 2 && *space < 2 + MOST_INDENT;
    if (byte == '\n' && *space == 0)
        *space = 2;
    else if (byte == ' ' && *space == 0)
        *space = 1;
    else if ((byte == ' ' || byte == '\t') && in_line)
        ++*space;
    else
        return false;
    return true;
}

static bool is_space(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\t';
}

// ---- a value is complete ------------------------------------------------------------------------

// The frame that a complete value leaves on top.
static rn_json_thread pop(const rn_json_machine *m, uint16_t below) {
    if (below == NOTHING)
        return (rn_json_thread){.top = {.rule = m->rules->root, .phase = DONE}, .below = NOTHING};
    return (rn_json_thread){.top = m->pool[below].frame, .below = m->pool[below].below};
}

static void end_value(stepping *s, uint16_t below) {
    rn_json_thread t = pop(s->m, below);
    add(s, t.top, t.below);
}

// ---- texts that are given: literals and names ---------------------------------------------------

// Of sorted texts, those in [low, high) begin with the same `off` bytes.
typedef struct range {
    uint32_t low, high, off;
} range;

static uint64_t pack(range r) {
    return r.low | (uint64_t)r.high << 20 | (uint64_t)r.off << 40;
}

static range unpack(uint64_t value) {
    return (range){(uint32_t)value & 0xfffff, (uint32_t)(value >> 20) & 0xfffff,
                   (uint32_t)(value >> 40)};
}

static rn_str name_at(const rn_json_machine *m, const rn_json_rule *object, uint32_t sorted) {
    const rn_json_property *first = &m->rules->properties[object->first];
    return first[first[sorted].sorted].name;
}

static rn_str text_at(const rn_json_machine *m, const rn_json_rule *rule, uint32_t i) {
    if (rule->form == RN_FORM_OBJECT) return name_at(m, rule, i);
    return m->rules->texts[rule->first + i];
}

// The texts that go on with this byte.
static range narrow(const rn_json_machine *m, const rn_json_rule *rule, range r, uint8_t byte) {
    while (r.low < r.high) {
        rn_str text = text_at(m, rule, r.low);
        if (text.bytes > r.off && (uint8_t)text.data[r.off] >= byte) break;
        r.low++;
    }
    uint32_t end = r.low;
    while (end < r.high && (uint8_t)text_at(m, rule, end).data[r.off] == byte)
        end++;
    return (range){r.low, end, r.off + 1};
}

static bool is_whole_text(const rn_json_machine *m, const rn_json_rule *rule, range r) {
    return r.low < r.high && text_at(m, rule, r.low).bytes == r.off;
}

// ---- strings ------------------------------------------------------------------------------------

enum {
    PLAIN,
    MORE1,
    MORE2,
    MORE3,
    AFTER_E0,
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
    ESCAPE,
    HEX4,
    HEX3,
    HEX2,
    HEX1,
    AFTER_D // "\ud": no halves of pairs, so 0 to 7 follows
};

// Where a byte that begins no escape and is no quote leads; -1: nowhere.
static int lead(uint8_t b) {
    if (b >= 0x20 && b < 0x80) return PLAIN;
    if (b >= 0xc2 && b <= 0xdf) return MORE1;
    if (b == 0xe0) return AFTER_E0;
    if (b == 0xed) return AFTER_ED;
    if (b >= 0xe1 && b <= 0xef) return MORE2;
    if (b == 0xf0) return AFTER_F0;
    if (b == 0xf4) return AFTER_F4;
    return b >= 0xf1 && b <= 0xf3 ? MORE3 : -1;
}

static int hex_step(int state, uint8_t b) {
    bool digit = b >= '0' && b <= '9', letter = (b >= 'a' && b <= 'f') || (b >= 'A' && b <= 'F');
    if (!digit && !letter) return -1;
    if (state == AFTER_D) return b >= '0' && b <= '7' ? HEX2 : -1;
    if (state == HEX4 && (b == 'd' || b == 'D')) return AFTER_D;
    return state == HEX1 ? PLAIN : state + 1;
}

// Inside a character or an escape.
static int inner(int state, uint8_t b) {
    static const uint8_t least[] = {[AFTER_E0] = 0xa0, [AFTER_F0] = 0x90};
    static const uint8_t most[] = {[AFTER_ED] = 0x9f, [AFTER_F4] = 0x8f};
    if (state == ESCAPE) return b == 'u' ? HEX4 : b && strchr("\"\\/bfnrt", b) ? PLAIN : -1;
    if (state >= HEX4) return hex_step(state, b);
    uint8_t low = state == AFTER_E0 || state == AFTER_F0 ? least[state] : 0x80;
    uint8_t high = state == AFTER_ED || state == AFTER_F4 ? most[state] : 0xbf;
    if (b < low || b > high) return -1;
    if (state == MORE1) return PLAIN;
    return state == MORE2 || state == AFTER_E0 || state == AFTER_ED ? MORE1 : MORE2;
}

// value: characters that must still come, and above them those that may.
static void step_text(stepping *s, rn_json_frame f, uint16_t below) {
    uint32_t needed = (uint32_t)f.value, room = (uint32_t)(f.value >> 32);
    uint8_t b = s->byte;
    int next;
    if (f.space != PLAIN) {
        next = inner(f.space, b);
    } else if (b == '"') {
        if (needed == 0) end_value(s, below);
        return;
    } else {
        next = b == '\\' ? ESCAPE : lead(b);
        if (room == 0) return;
        if (needed) needed--;
        if (room != RN_UNLIMITED) room--;
        f.value = needed | (uint64_t)room << 32;
    }
    if (next < 0) return;
    f.space = (uint8_t)next;
    add(s, f, below);
}

// ---- numbers ------------------------------------------------------------------------------------

static uint32_t digits_of(const rn_json_frame *f) {
    return f->at & 0xff;
}

static uint32_t decimals_of(const rn_json_frame *f) {
    return f->at >> 8;
}

static bool in_limits(const rn_json_rule *r, double value) {
    return (!r->has_low || (r->without_low ? value > r->low : value >= r->low)) &&
           (!r->has_high || (r->without_high ? value < r->high : value <= r->high));
}

static double number_value(const rn_json_frame *f) {
    double value = (double)f->value / pow(10, decimals_of(f));
    return f->space & 1 ? -value : value;
}

// Whether some number that begins with these digits is within the limits: of each length, those
// that begin so are an interval.
static bool can_be_in_limits(const rn_json_rule *r, const rn_json_frame *f) {
    if (!r->has_low && !r->has_high) return true;
    if (f->phase == MINUS) return !r->has_low || r->low < 0;
    bool minus = f->space & 1, open = !r->whole && digits_of(f) < MOST_DIGITS;
    uint32_t longer = f->phase == WHOLE ? MOST_DIGITS - digits_of(f) : 0;
    double down = pow(10, decimals_of(f));
    for (uint32_t more = 0; more <= longer; more++) {
        double up = pow(10, more), from = (double)f->value * up / down, to = from;
        if (open) to = ((double)f->value + 1) * up / down; // ... which is not itself among them
        if (r->whole) to = from + up - 1;
        double low = minus ? -to : from, high = minus ? -from : to;
        bool without_low = r->without_low || (open && !minus);
        bool without_high = r->without_high || (open && minus);
        if ((!r->has_low || (without_low ? high > r->low : high >= r->low)) &&
            (!r->has_high || (without_high ? low < r->high : low <= r->high)))
            return true;
    }
    return false;
}

static void add_number(stepping *s, const rn_json_frame *f, uint16_t below) {
    if (can_be_in_limits(rule_of(s->m, f), f)) add(s, *f, below);
}

static bool number_may_end(const rn_json_machine *m, const rn_json_frame *f) {
    bool complete =
        f->phase == ZERO || f->phase == WHOLE || f->phase == FRACTION || f->phase == POWER;
    return complete && in_limits(rule_of(m, f), number_value(f));
}

static void put_digit(stepping *s, rn_json_frame f, uint16_t below) {
    bool fraction = f.phase == POINT || f.phase == FRACTION;
    if (f.phase == EXPONENT || f.phase == SIGN || f.phase == POWER) {
        uint32_t count = f.phase == POWER ? f.space >> 1 : 0;
        if (count == MOST_POWER) return;
        f.phase = POWER;
        f.space = (uint8_t)((count + 1) << 1 | (f.space & 1));
        add(s, f, below);
        return;
    }
    if (f.phase == ZERO || digits_of(&f) == MOST_DIGITS) return;
    f.value = f.value * 10 + (uint64_t)(s->byte - '0');
    f.at = (uint16_t)(f.at + 1 + (fraction ? 0x100 : 0));
    f.phase = fraction ? FRACTION : f.phase == MINUS && s->byte == '0' ? ZERO : WHOLE;
    add_number(s, &f, below);
}

// True: the byte belongs to the number, or could not.
static bool step_number(stepping *s, rn_json_frame f, uint16_t below) {
    const rn_json_rule *r = rule_of(s->m, &f);
    uint8_t b = s->byte;
    bool whole = f.phase == ZERO || f.phase == WHOLE;
    if (b >= '0' && b <= '9') {
        put_digit(s, f, below);
    } else if (b == '.') {
        if (!whole || r->whole || digits_of(&f) == MOST_DIGITS) return true;
        f.phase = POINT;
        add_number(s, &f, below);
    } else if (b == 'e' || b == 'E') {
        if (!(whole || f.phase == FRACTION) || r->whole || r->has_low || r->has_high) return true;
        f.phase = EXPONENT;
        f.space &= 1;
        add(s, f, below);
    } else if (b == '+' || b == '-') {
        if (f.phase != EXPONENT) return true;
        f.phase = SIGN;
        add(s, f, below);
    } else {
        return false;
    }
    return true;
}

static void start_number(stepping *s, uint32_t rule, uint16_t below) {
    uint8_t b = s->byte;
    rn_json_frame f = {.rule = rule};
    if (b == '-') {
        f.phase = MINUS;
        f.space = 1;
    } else if (b >= '0' && b <= '9') {
        f.phase = b == '0' ? ZERO : WHOLE;
        f.value = (uint64_t)(b - '0');
        f.at = 1;
    } else {
        return;
    }
    add_number(s, &f, below);
}

// ---- objects ------------------------------------------------------------------------------------

// The first required property from `at` on: no key behind it may come before it. count: none.
static uint32_t next_required(const rn_json_machine *m, const rn_json_rule *r, uint32_t at) {
    while (at < r->count && !m->rules->properties[r->first + at].required)
        at++;
    return at;
}

static bool is_allowed_key(const rn_json_machine *m, const rn_json_rule *r, uint32_t at,
                           uint32_t sorted) {
    uint32_t index = m->rules->properties[r->first + sorted].sorted;
    return index >= at && index <= next_required(m, r, at);
}

static bool some_key_is_allowed(const rn_json_machine *m, const rn_json_rule *r, uint32_t at,
                                range keys) {
    for (uint32_t i = keys.low; i < keys.high; i++)
        if (is_allowed_key(m, r, at, i)) return true;
    return false;
}

// Behind the quote that opens a key.
static void start_key(stepping *s, rn_json_frame f, uint16_t below) {
    const rn_json_rule *r = rule_of(s->m, &f);
    range all = {0, r->count, 0};
    f.space = 0;
    f.value = pack(all);
    f.phase = KEY;
    if (some_key_is_allowed(s->m, r, f.at, all)) add(s, f, below);
    f.phase = OTHER_KEY;
    if (r->rest != RN_NO_RULE && next_required(s->m, r, f.at) == r->count) add(s, f, below);
}

static void step_key(stepping *s, rn_json_frame f, uint16_t below) {
    const rn_json_rule *r = rule_of(s->m, &f);
    range keys = unpack(f.value);
    if (s->byte == '"') {
        if (!is_whole_text(s->m, r, keys) || !is_allowed_key(s->m, r, f.at, keys.low)) return;
        uint32_t index = s->m->rules->properties[r->first + keys.low].sorted;
        f.phase = COLON;
        f.at = (uint16_t)(index + 1);
        f.value = s->m->rules->properties[r->first + index].rule;
        add(s, f, below);
        return;
    }
    keys = narrow(s->m, r, keys, s->byte);
    f.value = pack(keys);
    if (some_key_is_allowed(s->m, r, f.at, keys)) add(s, f, below);
}

// Any key but those that have a name, written without escapes.
static void step_other_key(stepping *s, rn_json_frame f, uint16_t below) {
    const rn_json_rule *r = rule_of(s->m, &f);
    range keys = unpack(f.value);
    if (s->byte == '"' && f.space == PLAIN) {
        if (is_whole_text(s->m, r, keys)) return;
        f.phase = COLON;
        f.at = (uint16_t)r->count;
        f.value = r->rest;
        add(s, f, below);
        return;
    }
    int next = f.space != PLAIN ? inner(f.space, s->byte) : s->byte == '\\' ? -1 : lead(s->byte);
    if (next < 0) return;
    f.space = (uint8_t)next;
    keys = narrow(s->m, r, keys, s->byte);
    f.value = keys.low < keys.high ? pack(keys) : 0;
    add(s, f, below);
}

// The value behind a colon or comma: the frame goes into the pool, behind its value.
static void start_below(stepping *s, rn_json_frame f, uint16_t below, uint32_t rule) {
    uint16_t levels = levels_below(s->m, below);
    if (levels + 1 + s->m->rules->rules[rule].levels > RN_SCHEMA_LEVELS) return;
    f.phase = NEXT;
    f.space = 0;
    uint16_t at = push(s->m, &f, below);
    if (at != NOTHING) add(s, (rn_json_frame){.rule = rule, .phase = START}, at);
}

static void step_object(stepping *s, rn_json_frame f, uint16_t below) {
    const rn_json_rule *r = rule_of(s->m, &f);
    uint8_t b = s->byte;
    bool complete = next_required(s->m, r, f.at) == r->count;
    if (f.phase == COLON) {
        uint32_t rule = (uint32_t)f.value;
        f.value = 0;
        if (b == ':') start_below(s, f, below, rule);
    } else if (is_space(b)) { // behind a value only before the end
        if ((f.phase != NEXT || complete) && space_step(b, &f.space)) add(s, f, below);
    } else if (b == '"' && f.phase != NEXT) {
        start_key(s, f, below);
    } else if (b == '}' && f.phase != COMMA) {
        if (complete) end_value(s, below);
    } else if (b == ',' && f.phase == NEXT && f.space == 0) {
        f.phase = COMMA;
        if (f.at < r->count || r->rest != RN_NO_RULE) add(s, f, below);
    }
}

// ---- arrays -------------------------------------------------------------------------------------

// value: items so far, counted as far as it matters.
static uint32_t item_rule(const rn_json_machine *m, const rn_json_rule *r, uint64_t item) {
    if (item >= r->most) return RN_NO_RULE;
    return item < r->count ? m->rules->list[r->first + item] : r->rest;
}

static uint64_t count_item(const rn_json_rule *r, uint64_t items) {
    uint64_t matters = r->most != RN_UNLIMITED ? r->most : rn_max_u64(r->least, r->count);
    return rn_min_u64(items + 1, matters);
}

static void start(stepping *s, uint32_t rule, uint16_t below);

static void step_array(stepping *s, rn_json_frame f, uint16_t below) {
    const rn_json_rule *r = rule_of(s->m, &f);
    uint8_t b = s->byte;
    uint32_t item = item_rule(s->m, r, f.value);
    if (is_space(b)) {
        bool may = f.phase != NEXT || f.value >= r->least;
        if (may && space_step(b, &f.space)) add(s, f, below);
        return;
    }
    if (b == ']') {
        if (f.value >= r->least) end_value(s, below);
        return;
    }
    if (item == RN_NO_RULE || (f.phase == NEXT && (b != ',' || f.space))) return;
    rn_json_frame next = {.rule = f.rule, .phase = NEXT, .value = count_item(r, f.value)};
    if (f.phase == NEXT) {
        start_below(s, next, below, item);
        return;
    }
    if (levels_below(s->m, below) + 1 + s->m->rules->rules[item].levels > RN_SCHEMA_LEVELS) return;
    uint16_t at = push(s->m, &next, below);
    if (at != NOTHING) start(s, item, at);
}

// ---- any value ----------------------------------------------------------------------------------

// Its first byte, which is no white space.
static void start(stepping *s, uint32_t rule, uint16_t below) {
    const rn_json_rule *r = &s->m->rules->rules[rule];
    uint8_t b = s->byte;
    if (r->levels == RN_UNLIMITED || s->starts++ > STARTS) return;
    bool nests = r->form == RN_FORM_OBJECT || r->form == RN_FORM_ARRAY;
    if (nests && levels_below(s->m, below) + r->levels > RN_SCHEMA_LEVELS) return;
    switch (r->form) {
    case RN_FORM_ANY_OF:
        for (uint32_t i = 0; i < r->count; i++)
            start(s, s->m->rules->list[r->first + i], below);
        break;
    case RN_FORM_OBJECT:
        if (b == '{') add(s, (rn_json_frame){.rule = rule, .phase = OPEN}, below);
        break;
    case RN_FORM_ARRAY:
        if (b == '[') add(s, (rn_json_frame){.rule = rule, .phase = OPEN}, below);
        break;
    case RN_FORM_STRING:
        if (b == '"')
            add(s,
                (rn_json_frame){
                    .rule = rule, .phase = TEXT, .value = r->least | (uint64_t)r->most << 32},
                below);
        break;
    case RN_FORM_NUMBER:
        start_number(s, rule, below);
        break;
    case RN_FORM_LITERALS: {
        range texts = narrow(s->m, r, (range){0, r->count, 0}, b);
        if (texts.low < texts.high)
            add(s, (rn_json_frame){.rule = rule, .phase = LITERAL, .value = pack(texts)}, below);
        break;
    }
    default:
        break;
    }
}

static bool step_literal(stepping *s, rn_json_frame f, uint16_t below) {
    range texts = narrow(s->m, rule_of(s->m, &f), unpack(f.value), s->byte);
    if (texts.low == texts.high) return false;
    f.value = pack(texts);
    add(s, f, below);
    return true;
}

static void step_thread(stepping *s, const rn_json_thread *t) {
    rn_json_frame f = t->top;
    bool ends = false; // what has no last byte ends before this one, where it may
    if (f.phase == START) {
        if (!is_space(s->byte))
            start(s, f.rule, t->below);
        else if (space_step(s->byte, &f.space))
            add(s, f, t->below);
    } else if (f.phase == TEXT) {
        step_text(s, f, t->below);
    } else if (f.phase == KEY) {
        step_key(s, f, t->below);
    } else if (f.phase == OTHER_KEY) {
        step_other_key(s, f, t->below);
    } else if (f.phase >= MINUS && f.phase <= POWER) {
        ends = !step_number(s, f, t->below) && number_may_end(s->m, &f);
    } else if (f.phase == LITERAL) {
        ends = !step_literal(s, f, t->below) &&
               is_whole_text(s->m, rule_of(s->m, &f), unpack(f.value));
    } else if (f.phase != DONE) {
        (rule_of(s->m, &f)->form == RN_FORM_OBJECT ? step_object : step_array)(s, f, t->below);
    }
    if (!ends) return;
    rn_json_thread outer = pop(s->m, t->below);
    if (outer.top.phase != DONE) step_thread(s, &outer);
}

// ---- states -------------------------------------------------------------------------------------

void rn_json_machine_begin(rn_json_machine *m, const rn_json_rules *rules, rn_json_state *out) {
    m->rules = rules;
    m->pool_count = 0;
    memset(m->table, 0, sizeof m->table);
    out->count = 1;
    // As if there had been a blank: the text begins with the value.
    out->threads[0] = (rn_json_thread){.top = {.rule = rules->root, .phase = START, .space = 1},
                                       .below = NOTHING};
}

bool rn_json_machine_step(rn_json_machine *m, const rn_json_state *state, uint8_t byte,
                          rn_json_state *out) {
    stepping s = {.m = m, .out = out, .byte = byte};
    out->count = 0;
    for (uint32_t i = 0; i < state->count; i++)
        step_thread(&s, &state->threads[i]);
    return out->count > 0;
}

bool rn_json_machine_may_end(const rn_json_machine *m, const rn_json_state *state) {
    for (uint32_t i = 0; i < state->count; i++) {
        const rn_json_thread *t = &state->threads[i];
        if (t->below != NOTHING) continue;
        if (t->top.phase == DONE || number_may_end(m, &t->top)) return true;
        if (t->top.phase == LITERAL && is_whole_text(m, rule_of(m, &t->top), unpack(t->top.value)))
            return true;
    }
    return false;
}

void rn_json_machine_tidy(rn_json_machine *m, rn_json_state *state) {
    uint16_t kept[RN_JSON_POOL] = {0}; // 1 + where a frame has gone; 0: nowhere yet
    if (m->pool_count < RN_JSON_POOL / 2) return;
    for (uint32_t i = 0; i < state->count; i++)
        for (uint16_t at = state->threads[i].below; at != NOTHING; at = m->pool[at].below)
            kept[at] = 1;
    // A frame stands behind those below it, so that each finds where they have gone.
    uint32_t old_count = m->pool_count;
    m->pool_count = 0;
    memset(m->table, 0, sizeof m->table);
    for (uint32_t i = 0; i < old_count; i++) {
        if (!kept[i]) continue;
        rn_json_pool_frame f = m->pool[i];
        uint16_t below = f.below == NOTHING ? NOTHING : (uint16_t)(kept[f.below] - 1);
        kept[i] = (uint16_t)(push(m, &f.frame, below) + 1);
    }
    for (uint32_t i = 0; i < state->count; i++)
        if (state->threads[i].below != NOTHING)
            state->threads[i].below = (uint16_t)(kept[state->threads[i].below] - 1);
}

// Characters that need not be counted yet are as good as many.
static rn_json_frame shorten(rn_json_frame f, uint32_t ahead) {
    if (f.phase != TEXT) return f;
    uint64_t needed = rn_min_u64((uint32_t)f.value, (uint64_t)ahead + 1);
    uint64_t room = rn_min_u64(f.value >> 32, (uint64_t)ahead + 1);
    f.value = needed | room << 32;
    return f;
}

uint64_t rn_json_machine_hash(const rn_json_machine *m, const rn_json_state *state,
                              uint32_t ahead) {
    uint64_t sum = 0; // in whatever order the threads are
    for (uint32_t i = 0; i < state->count; i++) {
        const rn_json_thread *t = &state->threads[i];
        rn_json_frame top = shorten(t->top, ahead);
        sum += hash_frame(t->below == NOTHING ? m->rules->key : m->pool[t->below].hash, &top);
    }
    return mix(sum, state->count);
}

bool rn_json_machine_in_text(const rn_json_state *state, uint32_t *out_room) {
    const rn_json_frame *f = &state->threads[0].top;
    *out_room = (uint32_t)(f->value >> 32);
    return state->count == 1 && f->phase == TEXT && f->space == PLAIN;
}
