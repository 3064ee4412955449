#!/usr/bin/env bash
# config.sh — settings are listed, read and changed in place, byte for byte; and who wins over whom.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# ---- list and get
expect 0 "$ration" config list
says out budget default convert.to backend.enable_memory_profiling
expect 0 "$ration" config list --json
check_json "
s = {s['key']: s for s in j}
assert s['threads']['value'] == '0' and s['threads']['origin'] == 'default' and s['log.level']['name'] == 'log-level'"
expect 0 "$ration" config get threads
equals 'get threads' 0 "$(cat out)"
expect 0 "$ration" config get convert.default_excludes # by key or by name
equals 'get by key' true "$(cat out)"
expect 0 "$ration" config get default-excludes
expect 0 "$ration" config get log-level --json
check_json "assert j['value'] == 'warning'"

# ---- the file: made where it is missing
expect 0 "$ration" config set threads 3
equals 'the user file' 'threads = 3' "$(cat home/.config/ration/config.toml)"
expect 0 "$ration" config get threads
equals 'get what was set' 3 "$(cat out)"
export XDG_CONFIG_HOME=$scratch/xdg
expect 0 "$ration" config set json true
equals 'the XDG file' 'json = true' "$(cat xdg/ration/config.toml)"
unset XDG_CONFIG_HOME
expect 0 "$ration" config set --config new.toml log.level debug
equals 'a new file' '[log] level = "debug"' "$(xargs < new.toml | sed 's/debug/"debug"/')"
rm -r home/.config xdg new.toml

# ---- changed in place, byte for byte
cat > ration.toml << 'TOML'
# settings of this machine
budget = "1GiB"   # most of it

  [convert]   # indented, on purpose
  to     =   'int4'
  exclude = [ "a*", # first
              "b*" ]

[inspect]
sort = "name"
# the end
TOML
check_edit() { # SED-EXPRESSION COMMAND...: the command changes the file as sed would
    local expression=$1
    shift
    cp ration.toml before
    sed "$expression" before > expected
    expect 0 "$ration" config "$@"
    cmp -s ration.toml expected || fail "$* gives $(diff expected ration.toml)"
    expect 0 "$ration" config "$@" # again: nothing more
    cmp -s ration.toml expected || fail "$* is not repeatable"
    rm before expected
}
check_edit 's/"1GiB"/"2GiB"/' set budget 2GiB
check_edit "s/'int4'/\"nf4\"/" set convert.to nf4
check_edit 's/sort = "name"/sort = "size"/' set sort size
check_edit 's/^budget.*/&\nthreads = 4/' set threads 4
check_edit 's/^sort.*/&\n# the end\nlimit = 7/; /^# the end$/d' set inspect.limit 7
check_edit '$a\\n[[backend]]\nenable_memory_profiling = true' update --backend-enable-memory-profiling true
says ration.toml '[[backend]]' 'enable_memory_profiling = true' '# settings of this machine' '# indented, on purpose'
check_edit 's/profiling = true/profiling = false/' update --backend-enable-memory-profiling false
check_edit 's/threads = 4/threads = 5/; s/limit = 7/limit = 8/' update --threads 5 --limit 8
expect 0 "$ration" config get exclude
expect 0 "$ration" config list
says out ration.toml 2GiB nf4

# ---- [[backend]] may be shared with another program: its keys are read past, and stay byte for byte
cp ration.toml mine
cat > ration.toml << 'TOML'
[[backend]] # the first
backend_type = "python"
exec_path = '../backend/server.py'
max_num_kv_pages=10240   # pages
"quoted key" = [1, 2,
  3]
device = "cuda:0"
dtype = "bfloat16"

[backend.limits]
gpu.memory = 0.9

[[backend]]
enable_memory_profiling  =  false # the second's
enable_profiling = true
a_very_long_key_of_somebody_elses_a_very_long_key_of_somebody_elses_a_very_long_key_of_somebody_elses_a_very_long_key_of_somebody_elses = 1
TOML
expect 0 "$ration" config list
expect 0 "$ration" config get backend.enable_memory_profiling
equals 'of a shared table' false "$(cat out)"
check_edit '10,$s/  =  false/  =  true/; s/^dtype.*/&\nenable_memory_profiling = true/' update --backend-enable-memory-profiling true
expect 0 "$ration" config get backend.enable_memory_profiling
equals 'of a shared table, set' true "$(cat out)"
# But a misspelling of ours is told, and elsewhere an unknown key still is one.
printf '[[backend]]\nenable_memory_profilling = true\n' > bad.toml
expect 2 "$ration" config list --config bad.toml
says err 'bad.toml, line 2' "unknown key 'backend.enable_memory_profilling'" "'backend.enable_memory_profiling'"
printf 'backend = 3\n' > bad.toml
expect 2 "$ration" config list --config bad.toml
rm bad.toml
mv mine ration.toml

