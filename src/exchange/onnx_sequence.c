#include "exchange/onnx_importer.h"
const rn_import_op rn_onnx_sequence_ops[] = {{NULL, NULL, 0}};
