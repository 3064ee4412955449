#!/usr/bin/env bash
# examples.sh — the two programs to start with: text in one call, and a graph of one's own that learns.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
hello=$examples/hello_text
train=$examples/train_graph
[ -x "$hello" ] && [ -x "$train" ] || { echo 'the examples are not built'; exit 77; }

# ---- text: the program's own, and a refusal that says what would be enough
expect 0 "$ration" run -p 'Once upon a time' -n 64 --greedy --quiet
cp out wanted
expect 0 "$hello"
cmp -s out wanted || fail 'hello_text says something else than ration run'
expect 1 "$hello" 'Once upon a time' "$(dirname "$ration")/nothing"
expect 1 "$hello" 'Once upon a time' "$(realpath "$OLDPWD/models/default")" 1
says err 'budget'

# ---- a graph: every optimiser lowers the loss, within the plan that is printed
for optimizer in adamw momentum lion; do
    expect 0 "$train" 200 "$optimizer"
    says out 'planned'
    first=$(sed -n 's/^step 1: loss //p' out)
    last=$(sed -n 's/^step 200: loss //p' out)
    awk "BEGIN { exit !($last < $first) }" || fail "$optimizer: the loss went from $first to $last"
done
expect 1 "$train" 1 nothing
says err 'adamw, sgd, momentum, lion'
