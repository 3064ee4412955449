"""Finds libration.so and gives its functions their types.

`quick` keeps the interpreter's lock: a call of a few hundred nanoseconds is cheaper than handing the
lock over. `slow` lets other threads run: files are written and read there.
"""

import ctypes
import ctypes.util
import fcntl
import os
import re
import secrets
from ctypes import c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

RN_OK = 0
NO_LIMIT = 2**64 - 1
PURPOSES = ("weights", "kv", "activations", "gradients", "optimizer", "workspace", "staging", "io",
            "profiler", "unaccounted", "other", "state")
PURPOSE_NUMBERS = {name: number for number, name in enumerate(PURPOSES)}
SAME_PURPOSE = len(PURPOSES)  # RN_PURPOSE_COUNT
COUNTER_OTHER = 0
COUNTER_TORCH = range(5, 10)  # calls, cpu ns, cuda ns, cpu bytes, cuda bytes
EXPORTS = {"html": 0, "json": 1, "chrome": 2, "torch": 3, "csv": 4, "prometheus": 5, "pprof": 6}


class Str(ctypes.Structure):
    _fields_ = [("data", c_char_p), ("bytes", c_size_t)]


class Story(ctypes.Structure):
    _fields_ = [("status", c_int), ("source_line", c_int), ("source_file", c_char_p),
                ("offset", c_uint64), ("path", c_char * 512), ("message", c_char * 1024),
                ("hint", c_char * 512)]


class ProfileOptions(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("command", c_char_p), ("limit_bytes", c_uint64),
                ("keep_newest", c_bool), ("snapshot_seconds", c_double), ("ring_bytes", c_uint64),
                ("leave_signals", c_bool), ("reserved", c_uint64 * 4)]


class ProfileFacts(ctypes.Structure):
    _fields_ = [("path", c_char * 4096), ("on", c_bool), ("event_count", c_uint64),
                ("dropped_count", c_uint64), ("file_bytes", c_uint64), ("ring_bytes", c_uint64)]


class HooksFilter(ctypes.Structure):
    _fields_ = [("min_bytes", c_uint64), ("min_align", c_uint64)]


class HooksStats(ctypes.Structure):
    _fields_ = [("now_bytes", c_uint64), ("peak_bytes", c_uint64), ("now_count", c_uint64),
                ("total_bytes", c_uint64), ("total_count", c_uint64), ("refused_count", c_uint64),
                ("missed_count", c_uint64), ("limit_bytes", c_uint64), ("slot_count", c_uint64),
                ("preloaded", c_bool)]


class CudaStats(ctypes.Structure):
    _fields_ = [("allocated_bytes", c_uint64), ("reserved_bytes", c_uint64),
                ("peak_allocated_bytes", c_uint64), ("peak_reserved_bytes", c_uint64),
                ("alloc_count", c_uint64), ("free_count", c_uint64), ("pending_bytes", c_uint64),
                ("oom_count", c_uint64), ("limit_bytes", c_uint64)]


WRITE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


class Sink(ctypes.Structure):
    _fields_ = [("self", c_void_p), ("write", WRITE)]


_SIGNATURES = {
    "rn_version": (c_char_p, []),
    "rn_last_error": (ctypes.POINTER(Story), []),
    "rn_status_name": (c_char_p, [c_int]),
    "rn_size_parse": (c_int, [Str, c_uint64, ctypes.POINTER(c_uint64)]),
    "rn_device_add": (c_int, [c_char_p, ctypes.POINTER(c_uint8)]),
    "rn_profile_start": (c_int, [ctypes.POINTER(ProfileOptions)]),
    "rn_profile_stop": (c_int, []),
    "rn_profile_is_on": (c_bool, []),
    "rn_profile_flush": (None, []),
    "rn_profile_get_facts": (None, [ctypes.POINTER(ProfileFacts)]),
    "rn_profile_name": (c_uint32, [c_char_p]),
    "rn_profile_label": (c_uint32, [c_char_p, c_char_p, c_char_p]),
    "rn_profile_thread_name": (None, [c_char_p]),
    "rn_profile_counter": (None, [c_int, c_uint8, c_uint32, c_uint64]),
    "rn_profile_checkpoint": (None, [c_char_p]),
    "rn_timeline_open": (c_int, [c_char_p, ctypes.POINTER(c_void_p)]),
    "rn_timeline_destroy": (None, [c_void_p]),
    "rn_timeline_export": (c_int, [c_void_p, c_int, Sink]),
    "rn_hooks_install": (c_int, [c_char_p]),
    "rn_hooks_remove": (None, []),
    "rn_hooks_get_stats": (None, [ctypes.POINTER(HooksStats)]),
    "rn_hooks_reset_peak": (None, []),
    "rn_hooks_set_limit": (None, [c_uint64]),
    "rn_hooks_set_stacks": (None, [c_bool]),
    "rn_hooks_set_filter": (None, [HooksFilter]),
    "rn_hooks_set_purpose": (c_int, [c_int]),
    "rn_hooks_begin": (None, [c_uint32, c_int]),
    "rn_hooks_end": (None, []),
    "rn_hooks_label_all": (c_size_t, [c_void_p, c_void_p, c_size_t, c_int]),
    "rn_hooks_adopt": (c_bool, [c_uint64, c_uint64, c_int]),
    "rn_hooks_replay": (None, []),
}
_CUDA_SIGNATURES = {
    "rn_torch_cuda_set_limit": (c_int, [c_int, c_uint64]),
    "rn_torch_cuda_get_stats": (c_int, [c_int, ctypes.POINTER(CudaStats)]),
    "rn_torch_cuda_reset_peak": (c_int, [c_int]),
}


