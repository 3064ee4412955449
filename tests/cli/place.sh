#!/usr/bin/env bash
# place.sh — heights, capacities and their exit codes, the file that is written, and files that cannot be read.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

printf 'id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n' > five.csv
# Five bytes are alive at once, but six are needed.
printf 'id,lower,upper,size\n0,0,1,3\n1,6,7,1\n2,5,8,3\n3,4,6,2\n4,0,3,2\n5,3,5,1\n6,1,2,2\n7,2,5,2\n8,2,4,1\n9,6,8,1\n' > gap.csv

expect 0 "$ration" place five.csv
says out 'five.csv: 5 buffers placed' optimal 'height       12' 'lower bound  12' 'gap          0'
expect 0 "$ration" place five.csv --json
check_json "
assert j['height'] == 12 == j['lower_bound'] and j['optimal'] and j['buffers'] == 5 and j['seconds'] >= 0
assert 'capacity' not in j and 'fits' not in j"
expect 0 "$ration" place gap.csv
says out optimal 'height       6' 'lower bound  5' 'all were tried'

# ---- capacity
expect 0 "$ration" place five.csv --capacity 12 --json
check_json "assert j['capacity'] == 12 and j['fits']"
expect 0 "$ration" place five.csv --capacity 1KiB
says out 'capacity     1024'
expect 4 "$ration" place five.csv --capacity 11
says err '12 bytes are alive at once' 'the capacity is 11 bytes' 'no placement fits'
if grep -q 'largest holders' err; then fail 'a table of a budget that was not asked'; fi
expect 4 "$ration" place gap.csv --capacity 5 -o none.csv
says err 'no placement fits 5 bytes' 'needs 6 bytes'
expect 4 "$ration" place gap.csv --capacity 5 --json
check_json "e = j['error']
assert e['status'] == 'RN_OVER_BUDGET' and e['exit_code'] == 4 and 'refusal' not in e"

# ---- the output: what goes in, with offsets; it can be read again
expect 0 "$ration" place five.csv -o placed.csv
equals header 'id,lower,upper,size,offset' "$(head -1 placed.csv)"
python3 - << 'PYTHON' || fail 'the placement is not valid'
import csv
rows = [{k: v if k == 'id' else int(v) for k, v in r.items()} for r in csv.DictReader(open('placed.csv'))]
assert [r['id'] for r in rows] == ['b1', 'b2', 'b3', 'b4', 'b5']
assert max(r['offset'] + r['size'] for r in rows) == 12
for i, a in enumerate(rows):
    for b in rows[:i]:
        assert a['lower'] >= b['upper'] or b['lower'] >= a['upper'] or a['offset'] >= b['offset'] + b['size'] \
            or b['offset'] >= a['offset'] + a['size']
PYTHON
expect 0 "$ration" place placed.csv --time 0
expect 3 "$ration" place five.csv -o missing/placed.csv

# ---- what cannot be read
expect 3 "$ration" place missing.csv
printf 'id,lower,upper,size\na,0,1,2\nb,0,x,2\n' > bad.csv
expect 3 "$ration" place bad.csv
says err 'line 3, column upper' bad.csv
expect 2 "$ration" place
expect 2 "$ration" place five.csv --capacity lots
expect 2 "$ration" place five.csv --capacity 0
expect 2 "$ration" place five.csv --time soon

# ---- a search that takes long ends when it is asked to
if [ -e "$data/planner/D.1048576.csv" ]; then
    "$ration" place "$data/planner/D.1048576.csv" --time 100 > out 2> err &
    search=$!
    wait_for $search catches $search INT
    kill -INT $search
    wait $search
    equals 'exit code' 6 $?
    expect 0 "$ration" place "$data/planner/D.1048576.csv" --time 1
    says out 'the time limit has ended it'
    expect 0 "$ration" place "$data/planner/D.1048576.csv" --time 0 --json
    check_json "assert not j['stopped']"
else
    leave_out 'no test data: planner/'
fi
only bad.csv five.csv gap.csv placed.csv
