// rank_job.c — the beginning and the end of what several ranks do together.
#include "rank_job.h"

#include <stdio.h>

bool has_ranks(void) {
    return rn_comm_find_launch().ranks > 1;
}

static rn_status compare(const invocation *in, rn_comm *comm) {
    const rn_comm_item items[] = {{"the program's version", rn_version()},
                                  {"the command", in->command->name}};
    return rn_comm_compare(comm, items, sizeof items / sizeof *items);
}

rn_status open_ranks(const invocation *in, rn_comm **out) {
    rn_comm_options options = {0};
    RN_TRY(parse_time("comm-timeout", rn_settings_text(in->settings, "comm-timeout"),
                      &options.timeout_seconds));
    RN_TRY(rn_comm_open(&options, out));
    rn_status s = compare(in, *out);
    if (s != RN_OK) {
        s = close_ranks(*out, s);
        *out = NULL;
    }
    return s;
}

rn_status close_ranks(rn_comm *comm, rn_status status) {
    rn_error_info error = *rn_last_error();
    if (status == RN_OK) {
        rn_comm_close(comm);
        return RN_OK;
    }
    rn_comm_abort(comm, error.message);
    return rn_error_restore(&error);
}
