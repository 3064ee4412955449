#!/usr/bin/env bash
# image.sh — ration image: the same picture at every budget, adapters, pictures to begin with, and mistakes by name.
root=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

models=$root/tests/golden/image
draw=("$ration" image "$models/sd" -p 'a red circle' --steps 3 --seed 3)

# A picture, with its parameters in it.
expect 0 "${draw[@]}" -o a.png --audit
says err 'Stable Diffusion 1' '3 steps of euler' 'planned of a budget' 'in use at the peak' 'a.png'
says a.png 'parameters' 'a red circle' 'Seed: 3' 'Sampler: euler'
expect 0 "${draw[@]}" -o again.png -q
[ ! -s err ] || fail '-q is not quiet'
cmp -s a.png again.png || fail 'the same seed draws another picture'
expect 0 "$ration" image "$models/sd" -p 'a red circle' --steps 3 --seed 4 -o other.png -q
! cmp -s a.png other.png || fail 'another seed draws the same picture'

# Six budgets from the smallest that works, streamed or resident: the same bytes.
expect 4 "${draw[@]}" -q --budget +1000
says err 'smallest budget'
smallest=$(sed -n 's/.*works for all 3 phases is .*(\([0-9]*\) bytes).*/\1/p' err)
[ -n "$smallest" ] || fail 'no smallest budget is named'
for i in 0 1 2 3 4 5; do
    expect 0 "${draw[@]}" -o "b$i.png" --json --budget "+$((smallest + i * 40000))"
    cmp -s a.png "b$i.png" || fail "budget $i draws another picture"
done
expect 0 "${draw[@]}" -o c.png --json --audit
says out '"family": "Stable Diffusion 1"' '"as_planned": true' '"name": "denoise"' '"ledger"' '"c.png"'

# What shall stay and what shall not, by names of one phase's weights; attention in slices: the same bytes.
expect 0 "${draw[@]}" -o n.png --resident-blocks 2 --offload 'up_blocks.*' --keep 'conv_in.*' --attention-slice 8
says err 'read for every run'
cmp -s a.png n.png || fail 'weights that do not stay draw another picture'
expect 2 "${draw[@]}" -o n.png --offload 'no_such.*'
says err "no weight is called 'no_such.*'"

# Prompts that were encoded before need no text encoder; what is damaged in the folder is encoded anew.
expect 0 "${draw[@]}" -o k.png --json --prompt-cache prompts
says out '"cached_prompts": 0' '"name": "text"'
expect 0 "${draw[@]}" -o l.png --json --prompt-cache prompts
says out '"cached_prompts": 2'
! grep -q '"name": "text"' out || fail 'the text encoder is planned'
cmp -s a.png l.png || fail 'a cached prompt draws another picture'
# Another kind of device has bits of its own.
expect 0 "${draw[@]}" -o l.png --json --prompt-cache prompts --device sim
says out '"cached_prompts": 0'
for file in prompts/*.prompt; do printf 'x' | dd of="$file" bs=1 seek=100 conv=notrunc 2> /dev/null; done
expect 0 "${draw[@]}" -o m.png --json --prompt-cache prompts
says out '"cached_prompts": 0'
cmp -s a.png m.png || fail 'a damaged prompt draws another picture'

# Several pictures have seeds one behind the other.
expect 0 "${draw[@]}" -o many.png -q --batch 2
cmp -s many-1.png a.png || fail 'the first of a batch is another picture'
expect 0 "$ration" image "$models/sd" -p 'a red circle' --steps 3 --seed 4 -o one.png -q
tail -c 3000 one.png > one.pixels
tail -c 3000 many-2.png > two.pixels
cmp -s one.pixels two.pixels || fail 'the second of a batch is not that of the next seed'

# The autoencoder alone; pictures to begin with; masks.
expect 0 "$ration" image encode "$models/sd" a.png -o z.npy
expect 0 "$ration" image decode "$models/sd" z.npy -o d.png -q
expect 0 "${draw[@]}" --init a.png --strength 0.7 -o e.png -q
expect 0 "${draw[@]}" --init a.png --mask other.png -o f.png -q
expect 0 "${draw[@]}" --init a.png --vae-tile 16,8 -o g.png -q
expect 0 "$ration" plan "$models/xl" --for image --size 64x32 --batch 2
says out 'denoise' 'decode' 'text 2'
expect 0 "$ration" plan "$models/sd" --for image --html plan.html --json
says plan.html 'denoise'
for model in xl flux; do
    expect 0 "$ration" image "$models/$model" -p 'a blue square' --steps 2 --size 32 -o "$model.png" -q
done

# Sizes are rounded with a word, or refused.
expect 0 "${draw[@]}" --size 33x31 -o h.png
says err 'multiples of 4' '32x32'
expect 2 "${draw[@]}" --size 33x31 --exact -o h.png
says err 'multiples of 4'

# Sizes that are none; what was drawn is said in the file; a prompt that is too long is cut with a word; no progress where there is no terminal.
for size in -5 32x 0 x32 999999 32x32x32; do
  expect 2 "${draw[@]}" --size "$size" -o h.png
  says err "--size $size is no size"
done
expect 0 "${draw[@]}" --init a.png --strength 0.5 --lora "$models/lora/kohya.safetensors:0.5" -o said.png
says said.png 'Denoising strength: 0.5' 'Lora: kohya.safetensors:0.5'
! grep -q 'step 1 of' err || fail 'progress without a terminal'
expect 0 "${draw[@]}" -p "$(printf 'word %.0s' {1..100})" -o h.png -q
says err 'the prompt has' 'its end is left out'

# Mistakes.
expect 3 "${draw[@]}" -o nowhere/h.png
says err 'cannot write nowhere/h.png'
! grep -q 'planned' err || fail 'planned before it is known where to write'
expect 2 "${draw[@]}" --strength 0.5 -o h.png
says err 'name one with --init'
expect 2 "${draw[@]}" --init a.png --strength 0 -o h.png
says err 'leaves the picture as it is'
expect 2 "${draw[@]}" --init xl.png --mask a.png --size 32 -o h.jpg
says err 'must end in .png'
expect 0 "$ration" image "$models/sd" -p x --steps 1 --size 48x32 -o wide.png -q
expect 2 "${draw[@]}" --init a.png --mask wide.png -o h.png -q
says err 'the mask is 48x32'
expect 2 "${draw[@]}" --mask a.png -o h.png -q
says err 'a mask needs a picture'
expect 3 "${draw[@]}" --init "$models/sd/model_index.json" -o h.png -q
says err 'PNG'
expect 2 "${draw[@]}" --scheduler flow -o h.png -q
says err 'flow'
expect 2 "$ration" image "$models/flux" -p x --scheduler euler -o h.png -q
says err 'trained for flow'
expect 2 "${draw[@]}" --lora "$models/xl/vae/diffusion_pytorch_model.safetensors" -o h.png -q
says err 'none of its' 'decoder.'
expect 3 "$ration" image "$models" -p x -o h.png -q
says err 'model_index.json'
cp -r "$models/sd" broken
rm -r broken/vae
expect 3 "$ration" image broken -p x -o h.png -q
says err 'vae is missing'
cp -r "$models/sd/vae" broken/vae
rm -r broken/text_encoder
cp -r "$models/xl/text_encoder_2" broken/text_encoder
expect 2 "$ration" image broken -p x -o h.png -q
says err 'different models'
expect 3 "$ration" image "$models/sd/unet/diffusion_pytorch_model.safetensors" -p x -o h.png -q
says err 'no diffusion model that is known'
expect 2 "$ration" image "$models/sd" -p x 'more words' -o h.png -q
says err 'too many'
