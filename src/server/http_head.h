// http_head.h — a request from its bytes: the head, and a body that comes in chunks. Pure
// functions.
//
// Where one request ends and the next begins must be the same to us and to a proxy in front of us;
// else one client's body becomes another's request. So the grammar of RFC 9112 is taken by the
// letter: lines end with CR LF, names are tokens, nothing goes on in the next line, there is one
// length or one encoding. What is ambiguous is refused, not repaired.
#ifndef RN_SERVER_HTTP_HEAD_H
#define RN_SERVER_HTTP_HEAD_H

#include "server/problem.h"

#include <ration/text.h>

#define RN_HTTP_HEAD_BYTES   (8u << 10) // of a head, at most: 431
#define RN_HTTP_TARGET_BYTES (4u << 10) // of its first line: 414
#define RN_HTTP_FIELDS       64         // header lines: 431

typedef struct rn_http_field {
    rn_str name, value;
} rn_http_field;

// Points into the bytes that it was read from.
typedef struct rn_http_head {
    const char *method, *path; // terminated; the path is decoded and begins with '/', or is "*"
    rn_str query;              // decoded; pairs "name=value", each of them terminated
    rn_str host;               // of the target, or of the Host header; data NULL: there is none
    bool is_http10;
    bool close; // the connection is not to be used again
    bool has_length, chunked, expects_continue;
    uint64_t length; // of the body; a number too large for any memory where it is too large
    uint32_t field_count;
    rn_http_field fields[RN_HTTP_FIELDS];
} rn_http_head;

typedef enum rn_head_news {
    RN_HEAD_MORE, // bytes are needed
    RN_HEAD_WHOLE,
    RN_HEAD_WRONG, // *out_problem: 400, 414, 431, 501, 505. Where the next one begins is unknown
} rn_head_news;

// `data` begins with a head. *scanned, 0 at first, is what was looked at before. Nothing is changed
// in `data` before all of the head is there; then lines are cut and the target is decoded where
// they stand. *out_bytes are the head's, with its empty line.
rn_head_news rn_http_head_read(char *data, size_t bytes, size_t *scanned, rn_http_head *out,
                               size_t *out_bytes, rn_problem *out_problem);
// The first header of this name; data NULL: there is none.
rn_str rn_http_head_find(const rn_http_head *head, const char *name);

// ---- chunks -------------------------------------------------------------------------------------

typedef struct rn_chunks {
    uint8_t at;          // what comes next, see http_head.c; 0 at first
    uint64_t left;       // of the chunk's data
    uint32_t line_bytes; // of a chunk's line, or of all lines behind the last chunk
} rn_chunks;

typedef enum rn_chunks_news {
    RN_CHUNKS_MORE,
    RN_CHUNKS_DATA, // *out_data
    RN_CHUNKS_END,
    RN_CHUNKS_WRONG, // as RN_HEAD_WRONG: 400
} rn_chunks_news;

// Takes *used bytes off the front, as far as the next run of data, the end or the fault.
rn_chunks_news rn_chunks_take(rn_chunks *chunks, const char *data, size_t bytes, size_t *used,
                              rn_str *out_data);

#endif
