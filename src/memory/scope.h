// scope.h — the ledger's side of scopes.
#ifndef RN_MEMORY_SCOPE_H
#define RN_MEMORY_SCOPE_H

#include <ration/memory.h>

// Adds a charge (bytes > 0) or release (bytes < 0) to the calling thread's scopes. `innermost` is
// its context.
void rn_scope_count(rn_scope *innermost, rn_device_id device, int64_t bytes);

#endif
