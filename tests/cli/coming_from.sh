#!/usr/bin/env bash
# coming_from.sh — docs/coming-from.md says the truth: what it names exists, and tests use it. Options that no other test
# gives together are given here.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

expect 0 "$ration" run -p 'Once' --tokens 4 --temperature 0.5 --top-p 0.9 --top-k 20 --repetition-penalty 1.1 --stop 'xyz' -q

cd "$root"
python3 - << 'PYTHON' || fail 'docs/coming-from.md'
import glob, os, re, sys

headers = ''.join(open(f).read() for f in glob.glob('include/ration/*.h') + glob.glob('src/profile/*.h'))
wrong = []
rows = 0
for line in open('docs/coming-from.md'):
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
    missing = [name for name in tests if not os.path.exists(name)]
    if missing:
        wrong.append(f'{theirs}: there is no {missing}')
        continue
    words = [w for code in re.findall(r'`([^`]*)`', ours) for w in re.findall(r'[\w-]+', code)]
    for word in words:
        if word.lower().startswith('rn_') and not re.search(rf'\b{word}\b', headers):
            wrong.append(f'{theirs}: there is no {word}')
    text = ''.join(open(name).read() for name in tests)
    # Functions all, else options all; of other words (FILE, MODEL, ...) one.
    own = [w for w in words if w.lower().startswith('rn_')] or [w for w in words if w.startswith('--')]
    unused = [w for w in own if not re.search(rf'(?<![\w-]){re.escape(w)}(?![\w-])', text)]
    if unused or not any(w in text for w in own or words if len(w) > 3):
        wrong.append(f'{theirs}: {test} does not use {unused or words}')
print(f'{rows} rows')
for w in wrong:
    print(w)
sys.exit(1 if wrong or rows < 40 else 0)
PYTHON
