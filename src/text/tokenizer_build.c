// tokenizer_build.c — what all loaders share: making a tokenizer, adding tokens, and the end, where
// the bytes that each token shows are worked out once.
#include "text/tokenizer_parts.h"

#include "memory/account.h"
#include "text/byte_letters.h"

rn_status rn_tokenizer_create(rn_tokenizer **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_tokenizer), &block));
    rn_tokenizer *tokenizer = block;
    tokenizer->from = RN_HOST_OTHER;
    rn_arena_init(&tokenizer->arena, RN_HOST_OTHER, 16 << 10);
    rn_vocab_init(&tokenizer->vocab, RN_HOST_OTHER);
    tokenizer->added.from = tokenizer->added_normalized.from = RN_HOST_OTHER;
    tokenizer->bpe = (rn_bpe){.from = RN_HOST_OTHER, .unknown = RN_NO_TOKEN};
    tokenizer->bpe.merges.from = RN_HOST_OTHER;
    tokenizer->bpe.vocab = &tokenizer->vocab;
    tokenizer->info = (rn_tokenizer_info){.kind = "byte-level BPE",
                                          .begin = RN_NO_TOKEN,
                                          .end = RN_NO_TOKEN,
                                          .unknown = RN_NO_TOKEN,
                                          .pad = RN_NO_TOKEN};
    *out = tokenizer;
    return RN_OK;
}

void rn_tokenizer_close(rn_tokenizer *tokenizer) {
    if (!tokenizer) return;
    rn_spm_destroy(tokenizer->spm);
    rn_bpe_free(&tokenizer->bpe);
    rn_cutter_free(&tokenizer->cutter);
    rn_normalizer_free(&tokenizer->normalizer);
    rn_added_free(&tokenizer->added);
    rn_added_free(&tokenizer->added_normalized);
    rn_vocab_free(&tokenizer->vocab);
    rn_arena_free_all(&tokenizer->arena);
    rn_free(RN_HOST_OTHER, tokenizer, sizeof *tokenizer);
}

// ---- filling ----------------------------------------------------------------------------

enum { SPELLING_MOST = 4096 }; // bytes of a token; larger ones are refused

// The spelling as the vocabulary keeps it. False: it has a character that is no letter.
static bool spell(const rn_tokenizer *tokenizer, rn_str spelling, char *out, size_t *out_bytes) {
    if (tokenizer->bpe.by_bytes) return rn_letters_to_bytes(spelling, out, out_bytes);
    memcpy(out, spelling.data, spelling.bytes);
    *out_bytes = spelling.bytes;
    return true;
}

rn_status rn_tokenizer_put(rn_tokenizer *tokenizer, uint64_t id, rn_str spelling) {
    char bytes[SPELLING_MOST];
    size_t count;
    if (spelling.bytes > SPELLING_MOST || !rn_utf8_valid(spelling))
        return rn_fail(RN_CORRUPT, "token %llu is too long or not UTF-8", (unsigned long long)id);
    if (spelling.bytes == 0 || !spell(tokenizer, spelling, bytes, &count))
        return rn_vocab_put(&tokenizer->vocab, id, spelling, RN_TOKEN_APART);
    return rn_vocab_put(&tokenizer->vocab, id, (rn_str){bytes, count}, 0);
}

// A key's text holds until the next string, and a number follows it.
rn_status rn_tokenizer_read_vocab(rn_tokenizer *tokenizer, rn_json_reader *reader) {
    rn_json_item key, item;
    uint64_t id;
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, &key));
        if (key.kind == RN_JSON_OBJECT_END) return RN_OK;
        RN_TRY(rn_json_expect(reader, RN_JSON_NUMBER, &item));
        RN_TRY(rn_json_u64_of(&item, &id));
        RN_TRY(rn_tokenizer_put(tokenizer, id, key.text));
    }
}

rn_status rn_tokenizer_merge(rn_tokenizer *tokenizer, rn_str left, rn_str right, uint32_t rank) {
    char bytes[2 * SPELLING_MOST];
    size_t count, more;
    rn_vocab *vocab = &tokenizer->vocab;
    if (left.bytes == 0 || right.bytes == 0 || left.bytes > SPELLING_MOST ||
        right.bytes > SPELLING_MOST || !rn_utf8_valid(left) || !rn_utf8_valid(right))
        return rn_fail(RN_CORRUPT, "merge %u is damaged", rank);
    if (!spell(tokenizer, left, bytes, &count) || !spell(tokenizer, right, bytes + count, &more))
        return rn_fail(RN_CORRUPT, "merge %u has a character that is no byte", rank);
    rn_merge merge = {.left = rn_vocab_find(vocab, (rn_str){bytes, count}),
                      .right = rn_vocab_find(vocab, (rn_str){bytes + count, more}),
                      .into = rn_vocab_find(vocab, (rn_str){bytes, count + more}),
                      .rank = rank};
    if (merge.left == RN_NO_TOKEN || merge.right == RN_NO_TOKEN || merge.into == RN_NO_TOKEN)
        return rn_fail(RN_CORRUPT, "merge %u (\"%.*s\" \"%.*s\") names no token", rank,
                       RN_STR_ARG(left), RN_STR_ARG(right));
    rn_merges_add(&tokenizer->bpe.merges, merge);
    return RN_OK;
}

