#!/usr/bin/env bash
# chat.sh — ration run on a terminal: a chat with commands and texts of several lines; prompts behind the model and piped in.
model=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../models/default")
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- where a prompt comes from
expect 0 "$ration" run -p 'Once upon a' -n 8 -q --greedy
cp out told
echo 'Once upon a' | "$ration" run -n 8 -q --greedy > piped || fail 'piped'
equals 'a piped prompt' "$(cat told)" "$(cat piped)"
expect 0 "$ration" run "$model" 'Once upon a' -n 8 -q --greedy
equals 'a prompt behind the model' "$(cat told)" "$(cat out)"
expect 2 "$ration" run "$model" 'Once' -p 'upon'
says err 'two prompts'
expect 0 "$ration" run -p 'Once' -n 2 --ctx 1000
says err 'trained for'

# ---- a chat
cat > form << 'FORM'
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}assistant:
FORM
cat > talk.py << 'PYTHON'
import os, pty, select, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], [sys.argv[1], 'run', '--template', 'form', '-n', '4', '--greedy', '-q'])
def hear(mark):
    heard = b''
    while not heard.endswith(mark):
        if not select.select([terminal], [], [], 300)[0]: sys.exit('silence behind %r' % heard)
        try: piece = os.read(terminal, 4096)
        except OSError: return heard.decode()  # it has ended
        if not piece: return heard.decode()
        heard += piece
    return heard.decode()
assert '/help' in hear(b'> ')
def say(line, mark=b'> '):
    os.write(terminal, line.encode() + b'\n')
    return hear(mark)
assert 'tokens] > ' in say('Once upon')
assert '/system' in say('/help')
assert 'no command /nope' in say('/nope')
say('"""two', b'. ')
assert 'tokens] > ' in say('lines"""')
assert 'saved 4 messages' in say('/save saved.json')
assert "give it a file's name" in say('/save')
say('/clear')
say('/system You are kind.')
say('"""/bye"""')
assert 'saved 3 messages' in say('/save again.json')
say('/bye', b'no mark')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
expect 0 python3 talk.py "$ration"
python3 - << 'PYTHON' || fail 'what was saved'
import json
saved = json.load(open('saved.json'))['messages']
assert [m['role'] for m in saved] == ['user', 'assistant'] * 2 and saved[2]['content'] == 'two\nlines', saved
again = json.load(open('again.json'))['messages']
assert [m['content'] for m in again[:2]] == ['You are kind.', '/bye'], again
PYTHON

# ---- a budget that has no room for the usual context has room for a short prompt
expect 0 "$ration" plan "$model" --budget +64MiB --json
figure=$(python3 -c "import json; print(json.load(open('out'))['smallest_budget_bytes'])")
expect 0 "$ration" run "$model" -p 'Once upon a' -n 8 -q --greedy --budget +$((figure - 4096))
equals 'with a shorter context' "$(cat told)" "$(cat out)"
expect 4 "$ration" run "$model" -p 'Once upon a' -n 8 -q --greedy --budget +$((figure - 4096)) --ctx 288

# ---- how the model's makers would have it sampled; a seed that is told and can be given
cp -r "$model" advised
echo '{"do_sample": true, "temperature": 0.25, "top_k": 7, "top_p": 9}' > advised/generation_config.json
expect 0 "$ration" run advised -p Once -n 6
says err 'temperature 0.25' 'top-k 7'
cp out first
seed=$(sed -n 's/.*seed \([0-9]*\).*/\1/p' err)
expect 0 "$ration" run advised -p Once -n 6 --seed "$seed"
equals 'the same seed' "$(cat first)" "$(cat out)"
expect 0 "$ration" run advised -p Once -n 6 --temperature 0.5
says err 'temperature 0.5, top-k 40'
echo '{"do_sample": false, "temperature": 0.25}' > advised/generation_config.json
expect 0 "$ration" run advised -p Once -n 6
says err 'temperature 0.8'
echo '{"do_sample": true, "temperature": "hot"}' > advised/generation_config.json
expect 3 "$ration" run advised -p Once -n 6
says err 'generation_config.json' 'temperature'
