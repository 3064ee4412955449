// process.h — reading the system's files from a folder that tests can replace.
#ifndef RN_MEMORY_PROCESS_H
#define RN_MEMORY_PROCESS_H

#include <ration/memory.h>

// As rn_process_read, with `root` ("" in life) before every path.
RN_MUST_USE rn_status rn_process_read_under(const char *root, rn_process_info *out);

#endif
