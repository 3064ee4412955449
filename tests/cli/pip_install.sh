#!/usr/bin/env bash
# labels: release-only
# pip_install.sh — pip install ./python in a fresh virtual environment: the wheel carries the library, and the profiler runs
# far from the repository. Skipped where pip finds no packages to build with.
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
python3 -m venv fresh > /dev/null 2>&1 || { echo 'skipped: no venv'; exit 77; }
cp -r "$repository/python" "$repository/LICENSE" . # what pip builds in does not change the repository
export RATION_LIBRARY=$(dirname "$ration")/../lib/libration.so
[ -e "$RATION_LIBRARY" ] || { echo 'skipped: no libration.so beside the program'; exit 77; }
fresh/bin/pip install --quiet --disable-pip-version-check ./python > out 2> err || {
    grep -qiE 'connection|no matching distribution|could not find' err && { echo 'skipped: PyPI does not answer'; exit 77; }
    fail 'pip install ./python'
}
unset RATION_LIBRARY
cat > try.py << 'PYTHON'
import os, ration
assert "site-packages" in ration.__file__, ration.__file__
from ration._library import quick
tracker = ration.initialize_memory_tracker(output_dir="profiles")
with tracker.track_operation("work"):
    blocks = [bytearray(1 << 20) for _ in range(4)]
ration.memory_checkpoint("after")
ration.stop_memory_tracker()
assert any(name.endswith(".rntrace") for name in os.listdir("profiles")), os.listdir("profiles")
print(ration.compat_path())
PYTHON
expect 0 fresh/bin/python try.py
expect 0 env PYTHONPATH="$(tail -1 out)" fresh/bin/python -c 'import memory_profiler; print(memory_profiler.__file__)'
says out compat
