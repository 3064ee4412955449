// winograd_portable.c — winograd.h's transforms for this instruction level.
#define WINOGRAD rn_winograd_portable
#include "backend/cpu/winograd_body.h"
