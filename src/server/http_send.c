// http_send.c — an answer on its way: its head and parts of its body go through one small buffer; a
// body that lies in memory goes from where it is.
//
//     out   | head or frame of a chunk | part | ...          sent .. out_bytes are still to go
#include "server/http_parts.h"

#include "base/checked.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    FRAME_BYTES = 8,         // room for a chunk's size line
    LINGER_BYTES = 64 << 20, // read from one that was told to stop
    SLICE_BYTES = 16 << 10,  // of memory, in one go
};

// ---- the beginning ------------------------------------------------------------------------------

static void frame_whole(rn_client *client, rn_head_text *head, rn_http_source *source,
                        uint64_t length) {
    if (length != UINT64_MAX)
        rn_head_add_number(head, "Content-Length", length);
    else if (client->is_http10)
        client->close = true; // its end is the connection's
    else {
        rn_head_add(head, "Transfer-Encoding", "chunked");
        source->chunked = true;
    }
    if (client->close || atomic_load(&client->http->closing)) {
        client->close = true;
        rn_head_add(head, "Connection", "close");
    }
}

rn_step rn_http_send_begin(rn_client *client, rn_head_text *head, rn_http_source source,
                           uint64_t length) {
    client->source = source;
    client->may_probe = false;
    client->out = rn_http_block_take(&client->http->outputs);
    if (!client->out) return RN_STEP_CLOSE;
    frame_whole(client, head, &client->source, length);
    memcpy(client->out, head->text, head->bytes);
    memcpy(client->out + head->bytes, "\r\n", 2);
    client->out_bytes = head->bytes + 2;
    client->sent = 0;
    if (client->is_head) {
        if (source.file >= 0) close(source.file);
        client->source = (rn_http_source){.file = -1};
    }
    rn_str *memory = &client->source.memory; // a short one goes in the same packet
    if (memory->bytes && memory->bytes <= RN_HTTP_OUTPUT_BYTES - client->out_bytes) {
        memcpy(client->out + client->out_bytes, memory->data, memory->bytes);
        client->out_bytes += memory->bytes;
        *memory = (rn_str){NULL, 0};
    }
    client->state = RN_CLIENT_SEND;
    return RN_STEP_ON;
}

// ---- parts --------------------------------------------------------------------------------------

static rn_step put(rn_client *client, size_t begin, size_t end) {
    client->sent = begin;
    client->out_bytes = end;
    return RN_STEP_ON;
}

static rn_step fill_from_file(rn_client *client) {
    rn_http_source *source = &client->source;
    size_t bytes = (size_t)rn_min_u64(source->bytes, RN_HTTP_PART_BYTES);
    ssize_t got = read(source->file, client->out, bytes);
    if (got <= 0) return RN_STEP_CLOSE; // it became shorter, or the disk failed
    source->bytes -= (uint64_t)got;
    return put(client, 0, (size_t)got);
}

static rn_step fill_chunk(rn_client *client, size_t bytes) {
    char line[FRAME_BYTES + 1];
    int length = snprintf(line, sizeof line, "%zx\r\n", bytes);
    memcpy(client->out + FRAME_BYTES - length, line, (size_t)length);
    memcpy(client->out + FRAME_BYTES + bytes, "\r\n", 2);
    return put(client, FRAME_BYTES - (size_t)length, FRAME_BYTES + bytes + 2);
}

static rn_step end_reply(rn_client *client) {
    bool chunked = client->source.chunked;
    client->source.reply = false;
    if (chunked) memcpy(client->out, "0\r\n\r\n", 5);
    return put(client, 0, chunked ? 5 : 0);
}

static rn_step fill_from_reply(rn_client *client) {
    for (;;) {
        size_t count = 0, from = client->source.chunked ? FRAME_BYTES : 0;
        rn_reply_news news =
            rn_reply_read(&client->reply, client->out + from, RN_HTTP_PART_BYTES, &count);
        if (news == RN_REPLY_BYTES_MADE)
            return from ? fill_chunk(client, count) : put(client, 0, count);
        if (news == RN_REPLY_END) return end_reply(client);
        if (news == RN_REPLY_BROKEN || rn_job_get_state(client->job) == RN_JOB_CANCELLED)
            return RN_STEP_CLOSE;
        if (rn_http_job_sleep(client)) return RN_STEP_SLEEP;
    }
}

static rn_step end_answer(rn_client *client) {
    bool close_after = client->close;
    rn_http_request_end(client);
    return close_after ? rn_http_linger_begin(client) : RN_STEP_ON;
}

static rn_step fill(rn_client *client) {
    const rn_http_source *source = &client->source;
    if (source->file >= 0 && source->bytes) return fill_from_file(client);
    return source->reply ? fill_from_reply(client) : end_answer(client);
}

// ---- sending ------------------------------------------------------------------------------------

static rn_step push(rn_client *client, const char *data, size_t bytes, size_t *out_sent) {
    rn_wire_news news = rn_wire_send(&client->wire, data, bytes, out_sent);
    if (news == RN_WIRE_END) return RN_STEP_CLOSE;
    // What is not counted has no memory to wait in: a probe's answer goes out at once, or not.
    if (news != RN_WIRE_DONE && !client->counted) return RN_STEP_CLOSE;
    if (news == RN_WIRE_IN) return RN_STEP_IN;
    if (news == RN_WIRE_OUT) return RN_STEP_OUT;
    client->active_ns = rn_clock_ns();
    return RN_STEP_ON;
}

rn_step rn_http_send(rn_client *client) {
    size_t sent = 0;
    rn_str *memory = &client->source.memory;
    if (client->sent < client->out_bytes) {
        rn_step step =
            push(client, client->out + client->sent, client->out_bytes - client->sent, &sent);
        client->sent += sent;
        return step;
    }
    if (memory->bytes == 0) return fill(client);
    size_t slice = memory->bytes < SLICE_BYTES ? memory->bytes : SLICE_BYTES;
    rn_step step = push(client, memory->data, slice, &sent);
    *memory = (rn_str){memory->data + sent, memory->bytes - sent};
    return step;
}

// ---- the end ------------------------------------------------------------------------------------

// A connection that is closed while something is unread is reset, and the last answer may be lost
// with it: so what is still sent is read, for a while.
rn_step rn_http_linger_begin(rn_client *client) {
    rn_wire_finish(&client->wire);
    client->state = RN_CLIENT_LINGER;
    client->thrown_bytes = 0;
    client->since_ns = rn_clock_ns();
    return RN_STEP_ON;
}

rn_step rn_http_linger(rn_client *client) {
    char nothing[4096];
    size_t bytes = 0;
    rn_wire_news news = rn_wire_receive(&client->wire, nothing, sizeof nothing, &bytes);
    client->thrown_bytes += bytes;
    if (news == RN_WIRE_DONE && client->thrown_bytes <= LINGER_BYTES) return RN_STEP_ON;
    return news == RN_WIRE_IN ? RN_STEP_IN : RN_STEP_CLOSE;
}
