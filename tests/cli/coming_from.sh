#!/usr/bin/env bash
# coming_from.sh — docs/coming-from.md says the truth: what it names exists, and a test uses it.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

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
    if not os.path.exists(test):
        wrong.append(f'{theirs}: {test} is missing')
        continue
    words = [w for code in re.findall(r'`([^`]*)`', ours) for w in re.findall(r'[\w-]+', code)]
    for word in words:
        if word.lower().startswith('rn_') and not re.search(rf'\b{word}\b', headers):
            wrong.append(f'{theirs}: there is no {word}')
    text = open(test).read()
    own = [w for w in words if w.lower().startswith('rn_')] or words
    if not any(w.lstrip('-') in text for w in own if len(w) > 3):
        wrong.append(f'{theirs}: {test} uses none of {own}')
print(f'{rows} rows')
for w in wrong:
    print(w)
sys.exit(1 if wrong or rows < 40 else 0)
PYTHON
