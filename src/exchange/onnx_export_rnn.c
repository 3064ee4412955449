// onnx_export_rnn.c — recurrent layers over whole sequences, which ONNX has as they are.
#include "exchange/onnx_export_ops.h"

RN_EXPORTER(rnn) {
    static const char *const names[] = {
        [RN_RNN_PLAIN] = "RNN", [RN_RNN_LSTM] = "LSTM", [RN_RNN_GRU] = "GRU"};
    const rn_rnn_attrs *own = call->attrs;
    rn_export_attr attrs[6] = {RN_EXPORT_INT("hidden_size", own->hidden),
                               RN_EXPORT_TEXT("direction", own->both      ? "bidirectional"
                                                           : own->reverse ? "reverse"
                                                                          : "forward")};
    uint32_t count = 2, outputs = own->kind == RN_RNN_LSTM ? 3 : 2;
    for (int i = 0; i < 6; i++)
        if (own->functions[i] != RN_RNN_DEFAULT) rn_export_refuse(h, "activations of its own");
    if (own->batch_first) rn_export_refuse(h, "batches before times");
    if (own->clip > 0) attrs[count++] = RN_EXPORT_FLOAT("clip", (float)own->clip);
    if (own->kind == RN_RNN_GRU)
        attrs[count++] = RN_EXPORT_INT("linear_before_reset", own->reset_after);
    if (own->kind == RN_RNN_LSTM) attrs[count++] = RN_EXPORT_INT("input_forget", own->coupled);
    for (uint32_t i = 0; i < outputs; i++)
        if (call->outputs[i].data) out[i] = rn_export_new(h, RN_DTYPE_F32, call->outputs[i].shape);
    rn_export_write(h, names[own->kind], in, call->input_count, attrs, count, out, outputs);
}
