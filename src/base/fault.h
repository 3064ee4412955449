// fault.h — makes the N-th allocation, read or write fail, so that tests can walk every error path.
// One relaxed load when nothing is armed.
#ifndef RN_BASE_FAULT_H
#define RN_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum rn_fault { RN_FAULT_ALLOC, RN_FAULT_READ, RN_FAULT_WRITE, RN_FAULT_COUNT } rn_fault;

// The nth (from 1) attempt of that kind from now on fails, once. 0 disarms.
void rn_fault_arm(rn_fault kind, uint64_t nth);
// Whether an armed fault has fired since it was armed.
bool rn_fault_fired(rn_fault kind);
// While one is armed, `watch` is called at each attempt of that kind, by whoever makes it. NULL:
// nobody is.
typedef void (*rn_fault_watcher)(rn_fault kind);
void rn_fault_watch(rn_fault_watcher watch);
// Called at each attempt: true means "fail now".
bool rn_fault_hit(rn_fault kind);

#endif
