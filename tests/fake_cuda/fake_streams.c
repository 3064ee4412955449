// fake_streams.c — streams that run by themselves: a thread and a list of operations each. Graphs
// are lists of operations, too.
#include "fake_internal.h"

#include <stdio.h>
#include <time.h>

typedef enum kind { LAUNCH, COPY, ZERO, HOST, WAIT_EVENT, WAIT_WORD, WRITE_WORD } kind;

typedef struct operation {
    struct operation *next;
    kind kind;
    uint64_t address; // on the device
    size_t bytes;
    void *target;
    const void *source;
    void (*fn)(void *self);
    void *self;
    void *stream;    // of the event
    uint64_t number; // its ticket, or the word's value
    fake_launch launch;
} operation;

typedef struct list {
    operation *first, *last;
} list;

typedef struct running_stream {
    bool alive, stop, captures;
    pthread_t thread;
    list waiting, captured;
    operation *now; // being carried out
    uint64_t submitted, done;
} running_stream;

typedef struct function {
    char name[64];
} function;

enum { MOST_STREAMS = 64, MOST_FUNCTIONS = 512 };

pthread_cond_t fake_progress = PTHREAD_COND_INITIALIZER;
static running_stream running[MOST_STREAMS];
static function functions[MOST_FUNCTIONS];
static size_t function_count;
static bool held;

// ---- lists --------------------------------------------------------------------------------------

static void append(list *to, operation *op) {
    op->next = NULL;
    if (to->last)
        to->last->next = op;
    else
        to->first = op;
    to->last = op;
}

static operation *pop(list *from) {
    operation *op = from->first;
    if (op) from->first = op->next;
    if (!from->first) from->last = NULL;
    return op;
}

static operation *copy_of(const operation *op) {
    operation *made = malloc(sizeof *made);
    *made = *op;
    return made;
}

static void clear(list *of) {
    for (operation *op; (op = pop(of));)
        free(op);
}

static list copy_list(const list *of) {
    list made = {0};
    for (const operation *op = of->first; op; op = op->next)
        append(&made, copy_of(op));
    return made;
}

// ---- running ------------------------------------------------------------------------------------

bool fake_runs(void *stream) {
    const running_stream *s = stream;
    return s >= running && s < running + MOST_STREAMS;
}

uint64_t fake_submitted(void *stream) {
    return ((running_stream *)stream)->submitted;
}

bool fake_is_done(void *stream, uint64_t ticket) {
    return ((running_stream *)stream)->done >= ticket;
}

int fake_check_capture(void *stream) {
    return ((running_stream *)stream)->captures;
}

int fake_wait_done(void *stream, uint64_t ticket) {
    running_stream *s = stream;
    if (s->captures) return CAPTURE_BROKEN;
    while (!fake_dead() && s->done < ticket)
        pthread_cond_wait(&fake_progress, &fake_lock);
    return fake_dead();
}

int fake_wait_all(void) {
    for (size_t i = 0; i < MOST_STREAMS; i++)
        if (running[i].alive && !running[i].captures)
            (void)fake_wait_done(&running[i], running[i].submitted);
    return fake_dead();
}

static bool reaches(const operation *op, uint64_t address, size_t bytes) {
    return op && op->bytes && op->address < address + bytes && address < op->address + op->bytes;
}

bool fake_streams_touch(uint64_t address, size_t bytes) {
    for (size_t i = 0; i < MOST_STREAMS; i++) {
        bool touched = reaches(running[i].now, address, bytes);
        for (const operation *op = running[i].waiting.first; op && !touched; op = op->next)
            touched = reaches(op, address, bytes);
        if (touched) return true;
    }
    return false;
}

HIDDEN void fake_hold(bool on);
void fake_hold(bool on) {
    pthread_mutex_lock(&fake_lock);
    held = on;
    pthread_cond_broadcast(&fake_progress);
    pthread_mutex_unlock(&fake_lock);
}

// Words are changed by those who know nothing of the condition.
static void wait_word(const operation *op) {
    const uint64_t *word = (const uint64_t *)(uintptr_t)op->address;
    while (!fake_dead() && (int64_t)(__atomic_load_n(word, __ATOMIC_SEQ_CST) - op->number) < 0) {
        pthread_mutex_unlock(&fake_lock);
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        pthread_mutex_lock(&fake_lock);
    }
}

