// pickle.c — the pickle machine with half of its opcodes: those that make data.
//
//     stack  [ dict | list | entry | "addr" | 4096 ]
//     marks          ^      ^             each MARK remembers how deep the stack was
//     memo   [ dict, list, "addr", ... ]  objects that the pickle names again
//
// The other half is in the same table, by name and without a function: those are refused. Numbers
// and texts are in pickle_scalars.c.
#include "profile/foreign/pickle.h"

#include "base/checked.h"
#include "profile/foreign/pickle_machine.h"

rn_status rn_pickle_fail(const rn_pickle *p, const char *what) {
    rn_status s =
        rn_fail(RN_CORRUPT, "pickle: %s, before byte %llu", what, (unsigned long long)p->at);
    return rn_error_locate(s, "", p->at);
}

// ---- bytes of the file --------------------------------------------------------------------------

rn_status rn_pickle_take(rn_pickle *p, uint64_t bytes, const uint8_t **out) {
    *out = p->data + p->at;
    if (bytes > p->bytes - p->at) return rn_pickle_fail(p, "the file ends within a value");
    p->at += bytes;
    return RN_OK;
}

rn_status rn_pickle_take_number(rn_pickle *p, int bytes, uint64_t *out) {
    const uint8_t *from;
    *out = 0;
    RN_TRY(rn_pickle_take(p, (uint64_t)bytes, &from));
    for (int i = 0; i < bytes; i++)
        *out |= (uint64_t)from[i] << (8 * i);
    return RN_OK;
}

rn_status rn_pickle_take_line(rn_pickle *p, rn_str *out) {
    const uint8_t *from = p->data + p->at;
    const uint8_t *end = p->at < p->bytes ? memchr(from, '\n', p->bytes - p->at) : NULL;
    *out = (rn_str){"", 0};
    if (!end) return rn_pickle_fail(p, "a line does not end");
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

rn_status rn_pickle_push(rn_pickle *p, rn_pickle_value value) {
    RN_TRY(reserve(p, &p->stack, &p->stack_capacity, p->stack_count + 1));
    p->stack[p->stack_count++] = value;
    return RN_OK;
}

// How many values stand above the last mark.
static size_t above_mark(const rn_pickle *p) {
    return p->stack_count - (p->mark_count ? p->marks[p->mark_count - 1] : 0);
}

static rn_status need(const rn_pickle *p, size_t count) {
    return above_mark(p) >= count ? RN_OK : rn_pickle_fail(p, "an opcode wants more than there is");
}

static rn_status pop_mark(rn_pickle *p, size_t *out_from) {
    *out_from = 0;
    if (!p->mark_count) return rn_pickle_fail(p, "an opcode wants a MARK");
    *out_from = p->marks[--p->mark_count];
    return RN_OK;
}

rn_status rn_pickle_make_node(rn_pickle *p, rn_pickle_kind kind, rn_pickle_node **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_arena_alloc(&p->arena, sizeof(rn_pickle_node), &block));
    *out = block;
    (*out)->kind = (uint8_t)kind;
    return RN_OK;
}

rn_status rn_pickle_push_node(rn_pickle *p, const rn_pickle_node *node) {
    return rn_pickle_push(p, (rn_pickle_value){(uintptr_t)node | TAG_NODE});
}

// ---- lists, tuples, dictionaries ----------------------------------------------------------------

// One item behind another gets room for more of them; a batch exactly what it needs.
static rn_status add_chunk(rn_pickle *p, rn_pickle_node *node, size_t count) {
    void *block = NULL;
    size_t capacity = count > 2 ? count : rn_min_u64(rn_max_u64(node->count, count), 1024);
    if (capacity > UINT32_MAX) return rn_pickle_fail(p, "a list of more than 2^32 items");
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
        return rn_pickle_fail(p, kind == RN_PICKLE_LIST
                                     ? "items for something that is no open list"
                                     : "items for something that is no open dict");
    if (kind == RN_PICKLE_DICT && count % 2) return rn_pickle_fail(p, "a key without a value");
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
    RN_TRY(rn_pickle_make_node(p, (rn_pickle_kind)kind, &node));
    return rn_pickle_push_node(p, node);
}

