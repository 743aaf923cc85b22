// SPDX-License-Identifier: GPL-2.0-only
/*
 * Serves inline site data as a kernel with CONFIG_DEBUG_INFO_BTF_INLINE does: /sys/kernel/btf/vmlinux.inline, and
 * /sys/kernel/btf/MODULE.inline.
 *
 * Such a kernel has the data in a section of its image and of each module; here they come from files:
 *
 *   echo "vmlinux /path/of/split.btf" > /sys/module/siteseer_inline/parameters/serve
 *   echo "MODULE /path/of/split.btf"  > /sys/module/siteseer_inline/parameters/serve
 *   echo "vmlinux"                    > /sys/module/siteseer_inline/parameters/serve
 *   echo "vmlinux"                    > /sys/module/siteseer_inline/parameters/withdraw
 *
 * The third is the kernel with CONFIG_DEBUG_INFO_BTF_INLINE=m that cannot load its module btf_vmlinux_inline: to read the
 * file is an error, ENODEV. What is served for a module goes when the module does.
 *
 * Before data is served it is checked, in inline_check.c; what breaks a rule is refused with EINVAL.
 *
 * The file of vmlinux can be mapped, as that of the kernel's types can: private, for reading, from its beginning. Those of modules cannot.
 */
#include <linux/fs.h>
#include <linux/kernfs.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include "inline_check.h"

#define MOST_BYTES (64 << 20)
#define WORDS_LEN 256

struct served {
	struct list_head list;
	char *name;
	char *file_name;
	/* NULL: nothing can be read. */
	void *data;
	struct bin_attribute attr;
};

static LIST_HEAD(all_served);
static DEFINE_MUTEX(lock);
static struct kernfs_node *btf_node;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
typedef const struct bin_attribute read_attribute;
#else
typedef struct bin_attribute read_attribute;
#endif

static ssize_t served_read(struct file *file, struct kobject *kobj, read_attribute *attr, char *buf, loff_t off,
			   size_t count)
{
	const struct served *served = attr->private;

	if (!served->data)
		return -ENODEV;
	return memory_read_from_buffer(buf, count, &off, served->data, attr->size);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
typedef const struct bin_attribute map_attribute;
#else
typedef struct bin_attribute map_attribute;
#endif

static int served_mmap(struct file *file, struct kobject *kobj, map_attribute *attr, struct vm_area_struct *vma)
{
	const struct served *served = attr->private;

	if (vma->vm_pgoff || vma->vm_end - vma->vm_start > PAGE_ALIGN(attr->size))
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC | VM_MAYSHARE))
		return -EACCES;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
#else
	vma->vm_flags &= ~(VM_MAYWRITE | VM_MAYEXEC);
#endif
	return remap_vmalloc_range(vma, served->data, 0);
}

/* The folder in sysfs. It belongs to the kernel, which does not give it to modules; its node has the kobject. */
static struct kobject *btf_kobj(void)
{
	return btf_node->priv;
}

static void free_served(struct served *served)
{
	vfree(served->data);
	kfree(served->file_name);
	kfree(served->name);
	kfree(served);
}

static bool withdraw(const char *name)
{
	struct served *served;

	list_for_each_entry(served, &all_served, list) {
		if (strcmp(served->name, name))
			continue;
		list_del(&served->list);
		sysfs_remove_bin_file(btf_kobj(), &served->attr);
		free_served(served);
		return true;
	}
	return false;
}

/* Reads a whole file. kernel_read_file() would ask the security modules, which do not know what kind of file it is. */
static int read_whole(const char *path, void **data, size_t *size)
{
	struct file *file = filp_open(path, O_RDONLY, 0);
	int error = 0;
	loff_t pos = 0, len;

	*data = NULL;
	if (IS_ERR(file))
		return PTR_ERR(file);
	len = i_size_read(file_inode(file));
	if (!S_ISREG(file_inode(file)->i_mode) || len <= 0 || len > MOST_BYTES)
		error = -EINVAL;
	else if (!(*data = vmalloc_user(len)))
		error = -ENOMEM;
	while (!error && pos < len) {
		ssize_t read = kernel_read(file, *data + pos, len - pos, &pos);

		if (read <= 0)
			error = read ? read : -EIO;
	}
	filp_close(file, NULL);
	if (error) {
		vfree(*data);
		*data = NULL;
	}
	*size = len;
	return error;
}

/* Reads the types of the kernel's image, or of a module. */
static int read_types(const char *name, void **data, size_t *size)
{
	char *path = kasprintf(GFP_KERNEL, "/sys/kernel/btf/%s", name);
	int error = path ? read_whole(path, data, size) : -ENOMEM;

	kfree(path);
	return error;
}

