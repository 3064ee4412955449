// spm_load.c — a SentencePiece `.model` file: the protobuf message ModelProto.
//
//     1 pieces (repeated)   1 text, 2 score, 3 kind
//     2 trainer             3 algorithm, 24 suffix, 35 byte fallback, 46..48 bos, eos, pad
//     3 normalizer          2 charsmap, 3 dummy prefix, 4 extra blanks, 5 escape
//
// Fields may come in any order and more than once: the last one counts, as in protobuf.
#include "text/spm_internal.h"

#include "io/protobuf.h"

typedef struct model {
    rn_spm_options options;
    rn_str begin, end, pad; // their pieces' texts
    rn_spm_piece *pieces;   // (count)
    size_t count;
} model;

// ---- messages -----------------------------------------------------------------------------------

static rn_status read_kind(const rn_protobuf_field *field, rn_spm_piece *piece) {
    uint64_t kind = 0;
    RN_TRY(rn_protobuf_uint(field, &kind));
    if (kind < RN_SPM_NORMAL || kind > RN_SPM_BYTE)
        return rn_fail(RN_UNSUPPORTED, "the piece at byte %llu is of the unknown kind %llu",
                       (unsigned long long)field->offset, (unsigned long long)kind);
    piece->kind = (rn_spm_kind)kind;
    return RN_OK;
}

static rn_status read_piece(rn_protobuf message, rn_spm_piece *piece) {
    rn_protobuf_field field;
    *piece = (rn_spm_piece){.kind = RN_SPM_NORMAL};
    while (true) {
        RN_TRY(rn_protobuf_next(&message, &field));
        switch (field.number) {
        case 0:
            return RN_OK;
        case 1:
            RN_TRY(rn_protobuf_bytes(&field, &piece->text));
            break;
        case 2:
            RN_TRY(rn_protobuf_float(&field, &piece->score));
            break;
        case 3:
            RN_TRY(read_kind(&field, piece));
            break;
        default:
            break;
        }
    }
}

static rn_status read_algorithm(const rn_protobuf_field *field, rn_spm_algorithm *out) {
    uint64_t algorithm = 0;
    RN_TRY(rn_protobuf_uint(field, &algorithm));
    if (algorithm < RN_SPM_UNIGRAM || algorithm > RN_SPM_CHAR)
        return rn_fail(RN_UNSUPPORTED, "SentencePiece's algorithm %llu is not known",
                       (unsigned long long)algorithm);
    *out = (rn_spm_algorithm)algorithm;
    return RN_OK;
}

static rn_status read_trainer(rn_protobuf message, model *m) {
    rn_protobuf_field field;
    rn_spm_options *o = &m->options;
    while (true) {
        RN_TRY(rn_protobuf_next(&message, &field));
        switch (field.number) {
        case 0:
            return RN_OK;
        case 3:
            RN_TRY(read_algorithm(&field, &o->algorithm));
            break;
        case 24:
            RN_TRY(rn_protobuf_bool(&field, &o->treat_whitespace_as_suffix));
            break;
        case 35:
            RN_TRY(rn_protobuf_bool(&field, &o->byte_fallback));
            break;
        case 46:
            RN_TRY(rn_protobuf_bytes(&field, &m->begin));
            break;
        case 47:
            RN_TRY(rn_protobuf_bytes(&field, &m->end));
            break;
        case 48:
            RN_TRY(rn_protobuf_bytes(&field, &m->pad));
            break;
        default:
            break;
        }
    }
}

static rn_status read_normalizer(rn_protobuf message, model *m) {
    rn_protobuf_field field;
    rn_spm_options *o = &m->options;
    while (true) {
        RN_TRY(rn_protobuf_next(&message, &field));
        switch (field.number) {
        case 0:
            return RN_OK;
        case 2:
            RN_TRY(rn_protobuf_bytes(&field, &o->charsmap));
            break;
        case 3:
            RN_TRY(rn_protobuf_bool(&field, &o->add_dummy_prefix));
            break;
        case 4:
            RN_TRY(rn_protobuf_bool(&field, &o->remove_extra_whitespaces));
            break;
        case 5:
            RN_TRY(rn_protobuf_bool(&field, &o->escape_whitespaces));
            break;
        default:
            break;
        }
    }
}

// ---- the file -----------------------------------------------------------------------------------

// Without `pieces` they are counted only.
static rn_status read_model(rn_str file, model *m) {
    rn_protobuf message = rn_protobuf_of(file), inner;
    rn_protobuf_field field;
    m->count = 0;
    while (true) {
        RN_TRY(rn_protobuf_next(&message, &field));
        if (field.number == 0) return RN_OK;
        if (field.number > 3) continue;
        RN_TRY(rn_protobuf_message(&field, &inner));
        if (field.number == 2) RN_TRY(read_trainer(inner, m));
        if (field.number == 3) RN_TRY(read_normalizer(inner, m));
        if (field.number != 1) continue;
        if (m->pieces) RN_TRY(read_piece(inner, &m->pieces[m->count]));
        m->count++;
    }
}

// The piece of that text, if it is of that kind.
static uint32_t find_kind(const rn_spm *spm, rn_str text, const char *usual, rn_spm_kind kind) {
    uint32_t id = rn_spm_find(spm, text.bytes ? text : rn_str_from(usual));
    return id != RN_NO_TOKEN && rn_spm_get(spm, id).kind == kind ? id : RN_NO_TOKEN;
}

static rn_status create(const model *m, rn_spm **out) {
    rn_spm *spm = NULL;
    RN_TRY(rn_spm_create(&m->options, m->pieces, m->count, &spm));
    spm->options.begin = find_kind(spm, m->begin, "<s>", RN_SPM_CONTROL);
    spm->options.end = find_kind(spm, m->end, "</s>", RN_SPM_CONTROL);
    spm->options.pad = find_kind(spm, m->pad, "<pad>", RN_SPM_CONTROL);
    *out = spm;
    return RN_OK;
}

static rn_status check_unknown(const model *m) {
    size_t found = 0;
    for (size_t i = 0; i < m->count; i++)
        found += m->pieces[i].kind == RN_SPM_UNKNOWN;
    if (found == 1) return RN_OK;
    return rn_fail(RN_CORRUPT, "the model has %zu unknown pieces instead of one", found);
}

rn_status rn_spm_load(rn_str file, rn_spm **out) {
    model m = {.options = {.algorithm = RN_SPM_UNIGRAM,
                           .add_dummy_prefix = true,
                           .remove_extra_whitespaces = true,
                           .escape_whitespaces = true,
                           .unknown = RN_NO_TOKEN,
                           .begin = RN_NO_TOKEN,
                           .end = RN_NO_TOKEN,
                           .pad = RN_NO_TOKEN}};
    *out = NULL;
    RN_TRY(read_model(file, &m));
    size_t count = m.count;
    if (count == 0) return rn_fail(RN_CORRUPT, "the model has no pieces");
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count, sizeof *m.pieces, (void **)&m.pieces));
    rn_status s = read_model(file, &m);
    if (s == RN_OK) s = check_unknown(&m);
    if (s == RN_OK) s = create(&m, out);
    rn_free(RN_HOST_OTHER, m.pieces, count * sizeof *m.pieces);
    return s;
}
