// rates.h — what measuring and keeping rates share.
#ifndef RN_RUNTIME_RATES_H
#define RN_RUNTIME_RATES_H

#include <ration/calibrate.h>

// Makes the folders on the way to a file.
RN_MUST_USE rn_status rn_rates_make_folders(const char *path);

#endif