rn_status rn_tokenizer_merge_line(rn_tokenizer *tokenizer, rn_str line, uint32_t rank) {
    const char *space = line.bytes > 1 ? memchr(line.data + 1, ' ', line.bytes - 1) : NULL;
    if (!space) return rn_fail(RN_CORRUPT, "merge %u is no pair", rank);
    size_t left = (size_t)(space - line.data);
    return rn_tokenizer_merge(tokenizer, (rn_str){line.data, left},
                              (rn_str){space + 1, line.bytes - left - 1}, rank);
}

// Files spell an added token of a byte-level vocabulary as it is or in letters.
static bool is_same(rn_str text, rn_str content) {
    char bytes[256];
    size_t count;
    if (rn_str_equal(text, content)) return true;
    return content.bytes <= sizeof bytes && rn_letters_to_bytes(content, bytes, &count) &&
           rn_str_equal(text, (rn_str){bytes, count});
}

// The token of the vocabulary that is spelled so, or RN_NO_TOKEN.
static uint32_t find_spelled(const rn_tokenizer *tokenizer, rn_str spelling) {
    char bytes[SPELLING_MOST];
    size_t count;
    if (spelling.bytes > SPELLING_MOST || !spell(tokenizer, spelling, bytes, &count))
        return RN_NO_TOKEN;
    return rn_vocab_find(&tokenizer->vocab, (rn_str){bytes, count});
}

rn_status rn_tokenizer_add_token(rn_tokenizer *tokenizer, rn_added_token token) {
    rn_vocab *vocab = &tokenizer->vocab;
    void *copy;
    if (token.content.bytes == 0 || !rn_utf8_valid(token.content))
        return rn_fail(RN_CORRUPT, "added token %u is empty or not UTF-8", token.id);
    uint32_t other = find_spelled(tokenizer, token.content);
    if (!rn_vocab_has(vocab, token.id) && other != RN_NO_TOKEN)
        return rn_fail(RN_CORRUPT, "added token %u is \"%.*s\", which token %u is, too", token.id,
                       RN_STR_ARG(token.content), other);
    if (!rn_vocab_has(vocab, token.id))
        RN_TRY(rn_vocab_put(vocab, token.id, token.content, RN_TOKEN_APART));
    else if (!is_same(rn_vocab_text(vocab, token.id), token.content))
        return rn_fail(RN_CORRUPT, "added token %u is \"%.*s\", the vocabulary has another text",
                       token.id, RN_STR_ARG(token.content));
    if (vocab->flags[token.id] & RN_TOKEN_ADDED) return RN_OK;
    vocab->flags[token.id] |= (uint8_t)(RN_TOKEN_ADDED | (token.special ? RN_TOKEN_SPECIAL : 0));
    RN_TRY(rn_arena_copy(&tokenizer->arena, token.content.data, token.content.bytes, &copy));
    token.content.data = copy;
    return rn_added_add(token.normalized ? &tokenizer->added_normalized : &tokenizer->added, token);
}

rn_status rn_tokenizer_put_around(uint32_t *ids, size_t *count, uint32_t id) {
    if (*count == RN_AROUND_MOST)
        return rn_fail(RN_UNSUPPORTED, "more than %d tokens around a text", RN_AROUND_MOST);
    ids[(*count)++] = id;
    return RN_OK;
}

rn_status rn_tokenizer_split(rn_tokenizer *tokenizer, rn_str expression) {
    rn_cut_step step = {.kind = RN_CUT_SPLIT, .behavior = RN_CUT_ISOLATED};
    RN_TRY(rn_pattern_compile(tokenizer->from, expression, false, &step.pattern));
    return rn_cutter_add(&tokenizer->cutter, step);
}

