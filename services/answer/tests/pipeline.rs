//! Does the whole path hold: real index, real engine loop, scripted model?
// The whole file is a test, its helpers too.
#![allow(clippy::unwrap_used)]

use answer::{
    AnswerError, AnswerEvent, AnswerSettings, AnswerStream, Answerer, FinalReport, NOTHING_FOUND, Question,
    REFUSAL, Source,
};
use budgets::{Clock, Deadline, Limits, ManualClock, Stage, SystemClock};
use engine::{ByteCodec, ChatMessage, Engine, EngineModel, FinishReason, Policy, Role, Sampling, Tenant};
use index::{Embed, EmbedError, Index, OwnedFilter};
use sched::{FakeFailure, FakeLog, FakeRunner, RunError, Runner, RunnerLimits, StepOutput, StepPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const RUNNER: RunnerLimits = RunnerLimits {
    block_tokens: 16,
    blocks_total: 2_048,
    context_tokens_max: 8_192,
    vocab_tokens: ByteCodec::VOCAB_TOKENS,
};

const DOCUMENTS: [(&str, &str); 3] = [
    (
        "tower.md",
        "# Eiffel Tower\n\nThe Eiffel Tower was completed in 1889 in Paris and is 330 metres tall.\n",
    ),
    ("cache.md", "# KV cache\n\nThe KV cache grows with each token of the prompt and of the answer.\n"),
    ("bread.md", "# Baking bread\n\nBread is baked from flour, water, yeast and salt in a hot oven.\n"),
];

/// Counts letters: deterministic, and close for texts that share words. Can be told to fail or to take its time.
struct LetterEmbed {
    failing: AtomicBool,
    slow: Option<(Arc<ManualClock>, Duration)>,
}

impl Embed for LetterEmbed {
    fn id(&self) -> &'static str {
        "letters"
    }

    fn dimensions(&self) -> usize {
        512
    }

    fn count_tokens(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(EmbedError("scripted".to_string()));
        }
        if let Some((clock, took)) = &self.slow {
            clock.advance(*took);
        }
        Ok(texts.iter().map(|text| words_as_vector(text)).collect())
    }
}

/// Long words hashed into places, so that unrelated texts are nearly at right angles.
fn words_as_vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0f32; 512];
    vector[0] = 0.01;
    for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3) {
        let place = word.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        vector[place as usize % 512] += 1.0;
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter().map(|value| value / length).collect()
}

/// A runner for whose steps the clock moves.
struct Ticking {
    inner: FakeRunner,
    clock: Arc<ManualClock>,
    step: Duration,
}

impl Runner for Ticking {
    fn limits(&self) -> RunnerLimits {
        self.inner.limits()
    }

    fn run(&mut self, plan: &StepPlan) -> Result<StepOutput, RunError> {
        self.clock.advance(self.step);
        self.inner.run(plan)
    }
}

struct Service {
    answerer: Answerer,
    engine: Engine,
    log: FakeLog,
    embed: Arc<LetterEmbed>,
    clock: Arc<dyn Clock>,
    _dir: tempfile::TempDir,
}

/// What a test may change.
struct Setup {
    reply: &'static str,
    failing_at: Option<usize>,
    clock: Option<Arc<ManualClock>>,
    step: Duration,
    embed: Duration,
    limits: Limits,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            reply: "The tower was completed in 1889.",
            failing_at: None,
            clock: None,
            step: Duration::ZERO,
            embed: Duration::ZERO,
            limits: Limits::default(),
        }
    }
}

