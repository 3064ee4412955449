#!/usr/bin/env bash
# labels: release-only
# train_reference.sh — steps of every family of image models beside PyTorch's (scripts/reference/train_diffusion.py); skipped where its packages
# are not.
root=$PWD python=${RATION_PYTHON:-python3} # common.bash forgets it
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
(cd "$root" && "$python" scripts/reference/train_diffusion.py --ration "$ration") > out 2> err
code=$?
[ $code != 77 ] || { cat out; exit 77; }
[ $code = 0 ] || fail 'a step is another one than PyTorch'\''s'
says out 'xl, v prediction' 'flux, flow prediction' 'diffusers loads lora_kohya'
