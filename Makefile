# make demo    the whole job on real files, checked byte for byte
# make check   lint and the fast tests, in two minutes: before each commit
# make test    installs what the tests need and passes all of them, Go and Python
# make test-faults   the long tests of the promises: fuzzing, kills, power cuts, every environment; hours. See docs/testing.md
# make bench   Go benchmarks
# make bench-records   records in Arrow and Parquet files compared with other loaders; 20 minutes, root
# make docs    docs/reference.md, from the commands; docs/errors.md, from the table of codes
# make importance-study   what importance does to hit ratios and accuracy: the numbers of docs/importance.md; minutes
# make dist    wheels, sdist, archives, deb, rpm, OCI image, in dist/
# make release-check   makes a release in fresh clones, and installs and tests every file of it: docs/testing.md
# make lint    gofmt, go vet, staticcheck; ruff and mypy over the Python client
#
# Needs Go, Python 3.9 or newer, and a network to their package registries. No root.

GO     ?= go
PYTHON ?= python3

ifeq ($(shell command -v $(firstword $(GO)) 2>/dev/null || echo none),none)
ifneq ($(filter-out clean,$(or $(MAKECMDGOALS),build)),)
$(error $(firstword $(GO)) is not installed or not on PATH: install Go $(shell sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl, or say where it is: make GO=/usr/local/go/bin/go $(MAKECMDGOALS))
endif
endif

BIN         := $(CURDIR)/bin/lcache
VENV        := .venv
LINT_VENV   := .venv-lint
STUDY_VENV  := .venv-study
BENCH_VENV  := .venv-bench
DIST_VENV   := .venv-dist
VERSION     := $(shell sed -n 's/^version = "\(.*\)"/\1/p' python/pyproject.toml)
COMMIT      := $(shell git rev-parse HEAD 2>/dev/null)$(shell test -z "$$(git status --porcelain --untracked-files=no 2>/dev/null)" || echo -dirty)
DATE        := $(shell TZ=UTC0 git show -s --date=short-local --format=%cd HEAD 2>/dev/null)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Go compiles for all commands alike, so that each package is compiled once, and once more for the race detector: without cgo, which nothing here uses, and without paths of this machine.
export CGO_ENABLED := 0
export GOFLAGS     := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS 2>/dev/null)) -trimpath)

# Go's compilers, checkers and tests collect their garbage seldom: a fifth of their time would go there.
SELDOM := GOGC=400

# The race detector needs a C compiler; lcache itself does not. lz4 is compiled without the detector, which would take a fifth of its time over it. What lz4 reads and writes, stored tells the detector.
RACE := $(if $(shell command -v gcc || command -v clang || command -v cc),-race -gcflags=github.com/pierrec/lz4/v4/...=-race=false,)

# On pread, what tests write lies in memory, where it has room. Programs that lie there may not be allowed to run, so Go links elsewhere.
IN_MEMORY := $(if $(shell test "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}')" -gt 6000000 2>/dev/null && test -w /dev/shm && echo yes),GOTMPDIR=$${TMPDIR:-/tmp} TMPDIR=/dev/shm)

# lint vets all of it, so tests need not once more. They are linked without what only a debugger reads. The engine's tests take longest and begin first.
GO_TEST := LCACHE_TEST_TOOLS=need $(SELDOM) $(GO) test -vet=off -ldflags=-w -timeout 60m
ALL     := ./engine/... ./...

# What Python compiles is kept, also where a container says otherwise: tests begin hundreds of processes that import torch, and each would compile all of it.
unexport PYTHONDONTWRITEBYTECODE

