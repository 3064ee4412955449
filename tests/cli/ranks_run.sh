#!/usr/bin/env bash
# ranks_run.sh — ration run as several ranks: the same text, to the bit, as one process, at several budgets and numbers of ranks; refusals on
# all of them; a rank with another model or other options, a rank that is killed or hangs; MPI, where it is installed.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
model=$(realpath "$here/../../models/default")
. "$here/common.bash"
. "$here/ranks.bash"
launch() {
    local n=$1
    shift
    "$ration" launch -n "$n" "$@"
}

# What a run says, with the probability of each token: rounding would show there.
words() {
    python3 -c "import json
j = json.load(open('out'))
print(j['text'], j['ended_by'], [(t['id'], t['logprob'], [(k['id'], k['logprob']) for k in t['top']]) for t in j['tokens']])" > "$1"
}
prompt=$(python3 -c 'print("Once upon a time there was a small boat. " * 8)')
tell=(run "$model" -p "$prompt" --greedy -n 24 --ctx 160 --logprobs 3 --json)

# ---- the same text ---------------------------------------------------------------------

expect 0 "$ration" "${tell[@]}"
words one
for budget in 1GiB +5MiB; do
    for n in 2 3 4; do
        expect 0 launch $n "${tell[@]}" --budget $budget --split layers
        words several
        cmp one several || fail "$n ranks with $budget say something else"
        check_json "r = j['ranks']; assert len(r) == $n and r[0]['first_block'] == 0 and all(a['end_block'] == b['first_block'] for a, b in zip(r, r[1:]))
assert r[0]['first_block_name'] == 'embedding' and r[-1]['last_block_name'] == 'head' and all(x['fits'] for x in r)
assert all(x['purposes']['kv'] * 4 == sum(y['purposes']['kv'] for y in r) * sum(1 for b in range(x['first_block'], x['end_block']) if 2 <= b < 6) for x in r), r
assert r[0]['streamed_bytes'] > 0 or '$budget' != '+5MiB' or $n > 3, r"
    done
done
# Heads and rows of weights instead of layers, and whatever the plan finds to be faster.
for split in heads auto; do
    for budget in 1GiB +5MiB; do
        expect 0 launch 2 "${tell[@]}" --budget $budget --split $split
        words several
        cmp one several || fail "2 ranks, --split $split, with $budget say something else"
    done
done
expect 0 launch 2 "${tell[@]}" --split heads
check_json "r = j['ranks']; assert [x['split'] for x in r] == ['heads', 'heads'] and len({x['purposes']['weights'] for x in r}) == 1 and r[0]['purposes']['weights'] < 2700000, r"
expect 2 launch 4 "${tell[@]}" --split heads
says err '4 ranks for 2 key-value heads' '--split layers'
# Chunks of a prompt one behind the other, each smaller than a page and as no power of two.
expect 0 launch 3 "${tell[@]}" --chunk 7
words several
cmp one several || fail 'in chunks of 7 rows it says something else'
expect 0 "$ration" "${tell[@]}" --kv int8
words one8
expect 0 launch 2 "${tell[@]}" --kv int8 --split layers
words several
cmp one8 several || fail 'with a KV cache of int8 it says something else'
expect 0 "$ration" run "$model" -p Once --seed 7 -n 30
cp out one
expect 0 launch 2 run "$model" -p Once --seed 7 -n 30 --split layers
cmp one out || fail 'drawn with a seed it says something else'
says err 'rank  blocks' 'embedding to layer' 'head'

# ---- recordings ------------------------------------------------------------------------

# One timeline of both ranks: collectives with their shapes, messages with their sizes.
cat > recorded << 'END2'
#!/bin/sh
exec "$@" --profile="$work/rank$RATION_RANK.rntrace"
END2
chmod +x recorded
for split in heads layers; do
    work=$scratch/$split
    mkdir "$work"
    export work
    expect 0 launch 2 -- ./recorded "$ration" run "$model" -p Once --greedy -n 5 --split $split
    expect 0 "$ration" profile merge "$work"/rank[01].rntrace -o "$work/both.rntrace"
    expect 0 "$ration" profile report "$work/both.rntrace"
    says out 'rank 0 host' 'rank 1 host'
    cp out $split.report
done
says heads.report 'clocks aligned by' '/all_gather'
says layers.report 'receive a step from rank 0' 'receive from rank 1'

# ---- refusals --------------------------------------------------------------------------

expect 2 launch 5 run "$model" -p x
says err '5 ranks for 4 layers' 'take 4 ranks or fewer'
expect 4 launch 2 run "$model" -p x --budget +1KiB
says err 'rank 0 of 2 is over its budget' 'rank  blocks' ' no'
expect 0 "$ration" plan "$model" --ranks 2 --budget 1GiB
says out 'embedding to layer 1' 'layer 2 to head' 'As ration run would divide it'
expect 0 "$ration" plan "$model" --ranks 2 --budget 1GiB --json
check_json "assert [(s['first_block_name'], s['last_block_name'], s['fits']) for s in j['shares']] == [('embedding', 'layer 1', True), ('layer 2', 'head', True)]"
expect 0 "$ration" plan "$model" --ranks 2 --budget 1GiB --split heads
says out '1/2 of each'
expect 0 "$ration" plan "$model" --ranks 8
says out 'cannot divide it so: 8 ranks for 4 layers'

