# serve.bash — for tests of `ration serve`: start one, wait for it, stop it. Needs common.bash.

# start_server OPTIONS...: with the log in ./log; sets `server` (its process) and `url`. Stopped at the end of the test.
start_server() {
    : > log # not the address of the server before
    "$ration" serve --port 0 "$@" > serve_out 2> log &
    server=$!
    cleanups+=("kill -9 $server 2> /dev/null")
    while true; do
        url=$(sed -n 's/.*listening on \(http[^" ]*\).*/\1/p' log | head -1)
        [ -n "$url" ] && return 0
        kill -0 "$server" 2> /dev/null || break
        sleep 0.1
    done
    cp log err
    fail "no server: ration serve $*"
}

# stop_server [SIGNAL]: its exit code in `code`.
stop_server() {
    code=0
    kill -"${1:-TERM}" "$server"
    wait "$server" || code=$?
}

# ask CODE PATH [BODY [CURL OPTIONS...]]: the answer in ./out, its head in ./head. POST where there is a body.
ask() {
    local code=$1 path=$2 body=${3:-} got
    shift 2
    [ $# -gt 0 ] && shift
    got=$(python3 - "$url$path" "$body" "$@" << 'PYTHON'
import ssl, sys, urllib.error, urllib.request
url, body, *headers = sys.argv[1:]
request = urllib.request.Request(url, data=body.encode() if body else None,
                                 headers=dict(h.split(': ', 1) for h in ['Content-Type: application/json'] + headers))
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    answer = urllib.request.urlopen(request, timeout=600, context=context)
except urllib.error.HTTPError as error:
    answer = error
open('out', 'wb').write(answer.read())
open('head', 'w').write(str(answer.headers))
print(answer.status)
PYTHON
    )
    [ "$got" = "$code" ] || fail "$path: status $got instead of $code"
}
