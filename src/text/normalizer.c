// normalizer.c — each step reads one buffer and writes the other; steps that would change nothing
// are passed over without a copy, which is the usual case (NFC of ASCII).
#include "text/normalizer.h"

#include "base/checked.h"
#include "text/utf8_step.h"

// Text grows at most this much by all steps together.
enum { GROWTH_CAP_BYTES = 1 << 30 };

rn_status rn_normalizer_add(rn_normalizer *normalizer, rn_normalize_step step) {
    if (normalizer->count == RN_NORMALIZER_STEPS) {
        rn_pattern_destroy(step.pattern);
        return rn_fail(RN_UNSUPPORTED, "a normalizer of more than %d steps", RN_NORMALIZER_STEPS);
    }
    normalizer->steps[normalizer->count++] = step;
    return RN_OK;
}

void rn_normalizer_free(rn_normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; i++)
        rn_pattern_destroy(normalizer->steps[i].pattern);
    normalizer->count = 0;
}

void rn_normalizing_init(rn_normalizing *normalizing, const rn_allocator *from) {
    *normalizing = (rn_normalizing){0};
    rn_buffer_init(&normalizing->buffers[0], from, GROWTH_CAP_BYTES);
    rn_buffer_init(&normalizing->buffers[1], from, GROWTH_CAP_BYTES);
}

void rn_normalizing_free(rn_normalizing *normalizing) {
    rn_buffer_free(&normalizing->buffers[0]);
    rn_buffer_free(&normalizing->buffers[1]);
    rn_matching_free(&normalizing->matching);
}

static bool is_ascii(rn_str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if ((uint8_t)text.data[i] >= 0x80) return false;
    return true;
}

// ---- Unicode's forms --------------------------------------------------------------------

static utf8proc_option_t form_of(rn_normalize_kind kind) {
    switch (kind) {
    case RN_NORMALIZE_NFC:
        return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case RN_NORMALIZE_NFD:
        return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case RN_NORMALIZE_NFKC:
        return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    default:
        return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    }
}

// Composes in place, as UTF-8, and appends.
static rn_status append_composed(utf8proc_int32_t *letters, utf8proc_ssize_t count,
                                 utf8proc_option_t form, rn_buffer *out) {
    count = utf8proc_normalize_utf32(letters, count, form);
    if (count < 0) return rn_fail(RN_INTERNAL, "%s", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        char utf8[4];
        RN_TRY(rn_buffer_append(out, utf8, rn_utf8_encode((uint32_t)letters[i], utf8)));
    }
    return RN_OK;
}

static rn_status write_form(rn_normalize_kind kind, rn_str text, rn_buffer *out) {
    utf8proc_option_t form = form_of(kind);
    if (text.bytes > GROWTH_CAP_BYTES) return rn_fail(RN_INVALID, "the text is too long");
    const utf8proc_uint8_t *data = (const utf8proc_uint8_t *)text.data;
    utf8proc_ssize_t bytes = (utf8proc_ssize_t)text.bytes;
    utf8proc_ssize_t count = utf8proc_decompose(data, bytes, NULL, 0, form);
    if (count <= 0) return count == 0 ? RN_OK : rn_fail(RN_INTERNAL, "%s", utf8proc_errmsg(count));
    void *letters;
    size_t room = (size_t)count * sizeof(utf8proc_int32_t);
    RN_TRY(rn_alloc(out->from, room, &letters));
    utf8proc_decompose(data, bytes, letters, count, form);
    rn_status s = append_composed(letters, count, form, out);
    rn_free(out->from, letters, room);
    return s;
}

// ---- characters -------------------------------------------------------------------------

static rn_status write_lowercase(rn_str text, rn_buffer *out) {
    for (size_t at = 0, step; at < text.bytes; at += step) {
        uint32_t letter = rn_utf8_decode(text.data + at, &step);
        char utf8[4];
        if (letter == 0x130) { // the one letter that becomes two
            RN_TRY(rn_buffer_append(out, "i\xCC\x87", 3));
            continue;
        }
        letter = (uint32_t)utf8proc_tolower((utf8proc_int32_t)letter);
        RN_TRY(rn_buffer_append(out, utf8, rn_utf8_encode(letter, utf8)));
    }
    return RN_OK;
}

static bool is_mark(uint32_t letter) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)letter);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

static rn_status write_without_marks(rn_str text, rn_buffer *out) {
    for (size_t at = 0, step; at < text.bytes; at += step)
        if (!is_mark(rn_utf8_decode(text.data + at, &step)))
            RN_TRY(rn_buffer_append(out, text.data + at, step));
    return RN_OK;
}

static rn_status write_without_nonspacing(rn_str text, rn_buffer *out) {
    for (size_t at = 0, step; at < text.bytes; at += step) {
        uint32_t letter = rn_utf8_decode(text.data + at, &step);
        if (utf8proc_category((utf8proc_int32_t)letter) != UTF8PROC_CATEGORY_MN)
            RN_TRY(rn_buffer_append(out, text.data + at, step));
    }
    return RN_OK;
}

