// train_log.c — the lines of a training's log, and the points of its page.
//
// A training that goes on from a checkpoint does the steps behind it again: their lines are removed
// when the log is opened, so that each step has one line.
#include "train/train_log.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/number.h"
#include "base/str.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, LINE_BYTES = 512 };

// ---- points -------------------------------------------------------------------------------------

// Every second one goes; a loss of validation moves to its neighbour.
static void thin_out(rn_train_log *log) {
    for (uint32_t i = 0; i + 1 < log->count; i += 2) {
        rn_train_point *kept = &log->points[i / 2];
        float validation = log->points[i].validation_loss;
        if (isnan(validation)) validation = log->points[i + 1].validation_loss;
        *kept = log->points[i];
        kept->validation_loss = validation;
    }
    log->count /= 2;
    log->stride *= 2;
}

static void keep_point(rn_train_log *log, const rn_train_point *point) {
    bool due = log->seen++ % log->stride == 0;
    if (!due) {
        if (!isnan(point->validation_loss) && log->count)
            log->points[log->count - 1].validation_loss = point->validation_loss;
        return;
    }
    if (log->count == RN_TRAIN_LOG_POINTS) thin_out(log);
    log->points[log->count++] = *point;
}

// ---- lines --------------------------------------------------------------------------------------

static double number_of(rn_str digits) {
    double number;
    return rn_number_read(digits, &number) == RN_OK ? number : 0;
}

static rn_status parse_line(rn_str line, rn_train_point *out) {
    rn_json_reader reader;
    rn_json_item key, value;
    *out = (rn_train_point){.loss = NAN, .gradient_norm = NAN, .validation_loss = NAN};
    rn_json_reader_init(&reader, line, RN_HOST_OTHER);
    rn_status s = rn_json_expect(&reader, RN_JSON_OBJECT, NULL);
    while (s == RN_OK) {
        s = rn_json_next(&reader, &key);
        if (s != RN_OK || key.kind == RN_JSON_OBJECT_END) break;
        rn_str name = key.text;
        s = rn_json_next(&reader, &value);
        double number =
            s == RN_OK && value.kind == RN_JSON_NUMBER ? number_of(value.text) : (double)NAN;
        if (rn_str_equal(name, RN_STR("step")) && number >= 0) out->step = (uint64_t)number;
        if (rn_str_equal(name, RN_STR("loss"))) out->loss = (float)number;
        if (rn_str_equal(name, RN_STR("gradient_norm"))) out->gradient_norm = (float)number;
        if (rn_str_equal(name, RN_STR("validation_loss"))) out->validation_loss = (float)number;
        if (rn_str_equal(name, RN_STR("rate"))) out->rate = number;
        if (rn_str_equal(name, RN_STR("tokens_per_second"))) out->tokens_per_second = number;
        if (rn_str_equal(name, RN_STR("memory_bytes")) && number >= 0)
            out->memory_bytes = (uint64_t)number;
    }
    rn_json_reader_free(&reader);
    return s;
}

// The lines that are whole in a part of the file, up to the first that does not count. Whether all
// of them did; *out_bytes: of those that do.
static bool take_lines(rn_train_log *log, rn_str part, uint64_t from_step, size_t *out_bytes) {
    rn_train_point point;
    for (*out_bytes = 0; *out_bytes < part.bytes;) {
        const char *begin = part.data + *out_bytes;
        const char *end = memchr(begin, '\n', part.bytes - *out_bytes);
        if (!end) return true;
        if (parse_line((rn_str){begin, (size_t)(end - begin)}, &point) != RN_OK) return false;
        if (point.step > from_step) return false;
        keep_point(log, &point);
        *out_bytes += (size_t)(end - begin) + 1;
    }
    return true;
}

// Keeps the lines of steps that are done: the log is cut behind the last of them. A line that a
// killed process left half is no line.
static rn_status read_lines(rn_train_log *log, const char *path, uint64_t from_step) {
    char chunk[CHUNK];
    uint64_t bytes = 0;
    int fd = -1;
    if (from_step == 0 || !rn_file_exists(path)) return RN_OK;
    RN_TRY(rn_file_open(path, &fd, &bytes));
    rn_status s = RN_OK;
    for (bool goes_on = true; s == RN_OK && goes_on && log->lines_bytes < bytes;) {
        size_t part = (size_t)rn_min_u64(CHUNK, bytes - log->lines_bytes), taken = 0;
        s = rn_file_read_at(fd, path, log->lines_bytes, chunk, part);
        if (s != RN_OK) break;
        goes_on = take_lines(log, (rn_str){chunk, part}, from_step, &taken) && taken > 0;
        log->lines_bytes += taken;
    }
    close(fd);
    return s;
}

static int put_number(char *at, size_t room, const char *key, double value) {
    if (isnan(value)) return 0;
    if (isinf(value)) return snprintf(at, room, ", \"%s\": null", key);
    return snprintf(at, room, ", \"%s\": %.7g", key, value);
}

rn_status rn_train_log_add(rn_train_log *log, const rn_train_point *p) {
    char line[LINE_BYTES];
    int at = snprintf(line, sizeof line, "{\"step\": %llu", (unsigned long long)p->step);
    at += put_number(line + at, sizeof line - (size_t)at, "loss", (double)p->loss);
    at += put_number(line + at, sizeof line - (size_t)at, "rate", p->rate);
    at +=
        put_number(line + at, sizeof line - (size_t)at, "gradient_norm", (double)p->gradient_norm);
    at +=
        put_number(line + at, sizeof line - (size_t)at, "tokens_per_second", p->tokens_per_second);
    at += put_number(line + at, sizeof line - (size_t)at, "validation_loss",
                     (double)p->validation_loss);
    at += snprintf(line + at, sizeof line - (size_t)at, ", \"memory_bytes\": %llu}\n",
                   (unsigned long long)p->memory_bytes);
    RN_TRY(rn_file_write_at(log->lines_fd, log->folder, log->lines_bytes, line, (size_t)at));
    log->lines_bytes += (uint64_t)at;
    keep_point(log, p);
    return rn_train_events_add(log, p);
}

// ---- life ---------------------------------------------------------------------------------------

static rn_status open_lines(rn_train_log *log, uint64_t from_step) {
    char path[PATH_MAX];
    RN_TRY(rn_path_join(log->folder, "log.jsonl", path, sizeof path));
    RN_TRY(read_lines(log, path, from_step));
    log->lines_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (log->lines_fd < 0 || ftruncate(log->lines_fd, (off_t)log->lines_bytes) != 0)
        return rn_file_fail("cannot write", path);
    return RN_OK;
}

rn_status rn_train_log_open(const char *folder, uint64_t from_step, rn_train_log **out) {
    void *block = NULL;
    *out = NULL;
    if (strlen(folder) >= PATH_MAX - 64)
        return rn_fail(RN_INVALID, "the folder's path is too long");
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_train_log), &block));
    rn_train_log *log = block;
    snprintf(log->folder, sizeof log->folder, "%s", folder);
    log->lines_fd = log->events_fd = -1;
    log->stride = 1;
    rn_status s = open_lines(log, from_step);
    if (s == RN_OK) s = rn_train_events_open(log, from_step);
    if (s == RN_OK)
        *out = log;
    else
        rn_train_log_close(log);
    return s;
}

void rn_train_log_close(rn_train_log *log) {
    if (!log) return;
    if (log->lines_fd >= 0) close(log->lines_fd);
    if (log->events_fd >= 0) close(log->events_fd);
    rn_free(RN_HOST_OTHER, log, sizeof *log);
}
