// request_reader.c — items, values and the block that they stay in.
#include "server/request_reader.h"

#include "base/checked.h"
#include "base/number.h"
#include "memory/account.h"

#include <inttypes.h>
#include <math.h>

// What does not grow with the body: the list of prompts, alignment.
enum { SLACK_BYTES = 4096 };
_Static_assert(SLACK_BYTES >= RN_REQUEST_PROMPTS * sizeof(rn_request_prompt) + 1024,
               "prompts fit the slack");
_Static_assert(SLACK_BYTES + 1024 <= RN_REQUEST_FIXED_BYTES, "as request.h promises");

// ---- the block ----------------------------------------------------------------------------------

bool rn_request_reader_begin(rn_request_reader *reader, rn_str body, rn_arena *memory,
                             rn_problem *problem) {
    return rn_request_reader_begin_with(reader, body, 0, memory, problem);
}

bool rn_request_reader_begin_with(rn_request_reader *reader, rn_str body, uint64_t extra_bytes,
                                  rn_arena *memory, rn_problem *problem) {
    uint64_t bytes = rn_round_up(2 * (uint64_t)body.bytes, 16) + SLACK_BYTES + extra_bytes;
    void *block = NULL;
    *reader = (rn_request_reader){.problem = problem};
    rn_arena_init(memory, RN_HOST_IO, 1024);
    if (rn_arena_alloc(memory, bytes, &block) != RN_OK) {
        rn_problem_from_error(problem, rn_last_error());
        return false;
    }
    reader->at = block;
    reader->top = reader->at + bytes;
    rn_json_reader_init(&reader->json, body, RN_HOST_IO);
    return true;
}

rn_str rn_request_keep(rn_request_reader *reader) {
    rn_str text = reader->item.text;
    if (text.bytes) memmove(reader->at, text.data, text.bytes);
    reader->item.text.data = reader->at;
    reader->at += text.bytes;
    return (rn_str){reader->at - text.bytes, text.bytes};
}

bool rn_request_keep_value(rn_request_reader *reader, rn_str *out) {
    size_t begin = (size_t)reader->item.offset;
    if (!rn_request_skip_rest(reader)) return false;
    rn_request_keep_from(reader, begin, out);
    return true;
}

void rn_request_keep_from(rn_request_reader *reader, size_t begin, rn_str *out) {
    out->bytes = reader->json.at - begin;
    char *kept = rn_request_take(reader, out->bytes, 1);
    memcpy(kept, reader->json.text.data + begin, out->bytes);
    out->data = kept;
}

void *rn_request_take(rn_request_reader *reader, size_t bytes, size_t align) {
    char *block = (char *)(uintptr_t)rn_round_up((uintptr_t)reader->at, align);
    reader->at = block + bytes;
    return block;
}

// ---- items --------------------------------------------------------------------------------------

static bool refuse_error(rn_request_reader *reader) {
    const rn_error_info *error = rn_last_error();
    if (error->status == RN_CORRUPT)
        return rn_problem_set(reader->problem, 400, "invalid_json", "",
                              "the body is not valid %.400s", error->message);
    rn_problem_from_error(reader->problem, error);
    return false;
}

bool rn_request_next(rn_request_reader *reader) {
    // What is unescaped is never longer than what it is read from, so that it never has to grow.
    size_t free_bytes = (size_t)(reader->top - reader->at);
    reader->json.unescaped = (rn_buffer){
        .from = RN_HOST_IO, .data = reader->at, .capacity = free_bytes, .cap_bytes = free_bytes};
    return rn_json_next(&reader->json, &reader->item) == RN_OK || refuse_error(reader);
}

bool rn_request_skip_rest(rn_request_reader *reader) {
    rn_json_kind kind = reader->item.kind;
    if (kind != RN_JSON_OBJECT && kind != RN_JSON_ARRAY) return true;
    for (int level = reader->json.depth; reader->json.depth >= level;)
        if (!rn_request_next(reader)) return false;
    return true;
}

bool rn_request_open(rn_request_reader *reader) {
    if (!rn_request_next(reader)) return false;
    return reader->item.kind == RN_JSON_OBJECT ||
           rn_problem_set(reader->problem, 400, "invalid_value", "",
                          "the body is %s: it must be a JSON object",
                          rn_json_kind_name(reader->item.kind));
}

bool rn_request_next_key(rn_request_reader *reader, rn_str *out_key, bool *out_more) {
    if (!rn_request_next(reader)) return false;
    *out_more = reader->item.kind == RN_JSON_KEY;
    *out_key = reader->item.text;
    return true;
}

bool rn_request_close(rn_request_reader *reader) {
    return rn_request_next(reader); // the end, or a failure: text behind it
}

// ---- values -------------------------------------------------------------------------------------

bool rn_request_wrong_type(rn_request_reader *reader, const char *field, const char *wanted) {
    return rn_problem_set(reader->problem, 400, "invalid_value", field, "%s is %s: it must be %s",
                          field, rn_json_kind_name(reader->item.kind), wanted);
}

