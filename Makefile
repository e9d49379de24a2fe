# Two commands do all the set-up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test lint bench browser standin docs docs-generated screenshots clean

demo: $(STAMP)
	$(BIN)/gputrace report sample_logs/h200-pageable --html demo-report.html --force
	@echo "Open demo-report.html in a browser."

test: $(STAMP) lint browser standin
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The manual, in docs/_build/html; a broken link is an error. Nothing is fetched.
docs: $(STAMP)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html in a browser."

# The pages that are made from the code, and what the pages show of real commands.
docs-generated: $(STAMP)
	$(BIN)/python -m docs.generate
	GPUTRACE_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/docs

# The pictures of the README, drawn anew.
screenshots: $(STAMP) browser
	$(BIN)/python -m docs.screenshots

bench: $(STAMP)
	$(BIN)/python -m benchmarks.suite

# A library with NVML's symbols, so that the sampler is tested without a GPU; without a C compiler those tests are skipped.
standin: $(STAMP)
	$(BIN)/python -m tests.standin

# The report is tested in a real browser; Debian's chromium is installed where it is missing.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  SUDO=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gputrace needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable . --group dev
	touch $(STAMP)

clean:
	rm -rf $(VENV) dist build docs/_build demo-report.html