# One rank alone is over its budget: both say which, before anything is loaded; a roomier one takes more layers.
cat > uneven << 'END2'
#!/bin/sh
[ "$RATION_RANK" = 1 ] && budget=$second || budget=$first
exec "$@" --budget "$budget"
END2
chmod +x uneven
first=1GiB second=+1KiB expect 4 launch 2 -- ./uneven "$ration" run "$model" -p x
equals 'ranks that name it' 2 "$(grep -c 'rank 1 of 2 is over its budget' err)"
first=+6400KiB second=1GiB expect 0 launch 2 -- ./uneven "$ration" "${tell[@]}"
words several
"$ration" "${tell[@]}" > out && words one
cmp one several || fail 'with uneven budgets it says something else'
check_json "assert 0 < len(j['tokens'])"

# ---- ranks that differ -----------------------------------------------------------------

mkdir other
cp "$model"/* other/
python3 - << 'END2'
import struct
f = open('other/model.safetensors', 'r+b')
n = struct.unpack('<Q', f.read(8))[0]
f.seek(0, 2); size = f.tell()
f.seek(8 + n); data = bytearray(f.read(size - 8 - n))
for i in range(0, len(data) - 2, 64): data[i] ^= 1
f.seek(8 + n); f.write(data)
END2
choose_port
master=127.0.0.1:$port
start_rank 0 3 "$ration" run "$model" -p x -n 4
start_rank 1 3 "$ration" run other -p x -n 4
start_rank 2 3 "$ration" run "$model" -p x -n 4
end_ranks 2 0 1 2
for r in 0 1 2; do says rank.$r 'the model' 'rank 1'; done
choose_port
master=127.0.0.1:$port
start_rank 0 3 "$ration" run "$model" -p x -n 4
start_rank 1 3 "$ration" run "$model" -p x -n 4
start_rank 2 3 "$ration" run "$model" -p x -n 4 --kv f32
end_ranks 2 0 1 2
for r in 0 1 2; do says rank.$r 'the options' 'rank 2' '--kv'; done

# ---- ranks that are lost ---------------------------------------------------------------

# A text without an end, on three ranks.
endless=("$ration" run "$model" -p 'Once upon a time' -n 100000000 --ctx 100000 --logit-bias 2=never --logit-bias 1=never --logit-bias 0=never --comm-timeout 4s -q)
is_speaking() { [ "$(wc -c < rank.0)" -gt 60 ]; }
for victim in 1 2 0; do
    choose_port
    master=127.0.0.1:$port
    rm -f rank.* # what the last job said is not this one's
    for r in 0 1 2; do start_rank $r 3 "${endless[@]}"; done
    wait_for "${ranks[0]}" is_speaking
    kill -9 "${ranks[victim]}"
    others=(0 1 2)
    unset "others[$victim]"
    end_ranks 5 "${others[@]}"
    for r in "${others[@]}"; do grep -aq "rank $victim of 3 is gone" rank.$r || { tail -5 rank.$r >&2; fail "rank $victim is not named by $r"; }; done
    wait "${ranks[victim]}" 2> /dev/null
done
choose_port
master=127.0.0.1:$port
rm -f rank.*
for r in 0 1 2; do start_rank $r 3 "${endless[@]}"; done
wait_for "${ranks[0]}" is_speaking
kill -STOP "${ranks[1]}"
end_ranks 5 0 2
for r in 0 2; do grep -aqE 'ranks? 1 of 3' rank.$r || { tail -5 rank.$r >&2; fail "rank 1 is not named by $r"; }; done
kill -9 "${ranks[1]}"
wait "${ranks[1]}" 2> /dev/null

# Ctrl-C: rank 0 ends its text, the others with it.
choose_port
master=127.0.0.1:$port
rm -f rank.*
for r in 0 1; do start_rank $r 2 "${endless[@]}"; done
wait_for "${ranks[0]}" is_speaking
kill -INT "${ranks[0]}" "${ranks[1]}"
wait "${ranks[0]}"
equals 'exit code of rank 0' 6 $?
end_ranks 0 1

# ---- MPI -------------------------------------------------------------------------------

if command -v mpirun > /dev/null; then
    "$ration" "${tell[@]}" > out && words one
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_rmaps_base_oversubscribe=1
    export LSAN_OPTIONS=detect_leaks=0 # what MPI keeps
    expect 0 mpirun -n 2 "$ration" "${tell[@]}"
    words several
    cmp one several || fail 'over MPI it says something else'
else
    leave_out 'no mpirun here'
fi
