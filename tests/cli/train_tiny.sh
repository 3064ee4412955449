#!/usr/bin/env bash
# train_tiny.sh — the program that makes the default model: stopped and started again it ends with the same bytes, and
# what is committed beside the weights is what it writes.
committed=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
train=$examples/train_tiny
[ -x "$train" ] || { echo 'the examples are not built'; exit 77; }

expect 2 "$train"
expect 2 "$train" --out folder
expect 2 "$train" --out folder --steps many
expect 0 "$train" --stories 2 --seed 7
cp out first
expect 0 "$train" --stories 2 --seed 7
cmp -s out first || fail 'the same seed told other stories'
says out '---'

# ---- through, and with a pause after each step
expect 0 "$train" --out through --steps 2 --batch 1 --threads 2
for _ in 1 2 3 4; do
    expect 0 "$train" --out paused --steps 2 --batch 1 --threads 1 --minutes 0.00001
    grep -q 'after 2 steps' out && break
done
for file in config.json model.safetensors tokenizer.json tokenizer_config.json checkpoint.safetensors; do
    cmp "through/$file" "paused/$file" || fail "$file differs"
done

# ---- what is committed
[ "$(stat -c %s "$committed/model.safetensors")" -le 4000000 ] || fail 'the default model is larger than 4 MB'
for file in config.json tokenizer.json tokenizer_config.json; do
    cmp "through/$file" "$committed/$file" || fail "models/default/$file was made otherwise"
done
