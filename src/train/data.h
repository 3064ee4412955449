// data.h — parts of rn_train_data: lines to samples, samples in a file, samples in sequences.
//
//     data_line.c     a line of JSON -> tokens, and which of them are learned
//     data_file.c     all lines -> the tokens' file
//     data_pack.c     samples -> sequences, best fit decreasing; batches
#ifndef RN_TRAIN_DATA_H
#define RN_TRAIN_DATA_H

#include "base/arena.h"

#include <ration/chat.h>
#include <ration/train_data.h>

#define RN_DATA_LEARNED 0x80000000u // of a token in the file: it is a target

// One sample: ids, with RN_DATA_LEARNED.
typedef struct rn_data_maker {
    const rn_tokenizer *tokenizer;
    const rn_chat_template *chat_template; // or NULL
    rn_arena memory;                       // of the line
} rn_data_maker;
// Appends the line's tokens. RN_CORRUPT: no JSON; RN_INVALID: no sample.
RN_MUST_USE rn_status rn_data_make(rn_data_maker *maker, rn_str line, rn_tokens *out);

// The tokens' file: a header, then each sample as its length and its tokens.
typedef struct rn_data_header {
    char magic[8];
    uint8_t key[32]; // of source, tokenizer, template and settings
    uint64_t samples, file_bytes;
    uint64_t truncated, dropped, split, masked, tokens, targets, longest;
} rn_data_header;

struct rn_train_data {
    rn_train_data_options options;
    rn_train_data_info info;
    rn_data_header header;
    int fd;                 // of the tokens' file; -1: none
    uint64_t *samples;      // (header.samples + 1): where each begins in the file, and its end
    uint32_t *order[2];     // (samples of the part): by sequences
    uint64_t *sequences[2]; // (sequences of the part + 1): the first sample in `order`
    size_t order_count[2];
};

// Opens the tokens' file of a source; makes it where there is none. However it ends,
// rn_data_close_file.
RN_MUST_USE rn_status rn_data_open_file(rn_train_data *data, const char *path,
                                        const rn_train_data_options *options);
void rn_data_close_file(rn_train_data *data);
static inline uint32_t rn_data_length(const rn_train_data *data, uint64_t sample) {
    return (uint32_t)((data->samples[sample + 1] - data->samples[sample]) / sizeof(uint32_t) - 1);
}
// A sample's ids, with RN_DATA_LEARNED, into `out` (its length). RN_CORRUPT: the file has changed.
RN_MUST_USE rn_status rn_data_read(const rn_train_data *data, uint64_t sample, uint32_t *out);

RN_MUST_USE rn_status rn_data_pack(rn_train_data *data);

#endif
