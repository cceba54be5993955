//! Which tokens may come next, so that the answer conforms? JSON schemas and regular expressions over a vocabulary.
//!
//! The grammars are llguidance's; its limits on the size of a grammar and on the work of a step stay on. What is
//! promised here: an end token is allowed exactly where the text so far conforms, and control tokens never are.

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use sched::{TokenId, TokenMask};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Longest schema or expression, in bytes: far above what one answer needs, far below what takes seconds to compile.
pub const CONSTRAINT_BYTES_MAX: usize = 64 << 10;

/// Tokens of more bytes are left out of grammars: no answer needs them and the token tree's depth is bounded.
const TOKEN_BYTES_MAX: usize = 256;

/// Bytes of all tokens together: the token tree takes no more nodes than that.
const VOCABULARY_BYTES_MAX: usize = 4_000_000;

/// States of one grammar's lexer, of 1 to 2 kB each.
const LEXER_STATES_MAX: usize = 50_000;

/// White space between the parts of a JSON text. Without a bound, a model that lost its thread goes on with blanks
/// until its last token; with this one, up to eight levels of indentation still come out as people write them.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,17}";

/// Constraints as messages name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    /// A JSON schema.
    JsonSchema,
    /// A regular expression.
    Regex,
}

impl fmt::Display for ConstraintKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConstraintKind::JsonSchema => "JSON schema",
            ConstraintKind::Regex => "regular expression",
        })
    }
}

/// A constraint that cannot be compiled, or no longer be followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrammarError {
    /// Too many bytes.
    #[error("the {kind} has {bytes} bytes and at most {CONSTRAINT_BYTES_MAX} are taken: shorten it")]
    TooLarge {
        /// What it is.
        kind: ConstraintKind,
        /// Its length.
        bytes: usize,
    },
    /// No JSON.
    #[error("the JSON schema is not JSON: {0}")]
    NotJson(String),
    /// JSON, but a number or the like.
    #[error("a JSON schema is a JSON object, or true")]
    NotASchema,
    /// Not in the syntax of regular expressions.
    #[error("the regular expression cannot be read: {0}")]
    NotARegex(String),
    /// It asks for what cannot be enforced token by token, contradicts itself, or compiles to something too large.
    #[error("the {kind} cannot be enforced: {reason}; change or leave out that part of it")]
    Unsupported {
        /// What it is.
        kind: ConstraintKind,
        /// What stands in the way.
        reason: String,
    },
    /// The model's vocabulary does not serve.
    #[error("this model cannot follow constraints: {0}")]
    Vocabulary(String),
    /// A token that the constraint excludes.
    #[error("token {0} does not conform to the constraint here")]
    NotAllowed(TokenId),
    /// Following the constraint takes more work or memory than a step may cost, or no token leads on.
    #[error("the constraint cannot be followed any further: {0}; make it simpler")]
    Stuck(String),
}

/// Compiles constraints for one vocabulary.
pub struct GrammarFactory {
    parsers: ParserFactory,
    ends: Arc<[TokenId]>,
    vocab_tokens: usize,
}

impl fmt::Debug for GrammarFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarFactory").field("vocab_tokens", &self.vocab_tokens).finish_non_exhaustive()
    }
}

impl GrammarFactory {
    /// Builds the tree of `words`, the bytes of each token in the order of their ids; a token without bytes stands in
    /// no text. `ends` are the tokens that end an answer. Takes time and memory in proportion to the vocabulary.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] when there is no end token, or too many bytes.
    pub fn new(mut words: Vec<Vec<u8>>, ends: &[TokenId]) -> Result<Self, GrammarError> {
        let vocabulary = |reason: &str| GrammarError::Vocabulary(reason.to_string());
        let vocab_tokens = words.len();
        let Some(end) = ends.first() else { return Err(vocabulary("it names no token that ends an answer")) };
        for end in ends {
            // An end token's text, where it has one, is no text of an answer.
            words
                .get_mut(*end as usize)
                .ok_or_else(|| vocabulary("an end token lies outside of it"))?
                .clear();
        }
        for word in &mut words {
            // The first byte marks control tokens in the token tree, and no text holds it.
            if word.len() > TOKEN_BYTES_MAX || word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                word.clear();
            }
        }
        if words.iter().map(Vec::len).sum::<usize>() > VOCABULARY_BYTES_MAX || vocab_tokens >= 1 << 24 {
            return Err(vocabulary("its vocabulary is too large"));
        }
        let info = TokRxInfo::new(vocab_tokens as u32, *end);
        let tree = TokTrie::from(&info, &words).with_eos_tokens(ends);
        // Not canonical: the model chooses between the ways to write a forced text in tokens.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(tree));
        let mut parsers =
            ParserFactory::new(&env, InferenceCapabilities::default(), &SlicedBiasComputer::json_slices())
                .map_err(|error| GrammarError::Vocabulary(first_line(&error.to_string())))?;
        parsers.quiet();
        *parsers.limits_mut() = ParserLimits {
            max_lexer_states: LEXER_STATES_MAX,
            // Errors go to clients: they tell what is wrong, not the whole state.
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(Self { parsers, ends: ends.into(), vocab_tokens })
    }