fn service(setup: Setup) -> Service {
    let dir = tempfile::tempdir().unwrap();
    let documents = dir.path().join("documents");
    std::fs::create_dir(&documents).unwrap();
    for (name, text) in DOCUMENTS {
        std::fs::write(documents.join(name), text).unwrap();
    }
    let data = dir.path().join("data");
    let quick = LetterEmbed { failing: AtomicBool::new(false), slow: None };
    index::build(&[documents], &data, &quick, &setup.limits, &mut |_| {}).unwrap();
    let slow = setup.clock.clone().map(|clock| (clock, setup.embed));
    let embed = Arc::new(LetterEmbed { failing: AtomicBool::new(false), slow });
    let clock: Arc<dyn Clock> = match &setup.clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Clock>,
        None => Arc::new(SystemClock::default()),
    };
    let index =
        Index::open(&data, Arc::clone(&embed) as Arc<dyn Embed>, Arc::clone(&clock), &setup.limits).unwrap();
    let reply: Vec<u32> = setup.reply.bytes().map(u32::from).collect();
    let mut runner = FakeRunner::replying(RUNNER, ByteCodec::END, move |_| reply.clone());
    if let Some(step) = setup.failing_at {
        runner = runner.failing_at(step, FakeFailure::Error(RunError::Device("scripted".to_string())));
    }
    let log = runner.log();
    let runner: Box<dyn Runner> = match setup.clock {
        Some(clock) => Box::new(Ticking { inner: runner, clock, step: setup.step }),
        None => Box::new(runner),
    };
    let codec = Arc::new(ByteCodec::new());
    let model = EngineModel { id: "scripted".to_string(), runner, codec, calibration: Duration::ZERO };
    let engine = Engine::start(model, Arc::clone(&clock), &setup.limits, &Policy::default()).unwrap();
    let settings = AnswerSettings::default();
    let answerer = Answerer::new(engine.clone(), Arc::new(index), Arc::clone(&clock), setup.limits, settings);
    Service { answerer, engine, log, embed, clock, _dir: dir }
}

impl Service {
    fn question(&self, text: &str) -> Question {
        Question {
            text: text.to_string(),
            conversation: Vec::new(),
            filter: OwnedFilter::default(),
            passages_max: 3,
            output_tokens_max: 200,
            sampling: Sampling::default(),
            arrived: self.clock.now(),
            first_token_deadline: Deadline::NEVER,
            deadline: Deadline::NEVER,
            tpot: None,
            tenant: Tenant::default(),
        }
    }

    fn within(&self, text: &str, millis: u64) -> Question {
        let deadline = Deadline::after(self.clock.now(), Duration::from_millis(millis));
        Question { deadline, ..self.question(text) }
    }

    /// The prompt of the first request, read back from what the runner was asked to compute.
    fn prompt(&self) -> String {
        let first = self.log.plans();
        let rows = first.iter().flat_map(|plan| &plan.rows);
        let prefill = rows.filter(|row| row.draw.as_ref().is_none_or(|draw| draw.index == 0));
        let bytes =
            prefill.flat_map(|row| &row.tokens).filter_map(|token| u8::try_from(*token).ok()).collect();
        String::from_utf8(bytes).unwrap()
    }

