#!/usr/bin/env bash
# labels: release-only
# resident.sh — a model of 256 MiB runs within budgets from a fifth of it down to its floor: the answer is right, the
# live bytes are the predicted ones, and the process's peak of resident memory, its image included, stays within the
# budget; in a cgroup with the budget as its limit it is not killed.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
run_within=$examples/run_within
[ -x "$run_within" ] || { echo 'the examples are not built'; exit 77; }
is_sanitized && { echo 'resident memory means nothing under a sanitizer'; exit 77; }

expect 0 "$run_within" chain.safetensors 64MiB # makes the file
[ "$(stat -c %s chain.safetensors)" -gt $((256 << 20)) ] || fail 'the model is too small'

check_run() { # budget in bytes; looks at the last run's output
    says out 'answer     right'
    read -r _ _ _ predicted _ measured < <(grep '^live peak' out)
    equals 'live peak' "${predicted%,}" "$measured"
    read -r _ _ peak _ < <(grep '^resident' out)
    [ "${peak%,}" -le "$1" ] || fail "resident ${peak%,} of a budget of $1"
    echo "budget $(($1 >> 20)) MiB: resident $((${peak%,} >> 10)) KiB, live $measured as predicted"
}

for mib in 300 48 32 24; do
    expect 0 "$run_within" chain.safetensors ${mib}MiB
    check_run $((mib << 20))
done
expect 4 "$run_within" chain.safetensors 9MiB # below the floor: refused, not tried

# ---- a cgroup with the budget as its limit
make_group $((32 << 20)) || { leave_out 'no memory cgroup can be made'; exit 0; }
expect 0 in_group "$run_within" chain.safetensors 32MiB
check_run $((32 << 20))
echo 'inside a cgroup of 32 MiB: done'