PYTEST       := LCACHE_BIN=$(BIN) $(VENV)/bin/python -m pytest -q -rs
# PYTEST_BY_2 runs two tests at a time: each waits for processes and disks much of the time. Threads of numpy and torch would only take the CPU from the other test.
PYTEST_BY_2  := OMP_NUM_THREADS=1 $(PYTEST) -n 2 --dist loadgroup
CLIENT_TESTS := python/tests --ignore=python/tests/live --ignore=python/tests/e2e --ignore=python/tests/test_end_to_end.py --ignore=python/tests/pytorch --ignore=python/tests/release
END_TO_END   := python/tests/test_end_to_end.py python/tests/e2e

PY_REQUIREMENTS := $(wildcard python/tests/requirements.txt python/tests/live/requirements.txt python/tests/pytorch/requirements.txt)
PY_COMPILED     := python/tests/requirements-compiled.txt# what needs a C++ compiler here and there: its tests are left out without one

.PHONY: build demo check test test-needs test-tools test-go test-go-race test-go-pread test-python test-live test-faults bench bench-records docs importance-study dist release-check release-check-quick lint lint-go lint-python clean

build:
	$(SELDOM) $(GO) build -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)" -o $(BIN) ./cmd/lcache

demo:
	@echo "make: compiles lcache, which takes a few minutes the first time and prints nothing"
	@$(MAKE) --no-print-directory build
	@$(BIN) demo --source "$$($(GO) env GOROOT)/src" --client python --python $(PYTHON)

check: build lint
	@echo "== Go tests: the fast ones, without the race detector"
	$(SELDOM) $(GO) test -short ./...
ifneq ($(wildcard $(VENV)/installed),)
	@echo "== Python tests: the client beside servers that are not real"
	$(PYTEST) $(CLIENT_TESTS)
else
	@echo "== Python tests: left out, make test installs what they need"
endif

# What the tests need, apart from themselves.
test-needs: build test-tools $(VENV)/installed

# Two of these run at a time: each waits for processes and disks much of the time. The longest come first.
test: test-needs
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-go-race test-python test-go-pread test-live

# The servers of the tests: a gateway that speaks S3, and a proxy that makes a bad network. They are built once, outside of this folder. And a browser and Prometheus, installed if this is root.
test-tools:
	@scripts/test-tools
	@echo "== servers for the tests of buckets"
	$(SELDOM) $(GO) run ./source/s3test/build

test-go: test-go-race test-go-pread

# Tests that call testenv.WithoutRace run only in test-go-pread, tests that call testenv.AnyIO only in test-go-race.
test-go-race:
	@echo "== Go tests: io_uring and O_DIRECT where they can be had$(if $(RACE),, (no C compiler here: without the race detector))"
	CGO_ENABLED=$(if $(RACE),1,0) $(GO_TEST) $(RACE) $(ALL)

test-go-pread:
	@echo "== Go tests: pread, buffered, without the race detector"
	LCACHE_IO=pread LCACHE_DIRECT=0 $(IN_MEMORY) $(GO_TEST) $(ALL)

test-python: build $(VENV)/installed
	@echo "== Python tests: the client beside servers that are not real"
	$(PYTEST_BY_2) $(CLIENT_TESTS)
	@echo "== Python tests: PyTorch and what is built on it"
	$(PYTEST_BY_2) python/tests/pytorch
	@echo "== Python tests: real servers, end to end"
	$(PYTEST_BY_2) $(END_TO_END)
	@echo "== Python tests: real servers, end to end, on pread and buffered files"
	LCACHE_IO=pread LCACHE_DIRECT=0 $(PYTEST_BY_2) $(END_TO_END) -m 'not any_io'

test-live: build $(VENV)/installed
	@echo "== Python tests: lcache order beside the frameworks themselves"
	$(PYTEST) python/tests/live

# Durations are variables, named in the script: make test-faults FUZZ_TIME=10m KILLS=500
test-faults: build $(VENV)/installed
	@GO="$(GO)" PYTHON="$(VENV)/bin/python" scripts/test-faults $(PARTS)

# What scripts/dist is given: make dist DIST="--changed --only wheel"
dist: $(DIST_VENV)/installed
	GO="$(GO)" $(DIST_VENV)/bin/python scripts/dist $(DIST)

