// train_events.c — TensorBoard's event file: records of the form
//
//     | u64 length | u32 crc of the length | the event: protobuf, `length` bytes | u32 its crc |
//
// with CRC-32C sums, each rotated and shifted by a constant ("masked"), as TFRecord files have
// them. Of the message Event: wall_time (1, double), step (2, varint), file_version (3, text),
// summary (5) with its values (1: tag 1, simple_value 2), session_log (7: status 1).
#include "train/train_log.h"

#include "base/crc32c.h"
#include "base/file.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_BYTES = 512, VARINT = 0, FIXED64 = 1, TEXT = 2, FIXED32 = 5, START = 1 };

typedef struct message {
    uint8_t data[EVENT_BYTES];
    size_t bytes;
} message;

static void put(message *m, const void *data, size_t bytes) {
    if (bytes > sizeof m->data - m->bytes) return; // never: events are small
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

static void put_varint(message *m, uint64_t value) {
    do {
        uint8_t byte = (uint8_t)(value & 127) | (value > 127 ? 128 : 0);
        put(m, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_tag(message *m, unsigned field, unsigned type) {
    put_varint(m, field << 3 | type);
}

static void put_text(message *m, unsigned field, const void *data, size_t bytes) {
    put_tag(m, field, TEXT);
    put_varint(m, bytes);
    put(m, data, bytes);
}

static message begin_event(uint64_t step) {
    struct timespec now;
    message m = {.bytes = 0};
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    put_tag(&m, 1, FIXED64);
    put(&m, &seconds, sizeof seconds);
    put_tag(&m, 2, VARINT);
    put_varint(&m, step);
    return m;
}

static void add_value(message *summary, const char *tag, double value) {
    message m = {.bytes = 0};
    float simple = (float)value;
    if (!isfinite(value)) return;
    put_text(&m, 1, tag, strlen(tag));
    put_tag(&m, 2, FIXED32);
    put(&m, &simple, sizeof simple);
    put_text(summary, 1, m.data, m.bytes);
}

static uint32_t masked_crc(const void *data, size_t bytes) {
    uint32_t crc = rn_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static rn_status write_event(rn_train_log *log, const message *event) {
    uint8_t record[EVENT_BYTES + 16];
    uint64_t length = event->bytes;
    uint32_t length_crc = masked_crc(&length, sizeof length);
    uint32_t crc = masked_crc(event->data, event->bytes);
    memcpy(record, &length, 8);
    memcpy(record + 8, &length_crc, 4);
    memcpy(record + 12, event->data, event->bytes);
    memcpy(record + 12 + event->bytes, &crc, 4);
    size_t bytes = event->bytes + 16;
    RN_TRY(rn_file_write_at(log->events_fd, log->folder, log->events_bytes, record, bytes));
    log->events_bytes += bytes;
    return RN_OK;
}

// The name must have "tfevents" in it; a file is never written again.
static rn_status make_file(rn_train_log *log) {
    char name[64], path[PATH_MAX];
    for (int i = 0; log->events_fd < 0; i++) {
        snprintf(name, sizeof name, "events.out.tfevents.%lld.ration.%d", (long long)time(NULL), i);
        RN_TRY(rn_path_join(log->folder, name, path, sizeof path));
        log->events_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (log->events_fd < 0 && i == 1000) return rn_file_fail("cannot make", path);
        if (log->events_fd < 0 && rn_file_exists(path)) continue;
        if (log->events_fd < 0) return rn_file_fail("cannot make", path);
    }
    return RN_OK;
}

rn_status rn_train_events_open(rn_train_log *log, uint64_t from_step) {
    static const char version[] = "brain.Event:2";
    RN_TRY(make_file(log));
    message event = begin_event(0);
    put_text(&event, 3, version, sizeof version - 1);
    RN_TRY(write_event(log, &event));
    if (from_step == 0) return RN_OK;
    message status = {.bytes = 0};
    put_tag(&status, 1, VARINT);
    put_varint(&status, START);
    event = begin_event(from_step + 1); // events from this step on, in files before, are void
    put_text(&event, 7, status.data, status.bytes);
    return write_event(log, &event);
}

rn_status rn_train_events_add(rn_train_log *log, const rn_train_point *p) {
    message event = begin_event(p->step), summary = {.bytes = 0};
    add_value(&summary, "train/loss", (double)p->loss);
    add_value(&summary, "train/learning_rate", p->rate);
    add_value(&summary, "train/grad_norm", (double)p->gradient_norm);
    add_value(&summary, "train/tokens_per_second", p->tokens_per_second);
    add_value(&summary, "train/memory_mib", (double)p->memory_bytes / (1 << 20));
    add_value(&summary, "eval/loss", (double)p->validation_loss);
    put_text(&event, 5, summary.data, summary.bytes);
    return write_event(log, &event);
}
