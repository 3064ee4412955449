// hook_stack.h — who asked for memory: the calling thread's stack, Python's frames first.
//
//     main (train.py:80)              the interpreter's frames, outermost first,
//     forward (model.py:31)
//     at::_ops::linear::call (libtorch_cpu.so)    then what the innermost one called,
//     c10::alloc_cpu (libc10.so)                  down to who called the allocator
//
// A thread that runs no Python has its C frames only.
#ifndef RN_PROFILE_HOOK_STACK_H
#define RN_PROFILE_HOOK_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RN_STACK_FRAMES = 64 };

// The name of a recording (rn_profile_label) whose detail is the stack, one frame a line, and whose
// own text is its innermost Python frame, or the innermost C frame; 0 where there is none. Its
// first time a stack is symbolised, which takes a while; after that it is looked up. Allocates:
// the caller sees to it that this is not recorded.
uint32_t rn_hook_stack(bool may_wait_for_python);

// ---- of the interpreter that this process runs, if it does (hook_python.c) ----------------------

typedef struct rn_python_frame {
    void *code; // a code object, held as long as the process lives once it was kept
    int line;
} rn_python_frame;

typedef struct rn_python_stack {
    rn_python_frame frames[RN_STACK_FRAMES]; // innermost first
    size_t count;
    int gil; // what to give back
    bool entered;
} rn_python_stack;

// This thread's frames, and the interpreter's lock until rn_python_leave. False: it runs no Python,
// or the lock is not held and may not be waited for.
bool rn_python_enter(rn_python_stack *out, bool may_wait);
void rn_python_leave(rn_python_stack *stack);
// "function (file:line)"; while entered. Keeps the code object.
void rn_python_describe(const rn_python_frame *frame, char *out, size_t bytes);
// Whether an instruction is the interpreter's.
bool rn_python_has(const void *pc);

// Where a loaded file's code lies.
typedef struct rn_code_range {
    uintptr_t begin, end;
} rn_code_range;
// Of the file that has this instruction; {0, 0}: none.
rn_code_range rn_code_range_of(const void *pc);
static inline bool rn_code_has(rn_code_range range, const void *pc) {
    return (uintptr_t)pc >= range.begin && (uintptr_t)pc < range.end;
}

// ---- symbols (hook_symbols.c) -------------------------------------------------------------------

// "function (file)"; from the dynamic symbols, else from the file's symbol table, else an offset.
// Takes up to milliseconds the first time, as large files are searched; after that it is known. One
// thread at a time.
void rn_symbol_describe(const void *pc, char *out, size_t bytes);

#endif
