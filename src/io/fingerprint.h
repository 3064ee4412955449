// fingerprint.h — whether several processes have opened the same model.
#ifndef RN_IO_FINGERPRINT_H
#define RN_IO_FINGERPRINT_H

#include <ration/checkpoint.h>

enum { RN_FINGERPRINT_BYTES = 65 };

// 64 digits and a terminator, of the names, dtypes and shapes of all tensors and of some bytes of a
// few: equal for equal models, whatever their folders are called. Reads 256 KiB at most.
RN_MUST_USE rn_status rn_checkpoint_fingerprint(const rn_checkpoint *checkpoint,
                                                char out[RN_FINGERPRINT_BYTES]);

#endif
