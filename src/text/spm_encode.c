// spm_encode.c — normalised text becomes ids; for BPE it is cut first where no piece could cross.
//
//     ▁the|▁cat|▁sat|▁on|▁the|▁mat      stretches of English; the second "▁the" is remembered
//
// Cutting changes nothing: joining inside a stretch never depends on another. It makes the work
// small (queues of a few entries) and repeatable: what a stretch became stands in the output, and a
// small table remembers where. A vocabulary with unused pieces is the exception: how they are taken
// apart depends on the whole text.
#include "text/spm_internal.h"

#include "base/checked.h"
#include "base/map.h"

#include <stddef.h>

// ---- blocks -------------------------------------------------------------------------------------

rn_status rn_spm_block_grow(rn_spm_block *block, size_t bytes) {
    void *data = NULL;
    size_t grown = block->bytes + block->bytes / 2;
    if (grown < bytes) grown = bytes;
    RN_TRY(rn_alloc(RN_HOST_OTHER, grown, &data));
    if (block->bytes) memcpy(data, block->data, block->bytes);
    rn_spm_block_free(block);
    *block = (rn_spm_block){data, grown, true};
    return RN_OK;
}

void rn_spm_block_free(rn_spm_block *block) {
    if (block->owned) rn_free(RN_HOST_OTHER, block->data, block->bytes);
    *block = (rn_spm_block){0};
}

// ---- ids ----------------------------------------------------------------------------------------

static inline rn_status push(rn_tokens *out, uint32_t id) {
    if (out->count == out->capacity) return rn_tokens_push(out, id);
    out->ids[out->count++] = id;
    return RN_OK;
}

// A run of unknown pieces is one of them.
static rn_status emit_unknown(rn_spm_work *work, const char *text, size_t bytes) {
    const rn_spm *spm = work->spm;
    if (spm->options.byte_fallback) {
        for (size_t i = 0; i < bytes; i++)
            RN_TRY(push(work->out, spm->bytes[(uint8_t)text[i]]));
        return RN_OK;
    }
    work->met_unknown = true;
    if (work->after_unknown) return RN_OK;
    work->after_unknown = true;
    return push(work->out, spm->options.unknown);
}

rn_status rn_spm_emit(rn_spm_work *work, const char *text, size_t bytes, uint32_t id) {
    if (id == RN_NO_TOKEN || id == work->spm->options.unknown)
        return emit_unknown(work, text, bytes);
    work->after_unknown = false;
    return push(work->out, id);
}

// ---- stretches ----------------------------------------------------------------------------------

static bool joined(const rn_spm *spm, const char *text, size_t bytes) {
    uint8_t first = (uint8_t)*text;
    if (first == (uint8_t)*RN_SPM_BLANK && rn_spm_is_blank(text, bytes)) first = RN_SPM_JOIN_BLANK;
    return spm->joins[(uint8_t)text[-1]][first / 32] >> first % 32 & 1;
}

// Length of the stretch at text[0]: symbol by symbol as BPE takes them (rn_spm_symbol_bytes), since
// a place inside one is no place to cut.
static size_t stretch_bytes(const rn_spm *spm, rn_str text) {
    size_t at = rn_spm_symbol_bytes(spm, text.data, text.bytes);
    while (at < text.bytes && joined(spm, text.data + at, text.bytes - at))
        at += rn_spm_symbol_bytes(spm, text.data + at, text.bytes - at);
    return at;
}

// Where a stretch was encoded before: its ids stand in the output. Direct-mapped: the latest wins.
typedef struct memory_entry {
    const char *text; // normalised; NULL: nothing here
    uint32_t bytes, count;
    size_t first; // of its ids in the output
} memory_entry;

#define MEMORY_ENTRIES    4096
#define MEMORY_BYTES      (MEMORY_ENTRIES * sizeof(memory_entry))
#define MEMORY_LONGEST    64   // bytes of a stretch worth remembering
#define MEMORY_WORTHWHILE 4096 // bytes of text

