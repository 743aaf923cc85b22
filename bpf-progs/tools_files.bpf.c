// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * Tools that watch files: who opens, changes, syncs, locks and removes them.
 */
#include "tools.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	OPENSNOOP,
	CHMODSNOOP,
	CHOWNSNOOP,
	FSYNCSNOOP,
	FSYNCDIST,
	SYNCSNOOP,
	FALLOCSNOOP,
	STATSNOOP,
	SEEKSNOOP,
	DUPSNOOP,
	LOCKSNOOP,
	EVENTFDSNOOP,
	POLLCOUNT,
	FILELIFE,
	DIRSNOOP,
	CREATESNOOP,
	MOUNTSNOOP,
	PROCSNOOP,
	XATTRSNOOP,
	TRUNCSNOOP,
	FADVISE,
	FILETOP,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct file_lock_core {
	unsigned char flc_type;
	struct file *flc_file;
};
struct file_lock {
	struct file_lock_core c;
	long long fl_start;
	long long fl_end;
};
struct eventfd_ctx {
	__u64 count;
};
struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};
struct iov_iter {
	unsigned long count;
};
#pragma clang attribute pop

/* opensnoop: what is opened how, by whom. */
struct opened {
	__u32 pid;
	__s32 flags;
	char comm[16];
	char path[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} opens SEC(".maps");

const volatile bool with_paths = true;

SEC("fentry/do_sys_open")
int BPF_PROG(opensnoop, int dfd, const char *filename, int flags)
{
	struct opened *event;

	if (!watched())
		return 0;
	count(OPENSNOOP, flags);
	event = bpf_ringbuf_reserve(&opens, sizeof(*event), 0);
	if (!event)
		return 0;
	event->pid = bpf_get_current_pid_tgid();
	event->flags = flags;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	event->path[0] = 0;
	if (with_paths)
		bpf_probe_read_user_str(event->path, sizeof(event->path), filename);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* chmodsnoop: by file system and mode. */
struct chmod_key {
	unsigned long magic;
	unsigned long ino;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct chmod_key);
	__type(value, __u32);
} modes SEC(".maps");

SEC("fentry/vfs_fchmod")
int BPF_PROG(chmodsnoop, struct file *file, unsigned short mode)
{
	struct chmod_key key = {};
	__u32 value = mode;

	if (!watched())
		return 0;
	key.magic = file->f_inode->i_sb->s_magic;
	key.ino = file->f_inode->i_ino;
	bpf_map_update_elem(&modes, &key, &value, BPF_ANY);
	count(CHMODSNOOP, mode);
	return 0;
}

SEC("fentry/ksys_fchown")
int BPF_PROG(chownsnoop, unsigned int fd, unsigned int user, unsigned int group)
{
	if (watched())
		count(CHOWNSNOOP, ((__u64)user << 32) + group);
	return 0;
}

/* fsyncsnoop: the name of what is synced, by a subprogram. */
static __noinline unsigned int name_len(struct dentry *dentry)
{
	char name[32];
	int len = bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));

	return len > 0 ? len - 1 : 0;
}

SEC("fentry/vfs_fsync")
int BPF_PROG(fsyncsnoop, struct file *file, int datasync)
{
	if (watched())
		count(FSYNCSNOOP, ((__u64)datasync << 32) + name_len(file->f_path.dentry));
	return 0;
}

/* fsyncdist: a histogram of range sizes, made by a loop with a callback. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} sizes SEC(".maps");

struct log2_context {
	__u64 value;
	__u32 slot;
};

static long halve(__u32 index, void *data)
{
	struct log2_context *context = data;

	context->value >>= 1;
	if (!context->value)
		return 1;
	context->slot += 1;
	return 0;
}

SEC("fentry/vfs_fsync_range")
int BPF_PROG(fsyncdist, struct file *file, long long start, long long end, int datasync)
{
	struct log2_context context = { .value = end - start };
	__u64 *slot;

	if (!watched())
		return 0;
	bpf_loop(64, halve, &context, 0);
	slot = bpf_map_lookup_elem(&sizes, &context.slot);
	if (slot)
		*slot += 1;
	count(FSYNCDIST, context.slot + datasync);
	return 0;
}

SEC("fentry/ksys_sync_file_range")
int BPF_PROG(syncsnoop, int fd, long long offset, long long nbytes, unsigned int flags)
{
	if (watched())
		count(SYNCSNOOP, offset + nbytes + flags);
	return 0;
}

SEC("fentry/ksys_fallocate")
int BPF_PROG(fallocsnoop, int fd, int mode, long long offset, long long len)
{
	if (watched())
		count(FALLOCSNOOP, mode + offset + len);
	return 0;
}

/* statsnoop: three pointers deep. */
SEC("fentry/vfs_getattr")
int BPF_PROG(statsnoop, const struct path *path)
{
	if (watched())
		count(STATSNOOP, path->dentry->d_inode->i_size);
	return 0;
}

