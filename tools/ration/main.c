// main.c — finds the command, loads its settings, runs it, and turns its status into an exit code.
#include "command.h"

#include "support/model_names.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Documented in README.md: scripts rely on them.
enum { EXIT_USAGE = 2, EXIT_INPUT = 3, EXIT_BUDGET = 4, EXIT_DEVICE = 5, EXIT_CANCELLED = 6 };

volatile bool interrupted;
rn_flag interrupt_flag;

const command *const all_commands[] = {
    &run_command,     &serve_command,       &pull_command,         &models_command,
    &plan_command,    &image_command,       &embed_command,        &train_command,
    &launch_command,  &convert_command,     &inspect_command,      &bench_command,
    &profile_command, &config_command,      &calibrate_command,    &compile_command,
    &place_command,   &completions_command, &bench_worker_command, &man_page_command};
const size_t all_command_count = sizeof all_commands / sizeof *all_commands;

static int exit_code(rn_status status) {
    switch (status) {
    case RN_OK:
        return 0;
    case RN_INVALID:
        return EXIT_USAGE;
    case RN_OVER_BUDGET:
    case RN_NO_MEMORY:
        return EXIT_BUDGET;
    case RN_DEVICE:
        return EXIT_DEVICE;
    case RN_CANCELLED:
        return EXIT_CANCELLED;
    case RN_INTERNAL:
        return 1;
    default:
        return EXIT_INPUT;
    }
}

// The first signal asks, the second one kills. A terminal that is closed (SIGHUP) asks, too, unless
// nohup has it ignored.
static void on_signal(int number) {
    interrupted = true;
    interrupt_flag = true;
    signal(number, SIG_DFL);
}

static void catch_signals(void) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
}

void forget_interrupt(void) {
    interrupted = false;
    interrupt_flag = false;
    catch_signals();
}

// ---- help -----------------------------------------------------------------------------

static void print_general_help(void) {
    printf("ration %s: models inside a memory budget\n\nusage: ration COMMAND [options]\n\n"
           "  ration run                      a story; on a terminal, a chat where the model can\n"
           "  ration pull org/name:q4_k_m     a model from the Hugging Face hub\n"
           "  ration run MODEL \"text\" --budget 2GiB\n\n",
           rn_version());
    for (size_t i = 0; i < all_command_count; i++)
        if (all_commands[i]->summary)
            printf("  %-11s %s\n", all_commands[i]->name, all_commands[i]->summary);
    printf("\nration COMMAND --help says more. Exit codes: 0 done, 2 usage, 3 bad input,\n"
           "4 over budget, 5 device, 6 cancelled, 7 slower or larger than bench may be.\n");
}

static void print_option(void *self, const rn_option *option) {
    (void)self;
    char flags[64];
    int bytes = option->letter ? snprintf(flags, sizeof flags, "-%c, ", option->letter)
                               : snprintf(flags, sizeof flags, "    ");
    bool optional = option->type == RN_OPTION_FILE;
    snprintf(flags + bytes, sizeof flags - (size_t)bytes, "--%s%s%s%s", option->name,
             optional        ? "[="
             : option->value ? " "
                             : "",
             option->value ? option->value : "", optional ? "]" : "");
    printf("  %-28s %s", flags, option->help);
    if (option->choices) printf(" (%s)", option->choices);
    bool shown = option->standard && strcmp(option->standard, "false") != 0;
    if (shown) printf(" [%s]", option->standard);
    printf("\n");
}

// What most people look for stands first, in this order; an option that a command does not take
// is passed over.
static const char *const first_options[] = {
    "prompt", "data",        "out",  "to",   "tokens", "system", "budget", "device",  "ctx", "port",
    "host",   "temperature", "seed", "size", "steps",  "lora",   "output", "threads", "json"};
enum { FIRST_OPTIONS = sizeof first_options / sizeof *first_options };

static bool is_first(const rn_option *option) {
    for (size_t i = 0; i < FIRST_OPTIONS; i++)
        if (strcmp(option->name, first_options[i]) == 0) return true;
    return false;
}

