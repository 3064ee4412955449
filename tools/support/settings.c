// settings.c — values by option, from flags and variables. (Files: io/config_file.c.)
#include "support/settings.h"

#include "base/arena.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LIST = 64 };

typedef struct setting {
    const char *text, *origin; // NULL text: not set
    const char *items[MAX_LIST];
    size_t item_count;
} setting;

struct rn_settings {
    rn_arena arena;
    setting *values; // (rn_option_count())
};

rn_status rn_settings_create(rn_settings **out) {
    void *block, *values;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(&rn_system_allocator, 1, sizeof **out, &block));
    rn_settings *settings = block;
    rn_arena_init(&settings->arena, &rn_system_allocator, 0);
    rn_status s = rn_arena_array(&settings->arena, rn_option_count(), sizeof(setting), &values);
    settings->values = values;
    if (s == RN_OK)
        *out = settings;
    else
        rn_settings_destroy(settings);
    return s;
}

void rn_settings_destroy(rn_settings *settings) {
    if (!settings) return;
    rn_arena_free_all(&settings->arena);
    rn_free(&rn_system_allocator, settings, sizeof *settings);
}

// ---- checking -------------------------------------------------------------------------

bool rn_option_parse_bool(rn_str text, bool *out) {
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};
    for (size_t i = 0; i < 8; i++)
        if (rn_str_equal_ignoring_case(text, rn_str_from(words[i]))) {
            *out = i % 2 == 0;
            return true;
        }
    return false;
}

static bool parse_count(rn_str text, uint64_t *out) {
    *out = 0;
    if (text.bytes == 0 || text.bytes > 18) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        *out = *out * 10 + (uint64_t)(text.data[i] - '0');
    }
    return true;
}

// Digits, a point, a sign, an exponent: no names, no hexadecimals.
static bool parse_number(rn_str text, double *out) {
    char copy[48], *end = copy;
    if (text.bytes == 0 || text.bytes >= sizeof copy) return false;
    memcpy(copy, text.data, text.bytes);
    copy[text.bytes] = 0;
    if (copy[strspn(copy, "0123456789.+-eE")]) return false;
    *out = strtod(copy, &end);
    return *end == 0 && *out - *out == 0; // neither infinite
}

static bool is_choice(rn_str text, const char *choices) {
    for (const char *at = choices; *at;) {
        size_t length = strcspn(at, "|");
        if (rn_str_equal(text, (rn_str){at, length})) return true;
        at += length + (at[length] == '|');
    }
    return false;
}

rn_status rn_option_check(const rn_option *option, rn_str value) {
    bool boolean;
    uint64_t number;
    double real;
    if (memchr(value.data ? value.data : "", '\0', value.bytes))
        return rn_fail(RN_INVALID, "the value holds a NUL byte");
    switch (option->type) {
    case RN_OPTION_BOOL:
        if (rn_option_parse_bool(value, &boolean)) return RN_OK;
        return rn_fail(RN_INVALID, "'%.*s' is neither true nor false", RN_STR_ARG(value));
    case RN_OPTION_COUNT:
        if (parse_count(value, &number)) return RN_OK;
        return rn_fail(RN_INVALID, "'%.*s' is not a whole number", RN_STR_ARG(value));
    case RN_OPTION_NUMBER:
        if (parse_number(value, &real)) return RN_OK;
        return rn_fail(RN_INVALID, "'%.*s' is not a number", RN_STR_ARG(value));
    case RN_OPTION_CHOICE:
        if (is_choice(value, option->choices)) return RN_OK;
        return rn_fail(RN_INVALID, "'%.*s' is none of %s", RN_STR_ARG(value), option->choices);
    case RN_OPTION_SIZE:
        return rn_size_parse(value, 0, &number);
    default:
        return RN_OK; // budgets and dtypes are checked by the layers that know them
    }
}

// ---- setting --------------------------------------------------------------------------

static setting *find_setting(const rn_settings *settings, const rn_option *option) {
    return &settings->values[option - rn_option_at(0)];
}

