#!/usr/bin/env bash
# labels: release-only
# calibrate.sh — the machine is measured, the rates are kept in the cache folder, and plans say that they use them.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

export XDG_CACHE_HOME=$scratch/cache
expect 0 "$ration" plan mlp --threads 1 # RATION_RATES=guessed, as all tests have it
says out 'guessed rates'
[ ! -e cache ] || fail 'guesses are kept'
unset RATION_RATES
export RATION_RATES=measured

# ---- without a calibration: a tenth of a second, kept for the next start
expect 4 "$ration" plan resnet18 --threads 1 --budget +1MiB # a refusal does not wait for it
[ ! -e cache ] || fail 'something was measured for a plan that is refused'
expect 4 "$ration" run -p Once -n 1 -q --threads 1 --budget +1KiB
[ ! -e cache ] || fail 'something was measured for a run that is refused'
expect 0 "$ration" plan mlp --threads 1 --budget +60MiB --json
cp out first
check_json "assert j['rates_measured'] and j['rates_source'] == 'quick', j['rates_source']"
python3 -c "
import json
kept = json.load(open('cache/ration/rates.json'))
assert kept['quick'] == 1 and kept['threads'] == 1 and abs(kept['flops'] / json.load(open('first'))['plan']['rates']['flops'] - 1) < 1e-4, kept" ||
    fail 'what was measured is not what is kept'
expect 0 "$ration" plan mlp --threads 1 --budget +60MiB --json
cmp -s out first || fail 'the next plan is another one'
expect 0 "$ration" plan mlp --threads 1
says out 'measured for a tenth of a second'
expect 0 "$ration" run -p Once -n 3 --greedy --threads 1 --log-level info
says err 'a tenth of a second of measuring'
grep -q 'info rates: measured' err && fail 'the second start measures again'
rm -r cache
expect 0 "$ration" run -p Once -n 3 --greedy --threads 1 --log-level info
says err 'info rates: measured for ' 'kept for the next start'
expect 0 "$ration" run -p Once -n 3 --greedy --threads 1 --json --rates guessed
check_json "assert j['plan']['rates_source'] == 'guessed' and not j['plan']['rates_measured']"
# It stays within the budget. (A sanitizer's own memory is not ours.)
rm -r cache
if ! is_sanitized; then
    expect 0 "$ration" run -p Once -n 3 --greedy --threads 1 --json --budget 32MiB
    check_json "
used = j['facts']['resident_peak_bytes'] + j['facts']['page_table_bytes']
assert j['plan']['rates_source'] == 'quick' and used <= 32 << 20, used"
    rm -rf cache
fi
# A cache folder that cannot be written, or holds something else, stops nothing.
XDG_CACHE_HOME=/proc/nowhere expect 0 "$ration" run -p Once -n 3 --greedy -q --threads 1
mkdir -p cache/ration
for damage in '{' '{"threads": "two"}' '{"threads": 1, "cpu_level": "avx2"}'; do
    printf '%s' "$damage" > cache/ration/rates.json
    expect 0 "$ration" run -p Once -n 3 --greedy -q --threads 1
    equals 'warnings of a damaged file' 1 "$(grep -c 'warning rates: .*rates.json' err)"
    expect 0 "$ration" run -p Once -n 3 --greedy -q --threads 1 # it was made anew
    [ ! -s err ] || fail 'a damaged file is told again'
done
rm -r cache

# ---- measuring
mkdir -p disk cache/ration
cat > cache/ration/rates.json << 'JSON'
{"threads": 3, "cpu_level": "avx2", "flops": 1, "quantized_flops": 1, "memory_bytes_second": 1, "disk_bytes_second": 1,
 "link_bytes_second": 1, "step_ns": 1, "beside_link_percent": 50}
JSON
expect 0 "$ration" calibrate --threads 1 --disk disk --json
check_json "
assert 'beside_link' not in j # what a link costs three threads is not what it costs one
assert j['threads'] == 1 and j['cpu_level'] and j['path'] == '$XDG_CACHE_HOME/ration/rates.json'
for rate in 'flops', 'quantized_flops', 'memory_bytes_second', 'disk_bytes_second', 'step_seconds':
    assert j[rate] > 0, rate
