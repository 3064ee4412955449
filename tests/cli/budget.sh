#!/usr/bin/env bash
# labels: release
# budget.sh — a model four times as large as the budget is converted within it: by the peak of resident memory, and in a
# cgroup that would kill the program if it took more.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

budget=$((48 << 20))
"$examples/make_model" model.safetensors 200MiB > out 2> err || fail 'make_model'
size=$(stat -c %s model.safetensors)
[ $size -gt $((4 * budget)) ] || fail "the model has only $size bytes"
equal_files() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

# ---- peak of resident memory
convert() { expect 0 /usr/bin/time -f %M -o peak "$ration" convert model.safetensors "$@"; }
for pair in int4.safetensors int8.safetensors nf4.safetensors q8_0.gguf f32.safetensors; do
    to=${pair%.*}
    budget_flag=48MiB
    is_sanitized && budget_flag=+48MiB # without the process image, of which sanitizers need a lot
    convert $pair --to $to --budget $budget_flag
    peak=$(($(tail -1 peak) * 1024))
    echo "$to: peak resident $((peak >> 10)) KiB of $((budget >> 10)) KiB"
    is_sanitized || [ $peak -lt $budget ] || fail "$to: peak $peak, budget $budget"
    [ $to = int4 ] || rm $pair
done

# The budget changes nothing about the result.
expect 0 "$ration" convert model.safetensors wide.safetensors --to int4 --budget 1GiB
equal_files int4.safetensors wide.safetensors
rm wide.safetensors

# ---- a cgroup with the budget as its limit
is_sanitized && { echo 'a sanitizer build: no cgroup'; exit 0; }
make_group $budget || { leave_out 'no memory cgroup can be made'; exit 0; }
for pair in int4.safetensors q8_0.gguf; do
    expect 0 in_group "$ration" convert model.safetensors inside.$pair --to ${pair%.*} --budget 48MiB
done
equal_files int4.safetensors inside.int4.safetensors
echo "inside a cgroup of $((budget >> 20)) MiB: done"
expect 0 in_group "$ration" convert model.safetensors inside.safetensors --to int4 --budget 90%
echo "90 % of the cgroup's limit: done"
