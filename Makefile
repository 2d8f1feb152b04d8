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

.PHONY: all help setup setup-long setup-dev setup-arm64 setup-clang setup-musl setup-browser setup-wasm setup-opencl setup-release configure build everything clang \
    test-clang musl arm64 arm64-clang test-arm64 debug sanitize tsan test test-browser test-long interop coverage lint fuzz test-python wheel \
    manual wasm test-wasm site test-site dist deb test-deb release demo bench format install clean

all: build ## the same as build

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / { printf "  %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the packages that building and testing need
	@scripts/setup.sh

setup-long: ## ... test-long and tsan need
setup-dev: ## ... format, lint and coverage need
setup-arm64: ## ... arm64 and dist need
setup-clang: ## ... clang needs
setup-musl: ## ... musl needs
setup-browser: ## ... test-browser needs
setup-wasm: ## ... site and test-wasm need
setup-opencl: ## ... test-long STAGE=device needs
setup-release: setup-arm64 setup-wasm ## ... deb and release need
setup-long setup-dev setup-arm64 setup-clang setup-musl setup-browser setup-wasm setup-opencl setup-release: setup
	@scripts/setup.sh --$(@:setup-%=%)

configure: setup ## choose libraries and options; CMAKE_ARGS="-D..."
	@cmake --preset release $(CMAKE_ARGS) > build.log.tmp 2>&1 || { cat build.log.tmp; rm -f build.log.tmp; exit 1; }
	@rm -f build.log.tmp

build: configure ## the program and the libraries, in build/
	@cmake --build build -j $(JOBS) --target palimpsa_cli palimpsa_shared

everything: configure ## tests and fuzz targets too
	@cmake --build build -j $(JOBS)

clang: setup-clang ## everything by clang, in build-clang/
	cmake --preset clang $(CMAKE_ARGS) > /dev/null && cmake --build build-clang -j $(JOBS)

test-clang: clang ## the unit tests as clang compiles them
	ctest --test-dir build-clang --no-tests=error --output-on-failure -j $(JOBS) -L unit

musl: setup-musl ## compile against musl's headers: no call that only glibc has
	scripts/check_musl.sh

arm64: setup-arm64 ## for ARM64 by Debian's cross compiler, in build-arm64/
	scripts/static_libraries.sh aarch64-linux-gnu
	cmake --preset arm64 $(CMAKE_ARGS) > /dev/null && cmake --build build-arm64 -j $(JOBS)

arm64-clang: setup-arm64 setup-clang ## the same by clang, in build-arm64-clang/
	scripts/static_libraries.sh aarch64-linux-gnu
	scripts/clang_openmp_arm64.sh
	cmake --preset arm64-clang $(CMAKE_ARGS) > /dev/null && cmake --build build-arm64-clang -j $(JOBS)

test-arm64: everything arm64 ## the ARM64 build under QEMU
	scripts/test_arm64.sh $(ONLY)

dist: setup-arm64 ## one static file each for x86-64 and ARM64, tried where nothing is installed
	scripts/dist.sh

tsan: setup-long
debug sanitize tsan: setup ## builds to find mistakes with, in build-debug/ and so on
	cmake --preset $@ && cmake --build build-$@ -j $(JOBS)

# One test more than processors at once: some mostly wait.
test: everything ## what CI runs
	ctest --test-dir build --no-tests=error --output-on-failure -j $$(($(JOBS) + 1)) || { tests/skipped.sh build; exit 1; }
	cmake --preset sanitize > /dev/null && cmake --build build-sanitize -j $(JOBS)
	ctest --test-dir build-sanitize --no-tests=error --output-on-failure -j $$(($(JOBS) + 1)) -L unit; code=$$?; \
	    tests/skipped.sh build build-sanitize; exit $$code

# The library as WebAssembly, and the page that runs it without a server.
wasm: setup-wasm ## the library as WebAssembly, in build-wasm/
	@scripts/wasm.sh

test-wasm: wasm ## recorded numbers as WebAssembly, under Node
	node --no-experimental-fetch build-wasm/palimpsa_selftest.js tests/golden

site: wasm ## the page with small models for any static host, in site/
	scripts/site.sh $(or $(SITE),site)

test-site: build site setup-browser ## the site in Chromium, next to palimpsa serve
	scripts/test_site.sh $(or $(SITE),site)

test-browser: everything setup-browser ## the page of palimpsa serve, in Chromium
	node --test tests/web/*.test.mjs
	python3 tests/browser/inspector.py build/palimpsa
	python3 tests/browser/chat.py build/palimpsa

# Packages of all stages first: nothing is asked for when it has run for an hour.
test-long: everything setup-long setup-browser setup-arm64 setup-clang setup-opencl ## slow campaigns; STAGE=tsan runs one
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

deb: setup-release ## Debian packages, in release/
	scripts/release.sh --only debian

test-deb: ## install release/*.deb in a bare Debian and try them; needs root
	scripts/try_debs.sh $(ROOT)

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
