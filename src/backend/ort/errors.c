// errors.c — what ONNX Runtime's errors mean: the codes of its statuses; then texts, which say more
// than the codes do, and a row for each code.
#include "backend/ort/ort.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

// ---- codes --------------------------------------------------------------------------------------

static const struct {
    const char *name;
    rn_status status;
} codes[] = {
    {"OK", RN_INTERNAL},
    {"FAIL", RN_DEVICE},
    {"INVALID_ARGUMENT", RN_DEVICE},
    {"NO_SUCHFILE", RN_NOT_FOUND},
    {"NO_MODEL", RN_DEVICE},
    {"ENGINE_ERROR", RN_DEVICE},
    {"RUNTIME_EXCEPTION", RN_DEVICE},
    {"INVALID_PROTOBUF", RN_CORRUPT},
    {"MODEL_LOADED", RN_INTERNAL},
    {"NOT_IMPLEMENTED", RN_UNSUPPORTED},
    {"INVALID_GRAPH", RN_UNSUPPORTED},
    {"EP_FAIL", RN_DEVICE},
    {"MODEL_LOAD_CANCELED", RN_CANCELLED},
    {"MODEL_REQUIRES_COMPILATION", RN_UNSUPPORTED},
    {"NOT_FOUND", RN_NOT_FOUND},
    {"DEVICE_RESET", RN_DEVICE},
};
enum { CODE_COUNT = sizeof codes / sizeof *codes };

static bool is_known(int code) {
    return code > 0 && code < CODE_COUNT;
}

// A failure of no particular code is told by its text alone.
static rn_status status_of(int code, const char *text) {
    rn_str message = rn_str_from(text);
    if (rn_message_holds(message, "bad_alloc|Failed to allocate memory")) return RN_NO_MEMORY;
    if (rn_message_holds(
            message,
            "is not a registered function/op|No Op registered for|Unsupported model IR version"))
        return RN_UNSUPPORTED;
    return is_known(code) ? codes[code].status : RN_DEVICE;
}

rn_status rn_ort_check_with(const rn_ort_api *api, rn_ort_status *status, const char *doing) {
    if (!status) return RN_OK;
    int code = api->error_code(status);
    char text[600];
    snprintf(text, sizeof text, "%s", api->error_message(status));
    rn_str_clean(text);
    api->release_status(status);
    if (rn_message_holds(rn_str_from(text), "terminate flag"))
        return rn_fail(RN_CANCELLED, "ONNX Runtime was told to end");
    return rn_fail(status_of(code, text), "ONNX Runtime, %s (%s): %s", doing,
                   is_known(code) ? codes[code].name : "an unknown code", text);
}

// ---- classes ------------------------------------------------------------------------------------

// Our own message, with this code in parentheses.
static bool has_code(rn_str message, const rn_error_row *row) {
    if (!rn_message_go_behind(&message, RN_STR("ONNX Runtime, "))) return false;
    rn_str name = rn_str_from(row->code_name);
    while (rn_message_go_behind(&message, RN_STR("(")))
        if (rn_str_starts(message, name) && message.bytes > name.bytes &&
            message.data[name.bytes] == ')')
            return true;
    return false;
}

#define CODE(code, name, meaning, hint)                                                            \
    { {"ort_" name, meaning, hint}, NULL, has_code, 0, code }
#define ORT "ONNX Runtime, *"

