// http_head_fuzz.c — any bytes as a request: a head, and behind it a body in chunks. However they
// are cut, the same comes out; what comes out is within the bytes that went in, and has nothing in
// it that would end it elsewhere.
#include "base/str.h"
#include "server/http_head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static bool is_inside(const char *text, size_t bytes, const char *begin, size_t size) {
    return text >= begin && bytes <= size && (size_t)(text - begin) <= size - bytes;
}

static void check_head(const rn_http_head *head, const char *begin, size_t size) {
    require(size <= RN_HTTP_HEAD_BYTES && head->field_count <= RN_HTTP_FIELDS);
    require(is_inside(head->method, strlen(head->method), begin, size));
    require(is_inside(head->path, strlen(head->path), begin, size));
    require(head->path[0] == '/' || strcmp(head->path, "*") == 0);
    require(!head->query.data || is_inside(head->query.data, head->query.bytes, begin, size));
    require(!head->query.bytes || head->query.data[head->query.bytes - 1] == 0);
    require(!(head->has_length && head->chunked));
    for (uint32_t i = 0; i < head->field_count; i++) {
        const rn_http_field *f = &head->fields[i];
        require(is_inside(f->name.data, f->name.bytes, begin, size) && f->name.bytes);
        require(is_inside(f->value.data, f->value.bytes, begin, size));
        for (size_t k = 0; k < f->value.bytes; k++)
            require((unsigned char)f->value.data[k] >= ' ' || f->value.data[k] == '\t');
    }
}

// Its news and, where it is whole, its bytes.
static rn_head_news read_head(const uint8_t *data, size_t size, size_t step, size_t *out_bytes) {
    static char room[16384];
    rn_head_news news = RN_HEAD_MORE;
    rn_http_head head;
    rn_problem problem = {0};
    size_t scanned = 0;
    if (size > sizeof room) size = sizeof room;
    if (size) memcpy(memory, data, size);
    for (size_t have = 0; news == RN_HEAD_MORE && have < size;) {
        have = size - have < step ? size : have + step;
        news = rn_http_head_read(memory, have, &scanned, &head, out_bytes, &problem);
    }
    if (news == RN_HEAD_WRONG) require(problem.http >= 400 && problem.code && problem.message[0]);
    if (news == RN_HEAD_WHOLE) check_head(&head, memory, *out_bytes);
    return news;
}

static uint64_t read_chunks(const uint8_t *data, size_t size, size_t step) {
    rn_chunks chunks = {.at = 0};
    rn_chunks_news news = RN_CHUNKS_MORE;
    uint64_t sum = 0;
    for (size_t at = 0; at < size && news < RN_CHUNKS_END;) {
        rn_str piece = {NULL, 0};
        size_t used = 0, have = size - at < step ? size - at : step;
        news = rn_chunks_take(&chunks, (const char *)data + at, have, &used, &piece);
        require(used <= have && (used == have || news != RN_CHUNKS_MORE));
        if (news == RN_CHUNKS_DATA)
            for (size_t i = 0; i < piece.bytes; i++)
                sum = sum * 31 + (unsigned char)piece.data[i] + 1;
        at += used;
        if (news == RN_CHUNKS_END) sum = sum * 31 + at;
    }
    return sum * 4 + (news == RN_CHUNKS_DATA ? RN_CHUNKS_MORE : news);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t whole = 0, cut = 0;
    rn_head_news news = read_head(data, size, SIZE_MAX, &whole);
    if (size <= 512 || size % 16 == 0) {
        require(read_head(data, size, 1 + size % 13, &cut) == news);
        require(news != RN_HEAD_WHOLE || cut == whole);
    }
    size_t from = news == RN_HEAD_WHOLE ? whole : 0;
    if (from > size) from = size;
    require(read_chunks(data + from, size - from, SIZE_MAX) ==
            read_chunks(data + from, size - from, 1 + size % 7));
    return 0;
}
