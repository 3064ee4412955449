// options.c — the table of all options, and finding one in it.
#include "support/options.h"

#include "base/str.h"

static const rn_option table[] = {
    {"config", "", 'c', RN_OPTION_TEXT, false, "", NULL, "FILE", NULL,
     "read this TOML file instead of the usual ones"},
    {"json", "json", 'j', RN_OPTION_BOOL, false, "", "false", NULL, NULL,
     "print one JSON object instead of tables"},
    {"log-level", "log.level", 0, RN_OPTION_CHOICE, false, "", "warning", "LEVEL",
     "debug|info|warning|error|off",
     "what is logged to standard error; stages are info [serve: info]"},
    {"log-format", "log.format", 0, RN_OPTION_CHOICE, false, "", "text", "FORM",
     "text|symbols|json", "log lines for people, with symbols in front, or for machines"},
    {"backend-enable-memory-profiling", "backend.enable_memory_profiling", 0, RN_OPTION_BOOL, true,
     "config", "false", NULL, NULL,
     "record run, serve, plan, convert, place and calibrate (not inspect), and leave "
     "memory_profile_DATE_TIME.json as well"},
    {"profile", "profile.file", 0, RN_OPTION_FILE, false, "", NULL, "FILE", NULL,
     "record every byte and operation; without a name ration_DATE_TIME.rntrace"},
    {"profile-limit", "profile.limit", 0, RN_OPTION_SIZE, false, "", "1GiB", "SIZE", NULL,
     "most bytes of a recording, which ends there"},
    {"profile-ring", "profile.ring", 0, RN_OPTION_BOOL, false, "", "false", NULL, NULL,
     "at that limit, forget the oldest events instead of ending"},
    {"profile-interval", "profile.interval", 0, RN_OPTION_NUMBER, false, "", "5", "SECONDS", NULL,
     "between snapshots in a recording; 0 means none"},
    {"budget", "budget", 'b', RN_OPTION_BUDGET, false,
     "run convert plan profile serve embed compile bench bench-worker train", NULL, "SIZE", NULL,
     "most memory to use: 2GiB, 800MB, 75% of the host's [to convert 256MiB, else nine tenths "
     "of what is free]; of the process, or of the device where that has its own memory "
     "(cuda:0=4GiB,host=8GiB names both). profile run: of the blocks that are recorded, none "
     "unless given"},
    {"threads", "threads", 't', RN_OPTION_COUNT, false,
     "run convert plan calibrate serve embed compile bench bench-worker train", "0", "N", NULL,
     "worker threads; 0 means one for each CPU"},
    {"file", "", 'f', RN_OPTION_TEXT, false, "embed", NULL, "FILE", NULL,
     "a text a line; - is standard input"},
    {"pooling", "embed.pooling", 0, RN_OPTION_CHOICE, false, "embed", "model", "HOW",
     "model|mean|cls|last", "how the tokens of a text become one vector; model: as its files say"},
    {"dimensions", "embed.dimensions", 0, RN_OPTION_COUNT, false, "embed", "0", "N", NULL,
     "the first N only, normalised behind that; 0 means all"},
    {"normalize", "embed.normalize", 0, RN_OPTION_BOOL, false, "embed", NULL, NULL, NULL,
     "to a length of 1 [as the model's files say, else yes]; --no-normalize: not"},
    {"refuse-long", "embed.refuse_long", 0, RN_OPTION_BOOL, false, "embed", "false", NULL, NULL,
     "a text longer than the model allows, or --ctx, is an error instead of being cut"},
    {"base64", "embed.base64", 0, RN_OPTION_BOOL, false, "embed", "false", NULL, NULL,
     "embeddings as base64 of little-endian f32"},
    {"similarity", "", 0, RN_OPTION_BOOL, false, "embed", "false", NULL, NULL,
     "print the cosines of all texts to each other"},
    {"data", "train.data", 0, RN_OPTION_TEXT, false, "train", NULL, "FILE", NULL,
     "what is learned: JSON, an object a line"},
    {"base", "train.base", 0, RN_OPTION_TEXT, false, "train", NULL, "PATH", NULL,
     "the model, where none stands on the command line"},
    {"out", "train.out", 0, RN_OPTION_TEXT, false, "train", NULL, "DIR", NULL,
     "the folder for adapter, checkpoint and log"},
    {"objective", "train.objective", 0, RN_OPTION_CHOICE, false, "train", "text", "WHAT",
     "text|diffusion|autoencoder",
     "what is learned: the next token; of a diffusers folder the denoiser, or the VAE"},
    {"size", "train.size", 0, RN_OPTION_TEXT, false, "train", "512", "WxH", NULL,
     "of pictures; with buckets their area"},
    {"buckets", "train.buckets", 0, RN_OPTION_COUNT, false, "train", "0", "N", NULL,
     "shapes of pictures, at most; 1: all are cut to --size [7]"},
    {"min-snr", "train.min_snr", 0, RN_OPTION_NUMBER, false, "train", "0", "GAMMA", NULL,
     "diffusion: samples with little noise count less (5); 0: all alike"},
    {"offset-noise", "train.offset_noise", 0, RN_OPTION_NUMBER, false, "train", "0", "X", NULL,
     "diffusion: noise that a whole channel shares (0.05)"},
    {"caption-dropout", "train.caption_dropout", 0, RN_OPTION_NUMBER, false, "train", "0.1",
     "SHARE", NULL, "diffusion: of the samples, which have an empty caption"},
    {"ema", "train.ema", 0, RN_OPTION_NUMBER, false, "train", "0", "DECAY", NULL,
     "image models: write an average of the weights over steps (0.999); 0: the last"},
    {"kl", "train.kl", 0, RN_OPTION_NUMBER, false, "train", "0.000001", "X", NULL,
     "autoencoder: how much the KL divergence counts"},
    {"log-every", "train.log_every", 0, RN_OPTION_COUNT, false, "train", "50", "N", NULL,
     "image models: steps between lines, where there is no terminal"},
    {"method", "train.method", 0, RN_OPTION_CHOICE, false, "train", "lora", "HOW",
     "lora|qlora|full",
     "what is trained: a low-rank addition to the frozen weights, which qlora quantises to nf4 "
     "first; or the weights themselves"},
    {"train-dtype", "train.dtype", 0, RN_OPTION_CHOICE, false, "train", "f32", "TYPE", "f32|bf16",
     "of the weights that --method full trains; bf16 rounds at random"},
    {"compute", "train.compute", 0, RN_OPTION_CHOICE, false, "train", "auto", "TYPE",
     "auto|f32|bf16|f16",
     "how values between operations are held, and on a GPU multiplied; sums are f32 [a GPU: bf16, "
     "else f32]; f16 scales the loss"},
    {"bad-steps", "train.bad_steps", 0, RN_OPTION_COUNT, false, "train", "3", "N", NULL,
     "steps in a row whose gradients are not finite before it stops; each is skipped and named"},
    {"rank", "train.rank", 0, RN_OPTION_COUNT, false, "train", "16", "N", NULL, "of the addition"},
    {"alpha", "train.alpha", 0, RN_OPTION_NUMBER, false, "train", "0", "X", NULL,
     "the addition is scaled by alpha / rank; 0: the rank"},
    {"rslora", "train.rslora", 0, RN_OPTION_BOOL, false, "train", "false", NULL, NULL,
     "by alpha / sqrt(rank) instead"},
    {"target", "train.target", 0, RN_OPTION_LIST, false, "train", NULL, "NAME", NULL,
     "a module that is adapted (q_proj, model.layers.0.mlp.*); may be repeated [all matrices of "
     "the layers]"},
    {"rank-pattern", "train.rank_pattern", 0, RN_OPTION_LIST, false, "train", NULL, "NAME=N", NULL,
     "another rank for the modules of this name (`*`, `?`): down_proj=32, layers.0.*=8"},
    {"alpha-pattern", "train.alpha_pattern", 0, RN_OPTION_LIST, false, "train", NULL, "NAME=X",
     NULL, "another alpha for them"},
    {"init", "train.init", 0, RN_OPTION_TEXT, false, "train", "default", "HOW", NULL,
     "first values of an addition: default (uniform) or gaussian"},
    {"merge", "train.merge", 0, RN_OPTION_BOOL, false, "train", "false", NULL, NULL,
     "at the end, also write the model with the adapter in its matrices: OUT/merged"},
    {"batch-size", "train.batch", 0, RN_OPTION_COUNT, false, "train", "4", "N", NULL,
     "sequences of a step"},
    {"length", "train.length", 0, RN_OPTION_COUNT, false, "train", "512", "N", NULL,
     "tokens of a sequence"},
    {"long", "train.long", 0, RN_OPTION_CHOICE, false, "train", "refuse", "WHAT",
     "refuse|truncate|drop|split", "what becomes of samples that are longer"},
    {"unpacked", "train.unpacked", 0, RN_OPTION_BOOL, false, "train", "false", NULL, NULL,
     "one sample a sequence"},
    {"steps", "train.steps", 0, RN_OPTION_COUNT, false, "train", "0", "N", NULL,
     "in all; 0: as many as --epochs need"},
    {"epochs", "train.epochs", 0, RN_OPTION_NUMBER, false, "train", "3", "X", NULL,
     "how often each sequence is seen"},
    {"rate", "train.rate", 0, RN_OPTION_NUMBER, false, "train", "0.0002", "X", NULL,
     "the learning rate"},
    {"schedule", "train.schedule", 0, RN_OPTION_CHOICE, false, "train", "linear", "HOW",
     "linear|cosine|constant", "how the rate goes on behind the warm-up"},
    {"warmup", "train.warmup", 0, RN_OPTION_NUMBER, false, "train", "0", "X", NULL,
     "steps in which the rate rises, or below 1 their share"},
    {"optimizer", "train.optimizer", 0, RN_OPTION_CHOICE, false, "train", "adamw", "NAME",
     "adamw|adamw_bf16|adamw_8bit|sgd|momentum|lion|lion_8bit|adafactor|muon",
     "how weights follow gradients"},
    {"weight-decay", "train.weight_decay", 0, RN_OPTION_NUMBER, false, "train", "0", "X", NULL,
     "of the addition"},
    {"clip", "train.clip", 0, RN_OPTION_NUMBER, false, "train", "1", "X", NULL,
     "the largest norm of all gradients together; 0: none"},
    {"validation", "train.validation", 0, RN_OPTION_NUMBER, false, "train", "0", "SHARE", NULL,
     "of the samples, which are set apart"},
    {"evaluate-every", "train.evaluate_every", 0, RN_OPTION_COUNT, false, "train", "100", "N", NULL,
     "steps between losses of what is set apart"},
    {"save-every", "train.save_every", 0, RN_OPTION_COUNT, false, "train", "500", "N", NULL,
     "steps between checkpoints; there is one at the end"},
    {"keep-checkpoints", "train.keep", 0, RN_OPTION_COUNT, false, "train", "2", "N", NULL,
     "checkpoints in --out; older ones go when a new one is verified"},
    {"resume", "train.resume", 0, RN_OPTION_BOOL, false, "train", "false", NULL, NULL,
     "go on from the newest checkpoint in --out that is whole"},
    {"prompt", "", 'p', RN_OPTION_TEXT, false, "run", NULL, "TEXT", NULL,
     "the text to go on from; with --chat the first message"},
    {"input", "", 'i', RN_OPTION_LIST, false, "run bench bench-worker", NULL, "NAME=FILE", NULL,
     "an input of a model of tensors (ONNX, resnet18), from a .npy or .png file; may be repeated"},
    {"resize", "", 0, RN_OPTION_TEXT, false, "run", NULL, "N", NULL,
     "of a .png input: its shorter side before the middle is cut out; stretch: the input's size"},
    {"mean", "", 0, RN_OPTION_TEXT, false, "run", "0", "X,X,X", NULL,
     "of a .png input: a value is (pixel * scale - mean) / std, one for each channel or for all"},
    {"std", "", 0, RN_OPTION_TEXT, false, "run", "1", "X,X,X", NULL,
     "of a .png input: what values are divided by"},
    {"scale", "", 0, RN_OPTION_NUMBER, false, "run", "0.00392156862745098", "X", NULL,
     "of a .png input: what a pixel, 0 to 255, is multiplied by"},
    {"bgr", "", 0, RN_OPTION_BOOL, false, "run", "false", NULL, NULL,
     "of a .png input: blue is the first channel"},
    {"labels", "", 0, RN_OPTION_TEXT, false, "run", NULL, "FILE", NULL,
     "names of a classifier's classes, a line each: the best are printed"},
    {"top", "", 0, RN_OPTION_COUNT, false, "run", "5", "N", NULL,
     "with --labels: how many of the best are printed"},
    {"dim", "", 0, RN_OPTION_LIST, false, "run plan", NULL, "NAME=SIZE", NULL,
     "the size of an axis that an ONNX file leaves open; may be repeated"},
    {"variants", "", 0, RN_OPTION_LIST, false, "bench bench-worker", NULL, "LIST", NULL,
     "what to measure, in this order, with commas: cpu, cpu+int8, ort+O3, xla:cpu, eager, "
     "cuda+bf16; alma's names; may be repeated"},
    {"tier", "bench.tier", 0, RN_OPTION_CHOICE, false, "bench", "1", "N", "1|2|3",
     "without --variants: the engines that are here; also reduced precision; everything"},
    {"batch", "bench.batch", 0, RN_OPTION_TEXT, false, "bench bench-worker", "1", "N,N", NULL,
     "items of a run, each number measured"},
    {"samples", "bench.samples", 0, RN_OPTION_TEXT, false, "bench", "auto", "auto|N|document", NULL,
     "runs that are measured: until the median is known to 1 %, so many, or by parameters"},
    {"sample-time", "bench.sample_time", 0, RN_OPTION_TEXT, false, "bench", NULL, "TIME", NULL,
     "for the samples of a process, at most [tier 1: 1s, 2: 2s, 3: 5s; a fifth with --processes]"},
    {"processes", "bench.processes", 0, RN_OPTION_COUNT, false, "bench", NULL, "N", NULL,
     "that measure each variant, in turns [1; with --against 60, --fail-if-slower 30]"},
    {"timeout", "bench.timeout", 0, RN_OPTION_TEXT, false, "bench", "120s", "TIME", NULL,
     "of a variant, all in"},
    {"memory-limit", "bench.memory_limit", 0, RN_OPTION_SIZE, false, "bench", NULL, "SIZE", NULL,
     "of a variant's process, by the system: a cgroup, else a limit of its data"},
    {"baseline", "bench.baseline", 0, RN_OPTION_TEXT, false, "bench", NULL, "NAME", NULL,
     "the variant, or its number, that others are compared with [the first]"},
    {"markdown", "", 0, RN_OPTION_TEXT, false, "bench", NULL, "FILE", NULL,
     "write the table as Markdown; - is standard output"},
    {"csv", "", 0, RN_OPTION_TEXT, false, "bench", NULL, "FILE", NULL,
     "write every figure of every variant, a line each"},
    {"compare", "bench.compare", 0, RN_OPTION_TEXT, false, "bench", NULL, "OLD.json", NULL,
     "what has changed since these results, with an interval of 99.9 %"},
    {"against", "bench.against", 0, RN_OPTION_TEXT, false, "bench", NULL, "OTHER", NULL,
     "measure also this model, in turns with MODEL, and say what has changed since it"},
    {"against-program", "bench.against_program", 0, RN_OPTION_TEXT, false, "bench", NULL, "PATH",
     NULL, "the same with another ration program: an older build's"},
    {"against-output", "bench.against_output", 0, RN_OPTION_TEXT, false, "bench", NULL, "FILE.json",
     NULL, "write the other side's figures"},
    {"fail-if-slower", "bench.fail_if_slower", 0, RN_OPTION_TEXT, false, "bench", NULL, "5%", NULL,
     "exit code 7 where a median is certainly longer by more than that"},
    {"fail-if-larger", "bench.fail_if_larger", 0, RN_OPTION_TEXT, false, "bench", NULL, "1%", NULL,
     "exit code 7 where a variant's peak memory has grown by more"},
    {"weights", "", 0, RN_OPTION_TEXT, false, "run plan convert bench bench-worker", NULL, "PATH",
     NULL,
     "of a builtin model (resnet18): a safetensors file, without one they are made up; of an ONNX "
     "file: what convert made of them (f16, bf16, int8, q8_0)"},
    {"prompt-file", "", 'f', RN_OPTION_TEXT, false, "run", NULL, "FILE", NULL,
     "read the prompt from a file; - is standard input"},
    {"tokens", "run.tokens", 'n', RN_OPTION_COUNT, false, "run", "256", "N", NULL,
     "make at most so many tokens (in a chat, for each answer)"},
    {"chat", "", 0, RN_OPTION_BOOL, false, "run", "false", NULL, NULL,
     "a conversation, line by line; Ctrl-C stops the answer"},
    {"system", "run.system", 0, RN_OPTION_TEXT, false, "run", NULL, "TEXT", NULL,
     "the system message of a chat"},
    {"template", "run.template", 0, RN_OPTION_TEXT, false, "run serve", NULL, "FILE", NULL,
     "a chat template instead of the model's own"},
    {"tokenizer", "run.tokenizer", 0, RN_OPTION_TEXT, false, "run plan serve embed compile", NULL,
     "PATH", NULL, "a tokenizer instead of the model's own"},
    {"lora", "run.lora", 0, RN_OPTION_LIST, false, "run plan serve embed compile convert", NULL,
     "[NAME=]PATH[:SCALE]", NULL,
     "apply a LoRA adapter; may be repeated. serve: with a name, to requests for that model. "
     "convert: write the model with it in its matrices"},
    {"greedy", "run.greedy", 'g', RN_OPTION_BOOL, false, "run", "false", NULL, NULL,
     "always the likeliest token (--temperature 0)"},
    {"temperature", "run.temperature", 0, RN_OPTION_NUMBER, false, "run", "0.8", "X", NULL,
     "above 1 bolder, below 1 more careful, 0 greedy"},
    {"top-k", "run.top_k", 0, RN_OPTION_COUNT, false, "run", "40", "N", NULL,
     "only the N likeliest tokens; 0 means all"},
    {"top-p", "run.top_p", 0, RN_OPTION_NUMBER, false, "run", "0.95", "X", NULL,
     "only the likeliest tokens that together reach X; 1 means all"},
    {"min-p", "run.min_p", 0, RN_OPTION_NUMBER, false, "run", "0.05", "X", NULL,
     "only tokens at least X times as likely as the likeliest; 0 means all"},
    {"repetition-penalty", "run.repetition_penalty", 0, RN_OPTION_NUMBER, false, "run", "1", "X",
     NULL, "above 1: tokens of the text so far become less likely"},
    {"presence-penalty", "run.presence_penalty", 0, RN_OPTION_NUMBER, false, "run", "0", "X", NULL,
     "taken off the logit of a token that was there"},
    {"frequency-penalty", "run.frequency_penalty", 0, RN_OPTION_NUMBER, false, "run", "0", "X",
     NULL, "the same, for each time that it was there"},
    {"penalty-window", "run.penalty_window", 0, RN_OPTION_COUNT, false, "run", "0", "N", NULL,
     "tokens back that penalties look at; 0 means all"},
    {"seed", "run.seed", 's', RN_OPTION_COUNT, false, "run train", "1", "N", NULL,
     "the same seed gives the same text, at every budget (on a GPU with --exact); run draws one\n"
     "unless it is given"},
    {"stop", "run.stop", 0, RN_OPTION_LIST, false, "run", NULL, "TEXT", NULL,
     "stop before this text; may be repeated"},
    {"logit-bias", "run.logit_bias", 0, RN_OPTION_LIST, false, "run", NULL, "ID=X", NULL,
     "add X to a token's logit, never: forbid it; may be repeated"},
    {"logprobs", "run.logprobs", 0, RN_OPTION_COUNT, false, "run", "0", "N", NULL,
     "with --json: the N likeliest tokens at each place"},
    {"ctx", "run.ctx", 0, RN_OPTION_COUNT, false, "run plan serve embed compile", "0", "N", NULL,
     "tokens of prompt and answer; 0: what the model was trained for, at most 4096"},
    {"truncate", "run.truncate", 0, RN_OPTION_BOOL, false, "run", "false", NULL, NULL,
     "cut the beginning of a prompt that is too long, instead of refusing it"},
    {"kv", "run.kv", 0, RN_OPTION_CHOICE, false, "run plan serve compile", "f16", "TYPE",
     "f16|f32|int8", "how keys and values are kept; int8 rounds them"},
    {"kv-page", "run.kv_page", 0, RN_OPTION_COUNT, false, "run plan serve compile", "64", "N", NULL,
     "tokens of a page of the KV cache"},
    {"kv-pages", "run.kv_pages", 0, RN_OPTION_COUNT, false, "run plan serve compile", "0", "N",
     NULL, "pages of the KV cache; 0: as many as the context needs"},
    {"chunk", "run.chunk", 0, RN_OPTION_COUNT, false, "run plan serve embed compile", "512", "N",
     NULL, "prompt tokens at once, at most; a small budget takes fewer"},
    {"keep", "run.keep", 0, RN_OPTION_LIST, false, "run plan embed", NULL, "PATTERN", NULL,
     "weights with such names stay in memory ('*' and '?' match); may be repeated"},
    {"offload", "run.offload", 0, RN_OPTION_LIST, false, "run plan embed", NULL, "PATTERN", NULL,
     "weights with such names do not, but for those to keep: they are brought in every run"},
    {"resident-blocks", "run.resident_blocks", 0, RN_OPTION_COUNT, false, "run plan embed", "0",
     "N", NULL,
     "the weights of at most N blocks (layers) stay; 0: of as many as the budget allows"},
    {"activations", "run.activations", 0, RN_OPTION_CHOICE, false, "run plan serve embed compile",
     "int8", "TYPE", "int8|f32", "what quantised weights are multiplied with"},
    {"speculate", "run.speculate", 0, RN_OPTION_CHOICE, false, "run plan serve", "auto", "WHEN",
     "auto|never|always", "check guessed tokens several a pass; the output stays the same"},
    {"audit", "run.audit", 0, RN_OPTION_BOOL, false, "run embed", "false", NULL, NULL,
     "count the bytes in use at every step, from the kernels' own arguments"},
    {"quiet", "run.quiet", 'q', RN_OPTION_BOOL, false, "run embed train", "false", NULL, NULL,
     "nothing but the text: no plan, no table"},
    {"model", "serve.model", 0, RN_OPTION_TEXT, false, "serve", NULL, "PATH", NULL,
     "the model, where none stands on the command line"},
    {"host", "serve.host", 0, RN_OPTION_TEXT, false, "serve", "127.0.0.1", "ADDRESS", NULL,
     "where to listen; 0.0.0.0 or :: is every network"},
    {"port", "serve.port", 0, RN_OPTION_COUNT, false, "serve", "8000", "N", NULL,
     "the port; 0 takes any and says which"},
    {"device", "device", 0, RN_OPTION_TEXT, false,
     "run plan calibrate serve embed compile bench train", NULL, "LIST", NULL,
     "what to run on, or measure, tried in this order: cpu, cuda:0, xla:cpu, xla:cuda, neuron:0, "
     "ort, auto (the first GPU, then the CPU), sim (for tests); with commas [serve: auto; else "
     "cpu]"},
    {"rates", "rates", 0, RN_OPTION_CHOICE, false, "run plan serve embed compile train", "measured",
     "HOW", "measured|guessed",
     "what predicted times follow from: rates of ration calibrate, or where there are none "
     "measured "
     "for a tenth of a second; or the same guesses on every machine"},
    {"fallback", "serve.fallback", 0, RN_OPTION_BOOL, false, "run plan serve embed compile train",
     "true", NULL, NULL, "where a device fails, try the next; --no-fallback refuses instead"},
    {"parallel", "serve.parallel", 0, RN_OPTION_COUNT, false, "serve compile", "8", "N", NULL,
     "answers made at once; compile makes the programs of such a server where it is given"},
    {"max-tokens", "serve.max_tokens", 0, RN_OPTION_COUNT, false, "serve", "1024", "N", NULL,
     "tokens of an answer, at most"},
    {"max-gap", "serve.max_gap", 0, RN_OPTION_TEXT, false, "serve", "500ms", "TIME", NULL,
     "between two tokens of a running answer while prompts are read, at most, as far as steps of "
     "tokens alone are not longer; 0: no limit"},
    {"waiting", "serve.waiting", 0, RN_OPTION_COUNT, false, "serve", "128", "N", NULL,
     "requests in the queue, at most; more are refused with 429"},
    {"connections", "serve.connections", 0, RN_OPTION_COUNT, false, "serve", "2048", "N", NULL,
     "at once, at most"},
    {"per-address", "serve.per_address", 0, RN_OPTION_TEXT, false, "serve", "auto", "N", NULL,
     "connections of one address, and requests under way of one key or address, at most; auto: "
     "three quarters of all, 0: all"},
    {"host-name", "serve.host_name", 0, RN_OPTION_LIST, false, "serve", NULL, "NAME", NULL,
     "a name that this machine's browsers know the server by, beside localhost; may be repeated"},
    {"prefix-cache", "serve.prefix_cache", 0, RN_OPTION_CHOICE, false, "serve", "key", "WHO",
     "key|all|off", "prompts that begin alike share KV pages: those of one API key, all, or none"},
    {"max-body", "serve.max_body", 0, RN_OPTION_SIZE, false, "serve", "1MiB", "SIZE", NULL,
     "of one request, at most"},
    {"request-memory", "serve.request_memory", 0, RN_OPTION_SIZE, false, "serve", "16MiB", "SIZE",
     NULL, "for the texts of all requests together: bodies, prompts, answers"},
    {"idle-timeout", "serve.idle_timeout", 0, RN_OPTION_TEXT, false, "serve", "60s", "TIME", NULL,
     "then a connection that neither sends nor takes anything is closed, and a stream whose slow "
     "reader keeps others waiting is ended"},
    {"wait-timeout", "serve.wait_timeout", 0, RN_OPTION_TEXT, false, "serve", "10min", "TIME", NULL,
     "then a request that still waits is refused with 503"},
    {"drain", "serve.drain", 0, RN_OPTION_TEXT, false, "serve", "30s", "TIME", NULL,
     "for what runs when SIGTERM comes; a second one ends at once"},
    {"api-key", "serve.api_key", 0, RN_OPTION_LIST, false, "serve", NULL, "KEY", NULL,
     "what clients must send as Bearer token; may be repeated (others see a command line: rather "
     "a file or RATION_API_KEY)"},
    {"api-key-file", "serve.api_key_file", 0, RN_OPTION_TEXT, false, "serve", NULL, "FILE", NULL,
     "keys, one a line"},
    {"tls-cert", "serve.tls_cert", 0, RN_OPTION_TEXT, false, "serve", NULL, "FILE", NULL,
     "a certificate chain in PEM form: HTTPS instead of HTTP"},
    {"tls-key", "serve.tls_key", 0, RN_OPTION_TEXT, false, "serve", NULL, "FILE", NULL,
     "its private key"},
    {"cors", "serve.cors", 0, RN_OPTION_TEXT, false, "serve", NULL, "ORIGIN", NULL,
     "let pages of this origin (or *) ask; off unless given"},
    {"strict-model", "serve.strict_model", 0, RN_OPTION_BOOL, false, "serve", "false", NULL, NULL,
     "refuse requests for a model of another name (404)"},
    {"served-name", "serve.served_name", 0, RN_OPTION_TEXT, false, "serve", NULL, "NAME", NULL,
     "what answers call the model"},
    {"save", "serve.save", 0, RN_OPTION_TEXT, false, "serve compile", NULL, "FOLDER", NULL,
     "write what was compiled there: programs; serve: the plan as well, as plan.json"},
    {"programs", "programs", 0, RN_OPTION_TEXT, false, "run serve embed compile", NULL, "FOLDER",
     NULL,
     "where programs that devices compile (xla, neuron) are kept and found again [ration/programs "
     "in the cache folder; with --save that]"},
    {"profile-folder", "serve.profile_folder", 0, RN_OPTION_TEXT, false, "serve", NULL, "FOLDER",
     NULL, "for recordings that /profile/start asks for; without it a temporary one"},
    {"io-engine", "io_engine", 0, RN_OPTION_CHOICE, false, "convert", "auto", "ENGINE",
     "auto|uring|threads", "how files are read"},
    {"to", "convert.to", 0, RN_OPTION_TARGET, false, "convert", NULL, "TYPE", NULL,
     "f32, f16, bf16, f8_e4m3, f8_e5m2, int8, int4, nf4; into GGUF q8_0, q4_0, mxfp4 and "
     "llama.cpp's "
     "file types: q2_k, q3_k_s|m|l, q4_k_s|m, q5_k_s|m, q6_k, q4_1, q5_0, q5_1, iq4_nl, iq4_xs"},
    {"opset", "convert.opset", 0, RN_OPTION_COUNT, false, "convert", "0", "N", NULL,
     "of an ONNX model that is written: 18 to 27; 0 means 21"},
    {"imatrix", "convert.imatrix", 0, RN_OPTION_TEXT, false, "convert", NULL, "FILE", NULL,
     "weigh errors by this importance matrix (of llama-imatrix)"},
    {"exclude", "convert.exclude", 'x', RN_OPTION_LIST, false, "convert", NULL, "PATTERN", NULL,
     "leave tensors with such names alone ('*' and '?' match); may be repeated"},
    {"default-excludes", "convert.default_excludes", 0, RN_OPTION_BOOL, false, "convert", "true",
     NULL, NULL, "leave embeddings and norms alone when quantising"},
    {"verbose", "convert.verbose", 'v', RN_OPTION_BOOL, false, "convert", "false", NULL, NULL,
     "print a line for every tensor"},
    {"sort", "inspect.sort", 's', RN_OPTION_CHOICE, false, "inspect", "file", "BY",
     "file|name|size|dtype", "order of the tensors"},
    {"filter", "inspect.filter", 'f', RN_OPTION_LIST, false, "inspect", NULL, "PATTERN", NULL,
     "only tensors with such names ('*' and '?' match); may be repeated"},
    {"limit", "inspect.limit", 'n', RN_OPTION_COUNT, false, "inspect", "0", "N", NULL,
     "print at most N tensors; 0 means all"},
    {"metadata", "inspect.metadata", 'm', RN_OPTION_BOOL, false, "inspect", "false", NULL, NULL,
     "print the files' metadata, too"},
    {"capacity", "place.capacity", 0, RN_OPTION_SIZE, false, "place", NULL, "SIZE", NULL,
     "bytes that the buffers must fit; without it, as few as possible"},
    {"time", "place.time", 0, RN_OPTION_COUNT, false, "place", "30", "SECONDS", NULL,
     "limit of placing, reading not counted; 0 means the quick orders only, without a limit"},
    {"output", "place.output", 'o', RN_OPTION_LIST, false, "place profile embed run bench", NULL,
     "FILE", NULL,
     "where to write: buffers with their offsets as CSV; a page, an export, a recording; "
     "embeddings as .safetensors or .npy; what a model of tensors makes as .npy (NAME=FILE: one of "
     "several outputs; may be repeated)"},
    {"phases", "plan.phases", 0, RN_OPTION_BOOL, false, "plan", "false", NULL, NULL,
     "of MODEL:train: the step and an evaluation of its batch, as phases that share one arena"},
    {"sweep", "plan.sweep", 0, RN_OPTION_FILE, false, "plan bench", NULL, "budget|batch", NULL,
     "one row for each of nine budgets, from the smallest to the roomiest, whatever --budget says; "
     "bench: each "
     "variant at several budgets or batches"},
    {"svg", "plan.svg", 0, RN_OPTION_TEXT, false, "plan", NULL, "FILE", NULL,
     "draw the arena, address by step; - is standard output"},
    {"html", "plan.html", 0, RN_OPTION_TEXT, false, "plan bench", NULL, "FILE", NULL,
     "the same as a page to zoom in; bench: a page with pictures and a table that sorts"},
    {"exact", "plan.exact", 0, RN_OPTION_BOOL, false, "plan run serve train", "false", NULL, NULL,
     "forbid moves that round otherwise (micro-batches; the CPU's share of a GPU's work)"},
    {"allow-lossy", "plan.allow_lossy", 0, RN_OPTION_BOOL, false, "plan", "false", NULL, NULL,
     "allow moves that change the result (micro-batches with batch statistics)"},
    {"at", "", 0, RN_OPTION_TEXT, false, "profile", NULL, "TIME", NULL,
     "report: what was live then (1.5s, 200ms) instead of at the peak"},
    {"rows", "profile.rows", 'n', RN_OPTION_COUNT, false, "profile", "10", "N", NULL,
     "report: rows of each table"},
    {"diff", "", 0, RN_OPTION_BOOL, false, "profile", "false", NULL, NULL,
     "report: what changed from one recording to another"},
    {"format", "profile.format", 0, RN_OPTION_CHOICE, false, "profile", "json", "FORM",
     "json|chrome|torch|csv|prometheus|pprof|html", "export: whose form"},
    {"serve", "profile.serve", 0, RN_OPTION_BOOL, false, "profile", "false", NULL, NULL,
     "view: serve the page on the loopback address, whatever browsers there are"},
    {"view-port", "profile.view_port", 0, RN_OPTION_COUNT, false, "profile", "0", "N", NULL,
     "view: the port; 0 takes any"},
    {"allocations", "profile.allocations", 0, RN_OPTION_CHOICE, false, "profile", "tensors",
     "WHICH", "tensors|all", "run: aligned or large blocks, or every one"},
    {"disk", "calibrate.disk", 0, RN_OPTION_TEXT, false, "calibrate", NULL, "FOLDER", NULL,
     "measure the disk that this folder is on; without it, the cache folder's"},
};

