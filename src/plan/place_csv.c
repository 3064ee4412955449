// place_csv.c — reads and writes lists of buffers, the form that placement benchmarks share:
//
//     id,lower,upper,size          columns in any order; offset and align may follow
//     weights,0,21936,4100         alive at times 0 <= t < 21936, 4100 bytes
//
// The text is not trusted. It is walked twice: the lines are counted, which bounds all memory by
// the text's own size, then read. Quotes are refused rather than half understood.
#include "plan/place_csv.h"

#include "base/buffer.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/map.h"
#include "base/stop.h"
#include "memory/account.h"

// Those before OFFSET must be there.
typedef enum column { ID, LOWER, UPPER, SIZE, OFFSET, ALIGN, COLUMN_COUNT } column;

static const char *const column_names[COLUMN_COUNT] = {"id",   "lower",  "upper",
                                                       "size", "offset", "align"};

typedef struct owner {
    const rn_allocator *from;
    size_t capacity; // of the table's arrays
    rn_buffer text;  // the file's, where there is one
} owner;

typedef struct csv {
    rn_str rest; // what is not read yet
    size_t line; // from 1
    column columns[COLUMN_COUNT];
    size_t column_count;
    rn_map ids;
    uint64_t sum; // of sizes and alignments
} csv;

// ---- lines and fields ---------------------------------------------------------------------------

static rn_str trim(rn_str text) {
    while (text.bytes && (text.data[0] == ' ' || text.data[0] == '\t'))
        text = (rn_str){text.data + 1, text.bytes - 1};
    while (text.bytes && (text.data[text.bytes - 1] == ' ' || text.data[text.bytes - 1] == '\t'))
        text.bytes--;
    return text;
}

// Cuts the text before the next `mark` off `rest`; false where nothing is left.
static bool cut(rn_str *rest, char mark, rn_str *out) {
    if (!rest->data) return false;
    const char *at = rest->bytes ? memchr(rest->data, mark, rest->bytes) : NULL;
    *out = (rn_str){rest->data, at ? (size_t)(at - rest->data) : rest->bytes};
    *rest = at ? (rn_str){at + 1, rest->bytes - out->bytes - 1} : (rn_str){NULL, 0};
    return true;
}

// The next line that is not blank.
static bool next_line(csv *c, rn_str *out) {
    while (cut(&c->rest, '\n', out)) {
        c->line++;
        if (out->bytes && out->data[out->bytes - 1] == '\r') out->bytes--;
        if (trim(*out).bytes) return true;
    }
    return false;
}

static rn_str shorten(rn_str text) {
    return (rn_str){text.data, text.bytes < 64 ? text.bytes : 64};
}

static rn_status check_field(const csv *c, const char *name, rn_str field) {
    for (size_t i = 0; i < field.bytes; i++)
        if ((unsigned char)field.data[i] < ' ' || field.data[i] == 0x7f || field.data[i] == '"')
            return rn_fail(RN_CORRUPT,
                           "line %zu, column %s: quotes and control characters are not read",
                           c->line, name);
    if (field.bytes == 0) return rn_fail(RN_CORRUPT, "line %zu, column %s is empty", c->line, name);
    return RN_OK;
}

// ---- the header ---------------------------------------------------------------------------------

static rn_status read_column(csv *c, rn_str name, unsigned *seen) {
    for (column i = ID; i < COLUMN_COUNT; i++) {
        if (!rn_str_equal(name, rn_str_from(column_names[i]))) continue;
        if (*seen & 1u << i)
            return rn_fail(RN_CORRUPT, "line %zu, column %s appears twice", c->line,
                           column_names[i]);
        *seen |= 1u << i;
        c->columns[c->column_count++] = i;
        return RN_OK;
    }
    rn_str shown = shorten(name);
    return rn_hint(rn_fail(RN_CORRUPT, "line %zu, column %zu: '%.*s' is no column of buffers",
                           c->line, c->column_count + 1, RN_STR_ARG(shown)),
                   "the first line names the columns: id,lower,upper,size");
}

static rn_status read_header(csv *c) {
    rn_str line, field;
    unsigned seen = 0;
    if (rn_str_starts(c->rest, RN_STR("\xef\xbb\xbf")))
        c->rest = (rn_str){c->rest.data + 3, c->rest.bytes - 3};
    if (!next_line(c, &line))
        return rn_hint(rn_fail(RN_CORRUPT, "line 1, there is no header"),
                       "the first line names the columns: id,lower,upper,size");
    while (cut(&line, ',', &field))
        RN_TRY(read_column(c, trim(field), &seen));
    for (column i = ID; i < OFFSET; i++)
        if (!(seen & 1u << i))
            return rn_fail(RN_CORRUPT, "line %zu, column %s is missing", c->line, column_names[i]);
    return RN_OK;
}

