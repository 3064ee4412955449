#!/usr/bin/env bash
# image_cuda_plan.sh — a drawing is planned for a GPU that is not there: the driver is the tests' own (fake_cuda), the kernels and
# their costs are real. Its phases, budgets of both memories, a refusal with its number.
root=$(pwd)
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

fake=${FAKE_CUDA:-$(dirname "$ration")/../lib/fake_cuda.so}
[ -e "$fake" ] || { echo "skipped: no $fake"; exit 77; }
export RATION_CUDA_DRIVER=$fake
model=$root/models/pictures
plan() { "$ration" plan "$model" --for image --device cuda:0 --no-fallback "$@"; }
plan --json > out 2> err || {
    grep -q 'without CUDA kernels' err && { echo "skipped: $(head -1 err)"; exit 77; }
    fail "no plan: $(cat err)"
}
cp out roomy.json
# Keys and values of the text are made once; the denoiser has no weights for that.
check_json "
phases = {p['name']: p for p in j['phases']}
assert list(phases) == ['text', 'prepare', 'denoise', 'decode'], list(phases)
assert phases['denoise']['streamed_bytes'] == 0 and phases['prepare']['runs'] == 1, phases"
expect 4 "$ration" plan "$model" --for image --device cuda:0 --no-fallback --budget cuda:0=+200KiB,host=1GiB
smallest=$(sed -n 's/.*smallest budget that works[^(]*(\([0-9]*\) bytes).*/\1/p' err | head -1)
[ -n "$smallest" ] || fail "no smallest budget: $(cat err)"
expect 0 "$ration" plan "$model" --for image --device cuda:0 --no-fallback --budget "cuda:0=+$smallest,host=1GiB" --json
check_json "
a, b = json.load(open('roomy.json')), j
assert b['planned_bytes'] < a['planned_bytes'] and b['planned_bytes'] <= $smallest, (a['planned_bytes'], b['planned_bytes'])
assert next(p for p in b['phases'] if p['name'] == 'denoise')['streamed_bytes'] > 0, b['phases']"
