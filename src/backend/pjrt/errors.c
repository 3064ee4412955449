// errors.c — what XLA's and Neuron's runtimes mean: PJRT's codes; then texts, Neuron's numbers, XLA
// in general.
#include "backend/pjrt/pjrt.h"

// ---- PJRT's codes -------------------------------------------------------------------------------

static const struct {
    const char *name;
    rn_status status;
} codes[] = {
    {"OK", RN_INTERNAL},
    {"CANCELLED", RN_CANCELLED},
    {"UNKNOWN", RN_DEVICE},
    {"INVALID_ARGUMENT", RN_DEVICE},
    {"DEADLINE_EXCEEDED", RN_DEVICE},
    {"NOT_FOUND", RN_UNSUPPORTED}, // a custom call
    {"ALREADY_EXISTS", RN_DEVICE},
    {"PERMISSION_DENIED", RN_DEVICE},
    {"RESOURCE_EXHAUSTED", RN_NO_MEMORY},
    {"FAILED_PRECONDITION", RN_DEVICE},
    {"ABORTED", RN_DEVICE},
    {"OUT_OF_RANGE", RN_DEVICE},
    {"UNIMPLEMENTED", RN_UNSUPPORTED},
    {"INTERNAL", RN_DEVICE},
    {"UNAVAILABLE", RN_DEVICE},
    {"DATA_LOSS", RN_CORRUPT},
    {"UNAUTHENTICATED", RN_DEVICE},
};
enum { CODE_COUNT = sizeof codes / sizeof *codes };

rn_status rn_pjrt_status(int code) {
    return code > 0 && code < CODE_COUNT ? codes[code].status : RN_DEVICE;
}

const char *rn_pjrt_code_name(int code) {
    return code > 0 && code < CODE_COUNT ? codes[code].name : "an unknown code";
}

// ---- Neuron's numbers ---------------------------------------------------------------------------

// "status=4", "status code 1004", "status_code=1202": the runtime's callers all write it their way.
static bool has_code(rn_str text, uint32_t code) {
    while (rn_message_go_behind(&text, RN_STR("status"))) {
        uint32_t number;
        rn_str rest = text;
        while (rest.bytes && strchr("=_: code", *rest.data))
            rest = (rn_str){rest.data + 1, rest.bytes - 1};
        if (rn_message_take_number(&rest, &number) && number == code) return true;
    }
    return false;
}

