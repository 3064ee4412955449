// api.h — the marks that every public declaration carries.
#ifndef RATION_API_H
#define RATION_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define RN_BEGIN_DECLS extern "C" {
#define RN_END_DECLS   }
#else
#define RN_BEGIN_DECLS
#define RN_END_DECLS
#endif

// Exported from libration.so; everything else is hidden.
#define RN_API __attribute__((visibility("default")))
// The result says whether the call worked; dropping it is a bug.
#define RN_MUST_USE __attribute__((warn_unused_result))
// printf-style arguments, checked by the compiler.
#define RN_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))

// A yes or no that one thread may set while others look at it.
#ifdef __cplusplus
typedef volatile bool rn_flag;
#else
typedef _Atomic bool rn_flag;
#endif

#endif
