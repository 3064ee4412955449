"""Every byte of a PyTorch program on a timeline.

    from ration.profiler import initialize_memory_tracker, memory_checkpoint, stop_memory_tracker

    tracker = initialize_memory_tracker(output_dir="profiles")
    with tracker.track_operation("forward"):
        ...
    memory_checkpoint("after_forward")
    stop_memory_tracker()               # profiles/memory_profile_YYYYMMDD_HHMMSS.json, .rntrace

Each allocation and release of CPU tensor storage is an event, so totals and peaks are exact between
two looks, and views count once. The recording (.rntrace) is written as the program runs: after
`kill -9` it is readable up to its last tenth of a second (`ration profile report FILE`). The JSON
file is made of it on exit, SIGTERM, an unhandled exception, an out-of-memory error, or when asked.

Not seen as events: memory that torch does not ask of its CPU allocator (numpy's arrays, mapped
files, shared memory of data loaders), and other devices unless ration.cuda is used; what torch holds
on those is read at checkpoints and every `interval` seconds.
"""

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
import time
import warnings

from . import _library, _torch
from ._library import PURPOSE_NUMBERS, SAME_PURPOSE, check, hooks_stats, quick, slow

_MB = 1024 * 1024
_begin, _end = quick.rn_hooks_begin, quick.rn_hooks_end


class _Operation:
    """`with` and decorator; has no state of its own, so one may be open on many threads at once."""

    __slots__ = ("tracker", "name", "purpose", "number", "purpose_number")

    def __init__(self, tracker, name, purpose):
        self.tracker, self.name, self.purpose = tracker, name, purpose
        self.number = quick.rn_profile_name(name.encode())
        self.purpose_number = SAME_PURPOSE if purpose is None else PURPOSE_NUMBERS[purpose]

    def __enter__(self):
        _begin(self.number, self.purpose_number)
        return self

    def __exit__(self, kind, error, _trace):
        if error is not None and _torch.is_out_of_memory(error):
            self.tracker._saw_out_of_memory(error)  # before the end: the operation is on the record
        _end()
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def tracked(*args, **kwargs):
            with self.tracker.track_operation(self.name, self.purpose):
                return function(*args, **kwargs)
        return tracked


class _LateOperation:
    """What a tracker that is off hands out: as `with` nothing; as decorator it asks again at each
    call."""

    __slots__ = ("tracker", "name", "purpose")

    def __init__(self, tracker, name, purpose):
        self.tracker, self.name, self.purpose = tracker, name, purpose

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    __call__ = _Operation.__call__


class _Checkpoint:
    """Taken already; as a `with`, it is an operation too, and a second checkpoint ends it."""

    def __init__(self, tracker, name):
        self.tracker, self.name, self.operations = tracker, name, []

    def __enter__(self):
        operation = self.tracker.track_operation(self.name)
        self.operations.append(operation)
        operation.__enter__()
        return self

    def __exit__(self, kind, error, trace):
        self.operations.pop().__exit__(kind, error, trace)
        self.tracker.checkpoint(f"{self.name}_post")
        return False