rn_status rn_settings_set(rn_settings *settings, const rn_option *option, rn_str value,
                          const char *origin) {
    void *text, *where;
    rn_status s = rn_option_check(option, value);
    if (s != RN_OK) {
        rn_error_info error = *rn_last_error();
        s = rn_fail(s, "%s: %s", origin, error.message);
        return error.hint[0] ? rn_hint(s, "%s", error.hint) : s;
    }
    setting *target = find_setting(settings, option);
    RN_TRY(rn_arena_copy(&settings->arena, value.data, value.bytes, &text));
    RN_TRY(rn_arena_copy(&settings->arena, origin, strlen(origin), &where));
    // A list grows within one origin; a later origin begins anew, and so does an empty text.
    if (option->type == RN_OPTION_LIST) {
        bool anew = target->origin && strcmp(target->origin, origin) != 0;
        if (anew || value.bytes == 0) target->item_count = 0;
        if (target->item_count == MAX_LIST)
            return rn_fail(RN_INVALID, "%s: more than %d values", origin, MAX_LIST);
        if (value.bytes > 0) target->items[target->item_count++] = text;
    }
    target->text = text;
    target->origin = where;
    return RN_OK;
}

// RATION_LOG_LEVEL for "log-level".
static void variable_name(const rn_option *option, char *out, size_t capacity) {
    size_t at = (size_t)snprintf(out, capacity, "RATION_");
    for (const char *c = option->name; *c && at + 1 < capacity; c++)
        out[at++] = *c == '-' ? '_' : (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
    out[at] = '\0';
}

// RATION_RANK and RATION_RANKS together are a launcher's: which rank of a job this process is, and
// not the rank of an adapter.
static bool is_launched(char *const *environment) {
    bool rank = false, ranks = false;
    for (char *const *entry = environment; *entry; entry++) {
        rank = rank || strncmp(*entry, "RATION_RANK=", 12) == 0;
        ranks = ranks || strncmp(*entry, "RATION_RANKS=", 13) == 0;
    }
    return rank && ranks;
}

rn_status rn_settings_load_environment(rn_settings *settings, char *const *environment) {
    char name[80];
    bool launched = is_launched(environment);
    for (size_t i = 0; i < rn_option_count(); i++) {
        variable_name(rn_option_at(i), name, sizeof name);
        size_t length = strlen(name);
        if (launched && (strcmp(name, "RATION_RANK") == 0 || strcmp(name, "RATION_RANKS") == 0))
            continue;
        for (char *const *entry = environment; *entry; entry++)
            if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
                RN_TRY(rn_settings_set(settings, rn_option_at(i), rn_str_from(*entry + length + 1),
                                       name));
    }
    return RN_OK;
}

// ---- arguments ------------------------------------------------------------------------

typedef struct argument_reader {
    rn_settings *settings;
    const char *command;
    int argc, at;
    char *const *argv;
} argument_reader;

static rn_status unknown_flag(const argument_reader *reader, const char *flag) {
    rn_str name = rn_str_from(flag);
    while (name.bytes && name.data[0] == '-')
        name.data++, name.bytes--;
    const char *equals = name.bytes ? memchr(name.data, '=', name.bytes) : NULL;
    if (equals) name.bytes = (size_t)(equals - name.data);
    const char *near = rn_option_suggest(name, reader->command);
    rn_status s = rn_fail(RN_INVALID, "ration %s has no option %s", reader->command, flag);
    if (near) return rn_hint(s, "did you mean --%s?", near);
    return rn_hint(s, "see ration %s --help", reader->command);
}

// Takes no value from the next argument.
static bool stands_alone(const rn_option *option) {
    return option->type == RN_OPTION_BOOL || option->type == RN_OPTION_FILE;
}

static const rn_option *find_flag(const argument_reader *reader, rn_str name, bool *out_negated) {
    *out_negated = false;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        if (!rn_option_is_for(option, reader->command)) continue;
        if (rn_str_equal(name, rn_str_from(option->name))) return option;
        if (!stands_alone(option) || !rn_str_starts(name, RN_STR("no-"))) continue;
        if (!rn_str_equal((rn_str){name.data + 3, name.bytes - 3}, rn_str_from(option->name)))
            continue;
        *out_negated = true;
        return option;
    }
    return NULL;
}

// The next argument as the flag's value.
static rn_status take_value(argument_reader *reader, const char *flag, rn_str *out) {
    if (reader->at == reader->argc) return rn_fail(RN_INVALID, "%s wants a value", flag);
    *out = rn_str_from(reader->argv[reader->at++]);
    return RN_OK;
}

