#!/usr/bin/env bash
# profile_command.sh — ration profile on recordings of the program itself: reports, pages, exports, the served page, and
# what cannot be read.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

expect 0 "$ration" run -p 'Once upon a time' -n 8 --greedy --profile=a.rntrace
cp out text
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy --profile=b.rntrace

# ---- report
expect 0 "$ration" profile report a.rntrace
says out 'host' 'peak' 'weights' 'decode'
expect 0 "$ration" profile report a.rntrace --json
check_json "
host = j['devices'][0]
assert host['device'] == 'host' and host['peak']['bytes'] > 2**20
assert j['operations'] and j['format'] == 'ration trace'"
expect 0 "$ration" profile report a.rntrace --at 5ms
expect 0 "$ration" profile report a.rntrace --at 0.005s --rows 3 --json
expect 2 "$ration" profile report a.rntrace --at soon
says err "--at 'soon' is no time" '200ms'
expect 2 "$ration" profile report a.rntrace --at -1
expect 0 "$ration" profile report --diff a.rntrace b.rntrace
says out 'a.rntrace' 'b.rntrace'
expect 0 "$ration" profile report --diff a.rntrace b.rntrace --json
check_json 'assert j'

# ---- other forms
expect 0 "$ration" profile html a.rntrace -o page.html
says out page.html
grep -q '<canvas' page.html || fail 'no canvas in the page'
expect 0 "$ration" profile html a.rntrace
[ -s a.html ] || fail 'no a.html'
for form in json chrome torch csv prometheus html; do
    expect 0 "$ration" profile export a.rntrace --format $form -o "form.$form" --json
    check_json "assert j['format'] == '$form' and j['bytes'] > 100"
done
expect 0 "$ration" profile export a.rntrace --format prometheus
says out 'ration_memory_bytes{'
expect 0 "$ration" profile export a.rntrace --format json
ls memory_profile_*_*.json > /dev/null || fail 'no memory_profile_DATE_TIME.json'
# What was exported can be read again.
expect 0 "$ration" profile report form.json
expect 0 "$ration" profile report form.torch
expect 0 "$ration" place form.csv --time 1
says out 'lower bound'

# ---- what cannot be
expect 2 "$ration" profile
says err 'report, html, export, view, run'
expect 2 "$ration" profile paint a.rntrace
expect 2 "$ration" profile report
says err 'usage: ration profile report FILE'
expect 2 "$ration" profile report a.rntrace b.rntrace
expect 2 "$ration" profile report --diff a.rntrace
expect 2 "$ration" profile run
expect 2 "$ration" profile html a.rntrace -o a.rntrace
says err 'would overwrite'
expect 2 "$ration" profile export a.rntrace --format gif
expect 3 "$ration" profile report missing.rntrace
says err missing.rntrace
: > empty
expect 3 "$ration" profile report empty
head -c 10000 /dev/urandom > foreign
expect 3 "$ration" profile html foreign -o no.html
[ ! -e no.html ] || fail 'a page of nothing'
expect 3 "$ration" profile report .
expect 3 "$ration" profile html a.rntrace -o missing/page.html
printf '{"metadata": {}}' > bare.json
expect 3 "$ration" profile report bare.json
# A file cut anywhere is read up to the cut.
for part in 4096 10000 40001; do
    head -c $part a.rntrace > cut.rntrace
    expect 0 "$ration" profile report cut.rntrace
done
head -c 100 a.rntrace > cut.rntrace
expect 3 "$ration" profile report cut.rntrace
says err 'cut before its first block'

# ---- the served page: this machine's names only, one page only
"$ration" profile view a.rntrace --serve > served 2> /dev/null &
server=$!
cleanups+=("kill $server 2> /dev/null")
for _ in $(seq 100); do
    [ -s served ] && break
    sleep 0.1
done
url=$(sed 's/ .*//' served)
python3 - "$url" << 'PYTHON' || fail 'the served page'
import sys, urllib.error, urllib.request
url = sys.argv[1]
page = urllib.request.urlopen(url).read()
assert b'<canvas' in page and page.rstrip().endswith(b'</html>'), page[-100:]
def code(request):
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code
assert code(url + 'etc/passwd') == 404
assert code(urllib.request.Request(url, headers={'Host': 'evil.example'})) == 400
PYTHON
kill -INT $server
wait $server || fail "serving ended with $?"