class MemoryTracker:
    """One recording. All methods may be called from any thread, and do nothing while it is off."""

    def __init__(self, output_dir=".", enabled=True, interval=5.0, *, limit=None,
                 label_tensors=True, file_limit=0, libraries=("libc10.so*",), stacks=True):
        """`limit`: bytes of CPU tensors, or "2GiB"; beyond it torch raises its error, as if the machine
        had no more. `label_tensors`: at checkpoints and at the end, walk the collector's objects once to say which block
        is which tensor. `file_limit`: bytes of the recording (0: 1 GiB). `libraries`: whose
        allocations are recorded; "libtorch_cpu.so" would add its kernels' workspace. `stacks`: record
        who asked for each block, the call stack of Python and C."""
        self.output_dir = os.path.abspath(output_dir)
        self.enabled = enabled
        self.interval = float(interval)
        self.limit = None if limit is None else _library.size(limit)
        self.label_tensors = label_tensors
        self.file_limit = _library.size(file_limit)
        self.libraries = tuple(libraries)
        self.stacks = stacks
        self.trace_path = None
        self.json_path = None
        self.running = False
        self._lock = threading.RLock()
        self._pid = None
        self._joined = False  # the recording is the preload library's
        self._clear()

    def _clear(self):
        self._checkpoints = []  # (name, bytes)
        self._after_peak = None
        self._peak_seen = 0
        self._operations = {}  # name -> _Operation
        self._torch_operations = {}
        self._torch_profiler_busy = False
        self._devices = None
        self._step_labels = None
        self._quit = None
        self._last_summary = None
        self._limit_before = _library.NO_LIMIT

    # ---- from start to stop ---------------------------------------------------------------------

    def start(self):
        with self._lock:
            if self.running or not self.enabled:
                return self
            self._clear()
            self._pid = os.getpid()
            self._open_recording()
            self.running = True
            if not self._joined:
                quick.rn_hooks_set_stacks(self.stacks)
            self._limit_before = hooks_stats().limit_bytes
            if self.limit is not None:
                quick.rn_hooks_set_limit(self.limit)
            try:
                self._watch_torch()
            except BaseException:
                self.stop()
                raise
        return self

    def _open_recording(self):
        os.makedirs(self.output_dir, exist_ok=True)
        base = os.path.join(self.output_dir, time.strftime("memory_profile_%Y%m%d_%H%M%S"))
        name = _take_name(base)
        self.json_path, self.trace_path = name + ".json", name + ".rntrace"
        self._joined = bool(quick.rn_profile_is_on())
        if self._joined:
            facts = _library.ProfileFacts()
            quick.rn_profile_get_facts(facts)
            os.unlink(self.trace_path)
            self.trace_path = os.fsdecode(facts.path)
            return
        options = _library.ProfileOptions(
            path=os.fsencode(self.trace_path), command=os.fsencode(" ".join(sys.argv))[:255],
            limit_bytes=self.file_limit, snapshot_seconds=self.interval if self.interval > 0 else -1)
        check(slow.rn_profile_start(options))
        quick.rn_hooks_reset_peak()
        quick.rn_hooks_replay()

    def _watch_torch(self):
        torch = _torch.load()
        self._devices = _torch.Devices(torch)
        for library in self.libraries:
            if torch is None and library.startswith("libc10"):
                continue
            try:
                check(slow.rn_hooks_install(library.encode()))
            except _library.Error as error:
                warnings.warn(f"ration: CPU tensors are not recorded: {error}", stacklevel=4)
        if torch is None:
            return
        _torch.adopt_live_tensors(torch)
        self._step_labels = _torch.StepLabels(torch) if self.label_tensors else None
        if self._devices.readers and self.interval > 0:
            self._quit = threading.Event()
            threading.Thread(target=self._sample, args=(self._quit,), daemon=True,
                             name="ration devices").start()
        if torch.cuda.is_available():
            _observe_cuda_out_of_memory(torch)

    def _sample(self, quit_event):
        while not quit_event.wait(self.interval):
            if not self._is_on():
                return
            self._devices.record()

    def stop(self):
        """Ends the recording and writes the JSON file; returns its path (None where it was off)."""
        with self._lock:
            if not self._is_on():
                return None
            self._label_tensors()  # what is live to the end is listed there, each with what it is
            self._record_devices("stop")
            self._last_summary = self.summary()
            self.running = False
            if self._quit:
                self._quit.set()
            if self._step_labels:
                self._step_labels.remove()
            quick.rn_hooks_set_limit(self._limit_before)
            if self._joined:
                slow.rn_profile_flush()
            else:
                quick.rn_hooks_remove()
                check(slow.rn_profile_stop())
            return self._export()

    def reset(self):
        """Forgets what was recorded and begins anew, in a new file."""
        with self._lock:
            if not self._is_on() or self._joined:
                return
            check(slow.rn_profile_stop())
            os.unlink(self.trace_path)
            self._checkpoints = []
            self._after_peak, self._peak_seen = None, 0
            self._torch_operations = {}
            self._open_recording()

    def save(self):
        """Writes the JSON file of what has been recorded so far; returns its path (None where it is
        off). The memory that this takes for a moment is in the recording, too: the profiler's, on
        the device "host"."""
        with self._lock:
            if not self._is_on():
                return None
            slow.rn_profile_flush()
            return self._export()

    def _export(self):
        return _library.export(self.trace_path, "json", self.json_path)

    def _is_on(self):
        # A child of fork has the tracker's objects, but not its recording.
        return self.running and self._pid == os.getpid()

    # ---- marks ------------------------------------------------------------------------------------

    def checkpoint(self, name):
        """A snapshot with a name: what is live here is listed in reports and exports."""
        if not self._is_on():
            return
        self._label_tensors()
        self._record_devices(name)
        quick.rn_profile_checkpoint(name.encode())

    def _label_tensors(self):
        torch = _torch.loaded()
        if torch is not None and self.label_tensors:
            _torch.label_live_tensors(torch)

    def _record_devices(self, name):
        elsewhere = self._devices.record() if self._devices else 0
        stats = hooks_stats()
        with self._lock:
            if stats.peak_bytes > self._peak_seen:
                self._peak_seen = stats.peak_bytes
                self._after_peak = self._checkpoints[-1][0] if self._checkpoints else None
            self._checkpoints.append((name, stats.now_bytes + elsewhere))

    def track_operation(self, name, purpose="activations"):
        """`with` or decorator: from begin to end on this thread; they nest. What is allocated in it
        serves `purpose` (None: as around it) unless it turns out to be a weight, a gradient or an
        optimizer's state."""
        if not self.running:
            return _LateOperation(self, name, purpose)
        operation = self._operations.get((name, purpose))
        if operation is not None:
            return operation
        if not self._is_on():
            return _LateOperation(self, name, purpose)
        operation = _Operation(self, name, purpose)
        if operation.number:
            self._operations[name, purpose] = operation
        return operation

    @contextlib.contextmanager
    def track_pytorch_ops(self):
        """PyTorch's own profiler around a region: every operator with its input shapes, calls, time
        and memory. Slow, as that is; nested ones, and those of other threads, are one."""
        torch = _torch.load() if self._is_on() else None
        with self._lock:
            mine = torch is not None and not self._torch_profiler_busy
            if mine:
                self._torch_profiler_busy = True
        if not mine:
            yield
            return
        profile = _torch.profiler(torch)
        try:
            with profile:
                yield
        finally:
            with self._lock:
                self._torch_profiler_busy = False
                self._add_torch_operations(_torch.operations_of(profile))

    def _add_torch_operations(self, found):
        if not self._is_on():
            return
        for (name, shapes), numbers in found.items():
            sums = self._torch_operations.setdefault((name, shapes), [0] * 5)
            for i, number in enumerate(numbers):
                sums[i] += number
            label = quick.rn_profile_label(name.encode(), b"", shapes.encode())
            calls, cpu_us, cuda_us, cpu_bytes, cuda_bytes = sums
            values = (calls, round(cpu_us * 1000), round(cuda_us * 1000), cpu_bytes, cuda_bytes)
            for kind, value in zip(_library.COUNTER_TORCH, values):
                quick.rn_profile_counter(kind, 0, label, int(value) % 2**64)

    def _saw_out_of_memory(self, error):
        if getattr(error, "_ration_saved", False) or not self._is_on():
            return
        with contextlib.suppress(AttributeError):
            error._ration_saved = True
        self._save_after("out_of_memory")

    def _save_after(self, what, goes_on=True):
        """The program is in trouble: whatever fails here must not hide why. Where it does not go on,
        stop() will write the JSON file."""
        try:
            self.checkpoint(what)
            if goes_on:
                self.save()
        except Exception as failure:  # noqa: BLE001
            print(f"ration: the profile was not saved: {failure}", file=sys.stderr)

    # ---- numbers ----------------------------------------------------------------------------------

    def summary(self):
        """Peak and final bytes, of CPU tensors exactly; other devices as torch counts them. After
        stop: as it was then.

        peak_checkpoint: the checkpoint that held the most; peak_after_checkpoint: the one after
        which the exact peak was."""
        if self._last_summary and not self._is_on():
            return self._last_summary
        stats = hooks_stats()
        devices = {"cpu": {"now_bytes": stats.now_bytes, "peak_bytes": stats.peak_bytes}}
        if self._devices:
            for name, (now, peak) in self._devices.read().items():
                devices[name] = {"now_bytes": now, "peak_bytes": peak}
        with self._lock:
            best = max(self._checkpoints, key=lambda c: c[1], default=(None, 0))
            last = self._checkpoints[-1][0] if self._checkpoints else None
            after = self._after_peak if stats.peak_bytes <= self._peak_seen else last
        final = sum(device["now_bytes"] for device in devices.values())
        peak = sum(device["peak_bytes"] for device in devices.values())
        return {
            "peak_bytes": peak, "peak_mb": peak / _MB,
            "peak_checkpoint": best[0], "peak_checkpoint_bytes": best[1],
            "peak_after_checkpoint": after,
            "final_bytes": final, "final_mb": final / _MB,
            "num_checkpoints": len(self._checkpoints),
            "tensor_count": stats.now_count, "allocation_count": stats.total_count,
            "refused_count": stats.refused_count, "devices": devices,
        }