// The items from `from` on become one object.
static rn_status gather(rn_pickle *p, rn_pickle_kind kind, size_t from) {
    rn_pickle_node *node;
    size_t count = p->stack_count - from;
    if (kind == RN_PICKLE_DICT && count % 2) return rn_pickle_fail(p, "a key without a value");
    RN_TRY(rn_pickle_make_node(p, kind, &node));
    RN_TRY(add_items(p, node, from, count));
    p->stack_count = from;
    return rn_pickle_push_node(p, node);
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
    return rn_pickle_push(p, p->stack[p->stack_count - 1]);
}

// Every object takes a byte, so a number above the offset is made up to make the memo large.
static rn_status put(rn_pickle *p, uint64_t number) {
    RN_TRY(need(p, 1));
    if (number >= p->at) return rn_pickle_fail(p, "a memo number larger than the file");
    RN_TRY(reserve(p, &p->memo, &p->memo_capacity, number + 1));
    p->memo[number] = p->stack[p->stack_count - 1];
    p->memo_count = rn_max_u64(p->memo_count, number + 1);
    return RN_OK;
}

static rn_status get(rn_pickle *p, uint64_t number) {
    if (number >= p->memo_count || !p->memo[number].word)
        return rn_pickle_fail(p, "a memo number that was not put");
    return rn_pickle_push(p, p->memo[number]);
}

static rn_status take_memo_number(rn_pickle *p, int bytes, uint64_t *out) {
    rn_str line;
    bool negative;
    if (bytes) return rn_pickle_take_number(p, bytes, out);
    *out = 0;
    RN_TRY(rn_pickle_take_line(p, &line));
    return rn_pickle_decimal(line, &negative, out) && !negative
               ? RN_OK
               : rn_pickle_fail(p, "a bad memo number");
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
    RN_TRY(rn_pickle_take_number(p, 1, &protocol));
    return protocol <= 5 ? RN_OK : rn_pickle_fail(p, "a protocol newer than 5");
}

// A frame only says how much a reader may read ahead.
static rn_status run_frame(rn_pickle *p, int unused) {
    uint64_t bytes;
    (void)unused;
    RN_TRY(rn_pickle_take_number(p, 8, &bytes));
    return bytes <= p->bytes - p->at ? RN_OK : rn_pickle_fail(p, "a frame longer than the file");
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
    ['N'] = {"NONE", rn_pickle_run_word, TAG_NONE},
    [0x88] = {"NEWTRUE", rn_pickle_run_word, TAG_TRUE},
    [0x89] = {"NEWFALSE", rn_pickle_run_word, TAG_FALSE},
    ['I'] = {"INT", rn_pickle_run_int_line, 0},
    ['L'] = {"LONG", rn_pickle_run_int_line, 1},
    ['K'] = {"BININT1", rn_pickle_run_binint, 1},
    ['M'] = {"BININT2", rn_pickle_run_binint, 2},
    ['J'] = {"BININT", rn_pickle_run_binint, 4},
    [0x8a] = {"LONG1", rn_pickle_run_long, 1},
    [0x8b] = {"LONG4", rn_pickle_run_long, 4},
    ['F'] = {"FLOAT", rn_pickle_run_float_line},
    ['G'] = {"BINFLOAT", rn_pickle_run_binfloat},
    ['V'] = {"UNICODE", rn_pickle_run_text_line},
    [0x8c] = {"SHORT_BINUNICODE", rn_pickle_run_text, 1},
    ['X'] = {"BINUNICODE", rn_pickle_run_text, 4},
    [0x8d] = {"BINUNICODE8", rn_pickle_run_text, 8},
    ['C'] = {"SHORT_BINBYTES", rn_pickle_run_bytes, 1},
    ['B'] = {"BINBYTES", rn_pickle_run_bytes, 4},
    [0x8e] = {"BINBYTES8", rn_pickle_run_bytes, 8},
    [0x96] = {"BYTEARRAY8", rn_pickle_run_bytes, 8},
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
        return rn_error_locate(s, "", at);
    }
    s = rn_fail(RN_UNSUPPORTED, "pickle: opcode %s at byte %llu is refused", opcodes[code].name,
                (unsigned long long)at);
    s = rn_hint(s, "only plain data is read (dicts, lists, numbers, text): a memory snapshot has "
                   "nothing else. Do not load this file with Python if you do not trust it");
    return rn_error_locate(s, "", at);
}

static rn_status finish(const rn_pickle *p, rn_pickle_value *out) {
    if (p->mark_count || p->stack_count != 1)
        return rn_pickle_fail(p, "STOP where not exactly one value is left");
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
    return rn_pickle_fail(p, "the file ends without a STOP");
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