// ---- buffers ------------------------------------------------------------------------------------

static rn_status read_number(const csv *c, column which, rn_str field, uint64_t *out) {
    rn_str shown = shorten(field);
    *out = 0;
    for (size_t i = 0; i < field.bytes; i++) {
        unsigned digit = (unsigned)(unsigned char)field.data[i] - '0';
        if (digit > 9)
            return rn_fail(RN_CORRUPT, "line %zu, column %s: '%.*s' is not a whole number", c->line,
                           column_names[which], RN_STR_ARG(shown));
        if (!rn_mul_u64(*out, 10, out) || !rn_add_u64(*out, digit, out))
            return rn_fail(RN_CORRUPT, "line %zu, column %s: %.*s is 2^64 or more", c->line,
                           column_names[which], RN_STR_ARG(shown));
    }
    return RN_OK;
}

static rn_status read_fields(csv *c, rn_str line, rn_str *out_id, uint64_t values[COLUMN_COUNT]) {
    rn_str field;
    size_t count = 0;
    for (; cut(&line, ',', &field); count++) {
        if (count == c->column_count)
            return rn_fail(RN_CORRUPT, "line %zu, column %zu: the header has only %zu", c->line,
                           count + 1, c->column_count);
        column which = c->columns[count];
        field = trim(field);
        RN_TRY(check_field(c, column_names[which], field));
        if (which == ID)
            *out_id = field;
        else
            RN_TRY(read_number(c, which, field, &values[which]));
    }
    if (count < c->column_count)
        return rn_fail(RN_CORRUPT, "line %zu, column %s is missing", c->line,
                       column_names[c->columns[count]]);
    return RN_OK;
}

static rn_status check_values(csv *c, const uint64_t values[COLUMN_COUNT]) {
    uint64_t padded;
    if (values[UPPER] < values[LOWER])
        return rn_fail(RN_CORRUPT, "line %zu, column upper: %llu is before lower, %llu", c->line,
                       (unsigned long long)values[UPPER], (unsigned long long)values[LOWER]);
    if (values[ALIGN] == 0 || (values[ALIGN] & (values[ALIGN] - 1)))
        return rn_fail(RN_CORRUPT, "line %zu, column align: %llu is no power of two", c->line,
                       (unsigned long long)values[ALIGN]);
    if (!rn_add_u64(values[SIZE], values[ALIGN] - 1, &padded) ||
        !rn_add_u64(c->sum, padded, &c->sum) || c->sum > INT64_MAX)
        return rn_fail(RN_CORRUPT, "line %zu, column size: the sizes add up to 2^63 or more",
                       c->line);
    return RN_OK;
}

static rn_status read_buffer(csv *c, rn_str line, rn_place_table *table) {
    enum { LINE_UNITS = 16 }; // and one for each character
    uint64_t values[COLUMN_COUNT] = {[ALIGN] = 1};
    rn_str id = {NULL, 0};
    bool existing;
    RN_TRY(rn_stop_try(line.bytes + LINE_UNITS));
    RN_TRY(read_fields(c, line, &id, values));
    RN_TRY(check_values(c, values));
    RN_TRY(rn_map_add(&c->ids, id, table->count, &existing));
    rn_str shown = shorten(id);
    if (existing)
        return rn_fail(RN_CORRUPT, "line %zu, column id: there is a '%.*s' already", c->line,
                       RN_STR_ARG(shown));
    table->ids[table->count] = id;
    table->offsets[table->count] = values[OFFSET];
    table->buffers[table->count++] =
        (rn_place_buffer){values[LOWER], values[UPPER], values[SIZE], values[ALIGN]};
    return RN_OK;
}

// ---- tables -------------------------------------------------------------------------------------

static size_t count_lines(rn_str text) {
    size_t count = 0;
    rn_str line;
    while (cut(&text, '\n', &line))
        (void)rn_stop_round(count++); // the first line that is read will hear of it
    return count;
}

