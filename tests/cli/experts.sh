#!/usr/bin/env bash
# experts.sh — a mixture of experts in budgets from all of it to the least: the same text, what was planned beside what was
# read, in tables and JSON, from `ration plan` to the server's /health and /metrics.
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$(dirname "${BASH_SOURCE[0]}")/serve.bash"
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# A folder of Hugging Face's: OLMoE in small, with random weights and the default model's tokenizer.
python3 - "$repository/models/default" << 'PYTHON'
import json, os, random, shutil, struct, sys
LAYERS, DIM, FFN, EXPERTS, CHOSEN, VOCAB = 4, 64, 96, 16, 4, 1536
os.mkdir('model')
for name in ('tokenizer.json', 'tokenizer_config.json'):
    shutil.copy(os.path.join(sys.argv[1], name), 'model')
json.dump({'architectures': ['OlmoeForCausalLM'], 'model_type': 'olmoe', 'hidden_size': DIM, 'intermediate_size': FFN,
           'num_hidden_layers': LAYERS, 'num_attention_heads': 4, 'num_key_value_heads': 4, 'vocab_size': VOCAB,
           'num_experts': EXPERTS, 'num_experts_per_tok': CHOSEN, 'norm_topk_prob': False, 'hidden_act': 'silu',
           'max_position_embeddings': 256, 'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'tie_word_embeddings': False,
           'bos_token_id': 0, 'eos_token_id': 0, 'torch_dtype': 'float16'}, open('model/config.json', 'w'))
draw = random.Random(7)
signs = bytes((b & 0x87) | 0x2c for b in range(256)) # of f16: any sign, 2^-4, any mantissa
def matrix(*shape):
    count = 1
    for n in shape:
        count *= n
    data = bytearray(draw.randbytes(2 * count))
    data[1::2] = data[1::2].translate(signs)
    return shape, bytes(data)
def ones(n):
    return (n,), struct.pack('<e', 1) * n
tensors = {'model.embed_tokens.weight': matrix(VOCAB, DIM), 'model.norm.weight': ones(DIM), 'lm_head.weight': matrix(VOCAB, DIM)}
for i in range(LAYERS):
    at = f'model.layers.{i}.'
    for name in ('input_layernorm', 'post_attention_layernorm', 'self_attn.q_norm', 'self_attn.k_norm'):
        tensors[f'{at}{name}.weight'] = ones(DIM)
    for name in 'qkvo':
        tensors[f'{at}self_attn.{name}_proj.weight'] = matrix(DIM, DIM)
    tensors[f'{at}mlp.gate.weight'] = matrix(EXPERTS, DIM)
    for e in range(EXPERTS):
        for name, shape in (('gate', (FFN, DIM)), ('up', (FFN, DIM)), ('down', (DIM, FFN))):
            tensors[f'{at}mlp.experts.{e}.{name}_proj.weight'] = matrix(*shape)
header, offset = {}, 0
for name, (shape, data) in tensors.items():
    header[name] = {'dtype': 'F16', 'shape': shape, 'data_offsets': [offset, offset + len(data)]}
    offset += len(data)
text = json.dumps(header).encode()
text += b' ' * (-len(text) % 8)
with open('model/model.safetensors', 'wb') as file:
    file.write(struct.pack('<Q', len(text)) + text + b''.join(data for _, data in tensors.values()))
PYTHON

flags=(--ctx 96 --temperature 0)
# field FILE EXPRESSION: of the JSON object `j` in a file.
field() {
    python3 -c "import json, sys; j = json.load(open('$1')); print($2)"
}

# The least and the most that plans with experts on demand take; a + leaves the process itself out.
expect 0 "$ration" plan model --ctx 96 --experts always --budget +200MiB --json
cp out roomy
least=$(field roomy "j['smallest_budget_bytes']")
most=$((least + $(field roomy "j['plan']['planned_bytes'] - j['plan']['smallest_bytes']")))
equals 'slots without a limit' 16 "$(field roomy "j['plan']['experts']['slots']")"
equals 'bytes by purpose' True "$(field roomy "sum(j['plan']['purposes'].values()) == j['plan']['planned_bytes']")"

# The same words, whatever stays.
expect 0 "$ration" run model 'One day' -n 24 "${flags[@]}" --experts never --json
equals 'experts on demand' False "$(field out "'expert_slots' in j['plan']")"
words=$(field out "j['text']")
slots=-1
for budget in $least $(((least + most) / 2)) $most; do
    expect 0 "$ration" run model 'One day' -n 24 "${flags[@]}" --experts always --budget +$budget --json
    equals "text at $budget" "$words" "$(field out "j['text']")"
    now=$(field out "j['plan']['expert_slots']")
    [ "$now" -ge "$slots" ] || fail "$now slots at $budget, $slots with less"
    slots=$now
    equals 'experts were needed' True "$(field out "j['facts']['experts_needed'] > 0 and 0 < j['facts']['experts_missed'] <= j['facts']['experts_needed']")"
    equals 'bytes of experts that were read' True \
        "$(field out "j['facts']['expert_read_bytes'] == j['facts']['experts_missed'] * 3 * 64 * 96 * 2")"
done
expect 0 "$ration" run model 'One day' -n 8 "${flags[@]}" --experts always --budget +$(((least + most) / 2)) --audit
says err 'experts of each of 4 layers have slots' 'experts that were there' 'experts read a token'
expect 4 "$ration" run model 'One day' -n 8 "${flags[@]}" --experts always --budget +$((least - 4096))
says err 'smallest budget'

# What a trace says of a text; a sweep.
python3 -c "
import json
for t in range(60): print(json.dumps({'tok': t, 'layers': [[1, 2, 3, 4 + t % 4]] * 4}))" > trace.jsonl
expect 0 "$ration" plan model --ctx 96 --experts always --budget +$(((least + most) / 2)) --route-trace trace.jsonl
says out 'expert slots' 'transit' 'read a row' "trace's best and worst quarter" 'rows'
expect 0 "$ration" plan model --ctx 96 --experts always --route-trace trace.jsonl --sweep
says out 'expert slots' 'experts a row' 'rows a second' '16/16' '0/16'
expect 3 "$ration" plan model --ctx 96 --route-trace model/config.json
says err 'config.json'

# A server whose requests share steps.
start_server model --ctx 96 --parallel 3 --budget 1GiB --experts always
for i in 1 2 3; do
    ask 200 /v1/completions "{\"model\": \"model\", \"prompt\": \"One day $i\", \"max_tokens\": 12, \"temperature\": 0}" &
    asked[i]=$!
done
wait "${asked[@]}" || fail 'answers side by side'
ask 200 /health
equals 'health of experts' True "$(field out "j['experts']['layers'] == 4 and j['experts']['needed'] >= j['experts']['missed'] > 0 and j['experts']['read_bytes'] == j['experts']['missed'] * 3 * 64 * 96 * 2")"
ask 200 /metrics
says out 'ration_expert_slots ' 'ration_experts_needed_total ' 'ration_experts_missed_total ' 'ration_expert_read_bytes_total '
stop_server
