/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* What trace.bpf.c tells user space: src/trace.rs reads the same layout. */
#ifndef SITESEER_TRACE_H
#define SITESEER_TRACE_H

/* Parameters that are kept of a call, and 8-byte slots of each. */
#define TRACE_PARAMETERS 12
#define TRACE_SLOTS 2
/* Strings that are kept of one call, and the bytes of each, with its NUL. */
#define TRACE_STRINGS 4
#define TRACE_STRING_LEN 64

/* What to do at one function; the key is the attachment's cookie. */
struct trace_function {
	/* Parameters that point at text to be copied, of the kernel or of the process, one bit each. */
	__u32 strings;
};

/* The record is of a return. */
#define TRACE_RETURN 1
/* It has what the function returned. */
#define TRACE_RESULT 2
/* It is followed by the members that were asked for. */
#define TRACE_MEMBERS 4
/* It has how long the call took. */
#define TRACE_DURATION 8
/* After the members it has a stack. */
#define TRACE_STACK 16
/* It is followed by its place in a tree of calls, before everything else. */
#define TRACE_PLACE 32
/* In a tree: the return of the call will be seen. */
#define TRACE_ENTER 64
/* In a tree: it is not known which calls the thread is in. */
#define TRACE_BROKEN 128

/* The bits of a place above the number of the record in its tree: the number of calls around it. */
#define PLACE_DEPTH_SHIFT 48

/* Where a record is in a tree of calls. */
struct trace_place {
	__u64 tree; /* when the outermost call began */
	__u64 place;
};

/* One call. If its function wants strings, or members are asked for, the record is followed by TRACE_STRINGS strings. */
struct trace_record {
	__u64 time;	/* nanoseconds, CLOCK_MONOTONIC */
	__u64 function; /* the attachment's cookie */
	__u64 address;	/* run-time address of the site; 0 if it is not known */
	__u32 site;	/* the site's number; ~0 if it is not known */
	__u32 cpu;
	__u32 tgid;
	__u32 pid;
	__u32 present;	/* slots that have a value here: bit TRACE_SLOTS * parameter + slot */
	__u32 strings;	/* strings that could be read, one bit each, in order of the wanting parameters */
	char comm[16];
	__u64 result;	/* what the function returned */
	__u32 flags;
	__u32 reserved;
	__u64 duration; /* nanoseconds from the beginning of the call to its return */
	__u64 values[TRACE_PARAMETERS][TRACE_SLOTS];
};

struct trace_strings {
	char text[TRACE_STRINGS][TRACE_STRING_LEN];
};

/* Bytes of the text of a member, with its NUL. */
#define TRACE_FIELD_LEN 64

enum {
	FIELD_READ,
	/* The call does not have what the chain begins with. */
	FIELD_MISSING,
	FIELD_UNREADABLE,
};

/* A member of a structure: after the strings there are FIELDS of them (fields.h). */
struct trace_field {
	/* For text, its address. */
	__u64 value;
	__u32 status;
	__u32 reserved;
	char text[TRACE_FIELD_LEN];
};

/* What the kernel walks at most, unless the sysctl kernel.perf_event_max_stack was changed. */
#define TRACE_FRAMES 127

/* The kernel's stack at a call, from the innermost function outwards. */
struct trace_stack {
	/* Bytes of the frames, or an error. */
	__s64 len;
	__u64 frames[TRACE_FRAMES];
};

#endif