# ---- what is refused changes nothing
cp ration.toml before
expect 2 "$ration" config set thread 4
says err "no setting 'thread'" 'did you mean'
expect 2 "$ration" config set threads many
expect 2 "$ration" config set budget lots
expect 2 "$ration" config set convert.to int3
expect 2 "$ration" config set sort colour
expect 2 "$ration" config set config other.toml
expect 2 "$ration" config update --threads 6 --limit many
expect 2 "$ration" config update --threads 6 --lmit 3
expect 2 "$ration" config update --threads
expect 2 "$ration" config update threads 3
expect 2 "$ration" config set threads
expect 2 "$ration" config get
expect 2 "$ration" config list more
expect 2 "$ration" config frobnicate
expect 3 "$ration" config list --config missing.toml
cmp -s ration.toml before || fail 'a refused change changed the file'
rm before

# ---- broken files: place and reason
printf 'threads = 4\nlimit = = 3\n' > bad.toml
expect 3 "$ration" config list --config bad.toml
says err 'bad.toml, line 2'
printf '[inspect]\nlmit = 3\n' > bad.toml
expect 2 "$ration" config list --config bad.toml
says err 'bad.toml, line 2' "unknown key 'inspect.lmit'" "inspect.limit"
printf 'threads = "many"\n' > bad.toml
expect 2 "$ration" config list --config bad.toml
says err 'many'
printf 'threads = 4' > bad.toml # no line end: it gets one only where a line is added
expect 0 "$ration" config set threads 6 --config bad.toml
equals 'no line end' 'threads = 6' "$(cat bad.toml)"
equals 'bytes' 11 "$(wc -c < bad.toml)"
printf 'threads = 4\r\n' > bad.toml
expect 0 "$ration" config set budget 1GiB --config=bad.toml
equals 'CRLF stays' 2 "$(grep -c $'\r$' bad.toml)"
rm bad.toml

# ---- rank: default, user's file, ./ration.toml, environment, flags
value() { "$ration" config get threads "$@" > out 2> err || fail 'config get'; cat out; }
origin() { expect 0 "$ration" config get threads --json "$@" && check_json "print(j['origin'], file=open('origin', 'w'))" && cat origin && rm origin; }
equals 'from ./ration.toml' 5 "$(value)"
mkdir -p home/.config/ration && echo 'threads = 9' > home/.config/ration/config.toml
equals './ration.toml wins over the user file' 5 "$(value)"
equals 'and says so' ration.toml "$(origin)"
mv ration.toml other.toml
equals 'the user file' 9 "$(value)"
for flag in '--config other.toml' '--config=other.toml' '-c other.toml' '-cother.toml'; do
    equals "$flag" 5 "$(value $flag)"
done
equals 'RATION_CONFIG' 5 "$(RATION_CONFIG=other.toml value)"
equals 'the environment wins' 7 "$(RATION_THREADS=7 value --config other.toml)"
equals 'and says so' RATION_THREADS "$(RATION_THREADS=7 origin)"
RATION_THREADS=x expect 2 "$ration" config list
says err RATION_THREADS
make_tensors model.safetensors
echo 'inspect.limit = 2' > other.toml
count() { "$ration" inspect model.safetensors --json "$@" > out || fail inspect; check_json "print(len(j['tensors']), file=open('n', 'w'))"; cat n; rm n; }
equals 'a flag wins over the environment' 3 "$(RATION_LIMIT=4 count --limit 3)"
equals 'the environment wins over the file' 4 "$(RATION_LIMIT=4 count -c other.toml)"
equals 'the file wins over the default' 2 "$(count --config other.toml)"
expect 3 "$ration" inspect model.safetensors -c missing.toml
echo 'json = true' > ration.toml
expect 0 "$ration" inspect model.safetensors
check_json "assert j['tensor_count'] == 16"
expect 0 "$ration" inspect model.safetensors --no-json
says out 'by block'
