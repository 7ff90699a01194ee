# Toolkeep. `make help` lists the targets.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED ?= 0
# Debugging data, which go test and make build leave out of what they link, takes a fifth of the compiler's time.
# Traces and reports of the race detector do not need it. All targets have the same flags: what one compiled serves the next.
export GOFLAGS := $(GOFLAGS) -gcflags=all=-dwarf=false

.PHONY: help run build console console-fresh console-test console-perf compile deps model quick test check fresh generate generate-code lint fuzz soak registry bench clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

run: build ## build and start Toolkeep on loopback with the example catalogue
	@./bin/toolkeep models install --if-missing --data "$${TOOLKEEP_DATA:-data}" || true
	@./bin/toolkeep serve --examples --data "$${TOOLKEEP_DATA:-data}"

build: ## build bin/toolkeep
	@$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/toolkeep ./cmd/toolkeep

# Toolkeep embeds what is in face/console/dist, so that building it needs no Node.js.
console: ## build the web console (web/) into face/console/dist
	@scripts/console.sh
	@cd web && npm run -s build

console-fresh: # types, lint and unit tests of the console, and that face/console/dist is what web/ builds
	@scripts/console.sh
	@cd web && npm run -s check && npm run -s unit && node build.mjs --check

console-test: ## all browser tests of the console, also those that make test leaves out
	@TOOLKEEP_TEST_ALL=1 $(GOTEST) -count=1 -timeout 15m -v ./toolkeeptest/console -args -all

console-perf: ## measure the console in a browser with 10,000 tools and 100,000 calls
	@TOOLKEEP_TEST_ALL=1 $(GOTEST) -count=1 -timeout 15m -v -tags consoleperf -run TestSpeed ./toolkeeptest/console

compile: # all packages, with the flags of the tests
	@$(SELDOM) $(GO) build ./...

model: ## fetch the embedding model all-MiniLM-L6-v2 into models/
	@scripts/model.sh

# Packages that start goroutines or share state, and all executors; their tests run under the
# race detector. deps_test.go fails where one that starts goroutines or has a mutex is missing.
RACE := . ./access/... ./approval ./audit/... ./catalog ./config ./control/health ./control/nodes ./control/overview ./control/search ./control/servers ./discover ./discover/cache ./discover/minilm ./discover/pgvector \
	./discover/remote ./discover/usage ./egress ./executor/... ./face/... ./inspect ./invoke ./job ./limit/... ./mcp/... ./membership ./node/... ./overlay \
	./redact ./reload ./resultcache ./schema ./secret/... ./sharedcache ./servertest ./store/... ./telemetry ./toolkeeptest ./upstream/...
# Of these, the ones whose dearest tests only compute, in one goroutine, where the race detector finds nothing and takes ten times
# the processor. Such tests stand in files with "//go:build !race", so their packages are tested in both ways. deps_test.go
# compares the list with the files.
BOTH := ./inspect ./redact ./schema ./discover ./discover/usage ./invoke
# Whole-system tests, which make quick leaves out.
SYSTEM := ./toolkeeptest/... ./cmd/... ./store/postgres ./secret/vault ./discover/pgvector
# Those that take longest begin first, so that none of them is left alone at the end. Not
# toolkeeptest/mcp: the conformance suite measures how long clients wait.
LONG := ./toolkeeptest/console ./cmd/toolkeep/crash ./cmd/toolkeep ./catalog/source/openapi ./discover/assembly
LONGRACE := ./toolkeeptest ./store/postgres ./discover/usage ./upstream ./executor/sqltool ./inspect ./invoke ./discover ./job \
	./discover/minilm ./face/rest ./secret/vault ./redact ./schema ./discover/pgvector ./executor/httptool
