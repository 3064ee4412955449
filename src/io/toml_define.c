// toml_define.c — keys and headers, and which of them may stand together.
//
// A table is defined once: by its header, by the dotted keys of one section, or in braces. What
// made it is its form, and each step along a key or header asks whether that form may be entered:
//
//     the name is     a header passes       a dotted key passes       [ ] or [[ ]] ends here
//     new             yes: IMPLICIT         yes: DOTTED               HEADER, or ITEMS with an ITEM
//     IMPLICIT        yes                   yes: it becomes DOTTED    [ ]: it becomes HEADER
//     DOTTED          yes                   yes                       no
//     HEADER          yes                   no                        no
//     ITEMS           yes: its last item    no                        [[ ]]: one item more
//     INLINE, values  no                    no                        no
//
// The keys of a DOTTED table have to stand in one section. Nothing more is needed for that: another
// section gets to it only through a HEADER, an ITEM or an inline table.
#include "io/toml_parser.h"

// Definitions change what the parser itself has made.
static rn_toml_value *find_entry(rn_toml_value *table, rn_str name) {
    return (rn_toml_value *)(uintptr_t)rn_toml_find(table, name);
}

static rn_status refuse_existing(rn_toml_parser *p, size_t offset, const rn_toml_value *existing) {
    static const char *const forms[] = {
        [RN_TOML_PLAIN] = "",
        [RN_TOML_ROOT] = "",
        [RN_TOML_HEADER] = " by its header",
        [RN_TOML_ITEM] = "",
        [RN_TOML_ITEMS] = " as an array of tables",
        [RN_TOML_IMPLICIT] = " by the header of a table in it",
        [RN_TOML_DOTTED] = " by dotted keys",
        [RN_TOML_INLINE] = " as an inline table",
    };
    rn_str name = rn_toml_clip(existing->key);
    return rn_toml_fail_at(p, offset, "'%.*s' is already defined on line %u%s", RN_STR_ARG(name),
                           existing->line, forms[existing->form]);
}

rn_status rn_toml_check_depth(rn_toml_parser *p, const rn_toml_value *parent, size_t offset) {
    if (parent->depth < RN_TOML_MAX_DEPTH) return RN_OK;
    return rn_toml_fail_at(p, offset, "nested more than %d deep", RN_TOML_MAX_DEPTH);
}

// A new table whose place is its name, text[offset, p->at).
static rn_status add_passed(rn_toml_parser *p, rn_toml_value *parent, rn_str name, size_t offset,
                            rn_toml_form form, rn_toml_value **out) {
    RN_TRY(rn_toml_check_depth(p, parent, offset));
    RN_TRY(rn_toml_add(p->doc, parent, name, RN_TOML_TABLE, form, out));
    rn_toml_mark(p, *out, offset);
    (*out)->end = (uint32_t)p->at;
    return RN_OK;
}

static rn_status pass_dotted(rn_toml_parser *p, rn_toml_value *parent, rn_str name, size_t offset,
                             rn_toml_value **out) {
    *out = find_entry(parent, name);
    if (!*out) return add_passed(p, parent, name, offset, RN_TOML_DOTTED, out);
    if ((*out)->form == RN_TOML_IMPLICIT) (*out)->form = RN_TOML_DOTTED;
    return (*out)->form == RN_TOML_DOTTED ? RN_OK : refuse_existing(p, offset, *out);
}

static rn_status pass_header(rn_toml_parser *p, rn_toml_value *parent, rn_str name, size_t offset,
                             rn_toml_value **out) {
    *out = find_entry(parent, name);
    if (!*out) return add_passed(p, parent, name, offset, RN_TOML_IMPLICIT, out);
    if ((*out)->form == RN_TOML_PLAIN || (*out)->form == RN_TOML_INLINE)
        return refuse_existing(p, offset, *out);
    if ((*out)->form == RN_TOML_ITEMS) *out = (*out)->items.last;
    return RN_OK;
}

typedef rn_status pass_fn(rn_toml_parser *p, rn_toml_value *parent, rn_str name, size_t offset,
                          rn_toml_value **out);

