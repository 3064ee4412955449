// fake_pjrt.c — a PJRT plugin for tests: version 0.104 with the sizes that Neuron's plugin insists
// on, Neuron's names, memory with a limit, and failures on demand. It runs real programs
// (fake_program.h).
//
// $FAKE_PJRT has words, separated by commas, and is read with every call:
//
//     abort, exit, hang         what GetPjrtApi does
//     old, new                  the version that it says: 0.40, 0.200
//     no_devices                the client has none
//     oom_compile, oom_upload, oom_run
//                               RESOURCE_EXHAUSTED; that of a run comes by its event, and has eaten
//                               what was donated
//     no_donation               a run that donates is refused
//     no_stats                  programs do not tell what they take
//     wrong                     x + x is x
//     limit=BYTES               of a device's memory [16 GiB]
//     devices=N                 that the client has [as many as NEURON_RT_VISIBLE_CORES names]
//
// A program of several partitions runs as a whole, from the parts of all devices, and its results
// are divided again.
//
// The sizes are written here again, as numbers: the library's table is what is tested.
#include "backend/pjrt/api.h"
#include "fake_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fake_error {
    int code;
    char message[600];
} fake_error;

typedef struct fake_buffer {
    fake_tensor tensor;
    int device;
    fake_error *error; // NULL: it is there
    bool deleted;
} fake_buffer;

typedef struct fake_executable {
    fake_program program;
    char *text;
    size_t bytes;
} fake_executable;

typedef struct fake_event {
    fake_error error; // code 0: none
} fake_event;

enum { DEVICES = 64 };
static int client_object, device_objects[DEVICES], description_object;
static int64_t held_bytes[DEVICES];

static bool told(const char *word) {
    const char *words = getenv("FAKE_PJRT");
    size_t bytes = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)); at++)
        if ((at == words || at[-1] == ',') && strchr(",=", at[bytes])) return true;
    return false;
}

static int64_t limit_bytes(void) {
    const char *words = getenv("FAKE_PJRT"), *at = words ? strstr(words, "limit=") : NULL;
    return at ? strtoll(at + 6, NULL, 10) : (int64_t)16 << 30;
}

// ---- errors and events --------------------------------------------------------------------------

static void *fail(int code, const char *message) {
    fake_error *error = calloc(1, sizeof *error);
    error->code = code;
    snprintf(error->message, sizeof error->message, "%s", message);
    return error;
}

// Exactly so many bytes, as Neuron wants it.
static void *check(const void *args, size_t expected, const char *name) {
    char message[200];
    size_t got = *(const size_t *)args;
    if (got == expected) return NULL;
    snprintf(message, sizeof message,
             "Unexpected %s size: expected %zu, got %zu. The plugin is "
             "built with PJRT API version 0.104.",
             name, expected, got);
    return fail(3, message);
}
#define CHECK(expected, name)                                                                      \
    do {                                                                                           \
        void *error_ = check(args, expected, name);                                                \
        if (error_) return error_;                                                                 \
    } while (0)

static void *error_destroy(rn_pjrt_handle_args *args) {
    free(args->handle);
    return NULL;
}

static void *error_message(rn_pjrt_text_args *args) {
    args->text = ((fake_error *)args->handle)->message;
    args->text_bytes = strlen(args->text);
    return NULL;
}

static void *error_code(rn_pjrt_number_args *args) {
    CHECK(28, "PJRT_Error_GetCode_Args");
    args->number = ((fake_error *)args->handle)->code;
    return NULL;
}

static fake_event *make_event(const fake_error *error) {
    fake_event *event = calloc(1, sizeof *event);
    if (error) event->error = *error;
    return event;
}

static void *event_await(rn_pjrt_handle_args *args) {
    CHECK(24, "PJRT_Event_Await_Args");
    const fake_event *event = args->handle;
    return event->error.code ? fail(event->error.code, event->error.message) : NULL;
}

static void *destroy_plain(rn_pjrt_handle_args *args) {
    CHECK(24, "PJRT_Destroy_Args");
    free(args->handle);
    return NULL;
}

// ---- the client ---------------------------------------------------------------------------------

static void *initialize(rn_pjrt_initialize_args *args) {
    CHECK(16, "PJRT_Plugin_Initialize_Args");
    return NULL;
}

