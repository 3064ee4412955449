// conform_program.h — the question of tables (conform.h) to a compiler of whole graphs.
#ifndef RN_TEST_CONFORM_PROGRAM_H
#define RN_TEST_CONFORM_PROGRAM_H

#include "conform.h"
#include "device/device.h"

// Whether the row's graph gives under XLA (xla_program.h, which is open) what the reference loops
// give; true with *out_refused where there is no program for it, and `why` says so.
bool conform_program(const conform_row *row, bool *out_refused, conform_why *why);
// The same of any graph, whose inputs are filled and whose nodes have not run yet; afterwards they
// have.
bool conform_graph(test_run *run, conform_fact near, bool *out_refused, conform_why *why);
// The same of a row by a device that compiles: its estimate, its executable, states and all.
bool conform_executable(const conform_row *row, rn_device *device, bool *out_refused,
                        conform_why *why);

#endif
