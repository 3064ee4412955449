// Every option by flag, variable and file; who wins; what is wrong and where; editing the file.
#include "support.h"
#include "base/fault.h"
#include "support/settings.h"
#include "base/str.h"
#include <ration/memory.h>
#include "support/options.h"

#include <ctype.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- a place of its own ------------------------------------------------------------------

static rn_settings *settings; // of the current test

static int make_home(void **state) {
    (void)state;
    setenv("HOME", test_path("home"), 1);
    unsetenv("XDG_CONFIG_HOME");
    return chdir(test_folder());
}

static int begin(void **state) {
    (void)state;
    unlink("ration.toml");
    unlink("home/.config/ration/config.toml");
    return rn_settings_create(&settings) == RN_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    rn_settings_destroy(settings);
    settings = NULL;
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0 ? 0 : -1;
}

static int leave(void **state) {
    (void)state;
    return chdir("/");
}

static void start_anew(void) {
    rn_settings_destroy(settings);
    assert_ok(rn_settings_create(&settings));
}

static void write_text(const char *path, const char *text) {
    test_write(path, text, strlen(text));
}

static void write_user_file(const char *text) {
    mkdir("home", 0700);
    mkdir("home/.config", 0700);
    mkdir("home/.config/ration", 0700);
    write_text("home/.config/ration/config.toml", text);
}

static void expect_file(const char *path, const char *text) {
    size_t bytes = 0;
    char *found = test_read(path, &bytes);
    assert_non_null(found);
    assert_string_equal(text, found);
    free(found);
}

static const rn_option *option_of(const char *name) {
    const rn_option *option = rn_option_find(rn_str_from(name));
    assert_non_null(option);
    return option;
}

// ---- arguments in short --------------------------------------------------------------------

enum { MAX_WORDS = 4 };
static const char *words[MAX_WORDS];
static size_t word_count;

// `line` is cut at spaces.
static rn_status parse(const char *command, const char *line) {
    static char text[4096];
    static char *argv[128];
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return rn_settings_load_arguments(settings, command, argc, argv, words, MAX_WORDS, &word_count);
}

static rn_status load_variable(const char *entry) {
    char *environment[] = {(char *)"PATH=/bin", (char *)entry, (char *)"HOME=/", NULL};
    return rn_settings_load_environment(settings, environment);
}

static void expect_setting(const char *name, const char *text, const char *origin) {
    assert_string_equal(text, rn_settings_text(settings, name));
    assert_string_equal(origin, rn_settings_origin(settings, name));
}

static void expect_story(rn_status expected, rn_status found, const char *message,
                         const char *hint) {
    const rn_error_info *story = rn_last_error();
    if (expected != found) fail_msg("%s: %s", rn_status_name(found), story->message);
    if (!strstr(story->message, message)) fail_msg("'%s' has no '%s'", story->message, message);
    if (!strstr(story->hint, hint)) fail_msg("hint '%s' has no '%s'", story->hint, hint);
}

// ---- the table -----------------------------------------------------------------------------

// A good value that is not the standard one.
static const char *sample_of(const rn_option *option) {
    static char choice[64];
    const char *last;
    switch (option->type) {
    case RN_OPTION_BOOL:
        return option->standard && strcmp(option->standard, "true") == 0 ? "false" : "true";
    case RN_OPTION_COUNT:
        return "7";
    case RN_OPTION_NUMBER:
        return "0.75";
    case RN_OPTION_CHOICE:
        last = strrchr(option->choices, '|');
        snprintf(choice, sizeof choice, "%s", last ? last + 1 : option->choices);
        return choice;
    case RN_OPTION_SIZE:
    case RN_OPTION_BUDGET:
        return "3GiB";
    case RN_OPTION_TARGET:
        return "bf16";
    default:
        return "some*text";
    }
}

static bool written_bare(const rn_option *option) {
    return option->type == RN_OPTION_BOOL || option->type == RN_OPTION_COUNT;
}

static const char *command_of(const rn_option *option) {
    static char command[32];
    snprintf(command, sizeof command, "%.*s", (int)strcspn(option->commands, " "),
             option->commands);
    return command[0] ? command : "inspect";
}

static bool share_a_command(const rn_option *a, const rn_option *b) {
    if (!a->commands[0] || !b->commands[0]) return true;
    static const char *const commands[] = {"inspect", "convert", "config"};
    for (size_t i = 0; i < 3; i++)
        if (strstr(a->commands, commands[i]) && strstr(b->commands, commands[i])) return true;
    return false;
}

