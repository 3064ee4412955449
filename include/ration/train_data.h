// train_data.h — texts to fine-tune on: read once, tokenised into a file, packed into sequences.
//
//     rn_train_data *data;
//     RN_TRY(rn_train_data_open("chats.jsonl", &options, &data));
//     RN_TRY(rn_train_data_batch(data, RN_DATA_TRAIN, step, batch, tokens, targets, documents));
//
// A file of JSON, an object a line, each of one of these forms:
//   {"messages": [{"role": "user", "content": ...}, ...]}          a chat, by the chat template
//   {"conversations": [{"from": "human", "value": ...}, ...]}      the same, as ShareGPT has it
//   {"prompt": ..., "completion": ...}                             texts, or lists of messages
//   {"instruction": ..., "input": ..., "output": ...}              Alpaca: a chat of two messages
//   {"text": ...}                                                  all of it is learned
// What the assistant says is learned, with the token that ends its turn; everything else is read
// only. Of texts without a template the end token is learned, too.
//
// The tokens are kept beside the source (or in `cache`), under a name of what they were made of,
// and read from there batch by batch: memory does not grow with the text, but by 12 bytes a sample
// for packing.
#ifndef RATION_TRAIN_DATA_H
#define RATION_TRAIN_DATA_H

#include <ration/tokenizer.h>

RN_BEGIN_DECLS

typedef struct rn_train_data rn_train_data;

// What becomes of a sample that is longer than a sequence.
typedef enum rn_long_samples {
    RN_LONG_REFUSE,   // an error names its line
    RN_LONG_TRUNCATE, // its end is left out
    RN_LONG_DROP,
    RN_LONG_SPLIT // into several samples
} rn_long_samples;

typedef struct rn_train_data_options {
    const rn_tokenizer *tokenizer; // must outlive the data
    rn_str chat_template;          // {0}: chats are refused
    uint32_t tokens;               // of a sequence
    rn_long_samples too_long;
    double validation;    // the share of samples that is set apart, chosen by `seed`; 0: none
    uint64_t seed;        // of that, and of the order
    bool unpacked;        // one sample a sequence
    const char *cache;    // the folder of the tokens' file; NULL: the source's; "": it is not kept
    uint64_t reserved[4]; // zero
} rn_train_data_options;

typedef enum rn_data_part { RN_DATA_TRAIN, RN_DATA_VALIDATION } rn_data_part;

typedef struct rn_train_data_info {
    uint64_t samples, validation_samples; // that are used
    uint64_t truncated, dropped, split;   // because of their length
    uint64_t masked;                      // dropped: nothing in them is learned
    uint64_t tokens, targets;             // of all used samples
    uint64_t longest;                     // tokens, before any cutting
    uint64_t sequences, validation_sequences;
    bool reused;  // the tokens' file was there already
    char key[20]; // of source, tokenizer, template and settings: 16 hex digits
} rn_train_data_info;

// RN_CORRUPT, RN_INVALID: with the line (and the source's offset) that is wrong.
RN_API RN_MUST_USE rn_status rn_train_data_open(const char *path,
                                                const rn_train_data_options *options,
                                                rn_train_data **out);
RN_API void rn_train_data_close(rn_train_data *data);
RN_API const rn_train_data_info *rn_train_data_get_info(const rn_train_data *data);

// The sequences of a step, from 0: those of an epoch in an order by seed and epoch, one epoch
// behind the other. All (batch, tokens); as rn_batch. Where a sequence ends early it is filled up
// with documents of one token that count for nothing. RN_INVALID: the part is empty.
RN_API RN_MUST_USE rn_status rn_train_data_batch(const rn_train_data *data, rn_data_part part,
                                                 uint64_t step, uint32_t batch, int32_t *tokens,
                                                 int32_t *targets, int32_t *documents);

RN_END_DECLS

#endif
