// config.c — ration config: show the settings and where they come from; change one in the TOML
// file.
#include "command.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096, MAX_FLAGS = 64 };

static char *const *arguments; // what stands after "config"
static int argument_count;

static rn_status edited_file(const invocation *in, char *out) {
    return rn_config_path(rn_settings_text(in->settings, "config"), out, MAX_PATH_BYTES);
}

static rn_status find_option(const char *name, const rn_option **out) {
    rn_str text = {name, strlen(name)};
    *out = rn_option_find(text);
    if (*out) return RN_OK;
    const char *near = rn_option_suggest(text, "");
    rn_status s = rn_fail(RN_INVALID, "there is no setting '%s'", name);
    return near ? rn_hint(s, "did you mean %s?", near)
                : rn_hint(s, "ration config list shows them");
}

// ---- list and get ---------------------------------------------------------------------

// A list is easily shown to others: secrets are not part of it.
static const char *listed_value(const rn_settings *settings, const rn_option *option) {
    const char *value = rn_settings_text(settings, option->name);
    return value[0] && strcmp(option->name, "api-key") == 0 ? "(hidden)" : value;
}

static void write_setting(rn_json *json, const rn_settings *settings, const rn_option *option) {
    rn_json_object(json, NULL);
    rn_json_string(json, "name", option->name);
    rn_json_string(json, "key", option->key);
    rn_json_string(json, "value", listed_value(settings, option));
    rn_json_string(json, "origin", rn_settings_origin(settings, option->name));
    rn_json_string(json, "help", option->help);
    rn_json_end(json);
}

static rn_status list_json(const invocation *in) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_array(&json, NULL);
    for (size_t i = 0; i < rn_option_count(); i++)
        if (rn_option_at(i)->key[0]) write_setting(&json, in->settings, rn_option_at(i));
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status list(const invocation *in) {
    if (in->json) return list_json(in);
    printf("%-34s %-12s %s\n", "key", "value", "from");
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        if (!option->key[0]) continue;
        printf("%-34s %-12s %s\n", option->key, listed_value(in->settings, option),
               rn_settings_origin(in->settings, option->name));
    }
    return RN_OK;
}

static rn_status get(const invocation *in, const char *name) {
    const rn_option *option;
    RN_TRY(find_option(name, &option));
    if (in->json) {
        rn_json json;
        rn_json_begin(&json, rn_sink_file(stdout), true);
        write_setting(&json, in->settings, option);
        return rn_json_finish(&json);
    }
    printf("%s\n", rn_settings_text(in->settings, option->name));
    return RN_OK;
}

// ---- set and update -------------------------------------------------------------------

static rn_status set(const invocation *in, const char *name, const char *value) {
    char path[MAX_PATH_BYTES];
    const rn_option *option;
    RN_TRY(find_option(name, &option));
    RN_TRY(edited_file(in, path));
    RN_TRY(rn_config_write(path, option, (rn_str){value, strlen(value)}));
    if (!in->json) printf("%s: %s = %s\n", path, option->key, value);
    return RN_OK;
}

// --name value pairs: every setting's flag, whatever command it belongs to.
static rn_status update(const invocation *in, int argc, char *const *argv) {
    if (argc == 0 || argc % 2)
        return rn_hint(rn_fail(RN_INVALID, "update wants pairs of --name value"),
                       "ration config update --backend-enable-memory-profiling true");
    const rn_option *option;
    for (int i = 0; i < argc; i += 2) { // all of them first: a misspelt one changes nothing
        if (strncmp(argv[i], "--", 2) != 0)
            return rn_fail(RN_INVALID, "'%s' is not of the form --name", argv[i]);
        RN_TRY(find_option(argv[i] + 2, &option));
        rn_str value = {argv[i + 1], strlen(argv[i + 1])};
        RN_TRY(rn_settings_set(in->settings, option, value, argv[i]));
    }
    for (int i = 0; i < argc; i += 2)
        RN_TRY(set(in, argv[i] + 2, argv[i + 1]));
    return RN_OK;
}

static rn_status run(const invocation *in) {
    const char *verb = in->words[0];
    if (strcmp(verb, "list") == 0 && argument_count == 0) return list(in);
    if (strcmp(verb, "get") == 0 && argument_count == 1) return get(in, arguments[0]);
    if (strcmp(verb, "set") == 0 && argument_count == 2) return set(in, arguments[0], arguments[1]);
    if (strcmp(verb, "update") == 0) return update(in, argument_count, arguments);
    return rn_hint(rn_fail(RN_INVALID, "ration config does not understand '%s' with %d arguments",
                           verb, argument_count),
                   "usage: ration %s", in->command->usage);
}

// update's flags are settings to write, not settings to use, so only --config and --json are taken
// out here.
static rn_status read_arguments(invocation *in, int argc, char **argv) {
    static char *rest[MAX_FLAGS];
    for (int i = 0; i < argc; i++) {
        const rn_option *option = NULL;
        const char *file = take_config_flag(argc, argv, &i);
        if (file) {
            RN_TRY(find_option("config", &option));
            RN_TRY(rn_settings_set(in->settings, option, (rn_str){file, strlen(file)}, "--config"));
        } else if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0) {
            RN_TRY(find_option("json", &option));
            RN_TRY(rn_settings_set(in->settings, option, (rn_str){"true", 4}, argv[i]));
        } else if (in->word_count == 0) {
            in->words[in->word_count++] = argv[i];
        } else if (argument_count == MAX_FLAGS) {
            return rn_fail(RN_INVALID, "too many arguments");
        } else {
            rest[argument_count++] = argv[i];
        }
    }
    arguments = rest;
    if (in->word_count) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "ration config: what shall it do?"), "usage: ration %s",
                   in->command->usage);
}

const command config_command = {
    .name = "config",
    .usage = "config list | get KEY | set KEY VALUE | update --NAME VALUE ... [--config FILE]",
    .summary = "show and change settings",
    .about =
        "Settings come from, in rising rank: their defaults, ~/.config/ration/config.toml,\n"
        "./ration.toml (or instead of both the file of --config), RATION_* variables, flags.\n"
        "set and update change one value in place, in the file of --config, else ./ration.toml if\n"
        "there is one, else the user's file; comments and everything else in it stay as they are.",
    .example = "ration config update --backend-enable-memory-profiling true",
    .run = run,
    .own_arguments = read_arguments,
};