static void *client_create(rn_pjrt_client_create_args *args) {
    CHECK(88, "PJRT_Client_Create_Args");
    if (args->option_count) return fail(3, "Unexpected option name passed to PJRT_Client_Create");
    args->client = &client_object;
    return NULL;
}

static void *client_destroy(rn_pjrt_handle_args *args) {
    CHECK(24, "PJRT_Client_Destroy_Args");
    return NULL;
}

static void *text(rn_pjrt_text_args *args, const char *value) {
    CHECK(40, "PJRT_Text_Args");
    args->text = value;
    args->text_bytes = strlen(value);
    return NULL;
}

static void *platform_name(rn_pjrt_text_args *args) {
    return text(args, "neuron");
}

static void *platform_version(rn_pjrt_text_args *args) {
    return text(args, "fake 1");
}

static void *kind(rn_pjrt_text_args *args) {
    return text(args, "NC_v2");
}

static int count_devices(void) {
    const char *words = getenv("FAKE_PJRT"), *at = words ? strstr(words, "devices=") : NULL;
    const char *cores = getenv("NEURON_RT_VISIBLE_CORES");
    int first = 0, last = 0, count;
    if (told("no_devices")) return 0;
    if (at)
        count = atoi(at + 8);
    else
        count = cores && sscanf(cores, "%d-%d", &first, &last) == 2 ? last - first + 1 : 1;
    return count > DEVICES ? DEVICES : count;
}

static void *devices(rn_pjrt_list_args *args) {
    static void *list[DEVICES];
    CHECK(40, "PJRT_Client_AddressableDevices_Args");
    for (int i = 0; i < DEVICES; i++)
        list[i] = &device_objects[i];
    args->items = list;
    args->count = (size_t)count_devices();
    return NULL;
}

static int number_of(const void *device) {
    return (int)((const int *)device - device_objects);
}

static void *description(rn_pjrt_get_args *args) {
    CHECK(32, "PJRT_Device_GetDescription_Args");
    args->out = &description_object;
    return NULL;
}

static void *local_id(rn_pjrt_number_args *args) {
    CHECK(28, "PJRT_Device_LocalHardwareId_Args");
    args->number = number_of(args->handle);
    return NULL;
}

static void *device_memory(rn_pjrt_device_memory *args) {
    CHECK(185, "PJRT_Device_MemoryStats_Args");
    args->used_bytes = held_bytes[number_of(args->device)];
    args->limit = (rn_pjrt_stat){limit_bytes(), true};
    return NULL;
}

// ---- buffers ------------------------------------------------------------------------------------

static bool find_type(int type, fake_type *out) {
    static const struct {
        int theirs;
        fake_type ours;
    } all[] = {{RN_PJRT_PRED, FAKE_I1}, {RN_PJRT_S32, FAKE_I32},  {RN_PJRT_S64, FAKE_I64},
               {RN_PJRT_U8, FAKE_UI8},  {RN_PJRT_F16, FAKE_F16},  {RN_PJRT_F32, FAKE_F32},
               {RN_PJRT_F64, FAKE_F64}, {RN_PJRT_BF16, FAKE_BF16}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].theirs == type) {
            *out = all[i].ours;
            return true;
        }
    return false;
}

static fake_buffer *make_buffer(fake_tensor tensor, int device) {
    fake_buffer *buffer = calloc(1, sizeof *buffer);
    buffer->tensor = tensor;
    buffer->device = device;
    held_bytes[device] += fake_bytes(&tensor);
    return buffer;
}

static void forget(fake_buffer *buffer) {
    if (!buffer->deleted) held_bytes[buffer->device] -= fake_bytes(&buffer->tensor);
    buffer->deleted = true;
    fake_free(&buffer->tensor);
}

static void *from_host(rn_pjrt_from_host_args *args) {
    fake_tensor tensor = {.rank = (int)args->dim_count};
    CHECK(120, "PJRT_Client_BufferFromHostBuffer_Args");
    if (!find_type(args->type, &tensor.type)) abort(); // as XLA does
    for (int i = 0; i < tensor.rank; i++)
        tensor.dims[i] = args->dims[i];
    int device = number_of(args->device);
    if (told("oom_upload") || held_bytes[device] + fake_bytes(&tensor) > limit_bytes())
        return fail(8,
                    "TDRV:log_dev_mem Failed to allocate 64.000MB (usage: tensors) on ND 0:NC 0, "
                    "current utilization: * total: 15.855GB");
    fake_read(&tensor, args->data);
    args->buffer = make_buffer(tensor, device);
    args->done = make_event(NULL);
    return NULL;
}