static bool is_word_byte(char c) {
    return c == '_' || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// "NRT_INVALID", but not as a part of "NRT_INVALID_HANDLE".
static bool has_name(rn_str text, const char *name) {
    while (rn_message_go_behind(&text, RN_STR("NRT_"))) {
        rn_str rest = text, wanted = rn_str_from(name);
        if (rn_str_starts(rest, wanted) &&
            (rest.bytes == wanted.bytes || !is_word_byte(rest.data[wanted.bytes])))
            return true;
    }
    return false;
}

static bool speaks_of_nrt(rn_str text) {
    return rn_message_holds(text, "nrt|NRT|Failed to execute the model status=");
}

static bool fits_nrt(rn_str message, const rn_error_row *row) {
    return has_name(message, row->code_name) ||
           (speaks_of_nrt(message) && has_code(message, (uint32_t)row->code));
}

// ---- the table ----------------------------------------------------------------------------------

// The name is without "NRT_".
#define NRT(code, nrt_name, name, meaning, hint)                                                   \
    { {name, meaning, hint}, NULL, fits_nrt, code, nrt_name }

static const rn_error_row rows[] = {
    // ---- ours, of a plugin that was tried ----
    RN_ERROR_TEXT("plugin_failed", "the plugin hangs: |the plugin ends its process ",
                  "a PJRT plugin aborts, exits or hangs instead of working",
                  "install it anew, in the release that belongs to its driver; it was tried in a "
                  "process of its own, so nothing else was harmed"),
    // ---- Neuron and XLA: texts ----
    RN_ERROR_TEXT(
        "device_memory_full",
        "log_dev_mem*Failed to allocate|Failed to allocate*(usage:*ND *:NC |Failed to alloc DEVICE "
        "memory|tensor_allocate Failed to allocate*on DEVICE|neuron:mc_alloc: device mempool",
        "one core's memory is full; other cores do not help",
        "narrower weights (bf16 halves f32), a shorter context or more cores; the runtime's table "
        "by category lies in /tmp/neuron_mem_table_device_*"),
    RN_ERROR_TEXT(
        "compile_over_memory", "XCG815|Estimated peak HBM usage*exceeds|NCC_EOOM001|NCC_EOOM002",
        "the compiler found that the program would not fit the device's memory",
        "a smaller batch or context, narrower weights, or the model divided over more cores"),
    RN_ERROR_TEXT(
        "compiler_killed",
        "neuronx-cc failed with -9|neuronx-cc*Killed|neuronx-cc was forcibly killed",
        "the host's memory ran out while compiling; the device's was not the cause",
        "compile where there is more memory, or with fewer compiler jobs; keep the compiled model"),
    RN_ERROR_TEXT("compiler_missing", "FileNotFoundError*neuronx-cc|neuronx-cc: not found",
                  "Neuron's compiler is not installed, or not on PATH",
                  "install the Python package neuronx-cc and put its folder on PATH"),
    RN_ERROR_TEXT("op_not_compiled", "NCC_EVRF",
                  "Neuron's compiler has no code for an operation of the program",
                  "another device, or a newer release of neuronx-cc; the message names it"),
    RN_ERROR_TEXT("exec_timeout", "execution timeout (",
                  "the device did not finish a program in time",
                  "look for a stuck process on the core; raise NEURON_RT_EXEC_TIMEOUT"),
    RN_ERROR_TEXT("neuron_no_driver", "Unable to determine Neuron Driver version",
                  "the kernel has no driver of Neuron, or it is not loaded",
                  "install aws-neuronx-dkms and load the module neuron; check /dev/neuron0"),
    RN_ERROR_TEXT("graph_too_large", "Too many instructions after unroll|NCC_EBVF030",
                  "the program has more instructions than the device takes",
                  "a shorter sequence, a smaller batch, or the model cut into several programs"),
    RN_ERROR_TEXT(
        "mixed_devices",
        "Check failed: xtensor|Input tensor is not an XLA tensor|Expected all tensors to be on "
        "the same device",
        "a tensor of the host was given where one of the device is expected",
        "bring all inputs and all weights to the same device"),
    RN_ERROR_TEXT("core_not_available", "NeuronCore(s) not available",
                  "the core is held by another process, or by an earlier one that has not ended",
                  "neuron-ls lists who holds it; end that process, or set NEURON_RT_VISIBLE_CORES"),
    RN_ERROR_TEXT("neff_version_mismatch", "NEFF version mismatch",
                  "the program was compiled for a newer runtime than this one",
                  "bring compiler and runtime to the same release, then compile again"),

    RN_ERROR_TEXT("compile_failed", "RunNeuronCCImpl|NCC_|neuronx-cc*exit status 70",
                  "Neuron's compiler failed",
                  "its log is log-neuron-cc.txt; opt=1, a shorter "
                  "sequence or another device avoid some of it"),

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
    RN_ERROR_TEXT(
        "xla_failed",
        "Bad StatusOr access: INTERNAL|Bad StatusOr access: INVALID_ARGUMENT|Bad StatusOr access: "
        "UNIMPLEMENTED|Bad StatusOr access: FAILED_PRECONDITION|Bad StatusOr access: "
        "NOT_FOUND|Bad StatusOr access: UNAVAILABLE",
        "XLA failed, and not for want of memory", "the message names the operation"),
    RN_ERROR_TEXT("resource_exhausted", "RESOURCE_EXHAUSTED|Bad StatusOr access|AllocBuffer",
                  "XLA could not place a buffer or a program in the device's memory",
                  "a shorter context, a smaller batch, narrower weights, or another device"),
};

const rn_error_table rn_pjrt_errors = {rows, sizeof rows / sizeof *rows};
