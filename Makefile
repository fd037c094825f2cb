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

.PHONY: help setup demo test test-default test-examples test-without-rocksdb test-fuzz-corpora \
	lint doc fuzz bench

help: ## list the recipes
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 30

setup: ## install what a fresh Debian with Rust lacks for compiling RocksDB
	@bash .ci/setup

demo: setup ## append to several partitions in one transaction, and read it back after a reopen
	$(CARGO) run --release --example atomic_multi_partition

test: setup test-default test-examples test-without-rocksdb test-fuzz-corpora ## all tests

test-default:
	$(CARGO) test --workspace

test-examples:
	set -e; for example in $(EXAMPLES); do \
		echo "example $$example"; $(CARGO) run --quiet --example $$example; done

test-without-rocksdb:
	$(CARGO) test --package tidelog $(WITHOUT_ROCKSDB)

test-fuzz-corpora:
ifneq ($(HAS_FUZZ),)
	$(CARGO) test --manifest-path fuzz/Cargo.toml
endif

lint: setup ## formatting and clippy, with warnings as errors, with RocksDB and without
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(DENY_WARNINGS)
	$(CARGO) clippy --package tidelog --all-targets $(WITHOUT_ROCKSDB) $(DENY_WARNINGS)
ifneq ($(HAS_FUZZ),)
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --all --check
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml $(DENY_WARNINGS)
endif

doc: setup ## the documentation of the public interface, with warnings as errors
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps

fuzz: ## fuzz: TARGET=name (all of them without it), SECONDS=60 each; needs nightly and cargo-fuzz
	set -e; for target in $(TARGET); do \
		echo "fuzzing $$target for $(SECONDS) s"; \
		dictionary=; [ ! -f fuzz/$$target.dict ] || dictionary=-dict=fuzz/$$target.dict; \
		$(CARGO) +nightly fuzz run --features libfuzzer $$target -- \
			-max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=2048 $$dictionary; done

bench: setup ## the benchmarks; TIDELOG_BENCH_DIR names a directory on the disk to be measured
	$(CARGO) bench --package tidelog --bench '*'
