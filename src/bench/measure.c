// measure.c — one worker: started, watched, and what became of it.
//
// Its records, log lines, exit code and signal come together in `watch`; nothing here waits without
// a limit, and nothing grows with what a worker sends.
#include "bench/measure.h"

#include "bench/child.h"
#include "bench/records.h"
#include "bench/result.h"
#include "bench/samples.h"

#include "base/clock.h"
#include "memory/account.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_WORDS = 64, TICK_MS = 50 };

typedef rn_bench_run_state bench;

// A worker under way.
typedef struct watch {
    bench *bench;
    size_t index; // of the variant
    rn_bench_result *result;
    const rn_bench_variant *variant;
    rn_child child;
    rn_record_reader reader;
    rn_samples *samples;
    rn_reference *reference; // of its batch; NULL: none
    rn_comparison comparison;
    size_t log_bytes; // of result->failure.log
    char piece[64 << 10];
    uint64_t told_ns; // progress
    bool is_reference, ended, failed, timed_out, cancelled;
} watch;

bool rn_bench_is_cancelled(const rn_bench_run_state *b) {
    return b->options->cancel && *b->options->cancel;
}

// ---- what it says -------------------------------------------------------------------------------

static void tell(watch *w, bool ended) {
    bench *b = w->bench;
    const rn_bench_pace *p = b->pace;
    double elapsed = (double)(rn_clock_ns() - p->begin_ns) * 1e-9;
    rn_bench_progress progress = {
        .index = w->index,
        .count = b->count,
        .name = w->result->name,
        .stage = w->result->failure.stage,
        .samples = w->samples->count,
        .p50_s = rn_samples_quantile(w->samples, 0.5) * 1e-9,
        .left_s = p->done ? elapsed / (double)p->done * (double)(p->wanted - p->done) : NAN,
        .ended = ended,
        .is_before = b->is_before,
        .result = ended ? w->result : NULL};
    w->told_ns = rn_clock_ns();
    if (b->options->progress) b->options->progress(b->options->self, &progress);
}

static void copy_line(rn_str *text, char *out, size_t bytes) {
    const char *end = memchr(text->data, '\n', text->bytes);
    size_t length = end ? (size_t)(end - text->data) : text->bytes;
    snprintf(out, bytes, "%.*s", (int)length, text->data);
    rn_str_clean(out);
    length += end != NULL;
    text->data += length;
    text->bytes -= length;
}

static void take_failure(watch *w, rn_str text) {
    rn_bench_failure *f = &w->result->failure;
    copy_line(&text, f->status, sizeof f->status);
    copy_line(&text, f->hint, sizeof f->hint);
    snprintf(f->message, sizeof f->message, "%.*s", RN_STR_ARG(text));
    rn_str_clean(f->message);
    w->failed = true;
}

// What only the harness says of a result stays as it is.
static rn_status take_figures(watch *w, rn_str text) {
    rn_json_reader reader;
    rn_bench_result *r = w->result;
    char name[sizeof r->name], asked[sizeof r->asked];
    snprintf(name, sizeof name, "%s", r->name);
    snprintf(asked, sizeof asked, "%s", r->asked);
    rn_bench_outcome outcome = r->outcome;
    rn_bench_failure failure = r->failure;
    rn_json_reader_init(&reader, text, RN_HOST_IO);
    rn_status s = rn_json_expect(&reader, RN_JSON_OBJECT, NULL);
    if (s == RN_OK) s = rn_bench_result_read(&reader, r);
    rn_json_reader_free(&reader);
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(r->asked, sizeof r->asked, "%s", asked);
    r->outcome = outcome;
    r->failure = failure;
    return s;
}

static rn_status take_output(watch *w, rn_str payload) {
    float values[1024];
    size_t count = payload.bytes / sizeof *values;
    for (size_t at = 0; at < count;) {
        size_t some = count - at < 1024 ? count - at : 1024;
        memcpy(values, payload.data + at * sizeof *values, some * sizeof *values);
        if (w->is_reference)
            RN_TRY(rn_reference_add(w->reference, values, some));
        else if (w->reference && w->reference->values)
            RN_TRY(rn_comparison_add(&w->comparison, w->reference, w->result->batch, values, some));
        at += some;
    }
    return RN_OK;
}

