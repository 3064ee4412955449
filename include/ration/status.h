// status.h — how a call says that it failed: a small code by value, the error beside it.
//
//     rn_checkpoint *model;
//     if (rn_checkpoint_open("model.safetensors", &model) != RN_OK) {
//         const rn_error_info *error = rn_last_error();
//         fprintf(stderr, "%s\nhint: %s\n", error->message, error->hint);
//     }
//
// There is nothing to free. The error belongs to the calling thread and holds until that thread's
// next failure; a worker that hands a failure to another thread copies the struct
// (rn_error_restore).
#ifndef RATION_STATUS_H
#define RATION_STATUS_H

#include <ration/api.h>

RN_BEGIN_DECLS

typedef enum rn_status {
    RN_OK = 0,
    RN_INVALID,     // the caller's argument or option makes no sense
    RN_NOT_FOUND,   // no such file, tensor, key
    RN_UNSUPPORTED, // understood, but not something this build or format can do
    RN_OVER_BUDGET, // refused: it would not fit the byte budget (see rn_last_refusal)
    RN_NO_MEMORY,   // the system itself had no memory to give
    RN_IO,          // the system failed to read or write
    RN_CORRUPT,     // a file or message breaks the rules of its format
    RN_DEVICE,      // a device or its driver failed
    RN_CANCELLED,   // asked to stop
    RN_INTERNAL,    // a bug in ration
    RN_STATUS_COUNT
} rn_status;

#define RN_NO_OFFSET UINT64_MAX

// What happened, for people. Strings are always terminated; "" where there is nothing to say.
typedef struct rn_error_info {
    rn_status status;
    int source_line;         // where in ration's source it was raised
    const char *source_file; // static
    uint64_t offset;         // byte offset in `path`, or RN_NO_OFFSET
    char path[512];          // the file it is about
    char message[1024];
    char hint[512]; // what to do about it
} rn_error_info;

// "RN_OVER_BUDGET" and so on; never NULL.
RN_API const char *rn_status_name(rn_status status);

// The calling thread's last failure. Never NULL; status is RN_OK before the first one.
RN_API const rn_error_info *rn_last_error(void);

// Makes `error` the calling thread's own (a worker's failure, handed on) and returns its status.
RN_API rn_status rn_error_restore(const rn_error_info *error);

// Begins a new error and returns `status`, so that failing is one line:
//     return rn_fail(RN_CORRUPT, "header is %zu bytes, file has %zu", header, file);
#define rn_fail(status, ...) rn_fail_at(__FILE__, __LINE__, (status), __VA_ARGS__)
RN_API rn_status rn_fail_at(const char *source_file, int source_line, rn_status status,
                            const char *format, ...) RN_PRINTF(4, 5);

// Adds to the error just begun; both return `status` unchanged and do nothing for RN_OK.
RN_API rn_status rn_hint(rn_status status, const char *format, ...) RN_PRINTF(2, 3);
RN_API rn_status rn_error_locate(rn_status status, const char *path, uint64_t offset);

// Returns from the enclosing function when `expr` fails.
#define RN_TRY(expr)                                                                               \
    do {                                                                                           \
        rn_status rn_try_status_ = (expr);                                                         \
        if (rn_try_status_ != RN_OK) return rn_try_status_;                                        \
    } while (0)

RN_END_DECLS

#endif
