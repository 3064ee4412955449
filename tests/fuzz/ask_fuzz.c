// ask_fuzz.c — any bytes as the body of each kind of request: refused with a status, a code and a
// message, or taken with everything within its limits; never more memory than promised, and the
// ledger ends where it began.
#include <ration/memory.h>

#include "base/str.h"
#include "server/request.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const rn_request_limits limits = {.vocab_size = 1000, .choices = 8, .model = RN_STR("tiny")};

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_prompts(const rn_request *request) {
    require(request->prompt_count >= 1 && request->prompt_count * request->n <= limits.choices);
    for (size_t i = 0; i < request->prompt_count; i++) {
        const rn_request_prompt *prompt = &request->prompts[i];
        require(rn_utf8_valid(prompt->text));
        for (size_t k = 0; k < prompt->id_count; k++)
            require(prompt->ids[k] < limits.vocab_size);
    }
    for (size_t i = 0; i < request->message_count; i++)
        require(rn_utf8_valid(request->messages[i].content) &&
                request->messages[i].role.bytes >= 4);
}

static void check_ask(const rn_request *request) {
    require(request->n >= 1);
    require(rn_sampling_check(&request->sampling, limits.vocab_size) == RN_OK);
    require(request->stop_count <= RN_REQUEST_STOPS &&
            request->sampling.bias_count <= RN_REQUEST_BIASES);
    for (size_t i = 0; i < request->stop_count; i++)
        require(rn_utf8_valid(request->stops[i]) && request->stops[i].bytes >= 1);
    require((request->kind == RN_REQUEST_CHAT) == (request->message_count > 0));
    check_prompts(request);
}

static void check_kind(rn_request_kind kind, rn_str body) {
    rn_request request;
    rn_problem problem;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_ledger_reset_peaks();
    bool taken = rn_request_read(kind, body, &limits, &request, &problem);
    uint64_t peak = rn_ledger_total(RN_DEVICE_HOST).peak_bytes - before;
    require(peak <= 2 * (uint64_t)body.bytes + RN_REQUEST_FIXED_BYTES);
    if (taken)
        check_ask(&request);
    else
        require((problem.http == 400 || problem.http == 404) && problem.code && problem.message[0]);
    if (taken) rn_request_free(&request);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (rn_request_kind kind = RN_REQUEST_GENERATE; kind <= RN_REQUEST_CHAT; kind++)
        check_kind(kind, (rn_str){(const char *)data, size});
    return 0;
}