static rn_status read_long(argument_reader *reader, const char *argument) {
    rn_str name = rn_str_from(argument + 2), value = {NULL, 0};
    bool negated;
    const char *equals = strchr(argument, '=');
    if (equals) {
        name.bytes = (size_t)(equals - name.data);
        value = rn_str_from(equals + 1);
    }
    const rn_option *option = find_flag(reader, name, &negated);
    if (!option) return unknown_flag(reader, argument);
    char origin[80];
    snprintf(origin, sizeof origin, "--%.*s", RN_STR_ARG(name));
    if (negated && equals) return rn_fail(RN_INVALID, "%s takes no value", origin);
    if (stands_alone(option) && !equals)
        value = negated ? RN_STR("false") : RN_STR("true");
    else if (!equals)
        RN_TRY(take_value(reader, origin, &value));
    return rn_settings_set(reader->settings, option, value, origin);
}

// -j, -b 2GiB, -b2GiB; letters do not combine.
static rn_status read_short(argument_reader *reader, const char *argument) {
    const rn_option *option = NULL;
    for (size_t i = 0; i < rn_option_count() && !option; i++)
        if (rn_option_at(i)->letter == argument[1] &&
            rn_option_is_for(rn_option_at(i), reader->command))
            option = rn_option_at(i);
    if (!option) return unknown_flag(reader, argument);
    char flag[] = {'-', argument[1], '\0'}, origin[80];
    snprintf(origin, sizeof origin, "--%s", option->name); // a list goes on from -x to --exclude
    rn_str value = rn_str_from(argument + 2);
    if (option->type == RN_OPTION_BOOL) {
        if (value.bytes) return unknown_flag(reader, argument);
        value = RN_STR("true");
    } else if (value.bytes == 0) {
        RN_TRY(take_value(reader, flag, &value));
    }
    return rn_settings_set(reader->settings, option, value, origin);
}

rn_status rn_settings_load_arguments(rn_settings *settings, const char *command, int argc,
                                     char *const *argv, const char **words, size_t max_words,
                                     size_t *out_word_count) {
    argument_reader reader = {settings, command, argc, 0, argv};
    bool flags_ended = false;
    *out_word_count = 0;
    while (reader.at < argc) {
        const char *argument = argv[reader.at++];
        if (!flags_ended && strcmp(argument, "--") == 0) {
            flags_ended = true;
        } else if (!flags_ended && argument[0] == '-' && argument[1] == '-') {
            RN_TRY(read_long(&reader, argument));
        } else if (!flags_ended && argument[0] == '-' && argument[1] != '\0') {
            RN_TRY(read_short(&reader, argument));
        } else if (*out_word_count == max_words) {
            return rn_hint(rn_fail(RN_INVALID, "'%s' is one argument too many", argument),
                           "see ration %s --help", command);
        } else {
            words[(*out_word_count)++] = argument;
        }
    }
    return RN_OK;
}

// ---- reading --------------------------------------------------------------------------

static const char *text_of(const rn_settings *settings, const char *name) {
    const rn_option *option = rn_option_find(rn_str_from(name));
    if (!option) return "";
    const char *text = find_setting(settings, option)->text;
    if (!text) text = option->standard;
    return text ? text : "";
}

const char *rn_settings_text(const rn_settings *settings, const char *name) {
    return text_of(settings, name);
}

bool rn_settings_bool(const rn_settings *settings, const char *name) {
    bool value = false;
    return rn_option_parse_bool(rn_str_from(text_of(settings, name)), &value) && value;
}

uint64_t rn_settings_count(const rn_settings *settings, const char *name) {
    uint64_t value = 0;
    return parse_count(rn_str_from(text_of(settings, name)), &value) ? value : 0;
}

double rn_settings_number(const rn_settings *settings, const char *name) {
    double value = 0;
    return parse_number(rn_str_from(text_of(settings, name)), &value) ? value : 0;
}

uint64_t rn_settings_size(const rn_settings *settings, const char *name) {
    uint64_t value = 0;
    return rn_size_parse(rn_str_from(text_of(settings, name)), 0, &value) == RN_OK ? value : 0;
}

size_t rn_settings_list(const rn_settings *settings, const char *name,
                        const char *const **out_items) {
    const rn_option *option = rn_option_find(rn_str_from(name));
    *out_items = NULL;
    if (!option) return 0;
    const setting *found = find_setting(settings, option);
    *out_items = found->items;
    return found->item_count;
}

const char *rn_settings_origin(const rn_settings *settings, const char *name) {
    const rn_option *option = rn_option_find(rn_str_from(name));
    const char *origin = option ? find_setting(settings, option)->origin : NULL;
    return origin ? origin : "default";
}
