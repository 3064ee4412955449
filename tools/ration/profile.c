// profile.c — ration profile: looks at recordings, turns them into other forms, and records other
// programs.
#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096 };

// ---- report ---------------------------------------------------------------------------

static rn_status print_report(const invocation *in, const rn_timeline *timeline,
                              const rn_report_options *options) {
    return in->json ? rn_timeline_report_json(timeline, options, rn_sink_file(stdout))
                    : rn_timeline_report(timeline, options, rn_sink_file(stdout));
}

static rn_status report_one(const invocation *in) {
    rn_report_options options = {.at_seconds = -1, .rows = rn_settings_count(in->settings, "rows")};
    const char *at = rn_settings_text(in->settings, "at");
    rn_timeline *timeline = NULL;
    if (*at) RN_TRY(parse_time("at", at, &options.at_seconds));
    RN_TRY(rn_timeline_open(in->words[1], &timeline));
    rn_status s = print_report(in, timeline, &options);
    rn_timeline_destroy(timeline);
    return s;
}

static rn_status print_diff(const invocation *in, const rn_timeline *a, const rn_timeline *b) {
    return in->json ? rn_timeline_diff_json(a, b, rn_sink_file(stdout))
                    : rn_timeline_diff(a, b, rn_sink_file(stdout));
}

static rn_status report_diff(const invocation *in) {
    rn_timeline *a = NULL, *b = NULL;
    RN_TRY(rn_timeline_open(in->words[1], &a));
    rn_status s = rn_timeline_open(in->words[2], &b);
    if (s == RN_OK) s = print_diff(in, a, b);
    rn_timeline_destroy(b);
    rn_timeline_destroy(a);
    return s;
}

static rn_status report(const invocation *in) {
    return rn_settings_bool(in->settings, "diff") ? report_diff(in) : report_one(in);
}

// ---- other forms ----------------------------------------------------------------------

static rn_status find_form(const char *name, rn_export *out) {
    for (int form = 0; form < RN_EXPORT_COUNT; form++) {
        if (strcmp(name, rn_export_name((rn_export)form)) != 0) continue;
        *out = (rn_export)form;
        return RN_OK;
    }
    return rn_fail(RN_INVALID, "there is no form '%s'", name);
}

// The recording's name with another ending, in the working folder; a JSON profile is called as the
// tools that read such files expect it. "-" is standard output.
static void name_output(const char *input, rn_export form, char out[MAX_PATH_BYTES]) {
    static const char *const endings[RN_EXPORT_COUNT] = {".html", ".json", ".trace.json", ".pickle",
                                                         ".csv",  NULL,    ".pb"};
    const char *base = strrchr(input, '/') ? strrchr(input, '/') + 1 : input;
    const char *dot = strrchr(base, '.');
    int bytes = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    if (form == RN_EXPORT_JSON)
        default_profile_name("memory_profile", ".json", out);
    else if (endings[form])
        snprintf(out, MAX_PATH_BYTES, "%.*s%s", bytes, base, endings[form]);
    else
        snprintf(out, MAX_PATH_BYTES, "-");
}

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static rn_status fail_output(const char *path) {
    return rn_error_locate(rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno)), path,
                           RN_NO_OFFSET);
}

// A device or pipe that is full stays where it is.
static void remove_file(const char *path) {
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode)) unlink(path);
}

// Whole or not at all: a file that could not be written to its end is removed.
rn_status write_export(const rn_timeline *timeline, rn_export form, const char *path) {
    if (strcmp(path, "-") == 0) return rn_timeline_export(timeline, form, rn_sink_file(stdout));
    FILE *file = fopen(path, "we");
    if (!file) return fail_output(path);
    rn_status s = rn_timeline_export(timeline, form, rn_sink_file(file));
    if (fclose(file) != 0 && s == RN_OK) s = fail_output(path);
    if (s != RN_OK) remove_file(path);
    return s;
}

static rn_status tell_output(const invocation *in, rn_export form, const char *path) {
    struct stat status;
    if (strcmp(path, "-") == 0) return RN_OK;
    if (stat(path, &status) != 0) return fail_output(path);
    if (!in->json) {
        printf("%s: %s\n", path, rn_size_format((uint64_t)status.st_size).text);
        return RN_OK;
    }
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "path", path);
    rn_json_string(&json, "format", rn_export_name(form));
    rn_json_u64(&json, "bytes", (uint64_t)status.st_size);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status convert(const invocation *in, rn_export form) {
    char path[MAX_PATH_BYTES];
    const char *input = in->words[1], *given = rn_settings_text(in->settings, "output");
    rn_timeline *timeline = NULL;
    if (*given)
        snprintf(path, sizeof path, "%s", given);
    else
        name_output(input, form, path);
    if (is_same_file(input, path))
        return rn_fail(RN_INVALID, "%s would overwrite what is read", path);
    RN_TRY(rn_timeline_open(input, &timeline));
    rn_status s = write_export(timeline, form, path);
    rn_timeline_destroy(timeline);
    return s == RN_OK ? tell_output(in, form, path) : s;
}

static rn_status write_html(const invocation *in) {
    return convert(in, RN_EXPORT_HTML);
}

static rn_status write_form(const invocation *in) {
    rn_export form = RN_EXPORT_HTML;
    RN_TRY(find_form(rn_settings_text(in->settings, "format"), &form));
    return convert(in, form);
}

