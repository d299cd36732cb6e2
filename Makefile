# Two commands: `make up` runs a control plane on this machine, `make test` runs everything that has
# to pass. Both build what they need with Go alone.

GO ?= go
BIN := bin/setpoint

# How long each of the fuzzers runs, two at a time.
FUZZTIME ?= 60s

# Tests have the same randomness each time, except where this is.
RANDOMLY := SETPOINT_SEED=$(shell date +%s)

.PHONY: up demo build test conformance fuzz torture lint generate bench clean FORCE

up: build ## run a control plane; Ctrl-C ends it, the workloads and the data stay
	$(BIN) up --data-dir .setpoint

demo: build ## declare, break and heal an example in the terminal
	$(BIN) demo

build: $(BIN)

$(BIN): FORCE
	$(GO) build -ldflags='-s -w' -o $@ ./cmd/setpoint

test: ## all tests with the race detector, linters included
	$(GO) test -race -timeout 40m ./...
	$(GO) test -run 'Allocations|CostLittle' ./kinds/schema ./apiserver # counts that the race detector changes
	cd bench && $(GO) vet ./...
	$(MAKE) conformance
	cd conformance/flux && $(GO) test -timeout 30m ./...

conformance: build ## the clients that people have, each against a server in a process of its own
	cd conformance && SETPOINT=$(CURDIR)/$(BIN) $(GO) test -timeout 20m ./...

fuzz: ## every decoder and patch with random input; FUZZTIME is the time for each
	$(GO) run ./internal/fuzzall -time $(FUZZTIME)

torture: ## kill a store ten thousand times; let it run for a month; break a cluster; many watches; many objects of every kind
	SETPOINT_TORTURE=10000 $(RANDOMLY) $(GO) test -run 'KilledProcess|MonthOfLeases' -parallel 4 -timeout 6h -v ./store/embedded/
	SETPOINT_TORTURE=10000 $(RANDOMLY) $(GO) test -run ClusterThatFails -timeout 6h -v ./store/etcd/
	SETPOINT_TORTURE=2000 $(RANDOMLY) $(GO) test -run B005 -timeout 1h -v ./apiserver/
	SETPOINT_TORTURE=100000 $(RANDOMLY) $(GO) test -run B006 -timeout 2h -v ./apiserver/ ./store/etcd/
	SETPOINT_PROPERTIES=200 $(RANDOMLY) $(GO) test -run EveryKind -timeout 1h ./apiserver/

lint: ## only the rules of the source
	$(GO) test ./internal/lint/

generate: ## what generators write, from the pinned modules
	$(GO) generate ./...

bench: build ## the numbers of docs/performance.md, beside their peers where ETCD and KUBE_APISERVER name them
	cd bench && $(GO) run ./spine -setpoint ../$(BIN) -etcd "$(ETCD)" -kube-apiserver "$(KUBE_APISERVER)"
	cd bench && $(GO) run ./store -etcd "$(ETCD)"
	cd bench && $(GO) run ./watchers -setpoint ../$(BIN)
	cd bench && $(GO) run ./crds -setpoint ../$(BIN) -etcd "$(ETCD)" -kube-apiserver "$(KUBE_APISERVER)"

clean:
	rm -rf bin
