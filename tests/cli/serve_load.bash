# serve_load.bash — a server in the background, and what it does with memory; for the tests that put load on one.
# Sourced behind common.bash.
serve_bench=$(dirname "$ration")/../bench/serve_bench
[ -x "$serve_bench" ] || { echo 'skipped: serve_bench is not built'; exit 77; }

server=
end_server() {
    [ -n "$server" ] && kill -KILL "$server" 2> /dev/null
    wait 2> /dev/null
}
cleanups+=(end_server)

# start_server COMMAND...: waits until it listens; then $server is its process and $address its HOST:PORT. The command is a
# program, no function of the shell: that would stand between.
start_server() {
    "$@" > server_log 2>&1 &
    server=$!
    address=
    while true; do
        address=$(sed -n 's|.*listening on http://\([0-9.:]*\).*|\1|p' server_log | tail -1)
        [ -n "$address" ] && return
        kill -0 "$server" 2> /dev/null || break
        sleep 0.1
    done
    fail "the server does not listen: $(tail -5 server_log)"
}

# stop_server: SIGTERM, and it must end by itself with 0.
stop_server() {
    local got=0
    kill -TERM "$server" || fail "the server is gone: $(tail -5 server_log)"
    wait "$server" || got=$?
    server=
    [ $got = 0 ] || fail "the server ended with $got: $(tail -5 server_log)"
}

# watch_memory FILE SECONDS: one line a second, "seconds KiB", of what the server holds: resident pages and page tables.
watch_memory() {
    local begin=$SECONDS
    while [ $((SECONDS - begin)) -lt "$2" ] && [ -r "/proc/$server/status" ]; do
        awk -v at=$((SECONDS - begin)) '/^Vm(RSS|PTE):/ { sum += $2 } END { if (sum) print at, sum }' "/proc/$server/status"
        sleep 1
    done > "$1" 2> /dev/null
}

# most FILE FROM TO: the most KiB between these seconds.
most() {
    awk -v from="$2" -v to="$3" '$1 >= from && $1 < to && $2 > most { most = $2 } END { print most + 0 }' "$1"
}

# value FILE EXPRESSION: of a load's report, which is `j`; floats get one digit.
value() {
    python3 -c "import json
j = json.load(open('$1'))
v = $2
print(f'{v:.1f}' if isinstance(v, float) else v)" || fail "no report in $1"
}