// ---- ranks ----------------------------------------------------------------------------

static rn_status write_merged(const invocation *in, const char *path) {
    FILE *file = fopen(path, "we");
    if (!file) return fail_output(path);
    rn_status s = rn_timeline_merge((const char *const *)in->words + 1, in->word_count - 1,
                                    rn_sink_file(file));
    if (fclose(file) != 0 && s == RN_OK) s = fail_output(path);
    return s;
}

// The report says how well the clocks agree; a file that cannot be read again is not left there.
static rn_status merge(const invocation *in) {
    const char *given = rn_settings_text(in->settings, "output");
    const char *path = *given ? given : "merged.rntrace";
    rn_report_options options = {.at_seconds = -1, .rows = rn_settings_count(in->settings, "rows")};
    rn_timeline *timeline = NULL;
    for (size_t i = 1; i < in->word_count; i++)
        if (is_same_file(in->words[i], path))
            return rn_fail(RN_INVALID, "%s would overwrite what is read", path);
    rn_status s = write_merged(in, path);
    if (s == RN_OK) s = rn_timeline_open(path, &timeline);
    if (s == RN_OK) s = print_report(in, timeline, &options);
    if (s != RN_OK) remove_file(path);
    rn_timeline_destroy(timeline);
    return s;
}

// ---- the command ----------------------------------------------------------------------

typedef struct action {
    const char *name, *usage;
    size_t word_count; // with its own name; one more for report --diff
    rn_status (*run)(const invocation *in);
} action;

static const action actions[] = {
    {"report", "profile report FILE [--at TIME] | --diff A B", 2, report},
    {"html", "profile html FILE [-o PAGE.html]", 2, write_html},
    {"export", "profile export FILE --format json|chrome|torch|csv|prometheus|pprof|html [-o FILE]",
     2, write_form},
    {"merge", "profile merge RANK0 RANK1... [-o FILE]", 2, merge},
    {"view", "profile view FILE [--serve [--view-port N]]", 2, profile_view},
    {"run", "profile run [-o FILE] -- PROGRAM [ARGUMENTS]", 1, profile_run},
};

static const action *find_action(const invocation *in) {
    for (size_t i = 0; in->word_count && i < sizeof actions / sizeof *actions; i++)
        if (strcmp(in->words[0], actions[i].name) == 0) return &actions[i];
    return NULL;
}

static rn_status fail_action(const invocation *in) {
    rn_status s = in->word_count
                      ? rn_fail(RN_INVALID, "there is no ration profile %s", in->words[0])
                      : rn_fail(RN_INVALID, "ration profile: what is to be done?");
    return rn_hint(s, "one of report, html, export, merge, view, run; see ration profile --help");
}

static rn_status run(const invocation *in) {
    const action *a = find_action(in);
    if (!a) return fail_action(in);
    bool is_diff = a->run == report && rn_settings_bool(in->settings, "diff");
    size_t words = a->word_count + is_diff;
    bool wants_program = a->run == profile_run, has_program = in->rest_count > 0;
    bool is_enough = a->run == merge ? in->word_count >= words : in->word_count == words;
    if (is_enough && wants_program == has_program) return a->run(in);
    bool is_missing = in->word_count < words || (wants_program && !has_program);
    return rn_hint(rn_fail(RN_INVALID, "ration profile %s: %s", a->name,
                           !is_missing     ? "too many arguments"
                           : wants_program ? "the PROGRAM is missing, behind --"
                           : is_diff       ? "two files are compared"
                                           : "a FILE is missing"),
                   "usage: ration %s", a->usage);
}

// What stands behind "--" is another program's.
static rn_status own_arguments(invocation *in, int argc, char **argv) {
    int own = 0;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    if (own < argc) {
        in->rest = argv + own + 1;
        in->rest_count = argc - own - 1;
    }
    RN_TRY(rn_settings_load_arguments(in->settings, "profile", own, argv, in->words, MAX_WORDS,
                                      &in->word_count));
    return rn_settings_check(in->settings);
}

const command profile_command = {
    .name = "profile",
    .usage = "profile report|html|export|view FILE [options]\n"
             "       ration profile report --diff A B\n"
             "       ration profile merge RANK0 RANK1... [-o FILE]\n"
             "       ration profile run [-o FILE] [options] -- PROGRAM [ARGUMENTS]",
    .summary = "look at memory timelines; record those of other programs",
    .about =
        "FILE is a recording (any command with --profile makes one), a JSON memory profile, or a\n"
        "PyTorch memory snapshot (pickle).\n\n"
        "  report   the peak and what was live at it, operations, predicted against actual, leaks\n"
        "  html     one page with the timeline to zoom in; needs no network\n"
        "  export   the same recording in another tool's form\n"
        "  merge    the recordings of a job's ranks as one file, which all of these read: a group\n"
        "           of lanes a rank, one clock, collectives across; prints the report of it\n"
        "  view     opens the page in a browser, or serves it on this machine only\n"
        "  run      records the allocations of another program (PyTorch's tensors on the CPU) and\n"
        "           exits as it did: with its code, or 128 + N where signal N ended it\n\n"
        "A recording whose program was killed is readable up to the last tenth of a second.",
    .example = "ration run -p 'Once' --profile=run.rntrace && ration profile report run.rntrace",
    .min_words = 1,
    .max_words = MAX_WORDS,
    .run = run,
    .own_arguments = own_arguments,
};
