// assembled_rows.h — rows of a tensor that a conversion makes of rows of others (translation.h).
//
// Where they are runs of a file's bytes, the conversion's reader brings them as those of any
// tensor; else they are read and put together here.
#ifndef RN_IO_ASSEMBLED_ROWS_H
#define RN_IO_ASSEMBLED_ROWS_H

#include "io/translation.h"

// What rn_assembled_read needs at hand, and the most bytes of rows it is asked for at once.
#define RN_ASSEMBLED_ROOM_BYTES  ((size_t)2 << 20)
#define RN_ASSEMBLED_CHUNK_BYTES ((uint64_t)1 << 20)

// What is known of such a tensor beforehand.
typedef struct rn_assembled_info {
    rn_dtype dtype;         // of its rows: the sources' own, or f32 where that cannot be
    uint64_t rows, columns; // elements of a row: bytes of a part
    uint64_t row_bytes;
    bool is_runs; // of a file's bytes, as they are
} rn_assembled_info;

// RN_CORRUPT, RN_UNSUPPORTED: the rows do not go together, or are not there.
RN_MUST_USE rn_status rn_assembled_look(const rn_checkpoint *source, const rn_assembled_tensor *t,
                                        rn_assembled_info *out);

// Rows [first, first + count) into `out` (count * row_bytes). room: RN_ASSEMBLED_ROOM_BYTES.
RN_MUST_USE rn_status rn_assembled_read(const rn_checkpoint *source, const rn_assembled_tensor *t,
                                        const rn_assembled_info *info, uint64_t first,
                                        uint64_t count, uint8_t *room, uint8_t *out);

#endif
