// names.h — variants by name.
#ifndef RN_BENCH_NAMES_H
#define RN_BENCH_NAMES_H

#include <ration/bench.h>

#include "base/str.h"

// One of alma's names; what it means, or why nothing.
bool rn_bench_find_alias(rn_str text, const char **out_meaning, const char **out_reason);

#endif
