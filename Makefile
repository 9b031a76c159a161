# cupola - see `make help`. Everything built goes under build/; config.mk (untracked) may override.
-include config.mk

VARIANT ?= release## release, debug, asan (address+undefined) or tsan
WERROR  ?= 0##    1: a warning is an error (CI)
PREFIX  ?= /usr/local##  install root, below DESTDIR
CC  ?= cc
CXX ?= c++
PKG_CONFIG ?= pkg-config
FUZZ_CC ?= clang-14
FUZZ_SECONDS ?= 600##  how long `make fuzz` runs each target
PROVE_JOBS ?= 2
V ?= 0##         1: print every command
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@echo '  $(1)')
B := build/$(VARIANT)

# ---- flags ----
OPT_release := -O2
OPT_debug   := -O0
OPT_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan    := -O1 -fsanitize=thread
$(if $(OPT_$(VARIANT)),,$(error VARIANT is release, debug, asan or tsan))

# Goals that compile nothing need no libraries, and `demo` and `check` install them first.
NEEDS_LIBS := $(filter-out clean help demo check check-asan check-tsan fuzz deps,$(or $(MAKECMDGOALS),all))
PKG_NAMES  := lua5.4:liblua5.4-dev yaml-0.1:libyaml-dev jansson:libjansson-dev
ifneq ($(NEEDS_LIBS),)
  $(foreach p,$(PKG_NAMES),$(if $(shell $(PKG_CONFIG) --exists $(firstword $(subst :, ,$(p))) 2>/dev/null && echo y),,\
    $(error $(firstword $(subst :, ,$(p))) not found by $(PKG_CONFIG); on Debian: apt install $(lastword $(subst :, ,$(p))), or run tools/deps.sh)))
  # Debian's oneDNN ships no .pc file: ask the compiler.
  $(if $(shell printf '\043include <dnnl.h>\nint main(void){return dnnl_version()==0;}\n' | $(CC) -x c -o /dev/null - -ldnnl 2>/dev/null && echo y),,\
    $(error oneDNN not found by $(CC) (dnnl.h, -ldnnl); on Debian: apt install libdnnl-dev, or run tools/deps.sh))
endif
PKGS := $(foreach p,$(PKG_NAMES),$(firstword $(subst :, ,$(p))))

CFLAGS ?= -g
WARN   := -Wall -Wextra -Wconversion -Wshadow -Wvla -Wformat=2 $(if $(filter 1,$(WERROR)),-Werror)
WARN_C := -Wstrict-prototypes -Wmissing-prototypes
# -ffp-contract=off: which products and sums fuse must not depend on how a loop was compiled (docs/architecture.md)
BOTH   := -I. $(WARN) -fvisibility=hidden -ffp-contract=off -pthread $(OPT_$(VARIANT)) $(CPPFLAGS)
ifneq ($(NEEDS_LIBS),)
  PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS))
  PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS))
endif
ALL_CFLAGS   := -std=gnu17 $(BOTH) $(WARN_C) -fno-common $(PKG_CFLAGS) $(CFLAGS)
ALL_CXXFLAGS := -std=gnu++17 $(BOTH) $(CFLAGS) $(CXXFLAGS)
ALL_LIBS     := $(OPT_$(VARIANT)) $(LDFLAGS) $(PKG_LIBS) -ldl -lm -pthread
PLUGIN_LIBS  := $(OPT_$(VARIANT)) $(LDFLAGS) -shared -Wl,-z,defs -lm -pthread

