// error_class.c — tables, read from the top: first what texts of other people's runtimes give away,
// the particular before the general; then libraries and the system; then our own statuses.
#include "base/error_class.h"

#include <stdio.h>

static const rn_error_row general[] = {
    // ---- libraries ----
    RN_ERROR_TEXT("library_missing", "cannot open shared object file",
                  "a plugin, or a library that it needs, is not there",
                  "give its full path; ldd shows which libraries it lacks"),
    RN_ERROR_TEXT(
        "library_unusable",
        "invalid ELF header|wrong ELF class|file too short|undefined symbol|version `*' not found",
        "a plugin is damaged, or was built for another machine or release",
        "install it anew, in the release that belongs to this system"),

    // ---- the system ----
    RN_ERROR_TEXT("too_few_threads", "cannot start a thread for ",
                  "the system lets this process start no more threads",
                  "raise the limit (ulimit -u, the container's pids limit), or ask for fewer with "
                  "--threads"),
};

typedef struct status_row {
    rn_status status;
    rn_error_class class;
} status_row;

// The last one is for any other.
static const status_row statuses[] = {
    {RN_OVER_BUDGET,
     {"over_budget", "it would not fit the byte budget",
      "raise --budget, or ask for less: a shorter context, fewer requests at once"}},
    {RN_NO_MEMORY,
     {"host_memory_full", "the host has no memory to give",
      "give the machine or container more memory, or set --budget below what is free"}},
    {RN_NOT_FOUND,
     {"not_found", "a file, or something in one, is not there",
      "check the path and the model's name"}},
    {RN_CORRUPT,
     {"damaged_file", "a file breaks the rules of its format",
      "download it again and compare its checksum"}},
    {RN_IO,
     {"io_failed", "the system failed to read or write", "check the disk and the system's log"}},
    {RN_UNSUPPORTED,
     {"unsupported", "this build or this machine cannot do it", "choose another device or model"}},
    {RN_DEVICE,
     {"device_failed", "the device or its driver failed",
      "check the device; --device cpu does without it"}},
    {RN_CANCELLED, {"cancelled", "it was asked to stop", "start it again"}},
    {RN_INVALID,
     {"invalid", "an argument or option makes no sense",
      "correct the option that the message names"}},
    {RN_INTERNAL,
     {"internal", "a mistake in ration itself", "report it, with the message and the command"}},
    {RN_OK, {"unknown", "nobody has seen this before", "the message is all there is"}},
};

enum {
    GENERAL_COUNT = sizeof general / sizeof *general,
    STATUS_COUNT = sizeof statuses / sizeof *statuses
};

// ---- texts --------------------------------------------------------------------------------------

static const char *find(rn_str text, rn_str piece) {
    return piece.bytes == 0 ? text.data : memmem(text.data, text.bytes, piece.data, piece.bytes);
}

// What stands before the first `mark`; *rest is what stands behind it, empty at the end.
static rn_str cut(rn_str *rest, char mark) {
    const char *end = rest->bytes ? memchr(rest->data, mark, rest->bytes) : NULL;
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes;
    size_t used = end ? bytes + 1 : bytes;
    rn_str first = {rest->data, bytes};
    *rest = (rn_str){rest->data + used, rest->bytes - used};
    return first;
}

// Whether the pieces between the stars stand in the text in this order.
static bool holds(rn_str text, rn_str pattern) {
    while (pattern.bytes) {
        rn_str piece = cut(&pattern, '*');
        const char *at = find(text, piece);
        if (!at) return false;
        size_t used = (size_t)(at - text.data) + piece.bytes;
        text = (rn_str){text.data + used, text.bytes - used};
    }
    return true;
}

bool rn_message_holds(rn_str message, const char *texts) {
    rn_str rest = rn_str_from(texts);
    while (rest.bytes)
        if (holds(message, cut(&rest, '|'))) return true;
    return false;
}

bool rn_message_take_number(rn_str *text, uint32_t *out) {
    size_t n = 0;
    *out = 0;
    while (n < text->bytes && n < 9 && text->data[n] >= '0' && text->data[n] <= '9')
        *out = *out * 10 + (uint32_t)(text->data[n++] - '0');
    *text = (rn_str){text->data + n, text->bytes - n};
    return n > 0;
}

