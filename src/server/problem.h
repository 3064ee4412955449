// problem.h — why a request was not answered, as HTTP says it and as clients of OpenAI read it:
//
//     {"error": {"message": "...", "type": "invalid_request_error", "param": "top_p",
//                "code": "out_of_range"}}
//
// No path of the machine ever stands in one.
#ifndef RN_SERVER_PROBLEM_H
#define RN_SERVER_PROBLEM_H

#include <ration/text.h>

typedef struct rn_problem {
    uint16_t http;          // 4xx, 500, 501 or 503; 0: no problem
    const char *code;       // static: "invalid_value", "context_length_exceeded", "queue_full" ...
    char field[64];         // of the request, or ""
    char message[512];      // what is wrong, with the numbers, and what to do
    uint32_t retry_seconds; // Retry-After; 0: none
} rn_problem;

// Fills it and returns false, so that refusing is one line:
//     return rn_problem_set(out, 400, "invalid_value", "top_p", "top_p is %g, not 0 to 1", p);
// `field` may be "".
bool rn_problem_set(rn_problem *out, uint16_t http, const char *code, const char *field,
                    const char *format, ...) RN_PRINTF(5, 6);
// 429: the bytes for all requests together are taken. Returns false.
bool rn_problem_set_full(rn_problem *out);
// From a failure of ours: 400 for RN_INVALID, 503 for RN_OVER_BUDGET and RN_NO_MEMORY, else 500.
// Paths are left out.
void rn_problem_from_error(rn_problem *out, const rn_error_info *error);
// "invalid_request_error", "authentication_error", "rate_limit_error", ...: by the HTTP status.
const char *rn_problem_type(uint16_t http);
RN_MUST_USE rn_status rn_problem_write(const rn_problem *problem, rn_sink sink);

#endif
