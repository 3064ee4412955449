// error_class.h — what a failure is called, what it means and what to do about it.
//
//     const rn_error_class *found = rn_error_classify(rn_last_error());
//     printf("%s: %s; %s\n", found->name, found->meaning, found->hint);
//
// Device runtimes tell the cause in their text only, and the text seldom says what it means. Each
// back end has a table of such texts; below them are the statuses of our own.
#ifndef RATION_ERROR_CLASS_H
#define RATION_ERROR_CLASS_H

#include <ration/text.h>

RN_BEGIN_DECLS

typedef struct rn_error_class {
    const char *name;    // "device_memory_full": stable, for logs and JSON
    const char *meaning; // half a sentence
    const char *hint;    // what to do; an error's own hint, where there is one, knows more
} rn_error_class;

// The first row of the tables that the error's message fits, or else that of its status. Never
// NULL: "unknown" at the least.
RN_API const rn_error_class *rn_error_classify(const rn_error_info *error);
// The rows in order, for lists and tests. NULL behind the last.
RN_API const rn_error_class *rn_error_class_at(size_t index);

// The error's own hint, or else the class's.
RN_API const char *rn_error_hint(const rn_error_info *error);

RN_END_DECLS

#endif
