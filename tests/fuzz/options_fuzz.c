// options_fuzz.c — arguments, environment and a TOML file, separated by 0xFF, one string a line:
// settings are refused with a reason, or every option has a value of its kind.
#include <ration/memory.h>
#include "support/options.h"
#include <ration/tensor.h>

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_STRINGS = 64, MAX_WORDS = 8, SEPARATOR = 0xFF };

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static const char *make_file(rn_str text) {
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        require(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    require(ftruncate(fd, 0) == 0 && pwrite(fd, text.data, text.bytes, 0) == (ssize_t)text.bytes);
    return path;
}

// Cuts up to the next separator off the front.
static rn_str take_section(rn_str *rest) {
    const char *end = rest->bytes ? memchr(rest->data, SEPARATOR, rest->bytes) : NULL;
    rn_str section = {rest->data, end ? (size_t)(end - rest->data) : rest->bytes};
    size_t used = section.bytes + (end != NULL);
    *rest = (rn_str){rest->data + used, rest->bytes - used};
    return section;
}

// Lines as terminated strings, with a NULL at the end; all in one block, which is
// strings[MAX_STRINGS + 1].
static size_t split_lines(rn_str text, char *strings[MAX_STRINGS + 2]) {
    char *copy = malloc(text.bytes + 1);
    size_t count = 0;
    if (text.bytes) memcpy(copy, text.data, text.bytes);
    copy[text.bytes] = '\0';
    for (char *line = copy; line && count < MAX_STRINGS && text.bytes; count++) {
        strings[count] = line;
        line = strchr(line, '\n');
        if (line) *line++ = '\0';
    }
    strings[count] = NULL;
    strings[MAX_STRINGS + 1] = copy;
    return count;
}

static void check_option(const rn_settings *settings, const rn_option *option) {
    const char *text = rn_settings_text(settings, option->name), *const * items;
    require(text && rn_settings_origin(settings, option->name)[0]);
    size_t count = rn_settings_list(settings, option->name, &items);
    for (size_t i = 0; i < count; i++)
        require(items[i] != NULL);
    (void)rn_settings_size(settings, option->name);
    if (option->type == RN_OPTION_CHOICE) require(strstr(option->choices, text) != NULL);
    if (option->type == RN_OPTION_COUNT) {
        char again[32];
        snprintf(again, sizeof again, "%llu",
                 (unsigned long long)rn_settings_count(settings, option->name));
        require(strspn(text, "0123456789") == strlen(text) && strlen(again) <= strlen(text));
    }
}

static void check_status(rn_status s) {
    require(s == RN_OK || s == RN_INVALID || s == RN_CORRUPT);
    if (s != RN_OK) require(rn_last_error()->message[0] != '\0');
}

static void parse_values(char *const *strings) {
    for (; *strings; strings++) {
        rn_str text = rn_str_from(*strings);
        rn_budget_spec spec;
        uint64_t bytes;
        check_status(rn_size_parse(text, 1000, &bytes));
        check_status(rn_budget_parse(text, &spec));
        (void)rn_dtype_parse(text);
        (void)rn_option_find(text);
        (void)rn_option_suggest(text, "convert");
    }
}

static rn_status load_all(rn_settings *settings, const char *command, rn_str toml,
                          char *const *environment, char *const *arguments, size_t count) {
    const char *words[MAX_WORDS];
    size_t word_count;
    RN_TRY(rn_settings_load_files(settings, make_file(toml)));
    RN_TRY(rn_settings_load_environment(settings, environment));
    RN_TRY(rn_settings_load_arguments(settings, command, (int)count, arguments, words, MAX_WORDS,
                                      &word_count));
    require(word_count <= MAX_WORDS);
    return RN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const commands[] = {"inspect", "convert", "config"};
    char *arguments[MAX_STRINGS + 2], *environment[MAX_STRINGS + 2];
    rn_str rest = {(const char *)data, size};
    const char *command = commands[size % 3];
    rn_settings *settings;
    size_t count = split_lines(take_section(&rest), arguments);
    (void)split_lines(take_section(&rest), environment);
    require(rn_settings_create(&settings) == RN_OK);
    parse_values(arguments);
    check_status(load_all(settings, command, rest, environment, arguments, count));
    for (size_t i = 0; i < rn_option_count();
         i++) // also after a failure: what was set before it holds
        check_option(settings, rn_option_at(i));
    rn_settings_destroy(settings);
    free(arguments[MAX_STRINGS + 1]);
    free(environment[MAX_STRINGS + 1]);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0);
    return 0;
}
