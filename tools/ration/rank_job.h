// rank_job.h — commands that several ranks run together.
#ifndef RATION_TOOL_RANK_JOB_H
#define RATION_TOOL_RANK_JOB_H

#include "command.h"

#include <stdio.h>

// Whether a launcher says that this process is one of several.
bool has_ranks(void);
// The ranks that the launcher started, with --comm-timeout; all of them run the same program and
// the same command, or it is refused by name.
rn_status open_ranks(const invocation *in, rn_comm **out);
// A goodbye, or what went wrong, for the others to know. Returns `status`. NULL-safe.
rn_status close_ranks(rn_comm *comm, rn_status status);

// The ranks of a command that has a model: the same options, too. *out is NULL for one process.
rn_status open_model_ranks(const invocation *in, rn_comm **out);
// A rank above 0 of a command whose rank 0 has the model's sequences, until that one has ended.
rn_status follow_model(const invocation *in, rn_comm *comm);
// A line a rank: blocks, bytes by purpose, budget.
void print_shares(FILE *file, const rn_rank_share *shares, uint32_t count);
// The same as an array.
void write_shares(rn_json *json, const char *key, const rn_rank_share *shares, uint32_t count);

rn_status calibrate_ranks(const invocation *in);

#endif