static rn_status take_record(void *self, rn_record_kind kind, rn_str payload) {
    watch *w = self;
    switch (kind) {
    case RN_RECORD_STAGE:
        copy_line(&payload, w->result->failure.stage, sizeof w->result->failure.stage);
        tell(w, false);
        break;
    case RN_RECORD_SAMPLES:
        for (size_t i = 0; i + sizeof(double) <= payload.bytes; i += sizeof(double)) {
            double ns;
            memcpy(&ns, payload.data + i, sizeof ns);
            rn_samples_add(w->samples, ns);
        }
        break;
    case RN_RECORD_FIGURES:
        return take_figures(w, payload);
    case RN_RECORD_OUTPUT:
        return take_output(w, payload);
    case RN_RECORD_FAILURE:
        take_failure(w, payload);
        break;
    case RN_RECORD_END:
        w->ended = true;
        break;
    }
    return RN_OK;
}

// ---- watching -----------------------------------------------------------------------------------

// The last lines of its log, however much it prints.
static void keep_log(watch *w, const char *text, size_t bytes) {
    char *log = w->result->failure.log;
    size_t room = sizeof w->result->failure.log - 1;
    if (bytes > room) {
        text += bytes - room;
        bytes = room;
    }
    size_t over = w->log_bytes + bytes > room ? w->log_bytes + bytes - room : 0;
    memmove(log, log + over, w->log_bytes - over);
    w->log_bytes -= over;
    memcpy(log + w->log_bytes, text, bytes);
    w->log_bytes += bytes;
    log[w->log_bytes] = 0;
}

// What is there to read now. False: the pipe is at its end.
static bool read_pipe(watch *w, int fd, bool records, rn_status *out) {
    char *bytes = w->piece;
    for (int i = 0; i < 16; i++) {
        ssize_t count = read(fd, bytes, sizeof w->piece);
        if (count < 0) return errno == EINTR || errno == EAGAIN;
        if (count == 0) return false;
        if (!records)
            keep_log(w, bytes, (size_t)count);
        else if (*out == RN_OK)
            *out = rn_record_feed(&w->reader, bytes, (size_t)count, take_record, w);
    }
    return true;
}

// Until both pipes are at their end, or the worker is (what it started may hold them open), or its
// time is over. A record that cannot be read ends it, too.
static rn_status watch_child(watch *w) {
    double limit = w->bench->options->timeout_s > 0 ? w->bench->options->timeout_s : 60;
    uint64_t end = w->child.begin_ns + (uint64_t)(limit * 1e9);
    struct pollfd fds[2] = {{.fd = w->child.record_fd, .events = POLLIN},
                            {.fd = w->child.log_fd, .events = POLLIN}};
    rn_status s = RN_OK;
    for (bool gone = false; s == RN_OK;) {
        uint64_t now = rn_clock_ns();
        w->timed_out = now >= end;
        w->cancelled = rn_bench_is_cancelled(w->bench);
        if (w->timed_out || w->cancelled) break;
        bool open = fds[0].fd >= 0 || fds[1].fd >= 0;
        int ready = poll(fds, 2, gone ? 0 : open ? TICK_MS : 1);
        if (gone && ready <= 0) break;
        for (int i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && fds[i].revents && !read_pipe(w, fds[i].fd, i == 0, &s))
                fds[i].fd = -1;
        if (!open && gone) break;
        if (!gone && (ready <= 0 || !open)) gone = rn_child_has_ended(&w->child);
        if (now - w->told_ns > 200000000) tell(w, false);
    }
    return s;
}

// ---- what became of it --------------------------------------------------------------------------

static void say(rn_bench_failure *f, const char *format, ...) RN_PRINTF(2, 3);
static void say(rn_bench_failure *f, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->message, sizeof f->message, format, arguments);
    va_end(arguments);
}

static rn_bench_outcome judge_report(const rn_bench_failure *f) {
    static const rn_status refusals[] = {RN_OVER_BUDGET, RN_UNSUPPORTED, RN_NOT_FOUND, RN_DEVICE,
                                         RN_INVALID};
    if (strcmp(f->status, rn_status_name(RN_NO_MEMORY)) == 0) return RN_BENCH_NO_MEMORY;
    if (strcmp(f->status, rn_status_name(RN_CANCELLED)) == 0) return RN_BENCH_CANCELLED;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (strcmp(f->status, rn_status_name(refusals[i])) == 0) return RN_BENCH_REFUSED;
    return RN_BENCH_FAILED;
}

