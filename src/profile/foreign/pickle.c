// pickle.c — the pickle machine with half of its opcodes: those that make data.
//
//     stack  [ dict | list | entry | "addr" | 4096 ]
//     marks          ^      ^             each MARK remembers how deep the stack was
//     memo   [ dict, list, "addr", ... ]  objects that the pickle names again
//
// The other half is in the same table, by name and without a function: those are refused.
#include "profile/foreign/pickle.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"
#include "profile/foreign/pickle_value.h"

static rn_status fail_here(const rn_pickle *p, const char *what) {
    rn_status s =
        rn_fail(RN_CORRUPT, "pickle: %s, before byte %llu", what, (unsigned long long)p->at);
    return rn_blame(s, "", p->at);
}

// ---- bytes of the file --------------------------------------------------------------------------

static rn_status take(rn_pickle *p, uint64_t bytes, const uint8_t **out) {
    *out = p->data + p->at;
    if (bytes > p->bytes - p->at) return fail_here(p, "the file ends within a value");
    p->at += bytes;
    return RN_OK;
}

// A little-endian number of up to 8 bytes.
static rn_status take_number(rn_pickle *p, int bytes, uint64_t *out) {
    const uint8_t *from;
    *out = 0;
    RN_TRY(take(p, (uint64_t)bytes, &from));
    for (int i = 0; i < bytes; i++)
        *out |= (uint64_t)from[i] << (8 * i);
    return RN_OK;
}

// Up to the line break, which is passed.
static rn_status take_line(rn_pickle *p, rn_str *out) {
    const uint8_t *from = p->data + p->at;
    const uint8_t *end = p->at < p->bytes ? memchr(from, '\n', p->bytes - p->at) : NULL;
    *out = (rn_str){"", 0};
    if (!end) return fail_here(p, "a line does not end");
    *out = (rn_str){(const char *)from, (size_t)(end - from)};
    p->at += out->bytes + 1;
    return RN_OK;
}

// ---- stack and nodes ----------------------------------------------------------------------------

// Room for `count` items of 8 bytes; `items` points to the array's pointer, whatever its type.
static rn_status reserve(rn_pickle *p, void *items, size_t *capacity, size_t count) {
    void *old, *more = NULL;
    size_t wanted = *capacity ? *capacity : 256;
    if (count <= *capacity) return RN_OK;
    while (wanted < count)
        wanted *= 2;
    RN_TRY(rn_alloc_zeroed(p->from, wanted, sizeof(uint64_t), &more));
    memcpy(&old, items, sizeof old);
    if (old) memcpy(more, old, *capacity * sizeof(uint64_t));
    rn_free(p->from, old, *capacity * sizeof(uint64_t));
    memcpy(items, &more, sizeof more);
    *capacity = wanted;
    return RN_OK;
}

static rn_status push(rn_pickle *p, rn_pickle_value value) {
    RN_TRY(reserve(p, &p->stack, &p->stack_capacity, p->stack_count + 1));
    p->stack[p->stack_count++] = value;
    return RN_OK;
}

// How many values stand above the last mark.
static size_t above_mark(const rn_pickle *p) {
    return p->stack_count - (p->mark_count ? p->marks[p->mark_count - 1] : 0);
}

static rn_status need(const rn_pickle *p, size_t count) {
    return above_mark(p) >= count ? RN_OK : fail_here(p, "an opcode wants more than there is");
}

static rn_status pop_mark(rn_pickle *p, size_t *out_from) {
    *out_from = 0;
    if (!p->mark_count) return fail_here(p, "an opcode wants a MARK");
    *out_from = p->marks[--p->mark_count];
    return RN_OK;
}

static rn_status make_node(rn_pickle *p, rn_pickle_kind kind, rn_pickle_node **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_arena_alloc(&p->arena, sizeof(rn_pickle_node), &block));
    *out = block;
    (*out)->kind = (uint8_t)kind;
    return RN_OK;
}

static rn_status push_node(rn_pickle *p, const rn_pickle_node *node) {
    return push(p, (rn_pickle_value){(uintptr_t)node | TAG_NODE});
}

// ---- numbers ------------------------------------------------------------------------------------

