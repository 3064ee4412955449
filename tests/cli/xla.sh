#!/usr/bin/env bash
# xla.sh — devices behind PJRT plugins: the same text, programs that are kept, and every plugin that does not work is
# left for the next target. The plugin is tests/fake_pjrt, which has Neuron's names; XLA's own for the CPU where it is
# installed (scripts/python-env).
xla_cpu=${RATION_XLA_PLUGIN:-$(realpath build/python/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so 2> /dev/null)}
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

fake=$(dirname "$ration")/../lib/fake_pjrt.so
[ -e "$fake" ] || { echo "skipped: there is no $fake"; exit 77; }
export NEURON_LIBRARY_PATH
NEURON_LIBRARY_PATH=$(realpath "$fake")
speak=(run -p 'Once upon' -n 6 --greedy --ctx 64 --chunk 8)

# ---- the same text, and stages where they happen ----
expect 0 "$ration" "${speak[@]}" --quiet
mv out text
expect 0 "$ration" "${speak[@]}" --device neuron:0-1 --log-level info
cmp -s text out || fail 'another text'
says err 'was tried in' 'PJRT 0.104, 2 devices of NC_v2' 'compiled in' 'stage model_saved on neuron:0-1' \
    'stage compilation_complete on neuron:0-1' 'stage model_on_xla on neuron:0-1' 'stage inputs_on_xla on neuron:0-1'
# One that was tried is not tried again, and does not compile: FAKE_PJRT would make it fail.
FAKE_PJRT=oom_compile expect 0 "$ration" "${speak[@]}" --device neuron:0-1 --log-level debug
cmp -s text out || fail 'another text from saved programs'
says err 'loaded in'
grep -Eq ' runs, [1-9][0-9]* of them begun ahead' err || fail 'no step was begun before it was asked for'
grep -q 'was tried\|compiled in' err && fail 'tried or compiled again'

# ---- cores: a program is divided over them ----
expect 0 "$ration" plan llama:2x64 --device neuron:0-1
says out '2 cores of the device hold'
expect 0 "$ration" plan llama:2x64 --device "neuron:0-1?cores=1"
grep -q 'cores of the device' out && fail 'cores=1 is one core'
expect 0 "$ration" compile --device neuron:0-1 --ctx 64 --chunk 8 --save two
says out '2 programs for 1, 8 rows on 2 cores of NC_v2 by PJRT 0.104' '; each core holds'
expect 5 "$ration" "${speak[@]}" --device 'xla:'"$NEURON_LIBRARY_PATH"'?cores=2'
says err 'has 1 devices; there is no number 1'

# ---- options of Neuron's compiler: a target has its own, whatever one before it had; the user's stay ----
FAKE_PJRT=oom_compile expect 4 "$ration" "${speak[@]}" --programs flags --log-level info \
    --device 'neuron:0-1?opt=2&auto_cast=matmult&auto_cast_type=bf16,neuron:1?model_type=generic,neuron'
says err "cores 0-1, compiler's flags --model-type=transformer --optlevel=2 --auto-cast=matmult --auto-cast-type=bf16" \
    "cores 1, compiler's flags --model-type=generic --optlevel=1" "cores all, compiler's flags --model-type=transformer --optlevel=1"
NEURON_CORES=2 expect 0 "$ration" "${speak[@]}" --device neuron --log-level info
says err 'cores 0-1,'
NEURON_CC_FLAGS=--mine NEURON_RT_VISIBLE_CORES=3 expect 0 "$ration" "${speak[@]}" --device 'neuron:0?opt=2' --log-level info
says err "cores 3, compiler's flags --mine"
expect 2 "$ration" "${speak[@]}" --device 'neuron:0?auto_cast=some'
says err 'no auto_cast that'
expect 2 "$ration" "${speak[@]}" --device 'xla:cpu?auto_cast=all'

# ---- ration compile ----
expect 0 "$ration" compile --device neuron:0 --ctx 64 --chunk 8 --save programs
says out 'neuron:0: 2 programs for 1, 8 rows on NC_v2 by PJRT 0.104: 2 compiled, 0 loaded' 'kept in programs'
expect 0 "$ration" compile --device neuron:0 --ctx 64 --chunk 8 --save programs --json
says out '"target": "neuron:0"' '0 compiled, 2 loaded'
FAKE_PJRT=oom_compile expect 0 "$ration" "${speak[@]}" --device neuron:0 --programs programs
FAKE_PJRT=oom_compile expect 4 "$ration" "${speak[@]}" --device neuron:0 --programs elsewhere
says err NCC_EOOM001 'stage: xla_model_created'
expect 3 "$ration" compile --device cpu
says err 'nothing to compile'

