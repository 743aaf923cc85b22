// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//
// A pass plugin of LLVM that makes clang write down where it has each parameter of each function: what marker_gcc.cc does
// for gcc.
//
// The pass runs at the start of the pipeline, on what the front end made: before anything is inlined, and with LTO in the
// compile step. There, each parameter lives in memory (an alloca, or what the caller passed the address of), which a debug
// record names. It is loaded after the stores that put it there. Once that memory became a value, the operand is the value.

#include "llvm/BinaryFormat/Dwarf.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/DebugProgramInstruction.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include "llvm/TargetParser/Triple.h"

#include <map>
#include <set>

#include "record.h"

using namespace llvm;

namespace {

const siteseer::Dialect x86 = { "$", "%", "", false };
const siteseer::Dialect arm64 = { "${", "%", ":x}", true };

/*
 * All operands of a record are in registers at one time, beside what the code around needs. If there are too few, clang gives
 * up. Parameters that come after so many operands are written down as not known.
 */
const unsigned most_in_registers = 6;

/* Where the front end put a parameter. */
struct Home {
	const DILocalVariable *variable;
	Value *address;
};

/* A type without its names and qualifiers. */
const DIType *plain(const DIType *type)
{
	while (auto *derived = dyn_cast_or_null<DIDerivedType>(type)) {
		switch (derived->getTag()) {
		case dwarf::DW_TAG_typedef:
		case dwarf::DW_TAG_const_type:
		case dwarf::DW_TAG_volatile_type:
		case dwarf::DW_TAG_restrict_type:
		case dwarf::DW_TAG_atomic_type:
			type = derived->getBaseType();
			continue;
		default:
			break;
		}
		break;
	}
	return type;
}

/* What a record says of a type, or '?'. */
char kind_of(const DIType *type)
{
	if (auto *derived = dyn_cast_or_null<DIDerivedType>(type))
		return derived->getTag() == dwarf::DW_TAG_pointer_type ? 'u' : '?';
	if (auto *basic = dyn_cast_or_null<DIBasicType>(type)) {
		switch (basic->getEncoding()) {
		case dwarf::DW_ATE_signed:
		case dwarf::DW_ATE_signed_char:
			return 's';
		case dwarf::DW_ATE_unsigned:
		case dwarf::DW_ATE_unsigned_char:
		case dwarf::DW_ATE_boolean:
			return 'u';
		}
		return '?';
	}
	if (auto *composite = dyn_cast_or_null<DICompositeType>(type)) {
		if (composite->getTag() == dwarf::DW_TAG_enumeration_type)
			return composite->getBaseType() ? kind_of(plain(composite->getBaseType())) : 'u';
		return 'c';
	}
	return '?';
}

/* The memory that a debug record says a variable is in as a whole, from there on. */
Value *home_of(const DbgVariableRecord &record)
{
	if (record.isDbgDeclare())
		return record.getExpression()->getNumElements() ? nullptr : record.getAddress();
	/* What assignment tracking, which may run before, makes of it. */
	bool is_whole = record.isDbgAssign() && !record.getExpression()->isFragment() && !record.isKillAddress();
	return is_whole && !record.getAddressExpression()->getNumElements() ? record.getAddress() : nullptr;
}

/* The parameters' homes, by the parameters' numbers. */
std::map<unsigned, Home> homes_of(Function &function)
{
	std::map<unsigned, Home> homes;
	for (Instruction &instruction : function.getEntryBlock())
		for (DbgVariableRecord &record : filterDbgVars(instruction.getDbgRecordRange())) {
			const DILocalVariable *variable = record.getVariable();
			if (!variable->getArg() || record.getDebugLoc().getInlinedAt())
				continue;
			homes.try_emplace(variable->getArg(), Home{ variable, home_of(record) });
		}
	return homes;
}

/* Whether a value is an argument of the function, perhaps converted. */
bool is_argument(const Value *value)
{
	while (auto *cast = dyn_cast<CastInst>(value))
		value = cast->getOperand(0);
	return isa<Argument>(value);
}

/* The first instruction after those that put arguments in their homes. */
BasicBlock::iterator end_of_prologue(Function &function)
{
	BasicBlock &block = function.getEntryBlock();
	BasicBlock::iterator end = block.getFirstNonPHIOrDbgOrAlloca();
	std::set<const Value *> filled;
	for (Instruction &instruction : block) {
		if (auto *store = dyn_cast<StoreInst>(&instruction)) {
			const Value *place = store->getPointerOperand()->stripInBoundsOffsets();
			if (!is_argument(store->getValueOperand()) || !isa<AllocaInst>(place))
				continue;
			filled.insert(place);
			end = std::next(instruction.getIterator());
		} else if (auto *copy = dyn_cast<MemCpyInst>(&instruction)) {
			/* A structure whose registers hold more than it: it comes by way of a wider copy. */
			if (filled.count(copy->getRawSource()->stripInBoundsOffsets()))
				end = std::next(instruction.getIterator());
		}
	}
	return end;
}

/* The statement that is being made. */
class Marker {
public:
	Marker(Function &function, bool is_arm64)
		: builder(&function.getEntryBlock(), end_of_prologue(function)),
		  record(function.getSubprogram()->getName().str(), is_arm64 ? arm64 : x86), is_arm64(is_arm64)
	{
		builder.SetCurrentDebugLocation(DebugLoc());
		auto homes = homes_of(function);
		unsigned last = homes.empty() ? 0 : homes.rbegin()->first;
		const DISubroutineType *type = function.getSubprogram()->getType();
		DITypeRefArray types(type ? type->getTypeArray() : DITypeRefArray(nullptr));
		for (unsigned number = 1; number < types.size() || number <= last; number++) {
			auto home = homes.find(number);
			if (home != homes.end())
				parameter(home->second);
			else if (types[number])
				record.unknown(0);
		}
		insert();
	}

private:
	void parameter(const Home &home)
	{
		uint64_t bits = home.variable->getSizeInBits().value_or(0);
		unsigned bytes = bits % 8 ? 0 : bits / 8;
		char kind = kind_of(plain(home.variable->getType()));
		unsigned parts = siteseer::parts(bytes);
		bool is_known = home.address && kind != '?' && bytes <= siteseer::most_bytes;
		if (!is_known || (kind != 'c' && !bytes) || operands.size() + parts > most_in_registers) {
			record.unknown(bytes);
			return;
		}
		record.parameter(bytes, kind);
		const DIType *type = plain(home.variable->getType());
		bool is_pointer = type->getTag() == dwarf::DW_TAG_pointer_type;
		for (unsigned at = 0; at < bytes;) {
			unsigned part = siteseer::part(bytes - at);
			Type *loaded = is_pointer ? static_cast<Type *>(builder.getPtrTy()) : builder.getIntNTy(part * 8);
			Value *place = at ? builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), home.address, at) : home.address;
			operands.push_back(builder.CreateAlignedLoad(loaded, place, Align(1)));
			record.operand(part);
			at += part;
		}
	}

	void insert()
	{
		std::vector<Type *> types;
		std::string constraints;
		for (Value *operand : operands) {
			types.push_back(operand->getType());
			constraints += constraints.empty() ? "" : ",";
			/* With "g" LLVM takes memory, and spills what is in a register. */
			constraints += is_arm64 ? "r" : "ri";
		}
		FunctionType *type = FunctionType::get(builder.getVoidTy(), types, false);
		CallInst *call = builder.CreateCall(type, InlineAsm::get(type, record.text(), constraints, true), operands);
		call->setDoesNotThrow();
		call->addFnAttr(Attribute::WillReturn);
		call->setOnlyAccessesInaccessibleMemory();
	}

	IRBuilder<> builder;
	siteseer::Record record;
	std::vector<Value *> operands;
	bool is_arm64;
};

struct MarkerPass : PassInfoMixin<MarkerPass> {
	PreservedAnalyses run(Module &module, ModuleAnalysisManager &)
	{
		if (siteseer::is_left_out(module.getSourceFileName().c_str()))
			return PreservedAnalyses::all();
		bool is_arm64 = Triple(module.getTargetTriple()).isAArch64();
		for (Function &function : module)
			if (!function.isDeclaration() && function.getSubprogram() && !function.hasFnAttribute(Attribute::Naked))
				Marker(function, is_arm64);
		return PreservedAnalyses::none();
	}

	static bool isRequired() { return true; }
};

}

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo()
{
	return { LLVM_PLUGIN_API_VERSION, "siteseer-marker", "1", [](PassBuilder &builder) {
			builder.registerPipelineStartEPCallback(
				[](ModulePassManager &passes, OptimizationLevel) { passes.addPass(MarkerPass()); });
		} };
}