# ---- sources ----
ENGINE_SRC := $(sort $(wildcard engine/*/*.c))
TUI_SRC    := $(filter-out tui/main.c,$(sort $(wildcard tui/*.c tui/cmd/*.c)))
CPU_SRC    := $(sort $(wildcard kernels/cpu/*.c kernels/cpu/*.cpp))
REF_SRC    := $(sort $(wildcard kernels/ref/*.c))
TEST_SRC   := $(sort $(wildcard tests/t_*.c))
TEST_LIB   := $(filter-out $(TEST_SRC),$(sort $(wildcard tests/*.c)))
FUZZ_SRC   := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FORMATTED  := $(sort $(wildcard kernels/*.h kernels/*/*.[ch] kernels/*/*.cpp engine/*/*.[ch] tui/*.[ch] tui/cmd/*.[ch] tests/*.[ch] tests/*/*.[ch] bench/*.[ch] tools/*.[ch]))
obj = $(addprefix $(B)/,$(addsuffix .o,$(1)))
TESTS   := $(TEST_SRC:%.c=$(B)/%) $(sort $(wildcard tests/t_*.sh))
PLUGINS := $(B)/cupola_cpu.so $(B)/cupola_ref.so

all: $(B)/cupola $(PLUGINS) ## the program and its plugins

$(B)/cupola: $(call obj,tui/main.c) $(B)/libcupola.a
	$(call say,link  $@)
	$(Q)$(CC) -o $@ $^ $(ALL_LIBS)

$(B)/libcupola.a: $(call obj,$(ENGINE_SRC) $(TUI_SRC))
	$(call say,ar    $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(B)/libtest.a: $(call obj,$(TEST_LIB))
	$(call say,ar    $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(B)/cupola_cpu.so: $(call obj,$(CPU_SRC))
	$(call say,link  $@)
	$(Q)$(CXX) -o $@ $^ $(PLUGIN_LIBS) -ldnnl -ldl

$(B)/cupola_ref.so: $(call obj,$(REF_SRC))
	$(call say,link  $@)
	$(Q)$(CC) -o $@ $^ $(PLUGIN_LIBS)

$(B)/tests/t_%: $(B)/tests/t_%.c.o $(B)/libtest.a $(B)/libcupola.a
	$(call say,link  $@)
	$(Q)$(CC) -o $@ $^ $(ALL_LIBS)

# A loop compiled for more than the baseline lives in a file whose name says so; it runs only where the CPU has it.
ISA_avx2   := -mavx2 -mfma
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
isa = $(if $(filter x86_64,$(MACHINE)),$(foreach i,avx2 avx512,$(if $(findstring _$(i),$(1)),$(ISA_$(i)))))
MACHINE := $(shell uname -m)

$(B)/kernels/%.c.o: private EXTRA = -fPIC $(call isa,$*) -O3
$(B)/kernels/%.cpp.o: private EXTRA = -fPIC
$(B)/%.c.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,cc    $<)
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA) -MMD -MP -c -o $@ $<
$(B)/%.cpp.o: %.cpp $(B)/flags
	@mkdir -p $(@D)
	$(call say,c++   $<)
	$(Q)$(CXX) $(ALL_CXXFLAGS) $(EXTRA) -MMD -MP -c -o $@ $<

# A changed compiler or flag rebuilds everything; an unchanged one touches nothing.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS) $(ALL_LIBS) $(CXX) $(ALL_CXXFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(ALL_LIBS) $(CXX) $(ALL_CXXFLAGS)' > $@
FORCE:

# ---- running ----
deps: ## install what building needs (apt)
	tools/deps.sh build

demo: ## install what is missing, build, train the digits with a live chart
	tools/deps.sh build
	$(MAKE) all
	$(B)/cupola train configs/digits.yaml

test: all $(TESTS) $(B)/tools/gen_docs ## build and run every test (TAP)
	CUPOLA_PLUGIN_DIR=$(CURDIR)/$(B) CUPOLA=$(CURDIR)/$(B)/cupola prove -j $(PROVE_JOBS) --exec '' $(TESTS)

check: ## install what is missing, build, run every test, check format
	tools/deps.sh test
	$(MAKE) test
	$(MAKE) format-check

check-asan check-tsan: check-%: ## the tests under a sanitizer
	tools/deps.sh test
	$(MAKE) VARIANT=$* test

format-check: ## every source file is as clang-format would write it
	@clang-format-14 --dry-run -Werror $(FORMATTED)
format: ## make it so
	@clang-format-14 -i $(FORMATTED)

FUZZERS := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=fuzz-%)
build/fuzz/%: tests/fuzz/fuzz_%.c $(ENGINE_SRC) $(wildcard engine/*/*.h kernels/*.h)
	@mkdir -p $(@D)
	$(FUZZ_CC) -std=gnu17 -I. -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -ffp-contract=off \
	    $(shell $(PKG_CONFIG) --cflags $(PKGS)) -o $@ $< $(ENGINE_SRC) $(shell $(PKG_CONFIG) --libs $(PKGS)) -ldl -lm -pthread
fuzz: ## run each fuzz target for FUZZ_SECONDS
	tools/deps.sh fuzz
	$(MAKE) $(FUZZERS)
# New inputs go to build/, seeds are only read. A slow input is a finding: 5 s for one.
fuzz-%: build/fuzz/%
	@mkdir -p build/fuzz/corpus-$*
	cd build/fuzz && ./$* -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
	    -artifact_prefix=$*- corpus-$* $(CURDIR)/tests/fuzz/seeds/$*

$(B)/tools/gen_docs: $(call obj,tools/gen_docs.c) $(B)/libcupola.a
	$(call say,link  $@)
	$(Q)$(CC) -o $@ $^ $(ALL_LIBS)
docs: $(B)/tools/gen_docs ## write docs/config.md from the table of keys
	$(B)/tools/gen_docs > docs/config.md

$(B)/bench/bench: $(call obj,bench/bench.c) $(B)/libcupola.a
	$(call say,link  $@)
	$(Q)$(CC) -o $@ $^ $(ALL_LIBS)

bench: all $(B)/bench/bench ## measure this machine and the training step (bench/README.md)
	bench/run.sh $(B)

install: all ## into $(DESTDIR)$(PREFIX)
	install -Dm755 $(B)/cupola '$(DESTDIR)$(PREFIX)/bin/cupola'
	install -Dm755 -t '$(DESTDIR)$(PREFIX)/lib/cupola' $(PLUGINS)
	cd scripts && find . -name '*.lua' -exec install -Dm644 {} '$(DESTDIR)$(PREFIX)/share/cupola/scripts/{}' \;
	cd configs && find . -type f -exec install -Dm644 {} '$(DESTDIR)$(PREFIX)/share/cupola/configs/{}' \;
	install -Dm644 -t '$(DESTDIR)$(PREFIX)/share/doc/cupola' README.md LICENSE CHANGELOG.md $(wildcard docs/*.md)

clean: ## remove build/
	rm -rf build

help: ## this text
	@awk -F'##' '/^[A-Z_]+ *\?=.*##/ {split($$1,a," "); printf "  %-14s %s\n", a[1] "=", $$2}\
	  /^[a-z][a-z -]*:.*##/ {sub(/:.*/,"",$$1); printf "  %-14s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: all deps demo test check check-asan check-tsan format format-check fuzz docs bench install clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