# ---- a full disk: the program is used and not kept ----
mkdir full
if unshare -rm mount -t tmpfs -o size=4k none full 2> /dev/null; then
    expect 0 unshare -rm bash -c 'mount -t tmpfs -o size=4k none full && exec "$@"' full \
        "$ration" "${speak[@]}" --device neuron:0 --programs full --log-level info
    cmp -s text out || fail 'another text with a full disk'
    says err 'the program is not kept' 'No space left on device'
else
    leave_out 'no small file system can be mounted here'
fi

# ---- the next target ----
for behaviour in abort exit no_devices old oom_compile oom_upload; do
    rm -rf home/.cache
    FAKE_PJRT=$behaviour expect 0 "$ration" "${speak[@]}" --device neuron:0-1,cpu --log-level info
    cmp -s text out || fail "$behaviour: another text"
    says err 'failed at stage' 'on neuron:0-1' 'cpu is in use, as the last resort'
done
FAKE_PJRT=abort expect 5 "$ration" "${speak[@]}" --device neuron:0
says err 'ends its process by signal 6'

# ---- what does not fit is refused before the plugin is opened ----
export NEURON_LIBRARY_PATH=/nowhere/libneuronpjrt.so
expect 4 "$ration" plan llama:32x4096 --device neuron:0 --budget neuron:0=16GiB --exact
says err 'weights on neuron:0 does not fit' '16.0 GiB' 'the smallest budget that works is'
expect 0 "$ration" plan llama:32x4096 --device neuron:0 --budget neuron:0=16GiB
says out 'the CPU computes the first'
export NEURON_LIBRARY_PATH
NEURON_LIBRARY_PATH=$(realpath "$fake")

# ---- a server ----
# It finds what was compiled for it: FAKE_PJRT would make it fail.
expect 0 "$ration" compile --device neuron:0 --parallel 1 --ctx 64 --chunk 8 --save programs
FAKE_PJRT=oom_compile start_server --device neuron:0,cpu --parallel 1 --ctx 64 --chunk 8 --programs programs
ask 200 /health
says out '"device":"neuron:0"' '0 compiled, 2 loaded'
stop_server
# ---- serving, with a tree of files like that of Neuron's driver ----
export RATION_NEURON_SYSFS=$PWD/sysfs
for core in 0 1; do
    memory=sysfs/neuron0/neuron_core$core/stats/memory_usage/device_mem
    mkdir -p "$memory/tensors" "$memory/model_code"
    echo $((4096 + core)) > "$memory/tensors/total"
    echo 8 > "$memory/model_code/total"
done
expect 0 "$ration" "${speak[@]}" --device neuron:0-1 --log-level info
for stage in xla_model_created compilation_complete model_on_xla inputs_on_xla; do
    grep -q "stage $stage on neuron:0-1: resident .*, neuron:0-1 .* (sysfs: 8.02 KiB)" err || fail "$stage has no memory"
done
start_server --device neuron:0-1,cpu --parallel 1 --ctx 64 --chunk 8 --save kept
ask 200 /health
says out '"device":"neuron:0-1"' '"program":"2 programs for 1, 8 rows on 2 cores of NC_v2' '; each core holds' \
    '"driver":{"source":"sysfs","used_bytes":8209,"categories":{"model_code":16,"tensors":8193}}'
ask 200 /metrics
says out 'ration_memory_driver_bytes{device="neuron:0-1",category="tensors"} 8193'
# The second time a step of the first is under way, which nobody wants.
for _ in first second; do
    ask 200 /v1/completions '{"prompt": "Once upon", "max_tokens": 6, "temperature": 0}'
    says out "$(tail -c +10 text | tr -d '\n')"
done
stop_server
{ [ -e kept/plan.json ] && ls kept/*.pjrt > /dev/null; } || fail 'nothing was saved'

# ---- XLA itself ----
if [ -e "$xla_cpu" ]; then
    export RATION_XLA_PLUGIN=$xla_cpu
    echo 'leak:xla_cpu_pjrt' > leaks # its own, which the sanitizer sees in our process
    export LSAN_OPTIONS=suppressions=$PWD/leaks:print_suppressions=0
    for start in compiled loaded; do
        expect 0 "$ration" "${speak[@]}" --chunk 1 --device xla:cpu --log-level info
        cmp -s text out || fail 'another text from XLA'
        says err "$start in" 'stage model_on_xla on xla:cpu'
    done
    expect 0 "$ration" "${speak[@]}" --chunk 1 --device 'xla:cpu?cores=2&opt=0' --log-level info
    cmp -s text out || fail 'another text from two of its devices'
else
    leave_out 'no PJRT plugin for the CPU (scripts/python-env installs it)'
fi
