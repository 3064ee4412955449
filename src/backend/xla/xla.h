// xla.h — XLA devices through a PJRT plugin: xla:PLUGIN. Nothing runs on them yet; a target says
// truly whether the file is a plugin.
#ifndef RN_BACKEND_XLA_XLA_H
#define RN_BACKEND_XLA_XLA_H

#include "device/registry.h"

extern const rn_backend rn_xla_backend;
extern const rn_error_table rn_xla_errors;

#endif