static int check(const char *name, const void *data, size_t size)
{
	bool of_module = strcmp(name, "vmlinux") != 0;
	void *image = NULL, *module = NULL;
	size_t image_size, module_size = 0;
	int error;

	error = read_types("vmlinux", &image, &image_size);
	if (!error && of_module)
		error = read_types(name, &module, &module_size);
	if (!error)
		error = inline_check(name, image, image_size, module, module_size, data, size);
	vfree(module);
	vfree(image);
	return error;
}

static int serve(const char *name, const char *path)
{
	struct served *served = kzalloc(sizeof(*served), GFP_KERNEL);
	size_t size = 0;
	int error = -ENOMEM;

	if (!served)
		return error;
	served->name = kstrdup(name, GFP_KERNEL);
	served->file_name = kasprintf(GFP_KERNEL, "%s.inline", name);
	if (!served->name || !served->file_name)
		goto failed;
	if (path) {
		error = read_whole(path, &served->data, &size);
		if (!error)
			error = check(name, served->data, size);
		if (error)
			goto failed;
	}
	withdraw(name);
	sysfs_bin_attr_init(&served->attr);
	served->attr.attr.name = served->file_name;
	served->attr.attr.mode = 0444;
	served->attr.size = size;
	served->attr.private = served;
	served->attr.read = served_read;
	if (served->data && !strcmp(name, "vmlinux"))
		served->attr.mmap = served_mmap;
	error = sysfs_create_bin_file(btf_kobj(), &served->attr);
	if (error)
		goto failed;
	list_add(&served->list, &all_served);
	return 0;
failed:
	free_served(served);
	return error;
}

/* The words of a line. */
static char *words_of(const char *value, char **path)
{
	char *line = kstrndup(value, WORDS_LEN, GFP_KERNEL), *rest;

	if (!line)
		return NULL;
	rest = strim(line);
	if (rest != line)
		memmove(line, rest, strlen(rest) + 1);
	rest = line;
	strsep(&rest, " ");
	*path = rest ? skip_spaces(rest) : NULL;
	return line;
}

static int serve_set(const char *value, const struct kernel_param *param)
{
	char *path, *name = words_of(value, &path);
	int error;

	if (!name)
		return -ENOMEM;
	mutex_lock(&lock);
	error = *name && !strchr(name, '/') ? serve(name, path) : -EINVAL;
	mutex_unlock(&lock);
	kfree(name);
	return error;
}

static int withdraw_set(const char *value, const struct kernel_param *param)
{
	char *path, *name = words_of(value, &path);
	bool was_there;

	if (!name)
		return -ENOMEM;
	mutex_lock(&lock);
	was_there = withdraw(name);
	mutex_unlock(&lock);
	kfree(name);
	return was_there ? 0 : -ENOENT;
}

static const struct kernel_param_ops serve_ops = { .set = serve_set };
static const struct kernel_param_ops withdraw_ops = { .set = withdraw_set };
module_param_cb(serve, &serve_ops, NULL, 0200);
MODULE_PARM_DESC(serve, "\"vmlinux\" or a module, and the file with its inline site data");
module_param_cb(withdraw, &withdraw_ops, NULL, 0200);
MODULE_PARM_DESC(withdraw, "\"vmlinux\" or a module: its site data is no longer served");

static int on_module(struct notifier_block *block, unsigned long state, void *module)
{
	if (state == MODULE_STATE_GOING) {
		mutex_lock(&lock);
		withdraw(((struct module *)module)->name);
		mutex_unlock(&lock);
	}
	return NOTIFY_OK;
}

static struct notifier_block module_block = { .notifier_call = on_module };

static int __init inline_init(void)
{
	int error;

	btf_node = kernfs_find_and_get(kernel_kobj->sd, "btf");
	if (!btf_node)
		return -ENOENT;
	error = register_module_notifier(&module_block);
	if (error)
		kernfs_put(btf_node);
	return error;
}

static void __exit inline_exit(void)
{
	struct served *served, *next;

	unregister_module_notifier(&module_block);
	list_for_each_entry_safe(served, next, &all_served, list) {
		sysfs_remove_bin_file(btf_kobj(), &served->attr);
		free_served(served);
	}
	kernfs_put(btf_node);
}

module_init(inline_init);
module_exit(inline_exit);

MODULE_DESCRIPTION("Inline site data in /sys/kernel/btf");
MODULE_LICENSE("GPL");