static void options_do_not_get_in_each_others_way(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++)
        for (size_t j = 0; j < i; j++) {
            const rn_option *a = rn_option_at(i), *b = rn_option_at(j);
            assert_string_not_equal(a->name, b->name);
            if (a->key[0]) assert_string_not_equal(a->key, b->key);
            if (a->letter && share_a_command(a, b)) assert_int_not_equal(a->letter, b->letter);
        }
    assert_null(rn_option_at(rn_option_count()));
    assert_null(rn_option_at(SIZE_MAX));
}

static void every_option_is_described_and_its_standard_value_good(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        assert_true(strlen(option->help) > 10);
        assert_int_equal(option->type == RN_OPTION_BOOL, option->value == NULL);
        assert_int_equal(option->type == RN_OPTION_CHOICE, option->choices != NULL);
        for (const char *c = option->name; *c; c++)
            assert_true(islower(*c) || isdigit(*c) || *c == '-');
        if (option->standard) assert_ok(rn_option_check(option, rn_str_from(option->standard)));
        assert_ptr_equal(option, rn_option_find(rn_str_from(option->name)));
        if (option->key[0]) assert_ptr_equal(option, rn_option_find(rn_str_from(option->key)));
        expect_setting(option->name, option->standard ? option->standard : "", "default");
    }
    assert_null(rn_option_find(RN_STR("")));
    assert_null(rn_option_find(RN_STR("log")));
}

static void every_option_is_reachable_by_its_flag(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        char line[256], origin[128];
        snprintf(origin, sizeof origin, "--%s", option->name);
        snprintf(line, sizeof line, "--%s=%s", option->name, sample_of(option));
        start_anew();
        assert_ok(parse(command_of(option), line));
        expect_setting(option->name, sample_of(option), origin);
        start_anew();
        bool flag = option->type == RN_OPTION_BOOL || option->type == RN_OPTION_FILE;
        snprintf(line, sizeof line, "--%s %s", option->name, flag ? "" : sample_of(option));
        assert_ok(parse(command_of(option), line));
        expect_setting(option->name, flag ? "true" : sample_of(option), origin);
        assert_int_equal(0, word_count);
    }
}

static void a_file_that_may_be_left_out_takes_no_word(void **state) {
    (void)state;
    assert_ok(parse("inspect", "--profile model.gguf"));
    expect_setting("profile", "true", "--profile");
    assert_int_equal(1, word_count);
    assert_ok(parse("inspect", "--profile=x.rntrace model.gguf"));
    expect_setting("profile", "x.rntrace", "--profile");
    assert_ok(parse("inspect", "--no-profile"));
    expect_setting("profile", "false", "--no-profile");
    assert_fails(RN_INVALID, parse("inspect", "--no-profile=x"));
}

static void every_letter_stands_for_its_flag(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        char line[256], origin[128];
        if (!option->letter) continue;
        bool flag = option->type == RN_OPTION_BOOL;
        snprintf(origin, sizeof origin, "--%s", option->name);
        for (int apart = 0; apart < 2; apart++) {
            snprintf(line, sizeof line, "-%c%s%s", option->letter, apart ? " " : "",
                     flag ? "" : sample_of(option));
            start_anew();
            assert_ok(parse(command_of(option), line));
            expect_setting(option->name, flag ? "true" : sample_of(option), origin);
        }
    }
}

static void every_option_is_reachable_by_its_variable(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        char entry[256] = "RATION_", *at = entry + strlen(entry);
        for (const char *c = option->name; *c; c++)
            *at++ = *c == '-' ? '_' : (char)toupper(*c);
        *at = '\0';
        char name[128];
        snprintf(name, sizeof name, "%.127s", entry);
        snprintf(at, sizeof entry - strlen(entry), "=%s", sample_of(option));
        start_anew();
        assert_ok(load_variable(entry));
        expect_setting(option->name, sample_of(option), name);
    }
    start_anew();
    assert_ok(load_variable("RATION_THREADSX=9")); // another program's business
    assert_ok(load_variable("RATION_THREADS"));
    expect_setting("threads", "0", "default");
}

static void every_option_is_reachable_by_its_key_in_a_file(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        char text[256];
        if (!option->key[0]) continue;
        const char *quote = written_bare(option) ? "" : "\"";
        const char *dot = strrchr(option->key, '.');
        // As a dotted key, and in a table (or an array of tables) of its own.
        for (int table = 0; table < (dot ? 2 : 1); table++) {
            if (table)
                snprintf(text, sizeof text, "%s%.*s%s\n%s = %s%s%s\n",
                         option->in_array ? "[[" : "[", (int)(dot - option->key), option->key,
                         option->in_array ? "]]" : "]", dot + 1, quote, sample_of(option), quote);
            else
                snprintf(text, sizeof text, "%s = %s%s%s\n", option->key, quote, sample_of(option),
                         quote);
            write_text("ration.toml", text);
            start_anew();
            assert_ok(rn_settings_load_files(settings, NULL));
            expect_setting(option->name, sample_of(option), "ration.toml");
        }
    }
}

