"""CUDA: ration's pool as torch's allocator, or torch's own history.

    import ration.cuda
    ration.cuda.use_pool(limit="4GiB")      # before anything is on the GPU
    ...
    ration.cuda.memory_stats()

With the pool every tensor is an event of the recording, and there are limits and statistics that
torch's pluggable allocators lack. torch's own statistics (torch.cuda.memory_allocated and the like),
its snapshots and CUDA graphs are not available with it: the functions here that are named like
torch's take their place, and the capture of a graph raises an error. Memory of the pool cannot be
shared with other processes.

    with ration.cuda.record_history("run.pickle"):
        ...

keeps torch's allocator and writes its history, which `ration profile html run.pickle` opens.
"""

import contextlib
import ctypes

from . import _library
from ._library import check

_pool = None


def _limit(size):
    """0 is none, for the library."""
    return 0 if size is None else _library.size(size)


def use_pool(limit=None, devices=None):
    """Makes ration's pool the allocator of torch's CUDA tensors. RuntimeError where torch has
    allocated already, or was built without CUDA. `limit`: of each device's reserved bytes."""
    global _pool
    import torch
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device")
    functions = _library.cuda_functions()
    most = _limit(limit)
    if _pool is None:
        memory = torch.cuda.memory
        path = _library.path or _loaded_path()
        pool = memory.CUDAPluggableAllocator(path, "rn_torch_cuda_malloc", "rn_torch_cuda_free")
        _give(pool, "set_init_fn", "rn_torch_cuda_init")
        _give(pool, "set_reset_fn", "rn_torch_cuda_reset")
        _give(pool, "set_memory_fraction_fn", "rn_torch_cuda_memory_fraction")
        _give(pool, "set_base_alloc_fn", "rn_torch_cuda_base_alloc")
        _give(pool, "set_record_stream_fn", "rn_torch_cuda_record_stream")
        for setter in ("set_begin_allocate_to_pool", "set_begin_allocate_stream_to_pool",
                       "set_capture_begin_fn"):
            _give(pool, setter, "rn_torch_cuda_begin_pool")
        memory.change_current_allocator(pool)
        _pool = pool
    for index in devices if devices is not None else range(torch.cuda.device_count()):
        check(functions.rn_torch_cuda_set_limit(index, most))
    return _pool


def _give(pool, setter, name):
    """The setters' names differ from version to version: what is not there is not given."""
    inner = pool.allocator()
    function = getattr(_library.slow, name)
    if hasattr(inner, setter):
        getattr(inner, setter)(ctypes.cast(function, ctypes.c_void_p).value)


def _loaded_path():
    """Where the library lies that is in the process already."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "libration.so" in line:
                return line.split(maxsplit=5)[5].strip()
    raise ImportError("libration.so is not among the process's files")


def is_pool_in_use():
    return _pool is not None


def _index(device):
    """0, "cuda:1", a torch.device; None: the current one."""
    if isinstance(device, int):
        return device
    import torch
    index = None if device is None else torch.device(device).index
    if index is not None:
        return index
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0


def memory_stats(device=None):
    """The pool's numbers for a device, as a dict; limit_bytes is None where there is none."""
    stats = _library.CudaStats()
    check(_library.cuda_functions().rn_torch_cuda_get_stats(_index(device), ctypes.byref(stats)))
    result = {name: getattr(stats, name) for name, _type in stats._fields_}
    if result["limit_bytes"] == _library.NO_LIMIT:
        result["limit_bytes"] = None
    return result


def memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes"]


def memory_reserved(device=None):
    return memory_stats(device)["reserved_bytes"]


def max_memory_allocated(device=None):
    return memory_stats(device)["peak_allocated_bytes"]


def max_memory_reserved(device=None):
    return memory_stats(device)["peak_reserved_bytes"]


def empty_cache():
    """Gives what is free back to the devices; waits for their streams."""
    _library.slow.rn_torch_cuda_reset()


def snapshot(name="snapshot"):
    """A checkpoint in the recording under way: what is live now is listed by `ration profile`.
    Returns the recording's path; RuntimeError while nothing is recorded."""
    if not _library.quick.rn_profile_is_on():
        raise RuntimeError("nothing is recorded: start a recording first")
    _library.slow.rn_profile_checkpoint(name.encode())
    _library.slow.rn_profile_flush()
    facts = _library.ProfileFacts()
    _library.quick.rn_profile_get_facts(ctypes.byref(facts))
    return facts.path.decode("utf-8", "replace")


def set_limit(bytes_or_text, device=None):
    """None: no limit."""
    check(_library.cuda_functions().rn_torch_cuda_set_limit(_index(device), _limit(bytes_or_text)))


def reset_peak_memory_stats(device=None):
    check(_library.cuda_functions().rn_torch_cuda_reset_peak(_index(device)))


@contextlib.contextmanager
def record_history(path, max_entries=1_000_000, stacks="python"):
    """torch's own history of a region, saved as its snapshot (pickle) when the region ends, also by
    an exception. Not with the pool."""
    import torch
    memory = torch.cuda.memory
    memory._record_memory_history(enabled="all", stacks=stacks, max_entries=max_entries)
    try:
        yield path
    finally:
        memory._dump_snapshot(path)
        memory._record_memory_history(enabled=None)
