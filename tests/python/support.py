"""What the tests share: scratch folders, programs run in processes of their own, profiles read back."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

MIB = 1024 * 1024


class ProfileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ration-python-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_program(self, code, *arguments, code_wanted=0, env=None):
        """Runs Python code in a process of its own, in the scratch folder. A negative code_wanted is
        a signal. Returns what it printed."""
        path = os.path.join(self.folder, "program.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(code))
        done = subprocess.run([sys.executable, path, *arguments], cwd=self.folder, text=True,
                              capture_output=True, timeout=600, env={**os.environ, **(env or {})})
        self.assertEqual(code_wanted, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def only(self, pattern):
        found = glob.glob(os.path.join(self.folder, pattern))
        self.assertEqual(1, len(found), f"{pattern}: {found} in {os.listdir(self.folder)}")
        return found[0]

    def profile(self, pattern="memory_profile_*.json"):
        with open(self.only(pattern)) as file:
            return json.load(file)

    def peak(self, trace, device="cpu"):
        """The largest number of bytes that the recording counted on a device."""
        from ration import _library
        target = os.path.join(self.folder, "numbers.txt")
        _library.export(trace, "prometheus", target)
        with open(target) as file:
            for line in file:
                if line.startswith(f'ration_memory_peak_bytes{{device="{device}"}}'):
                    return int(line.split()[-1])
        return None


def checkpoints(profile):
    """{name: snapshot} of those with a name that the program gave."""
    return {s["checkpoint_name"]: s for s in profile["snapshots"] if s["checkpoint_name"]}
