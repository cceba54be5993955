//! What does a GGUF file hold? Its metadata by type and its tensors as raw bytes, with every bound checked.

use crate::error::LoadError;
use candle_core::Error;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use kernels::Format;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// An open GGUF file.
pub(crate) struct Gguf {
    path: PathBuf,
    pub(crate) content: Content,
    bytes: u64,
}

/// A tensor's raw bytes and shape; a vector has one row.
pub(crate) struct RawTensor {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Gguf {
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let io = |source| LoadError::Io { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let content = Content::read(&mut BufReader::new(file))
            .map_err(|error| LoadError::Invalid { path: path.to_path_buf(), message: reason(&error) })?;
        Ok(Self { path: path.to_path_buf(), content, bytes })
    }

    fn value(&self, key: &str) -> Result<&Value, LoadError> {
        self.content.metadata.get(key).ok_or_else(|| metadata(key, "missing"))
    }

    pub(crate) fn string(&self, key: &str) -> Result<String, LoadError> {
        self.value(key)?.to_string().cloned().map_err(|_| metadata(key, "is no string"))
    }

    /// An unsigned number of any width, at most `max`.
    pub(crate) fn number(&self, key: &str, max: usize) -> Result<usize, LoadError> {
        let number = match self.value(key)? {
            Value::U8(n) => u64::from(*n),
            Value::U16(n) => u64::from(*n),
            Value::U32(n) => u64::from(*n),
            Value::U64(n) => *n,
            Value::I32(n) => u64::try_from(*n).map_err(|_| metadata(key, "is negative"))?,
            Value::I64(n) => u64::try_from(*n).map_err(|_| metadata(key, "is negative"))?,
            _ => return Err(metadata(key, "is no whole number")),
        };
        match usize::try_from(number) {
            Ok(number) if number <= max => Ok(number),
            _ => Err(metadata(key, &format!("is {number}; at most {max} is possible"))),
        }
    }

    pub(crate) fn float(&self, key: &str) -> Result<f32, LoadError> {
        let float = self.value(key)?.to_f32().map_err(|_| metadata(key, "is no 32-bit float"))?;
        if float.is_finite() { Ok(float) } else { Err(metadata(key, "is not finite")) }
    }

    /// `None` when the key is absent.
    pub(crate) fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Self, &str) -> Result<T, LoadError>,
    ) -> Result<Option<T>, LoadError> {
        if self.content.metadata.contains_key(key) { read(self, key).map(Some) } else { Ok(None) }
    }

    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    /// Reads a tensor of one or two dimensions.
    pub(crate) fn tensor(&self, name: &str) -> Result<RawTensor, LoadError> {
        let info = self
            .content
            .tensor_infos
            .get(name)
            .ok_or_else(|| LoadError::tensor(name, "is missing from the file"))?;
        let format = match info.ggml_dtype {
            GgmlDType::F32 => Format::F32,
            GgmlDType::F16 => Format::F16,
            GgmlDType::BF16 => Format::Bf16,
            GgmlDType::Q4_0 => Format::Q4_0,
            GgmlDType::Q4_1 => Format::Q4_1,
            GgmlDType::Q5_0 => Format::Q5_0,
            GgmlDType::Q5_1 => Format::Q5_1,
            GgmlDType::Q8_0 => Format::Q8_0,
            GgmlDType::Q4K => Format::Q4K,
            GgmlDType::Q5K => Format::Q5K,
            GgmlDType::Q6K => Format::Q6K,
            other => {
                return Err(LoadError::tensor(
                    name,
                    format!("has type {other:?}, for which there is no kernel"),
                ));
            }
        };
        let (rows, cols) = match info.shape.dims() {
            [cols] => (1, *cols),
            [rows, cols] => (*rows, *cols),
            dims => return Err(LoadError::tensor(name, format!("has {} dimensions", dims.len()))),
        };
        let row_bytes = format.row_bytes(cols).map_err(|error| LoadError::format(name, &error))?;
        let len = row_bytes.checked_mul(rows).ok_or_else(|| LoadError::tensor(name, "is absurdly large"))?;
        let start = self.content.tensor_data_offset.checked_add(info.offset);
        let end = start.and_then(|start| start.checked_add(len as u64));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(LoadError::tensor(name, "lies outside the file"));
        };
        if end > self.bytes {
            return Err(LoadError::tensor(name, format!("ends at byte {end} of a file of {}", self.bytes)));
        }
        let io = |source| LoadError::Io { path: self.path.clone(), source };
        let mut file = File::open(&self.path).map_err(io)?;
        file.seek(SeekFrom::Start(start)).map_err(io)?;
        let mut bytes = vec![0; len];
        file.read_exact(&mut bytes).map_err(io)?;
        Ok(RawTensor { format, rows, cols, bytes })
    }
}

pub(crate) fn metadata(key: &str, message: &str) -> LoadError {
    LoadError::Metadata { key: key.to_string(), message: message.to_string() }
}

/// What candle says is wrong, in one line: without the stack trace that it appends when the environment asks for one,
/// and with words for a file that ends early.
fn reason(error: &Error) -> String {
    match error {
        Error::WithBacktrace { inner, .. } | Error::WithPath { inner, .. } => reason(inner),
        Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it ends too early".to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let error = Gguf::open(file.path()).err().expect("must be refused").to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains('\n'), "{error} is more than one line");
    }

    #[test]
    fn a_damaged_file_is_refused_in_one_line() {
        check(b"", "ends too early");
        check(b"GGUF", "ends too early");
        check(b"plain text", "magic");
        check(b"GGUF\x63\0\0\0", "version");
        let counts = |tensors: u64, entries: u64| {
            let mut bytes = b"GGUF\x03\0\0\0".to_vec();
            bytes.extend(tensors.to_le_bytes());
            bytes.extend(entries.to_le_bytes());
            bytes
        };
        // Counts and lengths that no file of this size can hold must not size an allocation.
        check(&counts(u64::MAX, 0), "tensor");
        check(&counts(0, u64::MAX), "metadata");
        let mut key = counts(0, 1);
        key.extend(u64::MAX.to_le_bytes());
        key.extend([0; 64]);
        check(&key, "length");
    }

    #[test]
    fn a_stack_trace_is_no_part_of_the_reason() {
        let traced = Error::WithBacktrace {
            inner: Box::new(Error::Msg("no tensors".to_string())),
            backtrace: Box::new(std::backtrace::Backtrace::force_capture()),
        };
        assert_eq!(reason(&traced), "no tensors");
    }
}
