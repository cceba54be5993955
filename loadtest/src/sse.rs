//! Where does one server-sent event end and the next begin? An incremental reader of `text/event-stream`.

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// Its `event` field; `message` when it has none.
    pub name: String,
    /// Its `data` lines, joined by newlines.
    pub data: String,
}

/// Takes bytes in whatever pieces the network delivers and gives back whole events.
#[derive(Debug, Default)]
pub struct SseReader {
    pending: Vec<u8>,
}

impl SseReader {
    /// Adds `bytes` and returns the events that are complete now. Comments and events without data are dropped.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        self.pending.extend(bytes.iter().filter(|byte| **byte != b'\r'));
        let mut events = Vec::new();
        while let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.pending.drain(..end + 2).collect();
            events.extend(parse(&String::from_utf8_lossy(&block)));
        }
        events
    }

    /// Bytes that wait for their event to become complete.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }
}

fn parse(block: &str) -> Option<SseEvent> {
    let (mut name, mut data) = ("message", Vec::new());
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value,
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty()).then(|| SseEvent { name: name.to_string(), data: data.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes are cut, the same events come out.
    #[track_caller]
    fn check(stream: &str, expected: &[(&str, &str)]) {
        for cut in 1..=stream.len() {
            let mut reader = SseReader::default();
            let events: Vec<_> = stream.as_bytes().chunks(cut).flat_map(|part| reader.push(part)).collect();
            let found: Vec<_> =
                events.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            assert_eq!(found, expected, "cut every {cut} bytes");
        }
    }

    #[test]
    fn events_survive_any_cut() {
        check("event: delta\ndata: {\"text\":\"é\"}\n\n", &[("delta", "{\"text\":\"é\"}")]);
        check("event: a\r\ndata:1\r\n\r\nevent: b\r\ndata: 2\r\n\r\n", &[("a", "1"), ("b", "2")]);
        check("data: one\ndata: two\n\n", &[("message", "one\ntwo")]);
    }

    #[test]
    fn comments_and_unfinished_events_are_not_events() {
        check(": keep-alive\n\ndata: x\n\n", &[("message", "x")]);
        check("data: x\n\ndata: cut off", &[("message", "x")]);
    }
}
