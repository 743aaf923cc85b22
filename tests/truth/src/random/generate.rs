// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writes random programs.
//!
//! A program has defined behaviour (with `-fwrapv`), reads what it works on from volatile memory, so that no compiler
//! can know it, and ends: functions call those before them only, or themselves with a counter that falls, and each
//! function has an estimate of the calls that it makes, which bounds those of its callers. Within that it is as varied
//! as possible in what matters here: how functions are called, what is passed, and what bodies do to their parameters
//! and before their first effect.

use crate::random::prng::Prng;
use crate::random::program::{Function, Parameter, Program, START, Statement, Type, UNITS};

/// Calls that one call of a function may make, and that a whole run may make.
const CALLS_OF_ONE: usize = 40;
const CALLS_OF_ALL: usize = 600;
const CALLS_OF_CALLBACK: usize = 4;
/// A counter that recursion begins with is below this.
const DEEPEST: usize = 4;

/// A variable that expressions may use.
#[derive(Debug, Clone)]
struct Variable {
    name: String,
    ty: Type,
    is_assignable: bool,
}

/// Writes the program of a seed.
pub(crate) fn generate(seed: u64) -> Program {
    let mut writer = Writer { prng: Prng::new(seed), functions: Vec::new(), costs: Vec::new(), called: Vec::new() };
    let count = writer.prng.between(8, 20);
    while writer.functions.len() < count {
        writer.function();
    }
    writer.start();
    Program { globals: String::new(), functions: writer.functions }
}

struct Writer {
    prng: Prng,
    functions: Vec<Function>,
    /// For each function, an estimate of the calls that one call of it makes, itself included.
    costs: Vec<usize>,
    called: Vec<bool>,
}

impl Writer {
    fn function(&mut self) {
        let id = self.functions.len();
        if id > 0 && self.prng.chance(2) {
            return self.twin(id);
        }
        let is_recursive = self.prng.chance(12);
        let mut parameters = Vec::new();
        if is_recursive {
            parameters.push(Parameter { name: "depth".to_owned(), ty: Type::INT });
        }
        let is_callback = !is_recursive && (id == 0 || self.prng.chance(12));
        let count = if is_callback {
            0
        } else if self.prng.chance(12) {
            self.prng.between(5, 9)
        } else {
            self.prng.between(0, 4)
        };
        for index in 0..count {
            let ty = *self.prng.pick(&Type::ALL);
            parameters.push(Parameter { name: format!("p{index}"), ty });
        }
        if is_callback {
            parameters.push(Parameter { name: "p0".to_owned(), ty: Type::INT });
            parameters.push(Parameter { name: "p1".to_owned(), ty: Type::U64 });
        }
        let (qualifiers, is_static) = *self.prng.pick(&[
            ("static", true),
            ("static", true),
            ("static", true),
            ("static inline", true),
            ("static inline", true),
            ("static always_inline", true),
            ("static noinline", true),
            ("static noinline", true),
            ("static cold noinline", true),
            ("", false),
            ("", false),
            ("noinline", false),
        ]);
        // Compilers refuse what they cannot inline.
        let qualifiers = if is_recursive { qualifiers.trim_end_matches("always_inline").trim() } else { qualifiers };
        // A callback is whatever looks like one, and costs little.
        let limit = if is_callback { CALLS_OF_CALLBACK } else { CALLS_OF_ONE };
        let returns = match self.prng.below(10) {
            _ if is_callback => Type::INT,
            0 => *self.prng.pick(&Type::ALL),
            1..4 => Type::LONG,
            _ => Type::INT,
        };
        let unit = if self.prng.chance(70) { 0 } else { self.prng.below(UNITS) };
        let function = Function {
            id,
            number: id,
            name: format!("f{id}"),
            qualifiers: qualifiers.to_owned(),
            is_static,
            returns,
            parameters,
            body: Vec::new(),
            declared: None,
            unit,
        };
        let (body, cost) = Body::new(self, &function, limit).write(is_recursive);
        self.functions.push(Function { body, ..function });
        self.costs.push(cost);
        self.called.push(false);
    }

    /// A function that is equal to another.
    fn twin(&mut self, id: usize) {
        let of = self.prng.below(id);
        if calls_itself(&self.functions[of].body, &self.functions[of].name) {
            return;
        }
        let twin = Function { id, name: format!("f{id}"), ..self.functions[of].clone() };
        self.functions.push(twin);
        self.costs.push(self.costs[of]);
        self.called.push(false);
    }

