// rank_job.h — commands that several ranks run together.
#ifndef RATION_TOOL_RANK_JOB_H
#define RATION_TOOL_RANK_JOB_H

#include "command.h"

// Whether a launcher says that this process is one of several.
bool has_ranks(void);
// The ranks that the launcher started, with --comm-timeout; all of them run the same program and
// the same command, or it is refused by name.
rn_status open_ranks(const invocation *in, rn_comm **out);
// A goodbye, or what went wrong, for the others to know. Returns `status`. NULL-safe.
rn_status close_ranks(rn_comm *comm, rn_status status);

rn_status calibrate_ranks(const invocation *in);

#endif
