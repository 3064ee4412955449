#!/usr/bin/env bash
# embed.sh — ration embed: every form of output says the same, budgets and company change nothing, mistakes are named.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

model=$root/tests/golden/embed/bert
printf 'the quick fox\n\nhello world\r\nlazy dogs jumping' > texts

# Lines of numbers, one a text; an empty line is an empty text.
expect 0 "$ration" embed "$model" -f texts
cp out all
equals texts 4 "$(wc -l < all)"
equals dimensions 32 "$(head -1 all | wc -w)"
says err 'cls of 32 dimensions' '4 texts' 'planned of a budget'
expect 0 "$ration" embed "$model" -q < texts
cmp -s out all || fail 'standard input gives others'
[ ! -s err ] || fail '-q is not quiet'

# The same bits alone, in another company, and within the smallest budget.
expect 0 "$ration" embed "$model" 'hello world' -q
equals alone "$(sed -n 3p all)" "$(cat out)"
expect 0 "$ration" embed "$model" 'hello world' 'the quick fox' -q
equals company "$(sed -n 3p all; sed -n 1p all)" "$(cat out)"
expect 0 "$ration" plan "$model" --ctx 8 --budget +1GiB --json
smallest=$(sed -n 's/.*"smallest_budget_bytes": *\([0-9]*\).*/\1/p' out | head -1)
expect 0 "$ration" embed "$model" -f texts --ctx 8 --chunk 512 -q --budget "+$((smallest + 70000))"
equals lines 4 "$(wc -l < out)"
cmp -s out all || fail 'a small budget gives others'
expect 4 "$ration" embed "$model" -f texts -q --budget +1000
says err 'smallest'

# Other forms.
expect 0 "$ration" embed "$model" -f texts --json
says out '"data"' '"index": 3' '"dimensions": 32' '"planned_bytes"' '"ledger"'
expect 0 "$ration" embed "$model" -f texts --similarity -q
equals cosine 1.00000 "$(head -1 out | awk '{print $1}')"
equals symmetric "$(awk 'NR == 1 {print $3}' out)" "$(awk 'NR == 3 {print $1}' out)"
expect 0 "$ration" embed "$model" -f texts --dimensions 5 --pooling mean --no-normalize -q
equals dimensions 5 "$(head -1 out | wc -w)"
expect 0 "$ration" embed "$model" -f texts -o x.npy -q
equals 'size of x.npy' $((128 + 4 * 32 * 4)) "$(stat -c %s x.npy)"
od -An -v -tf4 -j128 -w128 x.npy > numbers
paste -d' ' numbers all | awk '{for (i = 1; i <= 32; i++) if (($i - $(i + 32)) ^ 2 > 1e-14) exit 1}' || fail 'x.npy has other numbers'
expect 0 "$ration" embed "$model" -f texts --base64 -q
while read -r line; do echo "$line" | base64 -d; done < out > bytes
tail -c +129 x.npy | cmp -s - bytes || fail 'base64 has other bytes'
expect 0 "$ration" embed "$model" -f texts -o x.safetensors -q
expect 0 "$ration" inspect x.safetensors
says out embeddings '[4, 32]'

# Too long: cut with a warning, or refused.
expect 0 "$ration" embed "$model" 'the quick brown fox' --ctx 4
says err warning 'were cut to 4 tokens'
expect 2 "$ration" embed "$model" 'the quick brown fox' --ctx 4 --refuse-long
says err '6 tokens, more than 4'

# Mistakes.
expect 2 "$ration" embed "$model" a -f texts
expect 2 "$ration" embed "$model" a --ctx 49
expect 2 "$ration" embed "$model" a --dimensions 33
expect 2 "$ration" embed "$model" a -o x.txt
expect 2 "$ration" embed "$model" a -o x.npy --similarity
expect 2 "$ration" embed "$model" < /dev/null
expect 3 "$ration" embed "$model/nothing" a
expect 3 "$ration" embed "$root/tests/golden/embed/mpnet" a # no tokenizer
expect 3 "$ration" run "$model" -p a
says err 'makes embeddings' 'ration embed'
expect 0 "$ration" embed --help
says out --pooling --dimensions --similarity --refuse-long 'ration embed models/minilm'
