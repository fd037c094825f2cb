# tidelog's recipes; `make help` lists them.

ifeq ($(strip $(HOME)),)
CARGO_TARGET_DIR ?= $(CURDIR)/target
else
CARGO_TARGET_DIR ?= $(HOME)/.cache/tidelog-target
endif
export CARGO_TARGET_DIR

# RocksDB is C++: through the compiler cache, with the same flags in every profile, it is compiled once.
# Looked up for each recipe, because `setup` may just have installed the cache.
CACHE = $(if $(shell command -v ccache 2>/dev/null),ccache )
ifeq ($(origin CC),default)
export CC = $(CACHE)cc
endif
ifeq ($(origin CXX),default)
export CXX = $(CACHE)c++
endif
# Each run of Cargo has another output directory; the cache does not look at it.
export CCACHE_NOHASHDIR := 1

CARGO ?= cargo
WITHOUT_ROCKSDB := --no-default-features --features test-util,gzip,snappy,lz4,zstd
DENY_WARNINGS := -- --deny warnings
EXAMPLES = $(basename $(notdir $(wildcard examples/*.rs)))
TARGETS = $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
HAS_FUZZ = $(wildcard fuzz/Cargo.toml)

# What `make fuzz` runs, and for how long each.
TARGET ?= $(TARGETS)
SECONDS ?= 60
SANITIZER ?= none

# What `make shake` runs, and how often each.
TEST ?=
ROUNDS ?= 20

.PHONY: help setup demo test test-default test-examples test-without-rocksdb test-fuzz-corpora \
	lint doc fuzz shake bench

help: ## list the recipes
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 30

setup: ## install what a fresh Debian with Rust lacks for compiling RocksDB
	@bash .ci/setup

demo: setup ## the engine, then the broker: several partitions in one transaction, and read back
	$(CARGO) run --release --example atomic_multi_partition
	$(CARGO) run --release --package tidelog-broker --example demo

test: setup test-default test-examples test-without-rocksdb test-fuzz-corpora ## all tests

test-default:
	$(CARGO) test --workspace --features tidelog/test-util --no-fail-fast

test-examples:
	set -e; for example in $(EXAMPLES); do \
		echo "example $$example"; $(CARGO) run --quiet --example $$example; done

test-without-rocksdb:
	$(CARGO) test --package tidelog $(WITHOUT_ROCKSDB) --lib --test engine --test records \
		--test store

test-fuzz-corpora:
ifneq ($(HAS_FUZZ),)
	$(CARGO) test --manifest-path fuzz/Cargo.toml
endif

lint: setup ## formatting and clippy, with warnings as errors, with RocksDB and without
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features tidelog/test-util $(DENY_WARNINGS)
	$(CARGO) clippy --package tidelog --all-targets $(WITHOUT_ROCKSDB) $(DENY_WARNINGS)
ifneq ($(HAS_FUZZ),)
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --all --check
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml $(DENY_WARNINGS)
endif

doc: setup ## the documentation of the public interface, with warnings as errors
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps

# What is found goes to fuzz/artifacts, inputs that reach something new to fuzz/target: the seeds
# stay as they are. No code of ours is unsafe, so a sanitizer would mostly take time.
fuzz: ## fuzz: TARGET=name (all of them without it), SECONDS=60 each; needs nightly and cargo-fuzz
	set -e; for target in $(TARGET); do \
		echo "fuzzing $$target for $(SECONDS) s"; \
		dictionary=; [ ! -f fuzz/$$target.dict ] || dictionary=-dict=fuzz/$$target.dict; \
		mkdir -p fuzz/target/corpus/$$target; \
		$(CARGO) +nightly fuzz run --sanitizer $(SANITIZER) --features libfuzzer $$target \
			fuzz/target/corpus/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=2048 $$dictionary; done

shake: setup ## the tests while the order of their threads is shaken: TEST="commit space/reuse" (or all), ROUNDS=20
	bash tests/shake/run.sh $(ROUNDS) $(TEST)

bench: setup ## the benchmarks; TIDELOG_BENCH_DIR names a directory on the disk to be measured
	$(CARGO) bench --package tidelog --bench '*'
