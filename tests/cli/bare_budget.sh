#!/usr/bin/env bash
# bare_budget.sh — a --budget without a name means the same to run, plan and serve: the memory of a device that has its
# own, and the process's on the CPU, also where the CPU is what a failing device leaves; host=SIZE is always the process's.
root=$(pwd)
source tests/cli/common.bash
source "$root/tests/cli/serve.bash"
model=$root/models/default
fails='sim:fail_launch=1,cpu'

tell() { expect "$1" "$ration" run "$model" -p Once -n 2 --greedy --device "$2" --budget "$3"; }

# ---- run
tell 0 sim 300MiB
says err 'sim, budget 300 MiB' "the host's budget, resident" 'budget, peak on the device'
tell 0 "$fails" 300MiB
says err 'cpu, budget 300 MiB' 'budget, peak resident'
tell 0 sim host=300MiB
grep -qE "the host's budget, resident +300 MiB" err || fail "host=SIZE is not the process's"
tell 0 sim 90% # a percentage is of the machine's memory
says err "the host's budget, resident" 'sim, budget nine tenths of what is free'
tell 2 cpu sim=300MiB
says err 'only the host can be used'

# ---- plan
expect 0 "$ration" plan "$model" --device sim --budget 300MiB
says out 'budget 300 MiB on sim'
expect 0 "$ration" plan "$model" --device sim,cpu --budget 300MiB
says out 'budget 300 MiB on sim'
expect 0 "$ration" plan "$model" --device cpu --budget 300MiB
says out 'budget 300 MiB: '
expect 4 "$ration" plan "$model" --device sim --budget +500KiB
says err 'device           sim'

# ---- serve
start_server "$model" --device sim --budget 300MiB
says log 'ready: default on sim, budget 300 MiB of sim and '
stop_server
equals 'exit code' 0 "$code"
start_server "$model" --device "$fails" --budget 300MiB
says log 'ready: default on cpu, budget 300 MiB, context'
stop_server
start_server "$model" --device sim --budget host=300MiB,sim=200MiB
says log 'ready: default on sim, budget 200 MiB of sim and 300 MiB of the host'
stop_server
expect 4 "$ration" serve "$model" --port 0 --device sim --budget +500KiB
expect 2 "$ration" serve "$model" --port 0 --device cpu --budget sim=1GiB
says err 'only the host can be used'
echo 'ok'
