# Needs python3 (3.11 or newer, with venv) and make. Everything else is installed into .venv, at the versions in
# requirements-dev.lock.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PEER := .venv-bench
RESTATE := $(PEER)/node_modules/.ready
SAVERS := .venv-bench-langgraph
SERVERS := .venv-bucket
# Agent frameworks whose versions exclude each other: each has an environment in .venvs, and a lock file.
ADAPTERS := agent-framework claude-agent-sdk google-adk langchain openai-agents pydantic-ai pydantic-ai-harness strands
# The stamp is written last, so that an interrupted installation starts again.
READY := $(VENV)/.ready
# Two -q print only errors. One would still print the addresses that pip uses.
PIP := -m pip --disable-pip-version-check -qq
SOURCES := $(wildcard src tests bench examples scripts)
# Tests start hundreds of Python processes. Without bytecode files each of them compiles the library anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help check format test test-adapters $(ADAPTERS:%=test-adapter-%) test-stores test-bucket model bench-bucket scale coverage kill-sweep crash-lab crash-lab-stores crash-lab-runs crash-lab-rest demo bench bench-acts bench-engine \
  bench-runs bench-stores bench-verify bench-adapters durability bench-langgraph bench-ui docs screens dist lock clean
.DELETE_ON_ERROR:

define check_python
@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) was not found. Install Python 3.11 or newer, or name it: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Holdfast needs Python 3.11 or newer, and $(PYTHON) is older. Name another: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv or no ensurepip. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
endef

# If it cannot be installed, the tests that need it fail with a message; all others run.
define install_strace
@command -v strace >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  apt-get -qq update && apt-get -qq install --yes strace >/dev/null; } || \
	  echo 'strace was not found, and the crash lab needs it. On Debian and Ubuntu: apt-get install strace' >&2
endef

# As above.
define install_pgbouncer
@PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  apt-get -qq update && apt-get -qq install --yes --no-install-recommends pgbouncer >/dev/null; } || \
	  echo 'pgbouncer was not found, and tests of the PostgreSQL store need it. On Debian and Ubuntu:' \
	  'apt-get install pgbouncer' >&2
endef

# As above.
define install_spin
@{ command -v spin && command -v gcc; } >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  apt-get -qq update && apt-get -qq install --yes --no-install-recommends spin gcc libc6-dev >/dev/null; } || \
	  echo 'spin was not found, and the model needs it. On Debian and Ubuntu: apt-get install spin gcc' >&2
endef

# As above. Without fonts, the browser draws boxes.
define install_chromium
@{ command -v chromium && command -v chromedriver && test -e /usr/share/fonts/truetype/dejavu; } >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update && \
	  apt-get -qq install --yes --no-install-recommends chromium chromium-driver fonts-dejavu >/dev/null; } || \
	  echo 'chromium was not found, and the tests of the web UI need it. On Debian and Ubuntu:' \
	  'apt-get install chromium chromium-driver fonts-dejavu' >&2
endef

# As above. axe-core checks the pages of the web UI. Scripts of packages are not run.
define install_axe
@test -e $(VENV)/node_modules/axe-core/axe.min.js || { command -v npm >/dev/null && \
	  npm install --prefix $(VENV) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error \
	  $$(grep -v '^#' requirements-dev-npm.lock) >/dev/null; } || \
	  echo 'npm was not found, and the tests of the web UI need it to install axe-core. Install Node.js.' >&2
endef

help:
	@echo 'make check            ruff, mypy and pyright'
	@echo 'make format           format the code with ruff and apply its fixes'
	@echo 'make test             run all tests; make test ARGS="tests/codec -x" runs some'
	@echo 'make test-adapters    run the tests of all adapters of agent frameworks, each in an environment of its own'
	@echo 'make test-stores      run the tests that make test runs on SQLite on every kind of store'
	@echo 'make test-bucket      run the tests of stores in buckets on real servers; needs npm; about 5 minutes'
	@echo 'make model            check the model of the protocol of buckets, and that it finds the seeded bugs'
	@echo 'make coverage         run all tests, and list the lines and branches that none of them reached'
	@echo 'make demo             run the demo'
	@echo 'make kill-sweep       kill a run at every write, under every policy; some minutes'
	@echo 'make crash-lab        run all crash, power and damage tests, and write docs/trust/crash-lab.md; about an hour'
	@echo 'make crash-lab-stores the half of the crash lab that is about stores; crash-lab-runs is the other half'
	@echo 'make crash-lab-rest   run the tests of the crash lab that have not passed yet, and write docs/trust/crash-lab.md'
	@echo 'make bench            run the benchmarks with all peers, and write docs/benchmarks.md; about 25 minutes'
	@echo 'make bench-engine     measure the engine'
	@echo 'make bench-runs       measure runs, and compare with DBOS, Restate and Absurd; needs npm; about 4 minutes'
	@echo 'make bench-stores     measure the directory and PostgreSQL stores, and compare with DBOS'
	@echo 'make bench-bucket     count the requests that a store in a bucket makes, and what they cost'
	@echo 'make scale            simulate a million agents on a bucket and on PostgreSQL, and write docs/internals/scale.md'
	@echo 'make bench-acts       measure claims of acts among a thousand and among a million'
	@echo 'make bench-verify     measure hf.verify, and compare with a plain read and sha256'
	@echo 'make bench-ui         measure the web UI with 100,000 threads and 10,000 steps; some minutes'
	@echo 'make docs             build the site into build/site; it needs no network afterwards'
	@echo 'make screens          take screenshots of the web UI, for build/screens and docs/images'
	@echo 'make durability       kill an agent at every point in each framework, alone and with Holdfast, and write docs/trust/durability.md'
	@echo 'make bench-adapters   measure session stores, and compare with those of the frameworks'
	@echo 'make bench-langgraph  measure HoldfastSaver and the savers of LangGraph; about 20 minutes'
	@echo 'make dist             build the wheel and the source archive'
	@echo 'make lock             update the development tools to their newest versions'
	@echo 'make clean            remove everything that make created'

