# `make` alone says what there is. Needs: cargo (rustup), python3 >= 3.11; `make setup` installs or names the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .local/venv
PYTHON := $(VENV)/bin/python
STACK := $(PYTHON) tests/stack/stack.py
# sam asks for the lints that cfn-lint also has; neither looks at the developer's AWS profile
TOOLS := env PATH="$(CURDIR)/$(VENV)/bin:$$PATH" AWS_DEFAULT_REGION=us-east-1 SAM_CLI_TELEMETRY=0

# One set of packages, features and profile for everything local: cargo then builds each dependency once.
LOCAL := --profile quick --workspace --features crash-points
FUNCTIONS := $(notdir $(patsubst %/Cargo.toml,%,$(wildcard functions/*/Cargo.toml)))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what is missing (python tools into .local/venv, Debian's redis-server), or name it
	@python3 tests/stack/stack.py setup

# the verbs below need the tools, not the looking whether anything else is missing
$(PYTHON):
	@$(MAKE) setup

.PHONY: build
build: ## build the functions, as the local stack runs them, the demos and `hotcake`
	@cargo build $(LOCAL) --bins

.PHONY: up
up: setup build ## start the local stack and deploy to it; again after a change, to run the new code
	@$(STACK) up

.PHONY: down
down: | $(PYTHON) ## stop the local stack
	@$(STACK) down

.PHONY: demo
demo: demo-size up ## a storm of buyers who pay, and a verdict: BUYERS=2000 STOCK=100 ...
	@target/quick/load

.PHONY: demo-chat
demo-chat: demo-chat-size up ## a day at the customer service, and a verdict: CUSTOMERS=12 AGENTS=3 ...
	@target/quick/desk

# as the demos themselves have it (tests/load/src/settings.rs, tests/load/src/bin/desk/settings.rs), but before minutes of building
.PHONY: demo-size
demo-size:
	@within() { [[ "$$2" =~ ^[1-9][0-9]{0,5}$$ ]] && (( $$2 <= $$3 )) || { echo "error: $$1 is 1 to $$3, not '$$2'" >&2; exit 2; }; }; \
	within BUYERS "$${BUYERS-2000}" 20000; within STOCK "$${STOCK-100}" 100000

.PHONY: demo-chat-size
demo-chat-size:
	@within() { [[ "$$2" =~ ^[1-9][0-9]{0,2}$$ ]] && (( $$2 >= $$3 && $$2 <= $$4 )) || { echo "error: $$1 is $$3 to $$4, not '$$2'" >&2; exit 2; }; }; \
	customers="$${CUSTOMERS-12}" agents="$${AGENTS-3}"; within CUSTOMERS "$$customers" 3 60; within AGENTS "$$agents" 2 10; \
	(( customers > agents )) || { echo "error: CUSTOMERS ($$customers) must be more than AGENTS ($$agents), or nobody waits" >&2; exit 2; }

.PHONY: test
test: setup build ## all tests; those of the deployed stack run on one of their own
	@HOTCAKE_STATE=target/test-stack $(STACK) run cargo test $(LOCAL) --no-fail-fast

.PHONY: chaos
chaos: setup build ## every fault that the sale has to bear, on a stack of its own: ROWS=buy.after_row,oom picks some
	@python3 tests/stack/stack.py setup --chaos
	@HOTCAKE_STATE=target/chaos-stack $(STACK) run target/quick/chaos

ORDERS ?= 10000
.PHONY: recovery
recovery: setup build ## how long a sale of ORDERS=10000 orders is closed when Redis forgets everything
	@HOTCAKE_STATE=target/chaos-stack $(STACK) run target/quick/chaos recovery $(ORDERS)

SOAK_SECS ?= 90
SOAK_SESSIONS ?= 20
.PHONY: soak
soak: setup build ## customers and agents talk while their connections break, on a stack of its own: SOAK_SECS=90 SOAK_SESSIONS=20
	@HOTCAKE_STATE=target/soak-stack SOAK_SECS=$(SOAK_SECS) SOAK_SESSIONS=$(SOAK_SESSIONS) \
	  $(STACK) run cargo test $(LOCAL) --test desk_live soak:: -- --nocapture

.PHONY: lint
lint: setup ## formatting, clippy, the template
	@cargo fmt --all --check
	@cargo clippy $(LOCAL) --all-targets -- -D warnings
	@# what AWS gets is built without the crash points
	@cargo check --profile quick --workspace --bins
	@$(TOOLS) sam validate --lint
	@$(TOOLS) cfn-lint template.yaml

.PHONY: check
check: lint test ## lint and test

.PHONY: bench
bench: ## what the gate's scripts cost, in instructions beside GET; fails over a goal (needs valgrind)
	@python3 tests/suite/bench/ir_gate.py

.PHONY: sale
sale: | $(PYTHON) ## put up a sale to try things on: SKU s10 in activity a1, open for a day
	@$(STACK) sale

.PHONY: invoke
invoke: | $(PYTHON) ## call one deployed function: F=buy E=events/buy/admit.202.json
	@$(STACK) invoke "$(F)" "$(E)"

.PHONY: token
token: | $(PYTHON) ## a token the local stack accepts: USER=u1 ROLE=user|agent|admin
	@# the shell has a USER of its own, which nobody means
	@$(STACK) token --user "$(if $(filter command,$(origin USER)),$(USER),u1)" --role "$(or $(ROLE),user)"

.PHONY: ops
ops: ## what an operator types, on the local stack: A="audit a1"; A="help" lists the verbs
	@cargo build $(LOCAL) --bins --quiet
	@target/quick/hotcake --local $(A)

.PHONY: logs
logs: | $(PYTHON) ## what a function of the local stack logged: F=buy LINES=100
	@$(STACK) logs "$(F)" --lines $(or $(LINES),100)

.PHONY: deploy
deploy: setup ## build for AWS and deploy; asks for the parameters the first time
	@rustup target add aarch64-unknown-linux-gnu
	@command -v cargo-lambda > /dev/null || $(VENV)/bin/pip install --quiet --disable-pip-version-check cargo-lambda==1.9.2
	@$(TOOLS) sam build
	@if grep -q '^parameter_overrides' samconfig.toml; then $(TOOLS) sam deploy; else $(TOOLS) sam deploy --guided; fi

# What `sam build` calls for each function, with ARTIFACTS_DIR set: BuyFunction -> the crate buy, ChatConnectFunction -> chat-connect.
# All functions are built in one go, so for all but the first there is nothing left to build.
build-%Function:
	@crate=$$(sed -E 's/([a-z])([A-Z])/\1-\2/g' <<< '$*' | tr '[:upper:]' '[:lower:]'); \
	if [ -n "$${HOTCAKE_LOCAL:-}" ]; then cp "target/quick/$$crate" "$(ARTIFACTS_DIR)/bootstrap"; else \
	  cargo lambda build --release --arm64 $(addprefix --package ,$(FUNCTIONS)); \
	  cp "target/lambda/$$crate/bootstrap" "$(ARTIFACTS_DIR)/bootstrap"; fi
