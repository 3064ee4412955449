#!/usr/bin/env bash
# labels: gpu
# cuda_oom.sh — another process takes the GPU's memory: a run recovers with a smaller plan and says the same words, or refuses
# with the numbers.
default=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
hold=$examples/hold_gpu
[ -x "$hold" ] && [ -x "$examples/inflate_model" ] || { echo 'the examples are not built'; exit 77; }
"$hold" 1TiB < /dev/null > out 2> err || { echo 'no GPU that can be used'; exit 77; }

# keep_only SIZE: until let_go, so much is free beside what a process's context takes.
keep_only() {
    rm -f leash
    mkfifo leash
    "$hold" "$1" < leash > holder 2> holder_err &
    holder=$!
    exec 9> leash
    for _ in $(seq 600); do
        [ -s holder ] && return
        kill -0 "$holder" 2> /dev/null || fail "hold_gpu: $(cat holder_err)"
        sleep 0.1
    done
    fail 'hold_gpu holds nothing'
}
let_go() {
    exec 9>&-
    wait "$holder"
}

expect 0 "$examples/inflate_model" "$default" big 1GiB
tell() { # what there is of options
    "$ration" run big -p 'Once upon a time' -n 24 --greedy --json --device cuda "$@"
}

# ---- roomy: everything stays
expect 0 tell
check_json "
assert j['plan']['streamed_bytes'] == 0, j['plan']
open('words', 'w').write(j['text'])
open('least', 'w').write(str(j['plan']['planned_bytes']))"

# ---- a plan that does not know: "+" is for what is planned, whatever is free
keep_only 512MiB
expect 0 tell --budget cuda:0=+4GiB
says err 'refused memory, try 1' 'cuda_out_of_memory'
check_json "
assert j['text'] == open('words').read(), j['text']
assert j['plan']['streamed_bytes'] > 0, j['plan']
assert j['plan']['planned_bytes'] <= 512 << 20, j['plan']
assert j['facts']['device_planned_peak_bytes'] <= 512 << 20, j['facts']"

# ---- one that asks first needs no recovering
expect 0 tell
check_json "assert j['text'] == open('words').read() and j['plan']['streamed_bytes'] > 0"
! grep -q 'refused memory' err || fail 'the plan did not ask what was free'
let_go

# ---- too little for any plan
keep_only 24MiB
expect 4 tell --budget cuda:0=+4GiB
says err asked free 'smallest'
let_go

# ---- and it is all there again
expect 0 tell --budget cuda:0=+4GiB
check_json "assert j['text'] == open('words').read() and j['plan']['streamed_bytes'] == 0"
! grep -q 'refused memory' err || fail 'memory was not released'
