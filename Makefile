# SPDX-License-Identifier: Apache-2.0 OR MIT
.DEFAULT_GOAL := help
.PHONY: help setup build demo test lint bench benchmpi scoreboard applications matrix sim fuzz survive soak miri sanitize coverage
.PHONY: bindings docs programs mutants wire predictions cluster huge cross fabtests starts packages ci lock
# Where rustup puts cargo.
export PATH := $(PATH):$(HOME)/.cargo/bin
help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
setup: ## install what building and running need
	@setup/setup.sh run
build: setup ## build the native programs; manual pages and completion below target/share
	@tools/build.sh
	@PYTHONPATH=python .venv/bin/python -m barewire.cli.manual target/share
demo: build ## MPI over frames beside MPI over TCP in the lab, and the transports below; write the page
	@tools/demo.sh
test: ## install what tests need, lint, run every test
	@tools/test.sh
docs: setup ## the site, from docs/, README and the program itself, into target/site; links checked
	@setup/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 target/tools/docs/bin/mkdocs build --quiet
	@! grep -rlE '<(script|link)[^>]+(src|href)="https?:' --include='*.html' target/site # pages that need a network
	@echo target/site/index.html
lint: ## formatting, lints and types only
	@tools/lint.sh
bench: build ## the targets of speed, each as a ratio from one interleaved run, and a page; half an hour
	@bin/barewire study run speed -o "runs/speed-$$(date +%Y%m%d-%H%M%S)"
wire: build ## a lab's link as a wire: under Debian's kernel in qemu, then from 10 Mb/s to 10 Gb/s for all transports; ten minutes
	@.venv/bin/pytest -m matrix tests/debian_kernel tests/test_emulated.py
	@bin/barewire study run wire -o "runs/wire-$$(date +%Y%m%d-%H%M%S)"
benchmpi: build ## targets beside NetPIPE and FFTW, and with two interfaces; needs what `make test` installs
	@.venv/bin/python tools/bench_mpi.py
scoreboard: build ## every MPI pattern beside the best TCP, worst first; hours; writes docs/scoreboard.md
	@bin/barewire mpi scoreboard --markdown docs/scoreboard.md
predictions: build ## predictions from two ranks against kernels and collectives on 4 and 8, at 100 Mb/s and 1 Gb/s; half an hour
	@bin/barewire study run predictions -o "runs/predictions-$$(date +%Y%m%d-%H%M%S)"
applications: build ## ten and more unmodified programs of Debian's over Barewire and over TCP, with their own checks
	@setup/setup.sh applications
	@bin/barewire mpi applications --testbeds all
sim: build ## 100,000 simulated worlds of the protocol engine, of the whole stack, of the stack with libfabric, and with labels; 20,000 with carriers that fail
	@cargo run --release --quiet -p barewire-sim -- --jobs "$$(nproc)" --seeds 0..100000
	@cargo run --release --quiet -p barewire-sim -- --jobs "$$(nproc)" --stack --seeds 0..100000
	@cargo run --release --quiet -p barewire-sim -- --jobs "$$(nproc)" --stack --libfabric --seeds 0..100000
	@cargo run --release --quiet -p barewire-sim -- --jobs "$$(nproc)" --stack --labels --seeds 0..100000
	@cargo run --release --quiet -p barewire-sim -- --jobs "$$(nproc)" --stack --carriers --seeds 0..20000
	@cargo run --release --quiet -p barewire-sim -- --jobs "$$(nproc)" --stack --libfabric --carriers --seeds 0..20000
fuzz: ## search the engine, the message layer and pipes for inputs that break them, guided by coverage, for hours
	@tools/fuzz.sh
survive: build ## an interface down for 1 s in 100 jobs of each MPI library: all end right; FAULTS="carrier broker …" are others
	@.venv/bin/python tools/survive.py $(FAULTS)
starts: build ## jobs started 200 times where filters, routers, duplicate addresses or missing rights are in the way: all end right; OBSTACLES="routed …"
	@.venv/bin/python tools/starts.py $(OBSTACLES)
cluster: build ## check clusters of 16 emulated hosts with seeded faults, each of which must be named, and 20 without; half an hour; FAULTS="duplex …"
	@.venv/bin/python tools/cluster.py $(FAULTS)
programs: build ## random MPI programs over Barewire and TCP in turns, the slowest beside TCP first; minutes; PROGRAMS="--library mpich-5 -- --lab pair --offloads on"
	@.venv/bin/python tools/random_programs.py $(PROGRAMS)
soak: build ## MPI traffic of many kinds while all of that happens, ten minutes; make soak HOURS=4
	@.venv/bin/python tools/soak.py $(if $(HOURS),--hours $(HOURS))
miri: ## tests without system calls under Miri, which sees undefined behaviour; minutes
	@setup/setup.sh checks
	@tools/miri.sh
sanitize: build ## the provider's C tests with address and thread sanitizer in it; minutes
	@setup/setup.sh checks
	@tools/sanitize.sh
coverage: build ## which lines the tests execute, of Rust and of Python: tables, and pages in target/coverage; 40 minutes
	@setup/setup.sh checks
	@tools/coverage.sh
mutants: setup ## change the code at one place after the other: a test must fail (cargo-mutants); hours
	@setup/setup.sh checks
	@tools/mutants.sh
bindings: ## generate Rust's declarations of libfabric anew, from the headers of the libfabric-dev that is installed
	@setup/setup.sh bindings
	@tools/bindings.sh
huge: build ## a message beyond 4 GiB through the provider: a minute, 9 GB of memory
	@BAREWIRE_TEST_HUGE=1 .venv/bin/pytest -q tests/test_provider.py -k beyond
matrix: build ## what `make test` leaves out: each MPI measurement under every library over every fabric
	@.venv/bin/pytest -m matrix
cross: build ## build for arm64 and riscv64, test under qemu-user, and run jobs with an emulated arm64 board; an hour; ARCHITECTURES="arm64 …"
	@tools/cross.sh $(ARCHITECTURES)
fabtests: build ## libfabric's own tests against the provider: make fabtests DIR=where they are built
	@tools/fabtests.sh "$(DIR)"
packages: ## a wheel and a Debian package, each tried in a clean root, and in containers; as root; REBUILD=1 compiles twice and compares
	@setup/packages/build.sh
ci: ## what continuous integration runs
	@.ci/run
lock: ## pin the Python packages anew
	@setup/lock.sh
