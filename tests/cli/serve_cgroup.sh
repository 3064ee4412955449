#!/usr/bin/env bash
# labels: release-only long
# serve_cgroup.sh — a server in a memory cgroup whose limit is its budget, under more load than it can take for 10
# minutes: nothing is killed, the only refusals are 429 and 503, and every answer that was begun is complete.
#
#     serve_cgroup.sh RATION [SECONDS [BYTES MODEL]]
#
# Without a model it is the story teller, in little more than the least that a server with these limits asks for.
[ -z "${4:-}" ] || set -- "$1" "$2" "$3" "$(realpath "$4")" # before the folder changes
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
. "$here/common.bash"
. "$here/serve_load.bash"
seconds=${2:-600} budget=${3:-$((64 << 20))} model=${4:-}
is_sanitized && { echo 'skipped: resident memory means nothing under a sanitizer'; exit 77; }
make_group $budget || { echo 'skipped: no memory cgroup can be made'; exit 77; }

# kills: how often the system killed something in the group, by either version's file.
kills() {
    cat "$group/memory.events" "$group/memory.oom_control" 2> /dev/null | awk '$1 == "oom_kill" { print $2 }'
}

# charged: the most KiB that the group was charged with, cached pages included.
charged() {
    cat "$group/memory.peak" "$group/memory.max_usage_in_bytes" 2> /dev/null | awk 'NR == 1 { print int($1 / 1024) }'
}

load() { # ARGUMENTS...: for the whole time
    "$serve_bench" "$address" --json --for "$seconds" --expect-complete "$@"
}

equals 'kills that are counted' 0 "$(kills)"
start_server bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" \
    "$ration" serve ${model:+"$model"} --port 0 --budget $budget --parallel 8 --waiting 16 --connections 512
watch_memory memory "$seconds" &
watcher=$!
# 96 streams for 8 places and a queue of 16: short answers in one piece, and long ones of which some are hung up on, beside
# clients that read a byte a second.
load --streams 48 --words 8 --tokens 16 --whole --seed 2 > whole &
whole=$!
expect 0 load --streams 48 --words 70 --tokens 100 --drop 20 --slow 8 --idle 50
mv out streamed
wait $whole || { cp whole out; fail 'answers in one piece'; }
wait $watcher
equals 'kills' 0 "$(kills)"
peak=$(charged)
stop_server

for kind in streamed whole; do
    [ "$(value $kind "j['statuses'].get('429', 0)")" -gt 0 ] || fail "no $kind answer was refused: the load was not above capacity"
    echo "$kind: $(value $kind "j['complete']") complete, statuses $(value $kind "j['statuses']")," \
        "first token p50 $(value $kind "j['first_token_ms']['p50']") ms, p99 $(value $kind "j['first_token_ms']['p99']")"
done
echo "$seconds s in a cgroup of $((budget >> 10)) KiB: 0 kills, $peak KiB charged at most, resident $(most memory 0 "$seconds") KiB"