// ---- what tokens show -------------------------------------------------------------------

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The byte of a token like <0x0A>, or -1.
static int byte_token(rn_str text) {
    if (text.bytes != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool show_blanks(rn_str text, char *to, size_t *out_bytes) {
    size_t bytes = 0;
    bool changed = false;
    for (size_t at = 0; at < text.bytes;) {
        bool is_blank = text.bytes - at >= 3 && memcmp(text.data + at, RN_BLANK, 3) == 0;
        to[bytes++] = is_blank ? ' ' : text.data[at];
        at += is_blank ? 3 : 1;
        changed = changed || is_blank;
    }
    *out_bytes = bytes;
    return changed;
}

// WordPiece: a blank before what begins a word.
static rn_status show_piece(rn_tokenizer *tokenizer, uint32_t id, rn_buffer *scratch) {
    const rn_wordpiece *w = &tokenizer->wordpiece;
    rn_str text = rn_vocab_text(&tokenizer->vocab, id);
    bool begins = w->next.bytes ? !rn_str_starts(text, w->next) : rn_str_starts(text, w->begin);
    size_t prefix = begins ? w->begin.bytes : w->next.bytes;
    scratch->bytes = 0;
    if (begins) RN_TRY(rn_buffer_append(scratch, " ", 1));
    RN_TRY(rn_buffer_append(scratch, text.data + prefix, text.bytes - prefix));
    return rn_vocab_show(&tokenizer->vocab, id, (rn_str){scratch->data, scratch->bytes});
}

static rn_status show_token(rn_tokenizer *tokenizer, uint32_t id, rn_buffer *scratch) {
    if (tokenizer->wordpiece.vocab) return show_piece(tokenizer, id, scratch);
    rn_str text = rn_vocab_text(&tokenizer->vocab, id);
    int byte = tokenizer->show_bytes ? byte_token(text) : -1;
    if (byte >= 0) return rn_vocab_show(&tokenizer->vocab, id, (rn_str){(char[]){(char)byte}, 1});
    if (tokenizer->show_suffix.bytes && rn_str_ends(text, tokenizer->show_suffix)) {
        scratch->bytes = 0;
        RN_TRY(rn_buffer_append(scratch, text.data, text.bytes - tokenizer->show_suffix.bytes));
        RN_TRY(rn_buffer_append(scratch, " ", 1));
        return rn_vocab_show(&tokenizer->vocab, id, (rn_str){scratch->data, scratch->bytes});
    }
    if (!tokenizer->show_blank) return RN_OK;
    size_t bytes;
    scratch->bytes = 0;
    RN_TRY(rn_buffer_append(scratch, text.data, text.bytes));
    if (!show_blanks(text, scratch->data, &bytes)) return RN_OK;
    return rn_vocab_show(&tokenizer->vocab, id, (rn_str){scratch->data, bytes});
}

static rn_status show_tokens(rn_tokenizer *tokenizer) {
    rn_buffer scratch;
    rn_status s = RN_OK;
    if (tokenizer->wordpiece.vocab) tokenizer->strip_first = true;
    if (!tokenizer->show_blank && !tokenizer->show_bytes && !tokenizer->show_suffix.bytes &&
        !tokenizer->wordpiece.vocab)
        return RN_OK;
    rn_buffer_init(&scratch, tokenizer->from, SIZE_MAX);
    for (uint32_t id = 0; s == RN_OK && id < tokenizer->vocab.count; id++)
        if (rn_vocab_has(&tokenizer->vocab, id) &&
            !(tokenizer->vocab.flags[id] & (RN_TOKEN_APART | RN_TOKEN_SPECIAL)))
            s = show_token(tokenizer, id, &scratch);
    rn_buffer_free(&scratch);
    return s;
}

// ---- the end ----------------------------------------------------------------------------

// What ends a turn is special, also where a file forgets to say so (llama.cpp sees it so, too):
// otherwise a message could end its own.
static void mark_ends(rn_tokenizer *tokenizer, rn_added *added) {
    static const char *const names[] = {"<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<|endoftext|>",
                                        "<|end_of_text|>",
                                        "<|eom_id|>",
                                        "<end_of_turn>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "[EOS]",
                                        "<eos>",
                                        "</s>",
                                        "<|end_of_turn|>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<｜end▁of▁sentence｜>",
                                        "<end_of_utterance>",
                                        "<turn|>"};
    for (size_t i = 0; i < added->count; i++)
        for (size_t name = 0; name < sizeof names / sizeof *names; name++)
            if (rn_str_equal(added->tokens[i].content, rn_str_from(names[name]))) {
                tokenizer->vocab.flags[added->tokens[i].id] |= RN_TOKEN_END | RN_TOKEN_SPECIAL;
                added->tokens[i].special = true;
            }
}

// Where no configuration says which token begins or ends a text, its usual name does.
static void guess_id(const rn_tokenizer *tokenizer, const char *const *names, uint32_t *id) {
    const rn_added *lists[] = {&tokenizer->added, &tokenizer->added_normalized};
    for (; *id == RN_NO_TOKEN && *names; names++)
        for (size_t list = 0; list < 2; list++)
            for (size_t i = 0; i < lists[list]->count; i++)
                if (rn_str_equal(lists[list]->tokens[i].content, rn_str_from(*names)))
                    *id = lists[list]->tokens[i].id;
}

// Normalised tokens are looked for as they are when normalised.
static rn_status normalize_added(rn_tokenizer *tokenizer) {
    rn_added *added = &tokenizer->added_normalized;
    rn_normalizing normalizing;
    rn_status s = RN_OK;
    rn_normalizing_init(&normalizing, tokenizer->from);
    for (size_t i = 0; s == RN_OK && i < added->count; i++) {
        rn_str content = {0};
        void *copy = NULL;
        s = rn_normalize(&tokenizer->normalizer, &normalizing, added->tokens[i].content, false,
                         &content);
        if (s == RN_OK) s = rn_arena_copy(&tokenizer->arena, content.data, content.bytes, &copy);
        if (s == RN_OK) added->tokens[i].content = (rn_str){copy, content.bytes};
        if (s == RN_OK && content.bytes == 0)
            s = rn_fail(RN_CORRUPT, "added token %u is normalised away", added->tokens[i].id);
    }
    rn_normalizing_free(&normalizing);
    return s;
}

// A SentencePiece model may have special tokens among the pieces that it cuts text into (Gemma's
// <start_of_turn> is a user-defined one, and tokenizer_config.json says that it is special). They
// are found before its turn comes, where they are allowed; it must not find them where they are
// not.
static rn_status reserve_special(rn_tokenizer *tokenizer) {
    size_t count = rn_spm_count(tokenizer->spm), bytes = count * sizeof(rn_spm_piece);
    bool any = false;
    void *block;
    RN_TRY(rn_alloc(tokenizer->from, bytes, &block));
    rn_spm_piece *pieces = block;
    for (uint32_t id = 0; id < count; id++) {
        pieces[id] = rn_spm_get(tokenizer->spm, id);
        bool is_text = pieces[id].kind == RN_SPM_NORMAL || pieces[id].kind == RN_SPM_USER_DEFINED ||
                       pieces[id].kind == RN_SPM_UNUSED;
        if (!is_text || !rn_vocab_is_reserved(&tokenizer->vocab, id)) continue;
        pieces[id].kind = RN_SPM_CONTROL;
        any = true;
    }
    rn_spm *spm = NULL;
    rn_status s = RN_OK;
    if (any) s = rn_spm_create(rn_spm_get_options(tokenizer->spm), pieces, count, &spm);
    rn_free(tokenizer->from, block, bytes);
    if (!spm) return s;
    rn_spm_destroy(tokenizer->spm);
    tokenizer->spm = spm;
    return RN_OK;
}

rn_status rn_tokenizer_finish(rn_tokenizer *tokenizer) {
    static const char *const begins[] = {"<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>",
                                         NULL};
    static const char *const ends[] = {"</s>",          "<|end_of_text|>", "<eos>",
                                       "<|endoftext|>", "<|im_end|>",      NULL};
    rn_tokenizer_info *info = &tokenizer->info;
    guess_id(tokenizer, begins, &info->begin);
    guess_id(tokenizer, ends, &info->end);
    mark_ends(tokenizer, &tokenizer->added);
    mark_ends(tokenizer, &tokenizer->added_normalized);
    RN_TRY(normalize_added(tokenizer));
    RN_TRY(rn_added_seal(&tokenizer->added));
    RN_TRY(rn_added_seal(&tokenizer->added_normalized));
    RN_TRY(show_tokens(tokenizer));
    if (tokenizer->spm)
        RN_TRY(reserve_special(tokenizer));
    else
        RN_TRY(tokenizer->wordpiece.vocab ? rn_wordpiece_finish(&tokenizer->wordpiece)
                                          : rn_bpe_finish(&tokenizer->bpe));
    info->vocab_size = (uint32_t)tokenizer->vocab.count;
    if (rn_vocab_has(&tokenizer->vocab, info->end))
        tokenizer->vocab.flags[info->end] |= RN_TOKEN_END;
    info->adds_begin = tokenizer->before_count > 0;
    info->adds_end = tokenizer->after_count > 0;
    info->joins_pairs = tokenizer->between_count > 0;
    return RN_OK;
}
