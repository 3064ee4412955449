#!/usr/bin/env python3
"""Writes tests/golden/ggml_encoded.safetensors: rows of numbers, and the blocks that ggml makes of them.

Needs numpy, safetensors, a C compiler, and llama.cpp with its library of formats:
    python scripts/reference/ggml_golden.py LLAMA_CPP_FOLDER BUILD/ggml/src/libggml-base.a

The file holds `input` (rows, 512), `importance` (512), and for each kind KIND.plain and KIND.weighed: what
ggml_quantize_chunk makes of the rows without and with the importances. ggml's library of formats is built for
plain x86-64, where nothing is contracted: its bytes do not depend on the machine.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import save_file

TARGET = pathlib.Path(__file__).parents[2] / "tests/golden/ggml_encoded.safetensors"
KINDS = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13,
         "q6_k": 14, "iq4_nl": 20, "iq4_xs": 23, "mxfp4": 39}

PROGRAM = r"""
#include "ggml.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { // TYPE ROWS COLS WEIGHED: importances, if any, then rows, from stdin
    int type = atoi(argv[1]); long rows = atol(argv[2]), cols = atol(argv[3]);
    float *w = malloc(cols * 4), *x = malloc(rows * cols * 4);
    void *out = malloc(rows * cols * 4);
    if (atoi(argv[4]) && fread(w, 4, cols, stdin) != (size_t)cols) return 1;
    if (fread(x, 4, rows * cols, stdin) != (size_t)(rows * cols)) return 1;
    size_t bytes = ggml_quantize_chunk(type, x, out, 0, rows, cols, atoi(argv[4]) ? w : NULL);
    return fwrite(out, 1, bytes, stdout) != bytes;
}
"""


def compile_encoder(source, library):
    folder = tempfile.mkdtemp()
    path = pathlib.Path(folder) / "encode"
    (pathlib.Path(folder) / "encode.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-o", path, f"{path}.c", "-I", f"{source}/ggml/include", library, "-lm", "-lpthread",
                    "-lstdc++", "-ldl", "-fopenmp"], check=True)
    return path


def encode(program, kind, rows, importance=None):
    head = b"" if importance is None else importance.tobytes()
    command = [program, str(KINDS[kind]), str(rows.shape[0]), str(rows.shape[1]), str(int(importance is not None))]
    out = subprocess.run(command, input=head + rows.tobytes(), capture_output=True, check=True).stdout
    return numpy.frombuffer(out, numpy.uint8).reshape(rows.shape[0], -1)


def cases():
    """Bell-shaped as weights are, and what is awkward: zeros, one value, one sign, outliers, tiny, large, steps."""
    random = numpy.random.RandomState(7)
    x = random.standard_normal((12, 512)).astype(numpy.float32) * 0.05
    x[1] = 0
    x[2] = 0.375
    x[3] = -numpy.abs(x[3])
    x[4] = numpy.abs(x[4])
    x[5, ::37] *= 40
    x[6] *= 1e-7
    x[7] *= 3e4
    x[8] = numpy.round(x[8] * 60) / 16
    x[9, :256] = 0
    x[9, 256:] *= 1e-20
    x[10, 32:96] = 0
    x[11] = random.standard_t(2, 512) * 0.02
    importance = (random.standard_gamma(0.5, 512) + 1e-3).astype(numpy.float32)
    return x.astype(numpy.float32), importance


def main():
    program = compile_encoder(sys.argv[1], sys.argv[2])
    x, importance = cases()
    tensors = {"input": x, "importance": importance}
    for kind in KINDS:
        tensors[f"{kind}.plain"] = encode(program, kind, x)
        tensors[f"{kind}.weighed"] = encode(program, kind, x, importance)
    save_file(tensors, TARGET)


if __name__ == "__main__":
    main()
