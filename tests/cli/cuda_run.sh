#!/usr/bin/env bash
# labels: gpu
# The story teller on the first GPU: the same words at every budget, all of it within the budget, as planned.
set -euo pipefail
ration=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

refused=$("$ration" run --device cuda -p Once -n 1 -q 2>&1) || {
    case $refused in
    *"no CUDA driver"* | *"built without CUDA kernels"* | *"there is no cuda:0"* | *"no CUDA-capable"*)
        echo "skipped: $refused" | head -1
        exit 77
        ;;
    esac
    echo "$refused"
    exit 1
}

tell() { "$ration" run --device cuda -p Once -n 60 --greedy --exact "$@"; }
field() { python3 -c 'import json,sys
d = json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."): d = d[key]
print(d)' "$1" "$2"; }

tell -q > "$work/roomy"
for budget in +5MiB +4MiB +3MiB +2MiB +1500KiB 700MiB; do
    tell --budget "$budget" --json > "$work/json"
    field "$work/json" text > "$work/text"
    printf 'Once%s\n' "$(cat "$work/text")" | cmp - "$work/roomy"
    planned=$(field "$work/json" plan.planned_bytes) peak=$(field "$work/json" facts.device_planned_peak_bytes)
    [ "$planned" = "$peak" ] || { echo "$budget: $planned bytes planned, $peak at the peak"; exit 1; }
done
total=$(field "$work/json" facts.device_peak_bytes)
[ "$total" -le $((700 << 20)) ] || { echo "$total bytes on the device, the budget is 700 MiB"; exit 1; }

# Below what works: a refusal with the number, and that number works.
got=0
tell --budget +200KiB > "$work/out" 2> "$work/err" || got=$?
[ $got = 4 ] || { echo "exit code $got, not 4"; cat "$work/err"; exit 1; }
least=$(sed -n 's/.*smallest budget that works is.*(\([0-9]*\) bytes).*/\1/p' "$work/err" | head -1)
tell --budget "+$least" -q | cmp - "$work/roomy"

# A GPU that is not there; a budget of another device.
got=0
"$ration" run --device cuda:99 -p Once -n 1 2> "$work/err" || got=$?
[ $got != 0 ] || { echo 'cuda:99 was taken'; exit 1; }
grep -q 'there is no cuda:99' "$work/err"
got=0
tell --budget cuda:7=1GiB 2> "$work/err" || got=$?
[ $got = 2 ] || { echo "exit code $got"; cat "$work/err"; exit 1; }

# A recording shows both queues.
tell -q --budget +2MiB --profile="$work/trace" > "$work/text" 2> /dev/null
cmp "$work/text" "$work/roomy"
"$ration" profile report "$work/trace" | grep -q 'cuda:0'
echo ok
