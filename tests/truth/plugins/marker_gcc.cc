// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//
// A plugin of gcc that makes the compiler write down where it has each parameter of each function.
//
// After the control flow graph is built, and so before anything is inlined, cloned or split, each function gets an asm
// statement at its start that has the parameters as operands and no instructions. Its text is a record in the section
// .debug_siteseer (the layout is in README.md beside this file). Whatever copies the body copies the statement too, and
// prints a record of its own: so each copy says at which address its body starts, and where the parameters are there.
//
// The statement is marked `inline`: it has no size for the inliner. It is volatile: it is neither removed nor moved
// across another volatile statement.

#include "gcc-plugin.h"
#include "plugin-version.h"

#include "tree.h"
#include "tree-pass.h"
#include "function.h"
#include "basic-block.h"
#include "gimple.h"
#include "gimple-iterator.h"
#include "gimple-expr.h"
#include "gimplify.h"
#include "context.h"
#include "stringpool.h"
#include "attribs.h"
#include "fold-const.h"
#include "options.h"
#include "toplev.h"
#include "target.h"

#include <string>
#include <vector>

#include "record.h"

int plugin_is_GPL_compatible;

namespace {

#ifdef SITESEER_ARM64
const siteseer::Dialect dialect = { "%x", "%%", "", true };
/* In a register: there is no instruction for whatever an operand could be. */
const char place[] = "r";
#else
const siteseer::Dialect dialect = { "%", "%%", "", false };
/* Wherever it is. */
const char place[] = "g";
#endif

/* The statement that is being made. */
struct Marker {
	gimple_seq before = NULL;	/* what computes the operands */
	vec<tree, va_gc> *operands = NULL;
	siteseer::Record record;

	explicit Marker(const char *function) : record(function, dialect) {}

	/* Makes a value an operand. */
	void add(tree value, unsigned bytes)
	{
		tree constraint = build_tree_list(NULL_TREE, build_string(strlen(place) + 1, place));
		vec_safe_push(operands, build_tree_list(constraint, value));
		record.operand(bytes);
	}

	/* Computes an expression into a variable that lives in a register. */
	tree variable(tree type, enum tree_code code, tree left, tree right = NULL_TREE)
	{
		tree result = create_tmp_var(type, "siteseer");
		gassign *assign = right ? gimple_build_assign(result, code, left, right)
					: gimple_build_assign(result, code, left);
		gimple_seq_add_stmt(&before, assign);
		return result;
	}

	/* One that is a value of its own: an integer, a pointer. */
	void scalar(tree parameter, unsigned bytes)
	{
		tree type = TYPE_MAIN_VARIANT(TREE_TYPE(parameter));
		tree value = parameter;
		if (!is_gimple_reg(parameter))
			value = variable(type, TREE_CODE(parameter), parameter);
		if (bytes <= 8) {
			add(value, bytes);
			return;
		}
		tree high = variable(type, RSHIFT_EXPR, value, build_int_cst(integer_type_node, 64));
		add(variable(long_unsigned_type_node, NOP_EXPR, value), 8);
		add(variable(long_unsigned_type_node, NOP_EXPR, high), 8);
	}

	/* A structure or union, 8 bytes at a time and the rest in powers of two. */
	void composite(tree parameter, unsigned bytes)
	{
		for (unsigned at = 0; at < bytes;) {
			unsigned part = siteseer::part(bytes - at);
			tree type = build_nonstandard_integer_type(part * 8, 1);
			tree alias = build_int_cst(build_pointer_type(TREE_TYPE(parameter)), at);
			tree aligned = build_aligned_type(type, TYPE_ALIGN(TREE_TYPE(parameter)));
			tree place = build2(MEM_REF, aligned, build_fold_addr_expr(parameter), alias);
			add(variable(type, MEM_REF, place), part);
			at += part;
		}
	}

	void parameter(tree parameter)
	{
		tree type = TREE_TYPE(parameter);
		tree size = TYPE_SIZE_UNIT(type);
		unsigned bytes = size && tree_fits_uhwi_p(size) ? tree_to_uhwi(size) : 0;
		bool is_scalar = INTEGRAL_TYPE_P(type) || POINTER_TYPE_P(type);
		bool is_composite = AGGREGATE_TYPE_P(type);
		bool is_known = (is_scalar && bytes && bytes <= 16) || is_composite;
		is_known &= !TREE_THIS_VOLATILE(parameter) && bytes <= siteseer::most_bytes;
		unsigned parts = bytes ? siteseer::parts(bytes) : 0;
		if (!is_known || vec_safe_length(operands) + parts > siteseer::most_operands) {
			record.unknown(bytes);
			return;
		}
		record.parameter(bytes, is_composite ? 'c' : TYPE_UNSIGNED(type) ? 'u' : 's');
		if (is_scalar)
			scalar(parameter, bytes);
		else
			composite(parameter, bytes);
	}

	void insert_at_start()
	{
		gasm *statement = gimple_build_asm_vec(ggc_strdup(record.text().c_str()), operands, NULL, NULL, NULL);
		gimple_asm_set_volatile(statement, true);
		gimple_asm_set_inline(statement, true);
		gimple_seq_add_stmt(&before, statement);
		/* On the edge from the entry: the first block may be a loop's header. */
		gsi_insert_seq_on_edge_immediate(single_succ_edge(ENTRY_BLOCK_PTR_FOR_FN(cfun)), before);
	}
};

const pass_data marker_data = { GIMPLE_PASS, "siteseer_marker", OPTGROUP_NONE, TV_NONE, PROP_cfg, 0, 0, 0, 0 };

class MarkerPass : public gimple_opt_pass {
public:
	MarkerPass() : gimple_opt_pass(marker_data, g) {}

	bool gate(function *) final override { return !siteseer::is_left_out(main_input_filename); }

	unsigned int execute(function *fn) final override
	{
		tree decl = fn->decl;
		if (!DECL_NAME(decl) || lookup_attribute("naked", DECL_ATTRIBUTES(decl)))
			return 0;
		Marker marker(IDENTIFIER_POINTER(DECL_NAME(decl)));
		for (tree parameter = DECL_ARGUMENTS(decl); parameter; parameter = DECL_CHAIN(parameter))
			marker.parameter(parameter);
		marker.insert_at_start();
		return 0;
	}
};

}

int plugin_init(struct plugin_name_args *info, struct plugin_gcc_version *version)
{
	if (!plugin_default_version_check(version, &gcc_version))
		return 1;
	struct register_pass_info pass = { new MarkerPass(), "cfg", 1, PASS_POS_INSERT_AFTER };
	register_callback(info->base_name, PLUGIN_PASS_MANAGER_SETUP, NULL, &pass);
	return 0;
}
