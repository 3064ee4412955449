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
# The profiler's example as its document has it, by its own import.
cat > example.py << 'PYTHON'
class model:
    forward = staticmethod(lambda input: bytearray(input))
preprocess = postprocess = lambda x: x
input = 1 << 20

from memory_profiler import (
    initialize_memory_tracker,
    memory_checkpoint,
    stop_memory_tracker,
)

# Initialize with custom settings
initialize_memory_tracker(output_dir="./profiles", enabled=True)

# Optional: Manual checkpoint at specific points
memory_checkpoint("after_model_load")

from memory_profiler import get_memory_tracker

tracker = get_memory_tracker()

# Track memory delta for a specific operation
with tracker.track_operation("model_forward"):
    output = model.forward(input)

# Track nested operations
with tracker.track_operation("full_inference"):
    with tracker.track_operation("preprocessing"):
        processed_input = preprocess(input)

    with tracker.track_operation("forward_pass"):
        output = model.forward(processed_input)

    with tracker.track_operation("postprocessing"):
        result = postprocess(output)

# Stop and save
stop_memory_tracker()
PYTHON
rm -r profiles
expect 0 fresh/bin/python example.py
cp profiles/memory_profile_*.json out
check_json "assert {'model_forward', 'full_inference', 'postprocessing'} <= set(j['operation_summary']), j['operation_summary']"
# Another package of that name keeps it, unless ours is asked to stand first.
echo 'def profile(f): return f' > "$(fresh/bin/python -c 'import site; print(site.getsitepackages()[0])')/memory_profiler.py"
expect 0 fresh/bin/python -c 'from memory_profiler import profile'
expect 0 env PYTHONPATH="$(fresh/bin/python -c 'import ration; print(ration.compat_path())')" fresh/bin/python -c 'import memory_profiler; print(memory_profiler.__file__)'
says out compat
