// device_open.c — a device by name, without the ladder's book-keeping.
#include "runtime/ladder.h"

rn_status rn_device_open(const char *targets, uint32_t threads, rn_device **out) {
    rn_ladder *ladder = NULL;
    *out = NULL;
    RN_TRY(rn_ladder_parse(rn_str_from(targets), &ladder));
    rn_status s = RN_OK;
    for (size_t i = 0; i < ladder->count && !*out; i++)
        s = ladder->targets[i].backend->open(&ladder->targets[i], threads, out);
    rn_ladder_destroy(ladder);
    return s;
}
