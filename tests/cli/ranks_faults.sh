#!/usr/bin/env bash
# ranks_faults.sh — ranks that are killed or hang are named by all others, which end with 5 within --comm-timeout; strangers at the port,
# other jobs' ranks, a port in use. $ROUNDS moments each (3).
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
rounds=${ROUNDS:-3}
. "$here/common.bash"
. "$here/ranks.bash"
work=("$ration" calibrate --soak 60s --comm-timeout 3s)

# ---- kill -9, at any moment ------------------------------------------------------------

for round in $(seq "$rounds"); do
    choose_port
    master=127.0.0.1:$port
    for r in 0 1 2; do start_rank $r 3 "${work[@]}"; done
    victim=$(any_of 3)
    wait_for "${ranks[victim]}" catches "${ranks[victim]}" TERM
    sleep_some 1
    kill -9 "${ranks[victim]}"
    others=(0 1 2)
    unset "others[$victim]"
    end_ranks 5 "${others[@]}"
    for r in "${others[@]}"; do
        grep -qE "rank $victim of 3 (is gone|was not reached)|ranks? $victim( of|,)|rank 0 of 3 has not got all" "rank.$r" || { cat "rank.$r" >&2; fail "rank $victim is not named by $r"; }
    done
    wait "${ranks[victim]}" 2> /dev/null
done

# ---- the launcher: what it starts ends with it -----------------------------------------

for round in $(seq "$rounds"); do
    mark=$scratch/launched.$round
    got=0
    : > "$mark"
    "$ration" launch -n 3 -- "${work[@]}" --config "$mark" 2> err > out & launcher=$!
    victim=
    wait_for $launcher eval 'victim=$(pgrep -P $launcher -f "$mark" | sed -n "$(($(any_of 3) + 1))p"); [ -n "$victim" ] && catches $victim TERM'
    sleep_some 1
    kill -9 "$victim"
    wait $launcher || got=$?
    equals 'exit code of the launcher' 5 $got
    grep -qE "\(process $victim\) was ended by signal 9" err || fail 'the launcher names nobody'
    equals 'lines of the others' 2 "$(grep -cE 'rank [0-2] of 3: ' err)"
    no_orphans "$mark"
done

# The launcher itself is killed.
mark=$scratch/orphans
: > "$mark"
"$ration" launch -n 2 -- "${work[@]}" --config "$mark" > /dev/null 2>&1 & launcher=$!
wait_for $launcher eval '[ "$(pgrep -P $launcher -f "$mark" | wc -l)" = 2 ] && catches $(pgrep -P $launcher -f "$mark" | tail -1) TERM'
kill -9 $launcher
wait $launcher 2> /dev/null
for _ in $(seq 200); do pgrep -f "$mark" > /dev/null || break; sleep 0.1; done
no_orphans "$mark"

# ---- a rank that hangs -----------------------------------------------------------------

choose_port
master=127.0.0.1:$port
for r in 0 1 2; do start_rank $r 3 "$ration" calibrate --soak 60s --comm-timeout 1s; done
wait_for "${ranks[1]}" catches "${ranks[1]}" TERM
sleep_some 0.5
kill -STOP "${ranks[1]}"
end_ranks 5 0 2
for r in 0 2; do
    grep -qE 'rank 1 of 3|ranks? 1(, 2)? of 3 did not come|rank 0 of 3 has not got all' rank.$r || { cat rank.$r >&2; fail "rank 1 is not named by $r"; }
done
kill -9 "${ranks[1]}"

# ---- strangers -------------------------------------------------------------------------

# Silent ones, ones that speak another protocol, more than there is room for: the job goes on.
choose_port
master=127.0.0.1:$port
cat > strangers.py << 'END'
import os, random, socket, sys, time
held = []
while True:
    try:
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1)
        held.append(s)
        kind = len(held) % 4
        if kind == 1: s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        if kind == 2: s.sendall(os.urandom(4096))
        if kind == 3: s.sendall(b"rncomm2\0" + os.urandom(80))
        if len(held) > 400: held.pop(0).close()
    except OSError: time.sleep(0.002)
END
python3 strangers.py "$port" & strangers=$!
cleanups+=("kill -9 $strangers 2> /dev/null")
start_rank 0 2 "$ration" calibrate --comm-timeout 60s
sleep 0.7
start_rank 1 2 "$ration" calibrate --comm-timeout 60s
end_ranks 0 0 1
kill -9 $strangers
wait $strangers 2> /dev/null
says rank.0 'latency'

# A rank of another job, and ranks that do not agree in what they do.
choose_port
master=127.0.0.1:$port
start_rank 0 2 "$ration" calibrate --comm-timeout 2s
(secret='quite another secret'; start_rank 1 2 "$ration" calibrate --comm-timeout 2s; end_ranks 2 1) || exit 1
end_ranks 5 0
says rank.1 'another secret' 'RATION_JOB'
says rank.0 "another job's secret, the last from 127.0.0.1"

choose_port
master=127.0.0.1:$port
python3 -c "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', $port)); s.listen(); print('x', flush=True); time.sleep(60)" > listening & other=$!
cleanups+=("kill -9 $other 2> /dev/null")
wait_for $other test -s listening
start_rank 0 2 "$ration" calibrate
end_ranks 3 0
says rank.0 "cannot listen at port $port" 'hint:'
master=192.0.2.7:29500 secret= start_rank 0 2 "$ration" calibrate
end_ranks 2 0
says rank.0 'no secret' 'openssl rand'
master=nowhere start_rank 0 2 "$ration" calibrate
end_ranks 2 0
says rank.0 'RATION_MASTER'
