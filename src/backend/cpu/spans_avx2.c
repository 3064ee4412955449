// spans_avx2.c — spans.h for this instruction level.
#define SPANS rn_spans_avx2
#include "backend/cpu/spans_body.h"
