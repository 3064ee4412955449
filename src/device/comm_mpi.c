// comm_mpi.c — ranks of MPI, whose library is found at run time: Open MPI, MPICH and its relatives,
// or the standard ABI of MPI 5.
//
// Handles (of the communicator, of types, of requests) are addresses in Open MPI and in the
// standard ABI, ints in MPICH. Ten functions are called, all with handles as 64-bit numbers: an int
// is the lower half of its register on the processors that we build for (x86-64, AArch64), and the
// lower half of a request in memory. Nothing but these numbers differs between the three.
//
// Messages have tag 1 and are sent in parts of at most 1 GiB (counts are ints); notices have tag 2,
// and a receive for one of each rank is always open.
#include "device/comm.h"

#include "base/checked.h"
#include "memory/account.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FROM RN_HOST_IO
enum { TAG_DATA = 1, TAG_NOTICE = 2, PART_BYTES = 1 << 30, SERIALIZED = 2, KINDS = 4 };

typedef uint64_t handle;

typedef struct mpi {
    void *library;
    int (*init_thread)(int *, char ***, int, int *);
    int (*finalize)(void);
    int (*comm_rank)(handle, int *);
    int (*comm_size)(handle, int *);
    int (*isend)(const void *, int, handle, int, int, handle, handle *);
    int (*irecv)(void *, int, handle, int, int, handle, handle *);
    int (*test)(handle *, int *, void *);
    int (*get_library_version)(char *, int *);
    int (*comm_set_errhandler)(handle, handle);
    int (*abi_get_version)(int *, int *); // NULL: not of the standard ABI
    handle world, byte, errors_return;    // errors_return 0: not known
    bool begun;
    struct line *lines; // (size)
    uint32_t line_count;
} mpi;

// Notices from and to a rank.
typedef struct line {
    rn_notice in, out[KINDS];
    handle receive, sends[KINDS];
    bool listening, busy[KINDS];
} line;

// ---- the library --------------------------------------------------------------------------------

static bool find_symbols(mpi *m) {
    const struct {
        const char *name;
        void *to;
        bool optional;
    } symbols[] = {
        {"MPI_Init_thread", &m->init_thread, false},
        {"MPI_Finalize", &m->finalize, false},
        {"MPI_Comm_rank", &m->comm_rank, false},
        {"MPI_Comm_size", &m->comm_size, false},
        {"MPI_Isend", &m->isend, false},
        {"MPI_Irecv", &m->irecv, false},
        {"MPI_Test", &m->test, false},
        {"MPI_Get_library_version", &m->get_library_version, false},
        {"MPI_Comm_set_errhandler", &m->comm_set_errhandler, false},
        {"MPI_Abi_get_version", &m->abi_get_version, true},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(m->library, symbols[i].name);
        if (!found && !symbols[i].optional) return false;
        memcpy(symbols[i].to, &found, sizeof found);
    }
    return true;
}

static handle address_of(const mpi *m, const char *name) {
    return (uintptr_t)dlsym(m->library, name);
}

static void find_handles(mpi *m, const char *name) {
    if (address_of(m, "ompi_mpi_comm_world")) {
        m->world = address_of(m, "ompi_mpi_comm_world");
        m->byte = address_of(m, "ompi_mpi_byte");
        m->errors_return = address_of(m, "ompi_mpi_errors_return");
    } else if (strstr(name, "mpi_abi")) {
        m->world = 0x101;
        m->byte = 0x247;
    } else {
        m->world = 0x44000000;
        m->byte = 0x4c00010d;
        m->errors_return = 0x54000001;
    }
}

static bool open_library(mpi *m, const char *name) {
    m->library = dlopen(name, RTLD_NOW | RTLD_GLOBAL); // its plugins look for its symbols
    if (!m->library) return false;
    find_handles(m, name);
    return true;
}