void each_option(const command *c, bool usual, void (*each)(void *self, const rn_option *option),
                 void *self) {
    for (size_t i = 0; usual && i < FIRST_OPTIONS; i++) {
        const rn_option *option =
            rn_option_find((rn_str){first_options[i], strlen(first_options[i])});
        if (option && rn_option_is_for(option, c->name)) each(self, option);
    }
    for (size_t i = 0; !usual && i < rn_option_count(); i++)
        if (rn_option_is_for(rn_option_at(i), c->name) && !is_first(rn_option_at(i)))
            each(self, rn_option_at(i));
}

static void print_help(const command *c) {
    printf("usage: ration %s\n\n%s\n\nexample:\n  %s\n\noptions:\n", c->usage,
           c->summary ? c->summary : "", c->example);
    each_option(c, true, print_option, NULL);
    printf("  -h, --help                   this text\n\n%s\n\nmore options:\n", c->about);
    each_option(c, false, print_option, NULL);
    printf(
        "\nEvery option may also be set as RATION_NAME in the environment, and those that ration\n"
        "config list shows in ration.toml.\n");
}

// ---- failing --------------------------------------------------------------------------

// By the ledger's budget, which keeps a table of it, and not by a capacity that a command was
// given.
static bool was_refused(const rn_error_info *error) {
    return error->status == RN_OVER_BUDGET && rn_last_refusal()->requested_bytes > 0;
}

static void print_error_json(const rn_error_info *error, const char *stage) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_object(&json, "error");
    rn_json_string(&json, "status", rn_status_name(error->status));
    rn_json_i64(&json, "exit_code", exit_code(error->status));
    rn_json_string(&json, "message", error->message);
    rn_json_string(&json, "path", error->path);
    if (error->offset != RN_NO_OFFSET) rn_json_u64(&json, "offset", error->offset);
    rn_json_string(&json, "hint", error->hint);
    if (stage[0]) rn_json_string(&json, "stage", stage);
    if (was_refused(error))
        rn_json_check(&json, rn_refusal_json(rn_last_refusal(), rn_json_embed(&json, "refusal")));
    rn_json_end(&json);
    rn_json_end(&json);
    (void)!rn_json_finish(&json);
}

static void print_error(const rn_error_info *error, const char *stage) {
    rn_comm_launch launch = rn_comm_find_launch();
    if (launch.ranks > 1)
        fprintf(stderr, "ration: rank %u of %u: %s\n", launch.rank, launch.ranks, error->message);
    else
        fprintf(stderr, "ration: %s\n", error->message);
    if (error->path[0] && !strstr(error->message, error->path))
        fprintf(stderr, "  file: %s\n", error->path);
    if (error->offset != RN_NO_OFFSET)
        fprintf(stderr, "  at byte: %llu\n", (unsigned long long)error->offset);
    if (stage[0] && strcmp(stage, "start") != 0) fprintf(stderr, "  stage: %s\n", stage);
    if (error->hint[0]) fprintf(stderr, "  hint: %s\n", error->hint);
    if (!was_refused(error)) return;
    if (rn_last_refusal()->at_least)
        fprintf(stderr, "  hint: ration plan MODEL without --budget names the smallest budget that "
                        "works\n");
    (void)!rn_refusal_print(rn_last_refusal(), rn_sink_file(stderr));
}

// Once: as a line of the log where that is for machines.
static int fail(const invocation *in) {
    const rn_error_info *error = rn_last_error();
    if (rn_log_form_get() == RN_LOG_JSON && rn_log_wants(RN_LOG_ERROR))
        rn_stage_failed(in->reached.text, error);
    else
        print_error(error, in->reached.text);
    if (in->json) print_error_json(error, in->reached.text);
    return exit_code(error->status);
}

// ---- running --------------------------------------------------------------------------