assert j['step_seconds'] < 1 < j['flops']"
mv out measured
equals 'what is left on the disk' '' "$(ls -A disk)"
equals 'what is in the cache folder' rates.json "$(ls -A cache/ration)"
python3 - << 'PYTHON' || fail 'the file is not what was measured'
import json
kept, told = json.load(open('cache/ration/rates.json')), json.load(open('measured'))
assert kept['threads'] == 1 and kept['cpu_level'] == told['cpu_level']
assert abs(kept['flops'] / told['flops'] - 1) < 1e-6 and kept['step_ns'] >= 1
PYTHON

# ---- plans that use it, and plans that may not
expect 0 "$ration" plan mlp --threads 1
says out 'measured on this machine'
expect 0 "$ration" plan mlp --threads 1 --json
check_json "
told = __import__('json').load(open('measured'))
assert j['rates_measured'] and abs(j['plan']['rates']['flops'] / told['flops'] - 1) < 1e-6"
expect 0 "$ration" plan mlp --threads 1 --sweep
says out 'measured on this machine'
cp cache/ration/rates.json kept
expect 0 "$ration" plan mlp --threads 3
says out 'measured for a tenth of a second'
RATION_CPU=portable expect 0 "$ration" plan mlp --threads 1 --json
check_json "
alike = json.load(open('measured'))['cpu_level'] == 'portable'
assert j['rates_source'] == ('calibrated' if alike else 'quick')"
cmp -s kept cache/ration/rates.json || fail 'a short measurement took the place of a calibration'

# ---- devices that were measured before stay, with the rates of the host made anew
python3 - << 'PYTHON'
import json
kept = json.load(open('cache/ration/rates.json'))
kept['flops'] = 1
kept['beside_link_percent'] = 83
kept['devices'] = {'cuda:0': {'hardware': 'A card', 'flops': 5, 'quantized_flops': 6, 'memory_bytes_second': 7,
                              'link_bytes_second': 8, 'step_ns': 9, 'unpack_weights_second': 10, 'unpack_bytes_second': 11,
                              'attend_flops': 12, 'attend_ns': 13, 'run_ns': 14, 'link_share_percent': 95}}
json.dump(kept, open('cache/ration/rates.json', 'w'))
json.dump(kept['devices'], open('devices', 'w'))
PYTHON
expect 0 "$ration" calibrate --threads 1 --disk disk --device cpu --json
check_json "assert 'device' not in j and abs(j['beside_link'] - 0.83) < 1e-9"
python3 - << 'PYTHON' || fail 'the devices did not stay'
import json
kept = json.load(open('cache/ration/rates.json'))
assert kept['devices'] == json.load(open('devices')) and kept['flops'] > 1 and kept['beside_link_percent'] == 83
PYTHON

# ---- what does not work
expect 2 "$ration" calibrate everything
expect 2 "$ration" calibrate --threads some
cp cache/ration/rates.json kept
expect 2 "$ration" calibrate --device abacus
says err abacus
RATION_CUDA_DRIVER=/no/such/driver expect 5 "$ration" calibrate --device cuda
says err 'no CUDA driver'
expect 4 "$ration" calibrate --threads 1 --disk disk --device 'sim:memory=1MiB'
says err sim
cmp -s kept cache/ration/rates.json || fail 'a device that cannot be measured changed the rates'
expect 3 "$ration" calibrate --threads 1 --disk no/such/folder
says err no/such/folder
[ ! -e no ] || fail 'a folder to measure was made'
cmp -s kept cache/ration/rates.json || fail 'a failure changed the rates'
echo '{}' > cache/ration/rates.json
expect 0 "$ration" plan mlp
says err 'is missing' 'ration calibrate makes the file anew'
unset XDG_CACHE_HOME
HOME= expect 3 "$ration" calibrate
says err 'there is no cache folder' XDG_CACHE_HOME

# ---- stopped: at once, in the middle, or too late
export XDG_CACHE_HOME=$scratch/other
for delay in 0.01 0.1 0.5; do
    "$ration" calibrate --threads 1 --disk disk > out 2> err &
    measuring=$!
    sleep $delay
    kill -INT $measuring
    wait $measuring
    code=$?
    case $code in
        0 | 130) ;;
        6) says err 'calibration was stopped' ;;
        *) fail "exit code $code after SIGINT" ;;
    esac
    equals 'what is left on the disk' '' "$(ls -A disk)"
done