    fn start(&mut self) {
        let id = self.functions.len();
        let function = Function {
            id,
            number: id,
            name: START.to_owned(),
            qualifiers: "noinline __attribute__((__used__))".to_owned(),
            is_static: false,
            returns: Type::INT,
            parameters: Vec::new(),
            body: Vec::new(),
            declared: None,
            unit: 0,
        };
        let (body, cost) = Body::new(self, &function, CALLS_OF_ALL).write_start();
        self.functions.push(Function { body, ..function });
        self.costs.push(cost);
        self.called.push(true);
    }
}

fn calls_itself(body: &[Statement], name: &str) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Line(text) => text.contains(&format!("{name}(")),
        Statement::Block { head, body, otherwise, .. } => {
            head.contains(&format!("{name}(")) || calls_itself(body, name) || calls_itself(otherwise, name)
        }
    })
}

/// Writes the body of one function.
struct Body<'w> {
    writer: &'w mut Writer,
    unit: usize,
    id: usize,
    name: String,
    returns: Type,
    parameters: Vec<Parameter>,
    variables: Vec<Variable>,
    /// How often what is written now runs in one call, and the calls that are made so far.
    times: usize,
    cost: usize,
    limit: usize,
    /// Objects on the stack.
    objects: Vec<String>,
    names: usize,
    /// In how many loops what is written is.
    loops: usize,
}

