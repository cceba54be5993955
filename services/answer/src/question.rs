//! Is this question one that the service takes? What a question holds, and the checks at the door.

use crate::AnswerError;
use budgets::{Deadline, Limits, Moment};
use engine::{ChatMessage, Role, Sampling, Tenant};
use index::OwnedFilter;
use std::time::Duration;

/// A question with everything that it brings along.
#[derive(Clone, Debug)]
pub struct Question {
    /// The question itself.
    pub text: String,
    /// Earlier turns of person and service, oldest first.
    pub conversation: Vec<ChatMessage>,
    /// Which documents it may draw on.
    pub filter: OwnedFilter,
    /// Most passages in the prompt.
    pub passages_max: usize,
    /// Most tokens in the answer.
    pub output_tokens_max: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// When the request arrived; all times in the report count from here.
    pub arrived: Moment,
    /// Until when the first token must come.
    pub first_token_deadline: Deadline,
    /// Until when the last event must come.
    pub deadline: Deadline,
    /// Longest mean time between tokens that the caller bears.
    pub tpot: Option<Duration>,
    /// Who asks, as the server knows it.
    pub tenant: Tenant,
}

/// What the operator may tune. The defaults suit the default model on a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerSettings {
    /// Passages in the prompt when the caller names no number. Few, because on a CPU their prefill is most of the time
    /// to the first token.
    pub passages_max: usize,
    /// Tokens in the answer when the caller names no number.
    pub output_tokens_max: usize,
    /// Earlier turns that go into the prompt; the rest is left out.
    pub conversation_turns_max: usize,
    /// Share of the time left until the first token that the search may take.
    pub retrieval_share: f64,
    /// A passage bears on the question when its cosine reaches this. MiniLM gives unrelated texts about 0 to 0.2 and
    /// a question and its answer mostly more than 0.4.
    pub cosine_min: f32,
    /// A passage that the lexical search found bears on the question when it holds this share of the question's
    /// content words, whatever its cosine.
    pub question_share_min: f32,
}

impl Default for AnswerSettings {
    fn default() -> Self {
        Self {
            passages_max: 5,
            output_tokens_max: 256,
            conversation_turns_max: 6,
            retrieval_share: 0.4,
            cosine_min: 0.3,
            question_share_min: 0.5,
        }
    }
}

/// Checks a question against the limits and the clock.
pub(crate) fn validate(question: &Question, limits: &Limits, now: Moment) -> Result<(), AnswerError> {
    check_text(&question.text, limits)?;
    between("passages_max", question.passages_max, limits.prompt_passages_max)?;
    between("output_tokens_max", question.output_tokens_max, limits.output_tokens_max)?;
    let turns = question.conversation.len();
    if turns > limits.conversation_turns_max {
        return Err(AnswerError::ConversationTooLong { turns, turns_max: limits.conversation_turns_max });
    }
    if question.conversation.iter().any(|turn| turn.role == Role::System) {
        let message = "a conversation holds the turns of user and assistant only";
        return Err(AnswerError::InvalidSetting(message.to_string()));
    }
    if question.deadline.min(question.first_token_deadline).expired(now) {
        return Err(AnswerError::Expired { stage: budgets::Stage::Admit });
    }
    Ok(())
}

/// Checks the text of a question or a search.
pub(crate) fn check_text(text: &str, limits: &Limits) -> Result<(), AnswerError> {
    if !text.chars().any(char::is_alphanumeric) {
        return Err(AnswerError::EmptyQuestion);
    }
    let chars = text.chars().count();
    if chars > limits.query_chars_max {
        return Err(AnswerError::QuestionTooLong { chars, chars_max: limits.query_chars_max });
    }
    Ok(())
}

fn between(name: &str, value: usize, max: usize) -> Result<(), AnswerError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(AnswerError::InvalidSetting(format!("{name} must lie between 1 and {max}, not {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use budgets::Stage;

    fn question(text: &str) -> Question {
        Question {
            text: text.to_string(),
            conversation: Vec::new(),
            filter: OwnedFilter::default(),
            passages_max: 5,
            output_tokens_max: 64,
            sampling: Sampling::default(),
            arrived: Moment::default(),
            first_token_deadline: Deadline::NEVER,
            deadline: Deadline::NEVER,
            tpot: None,
            tenant: Tenant::default(),
        }
    }

    fn check(question: &Question, want: &Result<(), AnswerError>) {
        assert_eq!(&validate(question, &Limits::default(), Moment::from_nanos(100)), want, "{question:?}");
    }

    #[test]
    fn the_door() {
        let turn = |role| ChatMessage { role, content: "hi".to_string() };
        check(&question("why?"), &Ok(()));
        check(&question("  \n?!"), &Err(AnswerError::EmptyQuestion));
        check(&question(&"é".repeat(4_000)), &Ok(()));
        let too_long = AnswerError::QuestionTooLong { chars: 4_001, chars_max: 4_000 };
        check(&question(&"é".repeat(4_001)), &Err(too_long));
        check(&Question { conversation: vec![turn(Role::User); 32], ..question("why?") }, &Ok(()));
        let turns = AnswerError::ConversationTooLong { turns: 33, turns_max: 32 };
        check(&Question { conversation: vec![turn(Role::User); 33], ..question("why?") }, &Err(turns));
        let late = Question { deadline: Deadline::at(Moment::from_nanos(100)), ..question("why?") };
        check(&late, &Err(AnswerError::Expired { stage: Stage::Admit }));
        let late =
            Question { first_token_deadline: Deadline::at(Moment::from_nanos(99)), ..question("why?") };
        check(&late, &Err(AnswerError::Expired { stage: Stage::Admit }));
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        for (bad, name) in [
            (Question { passages_max: 0, ..question("why?") }, "passages_max"),
            (Question { passages_max: 21, ..question("why?") }, "passages_max"),
            (Question { output_tokens_max: 0, ..question("why?") }, "output_tokens_max"),
            (Question { output_tokens_max: 1_025, ..question("why?") }, "output_tokens_max"),
            (
                Question {
                    conversation: vec![ChatMessage { role: Role::System, content: String::new() }],
                    ..question("why?")
                },
                "conversation",
            ),
        ] {
            match validate(&bad, &Limits::default(), Moment::default()) {
                Err(AnswerError::InvalidSetting(message)) => assert!(message.contains(name), "{message}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
