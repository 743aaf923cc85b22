/* SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause */
/*
 * The text of a record, which both plugins write: see README.md.
 *
 * A parameter is not named by text but by an instruction that would read it (`movq OPERAND, %rax`). So the assembler and the
 * linker resolve whatever it refers to (a local label, a string, a variable), and the reader decodes an instruction.
 */

#ifndef SITESEER_RECORD_H
#define SITESEER_RECORD_H

#include <cstring>
#include <string>

namespace siteseer {

/* An asm statement has at most 30 operands (gcc). */
const unsigned most_operands = 30;
/* Longer parameters are written down as not known. */
const unsigned most_bytes = 64;

/* How many bytes the next operand takes, if `left` bytes of the value are left. */
inline unsigned part(unsigned left)
{
	return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* How many operands a value takes. */
inline unsigned parts(unsigned bytes)
{
	unsigned count = 0;
	for (; bytes; bytes -= part(bytes))
		count++;
	return count;
}

/*
 * Code that does not run where it is linked, that the linker script knows section by section, or that patches the kernel before
 * it runs; and code that leaves clang too few registers for a record. Such a file is compiled as without the plugin.
 */
inline bool is_left_out(const char *source)
{
	static const char *const places[] = {
		"vdso/", "arch/x86/boot/", "arch/x86/realmode/", "arch/x86/purgatory/", "arch/x86/kernel/alternative.c",
		"drivers/firmware/efi/libstub/", "arch/arm64/kernel/pi/", "arch/arm64/kvm/hyp/nvhe/", "scripts/",
		"lib/zstd/decompress/zstd_decompress_block.c",
	};
	for (const char *place : places)
		if (source && strstr(source, place))
			return true;
	return false;
}

/* How a compiler wants its asm text. */
struct Dialect {
	const char *operand;	/* what comes before an operand's number */
	const char *percent;	/* a percent sign */
	const char *closing;	/* what comes after the number */
	bool arm64;
};

class Record {
public:
	Record(const std::string &function, const Dialect &dialect) : function(function), dialect(dialect) {}

	/* A parameter that the compiler cannot be asked for. */
	void unknown(unsigned bytes) { parameter(bytes, '?'); }

	/* A parameter: 'u'nsigned, 's'igned or 'c'omposite. Its operands follow. */
	void parameter(unsigned bytes, char kind)
	{
		unsigned shown = bytes > 0xffff ? 0xffff : bytes;
		body += "\t.byte " + std::to_string(int(kind)) + "\n\t.2byte " + std::to_string(shown) + "\n";
		parameters++;
	}

	/* The next operand: so many bytes of the last parameter. */
	void operand(unsigned bytes)
	{
		std::string it = dialect.operand + std::to_string(operands++) + dialect.closing;
		if (dialect.arm64) {
			body += "\t.balign 4\n\tmov x0, " + it + "\n";
			return;
		}
		const char *move = bytes == 8 ? "movq " : bytes == 4 ? "movl " : bytes == 2 ? "movw " : "movb ";
		const char *to = bytes == 8 ? "rax" : bytes == 4 ? "eax" : bytes == 2 ? "ax" : "al";
		body += std::string("\t") + move + it + ", " + dialect.percent + to + "\n";
	}

	std::string text() const
	{
		return "99871:\n\t.pushsection .debug_siteseer,\"\",@progbits\n\t.balign 4\n\t.quad 99871b\n\t.asciz \"" +
		       function + "\"\n\t.byte " + std::to_string(parameters) + "\n" + body + "\t.popsection";
	}

private:
	std::string function, body;
	Dialect dialect;
	unsigned parameters = 0, operands = 0;
};

}

#endif
