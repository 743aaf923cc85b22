# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#
# Links libbpf-tools in each way of ci/clients, in the folder of the tools' own Makefile, which compiles everything else. Their objects
# are compiled once.
#
#   make -f build.mk SITESEER=PREFIX names              each tool with the tool that it is another name of
#   make -f build.mk SITESEER=PREFIX OUT/WAY/TOOL...    WAY: plain, siteseer, shared_plain, shared_siteseer

BPFTOOL := /usr/sbin/bpftool
override LIBBPF_OBJ := $(shell cc -print-file-name=libbpf.a)
USE_BLAZESYM := 0
# Compilers that are newer than the sources warn of more.
EXTRA_CFLAGS := -Wno-error
include Makefile

HERE := $(dir $(firstword $(MAKEFILE_LIST)))
OUT := $(SITESEER)/tools
# trace_helpers.o without fentry_can_attach(), which is in the constructor's file.
WITH := $(patsubst %/trace_helpers.o,%/other_trace_helpers.o,$(COMMON_OBJ)) $(OUTPUT)/constructor.o

names:
	@$(foreach app,$(APPS),echo $(app) $(app);)
	@$(foreach alias,$(FSDIST_ALIASES),echo $(alias) fsdist;)
	@$(foreach alias,$(FSSLOWER_ALIASES),echo $(alias) fsslower;)
	@echo $(SIGSNOOP_ALIAS) sigsnoop

$(OUTPUT)/other_trace_helpers.o: trace_helpers.c | $(OUTPUT)
	$(CC) $(CFLAGS) $(INCLUDES) -Dfentry_can_attach=other_fentry_can_attach -c $< -o $@

$(OUTPUT)/constructor.o: $(HERE)constructor.c $(SITESEER)/include/siteseer.h | $(OUTPUT)
	$(CC) $(CFLAGS) -I$(SITESEER)/include -c $< -o $@

define way
$(OUT)/$(1)/%: $(OUTPUT)/%.o $(2)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) -s $$(filter %.o,$$^) $(3) -lelf -lz -o $$@
endef

$(eval $(call way,plain,$(COMMON_OBJ),-l:libbpf.a))
$(eval $(call way,shared_plain,$(COMMON_OBJ),-lbpf))
$(eval $(call way,siteseer,$(WITH) $(SITESEER)/lib/libsiteseer.a,\
    -L$(SITESEER)/lib -l:libsiteseer.a -l:libbpf.a -lelf -lz -lm -ldl -lpthread))
$(eval $(call way,shared_siteseer,$(WITH) $(SITESEER)/lib/libsiteseer.so,-L$(SITESEER)/lib -lsiteseer -lbpf))