// Without the lock.
static void do_work(const operation *op) {
    if (op->kind == COPY) memcpy(op->target, op->source, op->bytes);
    if (op->kind == ZERO) memset(op->target, 0, op->bytes);
    if (op->kind == HOST) op->fn(op->self);
    if (op->kind == LAUNCH && fake.on_launch) fake.on_launch(fake.on_launch_self, &op->launch);
    if (op->kind == WRITE_WORD)
        __atomic_store_n((uint64_t *)(uintptr_t)op->address, op->number, __ATOMIC_SEQ_CST);
}

static void carry_out(const operation *op) {
    if (op->kind == WAIT_EVENT) {
        while (!fake_dead() && !fake_is_done(op->stream, op->number))
            pthread_cond_wait(&fake_progress, &fake_lock);
    } else if (op->kind == WAIT_WORD) {
        wait_word(op);
    } else {
        pthread_mutex_unlock(&fake_lock);
        do_work(op);
        pthread_mutex_lock(&fake_lock);
    }
}

static void *run(void *self) {
    running_stream *stream = self;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (!stream->stop && !fake_dead() && (!stream->waiting.first || held))
            pthread_cond_wait(&fake_progress, &fake_lock);
        if (stream->stop) break;
        if (!(stream->now = pop(&stream->waiting))) { // dead, and nothing left
            pthread_cond_wait(&fake_progress, &fake_lock);
            continue;
        }
        if (!fake_dead()) carry_out(stream->now);
        free(stream->now);
        stream->now = NULL;
        stream->done++;
        pthread_cond_broadcast(&fake_progress);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

// ---- submitting ---------------------------------------------------------------------------------

static int submit(void *handle, const operation *op) {
    running_stream *stream = handle;
    int code = fake_enter_call();
    if (code != OK) return code;
    if (stream->captures) {
        append(&stream->captured, copy_of(op));
        return OK;
    }
    append(&stream->waiting, copy_of(op));
    stream->submitted++;
    pthread_cond_broadcast(&fake_progress);
    return OK;
}

// Pinned memory lies for the device where it lies for the host.
CUDA(cuPointerGetAttribute, void *out, int attribute, unsigned long long address) {
    if (attribute != 3 || !fake.maps_host) return INVALID;
    memcpy(out, &address, sizeof address);
    return OK;
}

CUDA(cuMemcpyHtoDAsync_v2, unsigned long long target, const void *source, size_t bytes,
     void *stream) {
    operation op = {.kind = COPY,
                    .address = target,
                    .bytes = bytes,
                    .target = (void *)(uintptr_t)target,
                    .source = source};
    LOCKED(submit(stream, &op));
}
CUDA(cuMemcpyDtoHAsync_v2, void *target, unsigned long long source, size_t bytes, void *stream) {
    operation op = {.kind = COPY,
                    .address = source,
                    .bytes = bytes,
                    .target = target,
                    .source = (const void *)(uintptr_t)source};
    LOCKED(submit(stream, &op));
}
CUDA(cuMemcpyDtoDAsync_v2, unsigned long long target, unsigned long long source, size_t bytes,
     void *stream) {
    operation op = {.kind = COPY,
                    .address = target,
                    .bytes = bytes,
                    .target = (void *)(uintptr_t)target,
                    .source = (const void *)(uintptr_t)source};
    LOCKED(submit(stream, &op));
}
CUDA(cuMemsetD8Async, unsigned long long target, unsigned char value, size_t bytes, void *stream) {
    operation op = {
        .kind = ZERO, .address = target, .bytes = bytes, .target = (void *)(uintptr_t)target};
    if (value != 0) return INVALID;
    LOCKED(submit(stream, &op));
}
CUDA(cuLaunchHostFunc, void *stream, void (*fn)(void *), void *self) {
    operation op = {.kind = HOST, .fn = fn, .self = self};
    LOCKED(submit(stream, &op));
}
CUDA(cuStreamWaitEvent, void *stream, void *event, unsigned flags) {
    operation op = {.kind = WAIT_EVENT};
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    int code = fake_has_event(event, &op.stream, &op.number) ? OK : INVALID;
    if (code == OK && fake_runs(op.stream)) code = submit(stream, &op);
    pthread_mutex_unlock(&fake_lock);
    return code;
}
CUDA(cuStreamWaitValue64_v2, void *stream, unsigned long long word, uint64_t value,
     unsigned flags) {
    operation op = {.kind = WAIT_WORD, .address = word, .number = value};
    if (flags != 0) return INVALID;
    LOCKED((fake.word_count++, submit(stream, &op)));
}
CUDA(cuStreamWriteValue64_v2, void *stream, unsigned long long word, uint64_t value,
     unsigned flags) {
    operation op = {.kind = WRITE_WORD, .address = word, .number = value};
    if (flags != 0) return INVALID;
    LOCKED((fake.word_count++, submit(stream, &op)));
}

typedef struct launch_attribute {
    int id;
    char pad[4];
    union {
        int number;
        char pad[64];
    } value;
} launch_attribute;
typedef struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    launch_attribute *attributes;
    unsigned attribute_count;
} launch_config;

