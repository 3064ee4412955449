#!/usr/bin/env bash
# ration plan --ranks: ways to divide a model over machines, on paper, and the assumptions.
model=$(realpath "$(dirname "$0")/../../models/default")
source "$(dirname "$0")/common.bash"

expect 0 "$ration" plan "$model" --ranks 2 --budget 256MiB
says out '2 ranks, on paper' 'pipeline' 'tensor parallel, exact' 'Assumed:' '5.00 us' 'ring'
expect 0 "$ration" plan "$model" --ranks 8 --budget 256MiB
says out 'not possible: 4 layers, 8 ranks' 'not possible: 2 key-value heads, 8 ranks'
expect 0 "$ration" plan llama:4x128:train --ranks 1024 --link 100us,117MiB,tree --budget 256MiB
says out 'data parallel' 'ZeRO 1' 'ZeRO 2' 'ZeRO 3' 'tree' '100 us'
expect 0 "$ration" plan llama:4x128:train --ranks 4 --budget 256MiB --json
says out '"ZeRO 3"' '"rank_bytes"' '"fits": true' '"link_latency_seconds": 5e-06'

# A budget that holds half of it: what fits is said, and it is no refusal.
expect 0 "$ration" plan llama:4x512:train --ranks 8 --budget +450MiB
grep -q 'data parallel.* no$' out || fail 'the whole fits?'
grep -q 'ZeRO 3.* yes$' out || fail 'an eighth does not fit?'

expect 2 "$ration" plan mlp --ranks 2
says err 'a text model or of a training step'
expect 2 "$ration" plan llama:4x128:train --ranks 2 --sweep budget
for link in 5 5us, 5us,0 x,1GB 5us,1GB,mesh; do
    expect 2 "$ration" plan llama:4x128:train --ranks 2 --link "$link"
    says err 'LATENCY,BYTES'
done
