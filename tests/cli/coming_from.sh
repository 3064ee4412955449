#!/usr/bin/env bash
# coming_from.sh — docs/coming-from.md says the truth: every command and option of it is run here, every function is in
# the library, every Python name can be imported, and the tests of the last column are tests that run and use what the
# row names.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
programs=$(dirname "$ration")
doc=$root/docs/coming-from.md
export PYTHONDONTWRITEBYTECODE=1
# For neuron: a plugin that stands for Neuron's.
export NEURON_LIBRARY_PATH=$programs/../lib/fake_pjrt.so

# ---- the table: what it names, one kind a file ---------------------------------------------------
python3 - "$doc" "$root" "$programs" << 'PYTHON' > out 2> err || fail 'docs/coming-from.md'
import glob, os, re, subprocess, sys

doc, root, programs = sys.argv[1:]
# What stands for something, and what it stands for here.
STAND_INS = {'MODEL': f'{root}/models/default', 'FILE': 'run.rntrace', 'OUT.html': 'out.html', 'OUT': 'converted.safetensors',
             'PATTERN': '*norm*', 'SIZE': '1MiB', 'LIST': 'sim,cpu', 'N': '2', 'SECONDS': '1', 'FOLDER': 'programs', '…': 'Once'}
# What the table gives no value for.
VALUES = {'--budget': '400MiB', '--tokens': '4', '--temperature': '0.5', '--top-p': '0.9', '--top-k': '20',
          '--repetition-penalty': '1.1', '--stop': 'xyz', '--device': 'sim,cpu', '--chunk': '8'}

headers = ''.join(open(f).read() for f in glob.glob(f'{root}/include/ration/*.h') + glob.glob(f'{root}/src/profile/*.h'))
scripts = ''.join(open(f).read() for f in glob.glob(f'{root}/tests/cli/*.sh'))
wrong, rows, lists = [], 0, {'commands': {}, 'functions': {}, 'python': {}}


def is_run(test):
    """Whether this file is part of a test that CTest knows."""
    folder, name = os.path.split(test)
    if folder == 'tests/cli':
        return name.endswith('.sh')
    if name.endswith('_test.c'):
        layer = os.path.basename(folder)
        for program in (f'test_{layer}', f'test_{layer}_{name[:-7]}'):
            path = os.path.join(programs, program)
            if os.path.exists(path):
                told = subprocess.run([path], capture_output=True, text=True).stderr
                if name[:-7] in told.split():
                    return True
        return False
    return name in scripts or f'test_$name.py' in scripts and re.search(rf'\b{name[5:-3]}\b', scripts)


def fill(words):
    """The words of a command line with something for each placeholder."""
    filled = []
    for i, word in enumerate(words):
        filled.append(STAND_INS.get(word, word))
        last = i + 1 == len(words) or words[i + 1].startswith('-')
        if last and word in VALUES:
            filled.append(VALUES[word])
    return filled


for line in open(doc):
    cells = [c.strip() for c in line.strip().strip('|').split(' | ')]
    if not line.startswith('| `') and not (line.startswith('| ') and len(cells) == 3) or cells[0] == 'theirs':
        continue
    if len(cells) != 3:
        wrong.append(f'not three columns: {line!r}')
        continue
    theirs, ours, test = cells
    rows += 1
    if test == 'later':
        if '*later*' not in ours:
            wrong.append(f'{theirs}: no test, and not marked as later')
        continue
    tests = test.split(', ')
    missing = [name for name in tests if not os.path.exists(f'{root}/{name}') or not is_run(name)]
    if missing:
        wrong.append(f'{theirs}: no test {missing}')
        continue
    codes = re.findall(r'`([^`]*)`', ours)
    words = [w for code in codes for w in re.findall(r'[\w-]+', code)]
    text = ''.join(open(f'{root}/{name}').read() for name in tests)
    # Functions all, else options all; of other words (FILE, MODEL, ...) one.
    own = [w for w in words if w.lower().startswith('rn_')] or [w for w in words if w.startswith('--')]
    unused = [w for w in own if not re.search(rf'(?<![\w-]){re.escape(w)}(?![\w-])', text)]
    if unused or not any(w in text for w in own or words if len(w) > 3):
        wrong.append(f'{theirs}: {test} does not use {unused or words}')
    for word in words:
        if word.lower().startswith('rn_') and not re.search(rf'\b{word}\b', headers):
            wrong.append(f'{theirs}: there is no {word}')
        # Enumerations and types are the headers' alone.
        if word.startswith('rn_') and re.search(rf'\b{word}\(', headers):
            lists['functions'][word] = 1
    if any(name.startswith('tests/python/test_compat') for name in tests):
        lists['python'].update(dict.fromkeys(w for w in words if '_' in w))
    for code in codes:
        expected = re.search(r'exit code (\d)', ours)
        if code.startswith('ration '):
            lists['commands'][' '.join([expected[1] if expected else '0'] + fill(code.split()[1:]))] = 1
        elif code.startswith('--'):
            lists['commands'][' '.join(['0', 'run', '-p', 'Once', '-n', '2'] + fill(code.split()))] = 1
for name, found in lists.items():
    with open(name, 'w') as file:
        file.write(''.join(f'{item}\n' for item in found))
print(rows, 'rows;', ', '.join(f'{len(found)} {name}' for name, found in lists.items()))
for w in wrong:
    print(w)
sys.exit(1 if wrong or rows < 40 or not all(lists.values()) else 0)
PYTHON
cat out

# ---- all of it -----------------------------------------------------------------------------------
expect 0 "$ration" run -p 'Once' -n 8 --profile=run.rntrace
set -f # a pattern is one for the program
while read -r code command; do
    read -ra words <<< "$command"
    case $command in
        serve*) start_server "${words[@]:1}" && ask 200 /generate '{"prompt": "Once", "max_tokens": 2}' && stop_server ;;
        *) expect "$code" "$ration" "${words[@]}" ;;
    esac
done < commands
set +f
[ -s out.html ] && [ -s converted.safetensors ] || fail 'a command left no file'

nm -D --defined-only "$programs/../lib/libration.so" | awk '{ print $3 }' | sort -u > exported
sort functions | comm -23 - exported > err
[ -s err ] && fail 'functions that the library has not'

library=$root/build/release/lib/libration.so
if [ -e "$library" ]; then
    RATION_LIBRARY=$library PYTHONPATH=$root/python expect 0 python3 -c "import ration.profiler as ours, sys
names = open('python').read().split()
tracker = ours.MemoryTracker if hasattr(ours, 'MemoryTracker') else type(ours.get_memory_tracker())
sys.exit(', '.join(n for n in names if not hasattr(ours, n) and not hasattr(tracker, n)) or 0)"
else
    leave_out 'no libration.so without sanitizers (make build)'
fi
