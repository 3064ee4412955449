#!/usr/bin/env bash
# train_cuda_plan.sh — a training is planned for a GPU that is not there: the driver is the tests' own (fake_cuda), the kernels
# and their costs are real. Peaks by device and purpose, moves that follow the budget, a refusal with its number.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

fake=${FAKE_CUDA:-$(dirname "$ration")/../lib/fake_cuda.so}
[ -e "$fake" ] || { echo "skipped: no $fake"; exit 77; }
export RATION_CUDA_DRIVER=$fake
for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"; done > data.jsonl
config() { # BUDGET [LINE...]
    printf 'device = "cuda:0"\nbudget = "%s"\n[train]\ndata = "data.jsonl"\nlength = 32\nbatch = 4\nsteps = 2\nout = "y"\n' "$1" > config.toml
    shift
    printf '%s\n' "$@" >> config.toml
}
config +512MiB
"$ration" plan config.toml --no-fallback --json > out 2> err || {
    grep -q 'without CUDA kernels' err && { echo "skipped: $(head -1 err)"; exit 77; }
    fail "no plan: $(cat err)"
}
cp out roomy.json
check_json "
step = next(p for p in j['phases'] if p['name'] == 'step')
assert {'weights', 'activations', 'optimizer'} <= set(step['plan']) and step['host_bytes'] > 0, step"
expect 0 "$ration" plan config.toml
says out 'cuda:0' 'host' 'load' 'first step' 'resume' 'predicted:'
[ ! -e y ] || fail 'a plan leaves files'

config +100KiB
expect 4 "$ration" plan config.toml
smallest=$(sed -n 's/.*smallest budget that works[^(]*(\([0-9]*\) bytes).*/\1/p' err | head -1)
says err 'it takes'
config "+$smallest"
expect 0 "$ration" plan config.toml --json
check_json "
step = lambda d: next(p for p in d['phases'] if p['name'] == 'step')
a, b = step(json.load(open('roomy.json'))), step(j)
assert b['planned_bytes'] < a['planned_bytes'] and b['planned_bytes'] <= $smallest, (a, b)
assert b['host_bytes'] > a['host_bytes'], (a, b)"

# 16 bits are what a GPU computes in unless told otherwise: f32 needs more.
config +512MiB 'compute = "f32"'
expect 0 "$ration" plan config.toml --json
check_json "
step = lambda d: next(p for p in d['phases'] if p['name'] == 'step')
a, b = step(json.load(open('roomy.json'))), step(j)
assert a['plan']['activations'] != b['plan']['activations'], (a, b)"