impl<'w> Body<'w> {
    fn new(writer: &'w mut Writer, function: &Function, limit: usize) -> Body<'w> {
        let variables = function.parameters.iter().map(|parameter| Variable {
            name: parameter.name.clone(),
            ty: parameter.ty,
            is_assignable: parameter.name != "depth",
        });
        Body {
            unit: function.unit,
            id: function.id,
            name: function.name.clone(),
            returns: function.returns,
            parameters: function.parameters.clone(),
            variables: variables.collect(),
            writer,
            times: 1,
            cost: 1,
            limit,
            objects: Vec::new(),
            names: 0,
            loops: 0,
        }
    }

    fn prng(&mut self) -> &mut Prng {
        &mut self.writer.prng
    }

    fn write(mut self, is_recursive: bool) -> (Vec<Statement>, usize) {
        let mut out = Vec::new();
        let seq = Statement::line(format!("SEQ({});", self.id));
        match self.prng().below(20) {
            0 | 1 => {
                out.extend(self.assignment());
                out.push(seq);
            }
            2 => {
                out.extend(self.loop_(2, true));
                out.push(seq);
            }
            3 => {
                out.extend(self.call_statement());
                out.push(seq);
            }
            4 => {
                let condition = self.condition();
                let value = self.result(1);
                out.push(Statement::line(format!("if ({condition}) return {value};")));
                out.push(seq);
            }
            5 => {
                out.extend(self.local());
                out.push(seq);
            }
            _ => out.push(seq),
        }
        let recursion = is_recursive.then(|| {
            let value = self.result(1);
            out.push(Statement::line(format!("if (depth <= 0) return {value};")));
            self.prng().below(3)
        });
        if self.prng().chance(12) {
            out.extend(self.object());
        }
        let count = match self.prng().below(10) {
            0..3 => 0,
            3..6 => 1,
            6..8 => 2,
            _ => self.prng().between(3, 6),
        };
        for _ in 0..count {
            out.extend(self.statement(0));
        }
        match recursion {
            Some(0) => out.push(Statement::line(format!("return {};", self.call_self()))),
            Some(_) => {
                let call = self.call_self();
                if self.returns.size() <= 8 && self.returns.fields().is_empty() {
                    let again =
                        if self.prng().chance(30) { format!("(void){};", self.call_self()) } else { String::new() };
                    let doubled = !again.is_empty();
                    out.push(Statement::line(format!("G.sink = (u64)({call});{again}")));
                    if doubled {
                        self.cost *= 4;
                    }
                } else {
                    out.push(Statement::line(format!("(void){call};")));
                }
                self.finish(&mut out);
            }
            None => self.finish(&mut out),
        }
        let cost = if is_recursive { self.cost * DEEPEST } else { self.cost };
        (out, cost)
    }

    /// What is returned: no pointer that the function was given, which may be to an object on a stack.
    fn result(&mut self, depth: usize) -> String {
        match self.returns {
            Type::Object => format!("&G.objs[{}]", self.prng().below(8)),
            returns => self.value(returns, depth),
        }
    }

    /// The last statement: often a call.
    fn finish(&mut self, out: &mut Vec<Statement>) {
        let returns = self.returns;
        if self.prng().chance(25)
            && let Some(callee) = self.callee(Some(returns))
        {
            let call = self.call(callee);
            out.push(Statement::line(format!("return {call};")));
            return;
        }
        let value = self.result(2);
        out.push(Statement::line(format!("return {value};")));
    }

    fn write_start(mut self) -> (Vec<Statement>, usize) {
        let mut out = vec![Statement::line(format!("SEQ({});", self.id))];
        for _ in 0..self.prng().between(2, 5) {
            out.extend(self.statement(0));
        }
        // Whatever nobody calls.
        for callee in 0..self.writer.functions.len() {
            let function = &self.writer.functions[callee];
            let is_visible = !function.is_static || function.unit == self.unit;
            if is_visible && (!self.writer.called[callee] || self.prng().chance(25)) && self.cost < self.limit {
                self.writer.called[callee] = true;
                let call = self.call(callee);
                out.push(Statement::line(format!("(void){call};")));
            }
        }
        out.push(Statement::line("return 0;"));
        (out, self.cost)
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// A function that can be called here.
    fn callee(&mut self, returns: Option<Type>) -> Option<usize> {
        let room = self.limit.checked_sub(self.cost)? / self.times;
        let can = |(index, function): (usize, &Function)| {
            let is_visible = !function.is_static || function.unit == self.unit;
            let fits = returns.is_none_or(|returns| function.returns == returns);
            (is_visible && fits && self.writer.costs[index] <= room).then_some(index)
        };
        let callees: Vec<usize> = self.writer.functions.iter().enumerate().filter_map(can).collect();
        if callees.is_empty() {
            return None;
        }
        // Those that are called already are called again more often than not: one function, many sites.
        let known: Vec<usize> = callees.iter().copied().filter(|callee| self.writer.called[*callee]).collect();
        let from = if !known.is_empty() && self.prng().chance(50) { known } else { callees };
        Some(*self.prng().pick(&from))
    }

    fn call(&mut self, callee: usize) -> String {
        self.cost += self.times * self.writer.costs[callee];
        self.writer.called[callee] = true;
        let parameters = self.writer.functions[callee].parameters.clone();
        let arguments: Vec<String> = parameters
            .iter()
            .map(|parameter| if parameter.name == "depth" { self.depth() } else { self.argument(parameter.ty) })
            .collect();
        format!("{}({})", self.writer.functions[callee].name, arguments.join(", "))
    }

    fn depth(&mut self) -> String {
        if self.prng().chance(50) {
            self.prng().below(DEEPEST).to_string()
        } else {
            let value = self.integer(1);
            format!("(int)({value}) & {}", DEEPEST - 1)
        }
    }

    fn call_self(&mut self) -> String {
        let parameters = self.parameters.clone();
        let arguments: Vec<String> = parameters
            .iter()
            .map(
                |parameter| {
                    if parameter.name == "depth" { "depth - 1".to_owned() } else { self.argument(parameter.ty) }
                },
            )
            .collect();
        format!("{}({})", self.name, arguments.join(", "))
    }

    fn argument(&mut self, ty: Type) -> String {
        if matches!(ty, Type::Integer(..)) && self.prng().chance(30) {
            return self.constant();
        }
        if ty == Type::Object && !self.objects.is_empty() && self.prng().chance(40) {
            return self.writer.prng.pick(&self.objects).clone();
        }
        let same: Vec<String> =
            self.variables.iter().filter(|variable| variable.ty == ty).map(|variable| variable.name.clone()).collect();
        if !same.is_empty() && self.prng().chance(45) {
            return self.prng().pick(&same).clone();
        }
        self.value(ty, 2)
    }

    fn constant(&mut self) -> String {
        const CONSTANTS: [&str; 14] = [
            "0",
            "1",
            "-1",
            "2",
            "5",
            "42",
            "-128",
            "255",
            "256",
            "0x7fffffff",
            "4096",
            "-4095",
            "65535",
            "0x123456789abl",
        ];
        (*self.prng().pick(&CONSTANTS)).to_owned()
    }

    /// An integer of any type.
    fn integer(&mut self, depth: usize) -> String {
        if depth == 0 || self.prng().chance(25) {
            return self.leaf();
        }
        let one = self.integer(depth - 1);
        let bits = self.prng().between(1, 6);
        match self.prng().below(14) {
            0 => format!("(u8)({one})"),
            1 => format!("(s16)({one})"),
            2 => format!("(int)({one})"),
            3 => format!("(u32)({one})"),
            4 => format!("-({one})"),
            5 => format!("~({one})"),
            6 => format!("!({one})"),
            7 => format!("(({one}) << {bits})"),
            8 => format!("((u64)({one}) >> {bits})"),
            9 => {
                let (two, three) = (self.leaf(), self.leaf());
                format!("(({one}) ? {two} : {three})")
            }
            10 => {
                let (two, three) = (self.leaf(), self.leaf());
                format!("max((long)({two}), (long)({three}))")
            }
            _ => {
                let two = self.integer(depth - 1);
                let operator = *self.prng().pick(&["+", "+", "+", "-", "-", "*", "&", "|", "^", "<", "==", "!=", ">="]);
                format!("({one} {operator} {two})")
            }
        }
    }

    fn leaf(&mut self) -> String {
        let is_read = |variable: &&Variable| variable.ty != Type::Callback;
        let variables: Vec<Variable> = self.variables.iter().filter(is_read).cloned().collect();
        if self.prng().chance(65) && !variables.is_empty() {
            let Variable { name, ty, .. } = self.prng().pick(&variables).clone();
            return match ty {
                Type::Integer(..) => name,
                Type::Object => {
                    let field = *self.prng().pick(&["a", "b", "c", "d", "e", "f", "in.a"]);
                    format!("{name}->{field}")
                }
                Type::Struct(..) => format!("{name}.{}", self.prng().pick(ty.fields())),
                Type::Callback | Type::Pointer | Type::Record => self.constant(),
            };
        }
        if self.prng().chance(50) {
            return self.constant();
        }
        self.input()
    }

    fn input(&mut self) -> String {
        format!("G.in[{}]", self.prng().below(64))
    }

    fn condition(&mut self) -> String {
        let value = self.integer(1);
        let mask = *self.prng().pick(&[1, 1, 3, 4, 7]);
        match self.prng().below(4) {
            0 => format!("unlikely(({value}) & {mask})"),
            1 => format!("likely(({value}) & {mask})"),
            2 => format!("({value}) & {mask}"),
            _ => format!("({value}) > {}", self.prng().below(100)),
        }
    }

    /// A value of a type.
    fn value(&mut self, ty: Type, depth: usize) -> String {
        let same: Vec<String> =
            self.variables.iter().filter(|variable| variable.ty == ty).map(|variable| variable.name.clone()).collect();
        match ty {
            Type::Integer("u128", ..) => {
                let (one, two) = (self.integer(1), self.integer(1));
                if self.prng().chance(50) {
                    format!("(u128)({one}) << 64 | (u64)({two})")
                } else {
                    format!("(u128)({one})")
                }
            }
            Type::Integer(name, ..) => {
                let value = self.integer(depth);
                if self.prng().chance(60) { format!("({name})({value})") } else { value }
            }
            Type::Object => match self.prng().below(6) {
                0 | 1 if !same.is_empty() => self.prng().pick(&same).clone(),
                2 if !same.is_empty() => {
                    let from = self.prng().pick(&same).clone();
                    format!("container_of({from}->link.next, struct obj, link)")
                }
                3 => {
                    let value = self.integer(1);
                    format!("&G.objs[(u64)({value}) & 7]")
                }
                _ => format!("&G.objs[{}]", self.prng().below(8)),
            },
            Type::Callback => {
                let unit = self.unit;
                let is_one = |function: &&Function| {
                    let types: Vec<Type> = function.parameters.iter().map(|parameter| parameter.ty).collect();
                    types == [Type::INT, Type::U64]
                        && function.returns == Type::INT
                        && function.parameters[0].name != "depth"
                        && (!function.is_static || function.unit == unit)
                        && !function.qualifiers.contains("always_inline")
                        && self.writer.costs[function.id] <= CALLS_OF_CALLBACK
                };
                let mut names: Vec<String> =
                    self.writer.functions.iter().filter(is_one).map(|function| function.name.clone()).collect();
                names.extend(same);
                if names.is_empty() { "(callback_t)0".to_owned() } else { self.prng().pick(&names).clone() }
            }
            Type::Struct(name, _, field) => {
                if !same.is_empty() && self.prng().chance(40) {
                    return self.prng().pick(&same).clone();
                }
                let values: Vec<String> =
                    ty.fields().iter().map(|_| format!("({field})({})", self.integer(1))).collect();
                format!("({name}){{ {} }}", values.join(", "))
            }
            // These are not drawn.
            Type::Pointer | Type::Record => self.constant(),
        }
    }

    /// Statements that belong together.
    fn statement(&mut self, depth: usize) -> Vec<Statement> {
        let choice = if depth < 2 { self.prng().below(30) } else { self.prng().below(16) };
        match choice {
            0..6 => self.call_statement(),
            6 | 7 => self.local(),
            8 | 9 => self.assignment(),
            10 | 11 => self.store(),
            12 => self.assembly(),
            13 => self.early_return(),
            14 => self.threaded(depth),
            15 => self.expression_statement(),
            16..20 => self.branch(depth),
            20 | 21 => self.switch(depth),
            22..26 => {
                let count = self.prng().between(2, 4);
                self.loop_(count, false)
            }
            26 => self.goto(depth),
            27 => self.assembly_goto(depth),
            _ => self.call_statement(),
        }
    }

    /// What a block holds: its variables end with it.
    fn block(&mut self, depth: usize) -> Vec<Statement> {
        let known = self.variables.len();
        let mut out = Vec::new();
        for _ in 0..self.prng().between(1, 2) {
            out.extend(self.statement(depth + 1));
        }
        self.variables.truncate(known);
        out
    }

    fn call_statement(&mut self) -> Vec<Statement> {
        if self.prng().chance(35)
            && let Some(call) = self.call_back()
        {
            return vec![call];
        }
        let Some(callee) = self.callee(None) else { return self.store() };
        let returns = self.writer.functions[callee].returns;
        let call = self.call(callee);
        let is_number = matches!(returns, Type::Integer(..));
        match self.prng().below(6) {
            0 | 1 => {
                let name = self.name("v");
                self.variables.push(Variable { name: name.clone(), ty: returns, is_assignable: true });
                vec![Statement::line(format!("{} {name} = {call};", returns.name()))]
            }
            2 if is_number => vec![Statement::line(format!("G.acc[{}] += (u64){call};", self.prng().below(8)))],
            3 if is_number => {
                let known = self.variables.len();
                let body = self.statement(3);
                self.variables.truncate(known);
                vec![Statement::block(format!("if ({call} & 1)"), body)]
            }
            _ => vec![Statement::line(format!("(void){call};"))],
        }
    }

    /// Calls a function that was passed.
    fn call_back(&mut self) -> Option<Statement> {
        let is_one = |variable: &&Variable| variable.ty == Type::Callback;
        let name = self.variables.iter().rev().find(is_one)?.name.clone();
        if self.cost + self.times * CALLS_OF_CALLBACK > self.limit {
            return None;
        }
        self.cost += self.times * CALLS_OF_CALLBACK;
        let (one, two) = (self.argument(Type::INT), self.argument(Type::U64));
        Some(Statement::line(format!("if ({name}) (void){name}({one}, {two});")))
    }

    /// An object on the stack, to be passed by its address.
    fn object(&mut self) -> Vec<Statement> {
        let name = self.name("o");
        let (one, two) = (self.integer(1), self.integer(1));
        let next = self.prng().below(8);
        self.objects.push(format!("&{name}"));
        let link = format!(".link = {{ &G.objs[{next}].link }}");
        vec![Statement::line(format!("struct obj {name} = {{ .a = {one}, .b = {two}, {link} }};"))]
    }

    fn local(&mut self) -> Vec<Statement> {
        let ty = *self.prng().pick(&Type::ALL);
        let value = self.value(ty, 2);
        let name = self.name("v");
        self.variables.push(Variable { name: name.clone(), ty, is_assignable: true });
        vec![Statement::line(format!("{} {name} = {value};", ty.name()))]
    }

    fn assignment(&mut self) -> Vec<Statement> {
        let assignable: Vec<Variable> =
            self.variables.iter().filter(|variable| variable.is_assignable).cloned().collect();
        if assignable.is_empty() {
            return self.store();
        }
        let Variable { name, ty, .. } = self.prng().pick(&assignable).clone();
        let text = match ty {
            Type::Integer("bool", ..) => format!("{name} = !{name};"),
            Type::Integer("enum mode" | "u128", ..) | Type::Object | Type::Callback | Type::Pointer | Type::Record => {
                format!("{name} = {};", self.value(ty, 1))
            }
            Type::Integer(..) => {
                let value = self.value(ty, 1);
                let operator = *self.prng().pick(&["=", "=", "=", "+=", "|=", "&=", "^="]);
                match self.prng().below(4) {
                    0 => format!("{name}++;"),
                    _ => format!("{name} {operator} {value};"),
                }
            }
            Type::Struct(_, _, field) => {
                let which = *self.prng().pick(ty.fields());
                format!("{name}.{which} = ({field})({});", self.integer(1))
            }
        };
        vec![Statement::line(text)]
    }

    fn store(&mut self) -> Vec<Statement> {
        let value = self.integer(2);
        let objects: Vec<String> = self
            .variables
            .iter()
            .filter(|variable| variable.ty == Type::Object)
            .map(|variable| variable.name.clone())
            .collect();
        let text = match self.prng().below(5) {
            0 if !objects.is_empty() => {
                let object = self.prng().pick(&objects).clone();
                let field = *self.prng().pick(&["a", "b", "c", "d", "f"]);
                format!("{object}->{field} = {value};")
            }
            1 | 2 => format!("G.acc[{}] += {value};", self.prng().below(8)),
            _ => format!("G.sink = {value};"),
        };
        vec![Statement::line(text)]
    }

    fn assembly(&mut self) -> Vec<Statement> {
        let numbers: Vec<Variable> = self
            .variables
            .iter()
            .filter(|variable| {
                variable.is_assignable
                    && variable.ty.fields().is_empty()
                    && matches!(variable.ty.size(), 4 | 8)
                    && !matches!(variable.ty, Type::Integer("enum mode", ..))
            })
            .cloned()
            .collect();
        if numbers.is_empty() || self.prng().chance(20) {
            return vec![Statement::line("barrier();")];
        }
        let Variable { name, .. } = self.prng().pick(&numbers).clone();
        vec![Statement::line(match self.prng().below(4) {
            0 => format!("__asm__ __volatile__(\"\" : \"+r\"({name}));"),
            1 => format!("__asm__ __volatile__(\"\" : : \"r\"({name}) : \"memory\");"),
            2 => format!("{name} = hide({name});"),
            _ => format!("__asm__ __volatile__(\"\" : \"+m\"({name}));"),
        })]
    }

    fn early_return(&mut self) -> Vec<Statement> {
        let condition = self.condition();
        if self.loops > 0 {
            let word = *self.prng().pick(&["break", "continue"]);
            return vec![Statement::line(format!("if ({condition}) {word};"))];
        }
        let value = self.result(1);
        vec![Statement::line(format!("if ({condition}) return {value};"))]
    }

    /// A flag that is set on one way and looked at on both: jump threading copies what lies between.
    fn threaded(&mut self, depth: usize) -> Vec<Statement> {
        let flag = self.name("flag");
        let condition = self.condition();
        let mut out =
            vec![Statement::line(format!("int {flag} = 0;")), Statement::line(format!("if ({condition}) {flag} = 1;"))];
        out.extend(self.call_statement());
        let body = if depth < 3 { self.block(depth + 1) } else { self.store() };
        out.push(Statement::block(format!("if ({flag})"), body));
        out
    }

    fn expression_statement(&mut self) -> Vec<Statement> {
        let known = self.variables.len();
        let inner = self.call_statement();
        let value = self.integer(1);
        self.variables.truncate(known);
        let name = self.name("v");
        let mut text = format!("long {name} = ({{ ");
        for statement in &inner {
            match statement {
                Statement::Line(line) => text.push_str(line),
                Statement::Block { .. } => return inner,
            }
            text.push(' ');
        }
        text.push_str(&format!("{value}; }});"));
        self.variables.push(Variable { name, ty: Type::LONG, is_assignable: true });
        vec![Statement::line(text)]
    }

    fn branch(&mut self, depth: usize) -> Vec<Statement> {
        let condition = self.condition();
        let body = self.block(depth);
        let otherwise = if self.prng().chance(50) { self.block(depth) } else { Vec::new() };
        vec![Statement::Block { head: format!("if ({condition})"), body, otherwise, tail: String::new() }]
    }

    fn switch(&mut self, depth: usize) -> Vec<Statement> {
        let value = self.integer(1);
        let mut body = Vec::new();
        for case in 0..self.prng().between(2, 5) {
            body.push(Statement::line(format!("case {case}: ;")));
            // A declaration may not be jumped over.
            let inner = self.block(depth);
            body.push(Statement::block("", inner));
            if self.prng().chance(80) && self.loops == 0 {
                body.push(Statement::line("break;"));
            }
        }
        vec![Statement::block(format!("switch ((u32)({value}) & 7)"), body)]
    }

    fn loop_(&mut self, count: usize, begins_with_call: bool) -> Vec<Statement> {
        let (times, known) = (self.times, self.variables.len());
        self.times *= count;
        self.loops += 1;
        let counter = self.name("i");
        self.variables.push(Variable { name: counter.clone(), ty: Type::INT, is_assignable: false });
        let mut body = Vec::new();
        if begins_with_call || self.prng().chance(60) {
            body.extend(self.call_statement());
        }
        if !begins_with_call && self.prng().chance(50) {
            body.extend(self.statement(2));
        }
        self.variables.truncate(known);
        let bound = if self.prng().chance(50) {
            count.to_string()
        } else {
            let input = self.input();
            format!("(int)({input} % {})", count + 1)
        };
        let is_unrolled = self.prng().chance(20);
        let shape = self.prng().below(4);
        self.times = times;
        self.loops -= 1;
        let step = format!("{counter}++");
        let mut out = Vec::new();
        match shape {
            0 => {
                // `continue` goes to the condition, which counts.
                out.push(Statement::line(format!("int {counter} = {bound};")));
                out.push(Statement::Block {
                    head: "do".to_owned(),
                    body,
                    otherwise: Vec::new(),
                    tail: format!(" while (--{counter} > 0);"),
                });
            }
            1 => {
                out.push(Statement::line(format!("int {counter} = {bound};")));
                out.push(Statement::block(format!("while ({counter}-- > 0)"), body));
            }
            _ => {
                if is_unrolled {
                    out.push(Statement::line("_Pragma(\"GCC unroll 4\")"));
                }
                out.push(Statement::block(format!("for (int {counter} = 0; {counter} < {bound}; {step})"), body));
            }
        }
        out
    }

    fn goto(&mut self, depth: usize) -> Vec<Statement> {
        let label = self.name("out");
        let condition = self.condition();
        let body = self.block(depth);
        // What is declared between the goto and the label may not be used after the label.
        vec![
            Statement::line(format!("if ({condition}) goto {label};")),
            Statement::block("", body),
            Statement::line(format!("{label}: ;")),
        ]
    }

    fn assembly_goto(&mut self, depth: usize) -> Vec<Statement> {
        let label = self.name("out");
        let body = self.block(depth);
        vec![
            Statement::line(format!("__asm__ goto(\"\" : : : : {label});")),
            Statement::block("", body),
            Statement::line(format!("{label}: ;")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_program() {
        let source = |seed, unit| generate(seed).source(unit);
        for unit in 0..UNITS {
            assert_eq!(source(7, unit), source(7, unit));
        }
        assert_ne!(source(7, 0), source(8, 0));
    }

    #[test]
    fn calls_go_to_functions_that_come_before() {
        for seed in 0..50 {
            let program = generate(seed);
            for unit in 0..UNITS {
                let text = program.source(unit);
                for function in program.functions.iter().filter(|function| function.unit == unit) {
                    let begin = text.find(&format!(" {}(", function.name));
                    assert!(begin.is_some(), "seed {seed}: {} is not in unit {unit}", function.name);
                }
            }
            assert_eq!(program.functions.last().map(|function| &*function.name), Some(START));
        }
    }

    #[test]
    fn what_is_left_out_is_gone_and_the_rest_stays() {
        let program = generate(3);
        let parts = program.parts();
        assert_eq!(program.without(&|_| false).source(0), program.source(0));
        assert_eq!(program.without(&|part| part == 0).functions.len(), program.functions.len() - 1);
        let last = program.without(&|part| part + 1 == parts);
        assert_eq!(last.parts(), parts - 1);
        assert!(!last.source(0).contains("return 0;\n}\n\n"), "{}", last.source(0));
    }
}
