# Makefile -- build, check, demo, bench, install.  `make help` lists what there is.

CC       ?= cc
MPICC    ?= mpicc
BUILD    ?= build
PREFIX   ?= /usr/local
# Lines for backtraces; with variables for a debugger (-g) objects take a seventh longer to make.
CFLAGS   ?= -O2 -g1
WARNINGS  = -Wall -Wextra -Wpedantic -Wno-unused-parameter $(if $(GCC),-Wshadow=local)
GCC      := $(findstring Free Software,$(shell $(CC) --version))
CPPFLAGS += -D_POSIX_C_SOURCE=200809L -Iir -Ifrontend -Ipasses -Icodegen -Idriver -I. -I$(BUILD)/gen
ALL_CFLAGS = -std=gnu17 $(WARNINGS) $(CFLAGS) $(SHORTER) $(EXTRA_CFLAGS) -MMD -MP
# What the compiler says stays beside the object: tests/build/run.sh accepts nothing.
NOTED = 2>$@.said; status=$$?; cat $@.said >&2; [ -s $@.said ] || rm $@.said; exit $$status

COMPILER  = $(wildcard ir/*.c ir/*/*.c frontend/*/*.c passes/*/*.c codegen/*.c codegen/*/*.c driver/*.c driver/*/*.c)
TEMPLATES = $(sort $(wildcard codegen/text/templates/*.c))
OPTIMIZERS = $(sort $(wildcard frontend/optimizers/*.mdl))
# What a page of mpc report is made of.
PAGE      = $(addprefix driver/page/,page.html page.css page.js timeline.js)
# The pages and pictures of mpc plot and mpc plan.
CHARTS    = $(addprefix driver/page/,chart.css charts.css charts.js plan.css plan.js)
# What mpc lsp shows of functions and settings.
PAGES     = docs/language.md docs/experts.md docs/optimizers.md
MACHINES  = $(sort $(wildcard machines/*.machine))
OBJECTS   = $(COMPILER:%.c=$(BUILD)/%.o) $(BUILD)/gen/grammar.o $(BUILD)/gen/scan.o
RUNTIME   = $(filter-out runtime/cuda/% runtime/kernels/% $(if $(filter no,$(MPI)),runtime/net/comm_mpi.c),$(wildcard runtime/*.c runtime/*/*.c))
RT_OBJECTS = $(RUNTIME:%.c=$(BUILD)/%.o)

# Kernels that trainers link, for each level of vectors (runtime/kernels/library.h): -march of a level, `base`: none.
LEVELS = base $(if $(filter x86_64-%,$(shell $(CC) -dumpmachine)),x86-64-v3 x86-64-v4)
LIBRARY_FLAGS ?= -O3
KERNEL_OBJECTS = $(LEVELS:%=$(BUILD)/runtime/kernels/library.%.o)

# Without MPI (MPI=no, or no $(MPICC) is found) trainers of several ranks have TCP alone.  mpi.flags has what trainers with
# MPI are linked with: nothing, if the runtime was built without.  That stays so until MPI or MPICC is given.
MPI       ?= $(if $(if $(wildcard $(BUILD)/mpi.flags),$(file <$(BUILD)/mpi.flags),$(shell command -v $(MPICC))),yes,no)
MPI_GIVEN  = $(filter command environment,$(origin MPI) $(origin MPICC))

