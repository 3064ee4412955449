#!/usr/bin/env bash
# What make install leaves: a program, headers and a library that others compile and link against with pkg-config.
set -eu
command -v pkg-config > /dev/null || { echo 'skipped: no pkg-config'; exit 77; }
build=$(dirname "$(dirname "$1")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/usr" > /dev/null
export PKG_CONFIG_PATH=$folder/usr/lib/pkgconfig
cat > "$folder/user.c" << 'C'
#include <ration/ration.h>
#include <stdio.h>
int main(void) {
    rn_checkpoint *model;
    rn_status s = rn_checkpoint_open("/no/such/file", &model);
    printf("%s %s\n", rn_version(), rn_status_name(s));
    return 0;
}
C
sanitize=$(sed -n 's/^RATION_SANITIZE:STRING=//p' "$build/CMakeCache.txt")
# shellcheck disable=SC2046
cc ${sanitize:+-fsanitize=$sanitize} "$folder/user.c" $(pkg-config --cflags --libs ration) -o "$folder/user"
said=$(LD_LIBRARY_PATH=$folder/usr/lib "$folder/user")
version=$(pkg-config --modversion ration)
[ "$said" = "$version RN_NOT_FOUND" ] || { echo "it said '$said'"; exit 1; }
"$folder/usr/bin/ration" --version | grep -q "$version" || { echo 'the program says another version'; exit 1; }
