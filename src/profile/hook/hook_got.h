// hook_got.h — redirecting the calls that loaded libraries make to functions of other libraries.
#ifndef RN_PROFILE_HOOK_GOT_H
#define RN_PROFILE_HOOK_GOT_H

#include <stddef.h>

typedef struct rn_hook_function {
    const char *name;
    void *from, *to; // the slots of `name` that do not hold `to` already are set to it; if `from`
                     // is not NULL, only those that hold `from`
} rn_hook_function;

// In every loaded library whose file name matches `library` (`*` and `?`), without this one. The
// program itself has its own name. Returns how many slots were set; *out_libraries how many
// libraries matched.
size_t rn_hook_got_set(const char *library, const rn_hook_function *functions, size_t count,
                       size_t *out_libraries);

#endif
