#!/usr/bin/env bash
# offload.sh — weights that do not stay: the example, --keep, --offload and --resident-blocks; the text stays the same.
page=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../docs/offload.md")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- the example, on a device of its own memory and on the host's
swap=$examples/block_swap
[ -x "$swap" ] || { echo 'the examples are not built'; exit 77; }
for blocks in 0 1 4 12; do
    expect 0 "$swap" sim $blocks
    equals "blocks that stay" $blocks "$(grep -c ' stays ' out)"
    equals "blocks that are brought" $((12 - blocks)) "$(grep -c ' slot ' out)"
    says out 'answer           right'
done
grep -q '^offloaded  *2 weights stay' out || fail 'offload_weights'
grep -q '^loaded  *3 weights stay' out || fail 'load'
grep -q '^cleared  *2 weights stay' out || fail 'clear_inactive'
expect 0 "$swap" cpu 3
says out 'answer           right'
expect 2 "$swap"
expect 3 "$swap" nowhere 3

# What docs/offload.md shows is what is printed.
shown() { sed -n "/$1/,/^\`\`\`\$/p" "$page" | grep -E "$2"; }
expect 0 "$swap" sim 4
shown '^block  *size' '^block' > shown_swap
[ "$(wc -l < shown_swap)" -gt 3 ] || fail 'docs/offload.md shows no schedule'
while IFS= read -r line; do says out "$line"; done < shown_swap
expect 0 "$ration" plan llama:12x512:train --device sim --sweep
shown '^  *budget  *planned' '[0-9]' > shown_sweep
[ "$(wc -l < shown_sweep)" -gt 3 ] || fail 'docs/offload.md shows no sweep'
while IFS= read -r line; do says out "$line"; done < shown_sweep

# ---- plans
expect 0 "$ration" plan llama:4x64 --keep 'model.layers.0.*' --offload 'model.layers.?.*' --json
check_json "
assert j['plan']['keep'] == 'model.layers.0.*' and j['plan']['offload'] == 'model.layers.?.*'
steps = [s for s in j['plan']['steps'] if s['kind'] == 'read']
assert steps"
expect 0 "$ration" plan llama:4x64 --resident-blocks 2
says out '2 of 6 blocks are resident' 'as asked; of at most 2 blocks'
expect 0 "$ration" plan llama:4x64 --keep '*.0.*' --keep '*.3.*' --offload '*'
says out '*.0.*,*.3.* stays'
expect 2 "$ration" plan llama:4x64 --keep 'nothing*'
says err "no weight is called 'nothing*'"
expect 4 "$ration" plan llama:4x512 --keep '*' --budget +8MiB
says err 'to be kept'

# ---- runs
expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q
cp out story
for device in cpu sim; do
    expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --device $device --offload '*.layers.*' --keep '*.layers.1.*'
    cmp -s out story || fail "offloaded on $device, it says something else"
    expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --device $device --resident-blocks 1
    cmp -s out story || fail "swapped on $device, it says something else"
done

# ---- the opening line: what stays, what is brought
expect 0 "$ration" run -p Once -n 2 --greedy --device sim --budget +2MiB
says err "brought from the host's memory for every step"
! grep -q 'all weights stay' err || fail 'it streams, and says that all weights stay'
expect 0 "$ration" run -p Once -n 2 --greedy --device sim --budget +40MiB
says err 'all weights stay'

# ---- a device that refuses memory once or twice is asked for less; three times is the end
for times in 1 2; do
    expect 0 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --device "sim:fail_alloc=1;fail_allocs=$times"
    cmp -s out story || fail 'recovered, it says something else'
    equals 'tries' $times "$(grep -c 'refused memory, try' err)"
done
expect 4 "$ration" run -p 'Once upon a time' -n 24 --greedy -q --ctx 256 --device 'sim:fail_alloc=1;fail_allocs=3'
says err 'sim had no room in 3 tries' 'the smallest plan takes'