// ---- who wins --------------------------------------------------------------------------------

static void later_sources_win_over_earlier_ones(void **state) {
    (void)state;
    char user[512];
    snprintf(user, sizeof user, "%s/.config/ration/config.toml", getenv("HOME"));
    expect_setting("threads", "0", "default");
    write_user_file("threads = 1\nlimit = 5\n[inspect]\nlimit = 1\n");
    expect_story(RN_INVALID, rn_settings_load_files(settings, NULL), "unknown key 'limit'", "");
    write_user_file("threads = 1\n[inspect]\nlimit = 1\n");
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_setting("threads", "1", user);
    write_text("ration.toml", "threads = 2\n");
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_setting("threads", "2", "ration.toml");
    expect_setting("limit", "1", user); // not set by the later file: stays
    assert_ok(load_variable("RATION_THREADS=3"));
    expect_setting("threads", "3", "RATION_THREADS");
    assert_ok(parse("convert", "--threads 4"));
    expect_setting("threads", "4", "--threads");
    assert_ok(parse("convert", "--threads 5 --threads 6 -t7"));
    expect_setting("threads", "7", "--threads");
    assert_int_equal(7, rn_settings_count(settings, "threads"));
}

static void given_file_stands_instead_of_the_usual_ones(void **state) {
    (void)state;
    write_user_file("threads = 1\n");
    write_text("ration.toml", "threads = 2\n");
    write_text("other.toml", "[inspect]\nlimit = 9\n");
    assert_ok(rn_settings_load_files(settings, "other.toml"));
    expect_setting("threads", "0", "default");
    expect_setting("limit", "9", "other.toml");
    expect_story(RN_NOT_FOUND, rn_settings_load_files(settings, "missing.toml"), "missing.toml",
                 "check the path");
    assert_ok(rn_settings_load_files(settings, "")); // as if none were given
    expect_setting("threads", "2", "ration.toml");
}

static void missing_files_are_no_failure(void **state) {
    (void)state;
    assert_ok(rn_settings_load_files(settings, NULL));
    char *home = strdup(getenv("HOME"));
    unsetenv("HOME");
    assert_ok(rn_settings_load_files(settings, NULL));
    setenv("HOME", home, 1);
    free(home);
}

static void configuration_folder_may_be_elsewhere(void **state) {
    (void)state;
    write_user_file("threads = 1\n");
    mkdir("xdg", 0700);
    mkdir("xdg/ration", 0700);
    write_text("xdg/ration/config.toml", "threads = 8\n");
    setenv("XDG_CONFIG_HOME", test_path("xdg"), 1);
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_setting("threads", "8", test_path("xdg/ration/config.toml"));
    setenv("XDG_CONFIG_HOME", "", 1); // empty counts as unset
    assert_ok(rn_settings_load_files(settings, NULL));
    assert_string_equal("1", rn_settings_text(settings, "threads"));
    unsetenv("XDG_CONFIG_HOME");
}

// ---- flags -------------------------------------------------------------------------------------

static void words_and_flags_may_stand_in_any_order(void **state) {
    (void)state;
    assert_ok(parse("convert", "in.gguf --threads 4 out.gguf -j"));
    assert_int_equal(2, word_count);
    assert_string_equal("in.gguf", words[0]);
    assert_string_equal("out.gguf", words[1]);
    assert_true(rn_settings_bool(settings, "json"));
    assert_ok(parse("inspect", ""));
    assert_int_equal(0, word_count);
}

static void two_dashes_end_the_flags(void **state) {
    (void)state;
    assert_ok(parse("convert", "--json -- --threads -j --"));
    assert_int_equal(3, word_count);
    assert_string_equal("--threads", words[0]);
    assert_string_equal("-j", words[1]);
    assert_string_equal("--", words[2]);
    expect_setting("threads", "0", "default");
    assert_ok(parse("convert", "-")); // one dash alone is a word: standard input
    assert_string_equal("-", words[0]);
}

