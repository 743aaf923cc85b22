# SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
#
# Builds and installs the tool, and the library for C. For Rust nothing need be installed; for the tool alone there is
# `cargo install --path cli`.
#
#   make                                    builds the tool and the library
#   make library, make tool                 builds one of them; make install-library, make install-tool
#   make install [PREFIX=...] [DESTDIR=...]
#   make uninstall                          removes what install put there
#
# Folders are the GNU ones (PREFIX, BINDIR, LIBDIR, INCLUDEDIR, DATADIR, MANDIR); DESTDIR comes before each.
#
#   LIBBPF=system      the library uses the libbpf that the application is linked with, 1.1 or newer (the default)
#   LIBBPF=vendored    the library holds a libbpf, which the application uses too. Static only: two copies of libbpf in a process
#                      know nothing of each other's objects

PREFIX ?= /usr/local
EXEC_PREFIX ?= $(PREFIX)
BINDIR ?= $(EXEC_PREFIX)/bin
LIBDIR ?= $(EXEC_PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR ?= $(DATADIR)/zsh/site-functions
FISHDIR ?= $(DATADIR)/fish/vendor_completions.d
INSTALL ?= install
CC ?= cc
PKG_CONFIG ?= pkg-config
CARGO ?= cargo
# What is installed has no debug information. STRIP=: leaves it there, for packages whose builders take it out themselves.
STRIP ?= strip
# --offline, for one.
CARGO_FLAGS ?= --locked
LIBBPF ?= system
# Features of the tool. `mimalloc` is a faster allocator than the C library's, built from its C sources.
TOOL_FEATURES ?= network,mimalloc
# cargo's name of a profile: dev, release.
PROFILE ?= release

# Cargo's builds run other makefiles, libbpf's among them: folders given to this one are not theirs.
MAKEOVERRIDES :=
unexport PREFIX EXEC_PREFIX BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR PKGCONFIGDIR BASHDIR ZSHDIR FISHDIR DESTDIR

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The number is that of the library's soname: capi/build.rs.
SONAME := libsiteseer.so.0
# Wherever CARGO_TARGET_DIR or the user's configuration puts it.
TARGET = $(shell $(CARGO) metadata --format-version 1 --no-deps --offline | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

ifeq ($(LIBBPF),system)
CAPI_FEATURES := dwarf
# In applications libbpf's functions are called beside ours.
REQUIRES := Requires: libbpf >= 1.1
LIBS_PRIVATE := -lpthread -lm -ldl
# The shared library is linked here, and not by cargo: rustc passes the linker a version script of its own, and a second one is an error.
SHARED := yes
LIBS_SHARED = $(shell $(PKG_CONFIG) --libs libbpf libelf zlib) -lgcc_s -lpthread -lm -ldl -lc
else ifeq ($(LIBBPF),vendored)
CAPI_FEATURES := dwarf,vendored
REQUIRES := Requires.private: libelf zlib
LIBS_PRIVATE := -lpthread -lm -ldl
SHARED :=
else
$(error LIBBPF is system or vendored, not $(LIBBPF))
endif

all: tool library

# Optimised builds take long, and the first thing that cargo prints may be minutes away.
announce:
	@echo "Building siteseer $(VERSION) ($(if $(filter library%,$(MAKECMDGOALS)),,the tool; )$(if $(filter tool%,$(MAKECMDGOALS)),,the C library for LIBBPF=$(LIBBPF))): the first build takes several minutes, up to 20 on a busy machine with two cores"

tool: announce
	$(CARGO) build $(CARGO_FLAGS) --profile $(PROFILE) --package siteseer-cli --no-default-features --features $(TOOL_FEATURES)

library: announce
	$(CARGO) rustc $(CARGO_FLAGS) --profile $(PROFILE) --package siteseer-capi --lib --crate-type staticlib \
	    --no-default-features --features $(CAPI_FEATURES)
ifdef SHARED
	$(CC) -shared -o $(TARGET)/libsiteseer.so -Wl,-soname,$(SONAME) -Wl,--version-script=capi/siteseer.map -Wl,-z,defs \
	    -Wl,--gc-sections -Wl,--whole-archive $(TARGET)/libsiteseer_c.a -Wl,--no-whole-archive -Wl,--as-needed $(LIBS_SHARED)
endif

install: install-tool install-library

# The tool knows its own manual pages and completions.
install-tool: tool
	$(INSTALL) -d $(addprefix $(DESTDIR),$(BINDIR) $(MANDIR)/man1 $(BASHDIR) $(ZSHDIR) $(FISHDIR))
	$(INSTALL) -m 755 $(TARGET)/siteseer $(DESTDIR)$(BINDIR)/siteseer
	$(STRIP) $(DESTDIR)$(BINDIR)/siteseer
	$(TARGET)/siteseer generate man --output $(DESTDIR)$(MANDIR)/man1
	$(TARGET)/siteseer generate bash --output $(DESTDIR)$(BASHDIR)
	$(TARGET)/siteseer generate zsh --output $(DESTDIR)$(ZSHDIR)
	$(TARGET)/siteseer generate fish --output $(DESTDIR)$(FISHDIR)

install-library: library
	$(INSTALL) -d $(addprefix $(DESTDIR),$(LIBDIR) $(PKGCONFIGDIR) $(INCLUDEDIR) $(MANDIR)/man3)
	$(INSTALL) -m 644 $(TARGET)/libsiteseer_c.a $(DESTDIR)$(LIBDIR)/libsiteseer.a
	$(STRIP) --strip-debug $(DESTDIR)$(LIBDIR)/libsiteseer.a
ifdef SHARED
	$(INSTALL) -m 644 $(TARGET)/libsiteseer.so $(DESTDIR)$(LIBDIR)/libsiteseer.so.$(VERSION)
	$(STRIP) --strip-unneeded $(DESTDIR)$(LIBDIR)/libsiteseer.so.$(VERSION)
	ln -sf libsiteseer.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libsiteseer.so
endif
	$(INSTALL) -m 644 loader/include/siteseer.h loader/include/siteseer.bpf.h $(DESTDIR)$(INCLUDEDIR)
	$(INSTALL) -m 644 docs/man/siteseer.3 $(DESTDIR)$(MANDIR)/man3
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	    -e 's|@REQUIRES@|$(REQUIRES)|' -e 's|@LIBS_PRIVATE@|$(LIBS_PRIVATE)|' capi/siteseer.pc.in \
	    >$(DESTDIR)$(PKGCONFIGDIR)/siteseer.pc
	chmod 644 $(DESTDIR)$(PKGCONFIGDIR)/siteseer.pc

# Folders stay: others may use them.
uninstall:
	rm -f $(addprefix $(DESTDIR),$(BINDIR)/siteseer $(MANDIR)/man3/siteseer.3 $(PKGCONFIGDIR)/siteseer.pc \
	    $(BASHDIR)/siteseer $(ZSHDIR)/_siteseer $(FISHDIR)/siteseer.fish $(INCLUDEDIR)/siteseer.h $(INCLUDEDIR)/siteseer.bpf.h)
	rm -f $(DESTDIR)$(MANDIR)/man1/siteseer.1 $(DESTDIR)$(MANDIR)/man1/siteseer-*.1
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,libsiteseer.a libsiteseer.so $(SONAME) libsiteseer.so.$(VERSION))

.PHONY: all announce tool library install install-tool install-library uninstall