// The library that belongs to the launcher first.
static rn_status find_library(mpi *m, const rn_comm_options *options) {
    static const char *const open_mpi[] = {"libmpi.so.40",
                                           "libmpi_abi.so.1",
                                           "libmpi_abi.so.0",
                                           "libmpi_abi.so",
                                           "libmpich.so.12",
                                           "libmpi.so.12",
                                           NULL};
    static const char *const mpich[] = {"libmpich.so.12",
                                        "libmpi.so.12",
                                        "libmpi_abi.so.1",
                                        "libmpi_abi.so.0",
                                        "libmpi_abi.so",
                                        "libmpi.so.40",
                                        NULL};
    const char *named = options->library ? options->library : getenv("RATION_MPI_LIBRARY");
    const char *const *names =
        getenv("OMPI_COMM_WORLD_SIZE") || !getenv("PMI_SIZE") ? open_mpi : mpich;
    if (named && named[0]) {
        if (!open_library(m, named))
            return rn_fail(RN_NOT_FOUND, "the MPI library cannot be loaded: %s", dlerror());
    } else {
        while (*names && !open_library(m, *names))
            names++;
        if (!*names)
            return rn_hint(rn_fail(RN_NOT_FOUND, "there is no MPI library"),
                           "install Open MPI or MPICH, name the library in RATION_MPI_LIBRARY, or "
                           "start with `ration launch`");
    }
    if (find_symbols(m)) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "the MPI library is of an unknown kind: %s", dlerror());
}

// ---- life ---------------------------------------------------------------------------------------

static void describe(rn_comm *comm, const mpi *m) {
    char text[8192] = "MPI"; // MPI_MAX_LIBRARY_VERSION_STRING of all of them
    int bytes = 0;
    m->get_library_version(text, &bytes);
    text[sizeof text - 1] = 0;
    char *end = text + strcspn(text, ",\n");
    *end = 0;
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' ';
    snprintf(comm->described, sizeof comm->described, "%.100s, %u ranks", text, comm->size);
}

// A library that is not the launcher's comes up as so many jobs of one rank.
static rn_status check_launch(const rn_comm *comm) {
    rn_comm_launch launch = rn_comm_find_launch();
    if (launch.ranks <= 1 || strcmp(launch.kind, "mpi") != 0 || launch.ranks == comm->size)
        return RN_OK;
    return rn_hint(rn_fail(RN_DEVICE,
                           "%s started %u ranks, but each of them is alone: %s is not the "
                           "launcher's library",
                           launch.launcher, launch.ranks, comm->described),
                   "use the mpirun that belongs to it, or name the launcher's library in "
                   "RATION_MPI_LIBRARY");
}

static rn_status listen_to(rn_comm *comm, uint32_t rank) {
    mpi *m = comm->own;
    line *l = &m->lines[rank];
    l->receive = 0;
    l->listening =
        m->irecv(&l->in, sizeof l->in, m->byte, (int)rank, TAG_NOTICE, m->world, &l->receive) == 0;
    return l->listening ? RN_OK : rn_fail(RN_DEVICE, "MPI_Irecv failed");
}

static rn_status open_lines(rn_comm *comm) {
    mpi *m = comm->own;
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, comm->size, sizeof(line), &block));
    m->lines = block;
    m->line_count = comm->size;
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank) RN_TRY(listen_to(comm, r));
    return RN_OK;
}

static rn_status open_mpi(rn_comm *comm, const rn_comm_options *options) {
    void *block = NULL;
    int provided = 0, rank = 0, size = 0;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(mpi), &block));
    mpi *m = comm->own = block;
    RN_TRY(find_library(m, options));
    if (m->init_thread(NULL, NULL, SERIALIZED, &provided) != 0)
        return rn_fail(RN_DEVICE, "MPI_Init_thread failed");
    m->begun = true;
    if (m->comm_rank(m->world, &rank) != 0 || m->comm_size(m->world, &size) != 0 || size < 1 ||
        size > RN_COMM_RANKS || rank < 0 || rank >= size)
        return rn_fail(RN_DEVICE, "MPI says that this is rank %d of %d", rank, size);
    comm->rank = (uint32_t)rank;
    comm->size = (uint32_t)size;
    if (m->errors_return) m->comm_set_errhandler(m->world, m->errors_return);
    describe(comm, m);
    RN_TRY(check_launch(comm));
    return open_lines(comm);
}