const char *take_config_flag(int argc, char **argv, int *at) {
    const char *flag = argv[*at];
    if (strncmp(flag, "--config=", 9) == 0) return flag + 9;
    if (strncmp(flag, "-c", 2) == 0 && flag[2]) return flag + 2;
    if (strcmp(flag, "--config") != 0 && strcmp(flag, "-c") != 0) return NULL;
    return *at + 1 < argc ? argv[++*at] : NULL;
}

// The last --config, as for every other flag; else the variable.
static const char *find_config(int argc, char **argv) {
    const char *file = getenv("RATION_CONFIG");
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value = take_config_flag(argc, argv, &i);
        if (value) file = value;
    }
    return file;
}

// The word that is a file of settings, for commands that take one; NULL: none.
static const char *find_config_word(const command *c, int argc, char **argv) {
    for (int i = 0; c->takes_config && i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *ending = strrchr(argv[i], '.');
        if (take_config_flag(argc, argv, &i) || argv[i][0] == '-') continue;
        if (ending && strcmp(ending, ".toml") == 0) return argv[i];
    }
    return NULL;
}

// set and update make the file that they name.
static bool makes_file(const invocation *in, int argc, char **argv) {
    return in->command == &config_command && argc > 0 &&
           (strcmp(argv[0], "set") == 0 || strcmp(argv[0], "update") == 0);
}

static bool wants_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static rn_log_level read_log_level(const invocation *in) {
    static const char *const levels[] = {"debug", "info", "warning", "error", "off"};
    const char *level = rn_settings_text(in->settings, "log-level");
    bool chosen = strcmp(rn_settings_origin(in->settings, "log-level"), "default") != 0;
    if (in->command == &serve_command && !chosen) return RN_LOG_INFO;
    for (int i = 0; i < 5; i++)
        if (strcmp(level, levels[i]) == 0) return (rn_log_level)i;
    return RN_LOG_WARNING;
}

// What a server prints is its log.
static rn_log_form read_log_form(const invocation *in) {
    const char *form = rn_settings_text(in->settings, "log-format");
    if (strcmp(form, "json") == 0 || (in->command == &serve_command && in->json))
        return RN_LOG_JSON;
    return strcmp(form, "symbols") == 0 ? RN_LOG_SYMBOLS : RN_LOG_TEXT;
}

static rn_status check_words(const invocation *in) {
    const command *c = in->command;
    if (in->word_count >= c->min_words && in->word_count <= c->max_words) return RN_OK;
    rn_status s = rn_fail(RN_INVALID, "ration %s: %s argument", c->name,
                          in->word_count < c->min_words ? "missing" : "superfluous");
    return rn_hint(s, "usage: ration %s", c->usage);
}

static int count_own(const command *c, int argc, char **argv) {
    return c->count_own ? c->count_own(argc, argv) : argc;
}

static rn_status load_settings(invocation *in, int argc, char **argv) {
    // The file comes before the flags in rank but is named by one of them.
    int own = count_own(in->command, argc, argv);
    in->config_word = find_config_word(in->command, own, argv);
    const char *file = in->config_word ? in->config_word : find_config(own, argv);
    bool missing = file && *file && access(file, F_OK) != 0;
    if (!missing || !makes_file(in, argc, argv)) RN_TRY(rn_settings_load_files(in->settings, file));
    if (in->command->load_variables) RN_TRY(in->command->load_variables(in));
    RN_TRY(rn_settings_load_environment(in->settings, environ));
    if (in->command->own_arguments) return in->command->own_arguments(in, argc, argv);
    RN_TRY(rn_settings_load_arguments(in->settings, in->command->name, argc, argv, in->words,
                                      MAX_WORDS, &in->word_count));
    RN_TRY(rn_settings_check(in->settings));
    RN_TRY(check_words(in));
    if (!in->config_word) return RN_OK;
    if (in->word_count > 1)
        return rn_hint(
            rn_fail(RN_INVALID, "ration %s: a file of settings stands alone", in->command->name),
            "the model is `base` in it, or --base");
    in->word_count = 0;
    return RN_OK;
}

