// plan_show.h — what the printers of plans share.
#ifndef RN_PLAN_PLAN_SHOW_H
#define RN_PLAN_PLAN_SHOW_H

#include "plan/plan.h"

// The value, the node or the largest weight that a buffer is for.
const char *rn_plan_buffer_name(const rn_plan *plan, const rn_plan_buffer *buffer);
// Whether it holds weights that are read again in every run.
bool rn_plan_is_streamed(const rn_plan *plan, const rn_plan_buffer *buffer);
// The first step at which the most bytes are alive.
uint32_t rn_plan_peak_step(const rn_plan *plan);
// "compute", "read", "upload", "evict", "offload", "prefetch", "wait"; "recompute" for a node that
// is run again.
const char *rn_plan_step_name(const rn_plan *plan, const rn_plan_step *step);

// A sink in front of another one, for text between tags and in attributes: &, <, >, " become
// entities; bytes that are not UTF-8 and control characters, which XML forbids, become '?'.
rn_sink rn_plan_escaped(rn_sink *to);

// Pictures of several plans, side by side, with one scale of addresses.
RN_MUST_USE rn_status rn_plans_svg(const rn_plan *const *plans, uint32_t count, rn_sink sink);
// A page up to the picture; its end, with the script that moves and zooms it.
RN_MUST_USE rn_status rn_plan_page_begin(const char *title, rn_sink sink);
RN_MUST_USE rn_status rn_plan_page_end(rn_sink sink);

#endif
