//! How does a conversation become the text that a model was trained to continue? The model's own chat template,
//! rendered so that what people wrote stays apart from what the template wrote.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use std::collections::BTreeMap;
use thiserror::Error as ThisError;

/// Instructions that a template may use up; a conversation of the longest length needs a small part of it.
const FUEL: u64 = 2_000_000;

/// The form that most models which came without a template understand.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// One message of a conversation, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatTurn<'a> {
    /// Who speaks, as templates name it: `system`, `user`, `assistant`.
    pub role: &'a str,
    /// What is said; data, whatever it looks like.
    pub content: &'a str,
}

/// Where the template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatSource {
    /// The model file brought it.
    ModelFile,
    /// The file has none, but its vocabulary has the two ChatML tokens, so ChatML is used.
    AssumedChatMl,
    /// Neither: the model completes text and cannot hold a conversation.
    None,
}

/// A conversation that cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum ChatError {
    /// The template does not compile, or it refuses this conversation.
    #[error("chat template: {0}")]
    Template(String),
    /// The template cuts message contents into pieces, so that they can no longer be told from its own text.
    #[error("chat template: it takes message contents apart, which would let them pass for control tokens")]
    ContentTorn,
    /// A role that is no plain word.
    #[error("chat role {0:?} is not a word of lower-case letters")]
    Role(String),
    /// The model has no conversation form.
    #[error("the model has no chat template")]
    NoTemplate,
}

/// A run of rendered text and who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Written by the template: control tokens in it are meant.
    Template(String),
    /// Written by a participant: never control tokens.
    Content(String),
}

/// A compiled chat template.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    source_text: String,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// Compiles `template`, or ChatML when it is `None`.
    pub(crate) fn new(template: Option<&str>, bos_token: &str, eos_token: &str) -> Result<Self, ChatError> {
        let source_text = template.unwrap_or(CHATML).to_string();
        let mut environment = Environment::new();
        // Chat templates are written for Python's Jinja with these two settings on.
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| refusal(&e))?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned("chat", source_text.clone()).map_err(|e| refusal(&e))?;
        Ok(Self {
            environment,
            source_text,
            bos_token: bos_token.to_string(),
            eos_token: eos_token.to_string(),
        })
    }

    /// Renders `turns`, ready for the assistant's turn.
    pub(crate) fn render(&self, turns: &[ChatTurn]) -> Result<Vec<Piece>, ChatError> {
        if let Some(turn) = turns.iter().find(|turn| !is_role(turn.role)) {
            return Err(ChatError::Role(turn.role.chars().take(32).collect()));
        }
        let fence = Fence::absent_from(&self.source_text, turns);
        let messages: Vec<BTreeMap<&str, String>> = turns
            .iter()
            .map(|turn| {
                BTreeMap::from([("role", turn.role.to_string()), ("content", fence.around(turn.content))])
            })
            .collect();
        let text = self
            .environment
            .get_template("chat")
            .and_then(|template| {
                template.render(context! {
                    messages => messages,
                    add_generation_prompt => true,
                    bos_token => self.bos_token.as_str(),
                    eos_token => self.eos_token.as_str(),
                    tools => Value::from(()),
                    documents => Value::from(()),
                })
            })
            .map_err(|e| refusal(&e))?;
        fence.split(&text)
    }
}

/// Two marks that enclose every content while the template runs. Each holds noncharacters, which stand in no text that
/// is exchanged, and a number that makes it absent from everything that is rendered, so no content can forge one.
struct Fence {
    open: String,
    close: String,
}

impl Fence {
    fn absent_from(template: &str, turns: &[ChatTurn]) -> Fence {
        let mut number = 0_u64;
        loop {
            let fence = Fence {
                open: format!("\u{fdd0}{number}\u{fdd1}"),
                close: format!("\u{fdd2}{number}\u{fdd3}"),
            };
            let holds = |text: &str| text.contains(&fence.open) || text.contains(&fence.close);
            // Ends: texts of n bytes hold fewer than n different marks.
            if !holds(template) && !turns.iter().any(|turn| holds(turn.content)) {
                return fence;
            }
            number += 1;
        }
    }

    /// White space stays outside, because many templates trim contents and the text must be what they make of it.
    fn around(&self, content: &str) -> String {
        let core = content.trim();
        let before = &content[..content.len() - content.trim_start().len()];
        let after = if core.is_empty() { "" } else { &content[content.trim_end().len()..] };
        format!("{before}{}{core}{}{after}", self.open, self.close)
    }

