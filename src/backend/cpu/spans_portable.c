// spans_portable.c — spans.h for this instruction level.
#define SPANS rn_spans_portable
#include "backend/cpu/spans_body.h"
