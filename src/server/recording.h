// recording.h — the recording that a client of /profile asks for: one at a time, in a file whose
// name nobody is told. The process has one recorder, so one that somebody else began (--profile, a
// signal) stands in the way of ours and is left alone.
#ifndef RN_SERVER_RECORDING_H
#define RN_SERVER_RECORDING_H

#include <ration/profile.h>

// All zero: there is none. Calls are made by one thread at a time.
typedef struct rn_server_recording {
    char path[4096];   // of the last one; "": none
    char folder[4096]; // made by us, gone at the end; "": the user's, or none yet
    uint32_t number;   // rn_profile_recording while it was begun and not stopped; else 0
    uint32_t begun;    // so far
    int lock;          // open on `folder` while it is ours: tells the next server that it is in use
} rn_server_recording;

typedef struct rn_server_recording_options {
    const char *folder; // NULL: one of our own among the system's temporary files
    uint64_t limit_bytes;
    bool ring;        // at the limit the oldest events make room
    uint32_t threads; // of the CPU, for which rings are cut; 0: all
} rn_server_recording_options;

// What it holds at most beside the names of operations: rings of all threads.
#define RN_RECORDING_RINGS_BYTES ((uint64_t)2 << 20)

// Ours, and not stopped; it may have ended by itself, at its limit or on a full disk.
bool rn_server_recording_is_open(const rn_server_recording *recording);
// Nothing must be recorded. What was recorded before into a folder of ours is forgotten. RN_IO.
RN_MUST_USE rn_status rn_server_recording_start(rn_server_recording *recording,
                                                const rn_server_recording_options *options);
// It must be open. RN_IO: it is not complete, but what there is can be read.
RN_MUST_USE rn_status rn_server_recording_stop(rn_server_recording *recording);
// Stops one that is open; removes what lies in a folder of ours, and the folder.
void rn_server_recording_end(rn_server_recording *recording);

#endif
