// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Plugs siteseer into a program that was linked with a static libbpf and stripped. The dynamic linker loads this library before the
 * program runs (LD_PRELOAD). SITESEER_PLUG_MAP names a file with lines "function address", which say where the program has
 * libbpf's functions. siteseer is registered if SITESEER_PLUG_REGISTER is set.
 *
 * Without SHARED, the functions of libbpf that siteseer calls are those of the program: NAMES lists a jump for each. With SHARED,
 * siteseer calls libbpf.so, and so does the program, because its own functions begin with a jump there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <siteseer.h>

static void fail(const char *what)
{
	fprintf(stderr, "plug: %s\n", what);
	exit(99);
}

/* Of libbpf-tools: as siteseer.h recommends. */
static bool fentry_can_attach(const char *name, const char *mod)
{
	return siteseer_can_attach(name, mod) || (mod && siteseer_can_attach(name, NULL));
}

static int first_object(struct dl_phdr_info *info, size_t size, void *base)
{
	(void)size;
	*(uintptr_t *)base = info->dlpi_addr;
	return 1;
}

/* Lets a function begin with a jump to another. The linker aligns functions to 16 bytes, and this needs 14. */
static void redirect(uintptr_t from, void *to)
{
	uint8_t jump[14] = { 0xff, 0x25 };
	uintptr_t page = from & -4096UL;
	size_t size = from + sizeof(jump) - page;

	memcpy(jump + 6, &to, sizeof(to));
	if (mprotect((void *)page, size, PROT_READ | PROT_WRITE | PROT_EXEC))
		fail("cannot write to the program");
	memcpy((void *)from, jump, sizeof(jump));
	mprotect((void *)page, size, PROT_READ | PROT_EXEC);
}

#ifdef SHARED
static void use(const char *name, uintptr_t address)
{
	/* Functions that libbpf.so does not export are called by others of libbpf alone. */
	void *function = dlsym(RTLD_DEFAULT, name);

	if (function)
		redirect(address, function);
}
#else
static void missing(void)
{
	fail("siteseer calls a function of libbpf that the program does not have");
}

#define NAME(function)                                                                             \
	__attribute__((visibility("hidden"), used)) void *slot_##function = missing;               \
	__asm__(".pushsection .text\n.hidden " #function "\n.globl " #function "\n.type " #function \
		", @function\n" #function ": jmp *slot_" #function "(%rip)\n.popsection\n");
#include NAMES
#undef NAME

static const struct {
	const char *name;
	void **slot;
} slots[] = {
#define NAME(function) { #function, &slot_##function },
#include NAMES
};

static void use(const char *name, uintptr_t address)
{
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++)
		if (!strcmp(slots[i].name, name))
			*slots[i].slot = (void *)address;
}
#endif

__attribute__((constructor)) static void plug(void)
{
	const char *path = getenv("SITESEER_PLUG_MAP");
	const char *wanted = getenv("SITESEER_PLUG_REGISTER");
	FILE *map = path ? fopen(path, "r") : NULL;
	uintptr_t base = 0, address;
	char name[128];

	if (!map)
		fail("no file of addresses");
	dl_iterate_phdr(first_object, &base);
	while (fscanf(map, "%127s %lx", name, &address) == 2) {
		if (!strcmp(name, "fentry_can_attach")) {
			if (wanted)
				redirect(base + address, fentry_can_attach);
		} else {
			use(name, base + address);
		}
	}
	fclose(map);
	if (wanted && siteseer_register(NULL))
		fail(siteseer_last_error());
}