static void *to_host(rn_pjrt_to_host_args *args) {
    fake_buffer *buffer = args->buffer;
    CHECK(56, "PJRT_Buffer_ToHostBuffer_Args");
    if (!buffer->tensor.data && !buffer->deleted) { // of a run that failed
        args->event = make_event(
            &(fake_error){8, "nrt_tensor_allocate status=4 message=\"Allocation Failure\""});
        return NULL;
    }
    if (buffer->deleted || (int64_t)args->target_bytes != fake_bytes(&buffer->tensor)) {
        args->event =
            make_event(&(fake_error){3, "ToLiteral() called on deleted or donated buffer"});
        return NULL;
    }
    fake_write(&buffer->tensor, args->target);
    args->event = make_event(NULL);
    return NULL;
}

static void *ready(rn_pjrt_get_args *args) {
    CHECK(32, "PJRT_Buffer_ReadyEvent_Args");
    args->out = make_event(NULL);
    return NULL;
}

static void *buffer_destroy(rn_pjrt_handle_args *args) {
    CHECK(24, "PJRT_Buffer_Destroy_Args");
    forget(args->handle);
    free(args->handle);
    return NULL;
}

// ---- programs -----------------------------------------------------------------------------------

static fake_executable *make_executable(const char *code, size_t bytes, char *error, size_t room) {
    fake_executable *e = calloc(1, sizeof *e);
    e->text = malloc(bytes + 1);
    memcpy(e->text, code, bytes);
    e->bytes = bytes;
    if (fake_parse(code, bytes, &e->program, error, room)) return e;
    fake_program_free(&e->program);
    free(e->text);
    free(e);
    return NULL;
}

static void *compile(rn_pjrt_compile_args *args) {
    char error[500];
    CHECK(56, "PJRT_Client_Compile_Args");
    if (args->option_bytes == 0) abort(); // as XLA does
    if (strncmp(args->program->format, "mlir", args->program->format_bytes) != 0)
        return fail(3, "Unknown program format");
    if (told("oom_compile")) return fail(8, "[NCC_EOOM001] Estimated peak HBM usage exceeds 16GB");
    fake_executable *e =
        make_executable(args->program->code, args->program->code_bytes, error, sizeof error);
    if (!e) return fail(2, error);
    args->executable = e;
    // 3: {4: replicas, 5: partitions, ...}
    if (args->option_bytes < 6 || args->options[5] != e->program.partitions)
        return fail(3, "The program has another number of partitions than its options");
    if (e->program.partitions > count_devices()) return fail(3, "There are not so many devices");
    return NULL;
}

static void *loaded_destroy(rn_pjrt_handle_args *args) {
    fake_executable *e = args->handle;
    CHECK(24, "PJRT_LoadedExecutable_Destroy_Args");
    fake_program_free(&e->program);
    free(e->text);
    free(e);
    return NULL;
}

// Both are one object here.
static void *get_executable(rn_pjrt_get_args *args) {
    CHECK(32, "PJRT_LoadedExecutable_GetExecutable_Args");
    args->out = args->handle;
    return NULL;
}

static void *executable_destroy(rn_pjrt_handle_args *args) {
    CHECK(24, "PJRT_Executable_Destroy_Args");
    return NULL;
}

static void *program_memory(rn_pjrt_program_memory *args) {
    const fake_program *p = &((fake_executable *)args->executable)->program;
    CHECK(144, "PJRT_Executable_GetCompiledMemoryStats_Args");
    if (told("no_stats")) return fail(12, "GetCompiledMemoryStats is not implemented");
    for (int i = 0; i < p->argument_count; i++) { // of one device
        fake_tensor part = fake_part_shape(&p->arguments[i], p->argument_split[i], p->partitions);
        args->argument_bytes += fake_bytes(&part);
        if (p->alias[i] >= 0) args->alias_bytes += fake_bytes(&part);
    }
    for (int i = 0; i < p->result_count; i++) {
        fake_tensor part = fake_part_shape(&p->results[i], p->result_split[i], p->partitions);
        args->output_bytes += fake_bytes(&part);
    }
    args->temporary_bytes = fake_temporary_bytes(p);
    return NULL;
}

