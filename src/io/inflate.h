// inflate.h — zlib streams (RFC 1950, 1951) whose decoded size is known.
#ifndef RN_IO_INFLATE_H
#define RN_IO_INFLATE_H

#include <ration/status.h>

#include <stddef.h>
#include <stdint.h>

// No stream has more bytes than so many times its own.
enum { RN_INFLATE_MOST_RATIO = 1032 };

// Fills `out` exactly. RN_CORRUPT: the stream is damaged, cut, or of another size; the error's
// offset is a byte of `data`. Takes no memory.
RN_MUST_USE rn_status rn_inflate(const uint8_t *data, size_t bytes, uint8_t *out, size_t out_bytes);

uint32_t rn_adler32(const uint8_t *data, size_t bytes);

#endif
