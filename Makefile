# A thin front for CMake: the words people type. Every word works alone on a fresh machine.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# Tests read real text from here when it exists and skip with a message when it does not.
ifneq ($(wildcard ../shared/data),)
export PALIMPSA_DATA ?= $(abspath ../shared/data)
endif
ifneq ($(wildcard ../shared/golden),)
export PALIMPSA_GOLDEN ?= $(abspath ../shared/golden)
endif

.PHONY: help manual deb release all setup setup-long setup-dev setup-arm64 setup-clang setup-browser configure build everything clang arm64 arm64-clang test test-long test-python test-browser interop wheel fuzz coverage lint bench demo format install clean debug sanitize tsan

all: build

help: ## this list
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+)( [a-z0-9 -]+)?:.*## /  \1|/' | column -t -s '|'

setup: ## install the packages that building and testing need
	@scripts/setup.sh

setup-long: setup
	@scripts/setup.sh --long

setup-dev: setup
	@scripts/setup.sh --dev

setup-arm64: setup
	@scripts/setup.sh --arm64

setup-clang: setup
	@scripts/setup.sh --clang

setup-browser: setup
	@scripts/setup.sh --browser

configure: setup
	@cmake --preset release $(CMAKE_ARGS) > build.log.tmp 2>&1 || { cat build.log.tmp; rm -f build.log.tmp; exit 1; }
	@rm -f build.log.tmp

# The program and the libraries.
build: configure ## the program and the libraries, in build/
	@cmake --build build -j $(JOBS) --target palimpsa_cli palimpsa_shared

# Tests and fuzz targets too.
everything: configure ## tests and fuzz targets too
	@cmake --build build -j $(JOBS)

clang: setup-clang
	cmake --preset clang $(CMAKE_ARGS) > /dev/null && cmake --build build-clang -j $(JOBS)

.PHONY: test-arm64 dist
# For ARM64, by Debian's cross compiler, or by clang on top of it.
arm64: setup-arm64
	scripts/static_libraries.sh aarch64-linux-gnu
	cmake --preset arm64 $(CMAKE_ARGS) > /dev/null && cmake --build build-arm64 -j $(JOBS)

arm64-clang: setup-arm64 setup-clang
	scripts/static_libraries.sh aarch64-linux-gnu
	scripts/clang_openmp_arm64.sh
	cmake --preset arm64-clang $(CMAKE_ARGS) > /dev/null && cmake --build build-arm64-clang -j $(JOBS)

test-arm64: everything arm64 ## the ARM64 build under QEMU
	scripts/test_arm64.sh $(ONLY)

# dist/: one static file each for x86-64 and ARM64, tried where nothing is installed.
dist: setup-arm64 ## one static file each for x86-64 and ARM64
	scripts/dist.sh

tsan: setup-long
debug sanitize tsan: setup
	cmake --preset $@ && cmake --build build-$@ -j $(JOBS)

test: everything ## what CI runs
	ctest --test-dir build --no-tests=error --output-on-failure -j $(JOBS) || { tests/skipped.sh build; exit 1; }
	cmake --preset sanitize > /dev/null && cmake --build build-sanitize -j $(JOBS)
	ctest --test-dir build-sanitize --no-tests=error --output-on-failure -j $(JOBS) -L unit; code=$$?; \
	    tests/skipped.sh build build-sanitize; exit $$code

# The page of `palimpsa serve`, in Chromium.
test-browser: everything setup-browser ## the page of palimpsa serve, in Chromium
	node --test tests/web/*.test.mjs
	python3 tests/browser/inspector.py build/palimpsa

# Packages of all stages first: nothing is asked for when it has run for an hour.
test-long: everything setup-long setup-browser setup-arm64 setup-clang ## slow campaigns; STAGE=tsan runs one
	scripts/test_long.sh $(STAGE)

# Other people's programs on our files and ours on theirs: make interop ONLY=lm-eval INTEROP_ENV=DIR
interop: everything ## our files in other programs and theirs in ours; ONLY=NAME runs one
	scripts/interop.sh $(ONLY)

# Which lines and branches of readers and keepers the tests reach; HTML in build-coverage/report.
coverage: setup-dev ## which lines the tests reach
	scripts/coverage.sh

# clang-tidy and cppcheck over everything, or over FILES.
lint: everything setup-dev ## clang-tidy and cppcheck; FILES="..." some files
	scripts/lint.sh $(FILES)

fuzz: setup-long ## every reader of files for a minute; TARGET=gguf TIME=600
	scripts/fuzz.sh $(or $(TARGET),all) $(or $(TIME),60) $(RUNS)

# The package as pip installs it, in an environment of its own, or in an existing one: make test-python TORCH_ENV=DIR
PYTHON_ENV = $(or $(TORCH_ENV),python/build/environment)
test-python: setup ## the Python package as pip installs it
	@test -x $(PYTHON_ENV)/bin/python || python3 -m venv $(PYTHON_ENV)
	$(PYTHON_ENV)/bin/python -m pip install --quiet "./python[test]"
	OMP_WAIT_POLICY=passive $(PYTHON_ENV)/bin/python -m pytest -q -p no:cacheprovider python/tests

wheel: setup ## one self-contained wheel, in python/dist
	scripts/wheel.sh

manual: build ## manual pages and completions, in build/manual
	cmake --build build --target manual

setup-release: setup-arm64
	@scripts/setup.sh --release

deb: setup-release ## Debian packages, in release/
	scripts/release.sh --only debian

release: setup-release ## everything that a release has, in release/; MINISIGN_KEY=FILE signs it
	scripts/release.sh

demo: build ## what the tool does, and a training run of three minutes
	@scripts/demo.sh

bench: build ## measurements on this machine
	build/palimpsa bench memory
	build/palimpsa bench kernels
	build/palimpsa bench matmul
	build/palimpsa bench matvec

format: setup-dev ## clang-format over lines that are not committed yet
	git clang-format --force --extensions c,h,inc || test $$? -eq 1 # 1: something was changed

install: build ## into PREFIX (/usr/local)
	cmake --install build --prefix $(PREFIX)

clean: ## remove what was built
	rm -rf release build build-debug build-sanitize build-tsan build-clang build-coverage build-arm64 build-arm64-clang build-edge \
	    build-edge-arm64 build-libraries build-fuzz dist python/build python/dist
