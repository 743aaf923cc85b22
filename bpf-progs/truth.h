/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What truth.bpf.c tells the tests: src/truth.rs reads the same layout. */
#ifndef SITESEER_TRUTH_H
#define SITESEER_TRUTH_H

#define TRUTH_VALUES 10

/* Which program wrote a record. */
enum truth_program {
	TRUTH_COPY_KEY = 1,
	TRUTH_COPY_KEY_SLOTS = 2,
	TRUTH_NS_CAPABLE = 3,
	TRUTH_JHASH = 4,
	TRUTH_ANY = 5,
	TRUTH_COUNT = 6,
	TRUTH_CONTEXT = 7,
	TRUTH_SUBPROGRAM = 8,
	TRUTH_COPY_KEY_STRUCT = 9,
};

struct truth_record {
	__u32 program;
	__u32 kind;	/* the site's, enum siteseer_site_kind; ~0 if it is not known */
	__u32 site;	/* the site's number; ~0 if it is not known */
	__u32 tgid;
	__u64 cookie;
	__u64 address;	/* of the site; 0 if it is not known */
	__u64 present;	/* one bit for each value that could be obtained */
	__u64 values[TRUTH_VALUES];
};

#endif
