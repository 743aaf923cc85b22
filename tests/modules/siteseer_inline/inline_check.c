// SPDX-License-Identifier: GPL-2.0-only
/*
 * The rules that the kernel has for inline site data: those of the header, of LOC_PARAM, LOC_PROTO and LOCSEC, and of what these
 * refer to. The functions are named for those of kernel/bpf/btf.c that refuse the same. What the kernel checks of kinds that
 * it has had all along is left to it, except that a FUNC is one of a FUNC_PROTO.
 *
 * The layout is that of 2026: vlen has 24 bits, the kind 7. BTF of kernels before has zeros in the bits that were added.
 */
#include <linux/btf.h>
#include <linux/ctype.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include "inline_check.h"

#define MOST_TYPES 0x000fffff
#define NAME_BYTES 512

enum { K_INT = 1, K_ARRAY = 3, K_STRUCT = 4, K_UNION = 5, K_ENUM = 6, K_FUNC = 12, K_FUNC_PROTO = 13, K_VAR = 14, K_DATASEC = 15,
       K_DECL_TAG = 17, K_ENUM64 = 19, K_LOC_PARAM = 20, K_LOC_PROTO = 21, K_LOCSEC = 22 };

enum { F_SIGNED = 1, F_CONST = 2, F_ADDR = 4, F_REG = 8, F_DEREF = 0x10, F_OFFSET = 0x20 };

struct header {
	u16 magic;
	u8 version, flags;
	u32 hdr_len, type_off, type_len, str_off, str_len;
};

struct type {
	u32 name_off, info, size_or_type;
	u32 tail[];
};

/* Types, and those that they are split over. */
struct types {
	const struct types *base;
	const char *strings;
	u32 first_string, strings_len;
	/* Where each type is. */
	const struct type **at;
	u32 first, count;
};

static u32 kind_of(const struct type *type)
{
	return type->info >> 24 & 0x7f;
}

static u32 vlen_of(const struct type *type)
{
	return type->info & 0xffffff;
}

static u64 tail_len(const struct type *type)
{
	u64 vlen = vlen_of(type);

	switch (kind_of(type)) {
	case K_INT:
	case K_VAR:
	case K_DECL_TAG:
		return 4;
	case K_ARRAY:
		return 12;
	case K_STRUCT:
	case K_UNION:
	case K_DATASEC:
	case K_ENUM64:
	case K_LOCSEC:
		return 12 * vlen;
	case K_ENUM:
	case K_FUNC_PROTO:
		return 8 * vlen;
	case K_LOC_PARAM:
		return 4 + 4 * vlen;
	case K_LOC_PROTO:
		return 4 * vlen;
	default:
		return 0;
	}
}

static const struct type *type_by_id(const struct types *types, u32 id)
{
	for (; types; types = types->base)
		if (id >= types->first)
			return id - types->first < types->count ? types->at[id - types->first] : NULL;
	return NULL;
}

static const struct type *of_kind(const struct types *types, u32 id, u32 kind)
{
	const struct type *type = type_by_id(types, id);

	return type && kind_of(type) == kind ? type : NULL;
}

static const char *string_at(const struct types *types, u32 offset)
{
	for (; types; types = types->base)
		if (offset >= types->first_string)
			return offset - types->first_string < types->strings_len
				       ? types->strings + (offset - types->first_string) : NULL;
	return NULL;
}

static int refused(const char *by, u32 id, const char *why)
{
	if (id)
		pr_info("siteseer_inline: %s: type %u: %s\n", by, id, why);
	else
		pr_info("siteseer_inline: %s: %s\n", by, why);
	return -EINVAL;
}

/* Finds where the types are. */
static int types_init(struct types *types, const struct types *base, const void *data, size_t size)
{
	const struct header *header = data;
	const char *parse_hdr = "btf_parse_hdr", *parse_types = "btf_parse_type_sec";
	u64 body, offset;
	u32 nth;

	if (size < sizeof(*header) || header->magic != BTF_MAGIC || header->version != 1 || header->flags ||
	    header->hdr_len < sizeof(*header) || header->hdr_len > size || header->hdr_len % 4)
		return refused(parse_hdr, 0, "it is not BTF");
	body = size - header->hdr_len;
	if ((u64)header->type_off + header->type_len > body || (u64)header->str_off + header->str_len > body ||
	    header->type_off % 4 || header->str_off < header->type_off + header->type_len)
		return refused("btf_check_sec_info", 0, "the sections do not follow one another");
	if ((u64)header->str_off + header->str_len != body)
		return refused("btf_parse_str_sec", 0, "the strings do not end it");
	types->base = base;
	types->strings = data + header->hdr_len + header->str_off;
	types->strings_len = header->str_len;
	types->first_string = base ? base->first_string + base->strings_len : 0;
	types->first = base ? base->first + base->count : 1;
	types->count = 0;
	if (types->strings_len ? types->strings[types->strings_len - 1] : !base)
		return refused("btf_parse_str_sec", 0, "the strings do not end with a NUL");

	data += header->hdr_len + header->type_off;
	for (nth = 0, offset = 0; offset < header->type_len; nth++) {
		const struct type *type = data + offset;

		if (offset + sizeof(*type) > header->type_len)
			return refused(parse_types, types->first + nth, "it is cut off");
		if (kind_of(type) == 0 || kind_of(type) > K_LOCSEC)
			return refused("btf_check_meta", types->first + nth, "there is no such kind");
		offset += sizeof(*type) + tail_len(type);
		if (offset > header->type_len)
			return refused(parse_types, types->first + nth, "it is cut off");
	}
	if (nth > MOST_TYPES || types->first + nth - 1 > MOST_TYPES)
		return refused("btf_add_type", 0, "there are too many types");
	types->at = vmalloc(array_size(nth + 1, sizeof(*types->at)));
	if (!types->at)
		return -ENOMEM;
	for (types->count = 0, offset = 0; types->count < nth; types->count++) {
		types->at[types->count] = data + offset;
		offset += sizeof(struct type) + tail_len(data + offset);
	}
	return 0;
}

