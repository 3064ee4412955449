// accuracy.c — see accuracy.h.
#include "bench/accuracy.h"

#include "base/file.h"
#include "base/str.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 4096 };

rn_status rn_reference_create(rn_reference *out) {
    const char *folder = getenv("TMPDIR");
    char name[512];
    *out = (rn_reference){.fd = -1, .finite = true};
    snprintf(name, sizeof name, "%s/ration-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    out->fd = mkostemp(name, O_CLOEXEC);
    if (out->fd < 0) return rn_file_fail("make", name);
    unlink(name);
    return RN_OK;
}

void rn_reference_destroy(rn_reference *reference) {
    if (reference->fd >= 0) close(reference->fd);
    reference->fd = -1;
}

rn_status rn_reference_add(rn_reference *r, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        r->finite &= isfinite(values[i]) != 0;
        if (fabs((double)values[i]) > r->largest) r->largest = fabs((double)values[i]);
    }
    RN_TRY(rn_file_write_at(r->fd, "the reference's outputs", r->values * sizeof *values, values,
                            count * sizeof *values));
    r->values += count;
    return RN_OK;
}

// ---- comparing ----------------------------------------------------------------------------------

// A row of the batch begins or ends with some values; ends count where both have their largest at
// the same place.
static void add_value(rn_comparison *c, uint64_t width, double own, double other) {
    uint64_t column = width ? c->values % width : 0;
    if (column == 0) {
        c->own_best = c->other_best = -INFINITY;
        c->own_top = c->other_top = 0;
    }
    if (own > c->own_best) {
        c->own_best = own;
        c->own_top = column;
    }
    if (other > c->other_best) {
        c->other_best = other;
        c->other_top = column;
    }
    c->values++;
    if (width && column == width - 1) {
        c->row++;
        c->rows_equal += c->own_top == c->other_top;
    }
    if (!isfinite(own) || !isfinite(other)) {
        c->finite_differs |= !isfinite(own) != !isfinite(other);
        return;
    }
    double difference = fabs(own - other);
    if (difference > c->max_abs) c->max_abs = difference;
    c->dot += own * other;
    c->own_squares += own * own;
    c->other_squares += other * other;
}

rn_status rn_comparison_add(rn_comparison *c, const rn_reference *r, uint64_t rows,
                            const float *values, size_t count) {
    float piece[PIECE];
    uint64_t width = rows && r->values % rows == 0 ? r->values / rows : r->values;
    for (size_t at = 0; at < count;) {
        size_t some = count - at < PIECE ? count - at : PIECE;
        if (c->values >= r->values) {
            c->values += count - at; // more than the reference has: wrong, as the end will say
            return RN_OK;
        }
        if (some > r->values - c->values) some = (size_t)(r->values - c->values);
        RN_TRY(rn_file_read_at(r->fd, "the reference's outputs", c->values * sizeof *piece, piece,
                               some * sizeof *piece));
        for (size_t i = 0; i < some; i++)
            add_value(c, width, (double)values[at + i], (double)piece[i]);
        at += some;
    }
    return RN_OK;
}

bool rn_comparison_end(const rn_comparison *c, const rn_reference *r, rn_bench_accuracy *out) {
    if (r->fd < 0 || r->values == 0) return false;
    snprintf(out->reference, sizeof out->reference, "%s", r->name);
    out->values = c->values;
    if (c->values != r->values) return true;
    double squares = sqrt(c->own_squares) * sqrt(c->other_squares);
    out->max_abs = c->max_abs;
    out->max_rel = r->largest > 0 ? c->max_abs / r->largest : c->max_abs;
    out->cosine = squares > 0 ? c->dot / squares : c->own_squares == c->other_squares ? 1 : 0;
    out->top1 = c->row ? (double)c->rows_equal / (double)c->row : NAN;
    return true;
}

// How far off, as a share of the largest value, outputs may be: rounding of each layer adds up.
static double tolerance_of_kind(rn_str kind) {
    static const struct {
        const char *beginning; // of the kind's name
        double tolerance;
    } table[] = {{"f32", 0.01}, {"f64", 0.01}, {"f16", 0.1}, {"bf16", 0.1}, {"int8", 0.25},
                 {"q8", 0.25},  {"f8", 0.5},   {"q6", 0.5},  {"q5", 0.5},   {"q4", 0.5},
                 {"int4", 0.5}, {"nf4", 0.5},  {"iq4", 0.5}, {"mxfp4", 0.5}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (rn_str_starts(kind, rn_str_from(table[i].beginning))) return table[i].tolerance;
    return kind.bytes ? 1 : 0.01;
}

// Of the coarsest: "int8 + q8_0 + f32".
static double tolerance_of(const char *kinds) {
    double most = 0.01;
    for (size_t bytes; *kinds; kinds += bytes) {
        bytes = strcspn(kinds, " +,");
        most = fmax(most, tolerance_of_kind((rn_str){kinds, bytes}));
        bytes += strspn(kinds + bytes, " +,");
    }
    return most;
}

const char *rn_accuracy_is_wrong(const rn_bench_accuracy *a, const rn_comparison *c,
                                 const rn_reference *r, const char *weights,
                                 const char *activations) {
    double tolerance = fmax(tolerance_of(weights), tolerance_of(activations));
    if (!a->reference[0]) return NULL;
    if (c->values != r->values) return "it has another number of outputs than the reference";
    if (c->finite_differs) return "its outputs are not numbers where the reference's are";
    if (a->max_rel > tolerance) return "its outputs are too far from the reference's";
    return NULL;
}
