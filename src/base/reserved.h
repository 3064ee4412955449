// reserved.h — the room that public option structs keep for later fields, so that adding one does
// not change their size.
//
// A caller leaves it zero. What is not zero was written by a program that knows a later version of
// the struct, or that did not zero it: neither is to be ignored.
#ifndef RN_BASE_RESERVED_H
#define RN_BASE_RESERVED_H

#include <ration/status.h>

// `type`: the struct's name, for the message. RN_INVALID where one is not zero.
RN_MUST_USE rn_status rn_check_reserved(const uint64_t reserved[4], const char *type);

#endif
