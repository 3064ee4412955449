// file_state.h — what an open file was at first, and whether its content is still that.
//
// Only the open file counts: what stands under its name later is another matter. Its size and time
// of change say that something happened; whether its bytes were written or it was merely touched
// (`touch`, `rsync --times`), the system tells whoever asked before (inotify). Where it does not
// (no /proc, no inotify, a change made by another machine), a new time counts as new content.
#ifndef RN_BASE_FILE_STATE_H
#define RN_BASE_FILE_STATE_H

#include <ration/status.h>

#include <time.h>

typedef struct rn_file_state {
    uint64_t size_bytes;
    struct timespec modified;
    uint32_t watch;           // 1 + the row of the file's inode; 0: it is not watched
    uint64_t writes, touches; // that were seen of it before
} rn_file_state;

// Of a file that is open. `path` is for messages. RN_IO. To be ended, also after a failure.
RN_MUST_USE rn_status rn_file_state_take(int fd, const char *path, rn_file_state *out);
// RN_IO, with a hint: its content has changed since. Any thread.
RN_MUST_USE rn_status rn_file_state_check(const rn_file_state *state, int fd, const char *path);
void rn_file_state_end(rn_file_state *state);

#endif
