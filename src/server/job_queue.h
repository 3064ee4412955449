// job_queue.h — who waits: clients take turns, and of one client the jobs come in order.
//
//     clients in turn:   A ─▶ B ─▶ C ─▶ (A)
//     jobs of each:      a1   b1   c1
//                        a2
//
// A client that sends a hundred requests waits for itself, not the others for it. The job whose
// turn it is stays in front until it fits; nobody overtakes it, so a large one is never starved by
// small ones (what it waits for is freed by those that run, each of which has an end).
//
// No lock and no memory after creation; jobs are linked through rn_job.next.
#ifndef RN_SERVER_JOB_QUEUE_H
#define RN_SERVER_JOB_QUEUE_H

#include "server/job.h"

typedef struct rn_job_queue_client {
    uint64_t client;
    rn_job *first, *last;
    struct rn_job_queue_client *next; // in turn, or among the unused
} rn_job_queue_client;

typedef struct rn_job_queue {
    rn_job_queue_client *clients; // (capacity): one for each job, at worst
    rn_job_queue_client *turn;    // whose turn it is; the last one's next is NULL
    rn_job_queue_client *unused;
    uint32_t count, capacity; // jobs
} rn_job_queue;

RN_MUST_USE rn_status rn_job_queue_init(rn_job_queue *queue, uint32_t capacity);
void rn_job_queue_free(rn_job_queue *queue);
// False: it is full.
bool rn_job_queue_push(rn_job_queue *queue, rn_job *job);
// The job whose turn it is, which stays; NULL: nobody waits.
rn_job *rn_job_queue_front(const rn_job_queue *queue);
// Takes that one out; then it is the next client's turn.
rn_job *rn_job_queue_pop(rn_job_queue *queue);
// Takes out one from anywhere. False: it is not there.
bool rn_job_queue_remove(rn_job_queue *queue, rn_job *job);
// Takes out one that entered before `time_ns`; NULL: none did.
rn_job *rn_job_queue_pop_older(rn_job_queue *queue, uint64_t time_ns);

#endif
