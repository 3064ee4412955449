// ledger.h — what the other files of memory/ see of the ledger.
#ifndef RN_MEMORY_LEDGER_H
#define RN_MEMORY_LEDGER_H

#include <ration/memory.h>

// Calls `visit` for each holder with bytes, under the holders' lock, until it returns false. After
// the named ones comes, for each purpose, what is charged without a holder (name NULL).
typedef bool (*rn_holder_visit)(void *self, const char *name, rn_account account, uint64_t bytes);
void rn_ledger_visit_holders(rn_device_id device, rn_holder_visit visit, void *self);

// The device's bytes now; one load.
uint64_t rn_ledger_now(rn_device_id device);
// The same with what is reserved and not yet counted: what its limit has to cover.
uint64_t rn_ledger_claimed(rn_device_id device);
// The most that the device has held since rn_ledger_watch, which forgets what was before. Apart
// from rn_ledger_total's peak, which is the program's to reset.
uint64_t rn_ledger_watched_peak(rn_device_id device);
void rn_ledger_watch(void);
// Terminated; lives as long as the holder.
const char *rn_holder_name(const rn_holder *holder);
// Claims room only if the device stays within `limit`; then the charge must be completed by
// rn_ledger_count, which is when the total and its peak have it. False leaves everything as it was.
bool rn_ledger_try_reserve(rn_device_id device, uint64_t bytes, uint64_t limit);
// Takes a reservation back.
void rn_ledger_unreserve(rn_device_id device, uint64_t bytes);
// The same, because the system had no memory for it; listeners hear that.
void rn_ledger_give_up(rn_account account, uint64_t bytes);
// The rest of a charge whose room is claimed already.
void rn_ledger_count(rn_account account, const void *address, uint64_t bytes);
// Sets a line to a measured value (unaccounted). Listeners hear a release and a charge.
void rn_ledger_set(rn_device_id device, rn_purpose purpose, uint64_t bytes);
// Sends an event to the listener, if there is one.
void rn_ledger_emit(const rn_event *event);
// Whether there is one: a relaxed load, for those who would have to prepare an event.
bool rn_ledger_is_heard(void);

#endif
