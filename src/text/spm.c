// spm.c — a vocabulary: pieces are checked and copied, and the tables that encoding needs are made.
#include "text/spm_internal.h"

#include "base/checked.h"

#include <float.h>
#include <math.h>

#define UNKNOWN_PENALTY 10.0

// ---- the pieces ---------------------------------------------------------------------------------

static rn_status check_piece(const rn_spm_piece *piece, size_t index) {
    if ((int)piece->kind < RN_SPM_NORMAL || piece->kind > RN_SPM_BYTE)
        return rn_fail(RN_UNSUPPORTED, "piece %zu is of the unknown kind %d", index,
                       (int)piece->kind);
    if (piece->text.bytes == 0 && piece->kind != RN_SPM_UNUSED)
        return rn_fail(RN_CORRUPT, "piece %zu is empty", index);
    if (!isfinite(piece->score))
        return rn_fail(RN_CORRUPT, "the score of piece %zu is not a number", index);
    return RN_OK;
}

static rn_status check_pieces(const rn_spm_piece *pieces, size_t count, size_t *out_bytes) {
    *out_bytes = 0;
    if (count == 0) return rn_fail(RN_CORRUPT, "the vocabulary has no pieces");
    if (count > INT32_MAX) return rn_fail(RN_UNSUPPORTED, "the vocabulary has %zu pieces", count);
    for (size_t i = 0; i < count; i++) {
        RN_TRY(check_piece(&pieces[i], i));
        if (!rn_add_size(*out_bytes, pieces[i].text.bytes, out_bytes))
            return rn_fail(RN_CORRUPT, "the pieces' sizes overflow");
    }
    return RN_OK;
}

static rn_status copy_pieces(rn_spm *spm, const rn_spm_piece *pieces, size_t count) {
    RN_TRY(check_pieces(pieces, count, &spm->text_bytes));
    RN_TRY(rn_alloc(RN_HOST_OTHER, spm->text_bytes, (void **)&spm->texts));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof *pieces, (void **)&spm->pieces));
    spm->count = count;
    char *at = spm->texts;
    for (size_t i = 0; i < count; i++) {
        spm->pieces[i] = pieces[i];
        spm->pieces[i].text.data = at;
        if (pieces[i].text.bytes) memcpy(at, pieces[i].text.data, pieces[i].text.bytes);
        at += pieces[i].text.bytes;
        if (pieces[i].kind == RN_SPM_UNUSED) spm->has_unused = true;
    }
    return RN_OK;
}

// ---- what they are ------------------------------------------------------------------------------

static rn_status find_bytes(rn_spm *spm) {
    memset(spm->bytes, 0xff, sizeof spm->bytes);
    for (size_t i = 0; i < spm->count; i++) {
        if (spm->pieces[i].kind != RN_SPM_BYTE) continue;
        int byte = rn_spm_byte(spm->pieces[i].text);
        if (byte < 0)
            return rn_hint(rn_fail(RN_CORRUPT, "byte piece %zu is not spelled as a byte", i),
                           "byte pieces are <0x00> to <0xFF>");
        spm->bytes[byte] = (uint32_t)i;
    }
    if (!spm->options.byte_fallback) return RN_OK;
    for (int byte = 0; byte < 256; byte++)
        if (spm->bytes[byte] == RN_NO_TOKEN)
            return rn_fail(RN_CORRUPT, "unknown text is to be bytes, but there is no <0x%02X>",
                           (unsigned)byte);
    return RN_OK;
}

static rn_status find_unknown(rn_spm *spm) {
    uint32_t *unknown = &spm->options.unknown;
    for (size_t i = 0; i < spm->count && *unknown == RN_NO_TOKEN; i++)
        if (spm->pieces[i].kind == RN_SPM_UNKNOWN) *unknown = (uint32_t)i;
    if (*unknown == RN_NO_TOKEN && !spm->options.byte_fallback)
        return rn_fail(RN_CORRUPT, "the vocabulary has neither an unknown piece nor byte pieces");
    return RN_OK;
}