static void flags_can_be_negated(void **state) {
    (void)state;
    assert_true(rn_settings_bool(settings, "default-excludes"));
    assert_ok(parse("convert", "--no-default-excludes"));
    assert_false(rn_settings_bool(settings, "default-excludes"));
    expect_setting("default-excludes", "false", "--no-default-excludes");
    assert_ok(parse("convert", "--no-default-excludes --default-excludes"));
    assert_true(rn_settings_bool(settings, "default-excludes"));
    assert_ok(parse("convert", "--default-excludes=off"));
    assert_false(rn_settings_bool(settings, "default-excludes"));
    expect_story(RN_INVALID, parse("convert", "--no-json=true"), "--no-json takes no value", "");
    expect_story(RN_INVALID, parse("convert", "--no-threads"), "--no-threads", "");
}

static void booleans_have_many_spellings(void **state) {
    (void)state;
    static const char *const yes[] = {"true", "yes", "on", "1", "TRUE", "Yes"};
    static const char *const no[] = {"false", "no", "off", "0", "FALSE", "No"};
    for (size_t i = 0; i < 6; i++) {
        char line[64];
        snprintf(line, sizeof line, "--json=%s", yes[i]);
        assert_ok(parse("inspect", line));
        assert_true(rn_settings_bool(settings, "json"));
        snprintf(line, sizeof line, "--json=%s", no[i]);
        assert_ok(parse("inspect", line));
        assert_false(rn_settings_bool(settings, "json"));
    }
    expect_story(RN_INVALID, parse("inspect", "--json=maybe"),
                 "--json: 'maybe' is neither true nor false", "");
    expect_story(RN_INVALID, parse("inspect", "--json="), "--json: ''", "");
}

static void flags_without_their_value_are_refused(void **state) {
    (void)state;
    expect_story(RN_INVALID, parse("convert", "in --threads"), "--threads wants a value", "");
    expect_story(RN_INVALID, parse("convert", "in -t"), "-t wants a value", "");
    assert_ok(parse("convert", "--exclude --json")); // what follows is the value, whatever it is
    assert_string_equal("--json", rn_settings_text(settings, "exclude"));
    assert_false(rn_settings_bool(settings, "json"));
}

static void unknown_flags_are_refused_with_a_suggestion(void **state) {
    (void)state;
    expect_story(RN_INVALID, parse("convert", "--thread 4"), "--thread", "did you mean --threads?");
    expect_story(RN_INVALID, parse("convert", "--buget=2G"), "--buget", "did you mean --budget?");
    expect_story(RN_INVALID, parse("inspect", "--colour"), "--colour", "ration inspect --help");
    expect_story(RN_INVALID, parse("convert", "-z"), "-z", "ration convert --help");
    expect_story(RN_INVALID, parse("convert", "-jt"), "-jt", ""); // letters do not combine
    // Of another command: neither taken nor suggested.
    expect_story(RN_INVALID, parse("inspect", "--threads 4"), "--threads", "ration inspect --help");
    expect_story(RN_INVALID, parse("convert", "--sort name"), "--sort", "");
    expect_story(RN_INVALID, parse("convert", "-s name"), "-s", "");
    expect_story(RN_INVALID, parse("convert", "---json"), "---json", "");
    expect_story(RN_INVALID, parse("convert", "--=x"), "--=x", "");
}

static void too_many_words_are_refused(void **state) {
    (void)state;
    assert_ok(parse("convert", "a b c d"));
    expect_story(RN_INVALID, parse("convert", "a b c d e"), "'e' is one argument too many",
                 "ration convert --help");
}

static void suggestions_are_near_or_none(void **state) {
    (void)state;
    assert_string_equal("threads", rn_option_suggest(RN_STR("treads"), "convert"));
    assert_string_equal("to", rn_option_suggest(RN_STR("too"), "convert"));
    assert_string_equal("sort", rn_option_suggest(RN_STR("short"), "inspect"));
    assert_string_equal("log-level", rn_option_suggest(RN_STR("loglevel"), ""));
    assert_string_equal("log.level", rn_option_suggest(RN_STR("log.levle"), NULL));
    assert_string_equal("backend.enable_memory_profiling",
                        rn_option_suggest(RN_STR("backend.enable_memory_profile"), NULL));
    assert_null(rn_option_suggest(RN_STR("sort"), "config"));
    assert_null(rn_option_suggest(RN_STR("entirely-different"), ""));
    assert_null(rn_option_suggest(RN_STR(""), ""));
    assert_null(rn_option_suggest(RN_STR("x"), NULL));
    static char longer[200];
    memset(longer, 'a', sizeof longer - 1);
    assert_null(rn_option_suggest(rn_str_from(longer), ""));
}

// ---- lists
// ---------------------------------------------------------------------------------------