def _take_name(base):
    """base, with a number where it is taken. The recording's file is made to take it: the processes
    of a distributed program start in the same second."""
    name, number = base, 1
    while True:
        with contextlib.suppress(FileExistsError):
            open(name + ".rntrace", "x").close()
            if not os.path.exists(name + ".json"):
                return name
            os.unlink(name + ".rntrace")
        number += 1
        name = f"{base}_{number}"


# ---- the program's tracker ------------------------------------------------------------------------

_tracker = None
_tracker_lock = threading.RLock()
_before = {}  # what stood where our handlers stand


def initialize_memory_tracker(output_dir=".", enabled=True, interval=5.0, **options):
    """Starts the program's tracker and returns it. There is one: a second call returns the first's,
    with a warning, until stop_memory_tracker(). `options`: see MemoryTracker."""
    global _tracker
    with _tracker_lock:
        if _tracker is not None and _tracker.running and _tracker._pid == os.getpid():
            warnings.warn("ration: the memory tracker runs already; stop_memory_tracker() first",
                          stacklevel=2)
            return _tracker
        tracker = MemoryTracker(output_dir, enabled, interval, **options)
        tracker.start()
        _tracker = tracker
        if tracker.running:
            _watch_the_end()
        return tracker


def get_memory_tracker():
    """The program's tracker; one that is off where none was started."""
    global _tracker
    with _tracker_lock:
        if _tracker is None:
            _tracker = MemoryTracker(enabled=False)
        return _tracker


