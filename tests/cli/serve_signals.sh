#!/usr/bin/env bash
# serve_signals.sh — what the system does to a server: a terminal that closes, a log that nobody reads, too few threads; and
# a model whose content is broken, which is bad input (3), not bad usage (2).
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
text=$(pwd)/tests/golden/text
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- SIGHUP asks, as SIGTERM does ---------------------------------------------------------------
start_server
ask 200 /generate '{"prompt": "Once upon a time", "max_tokens": 5}'
stop_server HUP
equals 'exit code after SIGHUP' 0 "$code"
grep -q 'asked to stop' log || fail 'it did not drain'

# ... and is nothing to one that was started with nohup.
: > log
(trap '' HUP; exec "$ration" serve --port 0 2> log) &
server=$!
cleanups+=("kill -9 $server 2> /dev/null")
until grep -q 'listening on' log; do kill -0 $server || fail 'no server'; sleep 0.1; done
kill -HUP $server
url=$(sed -n 's/.*listening on \(http[^" ]*\).*/\1/p' log | head -1)
ask 200 /health/live
stop_server
equals 'exit code after SIGTERM' 0 "$code"

# ---- a log that nobody reads any more -----------------------------------------------------------
mkfifo pipe
"$ration" serve --port 0 --log-level debug 2> pipe &
server=$!
cleanups+=("kill -9 $server 2> /dev/null")
# The reader goes as soon as it has the address; every later line is written to nobody.
url=$(sed -n '/listening on/{s/.*listening on \(http[^" ]*\).*/\1/p;q}' < pipe)
[ -n "$url" ] || fail 'no server'
for _ in 1 2 3; do ask 200 /generate '{"prompt": "Once upon a time", "max_tokens": 5}'; done
ask 200 /profile/start '{}'
stop_server
equals 'exit code without a reader of the log' 0 "$code"

# ---- broken content is bad input ----------------------------------------------------------------
broken() { # WHAT CODE: Python that changes `j`, the config, in a copy of the model
    rm -rf broken && cp -r "$text/llama3" broken && chmod -R u+w broken
    python3 -c "
import json
j = json.load(open('broken/config.json'))
$1
json.dump(j, open('broken/config.json', 'w'))" || fail 'no model'
    expect 3 "$ration" serve broken --port 0
    expect 3 "$ration" run broken -p Hello -n 1
}
for change in "j['hidden_size'] = 0" "j['hidden_size'] = 'wide'" "del j['num_hidden_layers']" "j['num_attention_heads'] = 0" \
    "j['num_key_value_heads'] = 3" "j['head_dim'] = 7" "j['num_hidden_layers'] = 1000000" "j['intermediate_size'] += 2" \
    "j['rms_norm_eps'] = 0"; do
    broken "$change"
done

# ---- too few threads are not too little memory --------------------------------------------------
# The limit does not count for root, and counts all of a user's processes otherwise.
nobody=()
[ "$(id -u)" != 0 ] || nobody=(setpriv --reuid 54321 --clear-groups)
if "${nobody[@]}" "$ration" --version > /dev/null 2>&1; then
    served=
    for most in 1 2 3 4 5 6 7 8; do
        : > log
        # The leak sanitizer wants a thread of its own.
        HOME=/nonexistent ASAN_OPTIONS=detect_leaks=0 "${nobody[@]}" prlimit --nproc=$most "$ration" serve --port 0 --threads 4 2> log &
        server=$!
        cleanups+=("kill -9 $server 2> /dev/null")
        until grep -q 'listening on' log || ! kill -0 $server 2> /dev/null; do sleep 0.1; done
        if grep -q 'listening on' log; then
            served=$most
            stop_server
            break
        fi
        code=0
        wait $server || code=$?
        cp log err
        equals "exit code with $most threads" 3 "$code"
        says log 'cannot start a thread for' 'ulimit -u'
        ! grep -qi 'memory_full\|no memory' log || fail "$most threads are told as memory"
    done
    [ "${served:-9}" -gt 1 ] || fail 'one thread was enough'
fi
echo 'ok'
