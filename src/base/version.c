// version.c — what the build says it is.
#include <ration/ration.h>

const char *rn_version(void) {
    return RATION_VERSION;
}
