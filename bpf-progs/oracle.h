/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/* Indices into oracle.bpf.c's map: src/oracle.rs has the same. */
#ifndef SITESEER_ORACLE_H
#define SITESEER_ORACLE_H

enum oracle_value {
	/* do_fcntl()'s filp */
	ORACLE_FCNTL_FILE,
	/* the pipe of pipe_fcntl()'s file */
	ORACLE_PIPE,
	/* the seq_file that is read */
	ORACLE_SEQ_FILE,
	/* the address of its index */
	ORACLE_SEQ_INDEX,
	/* do_sys_poll()'s end_time */
	ORACLE_POLL_END_TIME,
	ORACLE_VALUES
};

#endif
