// place_csv.h — buffers as CSV text: what rn_place_table_read and _write do, without the files.
#ifndef RN_PLAN_PLACE_CSV_H
#define RN_PLAN_PLACE_CSV_H

#include <ration/place.h>

#include "base/alloc.h"

// The largest file that is read.
#define RN_PLACE_CSV_BYTES ((size_t)64 << 20)

// The ids point into `text`, which must outlive the table. RN_CORRUPT begins "line N, ".
RN_MUST_USE rn_status rn_place_csv_parse(rn_str text, const rn_allocator *from,
                                         rn_place_table *out);
RN_MUST_USE rn_status rn_place_csv_print(const rn_place_table *table, rn_sink sink);

#endif