check: $(READY)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(READY)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# Four processes on two cores, because tests often wait for disks, servers and child processes. Each takes neighbouring
# tests, which share fixtures, and at the end those that another has not started (worksteal).
# The ci profile uses the same examples every time and sets no deadline per example, so that a busy machine does not
# fail a build. Plain pytest generates new examples.
# The tests of Pydantic AI run in this environment, those of the OpenAI Agents SDK in their own.
test: $(READY) $(if $(ARGS),,.venvs/openai-agents/.ready)
	$(install_strace)
	$(install_pgbouncer)
	$(install_chromium)
	$(install_axe)
	$(BIN)/pytest -n 4 --dist worksteal --hypothesis-profile=ci $(ARGS)
	$(if $(ARGS),,$(MAKE) test-adapter-openai-agents)

test-adapters: $(ADAPTERS:%=test-adapter-%)

# The conftest.py of all tests needs the development environment.
$(ADAPTERS:%=test-adapter-%): test-adapter-%: .venvs/%/.ready
	.venvs/$*/bin/python -m pytest -q --confcutdir=tests/adapters tests/adapters/test_$(subst -,_,$*).py

.venvs/%/.ready: requirements-adapters-%.lock pyproject.toml
	$(check_python)
	$(PYTHON) -m venv --clear .venvs/$*
	.venvs/$*/bin/python $(PIP) install -r $<
	.venvs/$*/bin/python $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# `make test` runs the contract suite on every store and most other tests on SQLite, with a share of each sweep: see
# tests/selection.py.
test-stores: $(READY)
	$(install_pgbouncer)
	$(install_chromium)
	$(install_axe)
	HOLDFAST_STORES=all $(BIN)/pytest -n 3 --dist worksteal --hypothesis-profile=ci \
	  --ignore=tests/crash $(ARGS)

# The servers have their own environment: moto and azurite keep conditions, rclone and s3rver ignore them. Readers and
# writers of one handle share a server that answers some dozens of requests a second, so tests may take minutes.
test-bucket: $(READY) $(SERVERS)/.ready
	$(install_spin)
	HOLDFAST_BUCKET_SERVERS=$(SERVERS) $(BIN)/pytest -n 3 --dist worksteal --hypothesis-profile=ci \
	  -o faulthandler_timeout=900 tests/stores/bucket $(ARGS)

# The model checker writes C and compiles it.
model: $(READY)
	$(install_spin)
	$(BIN)/python -m scripts.bucket_model

# Tracing every line makes the tests take 50 % longer.
coverage: $(READY)
	$(install_strace)
	$(install_pgbouncer)
	$(install_chromium)
	$(install_axe)
	$(BIN)/pytest -n 3 --dist worksteal --hypothesis-profile=ci --cov --cov-report=term $(ARGS)

demo: $(READY)
	rm -rf build/demo
	$(BIN)/holdfast demo --full --keep build/demo

kill-sweep: $(READY)
	HOLDFAST_STORES=all HOLDFAST_SWEEP=full $(BIN)/pytest -n 2 tests/runs/test_kill_sweep.py tests/runs/test_chat_sweep.py

# Each half writes its part of docs/trust/crash-lab.md when it has passed: see scripts/crash_lab.sh.
crash-lab: crash-lab-stores crash-lab-runs

crash-lab-stores crash-lab-runs: crash-lab-%: $(READY)
	$(install_strace)
	scripts/crash_lab.sh $*

crash-lab-rest: $(READY)
	scripts/crash_lab.sh stores --rest
	scripts/crash_lab.sh runs --rest

# One after the other, because they measure time. The numbers of README.md come from the same results.
bench: $(READY)
	$(MAKE) bench-engine
	$(MAKE) bench-runs
	$(MAKE) bench-stores
	$(MAKE) bench-langgraph
	$(BIN)/python -m bench.page
	$(BIN)/python -m scripts.numbers

