// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The manual pages and completions that the tool makes of itself: they have every command and option of `--help`, and
//! the programs that read them take them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn siteseer(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_siteseer")).args(arguments).output().expect("the tool starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = siteseer(&["--help"]);
    let list = help.split("Commands:\n").nth(1).expect("a list of commands");
    let names = list.lines().take_while(|line| line.starts_with("  "));
    // Continuation lines of a description are indented further.
    let names = names.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() >= 6 && names.contains(&"trace".to_owned()), "{help}");
    names
}

/// `--some-option` wherever it stands in a text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.len() > 3 && word.starts_with("--")).map(str::to_owned).collect()
}

/// A page without what sets its fonts and its hyphens.
fn plain(page: &str) -> String {
    ["\\fB", "\\fI", "\\fR"].iter().fold(page.replace("\\-", "-"), |text, font| text.replace(font, " "))
}

/// A fresh folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn every_command_has_a_page_with_all_of_its_options() {
    let folder = folder("man");
    siteseer(&["generate", "man", "--output", folder.to_str().expect("UTF-8")]);
    let overview = std::fs::read_to_string(folder.join("siteseer.1")).expect("siteseer.1");
    assert_eq!(overview, siteseer(&["generate", "man"]));
    let mut pages = vec![folder.join("siteseer.1")];
    for command in commands() {
        let path = folder.join(format!("siteseer-{command}.1"));
        let page = plain(&std::fs::read_to_string(&path).expect("a page"));
        let missing: Vec<String> =
            options(&siteseer(&[&command, "--help"])).difference(&options(&page)).cloned().collect();
        assert!(missing.is_empty(), "siteseer-{command}.1 lacks {missing:?}");
        assert!(plain(&overview).contains(&format!("siteseer-{command}(1)")), "siteseer.1 does not list {command}");
        pages.push(path);
    }
    let count = std::fs::read_dir(&folder).expect("the folder").count();
    assert_eq!(count, pages.len(), "a page for something that is not a command");
    let output = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).args(&pages).output();
    let output = output.expect("groff (package groff-base)");
    assert!(output.status.success() && said(&output).is_empty(), "groff: {}", said(&output));
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = folder("bash");
    siteseer(&["generate", "bash", "--output", folder.to_str().expect("UTF-8")]);
    // The shell asks the tool, which it finds by its path.
    let tools = Path::new(env!("CARGO_BIN_EXE_siteseer")).parent().expect("a folder");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let complete = |words: &[&str]| {
        let script = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; \
             $(complete -p siteseer | sed 's/.*-F \\([^ ]*\\).*/\\1/') siteseer '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            folder.join("siteseer").display(),
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1].trim_matches('\''),
            words[words.len() - 2],
        );
        let output = Command::new("bash").args(["--norc", "-c", &script]).env("PATH", &path).output().expect("bash");
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect::<BTreeSet<String>>()
    };
    assert_eq!(complete(&["siteseer", "tr"]), BTreeSet::from(["trace".to_owned()]));
    assert!(complete(&["siteseer", "trace", "--st"]).contains("--strings"));
    let all = complete(&["siteseer", "''"]);
    assert!(commands().iter().all(|command| all.contains(command)), "{all:?}");
}

#[test]
fn every_shell_is_offered_every_command_and_option() {
    for (shell, file) in [("bash", "siteseer"), ("zsh", "_siteseer"), ("fish", "siteseer.fish")] {
        let folder = folder(&format!("{shell}-script"));
        siteseer(&["generate", shell, "--output", folder.to_str().expect("UTF-8")]);
        let text = std::fs::read_to_string(folder.join(file)).expect("completions");
        assert!(text.contains("SITESEER_COMPLETE") && text.contains(shell), "{shell}: {text}");
        let offered = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
            command.env("SITESEER_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
            command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_IFS", "\n").arg("--").args(words);
            said(&command.output().expect("the tool starts"))
        };
        let list = offered(&["siteseer", ""]);
        for command in commands() {
            assert!(list.contains(&command), "{shell}: {command}");
            let offered = offered(&["siteseer", &command, "--"]);
            for option in options(&siteseer(&[&command, "--help"])) {
                assert!(offered.contains(&option), "{shell}: {command} {option} is not in {offered}");
            }
        }
    }
}
