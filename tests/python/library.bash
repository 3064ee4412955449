# library.bash — which libration.so a test in another process uses: one without sanitizers, which only the
# program itself can load. To be read before common.bash, which takes the RATION_ variables away.
python=${RATION_PYTHON:-python3}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
library=${RATION_LIBRARY:-}
if [ -z "$library" ]; then
    for candidate in "$(dirname "$1")/../lib/libration.so" "$root/build/release/lib/libration.so"; do
        if [ -e "$candidate" ] && ! grep -qE '__(asan|tsan|ubsan)_' "$candidate"; then
            library=$(realpath "$candidate")
            break
        fi
    done
fi
if [ -z "$library" ] || [ ! -e "$library" ]; then
    echo 'skipped: no libration.so without sanitizers; `make build` makes one, RATION_LIBRARY names one'
    exit 77
fi
