// winograd_avx512.c — winograd.h's transforms for this instruction level.
#define WINOGRAD rn_winograd_avx512
#include "backend/cpu/winograd_body.h"
