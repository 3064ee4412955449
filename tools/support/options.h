// options.h — every setting of ration, once: as a flag, a RATION_* variable and a key of the TOML
// file.
//
//     --threads 4      RATION_THREADS=4      threads = 4
//     --to int4        RATION_TO=int4        [convert]
//                                            to = "int4"
//
//     rn_settings *settings;
//     RN_TRY(rn_settings_create(&settings));
//     RN_TRY(rn_settings_load_files(settings, NULL));
//     RN_TRY(rn_settings_load_environment(settings, environ));
//     RN_TRY(rn_settings_load_arguments(settings, "convert", argc, argv, words, 8, &count));
//
// Later loads win. Every value is checked when it is set, and a bad one is RN_INVALID with where it
// came from.
#ifndef RATION_SUPPORT_OPTIONS_H
#define RATION_SUPPORT_OPTIONS_H

#include <ration/text.h>

typedef enum rn_option_type {
    RN_OPTION_BOOL,
    RN_OPTION_COUNT,  // a whole number
    RN_OPTION_NUMBER, // 0.7, -1
    RN_OPTION_TEXT,
    RN_OPTION_CHOICE, // one of `choices`
    RN_OPTION_SIZE,   // "2GiB"
    RN_OPTION_BUDGET, // "2GiB", "75%", "host=8GiB,cuda:0=4GiB"
    RN_OPTION_TARGET, // of convert: "bf16", "q4_k_m"
    RN_OPTION_LIST,   // texts; each use adds one, an empty one empties the list
    RN_OPTION_FILE    // a text that may be left out: --name is "true", --no-name "false", a file is
                      // named by --name=FILE only
} rn_option_type;

typedef struct rn_option {
    const char *name; // "log-level": --log-level, RATION_LOG_LEVEL
    const char *key;  // in the TOML file: "log.level"
    char letter;      // -j, or 0
    rn_option_type type;
    bool in_array;        // the key's table is an array of tables in the file: [[backend]]
    const char *commands; // "inspect convert": where the flag is taken; "" everywhere
    const char *standard; // the value where nobody sets one; NULL for none
    const char *value;    // what help calls the value: "SIZE"
    const char *choices;  // CHOICE: "text|json"
    const char *help;
} rn_option;

size_t rn_option_count(void);
const rn_option *rn_option_at(size_t index);
// By name or key; NULL where there is none.
const rn_option *rn_option_find(rn_str name);
// Whether `command` takes the option as a flag; "" stands for any command.
bool rn_option_is_for(const rn_option *option, const char *command);
// The name nearest to a misspelt one among those that `command` takes, or, where that is NULL, the
// key nearest to a misspelt key. NULL where nothing is near.
const char *rn_option_suggest(rn_str name, const char *command);

typedef struct rn_settings rn_settings;

RN_MUST_USE rn_status rn_settings_create(rn_settings **out);
void rn_settings_destroy(rn_settings *settings);
// Sets one option from text; `origin` ("--threads", a file's name) goes into errors and listings.
RN_MUST_USE rn_status rn_settings_set(rn_settings *settings, const rn_option *option, rn_str value,
                                      const char *origin);
// The files that exist: the user's, then ./ration.toml; or only `path` where one is given. Unknown
// keys are errors.
RN_MUST_USE rn_status rn_settings_load_files(rn_settings *settings, const char *path);
RN_MUST_USE rn_status rn_settings_load_environment(rn_settings *settings, char *const *environment);
// Flags of `command` ("--name value", "--name=value", "--flag", "--no-flag", "-x value"); what is
// no flag goes to `words`. "--" ends the flags. argv[0] is the first argument, not the program.
RN_MUST_USE rn_status rn_settings_load_arguments(rn_settings *settings, const char *command,
                                                 int argc, char *const *argv, const char **words,
                                                 size_t max_words, size_t *out_word_count);

// Checks what only higher layers can: budgets and dtypes. RN_INVALID names the value's origin.
RN_MUST_USE rn_status rn_settings_check(const rn_settings *settings);

// The value of an option that exists (by name), or its standard one. Text is "" where there is
// none.
const char *rn_settings_text(const rn_settings *settings, const char *name);
bool rn_settings_bool(const rn_settings *settings, const char *name);
uint64_t rn_settings_count(const rn_settings *settings, const char *name);
double rn_settings_number(const rn_settings *settings, const char *name);
uint64_t rn_settings_size(const rn_settings *settings, const char *name);
// The items of a LIST.
size_t rn_settings_list(const rn_settings *settings, const char *name,
                        const char *const **out_items);
// Where the value came from: "default", a file's name, "RATION_THREADS", "--threads".
const char *rn_settings_origin(const rn_settings *settings, const char *name);

// Changes one value in a TOML file (made if it is missing) and leaves the rest as it is. The value
// is checked first.
RN_MUST_USE rn_status rn_config_write(const char *path, const rn_option *option, rn_str value);
// The file that `ration config` edits: `given` if not NULL or "", ./ration.toml if there is one,
// else the user's.
RN_MUST_USE rn_status rn_config_path(const char *given, char *out, size_t capacity);

#endif
