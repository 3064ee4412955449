// hook_symbols.c — an instruction's function, from the symbol table of the file that it was loaded
// from (a program's own functions are not among its dynamic symbols), else from the dynamic ones.
//
// A library may have half a million symbols, so each file's functions are sorted once, when the
// first instruction in it is asked for. Files are mapped and never trusted: every offset is checked
// against the file.
#include "profile/hook/hook_stack.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct function {
    uint64_t address; // in the file, before it was loaded
    uint32_t bytes, name;
} function;

typedef struct image {
    uintptr_t load; // where address 0 of the file lies
    rn_code_range range;
    char file[64]; // the last part of its path
    const uint8_t *data;
    size_t bytes;
    const char *texts; // (text_bytes)
    uint64_t text_bytes;
    function *functions; // (count), by address
    size_t count;
} image;

// ---- a file's functions -------------------------------------------------------------------------

static bool map_file(const char *path, image *it) {
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    void *data = MAP_FAILED;
    if (fstat(file, &info) == 0 && info.st_size > 0)
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (data == MAP_FAILED) return false;
    it->data = data;
    it->bytes = (size_t)info.st_size;
    return true;
}

static const void *part(const image *it, uint64_t offset, uint64_t bytes) {
    return offset <= it->bytes && bytes <= it->bytes - offset ? it->data + offset : NULL;
}

static const ElfW(Shdr) * section(const image *it, const ElfW(Ehdr) * head, size_t index) {
    if (index >= head->e_shnum || head->e_shentsize != sizeof(ElfW(Shdr))) return NULL;
    if (head->e_shoff > it->bytes) return NULL;
    return part(it, head->e_shoff + index * sizeof(ElfW(Shdr)), sizeof(ElfW(Shdr)));
}

static const ElfW(Shdr) * find_table(const image *it, const ElfW(Ehdr) * head) {
    const ElfW(Shdr) *dynamic = NULL;
    for (size_t i = 0; i < head->e_shnum; i++) {
        const ElfW(Shdr) *table = section(it, head, i);
        if (table && table->sh_type == SHT_SYMTAB) return table;
        if (table && table->sh_type == SHT_DYNSYM) dynamic = table;
    }
    return dynamic;
}

static int by_address(const void *a, const void *b) {
    const function *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

// Mapped, not asked of malloc: it is large, and stays.
static void list_functions(image *it) {
    const ElfW(Ehdr) *head = part(it, 0, sizeof *head);
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return;
    const ElfW(Shdr) *table = find_table(it, head);
    const ElfW(Shdr) *strings = table ? section(it, head, table->sh_link) : NULL;
    const ElfW(Sym) *symbols = table ? part(it, table->sh_offset, table->sh_size) : NULL;
    const char *texts = strings ? part(it, strings->sh_offset, strings->sh_size) : NULL;
    size_t most = table ? table->sh_size / sizeof *symbols : 0;
    if (!symbols || !texts || most == 0 || texts[strings->sh_size - 1] != '\0') return;
    void *block = mmap(NULL, most * sizeof(function), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return;
    it->functions = block;
    it->texts = texts;
    it->text_bytes = strings->sh_size;
    for (size_t i = 0; i < most; i++) {
        const ElfW(Sym) *s = &symbols[i];
        if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_value == 0 || s->st_size == 0 ||
            s->st_size > UINT32_MAX || s->st_name >= strings->sh_size)
            continue;
        it->functions[it->count++] =
            (function){s->st_value, (uint32_t)s->st_size, (uint32_t)s->st_name};
    }
    qsort(it->functions, it->count, sizeof *it->functions, by_address);
}

// ---- loaded files -------------------------------------------------------------------------------

enum { MOST_IMAGES = 256 };
static image images[MOST_IMAGES];
static size_t image_count;

typedef struct search {
    uintptr_t pc, load;
    rn_code_range found;
    const char *path;
} search;

static int look_at(struct dl_phdr_info *info, size_t info_bytes, void *self) {
    search *s = self;
    rn_code_range range = {UINTPTR_MAX, 0};
    (void)info_bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        uintptr_t from = info->dlpi_addr + p->p_vaddr;
        if (from < range.begin) range.begin = from;
        if (from + p->p_memsz > range.end) range.end = from + p->p_memsz;
    }
    if (s->pc < range.begin || s->pc >= range.end) return 0;
    *s = (search){s->pc, info->dlpi_addr, range, info->dlpi_name};
    return 1;
}

rn_code_range rn_code_range_of(const void *pc) {
    search s = {.pc = (uintptr_t)pc};
    (void)dl_iterate_phdr(look_at, &s);
    return s.found;
}

