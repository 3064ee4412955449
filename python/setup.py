"""pip install ./python: the wheel carries libration.so, so that nothing else has to be built, named or found.

The library is build/release/lib/libration.so of this repository; where it is not there, cmake builds it (or RATION_LIBRARY names one).
The module of python/compat comes along as ration/compat, which a .pth file puts behind everything else on the path: `import
memory_profiler` finds it where no other package of that name is installed (ration.compat_path() goes first)."""
import os
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def find_library():
    named = os.environ.get("RATION_LIBRARY")
    if named:
        return os.path.realpath(named)
    built = os.path.join(ROOT, "build", "release", "lib", "libration.so")
    if not os.path.exists(built):
        if not os.path.exists(os.path.join(ROOT, "CMakePresets.json")):
            raise SystemExit("ration's repository is not around this folder, and RATION_LIBRARY names no libration.so")
        subprocess.check_call(["cmake", "--preset", "release"], cwd=ROOT)
        subprocess.check_call(["cmake", "--build", "--preset", "release", "--target", "ration_shared"], cwd=ROOT)
    return os.path.realpath(built)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        package = os.path.join(self.build_lib, "ration")
        os.makedirs(package, exist_ok=True)
        shutil.copy2(find_library(), os.path.join(package, "libration.so"))
        shutil.copy2(os.path.join(ROOT, "LICENSE"), package)
        compat = os.path.join(HERE, "compat")
        if os.path.isdir(compat):
            shutil.copytree(compat, os.path.join(package, "compat"), dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            with open(os.path.join(self.build_lib, "ration-compat.pth"), "w") as path:
                path.write("ration/compat\n")


class Binary(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """For any Python 3 of this platform: the library is called through ctypes."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=Binary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython})