static void *serialize(rn_pjrt_serialize_args *args) {
    const fake_executable *e = args->executable;
    CHECK(56, "PJRT_Executable_Serialize_Args");
    args->data = e->text;
    args->data_bytes = e->bytes;
    return NULL;
}

static void *deserialize(rn_pjrt_deserialize_args *args) {
    char error[500];
    CHECK(64, "PJRT_Executable_DeserializeAndLoad_Args");
    args->executable = make_executable(args->data, args->data_bytes, error, sizeof error);
    return args->executable ? NULL : fail(3, "Serialized executable is empty");
}

// ---- running ------------------------------------------------------------------------------------

static void *check_arguments(const fake_program *p, const rn_pjrt_execute_args *args) {
    if ((int)args->device_count != p->partitions)
        return fail(3, "Attempted to execute with another number of argument lists");
    if ((int)args->argument_count != p->argument_count)
        return fail(3, "Execution supplied another number of arguments");
    for (int d = 0; d < p->partitions; d++)
        for (int i = 0; i < p->argument_count; i++) {
            const fake_buffer *buffer = args->arguments[d][i];
            fake_tensor part =
                fake_part_shape(&p->arguments[i], p->argument_split[i], p->partitions);
            if (!buffer || buffer->deleted) return fail(3, "Buffer has been deleted or donated.");
            if (buffer->device != ((const fake_buffer *)args->arguments[d][0])->device)
                return fail(3, "Buffer passed to Execute() is on another device");
            if (fake_bytes(&buffer->tensor) != fake_bytes(&part))
                return fail(3, "E0102: RuntimeProgramInputMismatch");
        }
    return NULL;
}

// An argument as a whole, from the parts of all devices; it owns its data.
static fake_tensor gather_argument(const fake_program *p, const rn_pjrt_execute_args *args, int i) {
    fake_tensor whole = p->arguments[i];
    whole.data = malloc((size_t)(fake_elements(&whole) + 1) * sizeof *whole.data);
    for (int d = 0; d < (p->argument_split[i] < 0 ? 1 : p->partitions); d++)
        fake_copy_part(&whole, &((fake_buffer *)args->arguments[d][i])->tensor,
                       p->argument_split[i], d, false);
    return whole;
}

// To every device its part.
static void divide_result(const fake_program *p, const rn_pjrt_execute_args *args, int i,
                          fake_tensor *whole) {
    for (int d = 0; d < p->partitions; d++) {
        fake_tensor part = fake_part_shape(&p->results[i], p->result_split[i], p->partitions);
        int device = ((fake_buffer *)args->arguments[d][0])->device;
        if (whole->data) {
            part.data = malloc((size_t)(fake_elements(&part) + 1) * sizeof *part.data);
            fake_copy_part(whole, &part, p->result_split[i], d, true);
        }
        args->outputs[d][i] = make_buffer(part, device);
    }
    fake_free(whole);
}

static bool is_kept(const rn_pjrt_execute_options *options, int argument) {
    for (size_t i = 0; i < options->not_donated_count; i++)
        if (options->not_donated[i] == argument) return true;
    return false;
}

// Runs it, and tells what failed.
static void run(const fake_program *p, const rn_pjrt_execute_args *args, fake_tensor *results,
                fake_error *error) {
    const fake_tensor *arguments[FAKE_ARGUMENTS];
    fake_tensor wholes[FAKE_ARGUMENTS];
    for (int i = 0; i < p->argument_count; i++) {
        wholes[i] = gather_argument(p, args, i);
        arguments[i] = &wholes[i];
    }
    if (told("oom_run")) {
        error->code = 8;
        snprintf(error->message, sizeof error->message,
                 "nrt_tensor_allocate status=4 message=\"Allocation Failure\"");
    } else if (!fake_run(p, arguments, results, error->message, sizeof error->message)) {
        error->code = 13;
    } else if (told("wrong")) {
        memcpy(results[0].data, arguments[0]->data, sizeof(double));
    }
    for (int i = 0; i < p->argument_count; i++)
        fake_free(&wholes[i]);
}