static const rn_error_row rows[] = {
    // ---- texts ----
    RN_ERROR_TEXT("ort_memory", ORT "bad_alloc|" ORT "Failed to allocate memory",
                  "the process's memory ran out inside of ONNX Runtime",
                  "fewer rows a run (seq=N of the target), a smaller model, or another device"),
    RN_ERROR_TEXT("ort_absent", "there is no ONNX Runtime: ",
                  "the library of ONNX Runtime is not there, or cannot be loaded",
                  "set RATION_ORT to libonnxruntime.so, name it with ort:FILE, or install the "
                  "Python package onnxruntime"),
    RN_ERROR_TEXT("ort_version",
                  "no ONNX Runtime: it has no OrtGetApiBase|ONNX Runtime * is not "
                  "known; |ONNX Runtime has no interface of version",
                  "the file is no ONNX Runtime, or one that is too old",
                  "ONNX Runtime 1.17 or later: libonnxruntime.so"),
    RN_ERROR_TEXT("ort_no_kernel", ORT "Could not find an implementation for",
                  "its CPU provider has no kernel for an op with these dtypes",
                  "another device; the message names the node"),
    RN_ERROR_TEXT("ort_unknown_op",
                  ORT "is not a registered function/op|" ORT "No Op registered for",
                  "this release of ONNX Runtime does not know an op of the model",
                  "a newer release of onnxruntime, or another device"),
    RN_ERROR_TEXT("ort_model_version",
                  ORT "Unsupported model IR version|" ORT "is till opset|" ORT
                      "under development and support",
                  "the model is newer than this release of ONNX Runtime",
                  "a newer release of onnxruntime, or the model written with a lower --opset"),
    RN_ERROR_TEXT("ort_index",
                  ORT "out of data bounds|" ORT "index out of bounds|" ORT "indices element out of",
                  "an index is outside of its tensor",
                  "check that token ids are below the vocabulary's size and positions below the "
                  "context's"),
    RN_ERROR_TEXT("ort_shape",
                  ORT "Got invalid dimensions for input|" ORT "not enough space: |" ORT
                      "Unexpected input data type",
                  "an input or output does not have the model's shape or dtype",
                  "this is a mistake in a program, not in a model: report it"),
    // ---- codes ----
    CODE("FAIL", "fail", "ONNX Runtime failed without a code of its own",
         "the message names the node"),
    CODE("INVALID_ARGUMENT", "invalid_argument", "a call was given what it does not take",
         "this is a mistake in a program, not in a model: report it"),
    CODE("NO_SUCHFILE", "no_such_file", "a file of the model is not there",
         "external data lies beside the model's file"),
    CODE("NO_MODEL", "no_model", "there is no model where one was expected",
         "give the file of an ONNX model"),
    CODE("ENGINE_ERROR", "engine_error", "an execution provider failed",
         "the message says what it was doing"),
    CODE("RUNTIME_EXCEPTION", "runtime_exception", "a node failed while it ran",
         "the message names the node; another device computes it by other kernels"),
    CODE("INVALID_PROTOBUF", "invalid_protobuf", "the bytes are no ONNX model, or it is damaged",
         "fetch or write the model anew"),
    CODE("MODEL_LOADED", "model_loaded", "a session has a model already",
         "this is a mistake in a program, not in a model: report it"),
    CODE("NOT_IMPLEMENTED", "not_implemented", "ONNX Runtime has no code for a part of the model",
         "a newer release of onnxruntime, or another device"),
    CODE("INVALID_GRAPH", "invalid_graph", "the model's graph breaks a rule of ONNX",
         "the message names the node; onnx.checker says more"),
    CODE("EP_FAIL", "ep_fail", "an execution provider failed",
         "ort uses the CPU's provider alone: a build with others may be at fault"),
    CODE("MODEL_LOAD_CANCELED", "load_cancelled", "making the session was told to end",
         "somebody cancelled it"),
    CODE("MODEL_REQUIRES_COMPILATION", "requires_compilation",
         "an execution provider wants the model compiled ahead of time", "another device"),
    CODE("NOT_FOUND", "not_found", "a name that ONNX Runtime does not know",
         "this is a mistake in a program, not in a model: report it"),
    CODE("DEVICE_RESET", "device_reset", "the device of an execution provider was reset",
         "start the process again"),
};

const rn_error_table rn_ort_errors = {rows, sizeof rows / sizeof *rows};
