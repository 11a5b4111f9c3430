//! Running programs.

use std::{
    io::{BufRead, BufReader, Error},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

/// Runs `command` to its end; an error tells how it ended if that was not well.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(error) => Err(not_run(command, &error)),
    }
}

/// The same; returns what it prints. What it says on standard error is shown.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| not_run(command, &error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?} ended with {}", output.status)),
    }
}

/// The same, with each line of its output for `line`.
pub(crate) fn follow(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), String> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| not_run(command, &error))?;
    let failed = |error: Error| not_run(command, &error);
    if let Some(stdout) = child.stdout.take() {
        for bytes in BufReader::new(stdout).split(b'\n') {
            line(&String::from_utf8_lossy(&bytes.map_err(failed)?));
        }
    }
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(()),
        status => Err(format!("ended with {status}")),
    }
}

/// Does `work` with each of `all`, from the last on, as many at a time as there are processors, and prints what comes of them.
///
/// # Errors
/// The names of those that failed.
pub(crate) fn each<T: Send>(
    all: Vec<T>,
    name: impl Fn(&T) -> String + Sync,
    work: impl Fn(&T) -> Result<String, String> + Sync,
) -> Result<(), String> {
    let (queue, failed) = (Mutex::new(all), Mutex::new(Vec::new()));
    let next = || queue.lock().ok()?.pop();
    let work_on = || {
        while let Some(one) = next() {
            match work(&one) {
                Ok(line) => println!("{line}"),
                Err(why) => {
                    eprintln!("{}: {why}", name(&one));
                    failed
                        .lock()
                        .into_iter()
                        .for_each(|mut failed| failed.push(name(&one)));
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work_on))));
    let failed = failed.into_inner().unwrap_or_default();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// Whether a program is there and does well.
pub(crate) fn answers(program: &str, args: &[&str]) -> bool {
    let silent = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    silent.is_ok_and(|status| status.success())
}

fn not_run(command: &Command, error: &Error) -> String {
    format!("{} could not be run: {error}", command.get_program().display())
}
