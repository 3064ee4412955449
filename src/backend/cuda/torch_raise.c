// torch_raise.c — a C++ exception without C++.
//
// PyTorch uses a pluggable allocator's pointer without looking at it: after a NULL, a kernel writes
// to address 0 and the process's CUDA context is lost. So a refusal has to be an exception. What is
// needed is exported by libc10, which is found only where it is loaded already:
//
//     torchCheckFail(function, file, line, message)          throws c10::Error; plain C arguments
//     c10::Error::Error(SourceLocation, std::string)         the constructor
//     the virtual table of c10::OutOfMemoryError             which adds nothing to c10::Error
//
// The class in the last line is what programs catch, but nothing exported throws it. So it is built
// here by the rules of the Itanium C++ ABI: room from __cxa_allocate_exception, the base's
// constructor, the derived class's table, __cxa_throw with the type information that the table
// points to. A std::string is {data, bytes, capacity or 16 bytes inside}; its name in the
// constructor's symbol (__cxx11) says that it is this one. Frames of C are unwound by the tables
// that compilers write for 64-bit systems by default.
#include "backend/cuda/torch_raise.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STRING    "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define FILE_NAME "ration/torch_allocator.c"

typedef struct source_location { // c10::SourceLocation
    const char *function, *file;
    uint32_t line;
} source_location;

typedef struct cxx_string { // std::string of libstdc++'s new ABI
    char *data;
    size_t bytes;
    union {
        char inside[16];
        size_t capacity;
    };
} cxx_string;

// c10::Error takes about 150 bytes; how many is nowhere exported.
#define ERROR_BYTES ((size_t)1024)

typedef struct thrower {
    void *(*new_bytes)(size_t bytes);
    void *(*allocate)(size_t bytes);
    void (*throw)(void *exception, void *type, void (*destroy)(void *));
    void (*construct)(void *error, source_location where, cxx_string *message);
    void **table; // {offset, type information, destructor, ...}: objects point to the third
} thrower;

static bool find(void *library, const char *symbol, void *out_pointer) {
    void *found = dlsym(library, symbol);
    memcpy(out_pointer, &found, sizeof found);
    return found != NULL;
}

// The constructor takes the message's bytes over, so they must be operator new's.
static bool move_to_cxx(const thrower *to, const char *message, cxx_string *out) {
    size_t bytes = strlen(message);
    if (bytes < sizeof out->inside) return false; // it would have to lie inside
    out->data = to->new_bytes(bytes + 1);
    if (!out->data) return false;
    memcpy(out->data, message, bytes + 1);
    out->bytes = bytes;
    out->capacity = bytes;
    return true;
}

// Up to some version the class was defined in headers alone: then it is libc10_cuda, which throws
// it, that has its table.
static bool find_table(void *libc10, void *out_table) {
    if (find(libc10, "_ZTVN3c1016OutOfMemoryErrorE", out_table)) return true;
    void *cuda = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return cuda && find(cuda, "_ZTVN3c1016OutOfMemoryErrorE", out_table);
}

static bool find_thrower(void *libc10, thrower *out) {
    return find(libc10, "_Znwm", &out->new_bytes) &&
           find(libc10, "__cxa_allocate_exception", &out->allocate) &&
           find(libc10, "__cxa_throw", &out->throw) &&
           find(libc10, "_ZN3c105ErrorC1ENS_14SourceLocationE" STRING, &out->construct) &&
           find_table(libc10, &out->table);
}

static void throw_out_of_memory(void *libc10, const char *message) {
    thrower to;
    cxx_string text;
    if (!find_thrower(libc10, &to) || !move_to_cxx(&to, message, &text)) return;
    void *error = to.allocate(ERROR_BYTES);
    to.construct(error, (source_location){"rn_torch_cuda_malloc", FILE_NAME, 0}, &text);
    void **table = to.table + 2;
    void (*destroy)(void *);
    memcpy(error, &table, sizeof table);
    memcpy(&destroy, table, sizeof destroy);
    to.throw(error, to.table[1], destroy);
}

void rn_torch_raise(bool out_of_memory, const char *message) {
    void *libc10 =
        dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD); // a reference more: it stays anyway
    if (!libc10) return;
    if (out_of_memory) throw_out_of_memory(libc10, message);
    void (*fail)(const char *function, const char *file, uint32_t line, const char *text);
    if (find(libc10, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_", &fail))
        fail("rn_torch_cuda_malloc", FILE_NAME, 0, message);
}
