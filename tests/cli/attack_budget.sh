#!/usr/bin/env bash
# labels: release
# attack_budget.sh — files and texts that are small on disk and large in memory are refused within the budget: by the peak
# of resident memory, and in a cgroup that would kill the program if it took more.
attack=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../attack")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

hostile() { python3 "$attack/hostile.py" "$@" || fail "hostile.py $*"; }
hostile tensors tensors.safetensors 200000 # 12 MB
hostile scattered scattered.safetensors 60000
hostile pairs pairs.gguf 400000
hostile gguf tensors.gguf 200000
hostile template strings.jinja 220
hostile replace replace.json 6000 # 5,000 letters become 30 MB
hostile vocabulary vocabulary.json 300000
hostile added added.json 100000
hostile word letters.txt 5000
hostile word word.txt 1000000
hostile text text.txt 8000000

# refused MIB ARGUMENTS...: exit code 4, and no more resident than the budget. In a sanitizer build the process alone is
# larger than that: there the ledger's limit is what is seen to hold.
runner=()
refused() {
    local mib=$1 peak
    shift
    expect 4 "${runner[@]+"${runner[@]}"}" /usr/bin/time -f %M -o peak "$ration" "$@" --budget "${mib}MiB" < "${input:-/dev/null}"
    says err 'does not fit'
    is_sanitized && return
    peak=$(($(tail -1 peak) >> 10))
    echo "$* within $mib MiB: $peak MiB resident"
    [ "$peak" -lt "$mib" ] || fail "$*: $peak MiB resident of $mib"
}

attack_all() {
    # ---- headers
    refused 16 plan tensors.safetensors
    refused 32 plan tensors.safetensors
    refused 16 run tensors.safetensors -p x
    refused 16 convert tensors.safetensors out.gguf --to f16
    refused 32 convert tensors.safetensors out.gguf --to f16 --json
    refused 20 plan scattered.safetensors
    refused 16 plan pairs.gguf
    refused 16 run pairs.gguf -p x
    refused 32 convert pairs.gguf out.gguf
    refused 16 plan tensors.gguf
    refused 32 run tensors.gguf -p x
    # ---- tokenizers
    refused 20 run --tokenizer vocabulary.json -p x
    refused 20 run --tokenizer added.json -p x
    refused 20 run --tokenizer replace.json -f letters.txt
    # ---- texts
    refused 20 run -f word.txt
    refused 20 run -f text.txt
    input=text.txt refused 20 run -f -
    input=word.txt refused 20 run --chat -q --template "$attack/plain.jinja"
    refused 20 run --chat -q -p hi --template strings.jinja
}
attack_all
[ -e out.gguf ] && fail 'a refused conversion left a file'

# A refusal in the midst of it does not claim to know what would be enough.
expect 4 "$ration" plan tensors.safetensors --budget 16MiB --json
check_json "r = j['error']['refusal']
assert r['at_least'] and r['smallest_budget_bytes'] > 16 << 20 and r['budget_bytes'] == 16 << 20, r"
expect 4 "$ration" plan tensors.safetensors --budget 16MiB
says err 'at least' 'ration plan MODEL'

is_sanitized && { echo 'a sanitizer build: nothing about resident memory'; exit 0; }
# The same budget is enough for what is ordinary.
expect 0 "$ration" run -q -p Once -n 4 --budget 20MiB

# ---- a cgroup with the budget as its limit
make_group $((32 << 20)) || { echo 'no memory cgroup can be made'; exit 0; }
runner=(in_group)
attack_all
echo 'inside a cgroup of 32 MiB: done'
