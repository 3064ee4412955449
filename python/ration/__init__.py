"""ration for Python: every byte of a PyTorch program on a timeline.

    from ration.profiler import initialize_memory_tracker, memory_checkpoint, stop_memory_tracker
"""

import os as _os

from ._library import Error, quick as _quick
from .profiler import (MemoryTracker, get_memory_summary, get_memory_tracker,
                       initialize_memory_tracker, memory_checkpoint, save_memory_profile,
                       stop_memory_tracker)



def compat_path():
    """A folder for PYTHONPATH: with it, programs written for memory_profiler run unmodified."""
    here = _os.path.dirname(_os.path.realpath(__file__))
    inside = _os.path.join(here, "compat")
    return inside if _os.path.isdir(inside) else _os.path.join(_os.path.dirname(here), "compat")


__version__ = _quick.rn_version().decode()
__all__ = ["Error", "MemoryTracker", "compat_path", "get_memory_summary", "get_memory_tracker",
           "initialize_memory_tracker", "memory_checkpoint", "save_memory_profile",
           "stop_memory_tracker"]
