"""The names of pie's memory_profiler, for programs that import them from there:

    PYTHONPATH=python/compat python program.py

ration itself is taken from the folder beside this one where it is not installed.
"""

import importlib.util
import os
import sys

if importlib.util.find_spec("ration") is None:
    sys.path.append(os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..")))

from ration.profiler import (  # noqa: E402
    MemoryTracker, get_memory_summary, get_memory_tracker, initialize_memory_tracker,
    memory_checkpoint, save_memory_profile, stop_memory_tracker)

__all__ = ["MemoryTracker", "get_memory_summary", "get_memory_tracker",
           "initialize_memory_tracker", "memory_checkpoint", "save_memory_profile",
           "stop_memory_tracker"]