static bool is_recipe(const char *word) {
    rn_recipe recipe;
    if (rn_builtin_recipe(word, &recipe) != RN_OK) return false;
    rn_recipe_destroy(&recipe);
    return true;
}

// A model's name becomes the path of what it stands for.
static rn_status find_model(invocation *in) {
    static rn_found_model found; // two paths
    const char *word = in->word_count ? in->words[0] : "";
    if (!in->command->takes_model || !word[0] || is_recipe(word)) return RN_OK;
    rn_status s = rn_model_find(word, &found);
    // It may have been meant for a recipe: plan lists these.
    if (s == RN_NOT_FOUND && in->command == &plan_command && !strchr(word, '/')) return RN_OK;
    RN_TRY(s);
    if (!found.label[0]) return RN_OK;
    in->words[0] = found.path;
    snprintf(in->model_label, sizeof in->model_label, "%s", found.label);
    return RN_OK;
}

// The library reads it from the environment, whoever uses it.
static void use_programs(const invocation *in) {
    const char *folder = rn_settings_text(in->settings, "programs");
    const char *saved = rn_settings_text(in->settings, "save");
    if (!folder[0]) folder = saved;
    if (folder[0]) setenv("RATION_PROGRAMS", folder, 1);
}

// A recording is there before anything of the user's is read, and bounded: the budget's limit comes
// behind it, and counts it.
static rn_status run_recorded(invocation *in) {
    RN_TRY(begin_profiling(in));
    rn_stage("start");
    rn_status s = find_model(in);
    if (s == RN_OK && in->command->limits_memory) s = begin_budget(in);
    if (s == RN_OK) s = in->command->run(in);
    in->reached = rn_stage_last();
    rn_stage("final_cleanup");
    end_profiling(in);
    return s;
}

static int carry_out(const command *c, int argc, char **argv) {
    int code = 0;
    invocation in = {.command = c, .exit_code = &code};
    if (wants_help(count_own(c, argc, argv), argv)) {
        print_help(c);
        return 0;
    }
    rn_status s = rn_settings_create(&in.settings);
    if (s == RN_OK) s = load_settings(&in, argc, argv);
    if (in.settings) in.json = rn_settings_bool(in.settings, "json");
    if (s == RN_OK) {
        rn_log_set(rn_sink_file(stderr), read_log_form(&in), read_log_level(&in));
        use_programs(&in);
        s = run_recorded(&in);
    }
    if (s == RN_OK && (fflush(stdout) != 0 || ferror(stdout)))
        s = rn_fail(RN_IO, "cannot write to standard output");
    if (s != RN_OK) code = fail(&in);
    rn_settings_destroy(in.settings);
    return code;
}

static int unknown_command(const char *name) {
    fprintf(stderr, "ration: there is no command '%s'\n  hint: ration --help lists them\n", name);
    return EXIT_USAGE;
}

// ration help COMMAND, and ration help all.
static int help_with(const char *name) {
    bool all = strcmp(name, "all") == 0, any = false;
    for (size_t i = 0; i < all_command_count; i++) {
        const command *c = all_commands[i];
        if (!c->summary || (!all && strcmp(name, c->name) != 0)) continue;
        if (all) printf("%s---- ration %s ----\n\n", any ? "\n" : "", c->name);
        print_help(c);
        any = true;
    }
    return any ? 0 : unknown_command(name);
}

int main(int argc, char **argv) {
    catch_signals();
    catch_profile_signal();
    rn_stop_on(&interrupt_flag);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        if (argc > 2 && strcmp(argv[1], "help") == 0) return help_with(argv[2]);
        print_general_help();
        return argc < 2 ? EXIT_USAGE : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ration %s\n", rn_version());
        return 0;
    }
    for (size_t i = 0; i < all_command_count; i++)
        if (strcmp(argv[1], all_commands[i]->name) == 0)
            return carry_out(all_commands[i], argc - 2, argv + 2);
    return unknown_command(argv[1]);
}
