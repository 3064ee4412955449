#!/usr/bin/env bash
# packaging/: what the entry script runs, and that unit and manifest say what they must (kubernetes.sh has the schemas).
packaging=$(realpath "$(dirname "$0")/../../packaging")
source "$(dirname "$0")/common.bash"
unset HOST PORT MODEL_NAME

# ---- the entry script ------------------------------------------------------------------

sh -n "$packaging/entry" || fail 'entry is no shell script'
bash -n "$packaging/build-image" || fail 'build-image is no shell script'

mkdir bin cgroup parts
cat > bin/ration << 'END'
#!/bin/sh
echo "$@ | host=${RATION_HOST-} budget=${RATION_BUDGET-} flavour=${FLAVOUR-}"
END
chmod +x bin/ration

# enters EXPECTED [NAME=VALUE...] -- ARGUMENTS...
enters() {
    local expected=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1") && shift; done
    shift
    expect 0 env PATH="$scratch/bin:$PATH" CGROUP_ROOT="$scratch/cgroup" ENTRY_PARTS="$scratch/parts" \
        "${settings[@]+"${settings[@]}"}" "$packaging/entry" "$@"
    equals "entry $*" "$expected" "$(cat out)"
}

outside='host=0.0.0.0 budget= flavour='
enters "serve | $outside" --
enters "serve --port 9000 | $outside" -- --port 9000
enters "serve /models/a.gguf --ctx 512 | $outside" -- /models/a.gguf --ctx 512
enters "serve a.gguf | $outside" -- a.gguf
enters "serve --port 1 | $outside" -- serve --port 1
enters 'plan a.gguf | host= budget= flavour=' -- plan a.gguf
enters 'serve | host=127.0.0.1 budget= flavour=' HOST=127.0.0.1 --
enters 'serve | host=::1 budget= flavour=' HOST=127.0.0.1 RATION_HOST=::1 --

echo max > cgroup/memory.max
enters "serve | $outside" --
echo 1073741824 > cgroup/memory.max
enters 'serve | host=0.0.0.0 budget=host=1073741824 flavour=' --
enters 'serve | host=0.0.0.0 budget=512MiB flavour=' RATION_BUDGET=512MiB --
enters 'run -p hello | host= budget= flavour=' -- run -p hello
rm cgroup/memory.max && mkdir cgroup/memory
echo 9223372036854771712 > cgroup/memory/memory.limit_in_bytes
enters "serve | $outside" --
echo 268435456 > cgroup/memory/memory.limit_in_bytes
enters 'serve | host=0.0.0.0 budget=host=268435456 flavour=' --
echo 'export FLAVOUR=cuda' > parts/cuda.sh
enters 'serve | host=0.0.0.0 budget=host=268435456 flavour=cuda' --

# ---- flags that the manifests use are flags of the program -----------------------------

expect 0 "$ration" serve --help
cp out help
for flag in $(grep -ohE -- '--[a-z-]+' "$packaging/systemd/ration.service" <(grep args: "$packaging/kubernetes/serve/ration.yaml") | sort -u); do
    says help "$flag"
done

# ---- systemd ---------------------------------------------------------------------------

unit=$packaging/systemd/ration.service
says "$unit" 'MemoryMax=' '--budget 100%%' 'DynamicUser=yes' 'TimeoutStopSec=45' 'TMPDIR=%S'
if command -v systemd-analyze > /dev/null; then
    sed "s,/usr/local/bin/ration,$ration," "$unit" > ration.service
    expect 0 systemd-analyze verify --man=no ./ration.service
    [ ! -s err ] || ! grep -q 'ration.service' err || fail 'systemd-analyze has something to say'
else
    echo 'not checked: no systemd-analyze here'
fi

# ---- Kubernetes ------------------------------------------------------------------------

yaml=$packaging/kubernetes/serve/ration.yaml
equals 'places where memory is said' 1 "$(grep -c '^ *memory:' "$yaml")"
says "$yaml" 'resource: limits.memory' 'enableServiceLinks: false' 'path: /health/ready' 'path: /health/live' \
    'readOnlyRootFilesystem: true' 'prometheus.io/scrape'
grace=$(sed -n 's/.*terminationGracePeriodSeconds: *//p' "$yaml")
drain=$(sed -n 's/.*--drain, "\([0-9]*\)".*/\1/p' "$yaml")
pause=$(sed -n 's/.*\[sleep, "\([0-9]*\)"\].*/\1/p' "$yaml")
[ "$grace" -gt $((drain + pause)) ] || fail "$grace seconds to end, but $pause + $drain are needed"
