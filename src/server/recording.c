// recording.c — see recording.h. A folder of our own is private and has a random name, so no other
// user of the machine can be waiting for it; what a killed server left in one goes when the next
// makes its own. A file that is still being sent when the next recording begins has lost its name,
// not its bytes.
#include "server/recording.h"

#include "base/file.h"
#include "base/temporary.h"
#include "base/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool rn_server_recording_is_open(const rn_server_recording *recording) {
    uint32_t now = rn_profile_recording();
    return recording->number && (!now || now == recording->number);
}

// ---- names --------------------------------------------------------------------------------------

static rn_status make_folder(rn_server_recording *recording) {
    const char *above = getenv("TMPDIR");
    if (recording->folder[0]) return RN_OK;
    rn_status s =
        rn_temporary_folder(above && *above ? above : "/tmp", "ration-profile-", ".rntrace",
                            recording->folder, sizeof recording->folder, &recording->lock);
    if (s == RN_OK) return RN_OK;
    recording->folder[0] = '\0';
    return rn_hint(s, "name one that can be written to (--profile-folder)");
}

// "serve-20260131-120304-2.rntrace": in a folder of the user's none overwrites another.
static rn_status name_file(rn_server_recording *recording, const char *folder) {
    char day[32], name[80];
    struct tm parts;
    time_t now = time(NULL);
    localtime_r(&now, &parts);
    (void)strftime(day, sizeof day, "%Y%m%d-%H%M%S", &parts);
    snprintf(name, sizeof name, "serve-%s-%u.rntrace", day, recording->begun + 1);
    return rn_path_join(folder, name, recording->path, sizeof recording->path);
}

static void forget_file(rn_server_recording *recording) {
    if (recording->folder[0] && recording->path[0]) (void)unlink(recording->path);
    recording->path[0] = '\0';
}

// ---- beginning and ending -----------------------------------------------------------------------

// A power of two for each thread that may record: the CPU's, and those of server and profiler.
static uint64_t ring_bytes(uint32_t threads) {
    enum { SERVER_THREADS = 8, LEAST = 4 << 10, MOST = 256 << 10 };
    uint64_t bytes = MOST;
    uint64_t count = (threads ? threads : rn_cpu_count()) + SERVER_THREADS;
    while (bytes > LEAST && bytes * count > RN_RECORDING_RINGS_BYTES)
        bytes /= 2;
    return bytes;
}

static rn_status start(rn_server_recording *recording, const rn_server_recording_options *options) {
    if (!options->folder) RN_TRY(make_folder(recording));
    RN_TRY(name_file(recording, options->folder ? options->folder : recording->folder));
    RN_TRY(rn_profile_start(&(rn_profile_options){
        .path = recording->path,
        .command = "serve",
        .limit_bytes = options->limit_bytes,
        .keep_newest = options->ring,
        .ring_bytes = ring_bytes(options->threads),
    }));
    recording->number = rn_profile_recording();
    recording->begun++;
    return RN_OK;
}

rn_status rn_server_recording_start(rn_server_recording *recording,
                                    const rn_server_recording_options *options) {
    forget_file(recording);
    recording->number = 0;
    rn_status s = start(recording, options);
    if (s != RN_OK) forget_file(recording);
    return s;
}

rn_status rn_server_recording_stop(rn_server_recording *recording) {
    recording->number = 0;
    return rn_profile_stop();
}

void rn_server_recording_end(rn_server_recording *recording) {
    if (rn_server_recording_is_open(recording)) (void)!rn_server_recording_stop(recording);
    forget_file(recording);
    if (recording->folder[0]) {
        (void)rmdir(recording->folder);
        close(recording->lock);
    }
    *recording = (rn_server_recording){0};
}
