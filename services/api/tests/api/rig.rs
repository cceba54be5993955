//! How is the API tested without weights? A scripted runner, a byte tokenizer and a bag-of-words embedder behind the
//! real engine, index, answer path and router.

// The tests and the example server share this file, and neither uses all of it.
#![allow(dead_code)]

use answer::{AnswerSettings, Answerer};
use api::{Access, ApiState, Writes};
use budgets::{Limits, SystemClock};
use engine::{
    ByteCodec, ChatMessage, Codec, CodecError, Constraint, Engine, EngineModel, Grammar, Policy, TokenId,
};
use index::{Embed, EmbedError, Index};
use sched::{FakeFailure, FakeRunner, RunError, RunnerLimits};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// What the scripted model is called.
pub const MODEL: &str = "scripted";

/// What a rig is made of.
pub struct Parts {
    /// Documents.
    pub documents: PathBuf,
    /// How long the runner takes for each token that it draws.
    pub pace: Duration,
    /// All bounds.
    pub limits: Limits,
    /// The engine's step, from 0, at which the device is lost.
    pub failing_at: Option<usize>,
    /// Who may do what.
    pub access: Access,
}

/// A service with a scripted model.
pub struct Rig {
    /// What `api::router` and `api::serve` take.
    pub state: ApiState,
    _data: TempDir,
}

/// Bounds for a tokenizer whose tokens are bytes.
pub fn limits() -> Limits {
    Limits { prompt_tokens_max: 24_000, step_prefill_tokens_max: 8_192, ..Limits::default() }
}

impl Rig {
    /// Indexes the documents and starts an engine.
    pub fn new(parts: &Parts) -> Rig {
        let clock = Arc::new(SystemClock::default());
        let runner_limits = RunnerLimits {
            block_tokens: 16,
            blocks_total: 8_192,
            context_tokens_max: 32_768,
            vocab_tokens: ByteCodec::VOCAB_TOKENS,
        };
        let pace = parts.pace;
        let runner = FakeRunner::replying(runner_limits, ByteCodec::END, move |prompt| {
            std::thread::sleep(pace);
            reply(prompt)
        });
        let lost = || FakeFailure::Error(RunError::Device("lost on purpose".to_string()));
        let runner =
            parts.failing_at.into_iter().fold(runner, |runner, step| runner.failing_at(step, lost()));
        let codec: Arc<dyn Codec> = Arc::new(TripCodec(ByteCodec::new()));
        let runner = Box::new(runner);
        let model = EngineModel { id: MODEL.to_string(), runner, codec, calibration: Duration::ZERO };
        let policy = Policy::default();
        let engine = Engine::start(model, clock.clone(), &parts.limits, &policy).expect("the engine starts");
        let data = TempDir::new().expect("a folder");
        let embed = Arc::new(WordEmbed);
        index::build(
            std::slice::from_ref(&parts.documents),
            data.path(),
            &*embed,
            &parts.limits,
            &mut |_| {},
        )
        .expect("the documents are indexed");
        let open = if parts.access.may_write() { Index::open_live } else { Index::open };
        let index = open(data.path(), embed, clock.clone(), &parts.limits).expect("the index opens");
        let index = Arc::new(index);
        let answerer = Answerer::new(
            engine.clone(),
            Arc::clone(&index),
            clock.clone(),
            parts.limits.clone(),
            AnswerSettings { output_tokens_max: 1_024, ..AnswerSettings::default() },
        );
        let state = ApiState {
            answerer,
            engine,
            index,
            clock,
            access: parts.access.clone(),
            limits: parts.limits.clone(),
            started_unix_s: 1_700_000_000,
            sample_questions: vec!["What is the KV cache?".to_string()],
            drain: Duration::from_secs(5),
        };
        Rig { state, _data: data }
    }

    /// Three small documents.
    pub fn with(pace: Duration, limits: Limits) -> Rig {
        Rig::over_documents(pace, limits, None, Access::Open(Writes::None))
    }

    /// Three small documents and a device that is lost in one step.
    pub fn failing_at(step: usize) -> Rig {
        Rig::over_documents(Duration::ZERO, limits(), Some(step), Access::Open(Writes::None))
    }