static void *execute(rn_pjrt_execute_args *args) {
    const fake_program *p = &((fake_executable *)args->executable)->program;
    fake_tensor results[FAKE_ARGUMENTS] = {0};
    fake_error error = {0};
    CHECK(80, "PJRT_LoadedExecutable_Execute_Args");
    void *wrong = check(args->options, 120, "PJRT_ExecuteOptions");
    if (!wrong) wrong = check_arguments(p, args);
    if (wrong) return wrong;
    for (int i = 0; told("no_donation") && i < p->argument_count; i++)
        if (p->alias[i] >= 0 && !is_kept(args->options, i))
            return fail(13, "An input was configured to be must-alias at compile time");
    run(p, args, results, &error);
    for (int i = 0; i < p->result_count; i++)
        divide_result(p, args, i, &results[i]);
    for (int d = 0; d < p->partitions; d++) {
        for (int i = 0; i < p->argument_count; i++)
            if (p->alias[i] >= 0 && !is_kept(args->options, i)) forget(args->arguments[d][i]);
        if (args->done) args->done[d] = make_event(&error);
    }
    return NULL;
}

// ---- the table ----------------------------------------------------------------------------------

static struct {
    rn_pjrt_api api;
    void *functions[134]; // 0.104 has 134
} table = {.api = {.bytes = sizeof(rn_pjrt_api) + 134 * sizeof(void *), .version = {.minor = 104}}};

typedef void *(*any_function)(void *);
static void set(rn_pjrt_function number, any_function function) {
    memcpy(&table.api.functions[number], &function, sizeof function);
}

const rn_pjrt_api *GetPjrtApi(void);
__attribute__((visibility("default"))) const rn_pjrt_api *GetPjrtApi(void) {
    if (told("abort")) abort();
    if (told("exit")) {
        fprintf(stderr, "Unknown flag in XLA_FLAGS: --xla_no_such_flag=1\n");
        exit(1);
    }
    while (told("hang"))
        pause();
    table.api.version.minor = told("old") ? 40 : told("new") ? 200 : 104;
    set(RN_PJRT_ERROR_DESTROY, (any_function)error_destroy);
    set(RN_PJRT_ERROR_MESSAGE, (any_function)error_message);
    set(RN_PJRT_ERROR_CODE, (any_function)error_code);
    set(RN_PJRT_PLUGIN_INITIALIZE, (any_function)initialize);
    set(RN_PJRT_EVENT_DESTROY, (any_function)destroy_plain);
    set(RN_PJRT_EVENT_AWAIT, (any_function)event_await);
    set(RN_PJRT_CLIENT_CREATE, (any_function)client_create);
    set(RN_PJRT_CLIENT_DESTROY, (any_function)client_destroy);
    set(RN_PJRT_CLIENT_PLATFORM_NAME, (any_function)platform_name);
    set(RN_PJRT_CLIENT_PLATFORM_VERSION, (any_function)platform_version);
    set(RN_PJRT_CLIENT_ADDRESSABLE_DEVICES, (any_function)devices);
    set(RN_PJRT_CLIENT_COMPILE, (any_function)compile);
    set(RN_PJRT_CLIENT_BUFFER_FROM_HOST, (any_function)from_host);
    set(RN_PJRT_DESCRIPTION_KIND, (any_function)kind);
    set(RN_PJRT_DEVICE_DESCRIPTION, (any_function)description);
    set(RN_PJRT_DEVICE_LOCAL_ID, (any_function)local_id);
    set(RN_PJRT_DEVICE_MEMORY_STATS, (any_function)device_memory);
    set(RN_PJRT_EXECUTABLE_DESTROY, (any_function)executable_destroy);
    set(RN_PJRT_EXECUTABLE_SERIALIZE, (any_function)serialize);
    set(RN_PJRT_LOADED_DESTROY, (any_function)loaded_destroy);
    set(RN_PJRT_LOADED_EXECUTABLE, (any_function)get_executable);
    set(RN_PJRT_LOADED_EXECUTE, (any_function)execute);
    set(RN_PJRT_DESERIALIZE_AND_LOAD, (any_function)deserialize);
    set(RN_PJRT_BUFFER_DESTROY, (any_function)buffer_destroy);
    set(RN_PJRT_BUFFER_TO_HOST, (any_function)to_host);
    set(RN_PJRT_BUFFER_READY_EVENT, (any_function)ready);
    set(RN_PJRT_EXECUTABLE_MEMORY_STATS, (any_function)program_memory);
    return &table.api;
}
