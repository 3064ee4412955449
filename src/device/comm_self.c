// comm_self.c — one rank: there is nobody to tell anything.
#include "device/comm.h"

#include <stdio.h>

static rn_status open_self(rn_comm *comm, const rn_comm_options *options) {
    (void)options;
    snprintf(comm->described, sizeof comm->described, "1 rank");
    return RN_OK;
}

static void close_self(rn_comm *comm) {
    (void)comm;
}

static rn_status refuse(rn_comm *comm, rn_message *message) {
    (void)comm;
    return rn_fail(RN_INVALID, "there is no rank %u of 1", message->peer);
}

static void notify(rn_comm *comm, uint32_t to, const rn_notice *notice) {
    (void)comm;
    (void)to;
    (void)notice;
}

static bool look(rn_comm *comm, uint32_t from, rn_notice *out) {
    (void)comm;
    (void)from;
    (void)out;
    return false;
}

const rn_comm_table rn_comm_self = {"self", open_self, close_self, refuse,
                                    refuse, notify,    look,       NULL};
