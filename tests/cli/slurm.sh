#!/usr/bin/env bash
# packaging/slurm/train.sbatch with srun, mpirun, scontrol and ration as scripts that say how they were called, and the variables
# that Slurm would set: who starts the ranks, each rank's budget, the end of the job's time.
packaging=$(realpath "$(dirname "$0")/../../packaging")
. "$(dirname "$0")/common.bash"
script=$packaging/slurm/train.sbatch
bash -n "$script" || fail 'train.sbatch is no shell script'

mkdir bin
cat > bin/srun << 'END'
#!/bin/bash
[ "$1" != --mpi=list ] || { echo "MPI plugin types are... ${PLUGINS:-none}"; exit 0; }
echo "srun $* | threads=$RATION_THREADS" >> called
trap 'echo "srun heard TERM" >> called; exit 6' TERM
for _ in $(seq "${TURNS:-0}"); do sleep 0.05; done
exit "${CODE:-0}"
END
sed 's/srun/mpirun/g; /mpi=list/d; s/RATION_THREADS/RATION_THREADS patience=$OMPI_MCA_odls_base_sigkill_timeout/' bin/srun > bin/mpirun
printf '#!/bin/bash\necho "scontrol $*" >> called\n' > bin/scontrol
chmod +x bin/*

# submits CODE [NAME=VALUE...] -- ARGUMENTS...: what was called is in ./called
submits() {
    local code=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1") && shift; done
    shift
    rm -f called
    expect "$code" env PATH="$scratch/bin:$PATH" SLURM_JOB_ID=77 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=4 SLURM_CPUS_PER_TASK=8 \
        "${settings[@]+"${settings[@]}"}" bash "$script" "$@"
}

train='ration train m --data d.jsonl --out o --resume --budget'
submits 0 PLUGINS='cray pmix pmi2' SLURM_NTASKS_PER_NODE=2 SLURM_MEM_PER_NODE=32768 -- m d.jsonl o --steps 9
equals 'what was called' "srun --mpi=pmix $train 14745MiB --steps 9 | threads=8" "$(cat called)"
submits 0 SLURM_MEM_PER_CPU=2048 -- m d.jsonl o
equals 'what was called' "mpirun --bind-to none -n 4 $train 14745MiB | threads=8 patience=150" "$(cat called)"
submits 0 SLURM_MEM_PER_NODE=0 -- m d.jsonl o
says called "$train 45% |"
submits 4 CODE=4 -- m d.jsonl o
! grep -q scontrol called || fail 'a refusal is queued again'
submits 2 -- m
says err 'usage: sbatch'

# Its time is over: the ranks hear of it, and the job is queued again.
export PATH="$scratch/bin:$PATH" SLURM_JOB_ID=77 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=4 TURNS=2000 PLUGINS=pmix
rm -f called
bash "$script" m d.jsonl o & job=$!
wait_for $job test -s called
sleep 0.2
kill -TERM $job
wait $job || fail "the job ended with $?"
says called 'srun heard TERM' 'scontrol requeue 77'