def memory_checkpoint(name):
    """A snapshot with a name. As a `with`, an operation of that name and a second snapshot,
    NAME_post, at its end."""
    tracker = get_memory_tracker()
    tracker.checkpoint(name)
    return _Checkpoint(tracker, name)


def save_memory_profile():
    """Writes the JSON file of what has been recorded so far; returns its path (None where nothing is
    recorded)."""
    return get_memory_tracker().save()


def get_memory_summary():
    """Peak, the checkpoint that held the most, what is held now: see MemoryTracker.summary."""
    return get_memory_tracker().summary()


def stop_memory_tracker():
    """Ends the recording and writes the JSON file; returns its path (None where nothing is
    recorded)."""
    tracker = get_memory_tracker()
    path = tracker.stop()
    _unwatch_the_end()
    return path


# ---- however the program ends ---------------------------------------------------------------------


def _at_exit():
    try:
        stop_memory_tracker()
    except Exception as error:  # noqa: BLE001
        print(f"ration: the profile was not saved: {error}", file=sys.stderr)


def _on_exception(kind, error, trace):
    _note_exception(error)
    _before["except"](kind, error, trace)


def _on_thread_exception(arguments):
    if arguments.exc_value is not None:
        _note_exception(arguments.exc_value)
    _before["thread"](arguments)


def _note_exception(error):
    tracker = get_memory_tracker()
    if isinstance(error, KeyboardInterrupt) or getattr(error, "_ration_saved", False):
        return
    if _torch.is_out_of_memory(error):
        tracker._saw_out_of_memory(error)
    else:
        tracker._save_after(f"exception {type(error).__name__}", goes_on=False)


def _on_terminate(number, frame):
    """The program's own handler may let it go on: then the tracker goes on, too."""
    tracker = get_memory_tracker()
    previous = _before.get("signal")
    tracker._save_after("SIGTERM", goes_on=callable(previous))
    if callable(previous):
        previous(number, frame)
        return
    with contextlib.suppress(Exception):
        tracker.stop()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _watch_the_end():
    if _before:
        return
    _before["except"], _before["thread"] = sys.excepthook, threading.excepthook
    sys.excepthook, threading.excepthook = _on_exception, _on_thread_exception
    before = signal.getsignal(signal.SIGTERM)  # None: not Python's; it could not be put back
    if (threading.current_thread() is threading.main_thread()
            and before not in (None, signal.SIG_IGN)):
        _before["signal"] = signal.signal(signal.SIGTERM, _on_terminate)
    atexit.register(_at_exit)


def _unwatch_the_end():
    """Ours are taken away where they still stand on top; others that were put above them stay."""
    if not _before:
        return
    if sys.excepthook is _on_exception:
        sys.excepthook = _before["except"]
    if threading.excepthook is _on_thread_exception:
        threading.excepthook = _before["thread"]
    on_main = threading.current_thread() is threading.main_thread()
    if "signal" in _before and on_main and signal.getsignal(signal.SIGTERM) is _on_terminate:
        signal.signal(signal.SIGTERM, _before["signal"])
    atexit.unregister(_at_exit)
    if (sys.excepthook is not _on_exception and threading.excepthook is not _on_thread_exception
            and signal.getsignal(signal.SIGTERM) is not _on_terminate):
        _before.clear()


_cuda_observed = False


def _observe_cuda_out_of_memory(torch):
    """torch calls this at the moment of its refusal, before the exception."""
    global _cuda_observed
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None or _cuda_observed:
        return
    _cuda_observed = True

    def observe(device, requested, _device_total, _device_free):
        tracker = get_memory_tracker()
        if tracker._is_on():
            quick.rn_profile_checkpoint(b"out_of_memory")
            slow.rn_profile_flush()

    with contextlib.suppress(RuntimeError):  # not offered by a pluggable allocator
        attach(observe)
