# common.bash — what the shell tests share: a scratch folder, a clean environment, checks that say what failed.
# A test is called with the path of the program; $EXAMPLES is the folder of the example programs.
set -u
ration=$(realpath "$1")
examples=$(realpath "${EXAMPLES:-$(dirname "$ration")/../examples}")
data=$(realpath -m "${RATION_DATA:-../shared/data}")
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ration-cli-XXXXXX")
cd "$scratch" || exit 1

cleanups=() left_out=
clean_up() {
    local code=$?
    cd / || true
    for command in "${cleanups[@]+"${cleanups[@]}"}"; do eval "$command"; done
    rm -rf "$scratch"
    [ $code != 0 ] || [ -z "$left_out" ] || { echo "skipped: a part of it: $left_out"; exit 77; }
}
trap clean_up EXIT

# leave_out WHY: a part of the test cannot be done here. The rest is; if it is as it should be, the test counts as skipped.
leave_out() {
    left_out=${left_out:+$left_out; }$*
}

exec < /dev/null # what is piped in would be a prompt

# Nobody's settings but the test's own.
for name in $(compgen -e | grep '^RATION_'); do unset "$name"; done
export RATION_RATES=guessed # the same plans everywhere; tests of rates say otherwise
unset XDG_CONFIG_HOME
export HOME=$scratch/home
mkdir "$HOME"

fail() {
    echo "FAILED: $*" >&2
    for file in out err; do
        [ -s "$scratch/$file" ] && sed "s/^/  $file: /" "$scratch/$file" | head -40 >&2
    done
    exit 1
}

# expect CODE COMMAND...: the command ends with that code. What it prints is in ./out and ./err.
expect() {
    local code=$1 got=0
    shift
    "$@" > "$scratch/out" 2> "$scratch/err" || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $*"
}

# says FILE TEXT...: each text is in the file.
says() {
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qF -- "$text" "$file" || fail "'$text' is not in $file"
    done
}

# equals WHAT EXPECTED GOT
equals() {
    [ "$2" = "$3" ] || fail "$1: '$3' instead of '$2'"
}

# wait_for PID COMMAND...: until it succeeds, however long that takes here (CTest ends what waits for ever); the process
# must be alive.
wait_for() {
    local pid=$1
    shift
    until "$@"; do
        kill -0 "$pid" 2> /dev/null || fail "process $pid has ended: $*"
        sleep 0.05
    done
}

# catches PID SIGNAL: the process is the program, and has a handler for the signal, which would just end it before.
catches() {
    local caught
    [ "$(readlink "/proc/$1/exe")" = "$ration" ] || return 1
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status")
    [ $((0x${caught:-0} >> ($(kill -l "$2") - 1) & 1)) = 1 ]
}

# only FILE...: the current folder holds these files, and nothing else that is not hidden, out, err or home.
only() {
    local expected got
    expected=$(printf '%s\n' "$@" | sort)
    got=$(find . -mindepth 1 -maxdepth 1 ! -name '.*' ! -name out ! -name err ! -name home -printf '%f\n' | sort)
    equals 'files in the folder' "$expected" "$got"
}

# check_json CODE: runs Python with the JSON of ./out in `j`.
check_json() {
    python3 -c "import json, sys
try: j = json.load(open('out'))
except ValueError as error: sys.exit('not JSON: %s' % error)
$1" 2> python_error || fail "$(tail -1 python_error) in: $1"
    rm -f python_error
}

# make_group BYTES: a memory cgroup with this limit, for in_group; removed at the end. False where none can be made.
make_group() {
    local root name limit=
    group=
    [ "$(id -u)" = 0 ] || return 1
    for root in /sys/fs/cgroup/memory /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ -d $root ] && mkdir "$root/ration-test-$$" 2> /dev/null || continue
        for name in memory.limit_in_bytes memory.max; do
            [ -e "$root/ration-test-$$/$name" ] && group=$root/ration-test-$$ limit=$name
        done
        [ -n "$group" ] && break
        rmdir "$root/ration-test-$$"
    done
    [ -n "$group" ] || return 1
    cleanups+=("rmdir '$group'")
    echo "$1" > "$group/$limit"
}

# in_group COMMAND...: runs it in the cgroup of make_group.
in_group() {
    bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@"
}

is_sanitized() {
    grep -qE '__(asan|tsan|ubsan)_' "$ration"
}

# make_tensors FILE: a safetensors file of a few small tensors, some of them with awkward names.
make_tensors() {
    python3 - "$1" << 'PYTHON'
import json, random, struct, sys
random.seed(1)
tensors = [("model.embed_tokens.weight", "BF16", [64, 96])]
for layer in (0, 1, 2, 10):
    tensors += [(f"model.layers.{layer}.attn.weight", "F32", [64, 128]),
                (f"model.layers.{layer}.mlp.weight", "F16", [33, 256]),
                (f"model.layers.{layer}.norm.weight", "F32", [96])]
tensors += [("ids", "I64", [4]), ("red\x1b[31m\u009b alert", "F32", [2]), ("empty", "F32", [0, 3])]
header, data = {"__metadata__": {"format": "pt", "note": "tab\there"}}, b""
for name, dtype, shape in tensors:
    count = 1
    for d in shape: count *= d
    raw = b"".join({"F32": lambda v: struct.pack("<f", v), "F16": lambda v: struct.pack("<e", v),
                    "BF16": lambda v: struct.pack("<f", v)[2:], "I64": lambda v: struct.pack("<q", int(v * 99))}
                   [dtype](random.gauss(0, 0.05)) for _ in range(count))
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
PYTHON
}