static bool is_sent(mpi *m, line *l, uint32_t kind) {
    uint64_t status[8] = {0};
    int done = 0;
    if (l->busy[kind] && (m->test(&l->sends[kind], &done, status) != 0 || done))
        l->busy[kind] = false;
    return !l->busy[kind];
}

// What was said last goes out, for as long as `seconds`.
static void flush(rn_comm *comm, int tenths) {
    mpi *m = comm->own;
    for (int i = 0; i < 100 * tenths; i++) {
        bool all = true;
        for (uint32_t r = 0; r < m->line_count; r++)
            for (uint32_t k = 0; k < KINDS; k++)
                all = is_sent(m, &m->lines[r], k) && all;
        if (all) return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static bool all_said_goodbye(const rn_comm *comm) {
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && (!comm->heard || comm->heard[r].kind != RN_NOTICE_BYE)) return false;
    return true;
}

// MPI_Finalize waits for everybody: after a failure it is left out, and the launcher sees to it.
// The others get a moment for their own last lines, because the launcher ends them when this one
// goes.
static void close_mpi(rn_comm *comm) {
    mpi *m = comm->own;
    if (!m) return;
    bool whole = m->begun && all_said_goodbye(comm);
    if (m->begun) flush(comm, 10);
    if (whole)
        m->finalize();
    else if (m->begun && comm->size > 1)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    if (whole || !m->begun) // else the library may still write there
        rn_free(FROM, m->lines, m->line_count * sizeof(line));
    rn_free(FROM, m, sizeof *m);
}

// ---- messages -----------------------------------------------------------------------------------

static rn_status begin_part(rn_comm *comm, rn_message *message) {
    mpi *m = comm->own;
    uint8_t *at = message->data + message->moved;
    int bytes = (int)rn_min_u64(message->bytes - message->moved, PART_BYTES);
    int peer = (int)message->peer;
    message->own[0] = 0;
    int failed = message->sends
                     ? m->isend(at, bytes, m->byte, peer, TAG_DATA, m->world, &message->own[0])
                     : m->irecv(at, bytes, m->byte, peer, TAG_DATA, m->world, &message->own[0]);
    if (!failed) return RN_OK;
    comm->culprit = message->peer;
    return rn_fail(RN_DEVICE, "MPI cannot reach rank %u", message->peer);
}

static rn_status begin(rn_comm *comm, rn_message *message) {
    message->moved = 0;
    return begin_part(comm, message);
}

static rn_status test(rn_comm *comm, rn_message *message) {
    mpi *m = comm->own;
    uint64_t status[8] = {0}; // of all of them the largest has 32 bytes
    int done = 0;
    if (m->test(&message->own[0], &done, status) != 0) {
        comm->culprit = message->peer;
        return rn_fail(RN_DEVICE, "MPI lost rank %u", message->peer);
    }
    if (!done) return RN_OK;
    message->moved += rn_min_u64(message->bytes - message->moved, PART_BYTES);
    message->done = message->moved == message->bytes;
    return message->done ? RN_OK : begin_part(comm, message);
}

static void notify(rn_comm *comm, uint32_t to, const rn_notice *notice) {
    mpi *m = comm->own;
    line *l = &m->lines[to];
    uint32_t kind = notice->kind < KINDS ? notice->kind : 0;
    if (!is_sent(m, l, kind)) return; // the same was just said
    l->out[kind] = *notice;
    l->sends[kind] = 0;
    l->busy[kind] = m->isend(&l->out[kind], sizeof *notice, m->byte, (int)to, TAG_NOTICE, m->world,
                             &l->sends[kind]) == 0;
}

static bool look(rn_comm *comm, uint32_t from, rn_notice *out) {
    mpi *m = comm->own;
    line *l = &m->lines[from];
    uint64_t status[8] = {0};
    int done = 0;
    if (!l->listening || m->test(&l->receive, &done, status) != 0 || !done) return false;
    *out = l->in;
    l->listening = false;
    bool last = out->kind == RN_NOTICE_BYE || out->kind == RN_NOTICE_FAILED;
    if (!last && listen_to(comm, from) != RN_OK) l->listening = false;
    return true;
}

const rn_comm_table rn_comm_mpi = {"mpi", open_mpi, close_mpi, begin, test, notify, look, NULL};