static rn_bench_outcome judge_end(watch *w, const rn_child_end *end) {
    rn_bench_failure *f = &w->result->failure;
    const char *stage = f->stage[0] ? f->stage : "starting";
    double limit = w->bench->options->timeout_s > 0 ? w->bench->options->timeout_s : 60;
    if (w->cancelled) {
        say(f, "cancelled while %s", stage);
        return RN_BENCH_CANCELLED;
    }
    if (w->timed_out) {
        say(f, "no end after %g s, while %s", limit, stage);
        snprintf(f->hint, sizeof f->hint, "--timeout gives it more time");
        return RN_BENCH_TIMED_OUT;
    }
    if (w->failed) return judge_report(f);
    if (end->over_limit || end->exit_code == 137) {
        say(f, "out of memory while %s%s", stage,
            end->exit_code == 137 ? ": exit code 137, as of a process that was killed for it" : "");
        return RN_BENCH_NO_MEMORY;
    }
    if (end->signal == SIGKILL) {
        say(f, "killed while %s, by somebody else (signal 9)", stage);
        snprintf(f->hint, sizeof f->hint,
                 "a system without memory does that: dmesg, and --memory-limit");
        return RN_BENCH_KILLED;
    }
    if (end->signal) {
        say(f, "crashed while %s: signal %d (%s)", stage, end->signal, strsignal(end->signal));
        return RN_BENCH_CRASHED;
    }
    if (end->exit_code != 0 || !w->ended) {
        say(f, "ended while %s with exit code %d and without a result", stage, end->exit_code);
        return RN_BENCH_FAILED;
    }
    return RN_BENCH_SUCCESS;
}

static void compare_outputs(watch *w) {
    rn_bench_result *r = w->result;
    if (w->is_reference || !w->reference || w->comparison.values == 0) return;
    if (!rn_comparison_end(&w->comparison, w->reference, &r->accuracy)) return;
    const char *why = rn_accuracy_is_wrong(&r->accuracy, &w->comparison, w->reference, r->weights,
                                           r->activations);
    if (!why) return;
    r->outcome = RN_BENCH_WRONG;
    say(&r->failure, "%s", why);
}

static void conclude(watch *w, const rn_child_end *end, rn_status fed) {
    rn_bench_result *r = w->result;
    r->elapsed_s = end->seconds;
    if (r->resident_peak_bytes == RN_BENCH_UNKNOWN)
        r->resident_peak_bytes = end->resident_peak_bytes;
    rn_str_clean(r->failure.log);
    if (fed != RN_OK) {
        say(&r->failure, "%s", rn_last_error()->message);
        r->outcome = RN_BENCH_FAILED;
    } else {
        r->outcome = judge_end(w, end);
    }
    rn_samples_summary(w->samples, &r->latency);
    if (r->latency.samples && r->batch != RN_BENCH_UNKNOWN)
        r->throughput = (double)(r->latency.samples * r->batch) / r->latency.total_s;
    if (r->outcome == RN_BENCH_SUCCESS) {
        compare_outputs(w);
        return;
    }
    r->failure.signal = end->signal;
    r->failure.exit_code = end->exit_code;
}

// ---- a variant ----------------------------------------------------------------------------------

// The command line of ration's own worker, or the variant's.
typedef struct words {
    const char *items[MOST_WORDS + 1];
    size_t count;
    char program[4096], numbers[4][32];
    size_t number_count;
} words;

static void add_word(words *w, const char *word) {
    if (w->count < MOST_WORDS) w->items[w->count++] = word;
}

static void add_number(words *w, const char *option, uint64_t value) {
    if (value == 0) return;
    char *text = w->numbers[w->number_count++];
    snprintf(text, sizeof w->numbers[0], "%llu", (unsigned long long)value);
    add_word(w, option);
    add_word(w, text);
}

static rn_status find_program(const rn_bench_options *options, words *w) {
    if (options->program) {
        snprintf(w->program, sizeof w->program, "%s", options->program);
        return RN_OK;
    }
    ssize_t bytes = readlink("/proc/self/exe", w->program, sizeof w->program - 1);
    if (bytes <= 0) return rn_fail(RN_IO, "this program cannot be found: %s", strerror(errno));
    w->program[bytes] = 0;
    return RN_OK;
}

