#!/usr/bin/env bash
# mpi_train.sh — ration train under the mpirun of Open MPI and of MPICH: with --exact the files of one rank; a rank that is killed ends
# the job, and what is saved goes on. Each of the two where it is installed (scripts/bootstrap mpi).
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"; done > data.jsonl
flags=(--data data.jsonl --length 24 --batch-size 3 --rate 0.01 --rank 4 --schedule constant --unpacked --exact --threads 1)

# Open MPI: as root, with more ranks than processors, without the launcher's own binding. Sanitizers count what MPI leaves behind.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
kinds=()
launcher_of() {
    case $1 in
    openmpi) launch=(mpirun.openmpi --oversubscribe --bind-to none -n) library=libmpi.so.40 ;;
    mpich) launch=(mpirun.mpich -n) library=libmpich.so.12 ;;
    esac
}
for kind in openmpi mpich; do
    launcher_of $kind
    command -v "${launch[0]}" > /dev/null || { leave_out "no ${launch[0]}"; continue; }
    kinds+=($kind)
done
[ ${#kinds[@]} -gt 0 ] || { echo 'skipped: neither Open MPI nor MPICH is installed: scripts/bootstrap mpi'; exit 77; }

expect 0 "$ration" train "${flags[@]}" --steps 3 --out one -q
for kind in "${kinds[@]}"; do
    launcher_of $kind
    export RATION_MPI_LIBRARY=$library
    for ranks in 2 3; do
        expect 0 "${launch[@]}" $ranks "$ration" train "${flags[@]}" --steps 3 --out "$kind$ranks"
        says err "$ranks ranks" 'step 3 of 3'
        for file in checkpoint-3.safetensors adapter_model.safetensors; do
            cmp "one/$file" "$kind$ranks/$file" || fail "$file of $ranks ranks under $kind is not that of one"
        done
    done
    # A rank that is killed: mpirun ends the others. What is saved is whole.
    "${launch[@]}" 2 "$ration" train "${flags[@]}" --steps 6000 --save-every 1 --out "killed$kind" > log 2>&1 & job=$!
    wait_for $job eval 'ls "killed$kind"/checkpoint-* > /dev/null 2>&1'
    victim=$(pgrep -f "train .*--out killed$kind" | while read -r p; do [ "$(readlink "/proc/$p/exe")" = "$ration" ] && echo "$p"; done | tail -1)
    [ -n "$victim" ] || fail "no rank under $kind"
    kill -9 "$victim"
    got=0
    wait $job || got=$?
    [ $got != 0 ] || fail "$kind: the job of a killed rank ended with 0"
    for _ in $(seq 300); do pgrep -f "$ration train .*--out killed$kind" > /dev/null || break; sleep 0.1; done
    pgrep -f "$ration train .*--out killed$kind" > /dev/null && fail "$kind: ranks are left"
    last=$(cd "killed$kind" && echo checkpoint-*.safetensors | grep -o '[0-9]*' | sort -n | tail -1)
    expect 0 "${launch[@]}" 2 "$ration" train "${flags[@]}" --steps $((last + 1)) --out "killed$kind" --resume -q
    expect 0 "$ration" train "${flags[@]}" --steps $((last + 1)) --out "whole$kind" -q
    cmp "whole$kind/checkpoint-$((last + 1)).safetensors" "killed$kind/checkpoint-$((last + 1)).safetensors" || fail "$kind: other bits"
done