    /// A constraint to JSON that `schema`, a JSON schema as JSON text, describes. Properties come in the schema's
    /// order. Keywords that cannot be enforced are an error, never ignored.
    ///
    /// # Errors
    /// See [`GrammarError`].
    pub fn json_schema(&self, schema: &str) -> Result<GrammarState, GrammarError> {
        let kind = ConstraintKind::JsonSchema;
        check_length(kind, schema)?;
        let schema =
            serde_json::from_str(schema).map_err(|error| GrammarError::NotJson(error.to_string()))?;
        let mut schema = match schema {
            Value::Object(schema) => Value::Object(schema),
            Value::Bool(true) => Value::Object(serde_json::Map::new()),
            _ => return Err(GrammarError::NotASchema),
        };
        // Replaces what the schema's author wrote there: such settings can allow text that is not JSON.
        let options = JsonCompileOptions {
            whitespace_pattern: Some(WHITE_SPACE.to_string()),
            ..JsonCompileOptions::default()
        };
        options.apply_to(&mut schema);
        self.compile(kind, TopLevelGrammar::from_json_schema(schema))
    }

    /// A constraint to text that `expression` (in the syntax of the `regex` crate) matches as a whole, with or
    /// without `^` and `$` around it.
    ///
    /// # Errors
    /// See [`GrammarError`]; look-around other than the two anchors cannot be enforced.
    pub fn regex(&self, expression: &str) -> Result<GrammarState, GrammarError> {
        let kind = ConstraintKind::Regex;
        check_length(kind, expression)?;
        regex_syntax::parse(expression).map_err(|error| {
            GrammarError::NotARegex(match error {
                regex_syntax::Error::Parse(error) => error.kind().to_string(),
                regex_syntax::Error::Translate(error) => error.kind().to_string(),
                _ => "its syntax is not known".to_string(),
            })
        })?;
        self.compile(kind, TopLevelGrammar::from_regex(without_anchors(expression)))
    }

    fn compile(&self, kind: ConstraintKind, grammar: TopLevelGrammar) -> Result<GrammarState, GrammarError> {
        let parser = self
            .parsers
            .create_parser(grammar)
            .map_err(|error| GrammarError::Unsupported { kind, reason: first_line(&error.to_string()) })?;
        let mut state = GrammarState {
            matcher: Matcher::new(Ok(parser)),
            ends: Arc::clone(&self.ends),
            vocab_tokens: self.vocab_tokens,
            ended: false,
        };
        // What no text satisfies, or no text of this vocabulary, shows at the first token.
        match state.allowed() {
            Ok(_) => Ok(state),
            Err(error) => Err(GrammarError::Unsupported { kind, reason: error.to_string() }),
        }
    }
}

/// A constraint on one answer, as far as the answer has come.
pub struct GrammarState {
    matcher: Matcher,
    ends: Arc<[TokenId]>,
    vocab_tokens: usize,
    ended: bool,
}

impl fmt::Debug for GrammarState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarState").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl GrammarState {
    /// The tokens that may come next. The end tokens are among them where the text so far conforms; they are alone
    /// where nothing more may follow.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`].
    pub fn allowed(&mut self) -> Result<TokenMask, GrammarError> {
        if self.ended {
            return Ok(self.mask_of_ends());
        }
        let set = self.matcher.compute_mask_or_eos().map_err(|error| stuck(&error.to_string()))?;
        let mut words: Vec<u32> = set.into();
        words.truncate(self.vocab_tokens.div_ceil(32));
        Ok(TokenMask { words })
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// [`GrammarError::NotAllowed`], after which the state is as before, or [`GrammarError::Stuck`].
    pub fn accept(&mut self, token: TokenId) -> Result<(), GrammarError> {
        if self.ends.contains(&token) {
            if !self.may_end()? {
                return Err(GrammarError::NotAllowed(token));
            }
            self.ended = true;
            return Ok(());
        }
        if self.ended || token as usize >= self.vocab_tokens {
            return Err(GrammarError::NotAllowed(token));
        }
        match self.matcher.try_consume_tokens(&[token]).map_err(|error| stuck(&error.to_string()))? {
            0 => Err(GrammarError::NotAllowed(token)),
            _ => Ok(()),
        }
    }

    fn may_end(&mut self) -> Result<bool, GrammarError> {
        if let Some(error) = self.matcher.get_error() {
            return Err(stuck(&error));
        }
        Ok(self.ended
            || self.matcher.is_stopped()
            || self.matcher.is_accepting().map_err(|error| stuck(&error.to_string()))?)
    }

    fn mask_of_ends(&self) -> TokenMask {
        let mut words = vec![0_u32; self.vocab_tokens.div_ceil(32)];
        for end in self.ends.iter() {
            words[*end as usize / 32] |= 1 << (end % 32);
        }
        TokenMask { words }
    }
}

fn check_length(kind: ConstraintKind, text: &str) -> Result<(), GrammarError> {
    if text.len() > CONSTRAINT_BYTES_MAX {
        return Err(GrammarError::TooLarge { kind, bytes: text.len() });
    }
    Ok(())
}

/// The anchors say nothing where the whole text must match, and the grammar has no look-around.
fn without_anchors(expression: &str) -> &str {
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    match expression.strip_suffix('$') {
        // An odd number of backslashes makes the dollar a character.
        Some(rest) if (rest.len() - rest.trim_end_matches('\\').len()).is_multiple_of(2) => rest,
        _ => expression,
    }
}

fn stuck(message: &str) -> GrammarError {
    GrammarError::Stuck(first_line(message))
}

/// The library appends its state, or where it panicked, in further lines.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests;
