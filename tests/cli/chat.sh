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
echo 'Once upon' > said
expect 0 "$ration" run --chat --template form -n 8 -q --greedy < said
cp out told_chat
expect 0 "$ration" run "$model" 'Once upon' --template form -n 8 -q --greedy
equals 'a question behind the model, told by its form' "$(cat told_chat)" "$(cat out)"
expect 0 "$ration" run "$model" --template form -n 8 -q --greedy < said
equals 'a question that is piped in' "$(cat told_chat)" "$(cat out)"
expect 0 "$ration" run "$model" 'Once upon' --template form --system 'Be kind.' -n 2 -q --json
check_json "assert j['prompt'] == 'Once upon' and j['prompt_tokens'] > 8, j"
expect 0 "$ration" run "$model" -p 'Once upon a' --template form -n 8 -q --greedy
equals 'a text to go on from' "$(cat told)" "$(cat out)"
expect 2 "$ration" run "$model" -p 'Once' --system 'Be kind.'
says err '--system is for a chat, or a question'
echo 'None of {{ messages | length }}' > deaf
expect 2 "$ration" run "$model" 'Once upon' --template deaf -n 2 -q
says err 'the chat template leaves out what the messages say'
cat > talk.py << 'PYTHON'
import fcntl, os, pty, select, struct, sys, termios
columns, term, options = int(sys.argv[2]), sys.argv[3], sys.argv[4:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    os.environ['TERM'] = term
    os.execv(sys.argv[1], [sys.argv[1], 'run', '--template', 'form', '--greedy'] + options)
def hear(mark):
    heard = b''
    while not heard.endswith(mark):
        if not select.select([terminal], [], [], 300)[0]: sys.exit('silence behind %r' % heard)
        try: piece = os.read(terminal, 4096)
        except OSError: return heard.decode()  # it has ended
        if not piece: return heard.decode()
        heard += piece
    return heard.decode()
def say(line, mark=b'> ', enter=b'\r'):
    os.write(terminal, line.encode() + enter)
    return hear(mark)
PYTHON
cat talk.py - > commands.py << 'PYTHON'
assert '/help' in hear(b'> ')
assert 'tokens] > ' in say('Once upon')
assert '/system' in say('/help')
assert 'no command /nope' in say('/nope')
say('"""two', b'. ')
assert 'tokens] > ' in say('lines"""')
assert 'saved 4 messages' in say('/save saved.json')
assert "give it a file's name" in say('/save')
heard = say('/clear').partition('(a new conversation)') # and the mark knows
assert heard[1] and 'tokens]' not in heard[2], heard
assert 'without a system message' in say('/system')
assert 'tokens]' not in say('/system You are kind.')
say('"""/bye"""')
assert 'saved 3 messages' in say('/save again.json')
say('/bye', b'no mark')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
for term in dumb xterm; do # read by the terminal, and by our own editor
    rm -f saved.json again.json
    expect 0 python3 commands.py "$ration" 80 $term -n 4 -q
    [ -s again.json ] || fail "a chat on $term"
done
python3 - << 'PYTHON' || fail 'what was saved'
import json
saved = json.load(open('saved.json'))['messages']
assert [m['role'] for m in saved] == ['user', 'assistant'] * 2 and saved[2]['content'] == 'two\nlines', saved
again = json.load(open('again.json'))['messages']
assert [m['content'] for m in again[:2]] == ['You are kind.', '/bye'], again
PYTHON

# ---- a message that the form refuses is forgotten
cat > strict << 'FORM'
{% for m in messages %}{% if m.role == 'user' and loop.index0 % 2 %}{{ raise_exception('they must take turns') }}{% endif %}{% if 'odd' in m.content %}{{ raise_exception('nothing odd') }}{% endif %}{{ m.content }}
{% endfor %}
FORM
cat talk.py - > strict.py << 'PYTHON'
hear(b'> ')
assert 'nothing odd' in say('something odd')
assert 'turns' not in say('Once upon')
assert 'saved 2 messages' in say('/save strict.json')
assert say('/bye', b'no mark')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
sed -i s/"'form'"/"os.environ.get('FORM', 'form')"/ talk.py strict.py
FORM=strict expect 0 python3 strict.py "$ration" 80 xterm -n 4 -q

# ---- what is typed during an answer is not shown in it
cat talk.py - > ahead.py << 'PYTHON'
hear(b'> ')
os.write(terminal, b'Once upon\r')
begun = b''                      # some of the answer is there
while not begun.partition(b'\x1b[?2004l')[2]: begun += os.read(terminal, 4096)
os.write(terminal, b'/nope\r')
heard = ''
while 'no command /nope' not in heard: heard += hear(b'> ')
assert heard.index('/nope') > heard.index('tokens] > '), heard
say('/bye', b'no mark')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
expect 0 python3 ahead.py "$ration" 80 xterm -n 100 -q

# ---- keys: older lines, a cursor that moves, a pasted text; a terminal of 20 columns
cat talk.py - > keys.py << 'PYTHON'
hear(b'> ')
say('Onse\x1b[D\x7fc\x1b[C upon')              # left, backspace, right
say('\x1b[A\x01\x0bThe end\x1b[200~ of\nit\x1b[201~') # an older line, all of it deleted; a paste
say('\x1b[A\x1b[A')                             # the first one again
say('na\u00efve caf\u00e9 \u4e2d\u6587 and a line that is longer than the terminal is wide\x7f\x7f\x17\x15Short')
say('a\x1b\rb')                                 # Alt-Enter
os.write(terminal, b'none of this\x03')          # Ctrl-C empties the line, and the second one warns
assert '/bye ends)' in say('\x03', enter=b'')
say('"""', b'. ')
say('nor this\x03', enter=b'')
say('two three\x1bb\x17one \x1b[1;5C four\x1bx\x1b[1;5D\x1b[1;3D\x1bd\x1bf') # by words
say('e\u0301\u0301\x02\x06\x7fo')               # a letter with its accents is one
heard = say('\x1b[200~' + 'a line\r' * 40 + '\x1b[201~\x01>', b'> ') # more rows than there are
assert heard.count('a line') >= 40, heard
assert 'saved 16 messages' in say('/save keys.json').replace('\r\n', '')
os.write(terminal, b'\x04')
hear(b'no mark')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
for columns in 20 80; do
    expect 0 python3 keys.py "$ration" $columns xterm -n 2 -q
    python3 - << 'PYTHON' || fail "keys in $columns columns"
import json
said = [m['content'] for m in json.load(open('keys.json'))['messages'] if m['role'] == 'user']
assert said == ['Once upon', 'The end of\nit', 'Once upon', 'Short', 'a\nb', 'one  four', 'o', '>' + 'a line\n' * 40], said
PYTHON
done

# ---- the context: it grows by pages within the budget, and says when it is full and what it does about it
cat talk.py - > long.py << 'PYTHON'
heard = hear(b'> ')
assert 'context grows to 288' in heard, heard
for turn in range(40):
    heard = say('Tell me more about the little mouse and the cat')
    if 'is full' in heard: break
assert 'the context of 288 tokens is full: the oldest' in heard, heard
heard = say('/bye', b'no mark')
assert 'kv, 14 of 18 pages' in heard, heard # a quarter is kept for the answer
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
expect 0 python3 long.py "$ration" 200 xterm -n 20 --kv-page 16
cat talk.py - > short.py << 'PYTHON'
hear(b'> ')
say('Hello')
heard = say('/bye', b'no mark')
lines = [line.split() for line in heard.splitlines()]
kv, = [line for line in lines if line[:1] == ['kv,']]
assert kv[1:4] == ["2", "of", "18"] and kv[5:7] == kv[7:9], kv # planned = found, of the pages so far
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
expect 0 python3 short.py "$ration" 200 xterm -n 8 --kv-page 16

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