static void expect_list(const char *name, const char *joined) {
    char text[256] = "";
    const char *const *items;
    size_t count = rn_settings_list(settings, name, &items);
    for (size_t i = 0; i < count; i++) {
        strcat(text, items[i]);
        if (i + 1 < count) strcat(text, ",");
    }
    assert_string_equal(joined, text);
}

static void lists_grow_within_a_source_and_begin_anew_in_the_next(void **state) {
    (void)state;
    expect_list("exclude", "");
    write_user_file("[convert]\nexclude = [\"u1\", \"u2\"]\n");
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_list("exclude", "u1,u2");
    write_text("ration.toml", "convert.exclude = [\"f1\", \"f2\", \"f3\"]\n");
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_list("exclude", "f1,f2,f3");
    assert_ok(load_variable("RATION_EXCLUDE=v,w")); // one pattern: a comma may stand in a name
    expect_list("exclude", "v,w");
    assert_ok(parse("convert", "--exclude a -x b -xc --exclude=d"));
    expect_list("exclude", "a,b,c,d");
    expect_list("filter", "");
}

static void lists_can_be_emptied_again(void **state) {
    (void)state;
    write_user_file("[convert]\nexclude = [\"u1\", \"u2\"]\n");
    write_text("ration.toml", "convert.exclude = []\n");
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_list("exclude", "");
    assert_string_equal("ration.toml", rn_settings_origin(settings, "exclude"));
    write_text("ration.toml", "convert.exclude = \"one\"\n"); // a list of one needs no brackets
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_list("exclude", "one");
    assert_ok(load_variable("RATION_EXCLUDE="));
    expect_list("exclude", "");
    assert_ok(parse("convert", "-x a"));
    expect_list("exclude", "a");
}

static void lists_have_a_limit(void **state) {
    (void)state;
    const rn_option *option = option_of("exclude");
    for (int i = 0; i < 64; i++)
        assert_ok(rn_settings_set(settings, option, RN_STR("p"), "--exclude"));
    expect_story(RN_INVALID, rn_settings_set(settings, option, RN_STR("p"), "--exclude"),
                 "--exclude: more than 64", "");
}

// ---- bad values
// ------------------------------------------------------------------------------------

static void bad_values_are_refused_with_where_they_came_from(void **state) {
    (void)state;
    expect_story(RN_INVALID, parse("convert", "--threads many"),
                 "--threads: 'many' is not a whole number", "");
    expect_story(RN_INVALID, parse("convert", "-t -1"), "--threads: '-1'", "");
    expect_story(RN_INVALID, parse("convert", "--log-level=loud"),
                 "--log-level: 'loud' is none of debug|info|warning|error|off", "");
    expect_story(RN_INVALID, load_variable("RATION_THREADS=1.5"), "RATION_THREADS: '1.5'", "");
    expect_story(RN_INVALID, load_variable("RATION_THREADS="), "RATION_THREADS: ''", "");
    expect_story(RN_INVALID, load_variable("RATION_LOG_FORMAT=xml"),
                 "RATION_LOG_FORMAT: 'xml' is none of", "");
    write_text("ration.toml", "threads = -3\n");
    expect_story(RN_INVALID, rn_settings_load_files(settings, NULL), "ration.toml: '-3'", "");
    write_text("ration.toml", "threads = true\n");
    expect_story(RN_INVALID, rn_settings_load_files(settings, NULL), "ration.toml: 'true'", "");
    expect_setting("threads", "0", "default"); // a refused value leaves the old one
}

static void counts_are_whole_numbers_that_fit(void **state) {
    (void)state;
    const rn_option *option = option_of("threads");
    static const char *const bad[] = {"",   "x",  "1x",  "-1",  "+1",
                                      " 1", "1 ", "1e3", "0x1", "1000000000000000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(RN_INVALID, rn_option_check(option, rn_str_from(bad[i])));
    assert_ok(rn_settings_set(settings, option, RN_STR("999999999999999999"), "test"));
    assert_true(rn_settings_count(settings, "threads") == 999999999999999999);
    assert_ok(rn_settings_set(settings, option, RN_STR("007"), "test"));
    assert_int_equal(7, rn_settings_count(settings, "threads"));
}

static void values_hold_no_nul_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++)
        expect_story(RN_INVALID,
                     rn_settings_set(settings, rn_option_at(i), (rn_str){"1\0", 2}, "here"),
                     "here: the value holds a NUL byte", "");
    expect_setting("threads", "0", "default");
}

static void values_are_copied(void **state) {
    (void)state;
    char value[] = "12", origin[] = "here";
    assert_ok(rn_settings_set(settings, option_of("threads"), rn_str_from(value), origin));
    value[0] = origin[0] = '!';
    expect_setting("threads", "12", "here");
}

