"""Without torch: the tracker, its files, and memory of the interpreter itself as the thing recorded.

bytearray(n) asks the C library for n + 1 bytes.
"""

import os
import signal
import subprocess
import sys
import threading
import unittest
import warnings

from support import MIB, ProfileTest, checkpoints

import ration
from ration import _library, profiler

PYTHON = ("python3*", "libpython3*")  # the program, or the library that it is made of


def start(test, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one of the two is not there
        tracker = profiler.initialize_memory_tracker(test.folder, libraries=PYTHON, **options)
    test.addCleanup(profiler.stop_memory_tracker)
    if _library.hooks_stats().slot_count == 0:
        test.skipTest("this interpreter does not call malloc through a table")
    return tracker


def watches_itself():
    """Not where the interpreter is a program at a fixed address, as Debian's is."""
    for library in PYTHON:
        _library.slow.rn_hooks_install(library.encode())
    slots = _library.hooks_stats().slot_count
    _library.quick.rn_hooks_remove()
    return slots > 0


def now():
    return _library.hooks_stats().now_bytes


class Plain(ProfileTest):
    def test_the_version_is_the_librarys(self):
        self.assertRegex(ration.__version__, r"^\d+\.\d+\.\d+")
        with open(os.path.join(os.path.dirname(ration.__file__), "..", "VERSION")) as file:
            self.assertEqual(ration.__version__, file.read().strip())

    def test_a_library_that_is_not_there_is_an_import_error_that_says_how_to_build_it(self):
        done = subprocess.run([sys.executable, "-c", "import ration"], text=True, capture_output=True,
                              env={**os.environ, "RATION_LIBRARY": "/nowhere/libration.so"})
        self.assertEqual(1, done.returncode)
        self.assertIn("ImportError: libration.so was not found", done.stderr)
        self.assertIn("make build", done.stderr)
        self.assertIn("/nowhere/libration.so", done.stderr)

    def test_bytes_are_exact_and_go_when_they_are_freed(self):
        start(self)
        before = now()
        block = bytearray(MIB)
        self.assertEqual(MIB + 1, now() - before)
        del block
        self.assertEqual(before, now())

    def test_operations_nest_and_have_their_deltas(self):
        tracker = start(self)
        kept = []
        with tracker.track_operation("outer"):
            kept.append(bytearray(3 * MIB - 1))
            with tracker.track_operation("inner"):
                kept.append(bytearray(2 * MIB - 1))
            kept.pop()
        path = profiler.stop_memory_tracker()
        profile = self.profile()
        self.assertEqual(path, self.only("*.json"))
        deltas = {name: entry["total_memory_delta_mb"]
                  for name, entry in profile["operation_summary"].items()}
        self.assertEqual({"outer": 3, "inner": 2}, {k: round(v, 2) for k, v in deltas.items()})

    def test_a_decorated_function_is_an_operation_even_if_the_tracker_starts_later(self):
        @profiler.get_memory_tracker().track_operation("early")
        def early():
            return 1
        tracker = start(self)

        @tracker.track_operation("late")
        def late():
            return 2
        self.assertEqual((1, 2), (early(), late()))
        profiler.stop_memory_tracker()
        self.assertIn("late", self.profile()["operation_summary"])

    def test_threads_have_their_own_operations(self):
        tracker = start(self)

        def work(number):
            for _ in range(50):
                with tracker.track_operation(f"outer {number}"):
                    with tracker.track_operation("shared"):
                        pass
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        profiler.stop_memory_tracker()
        summary = self.profile()["operation_summary"]
        self.assertEqual(200, summary["shared"]["invocation_count"])
        for i in range(4):
            self.assertEqual(50, summary[f"outer {i}"]["invocation_count"])

    def test_checkpoints_by_call_and_by_with(self):
        start(self)
        profiler.memory_checkpoint("called")
        with profiler.memory_checkpoint("around"):
            pass
        profiler.stop_memory_tracker()
        profile = self.profile()
        self.assertLessEqual({"called", "around", "around_post"}, set(checkpoints(profile)))
        self.assertEqual(1, profile["operation_summary"]["around"]["invocation_count"])

    def test_the_summary_has_the_peak_between_checkpoints(self):
        start(self)
        profiler.memory_checkpoint("before")
        base = now()
        block = bytearray(8 * MIB)
        del block
        profiler.memory_checkpoint("after")
        summary = profiler.get_memory_summary()
        self.assertGreaterEqual(summary["peak_bytes"], base + 8 * MIB + 1)
        self.assertEqual("before", summary["peak_after_checkpoint"])
        self.assertLess(summary["final_bytes"], summary["peak_bytes"])
        self.assertIn(summary["peak_checkpoint"], ("before", "after"))

    def test_a_second_recording_knows_nothing_of_what_died_between(self):
        start(self)
        kept = bytearray(5 * MIB)
        profiler.stop_memory_tracker()
        self.assertGreater(profiler.get_memory_summary()["final_bytes"], 5 * MIB)
        del kept
        start(self)
        self.assertLess(now(), 5 * MIB)
        self.assertLess(profiler.get_memory_summary()["peak_bytes"], 5 * MIB)

    def test_a_profile_can_be_saved_while_the_recording_goes_on(self):
        start(self)
        profiler.memory_checkpoint("one")
        profiler.save_memory_profile()
        self.assertEqual({"one"}, {"one", "two"} & set(checkpoints(self.profile())))
        profiler.memory_checkpoint("two")
        profiler.stop_memory_tracker()
        self.assertEqual({"one", "two"}, {"one", "two"} & set(checkpoints(self.profile())))

    def test_reset_begins_anew(self):
        tracker = start(self)
        kept = bytearray(5 * MIB)
        profiler.memory_checkpoint("old")
        bytearray(50 * MIB)
        tracker.reset()
        profiler.memory_checkpoint("new")
        live = now()
        profiler.stop_memory_tracker()
        names = set(checkpoints(self.profile()))
        self.assertIn("new", names)
        self.assertNotIn("old", names)
        peak = self.peak(self.only("*.rntrace"))
        self.assertGreaterEqual(peak, len(kept))  # what was live before is told again
        self.assertLess(peak, live + 50 * MIB)

    def test_a_second_tracker_is_the_first_with_a_warning(self):
        tracker = start(self)
        with self.assertWarnsRegex(UserWarning, "runs already"):
            self.assertIs(tracker, profiler.initialize_memory_tracker("elsewhere"))
        self.assertFalse(os.path.exists("elsewhere"))

    def test_disabled_does_nothing(self):
        tracker = profiler.initialize_memory_tracker(self.folder, enabled=False)
        with tracker.track_operation("x"), tracker.track_pytorch_ops():
            profiler.memory_checkpoint("x")
        self.assertIsNone(profiler.save_memory_profile())
        self.assertIsNone(profiler.stop_memory_tracker())
        self.assertEqual([], os.listdir(self.folder))

    def test_after_stop_everything_is_as_before(self):
        handlers = sys.excepthook, threading.excepthook, signal.getsignal(signal.SIGTERM)
        start(self)
        self.assertNotEqual(handlers[0], sys.excepthook)
        profiler.stop_memory_tracker()
        self.assertEqual(handlers,
                         (sys.excepthook, threading.excepthook, signal.getsignal(signal.SIGTERM)))
        self.assertEqual(0, _library.hooks_stats().slot_count)

    def test_a_folder_that_cannot_be_written_is_said(self):
        blocked = os.path.join(self.folder, "file")
        with open(blocked, "w"):
            pass
        with self.assertRaises(OSError):
            profiler.initialize_memory_tracker(blocked)
        self.assertFalse(_library.quick.rn_profile_is_on())

    def test_a_limit_may_be_a_text_and_a_wrong_one_starts_nothing(self):
        self.assertEqual(3 << 19, profiler.MemoryTracker(limit="1.5MiB").limit)
        for wrong in ("much", "", "-1", -1):
            with self.assertRaises(ration.Error):
                profiler.initialize_memory_tracker(self.folder, limit=wrong)
            self.assertFalse(_library.quick.rn_profile_is_on())

    def test_a_planted_link_is_not_followed_and_what_a_killed_export_left_goes(self):
        recording, target, victim = (os.path.join(self.folder, name) for name in ("a.rntrace", "a.csv", "victim"))
        _library.check(_library.slow.rn_profile_start(_library.ProfileOptions(path=os.fsencode(recording))))
        _library.check(_library.slow.rn_profile_stop())
        with open(victim, "w") as file:
            file.write("precious")
        planted = [f"{target}.{os.getpid()}.part", f"{target}.rn0123456789ab.tmp"]
        for name in planted:
            os.symlink(victim, name)
        left, theirs = f"{target}.rn00112233aabb.tmp", f"{target}.rnXX112233aabb.tmp"
        for name in (left, theirs):
            open(name, "w").close()
        _library.export(recording, "csv", target)
        with open(victim) as file:
            self.assertEqual("precious", file.read())
        expected = [recording, target, victim, theirs, *planted]
        self.assertEqual(sorted(os.path.basename(name) for name in expected), sorted(os.listdir(self.folder)))

    def test_a_name_is_given_once(self):
        base = os.path.join(self.folder, "x")
        with open(base + "_2.json", "w"):
            pass
        self.assertEqual([base, base + "_3", base + "_4"],
                         [profiler._take_name(base) for _ in range(3)])


PROLOGUE = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
from ration.profiler import *
tracker = initialize_memory_tracker(".", libraries=("python3*", "libpython3*"))
"""


class Endings(ProfileTest):
    """However a program ends, its profile is there."""

    def program(self, code, arguments=(), **options):
        return self.run_program(PROLOGUE + code, *arguments, **options)

    def test_normal_exit(self):
        self.program("memory_checkpoint('here')")
        self.assertIn("here", checkpoints(self.profile()))

    def test_an_exception(self):
        _out, err = self.program("""
with tracker.track_operation("doomed"):
    raise KeyError("why")
""", code_wanted=1)
        self.assertIn("KeyError: 'why'", err)
        self.assertIn("exception KeyError", checkpoints(self.profile()))

    def test_an_exception_in_a_thread(self):
        self.program("""
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
""")
        self.assertIn("exception ZeroDivisionError", checkpoints(self.profile()))

    def test_an_earlier_hook_is_called_too(self):
        out, _err = self.run_program("import sys\nsys.excepthook = lambda *a: print('mine')\n" +
                                     PROLOGUE + "raise KeyError", code_wanted=1)
        self.assertIn("mine", out)

    def test_sigterm(self):
        self.program("os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)",
                     code_wanted=-signal.SIGTERM)
        self.assertIn("SIGTERM", checkpoints(self.profile()))

    def test_sigterm_with_a_handler_of_the_programs_own(self):
        out, _err = self.run_program(
            "import signal, sys\n"
            "signal.signal(signal.SIGTERM, lambda *a: (print('handled'), sys.exit(7)))\n" +
            PROLOGUE + "os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)", code_wanted=7)
        self.assertIn("handled", out)
        self.assertIn("SIGTERM", checkpoints(self.profile()))

    def test_sigterm_with_a_handler_that_goes_on(self):
        self.run_program(
            "import signal\nsignal.signal(signal.SIGTERM, lambda *a: None)\n" + PROLOGUE +
            "os.kill(os.getpid(), signal.SIGTERM); memory_checkpoint('after')")
        self.assertLessEqual({"SIGTERM", "after"}, set(checkpoints(self.profile())))

    def test_sigterm_that_is_ignored_stays_so(self):
        self.run_program(
            "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROLOGUE +
            "os.kill(os.getpid(), signal.SIGTERM); memory_checkpoint('after')")
        self.assertIn("after", checkpoints(self.profile()))

    def test_an_argument_that_is_no_text(self):
        self.program("memory_checkpoint('here')", arguments=(b"\xff",))
        self.assertIn("here", checkpoints(self.profile()))

    def test_memory_error(self):
        self.program("""
try:
    with tracker.track_operation("greedy"):
        raise MemoryError
except MemoryError:
    memory_checkpoint("went on")
os._exit(0)
""")
        self.assertIn("out_of_memory", checkpoints(self.profile()))

    def test_kill_leaves_a_recording_to_read(self):
        self.program("""
kept = bytearray(7 << 20)
memory_checkpoint("before the end")
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
""", code_wanted=-signal.SIGKILL)
        self.assertEqual([], [f for f in os.listdir(self.folder) if f.endswith(".json")])
        trace = self.only("*.rntrace")
        if watches_itself():
            self.assertGreater(self.peak(trace), 7 << 20)
        from ration import _library
        _library.export(trace, "json", os.path.join(self.folder, "memory_profile_read.json"))
        self.assertIn("before the end", checkpoints(self.profile()))

    def test_a_child_of_fork_leaves_the_recording_alone(self):
        self.program("""
child = os.fork()
if child == 0:
    kept = bytearray(100 << 20)
    with tracker.track_operation("in the child"):
        memory_checkpoint("in the child")
    sys.exit(0)
os.waitpid(child, 0)
memory_checkpoint("in the parent")
""")
        profile = self.profile()
        self.assertIn("in the parent", checkpoints(profile))
        self.assertNotIn("in the child", checkpoints(profile))
        self.assertNotIn("in the child", profile["operation_summary"])
        self.assertLess(self.peak(self.only("*.rntrace")), 100 << 20)

    def test_a_thread_that_dies_inside_a_scope(self):
        self.program("""
def die():
    tracker.track_operation("unfinished").__enter__()
thread = threading.Thread(target=die)
thread.start()
thread.join()
""")
        self.assertIn("unfinished", self.profile()["operation_summary"])


if __name__ == "__main__":
    unittest.main()
