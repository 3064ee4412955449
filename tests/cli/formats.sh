#!/usr/bin/env bash
# formats.sh — each case of the collections of good and hostile files gets its verdict as an exit code: 0 or 3.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

[ -r "$data/formats/safetensors_cases/cases.json" ] && [ -r "$data/formats/gguf_cases/cases.json" ] ||
    { echo 'skipped: no test data: formats/'; exit 77; }

mkdir json
check() { # FOLDER FIELD
    local folder=$data/formats/$1 accepted=0 rejected=0 verdict file code
    while IFS=$'\t' read -r verdict file; do
        case $verdict in
        accept) code=0 accepted=$((accepted + 1)) ;;
        reject) code=3 rejected=$((rejected + 1)) ;;
        *) fail "$file: verdict $verdict" ;;
        esac
        expect $code "$ration" inspect "$folder/$file"
        [ $code = 0 ] || says err "$file"
        expect $code "$ration" inspect "$folder/$file" --json --metadata
        cp out "json/$1.$file"
    done < <(python3 -c "
import json
for c in json.load(open('$folder/cases.json'))['cases']: print(c['$2'], c['file'], sep='\t')")
    echo "$1: $accepted accepted, $rejected rejected"
    [ $accepted -gt 0 ] && [ $rejected -gt 0 ] || fail "no cases in $1"
}

check safetensors_cases strict
check gguf_cases expect

python3 -c "
import json, os
for name in os.listdir('json'): json.load(open('json/' + name))" || fail 'not JSON'
