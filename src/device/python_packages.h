// python_packages.h — files that Python packages bring along: plugins and runtimes with a C
// interface.
//
//     const char *files[] = {"onnxruntime/capi/libonnxruntime.so*", NULL};
//     if (rn_python_find(files, path, sizeof path, looked, sizeof looked)) ...
//
// Looked through are the packages of the active virtual environment, of PYTHONPATH, of this source
// tree's build/python, of the python3 that is first in PATH, and the system's. No Python is
// started.
#ifndef RN_DEVICE_PYTHON_PACKAGES_H
#define RN_DEVICE_PYTHON_PACKAGES_H

#include <stdbool.h>
#include <stddef.h>

// The first file that fits one of the patterns, which are relative to a folder of packages and end
// with NULL. `looked` gets the folders that were looked into, for a refusal.
bool rn_python_find(const char *const *patterns, char *out, size_t bytes, char *looked,
                    size_t looked_bytes);

#endif
