# tidelog's recipes; `make help` lists them.

ifeq ($(strip $(HOME)),)
CARGO_TARGET_DIR ?= $(CURDIR)/target
else
CARGO_TARGET_DIR ?= $(HOME)/.cache/tidelog-target
endif
export CARGO_TARGET_DIR

# RocksDB is C++, which `setup` compiles once for all recipes (.ci/rocksdb says how, and when not).
CARGO ?= cargo
WITH_ROCKSDB := bash .ci/rocksdb with
BUILD := $(WITH_ROCKSDB) $(CARGO)
# One set of features for all that is built of the workspace, so that one build serves tests and examples.
WORKSPACE := --workspace --features tidelog/test-util
# Checking and documenting link nothing: a folder that is named keeps RocksDB from being compiled.
WITHOUT_LIBRARY := env -u ROCKSDB_STATIC ROCKSDB_LIB_DIR=/nonexistent
OLDEST_RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
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
	lint doc fuzz shake bench check-rocksdb check-oldest-rust check-docs-rs check-package \
	check-semver public-api check-public-api

help: ## list the recipes
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 30

setup: ## install what a fresh Debian with Rust lacks, and compile RocksDB: 5 CPU minutes, once
	@bash .ci/setup

# Both in one build, and with a profile that compiles fastest: it is the first thing that newcomers run.
demo: setup ## the engine, then the broker: several partitions in one transaction, and read back
	$(BUILD) build --profile demo --workspace --example atomic_multi_partition --example demo
	$(CARGO_TARGET_DIR)/demo/examples/atomic_multi_partition
	$(CARGO_TARGET_DIR)/demo/examples/demo

test: setup test-default test-examples test-without-rocksdb test-fuzz-corpora ## all tests

test-default:
	$(BUILD) test $(WORKSPACE) --no-fail-fast

# The tests above have built them.
test-examples:
	$(BUILD) build --quiet $(WORKSPACE) --examples
	set -e; for example in $(EXAMPLES); do \
		echo "example $$example"; $(CARGO_TARGET_DIR)/debug/examples/$$example; done

test-without-rocksdb:
	$(CARGO) test --package tidelog $(WITHOUT_ROCKSDB) --lib --test engine --test records \
		--test store

test-fuzz-corpora:
ifneq ($(HAS_FUZZ),)
	$(BUILD) test --manifest-path fuzz/Cargo.toml
endif

lint: setup ## formatting and clippy, with warnings as errors, with RocksDB and without
	$(CARGO) fmt --all --check
	$(BUILD) clippy $(WORKSPACE) --all-targets $(DENY_WARNINGS)
	$(CARGO) clippy --package tidelog --all-targets $(WITHOUT_ROCKSDB) $(DENY_WARNINGS)
ifneq ($(HAS_FUZZ),)
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --all --check
	$(BUILD) clippy --manifest-path fuzz/Cargo.toml $(DENY_WARNINGS)
endif

doc: setup ## the documentation of the public interface, with warnings as errors
	RUSTDOCFLAGS="--deny warnings" $(BUILD) doc $(WORKSPACE) --no-deps

# What is found goes to fuzz/artifacts, inputs that reach something new to fuzz/target: the seeds
# stay as they are. No code of ours is unsafe, so a sanitizer would mostly take time.
fuzz: setup ## fuzz: TARGET=name (all of them without it), SECONDS=60 each; needs nightly and cargo-fuzz
	set -e; for target in $(TARGET); do \
		echo "fuzzing $$target for $(SECONDS) s"; \
		dictionary=; [ ! -f fuzz/$$target.dict ] || dictionary=-dict=fuzz/$$target.dict; \
		mkdir -p fuzz/target/corpus/$$target; \
		$(BUILD) +nightly fuzz run --sanitizer $(SANITIZER) --features libfuzzer $$target \
			fuzz/target/corpus/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=2048 $$dictionary; done

shake: setup ## the tests while the order of their threads is shaken: TEST="commit space/reuse" (or all), ROUNDS=20
	$(WITH_ROCKSDB) bash tests/shake/run.sh $(ROUNDS) $(TEST)

bench: setup ## the benchmarks; TIDELOG_BENCH_DIR names a directory on the disk to be measured
	$(BUILD) bench --package tidelog --bench '*'

check-rocksdb: setup ## compile RocksDB the crate's own way as well (35 CPU minutes), and compare the symbols
	bash .ci/rocksdb compare

check-oldest-rust: ## the workspace as it ships compiles with the oldest Rust that Cargo.toml names
	@if rustup toolchain list 2>/dev/null | grep -q '^$(OLDEST_RUST)-'; then \
		$(WITHOUT_LIBRARY) $(CARGO) +$(OLDEST_RUST) check --locked --workspace; \
	else \
		echo "Rust $(OLDEST_RUST) is not installed: the check is made with $$(rustc --version)"; \
		$(BUILD) check --locked --workspace; fi

check-docs-rs: ## the documentation as docs.rs makes it: all features with labels, no C++; needs nightly
	@if $(CARGO) +nightly --version >/dev/null 2>&1; then \
		RUSTDOCFLAGS="--cfg docsrs --deny warnings" $(WITHOUT_LIBRARY) \
			$(CARGO) +nightly doc --workspace --all-features --no-deps; \
	else \
		echo "nightly Rust is missing: the documentation was not made as docs.rs makes it"; fi

check-package: setup ## the packages of both crates, compiled from what would be published
	$(BUILD) package --locked --workspace

# The first tag of a release is what later ones are compared with.
check-semver: setup ## no change of the engine breaks what the last release promised; needs cargo-semver-checks
	@release="$$(git tag --list 'v[0-9]*' --sort=-version:refname | head -n 1)"; \
	if [ -z "$$release" ]; then \
		echo "there is no release yet that the public surface could be compared with"; \
	elif ! command -v cargo-semver-checks >/dev/null; then \
		echo "cargo-semver-checks is missing: the surface was not compared with $$release"; \
	else \
		$(BUILD) semver-checks --package tidelog --baseline-rev "$$release"; fi

public-api: ## write the public surface of the engine to docs/public-api
	bash .ci/public-api write

check-public-api: ## the public surface of the engine is the one in docs/public-api
	bash .ci/public-api check