// BERT drops controls, formats and private use; tabs and line breaks are white space.
static bool is_dropped(uint32_t letter) {
    if (letter == '\t' || letter == '\n' || letter == '\r') return false;
    if (letter < 0x20 || letter == 0x7F || letter == 0xFFFD) return true;
    if (letter < 0x7F) return false;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)letter);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO;
}

static rn_status write_clean(rn_str text, rn_buffer *out) {
    for (size_t at = 0, step; at < text.bytes; at += step) {
        uint32_t letter = rn_utf8_decode(text.data + at, &step);
        if (is_dropped(letter)) continue;
        if (rn_is_space(letter))
            RN_TRY(rn_buffer_append(out, " ", 1));
        else
            RN_TRY(rn_buffer_append(out, text.data + at, step));
    }
    return RN_OK;
}

// The ranges of BERT's normalizer in Hugging Face's tokenizers; 2B820 to 2B91F are not in them.
static bool is_chinese(uint32_t letter) {
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (letter >= ranges[i][0] && letter <= ranges[i][1]) return true;
    return false;
}

static rn_status write_chinese_apart(rn_str text, rn_buffer *out) {
    for (size_t at = 0, step; at < text.bytes; at += step) {
        bool apart = is_chinese(rn_utf8_decode(text.data + at, &step));
        if (apart) RN_TRY(rn_buffer_append(out, " ", 1));
        RN_TRY(rn_buffer_append(out, text.data + at, step));
        if (apart) RN_TRY(rn_buffer_append(out, " ", 1));
    }
    return RN_OK;
}

static rn_str strip(rn_str text, bool left, bool right) {
    size_t step;
    while (left && text.bytes && rn_is_space(rn_utf8_decode(text.data, &step))) {
        text.data += step;
        text.bytes -= step;
    }
    while (right && text.bytes) {
        size_t last = text.bytes - 1;
        while (((uint8_t)text.data[last] & 0xC0) == 0x80)
            last--;
        if (!rn_is_space(rn_utf8_decode(text.data + last, &step))) break;
        text.bytes = last;
    }
    return text;
}

// ---- replacing --------------------------------------------------------------------------

static rn_status write_replaced(const rn_normalize_step *step, rn_matching *matching, rn_str text,
                                rn_buffer *out) {
    size_t at = 0, copied = 0;
    bool not_empty = false;
    while (at <= text.bytes) {
        rn_match match;
        RN_TRY(rn_pattern_next(step->pattern, matching, text, at, not_empty, &match));
        if (!match.found) break;
        RN_TRY(rn_buffer_append(out, text.data + copied, match.start - copied));
        RN_TRY(rn_buffer_append(out, step->content.data, step->content.bytes));
        at = copied = match.end;
        not_empty = match.start == match.end;
    }
    return rn_buffer_append(out, text.data + copied, text.bytes - copied);
}

static rn_status write_prepended(const rn_normalize_step *step, rn_str text, rn_buffer *out) {
    RN_TRY(rn_buffer_append(out, step->content.data, step->content.bytes));
    return rn_buffer_append(out, text.data, text.bytes);
}

// ---- the steps --------------------------------------------------------------------------

static bool changes_nothing(const rn_normalize_step *step, rn_str text, bool first) {
    if (step->kind == RN_NORMALIZE_PREPEND) return !first || text.bytes == 0;
    bool only_others =
        step->kind <= RN_NORMALIZE_NFKD || step->kind == RN_NORMALIZE_STRIP_ACCENTS ||
        step->kind == RN_NORMALIZE_STRIP_NONSPACING || step->kind == RN_NORMALIZE_SPACE_CHINESE;
    return only_others && is_ascii(text);
}

static rn_status write_step(const rn_normalize_step *step, rn_matching *matching, rn_str text,
                            rn_buffer *out) {
    switch (step->kind) {
    case RN_NORMALIZE_LOWERCASE:
        return write_lowercase(text, out);
    case RN_NORMALIZE_PREPEND:
        return write_prepended(step, text, out);
    case RN_NORMALIZE_REPLACE:
        return write_replaced(step, matching, text, out);
    case RN_NORMALIZE_STRIP_ACCENTS:
        return write_without_marks(text, out);
    case RN_NORMALIZE_STRIP_NONSPACING:
        return write_without_nonspacing(text, out);
    case RN_NORMALIZE_CLEAN:
        return write_clean(text, out);
    case RN_NORMALIZE_SPACE_CHINESE:
        return write_chinese_apart(text, out);
    default:
        return write_form(step->kind, text, out);
    }
}

rn_status rn_normalize(const rn_normalizer *normalizer, rn_normalizing *normalizing, rn_str text,
                       bool first, rn_str *out) {
    rn_buffer *to = &normalizing->buffers[0], *spare = &normalizing->buffers[1];
    for (size_t i = 0; i < normalizer->count; i++) {
        const rn_normalize_step *step = &normalizer->steps[i];
        if (step->kind == RN_NORMALIZE_STRIP) {
            text = strip(text, step->left, step->right);
            continue;
        }
        if (changes_nothing(step, text, first)) continue;
        to->bytes = 0;
        RN_TRY(write_step(step, &normalizing->matching, text, to));
        text = (rn_str){to->data, to->bytes};
        rn_buffer *written = to;
        to = spare;
        spare = written;
    }
    *out = text;
    return RN_OK;
}
