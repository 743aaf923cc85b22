// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/* The change that gives a tool of libbpf-tools siteseer: it is linked with this file, and with no fentry_can_attach() of its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <siteseer.h>

/* As siteseer.h recommends. */
bool fentry_can_attach(const char *name, const char *mod)
{
	return siteseer_can_attach(name, mod) || (mod && siteseer_can_attach(name, NULL));
}

__attribute__((constructor)) static void before_main(void)
{
	if (siteseer_register(NULL)) {
		fprintf(stderr, "siteseer: %s\n", siteseer_last_error());
		exit(99);
	}
}
