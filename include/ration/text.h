// text.h — strings by (pointer, length), and the sink that anything printable is written to.
#ifndef RATION_TEXT_H
#define RATION_TEXT_H

#include <ration/status.h>

RN_BEGIN_DECLS

// Borrowed text; not terminated, may hold NUL bytes. {NULL, 0} is the empty string.
typedef struct rn_str {
    const char *data; // (bytes)
    size_t bytes;
} rn_str;

// For printf's "%.*s".
#define RN_STR_ARG(s) (int)(s).bytes, (s).data

// Whether the whole text matches: `*` is any run, `?` any one byte.
RN_API bool rn_str_matches(rn_str text, rn_str pattern);

// Length of the valid UTF-8 sequence at text[0] (1..4), or 0 where it is invalid or cut short.
// Surrogates and overlong forms are invalid.
RN_API size_t rn_utf8_sequence(const char *text, size_t bytes);

// Where text goes: a FILE, a buffer, a socket. A failing write ends the printing with its status.
typedef struct rn_sink {
    void *self;
    rn_status (*write)(void *self, const char *text, size_t bytes);
} rn_sink;

// A sink that writes to a FILE*.
RN_API rn_sink rn_sink_file(void *stdio_file);
RN_API RN_MUST_USE rn_status rn_sink_write(rn_sink sink, const char *text, size_t bytes);
RN_API RN_MUST_USE rn_status rn_sink_print(rn_sink sink, const char *format, ...) RN_PRINTF(2, 3);

// "1.50 GiB", "12 B": for tables and messages. Returns a pointer into `out`.
typedef struct rn_size_text {
    char text[32];
} rn_size_text;
RN_API rn_size_text rn_size_format(uint64_t bytes);

// "12.3 us", "778 ms", "2.50 s", "3.25 min", "26.1 h": the same for a span of time.
typedef struct rn_time_text {
    char text[32];
} rn_time_text;
RN_API rn_time_text rn_time_format(double seconds);

// "12", "260 thousand", "1.94 million", "1.78 billion": the same for a number of things.
typedef struct rn_count_text {
    char text[32];
} rn_count_text;
RN_API rn_count_text rn_count_format(uint64_t count);

// Sizes as people write them: "2GiB", "1.5G", "800MB", "4096", "75%" (of `whole_bytes`). K, M, G, T
// and KiB... are powers of 1024; KB, MB, GB, TB are powers of 1000. RN_INVALID says what was wrong.
RN_API RN_MUST_USE rn_status rn_size_parse(rn_str text, uint64_t whole_bytes, uint64_t *out_bytes);

RN_END_DECLS

#endif
