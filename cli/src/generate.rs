// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer generate`: manual pages and shell completions, from the definition that `--help` comes from.
//!
//! The pages of the commands are wholly made from it. That of `siteseer` has besides what no option says (files,
//! environment, exit status, examples), which is written by hand in `generate/siteseer.roff`.

use crate::{Cli, Failure, complete, output};
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of the tool, which is that of its pages.
const NAME: &str = "siteseer";
/// What follows the generated part of siteseer(1).
const BY_HAND: &str = include_str!("generate/siteseer.roff");

/// What can be made.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Manual pages: siteseer(1), and with --output one for each command
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

/// Print the manual page, or completions for a shell
///
/// For an installation: `source <(siteseer generate bash)` completes in the running shell. The shell then asks
/// siteseer, which also completes names of functions from the site data.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to make
    what: What,
    /// Write files into this folder, named as the shell or man(1) looks for them
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (shell, file): (&dyn EnvCompleter, String) = match arguments.what {
        What::Man => return pages(Cli::command(), arguments.output.as_deref()),
        What::Bash => (&Bash, NAME.to_owned()),
        What::Zsh => (&Zsh, format!("_{NAME}")),
        What::Fish => (&Fish, format!("{NAME}.fish")),
    };
    let mut text = Vec::new();
    shell.write_registration(complete::VARIABLE, NAME, NAME, NAME, &mut text)?;
    write(arguments.output.as_deref(), &file, &text)
}

/// Writes a file of the folder, or prints it.
fn write(folder: Option<&Path>, file: &str, text: &[u8]) -> Result<(), Failure> {
    match folder {
        Some(folder) => output::write_whole(&folder.join(file), |out| Ok(out.write_all(text)?)),
        None => Ok(io::stdout().write_all(text)?),
    }
}

/// siteseer(1), and in a folder the pages of its commands.
fn pages(command: Command, folder: Option<&Path>) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    // Without this the pages of the commands would not know how they are called.
    command.build();
    let mut text = page(&command)?;
    text.extend_from_slice(BY_HAND.as_bytes());
    write(folder, &format!("{NAME}.1"), &text)?;
    if folder.is_some() {
        for command in command.get_subcommands() {
            let mut text = page(command)?;
            // A command's page describes the command's own commands, too.
            for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
                section(command, &mut text)?;
            }
            writeln!(text, ".SH \"SEE ALSO\"\n\\fB{NAME}\\fR(1)")?;
            write(folder, &format!("{NAME}-{}.1", command.get_name()), &text)?;
        }
    }
    Ok(())
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let version = command.get_version().unwrap_or_default().to_owned();
    let man = Man::new(command.clone()).section("1").manual("siteseer").source(format!("siteseer {version}"));
    let mut text = b".\\\" Made by `siteseer generate man`.\n".to_vec();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    // Those of a command have no pages of their own.
    if command.get_name() == NAME {
        man.render_subcommands_section(&mut text)?;
    }
    Ok(text)
}

/// A command of a command, in the page of the latter.
fn section(command: &Command, text: &mut Vec<u8>) -> Result<(), Failure> {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_uppercase();
    writeln!(text, ".SH \"{name}\"")?;
    let man = Man::new(command.clone());
    let mut rest = Vec::new();
    man.render_synopsis_section(&mut rest)?;
    man.render_description_section(&mut rest)?;
    man.render_options_section(&mut rest)?;
    // Its sections are subsections here.
    for line in String::from_utf8_lossy(&rest).lines() {
        writeln!(text, "{}", line.replacen(".SH ", ".SS ", 1))?;
    }
    Ok(())
}
