#!/usr/bin/env bash
# labels: long
# train_kill.sh — a training that is killed 20 times, mostly while it saves: what is there is always whole, each start goes
# on from it, and the end has the bytes of a run that nobody stopped. Ctrl-C saves and says how to go on.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"; done > data.jsonl
flags=(--data data.jsonl --length 32 --batch-size 2 --rate 0.01 --rank 64 --schedule constant --threads 1 --save-every 1
    --steps 400)

"$ration" train "${flags[@]}" --out killed > /dev/null 2> log &
for kill in $(seq 20); do
    pid=$!
    sleep "0.$((RANDOM % 9 + 1))"
    kill -9 $pid 2> /dev/null
    wait $pid 2> /dev/null
    "$ration" train "${flags[@]}" --out killed --resume > /dev/null 2> log &
done
pid=$!
wait_for $pid grep -q '^step' log
kill -INT $pid
wait $pid
equals 'exit code' 6 $?
says log 'which is saved' '--resume'
steps=$(cd killed && echo checkpoint-* | grep -o '[0-9]*' | sort -n | tail -1)
expect 0 "$ration" train "${flags[@]}" --out killed --resume --steps $((steps + 3)) -q
expect 0 "$ration" train "${flags[@]}" --out through --steps $((steps + 3)) -q
for file in adapter_model.safetensors "checkpoint-$((steps + 3)).safetensors"; do
    cmp "through/$file" "killed/$file" || fail "$file differs"
done
equals lines $((steps + 3)) "$(wc -l < killed/log.jsonl)"
[ -z "$(find killed -name '*.tmp')" ] || fail 'temporaries are left'
