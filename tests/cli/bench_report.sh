#!/usr/bin/env bash
# Results of ration bench in all forms, and the gate: exit code 7. Nothing is measured; the results are the example.
root=$(pwd)
export PYTHONDONTWRITEBYTECODE=1
source tests/cli/common.bash
cp "$root/tests/golden/bench/results.json" old.json

# The same results: nothing has changed.
expect 0 "$ration" bench old.json --compare old.json --fail-if-slower 5% --fail-if-larger 1% --markdown t.md --csv t.csv --html t.html
says out 'OPTIMUM_QUANTO_WI8'
says out 'timed out by signal 9 while compiling: no end after 60 s'
says t.md '| OPTIMUM_QUANTO_WI8 |'
says t.csv 'cpu+int8,OPTIMUM_QUANTO_WI8,success'
[ "$(grep -cE 'https?://' t.html | tr -d ' ')" -le 1 ] || fail 'the page names addresses' # the name of SVG's elements

# A tenth slower; the interval of the change is above 5 %, and not above 9 %.
sed 's/"p50_s": 0.01,/"p50_s": 0.011,/; s/"p50_low_s": 0.00995/"p50_low_s": 0.010945/; s/"p50_high_s": 0.01004/"p50_high_s": 0.011044/' old.json > new.json
expect 7 "$ration" bench new.json --compare old.json --fail-if-slower 5%
says out 'too slow'
expect 0 "$ration" bench new.json --compare old.json --fail-if-slower 9%
says out 'slower'
expect 0 "$ration" bench new.json --compare old.json
expect 0 "$ration" bench old.json --compare new.json --fail-if-slower 5%
says out 'faster'

# Two percent larger.
sed 's/"measured_bytes": 20971520/"measured_bytes": 21390950/' old.json > large.json
expect 7 "$ration" bench large.json --compare old.json --fail-if-larger 1%
says out 'too large'
expect 0 "$ration" bench large.json --compare old.json --fail-if-larger 3%

# What makes no sense is refused, before anything is measured.
expect 2 "$ration" bench simple --fail-if-slower 5%
expect 2 "$ration" bench simple --compare old.json --fail-if-slower fast
expect 3 "$ration" bench old.json --compare missing.json
echo '{"results": [' > cut.json
expect 3 "$ration" bench cut.json

if timeout 300 python3 "$root/tests/page/browser.py" 2> err; then
    expect 0 python3 "$root/tests/page/bench_page_test.py" "$ration" "$root/tests/golden/bench/results.json"
else
    leave_out "no chromium that runs here: $(tail -1 err)"
fi
echo 'ok'