CUDA(cuLaunchKernelEx, const launch_config *config, void *called, void **arguments, void **extra) {
    operation op = {.kind = LAUNCH};
    const function *f = called;
    (void)extra;
    memcpy(op.launch.name, f->name, sizeof op.launch.name);
    memcpy(op.launch.grid, config->grid, sizeof op.launch.grid);
    op.launch.threads = config->block[0];
    op.launch.shared_bytes = config->shared_bytes;
    for (unsigned i = 0; i < config->attribute_count; i++)
        op.launch.early |= config->attributes[i].id == 6 && config->attributes[i].value.number;
    memcpy(op.launch.args, arguments[0], fake.args_bytes);
    pthread_mutex_lock(&fake_lock);
    int code = submit(config->stream, &op);
    fake.launch_count += code == OK;
    fake.early_count += code == OK && op.launch.early;
    pthread_mutex_unlock(&fake_lock);
    return code;
}

// ---- streams ------------------------------------------------------------------------------------

static int create(void **out) {
    int code = fake_enter_call();
    size_t i = 0;
    while (i < MOST_STREAMS && running[i].alive)
        i++;
    if (code == OK && i == MOST_STREAMS) code = NO_MEMORY;
    if (code != OK) return code;
    running_stream *s = &running[i]; // counting goes on: old events of this place have passed
    *s = (running_stream){.alive = true, .submitted = s->submitted, .done = s->submitted};
    if (pthread_create(&s->thread, NULL, run, s) != 0) return NO_MEMORY;
    fake.stream_count++;
    *out = s;
    return OK;
}
CUDA(cuStreamCreate, void **out, unsigned flags) {
    if (flags != 1) return INVALID;
    LOCKED(create(out));
}
CUDA(cuStreamDestroy_v2, void *stream) {
    running_stream *s = stream;
    pthread_mutex_lock(&fake_lock);
    int code = fake_wait_done(s, s->submitted);
    s->stop = true;
    pthread_cond_broadcast(&fake_progress);
    pthread_mutex_unlock(&fake_lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&fake_lock);
    clear(&s->waiting);
    clear(&s->captured);
    s->done = s->submitted;
    s->alive = false;
    fake.stream_count--;
    pthread_mutex_unlock(&fake_lock);
    return code;
}

// ---- graphs -------------------------------------------------------------------------------------