// Cut where a character begins.
rn_request_excerpt rn_request_show(rn_str text) {
    rn_request_excerpt shown = {""};
    size_t bytes = rn_min_u64(text.bytes, sizeof shown.text - 1);
    while (bytes > 0 && bytes < text.bytes && (text.data[bytes] & 0xC0) == 0x80)
        bytes--;
    if (bytes) memcpy(shown.text, text.data, bytes);
    return shown;
}

bool rn_request_unknown(rn_request_reader *reader, rn_str key) {
    rn_request_excerpt name = rn_request_show(key);
    return rn_problem_set(reader->problem, 400, "unknown_field", name.text,
                          "'%s' is not a field of this request", name.text);
}

bool rn_request_pass_over(rn_request_reader *reader, rn_str key) {
    if (!reader->unknown.text[0]) reader->unknown = rn_request_show(key);
    return rn_request_next(reader) && rn_request_skip_rest(reader);
}

bool rn_request_twice(rn_request_reader *reader, const char *field) {
    return rn_problem_set(reader->problem, 400, "invalid_value", field, "%s is given twice", field);
}

bool rn_request_unsupported(rn_request_reader *reader, const char *field, const char *wanted) {
    return rn_problem_set(reader->problem, 400, "unsupported_value", field,
                          "%s is not supported: leave it out, or give %s", field, wanted);
}

bool rn_request_missing(rn_request_reader *reader, const char *field) {
    return rn_problem_set(reader->problem, 400, "missing", field, "%s is missing", field);
}

bool rn_request_string(rn_request_reader *reader, const char *field) {
    return reader->item.kind == RN_JSON_STRING || rn_request_wrong_type(reader, field, "a string");
}

bool rn_request_flag(rn_request_reader *reader, const char *field, bool *out) {
    *out = reader->item.kind == RN_JSON_TRUE;
    return *out || reader->item.kind == RN_JSON_FALSE ||
           rn_request_wrong_type(reader, field, "true or false");
}

// As in the C locale, whatever locale the program around us has set.
static bool read_double(rn_request_reader *reader, const char *field, double *out) {
    rn_str text = reader->item.text;
    if (text.bytes >= RN_NUMBER_BYTES)
        return rn_problem_set(reader->problem, 400, "invalid_value", field,
                              "%s is a number of %zu characters: at most %d are read", field,
                              text.bytes, RN_NUMBER_BYTES - 1);
    if (rn_number_read(text, out) == RN_OK) return true;
    return rn_problem_set(reader->problem, 503, "no_memory", "", "%s", rn_last_error()->message);
}

bool rn_request_number(rn_request_reader *reader, const char *field, double least, double most,
                       double *out) {
    *out = 0;
    if (reader->item.kind != RN_JSON_NUMBER)
        return rn_request_wrong_type(reader, field, "a number");
    if (!read_double(reader, field, out)) return false;
    if (*out >= least && *out <= most) return true;
    return rn_problem_set(reader->problem, 400, "out_of_range", field,
                          "%s is %g: it must be from %g to %g", field, *out, least, most);
}

// Digits with or without a minus; false: something else, or more than 64 bits.
static bool read_digits(rn_str text, int64_t *out) {
    bool negative = text.bytes > 0 && text.data[0] == '-';
    *out = 0;
    for (size_t i = negative; i < text.bytes; i++) {
        char c = text.data[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, negative ? '0' - c : c - '0', out))
            return false;
    }
    return true;
}

bool rn_request_integer(rn_request_reader *reader, const char *field, int64_t least, int64_t most,
                        int64_t *out) {
    *out = 0;
    if (reader->item.kind != RN_JSON_NUMBER)
        return rn_request_wrong_type(reader, field, "a whole number");
    bool exact = read_digits(reader->item.text, out);
    double value = (double)*out;
    if (!exact) {
        if (!read_double(reader, field, &value)) return false;
        if (isfinite(value) && value != floor(value))
            return rn_problem_set(reader->problem, 400, "invalid_value", field,
                                  "%s is %g: it must be a whole number", field, value);
        exact = fabs(value) <= 9007199254740992.0; // 2^53
        if (exact) *out = (int64_t)value;
    }
    if (exact && *out >= least && *out <= most) return true;
    return rn_problem_set(reader->problem, 400, "out_of_range", field,
                          "%s is %.15g: it must be from %" PRId64 " to %" PRId64, field, value,
                          least, most);
}

// ---- tokens -------------------------------------------------------------------------------------

bool rn_request_tokens(rn_request_reader *reader, const char *field, bool begun,
                       uint32_t vocab_size, const uint32_t **out_ids, size_t *out_count) {
    const uint32_t *ids = rn_request_take(reader, 0, sizeof *ids);
    size_t count = 0;
    if (!begun && !rn_request_next(reader)) return false;
    for (; reader->item.kind != RN_JSON_ARRAY_END; count++) {
        int64_t id;
        if (!rn_request_integer(reader, field, 0, (int64_t)vocab_size - 1, &id)) return false;
        *(uint32_t *)rn_request_take(reader, sizeof *ids, sizeof *ids) = (uint32_t)id;
        if (!rn_request_next(reader)) return false;
    }
    *out_ids = ids;
    *out_count = count;
    return true;
}
