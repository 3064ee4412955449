// bench_report.c — what ration bench leaves behind: the table, files in other forms, and a verdict
// about older results.
#include "command.h"

#include <ration/bench_report.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { EXIT_WORSE = 7 }; // README.md

// "5%", "5 %", "0.05".
static rn_status read_share(const invocation *in, const char *option, double *out) {
    const char *text = rn_settings_text(in->settings, option);
    char *end;
    *out = 0;
    if (!text[0]) return RN_OK;
    *out = strtod(text, &end);
    while (*end == ' ')
        end++;
    bool percent = *end == '%';
    if (percent) *out /= 100;
    if (end == text || end[percent] || !(*out > 0 && *out < 100))
        return rn_hint(rn_fail(RN_INVALID, "--%s '%s' is no share above 0", option, text),
                       "5%% or 0.05");
    return RN_OK;
}

static uint32_t terminal_width(void) {
    struct winsize size;
    if (!isatty(1)) return 140;
    return ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 100;
}

static rn_status fail_output(const char *path) {
    return rn_error_locate(rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno)), path,
                           RN_NO_OFFSET);
}

static rn_status write_form(const invocation *in, const char *option, rn_bench_form form,
                            const rn_bench_results *results, const rn_bench_changes *changes) {
    const char *path = rn_settings_text(in->settings, option);
    rn_bench_report_options options = {.changes = changes};
    if (!path[0]) return RN_OK;
    if (strcmp(path, "-") == 0)
        return rn_bench_report(results, form, &options, rn_sink_file(stdout));
    FILE *file = fopen(path, "we");
    if (!file) return fail_output(path);
    rn_status s = rn_bench_report(results, form, &options, rn_sink_file(file));
    if (fclose(file) != 0 && s == RN_OK) s = fail_output(path);
    if (s != RN_OK) unlink(path);
    return s;
}

static rn_status write_all(const invocation *in, const rn_bench_results *results,
                           const rn_bench_changes *changes) {
    RN_TRY(write_form(in, "html", RN_BENCH_HTML, results, changes));
    RN_TRY(write_form(in, "markdown", RN_BENCH_MARKDOWN, results, changes));
    RN_TRY(write_form(in, "csv", RN_BENCH_CSV, results, changes));
    if (in->json) return rn_bench_results_write(results, rn_sink_file(stdout));
    rn_bench_report_options options = {.width = terminal_width(), .changes = changes};
    return rn_bench_report(results, RN_BENCH_TEXT, &options, rn_sink_file(stdout));
}

rn_status check_bench_limits(const invocation *in, rn_bench_limits *out) {
    RN_TRY(read_share(in, "fail-if-slower", &out->slower));
    RN_TRY(read_share(in, "fail-if-larger", &out->larger));
    const rn_settings *s = in->settings;
    bool file = rn_settings_text(s, "compare")[0], turns = bench_has_other(in);
    if ((out->slower > 0 || out->larger > 0) && !file && !turns)
        return rn_hint(rn_fail(RN_INVALID, "slower or larger than what?"),
                       "--against OTHER measures another model in turns, --compare OLD.json names "
                       "older results");
    if (file && turns)
        return rn_fail(RN_INVALID, "--against and --compare both say what to compare with");
    return RN_OK;
}

bool bench_has_other(const invocation *in) {
    return rn_settings_text(in->settings, "against")[0] ||
           rn_settings_text(in->settings, "against-program")[0];
}

rn_status report_bench(const invocation *in, const rn_bench_results *other,
                       const rn_bench_results *results) {
    const char *old = rn_settings_text(in->settings, "compare");
    rn_bench_limits limits = {0};
    rn_bench_results *before = NULL;
    rn_bench_changes *changes = NULL;
    RN_TRY(check_bench_limits(in, &limits));
    if (!old[0] && !other) return write_all(in, results, NULL);
    rn_status s = other ? RN_OK : rn_bench_results_read(old, &before);
    if (s == RN_OK) s = rn_bench_compare(other ? other : before, results, &limits, &changes);
    if (s == RN_OK) s = write_all(in, results, changes);
    if (s == RN_OK && changes->failed_count) *in->exit_code = EXIT_WORSE;
    rn_bench_changes_destroy(changes);
    rn_bench_results_destroy(before);
    return s;
}
