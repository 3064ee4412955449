#!/usr/bin/env bash
# labels: release
# abi.sh — functions, structs and enums of the library are those that tests/abi lists; a list that says otherwise is noticed.
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
library=$(dirname "$ration")/../lib/libration.so
[ -e "$library" ] || { echo 'the shared library is not built'; exit 77; }
for tool in nm readelf cc; do command -v $tool > /dev/null || { echo "no $tool"; exit 77; }; done

expect 0 "$source/scripts/check/abi" "$library"

# A copy in which a struct is larger and a function is missing.
mkdir -p copy/scripts/check copy/tests
cp "$source/scripts/check/abi" copy/scripts/check
cp -r "$source/include" copy
cp -r "$source/tests/abi" copy/tests
sed -i 's/    const char \*tokenizer_path;/    int added; &/' copy/include/ration/model.h
echo rn_not_there >> copy/tests/abi/symbols.txt
expect 1 copy/scripts/check/abi "$library"
says out 'rn_model_options'
says out 'rn_not_there'
