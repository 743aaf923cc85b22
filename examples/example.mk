# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#
# Builds an example in C, $(NAME), from $(NAME).bpf.c and $(NAME).c, against the siteseer and the libbpf that pkg-config finds.
#
#   make [STATIC=1] [VMLINUX_BTF=FILE] [OUTPUT=FOLDER] [CLANG=clang-19]
#
# If siteseer was installed with a PREFIX that pkg-config does not search, set PKG_CONFIG_PATH=PREFIX/lib/pkgconfig, and tell the
# dynamic linker of PREFIX/lib (a file in /etc/ld.so.conf.d and ldconfig, or LD_LIBRARY_PATH).

# `clang`, or the newest of those that have their version in the name.
CLANG ?= $(or $(shell command -v clang),$(lastword $(shell ls /usr/bin/clang-[0-9][0-9] 2>/dev/null)),clang)
BPFTOOL ?= $(or $(shell command -v bpftool),/usr/sbin/bpftool)
PKG_CONFIG ?= pkg-config
# Whose types vmlinux.h has. CO-RE makes the program fit other kernels.
VMLINUX_BTF ?= /sys/kernel/btf/vmlinux
OUTPUT ?= .
# vmlinux.h of newer kernels has members that are structures without a name of their own.
BPF_CFLAGS ?= -O2 -g -Wall -fms-extensions -Wno-microsoft-anon-tag
CFLAGS ?= -O2 -g -Wall -Wextra

BPF_ARCH := $(subst aarch64,arm64,$(subst x86_64,x86,$(shell uname -m)))
SITESEER_CFLAGS := $(shell $(PKG_CONFIG) --cflags siteseer)
SITESEER_LIBS := $(if $(STATIC),-static) $(shell $(PKG_CONFIG) $(if $(STATIC),--static) --libs siteseer)

$(OUTPUT)/$(NAME): $(NAME).c $(wildcard *.h) $(OUTPUT)/$(NAME).skel.h
	$(CC) $(CFLAGS) $(LDFLAGS) -I$(OUTPUT) $(SITESEER_CFLAGS) $< -o $@ $(SITESEER_LIBS)

$(OUTPUT)/$(NAME).skel.h: $(OUTPUT)/$(NAME).bpf.o
	$(BPFTOOL) gen skeleton $< name $(NAME)_bpf > $@.new
	mv $@.new $@

$(OUTPUT)/$(NAME).bpf.o: $(NAME).bpf.c $(wildcard *.h) $(OUTPUT)/vmlinux.h
	$(CLANG) -target bpf -D__TARGET_ARCH_$(BPF_ARCH) $(BPF_CFLAGS) -I$(OUTPUT) $(SITESEER_CFLAGS) -c $< -o $@

$(OUTPUT)/vmlinux.h:
	mkdir -p $(OUTPUT)
	$(BPFTOOL) btf dump file $(VMLINUX_BTF) format c > $@.new
	mv $@.new $@

clean:
	rm -f $(addprefix $(OUTPUT)/,$(NAME) $(NAME).skel.h $(NAME).bpf.o vmlinux.h)

.PHONY: clean