SEC("fentry/vfs_llseek")
int BPF_PROG(seeksnoop, struct file *file, long long offset)
{
	if (watched())
		count(SEEKSNOOP, offset + (file->f_inode->i_mode & 0777));
	return 0;
}

SEC("fentry/fget_raw")
int BPF_PROG(dupsnoop, unsigned int fd)
{
	if (watched())
		count(DUPSNOOP, fd);
	return 0;
}

SEC("fentry/vfs_lock_file")
int BPF_PROG(locksnoop, struct file *filp, unsigned int cmd, struct file_lock *lock)
{
	if (watched())
		count(LOCKSNOOP, lock->c.flc_type + lock->fl_start);
	return 0;
}

SEC("fentry/eventfd_ctx_do_read")
int BPF_PROG(eventfdsnoop, struct eventfd_ctx *event)
{
	if (watched())
		count(EVENTFDSNOOP, event->count);
	return 0;
}

SEC("fentry/poll_initwait")
int BPF_PROG(pollcount)
{
	if (watched())
		count(POLLCOUNT, 0);
	return 0;
}

/* filelife: what is removed, by name and parent. */
SEC("fentry/simple_unlink")
int BPF_PROG(filelife, struct inode *dir, struct dentry *dentry)
{
	if (watched())
		count(FILELIFE, dentry->d_name.len + dentry->d_parent->d_name.len);
	return 0;
}

SEC("fentry/start_dirop")
int BPF_PROG(dirsnoop, struct dentry *parent, struct qstr *name)
{
	if (watched())
		count(DIRSNOOP, name->len);
	return 0;
}

SEC("fentry/end_creating_path")
int BPF_PROG(createsnoop, const struct path *path, struct dentry *dentry)
{
	if (watched())
		count(CREATESNOOP, dentry->d_name.len);
	return 0;
}

/* mountsnoop: the texts are the user's and the kernel's. */
struct mounted {
	char dir[32];
	char type[16];
	unsigned long flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, struct mounted);
} mounts SEC(".maps");

SEC("fentry/do_mount")
int BPF_PROG(mountsnoop, const char *dev_name, const char *dir_name, const char *type_page, unsigned long flags)
{
	struct mounted mount = { .flags = flags };
	__u64 now = bpf_ktime_get_ns();

	if (!watched())
		return 0;
	bpf_probe_read_user_str(mount.dir, sizeof(mount.dir), dir_name);
	bpf_probe_read_kernel_str(mount.type, sizeof(mount.type), type_page);
	bpf_map_update_elem(&mounts, &now, &mount, BPF_ANY);
	count(MOUNTSNOOP, flags + ((__u64)mount.dir[1] << 32) + ((__u64)mount.type[0] << 40));
	return 0;
}

SEC("fentry/seq_open")
int BPF_PROG(procsnoop, struct file *file)
{
	if (watched())
		count(PROCSNOOP, file->f_path.dentry->d_name.len);
	return 0;
}

SEC("fentry/file_getxattr")
int BPF_PROG(xattrsnoop, struct file *file)
{
	if (watched())
		count(XATTRSNOOP, file->f_path.dentry->d_name.len);
	return 0;
}

SEC("fentry/shmem_truncate_range")
int BPF_PROG(truncsnoop, struct inode *inode, long long start)
{
	if (watched())
		count(TRUNCSNOOP, start);
	return 0;
}

SEC("fentry/vfs_fadvise")
int BPF_PROG(fadvise, struct file *file, long long offset, long long len, int advice)
{
	if (watched())
		count(FADVISE, offset + len + advice);
	return 0;
}

/* filetop: reads of tmpfs by file. Its function is never inlined: both ways see all of it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, unsigned long);
	__type(value, __u64);
} reads SEC(".maps");

SEC("fentry/shmem_file_read_iter")
int BPF_PROG(filetop, struct kiocb *iocb, struct iov_iter *to)
{
	unsigned long ino = iocb->ki_filp->f_inode->i_ino;
	__u64 one = 1, *known;

	if (!watched())
		return 0;
	known = bpf_map_lookup_elem(&reads, &ino);
	if (known)
		*known += 1;
	else
		bpf_map_update_elem(&reads, &ino, &one, BPF_NOEXIST);
	count(FILETOP, to->count + iocb->ki_pos);
	return 0;
}
