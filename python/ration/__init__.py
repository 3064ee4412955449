"""ration for Python: every byte of a PyTorch program on a timeline.

    from ration.profiler import initialize_memory_tracker, memory_checkpoint, stop_memory_tracker
"""

from ._library import Error, quick as _quick
from .profiler import (MemoryTracker, get_memory_summary, get_memory_tracker,
                       initialize_memory_tracker, memory_checkpoint, save_memory_profile,
                       stop_memory_tracker)

__version__ = _quick.rn_version().decode()
__all__ = ["Error", "MemoryTracker", "get_memory_summary", "get_memory_tracker",
           "initialize_memory_tracker", "memory_checkpoint", "save_memory_profile",
           "stop_memory_tracker"]
