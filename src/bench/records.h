// records.h — what a worker tells the harness, as records through a pipe.
//
//     [ mark 4 | kind 4 | bytes 4 | sum 4 | payload: bytes ]     little-endian, one behind the
//     other
//
// `sum` is FNV-1a over kind, length and payload, so that what another part of the process writes to
// the descriptor by mistake is noticed. Whoever reads holds one payload at most; what is larger
// (outputs) goes as several records.
#ifndef RN_BENCH_RECORDS_H
#define RN_BENCH_RECORDS_H

#include <ration/text.h>

enum { RN_RECORD_MOST_BYTES = 256 << 10, RN_RECORD_HEAD_BYTES = 16 };

typedef enum rn_record_kind {
    RN_RECORD_STAGE = 1, // a name
    RN_RECORD_SAMPLES,   // f64 each: nanoseconds of runs that count
    RN_RECORD_FIGURES,   // a JSON object with keys of a result
    RN_RECORD_OUTPUT,    // f32 each: outputs of the last run
    RN_RECORD_FAILURE,   // STATUS \n message \n hint
    RN_RECORD_END        // all was sent
} rn_record_kind;

// Writes one record to a descriptor that may block. RN_IO: nobody reads any more.
RN_MUST_USE rn_status rn_record_write(int fd, rn_record_kind kind, const void *data, size_t bytes);

typedef struct rn_record_reader {
    uint8_t head[RN_RECORD_HEAD_BYTES];
    uint8_t *payload; // (RN_RECORD_MOST_BYTES)
    size_t have;      // of head and payload together
} rn_record_reader;

RN_MUST_USE rn_status rn_record_reader_create(rn_record_reader *out);
void rn_record_reader_free(rn_record_reader *reader);
// Takes bytes as they come from the pipe, and gives each record that is complete to `take`.
// RN_CORRUPT: no record begins here, or its sum is wrong; or what `take` returns.
RN_MUST_USE rn_status rn_record_feed(rn_record_reader *reader, const void *data, size_t bytes,
                                     rn_status (*take)(void *self, rn_record_kind kind,
                                                       rn_str payload),
                                     void *self);

#endif
