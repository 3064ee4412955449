// train_log.h — a training's records from the inside.
//
//     train_log.c       the log's lines, and the points that the page shows
//     train_events.c    TensorBoard's file
//     train_page.c      the page
#ifndef RN_TRAIN_TRAIN_LOG_H
#define RN_TRAIN_TRAIN_LOG_H

#include <ration/train_log.h>

#include <sys/param.h>

enum { RN_TRAIN_LOG_POINTS = 1024 };

struct rn_train_log {
    char folder[PATH_MAX];
    int lines_fd, events_fd;
    uint64_t lines_bytes, events_bytes;
    rn_train_point points[RN_TRAIN_LOG_POINTS]; // (count), one in `stride`
    uint32_t count;
    uint64_t stride, seen;
};

// ---- events (train_events.c) --------------------------------------------------------------------

// Begins a file. from_step above 0: what earlier files have of later steps is void.
RN_MUST_USE rn_status rn_train_events_open(rn_train_log *log, uint64_t from_step);
RN_MUST_USE rn_status rn_train_events_add(rn_train_log *log, const rn_train_point *point);

#endif