static int loc_param_check_meta(u32 id, const struct type *type)
{
	const char *by = "btf_loc_param_check_meta";
	u32 size = type->size_or_type, words = vlen_of(type), flags = type->tail[0];
	bool right;

	if (type->name_off || type->info >> 31)
		return refused(by, id, "it has a name or a kind flag");
	if (size < 1 || size > 16)
		return refused(by, id, "its size is not between 1 and 16");
	switch (flags) {
	case F_CONST:
	case F_CONST | F_SIGNED:
	case F_CONST | F_ADDR:
	case F_CONST | F_ADDR | F_SIGNED:
		right = size <= 8 && (words == 2 || (words == 1 && size <= 4));
		break;
	case F_REG:
		right = words == 1 || words == 2;
		break;
	case F_REG | F_DEREF:
		right = words == 1;
		break;
	case F_REG | F_OFFSET:
	case F_REG | F_OFFSET | F_SIGNED:
	case F_REG | F_DEREF | F_OFFSET:
	case F_REG | F_DEREF | F_OFFSET | F_SIGNED:
		right = words == 2 || words == 3;
		break;
	default:
		return refused(by, id, "its flags do not go together");
	}
	return right ? 0 : refused(by, id, "its words are not as many as its flags and its size need");
}

static int loc_proto_check(const struct types *types, u32 id, const struct type *type)
{
	u32 nth;

	if (type->name_off || type->info >> 31)
		return refused("btf_loc_proto_check_meta", id, "it has a name or a kind flag");
	if (type->size_or_type)
		return refused("btf_loc_proto_resolve", id, "it says a type");
	for (nth = 0; nth < vlen_of(type); nth++)
		if (type->tail[nth] && !of_kind(types, type->tail[nth], K_LOC_PARAM))
			return refused("btf_loc_proto_resolve", id, "it refers to something that is not a LOC_PARAM");
	return 0;
}

static bool is_section_name(const char *name)
{
	size_t len = name ? strnlen(name, NAME_BYTES) : 0;

	if (!len || len == NAME_BYTES)
		return false;
	for (; *name; name++)
		if (!isascii(*name) || !isprint(*name))
			return false;
	return true;
}

static int locsec_check(const struct types *types, u32 id, const struct type *type)
{
	const char *by = "btf_locsec_resolve";
	u32 nth;

	if (type->info >> 31 || !type->name_off || !is_section_name(string_at(types, type->name_off)))
		return refused("btf_locsec_check_meta", id, "its name is not a section's, or it has a kind flag");
	if (type->size_or_type)
		return refused(by, id, "it says a type");
	for (nth = 0; nth < vlen_of(type); nth++) {
		const u32 *entry = type->tail + 3 * nth;
		const struct type *func = of_kind(types, entry[0], K_FUNC);
		const struct type *func_proto = func ? of_kind(types, func->size_or_type, K_FUNC_PROTO) : NULL;
		const struct type *loc_proto = of_kind(types, entry[1], K_LOC_PROTO);

		if (!func_proto)
			return refused(by, id, "a site's function is not a FUNC with a FUNC_PROTO");
		if (!loc_proto)
			return refused(by, id, "a site's locations are not a LOC_PROTO");
		if (vlen_of(func_proto) != vlen_of(loc_proto))
			return refused(by, id, "a site's LOC_PROTO and its function's FUNC_PROTO differ in length");
	}
	return 0;
}

static int check_types(const struct types *types)
{
	u32 nth;

	for (nth = 0; nth < types->count; nth++) {
		const struct type *type = types->at[nth];
		u32 id = types->first + nth;
		int error = 0;

		switch (kind_of(type)) {
		case K_FUNC:
			if (!of_kind(types, type->size_or_type, K_FUNC_PROTO))
				error = refused("btf_func_check", id, "it does not refer to a FUNC_PROTO");
			break;
		case K_LOC_PARAM:
			error = loc_param_check_meta(id, type);
			break;
		case K_LOC_PROTO:
			error = loc_proto_check(types, id, type);
			break;
		case K_LOCSEC:
			error = locsec_check(types, id, type);
			break;
		}
		if (error)
			return error;
	}
	return 0;
}

int inline_check(const char *name, const void *image, size_t image_size, const void *module, size_t module_size,
		 const void *data, size_t size)
{
	struct types of_image = {}, of_module = {}, own = {};
	const struct types *base = &of_image;
	int error = types_init(&of_image, NULL, image, image_size);

	if (!error && module) {
		error = types_init(&of_module, &of_image, module, module_size);
		base = &of_module;
	}
	if (!error)
		error = types_init(&own, base, data, size);
	if (!error)
		error = check_types(&own);
	if (!error)
		pr_info("siteseer_inline: %s: %u types\n", name, own.count);
	vfree(own.at);
	vfree(of_module.at);
	vfree(of_image.at);
	return error;
}
