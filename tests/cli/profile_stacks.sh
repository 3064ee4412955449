#!/usr/bin/env bash
# labels: release-only
# profile_stacks.sh — who asked for memory: call stacks of C and Python in the report, its JSON and the page.
. "$(dirname "${BASH_SOURCE[0]}")/../python/library.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
[ -e "$(dirname "$ration")/../lib/libration_preload.so" ] || { echo 'skipped: no libration_preload.so'; exit 77; }

# ---- C: functions that no dynamic symbol names
cat > who.c << 'C'
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline, noclone))
static void *APART take(size_t bytes) { void *volatile block = malloc(bytes); memset(block, 1, bytes); return block; }
static void *APART load_weights(void) { void *volatile block = take(8 << 20); return block; }
static void *APART make_cache(void) { void *volatile block = take(3 << 20); return block; }
int main(void) {
    void *a = load_weights(), *b = make_cache();
    for (int i = 0; i < 50; i++) free(take(100000));
    free(a);
    free(b);
    return 0;
}
C
cc -O1 -o who who.c || fail 'who.c does not compile'
expect 0 "$ration" profile run -o who.rntrace -- ./who
expect 0 "$ration" profile report who.rntrace
says out 'asked for by' 'main (who)' 'load_weights (who)' 'make_cache (who)'
expect 0 "$ration" profile report who.rntrace --json
python3 - << 'PYTHON' || fail 'call stacks of C'
import json
cpu, = [d for d in json.load(open('out'))['devices'] if d['device'] == 'cpu']
stacks = cpu['moment']['call_stacks']
assert stacks[0]['bytes'] == 8 << 20 and stacks[1]['bytes'] == 3 << 20, stacks
assert stacks[0]['site'] == 'take (who)' and stacks[0]['stack'][-3:] == ['main (who)', 'load_weights (who)', 'take (who)'], stacks[0]
assert stacks[1]['stack'][-2] == 'make_cache (who)', stacks[1]
assert sum(s['bytes'] for s in stacks) == cpu['moment']['active_bytes'], cpu['moment']
PYTHON
expect 0 "$ration" profile html who.rntrace -o who.html
says who.html 'alloc.site' 'load_weights (who)'
expect 0 "$ration" profile run --stacks=false -o plain.rntrace -- ./who
expect 0 "$ration" profile report plain.rntrace
! grep -q 'asked for by' out || fail 'stacks that nobody wanted'
# A library cut short of its symbols still has a name and an offset.
cp who bare && strip bare
expect 0 "$ration" profile run -o bare.rntrace -- ./bare
expect 0 "$ration" profile report bare.rntrace
says out '(bare)'

# ---- Python: its frames first, then what the innermost one called; an exception under way stays
cat > outer.py << 'PYTHON'
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def ask(bytes):
    return libc.malloc(ctypes.c_size_t(bytes))
def build():
    return ask(5 << 20)
try:
    1 / 0
except ZeroDivisionError as error:
    build()
    assert 'division' in str(error)
PYTHON
expect 0 "$ration" profile run -o python.rntrace -- python3 outer.py
expect 0 "$ration" profile report python.rntrace --json
python3 - << 'PYTHON' || fail 'call stacks of Python'
import json, re
text = re.sub(r'\(ration-cli-[^/]*/', '(', open('out').read()) # a file has its folder's name before it
cpu, = [d for d in json.loads(text)['devices'] if d['device'] == 'cpu']
asked, = [s for s in cpu['moment']['call_stacks'] if s['bytes'] == 5 << 20]
assert asked['site'] == 'ask (outer.py:5)', asked
assert asked['stack'][:3] == ['<module> (outer.py:11)', 'build (outer.py:7)', 'ask (outer.py:5)'], asked
PYTHON

# ---- the Python package, where there is torch
if ! "$python" -c 'import torch' 2> /dev/null; then
    leave_out 'no torch'
    exit 0
fi
export RATION_LIBRARY=$library PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1
cat > package.py << 'PYTHON'
import torch
from ration.profiler import initialize_memory_tracker, stop_memory_tracker
initialize_memory_tracker(output_dir='profiles')
def activations():
    return torch.ones(1 << 20)
kept = activations()
stop_memory_tracker()
PYTHON
expect 0 "$python" package.py
unset RATION_LIBRARY PYTHONPATH
expect 0 "$ration" profile report profiles/*.rntrace
says out 'package.py:5)' 'activations (' 'alloc_cpu'