static rn_status push_integer(rn_pickle *p, bool negative, uint64_t magnitude) {
    rn_pickle_node *node;
    uint64_t limit = (uint64_t)1 << (63 - TAG_BITS);
    if (magnitude < limit) {
        uint64_t word = (negative ? -magnitude : magnitude) << TAG_BITS;
        return push(p, (rn_pickle_value){word | TAG_INT});
    }
    RN_TRY(make_node(p, RN_PICKLE_INT, &node));
    node->integer = magnitude;
    node->is_negative = negative;
    return push_node(p, node);
}

static rn_status run_word(rn_pickle *p, int tag) {
    return push(p, (rn_pickle_value){(uint64_t)tag});
}

// BININT1, BININT2; BININT is signed.
static rn_status run_binint(rn_pickle *p, int bytes) {
    uint64_t number;
    RN_TRY(take_number(p, bytes, &number));
    bool negative = bytes == 4 && number >> 31;
    return push_integer(p, negative, negative ? ((uint64_t)1 << 32) - number : number);
}

// LONG1 and LONG4: two's complement of any length, of which a 64-bit number needs at most nine
// bytes.
static rn_status run_long(rn_pickle *p, int size_bytes) {
    const uint8_t *from;
    uint64_t bytes, number = 0;
    RN_TRY(take_number(p, size_bytes, &bytes));
    RN_TRY(take(p, bytes, &from));
    bool negative = bytes && from[bytes - 1] >> 7;
    for (uint64_t i = 0; i < bytes && i < 8; i++)
        number |= (uint64_t)from[i] << (8 * i);
    if (negative && bytes < 8) number |= ~(uint64_t)0 << (8 * bytes);
    if (bytes > 9 || (bytes == 9 && from[8] != 0))
        return fail_here(p, "a whole number of more than 64 bits");
    return push_integer(p, negative, negative ? -number : number);
}

static bool parse_decimal(rn_str text, bool *out_negative, uint64_t *out) {
    *out = 0;
    *out_negative = text.bytes && text.data[0] == '-';
    size_t at = *out_negative;
    bool good = at < text.bytes;
    for (; good && at < text.bytes; at++)
        good = text.data[at] >= '0' && text.data[at] <= '9' && rn_mul_u64(*out, 10, out) &&
               rn_add_u64(*out, (uint64_t)(text.data[at] - '0'), out);
    return good;
}

// INT and LONG: "12\n", "12L\n"; and "01\n" is True.
static rn_status run_int_line(rn_pickle *p, int is_long) {
    rn_str line;
    bool negative;
    uint64_t number;
    RN_TRY(take_line(p, &line));
    if (!is_long && rn_str_equal(line, RN_STR("01"))) return run_word(p, TAG_TRUE);
    if (!is_long && rn_str_equal(line, RN_STR("00"))) return run_word(p, TAG_FALSE);
    if (is_long && line.bytes && line.data[line.bytes - 1] == 'L') line.bytes--;
    if (!parse_decimal(line, &negative, &number)) return fail_here(p, "a bad whole number");
    return push_integer(p, negative, number);
}

static rn_status push_float(rn_pickle *p, double number) {
    rn_pickle_node *node;
    RN_TRY(make_node(p, RN_PICKLE_FLOAT, &node));
    node->number = number;
    return push_node(p, node);
}

static rn_status run_binfloat(rn_pickle *p, int unused) {
    const uint8_t *from;
    uint64_t word = 0;
    double number;
    (void)unused;
    RN_TRY(take(p, 8, &from));
    for (int i = 0; i < 8; i++)
        word = word << 8 | from[i];
    memcpy(&number, &word, sizeof number);
    return push_float(p, number);
}

static rn_status run_float_line(rn_pickle *p, int unused) {
    rn_str line;
    double number;
    (void)unused;
    RN_TRY(take_line(p, &line));
    if (!rn_foreign_number(line, &number)) return fail_here(p, "a bad number");
    return push_float(p, number);
}

// ---- text ---------------------------------------------------------------------------------------

static rn_status push_text(rn_pickle *p, rn_pickle_kind kind, rn_str text) {
    rn_pickle_node *node;
    RN_TRY(make_node(p, kind, &node));
    node->text = text;
    return push_node(p, node);
}