bench-engine: $(READY)
	$(BIN)/python -m bench.engine

# The peers have their own environment, because Holdfast does not share their dependencies.
bench-runs: $(READY) $(PEER)/.ready $(RESTATE)
	$(BIN)/python -m bench.runs --peer $(PEER)/bin/python

bench-stores: $(READY) $(PEER)/.ready
	$(BIN)/python -m bench.stores --peer $(PEER)/bin/python

bench-bucket: $(READY)
	$(BIN)/python -m bench.bucket $(ARGS)

scale: $(READY)
	$(BIN)/python -m bench.fleet_scale $(ARGS)

bench-acts: $(READY)
	$(BIN)/python -m bench.acts

bench-verify: $(READY)
	$(BIN)/python -m bench.verify

bench-ui: $(READY)
	$(BIN)/python -m bench.ui $(ARGS)

# The tools of the site have their own environment, so that the tests do not wait for its installation.
docs: .venvs/docs/.ready
	NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --strict --clean
	@echo 'build/site/index.html'

.venvs/docs/.ready: requirements-docs.lock
	$(check_python)
	$(PYTHON) -m venv --clear .venvs/docs
	.venvs/docs/bin/python $(PIP) install -r $<
	@touch $@

# A test takes the screenshots of the README, so that they show the current web UI.
screens: $(READY)
	$(install_chromium)
	HOLDFAST_STORES=all HOLDFAST_SCREENS=docs/images $(BIN)/pytest -q tests/ui/test_screens.py

# All savers, including HoldfastSaver, run in one environment, so that they use the same versions.
bench-langgraph: $(SAVERS)/.ready
	$(SAVERS)/bin/python -m bench.langgraph $(ARGS)

bench-adapters: .venvs/openai-agents/.ready .venvs/claude-agent-sdk/.ready
	.venvs/openai-agents/bin/python -m bench.adapters openai
	.venvs/claude-agent-sdk/bin/python -m bench.adapters claude

# Writes docs/trust/durability.md. About 10 minutes.
durability: $(READY) $(ADAPTERS:%=.venvs/%/.ready)
	$(BIN)/python -m bench.durability plain_loop
	$(BIN)/python -m bench.durability pydantic_ai
	.venvs/openai-agents/bin/python -m bench.durability openai_agents
	.venvs/claude-agent-sdk/bin/python -m bench.durability claude_agent_sdk
	.venvs/strands/bin/python -m bench.durability strands
	.venvs/agent-framework/bin/python -m bench.durability agent_framework
	.venvs/google-adk/bin/python -m bench.durability google_adk
	.venvs/langchain/bin/python -m bench.durability langchain
	$(BIN)/python -m bench.durability --page

# Scripts of packages are not run.
$(SERVERS)/.ready: requirements-bucket.lock requirements-bucket-npm.lock
	$(check_python)
	@command -v npm >/dev/null || { \
	  echo 'npm was not found, and make test-bucket needs it to install azurite and s3rver. Install Node.js.' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(SERVERS)
	$(SERVERS)/bin/python $(PIP) install -r requirements-bucket.lock
	npm install --prefix $(SERVERS) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error \
	  $$(grep -v '^#' requirements-bucket-npm.lock)
	@touch $@

$(SAVERS)/.ready: requirements-bench-langgraph.lock pyproject.toml
	$(check_python)
	$(PYTHON) -m venv --clear $(SAVERS)
	$(SAVERS)/bin/python $(PIP) install -r requirements-bench-langgraph.lock
	$(SAVERS)/bin/python $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(PEER)/.ready: requirements-bench.lock
	$(PYTHON) -m venv --clear $(PEER)
	$(PEER)/bin/python $(PIP) install -r requirements-bench.lock
	@touch $@

# The program is in an optional package for the platform. Scripts of packages are not run.
$(RESTATE): requirements-bench-npm.lock $(PEER)/.ready
	@command -v npm >/dev/null || { \
	  echo 'npm was not found, and make bench-runs needs it to install the server of Restate. Install Node.js.' >&2; exit 1; }
	npm install --prefix $(PEER) --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error \
	  $$(grep -v '^#' requirements-bench-npm.lock)
	@touch $@

dist: $(READY)
	$(BIN)/python -m build --no-isolation

$(VENV): $(READY) ;

$(READY): requirements-dev.lock pyproject.toml
	$(check_python)
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(PIP) install -r requirements-dev.lock
	$(BIN)/python $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Dependency groups need a newer pip than the one that comes with Python 3.11. The lock has only names and versions, not
# where a machine gets its packages.
lock:
	$(check_python)
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install --upgrade pip
	$(BIN)/python $(PIP) install --group dev .
	@{ echo '# Written by make lock, from the dependencies and the dev group in pyproject.toml.'; \
	   $(BIN)/python $(PIP) freeze --exclude holdfast; } > requirements-dev.lock
	@rm -rf $(VENV)

clean:
	rm -rf $(VENV) $(PEER) $(SAVERS) $(SERVERS) .venvs dist build .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
