#!/usr/bin/env bash
# train_ranks.sh — ration train as several ranks of this machine: with --exact the files of one rank, on any number of them and with
# states divided; the table of ranks; a rank without the budget, with other options, other data; Ctrl-C and going on with another
# number; ranks that are killed at random moments ($ROUNDS of each, 2): all others say who it was and end with 5, and what is saved
# goes on to the same bits.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
rounds=${ROUNDS:-2}
. "$here/common.bash"
. "$here/ranks.bash"

for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"; done > data.jsonl
flags=(--data data.jsonl --length 24 --batch-size 3 --rate 0.01 --rank 4 --schedule constant --validation 0.2 --evaluate-every 2
    --unpacked --exact)

# same ONE OTHER STEP: the trained bits, of checkpoints and of the adapter.
same() {
    local file
    for file in "checkpoint-$3.safetensors" adapter_model.safetensors adapter.gguf; do
        cmp "$1/$file" "$2/$file" || fail "$file of $2 is not that of $1"
    done
}

# ---- the same bits ---------------------------------------------------------------------

expect 0 "$ration" train "${flags[@]}" --steps 4 --out one --threads 1 -q
for ranks in 2 3; do
    expect 0 "$ration" launch -n $ranks train "${flags[@]}" --steps 4 --out "of$ranks"
    same one "of$ranks" 4
    says err "$ranks ranks by sockets" 'step 4 of 4' 'validation'
    grep -q differ err && fail 'what was planned is not what was held'
done
equals 'losses of ranks' "$(cut -d, -f2 one/log.jsonl)" "$(cut -d, -f2 of2/log.jsonl)"
expect 0 "$ration" launch -n 2 train "${flags[@]}" --steps 4 --out divided --zero 1 --json
same one divided 4
check_json '
assert [r["rank"] for r in j["ranks"]] == [0, 1], j["ranks"]
assert sum(r["sequences"] for r in j["ranks"]) == 3
assert all(r["planned_bytes"] == r["fact_bytes"] > 0 for r in j["ranks"]), j["ranks"]'

# Without --exact to rounding, and with the variables of torchrun.
choose_port
for r in 0 1; do
    RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=job$$ RATION_JOB=$secret \
        "$ration" train "${flags[@]}" --no-exact --steps 4 --out rounded --threads 1 2> "torch.$r" &
    ranks[r]=$!
done
end_ranks 0 0 1
python3 - << 'END' || fail 'without --exact losses differ'
import json
a, b = ([json.loads(l)["loss"] for l in open(f + "/log.jsonl")] for f in ("one", "rounded"))
assert len(a) == len(b) == 4 and all(abs(x - y) < 1e-4 * x for x, y in zip(a, b)), (a, b)
END

# ---- refusals --------------------------------------------------------------------------

# start RANK OPTIONS...: rank RANK of 2, with its options.
start() {
    local rank=$1
    shift
    start_rank "$rank" 2 "$ration" train "${flags[@]}" --steps 4 --out refused --comm-timeout 60s "$@"
}
choose_port
master=127.0.0.1:$port
start 0
start 1 --budget +1MiB
end_ranks 4 0 1
says rank.0 'rank 1 of 2' 'smallest' 'fits'
only_checkpoint=$(ls refused/checkpoint-* 2> /dev/null || true)
equals 'checkpoints of a refused job' '' "$only_checkpoint"
choose_port
master=127.0.0.1:$port
start 0
start 1 --rate 0.02
end_ranks 2 0 1
for r in 0 1; do says rank.$r 'rank 1 of 2 differs from the others in --rate' "'0.02' there"; done
sed 's/number 3/number 9/' data.jsonl > other.jsonl
choose_port
master=127.0.0.1:$port
start 0
start 1 --data other.jsonl
end_ranks 2 0 1
says rank.0 'rank 1 of 2 differs from the others in the data'
expect 2 "$ration" launch -n 4 train "${flags[@]}" --steps 4 --out refused
says err 'a batch of 3 sequences cannot be divided among 4 ranks'
expect 2 "$ration" launch -n 2 train "${flags[@]}" --steps 4 --out one
says err "'one' has a training already"

# ---- Ctrl-C, and another number of ranks -----------------------------------------------

expect 0 "$ration" train "${flags[@]}" --steps 6 --out through --threads 1 -q
"$ration" launch -n 2 train "${flags[@]}" --steps 6000 --out stopped 2> log & launcher=$!
wait_for $launcher grep -q '^step 2 ' log
kill -INT $launcher
got=0
wait $launcher || got=$?
equals 'exit code of a stopped job' 6 $got
says log 'which is saved' '--resume'
rm -rf legs
expect 0 "$ration" launch -n 2 train "${flags[@]}" --steps 2 --out legs -q
expect 0 "$ration" launch -n 3 train "${flags[@]}" --steps 4 --out legs -q --resume --zero 1
expect 0 "$ration" train "${flags[@]}" --steps 6 --out legs -q --resume --threads 1
same through legs 6

# ---- kill -9 ---------------------------------------------------------------------------

for round in $(seq "$rounds"); do
    rm -rf killed
    choose_port
    master=127.0.0.1:$port
    for r in 0 1 2; do
        start_rank $r 3 "$ration" train "${flags[@]}" --steps 6000 --save-every 1 --keep-checkpoints 3 --out killed --comm-timeout 60s
    done
    wait_for "${ranks[0]}" eval 'ls killed/checkpoint-* > /dev/null 2>&1'
    sleep_some 2
    victim=$(any_of 3)
    kill -9 "${ranks[victim]}"
    others=(0 1 2)
    unset "others[$victim]"
    end_ranks 5 "${others[@]}"
    for r in "${others[@]}"; do
        grep -qE "rank $victim of 3 (is gone|was not reached)|rank $victim of 3" "rank.$r" || { cat "rank.$r" >&2; fail "rank $victim is not named by $r"; }
    done
    wait "${ranks[victim]}" 2> /dev/null
    last=$(cd killed && echo checkpoint-*.safetensors | grep -o '[0-9]*' | sort -n | tail -1)
    [ -n "$last" ] || fail 'no checkpoint is left'
    expect 0 "$ration" launch -n 2 train "${flags[@]}" --steps $((last + 1)) --out killed --resume -q
    rm -rf whole
    expect 0 "$ration" train "${flags[@]}" --steps $((last + 1)) --out whole --threads 1 -q
    same whole killed $((last + 1))
done