// A library that was unloaded, and another in its place, is taken for the first.
static const image *find_image(const void *pc) {
    for (size_t i = 0; i < image_count; i++)
        if (rn_code_has(images[i].range, pc)) return &images[i];
    search s = {.pc = (uintptr_t)pc};
    if (image_count == MOST_IMAGES || !dl_iterate_phdr(look_at, &s)) return NULL;
    image *it = &images[image_count++];
    char own[512] = "";
    if (!s.path || !s.path[0]) { // the program itself
        ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
        own[bytes > 0 ? bytes : 0] = '\0';
        s.path = own;
    }
    const char *slash = strrchr(s.path, '/');
    *it = (image){.load = s.load, .range = s.found};
    snprintf(it->file, sizeof it->file, "%s", slash ? slash + 1 : s.path);
    if (map_file(s.path == own ? "/proc/self/exe" : s.path, it)) list_functions(it);
    return it;
}

// ---- names --------------------------------------------------------------------------------------

// "at::empty(long)" is at::empty: the function is what is looked for.
static void cut_arguments(char *name) {
    char *end = strrchr(name, ')');
    int depth = 0;
    for (char *at = end; at && at > name; at--) {
        depth += (*at == ')') - (*at == '(');
        if (depth == 0) {
            *at = '\0';
            return;
        }
    }
}

static int find_library(struct dl_phdr_info *info, size_t info_bytes, void *self) {
    (void)info_bytes;
    for (int i = 0; i < info->dlpi_phnum && strstr(info->dlpi_name, "/libstdc++.so"); i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            *(uintptr_t *)self = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            return 1;
        }
    return 0;
}

// Texts of the C++ library are the C library's memory.
static void (*const give_back)(void *) = free;

typedef char *demangler(const char *, char *, size_t *, int *);

// By the library's own table: the loader may be who asks for memory, in the middle of loading, and
// dlopen and dlsym are not to be called again then.
static demangler *find_demangler(void) {
    uintptr_t inside = 0;
    demangler *found = NULL;
    if (!dl_iterate_phdr(find_library, &inside)) return NULL;
    const image *it = find_image((const void *)inside);
    for (size_t i = 0; it && i < it->count && !found; i++)
        if (strcmp(it->texts + it->functions[i].name, "__cxa_demangle") == 0) {
            uintptr_t address = it->load + it->functions[i].address;
            memcpy(&found, &address, sizeof address);
        }
    return found;
}

// C++ names as people write them, where the process has the function for it: it may come with a
// library that is loaded later, and that only some others see.
static void demangle(char *name, size_t bytes) {
    static demangler *call;
    int status = 0;
    if (strncmp(name, "_Z", 2) != 0) return;
    if (!call) call = find_demangler();
    char *text = call ? call(name, NULL, NULL, &status) : NULL;
    if (text && status == 0) {
        cut_arguments(text);
        snprintf(name, bytes, "%s", text);
    }
    give_back(text);
}

static const function *find_function(const image *it, uint64_t address) {
    size_t low = 0, high = it->count;
    while (low < high) { // the last one that begins at or before it
        size_t middle = low + (high - low) / 2;
        if (it->functions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const function *f = low ? &it->functions[low - 1] : NULL;
    return f && address - f->address < f->bytes ? f : NULL;
}

static void describe(const void *pc, char *out, size_t bytes) {
    char name[512];
    // A return address is behind its call, which may be a function's last instruction.
    const char *call = (const char *)pc - 1;
    const image *it = find_image(call);
    if (!it) {
        snprintf(out, bytes, "%p", pc);
        return;
    }
    uint64_t address = (uintptr_t)call - it->load;
    const function *f = find_function(it, address);
    if (f)
        snprintf(name, sizeof name, "%s", it->texts + f->name);
    else
        snprintf(name, sizeof name, "+0x%llx", (unsigned long long)address);
    demangle(name, sizeof name);
    if (strlen(name) > 110) memcpy(name + 107, "...", 4);
    snprintf(out, bytes, "%s (%s)", name, it->file);
}

// ---- what is known already ----------------------------------------------------------------------

enum { KNOWN = 4096, TEXT = 180 }; // a power of two; an address has one place

static struct known {
    const void *pc;
    char text[TEXT];
} known[KNOWN];

void rn_symbol_describe(const void *pc, char *out, size_t bytes) {
    size_t at = (size_t)(((uintptr_t)pc * 0x9e3779b97f4a7c15u) >> 52) & (KNOWN - 1);
    if (known[at].pc != pc) {
        describe(pc, known[at].text, sizeof known[at].text);
        known[at].pc = pc;
    }
    snprintf(out, bytes, "%s", known[at].text);
}
