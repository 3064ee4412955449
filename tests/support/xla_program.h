// xla_program.h — compiles StableHLO text with a PJRT plugin and runs it once: what an emitted
// program means, for tests of the text alone.
//
// The plugin is the file that RATION_XLA_PLUGIN names, or the CPU's in build/python.
#ifndef RN_TEST_XLA_PROGRAM_H
#define RN_TEST_XLA_PROGRAM_H

#include "exchange/stablehlo.h"

// False where there is no plugin.
bool xla_open(void);
// data[i] are the bytes of an argument or result, as the signature says. Returns NULL, or what the
// plugin complained about.
const char *xla_run(rn_str text, const rn_stablehlo_signature *signature, void *const *arguments,
                    void *const *results);

#endif
