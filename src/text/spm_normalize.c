// spm_normalize.c — text as the model was trained on it: replacements made, blanks shown as U+2581.
//
// The text is taken unit by unit: a user-defined piece (kept as it is), the longest replacement
// rule, or one character. A byte that is not UTF-8 becomes U+FFFD, or stays where the options say
// so.
#include "text/spm_internal.h"

typedef struct writer {
    const rn_spm *spm;
    rn_spm_block *block;
    size_t bytes;     // written
    bool after_blank; // further blanks are dropped
} writer;

// The unit at text[0]: what it becomes, and its length in the text.
static size_t take(const rn_spm *spm, rn_str text, rn_str *out) {
    size_t bytes = rn_spm_user_bytes(spm, text.data, text.bytes);
    if (bytes == 0) {
        bytes = rn_charsmap_find(&spm->charsmap, text, out);
        if (bytes) return bytes;
        bytes = rn_utf8_sequence(text.data, text.bytes);
    }
    if (bytes == 0 && !spm->options.keep_invalid) {
        *out = RN_STR("\xef\xbf\xbd");
        return 1;
    }
    *out = (rn_str){text.data, bytes ? bytes : 1};
    return out->bytes;
}

static void put_blank(writer *w) {
    char *at = (char *)w->block->data + w->bytes;
    if (w->spm->options.escape_whitespaces)
        memcpy(at, RN_SPM_BLANK, 3);
    else
        *at = ' ';
    w->bytes += w->spm->options.escape_whitespaces ? 3 : 1;
}

static rn_status put(writer *w, rn_str unit) {
    RN_TRY(rn_spm_block_need(w->block, w->bytes + unit.bytes * 3));
    while (w->after_blank && unit.bytes && *unit.data == ' ')
        unit = (rn_str){unit.data + 1, unit.bytes - 1};
    for (size_t i = 0; i < unit.bytes; i++) {
        if (unit.data[i] == ' ')
            put_blank(w);
        else
            ((char *)w->block->data)[w->bytes++] = unit.data[i];
    }
    if (unit.bytes)
        w->after_blank = w->spm->options.remove_extra_whitespaces && rn_str_ends(unit, RN_STR(" "));
    return RN_OK;
}

static bool is_plain(const rn_spm *spm, rn_str text, size_t at) {
    uint8_t byte = (uint8_t)text.data[at];
    if (spm->plain[byte]) return true;
    return spm->plain_before_ascii[byte] &&
           (at + 1 == text.bytes || (uint8_t)text.data[at + 1] < 128);
}

// Bytes that need no thought: most of most texts.
static rn_status put_plain(writer *w, rn_str *text) {
    size_t count = 0;
    while (count < text->bytes && is_plain(w->spm, *text, count))
        count++;
    if (count == 0) return RN_OK;
    RN_TRY(rn_spm_block_need(w->block, w->bytes + count));
    memcpy((char *)w->block->data + w->bytes, text->data, count);
    w->bytes += count;
    w->after_blank = false;
    *text = (rn_str){text->data + count, text->bytes - count};
    return RN_OK;
}

static rn_status put_all(writer *w, rn_str text) {
    rn_str unit;
    while (text.bytes) {
        RN_TRY(put_plain(w, &text));
        if (text.bytes == 0) break;
        size_t used = take(w->spm, text, &unit);
        RN_TRY(put(w, unit));
        text = (rn_str){text.data + used, text.bytes - used};
    }
    return RN_OK;
}

static rn_str skip_blanks(const rn_spm *spm, rn_str text) {
    rn_str unit;
    while (text.bytes) {
        size_t used = take(spm, text, &unit);
        if (!rn_str_equal(unit, RN_STR(" "))) break;
        text = (rn_str){text.data + used, text.bytes - used};
    }
    return text;
}

static void drop_blanks(writer *w) {
    rn_str blank = w->spm->options.escape_whitespaces ? RN_STR(RN_SPM_BLANK) : RN_STR(" ");
    while (rn_str_ends((rn_str){w->block->data, w->bytes}, blank))
        w->bytes -= blank.bytes;
}

rn_status rn_spm_normalize(rn_spm_work *work, rn_str text, bool first, rn_str *out) {
    const rn_spm_options *o = &work->spm->options;
    writer w = {work->spm, &work->text, 0, o->remove_extra_whitespaces};
    bool dummy = first && o->add_dummy_prefix;
    *out = (rn_str){0};
    if (o->remove_extra_whitespaces) text = skip_blanks(work->spm, text);
    if (text.bytes == 0) return RN_OK;
    RN_TRY(rn_spm_block_need(w.block, text.bytes + text.bytes / 4 + 64));
    if (dummy && !o->treat_whitespace_as_suffix) put_blank(&w);
    RN_TRY(put_all(&w, text));
    if (o->remove_extra_whitespaces) drop_blanks(&w);
    RN_TRY(rn_spm_block_need(w.block, w.bytes + 3));
    if (dummy && o->treat_whitespace_as_suffix) put_blank(&w);
    *out = (rn_str){w.block->data, w.bytes};
    return RN_OK;
}
