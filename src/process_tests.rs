use std::path::Path;
use std::time::Instant;

use super::*;

fn program(argv: &[&str]) -> Program {
    Program {
        argv: argv.iter().map(|&part| part.to_owned()).collect(),
        folder: PathBuf::from("/"),
        env: BTreeMap::new(),
        input: Vec::new(),
        timeout: Duration::from_secs(10),
        output_limit: 1 << 20,
    }
}

fn shell(script: &str) -> Program {
    program(&["/bin/sh", "-c", script])
}

/// Whether the process still runs; a zombie that waits for its parent does not.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A killed process is gone soon, not at once.
async fn ends(pid: i32) -> bool {
    let begun = Instant::now();
    while runs(pid) && begun.elapsed() < Duration::from_secs(2) {
        tokio::task::yield_now().await;
    }
    !runs(pid)
}

/// A program that starts a grandchild, tells its id through a fifo, then does as `end` says.
struct Family {
    folder: tempfile::TempDir,
}

impl Family {
    fn new() -> Family {
        let folder = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("told"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        Family { folder }
    }

    fn program(&self, end: &str) -> Program {
        Program { folder: self.folder.path().to_owned(), ..shell(&format!("sleep 60 & echo $! > told; {end}")) }
    }

    async fn grandchild(&self) -> i32 {
        let text = tokio::fs::read_to_string(self.folder.path().join("told")).await.unwrap();
        text.trim().parse().unwrap()
    }
}

#[tokio::test]
async fn input_goes_in_and_output_exit_code_and_error_come_out() {
    let finished = Program { input: b"two scoops".to_vec(), ..shell("cat; echo oh >&2; exit 3") }.run().await.unwrap();
    let expected = Finished { code: Some(3), output: b"two scoops".to_vec(), output_bytes: 10, error: "oh\n".into() };
    assert_eq!(finished, expected);
}

#[tokio::test]
async fn security_s31_arguments_are_data_and_never_a_shell() {
    let hostile =
        ["; touch /tmp/owned", "$(id)", "`id`", "| cat", "&& true", "-n", "--help", "a\nb", "*", "~", "'\"", "\\", "> x", "${HOME}"];
    for argument in hostile {
        let finished = program(&["printf", "%s", argument]).run().await.unwrap();
        assert_eq!(String::from_utf8(finished.output).unwrap(), argument);
    }
}

#[tokio::test]
async fn security_s31_the_environment_is_empty_but_for_three_names_and_its_own() {
    let own = BTreeMap::from([("DB".to_owned(), "x".to_owned())]);
    let finished = Program { env: own, ..program(&["env"]) }.run().await.unwrap();
    let output = String::from_utf8(finished.output).unwrap();
    let names: Vec<&str> = output.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert!(names.contains(&"DB") && names.contains(&"PATH"), "{names:?}");
    assert!(names.iter().all(|name| ["PATH", "HOME", "LANG", "DB"].contains(name)), "{names:?}");
}

#[tokio::test]
async fn output_beyond_the_limit_is_read_counted_and_dropped() {
    let finished = Program { output_limit: 10, ..shell("head -c 5000000 /dev/zero; head -c 9000 /dev/zero >&2") }.run().await.unwrap();
    assert_eq!((finished.code, finished.output.len(), finished.output_bytes), (Some(0), 10, 5_000_000));
    assert_eq!(finished.error.len(), ERROR_LIMIT);
}

#[tokio::test]
async fn a_program_that_does_not_read_its_input_is_no_error() {
    let finished = Program { input: vec![b'x'; 1 << 20], ..shell("exec 0<&-; echo done") }.run().await.unwrap();
    assert_eq!((finished.code, finished.output.as_slice()), (Some(0), b"done\n".as_slice()));
}

#[tokio::test]
async fn large_input_and_large_output_do_not_block_each_other() {
    let finished = Program { input: vec![b'x'; 1 << 20], ..program(&["cat"]) }.run().await.unwrap();
    assert_eq!(finished.output_bytes, 1 << 20);
}

#[tokio::test]
async fn security_s31_the_time_limit_ends_grandchildren_too() {
    let family = Family::new();
    let limited = Program { timeout: Duration::from_millis(300), ..family.program("sleep 60") };
    let (result, grandchild) = tokio::join!(limited.run(), family.grandchild());
    assert!(matches!(result, Err(ProcessError::TimedOut { .. })), "{result:?}");
    assert!(ends(grandchild).await);
}

#[tokio::test]
async fn dropping_the_future_ends_the_group() {
    let family = Family::new();
    let grandchild = tokio::select! {
        result = family.program("sleep 60").run() => panic!("{result:?}"),
        grandchild = family.grandchild() => grandchild,
    };
    assert!(ends(grandchild).await);
}

#[tokio::test]
async fn what_is_left_in_the_background_neither_blocks_nor_stays() {
    let family = Family::new();
    let (finished, grandchild) = tokio::join!(family.program("echo answer").run(), family.grandchild());
    assert_eq!(finished.unwrap().output, b"answer\n");
    assert!(ends(grandchild).await);
}

#[tokio::test]
async fn a_signal_gives_no_exit_code() {
    assert_eq!(shell("kill -9 $$").run().await.unwrap().code, None);
}

#[tokio::test]
async fn a_program_that_cannot_start_says_which() {
    for argv in [["no-such-program"].as_slice(), &["bin/none"], &[]] {
        let error = program(argv).run().await.unwrap_err();
        assert!(matches!(&error, ProcessError::NotStarted { program, .. } if argv.first().is_none_or(|name| program == name)), "{error}");
    }
}

#[tokio::test]
async fn a_relative_program_is_looked_up_in_its_folder() {
    let finished = Program { folder: PathBuf::from("/bin"), ..program(&["./echo", "hi"]) }.run().await.unwrap();
    assert_eq!(finished.output, b"hi\n");
}

#[tokio::test]
async fn the_blocking_form_works_inside_a_runtime() {
    assert_eq!(shell("echo hi").run_blocking().unwrap().output, b"hi\n");
}
