// result.h — the figures of a variant, and how they are written and read.
//
// One table (result.c) has a row a figure: the JSON object that holds it, its key, its type, where
// it is in the struct. The writer and the reader walk the same table, so what is written is read.
#ifndef RN_BENCH_RESULT_H
#define RN_BENCH_RESULT_H

#include <ration/bench.h>

#include "base/json.h"
#include "io/json_read.h"

// Everything unknown.
void rn_bench_result_clear(rn_bench_result *result);
// As one JSON object.
void rn_bench_result_write(const rn_bench_result *result, rn_json *json, const char *key);
// The members of an object whose beginning has been read; figures that are there replace those of
// `result`.
RN_MUST_USE rn_status rn_bench_result_read(rn_json_reader *reader, rn_bench_result *result);

// Every figure of a result but lists, in the table's order, as a text: NULL where it is not known.
// The object is NULL for those of the result itself.
typedef rn_status rn_bench_visit(void *self, const char *object, const char *key,
                                 const char *value);
RN_MUST_USE rn_status rn_bench_result_visit(const rn_bench_result *result, void *self,
                                            rn_bench_visit *visit);

// Results with room for `count` items, cleared.
RN_MUST_USE rn_status rn_bench_results_create(size_t count, rn_bench_results **out);

#endif
