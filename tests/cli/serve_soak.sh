#!/usr/bin/env bash
# labels: release-full
# serve_soak.sh — 1,000 idle and 200 active connections for 5 minutes: no error, resident memory within the budget, and
# no growth: the last minute's most is at most 1 % above the second minute's.
#
#     serve_soak.sh RATION [SECONDS]
#
# Where the time is not 300 seconds, a fifth of it is the minute. Under a sanitizer 32 are active for 10 seconds, and only
# errors count.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
. "$here/common.bash"
. "$here/serve_load.bash"
idle=1000 active=200 budget=$((128 << 20))
seconds=${2:-300} flag=$budget
is_sanitized && seconds=${2:-10} active=32 flag=+$budget
ulimit -n 4096 2> /dev/null || { echo 'skipped: not enough open files are allowed'; exit 77; }

start_server "$ration" serve --port 0 --budget $flag --waiting $active --connections 2048 --idle-timeout 900
watch_memory memory "$seconds" &
watcher=$!
expect 0 "$serve_bench" "$address" --json --for "$seconds" --idle $idle --streams $active --tokens 32 --words 16 --drop 50 \
    --expect-complete
wait $watcher
stop_server

equals 'statuses' "['200']" "$(value out "sorted(j['statuses'])")"
equals 'idle connections that were closed' 0 "$(value out "j['idle_closed']")"
minute=$((seconds / 5))
second=$(most memory $minute $((2 * minute))) last=$(most memory $((seconds - minute)) "$seconds") peak=$(most memory 0 "$seconds")
echo "$seconds s, $idle idle, $active active: $(value out "j['complete']") answers, $(value out "j['tokens_per_second']") tokens/s," \
    "first token p99 $(value out "j['first_token_ms']['p99']") ms; resident $peak KiB of $((budget >> 10))," \
    "in the second minute $second, in the last $last"
is_sanitized && exit 0
[ "$second" -gt 0 ] && [ "$last" -gt 0 ] || fail 'memory was not looked at'
[ "$peak" -le $((budget >> 10)) ] || fail "resident $peak KiB, budget $((budget >> 10))"
[ $((100 * last)) -le $((101 * second)) ] || fail "grew from $second to $last KiB"
