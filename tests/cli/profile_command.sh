#!/usr/bin/env bash
# labels: release
# profile_command.sh — ration profile on recordings of the program itself: reports, pages, exports, the served page, and
# what cannot be read.
default=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
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

expect 0 "$ration" convert "$default" out.safetensors --to int8 --budget 256MiB --profile=convert.rntrace
expect 0 "$ration" profile report convert.rntrace --json
check_json "assert j['devices'][0]['budget_bytes'] == 256 << 20"

# ---- other forms
expect 0 "$ration" profile html a.rntrace -o page.html
says out page.html
grep -q '<canvas' page.html || fail 'no canvas in the page'
expect 0 "$ration" profile html a.rntrace
[ -s a.html ] || fail 'no a.html'
for form in json chrome torch csv prometheus pprof html; do
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
says err 'report, html, export, merge, view, run'
expect 2 "$ration" profile paint a.rntrace
says err 'there is no ration profile paint' 'report, html, export, merge, view, run'
expect 2 "$ration" profile report
says err 'a FILE is missing' 'usage: ration profile report FILE'
expect 2 "$ration" profile report a.rntrace b.rntrace
says err 'too many arguments'
expect 2 "$ration" profile report --diff a.rntrace
says err 'two files are compared'
expect 2 "$ration" profile run
says err 'the PROGRAM is missing'
expect 2 "$ration" profile report a.rntrace -- true
says err 'too many arguments'
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
# What was there already and is no file is not removed.
ln -s /dev/full full
expect 3 "$ration" profile html a.rntrace -o full
[ -L full ] || fail 'a link to a full device was removed'
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
wait_for $server test -s served
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
# Others that say nothing, little, or too much do not keep it from answering.
import socket
address = ('127.0.0.1', int(url.split(':')[2].strip('/')))
others = [socket.create_connection(address) for _ in range(4)]
others[0].sendall(b'GET / HTTP/1.1\r\nHost: ')
others[1].sendall(b'x' * 9000)
assert b'<canvas' in urllib.request.urlopen(url, timeout=600).read()
assert code(urllib.request.Request(url, headers={'Host': 'evil.example'})) == 400
PYTHON
# A port that is taken.
expect 3 "$ration" profile view a.rntrace --serve --view-port "$(sed 's/.*:\([0-9]*\).*/\1/' served)"
says err 'Address already in use' 'another --view-port may be free'
kill -INT $server
wait $server || fail "serving ended with $?"

# ---- the page's file: without a name while it is served, a new one for a browser, and nothing of others is touched
mkdir pages
echo precious > victim
ln -s ../victim pages/ration-profile-aaaaaa.html
ln -s ../victim pages/ration-profile-bbbbbb.part
touch pages/ration-profile-killed.part pages/ration-profile-young1.html pages/ration-profile-longer-name.html
touch -d '2 days ago' pages/ration-profile-old001.html pages/other.html
rm served # of the server before: this one's is not there yet
TMPDIR=$scratch/pages "$ration" profile view a.rntrace --serve > served 2> err &
server=$!
cleanups+=("kill $server 2> /dev/null")
for _ in $(seq 600); do
    [ -s served ] && break
    sleep 0.1
done
equals 'files of a served page' 'other.html ration-profile-aaaaaa.html ration-profile-bbbbbb.part ration-profile-longer-name.html ration-profile-young1.html' \
    "$(ls pages | tr '\n' ' ' | sed 's/ $//')"
kill -9 $server
wait $server 2> /dev/null || true
equals 'files after kill -9' 5 "$(ls pages | wc -l)"
TMPDIR=$scratch/pages BROWSER=/bin/true expect 0 "$ration" profile view a.rntrace
page=$(cat out)
case $page in "$scratch"/pages/ration-profile-??????.html) ;; *) fail "the page is $page" ;; esac
equals 'the mode of a page' 600 "$(stat -c %a "$page")"
says "$page" '</html>'
equals 'the file that links were planted for' precious "$(cat victim)"
TMPDIR=$scratch/pages BROWSER=/bin/true expect 3 "$ration" profile view missing.rntrace
equals 'files after all' 6 "$(ls pages | wc -l)"
TMPDIR=$scratch/nowhere expect 3 "$ration" profile view a.rntrace --serve
says err 'set TMPDIR'

# ---- Ctrl-C is the recorded program's own affair
# Builds with sanitizers have no library to preload.
[ -e "$(dirname "$ration")/../lib/libration_preload.so" ] || exit 0
"$ration" profile run -o sleep.rntrace -- bash -c 'echo begun > begun; sleep 0.5' 2> err &
program=$!
wait_for $program test -s begun
kill -INT $program
wait $program || fail "a program that goes on after Ctrl-C ended with $?"
