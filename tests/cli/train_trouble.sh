#!/usr/bin/env bash
# labels: release
# train_trouble.sh — a training in trouble: the disk is full before it begins and while it saves, the device has no room or
# fails, the file of settings is wrong. What was saved stays whole, and the numbers stay the same.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"Zog the dragon ate cake number $i. Zog laughed.\"}"; done > data.jsonl
flags=(--data data.jsonl --length 32 --batch-size 4 --rate 0.05 --rank 64 --schedule constant --steps 4 --unpacked -q)
expect 0 "$ration" train "${flags[@]}" --out through
bytes=$(stat -c %s through/checkpoint-4.safetensors)

# ---- a disk that is too small is told before the first step; one that fills up meanwhile keeps what it has
if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=$((bytes * 3 / 2)) tmpfs small 2> /dev/null; then
    cleanups+=("umount -l '$scratch/small'")
    expect 3 "$ration" train "${flags[@]}" --out small/run
    says err 'the disk has' 'checkpoints take up to' '--keep-checkpoints'
    [ ! -e small/run/log.jsonl ] || fail 'it began'
else
    leave_out 'a small disk: no right to mount one'
fi
expect 0 "$ration" train "${flags[@]}" --out filling --steps 2
cp filling/checkpoint-2.safetensors before
(ulimit -f $((bytes / 2048)) && trap '' XFSZ && exec "$ration" train "${flags[@]}" --out filling --resume) > out 2> err
[ $? = 3 ] || fail "a full disk while saving: $(cat err)"
says err 'checkpoint-4'
cmp filling/checkpoint-2.safetensors before || fail 'the checkpoint before is not whole'
[ -z "$(find filling -name 'checkpoint-4*')" ] || fail "half a checkpoint: $(ls filling)"
expect 0 "$ration" train "${flags[@]}" --out filling --resume
cmp filling/adapter_model.safetensors through/adapter_model.safetensors || fail 'it does not go on after that'

# ---- a device without room: a smaller plan, the same numbers; none that fits: the smallest is named
device() { echo "sim:memory=64MiB;fail_alloc=1;fail_allocs=$1"; }
expect 0 "$ration" train "${flags[@]}" --exact --out roomy -j --device 'sim:memory=64MiB'
cp out roomy.json
expect 0 "$ration" train "${flags[@]}" --exact --out shrunk -j --device "$(device 2)"
says err 'refused memory, try 2'
check_json "
step = lambda d: next(p for p in d['phases'] if p['name'] == 'step')
a, b = step(json.load(open('roomy.json'))), step(j)
assert b['planned_bytes'] < a['planned_bytes'] and b['plan'] == b['fact'], (a, b)"
cmp roomy/adapter_model.safetensors shrunk/adapter_model.safetensors || fail 'a smaller plan changes the bits'
expect 4 "$ration" train "${flags[@]}" --out none --device "$(device 9)"
says err 'no room in 3 tries' 'the smallest plan takes'
expect 0 "$ration" train "${flags[@]}" --out next -j --device "$(device 9),cpu"
check_json "assert j['device'] == 'cpu', j['device']"

# ---- settings
printf '[train]\ndata = "data.jsonl"\nout = "y"\nlenght = 32\n' > config.toml
expect 2 "$ration" train config.toml
says err 'lenght'
printf '[train]\ndata = "data.jsonl"\nout = "y"\nmethod = "lorra"\n' > config.toml
expect 2 "$ration" plan config.toml
says err 'lorra'
