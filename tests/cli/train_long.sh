#!/usr/bin/env bash
# labels: long
# train_long.sh — ten thousand steps of samples of all lengths, with evaluations and checkpoints between them: what the ledger
# holds after each step is the same to the byte, every phase held what was planned, and the process did not grow.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in $(seq 60); do
    printf '{"text": "Zog the dragon ate cake number %s%s."}\n' "$i" "$(printf ' and laughed%.0s' $(seq $((i % 9))))"
done > data.jsonl
expect 0 "$ration" train --data data.jsonl --length 32 --batch-size 1 --rate 0.0001 --rank 2 --target v_proj --long truncate \
    --unpacked --steps 10000 --validation 0.1 --evaluate-every 500 --save-every 1000 --out many -q -j --threads 1
equals steps 10000 "$(wc -l < many/log.jsonl)"
equals 'sizes on the ledger' 1 "$(sed 's/.*memory_bytes//' many/log.jsonl | sort -u | wc -l)"
check_json "
for p in j['phases']:
    assert p.get('fact', p['plan']) == p['plan'], p
    assert p.get('fact_total_bytes', 0) <= p['planned_bytes'] + p['beside_bytes'], p"