LONGQUICK := ./upstream ./invoke ./discover/assembly ./catalog/export ./discover ./catalog/source/openapi ./discover/minilm ./mcp ./inspect
# How many packages are tested at once: many tests wait for servers and not for the processor.
# make check vets the tests too.
TESTP ?= 4
# The compiler, the linker and tests under the race detector use a fifth less of the processor if they collect garbage
# less often; tests less so than the tools. Tests that start toolkeep as a process, or measure its heap, set GOGC back.
SELDOM := GOGC=400
GOTEST = $(SELDOM) $(GO) test -exec 'env GOGC=200' -vet=off -p $(TESTP)
# Code of others that only computes; SQLite, for example, is C translated to Go. As used here it starts no goroutine (zstd would
# for a stream with a concurrency above 1) and synchronises by
# mutexes and pools, which stay instrumented; what it keeps by atomics or in a sync.Map it alone reads: what others read so would be
# reported. Instrumenting it too takes twice the processor in tests that use it much.
COMPUTES := modernc.org/sqlite/lib modernc.org/libc modernc.org/memory github.com/santhosh-tekuri/jsonschema/v6/... \
	github.com/kljensen/snowball/... github.com/klauspost/compress/... compress/flate regexp
RACEFLAGS := -race $(foreach p,$(COMPUTES),'-gcflags=$(p)=-race=false -dwarf=false')

deps: # what the tests need; programs among it are compiled with the same flags
	@scripts/test-deps.sh

test: deps ## install what the tests need, then run all tests
	TOOLKEEP_TEST_ALL=1 $(GOTEST) -timeout 20m $(LONG) $(BOTH) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACE) $(LONG))")
	TOOLKEEP_TEST_ALL=1 CGO_ENABLED=1 $(GOTEST) $(RACEFLAGS) -timeout 20m $(LONGRACE) $(RACE)

quick: TESTP = 6
quick: ## vet, and the tests that need no server, without the largest documents and catalogues
	@$(SELDOM) $(GO) vet ./...
	@$(GOTEST) -short -timeout 5m $(LONGQUICK) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(SYSTEM) $(LONGQUICK))")

check: fresh lint console-fresh ## formatting, lint, generated files fresh, go.mod tidy, the console as it is built

# docs/openapi-coverage.md, which takes longest to write, is compared by the test that writes it.
fresh: generate-code ## formatting, generated files fresh, go.mod tidy
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run gofmt -w on these"; exit 1; }
	@git diff --exit-code --stat -- codes_gen.go docs/errors docs/configuration.md docs/operations.md proto/l03v1 || { echo "generated files were stale; commit what make generate wrote"; exit 1; }
	@$(GO) mod tidy -diff

generate: generate-code ## write every file and page that is made from others
	@if [ -d ../shared/data/openapi ]; then UPDATE_GOLDEN=1 $(GO) test -count=1 -run '^TestEveryDocument$$' ./catalog/source/openapi >/dev/null; \
	else echo "docs/openapi-coverage.md stays as it is: ../shared/data/openapi is not here"; fi

generate-code:
	@$(SELDOM) $(GO) run ./tools/errgen
	@cd tools/protogen && $(SELDOM) $(GO) run .
	@$(SELDOM) $(GO) test -vet=off -count=1 -run '^TestDocs$$' ./config ./datadir -update >/dev/null

lint: ## go vet and staticcheck
	@$(SELDOM) $(GO) vet ./...
	@$(SELDOM) GOMEMLIMIT=4GiB $(GO) tool staticcheck ./...

FUZZTIME ?= 1m
fuzz: ## run every fuzzer for FUZZTIME (1m)
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; done; done

SOAK ?= 60s
soak: ## 200 agents call two MCP servers for SOAK (60s); nothing may multiply or be left
	TOOLKEEP_SOAK=$(SOAK) $(GO) test -count=1 -timeout 30m -run TestManyAgentsFewProcesses -v ./toolkeeptest

REGISTRY := tools/registrytest/.bin/registry
# Not part of make test, for which its build takes too long: the tests replay what this records.
registry: ## build the official MCP registry, run it with the tests' servers, record what it answers
	@cd tools/registrytest && mkdir -p .bin && $(SELDOM) $(GO) build '-gcflags=github.com/...=-N -l -dwarf=false' -ldflags '-s -w' -o .bin/registry github.com/modelcontextprotocol/registry/cmd/registry
	@TOOLKEEP_TEST_ALL=1 TOOLKEEP_TEST_REGISTRY="$(CURDIR)/$(REGISTRY)" $(GO) test -count=1 -timeout 5m -tags registry -run '^TestRealRegistry$$' ./mcpregistry
	@$(GO) test -count=1 ./mcpregistry

bench: build ## measure the numbers of docs/performance.md
	@$(GO) run ./bench -binary bin/toolkeep

clean: ## remove what was built
	@rm -rf bin dist .cache/pgtemplate-*
