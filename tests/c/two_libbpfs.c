// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * A C application that may have been linked with another libbpf than siteseer uses. It prints what registering said, and whether its
 * own libbpf knows siteseer's section then: the truth, whatever was said.
 */
#include <bpf/libbpf.h>
#include <siteseer.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	enum bpf_attach_type attach_type;
	enum bpf_prog_type type;
	int result, known;

	/* As a program in another language calls it: the function, and not the macro. */
	if (argc > 1 && !strcmp(argv[1], "function"))
		result = (siteseer_register)(NULL);
	else
		result = siteseer_register(NULL);
	known = !libbpf_prog_type_by_name("kprobe_maybe_inline/foo", &type, &attach_type);
	/* What an application of libbpf calls besides. */
	bpf_object__close(NULL);
	printf("%d %d %s\n", result, known, result ? siteseer_last_error() : "");
	return 0;
}
