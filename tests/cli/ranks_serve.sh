#!/usr/bin/env bash
# ranks_serve.sh — ration serve as several ranks: rank 0 speaks HTTP and says what one process says, to several clients at once; bytes by rank in
# /health and /metrics; SIGTERM ends all; a rank that is killed ends the server with 5 and its number, while it answers and while nobody asks.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
model=$(realpath "$here/../../models/default")
. "$here/common.bash"
. "$here/ranks.bash"
serve=("$ration" serve "$model" --device cpu --port 0 --budget 1GiB --ctx 256 --parallel 4 --comm-timeout 60s)

cat > ask.py << 'END2'
import json, sys, threading, urllib.request
base, texts = sys.argv[1], [None] * 4
def ask(i):
    body = {"prompt": "Story %d: once upon a time" % i * (1 + i), "max_tokens": 24, "temperature": 0, "logprobs": 2}
    with urllib.request.urlopen(base + "/v1/completions", json.dumps(body).encode(), 300) as r:
        c = json.load(r)["choices"][0]
        texts[i] = (c["text"], c["logprobs"]["token_logprobs"])
threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(texts)
END2
# find_url LOG PID: where the server listens, once it is ready.
find_url() {
    wait_for "$2" grep -q 'info server: ready' "$1"
    url=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$1" | tail -1)
}

"${serve[@]}" > alone 2>&1 & one=$!
cleanups+=("kill -9 $one 2> /dev/null")
find_url alone $one
python3 ask.py "$url" > wanted || fail 'one process does not answer'
kill -TERM $one
wait $one || fail 'one process does not end well'

start_server() {
    choose_port
    master=127.0.0.1:$port
    rm -f rank.* # what the last server said is not this one's
    for r in 0 1; do start_rank $r 2 "${serve[@]}" "$@"; done
    find_url rank.0 "${ranks[0]}"
}
for split in layers heads; do
    start_server --split $split
    python3 ask.py "$url" > got || fail "two ranks do not answer (--split $split)"
    cmp wanted got || fail "two ranks say something else (--split $split)"
    python3 - "$url" $split << 'END2' || fail '/health or /metrics'
import json, sys, urllib.request
read = lambda path: urllib.request.urlopen(sys.argv[1] + path, timeout=60).read().decode()
ranks = json.loads(read("/health"))["ranks"]
assert [(r["rank"], r["split"]) for r in ranks] == [(0, sys.argv[2]), (1, sys.argv[2])], ranks
metrics = read("/metrics")
for r in ranks:
    for purpose, n in r["purposes"].items():
        assert 'ration_rank_planned_bytes{rank="%d",purpose="%s"} %d\n' % (r["rank"], purpose, n) in metrics, metrics
    assert 'ration_rank_budget_bytes{rank="%d"} %d\n' % (r["rank"], 1 << 30) in metrics
END2
    kill -TERM "${ranks[0]}"
    end_ranks 0 0 1
done

names_rank() {
    grep -q 'rank 1 of 2 is gone' rank.0 || { tail -8 rank.0 >&2; fail 'rank 1 is not named'; }
}

# Nobody asks: it is noticed all the same.
start_server --split layers
kill -9 "${ranks[1]}"
end_ranks 5 0
names_rank
wait "${ranks[1]}" 2> /dev/null

# In the middle of an answer: 503, or the stream's end.
start_server --split heads
python3 - "$url" << 'END2' > answer 2>&1 & asking=$!
import json, sys, urllib.request, urllib.error
body = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
try:
    while True:
        urllib.request.urlopen(sys.argv[1] + "/v1/completions", json.dumps(body).encode(), 300).read()
        print("answered", flush=True)
except urllib.error.HTTPError as e: print("status", e.code)
except OSError as e: print("connection", e)
END2
wait_for $asking grep -q answered answer
kill -9 "${ranks[1]}"
end_ranks 5 0
wait $asking
grep -qE 'status 503|connection' answer || { cat answer >&2; fail 'the client was told nothing'; }
names_rank
wait "${ranks[1]}" 2> /dev/null

# What several ranks do not do.
expect 2 "$ration" launch -n 2 -- "${serve[@]}" --split sideways
