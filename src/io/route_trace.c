// route_trace.c — one pass that finds the shape, one that fills it in.
#include "io/route_trace.h"

#include "base/file.h"
#include "io/json_read.h"

#include <string.h>

enum { MOST_TOKENS = 1 << 20, MOST_LAYERS = 1024, MOST_K = 256, MOST_EXPERTS = 4096 };
enum { MOST_BYTES = 256 << 20, COLUMNS = 64 };

// One choice, as either form has it.
typedef struct choice {
    uint64_t token, layer, slot, expert;
} choice;

typedef struct filling {
    rn_route_trace *trace;
    const char *path;
    bool fills; // the second pass
    uint64_t line;
} filling;

static rn_status fail_at(const filling *f, const char *why) {
    return rn_fail(RN_CORRUPT, "%s, line %llu: %s", f->path, (unsigned long long)f->line, why);
}

static rn_status take(filling *f, choice c) {
    rn_route_trace *t = f->trace;
    if (c.token >= MOST_TOKENS || c.layer >= MOST_LAYERS || c.slot >= MOST_K ||
        c.expert >= MOST_EXPERTS)
        return fail_at(f, "a token, layer, place or expert beyond what is read");
    if (f->fills) {
        t->ids[(c.token * t->layers + c.layer) * t->k + c.slot] = (int32_t)c.expert;
        return RN_OK;
    }
    if (c.token >= t->tokens) t->tokens = (uint32_t)c.token + 1;
    if (c.layer >= t->layers) t->layers = (uint32_t)c.layer + 1;
    if (c.slot >= t->k) t->k = (uint32_t)c.slot + 1;
    if (c.expert >= t->experts) t->experts = (uint32_t)c.expert + 1;
    return RN_OK;
}

// ---- JSON lines ---------------------------------------------------------------------------------

static rn_status read_layers(filling *f, rn_json_reader *r, uint64_t token) {
    rn_json_item item;
    choice c = {.token = token};
    RN_TRY(rn_json_expect(r, RN_JSON_ARRAY, NULL));
    for (;; c.layer++) {
        RN_TRY(rn_json_next(r, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_ARRAY) return fail_at(f, "a layer is no list of experts");
        for (c.slot = 0;; c.slot++) {
            RN_TRY(rn_json_next(r, &item));
            if (item.kind == RN_JSON_ARRAY_END) break;
            RN_TRY(rn_json_u64_of(&item, &c.expert));
            RN_TRY(take(f, c));
        }
    }
}

static rn_status read_object(filling *f, rn_json_reader *r, uint64_t token) {
    rn_json_item item;
    RN_TRY(rn_json_expect(r, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(r, &item));
        if (item.kind == RN_JSON_OBJECT_END) return rn_json_expect(r, RN_JSON_END, NULL);
        if (rn_str_equal(item.text, rn_str_from("layers")))
            RN_TRY(read_layers(f, r, token));
        else
            RN_TRY(rn_json_skip(r));
    }
}

// ---- CSV ----------------------------------------------------------------------------------------

typedef struct columns {
    bool known;
    uint32_t of[4]; // step, layer, slot, expert
} columns;

static rn_str next_field(rn_str *line) {
    const char *comma = memchr(line->data, ',', line->bytes);
    size_t size = comma ? (size_t)(comma - line->data) : line->bytes;
    rn_str field = {line->data, size};
    size_t gone = comma ? size + 1 : size;
    *line = (rn_str){line->data + gone, line->bytes - gone};
    return field;
}

static rn_status read_heading(filling *f, rn_str line, columns *c) {
    static const char *const names[] = {"step", "layer", "slot", "expert"};
    uint32_t found = 0;
    for (uint32_t i = 0; line.bytes > 0 && i < COLUMNS; i++) {
        rn_str field = next_field(&line);
        for (uint32_t n = 0; n < 4; n++)
            if (rn_str_equal(field, rn_str_from(names[n]))) {
                c->of[n] = i;
                found |= 1u << n;
            }
    }
    c->known = found == 15;
    return c->known ? RN_OK : fail_at(f, "no JSON and no columns step, layer, slot and expert");
}

static rn_status read_number(const filling *f, rn_str text, uint64_t *out) {
    *out = 0;
    if (text.bytes == 0 || text.bytes > 9) return fail_at(f, "a number is missing or too long");
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return fail_at(f, "not a number");
        *out = *out * 10 + (uint64_t)(text.data[i] - '0');
    }
    return RN_OK;
}