static rn_status check_special(const rn_spm *spm) {
    const rn_spm_options *o = &spm->options;
    const uint32_t ids[4] = {o->unknown, o->begin, o->end, o->pad};
    static const char *const names[4] = {"unknown", "begin", "end", "pad"};
    for (int i = 0; i < 4; i++)
        if (ids[i] != RN_NO_TOKEN && ids[i] >= spm->count)
            return rn_fail(RN_CORRUPT, "the %s piece is %u, there are %zu", names[i], ids[i],
                           spm->count);
    return RN_OK;
}

// ---- dictionaries -------------------------------------------------------------------------------

// Unigram passes over unused pieces; BPE takes them apart again.
static bool is_normal(const rn_spm *spm, rn_spm_kind kind) {
    return kind == RN_SPM_NORMAL || kind == RN_SPM_USER_DEFINED ||
           (kind == RN_SPM_UNUSED && spm->options.algorithm != RN_SPM_UNIGRAM);
}

static bool belongs(const rn_spm *spm, const rn_spm_trie *trie, const rn_spm_piece *piece) {
    if (piece->text.bytes == 0) return false;
    if (trie == &spm->user) return piece->kind == RN_SPM_USER_DEFINED;
    return is_normal(spm, piece->kind) == (trie == &spm->normal);
}

static rn_status build_trie(rn_spm *spm, rn_spm_trie *trie, rn_spm_key *keys) {
    size_t count = 0;
    for (size_t i = 0; i < spm->count; i++)
        if (belongs(spm, trie, &spm->pieces[i]))
            keys[count++] = (rn_spm_key){.text = spm->pieces[i].text, .id = (uint32_t)i};
    if (count == 0 && trie == &spm->user) return RN_OK;
    return rn_spm_trie_build(trie, RN_HOST_OTHER, keys, count);
}

static rn_status build_tries(rn_spm *spm) {
    rn_spm_key *keys = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, spm->count, sizeof *keys, (void **)&keys));
    rn_status s = build_trie(spm, &spm->normal, keys);
    if (s == RN_OK) s = build_trie(spm, &spm->reserved, keys);
    if (s == RN_OK) s = build_trie(spm, &spm->user, keys);
    rn_free(RN_HOST_OTHER, keys, spm->count * sizeof *keys);
    return s;
}

static void join(rn_spm *spm, char before, uint8_t first) {
    spm->joins[(uint8_t)before][first / 32] |= 1u << first % 32;
}

// A piece that ends inside a blank (no sane one does) counts as one that has it.
static void find_joins(rn_spm *spm, rn_str text) {
    for (size_t i = 1; i < text.bytes; i++) {
        size_t left = text.bytes - i < 3 ? text.bytes - i : 3;
        join(spm, text.data[i - 1], (uint8_t)text.data[i]);
        if (memcmp(text.data + i, RN_SPM_BLANK, left) == 0)
            join(spm, text.data[i - 1], RN_SPM_JOIN_BLANK);
    }
}

static void build_tables(rn_spm *spm) {
    for (size_t i = 0; i < spm->count; i++)
        if (is_normal(spm, spm->pieces[i].kind)) find_joins(spm, spm->pieces[i].text);
    for (int byte = 0; byte < 128; byte++) {
        bool copied = byte != ' ' &&
                      (!spm->user.units ||
                       rn_spm_trie_step(&spm->user, RN_SPM_ROOT, (char)byte) == RN_SPM_NOWHERE);
        spm->plain[byte] = copied && !spm->charsmap.starts[byte];
        spm->plain_before_ascii[byte] = copied && !spm->charsmap.starts_ascii[byte];
    }
}

// ---- scores -------------------------------------------------------------------------------------

// Floats in the order of their values as whole numbers; both zeros are one.
static uint32_t rank_of(float score) {
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, 4);
    return bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
}

