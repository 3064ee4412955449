#!/usr/bin/env bash
# labels: release-only
# profile_preload.sh — libration_preload.so: the peak in the file is the peak that the program itself counted.
. "$(dirname "${BASH_SOURCE[0]}")/../python/library.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
preload=$(dirname "$library")/libration_preload.so
[ -e "$preload" ] || { echo "skipped: no $preload"; exit 77; }
export RATION_LIBRARY=$library PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1
cc -O1 -fno-builtin -pthread -o storm "$root/tests/preload/storm.c" || fail 'storm.c does not compile'

# record FILE ALLOCATIONS COMMAND...: into ./out what the program prints.
record() {
    local file=$1 allocations=$2
    shift 2
    env LD_PRELOAD="$preload" RATION_PROFILE_FILE="$file" RATION_PROFILE_ALLOCATIONS="$allocations" \
        "$@" > out 2> err
}

# peak FILE: the bytes that the file says were live at once, on the device "cpu".
peak() {
    python3 -c 'import sys
from ration import _library
_library.export(sys.argv[1], "prometheus", "numbers.txt")' "$1" || fail "$1 cannot be read"
    sed -n 's/^ration_memory_peak_bytes{device="cpu"} //p' numbers.txt
}

for mode in tensors all fork; do
    allocations=tensors
    [ $mode = all ] && allocations=all
    for attempt in 1 2 3; do
        record $mode.rntrace $allocations ./storm $mode || fail "storm $mode"
        [ ! -s err ] || fail "storm $mode complains"
        equals "the peak of $mode" "$(cat out)" "$(peak $mode.rntrace)"
    done
done
only storm numbers.txt tensors.rntrace all.rntrace fork.rntrace

# Libraries with variables of a thread's own: looking at ours must not ask for memory for ever.
for i in $(seq 0 29); do
    echo "__thread int rn_test_variable_$i = $i;" | cc -shared -fPIC -x c -o "tls_$i.so" - || fail 'a library with a variable'
done
record loading.rntrace tensors ./storm loading || fail 'storm loading'
equals 'the peak of loading' "$(cat out)" "$(peak loading.rntrace)"

# A child's own file, if it is asked for: what it had from its parent, and its own.
RATION_PROFILE_CHILDREN=1 record family.rntrace tensors ./storm fork || fail 'storm fork'
equals 'the peak of the parent' "$(cat out)" "$(peak family.rntrace)"
child=$(ls family.*.rntrace)
equals 'the peak of the child' $(((1000 + 9000) * 1024)) "$(peak "$child")"

# A program that another one starts records nothing by default, and its own file if asked.
record shell.rntrace tensors bash -c './storm tensors; true' || fail 'bash'
equals 'files of a shell' shell.rntrace "$(ls shell*)"
RATION_PROFILE_CHILDREN=1 record shell.rntrace tensors bash -c './storm tensors; true' || fail 'bash'
found=no
for file in shell.*.rntrace; do
    [ "$(peak "$file")" = "$(cat out)" ] && found=yes
done
equals 'a file with the peak of the program that the shell started' yes $found
# One that takes its place takes the file, too.
record exec.rntrace tensors bash -c 'exec ./storm tensors' || fail 'exec'
equals 'the peak after exec' "$(cat out)" "$(peak exec.rntrace)"

# The limit: to the byte.
RATION_MEMORY_LIMIT=10MiB record limit.rntrace tensors ./storm limit || fail 'storm limit'
equals 'what the limit allows' $((10 << 20)) "$(cat out)"
equals 'the peak under the limit' $((10 << 20)) "$(peak limit.rntrace)"
RATION_MEMORY_LIMIT=many record bad.rntrace tensors ./storm fork || fail 'a limit that is none'
says err RATION_MEMORY_LIMIT

# Killed: what is in the file can be read.
LD_PRELOAD=$preload RATION_PROFILE_FILE=killed.rntrace ./storm hang > out 2> err &
pid=$!
wait_for $pid test -s out
wait_for $pid eval '[ "$(peak killed.rntrace)" -ge "$(cat out)" ]'
kill -9 $pid
wait $pid 2> /dev/null
[ "$(peak killed.rntrace)" -ge "$(cat out)" ] || fail "a killed program's file says $(peak killed.rntrace)"
[ "$(peak killed.rntrace)" -le $(($(cat out) + 10)) ] || fail "a killed program's file says $(peak killed.rntrace)"

# A file that cannot be made: the program runs all the same, and one line says so.
record /nowhere/x.rntrace tensors ./storm fork || fail 'no file, no program'
equals 'lines of complaint' 1 "$(wc -l < err)"
says err ration: /nowhere/x.rntrace
# No variables, no recording.
LD_PRELOAD=$preload ./storm fork > out 2> err || fail 'without variables'
[ ! -s err ] || fail 'complains without variables'