static int begin_capture(running_stream *stream) {
    int code = fake_enter_call();
    if (code == OK) stream->captures = true;
    return code;
}
CUDA(cuStreamBeginCapture_v2, void *stream, int mode) {
    if (mode != 1) return INVALID;
    LOCKED(begin_capture(stream));
}
static int end_capture(running_stream *stream, void **out) {
    int code = fake_enter_call();
    if (!stream->captures) return INVALID;
    stream->captures = false;
    list *graph = malloc(sizeof *graph);
    *graph = stream->captured;
    stream->captured = (list){0};
    fake.graph_count++;
    *out = graph;
    return code;
}
CUDA(cuStreamEndCapture, void *stream, void **out) {
    LOCKED(end_capture(stream, out));
}
static int instantiate(void **out, const list *graph) {
    int code = fake_enter_call();
    if (code != OK) return code;
    list *exec = malloc(sizeof *exec);
    *exec = copy_list(graph);
    fake.graph_count++;
    *out = exec;
    return OK;
}
CUDA(cuGraphInstantiateWithFlags, void **out, void *graph, unsigned long long flags) {
    (void)flags;
    LOCKED(instantiate(out, graph));
}
CUDA(cuGraphUpload, void *exec, void *stream) {
    (void)exec;
    (void)stream;
    LOCKED(fake_enter_call());
}
static int launch_graph(const list *exec, void *stream) {
    int code = OK;
    fake.graph_launch_count++;
    for (const operation *op = exec->first; op && code == OK; op = op->next)
        code = submit(stream, op);
    return code;
}
CUDA(cuGraphLaunch, void *exec, void *stream) {
    LOCKED(launch_graph(exec, stream));
}
static int drop_graph(list *graph) {
    clear(graph);
    free(graph);
    fake.graph_count--;
    return OK;
}
CUDA(cuGraphExecDestroy, void *exec) {
    LOCKED(drop_graph(exec));
}
CUDA(cuGraphDestroy, void *graph) {
    LOCKED(drop_graph(graph));
}

// ---- modules ------------------------------------------------------------------------------------

static int load(void **out, const void *image) {
    int code = fake_enter_call();
    if (code == OK) code = image ? fake.image_code : INVALID;
    if (code == OK) code = fake_take(fake.module_bytes);
    if (code != OK) return code;
    size_t *module = malloc(sizeof *module);
    *module = fake.module_bytes;
    fake.module_count++;
    *out = module;
    return OK;
}
CUDA(cuModuleLoadData, void **out, const void *image) {
    LOCKED(load(out, image));
}
static int unload(size_t *module) {
    fake.used_bytes -= fake_dead() ? 0 : *module;
    fake.module_count--;
    free(module);
    return OK;
}
CUDA(cuModuleUnload, void *module) {
    LOCKED(unload(module));
}
static int find_function(void **out, const char *name) {
    int code = fake_enter_call();
    size_t i = 0;
    if (code == OK && fake.lacks && strcmp(fake.lacks, name) == 0) code = NOT_FOUND;
    while (i < function_count && strcmp(functions[i].name, name) != 0)
        i++;
    if (code == OK && i == MOST_FUNCTIONS) code = NO_MEMORY;
    if (code != OK) return code;
    if (i == function_count)
        snprintf(functions[function_count++].name, sizeof functions->name, "%s", name);
    *out = &functions[i];
    return OK;
}
CUDA(cuModuleGetFunction, void **out, void *module, const char *name) {
    (void)module;
    LOCKED(find_function(out, name));
}
CUDA(cuFuncSetAttribute, void *f, int attribute, int value) {
    (void)f;
    return attribute == 8 && value + fake.shared_fixed <= fake_shared_most() ? OK : INVALID;
}
CUDA(cuFuncGetAttribute, int *out, int attribute, void *f) {
    (void)f;
    *out = attribute == 1 ? fake.shared_fixed : 32;
    return attribute == 1 || attribute == 4 ? OK : INVALID;
}

// ---- the rest -----------------------------------------------------------------------------------

CUDA(cuDeviceGetPCIBusId, char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", device);
    return OK;
}

enum { PIN_HEAD = 4096 };
static int pin(void **out, size_t bytes) {
    int code = fake_enter_call();
    if (code != OK) return code;
    size_t *block =
        aligned_alloc(PIN_HEAD, PIN_HEAD + (bytes + PIN_HEAD - 1) / PIN_HEAD * PIN_HEAD);
    if (!block) return NO_MEMORY;
    *block = bytes;
    fake.pinned_bytes += bytes;
    fake.take_count++;
    *out = (char *)block + PIN_HEAD;
    return OK;
}
CUDA(cuMemHostAlloc, void **out, size_t bytes, unsigned flags) {
    if (flags != 1) return INVALID;
    LOCKED(pin(out, bytes));
}
static int unpin(void *p) {
    size_t *block = (size_t *)(void *)((char *)p - PIN_HEAD);
    fake.pinned_bytes -= *block;
    free(block);
    return fake_dead();
}
CUDA(cuMemFreeHost, void *p) {
    LOCKED(unpin(p));
}