static rn_status make_words(const bench *b, const rn_bench_variant *v, const rn_bench_result *r,
                            words *w) {
    const rn_bench_options *o = b->options;
    for (size_t i = 0; v->command && v->command[i]; i++)
        add_word(w, v->command[i]);
    if (v->command) return RN_OK;
    RN_TRY(find_program(o, w));
    add_word(w, w->program);
    add_word(w, "bench-worker");
    add_word(w, o->model);
    add_word(w, "--variants");
    add_word(w, r->name);
    add_number(w, "--batch", r->batch);
    add_number(w, "--threads", o->threads);
    add_number(w, "--budget", r->budget_bytes == RN_BENCH_UNKNOWN ? 0 : r->budget_bytes);
    for (size_t i = 0; o->arguments && o->arguments[i]; i++)
        add_word(w, o->arguments[i]);
    return RN_OK;
}

// As a shell takes it.
static void quote_words(const words *w, char *out, size_t bytes) {
    size_t used = 0;
    for (size_t i = 0; i < w->count; i++) {
        const char *word = w->items[i];
        bool plain = word[0] && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
                                                  "WXYZ0123456789_-+=./:,@%")] == 0;
        const char *mark = plain ? "" : "'";
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%s%s%s", i ? " " : "", mark, word, mark);
        if (used >= bytes) return;
    }
}

static uint64_t samples_of(const bench *b) {
    const rn_bench_options *o = b->options;
    if (!o->document_samples) return o->samples;
    uint64_t parameters = b->results->parameters;
    if (parameters == RN_BENCH_UNKNOWN) return 500;
    return parameters > 100000000 ? 50 : parameters > 10000000 ? 100 : 500;
}

static rn_status start_child(watch *w) {
    bench *b = w->bench;
    const rn_bench_options *o = b->options;
    char variable[256];
    words line = {.count = 0};
    RN_TRY(make_words(b, w->variant, w->result, &line));
    quote_words(&line, w->result->command, sizeof w->result->command);
    snprintf(variable, sizeof variable,
             "RATION_BENCH=fd=%d samples=%llu interval=%.6f seconds=%.6f", RN_CHILD_RECORD_FD,
             (unsigned long long)samples_of(b), o->interval > 0 ? o->interval : 0.01,
             o->sample_s > 0 ? o->sample_s : 1.0);
    rn_child_options child = {.command = line.items,
                              .variable = variable,
                              .limit_bytes = o->limit_bytes,
                              .cores = o->without_binding ? 0 : o->threads};
    return rn_child_start(&child, &w->child);
}

bool rn_bench_is_baseline(const rn_bench_run_state *b, size_t index) {
    return strcmp(b->results->items[index].name, b->results->items[b->baseline].name) == 0;
}

// The reference of the variant's batch: made by the first of the baseline's name that has it.
static rn_status find_reference(bench *b, size_t index, watch *w) {
    uint64_t batch = w->result->batch;
    for (size_t i = 0; i < b->reference_count; i++)
        if (b->references[i].batch == batch) {
            w->reference = &b->references[i].outputs;
            return RN_OK;
        }
    if (!rn_bench_is_baseline(b, index) || b->reference_count == RN_BENCH_REFERENCES) return RN_OK;
    w->reference = &b->references[b->reference_count].outputs;
    RN_TRY(rn_reference_create(w->reference));
    b->references[b->reference_count++].batch = batch;
    snprintf(w->reference->name, sizeof w->reference->name, "%s", w->result->name);
    w->is_reference = true;
    return RN_OK;
}

rn_status rn_bench_measure(rn_bench_run_state *b, size_t index, rn_bench_result *result) {
    watch *w;
    rn_child_end end;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *w, (void **)&w));
    w->bench = b;
    w->index = index;
    w->result = result;
    w->variant = &b->variants[index];
    rn_status s = find_reference(b, index, w);
    if (s == RN_OK) s = rn_record_reader_create(&w->reader);
    if (s == RN_OK) s = rn_samples_create(&w->samples);
    if (s == RN_OK) {
        tell(w, false);
        rn_status started = start_child(w);
        if (started == RN_OK) {
            rn_status fed = watch_child(w);
            rn_child_finish(&w->child, true, &end);
            conclude(w, &end, fed);
        } else {
            say(&w->result->failure, "%s", rn_last_error()->message);
            w->result->outcome = RN_BENCH_FAILED;
        }
        bool first = result == &b->results->items[index];
        b->pace->done++;
        tell(w, first);
    }
    rn_samples_destroy(w->samples);
    rn_record_reader_free(&w->reader);
    rn_free(RN_HOST_OTHER, w, sizeof *w);
    return s;
}