    fn over_documents(pace: Duration, limits: Limits, failing_at: Option<usize>, access: Access) -> Rig {
        let documents = TempDir::new().expect("a folder");
        for (name, text) in DOCUMENTS {
            std::fs::write(documents.path().join(name), text).expect("a document is written");
        }
        Rig::new(&Parts { documents: documents.path().to_path_buf(), pace, limits, failing_at, access })
    }

    /// Three small documents in an index that takes more.
    pub fn live(access: Access) -> Rig {
        Rig::over_documents(Duration::ZERO, limits(), None, access)
    }

    /// Three small documents and a model that takes no time.
    pub fn quick() -> Rig {
        Rig::with(Duration::ZERO, limits())
    }
}

const DOCUMENTS: [(&str, &str); 3] = [
    (
        "cache.md",
        "# The KV cache\n\nThe KV cache keeps the keys and values of earlier tokens. It grows with every token of the \
         sequence.\n",
    ),
    (
        "batching.md",
        "# Continuous batching\n\nContinuous batching lets requests join and leave the batch at every step. Static \
         batching waits for the slowest request.\n",
    ),
    (
        "speculation.md",
        "# Speculative decoding\n\nSpeculative decoding pays when the device has idle arithmetic. A draft model \
         proposes tokens.\n",
    ),
];

/// Answers from passages with their first sentences, cited, and one citation that names nothing; without passages it
/// says the last message again.
fn reply(prompt: &[TokenId]) -> Vec<TokenId> {
    let text = text_of(prompt);
    let passages = text.rfind("<passages>").and_then(|from| text[from..].split("</passages>").next());
    let said = match passages {
        Some(passages) => quote(passages),
        None => {
            let opens = ByteCodec::opens(engine::Role::User);
            let from = prompt.iter().rposition(|token| *token == opens).map_or(0, |at| at + 1);
            text_of(&prompt[from..])
        }
    };
    said.bytes().map(TokenId::from).collect()
}

fn text_of(tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Depends as little as it can on the wording of the prompt: passage n stands between a line that opens an element
/// with `id="n"` and one that closes it.
fn quote(passages: &str) -> String {
    let mut bodies: Vec<String> = Vec::new();
    for line in passages.lines() {
        if line.contains(&format!("id=\"{}\"", bodies.len() + 1)) {
            bodies.push(String::new());
        } else if line.starts_with("</") {
            continue;
        } else if let Some(body) = bodies.last_mut() {
            body.push_str(line);
            body.push(' ');
        }
    }
    let mut answer = String::new();
    for (place, body) in bodies.iter().take(3).enumerate() {
        let sentence = body.split_inclusive(". ").next().unwrap_or_default().trim().trim_end_matches('.');
        answer.push_str(&format!("{sentence} [{}]. ", place + 1));
    }
    answer.push_str("Nobody said this [9].");
    answer
}

/// Panics on a word that no document has, to see what a defect in a lower floor does.
struct TripCodec(ByteCodec);

impl Codec for TripCodec {
    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.0.encode(text)
    }

    fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, CodecError> {
        assert!(!messages.iter().any(|message| message.content.contains("tripwire")), "tripped on purpose");
        self.0.encode_chat(messages)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.0.token_bytes(token)
    }

    fn end_tokens(&self) -> &[TokenId] {
        self.0.end_tokens()
    }

    fn constrain(&self, constraint: &Constraint) -> Result<Box<dyn Grammar>, CodecError> {
        self.0.constrain(constraint)
    }
}

/// Each word adds to one of 256 directions: texts with the same words are close.
struct WordEmbed;

impl Embed for WordEmbed {
    fn id(&self) -> &str {
        "words-256"
    }

    fn dimensions(&self) -> usize {
        256
    }

    fn count_tokens(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| vector(text)).collect())
    }
}

fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0f32; 256];
    // Never the zero vector, which has no length to bring to one.
    vector[0] = 0.01;
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3) {
        let mut hasher = DefaultHasher::new();
        word.to_lowercase().hash(&mut hasher);
        vector[(hasher.finish() % 256) as usize] += 1.0;
    }
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|x| *x /= length);
    vector
}

/// The handbook of this repository, from inside this crate.
pub fn handbook() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/handbook")
}