# It uses the Python of the tests, which has torch.
release-check: $(DIST_VENV)/installed $(VENV)/installed
	GO="$(GO)" scripts/release-check

release-check-quick: $(DIST_VENV)/installed $(VENV)/installed
	GO="$(GO)" scripts/release-check quick

$(DIST_VENV)/installed: scripts/dist-requirements.txt
	@$(PYTHON) -m venv $(DIST_VENV) || { echo "make: no venv module: install python3-venv (Debian, Ubuntu) or a full Python" >&2; exit 1; }
	$(DIST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# What a small network learns from drawn orders, and which requests memory serves: docs/importance.md.
importance-study: build $(STUDY_VENV)/installed
	$(BIN) simulate --importance ar1
	OMP_NUM_THREADS=1 $(STUDY_VENV)/bin/python scripts/importance-study --lcache $(BIN)

$(STUDY_VENV)/installed: scripts/importance-requirements.txt
	@$(PYTHON) -m venv $(STUDY_VENV) || { echo "make: no venv module: install python3-venv (Debian, Ubuntu) or a full Python" >&2; exit 1; }
	$(STUDY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Made anew only when a list of requirements changes. uv because the frameworks are large: it fetches side by side. pip for what is compiled: it keeps that for the next folder also where
# the registry does not say how long an answer holds.
$(VENV)/installed: $(PY_REQUIREMENTS) $(PY_COMPILED)
	@$(PYTHON) -m venv $(VENV) || { echo "make: no venv module: install python3-venv (Debian, Ubuntu) or a full Python" >&2; exit 1; }
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/uv pip install --quiet $(patsubst %,-r %,$(PY_REQUIREMENTS))
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $(PY_COMPILED) || echo "make: $(PY_COMPILED) can't be built here: tests that need it are left out"
	@touch $@

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Records compared with other loaders, which are installed for it. Needs root: make bench-records OPTIONS=--quick
bench-records: build $(BENCH_VENV)/installed
	scripts/bench-records $(OPTIONS)

$(BENCH_VENV)/installed: scripts/bench-records-requirements.txt
	@$(PYTHON) -m venv $(BENCH_VENV) || { echo "make: no venv module: install python3-venv (Debian, Ubuntu) or a full Python" >&2; exit 1; }
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(CURDIR)/$(BENCH_VENV) $(BENCH_VENV)/bin/uv pip install --quiet --compile-bytecode -r $<
	@touch $@

docs:
	$(GO) test ./cmd/lcache -run '^TestReference$$' -count=1 -update
	$(GO) test ./internal/errcode -run '^TestErrorsPage$$' -count=1 -update
	$(GO) test ./cmd/lcache/internal/bundle -run '^TestVocabulary$$' -count=1 -update

# Go and Python side by side: each takes one CPU much of the time.
lint:
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint-go lint-python

lint-go:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt: $$unformatted" >&2; exit 1; }
	$(SELDOM) $(GO) vet ./...
	$(SELDOM) $(GO) run $(STATICCHECK) ./...

lint-python: $(LINT_VENV)/installed
	cd python && ../$(LINT_VENV)/bin/ruff check --quiet --cache-dir ../$(LINT_VENV)/ruff-cache lcache *.py
	cd python && ../$(LINT_VENV)/bin/mypy --cache-dir ../$(LINT_VENV)/mypy-cache

# A virtual environment of its own, so that lint needs neither torch nor what the tests need.
$(LINT_VENV)/installed: python/requirements-lint.txt
	@$(PYTHON) -m venv $(LINT_VENV) || { echo "make: no venv module: install python3-venv (Debian, Ubuntu) or a full Python" >&2; exit 1; }
	$(LINT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

clean:
	rm -rf bin dist $(VENV) $(LINT_VENV) $(STUDY_VENV) $(BENCH_VENV) $(DIST_VENV)