// A user-defined piece is worth more than any other way to cover its text: normal scores are below
// zero, and one long piece is better than two short ones.
static float weight_of(const rn_spm_piece *piece) {
    if (piece->kind == RN_SPM_USER_DEFINED) return (float)(0.1 * ((double)piece->text.bytes - 1));
    return piece->score;
}

static void set_scores(rn_spm *spm) {
    bool ranked = spm->options.algorithm == RN_SPM_BPE;
    for (size_t i = 0; i < spm->normal.count; i++) {
        rn_spm_unit *unit = &spm->normal.units[i];
        if (!rn_spm_trie_is_text(unit)) continue;
        if (ranked)
            unit->rank = rank_of(spm->pieces[unit->id].score);
        else
            unit->weight = weight_of(&spm->pieces[unit->id]);
    }
}

static void measure(rn_spm *spm) {
    float least = FLT_MAX;
    spm->reach = 4;
    for (size_t i = 0; i < spm->count; i++) {
        const rn_spm_piece *piece = &spm->pieces[i];
        if (piece->kind == RN_SPM_NORMAL) least = fminf(least, piece->score);
        if (piece->text.bytes > spm->reach) spm->reach = piece->text.bytes;
    }
    spm->unknown_weight =
        spm->options.wide_sums ? (double)least - UNKNOWN_PENALTY : (float)(least - UNKNOWN_PENALTY);
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status fill(rn_spm *spm, const rn_spm_piece *pieces, size_t count) {
    RN_TRY(copy_pieces(spm, pieces, count));
    RN_TRY(find_bytes(spm));
    RN_TRY(find_unknown(spm));
    RN_TRY(check_special(spm));
    RN_TRY(rn_charsmap_init(&spm->charsmap, RN_HOST_OTHER, spm->options.charsmap));
    spm->options.charsmap = (rn_str){spm->charsmap.blob, spm->charsmap.bytes};
    RN_TRY(build_tries(spm));
    build_tables(spm);
    set_scores(spm);
    measure(spm);
    return RN_OK;
}

rn_status rn_spm_create(const rn_spm_options *options, const rn_spm_piece *pieces, size_t count,
                        rn_spm **out) {
    rn_spm *spm = NULL;
    *out = NULL;
    if ((int)options->algorithm < RN_SPM_UNIGRAM || options->algorithm > RN_SPM_CHAR)
        return rn_fail(RN_UNSUPPORTED, "SentencePiece has no algorithm %d",
                       (int)options->algorithm);
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof *spm, (void **)&spm));
    spm->options = *options;
    rn_status s = fill(spm, pieces, count);
    if (s == RN_OK)
        *out = spm;
    else
        rn_spm_destroy(spm);
    return s;
}

void rn_spm_destroy(rn_spm *spm) {
    if (!spm) return;
    rn_spm_trie_free(&spm->normal);
    rn_spm_trie_free(&spm->reserved);
    rn_spm_trie_free(&spm->user);
    rn_charsmap_free(&spm->charsmap);
    rn_free(RN_HOST_OTHER, spm->pieces, spm->count * sizeof *spm->pieces);
    rn_free(RN_HOST_OTHER, spm->texts, spm->text_bytes);
    rn_free(RN_HOST_OTHER, spm, sizeof *spm);
}

const rn_spm_options *rn_spm_get_options(const rn_spm *spm) {
    return &spm->options;
}

size_t rn_spm_count(const rn_spm *spm) {
    return spm->count;
}

rn_spm_piece rn_spm_get(const rn_spm *spm, uint32_t id) {
    return id < spm->count ? spm->pieces[id] : (rn_spm_piece){.kind = RN_SPM_UNUSED};
}

uint32_t rn_spm_find(const rn_spm *spm, rn_str piece) {
    uint32_t id = rn_spm_trie_find(&spm->reserved, piece);
    return id != RN_NO_TOKEN ? id : rn_spm_trie_find(&spm->normal, piece);
}

int rn_spm_byte(rn_str text) {
    static const char digits[] = "0123456789ABCDEF";
    if (text.bytes != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    const char *high = memchr(digits, text.data[3], 16), *low = memchr(digits, text.data[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}