bool rn_message_go_behind(rn_str *text, rn_str piece) {
    const char *at = find(*text, piece);
    if (!at) return false;
    size_t used = (size_t)(at - text->data) + piece.bytes;
    *text = (rn_str){text->data + used, text->bytes - used};
    return true;
}

// ---- the tables ---------------------------------------------------------------------------------

static bool fits(const rn_error_row *row, rn_str message) {
    return row->texts ? rn_message_holds(message, row->texts) : row->fits(message, row);
}

static const rn_error_class *find_in(const rn_error_row *rows, size_t count, rn_str message) {
    for (size_t i = 0; i < count; i++)
        if (fits(&rows[i], message)) return &rows[i].class;
    return NULL;
}

const rn_error_class *rn_error_classify(const rn_error_info *error) {
    rn_str message = {error->message, strnlen(error->message, sizeof error->message)};
    const rn_error_class *found = NULL;
    const rn_error_table *table;
    for (size_t i = 0; !found && (table = rn_error_table_at(i)); i++)
        found = find_in(table->rows, table->count, message);
    if (!found) found = find_in(general, GENERAL_COUNT, message);
    if (found) return found;
    size_t s = 0;
    while (s < STATUS_COUNT - 1 && statuses[s].status != error->status)
        s++;
    return &statuses[s].class;
}

const rn_error_class *rn_error_class_at(size_t index) {
    const rn_error_table *table;
    for (size_t i = 0; (table = rn_error_table_at(i)); i++) {
        if (index < table->count) return &table->rows[index].class;
        index -= table->count;
    }
    if (index < GENERAL_COUNT) return &general[index].class;
    index -= GENERAL_COUNT;
    return index < STATUS_COUNT ? &statuses[index].class : NULL;
}

const char *rn_error_hint(const rn_error_info *error) {
    return error->hint[0] ? error->hint : rn_error_classify(error)->hint;
}

// ---- an allocation that failed ------------------------------------------------------------------

// "64.000MB": the runtime means powers of 1024, which rn_size_parse writes without the B.
static bool read_size(rn_str text, uint64_t *out) {
    rn_error_info before = *rn_last_error();
    if (text.bytes && text.data[text.bytes - 1] == 'B') text.bytes--;
    bool ok = rn_size_parse(text, 0, out) == RN_OK;
    (void)rn_error_restore(&before);
    return ok;
}

bool rn_device_full_read(rn_str text, rn_device_full *out) {
    *out = (rn_device_full){0};
    if (!rn_message_go_behind(&text, RN_STR("Failed to allocate "))) return false;
    if (!read_size(cut(&text, ' '), &out->bytes)) return false;
    if (!rn_message_go_behind(&text, RN_STR("(usage: "))) return false;
    rn_str usage = cut(&text, ')');
    snprintf(out->usage, sizeof out->usage, "%.*s", RN_STR_ARG(usage));
    return rn_message_go_behind(&text, RN_STR("ND ")) &&
           rn_message_take_number(&text, &out->device) &&
           rn_message_go_behind(&text, RN_STR("NC ")) && rn_message_take_number(&text, &out->core);
}

// ---- for machines -------------------------------------------------------------------------------

void rn_error_json(const rn_error_info *error, rn_json *json) {
    const rn_error_class *class = rn_error_classify(error);
    rn_device_full full;
    rn_json_string(json, "class", class->name);
    rn_json_string(json, "meaning", class->meaning);
    rn_json_string(json, "message", error->message);
    rn_json_string(json, "hint", rn_error_hint(error));
    if (!rn_device_full_read(rn_str_from(error->message), &full)) return;
    rn_json_object(json, "device_full");
    rn_json_u64(json, "bytes", full.bytes);
    rn_json_string(json, "usage", full.usage);
    rn_json_u64(json, "device", full.device);
    rn_json_u64(json, "core", full.core);
    rn_json_end(json);
}
