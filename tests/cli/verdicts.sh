#!/usr/bin/env bash
# verdicts.sh — no test passes by skipping: what a test program ends with and says, and how the summary counts it.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
programs=$(dirname "$ration")
[ -x "$programs/test_golden" ] || { echo 'skipped: the test programs are not built'; exit 77; }
cd "$root" || exit 1

# ---- one program a layer: a name is needed, all are told
expect 2 "$programs/test_golden"
says "$scratch/err" 'usage: ' stories planner
expect 2 "$programs/test_golden" nothing_of_that_name

# ---- nothing was tested, some of it was, all of it was
RATION_DATA=/nowhere expect 77 "$programs/test_golden" planner
grep -qxE 'skipped: ([0-9]+) of \1 tests: no test data: planner/.*' "$scratch/out" || fail 'no line with count and reason'
RATION_CUDA_DRIVER=/nowhere/libcuda.so expect 77 "$programs/test_conform" cuda
says "$scratch/out" 'skipped: 5 of 6 tests: no GPU: '
expect 0 "$programs/test_base" str
! grep -q '^skipped: ' "$scratch/out" || fail 'skipped, and passed'

# ---- the same for a shell test: part of it, all of it, and a failure is one
ends_with() { # CODE LINES
    printf '%s\n' ". $root/tests/cli/common.bash" "$2" > "$scratch/small.sh"
    expect "$1" bash "$scratch/small.sh" "$ration"
}
ends_with 77 "leave_out 'no cgroup'; leave_out 'no data'"
says "$scratch/out" 'skipped: a part of it: no cgroup; no data'
ends_with 1 "leave_out 'no cgroup'; fail wrong"
ends_with 0 'true'

# ---- the summary: of a run of CTest with one of each
cd "$scratch" || exit 1
cat > CTestTestfile.cmake << 'CTEST'
add_test(good "true")
add_test(bad "false")
add_test(left_out "bash" "-c" "printf '%2000s' x; echo; echo 'skipped: 1 of 2 tests: no GPU'; exit 77")
add_test(unsaid "bash" "-c" "exit 77")
add_test(absent "/nowhere/program")
set_tests_properties(left_out unsaid PROPERTIES SKIP_RETURN_CODE 77)
CTEST
mkdir results
summarise() { # CODE OPTION...: of ctest
    local code=$1
    shift
    ctest -Q --test-output-size-passed 1000000 --output-junit results/dev.xml "$@"
    expect "$code" "$root/scripts/test-summary" results
}
summarise 1
says out 'skipped: left_out (dev): 1 of 2 tests: no GPU' 'skipped: unsaid (dev): no reason given' 'failed: bad (dev): ' \
    'failed: absent (dev): '
equals 'the last line' '1 passed, 2 failed, 2 skipped' "$(tail -n 1 out)"
summarise 0 -E 'bad|absent'
equals 'the last line' '1 passed, 0 failed, 2 skipped' "$(tail -n 1 out)"
summarise 1 -R left_out # nothing was tested
equals 'the last line' '0 passed, 0 failed, 1 skipped' "$(tail -n 1 out)"
rm results/dev.xml
expect 1 "$root/scripts/test-summary" results