static rn_status read_row(filling *f, rn_str line, const columns *c) {
    uint64_t numbers[4] = {0};
    uint32_t found = 0;
    for (uint32_t i = 0; line.bytes > 0 && i < COLUMNS; i++) {
        rn_str field = next_field(&line);
        for (uint32_t n = 0; n < 4; n++)
            if (c->of[n] == i) {
                RN_TRY(read_number(f, field, &numbers[n]));
                found++;
            }
    }
    if (found < 4) return fail_at(f, "the row is too short");
    return take(f, (choice){numbers[0], numbers[1], numbers[2], numbers[3]});
}

// ---- the file -----------------------------------------------------------------------------------

static rn_str next_line(rn_str *text) {
    const char *end = memchr(text->data, '\n', text->bytes);
    size_t size = end ? (size_t)(end - text->data) : text->bytes, gone = end ? size + 1 : size;
    rn_str line = {text->data, size};
    *text = (rn_str){text->data + gone, text->bytes - gone};
    if (line.bytes > 0 && line.data[line.bytes - 1] == '\r') line.bytes--;
    return line;
}

static rn_status read_lines(filling *f, rn_str text) {
    columns csv = {0};
    uint64_t token = 0;
    for (f->line = 1; text.bytes > 0; f->line++) {
        rn_str line = next_line(&text);
        if (line.bytes == 0 || line.data[0] == '#') continue;
        if (line.data[0] == '{') {
            rn_json_reader r;
            rn_json_reader_init(&r, line, f->trace->memory.from);
            rn_status s = read_object(f, &r, token++);
            rn_json_reader_free(&r);
            RN_TRY(s);
        } else if (!csv.known) {
            RN_TRY(read_heading(f, line, &csv));
        } else {
            RN_TRY(read_row(f, line, &csv));
        }
    }
    return RN_OK;
}

static rn_status read_all(filling *f, rn_str text) {
    rn_route_trace *t = f->trace;
    void *ids = NULL;
    RN_TRY(read_lines(f, text));
    if (t->tokens == 0 || t->k == 0) return rn_fail(RN_CORRUPT, "%s has no choices", f->path);
    size_t count = (size_t)t->tokens * t->layers * t->k;
    if (count > MOST_BYTES) return rn_fail(RN_CORRUPT, "%s: too many places for it", f->path);
    RN_TRY(rn_arena_array(&t->memory, count, sizeof(int32_t), &ids));
    t->ids = ids;
    for (size_t i = 0; i < count; i++)
        t->ids[i] = -1;
    f->fills = true;
    return read_lines(f, text);
}

rn_status rn_route_trace_read(const char *path, const rn_allocator *allocator,
                              rn_route_trace *out) {
    rn_buffer buffer;
    *out = (rn_route_trace){0};
    rn_arena_init(&out->memory, allocator, 0);
    rn_buffer_init(&buffer, allocator, MOST_BYTES);
    filling f = {.trace = out, .path = path};
    rn_status s = rn_file_read_all(path, &buffer);
    if (s == RN_OK) s = read_all(&f, (rn_str){buffer.data, buffer.bytes});
    rn_buffer_free(&buffer);
    if (s != RN_OK) rn_route_trace_free(out);
    return s;
}

void rn_route_trace_free(rn_route_trace *trace) {
    rn_arena_free_all(&trace->memory);
    trace->ids = NULL;
}
