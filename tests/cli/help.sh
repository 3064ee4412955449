#!/usr/bin/env bash
# help.sh — every command explains itself, and no command at all is a mistake.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

for ask in --help -h help; do
    expect 0 "$ration" $ask
    says out 'usage: ration COMMAND' inspect convert place plan calibrate config 'Exit codes'
done
# What people need stands first: on the first screen are running, pulling and serving models, and a command's budget.
expect 0 "$ration" --help
head -12 out > first
says first 'ration run' 'ration pull' 'serve' 'models'
expect 0 "$ration" run --help
head -20 out > first
says first --prompt --tokens --budget --device --seed 'ration run models/'
[ "$(grep -c -- '--budget SIZE' out)" = 1 ] || fail 'an option twice'
expect 0 "$ration" help run
says out 'usage: ration run'
expect 0 "$ration" help all
says out 'usage: ration run' 'usage: ration serve' 'usage: ration place'
expect 2 "$ration" help nothing
for command in embed train inspect convert compile place plan calibrate config; do
    for ask in --help -h; do
        expect 0 "$ration" $command $ask
        says out "usage: ration $command" 'options:' "--config" "--json" 'example:' "ration $command " 'RATION_'
        [ ! -s err ] || fail "help of $command complains"
    done
done
expect 0 "$ration" convert in.safetensors out.gguf --to f16 --help # whatever else is there
says out 'usage: ration convert'
expect 0 "$ration" convert --help
says out --to --budget --threads --exclude 256MiB int4 q8_0
expect 0 "$ration" inspect --help
says out --sort --filter --limit --metadata 'file|name|size|dtype'
expect 0 "$ration" plan --help
says out --budget --sweep --svg --html --exact --allow-lossy resnet18 llama:LAYERSxDIM
expect 0 "$ration" calibrate --help
says out --disk --threads

expect 0 "$ration" --version
grep -qE '^ration [0-9]+\.[0-9]+\.[0-9]+$' out || fail 'no version'

expect 2 "$ration"
says out 'usage: ration COMMAND'
expect 2 "$ration" inspekt
says err "no command 'inspekt'" hint
expect 2 "$ration" ''
expect 2 "$ration" --bogus
expect 2 "$ration" config
says err usage