def _candidates():
    """Paths to try, in order; None is what is loaded already (LD_PRELOAD)."""
    yield None
    if os.environ.get("RATION_LIBRARY"):
        yield os.environ["RATION_LIBRARY"]
        return
    here = os.path.dirname(os.path.realpath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    for path in (os.path.join(here, "libration.so"),
                 os.path.join(root, "build", "release", "lib", "libration.so")):
        if os.path.exists(path):
            yield path
    found = ctypes.util.find_library("ration")
    if found:
        yield found


def _bind(handle, signatures):
    for name, (result, arguments) in signatures.items():
        function = getattr(handle, name)
        function.restype, function.argtypes = result, arguments
    return handle


def _load():
    tried = []
    for path in _candidates():
        try:
            quick = ctypes.PyDLL(path)
            _bind(quick, _SIGNATURES)
        except (OSError, AttributeError) as error:
            if path:
                tried.append(f"  {path}: {error}")
            continue
        slow = _bind(ctypes.CDLL(path), _SIGNATURES)
        return path, quick, slow
    raise ImportError("\n".join(
        ["libration.so was not found or cannot be loaded. Build it with `make build` in ration's "
         "folder, or name it: RATION_LIBRARY=/path/to/libration.so"] + tried))


path, quick, slow = _load()


def cuda_functions():
    """The functions of torch_cuda.h."""
    return _bind(slow, _CUDA_SIGNATURES)


class Error(RuntimeError):
    """A call of the library that failed: its message, and what to do about it."""


def check(status):
    if status == RN_OK:
        return
    story = quick.rn_last_error().contents
    message = story.message.decode("utf-8", "replace")
    if story.path and story.path not in story.message:
        message = f"{story.path.decode('utf-8', 'replace')}: {message}"
    if story.hint:
        message += f" (hint: {story.hint.decode('utf-8', 'replace')})"
    raise Error(message or quick.rn_status_name(status).decode())


def size(value):
    """Bytes of a number, or of a text such as "4GiB", "800MB". Error: it is no size."""
    if isinstance(value, str):
        text, number = value.encode(), c_uint64()
        check(quick.rn_size_parse(Str(text, len(text)), 0, ctypes.byref(number)))
        return number.value
    if value < 0:
        raise Error(f"{value!r} bytes are no size")
    return int(value)


def hooks_stats():
    stats = HooksStats()
    quick.rn_hooks_get_stats(ctypes.byref(stats))
    return stats


def device_number(name):
    number = c_uint8()
    check(quick.rn_device_add(name.encode(), ctypes.byref(number)))
    return number.value


# ---- files that appear whole ------------------------------------------------------------------------
#
# As the library's own (src/base/temporary.h): a random name, created exclusively, so that nobody can
# plant a link there; locked by whoever writes it, so that what a killed process left is known.


def _sweep(target):
    folder, base = os.path.split(os.path.abspath(target))
    pattern = re.compile(re.escape(base) + r"\.rn[0-9a-f]{12}\.tmp")
    for entry in os.scandir(folder):
        if not pattern.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        try:
            fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            status = os.fstat(fd)
            if status.st_uid == os.geteuid() and status.st_nlink == 1:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)
        except OSError:  # somebody writes it
            pass
        finally:
            os.close(fd)


def _open_temporary(target):
    """The name of a new file beside `target`, and the file, locked while it is open."""
    _sweep(target)
    while True:
        name = f"{target}.rn{secrets.token_hex(6)}.tmp"
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.fstat(fd).st_nlink > 0
        except BlockingIOError:
            held = False  # another process's sweep was faster
        except OSError:
            held = True  # a file system without locks: nobody sweeps
        if held:
            return name, os.fdopen(fd, "wb")
        os.close(fd)


def export(source, form, target):
    """Reads a recording (or any file that `ration profile` reads) and writes it in another form;
    `target` is complete or is not touched."""
    timeline = c_void_p()
    check(slow.rn_timeline_open(os.fsencode(source), ctypes.byref(timeline)))
    partial, failure = None, []
    try:
        partial, out = _open_temporary(target)
        with out:
            def write(_self, data, count):
                try:
                    out.write(ctypes.string_at(data, count))
                    return RN_OK
                except OSError as error:
                    failure.append(error)
                    return 6  # RN_IO
            status = slow.rn_timeline_export(timeline, EXPORTS[form], Sink(None, WRITE(write)))
            if failure:
                raise failure[0]
            check(status)
            out.flush()
            os.replace(partial, target)  # before it is closed: that gives the lock away
            partial = None
    finally:
        slow.rn_timeline_destroy(timeline)
        if partial:
            os.unlink(partial)
    return target
