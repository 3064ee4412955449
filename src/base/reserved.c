// reserved.c — see reserved.h.
#include "base/reserved.h"

rn_status rn_check_reserved(const uint64_t reserved[4], const char *type) {
    if ((reserved[0] | reserved[1] | reserved[2] | reserved[3]) == 0) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "a reserved field of %s is not zero", type),
                   "zero the struct before filling it, and compile and run with one version");
}
