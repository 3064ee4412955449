// stage.h — failures that are not the end: the ladder tells them, and goes on.
#ifndef RN_MEMORY_STAGE_H
#define RN_MEMORY_STAGE_H

#include <ration/log.h>
#include <ration/memory.h>

// rn_stage on a target, which the line names.
void rn_stage_on(const char *target, const char *name);

// rn_stage_failed at a level of the caller's choice (a target that is missing is no error while
// there is another), on a target (NULL: none in particular).
void rn_stage_failed_on(const char *target, rn_log_level level, const char *name,
                        const rn_error_info *error);

#endif