// Walks a key from *table: at the end *table holds the last name, which starts at *out_offset.
static rn_status walk_key(rn_toml_parser *p, pass_fn *pass, rn_toml_value **table, rn_str *out_name,
                          size_t *out_offset) {
    for (;;) {
        size_t offset = p->at;
        RN_TRY(rn_toml_parse_name(p, out_name));
        size_t end = p->at;
        rn_toml_skip_space(p);
        *out_offset = offset;
        if (p->text[p->at] != '.') return RN_OK;
        size_t dot = p->at;
        p->at = end;
        RN_TRY(pass(p, *table, *out_name, offset, table));
        p->at = dot + 1;
        rn_toml_skip_space(p);
    }
}

rn_status rn_toml_parse_entry(rn_toml_parser *p, rn_toml_value *table) {
    rn_toml_value *holder = table;
    rn_str name;
    size_t begin = p->at, offset;
    RN_TRY(walk_key(p, pass_dotted, &holder, &name, &offset));
    if (p->text[p->at] != '=') return rn_toml_fail_expected(p, "'=' after the key");
    const rn_toml_value *existing = rn_toml_find(holder, name);
    if (existing) return refuse_existing(p, offset, existing);
    p->at++;
    rn_toml_skip_space(p);
    RN_TRY(rn_toml_parse_value(p, holder, name));
    for (;; holder = holder->parent) {
        holder->items.last_begin = (uint32_t)begin;
        holder->items.last_end = (uint32_t)p->at;
        if (holder == table) return RN_OK;
    }
}

// [name] in `parent`.
static rn_status define_table(rn_toml_parser *p, rn_toml_value *parent, rn_str name, size_t offset,
                              rn_toml_value **out) {
    *out = find_entry(parent, name);
    if (!*out) {
        RN_TRY(rn_toml_check_depth(p, parent, offset));
        return rn_toml_add(p->doc, parent, name, RN_TOML_TABLE, RN_TOML_HEADER, out);
    }
    if ((*out)->form == RN_TOML_IMPLICIT) {
        (*out)->form = RN_TOML_HEADER;
        return RN_OK;
    }
    rn_status s = refuse_existing(p, offset, *out);
    return (*out)->form == RN_TOML_ITEMS ? rn_hint(s, "its items start with double brackets") : s;
}

// [[name]] in `parent`.
static rn_status define_item(rn_toml_parser *p, rn_toml_value *parent, rn_str name, size_t offset,
                             const rn_toml_value *place, rn_toml_value **out) {
    rn_toml_value *array = find_entry(parent, name);
    if (array && array->form != RN_TOML_ITEMS) return refuse_existing(p, offset, array);
    if (!array) {
        RN_TRY(rn_toml_check_depth(p, parent, offset));
        RN_TRY(rn_toml_add(p->doc, parent, name, RN_TOML_ARRAY, RN_TOML_ITEMS, &array));
        array->line = place->line;
        array->column = place->column;
        array->begin = place->begin;
        array->end = place->end;
    }
    RN_TRY(rn_toml_check_depth(p, array, offset));
    return rn_toml_add(p->doc, array, (rn_str){NULL, 0}, RN_TOML_TABLE, RN_TOML_ITEM, out);
}

static rn_status close_header(rn_toml_parser *p, bool is_item) {
    const char *closing = is_item ? "]]" : "]";
    if (strncmp(p->text + p->at, closing, strlen(closing)) != 0)
        return rn_toml_fail_expected(p, is_item ? "']]' after the name" : "']' after the name");
    p->at += strlen(closing);
    return RN_OK;
}

rn_status rn_toml_parse_header(rn_toml_parser *p) {
    bool is_item = p->text[p->at + 1] == '[';
    rn_toml_value place = {0}, *table = p->doc->root, *made;
    rn_str name;
    size_t offset;
    rn_toml_mark(p, &place, p->at);
    p->at += is_item ? 2 : 1;
    rn_toml_skip_space(p);
    RN_TRY(walk_key(p, pass_header, &table, &name, &offset));
    RN_TRY(close_header(p, is_item));
    place.end = (uint32_t)p->at;
    RN_TRY(is_item ? define_item(p, table, name, offset, &place, &made)
                   : define_table(p, table, name, offset, &made));
    made->line = place.line;
    made->column = place.column;
    made->begin = made->items.last_begin = place.begin;
    made->end = made->items.last_end = place.end;
    p->section->items.next_section = made;
    p->section = made;
    return RN_OK;
}