static rn_status fill(csv *c, rn_place_table *table, owner *o) {
    rn_str line;
    RN_TRY(rn_alloc_zeroed(o->from, o->capacity, sizeof *table->buffers, (void **)&table->buffers));
    RN_TRY(rn_alloc_zeroed(o->from, o->capacity, sizeof *table->ids, (void **)&table->ids));
    RN_TRY(rn_alloc_zeroed(o->from, o->capacity, sizeof *table->offsets, (void **)&table->offsets));
    RN_TRY(read_header(c));
    // To grow while it is read would be a long step; a buffer has seven characters at least.
    RN_TRY(rn_map_reserve(&c->ids, rn_min_u64(o->capacity, c->rest.bytes / 7 + 1)));
    while (next_line(c, &line))
        RN_TRY(read_buffer(c, line, table));
    return RN_OK;
}

static rn_status make_owner(const rn_allocator *from, rn_place_table *out) {
    owner *o;
    *out = (rn_place_table){.count = 0};
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof *o, (void **)&o));
    o->from = from;
    rn_buffer_init(&o->text, from, RN_PLACE_CSV_BYTES);
    out->owner = o;
    return RN_OK;
}

static rn_status parse_into(rn_str text, rn_place_table *table) {
    owner *o = table->owner;
    csv c = {.rest = text};
    if (text.bytes > RN_PLACE_CSV_BYTES)
        return rn_fail(RN_CORRUPT, "line 1, the text has more than %zu bytes", RN_PLACE_CSV_BYTES);
    o->capacity = count_lines(text);
    rn_map_init(&c.ids, o->from);
    rn_status s = fill(&c, table, o);
    rn_map_free(&c.ids);
    return s;
}

rn_status rn_place_csv_parse(rn_str text, const rn_allocator *from, rn_place_table *out) {
    RN_TRY(make_owner(from, out));
    rn_status s = parse_into(text, out);
    if (s != RN_OK) rn_place_table_free(out);
    return s;
}

rn_status rn_place_table_read(const char *path, rn_place_table *out) {
    RN_TRY(make_owner(RN_HOST_IO, out));
    owner *o = out->owner;
    rn_status s = rn_file_read_all(path, &o->text);
    if (s == RN_OK) {
        s = parse_into((rn_str){o->text.data, o->text.bytes}, out);
        if (s == RN_CORRUPT) s = rn_error_locate(s, path, RN_NO_OFFSET);
    }
    if (s != RN_OK) rn_place_table_free(out);
    return s;
}

void rn_place_table_free(rn_place_table *table) {
    owner *o = table->owner;
    if (o) {
        rn_free(o->from, table->buffers, o->capacity * sizeof *table->buffers);
        rn_free(o->from, table->ids, o->capacity * sizeof *table->ids);
        rn_free(o->from, table->offsets, o->capacity * sizeof *table->offsets);
        rn_buffer_free(&o->text);
        rn_free(o->from, o, sizeof *o);
    }
    *table = (rn_place_table){.count = 0};
}

// ---- writing ------------------------------------------------------------------------------------

rn_status rn_place_csv_print(const rn_place_table *table, rn_sink sink) {
    enum { PRINTED_UNITS = 64 };
    bool aligned = false;
    for (size_t i = 0; i < table->count; i++)
        aligned |= table->buffers[i].align > 1;
    RN_TRY(rn_sink_print(sink, "id,lower,upper,size,offset%s\n", aligned ? ",align" : ""));
    for (size_t i = 0; i < table->count; i++) {
        const rn_place_buffer *b = &table->buffers[i];
        RN_TRY(rn_stop_try(table->ids[i].bytes + PRINTED_UNITS));
        RN_TRY(rn_sink_write(sink, table->ids[i].data, table->ids[i].bytes));
        RN_TRY(rn_sink_print(sink, ",%llu,%llu,%llu,%llu", (unsigned long long)b->lower,
                             (unsigned long long)b->upper, (unsigned long long)b->size_bytes,
                             (unsigned long long)table->offsets[i]));
        if (aligned)
            RN_TRY(rn_sink_print(sink, ",%llu", (unsigned long long)(b->align ? b->align : 1)));
        RN_TRY(rn_sink_write(sink, "\n", 1));
    }
    return RN_OK;
}

rn_status rn_place_table_write(const rn_place_table *table, const char *path) {
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_IO, SIZE_MAX / 2);
    rn_status s = rn_place_csv_print(table, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_file_replace(path, text.data, text.bytes);
    rn_buffer_free(&text);
    return s;
}
