#!/usr/bin/env bash
# labels: release-only
# profile_run.sh — ration profile run ends as the program that it recorded: its exit code, 128 + the signal that ended it.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
# Builds with sanitizers have no library to preload.
[ -e "$(dirname "$ration")/../lib/libration_preload.so" ] || { echo 'skipped: no libration_preload.so'; exit 77; }

expect 0 "$ration" profile run -o zero.rntrace -- sh -c 'exit 0'
says err 'ration profile report'
for code in 1 2 7 77 127 255; do
    expect $code "$ration" profile run -o code.rntrace -- sh -c "exit $code"
    says err "ended with exit code $code" 'ration profile report'
    expect 0 "$ration" profile report code.rntrace
done
expect 137 "$ration" profile run -o killed.rntrace -- sh -c 'kill -9 $$'
says err 'was ended by signal 9'
expect 143 "$ration" profile run -o ended.rntrace -- sh -c 'kill -TERM $$'
# A SIGTERM is handed on.
"$ration" profile run -o handed.rntrace -- sh -c 'echo > ready; exec sleep 600' 2> err &
program=$!
for _ in $(seq 600); do [ -e ready ] && break; sleep 0.1; done
kill -TERM $program
code=0
wait $program || code=$?
equals 'the code after SIGTERM' 143 $code
# What cannot be started, as shells say it.
expect 127 "$ration" profile run -o none.rntrace -- ./no-such-program
says err 'cannot start ./no-such-program: No such file'
echo text > plain
expect 126 "$ration" profile run -o none.rntrace -- ./plain
says err 'cannot start ./plain: Permission denied'
# Its own mistakes keep their codes.
expect 2 "$ration" profile run
expect 2 "$ration" profile run --no-such-flag -- true
