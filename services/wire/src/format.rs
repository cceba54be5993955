//! Which form must a reply have? OpenAI's response formats, and vLLM's structured outputs for what they lack.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The form of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Any text.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema {
        /// The schema.
        json_schema: JsonSchemaFormat,
    },
}

/// A JSON schema with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JsonSchemaFormat {
    /// A name for people; it has no effect.
    pub name: String,
    /// The schema; any JSON when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub schema: Option<Value>,
    /// Replies always conform here, so it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// Forms beyond OpenAI's; at most one. A form that is not known here is refused: ignoring it would break its promise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StructuredOutputs {
    /// The whole reply matches this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The reply is JSON that this schema describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub json: Option<Value>,
    /// The reply is one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_keeps_the_order_of_its_properties() {
        let json =
            r#"{"type":"json_schema","json_schema":{"name":"n","schema":{"z":1,"a":2,"m":{"y":3,"b":4}}}}"#;
        let format: ResponseFormat = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&format).unwrap(), json);
    }

    #[test]
    fn an_unknown_form_is_refused() {
        assert!(serde_json::from_str::<StructuredOutputs>(r#"{"grammar":"root ::= x"}"#).is_err());
        assert!(serde_json::from_str::<ResponseFormat>(r#"{"type":"structural_tag"}"#).is_err());
        assert_eq!(serde_json::from_str::<StructuredOutputs>("{}").unwrap(), StructuredOutputs::default());
    }
}
