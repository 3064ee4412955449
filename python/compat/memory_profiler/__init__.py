"""The names of pie's memory_profiler, for programs that import them from there:

    PYTHONPATH=python:python/compat python program.py
"""

from ration.profiler import (MemoryTracker, get_memory_summary, get_memory_tracker,
                             initialize_memory_tracker, memory_checkpoint, save_memory_profile,
                             stop_memory_tracker)

__all__ = ["MemoryTracker", "get_memory_summary", "get_memory_tracker",
           "initialize_memory_tracker", "memory_checkpoint", "save_memory_profile",
           "stop_memory_tracker"]
