// comm_launch.c — what a launcher's variables say of this process's rank.
#include "device/comm.h"

#include <stdlib.h>
#include <string.h>

bool rn_comm_variable(const char *name, uint32_t *out) {
    const char *text = getenv(name);
    char *end = NULL;
    *out = 0;
    if (!text || text[0] < '0' || text[0] > '9') return false;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || value > RN_COMM_RANKS) return false;
    *out = (uint32_t)value;
    return true;
}

// In the order in which they are looked for: the one nearest to the process first.
typedef struct launcher {
    const char *name, *kind;
    const char *rank, *ranks, *local_rank, *local_ranks; // variables
} launcher;

static const launcher launchers[] = {
    {"ration launch", "tcp", "RATION_RANK", "RATION_RANKS", "RATION_LOCAL_RANK",
     "RATION_LOCAL_RANKS"},
    {"mpirun (Open MPI)", "mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun (MPICH)", "mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"torchrun", "tcp", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"srun", "mpi", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
};

rn_comm_launch rn_comm_find_launch(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const launcher *l = &launchers[i];
        rn_comm_launch found = {.launcher = l->name, .kind = l->kind};
        if (!rn_comm_variable(l->rank, &found.rank)) continue;
        if (!rn_comm_variable(l->ranks, &found.ranks) || found.ranks < 2) continue;
        if (strcmp(l->rank, "RANK") == 0 && !getenv("MASTER_ADDR")) continue; // anybody's name
        rn_comm_variable(l->local_rank, &found.local_rank);
        if (l->local_ranks) rn_comm_variable(l->local_ranks, &found.local_ranks);
        return found;
    }
    return (rn_comm_launch){.kind = "self", .ranks = 1};
}
