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

# Man pages, completions and the licence come along; a project finds the library by find_package.
share=$folder/usr/share
for page in ration ration-run ration-serve ration-pull; do
    [ -s "$share/man/man1/$page.1" ] || { echo "no man page $page"; exit 1; }
done
grep -q 'max.-gap' "$share/man/man1/ration-serve.1" || { echo 'a man page without its options'; exit 1; }
head -1 "$share/man/man1/ration-run.1" | grep -q 'RATION\\-RUN' || { echo 'a man page without its heading'; exit 1; }
[ "$(sed -n '/^\.SH OPTIONS/,$ { /^\.B/ { p; q } }' "$share/man/man1/ration-run.1" | grep -c prompt)" = 1 ] ||
    { echo 'a man page begins with options that few look for'; exit 1; }
if command -v man > /dev/null; then
    MANROFFSEQ='' man -l --warnings "$share/man/man1/ration-run.1" > "$folder/page" 2> "$folder/complaints" || true
    [ ! -s "$folder/complaints" ] || { cat "$folder/complaints"; exit 1; }
fi
bash -c 'source "$1" && COMP_LINE="ration serve --max-g" COMP_POINT=20 COMP_WORDS=(ration serve --max-g) COMP_CWORD=2 && _ration && [ "${COMPREPLY[*]}" = --max-gap ]' - \
    "$share/bash-completion/completions/ration" || { echo 'bash completes nothing'; exit 1; }
[ -s "$share/doc/ration/LICENSE" ] || { echo 'no licence'; exit 1; }
mkdir "$folder/project"
cat > "$folder/project/CMakeLists.txt" << 'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(ration 0.1 REQUIRED)
add_executable(user ../user.c)
target_link_libraries(user PRIVATE ration::ration)
CMAKE
cmake -S "$folder/project" -B "$folder/project/build" -DCMAKE_PREFIX_PATH="$folder/usr" \
    ${sanitize:+-DCMAKE_C_FLAGS=-fsanitize=$sanitize} > /dev/null && cmake --build "$folder/project/build" > /dev/null ||
    { echo 'find_package(ration) does not work'; exit 1; }
[ "$("$folder/project/build/user")" = "$version RN_NOT_FOUND" ] || { echo 'the program of find_package says something else'; exit 1; }