static void files_with_faults_say_where(void **state) {
    (void)state;
    static const struct {
        const char *text;
        rn_status status;
        const char *message, *hint;
    } cases[] = {
        {"threads = \n", RN_CORRUPT, "ration.toml, line 1", ""},
        {"\n\nthreads = 4 5\n", RN_CORRUPT, "ration.toml, line 3", ""},
        {"threads = 1\nthreads = 2\n", RN_CORRUPT, "ration.toml, line 2", ""},
        {"\nthread = 4\n", RN_INVALID, "ration.toml, line 2, column 10: unknown key 'thread'",
         "did you mean 'threads'?"},
        {"[log]\nlevle = \"info\"\n", RN_INVALID, "line 2, column 9: unknown key 'log.levle'",
         "did you mean 'log.level'?"},
        {"log-level = \"info\"\n", RN_INVALID, "unknown key 'log-level'",
         "did you mean 'log.level'?"}, // the flag's name is not the key
        {"[nonsense]\na = 1\n", RN_INVALID, "unknown key 'nonsense.a'", "ration config list"},
        {"config = \"x\"\n", RN_INVALID, "unknown key 'config'", "ration config list"},
        {"threads = 1.5\n", RN_INVALID,
         "line 1, column 11: a value of the wrong kind for 'threads'", ""},
        {"threads = [1]\n", RN_INVALID, "wrong kind for 'threads'", ""},
        {"convert.exclude = [1.5]\n", RN_INVALID, "wrong kind for 'convert.exclude'", ""},
        {"[threads]\n", RN_OK, "", ""}, // a table without keys sets nothing
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("ration.toml", cases[i].text);
        start_anew();
        rn_status s = rn_settings_load_files(settings, NULL);
        if (cases[i].status == RN_OK)
            assert_ok(s);
        else
            expect_story(cases[i].status, s, cases[i].message, cases[i].hint);
        if (s != RN_OK && cases[i].status == RN_INVALID)
            assert_string_equal("ration.toml", rn_last_error()->path);
    }
}

static void keys_longer_than_any_are_unknown(void **state) {
    (void)state;
    static char text[700];
    memset(text, 'k', 600);
    strcpy(text + 600, " = 1\n");
    write_text("ration.toml", text);
    expect_story(RN_INVALID, rn_settings_load_files(settings, NULL), "unknown key 'kkk", "");
}

// ---- reading back
// ------------------------------------------------------------------------------------

static void values_are_read_in_their_own_types(void **state) {
    (void)state;
    assert_true(rn_settings_size(settings, "budget") == 0); // none is given
    assert_ok(parse("convert", "--budget 1.5G --threads 12"));
    assert_true(rn_settings_size(settings, "budget") == (uint64_t)3 << 29);
    assert_int_equal(12, rn_settings_count(settings, "threads"));
    assert_int_equal(0, rn_settings_count(settings, "budget")); // no whole number
    assert_string_equal("", rn_settings_text(settings, "to"));
    assert_string_equal("warning", rn_settings_text(settings, "log-level"));
    assert_string_equal("warning", rn_settings_text(settings, "log.level"));
}

static void options_that_do_not_exist_read_as_nothing(void **state) {
    (void)state;
    const char *const *items;
    assert_string_equal("", rn_settings_text(settings, "nonsense"));
    assert_false(rn_settings_bool(settings, "nonsense"));
    assert_int_equal(0, rn_settings_count(settings, "nonsense"));
    assert_int_equal(0, rn_settings_size(settings, "nonsense"));
    assert_int_equal(0, rn_settings_list(settings, "nonsense", &items));
    assert_string_equal("default", rn_settings_origin(settings, "nonsense"));
    rn_settings_destroy(NULL);
}

// ---- changing a file
// -----------------------------------------------------------------------------------

static void change(const char *name, const char *value) {
    assert_ok(rn_config_write("ration.toml", option_of(name), rn_str_from(value)));
}

static void value_is_changed_in_place(void **state) {
    (void)state;
    write_text("ration.toml", "# my settings\n"
                              "threads   =  4   # all of them\n"
                              "\n"
                              "[convert] # how\n"
                              "  to = 'int8'\n"
                              "exclude = [ \"a\",\n  \"b\" ]\n");
    change("threads", "12");
    change("to", "nf4");
    change("budget", "75%");
    expect_file("ration.toml", "# my settings\n"
                               "threads   =  12   # all of them\n"
                               "budget = \"75%\"\n"
                               "\n"
                               "[convert] # how\n"
                               "  to = \"nf4\"\n"
                               "exclude = [ \"a\",\n  \"b\" ]\n");
    change("exclude", "c");
    change("verbose", "YES");
    expect_file("ration.toml", "# my settings\n"
                               "threads   =  12   # all of them\n"
                               "budget = \"75%\"\n"
                               "\n"
                               "[convert] # how\n"
                               "  to = \"nf4\"\n"
                               "exclude = [\"c\"]\n"
                               "verbose = true\n");
}

