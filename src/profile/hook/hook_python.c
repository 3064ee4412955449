// hook_python.c — the frames of the Python interpreter in this process, by its public C functions,
// looked up at run time: nothing here is linked with Python.
//
// PyTorch gives the interpreter's lock back while it computes, so a tensor is usually allocated
// without it. Only a thread that has Python frames takes it again, and only where the caller says
// that it may be waited for: who allocates under a lock of its own could wait for ever.
#include "profile/hook/hook_stack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct python {
    int (*is_initialized)(void);
    int (*is_finalizing)(void); // NULL: there is no such function in this version
    void *(*thread)(void);
    int (*has_lock)(void);
    int (*ensure)(void);
    void (*release)(int state);
    void *(*frame)(void);
    void *(*back)(void *frame);
    void *(*code)(void *frame);
    int (*line)(void *frame);
    void (*incref)(void *object);
    void (*decref)(void *object);
    int (*gc_disable)(void);
    int (*gc_enable)(void);
    void *(*attribute)(void *object, const char *name);
    const char *(*utf8)(void *text);
    void (*fetch)(void **type, void **value, void **trace);
    void (*restore)(void *type, void *value, void *trace);
    rn_code_range code_range;
} python;

static python py;
static bool is_there;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look(void) {
    const struct {
        const char *name;
        void *to;
        bool optional;
    } rows[] = {{"Py_IsInitialized", &py.is_initialized, false},
                {"Py_IsFinalizing", &py.is_finalizing, true},
                {"PyGILState_GetThisThreadState", &py.thread, false},
                {"PyGILState_Check", &py.has_lock, false},
                {"PyGILState_Ensure", &py.ensure, false},
                {"PyGILState_Release", &py.release, false},
                {"PyEval_GetFrame", &py.frame, false},
                {"PyFrame_GetBack", &py.back, false},
                {"PyFrame_GetCode", &py.code, false},
                {"PyFrame_GetLineNumber", &py.line, false},
                {"Py_IncRef", &py.incref, false},
                {"Py_DecRef", &py.decref, false},
                {"PyGC_Disable", &py.gc_disable, false},
                {"PyGC_Enable", &py.gc_enable, false},
                {"PyObject_GetAttrString", &py.attribute, false},
                {"PyUnicode_AsUTF8", &py.utf8, false},
                {"PyErr_Fetch", &py.fetch, false},
                {"PyErr_Restore", &py.restore, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, rows[i].name);
        if (!symbol && !rows[i].optional) return;
        memcpy(rows[i].to, &symbol, sizeof symbol);
    }
    if (!py.is_finalizing) { // its name before 3.13
        void *symbol = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
        memcpy(&py.is_finalizing, &symbol, sizeof symbol);
    }
    void *frame;
    memcpy(&frame, &py.frame, sizeof frame);
    py.code_range = rn_code_range_of(frame);
    is_there = true;
}

// ---- frames -------------------------------------------------------------------------------------

// Frame objects may be made here, and in some versions that runs the garbage collector, whose
// releases would not be seen.
static void read_frames(rn_python_stack *out) {
    int collects = py.gc_disable();
    void *frame = py.frame();
    if (frame) py.incref(frame);
    while (frame) {
        if (out->count < RN_STACK_FRAMES) {
            rn_python_frame *to = &out->frames[out->count++];
            to->code = py.code(frame);
            to->line = py.line(frame);
            py.decref(to->code); // the frame holds it while it is on the stack
        }
        void *outer = py.back(frame);
        py.decref(frame);
        frame = outer;
    }
    if (collects) py.gc_enable();
}

bool rn_python_enter(rn_python_stack *out, bool may_wait) {
    out->count = 0;
    out->entered = false;
    (void)pthread_once(&once, look);
    if (!is_there || !py.is_initialized() || (py.is_finalizing && py.is_finalizing()) ||
        !py.thread())
        return false;
    if (!may_wait && !py.has_lock()) return false;
    out->gil = py.ensure();
    out->entered = true;
    read_frames(out);
    if (out->count) return true;
    rn_python_leave(out);
    return false;
}

void rn_python_leave(rn_python_stack *stack) {
    if (stack->entered) py.release(stack->gil);
    stack->entered = false;
}

bool rn_python_has(const void *pc) {
    return is_there && rn_code_has(py.code_range, pc);
}

// ---- texts --------------------------------------------------------------------------------------

static void copy_attribute(void *code, const char *name, char *out, size_t bytes) {
    void *value = py.attribute(code, name);
    const char *text = value ? py.utf8(value) : NULL;
    snprintf(out, bytes, "%s", text ? text : "?");
    if (value) py.decref(value);
}

void rn_python_describe(const rn_python_frame *frame, char *out, size_t bytes) {
    char function[96], file[512];
    void *type, *value, *trace;
    py.fetch(&type, &value, &trace); // an error under way stays as it is
    int collects = py.gc_disable();
    py.incref(frame->code);
    copy_attribute(frame->code, "co_name", function, sizeof function);
    copy_attribute(frame->code, "co_filename", file, sizeof file);
    if (collects) py.gc_enable();
    py.restore(type, value, trace);
    // The last two parts of a path say which file it is.
    const char *from = strrchr(file, '/');
    while (from && from > file && from[-1] != '/')
        from--;
    snprintf(out, bytes, "%s (%s:%d)", function, from ? from : file, frame->line);
}
