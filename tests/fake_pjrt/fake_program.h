// fake_program.h — programs of StableHLO text, in the generic form and a line an operation, as
// src/exchange writes them; run one operation after the other, in doubles that are rounded to the
// dtype of each result. No loops.
#ifndef FAKE_PROGRAM_H
#define FAKE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_RANK = 8, FAKE_OPERANDS = 64, FAKE_ARGUMENTS = 512 };

typedef enum fake_type {
    FAKE_I1,
    FAKE_I32,
    FAKE_I64,
    FAKE_UI8,
    FAKE_F16,
    FAKE_BF16,
    FAKE_F32,
    FAKE_F64
} fake_type;

typedef struct fake_tensor {
    fake_type type;
    int rank;
    int64_t dims[FAKE_RANK];
    double *data; // owned
} fake_tensor;

int64_t fake_elements(const fake_tensor *tensor);
int64_t fake_bytes(const fake_tensor *tensor); // dense, as the host has it
void fake_read(fake_tensor *tensor, const void *from);
void fake_write(const fake_tensor *tensor, void *to);
void fake_free(fake_tensor *tensor);

typedef struct fake_program {
    char *text; // owned; lines end with 0
    char **lines;
    int line_count;
    fake_tensor arguments[FAKE_ARGUMENTS], results[FAKE_ARGUMENTS]; // without data
    int alias[FAKE_ARGUMENTS];                                      // of arguments; -1: none
    // The axis of which a partition has a part; -1: each has all of it.
    int argument_split[FAKE_ARGUMENTS], result_split[FAKE_ARGUMENTS];
    int argument_count, result_count, partitions;
} fake_program;

// What a partition has of a tensor that is divided by `axis`; without data.
fake_tensor fake_part_shape(const fake_tensor *whole, int axis, int partitions);
// Between a whole and the part of one partition; both have data.
void fake_copy_part(fake_tensor *whole, fake_tensor *part, int axis, int partition, bool to_part);

// False: `error` says why, in the words of XLA's parser: "-:12:5: error: ...".
bool fake_parse(const char *text, size_t bytes, fake_program *out, char *error, size_t error_bytes);
// Results own their data.
bool fake_run(const fake_program *program, const fake_tensor *const *arguments,
              fake_tensor *results, char *error, size_t error_bytes);
void fake_program_free(fake_program *program);
// Of values that are neither arguments nor results.
int64_t fake_temporary_bytes(const fake_program *program);

#endif
