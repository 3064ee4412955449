#!/usr/bin/env bash
# stop.sh — a command that only computes ends when it is asked to, in the middle of planning or of reading.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# A plan of some tens of seconds that is ended after one: it is not made.
"$ration" plan llama:1000x8:train > out 2> err &
plan=$!
sleep 1
kill -TERM $plan
wait $plan
equals 'exit code of plan' 6 $?
says err 'stopped before it was done'
[ -s out ] && fail 'a plan was printed'

# Many buffers: ended before there is any search.
python3 -c "
print('id,lower,upper,size')
for i in range(300000):
    print(f'b{i},{i * 7919 % 300000},{i * 7919 % 300000 + 1 + i % 3000},{1 + i * 104729 % 100000}')" > many.csv
"$ration" place many.csv --time 600 > out 2> err &
place=$!
sleep 1
kill -TERM $place
wait $place
equals 'exit code of place' 6 $?

# The time limit ends it, too, and it says so; the placement is one.
expect 0 "$ration" place many.csv --time 1 -o placed.csv
says out 'the time limit has ended it' 'a longer --time'
equals 'buffers placed' 300001 "$(wc -l < placed.csv)"
only many.csv placed.csv
