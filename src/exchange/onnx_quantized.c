#include "exchange/onnx_importer.h"
const rn_import_op rn_onnx_quantized_ops[] = {{NULL, NULL, 0}};