static void array_of_tables_is_made_where_there_is_none(void **state) {
    (void)state;
    const char *name = "backend.enable_memory_profiling";
    change(name, "true");
    expect_file("ration.toml", "[[backend]]\nenable_memory_profiling = true\n");
    change(name, "off");
    expect_file("ration.toml", "[[backend]]\nenable_memory_profiling = false\n");
    write_text("ration.toml", "threads = 1 # kept\n");
    change(name, "true");
    expect_file("ration.toml",
                "threads = 1 # kept\n\n[[backend]]\nenable_memory_profiling = true\n");
    assert_ok(rn_settings_load_files(settings, NULL));
    assert_true(rn_settings_bool(settings, "backend-enable-memory-profiling"));
}

static void every_item_of_an_array_of_tables_is_changed(void **state) {
    (void)state;
    write_text("ration.toml",
               "[[backend]]\nenable_memory_profiling = false # one\n\n[[backend]]\n");
    change("backend-enable-memory-profiling", "true");
    expect_file("ration.toml", "[[backend]]\nenable_memory_profiling = true # one\n\n"
                               "[[backend]]\nenable_memory_profiling = true\n");
}

static void every_option_can_be_written_and_read_back(void **state) {
    (void)state;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        rn_status s = rn_config_write("ration.toml", option, rn_str_from(sample_of(option)));
        if (option->key[0])
            assert_ok(s);
        else
            expect_story(RN_INVALID, s, "not kept in a file", "");
    }
    assert_ok(rn_settings_load_files(settings, NULL));
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        if (option->key[0]) expect_setting(option->name, sample_of(option), "ration.toml");
    }
}

static void texts_with_quotes_survive(void **state) {
    (void)state;
    const char *awkward = "a\"b\\c\n\t*?\xc3\xbc'''";
    change("exclude", awkward);
    assert_ok(rn_settings_load_files(settings, NULL));
    expect_list("exclude", awkward);
}

static void bad_values_never_reach_the_file(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"threads", "many"}, {"threads", ""},         {"log-level", "loud"}, {"budget", "much"},
        {"budget", "0"},     {"budget", "gpu=50%"},   {"to", "int3"},        {"json", "perhaps"},
        {"to", ""},          {"exclude", "\xff\xfe"},
    };
    write_text("ration.toml", "threads = 1\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rn_status s = rn_config_write("ration.toml", option_of(bad[i][0]), rn_str_from(bad[i][1]));
        if (s != RN_INVALID) fail_msg("%s = '%s' was taken", bad[i][0], bad[i][1]);
    }
    expect_file("ration.toml", "threads = 1\n");
}

static void broken_file_is_left_as_it_is(void **state) {
    (void)state;
    write_text("ration.toml", "threads = = 1\n");
    assert_fails(RN_CORRUPT, rn_config_write("ration.toml", option_of("threads"), RN_STR("2")));
    assert_string_equal("ration.toml", rn_last_error()->path);
    expect_file("ration.toml", "threads = = 1\n");
}

static void file_and_its_folders_are_made(void **state) {
    (void)state;
    const char *path = test_path("new/folders/config.toml");
    assert_ok(rn_config_write(path, option_of("threads"), RN_STR("3")));
    expect_file(path, "threads = 3\n");
    write_text("plain", "x");
    assert_int_not_equal(
        RN_OK, rn_config_write(test_path("plain/config.toml"), option_of("threads"), RN_STR("3")));
}

static void edited_file_is_the_nearest_one(void **state) {
    (void)state;
    char path[512], expected[512], small[8];
    assert_ok(rn_config_path("given.toml", path, sizeof path));
    assert_string_equal("given.toml", path);
    snprintf(expected, sizeof expected, "%s/.config/ration/config.toml", getenv("HOME"));
    assert_ok(rn_config_path(NULL, path, sizeof path));
    assert_string_equal(expected, path);
    assert_ok(rn_config_path("", path, sizeof path));
    assert_string_equal(expected, path);
    write_text("ration.toml", "");
    assert_ok(rn_config_path(NULL, path, sizeof path));
    assert_string_equal("ration.toml", path);
    assert_fails(RN_INVALID, rn_config_path(NULL, small, sizeof small));
    unlink("ration.toml");
    char *home = strdup(getenv("HOME"));
    unsetenv("HOME");
    expect_story(RN_NOT_FOUND, rn_config_path(NULL, path, sizeof path), "no home", "--config");
    setenv("HOME", home, 1);
    free(home);
}