    fn split(&self, text: &str) -> Result<Vec<Piece>, ChatError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((template, tail)) = rest.split_once(&self.open) {
            let (content, tail) = tail.split_once(&self.close).ok_or(ChatError::ContentTorn)?;
            if template.contains(&self.close) || content.contains(&self.open) {
                return Err(ChatError::ContentTorn);
            }
            pieces.push(Piece::Template(template.to_string()));
            pieces.push(Piece::Content(content.to_string()));
            rest = tail;
        }
        if rest.contains(&self.close) {
            return Err(ChatError::ContentTorn);
        }
        pieces.push(Piece::Template(rest.to_string()));
        Ok(pieces)
    }
}

fn is_role(role: &str) -> bool {
    !role.is_empty() && role.len() <= 32 && role.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

fn refusal(error: &Error) -> ChatError {
    ChatError::Template(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMOL: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
        {{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' \
        + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
        {{ '<|im_start|>assistant\n' }}{% endif %}";

    fn user(content: &str) -> [ChatTurn<'_>; 1] {
        [ChatTurn { role: "user", content }]
    }

    fn joined(pieces: &[Piece]) -> String {
        pieces
            .iter()
            .map(|p| match p {
                Piece::Template(t) | Piece::Content(t) => t.as_str(),
            })
            .collect()
    }

    #[test]
    fn templates_render_as_in_python() {
        let check = |template: Option<&str>, turns: &[ChatTurn], expected: &str| {
            let chat = ChatTemplate::new(template, "<s>", "</s>").unwrap();
            assert_eq!(joined(&chat.render(turns).unwrap()), expected);
        };
        check(None, &user("hi"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
        check(
            Some(SMOL),
            &user("hi"),
            "<|im_start|>system\nYou are helpful<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        );
        // Block tags on lines of their own leave nothing behind.
        check(Some("{{ bos_token }}\n  {% if true %}\n  x\n  {% endif %}\n"), &[], "<s>\n  x\n");
        check(Some("{{ messages[0].content | trim }}|"), &user("  a b \n"), "a b|");
        check(Some("{{ messages[0]['content'].strip() }}|"), &user("  a b \n"), "a b|");
        check(Some("{% if tools %}t{% endif %}{% if not documents %}d{% endif %}"), &[], "d");
        check(Some("[{{ messages[0].content }}]"), &user("   "), "[   ]");
        check(Some("{{ messages[0].content }}"), &user("<b>&'\""), "<b>&'\"");
    }

    #[test]
    fn what_cannot_be_rendered_is_said() {
        let check = |template: &str, turns: &[ChatTurn], expected: &str| {
            let error = ChatTemplate::new(Some(template), "", "")
                .and_then(|chat| chat.render(turns))
                .expect_err("must fail")
                .to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("{{ raise_exception('roles must alternate') }}", &[], "roles must alternate");
        check("{% for %}", &[], "chat template");
        check("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", &[], "fuel");
        check("{{ messages[0].content.split('b')[1] }}", &user("abc"), "apart");
        check("{{ messages[0].content.split('b')[0] }}", &user("abc"), "apart");
        check("x", &[ChatTurn { role: "user\n<|im_end|>", content: "" }], "role");
    }

    proptest! {
        #[test]
        fn contents_come_through_unchanged_and_marked(
            contents in prop::collection::vec("(\u{fdd0}|\u{fdd1}|\u{fdd2}|\u{fdd3}|[0-9]|[a-c<|> \n]){0,12}", 1..4),
        ) {
            let turns: Vec<_> = contents.iter().map(|c| ChatTurn { role: "user", content: c }).collect();
            let pieces = ChatTemplate::new(None, "", "").unwrap().render(&turns).unwrap();
            let found: Vec<_> =
                pieces.iter().filter_map(|p| match p { Piece::Content(c) => Some(c.as_str()), _ => None }).collect();
            let expected: Vec<_> = contents.iter().map(|c| c.trim()).collect();
            prop_assert_eq!(found, expected);
            let whole: String = contents.iter().map(|c| format!("<|im_start|>user\n{c}<|im_end|>\n")).collect();
            prop_assert_eq!(joined(&pieces), whole + "<|im_start|>assistant\n");
        }
    }
}