    /// Waits until the engine holds nothing any more.
    async fn at_rest(&self) {
        for _ in 0..500 {
            let stats = self.engine.stats();
            if stats.running == 0 && stats.waiting == 0 && stats.blocks_held == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the engine still holds blocks: {:?}", self.engine.stats());
    }
}

const QUESTION: &str = "When was the Eiffel Tower in Paris completed?";

/// Reads a stream to its end and checks what every stream promises.
async fn read(mut stream: AnswerStream) -> (Vec<Source>, Result<FinalReport, AnswerError>) {
    let mut found = None;
    let mut shown = String::new();
    let mut last = None;
    while let Some(event) = stream.next().await {
        assert!(last.is_none(), "an event after the last: {event:?}");
        match event {
            AnswerEvent::Sources(sources) => {
                assert!(found.is_none() && shown.is_empty(), "sources come first and once");
                found = Some(sources);
            }
            AnswerEvent::Delta(text) => {
                assert!(found.is_some() && !text.is_empty());
                shown.push_str(&text);
            }
            AnswerEvent::Final(report) => last = Some(Ok(*report)),
            AnswerEvent::Failed(error) => last = Some(Err(error)),
        }
    }
    let last = last.expect("a stream has an end");
    if let Ok(report) = &last {
        assert_eq!(shown, report.text);
        assert!(report.time_to_sources <= report.total);
        assert!(
            report.first_token.is_none_or(|first| report.time_to_sources <= first && first <= report.total)
        );
        for (place, source) in found.iter().flatten().enumerate() {
            assert_eq!(source.number, place + 1);
        }
    }
    (found.unwrap_or_default(), last)
}

#[tokio::test]
async fn an_answer_streams_with_checked_citations_and_its_times() {
    let setup = Setup {
        reply: "It was completed in 1889 in Paris. The tower is 330 metres tall [1][8]. Bye [2].",
        ..Setup::default()
    };
    let service = service(setup);
    let (sources, report) = read(service.answerer.ask(service.question(QUESTION)).unwrap()).await;
    let report = report.unwrap();
    assert_eq!(sources[0].document_id, "tower.md");
    assert_eq!((sources[0].title.as_str(), sources[0].span.start_line), ("Eiffel Tower", 3));
    assert!(
        report.text.starts_with("It was completed in 1889 in Paris [1]. The tower is 330 metres tall [1]."),
        "{}",
        report.text
    );
    assert_eq!((report.citations_added, report.sentences[0].attributed), (1, true));
    assert!(report.citations_removed >= 1 && report.grounded && report.degraded.is_empty(), "{report:?}");
    assert_eq!((report.finish, report.model.as_str()), (FinishReason::EndOfText, "scripted"));
    assert_eq!(report.usage.completion_tokens, 81);
    for stage in Stage::ALL {
        assert!(report.timeline.get(stage).is_some(), "{} is missing", stage.name());
    }
    let prompt = service.prompt();
    assert!(
        prompt.contains("<passage id=\"1\" title=\"Eiffel Tower\">\nThe Eiffel Tower was completed"),
        "{prompt}"
    );
    service.at_rest().await;
}

#[tokio::test]
async fn when_nothing_bears_on_the_question_the_model_is_not_asked() {
    let service = service(Setup::default());
    let (sources, report) =
        read(service.answerer.ask(service.question("Who won yesterday's chess final?")).unwrap()).await;
    let report = report.unwrap();
    assert_eq!((sources.len(), report.text.as_str(), report.grounded), (0, NOTHING_FOUND, false));
    assert_eq!((service.log.steps(), report.usage.completion_tokens), (0, 0));
}

#[tokio::test]
async fn a_refusal_of_the_model_is_not_grounded() {
    let service = service(Setup { reply: REFUSAL, ..Setup::default() });
    let report = read(service.answerer.ask(service.question(QUESTION)).unwrap()).await.1.unwrap();
    assert_eq!((report.text.as_str(), report.grounded), (REFUSAL, false));
}

#[tokio::test]
async fn a_follow_up_is_searched_with_the_question_before_it() {
    let service = service(Setup { reply: "330 metres.", ..Setup::default() });
    let say = |role, content: &str| ChatMessage { role, content: content.to_string() };
    let conversation = vec![say(Role::User, QUESTION), say(Role::Assistant, "In 1889 [2].")];
    let question = Question { conversation, ..service.question("And how tall is it?") };
    let (sources, report) = read(service.answerer.ask(question).unwrap()).await;
    assert_eq!(
        (sources[0].document_id.as_str(), report.unwrap().text.as_str()),
        ("tower.md", "330 metres [1].")
    );
    let prompt = service.prompt();
    let tail = &prompt[prompt.find("</passages>").unwrap()..];
    assert!(
        tail.starts_with(&format!("</passages>\n\n{QUESTION}In 1889.Question: And how tall is it?")),
        "{tail}"
    );
}

#[tokio::test]
async fn less_fits_into_a_small_prompt_and_the_report_says_so() {
    let limits = Limits { prompt_tokens_max: 700, ..Limits::default() };
    let service = service(Setup { limits, ..Setup::default() });
    let text = "How do the Eiffel Tower, the KV cache and baking bread differ?";
    let (sources, report) = read(service.answerer.ask(service.question(text)).unwrap()).await;
    let report = report.unwrap();
    assert!(report.degraded[0].starts_with("fewer passages: "), "{:?}", report.degraded);
    assert!(!sources.is_empty() && sources.len() < 3 && report.usage.prompt_tokens <= 700);
}

#[tokio::test]
async fn without_vectors_the_answer_is_degraded() {
    let service = service(Setup::default());
    service.embed.failing.store(true, Ordering::SeqCst);
    let report = read(service.answerer.ask(service.question(QUESTION)).unwrap()).await.1.unwrap();
    assert_eq!(report.degraded, ["lexical search only"]);
    assert!(report.grounded);
}

#[tokio::test]
async fn a_deadline_ends_each_stage() {
    let setup = |step, embed| Setup {
        clock: Some(Arc::new(ManualClock::default())),
        step: Duration::from_millis(step),
        embed: Duration::from_millis(embed),
        ..Setup::default()
    };
    // The search alone takes longer than the whole request may.
    let slow = service(setup(0, 5_000));
    let (_, end) = read(slow.answerer.ask(slow.within(QUESTION, 1_000)).unwrap()).await;
    assert!(matches!(end, Err(AnswerError::Expired { stage }) if stage <= Stage::Fuse), "{end:?}");
    // The prompt takes several steps, of which the first passes the deadline.
    let slow = service(setup(2_000, 0));
    let (sources, end) = read(slow.answerer.ask(slow.within(QUESTION, 1_000)).unwrap()).await;
    assert_eq!(
        (sources.is_empty(), end.unwrap_err()),
        (false, AnswerError::Expired { stage: Stage::Prefill })
    );
    slow.at_rest().await;
    // Some tokens come, then the deadline: they are the answer.
    let slow = service(setup(100, 0));
    let (_, end) = read(slow.answerer.ask(slow.within(QUESTION, 2_000)).unwrap()).await;
    let report = end.unwrap();
    assert_eq!(report.finish, FinishReason::ExpiredInDecode);
    assert!(
        "The tower was completed in 1889.".starts_with(&report.text) && report.text.len() > 3,
        "{}",
        report.text
    );
    slow.at_rest().await;
}

#[tokio::test]
async fn a_passed_deadline_is_refused_at_the_door() {
    let service = service(Setup::default());
    let late = Question { deadline: Deadline::at(service.clock.now()), ..service.question(QUESTION) };
    let refused = service.answerer.ask(late).err();
    assert_eq!(refused, Some(AnswerError::Expired { stage: Stage::Admit }));
}

#[tokio::test]
async fn dropping_the_stream_frees_the_engine() {
    let service = service(Setup { reply: "a long answer that nobody reads", ..Setup::default() });
    for events in 0..4 {
        let mut stream = service.answerer.ask(service.question(QUESTION)).unwrap();
        for _ in 0..events {
            stream.next().await;
        }
        drop(stream);
        service.at_rest().await;
    }
}

#[tokio::test]
async fn only_so_many_questions_are_under_way() {
    let limits = Limits { queue_requests_max: 1, running_sequences_max: 1, ..Limits::default() };
    let service = service(Setup { limits, ..Setup::default() });
    let first = service.answerer.ask(service.question(QUESTION)).unwrap();
    let second = service.answerer.ask(service.question(QUESTION)).unwrap();
    assert_eq!(
        service.answerer.ask(service.question(QUESTION)).err(),
        Some(AnswerError::Busy { in_flight: 2 })
    );
    drop(first);
    let third = service.answerer.ask(service.question(QUESTION)).unwrap();
    assert!(read(second).await.1.is_ok() && read(third).await.1.is_ok());
}

#[tokio::test]
async fn a_failing_step_ends_the_stream_with_an_error() {
    let service = service(Setup { failing_at: Some(1), ..Setup::default() });
    let (_, end) = read(service.answerer.ask(service.question(QUESTION)).unwrap()).await;
    assert!(matches!(&end, Err(AnswerError::Generation(message)) if message.contains("scripted")), "{end:?}");
    service.at_rest().await;
}

#[tokio::test]
async fn a_search_alone_is_checked_and_answered() {
    let service = service(Setup::default());
    let all = OwnedFilter::default();
    let result = service.answerer.search("baking bread", &all, 1, Deadline::NEVER).await.unwrap();
    assert_eq!((result.hits.len(), result.hits[0].passage.document_id.as_str()), (1, "bread.md"));
    let refused = service.answerer.search("?!", &all, 1, Deadline::NEVER).await;
    assert_eq!(refused.unwrap_err(), AnswerError::EmptyQuestion);
    let refused = service.answerer.search("bread", &all, 101, Deadline::NEVER).await;
    assert!(matches!(refused.unwrap_err(), AnswerError::InvalidSetting(_)));
}