// ---- faults
// ------------------------------------------------------------------------------------------

static rn_status load_everything(void) {
    RN_TRY(rn_settings_load_files(settings, NULL));
    RN_TRY(load_variable("RATION_THREADS=3"));
    return parse("convert", "a --exclude x -x y b");
}

static void every_failing_allocation_while_loading_is_clean(void **state) {
    (void)state;
    write_text("ration.toml", "threads = 4\n[convert]\nexclude = [\"a\", \"b\"]\n");
    for (uint64_t nth = 1;; nth++) {
        rn_settings_destroy(settings);
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = rn_settings_create(&settings);
        if (s == RN_OK) s = load_everything();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        if (s == RN_OK) break;
        assert_true(fired);
        assert_int_equal(RN_NO_MEMORY, s);
        assert_in_range(nth, 1, 1000);
    }
    expect_list("exclude", "x,y");
}

static void every_failure_while_writing_leaves_the_old_file(void **state) {
    (void)state;
    const rn_fault kinds[] = {RN_FAULT_ALLOC, RN_FAULT_READ, RN_FAULT_WRITE};
    for (size_t k = 0; k < 3; k++)
        for (uint64_t nth = 1;; nth++) {
            write_text("ration.toml", "threads = 4 # old\n");
            rn_fault_arm(kinds[k], nth);
            rn_status s = rn_config_write("ration.toml", option_of("threads"), RN_STR("5"));
            bool fired = rn_fault_fired(kinds[k]);
            rn_fault_arm(kinds[k], 0);
            if (s == RN_OK) {
                expect_file("ration.toml", "threads = 5 # old\n");
                if (!fired) break;
                continue; // a failure that did not matter
            }
            assert_int_equal(kinds[k] == RN_FAULT_ALLOC ? RN_NO_MEMORY : RN_IO, s);
            expect_file("ration.toml", "threads = 4 # old\n");
            assert_in_range(nth, 1, 1000);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(options_do_not_get_in_each_others_way),
        TEST(every_option_is_described_and_its_standard_value_good),
        TEST(every_option_is_reachable_by_its_flag),
        TEST(a_file_that_may_be_left_out_takes_no_word),
        TEST(every_letter_stands_for_its_flag),
        TEST(every_option_is_reachable_by_its_variable),
        TEST(every_option_is_reachable_by_its_key_in_a_file),
        TEST(later_sources_win_over_earlier_ones),
        TEST(given_file_stands_instead_of_the_usual_ones),
        TEST(missing_files_are_no_failure),
        TEST(configuration_folder_may_be_elsewhere),
        TEST(words_and_flags_may_stand_in_any_order),
        TEST(two_dashes_end_the_flags),
        TEST(flags_can_be_negated),
        TEST(booleans_have_many_spellings),
        TEST(flags_without_their_value_are_refused),
        TEST(unknown_flags_are_refused_with_a_suggestion),
        TEST(too_many_words_are_refused),
        TEST(suggestions_are_near_or_none),
        TEST(lists_grow_within_a_source_and_begin_anew_in_the_next),
        TEST(lists_can_be_emptied_again),
        TEST(lists_have_a_limit),
        TEST(bad_values_are_refused_with_where_they_came_from),
        TEST(counts_are_whole_numbers_that_fit),
        TEST(values_hold_no_nul_bytes),
        TEST(values_are_copied),
        TEST(files_with_faults_say_where),
        TEST(keys_longer_than_any_are_unknown),
        TEST(values_are_read_in_their_own_types),
        TEST(options_that_do_not_exist_read_as_nothing),
        TEST(value_is_changed_in_place),
        TEST(array_of_tables_is_made_where_there_is_none),
        TEST(every_item_of_an_array_of_tables_is_changed),
        TEST(every_option_can_be_written_and_read_back),
        TEST(texts_with_quotes_survive),
        TEST(bad_values_never_reach_the_file),
        TEST(broken_file_is_left_as_it_is),
        TEST(file_and_its_folders_are_made),
        TEST(edited_file_is_the_nearest_one),
        TEST(every_failing_allocation_while_loading_is_clean),
        TEST(every_failure_while_writing_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, make_home, leave);
}
