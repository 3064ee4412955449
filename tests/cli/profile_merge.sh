#!/usr/bin/env bash
# ration profile merge: recordings of two processes as one file that report, html and export read; bad files.
source "$(dirname "$0")/common.bash"

for rank in 0 1; do
    expect 0 "$ration" run -p 'Once upon' -n 4 --seed 1 --budget 256MiB --profile=$rank.rntrace
done
expect 0 "$ration" profile merge 0.rntrace 1.rntrace -o job.rntrace
says out 'merged traces' 'rank 0 host' 'rank 1 host' 'note'
expect 0 "$ration" profile report job.rntrace
says out 'rank 0 host' 'rank 1 host'
expect 0 "$ration" profile report job.rntrace --json
says out '"rank 1 host"'
expect 0 "$ration" profile html job.rntrace -o job.html
expect 0 "$ration" profile export job.rntrace --format chrome -o job.json
says job.json 'rank 0 main' 'rank 1 main' 'all ranks'

# What each held is what it held alone.
expect 0 "$ration" profile report 1.rntrace
alone=$(awk '$1 == "host" {print $2, $3; exit}' out)
expect 0 "$ration" profile report job.rntrace
equals 'the peak of rank 1' "$alone" "$(awk '$1 == "rank" && $2 == 1 {print $4, $5; exit}' out)"

expect 2 "$ration" profile merge
says err 'a FILE is missing'
expect 2 "$ration" profile merge job.rntrace 0.rntrace -o x.rntrace
says err 'merged already'
[ ! -e x.rntrace ] || fail 'half a file is left'
expect 2 "$ration" profile merge 0.rntrace 1.rntrace -o 1.rntrace
says err 'would overwrite'
echo '{}' > a.json
expect 2 "$ration" profile merge 0.rntrace a.json -o x.rntrace
says err 'a.json'
head -c 1000 job.rntrace > cut.rntrace
expect 3 "$ration" profile report cut.rntrace
says err 'is cut'