size_t rn_option_count(void) {
    return sizeof table / sizeof *table;
}

const rn_option *rn_option_at(size_t index) {
    return index < rn_option_count() ? &table[index] : NULL;
}

const rn_option *rn_option_find(rn_str name) {
    for (size_t i = 0; i < rn_option_count(); i++)
        if (rn_str_equal(name, rn_str_from(table[i].name)) ||
            (table[i].key[0] && rn_str_equal(name, rn_str_from(table[i].key))))
            return &table[i];
    return NULL;
}

// Edits (insert, delete, replace) between two words, at most `limit` + 1.
static size_t edit_distance(rn_str a, rn_str b, size_t limit) {
    size_t row[64];
    if (a.bytes >= 64 || b.bytes >= 64) return limit + 1;
    for (size_t j = 0; j <= b.bytes; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.bytes; j++) {
            size_t replace = diagonal + (a.data[i - 1] != b.data[j - 1]);
            diagonal = row[j];
            size_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replace < shift ? replace : shift;
        }
    }
    return row[b.bytes] < limit ? row[b.bytes] : limit + (row[b.bytes] > limit);
}

bool rn_option_is_for(const rn_option *option, const char *command) {
    if (option->commands[0] == '\0' || command[0] == '\0') return true;
    size_t length = strlen(command);
    for (const char *at = option->commands; (at = strstr(at, command)); at += length) {
        bool begins = at == option->commands || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0')) return true;
    }
    return false;
}

const char *rn_option_suggest(rn_str name, const char *command) {
    const char *best = NULL;
    size_t least = name.bytes < 4 ? 2 : name.bytes < 6 ? 3 : 4; // closer than this
    for (size_t i = 0; i < rn_option_count(); i++) {
        if (command && !rn_option_is_for(&table[i], command)) continue;
        const char *candidate = command ? table[i].name : table[i].key;
        size_t distance = edit_distance(name, rn_str_from(candidate), least);
        if (distance < least && candidate[0]) {
            least = distance;
            best = candidate;
        }
    }
    return best;
}
