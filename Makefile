# make demo   set everything up and run the main job on the bundled flights
# make demo-sites  two servers, a collector and twenty sites on this machine; prints the page's address
# make test   set everything up (Debian packages included where it may) and run all tests
# make quick  the linters and the fast tests, under a minute
# make docs   the documentation site, into site/
# make audit  the whole audit, hours, into docs/trust.md; make audit-sampler and so on for one part; goes on where interrupted
# make bench  every benchmark, results into docs/benchmarks.md
# Each works alone on a fresh clone.

PYTHON ?= python3
VENV   := .venv
QUICK  := tests/test_house.py tests/test_noise.py tests/test_noisy.py tests/test_linear.py tests/test_isotonic.py \
          tests/test_hashing.py tests/test_checks.py tests/test_cli_docs.py tests/test_profile.py \
          tests/test_api.py tests/test_serve_tasks.py src
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

AUDITS := sampler privacy observables files faults soak coverage invariants

# One thread per process: the tests run two processes, and small matrices gain nothing from more.
export OMP_NUM_THREADS ?= 1

.PHONY: demo demo-sites node test quick lint docs audit $(AUDITS:%=audit-%) bench clean

demo: $(VENV)/.demo
	@$(BIN)/unnoise demo

demo-sites: $(VENV)/.serve
	@$(BIN)/python scripts/demo_sites.py

# Everything is fetched at once, and the linters run beside the tests. Groups of tests: tests/conftest.py.
test:
	@$(MAKE) --no-print-directory -j 3 $(VENV)/.test $(VENV)/.debian $(VENV)/.node
	@$(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1 & linter=$$!; \
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q; tested=$$?; \
	wait $$linter; linted=$$?; cat $(VENV)/lint.log; \
	[ $$tested = 0 ] && [ $$linted = 0 ]

# Under a minute: the linters and the tests that need no server, browser, Spark or long sampling.
quick: $(VENV)/.test
	@begin=$$(date +%s); $(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1 & linter=$$!; \
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -x \
	  -m "not slow and not spark and not browser and not statistical" $(QUICK); tested=$$?; \
	wait $$linter; linted=$$?; cat $(VENV)/lint.log; \
	echo "make quick took $$(($$(date +%s) - begin)) s (to be under 60 where nothing else runs)"; \
	[ $$tested = 0 ] && [ $$linted = 0 ]

docs: $(VENV)/.test
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_changelog.py

# Each part writes its section of docs/trust.md and goes on where it was interrupted; one that fails does not stop the others.
audit: $(VENV)/.test
	@failed=; for part in $(AUDITS); do $(MAKE) --no-print-directory audit-$$part || failed="$$failed $$part"; done; \
	  if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

# The two parts that are computing alone, hours of it, are shared by two processes.
$(AUDITS:%=audit-%): audit-%: $(VENV)/.test
	$(if $(filter $*,coverage invariants),$(BIN)/python audits/$*.py --share 1/2 & \
	  $(BIN)/python audits/$*.py --share 2/2; wait)
	$(BIN)/python audits/$*.py

bench: $(VENV)/.test
	for script in noise paper reconstruct accuracy coverage plan items merge sites sketch direct field collector cli spark; do \
	  $(BIN)/python benchmarks/$$script.py --write || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a minute or two, once) …"
	@$(PIP) -e ".[plots]"
	@touch $@

$(VENV)/.serve: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the collector (a minute or two, once) …"
	@$(PIP) -e ".[plots,serve]"
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with everything the tests need (a few minutes, once) …"
	@$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.demo $(VENV)/.serve

$(VENV)/.debian: $(VENV)/bin/python scripts/install_debian.sh
	@sh scripts/install_debian.sh
	@touch $@

# The second reader of sketch files (tests/node) opens them with apache-arrow; without Node its tests are left out.
node: $(VENV)/.node
$(VENV)/.node: $(VENV)/bin/python
	@if command -v npm >/dev/null; then npm install --silent -g --prefix $(VENV) apache-arrow@21.2.0 || true; fi
	@touch $@

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
