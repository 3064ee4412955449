// weights_rows.c — a few rows of a table, each by a small read of its own, by all workers.
//
// Through the page cache: rows of common words are asked for again and again, and the system takes
// the pages back when it needs them.
#include "runtime/weights_internal.h"

#include <stdatomic.h>
#include <string.h>

typedef struct row_reading {
    const rn_weights *weights;
    const rn_row_source *table;
    const int32_t *ids;
    uint8_t *target;
    _Atomic bool failed;
    rn_error_info error; // of the first failure; written by whoever set `failed`
} row_reading;

static rn_status copy_row(void *self, rn_component component, uint64_t offset, const void *data,
                          uint64_t bytes) {
    (void)component;
    memcpy((uint8_t *)self + offset, data, bytes);
    return RN_OK;
}

static void read_row(void *arg, size_t i) {
    row_reading *r = arg;
    const rn_row_source *t = r->table;
    uint64_t at = (uint64_t)r->ids[i] * t->row_bytes;
    uint8_t *to = r->target + i * t->row_bytes;
    if (t->plain) {
        memcpy(to, t->plain + at, t->row_bytes);
        return;
    }
    if (atomic_load(&r->failed)) return;
    rn_status s = t->form ? rn_weight_form_read(r->weights->source.checkpoint, t->form,
                                                (uint64_t)r->ids[i], 1, copy_row, to)
                          : rn_fetcher_read_now(r->weights->fetcher, t->file, t->offset + at, to,
                                                t->row_bytes);
    if (s != RN_OK && !atomic_exchange(&r->failed, true)) r->error = *rn_last_error();
}

rn_status rn_weights_rows(rn_weights *w, uint32_t table, const int32_t *ids, uint64_t count,
                          uint8_t *target) {
    row_reading r = {.weights = w, .table = &w->tables[table], .ids = ids, .target = target};
    if (w->workers && count > 1)
        rn_workers_run(w->workers, count, read_row, &r);
    else
        for (uint64_t i = 0; i < count; i++)
            read_row(&r, i);
    if (atomic_load(&r.failed)) return rn_error_restore(&r.error);
    if (r.table->plain) return RN_OK;
    atomic_fetch_add(&w->read_bytes, count * r.table->row_bytes);
    return r.table->form ? RN_OK : rn_fetcher_check(w->fetcher);
}