static bool recall(rn_spm_work *work, const memory_entry *entry, rn_str text, rn_status *out) {
    if (!entry->text || entry->bytes != text.bytes ||
        memcmp(entry->text, text.data, text.bytes) != 0)
        return false;
    *out = RN_OK;
    for (size_t i = 0; i < entry->count && *out == RN_OK; i++)
        *out = push(work->out, work->out->ids[entry->first + i]);
    work->after_unknown = false;
    return true;
}

// Unknown pieces without bytes are not remembered: what they become depends on what stands before.
static rn_status encode_remembering(rn_spm_work *work, memory_entry *memory, rn_str text) {
    if (text.bytes > MEMORY_LONGEST) return rn_spm_encode_bpe(work, text);
    rn_status s = RN_OK;
    memory_entry *entry = &memory[rn_hash(text.data, text.bytes, 0) % MEMORY_ENTRIES];
    if (recall(work, entry, text, &s)) return s;
    size_t first = work->out->count;
    work->met_unknown = false;
    RN_TRY(rn_spm_encode_bpe(work, text));
    if (!work->met_unknown)
        *entry = (memory_entry){text.data, (uint32_t)text.bytes,
                                (uint32_t)(work->out->count - first), first};
    return RN_OK;
}

static rn_status encode_bpe(rn_spm_work *work, rn_str text) {
    memory_entry *memory = NULL;
    rn_status s = RN_OK;
    if (work->spm->has_unused) return rn_spm_encode_bpe(work, text);
    if (text.bytes >= MEMORY_WORTHWHILE)
        RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, MEMORY_BYTES, (void **)&memory));
    for (size_t bytes; s == RN_OK && text.bytes;
         text = (rn_str){text.data + bytes, text.bytes - bytes}) {
        bytes = stretch_bytes(work->spm, text);
        rn_str stretch = {text.data, bytes};
        s = memory ? encode_remembering(work, memory, stretch) : rn_spm_encode_bpe(work, stretch);
    }
    rn_free(RN_HOST_OTHER, memory, memory ? MEMORY_BYTES : 0);
    return s;
}

// ---- words and characters -----------------------------------------------------------------------

static size_t word_bytes(rn_str text) {
    size_t at = rn_spm_width(text.data, text.bytes);
    while (at < text.bytes && !rn_spm_is_blank(text.data + at, text.bytes - at))
        at += rn_spm_width(text.data + at, text.bytes - at);
    return at;
}

static rn_status encode_parts(rn_spm_work *work, rn_str text) {
    const rn_spm *spm = work->spm;
    for (size_t bytes; text.bytes; text = (rn_str){text.data + bytes, text.bytes - bytes}) {
        bytes = spm->options.algorithm == RN_SPM_WORD
                    ? word_bytes(text)
                    : rn_spm_symbol_bytes(spm, text.data, text.bytes);
        uint32_t id = rn_spm_trie_find(&spm->normal, (rn_str){text.data, bytes});
        RN_TRY(rn_spm_emit(work, text.data, bytes, id));
    }
    return RN_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status encode(rn_spm_work *work, rn_str text, bool first) {
    RN_TRY(rn_spm_normalize(work, text, first, &text));
    if (text.bytes > INT32_MAX)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the text has %zu bytes", text.bytes),
                       "encode texts of at most 2 GiB");
    switch (work->spm->options.algorithm) {
    case RN_SPM_BPE:
        return encode_bpe(work, text);
    case RN_SPM_UNIGRAM:
        return rn_spm_encode_unigram(work, text);
    default:
        return encode_parts(work, text);
    }
}

rn_status rn_spm_encode(const rn_spm *spm, rn_str text, bool first, rn_tokens *out) {
    max_align_t texts[64], parts[128], queue[64];
    rn_spm_work work = {.spm = spm,
                        .out = out,
                        .text = {texts, sizeof texts, false},
                        .parts = {parts, sizeof parts, false},
                        .heap = {queue, sizeof queue, false}};
    size_t before = out->count;
    rn_status s = encode(&work, text, first);
    if (s != RN_OK) out->count = before;
    rn_spm_block_free(&work.text);
    rn_spm_block_free(&work.parts);
    rn_spm_block_free(&work.heap);
    rn_spm_block_free(&work.splits);
    rn_spm_block_free(&work.stack);
    return s;
}
