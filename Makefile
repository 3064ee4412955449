# Thin: every target is a line or two over CMakePresets.json and scripts/.
PREFIX ?= /usr/local

.PHONY: help bootstrap build cuda demo demo-train demo-image test test-full quick check format report bench bench-llm bench-profile bench-gpu bench-serve fuzz tsan coverage install clean

help:
	@echo 'ration: models inside a memory budget'
	@echo
	@echo '  make build      release build: build/release/bin/ration'
	@echo '  make cuda       the same with kernels for NVIDIA GPUs, and all tests: build/cuda (needs nvcc)'
	@echo '  make demo       a model of 512 MiB tells a story within 128 MiB'
	@echo '  make demo-train the built-in story teller learns other stories'
	@echo '  make demo-image a small picture model draws within less than its weights'
	@echo '  make test       debug build with ASan + UBSan, all tests but the long ones, and TSan for threads'
	@echo '  make test-full  the long ones, too'
	@echo '  make quick      the tests of one layer, built for them alone: LAYER=plan'
	@echo '  make check      format, lint, include arrows, ops, names, longest functions'
	@echo '  make format     rewrite the sources as make check wants them'
	@echo '  make bench      speed and memory beside peers and limits, in one run'
	@echo '  make bench-llm  text models beside llama.cpp: PEER=/path/to/llama-bench [PEER_WITHOUT_REPACK=...]'
	@echo '  make bench-profile  what recording costs, and the page of a million events: [MODEL=FILE] [PYTHON=...]'
	@echo '  make bench-gpu  one NVIDIA GPU: tests, limits, models (build/cuda): [BENCH_FLAGS=...]'
	@echo '  make bench-serve  the server beside llama-server: PEER=/path/to/llama-server MODEL=FILE [TINY=FILE]'
	@echo '  make fuzz       each fuzzer for a minute (SECONDS_EACH=60)'
	@echo '  make coverage   line coverage of the tests'
	@echo '  make install    PREFIX=$(PREFIX), DESTDIR'
	@echo '  make clean      remove build/'

bootstrap:
	@scripts/bootstrap build

build: bootstrap
	@cmake --preset release > /dev/null
	@cmake --build --preset release

cuda: bootstrap
	@scripts/bootstrap test
	@cmake --preset cuda > /dev/null
	@cmake --build --preset cuda

demo: build
	@scripts/demo

demo-train: build
	@scripts/demo-train

demo-image: build
	@scripts/demo-image

test:
	@scripts/bootstrap build test
	@scripts/test quick

test-full:
	@scripts/bootstrap build test
	@scripts/bootstrap page || echo 'no browser: pages are not tested'
	@scripts/test full

quick:
	@scripts/bootstrap build test
	@scripts/test layer $(or $(LAYER),$(error LAYER=plan, or another folder of tests/unit; conform, golden, budget, cli))

check:
	@scripts/bootstrap build test check
	@scripts/check/all

format:
	@scripts/bootstrap check
	@scripts/check/format --fix

report:
	@scripts/check/lengths

bench: build
	@scripts/bootstrap bench
	@bench/run

bench-llm: build
	@scripts/bootstrap bench
	@bench/llm $(if $(PEER),--peer "$(PEER)") $(if $(PEER_WITHOUT_REPACK),--peer-without-repack "$(PEER_WITHOUT_REPACK)") $(BENCH_FLAGS)

bench-profile: build
	@MODEL="$(MODEL)" PYTHON="$(PYTHON)" bench/profile

bench-gpu:
	@bench/gpu $(BENCH_FLAGS)

bench-serve: build
	@scripts/bootstrap bench
	@bench/serve $(if $(PEER),--peer "$(PEER)") $(if $(MODEL),--model "$(MODEL)") $(if $(TINY),--tiny "$(TINY)") $(BENCH_FLAGS)

fuzz:
	@scripts/bootstrap build fuzz
	@cmake --preset fuzz > /dev/null
	@cmake --build --preset fuzz
	@tests/fuzz/run $(or $(SECONDS_EACH),60)

coverage:
	@scripts/bootstrap build test
	@cmake --preset cov > /dev/null && cmake --build --preset cov && ctest --preset cov
	@scripts/coverage

install: build
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix $(PREFIX)

clean:
	@rm -rf build