static rn_status run_sized(rn_pickle *p, rn_pickle_kind kind, int size_bytes) {
    const uint8_t *from;
    uint64_t bytes;
    RN_TRY(take_number(p, size_bytes, &bytes));
    RN_TRY(take(p, bytes, &from));
    return push_text(p, kind, (rn_str){(const char *)from, bytes});
}

static rn_status run_text(rn_pickle *p, int size_bytes) {
    return run_sized(p, RN_PICKLE_TEXT, size_bytes);
}

static rn_status run_bytes(rn_pickle *p, int size_bytes) {
    return run_sized(p, RN_PICKLE_BYTES, size_bytes);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The code point of "\uXXXX" or "\UXXXXXXXX" at `text`, or -1; what is not one stands for itself.
static int64_t read_escape(rn_str text, size_t *out_bytes) {
    size_t digits = text.bytes > 1 && text.data[0] == '\\' ? (text.data[1] == 'u'   ? 4
                                                              : text.data[1] == 'U' ? 8
                                                                                    : 0)
                                                           : 0;
    int64_t code = 0;
    *out_bytes = 2 + digits;
    if (!digits || text.bytes < *out_bytes) return -1;
    for (size_t i = 2; i < *out_bytes; i++) {
        int digit = hex_digit(text.data[i]);
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code < 0x110000 && (code < 0xD800 || code > 0xDFFF) ? code : '?';
}

// UNICODE of protocol 0: escapes, and every other byte is a code point below 256.
static rn_status run_text_line(rn_pickle *p, int unused) {
    rn_str line;
    void *block = NULL;
    size_t used = 0, step;
    (void)unused;
    RN_TRY(take_line(p, &line));
    RN_TRY(rn_arena_array(&p->arena, line.bytes, 2, &block));
    char *out = block;
    for (size_t at = 0; at < line.bytes; at += step) {
        int64_t code = read_escape((rn_str){line.data + at, line.bytes - at}, &step);
        if (code < 0) code = (uint8_t)line.data[at], step = 1;
        used += rn_utf8_encode((uint32_t)code, out + used);
    }
    return push_text(p, RN_PICKLE_TEXT, (rn_str){out, used});
}

// ---- lists, tuples, dictionaries ----------------------------------------------------------------

// One item behind another gets room for more of them; a batch exactly what it needs.
static rn_status add_chunk(rn_pickle *p, rn_pickle_node *node, size_t count) {
    void *block = NULL;
    size_t capacity = count > 2 ? count : rn_min_u64(rn_max_u64(node->count, count), 1024);
    if (capacity > UINT32_MAX) return fail_here(p, "a list of more than 2^32 items");
    size_t bytes = sizeof(rn_pickle_chunk) + capacity * sizeof(rn_pickle_value);
    RN_TRY(rn_arena_alloc(&p->arena, bytes, &block));
    rn_pickle_chunk *chunk = block;
    chunk->capacity = (uint32_t)capacity;
    *(node->last ? &node->last->next : &node->first) = chunk;
    node->last = chunk;
    return RN_OK;
}

static rn_status add_items(rn_pickle *p, rn_pickle_node *node, size_t from, size_t count) {
    if (!count) return RN_OK;
    if (!node->last || node->last->capacity - node->last->count < count)
        RN_TRY(add_chunk(p, node, count));
    memcpy(node->last->items + node->last->count, p->stack + from, count * sizeof *p->stack);
    node->last->count += (uint32_t)count;
    node->count += count;
    return RN_OK;
}

static rn_status offer(rn_pickle *p, rn_pickle_node *node, size_t from, size_t count) {
    const rn_pickle_folder *folder = &p->folder;
    if (node->count || !count || count >= RN_PICKLE_OFFER) return RN_OK;
    if (node->kind == RN_PICKLE_DICT && folder->dict)
        return folder->dict(folder->self, p->stack + from, count, node);
    if (node->kind == RN_PICKLE_LIST && folder->list)
        return folder->list(folder->self, p->stack + from, count, node);
    return RN_OK;
}

// The items from `from` on go into the list or dictionary below them. Single items may have others
// behind them; only a batch is all there is, and is offered.
static rn_status extend(rn_pickle *p, rn_pickle_kind kind, size_t from, bool is_batch) {
    size_t count = p->stack_count - from;
    rn_pickle_node *node = from ? rn_pickle_node_of(p->stack[from - 1]) : NULL;
    size_t floor = p->mark_count ? p->marks[p->mark_count - 1] : 0;
    if (!node || from <= floor || node->kind != kind)
        return fail_here(p, kind == RN_PICKLE_LIST ? "items for something that is no open list"
                                                   : "items for something that is no open dict");
    if (kind == RN_PICKLE_DICT && count % 2) return fail_here(p, "a key without a value");
    if (is_batch) RN_TRY(offer(p, node, from, count));
    if (node->kind == kind) RN_TRY(add_items(p, node, from, count));
    p->stack_count = from;
    return RN_OK;
}

static rn_status run_append(rn_pickle *p, int unused) {
    (void)unused;
    RN_TRY(need(p, 2));
    return extend(p, RN_PICKLE_LIST, p->stack_count - 1, false);
}

static rn_status run_setitem(rn_pickle *p, int unused) {
    (void)unused;
    RN_TRY(need(p, 3));
    return extend(p, RN_PICKLE_DICT, p->stack_count - 2, false);
}

static rn_status run_extend(rn_pickle *p, int kind) {
    size_t from;
    RN_TRY(pop_mark(p, &from));
    return extend(p, (rn_pickle_kind)kind, from, true);
}

static rn_status run_empty(rn_pickle *p, int kind) {
    rn_pickle_node *node;
    RN_TRY(make_node(p, (rn_pickle_kind)kind, &node));
    return push_node(p, node);
}

// The items from `from` on become one object.
static rn_status gather(rn_pickle *p, rn_pickle_kind kind, size_t from) {
    rn_pickle_node *node;
    size_t count = p->stack_count - from;
    if (kind == RN_PICKLE_DICT && count % 2) return fail_here(p, "a key without a value");
    RN_TRY(make_node(p, kind, &node));
    RN_TRY(add_items(p, node, from, count));
    p->stack_count = from;
    return push_node(p, node);
}

static rn_status run_gather(rn_pickle *p, int kind) {
    size_t from;
    RN_TRY(pop_mark(p, &from));
    return gather(p, (rn_pickle_kind)kind, from);
}

static rn_status run_tuple(rn_pickle *p, int count) {
    RN_TRY(need(p, (size_t)count));
    return gather(p, RN_PICKLE_TUPLE, p->stack_count - (size_t)count);
}

// ---- stack and memo -----------------------------------------------------------------------------

static rn_status run_mark(rn_pickle *p, int unused) {
    (void)unused;
    RN_TRY(reserve(p, &p->marks, &p->mark_capacity, p->mark_count + 1));
    p->marks[p->mark_count++] = p->stack_count;
    return RN_OK;
}

static rn_status run_pop(rn_pickle *p, int unused) {
    (void)unused;
    if (p->mark_count && above_mark(p) == 0) {
        p->mark_count--;
        return RN_OK;
    }
    RN_TRY(need(p, 1));
    p->stack_count--;
    return RN_OK;
}

static rn_status run_pop_mark(rn_pickle *p, int unused) {
    (void)unused;
    return pop_mark(p, &p->stack_count);
}

static rn_status run_dup(rn_pickle *p, int unused) {
    (void)unused;
    RN_TRY(need(p, 1));
    return push(p, p->stack[p->stack_count - 1]);
}

// Every object takes a byte, so a number above the offset is made up to make the memo large.
static rn_status put(rn_pickle *p, uint64_t number) {
    RN_TRY(need(p, 1));
    if (number >= p->at) return fail_here(p, "a memo number larger than the file");
    RN_TRY(reserve(p, &p->memo, &p->memo_capacity, number + 1));
    p->memo[number] = p->stack[p->stack_count - 1];
    p->memo_count = rn_max_u64(p->memo_count, number + 1);
    return RN_OK;
}

static rn_status get(rn_pickle *p, uint64_t number) {
    if (number >= p->memo_count || !p->memo[number].word)
        return fail_here(p, "a memo number that was not put");
    return push(p, p->memo[number]);
}

static rn_status take_memo_number(rn_pickle *p, int bytes, uint64_t *out) {
    rn_str line;
    bool negative;
    if (bytes) return take_number(p, bytes, out);
    *out = 0;
    RN_TRY(take_line(p, &line));
    return parse_decimal(line, &negative, out) && !negative ? RN_OK
                                                            : fail_here(p, "a bad memo number");
}

static rn_status run_put(rn_pickle *p, int bytes) {
    uint64_t number;
    RN_TRY(take_memo_number(p, bytes, &number));
    return put(p, number);
}

static rn_status run_get(rn_pickle *p, int bytes) {
    uint64_t number;
    RN_TRY(take_memo_number(p, bytes, &number));
    return get(p, number);
}

static rn_status run_memoize(rn_pickle *p, int unused) {
    (void)unused;
    return put(p, p->memo_count);
}

static rn_status run_protocol(rn_pickle *p, int unused) {
    uint64_t protocol;
    (void)unused;
    RN_TRY(take_number(p, 1, &protocol));
    return protocol <= 5 ? RN_OK : fail_here(p, "a protocol newer than 5");
}

// A frame only says how much a reader may read ahead.
static rn_status run_frame(rn_pickle *p, int unused) {
    uint64_t bytes;
    (void)unused;
    RN_TRY(take_number(p, 8, &bytes));
    return bytes <= p->bytes - p->at ? RN_OK : fail_here(p, "a frame longer than the file");
}

// ---- the table ----------------------------------------------------------------------------------

typedef struct opcode {
    const char *name;
    rn_status (*run)(rn_pickle *p, int argument); // NULL: refused
    int argument;
} opcode;

static const opcode opcodes[256] = {
    [0x80] = {"PROTO", run_protocol},
    [0x95] = {"FRAME", run_frame},
    ['('] = {"MARK", run_mark},
    ['0'] = {"POP", run_pop},
    ['1'] = {"POP_MARK", run_pop_mark},
    ['2'] = {"DUP", run_dup},
    ['N'] = {"NONE", run_word, TAG_NONE},
    [0x88] = {"NEWTRUE", run_word, TAG_TRUE},
    [0x89] = {"NEWFALSE", run_word, TAG_FALSE},
    ['I'] = {"INT", run_int_line, 0},
    ['L'] = {"LONG", run_int_line, 1},
    ['K'] = {"BININT1", run_binint, 1},
    ['M'] = {"BININT2", run_binint, 2},
    ['J'] = {"BININT", run_binint, 4},
    [0x8a] = {"LONG1", run_long, 1},
    [0x8b] = {"LONG4", run_long, 4},
    ['F'] = {"FLOAT", run_float_line},
    ['G'] = {"BINFLOAT", run_binfloat},
    ['V'] = {"UNICODE", run_text_line},
    [0x8c] = {"SHORT_BINUNICODE", run_text, 1},
    ['X'] = {"BINUNICODE", run_text, 4},
    [0x8d] = {"BINUNICODE8", run_text, 8},
    ['C'] = {"SHORT_BINBYTES", run_bytes, 1},
    ['B'] = {"BINBYTES", run_bytes, 4},
    [0x8e] = {"BINBYTES8", run_bytes, 8},
    [0x96] = {"BYTEARRAY8", run_bytes, 8},
    [']'] = {"EMPTY_LIST", run_empty, RN_PICKLE_LIST},
    ['l'] = {"LIST", run_gather, RN_PICKLE_LIST},
    ['a'] = {"APPEND", run_append},
    ['e'] = {"APPENDS", run_extend, RN_PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", run_empty, RN_PICKLE_TUPLE},
    ['t'] = {"TUPLE", run_gather, RN_PICKLE_TUPLE},
    [0x85] = {"TUPLE1", run_tuple, 1},
    [0x86] = {"TUPLE2", run_tuple, 2},
    [0x87] = {"TUPLE3", run_tuple, 3},
    ['}'] = {"EMPTY_DICT", run_empty, RN_PICKLE_DICT},
    ['d'] = {"DICT", run_gather, RN_PICKLE_DICT},
    ['s'] = {"SETITEM", run_setitem},
    ['u'] = {"SETITEMS", run_extend, RN_PICKLE_DICT},
    ['p'] = {"PUT", run_put, 0},
    ['q'] = {"BINPUT", run_put, 1},
    ['r'] = {"LONG_BINPUT", run_put, 4},
    ['g'] = {"GET", run_get, 0},
    ['h'] = {"BINGET", run_get, 1},
    ['j'] = {"LONG_BINGET", run_get, 4},
    [0x94] = {"MEMOIZE", run_memoize},
    // What would import, call or build something.
    ['c'] = {"GLOBAL"},
    [0x93] = {"STACK_GLOBAL"},
    ['R'] = {"REDUCE"},
    ['b'] = {"BUILD"},
    ['i'] = {"INST"},
    ['o'] = {"OBJ"},
    [0x81] = {"NEWOBJ"},
    [0x92] = {"NEWOBJ_EX"},
    [0x82] = {"EXT1"},
    [0x83] = {"EXT2"},
    [0x84] = {"EXT4"},
    ['P'] = {"PERSID"},
    ['Q'] = {"BINPERSID"},
    // What snapshots do not have: text of Python 2, sets, buffers outside the file.
    ['S'] = {"STRING"},
    ['T'] = {"BINSTRING"},
    ['U'] = {"SHORT_BINSTRING"},
    [0x8f] = {"EMPTY_SET"},
    [0x90] = {"ADDITEMS"},
    [0x91] = {"FROZENSET"},
    [0x97] = {"NEXT_BUFFER"},
    [0x98] = {"READONLY_BUFFER"},
};

static rn_status refuse(uint8_t code, uint64_t at) {
    rn_status s;
    if (!opcodes[code].name) {
        s = rn_fail(RN_CORRUPT, "pickle: byte 0x%02x at %llu is no opcode", code,
                    (unsigned long long)at);
        return rn_blame(s, "", at);
    }
    s = rn_fail(RN_UNSUPPORTED, "pickle: opcode %s at byte %llu is refused", opcodes[code].name,
                (unsigned long long)at);
    s = rn_hint(s, "only plain data is read (dicts, lists, numbers, text): a memory snapshot has "
                   "nothing else. Do not load this file with Python if you do not trust it");
    return rn_blame(s, "", at);
}

static rn_status finish(const rn_pickle *p, rn_pickle_value *out) {
    if (p->mark_count || p->stack_count != 1)
        return fail_here(p, "STOP where not exactly one value is left");
    *out = p->stack[0];
    return RN_OK;
}

rn_status rn_pickle_read(rn_pickle *p, const uint8_t *data, uint64_t bytes, rn_pickle_value *out) {
    p->data = data;
    p->bytes = bytes;
    p->at = 0;
    *out = (rn_pickle_value){TAG_NONE};
    while (p->at < bytes) {
        uint64_t at = p->at++;
        const opcode *code = &opcodes[data[at]];
        if (data[at] == '.') return finish(p, out);
        if (!code->run) return refuse(data[at], at);
        RN_TRY(code->run(p, code->argument));
    }
    return fail_here(p, "the file ends without a STOP");
}

bool rn_pickle_is(const uint8_t *data, uint64_t bytes) {
    static const uint8_t text_dict[] = "(dp", text_list[] = "(lp";
    if (bytes >= 2 && data[0] == 0x80) return data[1] >= 2 && data[1] <= 5;
    return bytes >= 3 && (memcmp(data, text_dict, 3) == 0 || memcmp(data, text_list, 3) == 0 ||
                          memcmp(data, "}q", 2) == 0 || memcmp(data, "]q", 2) == 0);
}

void rn_pickle_init(rn_pickle *p, const rn_allocator *from) {
    *p = (rn_pickle){.from = from};
    rn_arena_init(&p->arena, from, (size_t)256 << 10);
}

void rn_pickle_free(rn_pickle *p) {
    rn_free(p->from, p->stack, p->stack_capacity * sizeof *p->stack);
    rn_free(p->from, p->memo, p->memo_capacity * sizeof *p->memo);
    rn_free(p->from, p->marks, p->mark_capacity * sizeof *p->marks);
    rn_arena_free_all(&p->arena);
    rn_pickle_init(p, p->from);
}
