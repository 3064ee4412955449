// printed.h — what a function printed, kept to be looked at.
#ifndef RN_TEST_PRINTED_H
#define RN_TEST_PRINTED_H

#include "base/buffer.h"

extern rn_buffer printed;

// A cmocka setup and teardown.
int printed_begin(void **state);
int printed_free(void **state);

// Forgets what was there. What is written to the sink is kept; after printed_end it is a C string.
rn_sink printed_sink(void);
void printed_end(void);
// What was written to the sink is valid JSON.
void printed_json_check(void);

// Fails with the whole text where these words are not in it.
void assert_printed(const char *words);

#endif
