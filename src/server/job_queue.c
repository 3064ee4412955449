// job_queue.c — clients in turn, each with a list of jobs.
#include "server/job_queue.h"

#include "memory/account.h"

rn_status rn_job_queue_init(rn_job_queue *queue, uint32_t capacity) {
    void *block = NULL;
    *queue = (rn_job_queue){0};
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, capacity, sizeof(rn_job_queue_client), &block));
    queue->clients = block;
    queue->capacity = capacity;
    for (uint32_t i = capacity; i-- > 0;) {
        queue->clients[i].next = queue->unused;
        queue->unused = &queue->clients[i];
    }
    return RN_OK;
}

void rn_job_queue_free(rn_job_queue *queue) {
    rn_free(RN_HOST_IO, queue->clients, queue->capacity * sizeof *queue->clients);
    *queue = (rn_job_queue){0};
}

// ---- clients ------------------------------------------------------------------------------------

// The last in turn.
static rn_job_queue_client *add_client(rn_job_queue *queue, uint64_t client) {
    rn_job_queue_client **end = &queue->turn, *added = queue->unused;
    while (*end)
        end = &(*end)->next;
    queue->unused = added->next;
    *added = (rn_job_queue_client){.client = client};
    return *end = added;
}

static rn_job_queue_client *find_client(rn_job_queue *queue, uint64_t client) {
    rn_job_queue_client *at = queue->turn;
    while (at && at->client != client)
        at = at->next;
    return at;
}

// One whose last job is gone leaves the line.
static void drop_client(rn_job_queue *queue, rn_job_queue_client *client) {
    rn_job_queue_client **at = &queue->turn;
    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    client->next = queue->unused;
    queue->unused = client;
}

// To the end of the line.
static void end_turn(rn_job_queue *queue) {
    rn_job_queue_client **end = &queue->turn, *client = queue->turn;
    if (!client->next) return;
    queue->turn = client->next;
    while (*end)
        end = &(*end)->next;
    client->next = NULL;
    *end = client;
}

// ---- jobs ---------------------------------------------------------------------------------------

bool rn_job_queue_push(rn_job_queue *queue, rn_job *job) {
    if (queue->count == queue->capacity) return false;
    rn_job_queue_client *client = find_client(queue, job->client);
    if (!client) client = add_client(queue, job->client);
    job->next = NULL;
    if (client->last)
        client->last->next = job;
    else
        client->first = job;
    client->last = job;
    queue->count++;
    return true;
}

rn_job *rn_job_queue_front(const rn_job_queue *queue) {
    return queue->turn ? queue->turn->first : NULL;
}

// `before` is the job in front of it, or NULL.
static void unlink_job(rn_job_queue *queue, rn_job_queue_client *client, rn_job *before,
                       rn_job *job) {
    *(before ? &before->next : &client->first) = job->next;
    if (client->last == job) client->last = before;
    job->next = NULL;
    queue->count--;
    if (!client->first) drop_client(queue, client);
}

rn_job *rn_job_queue_pop(rn_job_queue *queue) {
    rn_job_queue_client *client = queue->turn;
    if (!client) return NULL;
    rn_job *job = client->first;
    bool more = job->next != NULL;
    unlink_job(queue, client, NULL, job);
    if (more) end_turn(queue);
    return job;
}

bool rn_job_queue_remove(rn_job_queue *queue, rn_job *job) {
    rn_job_queue_client *client = find_client(queue, job->client);
    rn_job *before = NULL, *at = client ? client->first : NULL;
    while (at && at != job) {
        before = at;
        at = at->next;
    }
    if (!at) return false;
    unlink_job(queue, client, before, at);
    return true;
}

// Each client's first is its oldest.
rn_job *rn_job_queue_pop_older(rn_job_queue *queue, uint64_t time_ns) {
    for (rn_job_queue_client *client = queue->turn; client; client = client->next) {
        rn_job *job = client->first;
        if (job->entered_ns >= time_ns) continue;
        unlink_job(queue, client, NULL, job);
        return job;
    }
    return NULL;
}
