// hook_got.c — a library calls a function of another one through a pointer in its global offset
// table; the relocations of its dynamic section say which pointer is which function's:
//
//     dynamic ─▶ DT_JMPREL, DT_RELA ─▶ {where, symbol, type} ─▶ symbol table ─▶ name
//
// A slot is one aligned pointer, so setting it is one store, and a thread that is calling meanwhile
// gets the one or the other. Where the loader has made the page read-only (RELRO), it is writable
// for the moment of the store.
#include "profile/hook/hook_got.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ration/text.h>

#if defined(__x86_64__)
#define IS_FUNCTION_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_FUNCTION_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_FUNCTION_SLOT(type) ((void)(type), 0)
#endif

typedef struct search {
    const char *library;
    const rn_hook_function *functions;
    size_t count;
    size_t slots, libraries;
} search;

typedef struct tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * relocations[2]; // DT_JMPREL, DT_RELA
    size_t counts[2];
    uintptr_t base;
    uintptr_t relro_begin, relro_end; // read-only after loading
} tables;

static void set_slot(const tables *t, _Atomic(void *) *slot, void *to) {
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t page = (uintptr_t)slot & ~(page_bytes - 1);
    bool is_sealed = (uintptr_t)slot >= t->relro_begin && (uintptr_t)slot < t->relro_end;
    if (is_sealed && mprotect((void *)page, page_bytes, PROT_READ | PROT_WRITE) != 0) return;
    atomic_store_explicit(slot, to, memory_order_release);
    if (is_sealed) (void)mprotect((void *)page, page_bytes, PROT_READ);
}

static void try_slot(search *s, const tables *t, const char *name, void *where) {
    _Atomic(void *) *slot = where;
    void *holds = atomic_load_explicit(slot, memory_order_relaxed);
    for (size_t i = 0; i < s->count; i++) {
        const rn_hook_function *f = &s->functions[i];
        if (strcmp(name, f->name) != 0 || holds == f->to || (f->from && holds != f->from)) continue;
        set_slot(t, slot, f->to);
        s->slots += atomic_load_explicit(slot, memory_order_relaxed) == f->to;
    }
}

static void search_relocations(search *s, const tables *t, const ElfW(Rela) * list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!IS_FUNCTION_SLOT(ELF64_R_TYPE(list[i].r_info))) continue;
        const ElfW(Sym) *symbol = &t->symbols[ELF64_R_SYM(list[i].r_info)];
        try_slot(s, t, t->names + symbol->st_name, (void *)(t->base + list[i].r_offset));
    }
}

// The loader of glibc writes addresses into the dynamic section, others leave offsets.
static const void *at(const tables *t, uintptr_t value) {
    return (const void *)(value < t->base ? t->base + value : value);
}

static void read_dynamic(tables *t, const ElfW(Dyn) * dynamic) {
    size_t jump_bytes = 0, bytes = 0;
    ElfW(Sxword) kind = DT_RELA;
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) t->symbols = at(t, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) t->names = at(t, d->d_un.d_ptr);
        if (d->d_tag == DT_JMPREL) t->relocations[0] = at(t, d->d_un.d_ptr);
        if (d->d_tag == DT_PLTRELSZ) jump_bytes = d->d_un.d_val;
        if (d->d_tag == DT_PLTREL) kind = (ElfW(Sxword))d->d_un.d_val;
        if (d->d_tag == DT_RELA) t->relocations[1] = at(t, d->d_un.d_ptr);
        if (d->d_tag == DT_RELASZ) bytes = d->d_un.d_val;
    }
    if (kind == DT_RELA && t->relocations[0]) t->counts[0] = jump_bytes / sizeof(ElfW(Rela));
    if (t->relocations[1]) t->counts[1] = bytes / sizeof(ElfW(Rela));
}

static bool is_inside(const struct dl_phdr_info *info, uintptr_t address) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && address >= begin && address < begin + p->p_memsz) return true;
    }
    return false;
}

// The program itself has no name here; its own is what it was started as.
static bool matches(const search *s, const struct dl_phdr_info *info) {
    char program[4096];
    const char *path = info->dlpi_name;
    if (!path || !path[0]) {
        ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        program[length < 0 ? 0 : length] = '\0';
        path = program;
    }
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return rn_str_matches((rn_str){name, strlen(name)}, (rn_str){s->library, strlen(s->library)});
}

static int search_library(struct dl_phdr_info *info, size_t bytes, void *self) {
    search *s = self;
    (void)bytes;
    // In a program at a fixed address the functions have stubs, which are what everybody calls, the
    // loader itself included, while it makes room for a thread's variables: ours, too.
    if (info->dlpi_addr == 0) return 0;
    if (is_inside(info, (uintptr_t)search_library) || !matches(s, info)) return 0;
    tables t = {.base = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_DYNAMIC) read_dynamic(&t, (const void *)(t.base + p->p_vaddr));
        if (p->p_type == PT_GNU_RELRO) {
            t.relro_begin = t.base + p->p_vaddr;
            t.relro_end = t.relro_begin + p->p_memsz;
        }
    }
    s->libraries++;
    if (!t.symbols || !t.names) return 0;
    for (int i = 0; i < 2; i++)
        search_relocations(s, &t, t.relocations[i], t.counts[i]);
    return 0;
}

size_t rn_hook_got_set(const char *library, const rn_hook_function *functions, size_t count,
                       size_t *out_libraries) {
    search s = {.library = library, .functions = functions, .count = count};
    (void)dl_iterate_phdr(search_library, &s);
    *out_libraries = s.libraries;
    return s.slots;
}