# The location of CUDA; without it, the runtime for GPUs is not built.  A trainer for GPUs has cuda/ instead of cpu/,
# and no MPI.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) /usr/local/cuda/bin/nvcc))
GPU        = $(if $(wildcard $(CUDA_HOME)/include/cublasLt.h),$(if $(wildcard $(CUDA_HOME)/include/nccl.h),$(wildcard runtime/cuda/*.c)))
GPU_OBJECTS = $(filter-out $(BUILD)/runtime/cpu/% $(BUILD)/runtime/net/comm_mpi.o,$(RT_OBJECTS)) $(GPU:%.c=$(BUILD)/%.o)

.DELETE_ON_ERROR:
SECONDS ?= 3600
.PHONY: all deps hf lsp-client tensorboard bridges clang-format onednn3 aarch64-libraries check check-all check-gpu gpu-bundle fuzz-models demo bench bench-gpu format clean install deb uninstall help always without-mpi

# The objects that take longest are made first, so that no processor is idle at the end.
all: $(if $(filter no,$(MPI)),$(if $(filter file,$(origin MPI)),without-mpi)) $(KERNEL_OBJECTS) $(BUILD)/mpc $(BUILD)/libmpcrt.a $(if $(GPU),$(BUILD)/libmpcrt_cuda.a)

without-mpi:
	@echo 'without MPI: trainers of several ranks need --comm=tcp (where there is an mpicc: make MPI=yes; no note: make MPI=no)'

help:
	@echo 'make            build mpc and the runtime into $(BUILD)/ (MPI=no: without MPI; MPICC=mpicc.mpich: with another)'
	@echo 'make demo       set up what is missing, train examples/chars.mdl on this source tree, sample from it'
	@echo 'make check      set up what is missing, pass every test (T=NAME: one group; BLESS=1: rewrite expectations)'
	@echo '                CHANGED=1: only groups that can reach what has changed since main; CHANGED=REV: since REV'
	@echo 'make check-all  the same, and what takes minutes more: other libraries, compilers, processors'
	@echo 'make hf         install transformers into $(BUILD)/hf, for the tests of mpc import and export'
	@echo 'make bridges    install libraries of tokenizers, wandb and schemas of Kubernetes into $(BUILD)/bridges, for the tests of packaging/'
	@echo 'make tensorboard  install TensorBoard into $(BUILD)/tensorboard, for the test of mpc plot --tensorboard'
	@echo 'make lsp-client   install pygls into $(BUILD)/lsp-client, for the tests of mpc lsp'
	@echo 'make clang-format  install clang-format 14 into $(BUILD)/clang-format, where the distribution has another'
	@echo 'make onednn3    install oneDNN 3.2 into $(BUILD)/onednn3, for make check-all'
	@echo 'make aarch64-libraries  unpack those of Debian into $(BUILD)/aarch64, for make check-all'
	@echo 'make check-gpu  pass the tests that need a GPU'
	@echo 'make gpu-bundle   the same for a GPU machine without compilers, as a folder: out/gpu-bundle'
	@echo 'make fuzz-models  try random models against PyTorch (SECONDS=3600 SEED=0); failures go to $(BUILD)/random/'
	@echo 'make bench      compare with PyTorch, XLA and itself on this machine; results go to bench/results/'
	@echo 'make bench-gpu  compare with PyTorch on a GPU; results go to bench/results/'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make deb        make a Debian package in out/'
	@echo 'make uninstall  from there'
	@echo 'make format     clang-format over all sources'

deps:
	@sh tests/deps.sh

tensorboard:
	/usr/bin/python3 -m venv $(BUILD)/tensorboard
	$(BUILD)/tensorboard/bin/pip install -q tensorboard

bridges:
	/usr/bin/python3 -m venv $(BUILD)/bridges
	$(BUILD)/bridges/bin/pip install -q wandb tokenizers jinja2 sentencepiece tiktoken numpy kubernetes-validate

lsp-client:
	/usr/bin/python3 -m venv $(BUILD)/lsp-client
	$(BUILD)/lsp-client/bin/pip install -q pytest-lsp pytest-xdist

hf:
	/usr/bin/python3 -m venv $(BUILD)/hf
	$(BUILD)/hf/bin/pip install -q torch transformers peft pyarrow pytest pytest-xdist

clang-format:
	/usr/bin/python3 -m venv $(BUILD)/clang-format
	$(BUILD)/clang-format/bin/pip install -q clang-format==14.0.6

onednn3:
	/usr/bin/python3 -m venv $(BUILD)/onednn3
	$(BUILD)/onednn3/bin/pip install -q onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0

aarch64-libraries:
	sh tests/port/sysroot.sh $(BUILD)/aarch64 arm64 libc6-dev libgomp1 libdnnl-dev libcjson-dev libssl-dev

# Checksums of checkpoints and what other trainers call an option are the runtime's.
$(BUILD)/mpc: $(OBJECTS) $(addprefix $(BUILD)/runtime/,store/checksum.o processor_has.o habits.o)
	$(CC) $(ALL_CFLAGS) -o $@ $^ $(LDFLAGS) -fopenmp -lcjson -lcrypto -lm

$(BUILD)/mpi.flags $(BUILD)/mpi.compile &: $(if $(MPI_GIVEN),always)
	@mkdir -p $(@D)
	@sh runtime/net/mpi_flags.sh $(@D) $(if $(filter yes,$(MPI)),'$(MPICC)')

$(BUILD)/libmpcrt.a: $(RT_OBJECTS) $(KERNEL_OBJECTS) $(BUILD)/mpi.flags
	rm -f $@
	ar rcs $@ $(RT_OBJECTS) $(KERNEL_OBJECTS)

$(BUILD)/libmpcrt_cuda.a: $(GPU_OBJECTS)
	rm -f $@
	ar rcs $@ $(GPU_OBJECTS)

$(BUILD)/gen/kernels_header.cu: runtime/cuda/flatten.sh $(wildcard runtime/*.h runtime/mesh/*.h runtime/kernels/*.h runtime/cuda/*.[ch] runtime/cuda/*.cuh runtime/cuda/nvrtc/*.h)
	@mkdir -p $(@D)
	sh runtime/cuda/flatten.sh runtime/cuda/kernels.cuh > $@

$(BUILD)/gen/grammar.c $(BUILD)/gen/grammar.h &: frontend/syntax/grammar.y
	@mkdir -p $(@D)
	bison -Wall -Wno-yacc --defines=$(BUILD)/gen/grammar.h -o $(BUILD)/gen/grammar.c $<

$(BUILD)/gen/scan.c: frontend/syntax/scan.l
	@mkdir -p $(@D)
	flex -o $@ $<

$(BUILD)/gen/templates.h: codegen/text/embed.sh $(TEMPLATES)
	@mkdir -p $(@D)
	sh codegen/text/embed.sh $(TEMPLATES) > $@

# The optimizers that mpc has, in its own language.
$(BUILD)/gen/optimizers.h: codegen/text/embed.sh $(OPTIMIZERS)
	@mkdir -p $(@D)
	sh codegen/text/embed.sh $(OPTIMIZERS) > $@

$(BUILD)/gen/machines.h: codegen/text/embed.sh $(MACHINES)
	@mkdir -p $(@D)
	sh codegen/text/embed.sh $(MACHINES) > $@

$(BUILD)/gen/new.h: codegen/text/embed.sh driver/new.mdl
	@mkdir -p $(@D)
	sh codegen/text/embed.sh driver/new.mdl > $@

$(BUILD)/gen/page.h: driver/page/embed.sh $(PAGE)
	@mkdir -p $(@D)
	sh driver/page/embed.sh $(PAGE) > $@

$(BUILD)/gen/drawing.h: driver/page/embed.sh driver/page/drawing.css
	@mkdir -p $(@D)
	sh driver/page/embed.sh driver/page/drawing.css > $@

$(BUILD)/gen/charts.h: driver/page/embed.sh $(CHARTS)
	@mkdir -p $(@D)
	sh driver/page/embed.sh $(CHARTS) > $@

$(BUILD)/gen/pages_of_docs.h: driver/lsp/pages.sh $(PAGES)
	@mkdir -p $(@D)
	sh driver/lsp/pages.sh $(PAGES) > $@

# These run for a moment, and -O2 takes gcc twice as long.  CFLAGS that are given hold for all.
$(BUILD)/frontend/%.o $(BUILD)/codegen/%.o $(BUILD)/driver/%.o: SHORTER = $(if $(filter file,$(origin CFLAGS)),-O1)
$(BUILD)/driver/planner/%.o: SHORTER =

# Output of bison and flex, with fewer warnings.
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/gen/grammar.h
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -Wno-sign-compare -Wno-unused-but-set-variable -c -o $@ $< $(NOTED)

$(BUILD)/runtime/net/comm_mpi.o: runtime/net/comm_mpi.c $(BUILD)/mpi.compile
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Iruntime $(ALL_CFLAGS) $$(cat $(BUILD)/mpi.compile) -c -o $@ $< $(NOTED)

$(BUILD)/runtime/cuda/kernels.o: $(BUILD)/gen/kernels_header.cu
$(BUILD)/runtime/cuda/%.o: runtime/cuda/%.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Iruntime -I$(BUILD)/gen -isystem $(CUDA_HOME)/include $(ALL_CFLAGS) -c -o $@ $< $(NOTED)

# Arithmetic as in a trainer (driver/cc.c); position independent, for tests that load kernels.
$(KERNEL_OBJECTS): $(BUILD)/runtime/kernels/library.%.o: runtime/kernels/library.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Iruntime $(ALL_CFLAGS) $(LIBRARY_FLAGS) $(patsubst -march=base,,-march=$*) -fPIC -fno-math-errno -fno-trapping-math -fopenmp -c -o $@ $< $(NOTED)

$(BUILD)/runtime/%.o: runtime/%.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Iruntime $(ALL_CFLAGS) -fopenmp -c -o $@ $< $(NOTED)

$(BUILD)/%.o: %.c | $(BUILD)/gen/grammar.h $(BUILD)/gen/templates.h $(BUILD)/gen/optimizers.h $(BUILD)/gen/machines.h $(BUILD)/gen/new.h $(BUILD)/gen/page.h $(BUILD)/gen/drawing.h $(BUILD)/gen/charts.h $(BUILD)/gen/pages_of_docs.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $< $(NOTED)

check:
	@sh tests/deps.sh
	@$(MAKE) --no-print-directory -j2 all
	@sh tests/run.sh

# Groups see ALL.
check-all:
	@[ -f $(BUILD)/onednn3/include/dnnl.h ] || $(MAKE) --no-print-directory onednn3
	@[ -f $(BUILD)/aarch64/usr/include/dnnl.h ] || $(MAKE) --no-print-directory aarch64-libraries
	@ALL=1 $(MAKE) --no-print-directory check

# The default seed changes daily.
fuzz-models:
	@sh tests/deps.sh
	@$(MAKE) --no-print-directory -j2 all
	@/usr/bin/python3 tests/random/fuzz.py --mpc $(BUILD)/mpc --out $(BUILD)/random --seconds $(SECONDS) --seed $(or $(SEED),$(shell date +%j)000000) --shrink

# The text is this source tree, bytes as tokens.
demo:
	@sh tests/deps.sh build
	@$(MAKE) --no-print-directory -j2 all
	@sh examples/demo.sh

bench:
	@sh tests/deps.sh
	@$(MAKE) --no-print-directory -j2 all
	@python3 bench/run.py

check-gpu: all
	@sh tests/gpu/check.sh

gpu-bundle: all
	@CUDA_HOME="$(CUDA_HOME)" BUILD="$(BUILD)" python3 tests/gpu/bundle/build.py out/gpu-bundle

bench-gpu: all
	@python3 bench/gpu.py

# In quotes, since a folder may have any name: else `uninstall` removes another one.
TO = '$(subst ','\'',$(DESTDIR)$(PREFIX))'

install: all
	install -d $(TO)/bin $(TO)/lib/mpc/include/kernels $(TO)/share/man/man1 \
	    $(TO)/share/bash-completion/completions $(TO)/share/zsh/site-functions $(TO)/share/fish/vendor_completions.d \
	    $(TO)/share/mpc/examples/maps $(TO)/share/mpc/machines
	install $(BUILD)/mpc $(TO)/bin/mpc
	install -m 644 $(BUILD)/libmpcrt.a $(BUILD)/mpi.flags $(if $(GPU),$(BUILD)/libmpcrt_cuda.a) $(TO)/lib/mpc/
	install -m 644 runtime/rt.h runtime/processor_features.h runtime/types.h runtime/convert.h runtime/philox.h $(TO)/lib/mpc/include/
	install -m 644 runtime/kernels/*.h $(TO)/lib/mpc/include/kernels/
	install -d $(TO)/lib/mpc/include/cuda/nvrtc
	install -m 644 runtime/cuda/*.cuh runtime/cuda/message.h $(TO)/lib/mpc/include/cuda/
	install -m 644 runtime/cuda/nvrtc/*.h $(TO)/lib/mpc/include/cuda/nvrtc/
	install -m 644 docs/mpc.1 $(TO)/share/man/man1/mpc.1
	install -m 644 driver/completion/mpc.bash $(TO)/share/bash-completion/completions/mpc
	install -m 644 driver/completion/mpc.zsh $(TO)/share/zsh/site-functions/_mpc
	install -m 644 driver/completion/mpc.fish $(TO)/share/fish/vendor_completions.d/mpc.fish
	install -m 644 examples/*.mdl $(TO)/share/mpc/examples/
	install -m 644 examples/maps/*.map $(TO)/share/mpc/examples/maps/
	install -m 644 machines/*.machine $(TO)/share/mpc/machines/
	install -d $(TO)/share/mpc/editors
	cp -R editors/vim editors/nvim editors/vscode editors/emacs editors/tree-sitter-mpc $(TO)/share/mpc/editors/
	install packaging/tokens.py packaging/records.py packaging/wandb_log.py $(TO)/share/mpc/

deb: all
	@sh packaging/deb.sh out

uninstall:
	rm -rf $(TO)/lib/mpc $(TO)/share/mpc
	rm -f $(TO)/bin/mpc $(TO)/share/man/man1/mpc.1 \
	    $(TO)/share/bash-completion/completions/mpc $(TO)/share/zsh/site-functions/_mpc \
	    $(TO)/share/fish/vendor_completions.d/mpc.fish

# Templates are not valid C, and golden files are output of mpc.
FORMAT ?= sh tests/clang_format.sh -i
SOURCES = $(shell find ir frontend passes codegen driver runtime tests bench -name '*.[ch]' -o -name '*.cuh' | \
            grep -v -e /templates/ -e /golden/)
format:
	$(FORMAT) $(SOURCES)

clean:
	rm -rf $(BUILD)

-include $(OBJECTS:.o=.d) $(RT_OBJECTS:.o=.d) $(KERNEL_OBJECTS:.o=.d) $(GPU_OBJECTS:.o=.d)
