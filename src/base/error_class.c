// error_class.c — one table, read from the top: first what texts of other people's runtimes give
// away, the particular before the general; then their numbers; then our own statuses.
#include <ration/error_class.h>

#include "base/str.h"

#include <stdio.h>

typedef struct class_row {
    rn_error_class class;
    // What a message holds: alternatives separated by '|', in which '*' is any run of bytes.
    const char *texts;
    int nrt_code;         // of Neuron's runtime, and its name without "NRT_"; 0: none
    const char *nrt_name; // ... or NULL
    rn_status status;     // RN_OK: none
} class_row;

#define TEXT(name, texts, meaning, hint)                                                           \
    { {name, meaning, hint}, texts, 0, NULL, RN_OK }
#define NRT(code, nrt_name, name, meaning, hint)                                                   \
    { {name, meaning, hint}, NULL, code, nrt_name, RN_OK }
#define STATUS(status, name, meaning, hint)                                                        \
    { {name, meaning, hint}, NULL, 0, NULL, status }

static const class_row rows[] = {
    TEXT("injected_fault", "sim: this * is to fail",
         "a fault that was asked for: the sim device was told to fail here",
         "leave fail_alloc, fail_launch and fail_copy out of --device sim"),

    // ---- Neuron and XLA: texts ----
    TEXT("device_memory_full", "log_dev_mem*Failed to allocate|Failed to allocate*(usage:*ND *:NC ",
         "one core's memory is full; other cores do not help",
         "narrower weights (bf16 halves f32), a shorter context or more cores; the runtime's table "
         "by category lies in /tmp/neuron_mem_table_device_*"),
    TEXT("compile_over_memory", "XCG815|Estimated peak HBM usage*exceeds|NCC_EOOM001|NCC_EOOM002",
         "the compiler found that the program would not fit the device's memory",
         "a smaller batch or context, narrower weights, or the model divided over more cores"),
    TEXT(
        "compiler_killed",
        "neuronx-cc failed with -9|neuronx-cc*Killed|neuronx-cc was forcibly killed",
        "the host's memory ran out while compiling; the device's was not the cause",
        "compile where there is more memory, or with fewer compiler jobs; keep the compiled model"),
    TEXT("graph_too_large", "Too many instructions after unroll|NCC_EBVF030",
         "the program has more instructions than the device takes",
         "a shorter sequence, a smaller batch, or the model cut into several programs"),
    TEXT("mixed_devices",
         "Check failed: xtensor|Input tensor is not an XLA tensor|Expected all tensors to be on "
         "the same device",
         "a tensor of the host was given where one of the device is expected",
         "bring all inputs and all weights to the same device"),
    TEXT("core_not_available", "NeuronCore(s) not available",
         "the core is held by another process, or by an earlier one that has not ended",
         "neuron-ls lists who holds it; end that process, or set NEURON_RT_VISIBLE_CORES"),
    TEXT("neff_version_mismatch", "NEFF version mismatch",
         "the program was compiled for a newer runtime than this one",
         "bring compiler and runtime to the same release, then compile again"),

    // ---- Neuron's numbers (nrt_status.h) ----
    NRT(1, "FAILURE", "nrt_failure", "Neuron's runtime failed without saying why",
        "NEURON_RT_LOG_LEVEL=INFO makes it say more"),
    NRT(2, "INVALID", "nrt_invalid",
        "the program is damaged, or an input's name or size is not the compiled one",
        "compile again; give inputs in the shapes that were compiled"),
    NRT(3, "INVALID_HANDLE", "nrt_invalid_handle", "a handle that the runtime does not know",
        "this is a mistake in a program, not in a model: report it"),
    NRT(4, "RESOURCE", "nrt_resource", "the device had no room for what was asked",
        "narrower weights, a shorter context or more cores; a tensor of 4 GiB is too large in any "
        "case"),
    NRT(5, "TIMEOUT", "nrt_timeout", "the device did not answer in time",
        "look for a stuck process on the core; raise NEURON_RT_EXEC_TIMEOUT"),
    NRT(6, "HW_ERROR", "nrt_hw_error", "the hardware failed",
        "restart the instance, or replace it if that does not help"),
    NRT(7, "QUEUE_FULL", "nrt_queue_full", "more work was submitted than the device's queue holds",
        "fewer requests at once"),
    NRT(9, "LOAD_NOT_ENOUGH_NC", "nrt_load_not_enough_nc",
        "the program wants more cores than there are",
        "a larger instance, or the program compiled for fewer cores"),
    NRT(10, "UNSUPPORTED_NEFF_VERSION", "nrt_unsupported_neff_version",
        "the runtime is too old for this program",
        "bring compiler and runtime to the same release, then compile again"),
    NRT(11, "FAIL_HOST_MEM_ALLOC", "nrt_fail_host_mem_alloc",
        "the host's memory ran out; the device's was not the cause",
        "give the container more memory, or let fewer processes load at once"),
    NRT(13, "UNINITIALIZED", "nrt_uninitialized", "the runtime was used before it was started",
        "this is a mistake in a program, not in a model: report it"),
    NRT(14, "CLOSED", "nrt_closed", "the runtime was used after it was closed",
        "restart the process"),
    NRT(15, "QUEUE_EMPTY", "nrt_queue_empty", "there was nothing to take from the device's queue",
        "this is a mistake in a program, not in a model: report it"),
    NRT(101, "EXEC_UNIT_UNRECOVERABLE", "nrt_exec_unit_unrecoverable", "the core cannot go on",
        "restart the process; replace the instance if it comes again"),
    NRT(1002, "EXEC_BAD_INPUT", "nrt_exec_bad_input",
        "an input is not what the program was compiled for",
        "give inputs in the compiled shapes and dtypes"),
    NRT(1003, "EXEC_COMPLETED_WITH_NUM_ERR", "nrt_exec_completed_with_num_err",
        "the result holds values that are no numbers (NaN)",
        "bf16 instead of f16, or check the weights; the error stays until the process is "
        "restarted"),
    NRT(1004, "EXEC_COMPLETED_WITH_ERR", "nrt_exec_completed_with_err",
        "the program ran, with an error of no particular kind",
        "NEURON_RT_LOG_LEVEL=INFO makes the runtime say more"),
    NRT(1005, "EXEC_NC_BUSY", "nrt_exec_nc_busy", "the core is busy with somebody else's program",
        "one process a core: see neuron-ls"),
    NRT(1006, "EXEC_OOB", "nrt_exec_oob", "an index is outside of its tensor",
        "check that token ids are below the vocabulary's size and positions below the context's"),
    NRT(1100, "COLL_PENDING", "nrt_coll_pending", "an operation between cores is still under way",
        "wait for it to end before the next"),
    NRT(1200, "EXEC_HW_ERR_COLLECTIVES", "nrt_exec_hw_err_collectives",
        "an operation between cores hung; one of the workers may have failed",
        "look at the other workers' logs, then restart all of them"),
    NRT(1201, "EXEC_HW_ERR_HBM_UE", "nrt_exec_hw_err_hbm_ue",
        "the device's memory is damaged and could not be repaired", "replace the instance"),
    NRT(1202, "EXEC_HW_ERR_NC_UE", "nrt_exec_hw_err_nc_ue",
        "the core's own memory is damaged and could not be repaired", "replace the instance"),
    NRT(1203, "EXEC_HW_ERR_DMA_ABORT", "nrt_exec_hw_err_dma_abort",
        "a copy on the device broke off",
        "restart the process; replace the instance if it comes "
        "again"),
    NRT(1204, "EXEC_SW_NQ_OVERFLOW", "nrt_exec_sw_nq_overflow",
        "more messages came from the device than its queue holds",
        "fewer operations between cores in one program; a newer runtime"),
    NRT(1205, "EXEC_HW_ERR_REPAIRABLE_HBM_UE", "nrt_exec_hw_err_repairable_hbm_ue",
        "the device's memory is damaged, but can be repaired", "restart the instance"),
    NRT(1206, "NETWORK_PROXY_FAILURE", "nrt_network_proxy_failure",
        "the network between instances failed", "check the EFA driver and the security group"),

    // ---- XLA in general ----
    TEXT("xla_failed",
         "Bad StatusOr access: INTERNAL|Bad StatusOr access: INVALID_ARGUMENT|Bad StatusOr access: "
         "UNIMPLEMENTED|Bad StatusOr access: FAILED_PRECONDITION|Bad StatusOr access: "
         "NOT_FOUND|Bad StatusOr access: UNAVAILABLE",
         "XLA failed, and not for want of memory", "the message names the operation"),
    TEXT("resource_exhausted", "RESOURCE_EXHAUSTED|Bad StatusOr access|AllocBuffer",
         "XLA could not place a buffer or a program in the device's memory",
         "a shorter context, a smaller batch, narrower weights, or another device"),

    // ---- CUDA ----
    TEXT("cuda_out_of_memory",
         "CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|cudaErrorMemoryAllocation|"
         "CUBLAS_STATUS_ALLOC_FAILED",
         "the GPU's memory is full", "other processes may hold it, too: see nvidia-smi"),
    TEXT("cuda_driver_insufficient",
         "CUDA driver version is insufficient|cudaErrorInsufficientDriver|"
         "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|"
         "the CUDA driver * has no cu",
         "NVIDIA's driver is too old, or not the one that the kernel has loaded",
         "install a newer driver and restart the machine"),
    TEXT("cuda_no_device",
         "CUDA_ERROR_NO_DEVICE|no CUDA-capable device|CUDA_ERROR_INVALID_DEVICE|there is no cuda:",
         "there is no such GPU", "nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide some"),
    TEXT("cuda_no_driver", "no CUDA driver|Found no NVIDIA driver|CUDA_ERROR_STUB_LIBRARY",
         "NVIDIA's driver is not installed, or not visible in this container",
         "install it, or start the container with --gpus"),
    TEXT("cuda_failed", "CUDA_ERROR_|CUDA error:", "the GPU or its driver failed",
         "see the system's log (dmesg) for NVRM messages"),

    // ---- libraries ----
    TEXT("library_missing", "cannot open shared object file",
         "a plugin, or a library that it needs, is not there",
         "give its full path; ldd shows which libraries it lacks"),
    TEXT("library_unusable",
         "invalid ELF header|wrong ELF class|file too short|undefined symbol|version `*' not found",
         "a plugin is damaged, or was built for another machine or release",
         "install it anew, in the release that belongs to this system"),

    // ---- the system ----
    TEXT("too_few_threads", "cannot start a thread for ",
         "the system lets this process start no more threads",
         "raise the limit (ulimit -u, the container's pids limit), or ask for fewer with "
         "--threads"),

    // ---- our own statuses ----
    STATUS(RN_OVER_BUDGET, "over_budget", "it would not fit the byte budget",
           "raise --budget, or ask for less: a shorter context, fewer requests at once"),
    STATUS(RN_NO_MEMORY, "host_memory_full", "the host has no memory to give",
           "give the machine or container more memory, or set --budget below what is free"),
    STATUS(RN_NOT_FOUND, "not_found", "a file, or something in one, is not there",
           "check the path and the model's name"),
    STATUS(RN_CORRUPT, "damaged_file", "a file breaks the rules of its format",
           "download it again and compare its checksum"),
    STATUS(RN_IO, "io_failed", "the system failed to read or write",
           "check the disk and the system's log"),
    STATUS(RN_UNSUPPORTED, "unsupported", "this build or this machine cannot do it",
           "choose another device or model"),
    STATUS(RN_DEVICE, "device_failed", "the device or its driver failed",
           "check the device; --device cpu does without it"),
    STATUS(RN_CANCELLED, "cancelled", "it was asked to stop", "start it again"),
    STATUS(RN_INVALID, "invalid", "an argument or option makes no sense",
           "correct the option that the message names"),
    STATUS(RN_INTERNAL, "internal", "a mistake in ration itself",
           "report it, with the message and the command"),
    {{"unknown", "nobody has seen this before", "the message is all there is"},
     NULL,
     0,
     NULL,
     RN_OK},
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

// ---- texts --------------------------------------------------------------------------------------

static const char *find(rn_str text, rn_str piece) {
    return piece.bytes == 0 ? text.data : memmem(text.data, text.bytes, piece.data, piece.bytes);
}

// What stands before the first `mark`; *rest is what stands behind it, empty at the end.
static rn_str cut(rn_str *rest, char mark) {
    const char *end = rest->bytes ? memchr(rest->data, mark, rest->bytes) : NULL;
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes;
    size_t used = end ? bytes + 1 : bytes;
    rn_str first = {rest->data, bytes};
    *rest = (rn_str){rest->data + used, rest->bytes - used};
    return first;
}

// Whether the pieces between the stars stand in the text in this order.
static bool holds(rn_str text, rn_str pattern) {
    while (pattern.bytes) {
        rn_str piece = cut(&pattern, '*');
        const char *at = find(text, piece);
        if (!at) return false;
        size_t used = (size_t)(at - text.data) + piece.bytes;
        text = (rn_str){text.data + used, text.bytes - used};
    }
    return true;
}

static bool holds_any(rn_str text, const char *texts) {
    rn_str rest = rn_str_from(texts);
    while (rest.bytes)
        if (holds(text, cut(&rest, '|'))) return true;
    return false;
}

// Takes a number off the front; false where there is none.
static bool take_number(rn_str *text, uint32_t *out) {
    size_t n = 0;
    *out = 0;
    while (n < text->bytes && n < 9 && text->data[n] >= '0' && text->data[n] <= '9')
        *out = *out * 10 + (uint32_t)(text->data[n++] - '0');
    *text = (rn_str){text->data + n, text->bytes - n};
    return n > 0;
}

// ---- Neuron's numbers ---------------------------------------------------------------------------

// Goes on behind the next `piece`; false where there is none.
static bool go_behind(rn_str *text, rn_str piece) {
    const char *at = find(*text, piece);
    if (!at) return false;
    size_t used = (size_t)(at - text->data) + piece.bytes;
    *text = (rn_str){text->data + used, text->bytes - used};
    return true;
}

// "status=4", "status code 1004", "status_code=1202": the runtime's callers all write it their way.
static bool has_code(rn_str text, uint32_t code) {
    while (go_behind(&text, RN_STR("status"))) {
        uint32_t number;
        rn_str rest = text;
        while (rest.bytes && strchr("=_: code", *rest.data))
            rest = (rn_str){rest.data + 1, rest.bytes - 1};
        if (take_number(&rest, &number) && number == code) return true;
    }
    return false;
}

static bool is_word_byte(char c) {
    return c == '_' || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// "NRT_INVALID", but not as a part of "NRT_INVALID_HANDLE".
static bool has_name(rn_str text, const char *name) {
    while (go_behind(&text, RN_STR("NRT_"))) {
        rn_str rest = text, wanted = rn_str_from(name);
        if (rn_str_starts(rest, wanted) &&
            (rest.bytes == wanted.bytes || !is_word_byte(rest.data[wanted.bytes])))
            return true;
    }
    return false;
}

static bool speaks_of_nrt(rn_str text) {
    return holds_any(text, "nrt|NRT|Failed to execute the model status=");
}

// ---- the table ----------------------------------------------------------------------------------

static bool fits(const class_row *row, const rn_story *story, rn_str text) {
    if (row->texts) return holds_any(text, row->texts);
    if (row->nrt_name)
        return has_name(text, row->nrt_name) ||
               (speaks_of_nrt(text) && has_code(text, (uint32_t)row->nrt_code));
    return row->status == RN_OK || row->status == story->status;
}

const rn_error_class *rn_error_classify(const rn_story *story) {
    rn_str text = {story->message, strnlen(story->message, sizeof story->message)};
    size_t i = 0;
    while (i < ROW_COUNT - 1 && !fits(&rows[i], story, text))
        i++;
    return &rows[i].class;
}

const rn_error_class *rn_error_class_at(size_t index) {
    return index < ROW_COUNT ? &rows[index].class : NULL;
}

const char *rn_error_hint(const rn_story *story) {
    return story->hint[0] ? story->hint : rn_error_classify(story)->hint;
}

// ---- an allocation that failed ------------------------------------------------------------------

// "64.000MB": the runtime means powers of 1024, which rn_size_parse writes without the B.
static bool read_size(rn_str text, uint64_t *out) {
    rn_story before = *rn_last_story();
    if (text.bytes && text.data[text.bytes - 1] == 'B') text.bytes--;
    bool ok = rn_size_parse(text, 0, out) == RN_OK;
    (void)rn_story_restore(&before);
    return ok;
}

bool rn_device_full_read(rn_str text, rn_device_full *out) {
    *out = (rn_device_full){0};
    if (!go_behind(&text, RN_STR("Failed to allocate "))) return false;
    if (!read_size(cut(&text, ' '), &out->bytes)) return false;
    if (!go_behind(&text, RN_STR("(usage: "))) return false;
    rn_str usage = cut(&text, ')');
    snprintf(out->usage, sizeof out->usage, "%.*s", RN_STR_ARG(usage));
    return go_behind(&text, RN_STR("ND ")) && take_number(&text, &out->device) &&
           go_behind(&text, RN_STR("NC ")) && take_number(&text, &out->core);
}

// ---- for machines -------------------------------------------------------------------------------

void rn_error_json(const rn_story *story, rn_json *json) {
    const rn_error_class *class = rn_error_classify(story);
    rn_device_full full;
    rn_json_string(json, "class", class->name);
    rn_json_string(json, "meaning", class->meaning);
    rn_json_string(json, "message", story->message);
    rn_json_string(json, "hint", rn_error_hint(story));
    if (!rn_device_full_read(rn_str_from(story->message), &full)) return;
    rn_json_object(json, "device_full");
    rn_json_u64(json, "bytes", full.bytes);
    rn_json_string(json, "usage", full.usage);
    rn_json_u64(json, "device", full.device);
    rn_json_u64(json, "core", full.core);
    rn_json_end(json);
}
