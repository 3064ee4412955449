// spans_avx512.c — spans.h for this instruction level.
#define SPANS rn_spans_avx512
#include "backend/cpu/spans_body.h"
