# Two commands do everything on a fresh machine: `make run` and `make test`. The others are their parts.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET := $(or $(CARGO_TARGET_DIR),target)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pilothouse
PLUGINS := chaos-pod config-map egapp pod-replica postgres-cluster website
PROGRAMS := $(addprefix --package ,pilothouse pilothouse-harness pilothouse-componentize pilothouse-docs)
WASM := wasm32-unknown-unknown

CARGO_COMPONENT_VERSION := 0.21.1
CARGO_DENY_VERSION := 0.20.2
CARGO_COMPONENT := $(CACHE)/cargo-component-$(CARGO_COMPONENT_VERSION)/bin/cargo-component
CARGO_DENY := $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny
export CARGO_COMPONENT

.PHONY: help
help: ## Show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: run
run: plugins ## Start a control plane and the host, apply the sample, show what appears
	deploy/local/run.sh $(TARGET)

.PHONY: stop
stop: build ## End what `make run` started
	deploy/local/stop.sh $(TARGET)

# One call for all programs: called apart, each would compile the dependencies anew with features of its own.
.PHONY: build
build: ## The host, target/release/pilothouse, and the programs beside it
	cargo build --release --locked --bins $(PROGRAMS)

.PHONY: wasm-target
wasm-target:
	@for target in $(WASM) wasm32-wasip1; do \
	  [[ -d $$(rustc --print sysroot)/lib/rustlib/$$target ]] || rustup target add $$target; \
	done

.PHONY: plugins
plugins: build wasm-target ## All plugins as components: target/plugins/NAME.wasm
	cargo build --profile guest --locked --target $(WASM) $(addprefix --package ,$(PLUGINS))
	$(TARGET)/release/pilothouse-componentize --out $(TARGET)/plugins \
	  $(foreach plugin,$(PLUGINS),$(TARGET)/$(WASM)/guest/$(subst -,_,$(plugin)).wasm)

.PHONY: plugins-python
plugins-python: ## Plugins in Python, too; needs Python 3.11
	guest-sdk/build-plugins.sh python $(TARGET)

.PHONY: plugins-javascript
plugins-javascript: ## Plugins in JavaScript, too; needs Node 20.19
	guest-sdk/build-plugins.sh javascript $(TARGET)

.PHONY: plugins-go
plugins-go: build ## Plugins in Go, too; needs Go 1.24
	guest-sdk/build-plugins.sh go $(TARGET)

.PHONY: control-plane
control-plane: ## etcd and Kubernetes for tests and `make run`, built once into the user's cache
	tests/cluster/build.sh

.PHONY: generate
generate: plugins ## Files in deploy/, guest-sdk/ and docs/ that programs print
	deploy/generate.sh $(TARGET) deploy
	guest-sdk/generate.sh $(TARGET)
	$(TARGET)/release/pilothouse-docs docs

.PHONY: deploy-plugin
deploy-plugin: plugins ## The PostgresCluster plugin as a ConfigMap: target/deploy/postgres-cluster.yaml
	mkdir -p $(TARGET)/deploy
	$(TARGET)/release/pilothouse package $(TARGET)/plugins/postgres-cluster.wasm \
	  --configmap postgres-cluster --namespace pilothouse-system > $(TARGET)/deploy/postgres-cluster.yaml
	@echo "kubectl apply --server-side -f $(TARGET)/deploy/postgres-cluster.yaml"

.PHONY: image
image: ## The host's image, from one static binary and nothing else
	deploy/images/host/build.sh $(TARGET)

.PHONY: check
check: wasm-target $(CARGO_DENY) ## Format, lints, docs, licences
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets --all-features -- --deny warnings
	cargo clippy --profile guest --locked --target $(WASM) $(addprefix --package ,$(PLUGINS)) -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --release --locked --workspace --no-deps --document-private-items
	$(CARGO_DENY) --locked check bans licenses sources

.PHONY: test
test: plugins plugins-python plugins-javascript plugins-go control-plane $(CARGO_COMPONENT) ## Every test but the long ones; the last line counts them
	tests/run.sh

.PHONY: test-faults
test-faults: plugins control-plane ## The long fault tests: the host killed and cut off many times
	tests/run.sh --faults

.PHONY: bench
bench: bench-programs ## Measure, print the tables, and fail if the host is behind its bars
	PILOTHOUSE_BIN=$(abspath $(TARGET))/dist/pilothouse $(TARGET)/release/bench

.PHONY: bench-peers
bench-peers: bench-programs ## The part of it that compares with other operators
	PILOTHOUSE_BIN=$(abspath $(TARGET))/dist/pilothouse $(TARGET)/release/bench-peers

.PHONY: bench-programs
bench-programs: plugins plugins-python plugins-javascript plugins-go control-plane
	cargo build --release --locked --bins $(PROGRAMS) --package pilothouse-bench
	cargo build --profile dist --locked --package pilothouse --bins
	cargo build --profile guest --locked --target $(WASM) --package pod-replica --features whole-pods \
	  --target-dir $(TARGET)/bench
	$(TARGET)/release/pilothouse-componentize --out $(TARGET)/bench $(TARGET)/bench/$(WASM)/guest/pod_replica.wasm

.PHONY: clean
clean: ## Remove what was built here; the cache in ~/.cache/pilothouse stays
	cargo clean

$(CARGO_COMPONENT):
	cargo install cargo-component --locked --version $(CARGO_COMPONENT_VERSION) \
	  --root $(CACHE)/cargo-component-$(CARGO_COMPONENT_VERSION)

$(CARGO_DENY):
	cargo install cargo-deny --locked --version $(CARGO_DENY_VERSION) --root $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)
