#!/usr/bin/env bash
# labels: release
# smallest_budget.sh — the smallest budget that run, plan and serve name works, and a page less does not; run and plan name
# the same one, whatever the budget was that they refused or took.
model=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

named() { sed -n 's/.*the smallest budget that works is [^(]*(\([0-9]*\) bytes).*/\1/p' err | sort -u; }
in_json() { python3 -c "import json; print(json.load(open('out'))$1)"; }

# agree SIGN STEP BUDGET ARGUMENTS...: on one figure, in a refusal of run and of plan, and where they were not refused.
# With --ctx: without it, run makes do with a context for its prompt and answer where the usual one does not fit.
agree() {
    local sign=$1 step=$2 small=$3 figure
    shift 3
    expect 4 "$ration" run "$@" -p Once -n 2 -q --budget "$small"
    figure=$(named)
    [ -n "$figure" ] || fail "run $*: no figure"
    expect 4 "$ration" plan "$@" --budget "$small"
    equals "plan $*" "$figure" "$(named)"
    expect 0 "$ration" plan "$@" --budget "${sign}64MiB" --json
    equals "plan $* with more" "$figure" "$(in_json "['smallest_budget_bytes']")"
    expect 0 "$ration" run "$@" -p Once -n 2 --budget "${sign}64MiB" --json
    equals "run $* with more" "$figure" "$(in_json "['plan']['smallest_budget_bytes']")"
    for command in run plan; do
        local more=()
        [ $command = run ] && more=(-p Once -n 2 -q)
        expect 0 "$ration" $command "$@" "${more[@]+"${more[@]}"}" --budget "$sign$figure"
        expect 4 "$ration" $command "$@" "${more[@]+"${more[@]}"}" --budget "$sign$((figure - step))"
        equals "$command $*, just below" "$figure" "$(named)"
    done
    echo "$(basename "$1")${*:2}: $sign$figure"
}

models=("$model")
[ -d "$data/llama" ] && models+=("$data/llama/stories260K/hf" "$data/llama/stories260K/stories260K.q8_0.gguf")
for path in "${models[@]}"; do
    agree + 1 +100KiB "$path" --ctx 256
    agree + 1 +100KiB "$path" --ctx 100 --kv f32
done

# ---- the process's memory counts: a sanitizer's is another one in every run
is_sanitized && { echo 'a sanitizer build: only planned bytes'; exit 0; }
for path in "${models[@]}"; do
    agree '' 4096 8MiB "$path" --ctx 256
    agree '' 4096 8MiB "$path" --ctx 100 --kv f32
done
random=$data/llama/llama-2-tiny-random/llama-2-tiny-random.gguf # a tokenizer of 32,000 tokens
[ -e "$random" ] && agree '' 4096 12MiB "$random" --ctx 512

# What it takes is what it names.
expect 0 "$ration" plan "$model" --budget 64MiB --json
figure=$(in_json "['smallest_budget_bytes']")
expect 0 /usr/bin/time -f %M -o peak "$ration" run "$model" -p Once -n 20 -q --budget "$figure"
peak=$(($(tail -1 peak) * 1024))
[ "$peak" -le "$figure" ] || fail "resident $peak of $figure"
echo "resident $((peak >> 10)) KiB of $((figure >> 10)) KiB"

# ---- a server, which has requests' memory beside its plan, names its figure once
serve() { expect "$1" "$ration" serve "$model" --port 0 --device cpu --budget "$2"; }
serve 4 20MiB
equals 'refusals that are told' 1 "$(grep -c 'does not fit' err)"
figure=$(named)
serve 4 $((figure - 4096))
equals 'serve, just below' "$figure" "$(named)"
"$ration" serve "$model" --port 0 --device cpu --budget "$figure" 2> err > out &
server=$!
cleanups+=("kill $server 2> /dev/null")
while ! grep -q 'listening on' err; do
    kill -0 $server 2> /dev/null || fail "a server with $figure bytes ended"
    sleep 0.1
done
kill $server
wait $server || fail 'the server did not end well'
echo "serve: $figure"
