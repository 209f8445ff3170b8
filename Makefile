PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
SETUP := @PYTHON="$(PYTHON)" bash tools/setup_env.sh

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo camvid pair test upstream coverage docs pictures ops lint format clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile
	@echo 'Variables:'
	@echo '  ARGS    more options of demo (ARGS="--iters 100"), test or coverage'
	@echo '  ITERS   of camvid: iterations of fine-tuning (default: 600)'
	@echo '  MORE    of pair: iterations of joint training (default: 300)'
	@echo '  WEIGHTS of camvid: DINOv2 ViT-S/14, a file (default: timm gets it)'
	@echo '  PYTHON  Python 3.10 to 3.12 that .venv is made of (default: python3)'
	@echo 'Commands of the README: source .venv/bin/activate, after make demo or camvid'

demo:  ## set up .venv and run tools/demo.py, in two minutes
	$(SETUP) demo
	@$(BIN)/python tools/demo.py $(ARGS)

camvid:  ## set up .venv and run tools/camvid.sh: DINOv2-S on CamVid, made elastic
	$(SETUP) demo
	@tools/camvid.sh

pair:  ## the same; then stitch one of its budgets with the network, train and compare
	$(SETUP) demo
	@tools/camvid.sh pair

test:  ## set up .venv with all packages and run pytest, e.g. make test ARGS="-k space"
	$(SETUP) test
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

upstream:  ## the same with upstream's mmengine, mmcv, mmseg, ..., in .venv-upstream
	$(SETUP) upstream
	@.venv-upstream/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		$(ARGS)

coverage:  ## make test with lines counted: a table, and htmlcov/index.html
	$(SETUP) test
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term \
		--cov-report=html $(ARGS)

docs:  ## build the pages into build/site; a broken link is an error
	$(SETUP) docs
	@rm -rf build/pages && mkdir -p build/pages
	@git ls-files -z README.md CONTRIBUTING.md SECURITY.md LICENSE CITATION.cff docs configs tools tests requirements \
		'snnet_mm/*.py' | xargs -0 cp --parents -t build/pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml
	@echo 'Pages: build/site/index.html'

pictures:  ## redraw the diagrams of the pages from results in this repository
	$(SETUP) demo
	@$(BIN)/python tools/research/pictures.py

ops:  ## compile mmcv's operators into .venv, 10-12 minutes (optional)
	$(SETUP) ops

lint:  ## check style, format and types with ruff and mypy
	$(SETUP) lint
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format:  ## fix what ruff can fix, then format
	$(SETUP) lint
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

clean:  ## remove .venv*, caches and build products (keeps .wheels and work_dirs)
	@rm -rf .venv .venv-upstream build dist *.egg-info .pytest_cache .ruff_cache .coverage* htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
