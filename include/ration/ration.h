// ration.h — the whole public API, and the rules of the house.
//
// Ownership. The verb tells: create/open gives an object to its one owner, who calls destroy/close
// (NULL is fine). Structs such as rn_tensor_info that a function returns a pointer to are borrowed
// from the object that returned them. Values (rn_str, rn_dtype, option structs) are copied freely.
// An option struct of zeros means the defaults; its reserved fields stay zero (RN_INVALID), so that
// later versions can have further options without another size.
//
// Errors. A function that can fail returns rn_status; the error (message, file, offset, hint) is
// the thread's own, see status.h. "Does not fit now" is a result (rn_fit), not an error. The
// library never prints, exits or aborts.
//
// Threads. Objects may be used from any thread, by one at a time unless their header says
// otherwise; memory.h and what is const may be used by all at once.
//
// Memory. What the library allocates is charged to the ledger (memory.h) and asks the budget first.
// What is not (the ledger's own books, the settings, threads' stacks, io_uring's rings) counts as
// `unaccounted`, for which a conversion keeps a reserve.
#ifndef RATION_RATION_H
#define RATION_RATION_H

#include <ration/bench.h>
#include <ration/bench_report.h>
#include <ration/calibrate.h>
#include <ration/chat.h>
#include <ration/checkpoint.h>
#include <ration/checkpointed.h>
#include <ration/constraint.h>
#include <ration/convert.h>
#include <ration/comm.h>
#include <ration/device.h>
#include <ration/diffuse.h>
#include <ration/easy.h>
#include <ration/embed.h>
#include <ration/error_class.h>
#include <ration/generate.h>
#include <ration/graph.h>
#include <ration/hooks.h>
#include <ration/image.h>
#include <ration/ladder.h>
#include <ration/log.h>
#include <ration/memory.h>
#include <ration/model.h>
#include <ration/npy.h>
#include <ration/offload.h>
#include <ration/onnx.h>
#include <ration/place.h>
#include <ration/plan.h>
#include <ration/pool.h>
#include <ration/profile.h>
#include <ration/program.h>
#include <ration/sampler.h>
#include <ration/serve.h>
#include <ration/session.h>
#include <ration/status.h>
#include <ration/stop.h>
#include <ration/summary.h>
#include <ration/quantize.h>
#include <ration/tensor.h>
#include <ration/text.h>
#include <ration/tokenizer.h>
#include <ration/torch_cuda.h>
#include <ration/train.h>
#include <ration/train_data.h>
#include <ration/train_log.h>
#include <ration/writer.h>

#define RATION_VERSION_MAJOR 0
#define RATION_VERSION_MINOR 1

RN_BEGIN_DECLS

// "0.1.0"
RN_API const char *rn_version(void);

RN_END_DECLS

#endif
